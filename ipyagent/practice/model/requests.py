"""What the forms beside tables do: loading, code and files, memories, skills, tools of the user's, other agents."""

from __future__ import annotations

import ast
import json
import keyword
import re
from collections.abc import Generator, Mapping
from pathlib import PurePosixPath
from typing import Any, Final

from ipyagent.practice.model import conversation as boundaries
from ipyagent.practice.model.conversation import MARK, Conversation, Step
from ipyagent.practice.model.memories import Fact, created, fact_of
from ipyagent.practice.model.recipe import (
    Act,
    Ending,
    Recipe,
    Task,
    assigned,
    error,
    how_built,
    instance,
    word_set,
)  # fmt: skip
from ipyagent.practice.model.tables import literal, many

Slots = Mapping[str, str]

# ---------------------------------------------------------------------- files, code, variables

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
        code = f"from palmerpenguins import load_penguins\n\n{name} = load_penguins()\n{_shown(name)}"
        return (yield from _load(task, code, task.say("the palmer penguins", "企鹅数据集"), name))
    paths = _TABLE_FILES.findall(slots["files"])
    said = []
    for path in paths:
        path = path.lstrip("@")
        name = (slots.get("name") if len(paths) == 1 else "") or name_for(task, path)
        read = _READERS[path.rpartition(".")[2].lower()].format(path=literal(path))
        said.append(
            (yield from _load(task, f"import pandas as pd\n\n{name} = {read}\n{_shown(name)}", f"`{path}`", name))
        )
    return "\n\n".join(said)


def name_for(task: Task, path: str) -> str:
    """The variable that a file is read into where the request gives no name."""
    stem = re.sub(r"\W+", "_", PurePosixPath(path).name.split(".")[0], flags=re.ASCII).strip("_").lower()
    return _fresh(task, stem if stem.isidentifier() and not keyword.iskeyword(stem) and len(stem) <= 24 else "df")


def _shown(name: str) -> str:
    return f"print({name}.shape)\nprint(list({name}.columns))\n{name}.head()"


def _fresh(task: Task, name: str) -> str:
    """The name, or with a number where the user has a variable of it: one that the session told of and that no code
    of the agent's made."""
    told = " ".join(extra for turn in task.conversation.turns for extra in turn.extras if "<context" in extra)
    own = {made for turn in task.conversation.turns for step in turn.steps for made in assigned(step.code)}
    found, number = name, 2
    while found not in own and re.search(rf"(?<![\w.]){found}(?![\w.])", told):
        found, number = f"{name}_{number}", number + 1
    return found


def _load(task: Task, code: str, what: str, name: str) -> Recipe:
    step = yield from task.python(code, f"Load {what} and look at its shape and columns.")
    if step.failed:
        if error(step.text)[0] == "UnicodeDecodeError":
            raise Ending(task.say(f"{what} is not UTF-8 text. Load it with `pd.read_csv(…, encoding=…)`.",
                                  f"{what} 不是 UTF-8 文本。请用 `pd.read_csv(…, encoding=…)` 读取。"))  # fmt: skip
        raise Ending(task.failure(step.text))
    size, listed = re.search(r"\((\d+), (\d+)\)", step.text), re.search(r"^\[.*\]$", step.text, re.M)
    if size is None:
        return task.say(f"Loaded {what} as `{name}`.", f"已把{what}读入 `{name}`。")
    try:
        columns = [str(column) for column in ast.literal_eval(listed[0])] if listed else []
    except (ValueError, SyntaxError):
        columns = []
    names = ", ".join(f"`{column}`" for column in columns[:30]) + (", …" if len(columns) > 30 else "")
    said = task.say(f"Loaded {what} as `{name}`: {many(f'**{size[1]}**', 'row')}, {many(f'**{size[2]}**', 'column')}.",
                    f"已把{what}读入 `{name}`：**{size[1]}** 行，**{size[2]}** 列。")  # fmt: skip
    if columns and len(columns) == 1 and re.search(r"[;\t|]", columns[0]):
        said += task.say(" There is one column only: the separator may be another than a comma.",
                         " 只有一列：分隔符可能不是逗号。")  # fmt: skip
    return said + (task.say(f"\n\nColumns: {names}.", f"\n\n列：{names}。") if names else "")


