"""A run: each question in a kernel, a session and a folder of its own; what was answered is never asked again.

The run's folder holds everything: `sessions` (transcripts), `done` (answers, sealed by this user), `results.json`
and `report.html`. Code of the model runs in mode auto: nobody is asked, and what would need a permission is refused.
Only the table that a question names is copied to where the model works; the right answers are not.
"""

from __future__ import annotations

import ast
import hashlib
import json
import os
import queue
import re
import shutil
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal

import msgspec

from ipyagent.assembly.settings import SettingsFiles, address_of, model_of
from ipyagent.config import IPyAgent, setting_names
from ipyagent.errors import AgentError, UsageError
from ipyagent.eval.questions import Question, grade
from ipyagent.fleet.mapping import agent_map
from ipyagent.fleet.task import MapTask, Outcome, keep, run_task, too_late, usages_in
from ipyagent.model.client_pool import LOCAL, LocalServer
from ipyagent.nofollow import private_folder, reading, write_atomically
from ipyagent.project import Project, user_folder

LOOK = 0.2
"""Seconds between two looks whether a kernel still lives."""
GRACE = 15.0
"""Seconds that a task has to end after its time is up; then its kernel is killed. Imports come before its time."""
CLOSING = 3.0
"""Seconds that tasks in hand have to end after `shutdown`."""
DIED = "the kernel died (killed, or out of memory)"
MISSING = "this needs Jupyter kernels: pip install 'ipyagent[demo]'"


