"""scikit-learn estimators and the like, and matplotlib figures: read from what they store."""

from __future__ import annotations

import types
from collections.abc import Iterator
from typing import Any

from ipyagent.kernel.previews._kind import Kind, class_dict, instance_dict
from ipyagent.kernel.previews._look import Family, Group, Look


def _is_estimator(kind: Kind) -> bool:
    return kind.is_library("sklearn.base", "BaseEstimator")


def _defaults(kind: Kind) -> dict[str, Any]:
    for base in kind.mro:
        init = class_dict(base).get("__init__")
        if type(init) is types.FunctionType:
            code = init.__code__
            values = init.__defaults__ or ()
            names = code.co_varnames[code.co_argcount - len(values) : code.co_argcount]
            return {**dict(zip(names, values, strict=True)), **(init.__kwdefaults__ or {})}
    return {}


def _parts(value: Any, kind: Kind) -> tuple[dict[str, Any], dict[str, Any]]:
    """Parameters that differ from the defaults, and what fitting stored."""
    defaults = _defaults(kind)
    parameters: dict[str, Any] = {}
    fitted: dict[str, Any] = {}
    for name, item in instance_dict(value).items():
        if type(name) is not str or name.startswith("_"):
            continue
        if name.endswith("_"):
            fitted[name] = item
        elif name not in defaults or not _same(item, defaults[name]):
            parameters[name] = item
    return parameters, fitted


def _same(one: Any, other: Any) -> bool:
    # == of anything else may be the user's
    plain = (int, float, str, bool, type(None))
    return one is other or (type(one) is type(other) and type(one) in plain and bool(one == other))


def _estimator(value: Any, look: Look, width: int) -> str:
    kind = look.kind(value)
    parameters, fitted = _parts(value, kind)
    shown = (f"{name}={look.line(item, 60, name)}" for name, item in parameters.items())
    text = f"{kind.name}({look.items(shown, max(10, width - len(kind.name) - 12), len(parameters))})"
    return f"{text} {'fitted' if fitted else 'not fitted'}"


def _estimator_block(value: Any, look: Look, width: int) -> Iterator[str]:
    kind = look.kind(value)
    yield f"{_estimator(value, look, 600)} ({kind.module})"
    for name, item in _parts(value, kind)[1].items():
        yield f"  {name}: {look.line(item, 160, name)}"


def _is_plot(kind: Kind) -> bool:
    return kind.genuine("matplotlib") and kind.is_library("matplotlib.artist", "Artist")


def _plot(value: Any, look: Look, width: int) -> str:
    kind = look.kind(value)
    own = instance_dict(value)
    if kind.is_library("matplotlib.figure", "FigureBase"):
        axes = value.axes
        size = own.get("bbox_inches")
        inches = "" if size is None else f" {size.width:.3g} x {size.height:.3g} in"
        return f"matplotlib {kind.name}{inches}, {len(axes)} axes" + (f": {_axes_words(axes[0], look)}" if axes else "")
    if kind.is_library("matplotlib.axes", "Axes"):
        return f"matplotlib {kind.name}, {_axes_words(value, look)}"
    return f"matplotlib {kind.name}"


def _axes_words(axes: Any, look: Look) -> str:
    if not look.kind(axes).genuine("matplotlib"):
        return look.kind(axes).name
    drawn = {word: len(getattr(axes, word)) for word in ("lines", "collections", "patches", "images")}
    marks = [f"{count} {word}" for word, count in drawn.items() if count]
    titles = [
        f"{word} {look.line(text, 60)}"
        for word, text in (("title", axes.get_title()), ("x", axes.get_xlabel()), ("y", axes.get_ylabel()))
        if text
    ]
    return ", ".join([*titles, *marks]) or "empty"


FAMILIES = (
    Family(
        "estimators", Group.OBJECTS, _is_estimator, lambda value, kind: kind.name, _estimator, _estimator_block, 35
    ),
    Family("plots", Group.OBJECTS, _is_plot, lambda value, kind: f"matplotlib {kind.name}", _plot, None, 35),
)
