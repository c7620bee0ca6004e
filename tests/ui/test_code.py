from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ipyagent.ui.item_views import diff, main_argument, sources
from ipyagent.ui.markdown import HIGHLIGHT_LIMIT, highlight, tokens

from .pages import Page


@given(st.text(max_size=80), st.sampled_from(["python", "bash", "diff", "json", "text", "nonsense", ""]))
def test_highlighting_loses_and_adds_no_character(code: str, language: str) -> None:
    if "\r" in code:
        return  # the callers clean line ends first
    assert "".join(text for _group, text in tokens(code, language)) == code.removeprefix("\ufeff")


@pytest.mark.parametrize("inline", [False, True])
def test_highlighted_code_has_no_tags_of_its_own(inline: bool) -> None:
    html = highlight("x = '</code><script>alert(1)</script>'", "python", inline=inline)
    page = Page(html)
    assert page.dangers == []
    assert page.text == "x = '</code><script>alert(1)</script>'"


def test_the_last_row_of_a_diff_is_coloured() -> None:
    assert highlight("-a\n+b", "diff").endswith('<span class="gi">+b</span>')


def test_very_long_code_is_shown_without_colours_and_fast() -> None:
    code = "x = 1\n" * HIGHLIGHT_LIMIT
    assert highlight(code, "python") == code


def test_the_main_argument_is_the_telling_row() -> None:
    assert main_argument({"code": "import pandas\n# comment\n\ndf.head()\nmore"}) == "df.head()"
    assert main_argument({"timeout": 3, "command": "ls -l\nrm x"}) == "ls -l rm x"
    assert main_argument({"limit": 3}) == "3"
    assert main_argument({"action": "replace", "cell": "ab12", "source": "# why\na = 1"}) == "replace a = 1"
    assert main_argument({"action": "insert", "after": "ab12"}) == "insert"
    assert main_argument({}) == ""
    assert main_argument({"path": "a\x1b[2J\u202e.py"}) == "a⟨U+202E⟩.py"


def test_the_input_is_shown_whole_and_an_edit_as_a_diff() -> None:
    (source,) = sources({"path": "a.py", "old_string": "x\ny", "new_string": "x\nz"})
    assert source.text == diff("x\ny", "x\nz")
    assert source.text.splitlines()[-2:] == ["-y", "+z"]
    code, rest = sources({"code": "1 + 1", "timeout": 5, "why": "sum"})
    assert (code.text, code.language) == ("1 + 1", "python")
    assert rest.text == "timeout: 5\nwhy: sum"
