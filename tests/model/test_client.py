"""The one way out: what is tried again, what is not, what the user reads, what is found out of a server."""

from __future__ import annotations

import asyncio
import email.utils
import json
import socket
import sys
import time
from contextlib import aclosing
from typing import Any

import pytest
from model_room import KEY, MODEL, Talk, answers, ask, model_at, odd_server, page, request, said, texts, waits

from ipyagent.errors import (
    AgentError,
    AuthenticationFailed,
    BadRequest,
    Busy,
    ImageRefused,
    ModelError,
    NoCredentials,
    NoSuchPath,
    PromptTooLong,
    QuotaSpent,
    TooLarge,
    UnknownModel,
    Unreachable,
)
from ipyagent.journal.protocols import ModelReply, ResponseStarted
from ipyagent.model.capabilities import Capabilities
from ipyagent.model.client import AnthropicModel
from ipyagent.model.client_pool import Connections
from ipyagent.model.endpoint import Endpoint, is_loopback
from ipyagent.practice.replies import Fault, How, cut, fault, stall, text, wrong_usage
from ipyagent.practice.server import PracticeServer

REFUSED: list[tuple[Any, type[ModelError], str]] = [
    (fault(400, message="something"), BadRequest, "something"),
    (fault(422, message="something"), BadRequest, "something"),
    (fault(400, message="prompt is too long: 9 tokens > 8 maximum"), PromptTooLong, "%agent new"),
    (fault(400, kind="exceed_context_size_error", message="the request exceeds"), PromptTooLong, "%agent new"),
    (fault(400, message="This model's maximum context length is 4096 tokens"), PromptTooLong, "larger window"),
    (fault(400, message="input length and `max_tokens` exceed context limit: 9 + 8 > 7"), PromptTooLong, "window"),
    (fault(400, message="messages.0.content.1.image.source: Could not process image"), ImageRefused, "image"),
    (fault(401), AuthenticationFailed, "ANTHROPIC_API_KEY"),
    (fault(402), QuotaSpent, "raise it"),
    (fault(403), AuthenticationFailed, "ANTHROPIC_API_KEY"),
    (fault(404, message="model: claude-none"), UnknownModel, "%agent model"),
    (fault(404, message="Not Found"), NoSuchPath, "ANTHROPIC_BASE_URL"),
    (fault(413), TooLarge, "%agent new"),
    (fault(429, code="enforced_spend_limit_reached"), QuotaSpent, "raise it"),
    (fault(429, should_retry=False), Busy, "run the cell again"),
    (fault(529, should_retry=False), Busy, "run the cell again"),
]


def test_what_is_refused_for_good_is_asked_once(server: PracticeServer) -> None:
    for scripted, error, says in REFUSED:
        server.script(scripted)
        count = len(server.messages)
        with pytest.raises(error) as caught:
            ask(server.url)
        assert type(caught.value) is error
        assert says in str(caught.value)
        assert "\n" not in str(caught.value)
        assert len(server.messages) == count + 1, says
        assert caught.value.request_id == server.messages[-1].request_id
        assert caught.value.request_id in str(caught.value)


def test_a_busy_server_is_asked_again_and_then_given_up(server: PracticeServer) -> None:
    with Talk(server.url) as talk:
        for status in (408, 409, 429, 500, 502, 503, 504, 529):
            count = len(server.messages)
            server.script(*[fault(status)] * 2, text("here"))
            events = talk.ask()
            assert said(events) == "here"
            assert [wait.attempt for wait in waits(events)] == [1, 2]
            server.script(*[fault(status)] * 3)
            with pytest.raises(Busy, match="again"):
                talk.ask()
            assert len(server.messages) == count + 6, status


