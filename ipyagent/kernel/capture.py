"""While agent code runs, what it prints and displays comes here; afterwards everything is as it was.

Patches are put on instances (streams, publisher, shell), never on classes, and are taken off in
reverse order whatever the code did in between. Output of threads that were there before the run is
not the run's: it goes where it always went (also that of a pool which an earlier run made). The
working directory is the user's to change: it stays as the code left it, and the output says so.
"""

from __future__ import annotations

import builtins
import contextlib
import io
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from types import TracebackType
from typing import Any

from ipyagent.journal.protocols import Image, Live
from ipyagent.kernel.failures import render_failure
from ipyagent.kernel.output import OutputLog, cap, clean
from ipyagent.kernel.output_streams import Tapped, drain
from ipyagent.kernel.pictures import fit_picture, open_figures, take_figures
from ipyagent.kernel.rendering import TEXTUAL, own_display_options, text_of

_SHOWN_BY_PANEL = frozenset(
    {
        "text/plain",
        "text/html",
        "text/latex",
        "text/markdown",
        "application/json",
        "application/javascript",  # never passed on: scripts do not run from the agent's output
    }
)
_MISSING = object()
_MAX_IMAGES = 20
_MAX_DISPLAYS = 200
_LEAST = 2_000
"""Characters of a displayed text that are kept however much there is."""


