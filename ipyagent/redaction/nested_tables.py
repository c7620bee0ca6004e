"""Secrets in tables that are no plain lines: lists and objects, HTML, SQL, printed series, tables inside strings."""

from __future__ import annotations

import re
from collections.abc import Iterator

from ipyagent.redaction.names import NEEDLES, is_value, name_strength
from ipyagent.redaction.tables import (
    HEAD_CELL,
    HEAD_CHARS,
    KIND,
    NUMBER,
    ROW_CHARS,
    Grids,
    cells_of,
    is_name,
    secret_columns,
    table_secrets,
)

_CELL = r"""\s*+(?:"(?:[^"\\\n]|\\.)*+"|'(?:[^'\\\n]|\\.)*+'|`[^`\n]*+`|[^\s,\[\](){}"'`<>=:;]++)\s*+"""
_NAMES = re.compile(rf"[\[(]{_CELL}(?:,{_CELL})*+,?[\])]")
_ONE_NAME = re.compile(_CELL)
_KEYED = re.compile(
    r"""(?i)(?:columns|column_names|headers?|field_?names|fields|names|cols)\\?\s?["']?\s{0,9}[:=]\s{0,9}\[?\s{0,9}\Z"""
)
_ROWS_KEY = re.compile(
    r"""(?i)["']\s?(?:data|rows|values|records|body)\\?\s?["']\s{0,9}:\s{0,9}[\[(]"""
    r"""|DataFrame\(\s{0,9}(?:data\s{0,9}=\s{0,9})?[\[(]"""
)
_ROWS_WORDS = ('"data"', "'data'", '"rows"', "'rows'", "DataFrame(")
_SQL_ROWS = re.compile(r"(?i)\s{0,40}VALUES\s{0,40}")
_COPY_ROWS = re.compile(r"(?i)\s{0,40}FROM\s{1,9}STDIN[^\n]{0,200}\n")
_UNDECIDED = re.compile(r"(?i)\s{0,40}(?:V?A?L?U?E?S?|F?R?O?M?|FROM[^\n]{0,200})")
_BETWEEN = re.compile(r"[\s,]*+")
_TOKEN = re.compile(r""""(?:[^"\\]|\\.)*+"?|'(?:[^'\\]|\\.)*+'?|[\[\](){},]""", re.DOTALL)
_ROWS_WITHIN = 400_000
"""Characters behind the names of columns in which their rows begin."""


def grid_secrets(text: str, places: list[tuple[int, int]], deep: int = 0) -> Grids:
    """What stands below a secret's name in lists of rows, SQL, HTML tables and printed Series, and all that strings
    hold which are such a text themselves."""
    if not places:
        return Grids([])
    made = _listed(text, places)
    if "<t" in text or "<T" in text:
        html = _html(text)
        made = Grids(made.found + html.found, made.head or html.head, max(made.opened, html.opened), made.begun)
    if "\nName: " in text or "Index([" in text:
        made.found.extend(_around_its_name(text, places))
    if deep < 3 and "\\" in text:
        made.found.extend(_in_strings(text, places, deep))
    return made


def _listed(text: str, places: list[tuple[int, int]]) -> Grids:
    found: list[tuple[str, int, int]] = []
    done = behind = seen = 0
    if not ("[" in text or "(" in text):
        return Grids(found)
    head, opened, begun = "", -1, -1
    for at, _ in places:
        if at < done:
            continue
        low = max(done, seen, at - HEAD_CHARS)
        start = max(text.rfind("[", low, at), text.rfind("(", low, at))
        if start < 0:
            seen = at
            continue
        seen = start + 1
        names = _NAMES.match(text, start, min(len(text), start + HEAD_CHARS))
        if names is None or names.end() <= at:
            continue
        spans = [_trimmed(text, *each.span()) for each in _ONE_NAME.finditer(text, start + 1, names.end() - 1)]
        cells = [text[first:last] for first, last in spans]
        secret = secret_columns(cells)
        if not secret or any(NUMBER.fullmatch(cell) for cell in cells):
            continue
        head, opened, begun, done = "", -1, -1, names.end()
        keyed = _KEYED.search(text, max(0, start - 60), start)
        if keyed is not None:
            place = max(text.rfind(word, max(behind, start - _ROWS_WITHIN), start) for word in _ROWS_WORDS)
            ahead = _ROWS_KEY.match(text, place, start) if place >= 0 else None
            before = ahead.end() if ahead is not None else -1  # where rows begin before the names of their columns
            if before >= 0:
                found += _rows(text[:start], before, len(cells), secret)[0]
            behind = done
            rows = _ROWS_KEY.search(text, done, min(len(text), done + _ROWS_WITHIN))
            shown = '"columns":[' + ",".join(f'"{cell}"' for cell in cells) + "]"
            if rows is None:
                done = min(len(text), done + _ROWS_WITHIN)
                head = shown if done == len(text) and before < 0 else ""
                continue
            first, shown = rows.end(), shown + ',"data":['
        elif _UNDECIDED.fullmatch(text, done):
            begun = start
            continue
        elif rows := _SQL_ROWS.match(text, done):
            first, shown = rows.end(), "(" + ",".join(cells) + ") VALUES "
        elif rows := _COPY_ROWS.match(text, done):
            first, shown = rows.end(), "(" + ",".join(cells) + ") FROM stdin;"
            more, done, opened = _copied(text, first, len(cells), secret)
            found += more
            head = shown if done == len(text) else ""
            continue
        elif all(text[last : last + 1] in "\"'`" for _, last in spans) and len(cells) > (2 if 0 in secret else 1):
            first, shown = done, "[[" + ",".join(f'"{cell}"' for cell in cells) + "],"
        else:
            continue
        more, done, opened = _rows(text, first, len(cells), secret)
        found += more
        head = shown if done == len(text) else ""
    return Grids(found, head, opened, begun)


