"""The sub-agents of one session: started by its tool calls, side by side, stopped with it.

Each has a session of its own under its parent's folder, and ends with exactly one `ChildEnded`. What it
spends is its parent's. No more than a few work at once; the others wait. All of this is for the agent thread."""

from __future__ import annotations

import asyncio
import re
import secrets
import time
import traceback
from collections.abc import Awaitable
from contextlib import suppress
from difflib import get_close_matches
from typing import Any, Protocol, runtime_checkable

import msgspec

from ipyagent.context.reminders import guarded
from ipyagent.errors import AgentError, JournalError, ToolFailure
from ipyagent.journal.blocks import text_block
from ipyagent.journal.events import (
    AssistantMessage,
    Block,
    ChildEnded,
    ChildProgress,
    ChildStarted,
    Event,
    ForkEnded,
    SessionStarted,
    SystemReminder,
    UserMessage,
)
from ipyagent.journal.journal import CHILDREN, TRANSCRIPT, clean, read_events
from ipyagent.journal.protocols import Model, ToolOutput, Workspace
from ipyagent.journal.tokens import estimate_blocks, estimate_text
from ipyagent.kernel.scope import IsolatedNamespace
from ipyagent.loop.mailbox import SHUT_DOWN, MailMessage, post
from ipyagent.loop.model_call import write_report
from ipyagent.loop.session import Session
from ipyagent.loop.turn import run_turn
from ipyagent.model.prices import at_most
from ipyagent.parts.subagents.subagent import (
    Points,
    Subagent,
    SubagentSurface,
    directive,
    folder_of,
    forked,
    is_fork,
    progress_line,
    refuse_forks,
)
from ipyagent.parts.subagents.types import SubagentType
from ipyagent.tools.answers import text_output
from ipyagent.version import __version__

# ---- What a parent reads of its sub-agents.

_ADVICE = re.compile(r"; (?:if it happens again|for a bug report)\b.*", re.S)
"""What the user could do about a failure; a parent cannot."""
SAID_CHARS = 2_000
"""Of what one had said that did not come to its end."""


class SubagentOrder(msgspec.Struct, frozen=True, kw_only=True):
    """What a sub-agent is to do: `task` in a few words, `prompt` in full; `kind` its type ("" with `resume`, the
    id of an earlier one that is to go on)."""

    task: str
    prompt: str
    kind: str = ""
    background: bool = False
    resume: str = ""


@runtime_checkable
class Children(Protocol):
    """Starts sub-agents of a session, as the tool sees it."""

    def start(self, order: SubagentOrder, workspace: Workspace, call: str) -> Awaitable[ToolOutput]:
        """Start one, and wait for its answer unless it works in the background. Raises ToolFailure."""


def answer_words(child: Subagent) -> str:
    """Its answer, what it handed back, and how to go on with it."""
    parts = [child.answer.strip() or "(it answered with nothing)"]
    if child.handed:
        parts.append(f"[handed back to the user's namespace: {child.handed_words}]")
    if child.status == "limit":
        parts.append(f"[it did not come to its end: {child.message}]")
    if late := sum(letter.kind != "shutdown_request" for letter in child.inbox):
        many = "1 message" if late == 1 else f"{late} messages"
        parts.append(f"[{many} came too late for it and {'was' if late == 1 else 'were'} not read]")
    parts.append(f"[sub-agent {child.id}, {_calls(child)}, {child.seconds:.1f} s]")
    return "\n".join(parts)


def failure(child: Subagent) -> str:
    """The error of one that did not."""
    how = {"stopped": "was stopped", "refused": "was refused", "failed": "failed"}.get(child.status or "", "failed")
    words = f"The sub-agent {child.name!r} {how}" + (f": {child.message}" if child.message else "") + "."
    if child.answer.strip():
        words += f" Until then it had said:\n{child.answer.strip()[-SAID_CHARS:]}\n"
    return f"{words} Nothing was handed back. [sub-agent {child.id}, {_calls(child)}, {child.seconds:.1f} s]"


