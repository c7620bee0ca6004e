"""A recipe is a generator: it yields tool calls, is sent their results, and returns what to say.

The practice model has no state. For each request body the recipe of the newest turn is run from its start, the results
in the body are sent to it in order, and what it yields next (or returns) is the reply. A recipe is therefore
deterministic and looks at nothing but the conversation and the results.
"""

from __future__ import annotations

import json
import re
from collections.abc import Generator, Mapping
from dataclasses import dataclass
from typing import Any

from . import reading
from .conversation import Conversation, Step
from .knowledge import Knowledge
from .names import fresh


@dataclass(frozen=True, slots=True)
class Act:
    """Tool calls to make at once: names with inputs, why (for the thinking block), and words to say before."""

    calls: tuple[tuple[str, Mapping[str, Any]], ...]
    why: str
    say: str | None = None


Recipe = Generator[Act, tuple[Step, ...], str]
Asking = Generator[Act, tuple[Step, ...], Step]


class Ending(Exception):
    """Ends the turn early with this text: a denial, a missing tool, an error that was tried twice."""


@dataclass(frozen=True, slots=True)
class Task:
    """The conversation and how to speak in it."""

    conversation: Conversation
    chinese: bool
    known: Knowledge

    def say(self, english: str, chinese: str) -> str:
        """The text in the user's language."""
        return chinese if self.chinese else english

    def fresh(self, name: str) -> str:
        """The name, or with a number when the user has a variable of that name."""
        return fresh(name, self.known.taken)

    def has(self, tool: str) -> bool:
        """Whether the request offers the tool, listed or by a search."""
        return tool in self.conversation.tools or tool in self.conversation.further

    def need(self, tool: str) -> None:
        """Ends the turn when the request does not offer the tool."""
        if not self.has(tool):
            raise Ending(
                self.say(
                    f"This session has no `{tool}` tool, so I cannot do that.",
                    f"这个会话没有 `{tool}` 工具，我做不了这件事。",
                )
            )

    def call(self, tool: str, input: Mapping[str, Any], why: str, say: str | None = None) -> Asking:
        """One call; a denied one ends the turn."""
        self.need(tool)
        (step, *_) = yield Act(((tool, input),), why, say)
        self.allowed(step)
        return step

    def schema(self, tool: str) -> Generator[Act, tuple[Step, ...], Mapping[str, Any]]:
        """The schema of a tool's arguments, looked up when the request does not list it."""
        self.need(tool)
        if tool in self.conversation.tools:
            return self.conversation.tools[tool].get("input_schema") or {}
        step = yield from self.call("tool_search", {"query": tool, "limit": 1}, f"How is {tool} called?")
        found = re.search(rf"^## {re.escape(tool)}$.*?^arguments: (\{{.*\}})$", step.text, re.M | re.S)
        schema: dict[str, Any] = json.loads(found[1]) if found is not None else {}
        return schema

    def python(self, code: str, why: str, say: str | None = None) -> Asking:
        """Runs code; the step returned may have failed."""
        return (yield from self.call("python", {"code": code}, why, say))

    def sure(self, code: str, why: str, otherwise: str | None = None) -> Asking:
        """Runs code, on an error once more with `otherwise`; a last error ends the turn with what it says."""
        step = yield from self.python(code, why)
        if step.failed and otherwise is not None and otherwise != code:
            kind, message = reading.error(step.text)
            step = yield from self.python(otherwise, f"The first way failed ({kind}: {message[:80]}); one other way.")
        if step.failed:
            raise Ending(self.failure(step.text))
        return step

    def allowed(self, step: Step) -> None:
        """Ends the turn when the step was denied."""
        if step.failed and reading.denied(step.text):
            said = step.text.strip().splitlines()[0][:300] if step.text.strip() else ""
            raise Ending(
                self.say(
                    f"I was not allowed to use `{step.tool}`, so I stop here. The answer was: {said}",
                    f"没有得到使用 `{step.tool}` 的许可，我就此停下。返回的信息是：{said}",
                )
            )

    def failure(self, text: str) -> str:
        """What an error means and what to do, from the last line of its traceback."""
        kind, message = reading.error(text)
        what = f"{kind}: {message}" if kind else message
        if kind in ("ModuleNotFoundError", "ImportError"):
            package = message.split("'")[1].split(".")[0] if message.count("'") >= 2 else message
            return self.say(
                f"The package `{package}` is not installed here. Install it with `%pip install {package}` and "
                f"ask again.",
                f"这里没有安装 `{package}`。请运行 `%pip install {package}`，然后再问我一次。",
            )
        return self.say(f"That failed: `{what}`. I tried what I know.", f"运行出错：`{what}`。我会的办法都试过了。")
