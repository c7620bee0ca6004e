"""Finds which DataFrame a request means and reads its real columns before anything is computed."""

from __future__ import annotations

import json
import re
from collections.abc import Generator, Mapping
from dataclasses import dataclass, replace

from . import reading, schema
from .choosing import choose, columns_of, fitting, named, names_in
from .columns import chinese_names, find, unexplained
from .conditions import Shape
from .conversation import Step
from .lost import gone, gone_text, how_built
from .phrases import bag, english
from .recipe import Act, Ending, Task
from .schema import Range, Schema

_TEMPORAL = ("datetime", "period")


# Kinds of requests for which names and dtypes of the columns are enough when every word is understood.
_SHALLOW = bag("missing drop fill how_many values rows correlate fit")
_DIGIT = re.compile(r"\d")
_ISO = re.compile(r"(?:1[5-9]|20|21)\d\d[-/]\d\d?[-/]\d\d?(?:$|[ T])")
# Kinds that say nothing of single rows, so that words which are no columns are no conditions either.
_WHOLE = bag("columns profile")


@dataclass(frozen=True, slots=True)
class Frame:
    """A DataFrame as it is now: its name, row count, dtypes, and what is known of the values in its columns.

    `unique`: how many distinct values, where known. `values`: values that may be named in a request. `counts`: how
    often each occurs, only when read in this very turn. `left`: words of the request that name nothing in it.
    """

    name: str
    rows: int
    dtypes: Mapping[str, str]
    unique: Mapping[str, int]
    values: Mapping[str, tuple[str, ...]]
    ranges: Mapping[str, Range]
    counts: Mapping[str, Mapping[str, int]]
    left: tuple[str, ...] = ()

    @property
    def columns(self) -> list[str]:
        """Column names in order."""
        return list(self.dtypes)

    @property
    def own(self) -> list[str]:
        """Chinese names of columns, words in them, and values, longest first."""
        return chinese_names(self.dtypes, self.values)

    def numeric(self, column: str) -> bool:
        """Whether the column holds numbers (booleans are not)."""
        return bool(re.match(r"u?int\d|float|U?Int\d|Float|double|decimal", self.dtypes[column]))

    @property
    def texts(self) -> list[str]:
        """Columns of texts and categories, dates apart."""
        kinds = ("str", "object", "category", "string")
        return [column for column, dtype in self.dtypes.items() if dtype in kinds and not self.temporal(column)]

    def temporal(self, column: str) -> bool:
        """Whether the column holds dates or is a text column named like one."""
        dtype = self.dtypes[column].lower()
        named = re.search(r"date|time|日期|时间", column, re.I)
        known = self.values.get(column, ())
        return dtype.startswith(_TEMPORAL) or bool(
            named and not self.numeric(column) and not dtype.startswith("bool")
            and (self.unique.get(column, 99) > 12 or (known and all(map(_ISO.match, known))))
        )  # fmt: skip

    @property
    def shape(self) -> Shape:
        """What conditions need to know of the columns."""
        columns = self.columns
        return Shape(
            self.dtypes, [each for each in columns if self.numeric(each)], [c for c in columns if self.temporal(c)],
            self.values, {key: each.low for key, each in self.ranges.items()},
            {key: each.high for key, each in self.ranges.items()},
        )  # fmt: skip

    def few(self, column: str, most: int = 12) -> bool:
        """Whether the column has few enough values to be a group; texts of which little is known are taken to."""
        return self.unique.get(column, self.rows if self.numeric(column) else 1) <= most

    def most(self, column: str, stat: str = "mean") -> float:
        """A bound on the size of a statistic of the column; not a number when its range is unknown."""
        known = self.ranges.get(column)
        if known is None:
            return float("nan")
        return max(abs(known.low), abs(known.high)) * (self.rows if stat == "sum" else 1)


Finding = Generator[Act, tuple[Step, ...], Frame]


def categories_of(name: str, texts: list[str]) -> str:
    """Code for how often each value of these columns occurs, columns of many values left out."""
    listed = json.dumps(texts[:15], ensure_ascii=False)
    return (
        f"{{column: {name}[column].value_counts().to_dict() for column in {listed} if {name}[column].nunique() <= 40}}"
    )


def find_frame(task: Task, text: str, kind: str, without: str = "", meant: str = "") -> Finding:
    """The DataFrame the request means, as it is now. Ends the turn when there is none or it is gone.

    `text`: the request with what it amends; `without`: a name that has just turned out not to be there; `meant`: the
    name, where it is known already.
    """
    name = meant or (yield from named(task, text, without))
    told = task.known.tables.get(name) if not without else None
    counts = task.known.counts.get(name) if not without else None
    said = _without_name(text, name, task).split("\n")
    frame = _frame(told, counts) if told else None
    if frame is None or not told or not (told.deep or _names_do(said, frame, kind)):
        told = (yield from _described(task, name)) or told
    if told is None:
        told = yield from _inspected(task, name)
    frame, fresh = _frame(told, counts), False
    texts = frame.texts
    if counts is None and texts and (_left(said, frame, kind) or _pair_needed(said, frame, kind)):
        step = yield from task.python(
            categories_of(name, texts),
            f"Which values do the text columns of `{name}` have? The request may name some.",
        )
        if step.failed and reading.error(step.text)[0] == "NameError":
            if without:
                raise Ending(task.failure(step.text))
            return (yield from find_frame(task, text, kind, name))
        counts, fresh = (None if step.failed else schema.categories(step.text)), True
        frame = _frame(told, counts, fresh=fresh)
    left = _left(said[:-1], frame, kind) if counts is not None or not texts else []
    if left and not meant and (other := (yield from _elsewhere(task, text, name, left))):
        return (yield from find_frame(task, text, kind, without, other))
    return replace(frame, left=tuple(dict.fromkeys(left)))


