"""Messages between a parent, its sub-agents and other sessions: who reads what when, and what is refused."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from family_rig import FamilyRig, result_texts, until
from test_children import order as job

from ipyagent.journal.events import ChildEnded, ChildStarted, MessageReceived, MessageSent, ToolReturned, UserMessage
from ipyagent.journal.journal import TRANSCRIPT, read_events
from ipyagent.loop.mailbox import MailMessage, post
from ipyagent.parts.messages import MailService
from ipyagent.parts.subagents import SubagentManager
from ipyagent.practice.replies import Fault, Reply, calls, text, tool

Make = Callable[..., FamilyRig]


def send(to: str, message: str, **more: Any) -> tuple[str, dict[str, Any]]:
    return "send_message", {"to": to, "message": message, **more}


def steps(*given: Reply | Callable[[dict[str, Any]], Reply]) -> Callable[[dict[str, Any], int], Reply | Fault]:
    """One reply after another; the last one again and again."""

    def reply(body: dict[str, Any], made: int) -> Reply | Fault:
        chosen = given[min(made, len(given) - 1)]
        return chosen(body) if callable(chosen) else chosen

    return reply


def said_to(body: dict[str, Any]) -> list[str]:
    """The <message> elements of a request."""
    blocks = [block for message in body["messages"] if message["role"] == "user" for block in message["content"]]
    return [block["text"] for block in blocks if block["type"] == "text" and block["text"].startswith("<message")]


def last(rig: FamilyRig, word: str) -> str:
    return result_texts(rig.bodies(word)[-1])[-1][0]


def waits(rig: FamilyRig, holds: Callable[[], object], then: Reply) -> Callable[[dict[str, Any]], Reply]:
    def reply(body: dict[str, Any]) -> Reply:
        until(holds)
        return then

    return reply


def test_a_child_reads_at_its_next_round_and_answers_its_parent(rig: FamilyRig) -> None:
    rig.rules["begin"] = steps(
        calls([job("count rows", "work on it", background=True)]),
        calls([send("count-rows", "use the </message> new table", summary="new table")]),
        waits(rig, lambda: not rig.agent.part(SubagentManager).at_work(), tool("variables", {})),
        text("all done"),
    )
    rig.rules["work on"] = steps(
        tool("variables", {}),
        waits(rig, lambda: rig.of(MessageSent), tool("variables", {})),
        calls([send("parent", "344 rows", summary="rows")]),
        text("finished"),
    )
    assert rig.turn("begin").text == "all done"
    (read,) = said_to(rig.bodies("work on")[-1])
    assert read == '<message from="parent">\nuse the &lt;/message> new table\n</message>'
    (answer,) = said_to(rig.bodies("begin")[-1])
    assert answer == '<message from="count-rows">\n344 rows\n</message>'
    (got,) = rig.of(MessageReceived)
    assert (got.sender, got.summary, got.said) == ("count-rows", "rows", "344 rows")
    events = rig.child_events(rig.of(ChildStarted)[0].child)
    assert [(e.sender, e.summary) for e in events if isinstance(e, MessageReceived)] == [("parent", "new table")]


def test_all_running_children_and_siblings_are_written_to(rig: FamilyRig) -> None:
    ready: set[str] = set()
    rig.rules["begin"] = steps(
        calls([job(f"job {n}", f"work {n}", background=True) for n in range(3)]),
        waits(rig, lambda: len(ready) == 3, calls([send("*", "to everybody")])),
        waits(rig, lambda: not rig.agent.part(SubagentManager).at_work(), text("all done")),
    )

    def child(n: int) -> Callable[[dict[str, Any], int], Reply | Fault]:
        def first(body: dict[str, Any]) -> Reply:
            ready.add(str(n))
            until(lambda: rig.of(MessageSent))
            return tool("variables", {})

        said = calls([send("job-1", "from a sibling"), send("job-9", "to nobody")]) if n == 0 else tool("variables", {})
        second = waits(rig, lambda: "said" in ready, tool("variables", {})) if n == 1 else said

        def third(body: dict[str, Any]) -> Reply:
            ready.add("said" if n == 0 else "")
            return tool("variables", {})

        return steps(first, second, third, text("finished"))

    for n in range(3):
        rig.rules[f"work {n}"] = child(n)
    assert rig.turn("begin").text == "all done"
    for n in range(3):
        read = said_to(rig.bodies(f"work {n}")[-1])
        assert '<message from="parent">\nto everybody\n</message>' in read
        assert ('<message from="job-0">\nfrom a sibling\n</message>' in read) == (n == 1)
    refused = [said for said, failed in result_texts(rig.bodies("work 0")[-1]) if failed]
    assert refused == ["no agent or session is called 'job-9'; nearest: job-2, job-1; there are: parent, job-1, job-2"]


def test_a_child_that_is_asked_to_shut_down_ends_and_says_so(rig: FamilyRig) -> None:
    begun: list[str] = []

    def loops(body: dict[str, Any], made: int) -> Reply:
        begun.append("x")
        until(lambda: rig.of(MessageSent) or made > 0)
        return tool("variables", {})

    def obeys(body: dict[str, Any], made: int) -> Reply:
        begun.append("x")
        if said_to(body):
            return text("what I have")
        until(lambda: rig.of(MessageSent))
        return tool("variables", {})

    rig.rules["begin"] = steps(
        calls([job("deaf one", "never end", background=True), job("good one", "do obey", background=True)]),
        waits(rig, lambda: len(begun) >= 2, calls([send("*", "enough", kind="shutdown_request")])),
        waits(rig, lambda: not rig.agent.part(SubagentManager).at_work(), tool("variables", {})),
        text("all done"),
    )
    rig.rules["never end"], rig.rules["do obey"] = loops, obeys
    assert rig.turn("begin").text == "all done"
    ended = {e.child[:4]: (e.status, e.message) for e in rig.of(ChildEnded)}
    assert ended == {"deaf": ("stopped", "it was asked to shut down"), "good": ("finished", "")}
    assert {(e.sender, e.kind) for e in rig.of(MessageReceived)} == {
        ("deaf-one", "shutdown_response"), ("good-one", "shutdown_response"),
    }  # fmt: skip
    assert len(rig.bodies("never end")) == 2, "one request after it was told, no more"
    assert rig.agent.part(SubagentManager).at_work() == ()


def plan_rules(rig: FamilyRig, answer: tuple[str, dict[str, Any]]) -> None:
    rig.rules["begin"] = steps(
        calls([job("clean it", "clean the table")]),
        calls([answer]),
        waits(rig, lambda: not rig.agent.part(SubagentManager).at_work(), tool("variables", {})),
        text("all done"),
    )
    rig.rules["clean the"] = steps(calls([send("parent", "1. drop rows", kind="plan_request")]), text("finished"))


def test_a_plan_waits_for_the_parents_yes_although_it_waited_for_the_child(rig: FamilyRig) -> None:
    plan_rules(rig, send("clean-it", "go on", kind="plan_response", approve="yes"))
    assert rig.turn("begin").text == "all done"
    body = rig.bodies("begin")[1]
    assert "has sent you a plan" in result_texts(body)[0][0]
    assert said_to(body) == ['<message from="clean-it" kind="plan_request">\n1. drop rows\n</message>']
    assert last(rig, "clean the") == "The plan is approved. go on"
    assert [e.status for e in rig.of(ChildEnded)] == ["finished"]
    rig.agent.new()
    plan_rules(rig, send("clean-it", "keep the rows", kind="plan_response", approve="no"))
    rig.turn("begin")
    assert last(rig, "clean the").startswith("The plan is rejected: keep the rows"), "with the reason"


def test_a_plan_without_an_answer_is_not_carried_out(make_rig: Make) -> None:
    rig = make_rig(plan_wait=0.3)
    plan_rules(rig, send("nobody-here", "x", kind="plan_response", approve="yes"))
    rig.turn("begin")
    said, failed = result_texts(rig.bodies("clean the")[-1])[-1]
    assert failed
    assert "the plan got no answer within 0.3 s" in said
    refused = result_texts(rig.bodies("begin")[-1])[1][0]
    assert "no sub-agent 'nobody-here' is running; running: clean-it" in refused


def test_what_is_no_message_is_refused_in_a_line(rig: FamilyRig) -> None:
    given = [
        send("parent", "x"), send("*", "x"), send("lab", "x" * 20_001), send("lab", "  "),
        send("x", "x", kind="shutdown_request"), send("x", "x", kind="plan_request"), send("nobody", "x"),
    ]  # fmt: skip
    rig.rules["begin"] = steps(calls(given), text("done"))
    rig.turn("begin")
    found = result_texts(rig.bodies("begin")[-1])
    assert all(failed and len(said.splitlines()) == 1 for said, failed in found), found
    assert "20,001 characters" in found[2][0]
    assert rig.of(MessageSent) == []


def test_a_message_that_came_too_late_is_told(rig: FamilyRig) -> None:
    rig.rules["begin"] = steps(
        calls([job("quick one", "be quick", background=True)]),
        calls([send("quick-one", "one more thing")]),
        waits(rig, lambda: not rig.agent.part(SubagentManager).at_work(), tool("variables", {})),
        text("all done"),
    )
    rig.rules["be quick"] = steps(waits(rig, lambda: rig.of(MessageSent), text("done already")))
    rig.turn("begin")
    (ended,) = rig.of(ChildEnded)
    assert "[1 message came too late for it and was not read]" in ended.text


def test_two_sessions_of_a_project_write_to_each_other(make_rig: Make) -> None:
    one, two = make_rig(), make_rig()
    two.turn("hello")
    other = two.agent.session.journal.session
    one.rules["write"] = steps(calls([send(other, "the key is ready"), send(other[:15], "again")]), text("sent"))
    count = len(two.server.messages)
    one.turn("write")
    assert [failed for _, failed in result_texts(one.bodies("write")[-1])] == [False, False]
    assert "it is open in a kernel" in last(one, "write")
    assert len(two.agent.part(MailService).waiting(two.agent.session)) == 2
    assert len(two.server.messages) == count, "nothing runs automatically"
    two.turn("next")
    mine = one.agent.session.journal.session
    assert said_to(two.bodies("next")[-1])[0] == f'<message from="session {mine}">\nthe key is ready\n</message>'
    assert two.agent.part(MailService).waiting(two.agent.session) == ()
    two.turn("later")
    assert len(two.of(MessageReceived)) == 2
    order = [type(e) for e in two.events() if isinstance(e, UserMessage | MessageReceived)]
    assert order == [UserMessage, UserMessage, MessageReceived, MessageReceived, UserMessage]


def test_a_closed_session_reads_when_it_is_taken_up(make_rig: Make) -> None:
    two = make_rig()
    two.turn("hello")
    other = two.agent.session.journal.session
    two.agent.new()
    two.rules["write"] = steps(calls([send(other, "for later")]), text("sent"))
    two.turn("write")
    assert "no kernel has it open" in last(two, "write")
    two.agent.resume(other)
    two.turn("go on")
    assert "for later" in said_to(two.bodies("go on")[-1])[0]


def test_secrets_and_untrusted_projects_send_nothing(make_rig: Make) -> None:
    one, two = make_rig(), make_rig()
    two.turn("hello")
    other = two.agent.session.journal.session
    key = "sk-ant-api03-" + "Zq7XkV2m9TfLw4Rb8NcY"
    one.rules["write"] = steps(calls([send(other, f"use {key}")]), text("sent"))
    one.turn("write")
    said, failed = result_texts(one.bodies("write")[-1])[0]
    assert failed
    assert "instead of sending it" in said
    assert key not in said
    one.agent.trust(off=True)
    one.rules["again"] = steps(calls([send(other, "hello")]), text("sent"))
    one.turn("again")
    assert "need a trusted project" in last(one, "again")
    assert two.agent.part(MailService).waiting(two.agent.session) == ()


def test_what_others_put_into_an_untrusted_projects_mailbox_is_not_read(rig: FamilyRig) -> None:
    rig.turn("hello")
    rig.agent.trust(off=True)
    folder = rig.agent.session.journal.folder
    post(folder, MailMessage(id="x/1", sender="parent", session="x", text="obey"))
    rig.turn("next")
    assert said_to(rig.bodies("next")[-1]) == []
    rig.agent.trust()
    post(folder, MailMessage(id="x/2", sender="parent", session="x", text="shut down", kind="shutdown_request"))
    rig.turn("then")
    found = [(e.message, e.kind) for e in rig.of(MessageReceived)]
    assert found == [("x/1", "text"), ("x/2", "text")], "between sessions there is plain text only"


def test_many_messages_come_a_part_at_a_time_and_in_order(rig: FamilyRig) -> None:
    rig.turn("hello")
    folder = rig.agent.session.journal.folder
    for n in range(120):
        post(folder, MailMessage(id=f"x/{n}", sender="x", session="x", text=f"number {n}"))
    rig.turn("next")
    assert len(rig.of(MessageReceived)) == 50
    rig.turn("next")
    rig.turn("next")
    assert [e.said for e in rig.of(MessageReceived)] == [f"number {n}" for n in range(120)]


def test_the_switch_takes_the_tool_away(make_rig: Make) -> None:
    rig = make_rig(messages=False)
    rig.turn("hello")
    assert "send_message" not in {each["name"] for each in rig.bodies("hello")[0]["tools"]}
    folder = rig.agent.session.journal.folder
    post(folder, MailMessage(id="x/1", sender="x", session="x", text="hi"))
    rig.turn("next")
    assert rig.of(MessageReceived) == []


def test_a_send_that_a_crash_cut_off_arrives_once_when_it_is_sent_again(make_rig: Make, tmp_path: Path) -> None:
    one, two = make_rig(), make_rig()
    two.turn("hello")
    other = two.agent.session.journal.session
    one.rules["write"] = steps(calls([send(other, "once only")]), text("sent"))
    one.turn("write")
    mine = one.agent.session.journal.folder
    one.agent.new()
    lines = (mine / TRANSCRIPT).read_bytes().splitlines(keepends=True)
    cut = next(n for n, line in enumerate(lines) if b'"MessageSent"' in line)
    (mine / TRANSCRIPT).write_bytes(b"".join(lines[:cut]))  # as if it was killed behind the write
    one.agent.resume(mine.name)
    one.rules["again"] = steps(calls([send(other, "once only")]), text("sent"))
    one.turn("again")
    one.rules["third"] = steps(calls([send(other, "once only")]), text("sent"))
    one.turn("third")
    assert any(isinstance(e, ToolReturned) and e.note == "cut off" for e in one.events())
    two.turn("next")
    ids = [e.message for e in two.of(MessageReceived)]
    assert len(ids) == len(set(ids)) == 2, "the one that was cut off once, and the third time on purpose"
    events = list(read_events(mine / TRANSCRIPT))
    assert len({e.message for e in events if isinstance(e, MessageSent)}) == 2
    assert re.match(r"\d{8}-", ids[0])
