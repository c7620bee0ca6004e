"""Requests about pandas tables: what a request names is found exactly or not at all, and pandas computes the answer.

A look at the user's tables comes first; then the code that the user sees computes and prints its result as CSV, which
no display option changes. A reading of the request that names a column, table or value that is not there, or more than
one, is no reading; when none or several remain, the user is told so.
"""

from __future__ import annotations

import ast
import csv
import io
import json
import re
import unicodedata
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from ipyagent.practice.model.conversation import Step
from ipyagent.practice.model.recipe import Act, Ending, Recipe, Task, how_built

Column = str | int
Rows = list[list[str]]

MOST: Final = 40
"""Rows of a result that an answer shows."""
LOOK: Final = """\
print({name: [len(table), [[column if type(column) in (str, int) else None, str(kind)]
                           for column, kind in zip(table.columns, table.dtypes)]]
       for name, table in list(globals().items())
       if type(table).__name__ == "DataFrame" and type(table).__module__.startswith("pandas") and name[:1] != "_"})"""
_UNITS: Final = (r"(?:[km]?g|lbs?|oz|[mck]m|usd|eur|gbp|chf|cny|rmb|jpy|mph|kmh|hpa|ml|kwh?|ms|sec|seconds|minutes"
                 r"|hours)")  # fmt: skip
"""Last words of a column's name that a request may leave out."""
WORDS: Final[Mapping[str, str]] = {
    "物种": "species", "体重": "body mass", "岛屿": "island", "性别": "sex", "鳍长": "flipper length",
    "喙长": "bill length", "喙深": "bill depth", "年份": "year", "雄性": "male", "雌性": "female", "企鹅": "penguins",
}  # fmt: skip
"""What the Chinese lessons and examples call the columns and values of the penguins."""
_SIGNS: Final[Mapping[str, str]] = {
    r">=|at least|no less than|不少于|不小于|至少": ">=",
    r"<=|at most|no more than|不超过|不大于|至多": "<=",
    r">|above|over|greater than|more than|larger than|大于|超过|高于": ">",
    r"<|below|under|less than|smaller than|小于|低于|少于": "<",
    r"==?|equals|equal to|是|为|等于": "==",
}
_CONDITION: Final = [
    (re.compile(rf"(?P<column>.+?)\s*(?:\b(?:is|are|was)\b\s*)?(?:{words})(?![=<>])\s*(?P<value>.+)", re.I), sign)
    for words, sign in _SIGNS.items()
] + [(re.compile(r"(?P<column>.+?)\s+(?:is|are|was)\s+(?P<value>(?!not\b).+)", re.I), "==")]
_NUMBER: Final = re.compile(rf"([-+]?(?:\d{{1,3}}(?:,\d{{3}})+|\d+)(?:\.\d+)?)(?:\s*{_UNITS})?", re.I)
NUMERIC: Final = re.compile(r"u?int\d+|float\d+|bool(?:ean)?", re.I)
_IT: Final = re.compile(
    r"(?:it|them|this|that|(?:the |this |my |that )?(?:data|data ?set|data ?frame|table)|数据|数据集|表格?|它|这个表|)",
    re.I,
)
_ASIDE: Final = re.compile(
    r"^<Figure .*>$|^matplotlib Figure \d.*$|<persisted-output path=\"[^\"]+\.png\"[^>]*>[^<]*</persisted-output>"
    r"|^(?:<cell>|\S+\.py):\d+: \w+Warning: .*$(?:\n  .*$)?",
    re.M,
)
"""What stands beside the printed CSV: figures, warnings."""
_CUT: Final = re.compile(r"^\[… [\d,]+ characters|^… \d+ more times$|<persisted-output", re.M)
_NO_TABLE: Final = (
    "There is no pandas table in this kernel. Load one first.", "这个内核里没有 pandas 表，请先加载一个。",
)  # fmt: skip


class Declined(str):
    """Words that say why a request is not answered."""


class Cannot(Exception):
    """Why a reading of a request is none, in English and Chinese; `near`: the table has all the columns it names."""

    def __init__(self, english: str, chinese: str, near: bool = False) -> None:
        super().__init__(english)
        self.texts, self.near = (english, chinese), near


def key(text: object) -> str:
    """A name as it is compared: case, `_`, `-`, points and brackets make no difference."""
    return " ".join(re.sub(r"[\s_\-./()\[\]]+", " ", unicodedata.normalize("NFKC", str(text)).casefold()).split())