def test_the_server_says_how_long_to_wait_within_our_cap(server: PracticeServer) -> None:
    wishes: list[tuple[dict[str, Any], float]] = [
        ({"retry_after": 0.02}, 0.02), ({"retry_after_ms": 30}, 0.03),
        ({"retry_after": 0.04, "retry_after_ms": 10}, 0.01), ({"retry_after": 86_400}, 0.05),
        ({"retry_after": float("inf")}, 0.05), ({"retry_after": -3}, 0.0),
    ]  # fmt: skip
    later = email.utils.formatdate(time.time() + 30, usegmt=True)
    with Talk(server.url) as talk:
        server.script(Fault(503, headers={"retry-after": later}), text("here"))
        [wait] = waits(talk.ask())
        assert wait.seconds == 0.05, "a date is read, too"
        assert any(f"asks for {seconds} s" in wait.reason for seconds in (28, 29, 30)), wait.reason
        for headers, seconds in wishes:
            server.script(fault(429, **headers), text("here"))
            [wait] = waits(talk.ask())
            assert wait.seconds == pytest.approx(seconds), headers
            assert ("asks for" in wait.reason) == (seconds == 0.05), headers
        server.script(fault(400, should_retry=True), text("here"))
        assert said(talk.ask()) == "here", "should_retry of the server wins"


def test_without_a_wish_waits_grow_and_stay_under_eight_seconds() -> None:
    from ipyagent.model.api_errors import back_off

    for attempt, most in ((1, 0.5), (2, 1.0), (3, 2.0), (5, 8.0), (60, 8.0)):
        seconds, remark = back_off(attempt, None, 60.0)
        assert 0.75 * most <= seconds <= most
        assert remark == ""


BREAKS: tuple[How, ...] = ("eof", "drop", "reset", "hang", "error", "bad_json")


def test_a_stream_that_breaks_is_asked_again_or_keeps_what_came_of_its_content(server: PracticeServer) -> None:
    with Talk(server.url, timeout=0.3) as talk:
        for how in BREAKS:
            for after in (0, 2):
                server.script(cut(text("one two three"), how, after_events=after, seconds=1.0), text("here"))
                events = talk.ask()
                assert said(events) == "here", (how, after)
                assert len(waits(events)) == 1, (how, after)
            server.script(cut(text("one two three four five six seven"), how, after_events=5, seconds=1.0))
            events = talk.ask()
            reply = events[-1]
            assert isinstance(reply, ModelReply)
            assert reply.broken, how
            assert "\n" not in reply.broken
            assert (reply.said.partial, reply.said.stop_reason) == (True, "")
            assert said(events) == texts(events) != ""
        # an event that is no event is skipped, as the SSE rules ask for
        server.script(cut(text("one two three four five six seven"), "bad_sse", after_events=5, seconds=1.0))
        assert isinstance(talk.ask()[-1], ModelReply)


def test_cancelling_closes_the_connection(server: PracticeServer) -> None:
    server.script(text("word " * 200, delay=0.05))

    async def leave() -> None:
        model = model_at(server.url)
        task = asyncio.ensure_future(answers(model))
        while not server.open_streams:
            await asyncio.sleep(0.01)
        await asyncio.sleep(0.1)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        for _ in range(200):
            if not server.open_streams:
                break
            await asyncio.sleep(0.01)
        assert server.open_streams == 0
        server.script(text("usable"))
        assert said(await answers(model)) == "usable"
        await model.close()

    asyncio.run(leave())


def test_a_silence_within_the_limit_is_waited_out_and_a_longer_one_is_not(server: PracticeServer) -> None:
    server.script(stall(text("one two three four five six"), 0.1, after_events=5))
    assert said(ask(server.url, timeout=1.0)) == "one two three four five six"


def test_an_address_that_is_none_and_a_server_that_is_not_there_are_said_in_a_line() -> None:
    for url, error, says in (
        ("http://[bad", AgentError, "ANTHROPIC_BASE_URL"),
        ("http://host:port", AgentError, "ANTHROPIC_BASE_URL"),
        ("http://a b", AgentError, "ANTHROPIC_BASE_URL"),
        ("http://127.0.0.1:9", ModelError, "127.0.0.1:9"),
        ("http://no-such-host.invalid", ModelError, "no-such-host.invalid"),
        ("http://user:hunter2hunter2@127.0.0.1:9", ModelError, "ANTHROPIC_BASE_URL"),
        ("no-scheme:11434", ModelError, "ANTHROPIC_BASE_URL"),
        ("http://", ModelError, "ANTHROPIC_BASE_URL"),
    ):
        with pytest.raises(error) as caught:
            ask(url, retries=1)
        assert says in str(caught.value)
        assert "hunter2" not in str(caught.value) + repr(caught.value)
        assert "\n" not in str(caught.value)


