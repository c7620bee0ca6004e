"""`agent_map`: the same job over many inputs. A task's failure is a row, no exception; what is done stays done."""

from __future__ import annotations

import contextlib
import hashlib
import html
import json
import os
import re
import sys
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from ipyagent.config import IPyAgent
from ipyagent.errors import AgentError, UsageError
from ipyagent.fleet.scheduler import TaskScheduler
from ipyagent.fleet.task import MapTask, Outcome, here, kept, most_of, sealing
from ipyagent.journal.events import Mode
from ipyagent.kernel.dispatcher import interruption
from ipyagent.nofollow import names, private_folder, reading, remove, write_atomically
from ipyagent.trust import is_signed, signature

if TYPE_CHECKING:
    from ipyagent.fleet.batch import BatchItem, BatchRunner

THREADS = 8
FOLDER = "map"
"""Of the sessions of tasks, within the project's sessions: they are in no list of yours."""
QUIET = {"extraction": False, "dreaming": False}
"""The same job many times teaches nothing more than once; `settings` may say otherwise."""
STOP = "stop"
"""What is signed of a sign to stop: its name."""
OLD = 3_600.0
"""Seconds after which the sign to stop of an earlier run is taken away."""


INTERRUPTED = "agent_map was interrupted; finished tasks are kept, and the same call continues from there"


