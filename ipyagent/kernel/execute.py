"""Agent code runs through IPython itself, in the user's namespace, and leaves no trace but its own effects.

`Out`, `_`, `In` and the execution count stay as they are; errors come back as text; `exit()` and
`sys.exit()` end the run, not the session. `os._exit` cannot be survived inside a process."""

from __future__ import annotations

import asyncio
import builtins
import contextlib
import io
import os
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Callable, Iterator, Mapping
from types import TracebackType
from typing import Any

from ipyagent.escape import cut
from ipyagent.journal.protocols import CellOutput, Execution, ObjectRef
from ipyagent.kernel.displays import Displays, is_artist, open_figures, take_figures, watch_figures
from ipyagent.kernel.interrupts import Guard
from ipyagent.kernel.output import OutputLog, Tapped, drain
from ipyagent.kernel.rendering import TEXTUAL, has_display_options, is_bare, own_display_options, render_failure
from ipyagent.kernel.scope import working_folder

# ---- While agent code runs, what it prints and displays comes here; afterwards everything is as it was. Patches
# are put on instances (streams, publisher, shell), never on classes, and are taken off in reverse order whatever
# the code did in between. Output of threads that were there before the run is not the run's: it goes where it
# always went (also that of a pool which an earlier run made). The working directory is the user's to change: it
# stays as the code left it, and the output says so.

_MISSING = object()


