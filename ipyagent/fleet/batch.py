"""Jobs without tools through the server's message batches: half the price, the server's own pace, one call or many.

The main thread waits and shows; all else happens on a loop of its own. Outcomes come back one by one.
"""

from __future__ import annotations

import asyncio
import functools
import queue
import time
import uuid
from collections import deque
from collections.abc import Callable, Collection, Iterable
from importlib.resources import files
from pathlib import Path
from typing import Any

import msgspec

from ipyagent.assembly.requests import Options
from ipyagent.assembly.settings import endpoint_of, limits_of, model_of
from ipyagent.config import IPyAgent
from ipyagent.errors import AgentError, Busy, ModelError, Unreachable
from ipyagent.fleet.task import Outcome, keep, kept, most_of, sealing
from ipyagent.journal.events import (
    Ending,
    ModelChosen,
    SessionStarted,
    SystemPromptFrozen,
    TurnEnded,
    Usage,
    UsageReported,
    UserMessage,
)
from ipyagent.journal.journal import Journal, new_session_id
from ipyagent.journal.protocols import ModelInfo, ModelReply, Request
from ipyagent.journal.tokens import estimate_text
from ipyagent.kernel.thread import AgentLoop
from ipyagent.locks import Lock, LockHeld
from ipyagent.loop.budget import add_spent, spent_today
from ipyagent.loop.redacting import entering
from ipyagent.model.batches import (
    HALF,
    KEPT,
    MOST_BYTES,
    MOST_REQUESTS,
    BatchAnswer,
    BatchStatus,
    MessageBatches,
    cost,
    size_of,
)
from ipyagent.model.client_pool import Connections
from ipyagent.model.prices import at_most, cost_of
from ipyagent.model.wire import CUTTING
from ipyagent.nofollow import checked, names, reading, remove, write_atomically
from ipyagent.project import Project
from ipyagent.redaction import Redactor
from ipyagent.trust import is_signed, signature
from ipyagent.version import __version__

LOOK = 0.1
"""Seconds that one wait of the main thread takes at most: Ctrl-C is seen in between."""
FIRST_WAIT, LONGEST_WAIT = 0.1, 30.0
"""Seconds between two looks at the server; each wait is half as long again as the one before."""
PATIENCE = 600.0
"""Seconds for which a server that does not answer is asked again; its batch goes on meanwhile."""
MARGIN = 1.3
"""Of our estimate of a prompt's tokens, when a bound on the price is wanted."""


class BatchItem(msgspec.Struct, frozen=True):
    """One question; `tries` counts how often it was sent."""

    key: str
    prompt: str
    tries: int = 0


