"""A run: each question in a kernel, a session and a folder of its own; what was answered is never asked again.

The run's folder holds everything: `sessions` (transcripts), `done` (answers, sealed by this user), `results.json`
and `report.html`. Code of the model runs in mode auto: nobody is asked, and what would need a permission is refused.
Only the table that a question names is copied to where the model works; the right answers are not.
"""

from __future__ import annotations

import hashlib
import json
import re
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

import msgspec

from ipyagent.assembly.settings_files import SettingsFiles
from ipyagent.assembly.wiring import address_of, model_of
from ipyagent.config import IPyAgent, setting_names
from ipyagent.errors import AgentError, UsageError
from ipyagent.eval.questions import Question, grade
from ipyagent.fleet.kernels import KernelExecutor
from ipyagent.fleet.mapping import agent_map
from ipyagent.fleet.task import MapTask, Outcome, keep, too_late
from ipyagent.journal.events import UsageReported
from ipyagent.journal.journal import TRANSCRIPT, read_events
from ipyagent.model.connect import LOCAL, LocalServer
from ipyagent.nofollow import private_folder, reading, write_atomically
from ipyagent.project import Project, user_folder

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
                """Keep also answers that will not be better: those that came too late, and refusals."""
                shutil.rmtree(self.folder / WORK / task.key, ignore_errors=True)
                if outcome.status == "refused" or (outcome.status == "limit" and _lasting(outcome, seconds, max_cost)):
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
    usage = _usage(folder / row["session"]) if row["session"] else []
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


def _usage(session: Path) -> list[UsageReported]:
    """What all model calls of a session used, those of its sub-agents and of background work too."""
    return [
        event
        for transcript in sorted(session.rglob(TRANSCRIPT))
        for event in read_events(transcript)
        if isinstance(event, UsageReported)
    ]


def _lasting(outcome: Outcome, seconds: float, max_cost: float) -> bool:
    """Whether a limit would be met again: not one of money that only this call had."""
    return outcome.error == too_late(seconds) or not max_cost


def _not_default(settings: IPyAgent) -> dict[str, Any]:
    traits = settings.traits(config=True)
    values = {name: getattr(settings, name) for name in setting_names() if name in traits}
    return {name: value for name, value in values.items() if value != traits[name].default(settings)}


def _plain(text: str) -> str:
    return re.sub(r"[^\w.]+", "-", text).strip("-.")[:40] or "run"
