"""What `%agent` and `%context` tell: figures from the view and the journal, nothing else."""

from __future__ import annotations

import json
import re
import time
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from ipyagent.assembly.compaction_preview import (
    NOTHING,
    LayerStep,
    LayerStepResult,
    headline,
    rows,
    step_text,
)
from ipyagent.assembly.sessions import empty_line
from ipyagent.context.notes_file import NOTES
from ipyagent.errors import AgentError, UsageError
from ipyagent.escape import escape, plain
from ipyagent.escape import line as one_line
from ipyagent.journal.events import Event, SessionStarted, TurnEnded, UserMessage
from ipyagent.journal.journal import TRANSCRIPT, read_events
from ipyagent.journal.protocols import WindowState
from ipyagent.journal.view import ContextView
from ipyagent.model.capabilities import COUNTED, MODELS_API, standing
from ipyagent.model.prices import LESSON_MODEL, SEARCH, cost_of
from ipyagent.parts.messages import waiting_lines
from ipyagent.reports.timeline import Shares, message_text, timeline, view_at
from ipyagent.ui.buttons import ButtonBridge
from ipyagent.ui.charts import context_chart, window_chart
from ipyagent.ui.markdown import harmless
from ipyagent.ui.static import static_bundle
from ipyagent.ui.theme import STATIC_CLASSES
from ipyagent.ui.timeline import turn_lines
from ipyagent.version import __version__

if TYPE_CHECKING:
    from ipyagent.agent import Agent
    from ipyagent.loop.session import Session
    from ipyagent.loop.session_state import SessionState


# ---- A session as a document: every request with what came of it. Text is escaped as in the notebook.

EXPORT_KINDS = {".md": "text/markdown", ".html": "text/html", ".txt": "text/plain"}


def document(events: Iterable[Event], suffix: str) -> str:
    """The session in the form that the file's ending says. Raises UsageError for another ending."""
    kind = EXPORT_KINDS.get(suffix)
    if kind is None:
        raise UsageError(
            f"the file's extension sets its format: use one of {', '.join(EXPORT_KINDS)}, .jsonl; not "
            f"{suffix or 'none'}"
        )
    turns: list[list[Event]] = [[]]
    for event in events:
        if isinstance(event, UserMessage):
            turns.append([])
        turns[-1].append(event)
    parts: list[str] = []
    for turn in turns:
        said = turn[0] if turn else None
        if isinstance(said, UserMessage):
            parts.append(_request(said.text, suffix))
            parts.append(static_bundle(turn, None)[kind])
    return "\n\n".join(parts) + "\n"


def _request(text: str, suffix: str) -> str:
    if suffix == ".html":
        return f"<hr><p><strong>Request</strong></p><blockquote><pre>{escape(plain(text))}</pre></blockquote>"
    if suffix == ".md":
        quoted = "\n".join(f"> {line}" for line in harmless(text).splitlines())
        return f"---\n\n**Request**\n\n{quoted}"
    return "\n".join(f"> {line}" for line in plain(text).splitlines())


USAGE = "%context [--raw] [--at N] [--turns] [--panel]: N is a turn's number, or eN an event's"
BAR = 40


def by_source(session: Session) -> dict[str, int]:
    """Tokens of the next prompt by where they come from, see `Shares.of`."""
    return Shares().of(session.view)


def report(agent: Agent, words: Sequence[str]) -> str:
    """The text of `%context`. Raises UsageError for a word it does not know."""
    asked = read_words(words)
    session = agent.session
    if session is None:
        return "nothing yet: the model has been sent nothing in this kernel (%agent resume continues an old session)"
    if asked.turns:
        return "\n".join(turn_lines(timeline(session.journal.read()).bars))
    if asked.at:
        return earlier(session, asked.at, raw=asked.raw)
    if asked.raw:
        return raw_request(session, session.view)
    state = agent.state_of(session)
    info, sources = agent.info, by_source(session)
    told_by = TELLERS.get(info.source, f"according to {teller(info.source)}")
    lines = [_headline(state), _bar(state), f"window: {info.window:,} tokens, {told_by}", ""]
    lines += _shares(sources, sum(sources.values()))
    lines += ["", *_cache_lines(session), *_cost_lines(session), *_spent_lines(session)]
    if told := saving_lines(session.history):
        lines += ["", *told]
    return "\n".join(lines)