def agent_map(
    prompts_or_items: Iterable[Any],
    executor: Executor | None = None,
    *,
    prompt: Prompt | None = None,
    data: str = "",
    model: str = "",
    mode: Mode | None = None,
    max_turns: int = 0,
    max_cost: float = 0.0,
    settings: IPyAgent | Mapping[str, Any] | None = None,
    folder: Path | str | None = None,
    into: Path | str | None = None,
    retries: int = 1,
    at_once: int = 0,
    again: bool = False,
    batch: bool = False,
    progress: bool | None = None,
) -> list[dict[str, Any]]:
    """Run the same job for many inputs, each with an agent of its own; rows in the order of the inputs.

    Args:
        prompts_or_items: prompts, or items for `prompt`.
        executor: any executor of `concurrent.futures`, Dask (`client.get_executor()`) or ipyparallel
            (`client.executor()`), whose workers share this folder; None runs 8 threads.
        prompt: a text with `{item}` (for a dict also its keys), or a function from an item to a text.
        data: name of a variable that each task leaves; its value comes back in the row as plain values.
        model, mode, max_turns, settings: as for one agent; those of this kernel by default. Nobody can be asked, so
            mode `ask` denies. `settings` is a dict of names and values, or an `IPyAgent`.
        max_cost: US dollars for all tasks together; 0 is no limit. The first task runs alone; another starts only while
            the rest of the money is enough for it and the running ones, each counted at the most that one has cost.
        folder: where the agents work.
        into: folder of transcripts and results; `.ipyagent/sessions/map` by default.
        retries: how often a failed task is tried again.
        at_once: maximum number of tasks that run at the same time; 0 is what the executor allows.
        again: repeat finished tasks too.
        batch: send each prompt as one question through the provider's message batches: half the price, minutes to 24
            hours, without tools, memory or kernel. What was submitted continues at the server when this call is
            interrupted or the kernel ends, and the next call fetches it.
        progress: show progress; None shows it if a person is there to see it.

    Returns:
        A list of dicts: `input`, `status` ("finished", "failed", "stopped", "limit" or "refused"), `text`, `data` (None
        with `batch`), `cost` in US dollars (None: no price is known), `tokens`, `seconds` (with `batch` those of the
        batch), `session` (the folder of the transcript), `tries` (0: finished in an earlier run) and `error`.

    An interrupt returns within 300 ms, stops all tasks and keeps what is done; the next call continues from there. In
    threads, code within one call into a C library ends with that call.

    Raises UsageError for wrong arguments, SettingError, AgentError if nothing can be written, and with `batch` also
    ModelError if the server cannot be reached.
    """
    from ipyagent import agent as _agent  # noqa: F401 - before threads begin: each would load it at the same time
    from ipyagent.assembly.settings import model_of
    from ipyagent.kernel.dispatcher import RUN_LOCK
    from ipyagent.project import Project, find_root, user_folder

    check(executor, retries, at_once, max_cost)
    of_agents = {"executor": executor, "data": data, "mode": mode, "max_turns": max_turns, "at_once": at_once}
    if batch and (wrong := [name for name, value in of_agents.items() if value]):
        raise UsageError(
            f"batch=True asks the model alone, without tools: leave out {', '.join(wrong)}, or leave out batch=True"
        )
    shell = _shell()
    work = Path(folder or Path.cwd()).resolve()
    said = _settings(shell, settings, model=model, mode=mode, max_turns=max_turns)
    project = Project(find_root(work), user_folder(), work)
    place = Path(into).resolve() if into is not None else project.sessions / FOLDER
    if not place.is_relative_to(project.root):
        said["allowed_folders"] = [*said.get("allowed_folders", ()), str(place)]
    about = {"model": model_of(IPyAgent(**said)), "settings": said, "data": data} | ({"batch": True} if batch else {})
    asked = questions(prompts_or_items, prompt, work, about)
    project.make()
    try:
        private_folder(place)
    except OSError as problem:
        raise AgentError(f"cannot write ({problem.strerror or problem}): make {place} writable") from None
    run = uuid.uuid4().hex[:8]
    stop = place / f"stop-{run}"
    _take_away_old(place, project.user)

    whole = MapRun(asked, max_cost, progress_for(shell, progress))
    tasks = []
    for question in asked:
        sealed = sealing(project.user, question.key)
        done = None if again else kept(place, question.key, sealed)
        if done is not None:
            whole.take(msgspec.structs.replace(done, tries=0))
        else:
            places = str(work), str(place), str(stop)
            tasks.append(
                MapTask(question.key, question.prompt, said, *places, data, here(), run, tries=1, sealing=sealed)
            )
    if batch:
        from ipyagent.fleet.batch import BatchItem, BatchRunner

        clerk = BatchRunner(project, place, IPyAgent(**said), retries=retries, max_cost=max_cost, again=again)
        return _in_batches(clerk, [BatchItem(task.key, task.prompt) for task in tasks], whole)
    used = executor if executor is not None else ThreadPoolExecutor(at_once or THREADS, "ipyagent-map")
    scheduler = TaskScheduler(
        used,
        at_once=at_once,
        retries=retries,
        done=whole.take,
        tried=whole.pay,
        say=whole.progress.say,
        barred=whole.barred,
        ready=whole.ready,
    )
    try:
        with RUN_LOCK.lent():
            scheduler.work(tasks, lambda: _say_stop(stop, project.user, whole.progress.say))
    except KeyboardInterrupt:  # in one line: where it met us, and the executor's own frames, help nobody
        raise interruption(INTERRUPTED) from None
    finally:
        whole.close()
        if executor is None:
            used.shutdown(wait=False, cancel_futures=True)
    return whole.rows()


def _in_batches(clerk: BatchRunner, jobs: list[BatchItem], whole: MapRun) -> list[dict[str, Any]]:
    try:
        clerk.work(jobs, whole.take, whole.note)
    except KeyboardInterrupt:
        if clerk.on_its_way:
            whole.progress.say("the batch continues at the server: the same call again fetches its answers")
        raise interruption(INTERRUPTED) from None
    finally:
        whole.close()
    return whole.rows()


