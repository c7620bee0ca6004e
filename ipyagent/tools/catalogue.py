"""All tools there are: the named objects of this package's modules and of each part (its `__init__.py`, `tool.py` and
`…tools.py`), then those of other packages (entry points `ipyagent.tools`), both in the order of their names, so that
the list has the same bytes in every session."""

from __future__ import annotations

import json
import pkgutil
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from difflib import get_close_matches
from functools import cache
from importlib import import_module
from math import log
from pathlib import Path
from typing import Any, NamedTuple, TypeGuard

import ipyagent.tools as package
from ipyagent.errors import ToolFailure
from ipyagent.journal.protocols import Permission, PermissionQuestion, Tool, ToolOutput, Workspace
from ipyagent.project import entry_points
from ipyagent.tools.answers import capped, text_output
from ipyagent.tools.schema import FunctionTool

PARTS = "ipyagent.parts"
CORE = frozenset(("compact", "python", "variables"))
"""Tools that the agent has whatever its parts are."""


class ToolCatalogue(NamedTuple):
    """`problems` are sentences about entry points that were left out."""

    tools: tuple[Tool, ...]
    problems: tuple[str, ...] = ()


def catalogue() -> ToolCatalogue:
    """Import every tool. Raises nothing for other packages' faults: they are reported."""
    ours = _own()
    theirs: dict[str, Tool] = {}
    problems: list[str] = []
    for point in entry_points("ipyagent.tools"):
        where = f"entry point {point.name} = {point.value}"
        try:
            value = point.load()
        except Exception as problem:  # noqa: BLE001 -- foreign module code may raise anything; it is reported
            problems.append(f"{where}: {type(problem).__name__}: {problem}")
            continue
        if not is_tool(value):
            problems.append(f"{where}: not a tool; decorate it with @ipyagent.tool")
        elif value.name in ours or value.name in theirs:
            problems.append(f"{where}: there is a tool {value.name!r} already")
        else:
            theirs[value.name] = value
    return ToolCatalogue(tuple(_ordered(ours) + _ordered(theirs)), tuple(problems))


def builtin_tools() -> dict[str, Tool]:
    """This package's own tools by name, in the order of their names."""
    return {tool.name: tool for tool in _ordered(_own())}


@cache
def _own() -> dict[str, Tool]:
    found: dict[str, Tool] = {}
    for module in pkgutil.iter_modules(package.__path__):
        found.update(_named(f"{package.__name__}.{module.name}"))
    parts = Path(__file__).parents[1] / "parts"
    for file in sorted((*parts.glob("*/__init__.py"), *parts.glob("*/tool.py"), *parts.glob("*/*tools.py"))):
        found.update(_named(f"{PARTS}.{file.parent.name}.{file.stem}".removesuffix(".__init__")))
    return found


def _named(module: str) -> dict[str, Tool]:
    """Of a copy: another thread may be importing what lies in the package, which becomes a name of it."""
    names = dict(vars(import_module(module)))
    return {  # the expensive question last
        name: value for name, value in names.items() if getattr(value, "name", None) == name and is_tool(value)
    }


def _ordered(tools: dict[str, Tool]) -> list[Tool]:
    return [tools[name] for name in sorted(tools)]


def is_tool(value: object) -> TypeGuard[Tool]:
    """Whether `value` is a tool and not a class of tools."""
    return isinstance(value, FunctionTool) or (not isinstance(value, type) and isinstance(value, Tool))


# ---- `tool_search`: finds tools whose schemas are not in the requests, and `call_tool`, which calls one by its
# name. Both are listed in their place, so that a tool that was found is called without another list of tools: the
# bytes that the provider has cached stay. What is called is the tool itself: its own permission, rule and question.

SEARCH = "tool_search"
CALL = "call_tool"
FORMER_CALL = "mcp_call"
"""What `call_tool` was called in heads of earlier sessions."""
OUTSIDE = "Of outside (MCP) servers: "
MOST_FOUND = 20
USUAL = 5
WHOLE_CHARS = 4_000
"""Characters of descriptions and schemas that an answer gives, the best tool's first; of the others a line each."""
FITS = 0.5
"""The share of the best tool's score from which on another one fits, too."""
LINE_CHARS = 120
NAMES_CHARS = 3_000
"""Characters of names that the description of the search lists."""

_WORD = re.compile(r"[a-z]+|[0-9]+|[^\W\d_a-z]+")
_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")


