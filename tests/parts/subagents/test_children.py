"""Sub-agents at work: answers, names that are handed back, rights, stops, what is left."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from typing import Any

import psutil
import pytest
from family_rig import FamilyRig, Person, newest, result_texts, until

from ipyagent.config import IPyAgent
from ipyagent.journal.events import (
    ChildEnded,
    ChildProgress,
    ChildStarted,
    FileChanged,
    PermissionAsked,
    SystemReminder,
    ToolCalled,
    ToolReturned,
    TurnEnded,
    UsageReported,
)
from ipyagent.journal.protocols import PermissionAnswer
from ipyagent.journal.tokens import estimate_text
from ipyagent.loop.budget import spent_today
from ipyagent.parts.subagents import SubagentManager, run_subagents
from ipyagent.parts.subagents.subagent import STANDS, ReturnedVariables
from ipyagent.parts.subagents.types import words
from ipyagent.practice.replies import Fault, Reply, calls, cut, fault, text, tool

Make = Callable[..., FamilyRig]


def order(task: str, prompt: str, **more: Any) -> tuple[str, dict[str, Any]]:
    return "agent", {"task": task, "prompt": prompt, **more}


def asks(*orders: tuple[str, dict[str, Any]], then: str = "all done") -> Callable[[dict[str, Any], int], Reply | Fault]:
    """A parent that starts these at once and then says its last word."""
    return lambda body, made: calls(list(orders)) if made == 0 else text(then)


def works(code: str, then: str = "done") -> Callable[[dict[str, Any], int], Reply | Fault]:
    """A sub-agent that runs code and answers."""
    return lambda body, made: tool("python", {"code": code}) if made == 0 else text(then)


def last_results(rig: FamilyRig, word: str) -> list[tuple[str, bool]]:
    return result_texts(rig.bodies(word)[-1])


def test_a_child_answers_and_only_what_it_hands_back_reaches_the_user(rig: FamilyRig) -> None:
    rig.shell.run_cell("base = [1, 2, 3]\nkept = 7")
    before = rig.names
    rig.rules["count it"] = asks(order("count base", "count the base list"))
    rig.rules["count the base"] = works("mine = len(base)\nkept = 0\nbase2 = base\nhand_back(total=mine)", "It has 3.")
    result = rig.turn("count it")
    assert result.text == "all done"
    assert rig.names - before == {"total"}
    assert (rig.shell.user_ns["total"], rig.shell.user_ns["kept"]) == (3, 7)
    ((said, failed),) = last_results(rig, "count it")
    assert said.startswith("It has 3.\n[handed back to the user's namespace: total (int)]")
    assert not failed
    (ended,) = rig.of(ChildEnded)
    assert (ended.status, ended.handed, ended.requests) == ("finished", ("total",), 2)
    costs = ended.cost, sum(event.cost for event in rig.of(UsageReported))
    assert costs[0] > 0
    assert result.cost == pytest.approx(sum(costs)), "what it cost is the turn's"
    assert rig.agent.session.history.totals.cost == pytest.approx(sum(costs))
    assert rig.of(TurnEnded)[-1].variables["total"] == "int", "after a restart it is named as gone"
    started = rig.of(ChildStarted)[0]
    assert any(isinstance(event, ToolReturned) for event in rig.child_events(started.child))
    assert rig.agent.sessions.stored() == [rig.agent.session.journal.folder]


def through(order: tuple[str, dict[str, Any]]) -> tuple[str, dict[str, Any]]:
    """The same as a model calls it that has found it with `tool_search`."""
    return "call_tool", {"name": order[0], "arguments": order[1]}


def test_those_of_one_message_that_are_called_through_call_tool_are_asked_at_the_same_time(rig: FamilyRig) -> None:
    meeting = threading.Barrier(3)

    def answers(body: dict[str, Any], made: int) -> Reply | Fault:
        number = newest(body)[0].partition("look at part ")[2][0]
        try:
            meeting.wait(15)
        except threading.BrokenBarrierError:
            return text(f"part {number} was asked alone")
        return text(f"part {number} is fine")

    rig.rules["look at part"] = answers
    jobs = [order(f"part {n}", f"look at part {n}", type="explore") for n in range(3)]
    rig.rules["look at all"] = asks(*map(through, jobs))
    assert rig.turn("look at all").text == "all done"
    said = [said.partition("\n")[0] for said, _ in last_results(rig, "look at all")]
    assert said == [f"part {n} is fine" for n in range(3)]


def test_among_those_of_one_message_a_tool_that_is_not_parallel_keeps_its_place(rig: FamilyRig) -> None:
    steps = "plan", {"steps": [{"step": "look"}]}
    jobs = [through(order(f"part {n}", f"look at part {n}", type="explore")) for n in range(3)]
    rig.rules["look at part"] = lambda body, made: text("fine")
    rig.rules["look at all"] = asks(*jobs[:2], through(steps), jobs[2], ("python", {"code": "1"}))
    rig.turn("look at all")
    names = {event.call: event.name for event in rig.of(ToolCalled)}
    assert list(names.values()) == ["agent", "agent", "plan", "agent", "python"]
    seen = [(type(event), names[event.call]) for event in rig.events() if isinstance(event, ToolCalled | ToolReturned)]
    assert [kind for kind, _ in seen[:4]] == [ToolCalled, ToolCalled, ToolReturned, ToolReturned]
    assert seen[4:] == [(kind, name) for name in ("plan", "agent", "python") for kind in (ToolCalled, ToolReturned)]


def test_the_shell_is_left_as_it_was(rig: FamilyRig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(rig.folder)
    shell = rig.shell
    shell.run_cell("x = 1\nx + 1", store_history=True)
    namespace, module, folder = shell.user_ns, shell.user_module, os.getcwd()
    kept = {name: namespace.get(name) for name in ("_", "__", "_i", "In", "Out", "_oh")}
    count = shell.execution_count
    rig.rules["go"] = asks(order("odd code", "do odd things"))
    rig.rules["do odd"] = works(
        "import os\nos.mkdir('sub'); os.chdir('sub')\nfor _ in range(3): pass\nOut[99] = 1; In.append('mine')\n"
        "class Own: pass\n"
        "get_ipython().run_line_magic('timeit', '-n1 -r1 x')\nhere = 5\n%who_ls\nx + 40"
    )
    rig.turn("go")
    events = rig.child_events(rig.of(ChildStarted)[0].child)
    (returned,) = [event for event in events if isinstance(event, ToolReturned)]
    assert "41" in returned.blocks[0]["text"], returned
    assert not returned.is_error, returned
    assert (shell.user_ns is namespace, shell.user_module is module, os.getcwd()) == (True, True, folder)
    assert {name: namespace.get(name) for name in kept} == kept
    assert 99 not in shell.user_ns["Out"]
    assert "mine" not in shell.user_ns["In"]
    assert shell.execution_count == count
    assert not {"here", "Own", "hand_back"} & set(namespace)


def test_nothing_of_the_users_is_overwritten_and_those_of_one_task_have_names_of_their_own(rig: FamilyRig) -> None:
    rig.shell.run_cell("df = 'mine'")
    rig.rules["go"] = asks(*(order("count rows", f"{job} job") for job in ("one", "two", "odd", "last")))
    rig.rules["odd job"] = works("hand_back(In=3)")
    rig.rules["last job"] = lambda body, made: text("done")
    rig.rules["job"] = works("hand_back(df=object())\nhand_back('nothing_here')")
    rig.turn("go")
    assert rig.shell.user_ns["df"] == "mine"
    assert {"df_2", "df_3"} <= rig.names, (last_results(rig, "go"), rig.of(ChildEnded))
    assert any("`df` was taken" in said for said, _ in last_results(rig, "go"))
    assert {event.name for event in rig.of(ChildStarted)} == {f"count-rows{end}" for end in ("", "-2", "-3", "-4")}
    assert rig.shell.user_ns["In"] != 3
    said, failed = result_texts(rig.bodies("odd job")[-1])[0]
    assert failed
    assert "choose another name" in said
    with pytest.raises(TypeError, match=r'takes names, not a list: write hand_back\("clean"\)'):
        ReturnedVariables().function(dict)([1, 2])


def test_eight_at_once_one_stopped_one_failing_one_hung(make_rig: Make) -> None:
    rig = make_rig(subagent_silence=1.5, request_timeout=15.0)
    rig.agent.permissions.remember("python(program:sleep)", session=True)
    rig.turn("hello")  # what is there for good is there now
    threads, processes = set(threading.enumerate()), set(psutil.Process().children())
    jobs = [order(f"job {n}", f"job {n} of eight") for n in range(8)]
    rig.rules["all eight"] = asks(*jobs)
    rig.rules["job 5 of"] = lambda body, made: fault(400, message="no such thing")
    rig.rules["job 6 of"] = lambda body, made: cut(text("I never end"), "hang", seconds=60)
    rig.rules["job 7 of"] = works(
        "import subprocess, time\nsubprocess.Popen(['sleep', '600'])\nwhile True: time.sleep(0.01)"
    )
    for n in range(5):
        rig.rules[f"job {n} of"] = works(f"local_{n} = {n}\nhand_back(out_{n}={n} * 10)", f"answer {n}")
    before = rig.names

    def stop_one() -> None:
        until(lambda: any(child.name == "job-7" and child.phase == "running python" for child in children.at_work()))
        until(lambda: len(children.at_work()) <= 2)  # the other six are through, although one hangs in its code
        rig.agent._thread.loop.call_soon_threadsafe(children.stop, "the user stopped it", "job-7")

    children = rig.agent.part(SubagentManager)
    rig.settings.subagent_silence = 4.0
    # job 7 holds the main thread while it runs, so it comes last of those with code: its model is slow
    slow = rig.rules["job 7 of"]

    def late(body: dict[str, Any], made: int) -> Reply | Fault:
        if made == 0:
            until(lambda: len(children.at_work()) <= 2)
        return slow(body, made)

    rig.rules["job 7 of"] = late
    stopper = threading.Thread(target=stop_one, daemon=True)
    stopper.start()
    result = rig.turn("all eight")
    stopper.join(5)
    assert (result.status, result.text) == ("finished", "all done")
    found = last_results(rig, "all eight")
    assert [said.partition("\n")[0] for said, _ in found[:5]] == [f"answer {n}" for n in range(5)]
    assert [failed for _, failed in found] == [False] * 5 + [True] * 3
    assert "failed" in found[5][0]
    assert "no such thing" in found[5][0]
    assert "%agent new" not in found[5][0], "what its user could do is not its parent's to read"
    assert "gave no sign of work for 4 s" in found[6][0]
    assert "was stopped: the user stopped it" in found[7][0]
    assert rig.names - before == {f"out_{n}" for n in range(5)}
    assert [rig.shell.user_ns[f"out_{n}"] for n in range(5)] == [0, 10, 20, 30, 40]
    assert sorted(event.status for event in rig.of(ChildEnded)) == ["failed"] + ["finished"] * 5 + ["stopped"] * 2
    for started in rig.of(ChildStarted):
        events = rig.child_events(started.child)
        assert isinstance(events[-1], TurnEnded), events[-1]
    assert rig.tasks() == [], "tasks are left"
    assert children.at_work() == ()
    until(lambda: not rig.server.open_streams)
    ended = {one for one in psutil.Process().children() if one.status() == psutil.STATUS_ZOMBIE}
    assert set(psutil.Process().children()) - ended <= processes, "a process is left"
    served = "ipyagent-practice"  # of the test's own server: they end with their connections
    left = [thread.name for thread in set(threading.enumerate()) - threads if served not in thread.name]
    known = ("-beside_", "ipyagent-practice")
    assert [name for name in left if not any(part in name for part in known)] == [], "a thread is left"


def test_code_that_hangs_is_stopped_and_its_siblings_go_on(make_rig: Make) -> None:
    rig = make_rig(subagent_silence=4.0)
    rig.rules["both"] = asks(order("hang", "hang for ever"), order("work", "work well"))
    rig.rules["hang for"] = works("import time\ntime.sleep(600)")
    rig.rules["work well"] = works("hand_back(fine=1)", "fine")
    assert rig.turn("both").status == "finished"
    (hung, bad), (fine, good) = last_results(rig, "both")
    assert (bad, good) == (True, False)
    assert "gave no sign of work" in hung
    assert fine.startswith("fine")
    assert rig.shell.user_ns["fine"] == 1


def test_a_stopped_turn_stops_its_children_and_closes_their_calls(rig: FamilyRig) -> None:
    later = order("c", "later work", background=True)
    rig.rules["go"] = asks(order("a", "sleep long"), order("b", "stream long"), later)
    rig.rules["sleep long"] = works("import time\nprint('begun', flush=True)\ntime.sleep(600)")
    rig.rules["stream long"] = lambda body, made: cut(text("never"), "hang", seconds=60)
    rig.rules["later work"] = lambda body, made: cut(text("never"), "hang", seconds=60)
    children = rig.agent.part(SubagentManager)

    def stop() -> None:
        until(lambda: any(child.phase == "running python" for child in children.at_work()))
        until(lambda: len(rig.bodies("long")) >= 2 and rig.bodies("later work"))
        rig.agent.stop()

    threading.Thread(target=stop, daemon=True).start()
    assert rig.turn("go").status == "stopped"
    assert [event.status for event in rig.of(ChildEnded)] == ["stopped"] * 3
    told = str([event.blocks for event in rig.of(ToolReturned)])
    for started in rig.of(ChildStarted):
        assert started.background or f"[sub-agent {started.child}: pass this id as `resume` to continue it]" in told
        events = rig.child_events(started.child)
        assert isinstance(events[-1], TurnEnded)
        called = {e.call for e in events if type(e).__name__ == "ToolCalled"}
        assert called == {e.call for e in events if isinstance(e, ToolReturned)}
    assert rig.tasks() == []
    rig.rules["and then"] = lambda body, made: text("on")
    assert rig.turn("and then").text == "on"
    assert [exchange.error for exchange in rig.server.refused] == []


def test_a_child_in_the_background_answers_with_a_later_message(rig: FamilyRig) -> None:
    gate = threading.Event()

    def later(body: dict[str, Any], made: int) -> Reply | Fault:
        gate.wait(10)
        return tool("python", {"code": "hand_back(late=5)"}) if made == 0 else text("the late answer")

    rig.rules["start it"] = asks(order("late work", "be late", background=True), then="it runs")
    rig.rules["be late"] = later
    assert rig.turn("start it").text == "it runs"
    assert [child.name for child in rig.agent.part(SubagentManager).at_work()] == ["late-work"]
    assert rig.agent.part(SubagentManager).at_work()[0].now != STANDS
    gate.set()
    until(lambda: rig.agent.part(SubagentManager).at_work()[0].now == STANDS)
    assert f"(general, late work): running ({STANDS})" in run_subagents(rig.agent, "")

    def second(body: dict[str, Any], made: int) -> Reply | Fault:
        until(lambda: not rig.agent.part(SubagentManager).at_work())
        return tool("variables", {}) if made == 0 else text("heard")

    rig.rules["any news"] = second  # its code has waited for a turn: the main thread is the user's between turns
    assert rig.turn("any news").text == "heard"
    assert rig.shell.user_ns["late"] == 5
    assert STANDS not in run_subagents(rig.agent, "")
    (told,) = [event for event in rig.of(SystemReminder) if event.layer == "children"]
    assert "the late answer" in told.text
    assert "the late answer" in str(rig.bodies("any news")[-1]["messages"])
    (ended,) = rig.of(ChildEnded)
    assert ended.status == "finished"


def test_an_explorer_has_no_right_to_write_or_run(rig: FamilyRig) -> None:
    (rig.folder / "notes.txt").write_text("seven")
    rig.rules["look"] = asks(order("look", "find the note", type="explore"))
    rig.rules["find the"] = lambda body, made: (
        calls([("read_file", {"path": "notes.txt"}), ("python", {"code": "1"}), ("shell", {"command": "rm notes.txt"})])
        if made == 0
        else text("seven")
    )
    rig.turn("look")
    read, code, shell = result_texts(rig.bodies("find the")[-1])
    assert "seven" in read[0]
    assert code[1]
    assert shell[1]
    assert (rig.folder / "notes.txt").exists()
    assert {tool["name"] for tool in rig.bodies("find the")[0]["tools"]} == {
        "glob", "grep", "read_file", "send_message", "shell", "variables",
    }  # fmt: skip
    assert rig.bodies("find the")[0]["model"] == "claude-haiku-5-5"


@pytest.mark.parametrize(
    ("status", "words"),
    [(404, "model: claude-haiku-5-5"), (400, "Invalid model name passed in model=claude-haiku-5-5.")],
)
def test_where_the_server_has_no_small_model_the_parents_explores_and_that_is_said_once(
    rig: FamilyRig, status: int, words: str
) -> None:
    (rig.folder / "notes.txt").write_text("seven")

    def explores(body: dict[str, Any], made: int) -> Any:
        if body["model"] == "claude-haiku-5-5":
            return fault(status, message=words)
        return tool("read_file", {"path": "notes.txt"}) if made == 0 else text("it says seven")

    rig.rules["look"] = asks(order("look", "find the note", type="explore"))
    rig.rules["find the"] = explores
    rig.turn("look")
    assert [body["model"] for body in rig.bodies("find the")] == ["claude-haiku-5-5", *["claude-sonnet-5-5"] * 2]
    (ended,) = rig.of(ChildEnded)
    assert (ended.status, ended.cost is not None) == ("finished", True)
    rig.turn("look again")
    assert [body["model"] for body in rig.bodies("find the")].count("claude-haiku-5-5") == 1
    (line,) = [line for line in rig.agent.notices if "small_model" in line]
    assert "claude-haiku-5-5" in line


def test_a_child_of_a_read_only_parent_is_read_only(make_rig: Make) -> None:
    rig = make_rig(mode="read_only")
    rig.rules["go"] = asks(order("a", "write a file"))
    rig.rules["write a"] = lambda body, made: (
        tool("write_file", {"path": "x.txt", "content": "x"}) if made == 0 else text("no")
    )
    rig.turn("go")
    assert result_texts(rig.bodies("write a")[-1])[0][1]
    assert not (rig.folder / "x.txt").exists()


def test_a_childs_question_is_asked_under_its_name(make_rig: Make) -> None:
    rig = make_rig(mode="ask")
    rig.rules["go"] = asks(order("first job", "one job"), order("second job", "two job"))
    rig.rules["one job"] = works("hand_back(one=1)")
    rig.rules["two job"] = works("hand_back(two=2)")
    person = Person(lambda asked: PermissionAnswer("once" if asked.said.startswith("first") else "deny", "not that"))
    rig.turn("go", person)
    assert sorted(asked.said for asked in person.asked) == ["first-job", "second-job"]
    assert {asked.title for asked in person.asked} == {"A sub-agent asks: Run this code?"}
    assert "one" in rig.names
    assert "two" not in rig.names
    assert len(rig.of(PermissionAsked)) == 2
    assert "not that" in str(rig.bodies("two job")[-1]["messages"])


def test_files_that_a_child_changed_are_put_back_by_undo(rig: FamilyRig) -> None:
    (rig.folder / "a.txt").write_text("old")
    rig.rules["go"] = asks(order("a", "change the file"))
    rig.rules["change the"] = lambda body, made: [
        tool("read_file", {"path": "a.txt"}),
        tool("edit_file", {"path": "a.txt", "old": "old", "new": "new"}),
        text("changed"),
    ][made]
    rig.turn("go")
    assert (rig.folder / "a.txt").read_text() == "new", result_texts(rig.bodies("change the")[-1])
    assert [event.path for event in rig.of(FileChanged)] == ["a.txt"]
    rig.agent.undo()
    assert (rig.folder / "a.txt").read_text() == "old"


def test_a_child_is_taken_up_again_with_what_it_knew(rig: FamilyRig) -> None:
    rig.rules["go"] = asks(order("a", "remember seven"))
    rig.rules["remember seven"] = lambda body, made: text("seven it is")
    rig.turn("go")
    child = rig.of(ChildStarted)[0].child
    rig.rules["once more"] = asks(("agent", {"task": "a", "prompt": "what was it", "resume": child}))
    rig.rules["what was"] = lambda body, made: text("seven")
    assert rig.turn("once more").status == "finished"
    assert "remember seven" in str(rig.bodies("what was")[0]["messages"])
    assert last_results(rig, "once more")[-1][0].startswith("seven")
    assert [event.resumed for event in rig.of(ChildStarted)] == [False, True]


def test_what_is_wrong_with_an_order_is_said(rig: FamilyRig) -> None:
    rig.rules["go"] = asks(order("a", "x", type="explorer"), order("b", " "), order("c", "x", resume="nobody-1234"))
    rig.turn("go")
    said = [one for one, failed in last_results(rig, "go") if failed]
    assert len(said) == 3
    assert "nearest: explore" in said[0]
    assert "empty" in said[1]
    assert "no sub-agent 'nobody-1234'" in said[2]
    assert rig.of(ChildStarted) == []


def test_a_running_child_has_a_progress_line_of_the_cheapest_model_every_half_minute(make_rig: Make) -> None:
    assert IPyAgent().subagent_progress == 30.0
    rig = make_rig(subagent_progress=0.3)
    rig.rules["go"] = asks(order("sum up", "slow job"))
    rig.shell.user_ns["wait"] = lambda: until(lambda: len(rig.bodies("<doing>")) >= 3)
    rig.rules["slow job"] = works("wait()")  # the call runs until three looks have fallen into it
    rig.rules["<doing>"] = lambda body, made: text("Summing the slow table")
    rig.turn("go")
    lines = rig.of(ChildProgress)
    assert [line.text for line in lines] == ["Summing the slow table"], "the same words are told once"
    asked = rig.bodies("<doing>")[0]
    assert (asked["model"], asked.get("tools") or []) == ("claude-haiku-5-5", [])


def test_a_progress_line_out_of_form_is_made_of_the_call(make_rig: Make) -> None:
    rig = make_rig(subagent_progress=0.3)
    rig.rules["go"] = asks(order("sum up", "slow job"))
    rig.shell.user_ns["wait"] = lambda: until(lambda: "Running code" in [line.text for line in rig.of(ChildProgress)])
    rig.rules["slow job"] = works("wait()")  # the call runs until a look has fallen into it
    rig.rules["<doing>"] = lambda body, made: text("I cannot tell you anything about that, but it is going well.")
    assert rig.turn("go").status == "finished"
    (started,) = rig.of(ChildStarted)
    (returned,) = (event for event in rig.child_events(started.child) if isinstance(event, ToolReturned))
    assert not returned.is_error
    assert [line.text for line in rig.of(ChildProgress) if line.at <= returned.at][-1] == "Running code"


def test_what_is_spent_between_turns_is_the_days(rig: FamilyRig) -> None:
    gate = threading.Event()

    def later(body: dict[str, Any], made: int) -> Reply | Fault:
        gate.wait(10)
        return text("late")

    rig.rules["start it"] = asks(order("late work", "be late", background=True))
    rig.rules["be late"] = later
    turn = rig.turn("start it").cost
    assert rig.agent.setup.spending.written(5)
    before = spent_today(rig.agent.project.spend)
    assert abs(before - turn) < 1e-5
    gate.set()
    until(lambda: not rig.agent.part(SubagentManager).at_work())
    (ended,) = rig.of(ChildEnded)
    assert ended.cost > 0
    assert rig.agent.setup.spending.written(5)
    assert abs(spent_today(rig.agent.project.spend) - before - ended.cost) < 1e-5


def test_letting_go_of_a_session_ends_its_children(rig: FamilyRig) -> None:
    rig.rules["start it"] = asks(order("late work", "be late", background=True))
    rig.rules["be late"] = lambda body, made: cut(text("never"), "hang", seconds=60)
    rig.turn("start it")
    session = rig.agent.session
    until(lambda: rig.bodies("be late"))
    rig.agent.new()
    assert rig.agent.part(SubagentManager).at_work() == ()
    assert rig.tasks() == []
    assert "stopped" in str(list(session.journal.read())[-1])


def test_the_prompts_are_short() -> None:
    for name, most in {"general": 240, "explore": 160, "fork": 260, "progress": 90}.items():
        assert estimate_text(words(name)) < most, name
