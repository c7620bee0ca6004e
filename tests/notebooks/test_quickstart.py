"""The demo runs the quickstart as shipped, and what it prints is true; without a restart tests/browser runs it."""

from __future__ import annotations

import base64
import os
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import nbformat as formats
import pytest
from kernels import ROOT
from rooms import KEY, MODEL

from ipyagent.demo import HOME
from ipyagent.practice.replies import fault, refusal, text, tool
from ipyagent.practice.server import PracticeServer
from tests.kernel.forked import executor

nbformat: Any = formats  # its functions are untyped
NOTEBOOK = ROOT / "notebooks" / "01_quickstart.ipynb"


def environ(place: Path, **more: str) -> dict[str, str]:
    """Nothing of the user's: no key, a home of its own."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("ANTHROPIC_", "IPYAGENT_"))}
    return {
        **kept,
        "PYTHONPATH": str(ROOT),
        "IPYAGENT_HOME": str(place / "home"),
        "IPYTHONDIR": str(place / "ipython"),
        "PYDEVD_DISABLE_FILE_VALIDATION": "1",
        **more,
    }


def answers(notebook: Any) -> dict[str, Any]:
    """What the agent says in each `%%agent` cell as one bundle, with the figures of its code, by the request."""
    found: dict[str, Any] = {}
    for cell in notebook.cells:
        if cell.cell_type == "code" and cell.source.startswith("%%agent"):
            bundles = [output["data"] for output in cell.outputs if "data" in output]
            said = [bundle for bundle in bundles if "ia-static" in bundle.get("text/html", "")]
            kinds = {kind: "\n".join(bundle[kind] for bundle in said) for kind in (said[0] if said else ())}
            figures = [bundle["image/png"] for bundle in bundles if "image/png" in bundle]
            found[cell.source.partition("\n")[2]] = {**kinds, "figures": figures}
    return found


def check(notebook: Any, *, restarted: bool) -> None:
    """The answers of the quickstart against the same figures from pandas."""
    from palmerpenguins import load_penguins  # type: ignore[import-untyped]

    penguins = load_penguins()
    found = answers(notebook)
    assert all({"text/markdown", "text/html", "text/plain"} <= set(bundle) for bundle in found.values())
    said = {request: bundle["text/markdown"] for request, bundle in found.items()}
    rows, columns = penguins.shape
    assert f"**{rows}** rows, **{columns}** columns" in said["Load the palmer penguins data set as `penguins`."]
    missing = penguins.isna().sum()
    assert f"**{missing.sum()}** missing values" in said["Which values are missing?"]
    for name, count in missing[missing > 0].items():
        assert re.search(rf"\|\s*{name}\s*\|\s*{count}\s*\|", said["Which values are missing?"]), name
    means = penguins.groupby(["species", "sex"])["body_mass_g"].mean()
    for value in means:
        assert f"{value:.2f}" in said["Average body mass by species and sex"]
    pair = penguins[["body_mass_g", "flipper_length_mm"]].dropna()
    assert f"r = {pair.corr().iloc[0, 1]:.2f}; n = {len(pair)}" in said["Plot body mass by flipper length."]
    males = penguins[penguins["sex"] == "male"][["body_mass_g", "flipper_length_mm"]].dropna()
    assert f"r = {males.corr().iloc[0, 1]:.2f}; n = {len(males)}" in said["Now only for the males."]
    (plot,) = found["Plot body mass by flipper length."]["figures"]
    assert base64.b64decode(plot).startswith(b"\x89PNG")
    assert "6 things" in said["What have we done so far?"]
    if restarted:
        assert "is gone" in said["Describe penguins."]
        assert "Rebuilt `penguins`: 344 rows" in said["Yes, rebuild it."]
    assert not any(output.output_type == "error" for cell in notebook.cells for output in cell.get("outputs", ()))
    nbformat.validate(notebook)


def test_the_demo_runs_in_a_fresh_home_overwrites_nothing_and_uses_no_model_of_the_environment(tmp_path: Path) -> None:
    """First as a newcomer runs it, without a key; then again, with a home, a key and a model in the environment."""
    began = time.monotonic()
    home, kept = tmp_path / "home", tmp_path / "ipyagent-demo" / NOTEBOOK.name
    home.mkdir()
    surroundings = environ(tmp_path, HOME=str(home))
    del surroundings["IPYAGENT_HOME"]
    command = [sys.executable, "-m", "ipyagent", "demo", "--no-lab"]
    done = subprocess.run(
        command, cwd=tmp_path, env=surroundings, capture_output=True, text=True, check=False, timeout=120
    )
    assert done.returncode == 0, done.stderr
    assert time.monotonic() - began < 60
    assert done.stderr == ""
    for line in ("no key, no network", "kernel restarted", "17 cells, one kernel restart", "Rebuilt `penguins`"):
        assert line in done.stdout
    assert re.findall(r"^━━ (Scene \d): .+ ━━\nNotice: ", done.stdout, re.M) == [f"Scene {number}" for number in range(1, 5)]
    assert done.stdout.rstrip().splitlines()[-4] == "Three next steps:"
    assert "Traceback" not in done.stdout
    assert "not trusted" not in done.stdout
    assert [path.name for path in home.rglob("*") if "ipyagent" in str(path.relative_to(home))] == []
    check(nbformat.read(kept, as_version=4), restarted=True)
    assert (kept.parent / HOME).exists()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["home", "ipyagent-demo", "ipython"]

    kept.write_text("what I made of it")
    theirs = {"ANTHROPIC_API_KEY": KEY, "ANTHROPIC_BASE_URL": "http://127.0.0.1:9", "IPYAGENT_MODEL": MODEL}
    there = environ(tmp_path, **theirs, IPYAGENT_HOME=str(tmp_path / "own"))
    command += ["--folder", "ipyagent-demo"]
    done = subprocess.run(command, cwd=tmp_path, env=there, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr
    assert "also where a key is set" in done.stdout
    assert kept.read_text() == "what I made of it"
    second = tmp_path / "ipyagent-demo-2"
    check(nbformat.read(second / NOTEBOOK.name, as_version=4), restarted=True)
    assert (tmp_path / "own").exists()
    assert not (second / HOME).exists()


# ---------------------------------------------------------------------- papermill


def papermill(place: Path, *cells: str, **more: str) -> tuple[subprocess.CompletedProcess[str], Any]:
    """Run a notebook of cells; the finished process and the notebook it wrote."""
    project = place / "project"
    project.mkdir(exist_ok=True)
    book = nbformat.v4.new_notebook()
    book.metadata["kernelspec"] = {"name": "python3", "language": "python", "display_name": "Python 3"}
    book.cells = [nbformat.v4.new_code_cell(cell) for cell in ("%load_ext ipyagent", *cells)]
    nbformat.write(book, project / "in.ipynb")
    done = subprocess.run(
        [sys.executable, "-m", "papermill", "in.ipynb", "out.ipynb", "--no-progress-bar"],
        cwd=project, env=environ(place, **more), capture_output=True, text=True, check=False, timeout=120,
    )  # fmt: skip
    return done, nbformat.read(project / "out.ipynb", as_version=4)


def served(server: PracticeServer) -> dict[str, str]:
    return {"ANTHROPIC_BASE_URL": server.url, "ANTHROPIC_API_KEY": KEY, "IPYAGENT_MODEL": MODEL,
            "IPYAGENT_EXTRACTION": "false"}  # its requests would take scripted replies


def errors(notebook: Any) -> list[Any]:
    return [output for cell in notebook.cells for output in cell.get("outputs", ()) if output.output_type == "error"]


def test_papermill_goes_on_when_a_tool_failed_and_ends_with_one_clear_line_when_the_agent_failed(tmp_path: Path) -> None:
    with PracticeServer() as server:
        server.script(tool("python", {"code": "1 / 0"}), text("It cannot be divided."))
        server.script(tool("python", {"code": "x = 1"}), text("Nobody allowed it."))
        server.script(fault(401, message="invalid x-api-key"))
        cells = ("%%agent --mode auto\ndivide", "%%agent\nset x", "'x' in globals()", "%%agent\nhello", "ran_on = True")
        done, notebook = papermill(tmp_path, *cells, **served(server))
        code = [cell for cell in notebook.cells if cell.cell_type == "code"]  # papermill adds words about the error
        assert "ZeroDivisionError" in code[1].outputs[-1]["data"]["text/plain"]
        assert "IPYAGENT_MODE=auto" in str(server.messages[-2].body["messages"][-1])
        assert code[3].outputs[0]["data"]["text/plain"] == "False"
    assert done.returncode != 0
    (error,) = errors(notebook)
    assert error["ename"] == "TurnFailed"
    assert len(error["traceback"]) == 1
    assert "key" in error["evalue"]
    assert KEY not in done.stderr + str(notebook)
    assert notebook.cells[-1].execution_count is None


def test_a_refusal_fails_a_notebook_that_nobody_watches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with PracticeServer() as server:
        server.script(refusal("No."))
        (error,) = errors(failing(tmp_path, monkeypatch, served(server)))
    assert error["ename"] == "TurnFailed"
    assert "refused" in error["evalue"]
    assert len(error["traceback"]) == 1


def test_without_a_key_the_hint_is_three_lines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (error,) = errors(failing(tmp_path, monkeypatch, {}))
    assert error["ename"] == "NoCredentials"
    lines = "\n".join(error["traceback"]).splitlines()
    assert len(lines) == 3
    assert "practice" in lines[-1]
    assert not (tmp_path / "project" / ".ipyagent").exists()


def failing(place: Path, monkeypatch: pytest.MonkeyPatch, more: dict[str, str]) -> Any:
    """A notebook of one request, run by nbclient, which must stop there."""
    from nbclient.exceptions import CellExecutionError

    for name in ("ANTHROPIC_API_KEY", "ANTHROPIC_BASE_URL", "IPYAGENT_MODEL"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environ(place, **more).items():
        monkeypatch.setenv(name, value)
    (place / "project").mkdir()
    book = nbformat.v4.new_notebook()
    book.cells = [nbformat.v4.new_code_cell(source) for source in ("%load_ext ipyagent", "%%agent\nhello")]
    with pytest.raises(CellExecutionError):
        executor(book, place / "project").execute()
    return book
