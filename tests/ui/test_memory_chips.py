from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from ipyagent.journal.events import Event, MemoryDismissed, MemorySaved, MemorySurfaced, Recalled, TurnEnded
from ipyagent.ui.buttons import ButtonBridge
from ipyagent.ui.items import MemoriesItem, NoticeItem, SavedItem
from ipyagent.ui.panel import PanelSurface
from ipyagent.ui.segments import item_html
from ipyagent.ui.static import static_bundle, static_sections
from ipyagent.ui.theme import PANEL
from ipyagent.ui.transcript import fold

from .memories import PLOTS, ROLE, Place, memory, saved, surfaced
from .pages import HOSTILE, Page, unseen
from .turns import printed, text


def test_recalled_memories_say_which_why_and_how_old_in_every_form() -> None:
    for form in static_bundle([surfaced(PLOTS, ROLE)], None).values():
        plain = form.replace("\\", "")
        for words in ("feedback_plots.md", "role.md", "12 days ago", "Axes have units", "about axes"):
            assert words in plain
    (item,) = fold([surfaced(PLOTS, age=1)])
    html = item_html(item, PANEL)
    assert "yesterday" in html
    assert f'data-act="dismiss" data-of="{PLOTS}"' in html


def test_a_saved_memory_names_the_command_that_takes_it_back() -> None:
    changed = saved(change="changed", revision="000004")
    for event, command in ((saved(), "%memory forget"), (changed, "%memory restore")):
        for form in static_bundle([event], None).values():
            plain = form.replace("\\", "")
            assert "saved: feedback_plots.md" in plain
            assert f"{command} feedback_plots.md" in plain
    assert "by extraction" in static_bundle([saved()], None)["text/html"]


def test_a_click_away_marks_the_memory_and_takes_its_button() -> None:
    (item,) = fold([surfaced(PLOTS, ROLE), MemoryDismissed(path=PLOTS)])
    assert isinstance(item, MemoriesItem)
    assert item.dismissed == (PLOTS,)
    html = item_html(item, PANEL)
    assert html.count("data-act") == 1
    assert f'data-of="{ROLE}"' in html
    (notice,) = fold([MemoryDismissed(path=PLOTS)])  # recalled in an earlier cell
    assert isinstance(notice, NoticeItem)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (saved(), saved(change="deleted", by="user", revision="000001")),
        (saved(change="changed", revision="000001"), saved(change="restored", by="user", revision="000002")),
        (saved(change="deleted", revision="000001"), saved(change="restored", by="user")),
        (saved(change="renamed", old=ROLE), saved(path=ROLE, change="renamed", by="user", old=PLOTS)),
    ],
)
def test_what_the_user_takes_back_is_marked_and_not_told_twice(before: MemorySaved, after: MemorySaved) -> None:
    (item,) = fold([before, after])
    assert isinstance(item, SavedItem)
    assert item.undone
    assert "undone" in item_html(item, PANEL)
    assert "data-act" not in item_html(item, PANEL)
    assert len(fold([before, MemorySaved(path=after.path, change="changed", by="agent")])) == 2


def test_the_saved_form_has_no_button_and_no_word_of_one_without_a_door() -> None:
    events: list[Event] = [surfaced(PLOTS), saved()]
    assert "<button" not in static_bundle(events, None)["text/html"]
    door = ButtonBridge()
    mark = door.button(lambda: None)
    html = static_sections(events, None, 1, {("undo", "m2"): mark})[0][0]["text/html"]
    assert html.count("<button") == 1
    assert f'hidden data-ipyagent-door="{mark}"' in html
    assert "></button>" in html  # nothing remains of it where tags are taken away
    assert Page(html).dangers == []


def test_nothing_hostile_survives_in_a_chip() -> None:
    for bad in HOSTILE:
        recalled = Recalled(path=bad, description=bad, why=bad, age=3)
        events: list[Event] = [
            MemorySurfaced(memories=(recalled,), text=bad),
            MemorySaved(path=bad, change=bad, by=bad, old=bad, revision=bad),
            MemorySaved(path=bad, change="renamed", by=bad, old=bad),
        ]
        bundle = static_bundle(events, None)
        assert Page(bundle["text/html"]).dangers == [], bad
        for item in fold(events):
            assert Page(item_html(item, PANEL)).dangers == [], bad
        for form in bundle.values():
            assert unseen(form) == [], bad


