"""What is computed for each form about a table: code that prints CSV, and the answer made of what it printed."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from typing import Final

from ipyagent.practice.model.recipe import Task
from ipyagent.practice.model.tables import (
    MOST,
    NUMERIC,
    STATS,
    Asked,
    Cannot,
    Column,
    Near,
    Rows,
    Work,
    key,
    literal,
    many,
    plain,
)


def figure(text: str) -> str:
    """A printed number with four digits that count, and at least two decimals; other texts as they are."""
    try:
        number = float(text)
    except ValueError:
        return text
    if "." not in text and "e" not in text.lower():
        return text
    if not math.isfinite(number) or (number == int(number) and abs(number) < 1e15):
        return text if not math.isfinite(number) else str(int(number))
    if abs(number) >= 1e15:
        return f"{number:.6g}"
    digits = max(2, 3 - math.floor(math.log10(abs(number))))
    return f"{number:.{digits}f}" if digits < 8 else f"{number:.4g}"


def markdown(task: Task, head: Sequence[object], rows: Rows, numbers: int = 0) -> str:
    """A table of the rows; the last `numbers` columns hold numbers."""

    def cell(text: object) -> str:
        return " ".join(str(text).replace("|", "\\|").split()) or " "

    first = len(head) - numbers
    lines = ["| " + " | ".join(map(cell, head)) + " |", "|" + "---|" * first + "---:|" * numbers]
    for row in rows[:MOST]:
        lines.append("| " + " | ".join(cell(figure(c) if at >= first else c) for at, c in enumerate(row)) + " |")
    if len(rows) > MOST:
        lines += [
            "",
            task.say(
                f"… {len(rows) - MOST} more rows; all of them stand above.",
                f"… 还有 {len(rows) - MOST} 行，见上面的输出。",
            ),
        ]
    return "\n".join(lines)


def _list(columns: Sequence[Column]) -> str:
    return "[" + ", ".join(map(literal, columns)) + "]"


def _one(columns: Sequence[Column]) -> str:
    return literal(columns[0]) if len(columns) == 1 else _list(columns)


def _gap(text: str) -> str:
    return "" if text in ("nan", "<NA>") else text


def _none(task: Task) -> str:
    return literal(task.say("(missing)", "（缺失）"))


def _ticks(columns: Sequence[Column], say: str = ", ") -> str:
    return say.join(f"`{column}`" for column in columns)


def profile(asked: Asked) -> Work:
    """Rows, and each column's type, values, distinct values; ranges of the numbers."""
    task, table = asked.task, asked.table
    numbers = [
        c for c, kind in table.columns if c is not None and NUMERIC.fullmatch(kind) and not kind.startswith("bool")
    ]

    def code(source: str) -> str:
        lines = [f"print({source}.shape[0], {source}.duplicated().sum(), sep=\",\")", "print()",
                 f'print({source}.agg(["count", "nunique"]).T.to_csv(header=False))']  # fmt: skip
        for number in numbers:  # one by one: together whole numbers would become floats
            part = f"{source}[{literal(number)}]"
            lines.append(f'print({part}.min(), {part}.mean(), {part}.max(), sep=",")')
        return "\n".join(lines)

    def tell(found: list[Rows], place: str) -> str:
        (rows, twice), counts = found[0][0], found[1]
        ranges = {
            str(c): [_gap(each) for each in row] for c, row in zip(numbers, found[2] if numbers else [], strict=True)
        }
        shown = [[name, kind, figure(count), figure(distinct), *map(figure, ranges.get(name, ["", "", ""]))]
                 for (name, count, distinct), (_, kind) in zip(counts, table.columns, strict=True)]  # fmt: skip
        gaps = int(rows) * len(counts) - sum(int(float(row[1])) for row in counts)
        size = task.say(
            f"{many(f'**{rows}**', 'row')}, {many(f'**{len(counts)}**', 'column')}",
            f"**{rows}** 行，**{len(counts)}** 列",
        )
        said = task.say(f"{place}: {size}; missing values: {gaps}; repeated rows: {twice}:",
                        f"{place}：{size}；缺失值：{gaps}；重复的行：{twice}：")  # fmt: skip
        head = task.say("column,type,values,distinct,min,mean,max", "列,类型,非缺失,不同取值,最小,平均,最大").split(",")
        return f"{said}\n\n" + markdown(task, head, shown)

    if len({column for column, _ in table.columns}) < len(table.columns) or any(c is None for c, _ in table.columns):
        raise Cannot(f"`{table.name}` has columns of the same name, or of none.", f"`{table.name}` 有重名或无名的列。")
    return asked.work(code, tell, "Size, types, values and ranges.")


