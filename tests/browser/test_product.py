"""Stop and interrupt in every state of a turn, in real front-ends: at once, nothing after, nothing left behind."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from ipyagent.practice.replies import Reply, calls, text

from .lab import Page, until, write_notebook
from .product import Product, running, timed_end

pytestmark = pytest.mark.timed

PROMISED = 300
"""Milliseconds, promised to the user; the tests allow for a loaded machine."""
ALLOWED = 1_000

ASKED = "%%agent\ndo what comes next"
ASKED_FIRST = "%%agent --mode ask\ndo what comes next"
AFTER = "%%agent\nand now?"
CHECK = 'print("NEVER" in globals(), open("never.txt").read() if __import__("os").path.exists("never.txt") else "none")'
CELLS = ["%load_ext ipyagent\n%agent allow python(program:*)", ASKED, ASKED_FIRST, AFTER, CHECK]
STOPPED_CELL, ASKING_CELL, AFTER_CELL, CHECK_CELL = 1, 2, 3, 4


@dataclass(frozen=True)
class State:
    """`code` runs in the kernel, `words` is what the cell shows in this state."""

    name: str
    reply: Reply
    words: str
    cell: int = STOPPED_CELL
    process: str = ""


def coded(name: str, code: str, *, cell: int = STOPPED_CELL, words: str = "here we are", process: str = "") -> State:
    """A state in which `code` runs and a second call waits behind it."""
    both = [("python", {"code": code}), ("python", {"code": "NEVER = 1; open('never.txt', 'w').write('written')"})]
    return State(name, calls(both), words, cell, process)


STATES = (
    State("waiting for the model", replace(text("too late"), first_delay=60), "waiting for the model"),
    State("streaming", text("here we are " * 500, delay=0.02), "here we are here"),
    coded("time.sleep(60)", "import time\nprint('here we ' + 'are', flush=True)\ntime.sleep(60)"),
    coded("while True: pass", "print('here we ' + 'are', flush=True)\nwhile True: pass"),
    coded("await asyncio.sleep(60)", "import asyncio\nprint('here we ' + 'are', flush=True)\nawait asyncio.sleep(60)"),
    coded("!sleep 60", "print('here we ' + 'are', flush=True)\n!sleep 60.0625", process="sleep 60.0625"),
    coded("a permission question", "NEVER = 2", cell=ASKING_CELL, words="Allow once"),
)

WAYS = ("stop", "interrupt")


def alternately(first: int) -> list[tuple[str, ...]]:
    """One way for each state, the other in the other front-end; both where no event loop runs and at the question, and
    in JupyterLab."""
    both = ("while True: pass", "a permission question")
    return [WAYS if state.name in both else (WAYS[(first + at) % 2],) for at, state in enumerate(STATES)]


@pytest.fixture
def table(capsys: pytest.CaptureFixture[str]) -> Iterator[list[tuple[str, str, float]]]:
    rows: list[tuple[str, str, float]] = []
    yield rows
    with capsys.disabled():
        print(f"\nfrom the click to the finished cell, ms (promised: {PROMISED})")
        for front, state, took in rows:
            print(f"  {front:<28} {state:<36} {took:6.0f}" + ("  !" if took > PROMISED else ""))


def begin(product: Product, page: Page, state: State) -> None:
    """Run the cell until it is in the state."""
    product.script(state.reply)
    page.run(state.cell, wait=False)
    panel = page.cell(state.cell).locator(".ia-panel")
    panel.wait_for()
    panel.get_by_text(state.words).first.wait_for()
    if state.process:
        until(lambda: running(state.process), state.process)
    page.page.wait_for_timeout(150)


def ended_well(product: Product, page: Page, state: State, asked: int) -> None:
    """Nothing is left of the turn, and the next one works."""
    until(lambda: product.model.open_streams == 0, "closed connection")
    assert not running(state.process or "no such process, ever")
    assert product.forget() == 0
    assert len(product.model.messages) == asked, "a request went out after the stop"
    page.cell(state.cell).locator(".ia-static").wait_for()
    shown = page.cell(state.cell).inner_text()
    assert "Stopped" in shown
    product.script(text("all is well here"))
    page.run(AFTER_CELL)
    page.run(CHECK_CELL)
    page.says(AFTER_CELL, "all is well here")
    page.says(CHECK_CELL, "False none")
    assert product.model.refused == []


def stop_everywhere(
    product: Product, front: str, rows: list[tuple[str, str, float]], ways: Sequence[Sequence[str]]
) -> None:
    """For each state the ways in which it is ended."""
    write_notebook(product.root, "stops.ipynb", CELLS)
    with Page(product.jupyter) as page:
        page.open("stops.ipynb")
        page.run(0)
        for state, kinds in zip(STATES, ways, strict=True):
            for kind in kinds:
                begin(product, page, state)
                asked = len(product.model.messages)
                late = state.cell == ASKING_CELL
                rows.append((front, f"{kind}: {state.name}", timed_end(page, state.cell, kind, late_approval=late)))
                ended_well(product, page, state, asked)
                if kind == "interrupt":
                    page.says(state.cell, "KeyboardInterrupt")
        page.save()
        page.shut_down()
        assert page.errors == []
    assert max(took for _, _, took in rows) < ALLOWED


def test_stop_and_interrupt_end_every_state_at_once(product: Product, table: list[tuple[str, str, float]]) -> None:
    stop_everywhere(product, "JupyterLab", table, [WAYS] * len(STATES))


@pytest.mark.slow
def test_stop_and_interrupt_on_ipykernel_7_3(tmp_path: Path, table: list[tuple[str, str, float]]) -> None:
    folder = os.environ.get("IPYAGENT_IPYKERNEL_73", "")
    if not folder:
        pytest.skip("IPYAGENT_IPYKERNEL_73 names no folder with ipykernel 7.3")
    with Product(tmp_path, ipykernel=folder) as product:
        stop_everywhere(product, "JupyterLab, ipykernel 7.3", table, alternately(1))


@pytest.mark.slow
def test_stop_and_interrupt_in_notebook_7(notebook7: Product, table: list[tuple[str, str, float]]) -> None:
    stop_everywhere(notebook7, "Notebook 7", table, alternately(0))
