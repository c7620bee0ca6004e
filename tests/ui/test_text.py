from __future__ import annotations

import asyncio
import io
import json
import subprocess
import sys
from pathlib import Path

import nbformat

from ipyagent.journal.protocols import Surface
from ipyagent.ui.terminal import TextSurface
from tests.kernel.forked import executor

from .pages import HOSTILE, unseen
from .test_static import hostile_turn
from .turns import STATUS, asked, streamed, whole_turn

REPOSITORY = Path(__file__).resolve().parents[2]


def test_nobody_is_asked() -> None:
    made: Surface = TextSurface()
    assert not made.can_ask
    answer = asyncio.run(made.ask(asked()))
    assert (answer.answer, answer.by) == ("deny", "headless")


def test_streaming_writes_text_as_it_comes_and_each_item_once() -> None:
    file = io.StringIO()
    made = TextSurface(stream=True, file=file)
    made.open()
    made.status(STATUS)
    for event in streamed("Hel"):
        made.show(event)
    assert file.getvalue() == "\nHel"
    made = TextSurface(stream=True, file=(file := io.StringIO()))
    made.open()
    for event in whole_turn():
        made.show(event)
    made.close()
    shown = file.getvalue()
    assert shown.count("I **look**.") == 1
    assert shown.count("✓ python") == 1
    assert shown.index("I **look**.") < shown.index("✓ python") < shown.index("The mean is 3.5.")


def test_without_a_kernel_the_text_is_written_at_the_end() -> None:
    file = io.StringIO()
    made = TextSurface(file=file)
    made.open()
    for event in whole_turn():
        made.show(event)
    assert file.getvalue() == ""
    made.close()
    made.close()
    assert file.getvalue().count("The mean is 3.5.") == 1


def test_no_control_character_is_written() -> None:
    for bad in HOSTILE:
        file = io.StringIO()
        made = TextSurface(stream=True, file=file)
        made.open()
        for event in [*streamed(bad), *hostile_turn(bad)]:
            made.show(event)
        made.close()
        assert unseen(file.getvalue()) == [], bad


def test_in_nbclient_one_output_with_three_forms_is_stored(tmp_path: Path) -> None:
    code = (
        f"import sys; sys.path[:0] = [{str(REPOSITORY)!r}, {str(REPOSITORY / 'tests')!r}]\n"
        "from ipyagent.ui.terminal import TextSurface\nfrom ui.turns import whole_turn, STATUS\n"
        "surface = TextSurface(); surface.open(); surface.status(STATUS)\n"
        "for event in whole_turn(): surface.show(event)\nsurface.close()"
    )
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(code)])
    executor(notebook, tmp_path).execute()
    (output,) = notebook.cells[0].outputs
    assert set(output.data) == {"text/html", "text/markdown", "text/plain"}


def test_importing_every_surface_loads_nothing_heavy() -> None:
    script = (
        "import sys, json; before = set(sys.modules)\n"
        "import ipyagent.ui.panel, ipyagent.ui.terminal, ipyagent.ui.terminal, ipyagent.ui.static\n"
        "print(json.dumps(sorted({name.split('.')[0] for name in set(sys.modules) - before})))"
    )
    result = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, cwd=REPOSITORY, timeout=60
    )
    heavy = {"anywidget", "ipywidgets", "rich", "pygments", "markdown_it", "IPython", "traitlets"}
    assert heavy.isdisjoint(json.loads(result.stdout))
