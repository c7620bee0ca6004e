"""Which of several tables a request means: the one it names, else the one that has the columns or values it names.

A name of Chinese characters stands in a text without spaces, so it is looked for anywhere in it, but never inside a
longer name of a column: 销售额 does not name the table 销售.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping

from .columns import chinese_names, find, find_values
from .knowledge import Knowledge
from .phrases import english
from .schema import Schema

NAME = r"[^\W\d]\w*"
_HAN = re.compile(r"[\u3400-\u9fff]")
_SURE = 4.5
"""The score of a mention below which it is a likely misspelling only."""


def names_in(text: str, names: Iterable[str], columns: Collection[str] = ()) -> list[str]:
    """Those of the names that the text holds, in its order; `columns` are longer words that may hold one of them."""
    found: dict[str, int] = {}
    taken: list[tuple[int, int]] = []
    wanted = set(names)
    longer = {each for each in columns if _HAN.search(each)} - wanted
    for name in sorted(wanted | longer, key=len, reverse=True):
        pattern = re.escape(name)
        if not _HAN.search(name):
            pattern = rf"(?<![A-Za-z0-9_]){pattern}(?![A-Za-z0-9_])"
        for match in re.finditer(pattern, text):
            if any(a < match.end() and match.start() < b for a, b in taken):
                continue
            taken.append(match.span())
            if name in wanted:
                found.setdefault(name, match.start())
    return sorted(found, key=lambda each: found[each])


def columns_of(known: Knowledge) -> set[str]:
    """All names of columns that are known."""
    return {column.strip() for table in known.tables.values() for column in table.dtypes}


def explained(text: str, table: Schema, counts: Mapping[str, Mapping[str, int]] | None = None) -> float:
    """How much of a text a table explains: its columns and values that are named, whole names a little more."""
    values: dict[str, tuple[str, ...]] = {key: tuple(each) for key, each in table.examples.items()}
    values |= {key: tuple(each) for key, each in (counts or {}).items()}
    words = english(text, chinese_names(table.dtypes, values))
    mentions = [each for each in find(words, list(table.dtypes)) if each.score >= _SURE]
    named = find_values(words, values, mentions)
    exact = sum(min(each.score, 20) / 1000 + (each.end - each.start) / 10_000 for each in mentions)
    core = re.sub(r"(?:_?(?:df|data|table))$|^(?:df|data)_|(?:数据表|数据|表|明细)$", "", table.name)
    called = core != table.name and len(core) > 1 and names_in(text, [core], table.dtypes)
    return len(mentions) + len(named) + bool(called) + exact


def _exact(text: str, table: Schema) -> bool:
    """Whether the text names a column by its whole name in Chinese characters."""
    return any(_HAN.search(column) and column.strip() in text for column in table.dtypes)


def fitting(known: Knowledge, text: str, among: Iterable[str], standing: str = "") -> str:
    """The table that explains most of the text; `standing` unless another explains at least one name more; "" when
    none explains any."""
    own = known.own - known.loaded
    scores = {
        name: explained(text, known.tables[name], known.counts.get(name))
        for name in among if name in known.tables and (name not in own or name == standing)
    }  # fmt: skip
    if standing and standing not in scores:
        return standing
    sure = {name for name in scores if _exact(text, known.tables[name])}
    order = {name: (int(score), name in sure, score, known.tables[name].rows) for name, score in scores.items()}
    best = max(scores, key=lambda each: order[each], default="")
    if standing in scores and int(scores[best]) == int(scores[standing]) and best in sure and standing not in sure:
        return best
    if not best or scores[best] < 1:
        return standing
    return best if int(scores[best]) > int(scores.get(standing, 0)) or not standing else standing
