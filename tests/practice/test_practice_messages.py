"""The practice model writes to another agent when a request names whom it is for, and reads out what came."""

from __future__ import annotations

from typing import Any

import pytest

from ipyagent.practice.model import answer

SEND = {
    "name": "send_message",
    "description": "d",
    "input_schema": {
        "type": "object",
        "properties": {"to": {"type": "string"}, "message": {"type": "string"}},
        "required": ["to", "message"],
    },
}


def body(*texts: str, tools: tuple[dict[str, Any], ...] = (SEND,)) -> dict[str, Any]:
    blocks = [{"type": "text", "text": text} for text in texts]
    return {"messages": [{"role": "user", "content": blocks}], "tools": list(tools), "system": ""}


@pytest.mark.parametrize(
    ("asked", "to", "said"),
    [
        ("Send a message to lab.ipynb: the table is cleaned.", "lab.ipynb", "the table is cleaned."),
        ("Please tell count-rows: look at 2024 only", "count-rows", "look at 2024 only"),
        ("tell the sub-agent count-rows that it may use df", "count-rows", "it may use df"),
        ("Tell all sub-agents: stop at 100 rows", "*", "stop at 100 rows"),
        ("给 lab.ipynb 发消息：表已清洗", "lab.ipynb", "表已清洗"),
        ("请告诉 count-rows：只看 2024 年", "count-rows", "只看 2024 年"),
        ("给所有子代理发一条消息：到一百行为止", "*", "到一百行为止"),
    ],
)
def test_a_named_agent_is_written_to(asked: str, to: str, said: str) -> None:
    ((name, given),) = [(b["name"], b["input"]) for b in answer(body(asked)).content if b["type"] == "tool_use"]
    assert (name, given) == ("send_message", {"to": to, "message": said})


@pytest.mark.parametrize(
    "asked", ["ask count-rows to shut down", "Shut down the sub-agent count-rows", "关闭子代理 count-rows"]
)
def test_a_sub_agent_is_asked_to_shut_down(asked: str) -> None:
    ((given),) = [b["input"] for b in answer(body(asked)).content if b["type"] == "tool_use"]
    assert (given["to"], given["kind"]) == ("count-rows", "shutdown_request")


@pytest.mark.parametrize(
    "asked", ["tell me: what is 2 + 2", "Tell me about penguins", "关闭图表", "Write to a.csv: 1,2"]
)
def test_other_requests_send_nothing(asked: str) -> None:
    assert not [b for b in answer(body(asked)).content if b["type"] == "tool_use" and b["name"] == "send_message"]
    assert not [b for b in answer(body("tell lab: hello", tools=())).content if b["type"] == "tool_use"]


def test_what_came_is_read_out_and_a_request_to_end_is_followed() -> None:
    came = '<message from="session 2026 (lab.ipynb)">\n344 rows\n</message>'
    (said,) = [b["text"] for b in answer(body("Any new messages?", came)).content if b["type"] == "text"]
    assert "lab.ipynb" in said
    assert "344 rows" in said
    end = '<message from="parent" kind="shutdown_request">\nPlease end.\n</message>'
    reply = answer(body("Load a.csv", end))
    assert [b["type"] for b in reply.content] == ["text"]
