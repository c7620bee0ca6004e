"""A turn in a terminal: finished Markdown blocks, tool lines, capped output, the meter at the end.

Everything is written to the stdout that was there at `open`: a running tool has `sys.stdout` patched.
Nothing from outside reaches the terminal with its control characters."""

from __future__ import annotations

import asyncio
import io
import sys
import threading
import time
import uuid
from collections.abc import Callable
from contextlib import redirect_stdout, suppress
from typing import IO, TYPE_CHECKING, Any, TextIO, assert_never

from ipyagent.escape import exact, line, plain
from ipyagent.journal.events import Event, PermissionAnswered, PermissionAsked, Streamed
from ipyagent.journal.protocols import PermissionAnswer, TurnStatus
from ipyagent.journal.recorded import Recording
from ipyagent.kernel.output import output
from ipyagent.ui import markdown
from ipyagent.ui.item_views import item_lines, main_argument, sources
from ipyagent.ui.items import (
    COLUMNS,
    ROWS,
    Item,
    MemoriesItem,
    MessageItem,
    NoticeItem,
    PlanItem,
    QuestionItem,
    ReadLine,
    SavedItem,
    SourcesItem,
    SubagentItem,
    TextItem,
    ThinkingItem,
    ToolItem,
    ask_on_a_line,
    call_key,
    heading,
    pages_of,
)
from ipyagent.ui.meter import bar, duration, meter
from ipyagent.ui.static import footer_line, plain_text, question_words, static_sections
from ipyagent.ui.transcript import Shown, TurnTranscript

if TYPE_CHECKING:
    from rich.console import Console


OUTPUT_ROWS = 12
"""Rows of one call's output that are printed."""

BEHIND = 0.1
"""Seconds that what code displays waits for what it printed before."""

SOURCE_ROWS = 20
"""Rows of one call's code or diff that are printed (a question prints them all)."""


