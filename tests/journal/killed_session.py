"""A process that plays a scripted session for ever and says what it shows; it is there to be killed.

    python killed_session.py SESSIONS_FOLDER SEED

Prints one line after each record: the shown event's id and kind. Every kind of event comes up.
"""

from __future__ import annotations

import random
import sys
from pathlib import Path
from typing import Any

from ipyagent.journal.events import (
    AssistantMessage,
    BlockDropped,
    Event,
    FileChanged,
    FilesRestored,
    KernelStarted,
    ModelChosen,
    PermissionAnswered,
    PermissionAsked,
    Retrying,
    SessionStarted,
    Streamed,
    SystemPromptFrozen,
    SystemReminder,
    ThinkingDropped,
    ToolCalled,
    ToolReturned,
    TurnEnded,
    Usage,
    UsageReported,
    UserMessage,
)
from ipyagent.journal.protocols import TurnStatus
from ipyagent.loop.session import Session


class Printer:
    """A surface that shows an event by printing its id and kind to the pipe."""

    can_ask = False

    def show(self, event: Event) -> None:
        print(event.id, type(event).__name__, flush=True)

    def status(self, status: TurnStatus) -> None:
        """Nothing to see."""

    def open(self) -> None:
        """Nothing to open."""

    def close(self) -> None:
        """Nothing to close."""

    async def ask(self, asked: PermissionAsked) -> Any:
        raise EOFError


def text(words: str) -> dict[str, Any]:
    return {"type": "text", "text": words}


def play(session: Session, chance: random.Random) -> None:
    """One turn, with everything that can happen in one."""
    record, last = session.record, lambda: session.journal.last
    image = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "iVBORw0KGgo="}}
    record(ModelChosen(model=chance.choice(["m", "n"])))
    said = record(UserMessage(text="go 中文", blocks=(text("go 中文" * chance.randint(1, 400)), image)))
    for round_ in range(chance.randint(1, 3)):
        record(Retrying(reason="busy", seconds=0.1))
        for piece in ("so ", "far ", "so good"):
            record(Streamed(channel=chance.choice(["text", "thinking"]), text=piece))
        calls = [f"t{last()}_{i}" for i in range(chance.randint(0, 3))]
        uses = tuple({"type": "tool_use", "id": call, "name": "python", "input": {"code": "1"}} for call in calls)
        thinking = {"type": "thinking", "thinking": "hm", "signature": f"s{round_}"}
        record(AssistantMessage(blocks=(thinking, text("so far so good"), *uses), stop_reason="tool_use"))
        record(UsageReported(usage=Usage(input=50, output=9), predicted=50))
        for call in calls:
            record(PermissionAsked(call=call, tool="python", title="run?", text="1"))
            record(PermissionAnswered(call=call, answer="once", by="user"))
            record(ToolCalled(call=call, name="python", input={"code": "1"}))
            session.journal.sync()
            record(FileChanged(call=call, path="a.txt"))
            record(Streamed(channel="tool", text="line\n" * chance.randint(1, 2_000), ref=call))
            record(ToolReturned(call=call, name="python", blocks=(text("done"), image)))
        if not calls:
            record(SystemReminder(text="go on"))
    record(FilesRestored(paths=("a.txt",), since=said.id))
    record(BlockDropped(event=said.id))
    record(ThinkingDropped(upto=last()))
    session.end(TurnEnded(status="finished", variables={"df": "DataFrame"}))


def main(folder: Path, seed: int) -> None:
    session = Session.create(folder, SessionStarted(session="s", version="0"))
    session.surface = Printer()
    session.record(KernelStarted(stamp="k"))
    session.record(SystemPromptFrozen(system=(text("be good"),), tools=(), tokens=5))
    chance = random.Random(seed)
    while True:
        play(session, chance)


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
