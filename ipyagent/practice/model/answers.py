"""What is computed for each form about a table: code that prints CSV, and the answer made of what it printed."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from typing import Final

from ipyagent.practice.model.recipe import Task
from ipyagent.practice.model.tables import MOST, Asked, Cannot, Column, Rows, Work, key, literal, many, ticks

STATS: Final[Mapping[str, tuple[str, str, str, str]]] = {
    "mean": (r"means?|averages?|avg", "平均值?|均值", "mean", "平均值"),
    "median": (r"medians?", "中位数", "median", "中位数"),
    "sum": (r"sum|totals?", "总和|合计|总计|总", "sum", "总和"),
    "min": (r"min|minimum|smallest|lowest", "最小值?|最低", "minimum", "最小值"),
    "max": (r"max|maximum|largest|highest", "最大值?|最高", "maximum", "最大值"),
    "std": (r"std|standard deviation", "标准差", "standard deviation", "标准差"),
}
STAT_EN: Final = "|".join(english for english, *_ in STATS.values())
STAT_ZH: Final = "|".join(chinese for _, chinese, *_ in STATS.values())


def figure(text: str) -> str:
    """A printed number with four digits that count, and at least two decimals; other texts as they are."""
    try:
        number = float(text)
    except ValueError:
        return text
    if not re.search(r"[.e]", text, re.I) or not math.isfinite(number):
        return text
    if abs(number) >= 1e15:
        return f"{number:.6g}"
    if number == int(number):
        return str(int(number))
    digits = max(2, 3 - math.floor(math.log10(abs(number))))
    return f"{number:.{digits}f}" if digits < 8 else f"{number:.4g}"


def markdown(task: Task, head: Sequence[object], rows: Rows, numbers: int = 0) -> str:
    """A table of the rows; the last `numbers` columns hold numbers."""

    def line(cells: Sequence[object]) -> str:
        return "| " + " | ".join(" ".join(str(each).replace("|", "\\|").split()) or " " for each in cells) + " |"

    first = len(head) - numbers
    lines = [line(head), "|" + "---|" * first + "---:|" * numbers]
    lines += [line([*row[:first], *map(figure, row[first:])]) for row in rows[:MOST]]
    if (more := len(rows) - MOST) > 0:
        lines += ["", task.say(f"… {more} more rows; all of them stand above.", f"… 还有 {more} 行，见上面的输出。")]
    return "\n".join(lines)


def _one(columns: Sequence[Column]) -> str:
    return literal(columns[0]) if len(columns) == 1 else f"[{', '.join(map(literal, columns))}]"


def profile(asked: Asked) -> Work:
    """Rows, and each column's type, values, distinct values; ranges of the numbers."""
    task, table = asked.task, asked.table
    if len({column for column, _ in table.columns}) < len(table.columns) or any(c is None for c, _ in table.columns):
        raise Cannot(f"`{table.name}` has columns of the same name, or of none.", f"`{table.name}` 有重名或无名的列。")
    numbers = [c for c, _ in table.columns if c is not None and table.counts(c)]

    def code(source: str) -> str:
        parts = [f"{source}[{literal(number)}]" for number in numbers]  # together whole numbers would become floats
        return "\n".join([
            f"print({source}.shape[0], {source}.duplicated().sum(), sep=\",\")", "print()",
            f'print({source}.agg(["count", "nunique"]).T.to_csv(header=False))',
            *(f'print({part}.min(), {part}.mean(), {part}.max(), sep=",")' for part in parts),
        ])  # fmt: skip

    def tell(found: list[Rows], place: str) -> str:
        (rows, twice), counts = found[0][0], found[1]
        ranges = dict(zip(map(str, numbers), found[2] if numbers else [], strict=True))
        ends = [["" if each in ("nan", "<NA>") else figure(each) for each in ranges.get(row[0], [""] * 3)]
                for row in counts]  # fmt: skip
        shown = [[name, kind, figure(count), figure(distinct), *end]
                 for (name, count, distinct), (_, kind), end in zip(counts, table.columns, ends, strict=True)]
        gaps = int(rows) * len(counts) - sum(int(float(row[1])) for row in counts)
        size = many(f"**{rows}**", "row"), many(f"**{len(counts)}**", "column")
        said = task.say(f"{place}: {', '.join(size)}; missing values: {gaps}; repeated rows: {twice}:",
                        f"{place}：**{rows}** 行，**{len(counts)}** 列；缺失值：{gaps}；重复的行：{twice}：")
        head = task.say("column,type,values,distinct,min,mean,max", "列,类型,非缺失,不同取值,最小,平均,最大").split(",")
        return f"{said}\n\n" + markdown(task, head, shown)

    return Work(code, tell, "Size, types, values and ranges.")


