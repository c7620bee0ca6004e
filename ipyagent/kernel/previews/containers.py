"""Containers: type, length, the first items. Items are read with the methods of list, tuple, dict and
set themselves, so that a subclass is not asked; only a few are read of a long one."""

from __future__ import annotations

import collections
import itertools
import operator
import os
import types
from collections.abc import Iterator
from typing import Any

from ipyagent.kernel.previews._kind import TypeInfo, class_dict, class_name, instance_dict
from ipyagent.kernel.previews._look import Group, PreviewContext, PreviewHandler

_SEQUENCES = (list, tuple, collections.deque, set, frozenset)
_BRACKETS = {
    list: ("[", "]"), tuple: ("(", ")"), set: ("{", "}"), frozenset: ("{", "}"), collections.deque: ("[", "]")
}
ITEMS = 60


def _base(kind: TypeInfo, bases: tuple[type, ...]) -> Any:
    return next(base for base in kind.mro for known in bases if base is known)


def _length(value: Any, kind: TypeInfo) -> int:
    base = _base(kind, (*_SEQUENCES, dict))
    return int(base.__len__(value))


def _size(value: Any, kind: TypeInfo) -> str:
    return f"{kind.name} {_length(value, kind):,}"


def _field_names(kind: TypeInfo) -> list[str]:
    names = class_dict(kind.cls).get("_fields")
    return [name for name in names if type(name) is str] if type(names) is tuple else []


def _one_type(values: list[Any], look: PreviewContext) -> str:
    kinds = {look.kind(value).name for value in values}
    return f" of {kinds.pop()}" if len(kinds) == 1 else ""


def _each(width: int, length: int) -> int:
    """Bytes for one of so many items."""
    return max(16, min(300, (width - 12) // max(1, min(length, 3))))


def sequence_line(value: Any, look: PreviewContext, width: int) -> str:
    kind = look.kind(value)
    base = _base(kind, _SEQUENCES)
    length = int(base.__len__(value))
    each = _each(width, length)
    first = list(itertools.islice(base.__iter__(value), min(length, ITEMS)))
    opening, closing = _BRACKETS[base]
    fields = _field_names(kind) if base is tuple else []
    if fields:
        cells = (f"{name}={look.line(item, each, name)}" for name, item in zip(fields, first, strict=False))
        return f"{kind.name}({look.items(cells, width - len(kind.name) - 2, length)})"
    sampled = list(first)
    if base is list and length > ITEMS:
        sampled += [list.__getitem__(value, at) for at in range(0, length, length // 20 + 1)]
    head = "" if look.depth > 1 and length <= 3 and kind.exactly(*_SEQUENCES) else (
        f"{_size(value, kind)}{_one_type(sampled, look)}: "
    )
    items = look.items((look.line(item, each) for item in first), width - len(head) - 2, length)
    return f"{head}{opening}{items}{closing}"


def sequence_block(value: Any, look: PreviewContext, width: int) -> Iterator[str]:
    kind = look.kind(value)
    base = _base(kind, _SEQUENCES)
    length = int(base.__len__(value))
    fields = _field_names(kind) if base is tuple else []
    first = list(itertools.islice(base.__iter__(value), ITEMS))
    yield f"{_size(value, kind)}{_one_type(first, look)}"
    each = max(60, min(400, width // max(1, min(length, 12))))
    if not fields and length > 3 and all(look.kind(item).exactly(int, float, bool) for item in first):
        yield "  " + look.items((look.line(item, 40) for item in first), width // 2, length)
        first = []
    for at, item in enumerate(first):
        label = fields[at] if at < len(fields) else f"[{at}]" if base not in (set, frozenset) else "-"
        yield f"  {label} {look.line(item, each, label)}"
    if length > ITEMS:
        last = f"; last: {look.line(base.__getitem__(value, length - 1), 80)}" if base in (list, tuple) else ""
        yield f"  … {length - ITEMS:,} more{last}"


def mapping_line(value: Any, look: PreviewContext, width: int) -> str:
    kind = look.kind(value)
    length = dict.__len__(value)
    each = _each(width, length)
    head = "" if look.depth > 1 and kind.exactly(dict) else f"{_size(value, kind)}: "

    def pairs() -> Iterator[str]:
        for key, item in itertools.islice(dict.items(value), ITEMS):
            name = look.label(key, 40)
            yield f"{look.line(key, 40)}: {look.line(item, each, name)}"

    return f"{head}{{{look.items(pairs(), width - len(head) - 2, length)}}}"


def mapping_block(value: Any, look: PreviewContext, width: int) -> Iterator[str]:
    kind = look.kind(value)
    length = dict.__len__(value)
    yield _size(value, kind)
    each = max(60, min(400, width // max(1, min(length, 12))))
    for key, item in itertools.islice(dict.items(value), ITEMS):
        yield f"  {look.line(key, 60)}: {look.line(item, each, look.label(key, 60))}"
    if length > ITEMS:
        rest = (look.line(key, 30) for key in itertools.islice(dict.keys(value), ITEMS, ITEMS + 40))
        yield f"  … {length - ITEMS:,} more: {look.items(rest, 300, length - ITEMS)}"


def _environment(value: Any, kind: TypeInfo) -> str:
    return f"os.environ {len(instance_dict(value).get('_data', ()))}"


def _environment_line(value: Any, look: PreviewContext, width: int) -> str:
    names = (os.fsdecode(name) for name in list(instance_dict(value).get("_data", ())) if type(name) in (bytes, str))
    head = f"{_environment(value, look.kind(value))} names, values not shown: "
    return head + look.items((look.label(name, 40) for name in names), width - len(head), None)


def _view(value: Any, look: PreviewContext, width: int) -> str:
    # a proxy or view may stand for a mapping of the user's
    return f"{look.kind(value).name} (not read)"


def _range(value: Any, look: PreviewContext, width: int) -> str:
    parts = (value.start, value.stop, value.step)
    if all(operator.index(part).bit_length() < 64 for part in parts):
        return repr(value)
    return f"range({', '.join(look.line(part, 40) for part in parts)})"


FAMILIES = (
    PreviewHandler(
        "sequences and sets",
        Group.CONTAINERS,
        lambda kind: kind.is_a(*_SEQUENCES),
        _size,
        sequence_line,
        sequence_block,
        60,
    ),
    PreviewHandler(
        "dictionaries", Group.CONTAINERS, lambda kind: kind.is_a(dict), _size, mapping_line, mapping_block, 60
    ),
    PreviewHandler(
        "environment", Group.CONTAINERS, lambda kind: kind.exactly(type(os.environ)), _environment, _environment_line
    ),
    PreviewHandler("ranges", Group.CONTAINERS, lambda kind: kind.exactly(range), lambda value, kind: "range", _range),
    PreviewHandler(
        "views",
        Group.CONTAINERS,
        lambda kind: kind.exactly(
            types.MappingProxyType, type({}.keys()), type({}.values()), type({}.items()), memoryview
        ),
        lambda value, kind: class_name(kind.cls),
        _view,
    ),
)
