"""What was not read from the cache is noticed, and told with its cause; what a decision did is expected."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest
from loop_rig import Rig

from ipyagent.extension.context_report import report
from ipyagent.journal.events import (
    CacheBroken,
    Compacted,
    LayerDecision,
    ModelChosen,
    ResultsCleared,
    Usage,
    UsageReported,
    UserMessage,
)
from ipyagent.journal.protocols import Request
from ipyagent.journal.view import ContextView
from ipyagent.loop.cache_monitor import CacheWatch, first_change
from ipyagent.practice.replies import text, tool
from ipyagent.practice.server import PracticeServer

LONG = "tell me more about the data. " * 400
FIVE_MINUTES = 301.0


class Clock:
    def __init__(self) -> None:
        self.now = 1_000.0

    def __call__(self) -> float:
        return self.now


def said(words: str) -> tuple[dict[str, Any], ...]:
    return ({"type": "text", "text": words},)


class Watched:
    """A watch with one answered request of 10,000 tokens behind it."""

    def __init__(self, **usage: int) -> None:
        self.clock = Clock()
        self.watch = CacheWatch(self.clock)
        self.view = ContextView.of([UserMessage(id=1, text="a", blocks=said("a"))])
        self.view.system, self.view.tools = [{"type": "text", "text": "be"}], [{"name": "python"}]
        self.ask(**(usage or {"cache_write": 10_000}))

    def ask(self, miss: str = "", effort: str = "", model: str = "m", **usage: int) -> CacheBroken | None:
        request = Request(
            model=model, system=self.view.system, tools=self.view.tools, messages=[], max_tokens=1, effort=effort
        )
        self.watch.sent(request, self.view, "5m")
        self.watch.apply(UsageReported(usage=Usage(**usage), at=self.clock.now))
        return self.watch.answered(Usage(**usage), miss)


def test_what_is_read_is_no_break() -> None:
    watched = Watched()
    assert watched.ask(cache_read=10_000, cache_write=500) is None
    assert watched.ask(cache_read=10_500 - 1_024, cache_write=9_000) is None
    assert watched.watch.expected == 10_500 - 1_024 + 9_000


def test_a_server_without_a_cache_breaks_none() -> None:
    watched = Watched(input=50_000)
    assert watched.ask(input=60_000) is None


def test_a_known_break_is_expected_and_known_once() -> None:
    watched = Watched()
    watched.watch.apply(Compacted(trigger="auto", method="summary", first=1, last=1, blocks=()))
    watched.watch.apply(ResultsCleared(calls=("a", "b"), text="", layer="clear_results"))
    found = watched.ask(cache_write=10_000)
    assert found == CacheBroken(
        cause="compaction (auto); 2 old tool results were cleared (clear_results)", missed=10_000, expected=True
    )
    found = watched.ask(cache_write=10_000)
    assert not found.expected


def test_a_known_break_of_a_session_taken_up_again_is_told_no_second_time() -> None:
    watched = Watched()
    again = CacheWatch(watched.clock)
    for event in (
        Compacted(trigger="manual", method="summary", first=1, last=1, blocks=()),
        UsageReported(usage=Usage(cache_write=10_000), at=watched.clock.now),
        UsageReported(usage=Usage(cache_read=10_000, cache_write=500), at=watched.clock.now),
    ):
        again.apply(event)
    watched.watch = again
    watched.clock.now += 725
    found = watched.ask(cache_write=10_000)
    cause = "idle for 12 minutes, longer than the 5 that the cache lives"
    assert found == CacheBroken(cause=cause, missed=10_500, expected=False)


def test_a_compaction_before_the_end_of_the_kernel_is_known_after_it() -> None:
    watched = Watched()
    again = CacheWatch(watched.clock)
    again.apply(UsageReported(usage=Usage(cache_write=10_000), at=watched.clock.now))
    again.apply(Compacted(trigger="manual", method="summary", first=1, last=1, blocks=()))
    watched.watch = again
    assert watched.ask(cache_write=10_000) == CacheBroken(cause="compaction (manual)", missed=10_000, expected=True)


def test_a_change_of_the_model_is_known() -> None:
    watched = Watched()
    watched.watch.apply(ModelChosen(model="m"))
    watched.watch.apply(ModelChosen(model="other"))
    assert watched.ask(cache_write=10_000) == CacheBroken(cause="the model changed", missed=10_000, expected=True)


def test_each_cause_is_named() -> None:
    def change(what: Callable[[Watched], dict[str, Any] | None]) -> str:
        watched = Watched()
        found = watched.ask(cache_write=10_000, **(what(watched) or {}))
        assert not found.expected
        return found.cause

    def tools(watched: Watched) -> None:
        watched.view.tools = [{"name": "python"}, {"name": "more"}]

    def system(watched: Watched) -> None:
        watched.view.system = [{"type": "text", "text": "be another"}]

    def message(watched: Watched) -> None:
        watched.view.messages[0] = {"role": "user", "content": [{"type": "text", "text": "b"}]}

    def idle(watched: Watched) -> None:
        watched.clock.now += 725

    assert change(tools) == "the tools changed"
    assert change(system) == "the system prompt changed"
    assert change(message) == "message 1 changed"
    assert change(lambda watched: {"effort": "high"}) == "the effort changed"
    assert change(idle) == "idle for 12 minutes, longer than the 5 that the cache lives"
    assert change(lambda watched: None) == "nothing changed here: the server lost it"
    assert change(lambda watched: {"miss": "previous_message_not_found"}) == (
        "nothing changed here: the server lost it (the server says previous message not found)"
    )


def test_a_message_that_grew_at_the_end_of_the_prompt_is_no_change() -> None:
    one, two = {"type": "text", "text": "1"}, {"type": "text", "text": "2"}
    first, reply = {"role": "user", "content": [one]}, {"role": "assistant", "content": [one]}
    grown = {"role": "user", "content": [one, two]}
    assert first_change([first], [grown, reply]) is None
    assert first_change([first, reply], [grown, reply]) == 0
    assert first_change([first, reply], [first]) == 1
    assert first_change([grown], [first, reply]) == 0


# ---------------------------------------------------------------------- with a real agent


def test_an_idle_session_is_told_as_such(home: Any, make_rig: Callable[..., Rig]) -> None:
    clock = Clock()
    with PracticeServer(clock=clock) as server:
        rig = make_rig(server=server)
        server.script(text("one"), text("two"), text("three"))
        rig.turn(LONG)
        rig.agent.session.watch.clock = clock
        rig.turn("and now?")
        clock.now += FIVE_MINUTES
        rig.turn("and now?")
        found = rig.of(CacheBroken)
        assert [event.expected for event in found] == [False]
        assert found[0].cause == "idle for 5 minutes, longer than the 5 that the cache lives"
        assert found[0].missed > 3_000
        assert "1 unexpected break of the cache, the last: idle for 5 minutes" in report(rig.agent, [])


def test_a_lost_cache_is_the_servers_own_doing(make_rig: Callable[..., Rig]) -> None:
    clock = Clock()
    with PracticeServer(clock=clock) as server:
        rig = make_rig(server=server)
        server.script(text("one"), text("two"))
        rig.turn(LONG)
        clock.now += FIVE_MINUTES  # the server's clock alone
        rig.turn("and now?")
        assert [event.cause for event in rig.of(CacheBroken)] == ["nothing changed here: the server lost it"]


def test_a_cleared_batch_is_an_expected_break(make_rig: Callable[..., Rig], server: PracticeServer) -> None:
    rig = make_rig(clear_policy="every_turn", layer_notes=False)
    for number in range(8):
        server.script(tool("python", {"code": f"print({number}, 'words ' * 700)"}), text("Done."))
        assert rig.turn("next").status == "finished"
    events = rig.events()
    assert [event for event in events if isinstance(event, ResultsCleared)]
    assert rig.of(CacheBroken)
    assert all(event.expected and "old tool result" in event.cause for event in rig.of(CacheBroken))
    assert [exchange.error for exchange in server.refused] == []


def test_the_first_picture_is_the_providers_way(rig: Rig, server: PracticeServer) -> None:
    code = (
        "from IPython.display import Image\nimport io\nfrom PIL import Image as P\n"
        "b = io.BytesIO(); P.new('RGB', (320, 200), (9, 80, 80)).save(b, 'PNG')\nImage(b.getvalue())"
    )
    server.script(text("one"), tool("python", {"code": code}), text("two"))
    rig.turn(LONG)
    rig.turn("draw it")
    found = rig.of(CacheBroken)
    assert [(event.cause.split(":")[0], event.expected) for event in found] == [("the first picture", True)]


def test_the_server_is_asked_why(rig: Rig, server: PracticeServer) -> None:
    server.script(text("one"), text("two"))
    rig.turn("hello")
    rig.turn("again")
    asked = [exchange.body["diagnostics"] for exchange in server.messages]
    assert asked == [{"previous_message_id": None}, {"previous_message_id": server.messages[0].message_id}]
    assert all("cache-diagnosis-2026-04-07" in exchange.headers["anthropic-beta"] for exchange in server.messages)


def test_a_server_that_does_not_know_the_question_is_asked_without(make_rig: Callable[..., Rig]) -> None:
    with PracticeServer(refuse_unknown=["diagnostics"]) as server:
        rig = make_rig(server=server)
        server.script(text("one"), text("two"))
        assert rig.turn("hello").text == "one"
        assert rig.turn("again").text == "two"
        assert [exchange.outcome for exchange in server.messages] == ["refused", "complete", "complete"]
        assert "diagnostics" not in server.messages[-1].body


def test_a_layer_that_does_nothing_speaks_once_a_turn_at_most(rig: Rig, server: PracticeServer) -> None:
    dice = random.Random(3)
    for _ in range(4):
        calls = [tool("python", {"code": f"print('words ' * {dice.randrange(200, 900)})"}) for _ in range(6)]
        server.script(*calls, text("Done. " * 300))
        rig.turn("next")
    events = rig.events()
    starts = [event.id for event in events if isinstance(event, UserMessage)]
    idle = [e for e in events if isinstance(e, LayerDecision) and e.layer == "clear_results" and not e.saved]
    turns = [max(start for start in starts if start < event.id) for event in idle]
    assert idle
    assert len(turns) == len(set(turns)), [event.words for event in idle]
    assert "last decisions:" in report(rig.agent, [])


@pytest.mark.parametrize("caching", [True, False])
def test_the_report_tells_the_newest_hit_rates(make_rig: Callable[..., Rig], caching: bool) -> None:
    with PracticeServer(without=() if caching else ["caching"]) as server:
        rig = make_rig(server=server)
        server.script(text("one"), text("two"))
        rig.turn(LONG)
        rig.turn("again")
        line = next(line for line in report(rig.agent, []).splitlines() if line.startswith("read from the cache by"))
        assert line.startswith("read from the cache by the last 2 requests: 0 ")
        assert (line.split()[-2] == "0") is not caching
        assert rig.of(CacheBroken) == []
