"""The memory section of the system prompt: what memory is for, and the index of both scopes.

Rendered once a session and reused byte for byte, so it holds nothing that changes by itself. What does not fit
its share of the window is left out at a line, and both the model and the user are told.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib.resources import files

from ipyagent.journal.tokens import estimate_text
from ipyagent.memory.instructions import guarded

ORDER = ("user", "project")
"""The project's index last: it is the more specific."""
EMPTY = "(nothing saved yet)"
SHORT = "You have a memory in `/memories/project` and `/memories/user`; look there with the `memory` tool."
EARLIER = "\n- Earlier sessions: `grep` a few exact words in {}/*/transcript.jsonl; never read one whole."
IGNORED = (
    "<context>\nFor this request the user wants memory left aside: answer as if the memory index were empty, open no "
    "memory, and use nothing that came from one.\n</context>"
)
"""Goes with a request that asks to ignore memory; the system prompt stays as it is."""


def memory_section(indexes: Mapping[str, str], tokens: int, *, sessions: str = "") -> tuple[str, str]:
    """The section with the index of each scope that may be used, in at most about `tokens` tokens, and one line for
    the user when not all of it went in. "" when there is no scope. `sessions`: the folder of earlier sessions as
    `grep` takes it ("": not to be looked into)."""
    if not indexes:
        return "", ""
    head = files("ipyagent.memory").joinpath("section.md").read_text(encoding="utf-8").strip()
    if sessions:
        head += EARLIER.format(sessions.replace("`", "'"))
    known = [scope for scope in ORDER if scope in indexes]
    scopes = [scope for scope in known if indexes[scope].strip()] or known[-1:]
    room = tokens - estimate_text(head) - 30 * len(scopes)
    if room < 0:
        if tokens < estimate_text(SHORT):
            return "", _line(0, sum(_count(indexes[scope]) for scope in scopes), tokens)
        return SHORT, _line(0, sum(_count(indexes[scope]) for scope in scopes), tokens)
    parts: list[str] = []
    shown = all_lines = 0
    for left, scope in zip(range(len(scopes), 0, -1), scopes, strict=True):
        text = indexes[scope].strip("\n")
        fitted, lines = _fitted(text, scope, room // left)
        room -= estimate_text(fitted)
        shown, all_lines = shown + lines, all_lines + _count(text)
        parts.append(f'<memory-index scope="{scope}">\n{guarded(fitted) or EMPTY}\n</memory-index>')
    return "\n\n".join([head, *parts]), _line(shown, all_lines, tokens) if shown < all_lines else ""


def _fitted(text: str, scope: str, room: int) -> tuple[str, int]:
    """As many lines from the top as fit in `room` tokens, with a word for the rest; and how many entries those
    hold."""
    if estimate_text(text) <= room:
        return text, _count(text)
    warning = f"[This index is longer than the window allows: {{}} more in it; view /memories/{scope}]"
    room -= estimate_text(warning)
    kept: list[str] = []
    for line in text.splitlines():
        room -= estimate_text(line + "\n")
        if room < 0:
            break
        kept.append(line)
    entries = _count("\n".join(kept))
    return "\n".join([*kept, warning.format(_count(text) - entries)]), entries


def _count(text: str) -> int:
    return sum(line.lstrip().startswith(("- ", "* ")) for line in text.splitlines())


def _line(shown: int, lines: int, tokens: int) -> str:
    if not lines:
        return ""
    return (
        f"the memory index is longer than this window allows (about {max(0, tokens):,} tokens): {shown:,} of {lines:,} "
        "memories stand in it; the others are found by recall and %memory search"
    )
