"""A change of one file, from the diff the user approves to the bytes on disk.

A change is made against the bytes that the model last read: when the file has others, at the
question or at the writing, it is refused. Writing is one step of the agent thread, with no await
between the last check, the journal and the replacement: a cancelled call has either written
everything or nothing."""

from __future__ import annotations

import asyncio
import codecs
import hashlib
import os
import re
import secrets
import shutil
import stat
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from difflib import unified_diff
from pathlib import Path
from typing import NamedTuple

import msgspec

from ipyagent import nofollow
from ipyagent.errors import ToolFailure
from ipyagent.journal.events import FileChanged
from ipyagent.journal.protocols import PermissionQuestion, ReadStamp, Workspace
from ipyagent.nofollow import is_file, remove, spot
from ipyagent.redaction import stand_ins
from ipyagent.tools.paths import digest, is_guarded, read_bytes, shown

# ---- Bytes to text and back without loss: what was read in one encoding, with one kind of line end and a byte
# order mark, is written back the same way.

_MARKS = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF32_LE, "utf-32-le"),  # begins like UTF-16's, so it is tried first
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)


@dataclass(frozen=True)
class Decoded:
    """`text` keeps its line ends; `mark` is the byte order mark (b"" when there is none)."""

    text: str
    encoding: str = "utf-8"
    mark: bytes = b""

    @property
    def newline(self) -> str:
        """ "\\r\\n" or "\\r" when every line ends so, else "\\n"."""
        ends = self.text.count("\n")
        if not ends and "\r" in self.text:
            return "\r"
        return "\r\n" if ends and self.text.count("\r\n") == ends else "\n"

    def encode(self, text: str) -> bytes:
        """`text` as this file's bytes. Raises ToolFailure for a character it cannot hold."""
        try:
            return self.mark + text.encode(self.encoding)
        except UnicodeEncodeError as problem:
            raise ToolFailure(
                f"the file is {self.encoding} and cannot hold {text[problem.start]!r}; write it without, or "
                "convert the file with python first"
            ) from None


def decode(data: bytes, *, whole: bool = True) -> Decoded | None:
    """The text of `data`, None when it is binary. `whole` False: the end may be cut inside a
    character, which is then left out. Anything that is not UTF-8 and has no mark is latin-1."""
    for mark, encoding in _MARKS:
        if data.startswith(mark):
            try:
                text = codecs.getincrementaldecoder(encoding)().decode(data[len(mark) :], whole)
            except UnicodeDecodeError:
                break
            return Decoded(text, encoding, mark)
    if b"\x00" in data[:65_536]:
        return None
    try:
        return Decoded(codecs.getincrementaldecoder("utf-8")().decode(data, whole))
    except UnicodeDecodeError:
        controls = sum(byte < 32 and byte not in b"\t\n\r\f\x1b" for byte in data[:8_192])
        return None if controls > len(data[:8_192]) // 50 else Decoded(data.decode("latin-1"), "latin-1")


MOST = 16 * 1024 * 1024
"""Bytes: larger files are not edited."""
LEAST_LOST = 3
"""Lines that must go for a text to count as cut short."""
_LINE_END = re.compile(r"\r\n|\r|\n")
_COMMENT = re.compile(
    r"(?P<mark>\#+|//+|/\*+|--+|;+|%+|<!--|\{/\*|\{\#|\(\*|'|\"\"\"|REM\b|!|\[|\(|)(?P<body>[^\n]*?)"
    r"(?:\*+/\}?|-->|\#\}|\*\)|\"\"\"|\]|\)|)\s*",
    re.I,
)
"""A comment of one line in one of many languages, or text in brackets, or bare."""
_REST_WORD = (
    r"(?:rest|remain(?:ing|der|s)?|existing|other|previous|unchanged|same|omitted|original|as (?:before|above|is))"
)
_FILLER = (
    r"(?:the|of (?:the |this )?\w+|of|this|your|all|code|files?|contents?|functions?|methods?|class(?:es)?|imports?|"
    r"lines?|here|is|are|stays?|goes|keep|kept|no|changes?|and|text|cells?|tests?|rows?|data|implementation|body|logic|"
    r"section|as|before|above|it|was|in|for|brevity|not|shown|truncated|snipped?|with|to|from|definitions?|setup|config)"
)
_FOREIGN = r"保持不变|不变|其余|剩余|省略|変更なし|unverändert|inchangé|sin cambios|invariat[oi]|без изменений|остальн"
_REST = re.compile(
    rf"(?=.*\b{_REST_WORD}\b)(?:\b(?:{_REST_WORD}|{_FILLER})\b[\s,.…:()-]*)+|(?:no changes?|snip(?:ped)?|truncated)"
    rf"|.*(?:{_FOREIGN}).*",
    re.I,
)
"""What such a line says beside dots."""
_REST_ALONE = re.compile(
    r"(?=.*\b(?:rest|remaining|remainder|existing|unchanged|omitted|other)\b)"
    r"(?=.*\b(?:unchanged|same|omitted|as before|stays?|remains?|existing|keep|rest of|here)\b)"
    rf"(?:\b(?:{_REST_WORD}|{_FILLER})\b[\s,.:()-]*)+"
    r"|.*(?:其余.*不变|保持不变|unverändert|sin cambios|без изменений|変更なし)",
    re.I,
)
"""What it says without any."""
MOST_NOTEBOOK = 256 * 1024 * 1024
"""The same for notebooks, which are large by their outputs."""


