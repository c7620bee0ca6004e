"""A finished cell once more, without the model: its recorded code runs again in order, what it shows is made anew, the
stored answer follows. Nothing is asked of the model, and the conversation stays as it is."""

from __future__ import annotations

import asyncio
import hashlib
import tempfile
import time
from collections.abc import Callable
from copy import copy
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec

from ipyagent.assembly.requests import Options, TurnResult
from ipyagent.assembly.session_setup import SessionSetup
from ipyagent.assembly.settings import limits_of
from ipyagent.errors import AgentError
from ipyagent.journal.events import (
    AssistantMessage,
    Block,
    Ending,
    Event,
    FileChanged,
    PartEvent,
    PlanWritten,
    ResultStored,
    SessionStarted,
    ToolCalled,
    ToolReturned,
    TurnEnded,
)
from ipyagent.journal.journal import new_session_id
from ipyagent.journal.protocols import ModelInfo, ModelReply, Surface, Tool, ToolOutput, Workspace
from ipyagent.journal.recorded import Recording, differences, text_of
from ipyagent.kernel.dispatcher import MainThreadExecutor
from ipyagent.kernel.workspace import BACKUPS, KernelWorkspace
from ipyagent.loop.session import Session
from ipyagent.loop.session_state import REPLAY
from ipyagent.loop.tool_calls import Missteps, run_calls
from ipyagent.version import __version__

CODE, FILES = "python", frozenset(("write_file", "edit_file", "shell"))
"""Tools whose calls are made again: code always, what writes elsewhere only as the mode allows."""
AGAIN = "%%agent --rerun"
MOST_TOLD = 8
"""Things that are named at the end of a replay."""


