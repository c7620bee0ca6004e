"""A fork: a copy of the view plus one directive, for work in the background; or, for a `ForkReader`, a text in place
of the copy.

Same system prompt, same tools in the same order, same messages, so that the provider serves it from
cache; a permit enforced here, not by taking tools out of the request. Nothing of it enters the
conversation; what it cost does enter the journal.
"""

from __future__ import annotations

import inspect
import time
from collections.abc import Callable
from contextlib import aclosing
from typing import Any, TypeAlias

import msgspec

from ipyagent.context.summarize import shortened
from ipyagent.errors import ModelError, PromptTooLong, ToolFailure
from ipyagent.journal.blocks import CACHE_SECONDS, mark_for, same_until, text_block
from ipyagent.journal.events import Block, ForkEnded, Retrying, Usage
from ipyagent.journal.protocols import REPLY, Forked, ForkOrder, Model, ModelReply, Request, Workspace
from ipyagent.journal.tokens import estimate_blocks
from ipyagent.loop.model_call import RequestMeter
from ipyagent.loop.redacting import without_secrets
from ipyagent.loop.session import Session
from ipyagent.model.prices import at_most, cost_of


class ForkReader(msgspec.Struct, frozen=True, kw_only=True):
    """Who does a fork's work from a text of its own in place of a copy of the view: a model by its name, with its
    window (tokens, 0: not known) and the tools that it has. `patient`: it is waited for while its server is busy or
    cannot be reached."""

    model: Model
    name: str
    window: int
    tools: list[Block]
    text: str
    patient: bool = True


Wire: TypeAlias = tuple[list[Block], list[Block], list[dict[str, Any]]]
"""System, tools and messages with their cache marks."""
REPLY_SHARE = 20
"""A fork goes out when a twentieth of the window, or half of what it wants, is left for its reply."""
NOT_HERE = "This call may not run in this background work: {why}"


async def run_fork(
    session: Session,
    order: ForkOrder,
    workspace: Workspace | None = None,
    *,
    paid: Callable[[float | None, float], None] = lambda cost, most: None,
    wire: Wire | None = None,
    reader: ForkReader | None = None,
) -> Forked:
    """Do the order on a copy of the session's view, or have a `reader` do it, and journal what it cost; `paid` is told
    the dollars (None: no price known) and what they are at most; `wire` is the view as it was at an earlier time
    (`View.wire`).

    Raises ModelError when the model does not answer; cancelling stops it, and what was spent until
    then is journalled all the same.
    """
    name = session.info.model if reader is None else reader.name
    began, spent = time.monotonic(), _Spent(name, session.info.server)
    status, message = "stopped", ""
    try:
        done = await _work(session, order, workspace, spent, wire, reader)
        status, message = done.status, done.message
        return done
    except ModelError as problem:
        status, message = "failed", str(problem)
        raise
    finally:
        paid(spent.cost, at_most(spent.cost, spent.usage))
        session.record(
            ForkEnded(
                purpose=order.purpose,
                status=status,
                usage=spent.usage,
                cost=spent.cost,
                seconds=round(time.monotonic() - began, 3),
                requests=spent.requests,
                message=message,
                also=order.also,
                model="" if reader is None else name,
            )
        )


async def answer_to(model: Model, request: Request, record: Callable[[ForkEnded], object]) -> str:
    """The text of a model's reply to one small request without tools; `record` takes what it cost, however it ends.
    Raises ModelError."""
    began, spent, status = time.monotonic(), _Spent(request.model, ""), "stopped"
    try:
        reply = await _reply(model, request, spent)
        status = "failed" if reply.broken else "finished"
        return "\n".join(str(block["text"]) for block in reply.said.blocks if block["type"] == "text")
    except ModelError:
        status = "failed"
        raise
    finally:
        known = model.known(request.model)
        cost = cost_of(request.model, spent.usage, server=known.server if known is not None else "")
        seconds = round(time.monotonic() - began, 3)
        record(ForkEnded(purpose=request.purpose, status=status, usage=spent.usage, cost=cost, seconds=seconds,
                         model=request.model))  # fmt: skip


class _Spent:
    """Sums of a fork's requests to a model; each is priced on its own."""

    def __init__(self, model: str, server: str) -> None:
        self.usage, self.requests = Usage(), 0
        self.cost = cost_of(model, server=server)
        self._model, self._server = model, server

    def add(self, *parts: Usage | None) -> None:
        """One request more, with the parts of its bill."""
        self.requests += 1
        for usage in filter(None, parts):
            self.usage += usage
            cost = cost_of(self._model, usage, server=self._server)
            self.cost = None if cost is None or self.cost is None else self.cost + cost


