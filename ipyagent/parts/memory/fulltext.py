"""The words of one memory folder, held in this process; what was read of a file is kept in a SQLite file, a cache that
is derived from the files and never the truth.

Whatever is wrong with the cache (damaged, another version, written by nobody we know) it is made anew; where it cannot
be written, or another kernel holds it too long, this process goes on with what it holds."""

from __future__ import annotations

import contextlib
import logging
import os
import re
import sqlite3
import sys
import threading
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from difflib import get_close_matches
from functools import cache
from importlib.util import find_spec
from itertools import chain, count
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any

import msgspec

from ipyagent.nofollow import checked, opened, private_folder, remove
from ipyagent.parts.memory.metadata_index import Memory
from ipyagent.parts.memory.tokenizer import folded, stop, words

if TYPE_CHECKING:
    import numpy as np


VERSION = 2
"""Of tables and tokenizer: another number in the file has it made anew."""
MOST_BYTES = 64_000
"""Bytes of one memory that are indexed."""
LEADING = 2
"""First words of a description that name what it is about."""
ALIKE, MOST_ALIKE, ALIKE_LETTERS = 0.7, 3, 3
"""Of forms that stand for a word which no memory has: the least likeness (difflib), how many, first letters that are
the same."""
_WAIT = 0.25
"""Seconds to wait for another kernel that is writing."""
_LABEL = re.compile(r"^[ \t]*(?:[-*][ \t]+)?(?:\*\*)?(\w[^\n:：]{0,30}?)(?:\*\*)?[:：]", re.M)
_LABEL_CHARS = 400
"""Characters of a body that are looked through for labels ("Anna: likes …")."""
_ASKS = re.compile(r"[?？]\W*(?:\[[^\[\]\n]*\]\s*)?$")
_ASKS_CHARS = 200
"""Characters at a body's end that are looked at for a question."""
_TABLES = (
    "CREATE TABLE files "
    "(name TEXT PRIMARY KEY, modified REAL, size INTEGER, lead TEXT, body TEXT, asks INTEGER, vector BLOB)",
    "CREATE TABLE facts (name TEXT PRIMARY KEY, value TEXT)",
)
_SELECT = "SELECT name, modified, size, lead, body, asks FROM files"
_BUSY = ("locked", "busy")
"""In what SQLite says when another connection is writing."""

VectorsOf = Callable[[list[str]], list[bytes]]
"""From texts to one vector each, as it is stored."""


class Indexed(msgspec.Struct, frozen=True):
    """One memory's different words, first those that lead it (`leading` of them); whether it ends with a question."""

    words: tuple[str, ...]
    leading: int
    asks: bool


