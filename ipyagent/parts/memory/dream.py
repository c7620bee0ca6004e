"""A dream: the memories of one directory are looked through as a whole, merged, dated, and rid of what no longer
holds. When one is due, what it is told, and how far it has come.

The gates are asked in the order of what they cost; a turn with nothing to do costs a `stat`. How far a dream has
come is read off its events alone.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Sequence
from datetime import datetime
from importlib.resources import files
from pathlib import Path
from typing import Literal

import msgspec

from ipyagent.journal.events import AssistantMessage, Event, MemorySaved, ToolCalled, UsageReported
from ipyagent.parts.memory.dream_record import DreamChange
from ipyagent.parts.memory.dream_workspace import deleted_share
from ipyagent.parts.memory.extract import Listed, harmless, manifest
from ipyagent.parts.memory.index import MOST_LINES
from ipyagent.parts.memory.transaction import DreamLock

PURPOSE = "dream"
TAG = "dream"
"""The element that holds the order."""
MOST_REPLIES = 40
"""Replies of the model in one dream."""
MOST_SECONDS = 1800.0
SHOWN_TURNS = 30
LOOK_SECONDS = 600.0
"""Sessions are counted at most so often."""
MOST_DELETED = 1 / 3
"""The part of the files that a dream may delete without the user's yes."""
MOST_FINDINGS = 30
EVERYWHERE = (
    " These memories are the user's for all projects, and none of them is here: there is nothing to look at but the "
    "memories themselves, so nothing is refuted by a file that is missing."
)
_NAMED = re.compile(r"\{\{(\w+)\}\}")
_WRITES = ("create", "str_replace", "insert", "delete", "rename")

Phase = Literal["starting", "updating"]
Step = Literal["orient", "gather", "consolidate", "prune"]
Status = Literal["running", "completed", "held", "failed", "killed"]


class DreamTurn(msgspec.Struct, frozen=True, kw_only=True):
    """One reply of the model in a dream: what it said, and what it called, as "memory view a.md"."""

    text: str
    calls: tuple[str, ...] = ()


class DreamProgress(msgspec.Struct, frozen=True, kw_only=True):
    """How far a dream has come. `phase` is "updating" from the first write on; `files` are the paths touched so
    far, in the copy while it runs; `cost` in dollars (None: no price known); `message` one line at the end."""

    session: str = ""
    scope: str = "project"
    phase: Phase = "starting"
    step: Step = "orient"
    status: Status = "running"
    turns: tuple[DreamTurn, ...] = ()
    """The last 30."""
    files: tuple[str, ...] = ()
    began: float = 0.0
    seconds: float = 0.0
    cost: float | None = 0.0
    message: str = ""

    @property
    def running(self) -> bool:
        """Whether it can still be stopped."""
        return self.status == "running"


def advanced(progress: DreamProgress, event: Event) -> DreamProgress:
    """The progress after one more event of the dream's session."""
    change = msgspec.structs.replace
    match event:
        case AssistantMessage() if not event.partial:
            text = "\n".join(str(block["text"]) for block in event.blocks if block.get("type") == "text").strip()
            calls = tuple(_call(block) for block in event.blocks if block.get("type") == "tool_use")
            turns = (*progress.turns, DreamTurn(text=text, calls=calls))[-SHOWN_TURNS:]
            made = change(progress, turns=turns)
        case ToolCalled() if event.name == "memory" and event.input.get("command") in _WRITES:
            made = change(progress, phase="updating", step="consolidate")
        case ToolCalled() if event.name != "memory" and progress.step == "orient":
            made = change(progress, step="gather")
        case MemorySaved():
            made = touched(progress, event.path)
        case UsageReported():
            cost = None if event.cost is None or progress.cost is None else progress.cost + event.cost
            made = change(progress, cost=cost)
        case _:
            return progress
    return change(made, seconds=round(time.time() - made.began, 3))


def touched(progress: DreamProgress, path: str) -> DreamProgress:
    """The progress when a file was written."""
    files = progress.files if path in progress.files else (*progress.files, path)
    return msgspec.structs.replace(progress, phase="updating", files=files)


def _call(block: dict[str, object]) -> str:
    given = block.get("input")
    values = given.values() if isinstance(given, dict) else ()
    words = [" ".join(value.split())[:60] for value in values if isinstance(value, str)]
    return " ".join([str(block.get("name")), *words[:2]])


class Gates:
    """Whether a dream is due; asked after every turn. Remembers when sessions were counted last."""

    def __init__(self) -> None:
        self._looked: dict[Path, float] = {}

    def __repr__(self) -> str:
        return f"<Gates, {len(self._looked)} directories looked at>"

    def early(self, lock: DreamLock, *, hours: float, glance: bool = False) -> str:
        """Whether the last dream is not long enough ago, or sessions were counted a moment ago, in words; "" when it
        may be due. A last time that lies ahead, the clock was set back, counts by how far it is away. `glance`: who
        holds the lock is left for later, so that nothing is waited for."""
        state = lock.glance() if glance else lock.state()
        if state is None:
            return ""
        ago = abs(time.time() - state.last)
        if ago < hours * 3600:
            return f"the last dream was {ago / 3600:.1f} hours ago; {hours:g} lie between two at least"
        looked = self._looked.get(lock.path)
        if looked is not None and time.monotonic() - looked < LOOK_SECONDS:
            return "sessions were counted less than 10 minutes ago"
        return f"process {state.holder.pid} dreams now" if state.holder is not None else ""

    def closed(self, lock: DreamLock, *, hours: float, sessions: int, touched: Callable[[float], int]) -> str:
        """Whether too few sessions were written since the last dream, in words. `touched` counts them since a
        Unix time."""
        last, now = lock.state().last, time.time()
        self._looked[lock.path] = time.monotonic()
        count = touched(last if last <= now else now - hours * 3600)
        return f"{count} sessions since the last dream; {sessions} call for one" if count < sessions else ""


def held_because(base: int, changes: Sequence[DreamChange]) -> str:
    """Why these changes wait for the user's yes; "" when they need not."""
    share = deleted_share(base, changes)
    if share <= MOST_DELETED:
        return ""
    count = sum(change.kind == "deleted" for change in changes)
    return f"it would delete {count} of {base} memories, more than a third"


def system() -> str:
    """The head of a dream's session: what it is and what it may do."""
    return _text("dream_system.md")


def order(
    memories: Sequence[Listed], *, scope: str, findings: Sequence[str], sessions: Sequence[str], last: float, now: float
) -> str:
    """What a dream is told. `memories` newest first; `findings` what is wrong with index and headers; `sessions`
    ids of those since the `last` dream (Unix time, 0.0: never), newest first; `now` Unix time."""
    values = {
        "today": datetime.fromtimestamp(now).strftime("%A %Y-%m-%d"),
        "last": datetime.fromtimestamp(last).strftime("%Y-%m-%d") if last else "never",
        "scope": scope,
        "care": "" if scope == "project" else EVERYWHERE,
        "sessions": ", ".join(sessions[:MOST_FINDINGS]) or "none",
        "findings": "\n".join(f"- {harmless(each)}" for each in findings[:MOST_FINDINGS]) or "(nothing)",
        "memories": manifest(memories),
        "replies": str(MOST_REPLIES),
        "index": str(MOST_LINES),
    }
    told = _NAMED.sub(lambda found: values.get(found[1], found[0]), _text("dream_prompt.md"))
    return f"<{TAG}>\n{told}\n</{TAG}>"


def _text(name: str) -> str:
    return files("ipyagent.parts.memory").joinpath(name).read_text(encoding="utf-8").strip()
