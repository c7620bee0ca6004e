"""The tools that the model has now: ours, those of parts and of other packages, the ones given, the user's own."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any

from ipyagent.assembly.head import render
from ipyagent.journal.protocols import Tool
from ipyagent.kernel.scope import users_namespace
from ipyagent.tools.catalogue import CORE, builtin_tools, catalogue, with_search
from ipyagent.tools.schema import FunctionTool

if TYPE_CHECKING:
    from ipyagent.loop.session import Session
    from ipyagent.parts import Parts


LATE = ("agent", "load_skill")
"""Tools of ours whose schemas tell what there is now: they stand behind those that are always the same."""


class ToolRegistry:
    """`own` are tools that the caller gave, by name; the user's own stand in the namespace of `shell`; what had to be
    left out is said once, through `notice`."""

    def __init__(self, own: Iterable[Tool], shell: Any, notice: Callable[[str], None], parts: Parts) -> None:
        self.own = {tool.name: tool for tool in own}
        self._shell, self._notice, self._parts = shell, notice, parts

    def __repr__(self) -> str:
        return f"<ToolRegistry {', '.join(self.now())}>"

    def now(self, session: Session | None = None) -> dict[str, Tool]:
        """Every tool by name, in the order in which the model reads them; the user's (`@ipyagent.tool`) as they stand
        in the namespace at this moment, those of parts as `session` has them (None: as a new one would)."""
        found = self._of_parts(session)
        late = [*(name for name in LATE if name in found), *found]
        rest = {name: found[name] for name in late if name not in builtin_tools()}
        return {**self._ours(found), **self._theirs, **rest, **self.given(), **self.changing()}

    def ours(self) -> dict[str, Tool]:
        """Those of ours that are always the same, but for parts that were left out; on any thread."""
        return self._ours(self._of_parts(None))

    @staticmethod
    def _ours(found: Mapping[str, Tool]) -> dict[str, Tool]:
        return {name: found.get(name, tool) for name, tool in builtin_tools().items() if name in CORE or name in found}

    def _of_parts(self, session: Session | None) -> dict[str, Tool]:
        steady = (part for part in self._parts if not part.changing)
        return {name: tool for part in steady for name, tool in part.tools(session).items()}

    def given(self) -> dict[str, Tool]:
        """Those that the caller gave, and the user's own."""
        values = list(users_namespace(self._shell).values())
        found: dict[str, Any] = {value.name: value for value in values if type(value) is FunctionTool}
        return {**self.own, **dict(sorted(found.items()))}

    def changing(self) -> dict[str, Tool]:
        """Tools of parts that come and go, as they are at this moment."""
        return {name: tool for part in self._parts if part.changing for name, tool in part.tools(None).items()}

    def renewing(self, tools: Mapping[str, Tool]) -> dict[str, Tool]:
        """Those of `tools` for which a session's system prompt is rendered again when they are new to it."""
        new = {*self.given(), *self.changing()} - {*builtin_tools(), *self._theirs}
        return {name: tool for name, tool in tools.items() if name in new}

    @cached_property
    def _theirs(self) -> dict[str, Tool]:
        """Tools of other packages, looked for once."""
        found = catalogue()
        for problem in found.problems:
            self._notice(problem)
        ours = builtin_tools()
        return {tool.name: tool for tool in found.tools if tool.name not in ours}


# ---- Which of our own tools a small window has room for: the less needed ones are left out, in a fixed order.

SHARE = 3
"""The descriptions of the tools may take a third of the window."""
DISPENSABLE = (
    "send_message", "notebook", "plan", "past_sessions", "agent", "compact", "memory", "load_skill", "glob", "grep",
    "write_file", "variables",
)  # fmt: skip
"""What goes first; python, read_file, edit_file, shell and every tool of the user stay."""


def fitted(
    tools: Mapping[str, Tool], window: int, listed: Collection[str] = (), *, all_listed: bool = False
) -> tuple[dict[str, Tool], tuple[str, ...]]:
    """The tools for a window of `window` tokens (0: not known, all of them), with the search for those that are
    deferred (unless `all_listed`), and the names of those left out. What a session's head tells of already stays."""

    def whole(tools: Mapping[str, Tool]) -> dict[str, Tool]:
        return dict(tools) if all_listed else with_search(tools)

    def fits(tools: Mapping[str, Tool]) -> bool:
        return not window or render(whole(tools), all_listed=all_listed).tool_tokens * SHARE <= window

    kept = dict(tools)
    left: list[str] = []
    for name in DISPENSABLE:
        if fits(kept):
            break
        if name in kept and name not in listed:
            del kept[name]
            left.append(name)
    return whole(kept), tuple(left)
