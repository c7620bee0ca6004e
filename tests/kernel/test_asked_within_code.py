"""A question that comes while code runs is answered on the front-end's line of input; an interrupt ends it at once."""

from __future__ import annotations

from collections.abc import Iterator

import pace
import pytest
from kernels import Kernel
from rooms import Room

from ipyagent.journal.events import PermissionAsked
from ipyagent.practice.replies import text, tool
from ipyagent.practice.server import PracticeServer

CODE = "import socket\nsocket.create_connection(('127.0.0.9', {}), 1).close()"


@pytest.fixture(scope="module")
def room(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Room]:
    with PracticeServer() as server:
        made = Room(tmp_path_factory.mktemp("within"), server, {"IPYAGENT_MODE": "auto"})
        made.ok("%load_ext ipyagent")
        made.ok("import ipyagent.ui.panel; ipyagent.ui.panel.PAGE_PATIENCE = 0.2")  # no page will come
        yield made
        made.close()


def _replies(code: str) -> tuple[object, ...]:
    return tool("python", {"code": code}), text("done")


def result(room: Room) -> str:
    return str(room.sent()["messages"][-1]["content"])


def test_the_answer_on_the_line_counts(room: Room) -> None:
    cell = room.asks("go", *_replies(CODE.format(1)), headless=False, answer="n")  # type: ignore[arg-type]
    assert len(cell.prompts) == 1
    assert "did not allow this code to connect to 127.0.0.9" in result(room)
    cell = room.asks("again", *_replies(CODE.format(1)), headless=False, answer="y")  # type: ignore[arg-type]
    assert len(cell.prompts) == 1
    assert "ConnectionRefusedError" in result(room)
    cell = room.asks("and again", *_replies(CODE.format(1)), headless=False, answer="y")  # type: ignore[arg-type]
    assert cell.prompts == []


def test_nobody_to_ask_is_said(room: Room) -> None:
    room.asks("go", *_replies(CODE.replace("0.9", "0.10").format(1)))  # type: ignore[arg-type]
    assert "nobody can be asked here; to let it: %agent allow python(host:127.0.0.10)" in result(room)
    room.ok("%agent allow python(host:127.0.0.10)")
    room.asks("go", *_replies(CODE.replace("0.9", "0.10").format(1)))  # type: ignore[arg-type]
    assert "ConnectionRefusedError" in result(room)


@pytest.mark.parametrize("blocking", [False, True])
def test_an_interrupt_ends_the_question_and_the_code(room: Room, blocking: bool) -> None:
    code = CODE.replace("0.9", f"0.{11 + blocking}").format(1) + "\nopen('went-on', 'w')"
    room.server.script(_replies(code)[0])  # type: ignore[arg-type]
    magic = "%%time\nget_ipython().run_cell_magic('agent', '', 'and now')" if blocking else "%%agent\ngo"
    cell = room.run(magic, headless=False, when="stdin", act=lambda kernel: kernel.interrupt())
    assert cell.latency < pace.within(0.5, 2.0)  # 0.3 s and the end of the cell
    assert not (room.folder / "went-on").exists()
    room.ok("1 + 1")


@pytest.mark.parametrize(("answer", "said"), [("once", "ConnectionRefusedError"), ("deny", "did not allow this code")])
def test_a_click_answers_while_the_code_waits(room: Room, answer: str, said: str) -> None:
    def click(kernel: Kernel) -> None:
        asked = [event for event in room.events() if isinstance(event, PermissionAsked)][-1]
        kernel.click({"kind": "answer", "call": asked.call, "digest": asked.digest, "answer": answer})

    room.server.script(*_replies(CODE.replace("0.9", {"once": "0.14", "deny": "0.15"}[answer]).format(1)))  # type: ignore[arg-type]
    room.run("%%agent\ngo", headless=False, when="stdin", act=click)
    assert said in result(room)