class KernelExecutor(Executor):
    """`at_once` kernels at most. `fit` makes a task ready just before it begins (its folder, its settings), `ended` is
    told of each outcome that a kernel gave. `seconds`: after which a task is stopped and ends as `limit` (0: never).
    Raises AgentError without ipykernel."""

    def __init__(
        self,
        at_once: int,
        *,
        seconds: float = 0.0,
        fit: Callable[[MapTask], MapTask] = lambda task: task,
        ended: Callable[[MapTask, Outcome], None] = lambda task, outcome: None,
    ) -> None:
        if find_spec("ipykernel") is None or find_spec("jupyter_client") is None:
            raise AgentError(MISSING)
        self._max_workers = at_once
        self._seconds, self._fit, self._ended = seconds, fit, ended
        self._threads = ThreadPoolExecutor(at_once, "ipyagent-kernels")
        self._closing = threading.Event()

    def __repr__(self) -> str:
        return f"<KernelExecutor of {self._max_workers} kernels at once>"

    def submit(self, function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """The outcome of `run_task` in a kernel, to come; other functions are not for kernels."""
        assert function is run_task
        assert not kwargs
        return self._threads.submit(self._work, *args)

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """End all kernels; tasks in hand have a moment to come to an end."""
        self._closing.set()
        self._threads.shutdown(wait=wait, cancel_futures=cancel_futures)

    def _work(self, task: MapTask) -> Outcome:
        began = time.monotonic()
        with tempfile.TemporaryDirectory(prefix="ipyagent-kernel-", ignore_cleanup_errors=True) as folder:
            task = msgspec.structs.replace(self._fit(task), seconds=self._seconds)
            kernel = _Kernel(Path(folder))
            try:
                kernel.ask(task)
                outcome = self._wait(kernel, task)
            finally:
                kernel.close()
        if not outcome.seconds:
            outcome = msgspec.structs.replace(outcome, seconds=round(time.monotonic() - began, 3))
        self._ended(task, outcome)
        return outcome

    def _wait(self, kernel: _Kernel, task: MapTask) -> Outcome:
        until = time.monotonic() + self._seconds + GRACE if self._seconds else float("inf")
        while (outcome := kernel.outcome(LOOK)) is None:
            stopped = self._closing.is_set()
            if stopped:
                until = min(until, time.monotonic() + CLOSING)
            if not kernel.lives:
                return Outcome(task.key, "failed", tries=task.tries, cost=None, error=DIED)
            if time.monotonic() > until:  # what it has spent is not known
                status, error = ("stopped", "stopped") if stopped else ("limit", too_late(self._seconds))
                return Outcome(task.key, status, tries=task.tries, cost=None, error=error)  # type: ignore[arg-type]
        return outcome


class _Kernel:
    """One kernel, of this very Python."""

    def __init__(self, folder: Path) -> None:
        from jupyter_client.kernelspec import KernelSpec
        from jupyter_client.manager import KernelManager

        argv = [sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}", "--log-level=ERROR"]
        made: Any = KernelManager(connection_file=str(folder / "kernel.json"))
        made._kernel_spec = KernelSpec(argv=argv, display_name="ipyagent", language="python")
        self._manager = made
        # what it writes for itself stays in the folder; its working directory is nobody's, or a table that is named
        # like a module would be imported
        made.start_kernel(cwd=str(folder), env={**os.environ, "IPYTHONDIR": str(folder / "ipython")})
        self._client: Any = made.client()
        self._client.start_channels(iopub=False, stdin=False, hb=False, control=False)
        self._asked = ""

    def __repr__(self) -> str:
        return f"<_Kernel {'lives' if self.lives else 'ended'}>"

    @property
    def lives(self) -> bool:
        return bool(self._manager.is_alive())

    def ask(self, task: MapTask) -> None:
        """Begin the task. No name of ours comes into the kernel's namespace."""
        given = msgspec.json.encode(task).decode()
        told = f"__import__({__name__!r}, fromlist=['_']).in_kernel({given!r})"
        self._asked = self._client.execute(
            "", store_history=False, allow_stdin=False, user_expressions={"outcome": told}
        )

    def outcome(self, seconds: float) -> Outcome | None:
        """What became of it; None while it is not over. Raises AgentError for an answer that is none."""
        try:
            reply = self._client.get_shell_msg(timeout=seconds)
        except queue.Empty:
            return None
        if reply["parent_header"].get("msg_id") != self._asked:
            return None
        told = reply["content"].get("user_expressions", {}).get("outcome", {})
        if told.get("status") != "ok":
            raise AgentError(f"the kernel could not run the task, try again: {told.get('ename')}: {told.get('evalue')}")
        return msgspec.json.decode(ast.literal_eval(told["data"]["text/plain"]), type=Outcome)

    def close(self) -> None:
        """End it, whatever it does."""
        self._client.stop_channels()
        with suppress(OSError, RuntimeError):
            self._manager.shutdown_kernel(now=True)
        self._manager.cleanup_resources()


def in_kernel(given: str) -> str:
    """The outcome of a task, done with this kernel's own shell; both as JSON."""
    from IPython.core.getipython import get_ipython

    task = msgspec.json.decode(given, type=MapTask)
    return msgspec.json.encode(run_task(task, get_ipython())).decode()


RESULTS = "results.json"
SESSIONS, WORK = "sessions", "work"
FORMAT = 1
"""Goes up when results of before can no longer be compared."""
ALONE: Mapping[str, Any] = {
    "mode": "auto", "memory": False, "extraction": False, "dreaming": False, "messages": False, "mcp": False,
    "instructions": False, "project": "",
}  # fmt: skip
"""So that runs can be compared: nothing comes from other sessions or from servers of yours. `--set` may change it."""
MOST_TEXT = 20_000
"""Characters of an answer that results keep."""

Verdict = Literal["right", "wrong", "no answer", "late", "limit", "refused", "failed"]
VERDICTS: Mapping[str, str] = {
    "right": "right",
    "wrong": "wrong",
    "no answer": "not in the format asked for",
    "late": "too late",
    "limit": "stopped at a limit",
    "refused": "declined by the model",
    "failed": "did not finish",
}
"""How an answer can turn out, and how a report calls it."""


class Answer(msgspec.Struct, frozen=True):
    """One question, asked once. `cost` in US dollars (None: not known), token counts as the server reported them,
    `seconds` from the request to the end, `session` relative to the run's folder."""

    question: str
    digest: str
    repeat: int
    verdict: Verdict
    given: dict[str, str] = {}
    right: list[str] = []
    text: str = ""
    error: str = ""
    cost: float | None = 0.0
    input: int = 0
    cache_read: int = 0
    output: int = 0
    seconds: float = 0.0
    session: str = ""


class Results(msgspec.Struct, frozen=True):
    """What a run has come to: `settings` are those that are not the default."""

    name: str
    model: str
    questions: str
    settings: dict[str, Any]
    repeat: int
    answers: list[Answer]
    format: int = FORMAT


class EvalRun:
    """Questions for one model with one set of settings. `folder` holds the runs; `given` are settings that were asked
    for, by name. Raises SettingError."""

    def __init__(self, questions: Sequence[Question], source: str, folder: Path, given: Mapping[str, Any]) -> None:
        self.questions, self.source = questions, source
        chosen = IPyAgent(**{**ALONE, **given})
        SettingsFiles(chosen, Project(folder, user_folder())).apply()
        self.model = model_of(chosen)
        told = [FORMAT, source, self.model, _not_default(chosen), address_of(chosen)]
        made = hashlib.sha256(json.dumps(told, sort_keys=True, default=str).encode()).hexdigest()[:8]
        self.name = "-".join(_plain(part) for part in (Path(source).stem, Path(self.model).name)) + f"-{made}"
        self.folder = folder / self.name
        self._settings = {name: getattr(chosen, name) for name in {*_not_default(chosen), *ALONE, *given}}
        own = {**ALONE, "model": chosen.model}
        self.settings = {name: value for name, value in self._settings.items() if value != own.get(name, ...)}
        """Those that are not the default, or were asked for; without what every run has."""

    def __repr__(self) -> str:
        return f"<EvalRun {self.name} of {len(self.questions)} questions>"

    def ask(
        self, *, repeat: int = 1, jobs: int = 2, seconds: float = 600.0, max_cost: float = 0.0, again: bool = False
    ) -> Results:
        """Ask what has no answer yet, `jobs` at once, each question `repeat` times, each for at most `seconds`; write
        the results. What failed (server, kernel) is asked again by the next call. Raises AgentError; an interrupt
        keeps what was answered."""
        digests = {question.id: question.digest for question in self.questions}
        asked = [(question, number) for number in range(1, repeat + 1) for question in self.questions]
        items = [
            {"question": question.id, "digest": digests[question.id], "prompt": question.prompt}
            for question, _ in asked
        ]
        tables = {question.prompt: question for question in self.questions}
        project = Project(self.folder, user_folder())
        try:
            private_folder(self.folder)
            project.make()  # of its own, whatever lies around it
            private_folder(self.folder / WORK, base=self.folder)
        except OSError as problem:
            raise AgentError(
                f"cannot write {self.folder} ({problem.strerror or problem}): name another with --folder"
            ) from None
        with self._served() as served:

            def fit(task: MapTask) -> MapTask:
                """In a folder with a copy of the one table, on the model as it is served now."""
                place = self.folder / WORK / task.key
                shutil.rmtree(place, ignore_errors=True)
                private_folder(place, base=self.folder)
                question = tables[task.prompt]
                shutil.copyfile(question.table, place / question.file_name)
                return msgspec.structs.replace(task, folder=str(place), settings={**task.settings, **served})

            def ended(task: MapTask, outcome: Outcome) -> None:
                """Keep also answers that will not be better: those that came too late or met a limit, but for one of
                money that only this call had, and refusals."""
                shutil.rmtree(self.folder / WORK / task.key, ignore_errors=True)
                late = outcome.error == too_late(seconds)
                if outcome.status == "refused" or (outcome.status == "limit" and (late or not max_cost)):
                    keep(Path(task.into), outcome, task.sealing)

            executor = KernelExecutor(jobs, seconds=seconds, fit=fit, ended=ended)
            try:
                rows = agent_map(
                    items, executor, prompt=lambda item: str(item["prompt"]), settings=self._settings,
                    folder=self.folder, into=self.folder / SESSIONS, retries=0, at_once=jobs, max_cost=max_cost,
                    again=again,
                )  # fmt: skip
            finally:
                executor.shutdown(cancel_futures=True)
        answers = [
            _answer(question, digests[question.id], number, row, self.folder, seconds)
            for (question, number), row in zip(asked, rows, strict=True)
        ]
        results = Results(self.name, self.model, self.source, self.settings, repeat, answers)
        write_atomically(self.folder / RESULTS, msgspec.json.format(msgspec.json.encode(results)), base=self.folder)
        return results

    @contextmanager
    def _served(self) -> Iterator[dict[str, Any]]:
        """A local model is loaded once for all kernels; the settings by which they reach it."""
        if not self.model.startswith(LOCAL):
            yield {}
            return
        path = Path(self.model.removeprefix(LOCAL)).expanduser()
        server = LocalServer(path, window=int(self._settings.get("window", 0)))
        try:
            yield {
                "model": path.stem, "base_url": server.url, "window": server.window, "price": {path.stem: [0.0, 0.0]},
                "provider": "anthropic",
            }  # fmt: skip
        finally:
            server.stop()


def earlier(folder: Path, but: str) -> tuple[list[Results], list[str]]:
    """The results of other runs in a folder, by name, and the names of those that cannot be read."""
    found, unread = [], []
    places = sorted(folder.iterdir()) if folder.is_dir() else []
    for place in places:
        if place.name == but or not (place / RESULTS).is_file():
            continue
        try:
            with reading(place / RESULTS, base=place) as file:
                results = msgspec.json.decode(file.read(), type=Results)
        except (OSError, msgspec.DecodeError):
            unread.append(place.name)
            continue
        if results.format == FORMAT:
            found.append(msgspec.structs.replace(results, name=place.name))
    return found, unread


def parsed(texts: Sequence[str]) -> dict[str, Any]:
    """Settings given as NAME=VALUE, the value as `IPYAGENT_NAME` takes it. Raises UsageError, SettingError."""
    given: dict[str, Any] = {}
    for text in texts:
        name, sign, value = text.partition("=")
        if not sign or name not in setting_names():
            raise UsageError(f"--set {text!r}: write NAME=VALUE with the name of a setting")
        given[name] = getattr(IPyAgent({f"IPYAGENT_{name.upper()}": value}), name)
    return given


def _answer(question: Question, digest: str, repeat: int, row: dict[str, Any], folder: Path, seconds: float) -> Answer:
    graded = grade(question, row["text"]) if row["status"] == "finished" else None
    if graded is not None:
        answered = graded.given.keys() & question.answers.keys()
        verdict = "right" if graded.correct else "wrong" if answered else "no answer"
    else:
        verdict = "late" if row["error"] == too_late(seconds) else row["status"]
        verdict = "failed" if verdict == "stopped" else verdict
    usage = usages_in(folder / row["session"]) if row["session"] else []
    known = all(event.cost is not None for event in usage) and row["cost"] is not None
    return Answer(
        question.id, digest, repeat, verdict,  # type: ignore[arg-type] # endings are verdicts
        given=graded.given if graded else {},
        right=graded.right if graded else [],
        text=row["text"][-MOST_TEXT:],
        error=row["error"],
        cost=sum(event.cost or 0.0 for event in usage) if known else None,
        input=sum(event.paid.prompt for event in usage),
        cache_read=sum(event.paid.cache_read for event in usage),
        output=sum(event.paid.output for event in usage),
        seconds=row["seconds"],
        session=row["session"],
    )  # fmt: skip


def _not_default(settings: IPyAgent) -> dict[str, Any]:
    traits = settings.traits(config=True)
    values = {name: getattr(settings, name) for name in setting_names() if name in traits}
    return {name: value for name, value in values.items() if value != traits[name].default(settings)}


def _plain(text: str) -> str:
    return re.sub(r"[^\w.]+", "-", text).strip("-.")[:40] or "run"
