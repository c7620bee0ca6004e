"""One item as HTML, the same for the live panel and for the static mirror.

Meaning is in the tags (details, summary, pre, code, figure), because GitHub and sanitisers take
classes and styles away; classes serve the panel, inline styles are an extra of the static form.
All outside text passes `escape`, `highlight` or `markdown.render`.
"""

from __future__ import annotations

import html
from typing import assert_never

from ipyagent.context.store_results import ends
from ipyagent.escape import escape, exact, line, plain
from ipyagent.kernel.output import output
from ipyagent.ui import markdown
from ipyagent.ui.calls import main_argument, sources
from ipyagent.ui.children import child_html
from ipyagent.ui.code import highlight
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
    heading,
    rule_shown,
)
from ipyagent.ui.look import BAD, DIM, GOOD, LINE, PANEL, WARN, Theme
from ipyagent.ui.memory_chips import recalled_html, saved_html
from ipyagent.ui.messages import message_html
from ipyagent.ui.meter import duration, thousands
from ipyagent.ui.plan import plan_html
from ipyagent.ui.web import pages_html

FULL = (
    "margin:4px 0;padding:6px 10px;background:rgba(128,128,128,.06);"
    "white-space:pre-wrap;overflow-wrap:anywhere;tab-size:4"
)

SHORT_THOUGHT = 100
"""Characters below which a thought is shown as it is."""

_SIGNS = {"ia-done": f' style="color:{GOOD}"', "ia-error": f' style="color:{BAD}"'}
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
    icon = '<span class="ia-icon ia-running" aria-hidden="true"></span>' if item.live else _icon("", "ia-dim", "")
    return (
        f'<details class="ia-fold"><summary {look.kind("ia-line")}>{icon} <b>{word}</b> '
        f'<small {look.kind("ia-meta")}>{_size(item.text)}</small></summary>'
        f"<div {look.kind('ia-thought')}>{markdown.render(item.text, inline=look.static)}</div></details>"
    )


def notice(item: NoticeItem, look: Theme) -> str:
    level = {"info": "ia-notice", "warning": "ia-warning", "error": "ia-error"}[item.level]
    icon = {"info": "·", "warning": "!", "error": "✗"}[item.level]
    text = f"<strong>{escape(item.text)}</strong>" if item.level == "error" else escape(item.text)
    return f"<div {look.kind('ia-note', level)}>{_icon(icon, level, item.level)} <span>{text}</span></div>"


def tool(item: ToolItem, look: Theme) -> str:
    """The line, its fold, and below it what is always visible: figures, and while the call runs the
    last rows of its output."""
    symbol, word = _ICONS[item.state]
    argument = main_argument(item.input)
    note = item.note
    if item.state == "error" and not note:
        note = line(item.output, 120)
    meta = [escape(part) for part in (*(f"wrote {path}" for path in item.files), note, item.permission) if part]
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
    colour = _SIGNS.get(kind, "") if look.static else ""  # before words that are not coloured themselves
    return f'<span class="ia-icon {kind}"{colour}{hidden}>{symbol}</span>'


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