class MapRun:
    """All tasks together: what has ended, what it cost, what a person sees of it."""

    def __init__(self, asked: list[MapItem], max_cost: float, progress: MapProgress) -> None:
        self.progress = progress
        self._asked = asked
        self._max_cost = max_cost
        self._outcomes: dict[str, Outcome] = {}
        self._spent = 0.0
        self._paid: dict[str, float] = {}
        """Dollars for each task, all its tries together."""
        self._held: dict[str, float] = {}
        """Dollars set aside for each task in hand."""
        self._note = ""
        self._began = time.monotonic()
        progress.show(self._line(), 0.0)

    def take(self, outcome: Outcome) -> None:
        """A task has ended; one of an earlier run costs nothing now."""
        self._outcomes[outcome.key] = outcome
        if outcome.tries:
            self.pay(outcome)
        self.progress.show(self._line(), len(self._outcomes) / max(1, len(self._asked)))

    def note(self, words: str) -> None:
        """How it stands elsewhere, in a few words."""
        self._note = words
        self.progress.show(self._line(), len(self._outcomes) / max(1, len(self._asked)))

    def pay(self, outcome: Outcome) -> None:
        """A try of a task has ended."""
        self._held.pop(outcome.key, None)
        cost = most_of(outcome)
        self._spent += cost - self._paid.get(outcome.key, 0.0)
        if cost or outcome.status == "finished":  # one that failed before it was paid for tells no price
            self._paid[outcome.key] = cost

    def barred(self) -> str:
        """Why no task may begin any more."""
        if not self._max_cost:
            return ""
        said = f"not started: ${self._spent:.4f} of max_cost ${self._max_cost:.4f} is spent"
        if self._spent >= self._max_cost:
            return said
        if not self._held and self._spent + self._dearest > self._max_cost:
            return f"{said}, what is left is less than the most expensive task has cost (${self._dearest:.4f})"
        return ""

    def ready(self, task: MapTask) -> MapTask | None:
        """With no more to spend than is left when each task in hand costs what the dearest has cost so far; None:
        that has to be seen first."""
        if not self._max_cost:
            return task
        left = self._max_cost - self._spent - sum(self._held.values())
        needed = self._dearest if self._paid else left  # before one has ended, what a task costs is not known
        if self._held and (needed > left or not self._paid):
            return None
        self._held[task.key] = needed
        own = float(task.settings.get("max_cost") or left)
        return msgspec.structs.replace(task, settings={**task.settings, "max_cost": min(own, left)})

    @property
    def _dearest(self) -> float:
        return max(self._paid.values(), default=0.0)

    def close(self) -> None:
        """Say how it ended."""
        self._note = ""
        self.progress.show(self._line(), 1.0, final=True)

    def rows(self) -> list[dict[str, Any]]:
        """A row for each input, in order."""
        rows = []
        for question in self._asked:
            row = msgspec.structs.asdict(self._outcomes[question.key])
            del row["key"]
            rows.append({"input": question.input, **row})
        return rows

    def _line(self) -> str:
        ended = self._outcomes.values()
        earlier = sum(not one.tries and one.status == "finished" for one in ended)
        bad = sum(one.status != "finished" for one in ended)
        parts = [f"{len(ended)} of {len(self._asked)} tasks"]
        parts += [f"{earlier} done before"] if earlier else []
        parts += [f"{bad} not finished"] if bad else []
        parts += [f"${self._spent:.4f}"] if self._spent else []
        parts += [self._note] if self._note else []
        return " · ".join([*parts, f"{time.monotonic() - self._began:.0f} s"])


def check(executor: Any, retries: int, at_once: int, max_cost: float) -> None:
    """Raise UsageError for what cannot be."""
    if executor is not None and not isinstance(executor, Executor):
        hint = "Dask: client.get_executor(); ipyparallel: client.executor()"
        raise UsageError(f"executor is one of concurrent.futures, not {type(executor).__name__} ({hint})")
    for name, value in (("retries", retries), ("at_once", at_once), ("max_cost", max_cost)):
        if value < 0:
            raise UsageError(f"{name} must be 0 or more, not {value}")


def _shell() -> Any:
    """The running IPython shell; None in a script."""
    if "IPython" not in sys.modules:
        return None
    from IPython.core.getipython import get_ipython

    return get_ipython()


