"""Context management on the server: what a request asks of it, clearing, and summaries.

What a request asks the server to do with its context: `context_management` and `compaction`, checked and read.

Field names, defaults and limits as in the API's public documentation; a wrong shape is refused.

Clears old thinking and old tool results of a prompt, as `context_management.edits` ask; the client's messages stay.

The server keeps nothing of earlier requests. To clear in batches all the same, it goes through the conversation from
its beginning and decides, at each place where a reply was asked for, what was to be cleared then: so the same
results stay cleared in every later request, and the prefix changes only when the trigger is passed anew. Tokens
compared with the trigger are those of the prompt as sent, less what was cleared of tool uses. Figures in
`applied_edits` compare with the prompt as sent.

Summaries written on the server: when, of what, at what price. The words come from the server's summariser.

The summarising call reads the prompt as it is (from the cache where it can) and the words that ask for the summary. A
threshold compaction then answers from system prompt, tools and the summary alone; a `compaction` request, and one that
pauses, answer with the summary and nothing else.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, Final

from ipyagent.practice.replies import Reply
from ipyagent.practice.server.cache import Account
from ipyagent.practice.server.models import ModelCard, Refused, need, no_more
from ipyagent.practice.server.prompt import THRESHOLD, Anchor, Placed, Prompt, Reader, signed_block, threshold_block
from ipyagent.practice.server.tokens import BLOCK, MESSAGE, count_text

EDITING: Final = "context-management-2025-06-27"
LEAST_TRIGGER: Final = 50_000
LONGEST_INSTRUCTIONS: Final = 16_384
_PATH: Final = "context_management.edits"
_EDITS: Final[Mapping[str, tuple[str, tuple[str, ...]]]] = {
    "clear_thinking_20251015": (EDITING, ("keep",)),
    "clear_tool_uses_20250919": (
        EDITING, ("trigger", "keep", "clear_at_least", "exclude_tools", "clear_tool_inputs"),
    ),
    "compact_20260112": (THRESHOLD, ("trigger", "instructions", "pause_after_compaction")),
}  # fmt: skip
"""The edits with the beta that each needs and its fields."""


@dataclass(frozen=True, slots=True)
class ClearThinking:
    """Thinking of the latest `keep` turns stays; None: all of it."""

    keep: int | None


@dataclass(frozen=True, slots=True)
class ClearTools:
    """Old results go once the prompt has more than `trigger` input tokens (or tool uses, when `by_uses`).

    `inputs`: whether the calls' inputs go too, of these tools (None: of none).
    """

    by_uses: bool = False
    trigger: int = 100_000
    keep: int = 3
    at_least: int = 0
    exclude: frozenset[str] = frozenset()
    all_inputs: bool = False
    inputs: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Compact:
    """A summary once the prompt has `trigger` input tokens; 0: now, as the `compaction` parameter asks."""

    trigger: int
    instructions: str = ""
    pause: bool = False


@dataclass(frozen=True, slots=True)
class Management:
    """The edits a request asks for; `asked`: it has `context_management`; `summarize`: it has `compaction`."""

    asked: bool = False
    thinking: ClearThinking | None = None
    tools: ClearTools | None = None
    compact: Compact | None = None
    summarize: Compact | None = None


def management(
    body: Mapping[str, Any], card: ModelCard, betas: frozenset[str], compacts: bool = True, least: int = LEAST_TRIGGER
) -> Management:
    """What a body asks for; raises `Refused`. `compacts` False: the server passes over compaction edits, as over any
    field it does not know; `least`: smallest trigger of a compaction, in tokens."""
    asked: Any = body.get("context_management")
    wanted = body.get("compaction")
    if asked is None and wanted is None:
        return Management()
    need(asked is None or wanted is None, "compaction: cannot be combined with `context_management`")
    if wanted is not None:
        return Management(summarize=_summarize(wanted, body, card))
    need(card.manages, f"context_management: not supported for {card.id}")
    need(isinstance(asked, dict), "context_management: Input should be an object")
    no_more(asked, ("edits",), "context_management")
    edits = asked.get("edits") or []
    need(isinstance(edits, list), f"{_PATH}: Input should be a list")
    found: dict[str, Mapping[str, Any]] = {}
    for i, edit in enumerate(edits):
        kind = edit.get("type") if isinstance(edit, dict) else None
        if not isinstance(kind, str) or kind not in _EDITS:
            raise Refused(f"{_PATH}.{i}: Input tag {kind!r} found using 'type' does not match any of the expected tags")
        beta, fields = _EDITS[kind]
        need(beta in betas, f"{_PATH}.{i}: `{kind}` requires `{beta}` in the `anthropic-beta` header")
        no_more(edit, ("type", *fields), f"{_PATH}.{i}.{kind}")
        need(kind not in found, f"{_PATH}.{i}: `{kind}` is there more than once")
        need(kind != "clear_thinking_20251015" or not i,
             f"{_PATH}.{i}: the `{kind}` strategy must be the first of the edits")  # fmt: skip
        found[kind] = {name: value for name, value in edit.items() if value is not None}
    thinking, tools = found.get("clear_thinking_20251015"), found.get("clear_tool_uses_20250919")
    compact = found.get("compact_20260112")
    return Management(
        True,
        None if thinking is None else _clear_thinking(thinking, body, card),
        None if tools is None else _clear_tools(tools),
        None if compact is None or not compacts else _compact(compact, least),
    )


def _amount(given: Any, kinds: tuple[str, ...], path: str, least: int = 0) -> tuple[str, int]:
    """The kind and the value of `{"type": …, "value": …}`."""
    need(isinstance(given, dict) and given.get("type") in kinds,
         f"{path}.type: Input should be {' or '.join(map(repr, kinds))}")  # fmt: skip
    no_more(given, ("type", "value"), path)
    value = given.get("value")
    need(type(value) is int, f"{path}.value: Input should be a valid integer")
    need(value >= least, f"{path}.value: Input should be greater than or equal to {least}")
    return str(given["type"]), int(value)


def _names(given: Any, path: str) -> frozenset[str]:
    need(isinstance(given, list) and all(isinstance(name, str) for name in given),
         f"{path}: Input should be a list of strings")  # fmt: skip
    return frozenset(given)


def _clear_thinking(edit: Mapping[str, Any], body: Mapping[str, Any], card: ModelCard) -> ClearThinking:
    kind = (body.get("thinking") or {}).get("type") or ("adaptive" if card.thinking == {"adaptive"} else "disabled")
    need(kind != "disabled", "`clear_thinking_20251015` strategy requires `thinking` to be enabled or adaptive")
    keep = edit.get("keep", {"type": "thinking_turns", "value": 1} if card.line == "haiku" else "all")
    if keep == "all" or keep == {"type": "all"}:
        return ClearThinking(None)
    return ClearThinking(_amount(keep, ("thinking_turns",), f"{_PATH}.0.keep", 1)[1])


def _clear_tools(edit: Mapping[str, Any]) -> ClearTools:
    path = f"{_PATH}.clear_tool_uses_20250919"

    def amount(name: str, *kinds: str, usual: int) -> tuple[str, int]:
        return _amount(edit.get(name, {"type": kinds[0], "value": usual}), kinds, f"{path}.{name}")

    kind, trigger = amount("trigger", "input_tokens", "tool_uses", usual=100_000)
    inputs = edit.get("clear_tool_inputs", False)
    return ClearTools(
        by_uses=kind == "tool_uses",
        trigger=trigger,
        keep=amount("keep", "tool_uses", usual=3)[1],
        at_least=amount("clear_at_least", "input_tokens", usual=0)[1],
        exclude=_names(edit.get("exclude_tools", []), f"{path}.exclude_tools"),
        all_inputs=inputs is True,
        inputs=frozenset() if isinstance(inputs, bool) else _names(inputs, f"{path}.clear_tool_inputs"),
    )


def _compact(edit: Mapping[str, Any], least: int) -> Compact:
    path = f"{_PATH}.compact_20260112"
    trigger = 150_000
    if "trigger" in edit:
        trigger = _amount(edit["trigger"], ("input_tokens",), f"{path}.trigger", least)[1]
    pause = edit.get("pause_after_compaction", False)
    need(isinstance(pause, bool), f"{path}.pause_after_compaction: Input should be a valid boolean")
    return Compact(trigger, _instructions(edit.get("instructions"), path), pause)


def _instructions(given: Any, path: str) -> str:
    given = "" if given is None else given
    need(isinstance(given, str), f"{path}.instructions: Input should be a valid string")
    need(len(given) <= LONGEST_INSTRUCTIONS,
         f"{path}.instructions: String should have at most {LONGEST_INSTRUCTIONS} characters")  # fmt: skip
    return str(given).strip()


def _summarize(wanted: Any, body: Mapping[str, Any], card: ModelCard) -> Compact:
    need(card.manages, f"compaction: not supported for {card.id}")
    need(isinstance(wanted, dict) and wanted.get("type") == "summarize", "compaction.type: Input should be 'summarize'")
    no_more(wanted, ("type", "instructions"), "compaction")
    for other, there in {
        "`stop_sequences`": body.get("stop_sequences"),
        "`output_config.format`": (body.get("output_config") or {}).get("format"),
        "a `tool_choice` that forces a tool": (body.get("tool_choice") or {}).get("type") in ("any", "tool"),
    }.items():
        need(not there, f"compaction: cannot be combined with {other}")
    messages = body.get("messages")
    if messages == []:
        raise Refused("compaction: there is nothing to summarize", code="compaction_nothing_to_summarize")
    last = messages[-1] if isinstance(messages, list) else None
    if isinstance(last, dict) and last.get("role") == "assistant" and isinstance(last.get("content"), list):
        uses = [b.get("id") for b in last["content"] if isinstance(b, dict) and b.get("type") == "tool_use"]
        if uses:
            raise Refused(
                f"compaction: the last assistant turn is not finished: no result yet for {', '.join(map(str, uses))}",
                code="compaction_incomplete_turn",
            )
    return Compact(0, _instructions(wanted.get("instructions"), "compaction"))


def ask_of(compact: Compact) -> str:
    """The words that ask the summarising call for the summary, which it is charged for."""
    return compact.instructions or (
        "Summarize the conversation so far so that the work can go on from the summary alone: what the user wants and "
        "said, files, variables and code, errors and their fixes, results with their numbers, what is open, what "
        "comes next. Answer with the summary in <summary> tags; call no tool."
    )


CLEARED: Final = "[Result cleared by the server to save context]"

Block = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Edited:
    """The prompt the model reads, what was done, and new blocks by message and place in it."""

    prompt: Prompt
    applied: tuple[dict[str, Any], ...] = ()
    changed: Mapping[tuple[int, int], Block] | None = None

    def body(self, body: Mapping[str, Any]) -> Mapping[str, Any]:
        """The body with the cleared results of finished turns; those of the turn that goes on stay whole.

        The practice model has no memory: it goes through its turn again for each reply and needs the results.
        """
        if not self.changed:
            return body
        messages = body["messages"]
        opened = max((i for i, message in enumerate(messages) if _asks(message)), default=0)
        made = [
            {**message, "content": [self.changed.get((i, j), block) for j, block in enumerate(message["content"])]}
            if i < opened and isinstance(message["content"], list)
            else message
            for i, message in enumerate(messages)
        ]
        return {**body, "messages": made}


def _asks(message: Block) -> bool:
    content = message["content"]
    return message["role"] == "user" and (
        isinstance(content, str) or not any(block["type"] == "tool_result" for block in content)
    )


@dataclass(frozen=True, slots=True)
class _Result:
    """A tool use with its result, and what clearing them saves."""

    name: str
    places: tuple[tuple[int, Placed], ...]
    saves: int


def edited(prompt: Prompt, wanted: Management, reader: Reader) -> Edited:
    """The prompt after the clearing edits."""
    applied: list[dict[str, Any]] = []
    gone: frozenset[int] = frozenset()
    if wanted.thinking is not None and wanted.thinking.keep is not None:
        turns = [turn for turn in _thinking_turns(prompt.blocks) if turn]
        old = turns[: -wanted.thinking.keep]
        gone = frozenset(i for turn in old for i in turn)
        if gone:
            saved = prompt.tokens - prompt.without(gone).tokens
            applied.append(
                {
                    "type": "clear_thinking_20251015",
                    "cleared_thinking_turns": len(old),
                    "cleared_input_tokens": saved,
                }
            )
    cleared = _cleared(prompt, wanted.tools, reader) if wanted.tools is not None else []
    changed: dict[tuple[int, int], Block] = {}
    if cleared:
        blocks = list(prompt.blocks)
        for result in cleared:
            for i, placed in result.places:
                blocks[i] = placed
                changed[placed.message, placed.index] = placed.block
        prompt = Prompt(tuple(blocks))
        applied.append(
            {
                "type": "clear_tool_uses_20250919",
                "cleared_tool_uses": len(cleared),
                "cleared_input_tokens": sum(result.saves for result in cleared),
            }
        )
    return Edited(prompt.without(gone), tuple(applied), changed)


def _thinking_turns(blocks: Sequence[Placed]) -> Iterator[list[int]]:
    """Places of thinking blocks by turn; tool results do not end a turn, words of the user do."""
    turn: list[int] = []
    for i, placed in enumerate(blocks):
        if placed.role == "user" and placed.block["type"] != "tool_result" and turn:
            yield turn
            turn = []
        if placed.thinks:
            turn.append(i)
    yield turn


def _cleared(prompt: Prompt, rule: ClearTools, reader: Reader) -> list[_Result]:
    """The tool uses that are cleared by the end of the prompt, oldest first."""
    uses: dict[str, int] = {}
    waiting: list[_Result] = []
    gone: list[_Result] = []
    saved = 0
    blocks = prompt.blocks
    for i, (placed, following) in enumerate(pairwise([*blocks, None])):
        assert placed is not None
        if placed.block.get("type") == "tool_use" and placed.part == "messages":
            uses[placed.block["id"]] = i
        elif placed.block.get("type") == "tool_result" and placed.block["tool_use_id"] in uses:
            waiting.append(_result(blocks, uses[placed.block["tool_use_id"]], i, rule, reader))
        asked = following is None or (following.role == "assistant" and placed.role != "assistant")
        if not asked or placed.part != "messages":
            continue
        size = len(waiting) if rule.by_uses else prompt.upto[i] - saved
        if size <= rule.trigger:
            continue
        old = waiting[: max(0, len(waiting) - rule.keep)]
        batch = [result for result in old if result.name not in rule.exclude and result.saves > 0]
        freed = sum(result.saves for result in batch)
        if batch and freed >= rule.at_least:
            saved += freed
            gone += batch
            going = {id(result) for result in batch}
            waiting = [result for result in waiting if id(result) not in going]
    return gone


def _result(blocks: Sequence[Placed], use: int, at: int, rule: ClearTools, reader: Reader) -> _Result:
    call, result = blocks[use], blocks[at]
    name = str(call.block["name"])
    places = [(at, _with(result, {**result.block, "content": CLEARED}, reader))]
    if rule.all_inputs or name in rule.inputs:
        places.append((use, _with(call, {**call.block, "input": {}}, reader)))
    saves = sum(blocks[i].tokens - placed.tokens for i, placed in places)
    return _Result(name, tuple(places), saves)


def _with(placed: Placed, block: Block, reader: Reader) -> Placed:
    digest = reader.digest(block)
    tokens = reader.count("messages", block, digest) + placed.framing
    return replace(placed, block=block, digest=digest, tokens=tokens)


Summariser = Callable[[Mapping[str, Any]], "str | Reply | None"]
"""From a request's body to the text of a summary. None: no text came. A reply: the call ended otherwise, with its stop
reason. May raise `Refused`, as for status 529 and code `compaction_unavailable`."""

NO_USAGE: Final[Mapping[str, int]] = {
    "input_tokens": 0, "cache_creation_input_tokens": 0, "cache_read_input_tokens": 0, "output_tokens": 0,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Summarised:
    """What came of a summarising call: its block (None: no block is sent), how it stopped, what it cost.

    `alone`: the block is the whole answer.
    """

    block: Mapping[str, Any] | None
    stop: str
    alone: bool
    cost: Mapping[str, Any]

    @property
    def replaces(self) -> bool:
        """Whether the answer is written from the summary instead of the messages."""
        return self.block is not None and self.block["content"] is not None

    @property
    def reply(self) -> Reply | None:
        """The answer, when the summary is all of it."""
        if not self.alone:
            return None
        return Reply((dict(self.block),), "compaction") if self.block is not None else Reply((), self.stop)


def due(wanted: Management, prompt: Prompt) -> Compact | None:
    """The compaction that this prompt calls for."""
    if wanted.summarize is not None:
        return wanted.summarize
    compact = wanted.compact
    return compact if compact is not None and prompt.tokens >= compact.trigger else None


def summarised(
    compact: Compact,
    sent: Prompt,
    read: Prompt,
    account: Account | None,
    words: str | Reply | None,
    room: int,
    bound: bool,
) -> Summarised:
    """The outcome of the call; `sent` is the prompt as the client has it, `read` as it was summarised, `room` the most
    tokens the summary may have, `bound` whether the model binds thinking."""
    asking = MESSAGE + BLOCK + count_text(ask_of(compact))
    paid = account.usage() if account is not None else {"input_tokens": read.tokens}
    cost: dict[str, Any] = {**NO_USAGE, **paid}
    cost["input_tokens"] += asking
    stop, content = "compaction", words if isinstance(words, str) and words.strip() else None
    if content is None:
        stop = words.stop_reason if isinstance(words, Reply) else "end_turn"
    elif (size := BLOCK + count_text(content)) > room:
        stop, content, cost["output_tokens"] = "max_tokens", None, room
    else:
        cost["output_tokens"] = size
    demand = compact.trigger == 0
    if not demand:
        block: Mapping[str, Any] | None = threshold_block(content)
    elif content is None:
        block = None
    else:
        last = sent.blocks[-1].role
        block = signed_block(content, Anchor(sent.base, sent.end if bound else b"", last))
    alone = demand or (compact.pause and content is not None)
    return Summarised(block, stop, alone, {"type": "compaction", **cost})
