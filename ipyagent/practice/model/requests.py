"""What the forms beside tables do: loading, code and files, memories, plans, other agents, what came so far."""

from __future__ import annotations

import ast
import keyword
import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import PurePosixPath
from typing import Any, Final

from ipyagent.practice.model import conversation as boundaries
from ipyagent.practice.model.conversation import MARK, Conversation
from ipyagent.practice.model.memories import Fact, created, fact_of
from ipyagent.practice.model.recipe import Act, Ending, Recipe, Task, assigned, error, how_built
from ipyagent.practice.model.tables import literal, many

Slots = Mapping[str, str]

_READERS: Final[Mapping[str, str]] = {
    "csv": "pd.read_csv({path})", "gz": "pd.read_csv({path})", "tsv": 'pd.read_csv({path}, sep="\\t")',
    "parquet": "pd.read_parquet({path})", "json": "pd.read_json({path})", "jsonl": "pd.read_json({path}, lines=True)",
    "xlsx": "pd.read_excel({path})", "xls": "pd.read_excel({path})", "feather": "pd.read_feather({path})",
}  # fmt: skip
TABLE_FILE: Final = rf"[^\s,:：“”\"'`]+\.(?:{'|'.join(_READERS)})"
_TABLE_FILES: Final = re.compile(TABLE_FILE, re.I)


def load(task: Task, slots: Slots) -> Recipe:
    """Reads files, or the palmer penguins, into variables and says their shapes."""
    if not slots.get("files"):
        name = slots.get("name") or _fresh(task, "penguins")
        code = f"from palmerpenguins import load_penguins\n\n{name} = load_penguins()\n"
        return (yield from _load(task, code, task.say("the palmer penguins", "企鹅数据集"), name))
    paths = [path.lstrip("@") for path in _TABLE_FILES.findall(slots["files"])]
    said = []
    for path in paths:
        name = (slots.get("name") if len(paths) == 1 else "") or name_for(task, path)
        read = _READERS[path.rpartition(".")[2].lower()].format(path=literal(path))
        said.append((yield from _load(task, f"import pandas as pd\n\n{name} = {read}\n", f"`{path}`", name)))
    return "\n\n".join(said)


def name_for(task: Task, path: str) -> str:
    """The variable that a file is read into where the request gives no name."""
    stem = re.sub(r"\W+", "_", PurePosixPath(path).name.split(".")[0], flags=re.ASCII).strip("_").lower()
    return _fresh(task, stem if stem.isidentifier() and not keyword.iskeyword(stem) and len(stem) <= 24 else "df")


def _fresh(task: Task, name: str) -> str:
    """The name, or with a number where the user has a variable of it: one that the session told of and that no code
    of the agent's made."""
    own = {made for turn in task.conversation.turns for step in turn.steps for made in assigned(step.code)}
    found, number = name, 2
    while found not in own and re.search(rf"(?<![\w.]){found}(?![\w.])", task.conversation.told):
        found, number = f"{name}_{number}", number + 1
    return found


def _load(task: Task, code: str, what: str, name: str) -> Recipe:
    code += f"print({name}.shape)\nprint(list({name}.columns))\n{name}.head()"
    step = yield from task.ran(code, f"Load {what} and look at its shape and columns.")
    size, listed = re.search(r"\((\d+), (\d+)\)", step.text), re.search(r"^\[.*\]$", step.text, re.M)
    if size is None:
        return task.say(f"Loaded {what} as `{name}`.", f"已把{what}读入 `{name}`。")
    try:
        columns = [str(column) for column in ast.literal_eval(listed[0])] if listed else []
    except (ValueError, SyntaxError):
        columns = []
    said = task.say(f"Loaded {what} as `{name}`: {many(f'**{size[1]}**', 'row')}, {many(f'**{size[2]}**', 'column')}.",
                    f"已把{what}读入 `{name}`：**{size[1]}** 行，**{size[2]}** 列。")  # fmt: skip
    names = ", ".join(f"`{column}`" for column in columns[:30]) + (", …" if len(columns) > 30 else "")
    return said + (task.say(f"\n\nColumns: {names}.", f"\n\n列：{names}。") if names else "")


def rebuild(task: Task, slots: Slots) -> Recipe:
    """Runs again the code that made a variable which is gone."""
    said = next((turn.said for turn in reversed(task.conversation.turns[:-1]) if turn.said), "")
    names = [slots.get("name") or "", *re.findall(r"`([A-Za-z_]\w*)`", said)]
    name = next((each for each in names if each and how_built(task.conversation, each)), "")
    if not name:
        return task.say("I know of nothing that is gone and could be rebuilt.", "我不知道有什么丢失的变量需要重建。")
    step = yield from task.ran(how_built(task.conversation, name), f"`{name}` was made by this code earlier.")
    size = re.search(r"\((\d+), (\d+)\)", step.text)
    rows, columns = size.groups() if size else ("", "")
    shape = task.say(f": {many(rows, 'row')}, {many(columns, 'column')}", f"：{rows} 行，{columns} 列") if size else ""
    return task.say(f"Rebuilt `{name}`{shape}, with the code that made it before.",
                    f"已用原来的代码重建 `{name}`{shape}。")  # fmt: skip


