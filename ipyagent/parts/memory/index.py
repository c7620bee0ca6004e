"""MEMORY.md, the list of all memories: one line each, kept true by code.

`- [Title](file.md) — what it says`. What people write between these lines stays. A line that someone wrote for a
memory stays until what the memory says changes."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable
from itertools import pairwise
from typing import Any, Literal, TypeAlias
from urllib.parse import unquote

import msgspec

from ipyagent.frontmatter import read_headed, write_headed
from ipyagent.parts.memory.metadata_index import CONFLICT, Memory, is_conflicted
from ipyagent.parts.memory.safe_paths import INDEX, ROOT, SUFFIX, same_name

MOST_LINES = 200
MOST_BYTES = 25_000
MOST_LINE = 200
MOST_OLD_LINE = 150
"""Of the lines that gave a memory's description, as they were made before."""
_LINE = re.compile(r"\s*[-*+] \[(?:[^\]\\]|\\.)*\]\((?:<([^<>]*)>|([^()\s]*))\)")
_SIGN = re.compile(r"[ ()<>%]")
"""What cannot stand in a link's target as it is."""
_WORDS = re.compile(r"[\W_]+")
_MARKED = re.compile(r"([\[\]\\])")


FindingKind: TypeAlias = Literal[
    "no line", "no file", "duplicate", "long line", "old line", "header", "name", "limit", "conflict"
]


class IndexFinding(msgspec.Struct, frozen=True, kw_only=True):
    """What `doctor` found. `name` of the memory or "" for the index itself, `line` in the file it was found in
    (0: unknown), `text` one line, `mendable` whether `mend` puts it right."""

    kind: FindingKind
    name: str
    text: str
    line: int = 0
    mendable: bool = True


def settled(text: str) -> str:
    """The index without the conflict markers of git: what either side added stays, as in a merge by union; what both
    began with goes."""
    if not is_conflicted(text):
        return text
    lines: list[str] = []
    base = False
    for line in text.split("\n"):
        if (mark := CONFLICT.match(line)) is not None:
            base = mark[0].startswith("|")
        elif not base:
            lines.append(line)
    return "\n".join(lines)


def line_of(memory: Memory) -> str:
    """The line of a memory: what it says in at most 200 characters where its file's name allows. A title that only
    repeats that name gives way to the memory's type."""
    stem = memory.name.rpartition("/")[2].removesuffix(SUFFIX)
    said = _WORDS.sub("", memory.title.casefold()) != _WORDS.sub("", stem.casefold())
    fact = memory.description or memory.fact
    hook = f"(quoted) {fact}" if memory.source == "quoted" and fact else fact
    return _made(memory.title if said else memory.kind or "memory", memory.name, hook, MOST_LINE)


def _made(title: str, name: str, hook: str, most: int) -> str:
    label = _MARKED.sub(r"\\\1", " ".join(title.split()))
    target = _SIGN.sub(lambda sign: f"%{ord(sign[0]):02X}", name)
    start = f"- [{_cut(label, max(12, min(60, most - len(target) - 6)))}]({target})"
    room = most - len(start) - len(_DASH)
    hook = " ".join(hook.split())
    return f"{start}{_DASH}{_cut(hook, room)}" if hook and room >= 10 else start


def named_in(line: str) -> str | None:
    """The file that a line of the index names; None for any other line."""
    found = _LINE.match(line)
    if found is None:
        return None
    target = unquote(found[1] if found[1] is not None else found[2]).removeprefix("./")
    return target if target.endswith(".md") and "://" not in target and not target.startswith("#") else None


def revised(text: str, changes: dict[str, Memory | None], *, keep: bool = False) -> str:
    """The index after changes: each name's memory as it is now, or None for one that is gone. `keep`: a line
    that is there stays as it is."""
    left = dict(changes)
    lines: list[str] = []
    done: set[str] = set()
    for line in text.split("\n"):
        name = named_in(line)
        if name is None or name not in changes:
            lines.append(line)
            continue
        memory = changes[name]
        left.pop(name, None)
        if memory is not None and name not in done:  # the second line for one file goes
            lines.append(line.rstrip() if keep else line_of(memory))
            done.add(name)
    new = [line_of(memory) for memory in left.values() if memory is not None]
    if new:
        while lines and not lines[-1].strip():
            lines.pop()
        lines += [*new, ""]
    return "\n".join(lines)


def moved(text: str, old: str, memory: Memory) -> str:
    """The index after a rename: the line stays where it was."""
    lines = text.split("\n")
    for at, line in enumerate(lines):
        if named_in(line) == old:
            lines[at] = line_of(memory)
            return revised("\n".join(lines), {old: None})
    return revised(text, {memory.name: memory})