class BatchRunner:
    """Hands jobs in, waits, and gives an outcome for each. `max_cost`: US dollars that this call may spend (0: no
    limit); `again`: what is finished is asked for all the same; `most`: jobs in one batch."""

    def __init__(
        self,
        project: Project,
        into: Path,
        settings: IPyAgent,
        *,
        retries: int,
        max_cost: float,
        again: bool,
        most: int = MOST_REQUESTS,
    ) -> None:
        self._project, self._into, self._settings = project, into, settings
        self._redact = Redactor(lambda: settings.redact_secrets)
        self._retries, self._max_cost, self._again, self._batch = retries, max_cost, again, most
        self._name = model_of(settings)
        self._shelf = BatchFolder(into, project.user)
        self._way: list[SubmittedBatch] = []
        """On their way, with the server's id: those that have a job of this call in them."""
        self._waiting: deque[BatchItem] = deque()
        self._wanted: set[str] = set()
        self._ended: queue.SimpleQueue[Outcome] = queue.SimpleQueue()
        self._server, self._own = "", False
        """Where they go; whether it is a server of this process, which takes its batches along when it ends."""
        self._max_tokens = 0
        self._info = ModelInfo(model=self._name, window=0, max_output=0)
        self._spent = 0.0
        self.line = ""
        """What a person may read of how it stands."""

    def __repr__(self) -> str:
        return f"<BatchRunner {len(self._waiting)} wait, {len(self._way)} batches on their way>"

    @property
    def on_its_way(self) -> int:
        """Jobs that the server has now."""
        return sum(len(batch.prompts) for batch in self._way)

    def work(self, jobs: Iterable[BatchItem], done: Callable[[Outcome], None], show: Callable[[str], None]) -> None:
        """Until each has an outcome. An interrupt goes through within a moment; batches that were handed in go on
        at the server, and the next call with the same `into` fetches them."""
        self._waiting.extend(msgspec.structs.replace(job, prompt=self._redact(job.prompt)) for job in jobs)
        self._wanted = {job.key for job in self._waiting}
        if not self._wanted:
            return
        thread = AgentLoop("ipyagent-batches")
        future = thread.start(self._all)
        try:
            while True:
                over = future.done()
                try:
                    done(self._ended.get(timeout=0 if over else LOOK))
                except queue.Empty:
                    if over:
                        future.result()
                        return
                    show(self.line)
        finally:
            thread.close(0.2)

    # ------------------------------------------------------------------ on the loop

    async def _all(self) -> None:
        try:
            path = checked(self._into / "batches.lock", base=self._into)
        except OSError as problem:
            raise AgentError(f"{problem.filename}: {problem.strerror}") from None
        connections, lock = Connections(), Lock(path, seconds=0, long=True)
        try:
            await self._alone(lock)
            model = connections.get(self._name, endpoint_of(self._settings))
            self._own = connections.server(self._name) is not None
            self._server = self._name if self._own else model.shown
            batches = MessageBatches(model, self._name)
            self._info = await model.info(self._name)
            self._max_tokens = limits_of(self._settings, Options(), self._info).max_tokens
            await self._find_again(batches)
            while self._waiting or self._way:
                await self._hand_in(batches)
                await self._fetch(batches)
        finally:
            lock.release()
            await connections.close()

    async def _alone(self, lock: Lock) -> None:
        """Two calls on one folder would hand the same jobs in twice. What the other one has finished is done."""
        waited = False
        while True:
            try:
                lock.acquire()
                break
            except LockHeld:
                waited, self.line = True, "another call works on these batches"
                await asyncio.sleep(LOOK)
        if waited and not self._again:
            found = {job.key: self._kept(job.key) for job in self._waiting}
            self._waiting = deque(job for job in self._waiting if found[job.key] is None)
            for known in filter(None, found.values()):
                self._end(msgspec.structs.replace(known, tries=0))

    async def _find_again(self, batches: MessageBatches) -> None:
        """Batches of an earlier call with jobs of this one: they are on their way already. Others are left to the call
        that asks for them."""
        known = self._shelf.all()
        for batch in known:
            if (batch.server, batch.model) != (self._server, self._name) or self._wanted.isdisjoint(batch.prompts):
                continue
            if not batch.id:
                found = await self._recognised(batches, batch, {one.id for one in (*known, *self._way)})
                if not found:
                    self._shelf.take_away(batch)
                    continue
                batch = self._shelf.put(msgspec.structs.replace(batch, id=found))
            self._way.append(batch)
        under_way = {key for batch in self._way for key in batch.prompts}
        self._waiting = deque(job for job in self._waiting if job.key not in under_way)

    async def _recognised(self, batches: MessageBatches, batch: SubmittedBatch, known: set[str]) -> str:
        """The server's id of a batch that it may have taken; "" when it has not. Others with the same key for the
        server hand batches in too: ours is the one whose results name our keys, and before a batch has ended the
        server does not tell what is in it."""
        left, wait = candidates(batch, await batches.newest(), known), FIRST_WAIT
        while left:
            for one in list(left):
                status = await batches.look(one.id)
                if status is None:
                    left.remove(one)
                elif status.ended:
                    if {answer.key for answer in await batches.answers(one.id)} == set(batch.prompts):
                        return one.id
                    left.remove(one)
            if left:
                count = f"{len(batch.prompts):,} question{'s' * (len(batch.prompts) != 1)}"
                self.line = f"waiting for {left[0].id} to end: it may be the batch of {count} that got no answer"
                await asyncio.sleep(wait)
                wait = min(LONGEST_WAIT, wait * 1.5)
        return ""

    async def _hand_in(self, batches: MessageBatches) -> None:
        """Send what waits, as far as the money reaches; what is under way is taken at the most that it can cost."""
        while self._waiting:
            left, bound = self._money(), 0.0
            if left is not None:
                bound = sum(self._most(prompt) for batch in self._way for prompt in batch.prompts.values())
            picked: dict[str, dict[str, Any]] = {}
            jobs: list[BatchItem] = []
            size = 0
            while self._waiting and len(jobs) < self._batch:
                job = self._waiting[0]
                if jobs and job.tries != jobs[0].tries:
                    break
                params = await batches.params(self._request(job.prompt))
                size += size_of(params)
                bound += self._most(job.prompt) if left is not None else 0.0
                if (jobs and size > MOST_BYTES) or (left is not None and bound > left):
                    break
                picked[job.key] = params
                jobs.append(self._waiting.popleft())
            if not jobs:
                if not self._way:  # nothing whose real price would leave room
                    self._end_waiting(left or 0.0)
                return
            await self._send(batches, jobs, picked)

    async def _send(self, batches: MessageBatches, jobs: list[BatchItem], params: dict[str, dict[str, Any]]) -> None:
        prompts = {job.key: job.prompt for job in jobs}
        made = self._shelf.put(new(self._server, self._name, prompts, jobs[0].tries + 1))
        self.line = f"submitting {len(jobs):,}"
        try:
            status = await batches.send(params)
        except (Unreachable, Busy):
            raise  # it may have been taken all the same: the next call looks
        except AgentError:
            self._shelf.take_away(made)
            raise
        self._way.append(self._shelf.put(msgspec.structs.replace(made, id=status.id)))

    async def _fetch(self, batches: MessageBatches) -> None:
        """Wait for the next batch that ends, and take its answers in."""
        wait, began, silent = FIRST_WAIT, time.monotonic(), 0.0
        while self._way:
            try:
                for batch in self._way:
                    status = await batches.look(batch.id)
                    if status is None:
                        self._lost(batch)
                        return
                    if status.ended:
                        self._settle(batch, await batches.answers(batch.id), time.time() - status.created)
                        return
            except (Unreachable, Busy) as problem:
                silent = silent or time.monotonic()
                if time.monotonic() - silent > PATIENCE:
                    raise
                self.line = f"{problem}"
            else:
                silent = 0.0
                since = time.monotonic() - began
                more = f" and {len(self._way) - 1} more" if len(self._way) > 1 else ""
                self.line = f"{self.on_its_way:,} at the server in {self._way[0].id}{more} for {since:.0f} s"
            await asyncio.sleep(wait)
            wait = min(LONGEST_WAIT, wait * 1.5)

    def _request(self, prompt: str) -> Request:
        return Request(
            model=self._name,
            system=[{"type": "text", "text": system()}],
            tools=[],
            messages=[{"role": "user", "content": [{"type": "text", "text": prompt}]}],
            max_tokens=self._max_tokens,
            effort=self._settings.effort,
            thinking=self._settings.thinking,
        )

    # ------------------------------------------------------------------ money

    def _money(self) -> float | None:
        """Dollars that may be spent now; None: no limit."""
        limits = [self._max_cost - self._spent] if self._max_cost else []
        if self._settings.max_cost_per_day:
            limits.append(self._settings.max_cost_per_day - spent_today(self._project.spend))
        return min(limits) if limits else None

    def _most(self, prompt: str) -> float:
        """What a job can cost at most; where no price is known, at the dearest known one."""
        tokens = int(MARGIN * (estimate_text(system()) + estimate_text(prompt)))
        usage = Usage(input=tokens, output=self._max_tokens)
        return HALF * at_most(cost_of(self._name, usage, server=self._info.server), usage)

    def _end_waiting(self, left: float) -> None:
        for job in self._waiting:
            most = f"it could cost ${self._most(job.prompt):.4f} and ${max(0.0, left):.4f} is left"
            if cost_of(self._name, server=self._info.server) is None:
                most += f" (no price is known for {self._name}: the most expensive known price counts)"
            error = f"not sent: {most}; raise max_cost, or lower IPyAgent.max_output"
            self._end(Outcome(job.key, "limit", tries=job.tries, error=error))
        self._waiting.clear()

    # ------------------------------------------------------------------ answers

    def _settle(self, batch: SubmittedBatch, answers: list[BatchAnswer], seconds: float) -> None:
        """Answers to disk, then to whoever waits; the batch is forgotten when all are."""
        spent, missing = 0.0, dict(batch.prompts)
        for answer in answers:
            if answer.key not in missing:
                continue
            prompt = missing.pop(answer.key)
            if answer.key not in self._wanted and self._kept(answer.key) is not None:
                continue  # taken in before an earlier call ended
            outcome = outcome_of(answer, prompt, self._info, self._project, self._into, self._redact)
            outcome = msgspec.structs.replace(outcome, tries=batch.tries, seconds=round(seconds, 3))
            spent += most_of(outcome)
            self._judge(prompt, outcome, again=answer.again or outcome.error == EMPTY)
        for key, prompt in missing.items():
            error = f"the server's results of {batch.id} do not name it"
            self._judge(prompt, Outcome(key, "failed", tries=batch.tries, error=error), again=True)
        self._spent += spent
        add_spent(self._project.spend, spent)
        self._forget(batch)

    def _judge(self, prompt: str, outcome: Outcome, *, again: bool) -> None:
        wanted = outcome.key in self._wanted
        if outcome.status == "finished":
            keep(self._into, outcome, sealing(self._project.user, outcome.key))
        elif again and wanted and outcome.tries <= self._retries:
            self._waiting.append(BatchItem(outcome.key, prompt, outcome.tries))
            return
        self._end(outcome)

    def _kept(self, key: str) -> Outcome | None:
        return kept(self._into, key, sealing(self._project.user, key))

    def _lost(self, batch: SubmittedBatch) -> None:
        """The server does not know the batch. It was paid for, so that it is not given up without being told to."""
        if not self._own and not self._again and time.time() - batch.at < KEPT:
            sent = time.strftime("%Y-%m-%d %H:%M", time.localtime(batch.at))
            count = len(batch.prompts)
            raise ModelError(
                f"{self._server} does not know {batch.id} ({count:,} question{'s' * (count != 1)}, submitted {sent}): "
                "set the key that it was submitted with, or ask again with again=True",
                kind="batches",
            )
        self._forget(batch)
        for key, prompt in batch.prompts.items():
            if key in self._wanted:
                self._waiting.append(BatchItem(key, prompt, batch.tries - 1))

    def _forget(self, batch: SubmittedBatch) -> None:
        self._way.remove(batch)
        self._shelf.take_away(batch)

    def _end(self, outcome: Outcome) -> None:
        if outcome.key in self._wanted:
            self._wanted.discard(outcome.key)
            self._ended.put(outcome)


