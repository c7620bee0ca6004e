"""Classes whose every method records its call, for tests that nothing of the user's is called."""

import datetime
from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np


class Spy:
    """Records every call that reaches it."""

    calls: ClassVar[list[str]] = []


def spying(name: str, *bases: type) -> type:
    """A class whose every special method and property records its call and raises."""

    def record(method: str) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            Spy.calls.append(method)
            raise RuntimeError(method)

        return call

    specials = [
        "__repr__", "__str__", "__len__", "__iter__", "__next__", "__bool__", "__eq__", "__ne__", "__lt__",
        "__hash__", "__getattr__", "__getattribute__", "__getitem__", "__contains__", "__dir__", "__format__",
        "__sizeof__", "__array__", "__dataframe__", "__int__", "__float__", "__index__", "__length_hint__",
        "__reversed__", "__call__", "__enter__", "keys", "items", "values", "head", "shape", "dtypes",
        "columns", "_repr_html_", "_repr_mimebundle_", "_ipython_display_",
    ]
    body: dict[str, Any] = {special: record(special) for special in specials}
    body["__class__"] = property(record("__class__"))
    body["attribute"] = property(record("property"))
    return type(name, bases, body)


class Meta(type):
    """A metaclass that lies and records."""

    def __getattribute__(cls, name: str) -> Any:
        Spy.calls.append(f"meta {name}")
        return type.__getattribute__(cls, name)

    def __eq__(cls, other: object) -> bool:
        Spy.calls.append("meta ==")
        return True

    def __hash__(cls) -> int:
        Spy.calls.append("meta hash")
        return 1

    def __instancecheck__(cls, instance: object) -> bool:
        Spy.calls.append("meta isinstance")
        return True

    def __repr__(cls) -> str:
        Spy.calls.append("meta repr")
        return "lie"

    def mro(cls) -> list[type]:
        return type.mro(cls)

    def __len__(cls) -> int:
        Spy.calls.append("meta len")
        return 1


class Tricky(metaclass=Meta):
    """Made by the metaclass."""

    def __init__(self) -> None:
        self.inner = 7


def make(cls: type, *args: Any) -> Any:
    """An instance, made without the class's own methods."""
    for base in (list, dict, set, tuple, str, int, float, bytes, datetime.datetime, np.ndarray):
        if issubclass_plainly(cls, (base,)):
            made = base.__new__(cls, *args)
            if base in (list, dict, set):
                base.__init__(made, *args)
            return made
    return object.__new__(cls)


HOSTILE: dict[str, tuple[type, tuple[Any, ...]]] = {
    "plain": (spying("Plain"), ()),
    "list": (spying("MyList", list), ([1, 2],)),
    "dict": (spying("MyDict", dict), ({"a": 1},)),
    "set": (spying("MySet", set), ({1},)),
    "tuple": (spying("MyTuple", tuple), ((1, 2),)),
    "str": (spying("MyStr", str), ("text",)),
    "int": (spying("MyInt", int), (7,)),
    "float": (spying("MyFloat", float), (7.5,)),
    "bytes": (spying("MyBytes", bytes), (b"x",)),
    "datetime": (spying("MyTime", datetime.datetime), (2024, 1, 2)),
    "array": (spying("MyArray", np.ndarray), ((2,),)),
    "metaclass": (Tricky, ()),
}


def issubclass_plainly(cls: type, bases: tuple[type, ...]) -> bool:
    return any(one is base for one in type.__dict__["__mro__"].__get__(cls) for base in bases)