def _numbers(words: str) -> set[str]:
    """The words, and with the last one in the singular or the plural."""
    found = {words, words + "s", words + "es"}
    found |= {words[:-1]} if re.search(r"[^s]s$", words) else set()
    found |= {words[:-2]} if re.search(r"(?:s|x|z|ch|sh)es$", words) else set()
    ends = {words[:-3] + "y"} if words.endswith("ies") else {words[:-1] + "ies"} if words.endswith("y") else set()
    return found | ends


def many(count: object, noun: str) -> str:
    """A number and its noun, in the singular for 1."""
    return f"{count} {noun}" if str(count).strip("*") == "1" else f"{count} {noun}s"


def looks(code: str) -> bool:
    """Whether code only looks which tables or values there are."""
    return code == LOOK or code.startswith("print({column: [value for value in ")


def plain(words: str) -> str:
    """Chinese words of the lessons in English."""
    return " ".join(re.sub("|".join(WORDS), lambda found: f" {WORDS[found[0]]} ", words).split())


def literal(value: object) -> str:
    """A name or a value as Python code."""
    return json.dumps(value, ensure_ascii=False) if isinstance(value, str) else repr(value)


def _ticks(names: Sequence[object], most: int = 20) -> str:
    return ", ".join(f"`{name}`" for name in names[:most]) + (", …" if len(names) > most else "")


@dataclass(frozen=True, slots=True)
class Table:
    """A table of the user: its name, and its columns with their dtypes, in order."""

    name: str
    columns: tuple[tuple[Column | None, str], ...]

    def column(self, words: str) -> Column:
        """The one column that these words name; a unit at its end may be left out. Raises Cannot."""
        words = words.strip(" `\"'“”")
        keys = [(column, key(column)) for column, _ in self.columns if column is not None]
        if not any(name == key(words) for _, name in keys):
            words = re.sub(r"^(?:the|each|every|all) ", "", words, flags=re.I)
        levels = [[column for column, _ in keys if str(column) == words]]
        for wanted in (key(words), key(plain(words))):
            for names in ({wanted}, _numbers(wanted)):
                levels.append([column for column, name in keys if name in names])
            levels.append([column for column, name in keys if re.sub(rf" {_UNITS}$", "", name) in _numbers(wanted)])
        told = next(filter(None, levels), [])
        if len(told) == 1:
            return told[0]
        if len(set(told)) < len(told):
            raise Cannot(f"`{self.name}` has several columns named {_ticks(told[:1])}.",
                         f"`{self.name}` 有多个列叫 {_ticks(told[:1])}。")  # fmt: skip
        if told:
            which = _ticks(told)
            raise Cannot(f"“{words}” may be {which}; name one.", f"“{words}” 可能是 {which}；请指明一个。")
        listed = _ticks([column for column, _ in keys])
        raise Cannot(f"`{self.name}` has no column “{words}”. Its columns: {listed}.",
                     f"`{self.name}` 没有列“{words}”。它的列：{listed}。")  # fmt: skip

    def several(self, words: str) -> tuple[Column, ...]:
        """The columns that a list of words names. Raises Cannot."""
        try:
            return (self.column(words),)
        except Cannot:
            parts = re.split(r"\s*,\s*(?:and\s+)?|\s+and\s+|\s*[、和与及，]\s*", words)
            if len(parts) == 1:
                raise
        found = tuple(self.column(part) for part in parts)
        if len(set(found)) < len(found):
            raise Cannot(f"“{words}” names a column twice.", f"“{words}” 重复了一个列。")
        return found

    def kind(self, column: Column) -> str:
        """A column's dtype."""
        return next(kind for name, kind in self.columns if name == column)

    def counts(self, column: Column) -> bool:
        """Whether a column holds numbers, yes and no left out."""
        return NUMERIC.fullmatch(self.kind(column)) is not None and not self.kind(column).startswith("bool")

    def numeric(self, column: Column, *, flags: bool = True) -> Column:
        """The column, if it holds numbers (or, with `flags`, yes and no). Raises Cannot."""
        if not self.counts(column) and not (flags and self.kind(column).startswith("bool")):
            kind = self.kind(column)
            raise Cannot(f"`{column}` of `{self.name}` holds no numbers (its type is {kind}).",
                         f"`{self.name}` 的 `{column}` 不是数值列（类型是 {kind}）。", near=True)  # fmt: skip
        return column


@dataclass(frozen=True, slots=True)
class Reading:
    """One way to read a request: what makes its form's work, what stands in the form's gaps, and its conditions."""

    build: Callable[[Asked], Work]
    slots: Mapping[str, str]
    where: str = ""
    only: str = ""


class Condition(NamedTuple):
    """Which rows are meant: columns of which one holds the value, a sign, and the value or, for text, its words."""

    columns: tuple[Column, ...]
    sign: str
    number: int | float | None = None
    words: str = ""


