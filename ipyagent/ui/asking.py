"""A permission question on one line of input, where there are no buttons."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeAlias

from ipyagent.journal.events import PermissionAsked
from ipyagent.journal.protocols import Answer
from ipyagent.ui.escape import exact, line

ReadLine: TypeAlias = Callable[[str], Awaitable[str]]
"""Reads one line from the user after a prompt; raises EOFError at the end of input."""


async def ask_on_a_line(read_line: ReadLine, asked: PermissionAsked, *, words: str = "") -> Answer:
    """Wait for y, a, n or a reason; an empty line decides nothing. `words`: what is asked about, where it is
    shown nowhere else."""
    shown = f"{line(asked.title or f'Run {asked.tool}?')}\n{exact(words)}\n" if words else ""
    always = f"  [a] always for {line(asked.pattern, 60)}" if asked.pattern else ""
    while True:
        try:
            said = (await read_line(f"{shown}[y] once{always}  [n] no, or type a reason: ")).strip()
        except EOFError:
            return Answer("deny", "the input ended", "user")
        match said.lower():
            case "":
                continue
            case "y" | "yes" | "once":
                return Answer("once")
            case "a" | "always" if asked.pattern:
                return Answer("always")
            case "n" | "no" | "deny":
                return Answer("deny")
            case _:
                return Answer("deny", said)