def loaded(text: str, scope: str) -> str:
    """The part of an index that goes into the system prompt, with a warning that says what was left out."""
    lines = text.strip("\n").split("\n") if text.strip() else []
    shown: list[str] = []
    size = 0
    for line in lines[:MOST_LINES]:
        size += len(line.encode()) + 1
        if size > MOST_BYTES:
            break
        shown.append(line)
    if len(shown) < len(lines):
        shown.append(
            f"[!] {len(lines) - len(shown)} of {len(lines)} lines of this index are left out (it holds "
            f"{len(text.encode()):,} bytes; {MOST_LINES} lines or {MOST_BYTES:,} bytes are loaded). "
            f"The rest: view {ROOT}/{scope}/{INDEX}; shorter lines and fewer memories make room."
        )
    return "\n".join(shown)


def findings(text: str, memories: Iterable[Memory], scope: str) -> list[IndexFinding]:
    """What is wrong with an index and with the headers of the memories."""
    found: list[IndexFinding] = []

    def add(kind: FindingKind, name: str, text: str, line: int = 0, *, mendable: bool = True) -> None:
        found.append(IndexFinding(kind=kind, name=name, text=text, line=line, mendable=mendable))

    there = {memory.name: memory for memory in memories}
    seen: dict[str, int] = {}
    lines = text.strip("\n").split("\n") if text.strip() else []
    if is_conflicted(text):
        said = f"{INDEX} has git conflict markers; until you remove them, the index is made from the files"
        add("conflict", "", said)
    for at, line in enumerate(lines, 1):
        name, place = named_in(line), f"{INDEX} line {at}"
        if name is None:
            continue
        if name not in there:
            add("no file", name, f"{place} names {name}, which is not there", at)
        elif name in seen:
            add("duplicate", name, f"{place} names {name} again, after line {seen[name]}", at)
        elif _is_old(line, there[name]):
            add("old line", name, f"{place} is of an older kind, which names {name} twice or says less of it", at)
        elif len(line) > MOST_LINE and len(line_of(there[name])) < len(line):
            add("long line", name, f"{place} has {len(line)} characters; {MOST_LINE} are meant", at)
        seen.setdefault(name, at)
    titles: dict[str, str] = {}
    for name, memory in sorted(there.items()):
        if name not in seen:
            add("no line", name, f"{name} has no line in {INDEX}")
        mendable = not any(words in problem for words in _BEYOND for problem in memory.problems)
        for problem in memory.problems:
            where = re.match(r"line (\d+)", problem)
            add("header", name, f"{name}: {problem}", int(where[1]) if where else 0, mendable=mendable)
        title = same_name(memory.title + "\n" + memory.description)
        if memory.description and title in titles:
            same = f"{name} has the title and description of {titles[title]}; merge them"
            add("duplicate", name, same, mendable=False)
        titles.setdefault(title, name)
    size = len(text.encode())
    if len(lines) > MOST_LINES or size > MOST_BYTES:
        much = f"{INDEX} has {len(lines)} lines and {size:,} bytes; {MOST_LINES} and {MOST_BYTES:,} are loaded"
        add("limit", "", much, mendable=False)
    return found


def _is_old(line: str, memory: Memory) -> bool:
    """Whether it was made for a memory when lines were shorter and always gave the title."""
    old = _made(memory.title, memory.name, memory.description, MOST_OLD_LINE)
    return line.rstrip() == old != line_of(memory)


def mended(text: str, memories: Iterable[Memory]) -> str:
    """The index with a line for each memory and for nothing else, lines of people's own kept."""
    there: dict[str, Memory | None] = {memory.name: memory for memory in memories}
    text = settled(text)
    names = filter(None, map(named_in, text.split("\n")))
    gone: dict[str, Memory | None] = dict.fromkeys(name for name in names if name not in there)
    made = revised(text, there | gone, keep=True).split("\n")
    for at, line in enumerate(made):
        name = named_in(line)
        memory = there.get(name) if name is not None else None
        long = memory is not None and len(line) > MOST_LINE and len(line_of(memory)) < len(line)
        if memory is not None and (long or _is_old(line, memory)):
            made[at] = line_of(memory)
    return "\n".join(made)


