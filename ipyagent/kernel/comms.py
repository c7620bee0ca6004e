"""Clicks reach us while the cell runs: they are read where they enter the kernel process.

A running cell holds the main shell, so a comm message for it waits. ipykernel 7 can hand it to a
subshell, if the front-end asked for one; ipykernel 7.4 then sends it to whichever shell last
published on the comm, which is the blocked one, hence the override. Without a subshell, a look at
each message in the shell-channel thread delivers clicks in milliseconds. The message itself goes on
to the widget as always, so each click may come twice: the callback is idempotent, and only sets
flags or futures, since it runs on any thread. ipykernel 6 has no such thread: there clicks arrive
while the cell awaits, not while its code blocks; the front-end's own interrupt button always works.
"""

from __future__ import annotations

import functools
import hmac
import json
from collections.abc import Callable
from typing import Any

Click = Callable[[dict[str, Any]], None]
_PEEK = "_ipyagent_peek"


def route_clicks(kernel: Any, comm: Any, callback: Click) -> Callable[[], None]:
    """Call `callback(data)` with the `data` of each message the front-end sends on `comm`, at once
    and on whatever thread. Returns an undo, which may be called twice. Where the kernel is of a
    kind we do not know this does nothing: the widget's own messages still come."""
    if hasattr(comm, "_msg_callback"):  # else each message has the shell draw and close all figures, on its thread
        vars(comm)["handle_msg"] = lambda message: comm._msg_callback(message) if comm._msg_callback else None
    overridden = hasattr(comm, "_reply_subshell_for")
    if overridden:
        comm._reply_subshell_for = lambda data, default: default
    peek = _peek_of(kernel)
    comm_id = comm.comm_id
    if peek is not None:
        peek.callbacks[comm_id] = callback

    def undo() -> None:
        if peek is not None and peek.callbacks.get(comm_id) is callback:
            del peek.callbacks[comm_id]
        if overridden:
            vars(comm).pop("_reply_subshell_for", None)

    return undo


def forget_clicks(kernel: Any) -> None:
    """Take off what looks at the kernel's messages, if anything does."""
    if isinstance(peek := vars(kernel).get(_PEEK), _Peek):
        peek.remove()


class _Peek:
    """One a kernel: looks at shell messages before they are dispatched."""

    def __init__(self, kernel: Any) -> None:
        self._kernel = kernel
        self.callbacks: dict[str, Click] = {}
        self._take_off: Callable[[], None] = lambda: None

    def remove(self) -> None:
        """Look at nothing any more: messages go where they went without us."""
        self.callbacks.clear()
        self._take_off()
        vars(self._kernel).pop(_PEEK, None)

    def install(self) -> bool:
        """Whether this kernel can be looked into."""
        kernel = self._kernel
        stream = getattr(kernel, "shell_stream", None)
        channel = getattr(kernel, "shell_channel_thread", None)
        if stream is None or not hasattr(stream, "on_recv"):
            return False
        if channel is not None and hasattr(kernel, "shell_channel_thread_main"):
            forward = kernel.shell_channel_thread_main

            async def receive(message: list[Any]) -> None:
                self._look(message)
                await forward(message)

            channel.io_loop.add_callback(lambda: stream.on_recv(receive, copy=False))
            self._take_off = lambda: channel.io_loop.add_callback(lambda: stream.on_recv(forward, copy=False))
            return True
        if channel is None and hasattr(kernel, "schedule_dispatch") and hasattr(kernel, "dispatch_shell"):
            dispatch = functools.partial(kernel.schedule_dispatch, kernel.dispatch_shell)

            def receive_6(message: list[Any]) -> Any:
                self._look(message)
                return dispatch(message)

            stream.on_recv(receive_6, copy=False)
            self._take_off = lambda: stream.on_recv(dispatch, copy=False)
            return True
        return False

    def _look(self, message: list[Any]) -> None:
        if not self.callbacks:
            return
        try:
            _, frames = self._kernel.session.feed_identities(message, copy=False)
            parts = [bytes(frame.buffer) for frame in frames[:5]]
            if len(parts) < 5 or b"comm_msg" not in parts[1]:
                return
            session = self._kernel.session
            if session.auth is not None and not hmac.compare_digest(session.sign(parts[1:5]), parts[0]):
                return  # not from our front-end; dispatch will refuse it too
            header, content = json.loads(parts[1]), json.loads(parts[4])
            click = self.callbacks.get(content.get("comm_id"))
            if header.get("msg_type") != "comm_msg" or click is None:
                return
            data = content.get("data")
        except (AttributeError, ValueError, TypeError, IndexError) as problem:
            self._kernel.log.warning("ipyagent could not look at a shell message: %r", problem)
            return
        try:
            click(data if isinstance(data, dict) else {})
        except Exception:
            self._kernel.log.exception("ipyagent: a click was not taken")


def _peek_of(kernel: Any) -> _Peek | None:
    peek = vars(kernel).get(_PEEK)
    if peek is None:
        peek = _Peek(kernel)
        if not peek.install():
            return None
        vars(kernel)[_PEEK] = peek
    return peek if isinstance(peek, _Peek) else None
