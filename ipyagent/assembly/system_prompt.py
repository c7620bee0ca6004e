"""The fixed prefix of a session's requests: the tools, then our instructions, those that people wrote, skills, the
memory section.

Rendered when a session begins and reused byte for byte. It is rendered again, as a recorded decision, after a
compaction of all that came before, when the user trusts the project (or no longer), when they add a tool, and
with the first skill.
Whatever files hold, they take their share of the window at most: a session never ends for the size of its memory."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any

import msgspec

from ipyagent.config import IPyAgent
from ipyagent.context.thresholds import check_fixed_part
from ipyagent.journal.events import Block, Event, SystemPromptFrozen
from ipyagent.journal.protocols import Tool, WindowState
from ipyagent.journal.tokens import estimate_blocks
from ipyagent.loop.redacting import values_without, without_secrets
from ipyagent.loop.session import Session
from ipyagent.model.capabilities import declared, is_declared, standing
from ipyagent.redaction import Redactor
from ipyagent.tools.catalogue import SEARCH, builtin_tools, told_of
from ipyagent.tools.schema import tidied

if TYPE_CHECKING:
    from ipyagent.parts import Part


# ---- Our own instructions and the tools as they go out, and what is added to them (below).

_AS_IT_IS = Redactor(lambda: False)


def render(
    tools: Mapping[str, Tool],
    extra: Sequence[Block] = (),
    *,
    redact: Redactor = _AS_IT_IS,
    all_listed: bool = False,
    server: Sequence[Block] = (),
) -> SystemPromptFrozen:
    """The same tools and the same `extra` blocks give the same bytes, whatever the day or the machine; `redact` takes
    out the secrets that files, servers and the user's tools have in their words. With `all_listed` deferred tools
    stand in it too; `server` are tools that the provider runs, as they are declared."""
    system: tuple[Block, ...] = ({"type": "text", "text": _own_text()}, *without_secrets(extra, redact))
    ours = builtin_tools()
    described: tuple[Block, ...] = tuple(
        _described(tool, _AS_IT_IS if tool is ours.get(name) else redact)
        for name, tool in tools.items()
        if all_listed or not getattr(tool, "deferred", "")  # found by a search, called by name
    )
    described = (*described, *server)
    tool_tokens = estimate_blocks(described)
    return SystemPromptFrozen(
        system=system, tools=described, tokens=tool_tokens + estimate_blocks(system), tool_tokens=tool_tokens
    )


def _described(tool: Tool, redact: Redactor) -> Block:
    return {"name": tool.name, "description": redact(tool.description), "input_schema": schema_of(tool, redact)}


@cache
def _own_text() -> str:
    return files("ipyagent.assembly").joinpath("system.md").read_text(encoding="utf-8").strip()


def render_own() -> SystemPromptFrozen:
    """The same for our own tools alone; their descriptions and schemas are kept from then on."""
    return render(builtin_tools())


def schema_of(tool: Tool, redact: Redactor) -> dict[str, Any]:
    """What a tool takes, as the model reads it."""
    schema: dict[str, Any] = values_without(tool.input_schema, redact) if redact.on else tool.input_schema
    return schema


ROOM_SHARE = 1 / 3
"""What each may take at most of the tokens that our own prompt and the tools leave below the auto-compact threshold."""


class SystemPromptBuilder:
    """Builds the fixed prefix (tools and system prompt) of each of a kernel's sessions. `notice` takes lines for the
    user."""

    def __init__(
        self,
        settings: IPyAgent,
        parts: Iterable[Part],
        notice: Callable[[str], None],
        redact: Redactor,
    ) -> None:
        self._settings = settings
        self._parts = parts
        self._notice = notice
        self._redact = redact
        self._told: set[str] = set()
        self._due: dict[str, str] = {}

    def __repr__(self) -> str:
        return f"<SystemPromptBuilder of {self._parts!r}>"

    def renew(self, session: Session, why: str) -> None:
        """The session's next request has its head rendered again."""
        self._due[session.journal.session] = why

    def ensure_frozen(self, session: Session, tools: Mapping[str, Tool], own: Mapping[str, Tool]) -> None:
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
        if session.view.system:
            why = why or next(filter(None, (part.prompt_due(session, tools) for part in self._parts)), "")
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
        for event in self._events_with(session, tools):
            session.record(event)

    def after_compaction(self, session: Session) -> Sequence[Event]:
        """The prefix to freeze after a compaction of the whole conversation, and what it tells of: instructions and
        the memory index are read again, the tools stay as the session has them. Nothing where it is the same. Undoing
        the compaction brings the old one back."""
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
        return head, *self._events_with(session, names)

    def rendered(
        self, tools: Mapping[str, Tool], state: WindowState, server: Sequence[Block] = ()
    ) -> SystemPromptFrozen:
        """The head as files and settings are now."""
        base = render(tools, redact=self._redact, server=server)
        extra, whole = self._extra(set(tools), base.tokens, state)
        added = tuple(without_secrets(extra, self._redact))
        tokens = base.tokens + estimate_blocks(added)
        return msgspec.structs.replace(base, system=(*base.system, *added), tokens=tokens, memories=whole)

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

    def _events_with(self, session: Session, tools: Iterable[str]) -> list[Event]:
        """What parts journal with a head, for a session with these tools."""
        return [event for part in self._parts for event in part.prompt_frozen(session, frozenset(tools))]

    def _extra(self, names: set[str], base: int, state: WindowState) -> tuple[list[Block], tuple[str, ...]]:
        """The sections of the parts, in their order, the last changes most often; and which memories stand in them in
        full. `names`: of the session's tools."""
        from ipyagent.parts import PromptSpace

        place = PromptSpace(frozenset(names), max(0, state.auto_mark - base) * ROOM_SHARE, state.window)
        sections = [section for part in self._parts if (section := part.prompt_section(place)) is not None]
        for section in sections:
            for line in section.told:
                self._tell(line)
        texts = [section.text for section in sections if section.text]
        return [{"type": "text", "text": text} for text in texts], tuple(x for s in sections for x in s.memories)

    def _tell(self, line: str) -> None:
        if line and line not in self._told:
            self._told.add(line)
            self._notice(line)


def _unversioned(tool: Block) -> Block:
    """A tool that the provider runs, whatever its version: a newer one alone is no reason for another head."""
    return {key: value for key, value in tool.items() if key != "type"}
