"""Work by a skill that a request names or loads, and tools of the user's that a request names."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any, Final

from ipyagent.practice.model.recipe import Ending, Recipe, Task
from ipyagent.practice.model.tables import Table, key, look

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


def _listed(task: Task) -> list[str]:
    """Names of the skills in the system prompt, and of those that reminders told of since."""
    extras = [extra for turn in task.conversation.turns for extra in turn.extras]
    texts = [*_LIST.findall(task.conversation.system), *(e for e in extras if "Skills on the disk have changed." in e)]
    return [name for text in texts for name, _ in _ENTRY.findall(text)]


def given_skill(task: Task) -> tuple[str, str] | None:
    """Name and text of the skill that the user has loaded for this very request."""
    extras = task.conversation.turn.extras
    found = [match for extra in extras for match in _SKILL.findall(extra)]
    found += [_standing(task, name) for extra in extras for name in _AGAIN.findall(extra)]
    return next(filter(None, reversed(found)), None)


def use(task: Task, slots: Mapping[str, str]) -> Recipe:
    """Works by the skill that the request names, or shows it."""
    known = {name.replace("-", " "): name for name in _listed(task)}
    name = known.get(slots["skill"].strip(" `").lower().replace("-", " "))
    if name is None:
        listed = ", ".join(f"`{each}`" for each in known.values())
        return task.say(f"There is no skill or tool `{slots['skill']}`. Skills: {listed or 'none'}.",
                        f"没有技能或工具 `{slots['skill']}`。现有技能：{listed or '无'}。")  # fmt: skip
    step = yield from task.call("load_skill", {"name": name}, f"The user wants to go by `{name}`.")
    task.did(step, "The skill was not loaded: ", "技能没有加载：")
    if slots.get("on") is None:
        points = "\n".join(f"> {point}" for point in _points(step.text))
        return task.say(f"Loaded the skill `{name}`. It says:", f"已加载技能 `{name}`，要点：") + f"\n\n{points}"
    found = next(iter(_SKILL.findall(step.text)), None) or _standing(task, name)
    if found is None:
        raise Ending(task.say("The skill was not loaded: ", "技能没有加载：") + step.text.strip()[:300])
    return (yield from follow(task, *found))


def follow(task: Task, name: str, text: str) -> Recipe:
    """Runs the code of a skill's body, `<file>`, `<table>` and their like filled in; its points when it has none."""
    head = task.say(f"By the skill `{name}`:", f"按技能 `{name}`：")
    codes = _BLOCK.findall(text)
    if not codes:
        return "\n".join([head, "", *(f"> {point}" for point in _points(text))])
    turn, folder = task.conversation.turn, _FOLDER.search(text)
    known = {"folder": folder[1].strip() if folder else ""}
    known["file"] = next(iter([*_NAMED_FILE.findall(turn.words), *turn.attached("file")]), "").lstrip("@")
    body = "\n".join(code for _, code in codes)
    own_df = re.search(r"^\s*df\s*=[^=]", body, re.M) is not None
    if re.search(r"<(?:table|dataframe|target)>", body, re.I) or (_DF.search(body) and not own_df):
        tables = yield from look(task)
        table = _table(task, tables)
        known |= {"table": table.name, "target": _target(turn.words, table)} if table else {}
        own_df = own_df or "df" in tables
    said, left = [], []
    for number, (language, code) in enumerate(codes, 1):
        filled = _GAP.sub(lambda gap: known.get(_GAPS.get(gap[1].lower(), gap[1].lower())) or gap[0], code).strip("\n")
        if known.get("table") and not own_df:
            filled = _DF.sub(known["table"], filled)
        if gap := _GAP.search(filled):
            left.append(f"{number} ({gap[0]})")
            continue
        call = ("python", {"code": filled}) if language.startswith("py") else ("shell", {"command": filled})
        step = yield from task.call(*call, f"Step {number} of {len(codes)} of the skill {name}.")
        if step.failed:
            place = task.say(f"Step {number} of `{name}`: ", f"`{name}` 第 {number} 步：")
            raise Ending(place + task.failure(step.text))
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
    return next((each for text in reversed(texts) for each in reversed(_SKILL.findall(text)) if each[0] == name), None)


