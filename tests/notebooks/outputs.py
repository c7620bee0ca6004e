"""The notebooks ship with their outputs: `python -m tests.notebooks.outputs [NAME …]` makes them anew.

A run is compared with what is shipped by its words: times, costs, counts, ids and folders are those of one run, and a
picture is there or not.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import nbformat as formats

from tests.kernel.forked import executor

nbformat: Any = formats  # its functions are untyped
ROOT = Path(__file__).parents[2]
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))
RESTART = "restart"


def run(path: Path, folder: Path) -> Any:
    """The notebook executed in a folder, with a restart of the kernel where a cell is tagged so; what an earlier run
    left in it is gone."""
    notebook = nbformat.read(path, as_version=4)
    for cell in notebook.cells:
        if cell.cell_type == "code":
            cell.outputs, cell.execution_count = [], None
    asyncio.run(_run(notebook, folder))
    for cell in notebook.cells:
        cell.metadata.pop("execution", None)  # when each cell began and ended
    notebook.metadata["language_info"] = {"name": "python", "pygments_lexer": "ipython3"}
    notebook = renamed(notebook, {ROOT: "~/ipyagent"})  # where the bundled skills are
    nbformat.validate(notebook)
    return notebook


def renamed(notebook: Any, folders: dict[Path, str]) -> Any:
    """The notebook with other names for these folders."""
    text = nbformat.writes(notebook)
    for folder, name in folders.items():
        text = text.replace(json.dumps(str(folder))[1:-1], name)
    return nbformat.reads(text, as_version=4)


async def _run(notebook: Any, folder: Path) -> None:
    client = executor(notebook, folder, extra_arguments=["--log-level=ERROR"])
    async with client.async_setup_kernel():
        for index, cell in enumerate(notebook.cells):
            if RESTART in cell.metadata.get("tags", ()):
                await client.km.restart_kernel(now=False)
                await client.kc.wait_for_ready(timeout=60)
            await client.async_execute_cell(cell, index)


_LOOSE = (
    (re.compile(r"\[took [^\]]*\]"), ""),
    (re.compile(r"data:image/[^\"')]+"), "picture"),
    (re.compile(r"\S*ipyagent-(?:lesson|quickstart)[\w-]*"), "folder"),
    (re.compile(r"\S*ipykernel\\?_\S*"), "cell"),  # the file that stands for it in a traceback
    (re.compile(r"\b\d{8}-\d{6}-[0-9a-f]{4}\b|(?<=[\w\\])-[0-9a-f]{4}\b"), " #"),
    (re.compile(r"(?<=toolu_)[0-9a-f]+|\b(?=[0-9a-f]*\d)[0-9a-f]{6,}\b"), "#"),
    (re.compile(r"\d(?:[\d,.:-]*\d)?"), "#"),
    (re.compile(r"\s*\\?\(# (?:ms|s|min)\\?\)|,? # (?:ms|s|min)\b"), ""),  # a short while is not told
    (re.compile(r"[+-]#"), "#"),
    (re.compile(r"[-\s|─━█▏▎▍▌▋▊▉·]+"), " "),
)


def words(notebook: Any) -> list[tuple[str, list[str]]]:
    """What each code cell shows, by its id: kinds of output and their words, without what is of one run alone."""
    found = []
    for cell in notebook.cells:
        if cell.cell_type == "code":
            streams: dict[str, str] = {}
            shown = []
            for output in cell.outputs:
                if output.output_type == "stream":  # one text may come in several pieces
                    streams[output.name] = streams.get(output.name, "") + output.text
                else:
                    data = output.get("data", {})
                    text = data.get("text/markdown") or data.get("text/plain") or output.get("evalue", "")
                    shown.append(f"{','.join(sorted(data))}: {loose(text)}")
            found.append((cell.id, [f"{name}: {loose(text)}" for name, text in sorted(streams.items())] + shown))
    return found


def loose(text: str) -> str:
    """The words of a text, each once: what two kernels do at one time comes in either order."""
    for pattern, stands in _LOOSE:
        text = pattern.sub(stands, text)
    return " ".join(sorted(set(re.findall(r"[^\W\d]{3,}", text))))


def clean_environment(home: Path) -> None:
    """Nothing of the user's: no key, another home."""
    for name in [name for name in os.environ if name.startswith(("ANTHROPIC_", "IPYAGENT_"))]:
        del os.environ[name]
    os.environ.update(HOME=str(home), IPYTHONDIR=str(home / "ipython"), MPLCONFIGDIR=str(home / "matplotlib"))
    os.environ.update(PYTHONPATH=str(ROOT), PYDEVD_DISABLE_FILE_VALIDATION="1")


def main(names: list[str]) -> None:
    with tempfile.TemporaryDirectory() as place:
        clean_environment(Path(place))
        for path in NOTEBOOKS:
            if not names or any(name in path.name for name in names):
                began = time.monotonic()
                nbformat.write(run(path, Path(place)), path)
                print(f"{path.name}: {time.monotonic() - began:.0f} s, {path.stat().st_size / 1000:,.0f} kB")


if __name__ == "__main__":
    main(sys.argv[1:])
