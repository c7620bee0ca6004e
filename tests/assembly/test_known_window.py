"""The window that is shown before a request is the one that the next request has."""

from __future__ import annotations

from compact_room import CompactRoom, words

from ipyagent.extension.context_report import report, summary
from ipyagent.practice.replies import text


def test_a_session_that_is_taken_up_again_stands_where_it_stood(place: CompactRoom) -> None:
    agent = place.agent()
    place.turn(agent, f"weigh box 1: {words(1, 3_000)}", text("done"))
    place.turn(agent, f"weigh box 2: {words(2, 2_000)}", text("done"))
    session = place.session(agent)
    before, rates = agent.state_of(session), session.rates()
    assert before.window == session.info.window == 1_000_000, "the server's own figure"
    agent.close()
    later = place.agent()
    taken = later.resume(session.journal.session)
    assert later.state_of(taken) == before
    assert taken.rates() == rates
    assert "of 1,000,000 tokens" in report(later, [])
    assert "fine" in summary(later)
    later.close()
    other = place.agent(model="claude-haiku-4-5")
    assert other.state_of(other.resume(session.journal.session)).window == 200_000, "that of its own model"


def test_another_model_has_its_own_window_before_it_is_asked(place: CompactRoom) -> None:
    agent = place.agent()
    place.turn(agent, "hi", text("hello"))
    session = place.session(agent)
    first = agent.state_of(session).window
    for name, window in (("claude-haiku-4-5", 200_000), ("nonsense-1", 200_000), (session.info.model, first)):
        agent.settings.model = name
        assert agent.state_of(session).window == window
        place.turn(agent, "hi", text("hello"))
        assert agent.state_of(session).window == session.info.window == window
    agent.settings.window = 50_000
    assert agent.state_of(session).window == 50_000
    agent.settings.window = 0
    assert agent.state_of(session).window == first
