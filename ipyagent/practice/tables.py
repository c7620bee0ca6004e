"""Answers that are a number or a small table: groups, counts, the largest rows, missing values, a profile.

Each recipe runs short pandas code, reads the printed result, and says what it shows.
"""

from __future__ import annotations

import math
import re
from dataclasses import replace

from . import reading
from .frames import Frame
from .names import fresh, quoted, result, short
from .phrases import STAT_NAMES, stats
from .query import Query, listed
from .recipe import Ending, Recipe, Task

MOST_GROUPS = 20


def shown(task: Task, headline: str, headers: list[str], text: str) -> str:
    """A headline with the table found in a result, or with the result itself when it cannot be read."""
    table = [row[1:] for row in reading.rows(text, headers)]
    if not table:
        return f"{headline}\n\n```text\n{text.strip()[:2000]}\n```"
    return f"{headline}\n\n{reading.markdown(headers, table)}"


def which(task: Task, frame: Frame, what: str) -> Ending:
    """Ends the turn with the columns there are, when the request names none that fits."""
    names = ", ".join(f"`{column}`" for column in frame.columns[:40])
    return Ending(
        task.say(
            f"I found no {what} in your request that matches a column of `{frame.name}`. Its columns are: {names}.",
            f"在你的问题里没有找到与 `{frame.name}` 的列对应的{_ZH[what]}。它的列有：{names}。",
        )
    )


_ZH = {"column": "列", "column to group by": "分组列", "numeric column": "数值列"}


def rounding(largest: float) -> str:
    """The pandas calls that make numbers up to this size print plainly and with three or four digits that count."""
    if largest >= 1e6:
        return '.round().astype("Int64")'
    return f".round({digits(largest)})"


def digits(largest: float) -> int:
    """Decimals to round numbers up to this size to: two, more when all are small."""
    return 2 if largest != largest or largest >= 10 else 3 if largest >= 1 else 4 if largest >= 0.1 else 6


def by_year(query: Query) -> tuple[str, str, str]:
    """A grouping "by year" or "by month" of a date column that is no column itself: unit, key and lines."""
    part = re.search(r"\b(?:by|per|each)\s+(year|month)\b|按\s*(年|月|year|month)", query.words, re.I)
    dates = [column for column in query.frame.columns if query.frame.temporal(column)]
    if query.groups or not part or not dates:
        return "", "", ""
    unit = "month" if (part[1] or part[2]).lower() in ("month", "月") else "year"
    key = fresh(unit, query.taken)
    line = f'{key} = pd.to_datetime({query.source}[{quoted(dates[0])}]).dt.{unit}.rename("{unit}")\n'
    return unit, key, f"import pandas as pd\n\n{query.start}{line}"


def group(task: Task, query: Query) -> Recipe:
    """A statistic of numeric columns for each group."""
    frame, stat = query.frame, query.stat or ("mean" if query.measures else "count")
    unit, key, dated = by_year(query)
    if not query.groups and not unit:
        raise which(task, frame, "column to group by")
    keys = list(query.groups) or [unit]
    if stat == "count" and not query.measures:
        return (yield from counts(task, query))
    measures = (
        list(query.measures)
        or [c for c in frame.columns if frame.numeric(c) and c not in keys and not _is_id(c, frame)][:4]
    )
    if not measures:
        return (yield from counts(task, query))
    by = key if unit else quoted(keys[0]) if len(keys) == 1 else listed(keys)
    name = task.fresh(result(measures[0] if len(measures) == 1 else "means" if stat == "mean" else stat, keys))
    if stat != "mean" and len(measures) == 1:
        name = task.fresh(f"{stat}_{result(measures[0], keys)}")
    rounded = rounding(max((frame.most(each, stat) for each in measures), key=lambda size: (size == size, size)))
    if len(measures) == 1:
        columns = list(dict.fromkeys([stat, "count"]))
        made = f"[{quoted(measures[0])}].agg({listed(columns)})"
    else:
        columns, made = measures, f"[{listed(measures)}].{stat}()"
    # The keys become columns at the end; they must not meet columns of the same name.
    again = [each for each in keys if each in columns]
    made += "".join(f'.rename(columns={{{quoted(each)}: {quoted(each + " ")}}})' for each in again)
    columns = [each + " " if each in again else each for each in columns]
    sizes = [frame.unique.get(each, 1) for each in query.groups]
    sort = f".nlargest({MOST_GROUPS}, {quoted(columns[0])})" if math.prod(sizes) > 2 * MOST_GROUPS and not unit else ""
    code = f"{dated or query.start}{name} = {query.source}.groupby({by}){made}%s{sort}.reset_index()\n{name}"
    step = yield from task.sure(
        code.replace("%s", rounded, 1), f"Group by {', '.join(keys)}, then {stat} of {', '.join(measures)}.",
        code.replace("%s", ".round(2)", 1),
    )  # fmt: skip
    headers = [*keys, *columns]
    if re.search(r"^\s*\.{2,3}(?:\s|$)", step.text, re.M):
        sort = f".nlargest({MOST_GROUPS}, {quoted(columns[0])})"
        code = f"{name}{sort}.reset_index(drop=True)"
        step = yield from task.sure(code, "pandas left rows out when it printed; the largest are shown.")
    table = [row[1:] for row in reading.rows(step.text, headers)]
    label = task.say(*STAT_NAMES[stat])
    what, over = ", ".join(f"`{each}`" for each in measures), ", ".join(f"`{each}`" for each in keys)
    head = task.say(f"The {label} of {what} by {over}{query.where}", f"按 {over} 分组的 {what} 的{label}{query.where}")
    found = reading.extremes(table, len(keys)) if len(table) > 1 else None
    cut = bool(sort) and len(table) >= MOST_GROUPS
    if found:
        most, least = (f"{' / '.join(row[: len(keys)])} ({reading.pretty(row[len(keys)])})" for row in found)
        head += task.say(f": highest for {most}", f"：最高的是 {most}")
        head += "" if cut else task.say(f", lowest for {least}", f"，最低的是 {least}")
        head += task.say(".", "。")
    if cut:
        head += task.say(f" The {MOST_GROUPS} largest groups:", f" 最大的 {MOST_GROUPS} 组：")
    return shown(task, head, headers, step.text)


