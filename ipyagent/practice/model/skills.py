"""Work by a skill that a request names or loads, and tools of the user's that a request names."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from ipyagent.practice.model.conversation import bag
from ipyagent.practice.model.recipe import Ending, Recipe, Task, fields
from ipyagent.practice.model.tables import Table, key, look

Slots = Mapping[str, str]

_LIST: Final = re.compile(r"<skills>\n(.*?)\n</skills>", re.S)
_ENTRY: Final = re.compile(r"^- ([^\s:]+): (.+)$", re.M)
_SKILL: Final = re.compile(r'<skill name="([^"\n]+)"[^>\n]*>\n(.*?)\n</skill>', re.S)
_AGAIN: Final = re.compile(r"wants you to go by the skill (.+), which is in the context already\.")
_BLOCK: Final = re.compile(r"^```(python|py|bash|sh|shell)\s*\n(.*?)^```", re.S | re.M)
_GAP: Final = re.compile(r"<([A-Za-z][A-Za-z' _-]{1,30})>")
_GAPS: Final = {"skill folder": "folder", "this folder": "folder", "path": "file", "dataframe": "table"}
_DF: Final = re.compile(r"(?<![\w.\"'])df(?![\w\"'])(?!\s*=[^=])")
_FOLDER: Final = re.compile(r"^Folder: (.+?)(?: \(paths below are relative to it\))?$", re.M)
_NAMED_FILE: Final = re.compile(
    r"[\w./\\~-]+\.ipynb(?!\w)|[^\s,:：“”\"'`]+\.(?:csv|gz|tsv|parquet|jsonl?|xlsx?|feather)", re.I
)
_TARGET: Final = re.compile(r"\b(?:predict\w*|classif\w+|target|estimate)\s+(.+)", re.I)


def listed_skills(task: Task) -> Iterator[tuple[str, str]]:
    """Names and descriptions of the skills in the system prompt, and what reminders said of them since."""
    for text in _LIST.findall(task.conversation.system):
        yield from _ENTRY.findall(text)
    for extra in (extra for turn in task.conversation.turns for extra in turn.extras):
        if "Skills on the disk have changed." in extra:
            yield from _ENTRY.findall(extra)


def given_skill(task: Task) -> tuple[str, str] | None:
    """Name and text of the skill that the user has loaded for this very request."""
    extras = task.conversation.turn.extras
    found = [match for extra in extras for match in _SKILL.findall(extra)]
    for name in (name for extra in extras for name in _AGAIN.findall(extra)):
        found += [standing] if (standing := _standing(task, name)) else []
    return found[-1] if found else None


def use(task: Task, slots: Slots) -> Recipe:
    """Works by the skill that the request names, or shows it, or calls the tool of the user's that it names."""
    if name := slots.get("tool"):
        return (yield from _own_tool(task, name))
    wanted = slots["skill"].strip(" `").lower()
    known = {name.replace("-", " "): name for name, _ in listed_skills(task)}
    skill = known.get(wanted.replace("-", " "))
    if skill is None:
        listed = ", ".join(f"`{name}`" for name in known.values())
        return task.say(
            f"There is no skill or tool `{wanted}`. Skills: {listed or 'none'}.",
            f"没有技能或工具 `{wanted}`。现有技能：{listed or '无'}。",
        )
    if slots.get("on") is not None:
        return (yield from load_skill(task, skill))
    step = yield from task.call("load_skill", {"name": skill}, f"The user wants to see `{skill}`.")
    task.did(step, "The skill was not loaded: ", "技能没有加载：")
    points = "\n".join(f"> {point}" for point in _points(step.text))
    return task.say(f"Loaded the skill `{skill}`. It says:", f"已加载技能 `{skill}`，要点：") + f"\n\n{points}"


def load_skill(task: Task, name: str) -> Recipe:
    """Loads a skill and works by it; what came of it."""
    step = yield from task.call("load_skill", {"name": name}, f"The skill {name} is for this.")
    found = None if step.failed else next(iter(_SKILL.findall(step.text)), None) or _standing(task, name)
    if found is None:
        raise Ending(task.say("The skill was not loaded: ", "技能没有加载：") + step.text.strip()[:300])
    return (yield from follow(task, *found))


