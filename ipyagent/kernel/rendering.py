"""How what code displays becomes the model's text: tables under display options of our own, so that a user's
options hide no figure, and objects whose text form says nothing as Markdown from their richest textual form.

Text is read once from front to back and is bounded; nothing that is displayed is run."""

from __future__ import annotations

import contextlib
import json
import linecache
import math
import os
import re
import sys
import sysconfig
import traceback
from collections.abc import Callable, Iterator, Mapping
from decimal import Decimal
from pathlib import Path
from typing import Any

from ipyagent.escape import counted, cut, plain
from ipyagent.kernel.html_text import markdown_of
from ipyagent.kernel.previews import TypeInfo, find, stored
from ipyagent.kernel.previews.charts import bokeh_words, plotly_words, vega_words
from ipyagent.kernel.variables import described

LONG_MODEL = 250
"""Characters: the text form of an estimator that is longer, with every parameter that is None, gives way to a line."""
LONG_WIDGET = 400
"""Characters of a widget's text form that are told."""
TEXTUAL = ("text/html", "text/markdown", "text/latex", "application/json")
"""MIME types that are asked for also where the front-end, a terminal, shows text alone."""
_BARE = re.compile(r"\s*(?:<VegaLite\b.*|alt\.\w{0,20}Chart\(\.\.\.\)|<[^<>]{1,200}>)\s*", re.S)
_AT = " object at 0x"
"""What a dataclass shows of a part that has no text form."""

# ---------------------------------------------------------------------- options

_PANDAS: dict[str, Any] = {
    "display.max_rows": 60,
    "display.min_rows": 10,
    "display.max_columns": 40,
    "display.max_colwidth": 80,
    "display.width": 200,
    "display.precision": 6,
    "display.max_seq_items": 100,
    "styler.format.precision": 6,
}
"""Least values: a wider option of the user (or of the code before) stays; None is the widest."""
_PANDAS_PLAIN: dict[str, Any] = {
    "display.float_format": None,
    "display.chop_threshold": None,
    "display.large_repr": "truncate",
    "display.expand_frame_repr": True,
    "styler.format.formatter": None,
}
_NUMPY: dict[str, Any] = {"precision": 8, "threshold": 1_000, "edgeitems": 3, "linewidth": 75}
_NUMPY_PLAIN: dict[str, Any] = {"formatter": None, "suppress": False}
_POLARS = {
    "POLARS_FMT_MAX_ROWS": 10,
    "POLARS_FMT_MAX_COLS": 40,
    "POLARS_FMT_STR_LEN": 80,
    "POLARS_FMT_TABLE_CELL_LIST_LEN": 3,
    "POLARS_TABLE_WIDTH": 200,
}
_POLARS_HIDING = (
    "POLARS_FMT_TABLE_HIDE_COLUMN_NAMES",
    "POLARS_FMT_TABLE_HIDE_COLUMN_DATA_TYPES",
    "POLARS_FMT_TABLE_HIDE_DATAFRAME_SHAPE_INFORMATION",
)
_CONFIGURED = frozenset(("pandas", "polars", "numpy", "xarray"))
_UNSET: Any = object()


@contextlib.contextmanager
def own_display_options() -> Iterator[None]:
    """Inside, pandas, polars and numpy show at least as much as our own options do. Afterwards the user's options
    are as they were, but for those that the code inside set by itself. Libraries that are not imported are left."""
    with contextlib.ExitStack() as undo:
        for apply in (_pandas_options, _numpy_options, _polars_options):
            try:
                if (restore := apply()) is not None:
                    undo.callback(restore)
            except Exception:  # noqa: BLE001 - an unknown version of a library: its tables are shown as the user has them
                continue
        yield


def has_display_options(value: Any) -> bool:
    """Whether our options change how the object is shown: it is of one of these libraries, or may hold such."""
    roots = {kind.__module__.partition(".")[0] for kind in type(value).__mro__}
    holds = isinstance(value, list | tuple | dict) and bool(_CONFIGURED & sys.modules.keys())
    return holds or bool(_CONFIGURED & roots)


