"""What a finished cell did, as the saved notebook keeps it beside the answer, and what differs when its code runs
again. The recording is made of the turn's own events, and holds nothing that the cell does not show."""

from __future__ import annotations

import difflib
import functools
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from ipyagent.journal.events import (
    AssistantMessage,
    Block,
    ChildEnded,
    Event,
    FileChanged,
    PlanWritten,
    ResultStored,
    ToolCalled,
    ToolReturned,
    TurnEnded,
    UserMessage,
)

KEY = "ipyagent"
"""Under this key of an output's metadata the notebook keeps a recording."""
VERSION = 1
MOST_RECORDED = 400_000
"""Characters of a recording in a notebook; a longer one is in the session's journal alone."""
MOST_NOTEBOOK = 64_000_000
"""Bytes of a notebook that are read for its recordings."""
RESULT_CHARS = 4_000
"""Characters of one result in a notebook's recording: enough to tell which numbers moved."""
KEPT = (UserMessage, AssistantMessage, ToolCalled, ToolReturned, PlanWritten, FileChanged, ResultStored, ChildEnded,
        TurnEnded)  # fmt: skip


class Recording(NamedTuple):
    """The events of one finished turn. `turn` is its first event's id in the session's journal, 0 for one that a
    notebook file told; `place` that file."""

    events: tuple[Event, ...]
    turn: int = 0
    place: Path | None = None

    @property
    def request(self) -> UserMessage:
        """What was asked."""
        return next(event for event in self.events if isinstance(event, UserMessage))

    @property
    def ended(self) -> TurnEnded:
        """How and when it ended."""
        return next(event for event in self.events if isinstance(event, TurnEnded))

    @property
    def handed(self) -> dict[str, tuple[str, ...]]:
        """Variables that sub-agents of the turn left, by sub-agent: no code of the turn itself makes them."""
        ended = (event for event in self.events if isinstance(event, ChildEnded))
        return {event.child: event.handed for event in ended if event.handed}


def recording_of(events: Iterable[Event]) -> dict[str, Any]:
    """What the notebook keeps of a turn, as an output's metadata; empty for one that did not finish, that left
    something of itself to others, or that is too long."""
    kept = [_short(event) for event in events if isinstance(event, KEPT)]
    ends = [event.status for event in kept if isinstance(event, TurnEnded)]
    if ends != ["finished"] or not isinstance(kept[0], UserMessage):
        return {}
    made = {KEY: {"version": VERSION, "turn": msgspec.to_builtins(kept)}}
    return made if len(json.dumps(made)) <= MOST_RECORDED else {}


def _short(event: Event) -> Event:
    replace = msgspec.structs.replace
    match event:
        case UserMessage():
            return replace(event, blocks=(), tokens=0, own=None)
        case AssistantMessage():
            blocks = tuple(_bare(block) for block in event.blocks if block.get("type") in ("text", "tool_use"))
            return replace(event, blocks=blocks, message_id="", tokens=0)
        case ToolReturned():
            text = (event.printed or text_of(event.blocks))[:RESULT_CHARS]
            pictures = sum(block.get("type") == "image" for block in event.blocks)
            blocks = ({"type": "text", "text": text}, *({"type": "image"} for _ in range(pictures)))
            return replace(event, blocks=blocks, printed="", left=0, tokens=0)
        case ResultStored():
            return replace(event, path="", blocks=())
        case FileChanged():
            return replace(event, backup="")
        case ChildEnded():
            return replace(event, text="", message="")
        case TurnEnded():
            return replace(event, variables={})
        case _:
            return event


def _bare(block: Block) -> Block:
    return {**block, "input": {}} if block["type"] == "tool_use" else {"type": "text", "text": block.get("text", "")}


def read_recording(metadata: Any) -> Recording | None:
    """The recording in an output's metadata; None where there is none that can be read."""
    found = metadata.get(KEY) if isinstance(metadata, dict) else None
    turn = found.get("turn") if isinstance(found, dict) and found.get("version") == VERSION else None
    if not isinstance(turn, list) or not turn:
        return None
    try:
        events = tuple(msgspec.convert(turn, list[Event]))
    except (msgspec.ValidationError, RecursionError):
        return None
    kinds = [type(event) for event in events]
    whole = kinds[0] is UserMessage and kinds[-1] is TurnEnded and all(issubclass(kind, KEPT) for kind in kinds)
    return Recording(events) if whole else None


def recordings_in(path: Path) -> tuple[Recording, ...]:
    """The recordings of a notebook file, in the order of its cells; each bears the id of the cell that holds it."""
    try:
        found = path.stat()
    except OSError:
        return ()
    return _recordings(path, found.st_mtime_ns, found.st_size)


