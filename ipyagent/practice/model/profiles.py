"""What a whole table is like: columns, types, missing values, main statistics, as printed by pandas."""

from __future__ import annotations

import re

from . import reading, schema
from .frames import Frame, categories_of
from .query import Query, listed
from .recipe import Recipe, Task

_PLAIN = '"{:.2f}".format'
_SMALL = 'lambda value: f"{value:.2f}" if abs(value) >= 1 else f"{value:.4g}"'


def missing(task: Task, query: Query) -> Recipe:
    """How many values are missing in each column that misses any."""
    name = query.source
    made = task.fresh("missing_by_column")
    code = (
        f"{query.start}{made} = {name}.isna().sum().loc[lambda counts: counts > 0].sort_values(ascending=False)\n"
        f'print(f"{{{made}.sum()}} missing values, {{{name}.isna().any(axis=1).sum()}} of {{len({name})}} rows")\n'
        f"{made}.head(30)"
    )
    step = yield from task.sure(code, f"Count missing values of {name} column by column.")
    total = re.search(r"(\d+) missing values, (\d+) of (\d+) rows", step.text)
    if total is None:
        return f"```text\n{step.text.strip()[:1000]}\n```"
    if total[1] == "0":
        return task.say(
            f"`{query.frame.name}`{query.where} has **no** missing values in its {total[3]} rows.",
            f"`{query.frame.name}`{query.where} 的 {total[3]} 行**没有**缺失值。",
        )
    table = [
        row
        for row in reading.series(step.text[step.text.index(" rows") + 5 :])
        if row[0] in {c.strip() for c in query.frame.columns}
    ]
    head = task.say(
        f"`{query.frame.name}`{query.where} has **{total[1]}** missing values, in {total[2]} of {total[3]} rows:",
        f"`{query.frame.name}`{query.where} 有 **{total[1]}** 个缺失值，涉及 {total[3]} 行中的 {total[2]} 行：",
    )
    return f"{head}\n\n" + reading.markdown([task.say("column", "列"), task.say("missing", "缺失数")], table)


def outliers(task: Task, query: Query) -> Recipe:
    """Rows further than 1.5 interquartile ranges outside the quartiles, in one or in each numeric column."""
    frame = query.frame
    chosen = [c for c in query.mentions if frame.numeric(c)] or [c for c in frame.columns if frame.numeric(c)]
    numbers, low, high = task.fresh("numbers"), task.fresh("lower_limit"), task.fresh("upper_limit")
    made, headers = task.fresh(f"{frame.name}_outliers"), ["lower", "upper", "outliers"]
    code = (
        f"import pandas as pd\n\n{query.start}{numbers} = {query.source}[{listed(chosen)}]\n"
        f"{low} = {numbers}.quantile(0.25) - 1.5 * ({numbers}.quantile(0.75) - {numbers}.quantile(0.25))\n"
        f"{high} = {numbers}.quantile(0.75) + 1.5 * ({numbers}.quantile(0.75) - {numbers}.quantile(0.25))\n"
        f"{made} = (({numbers} < {low}) | ({numbers} > {high})).sum()\n"
        f'print(pd.DataFrame({{"lower": {low}, "upper": {high}, "outliers": {made}}})'
        '.to_string(float_format="{:.2f}".format))'
    )
    step = yield from task.sure(code, f"Values of {', '.join(chosen)} beyond 1.5 interquartile ranges.")
    table = reading.rows(step.text, headers)
    if not table:
        return f"```text\n{step.text.strip()[:2000]}\n```"
    total = sum(int(row[3]) for row in table if row[3].isdigit())
    head = task.say(
        f"**{total}** outliers in `{frame.name}`{query.where} by the 1.5 IQR rule:",
        f"按 1.5 倍四分位距，`{frame.name}`{query.where} 中有 **{total}** 个离群值：",
    )
    return f"{head}\n\n" + reading.markdown([task.say("column", "列"), *headers], table, most=40)


def drop(task: Task, query: Query) -> Recipe:
    """A copy of the table without the rows that miss something; the table itself stays as it is."""
    name = query.frame.name
    columns = f"subset={listed(query.mentions)}" if query.mentions else ""
    clean = task.fresh(f"{name}_clean")
    code = f'{clean} = {name}.dropna({columns})\nprint(len({name}), "rows before")\n{clean}.shape'
    step = yield from task.sure(code, "A copy without the incomplete rows; the original is not changed.")
    before, size = re.search(r"(\d+) rows before", step.text), reading.shape(step.text)
    if before is None or size is None:
        return f"```text\n{step.text.strip()[:500]}\n```"
    return task.say(
        f"`{clean}` holds the **{size[0]}** complete rows of {before[1]}; `{name}` is as it was.",
        f"`{clean}` 含 {before[1]} 行中完整的 **{size[0]}** 行；`{name}` 没有改变。",
    )


