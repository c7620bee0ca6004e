"""A recorded conversation once more, through the real session, loop and layers.

The user says what was said, a scripted model on the practice server answers what was answered, each
call gives what it gave; every request really goes over HTTP, so refusals, cache and usage are the
server's. Background work (summaries, notes) is answered by the practice model. The layers decide
anew: nothing of what the recording's own agent decided is taken over.
"""

from __future__ import annotations

import asyncio
import tempfile
import time
from collections import Counter, deque
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import replace
from pathlib import Path
from typing import Any

from ipyagent.assembly.listening import Unseen
from ipyagent.assembly.prompt import render
from ipyagent.assembly.requests import Options
from ipyagent.assembly.restoring import restored
from ipyagent.assembly.wiring import endpoint_of, limit_of, limits_of, state_of
from ipyagent.config import IPyAgent
from ipyagent.context.thresholds import check_fixed_part
from ipyagent.errors import UsageError
from ipyagent.journal.admission import text_block
from ipyagent.journal.events import (
    Collapsed,
    Compacted,
    Event,
    ForkEnded,
    LayerFailed,
    ModelChosen,
    ResultsCleared,
    ResultStored,
    ServerEdited,
    SessionStarted,
    Snipped,
    UserSaid,
)
from ipyagent.journal.protocols import Model, ModelEvent, ModelInfo, Request
from ipyagent.journal.tokens import estimate_blocks
from ipyagent.loop.layers import Engine, known_layers
from ipyagent.loop.permissions import Permissions
from ipyagent.loop.session import Session
from ipyagent.loop.turn import run_turn
from ipyagent.model.client import AnthropicModel
from ipyagent.model.request_body import body_of
from ipyagent.practice.models import PRACTICE
from ipyagent.practice.replies import Reply
from ipyagent.practice.server import PracticeServer
from ipyagent.practice.understanding import answer
from ipyagent.replay.facts import Fact, Fate, fate
from ipyagent.replay.metrics import Metrics, TurnCost, added, dollars_of, usage_of
from ipyagent.replay.recorded_tools import ReplayWorkspace, tools_of
from ipyagent.replay.recording import RecordedTurn, Recording, Round
from ipyagent.tools.catalogue import builtin_tools
from ipyagent.version import __version__

WINDOW = 200_000
CHUNK = 20_000
"""Characters in one event of a replayed stream: nobody watches it grow."""
EDITOR = "edit_file"
"""Our tool that background work (notes) needs."""
FIXED: dict[str, Any] = {"model": PRACTICE, "trust_all": True, "max_retries": 0}
"""Settings that every replay has."""
MOST_REPLIES = 100_000
_DECISIONS = (Collapsed, Compacted, ResultsCleared, ResultStored, ServerEdited, Snipped)


def layer_names() -> list[str]:
    """The layers that can be switched, cheapest first, and `reactive`."""
    switches = {name.removeprefix("layer_") for name in IPyAgent.class_trait_names() if name.startswith("layer_")}
    known = [layer.name for layer in known_layers() if layer.name in switches]
    return [*known, *sorted(switches - set(known))]


def settings_for(
    *, layers: Iterable[str] | None, window: int, engine: str = "client", **settings: Any
) -> IPyAgent:
    """Settings with exactly these layers on (None: the defaults). Raises UsageError for names that
    no layer has."""
    names = layer_names()
    made = IPyAgent(environ={}, window=window, engine=engine, **FIXED, **settings)
    if layers is not None:
        wanted = list(layers)
        if unknown := [name for name in wanted if name not in names]:
            raise UsageError(f"no layer {unknown[0]!r}; known: {', '.join(names)}, or all, or none")
        for name in names:
            setattr(made, f"layer_{name}", name in wanted)
    return made


def replay(recording: Recording, settings: IPyAgent, facts: Sequence[Fact] = ()) -> Metrics:
    """Replay a recording; blocks until it is done. Runs in a loop of its own: call it where none runs.

    Raises WindowTooSmall when not even system prompt and tools fit the window.
    """
    with tempfile.TemporaryDirectory(prefix="ipyagent-replay-") as place:
        return asyncio.run(_Replay(recording, settings, Path(place).resolve()).run(facts))


class _Script:
    """What the server answers next: the recording's reply to a request of the conversation, the
    practice model's to one of the background."""

    def __init__(self) -> None:
        self.rounds: deque[Round] = deque()
        self.purpose = ""

    def __call__(self, body: dict[str, Any]) -> Reply:
        if self.purpose or not self.rounds:
            return replace(answer(body), chunk=CHUNK)
        made = self.rounds.popleft()
        stop = "tool_use" if made.calls else "end_turn"
        return Reply(made.blocks, stop, chunk=CHUNK)


class _Recorded:
    """A `Model` that tells the script what each request is for; the user of the recording stops where
    the recording has no further reply."""

    def __init__(self, model: AnthropicModel, script: _Script) -> None:
        self._model = model
        self._script = script

    async def stream(self, request: Request) -> AsyncIterator[ModelEvent]:
        self._script.purpose = request.purpose
        if not request.purpose and not self._script.rounds:
            raise asyncio.CancelledError
        async with aclosing(self._model.stream(request)) as events:  # type: ignore[type-var] # an async generator
            async for event in events:
                yield event

    async def info(self, model: str) -> ModelInfo:
        return await self._model.info(model)

    async def close(self) -> None:
        await self._model.close()


