"""One task of many, where it runs: an agent and a session of its own, made here and closed here.

What comes in and goes out is plain and pickles; the key of the model comes from the worker's own environment.
A task ends with an outcome, whatever happens in it; a finished one is on disk before it is returned."""

from __future__ import annotations

import hmac
import json
import os
import platform
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from ipyagent.errors import AgentError
from ipyagent.journal.events import Ending, Usage, UsageReported
from ipyagent.journal.journal import TRANSCRIPT, read_events
from ipyagent.model.prices import at_most
from ipyagent.nofollow import reading, write_atomically
from ipyagent.trust import signature

if TYPE_CHECKING:
    from ipyagent.agent import Agent


# ---- The working directory of a worker process is the agents' folder while tasks run there, and its own again
# after.


def here() -> str:
    """This process, as no other on any machine is called."""
    return f"{platform.node()}:{os.getpid()}"


class WorkingDirectory:
    """The directory belongs to the process: the first task goes there, the last one back."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._tasks = 0
        self._before = ""

    @contextmanager
    def within(self, folder: str, caller: str) -> Iterator[None]:
        """Work in `folder`; in the caller's own process the directory is the user's and stays."""
        if caller == here():
            yield
            return
        with self._lock:
            if not self._tasks:
                self._before = os.getcwd()
                os.chdir(folder)
            self._tasks += 1
        try:
            yield
        finally:
            with self._lock:
                self._tasks -= 1
                if not self._tasks:
                    os.chdir(self._before)


PLACE = WorkingDirectory()
"""The process's own."""


# ---- What became of a task, and where finished ones are kept: a file each, named by the task's key. A file is
# written whole or not at all, so any number of workers write at once, and a killed run leaves nothing half. It
# counts only with the seal of the user who asked: what came with a folder is nobody's answer. A worker, which may
# be another machine, is given what seals its one task, never the user's own key.

DONE = "done"
"""The folder of finished tasks."""


class Outcome(msgspec.Struct, frozen=True):
    """`cost` in US dollars (None: no price known), `tokens` in and out together, `session` the transcript's
    folder, relative to the project where it lies in it; `tries` how often it was begun."""

    key: str
    status: Ending
    text: str = ""
    data: Any = None
    cost: float | None = 0.0
    tokens: int = 0
    seconds: float = 0.0
    session: str = ""
    tries: int = 0
    error: str = ""


def most_of(outcome: Outcome) -> float:
    """Dollars of an outcome for a limit: its cost, or where no price is known all its tokens at the dearest one."""
    return at_most(outcome.cost, Usage(output=outcome.tokens))


class _Sealed(msgspec.Struct, frozen=True):
    seal: str
    outcome: msgspec.Raw


def sealing(user: Path, key: str) -> str:
    """What seals the outcome of one task; "" where the user's folder cannot be written: then none is taken up."""
    try:
        return signature(user, "outcome", key.encode())
    except OSError:
        return ""


def keep(into: Path, outcome: Outcome, sealing: str) -> None:
    """Write a finished task down. Raises OSError."""
    raw = msgspec.json.encode(outcome)
    sealed = _Sealed(_seal(sealing, raw), msgspec.Raw(raw))
    write_atomically(into / DONE / f"{outcome.key}.json", msgspec.json.encode(sealed), base=into)


def kept(into: Path, key: str, sealing: str) -> Outcome | None:
    """What an earlier run of this user has written down; None when there is nothing that can be read."""
    try:
        with reading(into / DONE / f"{key}.json", base=into) as file:
            sealed = msgspec.json.decode(file.read(), type=_Sealed)
        found = msgspec.json.decode(sealed.outcome, type=Outcome)
    except (OSError, msgspec.DecodeError):
        return None
    made = _seal(sealing, bytes(sealed.outcome)).encode()
    genuine = bool(sealing) and hmac.compare_digest(made, sealed.seal.encode("utf-8", "replace"))
    return found if genuine and found.key == key else None


def _seal(sealing: str, raw: bytes) -> str:
    return hmac.new(sealing.encode(), raw, "sha256").hexdigest()


LOOK = 0.05
"""Seconds between two looks whether the whole was stopped."""


class MapTask(msgspec.Struct, frozen=True):
    """`settings` are names and values of `IPyAgent`; `folder`, `into` and `stop` absolute paths; `stop` is a
    file that exists once the whole was stopped; `data` names the variable to give back; `caller` is the process
    that asked. `run` and `tries` make every try different, because Dask remembers the answer to the same call.
    `cost` and `tokens` are those of the tries before; `sealing` is for its outcome, see `outcomes`."""

    key: str
    prompt: str
    settings: dict[str, Any]
    folder: str
    into: str
    stop: str
    data: str
    caller: str
    run: str
    tries: int
    cost: float | None = 0.0
    tokens: int = 0
    sealing: str = ""
    seconds: float = 0.0
    """After which it is stopped and ends as `limit` (0: never)."""