def _without_name(text: str, name: str, task: Task) -> str:
    """The text without the table's name, where that is no column's."""
    if name not in names_in(text, [name], columns_of(task.known)):
        return text
    edge = "" if re.search(r"[\u3400-\u9fff]", name) else r"(?![A-Za-z0-9_])"
    return re.sub(rf"{'(?<![A-Za-z0-9_])' if edge else ''}{re.escape(name)}{edge}", " ", text)


def _elsewhere(task: Task, text: str, name: str, left: list[str]) -> Generator[Act, tuple[Step, ...], str]:
    """Another table of the user's whose columns and values explain more of the request, which names no table."""
    known = task.known
    others = [each for each in known.sizes if each != name and each not in known.own - known.loaded]
    attached = task.conversation.turn.attached("variable")
    if attached or name in names_in(text, [name], columns_of(known)) or name not in known.tables:
        return ""
    if known.cut and task.has("variables"):
        # The listing had no room for all names: a word may be one of those.
        for word in [each for each in left if each.isidentifier() and each not in known.names][:2]:
            step = yield from task.call("variables", {"name": word}, f"Is `{word}` a table that the listing left out?")
            if not step.failed and word in reading.frames(step.text):
                return word
    if not others:
        return ""
    look = sorted((each for each in others if each not in known.tables or not known.tables[each].deep),
                  key=lambda each: each in known.tables)[:8]  # fmt: skip
    if look and task.has("variables"):
        calls = tuple(("variables", {"name": each}) for each in look)
        steps = yield Act(calls, "Words of the request are not in this table: are they in another?")
        for each, step in zip(look, steps, strict=True):
            if not step.failed:
                known.described(each, step.text)
    best = fitting(known, text, [name, *others], name)
    return best if best != name else ""


def _frame(told: Schema, counts: Mapping[str, Mapping[str, int]] | None, *, fresh: bool = False) -> Frame:
    """What is known of a table, put together."""
    unique: dict[str, int] = dict(told.categories)
    values: dict[str, tuple[str, ...]] = {}
    for column, dtype in told.dtypes.items():
        span = told.ranges.get(column)
        if counts and column in counts:
            values[column] = tuple(counts[column])
        elif dtype.startswith("bool"):
            values[column] = ("True", "False")
        elif span and span.low == int(span.low) and span.high == int(span.high) and span.high - span.low < 40:
            values[column] = tuple(map(str, range(int(span.low), int(span.high) + 1)))
            unique[column] = min(len(values[column]), told.rows)
        elif span or (counts is not None and dtype in ("str", "object", "string")):
            unique[column] = told.rows
        elif told.examples.get(column):
            values[column] = schema.opposite(told.examples[column])
        if counts and column in counts:
            unique.setdefault(column, len(values[column]))
    return Frame(told.name, told.rows, told.dtypes, unique, values, told.ranges, (counts or {}) if fresh else {})


def _names_do(said: list[str], frame: Frame, kind: str) -> bool:
    """Whether names and dtypes are enough: no word and no number of the request can be a value."""
    flags = kind == "how_many" and any(find(part, frame.columns) for part in _words(said, frame))
    return kind in _SHALLOW and not flags and not any(map(_DIGIT.search, said)) and not _left(said, frame, kind)


def _left(said: list[str], frame: Frame, kind: str) -> list[str]:
    """Words of the request that are no column, no known value and no word of asking: they may be values."""
    if kind in _WHOLE:
        return []
    return [word for part in _words(said, frame) for word in unexplained(part, frame.columns, frame.values)]


def _words(said: list[str], frame: Frame) -> list[str]:
    """The parts of a request in English, names of the frame's own left as they are."""
    return [english(part, frame.own) for part in said]


def _pair_needed(said: list[str], frame: Frame, kind: str) -> bool:
    """Whether two groups are to be compared whose names are not all known."""
    return kind in ("compare", "correlate") and any(
        frame.dtypes[each.column] in ("str", "object", "string")
        and {value.lower() for value in frame.values.get(each.column, ())} != {"yes", "no"}
        for part in _words(said, frame)
        for each in find(part, frame.columns)
    )


def _described(task: Task, name: str) -> Generator[Act, tuple[Step, ...], Schema | None]:
    """The table as the `variables` tool describes it; None when that does not tell all columns."""
    if not task.has("variables"):
        return None
    step = yield from task.call("variables", {"name": name}, f"The columns of `{name}` come first.")
    if step.failed:
        if how_built(task.conversation, name):
            raise Ending(gone_text(task, name, gone(task.conversation).get(name, "")))
        return None
    return schema.block(step.text)


def _inspected(task: Task, name: str) -> Generator[Act, tuple[Step, ...], Schema]:
    """The table's columns read by code, where no description tells them all."""
    step = yield from task.python(
        f"print(len({name}), {name}.dtypes.astype(str).to_dict())", f"All columns of `{name}`, with their types."
    )
    if step.failed:
        if reading.error(step.text)[0] == "NameError":
            yield from choose(task, name, without=name, unbound=True)
        raise Ending(task.failure(step.text))
    found, rows = reading.literal(step.text), re.search(r"\d+", step.text)
    if not isinstance(found, dict) or rows is None:
        raise Ending(
            task.say(f"I could not read the columns of `{name}` from:", f"读不出 `{name}` 的列：")
            + f"\n\n{step.text[:500]}"
        )
    return Schema(name, int(rows[0]), {str(column): str(dtype) for column, dtype in found.items()})
