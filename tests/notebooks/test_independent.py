"""The shipped notebooks, all in one folder: none needs another to have run, or not to have run."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import Any

import nbformat as formats
import pytest
from kernels import ROOT

nbformat: Any = formats  # its functions are untyped
NAMES = sorted(path.name for path in (ROOT / "notebooks").glob("*.ipynb"))


@pytest.mark.timeout(600)
def test_all_run_in_one_folder_in_order_and_in_reverse_and_touch_no_home(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from nbclient import NotebookClient

    folder, home, spare = (tmp_path / name for name in ("course", "home", "spare"))
    for place in (folder, home, spare):
        place.mkdir()
    for name in [name for name in os.environ if name.startswith(("ANTHROPIC_", "IPYAGENT_"))]:
        monkeypatch.delenv(name)
    for name, value in {"HOME": home, "TMPDIR": spare, "PYTHONPATH": ROOT, "IPYTHONDIR": tmp_path / "ipython"}.items():
        monkeypatch.setenv(name, str(value))
    monkeypatch.setenv("PYDEVD_DISABLE_FILE_VALIDATION", "1")
    monkeypatch.setenv("MPLCONFIGDIR", str(tmp_path / "matplotlib"))
    monkeypatch.setattr(tempfile, "tempdir", None)
    for name in (*NAMES, *reversed(NAMES)):
        notebook = nbformat.read(ROOT / "notebooks" / name, as_version=4)
        NotebookClient(notebook, timeout=120, resources={"metadata": {"path": str(folder)}}).execute()
        outputs = [output for cell in notebook.cells for output in cell.get("outputs", ())]
        assert not [output for output in outputs if output.output_type == "error"], name
    assert not (home / ".ipyagent").exists()
    assert {path.name for path in folder.iterdir()} <= {".ipyagent", "quickstart-home"}  # the quickstart's own
