"""Variables that a restart took away: which, how they were made, and what is said of them."""

from __future__ import annotations

import ast

from . import reading
from .conversation import Conversation
from .knowledge import CELL, assigned
from .recipe import Task


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


def _codes(conversation: Conversation) -> list[str]:
    """Code that ran, oldest first: the user's own cells that reminders tell of, and calls without an error."""
    codes: list[str] = []
    for turn in conversation.turns:
        for extra in turn.extras:
            codes += CELL.findall(extra) if extra.lstrip().startswith("<context>") else []
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
