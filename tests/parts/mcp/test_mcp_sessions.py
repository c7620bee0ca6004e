"""Outside tools in a session: listed, asked about, called, and what a bad server cannot do to it."""

from __future__ import annotations

import json
import sys
import threading
import time
from pathlib import Path

import odd_server
import pytest
from mcp_room import ODD, McpRoom, gone, odd, said

from ipyagent import sandbox
from ipyagent.journal.events import PermissionAnswered, Streamed, ToolCalled, TurnEnded
from ipyagent.parts.mcp.listing import server_part
from ipyagent.practice.replies import text
from ipyagent.practice.replies import tool as calls

pytestmark = pytest.mark.timeout(60)


def test_tools_of_a_server_are_listed_behind_our_own_in_stable_order_and_called(mcp_room: McpRoom) -> None:
    mcp_room.settings["mcp_inline_tools"] = 100
    mcp_room.put({"z": odd(), "a": odd()})
    result = mcp_room.one("mcp__a__echo", text="heron")
    assert (said(result), result.is_error) == ("heron", False)
    outside = [name for name in mcp_room.listed() if name.startswith("mcp__")]
    assert len(outside) == 38
    assert outside == sorted(outside)
    assert mcp_room.listed()[-38:] == outside
    (search,) = (tool for tool in mcp_room.server.messages[-1].body["tools"] if tool["name"] == "tool_search")
    assert "mcp__" not in search["description"]
    assert [head.why for head in mcp_room.heads()] == [""]
    mcp_room.agent.new()
    mcp_room.ask()
    assert [name for name in mcp_room.listed() if name.startswith("mcp__")] == outside


def test_many_tools_are_found_by_a_search_and_called_without_another_byte_in_the_head(mcp_room: McpRoom) -> None:
    mcp_room.put({"firm": odd("many")})
    found, called, wrong = mcp_room.ask(
        ("tool_search", {"query": "create an invoice"}),
        ("call_tool", {"name": "mcp__firm__create_invoice", "arguments": {"text": "42 euros"}}),
        ("call_tool", {"name": "mcp__firm__create_invoize", "arguments": {}}),
    )
    assert said(found).index("mcp__firm__create_invoice") < said(found).index('"properties"')
    assert said(called) == 'create_invoice {"text": "42 euros"}'
    assert wrong.is_error
    assert "mcp__firm__create_invoice" in said(wrong)
    heads = {json.dumps([message.body["system"], message.body["tools"]]) for message in mcp_room.server.messages
             if message.body}  # fmt: skip
    assert len(heads) == 1
    assert not any(name.startswith("mcp__") for name in mcp_room.listed())
    names = [event.name for event in mcp_room.events() if isinstance(event, ToolCalled)]
    assert names == ["tool_search", "mcp__firm__create_invoice"]


def test_a_found_tool_asks_under_its_own_name_and_a_rule_for_it_counts(mcp_room: McpRoom) -> None:
    mcp_room.settings["mode"] = "ask"
    mcp_room.put({"firm": odd("many")})
    call = ("call_tool", {"name": "mcp__firm__get_ticket", "arguments": {"text": "7"}})
    denied = mcp_room.ask(call)[0]
    assert denied.is_error
    assert "%agent allow mcp__firm__get_ticket" in said(denied)
    mcp_room.agent.permissions.remember("mcp__firm__get_ticket")
    assert said(mcp_room.ask(call)[0]) == 'get_ticket {"text": "7"}'
    other = mcp_room.one("call_tool", name="mcp__firm__delete_ticket", arguments={"text": "7"})
    assert other.is_error


def test_each_call_asks_and_a_destructive_one_also_in_mode_auto(mcp_room: McpRoom) -> None:
    mcp_room.put({"a": odd()})
    erased = mcp_room.one("mcp__a__erase")
    assert erased.is_error
    assert "may destroy something" in said(erased)
    mcp_room.agent.settings.mode = "read_only"
    assert "read_only" in said(mcp_room.one("mcp__a__fail"))
    answers = [event for event in mcp_room.events() if isinstance(event, PermissionAnswered)]
    assert [answer.answer for answer in answers] == ["deny", "deny"]


