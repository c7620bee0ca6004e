"""The memories of one kernel: the project's and the user's, and why one of them may not be used now.

Memory that is off is not touched by any work; the memory of a project that is not trusted by nobody."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from contextlib import suppress
from functools import partial
from hashlib import sha256
from pathlib import Path

from ipyagent.config import IPyAgent
from ipyagent.errors import AgentError, MemoryRefused
from ipyagent.nofollow import LINK, status
from ipyagent.parts.memory.metadata_index import is_recorded
from ipyagent.parts.memory.safe_paths import SCOPES
from ipyagent.parts.memory.store import MemoryStore
from ipyagent.project import Project, is_shared

# ---- Where memory lies. No setting of a project's own files has a say, and no link leads out of its base. Order:
# environment variable, user-level setting, default. Nothing is made here.

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


# ---- The memory of one type of sub-agent, across its runs: a store of its own in one of three places. `user`: the
# user's folder; `project`: the project's `.ipyagent/`, committed; `local`: there too, not in git. The sub-agent
# sees it as `/memories/project`; its index is always loaded, nothing is recalled of it.

TYPES_SCOPE = "project"
TYPES_FOLDERS = {"user": "agent-memory", "project": "agent-memory", "local": "agent-memory-local"}


def store_of_type(project: Project, name: str, where: str) -> MemoryStore:
    """The store of a type of sub-agents. Raises MemoryRefused when a link leads out of its base."""
    base = project.user if where == "user" else project.state
    folder = base / TYPES_FOLDERS[where] / name.replace(":", "-")
    if not folder.resolve().is_relative_to(base.resolve()) or not base.resolve().is_relative_to(
        (project.user if where == "user" or project.elsewhere else project.root).resolve()
    ):
        raise MemoryRefused(f"the memory of {name} is a link that leads out of {base}: remove the link", reason="place")
    if where == "user":
        return MemoryStore(folder, TYPES_SCOPE)
    wrote = None if project.elsewhere else project.knows
    return MemoryStore(folder, TYPES_SCOPE, prepare=project.make, vouch=partial(is_recorded, project.user), wrote=wrote)


def store_in(folder: Path, scope: str, project: Project) -> MemoryStore:
    """The store in a scope's folder; the project's `.ipyagent/` is made with the first write."""
    places = (project.root.resolve(), project.state.resolve())
    inside = scope == "project" and any(folder.is_relative_to(place) for place in places)
    vouch = None if scope == "user" else partial(is_recorded, project.user)
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


OFF = "memory is off (the setting `memory`); the user turns it on with %memory on"
UNTRUSTED = (
    "the memory of this project ({root}) comes from elsewhere and is not trusted yet; the user turns it on with "
    "%agent trust"
)
UNKNOWN = (
    "whether the user trusts the memory of this project ({root}) cannot be known: {why}; the user turns it on for this "
    "kernel with %agent trust"
)


class MemoryStores:
    """The memories of one kernel: the project's and the user's, each store made once, on first use. `folder`:
    where the notebook is."""

    def __init__(self, project: Project, settings: IPyAgent, folder: Path | None = None) -> None:
        self.project = project
        self.settings = settings
        self.folder = folder
        self._made: dict[tuple[str, Path], MemoryStore] = {}
        self._seen: list[tuple[str, float]] = []

    def __repr__(self) -> str:
        return f"<MemoryStores of {self.project.root.name}>"

    def refusal(self, scope: str) -> str:
        """Why a scope's memories may not be used now; "" when they may."""
        try:
            self.store(scope)
        except AgentError as problem:
            return str(problem)
        return ""

    def stores(self) -> dict[str, MemoryStore]:
        """The stores that may be used now, by scope."""
        return {scope: store for scope in SCOPES if (store := self._usable(scope)) is not None}

    def _usable(self, scope: str) -> MemoryStore | None:
        with suppress(AgentError):
            return self.store(scope)
        return None

    def store(self, scope: str) -> MemoryStore:
        """The store of a scope. Raises MemoryRefused with the reason why it may not be used now."""
        if not self.settings.memory:
            raise MemoryRefused(OFF, reason="off")
        return self.any_store(scope)

    def any_store(self, scope: str) -> MemoryStore:
        """The same, also while memory is off: for what the user asks for."""
        trusted = scope == "user" or self.settings.trust_all or self.project.trusted
        if scope == "project" and trusted:
            self.project.take_along()
        folder = memory_folder(scope, self.project, self.settings, folder=self.folder)
        if not trusted and self.project.folder.exists() and folder.is_relative_to(self.project.root.resolve()):
            why = self.project.home_line()
            told = UNKNOWN.format(root=self.project.root, why=why) if why else UNTRUSTED.format(root=self.project.root)
            raise MemoryRefused(told, reason="trust")
        key = (scope, folder)
        if key not in self._made:
            self._made[key] = store_in(folder, scope, self.project)
        return self._made[key]

    def arrivals(self) -> list[str]:
        """Lines for the user on memories that came into the trusted project, or changed there, by other hands than
        ours (`Project.arrivals`): each is named once, before it counts."""
        store = None if self.settings.trust_all else self._usable("project")
        if store is None or not store.folder.is_relative_to(self.project.root.resolve()):
            return []
        listed = [(memory.name, memory.modified) for memory in store.glance()]
        if listed == self._seen:
            return []
        self._seen = listed
        return self.project.arrivals(
            self.project.root / store.folder.relative_to(self.project.root.resolve()) / name for name, _ in listed
        )

    def first_line(self, scope: str) -> str:
        """Before the first write: a line that says where memories are kept from now on ("" when they are
        there already)."""
        store = self.any_store(scope)
        if store.folder.is_dir():
            return ""
        if scope == "project" and store.folder.is_relative_to(self.project.user):
            return "" if self.project.sessions.is_dir() else self.project.place_line()  # a session has said so
        whose = "this project" if scope == "project" else "all your projects"
        return f"memories of {whose} are kept in {store.folder} (%memory lists them, %memory off turns memory off)"
