"""Which of several tables a request means: the one it names, else the one that has the columns or values it names.

A name of Chinese characters stands in a text without spaces, so it is looked for anywhere in it, but never inside a
longer name of a column: 销售额 does not name the table 销售.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Generator, Iterable, Mapping

from . import reading
from .columns import chinese_names, find, find_values
from .conversation import Step
from .knowledge import Knowledge
from .lost import gone, gone_text, how_built
from .phrases import english
from .recipe import Act, Ending, Task
from .schema import Schema

NAME = r"[^\W\d]\w*"
_HAN = re.compile(r"[\u3400-\u9fff]")
_SURE = 4.5
"""The score of a mention below which it is a likely misspelling only."""


def names_in(text: str, names: Iterable[str], columns: Collection[str] = ()) -> list[str]:
    """Those of the names that the text holds, in its order; `columns` are longer words that may hold one of them."""
    found: dict[str, int] = {}
    taken: list[tuple[int, int]] = []
    wanted = set(names)
    longer = {each for each in columns if _HAN.search(each)} - wanted
    for name in sorted(wanted | longer, key=len, reverse=True):
        pattern = re.escape(name)
        if not _HAN.search(name):
            pattern = rf"(?<![A-Za-z0-9_]){pattern}(?![A-Za-z0-9_])"
        for match in re.finditer(pattern, text):
            if any(a < match.end() and match.start() < b for a, b in taken):
                continue
            taken.append(match.span())
            if name in wanted:
                found.setdefault(name, match.start())
    return sorted(found, key=lambda each: found[each])


def columns_of(known: Knowledge) -> set[str]:
    """All names of columns that are known."""
    return {column.strip() for table in known.tables.values() for column in table.dtypes}


def explained(text: str, table: Schema, counts: Mapping[str, Mapping[str, int]] | None = None) -> float:
    """How much of a text a table explains: its columns and values that are named, whole names a little more."""
    values: dict[str, tuple[str, ...]] = {key: tuple(each) for key, each in table.examples.items()}
    values |= {key: tuple(each) for key, each in (counts or {}).items()}
    words = english(text, chinese_names(table.dtypes, values))
    mentions = [each for each in find(words, list(table.dtypes)) if each.score >= _SURE]
    named = find_values(words, values, mentions)
    exact = sum(min(each.score, 20) / 1000 + (each.end - each.start) / 10_000 for each in mentions)
    core = re.sub(r"(?:_?(?:df|data|table))$|^(?:df|data)_|(?:数据表|数据|表|明细)$", "", table.name)
    called = core != table.name and len(core) > 1 and names_in(text, [core], table.dtypes)
    return len(mentions) + len(named) + bool(called) + exact


def _exact(text: str, table: Schema) -> bool:
    """Whether the text names a column by its whole name in Chinese characters."""
    return any(_HAN.search(column) and column.strip() in text for column in table.dtypes)


def fitting(known: Knowledge, text: str, among: Iterable[str], standing: str = "") -> str:
    """The table that explains most of the text; `standing` unless another explains at least one name more; "" when
    none explains any."""
    own = known.own - known.loaded
    scores = {
        name: explained(text, known.tables[name], known.counts.get(name))
        for name in among if name in known.tables and (name not in own or name == standing)
    }  # fmt: skip
    if standing and standing not in scores:
        return standing
    sure = {name for name in scores if _exact(text, known.tables[name])}
    order = {name: (int(score), name in sure, score, known.tables[name].rows) for name, score in scores.items()}
    best = max(scores, key=lambda each: order[each], default="")
    if standing in scores and int(scores[best]) == int(scores[standing]) and best in sure and standing not in sure:
        return best
    if not best or scores[best] < 1:
        return standing
    return best if int(scores[best]) > int(scores.get(standing, 0)) or not standing else standing


_SEARCH = '[n for n, v in list(globals().items()) if type(v).__name__ == "DataFrame" and not n.startswith("_")]'


def look_at_named(task: Task, text: str) -> Generator[Act, tuple[Step, ...], None]:
    """Learns what the names of a request are that the listing of variables had no room or time for."""
    if not task.has("variables"):
        return
    known = task.known
    unseen = {*known.untold, *((known.names - known.own - known.sizes.keys()) if known.cut else ())}
    for name in names_in(text, unseen, columns_of(known)):
        if name not in known.sizes:
            why = f"`{name}` is named; the listing of variables was too long to say what it is."
            step = yield from task.call("variables", {"name": name}, why)
            task.known.untold.discard(name)
            if not step.failed:
                task.known.described(name, step.text)


def named(task: Task, text: str, without: str) -> Generator[Act, tuple[Step, ...], str]:
    """The name of the DataFrame that is meant: attached, named, used last unless another has more of the columns that
    are named, or the largest there is."""
    lost, known = gone(task.conversation), task.known
    if without:
        return (yield from choose(task, text, without=without, unbound=True))
    yield from look_at_named(task, text)
    if any(word not in known.sizes for word in names_in(text, lost, columns_of(known))):
        return (yield from choose(task, text))
    attached = task.conversation.turn.attached("variable")
    before = [name for name in dict.fromkeys(reversed(known.used)) if name not in lost]
    explicit = names_in(text, {*known.sizes, *before}, columns_of(known))
    asked_for = re.findall(rf"`({NAME})`|\b(df[A-Za-z0-9_]*)(?![A-Za-z0-9_])", text)
    unknown = next((a or b for a, b in asked_for if (a or b) not in (*before, *known.sizes)), "")
    if attached or explicit:
        name = (*attached, *explicit)[0]
    else:
        name = fitting(known, text, known.sizes, before[0]) if before else ""
    if name and (attached or not unknown):
        return name
    return (yield from choose(task, text))


def choose(task: Task, text: str, without: str = "", unbound: bool = False) -> Generator[Act, tuple[Step, ...], str]:
    """The name of the DataFrame to use, from the listing of variables."""
    listed: dict[str, tuple[int, int]]
    text = text.replace("\n", " ")
    own = task.known.own
    if task.known.listed and task.known.sizes and not without:
        listed, lost = dict(task.known.sizes), gone(task.conversation)
        if names_in(text, listed, columns_of(task.known)) or (
            not task.known.cut
            and not names_in(text, lost)
            and not re.search(rf"`{NAME}`|\bdf[A-Za-z0-9_]*(?![A-Za-z0-9_])", text)
        ):
            return _preferred(task, listed, text)
    if task.has("variables"):
        step = yield from task.call("variables", {}, "Which DataFrames does the user have? I look before I compute.")
        listed = {} if step.failed else reading.frames(step.text)
        if not step.failed:
            task.known.listing(step.text, longest=True)
        lost = {**gone(task.conversation), **reading.gone(step.text)}
        # What is there now is the truth, whatever an older reminder said.
        lost = {name: what for name, what in lost.items() if name not in listed}
    else:
        step = yield from task.python(_SEARCH, "Which DataFrames does the user have? I look before I compute.")
        found = reading.literal(step.text)
        found = found if isinstance(found, list | tuple) else ()
        listed, lost = {str(name): (0, 0) for name in found}, gone(task.conversation)
    columns = columns_of(task.known)
    told = bool(names_in(text, listed, columns)) if task.known.cut else any(name not in own for name in listed)
    if task.has("variables") and not told and re.search(r"\bmore: ", step.text):
        step = yield from task.python(_SEARCH, "The listing was cut; the names of all DataFrames are needed.")
        listed |= {str(name): listed.get(str(name), (0, 0)) for name in reading.literal(step.text) or []}
    listed.pop(without, None)
    if without in lost or (unbound and how_built(task.conversation, without)):
        raise Ending(gone_text(task, without, lost.get(without, "")))
    if names_in(text, listed, columns):
        return _preferred(task, listed, text)
    vanished = names_in(text, lost, columns)
    if vanished or (lost and not listed):
        name = (*vanished, *lost)[0]
        raise Ending(gone_text(task, name, lost[name]))
    if not listed:
        raise Ending(
            task.say(
                "There is no DataFrame here yet. Load one first, for example: “load penguins.csv” or “load the palmer "
                "penguins data set”.",
                "这里还没有 DataFrame。请先读取一个，例如：“读取 penguins.csv” 或 “加载企鹅数据集”。",
            )
        )
    return _preferred(task, listed, text)


def _preferred(task: Task, listed: Mapping[str, tuple[int, int]], text: str) -> str:
    """The DataFrame that is named, or that has the columns that are, or the longest not made by the agent itself."""
    named = names_in(text, listed, columns_of(task.known))
    if named:
        return named[0]
    longest = max(listed, key=lambda each: (each not in task.known.own, listed[each][0]))
    return fitting(task.known, text, listed) or longest
