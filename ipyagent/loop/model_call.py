"""One reply of the model: every piece is journalled before it is shown, whatever the stream does.

Mends what can be mended without losing anything: refused thinking signatures and images leave the
view by a recorded decision, a stream that broke in mid-reply is asked to go on, each once."""

from __future__ import annotations

import asyncio
import json
import os
import platform
import re
import time
from collections.abc import Mapping
from contextlib import aclosing, suppress
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import msgspec

from ipyagent.context.thresholds import check_fixed_part
from ipyagent.errors import (
    BadRequest,
    ImageRefused,
    JournalError,
    NoSuchPath,
    PromptTooLong,
    UnknownModel,
    WindowTooSmall,
)
from ipyagent.journal.blocks import is_result, unused
from ipyagent.journal.events import (
    AssistantMessage,
    Block,
    BlockDropped,
    Channel,
    LayerFailed,
    Retrying,
    ServerEdited,
    Streamed,
    SystemReminder,
    ThinkingDropped,
    Usage,
    UsageReported,
)
from ipyagent.journal.journal import clean, clean_json
from ipyagent.journal.protocols import (
    ModelEvent,
    ModelReply,
    Request,
    ResponseStarted,
    ToolDelta,
)
from ipyagent.journal.tokens import Count, estimate_blocks, estimate_text
from ipyagent.loop.session import Session
from ipyagent.model.prices import cost_of
from ipyagent.nofollow import names, remove, write_atomically
from ipyagent.redaction import mask, mask_named
from ipyagent.redaction.names import name_strength
from ipyagent.redaction.stream import Stream
from ipyagent.version import __version__

# ---- What a request costs although its answer never comes whole: it was stopped, or the stream broke. The provider
# bills the prompt once it has begun to answer, and what it wrote until the connection closed.

CHARS = 3
"""Characters of a call's JSON a token: rough, for their number is all that is known of it."""


class RequestMeter:
    """Follows one request."""

    def __init__(self) -> None:
        self._began: Usage | None = None
        self._texts: list[str] = []
        self._searches = 0
        self._calls = [0]
        """Characters of the calls, the one that is being written last."""

    def __repr__(self) -> str:
        return f"<RequestMeter {self.usage}>"

    def take(self, event: ModelEvent) -> None:
        """The next event of the stream."""
        match event:
            case ResponseStarted(usage):
                self._began, self._texts, self._calls, self._searches = usage, [], [0], 0
            case Streamed():
                self._texts.append(event.text)
            case ToolDelta(name, chars, server, begins):
                self._searches += server and begins and name == "web_search"
                if chars < self._calls[-1]:
                    self._calls.append(0)
                self._calls[-1] = chars
            case _:
                pass

    @property
    def usage(self) -> Usage | None:
        """What was counted at the beginning, `output` estimated from what has come; None: nothing had begun."""
        if self._began is None:
            return None
        wrote = estimate_text("".join(self._texts)) + sum(self._calls) // CHARS
        output, searches = max(self._began.output, wrote), max(self._began.searches, self._searches)
        return msgspec.structs.replace(self._began, output=output, searches=searches)


# ---- What a maintainer needs of a request that the server refused, without what nobody else may see.

PACKAGES = ("anthropic", "httpx2", "ipykernel", "ipython", "ipywidgets", "jupyterlab", "msgspec")
LONGEST_DATA = 200
"""Characters of base64 that are kept of a picture or document."""
MOST_REPORTS = 5
"""Of a session: what fails again and again fails in the same way, and a report has a whole request."""
_NAME = re.compile(r"bug-report-(\d{1,12})\.json")


