"""Which memories fit a request, by their words: BM25 where a word counts once, and more where it leads.

A score is the share of the request's words that a memory has, each weighed by how rare it is; 1.0 is all
of them. What was saved together (one series of names, one session, one burst) lends a part of its score
to its neighbours. With vectors the two orders are fused by reciprocal rank.
"""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Sequence
from functools import lru_cache
from itertools import pairwise

import msgspec

from ipyagent.memory.embeddings import Embedder, Vectors
from ipyagent.memory.fulltext import FullText
from ipyagent.memory.scan import Memory
from ipyagent.memory.words import content_words, folded, is_paired, words

CANDIDATES = 200
"""Memories that a selector chooses from."""
SATURATION, LENGTH = 0.3, 0.2
"""BM25's k1 and b: short notes say a thing once, and their lengths say little."""
LEADS = 0.8
"""What a word adds, in parts of its weight, when it leads the memory."""
SINGLE = 0.3
"""Weight of one character of an unspaced script beside that of a pair."""
TIMES = 0.2
"""Part by which a memory that names a time gains when the request asks for one."""
AFTER, BEFORE = 0.2, 0.15
"""Parts of its score that a memory lends to the next and to the one before."""
LENDERS = 400
BURST = 5.0
"""Seconds within which files written one after the other belong together."""
PRIOR = 20
"""Memories that are imagined beside the real ones, so that few files still weigh words."""
FLOOR, FLOOR_LEADING, SHARE = 0.34, 0.12, 0.45
"""Without a selector: the least score of a memory, the least of one that a word of the request leads, and the
least part of the best one's score."""
FLOOR_VECTOR = 0.5
"""The least similarity of one that shares no word."""
HEAD, HEAD_FUSE, HEAD_WEIGHT, TAIL_FUSE = 20, 10, 0.2, 60
"""Reciprocal rank fusion: in the first HEAD places words lead (its constant, the vectors' weight); behind them
both count alike."""
BEST = 3
"""Best memories by words whose vectors draw the request's towards them."""

_ASKS_TIME = re.compile(r"\b(?:when|(?:what|which) (?:day|date|month|year|time)|how (?:long|old))\b")
_TIME_WORDS = (
    "yesterday today tomorrow tonight last next week month year weekend ago since recently soon deadline due monday "
    "tuesday wednesday thursday friday saturday sunday january february march april june july august september "
    "october november december"
)


class Ranked(msgspec.Struct, frozen=True):
    """A memory that shares something with a request. `own` is its score without what neighbours lent,
    `words` are the shared words as the request has them, `leading` those of them that lead it; `likeness` is the
    cosine of the vectors (0.0 without)."""

    memory: Memory
    score: float
    own: float
    words: tuple[str, ...] = ()
    leading: tuple[str, ...] = ()
    likeness: float = 0.0

    @property
    def why(self) -> str:
        """The reason in a few words."""
        if self.words:
            shown = ", ".join(dict.fromkeys((*self.leading, *self.words)))
            return f"about {shown}" if self.leading else f"mentions {shown}"
        if self.likeness >= FLOOR_VECTOR:
            return "says something alike"
        return "saved beside one that fits"


class Shelf(msgspec.Struct):
    """One memory folder as ranking looks at it; `vectors` only with the `embeddings` extra."""

    index: FullText
    vectors: Vectors | None = None
    series: tuple[int, dict[int, int], dict[int, int]] = (-1, {}, {})
    """For which state of the index, then for each number the one after and the one before it."""


def rank(
    shelves: Sequence[Shelf], query: str, *, limit: int = CANDIDATES, embedder: Embedder | None = None
) -> list[Ranked]:
    """The memories on the shelves that fit a request, best first, at most `limit`."""
    asked = content_words(query)
    found = _by_words(shelves, asked, folded(query))
    if embedder is not None:
        found = _fused(found, _by_vectors(shelves, embedder, query, found[:BEST]), limit)
    return found[:limit]


