"""Secrets that stand below, above or beside their name: in tables as lines, as lists and objects, as HTML, and in
strings that hold such a text."""

from __future__ import annotations

import re
from collections.abc import Iterator
from keyword import iskeyword

import msgspec

from ipyagent.redaction.names import (
    ALONE,
    MORE_NEEDLES,
    NEEDLES,
    cookie_values,
    is_value,
    name_strength,
    places_of,
    unprefixed,
)

# ---------------------------------------------------------------------- columns

KIND = "a password or key"
SECRET = "[secret: "
"""How what stands for a secret begins; a comma is in it."""
_HEAD_CHARS = 4_000
"""A longer line is no head of a table."""
_STRAY = 8
"""Lines in a row that do not fit a table and do not end it yet."""
_NAME_CELL = re.compile(r"[^\W\d][\w .\-]{0,40}")
_HEAD_CELL = re.compile(r"[\w .\-/#%°€$£&]{0,60}(?:\([\w /%]{0,20}\))?")
_NO_HEAD = re.compile(r"[=:{}<>\[\]!?\\@]")
_BESIDE = frozenset(("user", "users", "username", "login", "name", "email", "mail", "host", "account", "id", "role"))
"""What stands beside a password in a table whose columns are parted by one blank."""
_NUMBER = re.compile(r"[+\-]?\d[\d.,]*%?|(?i:nan|none|null|<na>|true|false)")
_DIGIT = re.compile(r"\d")
_FIRST = re.compile(r"(?:^|[^\d])1[\t:-]\Z")
"""The number of a file's first line."""
_RULE = re.compile(r"[\s|+:=\-─━═┄╌│┆┃║┌┐└┘├┤┬┴┼╞╡╪╭╮╰╯╒╕╘╛┏┓┗┛┡┩╇]*")
_BARS = re.compile(r"[|│┆┃║]")
_GAPS = re.compile(r"\S+(?: \S+)*")
_NAMING = frozenset(
    ("variable", "key", "name", "field", "setting", "option", "property", "attribute", "parameter", "column", "item")
)
"""The head of a column of names, when the next one is called "value"."""
_ROW_CHARS, _ROW_LINES = 20_000, 100
"""Characters and lines of one row at most."""


class _Table(msgspec.Struct, frozen=True):
    """The head of a table: what separates its cells, how many there are, where they stand in the line, which of them
    name secrets and how strongly; `sure` of a head that is no sentence and no code. `named`: columns of names and of
    their values; `leads`: it names the first column alone."""

    separator: str
    count: int
    spans: tuple[tuple[int, int], ...]
    secret: dict[int, int]
    sure: bool
    named: tuple[tuple[int, int], ...] = ()
    leads: bool = False


class Grids(msgspec.Struct, frozen=True):
    """The secrets of tables; the `head` of one that goes on behind the text ("": none), and where the
    row begins that is not whole yet (`opened`; -1: none)."""

    found: list[tuple[str, int, int]]
    head: str = ""
    opened: int = -1
    begun: int = -1


def table_secrets(text: str, low: bytes, places: list[tuple[int, int]]) -> Grids:
    """The secrets that stand below a secret's name in a table of lines, or beside it in a line."""
    more = (*MORE_NEEDLES, b"value")
    heads = sorted([at for at, _ in places] + [at for needle in more for at in places_of(low, needle)])
    found: list[tuple[str, int, int]] = []
    done, open_head, opened = 0, "", -1
    for place in heads:
        if place < done:
            continue
        start = text.rfind("\n", 0, place) + 1
        end = text.find("\n", place)
        closed, end = end >= 0, len(text) if end < 0 else end
        done = end
        if end - start > _HEAD_CHARS:
            continue
        line = text[start:end]
        if beside := _beside(line):
            found += [(KIND, start + first, start + last) for first, last in beside]
            continue
        table = _head(line)
        if table is None or not closed:
            continue
        if table.count == 1 and table.secret and _names_the_index(text, start, line):
            table = msgspec.structs.replace(table, leads=True)
        elif _is_row_of_more(text, start, line, table):
            continue
        at, stray, rows = end + 1, 0, 0
        open_head, opened = text[text.rfind("\n", 0, start - 1) + 1 : end] if table.leads else line, -1
        while at < len(text):
            stop = text.find("\n", at)
            stop = len(text) if stop < 0 else stop
            whole = _row_end(text, at, stop) if table.separator in "\t,;" else stop
            if whole < 0:
                opened, whole = at if opened < 0 else opened, stop
            cells = _below(text[at:whole], table) if whole - at <= _ROW_CHARS else None
            if cells is not None:
                stop = whole
            elif whole > stop:
                cells = _below(text[at:stop], table)
            if cells is None:
                stray += 1
                if stray > (_STRAY if table.count > 1 else 0) or stop == at or (not rows and not table.sure):
                    if opened >= 0:
                        at = stop + 1
                        continue
                    open_head = ""
                    break
            else:
                stray, rows = 0, rows + 1
                found += [(kind, at + first, at + last) for kind, first, last in cells]
                done = stop
            at = stop + 1
    return Grids(found, open_head, opened)


