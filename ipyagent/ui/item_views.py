"""How one item of a turn looks in HTML: a call with its input, a plan, sub-agents, messages, pages of the web. All
text is escaped."""

from __future__ import annotations

import difflib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any, assert_never
from urllib.parse import quote, urlsplit

from ipyagent.escape import escape, line, plain
from ipyagent.journal.blocks import CALL, CitedPage, cited_in, error_of, is_result, page_text, sources_of
from ipyagent.journal.events import (
    Block,
    ChildEnded,
    ChildProgress,
    ChildStarted,
    Ending,
    MessageKind,
    MessageReceived,
    MessageSent,
    Step,
    StepState,
)
from ipyagent.ui.items import (
    MemoriesItem,
    MessageItem,
    PlanItem,
    SavedItem,
    SourcesItem,
    SubagentItem,
    ToolItem,
    ToolState,
)
from ipyagent.ui.memory_chips import recalled_lines, saved_text
from ipyagent.ui.meter import dollars, duration
from ipyagent.ui.theme import Theme


def item_lines(item: MemoriesItem | MessageItem | PlanItem | SavedItem | SourcesItem | SubagentItem) -> list[str]:
    """An item in plain words: one line, or a heading and a line for each thing that it lists."""
    match item:
        case MemoriesItem():
            return recalled_lines(item)
        case SavedItem():
            return [saved_text(item)]
        case PlanItem():
            return plan_lines(item)
        case SubagentItem():
            return [f"{_AGENT_SIGNS[item.state][0]} {child_words(item)}"]
        case MessageItem():
            return [f"{'←' if item.way == 'from' else '→'} {message_words(item)}"]
        case SourcesItem():
            return pages_lines(item)
        case _:
            assert_never(item)


# ---- What a tool call says about itself: the argument worth a line, and its input as source text.

_CODE = ("code", "source")
_COMMAND = ("command", "cmd")
_PATH = ("path", "file_path", "filename", "notebook", "file")
_PAIRS = (
    ("old", "new"), ("old_string", "new_string"), ("old_text", "new_text"), ("old_str", "new_str"), ("before", "after"),
)  # fmt: skip
_CONTENT = ("content", "text", "body", "file_text", "insert_text")
_FIRST = (*_CODE, *_COMMAND, *_PATH, "pattern", "query", "name", "skill", "task", "prompt", "url")


@dataclass(frozen=True, slots=True)
class CodeBlock:
    """A piece of input: `text` as it is (not cleaned), the lexer by `language` or `filename`."""

    text: str
    language: str = ""
    filename: str = ""


def main_argument(input: Mapping[str, Any], width: int = 90) -> str:
    """The most telling argument on one line, cleaned; "" when there is none."""
    if verb := _verb(input):
        return line(f"{verb} {_place(input)}", width)
    action = input.get("action")
    if isinstance(action, str) and action.isidentifier():
        about = {key: value for key, value in input.items() if key in _FIRST}
        return line(f"{action} {main_argument(about, width)}".rstrip(), width)
    for key in (*_FIRST, *input):
        value = input.get(key)
        if isinstance(value, str) and value.strip():
            return line(_telling_row(value) if key in _CODE else value, width)
    for value in input.values():
        if value not in (None, "", [], {}):
            return line(_json(value), width)
    return ""


def sources(input: Mapping[str, Any]) -> list[CodeBlock]:
    """All of the input, the code, command or diff first; nothing is left out."""
    rest = dict(input)
    path = next((str(rest[key]) for key in _PATH if isinstance(rest.get(key), str)), "")
    found: list[CodeBlock] = []
    if _verb(input):
        del rest["command"]  # it is on the line already
    for key in _CODE:
        if isinstance(rest.get(key), str):
            found.append(CodeBlock(rest.pop(key), "" if path else "python", path))
    for key in _COMMAND:
        if isinstance(rest.get(key), str):
            found.append(CodeBlock(rest.pop(key), "bash"))
    for old, new in _PAIRS:
        if isinstance(rest.get(old), str) and isinstance(rest.get(new), str):
            found.append(CodeBlock(diff(rest.pop(old), rest.pop(new)), "diff"))
    for key in _CONTENT:
        if path and isinstance(rest.get(key), str):
            found.append(CodeBlock(rest.pop(key), "", path))
    if rest and not (found and len(rest) == 1 and path):  # a lone path is on the line already
        rows = [f"{key}: {value if isinstance(value, str) else _json(value)}" for key, value in rest.items()]
        found.append(CodeBlock("\n".join(rows), "text"))
    return found