def _is_id(column: str, frame: Frame) -> bool:
    return (
        bool(
            re.search(r"(?:^|_| )id$|Id$|^(?:serial|index|unnamed)", column, re.I if "id" not in column.lower() else 0)
        )
        or not column.strip()
    )


def counts(task: Task, query: Query) -> Recipe:
    """How many rows have each value of a column, or each combination of columns."""
    keys = list(query.groups or query.mentions)
    if not keys:
        raise which(task, query.frame, "column to group by")
    name = "n" if "n" not in keys else "rows"
    source = f"{query.source}.value_counts({listed(keys)})"
    table_name = task.fresh(result(query.frame.name, keys))
    code = f'{query.start}{table_name} = {source}.reset_index(name="{name}")\n{table_name}.head({MOST_GROUPS})'
    step = yield from task.sure(code, f"Count the rows for each value of {', '.join(keys)}.")
    table = reading.rows(step.text, [*keys, name])
    over = ", ".join(f"`{each}`" for each in keys)
    head = task.say(
        f"Rows of `{query.frame.name}` by {over}{query.where}:",
        f"`{query.frame.name}` 中每种 {over} 的行数{query.where}：",
    )
    if table:
        top = " / ".join(table[0][1 : 1 + len(keys)])
        head = (
            task.say(f"The most frequent is {top} with {table[0][-1]}. ", f"最多的是 {top}，有 {table[0][-1]} 行。")
            + head
        )
    return shown(task, head, [*keys, name], step.text)


def aggregate(task: Task, query: Query) -> Recipe:
    """One statistic of one or more numeric columns over all (or the filtered) rows."""
    stat = query.stat or "mean"
    if query.groups and not (stat == "count" and not query.measures):
        return (yield from group(task, query))
    if not query.measures:
        raise which(task, query.frame, "numeric column")
    columns = query.measures
    several = stats(query.words) if stat in stats(query.words) else []
    if len(columns) == 1 and len(several) > 1:
        return (yield from _several(task, query, several))
    lines = [
        f"print({quoted(f'{stat} of {each.strip()} =')}, round({query.source}[{quoted(each)}].{stat}(), "
        f"{digits(query.frame.most(each, stat))}), "
        f'"n =", {query.source}[{quoted(each)}].count())'
        for each in columns
    ]
    step = yield from task.sure(query.start + "\n".join(lines), f"The {stat} of {', '.join(columns)}, nothing else.")
    label, said = task.say(*STAT_NAMES[stat]), []
    for each in columns:
        value = reading.named(step.text, f"{stat} of {each.strip()}")
        n = re.search(rf"{re.escape(f'{stat} of {each.strip()}')} = \S+ n = (\d+)", step.text)
        if value is None or n is None:
            return f"```text\n{step.text.strip()[:1000]}\n```"
        value = reading.pretty(value)
        said.append(
            task.say(
                f"The {label} of `{each}` in `{query.frame.name}`{query.where} is **{value}** (n = {n[1]}).",
                f"`{query.frame.name}` 中 `{each}` 的{label}{query.where}是 **{value}**（n = {n[1]}）。",
            )
        )
    return "\n".join(said)


