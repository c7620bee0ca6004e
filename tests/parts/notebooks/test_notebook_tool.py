"""The notebook tool: edits mean what people expect, and nothing is overwritten in silence."""

from __future__ import annotations

import asyncio
import json
import re
import sys
import time
from pathlib import Path
from typing import Any

import nbformat
import psutil
import pytest
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, new_raw_cell
from tools_workspace import ShellWorkspace

from ipyagent.errors import ToolFailure
from ipyagent.loop.permissions import Allow, Ask, Deny, Permissions
from ipyagent.parts.files.tools import edit_file, read_file, write_file
from ipyagent.parts.notebooks.tool import notebook

PNG = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="


def call(workspace: ShellWorkspace, action: str, **arguments: Any) -> str:
    given = {"path": "n.ipynb", **arguments}
    output = asyncio.run(notebook.run(notebook.validate({"action": action, **given}), workspace))
    return "\n".join(block.get("text", f"[{block['type']}]") for block in output.blocks)


def question(workspace: ShellWorkspace, action: str, **arguments: Any) -> tuple[str, str]:
    asked = notebook.question(notebook.validate({"action": action, "path": "n.ipynb", **arguments}), workspace)
    return asked.title, asked.text


@pytest.fixture
def path(workspace: ShellWorkspace) -> Path:
    attached = new_markdown_cell("![](a.png)", id="attached", attachments={"a.png": {"image/png": PNG}})
    cells = [
        new_markdown_cell("# Title", id="title"),
        new_code_cell("x = 1\nx", id="load", metadata={"tags": ["keep"]}, execution_count=4,
                      outputs=[nbformat.v4.new_output("stream", text="1\n")]),
        attached,
        new_code_cell("secret = 1", id="private", metadata={"tags": ["agent-hide"]},
                      outputs=[nbformat.v4.new_output("stream", text="hush hush\n")]),
        new_raw_cell("raw text", id="rawone"),
    ]  # fmt: skip
    made = workspace.root / "n.ipynb"
    nbformat.write(new_notebook(cells=cells), made)
    return made


def cells(path: Path) -> list[Any]:
    found = nbformat.read(path, 4)
    nbformat.validate(found)
    return list(found.cells)


def ids(path: Path) -> list[str]:
    return [cell.id for cell in cells(path)]


def new_id(answer: str) -> str:
    return re.findall(r"id (\w+) ---", answer)[-1]


def test_a_new_cell_goes_after_before_or_to_the_end(workspace: ShellWorkspace, path: Path) -> None:
    call(workspace, "read")
    first = new_id(call(workspace, "insert", source="a", after="load"))
    second = new_id(call(workspace, "insert", source="b", after=first))
    third = new_id(call(workspace, "insert", source="c", before="title", cell_type="markdown"))
    fourth = new_id(call(workspace, "insert", source="d", cell_type="raw"))
    assert ids(path) == [third, "title", "load", first, second, "attached", "private", "rawone", fourth]
    assert [cell.cell_type for cell in cells(path)][:1] == ["markdown"]
    assert cells(path)[-1].cell_type == "raw"
    with pytest.raises(ToolFailure, match="not both"):
        call(workspace, "insert", source="e", after="load", before="title")


def test_several_cells_go_in_with_one_call_and_in_their_order(workspace: ShellWorkspace, path: Path) -> None:
    call(workspace, "read")
    several = [{"source": "## Part", "cell_type": "markdown"}, {"source": "a = 1\n"}, {"source": "a"}]
    title, diff = question(workspace, "insert", cells=several, after="load")
    assert title == "Insert 3 cells after load in n.ipynb?"
    assert [line for line in diff.split("\n") if line.startswith("+")] == ["+## Part", "+a = 1", "+a"]
    told = call(workspace, "insert", cells=several, after="load")
    made = re.findall(r"id (\w+) ---", told)
    assert ids(path) == ["title", "load", *made, "attached", "private", "rawone"]
    assert [(cell.cell_type, cell.source) for cell in cells(path)[2:5]] == [
        ("markdown", "## Part"), ("code", "a = 1"), ("code", "a"),
    ]  # fmt: skip
    assert len(workspace.changes) == 1  # one change, undone as one
    odd = {"source": "", "cell_type": "sql"}
    for wrong in ({"source": "x", "cells": several}, {"cells": [{"cell_type": "code"}]}, {"cells": [odd]}):
        with pytest.raises(ToolFailure, match="`cells`"):
            call(workspace, "insert", **wrong)
    new = call(workspace, "insert", path="new.ipynb", cells=several)
    assert "3 cells now" in new


