"""The headers of all memories of a folder; a file that has not changed costs one `stat`, or none in a glance at a large
folder that is as it was."""

from __future__ import annotations

import os
import re
import stat
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from hashlib import sha256
from operator import attrgetter
from pathlib import Path
from typing import Any

import msgspec
from msgspec.structs import replace

from ipyagent.errors import MemoryRefused
from ipyagent.frontmatter import Headed, decoded, read_headed, write_headed
from ipyagent.nofollow import RELATIVE
from ipyagent.parts.memory.safe_paths import INDEX, MOST_PARTS, ROOT, SUFFIX, checked_name
from ipyagent.project import home_variable
from ipyagent.trust import is_signed, signature


class Memory(msgspec.Struct, frozen=True, kw_only=True):
    """The header of one file, from its first 30 lines.

    `scope` "project", "user" or an agent's; `name` the POSIX path inside the folder; `title` the header's
    `name`, else the file's; `kind` "user", "feedback", "project", "reference" or ""; `modified` Unix time;
    `size` in bytes; `source` (header key `source`) "said", "claimed" (the file says so, but the user's own folder has
    no record of it), "inferred", "quoted" or ""; `session` and `turn` the header's; `fact` what the lines below the
    header say, in one; `problems` what is wrong with the header, one line each.
    """

    scope: str
    name: str
    title: str
    description: str = ""
    kind: str = ""
    modified: float = 0.0
    size: int = 0
    source: str = ""
    session: str = ""
    turn: int = 0
    fact: str = ""
    problems: tuple[str, ...] = ()

    @property
    def path(self) -> str:
        """As the memory tool names it: "/memories/project/feedback_plots.md"."""
        return f"{ROOT}/{self.scope}/{self.name}"

    @property
    def is_own_word(self) -> bool:
        """Whether this is the user's own word, verified: its whole text, header and body, is what was saved on the
        user's word, and the user's own folder recorded that (or it lies in that folder)."""
        return self.source == "said"

    @property
    def source_words(self) -> str:
        """The source as people and models read it."""
        return "said, as the file claims; not recorded here" if self.source == CLAIMED else self.source


KINDS = ("user", "feedback", "project", "reference")
SOURCES = ("said", "inferred", "quoted")
CLAIMED = "claimed"
MOST_HEAD_LINES = 30
MOST_DESCRIPTION = 500
MOST_FACT = 300
_REASONS = re.compile(r"\W*(?:Why|How to apply|Inferred by the agent)\b", re.IGNORECASE)
_MARKS = re.compile(r"^\s*(?:[-*+>]+\s+|\d{1,3}[.)]\s+)+|\*\*|`")
LARGE = 1_000_000
"""Bytes from which a memory is pointed out as too large."""
_HEAD = 8_192
_MOST_HEAD = 70_000
_ROOT = os.O_RDONLY | getattr(os, "O_DIRECTORY", 0)
_FOLDER = _ROOT | getattr(os, "O_NOFOLLOW", 0)
_READ = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_BINARY", 0)

PART = 2_000
"""Files of a folder that has not changed which a glance looks at, in turn: all of them, in all but huge folders."""
SETTLED = 2_000_000_000
"""Nanoseconds after which a folder's time of change has surely passed: a file added later gives it another."""
_TELLS = os.name == "posix"
"""Whether a folder's time changes with each file that is added, removed or replaced."""

Key = tuple[int, int, int, int]
"""Times of content and of status, size, inode: what tells that a file is the one that was read."""
_key: Callable[[os.stat_result], Key] = attrgetter("st_mtime_ns", "st_ctime_ns", "st_size", "st_ino")


def _state(status: os.stat_result) -> tuple[int, int, int]:
    return status.st_mtime_ns, status.st_ctime_ns, status.st_ino


def _settled(status: os.stat_result) -> tuple[int, int, int] | None:
    """The state of a folder, where whatever happens to it from now on makes it another."""
    return _state(status) if status.st_mtime_ns < time.time_ns() - SETTLED else None


