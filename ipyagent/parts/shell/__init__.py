"""The shell: the tool that runs commands."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from ipyagent.journal.protocols import Tool
from ipyagent.parts import Part
from ipyagent.tools.catalogue import builtin_tools

if TYPE_CHECKING:
    from ipyagent.loop.session import Session


class Shell(Part):
    """See the module."""

    name, order = "shell", 74

    def tools(self, session: Session | None) -> Mapping[str, Tool]:
        return {"shell": builtin_tools()["shell"]}
