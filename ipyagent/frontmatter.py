"""Markdown with YAML frontmatter (python-frontmatter), read leniently: what is wrong is told, with its line, and never
raised.

Our handler makes plain values alone: no tag makes an object, and what aliases would expand to is counted. Dates and
other exotic scalars stay the text that was written. Its `parse` is not used, since that cuts blank lines off a body,
and a file that is written again has to keep them. The only importer of frontmatter and yaml.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Callable
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec

from ipyagent.trust import read_small

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
_RESERVED = frozenset(("true", "false", "null", "yes", "no", "on", "off", "y", "n"))
_YAML = "tag:yaml.org,2002:"
_VALUES: dict[str, tuple[re.Pattern[str], Callable[[str], Any]]] = {
    "null": (re.compile(r"(?:~|null|)\Z", re.I), lambda text: None),
    "bool": (re.compile(r"(?:true|false)\Z", re.I), lambda text: text.lower() == "true"),
    "int": (re.compile(r"[-+]?(?:0|[1-9][0-9]{0,17})\Z"), int),
    "float": (re.compile(r"[-+]?(?:[0-9]{1,9}\.[0-9]{0,9}|\.[0-9]{1,9})(?:[eE][-+]?[0-9]{1,3})?\Z"
                         r"|[-+]?[0-9]{1,9}[eE][-+]?[0-9]{1,3}\Z"), float),
}  # fmt: skip
"""What stands for no text: by its name in YAML the form of it, and what makes the value."""
_TEXT = (re.compile(r"(?!)"), str)
"""No form makes a value of text."""
_BLOCK = re.compile(r"[^\s#\-].*?:(?=\s|$)")


class Headed(msgspec.Struct, frozen=True):
    """`fields` of the header in their order, the text `body` after it (line ends "\\n"), `problems` one line each."""

    fields: dict[str, Any]
    body: str
    problems: tuple[str, ...] = ()
    dotted: bool = False
    """Whether the frontmatter is closed by "...", as YAML allows and other readers do not."""


def read_headed(data: bytes, *, part: bool = False) -> Headed:
    """A file's header and body. Never raises. `part`: these are only the first lines of the file."""
    text, problems = decoded(data, part=part)
    lines = text.split("\n")
    start = next((at for at, line in enumerate(lines) if line.strip()), 0)
    if lines[start].rstrip() != MARK:
        return Headed({}, text, (*problems, 'no frontmatter: the first line is not "---"'))
    if start:
        problems.append(f"line {start + 1}: the frontmatter should begin on the first line")
    end = next((at for at in range(start + 1, len(lines)) if lines[at].rstrip() in (MARK, "...")), 0)
    if not end:
        where = f"in the first {len(lines)} lines" if part else "anywhere"
        return Headed({}, text, (*problems, f'line {start + 1}: the frontmatter has no closing "---" {where}'))
    body = "\n".join(lines[end + 1 :])
    if sum(map(len, lines[start + 1 : end])) > MOST_HEADER:
        return Headed(
            {}, body, (*problems, f"the frontmatter is longer than {MOST_HEADER:,} characters and is not read")
        )
    fields = _quick(lines[start + 1 : end])
    if fields is None:
        from yaml import YAMLError

        try:
            fields, found = _built("\n".join(lines[start + 1 : end]), start + 2)
        except YAMLError:
            fields, found = _by_block(lines[start + 1 : end], start + 2)
        problems += found
    return Headed(fields, body, tuple(problems), dotted=lines[end].rstrip() != MARK)


def write_headed(fields: dict[str, Any], body: str) -> str:
    """The text of a file: the header in the order of `fields`, unknown keys too, then `body` as it is."""
    if not fields and not body.lstrip().startswith(MARK):
        return body
    return f"{MARK}\n{_handler().export(fields)}\n{MARK}\n{body}" if fields else f"{MARK}\n{MARK}\n{body}"


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
    return f"not YAML ({getattr(problem, 'problem', None) or 'a character that is not allowed there'})"


class _Unread(Exception):
    """A header that is not read at all, and why."""


def _built(text: str, first: int) -> tuple[dict[str, Any], list[str]]:
    """Raises YAMLError. `first`: the line of the file that the text begins at."""
    problems: list[str] = []
    try:
        value = _handler().load(text, first=first, problems=problems)
    except _Unread as problem:
        return {}, [*problems, f"{problem}; the frontmatter is not read"]
    if value is not None and not isinstance(value, dict):
        return {}, [*problems, f"line {first}: the frontmatter is not a list of `key: value` lines"]
    return value or {}, problems


