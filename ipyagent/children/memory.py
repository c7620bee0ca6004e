"""The memory of one type of sub-agent, across its runs: a store of its own in one of three places.

`user`: the user's folder; `project`: the project's `.ipyagent/`, committed; `local`: there too, not in git. The
sub-agent sees it as `/memories/project`; its index is always loaded, nothing is recalled of it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ipyagent.children.kinds import SubagentType
from ipyagent.errors import AgentError, MemoryRefused
from ipyagent.memory.files import MemoryStore
from ipyagent.memory.section import memory_section
from ipyagent.memory.texts import Records
from ipyagent.project import Project

SCOPE = "project"
TOKENS = 4_000
FOLDERS = {"user": "agent-memory", "project": "agent-memory", "local": "agent-memory-local"}
ABOUT = "This memory is your own, of your type of sub-agent across its runs. Keep in it what your next run should know."


def memory_folder(project: Project, kind: SubagentType) -> Path:
    """Where a type keeps its memory. Raises MemoryRefused when a link leads out of its base."""
    base = project.user if kind.memory == "user" else project.state
    folder = base / FOLDERS[kind.memory] / kind.name.replace(":", "-")
    if not folder.resolve().is_relative_to(base.resolve()) or not base.resolve().is_relative_to(
        (project.user if kind.memory == "user" or project.elsewhere else project.root).resolve()
    ):
        raise MemoryRefused(
            f"the memory of {kind.name} is a link that leads out of {base}: remove the link", reason="place"
        )
    return folder


def own_memory(project: Project, kind: SubagentType) -> dict[str, MemoryStore]:
    """The one store that a type has, under the name by which it sees it."""
    mine = kind.memory == "user"
    vouch = None if mine else Records(project.user).holds
    prepare, wrote = (None, None) if mine else (project.make, None if project.elsewhere else project.knows)
    return {SCOPE: MemoryStore(memory_folder(project, kind), SCOPE, prepare=prepare, vouch=vouch, wrote=wrote)}


def memory_words(stores: dict[str, MemoryStore]) -> list[str]:
    """What stands in its system prompt of it."""
    try:
        indexes: dict[str, Any] = {scope: store.index.loaded() for scope, store in stores.items()}
    except AgentError:
        return []
    text, _ = memory_section(indexes, TOKENS)  # "" without a store
    return [ABOUT, text] if text else []
