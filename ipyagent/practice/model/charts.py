"""Figures: the kind follows from the dtypes unless the request names one; what is said comes from printed numbers."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from . import reading
from .names import fresh, label, plain, quoted, result, short
from .phrases import STAT_NAMES
from .query import Query, listed
from .recipe import Recipe, Task
from .showing import ADDED, keyed, which
from .tables import inner

COLOUR = re.compile(r"\bcolou?r(?:ed|ing)?\s+(?:\w+\s+)?by\b|按\S{1,8}?(?:着色|上色|分色)", re.I)

_NAMED = (
    ("hist", r"\bhistograms?\b|\bhist\b|\bdistribution\b|直方图|分布"),
    ("scatter", r"\bscatter\b|散点"),
    ("box", r"\bbox\b|\bbox ?plots?\b|箱线|箱形|盒图"),
    ("line", r"\bline\b|\btrend\b|\bover time\b|折线|趋势|走势"),
    ("bar", r"\bbars?\b|\bbar ?charts?\b|柱状|条形"),
)
_NAMES = {
    "hist": ("Histogram", "直方图"), "scatter": ("Scatter plot", "散点图"), "box": ("Box plot", "箱线图"),
    "line": ("Line plot", "折线图"), "bar": ("Bar chart", "柱状图"),
}  # fmt: skip


def plot(task: Task, query: Query) -> Recipe:
    """Draws one figure and says what is in it."""
    frame = query.frame
    named = next((kind for kind, pattern in _NAMED if re.search(pattern, query.words, re.I)), "")
    columns = list(dict.fromkeys([*query.mentions, *query.measures, *query.groups]))
    if not columns and named == "line":
        columns = [c for c in frame.columns if frame.temporal(c)][:1] + [c for c in frame.columns if frame.numeric(c)][
            :1
        ]
    if query.units and (columns or not query.measures):
        return (yield from _by_date(task, query, named))
    if not columns:
        raise which(task, frame, "column")
    measures = [c for c in columns if frame.numeric(c) and c not in query.groups]
    groups = [c for c in columns if c not in measures]
    # "plot A by B" with a numeric B of many values is A against B.
    wide = [c for c in groups if frame.numeric(c) and not frame.few(c)]
    if len(measures) <= 1 and wide and named != "bar":
        measures, groups = [*measures, *wide], [c for c in groups if c not in wide]
    kind = named or _fitting(query, measures, groups)
    if (
        kind in ("scatter", "line")
        and len(measures) + len([g for g in groups if frame.temporal(g) or frame.numeric(g)]) < 2
    ):
        dates = [c for c in frame.columns if frame.temporal(c) or c.lower() == "year"]
        if kind == "line" and measures and dates:
            groups = [*groups, dates[0]]
        else:
            kind = _fitting(query, measures, groups)
    draw = {"hist": _hist, "scatter": _scatter, "line": _line, "box": _box, "bar": _bar}[kind]
    figure = Figure(query, task.fresh("fig"), task.fresh("ax"))
    code, about = draw(figure, measures, groups)
    start = "import matplotlib.pyplot as plt\n" + ("import pandas as pd\n\n" if "pd." in code else "\n")
    step = yield from task.sure(
        f"{start}{query.start}{code}", f"A {kind} of {' and '.join(about)}: it fits their types."
    )
    joined = task.say(" against ", " 对 ") if kind in ("scatter", "line") else task.say(" by ", " 按 ")
    what = joined.join(f"`{each}`" for each in about[:2])
    if len(about) > 2:
        what += task.say(f", by `{about[2]}`", f"，按 `{about[2]}` 区分")
    said = task.say(
        f"{_NAMES[kind][0]} of {what} from `{frame.name}`{query.where}.",
        f"`{frame.name}` 的{_NAMES[kind][1]}：{what}{query.where}。",
    )
    facts = [
        line.strip().replace(" 00:00:00", "")
        for line in step.text.splitlines()
        if re.match(r"\s*(?:r|n|mean|median|from|bars) = ", line)
    ]
    if facts:
        said += task.say(" Read from the result: ", " 结果显示：") + "; ".join(facts) + "."
    return said


def _by_date(task: Task, query: Query, named: str) -> Recipe:
    """Draws a statistic of a column (or the number of rows) over parts of a date, a line or bars for each group."""
    frame, unit = query.frame, query.units[0]
    measures = [each for each in query.measures if frame.numeric(each)]
    groups = tuple(c for c in query.groups if c not in measures and not frame.temporal(c) and frame.few(c))[:1]
    usual = "sum" if measures and ADDED.search(measures[0]) else "mean"
    stat = inner(query.words, query.stat if query.stat in STAT_NAMES else usual) if measures else "count"
    query = replace(query, units=query.units[:1])
    keys, by, dated = keyed(query, groups, linear=True)
    what = measures[0] if measures else "rows"
    fig, ax, name = task.fresh("fig"), task.fresh("ax"), task.fresh(result(what, keys))
    value = f"[{quoted(what)}].{stat}()" if measures else ".size()"
    turned = ".unstack()" if groups else ""
    order = f".reindex({_WEEK})" if unit.unit == "weekday" else ""
    kind = "bar" if named == "bar" or (unit.unit == "weekday" and named != "line") else "line"
    marks = "plot.bar(ax=ax, rot=45, width=0.75)" if kind == "bar" else 'plot(ax=ax, marker="o", rot=45)'
    words = _of(stat, what) if measures else "Rows"
    title = f"{stat} {plain(what)}" if measures else "rows"
    title = f"{title} by {' and '.join(map(plain, keys))}"
    code = "\n".join(
        [
            "import matplotlib.pyplot as plt", "",
            f"{query.start}{dated}{name} = {query.source}.groupby({by}){value}{turned}{order}",
            f"{fig}, {ax} = plt.subplots(figsize=(6.5, 4))", f"{name}.{marks.replace('ax=ax', f'ax={ax}')}",
            f"{ax}.set(title={quoted(title[:1].upper() + title[1:] + query.where)}, "
            f"xlabel={quoted(unit.unit.capitalize())}, ylabel={quoted(words)})",
            f"{ax}.grid(axis=\"y\", alpha=0.3)", f'{ax}.spines[["top", "right"]].set_visible(False)',
            f"{fig}.tight_layout()", "plt.show()",
            f'print("from = {{}} to {{}}".format({name}.index.min(), {name}.index.max()))',
            f"print({name}.round(2).to_string())",
        ]
    )  # fmt: skip
    step = yield from task.sure(code, f"{stat} of {what} over the {unit.unit} of {unit.column}.")
    about = task.say("the number of rows", "行数")
    if measures:
        about = task.say(f"the {STAT_NAMES[stat][0]} of `{what}`", f"`{what}` 的{STAT_NAMES[stat][1]}")
    over = ", ".join(f"`{each}`" for each in keys)
    said = task.say(
        f"{_NAMES[kind][0]} of {about} by {over} (dates: `{unit.column}`) from `{frame.name}`{query.where}.",
        f"`{frame.name}` 的{_NAMES[kind][1]}：{about}，按 {over}（日期列 `{unit.column}`）{query.where}。",
    )
    lines = [re.split(r"\s{2,}", line.strip()) for line in step.text.splitlines()]
    table = [row for row in lines if len(row) == 2 and reading.number(row[1]) is not None and row[0] != unit.unit]
    if groups or not table:
        return said
    return f"{said}\n\n" + reading.markdown([unit.unit, task.say(*STAT_NAMES[stat])], table, most=40)


_WEEK = '["Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"]'


def _fitting(query: Query, measures: list[str], groups: list[str]) -> str:
    frame = query.frame
    if any(frame.temporal(each) for each in groups) and measures:
        return "line"
    if len(measures) >= 2:
        return "line" if re.fullmatch(r"year|time|month", measures[1], re.I) else "scatter"
    if measures and groups:
        return "bar" if query.stat or len(groups) > 1 else "box"
    return "hist" if measures else "bar"


@dataclass(frozen=True, slots=True)
class Figure:
    """One figure of a query, and the names of its figure and axes."""

    query: Query
    fig: str
    ax: str

    def name(self, wanted: str) -> str:
        """A name for a value the figure needs."""
        return fresh(wanted, {*self.query.taken, self.fig, self.ax, self.query.frame.name})

    def code(self, first: str, lines: list[str], title: str, x: str, y: str, facts: str) -> str:
        """The whole code: data, axes, marks, words, and the numbers that are said about it."""
        ax, title = self.ax, title[:1].upper() + title[1:] + self.query.where
        grid = "y" if "bar(" in " ".join(lines) or "boxplot(" in " ".join(lines) else "both"
        return "\n".join(
            [
                *([first] if first else []),
                f"{self.fig}, {ax} = plt.subplots(figsize=(6.5, 4))",
                *(line.replace("ax.", f"{ax}.").replace("ax=ax", f"ax={ax}") for line in lines),
                f"{ax}.set(title={quoted(title)}, xlabel={quoted(x)}, ylabel={quoted(y)})",
                f'{ax}.grid(axis="{grid}", alpha=0.3)',
                f"{ax}.set_axisbelow(True)",
                f'{ax}.spines[["top", "right"]].set_visible(False)',
                f"{self.fig}.tight_layout()",
                "plt.show()",
                facts,
            ]
        )


Drawing = tuple[str, list[str]]


def _legend(column: str) -> str:
    return f"ax.legend(title={quoted(label(column))}, frameon=False)"


def _hist(figure: Figure, measures: list[str], groups: list[str]) -> Drawing:
    query = figure.query
    if not measures:
        return _bar(figure, measures, groups)
    column, source = measures[0], query.source
    title = f"Distribution of {plain(column)}"
    values = figure.name(result(column, groups[:1]) if groups else result(f"{short(column)}_values"))
    first = f"{values} = {source}[{quoted(column)}].dropna()"
    if groups and query.frame.few(groups[0]):
        key, part = figure.name("group"), figure.name("part")
        lines = [
            f"for {key}, {part} in {values}.groupby({source}[{quoted(groups[0])}]):",
            f'    ax.hist({part}, bins=20, alpha=0.6, edgecolor="white", label=str({key}))',
            _legend(groups[0]),
        ]
        about, title = [column, groups[0]], f"{title} by {plain(groups[0])}"
    else:
        lines, about = [f'ax.hist({values}, bins=25, edgecolor="white")'], [column]
    facts = f'print("mean =", round({values}.mean(), 2))\nprint("median =", round({values}.median(), 2))'
    return figure.code(first, lines, title, label(column), "Rows", f'{facts}\nprint("n =", len({values}))'), about


def _scatter(figure: Figure, measures: list[str], groups: list[str]) -> Drawing:
    query, source = figure.query, figure.query.source
    y, x = (*measures, *groups)[:2]
    if re.search(r"(?:x|横)(?:-?axis|轴)|\band\b|和|与", query.words, re.I) and not re.search(
        r"\bby\b|against|\bvs\b|versus|随|对", COLOUR.sub("", query.words)
    ):
        x, y = y, x
    hue = next((each for each in groups if each not in (x, y) and query.frame.few(each)), None)
    points = figure.name(result(y, [x]))
    chosen = list(dict.fromkeys([x, y, *([hue] if hue else [])]))
    first = f"{points} = {source}[{listed(chosen)}].dropna()"
    marks = 's=22, alpha=0.8, edgecolors="none"'
    title = f"{plain(y)} against {plain(x)}" + (f", by {plain(hue)}" if hue else "")
    if hue:
        key, part = figure.name("group"), figure.name("part")
        lines = [
            f"for {key}, {part} in {points}.groupby({quoted(hue)}):",
            f"    ax.scatter({part}[{quoted(x)}], {part}[{quoted(y)}], {marks}, label=str({key}))",
            _legend(hue),
        ]
    else:
        lines = [f"ax.scatter({points}[{quoted(x)}], {points}[{quoted(y)}], {marks})"]
    facts = (
        f'print("r =", round({points}[{quoted(x)}].corr({points}[{quoted(y)}]), 2))\nprint("n =", len({points}))'
        if query.frame.numeric(x) and query.frame.numeric(y)
        else f'print("n =", len({points}))'
    )
    return figure.code(first, lines, title, label(x), label(y), facts), [y, x, *([hue] if hue else [])]


def _line(figure: Figure, measures: list[str], groups: list[str]) -> Drawing:
    query = figure.query
    source, frame = query.source, query.frame
    x = next((each for each in groups if frame.temporal(each)), None) or next(
        (each for each in (*measures[1:], *groups) if frame.numeric(each)), (*groups, *measures)[0]
    )
    y = next((each for each in measures if each != x), measures[0] if measures else x)
    hue = next((each for each in groups if each != x and frame.few(each)), None)
    keys, text = ([x, hue] if hue else [x]), frame.temporal(x) and not frame.dtypes[x].startswith("datetime")
    by = f'pd.to_datetime({source}[{quoted(x)}], format="mixed")' if text else quoted(x)
    grouping = f"[{by}, {quoted(hue)}]" if hue else by
    stat = query.stat if query.stat in STAT_NAMES else "mean"
    name = figure.name(result(y, keys))
    first = f"{name} = {source}.groupby({grouping})[{quoted(y)}].{stat}()" + (".unstack()" if hue else "")
    lines = [f"{name}.plot(ax=ax)", *([_legend(hue)] if hue else [])]
    facts = f'print(f"from = {{{name}.index.min()}} to {{{name}.index.max()}}")\nprint(f"n = {{len({name})}}")'
    title = f"{plain(y)} over {plain(x)}" + (f", by {plain(hue)}" if hue else "")
    return figure.code(first, lines, title, label(x), _of(stat, y), facts), [y, *keys]


def _of(stat: str, column: str) -> str:
    """The words on an axis of a statistic: Mean body mass (g)."""
    words = label(column)
    return f"{stat.capitalize()} {words if words[1:2].isupper() else words[:1].lower() + words[1:]}"


def _box(figure: Figure, measures: list[str], groups: list[str]) -> Drawing:
    column, source = measures[0] if measures else "", figure.query.source
    if not column:
        return _bar(figure, measures, groups)
    if not groups:
        lines = [f"ax.boxplot({source}[{quoted(column)}].dropna())", "ax.set_xticks([])"]
        facts = f'print("median =", round({source}[{quoted(column)}].median(), 2))'
        return figure.code("", lines, plain(column), "", label(column), facts), [column]
    name, key, values = figure.name(result(column, groups[:1])), figure.name("group"), figure.name("values")
    first = (
        f"{name} = dict(list({source}.dropna(subset=[{quoted(column)}])"
        f".groupby({quoted(groups[0])})[{quoted(column)}]))"
    )
    lines = [
        f"ax.boxplot(list({name}.values()))",
        f"ax.set_xticks(range(1, len({name}) + 1), [str({key}) for {key} in {name}])",
    ]
    facts = f'for {key}, {values} in {name}.items():\n    print(f"median = {{{values}.median():.2f}} ({{{key}}})")'
    title = f"{plain(column)} by {plain(groups[0])}"
    return figure.code(first, lines, title, label(groups[0]), label(column), facts), [column, *groups[:1]]


def _bar(figure: Figure, measures: list[str], groups: list[str]) -> Drawing:
    query = figure.query
    source, stat = query.source, query.stat or "mean"
    legend = []
    if measures and groups:
        keys = groups[:2]
        turned = ".unstack()" if len(keys) == 2 else ".nlargest(25)"
        grouping = listed(keys) if len(keys) == 2 else quoted(keys[0])
        name, about = figure.name(result(measures[0], keys)), [measures[0], *keys]
        first = f"{name} = {source}.groupby({grouping})[{quoted(measures[0])}].{stat}(){turned}"
        words, title = _of(stat, measures[0]), f"{stat} {plain(measures[0])} by {' and '.join(map(plain, keys))}"
        legend = [_legend(keys[1])] if len(keys) == 2 else []
    else:
        about = [(*groups, *measures)[0]]
        name, words, title = figure.name(result("rows", about)), "Rows", f"rows by {plain(about[0])}"
        first = f"{name} = {source}[{quoted(about[0])}].value_counts().head(25)"
    few = query.frame.unique.get(about[1] if measures and groups else about[0], 5) <= 6
    lines = [f"{name}.plot.bar(ax=ax, rot={0 if few else 45}, width=0.75)", *legend]
    axis = "axis=None" if measures and len(groups) > 1 else ""
    facts = f'print(f"bars = {{{name}.size}}, from {{{name}.min({axis}):.2f}} to {{{name}.max({axis}):.2f}}")'
    return figure.code(first, lines, title, label(about[1] if measures and groups else about[0]), words, facts), about
