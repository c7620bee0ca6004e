"""The agent without a notebook: scripts, services, several at once."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import json
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from loop.loop_rig import Person
from pace import within
from rooms import KEY, MODEL, results

from ipyagent import Agent, IPyAgent, Options, TurnResult, hooks, tool
from ipyagent.errors import AgentError, NoCredentials, UsageError
from ipyagent.journal.events import Streamed, TurnEnded, UserMessage
from ipyagent.journal.journal import TRANSCRIPT, in_use, read_events
from ipyagent.kernel import dispatcher
from ipyagent.loop.session import Session
from ipyagent.practice.replies import fault, text
from ipyagent.practice.replies import tool as calls
from ipyagent.practice.server import PracticeServer

Make = Callable[..., Agent]


@pytest.fixture
def server() -> Iterator[PracticeServer]:
    with PracticeServer() as running:
        yield running
    assert [exchange.error for exchange in running.refused] == []


@pytest.fixture
def make(tmp_path: Path, server: PracticeServer, monkeypatch: pytest.MonkeyPatch) -> Iterator[Make]:
    monkeypatch.setenv("ANTHROPIC_API_KEY", KEY)
    monkeypatch.setenv("IPYAGENT_HOME", str(tmp_path / "home"))
    made: list[Agent] = []

    def agent(folder: str = "project", *, tools: Any = (), **settings: Any) -> Agent:
        (tmp_path / folder).mkdir(exist_ok=True)
        given = {"base_url": server.url, "model": MODEL, "mode": "auto", "max_retry_wait": 0.01, **settings}
        given.setdefault("extraction", False)
        made.append(Agent(settings=IPyAgent(environ={}, **given), folder=str(tmp_path / folder), tools=tools))
        return made[-1]

    yield agent
    for each in made:
        each.close()


async def heard(agent: Agent, words: str) -> list[Any]:
    """Every event of a request."""
    return [event async for event in agent.run(words)]


def test_run_sync_gives_how_it_ended(make: Make, server: PracticeServer) -> None:
    agent = make()
    server.script(calls("python", {"code": "total = 40 + 2\ntotal"}), text("It is 42."))
    result = agent.run_sync("add")
    assert isinstance(result, TurnResult)
    assert (result.status, result.message, result.text) == ("finished", "", "It is 42.")
    assert result.cost > 0
    assert result.seconds > 0
    assert agent.shell.user_ns["total"] == 42
    server.script(fault(401))
    failed = agent.run_sync("again")
    assert (failed.status, "key" in failed.message) == ("failed", True)
    server.script(fault(401))
    assert asyncio.run(heard(agent, "once more"))[-1].status == "failed", "nothing is raised out of the loop either"


def test_the_events_come_as_they_happen_and_are_on_the_disk_already(make: Make, server: PracticeServer) -> None:
    agent = make()
    code = {"code": "print('heron'); 40 + 2"}
    server.script(calls("python", code, say="I compute."), text("one two three four five six"))

    async def watch() -> list[Any]:
        seen = []
        async for event in agent.run("count"):
            stored = list(read_events(agent.session.journal.folder / TRANSCRIPT))
            assert event in stored
            seen.append(event)
        return seen

    seen = asyncio.run(watch())
    assert seen == list(read_events(agent.session.journal.folder / TRANSCRIPT))[-len(seen) :]
    assert isinstance(seen[-1], TurnEnded)
    assert [type(event) for event in seen].count(TurnEnded) == 1
    spoken = [event.text for event in seen if isinstance(event, Streamed) and event.channel == "text"]
    assert "".join(spoken) == "I compute.one two three four five six"
    assert [type(event).__name__ for event in seen if not isinstance(event, Streamed)][-8:] == [
        "UserMessage", "AssistantMessage", "UsageReported", "ToolCalled", "ToolReturned", "AssistantMessage",
        "UsageReported", "TurnEnded",
    ]  # fmt: skip


def test_run_sync_works_inside_of_a_running_loop(make: Make, server: PracticeServer) -> None:
    agent = make()
    server.script(calls("python", {"code": "import asyncio\nawait asyncio.sleep(0)\nx = 5\nx"}), text("five"))

    async def outer() -> TurnResult:
        return agent.run_sync("await it")

    assert asyncio.run(outer()).text == "five"
    assert agent.shell.user_ns["x"] == 5
    body = server.messages[-1].body
    assert results(body)[-1]["text"].startswith("5")


def test_a_second_request_waits_for_nobody_and_says_so(make: Make, server: PracticeServer) -> None:
    agent = make()
    server.script(text("slow answer here", delay=0.05), text("never"))

    async def both() -> list[Any]:
        return await asyncio.gather(heard(agent, "first"), heard(agent, "second"), return_exceptions=True)

    first, second = asyncio.run(both())
    assert isinstance(first[-1], TurnEnded)
    assert first[-1].status == "finished"
    assert isinstance(second, UsageError)
    assert "running" in str(second)
    said = [event.text for event in agent.session.journal.read() if isinstance(event, UserMessage)]
    assert said == ["first"]


def test_two_agents_of_a_process_share_nothing_but_the_project(make: Make, server: PracticeServer) -> None:
    server.brain = lambda body: text("heron" if "alpha" in str(body["messages"][-1]) else "egret")
    one, two = make("project"), make("project")
    assert (one.run_sync("alpha").text, two.run_sync("beta").text) == ("heron", "egret")
    assert one.session.journal.session != two.session.journal.session
    one.shell.user_ns["mine"] = 1
    assert "mine" not in two.shell.user_ns

    async def both() -> list[list[Any]]:
        return await asyncio.gather(heard(one, "alpha"), heard(two, "beta"))

    ended = [events[-1].status for events in asyncio.run(both())]
    assert ended == ["finished", "finished"]
    two.close()
    assert one.run_sync("alpha").text == "heron"


def test_stopping_one_of_two_agents_lets_the_other_finish(make: Make, server: PracticeServer) -> None:
    """Both turns own SIGINT at once: the signal that ends one's code is not the other's, whoever ends first."""
    started, code = threading.Event(), "started.set()\nimport time\nwhile True: time.sleep(60)"

    def brain(body: Any) -> Any:
        newest = str(body["messages"][-1])
        if "tool_result" in newest:
            return text("it was stopped")
        return calls("python", {"code": code}) if "alpha" in newest else text("egret", delay=0.2)

    for first in (True, False):
        one, two = make("project", recall=False, memory=False), make("project", recall=False, memory=False)
        server.brain = brain
        started.clear()
        one.shell.user_ns["started"] = started

        def stop(agent: Agent = one) -> None:
            started.wait(60)
            agent.stop()

        threading.Thread(target=stop, daemon=True).start()

        async def both(order: list[tuple[Agent, str]]) -> dict[str, str]:
            ended = await asyncio.gather(*(heard(agent, words) for agent, words in order))
            return {words: events[-1].status for (_, words), events in zip(order, ended, strict=True)}

        turns = [(one, "alpha"), (two, "beta")]
        assert asyncio.run(both(turns if first else turns[::-1])) == {"alpha": "stopped", "beta": "finished"}


def test_agents_work_in_threads_of_their_own(make: Make, server: PracticeServer) -> None:
    server.brain = lambda body: text("ok")
    agents = [make("one"), make("two"), make("three")]
    found: list[str] = []
    threads = [threading.Thread(target=lambda a=agent: found.append(a.run_sync("go").text)) for agent in agents]  # type: ignore[misc]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert found == ["ok"] * 3


def test_given_tools_are_the_models(make: Make, server: PracticeServer) -> None:
    @tool(permission="none", writes=False)
    def tide(port: str) -> str:
        """The next high tide.

        Args:
            port: its name.
        """
        return f"noon at {port}"

    agent = make(tools=[tide])
    server.script(calls("tide", {"port": "Brest"}), text("At noon."))
    assert agent.run_sync("tide?").text == "At noon."
    body = server.messages[-1].body
    assert results(body)[-1]["text"] == "noon at Brest"
    assert "tide" in agent.tool_names()


@pytest.mark.parametrize(
    ("options", "word"),
    [({"mode": "yolo"}, "read_only"), ({"effort": "hihg"}, "high"), ({"max_turns": -1}, "max_turns"),
     ({"fresh": True, "fork": True}, "either fresh")],
)  # fmt: skip
def test_a_wrong_option_is_a_usage_error_before_anything_is_sent(
    make: Make, server: PracticeServer, options: dict[str, Any], word: str
) -> None:
    agent = make()
    with pytest.raises(UsageError, match=word):
        agent.run_sync("hello", **options)
    assert server.log == []
    assert agent.session is None


def test_an_option_that_does_not_exist_is_refused(make: Make) -> None:
    with pytest.raises(TypeError, match="modle"):
        make().run_sync("hello", modle="x")
    with pytest.raises(AttributeError):
        Options().mode = "auto"  # type: ignore[misc]


def test_without_credentials_nothing_is_written(make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ANTHROPIC_API_KEY")
    agent = make(base_url="")
    with pytest.raises(NoCredentials):
        agent.run_sync("hello")
    assert list((tmp_path / "project").iterdir()) == []


def test_the_agent_shows_itself_and_no_key(make: Make, server: PracticeServer) -> None:
    agent = make()
    assert repr(agent) == f"<Agent no session yet on {MODEL} in project>"
    server.script(text("hi"))
    agent.run_sync("hello")
    assert repr(agent) == f"<Agent {agent.session.journal.session} on {MODEL} in project>"
    assert KEY not in repr(agent)


def test_close_ends_the_thread_and_lets_the_session_go(make: Make, server: PracticeServer) -> None:
    before = {thread.ident for thread in threading.enumerate()}
    agent = make()
    server.script(text("hi"), text("hi again"))
    agent.run_sync("hello")
    agent.close()
    agent.close()
    left = [t.name for t in threading.enumerate() if t.ident not in before and t.name.startswith("ipyagent")]
    assert left == []
    other = make()
    other.resume()
    assert other.notices[-1].startswith("resumed session")
    assert not any("copy" in notice for notice in other.notices)
    assert other.run_sync("still?").text == "hi again"


HELD = threading.Event()
"""Whoever works until this is set has held nobody up."""


def plainly(facts: dict[str, Any]) -> None:
    HELD.wait(60)


async def awaited(facts: dict[str, Any]) -> None:
    while not HELD.is_set():
        await asyncio.sleep(0.02)


@pytest.mark.paced
@pytest.mark.parametrize("kind", ["function", "async function", "command"])
def test_slow_stop_hooks_hold_up_neither_a_stop_nor_the_request_after_it(
    make: Make, server: PracticeServer, tmp_path: Path, kind: str
) -> None:
    agent = make()
    HELD.clear()
    go_on = tmp_path / "go on"
    agent.shell.user_ns["started"] = started = threading.Event()
    if kind == "command":
        (tmp_path / "home").mkdir()
        wait = f"until test -e '{go_on}'; do sleep 0.05; done"
        (tmp_path / "home" / "hooks.json").write_text(json.dumps({"stop": [wait]}))
        (tmp_path / "home" / "hooks.json").chmod(0o600)
    else:
        hooks.stop(plainly if kind == "function" else awaited)
    stopped: list[float] = []

    def stop() -> None:
        started.wait(60)
        stopped.append(time.monotonic())
        agent.stop()

    try:
        server.script(calls("python", {"code": "import time\nstarted.set()\ntime.sleep(60)"}))
        threading.Thread(target=stop).start()
        assert agent.run_sync("wait").status == "stopped"
        assert time.monotonic() - stopped[0] < within(2.0, 60)  # half a second on an idle machine
        seen = Person(can_ask=False)

        def while_it_answers(body: Any) -> Any:
            HELD.set()
            go_on.touch()
            return text("one two three four five six", delay=0.1)

        server.script(while_it_answers)
        result = agent.prepare("count", Options(), seen).run_blocking()
        assert result.status == "finished"
        assert isinstance(seen.events[-1], TurnEnded)
    finally:
        HELD.set()
        hooks.clear()
    assert not [line for line in agent.notices if line.startswith("hook ")]


STUBBORN = threading.Event()
"""Set when `stubborn` has begun."""


async def stubborn() -> str:
    """Continues however often it is cancelled."""
    STUBBORN.set()
    while not HELD.is_set():
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.sleep(0.05)
    return "at last"


@pytest.mark.paced
def test_a_turn_that_outlives_its_stop_keeps_its_session_and_takes_no_other_turns_panel(
    make: Make, server: PracticeServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dispatcher, "_CLOSE", 0.3)
    agent = make(tools=(tool(stubborn),))
    for number in range(2):
        server.script(calls("stubborn", {}))
        STUBBORN.clear()
        HELD.clear()
        threading.Thread(target=lambda: STUBBORN.wait(60) and agent.stop()).start()
        with pytest.raises(AgentError, match="did not close"):
            agent.run_sync(f"wait {number}")
        with pytest.raises(UsageError, match="has not ended yet"):
            agent.run_sync("and now?")
        if number == 0:
            HELD.set()
            began = time.monotonic()
            while not free(agent):
                assert time.monotonic() - began < within(10, 100)
                time.sleep(0.05)
            server.script(text("free again"))
            assert agent.run_sync("and now?").text == "free again"
    agent.new()  # another session has nothing to wait for
    seen = Person(can_ask=False)
    agent.shell.user_ns["held"] = HELD
    code = "import time; held.set(); time.sleep(0.5)"  # the other turn ends meanwhile
    server.script(calls("python", {"code": code}), text("mine"))
    assert agent.prepare("mine?", Options(), seen).run_blocking().text == "mine"
    assert isinstance(seen.events[-1], TurnEnded)
    server.script(calls("python", {"code": "served = 1"}), text("served"))
    assert agent.run_sync("is the main thread served?").text == "served"
    assert agent.shell.user_ns["served"] == 1


def free(agent: Agent) -> bool:
    try:
        agent.check_free()
    except UsageError:
        return False
    return True


def test_a_session_that_was_let_go_leaves_memory(make: Make, server: PracticeServer) -> None:
    agent = make()
    gc.collect()
    others = {id(each) for each in gc.get_objects() if isinstance(each, Session)}  # of tests before

    def ask(**options: Any) -> None:
        server.script(calls("python", {"code": "n = 1"}), text("ok"))
        assert agent.run_sync("once more", **options).status == "finished"

    ask()
    ask(fresh=True)
    ask(fresh=True)
    ask(fork=True)
    first = agent.session
    agent.new()
    ask()
    agent.fork()
    ask()
    agent.resume(first.journal.session)
    del first
    ask()
    gc.collect()
    left = [each for each in gc.get_objects() if isinstance(each, Session) and id(each) not in others]
    assert left == [agent.session]


class Stuck:
    """A server of ours that does not stop."""

    url, window, api_key = "http://127.0.0.1:9", 0, None

    def stop(self) -> None:
        HELD.wait(60)
        raise RuntimeError("it does not stop")


def test_what_does_not_end_keeps_nothing_else_from_ending(
    make: Make, server: PracticeServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ipyagent.agent.ENDING", 0.3)
    HELD.clear()
    agent = make()
    agent.run_sync("hello")
    session = agent.session
    agent.connections._servers["stuck"] = Stuck()  # of a local model, say
    agent.close()
    assert agent.session is None
    assert not in_use(session.journal.folder)
    assert [line for line in agent.notices if "did not end within 0.3 s" in line]
    HELD.set()
    until = time.monotonic() + 5
    while "ipyagent" in [thread.name for thread in threading.enumerate()]:
        assert time.monotonic() < until
        time.sleep(0.05)
