"""Single values: numbers, dates, paths, members of enumerations. A number too long to print is shown by
its size; a time zone written by the user is named, not asked."""

from __future__ import annotations

import datetime
import decimal
import enum
import fractions
import pathlib
import re
import uuid
from typing import Any

from ipyagent.kernel.previews._kind import TypeInfo, instance_dict
from ipyagent.kernel.previews._look import Group, PreviewContext, PreviewHandler, clip, one_line

_ZONES = ("datetime", "zoneinfo", "pytz", "dateutil", "pandas", "tzlocal")
_PATHS = (pathlib.PurePosixPath, pathlib.PureWindowsPath, pathlib.PosixPath, pathlib.WindowsPath)


def _name(value: Any, kind: TypeInfo) -> str:
    return kind.name


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


def _zone(value: Any, look: PreviewContext) -> tuple[str, bool]:
    """Name of the time zone and whether it may be asked."""
    if value is None:
        return "", True
    kind = look.kind(value)
    known = kind.genuine(*_ZONES) or (kind.top == "pytz" and kind.is_library("pytz", "BaseTzInfo"))
    return kind.name, known


def _moment(value: Any, look: PreviewContext, width: int) -> str:
    kind = look.kind(value)
    if kind.is_a(datetime.datetime):
        whole: Any = datetime.datetime
        get = datetime.datetime.__dict__
        naive = datetime.datetime(
            *(datetime.date.__dict__[part].__get__(value) for part in ("year", "month", "day")),
            *(get[part].__get__(value) for part in ("hour", "minute", "second", "microsecond")),
        )
        zone = get["tzinfo"].__get__(value)
    elif kind.is_a(datetime.time):
        get = datetime.time.__dict__
        whole = datetime.time
        naive = datetime.time(*(get[part].__get__(value) for part in ("hour", "minute", "second", "microsecond")))  # type: ignore[assignment]
        zone = get["tzinfo"].__get__(value)
    elif kind.is_a(datetime.date):
        return f"{kind.name} {datetime.date.isoformat(value)}"
    else:
        days, seconds, micro = (
            datetime.timedelta.__dict__[part].__get__(value) for part in ("days", "seconds", "microseconds")
        )
        return f"{kind.name} {datetime.timedelta(days, seconds, micro)}"
    name, known = _zone(zone, look)
    if not known:
        return f"{kind.name} {naive.isoformat()} (time zone: a {name}, not asked)"
    shown = naive.replace(tzinfo=zone) if whole is datetime.datetime or zone is None else naive
    if zone is not None and whole is datetime.datetime:
        shown = naive.replace(tzinfo=zone, fold=datetime.datetime.__dict__["fold"].__get__(value))
        return f"{kind.name} {shown.isoformat()} {clip(one_line(str(zone)), 40)}"
    return f"{kind.name} {shown.isoformat()}"


def _path(value: Any, look: PreviewContext, width: int) -> str:
    return f"{look.kind(value).name} {look.text(str(value), max(8, width - 14))}"


def _is_member(kind: TypeInfo) -> bool:
    return kind.is_a(enum.Enum)


def _member(value: Any, look: PreviewContext, width: int) -> str:
    own = instance_dict(value)
    name = own.get("_name_")
    shown = look.line(own.get("_value_"), max(8, width - 40))
    return f"{look.kind(value).name}.{name if type(name) is str else '?'} = {shown}"


def _known(value: Any, look: PreviewContext, width: int) -> str:
    return f"{look.kind(value).name} {clip(one_line(str(value)), max(8, width - 20))}"


def _library_scalar(value: Any, look: PreviewContext, width: int) -> str:
    kind = look.kind(value)
    if look.depth > 1 and kind.is_library("numpy", "number", "bool_"):
        return look.cell(value.item(), width)
    if kind.is_library("numpy", "void"):
        return f"numpy void: {look.line(value.item(), width - 14)}"
    shown = clip(one_line(str(value)), max(8, width - 20))
    return shown if look.depth > 1 else f"{kind.name} {shown}"


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

FAMILIES = (
    PreviewHandler("enumeration members", Group.SCALARS, _is_member, _name, _member, None, 30),
    PreviewHandler("library scalars", Group.SCALARS, _is_library_scalar, _name, _library_scalar, None, 30),
    PreviewHandler("numbers", Group.SCALARS, lambda kind: kind.is_a(int, float, complex), _name, _number, None, 60),
    PreviewHandler("moments", Group.SCALARS, lambda kind: kind.is_a(*_PLAIN), _name, _moment, None, 60),
    PreviewHandler("decimals", Group.SCALARS, lambda kind: kind.exactly(decimal.Decimal), _name, _decimal, None, 60),
    PreviewHandler(
        "fractions", Group.SCALARS, lambda kind: kind.exactly(fractions.Fraction), _name, _fraction, None, 60
    ),
    PreviewHandler("paths", Group.SCALARS, lambda kind: kind.exactly(*_PATHS), _name, _path, None, 60),
    PreviewHandler("patterns", Group.SCALARS, lambda kind: kind.exactly(re.Pattern), _name, _pattern, None, 60),
    PreviewHandler("matches", Group.SCALARS, lambda kind: kind.exactly(re.Match), _name, _match, None, 60),
    PreviewHandler(
        "identifiers",
        Group.SCALARS,
        lambda kind: kind.exactly(uuid.UUID, type(None), type(Ellipsis)),
        _name,
        _known,
        None,
        60,
    ),
)
