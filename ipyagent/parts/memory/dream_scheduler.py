"""Dreams of one kernel: when they run, who watches, how they are stopped.

After a turn a dream begins only when every gate is open, on the agent thread, and holds up nothing; with the
practice model only when the user asks. It never runs in a project that is not trusted.
"""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

import msgspec

from ipyagent.assembly.settings import at_exit, model_of
from ipyagent.errors import AgentError, UsageError
from ipyagent.journal.events import ForkEnded
from ipyagent.kernel.dispatcher import MainThreadExecutor
from ipyagent.loop.session import Session
from ipyagent.model.client import AnthropicModel
from ipyagent.model.client_pool import PRACTICE
from ipyagent.model.prices import at_most
from ipyagent.parts.memory.dream import Checked, Dream, DreamProgress, Gates, written_since
from ipyagent.parts.memory.dream_workspace import waiting_in
from ipyagent.parts.memory.retriever import record_if_open
from ipyagent.parts.memory.safe_paths import SCOPES
from ipyagent.parts.memory.store import MemoryStore
from ipyagent.parts.memory.stores import MemoryStores
from ipyagent.parts.memory.transaction import DreamLock
from ipyagent.parts.memory.transcripts import ASIDE

if TYPE_CHECKING:
    from ipyagent.assembly.session_setup import SessionSetup

MOST_FAILURES = 3
"""Dreams that fail in a row before this kernel begins none by itself any more."""
NO_MORE = "; no more will start in this kernel unless you run %memory dream"
PATIENCE = 3.0
"""Seconds that the end of the kernel waits for a dream to end."""
WAITING_DAYS = 7
"""So long a dream that waits for a yes keeps others from beginning."""


