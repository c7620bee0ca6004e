"""`ipyagent demo`: the quickstart, run for real in a kernel, in four scenes with a sentence each on what to notice."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import sys
import textwrap
import time
from importlib.resources import as_file, files
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from ipyagent.errors import AgentError
from ipyagent.project import Project, user_folder

NOTEBOOK = "01_quickstart.ipynb"
HOME = "quickstart-home"
"""Beside the notebook: what would be in the user's own folder."""
RESTART = "restart"
"""Tag of the cell before which the kernel is restarted."""
SHOWN_LINES = 20
NEXT = """
Three next steps:
  1. Look at the notebook:      jupyter lab {notebook}
  2. Use your own model:        export ANTHROPIC_API_KEY=…, and leave `%agent model practice` out of the notebook
  3. Ask about your own data:   %load_ext ipyagent, then a %%agent cell with your request in it
"""
PRACTICE = dict.fromkeys(("IPYAGENT_MODEL", "IPYAGENT_SMALL_MODEL"), "practice")
"""No key, server or model of the environment is used: a demo costs nothing."""
TOLD = "no key, no network: the practice model (rule-based, no language model), also where a key is set"
MISSING = "the demo needs an extra: pip install 'ipyagent[demo]'"


def run_demo(folder: Path, *, lab: bool | None = None) -> int:
    """Run the quickstart in `folder` (made if need be), print what happened, return 0. What an earlier run has left
    there stays: the next one goes to a folder beside it, with a number.

    `lab`: open it in JupyterLab afterwards; None: when there is a screen. Raises AgentError when
    the extra `demo` is not installed, the folder cannot be written or a cell failed.
    """
    if find_spec("nbclient") is None or find_spec("ipykernel") is None:  # before anything is written
        raise AgentError(MISSING)
    import nbformat as formats

    nbformat: Any = formats  # its functions are untyped
    wanted = folder = folder.resolve()
    number = 1
    while (folder / NOTEBOOK).exists():
        number += 1
        folder = wanted.with_name(f"{wanted.name}-{number}")
    target = folder / NOTEBOOK
    try:
        folder.mkdir(parents=True, exist_ok=True)
        _copy_notebook(target)
    except OSError as problem:
        raise AgentError(
            f"the demo cannot write {folder} ({problem.strerror or problem}): run it in a folder that you can write to"
        ) from None
    home = user_folder() if os.environ.get("IPYAGENT_HOME") else folder / HOME
    Project(folder, home).make()  # a project of its own, whatever lies around it
    notebook = nbformat.read(target, as_version=4)
    print(f"ipyagent demo: {target}\n{TOLD}\n")
    began = time.monotonic()
    try:
        places = {"IPYAGENT_PROJECT": str(folder), "IPYAGENT_HOME": str(home)}
        asyncio.run(_execute(notebook, folder, {**places, **PRACTICE}))
    finally:
        nbformat.write(notebook, target)
    cells = sum(1 for cell in notebook.cells if cell.cell_type == "code")
    print(f"\n{cells} cells, one kernel restart, {time.monotonic() - began:.1f} s; saved with its outputs: {target}")
    print(NEXT.format(notebook=target))
    screen = sys.platform in ("darwin", "win32") or bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))
    if lab if lab is not None else sys.stdout.isatty() and screen:
        return subprocess.run([sys.executable, "-m", "jupyter", "lab", str(target)], check=False).returncode
    return 0


def _copy_notebook(target: Path) -> None:
    """The notebook as shipped: in the wheel, or beside the package in a checkout."""
    packaged = files("ipyagent").joinpath("notebooks", NOTEBOOK)
    if packaged.is_file():
        with as_file(packaged) as path:
            shutil.copyfile(path, target)
    else:
        shutil.copyfile(Path(__file__).parent.parent / "notebooks" / NOTEBOOK, target)


async def _execute(notebook: Any, folder: Path, environ: dict[str, str]) -> None:
    from nbclient import NotebookClient
    from nbclient.exceptions import CellExecutionError

    client: Any = NotebookClient(
        notebook,
        timeout=300,
        resources={"metadata": {"path": str(folder)}},
        extra_arguments=["--log-level=ERROR"],  # its remarks on transport are not for the reader of a demo
    )
    async with client.async_setup_kernel(env={**os.environ, **environ}):
        for index, cell in enumerate(notebook.cells):
            if RESTART in cell.metadata.get("tags", ()):
                print("── kernel restarted: the variables are gone, the session is not ──\n")
                await client.km.restart_kernel(now=True)
                await client.kc.wait_for_ready(timeout=60)
            if cell.cell_type != "code":
                title, _, told = cell.source.partition("\n")
                if title.startswith("## Scene"):  # its title, and what to notice in it
                    print(f"━━ {title.lstrip('# ')} ━━\n{textwrap.fill(told.strip().replace('*', ''), 100)}\n")
                continue
            print("\n".join(f"  > {line}" for line in cell.source.splitlines()))
            try:
                await client.async_execute_cell(cell, index)
            except CellExecutionError as problem:
                told = f"cell {index} failed: {problem.ename}: {problem.evalue}; see ipyagent doctor"
                raise AgentError(told) from None
            print(_told(cell.outputs) + "\n" if cell.outputs else "")


def _told(outputs: list[Any]) -> str:
    """The outputs as text: of an agent's cell the tool lines and the answer, not the tools' output."""
    texts: list[str] = []
    for output in outputs:
        data = output.get("data", {})
        lines = str(output.get("text") or data.get("text/plain", "")).rstrip().splitlines()
        if "text/markdown" in data:
            lines = [line for line in lines if not line.startswith("    ")]
        if len(lines) > SHOWN_LINES:
            lines = [*lines[: SHOWN_LINES - 1], f"… {len(lines) - SHOWN_LINES + 1} more lines"]
        texts += [f"    {line}" for line in lines]
    return "\n".join(texts)
