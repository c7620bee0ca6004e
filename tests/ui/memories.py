"""Memories on a disk and events about them, for the tests of chips and browser."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from ipyagent import IPyAgent
from ipyagent.journal.events import MemorySaved, MemorySurfaced, Recalled
from ipyagent.parts.memory.browsing import Browsing, Explained, MemoryUndo
from ipyagent.parts.memory.safe_paths import address
from ipyagent.parts.memory.store import Memory
from ipyagent.parts.memory.stores import MemoryStores
from ipyagent.project import Project

PLOTS = "/memories/project/feedback_plots.md"
ROLE = "/memories/user/role.md"


def memory(
    name: str = "Plots", about: str = "Axes have units", kind: str = "feedback", body: str = "Label axes."
) -> str:
    return f"---\nname: {name}\ndescription: {about}\ntype: {kind}\n---\n{body}\n"


def surfaced(*paths: str, why: str = "about axes", about: str = "Axes have units", age: int = 12) -> MemorySurfaced:
    shown = tuple(Recalled(path=path, description=about, why=why, score=1.5, age=age) for path in paths)
    return MemorySurfaced(memories=shown, text="<memories>…</memories>")


def saved(path: str = PLOTS, change: str = "created", by: str = "extraction", **more: str) -> MemorySaved:
    return MemorySaved(path=path, change=change, by=by, **more)


class Place:
    """A project with memories, no session and no kernel."""

    def __init__(self, folder: Path) -> None:
        self.project = Project(folder / "project", folder / "home")
        self.project.root.mkdir(parents=True)
        self.memories = MemoryStores(self.project, IPyAgent(environ={}))
        self.undo_actions = MemoryUndo(self.memories, lambda: None)

    def write(self, path: str, text: str) -> MemorySaved:
        access = self.undo_actions.access()
        place = address(path)
        if access.read(place) is None:
            return access.create(place, text).event
        return access.change(place, lambda _: text).event

    def text(self, path: str) -> str | None:
        return self.undo_actions.access().read(address(path))

    def browsing(
        self,
        search: Callable[[str], Sequence[Memory]] = lambda words: (),
        recall: Callable[[str], tuple[str, Sequence[Explained]]] = lambda request: ("", ()),
    ) -> Browsing:
        return Browsing(self.memories, self.undo_actions.access, search, recall)
