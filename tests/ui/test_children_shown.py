"""Sub-agents in a cell: one line each, in every form."""

from __future__ import annotations

import io

from ipyagent.journal.events import ChildEnded, ChildProgress, ChildStarted, Event, TurnEnded
from ipyagent.ui.items import SubagentItem
from ipyagent.ui.static import static_bundle
from ipyagent.ui.terminal import TerminalSurface
from ipyagent.ui.transcript import fold

EVENTS: list[Event] = [
    ChildStarted(child="count-1a2b", name="count", kind="explore", task="count <rows>", call="t1"),
    ChildStarted(child="fit-3c4d", name="fit", kind="fork", task="fit a line", call="t2"),
    ChildStarted(child="late-5e6f", name="late", kind="general", task="be late", call="t3", background=True),
    ChildProgress(child="count-1a2b", text="Reading orders.csv columns"),
]
ENDS: list[Event] = [
    ChildEnded(child="count-1a2b", status="finished", requests=3, cost=0.0123, seconds=12.0, handed=("total",)),
    ChildEnded(child="fit-3c4d", status="failed", message="no such model <b>", requests=1, seconds=0.5),
    TurnEnded(status="finished", seconds=13.0),
]


def test_a_running_one_says_what_it_is_about() -> None:
    items = fold(EVENTS)
    assert [item.doing for item in items if isinstance(item, SubagentItem)] == ["Reading orders.csv columns", "", ""]
    shown = static_bundle(EVENTS, None)["text/plain"]
    assert "[▸ count (explore): Reading orders.csv columns]" in shown
    assert "[▸ late (general): be late, in the background]" in shown


def test_an_ended_one_says_how_and_what_it_cost() -> None:
    bundle = static_bundle(EVENTS + ENDS, None)
    assert "[✓ count (explore): done, handed back total, 3 model calls, $0.0123, 12.0 s]" in bundle["text/plain"]
    assert "✗ fit (fork): failed (no such model <b>), 1 model call" in bundle["text/plain"]
    assert "<b>count (explore)</b>" in bundle["text/html"]
    assert "no such model &lt;b&gt;" in bundle["text/html"]
    assert "count \\<rows" not in bundle["text/html"]
    assert 'aria-label="failed"' in bundle["text/html"]
    assert "$0.0123" in bundle["text/plain"].splitlines()[-1], "its cost is the turn's"


def test_a_terminal_prints_each_change_once() -> None:
    file = io.StringIO()

    async def nobody(prompt: str) -> str:
        raise EOFError

    surface = TerminalSurface(nobody, file)
    surface.open()
    for event in [*EVENTS, EVENTS[-1], *ENDS]:
        surface.show(event)
    surface.close()
    printed = file.getvalue()
    assert printed.count("Reading orders.csv columns") == 1
    assert "✓ count (explore): done" in printed