def pictured(agent: Agent, told: str, *, turns: bool) -> list[dict[str, str]]:
    """`%context` for a notebook: the picture, and the text of `report` folded below it. They are two outputs, because
    readers of saved notebooks prefer HTML to a picture, and some take pictures out of HTML."""
    session = agent.session
    assert session is not None
    state = agent.state_of(session)
    if turns:
        shown = timeline(session.journal.read())
        chart = window_chart(shown.bars, shown.marks, state)
    else:
        chart = context_chart(by_source(session), state)
    name = "All turns" if turns else "Figures, cost and the last decisions"
    fold = f"<details><summary>{name}</summary><pre>{escape(plain(told))}</pre></details>"
    short = chart.text.partition("\n")[0] if not turns else f"{counted(len(session.history.turns), 'turn')}"
    return [{"image/svg+xml": chart.svg, "text/plain": short}, {"text/html": fold, "text/plain": plain(told)}]


def _headline(state: WindowState) -> str:
    word = "full" if state.blocked else "compact now" if state.above_auto else "near" if state.above_warning else "fine"
    return (
        f"{state.tokens:,} of {state.window:,} tokens ({100 * state.tokens / state.window:.1f} %), {word}; "
        f"thresholds: warning {state.warning_mark:,}, auto-compact {state.auto_mark:,}, hard limit {state.block_mark:,}"
    )


TELLERS = {
    "": "assumed (IPyAgent.window sets it)",
    "default": "assumed (IPyAgent.window sets it)",
    "session": "as last known in this session (IPyAgent.window sets it)",
    "table": "as published for the model, the server does not say (IPyAgent.window sets it)",
    "setting": "set by IPyAgent.window",
    "environment": "set by IPYAGENT_DEFAULT_WINDOW",
    "[1m] suffix": "as the model's name says",
    "beta header": "as ANTHROPIC_CUSTOM_HEADERS says",
    COUNTED: "according to what the server counts: it cuts longer prompts silently (IPyAgent.window sets it)",
}


def teller(source: str) -> str:
    """Who told a window's size, as a sentence names them."""
    return f"the {source}" if source == MODELS_API else source


def _shares(sources: Mapping[str, int], total: int) -> list[str]:
    """One line a source of tokens with its share of them all."""
    rows = ((name, tokens) for name, tokens in sources.items() if tokens)
    return [f"  {name:<22}{tokens:>10,}  {100 * tokens / (total or 1):5.1f} %" for name, tokens in rows]


