"""Hooks: the user's own functions at fixed points of a turn.

`ipyagent.hooks.pre_tool(function)` (also as a decorator) registers one; it is called with a dict of facts, a copy of
its own: a plain function on a thread of its own, an async one on the agent thread, which it must not block.
Commands in the user's `hooks.json` come after the functions (`shell_hooks`). A hook that raises, or takes longer than
`hooks.timeout` seconds, is reported and ignored, except `pre_tool`, where it denies, as an answer does that is none.

| point | facts | may return |
|---|---|---|
| session_start | session, resumed | text for the model |
| user_prompt | text | text for the model |
| pre_tool | tool, input, call | {"deny": reason} or {"input": other arguments} |
| post_tool | tool, input, call, output, is_error | text added to the result |
| pre_compact, post_compact | trigger, method | text for the summary, text after it |
| stop | status, message, text | nothing (a stopped turn waits for it a moment only) |
| session_end | session | nothing (at the end of the process too, for `AT_EXIT` seconds at most) |
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import inspect
import threading
from collections.abc import Awaitable, Callable, Iterator
from copy import deepcopy
from typing import Any, TypeAlias

from ipyagent.errors import AgentError, UsageError
from ipyagent.loop.shell_hooks import SECONDS, CommandHook, HooksFile

Hook: TypeAlias = Callable[[dict[str, Any]], Any]

NAMES = (
    "session_start",
    "user_prompt",
    "pre_tool",
    "post_tool",
    "pre_compact",
    "post_compact",
    "stop",
    "session_end",
)
AT_EXIT = 2.0
"""Seconds that each hook gets when the process ends: a kernel is killed soon after it was told to."""


class Hooks:
    """The functions registered for each point; a point is an attribute: `hooks.stop(function)`."""

    def __init__(self) -> None:
        self._registered: dict[str, list[Hook]] = {name: [] for name in NAMES}
        self._file = HooksFile(NAMES)
        self.timeout = SECONDS
        """Seconds that one function may take; commands have their own."""

    def __repr__(self) -> str:
        counts = {name: len(found) for name, found in self._registered.items() if found}
        return f"<Hooks {counts}>"

    def __getattr__(self, name: str) -> Callable[[Hook], Hook]:
        if name.startswith("_") or name not in NAMES:
            raise AttributeError(f"there is no hook {name!r}; hooks: {', '.join(NAMES)}")

        def register(function: Hook) -> Hook:
            if not callable(function):
                raise UsageError(f"a {name} hook must be a function of one argument, not {function!r}")
            if function not in self._registered[name]:
                self._registered[name].append(function)
            return function

        return register

    def remove(self, function: Hook) -> None:
        """Take a function out of every point."""
        for found in self._registered.values():
            if function in found:
                found.remove(function)

    def clear(self) -> None:
        """Take all functions out."""
        for found in self._registered.values():
            found.clear()

    def registered(self, name: str) -> Iterator[Hook]:
        """The functions of a point, in the order of their registration, then the user's commands."""
        yield from (*self._registered[name], *self._file.of(name))

    async def call(self, name: str, facts: dict[str, Any], failed: Callable[[str], None]) -> list[Any]:
        """What the functions of a point return, None left out. `failed` is told of each that raises."""
        answers = [await self._answer(hook, facts, name, failed) for hook in self.registered(name)]
        return [answer for answer in answers if answer is not None]

    def call_now(
        self, name: str, facts: dict[str, Any], failed: Callable[[str], None], *, most: float | None = None
    ) -> None:
        """Call the functions of a point where nobody can await; `most` bounds the seconds of each further."""
        seconds = self.timeout if most is None else min(most, self.timeout)
        for hook in self.registered(name):
            try:
                if isinstance(hook, CommandHook):
                    hook.call_now(deepcopy(facts), most)
                else:
                    _Call(hook, deepcopy(facts)).wait(seconds)
            except Exception as problem:  # noqa: BLE001 - the user's code: reported, and the end goes on
                failed(f"hook {name} ({_name(hook)}): {type(problem).__name__}: {problem}")

    async def before_tool(self, facts: dict[str, Any]) -> tuple[dict[str, Any] | None, str]:
        """What the `pre_tool` functions make of a call: other arguments (None: as they are), and why
        it may not run ("" when it may). One that raises, or whose answer is none, denies."""
        changed: dict[str, Any] | None = None
        for hook in self.registered("pre_tool"):
            why: list[str] = []
            given = facts["input"] if changed is None else changed
            answer = await self._answer(hook, {**facts, "input": given}, "pre_tool", why.append)
            if why:
                return None, why[0]
            if answer is None:
                continue
            if not _is_answer(answer):
                return None, (
                    f"hook pre_tool ({_name(hook)}) returned {str(answer)[:100]!r}, which is no answer: it "
                    'may be None, {"deny": reason} or {"input": arguments}'
                )
            if answer.get("deny"):
                return None, str(answer["deny"])
            changed = answer.get("input", changed)
        return changed, ""

    async def _answer(self, hook: Hook, facts: dict[str, Any], name: str, failed: Callable[[str], None]) -> Any:
        """What one function returns, awaited where it is async; None when it raises, which is told."""
        own = deepcopy(facts)
        try:
            if isinstance(hook, CommandHook):  # it keeps its own time
                return await hook(own)
            if inspect.iscoroutinefunction(hook):
                return await _within(hook(own), self.timeout)
            return await _Call(hook, own).answer(self.timeout)
        except asyncio.CancelledError as problem:
            task = asyncio.current_task()
            if task is None or task.cancelling():
                raise  # the turn is stopped
            failed(f"hook {name} ({_name(hook)}): {type(problem).__name__}")
        except Exception as problem:  # noqa: BLE001 - the user's code: reported, and the turn goes on
            failed(f"hook {name} ({_name(hook)}): {type(problem).__name__}: {problem}")
        return None


