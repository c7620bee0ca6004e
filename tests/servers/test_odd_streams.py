"""Odd replies through a whole agent over HTTP: null, absent, extra, of another type, twice, out of order, cut, broken
off, in one piece. Whatever comes, the turn ends, nothing of it is an error of ours, what was shown is in the journal,
the next request is one that a strict server takes with the prefix it has seen, and a resumed session is the same."""

from __future__ import annotations

import copy
import json
import os
import time
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from ipyagent.assembly.requests import Options
from ipyagent.journal.events import Event
from ipyagent.practice.server.models import Refused
from ipyagent.practice.server.prompt import Reader
from ipyagent.practice.server.rules import check_parameters
from tests.loop.loop_rig import Person
from tests.servers.products import CARD, Answer, Product, Server
from tests.servers.situations import Room, one_line, room

LONGEST = 20.0
"""Seconds that no turn of these takes: requests end after two."""
Raw = dict[str, Any]


class Plain(Product):
    """The API's own way, but for what the test has it say."""

    name = "odd"
    any_name = True
    signature = ""

    def tell(self, path: str, server: Server, body: dict[str, Any]) -> Answer | None:
        if path.startswith("/v1/models/"):
            return 200, {"id": server.model, "type": "model", "max_input_tokens": 200_000, "max_tokens": 8_000}
        return None


# ------------------------------------------------------------------ what is sent

BLOCKS: tuple[tuple[Raw, list[Raw]], ...] = (
    ({"type": "text", "text": ""}, [{"type": "text_delta", "text": each} for each in ("The boxes ", "are heavy.")]),
    (
        {"type": "thinking", "thinking": "", "signature": ""},
        [{"type": "thinking_delta", "thinking": "Hm."}, {"type": "signature_delta", "signature": "c2ln"}],
    ),
    ({"type": "redacted_thinking", "data": "c2VjcmV0"}, []),
    (
        {"type": "tool_use", "id": "toolu_1", "name": "python", "input": {}},
        [{"type": "input_json_delta", "partial_json": each} for each in ('{"code": ', '"odd = 1"}')],
    ),
    (
        {"type": "tool_use", "id": "toolu_2", "name": "shell", "input": {"command": "true"}},
        [],
    ),
    (
        {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {}},
        [{"type": "input_json_delta", "partial_json": '{"query": "boxes"}'}],
    ),
    (
        {"type": "web_search_tool_result", "tool_use_id": "srvtoolu_1", "content": [
            {"type": "web_search_result", "url": "https://example.org/", "title": "Boxes", "encrypted_content": "eA=="}
        ]},
        [],
    ),
    (
        {"type": "text", "text": "", "citations": []},
        [
            {"type": "citations_delta", "citation": {"type": "web_search_result_location", "cited_text": "heavy",
             "url": "https://example.org/", "title": "Boxes", "encrypted_index": "eA=="}},
            {"type": "text_delta", "text": "Cited."},
        ],
    ),
    ({"type": "compaction", "content": None}, [{"type": "compaction_delta", "content": "A summary."}]),
)  # fmt: skip
REASONS = (
    "end_turn", "tool_use", "max_tokens", "stop_sequence", "pause_turn", "refusal", "compaction",
    "model_context_window_exceeded", "of_2029",
)  # fmt: skip
ODD: tuple[Any, ...] = (
    None, 0, 1, -1, 2.5, True, "", " ", "x", "0", "\ud800", [], {}, [None], {"type": "text"}, {"type": None},
    10**30, "tool_use", "text", "error", "[" * 40,
)  # fmt: skip


def stream(chosen: list[int], reason: str) -> list[Raw]:
    """The events of a whole reply."""
    usage = {"input_tokens": 900, "output_tokens": 1, "cache_read_input_tokens": 0, "cache_creation_input_tokens": 0}
    message: Raw = {
        "id": "msg_1", "type": "message", "role": "assistant", "content": [], "model": "main-model",
        "stop_reason": None, "stop_sequence": None, "usage": usage,
    }  # fmt: skip
    events: list[Raw] = [{"type": "message_start", "message": message}]
    for index, number in enumerate(chosen):
        block, deltas = copy.deepcopy(BLOCKS[number])
        events.append({"type": "content_block_start", "index": index, "content_block": block})
        events += [{"type": "content_block_delta", "index": index, "delta": each} for each in deltas]
        events.append({"type": "content_block_stop", "index": index})
    events.append({
        "type": "message_delta", "delta": {"stop_reason": reason, "stop_sequence": None},
        "usage": {"output_tokens": 9, "server_tool_use": {"web_search_requests": 1}},
    })  # fmt: skip
    return [*events, {"type": "message_stop"}]