@cache
def _handler() -> Any:
    """python-frontmatter's handler of YAML with our way to load and to write; made on use, since it imports yaml."""
    import yaml
    from frontmatter.default_handlers import SafeLoader, YAMLHandler

    class Loader(SafeLoader):  # type: ignore[misc,valid-type] # which of two it is, is known when it runs
        yaml_implicit_resolvers: dict[Any, Any] = {}  # noqa: RUF012 - as yaml has it

    class Dumper(yaml.SafeDumper):  # type: ignore[misc] # the same bytes, with libyaml or without
        """Repeats shared values instead of naming them, and escapes what is no plain character."""

        def ignore_aliases(self, data: object) -> bool:
            return True

    def text(dumper: Any, value: str) -> Any:
        return dumper.represent_scalar(f"{_YAML}str", value, style=None if value.isprintable() else '"')

    for name, (form, _) in _VALUES.items():
        Loader.add_implicit_resolver(f"{_YAML}{name}", form, None)
        Dumper.add_implicit_resolver(f"{_YAML}{name}", form, None)  # text of such a form is written in quotes
    Dumper.add_representer(str, text)

    class Handler(YAMLHandler):
        def load(self, fm: str, **kwargs: Any) -> Any:
            first, problems = kwargs["first"], kwargs["problems"]
            depth = documents = 0
            for event in yaml.parse(fm, Loader=Loader):  # before nodes are made, which takes a call a level
                line = first + event.start_mark.line
                depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
                if depth > MOST_DEPTH:
                    raise _Unread(f"line {line}: more than {MOST_DEPTH} levels deep")
                documents += isinstance(event, yaml.DocumentStartEvent)
                if documents > 1:
                    problems.append(f"line {line}: a second YAML document, left out")
                    break
            loader = Loader(fm)
            try:
                return _Plain(first, problems).value(loader.get_node()) if loader.check_node() else None
            finally:
                loader.dispose()

        def export(self, metadata: dict[str, object], **kwargs: object) -> str:
            return super().export(metadata, Dumper=Dumper, sort_keys=False, width=float("inf"), **kwargs)

    return Handler()


class _Plain:
    """Makes plain values of YAML's nodes. Raises _Unread for what stands for too much."""

    def __init__(self, first: int, problems: list[str]) -> None:
        self._first = first
        self._problems = problems
        self._nodes = 0

    def value(self, node: Any, depth: int = 0) -> Any:
        line = f"line {self._first + node.start_mark.line}"
        self._nodes += 1
        if self._nodes > MOST_NODES:
            raise _Unread(f"{line}: stands for more than {MOST_NODES:,} values")
        if depth > MOST_DEPTH:  # with aliases
            raise _Unread(f"{line}: more than {MOST_DEPTH} levels deep")
        name = node.tag.removeprefix(_YAML)
        if name not in (*_VALUES, "str", "map", "seq", "!"):
            told = node.tag.replace(_YAML, "!!")
            self._problems.append(f"{line}: the tag {told[:60]} is not followed; read as plain values")
        if isinstance(node.value, str):
            form, made = _VALUES.get(name, _TEXT)
            return made(node.value) if form.match(node.value) else _text(node)
        if node.id == "sequence":
            return [self.value(each, depth + 1) for each in node.value]
        found: dict[str, Any] = {}
        for key, value in node.value:
            name = _text(key) if isinstance(key.value, str) else str(self.value(key, depth + 1))
            if name in found:
                at = self._first + value.start_mark.line
                self._problems.append(f"line {at}: {name!r} is there twice; the last one counts")
            found[name] = self.value(value, depth + 1)
        return found


def _text(node: Any) -> str:
    return str(node.value).encode("utf-8", "replace").decode()  # "\ud800" is no character


# ---- The whole text of a file that people wrote for the model.

MOST_CHARS = 40_000
ODD_BYTES = 0.01
"""Share of characters that may be unreadable before a file counts as binary."""
_HIDDEN = re.compile(
    r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\u200b\u2060\u202a-\u202e\u2066-\u2069\ufeff\U000e0000-\U000e007f]"
)
"""Control characters and others that nobody sees but a model reads."""
_OURS = re.compile(r"<(?=/?(?:instructions|memory-index|memory|memories|context)\b)", re.IGNORECASE)


def read_text(path: Path) -> tuple[str, str]:
    """A file's text, at most MOST_CHARS of it, and what is wrong with it; "" for a binary one."""
    most = MOST_CHARS * 4
    data = read_small(path, most + 1)
    if data is None:
        return "", "cannot be read"
    if b"\0" in data:
        return "", "is a binary file and was not loaded"
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    text = decoder.decode(data[:most], final=len(data) <= most).removeprefix("\ufeff")
    odd = text.count("\ufffd")
    if odd > ODD_BYTES * len(text):
        return "", "is not UTF-8 text and was not loaded"
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    problems = ["holds bytes that are not UTF-8"] if odd else []
    bare = without_hidden(text)
    if bare != text:
        problems.append(f"holds {len(text) - len(bare)} invisible characters, which were taken out")
    if len(bare) > MOST_CHARS or len(data) > most:
        problems.append(f"is longer than {MOST_CHARS:,} characters; the rest was not loaded")
        bare = f"{cut_at_line(bare, MOST_CHARS)}\n[cut here: at most {MOST_CHARS:,} characters of a file are loaded]"
    return bare.strip("\n"), "; ".join(problems)


def cut_at_line(text: str, chars: int) -> str:
    """At most so many characters, cut at a line where there is one."""
    head = text[:chars]
    return head if len(text) <= chars else (head[: head.rfind("\n")] if "\n" in head else head)


def without_hidden(text: str) -> str:
    """The text without characters that nobody sees but a model reads."""
    return _HIDDEN.sub("", text)


def guarded(text: str) -> str:
    """The text, unable to open or close one of our elements."""
    return _OURS.sub(r"<\\", text)
