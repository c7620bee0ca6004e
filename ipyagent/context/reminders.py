"""Volatile facts for the model, at the very end of the prompt: never in the prefix, never twice.

One `<context>` block goes before the user's words when there is something new to say: the date,
where this is, what is in the namespace, what the user ran since, what a restart took away.
"""

from __future__ import annotations

import re
from collections.abc import Container, Iterable, Mapping, Sequence
from typing import Any

import msgspec

from ipyagent.journal.blocks import text_block
from ipyagent.journal.events import Block, MemorySaved, Mode

CELL_CHARS = 600
CELLS_CHARS = 2_000
GONE_NAMES = 40
MOST_MEMORIES = 20
VARIABLES = "Variables now:"
RUN = "Run by the user since the last request:"
LEFT_OUT = " (lines that later ones replace were left out)"
LOST = "The kernel has been restarted since. Whatever is said above about these variables, they are gone: {gone}"
ALL = "\0all"
"""Stands for every variable: a later block lists them all."""
_MODES: Mapping[Mode, str] = {
    "ask": "the user is asked before code runs or files change",
    "auto": "most code runs unasked, and so do file changes and commands in the project that undo can take back",
    "read_only": "no Python, no writes, only commands that change nothing",
}
_MODE = re.compile(r"^The (?:user has changed the )?permission mode (?:is now|to) (\w+): ", re.MULTILINE)
_NEWS = re.compile(r"new: |changed: ")
_CLOSING = re.compile(r"</(?=(context|variable|file|cell)\b)")


class EnvironmentSnapshot(msgspec.Struct, frozen=True, kw_only=True):
    """What is so at this moment. `variables` is what is to be told of the namespace ("" for no news), `types` its
    names and short types, `cells` what the user ran since the last request, each source with the last line of the
    error in which it ended and its number in `In`."""

    date: str
    place: str = ""
    variables: str = ""
    types: Mapping[str, str] = {}
    cells: Sequence[tuple[str, str, int]] = ()


def guarded(text: str) -> str:
    """The text, unable to close one of our elements."""
    return _CLOSING.sub(r"<\\/", text)


def element(tag: str, name: str, text: str) -> Block:
    """An attached thing: `<variable name="df">…</variable>`."""
    key = {"variable": "name", "lesson": "name", "file": "path", "cell": "number"}[tag]
    shown = guarded(name).replace('"', "'").replace("\n", " ")
    return {"type": "text", "text": f'<{tag} {key}="{shown}">\n{guarded(text)}\n</{tag}>'}


def context_block(
    seen: EnvironmentSnapshot,
    told: EnvironmentSnapshot | None,
    *,
    restarted: bool,
    before: Mapping[str, str],
    restored: Mapping[str, bool],
    memories: Sequence[MemorySaved] = (),
    replayed: Sequence[str] = (),
    mode: Mode | None = None,
    stopped: bool = False,
) -> Block | None:
    """The block for a request, None when nothing is new.

    `told` is what the last block said; `restarted` says that a new kernel has taken the session
    up, `before` what variables there were then; `restored` names files whose changes the user has taken back, and
    whether they exist; `memories` is what the user did to memories since, `replayed` which turns' code ran again;
    `mode` is the permission mode where it is another one than the model knows of; `stopped` says that the user stopped
    the turn before, and that nothing in the conversation shows it.
    """
    lines: list[str] = []
    if stopped:
        lines.append("The user stopped your work on the request above.")
    if told is None or told.date != seen.date or told.place != seen.place:
        lines.append(f"Date: {seen.date}." + (f" Place: {seen.place}." if seen.place else ""))
    if restarted:
        lines.append(
            "This conversation is resumed in a new kernel. What was said still holds as a record; "
            "the variables of the earlier kernel are gone, and so are the objects behind `_agent` handles "
            "(their files remain); results from it may be out of date."
        )
        if gone := _gone(before, seen.types):
            lines.append(f"gone: {gone}")
    if replayed:
        turns = "; ".join(replayed)
        lines.append(f"The user has had the recorded code of earlier turns run again, without you: {turns}")
    if mode is not None:
        lines.append(f"The permission mode is now {mode}: {_MODES[mode]}.")
    if restored:
        files = ", ".join(path if exists else f"{path} (no longer exists)" for path, exists in restored.items())
        lines.append(f"The user has undone your changes to these files: {files}")
    if done := _memories(memories):
        lines.append(f"The user has changed memories (the memory index may still name old paths): {done}")
    if seen.variables:
        lines.append(seen.variables)
    if seen.cells:
        lines.append(f"{RUN}\n" + _cells(seen.cells))
    if not lines:
        return None
    return {"type": "text", "text": guarded("<context>\n" + "\n".join(lines)) + "\n</context>"}


def _memories(changes: Sequence[MemorySaved]) -> str:
    """What became of each memory in the end, the newest MOST_MEMORIES of them."""
    words: dict[str, str] = {}
    for each in changes:
        if each.change == "renamed":
            words.pop(each.old, None)
        words.pop(each.path, None)
        moved = each.change == "renamed"
        words[each.path] = f"{each.old} is now {each.path}" if moved else f"{each.path} {each.change}"
    told = [*words.values()][-MOST_MEMORIES:]
    left = f" and {len(words) - len(told)} more" if len(words) > len(told) else ""
    return ", ".join(" ".join(each.split()) for each in told) + left


