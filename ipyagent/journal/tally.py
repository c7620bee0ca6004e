"""Tokens of the next prompt: what the server reported last, and our estimate of everything since.

Once what was sent has changed, the last report is not read again: everything is estimated.
"""

from __future__ import annotations

from ipyagent.journal.events import UsageReported
from ipyagent.journal.tokens import Calibration, Count, learn_from, plausible


class Tally:
    """Grows with the messages. All figures but those of `count` are estimates before calibration."""

    def __init__(self) -> None:
        self.calibration = Calibration()
        self.head = 0
        """Tokens of system prompt and tools."""
        self._base = 0
        self._raw = 0
        self._replied = 0
        """The part of `_raw` that the next report of usage covers."""
        self._output = False
        """Whether the newest reply is in the view, so that its reported output counts."""
        self._edited = False
        """Whether the server has left out more of the prompt than before, so that the next report says
        nothing of our estimates."""
        self._weight = 0
        """Tokens of all messages, whatever was reported."""

    def count(self) -> Count:
        """Tokens of the next prompt, see `Count`."""
        return Count(self._base, self._raw, self.calibration.factor)

    def add(self, tokens: int) -> None:
        """So many tokens came to the messages."""
        self._raw += tokens
        self._weight += tokens

    def render(self, tokens: int) -> None:
        """System prompt and tools now take so many tokens."""
        self._raw += tokens - self.head
        self.head = tokens

    def reply(self, tokens: int | None) -> None:
        """A reply came, of so many tokens that stay in the messages (None: nothing of it does)."""
        self._output = tokens is not None
        self.add(tokens or 0)
        self._replied = self._raw

    def edited(self) -> None:
        """The server has left out more than before."""
        self._edited = True

    def report(self, event: UsageReported) -> None:
        """The server has counted the prompt of the newest reply."""
        if not self._edited:
            self.calibration = learn_from(
                self.calibration, predicted=event.predicted, raw=event.raw, usage=event.usage
            )
        if event.usage.prompt > 0 and (self._edited or plausible(event.predicted, event.usage)):
            self._base = event.usage.total if self._output else event.usage.prompt
            self._raw, self._replied = self._raw - self._replied, 0
        self._edited = False

    def change(self, tokens: int) -> None:
        """What was sent has become so many tokens more, or less."""
        self.weigh_anew(max(0, self._weight + tokens))

    def weigh_anew(self, tokens: int) -> None:
        """What was sent has changed; the messages now take so many tokens."""
        self._weight = tokens
        self._base = 0
        self._raw = self._replied = self.head + self._weight
