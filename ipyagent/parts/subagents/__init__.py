"""What sub-agents of this kernel are given: a model, tools, rights, a head, a namespace. Never more than their
parent has."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from functools import lru_cache, partial
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Annotated, Any
from weakref import WeakSet

import msgspec

from ipyagent.assembly.requests import Options
from ipyagent.assembly.session_setup import fitted
from ipyagent.assembly.settings import endpoint_of, limits_of, small_model_of, state_of
from ipyagent.assembly.system_prompt import render
from ipyagent.errors import AgentError, ToolFailure, UsageError
from ipyagent.journal.blocks import text_block
from ipyagent.journal.events import ChildEnded, ChildStarted, Event, FileChanged, ModelChosen, SystemPromptFrozen
from ipyagent.journal.journal import CHILDREN
from ipyagent.journal.protocols import Model, Tool, ToolOutput, Workspace
from ipyagent.journal.tokens import estimate_blocks
from ipyagent.kernel.dispatcher import MainThreadProxy
from ipyagent.kernel.scope import IsolatedNamespace, users_namespace
from ipyagent.kernel.variables import short_types, summarize
from ipyagent.kernel.workspace import KernelWorkspace, Names
from ipyagent.loop.mailbox import (
    ALL,
    PARENT,
    MessageOrder,
    checked_letter,
    letter_of,
    nobody_called,
    note_sent,
    post,
    tell_all,
)
from ipyagent.loop.redacting import without_secrets
from ipyagent.loop.session import Limits, Session
from ipyagent.loop.session_state import SENDING as SEND
from ipyagent.loop.watching import CodeWatch
from ipyagent.model.client_pool import LOCAL, PRACTICE
from ipyagent.parts import Command, Grant, Part, RunningAgent, Section, Turn
from ipyagent.parts.subagents.pool import Children, NoChildren, SubagentOrder, SubagentPool
from ipyagent.parts.subagents.subagent import NAME as HAND_BACK
from ipyagent.parts.subagents.subagent import Subagent, SubagentMainThread, told
from ipyagent.parts.subagents.types import FOLDER, SubagentType, built_in, defined
from ipyagent.tools.answers import text_output
from ipyagent.tools.catalogue import builtin_tools
from ipyagent.tools.schema import FunctionTool, tool

if TYPE_CHECKING:
    from ipyagent.assembly.session_setup import SessionSetup
    from ipyagent.ui.board import BoardHost, BoardTab


NAME = "agent"
SEEN = "hand many steps or independent pieces to a sub-agent"
"""What the model is told of it before it looks."""
OFF = "sub-agents are off (the setting `subagents`)"
LOOKS = "This agent only looks: say in your answer what should be changed."
_ABOUT = """Give work to a sub-agent and get its answer: many steps of which you need only the result, or independent
pieces, side by side in one message. Say all it must know and what to answer. Its `python` has a copy of the user's
namespace: only what it hands back by name reaches the user.
{kinds}

Args:
    background: Go on; the answer comes in a later message.
    resume: Id of an earlier one that goes on.
