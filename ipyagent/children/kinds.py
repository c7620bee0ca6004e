"""The types of sub-agents: what each sees, may use and costs. Three are ours, people add others (`definitions`)."""

from __future__ import annotations

from importlib.resources import files
from typing import Literal, TypeAlias

import msgspec

Remembers: TypeAlias = Literal["", "user", "project", "local"]

READERS = ("glob", "grep", "read_file", "send_message", "shell", "variables")
"""What a type that only looks may use; mode read_only holds for all of them."""


class SubagentType(msgspec.Struct, frozen=True, kw_only=True):
    """`about` is a sentence for the model that chooses; `prompt` stands in its system prompt. `tools`: names (None:
    all but `agent`). `model`: a name, "small" or "" (the parent's). `memory`: the scope of a memory of its own.
    `source` is the file it comes from ("": ours)."""

    name: str
    about: str
    prompt: str = ""
    tools: tuple[str, ...] | None = None
    model: str = ""
    looks: bool = False
    """Only looks: no rights to write or run, whatever the parent has."""
    fork: bool = False
    memory: Remembers = ""
    source: str = ""


def words(name: str) -> str:
    """One of our prompts."""
    return files("ipyagent.children").joinpath(f"{name}.md").read_text(encoding="utf-8").strip()


def built_in() -> dict[str, SubagentType]:
    """Ours, the usual one first."""
    return {
        "general": SubagentType(name="general", about="fresh context, all tools", prompt=words("general")),
        "explore": SubagentType(
            name="explore",
            about="fresh context, small model, only reads",
            prompt=words("explore"),
            tools=READERS,
            model="small",
            looks=True,
        ),
        "fork": SubagentType(
            name="fork", about="knows this conversation, cheap by the cache; cannot fork", fork=True
        ),
    }
