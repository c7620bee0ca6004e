"""Work in the background takes at most 15 % of the money, and nothing that was worth saving is lost by that."""

from __future__ import annotations

from pathlib import Path

import pytest
from extract_room import extract_room

from ipyagent.journal.events import MemoryExtracted, MemorySaved, TurnEnded
from ipyagent.journal.journal import read_events
from ipyagent.practice.replies import text, tool
from tests.bench.bench_background import EVERY_TURN, SESSIONS, SHORT, measure

MOST = 0.15


@pytest.mark.skipif(not SESSIONS.is_dir(), reason="the recordings of a strong model are not here")
def test_recorded_sessions_save_what_they_saved_for_a_small_share_of_the_money() -> None:
    before, now = measure(SHORT, **EVERY_TURN), measure(SHORT)
    assert before.share > MOST, "the conversation, after every turn"
    assert now.share <= MOST
    assert now.missing == ()
    assert now.refused == before.refused == ()


def test_an_everyday_session_saves_all_that_was_said_for_a_small_share_of_the_money(tmp_path: Path) -> None:
    said = [
        "mean of x by region", "We always report medians, never means.", "why is that?", "plot y", "make it wider",
        "Remember that the presentation is on 2026-12-10.",
        "how many rows have no date", "now by month", "thanks", "and by week",
    ]  # fmt: skip
    with extract_room(tmp_path) as room:
        agent = room.agent(extract_words=150, extract_from="cheapest", background_percent=100 * MOST)
        for number, words in enumerate(said):
            room.turn(agent, words, tool("python", {"code": f"{number} + 1"}), text("That is so. " * 40))
        session = agent.session
        agent.close()
        events = list(read_events(session.journal.path))
        share = session.history.background_share
        assert 0 < share <= MOST
        assert len([event for event in events if isinstance(event, MemorySaved)]) == 2
        last = [event.upto for event in events if isinstance(event, MemoryExtracted)][-1]
        assert last == [event.id for event in events if isinstance(event, TurnEnded)][-1], "nothing was skipped"
