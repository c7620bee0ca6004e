"""Figures: the kind follows from the dtypes unless the request names one; what is said comes from printed numbers."""

from __future__ import annotations

import re

from .phrases import STAT_NAMES
from .query import Query, listed, quoted
from .recipe import Recipe, Task
from .tables import which

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
    code, about = draw(query, measures, groups)
    start = "import matplotlib.pyplot as plt\n" + ("import pandas as pd\n\n" if "pd." in code else "\n")
    step = yield from task.sure(
        f"{start}{query.start}{code}", f"A {kind} of {' and '.join(about)}: it fits their types."
    )
    what = task.say(" against ", " 对 ").join(f"`{each}`" for each in about[:2])
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


def _fitting(query: Query, measures: list[str], groups: list[str]) -> str:
    frame = query.frame
    if any(frame.temporal(each) for each in groups) and measures:
        return "line"
    if len(measures) >= 2:
        return "line" if re.fullmatch(r"year|time|month", measures[1], re.I) else "scatter"
    if measures and groups:
        return "bar" if query.stat or len(groups) > 1 else "box"
    return "hist" if measures else "bar"


def _done(lines: list[str], title: str = "") -> str:
    finish = [f"ax.set_title({quoted(title)})"] if title else []
    return "\n".join(["fig, ax = plt.subplots(figsize=(6.5, 4))", *lines, *finish, "fig.tight_layout()", "plt.show()"])


def _hist(query: Query, measures: list[str], groups: list[str]) -> tuple[str, list[str]]:
    if not measures:
        return _bar(query, measures, groups)
    column, source = measures[0], query.source
    if groups and query.frame.few(groups[0]):
        lines = [
            f"for name, part in {source}.groupby({quoted(groups[0])}):",
            f"    ax.hist(part[{quoted(column)}].dropna(), bins=25, alpha=0.6, label=str(name))",
            "ax.legend()",
        ]
        about = [column, groups[0]]
    else:
        lines, about = [f"ax.hist({source}[{quoted(column)}].dropna(), bins=25)"], [column]
    lines.append(f'ax.set(xlabel={quoted(column)}, ylabel="rows")')
    values = f"{source}[{quoted(column)}]"
    facts = f'\nprint("mean =", round({values}.mean(), 2))\nprint("median =", round({values}.median(), 2))'
    return _done(lines) + facts + f'\nprint("n =", {values}.count())', about


def _scatter(query: Query, measures: list[str], groups: list[str]) -> tuple[str, list[str]]:
    source = query.source
    y, x = (*measures, *groups)[:2]
    if re.search(r"(?:x|横)(?:-?axis|轴)|\band\b|和|与", query.words, re.I) and not re.search(
        r"\bby\b|against|\bvs\b|versus|随|对", query.words
    ):
        x, y = y, x
    hue = next((each for each in groups if each not in (x, y) and query.frame.few(each)), None)
    if hue:
        lines = [
            f"for name, part in {source}.groupby({quoted(hue)}):",
            f"    ax.scatter(part[{quoted(x)}], part[{quoted(y)}], s=14, label=str(name))",
            f"ax.legend(title={quoted(hue)})",
        ]
    else:
        lines = [f"ax.scatter({source}[{quoted(x)}], {source}[{quoted(y)}], s=14)"]
    lines.append(f"ax.set(xlabel={quoted(x)}, ylabel={quoted(y)})")
    facts = (
        f'\nprint("r =", round({source}[{quoted(x)}].corr({source}[{quoted(y)}]), 2))'
        f'\nprint("n =", len({source}[{listed([x, y])}].dropna()))'
        if query.frame.numeric(x) and query.frame.numeric(y)
        else f'\nprint("n =", len({source}))'
    )
    return _done(lines) + facts, [y, x, *([hue] if hue else [])]


def _line(query: Query, measures: list[str], groups: list[str]) -> tuple[str, list[str]]:
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
    lines = [f"summary = {source}.groupby({grouping})[{quoted(y)}].{stat}()" + (".unstack()" if hue else "")]
    lines += ["summary.plot(ax=ax)", f"ax.set(xlabel={quoted(x)}, ylabel={quoted(f'{stat} of {y}')})"]
    facts = '\nprint(f"from = {summary.index.min()} to {summary.index.max()}")\nprint(f"n = {len(summary)}")'
    return _done(lines) + facts, [y, *keys]


def _box(query: Query, measures: list[str], groups: list[str]) -> tuple[str, list[str]]:
    column, source = measures[0] if measures else "", query.source
    if not column:
        return _bar(query, measures, groups)
    if groups:
        lines = [
            f"groups = dict(list({source}.dropna(subset=[{quoted(column)}])"
            f".groupby({quoted(groups[0])})[{quoted(column)}]))",
            "ax.boxplot(list(groups.values()))",
            "ax.set_xticks(range(1, len(groups) + 1), [str(name) for name in groups])",
            f"ax.set(xlabel={quoted(groups[0])}, ylabel={quoted(column)})",
        ]
        facts = '\nfor name, values in groups.items():\n    print(f"median = {values.median():.2f} ({name})")'
    else:
        lines = [f"ax.boxplot({source}[{quoted(column)}].dropna())", f"ax.set_ylabel({quoted(column)})"]
        facts = f'\nprint("median =", round({source}[{quoted(column)}].median(), 2))'
    return _done(lines) + facts, [column, *groups[:1]]


def _bar(query: Query, measures: list[str], groups: list[str]) -> tuple[str, list[str]]:
    source, stat = query.source, query.stat or "mean"
    if measures and groups:
        keys = groups[:2]
        turned = ".unstack()" if len(keys) == 2 else ""
        grouped = f"{source}.groupby({listed(keys)})[{quoted(measures[0])}].{stat}()"
        sort = "" if turned else ".nlargest(25)"
        label, about = f"{stat} of {measures[0]}", [measures[0], *keys]
        lines = [f"summary = {grouped if turned else grouped.replace(listed(keys), quoted(keys[0]))}{turned}{sort}"]
    else:
        about = [(*groups, *measures)[0]]
        label, lines = "rows", [f"summary = {source}[{quoted(about[0])}].value_counts().head(25)"]
    lines += ["summary.plot.bar(ax=ax, rot=30)", f"ax.set_ylabel({quoted(label)})"]
    facts = '\nprint(f"bars = {summary.size}, from {summary.min(axis=None):.2f} to {summary.max(axis=None):.2f}")'
    if not (measures and len(groups) > 1):
        facts = facts.replace("axis=None", "")
    return _done(lines) + facts, about