@dataclass(frozen=True, slots=True)
class Work:
    """What a reading comes to: `code` for a source of rows, and `tell`, which makes the answer of the printed rows and
    the words for the source."""

    code: Callable[[str], str]
    tell: Callable[[list[Rows], str], str]
    why: str


class Asked(NamedTuple):
    """What a form needs to make its work: the task, the table, and the words in its gaps."""

    task: Task
    table: Table
    slots: Mapping[str, str]

    def column(self, slot: str) -> Column:
        """The column in a gap. Raises Cannot."""
        return self.table.column(self.slots[slot])

    def columns(self, slot: str) -> tuple[Column, ...]:
        """The columns in a gap; none when it is empty. Raises Cannot."""
        return self.table.several(self.slots[slot]) if self.slots.get(slot) else ()


# ---------------------------------------------------------------------- the tables there are


def look(task: Task) -> Generator[Act, tuple[Step, ...], dict[str, Table]]:
    """The user's pandas tables as they are now."""
    step = yield from task.ran(LOOK, "Which tables are there, with which columns?")
    try:
        found = ast.literal_eval(step.text.strip()).items()
        return {name: Table(name, tuple((column, kind) for column, kind in columns)) for name, (_, columns) in found}
    except (ValueError, SyntaxError, TypeError, AttributeError, MemoryError, RecursionError):
        raise Ending(
            task.say("There is more in this kernel than I can look through. Name fewer or smaller tables.",
                     "这个内核里的内容太多，我看不完。请使用更少或更小的表。")
        ) from None  # fmt: skip


def _named(task: Task, tables: Mapping[str, Table], words: str) -> Table:
    """The table that these words name, or the only one there is for `it` and its like. Raises Cannot or Ending."""
    words = re.sub(r"^(?:the |my )?(.+?)(?: table| data ?frame| data ?set)?$", r"\1", words.strip(" `@"), flags=re.I)
    words = words if words in tables else plain(words)
    same = [table for name, table in tables.items() if words == name or words.casefold() == name.casefold()]
    same = [tables[words]] if words in tables else same
    if len(same) == 1 or (_IT.fullmatch(words) and len(tables) == 1):
        return same[0] if same else next(iter(tables.values()))
    _gone(task, words)
    have = _ticks(list(tables))
    if not have:
        raise Cannot(*_NO_TABLE)
    if _IT.fullmatch(words):
        raise Cannot(f"Which table: {have}? Name it in the request.", f"要用哪个表：{have}？请在请求里写明。")
    raise Cannot(f"I find no table “{words}”. The tables: {have}. I can show rows (“show the first 3 rows of NAME”, "
                 "“top 3 rows by COLUMN”) or an overview (“profile NAME”).",
                 f"没有表“{words}”。现有：{have}。可以说：显示 NAME 的前 3 行，概览 NAME。")  # fmt: skip


def _gone(task: Task, name: str) -> None:
    """Offers to rebuild a table that this conversation has made and the kernel does not have. Raises Ending."""
    if re.fullmatch(r"[A-Za-z_]\w*", name) and (code := how_built(task.conversation, name)):
        code = f"\n\n```python\n{code}\n```\n\n"
        raise Ending(
            task.say(f"`{name}` is gone: this kernel does not have it. It was made with{code}"
                     "Shall I rebuild it? Say “yes, rebuild it”.",
                     f"`{name}` 已经不在了：这个内核里没有它。它原来是这样创建的：{code}要我重建吗？回答“重建”即可。")
        )  # fmt: skip


def _mentions(text: str, tables: Mapping[str, Table]) -> Iterator[tuple[str, Table | None]]:
    """The request as it is, and without a table's name where it stands as the place of the data."""
    yield text, None
    bare = rf"(?P<name>{_any(tables)})"
    name = rf"(?:the |my )?{bare}(?: table| data ?frame| data ?set| data)?"
    it = r"(?:the|this|my) (?:data ?set|data ?frame|data|table)"
    for place in (
        rf"\s+(?:in|of|from|on|within|using|for)\s+(?:{name}|{it})(?=\s|$|,)",
        rf"^(?:in|for|using)\s+(?:{name}|{it})\s*,\s*",
        rf"(?<![\w]){bare}(?:'s\s+|\s+)(?=\w)",
        rf"^在?(?:{name}|数据|表)(?:数据|表)?(?:中|里|里面|表中|表里|的)?[,，]?",
        rf"(?<=[\u3400-\u9fff]){bare}(?:数据|表)?(?:中|里|里面|的)?",
    ):
        for found in re.finditer(place, text, re.I):
            gap = " " if found[0][:1].isspace() or found[0][-1:].isspace() else ""
            wanted = (found["name"] or "").casefold()
            table = [each for each in tables.values() if each.name.casefold() == wanted]
            if not wanted or len(table) == 1:
                rest = text[: found.start()] + gap + text[found.end() :]
                yield " ".join(rest.split()), table[0] if table else None