@dataclass(frozen=True)
class PendingChange:
    """`path` (resolved) goes from `before` (None: it does not exist) to `after`."""

    path: Path
    before: bytes | None
    after: bytes

    def diff(self, name: str) -> str:
        """The whole change as a unified diff."""
        return diff(self.before, self.after, name)

    def question(self, verb: str, workspace: Workspace) -> PermissionQuestion:
        name = shown(self.path, workspace)
        return PermissionQuestion(title=f"{verb} {name}?", text=self.diff(name), language="diff")

    def counts(self) -> str:
        """ "+3 -1": lines added and removed."""
        lines = self.diff("x").split("\n")[2:]
        added = sum(line.startswith("+") for line in lines)
        return f"+{added} -{sum(line.startswith('-') for line in lines)}"

    async def write(self, workspace: Workspace) -> None:
        """Journal the change and make it. Raises ToolFailure when the file has changed since
        `before` was read, or cannot be written."""
        try:
            made = [folder for folder in self.path.parents if not folder.exists()]
            self.path.parent.mkdir(parents=True, exist_ok=True)
            temporary = await _written_off_the_loop(self.path, self.after)
        except OSError as problem:
            raise ToolFailure(f"{self.path}: {problem.strerror or problem}") from None
        try:
            if current(self.path) != self.before:
                raise ToolFailure(f"{shown(self.path, workspace)} changed a moment ago; read it again")
            workspace.record_change(self.path, self.before, self.after)
            os.replace(temporary, self.path)
        except OSError as problem:
            raise ToolFailure(f"{self.path}: {problem.strerror or problem}") from None
        finally:
            temporary.unlink(missing_ok=True)
            for folder in made:
                if folder.is_dir() and not any(folder.iterdir()):
                    folder.rmdir()
        stamp = workspace.read_stamps.get(self.path, ReadStamp(""))
        workspace.read_stamps[self.path] = msgspec.structs.replace(stamp, digest=digest(self.after))


def current(path: Path) -> bytes | None:
    """The file's bytes, None when there is none. Raises ToolFailure."""
    if not path.exists():
        return None
    most = MOST_NOTEBOOK if path.suffix.lower() == ".ipynb" else MOST
    data, size = read_bytes(path, most + 1)
    if len(data) > most:
        raise ToolFailure(f"{path} has {size:,} bytes, too many to edit here; use python")
    return data


def known(path: Path, workspace: Workspace) -> bytes | None:
    """The file's bytes, checked to be those the model last read. Raises ToolFailure."""
    data = current(path)
    if data is None:
        return None
    name = shown(path, workspace)
    stamp = workspace.read_stamps.get(path)
    if stamp is None:
        raise ToolFailure(f"{name} exists and was not read in this session; call read_file first")
    if stamp.digest != digest(data):
        raise ToolFailure(f"{name} has changed since it was read; call read_file again")
    return data


def refuse_stand_in(new: str, before: str) -> None:
    """Raise ToolFailure for a text that holds what only stands for a secret, unless the file holds the same."""
    mark = next((mark for mark in stand_ins(new) if mark not in before), "")
    if mark:
        raise ToolFailure(
            f"{mark} only stands for a secret that you were not shown, and writing it would destroy the secret: "
            "leave what holds it as it is, and change the lines around it with edit_file"
        )


