"""Finds the real columns, and values of columns, that a request speaks of.

A column is only ever one that was read from the data. Its name in full beats a part of its name, a part beats a
word of the same meaning, and that beats a likely misspelling; longer beats shorter.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from .phrases import ALIKE, CHINESE_FILLER, SPOKEN, bag

_UNITS = bag("mm cm m km g kg lb s sec usd eur pct percent deg in id no per")
_WEAK = bag(
    "a an and are as at average be by can column columns compute calculate count data dataset dataframe "
    "describe do does"
    " each every find for frame from get give group grouped have high how i in is it its last lowest largest "
    "highest low"
    " mean median many max me min more most much my name names number of on or out per plot rows set show smallest std"
    " sum table that the their them there this to top total type value values versus vs what which with would you model"
    " over under than make draw chart graph figure scatter line bar box histogram between against compare fit linear"
    " regression predict correlation missing first second these those all any some only just now also about please not"
    " open close code flag new time date unit into groups records entries using"
)
_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+|[\u3400-\u9fff]+")


@dataclass(frozen=True, slots=True)
class Mention:
    """A column (and, for a filter, its value) with the span of the text that names it."""

    column: str
    start: int
    end: int
    score: float
    value: str | None = None


def words(name: str) -> list[str]:
    """The words of a column name, split at case changes, signs and underscores, lower case."""
    return [word.lower() for word in _WORD.findall(name)]


def stem(word: str) -> str:
    """The word without a plural ending."""
    if len(word) > 4 and word.endswith("ies"):
        return word[:-3] + "y"
    return word[:-1] if len(word) > 3 and word.endswith("s") and not word.endswith("ss") else word


def _keys(column: str) -> dict[str, float]:
    """What may name the column, with a score: its words run together, whole, without units, or in part."""
    whole = words(column)
    core = [word for word in whole if word not in _UNITS] or whole
    keys = {"".join(map(stem, whole)): 10.0}
    if whole[-1:] == ["id"]:
        # "passengers" speaks of the rows, not of their numbers.
        return keys
    keys.setdefault("".join(map(stem, core)), 9.0)
    for size in range(len(core) - 1, 0, -1):
        for first in range(len(core) - size + 1):
            part = core[first : first + size]
            if not all(word in _WEAK or len(word) < (3 if word.isascii() else 2) for word in part):
                keys.setdefault(
                    "".join(map(stem, part)), 4.0 + 2 * size / len(core) + (0.5 if first + size == len(core) else 0)
                )
    for group in ALIKE:
        joined = ["".join(stem(word) for word in member.split()) for member in group]
        score = max((keys[member] for member in joined if member in keys), default=0.0)
        if score > 4:
            for member in joined:
                keys.setdefault(member, min(score, 8.0) - 2.5)
    return keys


def _tokens(text: str) -> list[tuple[str, int, int]]:
    return [(match.group().lower(), match.start(), match.end()) for match in _WORD.finditer(text)]


def find(text: str, columns: Sequence[str]) -> list[Mention]:
    """Columns named in the text, in its order; each span and each column at most once."""
    candidates: list[Mention] = []
    for column in columns:
        for match in re.finditer(rf"(?<![\w]){re.escape(column.strip())}(?![\w])", text) if column.strip() else ():
            exact = 20.0 if match.group().lower() not in _WEAK or match.group() != match.group().lower() else 6.0
            candidates.append(Mention(column, match.start(), match.end(), exact + len(column) / 100))
    tokens = _tokens(text)
    keyed = {column: _keys(column) for column in columns}
    for size in range(min(5, len(tokens)), 0, -1):
        for first in range(len(tokens) - size + 1):
            part = tokens[first : first + size]
            candidates += _named(part, keyed)
    return _apart(candidates)


def _named(part: list[tuple[str, int, int]], keyed: Mapping[str, dict[str, float]]) -> Iterable[Mention]:
    key = "".join(stem(word) for word, _, _ in part)
    weak = all(word in _WEAK for word, _, _ in part)
    close = difflib.SequenceMatcher(autojunk=False)
    close.set_seq2(key)
    for column, keys in keyed.items():
        score = keys.get(key, 0.0)
        if not score and len(key) >= 5 and not weak:
            for other, full in keys.items():
                close.set_seq1(other)
                if (
                    full > 4
                    and len(other) >= 5
                    and abs(len(other) - len(key)) < 2
                    and close.quick_ratio() > 0.84
                    and close.ratio() > 0.84
                ):
                    score = max(score, full / 3)
        if score and not (weak and score < 9):
            yield Mention(column, part[0][1], part[-1][2], score + 0.1 * len(part))


def _apart(candidates: Iterable[Mention]) -> list[Mention]:
    """The best candidates that do not overlap, in order of the text."""
    kept: list[Mention] = []
    for new in sorted(candidates, key=lambda each: (-each.score, each.start)):
        if all(new.end <= old.start or new.start >= old.end for old in kept) and (
            new.value is not None or all(new.column != old.column for old in kept)
        ):
            kept.append(new)
    return sorted(kept, key=lambda each: each.start)


_PEOPLE = {"women": "female", "woman": "female", "girl": "female", "men": "male", "man": "male", "boy": "male"}


def find_values(text: str, values: Mapping[str, Sequence[str]], taken: Sequence[Mention] = ()) -> list[Mention]:
    """Values of columns named in the text ("males", "Gentoo"); of values of the same name, the first column's."""
    tokens = [token for token in _tokens(text) if all(token[2] <= m.start or token[1] >= m.end for m in taken)]
    candidates: list[Mention] = []
    for column, listed in values.items():
        keyed = {"".join(map(stem, words(value))): value for value in listed if words(value)}
        for size in range(min(5, len(tokens)), 0, -1):
            for first in range(len(tokens) - size + 1):
                part = tokens[first : first + size]
                key = "".join(stem(word) for word, _, _ in part)
                value = keyed.get(key) or keyed.get(_PEOPLE.get(key, ""))
                ordinary = part[0][0] in _WEAK or part[0][0].isdigit() or len(part[0][0]) < 2
                if value is not None and not (size == 1 and ordinary):
                    candidates.append(Mention(column, part[0][1], part[-1][2], 5.0 + size, value))
    return _apart(candidates)


