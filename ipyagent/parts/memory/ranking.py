"""Which memories fit a request, by their words. Four rules make a score:

1. a memory has a share of the request: of the weights of its words (the rarer, the heavier) those that the memory
   holds, once more where they lead it; 1.0 is all of them. No more than this share tells whether a memory is sure;
2. other words count a little: forms alike for a word that no memory holds, other wordings of an idea that `concepts`
   knows, in any of its languages, and what the best memories say beside the request's words (pseudo-relevance
   feedback);
3. what was saved together (one series of names, one session, one burst) lends a part of its score to what stands near
   it, most of it to what follows a question;
4. with vectors the two orders are fused by reciprocal rank.

The constants stand on a plateau of the three conversations that `python -m tests.bench recall` measures: sets that were
drawn at random and chosen on two of them did as well on the third (97.5 to 99.3 % in 200, 72 to 76 % in 5)."""

from __future__ import annotations

import datetime
import json
import math
import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from heapq import nlargest
from importlib.resources import files
from itertools import pairwise
from operator import itemgetter
from typing import Any

import msgspec

from ipyagent.parts.memory.fulltext import Embedder, FullText, Vectors, understands
from ipyagent.parts.memory.metadata_index import Memory
from ipyagent.parts.memory.tokenizer import content_words, is_paired, stop, wordings, words

CANDIDATES = 200
"""Memories that a selector chooses from."""
RARITY = 0.8
"""Exponent of a word's inverse document frequency: the rarest word of a request is not all of it."""
LEADS = 1.0
"""What a word adds, in parts of its weight, when it leads the memory."""
SINGLE = 0.3
"""Weight of one character of an unspaced script beside that of a pair."""
ALIKE = 0.8
"""Weight of a form alike beside that of the word it stands for."""
SAME_IDEA = 0.5
"""Weight of another wording of an idea beside that of a word of the request."""
FEEDBACK, TEACHERS, TAUGHT = 0.5, 3, 10
"""What all words that the request was given by its best memories may add, in parts of the best score; how many memories
give some, and how many words."""
NEAR, LENT, LESS, ANSWERS = 5, 0.5, 0.05, 0.9
"""How many places away a memory still lends, the part of its score that the next one gets, by how much less each
further one, and the part for what follows a question."""
LENDERS = 200
BURST = 5.0
"""Seconds within which files written one after the other belong together."""
PRIOR = 20
"""Memories that are imagined beside the real ones, so that few files still weigh words."""
FLOOR, FLOOR_LEADING, SHARE = 0.34, 0.12, 0.45
"""Without a selector: the least share of a memory, the least of one that a word of the request leads, and the least
part of the best one's."""
FLOOR_VECTOR = 0.5
"""The least similarity of one that shares no word."""
HEAD, HEAD_FUSE, HEAD_WEIGHT, TAIL_FUSE = 20, 10, 0.2, 60
"""Reciprocal rank fusion: in the first HEAD places words lead (its constant, the vectors' weight); behind them
both count alike."""
DEPTH = 5
"""How many times as many of each order are fused as are wanted."""
BEST = 3
"""Best memories by words whose vectors draw the request's towards them."""