class FullText:
    """The index of the memories in `folder`, cached in the file `cache` (None: not at all)."""

    def __init__(self, folder: Path, cache: Path | None) -> None:
        self.folder = folder
        self.cache = cache
        self.memories: dict[int, Memory] = {}
        """What is indexed, by number."""
        self.changes = 0
        """Grows whenever what is indexed changes."""
        self._listed: list[Memory] = []
        self._indexed: dict[int, Indexed] = {}
        self._numbers: dict[str, int] = {}
        self._holding: dict[str, list[int]] = {}
        self._leading: dict[str, list[int]] = {}
        self._sorted: list[str] = []
        """All words in order, for the look for one alike; made when it is needed."""
        self._unsaved: dict[str, Memory] = {}
        self._next = count()
        self._db: sqlite3.Connection | None = None
        self._lock = threading.RLock()

    def __repr__(self) -> str:
        return f"<FullText of {len(self.memories)} memories in {self.folder.name}>"

    def close(self) -> None:
        with self._lock:
            if self._db is not None:
                self._db.close()
            self._db = None

    # ------------------------------------------------------------------ keeping it true

    def refresh(self, memories: Sequence[Memory]) -> None:
        """Index exactly these memories, reading only the files that changed since they were read for the cache."""
        with self._lock:
            if memories == self._listed:
                return
            listed = {memory.name: memory for memory in memories}
            kept, gone = dict[str, int](), set[int]()
            for name, number in self._numbers.items():
                if (new := listed.get(name)) is not None and _same(new, self.memories[number]):
                    kept[name] = number
                    self.memories[number] = new
                else:
                    gone.add(number)
            absent = [name for name in self._numbers if name not in listed]
            self._numbers = kept
            self._drop(gone)
            self._add([memory for name, memory in listed.items() if name not in kept], absent)
            self._listed, self._sorted = list(memories), []
            self.changes += 1

    def _drop(self, gone: set[int]) -> None:
        for places in (self._holding, self._leading):
            for word in {word for number in gone for word in self._indexed[number].words}:
                left = [number for number in places.get(word, ()) if number not in gone]
                if left:
                    places[word] = left
                else:
                    places.pop(word, None)
        for number in gone:
            del self._indexed[number], self.memories[number]

    def _add(self, new: list[Memory], absent: list[str]) -> None:
        known = self._cached(new, absent)
        for memory in new:
            found = known.get(memory.name)
            if found is None:
                text, body = self._text(memory)
                asks = bool(_ASKS.search(body[-_ASKS_CHARS:]))
                found = _indexed(_leading(memory, body), words(text), asks=asks)
                self._unsaved[memory.name] = memory
            number = next(self._next)
            self._numbers[memory.name] = number
            self.memories[number], self._indexed[number] = memory, found
            for at, word in enumerate(found.words):
                self._holding.setdefault(word, []).append(number)
                if at < found.leading:
                    self._leading.setdefault(word, []).append(number)
        self._save(absent)

    # ------------------------------------------------------------------ asking it

    def holding(self, word: str, *, leading: bool = False) -> Sequence[int]:
        """The numbers of the memories that hold a word, or that it leads."""
        return (self._leading if leading else self._holding).get(word, ())

    def of(self, number: int) -> Indexed:
        """The words of one memory."""
        return self._indexed[number]

    def number(self, memory: Memory) -> int:
        """The number of a memory; -1 for one that is not indexed here."""
        number = self._numbers.get(memory.name, -1)
        return number if self.memories.get(number) is memory else -1

    def alike(self, word: str) -> list[str]:
        """Words of the memories that may be meant by one that none of them has: other forms, slips of the pen."""
        if len(word) <= ALIKE_LETTERS or not word.isalpha():
            return []
        same = self._beginning(word[:ALIKE_LETTERS])
        near = [each for each in same if each.isalpha() and len(each) <= 2 * len(word)]
        return get_close_matches(word, near, MOST_ALIKE, ALIKE)

    def worded(self, form: str) -> list[str]:
        """Words of the memories that are this form; where it ends in "*", those that begin so."""
        if form.endswith("*"):
            return self._beginning(form[:-1])
        found = words(form)
        telling = [word for word in found if len(word) > 1] if len(found) > 1 else found
        return telling if all(word in self._holding for word in telling) else []

    def _beginning(self, start: str) -> list[str]:
        with self._lock:
            if not self._sorted:
                self._sorted = sorted(self._holding)
            found = self._sorted
        return found[bisect_left(found, start) : bisect_right(found, start + "\U0010ffff")]

    # ------------------------------------------------------------------ vectors

    def vectors(self, kind: str, made: VectorsOf) -> dict[int, bytes]:
        """The vectors of all memories; those that are missing, or of another kind, are made by `made`."""
        with self._lock:
            found: dict[int, bytes] = {}
            with contextlib.suppress(sqlite3.Error):  # what is not kept is made again
                db = self._open()
                if db.execute("SELECT value FROM facts WHERE name = 'vectors'").fetchone() == (kind,):
                    for name, vector in db.execute("SELECT name, vector FROM files WHERE vector IS NOT NULL"):
                        if name in self._numbers and isinstance(vector, bytes):
                            found[self._numbers[name]] = vector
                else:
                    with _writing(db):
                        db.execute("UPDATE files SET vector = NULL")
                        db.execute("INSERT OR REPLACE INTO facts VALUES ('vectors', ?)", (kind,))
            missing = [number for number in self.memories if number not in found]
            if missing:
                texts = [self._text(self.memories[number])[0] for number in missing]
                new = dict(zip(missing, made(texts), strict=True))
                found |= new
                rows = [(vector, self.memories[number].name) for number, vector in new.items()]
                with contextlib.suppress(sqlite3.Error):
                    db = self._open()
                    with _writing(db):
                        db.executemany("UPDATE files SET vector = ? WHERE name = ?", rows)
            return found

    # ------------------------------------------------------------------ the files

    def _text(self, memory: Memory) -> tuple[str, str]:
        """What is indexed of a memory, its title, description and body, and the body; of the first MOST_BYTES of its
        file, nothing of one that has gone."""
        body = ""
        with contextlib.suppress(OSError), (self.folder / memory.name).open("rb") as file:
            body = body_of(file.read(MOST_BYTES).decode("utf-8", "replace"))
        return "\n".join(part for part in (memory.title, memory.description, body) if part), body

    def _cached(self, new: Sequence[Memory], absent: list[str]) -> dict[str, Indexed]:
        """What the cache knows of these memories as they are now; names that it alone knows go to `absent`."""
        wanted = {memory.name: memory for memory in new}
        found: dict[str, Indexed] = {}
        try:
            db = self._open()
            few = len(wanted) < 100
            rows = (
                chain.from_iterable(db.execute(f"{_SELECT} WHERE name = ?", (name,)) for name in wanted)
                if few else db.execute(_SELECT)
            )  # fmt: skip
            for name, modified, size, lead, body, asks in rows:
                memory = wanted.get(name)
                sound = isinstance(lead, str) and isinstance(body, str) and isinstance(asks, int)
                if sound and memory is not None and (modified, size) == (memory.modified, memory.size):
                    found[name] = _indexed(lead.split(), body.split(), asks=bool(asks))
                elif memory is None and name not in self._numbers:
                    absent.append(name)
        except sqlite3.Error as problem:
            self._remake(problem)
        return found

    def _save(self, absent: Iterable[str]) -> None:
        """Bring the cache up to date. What another kernel's writing holds up is tried again with the next change."""
        if not absent and not self._unsaved:
            return
        try:
            db = self._open()
            with _writing(db):
                db.executemany("DELETE FROM files WHERE name = ?", [(name,) for name in absent])
                for name, memory in self._unsaved.items():
                    if name in self._numbers:
                        found = self._indexed[self._numbers[name]]
                        lead, body = " ".join(found.words[: found.leading]), " ".join(found.words[found.leading :])
                        row = (name, memory.modified, memory.size, lead, body, found.asks)
                        db.execute("INSERT OR REPLACE INTO files VALUES (?, ?, ?, ?, ?, ?, NULL)", row)
            self._unsaved = {}
        except sqlite3.Error as problem:
            self._remake(problem)

    def _open(self) -> sqlite3.Connection:
        if self._db is None:
            self._db = self._opened()
        return self._db

    def _opened(self) -> sqlite3.Connection:
        if self.cache is not None:
            for _ in range(2):
                try:
                    return connected(self.cache, VERSION, _TABLES, wait=_WAIT)
                except (sqlite3.Error, OSError):
                    if not _removed(self.cache):
                        break
            self.cache = None  # it can neither be used nor removed: this process keeps its own
        return connected(None, VERSION, _TABLES, wait=_WAIT)

    def _remake(self, problem: sqlite3.Error) -> None:
        """Give up a file that is damaged; the next change begins a new one, with all that is known."""
        if self._db is None or any(word in str(problem) for word in _BUSY):
            return
        self._db.close()
        self._db = None
        if self.cache is not None and not _removed(self.cache):
            self.cache = None
        self._unsaved = {memory.name: memory for memory in self.memories.values()}