_YES = frozenset({"yes", "true", "1", "y", "1.0"})
_NO = frozenset({"no", "false", "0", "n", "0.0"})
_BEFORE = re.compile(r"(?:\b(?:for|of|among|only|just|who|that|many)|只看?|仅|的)\s*(?:the\s*)?(?:\w+\s+)?$", re.I)
_NEGATED = re.compile(r"(?:non|not|no|didn't|did not|without|不|非|没有?)[\s-]*$", re.I)


def find_flags(text: str, values: Mapping[str, Sequence[str]], *, bare: bool) -> list[Mention]:
    """Yes/no columns used as a condition ("non-smokers", "who survived"); `bare`: the name alone is a condition."""
    found: list[Mention] = []
    for column, listed in values.items():
        if len(listed) == 2 and all(value.lower() in _YES | _NO for value in listed):
            for mention in find(text, [column]):
                before = text[: mention.start]
                if bare or _NEGATED.search(before) or _BEFORE.search(before):
                    wanted = _NO if _NEGATED.search(before) else _YES
                    value = next(value for value in listed if value.lower() in wanted)
                    found.append(Mention(column, mention.start, mention.end, 4.0, value))
    return _apart(found)


_CJK = re.compile(r"[\u3400-\u9fff]+")


def chinese_names(columns: Iterable[str], values: Mapping[str, Sequence[str]]) -> list[str]:
    """Names of columns, words in them, and values that hold Chinese characters, longest first.

    A single character is a name only when it is a whole column's: as a value or a word it is in too many others.
    """
    found = {column.strip() for column in columns if _CJK.search(column)}
    found |= {word for column in found for word in _CJK.findall(column) if len(word) > 1}
    found |= {value.strip() for listed in values.values() for value in listed if len(value) > 1 and _CJK.search(value)}
    return sorted(found, key=lambda each: (-len(each), each))


_CJK_WORD = re.compile(r"[\u3400-\u9fff]{2,}")


def unexplained(text: str, columns: Sequence[str], values: Mapping[str, Sequence[str]]) -> list[str]:
    """Words of a request (Chinese terms in English) that name no column and no known value and are no usual words."""
    mentions = [*find(text, columns), *find_values(text, values)]
    for each in sorted(mentions, key=lambda each: -each.start):
        text = text[: each.start] + " | " + text[each.end :]
    latin = [word for word, _, _ in _tokens(text) if word.isascii() and word.isalpha() and len(word) > 2]
    chinese = _CJK_WORD.findall(CHINESE_FILLER.sub(" ", text))
    return [word for word in latin if word not in _WEAK | _UNITS and not {word, stem(word)} & SPOKEN] + chinese
