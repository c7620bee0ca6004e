"""Any other object: its type and what is stored in it. Nothing of it is called: no repr, no property,
no length."""

from __future__ import annotations

import itertools
import os
import pathlib
import sys
from collections.abc import Iterator
from typing import Any

from ipyagent.kernel.previews._kind import TypeInfo, class_dict, instance_dict, loaded, slots, stored
from ipyagent.kernel.previews._look import Group, PreviewContext, PreviewHandler, facts, one_line

MOST = 200
"""Attributes that are looked at."""


def _attributes(value: Any) -> dict[str, Any]:
    own = instance_dict(value)
    kept = stored(own.get("_param__private"), "values")  # of the library param, with all that has a default
    if type(kept) is dict:
        own = {name: item for name, item in kept.items() if item is not None and type(item) not in (list, dict, tuple)}
    found = dict(itertools.islice(own.items(), MOST))
    return {
        name: item
        for name, item in {**slots(value), **found}.items()
        if type(name) is str and not name.startswith("_")
    }


def _name(value: Any, kind: TypeInfo) -> str:
    return kind.name


def _from(kind: TypeInfo) -> str:
    return "" if kind.module in ("__main__", "builtins", "") else f" ({one_line(kind.module)})"


def _is_the_users(kind: TypeInfo) -> bool:
    """Whether the class was written by the user, so that the names of its methods tell something: not one that was
    installed or is Python's own."""
    file = loaded(kind.module, "__file__")
    if type(file) is not str:  # a cell, or what has no file
        return kind.top not in sys.builtin_module_names
    place = pathlib.PurePath(file)
    try:
        here = os.getcwd()
    except OSError:  # the folder is gone
        return False
    return place.is_relative_to(here) and not {"site-packages", "dist-packages"} & set(place.parts)


def line(value: Any, look: PreviewContext, width: int) -> str:
    """Of the user's objects as much as fits, of a library's a few facts."""
    ours = _is_the_users(look.kind(value)) or look.kind(value).is_a(BaseException)
    return (_line if ours else facts(_line))(value, look, width)


def _line(value: Any, look: PreviewContext, width: int) -> str:
    kind = look.kind(value)
    name = one_line(kind.name)
    if kind.is_a(BaseException):
        arguments = BaseException.__dict__["args"].__get__(value)
        cells = (look.line(argument, 200) for argument in arguments)
        return f"{name}{_from(kind)}: {look.items(cells, max(10, width - len(name) - 2), len(arguments))}"
    head = f"{name} object{_from(kind)}" if kind.cls is not object else "object"
    attributes = _attributes(value)
    if not attributes:
        return head
    each = max(16, min(60, width // 3))
    shown = (f"{one_line(name)}={look.line(item, each, name)}" for name, item in attributes.items())
    return f"{head}: {look.items(shown, max(10, width - len(head.encode()) - 2), len(attributes))}"


def block(value: Any, look: PreviewContext, width: int) -> Iterator[str]:
    kind = look.kind(value)
    if kind.is_a(BaseException):
        yield line(value, look, min(width, 1_000))
        return
    yield f"{one_line(kind.name)} object ({one_line(kind.module) or 'module unknown'})"
    attributes = _attributes(value)
    each = max(60, min(400, width // max(1, min(len(attributes), 12))))
    for name, item in attributes.items():
        yield f"  {one_line(name)}: {look.line(item, each, name)}"
    if len(instance_dict(value)) > MOST:
        yield f"  … {len(instance_dict(value)) - MOST:,} more attributes"
    if not _is_the_users(kind):
        return
    methods = [
        one_line(name)
        for base in kind.mro[:-1]
        if _is_the_users(TypeInfo(base))
        for name in class_dict(base)
        if type(name) is str and not name.startswith("_") and name not in attributes
    ]
    if methods:
        yield f"  class has: {look.items(iter(methods), 400, len(methods))}"


FAMILIES = (PreviewHandler("objects", Group.OBJECTS, lambda kind: True, _name, line, block, 1_000),)
