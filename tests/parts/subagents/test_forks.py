"""Forks: what siblings send is equal to the byte up to the directive and is read from the cache."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Any

import pytest
from family_rig import FamilyRig, newest, result_texts
from test_children import asks, order, through

from ipyagent.journal.events import AssistantMessage, ChildEnded, ChildStarted, UsageReported
from ipyagent.journal.journal import CHILDREN
from ipyagent.parts.subagents.subagent import MARK, PLACEHOLDER
from ipyagent.practice.replies import Fault, Reply, calls, text, tool

Make = Callable[..., FamilyRig]
FORKS = 30


def forks(count: int) -> list[tuple[str, dict[str, Any]]]:
    return [order(f"part {n}", f"work on part {n:03d}", type="fork") for n in range(count)]


def long_read(rig: FamilyRig, tokens: int) -> None:
    """A conversation of about so many tokens."""
    words = " ".join(f"line {n} of the long table" for n in range(tokens // 7))
    rig.shell.user_ns["told"] = words
    rig.rules["read the long"] = lambda body, made: (
        tool("python", {"code": "print(told[:20])"}) if made == 0 else text("read")
    )
    rig.turn(f"read the long text\n{words}")


@pytest.mark.slow
def test_siblings_are_equal_to_the_byte_and_read_from_the_cache(make_rig: Make) -> None:
    rig = make_rig(subagents_at_once=20)
    long_read(rig, 50_000)
    rig.rules["do all parts"] = asks(*forks(FORKS))
    rig.rules["work on part"] = lambda body, made: text(newest(body)[0].rpartition("work on ")[2][:8])
    began = time.monotonic()
    result = rig.turn("do all parts")
    seconds = time.monotonic() - began
    assert (result.status, result.text) == ("finished", "all done")
    found = result_texts(rig.bodies("do all parts")[-1])[1:]
    assert [said[:8] for said, _ in found] == [f"part {n:03d}" for n in range(FORKS)]
    parent = rig.of(UsageReported)[-2].usage  # the request whose reply asked for the forks
    assert parent.prompt > 50_000
    read = []
    for started in rig.of(ChildStarted):
        own = [e for e in rig.child_events(started.child) if isinstance(e, UsageReported)]
        read.append(own[-1].usage.cache_read)
    share = min(read) / parent.prompt
    print(f"{FORKS} forks of {parent.prompt:,} tokens in {seconds:.1f} s: {share:.2%} read, at least")
    assert len(read) == FORKS
    assert share >= 0.99
    whole = [json.dumps(body) for body in rig.bodies("work on part")]  # as parsed, keys in the order that was sent
    assert len(whole) == FORKS
    heads = {body[: body.rindex(MARK)] for body in whole}
    assert len(heads) == 1, "the requests differ before the directive"
    assert len(heads.pop()) > 150_000


def test_a_fork_sees_all_but_its_siblings_results(rig: FamilyRig) -> None:
    both = [("python", {"code": "40 + 2"}), order("x", " "), *forks(2), ("python", {"code": "1"})]
    rig.rules["do both"] = asks(*both)
    rig.rules["work on part"] = lambda body, made: text("done")
    rig.turn("do both")
    for body in rig.bodies("work on part"):
        *_, said, answered = body["messages"]
        assert [block["type"] for block in said["content"]] == ["tool_use"] * 5
        shown = [block["content"] for block in answered["content"][:-1]]
        assert "42" in json.dumps(shown[0])
        assert [one if isinstance(one, str) else one[0]["text"] for one in shown[2:]] == [PLACEHOLDER] * 3
        assert answered["content"][-1]["text"].startswith(MARK)
        assert [tool["name"] for tool in body["tools"]] == [tool["name"] for tool in rig.bodies("do both")[0]["tools"]]
    heads = {json.dumps(body)[: json.dumps(body).rindex(MARK)] for body in rig.bodies("work on part")}
    assert len(heads) == 1, "one refused order beside them changes no sibling"


def test_forks_called_through_call_tool_see_what_ran_before_them_in_the_message(rig: FamilyRig) -> None:
    steps = through(("plan", {"steps": [{"step": "look"}]}))
    rig.rules["do both"] = asks(*map(through, forks(2)), steps, *map(through, forks(1)))
    rig.rules["work on part"] = lambda body, made: text("done")
    rig.turn("do both")
    seen = []
    for body in rig.bodies("work on part"):
        shown = [block["content"] for block in body["messages"][-1]["content"][:-1]]
        seen.append([one if isinstance(one, str) else one[0]["text"] for one in shown])
    *first, last = seen
    assert first == [[PLACEHOLDER] * 4] * 2
    assert "0 of 1 steps done" in last[2]
    assert PLACEHOLDER not in last[:3]
    assert last[3] == PLACEHOLDER


def test_a_fork_that_forks_is_refused_without_a_model_call_also_when_it_is_taken_up_again(rig: FamilyRig) -> None:
    rig.rules["do one"] = asks(*forks(1))

    def again(body: dict[str, Any], made: int) -> Reply | Fault:
        return calls(forks(2)) if made == 0 else text("by myself")

    rig.rules["work on part"] = again
    rig.turn("do one")
    refused = result_texts(rig.bodies("work on part")[-1])[-2:]
    assert all(failed and "a fork cannot start sub-agents" in said for said, failed in refused)
    assert len(rig.server.messages) == 4  # two of the parent, two of its one fork
    assert len(rig.of(ChildStarted)) == 1
    child = rig.of(ChildStarted)[0].child
    rig.rules["go further"] = asks(("agent", {"task": "x", "prompt": "fork yourself", "resume": child}))
    rig.rules["fork yourself"] = lambda body, made: calls(forks(1)) if made == 0 else text("no")
    rig.turn("go further")
    said, failed = result_texts(rig.bodies("fork yourself")[-1])[-1]
    assert failed
    assert "a fork cannot" in said


def test_a_forks_words_and_place_are_not_the_parents_nor_those_of_a_fork_of_the_session(rig: FamilyRig) -> None:
    rig.rules["do one"] = asks(*forks(2))
    rig.rules["work on part"] = lambda body, made: tool("variables", {}) if made == 0 else text("the answer")
    rig.turn("do one")
    assert MARK not in json.dumps(rig.bodies("do one")[-1])
    assert len(rig.of(AssistantMessage)) == 2
    assert [(ended.requests, ended.usage.prompt > 0) for ended in rig.of(ChildEnded)] == [(2, True)] * 2
    rig.turn("do one", fork=True)
    folders = [folder for folder in rig.agent.sessions.stored() if folder.name.endswith("-aside")]
    assert len(folders) == 1
    children = [folder.name for folder in (folders[0] / CHILDREN).iterdir()]
    assert len(children) == 2
    first = rig.agent.session
    for folder in (first.journal.folder / CHILDREN).iterdir():
        assert not (folder / CHILDREN).exists()
        assert folder.name not in children


def test_off_means_no_tool(make_rig: Make) -> None:
    rig = make_rig(subagents=False)
    rig.turn("hello")
    assert "agent" not in {tool["name"] for tool in rig.bodies("hello")[0]["tools"]}
