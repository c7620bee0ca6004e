"""A model judged on rows that it has not seen, beside the plainest one. Needs scikit-learn for `evaluate` only.
"""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
import pandas as pd

Split = tuple["np.ndarray", "np.ndarray"]
SAMPLE = 50_000


def suspects(table: pd.DataFrame, target: Any) -> pd.DataFrame:
    """Columns that may give the answer away or name the row: `column`, `why`. Raises KeyError for an unknown or
    repeated target."""
    goal = _only(table, target)
    some = table if len(table) <= SAMPLE else table.sample(SAMPLE, random_state=0)
    wanted = _codes(goal.loc[some.index] if goal.index.is_unique else some[target])
    found = []
    for at, name in enumerate(table.columns):
        if name == target:
            continue
        values = some.iloc[:, at]
        codes = _codes(values)
        distinct = int(pd.Series(codes).nunique())
        if len(some) > 20 and distinct == len(some) and not pd.api.types.is_float_dtype(values.dtype):
            found.append((str(name), "a different value in every row: an identifier, not a feature"))
        elif distinct > 1 and len(some) > 20 and distinct < len(some) / 3 and _settles(codes, wanted):
            found.append((str(name), "settles the target (almost) alone: known only afterwards?"))
        elif distinct > 1 and _follows(values, some[target]):
            found.append((str(name), "runs with the target almost perfectly: known only afterwards?"))
        if values.isna().any() and _settles(values.isna().to_numpy().astype(int), wanted):
            found.append((str(name), "its being missing settles the target"))
        if distinct <= 1 and len(some):
            found.append((str(name), "one value only: no use"))
    return pd.DataFrame(found, columns=["column", "why"])


def split(table: pd.DataFrame, *, target: Any | None = None, groups: Any | None = None, time: Any | None = None,
          share: float = 0.2, seed: int = 0) -> Split:  # fmt: skip
    """Positions of rows to train on and to test on. With `time` the last rows in time are tested and no moment is on
    both sides; with `groups` no group is; with `target` its few values keep their shares. Raises ValueError when a
    side would be empty, when both `time` and `groups` are given, or when `time` has missing values."""
    if not 0 < share < 1:
        raise ValueError(f"share is between 0 and 1, not {share}")
    if groups is not None and time is not None:
        raise ValueError("give groups or time, not both; to keep both apart, cut by time and drop groups seen before")
    rows, random = np.arange(len(table)), np.random.default_rng(seed)
    if time is not None:
        moments = _only(table, time)
        if moments.isna().any():
            raise ValueError(f"{int(moments.isna().sum())} values of {time!r} are missing")
        ordered = moments.sort_values(kind="stable").reset_index(drop=True)
        cut = ordered.iloc[min(len(ordered) - 1, int(len(ordered) * (1 - share)))] if len(ordered) else None
        tested = (moments >= cut).to_numpy() if cut is not None else np.zeros(0, bool)
    elif groups is not None:
        codes, names = pd.factorize(_only(table, groups))
        codes = np.where(codes < 0, len(names) + rows, codes)  # a row without a group is its own
        order = random.permutation(np.unique(codes))
        sizes = pd.Series(codes).value_counts()
        before = np.concatenate([[0], np.cumsum(sizes.loc[order].to_numpy())[:-1]])
        tested = np.isin(codes, order[before < share * len(table)])
    else:
        strata = _codes(_only(table, target)) if target is not None else np.zeros(len(table), int)
        if len(np.unique(strata)) > 20:
            strata = np.zeros(len(table), int)
        tested = np.zeros(len(table), bool)
        for stratum in np.unique(strata):
            members = random.permutation(rows[strata == stratum])
            tested[members[: round(len(members) * share)]] = True
    train, test = rows[~tested], rows[tested]
    if not len(train) or not len(test):
        raise ValueError(f"{len(table)} rows give {len(train)} to train on and {len(test)} to test on; both are needed")
    return train, test


