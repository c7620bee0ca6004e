"""The practice model: what it answers to a request body. Rules, no language model, and never said to be one.

The same body always gets the same answer. What is known comes from the body alone; numbers come from tool results.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from ipyagent.practice.model import conversation as said_by
from ipyagent.practice.model import forms, lessons, memories, requests, skills, writing
from ipyagent.practice.model.conversation import MARK_EN, MARK_ZH, Conversation, read
from ipyagent.practice.model.recipe import Act, Ending, Recipe, Task
from ipyagent.practice.model.writing import extract
from ipyagent.practice.replies import Reply, calls, text
from ipyagent.practice.server import web
from ipyagent.practice.server.practice_server import smallest

__all__ = ["answer", "extract"]
_END: Final = re.compile(r'<message from="[^"\n]*" kind="shutdown_request">')


def answer(body: Mapping[str, Any]) -> Reply:
    """The reply of the practice model to a Messages API request body."""
    if choice := memories.asked(body):
        return text(memories.selected(choice))
    if question := memories.check_asked(body):
        return text(memories.checked(question))
    if doing := requests.progress(body):
        return text(doing)
    conversation, name = requests.handing(read(body))
    if conversation.schema is not None:
        fits = smallest(conversation.schema, conversation.schema.get("$defs", {}))
        return text(json.dumps(fits, ensure_ascii=False))
    _, told = said_by.directive(body.get("messages") or [])
    if told:
        return _named(_directed(body, told), conversation)
    task = Task(conversation, conversation.turn.chinese)
    if (searched := web.asked_for(conversation.turn.words, conversation.tools)) and not conversation.turn.steps:
        mark = "" if conversation.introduced else task.say(MARK_EN, MARK_ZH)
        thought = [{"type": "thinking", "thinking": "Form: web.", "signature": ""}] if conversation.thinks else []
        said = [{"type": "text", "text": f"\n\n{mark}"}] if mark else []
        return replace(searched, content=(*thought, *searched.content, *said))
    recipe = lessons.teach(task) if lessons.is_lesson(conversation.turn) else _recipe(task, name)
    return _reply(task, recipe)


def _directed(body: Mapping[str, Any], told: str) -> Reply:
    """The reply to a directive of the session."""
    notes, extract = said_by.notes_asked(told) is not None, said_by.asks_to_extract(told)
    if said_by.asks_to_dream(told):
        return memories.dreamed(body)
    if not notes and not extract:
        return text(writing.summary(body))
    if not (notes and extract):
        return writing.noted(body) if notes else memories.extracted(body)
    one, other = writing.noted(body), memories.extracted(body)
    made = [block for reply in (one, other) for block in reply.content if block["type"] == "tool_use"]
    return replace(one, content=tuple(made), stop_reason="tool_use") if made else one


def _recipe(task: Task, hand_back: str | None) -> Recipe | str:
    """What answers the newest request; `hand_back`: the name under which a sub-agent hands its table back."""
    asked = task.conversation.turn.words
    if any(_END.match(extra) for extra in task.conversation.turn.extras):  # another agent asks this one to end
        return task.say("I end my work here, as asked.", "应要求就此结束。")
    if given := skills.given_skill(task):
        return skills.follow(task, *given)
    if names := requests.pieces(task):
        return requests.spread(task, names)
    if tool := skills.own_tool(task):
        return skills.call(task, tool)
    made = forms.both(task, asked)
    if made is None:
        return forms.unknown(task)
    return made if hand_back is None else requests.handed_back(task, made, hand_back)


def _reply(task: Task, recipe: Recipe | str) -> Reply:
    """Runs the recipe over the results there are: what it wants next, or its last words."""
    conversation = task.conversation
    try:
        act: Act | str = recipe if isinstance(recipe, str) else next(recipe)
        if not isinstance(recipe, str):
            for steps in conversation.turn.rounds:
                act = recipe.send(steps)
    except (StopIteration, Ending) as end:
        act = str(end)
    if isinstance(act, str):
        said = act if conversation.introduced else f"{act}\n\n{task.say(MARK_EN, MARK_ZH)}"
        return text(said, thinking="This answers it." if conversation.thinks else None)
    asked = [
        ("call_tool", {"name": name, "arguments": given})
        if name in conversation.further and name not in conversation.tools
        else (name, given)
        for name, given in act.calls
    ]
    return _named(calls(asked, thinking=act.why if conversation.thinks else None), conversation)


def _named(reply: Reply, conversation: Conversation) -> Reply:
    """The reply, each tool call with an id that follows from the conversation so far and its place in the message."""

    def named(at: int, block: dict[str, Any]) -> dict[str, Any]:
        number = hashlib.sha256(f"{conversation.digest}{at}".encode()).hexdigest()[:24]
        return {**block, "id": f"toolu_{number}"} if block["type"] == "tool_use" else block

    return replace(reply, content=tuple(named(at, block) for at, block in enumerate(reply.content)))
