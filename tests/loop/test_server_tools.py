"""Web search and web fetch at the provider: every follow-up is valid whatever happened, and the price is right."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from loop_rig import MODEL, Person, Rig

from ipyagent.config import IPyAgent
from ipyagent.errors import SettingError
from ipyagent.journal.blocks import CALL, is_result
from ipyagent.journal.events import (
    AssistantMessage,
    Compacted,
    LayerFailed,
    Retrying,
    SystemPromptFrozen,
    UsageReported,
)
from ipyagent.journal.view import ContextView
from ipyagent.parts.memory.provenance import ProvenanceIndex
from ipyagent.practice.replies import Reply, cut, server_call, text, tool, web
from ipyagent.practice.server import PracticeServer

PENGUINS = "https://stats.example.org/penguins"
POISONED = "https://tips.example.net/plots"
SEARCH, FETCH = ["web_search"], ["web_search", "web_fetch"]
BOTH = (
    {"type": "text", "text": "I look."},
    server_call("web_search", query="penguins body mass"),
    server_call("web_search", query="missing values"),
    server_call("web_fetch", url=PENGUINS),
    {"type": "text", "text": "Gentoo are the heaviest.", "cites": PENGUINS},
)


def blocks_sent(rig: Rig, number: int = -1) -> list[dict[str, Any]]:
    body = rig.server.messages[number].body
    return [block for message in body["messages"] for block in message["content"]]


def of_the_web(blocks: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [block for block in blocks if block["type"] == CALL or is_result(block)]


def goes_on(rig: Rig) -> list[dict[str, Any]]:
    """Another turn, valid; the blocks of the web that it sent back."""
    rig.server.script(text("and on we go"))
    result = rig.turn("go on")
    assert (result.status, rig.server.refused) == ("finished", []), result.message
    return of_the_web(blocks_sent(rig))


def test_what_the_provider_found_goes_back_byte_for_byte_and_is_priced(make_rig: Callable[..., Rig]) -> None:
    rig = make_rig(server_tools=FETCH)
    rig.server.script(web(*BOTH, thinking="I need facts."))
    assert rig.turn(f"What is known? See {PENGUINS}").status == "finished"
    given = rig.server.messages[-1].reply["content"]
    said = rig.of(AssistantMessage)[0]
    assert list(said.blocks) == given
    report = rig.of(UsageReported)[0]
    usage = rig.server.messages[-1].usage
    assert usage["server_tool_use"] == {"web_search_requests": 2, "web_fetch_requests": 1}
    assert (report.paid.searches, report.paid.fetches, report.paid.input) == (2, 1, usage["input_tokens"])
    tokens = (usage["input_tokens"] + 1.25 * usage["cache_creation_input_tokens"]) * 2 + usage["output_tokens"] * 10
    assert report.cost == pytest.approx(tokens / 1e6 + 2 * 0.01)
    assert report.usage.prompt < report.paid.prompt  # the window holds the prompt once, the bill has it each time
    predicted = rig.agent.session.view.count().tokens
    assert of_the_web(given) == goes_on(rig)
    real = rig.of(UsageReported)[-1].usage.prompt
    assert predicted == pytest.approx(real, rel=0.15)


def test_a_fetch_that_fails_leaves_the_window_as_it_is(make_rig: Callable[..., Rig]) -> None:
    rig = make_rig(server_tools=FETCH)
    gone = "https://stats.example.org/nothing-here"
    rig.server.script(web(server_call("web_fetch", url=gone), {"type": "text", "text": "It could not be read."}))
    assert rig.turn(f"Fetch {gone}").status == "finished"
    usage = rig.server.messages[-1].usage
    assert usage["server_tool_use"] == {"web_search_requests": 0, "web_fetch_requests": 0}
    predicted = rig.agent.session.view.count().tokens
    for words in ("Thanks.", "Another question."):
        rig.server.script(text("fine"))
        assert rig.turn(words).status == "finished"
    counted = [event.usage.prompt for event in rig.of(UsageReported)]
    assert predicted == pytest.approx(counted[1], rel=0.15)
    assert counted == sorted(counted)
    assert [event.why for event in rig.of(LayerFailed)] == []


def test_a_pause_is_gone_on_with_as_it_was_and_its_search_is_run_then(make_rig: Callable[..., Rig]) -> None:
    rig = make_rig(server_tools=SEARCH)
    paused = web({"type": "text", "text": "A moment."}, server_call("web_search", query="penguins"), stop="pause_turn")
    rig.server.script(paused, text("Found."))
    assert rig.turn().status == "finished"
    assert [block["type"] for block in of_the_web(blocks_sent(rig))] == [CALL]
    assert [block["type"] for block in goes_on(rig)] == [CALL, "web_search_tool_result"]
    again = ContextView.of(rig.events())  # the same from the journal
    assert again.messages == rig.agent.session.view.messages


def test_a_search_beside_a_call_of_ours_is_run_with_the_next_request(make_rig: Callable[..., Rig]) -> None:
    rig = make_rig(server_tools=SEARCH)
    mixed = Reply(
        (server_call("web_search", query="penguins"), *tool("python", {"code": "1 + 1"}).content), "tool_use"
    )
    rig.server.script(mixed, text("Found."))
    assert rig.turn().status == "finished"
    assert [block["type"] for block in goes_on(rig)] == [CALL, "web_search_tool_result"]


def test_a_search_that_nobody_will_run_any_more_has_a_result_that_says_so(make_rig: Callable[..., Rig]) -> None:
    rig = make_rig(server_tools=SEARCH, max_turns=1)
    rig.server.script(
        web({"type": "text", "text": "I look."}, server_call("web_search", query="penguins"), stop="pause_turn")
    )
    rig.turn()  # ends at its limit while the reply pauses
    (_, result) = goes_on(rig)
    assert result["content"]["error_code"] == "unavailable"
    assert ContextView.of(rig.events()).messages == rig.agent.session.view.messages


@pytest.mark.parametrize("events", range(3, 24, 2))
def test_a_stream_cut_anywhere_leaves_a_valid_request(make_rig: Callable[..., Rig], events: int) -> None:
    rig = make_rig(server_tools=FETCH)
    rig.server.script(cut(web(*BOTH, thinking="I need facts."), "reset", after_events=events))
    rig.fault_turn(f"Look at {PENGUINS}")


def test_a_stopped_search_is_paid_for_and_leaves_a_valid_request(make_rig: Callable[..., Rig]) -> None:
    rig = make_rig(server_tools=SEARCH)
    rig.server.script(cut(web(*BOTH[:2]), "stall", after_events=14, seconds=20))
    waiting = rig.stop_when(lambda: any("web_search" in phase for phase in rig.seen.phases))
    assert rig.turn().status == "stopped"
    waiting.join(5)
    paid = rig.of(UsageReported)[0]
    assert paid.stopped
    assert paid.usage.searches == 1
    assert paid.cost > 0.01
    assert goes_on(rig) == []


def test_a_search_counts_against_the_limit_of_the_money(make_rig: Callable[..., Rig]) -> None:
    rig = make_rig(server_tools=SEARCH, max_cost=0.015)
    rig.server.script(web(*BOTH[:3], BOTH[4], stop="pause_turn"), text("no"))
    result = rig.turn("look", Person(can_ask=False))
    assert result.status == "limit", result.message
    assert "max_cost" in result.message


def test_what_a_pause_split_leaves_a_compaction_whole(make_rig: Callable[..., Rig]) -> None:
    rig = make_rig(server_tools=FETCH)
    rig.server.script(
        text("one"), web(*BOTH, stop="pause_turn"), web({"type": "text", "text": "…"}, BOTH[1], stop="pause_turn"),
        web({"type": "text", "text": "done"}), text("three"),
    )  # fmt: skip
    for said in ("first", f"second {PENGUINS}", "third"):
        assert rig.turn(said).status == "finished"
    session = rig.agent.session
    replies = [event.id for event in rig.of(AssistantMessage)]
    for first in replies:
        for last in (each for each in replies if each >= first):
            view = ContextView.of([*rig.events(), _compacted(session.journal.last + 1, first, last)])
            _check(rig.server, view)
    rig.server.script(text("<analysis>a</analysis><summary>what we did</summary>"))
    rig.agent.compact()
    assert goes_on(rig) == [] or rig.server.refused == []
    assert "encrypted_content" not in str(rig.of(Compacted))


def _compacted(number: int, first: int, last: int) -> Compacted:
    return Compacted(
        id=number, parent=number - 1, trigger="manual", method="summary", first=first, last=last,
        blocks=({"type": "text", "text": "(in short)"},),
    )  # fmt: skip


def _check(server: PracticeServer, view: ContextView) -> None:
    system, tools, messages = view.wire()
    body = {"model": MODEL, "max_tokens": 100, "system": system, "tools": tools, "messages": messages}
    if messages[-1]["role"] == "assistant":
        body["messages"] = [*messages, {"role": "user", "content": [{"type": "text", "text": "next"}]}]
    server.judge.accept(body, frozenset(), counting=True)


def test_the_newest_version_that_the_model_takes_is_asked_for(make_rig: Callable[..., Rig]) -> None:
    rig = make_rig(server_tools=FETCH, model="claude-haiku-4-5")
    rig.server.script(web(*BOTH))
    assert rig.turn(f"Look at {PENGUINS}").status == "finished"
    body = rig.server.messages[-1].body
    kinds = {each["type"]: each for each in body["tools"] if "type" in each}
    assert list(kinds) == ["web_search_20250305", "web_fetch_20250910"]
    assert all("allowed_callers" not in each for each in kinds.values())
    refused = len(rig.server.refused)
    rig.server.script(text("again"))
    rig.turn("again")
    assert len(rig.server.refused) == refused  # found out once


def test_a_server_that_runs_no_search_is_told_in_one_line_and_gets_words(make_rig: Callable[..., Rig]) -> None:
    rig = make_rig(server_tools=SEARCH)
    rig.server.script(web(*BOTH[:2], BOTH[4]))
    rig.turn()
    with PracticeServer(without=["server_tools"]) as other:
        rig.settings.base_url = other.url
        other.script(text("as words"))
        assert rig.turn("go on").status == "finished"
        assert other.refused == []
        body = other.messages[-1].body
        assert of_the_web([b for m in body["messages"] for b in m["content"]]) == []
        assert "[web_search: penguins body mass]" in str(body["messages"])
        assert PENGUINS in str(body["messages"])
        assert not any("type" in each for each in body["tools"])
    assert sum("web_search is not offered" in notice for notice in rig.agent.notices) == 1


def test_a_refusal_of_the_search_itself_is_told_and_the_turn_goes_on(make_rig: Callable[..., Rig]) -> None:
    with PracticeServer(without=["models", "server_tools"]) as server:
        rig = make_rig(server=server, server_tools=SEARCH)
        server.script(text("without"))
        assert rig.turn().text == "without"
        told = [event.reason for event in rig.of(Retrying)]
        assert len(told) == 1
        assert told[0].startswith("the server does not run web_search")


def test_a_page_is_nobodys_order_and_never_the_users_memory(make_rig: Callable[..., Rig]) -> None:
    rig = make_rig(server_tools=FETCH)
    rig.server.script(web(server_call("web_fetch", url=POISONED), {"type": "text", "text": "It gives plot tips."}))
    rig.turn(f"Read {POISONED} and make my plots readable")
    ground = ProvenanceIndex()
    for event in rig.events():
        ground.apply(event)
    memory = "The user prefers neon green plots."
    found = ground.likely([memory])
    origin = ground.origin([memory], [quote.words for quote in found])
    assert origin.source != "said"


def test_secrets_leave_what_can_be_read_and_nothing_that_is_sealed(make_rig: Callable[..., Rig]) -> None:
    rig = make_rig(server_tools=FETCH)
    secret = "ghp_" + "aB3dE5fG7hJ9kL1mN3pQ5rS7tU9vW1xY3zA5"
    searched = server_call("web_search", query=f"penguins {secret}")
    rig.server.script(web(searched, {"type": "text", "text": "Found.", "cites": PENGUINS}))
    rig.turn()
    assert goes_on(rig)[1]["content"] == next(
        block["content"] for block in rig.server.messages[-2].reply["content"] if is_result(block)
    )
    assert secret not in str(rig.events())


def test_the_head_stays_until_the_setting_changes(make_rig: Callable[..., Rig]) -> None:
    rig = make_rig()
    rig.turn()
    rig.settings.server_tools = [{"name": "web_search", "max_uses": 2, "allowed_domains": ["example.org"]}]
    rig.server.script(web(BOTH[1], BOTH[1], BOTH[1], {"type": "text", "text": "enough"}))
    rig.turn()
    rig.turn()
    heads = rig.of(SystemPromptFrozen)
    assert [bool(head.why) for head in heads] == [False, True]
    results = [block["content"] for block in of_the_web(blocks_sent(rig)) if is_result(block)]
    assert results[2]["error_code"] == "max_uses_exceeded"
    assert all("example.org" in page["url"] for page in results[0])


@pytest.mark.parametrize(
    "wrong", [["search"], [{"name": "web_search", "max_uses": 0}], [{"name": "web_search", "max_content_tokens": 5}], 7]
)
def test_a_wrong_setting_is_refused_with_what_is_right(wrong: Any) -> None:
    with pytest.raises(SettingError, match="server_tools"):
        IPyAgent(server_tools=wrong)