def rebuild(task: Task, slots: Slots) -> Recipe:
    """Runs again the code that made a variable which is gone."""
    said = next((turn.said for turn in reversed(task.conversation.turns[:-1]) if turn.said), "")
    names = [slots.get("name") or "", *re.findall(r"`([A-Za-z_]\w*)`", said)]
    name = next((each for each in names if each and how_built(task.conversation, each)), "")
    if not name:
        return task.say(
            "I know of nothing that is gone and that I could rebuild.", "我不知道有什么丢失的变量需要重建。"
        )
    step = yield from task.python(how_built(task.conversation, name), f"`{name}` was made by this code earlier.")
    if step.failed:
        raise Ending(task.failure(step.text))
    size = re.search(r"\((\d+), (\d+)\)", step.text)
    shape = (
        task.say(f": {many(size[1], 'row')}, {many(size[2], 'column')}", f"：{size[1]} 行，{size[2]} 列")
        if size
        else ""
    )
    return task.say(
        f"Rebuilt `{name}`{shape}, with the code that made it before.", f"已用原来的代码重建 `{name}`{shape}。"
    )


def listing(task: Task, slots: Slots) -> Recipe:
    """The variables, or the files of the project."""
    if slots.get("files"):
        ending = (slots.get("ending") or "").strip(" .").lower()
        tool, given = "glob", {"pattern": f"**/*.{ending}" if ending else "*"}
    else:
        tool, given = "variables", {}
    step = yield from task.call(tool, given, "The listing answers this.")
    task.did(step, "That failed: ", "失败：")
    return f"```text\n{step.text.strip()[:3000]}\n```"


def read(task: Task, slots: Slots) -> Recipe:
    """The beginning of a text file."""
    said = []
    for path in re.split(r"\s*,\s*|\s+and\s+|和|、", slots["path"]):
        step = yield from task.call("read_file", {"path": path.strip("`@ ")}, f"Read {path}.")
        task.did(step, f"I could not read `{path}`: ", f"读不了 `{path}`：")
        lines = step.text.strip().splitlines()
        more = task.say(f"\n\n… and {many(len(lines) - 40, 'more line')}.", f"\n\n… 还有 {len(lines) - 40} 行。")
        begins = task.say(f"`{path}` begins:", f"`{path}` 的开头：")
        said.append(f"{begins}\n\n```text\n" + "\n".join(lines[:40]) + "\n```" + more * (len(lines) > 40))
    return "\n\n".join(said)


def run(task: Task, slots: Slots) -> Recipe:
    """Runs the code the user gave, as it is."""
    step = yield from task.python(slots["code"].strip("\n "), "The user gave the code; run it unchanged.")
    if step.failed:
        kind, message = error(step.text)
        return task.say(f"It raised `{kind}: {message}`.", f"出错了：`{kind}: {message}`。")
    out = step.text.strip()
    said = task.say("It ran. ", "已运行。")
    return said + (f"\n\n```text\n{out[:3000]}\n```" if out else task.say("There was no output.", "没有输出。"))


# ---------------------------------------------------------------------- memories

_TREE: Final = ("/memories/project/", "/memories/user/")


def remember(task: Task, slots: Slots) -> Recipe:
    """Saves a fact in a memory file of its own."""
    task.need("memory")
    said = slots["said"].strip()
    fact = fact_of(said, asked=True) or Fact(said, "project", said)
    folder = _TREE[fact.kind == "user"] if _TREE[0].rstrip("/") in _memory(task) else _root(task)
    for path in (f"{folder}{fact.name}.md", f"{folder}{fact.name}_{fact.digest}.md"):
        step = yield from task.call("memory", created(path, fact), f"A fact to keep, of type {fact.kind}.")
        if not (step.failed and "exist" in step.text):
            break
        there = yield from task.call("memory", {"command": "view", "path": path}, "There is one of this name.")
        if not there.failed and fact.text in there.text:
            return task.say(f"`{path}` says so already: {fact.text}", f"`{path}` 里已有：{fact.text}")
    task.did(step, "It was not saved: ", "没有保存：")
    return task.say(f"Saved in `{path}` ({fact.kind}): {fact.text}", f"已记在 `{path}`（{fact.kind}）：{fact.text}")


