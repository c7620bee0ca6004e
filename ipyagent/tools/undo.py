"""Put files back as they were before the agent changed them: newest change first, and never over
what someone else wrote since."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from ipyagent.errors import ToolFailure
from ipyagent.journal.events import FileChanged
from ipyagent.nofollow import is_file
from ipyagent.tools.changes import current, written_beside
from ipyagent.tools.paths import digest, is_guarded


class Undone(NamedTuple):
    """`restored`: paths put back, as the events name them; `conflicts`: those left alone, each
    as "path: why"."""

    restored: tuple[str, ...]
    conflicts: tuple[str, ...]


def restore(changes: Sequence[FileChanged], root: Path, backups: Path) -> Undone:
    """Undo `changes` (oldest first, as in the journal) of files under `root`, from the copies in
    `backups`. A file is put back wholly or, when any step does not fit, left alone and named."""
    by_path: dict[str, list[FileChanged]] = {}
    for change in changes:
        by_path.setdefault(change.path, []).append(change)
    restored: list[str] = []
    conflicts: list[str] = []
    for path, steps in by_path.items():
        try:
            if _put_back(_inside(path, root), steps[::-1], backups):
                restored.append(path)
        except (ToolFailure, OSError) as problem:
            conflicts.append(f"{path} was left alone: {problem}")
    return Undone(tuple(restored), tuple(conflicts))


def _inside(path: str, root: Path) -> Path:
    # A transcript may come from elsewhere: what it names is checked as if it were hostile.
    base = root.resolve()
    target = (base / path).resolve()
    if not target.is_relative_to(base):
        raise ToolFailure("it is outside the project")
    if any(is_guarded(part) for part in target.relative_to(base).parts):
        raise ToolFailure("files in .git and .ipyagent are not written")
    return target


def _put_back(target: Path, steps: Sequence[FileChanged], backups: Path) -> bool:
    """Whether anything had to be written."""
    now = current(target)
    content = now
    for step in steps:
        before = _backup(step.backup, backups)
        mark = "" if content is None else digest(content)
        if mark == step.digest:
            content = before
        elif content != before:  # equal: this change was journalled and then not made
            raise ToolFailure("it has changed since")
    if content == now:
        return False
    if content is None:
        target.unlink()
        return True
    target.parent.mkdir(parents=True, exist_ok=True)
    temporary = written_beside(target, content)
    try:
        os.replace(temporary, target)
    finally:
        temporary.unlink(missing_ok=True)
    return True


def _backup(name: str, backups: Path) -> bytes | None:
    if not name:
        return None
    file = backups / name
    if not file.resolve().is_relative_to(backups.resolve()):
        raise ToolFailure(f"its backup {name!r} is not among the session's backups")
    if not is_file(file):
        raise ToolFailure(f"its backup {name} is missing")
    content = current(file)
    if content is None or digest(content) != name:
        raise ToolFailure(f"its backup {name} was changed")
    return content
