"""What clearing old tool results says that it saves is what the server then counts less, however it came about."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest
from loop_rig import Rig

from ipyagent.journal.events import LayerDecision, ResultsCleared, UsageReported
from ipyagent.practice.replies import text, tool
from ipyagent.practice.server import PracticeServer
from ipyagent.ui.transcript import notice_of

POLICIES: dict[str, dict[str, Any]] = {
    "every turn": {"clear_policy": "every_turn"},
    "by time": {"clear_idle_minutes": 0.002, "clear_idle_keep": 2},
    "near the threshold": {"auto_compact_percent": 47},
}


def talk(make_rig: Callable[..., Rig], server: PracticeServer, **settings: Any) -> tuple[Rig, int]:
    """Five turns with a table each, the newest two results kept: none is cleared before the last request, which
    `settings` say; the tokens of the prompt before it."""
    rig = make_rig(engine="client", clear_keep=2, window=40_000, subagents=False, messages=False)
    for number in range(1, 6):
        rows = 500 if number < 4 else 250
        code = f"print('\\n'.join(str({number} * n) + ' row of data' for n in range({rows})))"
        server.script(tool("python", {"code": code}, thinking="hm"), text("done", thinking="hmm"))
        assert rig.turn(f"weigh box {number}").status == "finished"
    assert rig.of(ResultsCleared) == []
    for name, value in settings.items():
        setattr(rig.settings, name, value)
    before = server.messages[-1].prompt_tokens
    time.sleep(0.15)
    server.script(text("fine"))
    assert rig.turn("and now?").status == "finished"
    return rig, before


@pytest.mark.parametrize("policy", POLICIES)
def test_the_saving_is_what_the_server_counts_less(
    make_rig: Callable[..., Rig], server: PracticeServer, policy: str
) -> None:
    rig, before = talk(make_rig, server, **POLICIES[policy])
    events = rig.events()
    (cleared,) = [event for event in events if isinstance(event, ResultsCleared)]
    assert len(cleared.calls) == 3
    fewer = before - server.messages[-1].prompt_tokens
    assert cleared.saved == pytest.approx(fewer, rel=0.05)
    (decided,) = [event for event in events if isinstance(event, LayerDecision) and event.saved]
    assert decided.saved == cleared.saved
    predicted = [event for event in events if isinstance(event, UsageReported)][-1].predicted
    assert predicted == pytest.approx(server.messages[-1].prompt_tokens, rel=0.02)


def test_one_result_is_one_result(make_rig: Callable[..., Rig], server: PracticeServer) -> None:
    rig, _ = talk(make_rig, server, clear_policy="every_turn", clear_keep=4)
    (cleared,) = rig.of(ResultsCleared)
    said = notice_of(cleared)
    assert said[0].startswith("Cleared 1 old tool result, about")

