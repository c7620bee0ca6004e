"""Recipes about memories: what the user wants kept is saved at once, looked up, or forgotten.

A fact about the same as a memory that exists is brought up to date there.
"""

from __future__ import annotations

import json
import re

from .conversation import Step
from .extracting import Fact, created, edits, fact_of
from .intents import Ask
from .recipe import Ending, Recipe, Task
from .session import word_set

_LEAD = re.compile(
    r"^(?:remember|memori[sz]e|note|keep in mind|don't forget|forget|recall|what do you (?:remember|know"
    r"|recall)|do you (?:still )?(?:remember|recall)"
    r"|记住|请记住|记一下|记下|别忘了|忘记|忘掉|忘了|回忆|你?还?记得)\s*(?:that|about|of|what|这个|这一点"
    r"|关于)?\s*[:：,，]?\s*",
    re.I,
)
_FEEDBACK = re.compile(
    r"\b(?:always|never|prefer|don't|do not|should|use|avoid|like)\b|总是|不要|喜欢|偏好|应该|请用|别", re.I
)
_USER = re.compile(r"\b(?:i am|i'm|my (?:role|name|job|team)|i work)\b|我是|我叫|我的(?:名字|职业|角色)", re.I)
_DATE = re.compile(r"^Date: (\d{4}-\d{2}-\d{2})", re.M)
_TREE = ("/memories/project/", "/memories/user/")


def remember(task: Task, ask: Ask) -> Recipe:
    """Saves a fact in a memory file of its own, or in the one that is about the same."""
    task.need("memory")
    fact = _fact(task, ask)
    path = f"{_folder(task, fact.kind)}{fact.name}.md"
    step = yield from task.call("memory", created(path, fact), f"A fact to keep, of type {fact.kind}.")
    if step.failed and re.search(r"exist", step.text):
        there = yield from task.call("memory", {"command": "view", "path": path}, "There is one about the same.")
        for edit in edits(path, there.text, fact):
            step = yield from task.call("memory", edit, "It is brought up to date.")
        if not there.failed and fact.text in there.text:
            return task.say(f"`{path}` says so already: {fact.text}", f"`{path}` 里已有：{fact.text}")
    if step.failed:
        raise Ending(task.say("It was not saved: ", "没有保存：") + step.text.strip()[:300])
    return task.say(f"Saved in `{path}` ({fact.kind}): {fact.text}", f"已记在 `{path}`（{fact.kind}）：{fact.text}")


def recall(task: Task, ask: Ask) -> Recipe:
    """Looks through the memory for what the request is about and quotes it."""
    query = _LEAD.sub("", ask.text)
    listing = yield from task.call("memory", {"command": "view", "path": _root(task) or "."}, "What is in the memory?")
    paths = _found(task, listing, query)[:2]
    if not paths:
        return task.say(f"I find nothing in the memory about: {query}", f"记忆里没有找到相关内容：{query}")
    said = []
    for path in paths:
        step = yield from task.call(
            "memory", {"command": "view", "path": path}, f"{path} shares words with the question."
        )
        if not step.failed:
            text = re.sub(r"^\s*\d+[\t:|]\s?", "", step.text, flags=re.M)
            body = re.sub(r"\A.*?---\n.*?\n---\n", "", text, flags=re.S).strip()
            said.append(f"- `{path}`: " + " ".join(body.splitlines()[:3])[:400])
    return task.say("From the memory:", "记忆里有：") + "\n" + "\n".join(said)


def forget(task: Task, ask: Ask) -> Recipe:
    """Deletes the memory file that fits best."""
    query = _LEAD.sub("", ask.text)
    listing = yield from task.call("memory", {"command": "view", "path": _root(task) or "."}, "Which memory is meant?")
    paths = _found(task, listing, query)
    if not paths:
        return task.say(f"There is no memory about: {query}", f"没有关于它的记忆：{query}")
    step = yield from task.call("memory", {"command": "delete", "path": paths[0]}, f"{paths[0]} fits best.")
    if step.failed:
        raise Ending(task.say("It was not deleted: ", "没有删除：") + step.text.strip()[:300])
    return task.say(f"Forgot `{paths[0]}`.", f"已忘掉 `{paths[0]}`。")


def _fact(task: Task, ask: Ask) -> Fact:
    """What is to be kept; what no rule knows is told by its words."""
    said = _LEAD.sub("", ask.text).strip() or ask.text
    fact = fact_of(said, _today(task), asked=True) or Fact(said, "project", said=said)
    if fact.kind == "project" and not fact.topic:
        kind = "user" if _USER.search(said) else "feedback" if _FEEDBACK.search(said) else "project"
        return Fact(fact.text, kind, said=fact.said)
    return fact


def _today(task: Task) -> str:
    """The newest date that the session told."""
    dates = [found for turn in task.conversation.turns for extra in turn.extras for found in _DATE.findall(extra)]
    return str(dates[-1]) if dates else ""


def _tells(task: Task) -> str:
    return json.dumps(task.conversation.tools["memory"])


def _root(task: Task) -> str:
    return "/memories/" if "/memories" in _tells(task) else ""


def _folder(task: Task, kind: str) -> str:
    """Where a memory of that type goes."""
    return _TREE[kind == "user"] if _TREE[0].rstrip("/") in _tells(task) else _root(task)


def _found(task: Task, listing: Step, query: str) -> list[str]:
    """Memory files whose line in the listing or the index shares words with the query, best first."""
    scores: dict[str, int] = {}
    wanted = word_set(query)
    hooks = task.conversation.system.splitlines()
    for path in re.findall(r"[\w./-]+\.md", listing.text):
        name = path.rsplit("/", 1)[-1]
        if name == "MEMORY.md":
            continue
        lines = [path, *(line for line in hooks if name in line)]
        score = max(len(wanted & word_set(line.replace("_", " "))) for line in lines)
        full = path if path.startswith("/") else _root(task) + name
        scores[full] = max(scores.get(full, 0), score)
    return sorted((path for path, score in scores.items() if score), key=lambda path: (-scores[path], path))
