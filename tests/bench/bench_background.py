"""What work in the background takes of the money: recorded sessions of a strong model through the whole product.

The agent, its prompt, recall, notes, extraction and their forks are real; the practice server keeps the cache as the
API does. The main model says what it said, each call gives what it gave (the memory tool runs), and what the recorded
forks wrote is written by the forks that are made now: one that covers several of them writes what all of them wrote,
in as many tokens. `IPYAGENT_SESSIONS` names another folder of recordings.
"""

from __future__ import annotations

import json
import os
import re
import tempfile
import threading
from collections import defaultdict, deque
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import msgspec

from ipyagent.journal.events import (
    AssistantMessage,
    Compacted,
    Event,
    ForkEnded,
    KernelStarted,
    MemorySaved,
    ToolCalled,
    ToolReturned,
    UsageReported,
    UserMessage,
)
from ipyagent.journal.journal import read_events
from ipyagent.loop.session_state import IN_FRONT, SessionState, Totals
from ipyagent.practice.replies import Reply, calls, text
from ipyagent.practice.server.tokens import count_text
from tests.bench.measuring import MODEL, Row, home

SESSIONS = Path(
    os.environ.get("IPYAGENT_SESSIONS", Path(__file__).parents[3] / "shared" / "data" / "real-model" / "sessions")
)
SHORT = ("c732", "4eee", "2b1f")
LONG, LONG_WINDOW = "long-19fd", 40_000
EVERY_TURN: dict[str, Any] = {
    "extract_words": 0, "extract_from": "conversation", "background_percent": 100.0, "recall_selector_from": 1,
}  # fmt: skip
"""As it was when the sessions were recorded: the conversation after every turn."""
NOTHING = "Nothing to save."
_DONE = 30.0


class Recorded(msgspec.Struct, kw_only=True):
    """One turn: what was said and done, and what the forks behind it wrote (paths, tokens of the answer)."""

    text: str
    restarted: bool = False
    rounds: list[list[dict[str, Any]]] = []
    saved: list[tuple[tuple[str, ...], int]] = []
    noted: int = 0
    summaries: list[str] = []
    """What `%compact` gave after it."""


class Spent(msgspec.Struct, frozen=True, kw_only=True):
    """What replays took: by kind, and which memories were saved of those that were saved when they were recorded."""

    spent: dict[str, Totals]
    facts: tuple[str, ...]
    missing: tuple[str, ...]
    refused: tuple[str, ...]

    @property
    def share(self) -> float:
        """Of all money, 0-1."""
        return share_of(self.spent)

    def __str__(self) -> str:
        rows = sorted(self.spent.items(), key=lambda item: -(item[1].cost or 0.0))
        told = ", ".join(f"{kind} {one.requests} × ${one.cost or 0.0:.4f}" for kind, one in rows)
        saved = f"{len(self.facts) - len(self.missing)} of {len(self.facts)} saved"
        return f"background {100 * self.share:.1f} %; {told}; {saved}"


def share_of(spent: dict[str, Totals]) -> float:
    """The share of background work in dollars, 0-1."""
    whole = sum(one.cost or 0.0 for one in spent.values())
    return sum(one.cost or 0.0 for kind, one in spent.items() if kind not in IN_FRONT) / whole


def then(names: Iterable[str]) -> float:
    """The share when the sessions were recorded, 0-1."""
    behind = whole = 0.0
    for name in names:
        for event in read_events(SESSIONS / f"{name}.jsonl"):
            if isinstance(event, UsageReported | ForkEnded):
                whole += event.cost or 0.0
                behind += (event.cost or 0.0) * (isinstance(event, ForkEnded) and event.purpose not in IN_FRONT)
    return behind / whole


def recorded(events: Iterable[Event]) -> tuple[list[Recorded], dict[str, deque[ToolReturned]]]:
    """The turns of a journal, and the results of its calls by tool and input."""
    turns: list[Recorded] = []
    asked: dict[str, str] = {}
    results: dict[str, deque[ToolReturned]] = defaultdict(deque)
    written: list[str] = []
    restarted = False
    for event in events:
        match event:
            case KernelStarted():
                restarted = event.resumed
            case UserMessage():
                turns.append(Recorded(text=event.text, restarted=restarted))
                restarted, written = False, []
            case AssistantMessage() if turns and not event.partial:
                kept = [dict(block) for block in event.blocks if block["type"] in ("text", "tool_use")]
                turns[-1].rounds.append(kept)
            case ToolCalled():
                asked[event.call] = _key(event.name, event.input)
            case ToolReturned() if event.call in asked:
                results[asked[event.call]].append(event)
            case MemorySaved() if event.by == "extraction":
                written.append(event.path)
            case ForkEnded() if event.purpose == "extraction" and written:
                turns[-1].saved.append((tuple(dict.fromkeys(written)), event.usage.output))
                written = []
            case ForkEnded() if event.purpose == "notes":
                turns[-1].noted = event.usage.output
            case Compacted() if event.trigger == "manual" and event.method == "summary" and event.first == 1:
                turns[-1].summaries.append("\n".join(str(block.get("text", "")) for block in event.blocks))
            case _:
                pass
    return turns, results


