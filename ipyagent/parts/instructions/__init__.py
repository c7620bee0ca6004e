"""What people wrote for the agent: AGENTS.md and its like, in the system prompt of each session."""

from __future__ import annotations

from ipyagent.parts import Host, Part, PromptSpace, Section
from ipyagent.parts.instructions.loading import instructions_text, load_instructions

SHARE = 1 / 8
"""What instruction files may take of the window at most."""


class Instructions(Part):
    """See the module."""

    name, order = "instructions", 10

    def __init__(self, host: Host) -> None:
        self._host = host

    def prompt_section(self, place: PromptSpace) -> Section | None:
        settings, project = self._host.settings, self._host.project
        if not settings.instructions:
            return None
        trusted = settings.trust_all or project.trusted
        loaded = load_instructions(project, trusted=trusted, late=settings.trust_all)
        text, line = instructions_text(loaded.files, int(min(place.room, place.window * SHARE)))
        return Section(text, (*loaded.problems, line))
