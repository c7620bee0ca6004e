"""Front-ends that show no widgets of ours still show the turn, ask and can be stopped; simulated by what they
leave in the kernel (Colab its module, VS Code its variable) and by a page that never answers."""

from __future__ import annotations

import json
import time
from pathlib import Path

import nbformat
import pytest
from kernels import Kernel
from rooms import plain, room

from ipyagent.journal.events import PermissionAnswered
from ipyagent.practice.replies import text, tool
from ipyagent.practice.server import PracticeServer

COLAB = "import sys, types; sys.modules['google.colab'] = types.ModuleType('google.colab')"
VIEW = "application/vnd.jupyter.widget-view+json"


def test_in_colab_the_output_is_written_anew_and_the_question_is_asked_on_the_line(tmp_path: Path) -> None:
    with PracticeServer() as server, room(tmp_path, server=server) as here:
        here.ok(COLAB)
        here.ok("%load_ext ipyagent")
        code = "import time\nn = 1\nfor _ in range(5):\n    print('<b>step</b>', flush=True)\n    time.sleep(0.5)"
        cell = here.asks("count", tool("python", {"code": code}), text("Done."), headless=False, answer="y")
        assert not any(VIEW in data for data in cell.data)
        (prompt,) = cell.prompts
        assert prompt.startswith("[y] once")
        asked = next(data for data in cell.updates if "time.sleep" in data["text/html"])
        assert "n = 1" in asked["text/plain"]
        last = cell.updates[-1]
        assert "Done." in last["text/plain"]
        assert "<b>step" not in last["text/html"]
        assert len(cell.updates) <= 12
        assert here.ok("print(n)").streams == "1\n"


def test_the_setting_does_the_same_anywhere_and_an_interrupt_ends_it(tmp_path: Path) -> None:
    settings = {"IPYAGENT_PANELS": "static", "IPYAGENT_MODE": "auto"}
    with PracticeServer() as server, room(tmp_path, server=server, **settings) as here:
        here.ok("%load_ext ipyagent")
        code = "print('begun', flush=True)\nopen('at-work', 'w').close()\nwhile True: pass"
        here.server.script(tool("python", {"code": code}))

        def interrupt(kernel: Kernel) -> None:
            while not (here.folder / "at-work").exists():
                time.sleep(0.05)
            kernel.interrupt()

        ended = here.run("%%agent\nspin", headless=False, act=interrupt)
        assert ended.errors == ["KeyboardInterrupt"]
        assert "begun" in ended.updates[-1]["text/plain"]
        shown = here.asks("go on", headless=False)
        assert "ok" in shown.updates[-1]["text/plain"]


def test_where_no_page_shows_the_panel_the_question_comes_on_the_line_with_all_of_the_code(tmp_path: Path) -> None:
    """As in VS Code without a network: the widget is there, its script never runs."""
    with PracticeServer() as server, room(tmp_path, server=server) as here:
        notebook = here.folder / "analysis" / "own.ipynb"
        notebook.parent.mkdir()
        here.ok(f"__vsc_ipynb_file__ = {str(notebook)!r}")
        here.ok("%load_ext ipyagent")
        assert "own.ipynb" in plain(here.ok("%agent doctor")), "the notebook is known by the variable"
        code = "value = 6 * 7\nprint(value)"
        cell = here.asks("go", tool("python", {"code": code}), text("It is 42."), headless=False, answer="n")
        assert any(VIEW in data for data in cell.data)
        (prompt,) = cell.prompts
        assert code in prompt
        assert "It is 42." in cell.updates[-1]["text/plain"]
        (answered,) = (event for event in here.events() if isinstance(event, PermissionAnswered))
        assert (answered.answer, answered.by) == ("deny", "user")
        assert "value" not in here.ok("print([name for name in globals() if name == 'value'])").streams


@pytest.fixture(scope="module")
def executed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A notebook that was run by nbclient, as Voila runs one."""
    from nbclient import NotebookClient

    place = tmp_path_factory.mktemp("executed")
    notebook = nbformat.v4.new_notebook()
    notebook.cells = [
        nbformat.v4.new_code_cell("%load_ext ipyagent\n%config IPyAgent.model = 'practice'"),
        nbformat.v4.new_code_cell("%config IPyAgent.mode = 'auto'"),
        nbformat.v4.new_code_cell("import pandas as pd\nt = pd.DataFrame({'a': [1, None, 3]})"),
        nbformat.v4.new_code_cell("%%agent\nhow many missing values are in @t?"),
    ]  # fmt: skip
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("IPYAGENT_HOME", str(place / "home"))
        patch.setenv("PYTHONPATH", str(Path(__file__).parents[2]))
        NotebookClient(notebook, timeout=60, resources={"metadata": {"path": str(place)}}).execute()
    path = place / "run.ipynb"
    nbformat.write(notebook, path)
    return path


@pytest.mark.parametrize("form", ["html", "markdown", "script"])
def test_nbconvert_shows_the_turn(executed: Path, form: str) -> None:
    from nbconvert.exporters import get_exporter

    made, _resources = get_exporter(form)().from_filename(str(executed))
    if form == "script":
        assert "how many missing values" in made
        return
    assert "widget-view" not in made
    assert "missing" in made.split("how many missing values are in")[-1]


def test_what_voila_would_show_has_no_widget_and_no_script_of_ours(executed: Path) -> None:
    """Voila runs a notebook without a person and shows its outputs: static ones only."""
    cells = json.loads(executed.read_text("utf-8"))["cells"]
    outputs = [output for cell in cells for output in cell.get("outputs", [])]
    assert not any(VIEW in output.get("data", {}) for output in outputs)
    html = "".join("".join(output.get("data", {}).get("text/html", "")) for output in outputs)
    assert "ia-static" in html
    assert "<script" not in html
