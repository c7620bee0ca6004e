"""The practice model and sub-agents: it starts them for several files at once, follows a fork's directive, hands
back when told, and writes progress lines."""

from __future__ import annotations

from typing import Any

import pytest

from ipyagent.practice.model import answer

AGENT = {
    "name": "agent",
    "description": "d",
    "input_schema": {
        "type": "object",
        "properties": {"task": {"type": "string"}, "prompt": {"type": "string"}, "type": {"type": "string"}},
        "required": ["task", "prompt"],
    },
}
PYTHON = {"name": "python", "description": "d", "input_schema": {"type": "object", "properties": {}}}
FORK = "<fork-task>\nYou are now a fork. hand_back(name=value)\n\nThe work:\n{}\n</fork-task>"


def body(*texts: str, tools: tuple[dict[str, Any], ...] = (AGENT, PYTHON), system: str = "") -> dict[str, Any]:
    blocks = [{"type": "text", "text": text} for text in texts]
    return {"messages": [{"role": "user", "content": blocks}], "tools": list(tools), "system": system}


def made(reply: Any) -> list[tuple[str, dict[str, Any]]]:
    return [(block["name"], block["input"]) for block in reply.content if block["type"] == "tool_use"]


@pytest.mark.parametrize(
    ("asked", "prompts", "kind"),
    [
        (
            "Profile a.csv, b.csv and c.csv at once.",
            ["Profile a.csv.", "Profile b.csv.", "Profile c.csv."],
            "general",
        ),
        ("Load data/a.csv and data/b.csv with a fork each", ["Load data/a.csv", "Load data/b.csv"], "fork"),
        ("Only look: show a.csv and b.csv in parallel", ["Only look: show a.csv", "Only look: show b.csv"], "explore"),
    ],
)
def test_several_files_at_once_are_one_sub_agent_each(asked: str, prompts: list[str], kind: str) -> None:
    found = made(answer(body(asked)))
    assert [name for name, _ in found] == ["agent"] * len(prompts)
    assert [given["prompt"] for _, given in found] == prompts
    assert {given["type"] for _, given in found} == {kind}


def test_several_files_without_a_word_of_it_are_not() -> None:
    assert [name for name, _ in made(answer(body("Load a.csv and b.csv")))] == ["python"]
    assert made(answer(body("Load a.csv and b.csv at once", tools=(PYTHON,))))[0][0] == "python"


def test_a_forks_directive_is_the_request() -> None:
    ((name, given),) = made(answer(body("Load everything", FORK.format("Load x.csv as x"))))
    assert name == "python"
    assert "x.csv" in given["code"]
    assert "x =" in given["code"]


def test_it_hands_back_only_where_that_can_be_done() -> None:
    asked = "Load x.csv as x and hand it back as prices"
    first = answer(body(FORK.format(asked)))
    ((_, given),) = made(first)
    assert "hand_back" not in given["code"]
    call = next(block for block in first.content if block["type"] == "tool_use")
    result = {"type": "tool_result", "tool_use_id": call["id"], "content": "(3, 2)\n['a', 'b']"}
    second = body(FORK.format(asked))
    second["messages"] += [{"role": "assistant", "content": [call]}, {"role": "user", "content": [result]}]
    assert made(answer(second)) == [("python", {"code": "hand_back(prices=x)"})]


def test_a_progress_line_has_three_to_five_words() -> None:
    said = "<doing>\nTask: look at orders\nNow: running read_file\nread_file(path=data/orders.csv)\n</doing>"
    (block,) = answer(body(said)).content
    assert block["text"] == "Working on orders.csv now"
    (block,) = answer(body("<doing>\nTask: look at orders\nNow: waiting\n</doing>")).content
    assert block["text"] == "Working on orders now"


def test_a_sub_agent_whose_step_failed_is_said_to_have_failed_with_the_reason() -> None:
    asked = "Profile a.csv and b.csv at once."
    told = ["That failed: `FileNotFoundError: a.csv`.\n[sub-agent x, 1 call, 1.0 s]", "**3** rows."]
    first = answer(body(asked))
    made_calls = [block for block in first.content if block["type"] == "tool_use"]
    results = [{"type": "tool_result", "tool_use_id": call["id"], "content": each}
               for call, each in zip(made_calls, told, strict=True)]  # fmt: skip
    later = body(asked)
    later["messages"] += [{"role": "assistant", "content": made_calls}, {"role": "user", "content": results}]
    said = str(answer(later).content[-1]["text"])
    assert "2 sub-agents have answered, 1 failed:" in said
    assert "failed: That failed: `FileNotFoundError: a.csv`." in said
    assert "failed: **3**" not in said


def test_a_sub_agent_that_is_asked_to_end_ends() -> None:
    end = '<message from="parent" kind="shutdown_request">\nPlease end.\n</message>'
    assert [block["type"] for block in answer(body("Load a.csv", end)).content] == ["text"]