class TerminalSurface:
    """`read_line(prompt)` reads one line from the user and raises EOFError at the end of input."""

    can_ask = True
    text_alone = True

    def __init__(self, read_line: ReadLine, file: TextIO | None = None) -> None:
        self._read_line = read_line
        self._file = file
        self._console: Console | None = None
        self._transcript = TurnTranscript()
        self._status: TurnStatus | None = None
        self._printed: dict[str, str] = {}  # text items: what of them is on the screen
        self._looked: dict[str, int] = {}  # text items: length of the unfinished block when it was last parsed
        self._rows: dict[str, int] = {}  # tool items: rows of live output on the screen
        self._open_row: dict[str, str] = {}  # tool items: the row that has not ended yet
        self._drawn: set[str] = set()  # tool items whose output goes up again (nested progress bars)
        self._waiting: list[str] = []  # what code displayed and is not on the screen yet
        self._loop: asyncio.AbstractEventLoop | None = None
        self._closed = False

    def __repr__(self) -> str:
        return f"<TerminalSurface {len(self._transcript.keys)} items>"

    def open(self) -> None:
        from rich.console import Console

        self._console = Console(file=self._file or sys.stdout, highlight=False, markup=False, emoji=False)

    def display(self, publish: Callable[[], None]) -> None:
        with redirect_stdout(io.StringIO()) as printed:  # `jupyter console` prints it by itself
            publish()
        text = output(printed.getvalue()).rstrip("\n")
        if text:
            self._waiting.append(text)
            if self._loop is not None and not self._loop.is_closed():
                self._loop.call_soon_threadsafe(self._loop.call_later, BEHIND, self._displays)

    def displayed(self) -> None:
        """The next stands below by itself."""

    def show(self, event: Event) -> None:
        if self._loop is None:
            with suppress(RuntimeError):  # shown from outside a loop: a restored turn
                self._loop = asyncio.get_running_loop()
        keys = self._transcript.add(event)
        for key in keys:
            item = self._transcript.item(key)
            if item is not None:
                self._show(item, event)

    def status(self, status: TurnStatus) -> None:
        self._status = status

    async def ask(self, asked: PermissionAsked) -> PermissionAnswer:
        if self._transcript.item(call_key(asked.call)) is None:
            self.show(asked)
        size = self._console.size if self._console is not None else None
        rows, columns = (max(size.height - 6, 8), max(size.width - 4, 20)) if size else (ROWS, COLUMNS)
        pages = pages_of(exact(asked.text), rows, columns)
        return await ask_on_a_line(
            self._read_line, asked, pages=pages, show=lambda page: self._source(page, asked.language, 0)
        )

    def close(self) -> None:
        if self._closed or self._console is None:
            return
        self._closed = True
        footer = footer_line(self._transcript, self._status)
        gauge = f"{bar(meter(self._status.window))} " if self._status and self._status.window else ""
        if gauge or footer:
            self._print(gauge + footer, "dim")

    # ------------------------------------------------------------------ items

    def _show(self, item: Item, event: Event) -> None:
        match item:
            case TextItem():
                self._text(item)
            case ThinkingItem():
                if not self._printed.get(item.key) and item.text.strip():
                    self._printed[item.key] = "…"
                    self._print("· Thinking…", "dim italic")
            case ToolItem():
                self._tool(item, event)
            case NoticeItem():
                style = {"info": "dim", "warning": "yellow", "error": "bold red"}[item.level]
                if self._printed.get(item.key) != item.text:
                    self._printed[item.key] = item.text
                    self._print(line(item.text), style)
            case QuestionItem():
                if item.answer is None:
                    self._question(item.asked)
                elif isinstance(event, PermissionAnswered) and item.answer == "deny":
                    self._print("✗ " + line(question_words(item)), "dim")
            case MemoriesItem() if item.dismissed:
                pass
            case MemoriesItem() | SavedItem() | SourcesItem() | SubagentItem() | MessageItem() | PlanItem():
                text = "\n".join(item_lines(item))
                if self._printed.get(item.key) != text:
                    self._printed[item.key] = text
                    self._print(text, "" if isinstance(item, PlanItem) else "dim")
            case _:
                assert_never(item)

    def _text(self, item: TextItem) -> None:
        printed = self._printed.get(item.key, "")
        if not item.text.startswith(printed):
            printed = ""  # the whole differs from what was streamed: it is printed anew
        if item.live:
            rest = item.text[len(printed) :]
            again = max(markdown.LONG_BLOCK, 1.25 * self._looked.get(item.key, 0))
            if "\n" not in rest or markdown.LONG_BLOCK < len(rest) < again:
                return
            blocks, rest = markdown.split(rest)
            self._looked[item.key] = len(rest)
            ready = "".join(blocks)
        else:
            ready = item.text[len(printed) :]
        if ready.strip():
            self._markdown(ready)
        if ready:
            self._printed[item.key] = printed + ready

    def _tool(self, item: ToolItem, event: Event) -> None:
        if isinstance(event, Streamed):
            self._live(item.key, event.text)
        elif item.state == "running":
            if item.key not in self._rows:
                self._rows[item.key] = 0
                self._print(f"▸ {line(item.name, 60)} {main_argument(item.input)}".rstrip(), "bold cyan")
                for source in sources(item.input)[:1]:
                    if "\n" in source.text.strip() and not item.permission:  # else the question has shown it
                        self._source(plain(source.text), source.language, SOURCE_ROWS)
        else:
            self._ended(item)

    def _live(self, key: str, text: str) -> None:
        if text.startswith("\x1b["):  # lines that were printed are written anew: they follow as they stand at the end
            self._drawn.add(key)
        rows = output(self._open_row.pop(key, "") + text).split("\n")
        if key not in self._drawn:
            self._below(key, rows[:-1])
            rows = rows[-1:]
        self._open_row[key] = "\n".join(rows)

    def _below(self, key: str, rows: list[str]) -> None:
        """Rows of output below a call, as far as they are printed."""
        for row in rows:
            self._rows[key] = self._rows.get(key, 0) + 1
            if self._rows[key] <= OUTPUT_ROWS:
                self._print("  │ " + row, "dim")

    def _displays(self) -> None:
        """What code displayed, whole and as IPython prints it."""
        waiting, self._waiting = self._waiting, []
        for text in waiting:
            self._print(text, "", wrap=False)

    def _ended(self, item: ToolItem) -> None:
        if rest := self._open_row.pop(item.key, "").rstrip():
            self._below(item.key, rest.split("\n"))
        self._drawn.discard(item.key)
        text = output(item.output).strip("\n")
        if text and not item.shown and not self._rows.get(item.key):
            self._below(item.key, text.split("\n"))
        self._displays()
        shown = self._rows.pop(item.key, 0)
        if shown > OUTPUT_ROWS:
            where = f": the whole is in {line(item.kept, 4_000)}" if item.kept else ""
            self._print(f"  │ … {shown - OUTPUT_ROWS:,} more lines{where}", "dim")
        symbol, style = {
            "done": ("✓", "green"), "error": ("✗", "red"), "stopped": ("■", "yellow"), "running": ("…", "dim"),
        }[item.state]  # fmt: skip
        extra = [line(part, 80) for part in (*item.changes, item.note) if part]
        if item.pictures and "figure" not in item.note:
            extra.append(f"{len(item.pictures)} figure{'s' * (len(item.pictures) > 1)}")
        extra += [duration(item.seconds)] * (item.seconds >= 0.05)
        self._print(f"{symbol} {line(item.name, 60)}" + (f"  {' · '.join(extra)}" if extra else ""), style)

    def _question(self, asked: PermissionAsked) -> None:
        danger, title, said = heading(asked)
        if danger:
            self._print(f"! {danger}", "bold red")
        self._print(f"? {title}", "bold yellow")
        if said:
            self._print(said, "dim")

    # ------------------------------------------------------------------ printing

    def _source(self, text: str, language: str, rows: int) -> None:
        """Highlighted source; `rows` 0: all of it, wrapped and never cut."""
        from rich.padding import Padding
        from rich.syntax import Syntax

        lines = text.rstrip("\n").split("\n")
        if rows and len(lines) > rows:
            lines = [*lines[: rows - 1], f"… {len(lines) - rows + 1} more lines"]
        syntax = Syntax(
            "\n".join(lines), language or "text", theme="ansi_dark", background_color="default", word_wrap=True
        )
        self._write(Padding(syntax, (0, 0, 0, 2)))

    def _markdown(self, text: str) -> None:
        from rich.markdown import Markdown

        # hyperlinks=False: the address is printed, so that the reader sees where a link leads
        self._write(Markdown(plain(text), hyperlinks=False, code_theme="ansi_dark"))
        self._print("", "")

    def _print(self, text: str, style: str, *, wrap: bool = True) -> None:
        from rich.text import Text

        self._write(Text(text, style=style), wrap=wrap)

    def _write(self, renderable: object, *, wrap: bool = True) -> None:
        if self._console is None:
            return
        try:
            with self._console.capture() as captured:
                self._console.print(renderable, soft_wrap=not wrap)
            there = _written(self._console.file, captured.get())
        except ValueError:  # rich looks at the file too
            there = False
        if not there:
            self._console = None


