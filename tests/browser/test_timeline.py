"""The context timeline in a real page: clicks, keys, both themes, and what stays in the notebook."""

from __future__ import annotations

import json
import re

from playwright.sync_api import expect

from .lab import Page, until, write_notebook
from .product import Product

SETUP = """%load_ext ipyagent
%config IPyAgent.model = "practice"
%config IPyAgent.mode = "auto"
rows = list(range(2000))
agent = get_ipython()._ipyagent_extension.agent_now
evil = "what is in <img src=x onerror='window.hit=1'> rows?"
for request in ("run `print(rows)`", evil, "run `print(rows[:50])`", "hello"):
    _ = agent.run_sync(request)
"""
DECIDE = """from ipyagent.journal.events import ResultsCleared, TurnsRemoved
session = agent.session
calls = tuple(spot.call for spot in session.view.results)
session.record(ResultsCleared(calls=calls, text="[Previous: used {tool}]", layer="clear_results", saved=900))
turn = session.history.turns[1]
block = {"type": "text", "text": "[snipped <b>turn</b> 2]"}
_ = session.record(TurnsRemoved(first=turn.first, last=turn.last, blocks=(block,), saved=90))
_ = agent.run_sync("hello again")
"""
PANEL = 2


def test_the_timeline_shows_every_turn_and_what_each_decision_changed(product: Product) -> None:
    write_notebook(product.root, "timeline.ipynb", [SETUP, DECIDE, "%context --panel", "1 + 1"])
    with Page(product.jupyter, height=1100) as page:
        page.open("timeline.ipynb")
        for cell in (0, 1, PANEL):
            page.run(cell)
        panel = page.cell(PANEL).locator(".ia-timeline")
        panel.wait_for()
        expect(panel.locator(".it-bar")).to_have_count(5)
        rooms = panel.locator(".it-bar").evaluate_all("bars => bars.map(bar => bar.getBoundingClientRect())")
        assert len({(round(room["top"]), round(room["height"])) for room in rooms}) == 1, "marks change no scale"
        assert "C\ncleared" in panel.locator(".it-letters").inner_text()
        legend = panel.get_by_role("list", name="Colours").locator(".ia-swatch")
        assert legend.count() <= 8
        assert "tokens in the context after each turn · tallest bar" in panel.locator(".it-title").inner_text()
        panel.locator(".it-mark", has_text="C").click()
        pairs = panel.locator(".it-pairs")
        pairs.wait_for()
        assert "[Previous: used" in pairs.locator(".it-new").first.inner_text()
        assert "[Previous: used" not in pairs.locator(".it-gone").first.inner_text()
        page.cell(PANEL).scroll_into_view_if_needed()
        page.both("timeline")
        panel.locator(".it-slider").focus()
        page.page.keyboard.press("Home")
        head = panel.locator(".it-head")
        expect(head).to_have_text(re.compile("^Turn (1:|0,|1,)"))
        page.page.keyboard.press("End")
        expect(head).to_have_text("Turn 5: hello again")
        page.shot("timeline_turn")
        assert page.page.evaluate("window.hit") is None
        page.run(3)  # another cell: the board stays, and what is saved reads without a kernel
        until(lambda: "[snipped &lt;b&gt;turn&lt;/b&gt; 2]" in json.dumps(page.outputs(PANEL)), "the static form")
        page.save()
        assert "widget-view" not in json.dumps(page.outputs(PANEL))
        assert page.page.evaluate("window.hit") is None
        page.shut_down()