def _any(tables: Mapping[str, Table]) -> str:
    return "|".join(sorted(map(re.escape, tables), key=len, reverse=True)) or r"(?!)"


# ---------------------------------------------------------------------- from a request to work


def answer(task: Task, text: str, read: Callable[[str], list[Reading]], extra: str = "") -> Recipe:
    """The answer to a request about a table. `read` gives the readings of a text; `extra` is a condition on top."""
    tables = yield from look(task)
    found: dict[str, tuple[Table, Work, tuple[Condition, ...]]] = {}
    why: list[Cannot] = []
    end = rf"\s+(?:in|of|from|on|within)\s+(?:the |my )?`?({_any(tables)})`?(?: table| data ?frame| data ?set)?$"
    place = re.compile(end, re.I)
    inside = place.search(extra)
    extra = extra[: inside.start()] if inside else extra
    for said, table in _mentions(text, tables):
        for reading in read(said):
            if place.search(reading.where) or place.search(reading.only):
                continue  # that is the place of the data, and no part of a value
            whose = [table] if table else list(tables.values())
            whose = [each for each in whose if inside is None or each.name.casefold() == inside[1].casefold()]
            try:
                if "table" in reading.slots:
                    whose = [_named(task, tables, reading.slots["table"] or (table.name if table else ""))]
            except Cannot as problem:
                why.append(problem)
                continue
            for each in whose:
                try:
                    work = reading.build(Asked(task, each, reading.slots))
                    conditions = _conditions(each, reading.where) if reading.where else ()
                    for words in filter(None, (reading.only, extra)):
                        conditions += _conditions(each, words) if _is_condition(words) else (_whose(each, words),)
                except Cannot as problem:
                    why.insert(0 if table else len(why), problem)
                    continue
                found.setdefault(work.code(each.name) + repr(conditions), (each, work, conditions))
    if len(found) == 1:
        return (yield from _done(task, *next(iter(found.values()))))
    names = list(dict.fromkeys(table.name for table, _, _ in found.values()))
    if len(names) > 1:
        have = _ticks(names)
        return Declined(task.say(f"Which table: {have}? Add “in NAME”.", f"要用哪个表：{have}？请在请求里写明。"))
    if found:
        ways = "\n".join(f"- `{work.code(table.name)}`" for table, work, _ in found.values())
        return Declined(task.say(f"That can be read in more than one way:\n\n{ways}\n\nSay it more exactly.",
                                 f"这个请求有不止一种理解：\n\n{ways}\n\n请说得更确切些。"))  # fmt: skip
    for word in re.findall(r"[A-Za-z_]\w*", "" if tables else text):
        _gone(task, word)
    closest = next((each for each in why if each.near), next(iter(why), Cannot(*_NO_TABLE)))
    return Declined(task.say(*closest.texts) + task.say("\n\nI know fixed forms of requests only; “help” lists them.",
                                                        "\n\n我只认识固定的请求形式；“help” 会列出来。"))  # fmt: skip


def _is_condition(words: str) -> bool:
    return any(pattern.fullmatch(words) for pattern, _ in _CONDITION)


def _whose(table: Table, words: str) -> Condition:
    """Rows that have a value of these words somewhere, or in the column that they begin with. Raises Cannot."""
    words = re.sub(rf"(?i) (?:{re.escape(table.name)}|rows)$", "", words)
    parts = words.split()
    for at in range(1, len(parts)):
        try:
            return _condition(table, f"{' '.join(parts[:at])} is {' '.join(parts[at:])}")
        except Cannot:
            continue
    texts = [c for c, kind in table.columns if c is not None and not re.match(r"u?int|float|date|time", kind, re.I)]
    if not texts or len(parts) > 6:
        raise Cannot(f"I do not know which rows “{words}” are.", f"不知道“{words}”指哪些行。")
    return Condition(tuple(texts), "==", None, words)


def _conditions(table: Table, words: str) -> tuple[Condition, ...]:
    """What follows `where`. Raises Cannot."""
    parts = re.split(r"\s+and\s+|\s*(?:且|并且|而且)\s*", words)
    if re.search(r"\bor\b|或", words):
        raise Cannot(f"I do not know “or”: {words}.", f"我不懂“或”：{words}。")
    parts = parts if all(map(_is_condition, parts)) else [words]
    return tuple(_condition(table, part) for part in parts)