def recall(task: Task, slots: Slots) -> Recipe:
    """Looks through the memory for what the request is about and quotes it."""
    paths = (yield from _found(task, slots["about"]))[:2]
    said = []
    for path in paths:
        step = yield from task.call(
            "memory", {"command": "view", "path": path}, f"{path} shares words with the question."
        )
        if not step.failed:
            text = re.sub(r"^\s*\d+[\t:|]\s?", "", step.text, flags=re.M)
            body = re.sub(r"\A.*?---\n.*?\n---\n", "", text, flags=re.S).strip()
            said.append(f"- `{path}`: " + " ".join(body.splitlines()[:3])[:400])
    if not said:
        return task.say(
            f"I find nothing in the memory about: {slots['about']}", f"记忆里没有找到相关内容：{slots['about']}"
        )
    return task.say("From the memory:", "记忆里有：") + "\n" + "\n".join(said)


def forget(task: Task, slots: Slots) -> Recipe:
    """Deletes the memory file that fits best."""
    paths = yield from _found(task, slots["about"])
    if not paths:
        return task.say(f"There is no memory about: {slots['about']}", f"没有关于它的记忆：{slots['about']}")
    step = yield from task.call("memory", {"command": "delete", "path": paths[0]}, f"{paths[0]} fits best.")
    task.did(step, "It was not deleted: ", "没有删除：")
    return task.say(f"Forgot `{paths[0]}`.", f"已忘掉 `{paths[0]}`。")


def _memory(task: Task) -> str:
    return json.dumps(task.conversation.tools.get("memory") or {})


def _root(task: Task) -> str:
    return "/memories/" if "/memories" in _memory(task) else ""


def _found(task: Task, about: str) -> Generator[Act, tuple[Step, ...], list[str]]:
    """Memory files whose line in the listing or the index shares words with the query, best first."""
    step = yield from task.call("memory", {"command": "view", "path": _root(task) or "."}, "What is in the memory?")
    scores: dict[str, int] = {}
    wanted, hooks = word_set(about), task.conversation.system.splitlines()
    for path in re.findall(r"[\w./-]+\.md", step.text):
        name = path.rsplit("/", 1)[-1]
        if name != "MEMORY.md":
            lines = [path, *(line for line in hooks if name in line)]
            full = path if path.startswith("/") else _root(task) + name
            score = max(len(wanted & word_set(line.replace("_", " "))) for line in lines)
            scores[full] = max(scores.get(full, 0), score)
    return sorted((path for path, score in scores.items() if score), key=lambda path: (-scores[path], path))


# ---------------------------------------------------------------------- plans, other agents, the session

_TOGETHER: Final = re.compile(
    r",?\s*\b(?:all )?(?:at once|in parallel|side by side|at the same time|concurrently)\b"
    r"|,?\s*\b(?:each )?(?:with|by|in|using|to) (?:a|an|one|its own|their own)?\s*(?:separate )?"
    r"(?:sub-?agents?|agents?|forks?)(?: (?:for )?each)?\b[:,]?|，?(?:同时|并行|分别用子代理)",
    re.I,
)
_LOADS: Final = re.compile(r"\b(?:load|read|open|import)\b|加载|读取|读入|载入|导入|打开", re.I)
_HAND: Final = re.compile(
    r",?\s*(?:and |then )*hand (?:it|them|the (?:table|result|data)) back(?: as `?([A-Za-z_]\w*)`?)?|，?(?:并)?交回",
    re.I,
)
_DOING: Final = re.compile(r"<doing>\n(.*)\n</doing>", re.S)
_VERBS: Final = {
    "read_file": "Reading",
    "grep": "Searching",
    "glob": "Listing",
    "variables": "Looking at",
    "shell": "Running",
}
_END: Final = re.compile(r'<message from="[^"\n]*" kind="shutdown_request">')
_CAME: Final = re.compile(r"<message from=\"([^\"\n]*)\"[^>\n]*>\n(.*)\n</message>$", re.S)


_WENT_WRONG: Final = re.compile(
    r"^(?:Step \d+ of `[^`\n]+`: )?(?:That failed: |I was not allowed to use |This session has no `|I could not read `"
    r"|The package `[^`\n]+` is not installed|It raised `)|^The sub-agent '[^\n]{1,80}' (?:failed|was)"
    r"|^(?:`[^`\n]+` 第 \d+ 步：)?(?:运行出错：|没有得到使用 |这个会话没有 `|读不了 `|这里没有安装 `|出错了：)",
    re.M,
)


