"""Message batches: many requests handed in at once, at half the price, answered in the server's own time.

Figures from the provider's guide to batch processing, November 2026: at most 100,000 requests and 256 MB in a batch,
24 hours until what is left expires, results kept for 29 days.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import datetime
from typing import Any, Literal

import msgspec

from ipyagent.errors import ModelError, UnknownModel
from ipyagent.journal.protocols import ModelInfo, ModelReply, Request
from ipyagent.model.client import AnthropicModel
from ipyagent.model.prices import cost_of
from ipyagent.model.wire import StreamParser, body_of, events_of

MOST_REQUESTS = 10_000
MOST_BYTES = 100_000_000
"""Of one batch of ours: well below what is allowed, so that one is not waited for longer than need be."""
KEPT = 29 * 86_400.0
"""Seconds for which the server keeps results."""
HALF = 0.5
"""Of the price of the same message outside a batch."""
FINAL = ("invalid_request_error", "authentication_error", "permission_error", "not_found_error", "request_too_large")
"""Errors that the same request would meet again."""


class BatchStatus(msgspec.Struct, frozen=True):
    """`size`: its requests; `created`: seconds since 1970."""

    id: str
    ended: bool
    size: int
    created: float


class BatchAnswer(msgspec.Struct, frozen=True):
    """What became of a request: `reply` where there is one, else `problem` in one line."""

    key: str
    outcome: Literal["succeeded", "errored", "canceled", "expired"]
    reply: ModelReply | None = None
    problem: str = ""
    again: bool = False


class MessageBatches:
    """The batches of one model behind one address."""

    def __init__(self, model: AnthropicModel, name: str) -> None:
        self._model, self._name = model, name

    def __repr__(self) -> str:
        return f"<MessageBatches of {self._name} at {self._model!r}>"

    async def params(self, request: Request) -> dict[str, Any]:
        """A request as it stands in a batch."""
        info = await self._model.info(request.model)
        lacking, betas = self._model.lacking(request.model), ""
        limit = min(request.max_tokens, info.max_output)
        body = body_of(request, info, lacking=lacking, thinking=self._model.endpoint.thinking, limit=limit, betas=betas)
        return {name: value for name, value in body.items() if name not in ("stream", "extra_body", "extra_headers")}

    async def send(self, params: Mapping[str, dict[str, Any]]) -> BatchStatus:
        """Hand requests in by their keys (letters, digits, `-` and `_`, 64 at most). Raises ModelError; after
        Unreachable and Busy the server may have taken them."""
        requests = [{"custom_id": key, "params": one} for key, one in params.items()]
        try:
            made = await self._model.call(
                self._name,
                lambda client: client.messages.batches.create(requests=requests),  # type: ignore[arg-type] # plain dicts
                twice=False,
            )
        except (UnknownModel, AttributeError):
            raise ModelError(
                "this server takes no message batches: call agent_map without batch=True", kind="batches"
            ) from None
        return _status(made)

    async def look(self, batch: str) -> BatchStatus | None:
        """How it stands; None when the server does not know it (any more)."""
        try:
            return _status(await self._model.call(self._name, lambda client: client.messages.batches.retrieve(batch)))
        except UnknownModel:
            return None

    async def newest(self) -> list[BatchStatus]:
        """Up to 100 batches, the newest first."""
        return [_status(one) for one in await self._model.call(self._name, _page)]

    async def answers(self, batch: str) -> list[BatchAnswer]:
        """All answers of a batch that has ended, in no order."""
        return [_answer(line) for line in await self._model.call(self._name, lambda client: _lines(client, batch))]


def cost(model: ModelInfo, reply: ModelReply) -> float | None:
    """Dollars of a reply out of a batch; None when no price is known."""
    whole = cost_of(model.model, reply.usage, server=model.server) if reply.usage is not None else 0.0
    return None if whole is None else HALF * whole


def size_of(params: Mapping[str, Any]) -> int:
    """Bytes of a request on the wire."""
    return len(json.dumps(params, ensure_ascii=False).encode()) + 100


async def _page(client: Any) -> list[Any]:
    return list((await client.messages.batches.list(limit=100)).data)


async def _lines(client: Any, batch: str) -> list[dict[str, Any]]:
    decoder = await client.messages.batches.results(batch)
    return [line.to_dict(mode="python", warnings=False) async for line in decoder]


def _status(made: Any) -> BatchStatus:
    counts = made.request_counts
    size = counts.processing + counts.succeeded + counts.errored + counts.canceled + counts.expired
    created = made.created_at
    at = created.timestamp() if isinstance(created, datetime) else 0.0
    return BatchStatus(made.id, made.processing_status == "ended", size, at)


def _answer(line: dict[str, Any]) -> BatchAnswer:
    key, result = str(line.get("custom_id") or ""), line.get("result") or {}
    match result.get("type"):
        case "succeeded":
            return BatchAnswer(key, "succeeded", _whole(result.get("message") or {}))
        case "canceled":
            return BatchAnswer(key, "canceled", problem="the batch was cancelled at the server")
        case "expired":
            return BatchAnswer(key, "expired", problem="the server did not come to it within 24 hours", again=True)
        case _:
            error = (result.get("error") or {}).get("error") or {}
            kind, words = str(error.get("type") or "error"), " ".join(str(error.get("message") or "").split())
            return BatchAnswer(key, "errored", problem=f"{kind}: {words[:500]}", again=kind not in FINAL)


def _whole(message: dict[str, Any]) -> ModelReply:
    """A message that came in one piece, read as if it had been streamed."""
    reading = StreamParser()
    content = message.get("content")
    for event in events_of({**message, "content": content if isinstance(content, list) else []}):
        for _ in reading.take(event):
            pass
    return reading.reply()