class ToolSearch:
    """Searches what `deferred` gives, tools by name. Its description shows those in `listed`: what each is for, and
    the names of those that do not say it in a few words. `call` is the tool that calls what was found."""

    name = SEARCH
    parallel = True
    recreatable = True

    def __init__(
        self, deferred: Callable[[], Mapping[str, Tool]], listed: Mapping[str, Tool], call: str = CALL
    ) -> None:
        self._deferred = deferred
        self._call = call
        told = {name: getattr(tool, "deferred", "") for name, tool in listed.items()}
        lines = [f"Find further tools by words or by name, with their schemas; `{call}` calls them."]
        lines += [f"- {name}: {about}" for name, about in told.items() if isinstance(about, str) and about]
        if outside := _shown([name for name, about in told.items() if not (isinstance(about, str) and about)]):
            lines.append(OUTSIDE + outside)
        self.description = "\n".join(lines)
        self.input_schema: dict[str, Any] = {
            "type": "object",
            "properties": {"query": {"type": "string"}},
            "required": ["query"],
        }

    def __repr__(self) -> str:
        return f"<tool {self.name} over {len(self._deferred())} tools>"

    def validate(self, input: dict[str, Any]) -> dict[str, Any]:
        query, limit = input.get("query"), input.get("limit")
        limit = USUAL if limit is None else limit
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

    def question(self, input: dict[str, Any], workspace: Workspace) -> PermissionQuestion:
        return PermissionQuestion(title="Search the tools?", text=str(input["query"]))

    async def run(self, input: dict[str, Any], workspace: Workspace) -> ToolOutput:
        tools = self._deferred()
        found = search(input["query"], tools)[: input["limit"]]
        if not found:
            raise ToolFailure(
                f"No tool fits {input['query']!r}. Try other words. There are: {_shown(sorted(tools)) or 'none now'}"
            )
        parts, lines, room = list[str](), list[str](), WHOLE_CHARS
        for tool in found:
            part = f"## {tool.name}\n{tool.description}\narguments: {json.dumps(tool.input_schema, ensure_ascii=False)}"
            room -= len(part)
            if parts and room < 0:
                lines.append(f"- {tool.name}: {' '.join(tool.description.split()).partition('. ')[0][:LINE_CHARS]}")
            else:
                parts.append(capped(part, max(workspace.limit("tool_output_chars"), 500)))
        more = [f"Search one of these by its name for its arguments:\n{chr(10).join(lines)}"] if lines else []
        head = f'Call with `{self._call}`: {{"name": "{found[0].name}", "arguments": {{…}}}}'
        text = "\n\n".join([head, *parts, *more])
        return text_output(text, note=f"{len(found)} tool{'s' * (len(found) > 1)}")


class ToolCall:
    """Calls one of the tools that `deferred` gives. The loop asks `called` and goes on with that tool; `meant`
    is the tool that decides whether calls run side by side."""

    parallel = False
    recreatable = False
    description = f"Call a tool of `{SEARCH}`. Search first unless you know its arguments."

    def __init__(self, deferred: Callable[[], Mapping[str, Tool]], name: str = CALL) -> None:
        self.name = name
        self._deferred = deferred
        self.input_schema: dict[str, Any] = {
            "type": "object",
            "properties": {"name": {"type": "string"}, "arguments": {"type": "object"}},
            "required": ["name", "arguments"],
        }

    def __repr__(self) -> str:
        return f"<tool {self.name}>"

    def meant(self, input: object) -> Tool | None:
        """The tool that is meant, whatever its arguments are; None when there is none. Raises nothing."""
        name = input.get("name") if isinstance(input, dict) else None
        try:
            return self._deferred().get(name) if isinstance(name, str) else None
        except Exception:  # noqa: BLE001 -- parts of other packages give tools, too; the call itself tells what failed
            return None

    def called(self, input: dict[str, Any]) -> tuple[Tool, dict[str, Any]]:
        """The tool that is meant, and its own arguments, checked. Raises ToolFailure."""
        name, given = input.get("name"), input.get("arguments")
        given = {} if given is None else given
        tools = self._deferred()
        if not isinstance(name, str) or name not in tools:
            close = get_close_matches(str(name), tools, n=3, cutoff=0.5)
            nearest = f"nearest: {', '.join(close)}" if close else f"find it with `{SEARCH}`"
            raise ToolFailure(f"{self.name}: {name!r} is none of the tools that `{SEARCH}` finds; {nearest}")
        if isinstance(given, str):
            try:
                given = json.loads(given or "{}")
            except ValueError:
                raise ToolFailure(f"{self.name}: `arguments` is an object, not a text") from None
        if not isinstance(given, dict):
            raise ToolFailure(f"{self.name}: `arguments` is an object")
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

    def question(self, input: dict[str, Any], workspace: Workspace) -> PermissionQuestion:
        tool, given = self.called(input)
        return tool.question(given, workspace)

    async def run(self, input: dict[str, Any], workspace: Workspace) -> ToolOutput:
        tool, given = self.called(input)
        return await tool.run(given, workspace)


def with_search(
    tools: Mapping[str, Tool], told: Collection[str] = (), outside: Callable[[], Mapping[str, Tool]] = dict
) -> dict[str, Tool]:
    """The tools, and before them what finds and calls the deferred ones when there are any. `told`: the names that a
    session's head has; `outside` gives the tools of outside servers as they are at a call."""
    kept = {name: tool for name, tool in tools.items() if name not in (SEARCH, CALL, FORMER_CALL)}
    hidden = {name: tool for name, tool in kept.items() if getattr(tool, "deferred", "")}
    if not hidden:
        return kept
    call = FORMER_CALL if FORMER_CALL in told else CALL

    def found() -> Mapping[str, Tool]:
        return {**hidden, **outside()}

    made = ToolSearch(found, hidden, call), ToolCall(found, call)
    return {**{tool.name: tool for tool in made}, **kept}


def told_of(listed: Iterable[Mapping[str, Any]]) -> set[str]:
    """The names of all tools that a list of tools, as it was sent, tells the model of."""
    names: set[str] = set()
    for block in listed:
        names.add(str(block["name"]))
        if block["name"] == SEARCH:
            text = str(block["description"])
            names.update(re.findall(r"^- ([\w-]+): ", text, re.M))
            names.update(re.findall(r"mcp__[\w-]+", text))
    return names


def search(query: str, tools: Mapping[str, Tool]) -> list[Tool]:
    """The tools that fit about as well as the best one, best first; names that are given exactly come first, in the
    order given, and where nothing else is asked for, alone."""
    given = re.split(r"[,\s]+", query.removeprefix("select:").strip())
    exact = [name for name in given if name in tools]
    if len(exact) == len(given):
        return [tools[name] for name in dict.fromkeys(exact)]
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
    least = FITS * max(scores.values(), default=0.0)
    ranked = sorted((name for name in scores if scores[name] >= least), key=lambda name: (-scores[name], name))
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
