"""Message batches as the API has them: taken in at once, judged one by one, told as lines when all is over."""

from __future__ import annotations

import threading
import time
from typing import Any

import anthropic
import pytest
from practice_api import client, request, user

from ipyagent.practice.replies import fault, text
from ipyagent.practice.server import PracticeServer


def ended(sdk: anthropic.Anthropic, name: str, within: float = 10) -> Any:
    until = time.monotonic() + within
    while (batch := sdk.messages.batches.retrieve(name)).processing_status != "ended":
        assert time.monotonic() < until
        time.sleep(0.02)
    return batch


def results(sdk: anthropic.Anthropic, name: str) -> dict[str, Any]:
    return {line.custom_id: line.result for line in sdk.messages.batches.results(name)}


def test_each_request_has_its_own_outcome_and_a_bad_one_spoils_no_other(server: PracticeServer) -> None:
    server.brain = lambda body: fault(529) if "busy" in str(body["messages"]) else text("well")
    sdk = client(server)
    bad = request(user("hi"), max_tokens=-1)
    asked = {"good": request(user("hi")), "bad": bad, "busy": request(user("busy")), "live": request(stream=True)}
    batch = sdk.messages.batches.create(
        requests=[{"custom_id": key, "params": params} for key, params in asked.items()]  # type: ignore[typeddict-item]
    )
    assert batch.request_counts.processing == 4
    assert batch.results_url is None
    batch = ended(sdk, batch.id)
    assert (batch.request_counts.succeeded, batch.request_counts.errored) == (1, 3)
    assert batch.request_counts.processing == 0
    found = results(sdk, batch.id)
    assert found.keys() == asked.keys()
    assert found["good"].message.content[0].text == "well"
    assert found["good"].message.usage.service_tier == "batch"
    kinds = {key: found[key].error.error.type for key in ("bad", "busy", "live")}
    assert kinds == {
        "bad": "invalid_request_error", "busy": "overloaded_error", "live": "invalid_request_error",
    }  # fmt: skip


def test_what_is_no_batch_is_refused_at_once(sdk: anthropic.Anthropic) -> None:
    requests: Any
    for requests, said in (
        ([], "at least 1 item"),
        ([{"custom_id": "a b", "params": {}}], "custom_id"),
        ([{"custom_id": "a" * 65, "params": {}}], "custom_id"),
        ([{"custom_id": "a", "params": {}}, {"custom_id": "a", "params": {}}], "unique"),
        ([{"custom_id": "a"}], "params"),
    ):
        with pytest.raises(anthropic.BadRequestError, match=said):
            sdk.messages.batches.create(requests=requests)
    with PracticeServer(without=("batches",)) as without, pytest.raises(anthropic.NotFoundError):
        client(without).messages.batches.list()


def test_a_batch_that_is_cancelled_ends_with_what_was_begun(server: PracticeServer) -> None:
    begun, go = threading.Event(), threading.Event()

    def brain(body: dict[str, Any]) -> Any:
        begun.set()
        go.wait(10)
        return text("done")

    server.brain = brain
    sdk = client(server)
    batch = sdk.messages.batches.create(
        requests=[{"custom_id": str(n), "params": request()} for n in range(3)]  # type: ignore[typeddict-item]
    )
    begun.wait(5)
    with pytest.raises(anthropic.AnthropicError, match="results_url"):
        list(sdk.messages.batches.results(batch.id))
    assert sdk.messages.batches.cancel(batch.id).processing_status == "canceling"
    go.set()
    assert ended(sdk, batch.id).request_counts.canceled == 2
    assert {key: one.type for key, one in results(sdk, batch.id).items()} == {
        "0": "succeeded", "1": "canceled", "2": "canceled",
    }  # fmt: skip


def test_after_a_day_what_is_left_expires() -> None:
    now = [0.0]

    def brain(body: dict[str, Any]) -> Any:
        now[0] += 13 * 3600
        return text("done")

    with PracticeServer(brain, clock=lambda: now[0]) as server:
        sdk = client(server)
        batch = sdk.messages.batches.create(
            requests=[{"custom_id": str(n), "params": request()} for n in range(3)]  # type: ignore[typeddict-item]
        )
        assert ended(sdk, batch.id).request_counts.expired == 1


def test_batches_are_listed_newest_first_in_pages_and_unknown_ones_are_404(server: PracticeServer) -> None:
    sdk = client(server)
    made = [
        sdk.messages.batches.create(requests=[{"custom_id": "a", "params": request()}]).id  # type: ignore[typeddict-item]
        for _ in range(5)
    ]
    assert [batch.id for batch in sdk.messages.batches.list(limit=2)] == made[::-1]
    with pytest.raises(anthropic.NotFoundError):
        sdk.messages.batches.retrieve("msgbatch_nobody")
    with pytest.raises(anthropic.BadRequestError, match="limit"):
        sdk.messages.batches.list(limit=0)
