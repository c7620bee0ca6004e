"""ipyagent in one shell, as commands see it: settings, the agent once it is needed, what the front-end can do."""

from __future__ import annotations

import importlib
import os
import threading
import time
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from traitlets import TraitError

from ipyagent.config import IPyAgent
from ipyagent.errors import SettingError, UsageError, nearest
from ipyagent.escape import escape, plain
from ipyagent.kernel.cell_marks import Runs

if TYPE_CHECKING:
    from ipyagent.agent import Agent
    from ipyagent.kernel.frontend import Frontend
    from ipyagent.ui.buttons import ButtonBridge


FLAGS = ("--fresh", "--fork", "--quiet", "--rerun", "--replay")
VALUES = ("--model", "--max-turns", "--effort", "--mode", "--lesson")
EFFORTS = ("low", "medium", "high", "xhigh", "max")
MODES = ("ask", "auto", "read_only")

USAGE = (
    "%%agent [--model NAME] [--mode ask|auto|read_only] [--max-turns N] [--effort LEVEL] "
    "[--fresh | --fork] [--quiet] [--rerun | --replay] [--lesson NAME]"
)


class CellOptions(NamedTuple):
    """What stands on the `%%agent` line; empty means the setting. `fresh`: without history, not
    kept. `fork`: with history, not kept. `quiet`: only the answer. `rerun`: asked even if unchanged. `replay`: its
    recorded code once more, without the model. `lesson`: which one the practice model plays."""

    model: str = ""
    max_turns: int = 0
    effort: str = ""
    mode: str = ""
    fresh: bool = False
    fork: bool = False
    quiet: bool = False
    rerun: bool = False
    replay: bool = False
    lesson: str = ""


def one_line(line: str) -> tuple[str, str]:
    """A `%%agent` line below which nothing stands, as its options and the request on it. Raises UsageError."""
    rest = line.strip()
    while rest.startswith("-"):
        word, _, after = rest.partition(" ")
        if word in VALUES:
            _, _, after = after.lstrip().partition(" ")
        rest = after.lstrip()
    options = line.strip().removesuffix(rest) if rest else line
    if not rest:
        parse(line)
        raise UsageError(f"%%agent: the request is missing; write it after the options or below them  usage: {USAGE}")
    return options, rest


def parse(line: str) -> CellOptions:
    """The options of a line. Words are split at spaces, quotes mean nothing. Raises UsageError."""
    found: dict[str, Any] = {}
    words = iter(line.split())
    for word in words:
        name, equals, value = word.partition("=")
        key = name.removeprefix("--").replace("-", "_")
        if name in FLAGS and not equals:
            found[key] = True
        elif name in VALUES:
            found[key] = _value(name, value if equals else _next(name, words))
        elif name.startswith("-"):
            raise UsageError(f"%%agent has no option {name}{nearest(name, (*FLAGS, *VALUES))}  usage: {USAGE}")
        else:
            raise UsageError(f"%%agent takes options only on its first line, not {word!r}; the request goes below it")
    if found.get("fresh") and found.get("fork"):
        raise UsageError("use either --fresh (no history) or --fork (a copy of the history)")
    if found.get("rerun") and found.get("replay"):
        raise UsageError("use either --rerun (asks the model) or --replay (runs the recorded code)")
    return CellOptions(**found)


def _next(name: str, words: Iterator[str]) -> str:
    value = next(words, "")
    if not value or value.startswith("--"):
        raise UsageError(f"{name} needs a value  usage: {USAGE}")
    return value


def _value(name: str, value: str) -> str | int:
    choices = {"--mode": MODES, "--effort": EFFORTS}.get(name)
    if choices is not None and value not in choices:
        raise UsageError(f"{name} is one of {', '.join(choices)}, not {value!r}{nearest(value, choices)}")
    if name != "--max-turns":
        return value
    if not value.isdecimal() or int(value) < 1:
        raise UsageError(f"--max-turns takes a number from 1 up, not {value!r}")
    return int(value)


FULL = "ipyagent"
_AHEAD = (
    "anthropic", "ipyagent.loop.session", "ipyagent.assembly.session_setup", "ipyagent.agent",
    "ipyagent.parts:built_in", "ipywidgets", "anywidget",
    "httpcore2", "anyio._backends._asyncio", "opentelemetry.propagate", "markdown_it", "ipyagent.ui.static",
    "ipyagent.extension.commands", "ipyagent.extension.context_report", "ipyagent.extension.surfaces",
    "ipyagent.extension.work_cells", "ipyagent.parts.memory.browsing", "ipyagent.ui.panel:panel_class",
    "ipyagent.kernel.previews:families", "ipyagent.loop.context_engine:known_layers",
    "ipyagent.model.client:certificates", "ipyagent.assembly.system_prompt:render_own",
)  # fmt: skip
"""What the first request needs, the longest first: modules, and functions of them whose value is kept there."""
_TURN = 1.0
"""Seconds that each of them lets a cell of the user's go first."""


_TOLD = (
    "font-family:var(--jp-code-font-family,monospace);font-size:var(--jp-code-font-size,13px);"
    "line-height:var(--jp-code-line-height,1.31)"
)


def _column(row: str) -> int:
    """Where what a row says begins, behind its name and two spaces; else a little behind its own beginning."""
    begin = len(row) - len(row.lstrip(" "))
    gap = row.find("  ", begin, 48)
    return gap + len(row[gap:]) - len(row[gap:].lstrip(" ")) if gap > 0 else min(begin + 2, 48)


