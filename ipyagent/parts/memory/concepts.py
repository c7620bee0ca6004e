"""What a text is about, as words that mean the same in any wording and in six languages.

An idea that `concepts.txt` knows is one word, however and in which of its languages it is written; numbers are
digits; any other word is its stem. Words that every memory is written with tell nothing and are left out.
"""

from __future__ import annotations

import re
import sys
import unicodedata
from array import array
from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from datetime import date
from functools import cache, lru_cache
from heapq import merge
from importlib.resources import files
from itertools import repeat
from typing import NamedTuple

from ipyagent.parts.memory.tokenizer import LONG, RUN, folded, stop, words

_OWN_WORDS = """
user users prefer preference preferred always never remember memory memorize note feedback why apply how seem
appear apparently likely probably inferred infer conclude evidence said says ask asked request reference project
quoted please must should rather instead beforehand unless told whenever
"""
"""Words that memories are written with, whoever said what: they tell nothing of where it comes from."""
_PIECE = re.compile(rf"{RUN}+|(?:(?!{RUN})[^\W_])+|[€$%]")
_TIMES = re.compile(r"(?<=\d)\s?[x×]\s?(?=\d)")
_THOUSANDS = re.compile(r"(?<=\d)[,.'’](?=\d{3}(?!\d))")
_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
_ISO = re.compile(r"\b(?:19|20)\d\d-\d\d-\d\d\b")
"""A date made absolute says nothing that the user's "Friday" could be compared with."""
_DAYS = "monday tuesday wednesday thursday friday saturday sunday".split()  # noqa: SIM905 - as it is read
_MONTHS = (
    "january february march april may june july august september october november december".split()  # noqa: SIM905
)
_SHORTEST_TAIL = 4
"""Letters of the last part of a compound ("Schadenabteilung") that are looked up by themselves."""
_LONGEST = 8
"""Characters of the longest idea in an unspaced script."""


_APART = 1 << 24
"""Between two texts, so that no stretch of words goes across; more than any text has words."""
_NOWHERE = array("Q")
_MOST_PLACES = 300
"""Places of one word that are looked at, newest first: a word that is so common tells little."""


class _Known(NamedTuple):
    exact: dict[str, str]
    begins: dict[str, str]
    inside: dict[str, str]
    empty: frozenset[str]


@cache
def _known() -> _Known:
    """The ideas: by whole word, by beginning, by characters; the words that tell nothing."""
    found = _Known({}, {}, {}, frozenset())
    empty: set[str] = set()
    for line in files("ipyagent.parts.memory").joinpath("concepts.txt").read_text(encoding="utf-8").splitlines():
        name, *forms = line.split()
        if name == "#":
            continue
        for form in forms:
            plain = folded(form.rstrip("*"))
            if name.startswith("-"):
                empty.add(form)
            elif re.search(RUN, plain):
                found.inside.setdefault(plain, f"={name}")
            elif form.endswith("*"):
                found.begins.setdefault(plain, f"={name}")
            else:
                found.exact.setdefault(plain, f"={name}")
    return found._replace(empty=frozenset(folded(form.rstrip("*")) + "*" * form.endswith("*") for form in empty))


@cache
def _own_words() -> frozenset[str]:
    return frozenset(words(_OWN_WORDS))


def weighty(text: str) -> list[str]:
    """The words that say what a text is about, in order: "=name" for an idea that is known, else stems; of unspaced
    scripts pairs of characters."""
    if len(text) > LONG and "\n" in text:
        return [word for line in text.split("\n") for word in weighty(line)]
    text = _THOUSANDS.sub("", unicodedata.normalize("NFKC", text)) if not text.isascii() else _THOUSANDS.sub("", text)
    text = _ISO.sub(" ", text) if "-" in text else text
    text = _TIMES.sub(" ", text)
    found: list[str] = []
    for piece in _PIECE.findall(text):
        if re.match(RUN, piece):
            found += _of_run(folded(piece))
        else:
            found += _of_word(piece)
    return found


@cache
def _forms() -> dict[str, tuple[str, ...]]:
    """The forms of each idea; one that ends in "*" stands for all words that begin so."""
    found: dict[str, list[str]] = {}
    for forms, end in ((_known().exact, ""), (_known().inside, ""), (_known().begins, "*")):
        for form, idea in forms.items():
            found.setdefault(idea, []).append(form + end)
    return {idea: tuple(each) for idea, each in found.items()}


def wordings(text: str) -> list[tuple[str, ...]]:
    """For each idea of a text all its wordings, in all languages; one that ends in "*" stands for what begins so."""
    return [_forms()[word] for word in dict.fromkeys(weighty(text)) if word in _forms()]


def dates(text: str) -> set[str]:
    """What the dates of a text that are absolute may be called: weekday, month, day."""
    found: set[str] = set()
    for match in _ISO.finditer(text):
        with suppress(ValueError):
            day = date.fromisoformat(match.group())
            found.update(weighty(f"{_DAYS[day.weekday()]} {_MONTHS[day.month - 1]} {day.day}"))
    return found


@lru_cache(maxsize=50_000)
def _of_word(word: str) -> tuple[str, ...]:
    if len(word) > 3 and not (word.islower() or word.isdigit()) and len(parts := _CAMEL.split(word)) > 1:
        return tuple(each for part in parts for each in _of_word(part))
    plain = folded(word)[:60]
    exact, begins, _, empty = _known()
    if plain in exact:
        return (exact[plain],)
    stems = words(plain)
    if plain in empty or f"{plain}*" in empty or any(stem in stop() or stem in _own_words() for stem in stems):
        return ()
    for end in range(len(plain), 1, -1):
        if plain[:end] in begins:
            rest = exact.get(plain[end:])
            return (begins[plain[:end]], *((rest,) if rest else _tail(plain, end)))
        if f"{plain[:end]}*" in empty:
            return ()
    return tuple(stems) + _tail(plain, 3)


