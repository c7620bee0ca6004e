"""A shipped notebook, executed in a project of its own without key or network, and what every one of them keeps to."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import nbformat as formats
import pytest
from kernels import ROOT
from outputs import renamed, words
from test_quickstart import environ

from ipyagent.journal.events import Event
from ipyagent.journal.journal import TRANSCRIPT, read_events
from tests.kernel.forked import executor

nbformat: Any = formats  # its functions are untyped


@dataclass(frozen=True)
class Run:
    """A notebook that was executed: its folder and home, and its sessions, oldest first: their folders and events."""

    name: str
    notebook: Any
    folder: Path
    home: Path
    places: list[Path]
    sessions: list[list[Event]]

    @property
    def memory(self) -> Path:
        return self.folder / ".ipyagent" / "memory"

    def outputs(self, cell: str) -> list[Any]:
        (found,) = [one for one in self.notebook.cells if one.get("id") == cell]
        return list(found.outputs)

    def text(self, cell: str) -> str:
        """All text of a cell's outputs."""
        return "".join(
            output.get("text") or f"{output.get('data', {}).get('text/plain', '')}\n" for output in self.outputs(cell)
        )

    def markdown(self, cell: str) -> list[str]:
        """What a cell displays as Markdown."""
        shown = [output.get("data", {}) for output in self.outputs(cell)]
        return [data["text/markdown"] for data in shown if "text/markdown" in data]

    def check(self, sessions: int) -> None:
        """It shows what it ships with, without an error and without a word on standard error (but for matplotlib's
        line in a new environment), in so many sessions."""
        outputs = [output for cell in self.notebook.cells for output in cell.get("outputs", ())]
        assert [
            output for output in outputs
            if output.output_type == "error" or (output.get("name") == "stderr" and "font cache" not in output["text"])
        ] == []  # fmt: skip
        assert len(self.sessions) == sessions
        lesson = "/tmp/ipyagent-lesson"
        folders = {self.folder: lesson, self.home: f"{lesson}/home", self.folder.parent: lesson, ROOT: "~/ipyagent"}
        assert dict(words(renamed(self.notebook, folders))) == dict(words(source(self.name)))


def penguins() -> Any:
    from palmerpenguins import load_penguins

    return load_penguins()


def source(name: str) -> Any:
    """The notebook as it is shipped."""
    return nbformat.read(ROOT / "notebooks" / name, as_version=4)


def execute(name: str, place: Path) -> Run:
    """Run it in `place`/project."""
    folder, notebook = place / "project", source(name)
    folder.mkdir()
    with pytest.MonkeyPatch.context() as patch:
        for variable, value in environ(place, IPYAGENT_PROJECT=str(folder)).items():
            patch.setenv(variable, value)
        for variable in ("ANTHROPIC_API_KEY", "ANTHROPIC_BASE_URL", "IPYAGENT_MODEL", "IPYAGENT_MODE"):
            patch.delenv(variable, raising=False)
        executor(notebook, folder).execute()
    nbformat.validate(notebook)
    found = [(path.parent, list(read_events(path))) for path in (folder / ".ipyagent" / "sessions").glob(f"*/{TRANSCRIPT}")]
    found.sort(key=lambda pair: pair[1][0].at)
    return Run(name, notebook, folder, place / "home", [pair[0] for pair in found], [pair[1] for pair in found])


def of(events: Iterable[Event], kind: type[Any]) -> list[Any]:
    return [event for event in events if isinstance(event, kind)]
