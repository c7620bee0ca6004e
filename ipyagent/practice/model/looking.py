"""Recipes that look at what there is: variables, files, the beginning of a text; and code run as it was given."""

from __future__ import annotations

import difflib
import re

from . import reading
from .conversation import Conversation
from .intents import Ask
from .knowledge import CELL
from .loading import listing
from .lost import gone, gone_text, how_built
from .phrases import bag
from .recipe import Act, Ending, Recipe, Task


def variables(task: Task, ask: Ask) -> Recipe:
    """What the user has, as the `variables` tool lists it."""
    step = yield from task.call("variables", {}, "The listing of variables answers this.")
    if step.failed:
        raise Ending(task.failure(step.text))
    frames = reading.frames(step.text)
    head = task.say(f"There are {len(frames)} DataFrames", f"有 {len(frames)} 个 DataFrame")
    head += "".join(f", `{name}` ({rows} x {columns})" for name, (rows, columns) in frames.items() if rows) + task.say(
        ". All variables:", "。所有变量："
    )
    return f"{head}\n\n```text\n{step.text.strip()[:3000]}\n```"


def find(task: Task, ask: Ask) -> Recipe:
    """One variable in depth, or the nearest names when there is none of that name."""
    common = bag(
        "what is in inside show me find the variable where type of inspect print display a an was s please and"
    )
    quoted_names = re.findall(r"`([A-Za-z_]\w*)`", ask.text)
    names = quoted_names or [each for each in re.findall(r"[A-Za-z_]\w*", ask.text) if each.lower() not in common]
    names = [*names, *task.conversation.turn.attached("variable")]
    if not names:
        return (yield from variables(task, ask))
    name, lost = names[0], gone(task.conversation)
    if name in lost:
        raise Ending(gone_text(task, name, lost[name]))
    step = yield from task.call("variables", {"name": name}, f"The user asks about the variable `{name}`.")
    if not step.failed and not re.search(r"\bno (?:such )?variable\b|not found|not defined", step.text[:200], re.I):
        return f"`{name}`:\n\n```text\n{step.text.strip()[:3000]}\n```"
    step = yield from task.call("variables", {}, f"There is no `{name}`; which names are near?")
    lost = reading.gone(step.text)
    if name in lost or how_built(task.conversation, name):
        raise Ending(gone_text(task, name, lost.get(name, "")))
    known = re.findall(r"^[\W_]*([A-Za-z_]\w*)\s", step.text, re.M)
    near = ", ".join(f"`{each}`" for each in difflib.get_close_matches(name, known, 5, 0.5))
    return task.say(
        f"There is no variable `{name}`." + (f" Near: {near}." if near else ""),
        f"没有变量 `{name}`。" + (f"名字相近的有：{near}。" if near else ""),
    )


def files(task: Task, ask: Ask) -> Recipe:
    """The files of the project, all or of one type."""
    ending = re.search(r"\b(csv|parquet|json|xlsx|py|ipynb|md|txt)\b", ask.text, re.I)
    pattern = f"**/*.{ending[1].lower()}" if ending else "*"
    (step, *_) = yield listing(task, pattern, f"List the files that match {pattern}.")
    task.allowed(step)
    if step.failed:
        raise Ending(task.failure(step.text))
    there = reading.names(step.text)
    head = task.say(f"{len(there)} files match `{pattern}`:", f"有 {len(there)} 个文件匹配 `{pattern}`：")
    more = [f"… {len(there) - 40} more"] if len(there) > 40 else []
    return (
        "\n".join([head, "", *(f"- `{each}`" for each in there[:40]), *more])
        if there
        else f"{head}\n\n```text\n{step.text.strip()[:1500]}\n```"
    )


def around(task: Task, ask: Ask) -> Recipe:
    """Variables and files at once."""
    calls: tuple[tuple[str, dict[str, str]], ...] = (("variables", {}), ("glob", {"pattern": "*"}))
    wanted = [call for call in calls if task.has(call[0])]
    if not wanted:
        task.need("variables")
    steps = yield Act(tuple(wanted), "Two independent look-ups, so I make them at once.")
    parts = []
    for step in steps:
        task.allowed(step)
        title = task.say("Variables", "变量") if step.tool == "variables" else task.say("Files", "文件")
        parts.append(f"**{title}**\n\n```text\n{step.text.strip()[:2000] or '-'}\n```")
    return "\n\n".join(parts)


def read(task: Task, ask: Ask) -> Recipe:
    """The beginning of a text file."""
    found = re.search(r"[\w./-]+\.[A-Za-z]\w{0,5}", ask.text)
    path = found.group() if found else ""
    step = yield from task.call("read_file", {"path": path}, f"Read {path}.")
    if step.failed:
        raise Ending(task.say(f"I could not read `{path}`: ", f"读不了 `{path}`：") + step.text.strip()[:300])
    lines = step.text.strip().splitlines()
    more = (
        task.say(f"\n\n… and {len(lines) - 40} more lines.", f"\n\n… 还有 {len(lines) - 40} 行。")
        if len(lines) > 40
        else ""
    )
    return (
        task.say(f"`{path}` begins:", f"`{path}` 的开头：") + "\n\n```text\n" + "\n".join(lines[:40]) + "\n```" + more
    )


