"""Answers that count: rows, rows for each value, distinct values, groups of a certain size."""

from __future__ import annotations

import re

from . import reading
from .names import quoted, result
from .phrases import STAT_NAMES
from .query import Query, listed
from .recipe import Recipe, Task
from .showing import MOST_GROUPS, digits, keyed, shown, which

_FEWEST = re.compile(r"\b(?:fewest|(?<!at )least|lowest|smallest|rarest|bottom)\b|最少|最小|最低", re.I)


def counts(task: Task, query: Query) -> Recipe:
    """How many rows have each value of a column, or each combination of columns."""
    groups = list(query.groups) or ([] if query.units else list(query.mentions))
    if not groups and not query.units:
        raise which(task, query.frame, "column to group by")
    keys, by, dated = keyed(query, groups, linear=True)
    name = "n" if "n" not in keys else "rows"
    few = bool(_FEWEST.search(query.rest))
    source = f"{query.source}.value_counts({listed(keys)}{', ascending=True' if few else ''})"
    if query.units:
        source = f"{query.source}.groupby({by}).size()"
    many = query.many(MOST_GROUPS) if query.kind == "top" and re.search(r"\d", query.rest) else MOST_GROUPS
    table_name = task.fresh(result(query.frame.name, keys))
    code = (
        f'{query.start}{dated}{table_name} = {source}.reset_index(name="{name}")\n'
        f"{table_name}.head({many if not query.units else 60})"
    )
    step = yield from task.sure(code, f"Count the rows for each value of {', '.join(keys)}.")
    table = reading.rows(step.text, [*keys, name])
    over = ", ".join(f"`{each}`" for each in keys)
    head = task.say(
        f"Rows of `{query.frame.name}` by {over}{query.where}:",
        f"`{query.frame.name}` 中每种 {over} 的行数{query.where}：",
    )
    if table and not query.units:
        top = " / ".join(table[0][1 : 1 + len(keys)])
        said = task.say("The least frequent" if few else "The most frequent", "最少的" if few else "最多的")
        head = task.say(f"{said} is {top} with {table[0][-1]}. ", f"{said}是 {top}，有 {table[0][-1]} 行。") + head
    elif table and (found := reading.extremes(table, len(keys) + 1)):
        most, least = (f"{' / '.join(row[1:-1])} ({row[-1]})" for row in found)
        head = task.say(f"Most in {most}, fewest in {least}. ", f"最多的是 {most}，最少的是 {least}。") + head
    return shown(task, head, [*keys, name], step.text)


def how_many(task: Task, query: Query) -> Recipe:
    """The number of rows, or of rows that meet the conditions, or of distinct values."""
    frame = query.frame
    conditioned = {each.column for each in query.filters}
    column = (*query.groups, *(each for each in query.mentions if each not in conditioned), "")[0]
    kinds = re.search(r"\b(?:different|distinct|unique|kinds?|types?)\b|种|不同", query.words, re.I)
    subject = re.search(r"\bhow many\b|多少|几[个位家名]", query.rest, re.I)
    if query.units and not kinds:
        return (yield from counts(task, query))
    if query.groups and query.filters:
        return (yield from counts(task, query))
    if not query.filters and column and not re.search(r"\brows?\b|行", query.words):
        if kinds or (frame.few(column, 40) and not query.groups) or (subject and not frame.numeric(column)):
            return (yield from distinct(task, query, column))
        return (yield from counts(task, query))
    if query.filters and column and not frame.numeric(column) and not re.search(r"\brows?\b|行", query.words):
        # "How many customers are from the West?" asks about customers, not about rows.
        return (yield from distinct(task, query, column))
    if not query.filters:
        step = yield from task.sure(f"{frame.name}.shape", "The number of rows is in the shape.")
        found = reading.shape(step.text)
        if found is None:
            return f"```text\n{step.text.strip()[:500]}\n```"
        return task.say(
            f"`{frame.name}` has **{found[0]}** rows and {found[1]} columns.",
            f"`{frame.name}` 有 **{found[0]}** 行、{found[1]} 列。",
        )
    condition = query.told
    only = query.filters[0]
    read_now = frame.counts.get(only.column, {}).get(only.value.strip('"'))
    if len(query.filters) == 1 and only.operator == "==" and not only.part and read_now is not None:
        return task.say(
            f"**{read_now}** of the {frame.rows} rows of `{frame.name}` have {condition}.",
            f"`{frame.name}` 的 {frame.rows} 行中，有 **{read_now}** 行满足 {condition}。",
        )
    code = f'print(len({frame.name}[{query.condition}]), "of", len({frame.name}), "rows")'
    step = yield from task.sure(code, f"Count the rows where {condition}.")
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
        f'print(len({name}), "values,", len({query.source}), "rows")\n{name}.head({MOST_GROUPS})',
        f"The distinct values of {column} with their counts.",
    )  # fmt: skip
    number = re.search(r"(\d+) values, (\d+) rows", step.text)
    values, rows = (number[1], number[2]) if number else ("?", "?")
    head = task.say(
        f"`{column}` has **{values}** different values{query.where}",
        f"`{column}`{query.where} 有 **{values}** 种取值",
    )
    if query.filters:
        head += task.say(f", in {rows} rows", f"，共 {rows} 行")
    return shown(task, head + task.say(":", "："), [column, "n"], step.text)


def sizes(task: Task, query: Query) -> Recipe:
    """Groups whose number of rows, or a statistic of a column, meets a condition."""
    having, frame = query.having, query.frame
    groups = [each for each in (*query.groups, *query.mentions) if having and each != having.column][:1]
    if having is None or not groups:
        raise which(task, frame, "column to group by")
    key = groups[0]
    what = f"{having.stat}_{having.column}" if having.column else "rows"
    value = f"[{quoted(having.column)}].{having.stat}()" if having.column else ".size()"
    all_groups, chosen = task.fresh(result(what, [key])), task.fresh("chosen_groups")
    places = digits(frame.most(having.column, having.stat)) if having.column else 0
    code = (
        f"{query.start}{all_groups} = {query.source}.groupby({quoted(key)}){value}.sort_values(ascending=False)\n"
        f"{chosen} = {all_groups}[{all_groups} {having.operator} {having.value}]\n"
        f'print(len({chosen}), "of", len({all_groups}), "groups")\n'
        f'{chosen}{f".round({places})" if having.column else ""}.reset_index(name="{what}").head({MOST_GROUPS})'
    )
    step = yield from task.sure(code, f"Groups of {key} with {what} {having.operator} {having.value}.")
    number = re.search(r"(\d+) of (\d+) groups", step.text)
    few, many = (number[1], number[2]) if number else ("?", "?")
    label = task.say(*STAT_NAMES[having.stat]) if having.column else ""
    measured = task.say(f"a {label} of `{having.column}`", f"`{having.column}` 的{label}") if having.column else ""
    rows = measured or task.say("a number of rows", "行数")
    head = task.say(
        f"**{few}** of the {many} values of `{key}` have {rows} {having.operator} {having.value}{query.where}",
        f"`{key}` 的 {many} 种取值中，有 **{few}** 种的{rows} {having.operator} {having.value}{query.where}",
    )
    return head + task.say(".", "。") if few == "0" else shown(task, head + task.say(":", "："), [key, what], step.text)
