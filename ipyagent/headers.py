"""Markdown with YAML frontmatter, read leniently: what is wrong is told, with its line, and never raised.

Values are built from YAML's events alone: no tag makes an object, and what aliases would expand to is
counted before it is used. Dates and other exotic scalars stay the text that was written. The only importer
of yaml.
"""

from __future__ import annotations

import re
from itertools import pairwise
from typing import Any

import msgspec

MARK = "---"
MOST_HEADER = 64_000
"""Characters of a header; a longer one is not read."""
MOST_NODES = 2_000
"""Values in a header, those that aliases repeat counted each time."""
MOST_DEPTH = 20
_QUICK = re.compile(
    r"([A-Za-z_][A-Za-z0-9_-]*):[ ]+"
    r"(?:\"([^\"\\\n]*)\"|'([^'\n]*)'|([^\W\d_](?:[^\n:#]|:(?=\S)|(?<=\S)#)*+))[ ]*"
)
"""One `key: text` line; the text begins with a letter, so it can be no number, date or sign of YAML."""
_WORDS = {"true": True, "false": False, "null": None}
_RESERVED = frozenset(("true", "false", "null", "yes", "no", "on", "off", "y", "n"))
_INT = re.compile(r"[-+]?(0|[1-9][0-9]*)")
_FLOAT = re.compile(r"[-+]?([0-9]+\.[0-9]*|\.[0-9]+)([eE][-+]?[0-9]+)?|[-+]?[0-9]+[eE][-+]?[0-9]+")
_BLOCK = re.compile(r"[^\s#\-].*?:(?=\s|$)")


class Headed(msgspec.Struct, frozen=True):
    """`fields` of the header in their order, the text `body` after it (line ends "\\n"), `problems` one line each."""

    fields: dict[str, Any]
    body: str
    problems: tuple[str, ...] = ()
    dotted: bool = False
    """Whether the header is closed by "...", as YAML allows and other readers do not."""


def read_headed(data: bytes, *, part: bool = False) -> Headed:
    """A file's header and body. Never raises. `part`: these are only the first lines of the file."""
    text, problems = decoded(data, part=part)
    lines = text.split("\n")
    start = next((at for at, line in enumerate(lines) if line.strip()), 0)
    if lines[start].rstrip() != MARK:
        return Headed({}, text, (*problems, 'no header: the first line is not "---"'))
    if start:
        problems.append(f"line {start + 1}: the header should be the first line")
    end = next((at for at in range(start + 1, len(lines)) if lines[at].rstrip() in (MARK, "...")), 0)
    if not end:
        where = f"in the first {len(lines)} lines" if part else "anywhere"
        return Headed({}, text, (*problems, f'line {start + 1}: the header has no closing "---" {where}'))
    body = "\n".join(lines[end + 1 :])
    if sum(map(len, lines[start + 1 : end])) > MOST_HEADER:
        return Headed({}, body, (*problems, f"the header is longer than {MOST_HEADER:,} characters and is not read"))
    fields = _quick(lines[start + 1 : end])
    if fields is None:
        fields, found = _parsed(lines[start + 1 : end], start + 2)
        problems += found
    return Headed(fields, body, tuple(problems), dotted=lines[end].rstrip() != MARK)


def write_headed(fields: dict[str, Any], body: str) -> str:
    """The text of a file: the header in the order of `fields`, unknown keys too, then `body` as it is."""
    if not fields and not body.lstrip().startswith(MARK):
        return body
    import yaml

    header = ""
    if fields:
        header = yaml.dump(
            fields, Dumper=_plain(), sort_keys=False, allow_unicode=True, default_flow_style=False, width=float("inf")
        )
    return f"{MARK}\n{header}{MARK}\n{body}"


def _plain() -> Any:
    """A dumper that repeats shared values instead of naming them, and escapes what is no plain character."""
    import yaml

    class Plain(yaml.SafeDumper):  # type: ignore[misc]  # yaml has no types
        def ignore_aliases(self, data: object) -> bool:
            return True

    def text(dumper: Any, value: str) -> Any:
        return dumper.represent_scalar("tag:yaml.org,2002:str", value, style=None if value.isprintable() else '"')

    Plain.add_representer(str, text)
    return Plain


