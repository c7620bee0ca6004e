"""An exception of user code as short plain text: the user's frames, the last of the library's, none of ours.

Frames of IPython, of the kernel and of this package never show; cells are called `<cell>`.
"""

from __future__ import annotations

import linecache
import sysconfig
import traceback
from pathlib import Path

from ipyagent.escape import plain

_MAX_USER_FRAMES = 10
_MAX_LIBRARY_FRAMES = 2
_MACHINERY = ("/IPython/", "/ipykernel/", "/ipyagent/kernel/", "/traitlets/", "/decorator.py")


def render_failure(error: BaseException, max_chars: int = 4_000) -> str:
    """The traceback of `error` with its causes, at most `max_chars` characters, without ANSI."""
    own = getattr(error, "_render_traceback_", None)
    if callable(own):
        try:
            text = "\n".join(str(line) for line in own())
        except Exception as broken:  # noqa: BLE001 - a foreign method; its failure must not hide the error
            text = f"{type(error).__name__}: {error} (its own rendering failed: {broken!r})"
    elif type(error).__name__ == "UsageError":
        text = f"UsageError: {error}"
    else:
        trace = traceback.TracebackException(type(error), error, error.__traceback__, compact=True)
        _trim(trace, set())
        text = "".join(trace.format())
    text = _readable(text).strip("\n")
    if len(text) > max_chars:
        tail = max_chars * 2 // 3
        head = max_chars - tail - 40
        text = text[:head] + "\n… traceback shortened …\n" + text[-tail:]
    return text


def last_line(error: BaseException, max_chars: int = 300) -> str:
    """`KeyError: 'price'`: what stands in the last line of an error's traceback, for one that says more the first
    line of its message."""
    name = type(error).__name__
    try:
        said = str(error.args[0]) if isinstance(error, KeyboardInterrupt) and error.args else str(error)
        if isinstance(error, KeyError) and error.args:
            said = repr(error.args[0])
    except Exception as broken:  # noqa: BLE001 - a foreign method; its failure must not hide the error
        said = f"(its message cannot be read: {type(broken).__name__})"
    said = next(filter(None, map(str.strip, _readable(said[:4_000]).split("\n"))), "")
    text = f"{name}: {said}" if said else name
    return text if len(text) <= max_chars else text[:max_chars] + "…"


def _readable(text: str) -> str:
    """`plain`, a carriage return spelled out: in an error's message it would hide what stands before it."""
    return plain(text.replace("\r\n", "\n").replace("\r", "␍"))


def cells_of(error: BaseException) -> list[str]:
    """The sources of the cells whose code an error went through."""
    names = [frame.f_code.co_filename for frame, _ in traceback.walk_tb(error.__traceback__)]
    return ["".join(linecache.getlines(name)) for name in dict.fromkeys(names) if _is_cell(name)]


def _trim(trace: traceback.TracebackException, seen: set[int]) -> None:
    if id(trace) in seen:
        return
    seen.add(id(trace))
    frames = list(trace.stack)
    begin = next((i for i, frame in enumerate(frames) if _is_cell(frame.filename)), None)
    if begin is not None:
        frames = frames[begin:]
    frames = [frame for frame in frames if not _is_machinery(frame.filename)]
    users = [i for i, frame in enumerate(frames) if not _is_library(frame.filename)]
    if len(users) > _MAX_USER_FRAMES:
        half = _MAX_USER_FRAMES // 2
        users = users[:half] + users[-half:]
    last = users[-1] if users else -1
    inner = list(range(last + 1, len(frames)))[-_MAX_LIBRARY_FRAMES:]
    kept = [frames[i] for i in (*users, *inner)]
    for frame in kept:
        if _is_cell(frame.filename):
            frame.line  # noqa: B018 - reads the source line while the file name still finds it
            frame.filename = "<cell>"
    trace.stack = traceback.StackSummary.from_list(kept)
    filename = getattr(trace, "filename", None)
    if isinstance(filename, str) and _is_cell(filename):
        trace.filename = "<cell>"
    linked = [trace.__cause__, trace.__context__, *(getattr(trace, "exceptions", None) or ())]
    for other in linked:
        if other is not None:
            _trim(other, seen)


def _is_cell(filename: str) -> bool:
    # IPython registers the source of each cell in linecache without a modification time; libraries
    # that are imported lazily do the same with a one-element entry.
    entry = linecache.cache.get(filename)
    if entry is not None and len(entry) == 4 and entry[1] is None:
        return True
    return filename in ("<string>", "<unknown>") or filename.startswith("<ipython-input")


def _is_machinery(filename: str) -> bool:
    path = filename.replace("\\", "/")
    return any(part in path for part in _MACHINERY) and not _is_cell(filename)


def _is_library(filename: str) -> bool:
    if _is_cell(filename):
        return False
    if filename.startswith("<"):
        return True
    path = Path(filename)
    if {"site-packages", "dist-packages"} & set(path.parts):
        return True
    return any(path.is_relative_to(sysconfig.get_path(name)) for name in ("stdlib", "platstdlib"))
