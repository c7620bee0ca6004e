"""The panel's content as small pieces of HTML, and what changed since the front-end last heard.

A piece is sent again only when it changed; of a text on its way only the last Markdown block is.
A block that has grown long is appended to as plain text and rendered anew when it is a quarter
longer, so that a stream of n characters costs O(n) to render and to send."""

from __future__ import annotations

import html
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import Any, assert_never

from ipyagent.context.store_results import ends
from ipyagent.escape import escape, exact, line, plain
from ipyagent.journal.events import Event, PermissionAnswered, PermissionAsked, TurnEnded
from ipyagent.journal.protocols import TurnStatus
from ipyagent.kernel.output import output
from ipyagent.ui import markdown
from ipyagent.ui.item_views import child_html, main_argument, message_html, pages_html, plan_html, sources
from ipyagent.ui.items import (
    Item,
    MemoriesItem,
    MessageItem,
    NoticeItem,
    PlanItem,
    QuestionItem,
    SavedItem,
    SourcesItem,
    SubagentItem,
    TextItem,
    ThinkingItem,
    ToolItem,
    ToolState,
    ending,
    heading,
    rule_shown,
)
from ipyagent.ui.markdown import highlight
from ipyagent.ui.memory_chips import recalled_html, saved_html
from ipyagent.ui.meter import dollars, duration, meter, percent, thousands
from ipyagent.ui.theme import BAD, DIM, GOOD, LINE, PANEL, WARN, Theme
from ipyagent.ui.transcript import TurnTranscript

# ---- One item as HTML, the same for the live panel and for the static mirror. Meaning is in the tags (details,
# summary, pre, code, figure), because GitHub and sanitisers take classes and styles away; classes serve the panel,
# inline styles are an extra of the static form. All outside text passes `escape`, `highlight` or `markdown.render`.

FULL = (
    "margin:4px 0;padding:6px 10px;background:rgba(128,128,128,.06);"
    "white-space:pre-wrap;overflow-wrap:anywhere;tab-size:4"
)

SHORT_THOUGHT = 100
"""Characters below which a thought is shown as it is."""

_SIGNS = {"ia-done": f";color:{GOOD}", "ia-error": f";color:{BAD}"}
_ICONS: dict[ToolState, tuple[str, str]] = {
    "running": ("", "running"),
    "done": ("✓", "done"),
    "error": ("✗", "error"),
    "stopped": ("■", "stopped"),
}


def item_html(item: Item, look: Theme) -> str:
    match item:
        case TextItem():
            return markdown.render(item.text, inline=look.static)
        case ThinkingItem():
            return thinking(item, look)
        case ToolItem():
            return tool(item, look)
        case SourcesItem():
            return pages_html(item, look)
        case NoticeItem():
            return notice(item, look)
        case QuestionItem():
            if item.answer is not None:
                return answered(item, look)
            return question_in_full(item) if look.static else question(item)
        case MemoriesItem():
            return recalled_html(item, look)
        case SavedItem():
            return saved_html(item, look)
        case PlanItem():
            return plan_html(item, look)
        case SubagentItem():
            return child_html(item, look)
        case MessageItem():
            return message_html(item, look)
        case _:
            assert_never(item)


def thinking(item: ThinkingItem, look: Theme) -> str:
    """A fold; a finished thought of a few words is not worth one and stands as a quiet line."""
    if not item.live and len(item.text) < SHORT_THOUGHT:
        return f"<div {look.kind('ia-aside')}><small><em>{escape(line(item.text))}</em></small></div>"
    word = "Thinking" if item.live else "Thought"
    icon = '<span class="ia-icon ia-running" aria-hidden="true"></span>' if item.live else _icon("", "ia-dim", "", look)
    return (
        f'<details class="ia-fold"><summary {look.kind("ia-line")}>{icon} <b>{word}</b> '
        f'<small {look.kind("ia-meta")}>{_size(item.text)}</small></summary>'
        f"<div {look.kind('ia-thought')}>{markdown.render(item.text, inline=look.static)}</div></details>"
    )


def notice(item: NoticeItem, look: Theme) -> str:
    level = {"info": "ia-notice", "warning": "ia-warning", "error": "ia-error"}[item.level]
    icon = {"info": "·", "warning": "!", "error": "✗"}[item.level]
    text = f"<strong>{escape(item.text)}</strong>" if item.level == "error" else escape(item.text)
    return f"<div {look.kind('ia-note', level)}>{_icon(icon, level, item.level, look)} <span>{text}</span></div>"


