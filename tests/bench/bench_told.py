"""What the model is told of some 260 cells with 44 libraries, and of the values that they end in: tokens per library.

`python -m tests.bench told` prints the table. `python -m tests.bench.bench_told FILE [LIBRARY …]` writes the texts;
`python -m tests.bench.bench_told --against BEFORE AFTER` compares two such files, of two commits."""
# ruff: noqa: E501 - cells and their scripts

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import uuid
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import nbformat

from ipyagent.practice.replies import Reply, text, tool
from ipyagent.practice.server import PracticeServer
from tests.bench.measuring import Row
from tests.bench.output_cells import LIBRARIES

EXECUTE = """
import sys, nbformat
from nbclient import NotebookClient
nbformat.v4.nbbase.validate = lambda *_, **__: None  # altair's mimetype renderer breaks its rules
file = sys.argv[1]
book = nbformat.read(file, 4)
where = {"metadata": {"path": file.rpartition("/")[0]}}
NotebookClient(book, timeout=120, kernel_name="python3", allow_errors=True, resources=where).execute()
nbformat.write(book, file)
"""
PREVIEWS = """
import json, sys, warnings
warnings.simplefilter("ignore")
import matplotlib
matplotlib.use("agg")
from IPython.core.interactiveshell import InteractiveShell
from IPython.utils.capture import capture_output
from ipyagent.kernel.variables import summarize
shell = InteractiveShell.instance()
told = []
for setup, cells in json.loads(sys.stdin.read()):
    with capture_output():
        shell.run_cell("\\n".join(line for line in setup.splitlines() if line[:1] != "%"))
        values = [shell.run_cell(code, store_history=False).result for code in cells]
        told.append(["" if value is None else summarize({"value": value}, seconds=2).removeprefix("value  ") for value in values])
print(json.dumps(told))
"""


def previewed(groups: list[tuple[str, list[str]]]) -> list[list[str]]:
    """For groups of a setup and cells the preview of the value that each cell ends in; "" where it ends in none."""
    ran = subprocess.run(
        [sys.executable, "-c", PREVIEWS], input=json.dumps(groups), capture_output=True, text=True, timeout=3_000, check=True
    )
    made: list[list[str]] = json.loads(ran.stdout.splitlines()[-1])
    return made


class Shower:
    """A model that runs the code of the cell that it is asked to show. `got`: what it was told of each."""

    def __init__(self, codes: dict[str, str]) -> None:
        self.codes, self.got, self._asked = codes, dict[str, dict[str, Any]](), ""

    def __call__(self, body: dict[str, Any]) -> Reply:
        last = body["messages"][-1]["content"]
        blocks = last if isinstance(last, list) else [{"type": "text", "text": last}]
        for result in [block for block in blocks if block["type"] == "tool_result"][:1]:
            content = result["content"]
            parts = content if isinstance(content, list) else [{"type": "text", "text": content}]
            self.got[self._asked] = {
                "text": "\n".join(part["text"] for part in parts if part["type"] == "text"),
                "pictures": [part["source"]["data"] for part in parts if part["type"] == "image"],
            }
            return text("That was it.")
        asked = " ".join(str(block.get("text", "")) for block in blocks)
        found = asked.rpartition("show «")[2].partition("»")[0]
        if found not in self.codes:  # of the work behind the conversation
            return text("nothing")
        self._asked = found
        return tool("python", {"code": self.codes[found]})


def surroundings(url: str, folder: Path) -> dict[str, str]:
    """The environment of a kernel whose agent asks the server at `url`."""
    return {
        "ANTHROPIC_BASE_URL": url, "ANTHROPIC_API_KEY": "practice", "IPYAGENT_HOME": str(folder / "home"),
        "IPYAGENT_MODE": "auto", "IPYAGENT_EXTRACTION": "false", "IPYAGENT_MODEL": "claude-sonnet-5-5",
    }  # fmt: skip


