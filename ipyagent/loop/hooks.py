"""Hooks: the user's own functions at fixed points of a turn.

`ipyagent.hooks.pre_tool(function)` (also as a decorator) registers one; it is called with a dict of facts, a copy of
its own: a plain function on a thread of its own, an async one on the agent thread, which it must not block.
Commands in the user's `hooks.json` come after the functions (`shell_hooks`). A hook that raises, or takes longer than
`hooks.timeout` seconds, is reported and ignored, except `pre_tool`, where it denies, as an answer does that is none.

| point | facts | may return |
|---|---|---|
| session_start | session, resumed | text for the model |
| user_prompt | text | text for the model |
| pre_tool | tool, input, call | {"deny": reason} or {"input": other arguments} |
| post_tool | tool, input, call, output, is_error | text added to the result |
| pre_compact, post_compact | trigger, method | text for the summary, text after it |
| stop | status, message, text | nothing (a stopped turn waits for it a moment only) |
| session_end | session | nothing (at the end of the process too, for `AT_EXIT` seconds at most) |"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import inspect
import os
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Awaitable, Callable, Iterator, Sequence
from copy import deepcopy
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, TypeAlias

import msgspec

from ipyagent import sandbox
from ipyagent.errors import AgentError, UsageError
from ipyagent.escape import cut
from ipyagent.kernel.processes import MARK, without_keys
from ipyagent.project import find_root, is_shared, user_folder
from ipyagent.sandbox import Level

# ---- Hooks that are shell commands: `hooks.json` in the user's own folder, never one of a project. {"pre_tool":
# [{"command": "check-call", "tool": "shell", "timeout": 10}], "stop": ["notify-send done"]} A command gets the
# facts of its point as one JSON object on stdin, and the point's name in IPYAGENT_HOOK. What it prints is its
# answer: text, or for `pre_tool` a JSON object as a function would return it. An exit status other than 0, or no
# end within `timeout` seconds, is a failure: `pre_tool` denies, the others are reported. Nothing that a command
# began outlives its time. "sandbox": "read" or "project" has a command run at that level, see `ipyagent.sandbox`.

FILE = "hooks.json"
SECONDS = 30.0
"""How long a command may take unless it says otherwise."""
MOST_BYTES = 100_000
"""What is read of a command's output; the rest is thrown away."""
DRAIN = 0.3
"""Seconds for output that is still on its way when the command has ended."""


