"""What the answers share: a headline over a printed table, rounding, keys to group by, and what is not found."""

from __future__ import annotations

import re
from collections.abc import Sequence

from . import reading
from .frames import Frame
from .names import fresh, quoted
from .query import Query, listed
from .recipe import Ending, Task

MOST_GROUPS = 20
SMALL = re.compile(
    r"smallest|lowest|lightest|youngest|shortest|cheapest|bottom|(?<!at )least|fewest|\bascending\b|升序"
    r"|最(?:小|低|轻|短|少"
    r"|便宜|年轻)",
    re.I,
)


ADDED = re.compile(
    r"revenue|sales|amount|units|qty|quantity|profit|cost|volume|count|orders|deaths|damage|spend|turnover"
    r"|销售额|金额|数量|利润|成本|销量|收入|营收", re.I
)  # fmt: skip
"""Names of columns whose values are added up rather than averaged."""


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


def keyed(query: Query, groups: Sequence[str], *, linear: bool = False) -> tuple[list[str], str, str]:
    """Names of the keys to group by, what stands in the brackets of `groupby`, and the lines that make the keys.

    Parts of dates ("by month") are keys that are no columns.
    """
    if not query.units:
        return list(groups), quoted(groups[0]) if len(groups) == 1 else listed(groups), ""
    names: list[str] = []
    keys: list[str] = []
    lines = ""
    for each in query.units:
        key = fresh(each.unit if each.unit not in groups else f"{each.unit}_of_date", {*query.taken, *names})
        lines += f'{key} = {each.code(query.source, linear=linear)}.rename("{each.unit}")\n'
        names.append(each.unit)
        keys.append(key)
    keys += map(quoted, groups)
    return [*names, *groups], keys[0] if len(keys) == 1 else f"[{', '.join(keys)}]", lines


def years(query: Query) -> str:
    """Code that says of how many years the months are that are taken together; nothing where years are told."""
    units = {each.unit: each for each in query.units}
    if "year" in units or not units or not {"month", "quarter"} & set(units):
        return ""
    first = query.units[0]
    dates = first.code(query.source).rsplit(".dt.", 1)[0]
    return f'print("years =", {dates}.dt.year.nunique())\n'


def of_years(task: Task, query: Query, text: str) -> str:
    """Says that the same months of several years were taken together, when they were."""
    number = reading.named(text, "years")
    if not number or number == "1" or not years(query):
        return ""
    return task.say(
        f" The same {query.units[0].unit}s of {number} years are taken together.",
        f" {number} 年的同一{'月' if query.units[0].unit == 'month' else '季度'}合在一起计算。",
    )
