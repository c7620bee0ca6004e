from __future__ import annotations

import asyncio
import base64
import hashlib
import io
import json
import os
import stat
import time
from pathlib import Path
from typing import Any

import pytest
from PIL import Image
from tools_workspace import ShellWorkspace

from ipyagent.errors import ToolFailure
from ipyagent.journal.events import FileChanged
from ipyagent.journal.protocols import ToolOutput
from ipyagent.loop.permissions import Allow, Ask, Deny, Permissions
from ipyagent.parts.files.search_tools import glob, grep
from ipyagent.parts.files.tools import edit_file, read_file, write_file
from ipyagent.tools.changes import left_out, restore
from ipyagent.tools.schema import FunctionTool


def run(made: FunctionTool, workspace: ShellWorkspace, **input: Any) -> str:
    output: ToolOutput = asyncio.run(made.run(input, workspace))
    return "".join(block.get("text", "") for block in output.blocks)


def read(workspace: ShellWorkspace, path: str, **more: Any) -> str:
    return run(read_file, workspace, path=path, **more)


# ------------------------------------------------------------------ reading


def test_text_comes_with_line_numbers_by_range(workspace: ShellWorkspace) -> None:
    (workspace.root / "a.txt").write_text("".join(f"line {n}\n" for n in range(1, 11)))
    assert read(workspace, "a.txt").startswith("    1\tline 1\n    2\tline 2")
    part = read(workspace, "a.txt", offset=3, limit=2)
    assert part == "    3\tline 3\n    4\tline 4\n[lines 3-4 of 10; continue with offset=5]"
    with pytest.raises(ToolFailure, match="there are 10 lines"):
        read(workspace, "a.txt", offset=11)


def test_encodings_are_found_and_said(workspace: ShellWorkspace) -> None:
    for data, text, said in (
        ("é\n".encode("utf-8-sig"), "é", False),
        ("é\n".encode("utf-16"), "é", True),
        ("é\n".encode("latin-1"), "é", True),
        (b"a\x1bb\r\nc\n", "a\x1bb", False),
    ):
        (workspace.root / "a.txt").write_bytes(data)
        shown = read(workspace, "a.txt")
        assert f"1\t{text}" in shown
        assert "\r" not in shown
        assert ("read as" in shown) is said


def test_what_cannot_be_read_says_why_and_never_blocks(workspace: ShellWorkspace) -> None:
    for name in ("a_penguin.csv", "penguins.csv"):
        (workspace.root / name).write_text("a,b\n1,2\n")
    (workspace.root / "x.gz").write_bytes(b"\x1f\x8b\x00\x00" + b"\x00" * 96)
    (workspace.root / "a.png").write_bytes(b"\x89PNG\r\n\x1a\nbroken")
    os.mkfifo(workspace.root / "pipe")
    special = ("pipe", "/dev/zero", "/dev/stdin", "/proc/self/environ", "/proc/kmsg")
    for path, why in {
        "penguin.csv": r"nearest: penguins\.csv, a_penguin\.csv$",
        "x.gz": "gzip data of 100 bytes", "a.png": "not a picture",
        **dict.fromkeys(special, "not a regular file"),
    }.items():  # fmt: skip
        with pytest.raises(ToolFailure, match=why):
            read(workspace, path)


def test_a_huge_file_is_read_to_a_bound(workspace: ShellWorkspace) -> None:
    with open(workspace.root / "big.log", "wb") as file:
        file.write(b"line\n" * 1_000)
        file.truncate(3 * 1024**3)  # sparse
        file.seek(0)
        file.write(b"line\n" * 20_000)
    began = time.thread_time()
    with pytest.raises(ToolFailure) as problem:
        read(workspace, "big.log", offset=10_000_000)
    assert time.thread_time() - began < 3
    assert "lines" in str(problem.value) or "binary" in str(problem.value)
    assert workspace.read_stamps == {}


