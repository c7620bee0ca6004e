"""What a function's signature says of a tool: types of its parameters, the schema in stable order, and
what is wrong with given arguments, in one line each."""

from __future__ import annotations

import ast
import inspect
import re
import sys
import textwrap
import typing
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from ipyagent.errors import UsageError

if TYPE_CHECKING:
    from pydantic_core import ErrorDetails


def doc_of(function: Any) -> str:
    """A function's docstring, cleaned, "" for none; read from its source where Python was told to drop docstrings
    (`-OO`, PYTHONOPTIMIZE=2): what the model and the help say must not depend on that."""
    if doc := inspect.getdoc(function):
        return doc
    if sys.flags.optimize < 2:
        return ""
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(function)))
    except (OSError, TypeError, SyntaxError):  # no source, or no function
        return ""
    first = tree.body[0] if tree.body else None
    return ast.get_docstring(first) or "" if isinstance(first, ast.FunctionDef | ast.AsyncFunctionDef) else ""


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
    """A schema node with what tells the model how to call, and nothing else: no titles, no
    `additionalProperties` that is only yes or no, no null for what may be left out, a default in words. Keys are
    sorted; names of properties keep their order. What is accepted is decided by the signature, not by this."""
    if isinstance(node, list):
        return [tidied(item) for item in node]
    if not isinstance(node, dict):
        return node
    tidy: dict[str, Any] = {}
    for key in sorted(node):
        value = node[key]
        if key == "default" or (key == "title" and isinstance(value, str)):
            continue
        if key == "additionalProperties" and isinstance(value, bool):
            continue
        if key == "properties" and isinstance(value, dict):
            needed = node.get("required") or ()
            tidy[key] = {name: tidied(child if name in needed else _optional(child)) for name, child in value.items()}
        elif key == "$defs" and isinstance(value, dict):
            tidy[key] = {name: tidied(child) for name, child in value.items()}
        else:
            tidy[key] = value if key in ("enum", "const", "examples", "required") else tidied(value)
    return tidy


def _optional(node: Any) -> Any:
    """A property that may be left out: without the null that stands for that, of one or several the list, its default
    told in words when it says more than "nothing", "no" or, as -1 does, "not given"."""
    if not isinstance(node, dict):
        return node
    node = dict(node)
    choices = node.get("anyOf")
    if isinstance(choices, list):
        lists = [choice["items"] for choice in choices if isinstance(choice, dict) and "items" in choice]
        # neither null, nor one item where a list of them is taken
        left = [choice for choice in choices if choice != {"type": "null"} and choice not in lists]
        if len(left) == 1 and isinstance(left[0], dict):
            node = {**left[0], **{key: value for key, value in node.items() if key != "anyOf"}}
        else:
            node["anyOf"] = left
    text, default = str(node.get("description", "")), node.get("default")
    if isinstance(default, str | int | float) and default not in ("", 0, -1) and str(default) not in text:
        node["description"] = f"{text.removesuffix('.')} (default {default!r}){'.' * text.endswith('.')}".strip()
    return node


_OWN_LINE = re.compile(r"\s|[-*•+>] |>>>|\||#+ |\d+[.)] |```")
"""How a line begins that is not the wrapped rest of the one before: a list, code, a table, a heading."""
_ENDS = re.compile(r"[.!?:;…。！？：\"`)|]$|^\s|^[|#]|^```")


def unwrapped(text: str) -> str:
    """A docstring's text with each sentence in one line: wrapped lines are joined, also over an empty line in the
    middle of a sentence; lists, tables, code and indented lines stay as they are."""
    kept: list[str] = []
    gap = fenced = False
    for line in map(str.rstrip, text.strip().splitlines()):
        if not line and not fenced:
            gap = True
            continue
        own, before = fenced or bool(_OWN_LINE.match(line)), kept[-1] if kept else ""
        if before and not own and (_goes_on(before, line) if gap else not re.match(r"\s|[|#]|```", before)):
            kept[-1] = f"{before} {line}"
        else:
            kept += [""] * (gap and bool(kept)) + [line]
        fenced ^= line.startswith("```")
        gap = False
    return "\n".join(kept)


def _goes_on(before: str, line: str) -> bool:
    """Whether an empty line between these two stands in the middle of a sentence."""
    return line[0].islower() and not _ENDS.search(before)


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
