"""Files under one folder, reached part by part without following a link (see `ipyagent.nofollow`).

Errors are MemoryRefused: "link", "folder", "disk".
"""

from __future__ import annotations

import errno
import os
import re
import shutil
import stat
import unicodedata
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Literal, NamedTuple, get_args
from unicodedata import normalize

from ipyagent.errors import MemoryRefused
from ipyagent.escape import cut
from ipyagent.nofollow import RELATIVE, PathRef, base_of, private_folder, spot_below

Scope = Literal["project", "user"]
SCOPES: tuple[str, ...] = get_args(Scope)
ROOT = "/memories"
"""The top of the tree that the model sees; under it a folder for each scope."""
INDEX = "MEMORY.md"
SUFFIX = ".md"
MOST_PARTS = 4
MOST_PART_BYTES = 200
"""File systems allow 255; the history adds to a name."""
_FORBIDDEN = set('<>:"|?*\\')
_SLASHES = set("\u2044\u2215\u2216\u20eb\u2571\u2572\u27cb\u27cd\u29f5\u29f8\u29f9\u3033\u31d3")
"""What looks like a slash and does not become one under compatibility normalisation."""
_DEVICES = re.compile(r"(con|prn|aux|nul|com[0-9¹²³]|lpt[0-9¹²³]|conin\$|conout\$|clock\$)", re.IGNORECASE)
_ENCODED = re.compile(r"%(2e|2f|5c|00|7e)", re.IGNORECASE)
_WORD = re.compile(r"[^\W\d_]+")
_ENDING = re.compile(r"\.[A-Za-z]\w{0,4}$")
_PLAIN = re.compile(r"(?:[a-z0-9_-]+/){0,3}[a-z0-9_-]+\.md")
"""Names that need no closer look but at devices and lengths."""


def checked_name(raw: str) -> str:
    """The name as it is stored. Raises MemoryRefused ("name") for everything that cannot be one."""
    if not isinstance(raw, str) or not raw.strip():
        raise _refused(raw, "is empty", 'give it a short name such as "feedback_plots.md"')
    name = unicodedata.normalize("NFC", raw)
    if not _PLAIN.fullmatch(name):
        _check_characters(raw, name)
    parts = name.split("/")
    if len(parts) > MOST_PARTS:
        raise _refused(raw, "lies too deep", f"use at most {MOST_PARTS - 1} folders")
    for part in parts:
        _check_part(raw, part)
    if not name.endswith(SUFFIX):
        raise _refused(raw, "is no Markdown file", f'end it in "{SUFFIX}"')
    if name != INDEX and any(part.casefold() == INDEX.casefold() for part in parts):
        raise _refused(raw, "is kept for the index", "use another name")
    return name


def split_path(raw: str, *, loose: bool = False) -> tuple[str, str]:
    """Scope and name of a path as the model writes it: "/memories/project/feedback_plots.md" gives
    ("project", "feedback_plots.md"). Of a folder the name is "" or ends in "/"; of "/memories" both are "". `loose`: it
    may lack its beginning, its ending and, without folders, its scope, which is "" then: "plots", "project/plots",
    "/memories/plots". Raises MemoryRefused ("name") for every other path."""
    if not isinstance(raw, str) or "\0" in raw:
        raise _refused(raw, "is no path", f'paths begin with "{ROOT}/"')
    if raw.rstrip("/") == ROOT:
        return "", ""
    rooted = raw.startswith(f"{ROOT}/")
    scope, _, name = raw.removeprefix(f"{ROOT}/").partition("/")
    if loose and scope and not name and scope not in SCOPES:
        scope, name = "", scope
    elif not rooted and not (loose and scope in SCOPES):
        raise _refused(raw, "lies outside", f'paths begin with "{ROOT}/project/" or "{ROOT}/user/"')
    elif scope not in SCOPES:
        raise _refused(raw, "is in no folder of memories", f'they are "{ROOT}/project/" and "{ROOT}/user/"')
    bare = name.rstrip("/")
    if bare:  # the rules for names, whatever the ending
        file = bare if not loose or _ENDING.search(bare) else f"{bare}{SUFFIX}"
        checked_name(file if bare == name else f"{bare}/x{SUFFIX}")
    return scope, unicodedata.normalize("NFC", f"{bare}/" if bare and bare != name else bare)


