"""All tools there are: one named object a module of this package, then those of other packages
(entry points `ipyagent.tools`), each part in the order of their names, so that the list has the
same bytes in every session."""

from __future__ import annotations

import pkgutil
from importlib import import_module
from importlib.metadata import entry_points
from typing import NamedTuple, TypeGuard

import ipyagent.tools as package
from ipyagent.journal.protocols import Tool
from ipyagent.tools.schema import FunctionTool


class ToolCatalogue(NamedTuple):
    """`problems` are sentences about entry points that were left out."""

    tools: tuple[Tool, ...]
    problems: tuple[str, ...] = ()


def catalogue() -> ToolCatalogue:
    """Import every tool. Raises nothing for other packages' faults: they are reported."""
    ours = _own()
    theirs: dict[str, Tool] = {}
    problems: list[str] = []
    for point in sorted(entry_points(group="ipyagent.tools"), key=lambda point: (point.name, point.value)):
        where = f"entry point {point.name} = {point.value}"
        try:
            value = point.load()
        except Exception as problem:  # noqa: BLE001 -- foreign module code may raise anything; it is reported
            problems.append(f"{where}: {type(problem).__name__}: {problem}")
            continue
        if not is_tool(value):
            problems.append(f"{where}: not a tool; decorate it with @ipyagent.tool")
        elif value.name in ours or value.name in theirs:
            problems.append(f"{where}: there is a tool {value.name!r} already")
        else:
            theirs[value.name] = value
    return ToolCatalogue(tuple(_ordered(ours) + _ordered(theirs)), tuple(problems))


def builtin_tools() -> dict[str, Tool]:
    """This package's own tools by name, in the order of their names."""
    return {tool.name: tool for tool in _ordered(_own())}


def _own() -> dict[str, Tool]:
    found: dict[str, Tool] = {}
    for module in pkgutil.iter_modules(package.__path__):
        # A module's tool has the module's name: what it imports from another is not its own.
        candidate = vars(import_module(f"{package.__name__}.{module.name}")).get(module.name)
        if is_tool(candidate):
            found[candidate.name] = candidate
    return found


def _ordered(tools: dict[str, Tool]) -> list[Tool]:
    return [tools[name] for name in sorted(tools)]


def is_tool(value: object) -> TypeGuard[Tool]:
    """Whether `value` is a tool and not a class of tools."""
    return isinstance(value, FunctionTool) or (not isinstance(value, type) and isinstance(value, Tool))