class Capture:
    """Context manager for one run in `shell`, on the thread that runs it.

    Text goes to `log`. Displayed objects and results are kept as `displays`, `result` (text as `text_of` gives
    it, about `max_chars` in all) and `images`; `live` is the last expression's object. With
    `forward_all` everything also goes where it would have gone without us; otherwise only live
    objects (widgets, interactive plots) do.
    """

    def __init__(self, shell: Any, log: OutputLog, *, forward_all: bool = False, max_chars: int = 25_000) -> None:
        self._shell = shell
        self._log = log
        self._forward_all = forward_all
        self._max_chars = max_chars
        self._leave = contextlib.ExitStack()
        self._displayed: list[tuple[str, str | None, Image | None]] = []  # display id, text, picture
        self._shown: list[BaseException] = []
        self._pid = os.getpid()
        self._before: frozenset[threading.Thread] = frozenset()
        self.result: str | None = None
        self.live: Live | None = None

    @property
    def displays(self) -> tuple[str, ...]:
        return tuple(text for _, text, _ in self._displayed if text is not None)

    @property
    def images(self) -> tuple[Image, ...]:
        return tuple(picture for _, _, picture in self._displayed if picture is not None)

    def report(self, error: BaseException | None) -> None:
        """Add to the output the tracebacks that the code showed by itself, all but `error`."""
        for shown in self._shown:
            if shown is not error:
                self._log.write(render_failure(shown) + "\n")

    # ------------------------------------------------------------------ in and out

    def __enter__(self) -> Capture:
        with contextlib.ExitStack() as leave:  # whatever raises on the way in or out, all is put back
            self._leave = leave
            self._begin()
            self._leave = leave.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if os.getpid() != self._pid:  # a forked child that ran to the end of the code: it must not go on as a kernel
            os._exit(0 if error is None else 1)
        self._leave.close()

    def _begin(self) -> None:
        """Each way back is registered before its way in; the last registered is gone first."""
        shell, later = self._shell, self._leave.callback
        later(self._tell_folder, _folder())
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
        self._set(shell, "showtraceback", self._showtraceback)
        self._set(shell, "_showtraceback", lambda etype, value, lines: self._shown.append(value))
        self._set(shell, "ask_exit", self._ask_exit)
        if hasattr(shell, "_tee"):  # IPython 9 keeps all output of a run in its history, without bound
            self._set(shell, "_tee", lambda channel: contextlib.nullcontext())
        # a terminal's `!cmd` writes past sys.stdout; the piped one does not
        self._set(shell, "system", self._system(shell.system if hasattr(shell, "kernel") else shell.system_piped))
        if os.name == "posix":
            self._set(shell, "getoutput", self._getoutput)
        publisher = shell.display_pub
        self._original_publish = publisher.publish
        self._set(publisher, "publish", self._publish(publisher.publish))
        self._set(publisher, "clear_output", self._clear)
        shell.display_trap.hook = sys.displayhook = self._displayhook
        formatters = shell.display_formatter.formatters
        for formatter in [found for kind in TEXTUAL if (found := formatters.get(kind)) is not None]:
            later(setattr, formatter, "enabled", formatter.enabled)
            formatter.enabled = True
        self._leave.enter_context(own_display_options())
        later(self._take_figures, open_figures())

    def _set(self, owner: Any, name: str, value: Any) -> None:
        self._leave.callback(_put_back, vars(owner), name, vars(owner).get(name, _MISSING))
        vars(owner)[name] = value

    def _take_figures(self, before: frozenset[int]) -> None:
        for text, picture in take_figures(open_figures() - before):
            self._add("", text, picture)

    def _tell_folder(self, before: str) -> None:
        folder = _folder()
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
        forward = self._forward_all

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
                log.write(text)
                if forward:
                    original(text)
            return len(text)

        self._set(stream, "write", write)
        if "writelines" in attributes or isinstance(stream, io.TextIOWrapper):
            self._set(stream, "writelines", lambda lines: [write(line) for line in lines] and None)
        self._set(stream, "close", lambda: None)  # a closed stdout would stay closed for every later cell
        if descriptor is not None:
            self._leave.callback(drain, stream)
        return stream

    # ------------------------------------------------------------------ commands

    def _system(self, original: Callable[[str], Any]) -> Callable[[str], Any]:
        """`!command`, which says its exit status when it failed."""

        def system(cmd: str) -> Any:
            shell, expand = self._shell, self._shell.var_expand
            own = vars(shell).get("var_expand", _MISSING)
            # names in the command are looked up in the caller's frame: two frames of ours are between
            vars(shell)["var_expand"] = lambda text, depth=0, *rest: expand(text, depth + 2, *rest)
            try:
                answer = original(cmd)
            finally:
                if own is _MISSING:
                    vars(shell).pop("var_expand", None)
                else:
                    vars(shell)["var_expand"] = own
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
        shown = " ".join(command.split())
        shown = shown if len(shown) <= 80 else shown[:80] + "…"
        ended = f"exit status {code}" if code > 0 else f"ended by signal {-code}"
        self._log.line(f"[{ended}: {shown}]")

    # ------------------------------------------------------------------ displays

    def _publish(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def publish(data: dict[str, Any], metadata: dict[str, Any] | None = None, *args: Any, **kwargs: Any) -> None:
            ours = os.getpid() == self._pid and threading.current_thread() not in self._before
            if ours:
                self._record(data, str((kwargs.get("transient") or {}).get("display_id") or ""))
            if not ours or self._forward_all or _is_live(data):
                original(data, metadata, *args, **kwargs)

        return publish

    def _displayhook(self, value: Any) -> None:
        if value is None:
            return
        data, metadata = self._shell.display_formatter.format(value)
        if not data:  # it displayed itself
            return
        if self.result is not None:
            self._add("", self.result, None)
        self.result = None
        self._record(data, "", as_result=True)
        self.live = Live(value)
        if self._forward_all or _is_live(data):
            self._original_publish(data, metadata)  # not the tapped one: the object is recorded already

    def _record(self, data: dict[str, Any], display_id: str, as_result: bool = False) -> None:
        picture = None
        for media_type in ("image/png", "image/jpeg"):
            raw = data.get(media_type)
            if isinstance(raw, (str, bytes)):
                picture = fit_picture(media_type, raw)
                break
        said = text_of(data, self._room())
        text = cap(clean(said), self._room()) if said is not None else None
        if as_result:
            self.result = text
            if picture is not None:
                self._add("", None, picture)
            return
        if display_id:
            for i, (known, _, _) in enumerate(self._displayed):
                if known == display_id:
                    self._displayed[i] = (display_id, text, picture)
                    return
        self._add(display_id, text, picture)

    def _room(self) -> int:
        """Characters that one more displayed text may have: all of them together are bounded."""
        return max(_LEAST, self._max_chars - sum(len(text or "") for _, text, _ in self._displayed))

    def _add(self, display_id: str, text: str | None, picture: Image | None) -> None:
        if picture is not None and len(self.images) >= _MAX_IMAGES:
            picture, text = None, f"{text or ''} (not kept: more than {_MAX_IMAGES} pictures in one run)"
        if len(self._displayed) < _MAX_DISPLAYS:
            self._displayed.append((display_id, text, picture))
        elif len(self._displayed) == _MAX_DISPLAYS:
            self._displayed.append(("", f"(more than {_MAX_DISPLAYS} displayed objects: the rest is not kept)", None))

    def _clear(self, *args: Any, **kwargs: Any) -> None:
        """clear_output(): what was displayed before is gone, as in a cell; the panel itself stays."""
        self._displayed.clear()

    # ------------------------------------------------------------------ the shell's own ways out

    def _showtraceback(self, exc_tuple: Any = None, *args: Any, **kwargs: Any) -> None:
        try:
            _, value, _ = self._shell._get_exc_info(exc_tuple)
        except ValueError:
            return
        self._shown.append(value)

    def _ask_exit(self) -> None:
        self._log.write("(exit was ignored: this session stays)\n")


def _is_live(data: dict[str, Any]) -> bool:
    return any(kind not in _SHOWN_BY_PANEL and not kind.startswith("image/") for kind in data)


def _put_back(attributes: dict[str, Any], name: str, old: Any) -> None:
    if old is _MISSING:
        attributes.pop(name, None)
    else:
        attributes[name] = old


def _unwind(trap: Any, level: int) -> None:
    """An interrupt between two bytecodes can skip the exit of one of IPython's traps."""
    while trap._nested_level > level:
        trap.__exit__(None, None, None)


def _folder() -> str:
    try:
        return os.getcwd()
    except OSError:
        return ""
