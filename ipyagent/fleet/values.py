"""What a task gives back beside its words: a variable, as plain JSON values that any machine can read again."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import msgspec

MOST_CHARS = 10_000_000
"""Of one value as JSON."""


def plain_value(namespace: Mapping[str, Any], name: str) -> tuple[Any, str]:
    """The variable as dicts, lists, numbers and texts, and what is wrong ("" for nothing). A table becomes a
    list of dicts, an array nested lists, numbers of NumPy Python's own, NaN None."""
    if not name:
        return None, ""
    if name not in namespace:
        return None, f"no variable {name!r} was left; say in the prompt that the result goes into {name}"
    try:
        text = json.dumps(namespace[name], default=_plain, ensure_ascii=False)
    except (TypeError, ValueError, RecursionError, AttributeError) as problem:
        return None, f"{name} cannot be given back as plain values: {problem}"
    if len(text) > MOST_CHARS:
        return None, f"{name} is too large to give back ({len(text):,} characters of JSON); write it to a file"
    return json.loads(text, parse_constant=lambda _: None), ""  # NaN and the infinities are no JSON


def _plain(value: Any) -> Any:
    """What JSON does not know, in words that it knows."""
    columns = getattr(value, "columns", None)
    if columns is not None and hasattr(value, "to_dicts"):  # polars
        return value.to_dicts()
    if columns is not None and hasattr(value, "to_dict"):  # pandas
        return value.to_dict("records")
    for method in ("to_dict", "tolist", "isoformat"):
        if hasattr(value, method):
            return getattr(value, method)()
    if isinstance(value, (set, frozenset, tuple)):
        return list(value)
    if isinstance(value, bytes | bytearray):
        raise TypeError("bytes are no plain value")
    try:
        return msgspec.to_builtins(value)
    except TypeError:
        return str(value)
