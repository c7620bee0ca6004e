"""The server around the rules: models, token counts, lesser servers, the log, speed, and a clean end."""

from __future__ import annotations

import random
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import anthropic
import pytest
from practice_api import TOOL, Body, ask, client, image, png, request, said, use, user

import ipyagent
from ipyagent.practice import replies
from ipyagent.practice.server import PracticeServer


def test_the_models_api_lists_every_model_in_pages() -> None:
    with PracticeServer(window=50_000, max_output=4_000) as server, client(server) as sdk:
        listed = [model.id for model in sdk.models.list(limit=5)]
        assert len(listed) == len(set(listed)) > 10
        assert "claude-3-7-sonnet-20250219" not in listed
        practice = sdk.models.retrieve("practice")
        assert (practice.max_input_tokens, practice.max_tokens, practice.line) == (50_000, 4_000, None)
        assert practice.capabilities.thinking.types.adaptive.supported
        assert practice.capabilities.context_management.supported
        sonnet = sdk.models.retrieve("claude-sonnet-5-5")
        assert (sonnet.max_input_tokens, sonnet.line, sonnet.lifecycle) == (1_000_000, "sonnet", "active")
        assert sdk.models.retrieve("claude-sonnet-4-6").max_input_tokens == 200_000
        assert sdk.models.retrieve("claude-sonnet-4-5").lifecycle == "deprecated"
        with pytest.raises(anthropic.NotFoundError):
            sdk.models.retrieve("gpt-9")


def test_count_tokens_counts_what_the_request_is_charged() -> None:
    with PracticeServer() as server, client(server) as sdk:
        more: Body = {"system": "Be exact.", "tools": [TOOL]}
        messages: Any = [user(said("look"), image(png(750, 100)))]
        counted = sdk.messages.count_tokens(model="practice", messages=messages, **more).input_tokens
        answer = sdk.messages.create(model="practice", max_tokens=9, messages=messages, **more)
        assert counted == answer.usage.input_tokens
        bare = sdk.messages.count_tokens(model="practice", messages=[user("look")]).input_tokens
        assert counted > bare + 290 + 100  # the tool list and the image's 750*100/750
        with pytest.raises(anthropic.BadRequestError, match="immediately after: a"):
            sdk.messages.count_tokens(
                model="practice", messages=[user("x"), {"role": "assistant", "content": [use("a")]}]
            )


def test_answers_come_from_the_script_the_brain_or_an_echo() -> None:
    # an echo answers when there is no brain
    with PracticeServer() as server, client(server) as sdk:
        assert ask(sdk, request(user("hello")))["content"][0]["text"] == "echo: hello"
        schema = {
            "type": "object",
            "properties": {"files": {"type": "array", "items": {"type": "string"}}, "kind": {"enum": ["a"]}},
            "additionalProperties": False,
        }
        answer = ask(sdk, request(output_config={"format": {"type": "json_schema", "schema": schema}}))
        assert answer["content"][0]["text"] == '{"files": [], "kind": "a"}'
    # the brain sees the body and the script comes first
    def brain(body: Body) -> replies.Reply:
        return replies.text(f"{body['model']} {len(body['messages'])}")

    with PracticeServer(brain) as server, client(server) as sdk:
        server.script(replies.text("scripted"), lambda body: replies.text(body["messages"][0]["content"]))
        said_now = [ask(sdk, request())["content"][0]["text"] for _ in range(3)]
        assert said_now == ["scripted", "hi", "practice 1"]


def test_tool_ids_are_filled_in_and_stay_the_same_for_the_same_conversation() -> None:
    ids = []
    for _ in range(2):
        with PracticeServer() as server, client(server) as sdk:
            server.script(replies.calls([("get", {}), ("get", {})]), replies.tool("get", {}, id="mine"))
            ids.append([block["id"] for block in ask(sdk, request(tools=[TOOL]))["content"]])
            assert ask(sdk, request(tools=[TOOL]))["content"][0]["id"] == "mine"
    assert ids[0] == ids[1]
    assert len(set(ids[0])) == 2