async def _work(
    session: Session,
    order: ForkOrder,
    workspace: Workspace | None,
    spent: _Spent,
    wire: Wire | None,
    reader: ForkReader | None,
) -> Forked:
    limits, info = session.limits, session.info
    window, said = info.window if reader is None else reader.window, text_block(order.directive)
    if reader is None:
        system, tools, whole = wire or session.view.wire(ttl=limits.cache_ttl, marks=limits.prompt_cache)
        messages = shortened(whole, order)
        tokens = _tokens(session, order, messages, whole=messages is whole)
    else:
        content = [text_block(reader.text), said]
        system, tools, messages = [], reader.tools, [{"role": "user", "content": content}]
        tokens = estimate_blocks([*tools, *content])
    room = _room(session, order, tokens, window)
    wish = {"instructions": order.directive} if order.directive.strip() else {}
    if reader is None and limits.prompt_cache and not order.by_server:
        held: int | None = None
        if messages is not whole:  # of what the shorter copy has in common with the conversation
            held = session.view.held(same_until(messages, whole), CACHE_SECONDS[limits.cache_ttl])
        messages = _marked(order, messages, held, limits.cache_ttl)
        if order.permit is not None and order.enough is None:  # further requests are to read it, as a rule
            said = {**said, "cache_control": mark_for(limits.cache_ttl)}
    if reader is None and not order.by_server:
        messages = _with_user(messages, said)
    request = Request(
        model=info.model if reader is None else reader.name,
        system=system,
        tools=tools,
        messages=messages,
        max_tokens=room,
        effort=limits.effort if reader is None else "",
        purpose=order.purpose,
        edits=session.server_edits() if reader is None and not order.by_server else None,
        compaction={"type": "summarize", **wish} if order.by_server else None,
        thinking=reader is None,
    )
    if order.by_server:  # its own summary, as one block
        reply = await _reply(session.model, request, spent)
        stop = reply.said.stop_reason
        found = [block for block in reply.said.blocks if block["type"] == "compaction" and block.get("content")]
        if reply.broken or stop != "compaction" or len(found) != 1:
            status = "refused" if stop == "refusal" else "failed"
            return Forked(status=status, stop_reason=stop, message=reply.broken or reply.details or stop)
        return Forked(status="finished", text=str(found[0]["content"]), stop_reason=stop, block=found[0])
    model = session.model if reader is None else reader.model  # the next turn may connect another one meanwhile
    patient = reader is None or reader.patient
    for _ in range(order.max_turns):
        room = _room(session, order, tokens, window)
        asked = msgspec.structs.replace(request, messages=messages, max_tokens=room)
        reply = await _reply(model, asked, spent, patient=patient)
        blocks = [block for block in reply.said.blocks if block["type"] != "text" or str(block["text"]).strip()]
        text = "\n".join(str(block["text"]) for block in blocks if block["type"] == "text")
        calls = [block for block in blocks if block["type"] == "tool_use"]
        stop = reply.said.stop_reason
        if reply.broken or stop == "refusal":
            what = reply.broken or f"the model refused {reply.details}".strip()
            status = "refused" if stop == "refusal" else "failed"
            return Forked(status=status, text=text, stop_reason=stop, message=what)
        if not calls or order.permit is None:
            status = "finished" if stop == "end_turn" and not calls else "limit"
            return Forked(status=status, text=text, stop_reason=stop, called=bool(calls), message=stop)
        REPLY.set(tuple(calls))
        results = [await _call(session, order, call, reply.invalid.get(call["id"], ""), workspace) for call in calls]
        if order.enough is not None and order.enough():
            return Forked(status="finished", text=text, stop_reason=stop, called=True)
        blocks, results = (list(without_secrets(each, session.redact)) for each in (blocks, results))
        messages = [*messages, {"role": "assistant", "content": blocks}, {"role": "user", "content": results}]
        tokens += round(session.view.calibration.factor * estimate_blocks([*blocks, *results]))
    return Forked(status="limit", message=f"{order.max_turns} model calls", called=True)


def _tokens(session: Session, order: ForkOrder, messages: list[dict[str, Any]], *, whole: bool) -> int:
    """Tokens of the fork's prompt by our count; `whole`: the messages are the conversation's own."""
    view = session.view
    factor = view.calibration.factor
    said = round(factor * estimate_blocks([text_block(order.directive)]))
    if whole and not (order.by_server and session.history.server_edits):
        return view.count().tokens + said
    # a shorter copy, or all of a prompt of which the server had left out parts
    return said + round(factor * (view.head_tokens + sum(estimate_blocks(one["content"]) for one in messages)))