def _cut(text: str, most: int) -> str:
    """The text in at most so many characters, cut at a word, never inside an escape."""
    if len(text) <= most:
        return text
    short = text[: most - 1]
    if " " in short[most // 2 :]:
        short = short.rpartition(" ")[0]
    return short.rstrip().rstrip("\\") + "…"


_DASH = " — "
_BEYOND = ("not UTF-8", "UTF-16", "is not one of", "bytes long", "cannot be read", "no closing", "conflict markers")
"""Problems that a person has to look at."""


# ---- Two texts that grew from one are merged by entry: no entry that either side wrote is lost. An entry is a list
# item with the lines that go on with it, a heading, a fenced block or a paragraph. An entry that one side removed
# and the other left alone goes; one that both changed stays in both wordings.

_ENTRY_LINE = re.compile(r"[^\n]*\n|[^\n]+")
_FENCE = re.compile(r" {0,3}(```+|~~~+)")
_ITEM = re.compile(r"[ \t]*(?:[-*+]|\d{1,9}[.)])(?:\s|$)")
_NEW = -9
"""The place of an entry that theirs has not."""
_HEADING = re.compile(r" {0,3}#{1,6}(?:\s|$)")


def merged(base: str | None, theirs: str, mine: str) -> str:
    """`theirs` with the changes that lead from `base` to `mine`. Without a base only additions count: what
    either has, the result has. Headers are merged key by key; where both changed one, mine counts."""
    their, my = read_headed(theirs.encode()), read_headed(mine.encode())
    old = read_headed(base.encode()) if base is not None else None
    body = _merged_bodies(old.body if old is not None else None, their.body, my.body)
    if not their.fields and not my.fields:
        return body
    fields = _merged_fields(old.fields if old is not None else {}, their.fields, my.fields)
    for side, text in ((their, theirs), (my, mine)):  # a header that stays is not rewritten
        if fields == side.fields and list(fields) == list(side.fields) and not side.problems:
            return text[: len(text) - len(side.body)] + body
    return write_headed(fields, body)


def entries(text: str) -> list[str]:
    """The entries in their order, each with the empty lines after it; joined they are the text."""
    found: list[list[str]] = []
    fence = ""
    for line in _ENTRY_LINE.findall(text):
        before = found[-1][-1] if found else ""
        opened = _FENCE.match(line)
        if fence:
            found[-1].append(line)
            if opened and opened[1].startswith(fence) and not line.strip().strip(fence[0]):
                fence = ""
            continue
        starts = (
            not found
            or bool(opened)
            or bool(_ITEM.match(line))
            or bool(_HEADING.match(line))
            or bool(_HEADING.match(before))
            or (not before.strip() and bool(line.strip()) and not line.startswith((" ", "\t")))
        )
        if starts and line.strip():
            found.append([line])
        elif found:
            found[-1].append(line)
        else:
            found.append([line])
        if opened:
            fence = opened[1]
    return ["".join(lines) for lines in found]


def _merged_bodies(base: str | None, theirs: str, mine: str) -> str:
    their, my = entries(theirs), entries(mine)
    there, now = Counter(map(str.strip, their)), Counter(map(str.strip, my))
    before = Counter(map(str.strip, entries(base))) if base is not None else there
    gone = before - now if base is not None else Counter[str]()
    added = now - before
    if base is not None:
        added -= there - before  # both added the same
    kept: list[tuple[int, str]] = []
    for at in reversed(range(len(their))):  # of equal ones the last go first
        entry = their[at]
        if gone[entry.strip()] > 0:
            gone[entry.strip()] -= 1
        else:
            kept.append((at, entry))
    kept.reverse()
    places: dict[str, list[int]] = {}
    for at, (_, entry) in enumerate(kept):
        places.setdefault(entry.strip(), []).append(at)
    after: dict[int, list[str]] = {}
    at = -1
    for entry in my:  # what is new goes behind the entry that it stands behind in mine
        key = entry.strip()
        if added[key] > 0:
            added[key] -= 1
            after.setdefault(at, []).append(entry)
        else:
            spots = places.get(key, [])
            at = next(iter(spots[bisect_right(spots, at) :]), at)
    result = [(_NEW, entry) for entry in after.get(-1, [])]
    for at, placed in enumerate(kept):
        result += [placed, *((_NEW, entry) for entry in after.get(at, []))]
    return _joined(result)


def _joined(parts: list[tuple[int, str]]) -> str:
    """The text of entries that came from two places, each with where it stood in theirs. Those that were
    neighbours there stay as they are; of others each ends its line, and paragraphs and headings keep their
    distance."""
    text = ""
    for (before, last), (at, part) in pairwise([(_NEW, ""), *parts]):
        if text and at != before + 1:
            text += "" if text.endswith("\n") else "\n"
            block = not _ITEM.match(part) and not _HEADING.match(last) and bool(part.strip())
            text += "\n" if block and text.strip() and not text.endswith("\n\n") else ""
        text += part
    return text


def _merged_fields(base: dict[str, Any], theirs: dict[str, Any], mine: dict[str, Any]) -> dict[str, Any]:
    fields = {key: value for key, value in theirs.items() if key in mine or key not in base or base[key] != value}
    return fields | {key: value for key, value in mine.items() if key not in base or base[key] != value}