class Address(NamedTuple):
    """A place in the tree: `scope` "" for `/memories` itself, `name` "" for a scope's folder; the name of a folder
    in it ends in "/"."""

    scope: str
    name: str

    @property
    def path(self) -> str:
        return "/".join(part for part in (ROOT, self.scope, self.name.rstrip("/")) if part)

    @property
    def is_folder(self) -> bool:
        return not self.name or self.name.endswith("/")


def address(raw: str) -> Address:
    """The place that a path names; what does not end in ".md" is a folder. Raises MemoryRefused for anything
    that is not inside the tree, or would not be on another file system."""
    return Address(*split_path(raw if raw.endswith((SUFFIX, "/")) else f"{raw}/"))


def same_name(name: str) -> str:
    """What two names have in common that a file system may not tell apart: case, width, accents' form."""
    return unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", name).casefold())


def _check_characters(raw: str, name: str) -> None:
    if _ENCODED.search(name):
        raise _refused(raw, "hides characters of a path", "write it without %-escapes")
    for character in name:
        kind = unicodedata.category(character)
        if kind[0] == "C" or (kind[0] == "Z" and character != " "):
            raise _refused(raw, f"holds the invisible character U+{ord(character):04X}", "leave it out")
    if name.startswith(("/", "~")) or re.match(r"[A-Za-z]:", name):
        raise _refused(raw, "is not a name inside the folder of memories", 'give it as "folder/name.md"')
    if found := (_FORBIDDEN | _SLASHES) & set(name):
        raise _refused(raw, f"holds {min(found)!r}", 'use letters, digits, "-" and "_"')
    compatible = unicodedata.normalize("NFKC", name)
    for sign in "/.~%" + "".join(_FORBIDDEN):
        if compatible.count(sign) != name.count(sign):
            raise _refused(raw, f"holds a character that passes for {sign!r}", 'use letters, digits, "-" and "_"')
    for word in _WORD.findall(name):
        if len(scripts := _scripts(word)) > 1:
            raise _refused(raw, f"mixes {' and '.join(sorted(scripts))} letters in {word!r}", "use one alphabet")


def _scripts(word: str) -> set[str]:
    """Alphabets of a word that can pass for each other."""
    names = (unicodedata.name(letter, "").partition(" ")[0] for letter in word)
    return {name.capitalize() for name in names if name in ("LATIN", "CYRILLIC", "GREEK", "ARMENIAN", "CHEROKEE")}


def _check_part(raw: str, part: str) -> None:
    if part in ("", ".", ".."):
        raise _refused(raw, "is not a name inside the folder of memories", 'give it as "folder/name.md"')
    if part.startswith("."):
        raise _refused(raw, "is hidden", 'begin it with a letter')
    if part != part.strip() or part.endswith("."):
        raise _refused(raw, "begins or ends with a space or ends with a dot", "leave them out")
    if part.rpartition(".")[0].endswith((" ", ".")):
        raise _refused(raw, "has a space or dot before its ending", "leave it out")
    if _DEVICES.fullmatch(part.partition(".")[0].rstrip()):
        raise _refused(raw, f"holds {part!r}, which Windows keeps for a device", "use another name")
    if len(part.encode()) > MOST_PART_BYTES:
        raise _refused(raw, "is too long", f"{MOST_PART_BYTES} bytes a part at most")


def _refused(raw: object, what: str, instead: str) -> MemoryRefused:
    shown = ascii(raw) if not isinstance(raw, str) or not raw.isprintable() else f'"{raw}"'
    return MemoryRefused(f"a memory cannot be called {cut(shown, 80)}: it {what}; {instead}", reason="name")


_NOFOLLOW = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)
_READ = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | _NOFOLLOW  # a named pipe must not make us wait
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | _NOFOLLOW


class SandboxedDir:
    """The files of `root`, named by relative POSIX paths that were checked before."""

    def __init__(self, root: Path, *, relative: bool = RELATIVE) -> None:
        """`relative`: whether the platform reaches a file from an open folder."""
        self.root = root
        self._relative = relative
        self._base = base_of(root / "x") or root
        self._parts = root.relative_to(self._base).parts

    def __repr__(self) -> str:
        return f"<SandboxedDir {self.root}>"

    @contextmanager
    def spot(self, name: str, *, make: bool = False) -> Iterator[PathRef]:
        """The place of a file; FileNotFoundError when a folder on the way is missing and not to be made."""
        if make and not self.root.is_dir():
            private_folder(self.root)
        parts = (*self._parts, *name.split("/"))
        with spot_below(self._base, parts, make=make, relative=self._relative) as found:
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
