"""Where the provider's cache can be read: the ends of the prompts that the server has answered.

An end counts only as long as everything before it is as it was sent. After a change in the middle the newest end before
it is the anchor; what was written since the last change has ends of its own, what was rewritten in one go has only one.
"""

from __future__ import annotations

from bisect import bisect_left
from typing import NamedTuple

from ipyagent.journal.blocks import Position


class CachePrefix(NamedTuple):
    """The place of the last block, and when it was written (Unix time)."""

    end: Position
    at: float


class CacheSnapshot(NamedTuple):
    """Ends as they were at some time; `age`: how often everything had been forgotten until then."""

    ends: tuple[CachePrefix, ...] = ()
    age: int = -1


class CachePrefixes:
    """The ends, in the order of the messages."""

    def __init__(self) -> None:
        self._known: list[CachePrefix] = []
        self._pictures = False
        self.written_at = 0.0
        """When the newest was written; 0.0 when there is none."""
        self.head_at = 0.0
        """When system prompt and tools were written; 0.0 when they cannot be read."""
        self._age = 0

    @property
    def anchor(self) -> Position | None:
        """The newest end."""
        return self._known[-1].end if self._known else None

    def write(self, end: Position | None, at: float, *, pictures: bool) -> None:
        """A prompt that ended there was answered. With its first picture the provider begins the
        messages anew."""
        if pictures != self._pictures:
            self.forget()
            self._pictures = pictures
        self.written_at = self.head_at = at
        if end is None:
            return
        while self._known and self._known[-1].end >= end:
            self._known.pop()
        self._known.append(CachePrefix(end, at))

    def change(self, message: int) -> None:
        """From this message on everything is another."""
        del self._known[bisect_left(self._known, message, key=lambda entry: entry.end[0]) :]

    def forget(self) -> None:
        """No message can be read any more, nor one that comes back."""
        self._known.clear()
        self._age += 1

    def begin_anew(self) -> None:
        """Another model or head: nothing can be read."""
        self.forget()
        self.head_at = 0.0

    def change_head(self, written: float = 0.0) -> None:
        """All messages have left, and another head comes, or with them the one that was `written` then (Unix time):
        ends that were known before may come back."""
        if not written:
            self._known.clear()
        self.head_at = written

    def known(self) -> CacheSnapshot:
        """The ends as they are, for taking a decision back."""
        return CacheSnapshot(tuple(self._known), self._age)

    def bring_back(self, known: CacheSnapshot, message: int) -> None:
        """What was known before a decision that is taken back holds again, but for message `message` and later."""
        self._known[:] = known.ends if known.age == self._age else ()
        self.change(message)

    def has_head(self, since: float) -> bool:
        """Whether system prompt and tools can be read, as of an entry written after `since`."""
        return bool(self.head_at) and self.head_at >= since

    def held(self, message: int, since: float) -> int:
        """How many of the messages before `message` can be read from an entry written after `since`."""
        for at in range(bisect_left(self._known, message, key=lambda entry: entry.end[0]) - 1, -1, -1):
            entry = self._known[at]
            if entry.at >= since:
                return entry.end[0] + 1
        return 0