def evaluate(
    table: pd.DataFrame,
    target: Any,
    model: Any = None,
    *,
    task: Literal["auto", "class", "number"] = "auto",
    groups: Any | None = None,
    time: Any | None = None,
    drop: tuple[Any, ...] = (),
    seed: int = 0,
) -> pd.DataFrame:
    """Scores on the held-out rows: the plainest guess, a linear model, and `model` (an unfitted scikit-learn
    estimator; gradient boosting when None). Preparation is fitted on the training rows alone. One row a model with,
    for classes, `balanced_accuracy`, `log_loss`, for numbers `mae`, `r2`, and for both `better_by` (relative to the
    plainest) with its 95 % interval `low`, `high` from resampling the test rows, whole groups with `groups`. For
    classes that is in log loss, or in the share of wrong classes when `model` gives no probabilities (`attrs["loss"]`
    says which). Rows without target are left out.
    Raises ImportError without scikit-learn, ValueError when the data do not allow it."""
    try:
        from sklearn.compose import ColumnTransformer
        from sklearn.dummy import DummyClassifier, DummyRegressor
        from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor
        from sklearn.impute import SimpleImputer
        from sklearn.linear_model import LogisticRegression, Ridge
        from sklearn.metrics import balanced_accuracy_score, log_loss, r2_score
        from sklearn.pipeline import make_pipeline
        from sklearn.preprocessing import OneHotEncoder, StandardScaler
    except ImportError as missing:
        raise ImportError("evaluate() needs scikit-learn: pip install scikit-learn") from missing
    goal = _only(table, target)
    kept = table[goal.notna().to_numpy()].reset_index(drop=True)
    goal = kept[target]
    number = pd.api.types.is_numeric_dtype(goal.dtype) and not pd.api.types.is_bool_dtype(goal.dtype)
    classes = task == "class" or (task == "auto" and (not number or goal.nunique() <= 10))
    if classes and goal.nunique() < 2:
        raise ValueError(f"{target!r} has {goal.nunique()} classes; two are needed")
    train, test = split(kept, target=target if classes else None, groups=groups, time=time, seed=seed)
    out = {target, groups, time, *drop} - {None}
    features = kept[[name for name in kept.columns if name not in out]]
    if not features.columns.is_unique or isinstance(features.columns, pd.MultiIndex):
        raise ValueError("column names repeat or have levels; give them plain, unique names first")
    usable, text = _features(features)
    if usable.shape[1] == 0:
        raise ValueError("no column is left to learn from")
    numbers = [name for name in usable.columns if name not in text]
    prepared = ColumnTransformer([
        ("numbers", make_pipeline(SimpleImputer(strategy="median", add_indicator=True, keep_empty_features=True),
                                  StandardScaler()), numbers),
        ("text", OneHotEncoder(handle_unknown="infrequent_if_exist", max_categories=30, sparse_output=False), text),
    ])  # fmt: skip
    y = goal.astype(str).to_numpy() if classes else goal.to_numpy(float)
    if classes:
        models = {"plainest": DummyClassifier(strategy="prior"), "linear": LogisticRegression(max_iter=2_000),
                  "model": HistGradientBoostingClassifier(random_state=seed) if model is None else model}  # fmt: skip
    else:
        models = {"plainest": DummyRegressor(strategy="median"), "linear": Ridge(),
                  "model": HistGradientBoostingRegressor(random_state=seed) if model is None else model}  # fmt: skip
    if classes and set(y[test]) - set(y[train]):
        raise ValueError("a class is in the test rows only; merge rare classes or split otherwise")
    rows, losses, wrong = [], {}, {}
    for name, each in models.items():
        fitted = make_pipeline(prepared, each).fit(usable.iloc[train], y[train])
        told = fitted.predict(usable.iloc[test])
        if classes:
            chance = fitted.predict_proba(usable.iloc[test]) if hasattr(fitted, "predict_proba") else None
            wrong[name] = (told != y[test]).astype(float)
            loss = np.nan
            if chance is not None:
                right = np.searchsorted(fitted.classes_, y[test])
                losses[name] = -np.log(np.clip(chance[np.arange(len(test)), right], 1e-9, 1))
                loss = log_loss(y[test], chance, labels=fitted.classes_)
            rows.append({"model": name, "balanced_accuracy": balanced_accuracy_score(y[test], told), "log_loss": loss})
        else:
            losses[name] = np.abs(told - y[test])
            rows.append({"model": name, "mae": losses[name].mean(),
                         "r2": r2_score(y[test], told) if len(test) > 1 else np.nan})  # fmt: skip
    kind = "log loss" if classes else "absolute error"
    if len(losses) < len(models):  # one measure for all, or they could not be compared
        losses, kind = wrong, "share of wrong classes"
    units = _units(kept[groups].iloc[test] if groups is not None else None, len(test))
    sums = {name: np.bincount(units, weights=loss) for name, loss in losses.items()}
    count = len(sums["plainest"])
    random = np.random.default_rng(seed)
    drawn = random.integers(0, count, (500, min(count, 20_000)))
    for row in rows:
        one, floor = sums[row["model"]], sums["plainest"]
        row["better_by"] = 1 - one.sum() / floor.sum() if floor.sum() else np.nan
        some = 1 - one[drawn].sum(axis=1) / np.where(floor[drawn].sum(axis=1) == 0, np.nan, floor[drawn].sum(axis=1))
        some = row["better_by"] + (some - row["better_by"]) * np.sqrt(drawn.shape[1] / count)  # of fewer than all
        row["low"], row["high"] = np.nanquantile(some, [0.025, 0.975]) if np.isfinite(some).any() else (np.nan, np.nan)
    result = pd.DataFrame(rows)
    result.attrs["loss"] = kind
    result.attrs["rows"] = {"train": len(train), "test": len(test), "without target": len(table) - len(kept)}
    return result


