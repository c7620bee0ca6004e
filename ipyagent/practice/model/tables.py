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
from contextlib import suppress
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
_UNITS: Final = r"(?:[km]?g|lbs?|oz|[mck]m|usd|eur|gbp|chf|cny|mph|kmh|hpa|ml|kwh?|ms|sec|seconds|minutes|hours)"
"""Last words of a column's name that a request may leave out."""
_IT: Final = re.compile(r"it|them|this|(?:the |this |my )?(?:data|data ?set|data ?frame|table)|数据|表格?|它|", re.I)
_ASIDE: Final = re.compile(
    r"^<Figure .*>$|^matplotlib Figure \d.*$|<persisted-output path=\"[^\"]+\.png\"[^>]*>[^<]*</persisted-output>"
    r"|^(?:<cell>|\S+\.py):\d+: \w+Warning: .*$(?:\n  .*$)?",
    re.M,
)
"""What stands beside the printed CSV: figures, warnings."""
_CUT: Final = re.compile(r"^\[… [\d,]+ characters|^… \d+ more times$|<persisted-output", re.M)


class Cannot(Exception):
    """Why a reading of a request is none, in English and Chinese; `near`: the table has all the columns it names."""

    def __init__(self, english: str, chinese: str, near: bool = False) -> None:
        super().__init__(english)
        self.texts, self.near = (english, chinese), near


NO_TABLE: Final = Cannot(
    "There is no pandas table in this kernel. Load one first.", "这个内核里没有 pandas 表，请先加载一个。"
)


def key(text: object) -> str:
    """A name as it is compared: case, `_`, `-`, points and brackets make no difference."""
    return " ".join(re.sub(r"[\s_\-./()\[\]]+", " ", unicodedata.normalize("NFKC", str(text)).casefold()).split())


def _numbers(words: str) -> set[str]:
    """The words, and with the last one in the singular or the plural."""
    ends = (("$", "s"), ("$", "es"), ("y$", "ies"), ("ies$", "y"), ("(?<=[sxh])es$", ""), ("(?<!s)s$", ""))
    return {words, *(re.sub(end, other, words, count=1) for end, other in ends)}


def many(count: object, noun: str) -> str:
    """A number and its noun, in the singular for 1."""
    return f"{count} {noun}" if str(count).strip("*") == "1" else f"{count} {noun}s"


def looks(code: str) -> bool:
    """Whether code only looks which tables or values there are."""
    return code == LOOK or code.startswith("print({column: [value for value in ")


def literal(value: object) -> str:
    """A name or a value as Python code."""
    return json.dumps(value, ensure_ascii=False) if isinstance(value, str) else repr(value)


def ticks(names: Sequence[object], most: int = 20) -> str:
    """Names in backticks, the first `most`."""
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
        near = _numbers(key(words))
        for fits in (
            lambda column, name: str(column) == words,
            lambda column, name: name == key(words),
            lambda column, name: name in near,
            lambda column, name: re.sub(rf" {_UNITS}$", "", name) in near,
        ):
            told = [column for column, name in keys if fits(column, name)]
            if len(told) == 1:
                return told[0]
            if told:
                which = ticks(list(dict.fromkeys(told)))
                raise Cannot(f"“{words}” may be several columns: {which}.", f"“{words}” 可能是多个列：{which}。")
        listed = ticks([column for column, _ in keys])
        raise Cannot(f"`{self.name}` has no column “{words}”. Its columns: {listed}.",
                     f"`{self.name}` 没有列“{words}”。它的列：{listed}。")  # fmt: skip

    def kind(self, column: Column) -> str:
        """A column's dtype."""
        return next(kind for name, kind in self.columns if name == column)

    def counts(self, column: Column) -> bool:
        """Whether a column holds numbers, yes and no left out."""
        return re.fullmatch(r"u?int\d+|float\d+", self.kind(column), re.I) is not None

    def numeric(self, column: Column, *, flags: bool = False) -> Column:
        """The column, if it holds numbers (or, with `flags`, yes and no). Raises Cannot."""
        if not self.counts(column) and not (flags and self.kind(column).startswith("bool")):
            kind = self.kind(column)
            raise Cannot(f"`{column}` of `{self.name}` holds no numbers (its type is {kind}).",
                         f"`{self.name}` 的 `{column}` 不是数值列（类型是 {kind}）。", near=True)  # fmt: skip
        return column


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
        """The columns that are listed in a gap, each once; none when it is empty. Raises Cannot."""
        if slot not in self.slots:
            return ()
        try:
            return (self.column(slot),)
        except Cannot:
            parts = re.split(r"\s*,\s*(?:and\s+)?|\s+and\s+|\s*[、和与及，]\s*", self.slots[slot])
            if len(parts) == 1:
                raise
        return tuple(dict.fromkeys(map(self.table.column, parts)))

    def fitting(self) -> int:
        """How many gaps name columns of the table."""
        fits = 0
        for slot in self.slots.keys() & {"column", "columns", "groups", "other"}:
            with suppress(Cannot):
                fits += bool(self.columns(slot))
        return fits