def _verb(input: Mapping[str, Any]) -> str:
    """A `command` that is no command line but what is to be done with a path: "create"."""
    command = input.get("command")
    return command if isinstance(command, str) and command.isidentifier() and _place(input) else ""


def _place(input: Mapping[str, Any]) -> str:
    return next((value for key in (*_PATH, "old_path") if isinstance(value := input.get(key), str)), "")


def diff(old: str, new: str) -> str:
    """Changed rows with three of context, without file names."""
    rows = difflib.unified_diff(old.splitlines(), new.splitlines(), lineterm="", n=3)
    return "\n".join(list(rows)[2:])


def _telling_row(code: str) -> str:
    rows = [row.strip() for row in code.splitlines()]
    rows = [row for row in rows if any(char.isalnum() for char in row)]
    telling = (row for row in rows if not row.startswith(("#", "import ", "from ", "%matplotlib", '"""')))
    return next(telling, rows[0] if rows else "")


def _json(value: object) -> str:
    try:
        return json.dumps(value, ensure_ascii=False)
    except (TypeError, ValueError):
        return str(value)


# ---- The model's plan as a small checklist. The state of a step is in words or signs, never in colour alone.

LONGEST = 200
"""Characters of a step that are shown."""

_SIGNS: dict[StepState, tuple[str, str]] = {"pending": ("☐", "to do"), "doing": ("▸", "doing"), "done": ("☑", "done")}


def plan_lines(item: PlanItem) -> list[str]:
    """A heading, "Plan, 2 of 5 done", and a line a step."""
    done = sum(step.state == "done" for step in item.steps)
    rows = (f"  {_SIGNS[step.state][0]} {line(step.text, LONGEST)}" for step in item.steps)
    return [f"Plan, {done} of {len(item.steps)} done", *rows]


def plan_html(item: PlanItem, look: Theme) -> str:
    """The checklist, which a screen reader reads with the states."""
    rows = "".join(_row(step) for step in item.steps)
    return (
        f'<div {look.kind("ia-plan")}><small {look.kind("ia-notice")}>{escape(plan_lines(item)[0])}</small>'
        f'<ul {look.kind("ia-steps")} aria-label="Plan">{rows}</ul></div>'
    )


def _row(step: Step) -> str:
    sign, word = _SIGNS[step.state]
    text = escape(line(step.text, LONGEST))
    shown = {"done": f"<s>{text}</s>", "doing": f"<b>{text}</b>"}.get(step.state, text)
    return f'<li><span role="img" aria-label="{word}">{sign}</span> {shown}</li>'


# ---- A sub-agent in a cell: one line that says who it is, what it is about, how it ended. Signs carry words.

_AGENT_SIGNS: dict[ToolState, tuple[str, str]] = {
    "running": ("▸", "running"), "done": ("✓", "done"), "error": ("✗", "failed"), "stopped": ("■", "stopped"),
}  # fmt: skip
_ENDS: dict[Ending, ToolState] = {
    "finished": "done", "limit": "done", "stopped": "stopped", "refused": "error", "failed": "error",
}  # fmt: skip


def child_key(child: str) -> str:
    """The key of a sub-agent's item."""
    return "k:" + child


def child_item(event: ChildStarted | ChildProgress | ChildEnded, before: object) -> SubagentItem:
    """The item after the event; `before` is the one that stands, None for one that began in an earlier turn."""
    if isinstance(event, ChildStarted):
        return SubagentItem(
            child_key(event.child), event.name, event.kind, event.task, background=event.background, began=event.at
        )
    old = before if isinstance(before, SubagentItem) else SubagentItem(child_key(event.child), event.child, "", "")
    if isinstance(event, ChildProgress):
        return replace(old, doing=event.text)
    return replace(
        old,
        state=_ENDS[event.status],
        doing="",
        message=event.message,
        seconds=event.seconds,
        requests=event.requests,
        cost=event.cost or 0.0,
        handed=event.handed,
    )


