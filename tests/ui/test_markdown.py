from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from ipyagent.ui import markdown

from .pages import HOSTILE, Page, unseen


def test_nothing_hostile_survives_rendering() -> None:
    for inline in [False, True]:
        for text in HOSTILE:
            html = markdown.render(text, inline=inline)
            page = Page(html)
            assert page.dangers == [], (inline, text)
            assert "<img" not in html, (inline, text)
            assert unseen(html) == [], (inline, text)


class Careless(MarkdownIt):
    """A reader that renders raw HTML and checks no link: what the Markdown mirror must survive."""

    def validateLink(self, url: str) -> bool:  # noqa: N802
        return True


def test_the_markdown_mirror_is_harmless_even_to_a_careless_reader() -> None:
    for text in HOSTILE:
        mirror = markdown.harmless(text)
        page = Page(Careless("commonmark", {"html": True}).enable(["table", "strikethrough"]).render(mirror))
        assert page.dangers == [], text
        assert unseen(mirror) == [], text


PIECES = [*HOSTILE, "\n", "\n\n", "`", "```\n", "> ", "- ", "  ", "[", "](", "<", "\\"]


@given(st.lists(st.sampled_from(PIECES), max_size=6))
def test_no_combination_of_hostile_pieces_survives(pieces: list[str]) -> None:
    text = "".join(pieces)
    assert Page(markdown.render(text)).dangers == []
    careless = Careless("commonmark", {"html": True}).enable(["table", "strikethrough"])
    assert Page(careless.render(markdown.harmless(text))).dangers == []


@pytest.mark.parametrize(
    "text",
    ["*words* and `a < b`", "```python\nif a < b:\n    pass\n```", "1 [x](https://a.example) 2", "a\n\n- b\n- c", ""],
)
def test_ordinary_markdown_passes_the_mirror_unchanged(text: str) -> None:
    assert markdown.harmless(text) == text


def test_an_open_fence_ends_with_its_text() -> None:
    assert markdown.harmless("a\n\n```python\nx < 1") == "a\n\n```python\nx < 1\n```"
    assert markdown.harmless("~~~~\nx") == "~~~~\nx\n~~~~"


def test_ordinary_markdown_is_rendered() -> None:
    html = markdown.render("# T\n\n**b** ~~s~~ `c`\n\n| a |\n|---|\n| 1 |\n\n1. x\n\n```python\ndef f(): pass\n```\n")
    for part in ("<h1>T</h1>", "<strong>b</strong>", "<s>s</s>", "<code>c</code>", "<td>1</td>", "<li>x</li>"):
        assert part in html
    assert '<span class="k">def' in html


def test_links_lead_out_without_the_opener() -> None:
    assert 'href="https://a.example/b?c=1&amp;d=2" rel="noopener noreferrer"' in markdown.render(
        "[x](https://a.example/b?c=1&d=2)"
    )
    assert 'href="mailto:a@b.example"' in markdown.render("<a@b.example>")


@pytest.mark.parametrize("where", ["../api/shutdown", "/files/e.html", "e", "#part", "?x=1", "", "&#47;x", "http:x"])
def test_a_link_without_a_scheme_is_text(where: str) -> None:
    careless = Careless("commonmark", {"html": True}).enable(["table", "strikethrough"])
    for text in (f"[x]({where})", f"[x](<{where}>)", f"![x]({where})", f"[x]\n\n[x]: {where or '<>'}"):
        assert Page(markdown.render(text)).links == []
        assert Page(careless.render(markdown.harmless(text))).links == []


def test_a_formula_makes_no_link_and_else_stays_as_written() -> None:
    link = r"\href{javascript:alert(1)}{click}"
    for text in (f"${link}$", f"$$\n{link}\n$$", f"\\begin{{align}}{link}\\end{{align}}", f"$a ` {link} ` b$"):
        assert "\\href" not in markdown.harmless(text)
        assert "javascript:alert(1)" in markdown.harmless(text)
    assert "\\csname" not in markdown.harmless(r"$\csname hr\endcsname$")
    kept = r"so $\alpha_1 + \dataset{x}$, $\frac{a}{b}$ hold"
    assert markdown.harmless(kept) == kept
    assert markdown.harmless(f"`{link}`") == f"`{link}`"


def test_a_picture_is_a_link_that_says_so() -> None:
    assert ">[image: chart]</a>" in markdown.render("![chart](https://a.example/c.png)")


def test_formulas_stay_as_written() -> None:
    assert r"$\alpha_1 + \beta$" in Page(markdown.render(r"so $\alpha_1 + \beta$ holds")).text


WHOLE = """# Title

A paragraph
of two rows.

- one

  more of one
- two

```python
x = 1

y = 2
```

| a | b |
|---|---|
| 1 | 2 |

> quote
lazy

Heading
=======

1. first
2. second

last
"""


@pytest.mark.parametrize("ends", ["\n", "\r\n"])
def test_finished_blocks_do_not_depend_on_what_comes_after(ends: str) -> None:
    """Whatever is cut off as finished while streaming renders as it does in the whole."""
    text = WHOLE.replace("\n", ends)
    wanted = markdown.render(text)
    for step in (1, 3, 7, 50):
        done, rest = [], ""
        for at in range(0, len(text), step):
            blocks, rest = markdown.split(rest + text[at : at + step])
            done += blocks
        assert "".join(done) + rest == text
        assert "".join(markdown.render(block) for block in [*done, rest]) == wanted


@given(st.text(alphabet="ab*`#->|[]()!\n \t\r\x0b\x0c\x1c\u2028", max_size=60))
def test_split_loses_nothing(text: str) -> None:
    blocks, rest = markdown.split(text)
    assert "".join(blocks) + rest == text


def test_a_text_too_long_to_lay_out_loses_nothing_and_says_so() -> None:
    rows = [f"| {number} | <b>x</b> {'word ' * 60}|" for number in range(600)]
    text = "\n".join(["| a | b |", "|---|---|", *rows])
    page = Page(markdown.render(text))
    assert all(f"{number}" in page.text for number in (0, 299, 599))
    assert "characters are too many to format" in page.text
    assert page.dangers == []
    mirror = markdown.harmless(text)
    assert "characters are too many to format" in mirror
    assert rows[-1] in mirror
    assert Page(Careless("commonmark", {"html": True}).enable(["table", "strikethrough"]).render(mirror)).dangers == []


@pytest.mark.parametrize("text", ["a", "```", "a ```` b ``", "`" * 40])
def test_nothing_in_a_fence_ends_it(text: str) -> None:
    tokens = [token for token in Careless().parse(markdown.fenced(text)) if token.type == "fence"]
    assert [token.content for token in tokens] == [text + "\n"]
