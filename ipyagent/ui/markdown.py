"""Markdown of the model as HTML that is safe by construction.

Raw HTML is text; links go to http, https, mailto or inside the document and nowhere else; pictures
are not loaded, they become links; `$…$` stays as written.
"""

from __future__ import annotations

import html
import re
from collections.abc import Sequence
from functools import cache
from itertools import pairwise
from typing import TYPE_CHECKING

from ipyagent.ui.code import highlight
from ipyagent.ui.escape import plain

if TYPE_CHECKING:
    from markdown_it import MarkdownIt
    from markdown_it.renderer import RendererHTML
    from markdown_it.token import Token
    from markdown_it.utils import EnvType, OptionsDict

_SCHEME = re.compile(r"[a-zA-Z][a-zA-Z0-9+.\-]*:")
_UNWRITTEN = re.compile(r"[\x00-\x20\x7f-\xa0\u200b-\u200f\u2028-\u202f\u2060-\u206f\ufeff]")
_DEFINITION = re.compile(r"^ {0,3}\[[^\]]+\]:", re.MULTILINE)
_LINE = re.compile(r"[^\r\n]*(?:\r\n?|\n)|[^\r\n]+")
_SPAN = re.compile(r"(?<!`)(`+)(?!`)(?:.|\n)*?(?<!`)\1(?!`)")
_TARGET = re.compile(r"\](\(\s*<?([^)\s>]*)|:[ \t]*\n?[ \t]*<?([^\s>]+))")


FENCE = (
    "margin:4px 0 10px;padding:6px 10px;border:1px solid rgba(128,128,128,.28);border-radius:4px;"
    "background:rgba(128,128,128,.06);overflow:auto;white-space:pre"
)
"""The static form's frame around code."""


def safe_link(url: str) -> bool:
    """Whether a link may lead to `url`."""
    bare = _UNWRITTEN.sub("", html.unescape(url))
    if bare.startswith(("//", "\\", "/\\")):
        return False  # another host without saying so
    scheme = _SCHEME.match(bare)
    if scheme is None:
        return ":" not in re.split(r"[/?#]", bare, maxsplit=1)[0]
    return scheme[0].lower() in ("http:", "https:", "mailto:")


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
        opening = f'<pre style="{FENCE}"><code style="background:none;padding:0">' if inline else "<pre><code>"
        return f"{opening}{highlight(run[index].content, language, inline=inline)}</code></pre>\n"

    def image(renderer: RendererHTML, run: Sequence[Token], index: int, options: OptionsDict, env: EnvType) -> str:
        token = run[index]
        label = html.escape(renderer.renderInlineAsText(token.children or [], options, env) or "image")
        target = html.escape(str(token.attrs.get("src", "")))
        return f'<a href="{target}" rel="noopener noreferrer" target="_blank">[image: {label}]</a>'

    def link(renderer: RendererHTML, run: Sequence[Token], index: int, options: OptionsDict, env: EnvType) -> str:
        target = str(run[index].attrs.get("href", ""))
        away = "" if target.startswith("#") else ' rel="noopener noreferrer" target="_blank"'
        return f'<a href="{html.escape(target)}"{away}>'

    parser.add_render_rule("fence", fence)
    parser.add_render_rule("code_block", fence)
    parser.add_render_rule("image", image)
    parser.add_render_rule("link_open", link)
    return parser


def render(text: str, *, inline: bool = False) -> str:
    """Safe HTML of Markdown `text`; `inline`: code colours as styles, for static output."""
    rendered: str = _parser(inline).render(plain(text))
    return rendered


def has_definitions(text: str) -> bool:
    """Whether a later line may change an earlier block (`[name]: url`)."""
    return _DEFINITION.search(text) is not None


def split(text: str) -> tuple[list[str], str]:
    """Blocks that no further text can change, and the rest: the last block and what follows it.
    The parts join to `text`."""
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
    code are turned into text."""
    text = plain(text)
    code_lines: set[int] = set()
    for token in _parser(False).parse(text):
        if token.type in ("fence", "code_block") and token.map:
            code_lines.update(range(*token.map))
    parts: list[str] = []
    prose: list[str] = []

    def flush() -> None:
        if prose:
            parts.append(_harmless_prose("".join(prose)))
            prose.clear()

    for number, row in enumerate(text.split("\n")):
        if number in code_lines:
            flush()
            parts.append(row + "\n")
        else:
            prose.append(row + "\n")
    flush()
    return "".join(parts)[:-1]


def _harmless_prose(text: str) -> str:
    parts: list[str] = []
    at = 0
    for span in _SPAN.finditer(text):
        parts += (_harmless_words(text[at : span.start()]), span[0].replace("<", "‹") if "\n\n" in span[0] else span[0])
        at = span.end()
    parts.append(_harmless_words(text[at:]))
    return "".join(parts)


def _harmless_words(text: str) -> str:
    def target(match: re.Match[str]) -> str:
        url = match[2] if match[2] is not None else match[3]
        return match[0] if safe_link(re.sub(r"\\(.)", r"\1", url)) else "\\" + match[0]

    text = _TARGET.sub(target, text)
    return text.replace("![", "!\\[").replace("<", "&lt;")
