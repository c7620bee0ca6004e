"""The server fails on cue in every way a server can, and the SDK sees what it would see of a real one."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import anthropic
import httpx2
import pytest
from pace import within
from practice_api import TOOL, request

from ipyagent.practice.replies import (
    Reply,
    calls,
    cut,
    cut_tool,
    empty,
    fault,
    late_error,
    malformed,
    raw_tool_json,
    refusal,
    stall,
    text,
    tool,
    wrong_usage,
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


def wait_until(true: Callable[[], bool], seconds: float = 3.0) -> None:
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


def test_retry_after_and_codes_reach_the_sdk() -> None:
    async def work(server: PracticeServer, sdk: anthropic.AsyncAnthropic) -> None:
        patient = sdk.with_options(max_retries=2)
        server.script(fault(429, retry_after_ms=1), fault(529, retry_after=0.001), text("at last"))
        assert (await patient.messages.create(**request())).content[0].text == "at last"
        assert [entry.headers["x-stainless-retry-count"] for entry in server.log] == ["0", "1", "2"]
        server.script(fault(429, code="enforced_spend_limit_reached", should_retry=False))
        with pytest.raises(anthropic.RateLimitError) as caught:
            await patient.messages.create(**request())
        assert caught.value.error_code == "enforced_spend_limit_reached"

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


@pytest.mark.parametrize("how", ENDS)
def test_a_stream_cut_at_any_byte_loses_only_what_comes_after(how: Any) -> None:
    chance = random.Random(7)

    async def work(server: PracticeServer, sdk: anthropic.AsyncAnthropic) -> None:
        async with streamed(sdk) as stream:
            await stream.until_done()
        server.script(LONG)
        async with streamed(sdk) as stream:
            whole = (await stream.get_final_message()).content[1].text
        length = server.log[-1].written
        for at in [0, 1, length - 1, *(chance.randrange(length) for _ in range(2 if how == "hang" else 9))]:
            server.script(cut(LONG, how, after_bytes=at))
            got, failed = "", False
            try:
                async with streamed(sdk.with_options(timeout=0.15)) as stream:
                    async for event in stream:
                        got += event.text if event.type == "text" else ""
                    failed = stream.current_message_snapshot.stop_reason is None
            except (anthropic.APIError, httpx2.HTTPError, AssertionError, ValueError):
                failed = True
            assert whole.startswith(got)
            assert failed or at == length - 1  # its last byte is the second newline after `message_stop`
        server.script(text("still serving"))
        assert (await sdk.messages.create(**request())).content[0].text == "still serving"

    run(work)


def test_a_late_error_comes_after_all_blocks() -> None:
    async def work(server: PracticeServer, sdk: anthropic.AsyncAnthropic) -> None:
        server.script(late_error(tool("get", {"n": 1})))
        seen: list[str] = []
        async with streamed(sdk, tools=[TOOL]) as stream:
            with pytest.raises(anthropic.APIStatusError) as caught:
                await _collect(stream, seen)
        assert seen.count("content_block_stop") == 1
        assert (caught.value.status_code, caught.value.type) == (200, "overloaded_error")

    run(work)


@pytest.mark.paced
def test_a_stall_is_silence_and_then_the_rest() -> None:
    async def work(server: PracticeServer, sdk: anthropic.AsyncAnthropic) -> None:
        server.script(stall(text("patience"), 0.3))
        begun = time.monotonic()
        async with streamed(sdk) as stream:
            assert await stream.get_final_text() == "patience"
        assert 0.3 < time.monotonic() - begun < within(2, 30)

    run(work)


def test_mangled_events_do_not_stop_the_server() -> None:
    async def work(server: PracticeServer, sdk: anthropic.AsyncAnthropic) -> None:
        server.script(malformed(LONG, "bad_json"))
        with pytest.raises((ValueError, anthropic.APIError)):
            await _drain(sdk)
        server.script(malformed(LONG, "bad_sse", after_events=9))
        try:
            async with streamed(sdk) as stream:
                assert (await stream.get_final_message()).content[1].text != LONG.content[1]["text"]
        except (ValueError, anthropic.APIError):
            pass  # either is right: the event is lost, or it is noticed
        server.script(text("fine"))
        assert (await sdk.messages.create(**request())).content[0].text == "fine"

    run(work)


def test_unstreamed_replies_break_too() -> None:
    async def work(server: PracticeServer, sdk: anthropic.AsyncAnthropic) -> None:
        for how in ("drop", "reset", "hang"):
            server.script(cut(LONG, how))  # type: ignore[arg-type]
            with pytest.raises((anthropic.APIConnectionError, httpx2.HTTPError)):
                await sdk.with_options(timeout=0.3).messages.create(**request())

    run(work)


def test_a_cancelled_client_is_noticed_and_leaves_nothing_open() -> None:
    async def work(server: PracticeServer, sdk: anthropic.AsyncAnthropic) -> None:
        for reply in (replace(text("word " * 400), delay=0.01), cut(LONG, "hang"), replace(LONG, first_delay=30.0)):
            server.script(reply)
            task = asyncio.create_task(_drain(sdk))
            while not server.open_streams:
                await asyncio.sleep(0.005)
            await asyncio.sleep(0.05)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            wait_until(lambda: server.open_streams == 0)
            assert server.log[-1].outcome == "client gone"
        assert (await sdk.messages.create(**request())).content[0].text == "echo: hi"

    run(work)


async def _collect(stream: Any, seen: list[str]) -> None:
    async for event in stream:
        seen.append(event.type)


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


@pytest.mark.parametrize("stream", [True, False])
def test_output_stops_at_max_tokens(stream: bool) -> None:
    async def work(server: PracticeServer, sdk: anthropic.AsyncAnthropic) -> None:
        server.script(text("one two three four five six seven eight nine ten eleven twelve"))
        body = request(max_tokens=10)
        if stream:
            async with sdk.messages.stream(**body) as opened:
                message: Any = await opened.get_final_message()
        else:
            message = await sdk.messages.create(**body)
        assert (message.stop_reason, message.usage.output_tokens) == ("max_tokens", 10)
        assert message.content[0].text == "one two three four five six seven"

    run(work)


def test_output_that_reaches_the_window_says_so() -> None:
    async def work(server: PracticeServer, sdk: anthropic.AsyncAnthropic) -> None:
        server.script(text("word " * 200))
        message = await sdk.messages.create(**request(max_tokens=100))
        assert message.stop_reason == "model_context_window_exceeded"
        assert message.usage.input_tokens + message.usage.output_tokens == 50

    run(work, window=50)


def test_a_tool_call_cut_by_max_tokens_is_half_a_json() -> None:
    async def work(server: PracticeServer, sdk: anthropic.AsyncAnthropic) -> None:
        for reply in (cut_tool("get", {"code": "x" * 80}), tool("get", {"code": "x " * 80})):
            server.script(reply)
            async with streamed(sdk, tools=[TOOL], max_tokens=60) as stream:
                message = await stream.get_final_message()
            assert message.stop_reason == "max_tokens"
            assert message.content[0].type == "tool_use"
            assert 0 < len(message.content[0].input.get("code", "x")) < 160

    run(work)


def test_a_stop_sequence_ends_the_text() -> None:
    async def work(server: PracticeServer, sdk: anthropic.AsyncAnthropic) -> None:
        server.script(text("one END two"))
        message = await sdk.messages.create(**request(stop_sequences=["END"]))
        assert (message.content[0].text, message.stop_reason, message.stop_sequence) == (
            "one ", "stop_sequence", "END",
        )

    run(work)


ODD: dict[str, Reply] = {
    "empty": empty(),
    "refusal": refusal("I", category="bio", explanation="no"),
    "same id twice": calls([("get", {}), ("get", {})], ids=["a", "a"]),
    "false usage": wrong_usage(text("x"), input_tokens=7, output_tokens=9),
}


@pytest.mark.parametrize("odd", ODD)
def test_odd_replies_arrive_as_they_were_scripted(odd: str) -> None:
    async def work(server: PracticeServer, sdk: anthropic.AsyncAnthropic) -> None:
        server.script(ODD[odd])
        async with streamed(sdk, tools=[TOOL]) as stream:
            message = await stream.get_final_message()
        match odd:
            case "empty":
                assert (message.content, message.stop_reason) == ([], "end_turn")
            case "refusal":
                assert (message.stop_reason, message.stop_details.category) == ("refusal", "bio")
            case "same id twice":
                assert [block.id for block in message.content] == ["a", "a"]
            case _:
                assert (message.usage.input_tokens, message.usage.output_tokens) == (7, 9)

    run(work)


def test_invalid_tool_json_is_sent_as_it_is() -> None:
    async def work(server: PracticeServer, sdk: anthropic.AsyncAnthropic) -> None:
        server.script(raw_tool_json("get", '{"a": tru]'))
        raw = ""
        stream = await sdk.messages.create(**request(stream=True, tools=[TOOL]))
        async for event in stream:
            if event.type == "content_block_delta":
                raw += event.delta.partial_json
        assert raw == '{"a": tru]'

    run(work)


def test_a_failing_brain_is_a_500_and_its_traceback_is_in_the_log() -> None:
    def brain(body: dict[str, Any]) -> Reply:
        raise KeyError("no such rule")

    async def work(server: PracticeServer, sdk: anthropic.AsyncAnthropic) -> None:
        with pytest.raises(anthropic.InternalServerError, match="no such rule"):
            await sdk.messages.create(**request())
        assert server.log[-1].outcome == "brain failed"
        assert "in brain" in server.log[-1].error

    run(work, brain=brain)