def _several(task: Task, query: Query, wanted: list[str]) -> Recipe:
    """Several statistics of one column."""
    column = query.measures[0]
    name = task.fresh(f"{result(column)}_statistics")
    rounded = rounding(query.frame.most(column, "sum" if "sum" in wanted else "mean"))
    code = f"{query.start}{name} = {query.source}[{quoted(column)}].agg({listed(wanted)}){rounded}\n{name}"
    step = yield from task.sure(code, f"{', '.join(wanted)} of {column}.")
    table = [row for row in reading.series(step.text) if row[0] in wanted]
    head = task.say(
        f"`{column}` in `{query.frame.name}`{query.where}:", f"`{query.frame.name}` 中的 `{column}`{query.where}："
    )
    return f"{head}\n\n" + reading.markdown([task.say("statistic", "统计量"), column], table)


def how_many(task: Task, query: Query) -> Recipe:
    """The number of rows, or of rows that meet the conditions, or of distinct values."""
    frame = query.frame
    if not query.filters and (query.groups or (query.mentions and not re.search(r"\brows?\b|行", query.words))):
        column = (*query.groups, *query.mentions)[0]
        if re.search(r"\b(?:different|distinct|unique|kinds?|types?)\b|种|不同", query.words, re.I) or (
            frame.few(column, 40) and not query.groups
        ):
            return (yield from distinct(task, query, column))
        return (yield from counts(task, query))
    if not query.filters:
        step = yield from task.sure(f"{frame.name}.shape", "The number of rows is in the shape.")
        found = reading.shape(step.text)
        if found is None:
            return f"```text\n{step.text.strip()[:500]}\n```"
        return task.say(
            f"`{frame.name}` has **{found[0]}** rows and {found[1]} columns.",
            f"`{frame.name}` 有 **{found[0]}** 行、{found[1]} 列。",
        )
    condition = "; ".join(map(str, query.filters))
    only = query.filters[0]
    read_now = frame.counts.get(only.column, {}).get(only.value.strip('"'))
    if len(query.filters) == 1 and only.operator == "==" and read_now is not None:
        return task.say(
            f"**{read_now}** of the {frame.rows} rows of `{frame.name}` have {condition}.",
            f"`{frame.name}` 的 {frame.rows} 行中，有 **{read_now}** 行满足 {condition}。",
        )
    code = f'print(len({frame.name}[{query.condition}]), "of", len({frame.name}), "rows")'
    step = yield from task.sure(code, f"Count the rows where {'; '.join(map(str, query.filters))}.")
    numbers = re.search(r"(\d+) of (\d+) rows", step.text)
    if numbers is None:
        return f"```text\n{step.text.strip()[:500]}\n```"
    return task.say(
        f"**{numbers[1]}** of the {numbers[2]} rows of `{frame.name}` have {condition}.",
        f"`{frame.name}` 的 {numbers[2]} 行中，有 **{numbers[1]}** 行满足 {condition}。",
    )


def distinct(task: Task, query: Query, column: str) -> Recipe:
    """How many different values a column has, and how often each occurs."""
    name = task.fresh(result(query.frame.name, [column]))
    step = yield from task.sure(
        f"{query.start}{name} = {query.source}[{quoted(column)}].value_counts().reset_index(name=\"n\")\n"
        f'print(len({name}), "values")\n{name}.head({MOST_GROUPS})',
        f"The distinct values of {column} with their counts.",
    )  # fmt: skip
    number = re.search(r"(\d+) values", step.text)
    head = task.say(
        f"`{column}` has **{number[1] if number else '?'}** different values:",
        f"`{column}` 有 **{number[1] if number else '?'}** 种取值：",
    )
    return shown(task, head, [column, "n"], step.text)


_SMALL = re.compile(
    r"smallest|lowest|lightest|youngest|shortest|cheapest|bottom|least|\bascending\b|升序|最(?:小|低|轻|短|少"
    r"|便宜|年轻)",
    re.I,
)


def top(task: Task, query: Query) -> Recipe:
    """The rows with the largest (or smallest) values of a column."""
    frame = query.frame
    asks = re.search(r"\b(?:which|what)\b|哪", query.words, re.I) and not re.search(r"\d", query.words)
    groups = tuple(each for each in query.mentions if not frame.numeric(each) and frame.few(each, 150))
    if asks and groups and query.measures:
        # "Which species is the heaviest?" asks about species, not about single rows.
        return (yield from group(task, replace(query, groups=groups[:1], stat="mean")))
    if not query.measures and groups:
        return (yield from counts(task, replace(query, groups=groups[:1])))
    if not query.measures:
        raise which(task, frame, "numeric column")
    column, small = query.measures[0], bool(_SMALL.search(query.words))
    single = re.search(r"\b(?:which|who|what)\b|哪|谁", query.words, re.I) and not re.search(r"\d", query.words)
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