# ------------------------------------------------------------------ answers
# What a batch gave back for one question: its outcome, and a transcript like that of any other session.


EMPTY = "the answer was empty: describe the expected answer in the prompt"


@functools.cache
def system() -> str:
    """What stands before every question of a batch."""
    return (files("ipyagent.fleet") / "batch.md").read_text("utf-8")


def outcome_of(
    answer: BatchAnswer, prompt: str, model: ModelInfo, project: Project, into: Path, redact: Redactor
) -> Outcome:
    """The outcome, with a transcript in `into` where the model has replied; `tries` and `seconds` are for the caller
    to say. Raises JournalError where nothing can be written."""
    reply = answer.reply
    if reply is None:
        return Outcome(answer.key, "stopped" if answer.outcome == "canceled" else "failed", error=answer.problem)
    said = entering(reply.said, redact)
    text = "\n".join(block["text"] for block in said.blocks if block["type"] == "text")
    status, error = _ending(reply, text)
    dollars = cost(model, reply)
    # many are written in one second: the key tells them apart
    started = SessionStarted(session=f"{new_session_id()}-{answer.key}", version=__version__)
    journal = Journal.create(into, started)
    try:
        journal.append(ModelChosen(model=model.model))
        journal.append(SystemPromptFrozen(system=({"type": "text", "text": system()},), tools=()))
        journal.append(UserMessage(text=prompt, blocks=({"type": "text", "text": prompt},)))
        journal.append(said)
        if reply.usage is not None:
            journal.append(UsageReported(usage=reply.usage, cost=dollars))
        journal.append(TurnEnded(status=status, message=error))
    finally:
        journal.close()
    return Outcome(
        answer.key,
        status,
        text=text,
        cost=dollars,
        tokens=reply.usage.total if reply.usage is not None else 0,
        session=project.relative(journal.folder),
        error=error,
    )


