"""What is computed for each form about a table: code that prints CSV, and the answer made of what it printed."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from typing import Final

from ipyagent.practice.model.recipe import Task
from ipyagent.practice.model.tables import MOST, Asked, Cannot, Column, Rows, Work, key, literal, many, plain

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


def _list(columns: Sequence[Column]) -> str:
    return "[" + ", ".join(map(literal, columns)) + "]"


def _one(columns: Sequence[Column]) -> str:
    return literal(columns[0]) if len(columns) == 1 else _list(columns)


def _none(task: Task) -> str:
    return literal(task.say("(missing)", "（缺失）"))


def _ticks(columns: Sequence[Column]) -> str:
    return ", ".join(f"`{column}`" for column in columns)


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
    part = f"[{_list(columns)}]" if columns else ""

    def tell(found: list[Rows], place: str) -> str:
        rows = [row for row in found[0] if row[1] != "0"]
        total = sum(int(row[1]) for row in rows)
        inside = task.say(f" in {_ticks(columns)}", f"（{_ticks(columns)}）") if columns else ""
        said = task.say(f"{place} has {many(f'**{total}**', 'missing value')}{inside}{':' if rows else '.'}",
                        f"{place} 有 **{total}** 个缺失值{inside}{'：' if rows else '。'}")  # fmt: skip
        head = task.say("column,missing", "列,缺失").split(",")
        return f"{said}\n\n{markdown(task, head, rows, 1)}" if rows else said

    return Work(lambda source: f"print({source}{part}.isna().sum().to_csv(header=False))", tell, "Missing values.")


def _amount(asked: Asked, usual: int) -> int:
    count = int(asked.slots.get("number") or usual)
    if not 1 <= count <= MOST:
        raise Cannot(f"I show 1 to {MOST} rows.", f"我可以显示 1 到 {MOST} 行。")
    return count


def count(asked: Asked) -> Work:
    """How many rows there are, or how many by the values of one or more columns."""
    task, groups = asked.task, asked.columns("groups")
    noun, name = asked.slots.get("noun") or "rows", asked.table.name.casefold()
    of_rows = re.fullmatch(r"rows?|records?|entries|observations?|lines?|行|条|条记录|行数据", noun, re.I)
    if not of_rows and name not in (noun.casefold(), plain(noun).casefold()):
        raise Cannot(f"I count rows, or a table by its name, not “{noun}”: “how many rows are there where C > 10”, "
                     "“how many rows per COLUMN”.", f"我可以数行，不能数“{noun}”：有多少行？每个 COLUMN 有多少行？")

    def tell(found: list[Rows], place: str) -> str:
        if not groups:
            number = found[0][0][0]
            return task.say(f"{many(f'**{number}**', 'row')} in {place}.", f"{place} 有 **{number}** 行。")
        said = task.say(f"Rows of {place} by {_ticks(groups)}:", f"{place} 按 {_ticks(groups)} 的行数：")
        return f"{said}\n\n" + markdown(task, [*groups, task.say("rows", "行数")], found[0][1:], 1)

    part = f"[{_one(groups)}].value_counts(dropna=False).to_csv(na_rep={_none(task)})" if groups else ".shape[0]"
    return Work(lambda source: f"print({source}{part})", tell, "The number of rows.")


def statistic(asked: Asked) -> Work:
    """A statistic of columns, over all rows or by groups; rows without a group are a group of their own."""
    task, table = asked.task, asked.table
    named = re.split(r"\s*(?:,| and |[、和及])\s*", asked.slots["stats"])
    stats = [stat for each in named for stat, (en, zh, *_) in STATS.items()
             if re.fullmatch(f"{en}|{zh}", each.strip(), re.I)]  # fmt: skip
    columns, groups = asked.columns("columns"), asked.columns("groups")
    times = {"min", "max"} >= set(stats) and all(table.kind(c).startswith("datetime") for c in columns)
    for column in () if times else columns:
        table.numeric(column)
    for group in groups:
        if group in columns:
            raise Cannot(f"`{group}` cannot be value and group.", f"`{group}` 不能既是数值又是分组。", near=True)
        if table.counts(group) and key(group) not in key(asked.slots["groups"]):  # "per unit" is no group of `units`
            raise Cannot(f"To group by the numbers of `{group}`, give its whole name.",
                         f"要按数值列 `{group}` 分组，请写出完整列名。")  # fmt: skip
    if len(stats) > 1 and len(columns) > 1:
        raise Cannot("One statistic of several columns, or several of one.", "多列的一个统计量，或一列的多个统计量。")
    words = [task.say(*STATS[stat][2:]) for stat in stats]
    picked = literal(columns[0]) if len(columns) == 1 else _list(columns)

    def code(source: str) -> str:
        if not groups:
            parts = ([f"{source}[{literal(column)}].{each}()" for each in (*stats, "count")] for column in columns)
            return "\n".join(f'print({", ".join(part)}, sep=",")' for part in parts)
        each = {stat: f"lambda v: v.{stat}({'min_count=1' * (stat == 'sum')})" for stat in stats}
        told = f".agg({', '.join(f'{stat}={how}' for stat, how in each.items())}, count=\"count\")"
        if "sum" not in stats:
            told = f".agg({json.dumps([*stats, 'count'])})"
        if len(columns) > 1:
            told = f".{stats[0]}({'min_count=1' * (stats[0] == 'sum')})"  # without any value there is no sum
        by = f"{source}.groupby({_one(groups)}, dropna=False, observed=True)[{picked}]"
        return f"print({by}{told}.to_csv(na_rep={_none(task)}))"

    def tell(found: list[Rows], place: str) -> str:
        if groups:
            what = ", ".join(words)
            said = task.say(f"The {what} of {_ticks(columns)} by {_ticks(groups)} in {place}",
                            f"{place} 中 {_ticks(columns)} 按 {_ticks(groups)} 的{what}")  # fmt: skip
            if len(columns) == len(stats) == len(groups) == 1:
                said += _extremes(task, found[0][1:])
            head = [*groups, *(columns if len(columns) > 1 else [*words, task.say("values", "个数")])]
            return f"{said}{task.say(':', '：')}\n\n" + markdown(task, head, found[0][1:], len(head) - len(groups))
        lines = []
        for name, (*figures, number) in zip(columns, found[0], strict=True):
            told = ", ".join(f"{word} **{figure(value)}**" for word, value in zip(words, figures, strict=True))
            lines.append(
                task.say(f"`{name}` has no values in {place}.", f"{place} 中 `{name}` 没有值。") if number == "0" else
                task.say(f"`{name}` in {place}: {told} ({many(number, 'value')}).",
                         f"{place} 中 `{name}`：{told}（{number} 个值）。")
            )  # fmt: skip
        return "\n".join(lines)

    return Work(code, tell, f"{', '.join(stats)} of {', '.join(map(str, columns))}.")


def _extremes(task: Task, body: Rows) -> str:
    """Which groups have the highest and the lowest value; equal ones are named together."""
    known = [(Decimal(row[1]), row) for row in body if re.fullmatch(r"-?\d[\d.]*(?:e\S+)?", row[1])]
    if len(known) < 2:
        return ""
    found = []
    for end in (max(known)[0], min(known)[0]):  # equal but for the rounding of floats
        rows = [row for value, row in known if abs(value - end) <= Decimal("1e-13") * max(abs(value), abs(end))]
        *first, last = (row[0] for row in rows)
        names = task.say(f"{', '.join(first)} and {last}", "、".join([*first, last])) if first else last
        names = task.say(f"{len(rows)} groups that share it", f"并列的 {len(rows)} 组") if len(rows) > 3 else names
        found.append((names, figure(rows[0][1]), rows[0][1]))
    (most, high, above), (least, low, below) = found
    if most == least:
        return task.say(f" is the same in all groups that have one ({high})", f"在有值的各组中都相同（{high}）")
    high, low = (above, below) if high == low else (high, low)
    return task.say(f" is highest for {most} ({high}), lowest for {least} ({low})",
                    f"：最高 {most}（{high}），最低 {least}（{low}）")  # fmt: skip


def rows(asked: Asked) -> Work:
    """The first or the last rows, or those with the largest or the smallest values: as many more as are tied."""
    task, end = asked.task, (asked.slots.get("end") or "first").lower()
    ranked = asked.table.numeric(asked.column("column"), flags=False) if asked.slots.get("column") else None
    amount = _amount(asked, 5 if ranked is None else 1)
    back = re.fullmatch(r"bottom|lowest|smallest|最小|最低|last|tail|后|最后", end) is not None
    words = (("first", "前"), ("last", "最后")) if ranked is None else (("largest", "最大"), ("smallest", "最小"))
    call = f"{'tail' if back else 'head'}({amount})"
    if ranked is not None:
        call = f'{"nsmallest" if back else "nlargest"}({amount}, {literal(ranked)}, keep="all")'

    def tell(found: list[Rows], place: str) -> str:
        head, *body = found[0]
        which, by = task.say(*words[back]), "" if ranked is None else f" `{ranked}`"
        tied = task.say("; equal values are all shown", "；并列的都列出") if len(body) > amount else ""
        said = task.say(f"The {many(len(body), 'row')} of {place} with the {which}{by}{tied}:" if by else
                        f"The {which} {many(len(body), 'row')} of {place}:",
                        f"{place} 中{by} {which}的 {len(body)} 行{tied}：")  # fmt: skip
        return f"{said}\n\n" + markdown(task, head, body)

    return Work(lambda source: f"print({source}.{call}.to_csv())", tell, "A few rows.")


def plot(asked: Asked) -> Work:
    """A scatter plot of two columns of numbers, a box for each group, a line over dates, or a histogram."""
    task, table, y = asked.task, asked.table, asked.table.numeric(asked.column("column"), flags=False)
    x = asked.column("other") if asked.slots.get("other") else y
    if x == y and asked.slots.get("other"):
        raise Cannot("Name two different columns.", "请写出两个不同的列。", near=True)
    down, across, label = literal(y), literal(x), literal(str(y))
    kind, draw, measure = "histogram 直方图", f".plot.hist(column={down}, bins=30, xlabel={label})", f"[{down}].count()"
    if x != y:
        kind, draw = "box plot 箱线图", f".boxplot(column={down}, by={across}, rot=45)"
        measure = f".groupby({across}, observed=True)[{down}].median().to_csv()"
        if table.counts(x):
            labels = ""
            if _UNITS.search(task.conversation.system):  # a remembered rule, of which one sees that it is followed
                labels = f", xlabel={literal(_with_unit(str(x)))}, ylabel={literal(_with_unit(str(y)))}"
            kind, draw = "scatter plot 散点图", f".plot.scatter(x={across}, y={down}{labels})"
        elif table.kind(x).startswith("datetime"):
            kind, draw = "line 折线图", f".sort_values({across}).plot(x={across}, y={down})"

    def code(source: str) -> str:
        both = f"len({source}[{_list([x, y])}].dropna())"
        told = f"{source}{measure}"
        if kind.startswith(("scatter", "line")):
            told = f'{source}[{down}].corr({source}[{across}]), {both}, sep=","' if kind[0] == "s" else both
        return f"{source}{draw}\nprint({told})"

    def tell(found: list[Rows], place: str) -> str:
        english, _, chinese = kind.rpartition(" ")
        of = task.say(f"`{y}`" + f" by `{x}`" * (x != y), f"`{y}`" + f" 对 `{x}`" * (x != y))
        said = task.say(f"The {english} of {of} from {place}", f"{place} 的{chinese}：{of}")
        if kind[0] == "b":
            medians = [row for row in found[0][1:] if len(row) == 2 and re.fullmatch(r"(?:-?[\d.]+(?:e\S+)?)?", row[1])]
            shown = markdown(task, [x, task.say("median", "中位数")], medians, 1)
            return f"{said}{task.say('; medians:', '；中位数：')}\n\n{shown}"
        r = f"r = {float(found[0][0][0] or 'nan'):.2f}; " if kind[0] == "s" else ""
        return f"{said}: {r}n = {int(found[0][0][-1])}."

    return Work(code, tell, f"{y}, drawn.")


_UNITS: Final = re.compile(r"\bunits on (?:their|the|its) axes\b")
_UNIT: Final = re.compile(r"(.+)_(mm|cm|m|km|mg|g|kg|s|usd|eur)")


def _with_unit(column: str) -> str:
    """`body_mass_g` as "body mass (g)"; another name as it is."""
    found = _UNIT.fullmatch(column)
    return f"{found[1].replace('_', ' ')} ({found[2]})" if found else column


BUILDERS: Final[Mapping[str, Callable[[Asked], Work]]] = {
    "profile": profile, "missing": missing, "rows": rows, "count": count, "statistic": statistic, "plot": plot,
}  # fmt: skip