def _settings(
    shell: Any, given: IPyAgent | Mapping[str, Any] | None, *, model: str, mode: Mode | None, max_turns: int
) -> dict[str, Any]:
    """Names and values that every task is to have: what was said in this process, as plain values."""
    if given is None:
        given = next((one for one in getattr(shell, "configurables", ()) if isinstance(one, IPyAgent)), None)
    said = _said(given) if isinstance(given, IPyAgent) else dict(given or {})
    own = {"model": model, "mode": mode, "max_turns": max_turns}
    made = {**QUIET, **said, **{name: value for name, value in own.items() if value}}
    return _said(IPyAgent(environ={}, **made))  # raises for names and values that cannot be


def _said(settings: IPyAgent) -> dict[str, Any]:
    def plain(value: Any) -> Any:
        return list(value) if isinstance(value, list | tuple) else value

    own = settings.traits(config=True)  # `parent` is a trait too: the shell, which goes nowhere
    return {name: plain(getattr(settings, name)) for name in sorted(settings.said) if name in own}


def _say_stop(stop: Path, user: Path, say: Callable[[str], object]) -> None:
    """Make the sign to stop, which says by whom it is made; where that fails, `say` it: an interrupt goes on."""
    try:
        signed = signature(user, STOP, stop.name.encode())
    except OSError:
        signed = ""  # then it stays where it is
    try:
        write_atomically(stop, signed.encode(), base=stop.parent)
    except OSError as problem:
        say(f"could not tell the running tasks to stop: {stop}: {problem.strerror or problem}")


def _take_away_old(place: Path, user: Path) -> None:
    """Signs of this user's earlier runs, and nothing else."""
    for name in names(place, base=place):
        if not name.startswith("stop-"):
            continue
        with contextlib.suppress(OSError), reading(place / name, base=place) as file:
            old = time.time() - os.fstat(file.fileno()).st_mtime > OLD
            if old and is_signed(user, STOP, name.encode(), file.read(200).decode("ascii", "replace")):
                remove(place / name, base=place)


# ------------------------------------------------------------------ progress
# How far it is: a bar in a notebook that somebody watches, a line in a terminal, nothing without a person.


STEP = 0.2
"""Seconds between two pictures."""


class MapProgress:
    """What `agent_map` tells while it works; nothing where nobody watches: the rows say all."""

    _shown = 0.0

    def show(self, line: str, share: float, *, final: bool = False) -> None:
        """So far: a line, and the share that has ended (0 to 1)."""
        now = time.monotonic()
        if final or now - self._shown >= STEP:
            self._shown = now
            self._draw(line, share, final=final)

    def _draw(self, line: str, share: float, *, final: bool) -> None:
        """Have it seen."""

    def say(self, line: str) -> None:
        """Something that a person should read."""


class TerminalLine(MapProgress):
    """One line of stderr, written again and again."""

    _width = 0

    def _draw(self, line: str, share: float, *, final: bool) -> None:
        sys.stderr.write("\r" + line.ljust(self._width) + ("\n" if final else ""))
        sys.stderr.flush()
        self._width = len(line)

    def say(self, line: str) -> None:
        sys.stderr.write("\r" + line.ljust(self._width) + "\n")


class NotebookBar(MapProgress):
    """One display of the cell, updated; what it says last stays in the saved notebook."""

    def __init__(self) -> None:
        self._handle: Any = None
        self._said: list[str] = []

    def _draw(self, line: str, share: float, *, final: bool) -> None:
        from IPython.display import display

        lines = [line, *self._said]
        bar = f'<progress value="{share:.4f}" max="1" style="width: 16em; vertical-align: middle"></progress> '
        shown = ("" if final else bar) + "<br>".join(map(html.escape, lines))
        bundle = {"text/plain": "\n".join(lines), "text/html": f'<div role="status">{shown}</div>'}
        if self._handle is None:
            self._handle = display(bundle, raw=True, display_id=True)  # type: ignore[no-untyped-call]
        else:
            self._handle.update(bundle, raw=True)

    def say(self, line: str) -> None:
        self._said.append(line)


