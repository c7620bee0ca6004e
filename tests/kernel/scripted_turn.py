"""A scripted turn, imported inside real kernels: a door, a Stop button over a comm, live output on the cell."""

from __future__ import annotations

import asyncio
import functools
import json
from typing import Any

from ipyagent.kernel.dispatcher import MainThreadExecutor
from ipyagent.kernel.frontend import route_clicks
from ipyagent.kernel.thread import AgentLoop

thread = AgentLoop()


class Scripted:
    """`steps` are pairs: ("code", source), ("wait", seconds), ("ask", prompt), ("call", expression)."""

    def __init__(self, shell: Any, *steps: tuple[str, Any], **options: Any) -> None:
        self.shell = shell
        self.steps = steps
        self.main = MainThreadExecutor(shell, thread, **options)
        self.done: list[Any] = []
        self.clicks: list[Any] = []
        self._undo = lambda: None

    def button(self) -> Scripted:
        import comm

        self.comm = comm.create_comm(target_name="ipyagent_test", data={})
        self._undo = route_clicks(self.shell.kernel, self.comm, self._clicked)
        self.comm.send({"busy": True})  # as a panel does: ipykernel 7.4 now routes clicks to this shell
        return self

    async def awaited(self) -> None:
        try:
            await self.main.run(self.turn)
        finally:
            self.finish()

    def blocking(self) -> None:
        try:
            self.main.run_blocking(self.turn)
        finally:
            self.finish()

    async def turn(self) -> dict[str, Any]:
        try:
            for kind, what in self.steps:
                if kind == "wait":
                    print("LIVE ready", flush=True)
                    await asyncio.sleep(what)
                elif kind == "ask":
                    self.done.append(["answer", await self.main.ask_line(what)])
                elif kind == "call":
                    self.done.append(["call", await self.main.call(functools.partial(eval, what, self.shell.user_ns))])
                else:
                    execution = await self.main.run_code(what, lambda text: print("LIVE", text, flush=True))
                    said = {name: getattr(execution, name) for name in ("result", "error", "interrupted", "added")}
                    self.done.append({"output": execution.output[:3000], **said})
            await asyncio.sleep(0)  # here a stop during the last run is told
        except asyncio.CancelledError:
            await asyncio.sleep(0.01)  # closing takes awaits too
            return {"status": "stopped", "why": self.main.stopped, "done": self.done}
        except Exception as problem:  # noqa: BLE001 - the test looks at it
            return {"status": "failed", "why": repr(problem), "done": self.done}
        return {"status": "finished", "why": self.main.stopped, "done": self.done}

    def _clicked(self, data: dict[str, Any]) -> None:
        self.clicks.append(data)
        if data.get("kind") == "stop":
            self.main.stop("button")

    def finish(self) -> None:
        self._undo()
        print("VALUE", json.dumps(self.main.value), flush=True)
