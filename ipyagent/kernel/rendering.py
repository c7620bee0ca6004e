"""How what code displays becomes the model's text: tables under display options of our own, so that a user's
options hide no figure, and objects whose text form says nothing as Markdown from their richest textual form.

Text is read once from front to back and is bounded; nothing that is displayed is run."""

from __future__ import annotations

import contextlib
import html
import json
import os
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from ipyagent.kernel.previews import TypeInfo, find
from ipyagent.kernel.previews.charts import plotly_words, vega_words, words
from ipyagent.kernel.variables import described

MOST_HTML = 400_000
"""Characters of a displayed HTML text that are read."""
MOST_CELL = 500
"""Characters of one cell of a table."""
MOST_ROWS, MOST_COLUMNS = 60, 60
"""Rows and columns of an HTML table that are shown; the others are counted."""
LONG_MODEL = 250
"""Characters: the text form of an estimator that is longer, with every parameter that is None, gives way to a line."""
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
                undo.callback(apply())
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
    return {
        name: least[name]
        for name, old in found.items()
        if type(old) is int and old < least[name]
    }


def _pandas_options() -> Callable[[], None]:
    pandas = sys.modules.get("pandas")
    if pandas is None or not hasattr(pandas, "set_option"):
        return _nothing

    def get(name: str) -> Any:
        try:
            return pandas.get_option(name)
        except (KeyError, AttributeError):  # pandas' own OptionError is both
            return _UNSET

    return _swap(_widened(_PANDAS, get) | _PANDAS_PLAIN, get, pandas.set_option)


def _numpy_options() -> Callable[[], None]:
    numpy = sys.modules.get("numpy")
    if numpy is None or not hasattr(numpy, "get_printoptions"):
        return _nothing
    old: dict[str, Any] = numpy.get_printoptions()
    wanted = _widened(_NUMPY, lambda name: old.get(name, _UNSET)) | _NUMPY_PLAIN
    if "precision" in wanted:
        wanted["floatmode"] = "maxprec"
    ours = {**old, **wanted}
    if ours == old:
        return _nothing

    def restore() -> None:
        now = numpy.get_printoptions()
        # all at once: each call resets the formatter
        numpy.set_printoptions(**{name: old[name] if now[name] == ours[name] else now[name] for name in old})

    numpy.set_printoptions(**ours)
    return restore


def _polars_options() -> Callable[[], None]:
    polars = sys.modules.get("polars")
    if polars is None or not hasattr(polars, "Config"):
        return _nothing
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
        return _nothing

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


def _nothing() -> None:
    """Nothing was changed."""


# ---------------------------------------------------------------------- rich objects


def text_of(bundle: Mapping[str, Any], limit: int, value: Any = None, *, shown: bool = False) -> str | None:
    """What the model reads of a displayed object with these MIME types: of a chart a line about it, else its text
    form, or where that is bare (`<… object at 0x…>`), long or missing, Markdown or text from the richest textual
    type, or a description, in about `limit` characters. `value` is the object itself where it is known; `shown`: the
    user sees it. None when there is no text at all."""
    plain = bundle.get("text/plain")
    said = None if plain is None else str(plain)
    if told := _chart(bundle, value):
        return f"[{told[0]} shown to the user: {told[1]}]" if shown else f"[{told[0]}: {told[1]}]"
    bare = said is None or is_bare(said)
    if said is not None and not bare and not (len(said) > LONG_MODEL and _family(value) == "estimators"):
        return unboxed(said) if shown and "text/html" in bundle else said
    if any(kind in bundle for kind in ("image/png", "image/jpeg")):  # the picture itself is shown
        return _facts(value) or _derived("image/svg+xml", bundle.get("image/svg+xml", ""), limit) or None
    if "application/javascript" in bundle:
        return "(a script for the page)"
    for kind, part in sorted(bundle.items(), key=lambda item: _rank(item[0])):
        if _family(value) != "estimators" and (found := _derived(kind, part, limit)) and found.strip():
            return found
    empty = said is None or _family(value) in ("estimators", "plots") or _says_nothing(said)
    if empty and (facts := _facts(value)):
        return facts
    if empty and "text/html" in bundle:  # the user sees it, or it is a script for the page
        return None if shown else f"(HTML without text, {len(str(bundle['text/html'])):,} characters)"
    return said


