"""Text as the words that ranking counts: one spelling for every form of a word, in any script.

What reads the same is the same: compatibility forms (full and half width), case, accents, and inflections, by
Snowball's stemmer for the word's script. Scripts written without spaces (Chinese, Japanese, Thai, …) and Korean,
whose words carry their particles, are cut into single characters and overlapping pairs.

Below, what a text is about: an idea that `concepts.txt` knows is one word, however and in which of its six languages it
is written; numbers are digits; any other word is its stem. Words that every memory is written with are left out.
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
from threading import Lock
from typing import Any, NamedTuple

_PAIRED = (
    "\u0e00-\u0eff"  # Thai, Lao
    "\u1000-\u109f"  # Burmese
    "\u1780-\u17ff"  # Khmer
    "\u1100-\u11ff"  # Hangul parts
    "\u3005-\u3007\u3021-\u3029\u3031-\u3035"  # ideographic iteration marks and numbers
    "\u3041-\u309f\u30a0-\u30ff\u31f0-\u31ff"  # kana
    "\u3130-\u318f\uac00-\ud7ff"  # Hangul
    "\u3400-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"  # Han
)
RUN = f"[{_PAIRED}]"
"""One character of a script that is written without spaces, or of Korean, as a regular expression."""
_RUN = re.compile(f"{RUN}+")
_SIGNS = "\u0591-\u05c7\u0610-\u061a\u064b-\u065f\u0900-\u0963\u0970-\u0dff"
"""Vowels of Hebrew, Arabic and Indic scripts, which stand within words and are no letters to `re`."""
_WORD = re.compile(rf"(?:[^\W_]|[{_SIGNS}])+(?:['\u2019][^\W\d_]{{1,2}}(?![^\W_]))?")
_PIECE = re.compile(rf"(?P<run>[{_PAIRED}]+)|{_WORD.pattern}")
_PLAIN = re.compile(r"[A-Za-z0-9]+(?:'[A-Za-z]{1,2}(?![A-Za-z0-9]))?")
_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
_ISO_DATE = re.compile(r"\b((?:19|20)\d\d)-(0[1-9]|1[0-2])-(0[1-9]|[12]\d|3[01])\b")
_MONTHS = (
    "january", "february", "march", "april", "may", "june", "july", "august", "september", "october", "november",
    "december",
)  # fmt: skip
_MARKS = re.compile(r"(?<!и)[\u0300-\u036f]+")
"""Accents; "й" is a letter of its own."""

_EMPTY = """
a about again all also am an and any are as at be because been being both but by can could did do does doing done
during each either else ever few for from further get gets getting got had has have having he her here hers herself him
himself his how however i if in into is it its itself just let like made make many may me might mine more most much my
myself no nor not of off on once only or other our ours ourselves out over own per please regarding said same say says
shall she should so some still such than that the their theirs them themselves then there these they thing this those
though through to too toward under until up upon us use used using very via want wants was we were what whatever when
whenever where whether which while who whom whose why will with within without would yes yet you your yours yourself
tell show give know remember remind think thought happen happened
don doesn didn isn wasn aren weren won wouldn couldn shouldn ain hasn haven ve ll re d s t m
"""
_EMPTY_PAIRS = """
的 了 是 在 我 你 他 她 它 们 吗 呢 吧 啊 和 与 及 或 就 都 也 很 把 被 给 请 我们 你们 他们 什么 怎么
如何 哪个 哪些 为什 多少
の に は を た が で て と し れ さ も な い か る ます です する した して から まで こと もの それ これ どの 何
은 는 이 가 을 를 의 에 와 과 도 로 다 요 입니 니다 합니 무엇 어떻 어떤
"""
_FORMS = """
be: was were been being am is are; buy: bought; bring: brought; think: thought; teach: taught; catch: caught;
seek: sought; fight: fought; go: went gone goes; do: did done does; have: had has; make: made; say: said;
take: took taken; give: gave given; get: got gotten; come: came; become: became; see: saw seen; know: knew known;
grow: grew grown; throw: threw thrown; draw: drew drawn; fly: flew flown; run: ran; begin: began begun;
swim: swam swum; sing: sang sung; drink: drank drunk; write: wrote written; drive: drove driven; ride: rode ridden;
rise: rose risen; speak: spoke spoken; break: broke broken; choose: chose chosen; steal: stole stolen; wear: wore worn;
tear: tore torn; eat: ate eaten; fall: fell fallen; forget: forgot forgotten; hide: hid hidden; bite: bit bitten;
find: found; hold: held; tell: told; sell: sold; leave: left; lose: lost; meet: met; feel: felt; keep: kept;
sleep: slept; sweep: swept; mean: meant; send: sent; spend: spent; build: built; lend: lent; hear: heard; pay: paid;
read: reading reads; lead: led; feed: fed; sit: sat; stand: stood; understand: understood; win: won; shoot: shot;
hang: hung; stick: stuck; dig: dug; child: children kid kids; person: people persons; man: men; woman: women;
foot: feet; tooth: teeth; mouse: mice; wife: wives; mother: mom mum mommy mama; father: dad daddy papa;
photo: photograph photographs pic pics picture pictures; favourite: favorite favorites favourites;
colour: color colors colours; centre: center centers centres;
analyse: analyze analyzes analyzed analyzing analyses analysis; organise: organize organizes organized organizing;
dataframe: dataframes df; database: db databases; config: configuration configurations configure configured;
repo: repository repositories; directory: directories dir folder folders; function: func functions
"""
"""Irregular forms, spellings and short forms that no stemmer knows: what one is, and what stands for it."""
_KNOWN = {form: line.partition(":")[0].strip() for line in _FORMS.split(";") for form in line.partition(":")[2].split()}
_SCRIPTS = (
    ("a", "z", "english"), ("\u0370", "\u03ff", "greek"), ("\u0430", "\u045f", "russian"),
    ("\u0561", "\u0587", "armenian"), ("\u0620", "\u06ff", "arabic"), ("\u0900", "\u097f", "hindi"),
    ("\u0b80", "\u0bff", "tamil"),
)  # fmt: skip
"""First and last character of a script, and the language whose stemmer its words get."""
_LONGEST = 64
"""Letters; what is longer is no word."""
_one_at_a_time = Lock()
"""A stemmer of Snowball holds the word it works on."""


def stem(word: str) -> str:
    """The stem of one folded word; one of no script that a stemmer is known for, or with a digit, stays as it is."""
    if not 3 <= len(word) <= _LONGEST or any(map(str.isdigit, word)):
        return word
    word = _KNOWN.get(word, word)
    language = next((name for first, last, name in _SCRIPTS if first <= word[0] <= last), None)
    if language is None or (language == "english" and not word.isascii()):
        return word
    with _one_at_a_time:
        return str(_stemmer(language).stemWord(word))


@cache
def _stemmer(language: str) -> Any:
    import snowballstemmer  # on use: it loads 36 languages, 30 ms

    return snowballstemmer.stemmer(language)


@cache
def stop() -> frozenset[str]:
    """Stems of words that say nothing of what a text is about; single characters and pairs of unspaced scripts."""
    return frozenset((*map(stem, _EMPTY.split()), *_EMPTY_PAIRS.split()))


def folded(text: str) -> str:
    """The text in one spelling: compatibility forms, case and accents made equal."""
    if text.isascii():
        return text.lower()
    text = unicodedata.normalize("NFKC", text).casefold()
    return unicodedata.normalize("NFC", _MARKS.sub("", unicodedata.normalize("NFD", text)))


LONG = 16_384
"""Characters of a text that is taken line by line: a search in all of it would hold up all threads of the process."""


def words(text: str) -> list[str]:
    """The words of a text in order, stemmed; characters and pairs of unspaced scripts."""
    if len(text) > LONG and "\n" in text:
        return [word for line in text.split("\n") for word in words(line)]
    if "-" in text:
        text = _ISO_DATE.sub(_spelled_date, text)
    if text.isascii():
        found: list[str] = []
        for word in _PLAIN.findall(text):
            found.append(_of(word.lower()))
            if not (word.islower() or word.isdigit()) and len(parts := _CAMEL.split(word)) > 1:
                found += [_of(part.lower()) for part in parts]
        return found
    found = []
    normal = unicodedata.normalize("NFKC", text)
    for piece in _PIECE.finditer(normal):
        word = piece.group()
        if piece.group("run"):
            found += _pairs(folded(word))
        else:
            found.append(_of(folded(word)))
            if len(parts := _CAMEL.split(word)) > 1:
                found += [_of(folded(part)) for part in parts]
    return found


def content_words(text: str) -> list[str]:
    """The words of a query that say what it is about, each once; all of them when nothing else is left."""
    found = list(dict.fromkeys(words(text)))
    return [word for word in found if word not in stop()] or found


def is_paired(word: str) -> bool:
    """Whether a word is a character or a pair of an unspaced script."""
    return bool(_RUN.fullmatch(word))


def count(text: str) -> int:
    """About how many words a person would count; two characters of an unspaced script are one."""
    normal = unicodedata.normalize("NFKC", text)
    return sum((len(piece.group()) + 1) // 2 if piece.group("run") else 1 for piece in _PIECE.finditer(normal))


def _pairs(run: str) -> list[str]:
    return [*run, *(run[at : at + 2] for at in range(len(run) - 1))]


def _spelled_date(found: re.Match[str]) -> str:
    year, month, day = found.groups()
    return f"{year} {_MONTHS[int(month) - 1]} {int(day)}"


@lru_cache(maxsize=50_000)
def _of(word: str) -> str:
    """The stem of a folded word; a possessive or a contraction loses its end."""
    for mark in ("'", "\u2019"):
        word = word.partition(mark)[0]
    return stem(word)


_OWN_WORDS = """
user users prefer preference preferred always never remember memory memorize note feedback why apply how seem
appear apparently likely probably inferred infer conclude evidence said says ask asked request reference project
quoted please must should rather instead beforehand unless told whenever
"""
"""Words that memories are written with, whoever said what: they tell nothing of where it comes from."""
_IDEA_PIECE = re.compile(rf"{RUN}+|(?:(?!{RUN})[^\W_])+|[€$%]")
_TIMES = re.compile(r"(?<=\d)\s?[x×]\s?(?=\d)")
_THOUSANDS = re.compile(r"(?<=\d)[,.'’](?=\d{3}(?!\d))")
_ISO = re.compile(r"\b(?:19|20)\d\d-\d\d-\d\d\b")
"""A date made absolute says nothing that the user's "Friday" could be compared with."""
_DAYS = "monday tuesday wednesday thursday friday saturday sunday".split()  # noqa: SIM905 - as it is read
_SHORTEST_TAIL = 4
"""Letters of the last part of a compound ("Schadenabteilung") that are looked up by themselves."""
_LONGEST_IDEA = 8
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
    for piece in _IDEA_PIECE.findall(text):
        if not piece.isascii() and _RUN.match(piece):
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
        for end in range(min(len(run), at + _LONGEST_IDEA), at, -1):
            if run[at:end] in inside:
                found += [*_idea_pairs(run[free:at]), inside[run[at:end]]]
                at = free = end
                break
        else:
            at += 1
    return found + _idea_pairs(run[free:])


def _idea_pairs(run: str) -> list[str]:
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
