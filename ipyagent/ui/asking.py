"""A permission question on one line of input, where there are no buttons. A yes counts once all was shown."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from typing import TypeAlias

from ipyagent.escape import exact
from ipyagent.journal.events import PermissionAsked
from ipyagent.journal.protocols import PermissionAnswer
from ipyagent.ui.items import heading, rule_shown

ReadLine: TypeAlias = Callable[[str], Awaitable[str]]
"""Reads one line from the user after a prompt; raises EOFError at the end of input."""

ROWS, COLUMNS = 24, 80
"""Of a page where nobody knows how large the screen is."""


async def ask_on_a_line(
    read_line: ReadLine,
    asked: PermissionAsked,
    *,
    words: str = "",
    pages: tuple[str, ...] = (),
    show: Callable[[str], None] | None = None,
) -> PermissionAnswer:
    """Wait for y, n, a or a reason; an empty line decides nothing. `words`: what is asked about, where it is shown
    nowhere else; `pages`: the same as `pages_of` made it, where `show` brings each to the screen."""
    pages = pages_of(exact(words), ROWS, COLUMNS) if words else pages
    head = "\n".join([*head_lines(asked), ""]) if words else ""
    total = sum(page.count("\n") + 1 for page in pages)
    always = f"  [a] always for {rule_shown(asked)}" if asked.pattern else ""
    seen = rows = 0
    while True:
        if seen < len(pages):
            rows += pages[seen].count("\n") + 1
            if show is None:
                head += pages[seen] + "\n"
            else:
                show(pages[seen])
            seen += 1
        more = seen < len(pages)
        prompt = f"[y] once  [n] no, or type a reason{always}: "
        if more:
            prompt = f"{rows:,} of {total:,} lines shown. [Enter] the next, to allow it  [n] no, or type a reason: "
        try:
            said = (await read_line(head + prompt)).strip()
        except EOFError:
            return PermissionAnswer("deny", "the input ended", "user")
        head = ""
        match said.lower():
            case "":
                continue
            case "y" | "yes" | "once" if not more:
                return PermissionAnswer("once")
            case "a" | "always" if asked.pattern and not more:
                return PermissionAnswer("always")
            case "y" | "yes" | "once" | "a" | "always" if more:
                continue  # not everything was shown yet
            case "n" | "no" | "deny":
                return PermissionAnswer("deny")
            case _:
                return PermissionAnswer("deny", said)


def head_lines(asked: PermissionAsked) -> list[str]:
    """The danger, our title, and what the model says of its call."""
    danger, title, said = heading(asked)
    return [*([f"! {danger}"] if danger else ()), f"? {title}", *([said] if said else ())]


def pages_of(text: str, rows: int, columns: int) -> tuple[str, ...]:
    """A text in pieces that fit a screen of so many rows and columns; one line that is longer is cut into several."""
    pages: list[str] = []
    page: list[str] = []
    room = rows
    for piece in _pieces(text, rows * columns):
        wide = len(piece) if piece.isascii() else 2 * len(piece)  # a character may take two columns
        needs = max(1, -(-wide // columns))
        if page and needs > room:
            pages.append("\n".join(page))
            page, room = [], rows
        page.append(piece)
        room -= needs
    return (*pages, "\n".join(page))


def _pieces(text: str, most: int) -> Iterator[str]:
    for row in text.rstrip("\n").split("\n"):
        if len(row) <= most:
            yield row
        else:
            yield from (row[at : at + most] for at in range(0, len(row), most))