def _row(row: str) -> str:
    at = _column(row)
    style = f"padding-left:{at}ch;text-indent:-{at}ch;white-space:pre-wrap;overflow-wrap:anywhere;min-height:1.31em"
    return f'<div style="{style}">{escape(row)}</div>'


def wrapped(text: str, width: int) -> str:
    """The rows of a text broken between words at `width` characters, each under what it says."""
    import textwrap

    made: list[str] = []
    for row in text.split("\n"):
        at = _column(row)
        fits = len(row) < width or at > width // 2
        made += [row] if fits else textwrap.wrap(
            row, width - 1, subsequent_indent=" " * at, break_long_words=False, break_on_hyphens=False,
            drop_whitespace=True, replace_whitespace=False, expand_tabs=False,
        )  # fmt: skip
    return "\n".join(made)


class WarmUp:
    """Has ready what the first request needs, on a thread, in silence. Python runs one thread at a time, so a cell of
    the user's goes first: one that runs for long sees one piece a second, and none has to wait for the others."""

    def __init__(self, names: Sequence[str] = _AHEAD, *, turn: float = _TURN) -> None:
        self._names, self._turn = names, turn
        self._thread: threading.Thread | None = None
        self._pid = 0
        self._free = threading.Event()
        self._wanted = self._done = False

    def start(self) -> threading.Thread:
        """The thread, begun with the first call."""
        if self._thread is None:
            self._pid = os.getpid()
            self._thread = threading.Thread(target=self._run, name="ipyagent-warm-up", daemon=True)
            self._thread.start()
        return self._thread

    def wait(self) -> None:
        """Wait for what is left, which goes first now. Done here the imports could be hit by an interrupt, which can
        leave Python's import lock held for ever; `Thread.join` that is interrupted takes a running thread for an ended
        one (CPython 3.11 and 3.12). In short waits, because a signal that meets another thread ends none.
        """
        self._wanted = True
        self._free.set()
        self.start()
        while not self._done and self._pid == os.getpid():  # a forked process has no such thread
            time.sleep(0.005)

    def cell_begins(self, info: Any = None) -> None:
        """A cell runs (`pre_run_cell`)."""
        if not self._wanted:
            self._free.clear()

    def cell_ends(self, result: Any = None) -> None:
        """It has ended (`post_run_cell`)."""
        self._free.set()

    def _run(self) -> None:
        try:
            for name in self._names:
                self._free.wait(self._turn)  # between imports, where this thread holds no lock that a cell could need
                module, _, function = name.partition(":")
                try:
                    found = importlib.import_module(module)
                    if function:
                        getattr(found, function)()
                except Exception:  # noqa: BLE001 - of a broken package: the first request shows it, with its reason
                    continue
        finally:
            self._done = True


class Extension:
    """ipyagent in one shell, without its magics (`ipyagent.extension.magics.Magics`)."""

    def __init__(self, shell: Any) -> None:
        self.shell = shell
        try:
            self.settings = IPyAgent(parent=shell)
        except TraitError as problem:  # from a configuration file, or from an earlier %config
            where = "fix c.IPyAgent in IPython's configuration file, or restart the kernel if %config set it"
            raise SettingError(f"{where}: {problem}") from None
        self.names = [FULL]
        self._agent: Agent | None = None
        self._warm_up = WarmUp()
        self._runs = Runs(shell)
        self._front: tuple[tuple[str, str], Frontend] | None = None
        self.buttons: ButtonBridge | None = None
        self.board: Any = None
        self.inserting: Any = None

    @property
    def agent_made(self) -> Agent | None:
        """The agent of this kernel, None as long as nobody needed one."""
        return self._agent

    @property
    def agent_now(self) -> Agent:
        """The agent of this kernel, made on first use for the notebook that runs now."""
        self._warm_up.wait()
        from ipyagent.agent import Agent

        front = self.front
        folder = front.notebook.parent if front.notebook is not None else None
        if self._agent is None:
            self._agent = Agent(
                shell=self.shell, settings=self.settings, folder=folder, notebook=front.notebook, runs=self._runs
            )
        elif front.notebook is not None:
            self._agent.sessions.notebook = front.notebook  # renamed meanwhile
        return self._agent

    @property
    def front(self) -> Frontend:
        """What the front-end of the running cell can do: looked at once a cell, because a Jupyter server is asked."""
        from ipyagent.kernel.frontend import describe_frontend, running_request

        now = (running_request(self.shell), self.settings.panels)
        if not now[0] or self._front is None or self._front[0] != now:
            self._front = (now, describe_frontend(self.shell, self.settings.panels))
        return self._front[1]

    def tell(self, text: str) -> None:
        """Show an answer wrapped to the width there is: a page gets HTML, everything else text."""
        if self.front.kind == "terminal":
            import shutil  # loading needs neither this nor textwrap

            self.show(wrapped(text, shutil.get_terminal_size().columns))
        elif self.front.kind == "kernel" and self.front.person and not (self._agent is not None and self._agent.busy):
            rows = "".join(_row(row) for row in plain(text).split("\n"))
            html = f'<div class="ipyagent ia-told tex2jax_ignore mathjax_ignore" style="{_TOLD}">{rows}</div>'
            self.shell.display_pub.publish({"text/html": html, "text/plain": plain(text)})
        else:
            self.show(text)

    @staticmethod
    def show(text: str) -> None:
        """Print an answer, whatever names and texts of others are in it, as `plain` leaves it; what the terminal has
        no sign for (ASCII, an old code page) becomes a question mark."""
        text = plain(text)
        try:
            print(text)  # noqa: T201 - a magic's answer
        except UnicodeEncodeError as problem:
            print(text.encode(problem.encoding, "replace").decode(problem.encoding))  # noqa: T201 - the same
