"""Whatever is in a transcript, its session opens, goes on, and reads the provider's cache where it can."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from event_lists import event_lists
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ipyagent.journal.events import (
    AssistantMessage,
    Event,
    SessionStarted,
    SystemPromptFrozen,
    SystemReminder,
    ToolReturned,
    Usage,
    UsageReported,
    UserMessage,
)
from ipyagent.journal.journal import TRANSCRIPT, Journal
from ipyagent.journal.tokens import estimate_blocks
from ipyagent.journal.view import ContextView
from ipyagent.loop.session import Session
from ipyagent.practice.server.judge import Judge
from ipyagent.practice.server.models import catalogue
from ipyagent.practice.server.rules import check_conversation

quick = settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.too_slow])
CARDS = catalogue(1_000_000, 64_000, 1)


def text(words: str) -> dict[str, Any]:
    return {"type": "text", "text": words}


@quick
@given(event_lists(unknown=False), st.integers(0, 50), st.integers(0, 2_000))
def test_any_transcript_opens_forks_and_goes_on(
    tmp_path_factory: Any, events: list[Event], upto: int, cut: int
) -> None:
    """Cut at any byte, forked at any event: the next request is one that the server takes."""
    folder: Path = tmp_path_factory.mktemp("sessions")
    journal = Journal.create(folder, SessionStarted(session="s", version="0"))
    for event in events:
        journal.append(event)
    journal.close()
    whole = journal.path.read_bytes()
    journal.path.write_bytes(whole[: max(60, len(whole) - cut)])
    session, _ = Session.open(folder / "s")
    fork, _ = Session.fork(folder / "s", folder, SessionStarted(session="f", version="0"), upto)
    for one in (session, fork):
        one.close_open("The user stopped the turn.")
        assert one.view.open_calls == {}
        assert one.view.partial_text.strip() == ""
        one.record(UserMessage(text="go on", blocks=(text("go on"),)))
        assert one.view.sendable
        check_conversation(one.view.wire()[2], CARDS["practice"])
        one.journal.close()
    again, _ = Session.open(folder / "s")
    assert again.view.wire() == session.view.wire()
    assert again.view.count() == session.view.count()
    assert (again.journal.path.read_bytes()).startswith(whole[: max(60, len(whole) - cut)])
    again.journal.close()
    assert (folder / "f" / TRANSCRIPT).exists()


@quick
@given(st.lists(st.tuples(st.integers(0, 45), st.booleans(), st.booleans()), min_size=1, max_size=8))
def test_every_request_reads_all_of_the_prompt_before_it_from_the_cache(rounds: list[tuple[int, bool, bool]]) -> None:
    """Turns with up to 45 parallel calls, pauses and reminders against the practice server's exact cache."""
    judge = Judge(CARDS, clock=lambda: 0.0)
    view = ContextView()
    view.apply(SystemPromptFrozen(system=(text("be good " * 50),), tools=()))
    view.apply(UserMessage(id=1, text="go", blocks=(text("go " * 50),)))
    before = 0
    for number, (calls, reminded, paused) in enumerate(rounds):
        system, tools, messages = view.wire()
        body = {"model": "practice", "max_tokens": 100, "system": system, "tools": tools, "messages": messages}
        names = [f"c{number}_{i}" for i in range(calls)]
        uses = tuple({"type": "tool_use", "id": name, "name": "get", "input": {}} for name in names)
        if messages[-1]["role"] == "user":  # the judge knows only pauses of its own; what follows one is checked next
            accepted = judge.accept(body, frozenset())
            account = accepted.account
            assert account.read >= before, "the whole prompt before this one was read"
            judge.begin(accepted)
            before = accepted.prompt.tokens
            usage = Usage(input=account.fresh, cache_read=account.read, cache_write=account.made, output=10)
            view.apply(AssistantMessage(blocks=(text("so"), *uses), stop_reason="pause_turn" if paused else "tool_use"))
            view.apply(UsageReported(usage=usage, predicted=view.count().tokens))
        else:
            view.apply(AssistantMessage(blocks=(text("so"), *uses), stop_reason="tool_use"))
        for name in reversed(names):
            content = (text("done"),)
            view.apply(ToolReturned(call=name, name="get", blocks=content, tokens=estimate_blocks(content)))
        if reminded or not view.sendable:
            view.apply(SystemReminder(text="go on"))