def decoded(data: bytes, *, part: bool = False) -> tuple[str, list[str]]:
    """The text with "\\n" for line ends and no byte order mark, and what was odd about the bytes."""
    problems = []
    if data.startswith((b"\xff\xfe", b"\xfe\xff")):
        problems.append("line 1: UTF-16, not UTF-8")
        text = data.decode("utf-16", "replace")
    else:
        if data.startswith(b"\xef\xbb\xbf"):
            data = data[3:]
            problems.append("line 1: begins with a byte order mark (read all the same)")
        try:
            text = data.decode("utf-8")
        except UnicodeDecodeError as problem:
            text = data.decode("utf-8", "replace")
            if not (part and problem.start >= len(data) - 3):  # a character that was cut at the end of the part
                line = data.count(b"\n", 0, problem.start) + 1
                problems.append(f"line {line}: not UTF-8 (byte 0x{data[problem.start]:02x})")
    if "\r" in text:
        line = text.count("\n", 0, text.index("\r")) + 1
        problems.append(f"line {line}: Windows line ends (read all the same)")
        text = text.replace("\r\n", "\n").replace("\r", "\n")
    return text, problems


def _quick(lines: list[str]) -> dict[str, Any] | None:
    """A header of plain `key: text` lines; None when it needs YAML. What is taken here YAML reads the same."""
    fields: dict[str, Any] = {}
    for line in lines:
        found = _QUICK.fullmatch(line)
        if found is None or found[1] in fields or found[1].lower() in _RESERVED or not line.isprintable():
            return None
        plain = found[4]
        if plain is None:
            fields[found[1]] = found[2] if found[2] is not None else found[3]
        elif plain.rstrip().lower() in _RESERVED or plain.rstrip().endswith(":"):
            return None
        else:
            fields[found[1]] = plain.rstrip()
    return fields


def _parsed(lines: list[str], first: int) -> tuple[dict[str, Any], list[str]]:
    """Fields and problems of a header whose first line is line `first` of its file."""
    from yaml import YAMLError

    try:
        return _built("\n".join(lines), first)
    except YAMLError:
        return _by_block(lines, first)


def _by_block(lines: list[str], first: int) -> tuple[dict[str, Any], list[str]]:
    """Each key by itself: where YAML fails, the value is taken as the text it is."""
    from yaml import YAMLError

    fields: dict[str, Any] = {}
    problems: list[str] = []
    starts = [at for at, line in enumerate(lines) if _BLOCK.match(line)]
    for at, line in enumerate(lines[: starts[0] if starts else None]):
        if line.strip() and not line.lstrip().startswith("#"):
            problems.append(f"line {first + at}: no `key: value`, left out")
    for at, after in pairwise([*starts, len(lines)]):
        block = lines[at:after]
        try:
            found, told = _built("\n".join(block), first + at)
        except YAMLError as problem:
            key, _, value = block[0].partition(":")
            text = "\n".join([value.strip(), *(line.strip() for line in block[1:])]).strip()
            found = {key.strip().strip("\"'"): text}
            told = [f"line {first + at}: {_why(problem, block[0])}; taken as text"]
        problems += told
        for key, value in found.items():
            if key in fields:
                problems.append(f"line {first + at}: {key!r} is there twice; the last one counts")
            fields[key] = value
    return fields, problems


def _why(problem: Exception, line: str) -> str:
    if "\t" in line:
        return "a tab where YAML wants spaces"
    if ": " in line.partition(":")[2]:
        return "an unquoted value with a colon"
    return f"not YAML ({getattr(problem, 'problem', None) or 'a character that cannot stand there'})"