def test_a_server_that_takes_the_connection_and_says_nothing_is_given_up() -> None:
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen(8)

        capabilities = Capabilities()
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        capabilities.lacks(url, "models")
        with Talk(url, capabilities, timeout=0.2, retries=1) as talk, pytest.raises(Unreachable):
            talk.run(asyncio.wait_for(answers(talk.model), 100))  # the client's own patience is 600 s


NO_API = [
    page("text/html", b"<html><body>Please log in</body></html>"),
    page("application/json", b'{"hello": "world"}'),
    page("text/html", b"<html>not here</html>", status=404),
    page("text/html", b"<html>" + b"x" * 5_000 + b"</html>", status=502),
    page("application/json", b"[1, 2", status=400),
    page("application/json", b'{"error": "a plain string"}', status=400),
    page("application/json", b'"nothing"', status=500),
    page("text/event-stream", b""),
    page("text/event-stream", b"data: \n\ndata: [DONE]\n\n"),
    page("text/event-stream", b"event: message_start\ndata: {}\n\nevent: message_stop\ndata: {}\n\n"),
    page("text/event-stream", b'event: message_start\ndata: {"type": "message_start", "message": null}\n\n'),
    page("text/event-stream", b'event: content_block_delta\ndata: {"type":"content_block_delta"}\n\n'),
    page("text/event-stream", b'event: error\ndata: {"type":"error","error":null}\n\n'),
    page("text/event-stream", b"\xff\xfe\x00\x01" * 50),
]


def test_a_server_that_is_no_messages_api_is_one_line() -> None:
    for number, answer in enumerate(NO_API):
        with odd_server(answer) as url, pytest.raises(ModelError) as caught:
            ask(url, retries=1)
        told = str(caught.value)
        assert "\n" not in told
        assert 20 < len(told) < 900
        login = "does not answer as a Messages API server" in told and "ANTHROPIC_BASE_URL" in told
        assert login or number, "a login page is told from an answer"