def _room(session: Session, order: ForkOrder, tokens: int, window: int) -> int:
    """Tokens for the reply to a prompt of `tokens` tokens. Raises PromptTooLong, before anything is sent,
    when the window leaves none."""
    most = min(order.max_tokens, session.info.max_output or order.max_tokens)
    if not window:
        return most
    least = min(most // 2, window // REPLY_SHARE)
    if tokens + least > window:
        raise PromptTooLong(
            f"not sent: the prompt is too long by our count: {tokens:,} tokens > {window - least:,}; see %compact",
            kind="blocked",
        )
    return max(1, min(most, window - tokens))


async def _reply(model: Model, request: Request, spent: _Spent, *, patient: bool = True) -> ModelReply:
    """The reply; `spent` takes what was paid, for each attempt and also when there is no reply. Raises ModelError,
    for one that is not `patient` already when the server is to be tried again."""
    meter, reply = RequestMeter(), None
    try:
        async with aclosing(model.stream(request)) as events:  # type: ignore[type-var] # an async generator
            async for event in events:
                if isinstance(event, ModelReply):
                    reply = event
                    spent.add(*(reply.parts or (reply.usage,)))
                    return reply
                if isinstance(event, Retrying) and meter.usage is not None:
                    spent.add(meter.usage)
                    meter = RequestMeter()
                if isinstance(event, Retrying) and not patient:
                    told = f"the server is not answering ({event.reason}): a later turn will try again"
                    raise ModelError(told, kind="busy")
                meter.take(event)
    finally:
        if reply is None and meter.usage is not None:
            spent.add(meter.usage)
    raise ModelError("the model's stream ended without a reply: run the cell again", kind="stream")


async def _call(
    session: Session, order: ForkOrder, call: Block, invalid: str, workspace: Workspace | None
) -> Block:
    """The result of one call of the fork, run only if the order permits it; `invalid` says what is
    wrong with a call that never can."""
    name, given = str(call["name"]), call["input"]
    tool = session.tools.get(name)
    why = order.permit(name, given) if order.permit is not None else "no tools are needed"
    failed, content = True, [text_block(invalid or NOT_HERE.format(why=why))]
    if tool is None:
        content = [text_block(f"There is no tool {name!r} here.")]
    elif not why and not invalid:
        try:
            checked = tool.validate(given)
            if order.answer is not None:
                answered = order.answer(name, checked)
                output = await answered if inspect.isawaitable(answered) else answered
            elif workspace is not None:
                output = await tool.run(checked, workspace)
            else:
                raise ToolFailure(NOT_HERE.format(why="there is nothing it could work on"))
            content, failed = [dict(block) for block in output.blocks], output.is_error
        except ToolFailure as failure:
            content = [text_block(str(failure))]
    result: Block = {"type": "tool_result", "tool_use_id": call["id"], "content": content}
    return {**result, "is_error": True} if failed else result


def _marked(order: ForkOrder, messages: list[dict[str, Any]], held: int | None, ttl: str) -> list[dict[str, Any]]:
    """The messages with the marks that such work needs. Where a summary takes the place of the newest part, and where
    several requests read all of it with the directive, only the anchor stays (two of the four marks belong to system
    and tools): the parent's prefix was written up to there; for a shorter copy, the end of the `held` messages. Else
    all stay: what is written of the newest part the parent will read."""
    if held is None and order.permit is not None and order.enough is not None:
        return messages
    places = [
        (at, place)
        for at, message in enumerate(messages)
        for place, block in enumerate(message["content"])
        if "cache_control" in block
    ]
    stays = set(places[:1])
    if held is not None:
        stays = {(held - 1, len(messages[held - 1]["content"]) - 1)} if held else set()
    messages = list(messages)
    for at, place in {*places, *stays}:
        content = list(messages[at]["content"])
        content[place] = {key: value for key, value in content[place].items() if key != "cache_control"}
        if (at, place) in stays:
            content[place]["cache_control"] = mark_for(ttl)
        messages[at] = {**messages[at], "content": content}
    return messages


def _with_user(messages: list[dict[str, Any]], block: Block) -> list[dict[str, Any]]:
    """The messages with one more block of the user's side."""
    if messages and messages[-1]["role"] == "user":
        return [*messages[:-1], {"role": "user", "content": [*messages[-1]["content"], block]}]
    return [*messages, {"role": "user", "content": [block]}]