def surely(ranked: Sequence[Ranked], most: int) -> list[Ranked]:
    """Those that may be shown without a selector's word: above the floor, and not far below the best."""
    best = max((item.own for item in ranked), default=0.0)
    return [
        item
        for item in ranked
        if (item.own >= (FLOOR_LEADING if item.leading else FLOOR) and item.own >= SHARE * best)
        or (not item.words and item.likeness >= FLOOR_VECTOR)
    ][:most]


# ---------------------------------------------------------------------- words


class _Tally:
    """What one memory has of a request."""

    __slots__ = ("leading", "score", "words")

    def __init__(self) -> None:
        self.score, self.words, self.leading = 0.0, list[str](), list[str]()


def _by_words(shelves: Sequence[Shelf], asked: Sequence[str], query: str) -> list[Ranked]:
    holders = {word: [shelf.index.holding(word) for shelf in shelves] for word in asked}
    total = sum(len(shelf.index.memories) for shelf in shelves)
    weights = {word: _weight(word, total, sum(map(len, rows))) for word, rows in holders.items()}
    whole = sum(weights.values()) or 1.0
    shown = _as_typed(query, asked)
    found: list[Ranked] = []
    for at, shelf in enumerate(shelves):
        tallies: defaultdict[int, _Tally] = defaultdict(_Tally)
        for word, rows in holders.items():
            weight = weights[word]
            if not rows[at]:
                continue
            leads = set(shelf.index.holding(word, leading=True))
            for number in rows[at]:
                tally = tallies[number]
                tally.score += weight
                tally.words.append(word)
                if number in leads:
                    tally.score += LEADS * weight
                    tally.leading.append(word)
        found += _scored(shelf, tallies, whole, shown, asks_time=bool(_ASKS_TIME.search(query)))
    return sorted(found, key=lambda item: (-item.score, -item.memory.modified))


def _weight(word: str, total: int, holders: int) -> float:
    """How much a word tells: the rarer, the more."""
    rare = math.log(1 + (total + PRIOR - holders + 0.5) / (holders + 0.5))
    return rare * SINGLE if len(word) == 1 and is_paired(word) else rare


def _scored(
    shelf: Shelf, tallies: dict[int, _Tally], whole: float, shown: dict[str, str], *, asks_time: bool
) -> list[Ranked]:
    index = shelf.index
    mean = sum(index.lengths.values()) / len(index.lengths) if index.lengths else 1.0
    timed = _timed(shelf) if asks_time else frozenset[int]()
    own: dict[int, float] = {}
    for number, tally in tallies.items():
        length = 1 + SATURATION * (1 - LENGTH + LENGTH * index.lengths[number] / (mean or 1.0))
        own[number] = tally.score / whole * (1 + SATURATION) / length * (1 + TIMES * (number in timed))
    scores = dict(own)
    for number, lent in _lent(shelf, own).items():
        scores[number] = scores.get(number, 0.0) + lent
    none = _Tally()
    made = []
    for number, score in scores.items():
        tally = tallies.get(number, none)
        worded = tuple(shown[word] for word in tally.words if word in shown)
        leading = tuple(shown[word] for word in tally.leading if word in shown)
        made.append(Ranked(index.memories[number], score, own.get(number, 0.0), worded, leading))
    return made


def _timed(shelf: Shelf) -> frozenset[int]:
    return frozenset(number for word in _time_words() for number in shelf.index.holding(word))


@lru_cache(maxsize=1)
def _time_words() -> tuple[str, ...]:
    return tuple(dict.fromkeys(words(_TIME_WORDS)))


def _as_typed(query: str, asked: Sequence[str]) -> dict[str, str]:
    """The words of a request as they stand in it, by their stems; single characters are not worth showing."""
    typed: dict[str, str] = {}
    for word in re.findall(r"[^\W_]+", query):
        for stemmed in words(word):
            typed.setdefault(stemmed, stemmed if is_paired(stemmed) else word)
    return {word: typed.get(word, word) for word in asked if not (len(word) == 1 and is_paired(word))}