def child_words(item: SubagentItem) -> str:
    """"count-rows (explore): Reading orders.csv", "count-rows: done, 3 model calls, $0.01, 12 s"."""
    kind = f" ({line(item.kind, 40)})" if item.kind else ""
    said = f"{line(item.name, 60)}{kind}: "
    if item.state == "running":
        where = ", in the background" if item.background else ""
        return said + (line(item.doing, 80) or line(item.task, 80) or "at work") + where
    parts = [_AGENT_SIGNS[item.state][1]]
    if item.message:
        parts[0] += f" ({line(item.message, 160)})"
    if item.handed:
        parts.append(f"handed back {line(', '.join(item.handed), 120)}")
    parts.append(f"{item.requests} model call{'' if item.requests == 1 else 's'}")
    parts += [dollars(item.cost)] * bool(item.cost)
    parts.append(duration(item.seconds))
    return said + ", ".join(parts)


def child_html(item: SubagentItem, look: Theme) -> str:
    """The line; a screen reader reads the sign as its word."""
    sign, word = _AGENT_SIGNS[item.state]
    name, _, rest = child_words(item).partition(": ")
    level = "ia-warning" if item.state == "error" else "ia-notice"
    return (
        f'<div {look.kind("ia-note", "ia-child", level)}><span {look.kind(f"ia-{item.state}", "ia-icon")} role="img" '
        f'aria-label="{word}">{sign}</span> <span><b>{escape(name)}</b> {escape(rest)}</span></div>'
    )


# ---- A message between agents in a cell: one line that says who wrote to whom and what about; its words in a fold.

_KINDS: dict[MessageKind, str] = {
    "text": "", "shutdown_request": "asks to shut down", "shutdown_response": "has shut down",
    "plan_request": "asks for approval of a plan", "plan_response": "answers a plan",
}  # fmt: skip
_SHOWN = 4_000


def message_item(event: MessageReceived | MessageSent, key: str) -> MessageItem:
    """The item of a message that came or went."""
    if isinstance(event, MessageReceived):
        return MessageItem(key, "from", event.sender, event.kind, event.summary, event.said)
    return MessageItem(key, "to", ", ".join(event.to), event.kind, event.summary, event.said)


def message_words(item: MessageItem) -> str:
    """"Message from count-rows: 344 rows", "Message to all, asks to shut down: enough"."""
    kind = f", {_KINDS[item.kind]}" if _KINDS[item.kind] else ""
    return f"Message {item.way} {line(item.who, 80)}{kind}: {line(item.summary, 160)}"


def message_html(item: MessageItem, look: Theme) -> str:
    """The line, and the whole message in a fold when it says more."""
    head, _, rest = message_words(item).partition(": ")
    sign = "←" if item.way == "from" else "→"
    words = f"<span><b>{escape(head)}</b> {escape(rest)}</span>"
    shown = f'<span {look.kind("ia-icon")} aria-hidden="true">{sign}</span> {words}'
    text = plain(item.text).strip()
    if " ".join(text.split()) == item.summary.strip():
        return f"<div {look.kind('ia-note', 'ia-message', 'ia-notice')}>{shown}</div>"
    cut = text if len(text) <= _SHOWN else text[:_SHOWN] + "\n… (%agent messages shows all)"
    return (
        f'<details class="ia-fold"><summary {look.kind("ia-line")}>{shown}</summary>'
        f"<pre {look.kind('ia-thought')}>{escape(cut)}</pre></details>"
    )


# ---- Searches at the provider and the pages they name. A link leads to http or https alone and shows its host, for
# the title is the page's own.

MOST = 10
"""Pages that are named below a reply."""
TITLE, HOST = 120, 60
"""Characters of a title and of a host that are shown."""
LONGEST_URL = 2_000


def parts_of(blocks: Sequence[Block]) -> Iterator[tuple[bool, list[Block]]]:
    """The blocks in runs: searches with their results (True), and what stands between them."""
    for searched, run in groupby(blocks, lambda block: block.get("type") == CALL or is_result(block)):
        yield searched, list(run)


