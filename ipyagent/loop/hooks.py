"""Hooks: the user's own functions at fixed points of a turn.

`ipyagent.hooks.pre_tool(function)` (also as a decorator) registers one; it is called on the agent
thread with a dict of facts. Commands in the user's `hooks.json` come after the functions (`shell_hooks`). A raising
hook is reported and ignored, except `pre_tool`, where it denies.

| point | facts | may return |
|---|---|---|
| session_start | session, resumed | text for the model |
| user_prompt | text | text for the model |
| pre_tool | tool, input, call | {"deny": reason} or {"input": other arguments} |
| post_tool | tool, input, call, output, is_error | text added to the result |
| pre_compact, post_compact | trigger, method | text for the summary, text after it |
| stop | status, message, text | nothing |
| session_end | session | nothing |
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

from ipyagent.errors import UsageError
from ipyagent.loop.shell_hooks import CommandHook, HooksFile

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


class Hooks:
    """The functions registered for each point; a point is an attribute: `hooks.stop(function)`."""

    def __init__(self) -> None:
        self._registered: dict[str, list[Hook]] = {name: [] for name in NAMES}
        self._file = HooksFile(NAMES)

    def __repr__(self) -> str:
        counts = {name: len(found) for name, found in self._registered.items() if found}
        return f"<Hooks {counts}>"

    def __getattr__(self, name: str) -> Callable[[Hook], Hook]:
        if name.startswith("_") or name not in NAMES:
            raise AttributeError(f"there is no hook {name!r}; hooks: {', '.join(NAMES)}")

        def register(function: Hook) -> Hook:
            if not callable(function):
                raise UsageError(f"a {name} hook is a function of one argument, not {function!r}")
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
        answers = [await _answer(hook, facts, name, failed) for hook in self.registered(name)]
        return [answer for answer in answers if answer is not None]

    def call_now(self, name: str, facts: dict[str, Any], failed: Callable[[str], None]) -> None:
        """Call the functions of a point where nobody can await; async ones are told to be too late."""
        for hook in self.registered(name):
            if inspect.iscoroutinefunction(hook):
                failed(f"hook {name} ({hook.__name__}): must not be async")
                continue
            try:
                hook.call_now(dict(facts)) if isinstance(hook, CommandHook) else hook(dict(facts))
            except Exception as problem:  # noqa: BLE001 - the user's code: reported, and the end goes on
                failed(f"hook {name} ({getattr(hook, '__name__', hook)!s}): {type(problem).__name__}: {problem}")

    async def before_tool(self, facts: dict[str, Any]) -> tuple[dict[str, Any] | None, str]:
        """What the `pre_tool` functions make of a call: other arguments (None: as they are), and why
        it may not run ("" when it may). One that raises denies."""
        changed: dict[str, Any] | None = None
        for hook in self.registered("pre_tool"):
            why: list[str] = []
            answer = await _answer(hook, {**facts, "input": changed or facts["input"]}, "pre_tool", why.append)
            if why:
                return None, why[0]
            if isinstance(answer, dict):
                if answer.get("deny"):
                    return None, str(answer["deny"])
                if isinstance(answer.get("input"), dict):
                    changed = answer["input"]
        return changed, ""


async def _answer(hook: Hook, facts: dict[str, Any], name: str, failed: Callable[[str], None]) -> Any:
    """What one function returns, awaited where it is async; None when it raises, which is told."""
    try:
        answer = hook(dict(facts))
        return await answer if inspect.isawaitable(answer) else answer
    except Exception as problem:  # noqa: BLE001 - the user's code: reported, and the turn goes on
        failed(f"hook {name} ({getattr(hook, '__name__', hook)!s}): {type(problem).__name__}: {problem}")
        return None


hooks = Hooks()
"""The process's hooks, public as `ipyagent.hooks`."""
