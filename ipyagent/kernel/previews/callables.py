"""Functions, classes and modules: the signature is read from the code object, defaults are shown as
values are, the source comes from memory (cells), never from running or importing anything."""

from __future__ import annotations

import functools
import inspect
import linecache
import sys
import types
from collections.abc import Iterator
from typing import Any

from ipyagent.kernel.previews._kind import (
    MISSING,
    TypeInfo,
    class_dict,
    class_module,
    class_name,
    instance_dict,
    stored,
)
from ipyagent.kernel.previews._look import Group, PreviewContext, PreviewHandler, clip, one_line

_BUILTINS = (
    types.BuiltinFunctionType, types.MethodDescriptorType, types.WrapperDescriptorType, types.MethodWrapperType,
    types.ClassMethodDescriptorType,
)


def _annotation(value: Any, depth: int = 0) -> str:
    if type(value) is str:
        return clip(one_line(value), 40)
    kind = TypeInfo(type(value))
    if value is None or kind.is_a(type):
        return "None" if value is None else class_name(value)
    # a generic such as list[int] is told by its origin: its own repr may run a metaclass
    parts = value.__args__ if kind.exactly(types.UnionType) else stored(value, "__args__")
    if "Union" in kind.name and type(parts) is tuple and depth < 3:
        return " | ".join(_annotation(part, depth + 1) for part in parts[:6])
    origin = value.__origin__ if kind.exactly(types.GenericAlias) else stored(value, "__origin__")
    return class_name(origin) if TypeInfo(type(origin)).is_a(type) else kind.name


def signature(function: types.FunctionType, look: PreviewContext, width: int = 300) -> str:
    """`(a: int, *, b=3)` of a Python function."""
    code = function.__code__
    count = code.co_argcount
    names = code.co_varnames
    # a program may have set these to subclasses of its own
    defaults = tuple.__getitem__(function.__defaults__ or (), slice(None))
    keywords: dict[str, Any] = function.__kwdefaults__ or {}
    # from 3.14 on reading annotations runs the expressions that the user wrote
    notes: dict[str, Any] = function.__annotations__ if sys.version_info < (3, 14) else {}
    first_default = count - len(defaults)

    def parameter(name: str, default: tuple[Any, ...] = ()) -> str:
        note = dict.get(notes, name, MISSING)
        text = name + ("" if note is MISSING else f": {_annotation(note)}")
        equals = "=" if note is MISSING else " = "
        return text + (f"{equals}{look.line(default[0], 40, name)}" if default else "")

    parts = []
    for at in range(count):
        parts.append(parameter(names[at], (defaults[at - first_default],) if at >= first_default else ()))
        if code.co_posonlyargcount and at == code.co_posonlyargcount - 1:
            parts.append("/")
    after = count + code.co_kwonlyargcount
    if code.co_flags & inspect.CO_VARARGS:
        parts.append("*" + parameter(names[after]))
        after += 1
    elif code.co_kwonlyargcount:
        parts.append("*")
    for name in names[count : count + code.co_kwonlyargcount]:
        default = dict.get(keywords, name, MISSING)
        parts.append(parameter(name, () if default is MISSING else (default,)))
    if code.co_flags & inspect.CO_VARKEYWORDS:
        parts.append("**" + parameter(names[after]))
    returned = dict.get(notes, "return", MISSING)
    back = "" if returned is MISSING else f" -> {_annotation(returned)}"
    return f"({look.items(iter(parts), width, len(parts))}){back}"


def _word(function: types.FunctionType) -> str:
    flags = function.__code__.co_flags
    word = "lambda" if function.__name__ == "<lambda>" else "def"
    return "async def" if flags & (inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR) else word


def function_line(value: Any, look: PreviewContext, width: int) -> str:
    name = "" if value.__name__ == "<lambda>" else value.__name__
    text = f"{_word(value)} {name}{signature(value, look, max(20, width - len(name) - 6))}"
    doc = _summary(value.__doc__)
    return f"{text} — {doc}" if doc and len(text) + 10 < width else text


def _summary(doc: Any) -> str:
    return clip(one_line(doc.strip().split("\n", 1)[0]), 80) if type(doc) is str and doc.strip() else ""


def source(code: types.CodeType) -> list[str]:
    """Lines of a function's source when they are in memory already (cells of this session)."""
    entry = linecache.cache.get(code.co_filename)
    if not isinstance(entry, tuple) or len(entry) != 4:
        return []
    return inspect.getblock(list(entry[2][code.co_firstlineno - 1 : code.co_firstlineno + 400]))


