"""The practice model's answer to a request body: rules, no language model, and never said to be one.

The same body always gets the same answer. What is known comes from the body alone; numbers come from tool results.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from ipyagent.practice.replies import Reply, calls, text
from ipyagent.practice.server import web

from . import (
    boundaries,
    charts,
    counting,
    delegating,
    filling,
    loading,
    looking,
    messaging,
    own_tools,
    profiles,
    ranking,
    reading,
    relations,
    remembering,
    selecting,
    session,
    shares,
    skilling,
    tables,
    talk,
)
from .conditions import Filter
from .conversation import Conversation, read
from .dreaming import dreamed
from .extracting import extracted
from .frames import Frame, find_frame
from .intents import Ask, after_load, ask, kind, other_work
from .knowledge import known
from .lesson import is_lesson, teach
from .noting import noted
from .overlooked import unused
from .phrases import MARK_EN, MARK_ZH, normal
from .query import Query, resolve
from .recipe import Act, Ending, Recipe, Task
from .summaries import summary

_ON_FRAME: dict[str, Callable[[Task, Query], Recipe | str]] = {
    "group": tables.group, "aggregate": tables.aggregate, "values": counting.counts, "how_many": counting.how_many,
    "share": shares.share, "top": ranking.top, "missing": profiles.missing,
    "columns": profiles.columns, "profile": profiles.profile,
    "drop": profiles.drop, "fill": filling.fill, "outliers": profiles.outliers, "rows": profiles.rows,
    "plot": charts.plot, "compare": relations.compare, "correlate": relations.correlate, "fit": relations.fit,
}  # fmt: skip

_OTHER: dict[str, Callable[[Task, Ask], Recipe | str]] = {
    "rebuild": loading.rebuild, "yes": loading.rebuild, "variables": looking.variables,
    "find": looking.find, "files": looking.files, "around": looking.around, "read": looking.read, "run": looking.run,
    "sum": looking.calculate, "why": looking.why,
    "remember": remembering.remember, "recall": remembering.recall, "forget": remembering.forget,
    "load_skill": session.load_skill, "plan": session.plan, "delegate": session.delegate, "compact": session.compact,
    "discuss": talk.discuss, "first_question": talk.first_question, "greet": talk.greet, "thanks": talk.thanks,
    "help": talk.unknown, "out": talk.unknown,
}  # fmt: skip

_CAREFUL = ("compare", "correlate", "fit", "group")
"""Kinds of requests for which a skill may know more than we do: it comes first, our recipe after it."""
_UNKNOWN = ("out", "help")
"""Kinds of requests that no recipe of ours is for."""


def answer(body: Mapping[str, Any]) -> Reply:
    """The reply of the practice model to a Messages API request body."""
    if choice := selecting.asked(body):
        return text(selecting.selected(choice))
    if question := selecting.check_asked(body):
        return text(selecting.checked(question))
    if doing := delegating.progress(body):
        return text(doing)
    conversation, name = delegating.handing(read(body))
    if conversation.schema is not None:
        return text(talk.structured(conversation))
    _, told = boundaries.directive(body.get("messages") or [])
    if told:
        if boundaries.asks_to_extract(told) and boundaries.notes_asked(told) is not None:
            reply = _both(noted(body), extracted(body))
        elif boundaries.asks_to_extract(told):
            reply = extracted(body)
        elif boundaries.asks_to_dream(told):
            reply = dreamed(body)
        else:
            reply = noted(body) if boundaries.notes_asked(told) is not None else text(summary(body))
        return _named(reply, conversation)
    task = Task(conversation, conversation.turn.chinese, known(conversation))
    if is_lesson(conversation.turn.asked):
        return _reply(task, _next_act(_lesson(task), conversation), "Rule: lesson.")
    if (searched := web.asked_for(conversation.turn.words, conversation.tools)) and not conversation.turn.steps:
        mark = "" if conversation.introduced else task.say(MARK_EN, MARK_ZH)
        thought = [{"type": "thinking", "thinking": "Rule: web.", "signature": ""}] if conversation.thinks else []
        said = [{"type": "text", "text": f"\n\n{mark}"}] if mark else []
        return replace(searched, content=(*thought, *searched.content, *said))
    wanted = ask(conversation.turns)
    recipe = _recipe(task, wanted) if name is None else _handed(task, wanted, name)
    return _reply(task, _next_act(recipe, conversation), f"Rule: {wanted.kind}.")


def _both(one: Reply, other: Reply) -> Reply:
    """One reply that makes the calls of two, or says what the first says."""
    made = [block for reply in (one, other) for block in reply.content if block["type"] == "tool_use"]
    return replace(one, content=tuple(made), stop_reason="tool_use") if made else one


def _lesson(task: Task) -> Recipe:
    """The recipe for a request of a lesson."""
    from .lessons import known as lessons  # read on first use: most conversations have none

    made = teach(task, lessons)
    return made if isinstance(made, str) else (yield from made)


def _handed(task: Task, wanted: Ask, name: str) -> Recipe:
    """A sub-agent's work, whose table it then hands back."""
    said: str = yield from _recipe(task, wanted)
    more: str = yield from delegating.hand_back(task, name)
    return f"{said}\n\n{more}"


