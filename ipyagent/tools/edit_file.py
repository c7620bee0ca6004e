"""`edit_file`: an exact piece of a file's text is replaced, once unless told otherwise."""

from __future__ import annotations

import glob as globs
import time
from difflib import SequenceMatcher
from typing import Any

from ipyagent.errors import ToolFailure
from ipyagent.journal.protocols import PermissionQuestion, ToolOutput, Workspace
from ipyagent.tools.answers import text_output
from ipyagent.tools.changes import PendingChange, known, left_out, refuse_stand_in
from ipyagent.tools.encodings import decode
from ipyagent.tools.paths import shown, writable
from ipyagent.tools.schema import tool
from ipyagent.tools.standing_files import in_force
from ipyagent.tools.write_file import refuse_notebook, subject


def planned(path: str, old: str, new: str, replace_all: bool, workspace: Workspace) -> PendingChange:
    """The change this call makes now. Raises ToolFailure."""
    target = writable(path, workspace)
    before = known(target, workspace)
    if before is None:
        raise ToolFailure(f"no file {path}; create it with write_file")
    refuse_notebook(target, before)
    decoded = decode(before)
    if decoded is None:
        raise ToolFailure(f"{path} is a binary file; change it with python")
    if not old:
        raise ToolFailure("`old` is empty: give the exact text to replace")
    if old == new:
        raise ToolFailure("`old` and `new` are the same: nothing to change")
    text = decoded.text
    for end in ("\r\n", "\r"):  # the model writes \n for any line end
        if old not in text and end in text:
            old = old.replace("\r\n", "\n").replace("\n", end)
    if decoded.newline != "\n":
        new = new.replace("\r\n", "\n").replace("\n", decoded.newline)
    refuse_stand_in(new, text)
    count = text.count(old)
    if not count:
        refuse_stand_in(old, text)
    if count == 0:
        raise ToolFailure(f"`old` is not in {path}{_nearest(old, text)}")
    if count > 1 and not replace_all:
        raise ToolFailure(f"`old` is in {path} {count} times: add lines around it, or set replace_all")
    return PendingChange(target, before, decoded.encode(text.replace(old, new)))


def _nearest(old: str, text: str) -> str:
    """Where the text that is most like `old`'s first full line stands."""
    first = next((line.strip() for line in old.splitlines() if line.strip()), "")
    best, place, found = 0.0, 0, ""
    matcher = SequenceMatcher(autojunk=False)
    matcher.set_seq2(first[:200])
    until = time.monotonic() + 0.2
    for number, line in enumerate(text.replace("\r\n", "\n").replace("\r", "\n").split("\n"), 1):
        if time.monotonic() > until:
            break
        matcher.set_seq1(line.strip()[:200])
        if matcher.real_quick_ratio() > best and matcher.quick_ratio() > best and (ratio := matcher.ratio()) > best:
            best, place, found = ratio, number, line
    if best < 0.5:
        return "; nothing in it is like it"
    return f"; nearest is line {place}: {found[:200]!r}"


def _question(arguments: dict[str, Any], workspace: Workspace) -> PermissionQuestion:
    return planned(**arguments, workspace=workspace).question("Edit", workspace)


def _pattern(arguments: dict[str, Any], workspace: Workspace) -> str:
    cut = " cut short" if left_out(arguments["new"], arguments["old"]) else ""
    return f"edit_file({globs.escape(subject(arguments['path'], workspace))}{cut})"


def _destructive(arguments: dict[str, Any], workspace: Workspace) -> str:
    standing = in_force(subject(arguments["path"], workspace), workspace.root)
    return left_out(arguments["new"], arguments["old"]) or standing


@tool(permission="ask", writes=True, question=_question, pattern=_pattern, destructive=_destructive)
async def edit_file(path: str, old: str, new: str, replace_all: bool = False, *, workspace: Workspace) -> ToolOutput:
    """Replace an exact piece of text in a file inside the project, which must have been read with `read_file` in this
    session and be unchanged since.

    Args:
        old: The exact text, without line numbers; it must occur once.
    """
    change = planned(path, old, new, replace_all, workspace)
    await change.write(workspace)
    return text_output(f"edited {shown(change.path, workspace)} ({change.counts()} lines)", note=change.counts())
