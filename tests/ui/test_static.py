from __future__ import annotations

import pytest

from ipyagent.journal.events import (
    AssistantMessage,
    Event,
    FileChanged,
    PermissionAnswered,
    Retrying,
    SystemReminder,
    ToolCalled,
    TurnEnded,
)
from ipyagent.ui.static import BUNDLE_CHARS, static_bundle

from .pages import HOSTILE, Page, unseen
from .turns import PIXEL, STATUS, asked, returned, text, whole_turn


def test_a_turn_has_three_forms_with_the_same_content() -> None:
    bundle = static_bundle(whole_turn(), STATUS)
    assert list(bundle) == ["text/html", "text/markdown", "text/plain"]
    for form in (Page(bundle["text/html"]).text, bundle["text/markdown"], bundle["text/plain"]):
        for part in ("look", "mean is 3.5", "python", "3.5", "some-model", "42% of 200k", "$0.0300", "3.4 s"):
            assert part.replace("$", "") in form.replace("\\", "").replace("$", "")


def test_html_reads_without_any_style() -> None:
    """GitHub takes classes and styles away: the tags alone carry the meaning, figures included."""
    html = static_bundle(whole_turn(), STATUS)["text/html"]
    page = Page(html)
    assert page.dangers == []
    assert html.count("<details") == html.count("</details>") == 1
    assert f"data:image/png;base64,{PIXEL}" in html
    figure = html.index("<figure")
    assert html.rfind("</details>", 0, figure) > html.rfind("<details", 0, figure)  # never folded away
    assert "<button" not in html


@pytest.mark.parametrize("status", ["stopped", "limit", "refused", "failed"])
def test_a_turn_that_did_not_finish_says_so_in_every_form(status: str) -> None:
    ended = TurnEnded(status=status, message="because of X")  # type: ignore[arg-type]
    for form in static_bundle([text("some words"), ended], None).values():
        assert "because of X" in form


def hostile_turn(bad: str) -> list[Event]:
    return [
        Retrying(reason=bad, seconds=1),
        SystemReminder(text=bad, why=bad),
        AssistantMessage(
            blocks=(
                {"type": "thinking", "thinking": bad},
                {"type": "text", "text": bad},
                {"type": "tool_use", "id": bad, "name": bad, "input": {bad: bad}},
            ),
            model=bad,
        ),
        ToolCalled(call=bad, name=bad, input={"code": bad, "path": bad, bad: bad}),
        FileChanged(call=bad, path=bad, digest="d"),
        FileChanged(call=bad, path=f"{bad}2"),
        returned(bad, bad, name=bad, note=bad, is_error=True),
        asked("q", code=bad, title=bad, tool=bad, pattern=bad, language=bad, digest=bad),
        PermissionAnswered(call="q", answer="deny", by="user", reason=bad),
        TurnEnded(status="failed", message=bad),
    ]


def test_nothing_hostile_survives_in_any_place() -> None:
    for bad in HOSTILE:
        bundle = static_bundle(hostile_turn(bad), None)
        assert Page(bundle["text/html"]).dangers == [], bad
        for form in bundle.values():
            assert unseen(form) == [], bad
            form.encode("utf-8")


def test_size_is_bounded_and_what_is_missing_is_said() -> None:
    long = returned("a", "x" * 500_000)
    html = static_bundle([long], None)["text/html"]
    assert len(html) < 30_000
    assert "480,000 characters not shown" in html
    many = [returned(f"c{n}", "y" * 19_000) for n in range(60)]
    for form in static_bundle(many, None).values():
        assert len(form) < BUNDLE_CHARS * 1.05
    pictures = [returned(f"c{n}", "figure", picture="A" * 400_000) for n in range(5)]
    html = static_bundle(pictures, None)["text/html"]
    assert len(html) < BUNDLE_CHARS
    assert "1 figure left out" in html
    words = static_bundle([text("word " * 250_000)], None)["text/html"]
    assert len(words) < BUNDLE_CHARS * 1.05
    assert "left out" in words


def test_an_empty_turn_is_an_empty_bundle_of_the_same_shape() -> None:
    assert set(static_bundle([], None)) == {"text/html", "text/markdown", "text/plain"}


def test_dollar_signs_are_no_formula() -> None:
    html = static_bundle([text("$5 and $6")], None)["text/html"]
    assert 'class="ipyagent ia-static tex2jax_ignore mathjax_ignore"' in html


def test_an_open_question_is_never_folded_or_cut() -> None:
    """Where there are no buttons the output is all that the user sees before the line of input."""
    code = "\n".join(f"step_{n}('{'x' * 60}')" for n in range(20_000)) + "\nlast()"
    shown = static_bundle([*whole_turn()[:-1], asked("q", code=code, danger="it deletes files", said="safe")], None)
    html = shown["text/html"].split("It deletes files")[1]
    assert html.index("Run Python?") < html.index("The model says: “safe”") < html.index("step_0(")
    assert "last()" in html
    assert "20,001 lines" in html
    assert "<details" not in html
    assert "max-height" not in html
    assert "pre-wrap" in html
    assert "last()" in shown["text/plain"]