def _condition(table: Table, words: str) -> Condition:
    problem: Cannot | None = None
    for found, sign in ((pattern.fullmatch(words.strip()), sign) for pattern, sign in _CONDITION):
        if found is None:
            continue
        try:
            column = table.column(found["column"])
        except Cannot as none:
            problem = problem or none
            continue
        value, number = found["value"].strip(" `\"'“”"), None
        if table.counts(column) and (number := _NUMBER.fullmatch(value)):
            digits = number[1].replace(",", "")
            return Condition((column,), sign, float(digits) if "." in digits else int(digits))
        dates = table.kind(column).startswith(("date", "time"))
        if sign == "==" and not table.counts(column) and not dates:
            return Condition((column,), sign, None, value)
        raise Cannot(
            f"`{column}` in `{table.name}` holds dates or times; I compare only numbers and exact texts.",
            f"`{table.name}` 的 `{column}` 是日期或时间；我只比较数值和完全相同的文本。", near=True,
        ) if dates else Cannot(
            "I can compare a number column with a number, or a text column with an exact text; "
            f"`{column}` {sign.replace('==', '=')} “{value}” is neither.",
            f"我可以把数值列与数值比较，或判断文本列是否等于某个文本；`{column}` {sign.replace('==', '=')} “{value}” "
            "都不是。", near=True,
        )  # fmt: skip
    raise problem or Cannot(f"I cannot read the condition “{words}”.", f"读不懂条件“{words}”。")


def _done(task: Task, table: Table, work: Work, conditions: Sequence[Condition]) -> Recipe:
    """Finds the values that are meant, computes, and tells."""
    parts, told = [], []
    for condition in conditions:
        column, value = condition.columns[0], condition.number
        if value is None:
            column, value = yield from _value(task, table, condition)
        parts.append(f"({table.name}[{literal(column)}] {condition.sign} {literal(value)})")
        told.append(f"`{column}` {condition.sign.replace('==', '=')} {value}")
    rows = " & ".join(parts) if len(parts) > 1 else "".join(parts)[1:-1]
    step = yield from task.ran(work.code(f"{table.name}[{rows}]" if rows else table.name), work.why)
    printed = _ASIDE.sub("", step.text)
    if _CUT.search(printed):
        raise Ending(task.say("The result is too long to be read as a whole; it stands above.",
                              "结果太长，见上面的输出。"))  # fmt: skip
    which = task.say(" where ", " 中 ") + task.say(" and ", " 且 ").join(told) if told else ""
    try:
        return work.tell(_blocks(printed), f"`{table.name}`{which}")
    except (IndexError, ValueError):
        raise Ending(task.say("I cannot read that result; see above.", "这个结果我读不了，见上面的输出。")) from None


def _value(task: Task, table: Table, condition: Condition) -> Generator[Act, tuple[Step, ...], tuple[Column, Any]]:
    """The column and the one value that a condition's words name, as the data has it."""
    asked = condition.words
    words = sorted(_numbers(key(asked)) | _numbers(key(plain(asked))), key=len)
    code = (
        f"print({{column: [value for value in {table.name}[column].dropna().unique().tolist()\n"
        f"                if str(value).strip().casefold() in {json.dumps(words, ensure_ascii=False)}]\n"
        f"       for column in [{', '.join(map(literal, condition.columns))}]}})"
    )
    step = yield from task.ran(code, f"Which value is “{asked}”?")
    try:
        told = ast.literal_eval(step.text.strip())
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        told = {}
    found = [(column, value) for column, values in told.items() for value in values]
    found = [each for each in found if key(each[1]) in (key(asked), key(plain(asked)))] or found
    where = _ticks(condition.columns, 8)
    if not found:
        raise Ending(task.say(f"No value of {where} in `{table.name}` is “{asked}”.",
                              f"`{table.name}` 的 {where} 中没有“{asked}”。"))  # fmt: skip
    if len(found) > 1:
        which = ", ".join(f"`{column}` = {value}" for column, value in found)
        raise Ending(task.say(f"“{asked}” may be {which}. Say “where COLUMN is VALUE”.",
                              f"“{asked}” 可能是 {which}。请写明列和取值。"))  # fmt: skip
    return found[0]


def _blocks(text: str) -> list[Rows]:
    """The CSV texts that were printed one after another, as rows of cells."""
    found: list[Rows] = [[]]
    for row in csv.reader(io.StringIO(text.strip("\n"))):
        if row:
            found[-1].append(row)
        elif found[-1]:
            found.append([])
    return found
