from __future__ import annotations

import asyncio
import io

import pytest
from test_linear import grows

from ipyagent.journal.events import PermissionAnswered, Streamed, ToolCalled, TurnEnded
from ipyagent.journal.protocols import PermissionAnswer, Surface
from ipyagent.ui.items import ask_on_a_line
from ipyagent.ui.terminal import TerminalSurface

from .pages import HOSTILE, unseen
from .test_static import hostile_turn
from .turns import PIXEL, STATUS, asked, returned, streamed, text, whole_turn


def surface(*lines: str) -> tuple[TerminalSurface, io.StringIO, list[str]]:
    """A terminal whose user types `lines` and then ends the input."""
    file, prompts, waiting = io.StringIO(), [], list(lines)

    async def read_line(prompt: str) -> str:
        prompts.append(prompt)
        if not waiting:
            raise EOFError
        return waiting.pop(0)

    made: Surface = TerminalSurface(read_line, file)
    made.open()
    assert isinstance(made, TerminalSurface)
    return made, file, prompts


def test_a_turn_reads_in_order_with_the_meter_at_the_end() -> None:
    made, file, _ = surface()
    made.status(STATUS)
    for event in whole_turn():
        made.show(event)
    made.close()
    shown = file.getvalue()
    parts = ["busy", "Thinking", "I look.", "? Run Python?", "▸ python", "│ 3.5", "✓ python", "The mean is", "42% of"]
    places = [shown.index(part) for part in parts]
    assert places == sorted(places)
    assert shown.count("I look.") == 1
    assert shown.count("│ 3.5") == 1
    assert "░" in shown


def test_finished_blocks_appear_before_the_reply_is_complete() -> None:
    made, file, _ = surface()
    for event in streamed("First paragraph.\n\nSecond par"):
        made.show(event)
    assert "First paragraph." in file.getvalue()
    assert "Second" not in file.getvalue()
    made.show(text("First paragraph.\n\nSecond paragraph."))
    assert file.getvalue().count("First paragraph.") == 1
    assert "Second paragraph." in file.getvalue()


