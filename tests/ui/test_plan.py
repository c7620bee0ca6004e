"""A plan on the screen: one checklist a turn, the newest, in every form."""

from __future__ import annotations

import io

from ipyagent.journal.events import Event, PlanWritten, Step, ToolCalled, TurnEnded
from ipyagent.ui.items import PlanItem, ToolItem
from ipyagent.ui.segments import DeltaBuffer, item_html
from ipyagent.ui.static import static_bundle
from ipyagent.ui.terminal import TerminalSurface
from ipyagent.ui.theme import PANEL, STATIC
from ipyagent.ui.transcript import fold

from .turns import returned

FIRST = (Step("read <b>", "doing"), Step("plot *it*"))
SECOND = (Step("read <b>", "done"), Step("plot *it*", "doing"))


def planned(call: str, *steps: Step) -> list[Event]:
    return [
        ToolCalled(call=call, name="plan", input={"steps": []}),
        PlanWritten(steps=steps, call=call),
        returned(call, "said", name="plan"),
    ]


def test_only_the_newest_plan_is_shown_in_the_place_of_its_call() -> None:
    between: list[Event] = [ToolCalled(call="t", name="python", input={}), returned("t", "1")]
    items = fold([*planned("p1", *FIRST), *between, *planned("p2", *SECOND)])
    assert [type(item) for item in items] == [ToolItem, PlanItem]
    assert items[1] == PlanItem("c:p2", SECOND)


def test_a_dropped_plan_leaves_the_call_that_dropped_it() -> None:
    (item,) = fold([*planned("p1", *FIRST), *planned("p2")])
    assert isinstance(item, ToolItem)
    assert item.output == "said"


def test_the_checklist_says_its_states_in_words_and_nothing_in_it_is_markup() -> None:
    for look in (PANEL, STATIC):
        html = item_html(PlanItem("p", SECOND), look)
        assert "Plan, 1 of 2 done" in html
        assert 'aria-label="done">☑</span> <s>read &lt;b&gt;</s>' in html
        assert 'aria-label="doing">▸</span> <b>plot *it*</b>' in html
    bundle = static_bundle([*planned("p1", *SECOND), TurnEnded(status="finished")], None)
    assert "- ☑ read \\<b\\>\n- ▸ plot \\*it\\*" in bundle["text/markdown"]
    assert "Plan, 1 of 2 done\n  ☑ read <b>\n  ▸ plot *it*" in bundle["text/plain"]


def test_the_panel_drops_the_old_checklist_when_a_new_one_comes() -> None:
    segments = DeltaBuffer(lambda: 0.0)
    for event in planned("p1", *FIRST):
        segments.add(event)
    segments.drain()
    for event in planned("p2", *SECOND):
        segments.add(event)
    message = segments.drain()
    assert message is not None
    assert ["del", "c:p1"] in message["ops"]
    assert [piece[0] for piece in segments.snapshot()["pieces"]] == ["c:p2"]
    assert "1 of 2 done" in segments.snapshot()["pieces"][0][1]


def test_a_terminal_prints_each_state_of_the_plan_once() -> None:
    async def read_line(prompt: str) -> str:
        raise EOFError

    file = io.StringIO()
    made = TerminalSurface(read_line, file)
    made.open()
    for event in [*planned("p1", *FIRST), *planned("p2", *SECOND)]:
        made.show(event)
    made.close()
    assert file.getvalue().count("Plan, 0 of 2 done\n  ▸ read <b>\n  ☐ plot *it*") == 1
    assert file.getvalue().count("Plan, 1 of 2 done") == 1
