"""The output log: bounded, clean, complete at both ends, live text included."""

from __future__ import annotations

import sys
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ipyagent.kernel.output import OutputLog, cap, clean, settled


def test_short_output_is_kept_whole() -> None:
    log = OutputLog()
    for piece in ("a", "b\n", "", "c"):
        log.write(piece)
    assert log.text() == "ab\nc"
    assert log.take() == "ab\nc"
    assert log.take(final=True) == ""


def test_endless_output_and_one_endless_line_stay_within_memory() -> None:
    log = OutputLog(max_chars=1_000, live_chars=10_000)
    began = time.thread_time()
    for i in range(60_000):
        log.write(f"{i}")
        log.write("\n")
    assert time.thread_time() - began < 10
    held = sum(map(sys.getsizeof, [*log._head, *log._tail, *log._pending]))
    assert held < 1_000_000
    assert log.text().endswith("59999\n")
    assert "live output ends here" in log.take()
    log.write("more")
    assert log.take(final=True) == ""
    log = OutputLog(max_chars=1_000)
    for _ in range(40_000):
        log.write("xy")
    assert len(log.text()) < 1_100


def test_live_pieces_say_when_they_replace_the_line_and_a_progress_bar_does_not_use_them_up() -> None:
    log = OutputLog()
    log.write("10%")
    assert log.take() == "10%"
    log.write("\r20%\r30%")
    assert log.take() == "\r30%"
    log.write("\r40%\nnext\r")
    assert log.take() == "\r40%\nnext"
    log.write("\n")
    assert log.take(final=True) == "\n"
    assert log.text() == "40%\nnext\n"
    log = OutputLog(live_chars=1_000)
    for i in range(5_000):
        log.write(f"\r{i:5d}/5000 " + "#" * 50)
        log.take()
    log.write("\ndone\n")
    assert "done" in log.take(final=True)
    assert log.text() == f"{4999:5d}/5000 " + "#" * 50 + "\ndone\n"


def test_an_escape_cut_in_two_is_still_removed() -> None:
    log = OutputLog()
    for piece in ("a\x1b", "[3", "1mred\x1b]0;ti", "tle\x07b\x1b[0", "m\n"):
        log.write(piece)
    assert log.text() == "aredb\n"


@settings(deadline=None)
@given(st.text(alphabet=st.one_of(st.characters(), st.sampled_from("\x1b[]\r\n\x00\ud800m0;\x07"))), st.data())
def test_text_is_clean_however_it_is_cut(text: str, data: st.DataObject) -> None:
    log = OutputLog(max_chars=100_000)
    at = data.draw(st.integers(0, len(text)))
    log.write(text[:at])
    log.write(text[at:])
    for got in (log.text(), clean(text)):
        got.encode()
        assert "\x1b" not in got
        assert "\x00" not in got
        assert "\r" not in got
    log.take(final=True).encode()


UP, ERASE = "\x1b[A", "\x1b[2K"
BARS = {
    "nested": (
        "\router 0%" + "".join(f"\n\rinner {n}%{UP}\router {n}%" for n in (10, 55, 100)),
        "outer 100%\ninner 100%",
    ),
    "an inner bar that goes": (f"\router 1/1\n\rinner 4/4{UP}\n\r         \r{UP}\n", "outer 1/1\n"),
    "three that are drawn anew": ("a1\nb1\nc1" + f"\r{ERASE}{UP}{ERASE}{UP}{ERASE}" + "a2\nb2\nc2", "a2\nb2\nc2"),
    "backspaces": ("".join(f"{n:3d}%" + "\b" * 4 for n in range(0, 101, 10)) + "\n", "100%\n"),
    "backspaces and a return": ("1/5 [=....]" + "\b" * 11 + "\r5/5 [=====]\ndone", "5/5 [=====]\ndone"),
    "the rest of the line is erased": ("working hard\x1b[7D\x1b[K done", "worki done"),
    "a column": ("abc\x1b[1GX\x1b[4Gd", "Xbcd"),
    "all below is erased": (f"a\nb\nc{UP}{UP}\r\x1b[Jx", "x"),
}


MOVES = ("A", "2A", "B", "K", "2K", "J", "3D", "5C", "G", "E", "F")


@pytest.mark.parametrize("bar", BARS)
def test_progress_bars_stand_as_a_terminal_leaves_them(bar: str) -> None:
    printed, stands = BARS[bar]
    log, live = OutputLog(), ""
    for char in printed:
        log.write(char)
        live += log.take()
    live += log.take(final=True)
    assert log.text() == clean(printed) == settled(live) == stands


@settings(deadline=None)
@given(
    st.lists(
        st.one_of(
            st.sampled_from(["\n", "\r", "\b", *(f"\x1b[{move}" for move in MOVES)]),
            st.text("ab ", max_size=5),
            st.just("row\n" * 70),
        ),
        max_size=40,
    ),
    st.data(),
)
def test_what_was_shown_live_ends_as_what_is_kept(parts: list[str], data: st.DataObject) -> None:
    log, live = OutputLog(), []
    for part in parts:
        log.write(part)
        if data.draw(st.booleans()):
            live.append(log.take())
    live.append(log.take(final=True))
    shown, kept = settled("".join(live)).split("\n"), log.text().split("\n")
    assert [row.rstrip() for row in shown] == [row.rstrip() for row in kept]


def test_rewriting_costs_no_more_than_its_text() -> None:
    def seconds(count: int) -> float:
        text = "x" * 7_000 + "y\b\x1b[A" * count
        began = time.perf_counter()
        settled(text)
        return time.perf_counter() - began

    assert min(seconds(40_000) for _ in range(3)) < 6 * min(seconds(10_000) for _ in range(3))


@given(st.text(), st.integers(10, 50))
def test_a_cap_keeps_head_and_tail(text: str, limit: int) -> None:
    short = cap(text, limit)
    assert short == text if len(text) <= limit else short.startswith(text[: limit // 2])
    assert short.endswith(text[-5:])