def _rows(text: str, at: int, count: int, secret: dict[int, int]) -> tuple[list[tuple[str, int, int]], int, int]:
    """The secrets in the lists that follow each other from `at` on, where they end, and where one begins that does not
    end in the text (-1: none)."""
    found: list[tuple[str, int, int]] = []
    while True:
        between = _BETWEEN.match(text, at)
        at = between.end() if between is not None else at
        if text[at : at + 1] not in ("[", "(", "{"):
            return found, at, -1
        depth, begin, cells = 0, at + 1, []
        for token in _TOKEN.finditer(text, at):
            sign = token[0]
            if sign in "[({":
                depth += 1
            elif sign in "])}":
                depth -= 1
                if depth == 0:
                    cells.append((begin, token.start()))
                    break
            elif sign == "," and depth == 1:
                cells.append((begin, token.start()))
                begin = token.end()
        else:
            return found, len(text), at
        if len(cells) == count and text[at] != "{":
            found += _chosen(text, [_trimmed(text, *cell) for cell in cells], secret)
        at = token.end()


def _chosen(text: str, cells: list[tuple[int, int]], secret: dict[int, int]) -> list[tuple[str, int, int]]:
    """The secrets of a row whose cells stand there."""
    chosen = [(cells[place], strength) for place, strength in secret.items()]
    return [(KIND, *span) for span, strength in chosen if is_value(text[slice(*span)], strength, sure=True)]


def _copied(text: str, at: int, count: int, secret: dict[int, int]) -> tuple[list[tuple[str, int, int]], int, int]:
    """The secrets in the lines behind a COPY of a database, where they end, and where one begins that does not
    end in the text (-1: none)."""
    found: list[tuple[str, int, int]] = []
    opened = -1
    while at < len(text) and not text.startswith("\\.", at):
        stop = text.find("\n", at)
        if stop < 0:
            opened = at
        stop = len(text) if stop < 0 else stop
        spans = cells_of(text[at:stop], "\t")
        if len(spans) != count:
            at = len(text) if opened >= 0 else at
            break
        found += _chosen(text, [(at + first, at + last) for first, last in spans], secret)
        at = min(len(text), stop + 1)
    return found, at, opened


def _trimmed(text: str, first: int, last: int) -> tuple[int, int]:
    """The place without blanks and one pair of quotes around it."""
    while first < last and text[first].isspace():
        first += 1
    while first < last and text[last - 1].isspace():
        last -= 1
    if last - first > 1 and text[first] in "\"'`" and text[last - 1] == text[first]:
        return _trimmed(text, first + 1, last - 1)
    return first, last


_TAG = re.compile(r"(?i)<(/?)(table|t[rhd])\b[^<>]{0,400}>")
_TAGS = re.compile(r"(?:\s*+<[^<>]{0,400}>)*+\s*+")


