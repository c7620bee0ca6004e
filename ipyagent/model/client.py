"""The one way out: every model call goes through the official SDK, and only here.

Tries again by itself (the SDK shows nobody its waiting and obeys any `retry-after`, so its own
retries are off): busy, failing and unreachable servers, as long as nothing of a reply has come.
"""

from __future__ import annotations

import asyncio
import json
import os
import time
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import aclosing, asynccontextmanager
from functools import cache
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from ipyagent.errors import AuthenticationFailed, ModelError, NoCredentials, PromptTooLong, SettingError, Unreachable
from ipyagent.journal.events import Retrying
from ipyagent.journal.protocols import ModelEvent, ModelInfo, Request
from ipyagent.model.api_errors import (
    ApiErrorInfo,
    asked_wait,
    back_off,
    failure,
    is_lasting,
    is_transient,
    reason_of,
    told_within,
    words_of,
)
from ipyagent.model.capabilities import (
    LONG_BETA,
    WHOLE_THINKING,
    Capabilities,
    is_declared,
    resolve,
    split_suffix,
    version_of,
)
from ipyagent.model.endpoint import (
    BAD_KEY,
    BASE_URL,
    HINT,
    READ_ONCE,
    Endpoint,
    base_of,
    is_loopback,
    keyring_key,
    unusable_variable,
)
from ipyagent.model.models_api import ModelsApi
from ipyagent.model.wire import StreamParser, body_of, events_of, has_marks
from ipyagent.redaction import without_keys

if TYPE_CHECKING:
    import ssl

    import anthropic

T = TypeVar("T")

CERTIFICATES = ("SSL_CERT_FILE", "SSL_CERT_DIR")
"""Environment variables in which the user names certificates."""

ANSWER = 1.5
"""Seconds that a turn's beginning waits for what a server says of its model."""
AGAIN = 0.3
"""The same where it was asked before."""
MOST_ASKED = 3
"""Times that a server is asked again behind a reply."""
ENDED = "the reply ended before it was complete"
NO_THINKING = "the model wants back thinking that is no longer in the context: it is asked without thinking"
REFUSED = (429, 503, 529)
"""Statuses by which a server says that it has not begun; behind 500, 502 and 504 it may have."""


