"""Models: estimators of scikit-learn and its like, gradient boosting, regressions of statsmodels, modules of torch.
Read from what they store; "fitted" and "not fitted" are said where that is known alone."""

from __future__ import annotations

import inspect
import sys
import types
from collections.abc import Iterator
from typing import Any

from ipyagent.escape import counted
from ipyagent.kernel.previews._context import (
    FACTS,
    MISSING,
    Group,
    PreviewContext,
    PreviewHandler,
    TypeInfo,
    class_dict,
    class_name,
    clip,
    facts,
    instance_dict,
    library_name,
    listed,
    of_library,
    pairs,
    stored,
)


def _is_estimator(kind: TypeInfo) -> bool:
    return kind.is_library("sklearn.base", "BaseEstimator")


def _constructors(kind: TypeInfo) -> Iterator[types.FunctionType]:
    """Of the class and of its bases, in their order."""
    for base in kind.mro:
        init = class_dict(base).get("__init__")
        for _ in range(3):  # what a decorator wraps
            init = instance_dict(init).get("__wrapped__", init) if type(init) is types.FunctionType else init
        if type(init) is types.FunctionType:
            yield init


def _parts(value: Any, kind: TypeInfo) -> tuple[dict[str, Any], dict[str, Any]]:
    """Parameters that differ from the defaults, and what fitting stored."""
    defaults: dict[str, Any] = {}
    named, open_ended = frozenset[str](), True
    for init in reversed([*_constructors(kind)]):  # the class's own last: it decides
        code, values = init.__code__, init.__defaults__ or ()
        names = code.co_varnames[code.co_argcount - len(values) : code.co_argcount]
        defaults |= {**dict(zip(names, values, strict=True)), **(init.__kwdefaults__ or {})}
        named = frozenset(code.co_varnames[1 : code.co_argcount + code.co_kwonlyargcount])
        open_ended = bool(code.co_flags & inspect.CO_VARKEYWORDS)
    parameters: dict[str, Any] = {}
    fitted: dict[str, Any] = {}
    for name, item in instance_dict(value).items():
        if type(name) is not str or name.startswith("_"):
            continue
        if name.endswith("_"):
            fitted[name] = item
        elif (name in named or (open_ended and item is not None)) and not _same(item, defaults.get(name, MISSING)):
            parameters[name] = item
    return parameters, fitted


def _same(one: Any, other: Any) -> bool:
    # == of anything else may be the user's
    plain = (int, float, str, bool, type(None))
    if type(one) is not type(other) or type(one) not in plain:
        return one is other
    return bool(one == other) or (one != one and other != other)  # NaN stands for missing values


_STEPS = {"Pipeline": "steps", "FeatureUnion": "transformer_list", "ColumnTransformer": "transformers"}
"""Estimators that are made of named others, and where they keep them."""
_NEEDS_NO_FIT = frozenset((
    "FunctionTransformer", "HashingVectorizer", "FeatureHasher", "Normalizer", "Binarizer", "AdditiveChi2Sampler",
    "FrozenEstimator",
))  # fmt: skip
"""Those of scikit-learn that say nothing by having learned nothing."""


def _inner(value: Any, kind: TypeInfo) -> list[tuple[Any, Any]]:
    """Name and estimator of each step."""
    place = next((place for name, place in _STEPS.items() if any(class_name(base) == name for base in kind.mro)), "")
    steps = instance_dict(value).get(place)
    return [step[:2] for step in steps if type(step) is tuple and len(step) >= 2] if type(steps) is list else []


def is_fitted(value: Any, look: PreviewContext, depth: int = 0) -> bool | None:
    """Whether a model was fitted; None where that is not known."""
    kind = look.kind(value)
    own = instance_dict(value)
    if any(type(name) is str and name.endswith("_") and name[:1] != "_" for name in own):
        return True
    if kind.is_library("xgboost", "XGBModel") or kind.is_library("lightgbm.sklearn", "LGBMModel"):
        return own.get("_Booster") is not None
    if not kind.genuine("sklearn"):
        return None
    if kind.name in ("Pipeline", "FeatureUnion") and depth < 4:
        # a pipeline is as fitted as its last step; the parts of a union are fitted together
        steps = [step for _, step in _inner(value, kind) if step is not None and type(step) is not str]
        known = [is_fitted(step, look, depth + 1) for step in (steps[-1:] if kind.name == "Pipeline" else steps)]
        if kind.name == "Pipeline" and known == [None]:
            known = [is_fitted(step, look, depth + 1) for step in steps]
        said = set(known) - {None}
        return said.pop() if len(said) == 1 else None
    given = own.get("prefit") is True or own.get("vocabulary") is not None  # what was learned elsewhere
    if given or kind.name in _NEEDS_NO_FIT or any("__sklearn_is_fitted__" in class_dict(base) for base in kind.mro):
        return None
    return False


