"""An IPython extension that shows a cell in any of its states, at once and for as long as one looks.

`live(NAME)` leaves the panel as it stands in that moment, `kept(NAME)` shows the static output.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any, Literal

from scripted import ANSWER, EDIT, figure, window

from ipyagent.journal.events import (
    AssistantMessage,
    ChildEnded,
    ChildProgress,
    ChildStarted,
    Compacted,
    Event,
    FileChanged,
    LayerFailed,
    MemorySaved,
    MemorySurfaced,
    PermissionAnswered,
    PermissionAsked,
    PlanWritten,
    Recalled,
    Retrying,
    Step,
    Streamed,
    ToolCalled,
    ToolReturned,
    TurnEnded,
)
from ipyagent.journal.protocols import TurnStatus
from ipyagent.ui.panel import PanelSurface
from ipyagent.ui.static import static_bundle

CODE = "import pandas as pd\nframe = pd.read_csv('penguins.csv')\nframe.groupby('species').mass.mean()"
ROWS = "\n".join(f"row {row}: Adelie {3700 + row} g" for row in range(12))
THOUGHT = "The user wants groups. I look at the table first, then I group it by species and take the mean. "


def called(call: str, name: str, **given: Any) -> ToolCalled:
    return ToolCalled(call=call, name=name, input=given, at=time.time() - 3)


def returned(call: str, name: str, text: str, *more: Any, **facts: Any) -> ToolReturned:
    return ToolReturned(call=call, name=name, blocks=({"type": "text", "text": text}, *more), **facts)


def said(text: str, thought: str = "") -> AssistantMessage:
    thinking = ({"type": "thinking", "thinking": thought},) if thought else ()
    return AssistantMessage(blocks=(*thinking, {"type": "text", "text": text}))


def memories() -> list[Event]:
    recalled = (
        Recalled(path="/memories/project/feedback_plots.md", description="Axes have units", why="axes", age=12),
        Recalled(path="/memories/user/user_role.md", description="Teaches statistics", why="teaching", age=1),
    )
    return [
        MemorySurfaced(memories=recalled, text=""),
        MemorySaved(path="/memories/project/units.md", change="created", by="agent"),
    ]


def work() -> list[Event]:
    picture = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": figure()}}
    return [
        said("I look at the table first.", THOUGHT * 4),
        called("t1", "python", code=CODE),
        returned("t1", "python", ROWS, picture, seconds=1.64),
        called("t2", "edit_file", path="penguins.py", old="a = 1\nb = 2", new="a = 1\nb = 3"),
        FileChanged(call="t2", path="penguins.py", digest="d"),
        returned("t2", "edit_file", "ok", seconds=0.01),
        called("t3", "shell", command="pytest -q tests/missing/a_rather_long_name_of_a_folder/test_penguins.py"),
        returned("t3", "shell", "no tests ran", is_error=True, seconds=0.8, note="exit status 4"),
    ]


def question() -> list[Event]:
    return [
        PermissionAsked(
            call="t9", tool="edit_file", title="Edit penguins.py?", text=EDIT, language="diff",
            pattern="edit_file(penguins.py)", digest="d9",
        )
    ]  # fmt: skip


HERE = "cat > /tmp/plan.txt <<'EOF'\n" + "\n".join(f"step {n}: look at the table again" for n in range(1, 81)) + "\nEOF"
DISTANT = {
    "blanks": "ls data" + " " * 600 + "; rm -rf ~/work",
    "tabs": "ls data" + "\t" * 200 + "; rm -rf ~/work",
    "empty": "ls data" + "\n" * 401 + "rm -rf ~/work",
    "here": HERE,
    "wide": "import os; value_199 = 1; " + "total = total + 1; " * 9 + "x = 'the end'",
}


def far(name: str) -> list[Event]:
    """A shell command that ends where nobody looks, under words that calm."""
    command = DISTANT[name]
    danger = "" if name == "here" else "it deletes files (rm)"
    return [
        said("I look at what is there."),
        PermissionAsked(
            call="t8", tool="shell", title="Run this command?", text=command, language="bash", danger=danger,
            pattern=f"shell({command})", digest=name, said="Verified safe by ipyagent",
        ),
    ]  # fmt: skip


def ended(status: Literal["finished", "stopped", "failed", "limit", "refused"], message: str = "") -> list[Event]:
    return [TurnEnded(status=status, message=message, seconds=6.2)]


def aside() -> list[Event]:
    steps = (Step("read the table", "done"), Step("group it by species", "doing"), Step("draw the means"))
    return [
        PlanWritten(steps=steps),
        ChildStarted(child="c1", name="count-rows", kind="explore", task="Count the rows", at=time.time()),
        ChildProgress(child="c1", text="Reading orders.csv"),
        ChildStarted(child="c2", name="read-papers", kind="general", task="Read the papers", at=time.time()),
        ChildEnded(child="c2", status="finished", requests=3, seconds=12.0, cost=0.01, handed=("papers",)),
        ChildStarted(child="c3", name="fetch", kind="general", task="Fetch", at=time.time()),
        ChildEnded(child="c3", status="failed", message="The server is gone", requests=1, seconds=2.0),
        Compacted(
            trigger="auto", method="summary", first=1, last=4, blocks=(), tokens_before=90_000, tokens_after=9_000
        ),
        LayerFailed(layer="summary", why="The summary failed twice: the context stays as it is"),
    ]


def state(name: str) -> tuple[list[Event], TurnStatus]:
    """The events up to that moment, and what the bar says."""
    running = [said("I look at the table first.", THOUGHT), called("t1", "python", code=CODE)]
    streamed: Sequence[Event] = [Streamed(channel="tool", ref="t1", text=ROWS + "\n")]
    refusal = [PermissionAnswered(call="t9", answer="deny", by="user", reason="not today"), said("I leave it.")]
    moments: dict[str, tuple[str, list[Event]]] = {
        "waiting": ("waiting for the model", [Retrying(reason="The server is busy", seconds=9, attempt=1)]),
        "thinking": ("thinking", [Streamed(channel="thinking", text=THOUGHT * 3)]),
        "streaming": ("writing", [*memories()[:1], Streamed(channel="text", text=ANSWER[:240])]),
        "running": ("running python", [*running, *streamed]),
        **{f"far_{name}": ("waiting for your answer", far(name)) for name in DISTANT},
        "asking": ("waiting", [said("I drop the rows with missing values."), *question()]),
        "aside": ("waiting for the model", aside()),
        "finished": ("finished", [*memories(), *work(), said(ANSWER), *ended("finished")]),
        "denied": ("finished", [*question(), *refusal, *ended("finished")]),
        "stopped": ("stopped", [*running, *streamed, *ended("stopped", "Stopped by you")]),
        "failed": ("failed", ended("failed", "The key was refused: set ANTHROPIC_API_KEY")),
        "limit": ("limit", [*running, *ended("limit", "The limit of 20 model calls was reached")]),
        "refused": ("refused", [said("I begin."), *ended("refused", "The model declined this request")]),
    }  # fmt: skip
    phase, events = moments[name]
    tokens = {"asking": 150_000, "aside": 170_000}.get(name, 84_000)
    status = TurnStatus(
        phase=phase, model="claude-sonnet-5-5", window=window(tokens), cost=0.42, turn_cost=0.0312,
        tokens_read=80_000, tokens_prompt=100_000,
    )  # fmt: skip
    return events, status


def live(*names: str) -> None:
    for name in names:
        events, status = state(name)
        surface = PanelSurface(lambda: None)
        for event in events:
            surface.show(event)
        surface.status(status)
        surface.open()


def kept(*names: str) -> None:
    from IPython.display import display

    for name in names:
        display(static_bundle(*state(name)), raw=True)  # type: ignore[no-untyped-call]  # IPython has no types


def load_ipython_extension(shell: Any) -> None:
    shell.user_ns.update(live=live, kept=kept)
