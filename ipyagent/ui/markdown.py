"""Markdown of the model as HTML that is safe by construction.

Raw HTML is text; links go to http, https or mailto and nowhere else, those without a scheme are text; pictures
are not loaded, they become links; `$…$` stays as written."""

from __future__ import annotations

import html
import re
from collections.abc import Iterator, Sequence
from functools import cache
from itertools import pairwise
from typing import TYPE_CHECKING

from ipyagent.escape import plain

if TYPE_CHECKING:
    from markdown_it import MarkdownIt
    from markdown_it.renderer import RendererHTML
    from markdown_it.token import Token
    from markdown_it.utils import EnvType, OptionsDict
    from pygments.lexer import Lexer


# ---- Source text as highlighted HTML that cannot carry markup: every token is escaped here. Two looks of the same
# tokens: classes for the panel (its style sheet has the colours) and inline colours for static output. Both name
# JupyterLab's editor variables, so they follow the theme.

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


_UNWRITTEN = re.compile(r"[\x00-\x20\x7f-\xa0\u200b-\u200f\u2028-\u202f\u2060-\u206f\ufeff]")
_DEFINITION = re.compile(r"^ {0,3}\[[^\]]{1,999}\]:", re.MULTILINE)
_LINE = re.compile(r"[^\r\n]*(?:\r\n?|\n)|[^\r\n]+")
_TICKS = re.compile(r"`+")
ADDRESS = 300
"""Characters of an address that are looked at: one that has not said by then where it leads is not a link."""
# Looked at, not consumed: one address may end in the next link. `>` may be the quote's mark on a new row.
_TARGET = re.compile(rf"\](?=[(:][\s>]{{0,{ADDRESS}}}<?([^)\s>]{{0,{ADDRESS}}}))")
_ESCAPED = re.compile(r"\\(.)")
_CUT_ENTITY = re.compile(r"&[^&;]{0,40}\Z|\\\Z")
_MATH = re.compile(r"\$|\\begin|\\\\?[(\[]")
_ACTING = re.compile(
    r"\\(?=(?:href|url|class|cssId|style|data|csname|require|includegraphics|mmlToken|html[A-Za-z]{0,20})(?![A-Za-z]))"
)
"""What of TeX makes links, attributes or pictures, or builds the names of such commands."""
LONG_BLOCK = 4_000
"""Characters above which the unfinished block of a text that streams in is not parsed anew with each piece."""
LAID_OUT = 100_000
"""Characters of one text that are laid out; more would stop the kernel for seconds and freeze the page."""
_AS_TEXT = "The remaining {:,} characters are too many to format and are shown as written:"

FENCE = (
    "margin:4px 0 10px;padding:6px 10px;border:1px solid rgba(128,128,128,.28);border-radius:4px;"
    "background:rgba(128,128,128,.06);overflow:auto;white-space:pre"
)
"""The static form's frame around code."""


def safe_link(url: str) -> bool:
    """Whether a link may lead to `url`."""
    # without scheme and host (`http:x` too) it leads to the page's own server, which may be the one of this kernel
    return _UNWRITTEN.sub("", html.unescape(url)).lower().startswith(("http://", "https://", "mailto:"))


@cache
def _parser(inline: bool) -> MarkdownIt:
    from markdown_it import MarkdownIt

    class Parser(MarkdownIt):
        def validateLink(self, url: str) -> bool:  # noqa: N802 - the library's name
            return safe_link(url)

    parser = Parser("commonmark", {"html": False}).enable(["table", "strikethrough"])

    def fence(
        renderer: RendererHTML, run: Sequence[Token], index: int, options: OptionsDict, env: EnvType
    ) -> str:
        words = run[index].info.split()
        language = words[0] if words else ""
        styles = f' style="{FENCE}"', ' style="background:none;padding:0;white-space:inherit"'
        pre, code = styles if inline else ("", "")
        opening = f'<pre tabindex="0"{pre}><code{code}>'
        return f"{opening}{highlight(run[index].content, language, inline=inline)}</code></pre>\n"

    def image(renderer: RendererHTML, run: Sequence[Token], index: int, options: OptionsDict, env: EnvType) -> str:
        token = run[index]
        label = html.escape(renderer.renderInlineAsText(token.children or [], options, env) or "image")
        target = html.escape(str(token.attrs.get("src", "")))
        away = f' href="{target}" rel="noopener noreferrer" target="_blank"' if target else ""
        return f"<a{away}>[image: {label}]</a>"

    def link(renderer: RendererHTML, run: Sequence[Token], index: int, options: OptionsDict, env: EnvType) -> str:
        target = str(run[index].attrs.get("href", ""))
        if not target:
            return "<a>"  # the parser asks nobody about an empty one
        line = ' style="text-decoration:underline"' if inline else ""  # told from the words around it without a colour
        return f'<a href="{html.escape(target)}" rel="noopener noreferrer" target="_blank"{line}>'

    parser.add_render_rule("fence", fence)
    parser.add_render_rule("code_block", fence)
    parser.add_render_rule("image", image)
    parser.add_render_rule("link_open", link)
    return parser


def render(text: str, *, inline: bool = False) -> str:
    """Safe HTML of Markdown `text`; `inline`: code colours as styles, for static output."""
    text, rest = _laid_out(plain(text))
    rendered: str = _parser(inline).render(text)
    if rest:
        style = f' style="{FENCE}"' if inline else ""
        rendered += f"<p><em>{_AS_TEXT.format(len(rest))}</em></p>\n"
        rendered += f'<pre tabindex="0"{style}>{html.escape(rest)}</pre>\n'
    return rendered