class Ranked(msgspec.Struct, frozen=True):
    """A memory that shares something with a request. `own` is its share of the request, without what others added,
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
        return "close to one that fits"


class RankedFolder(msgspec.Struct):
    """One memory folder as ranking looks at it; `vectors` only with the `embeddings` extra."""

    index: FullText
    vectors: Vectors | None = None
    series: tuple[int, dict[int, tuple[list[int], int]]] = (-1, {})
    """For which state of the index, then for each number the series it stands in and its place there."""


def rank(
    shelves: Sequence[RankedFolder], query: str, *, limit: int = CANDIDATES, embedder: Embedder | None = None
) -> list[Ranked]:
    """The memories on the shelves that fit a request, best first, at most `limit`."""
    if embedder is None or not understands(query):
        return _by_words(shelves, content_words(query), query, limit)
    found = _by_words(shelves, content_words(query), query, DEPTH * limit)
    return _fused(found, _by_vectors(shelves, embedder, query, found[:BEST], DEPTH * limit))[:limit]


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


def _by_words(shelves: Sequence[RankedFolder], asked: Sequence[str], query: str, limit: int) -> list[Ranked]:
    """The `limit` best by words."""
    indexes = [shelf.index for shelf in shelves]
    weights = {word: _weight(word, indexes) for word in asked}
    whole = sum(weights.values()) or 1.0
    own: list[dict[int, float]] = [{} for _ in shelves]
    for word, weight in weights.items():
        _add(own, indexes, word, weight / whole)
        _add(own, indexes, word, LEADS * weight / whole, leading=True)
    scores = [dict(each) for each in own]
    for word in (word for word in asked if not any(index.holding(word) for index in indexes)):
        for form in {form for index in indexes for form in index.alike(word)}:
            _add(scores, indexes, form, ALIKE * _weight(form, indexes) / whole)
    for forms in wordings(query):
        told = {word for index in indexes for form in forms for word in index.worded(form)} - weights.keys()
        _add_best(scores, indexes, {word: SAME_IDEA * _weight(word, indexes) / whole for word in told})
    _teach(scores, indexes, weights)
    first: list[tuple[float, float, int, int]] = []
    for at, shelf in enumerate(shelves):
        for number, lent in _lent(shelf, scores[at]).items():
            scores[at][number] = scores[at].get(number, 0.0) + lent
        memories = shelf.index.memories
        first += ((score, memories[number].modified, at, number) for number, score in scores[at].items())
    shown = _as_typed(query, asked)
    return [
        _ranked(indexes[at], number, score, own[at].get(number, 0.0), shown)
        for score, _, at, number in nlargest(limit, first)
    ]


def _add(
    scores: Sequence[dict[int, float]], indexes: Sequence[FullText], word: str, part: float, *, leading: bool = False
) -> None:
    for each, index in zip(scores, indexes, strict=True):
        for number in index.holding(word, leading=leading):
            each[number] = each.get(number, 0.0) + part


def _add_best(scores: Sequence[dict[int, float]], indexes: Sequence[FullText], parts: dict[str, float]) -> None:
    """As `_add`, but of several words that say the same a memory gets the best alone."""
    best: list[dict[int, float]] = [{} for _ in indexes]
    for word in sorted(parts, key=parts.__getitem__):
        for each, index in zip(best, indexes, strict=True):
            each.update(dict.fromkeys(index.holding(word), parts[word]))
    for each, gained in zip(scores, best, strict=True):
        for number, part in gained.items():
            each[number] = each.get(number, 0.0) + part


def _holders(word: str, indexes: Sequence[FullText]) -> int:
    return sum(len(index.holding(word)) for index in indexes)


def _weight(word: str, indexes: Sequence[FullText]) -> float:
    """How much a word tells: the rarer, the more."""
    total = sum(len(index.memories) for index in indexes)
    holders = _holders(word, indexes)
    rare: float = math.log(1 + (total + PRIOR - holders + 0.5) / (holders + 0.5)) ** RARITY
    return rare * SINGLE if len(word) == 1 and is_paired(word) else rare


def _teach(scores: list[dict[int, float]], indexes: Sequence[FullText], asked: dict[str, float]) -> None:
    """Let the words that the best memories share count too, each by how good those are and how rare it is."""
    best = nlargest(TEACHERS, ((score, at, number) for at, each in enumerate(scores) for number, score in each.items()))
    told: defaultdict[str, float] = defaultdict(float)
    empty = stop()
    for score, at, number in best:
        for word in indexes[at].of(number).words:
            if word not in asked and word not in empty:
                told[word] += score
    half = sum(len(index.memories) for index in indexes) / 2
    weights = {word: _weight(word, indexes) for word in told if 1 < _holders(word, indexes) <= half}
    taught = nlargest(TAUGHT, ((told[word] * weight, word) for word, weight in weights.items()))
    whole = sum(part * weights[word] for part, word in taught)
    for part, word in taught:
        _add(scores, indexes, word, FEEDBACK * best[0][0] * part * weights[word] / whole)


def _ranked(index: FullText, number: int, score: float, own: float, shown: dict[str, str]) -> Ranked:
    found = index.of(number)
    held, leading = set(found.words), found.words[: found.leading]
    return Ranked(
        index.memories[number],
        score,
        own,
        tuple(typed for word, typed in shown.items() if word in held),
        tuple(typed for word, typed in shown.items() if word in leading),
    )


def _as_typed(query: str, asked: Sequence[str]) -> dict[str, str]:
    """The words of a request as they stand in it, by their stems; single characters are not worth showing."""
    typed: dict[str, str] = {}
    for word in re.findall(r"[^\W_]+", query.lower()):
        for stemmed in words(word):
            typed.setdefault(stemmed, stemmed if is_paired(stemmed) else word)
    return {word: typed.get(word, word) for word in asked if not (len(word) == 1 and is_paired(word))}


# ---------------------------------------------------------------------- neighbours


def _lent(shelf: RankedFolder, scores: dict[int, float]) -> dict[int, float]:
    """What each memory gets from the best of those near it."""
    index = shelf.index
    if shelf.series[0] != index.changes:
        shelf.series = (index.changes, _series(index.memories))
    series = shelf.series[1]
    lent: dict[int, float] = {}
    for number, score in nlargest(LENDERS, scores.items(), key=itemgetter(1)):
        row, place = series.get(number, ((), 0))
        for at in range(max(0, place - NEAR), min(len(row), place + NEAR + 1)):
            if away := abs(at - place):
                answers = at == place + 1 and index.of(number).asks
                part = ANSWERS if answers else LENT - LESS * (away - 1)
                lent[row[at]] = max(lent.get(row[at], 0.0), part * score)
    return lent


_NUMBERS = re.compile(r"\d+")


def _series(memories: dict[int, Memory]) -> dict[int, tuple[list[int], int]]:
    """For each memory that has neighbours the row they stand in, and its place: of one series of numbered names, else
    of one session and turn, else of one burst of writing."""
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
    placed: dict[int, tuple[list[int], int]] = {}
    for first in after.keys() - before.keys():
        row = [first]
        while (following := after.get(row[-1])) is not None:
            row.append(following)
        placed |= {number: (row, place) for place, number in enumerate(row)}
    return placed


# ---------------------------------------------------------------------- vectors


def _by_vectors(
    shelves: Sequence[RankedFolder], embedder: Embedder, query: str, best: Sequence[Ranked], most: int
) -> list[tuple[Memory, float]]:
    """The memories that are most like the request, best first."""
    found: list[tuple[Memory, float]] = []
    for shelf in shelves:
        if shelf.vectors is None:
            shelf.vectors = Vectors(shelf.index)
        found += shelf.vectors.like(embedder, query, [item.memory for item in best], most)
    told = (item for item in found if understands(item[0].description or item[0].fact))
    return sorted(told, key=lambda item: -item[1])


def _fused(by_words: Sequence[Ranked], by_vectors: Sequence[tuple[Memory, float]]) -> list[Ranked]:
    """Both orders by reciprocal rank: words lead in the first places, further down both count alike."""
    known = {item.memory.path: item for item in by_words}
    like = {memory.path: likeness for memory, likeness in by_vectors}
    for memory, _ in by_vectors:
        known.setdefault(memory.path, Ranked(memory, 0.0, 0.0))
    first = {item.memory.path: place for place, item in enumerate(by_words, 1)}
    second = {path: place for place, path in enumerate(like, 1)}

    def order(constant: int, weight: float) -> list[str]:
        points = {
            path: (1 / (constant + first[path]) if path in first else 0.0)
            + (weight / (constant + second[path]) if path in second else 0.0)
            for path in known
        }
        return sorted(points, key=lambda path: -points[path])

    paths = dict.fromkeys((*order(HEAD_FUSE, HEAD_WEIGHT)[:HEAD], *order(TAIL_FUSE, 1.0)))
    return [msgspec.structs.replace(known[path], likeness=round(like.get(path, 0.0), 3)) for path in paths]


# ---- What a small model is asked of memories, which to choose and whether one says more than the user did, and
# what of its answers counts.

MOST_TOKENS = 600
"""Of an answer: five names with a reason each."""
REQUEST_CHARS = 4_000
DESCRIPTION_CHARS = 200
WHY_CHARS = 120

SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "memories": {
            "type": "array",
            "items": {
                "type": "object",
                "properties": {"file": {"type": "string"}, "why": {"type": "string"}},
                "required": ["file", "why"],
                "additionalProperties": False,
            },
        }
    },
    "required": ["memories"],
    "additionalProperties": False,
}
"""The same for every request: a server compiles it once."""

CHECK_TOKENS = 120
"""Of the answer to a check."""
ADDS_CHARS = 100
"""Of what it says that a memory adds."""
MOST_CHECKED = 4_000
"""Characters of a memory, or of the user's words, that are checked; of longer ones no answer counts."""
CHECK_SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {"adds": {"type": "string"}, "beyond": {"type": "boolean"}},
    "required": ["adds", "beyond"],
    "additionalProperties": False,
}

