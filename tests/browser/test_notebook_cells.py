"""Cells in a real notebook page: the agent's work put below its cell, and edits of a notebook whose page has
changes that are not saved."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ipyagent.practice.replies import text, tool

from .lab import CHROMIUM, PANEL, Page, write_notebook
from .product import Product, until

pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(not Path(CHROMIUM).exists(), reason=f"no Chromium at {CHROMIUM}; set IPYAGENT_CHROMIUM"),
]

SOURCES = f"() => {{ {PANEL} return p.content.widgets.map((w) => w.model.sharedModel.getSource()) }}"
TYPED = f"([i, text]) => {{ {PANEL} p.content.widgets[i].model.sharedModel.setSource(text) }}"
SAVE = f"() => {{ {PANEL} p.context.save().catch(() => {{}}); }}"
DIRTY = f"() => {{ {PANEL} return p.context.model.dirty }}"
SETUP = "%load_ext ipyagent\n%config IPyAgent.extraction = False\n%config IPyAgent.layer_notes = False"


@pytest.fixture(scope="module", params=["lab", "notebook"])
def product(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Product]:
    with Product(tmp_path_factory.mktemp(f"cells-{request.param}"), request.param) as made:
        yield made


def stored(product: Product, name: str) -> list[dict[str, Any]]:
    return list(json.loads((product.root / name).read_bytes())["cells"])


def source(cell: dict[str, Any]) -> str:
    return "".join(cell["source"])


def ours(page: Page) -> list[str]:
    """Errors of the page; Notebook 7 itself reports a missing settings schema now and then."""
    return [error for error in page.errors if "schema" not in error]


def shows(page: Page, sources: list[str]) -> None:
    until(lambda: page.page.evaluate(SOURCES) == sources, lambda: f"cells {sources}, but {page.page.evaluate(SOURCES)}")


def test_the_agents_work_is_inserted_below_its_cell(product: Product, shots: Path) -> None:
    app, cells = product.jupyter.app, [SETUP, "%%agent\ncount", "%agent cells", "'last'"]
    write_notebook(product.root, "work.ipynb", cells)
    with Page(product.jupyter, shots) as page:
        page.open("work.ipynb")
        page.run(0)
        code = [tool("python", {"code": "total = sum(range(10))"}), tool("python", {"code": "print(total)"})]
        product.script(*code, text("It is **45**."))
        page.run(1)
        button = page.cell(1).locator("button[data-again]")
        button.wait_for()
        page.shot(f"cells_button_{app}")
        button.click()
        work = ["total = sum(range(10))", "print(total)", "It is **45**."]
        shows(page, [*cells[:2], *work, *cells[2:]])
        button.dblclick()  # once more is wanted; the second click of the two is not
        shows(page, [*cells[:2], *work, *work, *cells[2:]])
        time.sleep(0.5)
        shows(page, [*cells[:2], *work, *work, *cells[2:]])
        page.run(8)
        page.cell(8).get_by_text("4 cells (2 with code) inserted below").wait_for()
        shows(page, [*cells[:2], *work, *work, cells[2], "> count", *work, cells[3]])
        page.run(10)
        page.run(11)
        assert page.outputs(11)[0]["text"].strip() == "45"
        page.cell(8).scroll_into_view_if_needed()
        page.shot(f"cells_inserted_{app}")
        page.save()
        saved = stored(product, "work.ipynb")
        assert saved[2]["metadata"]["ipyagent"]["turn"] == 1
        assert saved[2]["metadata"]["ipyagent"]["session"]
        assert saved[4]["cell_type"] == "markdown"
        assert len({cell["id"] for cell in saved}) == len(saved)
        assert ours(page) == []
        page.shut_down()
    with Page(product.jupyter, shots) as page:  # without its kernel the button is not there; the command is
        page.open("work.ipynb", kernel=False)
        page.cell(1).get_by_text("as cells: %agent cells").wait_for()
        assert not page.cell(1).locator("button").first.is_visible()


def test_changes_that_are_not_saved_are_not_overwritten_in_silence(product: Product, shots: Path) -> None:
    app, cells = product.jupyter.app, [SETUP, "%%agent\nmend", "x = 1", "'mine'"]
    write_notebook(product.root, "open.ipynb", cells)
    ids = [cell["id"] for cell in stored(product, "open.ipynb")]
    edit = {"action": "replace", "cell": ids[2], "source": "x = 2  # by the agent"}
    with Page(product.jupyter, shots) as page:
        page.open("open.ipynb")
        page.run(0)
        page.page.evaluate(TYPED, [3, "'mine, not saved'"])
        assert page.page.evaluate(DIRTY)
        before = (product.root / "open.ipynb").read_bytes()

        # mode auto lets edits pass, but not this one
        product.script(tool("notebook", {"action": "read"}), tool("notebook", edit), text("Left alone."))
        page.run(1, wait=False)
        card = page.cell(1).locator(".ia-card")
        card.wait_for()
        assert "unsaved changes there would conflict with this edit" in card.inner_text()
        assert "+x = 2" in card.inner_text().replace("\u00a0", " ")
        page.shot(f"open_asked_{app}")
        card.locator("[data-act=deny]").click()
        page.wait_done(1)
        assert (product.root / "open.ipynb").read_bytes() == before

        product.script(tool("notebook", {"action": "read"}), tool("notebook", edit), text("Reload the page."))
        page.page.evaluate(TYPED, [1, "%%agent\nmend it"])
        page.run(1, wait=False)
        page.cell(1).locator(".ia-card [data-act=once]").click()
        page.wait_done(1)
        assert source(stored(product, "open.ipynb")[2]) == "x = 2  # by the agent"
        assert page.page.evaluate(SOURCES)[2:] == ["x = 1", "'mine, not saved'"]  # nothing in the page is lost
        page.cell(1).get_by_text("reload the open page before you save it").first.wait_for()

        # at the next save Jupyter itself asks, and until then the edit stands
        page.page.evaluate(SAVE)
        dialog = page.page.locator(".jp-Dialog", has_text="has changed on disk")
        dialog.wait_for()
        page.shot(f"open_save_{app}")
        assert source(stored(product, "open.ipynb")[2]) == "x = 2  # by the agent"
        dialog.get_by_role("button", name="Revert").click()
        until(lambda: page.page.evaluate(SOURCES)[2:] == ["x = 2  # by the agent", "'mine'"], "the agent's edit")
        page.shot(f"open_reverted_{app}")
        assert ours(page) == []
        page.shut_down()


def test_a_notebook_in_another_page_counts_as_open_while_it_is(product: Product, shots: Path) -> None:
    write_notebook(product.root, "other.ipynb", ["a = 1"])
    write_notebook(product.root, "here.ipynb", [SETUP, "get_ipython()._ipyagent_extension.agent_now", "q"])
    other = str((product.root / "other.ipynb").resolve())
    look = "from pathlib import Path\nfrom ipyagent.kernel.frontend import opened\n"
    with Page(product.jupyter, shots) as page:
        page.open("here.ipynb")
        page.page.evaluate(TYPED, [2, f"{look}opened(get_ipython(), Path({other!r}))"])
        page.run(2)
        assert page.outputs(2)[0]["data"]["text/plain"] == "''"
        beside = page.page.context.new_page()
        doc = "/doc/tree/" if product.jupyter.app == "lab" else "/notebooks/"
        beside.goto(f"{product.jupyter.base}{doc}other.ipynb")
        beside.wait_for_selector(".jp-Notebook .jp-Cell")

        def looked() -> str:
            page.run(2)
            return str(page.outputs(2)[0]["data"]["text/plain"])

        until(lambda: looked() == "'page'", "an open page")
        beside.close()
        until(lambda: looked() == "''", "a page that is closed")
        page.shut_down()
