"""What a function's signature says of a tool: types of its parameters, the schema in stable order, and
what is wrong with given arguments, in one line each."""

from __future__ import annotations

import inspect
import typing
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from ipyagent.errors import UsageError

if TYPE_CHECKING:
    from pydantic_core import ErrorDetails


def types_of(function: Callable[..., Any], parameters: Mapping[str, inspect.Parameter]) -> dict[str, Any]:
    """Each parameter's type, strings resolved where the function was written. The return type
    is left alone: it may name things that exist for the type checker only."""
    inner = inspect.unwrap(function)
    code = getattr(inner, "__code__", types_of.__code__)
    closure = dict(zip(code.co_freevars, inner.__closure__ or (), strict=False))
    names = {}
    for key, cell in closure.items():
        try:
            names[key] = cell.cell_contents
        except ValueError:  # a name of the enclosing function that has no value yet
            continue

    class Signature:
        __annotations__ = {key: parameter.annotation for key, parameter in parameters.items()}

    try:
        return typing.get_type_hints(
            Signature, globalns=getattr(inner, "__globals__", {}), localns=names, include_extras=True
        )
    except NameError as problem:
        raise UsageError(f"tool {function.__name__!r}: a parameter's type is not known: {problem}") from None


def tidied(node: Any) -> Any:
    """A schema node without titles, keys sorted; names of properties keep their order."""
    if isinstance(node, list):
        return [tidied(item) for item in node]
    if not isinstance(node, dict):
        return node
    tidy: dict[str, Any] = {}
    for key in sorted(node):
        value = node[key]
        if key == "title" and isinstance(value, str):
            continue
        if key in ("properties", "$defs") and isinstance(value, dict):
            tidy[key] = {name: tidied(child) for name, child in value.items()}
        else:
            tidy[key] = value if key in ("default", "enum", "const", "examples", "required") else tidied(value)
    return tidy


def line_of(error: ErrorDetails, parameters: Mapping[str, inspect.Parameter]) -> str:
    """One line for one error of pydantic's: the place, what is wrong, what was given."""
    place = ".".join(str(part) for part in error["loc"]) or "arguments"
    if error["type"] == "missing":
        return f"`{place}`: missing"
    if error["type"] == "extra_forbidden" and len(error["loc"]) == 1:
        return f"`{place}`: no such argument; allowed: {', '.join(parameters) or 'none'}"
    given = error["input"]
    shown = repr(given) if isinstance(given, (str, int, float, bool)) else type(given).__name__
    shown = shown if len(shown) <= 80 else shown[:77] + "…"
    return f"`{place}`: {error['msg'].partition(', unable to parse')[0]}, got {shown}"