def run(task: Task, ask: Ask) -> Recipe:
    """Runs the code the user gave, as it is."""
    asked = task.conversation.turn.asked
    fenced = re.search(r"```(?:python|py)?\s*\n(.*?)```", asked, re.S)
    inline = re.search(r"`([^`]+)`", asked)
    code = (
        fenced[1]
        if fenced
        else re.split(r"[:：]", asked, maxsplit=1)[-1]
        if re.search(r"^\D{0,40}[:：]", asked)
        else inline[1]
        if inline
        else asked
    )
    step = yield from task.python(code.strip("\n ").strip("`"), "The user gave the code; run it unchanged.")
    kind, message = reading.error(step.text)
    if step.failed:
        head = task.say(f"It raised `{kind}: {message}`.", f"出错了：`{kind}: {message}`。")
        return head if kind not in ("ModuleNotFoundError", "ImportError") else f"{head} {task.failure(step.text)}"
    out = step.text.strip()
    return task.say("It ran. ", "已运行。") + (
        f"\n\n```text\n{out[:3000]}\n```" if out else task.say("There was no output.", "没有输出。")
    )


def calculate(task: Task, ask: Ask) -> Recipe:
    """Arithmetic, done by Python and not by the model."""
    words = re.sub(r"(\d+(?:\.\d+)?)\s*% of (\d+)", r"\1 / 100 * \2", ask.text, flags=re.I)
    found = re.search(r"[\d(.-][\d\s.()+*/%^×÷,-]*[\d)]", words)
    text = (
        found.group().replace("×", "*").replace("÷", "/").replace("^", "**").replace(",", "").strip() if found else "0"
    )
    step = yield from task.sure(text, "Arithmetic is for Python.")
    result = step.text.strip().removeprefix("Out:").strip()
    return f"{text} = **{result}**"


_MEANS = {
    "NameError": ("a name is used that is not defined here; run the cell that makes it first",
                  "用到了没有定义的名字；请先运行定义它的单元格"),
    "KeyError": ("the table or dict has no such column or key; check its spelling and capitals",
                 "表或字典里没有这个列或键；请检查拼写和大小写"),
    "FileNotFoundError": ("there is no file at this path, seen from the working directory",
                          "从当前目录看，这个路径没有文件"),
    "ModuleNotFoundError": ("the package is not installed in this kernel; `%pip install` adds it",
                            "这个内核没有安装该包；可以用 `%pip install` 安装"),
    "TypeError": ("a value has another type than the operation needs, often text instead of a number",
                  "值的类型不符合运算要求，常见的是把文本当数字用"),
    "ValueError": ("the type is right but the value cannot be used", "类型正确，但这个值不能用"),
    "AttributeError": ("the object has no such attribute or method", "对象没有这个属性或方法"),
    "ZeroDivisionError": ("something was divided by zero", "除以了零"),
    "IndexError": ("a position beyond the end was asked for", "索引超出了范围"),
    "SyntaxError": ("the code is not Python as it stands", "代码不符合 Python 语法"),
}  # fmt: skip


def _own_cell(conversation: Conversation) -> str:
    """The newest cell that the user ran, as the last reminder that tells of any has it; empty without one."""
    for turn in reversed(conversation.turns):
        for extra in reversed(turn.extras):
            told = extra.partition("Run by the user since the last request:")[2] if "<context" in extra else ""
            if cells := CELL.findall(told):
                return str(cells[-1])
    return ""


def why(task: Task, ask: Ask) -> str:
    """What the last error of the conversation was, where, and what that type of error means.

    Of the user's own cells only the code is known: it is shown, and the error asked for.
    """
    pasted, detail = reading.error(task.conversation.turn.asked)
    if pasted:
        meaning = task.say(*_MEANS.get(pasted, ("I have no rule for it", "我没有对应的规则")))
        return task.say(f"`{pasted}: {detail}` means: {meaning}.", f"`{pasted}: {detail}` 的意思是：{meaning}。")
    step = next((step for step in reversed(task.conversation.history) if step.failed), None)
    cell = _own_cell(task.conversation)
    about_cell = re.search(r"\bcell\b|\bmy code\b|单元格|我的代码", ask.text, re.I)
    if cell and (step is None or about_cell):
        return task.say(
            f"I see the code of your last cell but not its output, so I cannot tell whether or why it failed:"
            f"\n\n```python\n{cell}\n```\n\nPaste the last line of the error (such as `KeyError: 'x'`) and ask again.",
            f"我看得到你最近运行的单元格的代码，但看不到它的输出，所以无法判断它是否出错、为什么出错："
            f"\n\n```python\n{cell}\n```\n\n请把报错的最后一行（例如 `KeyError: 'x'`）贴给我再问一次。",
        )
    if step is None and about_cell:
        return task.say(
            "Nothing I ran has failed, and I do not see your own cells' errors. Paste the cell and its error.",
            "我运行的东西没有失败过；你自己的单元格的报错我看不到，请把代码和报错贴给我。",
        )
    if step is None:
        return task.say("Nothing I ran in this conversation has failed.", "这段对话里我运行的东西没有失败过。")
    if reading.denied(step.text):
        return task.say(f"`{step.tool}` was not allowed: ", f"`{step.tool}` 没有得到许可：") + step.text.strip()[:300]
    kind, message = reading.error(step.text)
    meaning = task.say(*_MEANS[kind]) if kind in _MEANS else ""
    at = re.findall(r"line (\d+)", step.text)
    lines = step.code.splitlines()
    row = lines[int(at[-1]) - 1].strip() if at and 0 < int(at[-1]) <= len(lines) else ""
    said = task.say(f"The last error was `{kind}: {message}`", f"最近的错误是 `{kind}: {message}`")
    said += task.say(f", in the line `{row}`.", f"，在这一行：`{row}`。") if row else task.say(".", "。")
    return f"{said} " + task.say(f"It means: {meaning}.", f"意思是：{meaning}。") if meaning else said