def tool(item: ToolItem, look: Theme) -> str:
    """The line, its fold, and below it what is always visible: figures, and while the call runs the
    last rows of its output."""
    symbol, word = _ICONS[item.state]
    argument = main_argument(item.input)
    note = item.note
    if item.state == "error" and not note:
        note = line(item.output, 120)
    meta = [escape(part) for part in (*item.changes, note, item.permission) if part]
    if item.state != "running" and len(item.output) > 80 and "line" not in item.note:
        meta.append(f"{thousands(len(item.output) + item.left)} chars" if item.left else _size(item.output))
    clock = ""
    if item.state == "running":
        clock = f'<span class="ia-clock{" ia-more" * bool(meta)}"></span>'
    elif item.seconds >= 0.05:
        meta.append(duration(item.seconds))
    body = "".join(
        code_block(cut(plain(source.text), look.output_chars), source.language, source.filename, look)
        for source in sources(item.input)
    )
    if item.state == "running":
        live = output(item.output[-8000:])
        below = f'<pre class="ia-live" data-tail aria-hidden="true">{html.escape(live)}</pre>'
    else:
        text = printed(item, look.output_chars)
        if text.strip():
            inner = f"<code {look.kind('ia-inner')}>{html.escape(text)}</code>"
            body += f'<pre tabindex="0" {look.kind("ia-out")}>{inner}</pre>'
        below = figures(item, look)
    return (
        f'<details class="ia-fold"><summary {look.kind("ia-line")}>{_icon(symbol, "ia-" + item.state, word, look)} '
        f"<b>{escape(item.name)}</b> "
        + (f'<code {look.kind("ia-arg")}>{html.escape(argument)}</code> ' if argument else "")
        + f'<small {look.kind("ia-meta")}>{" · ".join(meta)}{clock}</small></summary>'
        f"<div {look.kind('ia-body')}>{body}</div></details>{below}"
    )


def figures(item: ToolItem, look: Theme) -> str:
    if look.cell and item.shown:
        return ""
    if not look.pictures and item.pictures:
        count = f"{len(item.pictures)} figure{'s' * (len(item.pictures) > 1)}"
        return f"<div {look.kind('ia-notice')}>[{count} left out: the output would be too large]</div>"
    return "".join(
        f"<figure {look.kind('ia-figure')}><img {look.kind('ia-picture')} alt=\"figure made by {escape(item.name)}\" "
        f'src="data:{picture.media_type};base64,{picture.data}"></figure>'
        for picture in item.pictures
    )


def question(item: QuestionItem) -> str:
    """The card: the danger, our title, the code in full, and three buttons of which none has the focus by itself.
    The page lets nobody allow what was not in sight to its end."""
    asked = item.asked
    danger, title, said = heading(asked)
    always = (
        f'<button type="button" data-act="always" title="{html.escape(exact(asked.pattern)[:2_000])}">'
        f"<span>Always for <code>{html.escape(rule_shown(asked))}</code></span></button>"
        if asked.pattern
        else ""
    )
    warned = f'<div class="ia-danger">{_icon("!", "ia-error", "")} <b>{html.escape(danger)}</b></div>' if danger else ""
    words = f'<div class="ia-said">{html.escape(said)}</div>' if said else ""
    return (
        f'<section class="ia-card" role="group" aria-label="Permission needed" tabindex="-1" '
        f'data-call="{escape(asked.call)}" data-digest="{escape(asked.digest)}">'
        f'{warned}<div class="ia-ask">{_icon("?", "ia-warning", "")} <b>{html.escape(title)}</b></div>{words}'
        f'<pre class="ia-code ia-full" tabindex="0" role="region" aria-label="What would run"><code>'
        f"{highlight(exact(asked.text), asked.language)}</code></pre>"
        f'<div class="ia-rest" hidden><span class="ia-count" role="status"></span>'
        f'<button type="button" class="ia-low" data-next>Show the next</button></div>'
        f'<div class="ia-buttons"><button type="button" data-act="once" class="ia-primary">Allow once</button>'
        f'<button type="button" data-act="deny">Deny</button>{always}'
        f'<input type="text" class="ia-input ia-reason" maxlength="2000" placeholder="Reason (optional, for Deny)" '
        f'aria-label="Reason for denying, optional"></div></section>'
    )