def missing(asked: Asked) -> Work:
    """How many values are missing, by column or in some."""
    task, columns = asked.task, asked.columns("columns")
    part = f"[{_list(columns)}]" if columns else ""

    def tell(found: list[Rows], place: str) -> str:
        rows = [row for row in found[0] if row[1] != "0"]
        total = sum(int(row[1]) for row in rows)
        inside = task.say(f" in {_ticks(columns)}", f"（{_ticks(columns)}）") if columns else ""
        said = task.say(
            f"{place} has {many(f'**{total}**', 'missing value')}{inside}{':' if rows else '.'}",
            f"{place} 有 **{total}** 个缺失值{inside}{'：' if rows else '。'}",
        )
        return said + (
            "\n\n" + markdown(task, task.say("column,missing", "列,缺失").split(","), rows, 1) if rows else ""
        )

    return asked.work(
        lambda source: f"print({source}{part}.isna().sum().to_csv(header=False))", tell, "Missing values."
    )


def rows(asked: Asked) -> Work:
    """The first or the last rows."""
    task, count = asked.task, int(asked.slots.get("number") or 5)
    last = (asked.slots.get("end") or "").lower() in ("last", "tail", "后", "最后")
    if not 1 <= count <= MOST:
        raise Cannot(f"I show 1 to {MOST} rows.", f"我可以显示 1 到 {MOST} 行。")

    def tell(found: list[Rows], place: str) -> str:
        head, *body = found[0]
        which = task.say("last" if last else "first", "最后" if last else "前")
        said = task.say(
            f"The {which} {many(len(body), 'row') if len(body) != 1 else 'row'} of {place}:",
            f"{place} 的{which} {len(body)} 行：",
        )
        return f"{said}\n\n" + markdown(task, head, body)

    return asked.work(
        lambda source: f"print({source}.{'tail' if last else 'head'}({count}).to_csv())", tell, "A few rows."
    )


def count(asked: Asked) -> Work:
    """How many rows there are."""
    noun = asked.slots.get("noun") or ""
    of_rows = not noun or re.fullmatch(r"rows?|records?|entries|observations?|lines?|行|条|条记录|行数据", noun, re.I)
    if not of_rows and " " in noun.strip():
        raise Cannot(
            f"I cannot read “{noun}”. I count rows: “how many rows are there where COLUMN > 10”, “how many rows per "
            "COLUMN”.",
            f"读不懂“{noun}”。我可以数行：有多少行？每个 COLUMN 有多少行？",
        )
    if not of_rows and asked.table.name.casefold() not in (noun.casefold(), plain(noun).casefold()):
        raise Cannot(
            f"There is no table `{noun}`; to count rows, ask “how many rows are there”.",
            f"没有表 `{noun}`；要数行，请问：有多少行？",
        )

    def tell(found: list[Rows], place: str) -> str:
        number = int(found[0][0][0])
        return asked.task.say(f"{many(f'**{number}**', 'row')} in {place}.", f"{place} 有 **{number}** 行。")

    return asked.work(lambda source: f"print(len({source}))", tell, "The number of rows.")


def distinct(asked: Asked) -> Work:
    """How many different values a column has, and which."""
    task, column = asked.task, asked.column("column")

    def tell(found: list[Rows], place: str) -> str:
        number, values = int(found[0][0][0]), [row[0] for row in found[1]] if len(found) > 1 else []
        more = f", … ({number - len(values)})" if number > len(values) else ""
        listed = ", ".join(values) + more
        told = many(f"**{number}**", "different value")
        return task.say(f"`{column}` in {place} has {told}, missing ones left out: {listed}.",
                        f"{place} 的 `{column}` 有 **{number}** 种取值（不计缺失）：{listed}。")  # fmt: skip

    def code(source: str) -> str:
        part = f"{source}[{literal(column)}]"
        values = f"{part}.dropna().drop_duplicates().head({MOST}).to_csv(index=False, header=False)"
        return f"print({part}.nunique())\nprint()\nprint({values})"

    return asked.work(code, tell, f"The different values of {column}.")


