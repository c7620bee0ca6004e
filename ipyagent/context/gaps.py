"""How much too long a prompt is, and which of its oldest API rounds cover that."""

from __future__ import annotations

import re
from math import ceil
from typing import Any

from ipyagent.journal.tokens import estimate_blocks

UNREAD_SHARE = 0.2
"""Share of the rounds that goes when the server does not say by how much the prompt is too long."""
_NUMBERS = re.compile(r"(\d[\d,]*)\D+(?:>|of|exceeds?)\D*?(\d[\d,]*)")


def stated_gap(message: str) -> int:
    """The tokens by which a server says the prompt is too long ("N tokens > M maximum"); 0 when it
    does not say."""
    match = _NUMBERS.search(message)
    if match is None:
        return 0
    have, limit = (int(number.replace(",", "")) for number in match.groups())
    return max(0, have - limit)


def rounds_to_drop(messages: list[dict[str, Any]], dropped: int, need: int, factor: float) -> int:
    """How many of the oldest rounds to leave out, `dropped` of them being left out already: enough for
    `need` further tokens (0: not known, then a fixed share more), and never the newest round. A round
    is a reply with what was said or answered before it."""
    starts = [at for at, message in enumerate(messages) if message["role"] == "assistant"]
    most = max(0, len(starts) - 1)
    if not need:
        return min(most, dropped + max(1, ceil(UNREAD_SHARE * len(starts))))
    at = starts[dropped] if dropped and dropped < len(starts) else 0
    gone = 0.0
    while dropped < most and gone < need:
        dropped += 1
        gone += factor * sum(estimate_blocks(message["content"]) for message in messages[at : starts[dropped]])
        at = starts[dropped]
    return dropped
