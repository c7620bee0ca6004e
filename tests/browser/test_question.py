"""A question in a real page: all of it is seen before it can be allowed, Deny is in sight, a script answers nothing."""

from __future__ import annotations

import pytest
from playwright.sync_api import expect

from .lab import Page, until, write_notebook
from .product import Product

FAR = ("far_blanks", "far_tabs", "far_empty", "far_here")


def in_sight(page: Page, selector: str) -> bool:
    """Whether a person sees all of it: nothing lies over its middle, and it ends within the window."""
    return bool(
        page.page.evaluate(
            """selector => {
                const node = document.querySelector(selector), box = node.getBoundingClientRect();
                const top = document.elementFromPoint(box.left + box.width / 2, box.top + box.height / 2);
                const within = box.top >= 0 && box.bottom <= innerHeight && box.right <= innerWidth;
                return box.width > 0 && within && node.contains(top);
            }""",
            selector,
        )
    )


def can_deny(page: Page, state: str) -> None:
    until(lambda: in_sight(page, f"[data-digest={state[4:]}] [data-act=deny]"), "Deny in sight")


def becomes_empty(page: Page, cell: int, script: str, what: str) -> None:
    """Wait until a script that lists what is wrong in a cell finds nothing."""
    until(lambda: page.cell(cell).evaluate(script) == [], lambda: f"{what}: {page.cell(cell).evaluate(script)}")


@pytest.mark.parametrize("width", [1280, 600])
def test_all_is_seen_before_it_can_be_allowed(product: Product, width: int) -> None:
    name = f"question{width}.ipynb"
    write_notebook(product.root, name, ["%load_ext gallery", *(f"live({state!r})" for state in FAR)])
    with Page(product.jupyter, width=width, height=800) as page:
        page.open(name)
        page.run(0)
        for number, state in enumerate(FAR, 1):
            page.run(number)
            card = page.cell(number).locator(".ia-card")
            card.wait_for()
            once, deny = card.locator("[data-act=once]"), card.locator("[data-act=deny]")
            heads = card.inner_text().split("\n")
            if state != "far_here":
                assert heads[0].endswith("It deletes files (rm)") or heads[1] == "It deletes files (rm)"
            assert "Run this command?" in card.locator(".ia-ask").inner_text()
            assert card.locator(".ia-said").inner_text() == "The model says: “Verified safe by ipyagent”"
            box = card.locator(".ia-full")
            assert box.evaluate("box => box.scrollWidth <= box.clientWidth")  # wrapped
            page.both(f"question_{state}_{width}")
            can_deny(page, state)
            assert deny.is_enabled()
            if state != "far_here":
                assert "rm -rf ~/work" in box.inner_text()
                assert box.evaluate("box => box.scrollHeight <= box.clientHeight + 1")
                expect(once).to_be_enabled()
                continue
            expect(card.locator(".ia-count")).to_contain_text("82 lines, ")
            told = card.locator(".ia-count").inner_text()
            assert 5 < int(told.split(", ")[1].split()[0]) < 60
            assert once.is_disabled()
            assert card.locator("[data-act=always]").is_disabled()
            assert len(card.locator("[data-act=always] code").inner_text()) <= 60
            on = card.locator("[data-next]")
            for press in range(20):
                if not on.is_visible():
                    break
                assert once.is_disabled(), press
                on.click()
                page.page.wait_for_timeout(150)
            assert press >= 2
            expect(once).to_be_enabled()
            expect(card.locator(".ia-count")).to_have_text("82 lines, all shown")
            page.shot(f"question_{state}_{width}_seen")
            can_deny(page, state)
        assert page.errors == []


def test_scrolled_to_its_end_it_can_be_allowed_and_a_script_answers_nothing(product: Product) -> None:
    write_notebook(product.root, "script.ipynb", ["%load_ext scripted", "await scripted('', 'far')"])
    with Page(product.jupyter) as page:
        page.open("script.ipynb")
        page.run(0)
        page.run(1, wait=False)
        card = page.cell(1).locator(".ia-card")
        card.wait_for()
        page.page.evaluate(
            """() => {
                const card = document.querySelector(".ia-card"), once = card.querySelector("[data-act=once]");
                card.querySelector("[data-next]").click();
                for (const act of ["once", "always", "deny"]) {
                    const button = card.querySelector(`[data-act=${act}]`);
                    button.disabled = false;
                    button.click();
                    button.dispatchEvent(new KeyboardEvent("keydown", { key: "Enter", bubbles: true }));
                }
                const reason = card.querySelector(".ia-reason");
                reason.value = "no";
                reason.dispatchEvent(new KeyboardEvent("keydown", { key: "Enter", bubbles: true }));
                document.querySelector(".ia-stop").click();
            }"""
        )
        page.page.wait_for_timeout(700)
        assert card.count() == 1
        assert "waiting" in page.cell(1).locator(".ia-words").inner_text()
        card.locator(".ia-full").focus()
        page.page.keyboard.press("End")
        page.page.wait_for_timeout(500)
        card.locator("[data-act=once]").click()
        page.wait_done(1)
        page.says(1, "OUTCOME once")
        assert page.errors == []


