"""Files under one folder, reached part by part without following a link (see `ipyagent.nofollow`).

Errors are MemoryRefused: "link", "folder", "disk".
"""

from __future__ import annotations

import errno
import os
import shutil
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from unicodedata import normalize

from ipyagent.errors import MemoryRefused
from ipyagent.nofollow import RELATIVE, PathRef, private_folder, spot
from ipyagent.parts.memory.names import same_name

_NOFOLLOW = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)
_READ = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | _NOFOLLOW  # a named pipe must not make us wait
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | _NOFOLLOW


class SandboxedDir:
    """The files of `root`, named by relative POSIX paths that were checked before."""

    def __init__(self, root: Path, *, relative: bool = RELATIVE) -> None:
        """`relative`: whether the platform reaches a file from an open folder."""
        self.root = root
        self._relative = relative

    def __repr__(self) -> str:
        return f"<SandboxedDir {self.root}>"

    @contextmanager
    def spot(self, name: str, *, make: bool = False) -> Iterator[PathRef]:
        """The place of a file; FileNotFoundError when a folder on the way is missing and not to be made."""
        if make:
            private_folder(self.root)
        with spot(self.root / name, base=self.root, make=make, relative=self._relative) as found:
            yield found

    def status(self, name: str) -> os.stat_result | None:
        """Of the file itself, a link not followed; None when there is none."""
        with _told(name), suppress(FileNotFoundError), self.spot(name) as (leaf, at):
            return os.stat(leaf, dir_fd=at, follow_symlinks=False)
        return None

    def read(self, name: str, most: int = -1) -> bytes | None:
        """The content, its first `most` bytes; None when there is no such file."""
        with _told(name), suppress(FileNotFoundError), self.spot(name) as (leaf, at):
            if at is None and os.path.islink(leaf):
                raise OSError(errno.ELOOP, "is a link", leaf)
            file = os.fdopen(os.open(leaf, _READ, dir_fd=at), "rb")
            with file:
                if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                    raise MemoryRefused(f"{name} is a folder or a special file: remove it", reason="folder")
                return file.read(most)
        return None

    def replace(self, name: str, content: bytes, staging: str, *, durable: bool = True) -> None:
        """Write in one step by way of the file `staging` in the same file system; `durable`: synced."""
        with _told(name), self.spot(staging, make=True) as new, self.spot(name, make=True) as old:
            status = self.status(name)
            if status is not None and not stat.S_ISREG(status.st_mode):
                kind = "link" if stat.S_ISLNK(status.st_mode) else "folder"
                raise MemoryRefused(f"{name} is a {kind}, not a file; remove it first", reason=kind)
            try:
                with os.fdopen(os.open(new.name, _NEW, 0o600, dir_fd=new.at), "wb") as file:
                    if hasattr(os, "fchmod"):
                        os.fchmod(file.fileno(), 0o600)  # whatever the umask, and the mode of the file before
                    file.write(content)
                    if durable:
                        file.flush()
                        os.fsync(file.fileno())
                os.replace(new.name, old.name, src_dir_fd=new.at, dst_dir_fd=old.at)
            except BaseException:
                with suppress(OSError):
                    os.unlink(new.name, dir_fd=new.at)
                raise
            if durable and old.at is not None:
                os.fsync(old.at)

    def remove(self, name: str) -> None:
        """A file, or a link itself; nothing when there is none."""
        with _told(name), suppress(FileNotFoundError), self.spot(name) as (leaf, at):
            os.unlink(leaf, dir_fd=at)

    def move(self, old: str, new: str) -> None:
        """Rename a file; FileNotFoundError when there is none."""
        with _told(new), self.spot(old) as source, self.spot(new, make=True) as goal:
            os.rename(source.name, goal.name, src_dir_fd=source.at, dst_dir_fd=goal.at)

    def keep(self, name: str, other: str) -> bool:
        """Give a file a second name, so that its content stays when the first is replaced; whether that went."""
        try:
            with self.spot(name) as source, self.spot(other, make=True) as goal:
                os.link(source.name, goal.name, src_dir_fd=source.at, dst_dir_fd=goal.at, follow_symlinks=False)
        except (OSError, NotImplementedError):
            return False
        return True

    def make(self, name: str) -> os.stat_result | None:
        """Make the folders on the way to a file; returns its status, None when there is none yet."""
        with _told(name), self.spot(name, make=True) as (leaf, at), suppress(FileNotFoundError):
            return os.stat(leaf, dir_fd=at, follow_symlinks=False)
        return None

    def touch(self, name: str, modified: int) -> None:
        """Set a file's time of change, in nanoseconds."""
        follow = os.utime not in os.supports_follow_symlinks
        with _told(name), self.spot(name) as (leaf, at):
            os.utime(leaf, ns=(modified, modified), dir_fd=at, follow_symlinks=follow)

    def prune(self, name: str) -> None:
        """Remove the folders on the way to a file that are empty, from the inside out."""
        folder = name.rpartition("/")[0]
        while folder:
            try:
                with self.spot(folder) as (leaf, at):
                    os.rmdir(leaf, dir_fd=at)
            except OSError:
                return  # not empty, or gone
            folder = folder.rpartition("/")[0]

    def walk(self, folder: str = "") -> Iterator[tuple[str, os.stat_result]]:
        """Every ordinary file under a folder, but nothing whose name begins with a dot; links are not followed."""
        for leaf in sorted(self.names(folder)):
            name = f"{folder}/{leaf}" if folder else leaf
            status = self.status(name) if not leaf.startswith(".") else None
            if status is None:
                continue
            if stat.S_ISDIR(status.st_mode):
                yield from self.walk(name)
            elif stat.S_ISREG(status.st_mode):
                yield name, status

    def on_disk(self, name: str) -> str:
        """The file's name as it was made: people's own files can be in normal form D."""
        other = name if name.isascii() else normalize("NFD", name)
        if other != name and self.status(name) is None and self.status(other) is not None:
            return other
        return name

    def twin(self, name: str, but: str = "") -> str | None:
        """A name on the way to `name` that some file system takes for the same; `but` does not count."""
        parts = name.split("/")
        for depth, part in enumerate(parts):
            wanted = same_name(part)
            for other in self.names("/".join(parts[:depth])):
                alike = (other.lower() if other.isascii() else same_name(other)) == wanted
                there = "/".join([*parts[:depth], other])
                if alike and other != part and there != but and not but.startswith(f"{there}/"):
                    return there
        return None

    def names(self, folder: str = "") -> list[str]:
        """What stands in a folder ("": the root), unsorted; nothing when there is none."""
        with _told(folder), suppress(FileNotFoundError), self.spot(f"{folder}/x" if folder else "x") as (leaf, at):
            return os.listdir(os.path.dirname(leaf) if at is None else at)
        return []

    def remove_tree(self, name: str) -> None:
        """A folder with all that is in it, links themselves; nothing when there is none, or a link on the way."""
        with suppress(OSError), self.spot(name) as (leaf, at):
            shutil.rmtree(leaf, ignore_errors=True, dir_fd=at)


@contextmanager
def _told(name: str) -> Iterator[None]:
    """System errors in words; a missing file stays FileNotFoundError."""
    try:
        yield
    except FileNotFoundError:
        raise
    except OSError as problem:
        if problem.errno in (errno.ELOOP, errno.ENOTDIR, getattr(errno, "EMLINK", -1)):
            raise MemoryRefused(
                f"{name} is reached by a link or through a file; links are not followed, remove it", reason="link"
            ) from None
        if problem.errno in (errno.EISDIR, errno.ENXIO, errno.ENOTEMPTY):
            raise MemoryRefused(f"{name} is a folder or a special file: remove it", reason="folder") from None
        raise MemoryRefused(
            f"{name} cannot be read or written ({problem.strerror}): fix its permissions", reason="disk"
        ) from None
