"""A small real loop around the practice model: real code in a real namespace, results as the session words them."""

from __future__ import annotations

import ast
import contextlib
import io
import re
import traceback
from pathlib import Path
from typing import Any

from IPython.lib.pretty import pretty

from ipyagent.kernel.variables import describe, summarize
from ipyagent.practice.model import answer

TOOLS = ("python", "variables", "read_file", "glob", "grep", "write_file", "edit_file", "shell")


class Room:
    """A conversation with the practice model: `ask` runs a whole turn and returns what it said last."""

    def __init__(self, folder: Path, tools: tuple[str, ...] = TOOLS) -> None:
        self.folder = folder
        self.namespace: dict[str, Any] = {"__name__": "__main__"}
        self.messages: list[dict[str, Any]] = []
        self.tools: list[dict[str, Any]] = [{"name": name, "input_schema": {"type": "object"}} for name in tools]
        self.system = "You are in a kernel."
        self.calls: list[tuple[str, dict[str, Any]]] = []
        self.results: list[tuple[str, bool]] = []
        self.rounds: list[int] = []
        self.deny: set[str] = set()
        self.denial = "Permission denied: {name} needs a person; set IPyAgent.mode = 'auto'."
        self.answers: dict[str, Any] = {}
        self.reminds = False
        self.patience = 0.2
        """Seconds that a reminder's listing of the variables may take."""
        self._told: str | None = None

    def body(self, **more: Any) -> dict[str, Any]:
        return {"model": "practice", "system": self.system, "tools": self.tools, "messages": self.messages, **more}

    def ask(self, text: str, *extras: str) -> str:
        """One turn. `extras` are reminder blocks before the words."""
        if self.reminds and self._told != (now := summarize(self.namespace, seconds=self.patience)):
            # As the session does it: the listing comes before the words, and only when it has changed.
            self._told = now
            extras = (f"<context>\nVariables now:\n{now}\n</context>", *extras)
        blocks = [{"type": "text", "text": each} for each in (*extras, text)]
        self.messages.append({"role": "user", "content": blocks})
        self.calls, self.results, self.rounds = [], [], []
        for _ in range(10):
            reply = answer(self.body())
            self.messages.append({"role": "assistant", "content": list(reply.content)})
            calls = [block for block in reply.content if block["type"] == "tool_use"]
            if not calls:
                assert reply.stop_reason == "end_turn"
                return "\n".join(block["text"] for block in reply.content if block["type"] == "text")
            assert reply.stop_reason == "tool_use"
            self.rounds.append(len(calls))
            self.messages.append({"role": "user", "content": [self._result(call) for call in calls]})
        raise AssertionError(f"no end after 10 rounds: {self.calls}")

    def _result(self, call: dict[str, Any]) -> dict[str, Any]:
        name, arguments = call["name"], call["input"]
        self.calls.append((name, arguments))
        if name in self.deny:
            text, failed = self.denial.format(name=name), True
        elif name in self.answers:
            given = self.answers[name]
            text, failed = (given(arguments) if callable(given) else given), False
        else:
            text, failed = getattr(self, f"_{name}")(**arguments)
        self.results.append((text, failed))
        block = {"type": "tool_result", "tool_use_id": call["id"], "content": [{"type": "text", "text": text}]}
        return {**block, "is_error": True} if failed else block

    @property
    def code(self) -> str:
        """The last code that was run."""
        return next(arguments["code"] for name, arguments in reversed(self.calls) if name == "python")

    @property
    def python_calls(self) -> int:
        """How many times code was run in the last turn: each is a question to the user in mode ask."""
        return sum(name == "python" for name, _ in self.calls)

    def _python(self, code: str) -> tuple[str, bool]:
        out = io.StringIO()
        result: Any = None
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(io.StringIO()), contextlib.chdir(self.folder):
            try:
                tree = ast.parse(code)
                last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
                exec(compile(tree, "<cell>", "exec"), self.namespace)
                if isinstance(last, ast.Expr):
                    result = eval(compile(ast.Expression(last.value), "<cell>", "eval"), self.namespace)
            except Exception:  # noqa: BLE001  (whatever the code raises is what the model is told)
                return out.getvalue() + traceback.format_exc(), True
        said = out.getvalue().rstrip("\n")
        shown = "" if result is None else pretty(result)
        head = ("Out:\n" if "\n" in shown else "Out: ") if said and shown else ""
        text = "\n".join(filter(None, [said, head + shown])) or "(no output)"
        return text + "\n[rebound: summary]", False

    def _variables(self, name: str = "") -> tuple[str, bool]:
        if not name:
            return summarize(self.namespace) or "The user has no variables yet.", False
        if name not in self.namespace:
            return f"no variable '{name}'", True
        return describe(name, self.namespace[name]), False

    def _glob(self, pattern: str) -> tuple[str, bool]:
        paths = sorted(str(path.relative_to(self.folder)) for path in self.folder.glob(pattern) if path.is_file())
        return "\n".join(paths) or "no files", False

    def _read_file(self, path: str) -> tuple[str, bool]:
        file = self.folder / path
        return (file.read_text(), False) if file.is_file() else (f"no file {path}", True)


def numbers(text: str) -> list[float]:
    """All numbers in a text, thousands commas taken out."""
    return [float(found.replace(",", "")) for found in re.findall(r"-?\d[\d,]*\.?\d*", text)]
