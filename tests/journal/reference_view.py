"""The view again, written the slow and plain way: from the whole list of events, in passes.

Pass 1 makes a flat list of items, each a block with its role and the event it came from. Pass 2
groups items into messages. Shares no code with `ipyagent.journal`, so the two can disagree.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from ipyagent.journal import events as e

THOUGHTS = {"thinking", "redacted_thinking"}


@dataclass
class Item:
    """One block of the conversation; `block` is a copy of its own."""

    role: str
    block: dict[str, Any]
    event: int


SEARCH, FOUND = "server_tool_use", "web_search_tool_result"


def reference(events: Sequence[Any]) -> list[dict[str, Any]]:
    """Messages of a list of events, without cache marks."""
    items: list[Item] = []
    used: set[str] = set()
    model = ""
    head: Any = ([], [])
    state = State()
    for place, event in enumerate(events):
        kind, size = type(event).__name__, len(items)
        if kind == "UserMessage":
            state.asked = event.id
        if kind in ("UserMessage", "SystemReminder", "MessageReceived", "AssistantMessage"):
            _close(items, events, place, state)
            size = len(items)
        if kind == "UserMessage":
            blocks = [block for block in map(_user_block, event.blocks) if block]
            items += _stopped(items) if blocks and state.paused else []
            items += [Item("user", block, event.id) for block in blocks]
        elif kind in ("SystemReminder", "MessageReceived") and event.text.strip():
            items += _stopped(items) if state.paused else []
            items.append(Item("user", {"type": "text", "text": event.text}, event.id))
        elif kind == "AssistantMessage":
            blocks = [block for block in (_reply_block(block, used) for block in event.blocks) if block]
            blocks = _searched(blocks, items, event)
            if any(block["type"] not in THOUGHTS for block in blocks):
                done = any(block["type"] == FOUND for block in blocks)
                items += [] if done else _stopped(items)
                items += [Item("assistant", block, event.id) for block in blocks]
                state.paused = event.stop_reason == "pause_turn"
        elif kind == "ToolReturned":
            _results_when_complete(items, events, place, state)
            continue
        elif kind == "TurnEnded":
            state.over = True
        elif kind == "SystemPromptFrozen":
            new = (_head(event.system), [_bare_tool(tool) for tool in event.tools])
            if items and new != head:
                state.over = not _open_calls(items)
                _forget(items, lambda item: True, state)
            head = new
        elif kind == "ModelChosen":
            if model and model != event.model:
                state.over = not _open_calls(items)
                _forget(items, lambda item: True, state)
            model = event.model
        elif kind == "ThinkingDropped":
            _forget(items, lambda item, upto=event.upto: item.event <= upto, state)
        elif kind == "BlockDropped":
            _blank(items, event.event, state)
        if kind in ("UserMessage", "SystemReminder", "MessageReceived", "AssistantMessage") and len(items) > size:
            state.over = False
            if kind != "AssistantMessage":
                state.paused = False
    return _group(items)


def _is_open(items: list[Item]) -> bool:
    """Whether the newest reply, or the one before the newest words of the user's, has a search without a result."""
    newest = next((message["content"] for message in _group(items)[:-3:-1] if message["role"] == "assistant"), [])
    kinds = [block["type"] for block in newest if block["type"] in (SEARCH, FOUND)]
    return kinds[-1:] == [SEARCH]


def _searched(blocks: list[Any], items: list[Item], event: Any) -> list[Any]:
    """A reply's blocks: one search at most, its result behind it (all searches here have one id)."""
    kept: list[Any] = []
    is_open, done, seen = _is_open(items), False, _is_open(items)
    answered = any(block["type"] == FOUND for block in blocks)
    goes_on = not event.partial and event.stop_reason in ("pause_turn", "tool_use")
    for block in blocks:
        if block["type"] == SEARCH:
            if seen or not (goes_on or answered):
                continue
            seen = is_open = True
        elif block["type"] == FOUND:
            if not is_open or done:
                continue
            done = True
        kept.append(block)
    return kept


def _stopped(items: list[Item]) -> list[Item]:
    error = {"type": f"{FOUND}_error", "error_code": "unavailable"}
    stopped = {"type": FOUND, "tool_use_id": "s", "content": error}
    return [Item("assistant", stopped, 0)] if _is_open(items) else []


