"""Token counts of the practice models: deterministic, monotone under appending whole blocks, and not a rule of bytes.

Text is cut the way public byte-pair tokenizers cut it before merging: a word takes its leading space, digits
go in groups of up to three, punctuation in groups of up to three, a whitespace run is one token, a CJK character
is one token, other scripts go two characters a token. A word of more than seven letters is cut every five.
Every block, message and tool adds a few tokens of framing.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any, Final

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
