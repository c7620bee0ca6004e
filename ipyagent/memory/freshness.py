"""What of a memory still holds: the variables, columns, files and functions that it names, looked up now.

Looking never runs the user's code: names are found in dictionaries, columns in tables of known libraries.
Only what can be told is told; a word in backticks that names nothing here may never have been a variable.
"""

from __future__ import annotations

import inspect
import os
import re
import time
import types
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import msgspec

MOST = 12
"""Names of one memory that are looked up."""
MOST_TOLD = 8
FILE_BYTES = 500_000
"""Of a source file that is searched for a function."""
DAY = 86_400

_CODE = re.compile(r"(?<!`)`([^`\n]{1,120})`(?!`)")
_PATH = re.compile(
    r"(?<![\w/.~:-])((?:[.~]{0,2}/)?(?:[\w.@+-]{1,255}/){0,40}[\w.@+-]{1,255}\.(?:csv|tsv|parquet|feather|json|jsonl|xlsx?|txt|md|py|ipynb|sql|"
    r"db|sqlite|ya?ml|toml|pkl|pickle|npy|npz|h5|hdf5|png|zip|gz|html|ini|cfg|log|sh|r))(?![\w/])",
    re.I,
)
_NAME = re.compile(r"[^\W\d]\w*")
_CALL = re.compile(r"((?:[^\W\d]\w*\.)*[^\W\d]\w*)\(.*\)")
_DOTTED = re.compile(r"([^\W\d]\w*)\.([^\W\d]\w*)")
_ITEM = re.compile(r"([^\W\d]\w*)\[\s*(['\"])(.+?)\2\s*\]")
_KINDS = {
    "column": r"columns?|fields?|列|カラム|열",
    "function": r"functions?|methods?|def|函数|方法|関数|함수",
    "variable": r"variables?|data ?frames?|tables?|arrays?|lists?|dicts?|series|变量|变数|変数|변수",
}

Kind = Literal["file", "variable", "column", "member", "function"]


class NamedObject(msgspec.Struct, frozen=True):
    """Something that a memory names. `owner` is the table or object it belongs to ("" when none is said);
    `sure`: the memory itself says what kind of thing it is."""

    kind: Kind
    name: str
    owner: str = ""
    sure: bool = True


class StalenessLookup(msgspec.Struct, frozen=True):
    """What the namespace tells of what was named: for each whether it is there (None: cannot be told), and a
    few words on it."""

    found: dict[NamedObject, tuple[bool | None, str]] = {}


def named_in(text: str) -> list[NamedObject]:
    """What a memory names, in order, each once, at most MOST."""
    found: dict[tuple[str, str, str], NamedObject] = {}

    def add(named: NamedObject) -> None:
        key = (named.kind, named.name, named.owner)
        if key not in found or (named.sure and not found[key].sure):
            found[key] = named

    for match in _CODE.finditer(text):
        for named in _coded(match.group(1).strip(), _kind_beside(text, match.start(), match.end())):
            add(named)
    plain = _CODE.sub(" ", text)
    for match in _PATH.finditer(plain):
        add(NamedObject("file", match.group(1)))
    return list(found.values())[:MOST]


def _coded(code: str, kind: str) -> Iterator[NamedObject]:
    """What a piece of code names; `kind` is what the words beside it call it."""
    if _PATH.fullmatch(code) or ("/" in code and re.fullmatch(r"[\w.@+/~-]+", code)):
        yield NamedObject("file", code)
    elif call := _CALL.fullmatch(code):
        owner, _, name = call.group(1).rpartition(".")
        yield NamedObject("function", name, owner)
    elif item := _ITEM.fullmatch(code):
        yield NamedObject("column", item.group(3), item.group(1))
    elif dotted := _DOTTED.fullmatch(code):
        yield NamedObject("member", dotted.group(2), dotted.group(1), sure=kind == "column")
    elif kind == "column":
        yield NamedObject("column", code)
    elif _NAME.fullmatch(code):
        yield NamedObject("function" if kind == "function" else "variable", code, sure=bool(kind))


def _kind_beside(text: str, start: int, end: int) -> str:
    """What the words just before or after a piece of code call it; "" when they do not say."""
    before, after = text[max(0, start - 24) : start].lower(), text[end : end + 16].lower()
    for kind, words in _KINDS.items():
        if re.search(rf"(?:{words})\W{{0,3}}$", before) or re.match(rf"\W{{0,3}}(?:{words})(?![a-z])", after):
            return kind
    return ""


# ---------------------------------------------------------------------- the namespace


def look_up(names: Sequence[NamedObject], namespace: Mapping[str, Any], seconds: float = 0.1) -> StalenessLookup:
    """What the namespace holds of the names. Main thread only; stops after about `seconds` seconds."""
    until = time.monotonic() + seconds
    found: dict[NamedObject, tuple[bool | None, str]] = {}
    tables = {named.owner or named.name for named in names if named.kind != "file"}
    for named in names:
        if time.monotonic() > until:
            break
        if named.kind != "file":
            found[named] = _looked_up(named, namespace, sorted(tables))
    return StalenessLookup(found)


def _looked_up(named: NamedObject, namespace: Mapping[str, Any], tables: Sequence[str]) -> tuple[bool | None, str]:
    if named.kind == "variable" or (named.kind == "function" and not named.owner):
        if named.name in namespace:
            return True, _short(namespace[named.name])
        return (False, "") if named.sure else (None, "")
    if named.owner:
        root = named.owner.partition(".")[0]
        if named.owner != root or root not in namespace:
            return None, root if named.owner == root else ""
        owner = namespace[root]
        return _has(owner, named.name, column=named.kind == "column"), "key" if type(owner) is dict else ""
    owners = [name for name in tables if name in namespace and _columns(namespace[name]) is not None]
    holding = [name for name in owners if _has(namespace[name], named.name, column=True)]
    if holding:
        return True, holding[0]
    return (False, owners[0]) if len(owners) == 1 else (None, "")