def test_long_lines_and_long_files_are_capped(workspace: ShellWorkspace) -> None:
    (workspace.root / "a.txt").write_text("x" * 100_000 + "\n" + "y\n" * 100_000)
    shown = read(workspace, "a.txt", limit=1_000_000)
    assert len(shown) < 26_000
    assert "98,000 more characters" in shown
    assert "continue with offset=" in shown


def test_pictures_are_shown_scaled(workspace: ShellWorkspace) -> None:
    Image.new("RGB", (4_000, 100)).save(workspace.root / "a.png")
    output = asyncio.run(read_file.run({"path": "a.png"}, workspace))
    image = Image.open(io.BytesIO(base64.b64decode(output.blocks[1]["source"]["data"])))
    assert image.size == (1_568, 39)
    assert output.blocks[0]["text"] == f"a.png: image/png, {(workspace.root / 'a.png').stat().st_size:,} bytes"


def test_a_notebook_reads_as_cells_and_hidden_ones_stay_hidden(workspace: ShellWorkspace) -> None:
    cells = [
        {"cell_type": "code", "id": "c1", "source": ["x = 1\n", "x"], "metadata": {},
         "outputs": [{"output_type": "execute_result", "data": {"text/plain": "1" * 5_000, "image/png": "AAAA"}}]},
        {"cell_type": "markdown", "id": "c2", "source": "secret words", "metadata": {"tags": ["agent-hide"]}},
    ]  # fmt: skip
    (workspace.root / "n.ipynb").write_text(json.dumps({"cells": cells, "nbformat": 4, "metadata": {}}))
    shown = read(workspace, "n.ipynb")
    assert "cell 0: code, id c1" in shown
    assert "x = 1" in shown
    assert "[image/png]" in shown
    assert "AAAA" not in shown
    assert "secret" not in shown
    assert len(shown) < 3_000


def test_reading_outside_the_project_asks_through_links_too(workspace: ShellWorkspace, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "s.txt").write_text("s")
    (workspace.root / "link").symlink_to(outside)
    (workspace.root / "a.txt").write_text("a")
    for path in ("../outside/s.txt", str(outside / "s.txt"), "link/s.txt", "~/x", "/etc/passwd"):
        assert read_file.permission({"path": path}, workspace) == "ask", path
    assert read_file.permission({"path": "a.txt"}, workspace) == "none"
    for made in (read_file, glob, grep):  # a rule for a path covers that very path
        given = {"path": str(outside / "of [2024]"), **({} if made is read_file else {"pattern": "*"})}
        rule = made.pattern(given, workspace).removeprefix(f"{made.name}(").removesuffix(")")
        assert made.covers(rule, given, workspace), made.name
    workspace.allowed = (workspace.root, outside)
    assert read_file.permission({"path": "link/s.txt"}, workspace) == "none"


# ------------------------------------------------------------------ writing


def test_a_new_file_needs_no_reading_and_is_journalled(workspace: ShellWorkspace) -> None:
    assert "created src/a.py" in run(write_file, workspace, path="src/a.py", content="x\n")
    assert (workspace.root / "src/a.py").read_text() == "x\n"
    assert workspace.changes[0].path == "src/a.py"
    assert workspace.changes[0].backup == ""
    run(edit_file, workspace, path="src/a.py", old="x", new="y")
    assert (workspace.root / "src/a.py").read_text() == "y\n"


def test_a_file_that_was_not_read_or_has_changed_since_is_not_written(workspace: ShellWorkspace) -> None:
    (workspace.root / "a").write_text("old")
    for made, more in ((write_file, {"content": "n"}), (edit_file, {"old": "old", "new": "n"})):
        with pytest.raises(ToolFailure, match="not read in this session"):
            run(made, workspace, path="a", **more)
    assert (workspace.root / "a").read_text() == "old"
    file = workspace.root / "a"
    file.write_text("old\n")
    read(workspace, "a")
    edit_file.question({"path": "a", "old": "old", "new": "new"}, workspace)  # the user is asked …
    file.write_text("old but other\n")  # … and meanwhile
    with pytest.raises(ToolFailure, match="changed since it was read"):
        run(edit_file, workspace, path="a", old="old", new="new")
    write_file.question({"path": "b", "content": "mine"}, workspace)
    (workspace.root / "b").write_text("theirs")  # a new one that appeared
    with pytest.raises(ToolFailure, match="not read"):
        run(write_file, workspace, path="b", content="mine")
    assert workspace.changes == []


