"""Scripts of several panels as one module: each keeps its own names, and gives what it exports."""

from __future__ import annotations

import re

from ipyagent.ui.look import HERE

_EXPORT = re.compile(r"^export default (\{[^}]*\});\n?\Z", re.MULTILINE)


def script(main: str, **parts: str) -> str:
    """The text of `main`.js with the scripts named in `parts` before it, each bound to its keyword. A part ends with
    `export default { … };`. Raises ValueError for one that does not."""
    pieces = []
    for name, file in parts.items():
        text, count = _EXPORT.subn(r"return \1;\n", (HERE / f"{file}.js").read_text("utf-8"))
        if count != 1 or re.search(r"^(import|export)\b", text, re.MULTILINE):
            raise ValueError(f"{file}.js must end with the only export it has, and import nothing")
        pieces.append(f"const {name} = (() => {{\n{text}}})();\n")
    return "".join(pieces) + (HERE / f"{main}.js").read_text("utf-8")
