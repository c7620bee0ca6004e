"""The memories of one kernel: the project's and the user's, and why one of them may not be used now.

Memory that is off is not touched by any work; the memory of a project that is not trusted by nobody.
"""

from __future__ import annotations

from pathlib import Path

from ipyagent.config import IPyAgent
from ipyagent.errors import AgentError, MemoryRefused
from ipyagent.memory.files import MemoryStore
from ipyagent.memory.names import SCOPES
from ipyagent.memory.places import memory_folder, store_in
from ipyagent.project import Project

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
        return {scope: self.store(scope) for scope in SCOPES if not self.refusal(scope)}

    def store(self, scope: str) -> MemoryStore:
        """The store of a scope. Raises MemoryRefused with the reason why it may not be used now."""
        if not self.settings.memory:
            raise MemoryRefused(OFF, reason="off")
        return self.any_store(scope)

    def any_store(self, scope: str) -> MemoryStore:
        """The same, also while memory is off: for what the user asks for."""
        if scope == "project" and (self.settings.trust_all or self.project.trusted):
            self.project.take_along()
        folder = memory_folder(scope, self.project, self.settings, folder=self.folder)
        if scope == "project" and self._foreign(folder):
            why = self.project.home_line()
            told = UNKNOWN.format(root=self.project.root, why=why) if why else UNTRUSTED.format(root=self.project.root)
            raise MemoryRefused(told, reason="trust")
        key = (scope, folder)
        if key not in self._made:
            self._made[key] = store_in(folder, scope, self.project)
        return self._made[key]

    def _foreign(self, folder: Path) -> bool:
        """Whether a folder came with the project and nobody has said that it is to be trusted."""
        project = self.project
        if self.settings.trust_all or not folder.is_relative_to(project.root.resolve()):
            return False
        return project.folder.exists() and not project.trusted

    def arrivals(self) -> list[str]:
        """Lines for the user on memories that came into the trusted project, or changed there, by other hands than
        ours (`Project.arrivals`): each is named once, before it counts."""
        if self.settings.trust_all or self.refusal("project"):
            return []
        store = self.store("project")
        if not store.folder.is_relative_to(self.project.root.resolve()):
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