def test_every_kind_of_result_becomes_blocks(mcp_room: McpRoom) -> None:
    mcp_room.put({"a": odd()})
    began = time.monotonic()
    kinds, failed, refused, structured, surrogates, big = mcp_room.ask(
        *((f"mcp__a__{name}", {}) for name in ("kinds", "fail", "refuse", "structured", "surrogates", "big"))
    )
    assert time.monotonic() - began < 20
    assert [block["type"] for block in kinds.blocks] == ["text", "image"]
    for words in ("five kinds", "audio/wav, 1,000 bytes, kept in", "inner text", "application/zip", "a link at x://l"):
        assert words in said(kinds)
    kept = said(kinds).split("audio/wav, 1,000 bytes, kept in ")[1].split("]")[0]
    assert (mcp_room.root / kept).read_bytes() == b"\x00\x01" * 500
    assert (failed.is_error, said(failed)) == (True, "it went wrong")
    assert (refused.is_error, "not today" in said(refused)) == (True, True)
    assert json.loads(said(structured)) == {"rows": [1, 2, 3], "name": "t"}
    assert said(surrogates) in ("a\ufffdb", "a?b")
    assert not big.is_error
    assert len(said(big)) < 30_000, "five megabytes are kept in a file with a preview"
    assert len(json.dumps(mcp_room.server.messages[-1].body)) < 400_000


def test_what_servers_do_in_a_call_does_not_hurt_the_session(mcp_room: McpRoom) -> None:
    mcp_room.settings |= {"mcp_timeout": 20.0, "mcp_inline_tools": 1_000, "mcp_inline_percent": 100.0}
    tools = ("babble", "garble", "hang", "huge", "tap", "die")
    mcp_room.put({**{tool: odd(timeout=1.0 if tool == "hang" else 20.0) for tool in tools}, "b": odd()})
    for tool in tools:
        first, *others = mcp_room.ask(
            (f"mcp__{tool}__{tool}", {}), ("mcp__b__echo", {"text": "b"}), (f"mcp__{tool}__echo", {"text": "a"})
        )
        assert first.is_error == (tool != "babble"), said(first)
        assert [said(result) for result in others] == ["b", "a"], tool


def test_a_server_that_dies_is_started_once_more_and_then_its_tools_say_so(mcp_room: McpRoom) -> None:
    mcp_room.put({"a": odd()})
    first, echo, second, last = mcp_room.ask(
        ("mcp__a__die", {}), ("mcp__a__echo", {"text": "again"}), ("mcp__a__die", {}), ("mcp__a__echo", {"text": "x"})
    )
    assert "status 3 (about to die)" in said(first)
    assert said(echo) == "again"
    assert second.is_error
    assert "%agent mcp restart a" in said(last)
    assert "mcp__a__echo" in mcp_room.listed()
    mcp_room.ask()
    assert any("a does not run" in line for line in mcp_room.agent.notices)


def test_a_server_that_does_not_start_costs_a_line_and_nothing_else(mcp_room: McpRoom) -> None:
    mcp_room.settings |= {"mcp_startup_timeout": 1.0}
    modes = {"dead": odd("dead"), "mute": odd("mute"), "none": {"command": "no-such-command-at-all"}}
    mcp_room.put({**modes, "good": odd(), "broken": {"args": 5}, "unset": odd(env={"K": "${IPYAGENT_NOT_SET}"})})
    assert said(mcp_room.one("mcp__good__echo", text="fine")) == "fine"
    notices = "\n".join(mcp_room.agent.notices)
    for words in ("status 7 (no good reason)", "mute does not run: it did not answer within 1 s",
                  "'broken' was left out", "no command 'no-such-command-at-all'", "IPYAGENT_NOT_SET"):  # fmt: skip
        assert words in notices
    before = len(mcp_room.agent.notices)
    mcp_room.ask()
    assert len(mcp_room.agent.notices) == before


