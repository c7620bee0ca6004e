"""Where memory lies. No setting of a project's own files has a say, and no link leads out of its base.

Order: environment variable, user-level setting, default. Nothing is made here.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path

from ipyagent.config import IPyAgent
from ipyagent.errors import MemoryRefused
from ipyagent.memory.files import MemoryStore
from ipyagent.memory.texts import Records
from ipyagent.nofollow import LINK, status
from ipyagent.project import Project, is_shared

MEMORY = "memory"
WORKTREES = "worktrees"
_DRIVE = re.compile(r"[A-Za-z]:[\\/]*")


def memory_folder(
    scope: str,
    project: Project,
    settings: IPyAgent,
    *,
    environ: Mapping[str, str] = os.environ,
    folder: Path | None = None,
) -> Path:
    """The resolved folder of a scope; what stands in a project has no say in the user's. `folder`: where the
    notebook is (the working directory), which tells the git worktree. Raises MemoryRefused ("place") with the
    reason."""
    if scope == "user":
        return _inside(project.user / MEMORY, project.user)
    given = environ.get("IPYAGENT_MEMORY_DIR") or str(settings.memory_dir)
    if given:
        return _chosen(given, project)
    own = _worktree(project, folder or Path.cwd()) if settings.memory_per_worktree else None
    place = project.state / WORKTREES / own / MEMORY if own else project.state / MEMORY
    if (status(place) is None and os.path.lexists(place)) or os.path.islink(place):
        raise _refused(place, LINK)
    if project.elsewhere:
        return _inside(place, project.user)
    base = project.folder.resolve().parent if project.folder.is_symlink() and project.trusted else project.root
    return _inside(place, base)


def store_in(folder: Path, scope: str, project: Project) -> MemoryStore:
    """The store in a scope's folder; the project's `.ipyagent/` is made with the first write."""
    places = (project.root.resolve(), project.state.resolve())
    inside = scope == "project" and any(folder.is_relative_to(place) for place in places)
    vouch = None if scope == "user" else Records(project.user).holds
    wrote = project.knows if inside and not project.elsewhere else None
    return MemoryStore(folder, scope, prepare=project.make if inside else None, vouch=vouch, wrote=wrote)


def _chosen(given: str, project: Project) -> Path:
    """A folder that the user named. Its own base: only where it lies inside the project must it stay there."""
    if "\0" in given:
        raise _refused(given, "holds a NUL")
    if given.startswith(("\\\\", "//")):
        raise _refused(given, "is a network path")
    if _DRIVE.fullmatch(given):
        raise _refused(given, "is a bare drive")
    try:
        path = Path(given).expanduser()
    except RuntimeError:
        raise _refused(given, "names a home directory that is not known") from None
    if not path.is_absolute():
        raise _refused(given, "is relative")
    if ".." in path.parts:
        raise _refused(given, 'holds ".."')
    root = project.root
    return _inside(path, root if path.is_relative_to(root) or path.is_relative_to(root.resolve()) else None)


def _inside(path: Path, base: Path | None) -> Path:
    """The path after links. Raises MemoryRefused when it leaves `base` or is no place for a memory."""
    try:
        resolved = path.resolve()
    except (OSError, RuntimeError):
        raise _refused(path, "leads in a circle") from None
    if base is not None and (resolved == base.resolve() or not resolved.is_relative_to(base.resolve())):
        raise _refused(path, f"is a link that leads out of {base}, to {resolved}")
    if len(resolved.parts) <= 2 or is_shared(resolved):
        raise _refused(path, "is a root, a home or a shared folder")
    if resolved.exists() and not resolved.is_dir():
        raise _refused(path, "is a file")
    return resolved


def _worktree(project: Project, folder: Path) -> str | None:
    """The git worktree that `folder` lies in, when it is a linked one of this project: a name for a folder."""
    folder = folder.resolve()
    for candidate in (folder, *folder.parents):
        marker = candidate / ".git"
        if marker.is_file() and candidate != project.root.resolve():
            try:
                text = marker.read_text(encoding="utf-8", errors="replace")[:4096]
            except OSError:
                return None
            name = text.strip().rpartition("/")[2]
            plain = re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,80}", name)
            return name if plain else sha256(str(candidate).encode()).hexdigest()[:16]
        if marker.exists() or candidate == project.root.resolve():
            return None
    return None


def _refused(path: object, why: str) -> MemoryRefused:
    return MemoryRefused(f"memory cannot be kept in {str(path)!r}: it {why}; name another folder", reason="place")