BEHIND_200: list[tuple[dict[str, Any], type[ModelError], str]] = [
    ({"error": {"code": 402, "message": "Insufficient credits"}}, QuotaSpent, "Insufficient credits"),
    ({"error": {"code": 429, "message": "Provider returned error"}}, Busy, "Provider returned error"),
    ({"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}, Busy, "overloaded"),
    ({"error": "No models loaded. Please load a model in the developer page."}, ModelError, "load a model in the"),
    ({"error": "Unexpected endpoint or method. (POST /v1/messages)"}, NoSuchPath, "no Messages API"),
    ({"error": {"message": "llama does not support tools"}}, ModelError, "choose a model that can call them"),
    ({"error": {"message": "Function call is missing a thought_signature"}}, BadRequest, "another model with"),
    ({"error": {"message": "prompt is too long: 9 tokens > 8 maximum"}}, PromptTooLong, "%agent new"),
    ({"error": {"message": "something else"}}, BadRequest, "something else"),
]


def test_an_error_behind_status_200_is_what_it_says() -> None:
    for body, error, says in BEHIND_200:
        for form in ("application/json", "text/event-stream"):
            data = json.dumps(body).encode()
            answer = page(form, data if form == "application/json" else b"data: " + data + b"\n\n")
            if says == "something else" and form == "text/event-stream":
                error = Unreachable  # it may be an accident of the line: it was asked again
            with odd_server(answer) as url, pytest.raises(ModelError) as caught:
                ask(url, retries=1)
            assert type(caught.value) is error, (body, form)
            assert says in str(caught.value)


def test_a_message_in_one_piece_is_a_reply() -> None:
    call = {"type": "tool_use", "id": "t1", "name": "python", "input": {"code": "1"}}
    body = {"type": "message", "role": "assistant", "content": [{"type": "text", "text": "so"}, call],
            "stop_reason": "tool_use", "usage": {"input_tokens": 7, "output_tokens": 3}}  # fmt: skip
    with odd_server(page("application/json", json.dumps(body).encode())) as url:
        events = ask(url)
    assert (texts(events), events[-1].broken, events[-1].said.stop_reason) == ("so", "", "tool_use")
    assert events[-1].said.blocks[1] == call
    assert (events[-1].usage.input, events[-1].usage.output) == (7, 3)


NO_MODEL = {  # product: status and how it says that it has no such model
    "Anthropic": (404, "model: claude-x"),
    "Ollama": (404, "model 'claude-x' not found"),
    "Ollama 0.3": (404, 'model "claude-x" not found, try pulling it first'),
    "vLLM": (404, "The model `claude-x` does not exist."),
    "OpenAI": (404, "The model `claude-x` does not exist or you do not have access to it."),
    "LiteLLM": (400, "/chat/completions: Invalid model name passed in model=claude-x. Call `/v1/models` to view"),
    "LiteLLM key": (401, "key not allowed to access model. This key can only access models=['qwen']. Tried claude-x"),
    "LiteLLM router": (400, "There are no healthy deployments for this model. Received Model Group=claude-x"),
    "OpenRouter": (400, "claude-x is not a valid model ID"),
    "OpenRouter 404": (404, "No endpoints found for claude-x."),
    "Bedrock": (400, "The provided model identifier is invalid."),
    "llama.cpp": (400, "model name=claude-x is not found"),
    "One API": (503, "no available channel for model claude-x under group default"),
}


def test_a_model_that_is_not_there_is_known_in_every_wording_and_asked_for_once() -> None:
    for product, (status, words) in NO_MODEL.items():
        asked: list[str] = []
        body = json.dumps({"type": "error", "error": {"type": "some_error", "message": words}}).encode()
        whole = page("application/json", body, status=status)

        def answer(handler: Any, asked: list[str] = asked, whole: Any = whole) -> None:
            asked.append(handler.path)
            whole(handler)

        with odd_server(answer) as url, pytest.raises(UnknownModel) as caught:
            ask(url, retries=2)
        assert "%agent model NAME" in str(caught.value)
        assert words[:30] in str(caught.value)
        assert asked.count("/v1/messages") == 1, product


# ------------------------------------------------------------------ keys


def test_no_key_and_no_server_is_the_hint_with_three_ways() -> None:
    with pytest.raises(NoCredentials) as caught:
        Connections().get(MODEL, Endpoint())
    for way in ("ANTHROPIC_API_KEY", "ANTHROPIC_BASE_URL", "%agent model practice"):
        assert way in str(caught.value)


def test_a_key_is_in_no_message_and_no_repr(server: PracticeServer) -> None:
    with Talk(server.url, retries=0) as talk:
        for status in (400, 401, 403, 404, 413, 429, 500, 529):
            server.script(fault(status, message=f"bad key {KEY} in Bearer {KEY} of sk-ant-abcdefghijkl"))
            with pytest.raises(ModelError) as caught:
                talk.ask()
            shown = f"{caught.value} {caught.value!r} {caught.value._render_traceback_()} {caught.value.__cause__!r}"
            assert KEY not in shown
            assert "sk-ant-abc" not in shown
        server.script(cut(text("x"), "error", after_events=4))
        model = talk.model
        assert KEY not in repr(talk.ask()) + repr(model) + repr(model.endpoint) + f"{model.endpoint}"
    for key in (KEY + "\nrest-of-it", "two\r\nlines-of-key", KEY + "\n"):  # none that can be sent
        with pytest.raises(AuthenticationFailed) as refused:
            ask(server.url, api_key=key)
        assert "set ANTHROPIC_API_KEY" in str(refused.value)
        assert key[:8] not in str(refused.value) + repr(refused.value)


def test_a_key_set_later_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "first-key-123456")
    with PracticeServer(api_key="second-key-123456") as strict, Talk(strict.url, api_key="") as talk:
        with pytest.raises(AuthenticationFailed):
            talk.ask()
        monkeypatch.setenv("ANTHROPIC_API_KEY", "second-key-123456")
        assert said(talk.ask())


def test_a_client_that_another_took_the_place_of_is_closed_once_its_requests_have_ended(
    server: PracticeServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def both() -> None:
        monkeypatch.setenv("ANTHROPIC_API_KEY", "first-key-123456")
        model = AnthropicModel(Endpoint(base_url=server.url))
        server.script(text("one two three four five six", delay=0.05), text("later"))
        first = asyncio.ensure_future(answers(model))
        while not server.open_streams:
            await asyncio.sleep(0.01)
        old = model.client
        monkeypatch.setenv("ANTHROPIC_API_KEY", "second-key-123456")
        assert said(await answers(model)) == "later"
        assert model.client is not old
        assert said(await first) == "one two three four five six"
        assert old.is_closed()
        newest = model.client
        await model.close()
        assert newest.is_closed()

    asyncio.run(both())


def test_a_stream_that_is_left_is_closed_at_once_and_not_by_the_garbage_collector(server: PracticeServer) -> None:
    server.script(text("word " * 200, delay=0.05))

    async def leave() -> None:
        left: list[Any] = []
        sys.set_asyncgen_hooks(finalizer=left.append)
        model = model_at(server.url)
        async with aclosing(model.stream(request())) as events:  # type: ignore[type-var] # an async generator
            async for _ in events:
                break
        assert [each for each in left if "ipyagent" in each.ag_code.co_filename] == []
        await model.close()

    asyncio.run(leave())


# ------------------------------------------------------------------ what a server can do


def test_what_a_server_refuses_is_left_out_from_then_on() -> None:
    for lacking in ({"cache_control"}, {"thinking"}, {"cache_control", "thinking", "output_config"}):
        capabilities, refused = Capabilities(), []
        with PracticeServer(refuse_unknown=lacking) as lesser:
            for _ in range(2):  # the second is another client of the same kernel
                with Talk(lesser.url, capabilities) as talk:
                    for _ in range(2):
                        assert said(talk.ask(effort="low"))
                        refused.append(len(lesser.refused))
        assert 1 <= refused[0] <= len(lacking)
        assert refused == [refused[0]] * 4


def test_a_server_without_an_ability_works() -> None:
    for without in ("caching", "models", "count_tokens", "thinking", "output_config", "diagnostics"):
        with PracticeServer(without={without}) as lesser:
            assert said(ask(lesser.url))
            assert lesser.refused == [] or without == "models"
            assert len(lesser.messages) == 1


def test_a_model_without_thinking_takes_it_from_no_other_model() -> None:
    capabilities = Capabilities()
    sent = {"thinking": {}, "max_tokens": 5}
    assert capabilities.learn("http://a", "old", 'thinking.type: "adaptive" is not supported for old', sent)
    assert "thinking" in capabilities.lacking("http://a", "old")
    assert "thinking" not in capabilities.lacking("http://a", "new")
    assert "thinking" not in capabilities.lacking("http://b", "old")


def test_a_fault_of_the_conversation_is_not_taken_for_one_of_the_server() -> None:
    for message in (
        "messages.1.content.0.thinking: Extra inputs are not permitted",
        "messages.1.content.0: Invalid `signature` in `thinking` block",
        "something else about thinking",
    ):
        capabilities = Capabilities()
        assert not capabilities.learn("http://a", "m", message, {"thinking": {}, "max_tokens": 5})
        assert capabilities.lacking("http://a", "m") == frozenset()


def test_each_model_is_asked_for_what_it_has_and_what_the_settings_want(server: PracticeServer) -> None:
    """Thinking and effort, more output than the server allows, and the window of the suffix."""
    with Talk(server.url) as talk:
        assert said(talk.ask(model="claude-haiku-4-5")), "without adaptive thinking"
        assert said(talk.ask(model=MODEL))
        assert server.messages[-1].body["thinking"]["type"] == "adaptive"
        for effort in ("low", "high", "max"):
            for given in ({"effort": effort}, {"effort": effort, "model": "claude-haiku-4-5"}, {}):
                talk.ask(**given)
        bodies = [exchange.body or {} for exchange in server.messages if exchange.outcome == "complete"]
        efforts = [body.get("output_config") for body in bodies[-9:]]
        assert efforts == [each for effort in ("low", "high", "max") for each in ({"effort": effort}, None, None)]
        begun = len(server.messages)
        for _ in range(2):
            assert said(talk.ask(model="claude-sonnet-4-6", max_tokens=128_001))
        sent = [exchange.body["max_tokens"] for exchange in server.messages[begun:] if exchange.body]
        assert sent == [128_001, 64_000, 64_000], "cut and remembered"
        info = talk.info("claude-sonnet-4-6[1m]")
        assert (info.window, info.source) == (1_000_000, "[1m] suffix")
        begun = len(server.messages)
        assert said(talk.ask(model="claude-sonnet-4-6[1m]"))
        [last] = server.messages[begun:]
        assert last.body["model"] == "claude-sonnet-4-6"
        assert "context-1m" in last.headers["anthropic-beta"]
    begun = len(server.messages)
    ask(server.url, thinking=False)
    [last] = server.messages[begun:]
    assert "thinking" not in last.body


def test_the_models_api_is_asked_once_and_again_only_after_a_failure(server: PracticeServer) -> None:
    with Talk(server.url) as talk:
        for _ in range(3):
            assert talk.info("claude-sonnet-4-6").window == 200_000
    assert [exchange.method for exchange in server.log] == ["GET"]
    calls: list[str] = []

    def flaky(handler: Any) -> None:
        calls.append(handler.path)
        told = b'{"id":"m","type":"model","max_input_tokens":77000,"max_tokens":null,"capabilities":null}'
        answer = page("application/json", told) if len(calls) > 1 else page("text/plain", b"", status=500)
        answer(handler)

    with odd_server(flaky) as url, Talk(url) as talk:
        assert talk.info("m").source == "default"
        assert talk.info("m").window == 77_000
        assert talk.info("m").max_output == 32_000
        assert len(calls) == 2


def test_a_models_api_that_talks_nonsense_leaves_the_defaults() -> None:
    for told in (
        b"null", b"[]", b'{"max_input_tokens": "many"}', b'{"max_input_tokens": -4, "max_tokens": 0}', b"{}", b"<html>"
    ):  # fmt: skip
        with odd_server(page("application/json", told)) as url, Talk(url) as talk:
            info = talk.info("m")
            assert (info.window, info.max_output) == (200_000, 32_000), told


def test_odd_usage_is_survived_in_silence(
    server: PracticeServer, recwarn: pytest.WarningsRecorder, capfd: pytest.CaptureFixture[str]
) -> None:
    odd: list[dict[str, Any]] = [
        {"input_tokens": None, "cache_read_input_tokens": None, "cache_creation_input_tokens": None},
        {"input_tokens": "many"}, {"input_tokens": 10**40}, {"input_tokens": -1}, {"cache_creation": 7},
        {"surprise": {"nested": [1]}},
    ]  # fmt: skip
    with Talk(server.url) as talk:
        for numbers in odd:
            server.script(wrong_usage(text("fine"), **numbers))
            events = talk.ask()
            assert said(events) == "fine", numbers
            assert any(isinstance(event, ResponseStarted) for event in events)
    assert [str(warning.message) for warning in recwarn if "Pydantic" in str(warning.message)] == []
    assert capfd.readouterr().err == ""


def test_a_proxy_of_the_environment_does_not_come_between_us_and_this_machine(
    server: PracticeServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")  # nothing listens there
    monkeypatch.delenv("NO_PROXY", raising=False)
    monkeypatch.delenv("no_proxy", raising=False)
    server.script(text("here"))
    assert said(asyncio.run(answers(model_at(server.url, retries=0)))) == "here"


def test_this_machine_is_told_from_the_world() -> None:
    for address in ("http://127.0.0.1:8080", "http://localhost:11434", "http://[::1]:1"):
        assert is_loopback(address), address
    for address in ("https://api.anthropic.com", "http://127.0.0.1.example.org", "", "http://["):
        assert not is_loopback(address), address
