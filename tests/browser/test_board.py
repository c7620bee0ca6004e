"""The board in a real page: five tabs, keys, what is new while a cell runs, buttons that work meanwhile, what stays."""

from __future__ import annotations

from typing import Any

import pytest
from playwright.sync_api import expect

from ipyagent.practice.replies import Reply, calls, text
from tests.bench.bench_panels import measure

from .lab import THEMES, TRUSTED, Page, until, write_notebook
from .product import Product
from .test_accessible import bring_axe, faults

EVIL = "<img src=x onerror='window.hit=1'>"
BLOCK = "import pathlib\nwhile not pathlib.Path('go').exists(): pass"
CELLS = [TRUSTED, f"%%agent\nsay {EVIL}", "%agent panel", "%%agent\nwork hard", "%%agent\nask a helper", "%skills"]
LOAD, SAID, PANEL, HARD, HELPER, SKILLS = range(6)


def brain(body: dict[str, Any]) -> Reply:
    """Answers by the newest words of the user, the requests of background work too."""
    said = next(
        "".join(str(block.get("text", "")) for block in message["content"] if block["type"] == "text")
        for message in reversed(body["messages"])
        if message["role"] == "user" and any(block["type"] == "text" for block in message["content"])
    )
    answered = any(block["type"] == "tool_result" for block in body["messages"][-1]["content"])
    tools = bool(body.get("tools")) and not answered
    if "count them" in said:
        return text("counting " * 200, delay=0.4)
    if "work hard" in said and tools:
        return calls([("python", {"code": BLOCK})])
    if "ask a helper" in said and tools:
        return calls([("agent", {"task": "count rows", "prompt": "count them", "type": "general"})])
    return text(f"said {EVIL}")


def test_the_board_is_live_while_a_cell_runs_and_leaves_its_summary(product: Product) -> None:
    product.model.brain = brain
    memories = product.root / ".ipyagent" / "memory"
    memories.mkdir(parents=True)
    about = f"name: Plots\ndescription: Axes {EVIL}\ntype: feedback"
    (memories / "plots.md").write_text(f"---\n{about}\n---\nLabel axes.\n")
    write_notebook(product.root, "board.ipynb", CELLS)
    with Page(product.jupyter, height=1000) as page:
        page.open("board.ipynb")
        page.run(LOAD)
        page.run(SAID)
        page.run(PANEL)
        board = page.cell(PANEL).locator(".ia-board")
        board.locator(".it-bar").wait_for()
        tab = {name: board.get_by_role("tab", name=name, exact=True) for name in
               ("Context", "Memory", "Skills", "Sub-agents", "Sessions")}  # fmt: skip

        # with keys alone: from tab to tab, into a list, into what is open
        keys = page.page.keyboard
        tab["Context"].focus()
        keys.press("ArrowRight")
        board.locator(".im-row", has_text="Plots").wait_for()
        assert tab["Memory"].get_attribute("aria-selected") == "true"
        assert board.locator("[role=tab][tabindex='0']").first.inner_text() == "Memory"
        keys.press("ArrowRight")
        board.locator(".ib-skills .ib-row").first.wait_for()
        keys.press("/")
        keys.type("sql")
        until(lambda: board.locator(".ib-skills .ib-row").count() == 1, "skill that fits")
        keys.press("ArrowDown")
        keys.press("ArrowDown")
        keys.press("Enter")
        skill = board.locator(".ib-skills .ib-detail")
        skill.locator(".ib-load").wait_for()
        page.shot("board_skills")

        # code of the agent blocks the kernel: the timeline grows, the button is heard
        page.run(HARD, wait=False)
        page.cell(HARD).locator(".ia-stop").wait_for()
        page.cell(HARD).get_by_text("running python").first.wait_for()
        skill.locator(".ib-load").click()
        board.locator(".ib-skills .ia-status", has_text="goes with your next request: about ").wait_for()
        tab["Context"].click()
        board.locator(".it-bar[data-turn='2']").wait_for()
        assert page.prompt(HARD) == "*"
        tab["Sessions"].click()
        board.locator(".ib-sessions .ib-row").first.click()
        board.locator(".ib-fork").click()
        board.get_by_text("a turn is running").wait_for()
        assert page.prompt(HARD) == "*"
        product.let_go()
        page.wait_done(HARD)

        # a helper is seen at work, stopped, and read
        tab["Sub-agents"].click()
        page.run(HELPER, wait=False)
        sub = board.locator(".ib-sub")
        sub.locator(".ib-stop").wait_for()
        page.shot("board_children")
        sub.locator(".ib-stop").click()
        sub.get_by_text("stopped").first.wait_for()
        page.wait_done(HELPER)
        sub.get_by_role("button", name="Read what").click()
        board.locator(".ib-children .ib-text", has_text="count them").wait_for()

        # between turns a copy is taken
        tab["Sessions"].click()
        board.locator(".ib-sessions .ib-row").first.click()
        board.locator(".ib-fork").click()
        board.get_by_text("continuing in a copy").wait_for()
        until(lambda: board.locator(".ib-sessions .ib-row").count() == 2, "the copy in the list")
        bring_axe(page)
        for theme, suffix in THEMES:
            page.theme(theme)
            page.shot(f"board_sessions_{suffix}")
            for name in tab:
                tab[name].click()
                if name not in ("Context", "Sub-agents"):  # with something open
                    board.locator(":is(.im-row, .ib-row):visible").first.click()
                    board.locator(":is(.im-detail, .ib-detail):visible button").first.wait_for()
                assert "\n".join(faults(page, ".ia-board")[0]) == "", f"{name}, {theme}"

        # again: a second one, and the first goes on
        page.run(SKILLS)
        again = page.cell(SKILLS).locator(".ia-board")
        again.locator(".ib-skills .ib-row").first.wait_for()
        tab["Memory"].click()
        board.locator(".im-row").first.click()
        board.locator(".im-text", has_text="Label axes").wait_for()
        assert page.page.evaluate("window.hit") is None
        assert page.errors == []
        until(lambda: "count rows" in "".join(page.outputs(PANEL)[0]["data"]["text/html"]), "the static form")
        page.save()
        stored = page.outputs(PANEL)[0]["data"]
        assert sorted(stored) == ["text/html", "text/markdown", "text/plain"]
        assert "<img" not in "".join(stored["text/html"])
        page.shut_down()