def test_what_a_lesser_server_ignores() -> None:
    # a server without caching ignores marks and tells no cache numbers
    with PracticeServer(without={"caching"}) as server, client(server) as sdk:
        answer = sdk.messages.create(**request(user(said("x", cache_control={"type": "ephemeral"}))))
        assert answer.usage.cache_read_input_tokens is None
        assert set(server.log[-1].usage) == {"input_tokens", "output_tokens"}
    # a server without thinking ignores the parameter and never thinks
    with PracticeServer(without={"thinking", "output_config"}) as server, client(server) as sdk:
        server.script(replies.text("x", thinking="t"))
        answer = ask(sdk, request(thinking={"type": "adaptive"}, output_config={"effort": "low"}))
        assert [block["type"] for block in answer["content"]] == ["text"]
        model = sdk.models.retrieve("practice")
        assert not model.capabilities.thinking.supported
        assert not model.capabilities.effort.supported


@pytest.mark.parametrize(("lacking", "path"), [("models", "/v1/models"), ("count_tokens", "/v1/messages/count_tokens")])
def test_a_server_without_an_endpoint_answers_404(lacking: str, path: str) -> None:
    with PracticeServer(without={lacking}) as server, client(server) as sdk, pytest.raises(anthropic.NotFoundError):
        sdk.get(path, cast_to=object) if lacking == "models" else ask(sdk, request(), path=path)


@pytest.mark.parametrize(
    ("field", "body"),
    [
        ("thinking", request(thinking={"type": "adaptive"})),
        ("output_config", request(output_config={"effort": "low"})),
        ("cache_control", request(cache_control={"type": "ephemeral"})),
        ("cache_control", request(user(said("x", cache_control={"type": "ephemeral"})))),
    ],
)
def test_a_server_can_refuse_a_field_it_does_not_know(field: str, body: Body) -> None:
    with PracticeServer(refuse_unknown={field}) as server, client(server) as sdk:
        with pytest.raises(anthropic.BadRequestError, match=f"{field}: Extra inputs are not permitted"):
            ask(sdk, body)
        ask(sdk, request())


def test_the_sdks_own_tool_loop_runs_against_it() -> None:
    @anthropic.beta_tool
    def add(a: int, b: int) -> str:
        """Add two numbers.

        Args:
            a: first
            b: second
        """
        return str(a + b)

    with PracticeServer() as server, client(server) as sdk:
        server.script(replies.tool("add", {"a": 2, "b": 3}, say="Adding.", thinking="sum"), replies.text("5"))
        runner = sdk.beta.messages.tool_runner(model="practice", max_tokens=500, messages=[user("2+3?")], tools=[add])
        assert runner.until_done().content[-1].text == "5"
        assert server.messages[-1].body["messages"][-1]["content"][0]["content"] == "5"
        assert [entry.error for entry in server.refused] == ["thread: not supported yet by the practice server"]


def test_the_part_of_a_broken_reply_that_arrived_can_be_sent_back() -> None:
    with PracticeServer() as server, client(server) as sdk:
        server.script(replies.cut(replies.text("an answer cut in its middle", thinking="t"), "eof", after_events=9))
        with sdk.messages.stream(**request()) as stream:
            part: Any = stream.get_final_message().to_param()
        assert [block.type for block in part["content"]] == ["thinking", "text"]
        sdk.messages.create(**request(user("hi"), part, user("go on")))
        assert server.refused == []


def test_what_the_server_is_told_to_take_or_keep() -> None:
    # a local server takes any model
    with PracticeServer(any_model=True) as server, client(server) as sdk:
        assert ask(sdk, request(model="llama"))["model"] == "llama"
    # an unknown ability is named with those there are
    with pytest.raises(ValueError, match="no ability 'cashing' to switch off; known: batches, caching"):
        PracticeServer(without={"cashing"})
    # bodies are not kept when asked
    with PracticeServer(keep_bodies=False) as server, client(server) as sdk:
        ask(sdk, request())
        entry = server.log[0]
        assert (entry.body, entry.reply) == (None, None)
        assert entry.length > 50