def test_the_question_is_the_whole_diff(workspace: ShellWorkspace) -> None:
    (workspace.root / "a").write_text("one\ntwo")
    read(workspace, "a")
    asked = edit_file.question({"path": "a", "old": "two", "new": "2\n"}, workspace)
    assert asked.language == "diff"
    assert asked.text == "--- a/a\n+++ b/a\n@@ -1,2 +1,2 @@\n one\n-two\n\\ No newline at end of file\n+2\n"
    created = write_file.question({"path": "b", "content": "".join(f"{n}\n" for n in range(3_000))}, workspace)
    assert created.text.count("\n+") == 3_001


def test_edits_that_do_not_match_once_say_why(workspace: ShellWorkspace) -> None:
    (workspace.root / "a").write_text("value = 1\nvalue = 1\n")
    read(workspace, "a")
    with pytest.raises(ToolFailure, match="2 times"):
        run(edit_file, workspace, path="a", old="value = 1", new="v")
    with pytest.raises(ToolFailure, match="nearest is line 1: 'value = 1'"):
        run(edit_file, workspace, path="a", old="value = 2", new="v")
    run(edit_file, workspace, path="a", old="value = 1", new="v", replace_all=True)
    assert (workspace.root / "a").read_text() == "v\nv\n"
    (workspace.root / "l").write_bytes("é\n".encode("latin-1"))
    read(workspace, "l")
    with pytest.raises(ToolFailure, match="cannot hold"):
        run(edit_file, workspace, path="l", old="é", new="雪")


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16", "latin-1"])
def test_line_ends_marks_encodings_and_mode_are_kept(workspace: ShellWorkspace, encoding: str) -> None:
    file = workspace.root / "a.sh"
    file.write_bytes("é one\r\ntwo\r\n".encode(encoding))
    file.chmod(0o750)
    read(workspace, "a.sh")
    run(edit_file, workspace, path="a.sh", old="one\ntwo", new="1\n2")
    assert file.read_bytes() == "é 1\r\n2\r\n".encode(encoding)
    run(write_file, workspace, path="a.sh", content="é\nx\n")
    assert file.read_bytes() == "é\r\nx\r\n".encode(encoding)
    assert stat.S_IMODE(file.stat().st_mode) == 0o750


def test_a_lone_carriage_return_ends_a_line(workspace: ShellWorkspace) -> None:
    file = workspace.root / "old.txt"
    file.write_bytes(b"one\rtwo\rthree\r")
    assert read(workspace, "old.txt") == "    1\tone\n    2\ttwo\n    3\tthree"
    assert read(workspace, "old.txt", offset=2, limit=1).endswith(
        "    2\ttwo\n[lines 2-2 of 3; continue with offset=3]"
    )
    edit = {"path": "old.txt", "old": "one\ntwo", "new": "1\n2", "replace_all": False}
    question = edit_file.question(edit, workspace)
    assert question.text.endswith("-one␍⏎\n-two␍⏎\n+1␍⏎\n+2␍⏎\n three␍⏎\n")
    run(edit_file, workspace, path="old.txt", old="one\ntwo", new="1\n2")
    assert file.read_bytes() == b"1\r2\rthree\r"
    run(write_file, workspace, path="old.txt", content="x\ny\n")
    assert file.read_bytes() == b"x\ry\r"


