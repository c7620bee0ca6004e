"""Finds which DataFrame a request means and reads its real columns before anything is computed."""

from __future__ import annotations

import ast
import re
from collections.abc import Generator, Mapping
from dataclasses import dataclass

from . import reading
from .conversation import Conversation, Step
from .phrases import bag
from .recipe import Act, Ending, Task

# Names that the practice model gives to its own results; another DataFrame is preferred to them.
OWN = bag("summary missing profile pairs matrix comparison largest smallest subset counts model_data predictors")

_TEMPORAL = ("datetime", "period")


@dataclass(frozen=True, slots=True)
class Frame:
    """A DataFrame as it is now: its name, row count, and the dtype and number of distinct values of each column."""

    name: str
    rows: int
    dtypes: Mapping[str, str]
    unique: Mapping[str, int]
    values: Mapping[str, tuple[str, ...]]

    @property
    def columns(self) -> list[str]:
        """Column names in order."""
        return list(self.dtypes)

    def numeric(self, column: str) -> bool:
        """Whether the column holds numbers (booleans are not)."""
        return bool(re.match(r"u?int|float|Int|UInt|Float|double|decimal", self.dtypes[column]))

    def temporal(self, column: str) -> bool:
        """Whether the column holds dates or is a text column named like one."""
        kind = self.dtypes[column].lower()
        named = re.search(r"date|time|日期|时间", column, re.I)
        return kind.startswith(_TEMPORAL) or bool(
            named and not self.numeric(column) and self.unique.get(column, 0) > 12
        )

    def few(self, column: str, most: int = 12) -> bool:
        """Whether the column has few enough values to be a group."""
        return self.unique.get(column, 0) <= most


Finding = Generator[Act, tuple[Step, ...], Frame]


def inspection(name: str) -> str:
    """Code that shows the shape, dtypes and distinct values of a DataFrame as one dict."""
    return (
        f'{{"rows": len({name}), "dtypes": {name}.dtypes.astype(str).to_dict(),\n'
        f' "unique": {name}.nunique().to_dict(),\n'
        f' "values": {{c: {name}[c].dropna().astype(str).unique().tolist() '
        f"for c in {name} if {name}[c].nunique() <= 40}},\n"
        "}"
    )


_SEARCH = '[n for n, v in list(globals().items()) if type(v).__name__ == "DataFrame" and not n.startswith("_")]'


def used_before(conversation: Conversation) -> list[str]:
    """Names of variables in the code of the conversation that was run without error, most recent first."""
    found: list[str] = []
    for step in reversed(conversation.history):
        if step.code and not step.failed:
            match = re.search(
                r"\"rows\": len\(([A-Za-z_]\w*)\)|^([A-Za-z_]\w*) = (?:pd\.read_|load_|data\.)", step.code, re.M
            )
            if match:
                found.append(match[1] or match[2])
    return list(dict.fromkeys(found))


def gone(conversation: Conversation) -> dict[str, str]:
    """Variables that reminders call gone and that no later code of the conversation has made again."""
    lost: dict[str, str] = {}
    for turn in conversation.turns:
        for extra in turn.extras:
            for name in reading.frames(extra):
                lost.pop(name, None)
            lost.update(reading.gone(extra))
        for step in turn.steps:
            if step.tool == "variables" and not step.failed:
                lost.update(reading.gone(step.text))
                for name in reading.frames(step.text):
                    lost.pop(name, None)
            elif step.code and not step.failed:
                for name in assigned(step.code):
                    lost.pop(name, None)
    return lost


def assigned(code: str) -> set[str]:
    """Names that the code binds at its top level; none when it is not plain Python."""
    try:
        tree = ast.parse(code)
    except SyntaxError:
        return set()
    bound: set[str] = set()
    for node in tree.body:
        targets = (
            node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
        )
        bound |= {each.id for target in targets for each in ast.walk(target) if isinstance(each, ast.Name)}
    return bound


def _free(code: str) -> set[str]:
    """Names that the code reads and does not bind itself."""
    bound: set[str] = set()
    read: set[str] = set()
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.Name):
            (read if isinstance(node.ctx, ast.Load) else bound).add(node.id)
        elif isinstance(node, ast.Import | ast.ImportFrom):
            bound |= {(alias.asname or alias.name).split(".")[0] for alias in node.names}
    return read - bound


_CELL = re.compile(r"```(?:python)?\n(.*?)\n```", re.S)


def _codes(conversation: Conversation) -> list[str]:
    """Code that ran, oldest first: the user's own cells that reminders tell of, and calls without an error."""
    codes: list[str] = []
    for turn in conversation.turns:
        for extra in turn.extras:
            codes += _CELL.findall(extra) if extra.lstrip().startswith("<context>") else []
        codes += [step.code for step in turn.steps if step.code and not step.failed]
    return codes


def how_built(conversation: Conversation, name: str) -> str:
    """The code that made the variable, with what it needed from others; empty when unknown."""
    needed, parts = {name}, []
    for code in reversed(_codes(conversation)):
        if made := assigned(code) & needed:
            parts.append(code)
            needed = (needed - made) | _free(code)
    return "\n".join(reversed(list(dict.fromkeys(parts))))


