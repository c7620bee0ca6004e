"""A tool that is none of the agent's own, called when a request names it: arguments are read from the words.

`Use to_usd: amount 250, currency EUR.` An argument is its name with a value behind it (a space, `=`, `:` or `is`
between); what is not named so is taken in order: numbers for numbers, then quoted texts for texts.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from . import reading
from .phrases import bag
from .recipe import Ending, Recipe, Task

_OURS = bag(
    "python variables read_file glob grep write_file edit_file shell notebook memory load_skill compact plan agent "
    "send_message tool_search call_tool"
)
_VALUE = r"""(?:"([^"\n]*)"|'([^'\n]*)'|(-?\d+(?:\.\d+)?)(?![\w])|([^\s,;"'.()]+(?:\.[^\s,;"'.()]+)*))"""
_SHOWN = 1_500


def named(task: Task) -> str:
    """The tool that the request names; "" for none. A name of one plain word counts in backticks or after "use"
    and its like only."""
    asked = task.conversation.turn.words
    for name in task.conversation.tools:
        if name in _OURS or "type" in task.conversation.tools[name]:
            continue
        word = re.escape(name)
        if re.search(rf"`{word}`|\b(?:use|call|ask|run|with|用|调用)\s*(?:the (?:tool )?)?{word}\b", asked, re.I) or (
            "_" in name and re.search(rf"(?<!\w){word}(?!\w)", asked)
        ):
            return name
    return ""


def use(task: Task, name: str) -> Recipe:
    """Calls the tool once and says what it answered."""
    schema = task.conversation.tools[name].get("input_schema") or {}
    given = arguments(task.conversation.turn.words, name, schema)
    missing = [f"`{key}`" for key in schema.get("required") or () if key not in given]
    if missing:
        listed = ", ".join(missing)
        raise Ending(task.say(f"`{name}` needs {listed}; tell me.", f"`{name}` 需要 {listed}，请告诉我。"))
    step = yield from task.call(name, given, f"The request names the tool {name}.")
    said = step.text.strip()
    if step.failed:
        last = said.splitlines()[-1] if said else ""
        shown = last if not said.startswith("A hook") else said
        raise Ending(task.say(f"`{name}` failed: {shown[:400]}", f"`{name}` 失败：{shown[:400]}"))
    shown = said if len(said) <= _SHOWN else said[:_SHOWN] + "\n…"
    body = f"**{shown}**" if "\n" not in shown and len(shown) < 200 else f"\n\n```text\n{shown}\n```"
    return task.say(f"`{name}` answered: {body}", f"`{name}` 的回答：{body}")


def arguments(asked: str, name: str, schema: Mapping[str, Any]) -> dict[str, Any]:
    """What the words give for the tool's arguments, by name and then in order."""
    fields = reading.fields(schema)
    rest = re.sub(rf"`?(?<!\w){re.escape(name)}(?!\w)`?", " ", asked)
    given: dict[str, Any] = {}
    for key, about in fields.items():
        pattern = rf"(?<!\w)`?{re.escape(key)}`?\s*(?:=|:|：|\bis\b|为)?\s*{_VALUE}"
        if (found := re.search(pattern, rest, re.I)) is not None:
            value = _typed(next(part for part in found.groups() if part is not None), about)
            if value is not None:
                given[key] = value
                rest = rest[: found.start()] + " " + rest[found.end() :]
    numbers = re.findall(r"(?<![\w.])-?\d+(?:\.\d+)?(?![\w])", rest)
    texts = [one or two for one, two in re.findall(r'"([^"\n]*)"|\'([^\'\n]*)\'', rest)]
    for key in (key for key in schema.get("required") or () if key not in given):
        about = fields.get(key, {})
        waiting = numbers if about.get("type") in ("number", "integer") else texts
        if waiting and (value := _typed(waiting[0], about)) is not None:
            given[key] = value
            waiting.pop(0)
    return given


def _typed(value: str, about: Mapping[str, Any]) -> Any:
    """The value in the argument's type, None when it does not fit."""
    match about.get("type"):
        case "integer":
            return int(value) if re.fullmatch(r"-?\d+", value) else None
        case "number":
            return float(value) if re.fullmatch(r"-?\d+(?:\.\d+)?", value) else None
        case "boolean":
            return {"true": True, "yes": True, "false": False, "no": False}.get(value.lower())
        case "array" | "object":
            try:
                return json.loads(value)
            except ValueError:
                return None
        case _:
            return value
