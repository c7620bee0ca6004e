"""The one door to files under a project's `.ipyagent/`: they are reached part by part, and no link is followed.

Every folder on the way is opened relative to the one before and must be a real folder, so a link that appears between
a check and its use leads nowhere. Where the platform cannot do that (Windows), each part is checked before the use.
`.ipyagent` itself may be a link (to another disk); `Project.make` says whose. What lies elsewhere, also in the user's
own folder, is where the user wants it: there the functions follow links as those of `os` do, unless a `base` is given.
What is made is this user's alone: folders 0700, files 0600. Errors are OSError, a link's with what to do in its text.
"""

from __future__ import annotations

import errno
import os
import secrets
import stat
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import lru_cache
from pathlib import Path
from typing import BinaryIO, NamedTuple

FOLDER = ".ipyagent"
PRIVATE = 0o700
RELATIVE = {os.open, os.stat, os.unlink, os.rename, os.mkdir, os.link} <= os.supports_dir_fd
"""Whether the platform reaches a file from an open folder."""
LINK = "is a link or lies beyond one; under .ipyagent none is followed: remove it"
NO_FILE = "is a folder or a special file: remove it"
_PLAIN = getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)
_NOFOLLOW = getattr(os, "O_NOFOLLOW", 0) | _PLAIN
_IN = os.O_RDONLY | getattr(os, "O_DIRECTORY", 0) | _PLAIN
_LINKED = (errno.ELOOP, errno.ENOTDIR, getattr(errno, "EMLINK", -1))


class PathRef(NamedTuple):
    """Where a file is for the functions of `os`: its `name`, relative to the open folder `at` (None: a path)."""

    name: str
    at: int | None


def base_of(path: Path) -> Path | None:
    """The `.ipyagent` that a path lies under; None elsewhere and in the user's own folder."""
    parts = path.parts
    for at in [at for at, part in enumerate(parts[:-1], 1) if part == FOLDER]:
        if not _is_users(base := Path(*parts[:at])):
            return base
    return None


def _is_users(folder: Path) -> bool:
    given = os.environ.get("IPYAGENT_HOME", "")
    here = os.getcwd() if given and not os.path.isabs(given) else ""
    return folder == _users_folder(given, os.path.expanduser("~"), here)


@lru_cache(maxsize=8)
def _users_folder(given: str, home: str, here: str) -> Path:
    """The user's own folder in an environment that says this; a relative one depends on `here`."""
    return Path(given).expanduser().absolute() if given else Path(home) / FOLDER


@contextmanager
def spot(
    path: Path, *, base: Path | None = None, make: bool = False, mode: int = PRIVATE, relative: bool = RELATIVE
) -> Iterator[PathRef]:
    """The place of a file; `make` makes the folders on the way, else a missing one raises FileNotFoundError. No link
    is followed from the nearer of the project's `.ipyagent` and `base` on."""
    base = base_of(path) or base
    if base is None:
        if make:
            path.parent.mkdir(parents=True, exist_ok=True)
        yield PathRef(str(path), None)
        return
    with spot_below(base, path.relative_to(base).parts, make=make, mode=mode, relative=relative) as found:
        yield found


@contextmanager
def spot_below(
    base: Path, parts: Sequence[str], *, make: bool = False, mode: int = PRIVATE, relative: bool = RELATIVE
) -> Iterator[PathRef]:
    """The same of a file of which the parts of its path from `base` on are known."""
    *folders, leaf = parts
    if ".." in parts:
        raise OSError(errno.EINVAL, "leads out of its folder", str(base.joinpath(*parts)))
    if make:
        make_private(base)
    if not relative:
        yield PathRef(str(_checked(base, folders, make=make, mode=mode) / leaf), None)
        return
    at = os.open(base, _IN)
    try:
        for depth, folder in enumerate(folders, 1):
            new = False
            if make:
                with suppress(FileExistsError):
                    os.mkdir(folder, mode, dir_fd=at)
                    new = mode == PRIVATE
            try:
                deeper = os.open(folder, _IN | _NOFOLLOW, dir_fd=at)
            except OSError as problem:
                raise _told(problem, base.joinpath(*folders[:depth])) from None
            os.close(at)
            at = deeper
            if new and hasattr(os, "fchmod"):
                os.fchmod(at, mode)  # whatever the umask
        yield PathRef(leaf, at)
    finally:
        os.close(at)


def make_private(folder: Path) -> None:
    """Make a folder for this user alone, those above it as they are made everywhere; one that is there stays as it is.
    Raises OSError."""
    if folder.is_dir():
        return
    folder.parent.mkdir(parents=True, exist_ok=True)
    with suppress(FileExistsError):  # another kernel was faster, or it is a file
        folder.mkdir(mode=PRIVATE)
        folder.chmod(PRIVATE)  # whatever the umask
    folder.mkdir(exist_ok=True)  # raises for a file


