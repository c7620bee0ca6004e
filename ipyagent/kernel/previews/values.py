"""Plain values: numbers, dates, texts and bytes, and the containers that hold them. Of a long one only a few items are
read, with the methods of list, tuple, dict and set themselves, so that a subclass is not asked."""

from __future__ import annotations

import collections
import datetime
import decimal
import enum
import fractions
import itertools
import operator
import os
import pathlib
import re
import types
import uuid
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any

from ipyagent.kernel.previews._context import (
    CONTEXT,
    Group,
    PreviewContext,
    PreviewHandler,
    TypeInfo,
    class_dict,
    clip,
    instance_dict,
    of_types,
    one_line,
    own_name,
    quoted,
)
from ipyagent.redaction import mask

# ---- Texts and bytes: length, beginning and, in depth, the end. Escaped to one line, secrets masked before
# anything is cut. Also says of a column of texts that most of them are numbers.

WHOLE = 100_000
"""Longest text that is masked as a whole, so that its end may be shown."""
NUMBER_CHARS = 40
"""A longer text is no number."""
_NUMBER = re.compile(
    r"\s*[-+−]?\s?(?:[$€£¥]\s?)?[-+]?"
    r"(?:\d{1,3}(?:[,' ]\d{3})+(?:\.\d+)?|\d{1,3}(?:\.\d{3})+,\d+|\d+(?:[.,]\d*)?|[.,]\d+)"
    r"(?:[eE][-+]?\d+)?\s?[%€$£]?\s*"
)


def _text(value: Any, kind: TypeInfo) -> str:
    return f"{kind.name} {str.__len__(value):,}"


def text_line(value: Any, look: PreviewContext, width: int) -> str:
    # a subclass of str; exact texts are shown by the look itself
    return f"{look.kind(value).name} {look.text(value, max(8, width - 20))}"


