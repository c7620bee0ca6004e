"""Every failure of the server at the level of a turn: one line, nothing lost, the next turn works."""

from __future__ import annotations

import json
import os
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from loop_rig import KEY, Person, Rig, one_line, result_text

from ipyagent.errors import NoCredentials
from ipyagent.journal.events import Event, Retrying, TurnEnded
from ipyagent.practice.replies import (
    How,
    Reply,
    calls,
    cut,
    fault,
    late_error,
    malformed,
    text,
    tool,
)
from ipyagent.practice.server import PracticeServer

OTHER = "ghp_x8Kq2LmPz4Rt6Vw9Yb1Dc3Fg5Hj7Nn0Ss2Uu"
STORY = "A first sentence that is long enough to be cut, and then a second one for good measure."


LASTING = [
    (fault(401, message=f"invalid x-api-key {KEY}"), "ANTHROPIC_API_KEY"),
    (fault(403, message="not allowed for your organization"), "check the permissions"),
    (fault(404, message="model: claude-nope"), "%agent model NAME"),
    (fault(402, message="credit balance is too low"), "raise it"),
    (fault(400, message="Your credit balance is too low to access the API"), "raise it"),
    (fault(413, message="Request exceeds the maximum size"), "%agent new"),
    (fault(400, message="prompt is too long: 250000 tokens > 200000 maximum"), "%agent new"),
    (fault(429, code="enforced_spend_limit_reached", message="spend limit"), "raise it"),
    (fault(529, should_retry=False, message="Overloaded"), "again later"),
]


def test_what_waiting_does_not_help_ends_the_turn_at_once(rig: Rig) -> None:
    for count, (scripted, says) in enumerate(LASTING, 1):
        rig.server.script(scripted)
        result = rig.fault_turn()
        assert (result.status, says in result.message) == ("failed", True), result.message
        assert len(rig.server.messages) == 2 * count  # the refused one and the next turn's
        rig.agent.new()


PASSING: list[tuple[Any, str]] = [
    (fault(429), "rate limit"),
    (fault(429, retry_after=0.01), "rate limit"),
    (fault(429, retry_after_ms=10), "rate limit"),
    (fault(429, retry_after=86_400), "the server asks for 86,400 s, trying after 0.05 s"),
    (fault(500), "fails (500)"),
    (fault(503), "fails (503)"),
    (fault(529), "overloaded"),
    (fault(400, should_retry=True), "(400)"),
    (cut(text(STORY), "eof", after_events=0), "ended before"),
    (cut(text(STORY), "reset", after_events=1), "broke"),
    (cut(text(STORY), "error", after_events=2), "overloaded"),
]


def test_a_passing_failure_is_one_status_line_and_then_the_answer(rig: Rig) -> None:
    for number, (scripted, says) in enumerate(PASSING, 1):
        rig.server.script(scripted, text("here it is"))
        result = rig.fault_turn()
        assert (result.status, result.text, result.message) == ("finished", "here it is", "")
        retries = rig.of(Retrying)
        assert len(retries) == number
        assert says in retries[-1].reason
        assert retries[-1].seconds <= 0.05


def test_a_server_that_stays_busy_ends_in_one_line_that_says_what_to_do(rig: Rig) -> None:
    rig.server.script(*[fault(529, message="Overloaded")] * 3)
    result = rig.fault_turn()
    assert result.status == "failed"
    assert "overloaded" in result.message
    assert "run the cell again" in result.message


@pytest.mark.parametrize("how", ["eof", "drop", "reset", "hang", "error", "bad_json"])
def test_a_stream_cut_at_any_byte_loses_nothing_that_was_shown(
    make_rig: Callable[..., Rig], server: PracticeServer, how: How
) -> None:
    rig = make_rig(request_timeout=0.4 if how == "hang" else 20.0)
    dice = random.Random(how)
    places = [dice.randrange(20, 5000) for _ in range(3 if how == "hang" else 6)]
    told = 0
    for place in places:
        reply = calls([("glob", {"pattern": "*.py"}), ("glob", {"pattern": "*.md"})], say=STORY, thinking="Hm. " * 20)
        server.script(cut(reply, how, after_bytes=place, seconds=2.0), text("done"))
        result = rig.turn("look")
        one_line(result.message)
        assert result.status == "finished", (place, result.message)
        story, done = rig.streamed().partition("done")[:2]
        assert done == "done", place
        assert STORY.startswith(story.strip()), place
        told += story != ""
        transcript = "".join(getattr(event, "text", "") for event in rig.events())
        assert story in transcript
        body = server.messages[-1].body or {}
        sent = [block.get("text", "") for message in body["messages"] for block in message["content"]]
        assert any(story.strip() in said for said in sent), place
        assert [exchange.error for exchange in server.refused] == [], place
        assert server.scripted == 0, place
    assert told >= 1, "no cut met the text"
    rig.fault_turn()


def test_a_stream_that_breaks_in_mid_text_is_asked_to_go_on_once(rig: Rig) -> None:
    rig.server.script(cut(text(STORY), "reset", after_events=6), text("and the rest"))
    result = rig.fault_turn()
    assert (result.status, result.text) == ("finished", "and the rest")
    assert len(rig.server.messages) == 3
    rig.server.script(cut(text(STORY), "eof", after_events=6), cut(text(STORY), "eof", after_events=6))
    result = rig.fault_turn()
    assert result.status == "failed"
    assert "what arrived is kept" in result.message


