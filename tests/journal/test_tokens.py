"""Estimates hold for every block, calibration stays within bounds and finds the truth."""

from __future__ import annotations

import base64
import importlib.util
import json
import statistics
import struct
import time
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ipyagent.journal.events import Usage
from ipyagent.journal.tokens import (
    UNKNOWN_IMAGE,
    Calibration,
    Count,
    estimate_block,
    estimate_blocks,
    estimate_text,
    image_size,
    learn_from,
    plausible,
)
from tests.bench.bench_tokens import errors_after, errors_before, measure

quick = settings(max_examples=60, deadline=None)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)

SAMPLES = {
    "English": "The survey was repeated in the autumn, after the first results had been published. " * 20,
    "Chinese": "第一批结果公布之后，这项调查在秋天又重复了一次，参加的人数比以前多。" * 20,
    "code": "def mean(values: list[float]) -> float:\n    return sum(values) / max(1, len(values))\n\n" * 20,
    "JSON": json.dumps([{"id": i, "name": f"item {i}", "price": i * 1.25, "tags": ["a", "b"]} for i in range(60)]),
    "table": "\n".join(f"{i:>4}  {i * 1.6180339:>12.6f}  {i % 7:>3}  {'Adelie' if i % 2 else 'Gentoo':<10}"
                       for i in range(80)),
}


@quick
@given(st.lists(st.tuples(st.integers(-10, 10**9), st.integers(-10, 10**9)), max_size=60))
def test_the_factor_stays_within_its_bounds_whatever_is_reported(reports: list[tuple[int, int]]) -> None:
    calibration = Calibration()
    for raw, actual in reports:
        calibration = calibration.learn(raw=raw, actual=actual)
        assert 0.5 <= calibration.factor <= 2.5


@quick
@given(st.floats(0.55, 2.4), st.floats(0.5, 2.5), st.integers(100, 50_000))
def test_calibration_finds_a_steady_ratio_from_any_start(ratio: float, start: float, raw: int) -> None:
    calibration = Calibration().learn(raw=10_000, actual=round(10_000 * start))
    for _ in range(14):
        calibration = calibration.learn(raw=raw, actual=round(raw * ratio))
    if raw >= 2_000:
        assert calibration.factor == pytest.approx(ratio, rel=0.03)


@quick
@given(st.floats(0.6, 2.2), st.lists(st.integers(200, 5_000), min_size=8, max_size=20))
def test_predicted_prompts_come_within_two_percent(ratio: float, added: list[int]) -> None:
    """A session whose real tokens are `ratio` times the estimate: after three reports the marks can be trusted."""
    calibration, base = Calibration(), 0
    for step, raw in enumerate(added):
        predicted = Count(base, raw, calibration.factor).tokens
        real = base + round(raw * ratio)
        if step >= 3:
            assert predicted == pytest.approx(real, rel=0.02)
        usage = Usage(input=real, output=50)
        calibration = learn_from(calibration, predicted=predicted, raw=raw, usage=usage)
        base = usage.total


@quick
@given(st.integers(0, 10**7), st.integers(0, 10**6), st.integers(0, 10**7))
def test_an_impossible_report_teaches_nothing(predicted: int, raw: int, told: int) -> None:
    before = Calibration(1_500.0, 1_000.0)
    after = learn_from(before, predicted=predicted, raw=raw, usage=Usage(input=told))
    if not plausible(predicted, Usage(input=told)):
        assert after == before
    assert 0.5 <= after.factor <= 2.5


def test_plausible_is_a_factor_of_four() -> None:
    assert plausible(10_000, Usage(input=2_500))
    assert plausible(10_000, Usage(input=40_000))
    assert not plausible(100_000, Usage(input=7))
    assert not plausible(1_000, Usage(input=1_000_000))


@quick
@given(st.text(max_size=400), st.text(max_size=400))
def test_a_text_costs_at_least_one_token_and_more_text_never_less(one: str, two: str) -> None:
    assert estimate_text("") == 0
    assert estimate_text(one) >= min(1, len(one))
    assert estimate_text(one + "\n" + two) >= estimate_text(one) - 1


@quick
@given(st.dictionaries(st.sampled_from(["type", "text", "source", "content", "input", "thinking", "x"]), json_values),
       st.sampled_from(["text", "image", "document", "tool_result", "tool_use", "thinking", "new", None]))
def test_every_block_has_an_estimate(block: dict[str, Any], kind: str | None) -> None:
    made = block if kind is None else {**block, "type": kind}
    if not isinstance(made.get("content"), list):
        assert estimate_block(made) > 0


def test_a_result_counts_what_is_in_it() -> None:
    inner = [{"type": "text", "text": SAMPLES["code"]}]
    result = {"type": "tool_result", "tool_use_id": "a", "content": inner}
    assert estimate_block(result) == 12 + estimate_blocks(inner)
    assert estimate_block({**result, "content": SAMPLES["code"]}) == 12 + estimate_text(SAMPLES["code"])


@pytest.mark.skipif(importlib.util.find_spec("ctok") is None, reason="ctok is not installed")
@pytest.mark.parametrize("kind", SAMPLES)
def test_estimates_are_near_the_reference_vocabulary(kind: str) -> None:
    import ctok

    reference = ctok.token_count(SAMPLES[kind], "4.7")
    assert estimate_text(SAMPLES[kind]) == pytest.approx(reference, rel=0.25)


