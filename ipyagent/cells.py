"""How a `%%agent` cell reaches us as it was typed: literal, awaited where that is possible.

IPython's own transformers strip prompts, indents and question marks; ours comes first and turns the
cell into one call with the body as a string. Lines `%agent …?` are a request, not a help look-up.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

_QUESTION = re.compile(r"^\s*%(?P<name>\w+)[ \t]+(?P<rest>\S.*\?)\s*$")


class CellTransformer:
    """Turns cells of the magics `names` into calls. IPython skips it when it only asks whether a
    cell is complete (`has_side_effects`), so that typing line by line works in a terminal."""

    has_side_effects = True

    def __init__(self, shell: Any, names: Sequence[str]) -> None:
        self._shell = shell
        self._names = tuple(names)
        self._cell = re.compile(r"%%(" + "|".join(names) + r")(?:[ \t]+(.*?))?[ \t]*\r?\n?$")

    def __call__(self, lines: list[str]) -> list[str]:
        start = next((number for number, line in enumerate(lines) if line.strip()), None)
        if start is None:
            return lines
        match = self._cell.match(lines[start].lstrip())
        if match is not None:
            return [self._call(match.group(1), match.group(2) or "", "".join(lines[start + 1 :]))]
        if lines[start].lstrip().startswith("%%"):
            return lines
        return [self._request(line) for line in lines]

    def _call(self, name: str, options: str, body: str) -> str:
        if not body.strip():
            return f"get_ipython().run_line_magic({name!r}, 'help')\n"
        if self._awaitable:
            return f"await get_ipython().run_cell_magic('{name}_async', {options!r}, {body!r})\n"
        return f"get_ipython().run_cell_magic({name!r}, {options!r}, {body!r})\n"

    def _request(self, line: str) -> str:
        match = _QUESTION.match(line)
        if match is None or match.group("name") not in (*self._names, "context"):
            return line
        indent = line[: len(line) - len(line.lstrip())]
        return f"{indent}get_ipython().run_line_magic({match.group('name')!r}, {match.group('rest')!r})\n"

    @property
    def _awaitable(self) -> bool:
        """Whether this is a whole cell at top level: inside `%%time` and the like nobody awaits."""
        return bool(self._shell.autoawait) and self._shell.builtin_trap._nested_level == 0


def literal(function: Callable[..., Any]) -> Callable[..., Any]:
    """Mark a magic so that IPython expands no `$x` and `{x}` on its line."""
    function._ipython_magic_no_var_expand = True  # type: ignore[attr-defined] # IPython's own mark
    return function
