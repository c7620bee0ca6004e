from __future__ import annotations

import json
import random
import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ipyagent.journal.events import Event, Retrying, Streamed, ToolCalled, TurnEnded
from ipyagent.journal.protocols import TurnStatus
from ipyagent.ui.segments import DeltaBuffer, item_html
from ipyagent.ui.theme import PANEL
from ipyagent.ui.transcript import fold

from .pages import HOSTILE, Page, unseen
from .test_static import hostile_turn
from .turns import STATUS, asked, returned, streamed, text, whole_turn


class Browser:
    """What the script in the page keeps, in the same order of the same operations."""

    def __init__(self) -> None:
        self.seq = 0
        self.pieces: dict[str, tuple[str, str]] = {}
        self.bar: dict[str, Any] = {}
        self.received = 0

    def take(self, message: dict[str, Any] | None) -> None:
        if message is None:
            return
        self.received += len(json.dumps(message))
        assert message["seq"] == self.seq + 1
        self.seq += 1
        for kind, *rest in message["ops"]:
            if kind == "put":
                piece, after, html, _age = rest
                if piece not in self.pieces:
                    order = list(self.pieces)
                    at = order.index(after) + 1 if after else 0
                    items = list(self.pieces.items())
                    items.insert(at, (piece, ("", "")))
                    self.pieces = dict(items)
                self.pieces[piece] = (html, "")
            elif kind == "tail":
                html, tail = self.pieces[rest[0]]
                self.pieces[rest[0]] = (html, tail + rest[1])
            elif kind == "del":
                del self.pieces[rest[0]]
            else:
                (self.bar,) = rest

    @property
    def html(self) -> str:
        return "".join(html for html, _tail in self.pieces.values())


def played(events: list[Event], every: int) -> tuple[DeltaBuffer, Browser]:
    segments, browser = DeltaBuffer(lambda: 200.0), Browser()
    for count, event in enumerate(events):
        segments.add(event)
        if count % every == 0:
            browser.take(segments.drain())
            snapshot = segments.snapshot()
            assert [(p, (html, tail)) for p, html, _age, tail in snapshot["pieces"]] == list(browser.pieces.items())
            assert snapshot["seq"] == browser.seq
    browser.take(segments.drain())
    return segments, browser


@pytest.mark.parametrize("every", [1, 3, 10, 1000])
def test_deltas_at_any_rate_end_in_the_same_page(every: int) -> None:
    _segments, browser = played(whole_turn(), every)
    assert browser.html == "".join(item_html(item, PANEL) for item in fold(whole_turn()))
    assert browser.bar["state"] == "ended"


WORDS = "# Title\n\nOne *paragraph*.\n\n- a\n- b\n\n```python\nx = 1\n```\n\nSee [docs].\n\n"


@pytest.mark.parametrize("every", [1, 4, 1000])
@pytest.mark.parametrize("ending", ["The end.", "[docs]: https://a.example/\n"])
def test_streamed_markdown_ends_as_the_whole_renders(every: int, ending: str) -> None:
    _segments, browser = played([*streamed(WORDS + ending), text(WORDS + ending)], every)
    assert browser.html == item_html(fold([text(WORDS + ending)])[0], PANEL)


def test_a_whole_that_differs_from_the_stream_replaces_all_of_it() -> None:
    _segments, browser = played([*streamed(WORDS), text("Something else.")], 1)
    assert browser.html == "<p>Something else.</p>\n"


