"""One visual language: the style sheet that every live part shares, and its colours for static output.

The colours stand once, in look.css; what is kept in a notebook gets them as plain values, because no style
sheet survives there."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Literal, TypeAlias

from ipyagent.ui import markdown

HERE = Path(__file__).parent
MemoryAction: TypeAlias = tuple[Literal["dismiss", "undo"], str]
"""What a button beside a memory does, and with which."""

DIM = "var(--jp-ui-font-color2,currentColor)"
LINE = "rgba(128,128,128,.28)"
WARN = "color-mix(in srgb,currentColor 45%,#e67e00)"  # darker on white, lighter on black
GOOD = "color-mix(in srgb,currentColor 30%,#2b9440)"
BAD = "color-mix(in srgb,currentColor 25%,#e5393b)"
STATIC_CLASSES = "ipyagent ia-static tex2jax_ignore mathjax_ignore"
"""Of what stays in a notebook; MathJax leaves it alone: "$5 and $6" is not a formula."""
TABLE = "table-layout:auto;border-collapse:collapse;width:100%"
"""A static table: Lab lays tables out in columns of one width, over which names and words flow."""
NAME = "white-space:nowrap;overflow-wrap:normal"
"""A name in a static table, which stands whole."""
_STYLES = {
    "ia-line": "font-size:.92em;line-height:1.9;cursor:pointer",
    "ia-body": f"margin:2px 0 6px 6px;padding-left:12px;border-left:2px solid {LINE}",
    "ia-code": markdown.FENCE + ";max-height:32em",
    "ia-out": "margin:4px 0;padding:2px 10px;background:transparent;overflow:auto;max-height:24em;white-space:pre-wrap",
    "ia-notice": f"color:{DIM};font-size:.92em;line-height:1.9",
    "ia-warning": f"color:{WARN};font-size:.92em;line-height:1.9",
    "ia-error": f"color:{BAD};font-size:.92em;line-height:1.9",
    "ia-aside": f"color:{DIM};line-height:1.7",
    "ia-thought": f"margin:2px 0 6px 6px;padding-left:12px;border-left:2px solid {LINE};color:{DIM};font-size:.92em",
    "ia-inner": "background:none;padding:0;color:inherit;white-space:inherit",
    "ia-meta": f"margin-left:6px;color:{DIM}",
    "ia-arg": f"background:none;padding:0;color:{DIM}",

    "ia-figure": "margin:6px 0",
    "ia-chips": "line-height:2",
    "ia-plan": "margin:0 0 6px 0",
    "ia-steps": "margin:2px 0 2px 6px;padding-left:0;list-style:none",
    "ia-chip": f"border:1px solid {LINE};border-radius:10px;padding:1px 9px;font-size:.9em;white-space:nowrap",
    "ia-gone": f"color:{DIM};font-size:.9em",
    "ia-chip-word": f"color:{DIM};font-size:.9em",
    "ia-picture": "max-width:100%;height:auto;background:#fff;border-radius:3px",
    "ia-icon": "display:inline-block;width:14px;text-align:center;font-weight:600;line-height:1",
}


def sheet(name: str = "") -> str:
    """The shared style sheet, and that of `name` ("timeline") after it."""
    shared = (HERE / "look.css").read_text("utf-8")
    if name == "panel":  # what a turn shows while it runs stands where it stands once it is static
        for each, style in _STYLES.items():
            shared += f".ia-panel .ia-piece .{each}{'' if each == 'ia-icon' else ':not(.ia-icon)'} {{ {style} }}\n"
    return shared + ((HERE / f"{name}.css").read_text("utf-8") if name else "")


_COLOUR = re.compile(r"--ia-(source-[a-z-]+|layer-[a-z]+): (#[0-9a-f]{6});")


@cache
def _colours() -> dict[str, str]:
    return dict(_COLOUR.findall((HERE / "look.css").read_text("utf-8")))


def source_colour(source: str) -> str:
    """`#rrggbb` of a source of tokens ("tool results"); KeyError for what is none."""
    return _colours()[f"source-{source.replace(' ', '-')}"]


def layer_colour(kind: str) -> str:
    """`#rrggbb` of what a decision of that kind ("compacted") did; "" for one without a colour of its own."""
    kind = {"cache break": "broken", "failed": "broken", "saved": "recalled"}.get(kind, kind)
    return _colours().get(f"layer-{kind}", "")


@dataclass(frozen=True, slots=True)
class Theme:
    """`static`: with inline styles, without anything that needs the kernel. `output_chars` bounds
    the output and each input of one call, in characters. `marks`: the marks of static buttons that a
    page with our script brings to life. `cell`: in the cell that ran, where pictures of code stand by themselves."""

    static: bool = False
    cell: bool = False
    output_chars: int = 20_000
    pictures: bool = True
    marks: Mapping[MemoryAction, str] = field(default_factory=dict)

    def kind(self, *names: str) -> str:
        """The class attribute, and in static form the style that belongs to it."""
        style = next((_STYLES[name] for name in reversed(names) if name in _STYLES), "") if self.static else ""
        return f'class="{" ".join(names)}"' + (f' style="{style}"' if style else "")


PANEL = Theme(cell=True)
STATIC = Theme(static=True)


# ---- Scripts of several panels as one module: each keeps its own names, and gives what it exports.

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