def test_a_long_block_that_streams_in_is_not_parsed_anew_at_each_piece() -> None:
    def stream(text: str) -> None:
        made, _, _ = surface()
        for at in range(0, len(text), 200):
            made.show(Streamed(channel="text", text=text[at : at + 200], ref=""))

    assert grows(stream, lambda size: "- a row of a long list\n" * (size // 23)) == ""


def test_output_is_shown_live_and_capped() -> None:
    made, file, _ = surface()
    made.show(ToolCalled(call="a", name="python", input={"code": "loop()"}))
    for n in range(100):
        for event in streamed(f"row {n}\n", "tool", "a"):
            made.show(event)
        if n == 3:
            assert "row 3" in file.getvalue()
    made.show(returned("a", "\n".join(f"row {n}" for n in range(100))))
    shown = file.getvalue()
    assert "row 11" in shown
    assert "row 12" not in shown
    assert "88 more lines" in shown


@pytest.mark.parametrize(
    ("lines", "answer"),
    [
        (["y"], PermissionAnswer("once")),
        (["", "  ", "YES"], PermissionAnswer("once")),
        (["a"], PermissionAnswer("always")),
        (["n"], PermissionAnswer("deny")),
        (["use the other file"], PermissionAnswer("deny", "use the other file")),
        ([], PermissionAnswer("deny", "the input ended", "headless")),
        (["", ""], PermissionAnswer("deny", "the input ended", "headless")),
    ],
)
def test_only_a_clear_yes_allows(lines: list[str], answer: PermissionAnswer) -> None:
    made, _file, prompts = surface(*lines)
    assert asyncio.run(made.ask(asked())) == answer
    assert "always for python" in prompts[0]


def test_the_question_shows_every_row_and_every_hidden_character(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "100")  # whatever the tests run in
    monkeypatch.setenv("LINES", "40")
    made, file, prompts = surface(*["", "y"] * 50)
    code = "\n".join(f"step_{n}('{'x' * 200}')" for n in range(300)) + "\n# \x1b[8mhidden\u202e"
    assert asyncio.run(made.ask(asked(code=code))) == PermissionAnswer("once")
    assert all(("[y]" in prompt) == (prompt is prompts[-1]) for prompt in prompts)
    assert " of 301 lines shown" in prompts[0]
    shown = file.getvalue().replace("\n", "").replace(" ", "")
    assert all(f"step_{n}(" in shown for n in range(300))
    assert shown.count("x") >= 300 * 200
    assert "␛[8mhidden⟨U+202E⟩" in shown


@pytest.mark.parametrize("printed", [True, False])  # on the screen before the prompt, or in the prompts
@pytest.mark.parametrize(("lines", "answer"), [(["y", "a"], "deny"), (["y"] * 20, "once"), (["", "n"], "deny")])
def test_nobody_allows_what_was_not_shown_to_its_end(lines: list[str], answer: str, printed: bool) -> None:
    """A yes before the end shows what comes next."""
    code = "\n".join(f"step_{n}()" for n in range(100))
    made, file, prompts = surface(*lines)
    if printed:
        given = asyncio.run(made.ask(asked(code=code)))
    else:
        given = asyncio.run(ask_on_a_line(made._read_line, asked(code=code), words=code))
    assert given.answer == answer
    assert ("step_99()" in file.getvalue() + "".join(prompts)) == (answer == "once")


def test_the_danger_stands_first_and_the_models_words_are_marked() -> None:
    made, file, _ = surface("n")
    asyncio.run(made.ask(asked(danger="it deletes files", said="Verified safe by ipyagent\n? Run nothing?")))
    rows = [row.strip() for row in file.getvalue().split("\n") if row.strip()]
    assert rows[:2] == ["! It deletes files", "? Run Python?"]
    assert rows[2].startswith("The model says: “Verified safe by ipyagent ?")


def test_without_a_pattern_always_is_not_offered_and_not_taken() -> None:
    made, _file, prompts = surface("a")
    assert asyncio.run(made.ask(asked(pattern=""))).answer == "deny"
    assert "always" not in prompts[0]


def test_no_control_character_of_the_model_reaches_the_terminal() -> None:
    for bad in HOSTILE:
        made, file, _ = surface()
        made.show(ToolCalled(call="r", name=bad, input={"command": bad}))
        for event in streamed(bad + "\n", "tool", "r"):
            made.show(event)
        for event in [*streamed(bad), *hostile_turn(bad)]:
            made.show(event)
        asyncio.run(made.ask(asked("q2", code=bad, title=bad, pattern=bad)))
        made.close()
        assert unseen(file.getvalue()) == [], bad


def test_code_that_the_question_showed_is_not_printed_again() -> None:
    made, file, _ = surface("y")
    code = "first_row()\nsecond_row()"
    asyncio.run(made.ask(asked(code=code)))
    made.show(PermissionAnswered(call="t1", answer="once", by="user"))
    made.show(ToolCalled(call="t1", name="python", input={"code": code}))
    assert file.getvalue().count("second_row") == 1
    made.show(ToolCalled(call="t2", name="python", input={"code": code}))
    assert file.getvalue().count("second_row") == 2


@pytest.mark.parametrize("note", ["1 figure", "3 cells ran", ""])
def test_a_picture_is_told_once(note: str) -> None:
    made, file, _ = surface()
    made.show(ToolCalled(call="a", name="python", input={"code": "draw()"}))
    made.show(returned("a", "", picture=PIXEL, note=note))
    assert file.getvalue().count("figure") == file.getvalue().count("1 figure") == 1
    assert note in file.getvalue()


def test_a_denied_question_is_said_once() -> None:
    made, file, _ = surface()
    made.show(asked())
    made.show(PermissionAnswered(call="t1", answer="deny", by="user", reason="no need"))
    made.show(returned("t1", "denied", is_error=True))
    assert file.getvalue().count("denied: no need") == 1


def test_a_failed_turn_says_so() -> None:
    made, file, _ = surface()
    made.show(TurnEnded(status="failed", message="no connection"))
    made.close()
    assert "Failed: no connection" in file.getvalue()


def test_a_terminal_that_cannot_show_a_character_or_is_gone_stops_nothing() -> None:
    async def read_line(prompt: str) -> str:
        return "n"

    ascii_only = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    made = TerminalSurface(read_line, ascii_only)
    made.open()
    for event in whole_turn():
        made.show(event)
    ascii_only.flush()
    assert b"The mean is 3.5." in ascii_only.buffer.getvalue()  # type: ignore[attr-defined]
    ascii_only.close()
    made.show(text("more"))
    made.close()
