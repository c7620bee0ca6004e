"""An IPython extension that drives a surface with real events from an agent thread, without an agent.

`await scripted("", NAME)` runs a turn: its events come from the coroutine `NAME` of this module.
"""

from __future__ import annotations

import asyncio
import base64
import contextvars
import functools
import io
import threading
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from ipyagent.journal.events import (
    AssistantMessage,
    Event,
    FileChanged,
    PermissionAnswered,
    PermissionAsked,
    Retrying,
    Streamed,
    ToolCalled,
    ToolReturned,
    TurnEnded,
)
from ipyagent.journal.protocols import TurnStatus, WindowState
from ipyagent.ui.panel import PanelSurface

ANSWER = """The table has **three groups**. Means by species, costing $5 and $6 to compute:

| species | n | mass (g) |
|---|---|---|
| Adelie | 152 | 3701 |
| Chinstrap | 68 | 3733 |

1. Load the data
2. Group and take the `mean`

```python
def heaviest(frame, n=3):
    # the n heaviest birds
    return frame.nlargest(n, "mass")  # "mass" in g
```

See [the docs](https://example.org/docs) and <script>alert(1)</script>.
"""
EDIT = """--- a/penguins.py
+++ b/penguins.py
@@ -1,3 +1,3 @@
 import pandas as pd
-frame = pd.read_csv("penguins.csv")
+frame = pd.read_csv("penguins.csv").dropna()
 print(frame.shape)
"""


def window(tokens: int) -> WindowState:
    return WindowState(
        tokens=tokens, window=200_000, effective=180_000, warning_mark=147_000, error_mark=147_000,
        auto_mark=167_000, block_mark=177_000, percent_left=max(0.0, 100 * (1 - tokens / 167_000)),
        above_warning=tokens > 147_000, above_error=tokens > 147_000, above_auto=tokens > 167_000,
        blocked=tokens > 177_000,
    )  # fmt: skip


def figure() -> str:
    from matplotlib.figure import Figure

    drawn = Figure(figsize=(4, 2.2), dpi=90)
    axes = drawn.subplots()
    axes.bar(["Adelie", "Chinstrap", "Gentoo"], [3701, 3733, 5076])
    axes.set_ylabel("mass (g)")
    drawn.tight_layout()
    file = io.BytesIO()
    drawn.savefig(file, format="png")
    return base64.b64encode(file.getvalue()).decode()


class Turn:
    """What a scripted coroutine has: the surface, and a clock for the events."""

    def __init__(self, surface: PanelSurface, line: str) -> None:
        self.surface = surface
        self.line = line

    def show(self, event: Event) -> None:
        self.surface.show(event)

    def phase(self, phase: str, tokens: int = 84_000) -> None:
        self.surface.status(
            TurnStatus(
                phase=phase, model="claude-sonnet-5-5", window=window(tokens), cost=0.42, turn_cost=0.0312,
                tokens_read=80_000, tokens_prompt=100_000,
            )
        )  # fmt: skip

    async def write(self, text: str, channel: Any = "text", step: int = 12, wait: float = 0.01) -> None:
        for at in range(0, len(text), step):
            self.show(Streamed(channel=channel, text=text[at : at + step]))
            await asyncio.sleep(wait)


async def whole(turn: Turn) -> str:
    turn.phase("waiting for the model")
    turn.show(Retrying(reason="The server is busy", seconds=1, attempt=1))
    await asyncio.sleep(0.3)
    turn.phase("thinking")
    await turn.write("The user wants groups. I look at the table first, then group it by species.", "thinking")
    turn.phase("writing")
    await turn.write("I look at the table first.\n")
    code = "import pandas as pd\nframe = pd.read_csv('penguins.csv')\nframe.groupby('species').mass.mean()"
    turn.show(
        AssistantMessage(
            blocks=(
                {"type": "thinking", "thinking": "The user wants groups. I look at the table first."},
                {"type": "text", "text": "I look at the table first.\n"},
                {"type": "tool_use", "id": "t1", "name": "python", "input": {"code": code}},
            ),
            stop_reason="tool_use",
        )
    )
    asked = PermissionAsked(
        call="t1", tool="python", title="Run Python?", text=code, language="python", pattern="python", digest="d1"
    )
    turn.show(asked)
    answer = await turn.surface.ask(asked)
    turn.show(PermissionAnswered(call="t1", answer=answer.answer, by=answer.by, reason=answer.reason))
    if answer.answer == "deny":
        turn.show(
            ToolReturned(call="t1", name="python", blocks=({"type": "text", "text": "denied"},), is_error=True)
        )
        return answer.reason
    turn.show(ToolCalled(call="t1", name="python", input={"code": code}, at=time.time()))
    turn.phase("running python")
    for row in range(40):
        turn.show(Streamed(channel="tool", ref="t1", text=f"row {row}: \x1b[31mAdelie\x1b[0m {3700 + row} g\n"))
        await asyncio.sleep(0.04)
    while not Path("go").exists():  # the test has looked at it
        await asyncio.sleep(0.02)
    picture = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": figure()}}
    rows = "\n".join(f"row {row}: Adelie {3700 + row} g" for row in range(40))
    turn.show(
        ToolReturned(call="t1", name="python", blocks=({"type": "text", "text": rows}, picture), seconds=1.64)
    )
    turn.show(ToolCalled(call="t2", name="edit_file", input={"path": "penguins.py", "old": "a = 1\nb = 2", "new": "a = 1\nb = 3"}))  # noqa: E501
    turn.show(FileChanged(call="t2", path="penguins.py", digest="d"))
    turn.show(ToolReturned(call="t2", name="edit_file", blocks=({"type": "text", "text": "ok"},), seconds=0.01))
    turn.show(ToolCalled(call="t3", name="shell", input={"command": "pytest -q tests/missing"}))
    turn.show(
        ToolReturned(
            call="t3", name="shell", blocks=({"type": "text", "text": "no tests ran"},), is_error=True,
            seconds=0.8, note="exit status 4",
        )
    )  # fmt: skip
    turn.phase("writing")
    await turn.write(ANSWER)
    turn.show(AssistantMessage(blocks=({"type": "text", "text": ANSWER},), stop_reason="end_turn"))
    turn.phase("finished", 85_500)
    turn.show(TurnEnded(status="finished", seconds=6.2))
    return "finished"


