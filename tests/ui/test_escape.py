from __future__ import annotations

import unicodedata

import pytest

from ipyagent.escape import escape, exact, line, plain
from ipyagent.journal.events import PermissionAsked
from ipyagent.kernel.output import output
from ipyagent.ui.items import heading


def test_plain_leaves_only_what_can_be_read() -> None:
    for text, shown in [
        ("\x1b[31mred\x1b[0m", "red"),
        ("\x1b]0;title\x07after", "after"),
        ("\x1b]8;;http://x\x1b\\link\x1b]8;;\x1b\\", "link"),
        ("\x1b]52;c;Y29weQ==\x07after", "after"),
        ("\x1bPq#0\x1b\\after", "after"),
        ("\x9b31mred", "red"),
        ("a\x00b\x07c\x7f", "abc"),
        ("a\ttab\nrow", "a\ttab\nrow"),
        ("\ud800", "\ufffd"),
        ("abc\u202edef", "abc⟨U+202E⟩def"),
        ("\u2066x\u2069", "⟨U+2066⟩x⟨U+2069⟩"),
        ("a\r\nb\rc", "a\nb\nc"),
    ]:
        assert plain(text) == shown


def test_an_unfinished_escape_hides_nothing() -> None:
    assert "rm -rf" in plain("\x1b]0;rm -rf /")
    assert "rm -rf" in plain("\x1bPrm -rf /")


def test_a_carriage_return_writes_over_its_line() -> None:
    assert output("10%\r50%\r100%\ndone") == "100%\ndone"
    assert output("row\r\n") == "row\n"


def test_exact_loses_no_character() -> None:
    code = "a\x1b[8m\u200b\u202e\x00\u00a0\ufeff\U000e0041z"
    shown = exact(code)
    for mark in ("␛[8m", "⟨U+200B⟩", "⟨U+202E⟩", "␀", "⟨U+FEFF⟩", "⟨U+E0041⟩"):
        assert mark in shown
    assert exact("def f():\n\treturn 'é 漢字 ✓'\n") == "def f():\n\treturn 'é 漢字 ✓'\n"


def test_the_head_of_a_question_spells_out_what_cannot_be_seen_in_a_files_name() -> None:
    asked = PermissionAsked(
        call="c",
        tool="write_file",
        title="Write gpj\u202e.\u200bsh\xa0a\nb?",
        text="",
        danger="replaces a\u2800.sh",
        said="fine\u200b",
    )
    danger, title, said = heading(asked)
    assert title == "Write gpj⟨U+202E⟩.⟨U+200B⟩sh⟨U+00A0⟩ a ⏎ b?"
    assert danger == "Replaces a⟨U+2800⟩.sh"
    assert said == "The model says: “fine⟨U+200B⟩”"


def test_exact_spells_out_every_character_without_a_shape() -> None:
    """All controls, format characters and unusual blanks of Unicode, and what has no shape although it is a letter,
    a sign or a mark."""
    kinds = ("Cc", "Cf", "Cs", "Zl", "Zp", "Zs")
    unseen = {chr(code) for code in range(0x110000) if unicodedata.category(chr(code)) in kinds} - set(" \n\t")
    unseen |= set("\u034f\u115f\u1160\u17b4\u17b5\u180b\u180f\u2065\u2800\u3164\ufe0f\uffa0\ufffc\U0001d159\U000e0100")
    assert [f"U+{ord(each):04X}" for each in sorted(unseen) if each in exact(f"a{each}b")] == []
    assert exact("a\u061c\u180e\u2800\xa0\U0001d173") == "a⟨U+061C⟩⟨U+180E⟩⟨U+2800⟩⟨U+00A0⟩ ⟨U+1D173⟩"
    assert exact("naïve İstanbul 漢字 한글 हिन्दी 👍🏽\tx") == "naïve İstanbul 漢字 한글 हिन्दी 👍🏽\tx"


@pytest.mark.parametrize(
    ("padding", "told"),
    [
        (" " * 600, "⟨600 spaces⟩"),
        ("\t" * 200, "⟨200 tabs⟩"),
        (" \t" * 150, "⟨150 spaces and 150 tabs⟩"),
        ("\n" * 401, "⟨400 empty lines⟩"),
        ("\n  \t" * 400 + "\n", "⟨400 empty lines⟩"),
        ("\n+" * 400 + "\n", "⟨the same line 399 times more⟩"),
        ("\n#" * 400 + "\n", "⟨the same line 399 times more⟩"),
    ],
)
def test_exact_counts_what_would_push_the_rest_out_of_sight(padding: str, told: str) -> None:
    shown = exact(f"looks_good(){padding}rm('-rf')")
    assert told in shown
    assert shown.startswith("looks_good()")
    assert shown.endswith("rm('-rf')")
    assert len(shown) < 80
    assert shown.count("\n") < 4


def test_exact_leaves_code_as_people_write_it() -> None:
    code = "def f():\n    if x:\n" + " " * 40 + "return 1" + " " * 30 + "# why\n\n\n\n@a\n\t\t\tdef g(): ...\n"
    assert exact(code) == code


def test_escape_is_safe_in_text_and_in_attributes() -> None:
    assert escape("<img onerror=\"x\" a='b'>\x1b[1m&") == "&lt;img onerror=&quot;x&quot; a=&#x27;b&#x27;&gt;&amp;"


def test_a_line_has_no_break_and_its_width() -> None:
    assert line(" a\n b\tc ") == "a b c"
    assert line("x" * 50, 10) == "x" * 9 + "…"