def test_inserts_of_one_message_after_the_same_cell_keep_their_order(workspace: ShellWorkspace, path: Path) -> None:
    call(workspace, "read")
    first, second = (new_id(call(workspace, "insert", source=source, after="load")) for source in ("a", "b"))
    assert ids(path) == ["title", "load", first, second, "attached", "private", "rawone"]
    workspace.beside.clear()  # the model has read the answers
    third = new_id(call(workspace, "insert", source="c", after="load"))
    assert ids(path)[:5] == ["title", "load", third, first, second]


def test_a_cell_cut_short_by_a_line_that_stands_for_the_rest_is_asked_about(workspace: ShellWorkspace) -> None:
    source = "\n".join(f"line_{n} = {n}" for n in range(20))
    nbformat.write(new_notebook(cells=[new_code_cell(source, id="long")]), workspace.root / "n.ipynb")
    call(workspace, "read")
    cut = "x = 1\n# ... rest unchanged"
    short = notebook.validate({"action": "replace", "path": "n.ipynb", "cell": "long", "source": cut})
    assert "'# ... rest unchanged' puts nothing back: 20 of the 20 lines" in notebook.destructive(short, workspace)


def test_replace_keeps_type_id_metadata_attachments_and_outputs(workspace: ShellWorkspace, path: Path) -> None:
    before = cells(path)
    call(workspace, "read")
    assert "outputs are those of the old source" in call(workspace, "replace", cell="load", source="y = 2\n")
    call(workspace, "replace", cell="attached", source="![](a.png) more")
    call(workspace, "replace", cell="rawone", old="raw", source="cooked")
    after = cells(path)
    assert [cell.source for cell in after] == ["# Title", "y = 2", "![](a.png) more", "secret = 1", "cooked text"]
    assert [{**cell, "source": ""} for cell in after] == [{**cell, "source": ""} for cell in before]
    with pytest.raises(ToolFailure, match="is a markdown cell and stays one"):
        call(workspace, "replace", cell="title", source="z", cell_type="code")
    with pytest.raises(ToolFailure, match="has this source already"):
        call(workspace, "replace", cell="title", source="# Title")
    with pytest.raises(ToolFailure, match="0 times"):
        call(workspace, "replace", cell="title", old="nowhere", source="z")


def test_move_and_delete_touch_one_cell_and_a_cell_is_never_there_twice(workspace: ShellWorkspace, path: Path) -> None:
    call(workspace, "read")
    call(workspace, "move", cell="title", after="attached")
    assert ids(path) == ["load", "attached", "title", "private", "rawone"]
    call(workspace, "move", cell="rawone", before="load")
    call(workspace, "move", cell="load")
    assert ids(path) == ["rawone", "attached", "title", "private", "load"]
    with pytest.raises(ToolFailure, match="is at the end already"):
        call(workspace, "move", cell="load")
    with pytest.raises(ToolFailure, match="next to itself"):
        call(workspace, "move", cell="load", after="load")
    call(workspace, "delete", cell="title")
    assert ids(path) == ["rawone", "attached", "private", "load"]
    with pytest.raises(ToolFailure, match="no cell with the id 'title'"):
        call(workspace, "delete", cell="title")
    made = new_id(call(workspace, "insert", source="once", after="load"))
    with pytest.raises(ToolFailure, match=f"already, as {made}: it is not inserted twice"):
        call(workspace, "insert", source="once", after="load")


def test_two_edits_in_a_row_refer_to_the_right_cells_without_ids_too(workspace: ShellWorkspace, path: Path) -> None:
    old = {"cells": [{**cell, "source": f"s{n}"} for n, cell in enumerate(json.loads(path.read_bytes())["cells"][:2])]}
    for cell in old["cells"]:
        del cell["id"]
    path.write_text(json.dumps({**old, "metadata": {}, "nbformat": 4, "nbformat_minor": 2}))
    top, below = re.findall(r"id (\w+) ---", call(workspace, "read"))
    call(workspace, "insert", source="new", before=top)
    call(workspace, "replace", cell=below, source="s1 again")
    call(workspace, "replace", cell=below, source="s1 once more")
    call(workspace, "move", cell=below, before=top)
    call(workspace, "delete", cell=top)
    assert [cell["source"] for cell in json.loads(path.read_bytes())["cells"]] == ["new", "s1 once more"]
    assert all("id" not in cell for cell in json.loads(path.read_bytes())["cells"])
    assert below in asyncio.run(read_file.run({"path": "n.ipynb"}, workspace)).blocks[0]["text"]