def listing(task: Task, slots: Slots) -> Recipe:
    """The variables, or the files of the project."""
    asked = ("glob", {"pattern": "*"}) if slots.get("files") else ("variables", dict[str, str]())
    step = task.did((yield from task.call(*asked, "The listing answers this.")), "That failed: ", "失败：")
    return f"```text\n{step.text.strip()[:3000]}\n```"


def read(task: Task, slots: Slots) -> Recipe:
    """The beginning of a text file."""
    path = slots["path"].strip("`@ ")
    step = yield from task.call("read_file", {"path": path}, f"Read {path}.")
    lines = task.did(step, f"I could not read `{path}`: ", f"读不了 `{path}`：").text.strip().splitlines()
    more = task.say(f"\n\n… and {many(len(lines) - 40, 'more line')}.", f"\n\n… 还有 {len(lines) - 40} 行。")
    shown = "\n\n```text\n" + "\n".join(lines[:40]) + "\n```" + more * (len(lines) > 40)
    return task.say(f"`{path}` begins:", f"`{path}` 的开头：") + shown


def run(task: Task, slots: Slots) -> Recipe:
    """Runs the code the user gave, as it is."""
    given = {"code": slots["code"].strip("\n ")}
    step = yield from task.call("python", given, "The user gave the code; run it unchanged.")
    if step.failed:
        raised = ": ".join(error(step.text))
        return task.say(f"It raised `{raised}`.", f"出错了：`{raised}`。")
    out = step.text.strip()
    shown = f"\n\n```text\n{out[:3000]}\n```" if out else task.say("There was no output.", "没有输出。")
    return task.say("It ran. ", "已运行。") + shown


def remember(task: Task, slots: Slots) -> Recipe:
    """Saves a fact in a memory file of its own."""
    task.need("memory")
    said = slots["said"].strip()
    fact = fact_of(said, asked=True) or Fact(said, "project", said)
    about = str(task.conversation.tools.get("memory"))
    folder = f"/memories/{'user' if fact.kind == 'user' else 'project'}/"
    folder = folder if "/memories/project" in about else "/memories/" if "/memories" in about else ""
    for path in (f"{folder}{fact.name}.md", f"{folder}{fact.name}_{fact.digest}.md"):
        step = yield from task.call("memory", created(path, fact), f"A fact to keep, of type {fact.kind}.")
        if not (step.failed and "exist" in step.text):
            break
        there = yield from task.call("memory", {"command": "view", "path": path}, "There is one of this name.")
        if not there.failed and fact.text in there.text:
            return task.say(f"`{path}` says so already: {fact.text}", f"`{path}` 里已有：{fact.text}")
    task.did(step, "It was not saved: ", "没有保存：")
    return task.say(f"Saved in `{path}` ({fact.kind}): {fact.text}", f"已记在 `{path}`（{fact.kind}）：{fact.text}")


_TOGETHER: Final = re.compile(
    r",?\s*\b(?:all )?(?:at once|in parallel|side by side|at the same time)\b"
    r"|,?\s*\bwith (?:a|an|one)?\s*(?:separate )?(?:sub-?agents?|forks?)(?: (?:for )?each)?\b[:,]?"
    r"|，?(?:同时|并行|分别用子代理)",
    re.I,
)
_HAND: Final = re.compile(
    r",?\s*(?:and |then )*hand (?:it|them|the (?:table|result|data)) back(?: as `?([A-Za-z_]\w*)`?)?|，?(?:并)?交回",
    re.I,
)
_DOING: Final = re.compile(r"<doing>\n(.*)\n</doing>", re.S)


def plan(task: Task, slots: Slots) -> Recipe:
    """Writes the steps of a request into the plan."""
    parts = re.split(r"\s*(?:,? and then |,? then |;|\n|,? and |,|，|、|；|然后|接着|再)\s*", slots["work"])
    steps = [part.strip(" -.。") for part in parts if len(part.strip(" -.。")) > 1] or [slots["work"]]
    task.need("plan")
    if "plan" not in task.conversation.tools:
        yield from task.call("tool_search", {"query": "plan", "limit": 1}, "How is plan called?")
    step = yield from task.call("plan", {"steps": [{"step": each} for each in steps]}, many(len(steps), "step") + ".")
    task.did(step, "The plan was not accepted: ", "计划没有被接受：")
    return task.say("The plan:", "计划：") + "\n\n" + "\n".join(f"{at}. {each}" for at, each in enumerate(steps, 1))


