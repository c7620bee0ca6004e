"""One look at values: the deadline, the depth and the path are kept here, and every text that comes
out is one line of printable characters with secrets masked."""

from __future__ import annotations

import datetime
import enum
import re
import sys
import time
import types
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass
from typing import Any, TypeAlias

from ipyagent.journal.tokens import estimate_text
from ipyagent.redaction import mask, mask_named
from ipyagent.redaction.names import name_strength

# ---- Facts about a value's type and state, read below the level at which a class can answer for itself: no
# `isinstance` (`__class__` may lie), no `==` between classes (metaclasses), no `getattr`.

_mro_of = type.__dict__["__mro__"].__get__
_dict_of = type.__dict__["__dict__"].__get__
_module_of = type.__dict__["__module__"].__get__
_name_of = type.__dict__["__name__"].__get__
_qualname_of = type.__dict__["__qualname__"].__get__
_module_dict_of: Any = vars(types.ModuleType)["__dict__"].__get__

MISSING: Any = object()
"""Stands for "no such thing" where None is a value."""


def class_dict(cls: type) -> types.MappingProxyType[str, Any]:
    """The namespace of a class itself, without its bases."""
    found: types.MappingProxyType[str, Any] = _dict_of(cls)
    return found


def class_name(cls: type) -> str:
    """The class's own name."""
    name: str = _name_of(cls)
    return name


def class_module(cls: type) -> str:
    """The module a class says it is from; "" when it says nothing sensible."""
    try:
        module = _module_of(cls)
    except AttributeError:
        return ""
    return module if type(module) is str else ""


def loaded(module: str, name: str) -> Any:
    """What an imported module holds under a (dotted) name; MISSING when it is not imported."""
    found: Any = sys.modules.get(module, MISSING)
    for part in name.split("."):
        if any(base is types.ModuleType for base in _mro_of(type(found))):
            found = _module_dict_of(found).get(part, MISSING)
        elif any(base is type for base in _mro_of(type(found))):
            found = class_dict(found).get(part, MISSING)
        else:
            return MISSING
    return found


class TypeInfo:
    """What a type is: its bases, its name, where it is from."""

    __slots__ = ("cls", "module", "mro", "name", "top")

    def __init__(self, cls: type) -> None:
        self.cls = cls
        self.mro: tuple[type, ...] = _mro_of(cls)
        self.name = class_name(cls)
        self.module = class_module(cls)
        self.top = self.module.partition(".")[0]

    def is_a(self, *classes: type) -> bool:
        """Whether one of these classes is among the bases (or is the type)."""
        return any(base is cls for base in self.mro for cls in classes)

    def exactly(self, *classes: type) -> bool:
        """Whether the type is one of these classes itself: then no method can be overridden."""
        return any(self.cls is cls for cls in classes)

    def is_library(self, module: str, *names: str) -> bool:
        """Whether an imported module's class of one of these names is among the bases."""
        if module not in sys.modules:
            return False
        found = [loaded(module, name) for name in names]
        return any(base is cls for base in self.mro for cls in found)

    def genuine(self, *tops: str) -> bool:
        """Whether the type itself is from one of these packages: the package is imported and holds
        this very class under its name, so its properties are that library's code."""
        if self.top not in tops:
            return False
        return loaded(self.module, _qualname_of(self.cls)) is self.cls or any(
            loaded(top, self.name) is self.cls for top in tops
        )

    def comes_from(self, top: str, *names: str) -> bool:
        """Whether a base says it is from a package, by one of these names (any when none is given).
        Good for choosing words, not for calling anything."""
        return any(
            class_module(base).partition(".")[0] == top and (not names or class_name(base) in names)
            for base in self.mro
        )


