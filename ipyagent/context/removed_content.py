"""What leaves the view stays reachable: word for word in one text file a batch, beside the stored results.

The file is written whole, before the event that names it is recorded. When the disk fails, the decision
is made all the same, without the file and without its name.
"""

from __future__ import annotations

import base64
import binascii
import os
from collections.abc import Iterable, Sequence
from itertools import repeat
from pathlib import Path

import msgspec

from ipyagent.escape import cut
from ipyagent.journal.blocks import CALL, PICTURES, THINKING, in_words, is_result, places
from ipyagent.journal.events import Block
from ipyagent.journal.journal import FOLDER
from ipyagent.journal.message_list import ToolResultRef
from ipyagent.journal.view import ContextView
from ipyagent.nofollow import write_atomically

STEM = f"{FOLDER}/left-"
ARGUMENT_CHARS = 100
ENDINGS = {"image/png": "png", "image/jpeg": "jpg", "image/gif": "gif", "image/webp": "webp", "application/pdf": "pdf"}
LINE = "{what} is kept word for word in {path} (grep it, read_file with offset){more}."
MORE = "; it names the files of what had left earlier"


RESULTS = "Old tool results have left the context; they are kept whole in {path} (grep it, read_file with offset)."


class RemovedContent(msgspec.Struct, frozen=True, kw_only=True):
    """What is to leave: `path` of its file in the session's `folder`, also how the model's tools name it
    ("tool-results/left-3.txt"), its `text`, and the pictures in it by their paths."""

    folder: Path
    path: str
    text: str
    pictures: tuple[tuple[str, bytes], ...] = ()

    @property
    def line(self) -> str:
        """One sentence that tells the model where it is, in its place."""
        return self.told("What stood here")

    def told(self, what: str) -> str:
        """The same of `what`, for another place."""
        return LINE.format(what=what, path=self.path, more=MORE if STEM in self.text else "")

    def write(self) -> str:
        """Write it, the text last; the reason when the disk fails ("" when all is there)."""
        try:
            for path, data in self.pictures:
                write_atomically(self.folder / path, data)
            write_atomically(self.folder / self.path, self.text.encode("utf-8", "replace"))
        except OSError as problem:
            return problem.strerror or str(problem)
        return ""


def left_results(view: ContextView, folder: Path, spots: Iterable[ToolResultRef]) -> RemovedContent | None:
    """The results at `spots`; None when there is none."""
    stand = [view.messages[spot.message]["content"][spot.block] for spot in spots]
    return _left(view, folder, zip(repeat("user"), stand, strict=False))


def left_ranges(view: ContextView, folder: Path, ranges: Sequence[tuple[int, int]]) -> RemovedContent | None:
    """What stands in the view of these ranges of events, first and last included; None when nothing does."""
    placed = view.placed()
    stand = places([source for _, _, source in placed])
    gone = [
        (role, block)
        for (role, block, _), place in zip(placed, stand, strict=True)
        if any(first <= place <= last for first, last in ranges)
    ]
    return _left(view, folder, gone)


def _left(view: ContextView, folder: Path, gone: Iterable[tuple[str, Block]]) -> RemovedContent | None:
    number = 1
    while os.path.lexists(folder / f"{STEM}{number}.txt"):
        number += 1
    calls = {
        block["id"]: block
        for message in view.messages
        if message["role"] == "assistant"
        for block in message["content"]
        if block["type"] == "tool_use"
    }
    pictures: list[tuple[str, bytes]] = []
    stem = f"{STEM}{number}"
    sections = [
        f"===== {_heading(role, block, calls)} =====\n{_words(block, stem, pictures)}\n"
        for role, block in gone
        if block["type"] not in THINKING
    ]
    if not sections:
        return None
    text = "\n".join(sections)
    return RemovedContent(folder=folder, path=f"{STEM}{number}.txt", text=text, pictures=tuple(pictures))


def _heading(role: str, block: Block, calls: dict[str, Block]) -> str:
    """Who said it; for a result the tool and its main argument."""
    if (kind := block["type"]) != "tool_result":
        if kind == "tool_use":
            return f"assistant calls {block['name']}"
        return "the provider's result" if is_result(block) else role
    call = calls.get(block["tool_use_id"])
    name = call["name"] if call else "a tool"
    if block.get("is_error"):
        name += " (error)"
    argument = main_argument(call["input"]) if call else ""
    return f"{name}: {argument}" if argument else name


def main_argument(given: dict[str, object]) -> str:
    """The first argument that says something, in one line."""
    for value in given.values():
        if isinstance(value, str) and len(value) <= ARGUMENT_CHARS and value.isprintable() and "  " not in value:
            if words := value.strip():
                return words
        elif isinstance(value, str) and (parts := value.split(maxsplit=ARGUMENT_CHARS)):  # more words never fit
            words = " ".join(parts).rstrip()
            return cut(words, ARGUMENT_CHARS)
    return ""


def _words(block: Block, stem: str, pictures: list[tuple[str, bytes]]) -> str:
    """A block as text; a picture goes to a file of its own, which is named."""
    kind = block["type"]
    if kind == "tool_result":
        content = block.get("content") or ""
        if isinstance(content, str):
            return content
        if len(content) == 1 and content[0]["type"] == "text":  # nearly all are; a batch may be long
            return str(content[0]["text"])
        return "\n".join(_words(part, stem, pictures) for part in content)
    if kind == "text":
        return str(block["text"])
    if kind == "tool_use":
        given = block["input"].items()
        return "\n".join(f"{name}: {value if isinstance(value, str) else _json(value)}" for name, value in given)
    if kind == CALL or is_result(block):
        return in_words(block)
    if kind in PICTURES:
        source = block.get("source") or {}
        if source.get("type") == "base64" and (data := decoded(str(source.get("data", "")))):
            path = f"{stem}-{len(pictures) + 1}.{ENDINGS.get(str(source.get('media_type')), 'bin')}"
            pictures.append((path, data))
            return f"[{kind}: {path}]"
    if isinstance(block.get("content"), str):  # the server's own summary
        return str(block["content"])
    return _json(block)


def decoded(encoded: str) -> bytes:
    """The bytes of base64; none for what is no file: the server will say so, and its encoding is kept as it is."""
    try:
        return base64.b64decode(encoded, validate=True)
    except (binascii.Error, ValueError):
        return b""


def _json(value: object) -> str:
    return msgspec.json.encode(value).decode()