Reading = tuple[Callable[[Asked], Work], Mapping[str, str]]
"""One way to read a request: what makes its form's work, and what stands in the form's gaps."""


def look(task: Task) -> Generator[Act, tuple[Step, ...], dict[str, Table]]:
    """The user's pandas tables as they are now."""
    found = _printed(task, (yield from task.ran(LOOK, "Which tables are there, with which columns?")))
    return {name: Table(name, tuple(map(tuple, columns))) for name, (_, columns) in found.items()}


def _unreadable(task: Task) -> Ending:
    return Ending(task.say("I cannot read that result as a whole; it stands above.", "结果我读不完整，见上面的输出。"))


def _printed(task: Task, step: Step) -> dict[str, Any]:
    """The dictionary that a look has printed; ends the turn where it was cut."""
    try:
        return dict(ast.literal_eval(step.text.strip()))
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        raise _unreadable(task) from None


def _named(task: Task, tables: Mapping[str, Table], words: str) -> Table:
    """The table that these words name, or the only one there is for `it` and its like. Raises Cannot or Ending."""
    words = re.sub(r"^(?:the |my )?(.+?)(?: table| data ?frame| data ?set)?$", r"\1", words.strip(" `@"), flags=re.I)
    if words in tables:
        return tables[words]
    if _IT.fullmatch(words) and len(tables) == 1:
        return next(iter(tables.values()))
    _gone(task, words)
    if not tables:
        raise NO_TABLE
    raise Cannot(f"I find no table “{words}”. The tables: {ticks(list(tables))}.", f"没有表“{words}”。")


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
    name = _any(tables)
    for place in (
        rf"\s+(?:in|of|from)\s+(?:the |my )?{name}(?: table| data)?(?=\s|$|,)",
        rf"(?<![\w]){name}(?:'s\s+|\s+)(?=\w)",
        rf"(?:^在?|(?<=[\u3400-\u9fff])){name}(?:数据|表)?(?:中|里|的)?[,，]?",
    ):
        for found in re.finditer(place, text):
            gap = " " if found[0][:1].isspace() or found[0][-1:].isspace() else ""
            yield " ".join(f"{text[: found.start()]}{gap}{text[found.end() :]}".split()), tables[found["name"]]


def _any(tables: Mapping[str, Table]) -> str:
    return f"(?P<name>{'|'.join(sorted(map(re.escape, tables), key=len, reverse=True)) or '(?!)'})"