"""


def tool_for(kinds: Mapping[str, str]) -> FunctionTool:
    """The tool for these types: a sentence on each by name, the usual one first; for the same types the same one."""
    return _tool_for(tuple(kinds.items()))


@lru_cache(maxsize=16)
def _tool_for(kinds: tuple[tuple[str, str], ...]) -> FunctionTool:
    from pydantic import Field

    names: list[Any] = [name for name, _ in kinds]
    usual = names[0] if names else "general"
    about = "\n".join(f"- {name}: {said}" for name, said in kinds)

    async def agent(
        task: str,
        prompt: str,
        type: Any = usual,
        background: bool = False,
        resume: str = "",
        *,
        workspace: Workspace,
    ) -> ToolOutput:
        access = getattr(workspace, "children", None)
        if not isinstance(access, Children):
            raise ToolFailure(OFF)
        order = SubagentOrder(task=task, prompt=prompt, kind=str(type), background=background, resume=resume)
        return await access.start(order, workspace, str(getattr(workspace, "call", "")))

    agent.__doc__ = _ABOUT.format(kinds=about)
    agent.__annotations__["type"] = Annotated[str, Field(json_schema_extra={"enum": names})]
    return tool(name=NAME, permission="none", writes=False, parallel=True, deferred=SEEN)(agent)


class SubagentMail:
    """A `Messages` of a sub-agent: it writes to its parent and to its siblings."""

    def __init__(self, child: Subagent, family: SubagentPool, patience: float) -> None:
        self._child, self._family, self._patience = child, family, patience

    def __repr__(self) -> str:
        return f"<SubagentMail of {self._child.name}>"

    async def send(self, order: MessageOrder, call: str) -> ToolOutput:
        """Deliver it; a plan waits for its answer. Raises ToolFailure."""
        child, family, to = self._child, self._family, order.to.strip()
        session = child.session
        assert session is not None
        said = checked_letter(order.text)
        if order.kind in ("shutdown_request", "plan_response"):
            raise ToolFailure(f"`{order.kind}` is for your parent; write with kind `text`")
        letter = letter_of(session, order, said, call, child.name)
        if to == PARENT:
            if order.kind == "plan_request" and child.plan is not None:
                raise ToolFailure("a plan of yours waits for its answer already")
            journal = family.session.journal
            try:
                await asyncio.to_thread(post, journal.folder, msgspec.structs.replace(letter, session=journal.session))
            except AgentError as problem:
                raise ToolFailure(str(problem)) from None
            child.parting = child.parting or order.kind == "shutdown_response"
            note_sent(session, letter, (PARENT,), call)
            if order.kind == "plan_request":
                return await self._waited()
            return text_output("Delivered to your parent; it reads it at its next step.", note="to parent")
        if order.kind != "text":
            raise ToolFailure(f"a `{order.kind}` goes to `parent`")
        siblings = [each for each in family.running() if each is not child]
        chosen = [each for each in siblings if to in ALL or to in (each.name, each.id)]
        if not chosen and to not in ALL:
            raise ToolFailure(nobody_called(to, [PARENT, *sorted(each.name for each in siblings)]))
        return tell_all(session, chosen, letter, call, "no other sub-agent is running; your parent is `parent`")

    async def _waited(self) -> ToolOutput:
        """The answer to the plan that was sent."""
        child = self._child
        child.plan = asyncio.get_running_loop().create_future()
        child.asks.set()
        try:
            with child.waiting():
                approved, why = await asyncio.wait_for(child.plan, self._patience)
        except TimeoutError:
            raise ToolFailure(
                f"the plan got no answer within {self._patience:g} s (IPyAgent.plan_wait): do not carry it out; "
                "end your turn with the plan as your answer"
            ) from None
        finally:
            child.plan = None
            child.asks.clear()
        if approved:
            return text_output(f"The plan is approved. {why}".strip(), note="approved")
        return text_output(f"The plan is rejected: {why}\nDo not carry it out as it is.", note="rejected")


MEMORY = "memory"
LEAST_BUDGET = 0.0001
"""Dollars that a sub-agent may spend when its parent's limit is reached: the parent asks the user then."""
VARIABLES = 1_500