_TELLING = ("best_score_", "best_params_", "coef_", "intercept_", "classes_", "n_features_in_", "feature_names_in_")
"""What fitting left and a line tells first."""


def _estimator(value: Any, look: PreviewContext, width: int, depth: int = 0) -> str:
    kind = look.kind(value)
    parameters, fitted = _parts(value, kind)
    known = None if depth else is_fitted(value, look)
    state = "" if known is None else " fitted" if known else " not fitted"

    def inside(item: Any, name: str) -> str:
        """A part; whether it is fitted is said of the whole."""
        within = depth < 3 and _is_estimator(look.kind(item))
        return clip(_estimator(item, look, 60, depth + 1), 60) if within else look.line(item, 60, name)

    steps = _inner(value, kind)
    if steps:
        shown = (f"{look.label(name, 30)} {inside(step, '')}" for name, step in steps)
        return f"{kind.name}{state}: {look.items(shown, max(20, width - len(kind.name) - 14), len(steps), ' → ')}"
    shown = (f"{name}={inside(item, name)}" for name, item in parameters.items())
    room = max(10, width - len(kind.name) - 12)
    text = f"{kind.name}({look.items(shown, room, len(parameters))}){state}"
    told = [name for name in _TELLING if name in fitted]
    if depth or look.depth > 1 or len(text) + 40 > min(width, FACTS) or not told:
        return text
    learned = (f"{name} {look.line(fitted[name], 60, name)}" for name in told)
    return f"{text}: {look.items(learned, min(width, FACTS) - len(text) - 2, len(told))}"


def _estimator_block(value: Any, look: PreviewContext, width: int) -> Iterator[str]:
    kind = look.kind(value)
    yield f"{_estimator(value, look, 240)} ({kind.module})"
    for name, item in _parts(value, kind)[1].items():
        yield f"  {name}: {look.line(item, 160, name)}"


# ---------------------------------------------------------------------- boosting, statsmodels, torch

MOST_CELLS = 2_000_000
"""Cells of a regression's data for which R² is computed where it was not asked for before."""


_COUNTS = (
    ("row", "num_row"), ("column", "num_col"), ("feature", "num_features"), ("round", "num_boosted_rounds"),
    ("tree", "num_trees"), ("feature", "num_feature"),
)  # fmt: skip


def _is_booster(kind: TypeInfo) -> bool:
    return kind.genuine("xgboost", "lightgbm") and kind.name in ("Booster", "DMatrix", "QuantileDMatrix")


def _boosted(value: Any, look: PreviewContext, width: int) -> str:
    kind = look.kind(value)
    told = [f"{kind.top} {kind.name}"]
    for word, name in _COUNTS:
        method = class_dict(kind.cls).get(name)
        if type(method) is types.FunctionType and not any(word in part for part in told):
            told.append(counted(method(value), word))
    return ", ".join(told)


def _is_regression(kind: TypeInfo) -> bool:
    return kind.genuine("statsmodels") and (
        kind.is_library("statsmodels.base.wrapper", "ResultsWrapper")
        or kind.is_library("statsmodels.base.model", "Results", "Model")
    )


def _regression(value: Any, look: PreviewContext, width: int) -> str:
    kind = look.kind(value)
    results = stored(value, "_results") if "Wrapper" in kind.name else value
    model = stored(results, "model")
    if model is MISSING:
        return f"statsmodels {kind.name}, not fitted{_formula(value)}{_data_words(value, look)}"
    own = look.kind(results)
    text = f"statsmodels {look.kind(model).name} fitted{_formula(model)}{_data_words(model, look)}"
    said = _fit_words(results, own, look)
    names, values = _coefficients(model), stored(results, "params")
    numbers = values.tolist() if look.kind(values).genuine("numpy", "pandas") and hasattr(values, "tolist") else []
    if numbers and type(numbers[0]) is float:
        pairs = zip(names or range(len(numbers)), numbers, strict=False)
        shown = (f"{look.label(name, 30)} {number:.5g}" for name, number in pairs)
        text += f"{said}: {look.items(shown, max(20, min(width, 240) - len(text) - len(said) - 2), len(numbers))}"
    return text