_NAMED = re.compile(r"\{\{(\w+)\}\}")
_ELEMENTS = re.compile(
    r"<(?=/?(?:tools-in-use|memory-list|user-request|select-memories|words-of-the-user|memory-to-keep|check-memory)\b)",
    re.I,
)


def directive(request: str, candidates: Sequence[Memory], tools: Sequence[str], most: int) -> str:
    """The question to the small model."""
    values = {
        "most": str(most),
        "tools": ", ".join(tools) or "none",
        "manifest": "\n".join(manifest_line(memory) for memory in candidates),
        "request": _ELEMENTS.sub("&lt;", request[:REQUEST_CHARS]),
    }
    return filled("select-memories", "selector_prompt.md", values)


def check_directive(words: Sequence[str], told: Sequence[str]) -> str:
    """The question whether a memory, its sentences, goes beyond the user's words; "" when they are too long for it."""
    values = {"words": "\n".join(words), "memory": "\n".join(told)}
    if max(map(len, values.values())) > MOST_CHECKED:
        return ""
    escaped = {key: _ELEMENTS.sub("&lt;", text) for key, text in values.items()}
    return filled("check-memory", "check_prompt.md", escaped)


def filled(name: str, file: str, values: Mapping[str, str]) -> str:
    """A prompt of ours with these values in their places, in an element of this name."""
    text = files("ipyagent.parts.memory").joinpath(file).read_text(encoding="utf-8").strip()
    body = _NAMED.sub(lambda found: values.get(found[1], found[0]), text)
    return f"<{name}>\n{body}\n</{name}>"


