"""Vectors for memories, where the `embeddings` extra is installed: a static model that its package carries.

wordllama was taken since its weights (16 MB) come with it, it needs no torch and no network, and a text
takes a tenth of a millisecond. It knows words of the Latin script; of other scripts its vectors tell no more than
the script. Without it ranking goes on by words alone.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any

from ipyagent.memory.fulltext import FullText
from ipyagent.memory.words import folded, stop, words

if TYPE_CHECKING:
    import numpy as np

    from ipyagent.memory.scan import Memory

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

    def __repr__(self) -> str:
        return f"<Embedder {KIND}>"

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
        if "model" not in _loaded:
            _loaded["model"] = _load()
        return _loaded["model"]


def loaded() -> Embedder | None:
    """The model if it has been loaded already."""
    return _loaded.get("model")


_loaded: dict[str, Embedder | None] = {}


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
            self._mean = _common(rows)
            self._rows = _unit(rows - self._mean)
        if not self._numbers:
            return []
        asked = _unit(embedder.embed([_telling(query)]) - self._mean)[0]
        near = [self._rows_of[number] for memory in toward if (number := index.number(memory)) in self._rows_of]
        if near:
            asked = _unit((asked + DRAWN * self._rows[near].mean(axis=0))[None])[0]
        likeness = self._rows @ asked
        first = np.argpartition(-likeness, min(most, len(likeness)) - 1)[:most]
        best = first[np.argsort(-likeness[first], kind="stable")].tolist()
        return [(index.memories[self._numbers[row]], float(likeness[row])) for row in best]


def _common(rows: Any) -> Any:
    """The mean of the rows; of few rows only a part, for it is mostly their own."""
    if not len(rows):
        return 0.0
    return rows.mean(axis=0) * (len(rows) / (len(rows) + 20))


def _unit(rows: Any) -> Any:
    import numpy as np

    lengths = np.linalg.norm(rows, axis=1, keepdims=True)
    return rows / np.maximum(lengths, 1e-9)


def _telling(query: str) -> str:
    """The query without words that say nothing."""
    kept = [word for word in query.split() if not set(words(folded(word))) <= stop()]
    return " ".join(kept) or query
