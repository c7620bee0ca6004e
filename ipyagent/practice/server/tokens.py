"""What is computed of one block alone: its tokens, whether its picture is one, and seals of the server's own blocks.

Token counts of the practice models: deterministic, monotone under appending whole blocks, and not a rule of bytes.

Text is cut the way public byte-pair tokenizers cut it before merging: a word takes its leading space, digits
go in groups of up to three, punctuation in groups of up to three, a whitespace run is one token, a CJK character
is one token, other scripts go two characters a token. A word of more than seven letters is cut every five.
Every block, message and tool adds a few tokens of framing.

Images and documents of a request: the bytes must be what the block says, and within the API's limits.

Limits: base64 under 5 MB an image; edges at most 8,000 px, or 2,000 px when a request has more than 20 images.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import json
import re
import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from ipyagent.practice.server.models import Refused, need

_PIECE: Final = re.compile(
    r" ?+[A-Za-z]{1,7}+(?![A-Za-z])"
    r"| ?+[A-Za-z]{5}"
    r"|[0-9]{1,3}+"
    r"| ?+[!-/:-@\[-`{-~]{1,3}+"
    r"|\s++"
    r"|[\u3000-\u30ff\u3400-\u9fff\uac00-\ud7af\uf900-\ufaff\uff00-\uffef]"
    r"|[^\x00-\x7f\u3000-\u30ff\u3400-\u9fff\uac00-\ud7af\uf900-\ufaff\uff00-\uffef\U00010000-\U0010ffff\s]{1,2}+"
    r"|[A-Za-z]{1,4}|[\s\S]"
)

BLOCK: Final = 3
MESSAGE: Final = 4
TOOL: Final = 14
TOOLS: Final = 290  # the instructions the API adds once when a request has tools
PIXELS_PER_TOKEN: Final = 750
PDF_PAGE: Final = 1_900


def count_text(text: str) -> int:
    """Tokens of plain text; 0 for the empty string."""
    return len(_PIECE.findall(text))


def count_json(value: Any) -> int:
    """Tokens of a JSON value as the model sees it written out."""
    return count_text(json.dumps(value, ensure_ascii=False, separators=(", ", ": ")))


def count_image(width: int, height: int) -> int:
    """Tokens of an image of this size in pixels."""
    return -(-width * height // PIXELS_PER_TOKEN)


def count_tool(tool: Mapping[str, Any]) -> int:
    """Tokens of one tool definition."""
    return TOOL + count_json(tool)


def cut_text(text: str, tokens: int) -> str:
    """The longest prefix of whole pieces that is at most `tokens` long."""
    if tokens <= 0:
        return ""
    end = 0
    for count, piece in enumerate(_PIECE.finditer(text)):
        if count >= tokens:
            break
        end = piece.end()
    return text[:end]


MEDIA: Final = ("image/jpeg", "image/png", "image/gif", "image/webp")
MAX_BASE64: Final = 5 * 1024 * 1024
MAX_EDGE: Final = 8_000
MAX_EDGE_OF_MANY: Final = 2_000
MANY: Final = 20

Found = tuple[str, Mapping[str, Any]]


@dataclass(frozen=True, slots=True)
class Picture:
    """What the bytes of an image are: media type ("" if unknown), width and height in pixels."""

    media: str
    width: int
    height: int


def measure(raw: bytes) -> Picture:
    """Read type and size from an image's header; media "" when it is none of the four kinds or is cut short."""
    try:
        if raw.startswith(b"\x89PNG\r\n\x1a\n"):
            return Picture("image/png", *struct.unpack(">II", raw[16:24]))
        if raw[:6] in (b"GIF87a", b"GIF89a"):
            return Picture("image/gif", *struct.unpack("<HH", raw[6:10]))
        if raw[:4] == b"RIFF" and raw[8:12] == b"WEBP":
            return Picture("image/webp", *_webp_size(raw))
        if raw.startswith(b"\xff\xd8"):
            return Picture("image/jpeg", *_jpeg_size(raw))
    except (struct.error, IndexError):
        pass
    return Picture("", 0, 0)


def _webp_size(raw: bytes) -> tuple[int, int]:
    kind = raw[12:16]
    if kind == b"VP8X":
        return 1 + int.from_bytes(raw[24:27], "little"), 1 + int.from_bytes(raw[27:30], "little")
    if kind == b"VP8L":
        bits = int.from_bytes(raw[21:25], "little")
        return 1 + (bits & 0x3FFF), 1 + (bits >> 14 & 0x3FFF)
    width, height = struct.unpack("<HH", raw[26:30])
    return width & 0x3FFF, height & 0x3FFF


