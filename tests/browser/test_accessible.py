"""No serious fault that axe-core knows in what we show, in both themes; nothing moves under the pointer."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import expect

from .lab import THEMES, TRUSTED, Page, until, write_notebook
from .product import Product

SETUP = f"""{TRUSTED}%load_ext gallery
%config IPyAgent.model = "practice"
_ = get_ipython()._ipyagent_extension.agent_now.run_sync("hello")
"""
MEMORY = "---\nname: Plots\ndescription: Axes have units\ntype: feedback\n---\nAxes have **units**, see `axes.py`.\n"
STATES = ("waiting", "thinking", "streaming", "running", "asking", "aside", "finished")
ENDS = ("finished", "denied", "stopped", "failed", "limit", "refused", "aside")
BROWSER, KEPT, LIVE, LAST = 2, 3, 4, 6
CELLS = [
    SETUP,
    "%context --panel",
    "%memory",  # the timeline above becomes static
    f"kept(*{ENDS})",
    f"live(*{STATES})",
    "%memory",
    "%context --panel",
]
FAULTS = """async ([where, least]) => {
  const found = await axe.run({include: [...document.querySelectorAll(where)]});
  const counts = ['minor', 'moderate', 'serious', 'critical'];
  return [
    found.violations.filter((one) => counts.indexOf(one.impact) >= counts.indexOf(least))
      .flatMap((one) => one.nodes.map((node) => `${one.id}: ${node.html.slice(0, 160)} ${node.failureSummary}`)),
    found.passes.find((one) => one.id === 'color-contrast')?.nodes.length ?? 0,
  ];
}"""
PLANT = """() => {
  const words = document.createElement('p');
  words.textContent = 'words that nobody can read';
  words.style = 'color: #aaa; background: #999';
  document.querySelector('.ia-panel').append(words);
}"""


def bring_axe(page: Page) -> None:
    axe = pytest.importorskip("axe_playwright_python.base")
    page.page.evaluate((Path(axe.__file__).parent / "axe.min.js").read_text("utf-8"))
    # Lab's body is 0 px high and hides what flows over: axe would take all of the page for hidden
    page.page.evaluate("() => { document.body.style.height = '100vh' }")


def faults(page: Page, where: str = ".ipyagent", least: str = "serious") -> tuple[list[str], int]:
    """What is wrong in these elements, of this impact at least, and in how many words' colours it was looked for."""
    found: list[Any] = page.page.evaluate(FAULTS, [where, least])
    return found[0], found[1]


def test_what_we_show_has_no_serious_fault_in_either_theme_and_fits_a_narrow_page(product: Product) -> None:
    """Every cell is in the page: Lab takes those that are out of sight out of it, so the window is tall."""
    folder = product.root / ".ipyagent" / "memory"
    folder.mkdir(parents=True)
    (folder / "feedback_plots.md").write_text(MEMORY)
    write_notebook(product.root, "accessible.ipynb", CELLS)
    with Page(product.jupyter, height=9000) as page:
        page.open("accessible.ipynb")
        for cell in range(len(CELLS) - 1):
            page.run(cell)
        page.cell(BROWSER).locator(".ia-static").wait_for()
        page.cell(5).locator(".im-row .ia-name").first.click()
        page.cell(5).locator(".im-text").wait_for()
        page.cell(LIVE).locator(".ia-panel").nth(len(STATES) - 1).wait_for()
        bring_axe(page)
        for theme, _ in THEMES:
            page.theme(theme)
            found, seen = faults(page)
            assert "\n".join(found) == ""
            assert seen > 200  # it looked at the words
        page.run(LAST)
        page.cell(LAST).locator(".it-bar").first.wait_for()
        assert "\n".join(faults(page)[0]) == ""
        page.cell(LAST).locator(".it-bar").last.press("Home")  # arrows, Home and End go from turn to turn
        assert page.cell(LAST).locator(".it-bar[aria-pressed=true]").get_attribute("data-turn") == "1"
        page.page.evaluate(PLANT)
        assert len(faults(page)[0]) == 1  # and it would have told

        finished = page.cell(LIVE).locator(".ia-panel").nth(STATES.index("finished"))
        for part in (".ia-stop", ".ia-track"):  # whatever stands beside them
            places = page.cell(LIVE).locator(f"{part}:visible").evaluate_all(
                "(nodes) => nodes.slice(0, 6).map((node) => node.getBoundingClientRect().left)"
            )
            assert len(set(places)) == 1
        fold = finished.locator("summary", has_text="python")
        fold.press("Enter")
        expect(finished.locator("details[open]")).to_have_count(1)
        page.page.keyboard.press("Tab")  # into the code, which scrolls
        assert page.page.evaluate("() => document.activeElement.className") == "ia-code"
        page.page.keyboard.press("Escape")
        expect(finished.locator("details[open]")).to_have_count(0)

        page.page.set_viewport_size({"width": 420, "height": 9000})
        wide = (
            "() => [...document.querySelectorAll('.ia-panel, .ia-timeline, .ia-memories')]"
            ".filter((root) => root.scrollWidth > root.clientWidth + 1).map((root) => root.className)"
        )
        until(lambda: page.page.evaluate(wide) == [], lambda: f"room at 420 px for {page.page.evaluate(wide)}")
        page.page.set_viewport_size({"width": 320, "height": 9000})
        beyond = (
            "(cell) => [...cell.querySelectorAll('.ia-bar')].filter((bar) => bar.scrollHeight > bar.clientHeight + 1"
            " || bar.scrollWidth > bar.clientWidth + 1).length"
            " + [...cell.querySelectorAll('.ia-card')].filter((card) => card.scrollWidth > card.clientWidth + 1).length"
        )
        until(lambda: page.cell(LIVE).evaluate(beyond) == 0, "bars and cards that fit 320 px")
        page.shot("accessible_320")
        assert page.errors == []
        page.shut_down()
