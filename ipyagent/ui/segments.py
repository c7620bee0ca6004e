"""The panel's content as small pieces of HTML, and what changed since the front-end last heard.

A piece is sent again only when it changed; of a text on its way only the last Markdown block is.
A block that has grown long is appended to as plain text and rendered anew when it is a quarter
longer, so that a stream of n characters costs O(n) to render and to send.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import Any

from ipyagent.escape import plain
from ipyagent.journal.events import Event, PermissionAnswered, PermissionAsked, TurnEnded
from ipyagent.journal.protocols import TurnStatus
from ipyagent.kernel.output import output
from ipyagent.ui import markdown
from ipyagent.ui.fragments import item_html
from ipyagent.ui.items import Item, TextItem, ToolItem, ending
from ipyagent.ui.look import PANEL
from ipyagent.ui.meter import dollars, meter, percent
from ipyagent.ui.transcript import TurnTranscript

LIVE_TAIL = 16_000
"""Characters of live tool output after which the browser drops the older part of it."""

Op = list[Any]
"""`["put", piece, after, html, age]`, `["tail", piece, text]`, `["del", piece]` or `["bar", {…}]`."""


@dataclass(slots=True)
class _Progress:
    """How much of a live text is rendered for good, rendered once, and shown at all."""

    settled: int = 0
    blocks: list[str] = field(default_factory=list)
    rendered: int = 0
    shown: int = 0


class DeltaBuffer:
    """Not thread-safe; the panel guards it. `now` is a clock in Unix seconds; `mine` says whether an item is shown
    here (all are, unless it is given)."""

    def __init__(
        self,
        now: Callable[[], float],
        transcript: TurnTranscript | None = None,
        mine: Callable[[str], bool] = lambda key: True,
    ) -> None:
        self.transcript = transcript or TurnTranscript()
        self.seq = 0
        self._mine = mine
        self._last = True
        self._now = now
        self._dirty: dict[str, None] = {}
        self._bar_dirty = True
        self._html: dict[str, str] = {}
        self._tails: dict[str, list[str]] = {}  # text that was appended to a piece since it was put
        self._of: dict[str, list[str]] = {}  # item key → ids of its pieces, in order
        self._texts: dict[str, _Progress] = {}
        self._tools: dict[str, tuple[ToolItem, int, int]] = {}  # item without output, shown, since last put
        self._status: TurnStatus | None = None
        self._since = now()
        self.stopping = False

    def add(self, event: Event) -> None:
        """Take in an event of a transcript that is shown here alone."""
        self.changed(event, self.transcript.add(event))

    def changed(self, event: Event, keys: Iterable[str]) -> None:
        """The event has changed these items of the transcript."""
        self._dirty |= dict.fromkeys(filter(self._mine, keys))
        if isinstance(event, PermissionAsked | PermissionAnswered | TurnEnded):
            self._bar_dirty = True

    def status(self, status: TurnStatus) -> None:
        if self._status is None or _kind(self._status.phase) != _kind(status.phase):
            self._since = self._now()
        self._status = status
        self._bar_dirty = True

    def pass_bar(self) -> TurnStatus | None:
        """The bar moves to the next panel; the status that it showed."""
        self._last, self._bar_dirty = False, True
        return self._status

    def touch(self) -> None:
        """The bar is sent again (Stop was pressed)."""
        self._bar_dirty = True

    def drain(self) -> dict[str, Any] | None:
        """The next message: `{"seq", "ops"}`, None when nothing changed. `seq` counts from 1."""
        ops: list[Op] = []
        dirty, self._dirty = self._dirty, {}
        for key in dirty:
            ops += self._changed(key, self.transcript.item(key))
        if self._bar_dirty:
            ops.append(["bar", self._bar()])
            self._bar_dirty = False
        if not ops:
            return None
        self.seq += 1
        return {"seq": self.seq, "ops": ops}

    def snapshot(self) -> dict[str, Any]:
        """Everything as it was at `seq`, for a page that starts afresh."""
        ids = [piece for key in filter(self._mine, self.transcript.keys) for piece in self._of.get(key, ())]
        return {
            "seq": self.seq,
            "pieces": [[p, self._html[p], self._age(p), "".join(self._tails.get(p, ()))] for p in ids],
            "bar": self._bar(),
        }

    # ------------------------------------------------------------------ pieces

    def _changed(self, key: str, item: Item | None) -> list[Op]:
        if item is None:
            return self._remove(key)
        if isinstance(item, TextItem):
            return self._text(item)
        if isinstance(item, ToolItem):
            return self._tool(item)
        return self._put(key, key, item_html(item, PANEL))

    def _text(self, item: TextItem) -> list[Op]:
        at = self._texts.setdefault(item.key, _Progress())
        if not item.live:
            del self._texts[item.key]
            if not item.text.startswith("".join(at.blocks)) or markdown.has_definitions(item.text) or not at.blocks:
                first = f"{item.key}.0"
                extra = [op for piece in self._of.get(item.key, [])[1:] for op in self._remove_piece(item.key, piece)]
                return [*extra, *self._put(item.key, first, markdown.render(item.text))]
            return self._put(item.key, f"{item.key}.{len(at.blocks)}", markdown.render(item.text[at.settled :]))
        rest = item.text[at.settled :]
        if len(rest) > markdown.LONG_BLOCK and at.rendered and len(rest) < at.rendered * 1.25:
            fresh = plain(item.text[at.shown :])
            at.shown = len(item.text)
            return self._tail(f"{item.key}.{len(at.blocks)}", fresh)
        ops: list[Op] = []
        blocks, rest = markdown.split(rest)
        for block in blocks:
            ops += self._put(item.key, f"{item.key}.{len(at.blocks)}", markdown.render(block))
            at.blocks.append(block)
            at.settled += len(block)
        at.rendered = len(rest)
        at.shown = len(item.text)
        return ops + self._put(item.key, f"{item.key}.{len(at.blocks)}", markdown.render(rest))

    def _tool(self, item: ToolItem) -> list[Op]:
        frame = replace(item, output="")
        if item.state != "running":
            self._tools.pop(item.key, None)
            return self._put(item.key, item.key, item_html(item, PANEL))
        before, shown, since = self._tools.get(item.key, (None, 0, 0))
        fresh = item.output[shown:]
        # A carriage return rewrites what stands there already, so the whole tail is rendered again.
        if before == frame and since + len(fresh) < LIVE_TAIL and "\r" not in fresh:
            self._tools[item.key] = (frame, len(item.output), since + len(fresh))
            return self._tail(item.key, output(fresh))
        self._tools[item.key] = (frame, len(item.output), 0)
        return self._put(item.key, item.key, item_html(item, PANEL))

    def _put(self, key: str, piece: str, html: str) -> list[Op]:
        if self._html.get(piece) == html and piece not in self._tails:
            return []
        after = self._before(key, piece)
        ids = self._of.setdefault(key, [])
        if piece not in ids:
            ids.append(piece)
        self._html[piece] = html
        self._tails.pop(piece, None)
        return [["put", piece, after, html, self._age(piece)]]

    def _tail(self, piece: str, text: str) -> list[Op]:
        if not text:
            return []
        self._tails.setdefault(piece, []).append(text)
        return [["tail", piece, text]]

    def _before(self, key: str, piece: str) -> str:
        """The piece that stands before `piece`, "" when it is the first."""
        own = self._of.get(key, [])
        own = own[: own.index(piece)] if piece in own else own
        if own:
            return own[-1]
        last = ""
        for other in filter(self._mine, self.transcript.keys):
            if other == key:
                break
            if self._of.get(other):
                last = self._of[other][-1]
        return last

    def _remove(self, key: str) -> list[Op]:
        self._texts.pop(key, None)
        self._tools.pop(key, None)
        return [op for piece in list(self._of.pop(key, [])) for op in self._remove_piece(key, piece)]

    def _remove_piece(self, key: str, piece: str) -> list[Op]:
        if piece in self._of.get(key, []):
            self._of[key].remove(piece)
        del self._html[piece]
        self._tails.pop(piece, None)
        return [["del", piece]]

    def _age(self, piece: str) -> float:
        item = self.transcript.item(piece)
        running = isinstance(item, ToolItem) and item.state == "running" and item.began
        return round(max(self._now() - item.began, 0.0), 2) if running and isinstance(item, ToolItem) else 0.0

    # ------------------------------------------------------------------ the bar

    def _bar(self) -> dict[str, Any] | None:
        if not self._last:
            return None
        ended = self.transcript.ended
        status = self._status
        asking = self.transcript.asking
        phase = plain(status.phase) if status else "starting"
        if ended is not None:
            phase = plain(ending(ended))
        elif self.stopping:
            phase = "stopping"
        elif asking:
            phase = "waiting for your answer"
        bar: dict[str, Any] = {
            "phase": phase,
            "age": round(max(self._now() - self._since, 0.0), 2),
            "state": "ended" if ended else "stopping" if self.stopping else "asking" if asking else "running",
            "model": plain((status.model if status else "") or self.transcript.model),
            "cost": "",
            "costs": "",
            "meter": None,
        }
        if status is not None:
            bar["cost"], bar["costs"] = _costs(status)
            if status.window is not None:
                gauge = meter(status.window)
                bar["meter"] = {
                    "fill": gauge.fill, "marks": [list(mark) for mark in gauge.marks], "level": gauge.level,
                    "label": gauge.label, "tooltip": gauge.tooltip,
                }  # fmt: skip
        return bar


def _kind(phase: str) -> str:
    """The phase without its figures: "writing a call (120 characters)" goes on as the same phase."""
    return re.sub(r"[\d,.]+", "", phase)


def _costs(status: TurnStatus) -> tuple[str, str]:
    """The figure in the bar, and what its tooltip says."""
    rows = []
    if status.turn_cost is not None:
        rows.append(f"This request: {dollars(status.turn_cost)}")
    if status.cost is not None:
        rows.append(f"This session: {dollars(status.cost)}")
    if status.tokens_prompt:
        rows.append(f"Read from cache: {percent(status.tokens_read, status.tokens_prompt)} of the prompt tokens")
    shown = status.turn_cost if status.turn_cost is not None else status.cost
    return (dollars(shown) if shown is not None else ""), "\n".join(rows)
