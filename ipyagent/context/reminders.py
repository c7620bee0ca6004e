"""Volatile facts for the model, at the very end of the prompt: never in the prefix, never twice.

One `<context>` block goes before the user's words when there is something new to say: the date,
where this is, what is in the namespace, what the user ran since, what a restart took away.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

import msgspec

from ipyagent.journal.events import Block

CELL_CHARS = 600
CELLS_CHARS = 2_000
GONE_NAMES = 40
_CLOSING = re.compile(r"</(?=(context|variable|file|cell)\b)")


class Seen(msgspec.Struct, frozen=True, kw_only=True):
    """What is so at this moment. `variables` is the namespace's summary, `types` its names and
    short types, `cells` the source of what the user ran since the last request."""

    date: str
    place: str = ""
    variables: str = ""
    types: Mapping[str, str] = {}
    cells: Sequence[str] = ()


def guarded(text: str) -> str:
    """The text, unable to close one of our elements."""
    return _CLOSING.sub(r"<\\/", text)


def element(tag: str, name: str, text: str) -> Block:
    """An attached thing: `<variable name="df">…</variable>`."""
    key = {"variable": "name", "file": "path", "cell": "number"}[tag]
    shown = guarded(name).replace('"', "'").replace("\n", " ")
    return {"type": "text", "text": f'<{tag} {key}="{shown}">\n{guarded(text)}\n</{tag}>'}


def context_block(seen: Seen, told: Seen | None, *, restarted: bool, before: Mapping[str, str]) -> Block | None:
    """The block for a request, None when nothing is new.

    `told` is what the last block said; `restarted` says that a new kernel has taken the session
    up, `before` what variables there were then.
    """
    lines: list[str] = []
    if told is None or told.date != seen.date or told.place != seen.place:
        lines.append(f"Date: {seen.date}." + (f" Place: {seen.place}." if seen.place else ""))
    if restarted:
        lines.append(
            "This conversation is resumed in a new kernel. What was said still holds as a record; "
            "the variables of the earlier kernel are gone, results from it may be out of date."
        )
        gone = [f"{name} ({kind})" for name, kind in before.items() if name not in seen.types]
        if gone:
            more = f" and {len(gone) - GONE_NAMES} more" if len(gone) > GONE_NAMES else ""
            lines.append(f"gone: {', '.join(gone[:GONE_NAMES])}{more}")
    if told is None or restarted or told.variables != seen.variables:
        lines.append(f"Variables now:\n{seen.variables}" if seen.variables else "Variables now: none.")
    if seen.cells:
        lines.append("Run by the user since the last request:\n" + _cells(seen.cells))
    if not lines:
        return None
    return {"type": "text", "text": guarded("<context>\n" + "\n".join(lines)) + "\n</context>"}


def _cells(cells: Sequence[str]) -> str:
    """The newest cells that fit, in order, each cut to CELL_CHARS."""
    kept: list[str] = []
    room = CELLS_CHARS
    for source in reversed(cells):
        cut = source if len(source) <= CELL_CHARS else source[:CELL_CHARS] + " …"
        if len(cut) > room:
            break
        room -= len(cut)
        kept.append(f"```\n{cut}\n```")
    left = len(cells) - len(kept)
    return "\n".join(([f"({left} earlier)"] if left else []) + kept[::-1])