_CHARTS = ("plotly chart", "Vega-Lite chart", "bokeh chart", "map")


def says_shown(said: str | None) -> bool:
    """Whether what `text_of` made is a chart's line, which says itself that the user sees it."""
    return said is not None and said.startswith(tuple(f"[{kind} shown to the user: " for kind in _CHARTS))


def is_bare(plain: str) -> bool:
    """Whether an object's text form says nothing but its type."""
    return bool(_BARE.fullmatch(plain[:1_000])) or _AT in plain[:1_000] or _says_nothing(plain)


_BORDER = frozenset("┌┐└┘├┤┬┴┼─╞╡╪═╭╮╰╯━┏┓┗┛┡┩╇╈┯┷╤╧╔╗╚╝╠╣╦╩╬ ")
_SIDES = "│┃║"
_BETWEEN = re.compile("[│┆┃║]")


def unboxed(text: str) -> str:
    """`text` with tables that are drawn with lines as rows between bars: the same cells in half the tokens."""
    if "┌" not in text and "╭" not in text and "┏" not in text and "╔" not in text:
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
    root = type(value).__module__.partition(".")[0]
    try:
        if root == "altair" and hasattr(value, "to_dict"):
            return "Vega-Lite chart", _vega(value.to_dict())
    except Exception:  # noqa: BLE001 - foreign code: the object is told as any other
        return None
    if root == "folium":
        return "map", described(value, 240)
    if any("bokeh" in kind for kind in bundle):
        return ("bokeh chart", told) if (told := _bokeh(bundle)) else None
    return None


def _bokeh(bundle: Mapping[str, Any]) -> str:
    """A bokeh document from the script that draws it."""
    script = str(bundle.get("application/javascript", ""))[:MOST_HTML]
    begin = script.find("docs_json = ")
    if begin < 0:
        return ""
    try:
        documents, _ = json.JSONDecoder().raw_decode(script, begin + len("docs_json = "))
    except (ValueError, RecursionError):
        return "of an unknown kind"
    found: dict[str, list[str]] = {"Title": [], "glyph": [], "axis": [], "legend": []}
    waiting, room = [documents], 20_000
    while waiting and room:
        room -= 1
        part = waiting.pop()
        if isinstance(part, list):
            waiting += reversed(part)
        elif isinstance(part, dict):
            name, given = str(part.get("name", "")), part.get("attributes")
            given = given if isinstance(given, dict) else {}
            if name == "Title" and words(given.get("text")):
                found["Title"].append(f"title {words(given['text'])!r}")
            elif name.endswith("Axis") and words(given.get("axis_label")):
                found["axis"].append(f"axis {words(given['axis_label'])!r}")
            elif name == "LegendItem" and isinstance(given.get("label"), dict):
                found["legend"].append(words(given["label"].get("value")))
            elif name == "GlyphRenderer" and isinstance(given.get("glyph"), dict):
                found["glyph"].append(words(given["glyph"].get("name")))
            waiting += reversed(list(part.values()))
    glyphs = [f"{found['glyph'].count(name)} {name}" if found["glyph"].count(name) > 1 else name
              for name in dict.fromkeys(found["glyph"])]  # fmt: skip
    legend = f"legend {', '.join(found['legend'][:8])!r}" if found["legend"] else ""
    told = [", ".join(glyphs) or "no glyphs", *found["Title"][:4], *found["axis"][:4], legend]
    return ", ".join(filter(None, told))


def _vega(value: Any) -> str:
    """Marks, encodings and title of a chart's specification, and how many rows it has."""
    told = vega_words(value)
    sets = value.get("datasets") if isinstance(value, dict) else None
    rows = [len(part) for part in sets.values() if isinstance(part, list)] if isinstance(sets, dict) else []
    data = value.get("data") if isinstance(value, dict) else None
    if isinstance(data, dict) and isinstance(data.get("values"), list):
        rows.append(len(data["values"]))
    return f"{told}, {sum(rows):,} rows" if rows and told else told


# ---------------------------------------------------------------------- HTML

