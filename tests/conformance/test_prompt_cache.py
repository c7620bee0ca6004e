"""Cache accounting is exact: what is written, what is read, for how long, and what breaks it."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import anthropic
import pytest
from practice_api import TOOL, Body, ask, assistant, client, image, paid, png, request, result, said, use, user

from ipyagent.practice.replies import cut, fault, text
from ipyagent.practice.server import PracticeServer

MARK = {"type": "ephemeral"}
HOUR = {"type": "ephemeral", "ttl": "1h"}
LONG = ("The quick brown fox jumps over the lazy dog. " * 60).strip()  # 600 tokens


@dataclass
class Clock:
    now: float = 1_000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def server(clock: Clock) -> Iterator[PracticeServer]:
    with PracticeServer(clock=clock) as running:
        yield running


def system(mark: Body | None = MARK, text: str = LONG) -> list[Body]:
    return [said(text, **({"cache_control": mark} if mark else {}))]


def test_the_parts_of_usage_add_up_to_the_whole_prompt(sdk: anthropic.Anthropic) -> None:
    body = request(user("a question"), system=system(HOUR), tools=[TOOL], cache_control=MARK)
    whole = ask(sdk, {k: v for k, v in body.items() if k != "max_tokens"}, path="/v1/messages/count_tokens")
    fresh, read, made, made_hour = paid(ask(sdk, body))
    assert (fresh, read) == (0, 0)
    assert fresh + read + made + made_hour == whole["input_tokens"]
    assert made_hour > 600 > made > 0
    assert paid(ask(sdk, body)) == (0, whole["input_tokens"], 0, 0)


def test_a_growing_conversation_pays_for_its_growth_only(sdk: anthropic.Anthropic) -> None:
    messages = [user(LONG)]
    _, _, whole, _ = paid(ask(sdk, request(*messages, cache_control=MARK)))
    messages += [assistant("yes"), user("and then?")]
    fresh, read, made, _ = paid(ask(sdk, request(*messages, cache_control=MARK)))
    assert (fresh, read) == (0, whole)
    assert 0 < made < 30


def test_a_prefix_below_the_minimum_is_silently_not_written(sdk: anthropic.Anthropic) -> None:
    # one block is 3 tokens of framing, its message 4
    short, enough = "a " * 504, "a " * 505
    for said_text, made in ((short, 0), (enough, 512)):
        for _ in range(2):
            answer = paid(ask(sdk, request(user(said_text.strip()), cache_control=MARK)))
            assert answer in ((511, 0, 0, 0), (0, 0, 512, 0), (0, 512, 0, 0))
            assert sum(answer) == (made or 511)
    with PracticeServer(min_cache=100) as lower, client(lower) as other:
        assert paid(ask(other, request(user(short.strip()), cache_control=MARK)))[2] == 511


def test_the_minimum_belongs_to_the_model(sdk: anthropic.Anthropic) -> None:
    body = request(user(LONG), cache_control=MARK)
    assert paid(ask(sdk, {**body, "model": "claude-opus-5-5"}))[2] > 0
    assert paid(ask(sdk, {**body, "model": "claude-sonnet-5-5"}))[2] == 0


def test_a_mark_looks_back_over_20_places_itself_included(sdk: anthropic.Anthropic) -> None:
    first = said(LONG)
    _, _, whole, _ = paid(ask(sdk, request(user({**first, "cache_control": MARK}))))
    for between, read in ((19, 0), (18, whole)):
        later = [said(f"block {between} {i}") for i in range(between)]
        answer = ask(sdk, request(user(first, *later, said("last", cache_control=MARK))))
        assert paid(answer)[1] == read
    # an anchor in the middle keeps a long turn readable
    blocks = [first, *(said(f"block {i}") for i in range(30))]
    blocks[15] = {**blocks[15], "cache_control": MARK}
    blocks[30] = {**blocks[30], "cache_control": MARK}
    assert paid(ask(sdk, request(user(*blocks))))[1] == whole


def test_an_unmarked_prefix_is_never_read(sdk: anthropic.Anthropic) -> None:
    ask(sdk, request(user(said(LONG), said("x", cache_control=MARK))))
    assert paid(ask(sdk, request(user(said(LONG, cache_control=MARK)))))[1] == 0  # the entry ends one block later


def test_an_entry_lives_as_long_as_its_mark_says(sdk: anthropic.Anthropic, clock: Clock) -> None:
    for mark, life in ((MARK, 300), (HOUR, 3_600)):
        body = request(system=system(mark, f"{life} {LONG}"))
        made = sum(paid(ask(sdk, body))[2:])
        clock.now += life - 1
        assert paid(ask(sdk, body))[1] == made
        clock.now += life + 1
        assert paid(ask(sdk, body))[1] == 0


def test_an_entry_is_renewed_by_reading_and_not_by_counting(sdk: anthropic.Anthropic, clock: Clock) -> None:
    # each read renews an entry
    body = request(system=system())
    ask(sdk, body)
    for _ in range(5):
        clock.now += 299
        assert paid(ask(sdk, body))[1] > 0
    # counting tokens does not renew an entry
    body = request(system=system())
    ask(sdk, body)
    clock.now += 299
    ask(sdk, {k: v for k, v in body.items() if k != "max_tokens"}, path="/v1/messages/count_tokens")
    clock.now += 2
    assert paid(ask(sdk, body))[1] == 0


CHANGES: dict[str, tuple[Body, set[str]]] = {
    "nothing": ({}, {"tools", "system", "messages"}),
    "tools": ({"tools": [{**TOOL, "description": "Other.", "cache_control": MARK}]}, set()),
    "system": ({"system": system(text=LONG + "!")}, {"tools"}),
    "messages": ({"messages": [user(said("other " + LONG, cache_control=MARK))]}, {"tools", "system"}),
    "model": ({"model": "claude-opus-5-5"}, set()),
    "thinking": ({"thinking": {"type": "disabled"}}, {"tools", "system"}),
    "tool choice": ({"tool_choice": {"type": "none"}}, {"tools", "system"}),
    "effort": ({"output_config": {"effort": "low"}}, {"tools", "system", "messages"}),
    "output format": (
        {
            "output_config": {
                "format": {"type": "json_schema", "schema": {"type": "object", "additionalProperties": False}}
            }
        },
        {"tools"},
    ),
}


def test_a_change_breaks_its_part_and_what_comes_after(server: PracticeServer, sdk: anthropic.Anthropic) -> None:
    tool = {**TOOL, "description": LONG, "cache_control": MARK}
    body = request(user(said(LONG, cache_control=MARK)), tools=[tool], system=system())
    for change, (changes, kept) in CHANGES.items():
        server.judge.cache.clear()
        first = paid(ask(sdk, body))
        sizes = {"system": 603, "messages": 607, "tools": first[2] - 603 - 607}
        read = paid(ask(sdk, {**body, **changes}))[1]
        assert read == sum(sizes[part] for part in kept), change


def test_what_is_and_what_is_not_part_of_a_prefix(sdk: anthropic.Anthropic) -> None:
    # the first image breaks the messages but not the system
    body = request(user(said(LONG, cache_control=MARK)), system=system())
    ask(sdk, body)
    pictured = {**body, "messages": [*body["messages"], assistant("x"), user(image(png(10, 10)))]}
    assert paid(ask(sdk, pictured))[1] == 603
    # a mark inside a result marks the result
    body = request(user("go"), assistant(use("a")), user(result("a", [said(LONG, cache_control=MARK)])), tools=[TOOL])
    ask(sdk, body)
    assert paid(ask(sdk, body))[1] > 600


def test_marks_and_the_split_into_messages_are_no_part_of_the_prefix(sdk: anthropic.Anthropic) -> None:
    ask(sdk, request(user(said(LONG, cache_control=MARK)), system=system()))
    together = request(user(said(LONG), said("more", cache_control=MARK)), system=LONG)
    apart = request(user(LONG), user("more"), system=LONG, cache_control=MARK)
    assert paid(ask(sdk, together))[1] == 603 + 607
    assert paid(ask(sdk, apart))[1] == 603 + 607 + 4


def test_an_entry_is_readable_once_the_first_response_has_begun(server: PracticeServer) -> None:
    body = request(system=system())
    waiting, begun = threading.Event(), threading.Event()

    def late(_: dict[str, Any]) -> Any:
        waiting.set()
        begun.wait(5)
        return replace(text("slow " * 40), delay=0.05)

    server.script(late)
    with client(server) as one, client(server) as two:
        slow = threading.Thread(target=_read_first_event, args=(one, body, begun_reading := threading.Event()))
        slow.start()
        assert waiting.wait(5)
        assert paid(ask(two, {**body, "messages": [user("second")]}))[1] == 0  # asked, but not begun
        server.judge.cache.clear()
        begun.set()
        assert begun_reading.wait(5)
        assert server.open_streams == 1
        assert paid(ask(two, {**body, "messages": [user("third")]}))[1] == 603
        slow.join(10)


def _read_first_event(sdk: anthropic.Anthropic, body: Body, begun: threading.Event) -> None:
    with sdk.messages.stream(**body) as stream:
        for _ in stream:
            begun.set()


def test_a_refused_or_failed_request_writes_nothing(server: PracticeServer, sdk: anthropic.Anthropic) -> None:
    body = request(system=system())
    server.script(fault(529))
    with pytest.raises(anthropic.APIStatusError):
        ask(sdk, body)
    assert len(server.judge.cache) == 0
    server.script(cut(text("x"), "eof"))
    with sdk.messages.stream(**body) as stream:
        list(stream)
    assert len(server.judge.cache) == 1


def test_max_tokens_0_warms_the_cache_without_output(server: PracticeServer, sdk: anthropic.Anthropic) -> None:
    server.script(text("not used by the warming request"))
    warmed = ask(sdk, request(system=system(), max_tokens=0))
    assert (warmed["content"], warmed["stop_reason"], warmed["usage"]["output_tokens"]) == ([], "max_tokens", 0)
    assert paid(ask(sdk, request(system=system())))[1] == 603
    assert server.scripted == 0


def test_diagnostics_name_what_changed(sdk: anthropic.Anthropic) -> None:
    changes: list[tuple[Body, str | None]] = [
        ({}, None),
        ({"model": "claude-opus-5-5"}, "model_changed"),
        ({"tools": []}, "tools_changed"),
        ({"system": "other"}, "system_changed"),
        ({"messages": [user("other"), user("more")]}, "messages_changed"),
        ({"messages": [user("hi")]}, "messages_changed"),
        ({"thinking": {"type": "disabled"}}, "unavailable"),
    ]
    body = request(user("hi"), assistant("x"), user("y"), system=system(), tools=[TOOL])
    for change, reason in changes:
        first = ask(sdk, {**body, "diagnostics": {"previous_message_id": None}})
        assert first["diagnostics"] is None
        grown = {**body, "messages": [*body["messages"], assistant("x"), user("z")], **change}
        found = ask(sdk, {**grown, "diagnostics": {"previous_message_id": first["id"]}})["diagnostics"]
        assert (found and found["cache_miss_reason"]["type"]) == reason
        if reason not in (None, "unavailable"):
            assert found["cache_miss_reason"]["cache_missed_input_tokens"] > 600
    found = ask(sdk, request(diagnostics={"previous_message_id": "msg_x"}))["diagnostics"]
    assert found == {"cache_miss_reason": {"type": "previous_message_not_found"}}