def write_report(
    folder: Path, number: int, what: str, request: Request | None = None, environ: Mapping[str, str] = os.environ
) -> str:
    """Write `bug-report-<number>.json` beside the transcript; the half sentence that names it."""
    held = [value for name, value in environ.items() if name_strength(name) and len(value) >= 8]
    report = {
        "what": what,
        "versions": {"ipyagent": __version__, "python": platform.python_version(), **_versions()},
        "system": f"{platform.system()} {platform.machine()}",
        "request": None if request is None else msgspec.to_builtins(request),
    }
    path = folder / f"bug-report-{number}.json"
    text = json.dumps(_bare(report, sorted(held, key=len, reverse=True)), ensure_ascii=False, indent=1)
    try:
        write_atomically(path, f"{text}\n".encode("utf-8", "replace"), make=False)
    except OSError as problem:
        return f"no bug report could be written to {path}: {problem.strerror}"
    found = {name: int(match[1]) for name in names(folder) if (match := _NAME.fullmatch(name))}
    for old in sorted(found, key=found.__getitem__)[:-MOST_REPORTS]:
        with suppress(OSError):
            remove(folder / old)
    return f"for a bug report, without secrets: {path}"


def _versions() -> dict[str, str]:
    found = {}
    for name in PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue  # an extra that is not installed here
    return found


def _bare(value: Any, held: list[str], name: str = "") -> Any:
    """The value with secrets masked and long data shortened."""
    match value:
        case str():
            for secret in held:
                value = value.replace(secret, "[masked]")
            return mask_named(name, value) if name not in ("text", "thinking", "code") else mask(value)
        case {"type": "base64", "data": str(data)} if len(data) > LONGEST_DATA:
            return {**value, "data": f"{data[:LONGEST_DATA]}… [{len(data):,} characters]"}
        case {"type": "thinking", "signature": str(signature)}:
            thought = _bare(value.get("thinking"), held, "thinking")
            return {**value, "thinking": thought, "signature": f"[{len(signature)} characters]"}
        case dict():
            return {key: _bare(inner, held, str(key)) for key, inner in value.items()}
        case list() | tuple():
            return [_bare(inner, held, name) for inner in value]
        case _:
            return value


BATCH_SECONDS = 0.04
"""25 pieces a second: front-ends keep up with 20-30 updates a second, not with one a token."""

GO_ON = (
    "The connection broke while you were answering; the text above is all that arrived. "
    "Go on exactly where it stops, without repeating it."
)


async def ask(session: Session) -> ModelReply:
    """The model's next reply, journalled. Raises ModelError when there is none."""
    mended: set[str] = set()
    while True:
        request, count = _request(session)
        try:
            reply = await _receive(session, request, count)
        except BadRequest as problem:
            if _mend(session, problem, mended):
                continue
            if isinstance(problem, PromptTooLong):
                raise
            where = write_report(session.journal.folder, session.journal.last, str(problem), request)
            raise type(problem)(f"{problem}; {where}", kind=problem.kind, request_id=problem.request_id) from None
        except UnknownModel as problem:
            if isinstance(problem, NoSuchPath) or not await session.take_another():
                raise
            continue
        calls = any(block["type"] == "tool_use" for block in reply.said.blocks)
        if not reply.broken or calls or "stream" in mended:
            return reply
        mended.add("stream")
        session.record(SystemReminder(text=GO_ON, why=f"{reply.broken}; asking again", tokens=estimate_text(GO_ON)))


def _request(session: Session) -> tuple[Request, Count]:
    """What goes out next, and how many tokens it is. Raises PromptTooLong above the hard limit, WindowTooSmall where
    nothing could mend that."""
    session.heed()
    count = session.view.count()
    state = session.state(count.tokens)
    if state.blocked:
        try:
            check_fixed_part(session.view.head_tokens, estimate_blocks(session.view.tools), state)
        except WindowTooSmall as problem:  # the window is smaller than was known when the session began
            raise WindowTooSmall(f"{problem}; %agent new starts with the tools that fit") from None
        raise PromptTooLong(
            f"the context window is full: {count.tokens:,} of {state.window:,} tokens, the hard limit is "
            f"{state.block_mark:,}; make room with %compact, start a new session with %agent new, or choose a model "
            "with a larger window",
            kind="blocked",
        )
    limits = session.limits
    system, tools, messages = session.view.wire(ttl=limits.cache_ttl, marks=limits.prompt_cache)
    made = Request(
        model=session.info.model,
        system=system,
        tools=tools,
        messages=messages,
        max_tokens=max(1, min(limits.max_tokens, state.window - count.tokens)),
        effort=limits.effort,
        diagnose=session.history.message_id if limits.prompt_cache else None,
        edits=session.server_edits(),
    )
    return made, count


