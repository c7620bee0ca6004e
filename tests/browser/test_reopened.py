"""A notebook opened again: finished cells are replayed for nothing, what changed is asked, a reload in mid-run loses
nothing."""

from __future__ import annotations

import json

import pytest
from playwright.sync_api import expect

from ipyagent.practice.replies import text, tool
from tests.whole.test_replayed_cells import CELLS as WORK
from tests.whole.test_replayed_cells import CSV, FACTS

from .lab import PANEL, Page, until, write_notebook
from .product import HELD, Product

FIRST, SECOND, CHANGED = "%%agent\nthe first question", "%%agent\nthe second question", "%%agent\nanother question"
KEYLESS = "%env ANTHROPIC_API_KEY=\n%load_ext ipyagent\n%config IPyAgent.rerun = 'replay'"
HINT = "Replayed, not asked again"
PLOT = "import matplotlib.pyplot as plt\nfig, ax = plt.subplots()\nax.plot([1, found]);"


def run_all(page: Page, cells: int) -> None:
    page.page.evaluate(f"() => {{ {PANEL} p.content.widgets.forEach((w) => w.model.clearExecution?.()) }}")
    page.command("notebook:run-all-cells")
    for cell in range(cells):
        page.wait_done(cell)
    page.wait_idle()


def test_run_all_after_reopening_replays_what_is_finished_and_asks_what_changed(product: Product) -> None:
    (product.root / "report.py").write_text("print('draft')\n")
    (product.root / "found.txt").write_text("42")
    write_notebook(product.root, "kept.ipynb", ["%load_ext ipyagent", FIRST, SECOND, "%agent undo"])
    with Page(product.jupyter) as page:
        page.open("kept.ipynb")
        page.run(0)
        code = "import pathlib\nfound = int(pathlib.Path('found.txt').read_text())\nprint('found:', found)"
        product.script(
            tool("python", {"code": code}), tool("python", {"code": PLOT}), text("the answer is **forty-two**")
        )
        page.run(1)
        product.script(
            tool("read_file", {"path": "report.py"}),
            tool("edit_file", {"path": "report.py", "old": "draft", "new": "final"}),
            text("the report is final"),
        )
        page.run(2)
        assert (product.root / "report.py").read_text() == "print('final')\n"
        page.run(3)
        page.says(3, "put back report.py")
        assert (product.root / "report.py").read_text() == "print('draft')\n"
        page.save()
        page.shut_down()

    asked = len(product.model.log)
    with Page(product.jupyter, anew=True) as page:
        page.open("kept.ipynb")
        page.write(3, "print('found' in globals())")
        (product.root / "found.txt").write_text("43")
        run_all(page, 4)
        for cell, words in ((1, "the answer is forty-two"), (2, "the report is final")):
            page.cell(cell).locator(".ia-static").last.wait_for()
            page.says(cell, words)
            page.says(cell, HINT)
        page.says(1, "resumed session")
        page.says(1, "Differs from the recorded output: found: 42 -> 43")
        expect(page.cell(1).locator(".jp-RenderedImage img")).to_have_count(1)
        page.says(3, "True")
        # the report is not as it was left, for the user took it back, and the file was not read in this kernel
        page.says(2, "Not repeated: edit_file")
        assert (product.root / "report.py").read_text() == "print('draft')\n"
        assert len(product.model.log) == asked, "a replay cost a request"
        page.shot("run_all_again")
        page.page.evaluate(f"async () => {{ {PANEL} await p.context.sessionContext.restartKernel() }}")
        page.wait_idle()

        page.write(2, CHANGED)
        product.script(text("another answer"))
        run_all(page, 4)
        page.says(1, HINT)
        page.says(2, "another answer")
        assert HINT not in page.cell(2).inner_text()
        assert product.model.scripted == 0
        said = json.dumps(product.bodies[-1])
        assert "forty-two" in said  # the session goes on
        product.script(text("answered afresh"))
        page.write(1, FIRST.replace("%%agent", "%%agent --rerun"))
        page.run(1)
        page.says(1, "answered afresh")
        assert product.model.refused == []
        assert page.errors == []
        page.shut_down()