def _built(text: str, first: int) -> tuple[dict[str, Any], list[str]]:
    """Raises YAMLError. `first`: the line of the file that the text begins at."""
    import yaml

    built = _Builder(first)
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    for event in yaml.parse(text, Loader=loader):
        if not built.take(event):
            break
    if built.value is None:
        return {}, built.problems
    if not isinstance(built.value, dict):
        return {}, [*built.problems, f"line {first}: the header is no list of `key: value` lines"]
    return built.value, built.problems


class _Open:
    """A mapping or sequence that is being read; `key` the last key of a mapping that waits for its value."""

    def __init__(self, anchor: str | None, into: dict[str, Any] | list[Any]) -> None:
        self.anchor = anchor
        self.into = into
        self.key: str | None = None
        self.nodes = 1


class _Builder:
    """Builds plain values from YAML events, without recursion."""

    def __init__(self, first: int) -> None:
        self.value: Any = None
        self.problems: list[str] = []
        self._first = first
        self._open: list[_Open] = []
        self._anchors: dict[str, tuple[Any, int]] = {}
        self._documents = 0

    def take(self, event: Any) -> bool:
        """Take the next event; whether to go on."""
        line = self._first + event.start_mark.line if event.start_mark else self._first
        match type(event).__name__:
            case "ScalarEvent":
                return self._add(self._scalar(event, line), 1, event.anchor, line)
            case "MappingStartEvent" | "SequenceStartEvent" as kind:
                self._untagged(event, line)
                if len(self._open) >= MOST_DEPTH:
                    return self._stop(line, f"more than {MOST_DEPTH} levels deep")
                self._open.append(_Open(event.anchor, {} if kind == "MappingStartEvent" else []))
            case "MappingEndEvent" | "SequenceEndEvent":
                done = self._open.pop()
                return self._add(done.into, done.nodes, done.anchor, line)
            case "AliasEvent":
                if event.anchor not in self._anchors:
                    self.problems.append(f"line {line}: *{event.anchor} stands for nothing")
                    return self._add(f"*{event.anchor}", 1, None, line)
                value, nodes = self._anchors[event.anchor]
                return self._add(value, nodes, None, line)
            case "DocumentStartEvent" if self._documents:
                self.problems.append(f"line {line}: a second YAML document, left out")
                return False
            case "DocumentStartEvent":
                self._documents += 1
            case _:
                pass
        return True

    def _add(self, value: Any, nodes: int, anchor: str | None, line: int) -> bool:
        if anchor:
            self._anchors[anchor] = (value, nodes)
        if not self._open:
            self.value = value
            return True
        place = self._open[-1]
        place.nodes += nodes
        if place.nodes > MOST_NODES:
            return self._stop(line, f"stands for more than {MOST_NODES:,} values")
        if isinstance(place.into, list):
            place.into.append(value)
        elif place.key is None:
            place.key = value if isinstance(value, str) else str(value)
        else:
            if place.key in place.into:
                self.problems.append(f"line {line}: {place.key!r} is there twice; the last one counts")
            place.into[place.key] = value
            place.key = None
        return True

    def _scalar(self, event: Any, line: int) -> Any:
        self._untagged(event, line)
        text = str(event.value).encode("utf-8", "replace").decode()  # "\\ud800" is no character
        as_key = self._open and isinstance(self._open[-1].into, dict) and self._open[-1].key is None
        if as_key or event.style or event.tag is not None:  # a plain scalar's style is None or ""
            return text
        if text in ("", "~"):
            return None
        if text.lower() in _WORDS:
            return _WORDS[text.lower()]
        if _INT.fullmatch(text) and len(text) < 20:
            return int(text)
        return float(text) if _FLOAT.fullmatch(text) and len(text) < 30 else text

    def _untagged(self, event: Any, line: int) -> None:
        if event.tag is not None and event.tag not in ("!", "tag:yaml.org,2002:str"):
            tag = event.tag.replace("tag:yaml.org,2002:", "!!")
            self.problems.append(f"line {line}: the tag {tag[:60]} is not followed; read as plain values")

    def _stop(self, line: int, why: str) -> bool:
        self.value = None
        self.problems.append(f"line {line}: {why}; the header is not read")
        return False
