"""The words of one memory folder in SQLite FTS5: a cache that is derived from the files and never the truth.

Whatever is wrong with it (damaged, another version, written by nobody we know) it is made anew; where it
cannot be written, or another kernel holds it too long, the index lives in this process's memory.
"""

from __future__ import annotations

import contextlib
import os
import re
import sqlite3
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

from ipyagent.memory.scan import Memory
from ipyagent.memory.words import words
from ipyagent.nofollow import checked, opened, private_folder, remove

VERSION = 1
"""Of tables and tokenizer: another number in the file has it made anew."""
MOST_BYTES = 64_000
"""Bytes of one memory that are indexed."""
LEADING = 2
"""First words of a description that name what it is about."""
_WAIT = 0.25
"""Seconds to wait for another kernel that is writing."""
_LABEL = re.compile(r"^[ \t]*(?:[-*][ \t]+)?(?:\*\*)?(\w[^\n:：]{0,30}?)(?:\*\*)?[:：]", re.M)
_LABEL_CHARS = 400
"""Characters of a body that are looked through for labels ("Anna: likes …")."""
_TABLES = """
CREATE TABLE files (id INTEGER PRIMARY KEY, name TEXT UNIQUE, modified REAL, size INTEGER, length INTEGER);
CREATE VIRTUAL TABLE terms USING fts5(lead, body, tokenize = 'unicode61', detail = 'column');
CREATE TABLE vectors (id INTEGER PRIMARY KEY, vector BLOB);
CREATE TABLE facts (name TEXT PRIMARY KEY, value TEXT);
"""

Vectors = Callable[[list[str]], list[bytes]]
"""From texts to one vector each, as it is stored."""


class FullText:
    """The index of the memories in `folder`, kept in the file `cache` (None: in memory only)."""

    def __init__(self, folder: Path, cache: Path | None) -> None:
        self.folder = folder
        self.cache = cache
        self.memories: dict[int, Memory] = {}
        """What is indexed, by number."""
        self.lengths: dict[int, int] = {}
        """How many words each has."""
        self.changes = 0
        """Grows whenever what is indexed changes."""
        self._listed: list[Memory] = []
        self._seen = -1
        self._db: sqlite3.Connection | None = None
        self._lock = threading.RLock()

    def __repr__(self) -> str:
        return f"<FullText of {len(self.memories)} memories in {self.folder.name}>"

    def close(self) -> None:
        """Let go of the file."""
        with self._lock:
            if self._db is not None:
                self._db.close()
            self._db, self._listed, self._seen = None, [], -1

    # ------------------------------------------------------------------ keeping it true

    def refresh(self, memories: Sequence[Memory]) -> None:
        """Index exactly these memories, reading only the files that changed since they were indexed."""
        with self._lock:
            try:
                self._refresh(list(memories))
            except sqlite3.Error:
                self._remake()
                self._refresh(list(memories))

    def _refresh(self, memories: list[Memory]) -> None:
        db = self._open()
        version = db.execute("PRAGMA data_version").fetchone()[0]
        if memories == self._listed and version == self._seen:
            return
        known = {row[0]: row[1:] for row in db.execute("SELECT name, id, modified, size, length FROM files")}
        listed = {memory.name: memory for memory in memories}
        gone = [row[0] for name, row in known.items() if name not in listed]
        stale = [
            memory
            for memory in memories
            if (row := known.get(memory.name)) is None or row[1] != memory.modified or row[2] != memory.size
        ]
        if gone or stale:
            with self._writing(db):
                self._write(db, gone, stale)
            known = {row[0]: row[1:] for row in db.execute("SELECT name, id, modified, size, length FROM files")}
        self.memories = {row[0]: listed[name] for name, row in known.items() if name in listed}
        self.lengths = {row[0]: row[3] for name, row in known.items() if name in listed}
        self._listed, self._seen = memories, db.execute("PRAGMA data_version").fetchone()[0]
        self.changes += 1

    def _write(self, db: sqlite3.Connection, gone: Iterable[int], stale: Iterable[Memory]) -> None:
        for number in gone:
            self._forget(db, number)
        for memory in stale:
            before = db.execute("SELECT id FROM files WHERE name = ?", (memory.name,)).fetchone()
            if before is not None:
                self._forget(db, before[0])
            body = body_of(read_start(self.folder, memory))
            lead = " ".join(_leading(memory, body))
            found = words(_joined(memory, body))
            added = db.execute(
                "INSERT INTO files (name, modified, size, length) VALUES (?, ?, ?, ?)",
                (memory.name, memory.modified, memory.size, len(found)),
            ).lastrowid
            db.execute("INSERT INTO terms (rowid, lead, body) VALUES (?, ?, ?)", (added, lead, " ".join(found)))

    @staticmethod
    def _forget(db: sqlite3.Connection, number: int) -> None:
        for table, key in (("terms", "rowid"), ("vectors", "id"), ("files", "id")):
            db.execute(f"DELETE FROM {table} WHERE {key} = ?", (number,))

    # ------------------------------------------------------------------ asking it

    def holding(self, word: str, *, leading: bool = False) -> list[int]:
        """The numbers of the memories that hold a word, or that it leads, in no order."""
        match = f'{"lead : " if leading else ""}"{word}"'
        with self._lock:
            try:
                rows = self._open().execute("SELECT rowid FROM terms WHERE terms MATCH ?", (match,)).fetchall()
            except sqlite3.Error:
                self._remake()
                self._refresh(self._listed)
                rows = self._open().execute("SELECT rowid FROM terms WHERE terms MATCH ?", (match,)).fetchall()
        known = self.memories
        return [number for (number,) in rows if number in known]

    def vectors(self, kind: str, made: Vectors) -> dict[int, bytes]:
        """The vectors of all memories; those that are missing, or of another kind, are made by `made`."""
        with self._lock:
            db = self._open()
            stored = db.execute("SELECT value FROM facts WHERE name = 'vectors'").fetchone()
            found: dict[int, bytes] = {}
            if stored is not None and stored[0] == kind:
                rows = db.execute("SELECT id, vector FROM vectors")
                found = {number: vector for number, vector in rows if number in self.memories}
            missing = [number for number in self.memories if number not in found]
            if missing:
                texts = [text_of(self.folder, self.memories[number]) for number in missing]
                new = dict(zip(missing, made(texts), strict=True))
                found |= new
                with contextlib.suppress(sqlite3.Error), self._writing(db):  # what is not kept is made again
                    if stored is None or stored[0] != kind:
                        db.execute("DELETE FROM vectors")
                        db.execute("INSERT OR REPLACE INTO facts VALUES ('vectors', ?)", (kind,))
                    db.executemany("INSERT OR REPLACE INTO vectors VALUES (?, ?)", new.items())
            return found

    # ------------------------------------------------------------------ the file

    def _open(self) -> sqlite3.Connection:
        if self._db is None:
            self._db = self._opened()
        return self._db

    def _opened(self) -> sqlite3.Connection:
        if self.cache is not None:
            for _ in range(2):
                try:
                    return _connected(self.cache)
                except (sqlite3.Error, OSError):
                    if not _removed(self.cache):
                        break
        return _connected(None)

    def _remake(self) -> None:
        """Give up what there is: a new file, or, where even that is no good, none."""
        path = self.cache
        busy = self._db is not None and path is not None and _is_sound(path)
        if self._db is not None:
            self._db.close()
        self._db, self._seen = None, -1
        if path is not None and (busy or not _removed(path)):
            self.cache = None  # another kernel holds it, or it cannot be removed: this process keeps its own

    @contextlib.contextmanager
    def _writing(self, db: sqlite3.Connection) -> Iterator[None]:
        db.execute("BEGIN IMMEDIATE")
        try:
            yield
        except BaseException:
            with contextlib.suppress(sqlite3.Error):
                db.execute("ROLLBACK")
            raise
        db.execute("COMMIT")