def manifest_line(memory: Memory) -> str:
    """One line of the list: `- [type] file (ISO time): description`."""
    moment = datetime.datetime.fromtimestamp(memory.modified).isoformat(timespec="minutes")
    told = " ".join(_ELEMENTS.sub("&lt;", memory.description or memory.title).split())[:DESCRIPTION_CHARS]
    return f"- [{memory.kind or 'none'}] {file_of(memory)} ({moment}): {told}"


def file_of(memory: Memory) -> str:
    """A memory's name in the list."""
    return memory.path.removeprefix("/memories/")


def chosen(answer: str, candidates: Sequence[Memory], most: int) -> list[tuple[Memory, str]] | None:
    """The memories that an answer names with their reasons, each once, those that exist alone, at most `most`;
    None when it is no answer in the format."""
    value = _object_in(answer)
    listed = value.get("memories") if value is not None else None
    if not isinstance(listed, list):
        return None
    known = {file_of(memory): memory for memory in candidates} | {memory.path: memory for memory in candidates}
    found: dict[str, tuple[Memory, str]] = {}
    for item in listed:
        name, why = (item.get("file"), item.get("why")) if isinstance(item, Mapping) else (item, "")
        memory = known.get(name.strip()) if isinstance(name, str) else None
        if memory is not None:
            reason = " ".join(str(why or "").split())[:WHY_CHARS]
            found.setdefault(memory.path, (memory, reason))
    return list(found.values())[:most]


def goes_beyond(answer: str) -> str | None:
    """What a memory adds to the user's words, as the answer to a check says; "" for nothing, None for whatever is no
    answer in the format."""
    found = _object_in(answer) or {}
    if not isinstance(beyond := found.get("beyond"), bool):
        return None
    adds = " ".join(str(found.get("adds", "")).split())[:ADDS_CHARS]
    return (adds if adds not in ("", "nothing") else "more than they say") if beyond else ""


def _object_in(answer: str) -> dict[str, Any] | None:
    """The JSON object of an answer, also when a server without structured output wraps it in words."""
    begin, end = answer.find("{"), answer.rfind("}")
    try:
        value = json.loads(answer[begin : end + 1])
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None
