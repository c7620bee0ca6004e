"""A lesson that was rehearsed begins anew: it does not go on in the rehearsal's session, as the quickstart does."""

from __future__ import annotations

from pathlib import Path

import pytest
from kernels import ROOT
from rooms import room
from shipped import source

from ipyagent.journal.events import UserMessage
from ipyagent.journal.journal import TRANSCRIPT, read_events

LESSONS = sorted(path.name for path in (ROOT / "notebooks").glob("*.ipynb") if not path.name.startswith("01_"))


def first_cells(name: str) -> list[str]:
    """The code up to the first request."""
    code = [str(cell.source) for cell in source(name).cells if cell.cell_type == "code"]
    asks = next(at for at, cell in enumerate(code) if cell.startswith("%%agent") or "\nteach.play(" in cell or cell.startswith("teach.play("))
    return code[: asks + 1]


@pytest.mark.parametrize("name", LESSONS)
def test_a_lesson_begins_a_session_of_its_own(name: str) -> None:
    assert "\n%agent new" in "\n".join(first_cells(name))


def test_the_class_does_not_begin_in_the_rehearsal(tmp_path: Path) -> None:
    name = "08_teaching.ipynb"
    notebook = tmp_path / "project" / name
    with room(tmp_path, JPY_SESSION_NAME=str(notebook), IPYAGENT_PROJECT=str(notebook.parent)) as place:
        notebook.write_bytes((ROOT / "notebooks" / name).read_bytes())
        said = []
        for _ in ("rehearsal", "class"):
            place.restart()
            said.append("".join(place.ok(cell).streams for cell in first_cells(name)))
        assert "resumed" not in said[1]
        sessions = sorted((place.folder / ".ipyagent" / "sessions").glob(f"*/{TRANSCRIPT}"))
        assert [[event.text for event in read_events(path) if isinstance(event, UserMessage)]
                for path in sessions] == [["Load the penguins."], ["Load the penguins."]]  # fmt: skip