class AnthropicModel:
    """Answers requests through the SDK's async client. One event loop only (the agent thread's)."""

    def __init__(self, endpoint: Endpoint, capabilities: Capabilities | None = None) -> None:
        self.endpoint = endpoint
        self.capabilities = capabilities or Capabilities()
        self._client: anthropic.AsyncAnthropic | None = None
        self._replaced: list[anthropic.AsyncAnthropic] = []
        self._requests = 0
        self._made_with: tuple[str | None, ...] = ()
        self._told_of: dict[str, ModelInfo | None] = {}
        """What the server has said of each model that it was asked about; None: nothing yet."""
        self._asking: dict[str, asyncio.Task[None]] = {}
        """Questions about models that are under way."""
        self._models_api = ModelsApi(lambda: self.client, self.capabilities)
        self._guessed: set[str] = set()
        """Models whose figures the server did not tell yet: asked again after a reply and with the next turn."""
        self._asked_behind: Counter[str] = Counter()

    def __repr__(self) -> str:
        return f"<AnthropicModel {self.endpoint!r}>"

    @property
    def client(self) -> anthropic.AsyncAnthropic:
        """The SDK's client, made on first use and again when the user has set another key or
        address in the environment. Raises NoCredentials, SettingError."""
        now = tuple(os.environ.get(name) for name in READ_ONCE)
        if self._client is None or now != self._made_with:
            made = _make_client(self.endpoint)
            if self._client is not None:  # closed once no request that it carries is under way
                self._replaced.append(self._client)
                if made.base_url != self._client.base_url:
                    self._forget()
            self._client, self._made_with = made, now
        return self._client

    def _forget(self) -> None:
        """Another server is asked from now on, which may know other models by the same names."""
        for task in self._asking.values():
            task.cancel()
        for known in (self._told_of, self._asked_behind, self._guessed):
            known.clear()

    @property
    def _moved(self) -> bool:
        """Whether the next request goes to another address than the last one."""
        chosen = self.endpoint.base_url or self._client is None
        return not chosen and os.environ.get(BASE_URL) != self._made_with[READ_ONCE.index(BASE_URL)]

    @property
    def _address(self) -> str:
        return str(self.client.base_url).rstrip("/")

    @property
    def shown(self) -> str:
        """The address without a password that may stand in it."""
        return without_keys(self._address, *self._secrets)

    @property
    def _secrets(self) -> tuple[str | None, ...]:
        return self.endpoint.api_key, self.client.api_key, self.client.auth_token

    async def close(self) -> None:
        """Close the connections."""
        for task in self._asking.values():
            task.cancel()
        await asyncio.gather(*self._asking.values(), return_exceptions=True)
        if self._client is not None:
            self._replaced.append(self._client)
            self._client = None
        await self._close_replaced()

    async def _close_replaced(self) -> None:
        while self._replaced:
            await self._replaced.pop().close()

    @asynccontextmanager
    async def _request(self) -> AsyncIterator[None]:
        self._requests += 1
        try:
            yield
        finally:
            self._requests -= 1
            if not self._requests:
                await self._close_replaced()

    async def info(self, model: str) -> ModelInfo:
        """See `Model.info`; asked once. A server that takes its time is waited for a moment only: what it says counts
        from the next request on."""
        _ = self.client  # what is wrong with the settings is said here, and another address is seen
        if model not in self._told_of or model in self._guessed:
            if model not in self._asking:
                self._ask_about(model)
                await asyncio.wait({self._asking[model]}, timeout=AGAIN if model in self._told_of else ANSWER)
            if model not in self._told_of:
                self._told_of[model] = None
                self._guessed.add(model)
        found = self.known(model)
        assert found is not None
        return found

    def _ask_about(self, model: str) -> None:
        task = self._asking[model] = asyncio.ensure_future(self._ask(model))
        task.add_done_callback(lambda _: self._asking.pop(model, None))

    async def _ask(self, model: str) -> None:
        async with self._request():
            answer = await self._models_api.ask(split_suffix(model)[0])
        if answer.told is not None or model not in self._told_of:
            self._told_of[model] = answer.told
        (self._guessed.discard if answer.final else self._guessed.add)(model)

    def known(self, model: str) -> ModelInfo | None:
        """What is known of a model by all that was said until now, without a word with the server; None before `info`,
        and once another address stands in the environment."""
        if self._client is None or self._moved or model not in self._told_of:
            return None
        betas = os.environ.get("ANTHROPIC_CUSTOM_HEADERS", "")
        address = str(self._client.base_url).rstrip("/")  # no client is made for this
        found = resolve(
            model,
            self._told_of[model],
            setting=self.endpoint.window,
            refused=self.capabilities.window(address, model),
            betas=(LONG_BETA,) if LONG_BETA in betas else (),
            environ=os.environ,
        )
        edits = found.edits and "context_management" not in self.capabilities.lacking(address, model)
        return msgspec.structs.replace(found, server=address, edits=edits)

    def cuts(self, model: str, window: int) -> None:
        """See `Model.cuts`."""
        self.capabilities.cuts(self._address, model, window)

    def lacking(self, model: str) -> frozenset[str]:
        """Optional parts of a request that the server turned out not to take for this model."""
        return self.capabilities.lacking(self._address, model)

    def listed(self) -> list[str]:
        """The models that the server has listed, see `ModelsApi.listed`."""
        return [] if self._moved or self._client is None else self._models_api.listed()

    async def only_model(self, model: str) -> str:
        """The one model that the server lists when it does not know `model`, else ""."""
        await self.info(model)
        return await self._models_api.only(split_suffix(model)[0]) if self.endpoint.provider == "anthropic" else ""

    async def stream(self, request: Request) -> AsyncIterator[ModelEvent]:
        """Events of one reply, see `Model.stream`."""
        attempt = 0
        while True:
            try:
                # closed here: what is left to the garbage collector holds its connection until then
                async with self._request(), aclosing(self._once(request)) as events:  # type: ignore[type-var] # a generator
                    async for event in events:
                        yield event
                return
            except _TryAgain as again:
                attempt += 1
                if attempt > self.endpoint.retries:
                    raise again.error from None
                seconds, remark = back_off(attempt, again.asked, self.endpoint.longest_wait)
                reason = f"{again.reason}; {remark}" if remark else again.reason
            yield Retrying(reason=reason, seconds=seconds, attempt=attempt)
            await asyncio.sleep(seconds)

    async def _once(self, request: Request) -> AsyncIterator[ModelEvent]:
        """One try. Raises _TryAgain while nothing has come that would be lost by it."""
        import anthropic
        import httpx2

        began, reading = time.monotonic(), StreamParser()
        stream, without = await self._open(request)
        known = self.known(request.model)  # while the client is the one that asked
        for told in without:
            yield Retrying(reason=told, seconds=0.0)
        kind = str(stream.response.headers.get("content-type", ""))
        # a proxy's or a login page claims to be no event stream
        streams = not kind.startswith(("text/html", "application/json", "text/plain"))
        answers = streams or kind.startswith("application/json")
        broken = "" if answers else f"{self.shown} does not answer as a Messages API server"
        async with stream, aclosing(self._raw(stream)) as raws:
            try:
                async for raw in raws:
                    if "error" in raw and raw.get("type", "error") == "error":
                        broken = self._broken_off(raw["error"], reading, request.model, whole=not streams)
                        break
                    for event in reading.take(raw):
                        yield event
            except anthropic.APIStatusError as problem:
                told = " ".join(without_keys(problem.message, *self._secrets).split())[:300]
                broken = f"the server ended the reply: {told}"
            except (anthropic.APIError, httpx2.HTTPError) as problem:
                broken = f"the connection broke ({type(problem).__name__})"
            except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as problem:
                broken = f"the server sent a malformed stream ({type(problem).__name__})"
        if not broken and not reading.finished:
            broken = ENDED
        elif not broken and not (reading.has_content or reading.stop_reason):
            broken = "the reply is empty"
        reading.judge_end((known or await self.info(request.model)).window)
        reply = reading.reply(broken=broken, seconds=time.monotonic() - began)
        if broken and all(block["type"] in ("thinking", "redacted_thinking") for block in reply.said.blocks):
            hint = "run the cell again" if answers else "check ANTHROPIC_BASE_URL"
            if broken == ENDED:  # Ollama tells nobody else
                hint += "; if it happens again, the server's own log says why"
            text = f"{broken}, and no part of the reply had arrived: {hint}"
            raise _TryAgain(Unreachable(text, kind="stream"), broken)
        if request.model in self._guessed and request.model not in self._asking:
            # now that the model is loaded it may be told; nothing waits for it
            self._asked_behind[request.model] += 1
            if self._asked_behind[request.model] <= MOST_ASKED:
                self._ask_about(request.model)
        yield reply

    async def _raw(self, stream: Any) -> AsyncGenerator[dict[str, Any]]:
        """The events of a stream as JSON objects; also where the server writes no `event:` lines, or answers with the
        whole message or with an error in one piece."""
        if self.endpoint.provider == "bedrock":  # frames of its own, which the SDK reads
            async for known in stream:
                yield known.to_dict(mode="python", warnings=False)
            return
        if str(stream.response.headers.get("content-type", "")).startswith("application/json"):
            for event in events_of(json.loads(await stream.response.aread())):
                yield event
            return
        async with aclosing(type(stream).raw_events(stream.response)) as lines:
            async for sse in lines:
                data = sse.data.strip()
                if not data or data == "[DONE]":
                    continue
                try:
                    event = json.loads(data)
                except ValueError:
                    if sse.event != "error":
                        raise
                    event = {"error": data}
                if sse.event == "error" and isinstance(event, dict) and "error" not in event:  # llama.cpp, Bedrock
                    event = {"type": "error", "error": event}
                if isinstance(event, dict):
                    yield event if isinstance(event.get("type"), str) else {**event, "type": sse.event or "error"}

    def _broken_off(self, told: Any, reading: StreamParser, model: str, *, whole: bool) -> str:
        """Why a stream ended with an error. While nothing of a reply has come, what is no accident of the line is
        raised as if the status had said it: some servers refuse a request in the stream (LM Studio), or with status
        200 (`whole`: the error is all that came)."""
        found = told_within(told)
        text = " ".join(without_keys(found.message, *self._secrets).split())[:300].rstrip(".")
        refusal = msgspec.structs.replace(found, status=found.status or 400, message=text)
        if not reading.has_content and (found.status or whole or is_lasting(refusal)):
            problem = failure(refusal, model=model, base_url=self.shown)
            if isinstance(problem, PromptTooLong):
                self.capabilities.learn(self._address, model, text, {})
            if is_transient(refusal):
                raise _TryAgain(problem, reason_of(refusal))
            raise problem
        return f"the server ended the reply: {text}"

    async def _open(self, request: Request) -> tuple[Any, list[str]]:
        """The open stream; leaves out what the endpoint lacks, finding it out on the way. With it a line for each tool
        of the provider's that turned out to be missing."""
        import anthropic

        without: list[str] = []
        while True:
            lacking = self.lacking(request.model)
            info = self.known(request.model) or await self.info(request.model)
            body = body_of(
                request,
                info,
                lacking=lacking,
                thinking=self.endpoint.thinking,
                limit=self.capabilities.largest_output(self._address, request.model) or request.max_tokens,
                betas=str(self.client.default_headers.get("anthropic-beta") or ""),
            )
            try:
                return await self.client.messages.create(**body), without
            except anthropic.APIStatusError as problem:
                refusal = self._read(problem)
                sent = {**body, **body.get("extra_body", {})} | ({"cache_control": ()} if has_marks(body) else {})
                if refusal.status in (400, 422) and self.capabilities.learn(
                    self._address, request.model, refusal.message, sent
                ):
                    for name in {str(tool["name"]) for tool in body.get("tools", ()) if is_declared(tool)}:
                        if not version_of(name, self.lacking(request.model)):
                            words = " ".join(refusal.message.split())[:200]
                            without.append(f"the server does not run {name} ({words}): going on without it")
                    if WHOLE_THINKING in self.lacking(request.model) - lacking:
                        without.append(NO_THINKING)
                    continue
                raise self._told(problem, request.model) from None
            except (anthropic.AnthropicError, TypeError, ValueError) as problem:
                raise self._told(problem, request.model) from None

    async def call(
        self, model: str, send: Callable[[anthropic.AsyncAnthropic], Awaitable[T]], *, twice: bool = True
    ) -> T:
        """What `send` gets from the server, tried again like a message. Raises ModelError.

        `twice` False: what may have been taken is not sent again, and may have been after Unreachable and Busy."""
        import anthropic
        import httpx2

        attempt = 0
        while True:
            try:
                async with self._request():
                    return await send(self.client)
            except (anthropic.AnthropicError, httpx2.HTTPError, TypeError, ValueError) as problem:
                told = self._told(problem, model)
            attempt += 1
            if not isinstance(told, _TryAgain):
                raise told
            if attempt > self.endpoint.retries or not (twice or told.refused):
                raise told.error
            await asyncio.sleep(back_off(attempt, told.asked, self.endpoint.longest_wait)[0])

    def _told(self, problem: Exception, model: str) -> ModelError | _TryAgain:
        """What is to be raised for a failure of the SDK: the error, or that the same may succeed later."""
        import anthropic
        import httpx2

        if isinstance(problem, anthropic.APIStatusError):
            refusal = self._read(problem)
            error = failure(refusal, model=model, base_url=self.shown)
            if is_transient(refusal):
                wait, refused = asked_wait(refusal.headers), refusal.status in REFUSED
                return _TryAgain(error, reason_of(refusal), wait, refused=refused)
            return error
        if isinstance(problem, anthropic.APIConnectionError | httpx2.HTTPError):
            cause = without_keys(_cause(problem), *self._secrets)
            if "header value" in cause.lower():
                return AuthenticationFailed(BAD_KEY, kind="key")
            reason = f"cannot reach {self.shown} ({cause})"
            hint = "check the network and ANTHROPIC_BASE_URL, then run the cell again"
            return _TryAgain(Unreachable(f"{reason}: {hint}", kind="connection"), reason)
        if isinstance(problem, UnicodeEncodeError):
            return AuthenticationFailed(BAD_KEY, kind="key")
        text = " ".join(without_keys(str(problem), *self._secrets).split())
        if "authentication" in text.lower() or "credential" in text.lower():
            return NoCredentials(HINT, kind="credentials")
        return ModelError(
            f"the request could not be sent ({text[:300]}): see %agent doctor", kind=type(problem).__name__
        )

    def _read(self, problem: Any) -> ApiErrorInfo:
        return ApiErrorInfo(
            status=problem.status_code,
            type=str(getattr(problem, "type", "") or ""),
            code=str(getattr(problem, "error_code", "") or ""),
            message=without_keys(_words(problem), *self._secrets),
            request_id=str(problem.request_id or ""),
            headers={str(k).lower(): str(v) for k, v in problem.response.headers.items()},
        )