class InvalidFile(msgspec.Struct, frozen=True):
    """A Markdown file or a link in the folder that is no memory, and why."""

    name: str
    why: str


class Scan:
    """Headers of the memories under `root`, kept as long as the files stay as they were. Thread-safe."""

    def __init__(self, root: Path, scope: str, *, vouch: Callable[[bytes], bool] | None = None) -> None:
        """`vouch`: whether a whole content that says "said" was recorded; None: the folder is the user's own."""
        self.root = root
        self.scope = scope
        self._vouch = vouch
        self._lock = threading.Lock()
        self._kept: dict[str, tuple[Key, Memory | InvalidFile]] = {}
        self._memories: list[Memory] = []
        self._folders: dict[str, tuple[int, int, int] | None] = {}
        """The state of each folder when it was read; None for one that may have changed since without telling."""
        self._turn = 0
        """The place among the files of the next that a glance looks at."""

    def __repr__(self) -> str:
        return f"<Scan of {self.root}: {len(self._kept)} files>"

    def memories(self) -> list[Memory]:
        """All memories, newest first."""
        with self._lock:
            self._look()
            return self._memories[:]

    def glance(self) -> list[Memory]:
        """All memories, newest first: as `memories`, but that a file of more than PART which was edited in place, so
        that its folder tells nothing, may be seen some glances later. What is to be shown has to be asked for with
        `changed`."""
        with self._lock:
            if not self._is_as_it_was():
                self._look()
            return self._memories[:]

    def changed(self, names: Iterable[str]) -> bool:
        """Whether one of these files is not as it was when it was last looked at."""
        with self._lock:
            return not self._are_as_they_were(names)

    def _is_as_it_was(self) -> bool:
        if not (_TELLS and self._folders):
            return False
        for prefix, state in self._folders.items():
            try:
                if state is None or _state(os.stat(self.root / prefix, follow_symlinks=not prefix)) != state:
                    return False
            except OSError:
                return False
        names = list(self._kept)
        begin = self._turn if self._turn < len(names) else 0
        self._turn = begin + PART
        return self._are_as_they_were(names[begin : self._turn])

    def _are_as_they_were(self, names: Iterable[str]) -> bool:
        before = f"{self.root}/"
        try:
            return all(self._kept[name][0] == _key(os.lstat(before + name)) for name in names)
        except (KeyError, OSError):
            return False

    def misfits(self) -> list[InvalidFile]:
        """Files that look like memories and are none."""
        with self._lock:
            self._look()
            return [kept for _, kept in self._kept.values() if isinstance(kept, InvalidFile)]

    def _look(self) -> None:
        seen: dict[str, tuple[Key, Memory | InvalidFile]] = {}
        self._folders = {}
        changed = self._folder("", None, 1, seen)
        if changed or len(seen) != len(self._kept):
            self._kept = seen
            found = [kept for _, kept in seen.values() if isinstance(kept, Memory)]
            found.sort(key=lambda memory: (-memory.modified, memory.name))
            self._memories = found

    def _folder(
        self, prefix: str, above: int | None, depth: int, seen: dict[str, tuple[Key, Memory | InvalidFile]]
    ) -> bool:
        """Take in one folder and those in it; whether anything is new. A folder that went away holds nothing."""
        try:
            if not RELATIVE:
                handle = None
                entries = os.scandir(self.root / prefix)
            else:
                here, flags = (self.root, _ROOT) if above is None else (prefix.rpartition("/")[2], _FOLDER)
                handle = os.open(here, flags, dir_fd=above)
                entries = os.scandir(handle)
                self._folders[prefix] = _settled(os.fstat(handle))
        except FileNotFoundError:
            return False
        except OSError as problem:
            told = ((0, 0, 0, 0), InvalidFile(prefix or ".", f"the folder cannot be read: {problem.strerror}"))
            seen[prefix or "."] = told
            return self._kept.get(prefix or ".") != told
        changed = False
        before = f"{prefix}/" if prefix else ""
        known = self._kept.get
        try:
            with entries:
                for entry in entries:
                    name = before + entry.name if before else entry.name
                    old = known(name)
                    if old is not None:  # the usual case comes first: this loop is what a scan costs
                        try:
                            status = entry.stat(follow_symlinks=False)
                        except OSError:
                            continue  # removed meanwhile
                        if old[0] == _key(status):
                            seen[name] = old
                            continue
                    if entry.name[0] == ".":
                        continue
                    if entry.name.endswith(SUFFIX):
                        new = self._new(name, entry, handle)
                        if new is not None:
                            seen[name] = new
                            changed = True
                    elif depth < MOST_PARTS and entry.is_dir(follow_symlinks=False):
                        changed |= self._folder(name, handle, depth + 1, seen)
        finally:
            if handle is not None:
                os.close(handle)
        return changed

    def _new(self, name: str, entry: os.DirEntry[str], handle: int | None) -> tuple[Key, Memory | InvalidFile] | None:
        """A file that is new or has changed; None for the index and for what is gone."""
        if entry.name == INDEX and entry.is_file(follow_symlinks=False):
            return None
        try:
            status = entry.stat(follow_symlinks=False)
            return _key(status), self._read(name, entry, status, handle)
        except FileNotFoundError:
            return None

    def _read(
        self, name: str, entry: os.DirEntry[str], status: os.stat_result, handle: int | None
    ) -> Memory | InvalidFile:
        """The header of one file. Raises FileNotFoundError when it is gone."""
        if not stat.S_ISREG(status.st_mode):
            kind = "a link; links are not followed" if stat.S_ISLNK(status.st_mode) else "no ordinary file"
            return InvalidFile(_printable(name), kind)
        try:
            proper = checked_name(name)
        except MemoryRefused as problem:
            return InvalidFile(_printable(name), str(problem))
        where = entry.name if handle is not None else entry.path
        try:
            head = _head(where, handle)
        except FileNotFoundError:
            raise
        except OSError as problem:
            told = f"cannot be read: {problem.strerror}"
            return memory_of(self.scope, proper, b"", status.st_mtime, status.st_size, told)
        found = memory_of(self.scope, proper, head, status.st_mtime, status.st_size)
        if found.source == "said" and self._vouch is not None:
            if len(head) != status.st_size:  # as far as one is read that can be a memory
                with os.fdopen(os.open(where, _READ, dir_fd=handle), "rb") as file:
                    head = file.read(2 * LARGE)
            if not self._vouch(head):
                return replace(found, source=CLAIMED)
        return found


