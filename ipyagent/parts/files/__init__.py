"""Files: the tools that read, find, write and edit them."""

from __future__ import annotations

from ipyagent.parts import Part


class Files(Part):
    """See the module."""

    name, order, own = "files", 70, ("edit_file", "glob", "grep", "read_file", "write_file")