def test_estimates_are_near_what_the_practice_server_counts() -> None:
    from ipyagent.practice.server.tokens import count_text

    errors = {kind: estimate_text(text) / count_text(text) - 1 for kind, text in SAMPLES.items()}
    # it counts less than the reference does (English 14 %, tables 33 %); calibration learns that
    assert statistics.median(abs(error) for error in errors.values()) < 0.3, errors


# ------------------------------------------------------------------ images


def chunk(width: int, height: int) -> bytes:
    return struct.pack(">I4sII", 13, b"IHDR", width, height)


def jpeg(*segments: bytes, size: tuple[int, int] = (640, 480)) -> bytes:
    frame = b"\xff\xc0\x00\x11\x08" + struct.pack(">HH", size[1], size[0]) + b"\x03" + b"\0" * 9
    return b"\xff\xd8" + b"".join(segments) + frame


APP = b"\xff\xe1\x00\x10" + b"Exif" + b"\0" * 10
PICTURES = {
    "png": (b"\x89PNG\r\n\x1a\n" + chunk(30, 20), (30, 20)),
    "gif": (b"GIF89a" + struct.pack("<HH", 300, 2), (300, 2)),
    "jpeg": (jpeg(), (640, 480)),
    "jpeg with segments": (jpeg(APP, APP), (640, 480)),
    "jpeg with fill bytes": (jpeg(b"\xff\xff" + APP), (640, 480)),
    "webp": (b"RIFF\0\0\0\0WEBPVP8 \0\0\0\0" + b"\0\0\0\x9d\x01\x2a" + struct.pack("<HH", 77, 55), (77, 55)),
    "webp lossless": (b"RIFF\0\0\0\0WEBPVP8L\0\0\0\0\x2f" + ((55 - 1) << 14 | 76).to_bytes(4, "little") + b"\0" * 9,
                      (77, 55)),
    "webp extended": (b"RIFF\0\0\0\0WEBPVP8X\0\0\0\0\0\0\0\0" + (76).to_bytes(3, "little") + (54).to_bytes(3, "little"),
                      (77, 55)),
}


@pytest.mark.parametrize(("raw", "size"), PICTURES.values(), ids=PICTURES.keys())
def test_image_sizes_are_read_from_the_header(raw: bytes, size: tuple[int, int]) -> None:
    assert image_size(raw) == size
    for cut in range(len(raw)):
        assert image_size(raw[:cut]) in (None, size)


@quick
@given(st.binary(max_size=80),
       st.sampled_from([b"", b"\xff\xd8", b"\x89PNG\r\n\x1a\n", b"GIF89a", b"RIFF0000WEBPVP8X"]))
def test_no_bytes_break_the_image_reader(tail: bytes, head: bytes) -> None:
    size = image_size(head + tail)
    assert size is None or (size[0] >= 0 and size[1] >= 0)


def test_an_image_costs_its_pixels_and_an_unreadable_one_the_most() -> None:
    def image(data: Any) -> dict[str, Any]:
        return {"type": "image", "source": {"type": "base64", "data": data}}

    png = base64.b64encode(b"\x89PNG\r\n\x1a\n" + chunk(1_500, 1_000)).decode()
    assert estimate_block(image(png)) == 4 + 1_500 * 1_000 // 750
    for data in ("", "!!", "ü", None, 5):
        assert estimate_block(image(data)) == 4 + UNKNOWN_IMAGE


@pytest.mark.parametrize("unit", ["A", "ACGT", "a", "Aa", "1", "-", " ", "\n", "_", "A-", "A ", "é", "É", "好", "=-"])
def test_the_time_of_an_estimate_grows_with_the_length_alone(unit: str) -> None:
    """A sequence of 100,000 letters once held the whole kernel for minutes."""

    def seconds(length: int) -> float:
        text = unit * (length // len(unit))
        began = time.process_time()
        estimate_text(text)
        return time.process_time() - began

    seconds(1_000)
    assert seconds(64_000) < 0.1 + 8 * min(seconds(16_000) for _ in range(2))


# ---------------------------------------------------------------------- against the reference vocabulary


COUNTED = measure()
needs_reference = pytest.mark.skipif(isinstance(COUNTED, str), reason=str(COUNTED)[:200])


@needs_reference
def test_the_mean_error_of_every_kind_is_at_most_eight_percent_before_calibration() -> None:
    assert not isinstance(COUNTED, str)
    found = {kind: statistics.mean(map(abs, errors)) for kind, errors in errors_before(COUNTED).items()}
    assert set(found) == {"English", "Chinese", "Japanese", "code", "JSON", "base64", "DataFrame"}
    assert max(found.values()) <= 0.08, found


@needs_reference
def test_after_five_turns_the_next_prompt_is_known_within_five_percent() -> None:
    assert not isinstance(COUNTED, str)
    for kind, pieces in COUNTED.items():
        whole, _ = errors_after([*pieces, *pieces])
        assert statistics.median(whole) <= 0.05, kind
        assert statistics.quantiles(whole, n=20)[-1] <= 0.15, kind