def _checked(base: Path, folders: list[str], *, make: bool, mode: int) -> Path:
    path = base
    for folder in folders:
        path = path / folder
        if _is_link(path) or (path.exists() and not path.is_dir()):
            raise OSError(errno.ELOOP, LINK, str(path))
        if make:
            path.mkdir(mode=mode, exist_ok=True)
    return path


def _is_link(path: str | Path) -> bool:
    junction = getattr(os.path, "isjunction", None)  # Python 3.12
    return os.path.islink(path) or bool(junction is not None and junction(path))


def _told(problem: OSError, path: Path) -> OSError:
    """The same error, a link's in words."""
    return OSError(errno.ELOOP, LINK, str(path)) if problem.errno in _LINKED else problem


def private_folder(folder: Path, *, base: Path | None = None, mode: int = PRIVATE) -> None:
    """Make a folder, and those above it that are missing, for this user alone (mode 0700, whatever the umask). One
    that is there stays as it is. Raises OSError."""
    if base_of(folder / "x") or base:
        with spot(folder / "x", base=base, make=True, mode=mode):
            return
    if folder.is_dir():
        return
    for made in reversed([folder, *folder.parents]):
        if not made.exists():
            with suppress(FileExistsError):  # another kernel was faster
                made.mkdir(mode=mode)
                made.chmod(mode)
    folder.mkdir(exist_ok=True)  # raises for a file


def opened(path: Path, flags: int, mode: int = 0o600, *, base: Path | None = None, make: bool = False) -> int:
    """An open file, as `os.open` gives it; a pipe is not waited for. Raises OSError."""
    inside = base_of(path) or base
    with spot(path, base=base, make=make) as (leaf, at):
        if inside is None:
            return os.open(leaf, flags | _PLAIN, mode)
        if at is None and _is_link(leaf):
            raise OSError(errno.ELOOP, LINK, str(path))
        try:
            handle = os.open(leaf, flags | _NOFOLLOW | getattr(os, "O_NONBLOCK", 0), mode, dir_fd=at)
        except OSError as problem:
            raise _told(problem, path) from None
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise OSError(errno.EINVAL, NO_FILE, str(path))
    return handle


def reading(path: Path, *, base: Path | None = None) -> BinaryIO:
    """A file open for reading bytes. Raises OSError."""
    return os.fdopen(opened(path, os.O_RDONLY, base=base), "rb")


def status(path: Path, *, base: Path | None = None) -> os.stat_result | None:
    """Of what stands there itself, a link not followed; None when there is nothing, also beyond a link."""
    try:
        with spot(path, base=base) as (leaf, at):
            return os.stat(leaf, dir_fd=at, follow_symlinks=False)
    except OSError:
        return None


def is_file(path: Path, *, base: Path | None = None) -> bool:
    """Whether an ordinary file stands there, reached by no link."""
    found = status(path, base=base)
    return found is not None and stat.S_ISREG(found.st_mode)


def checked(path: Path, *, base: Path | None = None, make: bool = False) -> Path:
    """The path, for what others (a file lock, SQLite) open by it. Raises OSError for a link on the way or in the place
    of the file."""
    inside = base_of(path) or base
    with spot(path, base=base, make=make) as (leaf, at):
        if inside is not None:
            with suppress(FileNotFoundError):
                if not stat.S_ISREG(os.stat(leaf, dir_fd=at, follow_symlinks=False).st_mode):
                    raise OSError(errno.ELOOP, LINK if _is_link(path) else NO_FILE, str(path))
    return path


def write_atomically(path: Path, content: bytes, *, base: Path | None = None, make: bool = True) -> None:
    """Replace a file in one step, synced; readers see the old or the new content, whole. A link in its place goes.
    `make`: also its folder. Raises OSError."""
    with spot(path, base=base, make=make) as (leaf, at):
        new = os.path.join(os.path.dirname(leaf), f".{os.path.basename(leaf)}.{secrets.token_hex(6)}")
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | _NOFOLLOW
        try:
            with os.fdopen(os.open(new, flags, 0o600, dir_fd=at), "wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            os.replace(new, leaf, src_dir_fd=at, dst_dir_fd=at)
        except BaseException:
            with suppress(OSError):
                os.unlink(new, dir_fd=at)
            raise


def remove(path: Path, *, base: Path | None = None) -> None:
    """A file, or a link itself; nothing when there is none. Raises OSError."""
    with suppress(FileNotFoundError), spot(path, base=base) as (leaf, at):
        os.unlink(leaf, dir_fd=at)


def names(folder: Path, *, base: Path | None = None) -> list[str]:
    """What stands in a folder, sorted; nothing when there is none or it is reached by a link."""
    try:
        with spot(folder / "x", base=base) as (leaf, at):
            return sorted(os.listdir(os.path.dirname(leaf) if at is None else at))
    except OSError:
        return []