# ---------------------------------------------------------------------- neighbours


def _lent(shelf: Shelf, own: dict[int, float]) -> dict[int, float]:
    """What each memory gets from its neighbours among the best."""
    if shelf.series[0] != shelf.index.changes:
        shelf.series = (shelf.index.changes, *_series(shelf.index.memories))
    _, after, before = shelf.series
    lent: dict[int, float] = {}
    best = sorted(own, key=own.__getitem__, reverse=True)[:LENDERS]
    for number in best:
        for part, place in ((AFTER, after), (BEFORE, before)):
            other = place.get(number)
            if other is not None:
                lent[other] = max(lent.get(other, 0.0), part * own[number])
    return lent


_NUMBERS = re.compile(r"\d+")


def _series(memories: dict[int, Memory]) -> tuple[dict[int, int], dict[int, int]]:
    """For each memory the next and the one before: of one series of numbered names, else of one session and
    turn, else of one burst of writing."""
    after: dict[int, int] = {}
    before: dict[int, int] = {}

    def join(one: int, other: int) -> None:
        if one not in after and other not in before:
            after[one], before[other] = other, one

    numbered: dict[tuple[object, ...], int] = {}
    for number, memory in memories.items():
        if found := _NUMBERS.findall(memory.name):
            skeleton = _NUMBERS.sub("#", memory.name)
            numbered[skeleton, *map(int, found)] = number
    for key, number in numbered.items():
        following = numbered.get((*key[:-1], int(str(key[-1])) + 1))
        if following is not None:
            join(number, following)
    by_turn = sorted(
        (number for number, memory in memories.items() if memory.session),
        key=lambda number: (memories[number].session, memories[number].turn, memories[number].modified),
    )
    for one, other in pairwise(by_turn):
        if memories[one].session == memories[other].session and memories[other].turn - memories[one].turn <= 1:
            join(one, other)
    by_time = sorted(memories, key=lambda number: (memories[number].modified, memories[number].name))
    for one, other in pairwise(by_time):
        if memories[other].modified - memories[one].modified <= BURST:
            join(one, other)
    return after, before


# ---------------------------------------------------------------------- vectors


def _by_vectors(
    shelves: Sequence[Shelf], embedder: Embedder, query: str, best: Sequence[Ranked]
) -> list[tuple[Memory, float]]:
    """All memories with their likeness to the request, best first."""
    found: list[tuple[Memory, float]] = []
    for shelf in shelves:
        if shelf.vectors is None:
            shelf.vectors = Vectors(shelf.index)
        found += shelf.vectors.like(embedder, query, [item.memory.path for item in best])
    return sorted(found, key=lambda item: -item[1])


def _fused(by_words: Sequence[Ranked], by_vectors: Sequence[tuple[Memory, float]], limit: int) -> list[Ranked]:
    """Both orders by reciprocal rank: words lead in the first places, further down both count alike."""
    known = {item.memory.path: item for item in by_words}
    depth = 5 * limit
    like = {memory.path: likeness for memory, likeness in by_vectors}
    for memory, _ in by_vectors[:depth]:
        known.setdefault(memory.path, Ranked(memory, 0.0, 0.0))
    first = {item.memory.path: place for place, item in enumerate(by_words[:depth], 1)}
    second = {memory.path: place for place, (memory, _) in enumerate(by_vectors[:depth], 1)}

    def order(constant: int, weight: float) -> list[str]:
        points = {
            path: (1 / (constant + first[path]) if path in first else 0.0)
            + (weight / (constant + second[path]) if path in second else 0.0)
            for path in known
        }
        return sorted(points, key=lambda path: -points[path])

    paths = dict.fromkeys((*order(HEAD_FUSE, HEAD_WEIGHT)[:HEAD], *order(TAIL_FUSE, 1.0)))
    return [msgspec.structs.replace(known[path], likeness=round(like.get(path, 0.0), 3)) for path in paths]