def _swap(wanted: Mapping[str, Any], get: Callable[[str], Any], put: Callable[[str, Any], None]) -> Callable[[], None]:
    """Put the wanted values; what is given puts the old ones back where ours still stand."""
    changed: dict[str, tuple[Any, Any]] = {}

    def put_back(name: str, old: Any, ours: Any) -> None:
        if get(name) == ours:
            put(name, old)

    def restore() -> None:
        with contextlib.ExitStack() as all_of_them:  # one that cannot be put back keeps none of the others
            for name, (old, ours) in changed.items():
                all_of_them.callback(put_back, name, old, ours)

    try:
        for name, value in wanted.items():
            old = get(name)
            if old is not _UNSET and old != value:
                put(name, value)
                changed[name] = (old, value)
    except BaseException:
        restore()
        raise
    return restore


def _widened(least: Mapping[str, Any], get: Callable[[str], Any]) -> dict[str, Any]:
    found = {name: get(name) for name in least}
    return {name: least[name] for name, old in found.items() if type(old) is int and old < least[name]}


def _pandas_options() -> Callable[[], None] | None:
    pandas = sys.modules.get("pandas")
    if pandas is None or not hasattr(pandas, "set_option"):
        return None

    def get(name: str) -> Any:
        try:
            return pandas.get_option(name)
        except (KeyError, AttributeError):  # pandas' own OptionError is both
            return _UNSET

    return _swap(_widened(_PANDAS, get) | _PANDAS_PLAIN, get, pandas.set_option)


def _numpy_options() -> Callable[[], None] | None:
    numpy = sys.modules.get("numpy")
    if numpy is None or not hasattr(numpy, "get_printoptions"):
        return None
    old: dict[str, Any] = numpy.get_printoptions()
    wanted = _widened(_NUMPY, lambda name: old.get(name, _UNSET)) | _NUMPY_PLAIN
    if "precision" in wanted:
        wanted["floatmode"] = "maxprec"
    ours = {**old, **wanted}
    if ours == old:
        return None

    def restore() -> None:
        now = numpy.get_printoptions()
        # all at once: each call resets the formatter
        numpy.set_printoptions(**{name: old[name] if now[name] == ours[name] else now[name] for name in old})

    numpy.set_printoptions(**ours)
    return restore


def _polars_options() -> Callable[[], None] | None:
    polars = sys.modules.get("polars")
    if polars is None or not hasattr(polars, "Config"):
        return None
    config = polars.Config
    state: dict[str, Any] = config.state(if_set=True)
    least = {}
    for name, value in _POLARS.items():
        number = _whole(state.get(name, "0"))  # unset is narrow: eight columns
        if number is not None and 0 <= number < value:
            least[name] = str(value)
    for name in _POLARS_HIDING:
        if state.get(name) not in (None, "0"):
            least[name] = "0"
    direct: dict[str, Any] = {}
    if state.get("set_float_precision") is not None:
        direct["set_float_precision"] = None
    if not least and not direct:
        return None

    # what is not set is set behind `os.environ`: a name that comes and goes there makes other threads stumble who go
    # through it, and the tables in HTML, which read it there, stay as wide as they are
    unset = {name: value for name, value in least.items() if name not in os.environ}
    restore = _swap(
        {name: least[name] for name in least if name not in unset} | direct,
        lambda name: config.state().get(name),
        lambda name, value: getattr(config, name)(value) if name in direct else os.environ.__setitem__(name, value),
    )
    for name, text in unset.items():
        os.putenv(name, text)

    def undo() -> None:
        restore()
        for name in unset:
            if name not in os.environ:  # else the code has set it
                os.unsetenv(name)

    return undo


def _whole(text: Any) -> int | None:
    try:
        return int(text)
    except (TypeError, ValueError):
        return None


# ---------------------------------------------------------------------- rich objects


