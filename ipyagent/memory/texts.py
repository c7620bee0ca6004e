"""The text of a memory and the bytes of its file."""

from __future__ import annotations

from hashlib import sha256

import msgspec

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
    fields = dict(headed.fields)
    first = next((line for line in headed.body.split("\n") if line.strip(" #-*>`\t")), "")
    fields.setdefault("name", name.rpartition("/")[2].removesuffix(SUFFIX).replace("_", " "))
    fields.setdefault("description", " ".join(first.strip(" #-*>`\t").split())[:120])
    return write_headed(fields, headed.body)


def text_in(content: bytes) -> Text:
    """The text of a file, as far as it is UTF-8."""
    return Text(decoded(content)[0], digest_of(content))


def encoded(text: str) -> bytes:
    """UTF-8; a surrogate that stands alone is no character and becomes "?"."""
    return text.encode("utf-8", "replace")


def digest_of(content: bytes) -> str:
    """What tells one content from another."""
    return sha256(content).hexdigest()
