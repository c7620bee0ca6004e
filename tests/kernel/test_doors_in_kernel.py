"""Agent code in a real kernel: captured whole, live where it must be, invisible to the next cell."""

from __future__ import annotations

import json
from typing import Any

import pytest
from kernels import Kernel


def run(kernel: Kernel, *codes: str, options: str = "") -> tuple[Any, Any]:
    """The last execution, and the cell."""
    steps = "".join(f"('code', {code!r})," for code in codes)
    cell = kernel.run(f"s = scripted.Scripted(ip, {steps} {options})\nawait s.awaited()")
    return cell.value["done"][-1], cell


def test_the_cell_shows_no_results_errors_or_numbers_of_the_agents_code(kernel: Kernel) -> None:
    before = kernel.eval("[list(Out), repr(_), len(In), ip.execution_count]")
    got, cell = run(kernel, "1/0", "print('x')\n40 + 2")
    after = kernel.eval("[list(Out), repr(_), len(In), ip.execution_count]")
    assert got["result"] == "42"
    assert cell.data == []
    assert cell.errors == []
    assert "x\n" not in cell.streams.replace("LIVE x", "")
    assert after[:2] == before[:2]
    assert [after[2] - before[2], after[3] - before[3]] == [2, 2]  # the two cells, not the two runs


def test_output_of_a_forked_child_is_captured(kernel: Kernel) -> None:
    code = "import os\npid = os.fork()\nif pid == 0:\n  print('child')\nelse:\n  os.waitpid(pid, 0); print('parent')"
    got, _ = run(kernel, code)
    assert "child" in got["output"]
    assert "parent" in got["output"]
    assert kernel.eval("1 + 1") == 2


def test_widgets_are_shown_in_the_cell_and_scripts_are_not_passed_on(kernel: Kernel) -> None:
    got, cell = run(kernel, "import ipywidgets\nipywidgets.IntSlider()")
    assert "IntSlider" in got["result"]
    (shown,) = cell.data
    assert "application/vnd.jupyter.widget-view+json" in shown
    _, cell = run(kernel, "from IPython.display import Javascript, display\ndisplay(Javascript('alert(1)'))")
    assert cell.data == []


@pytest.mark.parametrize(
    "code",
    [
        "import sys; sys.stdout.close(); sys.stderr.close()",
        "import sys; sys.stdout = sys.stderr = None; sys.displayhook = None",
        "exit()",
        "quit(); raise SystemExit(3)",
        "import sys; sys.exit()",
        "get_ipython = 1",
        "import asyncio\nawait asyncio.sleep(0)\nraise SystemExit",
        "import warnings; warnings.warn('careful')",
        "import asyncio; asyncio.set_event_loop(None)",
    ],
)
def test_the_next_cell_is_clean_whatever_the_code_did(kernel: Kernel, code: str) -> None:
    got, _ = run(kernel, code)
    if "careful" in code:
        assert "careful" in got["output"]
    cell = kernel.run("print('out'); import sys; print('err', file=sys.stderr); get_ipython().execution_count")
    assert sorted(cell.streams.split()) == ["err", "out"]
    assert len(cell.data) == 1
    assert cell.reply["status"] == "ok"
    assert cell.reply["payload"] == []  # nobody is asked to exit


def test_input_works_in_agent_code(kernel: Kernel) -> None:
    cell = kernel.run("s = scripted.Scripted(ip, ('code', 'input(\"who? \")'))\nawait s.awaited()", answer="me")
    assert cell.value["done"][0]["result"] == "'me'"


def test_timing_and_capturing_magics_take_the_blocking_door(kernel: Kernel) -> None:
    cell = kernel.run("%%capture got\ns = scripted.Scripted(ip, ('code', 'print(1); 2')); s.blocking()")
    assert cell.errors == []
    text = kernel.run("print(got.stdout)").streams
    value = json.loads(text.split("VALUE ", 1)[1].splitlines()[0])
    assert value["done"][0]["result"] == "2"
    assert value["done"][0]["output"] == "1\n"
