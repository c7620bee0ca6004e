"""One line of `doctor`: what was looked at, how it is, and what to do about it."""

from __future__ import annotations

from typing import Literal

import msgspec

from ipyagent.escape import line

Mark = Literal["ok", "note", "bad"]
SIGNS: dict[Mark, str] = {"ok": "✓", "note": "!", "bad": "✗"}


class DoctorFinding(msgspec.Struct, frozen=True):
    """What was looked at, how it is, in words; `mend`: what to do, "" when there is nothing to do."""

    mark: Mark
    name: str
    words: str
    mend: str = ""

    def __str__(self) -> str:
        mend = f": {self.mend}" if self.mend else ""
        return f"{SIGNS[self.mark]} {self.name:<12} {line(self.words + mend, 400)}"