def whole(chosen: list[int], reason: str) -> list[Raw]:
    """A reply in one piece."""
    content = []
    for number in chosen:
        block, deltas = copy.deepcopy(BLOCKS[number])
        for each in deltas:
            for key in ("text", "thinking", "signature", "content"):
                if isinstance(each.get(key), str):
                    block[key] = (block.get(key) or "") + each[key]
        content.append(block)
    return [{
        "id": "msg_1", "type": "message", "role": "assistant", "content": content, "model": "main-model",
        "stop_reason": reason, "stop_sequence": None, "usage": {"input_tokens": 900, "output_tokens": 9},
    }]  # fmt: skip


def spoil(events: list[Raw], changes: list[tuple[str, int, int, int]]) -> list[Any]:
    """The events with changes: what, where, and with which of ODD (or to which other place)."""
    made: list[Any] = copy.deepcopy(events)
    for what, at, inner, odd in changes:
        if not made:
            break
        at %= len(made)
        places = list(_places(made[at]))
        if what in ("null", "absent", "type") and places:
            holder, key = places[inner % len(places)]
            if what == "absent" and isinstance(holder, dict):
                del holder[key]
            else:
                holder[key] = None if what == "null" else copy.deepcopy(ODD[odd % len(ODD)])
        elif what == "extra":
            holders = [each for each in _holders(made[at]) if isinstance(each, dict)]
            if holders:
                holders[inner % len(holders)]["provider_specific_fields"] = copy.deepcopy(ODD[odd % len(ODD)])
        elif what == "twice":
            made.insert(odd % (len(made) + 1), copy.deepcopy(made[at]))
        elif what == "moved":
            moved = made.pop(at)
            made.insert(odd % (len(made) + 1), moved)
        elif what == "lost":
            made.pop(at)
        elif what == "strange":
            made.insert(at, copy.deepcopy(ODD[odd % len(ODD)]))
    return made


def _holders(value: Any) -> Iterator[Any]:
    if isinstance(value, dict | list):
        yield value
        for each in value.values() if isinstance(value, dict) else value:
            yield from _holders(each)


def _places(value: Any) -> Iterator[tuple[Any, Any]]:
    for holder in _holders(value):
        for key in holder if isinstance(holder, dict) else range(len(holder)):
            yield holder, key


ERRORS: tuple[Any, ...] = (
    {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}, {"error": "it crashed"},
    {"error": None}, {"type": "error"}, {"type": "error", "error": {"message": None, "code": "x"}}, {"error": {}},
    {"error": ["a", 1]}, {"object": "error", "message": "out of memory", "code": 500}, "not JSON", [],
    {"error": {"message": "prompt is too long: 300000 tokens > 200000 maximum"}}, {"error": {"code": "429"}},
)  # fmt: skip
ENDS = ("whole", "whole", "whole", "whole", "error", "cut", "bytes", "done")


def wire(events: list[Any], end: str, at: int, named: bool) -> bytes:
    """A stream's bytes; `at` says where it is cut or which error ends it."""
    frames = []
    for event in events:
        name = event.get("type") if isinstance(event, dict) else "message"
        head = f"event: {name}\n" if named and isinstance(name, str) else ""
        frames.append((head + f"data: {json.dumps(event)}\n\n").encode(errors="replace"))
    if end == "error":
        told = ERRORS[at % len(ERRORS)]
        line = told if isinstance(told, str) else json.dumps(told)
        frames[at % (len(frames) + 1) :] = [(("event: error\n" if named else "") + f"data: {line}\n\n").encode()]
    raw = b"".join(frames)
    if end == "cut":
        return raw[: at % (len(raw) + 1)]
    if end == "bytes":
        place = at % (len(raw) + 1)
        return raw[:place] + b"\xff\x00\r" + raw[place:]
    return raw + (b"data: [DONE]\n\n" if end == "done" else b"")


