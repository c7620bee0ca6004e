"""What looks like a secret is taken out of a text before the transcript knows it and the model can read it. The
same text always gives the same, and what was taken out once stays as it is."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable

from ipyagent.journal.events import Block
from ipyagent.kernel.masking import secret_mark
from ipyagent.memory.secret_places import secrets_in

_ARTICLE = re.compile(r"^(?:an?|the) ")


class Redactor:
    """Calling it gives the text without its secrets. `on` tells whether the user wants that, `notice` takes the
    one line that says that it was done."""

    def __init__(self, on: Callable[[], bool], notice: Callable[[str], None]) -> None:
        self._on, self._notice = on, notice
        self._told = False

    def __repr__(self) -> str:
        return f"<Redactor {'on' if self._on() else 'off'}>"

    def __call__(self, text: str) -> str:
        if not self._on():
            return text
        made, kinds = redacted(text)
        if kinds and not self._told:
            self._told = True
            self._notice(
                f"what looks like a secret ({kinds[0]}) was left out of what the model gets: "
                f"[secret: …] stands in its place; IPyAgent.redact_secrets = False sends it"
            )
        return made


def redacted(text: str) -> tuple[str, list[str]]:
    """The text with a mark for each secret, and their kinds in order."""
    found = secrets_in(text)
    if not found:
        return text, []
    parts: list[str] = []
    kinds: list[str] = []
    at = 0
    for kind, start, end in found:
        kind = _ARTICLE.sub("", kind)
        parts += [text[at:start], secret_mark(kind, end - start)]
        kinds.append(kind)
        at = end
    return "".join([*parts, text[at:]]), kinds


def without_secrets(blocks: Iterable[Block], redact: Callable[[str], str]) -> tuple[Block, ...]:
    """The blocks with their texts redacted."""
    return tuple({**block, "text": redact(block["text"])} if block["type"] == "text" else block for block in blocks)
