"""A number for what a variable holds, so that a change in place is noticed: contents of plain values, of tables and of
arrays, all of them when they are small and a regular sample when not. No code of the user runs. What cannot be read so
has no fingerprint, and nobody may say that it is unchanged."""

from __future__ import annotations

import collections
import datetime
import decimal
import fractions
import pathlib
import sys
import types
import uuid
import zlib
from collections.abc import Callable
from typing import Any

from ipyagent.kernel.previews import MISSING, TypeInfo
from ipyagent.kernel.previews._context import class_module, instance_dict, slots
from ipyagent.kernel.previews.arrays import mapped, plain_array
from ipyagent.kernel.previews.pandas_tables import is_readable, plain_table

MOST_BYTES = 4_000_000
"""Bytes of an array that are read whole; of a larger one every so many elements."""
MOST_CELLS = 20_000
"""Cells of a column of objects that are read."""
MOST_NODES = 5_000
"""Elements of containers that are read, those of nested ones included."""
DEPTH = 4
_CONTAINERS = (list, tuple, dict, set, frozenset, collections.deque, collections.Counter, collections.OrderedDict)
_HASHED = (
    types.BuiltinFunctionType, range, datetime.date, datetime.timedelta, decimal.Decimal, fractions.Fraction, uuid.UUID,
    pathlib.PosixPath, pathlib.WindowsPath, pathlib.PurePosixPath, pathlib.PureWindowsPath,
)


_PLAIN = (type(None), bool, int, float, complex, bytes, str)
_STORED_AS_NUMBERS = ("DatetimeTZDtype", "PeriodDtype", "IntervalDtype")
"""Types of pandas whose own hashing reads the stored numbers, and makes no object of each."""


class _Unreadable(Exception):
    """Something in it cannot be read without running code of the user."""


class Late(Exception):
    """It takes longer than it may."""


def fingerprint(value: Any, late: Callable[[], bool]) -> int | None:
    """The number; None for what cannot be read. Raises Late as soon as `late()`."""
    try:
        return _Reader(late).of(value, 0)
    except _Unreadable:
        return None
    except Late:
        raise
    except Exception:  # noqa: BLE001 - a broken object of a library is one that cannot be read
        return None


