"""The rows, or the groups, with the largest or the smallest values of a column."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

from . import reading
from .columns import find
from .counting import counts
from .names import quoted, short
from .phrases import stats
from .query import Query, listed
from .recipe import Recipe, Task
from .showing import ADDED, SMALL, shown, which
from .tables import group


def _of_groups(query: Query, words: str) -> str:
    """The statistic by which groups are ranked: the one that is named, the sum for "the most units", else the mean."""
    named = [each for each in stats(words) if each not in ("min", "max")]
    if named:
        return named[0]
    most = re.search(r"\b(?:most|fewest|least)\b(?! (?:expensive|common))|最多|最少", words, re.I)
    added = query.measures and ADDED.search(query.measures[0])
    numbered = re.search(r"\d|前\s*[一二三四五十]", words)
    return "sum" if most or (numbered and added) else "mean"


def _counted(query: Query, groups: Sequence[str]) -> bool:
    """Whether "top 3 customers by revenue" or "销售额最高的前3个城市" wants groups: the column is what is counted."""
    if not groups:
        return False
    words = query.rest or query.words
    named = [each for each in find(words, query.frame.columns) if each.column in groups]
    spoken = "|".join(re.escape(words[each.start : each.end]) for each in named)
    counted = rf"(?:\d+|\b(?:two|three|four|five|ten)\b|[一二两三四五十])\s*(?:\w+\s+)?(?:个|家|位|种)?\s*(?:{spoken})"
    return bool(spoken and re.search(counted, words, re.I))


def top(task: Task, query: Query) -> Recipe:
    """The rows with the largest (or smallest) values of a column."""
    frame = query.frame
    asking = re.search(r"\b(?:which|what|who)\b|哪|谁|最\S的[^的]{1,8}$", query.words, re.I)
    asks = asking and not re.search(r"\d", query.rest)
    rest = query.rest or query.words
    groups = tuple(
        each for each in query.mentions
        if not frame.numeric(each) and not frame.temporal(each) and frame.few(each, 150)
        and frame.unique.get(each, 0) < frame.rows
    )  # fmt: skip
    groups = groups or tuple(each for each in query.mentions if each in query.groups)
    if query.measures and ((asks and (groups or query.units)) or _counted(query, groups)):
        # "Which species is the heaviest?" asks about species, not about single rows.
        wanted = _of_groups(query, rest)
        return (yield from group(task, replace(query, groups=groups[:1], stat=wanted)))
    if not query.measures and (groups or query.units):
        return (yield from counts(task, replace(query, groups=groups[:1])))
    if not query.measures:
        raise which(task, frame, "numeric column")
    column, small = query.measures[0], bool(SMALL.search(query.rest))
    single = re.search(r"\b(?:which|who|what)\b|哪|谁", query.words, re.I) and not re.search(r"\d", query.rest)
    many = query.many(3 if single else 5)
    labels = [c for c in frame.columns if not frame.numeric(c) and c not in query.measures]
    labels = sorted(
        labels,
        key=lambda c: (c not in (*query.groups, *query.mentions), not re.search(r"name|title|country|名", c, re.I)),
    )[:3]
    method, name = ("nsmallest", "smallest") if small else ("nlargest", "largest")
    headers = [*labels, column]
    made = task.fresh(f"{name}_{short(column)}" if short(column).isidentifier() else name)
    code = f"{query.start}{made} = {query.source}.{method}({many}, {quoted(column)})[{listed(headers)}]"
    if frame.most(column) >= 1e6:
        code += f'.round({{{quoted(column)}: 0}}).astype({{{quoted(column)}: "Int64"}})'
    code += f"\n{made}"
    step = yield from task.sure(code, f"The {many} rows with the {name} {column}.")
    table = [row[1:] for row in reading.rows(step.text, headers)]
    head = task.say(
        f"The {many} rows with the {name} `{column}`{query.where}",
        f"`{column}` 最{'小' if small else '大'}的 {many} 行{query.where}",
    )
    if table:
        head += task.say(f", from {reading.pretty(table[0][-1])}:", f"，第一行是 {reading.pretty(table[0][-1])}：")
    return shown(task, head, headers, step.text)
