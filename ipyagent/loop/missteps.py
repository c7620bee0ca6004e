"""What a model does wrong without noticing: the same failing call again and again, a tool call written as text,
thinking that its server leaves in the answer. It is said, to the model and to the user; nothing is run for it.

The written forms are those of the chat templates of open models and of calls that leaked into text elsewhere: Hermes,
Qwen and GLM (`<tool_call>`), Llama (`<|python_tag|>`, `<function=…>`), Mistral (`[TOOL_CALLS]`), DeepSeek, Kimi,
Granite, gpt-oss, Gemma (`tool_code`), ReAct, and our own wire's `<invoke name=…>`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable
from itertools import islice

from ipyagent.journal.events import Block, LayerFailed, SystemReminder
from ipyagent.journal.protocols import ModelReply
from ipyagent.journal.tokens import estimate_text
from ipyagent.loop.session import Session

NOTICED, MOST_SAME = 3, 6
"""Times that a call fails in the same way in one turn before the model is told, and before the turn ends."""
SAME_FAILURE = (
    "[This very call has failed {count} times in this turn with the same error. Do not repeat it unchanged: change its "
    "arguments, take another way, or tell the user what stands in the way.]"
)
WRITTEN = (
    "Your last reply has a tool call written as text ({form}); nothing was run. To run it, make a real tool call. If "
    "it was meant as text, finish your answer."
)
_NEAR, _MOST_MARKS = 2_000, 50
"""Characters behind a mark in which the tool's name must stand, and marks that are looked at."""
_MARKS = re.compile(
    r"</?tool_calls?>|<tool_use>|<function_calls>|<invoke name=|<function(?:=| name=)|<call:|<minimax:tool_call>"
    r"|\[TOOL_CALLS\]|<\|python_tag\|>|<\|tool_call(?:_start|_begin|s_section_begin)?\|>|<\|START_ACTION\|>"
    r"|<[|｜]tool[_▁]calls?[_▁]begin[|｜]>|<｜DSML｜|<\|channel\|>commentary to=|```(?:tool_code|tool_call)\b"
    r"|^Action:|^\[(?=\w+\()",
    re.MULTILINE,
)
_OBJECT = re.compile(
    r'"(?:name|tool|tool_name|function|function_name|action|recipient_name)"\s*:\s*(?:\{\s*"name"\s*:\s*)?"([\w.-]{1,64})"'
)
_GIVEN = re.compile(r'"(?:arguments|parameters|input|args|tool_input|tool_args|action_input)"\s*:')
_FENCED = re.compile(r"^```(?:json[c5]?|tool\w*|xml|)[ \t]*\n(.*?)^```", re.DOTALL | re.MULTILINE)
_INLINE = re.compile(r"(?<!`)`[^`\n]+`(?!`)")
_THINK = re.compile(
    r"^[ \t]*<(think|thinking|reasoning)>.*?(?:</\1>|\Z)|\A(?:(?!<think>|`).)*?</think>[ \t]*$",
    re.DOTALL | re.MULTILINE,
)
"""Some templates open it in the prompt, so that only its end is in the reply."""
_VARIES = re.compile(r"0x[0-9a-fA-F]+|\d+(?:\.\d+)?")