def missing(asked: Asked) -> Work:
    """How many values are missing, by column or in some."""
    task, columns = asked.task, asked.columns("columns")
    part = f"[[{', '.join(map(literal, columns))}]]" if columns else ""

    def tell(found: list[Rows], place: str) -> str:
        rows = [row for row in found[0] if row[1] != "0"]
        total = sum(int(row[1]) for row in rows)
        inside = task.say(f" in {ticks(columns)}", f"（{ticks(columns)}）") if columns else ""
        said = task.say(f"{place} has {many(f'**{total}**', 'missing value')}{inside}{':' if rows else '.'}",
                        f"{place} 有 **{total}** 个缺失值{inside}{'：' if rows else '。'}")  # fmt: skip
        head = task.say("column,missing", "列,缺失").split(",")
        return f"{said}\n\n{markdown(task, head, rows, 1)}" if rows else said

    return Work(lambda source: f"print({source}{part}.isna().sum().to_csv(header=False))", tell, "Missing values.")


def count(asked: Asked) -> Work:
    """How many rows there are, or how many by the values of one or more columns."""
    task, groups = asked.task, asked.columns("groups")

    def tell(found: list[Rows], place: str) -> str:
        if not groups:
            number = found[0][0][0]
            return task.say(f"{many(f'**{number}**', 'row')} in {place}.", f"{place} 有 **{number}** 行。")
        said = task.say(f"Rows of {place} by {ticks(groups)}:", f"{place} 按 {ticks(groups)} 的行数：")
        return f"{said}\n\n" + markdown(task, [*groups, task.say("rows", "行数")], found[0][1:], 1)

    none = literal(task.say("(missing)", "（缺失）"))
    part = f"[{_one(groups)}].value_counts(dropna=False).to_csv(na_rep={none})" if groups else ".shape[0]"
    return Work(lambda source: f"print({source}{part})", tell, "The number of rows.")


def statistic(asked: Asked) -> Work:
    """A statistic of a column, over all rows or by groups; rows without a group are a group of their own."""
    task, table, groups = asked.task, asked.table, asked.columns("groups")
    stat = next(name for name, (english, chinese, *_) in STATS.items()
                if re.fullmatch(f"{english}|{chinese}", asked.slots["stat"], re.I))  # fmt: skip
    column, word = table.numeric(asked.column("column"), flags=True), task.say(*STATS[stat][2:])
    for group in groups:
        if group == column:
            raise Cannot(f"`{group}` cannot be value and group.", f"`{group}` 不能既是数值又是分组。", near=True)
        if table.counts(group) and key(group) not in key(asked.slots["groups"]):  # "per unit" is no group of `units`
            raise Cannot(f"To group by the numbers of `{group}`, give its whole name.",
                         f"要按数值列 `{group}` 分组，请写出完整列名。")  # fmt: skip

    def code(source: str) -> str:
        part = f"{source}[{literal(column)}]"
        if not groups:
            return f'print({part}.{stat}(), {part}.count(), sep=",")'
        both = f'["{stat}", "count"]' if stat != "sum" else 'sum=lambda v: v.sum(min_count=1), count="count"'
        by = f"{source}.groupby({_one(groups)}, dropna=False, observed=True)[{literal(column)}]"
        return f"print({by}.agg({both}).to_csv(na_rep={literal(task.say('(missing)', '（缺失）'))}))"

    def tell(found: list[Rows], place: str) -> str:
        if groups:
            said = task.say(f"The {word} of `{column}` by {ticks(groups)} in {place}",
                            f"{place} 中 `{column}` 按 {ticks(groups)} 的{word}")  # fmt: skip
            said += _extremes(task, found[0][1:]) if len(groups) == 1 else ""
            head = [*groups, word, task.say("values", "个数")]
            return f"{said}{task.say(':', '：')}\n\n" + markdown(task, head, found[0][1:], 2)
        value, number = found[0][0]
        if number == "0":
            return task.say(f"`{column}` has no values in {place}.", f"{place} 中 `{column}` 没有值。")
        return task.say(f"`{column}` in {place}: {word} **{figure(value)}** ({many(number, 'value')}).",
                        f"{place} 中 `{column}`：{word} **{figure(value)}**（{number} 个值）。")  # fmt: skip

    return Work(code, tell, f"{stat} of {column}.")


