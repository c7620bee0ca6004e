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
    if core_word := _core(column.strip()):
        keys.setdefault(core_word, 5.0)
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
    for name, score in list(keys.items()):
        # "Return rate" speaks of "returned", "survive" of "survived".
        if name.endswith("ed") and len(name) > 6:
            keys.setdefault(name[:-2], min(score, 8.0) - 1.5)
            keys.setdefault(name[:-1], min(score, 8.0) - 1.5)
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
    """Values of columns named in the text ("males", "Gentoo", "team A"); a value that several columns have is that of
    the column named next to it, else of one named anywhere (`taken`), else of the first."""
    tokens = [token for token in _tokens(text) if all(token[2] <= m.start or token[1] >= m.end for m in taken)]
    candidates: list[Mention] = []
    for column, listed in values.items():
        keyed = {"".join(map(stem, words(value))): value for value in listed if words(value)}
        own = [each for each in taken if each.column == column]
        for size in range(min(5, len(tokens)), 0, -1):
            for first in range(len(tokens) - size + 1):
                part = tokens[first : first + size]
                key = "".join(stem(word) for word, _, _ in part)
                value = keyed.get(key) or keyed.get(_PEOPLE.get(key, ""))
                if value is None:
                    continue
                start, end = part[0][1], part[-1][2]
                before = any(m.end <= start and _BESIDE.fullmatch(text[m.end : start]) for m in own)
                beside = before or any(text[end : m.start] == " " for m in own)
                if size > 1 or beside or _plain(text, start, end, value):
                    score = 5.0 + size + (1 if beside else 0.5 if own else 0)
                    candidates.append(Mention(column, start, end, score, value))
    return _apart(candidates)


_BESIDE = re.compile(
    r"\s*(?:(?:is|are|was|were)(?: not|n't)?|(?:not )?in|=+|!=|:|：|不?(?:是|为"
    r"|等于))?\s*[\"'“‘]?\s*(?:[A-Za-z0-9]\b\s*"
    r"(?:,|and|or|和|与|或|、)\s*)*", re.I
)  # fmt: skip
_ANSWERS = bag("yes no true false y n")


def _plain(text: str, start: int, end: int, value: str) -> bool:
    """Whether one word that is a value may be taken for it where its column is not named beside it."""
    word = text[start:end]
    if text[start - 1 : start] in tuple("\"'“‘") and text[end : end + 1] in tuple("\"'”’"):
        return True
    if word.lower() in _WEAK or word.isdigit() or word.lower() in _ANSWERS:
        return word == value and word[0].isupper() and not word.isdigit() and word.lower() not in _ANSWERS
    if len(word) > 1 or not word.isascii():
        return True
    return word == value and word.isupper() and (word not in "AI" or start > 0) and not _UNIT_SIGN.search(text[:start])


_UNIT_SIGN = re.compile(r"\d\s*$")


_YES = frozenset({"yes", "true", "1", "y", "1.0"})
_NO = frozenset({"no", "false", "0", "n", "0.0"})
_BEFORE = re.compile(r"(?:\b(?:for|of|among|only|just|who|that|which|many|most|fewest|least|all|were|was|been"
    r"|where)|只看?|仅|的|被|已)\s*"
                     r"(?:the\s*)?(?:\w+\s+)?$", re.I)  # fmt: skip
_NEGATED = re.compile(
    r"(?:\bnon\b|\bnot\b|\bno\b|n't\b|\bnever\b|\bwithout\b"
    r"|\bexcluding\b|\bexcept\b|\bother than\b|\bapart from\b|除了?|排除|不是?|非|没有?|未|无)[\s-]*"
    r"(?:(?:been|be|yet|being|get|got|an?|have|has|the|被|曾)\s*)*"
    r"(?:(?!in|on|at|from|for|of|by|to|the)[a-z]+\s+)?$", re.I
)  # fmt: skip
_IS = re.compile(
    r"\s*(?:is|are|was|were|=+|:|：|为|是)\s*[\"'“]?"
    r"(?:(?P<yes>true|yes|1|是|真)|(?P<no>not true|false|no|0|否|假))(?![\w.])[\"'”]?", re.I
)  # fmt: skip
_RATE = re.compile(r"\s*(?:率|rates?\b)", re.I)
_WHOSE = re.compile(r"\s*(?:者|的(?!比例|百分|占比|影响|关系|人数|数量|分布)|了的|(?=\s*最[多少]))")


