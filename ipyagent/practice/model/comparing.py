"""Comparisons with numbers, on either side of a column: "units over 5", "more than 15 units", "older than 30"."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

from .columns import Mention, find
from .conditions import BETWEEN_NOT, NOT, Condition, Filter, Shape, Span

_ONES = {
    "zero": 0, "one": 1, "two": 2, "three": 3, "four": 4, "five": 5, "six": 6, "seven": 7, "eight": 8, "nine": 9,
    "ten": 10, "eleven": 11, "twelve": 12,
}  # fmt: skip
_ONES |= {"fifteen": 15, "twenty": 20, "thirty": 30, "forty": 40, "fifty": 50, "hundred": 100}
_HAN = dict(zip("零一二三四五六七八九", range(10), strict=True)) | {"两": 2}
_TIMES = {"k": 1e3, "thousand": 1e3, "million": 1e6, "万": 1e4, "千": 1e3, "亿": 1e8, "百万": 1e6}
NUMBER = (
    rf"(?:[$€£¥]\s*)?((?<![\d.])-?\d[\d,]*(?:\.\d+)?|\b(?:{'|'.join(_ONES)})\b|[零一二两三四五六七八九十百千]+)"
    r"\s*(k\b|thousand\b|million\b|百万|万|千|亿|%)?(?![A-Za-z0-9_]|[-/:]\d|[.,]\d)"
)
_OPERATORS = (
    (">=", r">=|=>|≥|at least|no (?:less|fewer|lower|under) than|not (?:less|fewer|lower) than|not (?:under|below)"
           r"|(?:a )?minimum (?:of)?|不少于|不低于|不小于|大于(?:或者?)?等于|至少|最少"),
    ("<=", r"<=|=<|≤|at most|no more than|not more than|not (?:over|above|exceeding)|up to|(?:a )?maximum (?:of)?"
           r"|不超过|不高于|不大于|不多于|小于(?:或者?)?等于|至多|最多"),
    ("!=", r"!=|<>|≠|(?:is |are |was |were )?not equal(?: to)?|(?:is|are|was|were)(?: not|n't)|不等于|不是|不为"),
    (">", r">|over|above|(?:more|greater|larger|higher|bigger|longer|older|heavier|later|taller|better) than"
          r"|exceed(?:s|ing|ed)?|beyond|大于|超过|高于|多于|超出|大过|重于|长于"),
    ("<", r"<|under|below|(?:less|lower|smaller|fewer|shorter|younger|lighter|earlier|cheaper) than"
          r"|小于|低于|少于|不到|不足|未满|轻于|短于"),
    ("==", r"==?|equals?(?: to)?|exactly|is|are|was|were|等于|正好|恰好|为|是"),
)  # fmt: skip
OPERATOR = "|".join(f"(?:{pattern})" for _, pattern in _OPERATORS[:5])
UNIT = "(?:岁|个|元|分|人|件|次|块|名|条|米|公斤)?"
_BEHIND = (
    (">=", r"\+|or (?:more|over|above|higher|older|greater|larger|heavier|longer)\b"
           r"|and (?:over|above|more|up|older|higher)\b" rf"|{UNIT}(?:及|或)?以上"),
    ("<=", r"or (?:less|fewer|under|below|lower|younger|smaller|lighter|shorter)\b|and (?:under|below|younger|less)\b"
           rf"|{UNIT}(?:(?:及|或)?以下|以内|之内)"),
)  # fmt: skip
_AND = r"\s*(?:and|to|through|-|–|~|到|至|和|与)\s*"
_BETWEEN = r"(not\s+|不)?(?:between|from|in the range(?: of)?|ranging from|介于|从|在)\s*"
_FILL = r"\s*(?:(?:column|values?|分数|成绩|都在|在|that|which|of|has|have|being|be|is|are|was|were|的|值|都|,)\s*)*"
_GAP = r"\s*(?:(?:个|件|岁|名|元|条|分|次|only|for|as|of|in|the|的|different)\s*)*"
_HIGHER = {
    "older": "age", "younger": "age", "heavier": "weight", "lighter": "weight", "longer": "length", "shorter": "length",
    "cheaper": "price", "taller": "height", "dearer": "price",
}  # fmt: skip
_LESS = frozenset({"younger", "lighter", "shorter", "cheaper"})
_AGED = re.compile(
    rf"\baged?\s+(?:of\s+)?(?P<op>{OPERATOR})?\s*{NUMBER}|(?P<op2>{OPERATOR}|\bunder|\bover)\s*{NUMBER}\s*"
    r"(?:years?(?: old| of age)|岁)"
    rf"|{NUMBER}\s*(?:岁|years?(?: old| of age)\s*)(?P<tail>(?:及|或)?以上|(?:及|或)?以下|以内|or (?:older|over|above)"
    r"|and (?:older|over|above)|or (?:younger|under)|and (?:younger|under))?"
    r"|\b(?:people|persons?|passengers?|patients?|customers?|employees?|those|women|men|males?|females?|children|adults"
    rf"|members|users|everyone|students?|workers?)\s+(?P<op3>over|under|above|below)\s+{NUMBER}(?!\s*%)",
    re.I,
)
_AGES = re.compile(
    rf"(?:\b(?:age|aged|between|from)\s*|在|从|介于)*{NUMBER}\s*岁?{_AND}{NUMBER}\s*(?:years?(?: old| of age)|岁)"
    rf"(?:之间)?|\baged?\s+(?:between\s+|from\s+)?{NUMBER}{_AND}{NUMBER}(?:\s*years)?", re.I
)  # fmt: skip


def amount(text: str, unit: str | None) -> str:
    """A number as it was written, as Python source."""
    lowered = text.lower().replace(",", "")
    if lowered in _ONES:
        value = float(_ONES[lowered])
    elif re.fullmatch(r"[零一二两三四五六七八九十百千]+", lowered):
        value = float(_han(lowered))
    elif not unit or unit == "%":
        return lowered.rstrip(".")
    else:
        value = float(lowered)
    value *= _TIMES.get((unit or "").lower(), 1)
    return str(int(value)) if value == int(value) else str(value)


def _han(text: str) -> int:
    total, digit = 0, 0
    for sign in text:
        if sign in _HAN:
            digit = _HAN[sign]
        else:
            total, digit = total + max(digit, 1) * {"十": 10, "百": 100, "千": 1000}[sign], 0
    return total + digit


def comparisons(words: str, shape: Shape, free: Callable[[int], bool]) -> list[Condition]:
    """Conditions on numbers ("body mass over 4000", "more than 15 units", "between 5 and 10 units", "older than 30").

    `free`: whether a place in the text is not taken by another condition.
    """
    made = _by_adjective(words, shape)
    seen: list[Span] = [(each.start, each.end) for each in made]
    made_of = _all_mentions(words, shape.numbers)
    for each in made_of:
        if not free(each.start) or any(a <= each.start < b for a, b in seen):
            continue
        before = [m for m in made_of if m.end <= each.start and _ALSO.fullmatch(words[m.end : each.start])]
        both = before and re.match(r"\s*(?:成绩|分数)?都", words[each.end :])
        for found in map(partial(_inverted, words), _around(words, each, shape)):
            if free(found.start) and not any(a < found.end and found.start < b for a, b in seen):
                made.append(found)
                if both:
                    made.append(Condition(replace(found.filter, column=before[-1].column), before[-1].start, found.end))
                seen.append((found.start, found.end))
    return made


_ALSO = re.compile(r"\s*(?:和|与|、|,|and)\s*")
_OPPOSITE = {"==": "!=", "!=": "==", ">": "<=", "<=": ">", "<": ">=", ">=": "<", "between": "not between",
             "not between": "between"}  # fmt: skip


def _inverted(words: str, found: Condition) -> Condition:
    """The condition, or its opposite where a "not" stands before it: "not in class 3"."""
    at = list(NOT.finditer(words[: found.start]))
    if not at or not BETWEEN_NOT.fullmatch(words[at[-1].end() : found.start]):
        return found
    if re.search(r"有没有$|是不是$", words[: at[-1].end()]):
        return found
    return Condition(replace(found.filter, operator=_OPPOSITE[found.filter.operator]), at[-1].start(), found.end)


def _all_mentions(words: str, columns: Sequence[str]) -> list[Mention]:
    """Mentions of columns, a column as often as it is named."""
    found: list[Mention] = []
    for _ in range(3):
        new = find(words, columns)
        if not new:
            break
        found += new
        for each in new:
            words = words[: each.start] + "\x01" * (each.end - each.start) + words[each.end :]
    return sorted(found, key=lambda each: each.start)


def _by_adjective(words: str, shape: Shape) -> list[Condition]:
    made: list[Condition] = []
    for match in re.finditer(rf"\b({'|'.join(_HIGHER)}) than {NUMBER}", words, re.I):
        column = next((each.column for each in find(_HIGHER[match[1].lower()], shape.numbers)), None)
        if column:
            operator = "<" if match[1].lower() in _LESS else ">"
            made.append(Condition(Filter(column, operator, amount(match[2], match[3])), *match.span()))
    age = next((each for each in shape.numbers if each.strip().lower() in ("age", "年龄", "ages", "岁数")), None)
    if age is None:
        return made
    for match in _AGES.finditer(words):
        low, high = (match[1], match[3]) if match[1] else (match[5], match[7])
        ends = f"{amount(low, None)}, {amount(high, None)}"
        made.append(Condition(Filter(age, "between", ends), *match.span()))
    for match in _AGED.finditer(words):
        number = next((match[at], match[at + 1]) for at in _PLACES if match[at])
        said = (match["op"] or match["op2"] or match["op3"] or "").strip()
        tail = match["tail"] or ""
        at_least = re.search("以上|older|over|above", tail)
        operator = operator_named(said) if said else ">=" if at_least else "<=" if tail else "=="
        if not any(each.start < match.end() and match.start() < each.end for each in made):
            made.append(Condition(Filter(age, operator, amount(*number)), *_lean(words, match)))
    return made


_PLACES = [at for at in range(1, _AGED.groups) if at not in _AGED.groupindex.values()][::2]


def _lean(words: str, match: re.Match[str]) -> Span:
    """The span of an age without the people before it, who may be a condition of their own."""
    start = match.start("op3") if match["op3"] else match.start()
    lead = re.search(r"\b(?:age|年龄)\s*(?:is|在|为)?\s*$", words[:start], re.I)
    return (lead.start() if lead else start), match.end()


def operator_named(said: str) -> str:
    """The operator that words say."""
    return next(name for name, pattern in _OPERATORS if re.fullmatch(pattern, said.strip(), re.I))


def _around(words: str, each: Mention, shape: Shape) -> list[Condition]:
    """The comparison behind a column, or before it, and a second one joined to the first."""
    rest, head = words[each.end :], words[: each.start]
    if found := _behind(rest):
        operator, value, length = found
        if operator != "==" or not re.match(r"\s*[\d.,]*\s*(?:bins?|groups?|组|个区间)", rest[length:]):
            only = Filter(each.column, operator, _scaled(value, each, shape))
            made = [Condition(only, each.start, each.end + length)]
            again = re.match(
                rf"\s*(?:and|but|or|且|并且|,|，|但|或者?)\s*(?:is\s+|are\s+)?({OPERATOR})\s*{NUMBER}",
                rest[length:], re.I,
            )  # fmt: skip
            then = rest[length + again.end() :][:25].split(",")[0] if again else ""
            if again and operator != "between" and not find(then, shape.numbers):
                second = Filter(each.column, operator_named(again[1]), amount(again[2], again[3]))
                made.append(Condition(second, each.end + length + again.start(1), each.end + length + again.end()))
            return made
    if found := _before(head):
        operator, value, length = found
        start = each.start - length
        return [Condition(Filter(each.column, operator, _scaled(value, each, shape)), start, each.end)]
    before = re.search(rf"(?<![\w.]){NUMBER}\s*$", head, re.I)
    after = re.match(rf"\s*{NUMBER}", rest, re.I)
    number = after or before
    if number is None or (re.search(r"top|first|largest|前|bins?", words, re.I) and number is before):
        return []
    value = amount(number[1], number[2])
    counted = before is not None and re.search(r"(?:with|have|has|had|exactly|有)\s*$", head[: before.start()], re.I)
    if value not in shape.values.get(each.column, ()) and not (number is before and counted):
        return []
    start = number.start() if number is before else each.start
    return [Condition(Filter(each.column, "==", value), start, each.end + (number.end() if number is after else 0))]


def _scaled(value: str, each: Mention, shape: Shape) -> str:
    """The value; a share in percent as a number up to 1 where the column holds such."""
    if value.endswith("%"):
        number = float(value[:-1])
        return str(number / 100) if shape.highs.get(each.column, 100) <= 1 else value[:-1]
    return value


def _value(found: re.Match[str], at: int) -> str:
    return amount(found[at], found[at + 1]) + ("%" if found[at + 1] == "%" else "")


def _behind(rest: str) -> tuple[str, str, int] | None:
    """Operator, value and length of a comparison at the start of a text."""
    end = rf"{NUMBER}\s*{UNIT}\s*(?:之间|的范围|范围内)?"
    found = re.match(rf"{_FILL}{_BETWEEN}{NUMBER}{UNIT}{_AND}{end}", rest, re.I) or re.match(
        rf"{_FILL}(){NUMBER}{UNIT}\s*(?:to|-|–|~|到|至)\s*{end}", rest, re.I
    )
    if found:
        name = "not between" if found[1] else "between"
        return name, f"{_value(found, 2)}, {_value(found, 4)}".replace("%", ""), found.end()
    for operator, pattern in _BEHIND:
        if found := re.match(rf"{_FILL}{NUMBER}\s*(?:{pattern})", rest, re.I):
            return operator, _value(found, 1), found.end()
    for operator, pattern in _OPERATORS:
        if found := re.match(rf"{_FILL}(?:{pattern})\s*{NUMBER}", rest, re.I):
            return operator, _value(found, 1), found.end()
    return None


def _before(head: str) -> tuple[str, str, int] | None:
    """Operator, value and length of a comparison at the end of a text."""
    found = re.search(rf"{_BETWEEN}{NUMBER}{_AND}{NUMBER}{_GAP}$", head, re.I) or re.search(
        rf"(){NUMBER}\s*(?:to|-|–|~|到|至)\s*{NUMBER}{_GAP}$", head, re.I
    )
    if found:
        name = "not between" if found[1] else "between"
        return name, f"{_value(found, 2)}, {_value(found, 4)}".replace("%", ""), len(head) - found.start()
    for operator, pattern in _BEHIND:
        if found := re.search(rf"(?<![\w.]){NUMBER}\s*(?:{pattern}){_GAP}$", head, re.I):
            return operator, _value(found, 1), len(head) - found.start()
    for operator, pattern in (*_OPERATORS[:5], ("==", "exactly|正好|恰好")):
        edge = r"\b" if not pattern.startswith(">") else r"(?<!\w)"
        if found := re.search(rf"(?:{edge}|(?<=[\u3400-\u9fff]))(?:{pattern})\s*{NUMBER}{_GAP}$", head, re.I):
            return operator, _value(found, 1), len(head) - found.start()
    return None