def _key(name: str, given: dict[str, Any]) -> str:
    return f"{name} {json.dumps(given, sort_keys=True)}"


class _Tool:
    """A tool of ours that gives what was recorded."""

    parallel, recreatable = True, True

    def __init__(self, real: Any, results: dict[str, deque[ToolReturned]]) -> None:
        self.name, self.description, self.input_schema = real.name, real.description, real.input_schema
        self.recreatable = getattr(real, "recreatable", True)
        self._results = results

    def validate(self, input: dict[str, Any]) -> dict[str, Any]:
        return input

    def permission(self, input: dict[str, Any], workspace: Any) -> str:
        return "none"

    def writes(self, input: dict[str, Any], workspace: Any) -> bool:
        return False

    def destructive(self, input: dict[str, Any], workspace: Any) -> str:
        return ""

    def pattern(self, input: dict[str, Any], workspace: Any) -> str:
        return self.name

    def question(self, input: dict[str, Any], workspace: Any) -> Any:
        raise AssertionError("nobody is asked")

    async def run(self, input: dict[str, Any], workspace: Any) -> Any:
        from ipyagent.journal.protocols import ToolOutput

        found = self._results.get(_key(self.name, input))
        if not found:
            return ToolOutput(blocks=({"type": "text", "text": "(nothing was recorded)"},), is_error=True)
        made = found.popleft() if len(found) > 1 else found[0]
        return ToolOutput(blocks=made.blocks, is_error=made.is_error)


