"""The tools that the model has now: ours, those of other packages, the ones given, the user's own."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from ipyagent.journal.protocols import Tool
from ipyagent.tools.catalogue import catalogue
from ipyagent.tools.schema import FunctionTool


class Toolbox:
    """`own` are tools that the caller gave, by name; the user's own stand in the namespace of `shell`;
    what had to be left out is said once, through `notice`."""

    def __init__(self, own: Iterable[Tool], shell: Any, notice: Callable[[str], None]) -> None:
        self.own = {tool.name: tool for tool in own}
        self._shell, self.notice = shell, notice
        self._installed: dict[str, Tool] | None = None

    def __repr__(self) -> str:
        return f"<Toolbox {', '.join(self.now())}>"

    def now(self) -> dict[str, Tool]:
        """Every tool by name; the user's (`@ipyagent.tool`) as they stand in the namespace at this moment."""
        values = list(self._shell.user_ns.values())
        found: dict[str, Any] = {value.name: value for value in values if type(value) is FunctionTool}
        return {**self.installed, **self.own, **dict(sorted(found.items()))}

    @property
    def installed(self) -> dict[str, Tool]:
        """Our tools and those of other packages, looked for once."""
        if self._installed is None:
            found = catalogue()
            self._installed = {tool.name: tool for tool in found.tools}
            for problem in found.problems:
                self.notice(problem)
        return self._installed
