"""Message batches: many requests handed in at once, answered in the server's own time, fetched as lines of JSON."""

from __future__ import annotations

import json
import re
import threading
import traceback
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from ipyagent.practice.replies import Fault, Reply
from ipyagent.practice.server.judge import Judge
from ipyagent.practice.server.models import Refused, need

MOST: Final = 100_000
LIFE: Final = timedelta(hours=24)
OUTCOMES: Final = ("succeeded", "errored", "canceled", "expired")
_ID: Final = re.compile(r"[a-zA-Z0-9_-]{1,64}")


@dataclass(slots=True)
class Batch:
    """One batch; `results` grow while it is worked on and are told when it has ended."""

    id: str
    requests: list[dict[str, Any]]
    betas: frozenset[str]
    created: datetime
    deadline: float
    canceled: datetime | None = None
    ended: datetime | None = None
    results: list[dict[str, Any]] = field(default_factory=list)

    def info(self, url: str) -> dict[str, Any]:
        """What the API says of it; the outcomes are counted once all is over."""
        kinds = [line["result"]["type"] for line in self.results] if self.ended else []
        status = "ended" if self.ended else "canceling" if self.canceled else "in_progress"
        return {
            "id": self.id,
            "type": "message_batch",
            "processing_status": status,
            "request_counts": {
                "processing": 0 if self.ended else len(self.requests),
                **{kind: kinds.count(kind) for kind in OUTCOMES},
            },
            "created_at": _written(self.created),
            "expires_at": _written(self.created + LIFE),
            "ended_at": _written(self.ended),
            "cancel_initiated_at": _written(self.canceled),
            "archived_at": None,
            "results_url": f"{url}/v1/messages/batches/{self.id}/results" if self.ended else None,
        }

    def lines(self) -> bytes:
        """The results, a line each, in the order in which they were made."""
        return "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in self.results).encode()


class Batches:
    """The batches of one server. `answer` gives a reply or a fault for a body; `clock` counts seconds of a batch's
    24 hours. Each batch is worked on by a thread of its own, one request after another."""

    def __init__(
        self, judge: Judge, answer: Callable[[dict[str, Any]], Reply | Fault], stopping: threading.Event
    ) -> None:
        self._judge, self._answer, self._stopping = judge, answer, stopping
        self._kept: dict[str, Batch] = {}

    def __repr__(self) -> str:
        return f"<Batches {len(self._kept)}, {sum(not batch.ended for batch in self._kept.values())} in progress>"

    def create(self, body: Mapping[str, Any], betas: frozenset[str]) -> Batch:
        """Take a batch in. What is wrong with single requests is told in their results."""
        requests: Any = body.get("requests")
        need(isinstance(requests, list) and requests, "requests: List should have at least 1 item after validation")
        need(len(requests) <= MOST, f"requests: List should have at most {MOST} items after validation")
        seen: set[str] = set()
        for number, request in enumerate(requests):
            name: Any = request.get("custom_id") if isinstance(request, dict) else None
            need(isinstance(name, str) and _ID.fullmatch(name),
                 f"requests.{number}.custom_id: String should match pattern '^{_ID.pattern}$'")  # fmt: skip
            need(name not in seen, f"requests.{number}.custom_id: `custom_id` must be unique; found {name!r} again")
            need(isinstance(request.get("params"), dict), f"requests.{number}.params: Field required")
            seen.add(name)
        ident = "msgbatch_" + uuid.uuid4().hex[:24]
        until = self._judge.clock() + LIFE.total_seconds()
        batch = self._kept[ident] = Batch(ident, requests, betas, datetime.now(UTC), until)
        return batch

    def begin(self, batch: Batch) -> None:
        """Work on it, on a thread of its own."""
        threading.Thread(target=self._work, args=(batch,), name=f"ipyagent-practice-{batch.id}", daemon=True).start()

    def get(self, name: str) -> Batch:
        """The batch of that id."""
        if name not in self._kept:
            raise Refused(f"Message batch {name} not found", 404)
        return self._kept[name]

    def results(self, name: str) -> bytes:
        """Lines of JSON; only of a batch that has ended."""
        batch = self.get(name)
        if not batch.ended:
            raise Refused(f"Message batch {name} has no available results: processing has not ended", 400)
        return batch.lines()

    def cancel(self, name: str) -> Batch:
        """What has not begun is not begun any more."""
        batch = self.get(name)
        if batch.ended is None and batch.canceled is None:
            batch.canceled = datetime.now(UTC)
        return batch

    def page(self, limit: int, after: str = "") -> list[Batch]:
        """The newest first, those older than `after`."""
        newest = list(self._kept.values())[::-1]
        begin = next((i + 1 for i, batch in enumerate(newest) if batch.id == after), 0)
        return newest[begin : begin + limit]

    # ------------------------------------------------------------------ on the batch's thread

    def _work(self, batch: Batch) -> None:
        for request in batch.requests:
            if self._stopping.is_set():
                return
            if batch.canceled:
                result: dict[str, Any] = {"type": "canceled"}
            elif self._judge.clock() >= batch.deadline:
                result = {"type": "expired"}
            else:
                result = self._result(request["params"], batch.betas)
            batch.results.append({"custom_id": request["custom_id"], "result": result})
        batch.ended = datetime.now(UTC)

    def _result(self, params: dict[str, Any], betas: frozenset[str]) -> dict[str, Any]:
        try:
            if params.get("stream"):
                raise Refused("stream: streaming is not supported in batches")
            accepted = self._judge.accept(params, betas)
            reply = self._answer(dict(accepted.heard))
        except Refused as refused:
            return {"type": "errored", "error": refused.body("")}
        except Exception:  # noqa: BLE001 - whatever a brain raises is this one request's failure
            return {"type": "errored", "error": Refused(traceback.format_exc(limit=1), 500).body("")}
        if isinstance(reply, Fault):
            return {"type": "errored", "error": Refused(reply.message, reply.status, reply.kind, reply.code).body("")}
        self._stopping.wait(reply.first_delay)
        self._judge.begin(accepted)
        message, _ = self._judge.finish(accepted, reply)
        message["usage"]["service_tier"] = "batch"
        return {"type": "succeeded", "message": message}


def _written(time: datetime | None) -> str | None:
    return time.isoformat().replace("+00:00", "Z") if time is not None else None
