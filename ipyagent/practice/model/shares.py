"""Answers in percent: the share of rows that meet a condition, of each value, or of a sum; by groups where asked."""

from __future__ import annotations

import re
from dataclasses import replace

from . import reading
from .conditions import Filter
from .names import quoted, result
from .query import Query
from .recipe import Recipe, Task
from .showing import MOST_GROUPS, keyed, of_years, shown, which, years
from .tables import is_id


def share(task: Task, query: Query) -> Recipe:
    """The share that a request asks for, with the numbers it is made of."""
    measures = [each for each in query.measures if not is_id(each, query.frame)]
    if not query.filters and not query.groups and not query.units:
        flags = [each for each in query.mentions if query.frame.dtypes[each].startswith("bool")]
        texts = [each for each in query.mentions if not query.frame.numeric(each) and each not in flags]
        if flags:
            return (yield from _of_rows(task, replace(query, filters=(Filter(flags[0], "==", "True"),))))
        if not texts:
            raise which(task, query.frame, "column to group by")
        query = replace(query, groups=tuple(texts[:1]))
    if measures:
        return (yield from _of_sum(task, query, measures[0]))
    flags = [each for each in query.groups if query.frame.dtypes[each].startswith("bool")]
    if flags and len(query.groups) == 1 and not query.filters and not query.units:
        return (yield from _of_values(task, query))
    if query.filters and len(query.filters) > query.base:
        return (yield from _of_rows(task, query))
    return (yield from _of_values(task, query))


def _of_rows(task: Task, query: Query) -> Recipe:
    """How many percent of the rows (of the first conditions' rows) meet the other conditions, by group if asked."""
    base, met = replace(query, filters=query.filters[: query.base]), query.filters[query.base :]
    met_query = replace(query, filters=met)
    name, rows = task.fresh("meets"), base.source
    condition = " & ".join(f"({each.code(rows)})" for each in met) if len(met) > 1 else met[0].code(rows)
    if query.either:
        condition = condition.replace(") & (", ") | (")
    told = f"{met_query.told}"
    among = f" ({base.told})" if base.filters else ""
    if query.groups or query.units:
        keys, by, dated = keyed(base, query.groups)
        table, headers = task.fresh(result("share", keys)), [*keys, "percent", "meet", "rows"]
        code = (
            f"{base.start}{years(base)}{dated}{name} = {condition}\n"
            f'{table} = {name}.groupby({by if dated else _series(rows, query.groups)}).agg(["mean", "sum", "count"])\n'
            f'{table}.columns = ["percent", "meet", "rows"]\n'
            f'{table}["percent"] = ({table}["percent"] * 100).round(2)\n{table}.reset_index().head({MOST_GROUPS * 2})'
        )
        if dated and query.groups:
            code = code.replace(f".groupby({by})", f".groupby({_both(by, rows)})")
        step = yield from task.sure(code, f"The percentage of rows with {told} in each group.")
        over = ", ".join(f"`{each}`" for each in keys)
        head = task.say(
            f"Percentage of the rows of `{query.frame.name}`{among} with {told}, by {over}",
            f"`{query.frame.name}`{among} 中满足 {told} 的行所占百分比，按 {over}",
        )
        head += of_years(task, base, step.text)
        return shown(task, head + task.say(":", "："), headers, step.text)
    code = (
        f"{base.start}{name} = {condition}\n"
        f'print("percent =", round({name}.mean() * 100, 2), "meet =", {name}.sum(), "rows =", len({name}))'
    )
    step = yield from task.sure(code, f"The percentage of rows with {told}.")
    percent, meet = reading.named(step.text, "percent"), reading.named(step.text, "meet")
    number = reading.named(step.text, "rows")
    if percent is None:
        return f"```text\n{step.text.strip()[:500]}\n```"
    return task.say(
        f"**{percent} %** of the rows of `{query.frame.name}`{among} have {told}: {meet} of {number}.",
        f"`{query.frame.name}`{among} 中有 **{percent} %** 的行满足 {told}：{number} 行中的 {meet} 行。",
    )


