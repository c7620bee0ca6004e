"""The shell: the tool that runs commands."""

from __future__ import annotations

from ipyagent.parts import Part


class Shell(Part):
    """See the module."""

    name, order, own = "shell", 74, ("shell",)
