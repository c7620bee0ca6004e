"""Brings the session's notes up to date with edits of their file, one a section, under the headings that are there.

A line that is in the notes already is not written again; when a section is full its oldest lines go.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

from . import boundaries
from .digest import Material, cut, gist, material, result_line
from .replies import Reply, calls, text
from .tokens import count_text

_NOTES: Final = re.compile(r"<notes>\n(.*)\n</notes>", re.S)
_LIMIT: Final = re.compile(r"At most ([\d,]+) tokens a section")
_SECTION: Final = re.compile(r"^(# [^\n]+)\n(?:([_*]\S[^\n]*[_*])(?:\n|\Z))?(.*?)(?=^# |\Z)", re.M | re.S)
_MOST: Final = 800
"""Tokens of a section, unless the directive allows fewer."""


def noted(body: Mapping[str, Any]) -> Reply:
    """The edits that a directive for notes asks for; after their results, or without anything new, a word."""
    messages = body["messages"]
    at, told = boundaries.directive(messages)
    asked = boundaries.notes_asked(told)
    if asked is None or at < len(messages) - 1:
        return text("The notes are up to date.")
    path, words = asked
    found = material(body)
    notes = shown[1] if (shown := _NOTES.search(words)) else ""
    limit = min(_MOST, int(said[1].replace(",", ""))) if (said := _LIMIT.search(words)) else _MOST
    edits = []
    for heading, about, old in _SECTION.findall(notes):
        lines = _lines(heading, found)
        new = _merged(heading, old.strip().splitlines(), lines, limit)
        before = "\n".join(filter(None, (heading, about, old.strip())))
        after = "\n".join(filter(None, (heading, about, new)))
        if lines and after != before:
            edits.append(("edit_file", {"path": path, "old": before, "new": after}))
    if not edits:
        return text("There is nothing new to note.")
    return calls(edits, say=None)


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
        return [f"“{cut(each, 300)}”" for each in requests]
    if "files" in title:
        return [*(f"`{each}`" for each in found.files()), *found.variables()]
    if "workflow" in title:
        return [f"`{cut(code, 160)}`" for code in found.codes]
    if "error" in title:
        return found.errors()
    if "data" in title:
        shapes = (re.search(r"\w+  DataFrame \d+ x \d+[^\n]*|\(\d+, \d+\)", step.text) for step in found.steps)
        return list(dict.fromkeys(cut(each[0], 200) for each in shapes if each))
    if "learn" in title:
        mended = [error for error in found.errors() if "; then it went with" in error]
        return [f"After {error.split(';')[0]}, it{error.split('; then it')[1]}" for error in mended]
    if "result" in title:
        return found.solved()
    return [f"{cut(turn.asked, 80)} ({len(turn.steps)} calls)" for turn in found.turns]


def _merged(heading: str, old: Sequence[str], new: Sequence[str], limit: int) -> str:
    """Old and new lines, each once, the newest that fit; title and state say only what holds now."""
    if "title" in heading.lower():
        return "\n".join(old) or "\n".join(new)
    if "current" in heading.lower():
        return "\n".join(new)
    room, kept = limit, list[str]()
    for line in reversed(list(dict.fromkeys([*old, *(f"- {each}" for each in new)]))):
        room -= count_text(line) + 1
        if room < 0:
            break
        kept.append(line)
    return "\n".join(reversed(kept))
