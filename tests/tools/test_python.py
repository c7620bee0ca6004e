from __future__ import annotations

import asyncio
import io
from pathlib import Path

import pytest
from PIL import Image as Pillow
from tools_workspace import ShellWorkspace

from ipyagent.errors import ToolFailure
from ipyagent.journal.protocols import Execution, Image, Tool
from ipyagent.tools import catalogue as catalogue_module
from ipyagent.tools.catalogue import builtin_tools, catalogue
from ipyagent.tools.python import output_of, python


def png(width: int, height: int) -> bytes:
    made = io.BytesIO()
    Pillow.new("RGB", (width, height)).save(made, "PNG")
    return made.getvalue()


def shown(done: Execution) -> str:
    text: str = output_of(done, 25_000).blocks[0]["text"]
    return text


def test_code_runs_in_the_users_namespace(workspace: ShellWorkspace) -> None:
    workspace.namespace["given"] = 20
    output = asyncio.run(python.run({"code": "made = given + 1\nprint('said')\nmade * 2"}, workspace))
    assert output.blocks[0]["text"] == "said\nOut: 42"
    assert workspace.namespace["made"] == 21
    failed = asyncio.run(python.run({"code": "1 / 0"}, workspace))
    assert failed.is_error
    assert failed.note == "ZeroDivisionError: division by zero"


def test_what_a_run_did_reads_in_order_with_its_figures_and_errors_and_capped() -> None:
    for done, text in [
        (Execution(), "(no output)"),
        (Execution(result="42"), "42"),
        (Execution(output="a\n", result="42"), "a\nOut: 42"),
        (Execution(output="a\n", displays=("<d>",), result="1"), "a\n<d>\nOut: 1"),
        (Execution(rebound=("x", "y")), "(no output)\n[rebound: x, y]"),
        (Execution(result="1", seconds=2.34), "1\n[took 2.3 s]"),
        (Execution(output="\x1b[31mred\x1b[0m 1%\r2%"), "2%"),
        (Execution(output="a", error="\x1b[1mTraceback\x1b[0m\nE: b"), "a\nTraceback\nE: b"),
        (
            Execution(output="half", interrupted=True),
            "half\n[interrupted by the user: what had run until then stays done]",
        ),
    ]:
        assert shown(done) == text
    output = output_of(Execution(images=(Image("image/png", png(640, 480)), Image("image/png", b"broken"))), 25_000)
    assert output.blocks[0]["text"].startswith("[figure 1: 640x480 png]\n[figure 2 png, not shown: ")
    assert [block["type"] for block in output.blocks] == ["text", "image"]
    for done, failed in ((Execution(error="E: x"), True), (Execution(interrupted=True), True), (Execution(), False)):
        assert output_of(done, 1_000).is_error is failed
    text = output_of(Execution(output="x" * 100_000, result="y" * 100_000), 1_000).blocks[0]["text"]
    assert len(text) < 1_200


def test_the_question_is_the_code_and_the_rule_is_python(workspace: ShellWorkspace) -> None:
    given = {"code": "x = 1"}
    assert python.question(given, workspace).text == "x = 1"
    assert python.pattern(given, workspace) == "python"
    assert python.permission(given, workspace) == "ask"
    assert python.destructive({"code": "!rm -r x"}, workspace)
    with pytest.raises(ToolFailure):
        asyncio.run(python.run({"code": " "}, workspace))


def test_the_catalogue_lists_each_tool_once_in_a_stable_order() -> None:
    tools, problems = catalogue()
    names = [tool.name for tool in tools]
    assert names == sorted(names)
    assert {"python", "variables", "read_file", "glob", "grep", "write_file", "edit_file", "shell"} <= set(names)
    assert problems == ()
    assert all(isinstance(tool, Tool) for tool in tools)
    assert list(builtin_tools()) == names
    assert not catalogue_module.is_tool(type(tools[0]))


def test_tools_of_other_packages_come_last_and_faults_are_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "their_tools.py").write_text(
        "from ipyagent.tools.schema import tool\n"
        "@tool\ndef aaa(x: int) -> int:\n    'Theirs.'\n    return x\n"
        "shell = tool(name='shell')(aaa.function)\nno_tool = 3\n"
    )
    info = tmp_path / "their_tools-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: their-tools\nVersion: 1.0\n")
    points = ("a = their_tools:aaa", "b = their_tools:shell", "c = their_tools:no_tool", "d = no_such_module_here:x")
    (info / "entry_points.txt").write_text("[ipyagent.tools]\n" + "\n".join(points) + "\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    tools, problems = catalogue()
    assert tools[-1].name == "aaa"
    assert len(tools) == len(builtin_tools()) + 1
    assert [problem.split(" = ")[0] for problem in problems] == ["entry point b", "entry point c", "entry point d"]
