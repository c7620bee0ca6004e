from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

from ipyagent.journal.events import PermissionAnswered, TurnEnded
from ipyagent.journal.protocols import PermissionAnswer, Surface
from ipyagent.ui.panel import PanelSurface

from .turns import STATUS, asked, streamed, text


class Recorded(PanelSurface):
    """A panel whose widget notes what it would send; there is no kernel here."""

    def __init__(self) -> None:
        self.stops = 0
        super().__init__(self._count)

    def _count(self) -> None:
        self.stops += 1

    def watch(self) -> list[dict[str, Any]]:
        sent: list[dict[str, Any]] = []
        self._parts[0].widget.send = lambda message, buffers=None: sent.append(message)
        return sent


@pytest.fixture
def panel(capsys: pytest.CaptureFixture[str]) -> Recorded:
    surface = Recorded()
    surface.open()
    return surface


def answer(question: Any, choice: str, **changed: str) -> dict[str, Any]:
    return {"kind": "answer", "call": question.call, "digest": question.digest, "answer": choice, **changed}


def test_a_panel_is_a_surface() -> None:
    surface: Surface = PanelSurface(lambda: None)
    assert surface.can_ask


def test_messages_are_batched(panel: Recorded) -> None:
    sent = panel.watch()

    async def turn() -> None:
        panel.status(STATUS)
        for event in streamed("x" * 2000):
            panel.show(event)
        panel._ready(panel._parts[0], {"page": "one"})
        for event in streamed("y" * 2000):
            panel.show(event)
            if len(sent) % 100 == 0:
                await asyncio.sleep(0.0001)
        await asyncio.sleep(0.3)

    asyncio.run(turn())
    assert 2 <= len(sent) <= 30
    assert "whole" in sent[0]


def test_until_a_page_listens_every_message_is_whole(panel: Recorded) -> None:
    sent = panel.watch()

    async def turn() -> None:
        for _ in range(3):
            panel.show(text("words"))
            await asyncio.sleep(0.6)
        panel.click({"kind": "ready", "page": "one"})
        await asyncio.sleep(0.05)
        panel.show(text("more"))
        await asyncio.sleep(0.1)

    asyncio.run(turn())
    assert all("whole" in message for message in sent[:-1])
    assert "ops" in sent[-1]


def test_a_page_that_listens_from_the_start_gets_changes_only(panel: Recorded) -> None:
    sent = panel.watch()
    panel.click({"kind": "ready", "page": "one"})

    async def turn() -> None:
        panel.show(text("words"))
        await asyncio.sleep(0.1)

    asyncio.run(turn())
    (message,) = sent
    assert message["seq"] == 1
    assert message["ops"]


def test_a_page_that_never_listens_is_sent_less_and_less(panel: Recorded) -> None:
    sent = panel.watch()

    async def turn() -> None:
        for _ in range(30):
            panel.show(text("words"))
            await asyncio.sleep(0.05)

    asyncio.run(turn())
    assert 1 <= len(sent) <= 5


def test_an_answer_counts_once_and_only_for_its_question(panel: Recorded) -> None:
    question = asked()

    async def turn() -> PermissionAnswer:
        asking = asyncio.ensure_future(panel.ask(question))
        await asyncio.sleep(0.01)
        for wrong in (
            answer(question, "once", digest="other"),
            answer(question, "once", call="other"),
            answer(question, "maybe"),
            {"kind": "answer"},
            {"kind": "other"},
            {},
        ):
            panel.click(wrong)
        await asyncio.sleep(0.02)
        assert not asking.done()
        # From two other threads, twice, one wrapped as a comm message: the first counts.
        right = answer(question, "deny", reason="not now")
        for content in (right, {"method": "custom", "content": right}, answer(question, "once")):
            thread = threading.Thread(target=panel.click, args=(content,))
            thread.start()
            thread.join()
        return await asyncio.wait_for(asking, 2)

    assert asyncio.run(turn()) == PermissionAnswer("deny", "not now", "user")
    panel.click(answer(question, "once"))  # the loop is over: nothing happens


def test_always_without_a_pattern_is_once(panel: Recorded) -> None:
    question = asked(pattern="")

    async def turn() -> PermissionAnswer:
        asking = asyncio.ensure_future(panel.ask(question))
        await asyncio.sleep(0.01)
        panel.click(answer(question, "always"))
        return await asyncio.wait_for(asking, 2)

    assert asyncio.run(turn()).answer == "once"


def test_a_cancelled_question_ends_as_not_answered(panel: Recorded) -> None:
    sent = panel.watch()
    question = asked()

    async def turn() -> None:
        panel._ready(panel._parts[0], {"page": "one"})
        asking = asyncio.ensure_future(panel.ask(question))
        await asyncio.sleep(0.1)
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking
        panel.click(answer(question, "once"))
        await asyncio.sleep(0.1)

    asyncio.run(turn())
    (put,) = [op for op in sent[-1]["ops"] if op[0] == "put"]
    assert "Not answered" in put[3]
    assert "data-act" not in put[3]


def test_a_question_journalled_before_is_not_shown_twice(panel: Recorded) -> None:
    question = asked()

    async def turn() -> None:
        panel.show(question)
        asking = asyncio.ensure_future(panel.ask(question))
        await asyncio.sleep(0.01)
        panel.click(answer(question, "once"))
        got = await asking
        panel.show(PermissionAnswered(call="t1", answer=got.answer, by=got.by))

    asyncio.run(turn())
    assert len(panel._parts[0].segments.transcript.keys) == 1


def test_stop_is_called_once_however_often_it_is_pressed(panel: Recorded) -> None:
    async def turn() -> None:
        panel.status(STATUS)
        for _ in range(3):
            thread = threading.Thread(target=panel.click, args=({"kind": "stop"},))
            thread.start()
            thread.join()
        await asyncio.sleep(0.05)
        assert panel._parts[0].segments.snapshot()["bar"]["state"] == "stopping"

    asyncio.run(turn())
    assert panel.stops == 1


def test_the_state_for_a_reloaded_page_is_made_when_it_is_asked_for(panel: Recorded) -> None:
    panel.show(text("**words**"))
    panel._flush()
    state = panel._parts[0].widget.get_state()["state"]
    assert state["seq"] == 1
    assert state["pieces"][0][1] == "<p><strong>words</strong></p>\n"


def test_close_leaves_nothing_that_waits(panel: Recorded) -> None:
    question = asked()

    async def turn() -> PermissionAnswer:
        asking = asyncio.ensure_future(panel.ask(question))
        await asyncio.sleep(0.01)
        thread = threading.Thread(target=panel.close)  # the main thread in a kernel
        thread.start()
        thread.join()
        return await asyncio.wait_for(asking, 2)

    assert asyncio.run(turn()).by == "stop"
    panel.close()
    panel.show(TurnEnded(status="stopped"))


def test_clicks_are_routed_and_the_route_is_undone() -> None:
    undone: list[bool] = []
    routed: list[Any] = []

    def route(comm: Any, callback: Any) -> Any:
        routed.append(callback)
        return lambda: undone.append(True)

    surface = PanelSurface(lambda: None, route)
    surface.open()
    assert len(routed) == 1
    surface.close()
    assert undone == [True]