@dataclass
class State:
    """`bare`: calls whose reply lost its thinking; `over`: the turn has ended; `paused`: so did the reply;
    `asked`: the newest request."""

    bare: set[str] = field(default_factory=set)
    over: bool = False
    asked: int = 0
    paused: bool = False


def _head(blocks: Sequence[Any]) -> list[Any]:
    return [block for block in map(_user_block, blocks) if block]


def _bare_tool(tool: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in tool.items() if key != "cache_control"}


def _part(items: list[Item], state: State) -> None:
    """A reply that lost its thinking is not the newest one any more: words of ours follow its results."""
    last = max((i for i, item in enumerate(items) if item.role == "assistant"), default=-1)
    if last < 0 or last == len(items) - 1:
        return
    first = last
    while first and items[first - 1].role == "assistant":
        first -= 1
    if not any(item.block.get("id") in state.bare for item in items[first : last + 1]):
        return
    at = last + 1
    while at < len(items) and items[at].block["type"] == "tool_result":
        at += 1
    ended = state.over or max(item.event for item in items[first : last + 1]) < state.asked
    open_still = "(Earlier reasoning was dropped to save room. The request is still open.)"
    words = [Item("assistant", _text("(this turn ended here)" if ended else open_still), 0)]
    if at == len(items) and not state.over:
        words.append(Item("user", _text("Go on."), 0))
    items[at:at] = words


def _close(items: list[Item], events: Sequence[Any], place: int, state: State) -> None:
    """What must stand before the message-making event at `place`: error results, then cut-off text."""
    calls = _open_calls(items)
    if calls:
        results = []
        for wire, raw in calls:
            at = _reply_place(events, place)
            given = _result(events, at, place, raw)
            if given is None:
                told = "".join(
                    piece.text for piece in events[at:place] if isinstance(piece, e.Streamed)
                    and piece.channel == "tool" and piece.ref == raw
                )
                ran = any(isinstance(o, e.ToolCalled) and o.call == raw for o in events[at:place])
                text = "This call was cut off before it returned."
                if told.strip():
                    text += "\n" + told
                elif not ran:
                    text = "This call was not run: the turn was cut off first."
                block = {"type": "tool_result", "tool_use_id": wire, "content": [_text(text)], "is_error": True}
                results.append(Item("user", block, 0))
            else:
                results.append(_result_item(given, wire, events[:place]))
        items += results
        state.paused = False
        _part(items, state)
    if isinstance(events[place], e.AssistantMessage):
        return
    text = ""
    for event in events[:place]:
        if isinstance(event, e.UserMessage | e.SystemReminder | e.MessageReceived | e.AssistantMessage):
            text = ""
        elif isinstance(event, e.Streamed) and event.channel == "text":
            text += event.text
    if text.strip():
        items.append(Item("assistant", _text(f"{text}\n[cut off here]"), 0))


def _reply_place(events: Sequence[Any], place: int) -> int:
    """Where the newest reply before `place` is."""
    return max(i for i in range(place) if isinstance(events[i], e.AssistantMessage))


def _open_calls(items: list[Item]) -> list[tuple[str, str]]:
    answered = {item.block["tool_use_id"] for item in items if item.block["type"] == "tool_result"}
    return [
        (item.block["id"], item.block["_raw"])
        for item in items
        if item.block["type"] == "tool_use" and item.block["id"] not in answered
    ]


def _result(events: Sequence[Any], start: int, stop: int, call: str) -> Any:
    """The first result of a call between two places."""
    for event in events[start:stop]:
        if isinstance(event, e.ToolReturned) and event.call == call:
            return event
    return None


def _results_when_complete(items: list[Item], events: Sequence[Any], place: int, state: State) -> None:
    calls = _open_calls(items)
    if not calls:
        return
    at = _reply_place(events, place)
    found = [(_result(events, at, place + 1, raw), wire) for wire, raw in calls]
    if all(result is not None for result, _ in found):
        items += [_result_item(result, wire, events[: place + 1]) for result, wire in found]
        state.paused = False
        _part(items, state)


