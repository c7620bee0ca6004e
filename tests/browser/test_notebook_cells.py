"""Cells in a real notebook page: the agent's work put below its cell, and edits of a notebook whose page has
changes that are not saved."""

from __future__ import annotations

import time

from ipyagent.practice.replies import text, tool

from .lab import PANEL, Page, stored, until, write_notebook
from .product import Product

SAVE = f"() => {{ {PANEL} p.context.save().catch(() => {{}}); }}"
DIRTY = f"() => {{ {PANEL} return p.context.model.dirty }}"
SETUP = "%load_ext ipyagent\n%config IPyAgent.extraction = False\n%config IPyAgent.layer_notes = False"


def test_the_agents_work_is_inserted_below_its_cell(either: Product) -> None:
    app, cells = either.jupyter.app, [SETUP, "%%agent\ncount", "%agent cells", "'last'"]
    write_notebook(either.root, "work.ipynb", cells)
    with Page(either.jupyter) as page:
        page.open("work.ipynb")
        page.run(0)
        code = [tool("python", {"code": "total = sum(range(10))"}), tool("python", {"code": "print(total)"})]
        either.script(*code, text("It is **45**."))
        page.run(1)
        button = page.cell(1).locator("button[data-again]")
        button.wait_for()
        page.shot(f"cells_button_{app}")
        button.click()
        work = ["total = sum(range(10))", "print(total)", "It is **45**."]
        page.shows([*cells[:2], *work, *cells[2:]])
        button.dblclick()  # once more is wanted; the second click of the two is not
        page.shows([*cells[:2], *work, *work, *cells[2:]])
        time.sleep(0.5)
        page.shows([*cells[:2], *work, *work, *cells[2:]])
        page.run(8)
        page.cell(8).get_by_text("4 cells (2 with code) inserted below").wait_for()
        page.shows([*cells[:2], *work, *work, cells[2], "> count", *work, cells[3]])
        page.run(10)
        page.run(11)
        assert page.outputs(11)[0]["text"].strip() == "45"
        page.cell(8).scroll_into_view_if_needed()
        page.shot(f"cells_inserted_{app}")
        page.save()
        saved = stored(either.root, "work.ipynb")
        assert saved[2]["metadata"]["ipyagent"]["turn"] == 1
        assert saved[2]["metadata"]["ipyagent"]["session"]
        assert saved[4]["cell_type"] == "markdown"
        assert len({cell["id"] for cell in saved}) == len(saved)
        assert page.errors == []
        page.shut_down()
    with Page(either.jupyter, anew=True) as page:  # without its kernel the button is not there; the command is
        page.open("work.ipynb", kernel=False)
        page.cell(1).get_by_text("as cells: %agent cells").wait_for()
        assert not page.cell(1).locator("button").first.is_visible()


def test_changes_that_are_not_saved_are_not_overwritten_in_silence(either: Product) -> None:
    app, cells = either.jupyter.app, [SETUP, "%%agent\nmend", "x = 1", "'mine'"]
    write_notebook(either.root, "open.ipynb", cells)
    ids = [cell["id"] for cell in stored(either.root, "open.ipynb")]
    edit = {"action": "replace", "cell": ids[2], "source": "x = 2  # by the agent"}
    with Page(either.jupyter) as page:
        page.open("open.ipynb")
        page.run(0)
        page.write(3, "'mine, not saved'")
        assert page.page.evaluate(DIRTY)
        before = (either.root / "open.ipynb").read_bytes()

        # mode auto lets edits pass, but not this one
        either.script(tool("notebook", {"action": "read"}), tool("notebook", edit), text("Left alone."))
        page.run(1, wait=False)
        card = page.cell(1).locator(".ia-card")
        card.wait_for()
        assert "unsaved changes there would conflict with this edit" in card.inner_text()
        assert "+x = 2" in card.inner_text().replace("\u00a0", " ")
        page.shot(f"open_asked_{app}")
        card.locator("[data-act=deny]").click()
        page.wait_done(1)
        assert (either.root / "open.ipynb").read_bytes() == before

        either.script(tool("notebook", {"action": "read"}), tool("notebook", edit), text("Reload the page."))
        page.write(1, "%%agent\nmend it")
        page.run(1, wait=False)
        page.cell(1).locator(".ia-card [data-act=once]").click()
        page.wait_done(1)
        assert stored(either.root, "open.ipynb")[2]["source"] == "x = 2  # by the agent"
        assert page.sources()[2:] == ["x = 1", "'mine, not saved'"]  # nothing in the page is lost
        page.cell(1).get_by_text("reload the open page before you save it").first.wait_for()

        # at the next save Jupyter itself asks, and until then the edit stands
        page.page.evaluate(SAVE)
        dialog = page.page.locator(".jp-Dialog", has_text="has changed on disk")
        dialog.wait_for()
        page.shot(f"open_save_{app}")
        assert stored(either.root, "open.ipynb")[2]["source"] == "x = 2  # by the agent"
        dialog.get_by_role("button", name="Revert").click()
        until(lambda: page.sources()[2:] == ["x = 2  # by the agent", "'mine'"], "the agent's edit")
        page.shot(f"open_reverted_{app}")
        assert page.errors == []
        page.shut_down()


def test_a_notebook_in_another_page_counts_as_open_while_it_is(either: Product) -> None:
    write_notebook(either.root, "other.ipynb", ["a = 1"])
    write_notebook(either.root, "here.ipynb", [SETUP, "get_ipython()._ipyagent_extension.agent_now", "q"])
    other = str((either.root / "other.ipynb").resolve())
    look = "from pathlib import Path\nfrom ipyagent.kernel.frontend import opened\n"
    with Page(either.jupyter) as page:
        page.open("here.ipynb")
        page.write(2, f"{look}opened(get_ipython(), Path({other!r}))")
        page.run(2)
        assert page.outputs(2)[0]["data"]["text/plain"] == "''"
        beside = page.page.context.new_page()
        doc = "/doc/tree/" if either.jupyter.app == "lab" else "/notebooks/"
        beside.goto(f"{either.jupyter.base}{doc}other.ipynb")
        beside.wait_for_selector(".jp-Notebook .jp-Cell")

        def looked() -> str:
            page.run(2)
            return str(page.outputs(2)[0]["data"]["text/plain"])

        until(lambda: looked() == "'page'", "an open page")
        beside.close()
        until(lambda: looked() == "''", "a page that is closed")
        page.shut_down()