@st.composite
def answers(draw: st.DrawFn) -> Answer:
    chosen = draw(st.lists(st.integers(0, len(BLOCKS) - 1), max_size=4))
    reason = draw(st.sampled_from(REASONS))
    kinds = ("null", "absent", "type", "extra", "twice", "moved", "lost", "strange")
    change = st.tuples(st.sampled_from(kinds), st.integers(0, 30), st.integers(0, 30), st.integers(0, 30))
    changes = draw(st.lists(change, max_size=5))
    number = draw(st.integers(0, 2_000))
    if draw(st.integers(0, 4)) == 0:
        made = spoil(whole(chosen, reason), changes)
        sent = draw(st.sampled_from([made[0] if made else {}, *ERRORS]))
        return draw(st.sampled_from([200, 200, 200, 200, 400, 500])), sent
    end, named = draw(st.sampled_from(ENDS)), draw(st.booleans())
    return 200, wire(spoil(stream(chosen, reason), changes), end, number, named)


# ------------------------------------------------------------------ what holds


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Room]:
    with room(Plain(), tmp_path_factory.mktemp("odd"), settings={"request_timeout": 2.0, "max_turns": 6}) as made:
        yield made


def judge(server: Server) -> None:
    """All that was sent since the last time is what a strict server takes."""
    assert server.faults == []
    for body in server.bodies:
        try:
            check_parameters({**body, "model": CARD.id}, CARD, frozenset({"cache-diagnosis-2026-04-07"}), False)
        except Refused as refused:
            pytest.fail(refused.message)


def asked(here: Room, said: str) -> tuple[Any, list[Event]]:
    surface, began = Person(can_ask=False), time.monotonic()
    result = here.agent.prepare(said, Options(), surface).run_blocking()
    assert time.monotonic() - began < LONGEST, "a turn hangs"
    one_line(result.message)
    return result, surface.events


def hold(here: Room, odd: list[Answer]) -> None:
    """A session of its own with these answers, and what must hold of it."""
    agent, server = here.agent, here.server
    server.drain()
    agent.new()
    server.bodies.clear()
    server.faults.clear()
    agent.notices.clear()
    here.works("hello")
    server.say(*odd)
    _, shown = asked(here, "look at the boxes")
    server.drain()
    kept = {event.id: event for event in here.events()}
    assert [event for event in shown if event.id and kept.get(event.id) != event] == []
    for line in here.told():
        one_line(line)
    judge(server)
    before = server.bodies[-1]
    here.goes_on()
    judge(server)
    after, reader = server.bodies[-2], Reader()
    if not server.paths[-1].endswith("count_tokens"):  # what was sent stands as it was: the cache is read
        first = [reader.digest(block) for message in before["messages"][:-1] for block in message["content"]]
        then = [reader.digest(block) for message in after["messages"] for block in message["content"]]
        assert then[: len(first)] == first
    name, seen = here.session.journal.session, here.session.view.wire()
    agent.new()
    agent.resume(name)
    assert here.session.view.wire() == seen


EACH = {
    "deadline": None, "database": None,
    "suppress_health_check": [HealthCheck.function_scoped_fixture, HealthCheck.too_slow, HealthCheck.data_too_large],
}  # fmt: skip
ODD_REPLIES = st.lists(answers(), min_size=1, max_size=3)
UNNAMED = spoil(stream([3], "tool_use"), [("absent", 1, 3, 0), ("absent", 1, 4, 0)])
"""A call whose block begins without a kind or a name."""


@settings(max_examples=8, **EACH)
@given(odd=ODD_REPLIES)
@example(odd=[(200, wire(stream([1, 3, 4], "tool_use"), "whole", 0, True))])
@example(odd=[(200, wire(stream([5, 6, 7], "end_turn"), "whole", 0, True))])
@example(odd=[(200, wire(UNNAMED, "whole", 0, True))])
def test_no_odd_reply_is_an_error_of_ours_and_the_session_goes_on(here: Room, odd: list[Answer]) -> None:
    hold(here, odd)


@pytest.mark.slow
@pytest.mark.timeout(1_800)
@settings(max_examples=int(os.environ.get("IPYAGENT_ODD_STREAMS", "60")), **EACH)
@given(odd=ODD_REPLIES)
def test_nor_is_one_of_many(here: Room, odd: list[Answer]) -> None:
    hold(here, odd)
