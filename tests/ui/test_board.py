"""The board: what each part answers, sizes, escaping, the static and the text form; questions that come twice."""

from __future__ import annotations

import json
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from ipyagent import Agent, IPyAgent
from ipyagent.extension.context_report import by_source
from ipyagent.extension.dashboard import MOST_BYTES, TABS, Dashboard, board_lines, static_board
from ipyagent.journal.events import ChildEnded, ChildProgress, ChildStarted, SkillLoaded, Usage
from ipyagent.parts.skills import Skills, run_skills
from ipyagent.parts.skills.tab import SkillsTab
from ipyagent.parts.subagents.tab import SubagentList
from ipyagent.ui.theme import script

from .pages import Page

EVIL = "<img src=x onerror='alert(1)'> <b>x</b>"


class Wire:
    """Stands where the widget would: keeps what pages are sent."""

    def __init__(self) -> None:
        self.sent: list[dict[str, Any]] = []

    def send(self, message: dict[str, Any]) -> None:
        self.sent.append(message)

    def close(self) -> None:
        pass


@pytest.fixture
def board(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Dashboard]:
    monkeypatch.setenv("IPYAGENT_HOME", str(tmp_path / "home"))
    settings = IPyAgent(model="practice", trust_all=True, extraction=False, mode="auto")
    folder = tmp_path / "project"
    skill = folder / "skills" / "count-rows"
    skill.mkdir(parents=True)
    (skill / "SKILL.md").write_text(f"---\nname: count-rows\ndescription: Counts {EVIL}\n---\n# Steps\n{EVIL}\n")
    agent = Agent(settings=settings, folder=folder)
    for request in ("hello", f"what is {EVIL}"):
        agent.run_sync(request)
    agent.session.record(ChildStarted(child="a-1", name="count", kind="general", task=f"count {EVIL}", call="c"))
    agent.session.record(ChildProgress(child="a-1", text="Counting rows"))
    agent.session.record(ChildEnded(child="a-1", status="finished", usage=Usage(), cost=0.02, requests=3, seconds=4.0))
    made = Dashboard(agent, agent.shell)
    made._widget = Wire()
    made.read_now()
    yield made
    made.close()
    agent.close()


def ask(board: Dashboard, part: str, kind: str, seq: str = "v.1", **more: Any) -> dict[str, Any]:
    board.answer({"part": part, "kind": kind, "seq": seq, **more})
    message: dict[str, Any] = board._widget.sent[-1]
    assert message["seq"] == seq
    return message


def test_each_part_answers_what_its_page_asks(board: Dashboard) -> None:
    assert len(ask(board, "context", "all")["whole"]["bars"][1]) == 2
    words = ask(board, "context", "words", "v.2", **{"from": 0, "count": 50})["words"][1]
    assert words[1][0] == f"what is {EVIL}"
    assert ask(board, "memory", "rows", "v.3", **{"from": 0, "count": 10})["total"] == 0
    rows = ask(board, "skills", "rows", "v.4", **{"from": 0, "count": 100}, words="counts")
    assert [row[0] for row in rows["rows"]] == ["count-rows"]
    opened = ask(board, "skills", "open", "v.5", name="count-rows")["opened"]
    assert Page(opened["html"]).dangers == []
    (sub,) = ask(board, "subagents", "subs", "v.6")["subs"]
    assert (sub["status"], sub["cost"], sub["requests"], sub["seconds"]) == ("finished", "$0.0200", 3, 4.0)
    (session,) = ask(board, "sessions", "rows", "v.7", **{"from": 0, "count": 100})["rows"]
    assert session[2:4] == ["hello", 2]
    assert session[-1] is True
    look = ask(board, "sessions", "look", "v.8", session=session[0], turn=2)["look"]
    assert (look["turn"], look["turns"]) == (2, 2)
    assert Page(look["html"]).dangers == []


def test_a_skill_takes_as_many_tokens_on_the_board_as_in_the_context(board: Dashboard) -> None:
    board.agent.new()
    board.agent.run_sync("hello")
    session = board.agent.session
    assert session.view.calibration.factor != 1.0  # the server counts otherwise than we
    of_names = by_source(session)["skills"]
    skills = board.tabs["skills"]
    assert isinstance(skills, SkillsTab)
    assert f"their names and descriptions take {of_names:,} tokens of every request" in skills.remarks()
    (row,) = ask(board, "skills", "rows", "v.1", **{"from": 0, "count": 1}, words="profile")["rows"]
    assert f"{row[3]:,} tokens when it is loaded" in run_skills(board.agent, f"show {row[0]}").splitlines()
    assert f"{row[3]:,} tokens" in ask(board, "skills", "load", "v.2", name=row[0])["said"]
    board.agent.run_sync("hello again")
    (load,) = (event for event in session.journal.read() if isinstance(event, SkillLoaded))
    assert load.counted == row[3] != load.tokens
    assert by_source(session)["skills"] - of_names == pytest.approx(load.counted, rel=0.05)