def instance_dict(value: Any) -> dict[str, Any]:
    """The attributes stored in a value; {} when it keeps none. A class that defines `__dict__`
    itself is not asked."""
    for base in _mro_of(type(value)):
        descriptor: Any = class_dict(base).get("__dict__")
        if type(descriptor) in (types.GetSetDescriptorType, types.MemberDescriptorType):
            try:
                found = descriptor.__get__(value)
            except (AttributeError, TypeError):
                return {}
            return found if type(found) is dict else {}
    return {}


def listed(value: Any, most: int = 40) -> list[Any]:
    """The first items of a list, also where a library has a class of its own for it; [] for anything else."""
    return list.__getitem__(value, slice(0, most)) if TypeInfo(type(value)).is_a(list) else []


def pairs(value: Any) -> dict[Any, Any]:
    """The same of a dictionary: all of it."""
    return dict(dict.items(value)) if TypeInfo(type(value)).is_a(dict) else {}


def slots(value: Any) -> dict[str, Any]:
    """The filled slots of a value (`__slots__` and fields of classes written in C)."""
    found: dict[str, Any] = {}
    for base in reversed(_mro_of(type(value))):
        if base is object or class_module(base) == "builtins":
            continue
        for name, descriptor in class_dict(base).items():
            if type(descriptor) is types.MemberDescriptorType and type(name) is str:
                try:
                    found[name] = descriptor.__get__(value)
                except (AttributeError, TypeError):
                    continue
    return found


def stored(value: Any, name: str) -> Any:
    """An attribute stored in the value itself (dictionary or slot); MISSING when there is none."""
    found = instance_dict(value).get(name, MISSING)
    return slots(value).get(name, MISSING) if found is MISSING else found


_VALUE = re.compile(r"[-+]?\d[\d.]*(?:[eE][-+]?\d+)?|None|True|False|nan|NaN|NaT|<NA>")
"""A text that is read as another value where it stands bare."""
DEPTH = 4
"""Levels of containers that are entered."""
CONTEXT = 400
"""Characters beyond the cut that are looked at, to know a secret that the cut would halve."""


class Group(enum.IntEnum):
    """Where a family stands in a summary."""

    FRAMES = 0
    ARRAYS = 1
    CONTAINERS = 2
    OBJECTS = 3
    FUNCTIONS = 4
    SCALARS = 5


Line: TypeAlias = "Callable[[Any, PreviewContext, int], str]"
Block: TypeAlias = "Callable[[Any, PreviewContext, int], Iterator[str]]"


@dataclass(frozen=True)
class PreviewHandler:
    """How the model sees values of some types. None of the functions may run the user's code.

    `takes(kind)` decides by the type alone. `short(value, kind)` returns a few words, immediately. `line(value, look,
    width)` returns one line of about `width` bytes. `block(value, look, width)` yields lines, the most important first;
    it is read until bytes or time run out. Handlers with a lower `order` are asked first. A function that raises gives
    "no preview".
    """

    name: str
    group: Group
    takes: Callable[[TypeInfo], bool]
    short: Callable[[Any, TypeInfo], str]
    line: Line
    block: Block | None = None
    order: int = 50


def own_name(value: Any, kind: TypeInfo) -> str:
    """`Series`."""
    return kind.name


def library_name(value: Any, kind: TypeInfo) -> str:
    """`polars Series`."""
    return f"{kind.top} {kind.name}"


def of_library(
    name: str,
    line: Line,
    module: str,
    *classes: str,
    genuine: str = "",
    group: Group = Group.OBJECTS,
    short: Callable[[Any, TypeInfo], str] = library_name,
    order: int = 34,
) -> PreviewHandler:
    """The family of a module's classes; `genuine`: the package that the type itself is from."""

    def takes(kind: TypeInfo) -> bool:
        return (not genuine or kind.genuine(genuine)) and kind.is_library(module, *classes)

    return PreviewHandler(name, group, takes, short, line, None, order)