def test_a_hidden_cell_is_neither_shown_nor_changed_nor_run(workspace: ShellWorkspace, path: Path) -> None:
    shown = call(workspace, "read")
    assert "private" in shown
    assert "secret" not in shown
    assert "hush" not in shown
    for action in ("read", "replace", "move", "delete", "run"):
        with pytest.raises(ToolFailure, match="hidden by its author") as refused:
            call(workspace, action, cell="private", source="z" if action == "replace" else "")
        assert "secret" not in str(refused.value)
    with pytest.raises(ToolFailure) as near:
        call(workspace, "delete", cell="privat")
    assert "secret" not in str(near.value)
    call(workspace, "insert", source="beside", after="private")
    assert cells(path)[3].source == "secret = 1"


def test_a_run_that_would_pass_a_hidden_cell_is_refused_before_anybody_is_asked(workspace: ShellWorkspace) -> None:
    """What nobody was shown is not agreed to; and outputs made without it would be wrong."""
    path = workspace.root / "n.ipynb"
    made = [
        new_code_cell("x = 1\nprint(x)", id="load"),
        new_code_cell("", id="nothing", metadata={"tags": ["agent-hide"]}),
        new_code_cell("# agent-hide\nopen('ran', 'w').close()", id="private"),
        new_code_cell("print(x)", id="below"),
    ]
    nbformat.write(new_notebook(cells=made), path)
    before = path.read_bytes()
    call(workspace, "read")
    for wanted in ("", "below"):
        with pytest.raises(ToolFailure, match="cell private is hidden by its author"):
            question(workspace, "run", cell=wanted)
        with pytest.raises(ToolFailure, match="cell private is hidden by its author"):
            call(workspace, "run", cell=wanted)
    assert path.read_bytes() == before
    assert not (workspace.root / "ran").exists()
    assert question(workspace, "run", cell="load")[1] == "# cell load\nx = 1\nprint(x)"


def test_megabytes_of_output_never_reach_the_model(workspace: ShellWorkspace, path: Path) -> None:
    made = nbformat.read(path, 4)
    big = [nbformat.v4.new_output("stream", text="z" * 500_000), nbformat.v4.new_output("error", evalue="e" * 10**5)]
    html = nbformat.v4.new_output("display_data", {"text/html": "<b>" * 10**5, "image/png": PNG})
    made.cells += [new_code_cell("big()", id=f"big{n}", outputs=[*big, html]) for n in range(4)]
    made.cells += [new_code_cell("s" * 400_000, id="long")]
    nbformat.write(made, path)
    most = workspace.limit("tool_output_chars")
    shown = call(workspace, "read")
    assert len(shown) <= most + 200
    assert "big3" in shown
    one = call(workspace, "read", cell="big1")
    assert "big()" in one
    assert one.endswith("[image]")
    assert len(one) < most + 200
    assert len(call(workspace, "read", cell="long")) <= most + 200
    assert len(asyncio.run(read_file.run({"path": "n.ipynb"}, workspace)).blocks[0]["text"]) <= most + 200
    assert len(call(workspace, "replace", cell="big1", source="small()")) < 1_000


def test_a_large_notebook_names_every_cell(workspace: ShellWorkspace, path: Path) -> None:
    nbformat.write(new_notebook(cells=[new_code_cell("y" * 900, id=f"cell-{n:03}") for n in range(100)]), path)
    shown = call(workspace, "read")
    assert all(f"cell-{n:03}" in shown for n in range(100))
    assert "give `cell` for one in full" in shown