def run_task(task: MapTask, shell: Any = None) -> Outcome:
    """Do it, in a shell of its own (None) or in the one given; what went wrong stands in the outcome."""
    began = time.monotonic()
    if Path(task.stop).exists():
        return Outcome(task.key, "stopped", error="stopped before it started")
    try:
        with PLACE.within(task.folder, task.caller):
            outcome = _run(task, shell)
    except KeyboardInterrupt:
        outcome = Outcome(task.key, "stopped", error="interrupted")
    except AgentError as problem:
        outcome = Outcome(task.key, "failed", error=f"{type(problem).__name__}: {problem}")
    except Exception as problem:  # noqa: BLE001 - one task of 300 must not end the others, and its row names it
        outcome = Outcome(task.key, "failed", error=f"{type(problem).__name__}: {problem}")
    seconds = outcome.seconds or round(time.monotonic() - began, 3)
    cost = None if task.cost is None or outcome.cost is None else task.cost + outcome.cost
    tokens = task.tokens + outcome.tokens
    outcome = msgspec.structs.replace(outcome, tries=task.tries, seconds=seconds, cost=cost, tokens=tokens)
    if outcome.status == "finished":
        keep(Path(task.into), outcome, task.sealing)
    return outcome


def too_late(seconds: float) -> str:
    """What the outcome of a task says that took longer than it may."""
    return f"no answer within {seconds:g} s"


def _run(task: MapTask, given: Any) -> Outcome:
    from ipyagent.agent import Agent
    from ipyagent.config import IPyAgent
    from ipyagent.kernel.scope import make_shell
    from ipyagent.loop.redacting import values_without

    shell = make_shell() if given is None else given
    agent = Agent(shell=shell, settings=IPyAgent(**task.settings), folder=Path(task.folder))
    try:
        agent.sessions.into = Path(task.into)
        with _stopped_with(Path(task.stop), agent, task.seconds) as late:
            result = agent.run_sync(task.prompt)
        status, message = result.status, result.message if result.status != "finished" else ""
        if status == "stopped" and late.is_set():
            status, message = "limit", too_late(task.seconds)
        session = agent.session
        assert session is not None
        data, remark = plain_value(shell.user_ns, task.data) if status == "finished" else (None, "")
        return Outcome(
            task.key,
            "failed" if remark else status,
            text=result.text,
            data=values_without(data, session.redact),
            cost=result.cost,
            tokens=sum(event.paid.total for event in usages_in(session.journal.folder)),
            seconds=round(result.seconds, 3),
            session=agent.project.relative(session.journal.folder),
            error=remark or message,
        )
    finally:
        with suppress(*([] if given is None else [AgentError])):  # what does not close ends with its kernel
            agent.close()
        if given is None:
            shell.user_ns.clear()  # tables of a task end with it, whoever else still holds the shell


def usages_in(session: Path) -> list[UsageReported]:
    """What all model calls of a session used, those of its sub-agents and of background work too."""
    return [
        event
        for transcript in sorted(session.rglob(TRANSCRIPT))
        for event in read_events(transcript)
        if isinstance(event, UsageReported)
    ]


@contextmanager
def _stopped_with(stop: Path, agent: Agent, seconds: float) -> Iterator[threading.Event]:
    """Stop the agent when the file appears, the one sign that reaches every kind of worker, or when `seconds` (0: any
    number) have passed, which sets the event."""
    over, late = threading.Event(), threading.Event()
    until = time.monotonic() + seconds if seconds else float("inf")

    def look() -> None:
        while not over.wait(LOOK):
            if stop.exists():
                agent.stop()
            elif time.monotonic() > until:
                late.set()
                agent.stop()

    watcher = threading.Thread(target=look, name="ipyagent-stop", daemon=True)
    watcher.start()
    try:
        yield late
    finally:
        over.set()
        watcher.join()


# ------------------------------------------------------------------ values
# What a task gives back beside its words: a variable, as plain JSON values that any machine can read again.


MOST_CHARS = 10_000_000
"""Of one value as JSON."""


def plain_value(namespace: Mapping[str, Any], name: str) -> tuple[Any, str]:
    """The variable as dicts, lists, numbers and texts, and what is wrong ("" for nothing). A table becomes a
    list of dicts, an array nested lists, numbers of NumPy Python's own, NaN None."""
    if not name:
        return None, ""
    if name not in namespace:
        return None, f"no variable {name!r} was left; say in the prompt that the result goes into {name}"
    try:
        text = json.dumps(namespace[name], default=_plain, ensure_ascii=False)
    except (TypeError, ValueError, RecursionError, AttributeError) as problem:
        return None, f"{name} cannot be given back as plain values: {problem}"
    if len(text) > MOST_CHARS:
        return None, f"{name} is too large to give back ({len(text):,} characters of JSON); write it to a file"
    return json.loads(text, parse_constant=lambda _: None), ""  # NaN and the infinities are no JSON


def _plain(value: Any) -> Any:
    """What JSON does not know, in words that it knows."""
    columns = getattr(value, "columns", None)
    if columns is not None and hasattr(value, "to_dicts"):  # polars
        return value.to_dicts()
    if columns is not None and hasattr(value, "to_dict"):  # pandas
        return value.to_dict("records")
    for method in ("to_dict", "tolist", "isoformat"):
        if hasattr(value, method):
            return getattr(value, method)()
    if isinstance(value, (set, frozenset, tuple)):
        return list(value)
    if isinstance(value, bytes | bytearray):
        raise TypeError("bytes are no plain value")
    try:
        return msgspec.to_builtins(value)
    except TypeError:
        return str(value)
