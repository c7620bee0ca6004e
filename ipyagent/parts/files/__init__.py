"""Files: the tools that read, find, write and edit them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from ipyagent.journal.protocols import Tool
from ipyagent.parts import Part
from ipyagent.tools.catalogue import builtin_tools

if TYPE_CHECKING:
    from ipyagent.loop.session import Session

NAMES = ("edit_file", "glob", "grep", "read_file", "write_file")


class Files(Part):
    """See the module."""

    name, order = "files", 70

    def tools(self, session: Session | None) -> Mapping[str, Tool]:
        return {name: tool for name, tool in builtin_tools().items() if name in NAMES}