def test_a_link_is_written_through_inside_the_project_only(workspace: ShellWorkspace, tmp_path: Path) -> None:
    (workspace.root / "real").write_text("x\n")
    (workspace.root / "link").symlink_to("real")
    (tmp_path / "outside").write_text("x\n")
    (workspace.root / "out").symlink_to(tmp_path / "outside")
    read(workspace, "link")
    run(edit_file, workspace, path="link", old="x", new="y")
    assert (workspace.root / "link").is_symlink()
    assert (workspace.root / "real").read_text() == "y\n"
    with pytest.raises(ToolFailure, match="outside the project"):
        run(write_file, workspace, path="out", content="z")


def test_guarded_and_outside_paths_are_never_written(workspace: ShellWorkspace) -> None:
    os.mkfifo(workspace.root / "pipe")
    for path in (
        ".git/config", "sub/.git/hooks/pre-commit", ".GIT/config", ".ipyagent/rules", "../x", "/etc/x", "pipe", ".",
        ".g\u200cit/config", ".gi\ufefft/x", ".git::$INDEX_ALLOCATION/x", ".git:x/y", "GIT~1/config", "git~2",
        ".git. ./x", ".git /x", ".\uff47it/x", "GI7EBA~1/x", ".IpyAgent./sessions/x", "IPYAGE~1/x", "IP12AB~1/x",
        ".ipy\u2060agent/x", ".g\u0131t\u200d/../.git\u180e/x",
    ):  # fmt: skip
        with pytest.raises(ToolFailure):
            run(write_file, workspace, path=path, content="x")
        with pytest.raises(ToolFailure):
            write_file.question({"path": path, "content": "x"}, workspace)
        assert workspace.changes == [], path


@pytest.mark.parametrize(
    "path", ["", "a\x00b", "\ud800", "x" * 5_000, "x/" * 3_000, "file/below", "loop/x", "~nobody-here/x"]
)
def test_a_path_that_is_none_is_a_failure_for_every_tool(workspace: ShellWorkspace, path: str) -> None:
    (workspace.root / "file").write_text("x")
    (workspace.root / "loop").symlink_to("loop")
    calls: list[tuple[FunctionTool, dict[str, Any]]] = [
        (read_file, {"path": path}),
        (edit_file, {"path": path, "old": "a", "new": "b"}),
        (glob, {"pattern": "*", "path": path}),
        (grep, {"pattern": "x", "path": path}),
    ]
    for made, given in calls:
        with pytest.raises(ToolFailure):
            run(made, workspace, **given)
        try:
            made.permission(given, workspace)
            made.pattern(given, workspace)
            made.question(given, workspace)
        except ToolFailure:
            pass


def test_a_write_leaves_no_temporary_file_whatever_happens(workspace: ShellWorkspace) -> None:
    class Full(ShellWorkspace):
        def record_change(self, path: Path, before: bytes | None, after: bytes | None) -> None:
            raise OSError(28, "No space left on device")

    full = Full(workspace.root)
    with pytest.raises(ToolFailure, match="No space left"):
        run(write_file, full, path="new/a", content="x")
    assert list(workspace.root.iterdir()) == []


# ------------------------------------------------------------------ undo


def test_undo_puts_back_what_was_there_and_leaves_what_someone_else_changed(workspace: ShellWorkspace) -> None:
    (workspace.root / "a").write_text("0\n")
    read(workspace, "a")
    for n in range(3):
        run(edit_file, workspace, path="a", old=str(n), new=str(n + 1))
    run(write_file, workspace, path="b", content="new")
    assert restore(workspace.changes, workspace.root, workspace.backups) == (("a", "b"), ())
    assert (workspace.root / "a").read_text() == "0\n"
    assert not (workspace.root / "b").exists()
    workspace.changes.clear()
    workspace.record_change(workspace.root / "a", b"0\n", b"new")  # journalled and then not made
    assert restore(workspace.changes, workspace.root, workspace.backups) == ((), ())
    workspace.changes.clear()
    run(write_file, workspace, path="c", content="mine")
    run(write_file, workspace, path="d", content="mine")
    (workspace.root / "c").write_text("theirs")
    restored, conflicts = restore(workspace.changes, workspace.root, workspace.backups)
    assert restored == ("d",)
    assert conflicts == ("c was left alone: it has changed since",)
    assert (workspace.root / "c").read_text() == "theirs"