def test_a_file_that_was_not_read_or_has_changed_since_is_not_edited(workspace: ShellWorkspace, path: Path) -> None:
    with pytest.raises(ToolFailure, match="was not read in this session"):
        call(workspace, "delete", cell="load")
    call(workspace, "read")
    theirs = path.read_bytes().replace(b"# Title", b"# Their title")
    path.write_bytes(theirs)
    with pytest.raises(ToolFailure, match="saved by another program since it was read"):
        call(workspace, "delete", cell="load")
    assert path.read_bytes() == theirs
    call(workspace, "read")
    call(workspace, "delete", cell="load")
    assert cells(path)[0].source == "# Their title"


def test_an_edit_is_journalled_before_it_is_made_and_can_be_undone(workspace: ShellWorkspace, path: Path) -> None:
    before = path.read_bytes()
    call(workspace, "read")
    call(workspace, "delete", cell="load")
    change = workspace.changes[-1]
    assert change.path == "n.ipynb"
    assert (workspace.backups / change.backup).read_bytes() == before
    assert not list(workspace.root.glob(".*.tmp"))


def test_an_invalid_notebook_is_read_and_not_edited(workspace: ShellWorkspace, path: Path) -> None:
    made = json.loads(path.read_bytes())
    del made["cells"][1]["metadata"]
    path.write_text(json.dumps(made))
    assert "load" in call(workspace, "read")
    with pytest.raises(ToolFailure, match=r"not a valid notebook.*metadata"):
        call(workspace, "delete", cell="title")


def test_a_missing_notebook_is_made_by_its_first_cell(workspace: ShellWorkspace) -> None:
    with pytest.raises(ToolFailure, match="insert a cell to create it"):
        call(workspace, "read", path="sub/new.ipynb")
    answer = call(workspace, "insert", path="sub/new.ipynb", source="# Report", cell_type="markdown")
    call(workspace, "insert", path="sub/new.ipynb", source="x = 1", after=new_id(answer))
    found = cells(workspace.root / "sub" / "new.ipynb")
    assert [(cell.cell_type, cell.source) for cell in found] == [("markdown", "# Report"), ("code", "x = 1")]


def test_write_file_and_edit_file_point_to_the_notebook_tool(workspace: ShellWorkspace, path: Path) -> None:
    asyncio.run(read_file.run({"path": "n.ipynb"}, workspace))
    before = path.read_bytes()
    with pytest.raises(ToolFailure, match="notebook tool"):
        asyncio.run(edit_file.run({"path": "n.ipynb", "old": "x = 1", "new": "x = 2"}, workspace))
    with pytest.raises(ToolFailure, match="notebook tool"):
        asyncio.run(write_file.run({"path": "n.ipynb", "content": "{}"}, workspace))
    with pytest.raises(ToolFailure, match="made by cells"):
        asyncio.run(write_file.run({"path": "m.ipynb", "content": "{}"}, workspace))
    assert path.read_bytes() == before
    path.write_text('{"cells": [')  # broken: as text it can be mended
    asyncio.run(read_file.run({"path": "n.ipynb"}, workspace))
    asyncio.run(edit_file.run({"path": "n.ipynb", "old": "[", "new": "[]}"}, workspace))


def test_the_question_is_the_diff_of_the_one_cell(workspace: ShellWorkspace, path: Path) -> None:
    call(workspace, "read")
    title, text = question(workspace, "replace", cell="load", source="x = 2\nx")
    assert title == "Edit cell load of n.ipynb?"
    assert "-x = 1" in text
    assert "+x = 2" in text
    assert len(text) < 100
    title, text = question(workspace, "delete", cell="load")
    assert "1 output" in text
    assert question(workspace, "move", cell="load", before="title")[0] == "Move cell load before title in n.ipynb?"
    assert question(workspace, "run", cell="load")[0] == "Run 1 cell of n.ipynb in a new kernel?"
    assert ids(path) == ["title", "load", "attached", "private", "rawone"]


