"""What every request begins with: its size by parts, how the tools in it are described, and those that are not."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import msgspec
import pytest
from compact_room import CompactRoom
from rooms import plain, room

from ipyagent import tool as user_tool
from ipyagent.assembly.session_setup import DISPENSABLE, SHARE, fitted
from ipyagent.assembly.system_prompt import render
from ipyagent.journal.events import PlanWritten, SystemPromptFrozen, ToolCalled, ToolReturned
from ipyagent.journal.tokens import estimate_block
from ipyagent.practice.replies import text, tool
from ipyagent.tools.catalogue import CALL, FORMER_CALL, SEARCH, ToolCall, ToolSearch, builtin_tools
from ipyagent.tools.schema import unwrapped

MOST = {"system prompt": 390, "memory": 320, "skills": 390, "tools": 2_150}
"""Tokens of each part as %context counts them: 3,500 in all."""
ESTIMATED = {
    "tool_search": 195, "call_tool": 115, "compact": 145, "edit_file": 195, "glob": 160, "grep": 255,
    "memory": 415, "python": 140, "read_file": 220, "shell": 220, "variables": 160, "write_file": 170,
    "load_skill": 210,
}  # fmt: skip
"""Tokens of each tool as the estimate before the first answer counts them."""
STEPS = {"steps": [{"step": "load"}, {"step": "plot", "state": "doing"}]}


def test_the_fixed_part_takes_at_most_3500_tokens_and_a_tool_that_is_not_listed_is_found(tmp_path: Path) -> None:
    """In a kernel of its own with the settings as they are, the bundled skills, and nothing saved."""
    with room(tmp_path) as made:
        made.ok("%load_ext ipyagent", timeout=60)
        made.ok("%%agent\nhello", timeout=60)
        told = plain(made.ok("%context", timeout=60))
        (head,) = (event for event in made.events() if isinstance(event, SystemPromptFrozen))
        made.ok("%%agent\nmake a plan to load, clean and plot the data", timeout=60)
        events = made.events()
    found = {name: int(number.replace(",", "")) for name, number in re.findall(r"^  ([a-z ]+?) +([\d,]+) ", told, re.M)}
    parts = {name: found[name] for name in MOST}
    assert {name: tokens for name, tokens in parts.items() if tokens > MOST[name]} == {}, parts
    assert sum(MOST.values()) <= 3_500
    each = {block["name"]: estimate_block(block) for block in head.tools}
    assert list(each) == list(ESTIMATED)
    assert {name: tokens for name, tokens in each.items() if tokens > ESTIMATED[name]} == {}
    assert [event.name for event in events if isinstance(event, ToolCalled)] == [SEARCH, "plan"]
    (made_plan,) = (event for event in events if isinstance(event, PlanWritten))
    assert "plot the data" in made_plan.steps[-1].text


def test_no_description_is_broken_inside_a_sentence(place: CompactRoom) -> None:
    agent = place.agent(messages=True)
    described = [(each.name, each.description) for each in agent.tools_now().values()]
    assert len(described) >= 14
    assert [name for name, about in described if about != unwrapped(about)] == []
    for name, about in described:
        assert not re.search(r"[\w,`]\n\n?[a-z]", about), name


def test_every_tool_says_of_its_schema_only_how_to_call_it(place: CompactRoom) -> None:
    for each in place.agent(messages=True).tools_now().values():
        words = json.dumps(each.input_schema)
        for word in ('"default"', '"title"', '"null"', '"additionalProperties": false'):
            assert word not in words, each.name


def test_a_seldom_used_tool_is_named_searched_and_called_without_another_byte_in_the_head(place: CompactRoom) -> None:
    agent = place.agent()
    call = tool(CALL, {"name": "plan", "arguments": STEPS})
    place.turn(agent, "plan it", tool(SEARCH, {"query": "checklist of steps"}), call, text("done"))
    first = place.bodies[0]["tools"]
    search = next(block["description"] for block in first if block["name"] == SEARCH)
    for name in ("notebook", "past_sessions", "plan"):
        assert re.search(rf"^- {name}: \w", search, re.M)
        assert name not in {block["name"] for block in first}
    found, made = place.of(agent, ToolReturned)
    assert '"state"' in str(found.blocks), "its schema"
    assert not made.is_error
    assert [event.name for event in place.of(agent, ToolCalled)] == [SEARCH, "plan"]
    assert [step.text for step in place.of(agent, PlanWritten)[0].steps] == ["load", "plot"]
    heads = {json.dumps([body["system"], body["tools"]]) for body in place.bodies}
    assert len(heads) == 1
    place.nothing_refused()


def test_a_seldom_used_tool_is_called_straight_away_too_and_an_error_shows_its_schema(place: CompactRoom) -> None:
    agent = place.agent()
    wrong = {"name": "plan", "arguments": {"items": ["load"]}}
    place.turn(agent, "plan it", tool("plan", STEPS), tool(CALL, wrong), tool("plan", {"steps": "load"}), text("done"))
    straight, *failed = place.of(agent, ToolReturned)
    assert not straight.is_error
    assert len(place.of(agent, PlanWritten)) == 1
    assert [result.is_error for result in failed] == [True, True]
    schema = builtin_tools()["plan"].input_schema
    for result, shown in zip(failed, (schema, {"properties": schema["properties"]}), strict=True):
        assert json.dumps(shown)[:-1] in result.blocks[0]["text"], "all of it where an argument is missing"
    place.nothing_refused()


def test_a_resumed_session_keeps_the_head_that_an_earlier_version_sent(place: CompactRoom) -> None:
    """All tools listed, their schemas in more words, the former name of `call_tool`: not a byte is another."""
    agent = place.agent()
    place.turn(agent, "hello", text("hello"))
    session = place.session(agent)
    own = {name: each for name, each in session.tools.items() if name not in (SEARCH, CALL)}
    listed = {**own, SEARCH: ToolSearch(dict, {}, FORMER_CALL), FORMER_CALL: ToolCall(dict, FORMER_CALL)}
    whole = render(listed, all_listed=True)
    wordy = tuple({**block, "input_schema": {**block["input_schema"], "title": "T"}} for block in whole.tools)
    session.record(msgspec.structs.replace(whole, tools=wordy, why="an earlier version"))

    again = place.resumed(agent)
    calls = [tool("plan", STEPS), tool(FORMER_CALL, {"name": "plan", "arguments": STEPS})]
    place.turn(again, "go on", *calls, text("done"))
    body = place.bodies[-1]
    assert [strip(block) for block in body["tools"]] == list(wordy)
    assert [strip(block) for block in body["system"]] == list(whole.system)
    assert [event.why for event in place.of(again, SystemPromptFrozen)] == ["", "an earlier version"]
    assert not any(event.is_error for event in place.of(again, ToolReturned))
    place.nothing_refused()


def strip(block: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in block.items() if key != "cache_control"}


def test_a_seldom_used_tool_of_the_users_is_told_in_its_words_and_a_new_one_renews_the_head(place: CompactRoom) -> None:
    agent = place.agent()
    place.turn(agent, "hello", text("hello"))

    @user_tool(permission="none", writes=False, deferred="rates of currencies")
    def exchange_rate(currency: str) -> float:
        """Today's rate of a currency."""
        return 1.25

    agent.shell.user_ns["exchange_rate"] = exchange_rate
    call = tool(CALL, {"name": "exchange_rate", "arguments": {"currency": "USD"}})
    place.turn(agent, "the rate?", call, text("1.25"))
    place.turn(agent, "again?", call, text("1.25"))
    told = "- exchange_rate: rates of currencies"
    heads = [next(block for block in body["tools"] if block["name"] == SEARCH) for body in place.bodies]
    assert [told in search["description"] for search in heads] == [False, True, True, True, True]
    assert len(place.of(agent, SystemPromptFrozen)) == 2
    assert [block["text"] for event in place.of(agent, ToolReturned) for block in event.blocks] == ["1.25", "1.25"]


# ---------------------------------------------------------------------- in a small window


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
