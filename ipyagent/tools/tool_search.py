"""`tool_search`: finds tools whose schemas are not in the requests, and `mcp_call`, which calls one by its name.

Both are listed in their place, so that a tool that was found is called without another list of tools: the bytes
that the provider has cached stay. What is called is the tool itself: its own permission, rule and question.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from difflib import get_close_matches
from math import log
from typing import Any

from ipyagent.errors import ToolFailure
from ipyagent.journal.protocols import Permission, Question, Tool, ToolOutput, Workspace
from ipyagent.tools.answers import capped, text_output

SEARCH = "tool_search"
CALL = "mcp_call"
MOST_FOUND = 20
USUAL = 5
NAMES_CHARS = 3_000
"""Characters of names that the description of the search lists."""

_WORD = re.compile(r"[a-z]+|[0-9]+|[^\W\d_a-z]+")
_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")


class ToolSearch:
    """Searches what `deferred` gives, tools by name. `listed` are the names that its description shows."""

    name = SEARCH
    parallel = True
    recreatable = True

    def __init__(self, deferred: Callable[[], Mapping[str, Tool]], listed: Sequence[str]) -> None:
        self._deferred = deferred
        self.description = (
            "Find tools that are not listed here: tools of outside (MCP) servers. Give words for what the tool should "
            f"do, or exact names; returns each tool's description and schema. Then call it with `{CALL}`.\n\n"
            f"There are: {_shown(listed)}"
        )
        self.input_schema: dict[str, Any] = {
            "type": "object",
            "properties": {
                "query": {"type": "string", "description": "Words, or names of tools separated by commas."},
                "limit": {"type": "integer", "minimum": 1, "maximum": MOST_FOUND, "default": USUAL},
            },
            "required": ["query"],
            "additionalProperties": False,
        }

    def __repr__(self) -> str:
        return f"<tool {self.name} over {len(self._deferred())} tools>"

    def validate(self, input: dict[str, Any]) -> dict[str, Any]:
        query, limit = input.get("query"), input.get("limit", USUAL)
        if not isinstance(query, str) or not query.strip():
            raise ToolFailure(f"{SEARCH}: `query` is words or names of tools")
        if isinstance(limit, bool) or not isinstance(limit, int):
            raise ToolFailure(f"{SEARCH}: `limit` is a number from 1 to {MOST_FOUND}")
        return {"query": query, "limit": max(1, min(limit, MOST_FOUND))}

    def permission(self, input: dict[str, Any], workspace: Workspace) -> Permission:
        return "none"

    def writes(self, input: dict[str, Any], workspace: Workspace) -> bool:
        return False

    def destructive(self, input: dict[str, Any], workspace: Workspace) -> str:
        return ""

    def pattern(self, input: dict[str, Any], workspace: Workspace) -> str:
        return SEARCH

    def question(self, input: dict[str, Any], workspace: Workspace) -> Question:
        return Question(title="Search the tools?", text=str(input["query"]))

    async def run(self, input: dict[str, Any], workspace: Workspace) -> ToolOutput:
        tools = self._deferred()
        found = search(input["query"], tools)[: input["limit"]]
        if not found:
            raise ToolFailure(
                f"No tool fits {input['query']!r}. Try other words. There are: {_shown(sorted(tools)) or 'none now'}"
            )
        most = workspace.limit("tool_output_chars") // len(found)
        parts = [
            f"## {tool.name}\n{tool.description}\narguments: {json.dumps(tool.input_schema, ensure_ascii=False)}"
            for tool in found
        ]
        text = "\n\n".join(capped(part, max(most, 500)) for part in parts)
        head = f'Call with `{CALL}`: {{"name": "{found[0].name}", "arguments": {{…}}}}'
        return text_output(f"{head}\n\n{text}", note=f"{len(found)} tool{'s' * (len(found) > 1)}")


class ToolCall:
    """Calls one of the tools that `deferred` gives. The loop asks `called` and goes on with that tool."""

    name = CALL
    parallel = False
    recreatable = False
    description = (
        f"Call a tool that `{SEARCH}` found, by its name, with arguments that fit its schema. "
        "Search first: without the schema the arguments are a guess."
    )

    def __init__(self, deferred: Callable[[], Mapping[str, Tool]]) -> None:
        self._deferred = deferred
        self.input_schema: dict[str, Any] = {
            "type": "object",
            "properties": {
                "name": {"type": "string", "description": "The tool's name as the search gave it."},
                "arguments": {"type": "object", "description": "Its own arguments.", "additionalProperties": True},
            },
            "required": ["name", "arguments"],
            "additionalProperties": False,
        }

    def __repr__(self) -> str:
        return f"<tool {self.name}>"

    def called(self, input: dict[str, Any]) -> tuple[Tool, dict[str, Any]]:
        """The tool that is meant, and its own arguments, checked. Raises ToolFailure."""
        name, given = input.get("name"), input.get("arguments", {})
        tools = self._deferred()
        if not isinstance(name, str) or name not in tools:
            close = get_close_matches(str(name), tools, n=3, cutoff=0.5)
            nearest = f"nearest: {', '.join(close)}" if close else f"find it with `{SEARCH}`"
            raise ToolFailure(f"{CALL}: there is no outside tool {name!r}; {nearest}")
        if isinstance(given, str):
            try:
                given = json.loads(given or "{}")
            except ValueError:
                raise ToolFailure(f"{CALL}: `arguments` is an object, not a text") from None
        if not isinstance(given, dict):
            raise ToolFailure(f"{CALL}: `arguments` is an object")
        tool = tools[name]
        return tool, tool.validate(given)

    def validate(self, input: dict[str, Any]) -> dict[str, Any]:
        tool, given = self.called(input)
        return {"name": tool.name, "arguments": given}

    def permission(self, input: dict[str, Any], workspace: Workspace) -> Permission:
        tool, given = self.called(input)
        return tool.permission(given, workspace)

    def writes(self, input: dict[str, Any], workspace: Workspace) -> bool:
        tool, given = self.called(input)
        return tool.writes(given, workspace)

    def destructive(self, input: dict[str, Any], workspace: Workspace) -> str:
        tool, given = self.called(input)
        return tool.destructive(given, workspace)

    def pattern(self, input: dict[str, Any], workspace: Workspace) -> str:
        tool, given = self.called(input)
        return tool.pattern(given, workspace)

    def question(self, input: dict[str, Any], workspace: Workspace) -> Question:
        tool, given = self.called(input)
        return tool.question(given, workspace)

    async def run(self, input: dict[str, Any], workspace: Workspace) -> ToolOutput:
        tool, given = self.called(input)
        return await tool.run(given, workspace)


def search(query: str, tools: Mapping[str, Tool]) -> list[Tool]:
    """The tools that fit, best first; names that are given exactly come first, in the order given."""
    exact = [name for name in re.split(r"[,\s]+", query.removeprefix("select:")) if name in tools]
    words = dict.fromkeys(_words(query))
    texts = {name: (set(_words(name)), set(_words(tool.description))) for name, tool in tools.items()}
    counts = {word: sum(_has(word, named | told) for named, told in texts.values()) for word in words}
    scores: dict[str, float] = {}
    for name, (named, told) in texts.items():
        score = 0.0
        for word in words:
            if counts[word]:
                weight = log(1 + len(texts) / counts[word])
                score += weight * (3.0 * _has(word, named) + 1.0 * _has(word, told))
        if score > 0:
            scores[name] = score
    ranked = sorted(scores, key=lambda name: (-scores[name], name))
    return [tools[name] for name in dict.fromkeys([*exact, *ranked])]


def _has(word: str, words: set[str]) -> float:
    """1 for the word itself, less for one akin to it, 0 for none."""
    if word in words:
        return 1.0
    return 0.5 * any(_akin(word, other) for other in words)


def _akin(one: str, other: str) -> bool:
    """Whether two words are likely forms of one: "write" and "writing", "event" and "events"."""
    shared = next((n for n, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))
    whole = shared == min(len(one), len(other))
    return shared >= 3 and (whole or (shared >= 4 and shared > max(len(one), len(other)) / 2))


def _words(text: str) -> list[str]:
    found = _WORD.findall(_CAMEL.sub(" ", text).lower())
    return [word for word in found if word not in ("mcp", "a", "an", "the", "to", "of", "in", "for", "and", "or")]


def _shown(names: Sequence[str]) -> str:
    text = ""
    for count, name in enumerate(names):
        if len(text) + len(name) > NAMES_CHARS:
            return f"{text}, and {len(names) - count} more"
        text += f", {name}" if text else name
    return text