def test_an_edit_under_an_open_page_is_asked_for_in_every_mode(workspace: ShellWorkspace, path: Path) -> None:
    permissions = Permissions(workspace.root / "rules.json", workspace.root, "auto")
    call(workspace, "read")
    edit = {"action": "delete", "path": "n.ipynb", "cell": "load"}
    assert isinstance(permissions.decide(notebook, edit, workspace, can_ask=True), Allow)
    permissions.remember("notebook")
    permissions.remember("notebook(n.ipynb)")
    for where, words in (("own", "in your page"), ("page", "another page")):
        workspace.pages[path] = where
        asked = permissions.decide(notebook, edit, workspace, can_ask=True)
        assert isinstance(asked, Ask)
        assert words in asked.danger
        assert asked.pattern == "notebook(n.ipynb while open in a page)"
        refused = permissions.decide(notebook, edit, workspace, can_ask=False)
        assert isinstance(refused, Deny)
    answer = call(workspace, "delete", cell="load")
    assert "reload it" in answer
    assert "Revert keeps this edit" in answer
    workspace.pages.clear()
    assert "reload" not in call(workspace, "delete", cell="title")
    read_only = Permissions(workspace.root / "rules.json", workspace.root, "read_only")
    assert isinstance(read_only.decide(notebook, {**edit, "cell": "rawone"}, workspace, can_ask=True), Deny)
    assert isinstance(read_only.decide(notebook, {"action": "read"} | {"path": "n.ipynb"}, workspace, True), Allow)


def test_a_cell_of_the_users_own_notebook_runs_in_the_users_namespace(workspace: ShellWorkspace, path: Path) -> None:
    workspace.notebook = path
    before = path.read_bytes()
    workspace.namespace.pop("x", None)
    call(workspace, "read", path="")
    answer = call(workspace, "run", path="", cell="load")
    assert workspace.namespace.pop("x") == 1
    assert "ran in the user's namespace" in answer
    assert answer.rstrip().endswith("1")
    assert path.read_bytes() == before
    with pytest.raises(ToolFailure, match="only code runs"):
        call(workspace, "run", cell="title")
    with pytest.raises(ToolFailure, match="one cell is run at a time"):
        call(workspace, "run")


def test_another_notebook_runs_down_to_the_cell_in_a_kernel_of_its_own(workspace: ShellWorkspace) -> None:
    path = workspace.root / "other" / "n.ipynb"
    path.parent.mkdir()
    made = [
        new_code_cell("y = 20\ny", id="one"),
        new_markdown_cell("between", id="two"),
        new_code_cell("from pathlib import Path\nprint(y + 1, Path.cwd().name)", id="three"),
        new_code_cell("1 / 0", id="four"),
        new_code_cell("never = 1", id="five"),
    ]
    nbformat.write(new_notebook(cells=made), path)
    workspace.namespace.pop("y", None)
    call(workspace, "read", path="other/n.ipynb")
    answer = call(workspace, "run", path="other/n.ipynb", cell="three")
    assert "21 other" in answer
    assert "y" not in workspace.namespace
    found = cells(path)
    assert found[0].outputs[0].data["text/plain"] == "20"
    assert [cell.execution_count for cell in found if cell.cell_type == "code"] == [1, 2, None, None]
    failed = asyncio.run(notebook.run({"action": "run", "path": "other/n.ipynb"}, workspace))
    assert failed.is_error
    assert "ZeroDivisionError" in failed.blocks[0]["text"]
    assert "ran 3 of 4" in failed.blocks[0]["text"]
    assert cells(path)[3].outputs[0].ename == "ZeroDivisionError"


def test_a_stopped_run_leaves_no_kernel_and_no_change(workspace: ShellWorkspace) -> None:
    path = workspace.root / "endless.ipynb"
    nbformat.write(new_notebook(cells=[new_code_cell("open('began', 'w')\nwhile True: pass", id="one")]), path)
    before = path.read_bytes()
    call(workspace, "read", path="endless.ipynb")

    async def stopped() -> float:
        run = asyncio.ensure_future(notebook.run({"action": "run", "path": "endless.ipynb"}, workspace))
        while not (workspace.root / "began").exists():
            await asyncio.sleep(0.02)
        began = time.monotonic()
        run.cancel()
        with pytest.raises(asyncio.CancelledError):
            await run
        return time.monotonic() - began

    assert asyncio.run(stopped()) < 2
    kernels = [child for child in psutil.Process().children(recursive=True) if "ipykernel" in " ".join(child.cmdline())]
    assert kernels == []
    assert path.read_bytes() == before


def test_without_nbclient_a_run_says_what_is_missing(
    workspace: ShellWorkspace, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "nbclient", None)
    call(workspace, "read")
    with pytest.raises(ToolFailure, match="%pip install nbclient"):
        call(workspace, "run", cell="load")
