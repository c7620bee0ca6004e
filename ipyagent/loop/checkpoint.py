"""What a session's events add up to, kept beside the transcript so that resuming it does not read its past.

A derived cache: it is believed only if this user's own key signed it for this session, this version of the code and
this very transcript, and is made again otherwise. What is read of the file before that is its length and its header.
"""

from __future__ import annotations

import gc
import io
import os
import pickle
import secrets
import shutil
import sys
import time
import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from hashlib import blake2b, sha256
from pathlib import Path
from typing import Any, BinaryIO

import msgspec

from ipyagent.errors import AgentError
from ipyagent.journal.events import Event, ModelChosen, Streamed, ThinkingDropped
from ipyagent.journal.journal import TRANSCRIPT, Problem, Start
from ipyagent.journal.view import ContextView
from ipyagent.loop.cache_monitor import CacheWatch
from ipyagent.loop.session_state import Folded, SessionState
from ipyagent.nofollow import names, opened, reading, remove, spot
from ipyagent.project import user_folder
from ipyagent.trust import is_signed, signature
from ipyagent.version import __version__

CHECKPOINT = "checkpoint"
"""File beside a transcript."""
TAIL = 2_000_000
"""Bytes of a transcript that are read again rather than kept: about 0.1 s."""
SHARE = 8
"""While a session is at work, a checkpoint is made when its transcript has grown by one part in so many."""
ROOM = 4
"""How many times the transcript's size must be free on the disk, so that a cache never takes the journal's place."""
_HEADER = 4_096
_PIECE = 1 << 20
_PURPOSE = "checkpoint"
_PACKAGES = ("context", "journal", "loop", "model", "parts/memory", "parts/pins", "parts/plan", "parts/skills")
"""Where the classes are whose objects are kept."""
_OTHERS = {
    ("array", "_array_reconstructor"), ("array", "array"), ("builtins", "frozenset"), ("builtins", "set"),
    ("collections", "deque"), ("msgspec._utils", "rebuild"), ("time", "time"),
}  # fmt: skip


class Replayed:
    """A session's state after some of its events; `apply` adds one more."""

    def __init__(
        self,
        *,
        damaged: bool = False,
        clock: Callable[[], float] = time.time,
        folded: Iterable[type[Folded]] = (),
    ) -> None:
        self.view, self.history, self.watch = ContextView(), SessionState(folded), CacheWatch(clock)
        self.chosen = ModelChosen(model="")
        self.damaged = damaged
        """Whether events are missing since thinking was last dropped: what thinking follows is not what was signed."""
        self.last: Event | None = None
        self.newest = 0
        """The highest id of an event."""
        self.problems: list[Problem] = []
        """What was wrong with the transcript when it was opened."""
        self.whole = True
        """Whether every event of the transcript was applied."""

    def __getstate__(self) -> dict[str, Any]:
        told = [(each.line, each.what, each.torn, each.altered) for each in self.problems]  # it may be elsewhere then
        return {**self.__dict__, "problems": told}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self.problems = [Problem(Path(TRANSCRIPT), *each) for each in state["problems"]]

    def apply(self, event: Event, *, altered: bool = False) -> None:
        """Take in the next event; `altered`: it is not as it was written."""
        before = self.last.id if self.last is not None else 0
        self.damaged |= altered or event.parent != before
        self.damaged &= not (isinstance(event, ThinkingDropped) and event.upto >= before)
        self.last, self.newest = event, max(self.newest, event.id)
        self.view.apply(event)
        if isinstance(event, Streamed):  # most events are: what is shown of a reply before it is there counts nowhere
            return
        self.history.apply(event)
        self.watch.apply(event)
        self.chosen = event if isinstance(event, ModelChosen) else self.chosen


class _Header(msgspec.Struct, frozen=True):
    """The last line of a checkpoint. `size` and `digest` are of what stands before it; `file` tells the transcript as
    it was then: device, inode, size, times of change in ns; `checksum` is of its first `offset` bytes."""

    session: str
    code: str
    size: int
    digest: str
    offset: int
    line: int
    file: tuple[int, ...]
    checksum: int
    signed: str = ""

    def content(self) -> bytes:
        """What is signed."""
        return msgspec.json.encode(msgspec.structs.replace(self, signed=""))


class Moved(Exception):
    """The session went on while its state was being written."""


class _Unpickler(pickle.Unpickler):
    """Knows the package's own classes only, and nothing that they import."""

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) in _OTHERS:
            return super().find_class(module, name)
        if module.split(".")[0] == "ipyagent" and "." not in name:
            found = super().find_class(module, name)
            if isinstance(found, type) and found.__module__ == module:
                return found
        raise pickle.UnpicklingError(f"{module}.{name}")


class _Payload:
    """Writes what is pickled, and looks at each piece whether it is still the state of one moment."""

    def __init__(self, file: BinaryIO, check: Callable[[], None]) -> None:
        self._file, self._check = file, check
        self._hash = blake2b()
        self.size = 0

    def write(self, piece: Any) -> int:
        self._check()
        size = memoryview(piece).nbytes
        self._hash.update(piece)
        self._file.write(piece)
        self.size += size
        return size

    def digest(self) -> str:
        return self._hash.hexdigest()


class _Prefix(msgspec.Struct, frozen=True):
    """The beginning of a transcript: its bytes, lines and checksum."""

    offset: int = 0
    line: int = 0
    checksum: int = 0

    def on(self, path: Path, offset: int, check: Callable[[], None]) -> _Prefix:
        """The same up to `offset`, reading what is new only."""
        line, checksum, left = self.line, self.checksum, offset - self.offset
        with reading(path) as file:
            file.seek(self.offset)
            while left > 0 and (piece := file.read(min(left, _PIECE))):
                check()
                line, checksum, left = line + piece.count(b"\n"), zlib.crc32(piece, checksum), left - len(piece)
        if left:
            raise Moved
        return _Prefix(offset, line, checksum)


