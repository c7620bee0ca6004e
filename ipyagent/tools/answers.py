"""What a tool's function returns becomes content blocks: text of bounded length, pictures of
bounded size, and never a character that JSON or the API cannot carry."""

from __future__ import annotations

import base64
import io
import json
import re
import reprlib
import sys
from collections.abc import Sequence
from typing import Any

from ipyagent.errors import ToolFailure
from ipyagent.escape import SEQUENCE
from ipyagent.journal.events import Block
from ipyagent.journal.protocols import ObjectRef, ToolOutput
from ipyagent.journal.tokens import prose_chars
from ipyagent.kernel.output import moves_alone, settled
from ipyagent.redaction import after_cut, before_cut

LONG_EDGE = 1_568
"""Pixels: larger pictures are scaled down by the server anyway (Messages API documentation)."""
BYTES_SHOWN = 1_000
"""Bytes shown of a value that is bytes."""
MOST_BYTES = 3_700_000
"""An image over 5 MB of base64 is refused; 3.7 MB of bytes are 4.93 MB of base64."""

_BAD = re.compile("[\x00\ud800-\udfff]")


def clean(text: str) -> str:
    """`text` without NUL and lone surrogates: each becomes U+FFFD."""
    if text.isascii() and "\0" not in text:
        return text
    return _BAD.sub("\ufffd", text)


def plain(text: str) -> str:
    """`clean` text as a terminal would leave it: no escape sequences, the last state of lines
    that were rewritten."""
    return settled(SEQUENCE.sub(moves_alone, clean(text)))


def capped(text: str, limit: int) -> str:
    """`text` in at most `limit` characters and a note: head and tail, what was cut in between."""
    if len(text) <= limit:
        return text
    first = limit * 2 // 3
    head, tail = before_cut(text[:first]), after_cut(text[len(text) - limit + first :])
    cut = len(text) - len(head) - len(tail)
    lines = text.count("\n", len(head), len(text) - len(tail))
    return f"{head}\n[… {cut:,} characters ({lines:,} lines) cut here …]\n{tail}"