def left_out(new: str, before: str) -> str:
    """Why a new text is likely to lose what it replaces: it is shorter, and a line of it only says that the rest stays
    as it is ("# ... existing code ...", "<!-- rest unchanged -->"). "" when it is not."""
    if len(new) >= len(before):
        return ""
    old = Counter(line.strip() for line in _LINE_END.split(before) if line.strip())
    lines = [line.strip() for line in _LINE_END.split(new) if line.strip()]
    said = next((line for line in lines if len(line) <= 120 and line not in old and _stands_for_rest(line)), "")
    lost = (old - Counter(lines)).total()
    if not said or lost < LEAST_LOST:
        return ""
    return (
        f"its line {said[:80]!r} puts nothing back: {lost:,} of the {old.total():,} lines that are there now would be "
        "lost; edit_file changes a part and keeps the rest"
    )


def _stands_for_rest(line: str) -> bool:
    found = _COMMENT.fullmatch(line)
    if found is None:
        return False
    words = found["body"].strip(" .…-=*:,;!()[]{}")
    dots = "..." in line or "…" in line
    if not words:
        return dots and bool(found["mark"])  # a bare "..." is Python's
    return bool((_REST if dots else _REST_ALONE).fullmatch(words))


def written_beside(path: Path, data: bytes | Path) -> Path:
    """A new file in `path`'s folder with these bytes (of a file, given its path) on disk and `path`'s mode. Raises
    OSError."""
    temporary = path.with_name(f".{path.name[:100]}.{secrets.token_hex(6)}.tmp")
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0)
    descriptor = os.open(temporary, flags, 0o666)
    try:
        with os.fdopen(descriptor, "wb") as file:
            if isinstance(data, Path):
                with nofollow.reading(data) as source:
                    shutil.copyfileobj(source, file, PIECE)
            else:
                file.write(data)
            file.flush()
            os.fsync(descriptor)
        if path.exists():
            os.chmod(temporary, path.stat().st_mode & 0o7777)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    return temporary


async def _written_off_the_loop(path: Path, data: bytes) -> Path:
    """`written_beside`, on a thread: nobody knows how long a disk takes. A stop leaves no file behind."""
    writing = asyncio.ensure_future(asyncio.to_thread(written_beside, path, data))

    def remove(done: asyncio.Future[Path]) -> None:
        if not done.cancelled() and done.exception() is None:
            done.result().unlink(missing_ok=True)

    try:
        return await asyncio.shield(writing)
    except asyncio.CancelledError:
        writing.add_done_callback(remove)
        raise