def test_the_log_has_the_request_its_outcome_and_its_times_but_no_credential() -> None:
    with PracticeServer() as server, client(server, api_key="sk-very-secret") as sdk:
        before = time.monotonic()
        answer = ask(sdk, request(user("hello")))
        entry = server.log[0]
        while not entry.finished:
            time.sleep(0.001)
        assert entry.body["messages"] == [user("hello")]
        assert entry.reply == answer
        assert (entry.path, entry.status, entry.outcome) == ("/v1/messages", 200, "complete")
        assert before < entry.received <= entry.finished < time.monotonic()
        assert (entry.message_id, entry.usage) == (answer["id"], answer["usage"])
        assert entry.prompt_tokens == answer["usage"]["input_tokens"]
        assert entry.headers["authorization"] == "(hidden)"
        assert "sk-very-secret" not in repr(server.log)


def test_many_clients_are_served_at_once() -> None:
    with PracticeServer() as server, client(server) as sdk:
        wrong: list[str] = []

        def talk(n: int) -> None:
            for turn in range(5):
                answer = ask(sdk, request(user(f"{n} {turn}")))["content"][0]["text"]
                wrong.extend([answer] if answer != f"echo: {n} {turn}" else [])

        threads = [threading.Thread(target=talk, args=(n,)) for n in range(16)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(20)
        assert not wrong
        assert len(server.log) == 80
        assert [entry.number for entry in server.log] == list(range(80))


def test_half_a_million_tokens_are_answered_in_under_200_ms_of_cpu() -> None:
    chance = random.Random(1)
    words = ["".join(chance.choices("etaoinshrdlu", k=chance.randint(2, 9))) for _ in range(3_000)]
    messages: list[Any] = []
    for _ in range(1_250):
        messages += [user(" ".join(chance.choices(words, k=170)))]
        messages += [{"role": "assistant", "content": [said(" ".join(chance.choices(words, k=170)))]}]
    with PracticeServer() as server, client(server) as sdk:
        costs = []
        for turn in range(4):
            body = request(*messages, user(f"turn {turn}"), model="claude-sonnet-5-5")
            answer = ask(sdk, {**body, "cache_control": {"type": "ephemeral"}})
            messages += [user(f"turn {turn}"), {"role": "assistant", "content": answer["content"]}]
            costs.append(server.log[-1])
        while not costs[-1].finished:
            time.sleep(0.001)
        assert costs[-1].prompt_tokens > 500_000
        assert costs[-1].length > 2_000_000
        assert min(entry.cpu for entry in costs[1:]) < 0.2
        assert costs[-1].usage["cache_read_input_tokens"] > 500_000


def test_it_stops_cleanly_and_can_start_again() -> None:
    server = PracticeServer()
    with pytest.raises(RuntimeError, match="has not been started"):
        _ = server.url
    for _ in range(2):
        with server.start() as running, client(running) as sdk:
            ask(sdk, request())
        server.stop()
        assert "stopped" in repr(server)
        deadline = time.monotonic() + 3
        while any("practice-server" in thread.name or "process_request" in thread.name for thread in _threads()):
            assert time.monotonic() < deadline, _threads()
            time.sleep(0.01)
    with pytest.raises(anthropic.APIConnectionError):
        ask(sdk.copy(http_client=None), request())


def _threads() -> list[threading.Thread]:
    return threading.enumerate()


def test_the_server_imports_nothing_but_the_standard_library_and_itself() -> None:
    root = Path(ipyagent.__file__).parents[1]
    code = (
        "import sys; before = set(sys.modules); import ipyagent.practice.server, ipyagent.practice.replies;"
        "new = {name for name in set(sys.modules) - before};"
        "print([n for n in new if n.partition('.')[0] not in sys.stdlib_module_names"
        " and n not in ('ipyagent', 'ipyagent.version')"
        " and not n.startswith('ipyagent.practice')])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=root, timeout=60)
    assert done.stdout.strip() == "[]", done.stdout + done.stderr