class Checkpoint:
    """The checkpoint of the session in one folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._path, self._transcript = folder / CHECKPOINT, folder / TRANSCRIPT
        self._prefix = _Prefix()
        """What the newest checkpoint covers."""

    def __repr__(self) -> str:
        return f"<Checkpoint of {self._prefix.offset:,} bytes>"

    def due(self, size: int, *, closing: bool = False) -> bool:
        """Whether a transcript of so many bytes has grown enough to be kept anew."""
        grown = size - self._prefix.offset
        return grown > TAIL and (closing or grown > size // SHARE)

    def load(self) -> tuple[Replayed, Start] | None:
        """The state that is kept and where reading goes on; None when there is none that is to be believed."""
        try:
            with reading(self._path) as file:
                header = self._header(file)
                if header is None or not self._covers(header):
                    return None
                file.seek(0)
                content = file.read(header.size)  # a copy of our own, which nobody can change after the check
            if blake2b(content).hexdigest() != header.digest:
                return None
            with _no_collection():
                made = _Unpickler(io.BytesIO(content)).load()
        except (OSError, AgentError, ValueError, TypeError, AttributeError, LookupError, ImportError, EOFError,
                msgspec.MsgspecError, pickle.PickleError):  # fmt: skip
            return None
        if not isinstance(made, Replayed) or made.last is None:
            return None
        made.problems = [msgspec.structs.replace(each, path=self._transcript) for each in made.problems]
        for name in names(self._folder):
            if name.startswith(f".{CHECKPOINT}."):  # a process that ended in mid-write left it
                with suppress(OSError):
                    remove(self._folder / name)
        self._prefix = _Prefix(header.offset, header.line, header.checksum)
        return made, Start(header.offset, header.line, made.last, made.newest)

    def _header(self, file: BinaryIO) -> _Header | None:
        size = os.fstat(file.fileno()).st_size
        file.seek(max(0, size - _HEADER))
        line = file.read(_HEADER).rpartition(b"\n")[2]
        header = msgspec.json.decode(line, type=_Header)
        whole = header.size + 1 + len(line) == size
        mine = header.session == self._folder.name and header.code == _code()
        signed = whole and mine and is_signed(user_folder(), _PURPOSE, header.content(), header.signed)
        return header if signed else None

    def _covers(self, header: _Header) -> bool:
        """Whether the transcript begins with what was kept of it: its file has not changed since, or it is read."""
        if _file(self._transcript) == header.file:
            return True
        try:
            found = _Prefix().on(self._transcript, header.offset, lambda: None)
        except Moved:
            return False
        return found == _Prefix(header.offset, header.line, header.checksum)

    def save(self, state: Replayed, size: int, check: Callable[[], None]) -> bool:
        """Keep the state after the first `size` bytes of the transcript; whether that was done. `check` raises Moved
        when the session has gone on. Takes about a second for 100 MB, most of it without holding up other threads."""
        try:
            if shutil.disk_usage(self._folder).free < ROOM * size or not state.whole:
                return False
            prefix = self._prefix.on(self._transcript, size, check)
            with self._replaced() as file:
                payload = _Payload(file, check)
                pickle.Pickler(payload, pickle.HIGHEST_PROTOCOL).dump(state)
                check()
                header = _Header(
                    session=self._folder.name, code=_code(), size=payload.size, digest=payload.digest(),
                    offset=prefix.offset, line=prefix.line, file=_file(self._transcript), checksum=prefix.checksum,
                )  # fmt: skip
                signed = signature(user_folder(), _PURPOSE, header.content())
                file.write(b"\n" + msgspec.json.encode(msgspec.structs.replace(header, signed=signed)))
                check()
        except Moved:
            return False
        except (OSError, AgentError, RuntimeError, pickle.PickleError):
            # a full disk, no place for a key, a dict that grew meanwhile: the past is read again, that is all
            return False
        self._prefix = prefix
        return True

    @contextmanager
    def _replaced(self) -> Iterator[BinaryIO]:
        """A file that takes the place of the checkpoint in one step. It is not synced: a half one is not believed."""
        part = self._folder / f".{CHECKPOINT}.{secrets.token_hex(6)}"
        try:
            with os.fdopen(opened(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL), "wb", buffering=_PIECE) as file:
                yield file
            with spot(part) as old, spot(self._path) as new:
                os.replace(old.name, new.name, src_dir_fd=old.at, dst_dir_fd=new.at)
        except BaseException:
            with suppress(OSError):
                remove(part)
            raise


@contextmanager
def _no_collection() -> Iterator[None]:
    """Without the search for cycles, which a million new objects would have made a hundred times."""
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()


def _file(path: Path) -> tuple[int, ...]:
    """What tells whether a file was changed since, also where its time of change was set back."""
    with reading(path) as file:
        found = os.fstat(file.fileno())
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns


def _code() -> str:
    """Tells one version of the code from another, also one that was edited in place."""
    root = Path(__file__).parents[1]
    told = [__version__, sys.version, msgspec.__version__]
    for package in _PACKAGES:
        with os.scandir(root / package) as found:
            for entry in sorted((each for each in found if each.name.endswith(".py")), key=lambda each: each.name):
                state = entry.stat()
                told.append(f"{package}/{entry.name} {state.st_size} {state.st_mtime_ns}")
    return sha256("\n".join(told).encode()).hexdigest()
