"""Plans, sub-agents and messages in a cell: one line or checklist each, in every form, nothing of them alive."""

from __future__ import annotations

import re

from ipyagent.journal.events import (
    ChildEnded,
    ChildProgress,
    ChildStarted,
    Event,
    MessageReceived,
    MessageSent,
    PlanWritten,
    Step,
    ToolCalled,
    TurnEnded,
)
from ipyagent.ui.items import MessageItem, PlanItem, SubagentItem, ToolItem
from ipyagent.ui.segments import DeltaBuffer, item_html
from ipyagent.ui.static import plain_text, static_bundle
from ipyagent.ui.theme import PANEL, STATIC
from ipyagent.ui.transcript import fold

from .turns import printed, returned

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
    (item,) = fold([*planned("p1", *FIRST), *planned("p2")])  # one that is dropped leaves the call that dropped it
    assert isinstance(item, ToolItem)
    assert item.output == "said"


def test_the_checklist_says_its_states_in_words_and_nothing_in_it_is_markup() -> None:
    for look in (PANEL, STATIC):
        html = item_html(PlanItem("p", SECOND), look)
        assert "Plan, 1 of 2 done" in html
        assert 'aria-label="done">☑</span> <s>read &lt;b&gt;</s>' in html
        assert 'aria-label="doing">▸</span> <b>plot *it*</b>' in html
    bundle = static_bundle([*planned("p1", *SECOND), TurnEnded(status="finished")], None)
    assert "*Plan, 1 of 2 done*\n\n- ☑ read \\<b\\>\n- ▸ plot \\*it\\*" in bundle["text/markdown"]
    assert "Plan, 1 of 2 done\n  ☑ read <b>\n  ▸ plot *it*" in bundle["text/plain"]
    shown = printed(*planned("p1", *FIRST), *planned("p2", *SECOND))
    assert shown.count("Plan, 0 of 2 done\n  ▸ read <b>\n  ☐ plot *it*") == shown.count("Plan, 1 of 2 done") == 1


def test_the_panel_drops_the_old_checklist_when_a_new_one_comes() -> None:
    segments = DeltaBuffer(lambda: 0.0)
    for event in planned("p1", *FIRST):
        segments.add(event)
    segments.drain()
    for event in planned("p2", *SECOND):
        segments.add(event)
    message = segments.drain()
    assert ["del", "c:p1"] in message["ops"]
    (piece,) = segments.snapshot()["pieces"]
    assert piece[0] == "c:p2"
    assert "1 of 2 done" in piece[1]


AT_WORK: list[Event] = [
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


def test_a_sub_agent_says_what_it_is_about_then_how_it_ended_and_what_it_cost() -> None:
    items = fold(AT_WORK)
    assert [item.doing for item in items if isinstance(item, SubagentItem)] == ["Reading orders.csv columns", "", ""]
    shown = static_bundle(AT_WORK, None)["text/plain"]
    assert "[▸ count (explore): Reading orders.csv columns]" in shown
    assert "[▸ late (general): be late, in the background]" in shown
    bundle = static_bundle(AT_WORK + ENDS, None)
    assert "[✓ count (explore): done, handed back total, 3 model calls, $0.0123, 12.0 s]" in bundle["text/plain"]
    assert "✗ fit (fork): failed (no such model <b>), 1 model call" in bundle["text/plain"]
    assert "<b>count (explore)</b>" in bundle["text/html"]
    assert "no such model &lt;b&gt;" in bundle["text/html"]
    assert "count \\<rows" not in bundle["text/html"]
    assert 'aria-label="failed"' in bundle["text/html"]
    assert "$0.0123" in bundle["text/plain"].splitlines()[-1], "its cost is the turn's"
    shown = printed(*AT_WORK, AT_WORK[-1], *ENDS)
    assert shown.count("Reading orders.csv columns") == 1
    assert "✓ count (explore): done" in shown


BAD = "<script>alert(1)</script>\x1b[31m *x* \u202e"
LETTERS: list[Event] = [
    MessageReceived(message="1", sender="count-rows", text="<message>", said="344 rows", summary="344 rows"),
    MessageReceived(message="2", sender=BAD, text="", said=f"{BAD}\nand more", summary=BAD, kind="plan_request"),
    ToolCalled(call="c1", name="send_message", input={"to": "*", "message": "enough"}),
    MessageSent(message="3", to=("a", "b"), said="enough", summary="enough", kind="shutdown_request", call="c1"),
    returned("c1", "Delivered", name="send_message"),
]


def test_a_message_is_one_line_with_the_whole_in_a_fold_and_nothing_of_it_is_alive() -> None:
    items = fold(LETTERS)
    assert all(isinstance(item, MessageItem) for item in items)
    said, markdown, shown = plain_text(items, ""), static_bundle(LETTERS, None)["text/markdown"], printed(*LETTERS)
    assert "asks for approval of a plan" in said
    for words in ("← Message from count-rows: 344 rows", "→ Message to a, b, asks to shut down: enough"):
        assert f"[{words}]" in said
        assert shown.count(words) == 1
    for look in (PANEL, STATIC):
        html = "".join(item_html(item, look) for item in items)
        assert "<script" not in html
        assert "&lt;script&gt;" in html
        assert "\x1b" not in html
        assert "\u202e" not in html
        assert "and more" in html, "the whole stands in a fold"
        assert html.count("<details") == 1
    for text in (said, markdown, shown):
        assert "\x1b" not in text
        assert "\u202e" not in text
    assert re.search(r"(?<!\\)<", markdown) is None