def question_in_full(item: QuestionItem) -> str:
    """An open question where there are no buttons: nothing folded, cut or scrolled away."""
    danger, title, said = heading(item.asked)
    text = exact(item.asked.text)
    rows = text.count("\n") + 1
    warned = f'<div style="color:{BAD}"><strong>! {html.escape(danger)}</strong></div>' if danger else ""
    words = f'<div style="color:{DIM}"><small>{html.escape(said)}</small></div>' if said else ""
    count = f'<div style="color:{DIM}"><small>{rows:,} lines, all of them above</small></div>' if rows > 20 else ""
    inner = highlight(text, item.asked.language, inline=True)
    return (
        f'<div style="margin:6px 0;padding:8px 12px;border:1px solid {LINE};border-left:3px solid {WARN}">'
        f"{warned}<div><strong>{html.escape(title)}</strong></div>{words}"
        f'<pre style="{FULL}"><code style="background:none;padding:0;color:inherit;white-space:inherit">{inner}</code>'
        f"</pre>{count}</div>"
    )


def answered(item: QuestionItem, look: Theme) -> str:
    """A question that is over (granted ones go on as their tool call)."""
    asked = item.asked
    if item.answer == "deny" and item.by != "stop":
        by = {"user": "", "rule": " by a rule", "mode": " by the mode", "headless": ": nobody could be asked"}
        symbol, level, word = "✗", "ia-stopped", "Denied" + by.get(item.by, "")
    elif item.answer in ("once", "always"):
        symbol, level, word = "✓", "ia-done", "Allowed once" if item.answer == "once" else "Always allowed"
        if item.unrun:
            symbol, level, word = "■", "ia-stopped", f"{word}, but not run"
    else:
        symbol, level, word = "■", "ia-stopped", "Not answered"
    reason = f" · {escape(item.reason)}" if item.reason else ""
    danger, title, said = heading(asked)
    warned = f"<div><small>! {html.escape(danger)}</small></div>" if danger else ""
    words = f"<div><small>{html.escape(said)}</small></div>" if said else ""
    return (
        f'<details class="ia-fold"><summary {look.kind("ia-line")}>{_icon(symbol, level, "", look)} '
        f"<b>{html.escape(title)}</b> "
        f'<small {look.kind("ia-meta")}>{word}{reason}</small></summary>'
        f"<div {look.kind('ia-body')}>{warned}{words}"
        f"{code_block(cut(exact(asked.text), look.output_chars), asked.language, '', look)}</div></details>"
    )


def code_block(text: str, language: str, filename: str, look: Theme) -> str:
    inner = highlight(text, language, filename, inline=look.static)
    return f'<pre tabindex="0" {look.kind("ia-code")}><code {look.kind("ia-inner")}>{inner}</code></pre>'


def _icon(symbol: str, kind: str, word: str, look: Theme = PANEL) -> str:
    hidden = f' role="img" aria-label="{word}"' if word else ' aria-hidden="true"'
    shown = look.kind("ia-icon")[:-1] if look.static else f'class="ia-icon {kind}'
    colour = _SIGNS.get(kind, "") if look.static else ""  # before words that are not coloured themselves
    return f'<span {shown}{colour}"{hidden}>{symbol}</span>'


def _size(text: str) -> str:
    rows = text.strip("\n").count("\n") + 1
    return f"{rows} lines" if rows > 1 else f"{thousands(len(text))} chars"


def printed(item: ToolItem, limit: int) -> str:
    """The output of a call that ended, in about `limit` characters."""
    return cut(output(item.output).rstrip(), limit, item.left, item.kept)


def cut(text: str, limit: int, left: int = 0, kept: str = "") -> str:
    """Beginning and end of a text over `limit` characters, and on a line between them how much is not shown and where
    it is: in the file `kept`. `left` characters are missing in the text already."""
    head, tail, gone = ends(text, limit, left)
    if not gone:
        return text
    where = f"the whole is in {line(kept, 4_000)}" if kept else "the session's transcript has them"
    return f"{head}\n… {gone:,} characters not shown: {where} …\n{tail}"


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