def function_block(value: Any, look: PreviewContext, width: int) -> Iterator[str]:
    yield function_line(value, look, 400)
    code = value.__code__
    yield f"  from {look.label(value.__module__, 60)}, line {code.co_firstlineno}"
    lines = source(code)
    if lines:
        yield from (f"  | {line.rstrip()}" for line in lines)
    elif type(value.__doc__) is str:
        yield from (f"  {line}" for line in value.__doc__.strip().splitlines()[:40])


def _builtin(value: Any, look: PreviewContext, width: int) -> str:
    return f"builtin function {clip(one_line(value.__name__), 60)}"


def _method(value: Any, look: PreviewContext, width: int) -> str:
    function = value.__func__
    plain = type(function) is types.FunctionType
    inner = f"{function.__name__}{signature(function, look)}" if plain else look.short(function)
    return f"method {inner} of a {look.kind(value.__self__).name}"


def _partial(value: Any, look: PreviewContext, width: int) -> str:
    called = look.line(value.func, max(20, width // 2))
    return f"partial of {called}, {len(value.args)} positional and {len(value.keywords)} named arguments set"


def _cached(value: Any, look: PreviewContext, width: int) -> str:
    inner = instance_dict(value).get("__wrapped__")
    return f"cached {look.line(inner, max(20, width - 8))}" if type(inner) is types.FunctionType else "cached function"


def class_line(value: Any, look: PreviewContext, width: int) -> str:
    mro = TypeInfo(value).mro
    bases = [class_name(base) for base in mro[1:-1]][:3]
    own = class_dict(value)
    text = f"class {class_name(value)}" + (f"({', '.join(bases)})" if bases else "")
    init = own.get("__init__")
    if type(init) is types.FunctionType:
        made_from = signature(init, look, max(20, width // 2))
        text += f", made from {made_from.replace('(self, ', '(').replace('(self)', '()')}"
    public = [name for name in own if type(name) is str and not name.startswith("_")]
    if public:
        text += f": {look.items(iter(map(one_line, public)), max(10, width - len(text.encode()) - 2), len(public))}"
    return text


def class_block(value: Any, look: PreviewContext, width: int) -> Iterator[str]:
    yield f"{class_line(value, look, 300)} ({class_module(value)})"
    own = class_dict(value)
    if doc := own.get("__doc__"):
        yield from (f"  {line}" for line in (doc.strip().splitlines()[:20] if type(doc) is str else ()))
    for name, member in list(own.items())[:100]:
        if type(name) is not str or (name.startswith("_") and name != "__init__"):
            continue
        inner = member.__func__ if type(member) in (staticmethod, classmethod) else member
        if type(inner) is types.FunctionType:
            word = {staticmethod: "static ", classmethod: "class "}.get(type(member), "")
            yield f"  {word}{_word(inner)} {name}{signature(inner, look)}"
        else:
            yield f"  {one_line(name)}: {'property' if type(member) is property else look.line(member, 100, name)}"


def module_line(value: Any, look: PreviewContext, width: int) -> str:
    own = instance_dict(value)
    name = own.get("__name__")
    version = own.get("__version__")
    return f"module {name if type(name) is str else '?'}" + (f" {version}" if type(version) is str else "")


FAMILIES = (
    PreviewHandler(
        "functions", Group.FUNCTIONS, lambda kind: kind.exactly(types.FunctionType), lambda value, kind: "function",
        function_line, function_block, 40,
    ),
    PreviewHandler(
        "builtin functions", Group.FUNCTIONS, lambda kind: kind.exactly(*_BUILTINS),
        lambda value, kind: "builtin function", _builtin, None, 40,
    ),
    PreviewHandler(
        "methods", Group.FUNCTIONS, lambda kind: kind.exactly(types.MethodType), lambda value, kind: "method",
        _method, None, 40,
    ),
    PreviewHandler(
        "partials", Group.FUNCTIONS, lambda kind: kind.exactly(functools.partial), lambda value, kind: "partial",
        _partial, None, 40,
    ),
    PreviewHandler(
        "cached functions", Group.FUNCTIONS,
        lambda kind: kind.name == "_lru_cache_wrapper" and kind.module == "functools",
        lambda value, kind: "function", _cached, None, 40,
    ),
    PreviewHandler(
        "classes", Group.FUNCTIONS, lambda kind: kind.is_a(type), lambda value, kind: f"class {class_name(value)}",
        class_line, class_block, 40,
    ),
    PreviewHandler(
        "modules", Group.FUNCTIONS, lambda kind: kind.is_a(types.ModuleType), lambda value, kind: "module",
        module_line, None, 40,
    ),
)
