"""Tidies the memories of a directory, as an order for it asks: duplicates become one, dates absolute, what a look at
the files refutes goes.

Read first, all at once; then look at the files that memories name; then write; then a word. Nothing is made up:
every sentence that is written was in a memory.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any, Final

from ipyagent.practice.replies import Reply, calls, text

from . import boundaries
from .conversation import flat
from .extracting import absolute
from .phrases import bag

_LISTED: Final = re.compile(r"^- \[([^\]\n]*)\] (\S+) \((\d{4}-\d{2}-\d{2})\): (.*)$", re.M)
_LINE: Final = re.compile(r"^ *(\d+)\t(.*)$", re.M)
_SENTENCE: Final = re.compile(r"(?<=[.!?])\s+|(?<=[。！？])|\n+")
_FILE: Final = re.compile(r"`([\w./-]+\.[A-Za-z]\w{1,7})`")
_STANDS: Final = re.compile(
    r"\b(?:is|are|lies?|lives?|stands?|sits?|(?:is|are) kept|holds?|contains?|has|have)\b|在|位于|保存", re.I
)
_MOST: Final = 60
"""Memories that are read; the list is newest first."""
_ALIKE: Final = 0.75
_STOP: Final = bag(
    "the and for that with about what you use our are always never please from now future prefer like was has have "
    "not this its they them then than will should must can all any name work is it we on in at of by to said user why "
    "apply how"
)
_LABEL: Final = re.compile(r"^\*\*[^*\n]{1,30}:\*\*")


@dataclass(frozen=True, slots=True)
class Kept:
    """A memory as it was read: path, type, day of the last write, description, and the numbered lines of its file,
    the first one being 1; `body` is the number of lines before the text begins."""

    path: str
    kind: str
    day: str
    about: str
    lines: tuple[str, ...]
    body: int

    @property
    def sentences(self) -> tuple[str, ...]:
        """What it says, without labelled lines such as **Why:**."""
        told = "\n".join(line for line in self.lines[self.body :] if not _LABEL.match(line))
        return tuple(found.strip() for found in _SENTENCE.split(told) if found.strip())

    @property
    def words(self) -> set[str]:
        """The words that tell what it is about."""
        return _words("\n".join([self.about, *self.sentences]))


def dreamed(body: Mapping[str, Any]) -> Reply:
    """The next reply to an order to tidy memories."""
    messages: Sequence[Mapping[str, Any]] = body["messages"]
    at, told = boundaries.directive(messages)
    listed = _LISTED.findall(told)[:_MOST]
    rounds = _rounds(messages, at)
    if not listed:
        return text("There are no memories to tidy.")
    if not rounds:
        wanted = [("memory", {"command": "view", "path": path}) for _, path, _, _ in listed]
        return calls(wanted, say="Orient: what the memories say.")
    kept = [memory for row in listed if (memory := _read(row, rounds)) is not None]
    asked = {str(given.get("pattern")): result for name, given, result, _ in rounds if name == "glob"}
    files = {file: f"**/{file.rpartition('/')[2]}" for memory in kept for file in _named(memory)}
    if files and not asked:
        wanted = [("glob", {"pattern": pattern}) for pattern in dict.fromkeys(files.values())]
        return calls(wanted, say="Gather: whether the files that memories name are still there.")
    gone = {file for file, pattern in files.items() if not _found(asked.get(pattern, pattern), file)}
    edits, away = _changes(kept, gone)
    done = [given for name, given, _, _ in rounds if name == "memory" and given.get("command") != "view"]
    if edits and not done:
        return calls([("memory", edit) for edit in edits], say="Consolidate: what is the same becomes one.")
    refused = {str(given.get("path")) for name, given, _, failed in rounds if name == "memory" and failed}
    left = [path for path, into in away.items() if into not in refused and path not in refused]
    if left and not any(given.get("command") == "delete" for given in done):
        wanted = [("memory", {"command": "delete", "path": path}) for path in left]
        return calls(wanted, say="Prune: what is in another memory, or no longer holds.")
    return text(_ended(rounds) if done else "All is in order; nothing was changed.")


# ---------------------------------------------------------------------- what is to be done


def _changes(kept: Sequence[Kept], gone: set[str]) -> tuple[list[dict[str, Any]], dict[str, str]]:
    """The edits, and the memories that go with the one that has what they say ("" when it no longer holds)."""
    away = {memory.path: "" for memory in kept if _is_refuted(memory, gone)}
    edits = [edit for memory in kept if memory.path not in away for edit in _dates(memory)]
    for newer, older in combinations(kept, 2):
        if newer.path in away or older.path in away or not _alike(newer, older):
            continue
        away[older.path] = newer.path
        here = [_words(sentence) for sentence in newer.sentences]
        added = [_dated(each, older.day) for each in older.sentences if _words(each) and _words(each) not in here]
        if added:  # what says the same, with an older number, is refuted
            place = {"command": "insert", "path": newer.path, "insert_line": len(newer.lines)}
            edits.append({**place, "insert_text": "\n" + "\n".join(added) + "\n"})
    edits = [edit for edit in edits if edit["path"] not in away]
    return edits, away


def _dates(memory: Kept) -> list[dict[str, Any]]:
    """The edits that make a memory's dates absolute, counted from the day it was written."""
    found: list[dict[str, Any]] = []
    for line in dict.fromkeys(memory.lines):
        after = _dated(line, memory.day)
        if after != line and memory.lines.count(line) == 1:
            found.append({"command": "str_replace", "path": memory.path, "old_str": line, "new_str": after})
    return found


