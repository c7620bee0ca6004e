"""Hooks: the user's own functions at fixed points of a turn.

`ipyagent.hooks.pre_tool(function)` (also as a decorator) registers one; it is called with a dict of
facts and may return text, or for `pre_tool` a dict. A raising hook is reported and ignored, except
`pre_tool`, where it denies.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

from ipyagent.errors import UsageError

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
        """The functions of a point, in the order of their registration."""
        yield from tuple(self._registered[name])

    async def call(self, name: str, facts: dict[str, Any], failed: Callable[[str], None]) -> list[Any]:
        """What the functions of a point return, None left out. `failed` is told of each that raises."""
        answers: list[Any] = []
        for hook in self.registered(name):
            try:
                answer = hook(dict(facts))
                if inspect.isawaitable(answer):
                    answer = await answer
            except Exception as problem:  # noqa: BLE001 - the user's code: reported, and the turn goes on
                failed(f"hook {name} ({getattr(hook, '__name__', hook)!s}): {type(problem).__name__}: {problem}")
                continue
            if answer is not None:
                answers.append(answer)
        return answers


hooks = Hooks()
"""The process's hooks, public as `ipyagent.hooks`."""