def test_a_question_that_comes_twice_is_answered_once_and_nonsense_never(board: Dashboard) -> None:
    question = {"part": "skills", "kind": "load", "name": "count-rows", "seq": "v.1"}
    board.answer(question)
    board.answer(question)
    assert len(board._widget.sent) == 1
    assert board.agent.part(Skills).asked == ["count-rows"]
    for wrong in ({}, {"part": "skills"}, {"part": [], "seq": "x"}, {"part": "skills", "kind": "fly", "seq": "v.2"},
                  {"part": "sessions", "kind": "resume", "seq": "v.3", "session": 7},
                  {"part": "subagents", "kind": "stop", "seq": "v.4", "child": "../x"},
                  {"part": "context", "kind": "words", "seq": "v.5", "from": "a", "count": -1}):  # fmt: skip
        board.answer(wrong)
    assert [message for message in board._widget.sent[1:] if "failed" not in message] == []


def test_what_is_new_is_told_once_and_grows_from_the_last_turn(board: Dashboard) -> None:
    board._tell()
    assert {message["part"] for message in board._widget.sent} == {"context", "skills", "subagents", "sessions"}
    board._widget.sent.clear()
    board._tell()
    assert board._widget.sent == []
    board.agent.run_sync("hello again")
    board.agent.session.record(SkillLoaded(name="count-rows", folder="x", digest="d", by="user", text="t", tokens=1))
    board.read_now()
    board._tell()
    told = {message["part"]: message for message in board._widget.sent}
    assert told["context"]["grown"]["bars"][0] == 1
    assert len(told["context"]["grown"]["bars"][1]) == 2
    assert told["skills"]["changed"]


def test_no_message_reaches_a_megabyte(board: Dashboard) -> None:
    board._send({"part": "memory", "seq": "v.1", "text": "ä" * MOST_BYTES})
    (sent,) = board._widget.sent
    assert "too much" in sent["failed"]
    assert len(json.dumps(sent)) < 200


def test_the_static_form_and_the_text_have_all_parts_and_nothing_acts(board: Dashboard) -> None:
    bundle = static_board(board)
    page = Page(bundle["text/html"])
    assert page.dangers == []
    text = "\n".join(board_lines(board))
    for words in ("2 turns", "count-rows", "1 sub-agent in this session", "1 stored session", "0 memories"):
        assert words in text
    for words in ("Context", "Memory", "Skills", "Sub-agents", "Sessions", "finished"):
        assert words in page.text
        assert words in bundle["text/markdown"]
    assert "<img" not in bundle["text/markdown"].replace("\\<img", "")
    assert board_lines(board, "skills")[0].startswith("Skills: ")
    assert "Sessions" not in "\n".join(board_lines(board, "skills"))
    marked = static_board(board, "abc.skills.0")["text/html"]
    assert 'data-ipyagent-board="abc.skills.0"' in marked


def test_a_sub_agent_whose_kernel_stopped_is_cut_off() -> None:
    roster = SubagentList([ChildStarted(child="a", name="a", kind="general", task="t", call="c")])
    (sub,) = roster.listed(())
    assert sub.status == "cut off"


def test_scripts_joined_keep_their_names_apart() -> None:
    joined = script("board", timelinePart="timeline", memoryPart="memory_browser")
    assert joined.count("export default") == 1
    assert "const timelinePart = (() => {" in joined
    assert TABS == ("context", "memory", "skills", "subagents", "sessions")


def wait_for(what: Callable[[], Any]) -> Any:
    until = time.monotonic() + 10
    while not (found := what()):
        assert time.monotonic() < until
        time.sleep(0.02)
    return found


def test_a_session_folder_that_is_gone_is_told_once_and_the_board_goes_on(board: Dashboard) -> None:
    agent, before = board.agent, set(threading.enumerate())
    agent.new()
    agent.run_sync("hello")
    agent.notices.clear()
    shutil.rmtree(agent.session.journal.folder)
    board.open()
    (thread,) = (each for each in set(threading.enumerate()) - before if each.name == "ipyagent-board")
    wait_for(lambda: agent.notices)
    board._session = None  # it is looked at once more, and fails again
    board.wake()
    wait_for(lambda: board._session is not None)
    assert len(agent.notices) == 1
    assert "cannot read" in agent.notices[0]
    agent.new()
    agent.run_sync("hello again")
    count = len(board._widget.sent)
    board.hear({"part": "sessions", "kind": "rows", "from": 0, "count": 10, "seq": "w.1"})
    wait_for(lambda: any(message.get("seq") == "w.1" for message in board._widget.sent[count:]))
    assert thread.is_alive()


def test_a_fault_in_the_board_leaves_a_line_and_a_report_and_a_dead_thread_is_started_anew(board: Dashboard) -> None:
    agent = board.agent
    agent.notices.clear()
    broken = board.tabs["skills"].fresh
    vars(board.tabs["skills"])["fresh"] = lambda: [][1]
    board.open()
    (line,) = wait_for(lambda: list(agent.notices))
    assert "internal error in the background, IndexError" in line
    report = Path(line.rpartition(": ")[2])
    assert "IndexError" in report.read_text()
    vars(board.tabs["skills"])["fresh"] = broken
    board._closed = True
    board.wake()
    board._thread.join(5)
    board._closed = False
    board.open()
    assert board._thread.is_alive()
