"""A recorded conversation once more, through the real session, loop and layers.

The user says what was said, a scripted model on the practice server answers what was answered, each
call gives what it gave; every request really goes over HTTP, so refusals, cache and usage are the
server's. Background work (summaries, notes) is answered by the practice model, or with what the recording's own
model had written by then (`own_words`). The layers decide anew: nothing of what the recording's own agent decided
is taken over.
"""

from __future__ import annotations

import asyncio
import json
import re
import tempfile
import time
from collections import Counter, deque
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import replace
from importlib.resources import files
from pathlib import Path
from typing import Any

import msgspec

from ipyagent.assembly.post_compaction import restored
from ipyagent.assembly.requests import NullSurface, Options
from ipyagent.assembly.settings import endpoint_of, limit_of, limits_of, state_of
from ipyagent.assembly.system_prompt import render
from ipyagent.config import IPyAgent
from ipyagent.context.summarize import PURPOSE
from ipyagent.context.thresholds import check_fixed_part
from ipyagent.errors import UsageError
from ipyagent.journal.blocks import text_block
from ipyagent.journal.events import (
    AssistantMessage,
    CacheBroken,
    Compacted,
    Event,
    ForkEnded,
    LayerFailed,
    ModelChosen,
    ResultsCleared,
    ResultStored,
    ServerEdited,
    SessionStarted,
    TurnCollapsed,
    TurnsRemoved,
    Usage,
    UsageReported,
    UserMessage,
)
from ipyagent.journal.protocols import ModelEvent, Request
from ipyagent.journal.tokens import estimate_blocks
from ipyagent.journal.view import ContextView
from ipyagent.loop.context_engine import Engine, known_layers
from ipyagent.loop.permissions import Permissions
from ipyagent.loop.session import Session
from ipyagent.loop.turn import run_turn
from ipyagent.model.client import AnthropicModel
from ipyagent.model.endpoint import Endpoint
from ipyagent.model.wire import body_of
from ipyagent.practice.model import answer
from ipyagent.practice.replies import Reply, calls, text
from ipyagent.practice.server import PracticeServer
from ipyagent.practice.server.models import PRACTICE
from ipyagent.replay.metrics import (
    ClearingMade,
    CompactionMade,
    FactReport,
    Metrics,
    TrackedFact,
    TurnCost,
    dollars_of,
    fate,
    texts_of,
    usage_of,
)
from ipyagent.replay.recording import RecordedTurn, Recording, ReplayWorkspace, Round, tools_of
from ipyagent.tools.catalogue import builtin_tools
from ipyagent.version import __version__

WINDOW = 200_000
CHUNK = 20_000
"""Characters in one event of a replayed stream: nobody watches it grow."""
EDITOR, WRITER = "edit_file", "write_file"
"""Our tools that background work (notes) needs."""
FIXED: dict[str, Any] = {"model": PRACTICE, "trust_all": True, "max_retries": 0}
"""Settings that every replay has."""
MOST_REPLIES = 100_000
_WORD = re.compile(r"[^\W\d_]{3,}|\d+(?:[.,]\d+)*")
_UPDATE = re.compile(r'<update-notes file="([^"]*)">(.*)', re.DOTALL)
_PARTS = re.compile(r"(?<=[.;·])\s+")
_DECISIONS = (TurnCollapsed, Compacted, ResultsCleared, ResultStored, ServerEdited, TurnsRemoved)


def layer_names() -> list[str]:
    """The layers that can be switched, cheapest first, and `reactive`."""
    switches = {name.removeprefix("layer_") for name in IPyAgent.class_trait_names() if name.startswith("layer_")}
    known = [layer.name for layer in known_layers() if layer.name in switches]
    return [*known, *sorted(switches - set(known))]


def settings_for(*, layers: Iterable[str] | None, window: int, engine: str = "client", **settings: Any) -> IPyAgent:
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


def replay(
    recording: Recording, settings: IPyAgent, facts: Sequence[TrackedFact] = (), *, own_words: bool = False
) -> Metrics:
    """Replay a recording; blocks until it is done. Runs in a loop of its own: call it where none runs. `own_words`:
    with the recording's own system prompt, tools, summaries and notes, as far as it has them.

    Raises WindowTooSmall when not even system prompt and tools fit the window.
    """
    with tempfile.TemporaryDirectory(prefix="ipyagent-replay-") as place:
        return asyncio.run(_Replay(recording, settings, Path(place).resolve(), facts, own_words=own_words).run())


