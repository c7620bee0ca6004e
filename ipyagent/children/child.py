"""One sub-agent while it lives: what it is called, what it is about, what it has cost, who wrote to it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from ipyagent.children.handing import ReturnedVariables
from ipyagent.children.kinds import SubagentType
from ipyagent.children.letters import received
from ipyagent.children.mailbox import MailMessage
from ipyagent.journal.events import AssistantMessage, Ending, Event, ForkEnded, ToolCalled, Usage, UsageReported
from ipyagent.journal.protocols import Execution
from ipyagent.kernel.dispatcher import MainThreadProxy
from ipyagent.kernel.scope import IsolatedNamespace
from ipyagent.loop.session import Session

DOING_CHARS = 400
STANDS = "waits for your next request: its code runs only while one runs"
SHUT_DOWN = "it was asked to shut down"


class Subagent:
    """`id` is its folder's name, `name` what people and agents call it while it runs."""

    def __init__(self, id: str, name: str, kind: SubagentType, task: str, *, background: bool) -> None:
        self.id, self.name, self.kind, self.task, self.background = id, name, kind, task, background
        self.session: Session | None = None
        self.work: asyncio.Task[None] | None = None
        self.scope: IsolatedNamespace | None = None
        self.hands = ReturnedVariables()
        self.inbox: list[MailMessage] = []
        self.closing = False
        """Whether it was told to end its work with the request that is under way."""
        self.parting = False
        """Whether it has said so itself that it ends."""
        self.plan: asyncio.Future[tuple[bool, str]] | None = None
        """The answer to the plan that it has sent, with the reason, while it waits for it."""
        self.asks = asyncio.Event()
        self.status: Ending | None = None
        self.message = ""
        self.answer = ""
        self.handed: tuple[str, ...] = ()
        self.handed_words = ""
        self.usage, self.requests = Usage(), 0
        self.cost: float | None = 0.0
        self.phase = "waiting for its turn"
        self.stands: Callable[[], bool] = lambda: False
        """Whether it waits for the main thread while no turn serves that."""
        self.last: Event | None = None
        self.why = ""
        """Why it was stopped, in words for its parent."""
        self.began = self.touched = time.monotonic()
        self._pauses = 0

    def __repr__(self) -> str:
        return f"<Subagent {self.name} ({self.kind.name}) {self.status or self.phase}>"

    @property
    def running(self) -> bool:
        """Whether it has not ended yet."""
        return self.status is None

    @property
    def seconds(self) -> float:
        """How long it has been at work."""
        return round(time.monotonic() - self.began, 3)

    @property
    def now(self) -> str:
        """What it is at, in a few words."""
        return STANDS if self.stands() else self.phase

    def stop(self, why: str) -> None:
        """End it; its calls are closed. `why` is for its parent. On the agent thread."""
        if self.running and not self.why:
            self.why = why
            if self.work is not None:
                self.work.cancel()

    def tell(self, letter: MailMessage) -> bool:
        """Have a letter delivered before its next request; whether it still runs."""
        if self.running:
            self.inbox.append(letter)
        return self.running

    async def deliver(self) -> None:
        """What came in is journalled now: its next request has it. One that was told to end and did not is stopped."""
        if self.closing:
            self.stop(SHUT_DOWN)
            await asyncio.sleep(0)
        while self.inbox and self.session is not None:
            letter = self.inbox.pop(0)
            self.closing = self.closing or letter.kind == "shutdown_request"
            self.session.record(received(letter, self.session.redact))

    async def ended_or_asks(self) -> None:
        """Wait until it has ended, or waits for its parent to answer a plan."""
        assert self.work is not None
        asks = asyncio.ensure_future(self.asks.wait())
        try:
            await asyncio.wait((self.work, asks), return_when=asyncio.FIRST_COMPLETED)
        finally:
            asks.cancel()

    # ------------------------------------------------------------------ what it does

    def saw(self, event: Event) -> None:
        """Take in an event of its own."""
        self.touched = time.monotonic()
        match event:
            case UsageReported() | ForkEnded():
                self.requests += event.requests if isinstance(event, ForkEnded) else 1
                self.usage += event.usage if isinstance(event, ForkEnded) else event.paid
                self.cost = None if self.cost is None or event.cost is None else self.cost + event.cost
            case ToolCalled() | AssistantMessage():
                self.last = event
            case _:
                pass

    def doing(self) -> str:
        """Its newest call or words, cut to a few hundred characters."""
        match self.last:
            case ToolCalled():
                given = ", ".join(f"{key}={str(value)[:DOING_CHARS]}" for key, value in self.last.input.items())
                return f"{self.last.name}({given})"[:DOING_CHARS]
            case AssistantMessage():
                texts = [str(block.get("text", "")) for block in self.last.blocks if block.get("type") == "text"]
                calls = [str(block.get("name")) for block in self.last.blocks if block.get("type") == "tool_use"]
                return " ".join([*texts, *calls])[-DOING_CHARS:]
            case _:
                return ""

    # ------------------------------------------------------------------ silence

    @property
    def silent(self) -> float:
        """Seconds since its last sign of work; time in which it had to wait for others does not count."""
        return 0.0 if self._pauses else time.monotonic() - self.touched

    @contextmanager
    def waiting(self) -> Iterator[Callable[[], None]]:
        """It has to wait for others, until this is left or what it gives is called."""
        self._pauses += 1
        over = False

        def go_on() -> None:
            nonlocal over
            if not over:
                over = True
                self._pauses -= 1
                self.touched = time.monotonic()

        try:
            yield go_on
        finally:
            go_on()


class SubagentMainThread(MainThreadProxy):
    """The main thread as a sub-agent uses it: while others hold it, that is no silence of its own."""

    def __init__(self, mains: MainThreadProxy, child: Subagent) -> None:
        self._mains, self._child = mains, child
        self._wanted = 0
        child.stands = lambda: self._wanted > 0 and not mains.served

    def __repr__(self) -> str:
        return f"<SubagentMainThread of {self._child.name}>"

    async def run_code(
        self,
        code: str,
        on_output: Callable[[str], None],
        scope: Any = None,
        begun: Callable[[], None] = lambda: None,
        after: Callable[[], None] | None = None,
    ) -> Execution:
        with self._wanting() as go_on:
            return await self._mains.run_code(code, on_output, scope=scope, begun=go_on, after=after)

    async def call(self, function: Callable[[], Any]) -> Any:
        with self._wanting():
            return await self._mains.call(function)

    @contextmanager
    def _wanting(self) -> Iterator[Callable[[], None]]:
        """It wants the main thread, until this is left or what it gives is called."""
        wants = True
        self._wanted += 1
        with self._child.waiting() as go_on:

            def has() -> None:
                nonlocal wants
                self._wanted -= wants
                wants = False
                go_on()

            try:
                yield has
            finally:
                has()
