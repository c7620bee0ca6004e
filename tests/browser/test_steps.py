"""A compaction stepped by its buttons in a real page: each press is one journalled decision, undo takes it back."""

from __future__ import annotations

import json
import re
from pathlib import Path

from ipyagent.journal.events import Compacted, DecisionUndone, Event, ResultsCleared
from ipyagent.journal.journal import TRANSCRIPT, read_events

from .lab import Page, until, write_notebook
from .product import Product

SETUP = """%load_ext ipyagent
%config IPyAgent.model = "practice"
%config IPyAgent.mode = "auto"
%config IPyAgent.window = 32_000
%config IPyAgent.layer_notes = False
from ipyagent.practice.model.lessons import requests
agent = get_ipython()._ipyagent_extension.agent_now
for request in requests("clearing")[:8]:
    _ = agent.run_sync(request, lesson="clearing")
"""


def decisions(root: Path) -> list[Event]:
    (path,) = (root / ".ipyagent" / "sessions").glob(f"*/{TRANSCRIPT}")
    return [event for event in read_events(path) if isinstance(event, ResultsCleared | Compacted | DecisionUndone)]


def test_each_press_is_one_decision_and_undo_takes_it_back(product: Product) -> None:
    write_notebook(product.root, "steps.ipynb", [SETUP, "%compact --step --dry-run", "1 + 1"])
    with Page(product.jupyter, height=1100) as page:
        page.open("steps.ipynb")
        page.run(0)
        page.run(1)
        cell = page.cell(1)
        forward, back = cell.get_by_label("The next layer acts"), cell.get_by_label("Undo the newest step")
        forward.wait_for()
        assert "Next: clearing old tool results (no model call)" in cell.inner_text()
        assert decisions(product.root) == []
        page.shot("steps_look")
        forward.click()
        cell.get_by_text("Done: clearing old tool results").wait_for()
        assert len(decisions(product.root)) == 1
        forward.click()
        cell.get_by_text("Done: a summary by the model (one model call)").wait_for()
        assert "no layer has anything left to do" in cell.inner_text()
        page.shot("steps_done")
        for left in (1, 0):
            back.click()
            until(lambda left=left: cell.get_by_text(re.compile(r"\bDone:")).count() == left, "the step back")  # type: ignore[misc]
            cell.get_by_text("undone").wait_for()
        made = decisions(product.root)
        assert [type(event) for event in made] == [ResultsCleared, Compacted, DecisionUndone, DecisionUndone]
        forward.click()
        cell.get_by_text("Done: clearing old tool results").wait_for()
        kept = ("%compact --undo", "Done: clearing old tool results")
        until(lambda: all(words in json.dumps(page.outputs(1)) for words in kept), "the static form")
        assert page.errors == []
        page.shut_down()