def text_of(bundle: Mapping[str, Any], limit: int, value: Any = None, *, shown: bool = False) -> str | None:
    """What the model reads of a displayed object with these MIME types: of a chart a line about it, else its text
    form, or where that is bare (`<… object at 0x…>`), long or missing, Markdown or text from the richest textual
    type, or a description, in about `limit` characters. `value` is the object itself where it is known; `shown`: the
    user sees it. None when there is no text at all."""
    plain = bundle.get("text/plain")
    said = None if plain is None else str(plain)
    if told := _chart(bundle, value):
        return _line(told, shown=shown)
    if said is not None and _family(value) == "widgets":
        said = widget_text(value) or said  # ipywidgets' own text ends after 110 characters
    bare = said is None or is_bare(said) or (isinstance(value, str) and "text/html" in bundle)
    if said is not None and not bare and not (len(said) > LONG_MODEL and _family(value) == "estimators"):
        return unboxed(said) if shown and "text/html" in bundle else said
    if charts := _charts_in_page(str(bundle.get("text/html", ""))):
        more = f"\n[and {len(charts) - 1} more]" if len(charts) > 1 else ""
        beside = _derived("text/html", bundle["text/html"], limit) or ""
        return (_line(charts[0], shown=shown) + more + "\n" + beside.strip()).strip()
    if any(kind in bundle for kind in ("image/png", "image/jpeg")):  # the picture itself is shown
        return _facts(value) or _derived("image/svg+xml", bundle.get("image/svg+xml", ""), limit) or None
    if "application/javascript" in bundle:
        return "(a script for the page)"
    for kind, part in sorted(bundle.items(), key=lambda item: _rank(item[0])):
        if _family(value) != "estimators" and (found := _derived(kind, part, limit)) and found.strip():
            return found + _behind(value, found)
    empty = said is None or _family(value) in ("estimators", "plots") or _says_nothing(said)
    if empty and (facts := _facts(value)):
        return facts
    if empty and "text/html" in bundle:  # the user sees it, or it is a script for the page
        return None if shown else f"(HTML without text, {len(str(bundle['text/html'])):,} characters)"
    return said


def widget_text(widget: Any, *, shown: bool = False) -> str:
    """A widget as it stands now: of one that holds a chart the line about it, else its text form, or where that is
    bare or long (a canvas with its toolbar) a description."""
    if told := _chart({}, widget):
        return _line(told, shown=shown)
    try:
        said = repr(widget)
    except Exception:  # noqa: BLE001 - a foreign repr
        said = ""
    return said if 0 < len(said) <= LONG_WIDGET and not is_bare(said) else described(widget, 240) or said


_CHARTS = ("plotly chart", "Vega-Lite chart", "bokeh chart", "map")


def _line(told: tuple[str, str], *, shown: bool) -> str:
    return f"[{told[0]} shown to the user: {told[1]}]" if shown else f"[{told[0]}: {told[1]}]"


def says_shown(said: str | None) -> bool:
    """Whether what `text_of` made is a chart's line, which says itself that the user sees it."""
    return said is not None and said.startswith(tuple(f"[{kind} shown to the user: " for kind in _CHARTS))


def is_bare(plain: str) -> bool:
    """Whether an object's text form says nothing but its type."""
    return bool(_BARE.fullmatch(plain[:1_000])) or _AT in plain[:1_000] or _says_nothing(plain)


_BORDER = frozenset(map(chr, range(0x2500, 0x2580))) - frozenset("│┃┆║") | {" "}
"""Unicode's box drawing, but for what stands between cells."""
_SIDES = "│┃║"
_BETWEEN = re.compile("[│┆┃║]")


def unboxed(text: str) -> str:
    """`text` with tables that are drawn with lines as rows between bars: the same cells in half the tokens."""
    if not any(corner in text for corner in "┌╭┏╔╒╓"):
        return text
    lines = []
    for line in text.split("\n"):
        bare = line.strip()
        if bare[:1] in _BORDER and len(bare) > 1 and _BORDER.issuperset(bare):
            continue
        if len(bare) > 1 and bare[0] in _SIDES and bare[-1] in _SIDES:
            cells = [cell.strip() for cell in _BETWEEN.split(bare[1:-1])]
            if all(cell == "---" for cell in cells):
                continue
            line = f"| {' | '.join(cells)} |"
        lines.append(line)
    return "\n".join(lines)


def _says_nothing(said: str) -> bool:
    """Whether a text form names a type (and an address) and nothing else."""
    said = said.strip()
    named = said[:1] == "<" and said[-1:] == ">" and len(said) < 300 and "=" not in said
    return named and (" at 0x" in said or said.endswith(" object>"))