class DreamScheduler:
    """`check` tells whether a memory says no more than the user did."""

    def __init__(self, setup: SessionSetup, memories: MemoryStores, check: Checked) -> None:
        self._setup, self._memories = setup, memories
        self._check = check
        self._session: Session | None = None
        self._gates = Gates()
        self._known: dict[str, tuple[object, DreamLock]] = {}
        self._progress = DreamProgress()
        self._task: asyncio.Task[None] | None = None  # the one that dreams, of a turn's end or of a command
        self._ended = threading.Event()
        self._ended.set()
        self._told: list[Callable[[], None]] = []
        self._failures = 0
        self._registered = False

    def __repr__(self) -> str:
        return f"<DreamScheduler, {self._progress.status or 'none yet'}>"

    # ------------------------------------------------------------------ watching

    def now(self) -> DreamProgress:
        """How the newest dream stands."""
        found = self._progress
        running = found.status == "running"
        return msgspec.structs.replace(found, seconds=time.time() - found.began) if running else found

    def watch(self, told: Callable[[], None]) -> Callable[[], None]:
        """`told` is called when the progress changes, on any thread; returns what ends that."""
        self._told.append(told)

        def end() -> None:
            if told in self._told:
                self._told.remove(told)

        return end

    def _tell(self, progress: DreamProgress) -> None:
        self._progress = progress
        for told in list(self._told):
            told()

    # ------------------------------------------------------------------ beginning and ending

    @property
    def busy(self) -> bool:
        """Whether a dream runs here."""
        return not self._ended.is_set()

    def after(self, main: MainThreadExecutor, model: AnthropicModel, session: Session | None = None) -> None:
        """A turn of the main agent has ended, on the agent thread. With nothing to do this costs a few `stat`s."""
        settings, self._session = self._setup.settings, session
        if not (settings.memory and settings.dreaming) or self.busy or self._failures >= MOST_FAILURES:
            return
        if settings.mode == "read_only":  # nothing may be changed
            return
        name = model_of(settings)
        if name == PRACTICE:
            return
        try:
            store = next(filter(None, map(self._early, SCOPES)), None)  # each has dreams of its own
            if store is None or self._memories.refusal(SCOPES[0]):  # the project may be trusted no longer
                return
        except AgentError:  # not trusted, or no place for a memory: `%memory` says so
            return
        self._begin()
        work = self._due(store, main, model, name)
        self._task = asyncio.get_running_loop().create_task(work, name="ipyagent dream")

    def _early(self, scope: str) -> MemoryStore | None:
        """The store of a scope whose first gates are open; None when they are closed, or there is nothing."""
        if self._gates.early(self._known_lock(scope), hours=self._setup.settings.dream_hours, glance=True):
            return None
        store = self._memories.store(scope)
        return store if store.folder.is_dir() else None

    def _known_lock(self, scope: str) -> DreamLock:
        """The lock of the directory that the settings name; found anew when they change. Raises MemoryRefused."""
        settings = self._setup.settings
        key = (settings.memory_dir, settings.memory_per_worktree, os.environ.get("IPYAGENT_MEMORY_DIR"))
        if scope not in self._known or self._known[scope][0] != key:
            store = self._memories.store(scope)
            self._known[scope] = key, DreamLock(store.folder, store.lock)
        return self._known[scope][1]

    def closed(self, scope: str = "project") -> str:
        """Which gate is closed now, in words; "" when a dream is due. Raises MemoryRefused."""
        settings, store = self._setup.settings, self._memories.store(scope)
        if not settings.dreaming:
            return "dreaming is off (the setting `dreaming`)"
        lock, hours = DreamLock(store.folder, store.lock), settings.dream_hours

        def touched(since: float) -> int:
            names = written_since(self._setup.project.session_folders(), since)
            return sum(not name.endswith(ASIDE) for name in names)

        why = self._gates.early(lock, hours=hours) or self._gates.closed(
            lock, hours=hours, sessions=settings.dream_sessions, touched=touched
        )
        if why:
            return why
        waiting = waiting_in(store)
        if waiting is not None and time.time() - waiting.at < WAITING_DAYS * 86_400:
            return "a dream is waiting for your approval (%memory dream --accept)"
        return "" if store.list() else "there are no memories"

    async def run(
        self,
        main: MainThreadExecutor,
        model: AnthropicModel,
        name: str,
        *,
        dry_run: bool = False,
        scope: str = "project",
    ) -> DreamProgress:
        """Dream now, as the user asked; on the agent thread. Raises MemoryRefused, UsageError."""
        store = self._memories.store(scope)
        if self.busy:
            raise UsageError("a dream is already running in this kernel; %memory shows it")
        self._begin()
        self._task = asyncio.current_task()
        try:
            return await self._job(store).run(main, model, name, dry_run=dry_run)
        finally:
            self._task = None
            self._ended.set()

    def stop(self) -> None:
        """End the running dream, from any thread: the memories stay as they were, the lock is let go of."""
        task = self._task
        if task is None or task.done():
            return
        try:
            task.get_loop().call_soon_threadsafe(task.cancel)
        except RuntimeError:  # the loop is closed: nothing runs on it any more
            return

    def wait(self, timeout: float) -> bool:
        """Wait until no dream runs; whether it is so. Not for the agent thread."""
        return self._ended.wait(timeout)

    def close(self) -> None:
        """End what runs."""
        self.stop()
        self._ended.wait(PATIENCE)

    def _begin(self) -> None:
        self._ended.clear()
        if not self._registered:
            self._registered = True
            at_exit(self, DreamScheduler.close)  # a dream is ended while threads still serve it

    # ------------------------------------------------------------------ behind a turn

    async def _due(self, store: MemoryStore, main: MainThreadExecutor, model: AnthropicModel, name: str) -> None:
        most = self._setup.settings.max_cost_per_day
        try:
            due = not await asyncio.to_thread(self.closed, store.scope)
            if due and (not most or self._setup.spending.today() < most):
                made = await self._job(store).run(main, model, name)
                self._failures = self._failures + 1 if made.status == "failed" else 0
                if made.status != "killed" and (made.files or made.status != "completed"):
                    end = NO_MORE if self._failures >= MOST_FAILURES else ""
                    what = "dream" if store.scope == "project" else "dream of your memories for all projects"
                    self._setup.notice(f"{what}, {made.status}: {made.message}{end}")
        except AgentError:  # another kernel was first, or the memory is gone
            return
        except Exception as problem:  # noqa: BLE001 - a bug in the background is told and ends nothing
            self._failures = MOST_FAILURES
            self._setup.notice(
                f"dream, failed: internal error {type(problem).__name__}: {str(problem)[:200]}; see %agent doctor"
            )
        finally:
            self._task = None
            self._ended.set()

    def _job(self, store: MemoryStore) -> Dream:
        return Dream(self._setup, self._memories, store, tell=self._tell, paid=self._paid, check=self._check)

    def _paid(self, ended: ForkEnded) -> None:
        """Count a dream for the day and for the session behind whose turn it ran."""
        self._setup.note_spent(at_most(ended.cost, ended.usage))
        if self._session is not None:
            record_if_open(self._session, ended)

