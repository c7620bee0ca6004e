"""HTML as Markdown for the model: tables as rows, headings, list items and links kept, scripts and styles left out.

Text is read once from front to back and is bounded; nothing in it is run."""

from __future__ import annotations

import html
import re
from collections.abc import Iterator, Mapping

from ipyagent.escape import cut

MOST_HTML = 400_000
"""Characters of a displayed HTML text that are read."""
MOST_CELL = 500
"""Characters of one cell of a table."""
MOST_ROWS, MOST_COLUMNS = 60, 60
"""Rows and columns of an HTML table that are shown; the others are counted."""

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
    over = len(text) > MOST_HTML
    page = _Page()
    for name, closing, attributes, between in _tokens(text[:MOST_HTML]):
        if between:
            page.words(html.unescape(between))
        elif closing:
            page.close(name)
        else:
            page.open(name, attributes)
    made = page.text()
    return made + f"\n… the HTML continues: {len(text):,} characters in all" if over and made else made


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
        self._instead = False  # within a player: what is said where nothing can be played

    def text(self) -> str:
        """All of it."""
        while self._tables:
            self.close("table")
        self._end_line()
        return "\n".join(self._lines).strip("\n")

    def words(self, text: str) -> None:
        """Text between tags."""
        if self._instead:
            return
        if self._tables:
            self._tables[-1].words(text)
        else:
            self._line.append(text)

    def open(self, name: str, attributes: str) -> None:
        """A tag opens."""
        if self._instead and name not in ("source", "track", "a", "p", "br"):
            self._instead = False  # the player was never closed
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
            self.words(f"[{name}{_source(attributes)}]")
            self._instead = name in ("video", "audio")
        elif name == "source" and self._instead and (source := _source(attributes)):
            self._instead = False
            self.words(f" [source{source}]")
            self._instead = True

    def close(self, name: str) -> None:
        """A tag closes."""
        if name in ("video", "audio"):
            self._instead = False
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
            self._row.append(cut(words, MOST_CELL))
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


def _source(attributes: str) -> str:
    """": " and the address that a tag names; "" for data."""
    source = _attributes(attributes).get("src", "")
    return f": {source[:200]}" if source and not source.startswith("data:") else ""


def _span(attributes: Mapping[str, str], name: str) -> int:
    return max(1, min(int(found) if (found := attributes.get(name, "").strip()[:9]).isdecimal() else 1, 200))