def _family(value: Any) -> str:
    return "" if value is None else find(TypeInfo(type(value))).name


def _facts(value: Any) -> str:
    """A description of the object, as its preview has it; "" for IPython's own wrappers."""
    if value is None or _family(value) == "displayed objects":
        return ""
    return described(value, 240)


_NUMBER = re.compile(r"\d[\d.,'\u2009\u00a0\u202f]{0,40}")
_NO_DIGIT = re.compile(r"\D")
_FIGURES = 6
"""Significant digits that are enough: a plain DataFrame shows no more."""
_BEHIND_ROWS, _BEHIND_COLUMNS = 20, 12


def _behind(value: Any, shown: str) -> str:
    """Of a formatted table (a Styler, great_tables) a line with the stored numbers of those columns whose cells show
    fewer digits; "" where none does."""
    told = {_digits(found[0]) for found in _NUMBER.finditer(shown)}
    enough = {digits[: _FIGURES - 1] for digits in told if len(digits) >= _FIGURES}
    columns = []
    try:
        for name, values in _columns_behind(value):
            numbers = [each for each in values if type(each) in (int, float) and math.isfinite(each)]
            written = [str(each) if type(each) is int else f"{each:.12g}" for each in numbers]
            figures = [_digits(f"{Decimal(text):f}") for text in written]
            lost = [each for each in figures if each not in told]
            if any(len(each) < _FIGURES or each[: _FIGURES - 1] not in enough for each in lost):
                columns.append(f"{name} {', '.join(written)}")
    except Exception:  # noqa: BLE001 - foreign objects in versions that are not known: the formatted cells are told
        return ""
    return f"\n[stored values behind formatted cells: {'; '.join(columns)}]" if columns else ""


def _columns_behind(value: Any) -> Iterator[tuple[str, list[Any]]]:
    """The first values of each column that the table shows."""
    kind = TypeInfo(type(value))
    if kind.is_library("great_tables", "GT"):
        frame, names = value._tbl_data, [column.var for column in value._boxhead if column.visible]
    elif kind.is_library("pandas.io.formats.style", "Styler"):
        frame = value.data
        if not frame.columns.is_unique:
            return
        hidden = set(value.hidden_columns)
        names = [name for at, name in enumerate(frame.columns) if at not in hidden]
    else:
        return
    for name in names[:_BEHIND_COLUMNS]:
        values = frame[name][:_BEHIND_ROWS]
        listed = getattr(values, "tolist", None) or getattr(values, "to_list", None) or values.to_pylist
        yield str(name), listed()


def _digits(number: str) -> str:
    """The significant digits of a number as it is written."""
    return _NO_DIGIT.sub("", number).strip("0")


_ORDER = ("plotly", "vegalite", "vega", "text/markdown", "text/html", "text/latex", "json", "image/svg")


def _rank(kind: str) -> int:
    return next((at for at, part in enumerate(_ORDER) if part in kind), len(_ORDER))


def _derived(kind: str, value: Any, limit: int) -> str:
    if kind in ("text/markdown", "text/latex"):
        return str(value)
    if kind == "text/html":
        return markdown_of(str(value))
    if kind == "image/svg+xml" and value:
        texts = markdown_of(str(value))
        return f"(an SVG picture{f', its texts: {texts}' if texts else ''})"
    if kind.endswith("json"):
        return _json(value, limit) if value else ""
    return ""


def _json(value: Any, limit: int) -> str:
    """JSON, encoded no further than `limit`."""
    parts: list[str] = []
    room = limit
    try:
        encoder = json.JSONEncoder(ensure_ascii=False, default=lambda item: f"<{type(item).__name__}>")
        for part in encoder.iterencode(value):
            parts.append(part)
            room -= len(part)
            if room < 0:
                return "".join(parts)[:limit] + "\n… cut here"
    except (TypeError, ValueError, RecursionError):
        return ""
    return "".join(parts)