@functools.lru_cache(maxsize=32)
def _recordings(path: Path, changed: int, size: int) -> tuple[Recording, ...]:
    """Those of the file as it was then: each of its cells asks for them."""
    try:
        if size > MOST_NOTEBOOK:
            return ()
        cells = json.loads(path.read_bytes())["cells"]
        return tuple(found for cell in cells if (found := _of_cell(cell, path)) is not None)
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return ()  # no notebook, or one that is being written


def _of_cell(cell: Mapping[str, Any], path: Path) -> Recording | None:
    for output in cell.get("outputs") or ():
        if (found := read_recording(output.get("metadata"))) is not None:
            own = msgspec.structs.replace(found.request, cell=str(cell.get("id") or ""))
            return Recording((own, *found.events[1:]), place=path)
    return None


def text_of(blocks: Iterable[Block]) -> str:
    """The text of a result's blocks."""
    return "\n".join(str(block.get("text", "")) for block in blocks if block.get("type") == "text")


# ---- What differs between two texts that the same code printed: the numbers that moved, each with the words before it.

_NUMBER = re.compile(r"(?<![\w.])[-+]?\d[\d,_]*(?:\.\d+)?(?:[eE][-+]?\d+)?")
_PASSING = re.compile(r"0x[0-9a-fA-F]+|\[took [\d.]+ s\]|\[rebound: [^\[\]\n]*\]|\[shown(?: to the user)?\]")
"""What is another one each time: addresses, times, and what is said of the run itself."""
_STORED, _STORED_END = "<persisted-output ", "</persisted-output>"
MOST_MOVED = 6
MOST_LINES = 500
"""Lines of a result that are compared."""
SAME = 1e-9
"""Relative difference up to which two numbers are one."""


def differences(old: ToolReturned, new: ToolReturned) -> list[str]:
    """In words, what differs of a result: "total: 1,200 -> 1,250"; empty for the same."""
    before, after = old.printed or text_of(old.blocks), new.printed or text_of(new.blocks)
    if old.left:  # beginning and end are kept, of which the beginning can be compared
        before = before[: len(before) * 3 // 4]
    cut = len(before) >= RESULT_CHARS or bool(old.left)
    lines, others = _lines(before), _lines(after)
    if cut:
        lines, others = lines[:-1], others[: max(0, len(lines) - 1)]
    found = list(_moved(lines[:MOST_LINES], others[:MOST_LINES]))
    told = found[:MOST_MOVED]
    if len(found) > len(told):
        told.append(f"and {len(found) - len(told)} more")
    pictures, others_shown = (sum(block.get("type") == "image" for block in each.blocks) for each in (old, new))
    if pictures != others_shown:
        told.append(f"figures: {pictures} -> {others_shown}")
    return told


def _lines(text: str) -> list[str]:
    """What was printed, without what is said of where it is kept."""
    kept, told = [], True
    for line in _PASSING.sub("", text).split("\n"):
        told = told and not line.startswith(_STORED)
        if told and line.strip():
            kept.append(line.rstrip())
        told = told or line.startswith(_STORED_END)
    return kept


def _moved(old: list[str], new: list[str]) -> Iterator[str]:
    if len(old) == len(new):
        for before, after in zip(old, new, strict=True):
            yield from _in_line(before, after)
        return
    matcher = difflib.SequenceMatcher(None, [_shape(line) for line in old], [_shape(line) for line in new], False)
    for kind, first, last, start, end in matcher.get_opcodes():
        if kind == "equal" or last - first == end - start:
            for before, after in zip(old[first:last], new[start:end], strict=True):
                yield from _in_line(before, after)
        else:
            yield from (f"gone: {_cut(line)}" for line in old[first:last])
            yield from (f"new: {_cut(line)}" for line in new[start:end])


def _shape(line: str) -> str:
    """The line without its numbers and its spaces: a table's columns move with their widest number."""
    return "".join(_NUMBER.sub("#", line).split())


def _in_line(before: str, after: str) -> Iterator[str]:
    if before == after:
        return
    if _shape(before) != _shape(after):
        if " ".join(before.split()) != " ".join(after.split()):
            yield f"{_cut(before)} -> {_cut(after)}"
        return
    pairs = [
        (old, new) for old, new in zip(_NUMBER.finditer(before), _NUMBER.finditer(after), strict=True)
        if not _equal(old.group(), new.group())
    ]  # fmt: skip
    if not pairs:
        return
    words = before[: next(_NUMBER.finditer(before)).start()].strip(" \t:=|,([{'\"")
    moved = ", ".join(f"{old.group()} -> {new.group()}" for old, new in pairs[:MOST_MOVED])
    yield f"{_cut(words, 40)}: {moved}" if words else moved


def _equal(old: str, new: str) -> bool:
    if old == new:
        return True
    try:
        first, second = (float(each.replace(",", "").replace("_", "")) for each in (old, new))
    except ValueError:
        return False
    return abs(first - second) <= SAME * max(abs(first), abs(second))


def _cut(text: str, most: int = 60) -> str:
    text = " ".join(text.split())
    return text if len(text) <= most else text[: most - 1] + "…"
