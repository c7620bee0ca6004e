"""The head of a session's requests: our instructions, those that people wrote, skills, the memory section, the tools.

Rendered when a session begins and reused byte for byte. It is rendered again, as a recorded decision, after a
compaction of all that came before, when the user trusts the project (or no longer), when they add a tool, and
with the first skill.
Whatever files hold, they take their share of the window at most: a session never ends for the size of its memory.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping, Sequence

import msgspec

from ipyagent.assembly.prompt import render, schema_of
from ipyagent.config import IPyAgent
from ipyagent.context.thresholds import check_fixed_part
from ipyagent.errors import AgentError
from ipyagent.journal.events import Block, Event, SkillsListed, SystemPromptFrozen
from ipyagent.journal.protocols import Tool, WindowState
from ipyagent.journal.tokens import estimate_blocks
from ipyagent.loop.session import Session
from ipyagent.memory.instructions import instructions_text, load_instructions
from ipyagent.memory.memories import MemoryStores
from ipyagent.memory.section import RULE_TOKENS, RULES, memory_section, read_guidelines, standing_rules
from ipyagent.model.server_tools import declared, is_declared, standing
from ipyagent.project import Project
from ipyagent.redaction import Redactor
from ipyagent.skills.catalogue import catalogue_of
from ipyagent.skills.desk import Skills
from ipyagent.skills.loaded import listing_of
from ipyagent.tools.catalogue import SEARCH, told_of
from ipyagent.tools.load_skill import NAME as SKILLS
from ipyagent.tools.schema import tidied

MEMORY, PAST = "memory", "past_sessions"
INSTRUCTIONS_SHARE = 1 / 8
MEMORY_SHARE = 1 / 8
"""What instruction files, and the memory section, may take of the window at most."""
SKILLS_OF_ROOM = 12
"""The list of skills is made for a window of at most so many times the room: it takes a fiftieth of that."""
ROOM_SHARE = 1 / 3
"""What each may take at most of the tokens that our own prompt and the tools leave below the auto-compact threshold."""


class SystemPromptBuilder:
    """The heads of one kernel's sessions. `notice` takes lines for the user."""

    def __init__(
        self,
        project: Project,
        settings: IPyAgent,
        memories: MemoryStores,
        notice: Callable[[str], None],
        skills: Skills | None,
        redact: Redactor,
    ) -> None:
        self._project = project
        self._settings = settings
        self._memories = memories
        self._notice = notice
        self._skills = skills
        self._redact = redact
        self._told: set[str] = set()
        self._due: dict[str, str] = {}

    def __repr__(self) -> str:
        return f"<SystemPromptBuilder in {self._project.root.name}>"

    def renew(self, session: Session, why: str) -> None:
        """The session's next request has its head rendered again."""
        self._due[session.journal.session] = why

    def put(self, session: Session, tools: Mapping[str, Tool], own: Mapping[str, Tool]) -> None:
        """Give a session its head: a new one, an old one for a reason, else the bytes that it has. `own` are the
        user's tools. Raises WindowTooSmall."""
        # a head of an earlier version may say the same of a tool in more words: it stays as it was sent
        listed = {block["name"]: tidied(block.get("input_schema", {})) for block in session.view.tools}
        told = told_of(session.view.tools)
        search = told_of([{"name": SEARCH, "description": tools[SEARCH].description}]) if SEARCH in tools else set()
        added = any(
            name in search - told
            if getattr(tool, "deferred", "")
            else listed.get(name) != tidied(schema_of(tool, self._redact))
            for name, tool in own.items()
        )
        why = self._due.pop(session.journal.session, "")
        if SKILLS in tools and SKILLS not in listed and session.view.system:
            why = why or "there are skills now"
        if MEMORY in tools and session.view.system and not self.has_memory(session):
            why = why or "memory is on"
        server = self._server(session, tools)
        if session.view.system and list(map(_unversioned, server)) != [
            _unversioned(tool) for tool in session.view.tools if is_declared(tool)
        ]:
            why = why or "the tools that the provider runs changed"
        if session.view.system and not added and not why:
            return
        rendered = self.rendered(tools, session.state(0), server)
        if (list(rendered.system), list(rendered.tools)) == (session.view.system, session.view.tools):
            return
        rendered = msgspec.structs.replace(rendered, why=why)
        check_fixed_part(rendered.tokens, rendered.tool_tokens, session.state(0))
        session.record(rendered)
        for event in self._listed(session, SKILLS in tools):
            session.record(event)

    def look(self) -> None:
        """Have the memories been looked at, so that `put` finds them known; on any thread."""
        for store in self._memories.stores().values():
            store.list()

    def has_memory(self, session: Session) -> bool:
        """Whether the session's head has the memory tool; one that began while memory was off has not."""
        return any(tool["name"] == MEMORY for tool in session.view.tools)

    def after_compaction(self, session: Session) -> Sequence[Event]:
        """The head that comes with a compaction of all that stood behind the old one, and what it tells of: the
        instructions and the index are read again, the tools stay as the session has them. Nothing where it is the same.
        With the compaction this is taken back."""
        tools = tuple(session.view.tools)
        size = estimate_blocks(tools)
        names = {tool["name"] for tool in tools} | told_of(tools)
        base = render({}).tokens + size
        extra, whole = self._extra(names, base, session.state(0))
        made = render({}, extra, redact=self._redact)
        if list(made.system) == session.view.system:
            return ()
        head = msgspec.structs.replace(
            made, tools=tools, tool_tokens=size, tokens=made.tokens + size, why="after a compaction", memories=whole
        )
        return head, *self._listed(session, SKILLS in names)

    def rendered(
        self, tools: Mapping[str, Tool], state: WindowState, server: Sequence[Block] = ()
    ) -> SystemPromptFrozen:
        """The head as files and settings are now."""
        base = render(tools, redact=self._redact, server=server)
        extra, whole = self._extra(set(tools), base.tokens, state)
        return msgspec.structs.replace(render(tools, extra, redact=self._redact, server=server), memories=whole)

    def _server(self, session: Session, tools: Mapping[str, Tool]) -> list[Block]:
        """The tools that the provider is to run, as far as the model has them; what it has not is said once."""
        kept: list[Block] = []
        why = standing(self._settings.server_tools, session.info, tools)
        for tool in declared(self._settings.server_tools):
            name = tool["name"]
            if name in tools:
                self._tell(f"{name}: {why[name]}")
            elif why[name]:
                self._tell(
                    f"{name} is not offered: {why[name]}; choose another model with %agent model, or take it out of "
                    "IPyAgent.server_tools"
                )
            else:
                kept.append(tool)
        return kept

    def childs_server(self, session: Session, tools: Mapping[str, Tool], names: Container[str] | None) -> list[Block]:
        """The same for a sub-agent with a head of its own: of those that are on, the ones that its type names (None:
        all). What its model has not, is left out without a word."""
        why = standing(self._settings.server_tools, session.info, tools)
        return [
            tool for tool in declared(self._settings.server_tools)
            if not why[tool["name"]] and (names is None or tool["name"] in names)
        ]  # fmt: skip

    def _listed(self, session: Session, with_skills: bool) -> Sequence[SkillsListed]:
        """Which skills the head tells of, when it is told otherwise so far."""
        now = listing_of(self._skills.latest.for_model) if with_skills and self._skills is not None else None
        return (SkillsListed(skills=now),) if now is not None and now != session.history.skills.listed else ()

    def _extra(self, names: set[str], base: int, state: WindowState) -> tuple[list[Block], tuple[str, ...]]:
        """Instructions, skills and memory, in the order of their weight, the last changes most often; and which
        memories stand in it in full. `names`: of the session's tools."""
        whole: tuple[str, ...] = ()
        room = max(0, state.auto_mark - base) * ROOM_SHARE
        texts: list[str] = []
        if self._settings.instructions:
            trusted = self._settings.trust_all or self._project.trusted
            loaded = load_instructions(self._project, trusted=trusted, late=self._settings.trust_all)
            text, line = instructions_text(loaded.files, int(min(room, state.window * INSTRUCTIONS_SHARE)))
            texts.append(text)
            for problem in (*loaded.problems, line):
                self._tell(problem)
        if SKILLS in names and self._skills is not None:
            listed = catalogue_of(self._skills.look().for_model, min(state.window, int(room * SKILLS_OF_ROOM)))
            texts.append(listed.text)
            self._tell(listed.cut)
        if MEMORY in names and self._settings.memory:
            tokens = int(min(room, state.window * MEMORY_SHARE))
            given = self._settings.memory_guidelines
            guidelines, problem = read_guidelines(given, self._project, trusted=self._trusted)
            rules = standing_rules(self._memories.stores(), min(RULE_TOKENS, tokens // 2))
            earlier = PAST in names and self._trusted
            text, line = memory_section(
                self._indexes(), tokens, earlier=earlier, guidelines=guidelines, rules=rules
            )
            texts.append(text)
            whole = tuple(rule.path for rule in rules) if RULES in text else ()
            for told in (problem, line):
                self._tell(told)
        return [{"type": "text", "text": text} for text in texts if text], whole

    def _indexes(self) -> dict[str, str]:
        found: dict[str, str] = {}
        for scope in ("project", "user"):
            try:
                found[scope] = self._memories.store(scope).index.loaded()
            except AgentError as problem:
                if scope == "user" or self._trusted:  # of an untrusted project one line speaks already
                    self._tell(f"{scope} memory is left out: {problem}")
        return found

    @property
    def _trusted(self) -> bool:
        return bool(self._settings.trust_all or self._project.trusted)

    def _tell(self, line: str) -> None:
        if line and line not in self._told:
            self._told.add(line)
            self._notice(line)


def _unversioned(tool: Block) -> Block:
    """A tool that the provider runs, whatever its version: a newer one alone is no reason for another head."""
    return {key: value for key, value in tool.items() if key != "type"}