CONFLICT = re.compile(r"(?m)^(?:<{7}|>{7}|\|{7}) .*$|^={7}$")
"""A line with which git parts the sides of a conflict."""


def is_conflicted(text: str) -> bool:
    """Whether git left a conflict in a text: both sides of it stand there."""
    marks = {mark[0][0] for mark in CONFLICT.finditer(text)} if "<<<<<<< " in text else set[str]()
    return marks >= {"<", "=", ">"}


def memory_of(scope: str, name: str, data: bytes, modified: float, size: int, *more: str) -> Memory:
    """A memory from the content of its file, of which only the first lines count."""
    headed = read_headed(_first_lines(data), part=True) if not more else read_headed(b"---\n---\n")
    fields, problems = headed.fields, [*more, *headed.problems]
    stem = name.rpartition("/")[2].removesuffix(SUFFIX)
    kind = _line(fields.get("type"))
    if kind and kind not in KINDS:
        problems.append(f"type {kind!r} is not one of {', '.join(KINDS)}; left out")
        kind = ""
    if size > LARGE:
        problems.append(f"is {size:,} bytes long; a memory is one fact or theme")
    if torn := is_conflicted(data.decode("utf-8", "replace")):  # which side is true, only a person knows
        problems = ["has conflict markers of git: settle them; until then it is not recalled"]
        fields, kind = {}, ""
    source = _line(fields.get("source"))
    turn = fields.get("turn")
    return Memory(
        scope=scope,
        name=name,
        title=_line(fields.get("name")) or stem,
        description=_line(fields.get("description"))[:MOST_DESCRIPTION],
        kind=kind,
        modified=modified,
        size=size,
        source=source if source in SOURCES else "",
        session=_line(fields.get("session")),
        turn=turn if isinstance(turn, int) and not isinstance(turn, bool) else 0,
        fact="" if torn else _fact(headed.body),
        problems=tuple(problems),
    )