class SubagentManager(Part):
    """A `Nursery` (see `pool`) of one kernel; `spent` notes dollars of the day, `notice` takes lines
    for the user, `tools` gives the tools that there are now."""

    name, order = "subagents", 40

    def __init__(self, host: SessionSetup) -> None:
        self._setup = host
        self._connections = host.connections
        self._spent = host.note_spent
        self._notice = host.notice
        self._told: set[str] = set()
        self._families: WeakSet[SubagentPool] = WeakSet()
        self._lock = Lock()
        self._at_work: Session | None = None
        self.mains = MainThreadProxy()

    def __repr__(self) -> str:
        return f"<SubagentManager {', '.join(child.name for child in self.at_work()) or 'nobody runs'}>"

    @property
    def on(self) -> bool:
        """Whether the setting lets the model start sub-agents."""
        return bool(self._setup.settings.subagents)

    def tools(self, session: Session | None) -> Mapping[str, Tool]:
        """The tool for the types that there are now, by its name; nothing when they are off."""
        found: dict[str, Any] = {}
        if self.on:
            found[NAME] = tool_for({name: kind.about for name, kind in self.kinds().items()})
        return found

    def live_tab(self, host: BoardHost) -> BoardTab:
        from ipyagent.parts.subagents.tab import SubagentsTab

        return SubagentsTab(host, self)

    def commands(self) -> Mapping[str, Command]:
        about = "List the session's sub-agents, list their types, or stop one."
        run = partial(run_subagents, self._setup.agent)
        return {"subagents": Command(run, about, "[list | types | stop NAME]", looks=True)}

    def services(self, session: Session, others: Mapping[str, object]) -> Mapping[str, object]:
        return {"children": self.family(session)}

    def family(self, session: Session) -> SubagentPool:
        """The sub-agents of a session."""
        family = session.kept(SubagentPool, lambda: SubagentPool(session, self))
        with self._lock:
            self._families.add(family)
        return family

    def at_work(self) -> tuple[Subagent, ...]:
        """Those of every session that have not ended."""
        return tuple(child for family in self._all() for child in family.running())

    def running(self) -> str:
        return "sub-agents" if self.at_work() else ""

    def stop_one(self, name: str) -> None:
        """Stop one by its name or id, from any thread; its parent goes on."""
        if (loop := self._setup.thread.running) is not None:
            with suppress(RuntimeError):  # the loop is closed: nobody runs on it any more
                loop.call_soon_threadsafe(lambda: self.stop(name=name))

    def _all(self) -> tuple[SubagentPool, ...]:
        with self._lock:  # the main thread asks, too
            return tuple(self._families)

    @asynccontextmanager
    async def turn(self, turn: Turn) -> AsyncIterator[None]:
        """Sub-agents get the main thread, and the model what those in the background said."""
        session, main = turn.session, turn.main
        family = self.family(session)
        family.close_lost()
        self._at_work = session
        try:
            with session.first(family.before_request), self.mains.serving(main):
                yield
        finally:
            if self._at_work is session:  # else a later turn is at work, which this one has outlived a Stop into
                self._at_work = None

    async def turn_stopped(self, session: Session) -> None:
        await self.family(session).stopped("the turn was stopped")

    def stop(self, why: str = "the user stopped it", name: str = "") -> None:
        """Stop one, or all, of every session. On the agent thread."""
        for family in self._all():
            family.stop(why, name)

    async def aclose(self) -> None:
        """Stop all and wait for it, a short time."""
        await asyncio.gather(*(family.stopped("the session was let go of") for family in self._all()))

    # ------------------------------------------------------------------ a nursery

    def kinds(self) -> dict[str, SubagentType]:
        """Ours, the user's, a trusted project's."""
        project, settings = self._setup.project, self._setup.settings
        folders = [project.user / FOLDER]
        if settings.trust_all or project.trusted:
            folders.append(project.folder / FOLDER)
        ours = built_in()
        found = defined(folders, tuple(ours), project.root)
        for line in found.problems:
            self._tell(line)
        theirs = [Path(kind.source) for kind in found.kinds.values() if not settings.trust_all]
        for line in project.arrivals(file for file in theirs if file.is_relative_to(project.folder)):
            self._notice(line)
        return {**ours, **found.kinds}

    def number(self, name: str) -> float:
        return float(getattr(self._setup.settings, name))

    async def connect(self, child: Subagent, session: Session, parent: Session, *, fresh: bool) -> None:
        kind, settings = child.kind, self._setup.settings
        session.redact = parent.redact
        if kind.fork:
            session.connect(
                parent.model,
                parent.info,
                tools=parent.tools,
                permissions=parent.permissions,
                limits=self._within(parent, parent.limits),
                state=lambda _, tokens: parent.state(tokens),
                setting=parent.setting,
                restoring=parent.restoring,
            )
            return
        name, model = await self._model(kind, parent)

        async def give(name: str, model: Model, tools: dict[str, Tool] | None = None) -> ModelChosen:
            info = msgspec.structs.replace(await model.info(name), model=name)
            session.connect(
                model,
                info,
                tools=self._tools(child, parent, state_of(settings, info, 0).window) if tools is None else tools,
                permissions=parent.permissions.with_mode("read_only", LOOKS) if kind.looks else parent.permissions,
                limits=self._within(parent, limits_of(settings, Options(), info)),
                state=lambda info, tokens: state_of(settings, info, tokens),
                setting=parent.setting,
                restoring=_nothing,
                instead=parents if kind.model == "small" else None,
            )
            return ModelChosen(model=name, window=info.window, max_output=info.max_output)

        async def parents() -> bool:
            """The parent's model does the work where the server does not have the small one."""
            if session.info.model == parent.info.model or not self.no_small(session.info.model):
                return False
            session.record(await give(parent.info.model, parent.model, session.tools))
            return True

        chosen = await give(name, model)
        if not fresh and session.view.system:
            return
        session.record(self._head(kind, session.tools, session))
        session.record(chosen)

    async def scope(self, child: Subagent) -> tuple[IsolatedNamespace | None, str]:
        shell = self._setup.shell

        def make() -> tuple[IsolatedNamespace | None, str]:
            words = summarize(users_namespace(shell), limit=VARIABLES, hidden=shell.user_ns_hidden)
            context = f"Variables now:\n{words}" if words else "Variables now: none."
            if child.kind.looks:
                return None, context
            made: IsolatedNamespace | None = None
            function = child.hands.function(lambda: made.namespace if made is not None else {})
            made = IsolatedNamespace(shell, {HAND_BACK: function})
            return made, context

        return await self.mains.call(make)

    def workspace(
        self, child: Subagent, session: Session, parent: Session, workspace: Workspace, call: str
    ) -> KernelWorkspace:
        setup = self._setup
        assert isinstance(workspace, KernelWorkspace)

        def record(event: Any) -> Event:
            if isinstance(event, FileChanged):  # `%agent undo` puts back what sub-agents changed too
                parent.record(msgspec.structs.replace(event, call=call))
            return session.record(event)  # type: ignore[no-any-return] # as it was given

        services: dict[str, Any] = {}
        for part in setup.parts:
            if part.name not in (self.name, "messages"):
                services.update(part.services_below(session, workspace, _grant(child.kind)))
        on = setup.settings.messages and "messages" in setup.parts
        mail = SubagentMail(child, self.family(parent), setup.settings.plan_wait) if on else None
        services |= {"children": NoChildren(session), "messages": mail}
        return replace(
            workspace,
            main=SubagentMainThread(self.mains, child),
            watched=session.kept(CodeWatch, lambda: CodeWatch(session)).run,
            record=record,
            allowed=(*workspace.allowed, session.journal.folder),
            read_stamps=dict(workspace.read_stamps) if child.kind.fork else {},
            cell_ids=dict(workspace.cell_ids) if child.kind.fork else {},
            names=Names(),
            **services,
            scope=child.scope,
        )

    async def give(self, child: Subagent) -> tuple[dict[str, str], str]:
        shell = self._setup.shell

        def put() -> tuple[dict[str, str], str]:
            namespace = users_namespace(shell)
            given = child.hands.give(namespace)
            self._setup.names.types |= short_types({name: namespace[name] for name in given})
            return given, told(given, namespace)

        return await self.mains.call(put)

    async def small(self, parent: Session) -> tuple[Model | None, str]:
        name = small_model_of(self._setup.settings)
        if not name:
            return None, ""
        try:
            return (await self._connected(name, parent)), name
        except AgentError:
            return None, ""

    def no_small(self, name: str) -> bool:
        return self._setup.no_small(name)

    def paid(self, parent: Session, cost: float | None, most: float) -> None:
        if parent is self._at_work:
            known = parent.turn_cost is not None and cost is not None
            parent.turn_cost = (parent.turn_cost or 0.0) + (cost or 0.0) if known else None
        elif most:
            self._spent(most)

    # ------------------------------------------------------------------ parts

    async def _model(self, kind: SubagentType, parent: Session) -> tuple[str, Model]:
        name = small_model_of(self._setup.settings) if kind.model == "small" else kind.model
        name = name or parent.info.model
        return name, await self._connected(name, parent)

    async def _connected(self, name: str, parent: Session) -> Model:
        own = _own(name)
        if own == _own(parent.info.model) and (not own or name == parent.info.model):
            return parent.model
        return await asyncio.to_thread(self._connections.get, name, endpoint_of(self._setup.settings))

    def _tools(self, child: Subagent, parent: Session, window: int) -> dict[str, Tool]:
        kind = child.kind
        tools = {name: tool for name, tool in parent.tools.items() if name != NAME}
        if kind.memory:
            if self._granted(kind):
                tools.setdefault(MEMORY, builtin_tools()[MEMORY])
            else:
                tools.pop(MEMORY, None)
                if MEMORY not in self._setup.parts:
                    self._tell(f"sub-agent {kind.name} has no memory: the part was left out of this agent")
        if kind.tools is not None:
            keep = {*kind.tools, *([MEMORY] if kind.memory else [])}
            on = {str(given["name"]) for given in self._setup.settings.server_tools}
            if missing := sorted({*kind.tools} - {*tools, SEND, *on}):
                self._tell(f"sub-agent {kind.name}: there is no tool {', '.join(missing)}")
            tools = {name: tool for name, tool in tools.items() if name in keep}
        kept, _ = fitted(tools, window, all_listed=kind.tools is not None)
        return kept

    def _head(self, kind: SubagentType, tools: dict[str, Tool], session: Session) -> SystemPromptFrozen:
        """Our prompt and the tools, what people wrote for the agent too unless it only looks, and its own words."""
        # what a type names it has before its eyes; a search finds what the others have all the same
        redact = self._setup.redactor
        server = self._setup.system_prompt.childs_server(session, tools, kind.tools)
        base = render(tools, redact=redact, all_listed=kind.tools is not None, server=server)
        more = [text_block(kind.prompt)]
        if kind.memory:
            more += [text_block(section.text) for section in self._granted(kind) if section.text]
        if not kind.looks:  # with a memory of its own, the agent's is not its business
            told = {name: tool for name, tool in tools.items() if not (kind.memory and name == MEMORY)}
            rendered = self._setup.system_prompt.rendered(told, session.state(0))
            base = msgspec.structs.replace(base, system=rendered.system, memories=rendered.memories)
        system = (*base.system, *without_secrets(more, redact))
        return msgspec.structs.replace(base, system=system, tokens=base.tool_tokens + estimate_blocks(system))

    def _within(self, parent: Session, limits: Limits) -> Limits:
        """The limits with what is left of the parent's money."""
        most = parent.limits.max_cost
        left = max(LEAST_BUDGET, most - parent.turn_at_most) if most else 0.0
        turns = int(self._setup.settings.subagent_turns)
        return msgspec.structs.replace(limits, max_turns=turns, max_cost=left, max_cost_per_day=0.0)

    def _granted(self, kind: SubagentType) -> list[Section]:
        """What parts give the type for itself alone."""
        return [found for part in self._setup.parts if (found := part.granted(_grant(kind))) is not None]

    def _tell(self, line: str) -> None:
        if line not in self._told:
            self._told.add(line)
            self._notice(line)


