"""Memory: what outlives a session. Its section of the system prompt, its tools, recall beside a turn, extraction and
dreams behind it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from importlib.resources import files
from itertools import accumulate, takewhile
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from ipyagent.config import names_file
from ipyagent.errors import AgentError, MemoryRefused
from ipyagent.frontmatter import guarded, read_headed, read_text
from ipyagent.journal.protocols import Tool
from ipyagent.journal.tokens import estimate_text
from ipyagent.kernel.workspace import KernelWorkspace
from ipyagent.loop.session import Session
from ipyagent.parts import Beside, Check, Command, Grant, Part, PromptSpace, Section, Turn
from ipyagent.parts.memory.access import MemoryAccess
from ipyagent.parts.memory.dream_scheduler import DreamScheduler
from ipyagent.parts.memory.extract import ExtractionProgress
from ipyagent.parts.memory.extractor import MemoryExtractor
from ipyagent.parts.memory.index import named_in
from ipyagent.parts.memory.provenance import PERSONAL, ProvenanceIndex
from ipyagent.parts.memory.recall import RecalledMemories, ignores_memory
from ipyagent.parts.memory.retriever import MemoryRetriever
from ipyagent.parts.memory.store import MemoryStore
from ipyagent.parts.memory.stores import TYPES_SCOPE, MemoryStores, store_of_type
from ipyagent.parts.memory.transcripts import CACHE, PastSessions
from ipyagent.project import Project
from ipyagent.redaction import redacted
from ipyagent.tools.catalogue import builtin_tools

if TYPE_CHECKING:
    from ipyagent.assembly.session_setup import SessionSetup
    from ipyagent.ui.board import BoardHost, BoardTab

ORDER = ("user", "project")
"""The project's index last: it is the more specific."""
EMPTY = "(nothing saved yet)"
SHORT = "You have a memory in `/memories/project` and `/memories/user`; look there with the `memory` tool."
EARLIER = "\n- What was said in earlier sessions: `past_sessions`."
RULE_TOKENS = 2_000
"""What the user's own rules take of the prompt at most."""
GUIDELINE_TOKENS = 2_000
MOST_RULE_BYTES = 16_000
"""A larger file would take all of it."""
RULES = (
    "<memory-rules>\nWhat the user said about themselves and how to work, each file in full: follow it without a "
    "view.\n"
)
IGNORED = (
    "<context>\nFor this request the user wants memory left aside: answer as if there were no memory rules and the "
    "memory index were empty, open no memory, and use nothing that came from one.\n</context>"
)
"""Goes with a request that asks to ignore memory; the system prompt stays as it is."""


class StandingRule(msgspec.Struct, frozen=True):
    """One memory of the user's own words that stands in the prompt in full: its place and what it says."""

    scope: str
    name: str
    path: str
    text: str


def standing_rules(stores: Mapping[str, MemoryStore], tokens: int) -> list[StandingRule]:
    """The `feedback` and `user` memories that are verified to be the user's own word, as many as stand in `tokens`,
    those first that are newest and most used; in an order that does not change with use."""
    found = [(memory, store) for store in stores.values() for memory in store.list()
             if memory.is_own_word and memory.kind in PERSONAL and memory.size <= MOST_RULE_BYTES]  # fmt: skip
    uses = {scope: store.uses() for scope, store in stores.items()} if found else {}
    newest = sorted(found, key=lambda each: -each[0].modified)
    used = sorted(newest, key=lambda each: -uses[each[0].scope].get(each[0].name, 0))
    places = {memory.path: at for at, (memory, _) in enumerate(newest)}
    for at, (memory, _) in enumerate(used):
        places[memory.path] += at
    rules: list[StandingRule] = []
    room = tokens - estimate_text(RULES) - 10
    for memory, store in sorted(found, key=lambda each: (places[each[0].path], each[0].path)):
        if room < 20:
            break
        try:
            text = read_headed(store.read(memory.name).text.encode("utf-8", "replace")).body.strip()
        except MemoryRefused:
            continue  # it went meanwhile
        rule = StandingRule(memory.scope, memory.name, memory.path, text or memory.description)
        size = estimate_text(_element(rule))
        if rule.text and size <= room:
            room -= size
            rules.append(rule)
    return sorted(rules, key=lambda rule: (ORDER.index(rule.scope) if rule.scope in ORDER else 0, rule.path))


def _element(rule: StandingRule) -> str:
    path = guarded(rule.path).replace('"', "'")
    return f'<memory path="{path}">\n{guarded(rule.text)}\n</memory>\n'


