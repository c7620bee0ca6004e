"""Hypothesis strategies: lists of events in any order, sensible or not, with ids as a journal gives them."""

from __future__ import annotations

import base64
import struct
from collections.abc import Sequence
from typing import Any

import msgspec
from hypothesis import strategies as st

from ipyagent.journal.events import (
    AssistantMessage,
    BlockDropped,
    Event,
    FileChanged,
    FilesRestored,
    KernelStarted,
    MessageReceived,
    ModelChosen,
    PermissionAnswered,
    PermissionAsked,
    Retrying,
    SessionStarted,
    Streamed,
    SystemPromptFrozen,
    SystemReminder,
    ThinkingDropped,
    ToolCalled,
    ToolReturned,
    TurnEnded,
    Usage,
    UsageReported,
    UserMessage,
)

PNG = base64.b64encode(
    b"\x89PNG\r\n\x1a\n" + struct.pack(">I4sII", 13, b"IHDR", 30, 20) + b"\x08\x02\0\0\0" + b"\0" * 8
).decode()
IMAGE = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PNG}}
DOCUMENT = {"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": "one page"}}
MARK = {"type": "ephemeral"}

_texts = st.sampled_from(["", " \n", "hi", "ok then", "größer 中文", "{'a': 1}", "[image]"])
_calls = st.sampled_from(["a", "b", "c", "d", "a_2", "call:1", "call.1", "call_1"])
_names = st.sampled_from(["python", "grep", "a b", "x" * 140])


def _text(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text}


_text_blocks = _texts.map(_text)
_marked = _texts.map(lambda text: {**_text(text), "cache_control": MARK})
_thoughts = st.one_of(
    st.builds(lambda t, s: {"type": "thinking", "thinking": t, "signature": s}, _texts, st.sampled_from(["", "s1"])),
    st.just({"type": "thinking", "thinking": "no signature"}),
    st.sampled_from([{"type": "redacted_thinking", "data": "x"}, {"type": "redacted_thinking"}]),
)
_uses = st.builds(
    lambda call, name, given: {"type": "tool_use", "id": call, "name": name, "input": given},
    _calls, _names, st.sampled_from([{}, {"code": "1"}, {"x": [None, 2.5]}]),
)
_results = _calls.map(lambda call: {"type": "tool_result", "tool_use_id": call, "content": "forged"})
_pictures = st.sampled_from([IMAGE, DOCUMENT, {**IMAGE, "cache_control": MARK}])
_shapeless = st.sampled_from(
    [{}, {"type": 3}, {"type": ""}, {"type": "text"}, {"type": "text", "text": 5}, {"type": "image"},
     {"type": "image", "source": "x"}, {"type": "tool_use"}, {"type": "tool_use", "id": "", "name": "python"},
     {"type": "tool_use", "id": "z", "name": 3}, {"type": "tool_use", "id": "y", "name": "python", "input": "no"}]
)
_found = {"type": "web_search_tool_result", "tool_use_id": "s", "content": []}
_unknown = st.sampled_from(
    [{"type": "server_tool_use", "id": "s", "name": "web_search"}, _found, {"type": "from_2028", "deep": [1]}]
)


def _lists(*kinds: st.SearchStrategy[Any]) -> st.SearchStrategy[tuple[Any, ...]]:
    return st.lists(st.one_of(*kinds), max_size=4).map(tuple)


