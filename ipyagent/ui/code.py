"""Source text as highlighted HTML that cannot carry markup: every token is escaped here.

Two looks of the same tokens: classes for the panel (its style sheet has the colours) and inline
colours for static output. Both name JupyterLab's editor variables, so they follow the theme.
"""

from __future__ import annotations

import html
from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pygments.lexer import Lexer

HIGHLIGHT_LIMIT = 60_000
"""Characters above which text is shown without colours: highlighting would be felt."""

COLOURS: dict[str, str] = {
    "k": "var(--jp-mirror-editor-keyword-color,#8250df)",
    "s": "var(--jp-mirror-editor-string-color,#b3563b)",
    "n": "var(--jp-mirror-editor-number-color,#2f855a)",
    "c": "color-mix(in srgb,var(--jp-mirror-editor-comment-color,#6a7f86) 70%,currentColor)",
    "f": "color-mix(in srgb,var(--jp-mirror-editor-def-color,#3b7dd8) 80%,currentColor)",
    "b": "var(--jp-mirror-editor-builtin-color,#3b8e5a)",
    "gi": "var(--jp-success-color1,#2e9e4f)",
    "gd": "var(--jp-error-color1,#d9483b)",
    "gh": "var(--jp-info-color1,#3b7dd8)",
}
"""Token group → CSS colour, readable on white and on near-black where no theme is known. Mixed with
the colour of the text where the theme's own is too near to its background for small print."""


@cache
def _lexer(language: str, filename: str) -> Lexer:
    from pygments.lexers import get_lexer_by_name, get_lexer_for_filename
    from pygments.lexers.special import TextLexer
    from pygments.util import ClassNotFound

    # stripnl and ensurenl: not one character may be lost or added
    try:
        if language:
            return get_lexer_by_name(language, stripnl=False, ensurenl=False)
        if filename:
            return get_lexer_for_filename(filename, None, stripnl=False, ensurenl=False)
    except ClassNotFound:
        pass  # an unknown language is shown as text
    return TextLexer(stripnl=False, ensurenl=False)


def tokens(code: str, language: str = "", filename: str = "") -> list[tuple[str, str]]:
    """`(group, text)` runs whose texts join to `code`; group "" has no colour."""
    if len(code) > HIGHLIGHT_LIMIT:
        return [("", code)]
    from pygments.token import Comment, Generic, Keyword, Name, Number, Operator, String

    table = (
        (Comment, "c"), (Keyword, "k"), (Operator.Word, "k"), (String, "s"), (Number, "n"),
        (Name.Function, "f"), (Name.Class, "f"), (Name.Decorator, "f"), (Name.Builtin, "b"),
        (Generic.Inserted, "gi"), (Generic.Deleted, "gd"), (Generic.Subheading, "gh"), (Generic.Heading, "gh"),
    )  # fmt: skip
    runs: list[tuple[str, str]] = []
    ended = code.endswith("\n")  # some lexers know a last row only by its newline
    for kind, text in _lexer(language[:40].lower(), filename[-200:]).get_tokens(code if ended else code + "\n"):
        group = next((name for parent, name in table if kind[: len(parent)] == parent), "")
        if runs and (runs[-1][0] == group or not text.strip()):
            runs[-1] = (runs[-1][0], runs[-1][1] + text)
        else:
            runs.append((group, text))
    if not ended and runs:
        runs[-1] = (runs[-1][0], runs[-1][1].removesuffix("\n"))
    return runs


def highlight(code: str, language: str = "", filename: str = "", *, inline: bool = False) -> str:
    """HTML of `code` without a frame; `inline`: colours as styles instead of classes. The caller has
    passed `code` through `plain`, `output` or `exact`."""
    parts: list[str] = []
    for group, text in tokens(code, language, filename):
        safe = html.escape(text, quote=False)
        if not group:
            parts.append(safe)
        elif inline:
            parts.append(f'<span style="color:{COLOURS[group]}">{safe}</span>')
        else:
            parts.append(f'<span class="{group}">{safe}</span>')
    return "".join(parts)
