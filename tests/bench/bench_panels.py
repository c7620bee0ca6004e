"""Panels with very much in them, in a real page: seconds to open, frames while scrolling, sizes of messages.

"open" is from the run of the cell, or the click on the tab, to the first row or bar in the page."""

from __future__ import annotations

import os
import tempfile
import time
from pathlib import Path
from typing import Any

from ipyagent.journal.events import (
    AssistantMessage,
    ResultsCleared,
    SessionStarted,
    SystemPromptFrozen,
    ToolReturned,
    TurnEnded,
    Usage,
    UsageReported,
    UserMessage,
)
from ipyagent.loop.session import Session
from ipyagent.version import __version__
from tests.bench.measuring import Row

MEMORIES, SKILLS, TURNS = 10_000, 500, 2_000
SESSION = "20260101-000000-big0"
SCROLLED = """async ([selector, way]) => {
  const list = document.querySelector(selector), size = way === "scrollTop" ? "scrollHeight" : "scrollWidth", took = [];
  for (let i = 0; i < 60; i++) {
    const began = performance.now();
    list[way] = (list[size] * (i + 1)) / 60;
    await new Promise((go) => requestAnimationFrame(() => setTimeout(go, 0)));
    took.push(performance.now() - began);
  }
  took.sort((one, other) => one - other);
  return [took[30], took[57]];
}"""
SETUP = "%load_ext ipyagent\n%config IPyAgent.model = 'practice'\n%agent resume"
PARTS = (
    ("Context", "2,000 turns", ".ib-part:not([hidden]) .it-bar", ".it-chart", "scrollLeft"),
    ("Memory", "10,000 memories", ".im-row .im-title, .im-row .ia-name", ".im-list", "scrollTop"),
    ("Skills", "500 skills", ".ib-skills .ib-row .ia-name", ".ib-skills .ib-list", "scrollTop"),
    ("Sub-agents", "none", ".ib-children .ia-empty, .ib-children .ib-sub", "", ""),
    ("Sessions", "2,000 turns", ".ib-sessions .ib-row .ia-name", "", ""),
)


def measure(part: int = 1) -> dict[str, Any]:
    """Seconds, milliseconds a frame (median, 95 %), nodes of the board, the largest message in bytes; with one `part`
    of it all."""
    from tests.browser.lab import Page, Server, write_notebook

    found: dict[str, Any] = {"open": {}, "frames": {}}
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder) / "project"
        root.mkdir()
        fill(root, part=part)
        write_notebook(root, "big.ipynb", [SETUP, "%agent panel"])
        home = str(Path(folder) / "home")
        server = Server(root, environment={"IPYAGENT_HOME": home, "IPYAGENT_TRUST_ALL": "true"})
        try:
            with Page(server, height=1000) as page:
                largest = [0]

                def count(frame: str | bytes) -> None:
                    largest[0] = max(largest[0], len(frame))

                page.page.on("websocket", lambda socket: socket.on("framereceived", count))
                page.open("big.ipynb")
                page.run(0)
                time.sleep(3)  # what loading imports in the background is not the panel's
                for number, (name, _, ready, list_, way) in enumerate(PARTS):
                    began = time.monotonic()
                    if number == 0:
                        page.run(1, wait=False)
                    else:
                        page.cell(1).get_by_role("tab", name=name, exact=True).click()
                    page.cell(1).locator(ready).first.wait_for(timeout=60_000)
                    found["open"][name] = time.monotonic() - began
                    if number == 0:
                        page.wait_done(1)
                        page.cell(1).locator(f"[data-turn='{TURNS // part}']").wait_for(timeout=60_000)
                        found["whole"] = time.monotonic() - began
                    if list_:
                        found["frames"][name] = page.page.evaluate(SCROLLED, [f".ia-board {list_}", way])
                found["nodes"] = page.page.evaluate("document.querySelectorAll('.ia-board *').length")
                found["largest"] = largest[0]
                found["errors"] = page.errors
        finally:
            server.stop()
    return found


def fill(root: Path, notebook: str = "big.ipynb", *, part: int = 1) -> None:
    """Ten thousand memories, five hundred skills and a session of two thousand turns, the notebook's, below `root`, or
    this part of them."""
    memories = root / ".ipyagent" / "memory"
    memories.mkdir(parents=True)
    for number in range(MEMORIES // part):
        kind = ("feedback", "project", "reference", "user")[number % 4]
        file = memories / f"note_{number:05}.md"
        about = f"what came out of run {number} on site {number % 7}"
        file.write_text(f"---\nname: Run {number}\ndescription: {about}\ntype: {kind}\n---\nText.\n")
        os.utime(file, (time.time() - 86_400 - number,) * 2)
    for number in range(SKILLS // part):
        folder = root / "skills" / f"skill-{number:03}"
        folder.mkdir(parents=True)
        steps = "\n".join(f"{step}. Do step {step} of {number} with care." for step in range(1, 40))
        about = f"Does the work of kind {number} from beginning to end; use it for tables of kind {number}"
        (folder / "SKILL.md").write_text(f"---\nname: skill-{number:03}\ndescription: {about}\n---\n# Steps\n{steps}\n")
    sessions = root / ".ipyagent" / "sessions"
    sessions.mkdir(parents=True)
    session = Session.create(sessions, SessionStarted(session=SESSION, version=__version__, notebook=notebook))
    session.record(SystemPromptFrozen(system=(_words("Be exact."),), tools=({"name": "get"},), tokens=20))
    for number in range(1, TURNS // part + 1):
        text = f"request {number}: the rows of site {number % 7}"
        session.record(UserMessage(text=text, blocks=(_words(text),)))
        use = {"type": "tool_use", "id": f"t{number}", "name": "get", "input": {"site": number % 7}}
        session.record(AssistantMessage(blocks=(use,), stop_reason="tool_use"))
        session.record(UsageReported(usage=Usage(input=100 * number, output=5), cost=0.01))
        session.record(ToolReturned(call=f"t{number}", name="get", blocks=(_words("a row of data\n" * 30),)))
        session.record(AssistantMessage(blocks=(_words(f"answer {number}"),), stop_reason="end_turn"))
        if number % 4 == 0:
            session.record(ResultsCleared(calls=(f"t{number}",), text="[cleared]", layer="clear_results", saved=100))
        session.record(TurnEnded(status="finished"))
    session.close()


def _words(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text}


def rows() -> list[Row]:
    found = measure()
    lines = [
        (f"board, {name} ({what}): open", f"{found['open'][name]:.2f} s", "at most 1 s") for name, what, *_ in PARTS
    ]
    lines.insert(1, ("board, Context: all 2,000 turns are there", f"{found['whole']:.2f} s", ""))
    lines += [
        (f"board, {name}: a frame of a fast scroll, median, 95 %", f"{middle:.0f} ms, {most:.0f} ms", "smooth: 50 ms")
        for name, (middle, most) in found["frames"].items()
    ]
    lines += [
        ("board: nodes in the page", f"{found['nodes']:,}", "under 5,000"),
        ("board: largest message to the page", f"{found['largest'] / 1000:,.0f} kB", "under 1,000 kB"),
    ]
    return lines
