"""The lessons that there are: each module here has one, named `lesson`."""

from __future__ import annotations

import pkgutil
from functools import cache
from importlib import import_module

from ipyagent.practice.model.lesson import Lesson


@cache
def known() -> tuple[Lesson, ...]:
    """Every lesson, by name."""
    names = [module.name for module in pkgutil.iter_modules(__path__)]
    return tuple(import_module(f"{__name__}.{name}").lesson for name in sorted(names))


def requests(name: str) -> tuple[str, ...]:
    """The requests of a lesson in order, to be sent one by one. Raises ValueError."""
    for lesson in known():
        if lesson.name == name:
            return lesson.requests
    raise ValueError(f"no lesson {name!r}; there are {', '.join(lesson.name for lesson in known())}")
