"""The output log: bounded, clean, complete at both ends, live text included."""

from __future__ import annotations

import sys
import time

from hypothesis import given, settings
from hypothesis import strategies as st

from ipyagent.kernel.output import OutputLog, cap, clean


def test_short_output_is_kept_whole() -> None:
    log = OutputLog()
    for piece in ("a", "b\n", "", "c"):
        log.write(piece)
    assert log.text() == "ab\nc"
    assert log.take() == "ab\nc"
    assert log.take(final=True) == ""


def test_endless_output_stays_within_memory() -> None:
    log = OutputLog(max_chars=1_000, live_chars=10_000)
    began = time.monotonic()
    for i in range(300_000):
        log.write(f"{i}")
        log.write("\n")
    assert time.monotonic() - began < 10
    held = sum(map(sys.getsizeof, [*log._head, *log._tail, *log._pending]))
    assert held < 1_000_000
    assert log.text().endswith("299999\n")
    assert "live output ends here" in log.take()
    log.write("more")
    assert log.take(final=True) == ""


def test_one_endless_line_stays_within_memory() -> None:
    log = OutputLog(max_chars=1_000)
    for _ in range(200_000):
        log.write("xy")
    assert len(log.text()) < 1_100


def test_a_progress_bar_does_not_use_up_the_live_text() -> None:
    log = OutputLog(live_chars=1_000)
    for i in range(5_000):
        log.write(f"\r{i:5d}/5000 " + "#" * 50)
        log.take()
    log.write("\ndone\n")
    assert "done" in log.take(final=True)
    assert log.text() == f"{4999:5d}/5000 " + "#" * 50 + "\ndone\n"


def test_live_pieces_say_when_they_replace_the_line() -> None:
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


@given(st.text(), st.integers(10, 50))
def test_a_cap_keeps_head_and_tail(text: str, limit: int) -> None:
    short = cap(text, limit)
    assert short == text if len(text) <= limit else short.startswith(text[: limit // 2])
    assert short.endswith(text[-5:])