def background_words(child: Subagent) -> str:
    """What the model is told later of one in the background."""
    body = answer_words(child) if child.status in ("finished", "limit") else failure(child)
    return f"The sub-agent {child.name!r} ({child.task}) has ended.\n{body}"


def _calls(child: Subagent) -> str:
    return f"{child.requests} model call{'' if child.requests == 1 else 's'}"


WHY = "cut off: the kernel stopped"
PATIENCE = 1.5
"""Seconds that a stopped call waits for its sub-agent to close; the main thread gives a stopped turn two."""
TICK = 0.5
NAME_CHARS = 28


class SubagentPool:
    """A `Children` (see the protocol) for the tool; `running` and `named` for those who write to one."""

    def __init__(self, session: Session, nursery: SubagentFactory) -> None:
        self.session = session
        self._nursery = nursery
        self._points = Points(session)
        self._running: dict[str, Subagent] = {}
        self._room = asyncio.Semaphore(int(nursery.number("subagents_at_once")))
        self._asking = asyncio.Lock()

    def __repr__(self) -> str:
        return f"<SubagentPool of {self.session.journal.session}: {', '.join(self._running) or 'nobody runs'}>"

    def running(self) -> tuple[Subagent, ...]:
        """Those that have not ended, oldest first."""
        return tuple(self._running.values())

    def named(self, name: str) -> Subagent | None:
        """The running one of this name or id."""
        return next((child for child in self._running.values() if name in (child.name, child.id)), None)

    def stop(self, why: str, name: str = "") -> None:
        """Stop one, or all."""
        for child in self.running():
            if not name or name in (child.name, child.id):
                child.stop(why)

    async def stopped(self, why: str) -> None:
        """Stop all and wait for it, a short time."""
        self.stop(why)
        works = [child.work for child in self.running() if child.work is not None]
        if works:
            await asyncio.wait(works, timeout=PATIENCE)

    def close_lost(self) -> None:
        """Those that a killed kernel left without an end get one, from what stands in their transcripts; the model is
        told of them. A session that was copied from another has none of that one's. Raises JournalError."""
        for started in tuple(self.session.history.at_work.values()):
            folder = folder_of(self.session) / started.child
            if started.child in self._running or not folder.is_dir():
                continue
            kind = SubagentType(name=started.kind, about="")
            child = Subagent(started.child, started.name, kind, started.task, background=started.background)
            own: list[Event] = []  # a fork's transcript begins with its parent's, a resumed one's with earlier runs
            with suppress(OSError, JournalError):
                events = list(read_events(folder / TRANSCRIPT))
                own = [event for event in events if event.at >= started.at and not isinstance(event, SessionStarted)]
            for event in own:
                child.saw(event)
                if isinstance(event, AssistantMessage):
                    child.answer = " ".join(str(block["text"]) for block in event.blocks if block["type"] == "text")
            child.status, child.message = "stopped", WHY
            child.began = time.monotonic() - (max(0.0, own[-1].at - started.at) if own else 0.0)
            self.session.record(_ended(child))

    async def before_request(self) -> None:
        """Tell the model of those that ended in the background."""
        untold = self.session.history.untold
        if untold:
            text = "<context>\n" + guarded("\n\n".join(each.text for each in untold)) + "\n</context>"
            count = len(untold)
            why, last = f"{count} sub-agent{'' if count == 1 else 's'} answered", untold[-1].id
            self.session.record(
                SystemReminder(text=text, why=why, tokens=estimate_text(text), layer=CHILDREN, upto=last)
            )

    # ------------------------------------------------------------------ starting

    async def start(self, order: SubagentOrder, workspace: Workspace, call: str) -> ToolOutput:
        """Start one and wait for it, or not. Raises ToolFailure with what the model should read."""
        refuse_forks(self.session)
        if not order.prompt.strip():
            raise ToolFailure("`prompt` is empty: say what the sub-agent is to do")
        child, fresh = self._made(order)
        self._running[child.id] = child  # before anything is awaited: its name is taken
        try:
            point = self._points.point(call) if child.kind.fork and fresh else 0
            child.scope, context = await self._nursery.scope(child)
            self.session.record(
                ChildStarted(
                    child=child.id, name=child.name, kind=child.kind.name, task=child.task, call=call,
                    model=child.kind.model, background=child.background, resumed=not fresh,
                )
            )
        except BaseException:
            del self._running[child.id]
            raise
        child.work = asyncio.create_task(
            self._live(child, order.prompt, workspace, call, point, context, fresh=fresh),
            name=f"ipyagent sub-agent {child.name}",
        )
        child.work.add_done_callback(lambda _: self._never_began(child))
        if child.why:  # it was stopped while it was being made
            child.work.cancel()
        if child.background:
            said = (
                f"The sub-agent {child.name!r} works in the background [{child.id}]. Its answer comes with a later "
                "message. Code that it runs waits while no turn of yours runs. Continue with something else, or end "
                "your turn."
            )
            return text_output(said, note="in the background")
        try:
            await child.ended_or_asks()
        except asyncio.CancelledError:
            child.stop("the turn was stopped")
            workspace.stream(f"[sub-agent {child.id}: pass this id as `resume` to continue it]\n")
            await asyncio.wait((child.work,), timeout=PATIENCE)
            raise
        if child.running:  # it waits for an answer to its plan, which its parent must be able to give
            child.background = True
            said = (
                f"The sub-agent {child.name!r} [{child.id}] has sent you a plan and waits for your answer: "
                "send_message with its name and kind `plan_response`. It then continues in the background; its result "
                "comes with a later message."
            )
            return text_output(said, note="waits for an answer to its plan")
        if child.status not in ("finished", "limit"):
            raise ToolFailure(failure(child))
        handed = f", handed back {', '.join(child.handed)}" if child.handed else ""
        return text_output(answer_words(child), note=f"{child.name}{handed}")

    def _made(self, order: SubagentOrder) -> tuple[Subagent, bool]:
        """The child of an order, and whether it begins afresh."""
        kinds = self._nursery.kinds()
        task = self.session.redact(" ".join(clean(order.task).split()))[:80] or "work"  # a folder is named after it
        if order.resume:
            before = self.session.history.children.get(order.resume)
            if before is None or not (folder_of(self.session) / order.resume).is_dir():
                known = ", ".join(list(self.session.history.children)[-5:]) or "none"
                raise ToolFailure(f"there is no sub-agent {order.resume!r} to resume; the newest are: {known}")
            if order.resume in self._running:
                raise ToolFailure(f"the sub-agent {order.resume!r} is still running; wait for its answer")
            kind = kinds.get(before.kind)
            if kind is None:
                raise ToolFailure(f"its type {before.kind!r} no longer exists; start a new one")
            return Subagent(before.child, before.name, kind, task, background=order.background), False
        kind = kinds.get(order.kind or next(iter(kinds)))
        if kind is None:
            near = get_close_matches(order.kind, kinds, n=1)
            nearest = f"nearest: {near[0]}; " if near else ""
            raise ToolFailure(f"there is no type of sub-agent {order.kind!r}; {nearest}types: {', '.join(kinds)}")
        name = self._name(task)
        return Subagent(f"{name}-{secrets.token_hex(2)}", name, kind, task, background=order.background), True

    def _name(self, task: str) -> str:
        """A short name of the task's words that no running one has."""
        plain = re.sub(r"[^a-z0-9]+", "-", task.lower()).strip("-")[:NAME_CHARS].strip("-") or "agent"
        name, number = plain, 2
        while any(child.name == name for child in self._running.values()):
            name, number = f"{plain}-{number}", number + 1
        return name

    # ------------------------------------------------------------------ living

    async def _live(
        self, child: Subagent, prompt: str, workspace: Workspace, call: str, point: int, context: str, *, fresh: bool
    ) -> None:
        """From its session to its end. Raises nothing: how it ended stands in the child."""
        minder: asyncio.Task[None] | None = None
        status, message = "failed", ""
        try:
            with child.waiting():
                await self._room.acquire()
            try:
                session = child.session = self._session(child, point, fresh=fresh)
                await self._nursery.connect(child, session, self.session, fresh=fresh)
                session.surface = SubagentSurface(child, self.session, self._asking, self._paid)
                own = self._nursery.workspace(child, session, self.session, workspace, call)
                minder = asyncio.create_task(self._mind(child), name=f"ipyagent progress of {child.name}")
                with session.first(child.deliver):
                    ended = await run_turn(session, self._said(child, prompt, context, fresh=fresh), own)
                status, message = ended.status, _ADVICE.sub("", ended.message)
                child.answer = session.history.turns[-1].answer
                if status in ("finished", "limit") and child.hands.values:
                    given, child.handed_words = await self._nursery.give(child)
                    child.handed = tuple(given)
            finally:
                self._room.release()
        except asyncio.CancelledError:
            status = "stopped"
        except AgentError as problem:
            status, message = "failed", str(problem)
        except Exception as problem:  # noqa: BLE001 - a bug of ours: its parent and siblings go on, the user reads where
            where = write_report(self.session.journal.folder, self.session.journal.last, traceback.format_exc())
            status, message = "failed", f"internal error {type(problem).__name__}: {str(problem)[:200]}; {where}"
        finally:
            if minder is not None:
                minder.cancel()
        await self._end(child, status, child.why if status == "stopped" and child.why else message)

    def _never_began(self, child: Subagent) -> None:
        """A task that is cancelled before its first step runs none of its code."""
        if child.running:
            child.work = asyncio.ensure_future(self._end(child, "stopped", child.why))

    def _session(self, child: Subagent, point: int, *, fresh: bool) -> Session:
        folder, parent = folder_of(self.session), self.session.journal.session
        if not fresh:
            return Session.open(folder / child.id)[0]
        started = SessionStarted(session=child.id, version=__version__, forked_from=parent, forked_at=point)
        return forked(self.session, started) if child.kind.fork else Session.create(folder, started)

    def _said(self, child: Subagent, prompt: str, context: str, *, fresh: bool) -> UserMessage:
        redact = self.session.redact  # another agent wrote it, not the user
        prompt, context = redact(clean(prompt)), redact(context)
        blocks: list[Block] = []
        if child.kind.fork and fresh:
            blocks = [directive(child.name, prompt)]
        else:
            blocks += [text_block(f"<context>\n{context}\n</context>")] if context else []
            blocks.append(text_block(prompt))
        return UserMessage(text=prompt, blocks=tuple(blocks), tokens=estimate_blocks(blocks))

    async def _end(self, child: Subagent, status: Any, message: str) -> None:
        child.message = message
        session = child.session
        if session is not None:
            with suppress(JournalError):  # the disk is full: its parent is told what there is
                session.surface = None
                session.close()
        child.scope = None
        child.hands.values.clear()
        child.status = status
        try:
            with suppress(AgentError):  # its mailbox cannot be written: how it ended stands in the child's own event
                await asyncio.to_thread(_farewell, child, self.session)
        finally:
            self._running.pop(child.id, None)
            self._record(_ended(child))

    # ------------------------------------------------------------------ minding

    async def _mind(self, child: Subagent) -> None:
        """Stop it after too long a silence, and say now and then what it is about."""
        silence, every = self._nursery.number("subagent_silence"), self._nursery.number("subagent_progress")
        due, shown = every, ""
        while True:
            await asyncio.sleep(min(TICK, *(each for each in (silence, every) if each), TICK))
            if silence and child.silent >= silence:
                child.stop(f"it gave no sign of work for {silence:g} s (IPyAgent.subagent_silence)")
                return
            if every and child.seconds >= due:
                due = child.seconds + every
                model, name = await self._nursery.small(self.session)
                line = await progress_line(child, model, name, self._note, self._nursery.no_small)
                if line and line != shown and child.running:
                    shown = line
                    self._record(ChildProgress(child=child.id, text=line))

    def _note(self, spent: Event) -> None:
        """What a progress line cost is its parent's."""
        self._record(spent)
        if isinstance(spent, ForkEnded):
            self._paid(spent.cost, at_most(spent.cost, spent.usage))

    def _paid(self, cost: float | None, most: float) -> None:
        self._nursery.paid(self.session, cost, most)

    def _record(self, event: Event) -> None:
        with suppress(JournalError):  # the parent was let go: nobody is there to be told
            self.session.record(event)


