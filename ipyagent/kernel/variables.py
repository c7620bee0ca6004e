"""What the user's variables are, in bounded bytes and time, without running any of the user's code.

Call these on the main thread, between cells: the namespace is read, never changed."""

from __future__ import annotations

import contextlib
import re
import types
import warnings
from collections.abc import Collection, Iterator, Mapping
from typing import Any

from ipyagent.kernel.masking import mask
from ipyagent.kernel.previews import Group, Kind, Look, clip, find, one_line, open_look

_OWN = re.compile(r"_{1,3}|_i{1,3}|_i?\d+|_[iod]h|__\w*__|_exit_code|_agent|In|Out|exit|quit|get_ipython")
_SHARE = {Group.FRAMES: 4, Group.ARRAYS: 2, Group.CONTAINERS: 2, Group.OBJECTS: 2, Group.FUNCTIONS: 1, Group.SCALARS: 1}
_TAIL = 160
"""Bytes kept for the names of what did not fit."""


def summarize(
    namespace: Mapping[str, Any], *, limit: int = 1500, seconds: float = 0.2, hidden: Collection[str] = frozenset()
) -> str:
    """One line for each variable of the user, frames first, newest first within a kind.

    At most `limit` bytes of UTF-8 and about `seconds` seconds; what did not fit is named. `hidden`
    are names that are not the user's; given as a mapping (`shell.user_ns_hidden`), only those that
    still have the hidden value. "" when there is nothing to tell.
    """
    look = open_look(seconds)
    rows = _users(namespace, hidden)
    rows.reverse()
    ranked = sorted(rows, key=lambda row: look.family(row[1]).group)
    with _quiet():
        lines = _lines(look, ranked, limit)
    return clip("\n".join(lines), limit)


def _lines(look: Look, ranked: list[tuple[str, Any]], limit: int) -> list[str]:
    """A line for each variable while room and time last, then the names of the others."""
    weights = [_SHARE[look.family(value).group] for _, value in ranked]
    room = limit
    lines: list[str] = []
    for at, (name, value) in enumerate(ranked):
        spare = room if at == len(ranked) - 1 else room - min(_TAIL, limit // 4)
        if spare < 40 or look.spent(0.9):
            break
        width = max(min(60 * weights[at], spare), spare * weights[at] // sum(weights[at:]))
        shown = _row(look, name, value, width)
        lines.append(shown)
        room -= len(shown.encode()) + 1
    rest = [one_line(name) for name, _ in ranked[len(lines) :]]
    if rest:
        head = f"… and {len(rest)} more: "
        lines.append(clip(head, room) + _names(rest, room - len(head.encode())))
    return lines


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """No library's warning about the user's values is shown, or raised as an error."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def _names(names: list[str], width: int) -> str:
    """As many names as fit into `width` bytes."""
    text = ", ".join(names[:200])
    return clip(text, max(0, width)) if len(names) <= 200 else clip(text + ", …", max(0, width))


def describe(name: str, value: Any, *, limit: int = 4000, seconds: float = 0.2) -> str:
    """One value in depth, some lines in at most `limit` bytes of UTF-8 and about `seconds` seconds."""
    look = open_look(seconds)
    lines: list[str] = []
    room = limit
    with _quiet(), contextlib.closing(look.block(value, limit, name)) as block:
        for line in block:
            text = f"{one_line(name)}  {line}" if name and not lines else line
            cut = clip(text, room)
            lines.append(cut)
            room -= len(cut.encode()) + 1
            if room < 20:
                break
    return clip(mask("\n".join(lines)), limit)


def preview(value: Any, *, limit: int = 2000, seconds: float = 0.2) -> str:
    """Like `describe`, for a value without a name."""
    return describe("", value, limit=limit, seconds=seconds)


def short_types(namespace: Mapping[str, Any], *, hidden: Collection[str] = frozenset()) -> dict[str, str]:
    """Name to a few words ("DataFrame 344 x 8", "int"), for each variable of the user."""
    look = Look(find, 1.0)
    return {name: look.short(value) for name, value in _users(namespace, hidden)}


def _users(namespace: Mapping[str, Any], hidden: Collection[str]) -> list[tuple[str, Any]]:
    pairs = list(namespace.items())
    return [
        (name, value)
        for name, value in pairs
        if type(name) is str
        and not _OWN.fullmatch(name)
        and not _is_hidden(name, value, hidden)
        and type(value) is not types.ModuleType
        and not Kind(type(value)).is_a(types.ModuleType)
    ]


def _is_hidden(name: str, value: Any, hidden: Collection[str]) -> bool:
    if isinstance(hidden, Mapping):
        return name in hidden and hidden[name] is value
    return name in hidden


def _row(look: Look, name: str, value: Any, width: int) -> str:
    label = clip(one_line(name), 60)
    shown = look.line(value, max(8, width - len(label.encode()) - 2), name)
    return clip(f"{label}  {shown}", max(width, 12))
