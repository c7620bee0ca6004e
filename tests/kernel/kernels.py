"""A raw front-end over jupyter_client: run a cell, act while it runs, see what came back and when."""

from __future__ import annotations

import json
import os
import queue
import re
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from jupyter_client.manager import KernelManager

from tests.kernel.forked import forks

HERE = Path(__file__).parent
ROOT = HERE.parent.parent


@dataclass
class Cell:
    """What one cell did. `latency`: seconds from the action to the cell's idle message."""

    streams: str = ""
    errors: list[str] = field(default_factory=list)
    data: list[dict[str, Any]] = field(default_factory=list)
    updates: list[dict[str, Any]] = field(default_factory=list)
    prompts: list[str] = field(default_factory=list)
    reply: dict[str, Any] = field(default_factory=dict)
    latency: float | None = None
    seconds: float = 0.0
    types: list[str] = field(default_factory=list)

    @property
    def value(self) -> Any:
        found = re.findall(r"^VALUE (.*)$", self.streams, re.M)
        return json.loads(found[-1]) if found else None


class Kernel:
    """A real kernel. `path`: where another ipykernel is. `fresh`: nothing is imported yet, which takes longer."""

    def __init__(self, path: str = "", cwd: Path | None = None, *, fresh: bool = False) -> None:
        for left in (2, 1, 0):
            try:
                self._start(path, cwd, fresh or bool(path))
                break
            except (ValueError, RuntimeError):  # two kernels of two test processes were given one port
                self.close()
                if not left:
                    raise
        self.subshell: str | None = None
        self.comm = ""
        self.dead = False

    def _start(self, path: str, cwd: Path | None, fresh: bool) -> None:
        self.manager: Any = KernelManager(kernel_name="python3")
        # the very interpreter of the tests, whatever kernel specs there are
        self.manager.kernel_spec.argv[0] = sys.executable
        folders = [part for part in (path, str(ROOT), str(HERE)) if part]
        env = {**os.environ, "PYTHONPATH": os.pathsep.join(folders), "PYDEVD_DISABLE_FILE_VALIDATION": "1"}
        env.pop("PYTEST_CURRENT_TEST", None)
        if not fresh:
            forks(self.manager)
        self.manager.start_kernel(env=env, cwd=str(cwd or HERE))
        self.client = self.manager.client()
        self.client.start_channels()
        self.client.wait_for_ready(timeout=120)

    def close(self) -> None:
        self.client.stop_channels()
        self.manager.shutdown_kernel(now=True)

    def make_subshell(self) -> None:
        self.client.control_channel.send(self.client.session.msg("create_subshell_request", {}))
        while True:
            reply = self.client.get_control_msg(timeout=60)
            if reply["msg_type"] == "create_subshell_reply":
                self.subshell = reply["content"]["subshell_id"]
                return

    def run(
        self,
        code: str,
        *,
        when: str = "",
        act: Callable[[Kernel], None] | None = None,
        answer: str | None = None,
        allow_stdin: bool = True,
        timeout: float = 90.0,
        reply: float = 60.0,
        in_subshell: bool = False,
        cell_id: str = "",
    ) -> Cell:
        """Run a cell. `act` is called once, when the cell's text contains `when` (a stdin request
        when `when` is "stdin"), as soon as possible after. `cell_id` as JupyterLab says it. `timeout`: seconds until it
        is idle, then `reply` seconds for its reply."""
        assert not self.dead, "this kernel hung in an earlier test"
        client, cell = self.client, Cell()
        if in_subshell or cell_id:
            content = {"code": code, "silent": False, "store_history": True, "allow_stdin": allow_stdin}
            request = client.session.msg("execute_request", {**content, "user_expressions": {}, "stop_on_error": True})
            request["header"] |= {"subshell_id": self.subshell} if in_subshell else {}
            request["metadata"] |= {"cellId": cell_id} if cell_id else {}
            client.shell_channel.send(request)
            message = request["header"]["msg_id"]
        else:
            message = client.execute(code, allow_stdin=allow_stdin)
        began = time.monotonic()
        acted: float | None = None
        idle = asking = False
        self.comm = ""
        while not idle:
            if time.monotonic() - began > timeout:
                self.dead = True  # the tests that share this kernel need not wait, too
                raise AssertionError(f"no end after {timeout} s; so far: {cell.streams[-2000:]}")
            try:
                got = client.get_iopub_msg(timeout=0.02)
            except queue.Empty:
                got = None
            asked = self._stdin()
            if asked is not None:
                cell.prompts.append(str(asked.get("prompt", "")))
            if asked is not None and when != "stdin":
                client.input(answer or "")
            if got is not None:
                kind, content = got["msg_type"], got["content"]
                if kind == "comm_open":
                    self.comm = content["comm_id"]
                if got["parent_header"].get("msg_id") == message:
                    cell.types.append(kind)
                    if kind == "stream":
                        cell.streams += content["text"]
                    elif kind == "error":
                        cell.errors.append(content["ename"])
                    elif kind in ("display_data", "execute_result"):
                        cell.data.append(content["data"])
                    elif kind == "update_display_data":
                        cell.updates.append(content["data"])
                    elif kind == "status" and content["execution_state"] == "idle":
                        idle = True
            asking = asking or asked is not None
            due = asking and self.comm if when == "stdin" else when in cell.streams
            if act is not None and acted is None and due:
                acted = time.monotonic()
                act(self)
        cell.seconds = time.monotonic() - began
        cell.latency = None if acted is None else time.monotonic() - acted
        while True:
            got = client.get_shell_msg(timeout=reply)
            if got["parent_header"].get("msg_id") == message:
                cell.reply = got["content"]
                return cell

    def interrupt(self) -> None:
        self.manager.interrupt_kernel()

    def click(self, data: dict[str, Any], key: bytes | None = None) -> None:
        session = self.client.session
        message = session.msg("comm_msg", {"comm_id": self.comm, "data": data})
        if self.subshell:
            message["header"]["subshell_id"] = self.subshell
        if key is not None:
            old, session.key = session.key, key
            try:
                self.client.shell_channel.send(message)
            finally:
                session.key = old
            return
        self.client.shell_channel.send(message)

    def eval(self, expression: str) -> Any:
        cell = self.run(f"import json as _json; print('VALUE', _json.dumps({expression}))")
        assert not cell.errors, cell.errors
        return cell.value

    def _stdin(self) -> dict[str, Any] | None:
        try:
            content: dict[str, Any] = self.client.get_stdin_msg(timeout=0)["content"]
        except queue.Empty:
            return None
        return content