class NoChildren:
    """The `Children` of a sub-agent: it has none."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def __repr__(self) -> str:
        return f"<NoChildren of {'a fork' if is_fork(self._session) else 'a sub-agent'}>"

    async def start(self, order: SubagentOrder, workspace: Workspace, call: str) -> ToolOutput:
        """Refused, before anything is sent."""
        refuse_forks(self._session)
        raise ToolFailure("a sub-agent cannot start sub-agents: do the work yourself")


def _ended(child: Subagent) -> ChildEnded:
    """Its end, as it is journalled."""
    return ChildEnded(
        child=child.id, status=child.status or "failed", message=child.message, usage=child.usage, cost=child.cost,
        requests=child.requests, seconds=child.seconds, handed=child.handed,
        text=background_words(child) if child.background else "",
    )  # fmt: skip


def _farewell(child: Subagent, parent: Session) -> None:
    """Tell the parent that the sub-agent which was asked to shut down has done so. Raises AgentError."""
    if (child.closing or child.why == SHUT_DOWN) and not child.parting:
        said = f"The sub-agent {child.name!r} has ended ({child.status})."
        journal = parent.journal
        letter = MailMessage(
            id=f"{child.id}/shutdown/{secrets.token_hex(4)}",
            sender=child.name,
            text=said,
            session=journal.session,
            kind="shutdown_response",
            summary=said,
            at=time.time(),
        )
        post(journal.folder, letter)


# ------------------------------------------------------------------ nursery
# What sub-agents need of the place where they live: models, tools, rights, namespaces, money.


class SubagentFactory(Protocol):
    """What sub-agents are given; the kernel's (`ipyagent.parts.subagents`)."""

    def kinds(self) -> dict[str, SubagentType]:
        """The types there are now, the usual one first."""

    def number(self, name: str) -> float:
        """A setting by its name."""

    def connect(self, child: Subagent, session: Session, parent: Session, *, fresh: bool) -> Awaitable[None]:
        """Give a child's session its model, tools, rights and (when `fresh`) its head. Raises AgentError."""

    def scope(self, child: Subagent) -> Awaitable[tuple[IsolatedNamespace | None, str]]:
        """A namespace for its code, and what stands in it, in words."""

    def workspace(
        self, child: Subagent, session: Session, parent: Session, workspace: Workspace, call: str
    ) -> Workspace:
        """What its tools may touch."""

    def give(self, child: Subagent) -> Awaitable[tuple[dict[str, str], str]]:
        """Put what it hands back into the user's namespace: the names, and those with their types in words."""

    def small(self, parent: Session) -> Awaitable[tuple[Model | None, str]]:
        """The model for progress lines and its name; None: there is none."""

    def no_small(self, name: str) -> bool:
        """The server does not have the small model `name`; whether another stands in for it from now on."""

    def paid(self, parent: Session, cost: float | None, most: float) -> None:
        """Count dollars (None: no price known; `most` for limits) into the parent's turn, or the day."""