def _row_end(text: str, at: int, stop: int) -> int:
    """Where the row that begins at `at` ends: its line's end, or behind the line that closes its last quote; -1 where
    that may be behind the text."""
    if text.count('"', at, stop) % 2 == 0:
        return stop
    end = stop
    for _ in range(_ROW_LINES):
        begin = end + 1
        if begin - at > _ROW_CHARS:
            return stop
        if begin > len(text):
            return -1
        end = text.find("\n", begin)
        end = len(text) if end < 0 else end
        if text.count('"', begin, end) % 2:
            return end
    return stop


def _head(line: str) -> _Table | None:
    """The line as the head of a table with a secret's column; None when it is none."""
    line, shift = unprefixed(line)
    latex = "&" in line and line.rstrip().endswith("\\\\")
    if _NO_HEAD.search(line.replace("\\", "") if latex else line):
        return None
    for separator in ("&",) if latex else ("\t", "|", ",", ";", " "):
        if separator == "|" and not _BARS.search(line):
            continue
        if separator in "\t,;" and separator not in line:
            continue
        if separator == "," and (line.endswith((",", ", ")) or (", " in line and re.search("[\"'`]", line))):
            continue  # code
        spans = _cells(line, separator)
        names = [line[first:last].replace("\\", "") for first, last in spans]
        if len(names) < 2 and not (separator == " " and names and ALONE.fullmatch(names[0])):
            continue
        if any(_NUMBER.fullmatch(name) for name in names):
            return None  # a row
        if not all(_HEAD_CELL.fullmatch(name) for name in names):
            continue
        wide = separator != " " or "  " in line.strip()
        if not wide and (len(names) > 8 or not all(map(str.isidentifier, names)) or any(map(iskeyword, names))):
            continue  # a sentence, or code
        if not wide and not name_strength(names[-1]) and not any(name.lower() in _BESIDE for name in names):
            continue  # "Secret Garden"
        secret = _secret_columns(names)
        named = tuple(
            (at, at + 1)
            for at, name in enumerate(names[:-1])
            if name.lower() in _NAMING and names[at + 1].lower() == "value"
        )
        if not secret and not named:
            continue
        sure = separator in "\t|;&" or (separator == "," and ", " not in line) or (separator == " " and wide)
        return _Table(
            separator, len(names), tuple((first + shift, last + shift) for first, last in spans), secret, sure, named
        )
    return None


def _secret_columns(names: list[str]) -> dict[int, int]:
    """Which of these columns hold secrets, and how strongly their names say so."""
    return {
        at: strength
        for at, name in enumerate(names)
        if _NAME_CELL.fullmatch(name) and name.count(" ") < 3 and name.lower() not in ("key", "keys", "salt")
        and (strength := name_strength(name))
    }  # fmt: skip


def _names_the_index(text: str, start: int, line: str) -> bool:
    """Whether the line holds only the name of a printed frame's index: it is as wide as the one above, which is blank
    there."""
    above = text[text.rfind("\n", max(0, start - _HEAD_CHARS), max(0, start - 1)) + 1 : max(0, start - 1)]
    name = line.rstrip()
    return len(name) < len(line) == len(above) and not above[: len(name)].strip() and bool(above.strip())


def _is_row_of_more(text: str, start: int, line: str, table: _Table) -> bool:
    """Whether the line at `start` that looks like a head stands below another line of the same table."""
    if _FIRST.search(line[: unprefixed(line)[1]]):
        return False
    for _ in range(2):  # a border may stand above a head
        stop = start - 1
        start = text.rfind("\n", max(0, stop - _HEAD_CHARS), stop) + 1 if stop > 0 else 0
        above = unprefixed(text[start:stop])[0] if 0 < stop - start <= _HEAD_CHARS else ""
        if not above.strip() or above.rstrip().endswith((":", "：")):
            return False
        if not _RULE.fullmatch(above):
            break
        if table.separator == "|" and _BARS.search(above):
            return True
    if table.count == 1:
        return not _RULE.fullmatch(above)
    cells = _cells(above, table.separator)
    if table.separator != " ":
        if cells and not above[slice(*cells[0])] and not line[slice(*table.spans[0])].strip():
            return False  # the names of columns in two lines, none above the index
        spaced = table.separator == "," and any(above[first - 1] == " " for first, _ in cells if first)
        return len(cells) == table.count and not spaced
    wide = "  " in above.strip()
    if table.sure and len(above.rstrip()) == len(unprefixed(line)[0].rstrip()):
        return True  # aligned with it
    if wide != ("  " in unprefixed(line)[0].strip()) or above.endswith("."):
        return False
    return abs(len(cells) - table.count) <= 1 if wide else len(cells) == table.count and bool(_DIGIT.search(above))