class HookFailed(AgentError):
    """A hook came to nothing; the message says how."""


class _Call:
    """One call of a plain function, on a thread that nothing waits for longer than it was told to: the process may
    end while it hangs. What it prints lands where the caller prints."""

    def __init__(self, hook: Hook, facts: dict[str, Any]) -> None:
        self._hook, self._facts = hook, facts
        self._done = threading.Event()
        self._told: Callable[[], object] = self._done.set
        self._result: Any = None
        self._problem: Exception | None = None

    def wait(self, seconds: float) -> Any:
        """The answer, awaited on the function's thread where it is async."""
        self._start()
        if not self._done.wait(seconds):
            raise HookFailed(f"it took longer than {seconds:g} s")
        return self._outcome()

    async def answer(self, seconds: float) -> Any:
        """The same from async code; what the function returns is awaited here."""
        loop, here = asyncio.get_running_loop(), asyncio.Event()

        def told() -> None:
            with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits
                loop.call_soon_threadsafe(here.set)

        self._told = told
        self._start()
        await _within(here.wait(), seconds)
        return self._outcome()

    def _start(self) -> None:
        context = contextvars.copy_context()
        threading.Thread(target=lambda: context.run(self._run), name="ipyagent-hook", daemon=True).start()

    def _run(self) -> None:
        try:
            result = self._hook(self._facts)
            self._result = asyncio.run(_awaited(result)) if inspect.isawaitable(result) else result
        except Exception as problem:  # noqa: BLE001 - the user's code: raised again where it is waited for
            self._problem = problem
        except BaseException as problem:  # noqa: BLE001 - SystemExit and its like end the function only
            self._problem = HookFailed(f"it raised {type(problem).__name__}")
        self._told()

    def _outcome(self) -> Any:
        if self._problem is not None:
            raise self._problem
        return self._result


async def _awaited(value: Awaitable[Any]) -> Any:
    return await value


async def _within(value: Awaitable[Any], seconds: float) -> Any:
    """The value, awaited for at most so long. Raises HookFailed, also for a SystemExit, which would end the loop; a
    TimeoutError of its own is its own."""

    async def guarded() -> Any:
        try:
            return await value
        except (SystemExit, KeyboardInterrupt) as problem:
            raise HookFailed(f"it raised {type(problem).__name__}") from problem

    task = asyncio.ensure_future(guarded())
    try:
        done, _ = await asyncio.wait({task}, timeout=seconds)
    except BaseException:
        task.cancel()
        raise
    if not done:
        task.cancel()
        raise HookFailed(f"it took longer than {seconds:g} s")
    return task.result()


def _is_answer(answer: Any) -> bool:
    """Whether a `pre_tool` hook said something that is understood."""
    return isinstance(answer, dict) and answer.keys() <= {"deny", "input"} and isinstance(answer.get("input", {}), dict)


def _name(hook: Hook) -> str:
    return str(getattr(hook, "__name__", hook))


hooks = Hooks()
"""The process's hooks, public as `ipyagent.hooks`."""
