"""A folder of memories on the disk, and what ranking, recall and selector see of it."""

from __future__ import annotations

import os
from pathlib import Path

from ipyagent.parts.memory.fulltext import FullText
from ipyagent.parts.memory.index import named_in
from ipyagent.parts.memory.metadata_index import Memory, Scan
from ipyagent.parts.memory.ranking import Ranked, RankedFolder, rank
from ipyagent.parts.memory.store import MemoryStore

START = 1_760_000_000


class Folder:
    """A memory folder. `add` writes one file, `found` ranks."""

    def __init__(self, path: Path, cache: Path | None = None) -> None:
        self.path = path
        self.scan = Scan(path, "project")
        self.index = FullText(path, cache)
        self.shelf = RankedFolder(self.index)
        self._count = 0

    def add(self, name: str, description: str, body: str = "", /, **fields: object) -> None:
        head = "".join(f"{key}: {value}\n" for key, value in {"description": description, **fields}.items())
        file = self.path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"---\n{head}---\n{body}\n", encoding="utf-8")
        self._count += 1
        moment = START + 60 * self._count
        os.utime(file, (moment, moment))

    def refresh(self) -> list[Memory]:
        memories = self.scan.memories()
        self.index.refresh(memories)
        return memories

    def found(self, query: str, limit: int = 200) -> list[Ranked]:
        self.refresh()
        return rank([self.shelf], query, limit=limit)

    def names(self, query: str, limit: int = 200) -> list[str]:
        return [item.memory.name for item in self.found(query, limit)]


def memory(name: str = "a.md", /, *, modified: float = START, **fields: object) -> Memory:
    """A header as the scan gives it."""
    given = {"title": name.removesuffix(".md"), **fields}
    return Memory(scope="project", name=name, modified=modified, **given)  # type: ignore[arg-type] # test values


def index_names(store: MemoryStore) -> list[str]:
    """The files that the index names, in its order."""
    return [name for line in store.index.text().splitlines() if (name := named_in(line)) is not None]
