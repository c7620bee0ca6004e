"""The shipped notebooks, all in one folder: none needs another not to have run (nor to have run: the tests of each run it
alone); each shows what it ships with, and leaves nothing."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import Any

import nbformat as formats
import pytest
from outputs import NOTEBOOKS, ROOT, run, words

nbformat: Any = formats  # its functions are untyped
MOST_HELPERS = 10
"""Lines of functions and classes in one notebook that are no tools, hooks or other subjects of the lesson."""


@pytest.mark.timeout(900)
def test_all_run_in_one_folder_the_last_first_show_what_they_ship_with_and_leave_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
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
    for path in reversed(NOTEBOOKS):
        notebook = run(path, folder)
        shipped = words(nbformat.read(path, as_version=4))
        assert dict(words(notebook)) == dict(shipped), f"python -m tests.notebooks.outputs {path.stem}"
        assert [each.name for each in spare.iterdir() if each.name.startswith("ipyagent")] == [], path.name
        assert not (home / ".ipyagent").exists(), path.name
        assert list(folder.iterdir()) == [], path.name


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_shipped_notebook_has_outputs_of_one_run_and_names_no_place_of_ours(path: Path) -> None:
    notebook = nbformat.read(path, as_version=4)
    counts = [cell.execution_count for cell in notebook.cells if cell.cell_type == "code"]
    starts = [at for at, count in enumerate(counts) if count == 1]  # a restart of the kernel counts anew
    assert [count for begin, end in zip(starts, [*starts[1:], len(counts)], strict=True)
            for count in range(1, end - begin + 1)] == counts  # fmt: skip
    text = path.read_text("utf-8")
    assert str(ROOT) not in text
    assert "widget-view" not in text
    assert not any(output.output_type == "error" for cell in notebook.cells for output in cell.get("outputs", ()))


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_has_at_most_ten_lines_of_helper_code(path: Path) -> None:
    import ast

    notebook = nbformat.read(path, as_version=4)
    sources = [cell.source for cell in notebook.cells if cell.cell_type == "code" and not cell.source.startswith("%%")]
    lines = 0
    for source in sources:
        code = "\n".join(line.replace(line.lstrip(), "pass") if line.lstrip().startswith("%") else line for line in source.splitlines())
        for node in ast.walk(ast.parse(code or "pass")) if code.strip() else ():
            if isinstance(node, ast.FunctionDef | ast.ClassDef | ast.AsyncFunctionDef) and not node.decorator_list:
                lines += (node.end_lineno or 0) - node.lineno + 1
    assert lines <= MOST_HELPERS
