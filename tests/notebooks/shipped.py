"""A shipped notebook, executed in a project of its own without key or network; what every one of them keeps to."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import nbformat as formats
import pytest
from kernels import ROOT
from test_quickstart import environ

nbformat: Any = formats  # its functions are untyped


def source(name: str) -> Any:
    """The notebook as it is shipped."""
    return nbformat.read(ROOT / "notebooks" / name, as_version=4)


def execute(name: str, place: Path) -> tuple[Any, float]:
    """The executed notebook, whose project is `place`/project, and the processor's seconds that its kernel took: how
    busy the machine is says nothing of the notebook."""
    from nbclient import NotebookClient

    (place / "project").mkdir()
    notebook = source(name)
    with pytest.MonkeyPatch.context() as patch:
        for variable, value in environ(place, IPYAGENT_PROJECT=str(place / "project")).items():
            patch.setenv(variable, value)
        for variable in ("ANTHROPIC_API_KEY", "ANTHROPIC_BASE_URL", "IPYAGENT_MODEL", "IPYAGENT_MODE"):
            patch.delenv(variable, raising=False)
        began = _of_children()
        NotebookClient(notebook, timeout=120, resources={"metadata": {"path": str(place / "project")}}).execute()
        seconds = _of_children() - began
    nbformat.validate(notebook)
    return notebook, seconds


def _of_children() -> float:
    """The processor's seconds of all processes that have ended."""
    took = os.times()
    return took.children_user + took.children_system


def text_of(notebook: Any, cell: str) -> str:
    """All text of a cell's outputs."""
    (found,) = [one for one in notebook.cells if one.get("id") == cell]
    return "".join(
        output.get("text") or f"{output.get('data', {}).get('text/plain', '')}\n" for output in found.outputs
    )


def complaints(notebook: Any) -> list[Any]:
    """Outputs that are errors or stand on standard error."""
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", ())]
    return [output for output in outputs if output.output_type == "error" or output.get("name") == "stderr"]