def pieces(task: Task) -> list[str]:
    """The files or tables that a request wants looked at at once, each by its own sub-agent; else nothing."""
    asked, told = task.conversation.turn.words, task.conversation.told
    if not task.has("agent") or not _TOGETHER.search(asked):
        return []
    words = re.findall(r"[A-Za-z_]\w*", _TOGETHER.sub("", asked))
    tables = [word for word in words if re.search(rf"^(?:new: |changed: )?{word}  DataFrame\b", told, re.M)]
    found = list(dict.fromkeys([path.lstrip("@") for path in _TABLE_FILES.findall(asked)] or tables))
    return found if len(found) > 1 else []


def spread(task: Task, names: list[str]) -> Recipe:
    """Starts a sub-agent for each and puts their answers together."""
    asked = task.conversation.turn.words
    looks = re.search(r"\bonly look\b|只看", asked, re.I)
    kind = "fork" if re.search(r"\bforks?\b", asked, re.I) else "explore" if looks else "general"
    plain = " ".join(_TOGETHER.sub("", asked).split())
    head, tail = plain[: plain.find(names[0])].rstrip("`'\"@"), plain[plain.rfind(names[-1]) + len(names[-1]) :]
    orders = [("agent", {"task": f"look at {PurePosixPath(name).name}", "prompt": f"{head}{name}{tail}", "type": kind})
              for name in names]  # fmt: skip
    steps = yield Act(tuple(orders), f"{len(names)} independent pieces: one sub-agent each, at once.")
    bad = [step.failed or step.text.startswith(("That failed: ", "运行出错：")) for step in steps]
    said = [task.say(f"{len(names)} sub-agents have answered{f', {sum(bad)} failed' * any(bad)}:",
                     f"{len(names)} 个子代理的回答{f'（{sum(bad)} 个失败）' * any(bad)}：")]  # fmt: skip
    for name, step, failed in zip(names, steps, bad, strict=True):
        lines = [line for line in step.text.strip().splitlines() if not re.match(r"\[sub-agent .*\]$", line)]
        words = "\n".join(line for line in lines if not MARK.search(line)).strip()[:1_200]
        said.append(f"\n**{name}**\n\n{task.say('failed: ', '失败：') * failed}{words}")
    return "\n".join(said)


def handing(conversation: Conversation) -> tuple[Conversation, str | None]:
    """The conversation without the order to hand the table back, and the name that the order says ("": the one it
    has; None: there is no such order, or nobody to hand anything to)."""
    turn = conversation.turn
    found = _HAND.search(turn.words)
    if not found or not ("hand_back(" in conversation.system or any(map(boundaries.fork_work, turn.extras))):
        return conversation, None
    without = replace(turn, asked=_HAND.sub("", turn.words).strip())
    return replace(conversation, turns=(*conversation.turns[:-1], without)), found[1] or ""


def handed_back(task: Task, recipe: Recipe, wanted: str) -> Recipe:
    """The recipe, and behind it the table that this turn made is handed back under the name."""
    said = yield from recipe
    codes = [step.code for step in task.conversation.turn.steps if "hand_back" not in step.code]
    made = [name for code in codes for name in sorted(assigned(code))]
    if not made:
        raise Ending(task.say("There is nothing to hand back.", "没有可以交回的内容。"))
    name = wanted or made[-1]
    yield from task.ran(f"hand_back({name}={made[-1]})", f"`{made[-1]}` is wanted by the user as `{name}`.")
    return f"{said}\n\n" + task.say(f"Handed back `{name}`.", f"已交回 `{name}`。")


def progress(body: Mapping[str, Any]) -> str:
    """A progress line, when a request asks for one: from what stands behind `Now:`; "" for other requests."""
    found = next((match[1] for text in boundaries.last_texts(body) if (match := _DOING.fullmatch(text))), "")
    file = re.search(r"^\w+\(.*?([\w.-]+\.\w{2,7})\b", found, re.M)
    about = re.search(r"^Task: .*?(\S*)$", found, re.M)
    return found and f"Working on {file[1] if file else about[1] if about else ''} now"


def so_far(task: Task, slots: Slots) -> str:
    """What was asked and answered so far, one line each."""
    lines = []
    for number, turn in enumerate((turn for turn in task.conversation.turns[:-1] if turn.asked), 1):
        said = [line.strip() for line in turn.said.splitlines() if line.strip() and not MARK.search(line)]
        gist = boundaries.cut(said[0].rstrip(":："), 160) if said else task.say("(no answer)", "（没有回答）")
        if turn.said.lstrip().startswith(("I am the practice model", "我是练习模型")):
            gist = task.say("(not answered: none of the forms I know)", "（没有回答：不是我认识的形式）")
        lines.append(f"{number}. **{boundaries.cut(turn.asked.replace('*', ''), 120)}**  \n   {gist}")
    if not lines:
        return task.say("This is the first thing you have asked in this conversation.", "这是这段对话里的第一个问题。")
    shown = lines if len(lines) <= 15 else [*lines[:5], "…", *lines[-9:]]
    head = task.say(f"So far you asked {many(len(lines), 'thing')}:", f"到目前为止你问了 {len(lines)} 件事：")
    return f"{head}\n\n" + "\n".join(shown)