def _same(one: Memory, other: Memory) -> bool:
    return one is other or all(
        getattr(one, name) == getattr(other, name) for name in ("modified", "size", "title", "description")
    )


def _indexed(lead: Sequence[str], body: Iterable[str], *, asks: bool) -> Indexed:
    every = dict.fromkeys(map(sys.intern, chain(lead, body)))
    return Indexed(tuple(every), len(lead), asks)


@contextlib.contextmanager
def _writing(db: sqlite3.Connection) -> Iterator[None]:
    db.execute("BEGIN IMMEDIATE")
    try:
        yield
    except BaseException:
        with contextlib.suppress(sqlite3.Error):
            db.execute("ROLLBACK")
        raise
    db.execute("COMMIT")


def body_of(text: str) -> str:
    """A memory's text without its frontmatter."""
    text = text.removeprefix("\ufeff")
    if text.startswith("---"):
        end = re.search(r"^(?:---|\.\.\.)[ \t]*\r?$\n?", text[3:], re.M)
        if end is not None:
            return text[3 + end.end() :]
    return text


def _leading(memory: Memory, body: str) -> list[str]:
    """Words that name what a memory is about: its title and file name, the first words of its description or
    text, what stands before a colon."""
    body = body.lstrip()[:_LABEL_CHARS]
    told = [words(memory.title), words(memory.name.removesuffix(".md").replace("/", " "))]
    told += [words(text[:100])[:LEADING] for text in (memory.description, body) if text]
    told += [words(label) for label in _LABEL.findall(body) if len(label.split()) <= 3]
    return list(dict.fromkeys(word for part in told for word in part))


