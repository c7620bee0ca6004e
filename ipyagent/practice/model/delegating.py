"""Work given to sub-agents: one for a request that names one, several at once for several files or tables; and what
a sub-agent hands back.

`Profile a.csv, b.csv and c.csv at once` starts three, each with the request for its own file. "With forks" makes
them forks, "only look" explorers.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from . import boundaries
from .conversation import Conversation
from .intents import FILE, Ask
from .recipe import Act, Ending, Recipe, Task

_TOGETHER = re.compile(
    r",?\s*\b(?:all )?(?:at once|in parallel|side by side|at the same time|concurrently)\b"
    r"|,?\s*\b(?:each )?(?:with|by|in|using|to) (?:a|an|one|its own|their own)?\s*(?:separate )?"
    r"(?:sub-?agents?|agents?|forks?)(?: (?:for )?each)?\b|，?(?:同时|并行|分别用子代理)",
    re.I,
)
_LOOKS = re.compile(r"\bonly look\b|\bexplor(?:e|er|ers)\b|只看", re.I)
_HAND = re.compile(
    r",?\s*(?:and |then )*hand (?:it|them|the (?:table|result|data)) back(?: as `?([A-Za-z_]\w*)`?)?|，?(?:并)?交回",
    re.I,
)
_LOADS = re.compile(r"\b(?:load|read|open|import)\b|加载|读取|读入|载入|导入|打开", re.I)
_DOING = re.compile(r"<doing>\n(.*)\n</doing>", re.S)
_VERBS = {"read_file": "Reading", "grep": "Searching", "glob": "Listing", "variables": "Looking at", "shell": "Running"}
_SHOWN = 1_200


def parts(task: Task, ask: Ask) -> list[str]:
    """The files or tables that a request wants looked at at once, each by its own sub-agent; else nothing."""
    if not task.has("agent") or not (_TOGETHER.search(ask.text) or ask.kind == "delegate"):
        return []
    text = task.conversation.turn.words
    files = [next(group for group in found.groups() if group) for found in FILE.finditer(text)]
    known = {*task.known.tables, *task.known.sizes, *task.known.untold}
    tables = [name for name in re.findall(r"[A-Za-z_]\w*", text) if name in known]
    found = list(dict.fromkeys(files or tables))
    return found if len(found) > 1 else []


def spread(task: Task, ask: Ask, names: list[str]) -> Recipe:
    """Starts a sub-agent for each and puts their answers together."""
    asked = task.conversation.turn.words
    kind = "fork" if re.search(r"\bforks?\b", asked, re.I) else "explore" if _LOOKS.search(asked) else "general"
    plain = " ".join(_TOGETHER.sub("", asked).split())
    first, last = plain.find(names[0]), max(plain.rfind(name) + len(name) for name in names)
    head, tail = plain[:first].rstrip("`'\""), plain[last:].lstrip("`'\"")
    orders: list[tuple[str, Mapping[str, Any]]] = []
    for name in names:
        prompt = f"{head}{name}{tail}"
        if FILE.fullmatch(name) and kind != "explore" and not _LOADS.search(head):
            prompt = f"Load {name}, then {head[:1].lower()}{head[1:]}it{tail}"
        orders.append(("agent", {"task": f"look at {name.rpartition('/')[2]}", "prompt": prompt, "type": kind}))
    steps = yield Act(tuple(orders), f"{len(names)} independent pieces: one sub-agent each, at once.")
    said = [task.say(f"{len(names)} sub-agents have answered:", f"{len(names)} 个子代理的回答：")]
    for name, step in zip(names, steps, strict=True):
        words = answer_of(step.text)
        if step.failed:
            words = task.say("failed: ", "失败：") + words
        said.append(f"\n**{name}**\n\n{words[:_SHOWN]}")
    return "\n".join(said)


def only_reads(task: Task, ask: Ask) -> bool:
    """Whether a request names a file where nothing can run: then it is read."""
    return not task.has("python") and task.has("read_file") and FILE.search(ask.text) is not None


def answer_of(text: str) -> str:
    """What a sub-agent answered, without the session's note on its cost and the practice model's on itself."""
    lines = [line for line in text.strip().splitlines() if not re.match(r"\[sub-agent .*\]$", line)]
    return "\n".join(line for line in lines if not re.search(r"practice model|练习模型", line)).strip()


def handing(conversation: Conversation) -> tuple[Conversation, str | None]:
    """The conversation without the order to hand the table back, and the name that the order says ("": the one it
    has; None: there is no such order, or nobody to hand anything to)."""
    turn = conversation.turn
    found = _HAND.search(turn.words)
    may = "hand_back(" in conversation.system or any(boundaries.fork_work(extra) for extra in turn.extras)
    if found is None or not may:
        return conversation, None
    plain = replace(turn, asked=(_HAND.sub("", turn.words) + turn.asked[len(turn.words) :]).strip())
    return replace(conversation, turns=(*conversation.turns[:-1], plain)), found[1] or ""


def hand_back(task: Task, wanted: str) -> Recipe:
    """Hands the newest table back; a line for the answer."""
    if not task.known.used:
        raise Ending(task.say("There is nothing to hand back.", "没有可以交回的内容。"))
    have = task.known.used[-1]
    name = wanted or have
    step = yield from task.python(f"hand_back({name}={have})", f"`{have}` is wanted by the user as `{name}`.")
    if step.failed:
        raise Ending(task.failure(step.text))
    return task.say(f"Handed back `{name}`.", f"已交回 `{name}`。")


def progress(body: Mapping[str, Any]) -> str:
    """A progress line, when a request asks for one: from what stands behind `Now:`; "" for other requests."""
    messages = body.get("messages") or []
    texts = boundaries.texts_of(messages[-1]) if messages else []
    found = next((match for text in texts if (match := _DOING.fullmatch(text))), None)
    if found is None:
        return ""
    doing = found[1]
    file = FILE.search(doing)
    named = next((group for group in file.groups() if group), "").rpartition("/")[2] if file else ""
    tool = re.search(r"^(\w+)\(", doing, re.M)
    verb = _VERBS.get(tool[1], "Working on") if tool else "Thinking about"
    about = re.search(r"^Task: (.*)$", doing, re.M)
    rest = about[1].split()[-1] if about else "the work"
    return f"{verb} {named} now" if named else f"{verb} {rest}"