def _extremes(task: Task, body: Rows) -> str:
    """Which group has the highest and which the lowest value; nothing where several share it."""
    numbers = [row for row in body if re.fullmatch(r"-?\d[\d.]*(?:e\S+)?", row[1])]
    known = sorted((Decimal(number), group, number) for group, number, *_ in numbers)
    if len(known) < 2:
        return ""
    for one, other in (known[:2], known[-2:]):  # equal but for the rounding of floats
        if abs(one[0] - other[0]) <= Decimal("1e-13") * max(abs(one[0]), abs(other[0])):
            return ""
    (_, least, below), (_, most, above) = known[0], known[-1]
    low, high = (below, above) if figure(below) == figure(above) else (figure(below), figure(above))
    return task.say(f" is highest for {most} ({high}), lowest for {least} ({low})",
                    f"：最高 {most}（{high}），最低 {least}（{low}）")  # fmt: skip


def plot(asked: Asked) -> Work:
    """A scatter plot of two columns of numbers, or a box for each group."""
    task, table, y, x = asked.task, asked.table, asked.table.numeric(asked.column("column")), asked.column("other")
    if x == y:
        raise Cannot("Name two different columns.", "请写出两个不同的列。", near=True)
    if table.kind(x).startswith("date"):
        raise Cannot(f"`{x}` holds dates; I draw numbers and groups.", f"`{x}` 是日期；我只画数值和分组。", near=True)
    down, across = literal(y), literal(x)
    scatter, labels = table.counts(x), ""
    if _UNITS.search(task.conversation.system):  # a remembered rule, of which one sees that it is followed
        labels = f", xlabel={literal(_with_unit(str(x)))}, ylabel={literal(_with_unit(str(y)))}"

    def code(source: str) -> str:
        if scatter:
            told = f'{source}[{down}].corr({source}[{across}]), len({source}[[{across}, {down}]].dropna()), sep=","'
            return f"{source}.plot.scatter(x={across}, y={down}{labels})\nprint({told})"
        told = f"{source}.groupby({across}, observed=True)[{down}].median().to_csv()"
        return f"{source}.boxplot(column={down}, by={across}, rot=45)\nprint({told})"

    def tell(found: list[Rows], place: str) -> str:
        english, chinese = ("scatter plot", "散点图") if scatter else ("box plot", "箱线图")
        said = task.say(f"The {english} of `{y}` by `{x}` from {place}", f"{place} 的{chinese}：`{y}` 对 `{x}`")
        if scatter:
            return f"{said}: r = {float(found[0][0][0] or 'nan'):.2f}; n = {int(found[0][0][-1])}."
        medians = [row for row in found[0][1:] if len(row) == 2 and re.fullmatch(r"(?:-?[\d.]+(?:e\S+)?)?", row[1])]
        shown = markdown(task, [x, task.say("median", "中位数")], medians, 1)
        return f"{said}{task.say('; medians:', '；中位数：')}\n\n{shown}"

    return Work(code, tell, f"{y}, drawn.")


_UNITS: Final = re.compile(r"\bunits on (?:their|the|its) axes\b")
_UNIT: Final = re.compile(r"(.+)_(mm|cm|m|km|mg|g|kg|s|usd|eur)")


def _with_unit(column: str) -> str:
    """`body_mass_g` as "body mass (g)"; another name as it is."""
    found = _UNIT.fullmatch(column)
    return f"{found[1].replace('_', ' ')} ({found[2]})" if found else column


BUILDERS: Final[Mapping[str, Callable[[Asked], Work]]] = {
    "profile": profile, "missing": missing, "count": count, "statistic": statistic, "plot": plot,
}  # fmt: skip