def search_item(key: str, block: Block, before: ToolItem | None, *, ended: bool) -> ToolItem | None:
    """A call, or the call `before` once its result is there; None for a result of no call. `ended`: no result will
    come for what has none."""
    if block.get("type") == CALL:
        given = block.get("input")
        state: ToolState = "stopped" if ended else "running"
        return ToolItem(key, str(block.get("name", "")), given if isinstance(given, dict) else {}, state)
    if before is None:
        return None
    if problem := error_of(block):
        return replace(before, state="error", note=problem)
    pages = sources_of(block)
    rows = [" ".join(part for part in (line(page.title, TITLE), line(page.url, LONGEST_URL)) if part) for page in pages]
    text = page_text(block)
    note = "" if text or before.name != "web_search" else f"{len(pages)} result{'' if len(pages) == 1 else 's'}"
    return replace(before, state="done", note=note, output="\n".join([*rows, *([text] if text else [])]))


def pages_of(blocks: Sequence[Block], key: str) -> SourcesItem | None:
    """The pages that a reply cites, else those that it found; None when there are none."""
    cited = [source for block in blocks if block.get("type") == "text" for source in cited_in(block)]
    found = cited or [source for block in blocks if is_result(block) for source in sources_of(block)]
    if cited:  # what was read as a whole is a source all the same
        found += [page for block in blocks if is_result(block) and page_text(block) for page in sources_of(block)]
    pages: dict[str, CitedPage] = {}
    for source in found:
        pages.setdefault(source.url, source)
    kept = tuple(pages.values())
    return SourcesItem(key, kept[:MOST], bool(cited), max(0, len(kept) - MOST)) if kept else None


def _target(source: CitedPage) -> tuple[str, str]:
    """Where a link may lead ("": nowhere), and the host."""
    try:
        parts = urlsplit(source.url)
        host = parts.hostname or ""
    except ValueError:
        return "", ""
    if parts.scheme.lower() not in ("http", "https") or not host or len(source.url) > LONGEST_URL:
        return "", ""
    # nothing that ends an attribute or a Markdown link
    return quote(source.url, safe="!#$%&*+,/:;=?@-._~"), line(host, HOST)


def _shown(source: CitedPage) -> str:
    return line(source.title, TITLE) or line(source.url, TITLE)


def _head(item: SourcesItem) -> str:
    return "Sources" if item.cited else "Pages found"


def pages_lines(item: SourcesItem) -> list[str]:
    """A heading and a line a page, its address in full."""
    more = [f"  and {item.more} more"] * bool(item.more)
    rows = (f"  {at}. {_shown(each)}  {line(each.url, LONGEST_URL)}" for at, each in enumerate(item.sources, 1))
    return [f"{_head(item)}:", *rows, *more]


def pages_markdown(item: SourcesItem, words: Callable[[str], str]) -> str:
    """A list of links; `words` makes text in which nothing is Markdown."""
    rows = []
    for at, source in enumerate(item.sources, 1):
        target, host = _target(source)
        shown = words(_shown(source))
        rows.append(f"{at}. [{shown}](<{target}>) {words(host)}" if target else f"{at}. {shown}")
    more = [f"{len(rows) + 1}. and {item.more} more"] * bool(item.more)
    return "\n".join([f"*{_head(item)}*", "", *rows, *more])


def pages_html(item: SourcesItem, look: Theme) -> str:
    """A list of links, each with its host."""
    rows = []
    for source in item.sources:
        target, host = _target(source)
        shown = escape(_shown(source))
        link = f'<a href="{escape(target)}" rel="noopener noreferrer nofollow" target="_blank">{shown}</a>'
        rows.append(f"<li>{link} <small>{escape(host)}</small></li>" if target else f"<li>{shown}</li>")
    rows += [f"<li><small>and {item.more} more</small></li>"] * bool(item.more)
    return (
        f'<div {look.kind("ia-plan")}><small {look.kind("ia-notice")}>{_head(item)}</small>'
        f'<ol style="margin:2px 0 2px 0;padding-left:2em;font-size:.92em" aria-label="{_head(item)}">'
        f"{''.join(rows)}</ol></div>"
    )
