"""Rough token counts from features of the text, and their calibration by what servers report.

The weights were fitted on a third-party reconstruction of the vocabulary of the 4.7+/5 models, on
other texts than `tests/bench/text_samples.py`; those of kana, wide signs, Latin letters with accents
and other scripts were set by hand from counts of single words. Everything
here is a pure function; calibration is a value carried by the view.
"""

from __future__ import annotations

import base64
import binascii
import json
import re
import struct
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from ipyagent.journal.events import Block, Usage
from ipyagent.journal.server_tools import CALL, is_result

_WORDS = re.compile(r"[A-Za-z]+")
_CAPITALS = re.compile(r"[A-Z]{2,}")
_CAMEL = re.compile(r"[a-z][A-Z]|[A-Z]{2}[a-z]")
"""Two capitals are enough: with more, a run of them would be read to its end from each of its letters."""
_NUMBERS = re.compile(r"[0-9]{1,3}")
_SIGNS = re.compile(r"[!-/:-@\[-`{-~]+")
_RULES = re.compile(r"([!-/:-@\[-`{-~])\1{2,}")
"""The same sign three times or more: a line in a table, a row of dots."""
_GAPS = re.compile(r"[ \t]{2,}")
_BREAKS = re.compile(r"\n+")
_KANA = re.compile(r"[\u3040-\u30ff]")
_WIDE_SIGNS = re.compile(r"[\u3000-\u303f\uff00-\uffef]")
_WIDE = re.compile(r"[⺀-\uffdc]")
_LATIN = re.compile(r"[\x80-ɏ]")
_BEYOND = re.compile(r"[^\x00-\x7f]")
CODED = 32
_CODED = re.compile(rf"(?<![A-Za-z0-9+/_-])[A-Za-z0-9+/_-]{{{CODED},}}+")
"""What may be base64 or hexadecimal digits: long, and one character in seventeen a digit."""
_HEX = re.compile(r"[0-9a-f-]+|[0-9A-F-]+")
_DIGITS = re.compile(r"[0-9]")

PROSE = 2.9
"""Characters of English prose for a token as `estimate_text` counts them: 2.86 to 2.94 in our specifications and in
recorded conversations."""
DENSEST = 6
"""No character counts as more than so many of prose: an accented Latin letter alone is two tokens."""
BLOCK_OVERHEAD = 4
"""Tokens that a content block costs beside its text (role and type marks); our measurement
against the practice server's counts, small against any text."""
IMAGE_PIXELS_PER_TOKEN = 750
"""From the provider's documentation of image input."""
SEALED = 4
"""Characters of `encrypted_content` for a token of the text in it: base64 of three bytes each, and three bytes of
English a token; ten results of a search come to some 8,000 tokens in the provider's documentation."""
PAGE_BYTES = 4
"""Bytes of a fetched PDF for a token, as the provider's documentation of web fetch puts it."""
UNKNOWN_IMAGE = 1_600
"""Tokens of an image whose size cannot be read: the largest that is not scaled down."""


