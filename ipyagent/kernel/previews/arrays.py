"""Arrays: type, shape, a few elements. A memory-mapped array is not read beyond its first elements;
statistics are taken of arrays in memory alone, from a sample when they are large."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

from ipyagent.kernel.previews._kind import Kind
from ipyagent.kernel.previews._look import Family, Group, Look, clip
from ipyagent.kernel.previews.pandas_tables import dtype_word

EXACT = 1_000_000


def _is_array(kind: Kind) -> bool:
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
        kind = Kind(type(value))
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


def short(value: Any, kind: Kind) -> str:
    dtype = _get(value, "dtype")
    return f"{kind.name} {'struct' if dtype.names else dtype_word(dtype)} {_size(value)}"


def _head(value: Any, look: Look) -> str:
    kind = look.kind(value)
    text = f"{kind.name} {_dtype(value)} {_size(value)}"
    return text + (" memory-mapped, not read" if mapped(value) else "")


def _first(value: Any, count: int) -> list[Any]:
    plain = plain_array(value)
    if not plain.size:
        return []
    if plain.ndim == 0:
        return [plain.item()]
    return list(plain[(0,) * (plain.ndim - 1)][:count].tolist())


def line(value: Any, look: Look, width: int) -> str:
    head = _head(value, look)
    cells = (look.cell(cell, 40) for cell in _first(value, 3 if mapped(value) else 12))
    return f"{head}: {look.items(cells, width - len(head.encode()) - 2, int(_get(value, 'size')) or None)}"


def block(value: Any, look: Look, width: int) -> Iterator[str]:
    yield f"{_head(value, look)}, {_get(value, 'nbytes'):,} bytes"
    plain = plain_array(value)
    in_file = mapped(value)
    if plain.size and plain.dtype.kind in "iufb" and not in_file and not look.spent(0.5):
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
        flat = plain[(0,) * (plain.ndim - 2)]
        for row in range(min(1 if in_file else 4, flat.shape[0])):
            cells = (look.cell(cell, 30) for cell in flat[row][: 3 if in_file else 10].tolist())
            yield f"  [{row}] {look.items(cells, 200, flat.shape[1])}"
    else:
        cells = (look.cell(cell, 60) for cell in _first(value, 3 if in_file else 30))
        yield "  " + look.items(cells, width // 2, plain.size or None)


def _is_sparse(kind: Kind) -> bool:
    return (
        kind.genuine("scipy") and kind.module.startswith("scipy.sparse") and kind.name.endswith(("_matrix", "_array"))
    )


def _sparse(value: Any, kind: Kind) -> str:
    return f"{kind.name} {dtype_word(value.dtype)} {'x'.join(map(str, value.shape))}"


def _sparse_line(value: Any, look: Look, width: int) -> str:
    kind = look.kind(value)
    # a list-of-lists matrix counts its entries row by row
    stored = "" if kind.name.startswith("lil") else f", {value.nnz:,} stored"
    return f"{_sparse(value, kind)} sparse{stored}"


def _is_tensor(kind: Kind) -> bool:
    return kind.genuine("torch", "tensorflow", "jax", "jaxlib", "mxnet", "cupy", "paddle") and any(
        "Tensor" in base.__name__ or "Array" in base.__name__ or base.__name__ == "ndarray" for base in kind.mro
    )


def _tensor_line(value: Any, look: Look, width: int) -> str:
    # values may be on a device: reading them would wait for it
    words = [f"{look.kind(value).top} {_tensor_short(value, look.kind(value))}"]
    if (device := getattr(value, "device", None)) is not None:
        words.append(f"on {clip(str(device), 40)}")
    if getattr(value, "requires_grad", False) is True:
        words.append("requires grad")
    return ", ".join(words)


def _tensor_short(value: Any, kind: Kind) -> str:
    dtype = clip(str(getattr(value, "dtype", "")).rpartition(".")[2], 40)
    return f"{kind.name} {dtype} {'x'.join(str(int(n)) for n in tuple(value.shape))}"


def _labelled_line(value: Any, look: Look, width: int) -> str:
    sizes = ", ".join(f"{look.label(name, 30)} {size}" for name, size in list(value.sizes.items())[:10])
    return f"xarray {look.kind(value).name} ({sizes}), values not read"


FAMILIES = (
    Family("arrays", Group.ARRAYS, _is_array, short, line, block, 15),
    Family("sparse matrices", Group.ARRAYS, _is_sparse, _sparse, _sparse_line, None, 15),
    Family("tensors", Group.ARRAYS, _is_tensor, _tensor_short, _tensor_line, None, 15),
    Family(
        "labelled arrays", Group.ARRAYS, lambda kind: kind.genuine("xarray") and kind.name in ("Dataset", "DataArray"),
        lambda value, kind: f"xarray {kind.name}", _labelled_line, None, 15,
    ),
)