def _fact(body: str) -> str:
    """What a memory says, before its reasons, in one line."""
    said: list[str] = []
    room = MOST_FACT
    for line in body.split("\n"):
        if _REASONS.match(line) and said:
            break
        words = _MARKS.sub("", line).strip() if not line.startswith("#") else ""
        if words:
            said.append(words)
            room -= len(words)
        if room < 0:
            break
    return " ".join(" ".join(said).split())[:MOST_FACT]


def _line(value: object) -> str:
    """A header's value as one line."""
    if value is None or isinstance(value, (dict, list)):
        return ""
    return " ".join(str(value).split())


def _head(name: str, handle: int | None) -> bytes:
    """The first bytes of a file: as many as its header needs, where that is a header of sensible size."""
    file = os.open(name, _READ, dir_fd=handle)
    try:
        data = os.read(file, _HEAD)
        while len(data) < _MOST_HEAD and data.count(b"\n") < MOST_HEAD_LINES and len(data) % _HEAD == 0:
            more = os.read(file, _HEAD)
            if not more:
                break
            data += more
        return data
    finally:
        os.close(file)


def _first_lines(data: bytes) -> bytes:
    end = -1
    for _ in range(MOST_HEAD_LINES):
        end = data.find(b"\n", end + 1)
        if end < 0:
            return data[:_MOST_HEAD]
    return data[: min(end, _MOST_HEAD)]


def _printable(name: str) -> str:
    return name if name.isprintable() else ascii(name)[1:-1]


# ---- The text of a memory and the bytes of its file.

class Text(msgspec.Struct, frozen=True):
    """A memory's text (line ends "\n", no byte order mark) and the digest of its bytes."""

    text: str
    digest: str


def readable(name: str, content: bytes) -> str | None:
    """The text with a header that every reader of YAML understands; None when a person has to look at it."""
    headed = read_headed(content)
    if any("UTF-8" in problem or "no closing" in problem for problem in headed.problems):
        return None
    return write_headed(described(name, headed.fields, headed.body), headed.body)


def described(name: str, fields: Mapping[str, Any], body: str) -> dict[str, Any]:
    """The fields of a header with a name and a description in any case."""
    first = next((line for line in body.split("\n") if line.strip(" #-*>`\t")), "")
    made = dict(fields)
    made.setdefault("name", name.rpartition("/")[2].removesuffix(SUFFIX).replace("_", " "))
    made.setdefault("description", " ".join(first.strip(" #-*>`\t").split())[:120])
    return made


KEPT = ("source", "said", "session", "turn", "recorded")
"""What of a header is kept by code alone."""
_WHERE = re.compile(r"line \d+: ")


def said_below(text: str) -> str:
    """What a memory says below its header, or its description where nothing stands there; spaces do not count."""
    headed = read_headed(encoded(text))
    return " ".join((headed.body.strip() or word_of(headed.fields.get("description"))).split())


def header_lines(text: str) -> int:
    """The number of lines that the header of a memory takes; 0 without one."""
    body = read_headed(text.encode("utf-8", "replace")).body
    if not body:
        return text.count("\n") + (not text.endswith("\n")) if text else 0
    return text.count("\n", 0, len(text) - len(body))