def _cells(line: str, separator: str) -> list[tuple[int, int]]:
    """Where the cells of a line stand, without blanks and quotes around them."""
    spans: list[tuple[int, int]] = []
    if separator == " ":
        wide = "  " in line.strip()
        spans = [found.span() for found in (_GAPS if wide else re.compile(r"\S+")).finditer(line)]
    elif separator == "|":
        at = 0
        for bar in _BARS.finditer(line):
            spans.append((at, bar.start()))
            at = bar.end()
        spans.append((at, len(line)))
        spans = spans[1:] if not line[slice(*spans[0])].strip() else spans
        spans = spans[:-1] if spans and not line[slice(*spans[-1])].strip() else spans
    else:
        at = 0
        while at <= len(line):
            stop = -1
            if line.startswith('"', at):
                close = line.find('"', at + 1)
                while 0 <= close < len(line) - 1 and line[close + 1] == '"':
                    close = line.find('"', close + 2)
                stop = line.find(separator, close) if close > 0 else -1
            elif line.startswith(SECRET, at):
                stop = line.find(separator, max(at, line.find("]", at)))
            else:
                stop = line.find(separator, at)
            stop = len(line) if stop < 0 else stop
            spans.append((at, stop))
            at = stop + 1
    around = {" ": "", "|": " \t`*", "\t": ' "'}.get(separator, " \"'")
    made = []
    for first, last in spans:
        cell = line[first:last]
        first += len(cell) - len(cell.lstrip(around)) if around else 0
        made.append((first, first + len(cell.strip(around) if around else cell)))
    return made


def _below(line: str, table: _Table) -> list[tuple[str, int, int]] | None:
    """The secrets of a row; None for a line that is no row of the table."""
    line, shift = unprefixed(line)
    if not line.strip():
        return None
    if _RULE.fullmatch(line):
        return []
    if table.separator == "&" and line.lstrip().startswith("\\"):
        return []  # a rule
    spans = _cells(line, table.separator)
    chosen: list[tuple[int, tuple[int, int]]] = []
    if table.leads:
        if "  " not in line.strip():
            return None
        first = len(line) - len(line.lstrip())
        chosen = [(2, (first, line.find(" ", first) if " " in line[first:] else len(line)))]
    elif table.separator != " ":
        if len(spans) != table.count:
            return None
        chosen = [(strength, spans[at]) for at, strength in table.secret.items()]
        chosen += _named(line, spans, table.named)
    else:
        more = len(spans) - table.count  # one more: the index of a printed table
        if more not in (0, 1):
            spans = [found.span() for found in re.finditer(r"\S+", line)]
            more = len(spans) - table.count
        if more in (0, 1):
            chosen = _named(line, spans[more:], table.named)
        for at, strength in table.secret.items():
            if more in (0, 1) and table.count > 1:
                chosen.append((strength, spans[at + more]))
            elif table.count == 1 and len(spans) == 1:
                chosen.append((strength, spans[0]))
            else:
                first, last = table.spans[at]
                chosen += [(strength, (a, b)) for a, b in spans if a + shift < last and b + shift > first]
        if not chosen and (table.secret or more not in (0, 1)):
            return None
    if table.count == 1 and table.separator == " " and len(spans) > 2 and not table.leads:
        return None
    found: list[tuple[str, int, int]] = []
    for strength, (first, last) in chosen:
        value = line[first:last]
        if "=" in value and (";" in value or strength == 1) and (pieces := list(cookie_values(line, first, last))):
            found += [("a cookie", start + shift, end + shift) for start, end in pieces]
            continue
        if is_value(value, strength, sure=table.leads or (table.sure and table.count > 1)):
            found.append((KIND, first + shift, last + shift))
    return found


def _named(
    line: str, spans: list[tuple[int, int]], columns: tuple[tuple[int, int], ...]
) -> list[tuple[int, tuple[int, int]]]:
    """The values in a row whose cell before them is a secret's name."""
    return [
        (2, spans[value])
        for name, value in columns
        if _is_name(line[slice(*spans[name])]) and not _NUMBER.fullmatch(line[slice(*spans[value])])
    ]


def _is_name(cell: str) -> bool:
    """Whether a cell as a whole is the name of a secret."""
    return len(cell) <= 41 and _NAME_CELL.fullmatch(cell) is not None and name_strength(cell) == 2