def _table(task: Task, tables: Mapping[str, Table]) -> Table | None:
    """The table that a request for a skill names or attaches, or that is the only one."""
    turn = task.conversation.turn
    words = [*re.findall(r"[A-Za-z_]\w*", turn.words), *turn.attached("variable")]
    found = [tables[word] for word in words if word in tables] or list(tables.values()) * (len(tables) == 1)
    return found[0] if found else None


def _target(asked: str, table: Table) -> str:
    """The column that the request wants predicted: the first that it names behind that word; "" for none."""
    found = _TARGET.search(asked)
    said = f" {key(found[1])} " if found else ""
    named = [(said.index(f" {key(c)} "), str(c)) for c, _ in table.columns if f" {key(c)} " in said]
    return min(named)[1] if named else ""


_OURS: Final = re.compile(
    "python|variables|read_file|glob|grep|write_file|edit_file|shell|notebook|memory|load_skill|compact|plan|agent|"
    "send_message|tool_search|call_tool"
)
_VALUE: Final = r"""(?:"([^"\n]*)"|'([^'\n]*)'|(-?\d+(?:\.\d+)?)(?![\w])|([^\s,;"'.()]+(?:\.[^\s,;"'.()]+)*))"""
_KINDS: Final[Mapping[str, Any]] = {
    "integer": int, "number": (int, float), "boolean": bool, "array": list, "object": dict,
}  # fmt: skip
_SHOWN: Final = 1_500


def own_tool(task: Task) -> str:
    """The tool of the user's that the request names; "" for none. A name of one plain word counts in backticks or
    after "use" and its like only."""
    asked = task.conversation.turn.words
    for name, told in task.conversation.tools.items():
        word = re.escape(name)
        verb = rf"`{word}`|\b(?:use|call|ask|run|with|用|调用)\s*(?:the (?:tool )?)?{word}\b"
        named = re.search(verb, asked, re.I) or ("_" in name and re.search(rf"(?<!\w){word}(?!\w)", asked))
        if named and not _OURS.fullmatch(name) and "type" not in told:
            return name
    return ""


def call(task: Task, name: str) -> Recipe:
    """Calls a tool of the user's once and says what it answered."""
    schema = task.conversation.tools[name].get("input_schema") or {}
    given = arguments(task.conversation.turn.words, name, schema)
    if missing := ", ".join(f"`{key}`" for key in schema.get("required") or () if key not in given):
        raise Ending(task.say(f"`{name}` needs {missing}; tell me.", f"`{name}` 需要 {missing}，请告诉我。"))
    step = yield from task.call(name, given, f"The request names the tool {name}.")
    said = step.text.strip()
    if step.failed:
        shown = said if said.startswith("A hook") else said.rpartition("\n")[2]
        raise Ending(task.say(f"`{name}` failed: {shown[:400]}", f"`{name}` 失败：{shown[:400]}"))
    shown = said if len(said) <= _SHOWN else said[:_SHOWN] + "\n…"
    body = f"**{shown}**" if "\n" not in shown and len(shown) < 200 else f"\n\n```text\n{shown}\n```"
    return task.say(f"`{name}` answered: {body}", f"`{name}` 的回答：{body}")


def arguments(asked: str, name: str, schema: Mapping[str, Any]) -> dict[str, Any]:
    """What the words give for a tool's arguments: the value behind its name (a space, `=`, `:` or `is` between); one
    that does not fit the argument's type is not given."""
    given = dict[str, Any]()
    rest = re.sub(rf"`?(?<!\w){re.escape(name)}(?!\w)`?", " ", asked)
    for field, about in (schema.get("properties") or {}).items():
        pattern = rf"(?<!\w)`?{re.escape(field)}`?\s*(?:=|:|：|\bis\b|为)?\s*{_VALUE}"
        if (found := re.search(pattern, rest, re.I)) is None:
            continue
        value: Any = next(part for part in found.groups() if part is not None)
        if (kind := about.get("type", "string")) != "string":
            try:
                value = json.loads(value.lower().replace("yes", "true").replace("no", "false"))
            except ValueError:
                continue
            if not isinstance(value, _KINDS.get(kind, ())) or (kind != "boolean" and isinstance(value, bool)):
                continue
        given[field] = float(value) if kind == "number" else value
        rest = rest[: found.start()] + " " + rest[found.end() :]
    return given
