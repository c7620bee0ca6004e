"""What a model does wrong without noticing is said: repeated failures, calls written as text, thinking as text."""

from __future__ import annotations

import time

from loop.loop_rig import Rig, result_text

from ipyagent.journal.events import LayerFailed, SystemReminder, ToolCalled
from ipyagent.loop.tool_calls import MOST_SAME, SAME_FAILURE, is_empty, written_call
from ipyagent.practice.replies import calls, text, tool

NAMES = ("read_file", "python", "plan", "shell")
ARGUMENTS = '{"path": "a.csv"}'
CALLS = {
    "hermes": f'Let me look.\n<tool_call>\n{{"name": "read_file", "arguments": {ARGUMENTS}}}\n</tool_call>',
    "qwen": "<tool_call>\n<function=read_file>\n<parameter=path>\na.csv\n</parameter>\n</function>\n</tool_call>",
    "glm": "<tool_call>read_file\n<arg_key>path</arg_key>\n<arg_value>a.csv</arg_value>\n</tool_call>",
    "invoke": 'count\n<invoke name="python">\n<parameter name="code">1+1</parameter>\n</invoke>',
    "function_calls": '<function_calls>\n<invoke name="python">\n</invoke>\n</function_calls>',
    "llama json": '{"name": "read_file", "parameters": {"path": "a.csv"}}',
    "llama tag": "<|python_tag|>import pandas as pd",
    "llama function": f"<function=read_file>{ARGUMENTS}</function>",
    "mistral": f'[TOOL_CALLS] [{{"name": "read_file", "arguments": {ARGUMENTS}}}]',
    "mistral new": f"[TOOL_CALLS]read_file[ARGS]{ARGUMENTS}",
    "fence": f'I will read it:\n```json\n{{"name": "read_file", "arguments": {ARGUMENTS}}}\n```',
    "openai": f'```json\n{{"type": "function", "function": {{"name": "python", "arguments": {ARGUMENTS}}}}}\n```',
    "deepseek": "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>read_file\n```json\n{}\n```",
    "kimi": "<|tool_calls_section_begin|><|tool_call_begin|>functions.read_file:0<|tool_call_argument_begin|>{}",
    "granite": f'<|tool_call|>[{{"name": "read_file", "arguments": {ARGUMENTS}}}]',
    "gpt-oss": '<|channel|>commentary to=functions.read_file <|constrain|>json<|message|>{"path": "a.csv"}',
    "gemma": '```tool_code\nread_file(path="a.csv")\n```',
    "gemini": "<call:default_api:read_file{path:a.csv}/>",
    "pythonic": '[read_file(path="a.csv")]',
    "react": "Thought: look\nAction: read_file\nAction Input: a.csv",
    "thought first": f'<think>hm</think>\n<tool_call>{{"name": "python", "arguments": {ARGUMENTS}}}</tool_call>',
}
NO_CALLS = {
    "prose": "The mean is 4.2. I used python to read the file.",
    "quoted": "Qwen writes `<tool_call>{\"name\": \"python\"}</tool_call>` where others send JSON.",
    "code": '```python\nprint("<tool_call> read_file")\n```',
    "other json": '```json\n{"name": "Anna", "input": 3}\n```',
    "config": '{"name": "my-project", "parameters": {"a": 1}}',
    "link": "[plan](plan.md) and more",
    "action": "Action: plan the next step\nThen run python.",
    "only thought of": "<think>maybe <tool_call> python</think>\nThe answer is 4.",
    "table": "| name | python |\n|---|---|\n| a | 1 |",
}


def test_a_call_written_as_text_is_told_from_text() -> None:
    for name in CALLS:
        assert written_call(CALLS[name], NAMES) != ""


def test_text_is_no_call() -> None:
    for name in NO_CALLS:
        assert written_call(NO_CALLS[name], NAMES) == ""


def test_looking_for_written_calls_is_linear() -> None:
    for piece in ("<tool_call>", "```json\n{", "<think>", "`x` ", "[a(", "Action:\n", '{"name": "a" '):
        times = []
        for count in (5_000, 20_000):
            said = piece * count
            began = time.perf_counter()
            written_call(said, NAMES)
            times.append(time.perf_counter() - began)
        assert times[1] < 10 * times[0] + 0.05, piece


def test_a_call_written_as_text_is_not_run_and_a_real_one_is_asked_for_once(rig: Rig) -> None:
    rig.server.script(text(CALLS["hermes"]), tool("python", {"code": "6 * 7"}), text("42"))
    result = rig.turn("go")
    assert (result.status, result.text) == ("finished", "42")
    [note] = rig.of(SystemReminder)
    assert note.why == "The model wrote a tool call as text (<tool_call>); nothing was run, asking for a real call"
    assert note.text.startswith("Your last reply has a tool call written as text (<tool_call>); nothing was run.")
    assert len(rig.of(ToolCalled)) == 1
    rig.server.script(text(CALLS["llama tag"]), text(CALLS["llama tag"]))
    assert rig.turn("go").status == "finished"
    [said] = [event.why for event in rig.of(LayerFailed)]
    assert said.startswith("The model wrote a tool call as text again (<|python_tag|>); nothing was run")


def test_thinking_as_text_is_said_once_and_alone_is_no_answer(rig: Rig) -> None:
    rig.server.script(text("<think>\nhm\n</think>\nIt is 4."), text("still thinking</think>\nAnd 5."))
    assert rig.turn("a").text.endswith("It is 4.")
    assert rig.turn("b").status == "finished"
    [said] = [event.why for event in rig.of(LayerFailed)]
    assert said.startswith("The model's thinking came as text of its answer (<think>)")
    assert is_empty(({"type": "text", "text": "<think>hm"},))
    rig.server.script(text("<think>hm</think>"), text("Done."))
    assert rig.turn("c").text == "Done."


def test_the_third_same_failure_is_told_to_the_model_and_the_sixth_ends_the_turn(rig: Rig) -> None:
    fails = tool("python", {"code": "1 / 0"})
    rig.server.script(*[fails] * MOST_SAME, text("not reached"))
    result = rig.turn("go")
    assert result.status == "limit"
    assert result.message.startswith("python failed 6 times with the same input and the same error")
    told = [result_text(block).endswith(SAME_FAILURE.format(count=3)) for block in rig.results()]
    assert told.count(True) == 1
    assert told.index(True) == 2


def test_what_fails_twice_in_one_message_counts_once(rig: Rig) -> None:
    rig.server.script(calls([("python", {"code": "1 / 0"})] * 8), text("done"))
    assert rig.turn("go").status == "finished"
    assert not any("This very call has failed" in result_text(block) for block in rig.results())


def test_other_failures_and_successes_start_the_count_again(rig: Rig) -> None:
    code = "n = globals().get('n', 0) + 1\nif n != 3: raise ValueError('no' if n != 5 else 'other')"
    rig.server.script(*[tool("python", {"code": code})] * 6, text("done"))
    assert rig.turn("go").status == "finished"
    assert not any("This very call has failed" in result_text(block) for block in rig.results())
