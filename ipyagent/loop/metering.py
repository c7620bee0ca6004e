"""What a request costs although its answer never comes whole: it was stopped, or the stream broke.

The provider bills the prompt once it has begun to answer, and what it wrote until the connection closed.
"""

from __future__ import annotations

import msgspec

from ipyagent.journal.events import Usage
from ipyagent.journal.protocols import ModelEvent, ResponseStarted, TextDelta, ThinkingDelta, ToolDelta
from ipyagent.journal.tokens import estimate_text

CHARS = 3
"""Characters of a call's JSON a token: rough, for their number is all that is known of it."""


class RequestMeter:
    """Follows one request."""

    def __init__(self) -> None:
        self._began: Usage | None = None
        self._texts: list[str] = []
        self._searches = 0
        self._calls = [0]
        """Characters of the calls, the one that is being written last."""

    def __repr__(self) -> str:
        return f"<RequestMeter {self.usage}>"

    def take(self, event: ModelEvent) -> None:
        """The next event of the stream."""
        match event:
            case ResponseStarted(usage):
                self._began, self._texts, self._calls, self._searches = usage, [], [0], 0
            case TextDelta(text) | ThinkingDelta(text):
                self._texts.append(text)
            case ToolDelta(name, chars, server, begins):
                self._searches += server and begins and name == "web_search"
                if chars < self._calls[-1]:
                    self._calls.append(0)
                self._calls[-1] = chars
            case _:
                pass

    @property
    def usage(self) -> Usage | None:
        """What was counted at the beginning, `output` estimated from what has come; None: nothing had begun."""
        if self._began is None:
            return None
        wrote = estimate_text("".join(self._texts)) + sum(self._calls) // CHARS
        output, searches = max(self._began.output, wrote), max(self._began.searches, self._searches)
        return msgspec.structs.replace(self._began, output=output, searches=searches)