def _grant(kind: SubagentType) -> Grant:
    return Grant(kind.name, looks=kind.looks, memory=kind.memory)


async def _nothing(workspace: Workspace) -> list[tuple[str, str]]:
    return []


def _own(name: str) -> bool:
    return name == PRACTICE or name.startswith(LOCAL)


MOST = 20
"""Newest sub-agents that are listed."""


def run_subagents(agent: RunningAgent, line: str) -> str:
    """The answer of `%agent subagents LINE`: `list`, `stop NAME`, `types`. Raises UsageError."""
    word, _, rest = line.strip().partition(" ")
    match word:
        case "" | "list":
            return _listed(agent)
        case "stop":
            return _stop(agent, rest.strip())
        case "types":
            return "\n".join(f"{name}: {kind.about}" for name, kind in agent.part(SubagentManager).kinds().items())
        case _:
            raise UsageError(f"%agent subagents: list, types or stop NAME, not {word!r}")


def _listed(agent: RunningAgent) -> str:
    session = agent.session
    started: dict[str, ChildStarted] = {}
    ended: dict[str, ChildEnded] = {}
    for event in session.journal.read() if session is not None else ():
        if isinstance(event, ChildStarted):
            started[event.child] = event
            ended.pop(event.child, None)
        elif isinstance(event, ChildEnded):
            ended[event.child] = event
    if session is None or not started:
        return "no sub-agents in this session"
    running = {child.id: child for child in agent.part(SubagentManager).at_work()}
    lines = []
    for child, event in list(started.items())[-MOST:]:
        end = ended.get(child)
        if child in running:
            state = f"running ({running[child].now})"
        elif end is None:
            state = "cut off: the kernel stopped"
        else:
            cost = f", ${end.cost:.4f}" if end.cost else ""
            state = f"{end.status}, {end.requests:,} model call{'s' * (end.requests != 1)}{cost}, {end.seconds:.1f} s"
            state += f": {end.message}" if end.message else ""
        lines.append(f"{child} ({event.kind}, {event.task}): {state}")
    lines.append(f"transcripts: {agent.project.relative(session.journal.folder / CHILDREN)}/ID/transcript.jsonl")
    return "\n".join(lines)


def _stop(agent: RunningAgent, name: str) -> str:
    running = agent.part(SubagentManager).at_work()
    found = [child for child in running if name in (child.name, child.id)]
    if not found:
        known = ", ".join(child.name for child in running) or "none"
        raise UsageError(f"no sub-agent {name!r} is running; running: {known}")
    agent.part(SubagentManager).stop_one(found[0].id)
    return f"stopped {found[0].name}"