_SKIPPED = {"style", "script", "head", "template", "noscript", "metadata"}
_BREAKS = {"p", "div", "br", "tr", "ul", "ol", "section", "article", "table", "caption", "pre", "blockquote", "hr"} | {
    f"h{n}" for n in range(1, 7)
}
_NAME = re.compile(r"[a-zA-Z][\w:-]{0,40}")
_ATTRIBUTE = re.compile(r"([a-zA-Z-]{1,20})\s{0,4}=\s{0,4}(?:\"([^\"]{0,2000})\"|'([^']{0,2000})'|([^\s\"'>]{1,2000}))")
_SPACE = re.compile(r"\s+")


def markdown_of(text: str) -> str:
    """HTML as Markdown: tables as rows, headings, list items and links kept, scripts and styles left out. Reads
    MOST_HTML characters and says when there was more."""
    cut = len(text) > MOST_HTML
    page = _Page()
    for name, closing, attributes, between in _tokens(text[:MOST_HTML]):
        if between:
            page.words(html.unescape(between))
        elif closing:
            page.close(name)
        else:
            page.open(name, attributes)
    made = page.text()
    return made + f"\n… the HTML continues: {len(text):,} characters in all" if cut and made else made


def _tokens(text: str) -> Iterator[tuple[str, bool, str, str]]:
    """Tags (name, closing, attributes) and texts between them, in one pass; an unclosed tag ends the reading."""
    at, size, lowered = 0, len(text), ""
    while at < size:
        begin = text.find("<", at)
        if begin < 0:
            yield "", False, "", text[at:]
            return
        if begin > at:
            yield "", False, "", text[at:begin]
        if text.startswith("<!--", begin):
            end = text.find("-->", begin + 4)
            if end < 0:
                return
            at = end + 3
            continue
        closing = text.startswith("</", begin)
        found = _NAME.match(text, begin + 1 + closing)
        if found is None:
            if text.startswith(("<!", "<?"), begin):
                end = text.find(">", begin)
                at = end + 1 if end >= 0 else size
            else:
                yield "", False, "", "<"
                at = begin + 1
            continue
        first = end = text.find(">", found.end())
        if end < 0:
            return
        for _ in range(8):  # a ">" within quotes
            if text.count('"', found.end(), end) % 2 == 0:
                break
            end = text.find(">", end + 1)
            if end < 0:
                end = first
                break
        name = found.group().lower()
        at = end + 1
        if name in _SKIPPED and not closing and text[end - 1] != "/":
            lowered = lowered or text.lower()
            if len(lowered) != size:  # a letter whose lower case is longer: places would not fit
                lowered = text
            at = lowered.find(f"</{name}", at)
            if at < 0:
                return
            continue
        yield name, closing, text[found.end() : min(end, found.end() + 4_000)], ""


class _Page:
    """What was read so far: lines, and the table that is open."""

    def __init__(self) -> None:
        self._lines: list[str] = []
        self._line: list[str] = []
        self._tables: list[_Table] = []
        self._links: list[str] = []

    def text(self) -> str:
        """All of it."""
        while self._tables:
            self.close("table")
        self._end_line()
        return "\n".join(self._lines).strip("\n")

    def words(self, text: str) -> None:
        """Text between tags."""
        if self._tables:
            self._tables[-1].words(text)
        else:
            self._line.append(text)

    def open(self, name: str, attributes: str) -> None:
        """A tag opens."""
        if name == "table":
            self._end_line()
            self._tables.append(_Table())
        elif self._tables:
            table = self._tables[-1]
            if name == "tr":
                table.row()
            elif name in ("td", "th"):
                spans = _attributes(attributes)
                table.cell(name == "th", _span(spans, "colspan"), _span(spans, "rowspan"))
            elif name == "br":
                table.words(" ")
        elif name in _BREAKS:
            self._end_line()
            if name[0] == "h" and name[1:].isdigit():
                self._line.append("#" * int(name[1:]) + " ")
        elif name == "li":
            self._end_line()
            self._line.append("- ")
        elif name == "a":
            self._links.append(_attributes(attributes).get("href", ""))
        if name == "img":
            words = _attributes(attributes).get("alt", "")
            self.words(f"[image{f': {words}' if words else ''}]")
        elif name in ("iframe", "video", "audio", "embed"):
            source = _attributes(attributes).get("src", "")
            self.words(f"[{name}{f': {source[:200]}' if source and not source.startswith('data:') else ''}]")

    def close(self, name: str) -> None:
        """A tag closes."""
        if name == "table" and self._tables:
            lines = self._tables.pop().lines()
            if self._tables:  # a table within a cell
                self._tables[-1].words(" ".join(lines))
            else:
                self._lines += lines
        elif self._tables:
            return
        elif name == "a" and self._links:
            target = self._links.pop()
            if target.startswith(("http://", "https://")):
                self._line.append(f" ({target[:200]})")
        elif name in _BREAKS or name == "li":
            self._end_line()

    def _end_line(self) -> None:
        line = _SPACE.sub(" ", "".join(self._line)).strip()
        self._line = []
        if line:
            self._lines.append(line)


