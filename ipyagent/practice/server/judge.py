"""From a request's body to the message that answers it: rules, prompt, cache, limits, diagnostics; no HTTP."""

from __future__ import annotations

import hashlib
import json
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

from ipyagent.practice.replies import Reply
from ipyagent.practice.server.cache import Account, PromptCache, check_marks
from ipyagent.practice.server.management import (
    LEAST_TRIGGER,
    NO_USAGE,
    Edited,
    Management,
    Summarised,
    Summariser,
    due,
    edited,
    management,
    summarised,
)
from ipyagent.practice.server.models import BLOCK_BINDING, PRACTICE, ModelCard, Refused, need
from ipyagent.practice.server.prompt import START, THRESHOLD, Prompt, Reader, Thoughts, check_blocks
from ipyagent.practice.server.rules import check_conversation, check_end, check_parameters
from ipyagent.practice.server.tokens import BLOCK, count_text, cut_text
from ipyagent.practice.server.web import Playing, is_result, waiting_in

_KEEP: Final = 20_000


@dataclass(frozen=True, slots=True)
class Fingerprint:
    """What is kept of a request to compare later ones with; `cached` is tokens up to its last mark."""

    model: str
    tools: bytes
    system: bytes
    messages: int
    end: bytes
    settings: str
    cached: int


class Diagnoses:
    """The fingerprints of answered requests by message id."""

    def __init__(self) -> None:
        self._known: dict[str, Fingerprint] = {}

    def remember(self, message_id: str, body: Mapping[str, Any], prompt: Prompt) -> None:
        """Keep the request that was answered with this message."""
        if len(self._known) >= _KEEP:
            del self._known[next(iter(self._known))]
        self._known[message_id] = fingerprint(body, prompt)

    def compare(self, body: Mapping[str, Any], prompt: Prompt) -> dict[str, Any] | None:
        """The `diagnostics` of the response; None when nothing diverged or nothing was asked."""
        previous = (body.get("diagnostics") or {}).get("previous_message_id")
        if not previous:
            return None
        old = self._known.get(previous)
        if old is None:
            return {"cache_miss_reason": {"type": "previous_message_not_found"}}
        kind = _divergence(old, fingerprint(body, prompt), prompt)
        if kind is None:
            return None
        reason: dict[str, Any] = {"type": kind}
        if kind != "unavailable":
            reason["cache_missed_input_tokens"] = old.cached
        return {"cache_miss_reason": reason}


def fingerprint(body: Mapping[str, Any], prompt: Prompt) -> Fingerprint:
    """The fingerprint of one request."""
    last = {"tools": -1, "system": -1, "messages": -1}
    marked = 0
    for i, placed in enumerate(prompt.blocks):
        last[placed.part] = i
        if placed.ttl:
            marked = prompt.upto[i]
    chain = prompt.chain
    at_tools = chain[last["tools"]] if last["tools"] >= 0 else START
    return Fingerprint(
        model=f"{body.get('model')} {body.get('speed') or 'standard'}",
        tools=at_tools,
        system=chain[last["system"]] if last["system"] >= 0 else at_tools,
        messages=len(prompt.blocks),
        end=chain[-1] if chain else START,
        settings=json.dumps([body.get("thinking"), body.get("tool_choice"), body.get("output_config")], sort_keys=True),
        cached=marked,
    )


def _divergence(old: Fingerprint, new: Fingerprint, prompt: Prompt) -> str | None:
    if old.model != new.model:
        return "model_changed"
    if old.tools != new.tools:
        return "tools_changed"
    if old.system != new.system:
        return "system_changed"
    if new.messages < old.messages or (old.messages and prompt.chain[old.messages - 1] != old.end):
        return "messages_changed"
    return "unavailable" if old.settings != new.settings else None


