"""Arrays: type, shape, a few elements. A memory-mapped array is not read beyond its first elements;
statistics are taken of arrays in memory alone, from a sample when they are large."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

from ipyagent.kernel.previews._context import (
    MISSING,
    Group,
    PreviewContext,
    PreviewHandler,
    TypeInfo,
    class_name,
    clip,
    facts,
    instance_dict,
    library_name,
    of_library,
    pairs,
    slots,
    stored,
)
from ipyagent.kernel.previews.pandas_tables import dtype_word

EXACT = 1_000_000


def _is_array(kind: TypeInfo) -> bool:
    return kind.is_library("numpy", "ndarray")


def _get(value: Any, name: str) -> Any:
    # the getter of ndarray itself: a subclass may have replaced it
    return sys.modules["numpy"].ndarray.__dict__[name].__get__(value)


def plain_array(value: Any) -> Any:
    numpy = sys.modules["numpy"]
    return value if type(value) is numpy.ndarray else numpy.ndarray.view(value, numpy.ndarray)


def mapped(value: Any) -> bool:
    """Whether the memory belongs to a file."""
    for _ in range(20):
        kind = TypeInfo(type(value))
        if (kind.name, kind.top) in (("memmap", "numpy"), ("mmap", "mmap")):
            return True
        if not _is_array(kind):
            return False
        value = _get(value, "base")
    return False


def _size(value: Any) -> str:
    return "x".join(str(n) for n in _get(value, "shape")) or "scalar"


def _dtype(value: Any) -> str:
    dtype = _get(value, "dtype")
    if dtype.names:
        fields = ", ".join(f"{name} {dtype_word(dtype[name])}" for name in dtype.names[:20])
        return f"struct({clip(fields, 300)})"
    return dtype_word(dtype)


def short(value: Any, kind: TypeInfo) -> str:
    dtype = _get(value, "dtype")
    return f"{kind.name} {'struct' if dtype.names else dtype_word(dtype)} {_size(value)}"


def _head(value: Any, look: PreviewContext) -> str:
    kind = look.kind(value)
    text = f"{kind.name} {_dtype(value)} {_size(value)}"
    unit = instance_dict(value).get("_unit", MISSING)
    if kind.genuine("astropy") and look.kind(unit).genuine("astropy"):
        text += f" {unit}"
    if (mask := _mask(value)) is not None:
        text += f", {int(mask.sum()):,} masked" if mask.size <= 10 * EXACT else ", masked"
    return text + (" memory-mapped, not read" if mapped(value) else "")


def _mask(value: Any) -> Any:
    """Of a masked array the array of what is masked; None for any other."""
    mask = instance_dict(value).get("_mask", MISSING)
    plain = TypeInfo(type(value)).is_library("numpy.ma", "MaskedArray") and type(mask) is sys.modules["numpy"].ndarray
    return mask if plain and mask.dtype == bool and mask.shape == _get(value, "shape") else None


def _row(value: Any, at: tuple[int, ...], count: int) -> list[Any]:
    """The first cells of one row; what is masked as _MASKED."""
    cells, mask = list(plain_array(value)[at][:count].tolist()), _mask(value)
    if mask is None:
        return cells
    return [_MASKED if hidden else cell for cell, hidden in zip(cells, mask[at][:count].tolist(), strict=True)]


_MASKED: Any = object()
"""Stands for a masked cell."""


def _cell(look: PreviewContext, cell: Any, width: int) -> str:
    return "--" if cell is _MASKED else look.cell(cell, width)


def _first(value: Any, count: int) -> list[Any]:
    plain = plain_array(value)
    if not plain.size:
        return []
    if plain.ndim == 0:
        return [plain.item()]
    return _row(value, (0,) * (plain.ndim - 1), count)


def line(value: Any, look: PreviewContext, width: int) -> str:
    head = _head(value, look)
    cells = (_cell(look, cell, 40) for cell in _first(value, 3 if mapped(value) else 12))
    return f"{head}: {look.items(cells, width - len(head.encode()) - 2, int(_get(value, 'size')) or None)}"


def block(value: Any, look: PreviewContext, width: int) -> Iterator[str]:
    yield f"{_head(value, look)}, {_get(value, 'nbytes'):,} bytes"
    plain = plain_array(value)
    in_file = mapped(value)
    if plain.size and plain.dtype.kind in "iufb" and not in_file and _mask(value) is None and not look.spent(0.5):
        numpy = sys.modules["numpy"]
        whole = plain.size <= EXACT
        part = plain
        for _ in range(0 if whole else 64):
            # every other entry of the longest axis until it is small: a view, no copy
            if part.size <= EXACT // 10:
                break
            axis = max(range(part.ndim), key=lambda n: part.shape[n])
            part = part[tuple(slice(None, None, 2 if n == axis else 1) for n in range(part.ndim))]
        about = "" if whole else "~"
        words = ""
        if plain.dtype.kind == "f":
            missing = int(numpy.isnan(part).sum())
            words = f", {about}{100 * missing / part.size:.2g}% NaN" if missing else ""
            if missing == part.size:
                yield f"  {about}all NaN"
                return
            low, high, mean = numpy.nanmin(part), numpy.nanmax(part), numpy.nanmean(part, dtype="float64")
        else:
            low, high, mean = part.min(), part.max(), part.mean(dtype="float64")
        yield f"  {about}min {low.item():.6g}, max {high.item():.6g}, mean {mean.item():.6g}{words}"
    if plain.ndim >= 2 and plain.size:
        outer = (0,) * (plain.ndim - 2)
        for row in range(min(1 if in_file else 4, plain.shape[-2])):
            cells = (_cell(look, cell, 30) for cell in _row(value, (*outer, row), 3 if in_file else 10))
            yield f"  [{row}] {look.items(cells, 200, plain.shape[-1])}"
    else:
        cells = (_cell(look, cell, 60) for cell in _first(value, 3 if in_file else 30))
        yield "  " + look.items(cells, width // 2, plain.size or None)


def _is_sparse(kind: TypeInfo) -> bool:
    return (
        kind.genuine("scipy") and kind.module.startswith("scipy.sparse") and kind.name.endswith(("_matrix", "_array"))
    )


def _sparse(value: Any, kind: TypeInfo) -> str:
    return f"{kind.name} {dtype_word(value.dtype)} {'x'.join(map(str, value.shape))}"


def _sparse_line(value: Any, look: PreviewContext, width: int) -> str:
    kind = look.kind(value)
    # a list-of-lists matrix counts its entries row by row
    stored = "" if kind.name.startswith("lil") else f", {value.nnz:,} stored"
    return f"{_sparse(value, kind)} sparse{stored}"


def _is_tensor(kind: TypeInfo) -> bool:
    return kind.genuine("torch", "tensorflow", "jax", "jaxlib", "mxnet", "cupy", "paddle") and any(
        "Tensor" in class_name(base) or "Array" in class_name(base) or class_name(base) == "ndarray"
        for base in kind.mro
    )


def _tensor_line(value: Any, look: PreviewContext, width: int) -> str:
    # values may be on a device: reading them would wait for it
    words = [f"{look.kind(value).top} {_tensor_short(value, look.kind(value))}"]
    if (device := getattr(value, "device", None)) is not None:
        words.append(f"on {clip(str(device), 40)}")
    if getattr(value, "requires_grad", False) is True:
        words.append("requires grad")
    return ", ".join(words)


def _tensor_short(value: Any, kind: TypeInfo) -> str:
    dtype = clip(str(getattr(value, "dtype", "")).rpartition(".")[2], 40)
    return f"{kind.name} {dtype} {'x'.join(str(int(n)) for n in tuple(value.shape))}"


def _is_labelled(kind: TypeInfo) -> bool:
    return kind.genuine("xarray") and kind.name in ("Dataset", "DataArray")


def _labelled_line(value: Any, look: PreviewContext, width: int) -> str:
    own = slots(value)
    kind = look.kind(value)
    one = own.get("_variable")
    name = own.get("_name")
    sizes = own.get("_dims") if one is None else _sizes(one)
    named = f" {look.label(name, 30)}" if one is not None and name is not None else ""
    word = "" if one is None else f" {_variable_dtype(one)}"
    told = ", ".join(f"{look.label(key, 30)} {size}" for key, size in list((sizes or {}).items())[:10])
    text = f"xarray {kind.name}{named}{word} ({told})"
    known = own.get("_variables") if one is None else own.get("_coords")
    coordinates = own.get("_coord_names") if one is None else set(known or ())
    parts: dict[bool, list[str]] = {False: [], True: []}
    for key, variable in list((known or {}).items())[:30]:
        axes = stored(variable, "_dims")
        over = ", ".join(look.label(axis, 20) for axis in axes) if type(axes) is tuple else ""
        is_axis = key in (coordinates or ())
        parts[is_axis].append(
            f"{look.label(key, 30)} {_variable_dtype(variable)}" + ("" if is_axis and over == key else f" ({over})")
        )
    for head, found in (("", parts[False]), ("coords ", parts[True])):
        text += f"; {head}{look.items(iter(found), 90, len(found))}" if found else ""
    attributes = own.get("_attrs") if one is None else stored(one, "_attrs")
    if type(attributes) is dict and attributes:
        shown = (f"{look.label(key, 30)} {look.line(part, 40, str(key))}" for key, part in attributes.items())
        text += f"; attrs {look.items(shown, 80, len(attributes))}"
    data = MISSING if one is None else stored(one, "_data")
    if one is not None and _is_array(TypeInfo(type(data))) and not mapped(data) and len(text) + 30 < width:
        cells = (look.cell(cell, 20) for cell in _first(data, 8))
        text += f"; values {look.items(cells, 60, int(_get(data, 'size')) or None)}"
    return text


def _sizes(variable: Any) -> dict[Any, int]:
    axes, shape = stored(variable, "_dims"), _data_attribute(variable, "shape")
    return dict(zip(axes, shape, strict=False)) if type(axes) is tuple and type(shape) is tuple else {}


def _data_attribute(variable: Any, name: str) -> Any:
    """`shape` or `dtype` of what holds a variable's values, which are not read."""
    data = stored(variable, "_data")
    kind = TypeInfo(type(data))
    if _is_array(kind):
        return _get(data, name)
    return getattr(data, name, MISSING) if kind.genuine("xarray", "dask", "pandas") else MISSING