def _bar(state: WindowState) -> str:
    """One character a share of the window: filled, free, and the thresholds w, a, and h for the hard limit."""
    cells = ["█" if i < BAR * state.tokens / state.window else "·" for i in range(BAR)]
    for letter, mark in (("w", state.warning_mark), ("a", state.auto_mark), ("h", state.block_mark)):
        cells[min(BAR - 1, BAR * mark // state.window)] = letter
    return "[" + "".join(cells) + "]"


def _cache_lines(session: Session) -> list[str]:
    totals = session.history.totals
    usage = totals.usage
    if not usage.prompt:
        return ["cache: no request yet"]
    return [
        f"cache: {100 * usage.cache_read / usage.prompt:.1f} % of {usage.prompt:,} prompt tokens read from it "
        f"({usage.cache_read:,} read, {usage.cache_write:,} written, {usage.input:,} uncached; "
        f"{counted(totals.requests, 'request')})"
    ]


def _cost_lines(session: Session) -> list[str]:
    totals = session.history.totals
    usage = totals.usage
    if session.info.model == "practice" and totals.cost == 0:
        would = cost_of(LESSON_MODEL, usage) or 0.0
        return [f"cost: nothing (practice model); the same tokens on {LESSON_MODEL} would be ${would:.4f}"]
    known = "no price known for the model" if totals.cost is None else f"${totals.cost:.4f}"
    more = " (the practice model, which answers now, costs nothing)" if session.info.model == "practice" else ""
    web = f"; {usage.searches:,} web search{'es' * (usage.searches != 1)}" if usage.searches else ""
    web += f" (${SEARCH * usage.searches:.2f} of it)" if web and totals.cost else ""
    web += f"; {counted(usage.fetches, 'page')} fetched" if usage.fetches else ""
    return [f"cost: {known}{more}; {usage.output:,} tokens written by the model{web}"]


KINDS = {
    "recall": "selection of memories", "check": "checks of memories", "progress": "progress lines", "dream": "dreams",
}  # fmt: skip
"""What kinds of work are called; others go by their purpose."""


def _spent_lines(session: Session) -> list[str]:
    """Requests and dollars by what they were for, most first, and the share of work in the background."""
    history = session.history
    share = history.background_share
    if len(history.spent) < 2 or share is None:
        return []
    spent = sorted(history.spent.items(), key=lambda item: -item[1].weight)
    rows = [
        f"  {KINDS.get(kind, kind):<22}{counted(one.requests, 'request'):>14}  "
        f"{'no price known' if one.cost is None else f'${one.cost:.4f}'}"
        for kind, one in spent
    ]
    of = "of the money" if history.totals.cost else "of the tokens, weighed by what each kind usually costs"
    return ["what they were for:", *rows, f"work in the background: {100 * share:.1f} % {of}"]


_ACTING = re.compile(r"[\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
"""What a terminal or a reader takes for a command, and JSON leaves as it is."""


def raw_request(session: Session, view: ContextView) -> str:
    """The request that a view makes, as JSON."""
    system, tools, messages = view.wire(ttl=session.limits.cache_ttl, marks=session.limits.prompt_cache)
    request = {"model": view.model or session.info.model, "system": system, "tools": tools, "messages": messages}
    text = json.dumps(_short(request), indent=1, ensure_ascii=False)
    return _ACTING.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def _short(value: Any) -> Any:
    """The same value with the bytes of images left out."""
    if isinstance(value, dict):
        if value.get("type") == "base64" and isinstance(value.get("data"), str):
            return {**value, "data": f"({len(value['data']):,} characters)"}
        return {key: _short(item) for key, item in value.items()}
    return [_short(item) for item in value] if isinstance(value, list) else value


# ---------------------------------------------------------------------- %agent


def counted(number: int, what: str) -> str:
    """ "1 turn", "2 turns", "1,000 turns"."""
    return f"{number:,} {what}{'' if number == 1 else 's'}"


def summary(agent: Agent) -> str:
    """Session, model, mode, window and cost in a few lines."""
    lines = [f"ipyagent {__version__} · model: {agent.settings.model_words} · mode {agent.settings.mode}"]
    session = agent.session
    if session is None:
        stored = len(agent.sessions.stored())
        begins = "the next request begins a new session" if agent.sessions.fresh else "no request yet in this kernel"
        lines.append(f"{begins}; {counted(stored, 'stored session')} in {agent.project.root}")
        return "\n".join(lines)
    turns = counted(len(session.history.turns), "turn")
    lines.append(f"session {session.journal.session}, {turns}, in {session.journal.folder.parent.parent}")
    lines.append(_headline(agent.state_of(session)))
    lines += waiting_lines(agent)
    return "\n".join(lines + _cache_lines(session) + _cost_lines(session) + _notes_lines(session))


def _notes_lines(session: Session) -> list[str]:
    """Where the session's notes are and how they stand."""
    written, path = session.history.notes, session.journal.folder / NOTES
    if written is None or not path.exists():
        return ["notes: being written"] if session.background.busy else []
    now = ", being updated" if session.background.busy else ""
    turn = sum(each.first <= written.upto for each in session.history.turns)
    return [f"notes: {written.tokens:,} tokens, up to turn {turn}, in {path}{now}"]


def session_lines(agent: Agent) -> list[str]:
    """One line a stored session: id, when, size, first request."""
    mine = agent.session.journal.session if agent.session is not None else ""
    lines: list[str] = []
    for folder in agent.sessions.stored():
        path = folder / TRANSCRIPT
        notebook, words, label = "", "", ""
        for event in read_events(path):
            if isinstance(event, SessionStarted):
                notebook, label = event.notebook, event.label and f"[{event.label}]"
            if isinstance(event, UserMessage):
                words = event.text
                break
        when = time.strftime("%Y-%m-%d %H:%M", time.localtime(path.stat().st_mtime))
        mark = "*" if folder.name == mine else " "
        size = f"{path.stat().st_size / 1000:,.0f} kB"
        where = one_line(f"{label} {notebook}".strip())
        lines.append(f"{mark} {one_line(folder.name)}  {when}  {size:>10}  {where}  {one_line(words, 60)}")
    return lines + [f"! {one_line(empty_line(folder), 200)}" for folder in agent.project.empty_sessions()]


def tool_lines(agent: Agent) -> list[str]:
    """One line a tool: name, how it runs, what it does; and of those that the provider would run how they stand."""
    tools = agent.tools_now()
    server = standing(agent.settings.server_tools, agent.info, tools)
    wide = max((len(one_line(name, 40)) for name in (*tools, *server)), default=0)
    lines = [
        f"{one_line(name, 40):<{wide}} {'side by side' if tool.parallel else 'alone':<13} "
        f"{one_line(tool.description, 90)}"
        for name, tool in tools.items()
    ]
    for name, why in server.items():
        how = {"": "on, within the model's reply", "off": "off; IPyAgent.server_tools turns it on"}.get(why, why)
        lines.append(f"{name:<{wide}} {'at provider':<13} {how}")
    return lines


def export(agent: Agent, path: Path) -> str:
    """Write the session to a file; one line that says what was written."""
    session = agent.session
    if session is None:
        raise UsageError("no session to export yet: start one with a %%agent cell")
    try:
        if path.suffix == ".jsonl":
            path.write_bytes(session.journal.path.read_bytes())
        else:
            path.write_text(document(session.journal.read(), path.suffix), encoding="utf-8")
    except OSError as problem:
        raise AgentError(f"cannot write {path} ({problem.strerror}): name a file in an existing folder") from None
    return f"wrote {path} ({path.stat().st_size:,} bytes, {counted(len(session.history.turns), 'turn')})"


# ------------------------------------------------------------------ an earlier moment


class ContextWords(msgspec.Struct, frozen=True, kw_only=True):
    """What stands on a `%context` line. `at`: "" for now."""

    raw: bool = False
    at: str = ""
    turns: bool = False
    panel: bool = False


def read_words(words: Sequence[str]) -> ContextWords:
    """The options of a line. Raises UsageError."""
    found: dict[str, bool | str] = {}
    rest = iter(words)
    for word in rest:
        name, equals, value = word.partition("=")
        if word in ("--raw", "--turns", "--panel"):
            found[word[2:]] = True
        elif name == "--at":
            found["at"] = value if equals else next(rest, "")
            if not str(found["at"]).removeprefix("e").isdecimal():
                raise UsageError(f"--at needs a turn's number or eN for an event, not {found['at']!r}  usage: {USAGE}")
        else:
            raise UsageError(f"%context does not take {word!r}  usage: {USAGE}")
    return msgspec.convert(found, ContextWords)


def moment(events: Sequence[Event], at: str) -> tuple[int, str]:
    """The event that `at` means, and the moment in words: the end of a turn by its number, an event by
    `eN`. Raises UsageError."""
    last = events[-1].id if events else 0
    starts = [event.id for event in events if isinstance(event, UserMessage)]
    number = int(at.removeprefix("e"))
    by_turn = not at.startswith("e")
    if by_turn and 1 <= number <= len(starts):
        stop = starts[number] - 1 if number < len(starts) else last
        ends = [event.id for event in events if isinstance(event, TurnEnded) and starts[number - 1] < event.id <= stop]
        return (ends[-1] if ends else stop), f"after turn {number}"
    if not by_turn and 1 <= number <= last:
        return number, f"after event {number}"
    turns, also = counted(len(starts), "turn"), f" (--at e{number} is an event)" if 1 <= number <= last else ""
    what = "turn" if by_turn else "event"
    raise UsageError(f"there is no {what} {at}: {turns}, {counted(last, 'event')}{also}; see %context --turns")


def earlier(session: Session, at: str, *, raw: bool = False) -> str:
    """What the model would have been sent at an earlier moment: the request itself, or its figures and
    its messages in short. Raises UsageError."""
    events = list(session.journal.read())
    event, words = moment(events, at)
    view = view_at(events, event)
    if raw:
        return raw_request(session, view)
    total = view.count().tokens
    lines = [f"{words} (event {event}): about {total:,} tokens, model {view.model or 'not chosen yet'}", ""]
    lines += _shares(Shares().of(view), total)
    for message in view.messages:
        lines += ["", message_text(message, 300)]
    return "\n".join(lines)


# ------------------------------------------------------------------ savings
# The part of `%context` that tells what the layers have saved, decided and broken: from the history alone.


LAYERS = {
    "store_results": "results kept in files",
    "clear_results": "tool results cleared",
    "server_edits": "left out by the server",
    "snip": "turns removed",
    "collapse": "finished work collapsed",
}
"""What each layer's savings are called; others go by their own name."""


def saving_lines(history: SessionState) -> list[str]:
    """What each layer has kept out of the context so far, what it said last, hit rates of the newest requests, and the
    breaks of the cache that nobody had foreseen."""
    lines = ["kept out of the context so far:"] if history.savings else []
    for layer, saved in history.savings.items():  # all of it together, then of how many: it is no amount of each
        amount = f"{saved.chars:>11,} characters" if saved.chars else f"{saved.tokens:>11,} tokens"
        unit = "result" if layer in ("store_results", "clear_results") else "time"
        lines.append(f"  {LAYERS.get(layer, layer):<24}{amount} ({counted(saved.times, unit)})")
    lines += ["last decisions:"] if history.decided else []
    lines += [f"  {layer:<14} {one_line(decided.words, 200)}" for layer, decided in history.decided.items()]
    if rates := [f"{100 * usage.cache_read / usage.prompt:.0f}" for usage in history.recent if usage.prompt]:
        lines.append(f"read from the cache by the last {len(rates)} requests: {' '.join(rates)} %")
    if history.breaks:
        last, many = history.breaks[-1], counted(len(history.breaks), "unexpected break")
        cause = one_line(last.cause, 160)
        lines.append(f"{many} of the cache, the last: {cause} ({last.missed:,} tokens written again)")
    return lines


_CELL = "padding:1px 10px;text-align:right"
_LEFT = "padding:1px 10px;text-align:left"


class StepPanel:
    """The steps of one `%compact --step` cell. `take` takes a step, `undo` takes one back and says so, both on
    the main thread; `post` has a function called there, from any thread."""

    def __init__(
        self,
        take: Callable[[], LayerStepResult],
        undo: Callable[[], str],
        buttons: ButtonBridge,
        post: Callable[[Callable[[], None]], Any],
    ) -> None:
        self._take = take
        self._undo = undo
        self._post = post
        self._bridge = buttons
        self._display = "ipyagent-steps-" + uuid.uuid4().hex
        self._shown: list[LayerStepResult] = []
        self._said = ""
        self._marks: tuple[str, str] | None = None

    def __repr__(self) -> str:
        return f"<StepPanel {len(self._shown)} steps>"

    def open(self, first: LayerStepResult) -> None:
        """Appear below the running cell with the first answer."""
        from IPython.display import display

        self._shown.append(first)
        button = self._bridge.button
        self._marks = (
            button(partial(self._post, partial(self._do, self.next))),
            button(partial(self._post, partial(self._do, self.back))),
        )
        display(self.bundle(), display_id=self._display, raw=True)  # type: ignore[no-untyped-call] # no types

    def next(self) -> None:
        """The next layer acts."""
        made = self._take()
        if self._shown and not _is_done(self._shown[-1]):
            self._shown.pop()  # what was only looked at
        self._shown.append(made)

    def back(self) -> None:
        """The newest step is taken back."""
        said = self._undo()
        if self._shown and _is_done(self._shown[-1]):
            self._shown.pop()
        self._said = said

    def _do(self, act: Callable[[], None]) -> None:
        self._said = "working …"
        self._update()
        self._said = ""
        try:
            act()
        except AgentError as problem:
            self._said = str(problem)
        except KeyboardInterrupt:
            self._said = "stopped: the conversation is unchanged"
        self._update()

    def _update(self) -> None:
        from IPython.display import update_display

        update_display(self.bundle(), display_id=self._display, raw=True)  # type: ignore[no-untyped-call] # no types

    def bundle(self) -> dict[str, str]:
        """`text/html` and `text/plain` of the steps so far."""
        texts = [step_text(shown) for shown in self._shown] + ([self._said] if self._said else [])
        return {"text/html": self._html(), "text/plain": "\n\n".join(texts)}

    def _html(self) -> str:
        parts = [_step_html(shown.step) for shown in self._shown if shown.step is not None]
        newest = self._shown[-1] if self._shown else None
        if self._said:
            parts.append(f"<div><em>{escape(self._said)}</em></div>")
        elif newest is not None:
            parts += _next_html(newest)
        return f'<div class="{STATIC_CLASSES}">{"".join(parts)}{self._buttons()}</div>'

    def _buttons(self) -> str:
        if self._marks is None:
            return ""
        shown = self._shown[-1] if self._shown and not self._said else None
        # no layer has anything left to do
        last = shown is not None and shown.following is None and (shown.step is None or shown.step.done)
        return (
            '<div style="margin-top:4px">'
            + ("" if last else _button(self._marks[0], "Next step", "%compact --step", "The next layer acts"))
            + _button(self._marks[1], "Undo", "%compact --undo", "Undo the newest step")
            + "</div>"
        )


def _is_done(shown: LayerStepResult) -> bool:
    return shown.step is not None and shown.step.done


def _button(mark: str, sign: str, command: str, label: str) -> str:
    return (
        f'<button type="button" hidden data-again data-ipyagent-door="{escape(mark)}" data-sign="{sign}" '
        f'aria-label="{label}" title="{label}"></button>'
        f'<small style="opacity:.75;margin-right:12px"><code>{command}</code></small>'
    )


def _step_html(step: LayerStep) -> str:
    head = "<td></td>" + "".join(f'<th style="{_CELL}">{name}</th>' for name in ("before", "after", "change"))
    found = rows(step)
    body = "".join(_row_html(row, strong=number == len(found)) for number, row in enumerate(found, 1))
    table = f'<table style="border-collapse:collapse;margin:4px 0"><tr>{head}</tr>{body}</table>'
    return (
        f'<div style="margin-bottom:10px"><strong>{escape(headline(step))}</strong>{table}'
        f"<div>{escape(step.price)}</div></div>"
    )


def _row_html(row: tuple[str, str, str, str], *, strong: bool) -> str:
    weight = ";font-weight:bold" if strong or row[3] else ""
    cells = [f'<td style="{_LEFT}{weight}">{row[0]}</td>']
    cells += [f'<td style="{_CELL}{weight}">{escape(cell)}</td>' for cell in row[1:]]
    return f"<tr>{''.join(cells)}</tr>"


def _next_html(shown: LayerStepResult) -> list[str]:
    """Which layers are passed over and why, and which would be next."""
    over = [f"passed over: {name}: {why}" for name, why in shown.passed]
    parts = [f"<div><small>{escape(words)}</small></div>" for words in over]
    if shown.step is not None and not shown.step.done:
        return parts  # it is the next one itself
    if shown.following is None:
        return [*parts, f"<div>{NOTHING}</div>"]
    name, _, call = shown.following.title.partition(" (")
    return [*parts, f"<div>Next: <strong>{escape(name)}</strong> ({call}</div>"]
