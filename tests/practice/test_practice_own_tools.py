"""The practice model calls a tool of the user's that a request names, with the arguments that the words give."""

from __future__ import annotations

from typing import Any

import pytest

from ipyagent.practice.model import answer
from ipyagent.practice.model.skills import arguments

SCHEMA = {
    "type": "object",
    "properties": {
        "amount": {"type": "number"}, "currency": {"type": "string"}, "exact": {"type": "boolean", "default": False},
    },
    "required": ["amount", "currency"],
}  # fmt: skip


@pytest.mark.parametrize(
    ("asked", "given"),
    [
        ("Use to_usd: amount 250, currency EUR.", {"amount": 250.0, "currency": "EUR"}),
        ("to_usd(amount=2.5, currency='GBP', exact=true)", {"amount": 2.5, "currency": "GBP", "exact": True}),
        ("Call to_usd with 40 and 'CHF'", {}),
        ("Use to_usd for the currency is EUR", {"currency": "EUR"}),
    ],
)
def test_arguments_are_those_given_by_name(asked: str, given: dict[str, Any]) -> None:
    assert arguments(asked, "to_usd", SCHEMA) == given


def body(asked: str, *more: dict[str, Any], name: str = "to_usd") -> dict[str, Any]:
    tools = [{"name": "python", "input_schema": {"type": "object"}}, {"name": name, "input_schema": SCHEMA}]
    return {"model": "practice", "tools": tools, "messages": [{"role": "user", "content": asked}, *more]}


def test_a_named_tool_is_called_and_its_answer_told() -> None:
    reply = answer(body("Use to_usd: amount 250, currency EUR."))
    (call,) = [block for block in reply.content if block["type"] == "tool_use"]
    assert (call["name"], call["input"]) == ("to_usd", {"amount": 250.0, "currency": "EUR"})
    result = {"type": "tool_result", "tool_use_id": call["id"], "content": "270.0"}
    said = answer(
        body(
            "Use to_usd: amount 250, currency EUR.",
            {"role": "assistant", "content": [call]},
            {"role": "user", "content": [result]},
        )
    )
    assert "`to_usd` answered: **270.0**" in str(said.content)


def test_what_is_missing_is_asked_for_and_nothing_is_called() -> None:
    reply = answer(body("Use to_usd: amount 250"))
    assert "`to_usd` needs `currency`" in str(reply.content)
    assert reply.stop_reason == "end_turn"


def test_a_tool_of_one_plain_word_is_not_meant_by_the_word_alone() -> None:
    reply = answer(body("what is the mean amount?", name="mean"))
    assert "mean" not in [block.get("name") for block in reply.content]
    reply = answer(body("use mean with amount 3 and currency 'EUR'", name="mean"))
    assert [block.get("name") for block in reply.content if block["type"] == "tool_use"] == ["mean"]