class _TryAgain(Exception):
    """The same request may succeed later; `error` is raised when tries run out. `refused`: the server did not take
    it, so that nothing can have come of it there."""

    def __init__(self, error: ModelError, reason: str, asked: float | None = None, *, refused: bool = False) -> None:
        super().__init__(reason)
        self.error, self.reason, self.asked, self.refused = error, reason, asked, refused


def has_credentials(endpoint: Endpoint) -> bool:
    """Whether requests can go out at all: a key, a server address, or the SDK's own chain."""
    if endpoint.api_key or endpoint.base_url or endpoint.provider != "anthropic":
        return True
    if any(os.environ.get(f"ANTHROPIC_{name}") for name in ("API_KEY", "AUTH_TOKEN", "BASE_URL", "PROFILE")):
        return True
    if keyring_key():
        return True
    client = _make_client(endpoint)
    return bool(client.api_key or client.auth_token or client.credentials)


def _make_client(endpoint: Endpoint) -> anthropic.AsyncAnthropic:
    import anthropic
    import httpx2

    common: dict[str, Any] = {"max_retries": 0, "timeout": anthropic.Timeout(endpoint.timeout, connect=5.0)}
    address = endpoint.base_url or os.environ.get("ANTHROPIC_BASE_URL", "") if endpoint.provider == "anthropic" else ""
    near = is_loopback(address)
    if not near and (wrong := unusable_variable(address)):
        raise SettingError(wrong)
    if endpoint.provider != "anthropic":
        name = {"bedrock": "AsyncAnthropicBedrock", "vertex": "AsyncAnthropicVertex"}[endpoint.provider]
        try:
            made: Any = getattr(anthropic, name)(**common)
        except Exception as problem:  # noqa: BLE001 - a cloud's own library fails in its own ways; the user reads why
            raise SettingError(
                f"provider {endpoint.provider!r} is not ready ({problem}): pip install 'anthropic[{endpoint.provider}]'"
            ) from None
        return made  # type: ignore[no-any-return] # the clouds' clients have the same methods
    if endpoint.base_url:
        common["base_url"] = base_of(endpoint.base_url)
    key = endpoint.api_key
    if not key and not any(os.environ.get(f"ANTHROPIC_{name}") for name in ("API_KEY", "AUTH_TOKEN")):
        key = keyring_key() or ("none" if endpoint.base_url or os.environ.get("ANTHROPIC_BASE_URL") else "")
    if key:
        common["api_key"] = key
    verify = True if not near and any(map(os.environ.get, CERTIFICATES)) else certificates()
    try:
        # a proxy of the environment is for the world outside, it could not reach this machine
        client = anthropic.DefaultAsyncHttpxClient(trust_env=not near, verify=verify)
        return anthropic.AsyncAnthropic(http_client=client, **common)
    except httpx2.InvalidURL as problem:
        address = without_keys(common.get("base_url") or os.environ.get("ANTHROPIC_BASE_URL", ""), key)
        raise SettingError(
            f"{address!r} is not the address of a server ({problem}): check ANTHROPIC_BASE_URL"
        ) from None
    except (anthropic.AnthropicError, ValueError, OSError) as problem:
        text = " ".join(without_keys(str(problem), key).split())
        raise NoCredentials(
            f"the stored credentials cannot be used ({text}), and ANTHROPIC_API_KEY is not set"
        ) from None


@cache
def certificates() -> ssl.SSLContext:
    """The system's certificates, whatever the environment names: reading them takes longer than all else about a
    client."""
    import httpx2

    return httpx2.create_ssl_context(trust_env=False)


def _words(problem: Any) -> str:
    """The server's own words in an error of the SDK; "" when its answer has no body."""
    said = words_of(problem.body) or str(getattr(problem, "api_message", "") or "")
    return said or (str(problem.message) if problem.response.content.strip() else "")


def _cause(problem: BaseException) -> str:
    """The innermost reason, in a few words."""
    inner: BaseException = problem
    while inner.__cause__ is not None or inner.__context__ is not None:
        inner = inner.__cause__ or inner.__context__ or inner
    return " ".join(str(inner).split())[:120] or type(inner).__name__
