"""In a small window nothing is sent that cannot fit, results keep to their share, and one request that is
too large is set aside instead of ending the session."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from compact_room import compact_room, words
from loop_rig import Rig

from ipyagent.assembly.settings import limit_of
from ipyagent.config import IPyAgent
from ipyagent.context.thresholds import message_chars, preview_chars, result_chars
from ipyagent.journal.events import (
    Compacted,
    ForkEnded,
    LayerFailed,
    ResultStored,
    ToolReturned,
    TurnsRemoved,
    UserMessage,
)
from ipyagent.journal.view import ContextView
from ipyagent.practice.replies import calls, text, tool
from ipyagent.practice.server import PracticeServer
from ipyagent.replay.recording import Collector, Recording
from ipyagent.replay.replaying import replay, settings_for

WINDOW = 16_000


def huge() -> str:
    return " ".join(f"box {number} weighs {number * 7} kg" for number in range(4_000))


@pytest.mark.parametrize(("window", "chars"), [(0, 25_000), (200_000, 25_000), (32_000, 12_800), (8_000, 3_200)])
def test_where_files_begin_is_a_share_of_the_window(window: int, chars: int) -> None:
    settings = IPyAgent(environ={})
    assert limit_of(settings, "store_chars", window) == chars
    assert limit_of(settings, "tool_output_chars", window) == settings.whole_chars, "the file holds it whole"
    settings.layer_store_results = False
    assert limit_of(settings, "tool_output_chars", window) <= max(window, 25_000 * (not window))


@pytest.mark.parametrize("window", [4_000, 8_000, 32_000, 200_000, 1_000_000])
def test_previews_are_smaller_than_results_and_these_than_a_message(window: int) -> None:
    preview, one, message = preview_chars(2_000, window), result_chars(25_000, window), message_chars(200_000, window)
    assert 200 <= preview < one < message <= window
    assert window < 200_000 or (preview, one, message) == (2_000, 25_000, 200_000)


def test_a_result_as_large_as_the_window_is_stored(make_rig: Callable[..., Rig], server: PracticeServer) -> None:
    rig = make_rig(window=WINDOW, layer_notes=False)
    server.script(tool("python", {"code": "for n in range(1_500): print('row of data', n)"}), text("seen"))
    assert rig.turn("print").status == "finished"
    assert rig.shown(ResultStored)
    (returned,) = rig.shown(ToolReturned)
    assert returned.tokens < WINDOW // 7
    assert server.refused == []


def test_many_results_of_one_message_keep_to_their_share(
    make_rig: Callable[..., Rig], server: PracticeServer
) -> None:
    rig = make_rig(window=WINDOW, layer_notes=False)
    code = "for n in range(380): print('row of data', n)"  # 6,000 characters: each is small enough
    server.script(calls([("python", {"code": code})] * 5), text("seen"))
    assert rig.turn("print").status == "finished"
    assert len(rig.shown(ResultStored)) >= 3
    assert sum(len(str(result["content"])) for result in rig.results()) < 1.3 * WINDOW
    assert server.refused == []


def test_a_request_larger_than_the_window_is_set_aside_and_never_sent(
    make_rig: Callable[..., Rig], server: PracticeServer
) -> None:
    rig = make_rig(window=WINDOW, layer_notes=False)
    server.script(text("hello"))
    assert rig.turn("hi").status == "finished"
    sent = len(server.messages)
    said = huge()
    result = rig.turn(said)
    assert result.status == "failed"
    assert "was set aside" in result.message
    assert f"of {WINDOW:,} tokens" in result.message
    assert "\n" not in result.message
    assert len(server.messages) == sent, "neither the request nor a summary of it went out"
    assert all(fork.requests == 0 for fork in rig.shown(ForkEnded))
    assert all("\n" not in failed.why for failed in rig.shown(LayerFailed))
    assert rig.agent.session.history.request is None, "no later compaction puts it back"
    (snipped,) = rig.shown(TurnsRemoved)
    asked = rig.shown(UserMessage)[0]
    assert (snipped.first, asked.text) == (asked.id, said)
    assert snipped.saved > WINDOW // 2
    server.script(text("on we go"))
    following = rig.turn("and now?")
    assert (following.status, following.text) == ("finished", "on we go")
    body = server.messages[-1].body
    assert "box 3999 weighs" not in str(body["messages"])
    assert "too large and was taken out of the conversation here. It was not answered" in str(body["messages"])
    assert server.refused == []
    session = rig.agent.session
    assert ContextView.of(rig.events()).wire() == session.view.wire()
    assert session.history.compact_failures == 0, "what could not be compacted is gone"


def test_with_reactive_off_nothing_is_set_aside(make_rig: Callable[..., Rig], server: PracticeServer) -> None:
    rig = make_rig(window=WINDOW, layer_notes=False, layer_reactive=False)
    result = rig.turn(huge())
    assert "the context window is full" in result.message
    assert rig.shown(TurnsRemoved) == []
    assert server.messages == []


def test_above_the_block_mark_the_conversation_is_compacted_and_the_request_goes_out(
    home: Path, tmp_path: Path
) -> None:
    """The block is reached because the compaction at the mark stands back."""
    with compact_room(tmp_path, window=WINDOW) as room:
        agent = room.agent(window=WINDOW, layer_collapse=True, collapse_percent=100, layer_clear_results=False)
        for number in range(8):
            result = room.turn(agent, f"weigh {number}: {words(number, 2_000)}", text(f"answer {number}"))
            assert (result.status, result.text) == ("finished", f"answer {number}"), result.message
        assert {made.trigger for made in room.of(agent, Compacted)} == {"reactive"}
        assert room.of(agent, TurnsRemoved) == []
        assert room.server.refused == []


def recording() -> Recording:
    collected = Collector("a test")
    for turn in range(5):
        size = 40_000 if turn == 2 else 300
        collected.user([{"type": "text", "text": f"look at part {turn} " + "x y " * (size // 8)}])
        collected.reply([{"type": "tool_use", "id": f"t{turn}", "name": "read", "input": {"path": f"part{turn}"}}])
        collected.result(f"t{turn}", [{"type": "text", "text": f"{turn} is a value\n" * (size // 10)}])
        collected.reply([{"type": "text", "text": f"part {turn} is fine"}])
    return collected.finished()


@pytest.mark.parametrize("engine", ["client", "server", "auto"])
def test_a_recorded_session_with_an_oversize_request_goes_on_after_it(engine: str) -> None:
    made = replay(recording(), settings_for(layers=None, window=8_000, engine=engine))
    assert made.refusals == ()
    assert [turn.status for turn in made.turns] == ["finished", "finished", "failed", "finished", "finished"]
    assert "was set aside" in made.turns[2].message