def _written(file: IO[str], text: str) -> bool:
    """Write a text, what the file has no sign for as question marks. False: the terminal is gone, or a tool closed
    stdout; the journal has it all."""
    try:
        try:
            file.write(text)
        except UnicodeEncodeError:
            encoding = getattr(file, "encoding", None) or "ascii"
            file.write(text.encode(encoding, "replace").decode(encoding))
        file.flush()
    except (BrokenPipeError, ValueError):
        return False
    return True


# ---- A turn where nobody watches: nbclient, papermill, scripts, logs. Nobody can be asked.

class TextSurface:
    """In a kernel one static output at the end. `stream`: each item is written to `file` (default:
    the stdout at `open`) as it is complete, text as it comes, and nothing is displayed at the end."""

    can_ask = False
    text_alone = False

    def __init__(
        self, *, stream: bool = False, file: TextIO | None = None, recording: Recording | None = None
    ) -> None:
        self._stream = stream
        self._recording = recording
        self._file = file
        self._events = Shown()
        self._status: TurnStatus | None = None
        self._transcript = TurnTranscript()
        self._written: dict[str, int] = {}  # text items: characters on paper; others: 1
        self._outputs: list[list[Callable[[], None]]] = [[]]  # what code displays, for the places between sections
        self._closed = False

    def __repr__(self) -> str:
        return f"<TextSurface {len(self._events)} events>"

    def open(self) -> None:
        self._file = self._file or sys.stdout

    def display(self, publish: Callable[[], None]) -> None:
        """It is shown in its place at the end; where nothing is displayed, not at all."""
        self._outputs[-1].append(publish)

    def displayed(self) -> None:
        self._outputs.append([])

    def show(self, event: Event) -> None:
        self._events.add(event)
        keys = self._transcript.add(event)
        if self._stream:
            for key in keys:
                self._progress(key, live=isinstance(event, Streamed))

    def status(self, status: TurnStatus) -> None:
        self._status = status

    async def ask(self, asked: PermissionAsked) -> PermissionAnswer:
        return PermissionAnswer("deny", "nobody can be asked here; allow it in the settings", "headless")

    def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        if self._stream:
            footer = footer_line(self._transcript, self._status)
            self._write(f"\n[{footer}]\n" if footer else "")
        elif _in_kernel():
            from IPython.display import display

            there = len(self._outputs)
            sections = static_sections(self._events, self._status, there, recording=self._recording)
            for (bundle, kept), outputs in zip(sections, self._outputs, strict=True):
                display(bundle, metadata=kept, raw=True)  # type: ignore[no-untyped-call]  # no types
                for publish in outputs:
                    publish()
        else:
            footer = footer_line(self._transcript, self._status)
            self._write(plain_text(self._transcript.items, footer) + "\n")

    def _progress(self, key: str, *, live: bool) -> None:
        item = self._transcript.item(key)
        if isinstance(item, TextItem):
            done = self._written.get(key, 0)
            fresh = plain(item.text[done:])
            if fresh:
                self._write(("" if done else "\n") + fresh + ("" if item.live or fresh.endswith("\n") else "\n"))
            self._written[key] = len(item.text)
        elif item is not None and not live and not isinstance(item, ThinkingItem):
            text = plain_text([item], "")
            if getattr(item, "state", "") == "running" or self._written.get(key) == hash(text):
                return
            self._written[key] = hash(text)
            self._write("\n" + text + "\n")

    def _write(self, text: str) -> None:
        if self._file is not None and text and not _written(self._file, text):
            self._file = None


