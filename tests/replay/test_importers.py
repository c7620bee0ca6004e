"""A recording is read from each format as what was said, called and given, in the order of the wire."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from ipyagent.errors import UsageError
from ipyagent.journal.events import AssistantMessage, SessionStarted, ToolReturned, UserMessage
from ipyagent.journal.journal import Journal
from ipyagent.replay.importers import read_claude_code, read_recording
from ipyagent.replay.recording import Recording


def write(path: Path, *lines: Any) -> Path:
    path.write_text("".join((line if isinstance(line, str) else json.dumps(line)) + "\n" for line in lines))
    return path


def said(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text}


def shape(recording: Recording) -> list[Any]:
    """Turns as nested lists of the texts, call names and results in them."""
    return [
        [
            "".join(block["text"] for block in turn.asked),
            *(
                [
                    [block.get("text") or block.get("thinking") or block["name"] for block in made.blocks],
                    [result.blocks[0]["text"] for result in made.results.values()],
                ]
                for made in turn.rounds
            ),
        ]
        for turn in recording.turns
    ]


WANTED = [
    ["look", [["let me see", "I look", "read", "read"], ["one", "two"]], [["done"], []]],
    ["and now\nthe other", [["fine"], []]],
]


def pi(role: str, *content: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"type": "message", "timestamp": "2026", "message": {"role": role, "content": list(content), **more}}


def test_pi_sessions_are_read(tmp_path: Path) -> None:
    path = write(
        tmp_path / "s.jsonl",
        {"type": "session", "id": "1", "cwd": "/home/user"},
        pi("user", said("look")),
        {"type": "model_change", "modelId": "x"},
        pi(
            "assistant",
            {"type": "thinking", "thinking": "let me see", "thinkingSignature": "abc"},
            said("I look"),
            {"type": "toolCall", "id": "a|b", "name": "read", "arguments": {"path": "x"}},
            {"type": "toolCall", "id": "c", "name": "read", "arguments": {"path": "y"}},
        ),
        pi("toolResult", said("one"), toolCallId="a|b", toolName="read"),
        pi("toolResult", said("two"), toolCallId="c", toolName="read", isError=True),
        pi("assistant", said("done")),
        pi("user", said("and now\n")),
        pi("assistant"),
        pi("user", said("the other")),
        pi("assistant", said("fine")),
    )
    made = read_recording(path)
    assert shape(made) == WANTED
    assert [result.is_error for result in made.turns[0].rounds[0].results.values()] == [False, True]
    assert made.turns[0].rounds[0].blocks[0]["signature"] == ""
    assert made.tool_inputs == {"read": ["path"]}


def claude(type: str, uuid: str, parent: str | None, content: Any, **more: Any) -> dict[str, Any]:
    message = {"role": type, "content": content, **({"id": more.pop("message")} if "message" in more else {})}
    return {"type": type, "uuid": uuid, "parentUuid": parent, "sessionId": "s", "message": message, **more}


THOUGHT = {"type": "thinking", "thinking": "let me see", "signature": "x"}


def use(call: str) -> dict[str, Any]:
    return {"type": "tool_use", "id": call, "name": "read", "input": {"path": "x"}}


def given(call: str, content: Any) -> list[dict[str, Any]]:
    return [{"type": "tool_result", "tool_use_id": call, "content": content}]


def test_claude_code_sessions_are_read_without_what_was_not_said(tmp_path: Path) -> None:
    path = write(
        tmp_path / "s.jsonl",
        {"type": "summary", "summary": "A title", "leafUuid": "u9"},
        claude("user", "u0", None, "caveat", isMeta=True),
        claude("user", "u1", "u0", "look"),
        claude("assistant", "b1", "u1", [said("went another way")], message="m0"),
        claude("assistant", "a1", "u1", [THOUGHT], message="m1"),
        claude("assistant", "a2", "a1", [said("I look")], message="m1"),
        claude("assistant", "a3", "a2", [use("t1")], message="m1"),
        claude("user", "r1", "a3", given("t1", "one")),
        claude("assistant", "a4", "a3", [use("t2")], message="m1"),
        claude("user", "r2", "a4", given("t2", [said("two")])),
        claude("assistant", "side", None, [said("a sub-agent")], isSidechain=True, message="m8"),
        claude("assistant", "a5", "r2", [said("done")], message="m2"),
        {"type": "system", "uuid": "s1", "parentUuid": "a5", "subtype": "compact_boundary"},
        claude("user", "u2", "s1", "earlier: …", isCompactSummary=True),
        claude("user", "u3", "u2", "and now\n"),
        "{not json",
        claude("user", "u4", "u3", [said("the other")]),
        claude("assistant", "a6", "u4", [said("fine")], message="m3"),
    )
    made = read_recording(path)
    assert shape(made) == [["caveatlook", *WANTED[0][1:]], WANTED[1]]
    assert made.turns[0].text == "look"
    assert made.problems == ("line 16: not JSON",)
    assert made.left_out == {"lines of branches that were left": 1, "lines of sub-agents": 1}


def test_our_own_transcript_is_read(tmp_path: Path) -> None:
    journal = Journal.create(tmp_path, SessionStarted(session="s", version="1"))
    journal.append(UserMessage(text="look", blocks=(said("look"),)))
    journal.append(AssistantMessage(blocks=(said("I look"), use("t1"))))
    journal.append(ToolReturned(call="t1", name="read", blocks=(said("one"),)))
    journal.append(AssistantMessage(blocks=(said("done"),)))
    journal.close()
    wanted = [["look", [["I look", "read"], ["one"]], [["done"], []]]]
    assert shape(read_recording(journal.folder)) == shape(read_recording(journal.path)) == wanted


@pytest.mark.parametrize(
    ("lines", "why"),
    [(["{}"], "is not an ipyagent transcript"), (["what"], "is not a session"), ([], "is not a session"),
     ([{"type": "session", "cwd": "/"}], "contains no answered turn")],
)  # fmt: skip
def test_what_is_no_session_is_refused_with_a_reason(tmp_path: Path, lines: list[Any], why: str) -> None:
    with pytest.raises(UsageError, match=why):
        read_recording(write(tmp_path / "s.jsonl", *lines))


def test_lines_that_no_reader_can_follow_are_reported_and_the_others_read(tmp_path: Path) -> None:
    deep = '{"type": "message", "message": {"role": "user", "content": ' + "[" * 100_000 + "]" * 100_000 + "}}"
    call = {"type": "toolCall", "id": "1", "name": "b", "arguments": {"\ud800": "\ud800"}}
    path = write(tmp_path / "pi.jsonl", {"type": "session", "cwd": "/"}, deep, pi("user", said("hi")),
                 pi("assistant", said("ok \udfff"), call),
                 pi("toolResult", said("was \ud800"), toolCallId="1"))  # fmt: skip
    made = read_recording(path)
    assert made.problems == ("line 2: nested too deeply",)
    assert json.dumps([turn.rounds[0].blocks for turn in made.turns], ensure_ascii=False).encode()
    assert shape(made) == [["hi", [["ok ?", "b"], ["was ?"]]]]
    lines = [
        {"type": kind, "uuid": uuid, "parentUuid": parent, "sessionId": "s", "message": {"content": words, "id": uuid}}
        for kind, uuid, parent, words in [
            ("user", "1", None, "hi"), ("user", ["l"], {"a": 1}, "x"), ("assistant", "2", "1", "done")
        ]
    ]  # fmt: skip
    made = read_recording(write(tmp_path / "cc.jsonl", *lines))
    assert shape(made) == [["hi", [["done"], []]]]
    assert made.problems == ("line 2: its place in the conversation is unknown",)


def test_a_file_without_parents_is_read_in_its_order_and_a_sub_agents_own_file_is_its_conversation() -> None:
    flags: dict[str, Any]
    for flags in ({}, {"isSidechain": True}):
        lines = [
            claude("user", "u1", None, "one", **flags),
            claude("assistant", "a1", None, [said("first")], message="m1", **flags),
            claude("user", "u2", None, "two", **flags),
            claude("assistant", "a2", None, [said("second")], message="m2", **flags),
        ]
        read = read_claude_code(enumerate(lines, 1))
        assert len(read.turns) == 2, flags
        assert not read.problems


def test_times_and_bills_are_read_and_what_has_no_place_is_counted(tmp_path: Path) -> None:
    def billed(read: int, written: int) -> dict[str, Any]:
        return {"input_tokens": 1, "cache_read_input_tokens": read, "cache_creation_input_tokens": written}

    def line(at: str, made: dict[str, Any], usage: dict[str, Any] | None = None) -> dict[str, Any]:
        message = {**made["message"], **({"usage": usage} if usage else {})}
        return {**made, "timestamp": f"2026-01-01T10:{at}Z", "message": message}

    path = write(
        tmp_path / "s.jsonl",
        line("00:00", claude("user", "1", None, "look")),
        line("00:09", claude("assistant", "2", "1", [use("t1")], message="m1"), billed(0, 9_000)),
        line("00:10", claude("user", "3", "2", given("t1", "one") + given("of another", "lost"))),
        line("00:19", claude("assistant", "4", "3", [said("done"), use("t2")], message="m2"), billed(9_000, 50)),
        line("01:00", claude("user", "5", "4", "again")),
        line("01:05", claude("assistant", "6", "5", [said("ok")], message="m3"), billed(0, 9_900)),
        line("02:00", claude("user", "7", "6", "summary", isCompactSummary=True)),
        line("02:01", claude("user", "8", "7", "more")),
        line("02:05", claude("assistant", "9", "8", [said("yes")], message="m4"), billed(0, 5_000)),
        line("03:00", claude("user", "10", "9", "nobody answers")),
    )
    made = read_recording(path)
    rounds = [one for turn in made.turns for one in turn.rounds]
    assert made.timed
    assert [one.at - rounds[0].at for one in rounds] == [0, 10, 60, 121]
    assert [one.cold for one in rounds] == [False, False, True, False]  # a compaction is no fault of the provider
    assert (made.usage.cache_read, made.usage.cache_write) == (9_000, 23_950)
    assert made.left_out == {
        "results without their call": 1, "requests that nobody answered": 1, "calls without a result": 1
    }  # fmt: skip
    assert not read_recording(write(tmp_path / "t.jsonl", claude("user", "1", None, "hi"),
                                    claude("assistant", "2", "1", [said("ok")]))).timed  # fmt: skip
