"""Memories in a real page: the browser with very many of them, chips that take back, both themes, the saved file."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

import pytest
from playwright.sync_api import expect

from ipyagent.practice.replies import calls, text

from .lab import TRUSTED, Page, write_notebook
from .product import Product

SETUP = f"{TRUSTED}%config IPyAgent.model = 'practice'"
DREAM = """from ipyagent.parts.memory.browsing import browsing_of
from ipyagent.parts.memory.dream import DreamProgress
from ipyagent.parts.memory.browser import MemoryBrowser


class Dreams:
    status, told = "running", None

    def now(self):
        turns = tuple(f"memory view note_{n:05}.md" for n in range(12))
        return DreamProgress(status=self.status, phase="gather", turns=turns, files=("feedback_plots.md",), seconds=41)

    def stop(self):
        self.status = "killed"
        self.told()

    def watch(self, told):
        self.told = told
        return lambda: None


MemoryBrowser(browsing_of(get_ipython()._ipyagent_extension.agent_now), Dreams()).open(get_ipython())
"""
BROWSER, AFTER = 1, 2
COUNT = 1_000
SCROLLED = """async (list) => {
  let worst = 0;
  for (let i = 0; i < 30; i++) {
    const began = performance.now();
    list.scrollTop = (list.scrollHeight * (i + 1)) / 30;
    await new Promise((go) => requestAnimationFrame(() => setTimeout(go, 0)));
    worst = Math.max(worst, performance.now() - began);
  }
  return worst;
}"""


def memory(name: str, about: str, kind: str, body: str) -> str:
    return f"---\nname: {name}\ndescription: {about}\ntype: {kind}\n---\n{body}\n"


def fill(folder: Path) -> None:
    folder.mkdir(parents=True)
    for number in range(COUNT):
        kind = ("feedback", "project", "reference", "user")[number % 4]
        file = folder / f"note_{number:05}.md"
        file.write_text(memory(f"Run {number}", f"what came out of run {number} on site {number % 7}", kind, "Text."))
        os.utime(file, (time.time() - 86_400 - number,) * 2)
    body = "Axes have **units**.\n\n**Why:** reviewers asked.\n\n<img src=x onerror='window.hit=1'>\n\n- `df.plot()`\n"
    (folder / "feedback_plots.md").write_text(memory("Plots", "Axes have units", "feedback", body))
    (folder / "broken.md").write_text("---\nname: [\n---\nA broken header.\n")


@pytest.mark.timed
def test_very_many_memories_can_be_searched_read_edited_and_taken_back(product: Product) -> None:
    fill(product.root / ".ipyagent" / "memory")
    write_notebook(product.root, "memories.ipynb", [SETUP, "%memory", DREAM])
    with Page(product.jupyter, height=900) as page:
        page.open("memories.ipynb")
        page.run(0)
        page.run(BROWSER)
        panel = page.cell(BROWSER).locator(".ia-memories")
        panel.locator(".im-row .ia-name").first.wait_for()
        panel.scroll_into_view_if_needed()
        count = panel.locator(".im-count")
        assert count.inner_text() == f"{COUNT + 2:,} memories"
        assert panel.locator(".im-row").count() < 40
        worst = panel.locator(".im-list").evaluate(SCROLLED)
        assert worst < 300  # about 20 ms a frame; room for a busy machine
        panel.locator(".im-row", has_text=f"Run {COUNT - 1}").wait_for()

        # with the keyboard alone
        keys = page.page.keyboard
        panel.locator(".im-list").focus()
        keys.press("/")
        keys.type("axes units")
        panel.locator(".im-row", has_text="Plots").wait_for()
        assert count.inner_text() == "1 memory"
        keys.press("ArrowDown")
        keys.press("Enter")
        detail = panel.locator(".im-detail")
        detail.locator(".im-text strong", has_text="units").wait_for()
        assert detail.locator("img").count() == 0
        chosen = panel.locator(".im-list").get_attribute("aria-activedescendant")
        assert panel.locator(f"[id='{chosen}']").get_attribute("aria-selected") == "true"
        page.both("memories_read")

        detail.get_by_role("tab", name="Edit").click()
        editor = detail.locator("textarea")
        editor.fill(editor.input_value().replace("Axes have **units**", "Axes have **units and titles**"))
        panel.locator(".im-row").first.click()  # the same memory: nothing is lost
        panel.locator(".im-search").first.fill("")  # is answered after what the click would have asked for
        expect(count).to_have_text(f"{COUNT + 2:,} memories")
        assert "units and titles" in editor.input_value()
        editor.press("Control+s")
        status = panel.locator(".im-status")
        status.get_by_text("saved: feedback_plots.md").wait_for()
        detail.get_by_role("tab", name="History (1)").click()
        detail.get_by_role("button", name="Changes since").click()
        detail.locator(".im-new", has_text="units and titles").wait_for()
        page.both("memories_history")
        detail.get_by_role("button", name="Restore").click()
        status.get_by_text("restored: feedback_plots.md").wait_for()
        stored = product.root / ".ipyagent" / "memory" / "feedback_plots.md"
        assert "units and titles" not in stored.read_text()
        detail.get_by_role("button", name="Forget").click()
        status.get_by_text("forgotten: feedback_plots.md").wait_for()
        assert not stored.exists()
        status.get_by_role("button", name="Undo").click()
        status.get_by_text("restored: feedback_plots.md").wait_for()
        assert stored.exists()

        panel.get_by_label("with problems").check()
        panel.locator(".im-row", has_text="broken").wait_for()
        panel.get_by_label("with problems").uncheck()
        panel.locator("summary", has_text="recalled").click()
        panel.get_by_label("A request to try recall with").fill("plot mass with units on the axes")
        keys.press("Enter")
        panel.locator(".im-tried tr", has_text="feedback_plots.md").wait_for()
        panel.locator(".im-tried").scroll_into_view_if_needed()
        page.both("memories_tried")
        assert page.page.evaluate("window.hit") is None

        page.run(AFTER)  # another cell: the static form takes its place
        static = page.cell(BROWSER).locator(".ia-static")
        static.wait_for()
        static.locator("details summary").first.click()
        page.cell(BROWSER).scroll_into_view_if_needed()
        page.both("memories_static")
        dream = page.cell(AFTER).locator("details", has_text="Tidying")
        dream.get_by_text("Tidying (dream): running, gather").click()
        dream.scroll_into_view_if_needed()
        page.shot("memories_dream")
        dream.get_by_role("button", name="Stop").click()
        dream.get_by_text("Tidying (dream): killed").wait_for()
        assert not dream.get_by_role("button", name="Stop").is_visible()
        page.save()
        assert "widget-view" not in json.dumps(page.outputs(BROWSER))
        assert page.page.evaluate("window.hit") is None
        assert page.errors == []
        page.shut_down()


CHIPS = [
    "%load_ext ipyagent\n%config IPyAgent.extraction = False\n%config IPyAgent.recall_selector = False",
    "%%memory add --type project\nPlots have units on their axes.",
    "%%agent\nplot the mass with units on the axes",
    "1 + 1",
]
ASKED = 2


def test_chips_take_back_in_a_cell_that_has_ended(product: Product) -> None:
    """The button of a saved form works while its kernel lives, and is nowhere to be seen afterwards."""
    write_notebook(product.root, "chips.ipynb", CHIPS)
    units = memory("Units", "g, mm", "project", "g and mm")
    made = {"command": "create", "path": "/memories/project/units.md", "file_text": units}
    kept = {**made, "path": "/memories/project/kept.md", "file_text": memory("Kept", "ml", "project", "g and ml")}
    with Page(product.jupyter) as page:
        page.open("chips.ipynb")
        page.run(0)
        page.run(1)
        product.script(calls([("memory", made), ("memory", kept)], say="I keep that."), text("Plotted."))
        page.run(ASKED)
        cell = page.cell(ASKED)
        cell.locator(".ia-static").wait_for()
        assert "saved: units.md" in cell.inner_text()
        assert "Recalled" in cell.inner_text()
        file = product.root / ".ipyagent" / "memory" / "units.md"
        assert file.exists()
        page.both("chips")
        undo = cell.locator('[data-ipyagent-door][data-sign="undo"]')
        expect(undo).to_have_count(2)
        expect(undo.first).to_be_visible()
        command = cell.get_by_text("%memory forget kept.md")
        expect(command).to_be_hidden()  # the button says it
        undo.first.click()
        cell.get_by_text("undone").wait_for()
        assert not file.exists()
        page.run(3)
        cell.locator('[data-ipyagent-door][data-sign="×"]').first.click()  # another cell has run since
        cell.get_by_text("clicked away", exact=True).wait_for()
        page.shot("chips_taken_back")
        page.save()
        page.shut_down()
        expect(undo.first).to_be_hidden()  # nobody hears its clicks any more
        expect(command).to_be_visible()
    with Page(product.jupyter, anew=True) as page:
        page.open("chips.ipynb", kernel=False)
        page.cell(ASKED).locator(".ia-static").wait_for()
        buttons = page.cell(ASKED).locator(".ia-static button")
        assert not any(button.is_visible() for button in buttons.all())
        expect(page.cell(ASKED).get_by_text("%memory forget kept.md")).to_be_visible()
        page.shot("chips_reopened")