def _ending(reply: ModelReply, text: str) -> tuple[Ending, str]:
    """How a reply ended as an outcome, and why where it is not finished."""
    stop = reply.said.stop_reason
    if stop == "refusal":
        return "refused", reply.details or "the model refused: change the prompt, or choose another model"
    if stop in CUTTING:
        return "limit", "the answer was cut off at the output limit: raise IPyAgent.max_output"
    if not text.strip():
        return "failed", EMPTY
    return "finished", ""


# ------------------------------------------------------------------ handed in
# Batches on their way, each in a file: written before it is sent and taken away once its answers are on disk.
# Whatever ends this kernel in between, the next call finds the batch again and pays for nothing twice.


FOLDER = "batches"
SKEW = 120.0
"""Seconds by which the server's clock may be off."""


class SubmittedBatch(msgspec.Struct, frozen=True):
    """`server` is its address without secrets; `prompts` by key; `at`: seconds since 1970 when it was sent; `id` of the
    server, "" until it has answered; `tries`: how often each of these has been sent, this time included."""

    name: str
    server: str
    model: str
    prompts: dict[str, str]
    tries: int
    at: float
    id: str = ""


class _Signed(msgspec.Struct, frozen=True):
    signature: str
    batch: msgspec.Raw


class BatchFolder:
    """The files of one folder."""

    def __init__(self, into: Path, user: Path) -> None:
        """`user`: the user's own folder, which knows what this user has handed in."""
        self._into, self._user = into, user
        self._folder = into / FOLDER

    def __repr__(self) -> str:
        return f"<BatchFolder {len(self.all())} batches on their way>"

    def all(self) -> list[SubmittedBatch]:
        """Those whose answers were not fetched yet, oldest first; what cannot be read, or was
        not written by this user, is left where it is."""
        found = []
        for name in names(self._folder, base=self._into):
            if not name.endswith(".json"):
                continue
            try:
                with reading(self._folder / name, base=self._into) as file:
                    signed = msgspec.json.decode(file.read(), type=_Signed)
                if is_signed(self._user, FOLDER, bytes(signed.batch), signed.signature):
                    found.append(msgspec.json.decode(signed.batch, type=SubmittedBatch))
            except (OSError, msgspec.DecodeError):
                continue
        return sorted(found, key=lambda one: one.at)

    def put(self, batch: SubmittedBatch) -> SubmittedBatch:
        """Write it down, also in place of what was known before. Raises AgentError."""
        raw = msgspec.json.encode(batch)
        try:
            signed = _Signed(signature(self._user, FOLDER, raw), msgspec.Raw(raw))
            write_atomically(self._folder / f"{batch.name}.json", msgspec.json.encode(signed), base=self._into)
        except OSError as problem:
            told = (
                f"cannot record a batch before it is submitted ({problem.strerror or problem}), so none was: make "
                f"{self._folder} writable"
            )
            raise AgentError(told) from None
        return batch

    def take_away(self, batch: SubmittedBatch) -> None:
        """Its answers are on disk."""
        remove(self._folder / f"{batch.name}.json", base=self._into)


def new(server: str, model: str, prompts: dict[str, str], tries: int) -> SubmittedBatch:
    """A batch that is about to be sent."""
    return SubmittedBatch(uuid.uuid4().hex[:12], server, model, prompts, tries, time.time())


def candidates(batch: SubmittedBatch, listed: Iterable[BatchStatus], known: Collection[str]) -> list[BatchStatus]:
    """The server's batches that this one may have become when nobody saw the answer, oldest first: of its size, made no
    earlier, not `known` as another one. Only the keys in a batch's results tell whose it is."""
    fits = [
        one
        for one in listed
        if one.id not in known and one.size == len(batch.prompts) and one.created >= batch.at - SKEW
    ]
    return sorted(fits, key=lambda one: one.created)
