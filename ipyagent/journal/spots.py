"""Where a tool result stands in the messages, and the word that stays when it is cleared."""

from __future__ import annotations

from typing import Any

import msgspec

from ipyagent.journal.tokens import estimate_block


class ToolResultRef(msgspec.Struct, frozen=True):
    """A tool result in the messages: whose it is and where. `came` is its block as it was put there; `cleared`
    says that only a word of it is left, `stored` that it is a preview of a file, `kept` where the whole
    of it is ("" when it is in the view or gone)."""

    call: str
    tool: str
    event: int
    message: int
    block: int
    came: dict[str, Any]
    chars: int
    is_error: bool = False
    cleared: bool = False
    stored: bool = False
    kept: str = ""
    weighed: int = -1
    """`tokens` once they were asked for; a picture's are counted at once, so that it is not held for them."""

    @property
    def tokens(self) -> int:
        """The estimate of the result. Estimating is most of what resuming a session costs, and few are asked for."""
        if self.weighed < 0:
            msgspec.structs.force_setattr(self, "weighed", estimate_block(self.came))
        return self.weighed


def cleared_text(spot: ToolResultRef, text: str, place: str, kept: str) -> str:
    """What stands for a cleared result: it can still be found, in its own file or in that of all that went."""
    where = f"; kept in {kept}" if kept and not spot.kept else ""
    said = text.replace("{tool}", spot.tool).replace("{kept}", where)
    return f"{said} The whole result is kept: {place}/{spot.kept}" if spot.kept else said