def _result_item(event: Any, wire: str, events: Sequence[Any]) -> Item:
    content = [block for block in map(_user_block, event.blocks) if block]
    # a picture that was refused while other calls of the reply were still running is gone before it is ever seen
    at = next(i for i in range(len(events)) if events[i] is event)
    refused = any(isinstance(o, e.BlockDropped) and o.event == event.id for o in events[at:])
    for i, block in enumerate(content):
        if (event.is_error and block["type"] != "text") or (refused and block["type"] in ("image", "document")):
            content[i] = _text(f"[{block['type']}]")
    result: dict[str, Any] = {
        "type": "tool_result", "tool_use_id": wire, "content": content or [_text("(no output)")],
    }
    if event.is_error:
        result["is_error"] = True
    return Item("user", result, event.id)


def _text(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text}


def _user_block(block: dict[str, Any]) -> dict[str, Any] | None:
    kind = block.get("type")
    if not isinstance(kind, str) or kind in ("", "tool_use", "tool_result", *THOUGHTS):
        return None
    if kind == "text" and (not isinstance(block.get("text"), str) or block["text"].strip() == ""):
        return None
    if kind in ("image", "document") and not isinstance(block.get("source"), dict):
        return None
    made = copy.deepcopy(block)
    made.pop("cache_control", None)
    return made


def _reply_block(block: dict[str, Any], used: set[str]) -> dict[str, Any] | None:
    kind = block.get("type")
    if kind == "thinking":
        ok = isinstance(block.get("thinking"), str) and isinstance(block.get("signature"), str) and block["signature"]
        return copy.deepcopy(block) if ok else None
    if kind == "redacted_thinking":
        return copy.deepcopy(block) if isinstance(block.get("data"), str) and block["data"] else None
    if kind not in ("text", "tool_use", SEARCH, FOUND):
        return None
    if kind != "tool_use":
        return _user_block(block)
    raw, name = block.get("id"), block.get("name")
    if not (isinstance(raw, str) and raw and raw not in used and isinstance(name, str) and name):
        return None
    plain = re.sub("[^a-zA-Z0-9_-]", "_", raw)
    wire = next(w for w in [plain, *(f"{plain}_{i}" for i in range(2, 1_000))] if w not in used)
    used.update((raw, wire))
    made = copy.deepcopy(block)
    made.pop("cache_control", None)
    made["id"], made["_raw"] = wire, raw
    made["name"] = re.sub("[^a-zA-Z0-9_-]", "_", name)[:128]
    if not isinstance(made.get("input"), dict):
        made["input"] = {}
    return made


def _forget(items: list[Item], wanted: Any, state: State) -> None:
    runs: dict[int, list[Item]] = {}
    number = 0
    for i, item in enumerate(items):
        number += bool(i) and item.role != items[i - 1].role
        runs.setdefault(number, []).append(item)
    gone = [item for item in items if item.block["type"] in THOUGHTS and wanted(item)]
    for run in runs.values():
        if any(item is other for item in run for other in gone):
            state.bare |= {item.block["id"] for item in run if item.block["type"] == "tool_use"}
    items[:] = [item for item in items if not any(item is other for other in gone)]
    _part(items, state)


def _blank(items: list[Item], event: int, state: State) -> None:
    """Pictures of an event become words, and the thinking after the first of them goes."""
    first = None
    for i, item in enumerate(items):
        if item.event != event or item.role != "user":
            continue
        blocks = item.block["content"] if item.block["type"] == "tool_result" else [item.block]
        for block in blocks:
            if block["type"] in ("image", "document"):
                kind = block["type"]
                block.clear()
                block.update(_text(f"[{kind}]"))
                first = i if first is None else first
    if first is not None:
        late = items[first:]
        _forget(items, lambda item: any(item is other for other in late), state)
        if state.paused:
            state.paused = False
            items.append(Item("user", _text("Go on."), 0))


def _group(items: list[Item]) -> list[dict[str, Any]]:
    messages: list[dict[str, Any]] = []
    for item in items:
        block = {key: value for key, value in item.block.items() if key != "_raw"}
        if not messages and item.role == "assistant":
            messages.append({"role": "user", "content": [_text("(the session begins here)")]})
        if not messages or messages[-1]["role"] != item.role:
            messages.append({"role": item.role, "content": []})
        messages[-1]["content"].append(block)
    return messages
