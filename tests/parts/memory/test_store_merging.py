"""Merging by entry: what either side wrote is there afterwards."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from ipyagent.parts.memory.index import entries, merged


def test_both_changes_are_there() -> None:
    for base, theirs, mine, result in [
        ("- a\n", "- a\n- b\n", "- a\n- c\n", "- a\n- c\n- b\n"),
        ("- a\n- b\n", "- a\n", "- b\n", ""),
        ("- a\n- b\n", "- a\n- b\n- c\n", "- b\n", "- b\n- c\n"),
        ("- a\n- b\n", "- a!\n- b\n", "- a?\n- b\n", "- a?\n- a!\n- b\n"),
        ("- a\n", "- a\n- b\n", "- a\n- b\n", "- a\n- b\n"),
        ("", "- x\n", "- x\n- y\n", "- x\n- y\n"),
        ("- a\n- a\n", "- a\n- a\n", "- a\n", "- a\n"),
        ("- a", "- a\n- b", "- a\n- c", "- a\n- c\n- b"),
        ("One.\n\nTwo.\n", "One.\n\nTwo.\n\nThree.\n", "Zero.\n\nOne.\n\nTwo.\n", "Zero.\n\nOne.\n\nTwo.\n\nThree.\n"),
        ("One.\n", "One.\n\nTheirs.\n", "One.\n\nMine.\n", "One.\n\nMine.\n\nTheirs.\n"),
        ("# A\ntext\n", "# A\ntext\n\n# B\nmore\n", "# A\ntext, new\n", "# A\ntext, new\n\n# B\nmore\n"),
        (
            "- a\n  goes on\n- b\n",
            "- a\n  goes on\n- b\n- c\n",
            "- a\n  goes further\n- b\n",
            "- a\n  goes further\n- b\n- c\n",
        ),
        (
            "```\n- x\n\n- y\n```\n- z\n",
            "```\n- x\n\n- y\n```\n",
            "```\n- x\n\n- y\n```\n- z\n- w\n",
            "```\n- x\n\n- y\n```\n- w\n",
        ),
    ]:
        assert merged(base, theirs, mine) == result


def test_headers_are_merged_key_by_key_and_one_that_one_side_left_alone_is_taken_as_it_is_written() -> None:
    base = "---\nname: A\ndescription: d\ntype: user\nold: x\n---\n- a\n"
    theirs = "---\nname: A\ndescription: theirs\ntype: user\nold: x\nnew: t\n---\n- a\n- t\n"
    mine = "---\nname: Mine\ndescription: d\ntype: user\n---\n- a\n- m\n"
    assert merged(base, theirs, mine) == (
        "---\nname: Mine\ndescription: theirs\ntype: user\nnew: t\n---\n- a\n- m\n- t\n"
    )
    base = "---\nname: 'A'   # a remark\n---\n- a\n"
    assert merged(base, base + "- t\n", base + "- m\n") == base + "- m\n- t\n"


_ITEMS = [f"- item {letter}\n" for letter in "abcdefg"]
_ENTRY = st.sampled_from([*_ITEMS, "# Head\n", "Words here.\n\n", "```\n- x\n```\n"])
_TEXT = st.lists(_ENTRY, max_size=8).map("".join)


def counted(text: str) -> Counter[str]:
    return Counter(entry.strip() for entry in entries(text))


@given(_TEXT | st.text(alphabet="-# `\na1.", max_size=40))
def test_entries_of_any_text_joined_are_the_text(text: str) -> None:
    assert "".join(entries(text)) == text


@given(_TEXT, _TEXT, _TEXT)
def test_no_entry_that_was_added_is_lost(base: str, theirs: str, mine: str) -> None:
    old, their, my = counted(base), counted(theirs), counted(mine)
    there = counted(merged(base, theirs, mine))
    for entry in set(their) | set(my):
        if their[entry] > old[entry] or my[entry] > old[entry]:
            assert there[entry], entry


@given(_TEXT, _TEXT)
def test_a_side_that_did_nothing_changes_nothing(base: str, other: str) -> None:
    assert counted(merged(base, base, other)) == counted(other)
    assert merged(base, other, base) == other


@given(_TEXT, _TEXT)
def test_without_a_base_nothing_is_lost(theirs: str, mine: str) -> None:
    there = counted(merged(None, theirs, mine))
    assert there == counted(theirs) | counted(mine)