def _html(text: str) -> Grids:
    found: list[tuple[str, int, int]] = []
    names: list[str] = []
    secret: dict[int, int] = {}
    cells: list[tuple[str, int, int]] = []
    row, cell, kind, first = -1, -1, "", True

    def ended(stop: int) -> None:
        nonlocal cell
        if cell >= 0:
            begun = _TAGS.match(text, cell, stop)
            begin = begun.end() if begun is not None else cell
            end = text.find("<", begin, stop)
            cells.append((kind, *_trimmed(text, begin, stop if end < 0 else end)))
        cell = -1

    def whole() -> None:
        nonlocal names, secret, first, row
        if row >= 0 and cells:
            said = [text[begin:end].removeprefix("&nbsp;") for _, begin, end in cells]
            heading = all(each == "th" for each, _, _ in cells)
            if heading or (first and not _beside_in(said, "td")):
                if all(HEAD_CELL.fullmatch(each) for each in said) and (heading or secret_columns(said)):
                    names, secret = (said, secret_columns(said)) if heading or not names else (names, secret)
            elif secret and len(said) == len(names):
                found.extend(_chosen(text, [(begin, end) for _, begin, end in cells], secret))
            elif _beside_in(said, cells[0][0]):
                found.extend((KIND, begin, end) for _, begin, end in cells[1:])
            first = False
        cells.clear()
        row = -1

    for tag in _TAG.finditer(text):
        what, closing = tag[2].lower(), bool(tag[1])
        ended(tag.start())
        if what == "tr" or what == "table":
            whole()
            row = tag.start() if what == "tr" and not closing else -1
            if what == "table":
                names, secret, first = [], {}, True
        elif not closing:
            row = tag.start() if row < 0 else row
            cell, kind = tag.end(), what
    if row < 0 and not secret:
        return Grids(found)
    head = "<table><tr>" + "".join(f"<th>{name}</th>" for name in names) + "</tr>" if secret else ""
    low = text[row : row + ROW_CHARS].lower() if row >= 0 else ""
    held = row if secret or any(needle.decode() in low for needle in NEEDLES) else -1
    return Grids(found, head, held)


def _beside_in(said: list[str], kind: str) -> bool:
    """Whether a row's first cell names what its others hold."""
    return (
        len(said) > 1
        and is_name(said[0])
        and all(is_value(each, 2, sure=kind == "th" and len(said) == 2) for each in said[1:])
    )


_SERIES = re.compile(r"\nName: ([^\n,]{1,60})(?:, Length: \d+)?, dtype: ")
_SERIES_ROW = re.compile(r"\S[^\n]{0,200}? {2,}(\S[^\n]*+)")
_INDEX_NAME = re.compile(r"""name=['"]\Z""")
_STRINGS = re.compile(r"""'([^'\\\n]{3,400})'|"([^"\\\n]{3,400})\"""")
_MOST_ROWS = 2_000


def _around_its_name(text: str, places: list[tuple[int, int]]) -> Iterator[tuple[str, int, int]]:
    """The secrets of a Series or an Index that is printed before its name."""
    done = 0
    for at, _ in places:
        line = text.rfind("\n", max(done, at - 80), at)
        series = _SERIES.match(text, line) if line >= 0 and text.startswith("\nName: ", line) else None
        if series is not None and name_strength(series[1]) == 2:
            stop = line
            for _ in range(_MOST_ROWS):
                start = text.rfind("\n", max(done, stop - 400), stop) + 1
                row = _SERIES_ROW.fullmatch(text, start, stop) if start > done or done == 0 else None
                if row is None:
                    break
                if is_value(row[1], 2, sure=True):
                    yield KIND, *row.span(1)
                if start == 0:
                    break
                stop = start - 1
            done = line
            continue
        begin = -1
        if _INDEX_NAME.search(text, max(0, at - 46), at):
            begin = text.rfind("Index([", max(done, at - ROW_CHARS), at)
        if begin >= 0:
            for each in _STRINGS.finditer(text, begin, text.find("]", begin, at)):
                place = each.span(1 if each[1] is not None else 2)
                if is_value(text[slice(*place)], 2, sure=True):
                    yield KIND, *place
            done = at


_LITERAL = re.compile(r"""(?s)"(?:[^"\\\n]|\\.)*+|'(?:[^'\\\n]|\\.)*+""")
_ESCAPE = re.compile(r"\\([nrt\"'\\/])")
_ESCAPED = {"n": " \n", "r": "  ", "t": " \t"}


def _in_strings(text: str, places: list[tuple[int, int]], deep: int) -> Iterator[tuple[str, int, int]]:
    """The secrets of tables that stand in a string with escapes."""
    next_place = 0
    for literal in _LITERAL.finditer(text):
        start, stop = literal.start() + 1, literal.end()
        while next_place < len(places) and places[next_place][0] < start:
            next_place += 1
        if next_place == len(places):
            return
        if places[next_place][0] >= stop or not ("\\n" in literal[0] or '\\"' in literal[0]):
            continue
        inner = _ESCAPE.sub(lambda escape: _ESCAPED.get(escape[1], f" {escape[1]}"), text[start:stop])
        within = []
        while next_place < len(places) and places[next_place][0] < stop:
            within.append((places[next_place][0] - start, places[next_place][1]))
            next_place += 1
        low = inner.encode("latin-1", "replace").lower()
        for kind, first, last in [
            *table_secrets(inner, low, within).found,
            *grid_secrets(inner, within, deep + 1).found,
        ]:
            if not stop < start + last:
                yield kind, start + first, start + last
