"""`@name`, `@path`, `@cell:3`, `@out:3` in a request: compact views attached for the model.

The words of the request stay as they are; a mention that names nothing is plain text.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from ipyagent.context.reminders import element
from ipyagent.errors import ToolFailure
from ipyagent.journal.events import Block
from ipyagent.journal.protocols import Workspace
from ipyagent.kernel.cell_marks import HIDDEN
from ipyagent.kernel.variables import describe
from ipyagent.redaction import mask

MENTION = re.compile(r"(?<![\w@.])@(?:(cell|out):(\d+)|\"([^\"\n]+)\"|([^\s@,;:!?()\[\]{}'\"`]+))")
NAME = re.compile(
    r"[^\W\d]\w*(?:[./]\w+)*|(?:~|\.{1,2})?/[\w.\-/]{1,400}|[\w.\-]{1,100}/[\w.\-/]{0,400}|[\w.\-]{1,200}\.[A-Za-z]\w{0,9}"
)
"""What looks like a variable, or like the path of a file."""
FILE_LINES = 60
CELL_CHARS = 4_000


class Mention(msgspec.Struct, frozen=True):
    """One thing the request names: `kind` is "variable", "file", "cell" or "out"; `text` its
    compact view ("" for files, which are read on the agent thread)."""

    kind: str
    name: str
    text: str = ""


def find(
    body: str, namespace: Mapping[str, Any], folder: Path, cells: Sequence[str] = (), hidden: Collection[int] = ()
) -> list[Mention]:
    """The mentions of a request that name something, each once. Call it on the main thread.

    `cells` are the sources of the cells run so far as they were typed, by their number, `hidden` the numbers
    of those that their author hides: a mention says so and shows nothing.
    """
    found: dict[tuple[str, str], Mention] = {}
    for match in MENTION.finditer(body):
        kind, number, quoted, bare = match.groups()
        if kind:
            mention = _cell(kind, int(number), namespace, cells, hidden)
        else:
            mention = _thing(quoted or bare, namespace, folder, exact=bool(quoted))
        if mention is not None:
            found.setdefault((mention.kind, mention.name), mention)
    return list(found.values())


def unresolved(body: str, mentions: Sequence[Mention]) -> list[str]:
    """Mentions that look like names or files and name nothing: "@nosuch", for a line to the user."""
    known = {(mention.kind if mention.kind in ("cell", "out") else "", mention.name) for mention in mentions}
    missing: dict[str, None] = {}
    for match in MENTION.finditer(body):
        kind, number, quoted, bare = match.groups()
        name = number or quoted or bare.rstrip(".。，、！？")
        named = {(kind or "", name), (kind or "", bare)} & known
        if name and not named and (kind or quoted or NAME.fullmatch(name)):
            missing[match.group().rstrip(".。，、！？")] = None
    return list(missing)


def _cell(
    kind: str, number: int, namespace: Mapping[str, Any], cells: Sequence[str], hidden: Collection[int]
) -> Mention | None:
    if number in hidden:
        return Mention(kind, str(number), HIDDEN)
    if kind == "cell":
        if 0 < number < len(cells):
            return Mention("cell", str(number), mask(cells[number])[:CELL_CHARS])
        return None
    outputs = namespace.get("Out")
    if isinstance(outputs, dict) and number in outputs:
        return Mention("out", str(number), describe(f"Out[{number}]", outputs[number]))
    return None


def _thing(name: str, namespace: Mapping[str, Any], folder: Path, *, exact: bool) -> Mention | None:
    """A variable or a file; sentence punctuation at the end is not part of the name."""
    for candidate in (name,) if exact else dict.fromkeys((name, name.rstrip(".。，、！？"))):
        if candidate.isidentifier() and candidate in namespace:
            return Mention("variable", candidate, describe(candidate, namespace[candidate]))
        try:
            if candidate and (folder / candidate).expanduser().is_file():
                return Mention("file", candidate)
        except (OSError, ValueError, RuntimeError):
            continue  # too long, a NUL, no such home: not a path
    return None


async def blocks_of(mentions: list[Mention], workspace: Workspace) -> list[Block]:
    """Content blocks for the mentions; files are read as the `read_file` tool reads them."""
    from ipyagent.tools.files import read_file

    blocks: list[Block] = []
    for mention in mentions:
        if mention.kind != "file":
            tag = "variable" if mention.kind == "variable" else "cell"
            name = mention.name if mention.kind != "out" else f"Out[{mention.name}]"
            blocks.append(element(tag, name, mention.text))
            continue
        given = {"path": mention.name, "limit": FILE_LINES}
        try:
            output = await read_file.run(read_file.validate(given), workspace)
        except ToolFailure as failure:
            blocks.append(element("file", mention.name, f"(not attached: {failure})"))
            continue
        texts = [str(block["text"]) for block in output.blocks if block["type"] == "text"]
        blocks.append(element("file", mention.name, "\n".join(texts)))
        blocks.extend(block for block in output.blocks if block["type"] != "text")
    return blocks
