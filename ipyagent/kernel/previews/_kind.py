"""Facts about a value's type and state, read below the level at which a class can answer for itself:
no `isinstance` (`__class__` may lie), no `==` between classes (metaclasses), no `getattr`."""

from __future__ import annotations

import sys
import types
from typing import Any

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