def rows(task: Task, query: Query) -> Recipe:
    """The first rows, or the first of those that meet the conditions."""
    frame = query.frame
    ones = [each.column for each in query.filters]
    shown = list(dict.fromkeys([*query.mentions, *ones, *frame.columns]))[:4]
    many = min(query.many(), 20) if not query.filters else 5
    code = f'{query.start}print(len({query.source}), "rows")\n{query.source}[{listed(shown)}].head({many})'
    step = yield from task.sure(code, "Show the rows that were asked for.")
    count = re.search(r"(\d+) rows", step.text)
    table = [row[1:] for row in reading.rows(step.text, shown)]
    if count is None or not table:
        return f"```text\n{step.text.strip()[:2000]}\n```"
    head = task.say(
        f"`{frame.name}`{query.where} has **{count[1]}** rows; the first {len(table)}:",
        f"`{frame.name}`{query.where} 有 **{count[1]}** 行，前 {len(table)} 行：",
    )
    return f"{head}\n\n" + reading.markdown(shown, table)


def columns(task: Task, query: Query) -> str:
    """Names and dtypes of the columns; they were read when the frame was found."""
    frame = query.frame
    table = [[column, dtype, _values(frame, column)] for column, dtype in frame.dtypes.items()]
    head = task.say(
        f"`{frame.name}` has {len(table)} columns and {frame.rows} rows:",
        f"`{frame.name}` 有 {len(table)} 列、{frame.rows} 行：",
    )
    return f"{head}\n\n" + reading.markdown(
        [task.say("column", "列"), "dtype", task.say("values", "取值")], table, most=60
    )


def _values(frame: Frame, column: str) -> str:
    """The range of a numeric column, or some values of another."""
    span = frame.ranges.get(column)
    if span:
        return f"{span.low:.10g} – {span.high:.10g}"
    return ", ".join(frame.values.get(column, ())[:4])


def profile(task: Task, query: Query) -> Recipe:
    """Shape, types, missing values and the main statistics of the numeric columns."""
    frame, name = query.frame, query.frame.name
    named = [column for column in query.mentions if frame.numeric(column)]
    numeric = named or [column for column in frame.columns if frame.numeric(column)]
    texts = [column for column in frame.columns if not frame.numeric(column)]
    if query.filters:
        head = task.say(f"`{name}`{query.where}:", f"`{name}`{query.where}：")
    else:
        head = task.say(
            f"`{name}`: **{frame.rows}** rows, **{len(frame.columns)}** columns.",
            f"`{name}`：**{frame.rows}** 行，**{len(frame.columns)}** 列。",
        )
    name = query.source
    made, headers = task.fresh(f"{frame.name}_profile"), ["count", "mean", "std", "min", "50%", "max"]
    code = query.start + (f'print(len({name}), "rows chosen")\n' if query.filters else "")
    if numeric:
        code += f"{made} = {name}{f'[{listed(named)}]' if named else ''}.describe().T[{listed(headers)}]\n"
        small = any(frame.most(each) < 1 for each in numeric)
        code += f"print({made}.to_string(float_format={_SMALL if small else _PLAIN}))\n"
    code += f'print("duplicated rows:", {name}.astype(str).duplicated().sum())\n'
    code += f'print("missing values:", {name}.isna().sum().sum())\n'
    if texts:
        code += f'print("distinct:", {name}[{listed(texts)}].nunique().to_dict())\n'
    if frame.texts:
        code += f"print({categories_of(name, frame.texts)})"
    step = yield from task.sure(
        code.strip(), f"Describe {name}: numeric columns, duplicates, missing values.",
        code.strip().replace(".nunique()", ".astype(str).nunique()").replace("[column].v", "[column].astype(str).v"),
    )  # fmt: skip
    if chosen := re.search(r"(\d+) rows chosen\n", step.text):
        head += task.say(f" **{chosen[1]}** of {frame.rows} rows.", f"{frame.rows} 行中的 **{chosen[1]}** 行。")
    found = re.search(r"duplicated rows: (\d+)\s+missing values: (\d+)", step.text)
    if found:
        head += task.say(
            f" Missing values: {found[2]}; duplicated rows: {found[1]}.",
            f" 缺失值 {found[2]} 个，重复行 {found[1]} 行。",
        )
    parts = [head]
    if numeric:
        table = reading.rows(step.text.split("\nduplicated rows:")[0].partition("rows chosen\n")[2] if query.filters
                             else step.text.split("\nduplicated rows:")[0], headers)  # fmt: skip
        label = task.say("column", "列")
        parts.append(
            reading.markdown([label, *headers], table, most=40)
            if table
            else f"```text\n{step.text.strip()[:2000]}\n```"
        )
    distinct = reading.literal(step.text.partition("distinct: ")[2].split("\n")[0]) or {}
    counts = schema.categories(step.text) or {}
    lines = []
    for column in texts[:20]:
        count, values = distinct.get(column, "?"), tuple(counts.get(column, frame.values.get(column, ())))
        some = f" — {', '.join(values[:6])}{'' if count == len(values) else ', …'}" if values else ""
        lines.append(
            f"- `{column}` ({frame.dtypes[column]}): " + task.say(f"{count} distinct", f"{count} 种取值") + some
        )
    return "\n\n".join([*parts, "\n".join(lines)]).strip()
