"""Tokens of the next prompt: what the server reported last, and our estimate of everything since.

From a decision that changes what was sent, the last report goes on by our estimates of what left and came: by one
measure a prompt from which something leaves is never the larger one. That measure is what a token of our estimates
came to in the messages so far, as far as two reports tell it apart from system prompt and tools. Only where nothing
was counted, or what leaves cannot be told from its text (thinking), everything is estimated.
"""

from __future__ import annotations

from typing import NamedTuple

from ipyagent.journal.events import UsageReported
from ipyagent.journal.tokens import Calibration, Count, learn_from, plausible

LEAST = 500
"""Estimated tokens by which two prompts must differ for their reports to tell what a token of a message comes to."""


class Weighed(NamedTuple):
    """Tokens of a prompt that the server had counted, and our uncalibrated estimate of all of it."""

    tokens: int
    estimated: int


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
        self._left_out = False
        """Whether the server has ever left something out."""
        self._scaled = False
        """Whether `_base` is a report that was scaled since."""
        self._sent = 0
        """All of the prompt that the newest reply is an answer to."""
        self._weight = 0
        """Tokens of all messages, whatever was reported."""
        self._lightest: Weighed | None = None
        """The reported prompt with the fewest messages: tokens of it all, estimate of the messages alone."""

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
        self.head, self._lightest = tokens, None

    def reply(self, tokens: int | None) -> None:
        """A reply came, of so many tokens that stay in the messages (None: nothing of it does)."""
        self._output, self._sent = tokens is not None, self.head + self._weight
        self.add(tokens or 0)
        self._replied = self._raw

    def begin_anew(self) -> None:
        """Another model or head reads on: earlier reports tell nothing of what comes."""
        self._lightest = None

    def edited(self, tokens: int) -> None:
        """The server leaves out more than before, or less, or has put a summary into its reply and reads nothing
        before it any more; what it reads of the messages now takes so many tokens."""
        self._weight = tokens
        self._edited = self._left_out = True

    def report(self, event: UsageReported) -> None:
        """The server has counted the prompt of the newest reply."""
        known = self._edited or event.billed is not None
        sent = self.head + self._weight if event.stopped else self._sent
        if not known and not self._scaled:
            self.calibration = learn_from(
                self.calibration, predicted=event.predicted, raw=event.raw, usage=event.usage
            )
        elif not known and not self._left_out and event.predicted and plausible(event.predicted, event.usage):
            self.calibration = self.calibration.learn(raw=sent, actual=event.usage.prompt)
        if event.usage.prompt > 0 and (known or plausible(event.predicted, event.usage)):
            if event.stopped:  # what came of the reply is not in the messages yet
                self._base, self._raw = event.usage.prompt, 0
            else:
                self._base = event.usage.total if self._output else event.usage.prompt
                self._raw -= self._replied
            self._replied, self._scaled = 0, False
            messages = sent - self.head
            if not known and (self._lightest is None or messages < self._lightest.estimated):
                self._lightest = Weighed(event.usage.prompt, messages)
        self._edited = False

    # -------------------------------------------------------------- decisions

    def weighed_at(self, messages: int) -> Weighed | None:
        """The prompt as it stands, its messages weighed anew as for `change`; None when the server has counted nothing
        of it."""
        return Weighed(self.count().tokens, self.head + messages) if self._base else None

    @property
    def measure(self) -> float:
        """What a token of our estimates of the messages comes to, as far as the server reads them."""
        if not self._base:
            return self.calibration.factor
        tokens, low = self.count().tokens, self._lightest
        if low is not None and self._weight - low.estimated >= LEAST:
            return min(2.5, max(0.5, (tokens - low.tokens) / (self._weight - low.estimated)))
        return tokens / max(1, self.head + self._weight)

    def after(self, change: int) -> int:
        """Tokens of the next prompt if the messages took so many more, or less."""
        if not self._base:
            return Count(0, self._raw + change, self.calibration.factor).tokens
        after = self.count().tokens + round(change * self.measure)
        return max(after, (self.head + self._weight + change) // 2)  # whatever was reported

    @property
    def head_counted(self) -> int:
        """About what the server counts for system prompt and tools."""
        low = self._lightest
        return low.tokens - low.estimated if low is not None and not low.estimated > low.tokens else self.head

    def change(self, before: int, after: int, was: Weighed | None = None) -> None:
        """A decision has made messages of `before` tokens, weighed anew, into such of `after` tokens. `was`: what stood
        before the decision that is taken back."""
        if was is not None:
            added = self.head + after - was.estimated
            base = was.tokens + round(added * self.calibration.factor)
        elif self._base:
            base = self.after(after - before)
        else:
            self.weigh_anew(after)
            return
        self._weight, self._base, self._scaled = after, max(1, base), True
        self._raw = self._replied = 0

    def weigh_anew(self, tokens: int) -> None:
        """The messages have changed in a way that their text does not tell; they take so many tokens now: everything
        is estimated."""
        self._weight = tokens
        self._base, self._scaled = 0, False
        self._raw = self._replied = self.head + self._weight
