"""A line on what a sub-agent is about: three to five words of the cheapest model, which has no tools; what it
does not answer in time or in form is made of the sub-agent's newest call."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Callable
from contextlib import aclosing
from pathlib import PurePath
from typing import Any

from ipyagent.children.child import Child
from ipyagent.children.kinds import words
from ipyagent.errors import ModelError, NoSuchPath, UnknownModel
from ipyagent.journal.events import ForkEnded, ToolCalled, Usage
from ipyagent.journal.protocols import Model, Reply, Request
from ipyagent.loop.metering import Meter
from ipyagent.model.prices import cost_of

PATIENCE = 10.0
MOST_TOKENS = 40
MOST_CHARS = 60
PURPOSE = "progress"
_FORM = re.compile(r"[A-Z]\w*ing(?: \S+){1,6}|\S*正在.{1,30}")
_VERBS = {
    "read_file": "Reading", "grep": "Searching", "glob": "Listing files", "variables": "Looking at variables",
    "write_file": "Writing", "edit_file": "Changing", "python": "Running code", "shell": "Running a command",
    "notebook": "Working on", "memory": "Looking into memory", "load_skill": "Loading the skill",
}  # fmt: skip
_NAMING = ("path", "name", "pattern", "file", "notebook")


async def progress_line(
    child: Child, model: Model | None, name: str, record: Callable[[ForkEnded], Any], missing: Callable[[str], object]
) -> str:
    """The line; `record` takes what it cost, `missing` the model's name where the server does not have it."""
    if model is None or not name:
        return plain_line(child)
    said = f"<doing>\nTask: {child.task}\nNow: {child.phase}\n{child.doing()}\n</doing>"
    request = Request(
        model=name,
        system=[{"type": "text", "text": words("progress")}],
        tools=[],
        messages=[{"role": "user", "content": [{"type": "text", "text": said}]}],
        max_tokens=MOST_TOKENS,
        thinking=False,
        purpose=PURPOSE,
    )
    began, meter, status, answer = time.monotonic(), Meter(), "stopped", ""
    usage: Usage | None = None
    try:
        async with asyncio.timeout(PATIENCE), aclosing(model.stream(request)) as events:  # type: ignore[type-var] # an async generator
            async for event in events:
                meter.take(event)
                if isinstance(event, Reply):
                    usage, status = event.usage, "finished"
                    blocks = event.said.blocks
                    answer = " ".join(str(block["text"]) for block in blocks if block["type"] == "text")
    except (ModelError, TimeoutError) as problem:
        status = "failed"
        if isinstance(problem, UnknownModel) and not isinstance(problem, NoSuchPath):
            missing(name)
    finally:
        usage = usage or meter.usage or Usage()
        known = model.known(name)
        cost = cost_of(name, usage, server=known.server if known is not None else "")
        seconds = round(time.monotonic() - began, 3)
        record(
            ForkEnded(
                purpose=PURPOSE, status=status, usage=usage, cost=cost, seconds=seconds, model=name
            )
        )
    line = " ".join(answer.split()).strip(" .\"'`")[:MOST_CHARS]
    return line if _FORM.fullmatch(line) else plain_line(child)


def plain_line(child: Child) -> str:
    """The same without a model."""
    last = child.last
    if not isinstance(last, ToolCalled):
        return child.phase[:1].upper() + child.phase[1:] if child.phase else ""
    verb = _VERBS.get(last.name, f"Using {last.name}")
    named = next((str(last.input[key]) for key in _NAMING if last.input.get(key)), "")
    return f"{verb} {PurePath(named).name}".strip()[:MOST_CHARS]
