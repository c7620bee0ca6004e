"""A preview tells what a value is within bytes and time, and never runs the user's code.

A family of types is one file of this package with a tuple `FAMILIES`; the files are found by listing
the package. Other distributions add theirs through the entry point group `ipyagent.previews` (each
entry a `PreviewHandler`); theirs are asked first. Both are read on first use.
"""

from __future__ import annotations

import functools
import importlib
import pkgutil
import warnings

from ipyagent.kernel.previews._context import (
    MISSING,
    Group,
    PreviewContext,
    PreviewHandler,
    TypeInfo,
    clip,
    facts,
    one_line,
    stored,
)
from ipyagent.kernel.previews.values import numbers_in_text

__all__ = [
    "MISSING",
    "Group",
    "PreviewContext",
    "PreviewHandler",
    "TypeInfo",
    "clip",
    "facts",
    "families",
    "find",
    "numbers_in_text",
    "one_line",
    "open_look",
    "stored",
]


@functools.cache
def families() -> tuple[PreviewHandler, ...]:
    """Every family, in the order in which they are asked; the last takes anything."""
    ours: list[PreviewHandler] = []
    for module in pkgutil.iter_modules(__path__):
        if not module.name.startswith("_"):
            ours += importlib.import_module(f"{__name__}.{module.name}").FAMILIES
    from importlib.metadata import entry_points  # 25 ms to import

    theirs: list[PreviewHandler] = []
    for entry in entry_points(group="ipyagent.previews"):
        try:
            family = entry.load()
        except Exception as problem:  # noqa: BLE001 - a foreign package may fail in any way; ours go on
            warnings.warn(f"preview {entry.name!r} ({entry.value}) was not loaded: {problem}", stacklevel=2)
            continue
        if isinstance(family, PreviewHandler):
            theirs.append(family)
        else:
            warnings.warn(f"preview {entry.name!r} ({entry.value}) is not an ipyagent PreviewHandler", stacklevel=2)
    return (*theirs, *sorted(ours, key=lambda family: family.order))


def find(kind: TypeInfo) -> PreviewHandler:
    """The family that takes values of this kind."""
    return next(family for family in families() if family.takes(kind))


def open_look(seconds: float) -> PreviewContext:
    """A look that may take `seconds`, counted from now; loading the families is not counted."""
    families()
    return PreviewContext(find, seconds)
