"""Conditions on groups: "customers with more than 70 orders", "cities whose average amount is over 100"."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from .columns import Mention, stem, words
from .comparing import NUMBER, OPERATOR, amount, operator_named
from .conditions import Condition, Filter
from .phrases import stat

_ROWS = "rows?|records?|entries|observations?|times|cases|行|条|笔|次|条?记录"
_OR_MORE = r"(?:or more|or fewer|or less|以上|以下)"


@dataclass(frozen=True, slots=True)
class Having:
    """Groups whose size (`column` empty) or whose `stat` of a column compares so. `span`: the words that say it."""

    operator: str
    value: str
    span: tuple[int, int]
    column: str = ""
    stat: str = ""
    filter: Filter | None = None


def by_rows(text: str, table: str, columns: Sequence[str]) -> Having | None:
    """A comparison of a number of rows: rows are called so, or by the table's name, or by that of a column of ids."""
    own = {table, stem(table.lower()), *(each for each in (_plural(stem(table.lower())),) if each)}
    for column in columns:
        parts = words(column)
        if len(parts) > 1 and parts[-1] == "id":
            own |= {parts[-2], _plural(parts[-2])}
    orders = [
        word for word, other in (("订单", "订单(?!号|编号|[iI][dD])"), ("人数", "人数"), ("人", "人数"))
        if not any(re.search(other, column) for column in columns)
    ]  # fmt: skip
    nouns = "|".join([*map(re.escape, sorted(filter(None, own), key=len, reverse=True)), *orders, _ROWS])
    edge = r"(?![A-Za-z0-9_])"
    found = re.search(rf"(?P<op>{OPERATOR}|exactly)\s*{NUMBER}\s*(?:个|of the)?\s*(?:{nouns}){edge}", text, re.I)
    if found:
        said = found["op"]
        operator = "==" if said.lower() == "exactly" else operator_named(said)
        return Having(operator, amount(found[2], found[3]), found.span())
    found = re.search(rf"{NUMBER}\s*(?P<tail>{_OR_MORE})\s*(?:的)?\s*(?:{nouns}){edge}", text, re.I)
    if found:
        operator = ">=" if re.search("more|以上", found["tail"]) else "<="
        return Having(operator, amount(found[1], found[2]), found.span())
    counted = rf"(?:{nouns})\s*(?:数量?|个数)?"
    found = re.search(rf"{counted}\s*(?P<op>{OPERATOR})\s*{NUMBER}\s*(?:个|次|条|笔|行)?", text, re.I)
    if found and re.search(r"[\u3400-\u9fff]", found["op"]):
        return Having(operator_named(found["op"]), amount(found[2], found[3]), found.span())
    return None


def _plural(word: str) -> str:
    return f"{word[:-1]}ies" if word.endswith("y") else f"{word}s"


def by_stat(
    text: str, conditions: Sequence[Condition], mentions: Sequence[Mention], few: Callable[[str, int], bool]
) -> Having | None:
    """A comparison whose column has a statistic before it: "total revenue over 5000", where a group is named."""
    for each in conditions:
        found = re.search(
            r"(?:\b(?:total|sum|average|mean|median|maximum|minimum|avg)\b|总|平均|合计|中位数?|累计)\s*(?:of"
            r"|的)?\s*(?:the)?\s*$",
            text[: each.start], re.I,
        )  # fmt: skip
        groups = [m for m in mentions if few(m.column, 150) and m.column != each.filter.column]
        if found and groups and each.filter.operator in (">", "<", ">=", "<=", "=="):
            span = (found.start(), each.end)
            return Having(
                each.filter.operator, each.filter.value, span, each.filter.column, stat(found[0], "mean"), each.filter
            )
    return None