def counts(asked: Asked) -> Work:
    """Rows by the values of one or more columns."""
    task, groups = asked.task, asked.columns("groups")
    count(asked)  # the noun is rows, or the table

    def tell(found: list[Rows], place: str) -> str:
        said = task.say(f"Rows of {place} by {_ticks(groups)}:", f"{place} 按 {_ticks(groups)} 的行数：")
        return f"{said}\n\n" + markdown(task, [*groups, task.say("rows", "行数")], found[0][1:], 1)

    def code(source: str) -> str:
        return f"print({source}[{_one(groups)}].value_counts(dropna=False).to_csv(na_rep={_none(task)}))"

    return asked.work(code, tell, f"Rows by {', '.join(map(str, groups))}.")


def statistic(asked: Asked) -> Work:
    """A statistic of columns, over all rows or by groups; rows without a group are a group of their own."""
    task, table = asked.task, asked.table
    named = re.split(r"\s*(?:,| and |[、和及])\s*", asked.slots["stats"])
    stats = [next((stat for stat, (en, zh, *_) in STATS.items() if re.fullmatch(f"{en}|{zh}", each.strip(), re.I)), "")
             for each in named if each.strip()]  # fmt: skip
    columns, groups = asked.columns("columns"), asked.columns("groups")
    times = {"min", "max"} >= set(stats) and all(table.kind(c).startswith("datetime") for c in columns)
    for column in columns:
        if not times:
            table.numeric(column)
        if column in groups:
            raise Near(f"`{column}` cannot be both the value and the group.", f"`{column}` 不能既是数值又是分组。")
    for group in groups:  # "per unit" is no group of the column `units`
        if NUMERIC.fullmatch(table.kind(group)) and key(group) not in key(asked.slots["groups"]):
            raise Cannot(
                f"To group by the numbers of `{group}`, give its whole name.",
                f"要按数值列 `{group}` 分组，请写出完整列名。",
            )
    if not all(stats) or (len(stats) > 1 and len(columns) > 1):
        raise Cannot(
            "One statistic of several columns, or several of one.", "只能是多列的一个统计量，或一列的多个统计量。"
        )
    words = [task.say(*STATS[stat][2:]) for stat in stats]

    def code(source: str) -> str:
        if not groups:
            parts = [f"{source}[{literal(column)}]" for column in columns]
            return "\n".join(
                f'print({", ".join(f"{part}.{each}()" for each in (*stats, "count"))}, sep=",")' for part in parts
            )
        by = f"{source}.groupby({_one(groups)}, dropna=False, observed=True)"
        told = f"[{literal(columns[0])}].agg({json.dumps([*stats, 'count'])})"
        if len(columns) > 1:
            told = f"[{_list(columns)}].{stats[0]}({'min_count=1' * (stats[0] == 'sum')})"
        elif "sum" in stats:  # without any value there is no sum
            each = (f"{s}={'lambda v: v.sum(min_count=1)' if s == 'sum' else json.dumps(s)}" for s in (*stats, "count"))
            told = f"[{literal(columns[0])}].agg({', '.join(each)})"
        return f"print({by}{told}.to_csv(na_rep={_none(task)}))"

    def tell(found: list[Rows], place: str) -> str:
        if groups:
            body, what = found[0][1:], ", ".join(words)
            said = task.say(
                f"The {what} of {_ticks(columns)} by {_ticks(groups)} in {place}",
                f"{place} 中 {_ticks(columns)} 按 {_ticks(groups)} 的{what}",
            )
            head = [*groups, *(columns if len(columns) > 1 else [*words, task.say("values", "个数")])]
            if len(columns) == len(stats) == len(groups) == 1:
                said += _extremes(task, body)
            said += task.say(":", "：")
            return f"{said}\n\n" + markdown(task, head, body, len(head) - len(groups))
        lines = []
        for name, figures in zip(columns, found[0], strict=True):
            number = figure(figures[-1])
            if number == "0":
                lines.append(task.say(f"`{name}` has no values in {place}.", f"{place} 中 `{name}` 没有值。"))
                continue
            told = ", ".join(f"{word} **{figure(value)}**" for word, value in zip(words, figures[:-1], strict=True))
            lines.append(
                task.say(
                    f"`{name}` in {place}: {told} ({many(number, 'value')}).",
                    f"{place} 中 `{name}`：{told}（{number} 个值）。",
                )
            )
        return "\n".join(lines)

    return asked.work(code, tell, f"{', '.join(stats)} of {', '.join(map(str, columns))}.")