def _laid_out(text: str) -> tuple[str, str]:
    """What is laid out of a text, up to the end of a line, and the rest."""
    if len(text) <= LAID_OUT:
        return text, ""
    end = text.rfind("\n", LAID_OUT // 2, LAID_OUT) + 1 or LAID_OUT
    return text[:end], text[end:]


def has_definitions(text: str) -> bool:
    """Whether a later line may change an earlier block (`[name]: url`)."""
    return _DEFINITION.search(text) is not None


def split(text: str) -> tuple[list[str], str]:
    """Blocks that no further text can change, and the rest: the last block and what follows it.
    The parts join to `text`; one of more than LAID_OUT characters is a rest as a whole."""
    if len(text) > LAID_OUT:
        return [], text
    starts = [
        token.map[0] for token in _parser(False).parse(text) if token.level == 0 and token.map and token.nesting >= 0
    ]
    if len(starts) < 2:
        return [], text
    lines = _LINE.findall(text)  # as the parser counts them: `str.splitlines` knows more line ends
    edges = [0, *starts[1:]]
    blocks = ["".join(lines[a:b]) for a, b in pairwise(edges)]
    return blocks, "".join(lines[edges[-1] :])


def harmless(text: str) -> str:
    """The same Markdown for readers that render raw HTML: tags, pictures and unsafe links outside
    code are turned into text, and no open fence swallows what is written after it."""
    text, rest = _laid_out(plain(text))
    told = f"\n\n*{_AS_TEXT.format(len(rest))}*\n\n{fenced(rest)}" if rest else ""
    return _harmless(text) + told


def _harmless(text: str) -> str:
    for spare_spans in (True, False):
        candidate = _disarmed(text, spare_spans)
        for closing in ("", *_open_fence(candidate)):
            if not _acts(candidate + closing):
                return candidate + closing
    return fenced(text)  # too clever to be disarmed: all of it is shown as code


def fenced(text: str, language: str = "") -> str:
    """A fence around `text` that nothing in it ends."""
    marks = "`" * max(3, 1 + max(map(len, _TICKS.findall(text)), default=0))
    return f"{marks}{language}\n{text}\n{marks}"


@cache
def _careless() -> MarkdownIt:
    """How a reader without any care would parse it."""
    from markdown_it import MarkdownIt

    class Parser(MarkdownIt):
        def validateLink(self, url: str) -> bool:  # noqa: N802 - the library's name
            return True

    return Parser("commonmark", {"html": True}).enable(["table", "strikethrough"])


def _acts(text: str) -> bool:
    """Whether anything in `text` could run, load or lead astray, or reach beyond its end."""
    tokens = _careless().parse(text + "\n\nend\n")
    for token in tokens:
        for part in (token, *(token.children or ())):
            if part.type in ("html_block", "html_inline", "image"):
                return True
            if part.type == "link_open" and not safe_link(str(part.attrs.get("href", ""))):
                return True
    return len(tokens) < 3 or tokens[-1].level != 0 or tokens[-2].content != "end"


def _open_fence(text: str) -> list[str]:
    fences = [token for token in _careless().parse(text) if token.type == "fence"]
    return ["\n" + fences[-1].markup] if fences else []


def _disarmed(text: str, spare_spans: bool) -> str:
    code_rows: set[int] = set()
    for token in _parser(False).parse(text):
        if token.type in ("fence", "code_block") and token.map:
            code_rows.update(range(*token.map))
    parts: list[str] = []
    prose: list[str] = []
    rows = text.split("\n")
    for number, row in enumerate([*rows, ""]):
        if number in code_rows or number == len(rows):
            parts.append(_disarmed_prose("".join(prose), spare_spans))
            prose.clear()
            parts.append(row + "\n")
        else:
            prose.append(row + "\n")
    disarmed = "".join(parts)[:-2]
    if any(_MATH.search(row) for number, row in enumerate(rows) if number not in code_rows):
        disarmed = _ACTING.sub(r"\\ ", disarmed)  # readers let formulas reach over code
    return disarmed


def _disarmed_prose(text: str, spare_spans: bool) -> str:
    parts: list[str] = []
    at = 0
    for start, end in _spans(text) if spare_spans else ():
        parts += (_disarmed_words(text[at:start]), text[start:end])
        at = end
    return "".join(parts) + _disarmed_words(text[at:])


def _spans(text: str) -> Iterator[tuple[int, int]]:
    """The code spans of `text`: a run of backticks up to the next run of the same length."""
    runs = [match.span() for match in _TICKS.finditer(text)]
    following: dict[int, int] = {}
    closing: list[int | None] = []
    for number in reversed(range(len(runs))):
        length = runs[number][1] - runs[number][0]
        closing.append(following.get(length))
        following[length] = number
    closing.reverse()
    number = 0
    while number < len(runs):
        end = closing[number]
        if end is not None:
            yield runs[number][0], runs[end][1]
            number = end
        number += 1


def _disarmed_words(text: str) -> str:
    def target(match: re.Match[str]) -> str:
        start = match[1]
        if len(start) == ADDRESS:  # there may be more: what says where it leads must stand in this part
            start = _CUT_ENTITY.sub("", start)
            if not any(mark in start for mark in "/?#:"):
                return "\\]"
        return "]" if safe_link(_ESCAPED.sub(r"\1", start)) else "\\]"

    return _TARGET.sub(target, text).replace("![", "!\\[").replace("<", "&lt;")