def _has(value: Any, name: str, *, column: bool) -> bool | None:
    """Whether an object has a column or a member; None when looking would run its code."""
    columns = _columns(value)
    if columns is not None:
        if name in columns:
            return True
        return not column and inspect.getattr_static(type(value), name, None) is not None
    if type(value) is dict:
        return name in value
    if column:
        return None
    if isinstance(value, types.ModuleType):
        return name in vars(value) or ("__getattr__" in vars(value) and None)
    missing = object()
    if inspect.getattr_static(value, name, missing) is not missing:
        return True
    dynamic = inspect.getattr_static(type(value), "__getattr__", None) is not None
    return None if dynamic else False


def _columns(value: Any) -> frozenset[str] | None:
    """The column names of a table of a known library; None for other objects."""
    kind = type(value)
    library = kind.__module__.partition(".")[0]
    if library not in ("pandas", "polars", "pyarrow", "geopandas") or "Frame" not in kind.__name__ + "Frame" * (
        kind.__name__ == "Table"
    ):
        return None
    if kind.__name__ == "LazyFrame":
        return None  # its columns are found by planning the query
    names = value.column_names if kind.__name__ == "Table" else value.columns
    return frozenset(str(name) for name in list(names)[:10_000])


def _short(value: Any) -> str:
    """A few words on a value: its type, a table's columns."""
    columns = _columns(value)
    name = type(value).__name__
    return f"{name} with {len(columns)} columns" if columns is not None else name


# ---------------------------------------------------------------------- what is told


def facts(
    names: Sequence[NamedObject], look: StalenessLookup, folders: Sequence[Path], now: float, told: float
) -> list[str]:
    """What still holds, in words, at most MOST_TOLD. Files are looked for in `folders`; `told` is when the
    memory was written, Unix time."""
    lines: list[str] = []
    sources = [path for named in names if named.kind == "file" and (path := _place(named.name, folders)) is not None]
    for named in names:
        line = _on_file(named.name, folders, now, told) if named.kind == "file" else _on_name(named, look, sources)
        if line:
            lines.append(line)
    return list(dict.fromkeys(lines))[:MOST_TOLD]


def _on_file(name: str, folders: Sequence[Path], now: float, told: float) -> str:
    path = _place(name, folders)
    if path is None:
        return f"`{name}` is not there" if folders and _is_checkable(name) else ""
    try:
        changed = path.stat().st_mtime
    except OSError:
        return ""
    if path.is_dir():
        return f"`{name}` exists"
    since = " since this was written" if changed > told + 1 else ""
    return f"`{name}` exists, changed {_ago(now - changed)}{since}"


def _on_name(named: NamedObject, look: StalenessLookup, sources: Sequence[Path]) -> str:
    there, words = look.found.get(named, (None, ""))
    if named.kind == "function":
        called = f"{named.owner}.{named.name}" if named.owner else named.name
        if there:
            return f"`{called}` is defined here"
        where = _defined_in(named.name, sources)
        if where is not None:
            return f"`{named.name}` is in `{where.name}`"
        if sources and any(path.suffix == ".py" for path in sources):
            return f"`{named.name}` is in none of the files named"
        return f"`{called}` is not defined in this kernel" if there is False else ""
    if named.kind == "variable":
        if there:
            return f"`{named.name}` is here ({words})"
        return f"`{named.name}` is not in this kernel" if there is False else ""
    if named.kind == "member" and there is not None:
        return f"`{named.owner}.{named.name}` {'exists' if there else 'no longer exists'}"
    if there is not None:
        part = "key" if words == "key" else "column"
        has = f"has the {part} `{named.name}`" if there else f"has no {part} `{named.name}` now"
        return f"`{named.owner or words}` {has}"
    return f"`{named.owner}` is not in this kernel" if named.owner and words == named.owner and named.sure else ""


def _is_checkable(name: str) -> bool:
    return not name.startswith(("//", "\\\\", "~")) and "://" not in name


def _place(name: str, folders: Sequence[Path]) -> Path | None:
    """Where a file is that a memory names; None when it is in none of the folders."""
    if not _is_checkable(name):
        return None
    for folder in folders:
        try:
            if (path := folder / name).exists():
                return path
        except (OSError, ValueError):
            return None
    return None


def _defined_in(name: str, sources: Sequence[Path]) -> Path | None:
    """The source file that defines a function or class."""
    wanted = re.compile(rf"^[ \t]*(?:async[ \t]+)?(?:def|class)[ \t]+{re.escape(name)}\b".encode(), re.M)
    for path in sources:
        if path.suffix not in (".py", ".ipynb"):
            continue
        try:
            with path.open("rb") as file:
                text = file.read(FILE_BYTES)
        except OSError:
            continue
        if wanted.search(text) or (path.suffix == ".ipynb" and f"def {name}(".encode() in text):
            return path
    return None


def _ago(seconds: float) -> str:
    """An age in the largest whole unit."""
    for size, unit in ((DAY, "day"), (3_600, "hour"), (60, "minute")):
        if seconds >= size:
            number = int(seconds // size)
            return f"{number} {unit}{'' if number == 1 else 's'} ago"
    return "just now"


def folders_of(root: Path, folder: Path) -> tuple[Path, ...]:
    """Where files that a memory names are looked for."""
    return tuple(dict.fromkeys(Path(os.path.abspath(place)) for place in (folder, root)))
