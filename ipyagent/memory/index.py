"""MEMORY.md, the list of all memories: one line each, kept true by code.

`- [Title](file.md) — what it says`. What people write between these lines stays. A line that someone wrote for a
memory stays until what the memory says changes.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Literal
from urllib.parse import unquote

import msgspec

from ipyagent.memory.names import INDEX, ROOT, SUFFIX, same_name
from ipyagent.memory.scan import CONFLICT, Memory, is_conflicted

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


class IndexFinding(msgspec.Struct, frozen=True, kw_only=True):
    """What `doctor` found. `name` of the memory or "" for the index itself, `line` in the file it was found in
    (0: unknown), `text` one line, `mendable` whether `mend` puts it right."""

    kind: Literal["no line", "no file", "duplicate", "long line", "old line", "header", "name", "limit", "conflict"]
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


def _old_line_of(memory: Memory) -> str:
    """The line that was made for a memory when lines were shorter and always gave the title."""
    return _made(memory.title, memory.name, memory.description, MOST_OLD_LINE)


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
    there = {memory.name: memory for memory in memories}
    seen: dict[str, int] = {}
    lines = text.strip("\n").split("\n") if text.strip() else []
    if is_conflicted(text):
        said = f"{INDEX} has conflict markers of git; until they are gone it is made from the files"
        found.append(IndexFinding(kind="conflict", name="", text=said))
    for at, line in enumerate(lines, 1):
        name = named_in(line)
        if name is None:
            continue
        if name not in there:
            dead = f"{INDEX} line {at} names {name}, which is not there"
            found.append(IndexFinding(kind="no file", name=name, line=at, text=dead))
        elif name in seen:
            twice = f"{INDEX} line {at} names {name} again, after line {seen[name]}"
            found.append(IndexFinding(kind="duplicate", name=name, line=at, text=twice))
        elif _is_old(line, there[name]):
            old = f"{INDEX} line {at} is of an older kind, which names {name} twice or says less of it"
            found.append(IndexFinding(kind="old line", name=name, line=at, text=old))
        elif len(line) > MOST_LINE and len(line_of(there[name])) < len(line):
            long = f"{INDEX} line {at} has {len(line)} characters; {MOST_LINE} are meant"
            found.append(IndexFinding(kind="long line", name=name, line=at, text=long))
        seen.setdefault(name, at)
    titles: dict[str, str] = {}
    for name, memory in sorted(there.items()):
        if name not in seen:
            found.append(IndexFinding(kind="no line", name=name, text=f"{name} has no line in {INDEX}"))
        mendable = not any(words in problem for words in _BEYOND for problem in memory.problems)
        for problem in memory.problems:
            where = re.match(r"line (\d+)", problem)
            found.append(
                IndexFinding(
                    kind="header",
                    name=name,
                    line=int(where[1]) if where else 0,
                    text=f"{name}: {problem}",
                    mendable=mendable,
                )
            )
        title = same_name(memory.title + "\n" + memory.description)
        if memory.description and title in titles:
            same = f"{name} has the title and description of {titles[title]}; merge them"
            found.append(IndexFinding(kind="duplicate", name=name, text=same, mendable=False))
        titles.setdefault(title, name)
    size = len(text.encode())
    if len(lines) > MOST_LINES or size > MOST_BYTES:
        much = f"{INDEX} has {len(lines)} lines and {size:,} bytes; {MOST_LINES} and {MOST_BYTES:,} are loaded"
        found.append(IndexFinding(kind="limit", name="", text=much, mendable=False))
    return found


def _is_old(line: str, memory: Memory) -> bool:
    return line.rstrip() == _old_line_of(memory) != line_of(memory)


def mended(text: str, memories: Iterable[Memory]) -> str:
    """The index with a line for each memory and for nothing else, lines of people's own kept."""
    there: dict[str, Memory | None] = {memory.name: memory for memory in memories}
    text = settled(text)
    lines = text.split("\n")
    gone: dict[str, Memory | None] = dict.fromkeys(name for name in map(named_in, lines) if name and name not in there)
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
_BEYOND = ("not UTF-8", "UTF-16", "is none of", "bytes long", "cannot be read", "no closing", "conflict markers")
"""Problems that a person has to look at."""