def answer(task: Task, text: str, read: Callable[[str], list[Reading]], only: str = "") -> Recipe:
    """The answer to a request about a table. `read` gives the readings of a text; `only`: a value of the rows that are
    meant ("": all)."""
    tables = yield from look(task)
    found: dict[str, tuple[Table, Work]] = {}
    why: list[tuple[Cannot, tuple[int, bool]]] = []  # and how near it is: columns that the table has, asked about last
    newest = _newest(task, tables)
    for said, table in _mentions(text, tables):
        for build, slots in read(said):
            try:
                whose = [table] if table else list(tables.values())
                if "table" in slots:
                    whose = [_named(task, tables, slots["table"])]
            except Cannot as problem:
                why.append((problem, (0, False)))
                continue
            for each in whose:
                asked = Asked(task, each, slots)
                try:
                    work = build(asked)
                except Cannot as problem:
                    near = (len(slots) + 1 if table else asked.fitting(), each.name == newest)
                    why.insert(0 if table else len(why), (problem, near))
                    continue
                found.setdefault(work.code(each.name), (each, work))
    if len(found) == 1:
        return (yield from _done(task, *next(iter(found.values())), only))
    if found:
        ways = "\n".join(f"- `{code}`" for code in found)
        return task.say(f"That can be read in more than one way:\n\n{ways}\n\nSay it more exactly, with “in TABLE”.",
                        f"这个请求有不止一种理解：\n\n{ways}\n\n请说得更确切些，并写明表名。")  # fmt: skip
    for word in re.findall(r"[A-Za-z_]\w*", "" if tables else text):
        _gone(task, word)
    closest, _ = max(why, key=lambda each: (each[0].near, each[1]), default=(NO_TABLE, (0, False)))
    return task.say(*closest.texts) + task.say("\n\nI know fixed forms of requests only; “help” lists them.",
                                               "\n\n我只认识固定的请求形式；“help” 会列出来。")  # fmt: skip


def _newest(task: Task, tables: Mapping[str, Table]) -> str:
    """The table that the last turn with one computed on; "" without such a turn."""
    name = re.compile(rf"(?<!\w){_any(tables)}(?!\w)")
    for turn in reversed(task.conversation.turns[:-1]):
        for step in reversed(turn.steps):
            if step.code and not looks(step.code) and (used := name.search(step.code)):
                return used["name"]
    return ""


def _done(task: Task, table: Table, work: Work, only: str) -> Recipe:
    """Finds the value that is meant, computes, and tells."""
    source, which = table.name, ""
    if only:
        column, value = yield from _value(task, table, only)
        source = f"{source}[{source}[{literal(column)}] == {literal(value)}]"
        which = task.say(" where ", " 中 ") + f"`{column}` = {value}"
    step = yield from task.ran(work.code(source), work.why)
    printed = _ASIDE.sub("", step.text)
    if _CUT.search(printed):
        raise _unreadable(task)
    try:
        return work.tell(_blocks(printed), f"`{table.name}`{which}")
    except (IndexError, ValueError):
        raise _unreadable(task) from None


def _value(task: Task, table: Table, asked: str) -> Generator[Act, tuple[Step, ...], tuple[Column, Any]]:
    """The column and the one value that these words name, as the data has it."""
    columns = [c for c, kind in table.columns if c is not None and not re.match(r"u?int|float|date|time", kind, re.I)]
    if not columns:
        raise Ending(task.say(f"I do not know which rows “{asked}” are.", f"不知道“{asked}”指哪些行。"))
    words = sorted(_numbers(key(asked)), key=len)
    code = (
        f"print({{column: [value for value in {table.name}[column].dropna().unique().tolist()\n"
        f"                if str(value).strip().casefold() in {json.dumps(words, ensure_ascii=False)}]\n"
        f"       for column in [{', '.join(map(literal, columns))}]}})"
    )
    told = _printed(task, (yield from task.ran(code, f"Which value is “{asked}”?")))
    found = [(column, value) for column, values in told.items() for value in values]
    found = [each for each in found if key(each[1]) == key(asked)] or found
    if not found:
        raise Ending(task.say(f"No value of {ticks(columns, 8)} in `{table.name}` is “{asked}”.",
                              f"`{table.name}` 的 {ticks(columns, 8)} 中没有“{asked}”。"))  # fmt: skip
    if len(found) > 1:
        which = ", ".join(f"`{column}` = {value}" for column, value in found)
        raise Ending(task.say(f"“{asked}” may be {which}.", f"“{asked}” 可能是 {which}。"))
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
