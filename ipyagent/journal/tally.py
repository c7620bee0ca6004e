"""Tokens of the next prompt: what the server reported last, and our estimate of everything since.

From a decision that changes what was sent, the last report goes on by our estimates of what left and came: by one
measure a prompt from which something leaves is never the larger one. That measure is what a token of our estimates
came to in the messages so far, as far as two reports tell it apart from system prompt and tools. Only where nothing
was counted, or what leaves cannot be told from its text (thinking), everything is estimated.

A server may read only the newest part of a prompt and say nothing of it: then its counts stand still while the
conversation grows. From where that is seen on they are believed only for what fits below where they stood.
"""

from __future__ import annotations

from typing import NamedTuple

from ipyagent.journal.events import UsageReported
from ipyagent.journal.tokens import Calibration, Count, learn_from, plausible

LEAST = 500
"""Estimated tokens by which two prompts must differ for their reports to tell what a token of a message comes to."""


ROUND = 1_024
"""Windows of servers that cut are multiples of this."""
LEAST_CEILING = 1_024
"""A count that stands still below this is none at all: no window is that small."""
SLOW = 0.1
"""No tokenizer makes less than this of a token as we estimate text: it takes a sixth at most."""


class ReportedCount(NamedTuple):
    """A server's count of a prompt, and the estimated tokens of text that had come to the messages until then."""

    prompt: int
    text: int


class Weighed(NamedTuple):
    """Tokens of a prompt that the server had counted, and our uncalibrated estimate of all of it."""

    tokens: int
    estimated: int


class TokenCounter:
    """Grows with the messages. All figures but those of `count` are estimates before calibration."""

    def __init__(self) -> None:
        self.calibration = Calibration()
        self.head = 0
        """Tokens of system prompt and tools."""
        self._base = 0
        self._raw = 0
        self._reply = 0
        """Tokens of the newest reply."""
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
        self.ceiling = 0
        """The tokens above which the server was seen to cut prompts silently; 0 while it was not."""
        self._text = 0
        """Tokens of text that came to the messages, without thinking and images: of these servers leave out what they
        like."""
        self._sent_text = 0
        """The same when the newest reply was asked for, and at the report before."""
        self._told_text = 0
        self._stood: ReportedCount | None = None
        """The report since which counts have not grown."""
        self._lightest: Weighed | None = None
        """The reported prompt with the fewest messages: tokens of it all, estimate of the messages alone."""

    def count(self) -> Count:
        """Tokens of the next prompt, see `Count`."""
        return Count(self._base, self._raw, self.calibration.factor)

    def add(self, tokens: int, unread: int = 0) -> None:
        """So many tokens came to the messages; `unread` of them at most may be left out by a server that reads it
        all."""
        self._raw += tokens
        self._weight += tokens
        self._text += max(0, tokens - unread) if tokens > 0 else tokens

    def render(self, tokens: int) -> None:
        """System prompt and tools now take so many tokens."""
        self._raw += tokens - self.head
        self.head, self._lightest, self._stood = tokens, None, None

    def reply(self, tokens: int | None, unread: int = 0) -> None:
        """A reply came, of so many tokens that stay in the messages (None: nothing of it does); `unread` as
        in `add`."""
        self._output, self._sent = tokens is not None, self.head + self._weight
        self._sent_text = self._text
        self._reply = tokens or 0
        self.add(self._reply, unread)
        self._replied = self._raw

    def begin_anew(self) -> None:
        """Another model or head reads on: earlier reports tell nothing of what comes."""
        self._lightest, self._stood, self.ceiling = None, None, 0

    def edited(self, tokens: int) -> None:
        """The server leaves out more than before, or less, or has put a summary into its reply and reads nothing
        before it any more; what it reads of the messages now takes so many tokens."""
        self._weight, self._stood = tokens, None
        self._edited = self._left_out = True

    def report(self, event: UsageReported) -> None:
        """The server has counted the prompt of the newest reply."""
        # what came back is in no count yet
        searched = event.searched or event.usage.searches + event.usage.fetches > 0
        known = self._edited or (event.billed is not None and not searched)
        sent = self.head + self._weight if event.stopped else self._sent
        if not known and not event.stopped and self._is_cut(event.usage.prompt):
            return  # nothing is to be learned from it
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
                self._base = event.usage.total if self._output and not searched else event.usage.prompt
                self._raw -= self._replied - (self._reply if searched else 0)
            self._replied, self._scaled = 0, False
            messages = sent - self.head
            if not known and (self._lightest is None or messages < self._lightest.estimated):
                self._lightest = Weighed(event.usage.prompt, messages)
        self._edited = False

    def _is_cut(self, prompt: int) -> bool:
        """Whether a server's count is of a prompt that it has cut."""
        if self.ceiling and prompt > 1.1 * self.ceiling:
            self.ceiling, self._stood = 0, None  # it reads more than it did
        if self.ceiling:
            return prompt > 0.9 * self.ceiling or self._sent > self.ceiling
        step, self._told_text = self._sent_text - self._told_text, self._sent_text
        found = self._stood
        if found is None or self._sent_text < found.text or prompt < found.prompt // 2:
            found = self._stood = None
        grown = self._sent_text - found.text if found is not None else 0
        if found is None or prompt - found.prompt >= max(1, SLOW * grown):
            self._stood = ReportedCount(prompt, self._sent_text)
            cut = prompt % ROUND == 0 and self._sent >= 2 * prompt
        elif prompt == found.prompt and grown >= LEAST // 25:
            cut = prompt % ROUND == 0 or self._sent >= 1.25 * prompt or grown >= LEAST
        else:  # a count of no more than what is new is of a server that does not tell what it read from its cache
            cut = grown >= LEAST and prompt > 2 * step + LEAST
        if not cut or prompt < LEAST_CEILING:
            return False
        self.ceiling = max(prompt, found.prompt if found is not None else 0)
        self.calibration, self._lightest = Calibration(), None
        self.weigh_anew(self._weight)
        return True

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
        self._weight, self._base, self._scaled, self._stood = after, max(1, base), True, None
        self._raw = self._replied = 0

    def weigh_anew(self, tokens: int) -> None:
        """The messages have changed in a way that their text does not tell; they take so many tokens now: everything
        is estimated."""
        self._weight, self._stood = tokens, None
        self._base, self._scaled = 0, False
        self._raw = self._replied = self.head + self._weight