def _in_kernel() -> bool:
    from IPython.core.getipython import get_ipython

    shell = get_ipython()
    return shell is not None and getattr(shell, "kernel", None) is not None


# ---- A turn in a live front-end that shows no widgets of ours: the static output, written anew now and then.
# Colab, and wherever the setting `panels` is "static". Questions are asked on the front-end's line of input; the
# front-end's own button stops the turn.

TICK = 1.0
"""Seconds between two states of the output, at least."""
SHARE = 20
"""Writing one takes at most this part of the time: a long turn is shown more seldom."""


class MirrorSurface:
    """`read_line` asks the user. What is shown goes through the publisher that was there at `open`: while code
    runs the shell's own one belongs to that code."""

    can_ask = True
    text_alone = False

    def __init__(self, read_line: ReadLine, *, recording: Recording | None = None) -> None:
        self._read_line = read_line
        self._recording = recording
        self._displays = [uuid.uuid4().hex]
        self._published: dict[str, tuple[dict[str, str], bool]] = {}
        self._events = Shown()
        self._status: TurnStatus | None = None
        self._publisher: Any = None
        self._lock = threading.Lock()
        self._timer: asyncio.TimerHandle | None = None
        self._due = 0.0
        self._closed = False

    def __repr__(self) -> str:
        return f"<MirrorSurface {len(self._events)} events{', closed' if self._closed else ''}>"

    def open(self) -> None:
        from IPython.core.getipython import get_ipython

        shell = get_ipython()
        self._publisher = shell.display_pub if shell is not None else None
        self._publish()

    def display(self, publish: Callable[[], None]) -> None:
        publish()

    def displayed(self) -> None:
        self._displays.append(uuid.uuid4().hex)
        self._publish()

    def show(self, event: Event) -> None:
        self._events.add(event)
        self._schedule()

    def later(self, event: Event) -> None:
        """What came of the turn once it was over joins the output."""
        self._events.add(event)
        if self._closed:
            self._publish()

    def status(self, status: TurnStatus) -> None:
        self._status = status

    async def ask(self, asked: PermissionAsked) -> PermissionAnswer:
        if not any(isinstance(event, PermissionAsked) and event.digest == asked.digest for event in self._events):
            self._events.add(asked)
        self._publish()  # what is asked about stands there before the line does
        return await ask_on_a_line(self._read_line, asked)

    def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        self._publish()

    def _schedule(self) -> None:
        if self._timer is not None or self._closed:
            return
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            return  # shown from outside a loop (a restored turn): `close` shows it
        self._timer = loop.call_later(max(self._due - time.monotonic(), 0.0), self._tick)

    def _tick(self) -> None:
        self._timer = None
        if not self._closed:
            self._publish()

    def _publish(self) -> None:
        if self._publisher is None:
            return
        began = time.monotonic()
        with self._lock:
            names = tuple(self._displays)
            sections = static_sections(
                self._events, self._status, len(names), recording=self._recording, ended=self._closed
            )
            for name, (bundle, kept) in zip(names, sections, strict=True):
                if self._published.get(name) != (bundle, bool(kept)):
                    update = name in self._published
                    self._published[name] = bundle, bool(kept)
                    self._publisher.publish(bundle, kept, transient={"display_id": name}, update=update)
        self._due = time.monotonic() + max(TICK, SHARE * (time.monotonic() - began))
