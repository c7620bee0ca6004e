"""Tools at work: side by side or alone, in order, whatever they raise or give; permissions; money."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import nbformat
from loop_rig import KEY, Foreign, Person, Rig, result_text
from nbformat.v4 import new_code_cell, new_notebook

import ipyagent
from ipyagent.errors import ToolFailure
from ipyagent.journal.events import (
    AssistantMessage,
    LayerFailed,
    PermissionAnswered,
    PermissionAsked,
    ToolCalled,
    ToolReturned,
)
from ipyagent.journal.protocols import PermissionAnswer, ToolOutput
from ipyagent.model.prices import PRICES, price_of
from ipyagent.practice.replies import calls, text, tool


class Meeting:
    """Counts how many calls are at work at the same time."""

    def __init__(self) -> None:
        self.now = self.most = 0

    async def attend(self, others: int) -> None:
        self.now += 1
        self.most = max(self.most, self.now)
        for _ in range(400):
            if self.most >= others:
                break
            await asyncio.sleep(0.005)
        self.now -= 1


def test_calls_that_only_read_run_side_by_side_and_answer_in_order(make_rig: Callable[..., Rig]) -> None:
    meeting = Meeting()

    async def peek(number: int) -> str:
        """Look."""
        await meeting.attend(5)
        await asyncio.sleep(0.02 * (5 - number))
        return f"peeked {number}"

    rig = make_rig(tools=[ipyagent.tool(parallel=True, permission="none")(peek)])
    rig.server.script(calls([("peek", {"number": n}) for n in range(5)]), text("ok"))
    assert rig.fault_turn().status == "finished"
    assert meeting.most == 5
    returned = [event.call for event in rig.of(ToolReturned)]
    assert [result_text(block) for block in rig.results()] == [f"peeked {n}" for n in range(5)]
    assert returned != [block["tool_use_id"] for block in rig.results()]  # they came back in another order


def test_code_never_runs_beside_another_call(make_rig: Callable[..., Rig]) -> None:
    meeting = Meeting()

    async def peek() -> str:
        """Look."""
        await meeting.attend(2)
        return f"{meeting.now}"

    rig = make_rig(tools=[ipyagent.tool(parallel=True, permission="none")(peek)])
    rig.agent.shell.user_ns["meeting"] = meeting
    meeting.most = 2
    code = "import time\nassert meeting.now == 0\nmeeting.now = 1\ntime.sleep(0.05)\nmeeting.now = 0\n'alone'"
    rig.server.script(calls([("peek", {}), *[("python", {"code": code})] * 2, ("peek", {})]), text("ok"))
    assert rig.fault_turn().status == "finished"
    assert [result_text(block) for block in rig.results()] == ["0", "'alone'", "'alone'", "0"]


def through(name: str, given: Any) -> tuple[str, dict[str, Any]]:
    """A call of a deferred tool."""
    return "call_tool", {"name": name, "arguments": given}


def test_what_is_called_through_call_tool_runs_beside_others_or_alone_as_the_tool_itself(
    make_rig: Callable[..., Rig],
) -> None:
    meeting = Meeting()
    met: list[tuple[int, int]] = []

    async def peek(number: int) -> str:
        """Look."""
        await meeting.attend(4)
        await asyncio.sleep(0.02 * (5 - number))
        return f"peeked {number}"

    async def poke(number: int) -> str:
        """Change."""
        met.append((number, meeting.now))
        meeting.now += 1
        await asyncio.sleep(0.02)
        meeting.now -= 1
        return f"poked {number}"

    looking = ipyagent.tool(parallel=True, permission="ask", deferred="look")(peek)
    rig = make_rig(tools=[looking, ipyagent.tool(permission="none", deferred="change")(poke)], mode="ask")
    peeks = [through("peek", {"number": 1}), ("peek", {"number": 2}), *[through("peek", {"number": n}) for n in (3, 4)]]
    wrong = [through("peek", {"number": "many"}), through("peak", {}), ("call_tool", {})]
    pokes = [through("poke", {"number": n}) for n in (1, 2)]
    refused = through("peek", {"number": 5})
    rig.server.script(calls([*peeks, *wrong, *pokes, refused]), text("ok"))
    person = Person(*[PermissionAnswer("once")] * 4, PermissionAnswer("deny"))
    assert rig.fault_turn(person=person).status == "finished"
    assert meeting.most == 4
    assert met == [(1, 0), (2, 0)]
    assert [event.tool for event in rig.of(PermissionAsked)] == ["peek"] * 5
    told = [result_text(block) for block in rig.results()]
    assert told[:4] == [f"peeked {n}" for n in (1, 2, 3, 4)]
    assert [bool(block.get("is_error")) for block in rig.results()] == [False] * 4 + [True] * 3 + [False] * 2 + [True]
    assert told[7:9] == ["poked 1", "poked 2"]
    assert "The user denied this call" in told[9]


RAISED: dict[str, Callable[[], BaseException]] = {
    "SystemExit": lambda: SystemExit(3),
    "KeyboardInterrupt": lambda: KeyboardInterrupt(),
    "CancelledError": lambda: asyncio.CancelledError(),
    "GeneratorExit": lambda: GeneratorExit(),
    "MemoryError": lambda: MemoryError("much"),
    "RecursionError": lambda: RecursionError("deep"),
    "Unprintable": lambda: Unprintable(),
    "ExceptionGroup": lambda: BaseExceptionGroup("two", [ValueError("a"), KeyboardInterrupt()]),
    "ToolFailure": lambda: ToolFailure(""),
    "surrogate": lambda: ValueError("\ud800"),
}


class Unprintable(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no words")

    __repr__ = __str__


def test_whatever_a_tool_raises_is_its_result(make_rig: Callable[..., Rig]) -> None:
    def raising(made: Callable[[], BaseException]) -> Callable[[], Any]:
        def act() -> ToolOutput:
            raise made()

        return act

    rig = make_rig(tools=[Foreign(raising(made), kind) for kind, made in RAISED.items()])
    rig.server.script(calls([*((kind, {}) for kind in RAISED), ("glob", {"pattern": "*"})]), text("I see"))
    result = rig.fault_turn()
    assert (result.status, result.text) == ("finished", "I see")
    *failed, last = rig.results()
    assert [kind for kind, one in zip(RAISED, failed, strict=True) if not (one["is_error"] and result_text(one))] == []
    assert not last.get("is_error")


def test_a_users_function_that_exits_or_raises_is_survived(rig: Rig) -> None:
    def leave() -> str:
        """Leave."""
        raise SystemExit("bye")

    async def later() -> str:
        """Later."""
        raise SystemExit("bye")

    for function in (leave, later):
        rig.agent.shell.user_ns[function.__name__] = ipyagent.tool(permission="none")(function)
    rig.server.script(calls([("leave", {}), ("later", {})]), text("still here"))
    assert rig.fault_turn().text == "still here"
    assert all("SystemExit" in result_text(block) or "exit" in result_text(block).lower() for block in rig.results())


GIVEN: dict[str, Any] = {
    "surrogates": ToolOutput(blocks=({"type": "text", "text": "a\ud800b"},), note="\udfff"),
    "NUL": ToolOutput(blocks=({"type": "text", "text": "a\0b"},)),
    "nothing": ToolOutput(blocks=()),
    "empty text": ToolOutput(blocks=({"type": "text", "text": "  "},)),
    "huge": ToolOutput(blocks=({"type": "text", "text": "x y " * 110_000},)),
    "None": None,
    "a string": "just text",
    "an object": ToolOutput(blocks=({"type": "text", "text": object()},)),
    "an unknown kind": ToolOutput(blocks=({"type": "hologram", "n": 1},)),
    "no kind": ToolOutput(blocks=({"n": 1},)),
    "NaN": ToolOutput(blocks=({"type": "text", "text": "x", "n": float("nan")},)),
    "a large integer": ToolOutput(blocks=({"type": "stats", "n": 10**40},)),
}


PRINTED = (
    "print('a\\ud800b\\0c')",
    "'\\ud800' * 3",
    "raise ValueError('\\udfff')",
    "print('x y ' * 40_000)",
    "import sys; sys.stdout.write('\\x1b[31mred\\r\\b')",
)


def test_whatever_a_tool_gives_or_code_prints_the_next_request_is_valid(make_rig: Callable[..., Rig]) -> None:
    loop: dict[str, Any] = {"type": "text", "text": "x"}
    loop["self"] = loop
    given = [*GIVEN.values(), ToolOutput(blocks=(loop,))]
    tools = [Foreign(lambda each=each: each, f"foreign{at}") for at, each in enumerate(given)]
    rig = make_rig(tools=tools, whole_chars=400_000)
    wanted: list[tuple[str, Any]] = [(f"foreign{at}", {}) for at in range(len(given))]
    wanted += [("python", {"code": code}) for code in PRINTED]
    rig.server.script(calls(wanted), *(calls([each]) for each in wanted), text("I see"))
    assert rig.fault_turn().text == "I see"
    assert len(rig.results()) == 2 * len(wanted)
    assert [result for result in rig.results() if not 0 < len(json.dumps(result)) < 150_000] == []


def test_the_key_that_code_prints_reaches_neither_model_nor_transcript(rig: Rig) -> None:
    printing = [
        ("python", {"code": "import os; print(os.environ['ANTHROPIC_API_KEY'])"}),
        ("python", {"code": "os.environ['ANTHROPIC_API_KEY']"}),
        ("python", {"code": "raise ValueError(os.environ['ANTHROPIC_API_KEY'])"}),
        ("shell", {"command": "echo $ANTHROPIC_API_KEY"}),
    ]
    rig.server.script(calls(printing), text("I see"))
    assert rig.fault_turn().text == "I see"  # looks for the key in everything written
    assert KEY not in json.dumps(rig.results())
    assert len(rig.results()) == 4


def test_an_unexpected_error_of_ours_ends_in_one_line_and_a_report(make_rig: Callable[..., Rig]) -> None:
    class Odd(Foreign):
        @property
        def parallel(self) -> bool:
            raise RuntimeError("a bug that nobody foresaw")

    rig = make_rig()
    odd = Odd(lambda: ToolOutput(blocks=()), "odd")
    rig.server.script(lambda body: [rig.agent.session.tools.update(odd=odd), tool("odd", {})][1])
    result = rig.fault_turn()
    assert result.status == "failed"
    assert "nobody foresaw" in result.message
    assert "bug-report" in result.message


# ------------------------------------------------------------------ permissions


def asking(make_rig: Callable[..., Rig], **settings: Any) -> Rig:
    return make_rig(mode="ask", **settings)


def test_allowed_once_it_runs_once_and_the_question_is_on_the_disk_before_it_is_asked(
    make_rig: Callable[..., Rig],
) -> None:
    rig = asking(make_rig)

    def look(asked: PermissionAsked) -> PermissionAnswer:
        assert rig.events()[-1] == asked
        assert rig.of(ToolCalled) == []
        return PermissionAnswer("once")

    rig.server.script(tool("python", {"code": "n = 1"}), tool("python", {"code": "n = 2"}), text("ok"))
    person = Person(look, PermissionAnswer("deny", reason="one is enough"))
    assert rig.fault_turn(person=person).status == "finished"
    assert rig.agent.shell.user_ns["n"] == 1
    assert [asked.text for asked in person.asked] == ["n = 1", "n = 2"]
    told = "Reason: “one is enough”. Follow it: do what it asks for, and do not try in another way what it refuses."
    assert told in result_text(rig.results()[1])


def test_allowed_always_the_like_is_not_asked_again(make_rig: Callable[..., Rig]) -> None:
    rig = asking(make_rig)
    rig.server.script(tool("python", {"code": "n = 1"}), tool("python", {"code": "n = 2"}), text("ok"))
    person = Person(PermissionAnswer("always"))
    assert rig.fault_turn(person=person).status == "finished"
    assert rig.agent.shell.user_ns["n"] == 2
    assert len(person.asked) == 1
    answers = [event.answer for event in rig.of(PermissionAnswered)]
    assert answers == ["always"]


def test_always_that_cannot_be_stored_is_allowed_once_and_says_why(make_rig: Callable[..., Rig]) -> None:
    rig = asking(make_rig)
    store = rig.agent.permissions._store

    def block(asked: PermissionAsked) -> PermissionAnswer:
        store.parent.mkdir(parents=True, exist_ok=True)
        store.mkdir()
        return PermissionAnswer("always")

    rig.server.script(tool("python", {"code": "n = 1"}), text("ok"))
    assert rig.fault_turn(person=Person(block)).status == "finished"
    assert rig.agent.shell.user_ns["n"] == 1
    events = rig.events()
    assert [event.answer for event in events if isinstance(event, PermissionAnswered)] == ["once"]
    (told,) = [event.why for event in events if isinstance(event, LayerFailed)]
    assert told.startswith("Allowed this once, not always: ")
    assert str(store) in told
    assert "directory" in told


def test_an_approval_is_void_when_the_file_changed_since_and_always_stores_no_rule(
    make_rig: Callable[..., Rig],
) -> None:
    rig = asking(make_rig)
    target = rig.agent.project.root / "a.py"
    target.write_text("one\ntwo\n")

    def change(asked: PermissionAsked) -> PermissionAnswer:
        assert "-one" in asked.text
        target.write_text("zero\none\ntwo\n")
        return PermissionAnswer("always")

    rig.server.script(
        tool("read_file", {"path": "a.py"}), tool("edit_file", {"path": "a.py", "old": "one", "new": "1"}), text("ok")
    )
    assert rig.fault_turn(person=Person(change)).status == "finished"
    assert target.read_text() == "zero\none\ntwo\n"
    assert rig.results()[-1]["is_error"]
    assert "changed since" in result_text(rig.results()[-1])
    assert [event.answer for event in rig.of(PermissionAnswered)] == ["once"]
    assert rig.agent.permissions.rules == ()


def test_nobody_to_ask_is_a_denial_that_says_how_to_allow(make_rig: Callable[..., Rig]) -> None:
    rig = asking(make_rig)
    rig.server.script(tool("python", {"code": "n = 1"}), text("ok"))
    assert rig.fault_turn().status == "finished"
    assert "IPYAGENT_MODE=auto" in result_text(rig.results()[0])


def test_read_only_changes_nothing(make_rig: Callable[..., Rig]) -> None:
    rig = make_rig(mode="read_only")
    (rig.folder / "a.txt").write_text("one")
    rig.server.script(calls([("python", {"code": "n = 1"}), ("read_file", {"path": "a.txt"})]), text("ok"))
    assert rig.fault_turn().status == "finished"
    assert "read_only" in result_text(rig.results()[0])
    assert "one" in result_text(rig.results()[1])


# ------------------------------------------------------------------ money

DEAR = {"input_tokens": 1_000_000}


def test_a_request_over_its_cost_pauses_with_a_question(make_rig: Callable[..., Rig]) -> None:
    rig = make_rig(max_cost=0.001)
    rig.server.script(*[tool("python", {"code": "1"})] * 2, text("done"))
    person = Person(PermissionAnswer("once"), PermissionAnswer("once"))
    result = rig.fault_turn(person=person)
    assert result.status == "finished"
    assert person.asked
    assert "max_cost" in person.asked[0].text
    rig.server.script(*[tool("python", {"code": "1"})] * 2)
    result = rig.turn(person=Person(PermissionAnswer("deny")))
    assert (result.status, "max_cost" in result.message) == ("limit", True)
    rig.server._queue.clear()


def test_the_cost_of_the_day_counts_over_all_sessions(make_rig: Callable[..., Rig], home: Path) -> None:
    rig = make_rig()
    rig.server.script(tool("python", {"code": "1"}), text("ok"))
    first = rig.turn()
    assert first.cost > 0
    other = make_rig(folder=home / "other", max_cost_per_day=first.cost / 2)
    result = other.turn()
    assert (result.status, "max_cost_per_day" in result.message) == ("limit", True)


def test_a_limit_holds_where_no_price_is_known_and_the_dearest_known_one_counts(
    make_rig: Callable[..., Rig], home: Path
) -> None:
    unknown = "claude-opus-5"
    assert price_of(unknown) is None
    rig = make_rig(max_cost=0.001, model=unknown)
    rig.server.script(tool("python", {"code": "1"}))
    result = rig.fault_turn()
    assert (result.status, result.cost) == ("limit", None)
    assert "up to $" in result.message
    assert "IPyAgent.max_cost" in result.message
    rig.server.script(tool("python", {"code": "1"}))
    assert rig.fault_turn().status == "limit"
    told = [event.why for event in rig.of(LayerFailed)]
    assert len(told) == 1
    assert unknown in told[0]
    kinds = [type(event) for event in rig.events()]
    assert kinds.index(LayerFailed) < kinds.index(AssistantMessage), "said before the first dollar"
    rig = make_rig(max_cost=0.1, model=unknown, price={unknown: [0.1, 0.2]}, folder=home / "priced")
    rig.server.script(text("ok"))
    result = rig.fault_turn()
    assert (result.status, result.cost is not None) == ("finished", True)
    assert not rig.of(LayerFailed)
    assert f"${max(price.input for _, price in PRICES):g} a million in" in told[0]
    other = make_rig(folder=home / "other", max_cost_per_day=0.001)
    assert "max_cost_per_day" in other.turn().message, "the day counts them too"


def test_inserts_of_one_message_keep_their_order_and_those_of_the_next_stand_on_their_own(
    make_rig: Callable[..., Rig],
) -> None:
    rig = make_rig()
    path = rig.folder / "n.ipynb"
    nbformat.write(new_notebook(cells=[new_code_cell("x = 1", id="load"), new_code_cell("y", id="last")]), path)

    def insert(source: str) -> tuple[str, dict[str, Any]]:
        return "notebook", {"action": "insert", "path": "n.ipynb", "after": "load", "source": source}

    rig.server.script(
        tool("notebook", {"action": "read", "path": "n.ipynb"}),
        calls([insert("a"), insert("b")]),
        calls([insert("c")]),
        text("ok"),
    )
    rig.turn("go", Person(*[PermissionAnswer("allow")] * 3))
    assert [cell.source for cell in nbformat.read(path, 4).cells] == ["x = 1", "c", "a", "b", "y"]


def test_the_model_finds_what_the_user_said_in_an_earlier_session(make_rig: Callable[..., Rig]) -> None:
    rig = make_rig()
    rig.server.script(text("Noted."))
    rig.turn("never touch the harbour file")
    first = rig.agent.session.journal.session
    rig.agent.new()
    rig.server.script(tool("past_sessions", {"query": "harbour file"}), text("ok"))
    rig.turn("what did I say of the port?")
    [found] = [result_text(block) for block in rig.results()]
    assert f"session {first}, turn 1, the user: never touch the harbour file" in found
    assert "What was said in earlier sessions: `past_sessions`." in json.dumps(rig.server.messages[-1].body["system"])
