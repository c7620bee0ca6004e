"""Web search and web fetch as a request declares them: the newest version that the server takes.

They are declared in the newest version that the SDK knows (anthropic 2.14, `types.web_*_tool_*_param`), which goes
into the session's head once; a server or a model that refuses it gets the one before, and at last none. Calls come
from the model alone (`allowed_callers`): the newer versions would otherwise have it write code that searches, in a
container at the provider, which keeps what it reads and needs a tool of its own.
"""

from __future__ import annotations

import re
from collections.abc import Container, Iterable, Mapping
from typing import Any

from ipyagent.journal.events import Block
from ipyagent.journal.protocols import ModelInfo

VERSIONS: dict[str, tuple[str, ...]] = {
    "web_search": ("web_search_20260318", "web_search_20260209", "web_search_20250305"),
    "web_fetch": ("web_fetch_20260318", "web_fetch_20260309", "web_fetch_20260209", "web_fetch_20250910"),
}
"""Each tool's versions, newest first."""
BASIC = ("web_search_20250305", "web_fetch_20250910")
"""Versions that know of no callers but the model."""
MOST_USES = 5
"""Searches, and fetches, within one request unless the setting says otherwise."""
MOST_TOKENS = 20_000
"""Tokens of one fetched page unless the setting says otherwise."""

_REFUSES = re.compile(
    r"does not match|expected tags|not (?:be )?(?:supported|permitted|allowed|enabled|available)"
    r"|unsupported|unknown|unrecogni[sz]ed|unexpected|does(?: not|n't) support|disabled|invalid value|literal_error"
)


def declared(settings: Iterable[Mapping[str, Any]]) -> list[Block]:
    """The tools of the setting `server_tools` as a request declares them."""
    made: list[Block] = []
    for given in settings:
        name = str(given["name"])
        options = {key: value for key, value in given.items() if key != "name"}
        if "citations" in options:
            options["citations"] = {"enabled": options["citations"]}
        limits = {"max_uses": MOST_USES} | ({"max_content_tokens": MOST_TOKENS} if name == "web_fetch" else {})
        known: Block = {"type": VERSIONS[name][0], "name": name, "allowed_callers": ["direct"]}
        made.append(known | dict(sorted((limits | options).items())))
    return made


def standing(settings: Iterable[Mapping[str, Any]], info: ModelInfo, own: Container[str]) -> dict[str, str]:
    """Each tool that a provider may run, and why this model is not offered it now; "" where it is. `own`: names of
    other tools, which come first."""
    wanted = {str(given["name"]) for given in settings}
    found: dict[str, str] = {}
    for name in VERSIONS:
        if name not in wanted:
            found[name] = "off"
        elif name in own:
            found[name] = "a tool of yours has this name, so the provider's is not offered"
        else:
            found[name] = "" if name in info.server_tools else f"{info.model} is not known to have it"
    return found


def is_declared(tool: Block) -> bool:
    """Whether a tool of a request is one that the provider runs."""
    return tool.get("type") in VERSIONS.get(str(tool.get("name")), ())


def has_them(model: str) -> bool:
    """Whether a model of a server that says nothing of its models has these tools."""
    return bool(re.match(r"claude-\w+-(5|4-[5-8])", model))


def version_of(name: str, lacking: Container[str]) -> str:
    """The newest version that is not refused; "" when all are."""
    if name in lacking:
        return ""
    return next((version for version in VERSIONS[name] if version not in lacking), "")


def offered(tools: list[Block], info: ModelInfo, lacking: Container[str]) -> list[Block]:
    """A request's tools, those that the provider runs in a version that it takes."""
    made: list[Block] = []
    for tool in tools:
        if not is_declared(tool):
            made.append(tool)
        elif tool["name"] in info.server_tools and (version := version_of(tool["name"], lacking)):
            kept = {key: value for key, value in tool.items() if key != "allowed_callers" or version not in BASIC}
            made.append({**kept, "type": version})
    return made


def refused_in(message: str, tools: Iterable[Mapping[str, Any]], lacking: Container[str]) -> str:
    """The version, or the tool, that a refusal (in lower case) is about; "" when it is about none of `tools`."""
    if not _REFUSES.search(message):
        return ""
    for tool in tools:
        kind, name = str(tool.get("type") or ""), str(tool.get("name"))
        if kind not in VERSIONS.get(name, ()) or kind in lacking:
            continue
        if kind in message:
            return kind
        if re.search(rf"\b{name.replace('_', '[ _-]')}\b", message):
            return name
    return ""