def plan(task: Task, slots: Slots) -> Recipe:
    """Writes the steps of a request into the plan."""
    parts = re.split(r"\s*(?:,? and then |,? then |;|\n|, and |,|，|、|；|然后|接着|再)\s*", slots["work"])
    if len(parts) > 1 and (last := re.fullmatch(r"(\w+) and (.+)", parts[-1])):  # "load, clean and plot it"
        parts = [*parts[:-1], last[1], last[2]]
    steps = [part.strip(" -.。") for part in parts if len(part.strip(" -.。")) > 1] or [slots["work"]]
    schema = yield from task.schema("plan")
    step = yield from task.call(
        "plan", instance(schema, steps=steps, text=slots["work"]), f"{many(len(steps), 'step')}."
    )
    task.did(step, "The plan was not accepted: ", "计划没有被接受：")
    return task.say("The plan:", "计划：") + "\n\n" + "\n".join(f"{at}. {each}" for at, each in enumerate(steps, 1))


def pieces(task: Task) -> list[str]:
    """The files or tables that a request wants looked at at once, each by its own sub-agent; else nothing."""
    asked = task.conversation.turn.words
    if not task.has("agent") or not _TOGETHER.search(asked):
        return []
    told = " ".join(extra for turn in task.conversation.turns for extra in turn.extras if "<context" in extra)
    made = {name for turn in task.conversation.turns for step in turn.steps for name in assigned(step.code)}
    words = re.findall(r"[A-Za-z_]\w*", _TOGETHER.sub("", asked))
    tables = [
        word for word in words if word in made or re.search(rf"^(?:new: |changed: )?{word}  DataFrame\b", told, re.M)
    ]
    found = list(dict.fromkeys([path.lstrip("@") for path in _TABLE_FILES.findall(asked)] or tables))
    return found if len(found) > 1 else []


def spread(task: Task, names: list[str]) -> Recipe:
    """Starts a sub-agent for each and puts their answers together."""
    asked = task.conversation.turn.words
    looks = re.search(r"\bonly look\b|\bexplor(?:e|er|ers)\b|只看", asked, re.I)
    kind = "fork" if re.search(r"\bforks?\b", asked, re.I) else "explore" if looks else "general"
    plain = " ".join(_TOGETHER.sub("", asked).split())
    first, last = plain.find(names[0]), max(plain.rfind(name) + len(name) for name in names)
    head, tail = plain[:first].rstrip("`'\"@"), plain[last:].lstrip("`'\"")
    orders: list[tuple[str, Mapping[str, Any]]] = []
    for name in names:
        prompt = f"{head}{name}{tail}"
        if _TABLE_FILES.fullmatch(name) and kind != "explore" and not _LOADS.search(head):
            prompt = f"Load {name}, then {head[:1].lower()}{head[1:]}it{tail}"
        orders.append(("agent", {"task": f"look at {name.rpartition('/')[2]}", "prompt": prompt, "type": kind}))
    steps = yield Act(tuple(orders), f"{len(names)} independent pieces: one sub-agent each, at once.")
    bad = sum(map(_failed, steps))
    said = [task.say(f"{len(names)} sub-agents have answered{f', {bad} failed' * bool(bad)}:",
                     f"{len(names)} 个子代理的回答{f'（{bad} 个失败）' * bool(bad)}：")]  # fmt: skip
    for name, step in zip(names, steps, strict=True):
        lines = [line for line in step.text.strip().splitlines() if not re.match(r"\[sub-agent .*\]$", line)]
        words = "\n".join(line for line in lines if not MARK.search(line)).strip()[:1_200]
        said.append(f"\n**{name}**\n\n{task.say('failed: ', '失败：') * _failed(step)}{words}")
    return "\n".join(said)


def delegate(task: Task, slots: Slots) -> Recipe:
    """Gives the work to a sub-agent and reports what it answered."""
    schema = yield from task.schema("agent")
    given = instance(schema, steps=[slots["work"]], text=slots["work"])
    step = yield from task.call("agent", given, "The user wants a sub-agent to do it.")
    task.did(step, "The sub-agent failed: ", "子代理失败：")
    head = ("The sub-agent failed:", "子代理失败：") if _failed(step) else ("The sub-agent answered:", "子代理的回答：")
    return f"{task.say(*head)}\n\n{step.text.strip()[:2000]}"


def _failed(step: Step) -> bool:
    """Whether a sub-agent failed, or says of a step of its work that it did."""
    return step.failed or _WENT_WRONG.search(step.text) is not None


