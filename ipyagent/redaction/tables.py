"""Secrets that stand below, above or beside their name in tables whose rows are lines."""

from __future__ import annotations

import re
from keyword import iskeyword

import msgspec

from ipyagent.redaction.names import (
    ALONE,
    MORE_NEEDLES,
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
HEAD_CHARS = 4_000
"""A longer line is no head of a table."""
_STRAY = 8
"""Lines in a row that do not fit a table and do not end it yet."""
_NAME_CELL = re.compile(r"[^\W\d][\w .\-]{0,40}")
HEAD_CELL = re.compile(r"[\w .\-/#%°€$£&]{0,60}(?:\([\w /%]{0,20}\))?")
_NO_HEAD = re.compile(r"[=:{}<>\[\]!?\\@]")
_BESIDE = frozenset(("user", "users", "username", "login", "name", "email", "mail", "host", "account", "id", "role"))
"""What stands beside a password in a table whose columns are parted by one blank."""
NUMBER = re.compile(r"[+\-]?\d[\d.,]*%?|(?i:nan|none|null|<na>|true|false)")
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
ROW_CHARS, _ROW_LINES = 20_000, 100
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
        if end - start > HEAD_CHARS:
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
            cells = _below(text[at:whole], table) if whole - at <= ROW_CHARS else None
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
        if begin - at > ROW_CHARS:
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
        spans = cells_of(line, separator)
        names = [line[first:last].replace("\\", "") for first, last in spans]
        if len(names) < 2 and not (separator == " " and names and ALONE.fullmatch(names[0])):
            continue
        if any(NUMBER.fullmatch(name) for name in names):
            return None  # a row
        if not all(HEAD_CELL.fullmatch(name) for name in names):
            continue
        wide = separator != " " or "  " in line.strip()
        if not wide and (len(names) > 8 or not all(map(str.isidentifier, names)) or any(map(iskeyword, names))):
            continue  # a sentence, or code
        if not wide and not name_strength(names[-1]) and not any(name.lower() in _BESIDE for name in names):
            continue  # "Secret Garden"
        secret = secret_columns(names)
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


def secret_columns(names: list[str]) -> dict[int, int]:
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
    above = text[text.rfind("\n", max(0, start - HEAD_CHARS), max(0, start - 1)) + 1 : max(0, start - 1)]
    name = line.rstrip()
    return len(name) < len(line) == len(above) and not above[: len(name)].strip() and bool(above.strip())


def _is_row_of_more(text: str, start: int, line: str, table: _Table) -> bool:
    """Whether the line at `start` that looks like a head stands below another line of the same table."""
    if _FIRST.search(line[: unprefixed(line)[1]]):
        return False
    for _ in range(2):  # a border may stand above a head
        stop = start - 1
        start = text.rfind("\n", max(0, stop - HEAD_CHARS), stop) + 1 if stop > 0 else 0
        above = unprefixed(text[start:stop])[0] if 0 < stop - start <= HEAD_CHARS else ""
        if not above.strip() or above.rstrip().endswith((":", "：")):
            return False
        if not _RULE.fullmatch(above):
            break
        if table.separator == "|" and _BARS.search(above):
            return True
    if table.count == 1:
        return not _RULE.fullmatch(above)
    cells = cells_of(above, table.separator)
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


def cells_of(line: str, separator: str) -> list[tuple[int, int]]:
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
    spans = cells_of(line, table.separator)
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
        if is_name(line[slice(*spans[name])]) and not NUMBER.fullmatch(line[slice(*spans[value])])
    ]


def is_name(cell: str) -> bool:
    """Whether a cell as a whole is the name of a secret."""
    return len(cell) <= 41 and _NAME_CELL.fullmatch(cell) is not None and name_strength(cell) == 2


def opens_beside(line: str) -> bool:
    """Whether the line's first cell is a secret's name, so that what stands beside it may be one."""
    bare, _ = unprefixed(line)
    for separator in ("\t", "|", ",", " "):
        if separator in bare and (separator != " " or "  " in bare.lstrip()):
            spans = cells_of(bare if separator != " " else f"{bare.rstrip()}  x", separator)
            if len(spans) > 1 and is_name(bare[slice(*spans[0])]):
                return True
    return False


def open_group(text: str) -> int:
    """Where a list or a row of HTML begins that has not ended, near the text's end; the text's length for none."""
    low = max(0, len(text) - HEAD_CHARS)
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
        spans = cells_of(bare, separator)
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