async def refuse(turn: Turn) -> str:
    turn.phase("waiting for the model", 150_000)
    asked = PermissionAsked(
        call="t9", tool="edit_file", title="Edit penguins.py?", text=EDIT, language="diff",
        pattern="edit_file(penguins.py)", digest="d9",
    )  # fmt: skip
    answer = await turn.surface.ask(asked)
    turn.show(PermissionAnswered(call="t9", answer=answer.answer, by=answer.by, reason=answer.reason))
    turn.show(AssistantMessage(blocks=({"type": "text", "text": "I leave the file as it is."},)))
    turn.show(TurnEnded(status="finished", seconds=1.0))
    return f"{answer.answer}: {answer.reason}"


async def far(turn: Turn) -> str:
    """More rows than its box shows."""
    turn.phase("waiting for your answer")
    text = "\n".join(f"echo {n}" for n in range(200))
    asked = PermissionAsked(call="t6", tool="shell", title="Run this command?", text=text, language="bash",
                            pattern=f"shell({text})", digest="d6")  # fmt: skip
    answer = await turn.surface.ask(asked)
    turn.show(PermissionAnswered(call="t6", answer=answer.answer, by=answer.by, reason=answer.reason))
    turn.show(TurnEnded(status="finished", seconds=1.0))
    return answer.answer


async def idle(turn: Turn) -> str:
    """Works until it is stopped."""
    turn.phase("waiting for the model")
    turn.show(ToolCalled(call="t1", name="python", input={"code": "time.sleep(600)"}, at=time.time() - 5))
    turn.phase("running python")
    try:
        for second in range(600):
            turn.show(Streamed(channel="tool", ref="t1", text=f"second {second}\n"))
            await asyncio.sleep(0.5)
    except asyncio.CancelledError:
        turn.show(TurnEnded(status="stopped", message="Stopped by you", seconds=1.0, at=time.time()))
    return "stopped"


async def block(turn: Turn) -> str:
    """The main thread is busy in code that never awaits; the click must come through all the same."""
    turn.phase("running python")
    question = PermissionAsked(
        call="t5", tool="shell", title="Run a command?", text="ls", language="bash", pattern="", digest="d5"
    )
    answer = await turn.surface.ask(question)
    turn.show(TurnEnded(status="finished", seconds=1.0))
    return answer.answer


async def flood(turn: Turn) -> str:
    """200 KB of Markdown, one fence of 60 KB in it, in about four seconds."""
    turn.phase("writing")
    text = "".join(f"Paragraph {n} with **bold** words and `code`.\n\n" for n in range(2800))
    text += "```python\n" + "value = compute(1, 'two')  # three\n" * 1800 + "```\n\nThe end.\n"
    began = time.monotonic()
    await turn.write(text, step=len(text) // 1000, wait=0.004)
    took = time.monotonic() - began
    turn.show(AssistantMessage(blocks=({"type": "text", "text": text},), stop_reason="end_turn"))
    turn.show(TurnEnded(status="finished", seconds=took))
    return f"{len(text)} {took:.2f}"


TURNS: dict[str, Callable[[Turn], Awaitable[str]]] = {
    "whole": whole, "refuse": refuse, "idle": idle, "flood": flood, "block": block, "far": far,
}  # fmt: skip


async def scripted(line: str, cell: str = "") -> None:
    """One turn: the surface opens here, the events come from a thread with its own event loop. In
    turn "block" this thread meanwhile runs code that does not await."""
    main = asyncio.get_running_loop()
    done: asyncio.Future[str] = main.create_future()
    agent: dict[str, Any] = {}

    def stop() -> None:
        agent["loop"].call_soon_threadsafe(agent["task"].cancel)

    from IPython import get_ipython

    from ipyagent.kernel.frontend import route_clicks

    surface = PanelSurface(stop, functools.partial(route_clicks, get_ipython().kernel))

    async def run() -> None:
        agent.update(loop=asyncio.get_running_loop(), task=asyncio.current_task())
        outcome = "failed"
        try:
            outcome = await TURNS[cell.strip()](Turn(surface, line))
        except asyncio.CancelledError:
            outcome = "cancelled"
            surface.show(TurnEnded(status="stopped", message="Stopped by you", seconds=1.0))
        except Exception as problem:  # noqa: BLE001 - the test reads it in the cell
            outcome = repr(problem)
        finally:
            main.call_soon_threadsafe(done.set_result, outcome)

    surface.open()
    thread = threading.Thread(target=contextvars.copy_context().run, args=(lambda: asyncio.run(run()),), daemon=True)
    thread.start()
    if cell == "block":
        while thread.is_alive():
            time.sleep(0.05)
    outcome = await done
    surface.close()
    thread.join(5)
    print("OUTCOME", outcome)


def load_ipython_extension(shell: Any) -> None:
    shell.user_ns["scripted"] = scripted