def _is_printed(kind: TypeInfo) -> bool:
    return kind.genuine("statsmodels") and kind.name in ("Summary", "SimpleTable")


def _printed(value: Any, look: PreviewContext, width: int) -> str:
    """A summary and its tables: titles and headers."""
    kind = look.kind(value)
    title = stored(value, "title")
    text = f"statsmodels {kind.name}" + (f" {title!r}" if type(title) is str else "")
    if kind.is_a(list):
        cells = [stored(cell, "data") for row in listed(value, 1) for cell in listed(row, sys.maxsize)]
        head = look.items((look.line(cell, 20) for cell in cells if cell), 100, None)
        return f"{text} {list.__len__(value)} x {len(cells)}: {head}"
    tables = stored(value, "tables")
    inner = [each for each in tables if stored(each, "title") is not MISSING] if type(tables) is list else []
    titles = [stored(each, "title") for each in inner if type(stored(each, "title")) is str]
    return f"{text}, {counted(len(inner), 'table')}" + (f": {', '.join(map(repr, titles))}" if titles else "")


def _formula(model: Any) -> str:
    found = stored(model, "formula")
    return f" {found!r}" if type(found) is str else ""


def _data_words(model: Any, look: PreviewContext) -> str:
    rows = stored(model, "exog")
    return f", {counted(rows.shape[0], 'row')}" if look.kind(rows).genuine("numpy") else ""


def _coefficients(model: Any) -> list[Any]:
    data = stored(model, "data")
    for holder, name in ((data, "xnames"), (data, "param_names"), (data, "_param_names"), (data, "cov_names")):
        found = stored(holder, name)
        if type(found) is list:
            return found
    columns = stored(stored(data, "orig_exog"), "_mgr")
    found = columns.axes[0].tolist() if TypeInfo(type(columns)).genuine("pandas") else []
    return found if type(found) is list else []


def _fit_words(results: Any, own: TypeInfo, look: PreviewContext) -> str:
    """R² (or log-likelihood) where it is known, or cheap and the library's own."""
    cached = stored(results, "_cache")
    exog = stored(stored(results, "model"), "exog")
    ours = own.genuine("statsmodels") and look.kind(stored(results, "model")).genuine("statsmodels")
    cheap = ours and look.kind(exog).genuine("numpy") and exog.size <= MOST_CELLS
    for name, word in (("rsquared", "R²"), ("prsquared", "pseudo R²"), ("aic", "AIC")):
        found = cached.get(name, MISSING) if type(cached) is dict else MISSING
        if found is MISSING and cheap and not look.spent(0.5) and any(name in class_dict(base) for base in own.mro):
            found = getattr(results, name)
        if found is not MISSING and TypeInfo(type(found)).is_a(float):
            return f", {word} {float(found):.4g}"
    return ""


def _module(value: Any, look: PreviewContext, width: int) -> str:
    """A network: its layers, parameters and mode."""
    own = instance_dict(value)
    waiting, layers, count, device = [value], 0, 0, ""
    while waiting and layers < 2_000 and not look.spent(0.5):
        part = instance_dict(waiting.pop())
        layers += 1
        for tensor in pairs(part.get("_parameters")).values():
            if tensor is not None and look.kind(tensor).genuine("torch"):
                count += tensor.numel()
                device = str(tensor.device)
        inner = pairs(part.get("_modules")).values()
        waiting += [each for each in inner if look.kind(each).is_library("torch.nn", "Module")]
    children = pairs(own.get("_modules"))
    names = [f"{look.label(name, 20)} {look.kind(part).name}" for name, part in children.items()]
    told = [f"torch {look.kind(value).name}", counted(count, "parameter"), f"on {device}" if device else ""]
    told.append("training" if own.get("training") is True else "evaluating")
    text = ", ".join(filter(None, told))
    return f"{text}: {look.items(iter(names), max(20, min(width, 240) - len(text)), len(names))}" if names else text


FAMILIES = (
    PreviewHandler(
        "estimators", Group.OBJECTS, _is_estimator, lambda value, kind: kind.name,
        facts(_estimator), _estimator_block, 35,
    ),
    PreviewHandler("boosters", Group.OBJECTS, _is_booster, library_name, _boosted, None, 34),
    PreviewHandler("statsmodels tables", Group.OBJECTS, _is_printed, library_name, facts(_printed), None, 34),
    PreviewHandler("regressions", Group.OBJECTS, _is_regression, library_name, facts(_regression), None, 34),
    of_library("networks", facts(_module), "torch.nn", "Module", short=lambda value, kind: f"torch {kind.name}"),
)  # fmt: skip