@pytest.mark.slow
def test_a_notebook_of_eight_cells_runs_whole_in_a_new_kernel_without_a_key(product: Product) -> None:
    """Load, clean, group, plot, model: the same variables and figures for nothing; what is new is asked, and what moved
    is told."""
    requests, facts = [f"%%agent\n{request}" for request, _ in WORK], len(WORK) + 1
    (product.root / "sales.csv").write_text(CSV)
    write_notebook(product.root, "sales.ipynb", ["%load_ext ipyagent", *requests, FACTS])
    with Page(product.jupyter, height=1600) as page:
        page.open("sales.ipynb")
        page.run(0)
        for at, (request, code) in enumerate(WORK, 1):
            product.script(tool("python", {"code": code}), text(f"answer to {request}"))
            page.run(at)
        page.run(facts)
        first = page.outputs(facts)[0]["data"]["text/plain"]
        page.save()
        page.shut_down()
    asked = len(product.model.log)
    assert asked >= 16
    with Page(product.jupyter, height=1600, anew=True) as page:
        page.open("sales.ipynb")
        page.write(0, KEYLESS)
        run_all(page, facts + 1)
        until(lambda: page.outputs(facts), "the variables")
        assert page.outputs(facts)[0]["data"]["text/plain"] == first
        assert [figures(page, at) for at in range(facts)] == [0, 0, 0, 0, 0, 1, 1, 0, 0]
        for at, (request, _) in enumerate(WORK, 1):
            page.cell(at).scroll_into_view_if_needed()
            page.says(at, f"answer to {request}")
            page.says(at, HINT)
            assert "Differs" not in page.cell(at).inner_text()
            if request in ("load", "plot", "sum up"):
                page.shot(f"eight_replayed_{request.replace(' ', '_')}")
        assert "NameError" not in json.dumps([page.outputs(at) for at in range(facts + 1)])
        assert len(product.model.log) == asked

        # a number moved, and a cell is another
        (product.root / "sales.csv").write_text(CSV.replace("Utrecht,2,14", "Utrecht,2,20"))
        page.write(8, "%%agent\nsum up, please")
        page.page.evaluate(f"async () => {{ {PANEL} await p.context.sessionContext.restartKernel() }}")
        page.wait_idle()
        product.script(text("asked, for it is new"))
        run_all(page, 9)
        page.cell(3).scroll_into_view_if_needed()
        page.says(3, "Differs from the recorded output: Utrecht: 24.0 -> 30.0")
        page.shot("eight_moved")
        page.cell(8).scroll_into_view_if_needed()
        page.says(8, "nothing is recorded for this cell as it is now")
        page.says(8, "asked, for it is new")
        page.shot("eight_asked")
        assert product.model.scripted == 0


def figures(page: Page, cell: int) -> int:
    return sum("image/png" in output.get("data", {}) for output in page.outputs(cell))


def test_a_renamed_notebook_keeps_its_session_and_a_reload_in_mid_run_loses_nothing(product: Product) -> None:
    write_notebook(product.root, "before.ipynb", ["%load_ext ipyagent", FIRST, SECOND, CHANGED])
    with Page(product.jupyter) as page:
        page.open("before.ipynb")
        page.run(0)
        product.script(text("the word is heron"))
        page.run(1)
        steps = f"print('step 2', flush=True)\n{HELD}"
        product.script(tool("python", {"code": steps}), text("all steps done"))
        page.run(3, wait=False)
        page.cell(3).locator(".ia-live", has_text="step 2").wait_for()
        page.save()
        page.open("before.ipynb", fresh=False, kernel=False)
        product.let_go()
        # code that blocks the kernel keeps it from telling a new page about the panel; the end is there
        page.cell(3).locator(".ia-static").wait_for()
        page.says(3, "all steps done")
        assert "text/html" in page.outputs(3)[-1]["data"]
        page.wait_idle()
        page.save()
        page.page.evaluate(f"async () => {{ {PANEL} await p.context.rename('after.ipynb') }}")
        until(lambda: (product.root / "after.ipynb").exists(), "renamed notebook")
        product.script(text("still here"))
        page.run(2)
        assert "heron" in json.dumps(product.bodies[-1])
        page.save()
        page.shut_down()
    assert len(list((product.root / ".ipyagent" / "sessions").glob("*/"))) == 1

    asked = len(product.model.log)
    with Page(product.jupyter) as page:
        page.open("after.ipynb")
        page.run(0)
        page.run(1)
        page.says(1, HINT)  # a renamed notebook has not lost its session
        assert len(product.model.log) == asked
        page.shut_down()