class _Watcher(Unseen):
    """Counts what the layers did."""

    def __init__(self) -> None:
        self.forks: Counter[str] = Counter()
        self.decisions: Counter[str] = Counter()
        self.failures: list[str] = []

    def show(self, event: Event) -> None:
        if isinstance(event, ForkEnded):
            self.forks[event.purpose] += event.requests
        elif isinstance(event, LayerFailed):
            self.failures.append(f"{event.layer}: {event.why}")
        elif isinstance(event, Compacted):
            self.decisions[f"compacted by {event.method}"] += 1
        elif isinstance(event, _DECISIONS):
            self.decisions[type(event).__name__] += 1


class _Replay:
    def __init__(self, recording: Recording, settings: IPyAgent, place: Path) -> None:
        self.recording = recording
        self.settings = settings
        self.place = place
        self.script = _Script()
        self.watcher = _Watcher()

    async def run(self, facts: Sequence[Fact]) -> Metrics:
        began = time.monotonic()
        settings = self.settings
        with PracticeServer(self.script, window=settings.window or WINDOW, keep_bodies=False) as server:
            settings.base_url = server.url
            session = Session.create(self.place, SessionStarted(session="replay", version=__version__))
            model = AnthropicModel(endpoint_of(settings))
            try:
                workspace = await self._connect(session, model)
                turns = [
                    await self._turn(session, workspace, server, number, turn)
                    for number, turn in enumerate(self.recording.turns, 1)
                ]
                ends: Fate = fate(facts, _shown(session, server), session.journal.folder)
            finally:
                session.close()
                await model.close()
            refusals = tuple(exchange.error for exchange in server.messages if exchange.outcome == "refused")
        layers = tuple(name for name in layer_names() if getattr(settings, f"layer_{name}"))
        return Metrics(
            source=self.recording.source,
            window=settings.window or WINDOW,
            engine=settings.engine,
            layers=layers,
            turns=tuple(turns),
            refusals=refusals,
            forks=dict(self.watcher.forks),
            decisions=dict(self.watcher.decisions),
            failures=tuple(self.watcher.failures),
            fate=ends,
            seconds=round(time.monotonic() - began, 2),
        )

    async def _connect(self, session: Session, model: AnthropicModel) -> ReplayWorkspace:
        """Wire the session as an agent does, with the recording's tools."""
        settings = self.settings
        workspace = ReplayWorkspace(self.place, limits=lambda name: limit_of(settings, name, settings.window or WINDOW))
        tools = tools_of(self.recording, {EDITOR: builtin_tools()[EDITOR]})
        info = await model.info(PRACTICE)
        scripted: Model = _Recorded(model, self.script)
        session.surface = self.watcher
        session.connect(
            scripted,
            info,
            tools=tools,
            permissions=Permissions(self.place / "rules.json", self.place, mode="auto"),
            limits=limits_of(settings, Options(max_turns=MOST_REPLIES), info),
            state=lambda tokens: state_of(settings, info, tokens),
            setting=lambda name: getattr(settings, name),
            restoring=lambda workspace: restored(workspace, settings, window=info.window),
        )
        rendered = render(tools)
        check_fixed_part(rendered.tokens, rendered.tool_tokens, session.state(0))
        session.record(rendered)
        session.record(ModelChosen(model=PRACTICE, window=info.window, max_output=info.max_output))
        return workspace

    async def _turn(
        self, session: Session, workspace: ReplayWorkspace, server: PracticeServer, number: int, turn: RecordedTurn
    ) -> TurnCost:
        """One turn and the background work that it began."""
        before = len(server.log)
        self.script.rounds = deque(turn.rounds)
        text = "\n".join(str(block["text"]) for block in turn.asked if block["type"] == "text")
        said = UserSaid(text=text, blocks=turn.asked, tokens=estimate_blocks(turn.asked))
        ended = await run_turn(session, said, workspace)
        if ended.status in ("finished", "limit"):
            await Engine(session, workspace, behind=True).turn_end()
        usages = [usage_of(dict(exchange.usage)) for exchange in server.log[before:] if exchange.usage]
        return TurnCost(
            number=number,
            requests=sum(_is_request(exchange.path) for exchange in server.log[before:]),
            usage=added(usages),
            dollars=sum(dollars_of(usage) for usage in usages),
            window=session.view.count().tokens,
            status=ended.status,
            message=ended.message,
        )


def _shown(session: Session, server: PracticeServer) -> list[dict[str, Any]]:
    """The messages of the next request as the model would read them: without what the server leaves out."""
    system, tools, messages = session.view.wire(marks=False)
    edits = session.server_edits()
    if edits is None:
        return messages
    asked = [*messages, {"role": "user", "content": [text_block("Go on.")]}]
    request = Request(
        model=PRACTICE, system=system, tools=tools, messages=asked, max_tokens=session.limits.max_tokens, edits=edits
    )
    body = body_of(request, session.info, lacking=(), thinking=True, limit=request.max_tokens, betas="")
    betas = frozenset(body.pop("extra_headers", {}).get("anthropic-beta", "").split(","))
    further = body.pop("extra_body", {})
    return server.judge.accept({**body, **further}, betas, counting=True).read.messages()


def _is_request(path: str) -> bool:
    return path.partition("?")[0] == "/v1/messages"


def chosen_layers(text: str) -> list[str] | None:
    """The layers that a command line names: `a,b`, `none`, or `all` (None: the defaults)."""
    names: Mapping[str, list[str] | None] = {"all": layer_names(), "none": [], "default": None}
    return names[text] if text in names else [name.strip() for name in text.split(",") if name.strip()]
