"""Brings the session's notes up to date with edits of their file, one a section, under the headings that are there.

A line that is in the notes already is not written again; when a section is full, the lines go that tell least. An
edit quotes no more of the notes than the place where it begins and what goes.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import replace
from typing import Any, Final

from ipyagent.practice.replies import Reply, calls, text
from ipyagent.practice.server.tokens import count_text

from . import boundaries
from .conversation import Step, Turn
from .digest import Material, cut, gist, material, result_line, squeezed, telling

_NOTES: Final = re.compile(r"<notes>\n(.*)\n</notes>", re.S)
_LIMIT: Final = re.compile(r"At most ([\d,]+) tokens a section and ([\d,]+) in all")
_STANDS: Final = re.compile(r"^\[as above: (.+), lines (\d+)-(\d+)\]$", re.M)
_SECTION: Final = re.compile(r"^(# [^\n]+)\n(?:([_*]\S[^\n]*[_*])(?:\n|\Z))?(.*?)(?=^# |\Z)", re.M | re.S)
_MOST: Final = 800
"""Tokens of a section, when the directive names no limit."""
_SHARES: Final = (("task", 0.25), ("result", 0.3), ("data", 0.15))
"""What sections have of the room for all notes: what was asked for and what came of it can be had from nowhere else."""
_REST_SHARE: Final = 0.05
_MARGIN: Final = 0.7
"""The part of a limit that is used: whoever set it counts otherwise, and cuts what is over."""
_SHORT: Final = 200
"""Characters of a result that is a handful of figures."""
_LAST: Final = 3
"""Lines of the worklog by which the conversation is found again."""
_REST: Final = 0.9
"""The part of a full section that stays, so that not every update has to take something out."""


def noted(body: Mapping[str, Any]) -> Reply:
    """The edits that a directive for notes asks for; after their results, or without anything new, a word."""
    messages = body["messages"]
    at, told = boundaries.directive(messages)
    asked = boundaries.notes_asked(told)
    if asked is None or at < len(messages) - 1:
        return text("The notes are up to date.")
    path, words = asked
    notes = _whole(shown[1], messages) if (shown := _NOTES.search(words)) else ""
    found = _news(material(body), notes)
    said = _LIMIT.search(words)
    section, whole = (int(number.replace(",", "")) for number in said.groups()) if said else (_MOST, 10 * _MOST)
    edits: list[tuple[str, dict[str, Any]]] = []
    shows = notes
    for heading, about, old in _SECTION.findall(notes):
        there = old.strip().splitlines()
        share = next((share for name, share in _SHARES if name in heading.lower()), _REST_SHARE)
        limit = int(_MARGIN * min(section, whole * share))
        gone, new = _changes(heading, there, _lines(heading, found), limit)
        for before, after in _quoted(shows, about or heading, there, gone, new):
            edits.append(("edit_file", {"path": path, "old": before, "new": after}))
            shows += "\n" + after
    if not edits:
        return text("There is nothing new to note.")
    return calls(edits, say=None)


def _whole(notes: str, messages: Sequence[Mapping[str, Any]]) -> str:
    """The notes with the lines in them that stand further up and are only named."""
    if not _STANDS.search(notes):
        return notes
    told = [str(block.get("text", "")) for message in messages for block in message["content"]]
    above = next((found for each in reversed(told) if (found := boundaries.earlier(each)) and "# " in found), "")
    under = {heading[2:]: text.strip("\n").split("\n") for heading, _, text in _SECTION.findall(above)}
    return _STANDS.sub(lambda at: "\n".join(under.get(at[1], [])[int(at[2]) - 1 : int(at[3])]), notes)


def _lines(heading: str, found: Material) -> list[str]:
    """What the conversation has for a section, oldest first."""
    title = heading.lower()
    newest, requests = found.newest, found.requests
    if "title" in title:
        return [cut(requests[0], 60)] if requests else []
    if "current" in title:
        doing = gist(newest.said) if newest.said else "not finished: " + "; ".join(map(result_line, newest.steps[-1:]))
        return [f"Newest request: “{cut(newest.asked, 200)}”: {doing}"] if newest.asked else []
    if "task" in title:
        return [f"“{squeezed(each, 100)}”" for each in requests]
    if "files" in title:
        return [*(f"`{each}`" for each in found.files()), *found.variables()]
    if "workflow" in title:
        return [f"`{cut(code, 100)}`" for code in found.codes]
    if "error" in title:
        return found.errors()
    if "data" in title:
        return [line for step in found.steps if not step.failed for line in _figures(step)]
    if "learn" in title:
        mended = [error for error in found.errors() if "; then it went with" in error]
        return [f"After {error.split(';')[0]}, it{error.split('; then it')[1]}" for error in mended]
    if "result" in title:
        return [squeezed(each, 80) for each in found.solved()]
    return list(map(_logged, found.turns))


def _figures(step: Step) -> list[str]:
    """The size of a table that a call showed, and a result that is short enough to be kept nearly whole."""
    shape = re.search(r"\w+  DataFrame \d+ x \d+[^\n]*|\(\d+, \d+\)", step.text)
    small = 0 < len(step.text) <= _SHORT and re.search(r"\d", step.text)
    return [*([cut(shape[0], 200)] if shape else []), *([squeezed(step.text, 80)] if small else [])]


def _logged(turn: Turn) -> str:
    return f"{cut(turn.asked, 80)} ({len(turn.steps)} calls)"


def _news(found: Material, notes: str) -> Material:
    """What came after the turns that the worklog ends with; everything when they are not there."""
    logs = (old.strip().splitlines() for heading, _, old in _SECTION.findall(notes) if _is_log(heading))
    log: list[str] = next(logs, [])
    turns = found.turns
    shown = [f"- {_logged(turn)}" for turn in turns]
    for count in range(min(_LAST, len(log)), 0, -1):
        for at in range(len(shown), count - 1, -1):
            if shown[at - count : at] == log[-count:]:
                later = turns[at:]
                requests = found.requests[len(found.requests) - len(later) :]
                return replace(found, conversation=replace(found.conversation, turns=later), requests=requests)
    return found


def _is_log(heading: str) -> bool:
    return "log" in heading.lower()


def _changes(heading: str, old: Sequence[str], new: Sequence[str], limit: int) -> tuple[set[int], list[str]]:
    """The places of the lines that go, and the lines that come, each once; when a section is full, those go that tell
    least. The title stays, the state says only what holds now."""
    if "title" in heading.lower():
        return set(), [] if old else list(new)
    if "current" in heading.lower():
        return (set(), []) if list(old) == list(new) or not new else (set(range(len(old))), list(new))
    lines = [f"- {each}" for each in new]
    come = lines if _is_log(heading) else [line for line in dict.fromkeys(lines) if line not in old]
    if not come:
        return set(), []
    every = [*old, *come]
    costs = [count_text(line) + 1 + limit * line.startswith("[… cut") for line in every]
    if sum(costs) <= limit:
        return set(), come
    room, kept = _REST * limit, set[int]()
    newest = range(len(every) - 1, -1, -1)
    for at in newest if _is_log(heading) else telling([line.removeprefix("- ").strip("“”") for line in every]):
        if costs[at] <= room:
            room -= costs[at]
            kept.add(at)
    return {at for at in range(len(old)) if at not in kept}, [
        line for at, line in enumerate(come, len(old)) if at in kept
    ]


def _quoted(notes: str, top: str, old: Sequence[str], gone: Set[int], new: Sequence[str]) -> Iterator[tuple[str, str]]:
    """The edits, old and new text: runs of lines that go, with the line before them (`top` for the first); what comes,
    with the last line that stays, or with as many as are needed to stand nowhere else."""
    stay = [line for at, line in enumerate(old) if at not in gone]
    if not stay and (old or new):
        yield "\n".join([top, *old]), "\n".join([top, *new])
        return
    above, run = top, list[str]()
    for at, line in enumerate([*old, None]):
        if line is not None and at in gone:
            run.append(line)
            continue
        if run and notes.count("\n".join([above, *run])) == 1:
            yield "\n".join([above, *run]), above
        above, run = line or "", []
    if new:
        count = next(n for n in range(1, len(stay) + 2) if notes.count(_end(top, stay, n)) == 1 or n > len(stay))
        yield _end(top, stay, count), "\n".join([_end(top, stay, count), *new])


def _end(top: str, lines: Sequence[str], count: int) -> str:
    """The last lines; with what stands above when there are not so many."""
    return "\n".join([*([top] if count > len(lines) else []), *lines[-count:]])