def gone_text(task: Task, name: str, what: str) -> str:
    """Says that a variable is gone, how it was made, and offers to make it again."""
    was = f" ({what})" if what else ""
    code = how_built(task.conversation, name)
    if not code:
        return task.say(
            f"`{name}`{was} is gone: the kernel was restarted since. I did not make it in this conversation, "
            "so I do not "
            "know how to rebuild it; run the cell that made it, or tell me the file to load.",
            f"`{name}`{was} 已经不在了：内核重启过。它不是在这段对话里由我创建的，我不知道怎么重建；"
            f"请重新运行创建它的单元格，"
            "或者告诉我要读取的文件。",
        )
    block = f"\n\n```python\n{code}\n```"
    return task.say(
        f"`{name}`{was} is gone: the kernel was restarted since. It was made with{block}\n\nShall I rebuild it? "
        "Say “yes, rebuild it”.",
        f"`{name}`{was} 已经不在了：内核重启过。它原来是这样创建的：{block}\n\n要我重建吗？回答“重建”即可。",
    )


def find_frame(task: Task, text: str) -> Finding:
    """The DataFrame the request means, inspected now. Ends the turn when there is none or it is gone."""
    lost = gone(task.conversation)
    named = [name for name in re.findall(r"[A-Za-z_]\w*", text) if name in lost]
    there = (yield from _choose(task, named[0])) if named else ""
    attached = task.conversation.turn.attached("variable")
    before = [name for name in used_before(task.conversation) if name not in lost]
    explicit = [name for name in re.findall(r"[A-Za-z_]\w*", text) if name in before]
    name = (*attached, *filter(None, [there]), *explicit, *before, "")[0]
    asked_for = re.findall(r"`([A-Za-z_]\w*)`|\b(df\w*)\b", text)
    other = next((a or b for a, b in asked_for if (a or b) not in before), "")
    if not name or (other and not attached and not there):
        name = yield from _choose(task, text)
    step = yield from task.python(inspection(name), f"The question is about `{name}`; its real columns come first.")
    kind = reading.error(step.text)[0] if step.failed else ""
    if kind in ("NameError", "AttributeError"):
        name = yield from _choose(task, text, without=name, unbound=kind == "NameError")
        step = yield from task.python(inspection(name), f"`{name}` exists; its real columns come first.")
    if step.failed and reading.error(step.text)[0] == "TypeError":
        plain = (
            f'{{"rows": len({name}), "dtypes": {name}.dtypes.astype(str).to_dict(), "unique": {{}}, "values": {{}}}}'
        )
        step = yield from task.python(plain, "Some cells cannot be hashed; only the dtypes are needed.")
    if step.failed:
        raise Ending(task.failure(step.text))
    found = reading.literal(step.text)
    if not isinstance(found, dict) or "dtypes" not in found:
        raise Ending(
            task.say(f"I could not read the columns of `{name}` from:", f"读不出 `{name}` 的列：")
            + f"\n\n{step.text[:500]}"
        )
    dtypes = {str(key): str(value) for key, value in found["dtypes"].items()}
    values = {str(key): tuple(map(str, value)) for key, value in found.get("values", {}).items()}
    unique = found.get("unique") or {key: len(values.get(key, ())) for key in dtypes}
    return Frame(name, int(found["rows"]), dtypes, {str(k): int(v) for k, v in unique.items()}, values)


def _choose(task: Task, text: str, without: str = "", unbound: bool = False) -> Generator[Act, tuple[Step, ...], str]:
    """The name of the DataFrame to use, from the listing of variables."""
    listed: dict[str, tuple[int, int]]
    if task.has("variables"):
        step = yield from task.call("variables", {}, "Which DataFrames does the user have? I look before I compute.")
        listed = {} if step.failed else reading.frames(step.text)
        lost = {**gone(task.conversation), **reading.gone(step.text)}
        # What is there now is the truth, whatever an older reminder said.
        lost = {name: what for name, what in lost.items() if name not in listed}
    else:
        step = yield from task.python(_SEARCH, "Which DataFrames does the user have? I look before I compute.")
        found = reading.literal(step.text)
        listed, lost = {str(name): (0, 0) for name in found or []}, gone(task.conversation)
    if task.has("variables") and not any(name not in OWN for name in listed) and re.search(r"\bmore: ", step.text):
        step = yield from task.python(_SEARCH, "The listing was cut; the names of all DataFrames are needed.")
        listed |= {str(name): listed.get(str(name), (0, 0)) for name in reading.literal(step.text) or []}
    listed.pop(without, None)
    if without in lost or (unbound and how_built(task.conversation, without)):
        raise Ending(gone_text(task, without, lost.get(without, "")))
    words: list[str] = re.findall(r"[A-Za-z_]\w*", text)
    explicit = [name for name in words if name in listed]
    if explicit:
        return explicit[0]
    vanished = [name for name in words if name in lost]
    if vanished or (lost and not listed):
        name = (*vanished, *lost)[0]
        raise Ending(gone_text(task, name, lost[name]))
    if not listed:
        raise Ending(
            task.say(
                "There is no DataFrame here yet. Load one first, for example: “load penguins.csv” or “load the palmer "
                "penguins data set”.",
                "这里还没有 DataFrame。请先读取一个，例如：“读取 penguins.csv” 或 “加载企鹅数据集”。",
            )
        )
    return max(listed, key=lambda each: (each not in OWN, listed[each][0]))
