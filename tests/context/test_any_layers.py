"""Whatever layers, refusals, stops, undo and resumes come in whatever order: nothing is lost, nothing is refused.

The model here says a fact in each answer, and its summaries and notes repeat all that they were shown. So a fact that
is neither in the view nor in a file that the view names, or that such a file names, was lost by the engine.
"""

from __future__ import annotations

import re
import tempfile
from itertools import combinations, pairwise, permutations
from pathlib import Path
from typing import Any

import pytest
from compact_room import compact_room, directive_in, plain, words
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from ipyagent.context.notes_file import NOTES
from ipyagent.errors import AgentError
from ipyagent.journal.events import NotesWritten
from ipyagent.practice.replies import Fault, Reply, text, tool

FACT = re.compile(r"\b(?:ZEBRA|[URA]\d+fact)\b")
KEPT = re.compile(r"tool-results/[\w.-]+|[\w/.-]+/notes\.md")
WINDOW = 40_000
QUIET = {
    "window": WINDOW, "layer_notes": True, "notes_start": 1_000_000, "notes_step": 1_000_000, "keep_tokens": 300,
    "keep_messages": 1, "compact_thrash_turns": 0, "compact_failures": 1_000, "clear_keep": 0, "clear_chars": 10,
}  # fmt: skip
ORDERED = ("tool", "auto", "reactive", "notes", "snip", "undo", "stop", "resume")
ORDERS = [
    tuple(line.split())
    for line in """
    auto tool snip undo reactive notes stop resume
    reactive resume snip notes tool auto stop undo
    stop notes snip tool reactive resume undo auto
    tool resume notes undo snip stop reactive auto
    reactive undo notes auto snip resume stop tool
    snip stop auto resume reactive undo tool notes
    notes stop undo tool resume auto reactive snip
    resume auto notes snip reactive tool undo stop
    auto undo resume tool stop snip notes reactive
    undo reactive stop tool snip auto notes resume
""".strip().splitlines()
]
OPERATIONS = (*ORDERED, "turn", "turn", "collapse", "clear", "from", "upto", "compact", "exceeded", "twice")