class _Table:
    """One HTML table on its way to rows of Markdown; a cell over several rows or columns is told once."""

    def __init__(self) -> None:
        self._rows: list[list[str]] = []
        self._heads = 0
        self._more = 0
        self._row: list[str] | None = None
        self._cell: list[str] | None = None
        self._plain = False
        self._over: dict[int, int] = {}
        """Columns that a cell above still covers, with the number of rows."""
        self._span = 1
        self._outside: list[str] = []

    def row(self) -> None:
        """A row begins."""
        self._end_row()
        self._row, self._plain = [], False

    def cell(self, head: bool, columns: int, rows: int) -> None:
        """A cell begins."""
        self._end_cell()
        if self._row is None:
            self.row()
        assert self._row is not None
        self._covered()
        self._plain = self._plain or not head
        if rows > 1:
            for at in range(len(self._row), len(self._row) + columns):
                self._over[at] = rows - 1
        self._cell, self._span = [], columns

    def words(self, text: str) -> None:
        """Text, of a cell or of a caption."""
        (self._outside if self._cell is None else self._cell).append(text)

    def lines(self) -> list[str]:
        """The rows."""
        self._end_row()
        self._join_heads()
        outside = _SPACE.sub(" ", "".join(self._outside)).strip()
        width = min(MOST_COLUMNS, max((len(row) for row in self._rows), default=0))
        made = [outside] if outside else []
        for at, row in enumerate(self._rows):
            shown = [*row[:width], *[""] * (width - len(row))]
            made.append("| " + " | ".join(shown) + " |" + (" …" if len(row) > width else ""))
            if at == max(0, self._heads - 1):
                made.append("|" + " --- |" * width)
        if self._more:
            made.append(f"… {self._more:,} more rows")
        return made

    def _join_heads(self) -> None:
        """The names of an index that stand in a row of their own join the row of the columns' names above them."""
        if self._heads < 2:
            return
        above, names = self._rows[self._heads - 2 : self._heads]
        width = sum(1 for name in names if name)
        if width and all(names[:width]) and not any(above[:width]) and len(above) >= len(names):
            self._rows[self._heads - 2 : self._heads] = [[*names[:width], *above[width:]]]
            self._heads -= 1

    def _covered(self) -> None:
        assert self._row is not None
        while self._over.get(len(self._row), 0) > 0:
            self._over[len(self._row)] -= 1
            self._row.append("")

    def _end_cell(self) -> None:
        if self._cell is None or self._row is None:
            return
        if len(self._row) < 10 * MOST_COLUMNS:
            words = _SPACE.sub(" ", "".join(self._cell)).strip().replace("|", "\\|")
            self._row.append(words if len(words) <= MOST_CELL else words[:MOST_CELL] + "…")
            self._row += [""] * (self._span - 1)
        self._cell = None

    def _end_row(self) -> None:
        self._end_cell()
        if self._row is None:
            return
        self._covered()
        if self._row and len(self._rows) < MOST_ROWS:
            if not self._plain and self._heads == len(self._rows):
                self._heads += 1
            self._rows.append(self._row)
        elif self._row:
            self._more += 1
        self._row = None


def _attributes(text: str) -> dict[str, str]:
    return {key.lower(): html.unescape(a or b or c) for key, a, b, c in _ATTRIBUTE.findall(text)}


def _span(attributes: Mapping[str, str], name: str) -> int:
    return max(1, min(_whole(attributes.get(name)) or 1, 200))