SUFFIXES = ("-wal", "-shm", "-journal")
"""Of the files that SQLite keeps beside its own."""


def connected(
    path: Path | None, version: int, tables: Iterable[str], *, wait: float, lasting: bool = True
) -> sqlite3.Connection:
    """An index that is ours to use, its `tables` made for this version where it is new; None: in memory. `wait` so
    many seconds for another kernel that writes; `lasting`: others read while one writes. Raises sqlite3.Error, OSError
    for a file that is none."""
    if path is not None:
        private_folder(path.parent)
        os.close(opened(path, os.O_RDWR | os.O_CREAT))
        for suffix in SUFFIXES:
            checked(path.with_name(path.name + suffix))
    db = sqlite3.connect(
        ":memory:" if path is None else path, timeout=wait, isolation_level=None, check_same_thread=False
    )
    try:
        db.execute("PRAGMA trusted_schema = OFF")  # the file may have come with the project
        if path is not None and lasting:
            db.execute("PRAGMA journal_mode = WAL")
        db.execute("PRAGMA synchronous = OFF")  # a crash costs a cache
        db.execute("PRAGMA cache_size = -4000")
        found = db.execute("PRAGMA user_version").fetchone()[0]
        if found == 0:
            db.execute("BEGIN IMMEDIATE")
            if db.execute("PRAGMA user_version").fetchone()[0] == 0:  # else another kernel was first
                for statement in tables:
                    db.execute(statement)
                db.execute(f"PRAGMA user_version = {version}")
            db.execute("COMMIT")
        elif found != version:
            raise sqlite3.DatabaseError(f"an index of version {found}")
    except BaseException:
        db.close()
        raise
    return db


def _removed(path: Path) -> bool:
    """Remove the file with what SQLite keeps beside it; whether it is gone."""
    try:
        for suffix in ("", *SUFFIXES):
            remove(path.with_name(path.name + suffix))
    except OSError:
        return False
    return True


# ---- Vectors for memories, where the `embeddings` extra is installed: a static model that its package carries.
# wordllama was taken since its weights (16 MB) come with it, it needs no torch and no network, and a text takes a
# tenth of a millisecond. It knows words of the Latin script; of other scripts its vectors tell no more than the
# script. Without it ranking goes on by words alone.

KIND = "wordllama l2_supercat 256"
"""Names the vectors that are kept; those of another kind are made anew."""
MOST_CHARS = 4_000
"""Characters of a text that its vector is made of."""
DRAWN = 0.5
"""How far a query's vector moves towards those of the best memories by words."""

_lock = Lock()