def _extremes(task: Task, body: Rows) -> str:
    """Which groups have the highest and the lowest value; equal ones are named together."""
    known = [(Decimal(row[1]), row) for row in body if re.fullmatch(r"-?\d[\d.]*(?:e\S+)?", row[1])]
    if len(known) < 2:
        return ""

    def same(one: Decimal, other: Decimal) -> bool:  # but for the rounding of floats
        return abs(one - other) <= Decimal("1e-13") * max(abs(one), abs(other))

    ends = [end(value for value, _ in known) for end in (max, min)]
    groups = [[row for value, row in known if same(value, end)] for end in ends]
    if same(*ends):
        value = figure(groups[0][0][1])
        return task.say(f" is the same in all groups that have one ({value})", f"在有值的各组中都相同（{value}）")
    shown = [figure(rows[0][1]) for rows in groups]
    if shown[0] == shown[1]:
        shown = [rows[0][1] for rows in groups]

    def names(rows: Rows) -> str:
        if len(rows) > 3:
            return task.say(f"{len(rows)} groups that share it", f"并列的 {len(rows)} 组")
        *first, last = (row[0] for row in rows)
        return task.say(f"{', '.join(first)} and {last}", "、".join([*first, last])) if first else last

    most, least = map(names, groups)
    return task.say(
        f" is highest for {most} ({shown[0]}), lowest for {least} ({shown[1]})",
        f"：最高 {most}（{shown[0]}），最低 {least}（{shown[1]}）",
    )


def top(asked: Asked) -> Work:
    """The rows with the largest or the smallest values; as many more as are tied with the last."""
    task, column, amount = (
        asked.task,
        asked.table.numeric(asked.column("column"), flags=False),
        int(asked.slots.get("number") or 1),
    )
    small = re.fullmatch(r"bottom|lowest|smallest|最小|最低", asked.slots["end"], re.I) is not None
    if not 1 <= amount <= MOST:
        raise Cannot(f"I show 1 to {MOST} rows.", f"我可以显示 1 到 {MOST} 行。")

    def tell(found: list[Rows], place: str) -> str:
        head, *body = found[0]
        which = task.say("smallest" if small else "largest", "最小" if small else "最大")
        tied = task.say("; equal values are all shown", "；并列的都列出") if len(body) > amount else ""
        said = task.say(
            f"The rows of {place} with the {amount} {which} `{column}`{tied}:"
            if amount > 1 or len(body) > 1
            else f"The row of {place} with the {which} `{column}`:",
            f"{place} 中 `{column}` {which}的 {amount} 行{tied}：",
        )
        return f"{said}\n\n" + markdown(task, head, body)

    call = "nsmallest" if small else "nlargest"
    return asked.work(
        lambda source: f'print({source}.{call}({amount}, {literal(column)}, keep="all").to_csv())',
        tell,
        f"Rows by {column}.",
    )


def correlation(asked: Asked) -> Work:
    """Pearson's r of two columns, and the rows that have both."""
    task = asked.task
    one, other = (asked.table.numeric(asked.column(slot), flags=False) for slot in ("column", "other"))
    if one == other:
        raise Near("Name two different columns.", "请写出两个不同的列。")

    def tell(found: list[Rows], place: str) -> str:
        r, n = found[0][0]
        told = f"r = **{figure(r)}**; n = {n}"
        rows = "row" if n == "1" else "rows"
        return task.say(f"Pearson correlation of `{one}` and `{other}` in {place}: {told} {rows} with both.",
                        f"{place} 中 `{one}` 与 `{other}` 的皮尔逊相关系数：{told} 行。")  # fmt: skip

    return asked.work(lambda source: _pair(source, one, other), tell, f"{one} with {other}.")