def _tail(plain: str, start: int) -> tuple[str, ...]:
    """The idea that a compound ends in."""
    begins = _known().begins
    for at in range(max(start, 3), len(plain) - _SHORTEST_TAIL + 1):
        for end in range(len(plain), at + _SHORTEST_TAIL - 1, -1):
            if plain[at:end] in begins and len(plain) - end <= 3:
                return (begins[plain[at:end]],)
    return ()


def _of_run(run: str) -> list[str]:
    """Ideas, and of what is between them the pairs of characters."""
    inside = _known().inside
    found: list[str] = []
    at = free = 0
    while at < len(run):
        for end in range(min(len(run), at + _LONGEST), at, -1):
            if run[at:end] in inside:
                found += [*_pairs(run[free:at]), inside[run[at:end]]]
                at = free = end
                break
        else:
            at += 1
    return found + _pairs(run[free:])


def _pairs(run: str) -> list[str]:
    if len(run) == 1:
        return [] if run in stop() else [run]
    pairs = [run[at : at + 2] for at in range(len(run) - 1)]
    return [pair for pair in pairs if pair not in stop() and not (pair[0] in stop() and pair[1] in stop())]


def is_idea(word: str) -> bool:
    """Whether a word of `weighty` means the same in every language: an idea or a number."""
    return word.startswith("=") or word.isdigit()


def shared(wanted: Iterable[str], others: Iterable[str]) -> set[str]:
    """The wanted words that others have too, also as kindred words of another language ("Aktuarin", "actuary") and
    as parts of a name ("broker hub", "brokerhub")."""
    there = set(others)
    kin = {_kindred(word) for word in there} - {""}
    return {word for word in wanted if word in there or (_kindred(word) and _kindred(word) in kin)}


@lru_cache(maxsize=50_000)
def _kindred(word: str) -> str:
    """The beginning that words of the same root share across languages; "" for a short word or an idea."""
    if len(word) < 5 or not word.isascii() or not word.isalpha():
        return ""
    for old, new in (("k", "c"), ("z", "c"), ("ph", "f"), ("y", "i"), ("w", "v")):
        word = word.replace(old, new)
    word = re.sub(r"(.)\1", r"\1", word)
    return word[:6] if len(word) >= 6 else word


def bare(sentence: str) -> str:
    """A sentence's words, to tell whether two are the same."""
    return " ".join(words(sentence))


class Passages:
    """Texts by their words: in which of them words are, and how many stand together. Linear in what is found."""

    def __init__(self) -> None:
        self._places: dict[str, array[int]] = {}
        self._begins = array("Q")
        self._end = self._first = 0

    def __len__(self) -> int:
        return len(self._begins) - self._first

    def __contains__(self, word: str) -> bool:
        return bool(self._of(word))

    def _of(self, word: str) -> Sequence[int]:
        places = self._places.get(word, _NOWHERE)
        return places[bisect_left(places, self._begins[self._first]) :] if self._first else places

    def add(self, words: Sequence[str]) -> None:
        """Take in a text's words."""
        self._begins.append(self._end)
        for at, word in enumerate(words, self._end):
            self._places.setdefault(sys.intern(word), array("Q")).append(at)
        self._end += len(words) + _APART

    def drop(self) -> None:
        """Let go of the oldest text."""
        self._first += 1
        if self._first > len(self):
            self._places = {word: array("Q", left) for word in self._places if (left := self._of(word))}
            self._begins, self._first = self._begins[self._first :], 0

    @property
    def numbers(self) -> int:
        """How many numbers stand for texts: those that were let go of last may still have one."""
        return len(self._begins)

    def closest(self, wanted: Sequence[str]) -> int:
        """How many of the wanted words (each counts once) stand together at most, in a stretch of any of the texts
        that is about twice as long as the sentence."""
        there = [(word, places) for word in dict.fromkeys(wanted) if (places := self._of(word))]
        if len(there) < 2:
            return len(there)
        span, best = max(2 * len(dict.fromkeys(wanted)), 8), 1
        found = merge(*(zip(places[-_MOST_PLACES:], repeat(word), strict=False) for word, places in there))
        counts: dict[str, int] = {}
        stretch: deque[tuple[int, str]] = deque()
        for at, word in found:
            counts[word] = counts.get(word, 0) + 1
            stretch.append((at, word))
            while at - stretch[0][0] >= span:
                _, left = stretch.popleft()
                counts[left] -= 1
                if not counts[left]:
                    del counts[left]
            best = max(best, len(counts))
            if best == len(there):
                break
        return best

    def having(self, words: Iterable[str]) -> Iterator[int]:
        """The numbers of the texts that have all of these words."""
        goal = sorted(set(words), key=lambda word: len(self._places.get(word, _NOWHERE)))
        last = -1
        for at in self._of(goal[0])[-_MOST_PLACES:] if goal else ():
            number = bisect_right(self._begins, at) - 1
            if number != last and self.count(number, goal) == len(goal):
                yield number
            last = number

    def count(self, number: int, words: Iterable[str]) -> int:
        """How many of these words a text has."""
        begin = self._begins[number]
        places = (self._places.get(word, _NOWHERE) for word in words)
        nexts = ((each, bisect_left(each, begin)) for each in places)
        return sum(at < len(each) and each[at] < begin + _APART for each, at in nexts)