def check_edit(path: str, before: str, after: str) -> None:
    """Raises MemoryRefused ("header", "unchanged") for an edit that would not stay: it says nothing new but what
    code keeps, or leaves a header out of which something would be lost."""
    old, new = (read_headed(text.encode("utf-8", "replace")) for text in (before, after))
    known = {_WHERE.sub("", problem) for problem in old.problems}
    comments = [text[: len(text) - len(headed.body)].count("\n#") for text, headed in ((before, old), (after, new))]
    wrong = next((problem for problem in new.problems if _WHERE.sub("", problem) not in known), "")
    if comments[1] > comments[0]:
        wrong = wrong or "a comment in the frontmatter is not kept"
    if wrong:
        told = f"{path} was not changed: its frontmatter would be broken ({wrong}): put text after the second ---"
        raise MemoryRefused(told, reason="header")
    if new.body == old.body and _own(new.fields) == _own(old.fields):
        marks = f"; {', '.join(KEPT)} are kept by ipyagent" if after != before else ""
        raise MemoryRefused(f"{path} was not changed: the edit leaves it as it is{marks}", reason="unchanged")


def _own(fields: dict[str, Any]) -> list[tuple[str, Any]]:
    return [(key, value) for key, value in fields.items() if key not in KEPT]


def text_in(content: bytes) -> Text:
    """The text of a file, as far as it is UTF-8."""
    return Text(decoded(content)[0], digest_of(content))


def encoded(text: str) -> bytes:
    """UTF-8; a surrogate that stands alone is no character and becomes "?"."""
    return text.encode("utf-8", "replace")


def digest_of(content: bytes) -> str:
    """What tells one content from another."""
    return sha256(content).hexdigest()


def word_of(value: object) -> str:
    """A field of a header as text, "" for anything else."""
    return value.strip() if isinstance(value, str) else ""


def renamed_header(headed: Headed, old: str, new: str) -> dict[str, str]:
    """The header's name after a file got another one, if it was that of the file; else nothing."""
    was, now = (each.rpartition("/")[2].removesuffix(SUFFIX) for each in (old, new))
    names = {was: now, was.replace("_", " "): now.replace("_", " ")}
    name = names.get(word_of(headed.fields.get("name")))
    return {} if name is None else {"name": name}


BETWEEN = " … "
RECORDED = "recorded"
"""The header's key for the record that a memory is the user's word."""


# What this user's own folder says of memories: which are the user's word. What a file in a project says of itself is a
# claim; the record is a signature of what it says (type, name, description, the user's words, body), so that a memory
# keeps it wherever the project is moved to, and loses it with any change from outside.


def sealed(user: Path, fields: Mapping[str, Any], body: str) -> str:
    """A memory's text, with a record in its header that it is the user's word if it is. Raises MemoryRefused ("disk")
    when there is no place for a key in the `user`'s folder."""
    kept = {key: value for key, value in fields.items() if key != RECORDED}
    if kept.get("source") == "said":
        try:
            kept[RECORDED] = signature(user, "memory", _signed(kept, body))
        except OSError as problem:
            told = (
                f"the source of a memory cannot be recorded in {user} ({problem.strerror or problem}; "
                f"{home_variable()}): free some space there, or set IPYAGENT_HOME to a folder that you own"
            )
            raise MemoryRefused(told, reason="disk") from None
    return write_headed(kept, body)


def is_recorded(user: Path, content: bytes) -> bool:
    """Whether a memory, its whole content, was recorded as the user's word."""
    headed = read_headed(content)
    given = headed.fields.get(RECORDED)
    return isinstance(given, str) and is_signed(user, "memory", _signed(headed.fields, headed.body), given)


def _signed(fields: Mapping[str, Any], body: str) -> bytes:
    whole = described("", fields, body)  # %memory doctor adds what is missing
    told = [str(whole.get(key) or "") for key in ("type", "name", "description")]
    return msgspec.json.encode([*told, said_words(fields), body.strip()])


def said_words(fields: Mapping[str, Any]) -> list[str]:
    """The user's words that a header keeps as evidence, in one line with an ellipsis between the pieces."""
    given = fields.get("said")
    pieces = given if isinstance(given, list) else str(given or "").split(BETWEEN)
    return [str(each) for each in pieces if each]