def ran(cells: list[str], folder: Path, environment: dict[str, str]) -> list[Any]:
    """The cells with their outputs, run in order in a kernel of their own, in a process without other loops."""
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(code) for code in cells])
    file = folder / f"cells-{uuid.uuid4().hex}.ipynb"
    nbformat.write(notebook, file)
    subprocess.run([sys.executable, "-c", EXECUTE, file], check=True, timeout=3_000, env=os.environ | environment)
    made: list[Any] = nbformat.read(file, 4).cells
    return made


def told(names: list[str], folder: Path) -> dict[str, list[dict[str, Any]]]:
    """What reaches the model of each cell of these libraries, in one kernel: `text`, `pictures` (in base64), and the
    `preview` of the value that the cell ends in."""
    model = Shower({f"{name}/{at}": code for name in names for at, code in enumerate(LIBRARIES[name].cells)})
    cells = ["%load_ext ipyagent\n%matplotlib inline"]
    for name in names:
        cells += [LIBRARIES[name].setup]
        cells += [f"%%agent --fresh\nshow «{name}/{at}»" for at in range(len(LIBRARIES[name].cells))]
    with PracticeServer(model) as server:
        ran(cells, folder, surroundings(server.url, folder))
    previews = previewed([(LIBRARIES[name].setup, list(LIBRARIES[name].cells)) for name in names])
    return {
        name: [
            {"code": code, "preview": previews[number][at], **model.got.get(f"{name}/{at}", {"text": "", "pictures": []})}
            for at, code in enumerate(LIBRARIES[name].cells)
        ]
        for number, name in enumerate(names)
    }


def all_told(names: list[str]) -> Iterator[tuple[str, list[dict[str, Any]]]]:
    there = [name for name in names or list(LIBRARIES) if find_spec(LIBRARIES[name].module) is not None]
    for at in range(0, len(there), 11):
        with tempfile.TemporaryDirectory() as folder:
            yield from told(there[at : at + 11], Path(folder)).items()


def tokens(cell: dict[str, Any]) -> int:
    """Of the text alone."""
    from ipyagent.journal.tokens import estimate_text

    return round(estimate_text(cell["text"]))


def rows() -> Iterator[Row]:
    for name, cells in all_told([]):
        count = sum(map(tokens, cells))
        pictures = sum(len(cell["pictures"]) for cell in cells)
        longest = max(round(len(cell["preview"].encode())) for cell in cells)
        yield f"told: {name}", f"{len(cells)} cells; model {count} tokens, {pictures} pictures", f"preview ≤ {longest} B"


def against(before: Path, after: Path) -> Iterator[str]:
    """Tokens of text per library in two files."""
    old, new = (json.loads(file.read_text()) for file in (before, after))
    total = [0, 0, 0]
    for name in [name for name in old if name in new]:
        both = [sum(map(tokens, cells)) for cells in (old[name], new[name])]
        pictures = [sum(len(cell["pictures"]) for cell in cells) for cells in (old[name], new[name])]
        total = [total[0] + len(old[name]), total[1] + both[0], total[2] + both[1]]
        share = f"{100 * both[1] / max(1, both[0]):.0f} %"
        yield f"{name:<16} {len(old[name]):>3} cells {both[0]:>7,} {both[1]:>7,} {share:>6}  pictures {pictures}"
    yield f"{'all':<16} {total[0]:>3} cells {total[1]:>7,} {total[2]:>7,} {100 * total[2] / total[1]:>4.0f} %"


if __name__ == "__main__":
    if sys.argv[1] == "--against":
        print("\n".join(against(Path(sys.argv[2]), Path(sys.argv[3]))))
    else:
        made = {}
        for name, cells in all_told(sys.argv[2:]):
            made[name] = cells
            print(name, sum(map(tokens, cells)), flush=True)
            Path(sys.argv[1]).write_text(json.dumps(made, ensure_ascii=False, indent=1))
