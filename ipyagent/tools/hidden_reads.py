"""Whether a reading command shows a cell that its author hides from the agent (`agent-hide`): such a command asks.

The tools of ours leave those cells out; a command of the system knows nothing of them.
"""

from __future__ import annotations

import glob
import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from ipyagent.journal.protocols import Workspace
from ipyagent.tools.paths import readable
from ipyagent.tools.shell_words import Word

MARK = b"agent-hide"
"""Stands in the file of every notebook with a hidden cell, as a tag or in a comment."""
MOST_ENTRIES = 20_000
"""Files and folders looked through for notebooks; a command that reads more than that asks."""
_NAMES = frozenset((
    "basename", "date", "df", "dirname", "du", "echo", "file", "find", "ls", "md5sum", "nproc", "pwd", "readlink",
    "realpath", "sha256sum", "stat", "tr", "tree", "true", "uname", "wc", "which", "whoami",
))  # fmt: skip
"""Commands that tell names, sizes and sums only."""
_GIT_NAMES = frozenset((
    "status", "shortlog", "branch", "tag", "remote", "ls-files", "ls-tree", "rev-parse", "rev-list", "describe",
))  # fmt: skip
_GREPS = frozenset(("grep", "egrep", "fgrep", "rg"))
_PASSED = frozenset((".git", "node_modules", "site-packages", "__pycache__"))


def shows_hidden(words: Sequence[Word], workspace: Workspace) -> bool:
    """Whether a command that only reads may show a hidden cell of a notebook. Raises OSError."""
    name, rest = words[0].text, words[1:]
    if name in _NAMES:
        return False
    if name == "git":
        command = next((word.text for word in rest if not word.text.startswith("-")), "")
        return command not in _GIT_NAMES and _any_hidden([workspace.root])
    named = [path for word in rest for path in _paths(word, workspace)]
    recursive = name == "rg" or any("r" in word.text for word in rest if word.text.startswith("-"))
    if not named and name in _GREPS and recursive:
        named = [workspace.folder]
    return _any_hidden(named)


def _paths(word: Word, workspace: Workspace) -> Iterator[Path]:
    """The files and folders that a word may name; what may not be read is the value of an option."""
    folder = workspace.folder
    names = glob.iglob(word.text, root_dir=folder, include_hidden=True) if word.glob else (word.text,)
    found = (folder / name for name in names)
    return (path for path in found if os.path.lexists(path) and readable(path.resolve(), workspace))


def _any_hidden(paths: Sequence[Path]) -> bool:
    left = MOST_ENTRIES
    for path in paths:
        if not path.is_dir():
            if _hides(path):
                return True
            continue
        for place, folders, files in os.walk(path):
            folders[:] = [name for name in folders if name not in _PASSED]
            left -= len(folders) + len(files)
            if left < 0 or any(_hides(Path(place, name)) for name in files):
                return True
    return False


def _hides(file: Path) -> bool:
    return file.suffix.casefold() == ".ipynb" and file.is_file() and MARK in file.read_bytes()
