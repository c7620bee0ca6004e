"""The steps of a compaction in a live page: a button for the next one only where there is one."""

from __future__ import annotations

from typing import Any, cast

from ipyagent.assembly.compaction_preview import LayerPreview, LayerStep, LayerStepResult
from ipyagent.context.summarize import summarize
from ipyagent.extension.context_report import StepPanel
from ipyagent.ui.buttons import ButtonBridge

DONE = LayerStep(layer="notes", done=True, before={"user": 9}, after={"user": 5}, price="")
LAST = LayerPreview(layer=summarize, now=cast("Any", None), made=())


def buttons(panel: StepPanel) -> list[str]:
    page = panel.bundle()["text/html"]
    return [sign for sign in ("Next step", "Undo") if f'data-sign="{sign}"' in page]


def test_the_button_for_the_next_step_goes_with_the_last_and_comes_back_with_undo() -> None:
    steps = [
        LayerStepResult(step=DONE, following=LAST),
        LayerStepResult(step=DONE, passed=[("a summary", "nothing to summarise")]),
        LayerStepResult(step=None),
    ]
    panel = StepPanel(lambda: steps.pop(0), lambda: "taken back", ButtonBridge(), lambda act: act())
    panel.open(steps.pop(0))
    assert buttons(panel) == ["Next step", "Undo"]
    panel.next()
    assert buttons(panel) == ["Undo"]
    panel.next()
    assert buttons(panel) == ["Undo"]
    panel.back()
    assert buttons(panel) == ["Next step", "Undo"]
