"""One visual language: the style sheet that every live part shares, and its colours for static output.

The colours stand once, in look.css; what is kept in a notebook gets them as plain values, because no style
sheet survives there.
"""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

HERE = Path(__file__).parent


def sheet(name: str = "") -> str:
    """The shared style sheet, and that of `name` ("timeline") after it."""
    shared = (HERE / "look.css").read_text("utf-8")
    return shared + ((HERE / f"{name}.css").read_text("utf-8") if name else "")


@cache
def _colours() -> dict[str, str]:
    pairs = re.findall(r"--ia-(source-[a-z-]+|layer-[a-z]+): (#[0-9a-f]{6});", (HERE / "look.css").read_text("utf-8"))
    return dict(pairs)


def source_colour(source: str) -> str:
    """`#rrggbb` of a source of tokens ("tool results"); KeyError for what is none."""
    return _colours()[f"source-{source.replace(' ', '-')}"]


def layer_colour(kind: str) -> str:
    """`#rrggbb` of what a decision of that kind ("compacted") did; "" for one without a colour of its own."""
    kind = {"cache break": "broken", "failed": "broken", "saved": "recalled"}.get(kind, kind)
    return _colours().get(f"layer-{kind}", "")
