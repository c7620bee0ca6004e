"""Background work on the memories, done now because the user asked: behind the same door as a turn, so that
Stop and an interrupt end it."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from ipyagent.assembly.requests import Options
from ipyagent.errors import UsageError
from ipyagent.journal.events import ForkEnded
from ipyagent.memory.extract import PURPOSE
from ipyagent.parts.memory import MemoryPart

if TYPE_CHECKING:
    from ipyagent.agent import Agent
    from ipyagent.kernel.dispatcher import MainThreadExecutor


def extract_now(agent: Agent) -> str:
    """Look through what was said since the last extraction; what was saved, in one line. Raises UsageError,
    AgentError, KeyboardInterrupt."""
    agent.check_free()
    session = agent.sessions.take_up()
    if session is None or not session.history.turns:
        raise UsageError("there is no conversation to look through yet: a %%agent cell begins one")
    model = agent.connections.get(agent.model, agent.endpoint())
    before = session.journal.last

    async def run(main: MainThreadExecutor) -> tuple[str, ...] | None:
        try:
            await agent.connect(session, model, agent.tools_now(), Options())
            return await agent.part(MemoryPart).extracting.now(session, agent.workspace(session, main))
        except asyncio.CancelledError:
            return None
        finally:
            await session.synced()

    with agent.occupied() as main:
        saved = main.blocking_door(lambda: run(main))
    spent = [event for event in session.journal.read() if event.id > before and isinstance(event, ForkEnded)]
    costs = [event.cost for event in spent if event.purpose == PURPOSE]
    price = "" if not costs or None in costs else f"; it cost ${sum(cost or 0.0 for cost in costs):.4f}"
    if saved is None:
        return f"stopped{price}"
    if not saved:
        return f"nothing to save{price}"
    names = list(dict.fromkeys(path.removeprefix("/memories/") for path in saved))
    return f"saved: {', '.join(names)}{price}; undo: %memory undo, or %memory history NAME"