def follow(task: Task, name: str, text: str) -> Recipe:
    """Runs the code of a skill's body, `<file>`, `<table>` and their like filled in; its points when it has none."""
    head = task.say(f"By the skill `{name}`:", f"按技能 `{name}`：")
    pieces = _BLOCK.findall(text)
    if not pieces:
        return "\n".join([head, "", *(f"> {point}" for point in _points(text))])
    asked, folder = task.conversation.turn.words, _FOLDER.search(text)
    known = {"folder": folder[1].strip() if folder else ""}
    known["file"] = next(iter([*_NAMED_FILE.findall(asked), *task.conversation.turn.attached("file")]), "").lstrip("@")
    body = "\n".join(code for _, code in pieces)
    own_df = re.search(r"^\s*df\s*=[^=]", body, re.M) is not None
    if re.search(r"<(?:table|dataframe|target)>", body, re.I) or (_DF.search(body) and not own_df):
        tables = yield from look(task)
        table = _table(task, tables)
        known["table"] = table.name if table else ""
        known["target"] = _target(asked, table) if table else ""
        own_df = own_df or "df" in tables
    said, left = [], []
    for number, (language, code) in enumerate(pieces, 1):
        filled = _GAP.sub(lambda gap: known.get(_GAPS.get(gap[1].lower(), gap[1].lower())) or gap[0], code).strip("\n")
        if known.get("table") and not own_df:
            filled = _DF.sub(known["table"], filled)
        if gap := _GAP.search(filled):
            left.append(f"{number} ({gap[0]})")
            continue
        call = ("python", {"code": filled}) if language.startswith("py") else ("shell", {"command": filled})
        step = yield from task.call(*call, f"Step {number} of {len(pieces)} of the skill {name}.")
        if step.failed:
            raise Ending(
                task.say(f"Step {number} of `{name}`: ", f"`{name}` 第 {number} 步：") + task.failure(step.text)
            )
        out, title = step.text.strip()[:3000], task.say(f"Step {number}", f"第 {number} 步")
        said.append(f"{title}:\n\n```text\n{out}\n```\n" if out else f"{title}: {task.say('done', '完成')}\n")
    if left:
        said.append(task.say(f"Left out, the request does not say what goes there: step {', '.join(left)}",
                             f"没有做（请求中没有说明）：第 {', '.join(left)} 步"))  # fmt: skip
    return "\n".join([head, "", *said])


def _points(text: str) -> list[str]:
    return [line.strip() for line in text.splitlines() if re.match(r"\s*(?:#+|\d+\.|-)\s", line)][:8]


def _standing(task: Task, name: str) -> tuple[str, str] | None:
    """A skill that came into the context earlier, its newest version."""
    texts = [text for turn in task.conversation.turns for text in (*turn.extras, *(step.text for step in turn.steps))]
    found = [(told, body) for text in texts for told, body in _SKILL.findall(text) if told == name]
    return found[-1] if found else None


def _table(task: Task, tables: Mapping[str, Table]) -> Table | None:
    """The table that a request for a skill names or attaches, or that is the only one."""
    asked = task.conversation.turn.words
    words = [*re.findall(r"[A-Za-z_]\w*", asked), *task.conversation.turn.attached("variable")]
    if named := [word for word in words if word in tables]:
        return tables[named[0]]
    return next(iter(tables.values())) if len(tables) == 1 else None


def _target(asked: str, table: Table) -> str:
    """The column that the request wants predicted: the first that it names behind that word; "" for none."""
    found = _TARGET.search(asked)
    said = f" {key(found[1])} " if found else ""
    named = [(said.index(f" {key(c)} "), str(c)) for c, _ in table.columns if f" {key(c)} " in said]
    return min(named)[1] if named else ""


# ---------------------------------------------------------------------- tools of the user's

_OURS: Final = bag(
    "python variables read_file glob grep write_file edit_file shell notebook memory load_skill compact plan agent "
    "send_message tool_search call_tool"
)
_VALUE: Final = r"""(?:"([^"\n]*)"|'([^'\n]*)'|(-?\d+(?:\.\d+)?)(?![\w])|([^\s,;"'.()]+(?:\.[^\s,;"'.()]+)*))"""
_SHOWN: Final = 1_500


def own_tool(task: Task) -> str:
    """The tool of the user's that the request names; "" for none. A name of one plain word counts in backticks or
    after "use" and its like only."""
    asked = task.conversation.turn.words
    for name, told in task.conversation.tools.items():
        word = re.escape(name)
        verb = rf"`{word}`|\b(?:use|call|ask|run|with|用|调用)\s*(?:the (?:tool )?)?{word}\b"
        if name in _OURS or "type" in told:
            continue
        if re.search(verb, asked, re.I) or ("_" in name and re.search(rf"(?<!\w){word}(?!\w)", asked)):
            return name
    return ""


def _own_tool(task: Task, name: str) -> Recipe:
    """Calls the tool once and says what it answered."""
    schema = task.conversation.tools[name].get("input_schema") or {}
    given = arguments(task.conversation.turn.words, name, schema)
    if missing := [f"`{key}`" for key in schema.get("required") or () if key not in given]:
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
    """What the words give for a tool's arguments: the value behind its name (a space, `=`, `:` or `is` between)."""
    known, given = fields(schema), dict[str, Any]()
    rest = re.sub(rf"`?(?<!\w){re.escape(name)}(?!\w)`?", " ", asked)
    for field, about in known.items():
        pattern = rf"(?<!\w)`?{re.escape(field)}`?\s*(?:=|:|：|\bis\b|为)?\s*{_VALUE}"
        if (found := re.search(pattern, rest, re.I)) is not None:
            value = _typed(next(part for part in found.groups() if part is not None), about)
            if value is not None:
                given[field] = value
                rest = rest[: found.start()] + " " + rest[found.end() :]
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