ABILITIES: Final = frozenset(
    ("caching", "models", "count_tokens", "thinking", "images", "output_config", "diagnostics", "system_messages",
     "context_management", "compaction", "batches", "server_tools")
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Accepted:
    """A request that keeps the rules, ready to be answered.

    `prompt` is what the client sent and binds its thinking to; `read` what the model reads, is counted and cached:
    edited, and after a compaction the summary alone. `whole`: tokens before edits and summaries. `heard`: the body
    as the brain gets it. `counts`: every sampling call is to be listed in `usage.iterations`.
    """

    body: Mapping[str, Any]
    card: ModelCard
    prompt: Prompt
    read: Prompt
    account: Account | None
    transformations: tuple[dict[str, Any], ...]
    edits: Edited
    whole: int
    managed: bool = False
    counts: bool = False
    summary: Summarised | None = None

    @property
    def heard(self) -> Mapping[str, Any]:
        """The body for the brain; a compaction of this very request is not in it."""
        return self.edits.body(self.body)

    @property
    def changed(self) -> bool:
        """Whether the model reads other messages than were sent."""
        return bool(self.edits.applied) or self.whole != self.read.tokens

    @property
    def bound_to(self) -> Prompt:
        """The prompt that new thinking is bound to."""
        return self.read if self.summary is not None and self.summary.replaces else self.prompt


@dataclass
class Judge:
    """Accepts or refuses requests, and finishes replies.

    `without`: abilities this server lacks; `refuse_unknown`: fields it refuses as unknown; `any_model`: unknown
    models are answered as the practice model (local servers do). `summarise` writes what a compaction is to say;
    `least_trigger` is the smallest trigger of one, in tokens.
    """

    cards: dict[str, ModelCard]
    clock: Callable[[], float]
    without: frozenset[str] = frozenset()
    refuse_unknown: frozenset[str] = frozenset()
    any_model: bool = False
    summarise: Summariser = lambda body: None
    least_trigger: int = LEAST_TRIGGER
    reader: Reader = field(default_factory=Reader)
    thoughts: Thoughts = field(default_factory=Thoughts)
    diagnoses: Diagnoses = field(default_factory=Diagnoses)
    cache: PromptCache = field(init=False)

    def __post_init__(self) -> None:
        self.cache = PromptCache(self.clock)

    def accept(self, sent: Mapping[str, Any], betas: frozenset[str], counting: bool = False) -> Accepted:
        """The request as the model will read it; raises `Refused`. Reads (and renews) the cache unless `counting`."""
        body = self._known_fields(sent)
        card = self._card(body.get("model"))
        check_parameters(body, card, betas, counting)
        messages = body.get("messages")
        wanted = management(body, card, betas, "compaction" not in self.without, self.least_trigger)
        check_conversation(messages, card)
        assert isinstance(messages, list)
        check_blocks(messages, betas, wanted.compact is not None)
        images = self.reader.pictures.check(messages, card.max_images)
        need(not images or "images" not in self.without, f"messages: {card.id} does not take images")
        prompt = self.reader.read(body)
        marked = body.get("cache_control") or any(placed.ttl for placed in prompt.blocks)
        need(not marked or "cache_control" not in self.refuse_unknown, "cache_control: Extra inputs are not permitted")
        caching = "caching" not in self.without
        if caching:
            prompt = check_marks(body, prompt)
        binding = (body.get("thinking") or {}).get("block_binding") or {}
        drop = BLOCK_BINDING in betas and binding.get("prefix_mismatch_behavior") == "drop_block"
        if wanted.summarize is None:
            check_end(messages, card, self.thoughts.was_paused(prompt))
        prompt, transformations = self.thoughts.check(prompt, body, card, drop)
        edits = edited(prompt, wanted, self.reader)
        size = edits.prompt.tokens
        need(size <= card.window, f"prompt is too long: {size} tokens > {card.window} maximum")
        account = None
        if caching and not counting:
            account = self.cache.account(body, edits.prompt, card.min_cache, images > 0)
        whole = self.reader.read(body, whole=True).tokens if wanted.asked else edits.prompt.tokens
        counts = wanted.summarize is not None or THRESHOLD in betas
        accepted = Accepted(
            body, card, prompt, edits.prompt, account, tuple(transformations), edits, whole, wanted.asked, counts
        )
        return accepted if counting else self._compacted(accepted, wanted)

    def _compacted(self, accepted: Accepted, wanted: Management) -> Accepted:
        """The request with the summary that it asks for, or that its size calls for."""
        compact, body, card = due(wanted, accepted.read), accepted.body, accepted.card
        if compact is None:
            return accepted
        self.begin(accepted)  # the summarising call is answered before the reply begins
        room = min(int(body["max_tokens"]) if compact.trigger == 0 else card.max_output, card.max_output)
        words = self.summarise({**body, "messages": accepted.read.messages()})
        made = summarised(compact, accepted.prompt, accepted.read, accepted.account, words, room, card.bound)
        if not made.replaces or made.alone:
            return replace(accepted, summary=made)
        read = self.reader.read({**body, "messages": [{"role": "assistant", "content": [made.block]}]})
        account = None
        if accepted.account is not None:
            read = check_marks(body, read)
            account = self.cache.account(body, read, card.min_cache, False)
        return replace(accepted, read=read, account=account, summary=made)

    def begin(self, accepted: Accepted) -> None:
        """The response begins: cache entries it writes become readable."""
        if accepted.account is not None:
            self.cache.begin(accepted.account)

    def finish(self, accepted: Accepted, reply: Reply) -> tuple[dict[str, Any], Reply]:
        """The message as the API answers it, cut to the limits, and the reply with the raw inputs that go with it."""
        body, card, prompt, summary = accepted.body, accepted.card, accepted.bound_to, accepted.summary
        alone = summary is not None and summary.alone
        reply = reply if alone else self._shaped(accepted, reply)
        blocks: list[dict[str, Any]] = [dict(block) for block in reply.content]
        playing = Playing(body, prompt.chain[-1])
        if not alone:
            blocks, reply = playing.play(blocks, waiting_in(body["messages"]), reply)
        for i, block in enumerate(blocks):
            if block["type"] == "tool_use" and not block.get("id"):
                seed = prompt.chain[-1] + f"{card.id} {len(body['messages'])} {i} {block['name']}".encode()
                block["id"] = "toolu_" + hashlib.sha256(seed).hexdigest()[:24]
        if not alone:
            self.thoughts.sign_reply(prompt, card, blocks, self.reader, reply.stop_reason == "pause_turn")
        usage: dict[str, Any] = dict(NO_USAGE) if alone else self._usage(accepted)
        if not alone:
            raw = dict(reply.raw_inputs)
            costs = (self._cost(block, raw.get(i)) for i, block in enumerate(blocks) if not is_result(block))
            usage["output_tokens"] = sum(costs)
        if playing.ran:
            reply = replace(reply, began=usage)
            usage = {**usage, "server_tool_use": dict(playing.counts)}
            usage["input_tokens"] += self._read_again(accepted, blocks)
        usage.update(reply.usage or {})
        if accepted.counts or summary is not None:
            told = {k: v for k, v in usage.items() if k not in ("service_tier", "server_tool_use")}
            own = [] if alone else [{"type": "message", **told}]
            usage["iterations"] = [*([summary.cost] if summary is not None else []), *own]
        if summary is not None and summary.block is not None and not alone:
            blocks.insert(0, dict(summary.block))
            reply = replace(reply, raw_inputs=tuple((i + 1, raw) for i, raw in reply.raw_inputs))
        message: dict[str, Any] = {
            "id": "msg_" + uuid.uuid4().hex[:24], "type": "message", "role": "assistant", "model": body["model"],
            "content": blocks, "stop_reason": reply.stop_reason, "stop_sequence": reply.stop_sequence,
            "stop_details": reply.stop_details, "usage": usage,
        }  # fmt: skip
        if "diagnostics" not in self.without and "caching" not in self.without:
            message["diagnostics"] = self.diagnoses.compare(body, accepted.prompt)
            self.diagnoses.remember(message["id"], body, accepted.prompt)
        if accepted.managed:
            message["context_management"] = {"applied_edits": list(accepted.edits.applied)}
        if accepted.transformations:
            message["input_transformations"] = list(accepted.transformations)
        return message, reply

    def _known_fields(self, sent: Mapping[str, Any]) -> Mapping[str, Any]:
        if unknown := sorted(self.refuse_unknown.intersection(name for name in sent if sent[name] is not None)):
            raise Refused(f"{unknown[0]}: Extra inputs are not permitted")
        ignored = {"thinking", "output_config", "diagnostics", "context_management", "compaction"} & self.without
        if "caching" in self.without:
            ignored.add("cache_control")
        return {name: value for name, value in sent.items() if name not in ignored} if ignored else sent

    def _card(self, model: Any) -> ModelCard:
        if not isinstance(model, str) or not model:
            raise Refused("model: Field required")
        card = self.cards.get(model)
        if card is not None and card.lifecycle != "retired":
            if "system_messages" in self.without and card.system_messages:
                card = replace(card, system_messages=False)
            return replace(card, web=()) if "server_tools" in self.without else card
        if self.any_model:
            return replace(self.cards[PRACTICE], id=model)
        raise Refused(f"model: {model}", 404)

    def _usage(self, accepted: Accepted) -> dict[str, Any]:
        if accepted.account is None:
            return {"input_tokens": accepted.read.tokens}
        return {**accepted.account.usage(), "service_tier": "standard"}

    def _shaped(self, accepted: Accepted, reply: Reply) -> Reply:
        """The reply as this request may have it: thinking shown or not, stop sequences, output limits."""
        body, card = accepted.body, accepted.card
        thinking = body.get("thinking") or {}
        silent = "thinking" in self.without or thinking.get("type") == "disabled"
        room = min(int(body["max_tokens"]), card.window - accepted.read.tokens)
        why = "max_tokens" if room == body["max_tokens"] else "model_context_window_exceeded"
        raw, content, kept_raw = dict(reply.raw_inputs), [], []
        stop, sequence = reply.stop_reason, reply.stop_sequence
        for i, given in enumerate(reply.content):
            block = dict(given)
            if block["type"] == "thinking":
                if silent:
                    continue
                if thinking.get("display") == "omitted":
                    block["thinking"] = ""
            found = _first_stop(block, body.get("stop_sequences") or [])
            if found:
                block["text"] = block["text"][: block["text"].index(found)]
                stop, sequence = "stop_sequence", found
            cost = self._cost(block, raw.get(i))
            if cost > room:
                cut, part = _cut(block, room - BLOCK, raw.get(i))
                if cut is not None:
                    content.append(cut)
                    kept_raw += [(len(content) - 1, part)] if part is not None else []
                stop, sequence = why, None
                break
            room -= cost
            if i in raw:
                kept_raw.append((len(content), raw[i]))
            if block["type"] != "text" or block["text"] or not found:
                content.append(block)
            if found:
                break
        return replace(
            reply, content=tuple(content), raw_inputs=tuple(kept_raw), stop_reason=stop, stop_sequence=sequence
        )

    def _read_again(self, accepted: Accepted, blocks: list[dict[str, Any]]) -> int:
        """Tokens of the prompts that the model read behind each result of the server's own tools."""
        total, upto = 0, accepted.read.tokens
        for block in blocks:
            upto += self._cost(block, None)
            total += upto if is_result(block) else 0
        return total

    def _cost(self, block: Mapping[str, Any], raw: str | None) -> int:
        if raw is not None:
            return BLOCK + 8 + count_text(block["name"]) + count_text(raw)
        return self.reader.count("messages", block, self.reader.digest(block))


def _first_stop(block: Mapping[str, Any], stops: list[str]) -> str | None:
    if block["type"] != "text":
        return None
    return min((stop for stop in stops if stop in block["text"]), key=block["text"].index, default=None)


def _cut(block: dict[str, Any], room: int, raw: str | None) -> tuple[dict[str, Any] | None, str | None]:
    """As much of a block as fits into `room` tokens, and the cut JSON of a tool call."""
    match block["type"]:
        case "text" | "thinking":
            name = block["type"]
            part = cut_text(block[name], room)
            return ({**block, name: part}, None) if part.strip() else (None, None)
        case "tool_use":
            room -= 8 + count_text(block["name"])
            if room < 0:
                return None, None
            return {**block, "input": {}}, cut_text(raw or json.dumps(block["input"], ensure_ascii=False), room)
        case _:
            return None, None
