"""`%agent rollback N`: one turn is taken back as a whole. Its files are put back, never over what somebody else or a
later turn has written since, and it leaves the conversation as a recorded decision, which `%compact --undo` reverts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ipyagent.assembly.undoing import undone_turn
from ipyagent.errors import AgentError, UsageError
from ipyagent.journal.events import FilesRestored
from ipyagent.kernel.workspace import BACKUPS
from ipyagent.tools.changes import restore

if TYPE_CHECKING:
    from ipyagent.agent import Agent


def offer(agent: Agent, cell: str) -> str:
    """The line for a cell that is asked again: which turn it had, and how that is taken back; "" for no such turn."""
    session = agent.session
    if session is None or not cell:
        return ""
    for number, turn in reversed(list(enumerate(session.history.turns, 1))):
        if turn.cell == cell and not turn.out:
            return (
                f"you ran this cell before (turn {number}); undo that turn with %agent rollback {number}"
            )
    return ""


def roll_back(agent: Agent, words: str) -> str:
    """Take a turn back, by its number from 1; what was done, in lines. Raises UsageError."""
    agent.check_free()
    session = agent.sessions.take_up()
    count = len(session.history.turns) if session is not None else 0
    if not count:
        raise UsageError("%agent rollback N: this session has no turn yet")
    if session is None or not words.isdecimal() or not 1 <= int(words) <= count:
        known = f"N is a turn from 1 to {count} (%context --turns lists them)" if count > 1 else "there is only turn 1"
        raise UsageError(f"%agent rollback N: {known}" + (f", not {words!r}" if words else ""))
    number = int(words)
    turn = session.history.turns[number - 1]
    changes = session.history.files.of(number)
    undone = restore(changes, agent.project.root, session.journal.folder / BACKUPS)
    if changes:
        session.record(FilesRestored(paths=undone.restored, since=changes[0].id, upto=changes[-1].id))
    lines = undone_turn(session, agent.project.root, number, undone).lines()
    if turn.out:
        return "\n".join([*lines, "it was taken out of the conversation before"])
    try:
        return "\n".join([*lines, agent.compact(f"--snip {number}")])
    except AgentError as problem:
        return "\n".join([*lines, f"it stays in the conversation: {problem}"])
