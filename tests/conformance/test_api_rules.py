"""One test a rule of the Messages API: status, error type and words."""

from __future__ import annotations

import base64
import http.client
import json
from collections.abc import Iterator
from typing import Any

import anthropic
import pytest
from practice_api import TOOL, Body, ask, assistant, client, image, png, request, result, said, use, user

from ipyagent.practice.replies import pause_turn, text
from ipyagent.practice.server import PracticeServer

MARK = {"type": "ephemeral"}
HOUR = {"type": "ephemeral", "ttl": "1h"}
PDF = {"type": "base64", "media_type": "application/pdf", "data": base64.b64encode(b"%PDF-1.4 /Type /Page").decode()}


@pytest.fixture(scope="module")
def server() -> Iterator[PracticeServer]:
    with PracticeServer() as running:
        yield running


@pytest.fixture(scope="module")
def sdk(server: PracticeServer) -> Iterator[anthropic.Anthropic]:
    with client(server) as made:
        yield made


ASKED = user("hi")
CALLED = assistant(use("a"), use("b"))
SMALL = png(10, 10)


def tools(*given: Any, **more: Any) -> Body:
    return request(tools=list(given), **more)


def schema(**inner: Any) -> Body:
    return tools({"name": "x", "input_schema": inner})


REFUSED: dict[str, tuple[Body, str]] = {
    "no messages": ({"model": "practice", "max_tokens": 1}, "messages: Field required"),
    "empty messages": ({**request(), "messages": []}, "at least one message"),
    "no max_tokens": ({"model": "practice", "messages": [ASKED]}, "max_tokens: Field required"),
    "max_tokens below zero": (request(max_tokens=-1), "max_tokens"),
    "max_tokens over the model's": (request(max_tokens=64_001), "max_tokens: 64001 > 64000"),
    "max_tokens not a number": (request(max_tokens="9"), "max_tokens: Input should be a valid integer"),
    "unknown field": (request(seed=1), "seed: Extra inputs are not permitted"),
    "temperature": (request(temperature=0.5), "temperature"),
    "top_p": (request(top_p=0.5), "top_p"),
    "top_k": (request(top_k=5), "top_k"),
    "first message is the assistant's": (request(assistant("x"), ASKED), 'first message must use the "user" role'),
    "unknown role": (request({"role": "tool", "content": "x"}), "messages.0.role"),
    "unknown field of a message": (request({**ASKED, "name": "x"}), "messages.0.name: Extra inputs"),
    "prefill": (request(ASKED, assistant("so")), "does not support assistant message prefill"),
    "empty content": (request(user("")), "messages.0"),
    "no blocks": (request({"role": "user", "content": []}), "non-empty content"),
    "whitespace content": (request(user(" \n")), "non-whitespace"),
    "empty text block": (request(user(said(""))), "messages.0.content.0.text: text content blocks must be non-empty"),
    "whitespace text block": (request(user(said("x"), said("\t "))), "messages.0.content.1.text"),
    "empty text in a result": (request(ASKED, CALLED, user(result("a", [said("")]), result("b"))), "content.0.text"),
    "unknown block": (request(user({"type": "video"})), "'video' found using 'type'"),
    "unknown field of a block": (request(user(said("x", id="1"))), "messages.0.content.0.text.id: Extra inputs"),
    "mark on empty text": (request(user(said("", cache_control=MARK))), "cache_control cannot be set for empty text"),
    "mark on thinking": (
        request(
            ASKED,
            assistant({"type": "thinking", "thinking": "t", "signature": "s", "cache_control": MARK}, said("x")),
            ASKED,
        ),
        "thinking.cache_control: Extra inputs",
    ),
    "mark of another type": (request(user(said("x", cache_control={"type": "forever"}))), "cache_control.type"),
    "mark of another life": (request(cache_control={"type": "ephemeral", "ttl": "1d"}), "cache_control.ttl"),
    "five marks": (request(user(*[said("x", cache_control=MARK)] * 5)), "maximum of 4 blocks with cache_control"),
    "four marks and the automatic one": (
        request(user(*[said("x", cache_control=MARK)] * 4, said("y")), cache_control=MARK),
        "Found 5",
    ),
    "automatic mark against a mark": (
        request(user(said("x", cache_control=HOUR)), cache_control=MARK),
        "already marked with another",
    ),
    "an hour after five minutes": (
        request(user(said("x", cache_control=MARK), said("y", cache_control=HOUR))),
        "must not come after",
    ),
    "an hour in messages after five minutes in tools": (
        tools({**TOOL, "cache_control": MARK}, cache_control=HOUR),
        "must not come after",
    ),
    "call without result": (request(ASKED, CALLED, user("go on")), "messages.1: `tool_use` ids were found without"),
    "call at the end": (request(ASKED, CALLED), "messages.1: `tool_use` ids were found without"),
    "one of two results": (request(ASKED, CALLED, user(result("a"))), "immediately after: b."),
    "result without call": (request(user(result("z"))), "messages.0.content.0: unexpected `tool_use_id`"),
    "result of an older call": (
        request(ASKED, assistant(use("a")), user(result("a")), assistant("done"), user(result("a"))),
        "messages.4.content.0: unexpected `tool_use_id` found in `tool_result` blocks: a",
    ),
    "two results": (request(ASKED, assistant(use("a")), user(result("a"), result("a"))), "must have a single result"),
    "results after text": (
        request(ASKED, assistant(use("a")), user(said("x"), result("a"))),
        "messages.2.content.1 comes too late",
    ),
    "results after text of an adjacent message": (
        request(ASKED, assistant(use("a")), user("x"), user(result("a"))),
        "messages.3.content.0 comes too late",
    ),
    "an id twice in a message": (
        request(ASKED, assistant(use("a"), use("a")), user(result("a"))),
        "messages.1.content.1: `tool_use` ids must be unique: a",
    ),
    "an id twice in a conversation": (
        request(ASKED, assistant(use("a")), user(result("a")), assistant(use("a")), user(result("a"))),
        "messages.3.content.0: `tool_use` ids must be unique",
    ),
    "id with a space": (request(ASKED, assistant(use("a b")), user(result("a b"))), "tool_use.id"),
    "call with a list as input": (request(ASKED, assistant({**use("a"), "input": []}), user(result("a"))), "input"),
    "image in a failed result": (
        request(ASKED, assistant(use("a")), user(result("a", [image(SMALL)], is_error=True))),
        'all content must be type "text"',
    ),
    "call in a user message": (request(user(use("a"))), "`tool_use` blocks are not allowed in user messages"),
    "result in an assistant message": (request(ASKED, assistant(result("a")), ASKED), "not allowed in assistant"),
    "image in an assistant message": (request(ASKED, assistant(image(SMALL)), ASKED), "not allowed in assistant"),
    "document in an assistant message": (
        request(ASKED, assistant({"type": "document", "source": PDF}), ASKED),
        "`document` blocks are not allowed in assistant messages",
    ),
    "system message first": (request({"role": "system", "content": "x"}, ASKED), "must follow a 'user' message"),
    "system message after the assistant": (
        request(ASKED, assistant("x"), {"role": "system", "content": "y"}, ASKED),
        "messages.2: a 'system' message must follow",
    ),
    "system message between call and result": (
        request(ASKED, assistant(use("a")), {"role": "system", "content": "y"}, user(result("a"))),
        "messages.",
    ),
    "system message to a model that has none": (
        request(ASKED, {"role": "system", "content": "y"}, model="claude-sonnet-4-6"),
        "not supported for claude-sonnet-4-6",
    ),
    "empty system prompt": (request(system="  "), "system"),
    "empty system block": (request(system=[said("")]), "system.0"),
    "tool name with a dot": (tools({**TOOL, "name": "a.b"}), "tools.0.custom.name"),
    "tool name of 129": (tools({**TOOL, "name": "a" * 129}), "tools.0.custom.name"),
    "tool named twice": (tools(TOOL, TOOL), "Tool names must be unique: get"),
    "tool without schema": (tools({"name": "x"}), "tools.0.custom.input_schema"),
    "schema of a string": (schema(type="string"), "input_schema.type: Input should be 'object'"),
    "schema with anyOf at the top": (schema(type="object", anyOf=[]), "does not support anyOf"),
    "schema with an unknown type": (schema(type="object", properties={"a": {"type": "int"}}), "properties.a"),
    "server tool": (tools({"type": "code_execution_20260521", "name": "code_execution"}), "tools.0.type"),
    "server tool with an option of another's": (
        tools({"type": "web_search_20260318", "name": "web_search", "max_content_tokens": 5}), "max_content_tokens"
    ),
    "server tool in a version that the model lacks": (
        tools({"type": "web_search_20260318", "name": "web_search"}, model="claude-haiku-4-5"), "Input tag"
    ),
    "typed tool under another name": (tools({"type": "memory_20250818", "name": "mem"}), "should be 'memory'"),
    "choice without tools": (request(tool_choice={"type": "auto"}), "only be specified while providing tools"),
    "choice of an unknown tool": (tools(TOOL, tool_choice={"type": "tool", "name": "x"}), "Tool 'x' not found"),
    "forced choice on a bound model": (tools(TOOL, tool_choice={"type": "any"}), "forcing tool use"),
    "forced choice while thinking": (
        tools(
            TOOL,
            model="claude-opus-4-8",
            tool_choice={"type": "tool", "name": "get"},
            thinking={"type": "adaptive"},
        ),
        "Thinking may not be enabled",
    ),
    "thinking budget on a new model": (request(thinking={"type": "enabled", "budget_tokens": 2000}), "not supported"),
    "thinking off where it is always on": (
        request(model="claude-opus-5-5", thinking={"type": "disabled"}),
        "not supported for claude-opus-5-5",
    ),
    "thinking budget under 1,024": (
        request(model="claude-sonnet-4-6", max_tokens=5000, thinking={"type": "enabled", "budget_tokens": 1000}),
        "greater than or equal to 1024",
    ),
    "thinking budget over max_tokens": (
        request(model="claude-sonnet-4-6", max_tokens=1500, thinking={"type": "enabled", "budget_tokens": 2000}),
        "must be greater than `thinking.budget_tokens`",
    ),
    "unknown effort": (request(output_config={"effort": "huge"}), "output_config.effort"),
    "effort the model lacks": (request(model="claude-sonnet-4-6", output_config={"effort": "xhigh"}), "'xhigh'"),
    "open object in the output format": (
        request(output_config={"format": {"type": "json_schema", "schema": {"type": "object"}}}),
        "'additionalProperties' must be explicitly set to false",
    ),
    "blank stop sequence": (request(stop_sequences=[" "]), "stop_sequences"),
    "context management without its beta": (request(context_management={"edits": []}), "Extra inputs"),
    "compaction without its beta": (request(compaction={"type": "summarize"}), "requires anthropic-beta: compact-2026"),
    "media type against the bytes": (request(user(image(SMALL, "image/jpeg"))), "the bytes are image/png"),
    "media type of no image": (request(user(image(SMALL, "image/bmp"))), "media_type: Input should be one of"),
    "bytes of no image": (request(user(image(b"hello"))), "Could not process image"),
    "image that is not base64": (
        request(user({"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "%%"}})),
        "invalid base64",
    ),
    "image over 5 MB": (request(user(image(SMALL + b"\0" * 4_000_000))), "exceeds 5 MB maximum"),
    "image over 8,000 pixels": (request(user(image(png(8_001, 5)))), "8000 pixels"),
    "image in a result over 8,000 pixels": (
        request(ASKED, assistant(use("a")), user(result("a", [image(png(5, 9_000))]))),
        "messages.2.content.0.tool_result.content.0",
    ),
    "one of 21 images over 2,000 pixels": (request(user(*[image(SMALL)] * 20, image(png(2_001, 5)))), "2000 pixels"),
    "101 images on a 200K model": (request(user(*[image(png(1, 1))] * 101)), "at most 100 images"),
}


def test_a_breach_of_the_rule_is_a_400_in_the_apis_words(server: PracticeServer, sdk: anthropic.Anthropic) -> None:
    for rule in REFUSED:
        body, words = REFUSED[rule]
        with pytest.raises(anthropic.BadRequestError) as caught:
            ask(sdk, body)
        assert words in str(caught.value.api_message), rule
        assert caught.value.type == "invalid_request_error", rule
        assert caught.value.request_id == server.log[-1].request_id == caught.value.body["request_id"], rule  # type: ignore[index]
        assert server.log[-1] is server.refused[-1], rule
        assert server.log[-1].status == 400, rule


TAKEN: dict[str, Body] = {
    "adjacent messages of a role": request(user("a"), user("b"), assistant("c"), assistant("d"), user("e")),
    "results over two adjacent messages": request(ASKED, CALLED, user(result("b")), user(result("a"), said("x"))),
    "a result without content": request(ASKED, assistant(use("a")), user({"type": "tool_result", "tool_use_id": "a"})),
    "system message after a user turn": request(ASKED, {"role": "system", "content": "y"}),
    "system message after results": request(
        ASKED, assistant(use("a")), user(result("a")), {"role": "system", "content": "y"}, assistant("x"), ASKED
    ),
    "four marks": request(user(*[said("x", cache_control=MARK)] * 4)),
    "three marks and the automatic one": request(user(*[said("x", cache_control=MARK)] * 3), cache_control=MARK),
    "five minutes after an hour": request(user(said("x", cache_control=HOUR), said("y", cache_control=MARK))),
    "20 images of 3,000 pixels": request(user(*[image(png(3_000, 1))] * 20)),
    "101 images on a 1M model": request(user(*[image(png(1, 1))] * 101), model="claude-sonnet-5-5"),
    "a PDF": request(user({"type": "document", "source": PDF})),
    "the memory tool": tools({"type": "memory_20250818", "name": "memory"}),
    "a forced tool on an older model": tools(TOOL, model="claude-opus-5", tool_choice={"type": "any"}),
    "prefill on an old model": request(ASKED, assistant("so"), model="claude-haiku-4-5"),
    "thinking with a budget on an old model": request(
        model="claude-sonnet-4-6", max_tokens=3000, thinking={"type": "enabled", "budget_tokens": 2000}
    ),
    "no output": request(max_tokens=0),
}


def test_what_the_api_takes_is_taken(sdk: anthropic.Anthropic) -> None:
    for rule in TAKEN:
        assert ask(sdk, TAKEN[rule])["type"] == "message"


def test_a_paused_reply_may_stand_at_the_end_and_nothing_else_may(
    server: PracticeServer, sdk: anthropic.Anthropic
) -> None:
    server.script(pause_turn("Working", thinking="long"), text("done"))
    paused = ask(sdk, request())
    answer = ask(sdk, request(ASKED, {"role": "assistant", "content": paused["content"]}))
    assert answer["content"][0]["text"] == "done"
    with pytest.raises(anthropic.BadRequestError, match="prefill"):
        ask(sdk, request(ASKED, assistant("Working on another thing")))


def test_some_refusals_have_a_type_or_a_code_of_their_own(sdk: anthropic.Anthropic) -> None:
    # images over the size name their paths with a stable code
    with pytest.raises(anthropic.BadRequestError) as caught:
        ask(sdk, request(user(said("x"), image(png(9_000, 1)), image(png(1, 9_000)))))
    assert caught.value.error_code == "image_dimensions_too_large"
    paths = ["messages.0.content.1.image", "messages.0.content.2.image"]
    assert caught.value.body["error"]["details"]["paths"] == paths  # type: ignore[index]
    # a beta field with its beta is refused as not supported yet
    with pytest.raises(anthropic.BadRequestError) as caught:
        ask(sdk, request(thread={"type": "create"}), "message-threads-2026-08-12")
    assert caught.value.error_code == "thread_unsupported_request"
    with pytest.raises(anthropic.BadRequestError, match="Unexpected value"):
        ask(sdk, request(), "no-such-beta-2026-01-01")
    # a body over 32 mb is a 413
    with pytest.raises(anthropic.RequestTooLargeError) as caught:
        ask(sdk, request(user("x" * (32 * 1024 * 1024))))
    assert caught.value.type == "request_too_large"


@pytest.mark.parametrize(
    ("raw", "media", "size"),
    [
        (png(12, 34), "image/png", (12, 34)),
        (b"GIF89a\x0c\x00\x22\x00", "image/gif", (12, 34)),
        (b"\xff\xd8\xff\xe0\x00\x04ab\xff\xc0\x00\x0b\x08\x00\x22\x00\x0c\x03", "image/jpeg", (12, 34)),
        (b"RIFF\0\0\0\0WEBPVP8X\n\0\0\0\0\0\0\0\x0b\0\0\x21\0\0", "image/webp", (12, 34)),
    ],
)
def test_all_four_kinds_of_image_are_read(raw: bytes, media: str, size: tuple[int, int]) -> None:
    from ipyagent.practice.server.tokens import measure

    picture = measure(raw)
    assert (picture.media, (picture.width, picture.height)) == (media, size)


@pytest.mark.parametrize("model", ["gpt-9", "claude-3-7-sonnet-20250219"])
def test_an_unknown_or_retired_model_is_a_404(model: str, sdk: anthropic.Anthropic) -> None:
    with pytest.raises(anthropic.NotFoundError, match=f"model: {model}") as caught:
        ask(sdk, request(model=model))
    assert caught.value.type == "not_found_error"


def test_a_prompt_over_the_window_is_refused_with_both_numbers() -> None:
    with PracticeServer(window=1_000) as server, client(server) as sdk:
        with pytest.raises(anthropic.BadRequestError) as caught:
            ask(sdk, request(user("word " * 2_000)))
        assert caught.value.api_message == "prompt is too long: 2008 tokens > 1000 maximum"


def raw_post(server: PracticeServer, headers: dict[str, str], body: bytes = b"", method: str = "POST") -> Any:
    connection = http.client.HTTPConnection("127.0.0.1", int(server.url.rsplit(":", 1)[1]))
    connection.request(method, "/v1/messages", body or json.dumps(request()).encode(), headers)
    response = connection.getresponse()
    answer = json.loads(response.read())
    connection.close()
    assert response.headers["request-id"] == answer.get("request_id", response.headers["request-id"])
    return response.status, answer.get("error", {}).get("type"), answer.get("error", {}).get("message")


GOOD = {"x-api-key": "k", "anthropic-version": "2026-10-21"}


def test_version_and_credentials_are_required(server: PracticeServer) -> None:
    assert raw_post(server, GOOD)[0] == 200
    assert raw_post(server, {**GOOD, "x-api-key": ""})[:2] == (401, "authentication_error")
    assert raw_post(server, {"anthropic-version": "2026-10-21", "authorization": "Basic x"})[0] == 401
    assert raw_post(server, {"x-api-key": "k"}) == (
        400, "invalid_request_error", "anthropic-version: header is required",
    )
    assert raw_post(server, {**GOOD, "anthropic-version": "1999-01-01"})[0] == 400
    assert raw_post(server, GOOD, b"{not json")[:2] == (400, "invalid_request_error")
    assert raw_post(server, GOOD, b"[]")[0] == 400
    assert raw_post(server, GOOD, method="GET")[0] == 405


def test_a_wrong_key_is_a_401_where_a_key_is_set() -> None:
    with PracticeServer(api_key="right") as server:
        with client(server) as sdk, pytest.raises(anthropic.AuthenticationError):
            ask(sdk, request())
        assert raw_post(server, {**GOOD, "x-api-key": "right"})[0] == 200
        assert "right" not in repr(server.log)