class Capture:
    """Context manager for one run in `shell`, on the thread that runs it.

    Text goes to `log`; what is displayed is kept, about `max_chars` characters of it, and passed on to `cell`. Once it
    is left, `execution` is what became of the run, which `outcome` is IPython's own account of.
    """

    def __init__(
        self, shell: Any, code: str, log: OutputLog, guard: Guard | None, cell: CellOutput | None, max_chars: int
    ) -> None:
        self._shell = shell
        self._code = code
        self._log = log
        self.displays = Displays(shell.display_pub.publish, cell, max_chars)
        self._leave = contextlib.ExitStack()
        self._shown: list[BaseException] = []
        self._pid = os.getpid()
        self._guard = guard or Guard()
        self._before: frozenset[threading.Thread] = frozenset()
        self._clearing = False
        self._options = contextlib.ExitStack()
        self._formatted: tuple[Any, Any, Any] = (None, None, None)  # a bundle, its object, and its form for the model
        self._live: ObjectRef | None = None
        self.outcome: Any = None

    def execution(self) -> Execution:
        """What the code did."""
        error: BaseException | None = None
        if self.outcome is not None:
            error = self.outcome.error_before_exec or self.outcome.error_in_exec
        for shown in self._shown:  # by the code itself
            if shown is not error:
                self._log.write(render_failure(shown) + "\n")
        added, rebound = _changes(self._names, self._shell)
        interrupted = self._guard.interrupted or isinstance(error, KeyboardInterrupt)
        return Execution(
            output=self._log.text(INTERRUPTED if interrupted else None),
            result=self.displays.result,
            displays=self.displays.texts,
            images=self.displays.images,
            error=None if error is None else render_failure(error),
            interrupted=interrupted,
            seconds=self._seconds,
            added=added,
            rebound=rebound,
            live=self._live,
            shown=self.displays.shown,
            told=self.displays.told,
        )

    # ------------------------------------------------------------------ in and out

    def __enter__(self) -> Guard:
        self._names = _fingerprint(self._shell)
        with contextlib.ExitStack() as leave:  # whatever raises on the way in or out, all is put back
            self._leave = leave
            self._begin()
            self._leave = leave.pop_all()
        self._began = time.monotonic()
        return self._guard

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._seconds = time.monotonic() - self._began
        if os.getpid() != self._pid:  # a forked child that ran to the end of the code: it must not go on as a kernel
            os._exit(0 if error is None else 1)
        self._leave.close()

    def _begin(self) -> None:
        """Each way back is registered before its way in; the last registered is gone first."""
        shell, later = self._shell, self._leave.callback
        for name in _LAST:  # `for _ in …` binds it, and IPython would never set it again
            later(_put_back, shell.user_ns, name, shell.user_ns.get(name, _MISSING))
        later(self._tell_folder, working_folder())
        if hasattr(shell.displayhook, "exec_result"):
            later(setattr, shell.displayhook, "exec_result", shell.displayhook.exec_result)
        for namespace in (builtins.__dict__, shell.user_ns):
            later(_put_back, namespace, "get_ipython", namespace.get("get_ipython", _MISSING))
        for name in ("excepthook", "displayhook", "stdout", "stderr"):
            later(setattr, sys, name, getattr(sys, name))
        later(setattr, shell.display_trap, "hook", shell.display_trap.hook)
        for trap in (shell.builtin_trap, shell.display_trap):
            later(_unwind, trap, trap._nested_level)
        watchers = {getattr(stream, "watch_fd_thread", None) for stream in (sys.stdout, sys.stderr)}
        self._before = frozenset(threading.enumerate()) - {threading.current_thread()} - watchers
        one = sys.stdout is sys.stderr
        sys.stdout = self._tap(sys.stdout)
        sys.stderr = sys.stdout if one else self._tap(sys.stderr)
        later(drain, [stream for stream in (sys.stdout, sys.stderr) if getattr(stream, "_should_watch", False)])
        self._set(shell, "showtraceback", self._showtraceback)
        self._set(shell, "_showtraceback", lambda etype, value, lines: self._shown.append(value))
        self._set(shell, "ask_exit", lambda: self._log.write("(exit was ignored: this session stays)\n"))
        if hasattr(shell, "_tee"):  # IPython 9 keeps all output of a run in its history, without bound
            self._set(shell, "_tee", lambda channel: contextlib.nullcontext())
        # a terminal's `!cmd` writes past sys.stdout; the piped one does not
        self._set(shell, "system", self._system(shell.system if hasattr(shell, "kernel") else shell.system_piped))
        if os.name == "posix":
            self._set(shell, "getoutput", self._getoutput)
        self._set(shell.events, "trigger", _on_this_thread(shell.events.trigger))
        publisher = shell.display_pub
        self._set(publisher, "publish", self._publish(publisher.publish))
        self._set(publisher, "clear_output", self._clear(publisher.clear_output))
        # `%load`, `%recall`: the cell is the user's, so the text is output and replaces nothing
        self._set(shell, "set_next_input", lambda text, replace=False: self._log.line(text))
        later(shell.hooks.__setitem__, "show_in_pager", shell.hooks["show_in_pager"])
        shell.hooks["show_in_pager"] = self._page
        self._set(shell.display_formatter, "format", self._format(shell.display_formatter.format))
        shell.display_trap.hook = sys.displayhook = self._displayhook
        formatters = shell.display_formatter.formatters
        for formatter in [found for kind in TEXTUAL if (found := formatters.get(kind)) is not None]:
            later(setattr, formatter, "enabled", formatter.enabled)
            formatter.enabled = True
        self._leave.enter_context(self._options)
        self._options.enter_context(own_display_options())
        later(self._take_figures, watch_figures())

    def _set(self, owner: Any, name: str, value: Any) -> None:
        self._leave.callback(_put_back, vars(owner), name, vars(owner).get(name, _MISSING))
        vars(owner)[name] = value

    def _take_figures(self, before: Mapping[int, Any]) -> None:
        for text, picture in take_figures(before):
            self.displays.add_figure(text, picture)
        self.displays.settle()

    def _tell_folder(self, before: str) -> None:
        folder = working_folder()
        if folder != before:
            self._log.write(f"(the working directory is now {folder or 'a folder that no longer exists'})\n")

    # ------------------------------------------------------------------ streams

    def _tap(self, stream: Any) -> Any:
        """`stream` with its `write` tapped; a new stream where that cannot be done."""
        try:
            attributes = vars(stream)
        except TypeError:
            return Tapped(self._log)
        original = stream.write
        log, pid, before = self._log, self._pid, self._before
        watched = getattr(stream, "_should_watch", False)
        descriptor: int | None = getattr(stream, "_original_stdstream_fd", None) if watched else None

        def write(text: str) -> int | None:
            if not isinstance(text, str):
                raise TypeError(f"write() argument must be str, not {type(text).__name__}")
            if os.getpid() != pid:
                if descriptor is None:
                    written: int | None = original(text)
                    return written
                os.write(descriptor, text.encode(errors="replace"))  # the kernel reads this pipe: a tapped write again
            elif threading.current_thread() in before:
                return original(text)  # type: ignore[no-any-return]  # whatever the stream answers
            else:
                if self.displays.printed(text):
                    original(text)
                    return len(text)
                self._wipe()
                log.write(text)
            return len(text)

        self._set(stream, "write", write)
        if "writelines" in attributes or isinstance(stream, io.TextIOWrapper):
            self._set(stream, "writelines", lambda lines: [write(line) for line in lines] and None)
        self._set(stream, "close", lambda: None)  # a closed stdout would stay closed for every later cell
        return stream

    # ------------------------------------------------------------------ commands

    def _system(self, original: Callable[[str], Any]) -> Callable[[str], Any]:
        """`!command`, which says its exit status when it failed."""

        def system(cmd: str) -> Any:
            shell, expand = self._shell, self._shell.var_expand
            own = vars(shell).get("var_expand", _MISSING)
            # names in the command are looked up in the caller's frame: two frames of ours are between
            vars(shell)["var_expand"] = lambda text, depth=0, *rest: _announced(expand(text, depth + 2, *rest))
            try:
                answer = original(cmd)
            finally:
                _put_back(vars(shell), "var_expand", own)
            self._exit_status(shell.user_ns.get("_exit_code"), cmd)
            return answer

        return system

    def _getoutput(self, cmd: str, split: bool = True, depth: int = 0) -> Any:
        """`x = !command`, `!!command`, `%sx`: the same, which IPython's own does not tell."""
        from IPython.utils._process_common import process_handler
        from IPython.utils.text import LSString, SList

        if cmd.rstrip().endswith("&"):
            raise OSError("Background processes not supported.")
        expanded = self._shell.var_expand(cmd, depth=depth + 1)
        done: list[Any] = []

        def read(process: Any) -> bytes:
            done.append(process)
            raw: bytes = process.communicate()[0]
            return raw

        raw = process_handler(expanded, read, subprocess.STDOUT)
        text = "" if raw is None else raw.decode(sys.getdefaultencoding(), "replace")
        code = done[0].returncode if done else None
        if code and getattr(self._shell, "system_raise_on_error", False):
            raise subprocess.CalledProcessError(code, cmd)
        self._exit_status(code, cmd)
        return SList(text.splitlines()) if split else LSString(text)

    def _exit_status(self, code: Any, command: str) -> None:
        if not isinstance(code, int) or code == 0:
            return
        shown = cut(" ".join(command.split()), 80)
        ended = f"exit status {code}" if code > 0 else f"ended by signal {-code}"
        self._log.line(f"[{ended}: {shown}]")

    # ------------------------------------------------------------------ displays

    def _publish(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def publish(data: dict[str, Any], metadata: dict[str, Any] | None = None, *args: Any, **more: Any) -> None:
            if os.getpid() != self._pid or threading.current_thread() in self._before:
                original(data, metadata, *args, **more)
                return
            if args:  # `source`, which nobody uses
                more = {"source": args[0], **more}
            self._wipe(follows=True)
            formatted, value, told = self._formatted
            known = formatted is data
            self.displays.add(data, metadata, more, value if known else None, told if known else data)

        return publish

    def _format(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """What is displayed has the form that the user's own options give it; for the model tables are formatted
        again under ours."""

        def formatted(value: Any, *args: Any, **more: Any) -> Any:
            self._options.close()
            try:
                made = original(value, *args, **more)
            finally:
                self._options.enter_context(own_display_options())
            told = made[0]
            if "text/plain" in told and has_display_options(value):
                kinds = ("text/html",) if is_bare(str(told["text/plain"])) else ("text/plain",)
                told = {**told, **original(value, include=kinds)[0]}
            self._formatted = (made[0], value, told)
            return made

        return formatted

    def _displayhook(self, value: Any) -> None:
        if value is None or self._silent():
            return
        data, metadata = self._shell.display_formatter.format(value)
        if not data:  # it displayed itself
            return
        self._live = ObjectRef(value)
        if is_artist(value) and (open_figures() or self.displays.images):
            return  # the figure is shown
        self._wipe(follows=True)
        formatted, _, told = self._formatted
        self.displays.add(data, metadata, {}, value, told if formatted is data else data, result=True)

    def _silent(self) -> bool:
        ends = getattr(self._shell.displayhook, "semicolon_at_end_of_expression", None)
        try:
            return bool(ends is not None and ends(self._code))
        except Exception:  # noqa: BLE001 - code that cannot be tokenized: its value is shown
            return False

    def _clear(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """clear_output(): what was shown before is gone, as in a cell; the panel itself stays."""

        def clear(wait: bool = False) -> None:
            if self.displays.cleared_within(wait=wait):
                original(wait)
                return
            self._clearing = True
            if not wait:
                self._wipe()

        return clear

    def _wipe(self, *, follows: bool = False) -> None:
        """The clearing that was asked for; `follows`: because something is displayed now."""
        if self._clearing:
            self._clearing = False
            self._log.clear()
            self.displays.clear(follows=follows)

    def _page(self, data: Any, *args: Any, **more: Any) -> None:
        """What would open in a pager (`x?`, `%pinfo`, `%prun`) is output."""
        text = data.get("text/plain", "") if isinstance(data, dict) else data
        self._log.line(str(text).rstrip("\n"))

    # ------------------------------------------------------------------ the shell's own ways out

    def _showtraceback(self, exc_tuple: Any = None, *args: Any, **kwargs: Any) -> None:
        try:
            _, value, _ = self._shell._get_exc_info(exc_tuple)
        except ValueError:
            return
        self._shown.append(value)


def _announced(command: str) -> str:
    """The command, once it was told to whoever watches: what runs it may fork first, and nobody can be asked there."""
    sys.audit("os.system", command)
    return command


def _on_this_thread(trigger: Callable[..., None]) -> Callable[..., None]:
    """The shell's events, but not from other threads: a widget's message that comes while code runs triggers
    `post_execute` on a thread of its own, which would draw and close the figures that the code is drawing."""
    ident = threading.get_ident()

    def triggered(event: str, *args: Any, **more: Any) -> None:
        if threading.get_ident() == ident or event not in ("pre_execute", "post_execute"):
            trigger(event, *args, **more)

    return triggered


def _put_back(attributes: dict[str, Any], name: str, old: Any) -> None:
    if old is _MISSING:
        attributes.pop(name, None)
    else:
        attributes[name] = old


def _unwind(trap: Any, level: int) -> None:
    """An interrupt between two bytecodes can skip the exit of one of IPython's traps."""
    while trap._nested_level > level:
        trap.__exit__(None, None, None)


INTERRUPTED = 200_000
"""Characters kept of the output of a run that was interrupted, mostly of an endless loop: each is read several times
before the turn has ended."""
_LAST = ("_", "__", "___")
"""The user's last results."""


def run_sync(
    shell: Any,
    code: str,
    log: OutputLog,
    *,
    guard: Guard | None = None,
    cell: CellOutput | None = None,
    max_chars: int = 25_000,
) -> Execution:
    """Run `code` on this thread and wait. Top-level `await` runs on IPython's own loop, also where
    this thread's loop is running and blocked by the caller (`%%time`, `run_cell_magic`)."""
    if not needs_loop(shell, code):
        with (run := Capture(shell, code, log, guard, cell, max_chars)) as guarded:
            run.outcome = guarded.run(lambda: shell.run_cell(code, store_history=False))
        return run.execution()
    with _no_running_loop():
        from IPython.core.async_helpers import get_asyncio_loop

        loop: asyncio.AbstractEventLoop = get_asyncio_loop()  # type: ignore[no-untyped-call]
        return loop.run_until_complete(run_async(shell, code, log, guard=guard, cell=cell, max_chars=max_chars))


async def run_async(
    shell: Any,
    code: str,
    log: OutputLog,
    *,
    guard: Guard | None = None,
    cell: CellOutput | None = None,
    max_chars: int = 25_000,
) -> Execution:
    """Run `code` on this thread; top-level `await` runs on the running loop."""
    if not needs_loop(shell, code):
        return run_sync(shell, code, log, guard=guard, cell=cell, max_chars=max_chars)
    with (run := Capture(shell, code, log, guard, cell, max_chars)) as guarded:
        transformed = shell.transform_cell(code)
        run.outcome = await guarded.run_async(
            lambda: shell.run_cell_async(code, store_history=False, transformed_cell=transformed)
        )
        guarded.run(lambda: shell.events.trigger("post_execute"))
        guarded.run(lambda: shell.events.trigger("post_run_cell", run.outcome) if run.outcome is not None else None)
    return run.execution()


def needs_loop(shell: Any, code: str) -> bool:
    """Whether `code` has a top-level await."""
    try:
        transformed = shell.transform_cell(code)
    except Exception:  # noqa: BLE001 - transformers are the user's; run_cell meets the same error and shows it
        return False
    return bool(shell.should_run_async(code, transformed_cell=transformed))


def _fingerprint(shell: Any) -> dict[str, tuple[int, Any]]:
    """Of each name the identity of its object, with a weak reference where the type allows one:
    an identity alone is reused once the object is gone, and a strong one would keep memory."""
    prints: dict[str, tuple[int, Any]] = {}
    for name, value in list(shell.user_ns.items()):
        try:
            reference: Any = weakref.ref(value)
        except TypeError:
            reference = None
        prints[name] = (id(value), reference)
    return prints


def _changes(before: dict[str, tuple[int, Any]], shell: Any) -> tuple[tuple[str, ...], tuple[str, ...]]:
    added: list[str] = []
    rebound: list[str] = []
    hidden = shell.user_ns_hidden
    for name, value in list(shell.user_ns.items()):
        if not isinstance(name, str) or name.startswith("_") or (name in hidden and hidden[name] is value):
            continue
        known = before.get(name)
        if known is None:
            added.append(name)
        elif known[0] != id(value) or (known[1] is not None and known[1]() is not value):
            rebound.append(name)
    return tuple(sorted(added)), tuple(sorted(rebound))


@contextlib.contextmanager
def _no_running_loop() -> Iterator[None]:
    """Let another loop run on this thread although one is running and blocked below us."""
    running = asyncio._get_running_loop()
    task = asyncio.current_task(running) if running is not None and sys.version_info >= (3, 14) else None
    # since 3.14 the current task belongs to the thread, before that to the loop
    if running is not None and task is not None:
        asyncio.tasks._leave_task(running, task)
    asyncio._set_running_loop(None)
    try:
        yield
    finally:
        asyncio._set_running_loop(running)
        if running is not None and task is not None:
            asyncio.tasks._enter_task(running, task)