def handing(conversation: Conversation) -> tuple[Conversation, str | None]:
    """The conversation without the order to hand the table back, and the name that the order says ("": the one it
    has; None: there is no such order, or nobody to hand anything to)."""
    turn = conversation.turn
    found = _HAND.search(turn.words)
    may = "hand_back(" in conversation.system or any(boundaries.fork_work(extra) for extra in turn.extras)
    return (
        (conversation.asking(_HAND.sub("", turn.words).strip()), found[1] or "")
        if found and may
        else (conversation, None)
    )


def hand_back(task: Task, wanted: str) -> Recipe:
    """Hands back the table that this turn made; a line for the answer."""
    made = [
        name
        for step in task.conversation.turn.steps
        if "hand_back" not in step.code
        for name in sorted(assigned(step.code))
    ]
    if not made:
        raise Ending(task.say("There is nothing to hand back.", "没有可以交回的内容。"))
    name = wanted or made[-1]
    step = yield from task.python(f"hand_back({name}={made[-1]})", f"`{made[-1]}` is wanted by the user as `{name}`.")
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
    file = _TABLE_FILES.search(found[1]) or re.search(r"[\w./-]+\.\w{2,5}\b", found[1])
    tool, about = re.search(r"^(\w+)\(", found[1], re.M), re.search(r"^Task: (.*)$", found[1], re.M)
    verb = _VERBS.get(tool[1], "Working on") if tool else "Thinking about"
    if file and tool:
        return f"{verb} {re.split('[/=]', file[0])[-1]} now"
    return f"{verb} {about[1].split()[-1] if about and about[1].split() else 'the work'}"


def message(task: Task, slots: Slots) -> Recipe:
    """Writes to another agent and says what became of it."""
    to = "*" if slots.get("all") or slots.get("to", "").lower() in ("all", "everybody", "everyone") else slots["to"]
    given = {"to": to, "message": (slots.get("said") or "Please end your work now.").strip()}
    given |= {} if slots.get("said") else {"kind": "shutdown_request"}
    step = yield from task.call("send_message", given, f"The user wants {to} to be written to.")
    task.did(step, "The message was not sent: ", "消息没有发出：")
    return task.say(f"Sent. {step.text.strip()[:400]}", f"已发出。{step.text.strip()[:400]}")


def told_to_end(task: Task) -> bool:
    """Whether another agent asks this one to end."""
    return any(_END.match(extra) for extra in task.conversation.turn.extras)


def came(task: Task, slots: Slots) -> str:
    """What other agents wrote."""
    found = [match for extra in task.conversation.turn.extras if (match := _CAME.match(extra))]
    lines = [f"> **{each[1]}**: {' '.join(each[2].split())[:400]}" for each in found]
    if not lines:
        return task.say("No messages came with this request.", "这次请求没有带来消息。")
    return task.say("Messages that came:", "收到的消息：") + "\n\n" + "\n>\n".join(lines)


def compact(task: Task, slots: Slots) -> Recipe:
    """Asks the session to compact its context."""
    step = yield from task.call("compact", {}, "The user wants the context compacted.")
    task.did(step, "Nothing was compacted: ", "没有压缩：")
    return task.say("Done: ", "完成：") + (
        step.text.strip()[:500] or task.say("the context is compacted.", "上下文已压缩。")
    )


def done_so_far(task: Task, slots: Slots) -> str:
    """What was asked and answered so far, one line each."""
    earlier = [turn for turn in task.conversation.turns[:-1] if turn.asked]
    lines = []
    for number, turn in enumerate(earlier, 1):
        asked = " ".join(turn.asked.replace("*", "").split())
        said = [line.strip() for line in turn.said.splitlines() if line.strip() and not MARK.search(line)]
        gist = (said[0] if said else "").rstrip(":：")
        if turn.said.lstrip().startswith(("I am the practice model", "我是练习模型")):
            gist = task.say("(not answered: none of the forms I know)", "（没有回答：不是我认识的形式）")
        gist = (gist if len(gist) <= 160 else f"{gist[:160]}…") or task.say("(no answer)", "（没有回答）")
        lines.append(f"{number}. **{asked if len(asked) <= 120 else asked[:120] + '…'}**  \n   {gist}")
    if not lines:
        return task.say("This is the first thing you have asked in this conversation.", "这是这段对话里的第一个问题。")
    shown = lines if len(lines) <= 15 else [*lines[:5], "…", *lines[-9:]]
    head = task.say(f"So far you asked {many(len(earlier), 'thing')}:", f"到目前为止你问了 {len(earlier)} 件事：")
    return f"{head}\n\n" + "\n".join(shown)
