"""Compaction by the server, in both forms, against the practice server's rules."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from compact_room import CompactRoom, compact_room, plain, words
from rooms import MODEL

from ipyagent.errors import CompactionFailed
from ipyagent.journal.events import Compacted, ForkEnded, LayerFailed, Usage, UsageReported
from ipyagent.model.capabilities import compaction_betas, summaries_as_text
from ipyagent.model.prices import cost_of
from ipyagent.practice.replies import text, tool
from ipyagent.practice.server import Exchange
from ipyagent.reports.timeline import Shares

WINDOW = 40_000
LONG = tool("python", {"code": "print('0123456789 ' * 2000)"}, thinking="I print a long line.")


def weighed(room: CompactRoom, **settings: Any) -> Any:
    agent = room.agent(**settings)
    for number in range(3):
        said = f"weigh box {number}: {words(number, 2_000)}"
        result = room.turn(agent, said, text(f"done {number}", thinking="Hm."))
        assert result.status == "finished", result.message
    return agent


def compactions(room: CompactRoom) -> list[dict[str, Any]]:
    return [body for body in room.bodies if body.get("compaction")]


def first_block(room: CompactRoom) -> dict[str, Any]:
    return dict(room.bodies[-1]["messages"][0]["content"][0])


def test_on_demand_the_servers_block_stands_first_in_place_of_the_conversation(room: CompactRoom) -> None:
    agent = weighed(room, engine="auto")
    answer = agent.compact()
    (made,) = room.of(agent, Compacted)
    assert (made.trigger, made.method) == ("manual", "server")
    assert "(server)" in answer
    assert made.blocks[0]["type"] == "compaction"
    assert made.blocks[0]["signature"]
    assert made.tokens_after < made.tokens_before
    assert "compaction" not in compactions(room)[0].get("messages", [{}])[-1]
    assert room.calls == []  # no call of ours
    (fork,) = room.of(agent, ForkEnded)
    assert fork.usage.cache_read >= 0.9 * fork.usage.prompt > 4_500
    assert fork.usage.output > 0
    assert fork.cost
    result = room.turn(agent, "and the blue box?", text("weighed"))
    assert (result.status, result.text) == ("finished", "weighed")
    assert {key: first_block(room)[key] for key in ("type", "signature", "content")} == dict(made.blocks[0]) | {}
    assert "weigh box 2" in plain(room.bodies[-1]["messages"][0]["content"])  # the newest request, word for word
    room.nothing_refused()
    room.replays(agent)


def test_in_the_middle_of_a_turn_with_thinking_the_server_compacts_too(room: CompactRoom) -> None:
    off = {"layer_clear_results": False, "layer_server_edits": False, "layer_store_results": False}
    agent = room.agent(engine="auto", window=WINDOW, **off)
    fits = tool("python", {"code": "print('0123456789 ' * 900)"}, thinking="I print a line.")
    result = room.turn(agent, "print much", *[fits] * 9, text("printed", thinking="Enough."))
    assert (result.status, result.text) == ("finished", "printed")
    assert {event.method for event in room.of(agent, Compacted)} == {"server"}
    assert "print much" in plain(room.bodies[-1]["messages"][0]["content"])
    room.nothing_refused()


def test_a_second_compaction_by_the_server_takes_the_place_of_the_first(room: CompactRoom) -> None:
    agent = weighed(room, engine="server")
    agent.compact()
    room.turn(agent, f"more {words(7, 3_000)}", text("ok"))
    room.turn(agent, f"more {words(8, 100)}", text("ok"))
    agent.compact()
    room.turn(agent, "go on", text("ok"))
    blocks = [b for m in room.bodies[-1]["messages"] for b in m["content"] if b["type"] == "compaction"]
    assert len(blocks) == 1
    assert len(room.of(agent, Compacted)) == 2
    room.nothing_refused()


def test_when_the_server_makes_no_summary_ours_catches_it_and_where_that_fails_nothing_changes(tmp_path: Path) -> None:
    with compact_room(tmp_path, summarise=lambda body: None) as room:
        agent = weighed(room, engine="auto")
        before = room.session(agent).view.wire()
        room.summaries = [text("no")]
        with pytest.raises(CompactionFailed):
            agent.compact()
        assert room.session(agent).view.wire() == before
        failed = len(room.of(agent, LayerFailed))
        agent.compact()
        (made,) = room.of(agent, Compacted)
        assert made.method == "summary"
        assert [event.layer for event in room.of(agent, LayerFailed)[failed:]] == ["server_compaction"]


def test_a_server_that_cannot_is_not_asked(tmp_path: Path) -> None:
    with compact_room(tmp_path, without=("compaction",)) as room:
        agent = weighed(room, engine="server")
        agent.compact()
        assert compactions(room) == []
        assert room.of(agent, Compacted)[0].method == "summary"
        room.nothing_refused()


def test_the_kill_switch_and_engine_client_leave_it_to_ours(room: CompactRoom) -> None:
    for settings in ({"engine": "client"}, {"engine": "auto", "layer_server_compaction": False}):
        agent = weighed(room, **settings)
        agent.compact()
        assert room.of(agent, Compacted)[-1].method == "summary"
        agent.new()
    assert compactions(room) == []


def test_ours_goes_over_a_block_of_the_servers(room: CompactRoom) -> None:
    agent = weighed(room, engine="auto")
    agent.compact()
    room.turn(agent, f"more {words(7, 3_000)}", text("ok"))
    room.turn(agent, f"more {words(8, 100)}", text("ok"))
    agent.settings.engine = "client"
    agent.compact()
    room.turn(agent, "go on", text("ok"))
    assert [event.method for event in room.of(agent, Compacted)] == ["server", "summary"]
    assert "compaction" not in [b["type"] for m in room.bodies[-1]["messages"] for b in m["content"]]
    room.nothing_refused()


def test_the_server_is_told_wishes_and_another_model_its_summary_as_text(room: CompactRoom) -> None:
    agent = weighed(room, engine="auto")
    agent.compact("keep all weights")
    assert "keep all weights" in compactions(room)[-1]["compaction"]["instructions"]
    agent.settings.model = "claude-sonnet-5"
    assert room.turn(agent, "go on", text("ok")).status == "finished"
    told = room.bodies[-1]["messages"][0]["content"]
    assert told[0]["type"] == "text"
    assert told[0]["text"].startswith("<summary>")
    room.nothing_refused()


def test_by_threshold_the_server_compacts_within_a_request(tmp_path: Path) -> None:
    with compact_room(tmp_path) as room:
        agent = room.agent(engine="server", window=100_000, layer_server_edits=False)
        tools: list[int] = []
        for number in range(6):
            said = f"box {number}: {words(number, 13_400)}"
            assert room.turn(agent, said, text(f"done {number}", thinking="Hm.")).status == "finished"
            tools.append(Shares().of(room.session(agent).view)["tools"])
        assert tools == pytest.approx([tools[0]] * 6, rel=0.15), "the split is of what the provider reads"
        assert room.turn(agent, "go on", text("ok")).status == "finished"
        made = room.of(agent, Compacted)
        assert made
        assert all(event.method == "server" for event in made)
        assert room.session(agent).view.count().tokens < 70_000
        files = room.session(agent).journal.folder / "tool-results"
        assert "box 0: item 0-0" in (files / "left-1.txt").read_text()
        assert any("tool-results/left-1.txt" in plain(body["messages"][-1]["content"]) for body in room.bodies)
        assert room.calls == []
        assert compactions(room) == []
        kinds = [b["type"] for m in room.bodies[-1]["messages"] for b in m["content"]]
        assert "compaction" in kinds
        assert len(room.bodies[-1]["messages"]) < 10
        room.nothing_refused()
        room.replays(agent)
        (billed,) = (event for event in room.of(agent, UsageReported) if event.billed)
        parts = next(e.usage["iterations"] for e in room.server.messages if len(e.usage.get("iterations") or ()) > 1)
        assert billed.billed.output == sum(part["output_tokens"] for part in parts)
        assert billed.cost == pytest.approx(sum(cost_of(MODEL, _usage(part)) for part in parts))
        assert agent.session.history.totals.usage.prompt == sum(map(_prompt, room.server.messages))
        assert agent.session.history.breaks == [], "the provider compacted because we had asked for it"


def _usage(part: dict[str, Any]) -> Usage:
    return Usage(
        input=part["input_tokens"], cache_read=part["cache_read_input_tokens"],
        cache_write=part["cache_creation_input_tokens"], output=part["output_tokens"],
    )  # fmt: skip


def _prompt(exchange: Exchange) -> int:
    """All tokens of a request that are paid for on the way in."""
    return sum(_usage(part).prompt for part in exchange.usage.get("iterations") or [exchange.usage])


def test_what_the_user_said_stands_word_for_word_behind_the_servers_own_summary(tmp_path: Path) -> None:
    with compact_room(tmp_path, summarise=lambda body: "Boxes were weighed.") as room:
        agent = room.agent(engine="server", window=100_000, layer_server_edits=False)
        room.turn(agent, "Never touch raw.csv.", text("I won't.", thinking="Hm."))
        for number in range(1, 16):
            answer = text(f"done {number}. {words(number, 13_400)}", thinking="Hm.")
            assert room.turn(agent, f"Rule {number}: weigh\nbox {number} in kg.", answer).status == "finished"
        made = room.of(agent, Compacted)
        assert len(made) >= 2, "the second takes the words of the first along"
        assert {event.method for event in made} == {"server"}
        sent = "\n".join(plain(message["content"]) for message in room.bodies[-1]["messages"])
        rules = ["Never touch raw.csv.", *(f"Rule {number}: weigh\nbox {number} in kg." for number in range(1, 16))]
        assert [rule for rule in rules if sent.count(rule) != 1] == []
        assert sent.count("<user-messages>") == 1
        assert sent.count("has left the context window. It is kept word for word in tool-results/left-") == 1
        texts = [[plain(message["content"]) for message in body["messages"]] for body in room.bodies]
        changed = [before for before, after in pairwise(texts) if after[: len(before)] != before]
        assert len(changed) == len(made), "what was sent changes with each boundary, and never else"
        room.nothing_refused()
        room.replays(agent)


def test_betas_follow_from_what_a_request_asks_for_and_carries() -> None:
    signed = {"type": "compaction", "content": "x", "signature": "s"}
    plain_block = {"type": "compaction", "content": "x"}
    said = {"role": "user", "content": [{"type": "text", "text": "hi"}]}
    assert compaction_betas({"messages": [said]}) == []
    assert compaction_betas({"messages": [{"role": "user", "content": [signed]}]}) == ["compact-2026-09-04"]
    assert compaction_betas({"messages": [{"role": "assistant", "content": [plain_block]}]}) == ["compact-2026-01-12"]
    messages = [said]
    assert summaries_as_text(messages) is messages
    empty = {"role": "assistant", "content": [{"type": "compaction", "content": None}]}
    assert summaries_as_text([said, empty]) == [said]