def of_types(
    name: str, group: Group, line: Line, *classes: type, word: str = "", block: Block | None = None, order: int = 40
) -> PreviewHandler:
    """The family of these types themselves; `word`: what one is in short, "" for its type's name."""

    def short(value: Any, kind: TypeInfo) -> str:
        return word or kind.name

    return PreviewHandler(name, group, lambda kind: kind.exactly(*classes), short, line, block, order)


FACTS = 240
"""Bytes of a line of facts at most, and FACT_TOKENS."""
FACT_TOKENS = 60


def facts(line: Line) -> Line:
    """`line` in FACT_TOKENS at most: for objects whose facts are told and not their contents."""

    def told(value: Any, look: PreviewContext, width: int) -> str:
        text = one_line(clip(line(value, look, min(width, FACTS)), FACTS))
        for _ in range(3):
            count = estimate_text(text)
            if count <= FACT_TOKENS:
                break
            text = text[: len(text) * FACT_TOKENS // count - 3]
            end = max(text.rfind(", "), text.rfind("; "))
            text = f"{text[:end] if end > len(text) // 2 else text}, …"
        return text

    return told


def one_line(text: str) -> str:
    """`text` on one line: newlines become ⏎, other unprintable characters escapes, lone surrogates too."""
    text = str.__str__(text)
    if text.isprintable():
        return text
    text = text.replace("\r\n", "⏎").replace("\n", "⏎")
    return text if text.isprintable() else "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)


def clip(text: str, size: int) -> str:
    """`text` in at most `size` bytes of UTF-8, cut between characters; the cut is shown as …"""
    if len(text) * 4 <= size:
        return text
    raw = text[: max(size, 0) + 1].encode("utf-8", "backslashreplace")
    if len(raw) <= size and len(text) <= size:
        return raw.decode()
    return raw[: size - 3].decode("utf-8", "ignore").rstrip("…") + "…" if size >= 3 else ""


def quoted(text: str, width: int) -> str:
    """A text as a literal of about `width` bytes."""
    cut = clip(one_line(text[: width + 1]), max(width - 2, 4))
    return f"'{cut}'"


class PreviewContext:
    """A look at values until a deadline; nested values are shown through `line`."""

    def __init__(self, find: Callable[[TypeInfo], PreviewHandler], seconds: float) -> None:
        self._find = find
        self.seconds = seconds
        self.started = time.perf_counter()
        self._kinds: dict[int, tuple[TypeInfo, PreviewHandler]] = {}
        self._path: list[int] = []

    def again(self, seconds: float) -> PreviewContext:
        """Another look from now on that knows the same types."""
        look = PreviewContext(self._find, seconds)
        look._kinds = self._kinds
        return look

    @property
    def depth(self) -> int:
        """How many values enclose the one that is shown."""
        return len(self._path)

    def spent(self, share: float = 1.0) -> bool:
        """Whether this share of the time is over."""
        return time.perf_counter() - self.started >= self.seconds * share

    def kind(self, value: Any) -> TypeInfo:
        """The kind of a value."""
        return self._of(value)[0]

    def family(self, value: Any) -> PreviewHandler:
        """The family of a value."""
        return self._of(value)[1]

    def _of(self, value: Any) -> tuple[TypeInfo, PreviewHandler]:
        # by id: hashing a class may run its metaclass; the kind keeps the class alive
        cls = type(value)
        known = self._kinds.get(id(cls))
        if known is None:
            kind = TypeInfo(cls)
            known = self._kinds[id(cls)] = (kind, self._find(kind))
        return known

    def short(self, value: Any) -> str:
        """A few words: type and size."""
        kind, family = self._of(value)
        try:
            return one_line(clip(family.short(value, kind), 120))
        except Exception:  # noqa: BLE001 - a broken object of a library must not hide the other variables
            return one_line(kind.name)

    def line(self, value: Any, width: int, name: str = "") -> str:
        """One line of at most `width` bytes; `name` (a key, a column) may tell that it is a secret."""
        width = max(width, 8)
        if type(value) is str:
            return self.text(value, width, name)
        if value is None or value is True or value is False:
            return str(value)
        if id(value) in self._path:
            return "<itself>"
        _, family = self._of(value)
        if name and family.group not in (Group.OBJECTS, Group.FUNCTIONS) and name_strength(name) == 2:
            return clip(f"{self.short(value)} […masked]", width)
        if self.spent() or len(self._path) > DEPTH:
            return clip(f"<{self.short(value)}>", width)
        self._path.append(id(value))
        try:
            shown = family.line(value, self, width)
        except Exception as problem:  # noqa: BLE001 - a broken object of a library must not hide the others
            shown = f"{self.short(value)} (no preview: {type(problem).__name__})"
        finally:
            self._path.pop()
        return clip(one_line(mask_named(name, shown) if name_strength(name) == 1 else mask(shown)), width)

    def text(self, value: str, width: int, name: str = "") -> str:
        """A text as a literal. Masked before it is cut, so that no half secret is left."""
        head = str.__getitem__(value, slice(0, width + CONTEXT))
        return quoted(mask_named(name, head), width)

    def cell(self, value: Any, width: int, name: str = "") -> str:
        """Like `line`, with six significant digits and dates as they are read: for tables."""
        if type(value) is float:
            return f"{value:.6g}"
        if type(value) is datetime.date or type(value) is datetime.timedelta:
            return str(value)
        if type(value) is datetime.datetime and value.tzinfo is None:
            return value.isoformat(" ")
        return self.line(value, width, name)

    def label(self, value: Any, width: int = 60) -> str:
        """A key or column name: a plain text bare, anything else as a value. Of a tuple each part has its share of
        `width`."""
        if type(value) is str:
            return clip(one_line(mask(value[: width + 1024])), width)
        if type(value) is tuple and 1 < len(value) <= 6:
            parts = [self.line(part, width) for part in value]
            if sum(len(part.encode()) + 2 for part in parts) > width:
                parts = [clip(part, max(8, width // len(parts) - 2)) for part in parts]
            return f"({', '.join(parts)})"
        return self.line(value, width)

    def heading(self, value: Any, width: int) -> str:
        """The label of a column or row; a text with blanks around it, or that looks like another value, is quoted."""
        odd = type(value) is str and (value[:width].strip() != value[:width] or not value or _VALUE.fullmatch(value))
        return self.text(value, width) if odd else self.label(value, width)

    def items(self, parts: Iterator[str], width: int, total: int | None, separator: str = ", ") -> str:
        """As many parts as fit; what is left of `total` is said (None: there may be more)."""
        taken: list[str] = []
        room = width - 14
        for part in parts:
            room -= len(part.encode()) + len(separator)
            if taken and room < 0:
                break
            taken.append(part)
            if self.spent() or room < 0:
                break
        else:
            if total is None:
                return separator.join(taken)
        if len(taken) == total:
            return separator.join(taken)
        left = "" if total is None else f" {total - len(taken):,} more"
        return separator.join(taken) + (separator if taken else "") + "…" + left

    def block(self, value: Any, width: int, name: str = "") -> Generator[str, None, None]:
        """Lines about a value, the first as `line`; read until bytes or time are spent."""
        kind, family = self._of(value)
        secret = bool(name) and name_strength(name) >= (1 if type(value) is str else 2)
        if family.block is None or (secret and family.group not in (Group.OBJECTS, Group.FUNCTIONS)):
            yield self.line(value, width, name)
            return
        self._path.append(id(value))
        try:
            for line in family.block(value, self, width):
                yield one_line(mask(line))
                if self.spent():
                    yield "(time is up)"
                    return
        except Exception as problem:  # noqa: BLE001 - as in `line`
            yield f"{self.short(value)} ({kind.module}; no further preview: {type(problem).__name__})"
        finally:
            self._path.pop()