class Missteps:
    """Those of one turn."""

    def __init__(self) -> None:
        self._failed: dict[str, tuple[str, int, int]] = {}
        """By call: the failure, how often, and in which message last."""
        self.messages = 0
        """Messages with calls so far: what fails twice in one message counts once, the model has not seen it yet."""
        self._reminded = False
        self.stuck = ""
        """Why the turn is to end ("" while it need not)."""

    def returned(self, call: Block, blocks: Iterable[Block], *, is_error: bool) -> str:
        """Take in a call's result; what is to be said to the model with it, "" for nothing."""
        key = json.dumps([call["name"], call["input"]], sort_keys=True, default=str)
        if not is_error:
            self._failed.pop(key, None)
            return ""
        failure = _VARIES.sub("#", _text(blocks))
        before, count, seen = self._failed.get(key, ("", 0, 0))
        if failure == before and seen == self.messages:
            return ""
        count = count + 1 if failure == before else 1
        self._failed[key] = (failure, count, self.messages)
        if count >= MOST_SAME:
            self.stuck = (
                f"{call['name']} failed {count} times with the same input and the same error; tell it what to do, or "
                "`continue` in a %%agent cell to let it try again"
            )
        return SAME_FAILURE.format(count=count) if count == NOTICED else ""

    def reminded(self, session: Session, reply: ModelReply) -> bool:
        """Say what is wrong with a reply without calls; whether the model is to be asked again, once a turn."""
        text = _text(reply.said.blocks)
        thought = _THINK.search(text)
        if thought is not None and thought.group().strip() and "think" not in session.told:
            session.told.add("think")
            why = "The model's thinking came as text of its answer (<think>): its server does not separate the two."
            session.record(LayerFailed(layer="reply", why=f"{why} A reasoning parser there would"))
        form = written_call(text, session.tools)
        if not form:
            return False
        if self._reminded:
            why = f"The model wrote a tool call as text again ({form}); nothing was run"
            session.record(LayerFailed(layer="reply", why=f"{why}: choose a model or server that makes tool calls"))
            return False
        self._reminded = True
        note = WRITTEN.format(form=form)
        why = f"The model wrote a tool call as text ({form}); nothing was run, asking for a real call"
        session.record(SystemReminder(text=note, why=why, tokens=estimate_text(note)))
        return True


def written_call(text: str, names: Collection[str]) -> str:
    """The form in which a text holds a call of one of these tools ("<tool_call>", "JSON"); "" when it holds none.
    What is quoted in a line, or stands in a fence of code, is no call."""
    text = _THINK.sub("", text)
    bare = _INLINE.sub("", text)
    objects = [match.group(1) for match in _FENCED.finditer(bare)]
    if bare.lstrip().startswith(("{", "[")):
        objects.append(bare)
    outside = re.sub(r"^```(?!tool_c)[^\n]*\n.*?(?:^```|\Z)", "", bare, flags=re.DOTALL | re.MULTILINE)
    for source in (outside, *(one for one in objects if one.lstrip().startswith("<"))):
        for mark in islice(_MARKS.finditer(source), _MOST_MARKS):
            near = source[mark.end() : mark.end() + _NEAR]
            form: str = mark.group()
            match form:
                case "<|python_tag|>":  # there may be bare code behind it
                    meant = True
                case "[":
                    form, meant = "a list", any(near.startswith(f"{name}(") for name in names)
                case "Action:":
                    meant = "\nAction Input:" in near and near.split("\n")[0].strip() in names
                case _:
                    meant = any(_named(near, name) for name in names)
            if meant:
                return form.strip("` =").removesuffix(" name")
    for one in objects:
        found = _OBJECT.search(one)
        if found is not None and found.group(1) in names and _GIVEN.search(one):
            return "JSON"
    return ""


def _named(near: str, name: str) -> bool:
    at = near.find(name)
    before, behind = near[at - 1 : at] if at > 0 else "", near[at + len(name) : at + len(name) + 1]
    return at >= 0 and not (before.isalnum() or before == "_" or behind.isalnum() or behind == "_")


def is_empty(blocks: tuple[Block, ...]) -> bool:
    """Whether a reply has nothing to read: no text beside thinking, whether as blocks or as text."""
    rest = [block for block in blocks if block["type"] not in ("thinking", "redacted_thinking")]
    return all(block["type"] == "text" and not _THINK.sub("", str(block["text"])).strip() for block in rest)


def _text(blocks: Iterable[Block]) -> str:
    return "\n".join(str(block.get("text", "")) for block in blocks if block["type"] == "text")