def text_of(folder: Path, memory: Memory) -> str:
    """What is indexed of a memory: title, description and body."""
    return _joined(memory, body_of(read_start(folder, memory)))


def _joined(memory: Memory, body: str) -> str:
    return "\n".join(part for part in (memory.title, memory.description, body) if part)


def read_start(folder: Path, memory: Memory) -> str:
    """The first MOST_BYTES of a memory's file; "" when it has gone."""
    try:
        with (folder / memory.name).open("rb") as file:
            return file.read(MOST_BYTES).decode("utf-8", "replace")
    except OSError:
        return ""


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


def _connected(path: Path | None) -> sqlite3.Connection:
    """An index that is ours to use. Raises sqlite3.Error, OSError for a file that is none."""
    if path is not None:
        private_folder(path.parent)
        os.close(opened(path, os.O_RDWR | os.O_CREAT))
        for suffix in SUFFIXES:
            checked(path.with_name(path.name + suffix))
    db = sqlite3.connect(
        ":memory:" if path is None else path, timeout=_WAIT, isolation_level=None, check_same_thread=False
    )
    try:
        db.execute("PRAGMA trusted_schema = OFF")  # the file may have come with the project
        if path is not None:
            db.execute("PRAGMA journal_mode = WAL")
        db.execute("PRAGMA synchronous = OFF")  # a crash costs a cache
        db.execute("PRAGMA cache_size = -4000")
        version = db.execute("PRAGMA user_version").fetchone()[0]
        if version == 0:
            db.execute("BEGIN IMMEDIATE")
            if db.execute("PRAGMA user_version").fetchone()[0] == 0:  # else another kernel was first
                for statement in _TABLES.strip().split(";\n"):
                    db.execute(statement)
                db.execute(f"PRAGMA user_version = {VERSION}")
            db.execute("COMMIT")
        elif version != VERSION:
            raise sqlite3.DatabaseError(f"an index of version {version}")
        files, terms = (db.execute(f"SELECT count(*) FROM {table}").fetchone()[0] for table in ("files", "terms"))
        if files != terms:
            raise sqlite3.DatabaseError("the tables do not agree")
    except BaseException:
        db.close()
        raise
    return db


def _is_sound(path: Path) -> bool:
    """Whether another connection finds nothing wrong with the file."""
    try:
        with contextlib.closing(sqlite3.connect(path, timeout=_WAIT)) as db:
            return bool(db.execute("PRAGMA quick_check").fetchone()[0] == "ok")
    except sqlite3.Error:
        return False


def _removed(path: Path) -> bool:
    """Remove the file with what SQLite keeps beside it; whether it is gone."""
    try:
        for suffix in ("", *SUFFIXES):
            remove(path.with_name(path.name + suffix))
    except OSError:
        return False
    return True