async def _receive(session: Session, request: Request, count: Count) -> ModelReply:
    """Send the request and journal what comes back."""
    session.show_phase("waiting for the model")
    session.watch.sent(request, session.view, session.limits.cache_ttl)
    pieces, meter, told_at = _Pieces(session), RequestMeter(), 0.0
    reply: ModelReply | None = None
    try:
        async with aclosing(session.model.stream(request)) as events:  # type: ignore[type-var] # an async generator
            async for event in events:
                if isinstance(event, Retrying):
                    _paid_for_nothing(session, meter, count)
                    meter = RequestMeter()
                meter.take(event)
                match event:
                    case Streamed():
                        pieces.add(event.channel, event.text)
                    case ToolDelta():
                        pieces.flush(last=True)
                        if event.begins or time.monotonic() - told_at > BATCH_SECONDS:
                            told_at = time.monotonic()
                            writing = f"writing a {event.name} call ({event.chars:,} characters)"
                            session.show_phase(f"{event.name} at the provider" if event.server else writing)
                    case Retrying():
                        session.record(event)
                        session.show_phase(f"busy, trying again in {event.seconds:.0f} s, Stop to give up")
                    case ResponseStarted():
                        session.show_phase("writing")
                    case ModelReply():
                        reply = event
    except asyncio.CancelledError:
        if meter.usage is None and not session.turn_cost and cost_of(session.info.model, Usage(input=1)):
            session.turn_cost = None  # it was sent, and nobody has said whether it is billed
        raise
    finally:
        session.heed()  # a refusal may have told the window
        pieces.flush(last=True)
        if reply is None:
            _paid_for_nothing(session, meter, count)
    if reply is None:
        raise BadRequest("the model's stream ended without a reply: run the cell again", kind="stream")
    return _keep(session, reply, predicted=count.tokens, raw=count.raw)


def _keep(session: Session, reply: ModelReply, *, predicted: int, raw: int) -> ModelReply:
    """Journal the reply and what it cost; returns it as journalled."""
    blocks, invalid = _unique_calls(session, reply)
    said = msgspec.structs.replace(reply.said, blocks=blocks, tokens=estimate_blocks(blocks))
    made: AssistantMessage = session.record(said)
    _record_edits(session, reply)
    if reply.usage is not None and reply.usage.prompt:
        cost = cost_of(session.info.model, *(reply.parts or (reply.usage,)), server=session.info.server)
        billed = sum(reply.parts[1:], start=reply.parts[0]) if reply.parts else None
        before = session.view.ceiling
        searched = any(map(is_result, blocks))
        _report(
            session,
            UsageReported(
                usage=reply.usage, cost=cost, predicted=predicted, raw=raw, billed=billed, searched=searched
            ),
        )
        if session.view.ceiling not in (0, before):
            _heed_cuts(session, reply.usage.prompt, predicted)
        compacted = bool(reply.parts) and not searched
        if (broken := session.watch.answered(reply.usage, reply.miss, compacted=compacted)) is not None:
            session.record(broken)
    # what was said is what is done: calls run as they were given, secrets and all
    return msgspec.structs.replace(reply, said=msgspec.structs.replace(made, blocks=blocks), invalid=invalid)


def _heed_cuts(session: Session, counted: int, sent: int) -> None:
    """The server reads only a part of the prompt and says nothing of it: have that be its window, and say so once."""
    window, info = session.view.ceiling, session.info
    if info.source == "setting" or window >= info.window:
        then = "that is less than IPyAgent.window says" if window < info.window else "that is all its window holds"
    elif session.holds(window):
        session.model.cuts(info.model, window)
        session.heed()
        then = "this counts as its window from now on"
    else:
        then = f"system prompt and tools alone are about {session.view.head_tokens:,}, so some of that may be lost"
    if "window" not in session.told:
        session.told.add("window")
        why = (
            f"The server seems to truncate prompts silently at {window:,} tokens (it counted {counted:,} where about "
            f"{sent:,} were sent); {then}. Give the model a larger context there, or set IPyAgent.window"
        )
        session.record(LayerFailed(layer="window", why=why))