def _variable_dtype(variable: Any) -> str:
    dtype = _data_attribute(variable, "dtype")
    return "" if dtype is MISSING else dtype_word(dtype)


def _columns_line(value: Any, look: PreviewContext, width: int) -> str:
    """Of a table of astropy its columns."""
    known = list(pairs(stored(value, "columns")).items())
    named = [f"{look.label(name, 30)} {_dtype(column)}" for name, column in known if _is_array(look.kind(column))]
    rows = _get(known[0][1], "shape")[0] if named else 0
    return f"astropy {look.kind(value).name} {rows} x {len(known)}: {look.items(iter(named), 160, len(known))}"


FAMILIES = (
    of_library(
        "astropy tables", facts(_columns_line), "astropy.table", "Table",
        genuine="astropy", group=Group.FRAMES, order=15,
    ),
    PreviewHandler("arrays", Group.ARRAYS, _is_array, short, line, block, 15),
    PreviewHandler("sparse matrices", Group.ARRAYS, _is_sparse, _sparse, _sparse_line, None, 15),
    PreviewHandler("tensors", Group.ARRAYS, _is_tensor, _tensor_short, _tensor_line, None, 15),
    PreviewHandler("labelled arrays", Group.ARRAYS, _is_labelled, library_name, facts(_labelled_line), None, 15),
)
