"""Notebooks: the tool that reads and edits their cells."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from ipyagent.journal.protocols import Tool
from ipyagent.parts import Host, Part
from ipyagent.tools.catalogue import builtin_tools

if TYPE_CHECKING:
    from ipyagent.loop.session import Session


class Notebooks(Part):
    """See the module."""

    name, order = "notebooks", 72

    def __init__(self, host: Host) -> None:
        pass

    def tools(self, session: Session | None) -> Mapping[str, Tool]:
        return {"notebook": builtin_tools()["notebook"]}