def _paid_for_nothing(session: Session, meter: RequestMeter, count: Count) -> None:
    """Journal what a request has cost that ends without a reply."""
    usage = meter.usage
    if usage is None or not usage.prompt:
        return
    cost = cost_of(session.info.model, usage, server=session.info.server)
    _report(session, UsageReported(usage=usage, cost=cost, predicted=count.tokens, raw=count.raw, stopped=True))
    if (broken := session.watch.answered(usage)) is not None:
        session.record(broken)


def _report(session: Session, event: UsageReported) -> None:
    session.record(event)
    if session.turn_cost is not None:
        session.turn_cost = None if event.cost is None else session.turn_cost + event.cost


def _record_edits(session: Session, reply: ModelReply) -> None:
    """Journal what the server left out, when it is more or less than last time, or nothing any more."""
    applied, before = list(reply.applied), session.history.server_edits
    if not reply.broken:  # it is told at the end
        kinds = {edit.get("type") for edit in applied}
        applied += [{"type": kind} for kind, last in before.items() if last.cleared and kind not in kinds]
    for edit in applied:
        counts = [edit.get(name) for name in ("cleared_tool_uses", "cleared_thinking_turns")]
        cleared = next((count for count in counts if isinstance(count, int)), 0)
        tokens = edit.get("cleared_input_tokens")
        made = ServerEdited(
            edit=str(edit.get("type") or ""), cleared=cleared, tokens=tokens if isinstance(tokens, int) else 0
        )
        last = before.get(made.edit)
        if last is None or (last.cleared, last.tokens) != (made.cleared, made.tokens):
            session.record(made)


def _unique_calls(session: Session, reply: ModelReply) -> tuple[tuple[Block, ...], dict[str, str]]:
    """The reply's blocks, free of lone surrogates, with an id of its own for every call."""
    blocks: list[Block] = []
    invalid: dict[str, str] = {}
    taken = set(session.view.calls.seen)
    for block in reply.said.blocks:
        if block["type"] in ("thinking", "redacted_thinking"):
            blocks.append(block)  # signed: kept to the byte
            continue
        kept: Block = clean_json(block)
        if block["type"] == "tool_use":
            old = str(kept["id"])
            kept["id"] = unused(old, taken)
            taken.add(kept["id"])
            if problem := reply.invalid.get(old):
                invalid[kept["id"]] = problem
        blocks.append(kept)
    return tuple(blocks), invalid


def _mend(session: Session, problem: BadRequest, mended: set[str]) -> bool:
    """Take out of the view what the server refused, once a kind; whether to ask again."""
    text = str(problem)
    if "thinking" in text and re.search("signature|cannot be modified", text) and "thinking" not in mended:
        mended.add("thinking")
        session.record(ThinkingDropped(upto=session.journal.last, why="the server refused a thinking signature"))
        return True
    if isinstance(problem, ImageRefused):
        match = re.search(r"messages\.(\d+)\.", text)
        event = session.view.event_with_images(int(match.group(1)) if match else None)
        event = event if event is not None else session.view.event_with_images()
        if event is not None and f"image {event}" not in mended and len(mended) < 4:
            mended.add(f"image {event}")
            session.record(BlockDropped(event=event, why=text[:200]))
            return True
    return False


class _Pieces:
    """Streamed text in batches: one event at most every BATCH_SECONDS, nothing lost on the way out."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._channel: Channel = "text"
        self._texts: list[str] = []
        self._stream = Stream(session.redact)
        self._timer: asyncio.TimerHandle | None = None

    def add(self, channel: Channel, text: str) -> None:
        if channel != self._channel:
            self.flush(last=True)
            self._channel = channel
        self._texts.append(text)
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(BATCH_SECONDS, self._on_time)

    def _on_time(self) -> None:
        try:
            self.flush()
        except JournalError:
            return  # nobody waits here; the next piece or the end of the reply meets it again

    def flush(self, *, last: bool = False) -> None:
        """Journal what came, but for the beginning of what may be a secret; `last`: that as well."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        text = self._stream.feed(clean("".join(self._texts))) if self._texts else ""
        self._texts.clear()
        text += self._stream.end() if last else ""
        if text:
            self._session.record(Streamed(channel=self._channel, text=text))