class Embedder:
    """Texts as unit vectors of 256 numbers. Made by `load`."""

    def __init__(self, model: Any) -> None:
        self._model = model

    def embed(self, texts: list[str]) -> np.ndarray[Any, Any]:
        """One row a text, float32."""
        return self._model.embed([text[:MOST_CHARS] or " " for text in texts], norm=True)  # type: ignore[no-any-return] # untyped

    def stored(self, texts: list[str]) -> list[bytes]:
        """The same as they are kept: half precision, 512 bytes each."""
        return [row.tobytes() for row in self.embed(texts).astype("float16")]


def understands(text: str) -> bool:
    """Whether the vector of a text tells what it says: most of its letters are Latin."""
    letters = [letter for letter in text[:MOST_CHARS] if letter.isalpha()]
    return 2 * sum(letter < "\u0250" for letter in letters) >= len(letters) > 0


def available() -> bool:
    """Whether the extra is installed; nothing is loaded."""
    return find_spec("wordllama") is not None


def load() -> Embedder | None:
    """The model, loaded once a process (half a second); None without the extra or when it is broken."""
    with _lock:
        return _load()


def loaded() -> Embedder | None:
    """The model if it has been loaded already."""
    return _load() if _load.cache_info().currsize else None


@cache
def _load() -> Embedder | None:
    spec = find_spec("wordllama")
    if spec is None or spec.origin is None:
        return None
    # it sets up logging for the whole process, which is the user's: with a handler there that does nothing, not
    # even lines that other threads log meanwhile come out
    root, mute = logging.getLogger(), logging.NullHandler()
    level, handlers = root.level, list(root.handlers)
    root.addHandler(mute)
    try:
        from wordllama import WordLlama

        model = WordLlama.load(cache_dir=Path(spec.origin).parent, disable_download=True)
    except (ImportError, OSError, ValueError, RuntimeError):
        return None  # an incomplete installation: as if it were not there
    finally:
        root.setLevel(level)
        for handler in [handler for handler in root.handlers if handler not in handlers]:
            root.removeHandler(handler)
    return Embedder(model)


class Vectors:
    """The vectors of one index, in memory as long as it does not change."""

    def __init__(self, index: FullText) -> None:
        self._index = index
        self._state = -1
        self._numbers: list[int] = []
        self._rows_of: dict[int, int] = {}
        self._rows: Any = None
        self._mean: Any = None

    def like(
        self, embedder: Embedder, query: str, toward: Sequence[Memory] = (), most: int = 1_000
    ) -> list[tuple[Memory, float]]:
        """The memories that are most like the query, best first, with the cosine of their vector and its, both without
        what all have in common; the query's is drawn towards those of the memories `toward`."""
        import numpy as np

        index = self._index
        if self._state != index.changes:
            stored = index.vectors(KIND, embedder.stored)
            self._numbers, self._state = list(stored), index.changes
            self._rows_of = {number: row for row, number in enumerate(self._numbers)}
            if not stored:
                return []
            rows = np.frombuffer(b"".join(stored.values()), dtype="float16").reshape(len(stored), -1).astype("float32")
            # of few rows a part of their mean: it is mostly their own
            self._mean = rows.mean(axis=0) * (len(rows) / (len(rows) + 20))
            self._rows = _unit(rows - self._mean)
        if not self._numbers:
            return []
        telling = " ".join(word for word in query.split() if not set(words(folded(word))) <= stop())
        asked = _unit(embedder.embed([telling or query]) - self._mean)[0]
        near = [self._rows_of[number] for memory in toward if (number := index.number(memory)) in self._rows_of]
        if near:
            asked = _unit((asked + DRAWN * self._rows[near].mean(axis=0))[None])[0]
        likeness = self._rows @ asked
        first = np.argpartition(-likeness, min(most, len(likeness)) - 1)[:most]
        best = first[np.argsort(-likeness[first], kind="stable")].tolist()
        return [(index.memories[self._numbers[row]], float(likeness[row])) for row in best]


def _unit(rows: Any) -> Any:
    import numpy as np

    lengths = np.linalg.norm(rows, axis=1, keepdims=True)
    return rows / np.maximum(lengths, 1e-9)


