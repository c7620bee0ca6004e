"""What stays in the notebook: one turn as HTML, Markdown and plain text that need no kernel.

Readable in JupyterLab, nbconvert and on GitHub, in light and dark, with no style at all; bounded in
size; a turn that did not finish says so.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, assert_never

from ipyagent.escape import escape, exact, line, plain
from ipyagent.journal.events import Event
from ipyagent.journal.protocols import TurnStatus
from ipyagent.journal.recorded import Recording, recording_of
from ipyagent.ui import markdown
from ipyagent.ui.item_views import item_lines, main_argument, pages_markdown, sources
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
    heading,
)
from ipyagent.ui.meter import dollars, duration, meter
from ipyagent.ui.segments import cut, item_html, printed
from ipyagent.ui.theme import STATIC_CLASSES, MemoryAction, Theme
from ipyagent.ui.transcript import TurnTranscript

BUNDLE_CHARS = 1_000_000
"""About the largest HTML that is written into a notebook, in characters."""

OUTPUT_CHARS = 20_000
"""Characters of one call's output in the HTML."""

MARKDOWN_PICTURES = 100_000
"""Characters of pictures in a document in Markdown; beside the HTML form in a cell there is none."""


def static_bundle(events: Iterable[Event], status: TurnStatus | None) -> dict[str, str]:
    """`text/html`, `text/markdown` and `text/plain` of a turn, with all its pictures."""
    transcript = TurnTranscript()
    for event in events:
        transcript.add(event)
    return _bundle(transcript.items, footer_line(transcript, status), {}, "", cell=False)


def static_sections(
    events: Iterable[Event],
    status: TurnStatus | None,
    count: int,
    marks: Mapping[MemoryAction, str] | None = None,
    cells: str = "",
    *,
    recording: Recording | None = None,
    ended: bool = True,
) -> list[tuple[dict[str, str], dict[str, Any]]]:
    """The turn as it stays in the cell that ran it: `count` bundles, between which the outputs of its code stand, each
    with its metadata. `marks` as in `Theme`, `cells` the mark of the button that inserts its code as cells,
    `recording` what is replayed here (None: the turn is new); of a turn that has `ended` the last keeps what a replay
    needs."""
    events = list(events)
    transcript = TurnTranscript()
    for event in events:
        transcript.add(event)
    sections: list[list[Item]] = [[] for _ in range(count)]
    for item in transcript.items:
        sections[min(transcript.section(item.key), count - 1)].append(item)
    footer = footer_line(transcript, status)
    last = _bundle(sections.pop(), footer, marks or {}, cells, cell=True)
    kept = recording_of(recording.events if recording is not None else events) if ended else {}
    return [*((_bundle(items, "", marks or {}, "", cell=True), {}) for items in sections), (last, kept)]


def _bundle(
    items: Sequence[Item], footer: str, marks: Mapping[MemoryAction, str], cells: str, *, cell: bool
) -> dict[str, str]:
    return {
        "text/html": _html(items, footer, marks, cells, cell=cell),
        "text/markdown": _markdown(items, footer, 0 if cell else MARKDOWN_PICTURES),
        "text/plain": plain_text(items, footer),
    }


def footer_line(transcript: TurnTranscript, status: TurnStatus | None) -> str:
    """"model · context 42% of 200k · $0.01 · 3.4 s", what is known of it."""
    parts = [(status.model if status else "") or transcript.model]
    if status and status.window:
        parts.append("context " + meter(status.window).label)
    cost = status.turn_cost if status and status.turn_cost is not None else transcript.cost
    if cost is not None:
        parts.append(dollars(cost))
    if transcript.ended is not None and transcript.ended.seconds:
        parts.append(duration(transcript.ended.seconds))
    return " · ".join(line(part, 120) for part in parts if part)


def _html(items: Sequence[Item], footer: str, marks: Mapping[MemoryAction, str], cells: str, *, cell: bool) -> str:
    for look in (
        Theme(static=True, cell=cell, output_chars=OUTPUT_CHARS, marks=marks),
        Theme(static=True, cell=cell, output_chars=2_000, marks=marks),
        Theme(static=True, cell=cell, output_chars=2_000, pictures=False, marks=marks),
    ):
        parts = [f"<div{_pull(items, at)}>{item_html(item, look)}</div>" for at, item in enumerate(items)]
        if sum(map(len, parts)) <= BUNDLE_CHARS:
            break
    kept: list[str] = []
    asking = [isinstance(item, QuestionItem) and item.answer is None for item in items]
    room = BUNDLE_CHARS - sum(len(part) for part, open_one in zip(parts, asking, strict=True) if open_one)
    for part, open_one in zip(parts, asking, strict=True):
        if open_one:  # what is asked about is never left out
            kept.append(part)
        elif room >= 0:
            room -= len(part)
            rest = "<p><em>The rest is left out of the notebook; the session's transcript has it.</em></p>"
            kept.append(part if room >= 0 else rest)
    small = f'<div style="margin-top:4px;opacity:.75"><small>{escape(footer)}</small></div>' if footer else ""
    small += _as_cells(cells) if cells else ""
    return f'<div class="{STATIC_CLASSES}">' + "\n".join(kept) + small + "</div>"