def find_flags(text: str, values: Mapping[str, Sequence[str]], *, bare: bool) -> list[tuple[Mention, int]]:
    """Yes/no columns used as a condition ("non-smokers", "who survived"), each with the start of its words.

    `bare`: the name alone is a condition.
    """
    found: list[Mention] = []
    starts: dict[int, int] = {}
    for column, listed in values.items():
        if len(listed) == 2 and all(value.lower() in _YES | _NO for value in listed):
            for mention in find(text, [column]):
                before, said = text[: mention.start], _IS.match(text[mention.end :])
                negated = _NEGATED.search(before)
                if _RATE.match(text[mention.end :]):
                    continue
                if bare or negated or said or _BEFORE.search(before) or _WHOSE.match(text[mention.end :]):
                    is_no = bool(said and said["no"]) != bool(negated)
                    value = next(value for value in listed if value.lower() in (_NO if is_no else _YES))
                    end = mention.end + (said.end() if said else 0)
                    starts[mention.start] = negated.start() if negated else mention.start
                    found.append(Mention(column, mention.start, end, 4.0, value))
    return [(each, starts[each.start]) for each in _apart(found)]


_CJK = re.compile(r"[\u3400-\u9fff]+")


def _core(column: str) -> str:
    """What is left of a Chinese name without a word like 日期 at its end: 入学 of 入学日期; "" when too little is."""
    found = re.fullmatch(r"([\u3400-\u9fff]{2,}?)(?:日期|时间|名称|编号|金额)", column)
    return found[1] if found else ""


def chinese_names(columns: Iterable[str], values: Mapping[str, Sequence[str]]) -> list[str]:
    """Names of columns, words in them, and values that hold Chinese characters, longest first.

    A single character is a name when it is a whole column's or a value that is no word of asking (男, 茶): others are
    in too many words.
    """
    found = {column.strip() for column in columns if _CJK.search(column)}
    found |= {word for column in found for word in _CJK.findall(column) if len(word) > 1}
    found |= {core for column in found if (core := _core(column))}
    named = {value.strip() for listed in values.values() for value in listed if _CJK.search(value)}
    found |= {value for value in named if len(value) > 1 or CHINESE_FILLER.sub("", value)}
    return sorted(found, key=lambda each: (-len(each), each))


_CAPITALS = re.compile(r"(?<=[^\w.])(?:A(?![\w.]| [a-z])|(?!A\b)[A-Z]{1,2}(?![\w.]))")
"""Short values: "team D"; an A only where no word follows it."""
_SIGNS = ("I", "OK", "IQ", "R", "ID", "X", "Y")
_CJK_WORD = re.compile(r"[\u3400-\u9fff]{2,}")


def unexplained(text: str, columns: Sequence[str], values: Mapping[str, Sequence[str]]) -> list[str]:
    """Words of a request (Chinese terms in English) that name no column and no known value and are no usual words."""
    columns = list(columns)
    for _ in range(3):
        named = find(text, columns)
        mentions = [*named, *(each for each in find_values(text, values, named))]
        if not mentions:
            break
        for each in sorted(mentions, key=lambda each: -each.start):
            text = text[: each.start] + " | " + text[each.end :]
    latin = [word for word, _, _ in _tokens(text) if word.isascii() and word.isalpha() and len(word) > 2]
    latin += [word for word in _CAPITALS.findall(text) if word not in _SIGNS and word.lower() not in SPOKEN - {"a"}]
    chinese = _CJK_WORD.findall(CHINESE_FILLER.sub(" ", text))
    return [word for word in latin if word not in _WEAK | _UNITS and not {word, stem(word)} & SPOKEN] + chinese
