"""A change of one file, from the diff the user approves to the bytes on disk.

A change is made against the bytes that the model last read: when the file has others, at the
question or at the writing, it is refused. Writing is one step of the agent thread, with no await
between the last check, the journal and the replacement: a cancelled call has either written
everything or nothing."""

from __future__ import annotations

import asyncio
import codecs
import os
import re
import secrets
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from difflib import unified_diff
from pathlib import Path
from typing import NamedTuple

from ipyagent.errors import ToolFailure
from ipyagent.journal.events import FileChanged
from ipyagent.journal.protocols import PermissionQuestion, Workspace
from ipyagent.nofollow import is_file
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
            made = _missing(self.path.parent)
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
        workspace.read_stamps[self.path] = digest(self.after)


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
    if stamp != digest(data):
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


def written_beside(path: Path, data: bytes) -> Path:
    """A new file in `path`'s folder with these bytes on disk and `path`'s mode. Raises OSError."""
    temporary = path.with_name(f".{path.name[:100]}.{secrets.token_hex(6)}.tmp")
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0)
    descriptor = os.open(temporary, flags, 0o666)
    try:
        with os.fdopen(descriptor, "wb") as file:
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


def _missing(folder: Path) -> list[Path]:
    """Folders that do not exist yet, innermost first."""
    found = []
    while not folder.exists():
        found.append(folder)
        folder = folder.parent
    return found


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
    """Whether anything had to be written."""
    now = current(target)
    content = now
    for step in steps:
        before = _backup(step.backup, backups)
        mark = "" if content is None else digest(content)
        if mark == step.digest:
            content = before
        elif content != before:  # equal: this change was journalled and then not made
            raise ToolFailure("it has changed since")
    if content == now:
        return False
    if content is None:
        target.unlink()
        return True
    target.parent.mkdir(parents=True, exist_ok=True)
    temporary = written_beside(target, content)
    try:
        os.replace(temporary, target)
    finally:
        temporary.unlink(missing_ok=True)
    return True


def _backup(name: str, backups: Path) -> bytes | None:
    if not name:
        return None
    file = backups / name
    if not file.resolve().is_relative_to(backups.resolve()):
        raise ToolFailure(f"its backup {name!r} is not among the session's backups")
    if not is_file(file):
        raise ToolFailure(f"its backup {name} is missing")
    content = current(file)
    if content is None or digest(content) != name:
        raise ToolFailure(f"its backup {name} was changed")
    return content
