"""What a user sees of the whole product, as pictures for a person and as text that must be in them."""

from __future__ import annotations

import shutil

import nbformat
import pytest
from playwright.sync_api import expect

from ipyagent.practice.replies import calls, fault, text, tool
from tests.notebooks.test_quickstart import check

from .lab import PANEL, REPOSITORY, SHOTS, Page, write_notebook
from .product import MODEL, Product, timed_end

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


def look(page: Page, cell: int, name: str) -> None:
    """A picture in light and dark, when somebody will look at it."""
    if SHOTS:
        page.cell(cell).locator(".jp-OutputArea").scroll_into_view_if_needed()
    page.both(f"product_{name}")


def ask(page: Page, cell: int) -> str:
    page.run(cell, wait=False)
    page.cell(cell).locator("[data-act=once]").wait_for()
    return page.cell(cell).inner_text()


def allow(page: Page, cell: int) -> str:
    page.cell(cell).locator("[data-act=once]").click()
    page.wait_done(cell)
    page.cell(cell).locator(".ia-static").wait_for()
    return page.cell(cell).inner_text()


def test_every_state_of_a_cell_can_be_read(product: Product) -> None:
    (product.root / "report.py").write_text(REPORT)
    (product.root / NAME).write_text("nothing\n")
    write_notebook(product.root, "look.ipynb", CELLS)
    with Page(product.jupyter, height=1000) as page:
        page.open("look.ipynb")
        for cell in (LOAD, PENGUINS, PLOT, TABLE, LEAVE):
            page.run(cell)
        page.says(PENGUINS, "344 rows")
        expect(page.cell(PLOT).locator(".jp-RenderedImage img")).to_have_count(1)
        expect(page.cell(TABLE).locator(".ipyagent table")).to_have_count(1)  # the one of the answer
        look(page, PLOT, "figure")
        look(page, TABLE, "table")
        changing(product, page)
        ending_badly(product, page)
        hostile(product, page)
        assert product.model.refused == []
        assert page.errors == []
        page.save()
        page.shut_down()
    with Page(product.jupyter, height=1000, anew=True) as page:
        page.open("look.ipynb", kernel=False)
        look(page, PLOT, "reopened")
        for cell in (PENGUINS, PLOT, TABLE, EDIT, RUN, WRONG, LONG, BAD):
            page.cell(cell).locator(".ia-static").first.wait_for(state="attached")
        assert page.page.evaluate("window.hit") is None


def changing(product: Product, page: Page) -> None:
    """Questions with a diff and with code, and how the cells look afterwards."""
    edit = {"path": "report.py", "old": "'penguins.csv')", "new": "'penguins.csv').dropna()"}
    product.script(
        tool("read_file", {"path": "report.py"}, thinking="The script comes first."),
        tool("edit_file", edit, say="I will drop the rows with missing values."),
        text("The report now drops rows with missing values."),
    )
    shown = ask(page, EDIT)
    assert "+frame = pd.read_csv('penguins.csv').dropna()" in shown
    look(page, EDIT, "question_diff")
    assert "wrote report.py" in allow(page, EDIT)
    look(page, EDIT, "edited")
    code = "by = penguins.groupby('species')['body_mass_g']\nprint(by.mean().round())\nby.mean().idxmax()"
    product.script(tool("python", {"code": code}, say="I compute the means."), text("**Gentoo** are the heaviest."))
    assert "print(by.mean().round())" in ask(page, RUN)
    look(page, RUN, "question_code")
    assert "allowed once" in allow(page, RUN)


def ending_badly(product: Product, page: Page) -> None:
    """A failed turn, a running one, and the same one stopped."""
    product.script(fault(401, message="invalid x-api-key"))
    page.run(WRONG)
    page.cell(WRONG).locator(".ia-static").wait_for()
    page.says(WRONG, "TurnFailed")
    shown = page.cell(WRONG).inner_text()
    assert "ANTHROPIC_API_KEY" in shown
    assert "Traceback" not in shown
    look(page, WRONG, "failed")
    code = "import time\nfor model in range(100):\n    print('fitted model', model, flush=True)\n    time.sleep(0.3)"
    said = {"say": "There are a hundred of them, this takes a while.", "thinking": "Many models, one loop. " * 20}
    product.script(calls([("python", {"code": code})], **said))
    page.run(LONG, wait=False)
    page.cell(LONG).locator(".ia-live", has_text="fitted model 3").wait_for()
    look(page, LONG, "running")
    timed_end(page, LONG, "stop")
    page.cell(LONG).locator(".ia-static").wait_for()
    assert "Stopped" in page.cell(LONG).inner_text()
    look(page, LONG, "stopped")


def hostile(product: Product, page: Page) -> None:
    """Markup, links and escape sequences from anywhere are text, live and afterwards."""
    product.script(
        tool("python", {"code": HOSTILE}, say=MARKUP),
        tool("read_file", {"path": NAME}),
        text(MARKUP + "\n\n| a | b |\n|---|---|\n| <script>window.hit=6</script> | $x$ |\n"),
    )
    page.run(BAD)
    cell = page.cell(BAD)
    cell.locator(".ia-static").wait_for()
    for fold in cell.locator("summary").all():
        fold.click()
    look(page, BAD, "hostile")
    assert page.page.evaluate("window.hit") is None
    assert cell.locator(".ia-static img, .ia-static script, .ia-static a").count() == 0
    shown = cell.inner_text()
    assert "<script>window.hit=1</script>" in shown
    assert "red  link <b>bold</b>" in shown


@pytest.mark.slow
def test_the_quickstart_runs_from_top_to_bottom(product: Product) -> None:
    shutil.copyfile(REPOSITORY / "notebooks" / "01_quickstart.ipynb", product.root / "quickstart.ipynb")
    with Page(product.jupyter, height=1000) as page:
        page.open("quickstart.ipynb")
        cells = page.page.locator(".jp-Notebook .jp-Cell").count()
        kinds = page.page.evaluate(f"() => {{ {PANEL} return p.content.widgets.map((cell) => cell.model.type) }}")
        assert cells <= len(kinds)
        for number, kind in enumerate(kinds):
            if kind == "code":
                page.run(number)
                page.page.evaluate(f"(i) => {{ {PANEL} p.content.scrollToItem(i, 'start') }}", number)
                page.shot(f"quickstart_{number:02d}")
                assert "error" not in {output["output_type"] for output in page.outputs(number)}, page.outputs(number)
        page.save()
        page.shut_down()
    check(nbformat.read(product.root / "quickstart.ipynb", as_version=4), restarted=False)