def _dated(words: str, day: str) -> str:
    return absolute(words, day)


def _is_refuted(memory: Kept, gone: set[str]) -> bool:
    """Whether all that a memory says is where files are, or what is in them, that are not there."""
    if not gone:
        return False
    told = [sentence for sentence in memory.sentences if _words(sentence)]
    return bool(told) and all(
        (files := _FILE.findall(sentence)) and _STANDS.search(sentence) and set(files) <= gone for sentence in told
    )


def _alike(one: Kept, other: Kept) -> bool:
    """Whether two memories are about the same."""
    if one.kind != other.kind or one.path.split("/")[2] != other.path.split("/")[2]:
        return False
    mine, its = one.words, other.words
    common = len(mine & its)
    return common >= 3 and common / max(1, min(len(mine), len(its))) >= _ALIKE


def _named(memory: Kept) -> list[str]:
    """Files of the project that a project's or reference memory names in backticks."""
    if memory.kind not in ("project", "reference") or not memory.path.startswith("/memories/project/"):
        return []
    found = [file for sentence in memory.sentences for file in _FILE.findall(sentence)]
    return [file for file in found if not file.startswith(("/", ".."))]


def _found(result: str, file: str) -> bool:
    """Whether a listing of files has one of this name, or could not be had."""
    name = file.rpartition("/")[2]
    return any(line.strip().rstrip("/").endswith(name) for line in result.splitlines()) or result.startswith("**/")


def _words(said: str) -> set[str]:
    found = {word for word in re.findall(r"[a-z]{3,}", said.lower()) if word not in _STOP}
    for run in re.findall(r"[\u3400-\u9fff]{2,}", said):
        found |= {run[i : i + 2] for i in range(len(run) - 1)}
    return found


# ---------------------------------------------------------------------- what has happened


def _rounds(messages: Sequence[Mapping[str, Any]], at: int) -> list[tuple[str, Mapping[str, Any], str, bool]]:
    """The calls since the order: tool, input, result, whether it failed."""
    made: dict[str, tuple[str, Mapping[str, Any]]] = {}
    found: list[tuple[str, Mapping[str, Any], str, bool]] = []
    for message in messages[at + 1 :]:
        for block in message.get("content") or []:
            if not isinstance(block, Mapping):
                continue
            if block.get("type") == "tool_use":
                made[str(block.get("id"))] = (str(block.get("name")), block.get("input") or {})
            elif block.get("type") == "tool_result":
                name, given = made.get(str(block.get("tool_use_id")), ("", {}))
                found.append((name, given, flat(block.get("content")), bool(block.get("is_error"))))
    return found


def _read(row: tuple[str, str, str, str], rounds: Sequence[tuple[str, Mapping[str, Any], str, bool]]) -> Kept | None:
    """A memory of the list with what was read of it; None when it was not readable."""
    kind, path, day, about = row
    for name, given, result, failed in rounds:
        if name == "memory" and given.get("command") == "view" and given.get("path") == path and not failed:
            lines = tuple(line for _, line in _LINE.findall(result))
            ends = [number for number, line in enumerate(lines) if line.rstrip() in ("---", "...")]
            return Kept(path, kind, day, about, lines, ends[1] + 1 if len(ends) > 1 and ends[0] == 0 else 0)
    return None


def _ended(rounds: Sequence[tuple[str, Mapping[str, Any], str, bool]]) -> str:
    """What was done, in a sentence."""
    done = [given for name, given, _, failed in rounds if name == "memory" and not failed]
    deleted = sum(given.get("command") == "delete" for given in done)
    changed = len({given.get("path") for given in done if given.get("command") in ("insert", "str_replace")})
    failed = sum(failed for name, _, _, failed in rounds if name == "memory")
    return f"Changed {changed}, deleted {deleted}." + (f" {failed} calls were refused." if failed else "")