def events(*, unknown: bool = True, decisions: bool = True) -> st.SearchStrategy[Event]:
    """One event. `unknown`: blocks of kinds that nobody knows too; `decisions`: those that change what was sent."""
    odd = (_shapeless, _unknown) if unknown else (_shapeless,)
    user = _lists(_text_blocks, _text_blocks, _marked, _pictures, _results, _uses, _thoughts, *odd)
    reply = _lists(_text_blocks, _thoughts, _thoughts, _uses, _uses, _uses, _marked, _results, _pictures, *odd)
    result = _lists(_text_blocks, _text_blocks, _pictures, _marked, _uses, *odd)
    tokens = st.sampled_from([0, 0, 7, 100])
    small = st.integers(0, 60)
    usage = st.builds(Usage, input=small, cache_read=st.integers(0, 9_000), output=small)
    strategies: list[st.SearchStrategy[Any]] = [
        st.builds(UserMessage, text=_texts, blocks=user, tokens=tokens),
        st.builds(SystemReminder, text=_texts, tokens=tokens),
        st.builds(MessageReceived, message=_calls, sender=_texts, text=_texts, tokens=tokens),
        st.builds(
            Streamed, channel=st.sampled_from(["text", "text", "tool", "thinking"]), text=_texts,
            ref=st.one_of(st.just(""), _calls),
        ),
        *[
            st.builds(
                AssistantMessage, blocks=reply, tokens=tokens,
                stop_reason=st.sampled_from(["end_turn", "tool_use", "pause_turn", "max_tokens", ""]),
            )
        ] * 3,
        st.builds(UsageReported, usage=usage, predicted=st.integers(0, 9_000), raw=st.integers(0, 900)),
        st.builds(ToolCalled, call=_calls, name=_names, input=st.just({})),
        *[
            st.builds(
                ToolReturned, call=_calls, name=_names, blocks=result, is_error=st.booleans(), tokens=tokens
            )
        ] * 3,
        st.sampled_from(
            [
                SessionStarted(session="s", version="1"),
                KernelStarted(stamp="k", resumed=True),
                PermissionAsked(call="a", tool="python", title="t", text="x"),
                PermissionAnswered(call="a", answer="once", by="user"),
                FileChanged(call="a", path="f"),
                FilesRestored(paths=("f",), since=3),
                Retrying(reason="busy", seconds=1.0),
                TurnEnded(status="stopped"),
            ]
        ),
    ]
    if decisions:
        upto = st.integers(0, 40)
        strategies += [
            st.builds(ModelChosen, model=st.sampled_from(["m", "n"])),
            st.builds(ThinkingDropped, upto=upto),
            st.builds(BlockDropped, event=upto),
            st.sampled_from(
                [
                    SystemPromptFrozen(system=(_text("be good"), _text("")), tools=(), tokens=12),
                    SystemPromptFrozen(
                        system=({**_text("be"), "cache_control": MARK},),
                        tools=({"name": "get", "input_schema": {"type": "object"}, "cache_control": MARK},),
                        tokens=40, tool_tokens=30,
                    ),
                ]
            ),
        ]
    return st.one_of(*strategies)


def numbered(found: Sequence[Any]) -> list[Event]:
    """The events with the ids that a journal would give them."""
    return [msgspec.structs.replace(event, id=i, parent=i - 1) for i, event in enumerate(found, 1)]


@st.composite
def turns(draw: st.DrawFn) -> list[Event]:
    """A turn as it happens, cut off anywhere: request, replies with thinking and calls, results, reports."""
    found: list[Event] = [
        UserMessage(text="go", blocks=(_text("go"), *draw(st.sampled_from([(), (IMAGE,)]))), tokens=7)
    ]
    for _ in range(draw(st.integers(1, 3))):
        calls = draw(st.lists(st.integers(0, 10**6).map(lambda n: f"t{n}"), max_size=3, unique=True))
        thinking = draw(st.sampled_from([(), ({"type": "thinking", "thinking": "hm", "signature": "s"},)]))
        uses = tuple({"type": "tool_use", "id": call, "name": "get", "input": {}} for call in calls)
        found.append(AssistantMessage(blocks=(*thinking, _text("so"), *uses), tokens=20, stop_reason="tool_use"))
        found.append(UsageReported(usage=Usage(input=draw(st.integers(1, 99)), output=20), predicted=40, raw=30))
        for call in draw(st.permutations(calls)):
            found.append(ToolCalled(call=call, name="get", input={}))
            found += [Streamed(channel="tool", text="out", ref=call)] * draw(st.integers(0, 1))
            content = draw(st.sampled_from([(_text("done"),), (_text("plot"), IMAGE), ()]))
            found.append(ToolReturned(call=call, name="get", blocks=content, is_error=draw(st.booleans()), tokens=9))
        found += [Streamed(channel="text", text="half")] * draw(st.integers(0, 1))
    return found[: draw(st.integers(1, len(found)))]


def event_lists(*, unknown: bool = True, decisions: bool = True, longest: int = 40) -> st.SearchStrategy[list[Event]]:
    """Lists of events in any order: single ones, whole turns and cut-off turns."""
    one = events(unknown=unknown, decisions=decisions)
    parts = st.lists(st.one_of(one.map(lambda event: [event]), st.lists(one, max_size=8), turns()), max_size=10)
    return parts.map(lambda found: numbered([event for part in found for event in part][:longest]))