class OwnWords:
    """What the recording's model had written by a turn. Between two texts that are recorded, a sentence of the later
    one counts as written once what it tells had been said: its numbers, and four fifths of its words."""

    def __init__(self, recording: Recording) -> None:
        self._written = recording.written
        self._said: dict[str, int] = {}
        for number, turn in enumerate(recording.turns, 1):
            for _, said in texts_of(turn):
                for word in _words(said):
                    self._said.setdefault(word, number)

    def by(self, kind: str, turn: int) -> str:
        """Summary or notes as of a turn; "" when the recording has none of them."""
        if all(written.kind != kind for written in self._written):
            return ""
        told = ""
        for written in self._written:
            if written.kind != kind and (kind == "summary" or written.turn <= self._last(kind)):
                continue
            lines = [self._known(line, written.turn, turn, told) for line in written.text.splitlines()]
            text = "\n".join(line for line in lines if line)
            # a text that had been written stands as it is; what comes after it adds its sentences
            told = text if written.kind == kind and (not told or written.turn <= turn) else f"{told}\n{text}".strip()
            if written.turn > turn:
                break
        return told

    def _last(self, kind: str) -> int:
        return max(written.turn for written in self._written if written.kind == kind)

    def _known(self, line: str, written: int, turn: int, told: str) -> str:
        """What a line says that was known by `turn` and is not in `told`."""
        if line.startswith("# ") or written <= turn:
            return "" if line in told and line.startswith("# ") and written > turn else line
        return " ".join(part for part in _PARTS.split(line) if part not in told and self._born(part, written) <= turn)

    def _born(self, part: str, most: int) -> int:
        """The turn by which what a sentence tells had been said."""
        found = [(self._said[word], word[0].isdigit() and len(word) > 2) for word in _words(part) if word in self._said]
        words = sorted(turn for turn, number in found if not number)
        latest = max([turn for turn, number in found if number] + words[: 1 + 4 * len(words) // 5][-1:], default=most)
        return min(most, latest)


def _words(text: str) -> list[str]:
    return [word.replace(",", "") for word in _WORD.findall(text.casefold())]


class _Script:
    """What the server answers next: the recording's reply to a request of the conversation, the
    practice model's to one of the background."""

    def __init__(self, own: OwnWords | None = None) -> None:
        self.rounds: deque[Round] = deque()
        self.purpose = ""
        self.turn = 0
        self._own = own

    def __call__(self, body: dict[str, Any]) -> Reply:
        if self.purpose or not self.rounds:
            return replace(self._own_words(body) or answer(body), chunk=CHUNK)
        made = self.rounds.popleft()
        stop = "tool_use" if made.calls else "end_turn"
        return Reply(made.blocks, stop, chunk=CHUNK)

    def _own_words(self, body: dict[str, Any]) -> Reply | None:
        """The recording's own summary or notes, where they are asked for and it has some."""
        if self._own is None:
            return None
        if self.purpose == PURPOSE and (summary := self._own.by("summary", self.turn)):
            return text(f"<analysis></analysis>\n<summary>\n{summary}\n</summary>")
        asked = _UPDATE.search(str(body["messages"][-1]["content"][-1].get("text")))
        notes = self._own.by("notes", self.turn) if asked else ""
        if asked is None or not notes:
            return None
        template = files("ipyagent.context").joinpath("notes_template.md").read_text(encoding="utf-8")
        wanted = [line.rstrip() for line in template.splitlines() if line.startswith("# ")]
        under: dict[str, list[str]] = {heading: [] for heading in wanted}
        current = under[wanted[-1]]
        for line in notes.splitlines():
            if line in under:
                current = under[line]
            else:
                current.append(line)
        blocks = [block for message in body["messages"] for block in message["content"]]  # older notes are but named
        shown = asked[2] + "".join(said for block in blocks if "<notes>" in (said := str(block.get("text", ""))))
        if all(line in shown for lines in under.values() for line in lines):
            return text("The notes say it all.")
        content = "\n\n".join("\n".join([heading, *lines]) for heading, lines in under.items())
        return calls([(WRITER, {"path": asked[1], "content": content})])


class _Clock:
    """What time it is in a replay: that of the recording where it tells all of its times, else now."""

    def __init__(self, recording: Recording) -> None:
        self._at = min((made.at for turn in recording.turns for made in turn.rounds), default=0.0)
        self._timed = recording.timed

    def __call__(self) -> float:
        return self._at if self._timed else time.time()

    def pass_to(self, script: _Script) -> None:
        """The script's next reply is asked for now."""
        self._at = max(self._at, script.rounds[0].at if script.rounds else 0.0)


class _Recorded(AnthropicModel):
    """Tells the script what each request is for; the user of the recording stops where the recording has no further
    reply."""

    def __init__(self, endpoint: Endpoint, script: _Script, drop_cache: Callable[[], None]) -> None:
        super().__init__(endpoint)
        self._script = script
        self._drop_cache = drop_cache

    async def stream(self, request: Request) -> AsyncIterator[ModelEvent]:
        self._script.purpose = request.purpose
        if not request.purpose:
            if not self._script.rounds:
                raise asyncio.CancelledError
            if self._script.rounds[0].cold:
                self._drop_cache()
        async with aclosing(super().stream(request)) as events:  # type: ignore[type-var] # an async generator
            async for event in events:
                yield event


class _Watcher(NullSurface):
    """Counts what the layers did, and which facts each compaction left."""

    def __init__(self, facts: Sequence[TrackedFact]) -> None:
        self.forks: Counter[str] = Counter()
        self.decisions: Counter[str] = Counter()
        self.failures: list[str] = []
        self.compactions: list[CompactionMade] = []
        self.kinds: dict[str, Usage] = {"conversation": Usage()}
        self.breaks: list[str] = []
        self.session: Session | None = None
        self._facts = facts
        self._call = 0.0
        self._answered = False

    def _compacted(self, event: Compacted) -> None:
        assert self.session is not None
        before = ContextView.of(earlier for earlier in self.session.journal.read() if earlier.id < event.id)
        texts = [json.dumps(view.messages, ensure_ascii=False).casefold() for view in (before, self.session.view)]
        stood, stand = ([fact for fact in self._facts if fact.is_in(text)] for text in texts)
        self.compactions.append(
            CompactionMade(
                turn=len(self.session.history.turns),
                trigger=event.trigger,
                method=event.method,
                at_start=not self._answered,
                dollars=self._call,
                before=event.tokens_before,
                after=event.tokens_after,
                facts_before=len(stood),
                facts_after=len(stood) - len(lost := [fact for fact in stood if fact not in stand]),
                lost=tuple(fact.token for fact in lost),
            )
        )
        self._call = 0.0

    def show(self, event: Event) -> None:
        if isinstance(event, UserMessage | AssistantMessage):
            self._answered = isinstance(event, AssistantMessage)
        if isinstance(event, Compacted):
            self._compacted(event)
        if isinstance(event, CacheBroken) and self.session is not None:
            turn = len(self.session.history.turns)
            self.breaks.append(f"turn {turn}: {event.missed:,} tokens not read: {event.cause}")
        if isinstance(event, ForkEnded):
            self.forks[event.purpose] += event.requests
            self.kinds[event.purpose] = self.kinds.get(event.purpose, Usage()) + event.usage
            self._call += dollars_of(event.usage) if event.purpose == PURPOSE else 0.0
        if isinstance(event, UsageReported):
            self.kinds["conversation"] += event.usage
        elif isinstance(event, LayerFailed):
            self.failures.append(f"{event.layer}: {event.why}")
        elif isinstance(event, Compacted):
            self.decisions[f"compacted by {event.method}"] += 1
        elif isinstance(event, _DECISIONS):
            self.decisions[type(event).__name__] += 1


class _Replay:
    def __init__(
        self, recording: Recording, settings: IPyAgent, place: Path, facts: Sequence[TrackedFact], *, own_words: bool
    ) -> None:
        self.recording = recording
        self.settings = settings
        self.place = place
        self.facts = facts
        self.head = recording.head if own_words else None
        self.script = _Script(OwnWords(recording) if own_words else None)
        self.clock = _Clock(recording)
        self.watcher = _Watcher(facts)

    async def run(self) -> Metrics:
        began = time.monotonic()
        settings = self.settings
        window = settings.window or WINDOW
        with PracticeServer(self.script, window=window, keep_bodies=False, clock=self.clock) as server:
            settings.base_url = server.url
            started = SessionStarted(session="replay", version=__version__)
            session = Session.create(self.place, started, clock=self.clock)
            model = _Recorded(endpoint_of(settings), self.script, server.judge.cache.clear)
            try:
                workspace = await self._connect(session, model)
                turns = [
                    await self._turn(session, workspace, server, number, turn)
                    for number, turn in enumerate(self.recording.turns, 1)
                ]
                ends: FactReport = fate(self.facts, _shown(session, server), session.journal.folder)
                clearings = tuple(_clearings(session.journal.read()))
            finally:
                session.close()
                await model.close()
            refusals = tuple(exchange.error for exchange in server.messages if exchange.outcome == "refused")
        layers = tuple(name for name in layer_names() if getattr(settings, f"layer_{name}"))
        return Metrics(
            source=self.recording.source,
            window=window,
            engine=settings.engine,
            layers=layers,
            turns=tuple(turns),
            refusals=refusals,
            forks=dict(self.watcher.forks),
            decisions=dict(self.watcher.decisions),
            failures=tuple(self.watcher.failures),
            fate=ends,
            compactions=tuple(self.watcher.compactions),
            clearings=clearings,
            breaks=tuple(self.watcher.breaks),
            kinds=dict(self.watcher.kinds),
            left_out=self.recording.left_out,
            recorded=self.recording.usage,
            cold=sum(made.cold for turn in self.recording.turns for made in turn.rounds),
            timed=self.recording.timed,
            seconds=round(time.monotonic() - began, 2),
        )

    async def _connect(self, session: Session, model: _Recorded) -> ReplayWorkspace:
        """Wire the session as an agent does, with the recording's tools."""
        settings = self.settings
        workspace = ReplayWorkspace(
            self.place,
            limits=lambda name: limit_of(settings, name, settings.window or WINDOW),
            ran=lambda: self.clock.pass_to(self.script),
        )
        tools = tools_of(self.recording, {name: builtin_tools()[name] for name in (EDITOR, WRITER)})
        info = await model.info(PRACTICE)
        session.surface, self.watcher.session = self.watcher, session
        session.connect(
            model,
            info,
            tools=tools,
            permissions=Permissions(self.place / "rules.json", self.place, mode="auto"),
            limits=limits_of(settings, Options(max_turns=MOST_REPLIES), info),
            state=lambda info, tokens: state_of(settings, info, tokens),
            setting=lambda name: getattr(settings, name),
            restoring=lambda workspace: restored(workspace, settings, window=info.window),
        )
        rendered = self.head or render(tools)
        check_fixed_part(rendered.tokens, rendered.tool_tokens, session.state(0))
        session.record(rendered)
        session.record(ModelChosen(model=PRACTICE, window=info.window, max_output=info.max_output))
        return workspace

    async def _turn(
        self, session: Session, workspace: ReplayWorkspace, server: PracticeServer, number: int, turn: RecordedTurn
    ) -> TurnCost:
        """One turn and the background work that it began."""
        before = len(server.log)
        self.script.rounds, self.script.turn = deque(turn.rounds), number
        self.clock.pass_to(self.script)
        words = "\n".join(str(block["text"]) for block in turn.asked if block["type"] == "text")
        said = UserMessage(text=turn.text or words, blocks=turn.asked, tokens=estimate_blocks(turn.asked))
        ended = await run_turn(session, said, workspace)
        if ended.status in ("finished", "limit"):
            await Engine(session, workspace, behind=True).ask_all("turn_end")
        usages = [usage_of(dict(exchange.usage)) for exchange in server.log[before:] if exchange.usage]
        return TurnCost(
            number=number,
            requests=sum(each.path.partition("?")[0] == "/v1/messages" for each in server.log[before:]),
            usage=sum(usages, start=Usage()),
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


def _clearings(events: Iterable[Event]) -> Iterator[ClearingMade]:
    """What each clearing came to: a compaction ends what it saves."""
    turn, fresh, told = 0, False, False
    standing: list[ClearingMade] = []
    for event in events:
        match event:
            case UserMessage():
                turn += 1
            case ResultsCleared():
                standing.append(
                    ClearingMade(turn=turn, results=len(event.calls), saved=event.saved, missed=0, requests=0)
                )
                fresh = True
            case UsageReported():
                standing = [msgspec.structs.replace(made, requests=made.requests + 1) for made in standing]
                fresh, told = False, fresh
            case CacheBroken() if told:  # by the request whose usage was reported last
                standing[-1] = msgspec.structs.replace(standing[-1], missed=event.missed)
                told = False
            case Compacted():
                yield from standing
                standing, fresh, told = [], False, False
            case _:
                pass
    yield from standing


def chosen_layers(text: str) -> list[str] | None:
    """The layers that a command line names: `a,b`, `none`, or `all` (None: the defaults)."""
    names: Mapping[str, list[str] | None] = {"all": layer_names(), "none": [], "default": None}
    return names[text] if text in names else [name.strip() for name in text.split(",") if name.strip()]