def test_undo_of_a_hostile_transcript_writes_nothing_outside(workspace: ShellWorkspace, tmp_path: Path) -> None:
    (tmp_path / "victim").write_text("v")
    (tmp_path / "evil").write_text("evil")
    workspace.backups.mkdir(parents=True)
    mark = hashlib.sha256(b"v").hexdigest()
    for path, backup in (("../victim", ""), (str(tmp_path / "victim"), ""), ("x", "../../../evil"), (".git/x", "")):
        change = FileChanged(call="c", path=path, backup=backup, digest=mark)
        restored, conflicts = restore([change], workspace.root, workspace.backups)
        assert restored == ()
        assert len(conflicts) == 1
    assert (tmp_path / "victim").read_text() == "v"


OLD = "".join(f"line_{n} = {n}\n" for n in range(40))
REST = [
    "# ... rest of file unchanged", "# existing code", "// ...", "// ... existing code ...", "/* ... */", "# …",
    "<!-- rest unchanged -->", "-- rest of the query unchanged", "{/* ... existing code ... */}", "# Rest unverändert",
    "... rest of file unchanged", "[rest of file unchanged]", "(remaining lines unchanged)", "; ... rest of file ...",
    "% rest unchanged", "# rest of the code remains the same", "# ... (rest unchanged)", "# 其余代码保持不变",
    "# [...]", "/* rest of styles unchanged */", "# ... keep existing imports ...",
    "// rest of the implementation unchanged",
]  # fmt: skip
NOT_REST = [
    "...", "x = 1", "# compute the rest of the sums", "# the remaining budget is in column 3", "print('... rest')",
    "# Existing customers are kept in a table", "# see the other file", "# TODO: handle the rest", "# load data ...",
    "return rest", "# other", "# Data", "# imports",
]  # fmt: skip


def test_a_line_that_stands_for_the_rest_is_told_from_one_that_does_not() -> None:
    assert [line for line in REST if not left_out(f"a = 1\n    {line}\nb\n", OLD)] == []
    assert [line for line in NOT_REST if left_out(f"a = 1\n{line}\n", OLD)] == []
    assert left_out(f"{OLD}# ... rest of file unchanged\n", OLD) == ""  # nothing goes
    assert left_out("# ...\n", f"{OLD}# ...\n") == ""  # it was there before


def test_a_file_cut_short_by_a_line_that_stands_for_the_rest_is_asked_about(workspace: ShellWorkspace) -> None:
    file = workspace.root / "a.py"
    file.write_text(OLD)
    read(workspace, "a.py")
    short = {"path": "a.py", "content": "line_0 = 1\n# ... rest of file unchanged\n"}
    why = (
        "its line '# ... rest of file unchanged' puts nothing back: 40 of the 40 lines that are there now would be "
        "lost; edit_file changes a part and keeps the rest"
    )
    permissions = Permissions(workspace.root / "rules.json", workspace.root, "auto")
    permissions.remember("write_file(a.py)", session=True)
    asked = permissions.decide(write_file, short, workspace, can_ask=True)
    assert isinstance(asked, Ask)
    assert (asked.question.title, asked.danger) == ("Overwrite a.py?", why)
    assert "-line_39 = 39" in asked.question.text
    for mode in ("auto", "ask"):
        permissions.mode = mode
        refused = permissions.decide(write_file, short, workspace, can_ask=False)
        assert isinstance(refused, Deny)
        assert why in refused.reason
    whole = {"path": "a.py", "content": "line_0 = 1\n"}
    assert isinstance(permissions.decide(write_file, whole, workspace, can_ask=False), Allow)
    part = {"path": "a.py", "old": OLD, "new": "line_0 = 1\n# ... existing code ...\n", "replace_all": False}
    assert isinstance(permissions.decide(edit_file, part, workspace, can_ask=True), Ask)