class HookEntry(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One command of the file. `tool` limits `pre_tool` and `post_tool` to names that match it as a glob; `sandbox` is
    the level at which the command runs (`ipyagent.sandbox`)."""

    command: str
    timeout: float = SECONDS
    tool: str = "*"
    sandbox: Level = "open"


class CommandFailed(AgentError):
    """A hook's command came to nothing; the message says how."""


class CommandHook:
    """One command at one point, called as a hook's function is."""

    def __init__(self, point: str, entry: HookEntry) -> None:
        self.point, self.entry = point, entry
        self.__name__ = cut(entry.command, 60)

    def __repr__(self) -> str:
        return f"<CommandHook {self.point}: {self.__name__}>"

    async def __call__(self, facts: dict[str, Any]) -> Any:
        """The command's answer, None for none. Raises CommandFailed."""
        if not self._meant(facts):
            return None
        with await asyncio.to_thread(self._confined) as (command, environ):
            return await self._run(command, environ, facts)

    async def _run(self, command: Sequence[str], environ: dict[str, str], facts: dict[str, Any]) -> Any:
        process = await asyncio.create_subprocess_exec(
            *command,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env=environ,
            start_new_session=True,
        )
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        out, err = bytearray(), bytearray()
        work = [
            asyncio.ensure_future(_feed(process.stdin, msgspec.json.encode(facts, enc_hook=str))),
            asyncio.ensure_future(_drain(process.stdout, out)),
            asyncio.ensure_future(_drain(process.stderr, err)),
        ]
        try:
            await asyncio.wait_for(_ended(process), self.entry.timeout)
            await asyncio.wait(work, timeout=DRAIN)
        except TimeoutError:
            raise CommandFailed(f"it took longer than {self.entry.timeout:g} s") from None
        finally:
            for task in work:
                task.cancel()
            _end(process.pid)
            await process.wait()
        return self._answer(process.returncode, bytes(out), bytes(err))

    def call_now(self, facts: dict[str, Any], most: float | None = None) -> Any:
        """The same on this thread, in `most` seconds; an interrupt ends the command. Raises CommandFailed."""
        seconds = self.entry.timeout if most is None else min(most, self.entry.timeout)
        if not self._meant(facts):
            return None
        pipe = subprocess.PIPE
        with self._confined() as (command, environ), subprocess.Popen(
            command, stdin=pipe, stdout=pipe, stderr=pipe, env=environ, start_new_session=True
        ) as process:
            try:
                out, err = process.communicate(msgspec.json.encode(facts, enc_hook=str), timeout=seconds)
            except subprocess.TimeoutExpired:
                raise CommandFailed(f"it took longer than {seconds:g} s") from None
            finally:
                _end(process.pid)
        return self._answer(process.returncode, out, err)

    def _meant(self, facts: dict[str, Any]) -> bool:
        return "tool" not in facts or fnmatchcase(str(facts["tool"]), self.entry.tool)

    def _confined(self) -> contextlib.AbstractContextManager[tuple[list[str], dict[str, str]]]:
        """The command line and its environment, as its level has them. Raises CommandFailed where nothing here keeps a
        command at that level."""
        here = Path.cwd()
        root = find_root(here)
        root = root if here.is_relative_to(root) or is_shared(here) else here  # a linked worktree is its own
        environ = {name: value for name, value in without_keys(os.environ).items() if name != MARK}
        environ["IPYAGENT_HOOK"] = self.point
        try:
            return sandbox.confined([*shell_words(), self.entry.command], self.entry.sandbox, root, environ)
        except sandbox.NoSandbox as problem:
            raise CommandFailed(str(problem)) from None

    def _answer(self, status: int | None, out: bytes, err: bytes) -> Any:
        said = out.decode("utf-8", "replace").strip()
        if status:
            why = " ".join((err.decode("utf-8", "replace").strip() or said).split())[:300]
            raise CommandFailed(f"exit status {status}" + (f": {why}" if why else ""))
        if self.point != "pre_tool":
            return said or None
        if not said.startswith("{"):
            return None
        try:
            return msgspec.json.decode(said, type=dict[str, Any])
        except msgspec.DecodeError as problem:
            raise CommandFailed(f"its answer is not a JSON object ({problem})") from None


class _Unreadable:
    """Stands for a file that cannot be read: what it was to check is not known, so it fails."""

    __name__ = FILE

    def __init__(self, why: str) -> None:
        self._why = why

    def __call__(self, facts: dict[str, Any]) -> None:
        raise CommandFailed(self._why)


class HooksFile:
    """The commands of one file, read again when it has changed. `known` are the points there are."""

    def __init__(self, known: Sequence[str]) -> None:
        self._known = known
        self._stamp: tuple[str, int, int] | None = None
        self._found: dict[str, list[CommandHook]] = {}
        self._problem = ""

    @property
    def problem(self) -> str:
        """What is wrong with the file as it is now; "" when it can be read or is not there."""
        self.of("")
        return self._problem

    def of(self, point: str) -> list[Any]:
        """The point's commands in order; one that fails where the file cannot be read."""
        try:
            path = user_folder() / FILE
            stat = path.stat()
        except (AgentError, OSError):  # what was there, and what was wrong with it, is gone
            self._stamp, self._found, self._problem = None, {}, ""
            return []
        stamp = str(path), stat.st_mtime_ns, stat.st_size
        if stamp != self._stamp:
            self._stamp = stamp
            self._found, self._problem = self._read(path, stat)
        return [_Unreadable(self._problem)] if self._problem else list(self._found.get(point, ()))

    def _read(self, path: Path, stat: os.stat_result) -> tuple[dict[str, list[CommandHook]], str]:
        if sys.platform != "win32" and (stat.st_uid not in (0, os.getuid()) or stat.st_mode & 0o022):
            return {}, f"{path} can be written by others: chmod go-w it, or remove it"
        try:
            found = msgspec.json.decode(path.read_bytes(), type=dict[str, list[str | HookEntry]])
        except (OSError, msgspec.DecodeError) as problem:
            return {}, f"{path} cannot be read ({problem}): fix or remove it"
        if unknown := sorted(set(found) - set(self._known)):
            return {}, f"{path} has no point {unknown[0]!r}; points: {', '.join(self._known)}"
        return {
            point: [CommandHook(point, HookEntry(each) if isinstance(each, str) else each) for each in entries]
            for point, entries in found.items()
        }, ""


async def _ended(process: asyncio.subprocess.Process) -> None:
    """Return when the command itself has ended; `wait` would wait for all that hold its output as well."""
    pause = 0.002
    while process.returncode is None:
        await asyncio.sleep(pause)
        pause = min(0.05, pause * 1.5)


async def _feed(stdin: asyncio.StreamWriter, text: bytes) -> None:
    with contextlib.suppress(ConnectionError):  # a command that does not read its facts
        stdin.write(text)
        await stdin.drain()
        stdin.close()


async def _drain(stream: asyncio.StreamReader, kept: bytearray) -> None:
    while piece := await stream.read(65_536):
        kept += piece[: MOST_BYTES - len(kept)]


def _end(pid: int) -> None:
    """End what the command has begun and left."""
    with contextlib.suppress(OSError):
        if sys.platform != "win32":
            os.killpg(pid, signal.SIGKILL)
        else:
            os.kill(pid, signal.SIGTERM)


def shell_words() -> tuple[str, ...]:
    """The words that make the system's shell run the command after them."""
    if os.name == "nt":
        return ("cmd.exe", "/d", "/c")
    bash = shutil.which("bash")
    return (bash, "--noprofile", "--norc", "-c") if bash else ("/bin/sh", "-c")


Hook: TypeAlias = Callable[[dict[str, Any]], Any]

NAMES = (
    "session_start",
    "user_prompt",
    "pre_tool",
    "post_tool",
    "pre_compact",
    "post_compact",
    "stop",
    "session_end",
)
AT_EXIT = 2.0
"""Seconds that each hook gets when the process ends: a kernel is killed soon after it was told to."""


class Hooks:
    """Your functions at fixed points of a turn: `hooks.pre_tool(function)`, also as a decorator.

    The points, what a function gets and what it may return are in the table of this module. `timeout` is the seconds
    that one function may take. Raises AttributeError for an unknown point, UsageError for what is not a function.
    """

    def __init__(self) -> None:
        self._registered: dict[str, list[Hook]] = {name: [] for name in NAMES}
        self._file = HooksFile(NAMES)
        self.timeout = SECONDS
        """Seconds that one function may take; commands have their own."""

    def __repr__(self) -> str:
        counts = {name: len(found) for name, found in self._registered.items() if found}
        return f"<Hooks {counts}>"

    def __getattr__(self, name: str) -> Callable[[Hook], Hook]:
        if name.startswith("_") or name not in NAMES:
            raise AttributeError(f"there is no hook {name!r}; hooks: {', '.join(NAMES)}")

        def register(function: Hook) -> Hook:
            if not callable(function):
                raise UsageError(f"a {name} hook must be a function of one argument, not {function!r}")
            if function not in self._registered[name]:
                self._registered[name].append(function)
            return function

        return register

    def remove(self, function: Hook) -> None:
        """Take a function out of every point."""
        for found in self._registered.values():
            if function in found:
                found.remove(function)

    def clear(self) -> None:
        """Take all functions out."""
        for found in self._registered.values():
            found.clear()

    def registered(self, name: str) -> Iterator[Hook]:
        """The functions of a point, in the order of their registration, then the user's commands."""
        yield from (*self._registered[name], *self._file.of(name))

    async def call(self, name: str, facts: dict[str, Any], failed: Callable[[str], None]) -> list[Any]:
        """What the functions of a point return, None left out. `failed` is told of each that raises."""
        answers = [await self._answer(hook, facts, name, failed) for hook in self.registered(name)]
        return [answer for answer in answers if answer is not None]

    def call_now(
        self, name: str, facts: dict[str, Any], failed: Callable[[str], None], *, most: float | None = None
    ) -> None:
        """Call the functions of a point where nobody can await; `most` bounds the seconds of each further."""
        for hook in self.registered(name):
            try:
                if isinstance(hook, CommandHook):
                    hook.call_now(deepcopy(facts), most)
                else:
                    _Call(hook, deepcopy(facts)).wait(self.timeout if most is None else min(most, self.timeout))
            except Exception as problem:  # noqa: BLE001 - the user's code: reported, and the end goes on
                failed(f"hook {name} ({_name(hook)}): {type(problem).__name__}: {problem}")

    async def before_tool(self, facts: dict[str, Any]) -> tuple[dict[str, Any] | None, str]:
        """What the `pre_tool` functions make of a call: other arguments (None: as they are), and why
        it may not run ("" when it may). One that raises, or whose answer is none, denies."""
        changed: dict[str, Any] | None = None
        for hook in self.registered("pre_tool"):
            why: list[str] = []
            given = facts["input"] if changed is None else changed
            answer = await self._answer(hook, {**facts, "input": given}, "pre_tool", why.append)
            if why:
                return None, why[0]
            if answer is None:
                continue
            if not (
                isinstance(answer, dict)
                and answer.keys() <= {"deny", "input"}
                and isinstance(answer.get("input", {}), dict)
            ):
                return None, (
                    f"hook pre_tool ({_name(hook)}) returned {str(answer)[:100]!r}, which is no answer: it "
                    'may be None, {"deny": reason} or {"input": arguments}'
                )
            if answer.get("deny"):
                return None, str(answer["deny"])
            changed = answer.get("input", changed)
        return changed, ""

    async def _answer(self, hook: Hook, facts: dict[str, Any], name: str, failed: Callable[[str], None]) -> Any:
        """What one function returns, awaited where it is async; None when it raises, which is told."""
        own = deepcopy(facts)
        try:
            if isinstance(hook, CommandHook):  # it keeps its own time
                return await hook(own)
            if inspect.iscoroutinefunction(hook):
                return await _within(hook(own), self.timeout)
            return await _Call(hook, own).answer(self.timeout)
        except asyncio.CancelledError as problem:
            task = asyncio.current_task()
            if task is None or task.cancelling():
                raise  # the turn is stopped
            failed(f"hook {name} ({_name(hook)}): {type(problem).__name__}")
        except Exception as problem:  # noqa: BLE001 - the user's code: reported, and the turn goes on
            failed(f"hook {name} ({_name(hook)}): {type(problem).__name__}: {problem}")
        return None


class HookFailed(AgentError):
    """A hook came to nothing; the message says how."""


class _Call:
    """One call of a plain function, on a thread that nothing waits for longer than it was told to: the process may
    end while it hangs. What it prints lands where the caller prints."""

    def __init__(self, hook: Hook, facts: dict[str, Any]) -> None:
        self._hook, self._facts = hook, facts
        self._done = threading.Event()
        self._told: Callable[[], object] = self._done.set
        self._result: Any = None
        self._problem: Exception | None = None

    def wait(self, seconds: float | None) -> Any:
        """The answer, awaited on the function's thread where it is async, `seconds` at most if given."""
        self._start()
        if not self._done.wait(seconds):
            raise HookFailed(f"it took longer than {seconds:g} s")
        return self._outcome()

    async def answer(self, seconds: float) -> Any:
        """The same from async code; what the function returns is awaited here."""
        loop, here = asyncio.get_running_loop(), asyncio.Event()

        def told() -> None:
            with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits
                loop.call_soon_threadsafe(here.set)

        self._told = told
        self._start()
        await _within(here.wait(), seconds)
        return self._outcome()

    def _start(self) -> None:
        context = contextvars.copy_context()
        threading.Thread(target=lambda: context.run(self._run), name="ipyagent-hook", daemon=True).start()

    def _run(self) -> None:
        try:
            result = self._hook(self._facts)
            self._result = asyncio.run(_awaited(result)) if inspect.isawaitable(result) else result
        except Exception as problem:  # noqa: BLE001 - the user's code: raised again where it is waited for
            self._problem = problem
        except BaseException as problem:  # noqa: BLE001 - SystemExit and its like end the function only
            self._problem = HookFailed(f"it raised {type(problem).__name__}")
        self._told()

    def _outcome(self) -> Any:
        if self._problem is not None:
            raise self._problem
        return self._result


async def _awaited(value: Awaitable[Any]) -> Any:
    return await value


async def _within(value: Awaitable[Any], seconds: float) -> Any:
    """The value, awaited for at most so long. Raises HookFailed, also for a SystemExit, which would end the loop; a
    TimeoutError of its own is its own."""

    async def guarded() -> Any:
        try:
            return await value
        except (SystemExit, KeyboardInterrupt) as problem:
            raise HookFailed(f"it raised {type(problem).__name__}") from problem

    task = asyncio.ensure_future(guarded())
    try:
        done, _ = await asyncio.wait({task}, timeout=seconds)
    except BaseException:
        task.cancel()
        raise
    if not done:
        task.cancel()
        raise HookFailed(f"it took longer than {seconds:g} s")
    return task.result()


def _name(hook: Hook) -> str:
    return str(getattr(hook, "__name__", hook))


hooks = Hooks()
"""The process's hooks, public as `ipyagent.hooks`."""