def test_a_terminal_prints_both_with_the_command() -> None:
    shown = " ".join(printed(surfaced(PLOTS), saved(), TurnEnded(status="finished")).split())
    assert "recalled 1 memory:" in shown
    assert "feedback_plots.md, 12 days ago" in shown
    assert "saved: feedback_plots.md (undo: %memory forget feedback_plots.md)" in shown


# ---------------------------------------------------------------------- clicks


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def test_undo_restores_the_revision_while_the_turn_runs_however_often_it_is_clicked(place: Place) -> None:
    place.write(PLOTS, memory(body="Label axes."))
    event = place.write(PLOTS, memory(body="Never label axes."))
    panel = PanelSurface(lambda: None, undo_actions=place.undo_actions)
    panel.open()

    async def turn() -> None:
        panel.show(MemorySaved(path=event.path, change=event.change, by="agent", revision=event.revision))
        for _ in range(3):
            panel.click({"kind": "undo", "of": "m1"})
        await asyncio.sleep(0.3)

    asyncio.run(turn())
    assert "Label axes." in (place.text(PLOTS) or "")
    (item,) = fold(panel._events)
    assert isinstance(item, SavedItem)
    assert item.undone
    assert len(panel._events) == 2
    panel.close()


def test_undo_works_after_the_turn_through_the_door_and_the_cell_says_so(
    place: Place, capsys: pytest.CaptureFixture[str]
) -> None:
    event = place.write(PLOTS, memory())
    door = ButtonBridge()
    panel = PanelSurface(lambda: None, undo_actions=place.undo_actions, buttons=door)
    panel.open()

    async def turn() -> None:
        panel.show(text("I noted that."))
        panel.show(surfaced(ROLE))
        await asyncio.sleep(0.1)
        panel.close()
        panel._let_go(panel._parts[0])  # no page asks for the widget any more, as after GRACE
        panel.later(MemorySaved(path=event.path, change=event.change, by="extraction"))  # behind the turn
        assert "feedback_plots.md" in panel._parts[0].settled["settle"]["text/html"]
        marks = list(door._acts)
        assert len(marks) == 2  # click away, undo
        for mark in (*marks, "other.0"):
            door.press({"method": "custom", "content": {"button": mark}})
            door.press({"button": mark})
        await asyncio.sleep(0.3)

    asyncio.run(turn())
    assert place.text(PLOTS) is None
    _words, recalled, stored = fold(panel._events)
    assert isinstance(recalled, MemoriesItem)
    assert recalled.dismissed == (ROLE,)
    assert isinstance(stored, SavedItem)
    assert stored.undone
    ((kept, _),) = static_sections(panel._events, None, 1, panel._take_back.marks(None))
    assert "<button" not in kept["text/html"]


def test_what_cannot_be_undone_is_said_and_may_be_tried_again(place: Place) -> None:
    panel = PanelSurface(lambda: None, undo_actions=place.undo_actions)
    panel.open()

    async def turn() -> None:
        panel.show(saved(change="changed", revision="000007"))  # of a memory that is not there
        for _ in range(2):
            panel.click({"kind": "undo", "of": "m1"})
            await asyncio.sleep(0.2)

    asyncio.run(turn())
    notices = [item.text for item in fold(panel._events) if isinstance(item, NoticeItem)]
    assert len(notices) == 2
    assert all(notice.startswith("not undone: ") for notice in notices)
    panel.close()


def test_clicks_that_name_nothing_of_this_turn_do_nothing(place: Place) -> None:
    place.write(PLOTS, memory())
    panel = PanelSurface(lambda: None, undo_actions=place.undo_actions)
    panel.open()

    async def turn() -> None:
        panel.show(surfaced(ROLE))
        for of in ("m1", "m9", PLOTS, "", "../x"):
            panel.click({"kind": "undo", "of": of})
            panel.click({"kind": "dismiss", "of": of})
        panel.click({"kind": "dismiss"})
        await asyncio.sleep(0.2)

    asyncio.run(turn())
    assert len(panel._events) == 1
    assert place.text(PLOTS) is not None
    panel.close()