def _pull(items: Sequence[Item], at: int) -> str:
    """What was done stands close below the sentence that announces it."""
    after_text = at > 0 and isinstance(items[at - 1], TextItem) and not isinstance(items[at], TextItem)
    return ' style="margin-top:-8px"' if after_text else ""


def _as_cells(mark: str) -> str:
    """A button without words, which a live page brings to life; the command that does the same stands beside it."""
    label = "Insert the code of this turn as cells below"
    return (
        f'<div style="margin-top:2px"><button type="button" hidden data-again data-ipyagent-door="{escape(mark)}" '
        f'data-sign="insert as cells" aria-label="{label}" title="{label}"></button>'
        '<small style="opacity:.75">as cells: <code>%agent cells</code></small></div>'
    )


def _markdown(items: Sequence[Item], footer: str, room: int) -> str:
    """`room` for the characters of pictures; none: in a cell, where those of code stand by themselves."""
    cell, parts = not room, list[str]()
    for item in items:
        match item:
            case TextItem():
                parts.append(markdown.harmless(item.text).strip())
            case ThinkingItem():
                pass  # folded away elsewhere; Markdown cannot fold
            case ToolItem():
                parts.append(_quoted(_tool_words(item)))
                parts += [_fence(plain(s.text), s.language) for s in sources(item.input)]
                if item.output.strip():
                    parts.append(_fence(printed(item, 2_000), "text"))
                for picture in () if cell and item.shown else item.pictures:
                    room -= len(picture.data)
                    if room >= 0:
                        parts.append(f"![figure](data:{picture.media_type};base64,{picture.data})")
                    else:
                        parts.append("*figure: see the HTML form of this output*")
            case SourcesItem():
                parts.append(pages_markdown(item, _words))
            case NoticeItem():
                parts.append(f"**{_words(item.text)}**" if item.level == "error" else f"*{_words(item.text)}*")
            case QuestionItem():
                parts += [f"*{_words(question_words(item))}*", _fence(_asked_text(item), "text")]
            case MemoriesItem() | PlanItem() | SavedItem() | SubagentItem() | MessageItem():
                head, *rows = item_lines(item)
                listed = ["", *(f"- {_words(row)}" for row in rows)] if rows else []
                parts.append("\n".join([f"*{_words(head)}*", *listed]))
            case _:
                assert_never(item)
    if footer:
        parts.append(f"*{_words(footer)}*")
    return _short("\n\n".join(part for part in parts if part), BUNDLE_CHARS) + "\n"


def plain_text(items: Sequence[Item], footer: str, output_chars: int = 2_000) -> str:
    """The same as text for terminals, logs and papermill."""
    parts: list[str] = []
    for item in items:
        match item:
            case TextItem():
                parts.append(plain(item.text).strip())
            case ThinkingItem():
                pass
            case ToolItem():
                rows = [_tool_words(item)]
                if item.output.strip():
                    rows.append(_indented(printed(item, output_chars)))
                rows += [f"    [figure, {picture.media_type}]" for picture in item.pictures]
                parts.append("\n".join(rows))
            case SourcesItem() | PlanItem():
                parts.append("\n".join(item_lines(item)))
            case NoticeItem():
                parts.append(f"[{plain(item.text)}]")
            case QuestionItem():
                parts.append(f"[{line(question_words(item))}]\n{_indented(_asked_text(item))}")
            case MemoriesItem() | SavedItem() | SubagentItem() | MessageItem():
                parts.append("[" + "\n".join(item_lines(item)) + "]")
            case _:
                assert_never(item)
    if footer:
        parts.append(f"[{footer}]")
    return "\n\n".join(part for part in parts if part)


def question_words(item: QuestionItem) -> str:
    """The question and how it ended, on one line."""
    if item.answer == "deny" and item.by != "stop":
        end = "denied" + (f": {item.reason}" if item.reason else "")
    elif item.answer is None or item.answer == "deny":
        end = "not answered"
    else:
        end = f"allowed, but not run: {item.reason}" if item.unrun else "allowed"
    danger, title, said = heading(item.asked)
    return " · ".join(part for part in (danger, f"{title} ({end})", said) if part)


def _asked_text(item: QuestionItem) -> str:
    """Of an open question all."""
    text = exact(item.asked.text)
    return text if item.answer is None else cut(text, 4_000)


def _tool_words(item: ToolItem) -> str:
    mark = {"running": "…", "done": "✓", "error": "✗", "stopped": "■"}[item.state]
    extra = [*item.changes, item.note]
    if item.seconds >= 0.05:
        extra.append(duration(item.seconds))
    tail = f" ({', '.join(line(part, 80) for part in extra if part)})" if any(extra) else ""
    return f"{mark} {line(item.name, 60)} {main_argument(item.input, 100)}".rstrip() + tail


def _quoted(text: str) -> str:
    return f"**{_words(text)}**"


def _words(text: str) -> str:
    """One line of text in which nothing is Markdown."""
    return "".join("\\" + char if char in "\\`*_{}[]()<>#+!|~$&" else char for char in line(text))


def _fence(text: str, language: str) -> str:
    return markdown.fenced(text, language if language.isalnum() else "")


def _indented(text: str) -> str:
    return "\n".join("    " + row for row in text.split("\n"))


def _short(text: str, limit: int) -> str:
    return text if len(text) <= limit else f"{text[:limit]}\n… {len(text) - limit:,} characters not shown"