def _chart(bundle: Mapping[str, Any], value: Any) -> tuple[str, str] | None:
    """What kind of chart it is and a line about it, from its specification; None for anything else."""
    for kind, part in bundle.items():
        if "plotly" in kind and isinstance(part, dict) and isinstance(part.get("data"), list):
            return "plotly chart", plotly_words(part["data"], part.get("layout"))
        if "vega" in kind and kind.endswith("json") and (told := _vega(part)):
            return "Vega-Lite chart", told
    if _family(value) == "plotly figures":
        return "plotly chart", plotly_words(stored(value, "_data"), stored(value, "_layout"))
    root = type(value).__module__.partition(".")[0]
    if root == "altair":
        try:
            chart: Any = value if hasattr(value, "to_dict") else getattr(value, "chart", None)  # its widget has one
            if hasattr(chart, "to_dict"):
                return "Vega-Lite chart", _vega(chart.to_dict())
        except Exception:  # noqa: BLE001 - foreign code: the object is told as any other
            return None
    if root == "folium":
        return "map", described(value, 240)
    if any("bokeh" in kind for kind in bundle):
        return ("bokeh chart", told) if (told := bokeh_words(bundle)) else None
    return None


_TRACES = re.compile(r"Plotly\.newPlot\(\s{0,200}(?:\"[^\"]{0,100}\"|'[^']{0,100}'),\s{0,200}")
_LAYOUT = re.compile(r",\s{0,200}")
_MOST_SPECIFIED = 4_000_000
"""Characters of a page, from where its last chart is drawn, that are read."""


def _charts_in_page(page: str) -> list[tuple[str, str]]:
    """The charts of HTML that plotly or altair made: their renderers for notebooks, and `to_html`. The first of the
    list is the last on the page, and the only one that is described."""
    decode = json.JSONDecoder().raw_decode
    drawn = [found.end() for found in _TRACES.finditer(page) if page.startswith("[", found.end())]
    begin = drawn[-1] if drawn else max(page.rfind("})({") + 3, page.rfind(" spec = {") + 8)
    if len(page) - begin > _MOST_SPECIFIED:
        return []
    try:
        if drawn:
            data, end = decode(page, begin)
            behind = _LAYOUT.match(page, end)
            layout = decode(page, behind.end())[0] if behind else {}
            return [("plotly chart", plotly_words(data, layout)), *[("plotly chart", "")] * (len(drawn) - 1)]
        if "vega.github.io/schema/vega-lite" in page and (told := _vega(decode(page, begin)[0])):
            return [("Vega-Lite chart", told)]
    except (ValueError, RecursionError):
        pass  # no JSON: the page is told as any other
    return []


def _vega(value: Any) -> str:
    """Marks, encodings and title of a chart's specification, and how many rows it has."""
    told = vega_words(value)
    sets = value.get("datasets") if isinstance(value, dict) else None
    rows = [len(part) for part in sets.values() if isinstance(part, list)] if isinstance(sets, dict) else []
    data = value.get("data") if isinstance(value, dict) else None
    if isinstance(data, dict) and isinstance(data.get("values"), list):
        rows.append(len(data["values"]))
    return f"{told}, {counted(sum(rows), 'row')}" if rows and told else told


# ---- An exception of user code as short plain text: the user's frames, the last of the library's, none of ours.
# Frames of IPython, of the kernel and of this package never show; cells are called `<cell>`.

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
    return cut(text, max_chars)


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
    if _says_the_same(trace, trace.__cause__):
        trace.__cause__ = None
    if _says_the_same(trace, trace.__context__):
        trace.__context__ = None
    linked = [trace.__cause__, trace.__context__, *(getattr(trace, "exceptions", None) or ())]
    for other in linked:
        if other is not None:
            _trim(other, seen)


def _says_the_same(trace: traceback.TracebackException, inner: traceback.TracebackException | None) -> bool:
    """Whether `inner` went through libraries alone and is told by `trace` in the same words: pandas raises its KeyError
    twice."""
    if inner is None or not all(_is_library(frame.filename) for frame in inner.stack):
        return False
    return [*inner.format_exception_only()] == [*trace.format_exception_only()]


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
    if path.suffix in (".pyx", ".pxi") and not path.exists():  # compiled: named as where it was built
        return True
    return any(path.is_relative_to(sysconfig.get_path(name)) for name in ("stdlib", "platstdlib"))
