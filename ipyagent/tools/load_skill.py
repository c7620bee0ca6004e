"""`load_skill`: the model takes a skill's instructions into the context. There is no such tool without a skill.

Its schema names the skills that were known when the head was rendered; one that came later is taken as well. What
was loaded cannot be had again for nothing, so it is never cleared.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Any

from ipyagent.errors import ToolFailure
from ipyagent.journal.protocols import ToolOutput, Workspace
from ipyagent.skills.desk import SkillAccess
from ipyagent.tools.answers import text_output
from ipyagent.tools.schema import FunctionTool, tool

NAME = "load_skill"
MOST_NAMES = 100
"""Names that the schema lists; with more of them the catalogue alone does."""
OFF = "skills are off (the setting `skills`)"


def tool_for(names: Iterable[str]) -> FunctionTool:
    """The tool with these names in its schema."""
    from pydantic import Field

    known = sorted(names)
    extra: dict[str, Any] = {"enum": known} if 0 < len(known) <= MOST_NAMES else {}

    async def load_skill(name: Any, *, workspace: Workspace) -> ToolOutput:
        """Load a skill of <skills>. Files and scripts that it points to are read and run in its folder."""
        access = getattr(workspace, "skills", None)
        if not isinstance(access, SkillAccess):
            raise ToolFailure(OFF)
        text = access.load(str(name))
        loaded = text.startswith("<skill")
        return text_output(text, note=f"skill {name}" if loaded else "in the context already")

    load_skill.__annotations__["name"] = Annotated[str, Field(json_schema_extra=extra)] if extra else str
    return tool(name=NAME, permission="none", writes=False, store_chars=10_000_000)(load_skill)
