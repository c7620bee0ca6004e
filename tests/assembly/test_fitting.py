"""A small window gets the tools that matter most; the rest are left out in a fixed order."""

from __future__ import annotations

import pytest

from ipyagent.assembly.session_setup import DISPENSABLE, SHARE, fitted
from ipyagent.assembly.system_prompt import render
from ipyagent.tools.catalogue import CALL, SEARCH, builtin_tools

NEEDED = {"python", "read_file", "edit_file", "shell"}


def test_a_large_window_or_an_unknown_one_has_room_for_all() -> None:
    tools = builtin_tools()
    for window in (0, 32_000, 200_000, 1_000_000):
        kept, left = fitted(tools, window)
        assert (list(kept), left) == ([SEARCH, CALL, *tools], ())


@pytest.mark.parametrize("window", [4_000, 6_000, 8_000])
def test_a_small_window_keeps_what_is_needed_within_its_share(window: int) -> None:
    kept, left = fitted(builtin_tools(), window)
    assert set(kept) >= NEEDED
    assert render(kept).tool_tokens * SHARE <= window
    assert (SEARCH in kept) == any(getattr(tool, "deferred", "") for tool in kept.values()), "nothing to be found"
    assert list(left) == [name for name in DISPENSABLE if name in left], "in the fixed order"
    assert set(left) & set(kept) == set()


def test_what_a_session_lists_already_stays() -> None:
    kept, left = fitted(builtin_tools(), 4_000, listed={"notebook", "memory"})
    assert {"notebook", "memory"} <= set(kept)
    assert not {"notebook", "memory"} & set(left)