def text_block(value: Any, look: PreviewContext, width: int) -> Iterator[str]:
    text = str.__getitem__(value, slice(None))
    length = len(text)
    if length <= 200:
        yield look.text(value, 700)
        return
    lines = f", {text.count(chr(10)) + 1:,} lines" if length <= 10_000_000 else ""
    yield f"{look.kind(value).name} of {length:,} characters{lines}"
    whole = length <= WHOLE
    shown = mask(text) if whole else mask(text[:WHOLE])
    room = max(100, (width - 200) // 2)
    if len(shown) <= room and whole:
        yield from (f"  {one_line(line)}" for line in shown.splitlines() or [""])
        return
    start = clip(shown, room)
    yield from (f"  {one_line(line)}" for line in start.splitlines())
    if whole:
        yield f"  … ends: {quoted(shown[-max(40, room // 8) :], room)}"


def _bytes(value: Any, kind: TypeInfo) -> str:
    base: Any = bytes if kind.is_a(bytes) else bytearray
    return f"{kind.name} {base.__len__(value):,}"


def bytes_line(value: Any, look: PreviewContext, width: int) -> str:
    kind = look.kind(value)
    base: Any = bytes if kind.is_a(bytes) else bytearray
    head = base.__getitem__(value, slice(0, width + CONTEXT))
    text = mask(bytes(head).decode("latin-1"))
    shown = "".join(c if " " <= c <= "~" or c == "…" else f"\\x{ord(c):02x}" for c in text[:width])
    prefix = f"{_bytes(value, kind)}: "
    return f"{prefix}b{quoted(shown, width - len(prefix) - 1)}"


def numbers_in_text(cells: Iterable[Any], *, of: str = "") -> str:
    """Of a column of texts that is mostly numbers (at least three, four of five): "text: 66 of 67 are numbers,
    others: '-'", with the commonest others; "" for any other column. Missing cells (no text) and empty texts are not
    counted. `of` stands behind the count of all ("sampled")."""
    numbers, others, count = 0, Counter[str](), 0
    for cell in cells:
        if type(cell) is not str or not cell:
            continue
        count += 1
        if len(cell) <= NUMBER_CHARS and _NUMBER.fullmatch(cell):
            numbers += 1
        elif len(others) < 1_000 or cell in others:
            others[cell[:NUMBER_CHARS]] += 1
        if count >= 50 and numbers * 2 < count:
            return ""
    if numbers < 3 or numbers * 5 < count * 4:
        return ""
    said = f" {of}" if of else ""
    if numbers == count:
        return f"text: all {count:,}{said} are numbers"
    named = ", ".join(quoted(mask(other), 24) for other, _ in others.most_common(4))
    return f"text: {numbers:,} of {count:,}{said} are numbers, others: {named}{', …' if len(others) > 4 else ''}"


def truth_words(true: int, count: int) -> str:
    """Of `count` truth values how many are True and how many False."""
    return f"{true:,} True, {count - true:,} False"


_TEXTS = (
    PreviewHandler("texts", Group.SCALARS, lambda kind: kind.is_a(str), _text, text_line, text_block, 60),
    PreviewHandler("bytes", Group.SCALARS, lambda kind: kind.is_a(bytes, bytearray), _bytes, bytes_line, None, 60),
)


# ---- Single values: numbers, dates, paths, members of enumerations. A number too long to print is shown by its
# size; a time zone written by the user is named, not asked.

_ZONES = ("datetime", "zoneinfo", "pytz", "dateutil", "pandas", "tzlocal")
_PATHS = (pathlib.PurePosixPath, pathlib.PureWindowsPath, pathlib.PosixPath, pathlib.WindowsPath)


def _number(value: Any, look: PreviewContext, width: int) -> str:
    kind = look.kind(value)
    own = "" if kind.exactly(int, float, complex, bool) else f"{kind.name} "
    if kind.is_a(int):
        bits = int.bit_length(value)
        if bits > 400:
            return f"{own}int of about {int(bits * 0.30103) + 1:,} digits"
        return own + int.__repr__(value)
    return own + (float.__repr__(value) if kind.is_a(float) else complex.__repr__(value))


def _decimal(value: Any, look: PreviewContext, width: int) -> str:
    # str() of a Decimal with a million digits is slow; its memory tells
    if decimal.Decimal.__sizeof__(value) > 1_000:
        return f"Decimal of about {int(decimal.Decimal.__sizeof__(value) * 2.4):,} digits"
    return f"Decimal {decimal.Decimal.__str__(value)}"


def _fraction(value: Any, look: PreviewContext, width: int) -> str:
    return f"Fraction {look.line(value.numerator, 60)}/{look.line(value.denominator, 60)}"


def known_zone(zone: Any) -> bool:
    """Whether a time zone is none, or a library's, so that asking it runs no code of the user."""
    kind = TypeInfo(type(zone))
    return zone is None or kind.genuine(*_ZONES) or (kind.top == "pytz" and kind.is_library("pytz", "BaseTzInfo"))


def _moment(value: Any, look: PreviewContext, width: int) -> str:
    kind = look.kind(value)

    def read(of: type, *names: str) -> list[Any]:
        return [class_dict(of)[name].__get__(value) for name in names]

    clock = ("hour", "minute", "second", "microsecond")
    if kind.is_a(datetime.datetime):
        naive: Any = datetime.datetime(*read(datetime.date, "year", "month", "day"), *read(datetime.datetime, *clock))
        zone, fold = read(datetime.datetime, "tzinfo", "fold")
    elif kind.is_a(datetime.time):
        naive, zone, fold = datetime.time(*read(datetime.time, *clock)), *read(datetime.time, "tzinfo"), None
    elif kind.is_a(datetime.date):
        return f"{kind.name} {datetime.date.isoformat(value)}"
    else:
        return f"{kind.name} {datetime.timedelta(*read(datetime.timedelta, 'days', 'seconds', 'microseconds'))}"
    if not known_zone(zone):
        return f"{kind.name} {naive.isoformat()} (time zone: a {look.kind(zone).name}, not asked)"
    if zone is not None and fold is not None:
        return f"{kind.name} {naive.replace(tzinfo=zone, fold=fold).isoformat()} {clip(one_line(str(zone)), 40)}"
    return f"{kind.name} {naive.isoformat()}"


def _path(value: Any, look: PreviewContext, width: int) -> str:
    return f"{look.kind(value).name} {look.text(str(value), max(8, width - 14))}"


def _member(value: Any, look: PreviewContext, width: int) -> str:
    own = instance_dict(value)
    name = own.get("_name_")
    shown = look.line(own.get("_value_"), max(8, width - 40))
    return f"{look.kind(value).name}.{name if type(name) is str else '?'} = {shown}"


def _known(value: Any, look: PreviewContext, width: int) -> str:
    return f"{look.kind(value).name} {clip(one_line(str(value)), max(8, width - 20))}"


def _asks_nobody(end: Any) -> bool:
    """Whether the end of an interval is written without any code of the user."""
    kind = TypeInfo(type(end))
    return kind.exactly(int, float) or (kind.genuine("numpy", "pandas") and known_zone(getattr(end, "tzinfo", None)))


def _library_scalar(value: Any, look: PreviewContext, width: int) -> str:
    kind = look.kind(value)
    if look.depth > 1 and kind.is_library("numpy", "number", "bool_"):
        return look.cell(value.item(), width)
    if kind.is_library("numpy", "void"):
        return f"numpy void: {look.line(value.item(), width - 14)}"
    head = "" if look.depth > 1 else f"{kind.name} "
    if kind.name == "Timestamp" and not known_zone(value.tzinfo):
        return f"{head}{value.asm8} UTC (time zone: a {look.kind(value.tzinfo).name}, not asked)"
    if kind.name == "Interval" and not (_asks_nobody(value.left) and _asks_nobody(value.right)):
        opening, closing = "[("[value.open_left], "])"[value.open_right]
        return f"{head}{opening}{look.line(value.left, 80)}, {look.line(value.right, 80)}{closing}"
    return head + clip(one_line(str(value)), max(8, width - len(head)))


_PANDAS = ("Timestamp", "Timedelta", "Period", "Interval", "NaTType", "NAType")


def _is_library_scalar(kind: TypeInfo) -> bool:
    if kind.genuine("numpy"):
        return kind.is_library("numpy", "generic") and not kind.is_a(str, bytes)
    return kind.top == "pandas" and kind.name in _PANDAS and (
        kind.genuine("pandas") or kind.is_library("pandas", kind.name) or kind.name in ("NaTType", "NAType")
    )


def _pattern(value: Any, look: PreviewContext, width: int) -> str:
    return f"re.Pattern {look.line(value.pattern, max(8, width - 12))}"


def _match(value: Any, look: PreviewContext, width: int) -> str:
    groups = value.groups()[:8] if type(value.string) in (str, bytes) else ()
    told = f", groups {look.items((look.line(part, 30) for part in groups), 80, len(groups))}" if groups else ""
    whole = look.line(value.group(), 60) if type(value.string) in (str, bytes) else "?"
    return f"re.Match {whole} at {value.start()} to {value.end()}{told}"


_PLAIN = (datetime.datetime, datetime.date, datetime.time, datetime.timedelta)

_SCALARS = (
    PreviewHandler(
        "enumeration members", Group.SCALARS, lambda kind: kind.is_a(enum.Enum), own_name, _member, None, 30
    ),
    PreviewHandler("library scalars", Group.SCALARS, _is_library_scalar, own_name, _library_scalar, None, 30),
    PreviewHandler("numbers", Group.SCALARS, lambda kind: kind.is_a(int, float, complex), own_name, _number, None, 60),
    PreviewHandler("moments", Group.SCALARS, lambda kind: kind.is_a(*_PLAIN), own_name, _moment, None, 60),
    of_types("decimals", Group.SCALARS, _decimal, decimal.Decimal, order=60),
    of_types("fractions", Group.SCALARS, _fraction, fractions.Fraction, order=60),
    of_types("paths", Group.SCALARS, _path, *_PATHS, order=60),
    of_types("patterns", Group.SCALARS, _pattern, re.Pattern, order=60),
    of_types("matches", Group.SCALARS, _match, re.Match, order=60),
    of_types("identifiers", Group.SCALARS, _known, uuid.UUID, type(None), type(Ellipsis), order=60),
)


# ---- Containers: type, length, the first items. Items are read with the methods of list, tuple, dict and set
# themselves, so that a subclass is not asked; only a few are read of a long one.

_SEQUENCES = (list, tuple, collections.deque, set, frozenset)
_BRACKETS = {
    list: ("[", "]"), tuple: ("(", ")"), set: ("{", "}"), frozenset: ("{", "}"), collections.deque: ("[", "]")
}
ITEMS = 60


def _base(kind: TypeInfo, bases: tuple[type, ...]) -> Any:
    return next(base for base in kind.mro for known in bases if base is known)


def _size(value: Any, kind: TypeInfo) -> str:
    return f"{kind.name} {_base(kind, (*_SEQUENCES, dict)).__len__(value):,}"


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
    return f"{head}{opening}{items}{',' * (base is tuple and length == 1)}{closing}"


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


_VIEWS: tuple[type, ...] = (
    types.MappingProxyType, type({}.keys()), type({}.values()), type({}.items()), memoryview,
)  # fmt: skip


def _view(value: Any, look: PreviewContext, width: int) -> str:
    # a proxy or view may stand for a mapping of the user's
    return f"{look.kind(value).name} (not read)"


def _range(value: Any, look: PreviewContext, width: int) -> str:
    parts = (value.start, value.stop, value.step)
    if all(operator.index(part).bit_length() < 64 for part in parts):
        return repr(value)
    return f"range({', '.join(look.line(part, 40) for part in parts)})"


_CONTAINERS = (
    PreviewHandler(
        "sequences and sets", Group.CONTAINERS, lambda kind: kind.is_a(*_SEQUENCES),
        _size, sequence_line, sequence_block, 60,
    ),
    PreviewHandler(
        "dictionaries", Group.CONTAINERS, lambda kind: kind.is_a(dict), _size, mapping_line, mapping_block, 60
    ),
    PreviewHandler(
        "environment", Group.CONTAINERS, lambda kind: kind.exactly(type(os.environ)), _environment, _environment_line
    ),
    of_types("ranges", Group.CONTAINERS, _range, range, order=50),
    of_types("views", Group.CONTAINERS, _view, *_VIEWS, order=50),
)


FAMILIES = (*_TEXTS, *_SCALARS, *_CONTAINERS)
