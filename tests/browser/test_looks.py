"""What a user sees of the whole product, as pictures for a person and as text that must be in them.

The pictures go to the folder that IPYAGENT_SCREENSHOTS names; without it none are taken.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest
from playwright.sync_api import expect

from ipyagent.practice.replies import calls, fault, text, tool

from .lab import CHROMIUM, REPOSITORY, Page, write_notebook
from .product import MODEL, Product, timed_end

pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(not Path(CHROMIUM).exists(), reason=f"no Chromium at {CHROMIUM}; set IPYAGENT_CHROMIUM"),
]

REPORT = "import pandas as pd\n\nframe = pd.read_csv('penguins.csv')\nprint(frame.shape)\n"
MARKUP = '<script>window.hit=1</script> <img src=x onerror="window.hit=2"> [click](javascript:window.hit=3)'
NAME = "<img src=x onerror=window.hit=4>.txt"
HOSTILE = f"""import os
print(os.listdir('.'))
print('\\x1b[31mred\\x1b[0m \\x1b]0;title\\x07 \\x1b]8;;http://evil.example\\x1b\\\\link\\x1b]8;;\\x1b\\\\ <b>bold</b>')
globals()[{NAME!r}] = 1
raise ValueError('<script>window.hit=5</script>')
"""
LOAD, PENGUINS, PLOT, TABLE, LEAVE, EDIT, RUN, WRONG, LONG, BAD = range(10)
CELLS = [
    "%load_ext ipyagent\n%agent model practice",
    "%%agent\nload the palmer penguins data set",
    "%%agent\nplot body mass by flipper length",
    "%%agent\naverage body mass by species and sex",
    f"%agent model {MODEL}",
    "%%agent --mode ask\nmake the report drop missing rows",
    "%%agent --mode ask\nhow heavy are they?",
    "%%agent\nask a server that refuses the key",
    "%%agent\nfit all the models",
    "%%agent\nread what others wrote",
]


class Viewer:
    """A page that takes each picture in light and dark, when somebody will look at them."""

    def __init__(self, page: Page) -> None:
        self.page = page

    def shot(self, cell: int, name: str) -> None:
        if not os.environ.get("IPYAGENT_SCREENSHOTS"):
            return  # both themes are judged in test_accessible.py; pictures are for people
        for theme, suffix in (("JupyterLab Dark", "dark"), ("JupyterLab Light", "light")):
            self.page.theme(theme)
            self.page.cell(cell).locator(".jp-OutputArea").scroll_into_view_if_needed()
            self.page.shot(f"product_{name}_{suffix}")

    def ask(self, cell: int) -> str:
        self.page.run(cell, wait=False)
        self.page.cell(cell).locator("[data-act=once]").wait_for()
        return self.page.cell(cell).inner_text()

    def allow(self, cell: int) -> str:
        self.page.cell(cell).locator("[data-act=once]").click()
        self.page.wait_done(cell)
        self.page.cell(cell).locator(".ia-static").wait_for()
        return self.page.cell(cell).inner_text()


def test_every_state_of_a_cell_can_be_read(tmp_path: Path, shots: Path) -> None:
    with Product(tmp_path) as product:
        (tmp_path / "report.py").write_text(REPORT)
        (tmp_path / NAME).write_text("nothing\n")
        write_notebook(tmp_path, "look.ipynb", CELLS)
        with Page(product.jupyter, shots, height=1000) as page:
            viewer = Viewer(page)
            page.open("look.ipynb")
            for cell in (LOAD, PENGUINS, PLOT, TABLE, LEAVE):
                page.run(cell)
            page.says(PENGUINS, "344 rows")
            expect(page.cell(PLOT).locator(".jp-RenderedImage img")).to_have_count(1)
            expect(page.cell(TABLE).locator(".ipyagent table")).to_have_count(1)  # the one of the answer
            viewer.shot(PLOT, "figure")
            viewer.shot(TABLE, "table")
            changing(product, viewer)
            ending_badly(product, viewer)
            hostile(product, viewer)
            assert product.model.refused == []
            assert page.errors == []
            page.save()
            page.shut_down()
        with Page(product.jupyter, shots, height=1000) as page:
            page.open("look.ipynb", kernel=False)
            Viewer(page).shot(PLOT, "reopened")
            for cell in (PENGUINS, PLOT, TABLE, EDIT, RUN, WRONG, LONG, BAD):
                page.cell(cell).locator(".ia-static").first.wait_for(state="attached")
            assert page.page.evaluate("window.hit") is None


def changing(product: Product, viewer: Viewer) -> None:
    """Questions with a diff and with code, and how the cells look afterwards."""
    edit = {"path": "report.py", "old": "'penguins.csv')", "new": "'penguins.csv').dropna()"}
    product.script(
        tool("read_file", {"path": "report.py"}, thinking="The script comes first."),
        tool("edit_file", edit, say="I will drop the rows with missing values."),
        text("The report now drops rows with missing values."),
    )
    shown = viewer.ask(EDIT)
    assert "+frame = pd.read_csv('penguins.csv').dropna()" in shown
    viewer.shot(EDIT, "question_diff")
    assert "wrote report.py" in viewer.allow(EDIT)
    viewer.shot(EDIT, "edited")
    code = "by = penguins.groupby('species')['body_mass_g']\nprint(by.mean().round())\nby.mean().idxmax()"
    product.script(tool("python", {"code": code}, say="I compute the means."), text("**Gentoo** are the heaviest."))
    assert "print(by.mean().round())" in viewer.ask(RUN)
    viewer.shot(RUN, "question_code")
    assert "allowed once" in viewer.allow(RUN)


def ending_badly(product: Product, viewer: Viewer) -> None:
    """A failed turn, a running one, and the same one stopped."""
    product.script(fault(401, message="invalid x-api-key"))
    viewer.page.run(WRONG)
    viewer.page.cell(WRONG).locator(".ia-static").wait_for()
    viewer.page.says(WRONG, "TurnFailed")
    shown = viewer.page.cell(WRONG).inner_text()
    assert "ANTHROPIC_API_KEY" in shown
    assert "Traceback" not in shown
    viewer.shot(WRONG, "failed")
    code = "import time\nfor model in range(100):\n    print('fitted model', model, flush=True)\n    time.sleep(0.3)"
    said = {"say": "There are a hundred of them, this takes a while.", "thinking": "Many models, one loop. " * 20}
    product.script(calls([("python", {"code": code})], **said))
    viewer.page.run(LONG, wait=False)
    viewer.page.cell(LONG).locator(".ia-live", has_text="fitted model 3").wait_for()
    viewer.shot(LONG, "running")
    timed_end(viewer.page, LONG, "stop")
    viewer.page.cell(LONG).locator(".ia-static").wait_for()
    assert "Stopped" in viewer.page.cell(LONG).inner_text()
    viewer.shot(LONG, "stopped")


def hostile(product: Product, viewer: Viewer) -> None:
    """Markup, links and escape sequences from anywhere are text, live and afterwards."""
    product.script(
        tool("python", {"code": HOSTILE}, say=MARKUP),
        tool("read_file", {"path": NAME}),
        text(MARKUP + "\n\n| a | b |\n|---|---|\n| <script>window.hit=6</script> | $x$ |\n"),
    )
    viewer.page.run(BAD)
    cell = viewer.page.cell(BAD)
    cell.locator(".ia-static").wait_for()
    for fold in cell.locator("summary").all():
        fold.click()
    viewer.shot(BAD, "hostile")
    assert viewer.page.page.evaluate("window.hit") is None
    assert cell.locator(".ia-static img, .ia-static script, .ia-static a").count() == 0
    shown = cell.inner_text()
    assert "<script>window.hit=1</script>" in shown
    assert "red  link <b>bold</b>" in shown


@pytest.mark.slow
def test_the_quickstart_runs_from_top_to_bottom(tmp_path: Path, shots: Path) -> None:
    shutil.copyfile(REPOSITORY / "notebooks" / "01_quickstart.ipynb", tmp_path / "quickstart.ipynb")
    with Product(tmp_path) as product, Page(product.jupyter, shots, height=1000) as page:
        page.open("quickstart.ipynb")
        cells = page.page.locator(".jp-Notebook .jp-Cell").count()
        kinds = page.page.evaluate(
            "() => window.jupyterapp.shell.currentWidget.content.widgets.map((cell) => cell.model.type)"
        )
        assert cells <= len(kinds)
        for number, kind in enumerate(kinds):
            if kind == "code":
                page.run(number)
                page.page.evaluate(
                    "(i) => window.jupyterapp.shell.currentWidget.content.scrollToItem(i, 'start')", number
                )
                page.page.wait_for_timeout(200)
                page.shot(f"quickstart_{number:02d}")
                kinds_of = {output["output_type"] for output in page.outputs(number)}
                assert "error" not in kinds_of, page.outputs(number)
        page.shut_down()