def read_guidelines(setting: str, project: Project, *, trusted: bool) -> tuple[str, str]:
    """The guidelines that a setting gives, as a text or by naming a file, and what is wrong ("" for nothing). A
    relative path begins at the project's root, does not lead out of it, and counts once the project is trusted."""
    text = setting.strip()
    if not names_file(text):
        return text, ""
    path = Path(text).expanduser()
    if not path.is_absolute():
        path = project.root / path
        if not trusted:
            return "", f"memory_guidelines: {text} is in a project that is not trusted and was not read"
        if not path.resolve().is_relative_to(project.root.resolve()):
            return "", f"memory_guidelines: {text} leads out of the project and was not read"
    found, problem = read_text(path.resolve())
    if trusted and path.resolve().is_relative_to(project.root.resolve()) and (news := project.arrived([path])):
        problem = "; ".join(filter(None, (f"{news[path]}, and counts as it is now", problem)))
    return found, f"memory_guidelines: {text} {problem}" if problem else ""


def memory_section(
    indexes: Mapping[str, str],
    tokens: int,
    *,
    earlier: bool = False,
    guidelines: str = "",
    rules: Sequence[StandingRule] = (),
) -> tuple[str, str]:
    """The section with the index of each scope that may be used, in at most about `tokens` tokens, and one line for
    the user when not all of it went in. "" when there is no scope. `earlier`: whether a tool
    searches earlier sessions. `guidelines`: a text that joins it, GUIDELINE_TOKENS at most; `rules`:
    memories that stand in it in full, whose lines of the index are left out."""
    if not indexes:
        return "", ""
    head = files("ipyagent.parts.memory").joinpath("section.md").read_text(encoding="utf-8").strip()
    if earlier:
        head += EARLIER
    told, cut = _guided(guidelines, min(GUIDELINE_TOKENS, tokens // 4))
    head += told
    if rules:
        head += f"\n\n{RULES}{''.join(map(_element, rules))}</memory-rules>"
        named = {(rule.scope, rule.name) for rule in rules}
        indexes = {scope: "\n".join(line for line in text.split("\n") if (scope, named_in(line)) not in named)
                   for scope, text in indexes.items()}  # fmt: skip
    known = [scope for scope in ORDER if scope in indexes]
    scopes = [scope for scope in known if indexes[scope].strip()] or ([] if rules else known[-1:])
    room = tokens - estimate_text(head) - 30 * len(scopes)
    if room < 0:
        short = SHORT if tokens >= estimate_text(SHORT) else ""
        return short, _line(0, sum(_count(indexes[scope]) for scope in scopes), tokens)
    parts: list[str] = []
    shown = all_lines = 0
    for left, scope in zip(range(len(scopes), 0, -1), scopes, strict=True):
        text = indexes[scope].strip("\n")
        fitted, lines = _fitted(text, scope, room // left)
        room -= estimate_text(fitted)
        shown, all_lines = shown + lines, all_lines + _count(text)
        parts.append(f'<memory-index scope="{scope}">\n{guarded(fitted) or EMPTY}\n</memory-index>')
    line = _line(shown, all_lines, tokens) if shown < all_lines else ""
    return "\n\n".join([head, *parts]), "; ".join(filter(None, (line, cut)))


def _guided(text: str, tokens: int) -> tuple[str, str]:
    """The guidelines as they stand in the section, in at most about `tokens` tokens, and a line when they were cut."""
    if not text.strip():
        return "", ""
    lines = guarded(text.strip()).split("\n")
    whole, kept = len(lines), _first(lines, tokens - 30)
    cut = ""
    if len(kept) < whole:
        kept.append(f"[cut: {whole - len(kept)} more lines]")
        cut = f"memory_guidelines: {whole - len(kept) + 1} of {whole} lines left out; at most about {tokens:,} tokens"
    return "\n\n<memory-guidelines>\n" + "\n".join(kept) + "\n</memory-guidelines>", cut


def _fitted(text: str, scope: str, room: int) -> tuple[str, int]:
    """As many lines from the top as fit in `room` tokens, with a word for the rest; and how many entries those
    hold."""
    if estimate_text(text) <= room:
        return text, _count(text)
    warning = f"[This index is longer than the window allows: {{}} more in it; view /memories/{scope}]"
    kept = _first(text.splitlines(), room - estimate_text(warning))
    entries = _count("\n".join(kept))
    return "\n".join([*kept, warning.format(_count(text) - entries)]), entries


def _first(lines: Sequence[str], tokens: int) -> list[str]:
    sizes = accumulate(estimate_text(f"{line}\n") for line in lines)
    return [line for line, _ in zip(lines, takewhile(lambda size: size <= tokens, sizes), strict=False)]


def _count(text: str) -> int:
    return sum(line.lstrip().startswith(("- ", "* ")) for line in text.splitlines())


def _line(shown: int, lines: int, tokens: int) -> str:
    if not lines:
        return ""
    return (
        f"the memory index is longer than this window allows (about {max(0, tokens):,} tokens): {shown:,} of {lines:,} "
        "memories are listed; recall and %memory search find the others"
    )


TOOL, PAST = "memory", "past_sessions"
TYPES_TOKENS = 4_000
"""What the memory of a type of sub-agents takes of its prompt at most."""
TYPES_ABOUT = (
    "This memory is your own, of your type of sub-agent across its runs. Keep in it what your next run should know."
)
SHARE = 1 / 8
"""What the section may take of the window at most."""


class MemoryPart(Part):
    """See the module."""

    name, order, states = "memory", 30, (ExtractionProgress, RecalledMemories, ProvenanceIndex)

    def __init__(self, host: SessionSetup) -> None:
        self._setup = host
        self._told: set[str] = set()
        self.memories = MemoryStores(host.project, host.settings, host.folder)
        """Those of the project and of the user."""
        self.recalling = MemoryRetriever(host, self.memories)
        """What is shown of the memories beside each turn."""
        self.extracting = MemoryExtractor(host, self.access_of)
        """What is saved of the conversation behind its turns."""
        self.dreaming = DreamScheduler(host, self.memories, self.recalling.check)
        """How the memories are tidied, now and then."""

    def tools(self, session: Session | None) -> Mapping[str, Tool]:
        found = {name: tool for name, tool in builtin_tools().items() if name in (TOOL, PAST)}
        if not (self._setup.settings.memory or (session is not None and _has_tool(session))):
            del found[TOOL]
        return found

    async def offered(self, tools: dict[str, Tool], session: Session, window: int) -> dict[str, Tool]:
        """The same; memories are looked at before a session's first request, so that its prompt finds them known, and
        those that came into the project are named before any request."""
        if not session.view.system and TOOL in tools:
            await asyncio.to_thread(lambda: [store.list() for store in self.memories.stores().values()])
        for line in await asyncio.to_thread(self.memories.arrivals):
            self._setup.notice(line)
        return tools

    def services(self, session: Session, others: Mapping[str, object]) -> Mapping[str, object]:
        return {"memory": self.access_of(session), "sessions": self._past_of(session)}

    # ------------------------------------------------------------------ commands and checks

    def live_tab(self, host: BoardHost) -> BoardTab:
        from ipyagent.parts.memory.browser import MemoryTab

        return MemoryTab(host, self.dreaming)

    def commands(self) -> Mapping[str, Command]:
        about = "Show and change memories (same as %memory)."
        return {"memory": Command(self._command, about, "[COMMAND]", looks=True)}

    def _command(self, line: str) -> str:
        from ipyagent.parts.memory.commands import show_memory

        return show_memory(self._setup.agent, line)

    def doctor(self) -> Iterable[Check]:
        from ipyagent.parts.memory.report import doctor_lines

        project = self._setup.project
        if not self._setup.settings.memory:
            yield Check("ok", "off (IPyAgent.memory)")
        elif project.leaves_memories:
            yield Check("ok", f"the project's memory is copied to {project.state} with the first request")
        elif (lines := doctor_lines(self.memories, mend=False))[0].startswith("all is well"):
            yield Check("ok", lines[0])
        else:
            count = f"{len(lines):,} remark{'s' * (len(lines) != 1)}"
            yield Check("note", f"{count}, the first: {lines[0]}", "%memory doctor")

    # ------------------------------------------------------------------ sub-agents

    def services_below(self, session: Session, above: KernelWorkspace, grant: Grant) -> Mapping[str, object]:
        """The memory of its type, or else what its parent has unless it only looks."""
        memory: object = None
        parents = above.memory if isinstance(above.memory, MemoryAccess) else None
        if grant.memory:
            if stores := self._of_type(grant):
                ground, heard = session.folded(ProvenanceIndex), parents.heard if parents else ProvenanceIndex()
                check = parents.check if parents is not None else None
                memory = MemoryAccess(
                    self.memories, by="agent", record=session.record, ground=ground, heard=heard, stores=stores,
                    check=check,
                )  # fmt: skip
        elif not grant.looks and parents is not None:
            memory = parents.below(session.record, session.journal.session, session.folded(ProvenanceIndex))
        return {"memory": memory, "sessions": above.sessions}

    def granted(self, grant: Grant) -> Section | None:
        """What a type's own memory holds; None where it has none."""
        stores = self._of_type(grant) if grant.memory else {}
        if not stores:
            return None
        try:
            text, _ = memory_section({scope: store.index.loaded() for scope, store in stores.items()}, TYPES_TOKENS)
        except AgentError:
            text = ""
        return Section("\n\n".join([TYPES_ABOUT, text]) if text else "")

    def _of_type(self, grant: Grant) -> dict[str, MemoryStore]:
        refused = self.memories.refusal("user" if grant.memory == "user" else "project")
        try:
            if not refused:
                store = store_of_type(self._setup.project, grant.name, grant.memory)
                if grant.memory != "user" and not self._setup.settings.trust_all:
                    for line in self._setup.project.arrivals(store.folder / each.name for each in store.list()):
                        self._setup.notice(line)
                return {TYPES_SCOPE: store}
        except MemoryRefused as problem:  # a project's link must not keep the user's own types from working
            refused = str(problem)
        if (line := f"sub-agent {grant.name} has no memory: {refused}") not in self._told:
            self._told.add(line)
            self._setup.notice(line)
        return {}

    # ------------------------------------------------------------------ the prompt

    def prompt_section(self, place: PromptSpace) -> Section | None:
        settings, memories = self._setup.settings, self.memories
        if TOOL not in place.tools or not settings.memory:
            return None
        tokens = int(min(place.room, place.window * SHARE))
        trusted = bool(settings.trust_all or self._setup.project.trusted)
        guidelines, problem = read_guidelines(settings.memory_guidelines, self._setup.project, trusted=trusted)
        rules = standing_rules(memories.stores(), min(RULE_TOKENS, tokens // 2))
        indexes, told = self._indexes(trusted)
        text, line = memory_section(
            indexes, tokens, earlier=PAST in place.tools and trusted, guidelines=guidelines, rules=rules
        )
        return Section(text, (*told, problem, line), tuple(rule.path for rule in rules) if RULES in text else ())

    def prompt_due(self, session: Session, tools: Mapping[str, Tool]) -> str:
        return "memory is on" if TOOL in tools and not _has_tool(session) else ""

    def _indexes(self, trusted: bool) -> tuple[dict[str, str], list[str]]:
        """The index of each scope, and what is to be told of one that cannot be read."""
        found: dict[str, str] = {}
        told: list[str] = []
        for scope in ("project", "user"):
            try:
                found[scope] = self.memories.store(scope).index.loaded()
            except AgentError as problem:
                if scope == "user" or trusted:  # of an untrusted project one line speaks already
                    told.append(f"{scope} memory is left out: {problem}")
        return found, told

    # ------------------------------------------------------------------ turns

    @asynccontextmanager
    async def turn(self, turn: Turn) -> AsyncIterator[None]:
        if not turn.aside:
            self.extracting.begins(turn.session)
        if ignores_memory(turn.said):
            turn.put_before(IGNORED)
        with self.recalling.turn(turn.session, turn.text, turn.workspace, turn.model):
            yield

    def after_turn(self, turn: Turn) -> None:
        self.extracting.ended(turn.session, turn.workspace, turn.session.surface)
        self.dreaming.after(turn.main, turn.model, turn.session)

    async def beside(self, session: Session) -> Beside | None:
        return await self.extracting.beside(session)

    async def behind(self, session: Session) -> None:
        self.extracting.after(session)

    # ------------------------------------------------------------------ the end

    def session_closed(self, session: Session) -> bool:
        return self.extracting.take_over(session)

    def release(self, folder: Path) -> None:
        self.extracting.release(folder)

    def close(self) -> None:
        self.dreaming.close()
        self.extracting.close()

    def closed(self) -> None:
        self.recalling.close()

    # ------------------------------------------------------------------ what tools and work may touch

    def access_of(self, session: Session) -> MemoryAccess:
        """The memories as work of a session touches them, see `MemoryAccess`."""
        return MemoryAccess(
            self.memories,
            by="agent",
            record=session.record,
            ground=session.folded(ProvenanceIndex),
            session=session.journal.session,
            turn=lambda: len(session.history.turns),
            notice=self._setup.notice,
            check=lambda words, told: self.recalling.check(session, words, told),
        )

    def _past_of(self, session: Session) -> PastSessions | None:
        """The project's sessions as a session's agent searches them; None when they come from elsewhere."""
        settings, project = self._setup.settings, self._setup.project
        every = settings.trust_all or project.trusted
        if not every and not project.elsewhere:
            return None

        return PastSessions(
            lambda: (folder for folder in project.session_folders() if every or project.owns(folder)),
            project.state / "cache" / CACHE,
            session.journal.folder,
            lambda text: redacted(text)[0] if settings.redact_secrets else text,
        )


def _has_tool(session: Session) -> bool:
    """Whether the session's system prompt has the memory tool; one that began while memory was off has not."""
    return any(tool["name"] == TOOL for tool in session.view.tools)
