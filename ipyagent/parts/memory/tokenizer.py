"""Text as the words that ranking counts: one spelling for every form of a word, in any script.

What reads the same is the same: compatibility forms (full and half width), case, accents, and inflections, by
Snowball's stemmer for the word's script. Scripts written without spaces (Chinese, Japanese, Thai, …) and Korean,
whose words carry their particles, are cut into single characters and overlapping pairs.
"""

from __future__ import annotations

import re
import unicodedata
from functools import cache, lru_cache
from threading import Lock
from typing import Any

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
be: was were been being am is are
buy: bought
bring: brought
think: thought
teach: taught
catch: caught
seek: sought
fight: fought
go: went gone goes
do: did done does
have: had has
make: made
say: said
take: took taken
give: gave given
get: got gotten
come: came
become: became
see: saw seen
know: knew known
grow: grew grown
throw: threw thrown
draw: drew drawn
fly: flew flown
run: ran
begin: began begun
swim: swam swum
sing: sang sung
drink: drank drunk
write: wrote written
drive: drove driven
ride: rode ridden
rise: rose risen
speak: spoke spoken
break: broke broken
choose: chose chosen
steal: stole stolen
wear: wore worn
tear: tore torn
eat: ate eaten
fall: fell fallen
forget: forgot forgotten
hide: hid hidden
bite: bit bitten
find: found
hold: held
tell: told
sell: sold
leave: left
lose: lost
meet: met
feel: felt
keep: kept
sleep: slept
sweep: swept
mean: meant
send: sent
spend: spent
build: built
lend: lent
hear: heard
pay: paid
read: reading reads
lead: led
feed: fed
sit: sat
stand: stood
understand: understood
win: won
shoot: shot
hang: hung
stick: stuck
dig: dug
child: children kid kids
person: people persons
man: men
woman: women
foot: feet
tooth: teeth
mouse: mice
wife: wives
mother: mom mum mommy mama
father: dad daddy papa
photo: photograph photographs pic pics picture pictures
favourite: favorite favorites favourites
colour: color colors colours
centre: center centers centres
analyse: analyze analyzes analyzed analyzing analyses analysis
organise: organize organizes organized organizing
dataframe: dataframes df
database: db databases
config: configuration configurations configure configured
repo: repository repositories
directory: directories dir folder folders
function: func functions
"""
"""Irregular forms, spellings and short forms that no stemmer knows: what one is, and what stands for it."""
_KNOWN = {form: line.partition(":")[0] for line in _FORMS.split("\n") for form in line.partition(":")[2].split()}
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
