"""Filling missing values: on a new name unless the user says in place, and the answer says how many were filled."""

from __future__ import annotations

import re

from .columns import stem
from .names import quoted
from .phrases import bag
from .query import Query, listed
from .recipe import Ending, Recipe, Task
from .showing import which

_IN_PLACE = re.compile(r"\bin[- ]?place\b|\bitself\b|\boverwrit\w+|\bdirectly\b|原地|直接|本身|覆盖", re.I)
_WAYS = (
    ("mean", r"\b(?:mean|average)\b|均值|平均"), ("median", r"\bmedian\b|中位"),
    ("mode", r"\bmode\b|\bmost (?:frequent|common)\b|众数"),
    ("ffill", r"\b(?:forward|previous|last|ffill)\b|向前|前一个|前值"), ("bfill", r"\b(?:backward|bfill)\b|向后|后值"),
)  # fmt: skip
_VALUE = re.compile(
    r"(?:\b(?:with|by|as|to|using)\b|[用以为成])\s*(?:the |a |an |its |their |number |value |text |数值?|数字)*"
    r"(?:(?P<number>-?\d+(?:\.\d+)?)(?![\w.])|(?P<zero>zeros?\b|零)|[\"'“](?P<text>[^\"'”]*)[\"'”]"
    r"|(?P<word>[A-Za-z]\w*|[\u3400-\u9fff]{2,}?(?=填|补|替|代|$)))",
    re.I,
)
_WORDS = bag(
    "ffill bfill fillna impute inplace place directly overwrite overwriting previous forward backward mode common"
    " frequent blank blanks empty cell cells entries replace number text string null nulls any leave copy"
)
_TARGET = re.compile(
    r"\b(?:missing|nan|null|blank|empty)\s+(?!(?:values?|data|cells?|entries|numbers?|in|with|by|of|from)\b)(\w+)", re.I
)


def fill(task: Task, query: Query) -> Recipe:
    """Fills the columns named, else all that the value fits, with a value or a statistic of each column."""
    frame, name = query.frame, query.frame.name
    way = next((each for each, pattern in _WAYS if re.search(pattern, query.words, re.I)), "")
    found = None if way else _VALUE.search(query.words)
    if not way and found is None:
        raise Ending(
            task.say(
                "Fill with what? Say for example “with 0”, “with the median” or “with 'unknown'”.",
                "用什么填充？例如：“用 0 填充”、“用中位数填充”。",
            )
        )
    plain = "" if found is None else found["text"] or found["word"] or ""
    value = "" if found is None else found["number"] or ("0" if found["zero"] else quoted(plain))
    conditions = [each for each in query.filters if each.value != quoted(plain)]
    known = {*plain.lower().split(), *_WORDS, *(each.lower() for each in _TARGET.findall(query.words))}
    unread = [each for each in frame.left if each not in known and each not in plain]
    if conditions or unread:
        only = "; ".join([*map(str, conditions), *(f"“{each}”" for each in unread)])
        raise Ending(
            task.say(
                f"I fill whole columns and changed nothing: I cannot follow {only}.",
                f"我只会填充整列，所以什么都没有改：{only} 我处理不了。",
            )
        )
    chosen = list(query.mentions) or _target(task, query)
    chosen = chosen or [each for each in frame.columns if _fits(query, each, way, value)]
    if way in ("mean", "median"):
        chosen = [each for each in chosen if frame.numeric(each)]
    if not chosen:
        raise which(task, frame, "column")
    made = name if _IN_PLACE.search(query.words) else task.fresh(f"{name}_filled")
    if way in ("ffill", "bfill"):
        change = f"{name}.assign(**{name}[{listed(chosen)}].{way}())"
    else:
        each_value = {each: _value(name, each, way, value) for each in chosen}
        change = f"{name}.fillna({{{', '.join(f'{quoted(key)}: {code}' for key, code in each_value.items())}}})"
    code = (
        f'print("missing before:", {name}[{listed(chosen)}].isna().sum().sum())\n{made} = {change}\n'
        f'print("missing after:", {made}[{listed(chosen)}].isna().sum().sum())'
    )
    step = yield from task.sure(code, f"Fill missing values of {', '.join(chosen)}.")
    counts = re.search(r"missing before: (\d+)\s+missing after: (\d+)", step.text)
    if counts is None:
        return f"```text\n{step.text.strip()[:1000]}\n```"
    columns, left = ", ".join(f"`{each}`" for each in chosen), int(counts[2])
    filled, by = int(counts[1]) - left, value or way
    said = task.say(
        f"Filled **{filled}** missing values of {columns} with {by}; {left} are left.",
        f"已用 {by} 填充 {columns} 的 **{filled}** 个缺失值，还剩 {left} 个。",
    )
    if made == name:
        return said + task.say(f" `{name}` itself is changed.", f"`{name}` 本身已改变。")
    return said + task.say(f" The result is `{made}`; `{name}` is as it was.", f"结果是 `{made}`；`{name}` 没有改变。")


def _fits(query: Query, column: str, way: str, value: str) -> bool:
    """Whether a column that was not named is meant: numbers for a number, texts for a text."""
    if way in ("mode", "ffill", "bfill"):
        return True
    return query.frame.numeric(column) != value.startswith('"')


def _target(task: Task, query: Query) -> list[str]:
    """The column that "missing totals" speaks of, by part of its name; the turn ends when there is none."""
    found = _TARGET.search(query.words)
    if found is None:
        return []
    hits = [each for each in query.frame.columns if stem(found[1].lower()) in each.lower()]
    if len(hits) != 1:
        raise which(task, query.frame, "column")
    return hits


def _value(name: str, column: str, way: str, value: str) -> str:
    source = f"{name}[{quoted(column)}]"
    return value or (f"{source}.mode().iloc[0]" if way == "mode" else f"{source}.{way}()")
