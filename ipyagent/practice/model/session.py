"""Recipes about the session itself: skills, plans, sub-agents, compaction. Each needs its tool."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from . import reading
from .intents import Ask
from .recipe import Ending, Recipe, Task

_LIST = re.compile(r"<skills>\n(.*?)\n</skills>", re.S)
_ENTRY = re.compile(r"^- ([^\s:]+): (.+)$", re.M)


def word_set(text: str) -> set[str]:
    """Words of at least three letters, and pairs of Chinese characters."""
    found = {word.lower() for word in re.findall(r"[A-Za-z]{3,}", text)}
    for run in re.findall(r"[\u3400-\u9fff]{2,}", text):
        found |= {run[at : at + 2] for at in range(len(run) - 1)}
    return found - {"the", "and", "for", "that", "with", "about", "what", "you", "use", "our", "are"}


def listed_skills(task: Task) -> Iterator[tuple[str, str]]:
    """Names and descriptions of the skills in the system prompt, and what reminders said of them since."""
    for text in _LIST.findall(task.conversation.system):
        yield from _ENTRY.findall(text)
    for turn in task.conversation.turns:
        for extra in turn.extras:
            if "Skills on the disk have changed." in extra:
                yield from _ENTRY.findall(extra)


def load_skill(task: Task, ask: Ask) -> Recipe:
    """Loads the skill whose name or description fits the request best."""
    task.need("load_skill")
    schema = task.conversation.tools["load_skill"].get("input_schema") or {}
    told = dict(listed_skills(task))
    known = list(dict.fromkeys([*((reading.fields(schema).get("name") or {}).get("enum") or []), *told]))
    about = {
        name: told.get(name) or next((line for line in task.conversation.system.splitlines() if name in line), name)
        for name in known
    }
    wanted = word_set(re.sub(r"\b(?:load|use|apply|find|skill|skills|which)\b|技能|加载|使用", " ", ask.text))
    named = [name for name in known if name in ask.text.lower() or name.replace("-", " ") in ask.text.lower()]
    score = {name: len(wanted & word_set(line.replace("-", " "))) for name, line in about.items()}
    best = named or sorted((name for name in known if score[name]), key=lambda name: (-score[name], name))
    if not best:
        listed = ", ".join(f"`{name}`" for name in known)
        return task.say(f"No skill fits. There are: {listed}.", f"没有合适的技能。现有：{listed}。")
    step = yield from task.call("load_skill", {"name": best[0]}, f"`{best[0]}` fits the request best.")
    if step.failed:
        raise Ending(task.say("The skill was not loaded: ", "技能没有加载：") + step.text.strip()[:300])
    points = [line.strip() for line in step.text.splitlines() if re.match(r"\s*(?:#+|\d+\.|-)\s", line)][:8]
    return (
        task.say(f"Loaded the skill `{best[0]}`. It says:", f"已加载技能 `{best[0]}`，要点：")
        + "\n\n"
        + "\n".join(f"> {each}" for each in points)
    )


def steps_of(text: str) -> list[str]:
    """The steps that a request names, split at "then", commas and their like."""
    body = re.sub(
        r"^.*?(?:\bplan\b(?: (?:to|for|how to|the|out))?|计划|规划)\s*[:：]?\s*", "", text, count=1, flags=re.I | re.S
    )
    parts = re.split(r"\s*(?:,? and then |,? then |;|\n|, and |,|，|、|；|然后|接着|再)\s*", body)
    return [part.strip(" -.。") for part in parts if len(part.strip(" -.。")) > 1]


def plan(task: Task, ask: Ask) -> Recipe:
    """Writes the steps of a request into the plan."""
    task.need("plan")
    steps = steps_of(ask.text) or [ask.text]
    if len(steps) == 1:
        steps = [
            task.say("look at the data: shape, types, missing values", "查看数据：形状、类型、缺失值"), steps[0],
            task.say("check the result and say what it shows", "检查结果并说明结论"),
        ]  # fmt: skip
    schema = yield from task.schema("plan")
    arguments = instance(schema, steps=steps, text=ask.text)
    step = yield from task.call("plan", arguments, f"{len(steps)} steps.")
    if step.failed:
        raise Ending(task.say("The plan was not accepted: ", "计划没有被接受：") + step.text.strip()[:300])
    return (
        task.say("The plan:", "计划：")
        + "\n\n"
        + "\n".join(f"{number}. {each}" for number, each in enumerate(steps, 1))
    )


def delegate(task: Task, ask: Ask) -> Recipe:
    """Gives the work to a sub-agent and reports what it answered."""
    task.need("agent")
    work = re.sub(
        r"^(?:delegate(?: this| to (?:a|an) \S+)?|(?:use|ask|start|have) (?:a|an|another"
        r"|separate)?\s*(?:sub-?agent|agent)(?: to)?|(?:用|让|派)?一?个?子(?:代理|智能体)(?:去|来)?"
        r"|委[派托](?:给.*?)?)\s*[:：,，]?\s*",
        "", ask.text, flags=re.I,
    ).strip() or ask.text  # fmt: skip
    schema = yield from task.schema("agent")
    step = yield from task.call(
        "agent", instance(schema, steps=[work], text=work), "The user wants a sub-agent to do it."
    )
    if step.failed:
        raise Ending(task.say("The sub-agent failed: ", "子代理失败：") + step.text.strip()[:300])
    return task.say("The sub-agent answered:", "子代理的回答：") + f"\n\n{step.text.strip()[:2000]}"


def compact(task: Task, ask: Ask) -> Recipe:
    """Asks the session to compact its context."""
    task.need("compact")
    schema = yield from task.schema("compact")
    arguments = {name: ask.text for name in reading.fields(schema) if name == "instructions" and len(ask.text) > 30}
    step = yield from task.call("compact", arguments, "The user wants the context compacted.")
    if step.failed:
        raise Ending(task.say("Nothing was compacted: ", "没有压缩：") + step.text.strip()[:300])
    return task.say("Done: ", "完成：") + (
        step.text.strip()[:500] or task.say("the context is compacted.", "上下文已压缩。")
    )


def instance(
    schema: Mapping[str, Any], steps: Sequence[str] = (), text: str = "", root: Mapping[str, Any] | None = None
) -> Any:
    """A minimal value of a JSON schema; texts are `text`, lists have one item for each of `steps`."""
    root = schema if root is None else root
    if "$ref" in schema:
        target: Any = root
        for part in str(schema["$ref"]).removeprefix("#/").split("/"):
            target = target.get(part, {})
        return instance(target, steps, text, root)
    for key in ("const", "default"):
        if key in schema:
            return schema[key]
    if schema.get("enum"):
        choices = list(schema["enum"])
        return next((each for each in ("pending", "general") if each in choices), choices[0])
    for key in ("anyOf", "oneOf", "allOf"):
        if schema.get(key):
            return instance(schema[key][0], steps, text, root)
    kind = schema.get("type", "object" if "properties" in schema else "string")
    kind = kind[0] if isinstance(kind, list) else kind
    if kind == "object":
        fields = reading.fields(schema)
        names = schema.get("required") or ([] if not text else list(fields)[:1])
        return {
            name: instance(fields.get(name, {}), steps, text[:60] if name == "description" else text, root)
            for name in names
        }
    if kind == "array":
        item = schema.get("items") or {}
        least = int(schema.get("minItems", 0))
        wanted = list(steps) or [""] * least
        return [instance(item, (), each, root) for each in wanted[: int(schema.get("maxItems", 100))]]
    if kind in ("integer", "number"):
        return schema.get("minimum", 0)
    if kind == "boolean":
        return False
    return text if text else "x" * int(schema.get("minLength", 0)) if kind == "string" else None
