"""How columns go together: two groups compared, correlations, a least-squares fit. numpy is all they need."""

from __future__ import annotations

import re
from dataclasses import replace

from . import reading
from .names import quoted, result, short
from .query import Query, listed
from .recipe import Ending, Recipe, Task
from .showing import digits, shown, which
from .tables import group, is_id


def compare(task: Task, query: Query) -> Recipe:
    """Mean and spread of a numeric column in two groups, with Welch's t for the difference."""
    frame = query.frame
    pair = next((each for each in query.filters if each.operator == "in"), None)
    column = pair.column if pair else next((each for each in query.groups), None)
    if column is None and query.units:
        return (yield from group(task, replace(query, kind="group")))
    if column is None:
        numeric = [each for each in query.mentions if frame.numeric(each)]
        if len(numeric) >= 2:
            return (yield from correlate(task, query))
        raise which(task, frame, "column to group by")
    measures = [each for each in query.measures if each != column] or _first_numeric(query, column)
    if not measures:
        raise which(task, frame, "numeric column")
    names = _values(pair.value) if pair else [_source(query, column, value) for value in frame.values.get(column, ())]
    if len(names) != 2:
        return (yield from group(task, _grouped(query, column, measures)))
    measure = measures[0]
    if query.stat not in ("", "mean", "count") or len(measures) > 1:
        return (yield from group(task, _grouped(query, column, measures)))
    rest = tuple(each for each in query.filters if each is not pair)
    source = replace(query, filters=rest)
    first, second = names
    take = f"{source.source}.loc[{source.source}[{quoted(column)}] == %s, {quoted(measure)}].dropna()"
    a, b = (task.fresh(_part(measure, each, at)) for at, each in zip("ab", names, strict=True))
    difference, error = task.fresh("difference"), task.fresh("standard_error")
    table_name, places = task.fresh(result(f"{measure}_comparison")), digits(frame.most(measure))
    code = (
        f"import pandas as pd\n\n{source.start}{a} = {take % first}\n{b} = {take % second}\n"
        f"{difference} = {a}.mean() - {b}.mean()\n"
        f"{error} = ({a}.var() / len({a}) + {b}.var() / len({b})) ** 0.5\n"
        f'print(f"difference = {{{difference}:.{places}f}}, standard error = {{{error}:.{places}f}}, '
        f'Welch t = {{{difference} / {error}:.2f}}")\n'
        f"{table_name} = pd.DataFrame({{\n    {quoted(column)}: [{first}, {second}],\n"
        f'    "n": [len({a}), len({b})],\n    "mean": [{a}.mean(), {b}.mean()],\n'
        f'    "std": [{a}.std(), {b}.std()],\n}}).round({places})\n{table_name}'
    )
    step = yield from task.sure(code, f"Two groups of {column}: means, spreads and Welch's t of {measure}.")
    apart, t = reading.pretty(reading.named(step.text, "difference") or "?"), reading.named(step.text, "Welch t")
    spread = reading.named(step.text, "standard error")
    one, two = (each.strip('"') for each in names)
    head = task.say(
        f"`{measure}` of {one} minus {two}: difference **{apart}** (standard error {spread}, Welch t = "
        f"{t}){source.where}.",
        f"`{measure}`：{one} 减 {two} 的差为 **{apart}**（标准误 {spread}，Welch t = {t}）{source.where}。",
    )
    strength = reading.number(t or "")
    if strength is not None:
        head += (
            task.say(" That is far more than chance alone would give (|t| > 3).", " 这远超过随机波动（|t| > 3）。")
            if abs(strength) > 3
            else task.say(" That can well be chance (|t| ≤ 3).", " 这可能只是随机波动（|t| ≤ 3）。")
        )
    return shown(task, head, [column, "n", "mean", "std"], step.text)