def test_stop_ends_a_call_within_300_ms_and_the_server_serves_on(mcp_room: McpRoom) -> None:
    mcp_room.settings["mcp_timeout"] = 30.0
    mcp_room.put({"a": odd()})
    mcp_room.ask()
    mcp_room.server.script(calls("mcp__a__hang", {}), text("never"))
    stopped: list[float] = []

    def stop() -> None:
        until = time.monotonic() + 10
        while time.monotonic() < until and not any(
            isinstance(event, ToolCalled) and event.name == "mcp__a__hang" for event in mcp_room.events()
        ):
            time.sleep(0.02)
        time.sleep(0.1)
        stopped.append(time.monotonic())
        mcp_room.agent.stop()

    thread = threading.Thread(target=stop)
    thread.start()
    result = mcp_room.agent.run_sync("hang")
    ended = time.monotonic()
    thread.join()
    assert result.status == "stopped"
    assert ended - stopped[0] < 0.3
    mcp_room.server.next_reply({"messages": [], "model": ""})  # the reply that was not asked for
    assert said(mcp_room.one("mcp__a__echo", text="still")) == "still"


def test_progress_is_shown_and_puts_the_time_out_off(mcp_room: McpRoom) -> None:
    mcp_room.settings["mcp_timeout"] = 0.6
    mcp_room.put({"a": odd()})
    assert said(mcp_room.one("mcp__a__progress")) == "all steps done"
    shown = "".join(event.text for event in mcp_room.events() if isinstance(event, Streamed))
    assert "step 0 (0 of 8)" in shown


def test_tools_of_any_name_and_schema_are_made_fit_and_their_server_stays(mcp_room: McpRoom) -> None:
    mcp_room.settings["mcp_inline_tools"] = 100
    mcp_room.put({"O/o": odd("odd"), "b": odd()})
    mcp_room.ask()
    head = f"mcp__{server_part('O/o')}__"
    tools = {name.removeprefix(head): name for name in mcp_room.listed() if name.startswith(head)}
    assert len(tools) == len(odd_server.ODD) + len(odd_server.SCHEMAS)
    assert set(odd_server.SCHEMAS) <= set(tools)
    assert all(len(name) <= 64 and name.replace("_", "").replace("-", "").isalnum() for name in tools.values())
    body = mcp_room.server.messages[-1].body
    shown = {tool["name"].removeprefix(head): tool for tool in body["tools"]}
    assert all(tool["input_schema"]["type"] == "object" for tool in shown.values())
    assert shown["sound"]["input_schema"] == odd_server.TEXT
    for name in ("bad_key", "combined", "invalid", "remote"):
        found = next(tool for key, tool in shown.items() if key.startswith(name))
        assert found["input_schema"] == {"type": "object", "properties": {}, "additionalProperties": True}
        assert "JSON schema" in found["description"]
    spaced = next(name for name in tools if "mit_Leerzeichen" in name)
    called = {spaced: "mit Leerzeichen/und.Punkt"}
    called |= {name: name for name in ("null", "types", "one_of", "list", "odd_words", "odd_hints")}
    results = mcp_room.ask(*((tools[name], {"text": "x"}) for name in called), ("mcp__b__echo", {"text": "b"}))
    assert [said(result) for result in results] == [*(f'{name} {{"text": "x"}}' for name in called.values()), "b"]
    (told,) = (line for line in mcp_room.agent.notices if "without a name" in line)
    assert f"{len(odd_server.NAMELESS)} tools" in told


def test_an_odd_answer_is_read_as_far_as_it_can_be_and_the_server_serves_on(mcp_room: McpRoom) -> None:
    mcp_room.settings["mcp_timeout"] = 3.0
    mcp_room.put({"a": odd("answers")})
    names = (*odd_server.ANSWERS, "twice", "early")
    results = dict(zip(names, mcp_room.ask(*((f"mcp__a__{name}", {}) for name in names)), strict=True))
    right = {
        "null_content": "(no result)", "no_content": "(no result)", "text_content": "plain words",
        "object_content": "one block", "extra": "said", "null_error": "fine", "word_error": "wrong", "twice": "first",
        "early": "late",
    }  # fmt: skip
    assert {name: said(results[name]) for name in right} == right
    assert [name for name in names if results[name].is_error] == ["null_result", "word_error"]
    assert "hologram" in said(results["unknown"])
    assert "and words" in said(results["unknown"])
    assert said(results["broken_blocks"]).endswith("left")
    assert json.loads(said(results["odd_structure"])) == [1, 2]
    assert said(mcp_room.one("mcp__a__echo", text="still")) == "still"
    assert [line for line in mcp_room.agent.notices if "does not run" in line] == []