def _features(table: pd.DataFrame) -> tuple[pd.DataFrame, list[Any]]:
    """Columns that a model can take, and which of them are text; times become numbers of days."""
    made, text = {}, []
    for name in table.columns:
        values, types = table[name], pd.api.types
        if types.is_datetime64_any_dtype(values.dtype):
            zero = pd.Timestamp("2000-01-01", tz=values.dt.tz)
            made[name] = (values - zero).dt.total_seconds() / 86_400
        elif types.is_timedelta64_dtype(values.dtype):
            made[name] = values.dt.total_seconds()
        elif types.is_bool_dtype(values.dtype) or types.is_numeric_dtype(values.dtype):
            made[name] = values.astype("float64").replace([np.inf, -np.inf], np.nan)
        else:
            made[name] = values.astype(object).where(values.notna(), "(missing)").map(str).astype(object)
            text.append(name)
    return pd.DataFrame(made, index=table.index), text


def _units(groups: pd.Series | None, rows: int) -> np.ndarray:
    """What is resampled as a whole: each row, or each group; a row without a group is its own."""
    if groups is None:
        return np.arange(rows)
    codes, names = pd.factorize(groups)
    return np.asarray(pd.factorize(np.where(codes < 0, len(names) + np.arange(rows), codes))[0])


def _only(table: pd.DataFrame, name: Any) -> pd.Series:
    if name not in table.columns:
        raise KeyError(f"no column {name!r}; there are {', '.join(map(str, table.columns[:20]))}")
    values = table[name]
    if isinstance(values, pd.DataFrame):
        raise KeyError(f"{name!r} names {values.shape[1]} columns; rename them first")
    return values


def _codes(values: pd.Series) -> np.ndarray:
    try:
        return np.asarray(pd.factorize(values)[0])
    except TypeError:
        return np.asarray(pd.factorize(values.map(repr))[0])


def _settles(one: np.ndarray, wanted: np.ndarray) -> bool:
    """Whether each value of `one` goes with one value of `wanted` in at least 99.5 % of the rows, and that is no
    wonder of a target with one overwhelming value."""
    if not len(wanted):
        return False
    counts = pd.DataFrame({"one": one, "wanted": wanted}).value_counts()
    settled = counts.groupby(level="one").max().sum() / len(wanted)
    usual = pd.Series(wanted).value_counts().iloc[0] / len(wanted)
    return bool(settled > 0.995 and 1 - settled < (1 - usual) / 10)


def _follows(values: pd.Series, target: pd.Series) -> bool:
    types = pd.api.types
    for each in (values, target):
        if not types.is_numeric_dtype(each.dtype) or types.is_complex_dtype(each.dtype):
            return False
    x, y = (each.to_numpy(float, na_value=np.nan) for each in (values, target))
    both = np.isfinite(x) & np.isfinite(y)
    if both.sum() < 20 or x[both].std() == 0 or y[both].std() == 0:
        return False
    return bool(abs(np.corrcoef(x[both], y[both])[0, 1]) > 0.995)
