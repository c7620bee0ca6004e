"""One line from the person, on the main thread, that an interrupt ends whenever it comes."""

from __future__ import annotations

import builtins
import os
import sys
from types import BuiltinFunctionType

from ipyagent.kernel.output_streams import readable

TICK = 0.05
"""Seconds that one wait for the terminal takes at most."""


def read_line(prompt: str) -> str:
    """What was typed, as `input(prompt)` gives it. Raises EOFError and whatever the front-end's input raises.

    Python's own `input` waits within one system call: a Ctrl-C that arrives just before it is only seen after the
    next line. Here Python runs in between, and with it the handler of the signal.
    """
    if os.name == "nt" or not isinstance(builtins.input, BuiltinFunctionType) or not _is_terminal():
        return str(builtins.input(prompt))
    sys.stdout.write(prompt)
    sys.stdout.flush()
    while not readable(sys.stdin, TICK):
        pass
    line = sys.stdin.readline()  # of a terminal one line at a time: nothing of the next is taken
    if not line:
        raise EOFError
    return line.rstrip("\n")


def _is_terminal() -> bool:
    try:
        return sys.stdin.isatty() and sys.stdin.fileno() >= 0
    except (AttributeError, OSError, ValueError):  # replaced or closed
        return False