def _recipe(task: Task, wanted: Ask) -> Recipe:
    """The recipe for an ask."""
    made: Recipe | str
    if said := messaging.came(task):
        return said
    if task.has("send_message") and (letter := messaging.wanted(task)):
        return (yield from messaging.send(task, *letter))
    if names := delegating.parts(task, wanted):
        return (yield from delegating.spread(task, wanted, names))
    if delegating.only_reads(task, wanted):
        return (yield from looking.read(task, wanted))
    if own := own_tools.named(task):
        return (yield from own_tools.use(task, own))
    by_user = skilling.by_user(task)
    if by_user is not None and (by_user.has_code or wanted.kind in _UNKNOWN):
        return (yield from skilling.follow(task, by_user))
    if wanted.kind == "load_skill" and skilling.is_work(wanted) and (name := skilling.named(task, wanted)):
        return (yield from skilling.load(task, name, f"The user wants the skill {name} used."))
    if wanted.kind in _UNKNOWN and (name := skilling.fitting(task, wanted)):
        return (yield from skilling.load(task, name, f"The description of the skill {name} fits this request."))
    if wanted.kind in _CAREFUL and (name := skilling.special(task, wanted)):
        said = yield from skilling.load(task, name, f"The skill {name} is for such work.")
        try:
            more = yield from _on_frame(task, wanted)
        except Ending as ending:  # our own recipe wants to know more: what the skill has shown stands all the same
            more = str(ending)
        return f"{said}\n\n{more}"
    if wanted.kind in _ON_FRAME:
        return (yield from _on_frame(task, wanted))
    if wanted.kind == "load":
        return (yield from _load(task, wanted))
    made = _OTHER[wanted.kind](task, wanted)
    return made if isinstance(made, str) else (yield from made)


def _load(task: Task, wanted: Ask) -> Recipe:
    """Loads data, then does what the request asks of it; what it cannot do is named."""
    head, rest = after_load(wanted.text)
    said: str = yield from loading.load(task, replace(wanted, text=head))
    rest = normal(rest)
    if not rest:
        return said
    name, then = task.known.used[-1], kind(rest)
    if then == "load":
        more: str = yield from _load(task, Ask("load", rest))
    elif then in _ON_FRAME:
        more = yield from _on_frame(task, Ask(then, rest), name)
    else:
        more = _undone(task, [rest]).strip()
    return f"{said}\n\n{more}"


def _undone(task: Task, parts: list[str]) -> str:
    """Names the parts of a request that were not acted on."""
    if not parts:
        return ""
    words = ", ".join(f"“{each}”" for each in parts)
    return task.say(f"\n\nNot done: {words}. Ask for it on its own.", f"\n\n没有做：{words}。请单独提出。")


def _on_frame(task: Task, wanted: Ask, name: str = "") -> Recipe:
    """A recipe on a DataFrame; when that turns out to have changed unseen, once more on what is there now.

    `name`: the frame to use, where the request itself has just made it.
    """
    said = "\n".join([wanted.text, *(words for _, words in wanted.amendments), name or task.conversation.turn.asked])
    frame = yield from find_frame(task, said, wanted.kind)
    if task.known.listed and not task.known.complete and task.has("variables"):
        step = yield from task.call("variables", {}, "The listing was cut; I must not take a name that the user has.")
        task.known.listing("" if step.failed else step.text, longest=True)
    query = _query(task, wanted, frame)
    made = _start(task, query)
    if isinstance(made, str):
        return made + _unread(task, query, made)
    ran: list[str] = []
    try:
        act = next(made)
        steps = yield _kept(act, ran)
    except StopIteration as finished:
        return str(finished.value) + _unread(task, query, str(finished.value))
    if any(step.failed and reading.error(step.text)[0] in ("NameError", "KeyError") for step in steps):
        missing = any(f"'{frame.name}'" in reading.error(step.text)[1] for step in steps)
        task.known.forget(frame.name)
        frame = yield from find_frame(task, said, wanted.kind, frame.name if missing else "")
        again = _start(task, _query(task, wanted, frame))
        return again if isinstance(again, str) else (yield from again)
    try:
        while True:
            act = made.send(steps)
            steps = yield _kept(act, ran)
    except StopIteration as finished:
        undone = [] if wanted.amendments else other_work(wanted.text, wanted.kind)
        words = str(finished.value)
        # Filling names what it cannot follow itself.
        unread = _unread(task, query, "\n".join([*ran, words])) if wanted.kind != "fill" else ""
        return words + unread + _undone(task, undone)