def _series(rows: str, groups: tuple[str, ...]) -> str:
    columns = [f"{rows}[{quoted(each)}]" for each in groups]
    return columns[0] if len(columns) == 1 else f"[{', '.join(columns)}]"


def _both(by: str, rows: str) -> str:
    """Keys of which some are columns' names, as series."""
    return re.sub(r'"(?:[^"\\]|\\.)*"', lambda found: f"{rows}[{found[0]}]", by)


def _of_values(task: Task, query: Query) -> Recipe:
    """How many percent of the rows have each value of a column."""
    name = query.frame.name
    head = f"Percentage of the rows of `{name}`{query.where} by %s", f"`{name}`{query.where} 中各 %s 的行所占百分比"
    return (yield from _table(task, query, "share", ".size()", "n", "rows for each value", head))


def _table(task: Task, query: Query, name: str, value: str, amount: str, of: str, head: tuple[str, str]) -> Recipe:
    """The percentages of an amount by groups; `head`: the line above them in both languages, %s for the groups."""
    keys, by, dated = keyed(query, query.groups, linear=True)
    table = task.fresh(result(name, keys))
    rounded = f'{table}["{amount}"] = {table}["{amount}"].round(2)\n' if amount == "sum" else ""
    code = (
        f'{query.start}{dated}{table} = {query.source}.groupby({by}){value}.reset_index(name="{amount}")\n'
        f'{table}["percent"] = ({table}["{amount}"] / {table}["{amount}"].sum() * 100).round(2)\n{rounded}'
        f'{table}.sort_values("{amount}", ascending=False, ignore_index=True).head({MOST_GROUPS})'
    )
    step = yield from task.sure(code, f"The percentage of {of} of {', '.join(keys)}.")
    over = ", ".join(f"`{each}`" for each in keys)
    said = task.say(*(words.replace("%s", over) for words in head)) + task.say(":", "：")
    return shown(task, said, [*keys, amount, "percent"], step.text)


def _of_sum(task: Task, query: Query, column: str) -> Recipe:
    """How many percent of the sum of a column each group has, or the rows of the conditions."""
    frame = query.frame
    if query.groups or query.units:
        words = (
            f"Percentage of the sum of `{column}`{query.where} by %s", f"`{column}` 总和{query.where}中各 %s 所占百分比"
        )  # fmt: skip
        value, of = f"[{quoted(column)}].sum()", f"the sum of {column} for each"
        return (yield from _table(task, query, f"share_of_{column}", value, "sum", of, words))
    base, met = replace(query, filters=query.filters[: query.base]), replace(query, filters=query.filters[query.base :])
    whole, part = task.fresh("whole"), task.fresh("part_of_it")
    condition = " & ".join(f"({each.code(base.source)})" for each in met.filters)
    code = (
        f"{base.start}{whole} = {base.source}[{quoted(column)}].sum()\n"
        f"{part} = {base.source}.loc[{condition}, {quoted(column)}].sum()\n"
        f'print("percent =", round({part} / {whole} * 100, 2))\n'
        f'print("part =", round({part}, 2), "whole =", round({whole}, 2))'
    )
    step = yield from task.sure(code, f"The percentage of the sum of {column} with {met.told}.")
    percent, some = reading.named(step.text, "percent"), reading.named(step.text, "part")
    total = reading.named(step.text, "whole")
    if percent is None:
        return f"```text\n{step.text.strip()[:500]}\n```"
    among = f" ({base.told})" if base.filters else ""
    return task.say(
        f"**{percent} %** of the sum of `{column}` in `{frame.name}`{among} is of rows with {met.told}: "
        f"{reading.pretty(some or '?')} of {reading.pretty(total or '?')}.",
        f"`{frame.name}`{among} 的 `{column}` 总和中，{met.told} 的行占 **{percent} %**："
        f"{reading.pretty(total or '?')} 中的 {reading.pretty(some or '?')}。",
    )