def diff(before: bytes | None, after: bytes | None, name: str) -> str:
    """A unified diff of two contents; a carriage return is shown as ␍, one that ends a line alone as ␍⏎, so that a
    change of line ends alone is visible."""
    old, new = _lines(before), _lines(after)
    if old is None or new is None:
        return f"binary file {name}: {len(before or b''):,} bytes to {len(after or b''):,} bytes"
    source = "/dev/null" if before is None else f"a/{name}"
    target = "/dev/null" if after is None else f"b/{name}"
    lines = []
    for line in unified_diff(old, new, source, target):
        lines.append(line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n")
    text = "".join(lines)
    if text:
        return text
    return f"--- {source}\n+++ {target}\n(an empty file)\n" if before is None else "(no change)\n"


def _lines(data: bytes | None) -> list[str] | None:
    if data is None:
        return []
    decoded = decode(data)
    if decoded is None:
        return None
    text = decoded.text.replace("\r\n", "␍\n").replace("\r", "␍⏎\n")
    return [line + "\n" for line in text.split("\n")[:-1]] + ([last] if (last := text.rpartition("\n")[2]) else [])


# ---- Put files back as they were before the agent changed them: newest change first, and never over what someone
# else wrote since.

class Undone(NamedTuple):
    """`restored`: paths put back, as the events name them; `conflicts`: those left alone, each
    as "path: why"."""

    restored: tuple[str, ...]
    conflicts: tuple[str, ...]


def restore(changes: Sequence[FileChanged], root: Path, backups: Path) -> Undone:
    """Undo `changes` (oldest first, as in the journal) of files under `root`, from the copies in
    `backups`. A file is put back wholly or, when any step does not fit, left alone and named."""
    by_path: dict[str, list[FileChanged]] = {}
    for change in changes:
        by_path.setdefault(change.path, []).append(change)
    restored: list[str] = []
    conflicts: list[str] = []
    for path, steps in by_path.items():
        try:
            if _put_back(_inside(path, root), steps[::-1], backups):
                restored.append(path)
        except (ToolFailure, OSError) as problem:
            conflicts.append(f"{path} was left alone: {problem}")
    return Undone(tuple(restored), tuple(conflicts))


def _inside(path: str, root: Path) -> Path:
    # A transcript may come from elsewhere: what it names is checked as if it were hostile.
    base = root.resolve()
    target = (base / path).resolve()
    if not target.is_relative_to(base):
        raise ToolFailure("it is outside the project")
    if any(is_guarded(part) for part in target.relative_to(base).parts):
        raise ToolFailure("files in .git and .ipyagent are not written")
    return target


def _put_back(target: Path, steps: Sequence[FileChanged], backups: Path) -> bool:
    """Whether anything had to be written. `steps`: newest first."""
    now = mark = digest_of_file(target)
    for step in steps:
        if mark == step.digest and not step.begun:
            mark = step.backup
        elif mark != step.backup:  # equal: this change was journalled and then not made
            if step.begun:
                kept = backups / step.backup
                raise ToolFailure(f"code was changing it when it was cut off; as it was before it is kept as {kept}")
            raise ToolFailure("it has changed since")
    mode = steps[-1].mode
    if mark == now:
        if not mark or not mode or mode == stat.S_IMODE(target.stat().st_mode):
            return False
        target.chmod(mode)
        return True
    if not mark:
        target.unlink()
        return True
    file = _backup(mark, backups)
    target.parent.mkdir(parents=True, exist_ok=True)
    temporary = written_beside(target, file)
    try:
        if mode:
            temporary.chmod(mode)
        os.replace(temporary, target)
    finally:
        temporary.unlink(missing_ok=True)
    return True


def _backup(name: str, backups: Path) -> Path:
    file = backups / name
    if not file.resolve().is_relative_to(backups.resolve()):
        raise ToolFailure(f"its backup {name!r} is not among the session's backups")
    if not is_file(file):
        raise ToolFailure(f"its backup {name} is missing")
    if digest_of_file(file) != name:
        raise ToolFailure(f"its backup {name} was changed")
    return file


# ---- Copies of files that code is about to change, of any size.

PIECE = 1 << 20
"""Bytes that are read at a time."""


def digest_of_file(path: Path) -> str:
    """SHA-256 of a regular file in hexadecimal; "" when there is none. Raises ToolFailure for what is none."""
    try:
        if not stat.S_ISREG(path.stat().st_mode):
            raise ToolFailure(f"{path} is not a regular file")
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except (FileNotFoundError, NotADirectoryError):
        return ""


class Copy:
    """What a file was when this was made. It has a name of its own among the session's backups once it is kept."""

    def __init__(self, file: Path, state: os.stat_result | None = None, mode: int = 0) -> None:
        self._file, self._state = file, state
        self.mode = mode if state is None else stat.S_IMODE(state.st_mode)
        self._digest = ""

    def __repr__(self) -> str:
        return f"<Copy {self._file.name}>"

    @property
    def digest(self) -> str:
        if not self._digest:
            self._digest = digest_of_file(self._file)
        return self._digest

    def same(self, path: str) -> bool:
        """Whether the file is still as it was."""
        try:
            state = os.lstat(path)
        except OSError:
            return False
        known = self._state is not None and _stamp(state) == _stamp(self._state)
        return known or self.after(path) is None

    def after(self, path: str) -> str | None:
        """The digest of what is there now ("": nothing); None when content and mode are as they were."""
        try:
            now = digest_of_file(Path(path))
            same = now == self.digest and stat.S_IMODE(os.lstat(path).st_mode) == self.mode
        except (OSError, ToolFailure):
            return ""
        return None if same else now

    def keep(self) -> None:
        """Give it the name that `FileChanged.backup` says. Raises OSError."""
        kept = self._file.with_name(self.digest)
        if self._file != kept:
            with spot(self._file) as (name, at):
                os.replace(name, os.path.join(os.path.dirname(name), self.digest), src_dir_fd=at, dst_dir_fd=at)
            self._file = kept

    def discard(self) -> None:
        """It is not needed; one that is kept stays, for another change may be of the same content."""
        if self._file.name != self._digest:
            remove(self._file)


def _stamp(state: os.stat_result) -> tuple[int, ...]:
    return state.st_ino, state.st_size, state.st_mtime_ns, state.st_ctime_ns, state.st_mode


def copied(path: str, backups: Path) -> Copy:
    """A copy of a regular file beside the session's transcript. Raises OSError; then nothing is left."""
    file = backups / f".{secrets.token_hex(8)}.new"
    try:
        with open(path, "rb") as source:
            state = os.fstat(source.fileno())
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL
            with os.fdopen(nofollow.opened(file, flags, make=True), "wb") as target:
                shutil.copyfileobj(source, target, PIECE)
    except BaseException:
        with suppress(OSError):
            remove(file)
        raise
    return Copy(file, state)
