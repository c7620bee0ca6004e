"""A fork's session: a copy of its parent's up to one point, every open call closed with the same words.

Forks of one message share the point, so that their requests are equal to the byte up to the directive; the
prefix that the parent's own request has written to the cache is read from it.
"""

from __future__ import annotations

from itertools import groupby
from pathlib import Path

from ipyagent.children.kinds import words
from ipyagent.errors import ToolFailure
from ipyagent.journal.admission import text_block
from ipyagent.journal.events import Block, SessionStarted, ToolReturned
from ipyagent.journal.journal import CHILDREN, Journal
from ipyagent.journal.tokens import estimate_text
from ipyagent.loop.checkpoint import Replayed
from ipyagent.loop.session import Session

MARK = "<fork-task>"
"""Begins a fork's directive; a conversation with such a block cannot fork."""
PLACEHOLDER = "A fork of you works on this."
REFUSED = "You are a fork, and a fork cannot start sub-agents: do the work yourself, with the other tools."


class Points:
    """Where the forks of a session's newest message branch off."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._known: tuple[tuple[int, int], int] = ((0, -1), 0)

    def point(self, call: str) -> int:
        """The event up to which a fork asked for by `call` knows all: the same for all calls beside it."""
        key = self._place(call)
        if self._known[0] != key:
            self._known = (key, self._session.journal.last)
        return self._known[1]

    def _place(self, call: str) -> tuple[int, int]:
        """The message with this call, and which of its groups of calls that run side by side."""
        session = self._session
        placed = [(block, event) for role, block, event in session.view.placed() if role == "assistant"]
        said = next((event for block, event in reversed(placed) if block.get("id") == call), 0)
        calls = [block for block, event in placed if event == said and block["type"] == "tool_use"]

        def side_by_side(block: Block) -> bool:
            tool = session.tools.get(block["name"])
            return tool is not None and tool.parallel

        for number, (_, group) in enumerate(groupby(calls, key=side_by_side)):
            if any(block["id"] == call for block in group):
                return said, number
        return said, -1


def is_fork(session: Session) -> bool:
    """Whether the conversation is a fork's: the mark stands in it, or it says so of itself."""
    for message in session.view.messages:
        if message["role"] == "user" and any(
            block["type"] == "text" and str(block["text"]).startswith(MARK) for block in message["content"]
        ):
            return True
    started = session.history.started
    return started is not None and started.session == session.journal.session and bool(started.forked_at)


def forked(parent: Session, started: SessionStarted) -> Session:
    """The session of a fork, ready for its directive. Raises JournalError."""
    source = parent.journal.folder
    journal, _ = Journal.fork(source, source / CHILDREN, started, started.forked_at)
    state = Replayed()
    try:
        for event in journal.read():
            state.apply(event)
        session = Session(journal, state)
        for call, name in state.view.open_calls.items():
            said = ({"type": "text", "text": PLACEHOLDER},)
            session.record(ToolReturned(call=call, name=name, blocks=said, tokens=estimate_text(PLACEHOLDER)))
    except BaseException:
        journal.close()
        raise
    return session


def directive(name: str, prompt: str) -> Block:
    """The one block in which forks of one message differ."""
    return text_block(f"{MARK}\n{words('fork').format(name=name)}\n\nThe work:\n{prompt.strip()}\n</fork-task>")


def refuse_forks(session: Session) -> None:
    """Raises ToolFailure in a fork, before anything is sent."""
    if is_fork(session):
        raise ToolFailure(REFUSED)


def folder_of(parent: Session) -> Path:
    """Where the sub-agents of a session keep their transcripts."""
    return parent.journal.folder / CHILDREN
