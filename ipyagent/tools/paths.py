"""Which files a tool may touch. Every path is resolved (links followed) before it is judged, and
paths are written relative to the notebook's folder: there the user's code and the shell run, so
one spelling works everywhere."""

from __future__ import annotations

import hashlib
import os
import re
import stat
import unicodedata
from difflib import get_close_matches
from pathlib import Path

from ipyagent.errors import ToolFailure
from ipyagent.journal.protocols import Permission, Workspace
from ipyagent.journal.stored import FOLDER

GUARDED = (".git", ".ipyagent")
"""Folders no tool writes into, at any depth."""
_SHORT = re.compile(r"(?:(git|gi[0-9a-f]{4})|ipyage|ip[0-9a-f]{4})~[0-9]+")
"""Their names of eight characters on Windows (`GIT~1`)."""

_UNREAL = ("/proc", "/sys", "/dev")


def resolved(path: str, workspace: Workspace) -> Path:
    """The absolute path with links followed. Raises ToolFailure for what is no path."""
    if not path or "\x00" in path:
        raise ToolFailure(f"{path!r} is not a path")
    try:
        target = (workspace.folder / os.path.expanduser(path)).resolve()
        return target if target.exists() else _stored(path, workspace) or target
    except (OSError, RuntimeError, ValueError) as problem:  # a circle of links, a lone surrogate, too long
        raise ToolFailure(f"{path}: {problem}") from None


def _stored(path: str, workspace: Workspace) -> Path | None:
    """The stored result that a path like "tool-results/x.txt" means."""
    folder, _, name = path.partition("/")
    if folder != FOLDER or not name or "/" in name:
        return None
    places = [place / name for place in workspace.allowed if place.name == FOLDER]
    return next((place for place in places if place.is_file()), None)


def shown(path: Path, workspace: Workspace) -> str:
    """`path` relative to the notebook's folder when it is in the project, else absolute."""
    if path.is_relative_to(workspace.root) or path.is_relative_to(workspace.folder):
        return Path(os.path.relpath(path, workspace.folder)).as_posix()
    return str(path)


def readable(path: Path, workspace: Workspace) -> bool:
    """Whether a resolved path may be read without a question."""
    folders = (workspace.root, workspace.folder, *workspace.allowed)
    return any(path.is_relative_to(folder.expanduser().resolve()) for folder in folders) and not _unreal(path)


def read_permission(path: str, workspace: Workspace) -> Permission:
    """ "none" inside the project and the allowed folders, "ask" elsewhere."""
    return "none" if readable(resolved(path, workspace), workspace) else "ask"


def writable(path: str, workspace: Workspace) -> Path:
    """The resolved path of a file that a tool may write. Raises ToolFailure outside the project,
    in `.git` and `.ipyagent`, and for anything that is not a regular file."""
    target = resolved(path, workspace)
    if not target.is_relative_to(workspace.root):
        raise ToolFailure(f"{path} is outside the project {workspace.root}: files are written inside it only")
    for part in target.relative_to(workspace.root).parts:
        if is_guarded(part):
            raise ToolFailure(f"{path}: files in {part!a} are not written by tools")
    try:
        mode = target.stat().st_mode
    except (FileNotFoundError, NotADirectoryError):
        return target
    except OSError as problem:
        raise ToolFailure(f"{path}: {problem.strerror or problem}") from None
    if not stat.S_ISREG(mode):
        raise ToolFailure(f"{path} is not a regular file")
    if not os.access(target, os.W_OK):
        raise ToolFailure(f"{path} is read-only")
    return target


def same_file_name(part: str) -> str:
    """What a part of a path is for the file system that tells least apart: case, width and the form of accents count
    nothing (APFS, NTFS), nor do characters without a shape (HFS+), dots and blanks at the end and what follows a colon
    (NTFS); the short names of guarded folders are theirs."""
    if part.isascii():
        folded = part.casefold()
    else:
        shown = (each for each in unicodedata.normalize("NFKC", part) if unicodedata.category(each)[0] != "C")
        folded = unicodedata.normalize("NFKC", "".join(shown).casefold())
    name = folded.partition(":")[0].rstrip(". ")
    short = _SHORT.fullmatch(name)
    return name if short is None else GUARDED[0] if short[1] else GUARDED[1]


def is_guarded(part: str) -> bool:
    """Whether a part of a path is a folder that no tool writes into, on any file system."""
    return same_file_name(part) in GUARDED


def _unreal(path: Path) -> bool:
    return any(path.is_relative_to(folder) for folder in _UNREAL)


def read_bytes(path: Path, most: int) -> tuple[bytes, int]:
    """Up to `most` bytes of a regular file, and its size. Never waits: devices, FIFOs and files
    the kernel makes up are refused. Raises ToolFailure."""
    if _unreal(path):
        raise ToolFailure(f"{path} is not a regular file")
    try:
        # Without O_NONBLOCK opening a FIFO waits for a writer, before its kind can be seen.
        descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
    except FileNotFoundError:
        raise ToolFailure(f"no file {path}{_nearest(path)}") from None
    except IsADirectoryError:
        raise ToolFailure(f"{path} is a folder; list it with glob") from None
    except OSError as problem:
        raise ToolFailure(f"{path}: {problem.strerror or problem}") from None
    with os.fdopen(descriptor, "rb") as file:
        state = os.fstat(descriptor)
        if stat.S_ISDIR(state.st_mode):
            raise ToolFailure(f"{path} is a folder; list it with glob")
        if not stat.S_ISREG(state.st_mode):
            raise ToolFailure(f"{path} is not a regular file")
        try:
            return file.read(most), state.st_size
        except OSError as problem:
            raise ToolFailure(f"{path}: {problem.strerror or problem}") from None


def digest(data: bytes) -> str:
    """SHA-256 in hexadecimal."""
    return hashlib.sha256(data).hexdigest()


def _nearest(path: Path) -> str:
    folder = path.parent
    if not folder.is_dir():
        return f"; there is no folder {folder}"
    try:
        names = os.listdir(folder)[:5_000]
    except OSError:
        return ""
    close = get_close_matches(path.name, names, n=3, cutoff=0.5)
    return f"; nearest: {', '.join(sorted(close))}" if close else ""
