"""The text of a memory and the bytes of its file."""

from __future__ import annotations

import re
from collections.abc import Mapping
from hashlib import sha256
from typing import Any

import msgspec

from ipyagent.errors import MemoryRefused
from ipyagent.headers import decoded, read_headed, write_headed
from ipyagent.memory.names import SUFFIX


class Text(msgspec.Struct, frozen=True):
    """A memory's text (line ends "\n", no byte order mark) and the digest of its bytes."""

    text: str
    digest: str


def readable(name: str, content: bytes) -> str | None:
    """The text with a header that every reader of YAML understands; None when a person has to look at it."""
    headed = read_headed(content)
    if any("UTF-8" in problem or "no closing" in problem for problem in headed.problems):
        return None
    return write_headed(described(name, headed.fields, headed.body), headed.body)


def described(name: str, fields: Mapping[str, Any], body: str) -> dict[str, Any]:
    """The fields of a header with a name and a description in any case."""
    first = next((line for line in body.split("\n") if line.strip(" #-*>`\t")), "")
    made = dict(fields)
    made.setdefault("name", name.rpartition("/")[2].removesuffix(SUFFIX).replace("_", " "))
    made.setdefault("description", " ".join(first.strip(" #-*>`\t").split())[:120])
    return made


KEPT = ("source", "said", "session", "turn", "recorded")
"""What of a header is kept by code alone."""
_WHERE = re.compile(r"line \d+: ")


def header_lines(text: str) -> int:
    """The number of lines that the header of a memory takes; 0 without one."""
    body = read_headed(text.encode("utf-8", "replace")).body
    if not body:
        return text.count("\n") + (not text.endswith("\n")) if text else 0
    return text.count("\n", 0, len(text) - len(body))


def check_edit(path: str, before: str, after: str) -> None:
    """Raises MemoryRefused ("header", "unchanged") for an edit that would not stay: it says nothing new but what
    code keeps, or leaves a header out of which something would be lost."""
    old, new = (read_headed(text.encode("utf-8", "replace")) for text in (before, after))
    known = {_WHERE.sub("", problem) for problem in old.problems}
    comments = [text[: len(text) - len(headed.body)].count("\n#") for text, headed in ((before, old), (after, new))]
    wrong = next((problem for problem in new.problems if _WHERE.sub("", problem) not in known), "")
    if comments[1] > comments[0]:
        wrong = wrong or "a comment in the frontmatter is not kept"
    if wrong:
        told = f"{path} was not changed: its frontmatter would be broken ({wrong}): put text behind the second ---"
        raise MemoryRefused(told, reason="header")
    if new.body == old.body and _own(new.fields) == _own(old.fields):
        marks = f"; {', '.join(KEPT)} are kept by ipyagent" if after != before else ""
        raise MemoryRefused(f"{path} was not changed: the edit leaves it as it is{marks}", reason="unchanged")


def _own(fields: dict[str, Any]) -> list[tuple[str, Any]]:
    return [(key, value) for key, value in fields.items() if key not in KEPT]


def text_in(content: bytes) -> Text:
    """The text of a file, as far as it is UTF-8."""
    return Text(decoded(content)[0], digest_of(content))


def encoded(text: str) -> bytes:
    """UTF-8; a surrogate that stands alone is no character and becomes "?"."""
    return text.encode("utf-8", "replace")


def digest_of(content: bytes) -> str:
    """What tells one content from another."""
    return sha256(content).hexdigest()


def word_of(value: object) -> str:
    """A field of a header as text, "" for anything else."""
    return value.strip() if isinstance(value, str) else ""