def _pair(source: str, one: Column, other: Column) -> str:
    return (f"print({source}[{literal(one)}].corr({source}[{literal(other)}]), "
            f'len({source}[{_list([one, other])}].dropna()), sep=",")')  # fmt: skip


def plot(asked: Asked) -> Work:
    """A scatter plot of two columns of numbers, a box for each group, a line over dates, or a histogram."""
    task, table, y = asked.task, asked.table, asked.table.numeric(asked.column("column"), flags=False)
    if not asked.slots.get("other"):

        def told(found: list[Rows], place: str) -> str:
            return task.say(
                f"Histogram of `{y}` in {place}: {many(int(found[0][0][0]), 'value')}.",
                f"{place} 中 `{y}` 的直方图：{int(found[0][0][0])} 个值。",
            )

        return asked.work(lambda source: f"{source}.plot.hist(column={literal(y)}, bins=30, xlabel={literal(str(y))})\n"
                          f"print({source}[{literal(y)}].count())", told, f"How {y} is distributed.")  # fmt: skip
    x = asked.column("other")
    if x == y:
        raise Near("Name two different columns.", "请写出两个不同的列。")
    kind = table.kind(x)
    if kind.startswith("datetime"):

        def line(found: list[Rows], place: str) -> str:
            return task.say(f"Line of `{y}` over `{x}` from {place}; n = {many(int(found[0][0][0]), 'row')} with both.",
                            f"{place} 的折线图：`{y}` 随 `{x}`；n = {int(found[0][0][0])}。")  # fmt: skip

        return asked.work(lambda source: f"{source}.sort_values({literal(x)}).plot(x={literal(x)}, y={literal(y)})\n"
                          f"print(len({source}[{_list([x, y])}].dropna()))", line, f"{y} over {x}.")  # fmt: skip
    if NUMERIC.fullmatch(kind) and not kind.startswith("bool"):

        def scatter(found: list[Rows], place: str) -> str:
            r, n = found[0][0]
            r = f"{float(r):.2f}" if r not in ("", "nan") else "nan"
            return task.say(f"Scatter plot of `{y}` against `{x}` from {place}: r = {r}; n = {n}.",
                            f"{place} 的散点图：`{y}` 对 `{x}`：r = {r}; n = {n}。")  # fmt: skip

        labels = ""
        if _UNITS.search(task.conversation.system):  # a remembered rule, of which one sees that it is followed
            labels = f", xlabel={literal(_with_unit(str(x)))}, ylabel={literal(_with_unit(str(y)))}"
        drawn = f".plot.scatter(x={literal(x)}, y={literal(y)}{labels})\n"
        return asked.work(lambda source: source + drawn + _pair(source, x, y), scatter, f"{y} against {x}.")

    def box(found: list[Rows], place: str) -> str:
        said = task.say(f"Box plot of `{y}` by `{x}` from {place}; medians:",
                        f"{place} 的箱线图：`{y}` 按 `{x}`；中位数：")  # fmt: skip
        medians = [row for row in found[0][1:] if len(row) == 2 and re.fullmatch(r"(?:-?[\d.]+(?:e\S+)?)?", row[1])]
        return f"{said}\n\n" + markdown(task, [x, task.say("median", "中位数")], medians, 1)

    return asked.work(lambda source: f"{source}.boxplot(column={literal(y)}, by={literal(x)}, rot=45)\n"
                      f"print({source}.groupby({literal(x)}, observed=True)[{literal(y)}].median().to_csv())",
                      box, f"A box of {y} for each {x}.")  # fmt: skip


_UNITS: Final = re.compile(r"\bunits on (?:their|the|its) axes\b")
_UNIT: Final = re.compile(r"(.+)_(mm|cm|m|km|mg|g|kg|s|usd|eur)")


def _with_unit(column: str) -> str:
    """`body_mass_g` as "body mass (g)"; another name as it is."""
    found = _UNIT.fullmatch(column)
    return f"{found[1].replace('_', ' ')} ({found[2]})" if found else column


BUILDERS: Final[Mapping[str, Callable[[Asked], Work]]] = {
    "profile": profile, "missing": missing, "rows": rows, "count": count, "distinct": distinct, "counts": counts,
    "statistic": statistic, "top": top, "correlation": correlation, "plot": plot,
}  # fmt: skip
