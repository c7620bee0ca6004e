"""A recipe is a generator: it yields tool calls, is sent their results, and returns what to say.

The practice model has no state. For each request body the recipe of the newest turn is run from its start, the results
in the body are sent to it in order, and what it yields next (or returns) is the reply. A recipe is therefore
deterministic and looks at nothing but the conversation and the results.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Generator, Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from ipyagent.practice.model.conversation import Conversation, Step

CELL: Final = re.compile(r"```(?:python)?\n(.*?)\n```", re.S)
_DENIED: Final = re.compile(r"denied\b|\bwas not run\b|not (?:allowed|permitted)|permission\b|read[_ -]only mode", re.I)
_ERROR: Final = re.compile(r"^(?:[\w.]+\.)?([A-Z]\w*(?:Error|Exception|Interrupt|Exit|Warning|Failure))(?::\s*(.*))?$")


class Act(NamedTuple):
    """Tool calls to make at once: names with inputs, and why (for the thinking block)."""

    calls: tuple[tuple[str, Mapping[str, Any]], ...]
    why: str


Recipe = Generator[Act, tuple[Step, ...], str]
Asking = Generator[Act, tuple[Step, ...], Step]


class Ending(Exception):
    """Ends the turn early with this text: a denial, a missing tool, an error."""


@dataclass(frozen=True, slots=True)
class Task:
    """The conversation and how to speak in it."""

    conversation: Conversation
    chinese: bool

    def say(self, english: str, chinese: str) -> str:
        """The text in the user's language."""
        return chinese if self.chinese else english

    def has(self, tool: str) -> bool:
        """Whether the request offers the tool, listed or by a search."""
        return tool in self.conversation.tools or tool in self.conversation.further

    def need(self, tool: str) -> None:
        """Ends the turn when the request does not offer the tool."""
        if not self.has(tool):
            raise Ending(self.say(f"This session has no `{tool}` tool, so I cannot do that.",
                                  f"这个会话没有 `{tool}` 工具，我做不了这件事。"))  # fmt: skip

    def call(self, tool: str, input: Mapping[str, Any], why: str) -> Asking:
        """One call; a denied one ends the turn."""
        self.need(tool)
        (step, *_) = yield Act(((tool, input),), why)
        if step.failed and _DENIED.search(step.text) and "PermissionError" not in step.text:
            said = step.text.strip().partition("\n")[0][:300]
            raise Ending(self.say(f"I was not allowed to use `{tool}`, so I stop here. The answer was: {said}",
                                  f"没有得到使用 `{tool}` 的许可，我就此停下。返回的信息是：{said}"))  # fmt: skip
        return step

    def ran(self, code: str, why: str) -> Asking:
        """Runs code; an error ends the turn with what it means."""
        step = yield from self.call("python", {"code": code}, why)
        if step.failed:
            raise Ending(self.failure(step.text))
        return step

    def did(self, step: Step, english: str, chinese: str) -> Step:
        """The step; a failed one ends the turn with what it says."""
        if step.failed:
            raise Ending(f"{self.say(english, chinese)}{step.text.strip()[:400]}")
        return step

    def failure(self, text: str) -> str:
        """What an error means and what to do, from the last line of its traceback."""
        kind, message = error(text)
        if kind in ("ModuleNotFoundError", "ImportError"):
            package = message.split("'")[1].split(".")[0] if message.count("'") >= 2 else message
            return self.say(f"The package `{package}` is not installed here. Install it with `%pip install {package}`.",
                            f"这里没有安装 `{package}`。请运行 `%pip install {package}`。")  # fmt: skip
        what = f"{kind}: {message}" if kind else message
        return self.say(f"That failed: `{what}`.", f"运行出错：`{what}`。")


def error(text: str) -> tuple[str, str]:
    """Type and message of the last exception in a traceback; the last line and no type when there is none."""
    lines = [re.sub(r"\x1b\[[0-9;]*m", "", line).strip() for line in text.splitlines() if line.strip()]
    found = next(filter(None, map(_ERROR.match, reversed(lines))), None)
    return (found[1], found[2] or "") if found else ("", "".join(lines[-1:]))


def assigned(code: str) -> set[str]:
    """Names that the code binds at its top level; none when it is not plain Python."""
    try:
        tree = ast.parse(code)
    except SyntaxError:
        return set()
    bound: set[str] = set()
    for node in tree.body:
        single = [node.target] if isinstance(node, ast.AnnAssign | ast.AugAssign | ast.For) else []
        targets: list[ast.expr] = node.targets if isinstance(node, ast.Assign) else single
        names = (each for target in targets for each in ast.walk(target) if isinstance(each, ast.Name))
        bound |= {each.id for each in names if isinstance(each.ctx, ast.Store)}
    return bound


def _free(code: str) -> set[str]:
    """Names that the code reads and does not bind itself."""
    nodes = list(ast.walk(ast.parse(code)))
    read = {node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)}
    bound = {node.id for node in nodes if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load)}
    imports = (alias for node in nodes if isinstance(node, ast.Import | ast.ImportFrom) for alias in node.names)
    return read - bound - {(alias.asname or alias.name).split(".")[0] for alias in imports}


def how_built(conversation: Conversation, name: str) -> str:
    """The code of the conversation that made a variable, with what it needed from others; "" when unknown."""
    codes: list[str] = []
    for turn in conversation.turns:
        for extra in turn.extras:
            codes += CELL.findall(extra) if extra.lstrip().startswith("<context>") else []
        codes += [step.code for step in turn.steps if step.code and not step.failed]
    needed, parts = {name}, []
    for code in reversed(codes):
        if made := assigned(code) & needed:
            parts.append(code)
            needed = (needed - made) | _free(code)
    return "\n".join(reversed(list(dict.fromkeys(parts))))