def progress_for(shell: Any, wanted: bool | None) -> MapProgress:
    """What fits where this runs; `wanted` False: nothing, True: at least a line."""
    if wanted is False:
        return MapProgress()
    if getattr(shell, "kernel", None) is not None:
        from ipyagent.kernel.frontend import describe_frontend

        return NotebookBar() if wanted or describe_frontend(shell).person else MapProgress()
    return TerminalLine() if wanted or sys.stderr.isatty() else MapProgress()


# ------------------------------------------------------------------ asking
# From items to prompts and keys: the same question about the same thing has the same key, in any run.


FORMAT = 1
"""Goes up when the same key would no longer mean the same."""

_OBJECT = re.compile(r"^<.* at 0x[0-9a-fA-F]+>$|^<_io\.")
"""What Python calls an object that has no words of its own; its address is another one in the next run."""

Prompt = str | Callable[[Any], str]


class MapItem(msgspec.Struct, frozen=True):
    """`input` is what the row shows: the item where it is plain, else its text."""

    input: Any
    prompt: str
    key: str


def questions(items: Iterable[Any], prompt: Prompt | None, folder: Path, about: Mapping[str, Any]) -> list[MapItem]:
    """One for each item, in order. `about` is what else the answer depends on. A file that has changed (size
    or time) is another question, and so is the same one asked twice. Raises UsageError."""
    if isinstance(items, str | bytes | Path):
        raise UsageError("agent_map takes a list: of prompts, or of items with prompt='… {item} …'")
    seen: Counter[str] = Counter()
    found: list[MapItem] = []
    for item in items:
        text = _prompt(item, prompt, folder)
        facts = [FORMAT, text, _plain(item), _stamp(item, folder), dict(about)]
        once = hashlib.sha256(json.dumps(facts, sort_keys=True, default=str).encode()).hexdigest()[:24]
        seen[once] += 1
        found.append(MapItem(_plain(item), text, once if seen[once] == 1 else f"{once}-{seen[once]}"))
    return found


def _prompt(item: Any, prompt: Prompt | None, folder: Path) -> str:
    if callable(prompt):
        made = prompt(item)
        if not isinstance(made, str):
            raise UsageError(f"the prompt function gave {type(made).__name__} for {item!r}: let it return text")
        return made
    if prompt is None:
        if not isinstance(item, str):
            raise UsageError(f"{item!r} is not a prompt; say what to do with it: prompt='Profile {{item}}'")
        return item
    fields = {str(name): value for name, value in item.items()} if isinstance(item, Mapping) else {}
    filled = {"item": item, **fields}
    if not any("{" + name + "}" in prompt for name in filled):
        raise UsageError(
            f"the prompt must name one of {', '.join('{' + name + '}' for name in filled)}: {prompt[:80]!r}"
        )
    # not str.format: other braces in a prompt are text, and so are those in a value
    names = re.compile("|".join(re.escape("{" + name + "}") for name in filled))
    return names.sub(lambda found: _named(filled[found[0][1:-1]], folder), prompt)


def _named(value: Any, folder: Path) -> str:
    if isinstance(value, Path):
        path = folder / value
        at_home = folder == Path.cwd() and path.is_relative_to(folder)  # else only the whole path leads there
        return path.relative_to(folder).as_posix() if at_home else path.as_posix()
    text = str(value)
    if _OBJECT.search(text):
        raise UsageError(f"{text[:80]} cannot be given to a model: use text, a number, a path or a dict of them")
    return text


def _plain(item: Any) -> Any:
    if isinstance(item, Mapping):
        return {str(name): _plain(value) for name, value in item.items()}
    if isinstance(item, Sequence) and not isinstance(item, str | bytes):
        return [_plain(value) for value in item]
    if item is None or isinstance(item, str | bool | int | float):
        return item
    return item.as_posix() if isinstance(item, Path) else str(item)


def _stamp(item: Any, folder: Path) -> Any:
    if not isinstance(item, Path):
        return None
    try:
        stat = (folder / item).stat()
    except OSError:
        return None
    return [stat.st_size, stat.st_mtime_ns]
