"""Answers that are a statistic of columns: of all rows, or of each group.

Each recipe runs short pandas code, reads the printed result, and says what it shows.
"""

from __future__ import annotations

import math
import re
from dataclasses import replace

from . import reading
from .counting import counts
from .frames import Frame
from .names import quoted, result
from .phrases import STAT_NAMES, stats
from .query import Query, listed
from .recipe import Recipe, Task
from .showing import ADDED, MOST_GROUPS, SMALL, digits, keyed, of_years, rounding, shown, which, years


def group(task: Task, query: Query) -> Recipe:
    """A statistic of numeric columns for each group."""
    frame, stat = query.frame, query.stat or ("mean" if query.measures else "count")
    stat = inner(query.words, stat)
    if query.units and not query.stat and query.measures and ADDED.search(query.measures[0]):
        stat = "sum"  # "monthly revenue" is what a month has brought in all
    if not query.groups and not query.units:
        raise which(task, frame, "column to group by")
    linear = stat in ("sum", "count")  # what has come in is told month by month, what is typical by months of a year
    keys, by, dated = keyed(query, query.groups, linear=linear)
    if stat == "count" and not query.measures:
        return (yield from counts(task, query))
    measures = (
        list(query.measures)
        or [c for c in frame.columns if frame.numeric(c) and c not in keys and not is_id(c, frame)][:4]
    )
    if not measures:
        return (yield from counts(task, query))
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
    made += "".join(f".rename(columns={{{quoted(each)}: {quoted(each + ' ')}}})" for each in again)
    columns = [each + " " if each in again else each for each in columns]
    sizes = [frame.unique.get(each, 1) for each in query.groups]
    small = bool(SMALL.search(query.rest)) and len(measures) == 1
    ends = "nsmallest" if small else "nlargest"
    numbered = query.kind == "top" and re.search(r"\d|前|top|bottom", query.rest)
    many = query.many(MOST_GROUPS) if numbered else MOST_GROUPS
    few = query.kind == "top" and many < MOST_GROUPS
    long = math.prod(sizes) > 2 * MOST_GROUPS and not query.units
    sort = f".{ends}({many}, {quoted(columns[0])})" if long or few else ""
    start = query.start + ("" if linear else years(query)) + dated
    code = f"{start}{name} = {query.source}.groupby({by}){made}%s{sort}.reset_index()\n{name}"
    step = yield from task.sure(
        code.replace("%s", rounded, 1), f"Group by {', '.join(keys)}, then {stat} of {', '.join(measures)}.",
        code.replace("%s", ".round(2)", 1),
    )  # fmt: skip
    headers = [*keys, *columns]
    if re.search(r"^\s*\.{2,3}(?:\s|$)", step.text, re.M):
        sort, before = f".{ends}({MOST_GROUPS}, {quoted(columns[0])})", step.text
        code = f"{name}{sort}.reset_index(drop=True)"
        step = yield from task.sure(code, "pandas left rows out when it printed; the first by size are shown.")
        step = replace(step, text=(re.search(r"years = \d+\n", before) or [""])[0] + step.text)
    table = [row[1:] for row in reading.rows(step.text, headers)]
    label = task.say(*STAT_NAMES[stat])
    what, over = ", ".join(f"`{each}`" for each in measures), ", ".join(f"`{each}`" for each in keys)
    head = task.say(f"The {label} of {what} by {over}{query.where}", f"按 {over} 分组的 {what} 的{label}{query.where}")
    least_first = task.say(*("smallest", "最小")) if small else task.say(*("largest", "最大"))
    found = reading.extremes(table, len(keys)) if len(table) > 1 else None
    cut = bool(sort) and len(table) >= MOST_GROUPS
    if found:
        most, least = (f"{' / '.join(row[: len(keys)])} ({reading.pretty(row[len(keys)])})" for row in found)
        if cut or few:
            head += (
                task.say(f": lowest for {least}", f"：最低的是 {least}")
                if small
                else task.say(f": highest for {most}", f"：最高的是 {most}")
            )
        else:
            head += task.say(f": highest for {most}, lowest for {least}", f"：最高的是 {most}，最低的是 {least}")
        head += task.say(".", "。")
    if cut or few:
        number = many if few else MOST_GROUPS
        head += task.say(f" The {number} {least_first} groups:", f" {least_first}的 {number} 组：")
    head += of_years(task, query, step.text)
    return shown(task, head, headers, step.text)


def inner(words: str, stat: str) -> str:
    """The statistic of each group where "lowest total" or "highest average" names the one wanted of the groups too."""
    if stat not in ("min", "max"):
        return stat
    both = [each for each in stats(words) if each not in ("min", "max")]
    return both[0] if both else stat


def is_id(column: str, frame: Frame) -> bool:
    return (
        bool(
            re.search(r"(?:^|_| )id$|Id$|^(?:serial|index|unnamed)", column, re.I if "id" not in column.lower() else 0)
        )
        or not column.strip()
    )


def aggregate(task: Task, query: Query) -> Recipe:
    """One statistic of one or more numeric columns over all (or the filtered) rows."""
    stat = query.stat or "mean"
    if (query.groups or query.units) and not (stat == "count" and not query.measures):
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