def test_in_notebook_7_keys_belong_to_the_board_also_after_a_reload(notebook7: Product) -> None:
    """Its shortcuts are for whatever has the focus: arrows move between cells, `a` and `d d` add one and take it."""
    notebook7.model.brain = brain
    write_notebook(notebook7.root, "keys.ipynb", CELLS[:3])
    with Page(notebook7.jupyter) as page:
        page.open("keys.ipynb")
        for cell in (LOAD, SAID, PANEL):
            page.run(cell)
        board = page.cell(PANEL).locator(".ia-board")
        board.locator(".it-bar").wait_for()
        until(lambda: page.outputs(PANEL)[0]["data"].get("text/markdown"), "the static form")
        page.save()
        page.open("keys.ipynb")
        board.locator(".it-bar").wait_for()
        keys = page.page.keyboard
        board.get_by_role("tab", name="Context", exact=True).focus()
        for key in ("a", "d", "d", "ArrowLeft"):  # round to the last one
            keys.press(key)
        board.locator(".ib-sessions .ib-row").wait_for()
        expect(page.page.locator(".jp-Notebook .jp-Cell")).to_have_count(3)
        for key in ("Tab", "ArrowDown", "Enter"):
            keys.press(key)
        board.locator(".ib-sessions .ib-text", has_text="said").wait_for()
        keys.press("Escape")  # back to the list
        assert page.page.evaluate("() => document.activeElement.ariaLabel") == "Stored sessions"
        keys.press("Tab")  # Resume is not for the session that goes on
        keys.press("Enter")
        board.get_by_text("continuing in a copy").wait_for()
        until(lambda: board.locator(".ib-row").filter(has_text="this one").filter(has_text="copy of").count() == 1,
              "the copy as the session that goes on")  # fmt: skip
        assert page.page.evaluate("() => document.activeElement.ariaLabel") == "Stored sessions"
        page.shut_down()


@pytest.mark.slow
def test_very_much_is_shown_in_small_messages_and_few_nodes() -> None:
    """A tenth of what the bench fills it with, and less than a thousand nodes: one row of a list has four. The board's
    script and sheet alone, which do not shrink with it, are 89 kB."""
    found = measure(part=10)
    assert found["errors"] == []
    assert found["largest"] < 200_000
    assert found["nodes"] < 1_000
    assert set(found["frames"]) == {"Context", "Memory", "Skills"}