class CellReplay:
    """One recording on its way through the kernel. `session` is told in one event what came of it."""

    def __init__(self, setup: SessionSetup, session: Session, recording: Recording, options: Options) -> None:
        self._setup, self._session, self._recording, self._options = setup, session, recording, options
        self._called = {event.call: event for event in recording.events if isinstance(event, ToolCalled)}
        self._returned = {event.call: event for event in recording.events if isinstance(event, ToolReturned)}
        self._handles = {
            event.call: event.handle for event in recording.events if isinstance(event, ResultStored) and event.handle
        }
        self._files = {event.call: event for event in recording.events if isinstance(event, FileChanged)}
        undone = session.history.files.undone if recording.place is None else frozenset()
        changes = [event for event in recording.events if isinstance(event, FileChanged)]
        self._undone = {event.call: event.path for event in changes if event.id in undone}
        """By the call, a file whose change the user has taken back: what made it is not done again."""
        self._changed: dict[str, None] = {}
        self._new: dict[str, ToolReturned] = {}
        self._made: set[str] = set()
        self._ran = 0
        self._differ: list[str] = []
        self._left: list[str] = []

    def __repr__(self) -> str:
        return f"<CellReplay of {len(self._called)} calls>"

    async def run(self, main: MainThreadExecutor, surface: Surface) -> TurnResult:
        """Do it on the agent thread, shown on `surface`. A Stop, and code that fails this time, are results."""
        began = time.monotonic()
        with tempfile.TemporaryDirectory(prefix="ipyagent-replay-") as folder:
            own = Session.create(Path(folder), SessionStarted(session=new_session_id(), version=__version__))
            try:
                with own.shown_on(surface):
                    status, message = await self._work(own, main)
                    self._tell(own, status, message)
                    seconds = round(time.monotonic() - began, 3)
                    surface.show(TurnEnded(status=status, message=message, seconds=seconds, at=time.time()))
            finally:
                own.close()
        said = [text_of(event.blocks) for event in self._recording.events if isinstance(event, AssistantMessage)]
        text = said[-1] if said and status == "finished" else ""
        return TurnResult(status=status, message=message, text=text, cost=0.0, seconds=time.monotonic() - began)

    async def _work(self, own: Session, main: MainThreadExecutor) -> tuple[Ending, str]:
        try:
            workspace = self._begin(own, main)
            for event in self._recording.events:
                if isinstance(event, AssistantMessage) and (failed := await self._reply(own, event, workspace)):
                    own.close_open("The code before it failed.")
                    return "failed", failed
        except asyncio.CancelledError:
            own.close_open("The user stopped the replay.")
            return "stopped", "stopped"
        except AgentError as problem:
            return "failed", str(problem)
        return "finished", ""

    def _begin(self, own: Session, main: MainThreadExecutor) -> KernelWorkspace:
        """A throw-away session in which the calls are made as they are in a turn: permissions, hooks, secrets."""
        settings, mode = self._setup.settings, self._options.mode
        model = next((e.model for e in self._recording.events if isinstance(e, AssistantMessage) and e.model), "")
        info = ModelInfo(model=model, window=self._session.info.window, max_output=0)
        allowed = self._setup.permissions if mode is None else self._setup.permissions.with_mode(mode)
        own.redact = self._setup.redactor
        known = self._setup.tool_registry.now(None)
        own.connect(
            None,
            info,
            tools={name: _held(tool, self._hold) for name, tool in known.items() if name in FILES or name == CODE},
            permissions=allowed.for_recorded(CODE),
            limits=limits_of(settings, self._options, info),
            state=None,
            # a result is never kept in a file of its own: it is there already
            setting=lambda name: name != "layer_store_results" and getattr(settings, name),
        )
        own.heard.append(self._heard)
        asked = self._recording.request
        own.record(msgspec.structs.replace(asked, blocks=({"type": "text", "text": asked.text},)))
        workspace = self._setup.workspace(own, main)
        self._setup.keep_objects(self._session, workspace)

        def record(event: Event) -> Event:
            if isinstance(event, FileChanged):  # so that undo knows it, and whose it is
                if not self._changed:
                    self._session.record(PartEvent(part=REPLAY, kind="changes", data=self._whose()))
                self._session.record(event)
                self._changed[event.path] = None
            return own.record(event)

        own.show_phase("replaying")
        return replace(workspace, record=record, backups=self._session.journal.folder / BACKUPS)

    def _heard(self, event: Event) -> None:
        if isinstance(event, ToolReturned):
            self._new[event.call] = event
        elif isinstance(event, ToolCalled):
            self._made.add(event.call)

    def _hold(self, call: str, value: Any) -> None:
        """The object that code knows by its handle is there again."""
        if call in self._handles:
            self._setup.hold(call, value, self._handles[call])

    async def _reply(self, own: Session, said: AssistantMessage, workspace: KernelWorkspace) -> str:
        """What the model said, and its calls in their order; why it cannot go on, "" when it can."""
        kept = tuple(block for block in said.blocks if block.get("type") not in ("thinking", "redacted_thinking"))
        own.record(msgspec.structs.replace(said, blocks=kept))
        for block in kept:
            call = str(block.get("id"))
            if block.get("type") != "tool_use" or call not in self._returned:
                continue
            called = self._called.get(call)
            if called is not None and call in self._undone:
                self._left.append(f"{called.name} (you have undone its change of {self._undone[call]})")
                self._as_recorded(own, call)
            elif called is None or called.name not in own.tools or self._stands(called, workspace):
                self._as_recorded(own, call)
            elif failed := await self._again(own, called, workspace):
                return failed
        return ""

    def _stands(self, called: ToolCalled, workspace: KernelWorkspace) -> bool:
        """Whether a file is there as the call left it, or the call changed nothing."""
        if called.name in (CODE, "shell"):
            return False  # a command runs at the sandbox level of the mode
        changed = self._files.get(called.call)
        if changed is None:
            return True
        try:
            return hashlib.sha256((workspace.root / changed.path).read_bytes()).hexdigest() == changed.digest
        except OSError:
            return False

    def _as_recorded(self, own: Session, call: str) -> None:
        """Show a call that is not made again, with the result that it had."""
        for event in self._recording.events:
            if isinstance(event, ToolCalled | PlanWritten) and event.call == call:
                own.record(event)
        returned = self._returned[call]
        note = "recorded" if not returned.note else f"{returned.note}, recorded"
        own.record(msgspec.structs.replace(returned, shown=0, note=note))

    async def _again(self, own: Session, called: ToolCalled, workspace: KernelWorkspace) -> str:
        old = self._returned[called.call]
        block: Block = {"type": "tool_use", "id": called.call, "name": called.name, "input": called.input}
        reply = ModelReply(said=AssistantMessage(blocks=(block,)), usage=None)
        await run_calls(own, reply, workspace, Missteps())
        new = self._new[called.call]
        said = text_of(new.blocks).strip()
        if called.call not in self._made:
            why = said.splitlines()[0][:200] if said else "not allowed"
            if called.name == CODE:
                return f"the recorded code may not run again: {why}"
            self._left.append(f"{called.name} ({why})")
            return ""
        self._ran += called.name == CODE
        if new.note == "interrupted":
            return "interrupted"
        if new.is_error and not old.is_error:
            if called.name == CODE:
                last = said.rpartition("\n")[2][:200]
                hint = "; run the cells that it needs first" if last.startswith("NameError") else ""
                return f"code that ran when it was recorded fails now, and what followed was not run: {last}{hint}"
            self._left.append(f"{called.name} ({said.splitlines()[0][:120] if said else 'failed'})")
            return ""
        if called.name in (CODE, "shell") and (moved := differences(old, new)):
            self._differ += moved
            told = "; ".join(moved)
            own.record(PartEvent(part=REPLAY, kind="differs", why=f"Differs from the recorded output: {told}"))
        return ""

    def _whose(self) -> dict[str, Any]:
        """The turn of the recording, or the notebook that told it."""
        place = self._recording.place
        return {"turn": self._recording.turn} | ({"notebook": place.name} if place is not None else {})

    def _tell(self, own: Session, status: Ending, message: str) -> None:
        """Journal what came of it, then show it."""
        recording = self._recording
        left = list(self._left)
        if recording.handed:
            names = ", ".join(name for each in recording.handed.values() for name in each)
            left.append(f"sub-agents, which need a model (they left {names})")
        data: dict[str, Any] = {
            **self._whose(), "status": status, "ran": self._ran, "differs": self._differ[:20], "left": left[:20],
        }  # fmt: skip
        if message:
            data["message"] = message[:300]
        self._session.record(PartEvent(part=REPLAY, kind="cell", data=data))
        if left:
            own.record(PartEvent(part=REPLAY, kind="left", why=f"Not repeated: {'; '.join(left[:MOST_TOLD])}"))
        if status == "finished":
            own.record(PartEvent(part=REPLAY, kind="cell", why=self._words()))

    def _words(self) -> str:
        when = time.strftime("%Y-%m-%d %H:%M", time.localtime(self._recording.ended.at))
        code = f", {self._ran} piece{'s' * (self._ran != 1)} of code ran again" if self._ran else ""
        names = list(self._changed)
        more = f" and {len(names) - 3} more" if len(names) > 3 else ""
        code += f", changed {', '.join(names[:3])}{more} (%agent undo)" if names else ""
        old = "; the answer was written for the recorded numbers" if self._differ else ""
        place = f", as {self._recording.place.name} has it" if self._recording.place is not None else ""
        return f"Replayed, not asked again{code}; answered {when}{place}{old}. To ask again: {AGAIN}"


def _held(tool: Tool, hold: Callable[[str, Any], None]) -> Tool:
    """The tool, which hands the object of each result to `hold` before that goes."""
    made = copy(tool)

    async def run(input: dict[str, Any], workspace: Workspace) -> ToolOutput:
        output = await tool.run(input, workspace)
        if output.live is not None and isinstance(workspace, KernelWorkspace):
            live, call = output.live.value, workspace.call
            await workspace.on_main(lambda: hold(call, live))
        return output

    vars(made)["run"] = run
    return made