def test_a_server_gets_no_key_and_starts_in_the_project_and_tools_that_it_adds_come_with_the_next_request(
    mcp_room: McpRoom, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MY_SECRET", "hush")
    monkeypatch.setenv("MY_REGION", "north")
    mcp_room.put({"a": odd(env={"REGION": "${MY_REGION}", "MODE": "${NOT_SET:-plain}"})})
    told = json.loads(said(mcp_room.one("mcp__a__environment")))
    assert (told["env"]["REGION"], told["env"]["MODE"]) == ("north", "plain")
    assert not {"ANTHROPIC_API_KEY", "MY_SECRET", "MY_REGION"} & set(told["env"])
    assert Path(told["cwd"]) == mcp_room.root
    mcp_room.one("mcp__a__grow")
    assert "mcp__a__grown" not in mcp_room.listed()
    mcp_room.ask()
    assert "mcp__a__grown" in mcp_room.listed()
    assert len(mcp_room.heads()) == 2


@pytest.mark.skipif(not sandbox.find().working, reason="no sandbox works here")
def test_a_server_runs_at_the_level_of_its_entry(mcp_room: McpRoom) -> None:
    script = (
        "import os, sys\n"
        "try: open('made-' + sys.argv[1], 'w').write('x')\n"
        "except OSError: pass\n"
        "open(os.path.join(os.environ.get('TMPDIR', '/tmp'), 'own'), 'w').close()\n"
        f"sys.argv = [{ODD!r}]; exec(compile(open({ODD!r}).read(), 'odd', 'exec'))"
    )
    mcp_room.settings |= {"mcp_inline_tools": 1_000, "mcp_inline_percent": 100.0}
    levels = {"read": False, "project": True, "open": True}
    mcp_room.put(
        {each: {"command": sys.executable, "args": ["-c", script, each], "sandbox": each} for each in levels}
    )
    results = mcp_room.ask(*((f"mcp__{level}__environment", {}) for level in levels))
    assert {level: (mcp_room.root / f"made-{level}").exists() for level in levels} == levels
    told = [json.loads(said(result))["env"].get("TMPDIR", "/tmp") for result in results]
    folders = dict(zip(levels, map(Path, told), strict=True))
    assert [folder.name.startswith("ipyagent-") for folder in folders.values()] == [True, True, False]
    mcp_room.close()
    assert not folders["read"].exists()
    assert not folders["project"].exists()


def test_error_output_goes_to_a_bounded_log_of_the_session(mcp_room: McpRoom) -> None:
    mcp_room.put({"a": odd("noisy")})
    mcp_room.one("mcp__a__echo", text="x")
    time.sleep(0.3)
    assert said(mcp_room.one("mcp__a__echo", text="y")) == "y"
    log = mcp_room.agent.session.journal.folder / "mcp" / "a.log"
    assert 1_000 < log.stat().st_size < 2_100_000


def test_closing_the_agent_leaves_no_process_of_any_server(mcp_room: McpRoom) -> None:
    mcp_room.put({"a": odd("stubborn"), "b": odd()})
    child = int(said(mcp_room.one("mcp__b__spawn")))
    pids = [*mcp_room.processes(), child]
    assert len(pids) >= 3
    began = time.monotonic()
    mcp_room.close()
    assert time.monotonic() - began < 5
    assert gone(pids, within=1)


def test_turns_end_all_the_same_when_a_server_is_off(mcp_room: McpRoom) -> None:
    mcp_room.settings["mcp"] = False
    mcp_room.put({"a": odd()})
    mcp_room.ask()
    assert not any(name.startswith("mcp__") for name in mcp_room.listed())
    assert isinstance(mcp_room.events()[-1], TurnEnded)
