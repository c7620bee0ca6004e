"""The tools that the model has now: ours, those of other packages, the ones given, the user's own."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from ipyagent.journal.protocols import Tool
from ipyagent.kernel.scope import users_namespace
from ipyagent.skills.desk import Skills
from ipyagent.tools.agent import NAME as AGENT
from ipyagent.tools.catalogue import CALL, FORMER_CALL, SEARCH, catalogue
from ipyagent.tools.load_skill import NAME, tool_for
from ipyagent.tools.schema import FunctionTool


class ToolRegistry:
    """`own` are tools that the caller gave, by name; the user's own stand in the namespace of `shell`;
    what had to be left out is said once, through `notice`. With `skills` there is a tool that loads one as
    long as there are any."""

    def __init__(
        self, own: Iterable[Tool], shell: Any, notice: Callable[[str], None], skills: Skills | None = None
    ) -> None:
        self.own = {tool.name: tool for tool in own}
        self._shell, self.notice = shell, notice
        self.skills = skills
        self.children: Callable[[], dict[str, Tool]] = dict
        """The tool that starts sub-agents, by its name; nothing when they are off."""
        self._installed: dict[str, Tool] | None = None

    def __repr__(self) -> str:
        return f"<ToolRegistry {', '.join(self.now())}>"

    def now(self) -> dict[str, Tool]:
        """Every tool by name; the user's (`@ipyagent.tool`) as they stand in the namespace at this moment."""
        values = list(users_namespace(self._shell).values())
        found: dict[str, Any] = {value.name: value for value in values if type(value) is FunctionTool}
        return {**self.installed, **self.children(), **self._loading(), **self.own, **dict(sorted(found.items()))}

    def theirs(self, tools: Mapping[str, Tool]) -> dict[str, Tool]:
        """Those of `tools` that are neither ours nor of another package."""
        values = list(users_namespace(self._shell).values())
        given = {*self.own, *(value.name for value in values if type(value) is FunctionTool)}
        ours = {*self.installed, *({NAME, AGENT, SEARCH, CALL, FORMER_CALL} - given)}
        return {name: tool for name, tool in tools.items() if name not in ours}

    def _loading(self) -> dict[str, Tool]:
        names = self.skills.look().for_model if self.skills is not None else {}
        found: dict[str, Any] = {}
        if names:
            found[NAME] = tool_for(names)
        return found

    @property
    def installed(self) -> dict[str, Tool]:
        """Our tools and those of other packages, looked for once."""
        if self._installed is None:
            found = catalogue()
            self._installed = {tool.name: tool for tool in found.tools}
            for problem in found.problems:
                self.notice(problem)
        return self._installed
