from __future__ import annotations

import subprocess
import sys
import time

import nbformat
import pytest
from playwright.sync_api import expect

from .lab import Page, write_notebook
from .product import Product

LOAD = "%load_ext scripted"


def turn(name: str) -> str:
    return f"await scripted('', {name!r})"


def opened(product: Product, name: str, *turns: str) -> Page:
    write_notebook(product.root, name, [LOAD, *map(turn, turns)])
    page = Page(product.jupyter)
    page.open(name)
    page.run(0)
    return page


def test_a_turn_is_shown_live_and_stays_as_static_output(product: Product) -> None:
    with opened(product, "whole.ipynb", "whole") as page:
        page.run(1, wait=False)
        cell = page.cell(1)
        cell.locator(".ia-card").wait_for()
        assert cell.locator(".ia-card pre").inner_text().count("\n") == 2
        page.both("ask")
        assert "waiting for your answer" in cell.locator(".ia-words").inner_text()
        cell.locator("[data-act=once]").click()
        cell.locator(".ia-live").wait_for()
        expect(cell.locator(".ia-card")).to_have_count(0)
        assert "42%" in cell.locator(".ia-meter").inner_text()
        page.both("running")
        (product.root / "go").touch()
        page.wait_done(1)
        cell.locator(".ia-static").wait_for()
        page.shot("static_light")
        expect(cell.locator(".ia-panel")).to_have_count(0)
        text = cell.locator(".ia-static").inner_text()
        assert "costing $5 and $6 to compute" in text  # not typeset as a formula
        assert "<script>alert(1)</script>" in text
        expect(cell.locator("img")).to_have_count(1)
        page.save()
        page.shut_down()
        assert page.errors == []
    saved = nbformat.read(product.root / "whole.ipynb", 4)
    (shown, _printed) = saved.cells[1].outputs
    assert set(shown.data) == {"text/html", "text/markdown", "text/plain"}

    with Page(product.jupyter, anew=True) as page:  # no widget state, no kernel of ours
        page.open("whole.ipynb", kernel=False)
        page.cell(1).locator(".ia-static").wait_for()
        page.says(1, "three groups")
        page.shot("reopened_light")
        for fold in page.cell(1).locator(".ia-static summary").all():
            fold.click()
        page.both("reopened_unfolded")

    html = product.root / "whole.html"
    subprocess.run(
        [sys.executable, "-m", "jupyter", "nbconvert", "--to", "html", str(product.root / "whole.ipynb")],
        check=True, capture_output=True, cwd=product.root,
    )  # fmt: skip
    with Page(product.jupyter, anew=True) as page:
        page.page.route("http*://**", lambda route: route.abort())  # nbconvert's page asks a CDN for MathJax
        page.page.goto(html.as_uri(), wait_until="domcontentloaded")
        page.page.locator(".ia-static").wait_for()
        assert "three groups" in page.page.inner_text("body")
        page.shot("nbconvert")


def test_a_refusal_carries_its_reason_and_the_keyboard_alone_can_give_it(product: Product) -> None:
    with opened(product, "refuse.ipynb", "refuse", "refuse") as page:
        page.run(1, wait=False)
        card = page.cell(1).locator(".ia-card")
        card.wait_for()
        page.shot("diff_light")
        card.locator("pre").focus()
        for key in ("Enter", "Escape", "d", "d"):  # none of them decides, and none is a command of Lab
            page.page.keyboard.press(key)
        page.page.keyboard.press("Tab")
        page.page.keyboard.press("Tab")
        page.page.keyboard.press("Tab")
        page.page.keyboard.press("Tab")
        assert page.page.evaluate("() => document.activeElement.className") == "ia-input ia-reason"
        page.page.keyboard.type("not today")
        page.page.keyboard.press("Enter")
        page.wait_done(1)
        page.says(1, "OUTCOME deny: not today")
        page.says(1, "Denied · not today")
        page.shot("denied_light")

        page.run(2, wait=False)
        card = page.cell(2).locator(".ia-card")
        card.wait_for()
        card.locator("[data-act=always]").focus()
        page.page.keyboard.press("Enter")  # on a button that the user chose, it is a choice
        page.wait_done(2)
        page.says(2, "OUTCOME always")


@pytest.mark.timed
def test_stop_ends_the_turn_at_once_also_after_a_reload(product: Product) -> None:
    with opened(product, "stop.ipynb", "idle", "idle") as page:
        page.run(1, wait=False)
        stop = page.cell(1).locator(".ia-stop")
        stop.wait_for()
        page.cell(1).locator(".ia-clock", has_text="s").wait_for()
        began = time.monotonic()
        stop.click()
        page.wait_done(1)
        assert time.monotonic() - began < 3
        page.says(1, "Stopped by you")

        page.run(2, wait=False)
        page.cell(2).locator(".ia-live", has_text="second 2").wait_for()
        page.save()
        page.open("stop.ipynb", kernel=False, fresh=False)
        stop = page.cell(2).locator(".ia-stop")
        stop.wait_for()
        # The page has what was shown before it was loaded, and goes on.
        page.cell(2).locator(".ia-live", has_text="second 1").wait_for()
        page.shot("reloaded")
        stop.click()
        page.cell(2).get_by_text("Stopped by you").first.wait_for()
        page.cell(2).locator(".ia-static").wait_for()
        page.shot("reloaded_stopped")
        page.save()
    (shown, *_rest) = nbformat.read(product.root / "stop.ipynb", 4).cells[2].outputs
    assert set(shown.data) == {"text/html", "text/markdown", "text/plain"}


@pytest.mark.timed
def test_a_click_comes_through_while_code_blocks(product: Product) -> None:
    with opened(product, "block.ipynb", "block") as page:
        page.run(1, wait=False)
        button = page.cell(1).locator("[data-act=once]")
        button.wait_for()
        began = time.monotonic()
        button.click()
        page.wait_done(1)
        assert time.monotonic() - began < 3
        page.says(1, "OUTCOME once")


@pytest.mark.timed
def test_a_flood_of_text_arrives_without_lag(product: Product) -> None:
    with opened(product, "flood.ipynb", "flood") as page:
        page.run(1)
        page.cell(1).locator(".ia-static").wait_for()
        text = page.cell(1).inner_text()
        size, seconds = text.split("OUTCOME ")[1].split()[:2]
        assert int(size) > 150_000
        assert float(seconds) < 25  # 4 s of waiting in it; the rest is ours, on two busy cores
        assert "The end." in text


@pytest.mark.slow
def test_notebook_7_shows_the_same(notebook7: Product) -> None:
    with opened(notebook7, "whole.ipynb", "whole") as page:
        page.run(1, wait=False)
        page.cell(1).locator("[data-act=once]").click()
        page.cell(1).locator(".ia-live").wait_for()
        page.shot("notebook7_running")
        (notebook7.root / "go").touch()
        page.wait_done(1)
        page.cell(1).locator(".ia-static").wait_for()
        page.shot("notebook7_static")