class Brain:
    """The recorded model, for the conversation and for what is forked behind it."""

    def __init__(self) -> None:
        self.turns: list[Recorded] = []
        self.number = 0
        """The turn that is under way, or that ended last; from 1."""
        self.rounds: deque[list[dict[str, Any]]] = deque()
        self._told = self._noted = 0
        self._lock = threading.Lock()

    def begin(self, turns: list[Recorded]) -> None:
        self.turns, self.number, self._told, self._noted = turns, 0, 0, 0

    def turn(self) -> Recorded:
        self.number += 1
        turn = self.turns[self.number - 1]
        self.rounds = deque(turn.rounds)
        return turn

    def __call__(self, body: dict[str, Any]) -> Reply:
        with self._lock:
            messages = body["messages"]
            last = [block for block in messages[-1]["content"] if block["type"] == "text"]
            words = str(last[-1]["text"]) if last else ""
            if "<select-memories>" in words:
                return text('{"memories": []}')
            if "<analysis>" in words and "<summary>" in words:
                made = self.turns[self.number - 1].summaries
                summary = made.pop(0) if made else "The work so far. " * 250
                return text(f"<analysis>so</analysis>\n<summary>\n{summary}\n</summary>")
            notes = re.search(r'<update-notes file="([^"]+)">.*?<notes>\n(.*?)\n</notes>', words, re.S)
            wanted = self._notes(notes) if notes else []
            if "<extract-memories>" in words:
                wanted += self._writes(body)
            if notes or "<extract-memories>" in words:
                return calls(wanted) if wanted else text(NOTHING)
            if not self.rounds:
                return text("Done.")
            blocks = self.rounds.popleft()
            stop = "tool_use" if any(block["type"] == "tool_use" for block in blocks) else "end_turn"
            return Reply(tuple(blocks), stop, chunk=20_000)

    def _notes(self, asked: re.Match[str]) -> list[tuple[str, dict[str, Any]]]:
        """As many tokens of notes as the recorded updates wrote up to this turn that no fork has written yet."""
        sizes = [turn.noted for turn in self.turns[self._noted : self.number] if turn.noted >= 100]
        self._noted = self.number
        if not sizes:
            return []
        size = sum(sizes)
        line = asked[2].rstrip().splitlines()[-1]
        room = size - 100 - count_text(line)
        return [("edit_file", {"path": asked[1], "old": line, "new": f"{line}\n{_filler(room, self.number)}"})]

    def _writes(self, body: dict[str, Any]) -> list[tuple[str, dict[str, Any]]]:
        """What the recorded extractions wrote up to the turn that is looked at, and no fork has written yet."""
        told = str(body["messages"][0]["content"][0].get("text", ""))
        numbers = re.findall(r'<user turn="(\d+)">', told)
        upto = int(numbers[-1]) if numbers else self.number
        wanted: list[tuple[str, dict[str, Any]]] = []
        for turn in self.turns[self._told : upto]:
            for paths, size in turn.saved:
                wanted += [("memory", _create(path, size // len(paths))) for path in paths]
        self._told = max(self._told, upto)
        return wanted


def _create(path: str, tokens: int) -> dict[str, Any]:
    name = path.rpartition("/")[2].removesuffix(".md")
    words = name.replace("-", " ")
    head = f"---\nname: {name}\ndescription: {words}\ntype: project\n---\n{words}\n"
    return {"command": "create", "path": path, "file_text": head + _filler(tokens - 60, 0)}


def _filler(tokens: int, number: int) -> str:
    line = f"- Turn {number}: the table of means by region was made again with the rule for reports.\n"
    return line * max(1, tokens // count_text(line))


def measure(names: Iterable[str], *, window: int = 0, **settings: Any) -> Spent:
    """Replay sessions one after the other in one project. Blocks."""
    from ipyagent import Agent, IPyAgent
    from ipyagent.parts.memory import MemoryPart
    from ipyagent.practice.server import PracticeServer

    brain, spent, facts = Brain(), defaultdict(Totals), dict[str, None]()
    saved: set[str] = set()
    with (
        tempfile.TemporaryDirectory() as place,
        home(place),
        PracticeServer(brain, keep_bodies=False) as server,
    ):
        folder = Path(place) / "project"
        folder.mkdir()
        for name in names:
            events = list(read_events(SESSIONS / f"{name}.jsonl"))
            turns, results = recorded(events)
            facts |= dict.fromkeys(_names(event for event in events if _counts(event)))
            brain.begin(turns)
            given = {
                "base_url": server.url, "model": MODEL, "mode": "auto", "trust_all": True,
                "window": window, "dreaming": False, "mcp": False, **settings,
            }  # fmt: skip

            def agent(given: dict[str, Any] = given, results: Any = results) -> Any:
                bare = Agent(settings=IPyAgent(environ={}, **given), folder=folder)
                tools = [_Tool(tool, results) for each, tool in bare.tools_now().items() if each != "memory"]
                bare.close()
                return Agent(settings=IPyAgent(environ={}, **given), folder=folder, tools=tools)

            now, session = agent(), ""
            for _ in turns:
                turn = brain.turn()
                if turn.restarted and session:
                    now.close()
                    now = agent()
                    now.resume(session)
                now.run_sync(turn.text)
                session = now.session.journal.session
                now.part(MemoryPart).extracting.wait(now.session, _DONE)
                for _ in turn.summaries[:1]:
                    now.compact("")
                    now.part(MemoryPart).extracting.wait(now.session, _DONE)
            path = now.session.journal.path
            now.close()
            made = list(read_events(path))
            saved |= set(_names(made))
            history = SessionState()
            for event in made:
                history.apply(event)
            for kind, one in history.spent.items():
                spent[kind].add(one.usage, one.cost, one.requests)
        refused = tuple(exchange.error for exchange in server.refused)
    missing = tuple(fact for fact in facts if fact not in saved)
    return Spent(spent=dict(spent), facts=tuple(facts), missing=missing, refused=refused)


def _counts(event: Event) -> bool:
    return isinstance(event, MemorySaved) and event.by in ("agent", "extraction") and event.change != "deleted"


def _names(events: Iterable[Event]) -> list[str]:
    return [event.path.rpartition("/")[2] for event in events if isinstance(event, MemorySaved)]


def rows() -> list[Row]:
    if not SESSIONS.is_dir():
        return [("background work in recorded sessions", f"not measured: no sessions in {SESSIONS}", "")]
    made: list[Row] = []
    for what, names, window in (("3 short sessions", SHORT, 0), ("25 turns in 40K", (LONG,), LONG_WINDOW)):
        made.append((f"{what}, as recorded", f"background {100 * then(names):.1f} %", ""))
        made.append((f"{what}, after every turn", str(measure(names, window=window, **EVERY_TURN)), ""))
        made.append((f"{what}, now", str(measure(names, window=window)), "at most 15 %, all saved"))
    return made