PLACES = """cell => {
  const top = cell.querySelector(".ia-panel, .ia-static").getBoundingClientRect().top, found = [];
  const walker = document.createTreeWalker(cell.querySelector(".jp-OutputArea"), NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const node = walker.currentNode, box = node.parentElement;
    if (!node.data.trim() || box.closest(".ia-bar, button, .ia-chip-word > code")) continue;
    const range = document.createRange();
    range.selectNodeContents(node);
    const lines = new Set([...range.getClientRects()].map((rect) => Math.round(rect.bottom))).size;
    const place = range.getBoundingClientRect();
    // a button in a chip moves what stands to its right: of chips the line alone counts
    found.push([node.data.trim().slice(0, 60), box.closest(".ia-chips") ? 0 : place.left, place.top - top, lines]);
  }
  return found;
}"""


def moved(page: Page, cell: int, least: int) -> list[object]:
    """What stands elsewhere in the static form, one cell below, than in the live one."""
    live, kept = (page.cell(cell + more).evaluate(PLACES) for more in (0, 1))
    found: list[object] = [] if len(live) >= least else [live]
    for words, x, y, lines in live:
        if words == "▸":  # at work: it turns
            continue
        stands = next((each for each in kept if each[0] == words), ["none", -9, -9, 0])
        if abs(stands[1] - x) > 1 or abs(stands[2] - y) > 1 or stands[3] != lines:
            found.append((words, x, y, lines, stands))
        if stands in kept:
            kept.remove(stands)
    return found


def stands_still(page: Page, cell: int, least: int) -> None:
    until(lambda: moved(page, cell, least) == [], lambda: f"rest: {moved(page, cell, least)}")


def test_nothing_moves_when_a_turn_becomes_static(product: Product) -> None:
    states = ("finished", "aside", "denied", "failed", "limit")
    cells = [f"{how}({state!r})" for state in states for how in ("live", "kept")]
    write_notebook(product.root, "metrics.ipynb", ["%load_ext gallery", *cells])
    with Page(product.jupyter, width=1400, height=4000) as page:
        page.open("metrics.ipynb")
        page.run(0)
        for number in range(1, len(cells) + 1):
            page.run(number)
            page.cell(number).locator(".ia-panel, .ia-static").wait_for()
        for width in (1400, 800):
            page.page.set_viewport_size({"width": width, "height": 4000})
            for at, state in enumerate(states):
                stands_still(page, 2 * at + 1, 1 if state == "failed" else 2)
            page.shot(f"metrics_{width}")
        assert page.errors == []


def test_a_long_line_of_a_question_is_seen_whole(product: Product) -> None:
    write_notebook(product.root, "wide.ipynb", ["%load_ext gallery", "live('far_wide')"])
    with Page(product.jupyter, width=800, height=900) as page:
        page.open("wide.ipynb")
        page.run(0)
        page.run(1)
        box = page.cell(1).locator(".ia-full")
        box.wait_for()
        seen = box.evaluate(
            """box => {
                const frame = box.getBoundingClientRect();
                const walker = document.createTreeWalker(box, NodeFilter.SHOW_TEXT);
                let seen = 0;
                while (walker.nextNode()) for (let i = 0; i < walker.currentNode.data.length; i++) {
                    const range = document.createRange();
                    range.setStart(walker.currentNode, i);
                    range.setEnd(walker.currentNode, i + 1);
                    const one = range.getBoundingClientRect();
                    seen += one.right <= frame.right && one.bottom <= frame.bottom && one.left >= frame.left;
                }
                return seen;
            }"""
        )
        assert seen >= 200
        assert "import os; value_199 = 1" in box.inner_text()
        expect(page.cell(1).locator("[data-act=once]")).to_be_enabled()
        page.shot("question_wide_800")


TABLES = """cell => {
  const wrong = [];
  for (const table of cell.querySelectorAll(".ia-static table")) for (const row of table.rows) {
    const cells = [...row.cells];
    cells.forEach((one, i) => {
      const box = one.getBoundingClientRect(), next = cells[i + 1]?.getBoundingClientRect();
      if (one.scrollWidth > one.clientWidth + 1) wrong.push("flows over: " + one.innerText.slice(0, 60));
      if (next && box.right > next.left + 1) wrong.push("lies over: " + one.innerText.slice(0, 60));
    });
    const name = cells[0].querySelector("strong");
    if (name && name.getClientRects().length > 1) wrong.push("broken: " + name.innerText);
  }
  return wrong;
}"""


def test_static_tables_and_answers_are_readable_at_every_width(product: Product) -> None:
    setup = "%load_ext ipyagent\n%config IPyAgent.panels = 'static'\n%config IPyAgent.model = 'practice'"
    name = "feedback_about_axes_and_units"
    words = "Axes have units, and where a chart shows money it says which; a rule for every chart of the report"
    added = f"%%memory add --type feedback\n# {name}\n{words}"
    cells = [setup, added, "%memory", "%agent panel", "%agent help"]
    write_notebook(product.root, "tables.ipynb", cells)
    with Page(product.jupyter, width=1400, height=1600) as page:
        page.open("tables.ipynb")
        for number in range(len(cells)):
            page.run(number)
        page.cell(2).locator(".ia-static table").wait_for()
        page.cell(3).locator(".ia-static details").first.wait_for()
        page.page.evaluate("() => document.querySelectorAll('.ia-static details').forEach((one) => (one.open = true))")
        for width in (1400, 800, 600):
            page.page.set_viewport_size({"width": width, "height": 1600})
            for number in (2, 3):
                becomes_empty(page, number, TABLES, f"good table at {width}")
            page.both(f"static_tables_{width}")
        help_ = page.cell(4).locator(".ia-told")
        assert help_.evaluate("node => node.scrollWidth <= node.clientWidth + 1")
        assert help_.locator("div").count() > 20
        assert page.errors == []