def estimate_text(text: str) -> int:
    """Tokens of a text, uncalibrated; 0 for the empty text."""
    if not text:
        return 0
    total = 0.0
    if max(map(len, text.split()), default=0) >= CODED and _CODED.search(text):
        text, total = _without_coded(text)
    signs = _SIGNS.findall(text)
    rules = [len(rule.group()) for run in signs if len(run) > 2 for rule in _RULES.finditer(run)]
    gaps = _GAPS.findall(text)
    words = _WORDS.findall(text)
    mixed = " ".join([word for word in words if not word.islower()])
    total += 1.405 * len(words) + 1.677 * len(_CAMEL.findall(mixed))
    total += 0.252 * sum([length - 6 for length in map(len, words) if length > 6])
    total += 0.594 * sum([len(word) - 1 for word in _CAPITALS.findall(mixed)])
    total += 1.041 * len(_NUMBERS.findall(text))
    total += 0.890 * len(signs) + 0.307 * (sum(map(len, signs)) - sum(rules))
    total += 1.671 * (len(rules) + sum(rule // 16 for rule in rules))
    total += 1.007 * (len(gaps) + sum(len(gap) // 17 for gap in gaps)) + 0.889 * len(_BREAKS.findall(text))
    if not text.isascii():
        wide, latin = len(_WIDE.findall(text)), len(_LATIN.findall(text))
        kana, wide_signs = len(_KANA.findall(text)), len(_WIDE_SIGNS.findall(text))
        total += 1.131 * (wide - kana - wide_signs) + 0.75 * kana + 0.9 * wide_signs
        total += 2.02 * latin + 1.0 * (len(_BEYOND.findall(text)) - wide - latin)
    return int(total) + 1


def prose_chars(text: str) -> int:
    """The size of a text by its tokens, as characters of English prose with as many: tables of numbers count half as
    much again as they have characters."""
    return int(estimate_text(text) * PROSE)


def is_over(text: str, limit: int) -> bool:
    """Whether a text is larger than `limit` characters of English prose. One of four times as many characters always
    is, whatever its tokens, so that no more than that is ever counted."""
    if len(text) > 4 * limit:
        return True
    return len(text) * DENSEST > limit and prose_chars(text) > limit


def _without_coded(text: str) -> tuple[str, float]:
    """The text without base64 and hexadecimal runs, and the tokens of those."""
    tokens = 0.0

    def take(found: re.Match[str]) -> str:
        nonlocal tokens
        run = found.group()
        if 17 * len(_DIGITS.findall(run)) < len(run):
            return run  # a long name
        tokens += (0.636 if _HEX.fullmatch(run) else 0.949) * len(run)
        return ""

    return _CODED.sub(take, text), tokens


def image_size(head: bytes) -> tuple[int, int] | None:
    """Width and height in pixels of a PNG, GIF, JPEG or WebP from its first bytes; None if unreadable."""
    if head[:8] == b"\x89PNG\r\n\x1a\n" and len(head) >= 24:
        width, height = struct.unpack(">II", head[16:24])
        return width, height
    if head[:6] in (b"GIF87a", b"GIF89a") and len(head) >= 10:
        width, height = struct.unpack("<HH", head[6:10])
        return width, height
    if head[:2] == b"\xff\xd8":
        at = 2
        while at + 9 <= len(head) and head[at] == 0xFF:
            if head[at + 1] == 0xFF or head[at + 1] == 0x01 or 0xD0 <= head[at + 1] <= 0xD7:
                at += 1 if head[at + 1] == 0xFF else 2  # fill bytes and markers without a length
                continue
            marker, length = head[at + 1], int.from_bytes(head[at + 2 : at + 4], "big")
            if 0xC0 <= marker <= 0xCF and marker not in (0xC4, 0xC8, 0xCC):
                height, width = struct.unpack(">HH", head[at + 5 : at + 9])
                return width, height
            at += 2 + length
    if head[:4] == b"RIFF" and head[8:12] == b"WEBP" and len(head) >= 30:
        return _webp_size(head)
    return None


def _webp_size(head: bytes) -> tuple[int, int] | None:
    """Width and height from the first chunk of a WebP file, in its three forms."""
    match head[12:16]:
        case b"VP8 ":
            width, height = struct.unpack("<HH", head[26:30])
            return width & 0x3FFF, height & 0x3FFF
        case b"VP8L":
            bits = int.from_bytes(head[21:25], "little")
            return (bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1
        case b"VP8X":
            return int.from_bytes(head[24:27], "little") + 1, int.from_bytes(head[27:30], "little") + 1
    return None


def _estimate_image(source: Any) -> int:
    data = source.get("data") if isinstance(source, Mapping) else None
    if not isinstance(data, str):
        return UNKNOWN_IMAGE
    try:
        head = base64.b64decode(data[: 64 * 1024 // 3 * 4], validate=False)
    except (binascii.Error, ValueError):
        return UNKNOWN_IMAGE
    size = image_size(head)
    return UNKNOWN_IMAGE if size is None else max(1, size[0] * size[1] // IMAGE_PIXELS_PER_TOKEN)


def estimate_block(block: Block) -> int:
    """Tokens of one content block, uncalibrated."""
    kind = block.get("type")
    if kind == "text":
        return BLOCK_OVERHEAD + estimate_text(str(block.get("text", "")))
    if kind == "image":
        return BLOCK_OVERHEAD + _estimate_image(block.get("source"))
    if kind == "compaction":
        return BLOCK_OVERHEAD + estimate_text(str(block.get("content") or ""))
    if kind == "thinking":
        return BLOCK_OVERHEAD + estimate_text(str(block.get("thinking", "")))
    if kind == "tool_result":
        content = block.get("content", "")
        if isinstance(content, list | tuple):
            return 3 * BLOCK_OVERHEAD + estimate_blocks(content)
        return 3 * BLOCK_OVERHEAD + estimate_text(str(content))
    if kind in ("tool_use", CALL):
        return 3 * BLOCK_OVERHEAD + estimate_text(json.dumps(block.get("input"), ensure_ascii=False))
    if is_result(block):
        return 3 * BLOCK_OVERHEAD + _estimate_web(block.get("content"))
    return BLOCK_OVERHEAD + estimate_text(json.dumps(block, ensure_ascii=False))


def _estimate_web(content: Any) -> int:
    """Tokens of what a web search or fetch gave."""
    tokens = 0
    for page in content if isinstance(content, list) else [content]:
        if isinstance(page, Mapping):
            document = page.get("content")
            source = document.get("source") if isinstance(document, Mapping) else None
            data = str(source.get("data") or "") if isinstance(source, Mapping) else ""
            is_text = isinstance(source, Mapping) and source.get("type") == "text"
            tokens += estimate_text(data) if is_text else len(data) * 3 // 4 // PAGE_BYTES
            tokens += len(str(page.get("encrypted_content") or "")) // SEALED
            told = (page.get(key) for key in ("title", "url", "page_age", "error_code"))
            tokens += 2 * BLOCK_OVERHEAD + estimate_text(" ".join(str(each) for each in told if each))
    return tokens


def estimate_blocks(blocks: Iterable[Block]) -> int:
    """Tokens of content blocks, uncalibrated."""
    return sum(estimate_block(block) for block in blocks)


def unread_by_some(blocks: Iterable[Block]) -> int:
    """Tokens at most of those blocks that a server may leave out although it reads all of a prompt: thinking of
    earlier turns, images that the model cannot see."""
    tokens = 0
    for block in blocks:
        kind = block.get("type")
        if kind in ("thinking", "redacted_thinking"):
            tokens += BLOCK_OVERHEAD + len(str(block.get("thinking") or block.get("data") or ""))
        elif kind in ("image", "document"):
            tokens += BLOCK_OVERHEAD + UNKNOWN_IMAGE
    return tokens


class Calibration(msgspec.Struct, frozen=True):
    """The session's correction factor: reported over estimated tokens, older evidence fading.

    `actual` and `raw` are faded sums; the factor is their ratio, kept within 0.5-2.5 so that one
    wrong report of a server cannot blind the marks.
    """

    actual: float = 0.0
    raw: float = 0.0
    fade: float = 0.6

    @property
    def factor(self) -> float:
        return min(2.5, max(0.5, self.actual / self.raw)) if self.raw else 1.0

    def learn(self, *, raw: int, actual: int) -> Calibration:
        """The calibration after a prompt whose estimated part `raw` turned out to be `actual`."""
        if raw <= 0 or actual <= 0:
            return self
        return Calibration(self.actual * self.fade + actual, self.raw * self.fade + raw, self.fade)


class Count(msgspec.Struct, frozen=True):
    """Tokens of the next prompt: `base` is reported by the latest response, `raw` is the
    uncalibrated estimate of what was added since."""

    base: int
    raw: int
    factor: float

    @property
    def tokens(self) -> int:
        return self.base + round(self.raw * self.factor)


def learn_from(calibration: Calibration, *, predicted: int, raw: int, usage: Usage) -> Calibration:
    """Calibrate by a report. `predicted` = base + factor x raw at the time it was sent."""
    if not plausible(predicted, usage):
        return calibration
    base = predicted - round(raw * calibration.factor)
    return calibration.learn(raw=raw, actual=usage.prompt - base)


def plausible(predicted: int, usage: Usage) -> bool:
    """Whether a server's count can be true: within a factor of four of ours (and 2,000 tokens)."""
    return predicted <= 4 * usage.prompt + 2_000 and usage.prompt <= 4 * predicted + 2_000