def test_half_a_tool_call_is_never_run(rig: Rig) -> None:
    code = "ran = 1"
    rig.server.script(cut(tool("python", {"code": code}, say="I run it."), "reset", after_events=8), text("done"))
    assert rig.fault_turn().status == "finished"
    assert "ran" not in rig.agent.shell.user_ns


def test_a_whole_call_before_the_break_is_run_once(rig: Rig) -> None:
    reply = calls([("python", {"code": "n = globals().get('n', 0) + 1"}), ("python", {"code": "m = 1"})])
    rig.server.script(cut(reply, "reset", after_events=-5), text("done"))
    assert rig.fault_turn().status == "finished"
    assert rig.agent.shell.user_ns["n"] == 1
    assert "m" not in rig.agent.shell.user_ns


def test_an_error_after_the_last_block_keeps_the_reply(rig: Rig) -> None:
    rig.server.script(late_error(text(STORY)), text("the end"))
    result = rig.fault_turn()
    assert (result.status, result.text) == ("finished", "the end")


def test_a_mangled_event_does_not_end_the_session(rig: Rig) -> None:
    for how in ("bad_json", "bad_sse"):
        rig.server.script(malformed(text(STORY), how), text("the end"))
        assert rig.fault_turn().status == "finished"


def test_a_refused_request_names_its_id_and_a_report_without_secrets(rig: Rig) -> None:
    rig.server.script(fault(400, message="something about messages that nobody expected"))
    result = rig.fault_turn(f"my token is {OTHER} and password = hunter2hunter2")
    assert result.status == "failed"
    assert "something about messages" in result.message
    assert rig.server.messages[0].request_id in result.message
    [report] = rig.agent.session.journal.folder.glob("bug-report-*.json")
    assert str(report) in result.message
    written = report.read_text(encoding="utf-8")
    assert OTHER not in written
    assert "hunter2hunter2" not in written
    found = json.loads(written)
    assert found["request"]["messages"][0]["role"] == "user"
    assert found["versions"]["anthropic"]
    assert rig.server.messages[0].request_id in found["what"]


def test_without_any_credentials_the_hint_is_raised_before_the_turn(
    monkeypatch: pytest.MonkeyPatch, home: Path, make_rig: Callable[..., Rig], server: PracticeServer
) -> None:
    monkeypatch.delenv("ANTHROPIC_API_KEY")
    monkeypatch.setenv("HOME", str(home))
    rig = make_rig()
    rig.settings.base_url = ""
    with pytest.raises(NoCredentials, match="%agent model practice"):
        rig.turn()
    monkeypatch.setenv("ANTHROPIC_CONFIG_DIR", str(home / "no-profile"))
    with pytest.raises(NoCredentials, match="ANTHROPIC_API_KEY"):
        rig.turn()
    rig.settings.base_url = server.url
    server.script(text("welcome"))
    assert rig.turn().text == "welcome"


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs a device that is always full")
def test_a_full_disk_ends_the_turn_in_one_line(rig: Rig) -> None:
    rig.turn("begin")
    journal = rig.agent.session.journal

    def fill(body: dict[str, Any]) -> Reply:
        full = os.open("/dev/full", os.O_WRONLY)
        os.dup2(full, journal._fd)
        os.close(full)
        return text(STORY)

    rig.server.script(tool("python", {"code": "1"}), fill)
    result = rig.turn("go")
    assert result.status == "failed"
    one_line(result.message)
    assert "cannot write" in result.message
    assert isinstance(rig.seen.events[-1], TurnEnded)


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs a device that is always full")
def test_a_disk_that_fills_while_code_runs_does_not_leave_it_behind(rig: Rig) -> None:
    rig.turn("begin")
    rig.agent.shell.user_ns["journal"] = rig.agent.session.journal
    code = (
        "import os, time\nfull = os.open('/dev/full', os.O_WRONLY)\nos.dup2(full, journal._fd)\n"
        "for step in range(20):\n    print(step, flush=True)\n    time.sleep(0.01)"
    )
    rig.server.script(tool("python", {"code": code}))
    result = rig.turn("go")
    assert result.status == "failed"
    assert "cannot write" in result.message
    assert rig.agent.shell.user_ns["step"] == 19  # it ran to its end before the turn said so


class Breaking(Person):
    """A front-end that goes away in the middle of a turn."""

    def show(self, event: Event) -> None:
        super().show(event)
        if len(self.events) > 4:
            raise ConnectionError("the front-end is gone")


def test_a_front_end_that_breaks_leaves_the_session_whole(rig: Rig) -> None:
    rig.server.script(tool("python", {"code": "n = 1"}), text("ok"))
    result = rig.turn(person=Breaking(can_ask=False))
    assert result.status == "failed"
    assert "the front-end is gone" in result.message
    assert isinstance(rig.events()[-1], TurnEnded)
    rig.server._queue.clear()
    rig.server.script(text("welcome back"))
    assert rig.turn().text == "welcome back"
    assert [exchange.error for exchange in rig.server.refused] == []


def test_results_of_refused_calls_say_why(rig: Rig) -> None:
    rig.server.script(tool("python", {"code": "1 +"}), text("ok"))
    rig.turn()
    [result] = rig.results()
    assert result["is_error"]
    assert "SyntaxError" in result_text(result)
