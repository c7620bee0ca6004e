"""The text of a memory and the bytes of its file."""

from __future__ import annotations

import re
from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any

import msgspec

from ipyagent.errors import MemoryRefused
from ipyagent.headers import Headed, decoded, read_headed, write_headed
from ipyagent.memory.names import SUFFIX
from ipyagent.project import home_variable
from ipyagent.trust import is_signed, signature


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


def said_below(text: str) -> str:
    """What a memory says below its header, or its description where nothing stands there; spaces do not count."""
    headed = read_headed(encoded(text))
    return " ".join((headed.body.strip() or word_of(headed.fields.get("description"))).split())


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


def renamed_header(headed: Headed, old: str, new: str) -> dict[str, str]:
    """The header's name after a file got another one, if it was that of the file; else nothing."""
    was, now = (each.rpartition("/")[2].removesuffix(SUFFIX) for each in (old, new))
    names = {was: now, was.replace("_", " "): now.replace("_", " ")}
    name = names.get(word_of(headed.fields.get("name")))
    return {} if name is None else {"name": name}


BETWEEN = " … "
RECORDED = "recorded"
"""The header's key for the record that a memory is the user's word."""


class Records:
    """What this user's own folder says of memories: which are the user's word. What a file in a project says of itself
    is a claim; the record is a signature of what it says (type, name, description, the user's words, body), so that
    a memory keeps it wherever the project is moved to, and loses it with any change from outside."""

    def __init__(self, user: Path) -> None:
        self._user = user

    def __repr__(self) -> str:
        return f"<Records in {self._user}>"

    def made(self, fields: Mapping[str, Any], body: str) -> str:
        """The record of a memory, for its header. Raises MemoryRefused ("disk") when there is no place for a key."""
        try:
            return signature(self._user, "memory", _signed(fields, body))
        except OSError as problem:
            told = (
                f"that a memory is the user's word cannot be recorded in {self._user} ({problem.strerror or problem}; "
                f"{home_variable()}): free some space there, or set IPYAGENT_HOME to a folder of yours"
            )
            raise MemoryRefused(told, reason="disk") from None

    def sealed(self, fields: Mapping[str, Any], body: str) -> str:
        """The text, with a record that it is the user's word if it is. Raises as `made`."""
        kept = {key: value for key, value in fields.items() if key != RECORDED}
        if kept.get("source") == "said":
            kept[RECORDED] = self.made(kept, body)
        return write_headed(kept, body)

    def holds(self, content: bytes) -> bool:
        """Whether a memory, its whole content, was recorded as the user's word."""
        headed = read_headed(content)
        given = headed.fields.get(RECORDED)
        return isinstance(given, str) and is_signed(self._user, "memory", _signed(headed.fields, headed.body), given)


def _signed(fields: Mapping[str, Any], body: str) -> bytes:
    whole = described("", fields, body)  # %memory doctor adds what is missing
    told = [str(whole.get(key) or "") for key in ("type", "name", "description")]
    return msgspec.json.encode([*told, said_words(fields), body.strip()])


def said_words(fields: Mapping[str, Any]) -> list[str]:
    """The user's words that a header keeps as evidence, in one line with an ellipsis between the pieces."""
    given = fields.get("said")
    pieces = given if isinstance(given, list) else str(given or "").split(BETWEEN)
    return [str(each) for each in pieces if each]
