"""A number for what a variable holds, so that a change in place is noticed: contents of plain values, of tables and of
arrays, all of them when they are small and a regular sample when not. No code of the user runs. What cannot be read
so has no fingerprint, and nobody may say that it is unchanged."""

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
from typing import Any

from ipyagent.kernel.previews import MISSING, PreviewContext, TypeInfo
from ipyagent.kernel.previews._kind import class_module, instance_dict, slots
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


class _Unreadable(Exception):
    """Something in it cannot be read without running code of the user."""


def fingerprint(value: Any, look: PreviewContext) -> int | None:
    """The number; None for what cannot be read, and when the look's time is over."""
    if look.spent(0.8):
        return None
    try:
        return _Reader(look).of(value, 0)
    except _Unreadable:
        return None
    except Exception:  # noqa: BLE001 - a broken object of a library is one that cannot be read
        return None


class _Reader:
    def __init__(self, look: PreviewContext) -> None:
        self._look = look
        self._left = MOST_NODES
        self._path: set[int] = set()

    def of(self, value: Any, depth: int) -> int:
        cls = type(value)
        if cls is str:
            return _text(value)
        if value is None or cls in (bool, int, float, complex, bytes):
            return hash((cls.__name__, value if value == value else "nan"))
        kind = TypeInfo(cls)
        if any(cls is known for known in _CONTAINERS):
            return self._container(value, depth)
        if kind.is_library("numpy", "ndarray"):
            return self._array(value)
        if kind.is_library("pandas", "DataFrame"):
            return self._frame(plain_table(value, "DataFrame"))
        if kind.is_library("pandas", "Series"):
            return self._series(plain_table(value, "Series"))
        if kind.genuine("polars") and kind.is_library("polars", "DataFrame", "Series"):
            return self._polars(value)
        if cls is types.FunctionType:
            return self._function(value)
        if kind.exactly(datetime.datetime, datetime.time):
            return hash(value.replace(tzinfo=None))  # a time zone may be the user's own code
        if kind.exactly(*_HASHED):
            return hash(value)
        if kind.genuine("pandas", "numpy") and kind.is_library("pandas", "Timestamp", "Timedelta", "Period"):
            return hash(value)
        if kind.is_library("numpy", "generic") and kind.genuine("numpy"):
            return hash((kind.name, value.tobytes()))
        if all(class_module(base) == "__main__" for base in kind.mro[:-1]):
            return self._object(value, kind, depth)
        raise _Unreadable

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
        array = plain_array(value)
        size = int(array.size)
        if array.dtype.kind in "OV":
            if array.dtype.kind == "V":
                raise _Unreadable
            flat = array.reshape(-1)[:: max(1, -(-size // MOST_CELLS))].tolist()
            return hash((array.shape, tuple(self._cell(cell) for cell in flat)))
        return hash((array.shape, str(array.dtype), _crc(array)))

    def _frame(self, frame: Any) -> int:
        if frame is MISSING:
            raise _Unreadable
        columns = len(frame.columns)
        if columns > 2_000:
            raise _Unreadable
        labels = tuple(self._cell(label) for label in list(frame.columns))
        parts = tuple(self._column(frame.iloc[:, at]) for at in range(columns))
        return hash((frame.shape, labels, parts, self._index(frame.index)))

    def _series(self, series: Any) -> int:
        if series is MISSING:
            raise _Unreadable
        return hash((len(series), self._cell(series.name), self._column(series), self._index(series.index)))

    def _index(self, index: Any) -> int:
        kind = TypeInfo(type(index))
        if kind.name == "RangeIndex":
            return hash((index.start, index.stop, index.step))
        return hash(tuple(self._cell(cell) for cell in index[:: max(1, -(-len(index) // 2_000))].tolist()))

    def _column(self, column: Any) -> int:
        if self._look.spent(0.8) or not is_readable(column):
            raise _Unreadable
        dtype = column.dtype
        if TypeInfo(type(dtype)).top == "numpy" and getattr(dtype, "kind", "O") in "biufcmM":
            return hash((str(dtype), _crc(column.to_numpy())))
        rows = len(column)
        if hasattr(dtype, "categories"):
            codes = column.cat.codes.to_numpy()
            return hash((_crc(codes), tuple(self._cell(cell) for cell in list(dtype.categories)[:1_000])))
        part = column.iloc[:: max(1, -(-rows // MOST_CELLS))]
        return hash((str(dtype), rows, tuple(self._cell(cell) for cell in part.tolist())))

    def _polars(self, value: Any) -> int:
        frame = value.to_frame() if hasattr(value, "to_frame") else value
        part = frame.gather_every(max(1, -(-frame.height // 200_000)))
        hashes = part.hash_rows(seed=0)
        names = tuple(frame.columns)
        kinds = str(list(frame.schema.values()))
        return hash((frame.height, names, kinds, tuple(hashes[:2_000].to_list()), hashes.sum()))

    def _function(self, value: Any) -> int:
        code = value.__code__
        consts = tuple(
            self._code(part) if type(part) is types.CodeType else hash(part) if _plain_const(part) else 0
            for part in code.co_consts
        )
        return hash((code.co_code, code.co_names, consts, value.__name__, len(value.__defaults__ or ())))

    def _code(self, code: types.CodeType) -> int:
        return hash((code.co_code, code.co_names, tuple(hash(part) for part in code.co_consts if _plain_const(part))))

    def _cell(self, cell: Any) -> int:
        """One cell; of an object that cannot be read, its type alone: such a cell is not compared."""
        cls = type(cell)
        if cls is str:
            return _text(cell)
        if cls is float or cls is int or cls is bool or cell is None:
            return hash((cls.__name__, cell if cell == cell else "nan"))
        try:
            return self.of(cell, DEPTH - 1)
        except _Unreadable:
            return hash(cls.__name__) if TypeInfo(cls).top in ("pandas", "numpy", "builtins") else self._stop()

    def _stop(self) -> int:
        raise _Unreadable


def _plain_const(part: Any) -> bool:
    return part is None or type(part) in (str, int, float, bool, bytes, complex)


def _text(text: str) -> int:
    return hash(text) if len(text) < 1_000_000 else hash((len(text), text[:50_000], text[-50_000:]))


def _crc(array: Any) -> int:
    """CRC-32 of an array's elements in their order, or of a sample of them."""
    numpy = sys.modules["numpy"]
    size = max(1, int(array.nbytes))
    step = -(-size // MOST_BYTES)
    flat = array.reshape(-1) if array.flags.c_contiguous or step == 1 else array.ravel(order="K")
    part = flat[::step] if step > 1 else flat
    return zlib.crc32(numpy.ascontiguousarray(part).view(numpy.uint8).data)