def _kept(act: Act, ran: list[str]) -> Act:
    """The act, its code noted down."""
    ran += [str(given.get("code") or "") for _, given in act.calls]
    return act


def _unread(task: Task, query: Query, shown: str) -> str:
    """Says which words of the request name nothing in the table, and what no part of the answer has used.

    `shown`: the code that ran and the answer.
    """
    frame, said = query.frame, ""
    unknown = [each for each in frame.left if re.search(re.escape(each), query.rest, re.I)]
    if unknown:
        words = ", ".join(f"“{each}”" for each in unknown[:5])
        said += task.say(
            f"\n\nNo column or value of `{frame.name}` is named {words}, so the answer leaves that out.",
            f"\n\n`{frame.name}` 中没有与 {words} 对应的列或取值，回答没有考虑它。",
        )
    if left := [each for each in unused(query, shown) if each not in unknown]:
        words = ", ".join(f"“{each}”" for each in left[:6])
        said += task.say(
            f"\n\nNot taken into account: {words}. The answer is for the request without that.",
            f"\n\n没有考虑：{words}。以上回答不包含这部分要求。",
        )
    return said


def _query(task: Task, wanted: Ask, frame: Frame) -> Query:
    for part in other_work(wanted.text, wanted.kind):
        wanted = replace(wanted, text=wanted.text.replace(part, " "))  # not acted on, so its columns are not meant
    return resolve(wanted, frame, task.known.taken)


def _start(task: Task, query: Query) -> Recipe | str:
    frame = query.frame
    if query.having and any(each != query.having.column for each in (*query.groups, *query.mentions)):
        return counting.sizes(task, query)
    alone = query.kind == "group" and not query.groups and not query.units and query.measures
    if alone and ((query.filters and not frame.left) or _PER_ROW.search(query.words)):
        return tables.aggregate(task, query)
    flags = [each for each in query.mentions if frame.dtypes[each].startswith("bool")]
    if query.kind in ("aggregate", "group") and query.stat == "mean" and not query.measures and flags:
        # The mean of a yes/no column is the share of its yes.
        groups = tuple(each for each in query.groups if each != flags[0])
        met = (*query.filters, Filter(flags[0], "==", "True"))
        return shares.share(task, replace(query, groups=groups, filters=met, base=len(query.filters)))
    return _ON_FRAME[query.kind](task, query)


_PER_ROW = re.compile(r"\bper (?:row|record|order|sale|person|entry|item|\w+)\b|每(?:行|条|单|笔|个订单|人)", re.I)


def _next_act(recipe: Recipe, conversation: Conversation) -> Act | str:
    """Runs the recipe over the results there are; what it wants next, or its last words."""
    try:
        act = next(recipe)
        for steps in conversation.turn.rounds:
            act = recipe.send(steps)
    except StopIteration as finished:
        return str(finished.value)
    except Ending as ending:
        return str(ending)
    return act


def _reply(task: Task, act: Act | str, rule: str) -> Reply:
    conversation = task.conversation
    if isinstance(act, str):
        said = act if conversation.introduced else f"{act}\n\n{task.say(MARK_EN, MARK_ZH)}"
        return text(said, thinking=rule if conversation.thinks else None)
    asked = [
        ("call_tool", {"name": name, "arguments": given})
        if name in conversation.further and name not in conversation.tools
        else (name, given)
        for name, given in act.calls
    ]
    reply = calls(asked, say=act.say, thinking=f"{rule} {act.why}" if conversation.thinks else None)
    return _named(reply, conversation)


def _named(reply: Reply, conversation: Conversation) -> Reply:
    return replace(reply, content=tuple(_with_id(block, at, conversation) for at, block in enumerate(reply.content)))


def _with_id(block: dict[str, Any], at: int, conversation: Conversation) -> dict[str, Any]:
    """A tool call with an id that follows from the conversation so far and its place in the message."""
    if block["type"] != "tool_use":
        return block
    return {**block, "id": "toolu_" + hashlib.sha256(f"{conversation.digest}{at}".encode()).hexdigest()[:24]}