def opens_beside(line: str) -> bool:
    """Whether the line's first cell is a secret's name, so that what stands beside it may be one."""
    bare, _ = unprefixed(line)
    for separator in ("\t", "|", ",", " "):
        if separator in bare and (separator != " " or "  " in bare.lstrip()):
            spans = _cells(bare if separator != " " else f"{bare.rstrip()}  x", separator)
            if len(spans) > 1 and _is_name(bare[slice(*spans[0])]):
                return True
    return False


def open_group(text: str) -> int:
    """Where a list or a row of HTML begins that has not ended, near the text's end; the text's length for none."""
    low = max(0, len(text) - _HEAD_CHARS)
    start = max(text.rfind("[", low), text.rfind("(", low))
    rest = text[start + 1 :]
    if start >= 0 and ("]" in rest or ")" in rest or not ('"' in rest or "'" in rest or not rest.strip())):
        start = -1
    row = text.rfind("<tr", low)
    if row >= 0 and text.find("</tr", row) >= 0:
        row = -1
    if start >= 0:  # with the key that it stands behind
        start = max(text.rfind("\n", 0, start) + 1, start - 60)
    return min((at for at in (start, row) if at >= 0), default=len(text))


def _beside(line: str) -> list[tuple[int, int]]:
    """The secrets in a line of cells whose first one names them, as in a printed Series or a frame on its side."""
    bare, shift = unprefixed(line)
    if len(bare) > 600:
        return []
    for separator in ("\t", "|", " ", ","):
        if separator not in bare or (separator == " " and "  " not in bare.strip()):
            continue
        spans = _cells(bare, separator)
        if len(spans) < (3 if separator == "," else 2):
            continue
        name, *values = (bare[first:last] for first, last in spans)
        strength = name_strength(name) if _NAME_CELL.fullmatch(name) else 0
        if len(values) > 1 and strength < 2:
            continue
        names_another = any(_NAME_CELL.fullmatch(value) is not None and name_strength(value) for value in values)
        if strength and not names_another and all(is_value(value, strength, sure=False) for value in values):
            return [(first + shift, last + shift) for first, last in spans[1:]]
    return []


# ---------------------------------------------------------------------- lists, objects, HTML, strings

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
        low = max(done, seen, at - _HEAD_CHARS)
        start = max(text.rfind("[", low, at), text.rfind("(", low, at))
        if start < 0:
            seen = at
            continue
        seen = start + 1
        names = _NAMES.match(text, start, min(len(text), start + _HEAD_CHARS))
        if names is None or names.end() <= at:
            continue
        spans = [_trimmed(text, *each.span()) for each in _ONE_NAME.finditer(text, start + 1, names.end() - 1)]
        cells = [text[first:last] for first, last in spans]
        secret = _secret_columns(cells)
        if not secret or any(_NUMBER.fullmatch(cell) for cell in cells):
            continue
        head, opened, begun, done = "", -1, -1, names.end()
        keyed = _KEYED.search(text, max(0, start - 60), start)
        if keyed is not None:
            before = _last_rows(text, max(behind, start - _ROWS_WITHIN), start)
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


def _last_rows(text: str, low: int, stop: int) -> int:
    """Where rows begin before the names of their columns; -1 when they do not."""
    at = max(text.rfind(word, low, stop) for word in ('"data"', "'data'", '"rows"', "'rows'", "DataFrame("))
    rows = _ROWS_KEY.match(text, at, stop) if at >= 0 else None
    return rows.end() if rows is not None else -1


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
            for place, strength in secret.items():
                first, last = _trimmed(text, *cells[place])
                if is_value(text[first:last], strength, sure=True):
                    found.append((KIND, first, last))
        at = token.end()


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
        spans = _cells(text[at:stop], "\t")
        if len(spans) != count:
            at = len(text) if opened >= 0 else at
            break
        for place, strength in secret.items():
            first, last = at + spans[place][0], at + spans[place][1]
            if is_value(text[first:last], strength, sure=True):
                found.append((KIND, first, last))
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
                if all(_HEAD_CELL.fullmatch(each) for each in said) and (heading or _secret_columns(said)):
                    names, secret = (said, _secret_columns(said)) if heading or not names else (names, secret)
            elif secret and len(said) == len(names):
                for place, strength in secret.items():
                    _, begin, end = cells[place]
                    if is_value(text[begin:end], strength, sure=True):
                        found.append((KIND, begin, end))
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
    low = text[row : row + _ROW_CHARS].lower() if row >= 0 else ""
    held = row if secret or any(needle.decode() in low for needle in NEEDLES) else -1
    return Grids(found, head, held)


def _beside_in(said: list[str], kind: str) -> bool:
    """Whether a row's first cell names what its others hold."""
    return (
        len(said) > 1
        and _is_name(said[0])
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
            begin = text.rfind("Index([", max(done, at - _ROW_CHARS), at)
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
