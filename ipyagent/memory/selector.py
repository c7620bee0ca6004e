"""What a small model is asked of memories, which to choose and whether one says more than the user did, and what of its
answers counts."""

from __future__ import annotations

import datetime
import json
import re
from collections.abc import Mapping, Sequence
from importlib.resources import files
from typing import Any

from ipyagent.memory.scan import Memory

MOST_TOKENS = 600
"""Of an answer: five names with a reason each."""
REQUEST_CHARS = 4_000
DESCRIPTION_CHARS = 200
WHY_CHARS = 120

SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "memories": {
            "type": "array",
            "items": {
                "type": "object",
                "properties": {"file": {"type": "string"}, "why": {"type": "string"}},
                "required": ["file", "why"],
                "additionalProperties": False,
            },
        }
    },
    "required": ["memories"],
    "additionalProperties": False,
}
"""The same for every request: a server compiles it once."""

CHECK_TOKENS = 120
"""Of the answer to a check."""
MOST_CHECKED = 4_000
"""Characters of a memory, or of the user's words, that are checked; of longer ones no answer counts."""
CHECK_SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {"adds": {"type": "string"}, "beyond": {"type": "boolean"}},
    "required": ["adds", "beyond"],
    "additionalProperties": False,
}

_NAMED = re.compile(r"\{\{(\w+)\}\}")
_ELEMENTS = re.compile(
    r"<(?=/?(?:tools-in-use|memory-list|user-request|select-memories|words-of-the-user|memory-to-keep|check-memory)\b)",
    re.I,
)


def directive(request: str, candidates: Sequence[Memory], tools: Sequence[str], most: int) -> str:
    """The question to the small model."""
    values = {
        "most": str(most),
        "tools": ", ".join(tools) or "none",
        "manifest": "\n".join(manifest_line(memory) for memory in candidates),
        "request": _ELEMENTS.sub("&lt;", request[:REQUEST_CHARS]),
    }
    return _filled("select-memories", "selector_prompt.md", values)


def check_directive(words: Sequence[str], told: Sequence[str]) -> str:
    """The question whether a memory, its sentences, goes beyond the user's words; "" when they are too long for it."""
    values = {"words": "\n".join(words), "memory": "\n".join(told)}
    if max(map(len, values.values())) > MOST_CHECKED:
        return ""
    escaped = {key: _ELEMENTS.sub("&lt;", text) for key, text in values.items()}
    return _filled("check-memory", "check_prompt.md", escaped)


def _filled(name: str, file: str, values: Mapping[str, str]) -> str:
    text = files("ipyagent.memory").joinpath(file).read_text(encoding="utf-8").strip()
    body = _NAMED.sub(lambda found: values.get(found[1], found[0]), text)
    return f"<{name}>\n{body}\n</{name}>"


def manifest_line(memory: Memory) -> str:
    """One line of the list: `- [type] file (ISO time): description`."""
    moment = datetime.datetime.fromtimestamp(memory.modified).isoformat(timespec="minutes")
    told = " ".join(_ELEMENTS.sub("&lt;", memory.description or memory.title).split())[:DESCRIPTION_CHARS]
    return f"- [{memory.kind or 'none'}] {file_of(memory)} ({moment}): {told}"


def file_of(memory: Memory) -> str:
    """A memory's name in the list."""
    return memory.path.removeprefix("/memories/")


def chosen(answer: str, candidates: Sequence[Memory], most: int) -> list[tuple[Memory, str]] | None:
    """The memories that an answer names with their reasons, each once, those that exist alone, at most `most`;
    None when it is no answer in the format."""
    value = _object_in(answer)
    listed = value.get("memories") if value is not None else None
    if not isinstance(listed, list):
        return None
    known = {file_of(memory): memory for memory in candidates} | {memory.path: memory for memory in candidates}
    found: dict[str, tuple[Memory, str]] = {}
    for item in listed:
        name, why = (item.get("file"), item.get("why")) if isinstance(item, Mapping) else (item, "")
        memory = known.get(name.strip()) if isinstance(name, str) else None
        if memory is not None:
            reason = " ".join(str(why or "").split())[:WHY_CHARS]
            found.setdefault(memory.path, (memory, reason))
    return list(found.values())[:most]


def goes_beyond(answer: str) -> bool | None:
    """What the answer to a check says; None for whatever is no answer in the format."""
    value = (_object_in(answer) or {}).get("beyond")
    return value if isinstance(value, bool) else None


def _object_in(answer: str) -> dict[str, Any] | None:
    """The JSON object of an answer, also when a server without structured output wraps it in words."""
    begin, end = answer.find("{"), answer.rfind("}")
    try:
        value = json.loads(answer[begin : end + 1])
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None