def _part(measure: str, value: str, letter: str) -> str:
    """A name for the values of one group: `male_body_mass`, or `group_a` when the value is no word."""
    word = short(value.strip('"'))
    fits = value.isascii() and re.fullmatch(r"[a-z]\w{1,15}", word) and short(measure).isascii()
    return f"{word}_{short(measure)}"[:40] if fits else f"group_{letter}"


def _source(query: Query, column: str, value: str) -> str:
    plain = query.frame.numeric(column) or query.frame.dtypes[column].startswith("bool")
    return value if plain else quoted(value)


def _values(source: str) -> list[str]:
    found = reading.literal(source) or []
    return [quoted(each) if isinstance(each, str) else str(each) for each in found]


def _first_numeric(query: Query, column: str) -> list[str]:
    return [
        each
        for each in query.frame.columns
        if query.frame.numeric(each)
        and each != column
        and not query.frame.few(each, 3)
        and not is_id(each, query.frame)
    ][:1]


def _grouped(query: Query, column: str, measures: list[str]) -> Query:
    return replace(query, kind="group", measures=tuple(measures), groups=(column,))


def correlate(task: Task, query: Query) -> Recipe:
    """The correlation of two columns, or the strongest correlations of all."""
    frame = query.frame
    named = [each for each in query.mentions if frame.numeric(each)]
    texts = tuple(each for each in query.mentions if not frame.numeric(each) and frame.few(each, 40))
    if len(named) == 1 and texts:
        return (yield from compare(task, replace(query, groups=texts[:1], measures=tuple(named))))
    if len(named) == 2:
        x, y = named
        made = task.fresh("correlation")
        code = (
            f"{query.start}{made} = {query.source}[{quoted(x)}].corr({query.source}[{quoted(y)}])\n"
            f'print("r =", round({made}, 3), "n =", len({query.source}[{listed(named)}].dropna()))'
        )
        step = yield from task.sure(code, f"Pearson's r of {x} and {y}.")
        r, n = reading.named(step.text, "r"), reading.named(step.text, "n")
        size = abs(reading.number(r or "") or 0)
        english, chinese = ("strong", "强") if size >= 0.7 else ("moderate", "中等") if size >= 0.4 else ("weak", "弱")
        return task.say(
            f"The correlation of `{x}` and `{y}`{query.where} is **r = {r}** (n = {n}): {english}.",
            f"`{x}` 与 `{y}` 的相关系数{query.where}为 **r = {r}**（n = {n}），属于{chinese}相关。",
        )
    numeric = [each for each in frame.columns if frame.numeric(each)]
    if len(numeric) < 2:
        raise which(task, frame, "numeric column")
    chosen = f"[{listed(named)}]" if len(named) > 2 else ""
    headers = ["first", "second", "r"]
    matrix, pairs = task.fresh("correlations"), task.fresh("correlated_pairs")
    code = (
        f"import numpy as np\n\n{query.start}{matrix} = {query.source}{chosen}.corr(numeric_only=True)\n"
        f"{pairs} = (\n    {matrix}.where(np.triu(np.ones({matrix}.shape, dtype=bool), k=1))\n"
        '    .stack().dropna().rename_axis(["first", "second"]).reset_index(name="r")\n'
        '    .sort_values("r", key=abs, ascending=False, ignore_index=True).round(2)\n'
        f")\n{pairs}.head(10)"
    )
    step = yield from task.sure(code, "All pairs of numeric columns, the strongest first.")
    table = [row[1:] for row in reading.rows(step.text, headers)]
    if len(named) == 1:
        table = [row for row in table if named[0].strip() in row] or table
    head = task.say(
        f"The strongest correlations in `{frame.name}`{query.where}", f"`{frame.name}` 中最强的相关{query.where}"
    )
    if table:
        head += task.say(
            f": `{table[0][0]}` with `{table[0][1]}`, r = {table[0][2]}.",
            f"：`{table[0][0]}` 与 `{table[0][1]}`，r = {table[0][2]}。",
        )
        return f"{head}\n\n" + reading.markdown(headers, table)
    return shown(task, head, headers, step.text)