def fitting(lines: Sequence[str], most: int) -> int:
    """How many of these lines, at least one, fit in `most` characters and in as many tokens as prose of that length
    has."""
    room = most
    while True:
        count = length = 0
        for line in lines:
            length += len(line) + 1
            if count and length > room:
                break
            count += 1
        size = prose_chars("\n".join(lines[:count]))
        if size <= most or count < 2:
            return count
        room = min(room * most // size, length - 1)


def text_block(text: str) -> Block:
    return {"type": "text", "text": clean(text)}


def text_output(text: str, *, note: str = "", is_error: bool = False) -> ToolOutput:
    """A `ToolOutput` of one text."""
    return ToolOutput(blocks=(text_block(text),), note=note, is_error=is_error)


def picture(data: bytes, media_type: str) -> Block:
    """An image block, scaled so that its long edge is at most 1,568 pixels and its size is one
    the API takes. Raises ToolFailure when it is too large and Pillow is not there to scale it,
    or when it is no picture."""
    try:
        from PIL import Image
    except ImportError:
        if len(data) > MOST_BYTES:
            raise ToolFailure(
                f"the picture has {len(data):,} bytes, too many to send; `%pip install pillow` to scale it down"
            ) from None
        return _image_block(data, media_type)
    try:
        with Image.open(io.BytesIO(data)) as image:
            if max(image.size) <= LONG_EDGE and len(data) <= MOST_BYTES:
                return _image_block(data, media_type)
            image.thumbnail((LONG_EDGE, LONG_EDGE))
            made = io.BytesIO()
            image.save(made, "PNG")
            if made.tell() > MOST_BYTES:
                made = io.BytesIO()
                image.convert("RGB").save(made, "JPEG", quality=80)
                return _image_block(made.getvalue(), "image/jpeg")
            return _image_block(made.getvalue(), "image/png")
    except (OSError, ValueError, SyntaxError, Image.DecompressionBombError) as problem:
        raise ToolFailure(f"not a picture that can be read: {problem}") from None


def size_of(data: bytes) -> str:
    """ "640x480" of a PNG's header, "" for anything else."""
    if data[:8] != b"\x89PNG\r\n\x1a\n" or len(data) < 24:
        return ""
    return f"{int.from_bytes(data[16:20], 'big')}x{int.from_bytes(data[20:24], 'big')}"


def _image_block(data: bytes, media_type: str) -> Block:
    source = {"type": "base64", "media_type": media_type, "data": base64.b64encode(data).decode()}
    return {"type": "image", "source": source}


def to_output(value: Any, limit: int) -> ToolOutput:
    """`value` as a tool's answer, its text at most about `limit` characters."""
    if isinstance(value, ToolOutput):
        return value
    if value is None:
        return text_output("(no result)")
    if isinstance(value, str):
        return text_output(capped(value, limit) or '""')
    live = ObjectRef(value, alone=True)
    if isinstance(value, (dict, list)):
        return ToolOutput(blocks=(text_block(_json(value, limit)),), live=live)
    if isinstance(value, (bytes, bytearray)):
        shown = preview(value[:BYTES_SHOWN])
        more = f" and {len(value) - BYTES_SHOWN:,} more bytes" if len(value) > BYTES_SHOWN else ""
        return ToolOutput(blocks=(text_block(shown + more),), live=live)
    data = _png(value)
    if data is not None:
        return ToolOutput(blocks=(picture(data, "image/png"),), note=size_of(data))
    return ToolOutput(blocks=(text_block(capped(preview(value, limit), limit)),), live=live)


def _png(value: Any) -> bytes | None:
    """The picture that `value` is or draws itself as. Libraries are looked up, not imported: an
    object of a library that is not loaded cannot exist."""
    figure = getattr(sys.modules.get("matplotlib.figure"), "Figure", None)
    if figure is not None and isinstance(value, figure):
        made = io.BytesIO()
        value.savefig(made, format="png", bbox_inches="tight")
        return made.getvalue()
    image = getattr(sys.modules.get("PIL.Image"), "Image", None)
    if image is not None and isinstance(value, image):
        made = io.BytesIO()
        value.save(made, "PNG")
        return made.getvalue()
    if not isinstance(value, type) and callable(getattr(type(value), "_repr_png_", None)):
        drawn = value._repr_png_()
        if isinstance(drawn, tuple):
            drawn = drawn[0]
        return drawn if isinstance(drawn, bytes) else None
    return None


def _json(value: Any, limit: int) -> str:
    """JSON, encoded piece by piece and no further than `limit`: a list of ten million numbers
    costs no more than its head."""
    parts: list[str] = []
    length = 0
    encoder = json.JSONEncoder(ensure_ascii=False, default=lambda item: preview(item, limit))
    try:
        for part in encoder.iterencode(value):
            parts.append(part)
            length += len(part)
            if length > limit:
                text = "".join(parts)[:limit]
                return f"{text}\n[… cut here: the whole is a {type(value).__name__} of {len(value):,} items …]"
    except (TypeError, ValueError, RecursionError):  # keys that JSON has not, a circle
        return capped(preview(value, limit), limit)
    return "".join(parts)


def preview(value: Any, limit: int = 2_000) -> str:
    """A bounded repr; says so when the object's own repr raises."""
    short = reprlib.Repr()
    short.maxlevel = 4
    short.maxdict = short.maxlist = short.maxtuple = short.maxset = short.maxfrozenset = short.maxdeque = 50
    short.maxarray = 50
    short.maxstring = short.maxlong = min(limit, 2_000)
    short.maxother = limit
    try:
        return short.repr(value)
    except Exception as problem:  # noqa: BLE001 -- foreign __repr__, may raise anything; it is reported in the text
        return f"<{type(value).__name__} object; its repr raised {type(problem).__name__}>"
