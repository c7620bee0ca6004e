"""The practice tokenizer: deterministic, fast, and not a rule of bytes."""

from __future__ import annotations

import time

from hypothesis import given
from hypothesis import strategies as st

from ipyagent.practice.server.tokens import count_image, count_json, count_text, cut_text


def test_text_is_cut_as_public_tokenizers_cut_it() -> None:
    for text, tokens in [
        ("", 0),
        ("hello", 1),
        ("hello world", 2),
        ("internationalization", 4),
        ("12345", 2),
        ("a  b", 3),
        ("\n\n\n\n", 1),
        ("机器学习", 4),
        ("f(x) == y", 6),
        ("don't", 3),
        ("привет", 3),
        ("🙂", 1),
    ]:
        assert count_text(text) == tokens


@given(st.text())
def test_every_character_belongs_to_one_piece(text: str) -> None:
    tokens = count_text(text)
    assert tokens <= len(text)
    assert cut_text(text, tokens) == text
    for few in range(min(tokens, 4)):
        part = cut_text(text, few)
        assert text.startswith(part)
        assert count_text(part) <= few + 1  # a piece cut off from what followed may be cut once more


@given(st.text(), st.text())
def test_joined_text_costs_about_its_parts(one: str, two: str) -> None:
    assert abs(count_text(one + two) - count_text(one) - count_text(two)) <= 3


def test_it_is_no_rule_of_bytes() -> None:
    prose = "The quick brown fox jumps over the lazy dog. " * 50
    digits = "3.14159 2.71828 1.41421 " * 50
    assert len(prose) / count_text(prose) > 1.8 * len(digits) / count_text(digits)


def test_images_cost_their_area() -> None:
    assert count_image(750, 100) == 100
    assert count_image(1, 1) == 1


def test_it_reads_five_megabytes_a_second() -> None:
    prose = "A row of 12 numbers, 3.5 and more; some_name = other_name[0]\n" * 20_000
    begun = time.process_time()
    count_text(prose)
    assert len(prose) / (time.process_time() - begun) > 5_000_000


def test_json_is_counted_as_it_is_written_out() -> None:
    assert count_json({"a": 1}) == count_text('{"a": 1}')
