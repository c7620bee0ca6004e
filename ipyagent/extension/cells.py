"""How a `%%agent` cell reaches us as it was typed: literal, awaited where that is possible.

IPython's own transformers strip prompts, indents and question marks; ours comes first and turns the
cell into one call with the body as a string, character for character; the magic drops nothing but
the newlines at its end. Lines `%agent …?` are a request, not a help look-up.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

_OUTER = re.compile(r"%%(time|timeit|capture|prun)(?:[ \t]+(.*))?$")
"""Magics whose cell is code: they may stand above ours. They try to parse it, so they get a call."""
_QUESTION = re.compile(r"^\s*%(?P<name>\w+)[ \t]+(?P<rest>\S.*\?)\s*$")


class CellTransformer:
    """Turns cells of the magics `names` into calls; those of `lines` that take a cell too, but nobody awaits
    them. IPython skips it when it only asks whether a cell is complete (`has_side_effects`), so that typing
    line by line works in a terminal."""

    has_side_effects = True

    def __init__(self, shell: Any, names: Sequence[str], lines: Sequence[str] = ()) -> None:
        self._shell = shell
        self._names = tuple(names)
        self._lines = tuple(lines)
        cells = (*names, *(name for name in lines if name == "memory"))
        self._cell = re.compile(r"%%(" + "|".join(cells) + r")(?:[ \t]+(.*))?$")

    def __call__(self, lines: list[str]) -> list[str]:
        start = next((number for number, line in enumerate(lines) if line.strip()), None)
        if start is None:
            return lines
        if not lines[start].lstrip().startswith("%%"):
            return self._requests(lines)
        made = self._made(lines[start:], awaitable=self._awaitable)
        return lines if made is None else [made]

    def _made(self, lines: list[str], *, awaitable: bool) -> str | None:
        """The call for a cell that begins with one of our magics, also below `%%time` and the like."""
        first = lines[0].strip()
        if match := self._cell.match(first):
            return self._call(match.group(1), match.group(2) or "", "".join(lines[1:]), awaitable)
        outer = _OUTER.match(first)
        below = next((number for number, line in enumerate(lines) if number and line.strip()), None)
        if outer is None or below is None:
            return None
        inner = self._made(lines[below:], awaitable=False)
        if inner is None:
            return None
        return f"get_ipython().run_cell_magic({outer.group(1)!r}, {outer.group(2) or ''!r}, {inner!r})\n"

    def _call(self, name: str, options: str, body: str, awaitable: bool) -> str:
        if name not in self._names:
            if not body.strip():
                return f"get_ipython().run_line_magic({name!r}, {options!r})\n"
            return f"get_ipython().run_cell_magic({name!r}, {options!r}, {body!r})\n"
        if not body.strip() and not options:
            return f"get_ipython().run_line_magic({name!r}, 'help')\n"
        body = body or "\n"  # an empty one IPython takes for a mistake; the request stands on the first line
        if awaitable:
            return f"await get_ipython().run_cell_magic('{name}_async', {options!r}, {body!r})\n"
        return f"get_ipython().run_cell_magic({name!r}, {options!r}, {body!r})\n"

    def _requests(self, lines: list[str]) -> list[str]:
        """The lines, with our magic lines that end in "?" made calls; not those inside of strings."""
        for number, line in enumerate(lines):
            if (made := self._request(line)) != line and _begins_statement(lines, number):
                lines = [*lines[:number], made, *lines[number + 1 :]]
        return lines

    def _request(self, line: str) -> str:
        match = _QUESTION.match(line)
        if match is None or match.group("name") not in (*self._names, *self._lines):
            return line
        indent = line[: len(line) - len(line.lstrip())]
        return f"{indent}get_ipython().run_line_magic({match.group('name')!r}, {match.group('rest')!r})\n"

    @property
    def _awaitable(self) -> bool:
        """Whether this is a whole cell at top level: inside `%%time` and the like nobody awaits."""
        return bool(self._shell.autoawait) and self._shell.builtin_trap._nested_level == 0


def _begins_statement(lines: list[str], number: int) -> bool:
    """Whether a statement begins at a line, as IPython sees it."""
    from IPython.core.inputtransformer2 import make_tokens_by_line

    return any(
        tokens and next((token.start[0] for token in tokens if token.string.strip()), 0) == number + 1
        for tokens in make_tokens_by_line(lines)
    )


def literal(function: Callable[..., Any]) -> Callable[..., Any]:
    """Mark a magic so that IPython expands no `$x` and `{x}` on its line."""
    function._ipython_magic_no_var_expand = True  # type: ignore[attr-defined] # IPython's own mark
    return function