class _Reader:
    def __init__(self, late: Callable[[], bool]) -> None:
        self._late = late
        self._left = MOST_NODES
        self._path: set[int] = set()
        self._ways: dict[int, tuple[type, Callable[[Any, int], int]]] = {}
        """How values of a class are read, by its id: hashing or comparing a class may run its metaclass."""

    def of(self, value: Any, depth: int) -> int:
        cls = type(value)
        if cls is str:
            return hash(value if len(value) < 1_000_000 else (len(value), value[:50_000], value[-50_000:]))
        known = self._ways.get(id(cls))
        if known is None:
            known = self._ways[id(cls)] = (cls, self._way(cls))
        return known[1](value, depth)

    def _way(self, cls: type) -> Callable[[Any, int], int]:
        kind = TypeInfo(cls)
        if kind.exactly(*_PLAIN):
            return lambda value, depth: hash((kind.name, value if value == value else "nan"))
        if kind.exactly(*_CONTAINERS):
            return self._container
        if kind.is_library("numpy", "ndarray"):
            return lambda value, depth: self._array(value)
        if kind.is_library("pandas", "DataFrame"):
            return lambda value, depth: self._frame(plain_table(value, "DataFrame"))
        if kind.is_library("pandas", "Series"):
            return lambda value, depth: self._series(plain_table(value, "Series"))
        if kind.genuine("pandas") and kind.is_library("pandas", "Index"):
            return lambda value, depth: self._index(value)
        if kind.genuine("polars") and kind.is_library("polars", "DataFrame", "Series"):
            return lambda value, depth: self._polars(value)
        if cls is types.FunctionType:
            return lambda value, depth: hash(
                (self._code(value.__code__), value.__name__, len(value.__defaults__ or ()))
            )
        if kind.exactly(datetime.datetime, datetime.time):
            return lambda value, depth: hash(value.replace(tzinfo=None))  # a time zone may be the user's own code
        if kind.genuine("pandas") and kind.is_library("pandas", "Timestamp"):
            return lambda value, depth: hash((kind.name, value.asm8.tobytes()))
        if kind.exactly(*_HASHED) or (kind.genuine("pandas") and kind.is_library("pandas", "Timedelta", "Period")):
            return lambda value, depth: hash(value)
        if kind.is_library("numpy", "generic") and kind.genuine("numpy"):
            return lambda value, depth: hash((kind.name, value.tobytes()))
        if all(class_module(base) == "__main__" for base in kind.mro[:-1]):
            return lambda value, depth: self._object(value, kind, depth)
        return _unreadable

    def _object(self, value: Any, kind: TypeInfo, depth: int) -> int:
        """What an object of a class of the user's keeps in its dictionary and slots."""
        if depth > DEPTH or id(value) in self._path:
            raise _Unreadable
        self._path.add(id(value))
        kept = {**slots(value), **instance_dict(value)}
        self._left -= len(kept)
        if self._left < 0:
            raise _Unreadable
        made = hash((kind.name, tuple((hash(name), self.of(held, depth + 1)) for name, held in kept.items())))
        self._path.discard(id(value))
        return made

    def _container(self, value: Any, depth: int) -> int:
        if depth > DEPTH or id(value) in self._path:
            raise _Unreadable
        self._check()
        self._path.add(id(value))
        cls = next(known for known in _CONTAINERS if type(value) is known)
        parts: list[int] = []
        items: Any = dict.items(value) if issubclass(cls, dict) else value
        for item in items:
            self._left -= 1
            if self._left < 0:
                break
            if issubclass(cls, dict):
                parts.append(hash((self.of(item[0], depth + 1), self.of(item[1], depth + 1))))
            else:
                parts.append(self.of(item, depth + 1))
        if self._left < 0 and cls is list:  # an element added at the end of a long list, or changed there
            parts += [self.of(item, DEPTH) for item in value[-20:] if type(item) in (str, int, float, bool)]
        self._path.discard(id(value))
        ordered = cls not in (set, frozenset)
        return hash((cls.__name__, len(value), tuple(parts) if ordered else sum(parts)))

    def _array(self, value: Any) -> int:
        if mapped(value):
            raise _Unreadable
        return self._plain(plain_array(value))

    def _plain(self, array: Any) -> int:
        size = int(array.size)
        if array.dtype.kind == "V":
            raise _Unreadable
        if array.dtype.kind == "O":
            return hash((array.shape, self._cells(array.reshape(-1)[:: max(1, -(-size // MOST_CELLS))].tolist())))
        return hash((array.shape, array.dtype.str, _crc(array)))

    def _frame(self, frame: Any) -> int:
        if frame is MISSING:
            raise _Unreadable
        columns = len(frame.columns)
        if columns > 2_000:
            raise _Unreadable
        each = getattr(frame, "_iter_column_arrays", None)  # a tenth of the time that `iloc` takes
        arrays = each() if each else (frame.iloc[:, at].array for at in range(columns))
        return hash((self._index(frame.columns), self._index(frame.index), *map(self._values, arrays)))

    def _series(self, series: Any) -> int:
        if series is MISSING:
            raise _Unreadable
        return hash((self._cell(series.name), self._values(series.array), self._index(series.index)))

    def _index(self, index: Any) -> int:
        kind = TypeInfo(type(index))
        if not kind.genuine("pandas"):
            raise _Unreadable
        names = self._cells(list(index.names))
        if kind.name == "RangeIndex":
            return hash((names, index.start, index.stop, index.step))
        if kind.name == "MultiIndex":
            return hash((names, *map(self._values, index.codes), *map(self._index, index.levels)))
        return hash((names, self._values(index.array)))

    def _values(self, values: Any) -> int:
        """An array of numpy, or one of pandas that a column or an index has."""
        self._check()
        dtype = values.dtype
        if TypeInfo(type(dtype)).top == "numpy" or TypeInfo(type(values)).name == "NumpyExtensionArray":
            return self._plain(values if type(values) is sys.modules["numpy"].ndarray else values.to_numpy())
        if not is_readable(values):
            raise _Unreadable
        if hasattr(dtype, "categories"):
            return hash((self._values(values.codes), self._index(values.categories), values.ordered))
        rows = len(values)
        numbers = dtype.kind in "biuf" or TypeInfo(type(dtype)).name in _STORED_AS_NUMBERS
        part = values[:: max(1, -(-rows // (MOST_BYTES // 8 if numbers else MOST_CELLS)))]
        if numbers:
            return hash((str(dtype), rows, _crc(sys.modules["pandas"].util.hash_array(part))))
        if dtype.kind in "mM":  # of Arrow
            part = part.__arrow_array__().cast("int64").to_pylist()
            return hash((str(dtype), rows, tuple(part)))
        return hash((str(dtype), rows, self._cells(part.tolist())))

    def _polars(self, value: Any) -> int:
        frame = value.to_frame() if hasattr(value, "to_frame") else value
        part = frame.gather_every(max(1, -(-frame.height // 200_000)))
        hashes = part.hash_rows(seed=0)
        names = tuple(frame.columns)
        kinds = str(list(frame.schema.values()))
        return hash((frame.height, names, kinds, tuple(hashes[:2_000].to_list()), hashes.sum()))

    def _code(self, code: types.CodeType, depth: int = 0) -> int:
        consts = tuple(
            hash(part) if type(part) in _PLAIN else self._code(part, depth + 1)
            for part in code.co_consts
            if type(part) in _PLAIN or (type(part) is types.CodeType and depth < DEPTH)
        )
        return hash((code.co_code, code.co_names, consts))

    def _check(self) -> None:
        if self._late():
            raise Late

    def _cells(self, cells: list[Any]) -> tuple[int, ...]:
        made: list[int] = []
        for at in range(0, len(cells), 500):
            self._check()
            made += map(self._cell, cells[at : at + 500])
        return tuple(made)

    def _cell(self, cell: Any) -> int:
        """One cell; of an object that cannot be read, its type alone: such a cell is not compared."""
        try:
            return self.of(cell, DEPTH - 1)
        except _Unreadable:
            if TypeInfo(cls := type(cell)).top not in ("pandas", "numpy", "builtins"):
                raise
            return hash(cls.__name__)


def _unreadable(value: Any, depth: int) -> int:
    raise _Unreadable


def _crc(array: Any) -> int:
    """CRC-32 of an array's elements in their order, or of a sample of them."""
    numpy = sys.modules["numpy"]
    size = max(1, int(array.nbytes))
    step = -(-size // MOST_BYTES)
    flat = array.reshape(-1) if array.flags.c_contiguous or step == 1 else array.ravel(order="K")
    part = flat[::step] if step > 1 else flat
    return zlib.crc32(numpy.ascontiguousarray(part).view(numpy.uint8).data)