class Anything:
    """A session whose server refuses the requests with the numbers `refused` as too long, calls for a summary too."""

    def __init__(self, place: Path, room: Any, refused: set[int]) -> None:
        self.room, self.refused, self.asked, self.turns = room, set(refused), 0, 0
        self.replies: list[Any] = []
        self.said: set[str] = set()
        room.answer = self.answer
        self.agent = room.agent(**QUIET)

    def answer(self, body: dict[str, Any]) -> Reply | Fault:
        self.asked += 1
        if self.asked in self.refused:
            return too_long(WINDOW + 500 * (self.asked % 4))
        if directive_in(body):
            known = dict.fromkeys(FACT.findall("\n".join(plain(message["content"]) for message in body["messages"])))
            return text(f"<analysis>so</analysis><summary>1. All of it: {' '.join(known)}</summary>")
        answer = self.replies.pop(0) if self.replies else text("ok")
        made = answer(body) if callable(answer) else answer
        if isinstance(made, Reply):  # what never came is not lost
            self.said |= set(FACT.findall(plain([block for block in made.content if block["type"] == "text"])))
        return made

    # ------------------------------------------------------------------ what happens

    def take(self, what: str, number: int) -> None:
        try:
            getattr(self, what)(number)
        except AgentError:
            return  # there is nothing to take back, to compact, to take out: said in one line

    def turn(self, number: int, *first: Any) -> None:
        self.turns += 1
        n = self.turns
        look = tool("python", {"code": f"print('R{n}fact', {words(n, 100 + 20 * number)!r})"}, thinking="I look.")
        last = text(f"A{n}fact. {words(n, 100)}", thinking="So." if number % 2 else None)
        self.replies = [*first, look, last]
        said = f"U{n}fact {'remember ZEBRA' if n == 1 else ''} {words(n, 30 * (number % 5))}"
        self.said |= set(FACT.findall(said))
        self.agent.run_sync(said)

    def tool(self, number: int) -> None:
        self.turn(number, tool("compact", {"instructions": "keep all"}, thinking="Room."))

    def auto(self, number: int) -> None:
        tokens = self.session.view.count().tokens
        self.agent.settings.auto_compact_percent = max(1, 100 * tokens // WINDOW)
        self.turn(number)
        self.agent.settings.auto_compact_percent = 0

    def reactive(self, number: int) -> None:
        self.turn(number, too_long(WINDOW + 100))

    def twice(self, number: int) -> None:
        self.turn(number, too_long(WINDOW + 100), too_long(WINDOW + 5_000))

    def exceeded(self, number: int) -> None:
        self.turn(number, text("half", stop="model_context_window_exceeded"), *[too_long(WINDOW)] * (number % 2))

    def notes(self, number: int) -> None:
        """Notes of all that stands in the view, as they are written behind a turn, and a compaction by them."""
        known = dict.fromkeys(FACT.findall(self.view))
        path = self.session.journal.folder / NOTES
        path.write_text(f"# Worklog\n{' '.join(known)}\n")
        upto = max(source for _, _, source in self.session.view.placed())
        self.session.record(NotesWritten(upto=upto, tokens=20))
        if number % 2:
            self.turn(number)
        self.agent.compact()

    def snip(self, number: int) -> None:
        if number % 2:
            self.turn(number)  # one that no summary has
        self.agent.compact(f"--snip {self.turns if number % 2 else 1 + number % self.turns}")

    def compact(self, number: int) -> None:
        self.agent.compact("all of it")

    def upto(self, number: int) -> None:
        self.agent.compact(f"--up-to {1 + number % self.turns}")

    def undo(self, number: int) -> None:
        self.agent.compact("--undo")

    def stop(self, number: int) -> None:
        def stopped(body: dict[str, Any]) -> Reply:
            self.agent.stop()
            return text("never read", delay=0.2)

        look = tool("python", {"code": "1 + 1"}, thinking="I look.")
        self.turn(number, *([look] if number % 2 else []), stopped)

    def collapse(self, number: int) -> None:
        self.agent.settings.layer_collapse, self.agent.settings.collapse_percent = True, 1
        self.turn(number)
        self.agent.settings.layer_collapse = False

    def clear(self, number: int) -> None:
        self.agent.settings.clear_policy = "every_turn"
        self.turn(number)
        self.agent.settings.clear_policy = "economic"

    def resume(self, number: int) -> None:
        name = self.session.journal.session
        self.agent.close()
        self.agent = self.room.agent(**QUIET)
        self.agent.resume(name)

    # ------------------------------------------------------------------ what holds

    @property
    def session(self) -> Any:
        return self.agent.session

    @property
    def view(self) -> str:
        return "\n".join(plain(message["content"]) for message in self.session.view.messages)

    def check(self, path: tuple[Any, ...]) -> None:
        folder, shown = self.session.journal.folder, self.view
        known, files, found = shown, set(), set(KEPT.findall(shown))
        while found - files:
            for name in sorted(found - files):
                files.add(name)
                kept = folder / (NOTES if name.endswith(NOTES) else name)
                known += kept.read_text() if kept.suffix in (".txt", ".md") else ""
            found = set(KEPT.findall(known))
        assert self.said <= set(FACT.findall(known)), (path, sorted(self.said - set(FACT.findall(known))))
        out = {f"U{at}fact" for at, turn in enumerate(self.session.history.turns, 1) if turn.out}
        users = {fact for fact in self.said if fact[0] in "UZ"} - out
        assert 1 in [at for at, turn in enumerate(self.session.history.turns, 1) if turn.out] or "ZEBRA" in shown, path
        assert users - {"ZEBRA"} <= set(FACT.findall(shown)), (path, sorted(users - set(FACT.findall(shown))))
        wrong = [exchange.error for exchange in self.room.server.refused if "too long" not in str(exchange.error)]
        assert wrong == [], (path, wrong)


setattr(Anything, "from", lambda self, number: self.agent.compact(f"--from {1 + number % self.turns}"))


def too_long(tokens: int) -> Fault:
    said = f"prompt is too long: {tokens} tokens > {WINDOW} maximum" if tokens > WINDOW else "prompt is too long"
    return Fault(400, "invalid_request_error", said)


def hold(script: list[tuple[str, int]], refused: set[int]) -> int:
    """Nothing is lost after any step, nor when the session goes on, and the journal gives the same bytes.

    Returns how many requests the steps made.
    """
    with tempfile.TemporaryDirectory() as place, compact_room(Path(place)) as room:
        walk = Anything(Path(place), room, refused)
        walk.take("turn", 6)
        for at, (what, number) in enumerate(script):
            walk.take(what, number)
            walk.check((*script[: at + 1], refused))
        asked = walk.asked
        walk.refused.clear()
        walk.turn(0)
        walk.check((*script, refused, "and on"))
        room.replays(walk.agent)
    return asked


def all_of(order: tuple[str, ...]) -> list[tuple[str, int]]:
    return [("turn", 20), *((what, 3 if what == "snip" else 3 + at % 2) for at, what in enumerate(order))]


def test_every_three_of_all_come_in_every_order_and_every_two_of_them_one_right_behind_the_other() -> None:
    assert {three for order in ORDERS for three in combinations(order, 3)} == set(permutations(ORDERED, 3))
    assert {two for order in ORDERS for two in pairwise(order)} == set(permutations(ORDERED, 2))


@pytest.mark.parametrize("order", ORDERS, ids="-".join)
def test_zebra_is_there_after_all_of_them_with_a_refusal(order: tuple[str, ...]) -> None:
    hold(all_of(order), {3 + 2 * ORDERS.index(order)})


@pytest.mark.slow
@pytest.mark.parametrize("order", ORDERS, ids="-".join)
def test_zebra_is_there_after_all_of_them_with_a_refusal_at_each_request_in_turn(order: tuple[str, ...]) -> None:
    """At every fifth one: five orders that follow one another have all of them."""
    at, asked = 3 + ORDERS.index(order) % 5, hold(all_of(order), set())
    while at <= asked:
        asked = hold(all_of(order), {at})
        at += 5


_scripts = st.lists(st.tuples(st.sampled_from(OPERATIONS), st.integers(0, 30)), min_size=2, max_size=9)
_refused = st.sets(st.integers(3, 30), max_size=4)


@settings(max_examples=5, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True)
@given(_scripts, _refused)
def test_nothing_is_lost_in_any_order_of_layers_refusals_stops_undo_and_resume(
    script: list[tuple[str, int]], refused: set[int]
) -> None:
    hold(script, refused)


@pytest.mark.slow
@settings(
    max_examples=25,
    deadline=None,
    suppress_health_check=list(HealthCheck),
    phases=(Phase.generate, Phase.shrink),
)
@given(_scripts, _refused)
def test_nor_in_many_random_ones(script: list[tuple[str, int]], refused: set[int]) -> None:
    hold(script, refused)