def _jpeg_size(raw: bytes) -> tuple[int, int]:
    at = 2
    while True:
        marker, length = raw[at + 1], struct.unpack(">H", raw[at + 2 : at + 4])[0]
        if 0xC0 <= marker <= 0xCF and marker not in (0xC4, 0xC8, 0xCC):
            height, width = struct.unpack(">HH", raw[at + 5 : at + 9])
            return width, height
        at += 2 + length


def images_in(messages: Sequence[Mapping[str, Any]]) -> Iterator[Found]:
    """Every image with its path, those inside tool results too."""
    for i, message in enumerate(messages):
        if isinstance(message["content"], str):
            continue
        for j, block in enumerate(message["content"]):
            if block["type"] == "image":
                yield f"messages.{i}.content.{j}.image", block
            elif block["type"] == "tool_result" and isinstance(block.get("content"), list):
                for k, part in enumerate(block["content"]):
                    if part["type"] == "image":
                        yield f"messages.{i}.content.{j}.tool_result.content.{k}.image", part


class Pictures:
    """Sizes of images, each measured once."""

    def __init__(self) -> None:
        self._known: dict[bytes, Picture] = {}

    def of(self, data: str) -> Picture:
        """The picture in base64 text; raises `binascii.Error` or `UnicodeEncodeError` when it is not base64."""
        key = hashlib.sha256(data.encode()).digest()
        if (known := self._known.get(key)) is None:
            known = self._known[key] = measure(base64.b64decode(data, validate=True))
        return known

    def check(self, messages: Sequence[Mapping[str, Any]], most: int) -> int:
        """Refuse images the API refuses; answers how many there are."""
        found = list(images_in(messages))
        need(len(found) <= most, f"messages: at most {most} images are allowed in a request, found {len(found)}")
        edge = MAX_EDGE_OF_MANY if len(found) > MANY else MAX_EDGE
        large = [path for path, block in found if not self._fits(path, block["source"], edge)]
        if large:
            many = " when a request has more than 20 images" if len(found) > MANY else ""
            raise Refused(
                f"{large[0]}.source.base64.data: At least one of the image dimensions exceed max allowed size: "
                f"{edge} pixels{many}",
                code="image_dimensions_too_large",
                details={"max_side_length_pixels": edge, "paths": large},
            )
        return len(found)

    def _fits(self, path: str, source: Mapping[str, Any], edge: int) -> bool:
        kind = source.get("type")
        need(kind == "base64", f"{path}.source: only base64 images can be read by the practice server, not {kind!r}")
        data: Any = source.get("data")
        media = source.get("media_type")
        need(media in MEDIA, f"{path}.source.base64.media_type: Input should be one of {', '.join(MEDIA)}")
        need(isinstance(data, str) and data, f"{path}.source.base64.data: Field required")
        size = f"{len(data)} bytes > {MAX_BASE64} bytes"
        need(len(data) <= MAX_BASE64, f"{path}.source.base64: image exceeds 5 MB maximum: {size}")
        try:
            picture = self.of(data)
        except (binascii.Error, ValueError):
            raise Refused(f"{path}.source.base64.data: invalid base64 data") from None
        need(picture.media and picture.width and picture.height,
             f"{path}.source.base64.data: Could not process image")  # fmt: skip
        told = f"Image does not match the provided media type {media}; the bytes are {picture.media}"
        need(picture.media == media, f"{path}.source.base64.media_type: {told}")
        return max(picture.width, picture.height) <= edge

    def tokens(self, block: Mapping[str, Any]) -> int:
        """Tokens of an image or a document block that was checked before."""
        source = block["source"]
        if block["type"] == "image":
            picture = self.of(source["data"])
            return count_image(picture.width, picture.height)
        if source["type"] == "text":
            return count_text(source["data"])
        try:
            raw = base64.b64decode(source["data"], validate=True)
        except ValueError:  # binascii.Error is one
            raise Refused("document.source.base64.data: invalid base64 data") from None
        return PDF_PAGE * max(1, raw.count(b"/Type /Page"))


_KEY: Final = b"ipyagent practice server: tamper-evident, not secret"


def seal(*parts: bytes | str) -> str:
    """Twenty hexadecimal digits over these parts and where each of them ends: a keyed digest, by which the server knows
    its own blocks again in any process; not secret."""
    sealed = hmac.new(_KEY, digestmod=hashlib.sha256)
    for part in parts:
        raw = part.encode("utf-8", "surrogatepass") if isinstance(part, str) else part
        sealed.update(len(raw).to_bytes(8, "big") + raw)
    return sealed.hexdigest()[:20]
