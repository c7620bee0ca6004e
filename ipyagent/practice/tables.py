"""Answers that are a number or a small table: groups, counts, the largest rows, missing values, a profile.

Each recipe runs short pandas code, reads the printed result, and says what it shows.
"""

from __future__ import annotations

import re
from dataclasses import replace

from . import reading
from .frames import Frame
from .phrases import STAT_NAMES, stats
from .query import Query, listed, quoted
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


def _name(stat: str, column: str) -> str:
    return re.sub(r"\W+", "_", f"{stat}_{column.strip()}").strip("_")


def by_year(query: Query) -> tuple[Query, str]:
    """A grouping "by year" or "by month" of a date column that is no column itself: the line that makes it."""
    if query.groups:
        return query, ""
    part = re.search(r"\b(?:by|per|each)\s+(year|month)\b|按\s*(年|月|year|month)", query.words, re.I)
    dates = [column for column in query.frame.columns if query.frame.temporal(column)]
    if not part or not dates:
        return query, ""
    unit = "month" if (part[1] or part[2]).lower() in ("month", "月") else "year"
    source = query.source
    line = f'{unit} = pd.to_datetime({source}[{quoted(dates[0])}]).dt.{unit}.rename("{unit}")\n'
    return query, f"import pandas as pd\n\n{query.start}{line}"


def group(task: Task, query: Query) -> Recipe:
    """A statistic of numeric columns for each group."""
    frame, stat = query.frame, query.stat or ("mean" if query.measures else "count")
    query, dated = by_year(query)
    if not query.groups and not dated:
        raise which(task, frame, "column to group by")
    unit = "month" if ".dt.month" in dated else "year"
    keys = list(query.groups) or [unit]
    if stat == "count" and not query.measures:
        return (yield from counts(task, query))
    measures = (
        list(query.measures)
        or [c for c in frame.columns if frame.numeric(c) and c not in keys and not _is_id(c, frame)][:4]
    )
    if not measures:
        return (yield from counts(task, query))
    columns = [*(f"{_name(stat, each)}" for each in measures), "n"]
    parts = [f"    {name}=({quoted(each)}, {quoted(stat)})," for name, each in zip(columns, measures, strict=False)]
    by = unit if dated else listed(keys)
    code = (
        (dated or query.start) + f"summary = {query.source}.groupby({by}).agg(\n" + "\n".join(parts)
        + f'\n    n=({quoted(measures[0])}, "count"),\n).round(2).reset_index()\n'
    )  # fmt: skip
    large = 1
    for key in keys:
        large *= max(1, frame.unique.get(key, 1))
    sort = (
        f".nlargest({MOST_GROUPS}, {quoted(columns[0])}).reset_index(drop=True)"
        if large > 2 * MOST_GROUPS and not dated
        else ""
    )
    step = yield from task.sure(
        f"{code}summary{sort}", f"Group by {', '.join(keys)}, then {stat} of {', '.join(measures)}."
    )
    headers = [*keys, *columns]
    table = [row[1:] for row in reading.rows(step.text, headers)]
    label = task.say(*STAT_NAMES[stat])
    what, over = ", ".join(f"`{each}`" for each in measures), ", ".join(f"`{each}`" for each in keys)
    head = task.say(f"The {label} of {what} by {over}{query.where}", f"按 {over} 分组的 {what} 的{label}{query.where}")
    found = reading.extremes(table, len(keys)) if len(table) > 1 else None
    if found:
        most, least = (f"{' / '.join(row[: len(keys)])} ({row[len(keys)]})" for row in found)
        head += task.say(f": highest for {most}, lowest for {least}.", f"：最高的是 {most}，最低的是 {least}。")
    if sort:
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
    code = f'{query.start}counts = {source}.reset_index(name="{name}")\ncounts.head({MOST_GROUPS})'
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
        f"print({quoted(f'{stat} of {each.strip()} =')}, round({query.source}[{quoted(each)}].{stat}(), 2), "
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
    code = f"{query.start}summary = {query.source}[{quoted(column)}].agg({listed(wanted)}).round(2)\nsummary"
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
    code = f'{query.start}print(f"{{len(subset)}} of {{len({frame.name})}} rows")'
    step = yield from task.sure(code, f"Count the rows where {'; '.join(map(str, query.filters))}.")
    numbers = re.search(r"(\d+) of (\d+) rows", step.text)
    if numbers is None:
        return f"```text\n{step.text.strip()[:500]}\n```"
    condition = "; ".join(map(str, query.filters))
    return task.say(
        f"**{numbers[1]}** of the {numbers[2]} rows of `{frame.name}` have {condition}.",
        f"`{frame.name}` 的 {numbers[2]} 行中，有 **{numbers[1]}** 行满足 {condition}。",
    )


def distinct(task: Task, query: Query, column: str) -> Recipe:
    """How many different values a column has, and how often each occurs."""
    step = yield from task.sure(
        f"{query.start}counts = {query.source}[{quoted(column)}].value_counts().reset_index(name=\"n\")\n"
        f'print(len(counts), "values")\ncounts.head({MOST_GROUPS})',
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
    code = f"{query.start}{name} = {query.source}.{method}({many}, {quoted(column)})[{listed(headers)}]\n{name}"
    step = yield from task.sure(code, f"The {many} rows with the {name} {column}.")
    table = [row[1:] for row in reading.rows(step.text, headers)]
    head = task.say(
        f"The {many} rows with the {name} `{column}`{query.where}",
        f"`{column}` 最{'小' if small else '大'}的 {many} 行{query.where}",
    )
    if table:
        head += task.say(f", from {table[0][-1]}:", f"，第一行是 {table[0][-1]}：")
    return shown(task, head, headers, step.text)
