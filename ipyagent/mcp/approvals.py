"""Which servers of a project the user has said yes to: each by the hash of its entry's text, kept in the user's
own directory. A changed entry (after `git pull`, say) is another one and waits for another yes. The hash covers
the entry, not the programs that it starts."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

from ipyagent.errors import SettingError
from ipyagent.mcp.entries import Entry
from ipyagent.project import Project, home_variable, update_object

FILE = "mcp-approved.json"


def approved(project: Project) -> frozenset[str]:
    """Digests of this project's entries that the user has said yes to; none when the file is not readable."""
    try:
        value = json.loads((project.user / FILE).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return frozenset()
    digests = value.get(str(project.root)) if isinstance(value, dict) else None
    return frozenset(str(one) for one in digests) if isinstance(digests, list) else frozenset()


def approve(project: Project, entries: Iterable[Entry]) -> None:
    """Remember a yes to these entries, in place of all that was said before. Raises SettingError."""
    path: Path = project.user / FILE
    try:
        update_object(path, {str(project.root): sorted(entry.digest for entry in entries)})
    except OSError as problem:
        reason = f"{problem.strerror or problem}; {home_variable()}"
        raise SettingError(f"{path} cannot be written ({reason}): fix that, or set IPYAGENT_HOME") from None