def test_a_long_stream_is_sent_about_once() -> None:
    """50 KB in 500 ticks: sent in a small multiple of its size, rendered in seconds at most, and in no more than in
    proportion: the square of four times the text would be sixteen times as much."""

    def took(lines: int, times_sent: int) -> float:
        words = "".join(f"Paragraph {n} with **bold** words.\n\n" for n in range(2 * lines // 5))
        words += "```python\n" + "value = compute(1, 'two')  # three\n" * lines + "```\n"
        segments, browser = DeltaBuffer(time.time), Browser()
        began = time.thread_time()
        for at in range(0, len(words), 100):
            segments.add(Streamed(channel="text", text=words[at : at + 100]))
            browser.take(segments.drain())
        segments.add(text(words))
        browser.take(segments.drain())
        spent = time.thread_time() - began
        assert browser.received < times_sent * len(words)
        assert Page(browser.html).text.count("value = compute") == lines
        return spent

    quarter = min(took(250, 40), took(250, 40))
    assert took(1000, 25) < min(5, 8 * quarter)


def test_live_output_of_a_tool_is_appended_and_its_older_part_dropped() -> None:
    segments, browser = DeltaBuffer(time.time), Browser()
    segments.add(ToolCalled(call="a", name="python", input={"code": "loop()"}))
    sizes = []
    for n in range(3000):
        segments.add(Streamed(channel="tool", ref="a", text=f"row {n} \x1b[31m<b>\x1b[0m\n"))
        browser.take(segments.drain())
        sizes.append(sum(len(part) for part in browser.pieces["c:a"]))
    assert "row 2999" in "".join(browser.pieces["c:a"])
    assert max(sizes) < 40_000
    assert browser.received < 12 * 3000 * 15 + 200_000
    assert "\x1b" not in "".join(browser.pieces["c:a"])


def test_the_question_shows_the_code_in_full_and_goes_when_answered() -> None:
    code = "\n".join(f"step_{n}()" for n in range(3000))
    segments, browser = DeltaBuffer(time.time), Browser()
    segments.status(STATUS)
    segments.add(asked(code=code, pattern="python"))
    browser.take(segments.drain())
    page = Page(browser.html)
    assert "step_0()" in page.text
    assert all(f"step_{n}()\n" in page.text for n in (1, 1500, 2998))
    assert browser.html.count("data-act=") == 3
    assert browser.bar["state"] == "asking"
    segments.add(TurnEnded(status="stopped"))
    browser.take(segments.drain())
    assert "data-act=" not in browser.html
    assert "Not answered" in browser.html
    segments, browser = DeltaBuffer(time.time), Browser()
    segments.add(asked(pattern=""))
    browser.take(segments.drain())
    assert 'data-act="always"' not in browser.html


def test_the_card_has_the_danger_first_our_title_and_deny_before_a_short_always() -> None:
    script = "\n".join(f"row {n}" for n in range(80))
    question = asked(
        code=script, title="Run this command?", danger="it deletes files", said="Verified safe by ipyagent",
        pattern=f"shell(cat > a <<EOF\n{script}\nEOF)",
    )  # fmt: skip
    segments, browser = DeltaBuffer(time.time), Browser()
    segments.add(question)
    browser.take(segments.drain())
    text = Page(browser.html).text
    places = [text.index(part) for part in (
        "It deletes files", "Run this command?", "The model says: “Verified safe by ipyagent”", "row 79",
        "Allow once", "Deny", "Always for",
    )]  # fmt: skip
    assert places == sorted(places)
    assert "<b>Verified" not in browser.html
    assert len(text.split("Always for ", 1)[1].split("\n")[0]) <= 60


def test_nothing_hostile_reaches_the_page() -> None:
    for bad in HOSTILE:
        events = hostile_turn(bad)
        open_question = asked("open", code=bad, title=bad, tool=bad, pattern=bad, language=bad)
        running: list[Event] = [ToolCalled(call="r", name=bad, input={"command": bad}), *streamed(bad, "tool", "r")]
        _segments, browser = played([*streamed(bad), open_question, *running, *events[:-1]], 1)
        for html, tail in browser.pieces.values():
            assert Page(html).dangers == [], bad
            assert unseen(html + tail) == [], bad
        json.dumps(browser.bar).encode("utf-8")


def test_the_bar_tells_model_cost_meter_and_phase() -> None:
    segments, browser = DeltaBuffer(time.time), Browser()
    segments.status(STATUS)
    browser.take(segments.drain())
    assert (browser.bar["model"], browser.bar["cost"], browser.bar["phase"]) == ("some-model", "$0.0300", "writing")
    assert browser.bar["meter"]["fill"] == 0.42
    assert "This session: $0.50" in browser.bar["costs"]
    assert "80%" in browser.bar["costs"]
    assert segments.drain() is None


def test_a_tool_result_replaces_its_live_output() -> None:
    _segments, browser = played(
        [ToolCalled(call="a", name="python", input={}), *streamed("live\n", "tool", "a"), returned("a", "whole")], 1
    )
    assert "ia-live" not in browser.html
    assert "whole" in browser.html


def test_a_phase_with_a_moving_figure_is_one_phase() -> None:
    clock = [100.0]
    segments = DeltaBuffer(lambda: clock[0])
    for chars in (10, 1_200, 15_000):
        segments.status(TurnStatus(phase=f"writing a python call ({chars:,} characters)", model="m"))
        clock[0] += 2
    assert segments.snapshot()["bar"]["age"] == 6.0
    segments.status(TurnStatus(phase="running python", model="m"))
    assert segments.snapshot()["bar"]["age"] == 0.0


@given(st.randoms(use_true_random=False), st.integers(1, 5))
def test_events_in_any_order_keep_page_and_transcript_alike(rng: random.Random, every: int) -> None:
    """A crash, a resumed session or a bug elsewhere must not break what is shown."""
    extra = [*hostile_turn("x")[2:], Retrying(reason="Busy", seconds=1), text("cut", partial=True)]
    events = [event for event in [*whole_turn(), *extra] if rng.random() < 0.8]
    rng.shuffle(events)
    segments, browser = played(events, every)
    owners = [piece.split(".")[0] for piece in browser.pieces]
    assert list(dict.fromkeys(owners)) == list(segments.transcript.keys)
    assert Page(browser.html).dangers == []