def standing(messages: Sequence[Mapping[str, Any]]) -> list[str]:
    """The `<context>` blocks in these messages."""
    return [
        block["text"]
        for message in messages if message["role"] == "user"
        for block in message["content"] if is_context(block)
    ]  # fmt: skip


def is_context(block: Block) -> bool:
    """Whether a block tells what is so in the kernel."""
    return block["type"] == "text" and str(block["text"]).startswith("<context>\n")


def mode_in(contexts: Iterable[str]) -> Mode | None:
    """The permission mode that `<context>` blocks, oldest first, told last; None when none did."""
    told = _MODE.findall("\n".join(contexts))
    return next((mode for mode in _MODES if told and mode == told[-1]), None)


def told_in(contexts: Iterable[str]) -> set[str]:
    """The variables that `<context>` blocks have lines for."""
    told = set()
    for text in contexts:
        listed = False
        for line in text.partition(f"\n{RUN}\n")[0].split("\n"):
            listed = listed or line.startswith(VARIABLES)
            if (name := _subject(line)) and (listed or _NEWS.match(line)):
                told.add(name)
    return told


def variables_block(text: str) -> str:
    """A `<context>` block that lists all variables."""
    return f"<context>\n{VARIABLES}\n{guarded(text)}\n</context>"


def lost_block(lost: Mapping[str, str], names: Container[str]) -> str:
    """A `<context>` block that says which variables of an earlier kernel (`lost`: with their types) are not among
    `names`; "" for none."""
    gone = _gone(lost, names)
    return f"<context>\n{guarded(LOST.format(gone=gone))}\n</context>" if gone else ""


def _gone(lost: Mapping[str, str], names: Container[str]) -> str:
    gone = [f"{name} ({kind})" for name, kind in lost.items() if name not in names]
    more = f" and {len(gone) - GONE_NAMES} more" if len(gone) > GONE_NAMES else ""
    return ", ".join(gone[:GONE_NAMES]) + more


def without_told(blocks: Sequence[Block], later: Iterable[str]) -> list[Block]:
    """The blocks, without the lines of variables which the texts `later` tell anew, and without those of which nothing
    is left."""
    contexts = [(at, str(block["text"])) for at, block in enumerate(blocks) if is_context(block)]
    made = dict(without_outdated([*contexts, *((-1, text) for text in later if text.startswith("<context>\n"))]))
    nothing = f"<context>\n{LEFT_OUT.strip()}\n</context>"
    left = {at: text for at, text in made.items() if text != nothing}
    return [
        text_block(left[at]) if at in left else block
        for at, block in enumerate(blocks) if at in left or at not in made
    ]  # fmt: skip


def without_outdated(blocks: Sequence[tuple[int, str]]) -> list[tuple[int, str]]:
    """Of `<context>` blocks, oldest first with their events, those that lose the lines of variables which a later
    one tells anew or says to be gone, with what is left of them."""
    made: list[tuple[int, str]] = []
    later: set[str] = set()
    for event, text in reversed(blocks):
        lines = text.split("\n")
        names = [_subject(line) for line in lines[: lines.index(RUN) if RUN in lines else None]]
        whole = VARIABLES in lines
        dropped = {at for at, name in enumerate(names) if name and (name in later or ALL in later)}
        if dropped:
            kept = [line for at, line in enumerate(lines) if at not in dropped]
            made.append((event, "\n".join(_with_note(kept, min(dropped) - 1))))
        later |= {name for name in names if name} | ({ALL} if whole else set())
        later |= {name for line in lines if line.startswith("gone: ") for name in line[6:].split(", ")}
    return made[::-1]


def _with_note(kept: list[str], place: int) -> list[str]:
    """The lines that are left of a `<context>` block, saying once that others were left out: at the heading of the
    variables, which goes when nothing stands under it, or else at `place`."""
    note = LEFT_OUT.strip()
    told = kept[: kept.index(RUN)] if RUN in kept else kept[:-1]
    headings = (VARIABLES, VARIABLES + LEFT_OUT)
    place = next((at for at, line in enumerate(told) if line in headings), place)
    if place == len(told) - 1 and kept[place] in headings:
        kept[place] = note
    elif not kept[place].endswith(note):
        kept[place] += LEFT_OUT if kept[place].endswith(":") else f"\n{note}"
    return kept


def _subject(line: str) -> str:
    """The variable that a line of a `<context>` block tells; "" for any other line."""
    word = _NEWS.match(line)
    name, between, _ = line[word.end() if word else 0 :].partition("  ")
    return name if between and name and not name.startswith(("…", "Date: ")) else ""


def _cells(cells: Sequence[tuple[str, str, int]]) -> str:
    """The newest cells that fit, in order, each cut to the lines in CELL_CHARS, and where the rest is."""
    kept: list[str] = []
    room = CELLS_CHARS
    for source, error, number in reversed(cells):
        cut, rest = source, ""
        if len(source) > CELL_CHARS:
            cut = source[: max(source.rfind("\n", CELL_CHARS // 2, CELL_CHARS), 0) or CELL_CHARS]
            rest = f"\n(… {len(source) - len(cut):,} more characters: In[{number}] in python has all of it)"
        if len(cut) > room:
            break
        room -= len(cut)
        kept.append(f"```\n{cut}\n```{rest}" + (f"\nIt ended with {error}" if error else ""))
    left = len(cells) - len(kept)
    return "\n".join(([f"({left} earlier)"] if left else []) + kept[::-1])
