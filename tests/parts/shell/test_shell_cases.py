"""Every command that was judged by words before there was a sandbox, run in it: nothing of the project or beside it
changes, and what was known to read gives what it gives outside without a question. `python -m tests.sandbox judged`
lists those that are judged differently now."""

from __future__ import annotations

import asyncio
import subprocess
from collections import Counter
from pathlib import Path

import pytest
from shell_cases import ASKED, DESTRUCTIVE, EVERYDAY, READING
from tools_workspace import ShellWorkspace

from ipyagent.journal.protocols import ToolOutput
from ipyagent.parts.shell.tool import shell
from tests.sandbox.arena import tree

MOST = 1
"""Seconds for a command: some wait for ever. What is known to read ends, and has a minute."""


class Place:
    def __init__(self, top: Path) -> None:
        self.top, self.root = top, top / "project"
        (self.root / "src").mkdir(parents=True)
        (self.root / "sub").mkdir()
        (self.root / "a.txt").write_text("a\n")
        (self.root / "full").write_text("content")
        (self.root / "empty").touch()
        (self.root / "src/b.py").write_text("import os\n")
        (self.root / "x").write_text("x\n")
        (top / "outside").write_text("beside")
        (top / "elsewhere").mkdir()
        (top / "elsewhere/passwd").write_text("beside")
        (self.root / "link").symlink_to(top / "elsewhere")
        who = ["-c", "user.name=a", "-c", "user.email=a@b"]
        for words in (["init", "-q", "."], ["add", "a.txt"], ["commit", "-qm", "one"]):
            subprocess.run(["git", *who, *words], cwd=self.root, check=True)
        self.workspace = ShellWorkspace(self.root)
        self.workspace.level = "read"
        self.before = tree(top)

    def tried(self, command: str, seconds: int = MOST) -> ToolOutput | None:
        if not command.strip() or "\x00" in command:
            return None
        return asyncio.run(shell.run({"command": command, "timeout": seconds}, self.workspace))

    def run(self, command: str, seconds: int = MOST) -> ToolOutput | None:
        done = self.tried(command, seconds)
        assert tree(self.top) == self.before, command
        return done


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Place:
    return Place(tmp_path_factory.mktemp("cases"))


def text_of(output: ToolOutput | None) -> str:
    return "" if output is None else "".join(block["text"] for block in output.blocks)


def level_of(output: ToolOutput | None) -> str:
    return "read" if output is None or output.needs is None else str(output.needs.level)


VARY = ("df", "du", "stat", "ls", "date", "file", "tree", "nproc", "git status", "pwd")


@pytest.mark.slow
def test_what_was_known_to_read_gives_what_it_gives_outside(place: Place) -> None:
    for command in READING:
        inside = place.run(command, 60)
        assert level_of(inside) == "read", (command, text_of(inside))
        if not command.lstrip("'\"\n ").startswith(VARY) and "which" not in command and "stat" not in command:
            place.workspace.level = "open"
            assert text_of(place.run(command, 60)) == text_of(inside), command
            place.workspace.level = "read"


@pytest.mark.slow
def test_nothing_else_changes_anything(place: Place) -> None:
    found: dict[str, Counter[str]] = {}
    for kind, commands in {"asked": ASKED, "destructive": DESTRUCTIVE, "everyday": EVERYDAY}.items():
        found[kind] = Counter(level_of(place.run(command)) for command in commands)
    # which programs there are differs from machine to machine
    assert found["asked"]["read"] > 250, "most of what was asked about could do no harm"
    assert found["destructive"]["project"] > 50
