"""What the user asks of dreams: `%memory dream` and `ipyagent dream`. A dream that the user wants runs behind the same
door as a turn, so that Stop and an interrupt end it."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from ipyagent.errors import AgentError, JournalError, UsageError
from ipyagent.parts.memory import MemoryPart
from ipyagent.parts.memory.dream import DreamProgress
from ipyagent.parts.memory.dream_record import undo as undo_last
from ipyagent.parts.memory.dream_record import waiting_in
from ipyagent.parts.memory.dream_run import command, counted, done_line, saved_events
from ipyagent.parts.memory.dream_workspace import Committed, DreamWorkspace
from ipyagent.parts.memory.store import MemoryStore
from ipyagent.parts.memory.transaction import DreamLock

if TYPE_CHECKING:
    from ipyagent.parts import RunningAgent


def dream_now(
    agent: RunningAgent,
    *,
    undo: bool = False,
    dry_run: bool = False,
    accept: bool = False,
    model: str = "",
    scope: str = "project",
) -> str:
    """`%memory dream`: dream now of the memories of `scope`; `dry_run`: only tell what it would do; `accept`: do
    what a dream that waits would do; `undo`: take the last one back, or drop one that waits. Raises UsageError,
    AgentError, KeyboardInterrupt."""
    if undo + dry_run + accept > 1:
        raise UsageError("use only one of --undo, --dry-run and --accept")
    agent.check_free()
    store = agent.part(MemoryPart).memories.store(scope)
    if undo:
        return _undone(agent, store)
    if accept:
        return _accepted(agent, store)
    if not store.list():
        return "there are no memories to tidy"
    made = dream(agent, dry_run=dry_run, model=model, scope=scope)
    if made.status == "failed":
        raise AgentError(f"the dream failed and changed nothing: {made.message}; %memory dream tries again")
    price = f"; it cost ${made.cost:.4f}" if made.cost else ""
    return f"{made.message}{price}"


def dream(agent: RunningAgent, *, dry_run: bool = False, model: str = "", scope: str = "project") -> DreamProgress:
    """Dream now, on the main thread; how it ended. Raises UsageError, AgentError, KeyboardInterrupt."""
    name = model or agent.model
    client = agent.connections.get(name, agent.endpoint())
    dreaming = agent.part(MemoryPart).dreaming
    with agent.occupied() as main:
        return main.blocking_door(lambda: dreaming.run(main, client, name, dry_run=dry_run, scope=scope))


def _undone(agent: RunningAgent, store: MemoryStore) -> str:
    if (waiting := waiting_in(store)) is not None:
        try:
            DreamWorkspace.of(store, waiting).drop()
        except UsageError:  # its copy is gone: only the note was left
            DreamWorkspace(store, waiting.copy, {}).drop()
        return "discarded the dream that was waiting for approval; no memory was changed"
    record, since = undo_last(store)
    redo = f"{command(store.scope)} --undo again takes this back"
    kept = f"; saved since and left as they are: {', '.join(since[:8])}" if since else ""
    what = f": {counted(record.changes)}" if record.changes else ""
    words = "brought back" if record.undone else "undone"
    return f"{words}{what}{kept}; {redo}"


def _accepted(agent: RunningAgent, store: MemoryStore) -> str:
    waiting = waiting_in(store)
    if waiting is None:
        raise UsageError(f"no dream is waiting for approval; {command(store.scope)} starts one")
    staging = DreamWorkspace.of(store, waiting)
    with DreamLock(store.folder, store.lock).acquire(certain=True) as taken:
        made = staging.commit(waiting.session, waiting.changes)
        taken.succeed()
    staging.drop()
    _journal(agent, made)
    return done_line(made, store.scope)


def _journal(agent: RunningAgent, committed: Committed) -> None:
    if agent.session is None:
        return
    with suppress(JournalError):  # the session was let go: what was done stands all the same
        for event in saved_events(committed):
            agent.session.record(event)
