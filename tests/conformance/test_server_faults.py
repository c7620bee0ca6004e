"""The server fails on cue in every way a server can, and the SDK sees what it would see of a real one."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import anthropic
import httpx2
import pytest
from pace import within
from practice_api import request

from ipyagent.practice.replies import (
    Reply,
    cut,
    fault,
    text,
)
from ipyagent.practice.server import PracticeServer

LONG = text("a long answer that will be cut in its middle, 中文 too", thinking="well")


def run(work: Callable[[PracticeServer, anthropic.AsyncAnthropic], Any], **options: Any) -> PracticeServer:
    """Run a coroutine against a fresh server; no request may be left open at its end."""
    with PracticeServer(**options) as server:

        async def go() -> None:
            http = anthropic.DefaultAsyncHttpxClient(verify=False)  # plain http on loopback: no certificates to load
            async with anthropic.AsyncAnthropic(
                base_url=server.url, api_key="practice", max_retries=0, http_client=http
            ) as sdk:
                await work(server, sdk)

        asyncio.run(go())
        wait_until(lambda: server.open_streams == 0)
    return server


def wait_until(true: Callable[[], bool], seconds: float = 60.0) -> None:
    until = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < until, "it did not happen in time"
        time.sleep(0.005)


@asynccontextmanager
async def streamed(sdk: anthropic.AsyncAnthropic, **more: Any) -> AsyncIterator[Any]:
    async with sdk.messages.stream(**request(**more)) as stream:
        yield stream


STATUSES = {
    400: (anthropic.BadRequestError, "invalid_request_error"),
    401: (anthropic.AuthenticationError, "authentication_error"),
    402: (anthropic.PaymentRequiredError, "billing_error"),
    403: (anthropic.PermissionDeniedError, "permission_error"),
    404: (anthropic.NotFoundError, "not_found_error"),
    413: (anthropic.RequestTooLargeError, "request_too_large"),
    429: (anthropic.RateLimitError, "rate_limit_error"),
    500: (anthropic.InternalServerError, "api_error"),
    504: (anthropic.GatewayTimeoutError, "timeout_error"),
    529: (anthropic.OverloadedError, "overloaded_error"),
}


def test_every_status_comes_with_its_type_and_request_id() -> None:
    async def work(server: PracticeServer, sdk: anthropic.AsyncAnthropic) -> None:
        for status, (kind, word) in STATUSES.items():
            server.script(fault(status, message="on cue"))
            with pytest.raises(kind, match="on cue") as caught:
                await sdk.messages.create(**request())
            assert (caught.value.type, caught.value.request_id) == (word, server.log[-1].request_id)
            assert server.log[-1].outcome == "fault"
        assert server.refused == []

    run(work)


ENDS: dict[str, Any] = {
    "eof": None,
    "drop": httpx2.RemoteProtocolError,
    "reset": httpx2.ReadError,
    "hang": httpx2.ReadTimeout,
    "error": anthropic.APIStatusError,
}


@pytest.mark.parametrize("how", ENDS)
def test_a_cut_stream_ends_as_the_failure_matrix_says(how: Any) -> None:
    async def work(server: PracticeServer, sdk: anthropic.AsyncAnthropic) -> None:
        server.script(cut(LONG, how, after_events=8))
        async with streamed(sdk.with_options(timeout=0.4)) as stream:
            if ENDS[how] is None:
                message = await stream.get_final_message()
                assert message.stop_reason is None
            else:
                with pytest.raises(ENDS[how]) as caught:
                    await stream.until_done()
                assert type(caught.value) is ENDS[how]
            assert stream.current_message_snapshot.content[0].thinking == "well"

    server = run(work)
    assert server.log[0].outcome == ("client gone" if how == "hang" else how)


def test_unstreamed_replies_break_too() -> None:
    async def work(server: PracticeServer, sdk: anthropic.AsyncAnthropic) -> None:
        for how in ("drop", "reset", "hang"):
            server.script(cut(LONG, how))  # type: ignore[arg-type]
            with pytest.raises((anthropic.APIConnectionError, httpx2.HTTPError)):
                await sdk.with_options(timeout=0.3).messages.create(**request())

    run(work)


async def _drain(sdk: anthropic.AsyncAnthropic) -> None:
    async with streamed(sdk) as stream:
        await stream.until_done()


@pytest.mark.paced
def test_stopping_ends_open_streams_at_once() -> None:
    with PracticeServer() as server:
        server.script(cut(LONG, "hang"))

        async def go() -> None:
            sdk = anthropic.AsyncAnthropic(base_url=server.url, api_key="practice", max_retries=0)
            task = asyncio.create_task(_drain(sdk))
            while not server.open_streams:
                await asyncio.sleep(0.005)
            begun = time.monotonic()
            await asyncio.to_thread(server.stop)
            with pytest.raises((httpx2.HTTPError, anthropic.APIError)):
                await task
            assert time.monotonic() - begun < within(2, 30)
            await sdk.close()

        asyncio.run(go())
        wait_until(lambda: server.open_streams == 0)


def test_output_stops_at_max_tokens_and_at_a_stop_sequence() -> None:
    async def work(server: PracticeServer, sdk: anthropic.AsyncAnthropic) -> None:
        server.script(*[text("one two three four five six seven eight nine ten eleven twelve")] * 2)
        body = request(max_tokens=10)
        async with sdk.messages.stream(**body) as opened:
            streamed: Any = await opened.get_final_message()
        whole: Any = await sdk.messages.create(**body)
        for message in (streamed, whole):
            assert (message.stop_reason, message.usage.output_tokens) == ("max_tokens", 10)
            assert message.content[0].text == "one two three four five six seven"
        server.script(text("one END two"))
        message = await sdk.messages.create(**request(stop_sequences=["END"]))
        assert (message.content[0].text, message.stop_reason, message.stop_sequence) == (
            "one ", "stop_sequence", "END",
        )

    run(work)


def test_output_that_reaches_the_window_says_so() -> None:
    async def work(server: PracticeServer, sdk: anthropic.AsyncAnthropic) -> None:
        server.script(text("word " * 200))
        message = await sdk.messages.create(**request(max_tokens=100))
        assert message.stop_reason == "model_context_window_exceeded"
        assert message.usage.input_tokens + message.usage.output_tokens == 50

    run(work, window=50)


def test_a_failing_brain_is_a_500_and_its_traceback_is_in_the_log() -> None:
    def brain(body: dict[str, Any]) -> Reply:
        raise KeyError("no such rule")

    async def work(server: PracticeServer, sdk: anthropic.AsyncAnthropic) -> None:
        with pytest.raises(anthropic.InternalServerError, match="no such rule"):
            await sdk.messages.create(**request())
        assert server.log[-1].outcome == "brain failed"
        assert "in brain" in server.log[-1].error

    run(work, brain=brain)