_X_FIRST = re.compile(
    r"^(?:.*?)(?:用|使用|根据|由|以|using|from)\s*(.+?)\s*(?:来)?(?:预测|拟合|回归|predict|to predict|估计)", re.I
)


def fit(task: Task, query: Query) -> Recipe:
    """A least-squares line (or plane): coefficients and R squared."""
    frame = query.frame
    named = list(query.mentions)
    if not named or not any(frame.numeric(each) for each in named):
        raise which(task, frame, "numeric column")
    last = bool(_X_FIRST.search(query.words)) and len(named) > 1
    target, predictors = (named[-1], named[:-1]) if last else (named[0], named[1:])
    if not frame.numeric(target):
        target = next(each for each in named if frame.numeric(each))
        predictors = [each for each in named if each != target]
    if not predictors:
        if re.search(r"\ball\b|everything|其他|所有", query.words, re.I):
            predictors = [each for each in frame.columns if frame.numeric(each) and each != target][:8]
        else:
            raise Ending(
                task.say(
                    f"Which column should predict `{target}`? For example: “regress {target} on "
                    f"{_example(query, target)}”.",
                    f"用哪一列来预测 `{target}`？例如：“用 {_example(query, target)} 预测 {target}”。",
                )
            )
    texts = [each for each in predictors if not frame.numeric(each)]
    complete, x, y = task.fresh("complete_rows"), task.fresh("predictors"), task.fresh(short(target) or "target")
    design, beta, rest = task.fresh("design"), task.fresh("coefficients"), task.fresh("residuals")
    chosen = f"{complete}[{listed(predictors)}]"
    dummies = f"pd.get_dummies({chosen}, drop_first=True, dtype=float)" if texts else chosen
    y = y if y.isidentifier() and y != frame.name else task.fresh("target")
    code = (
        f"import numpy as np\nimport pandas as pd\n\n{query.start}{complete} = "
        f"{query.source}[{listed([target, *predictors])}].dropna()\n"
        f"{x} = {dummies}\n{y} = {complete}[{quoted(target)}].to_numpy(dtype=float)\n"
        f"{design} = np.column_stack([np.ones(len({x})), {x}.to_numpy(dtype=float)])\n"
        f"{beta}, *_ = np.linalg.lstsq({design}, {y}, rcond=None)\n"
        f"{rest} = {y} - {design} @ {beta}\n"
        f'print(f"n = {{len({y})}}, R2 = {{1 - ({rest}**2).sum() / (({y} - {y}.mean()) ** 2).sum():.3f}}, '
        f'residual std = {{{rest}.std(ddof={design}.shape[1]):.2f}}")\n'
        f'pd.Series({beta}, index=["intercept", *{x}.columns]).round(4)'
    )
    step = yield from task.sure(code, f"Least squares of {target} on {', '.join(predictors)} with numpy.")
    n, r2 = reading.named(step.text, "n"), reading.named(step.text, "R2")
    spread = reading.named(step.text, "residual std")
    table = [row for row in reading.series(step.text) if reading.number(row[1]) is not None]
    what = ", ".join(f"`{each}`" for each in predictors)
    head = task.say(
        f"Linear regression of `{target}` on {what}{query.where}: R² = **{r2}**, n = {n}, residual standard "
        f"deviation {spread}.",
        f"`{target}` 对 {what} 的线性回归{query.where}：R² = **{r2}**，n = {n}，残差标准差 {spread}。",
    )
    if len(table) == 2:
        head += task.say(
            f" Each unit of `{table[1][0]}` goes with {table[1][1]} of `{target}`.",
            f" `{table[1][0]}` 每增加 1，`{target}` 平均变化 {table[1][1]}。",
        )
    return f"{head}\n\n" + reading.markdown([task.say("term", "项"), task.say("coefficient", "系数")], table)


def _example(query: Query, target: str) -> str:
    return next((each for each in query.frame.columns if query.frame.numeric(each) and each != target), "x")
