"""The skills of one kernel as its work uses them: found on the disk at every look, loaded into a session once.

A skill of a project that is not trusted is not there. Nothing that a skill says grants a right.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from difflib import get_close_matches
from functools import lru_cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple

import msgspec

from ipyagent.context.reminders import guarded
from ipyagent.errors import ToolFailure, UsageError, nearest
from ipyagent.escape import line as one_line
from ipyagent.escape import plain
from ipyagent.journal.events import Event, SkillLoaded, SkillsListed
from ipyagent.journal.protocols import Tool, ToolOutput, Workspace
from ipyagent.journal.tokens import estimate_text
from ipyagent.parts import Check, Command, Host, Part, PromptSpace, Section, TakenIn, Turn
from ipyagent.parts.skills.discover import (
    MOST_CHARS,
    SkillFolder,
    SkillIndex,
    SkillListing,
    digest_of,
    files_of,
    places_of,
    skill_text,
)
from ipyagent.parts.skills.loaded import BEGINNING, RESTORED, Loaded, changed, listing_of
from ipyagent.parts.skills.parse import Skill, body_of, catalogue_of, name_of, violations, write_skill
from ipyagent.reports.timeline import measure_of
from ipyagent.tools.answers import text_output
from ipyagent.tools.schema import FunctionTool, doc_of, help_text, tool

if TYPE_CHECKING:
    from ipyagent.kernel.workspace import KernelWorkspace
    from ipyagent.loop.session import Session
    from ipyagent.parts import RunningAgent
    from ipyagent.ui.board import BoardHost, BoardTab


NEAR = 5
"""Names that are told when there is none of a name."""
SKILLS_OF_ROOM = 12
"""The list of skills is made for a window of at most so many times its room: it takes a fiftieth of that."""
TOOL = "load_skill"
BY_USER = "Loaded by the user for the request that follows."


class Skills(Part):
    """`asked` are the names of those that go with the user's next request."""

    name, order, states = "skills", 20, (Loaded,)

    def __init__(self, host: Host) -> None:
        self.host = host
        self._project, self._settings, self._folder = host.project, host.settings, host.folder
        self._shelf: SkillIndex | None = None
        self.latest = SkillListing()
        """What the newest look has seen."""
        self.asked: list[str] = []

    def __repr__(self) -> str:
        return f"<Skills of {self._project.root.name}>"

    # ------------------------------------------------------------------ as a part

    def live_tab(self, host: BoardHost) -> BoardTab:
        from ipyagent.parts.skills.tab import SkillsTab

        return SkillsTab(host, self)

    def commands(self) -> Mapping[str, Command]:
        about = "List and load skills (same as %skills)."
        return {"skills": Command(partial(run_skills, self.host.agent), about, "[COMMAND]", looks=True, tab="skills")}

    def doctor(self) -> Iterable[Check]:
        found = self.look_anyway()
        words = f"{len(found.skills):,} skill{'s' * (len(found.skills) != 1)}"
        words += "" if self.host.settings.skills else ", off (IPyAgent.skills)"
        if count := len(found.problems):
            yield Check("note", f"{words}, {count:,} remark{'s' * (count != 1)}", "%skills doctor")
        else:
            yield Check("ok", words)

    def tools(self, session: Session | None) -> Mapping[str, Tool]:
        names = self.look().for_model
        found: dict[str, Any] = {TOOL: tool_for(names)} if names else {}
        return found

    def services(self, session: Session, others: Mapping[str, object]) -> Mapping[str, object]:
        return {"skills": SkillAccess(self, session.folded(Loaded), lambda load: self._load(session, load))}

    def prompt_section(self, place: PromptSpace) -> Section | None:
        if TOOL not in place.tools:
            return None
        listed = catalogue_of(self.look().for_model, min(place.window, int(place.room * SKILLS_OF_ROOM)))
        return Section(listed.text, (listed.cut,))

    def prompt_due(self, session: Session, tools: Mapping[str, Tool]) -> str:
        new = TOOL in tools and not any(block["name"] == TOOL for block in session.view.tools)
        return "there are skills now" if new else ""

    def prompt_frozen(self, session: Session, tools: frozenset[str]) -> Sequence[Event]:
        """Which skills the prompt tells of, when it is told otherwise so far."""
        if TOOL in tools and (now := listing_of(self.latest.for_model)) != session.folded(Loaded).listed:
            return (SkillsListed(skills=now),)
        return ()

    def snapshot(self, text: str) -> TakenIn:
        return read_slash(text, self)

    @asynccontextmanager
    async def turn(self, turn: Turn) -> AsyncIterator[None]:
        """What changed of the skills on the disk is told, and those that the user wants are loaded, before the request;
        of those that stand in the context already a block says so."""
        session, found = turn.session, self.latest.skills
        loaded, again = session.folded(Loaded), []
        if (news := changed(self.latest.for_model, loaded)) is not None:
            session.record(news)
        for name in turn.taken(self) or ():
            try:
                load = self.made(found[name], "user")
            except (KeyError, ToolFailure) as problem:
                self.host.notice(f"the skill {name} was not loaded: {problem}; %skills lists what there is")
                continue
            if loaded.has(name, load.digest):
                self.host.notice(f"the skill {name} is in the context already")
                again.append(name)
            else:
                self._load(session, load)
        for name in again:
            words = guarded(f"The user wants you to go by the skill {name}, which is in the context already.")
            turn.put_before(f"<context>\n{words}\n</context>")
        yield

    async def after_compaction(self, session: Session, workspace: KernelWorkspace, room: int) -> list[tuple[str, str]]:
        return restorable(self, session.folded(Loaded), room)

    def _load(self, session: Session, load: SkillLoaded) -> None:
        """Journal that a skill stands in the session's context, with its tokens as %context counts them."""
        session.record(msgspec.structs.replace(load, counted=round(load.tokens * measure_of(session.view))))

    # ------------------------------------------------------------------ what there is

    @property
    def trusted(self) -> bool:
        """Whether skills of the project itself may be used."""
        return bool(self._settings.trust_all or self._project.trusted)

    @property
    def on(self) -> bool:
        """Whether the setting offers skills to the model."""
        return bool(self._settings.skills)

    @property
    def places(self) -> tuple[SkillFolder, ...]:
        """Where skills are looked for now."""
        return tuple(places_of(self._project, trusted=self.trusted))

    def look(self) -> SkillListing:
        """What is there now; nothing when the setting is off. The user is told of a project's that are new or have
        changed since the project was trusted."""
        self.latest = self.look_anyway() if self.on else SkillListing()
        if not self._settings.trust_all:
            theirs = [skill.file for skill in self.latest.skills.values() if skill.source == "project"]
            for line in self._project.arrivals(theirs) if theirs else ():
                self.host.notice(line)
        return self.latest

    def look_anyway(self) -> SkillListing:
        """What is there, whatever the setting: for what the user asks for."""
        places = self.places
        if self._shelf is None or self._shelf.places != places:
            self._shelf = SkillIndex(places)
        return self._shelf.look()

    def folders(self) -> tuple[Path, ...]:
        """Where skills are, which may be read without a question."""
        return tuple(place.folder for place in self.places if not place.outside) if self.on else ()

    def shown(self, folder: Path) -> str:
        """A folder as tools name it: relative to the notebook's when it lies there."""
        here = self._folder
        try:
            return folder.resolve().relative_to(here.resolve()).as_posix()
        except (ValueError, OSError):
            return folder.as_posix()

    def made(self, skill: Skill, by: Literal["model", "user"]) -> SkillLoaded:
        """The load of a skill as it is on the disk now, with the text for the model. Raises ToolFailure."""
        try:
            body = body_of(skill)
        except OSError as problem:
            raise ToolFailure(f"{skill.file} cannot be read ({problem.strerror})") from None
        folder = self.shown(skill.folder)
        text, cut = skill_text(skill, body, folder, told=BY_USER if by == "user" else "")
        return SkillLoaded(
            name=skill.name, folder=folder, digest=digest_of(body), by=by, text=text, tokens=estimate_text(text),
            cut=cut,
        )  # fmt: skip


class SkillAccess:
    """The skills for one session: `record` journals a load, `loaded` tells what stands in its context."""

    def __init__(self, skills: Skills, loaded: Loaded, record: Callable[[SkillLoaded], object]) -> None:
        self.skills = skills
        self.loaded = loaded
        self.record = record

    def __repr__(self) -> str:
        return f"<SkillAccess {self.loaded!r}>"

    def load(self, name: str) -> str:
        """What the model gets of a skill; journals that it did. Raises ToolFailure."""
        looked = self.skills.look()
        found, skill = looked.for_model, find(name, looked.skills)
        if skill is not None and skill.manual:
            raise ToolFailure(f"only the user loads the skill {skill.name}, with /{skill.name}")
        if skill is None:
            raise ToolFailure(unknown(name, found))
        load = self.skills.made(skill, "model")
        if self.loaded.has(skill.name, load.digest):
            return f"The skill {skill.name} is in the context already, as it is on the disk: follow it."
        self.record(msgspec.structs.replace(load, text=""))
        return load.text


def find(name: str, found: Mapping[str, Skill]) -> Skill | None:
    """The skill of a name, however it is written: "/clean-tables", "Clean Tables"; else that of the folder so named."""
    if name in found:
        return found[name]
    wanted = slug(name)
    named = found.get(wanted) or next((skill for each, skill in found.items() if slug(each) == wanted), None)
    return named or next((skill for skill in found.values() if slug(skill.folder.name) == wanted), None)


def slug(name: str) -> str:
    """The name that is meant by "Clean Tables" or "clean_tables"."""
    return "-".join(name.strip().strip("/").lower().replace("_", " ").split())


def unknown(name: str, found: Mapping[str, Skill]) -> str:
    """That there is no such skill, and which are near."""
    if not found:
        return f"there is no skill {name[:80]!r}: there are none here, %skills new creates one"
    near = nearest_skills(name, found)
    known = near or sorted(found)[:NEAR]
    rest = len(found) - len(known)
    more = f" and {rest:,} more" if rest > 0 else ""
    return f"no skill {name[:80]!r}; {'near' if near else 'known'}: {', '.join(known)}{more}"


def nearest_skills(name: str, found: Mapping[str, Skill]) -> list[str]:
    """Known names that are like this one, or that have a word of it, best first."""
    wanted = slug(name)
    close = get_close_matches(wanted, list(found), n=NEAR, cutoff=0.6)
    words = {word for word in wanted.split("-") if len(word) > 2}
    close += [each for each in found if each not in close and wanted and each.startswith(wanted)]
    close += [each for each in found if each not in close and words & set(each.split("-"))]
    return close[:NEAR]


# ------------------------------------------------------------------ the tool
# `load_skill`: the model takes a skill's instructions into the context. There is no such tool without a skill.
#
# Its schema names the skills that were known when the head was rendered; one that came later is taken as well. What
# was loaded cannot be had again for nothing, so it is never cleared.


MOST_NAMES = 100
"""Names that the schema lists; with more of them the catalogue alone does."""
OFF = "skills are off (the setting `skills`)"


def tool_for(names: Iterable[str]) -> FunctionTool:
    """The tool with these names in its schema; for the same names the same one, whose model is built once."""
    return _tool_for(tuple(sorted(names)))


@lru_cache(maxsize=16)
def _tool_for(known: tuple[str, ...]) -> FunctionTool:
    from pydantic import Field

    extra: dict[str, Any] = {"enum": list(known)} if 0 < len(known) <= MOST_NAMES else {}

    async def load_skill(name: Any, *, workspace: Workspace) -> ToolOutput:
        """Load a skill of <skills>. Files and scripts that it points to are read and run in its folder."""
        access = getattr(workspace, "skills", None)
        if not isinstance(access, SkillAccess):
            raise ToolFailure(OFF)
        text = access.load(str(name))
        loaded = text.startswith("<skill")
        return text_output(text, note=f"skill {name}" if loaded else "in the context already")

    load_skill.__annotations__["name"] = Annotated[str, Field(json_schema_extra=extra)] if extra else str
    return tool(name=TOOL, permission="none", writes=False, store_chars=10_000_000)(load_skill)


# ------------------------------------------------------------------ slash
# `/name` at the start of a request loads a skill; the rest is the request. What names no skill is plain text.


_SLASH = re.compile(r"\s*/([^\s/\\]+)(?=\s|$)")
_NAME = re.compile(r"\w[\w-]{0,63}")


def read_slash(text: str, skills: Skills) -> TakenIn:
    """The skills, by name, at the start of a request, of those of the newest look, and what `%skills load` left for
    it."""
    found = skills.latest.skills
    names = [name for name in skills.asked if name in found]
    skills.asked.clear()
    rest, here = text, False
    notices: list[str] = []
    while skills.on and (match := _SLASH.match(rest)) is not None:
        skill = find(match[1], found)
        if skill is None:
            if not here and _NAME.fullmatch(match[1]):
                near = nearest_skills(match[1], found)
                hint = f"; did you mean /{near[0]}?" if near else ""
                notices.append(f"there is no skill {match[1]!r}{hint}; it is sent as text (%skills lists all)")
            break
        names.append(skill.name)
        rest, here = rest[match.end() :], True
    request = rest.strip() or f"Go by the skill {names[-1]} now." if here else ""
    return TakenIn(tuple(dict.fromkeys(names)), request, tuple(notices))


# ------------------------------------------------------------------ after a compaction
# Loaded skills that are in use stand again after a compaction: the newest first, each and all within a budget, the
# head of one that is too long.


EACH, ALL = 5_000, 25_000
"""Tokens of one skill, and of all of them."""
LEAST = 300
"""Tokens below which a beginning is of no use."""


def restorable(skills: Skills, loaded: Loaded, room: int = ALL) -> list[tuple[str, str]]:
    """Name for the user and text for the model of each skill that stands in the context now and is in use; in `room`
    tokens, uncalibrated."""
    found = skills.look().skills
    room = min(room, ALL)
    back: list[tuple[str, str]] = []
    for name in reversed(loaded.standing):
        skill = found.get(name)
        if skill is None or room < LEAST or not loaded.in_use(name):
            continue
        try:
            text, cut = _fitted(skill, body_of(skill), skills.shown(skill.folder), min(EACH, room))
        except OSError:
            continue
        room -= estimate_text(text)
        back.append((f"{RESTORED}{name}{BEGINNING if cut else ''}", text))
    return back


def _fitted(skill: Skill, body: str, folder: str, tokens: int) -> tuple[str, bool]:
    """A skill's text in at most `tokens` tokens, as far as its body can be cut."""
    most = min(len(body), MOST_CHARS)
    text, cut = skill_text(skill, body, folder, most=most)
    while estimate_text(text) > tokens and most > 200:
        most = most * min(95, 97 * tokens // max(1, estimate_text(text))) // 100
        text, cut = skill_text(skill, body, folder, most=max(200, most))
    return text, cut


WIDTH = 100
SOURCES = {"project": "this project", "user": "yours", "bundled": "with ipyagent"}


def run_skills(agent: RunningAgent, text: str) -> str:
    """Do what the line says; the answer. Raises UsageError."""
    word, _, rest = text.strip().partition(" ")
    command = COMMANDS.get(word.removeprefix("--") or "list")
    if command is None:
        known = list(COMMANDS)
        raise UsageError(f"%skills has no command {word!r}{nearest(word, known)}  commands: {', '.join(known)}")
    if agent.busy and not command.looks:  # said by code that the agent runs
        raise UsageError(f"a turn is running: %skills {word} has to wait until it ends")
    return "\n".join(command.run(agent, rest.strip()))


# ---------------------------------------------------------------------- looking


def _list(agent: RunningAgent, rest: str) -> list[str]:
    """List all skills by source; * marks those in the context."""
    found = agent.part(Skills).look_anyway()
    lines = [] if agent.part(Skills).on else ["skills are off in this kernel; %skills on turns them on"]
    loaded = agent.session.folded(Loaded).standing if agent.session is not None else {}
    for source, whose in SOURCES.items():
        skills = [skill for skill in found.skills.values() if skill.source == source]
        if skills:
            lines.append(f"{whose}:")
        for skill in skills:
            mark = "*" if skill.name in loaded else " "
            lines.append(f"{mark} {one_line(skill.name, 64):<28} {one_line(skill.description, WIDTH)}")
    if not found.skills:
        lines.append("none yet: %skills new NAME writes one")
    lines += _untrusted(agent)
    if found.problems:
        count = len(found.problems)
        lines.append(f"{count:,} remark{'s' * (count != 1)} on skill files: %skills doctor")
    if (cut := catalogue_of(found.skills, agent.info.window).cut) and agent.part(Skills).on:
        lines.append(cut)
    return lines


def _untrusted(agent: RunningAgent) -> list[str]:
    if agent.part(Skills).trusted or not any("skills" in name for name in agent.project.carried()):
        return []
    return ["the project's own skills are not used: it is not trusted (%agent trust)"]


def _show(agent: RunningAgent, rest: str) -> list[str]:
    """Show a skill: its folder, its cost and its text."""
    skill = _find(agent, rest, "show")
    body = _body(skill)
    files, more = files_of(skill.folder)
    facts = [f"{SOURCES[skill.source]}, {skill.file}"]
    facts.append(f"{_size(agent, skill):,} tokens when it is loaded")
    about = (("license", skill.license), ("compatibility", skill.compatibility), ("tools named by its author, which "
             "grants nothing", " ".join(skill.allowed_tools)))  # fmt: skip
    facts += [f"{what}: {text}" for what, text in about if text]
    if files:
        facts.append(f"files: {', '.join(files)}{' and ' + more if more else ''}")
    facts += [f"! {problem}" for problem in skill.problems]
    head = [one_line(f"{skill.name}: {skill.description}"), *(one_line(fact) for fact in facts), ""]
    return [*head, *plain(body).splitlines()]


def _doctor(agent: RunningAgent, rest: str) -> list[str]:
    """Check the skill files; with NAME, check that skill in detail."""
    if rest:
        skill = _find(agent, rest, "doctor")
        wrong = violations(skill.folder)
        valid = f"{one_line(skill.name)} is valid in every point"
        return [one_line(f"{skill.file}: {why}") for why in wrong] or [valid]
    found = agent.part(Skills).look_anyway()
    lines = [one_line(str(problem)) for problem in found.problems]
    places = [f"looked in {place.folder}" + ("" if place.folder.is_dir() else " (not there)") for place in
              agent.part(Skills).places]  # fmt: skip
    head = lines or [f"all is well: {len(found.skills):,} skill{'s' * (len(found.skills) != 1)} can be read"]
    return [*head, *_untrusted(agent), *(one_line(place) for place in places)]


def _find(agent: RunningAgent, rest: str, command: str) -> Skill:
    if not rest:
        raise UsageError(f"%skills {command} NAME: say which; %skills lists them")
    found = agent.part(Skills).look_anyway().skills
    skill = find(rest, found)
    if skill is None:
        raise UsageError(unknown(rest, found))
    return skill


def _body(skill: Skill) -> str:
    try:
        return body_of(skill)
    except OSError as problem:
        raise UsageError(f"{skill.file} cannot be read ({problem.strerror}): fix its permissions") from None


def _size(agent: RunningAgent, skill: Skill) -> int:
    """Tokens that it takes when it is loaded, as %context counts them."""
    measure = measure_of(agent.session.view) if agent.session is not None else 1.0
    return round(agent.part(Skills).made(skill, "user").tokens * measure)


# ---------------------------------------------------------------------- doing


def _load(agent: RunningAgent, rest: str) -> list[str]:
    """Load a skill for the next request, as /NAME at its start does."""
    skill = _find(agent, rest, "load")
    if not agent.part(Skills).on:
        raise UsageError("skills are off in this kernel; %skills on turns them on")
    _body(skill)  # one that cannot be read is said now
    if skill.name not in agent.part(Skills).asked:
        agent.part(Skills).asked.append(skill.name)
    return [f"{one_line(skill.name)} goes with your next request: about {_size(agent, skill):,} tokens"]


def _new(agent: RunningAgent, rest: str) -> list[str]:
    """Write a new skill: NAME and, if you like, what it is for; --user makes it for all your projects."""
    mine, text = rest.startswith("--user"), rest.removeprefix("--user").strip()
    typed, _, description = text.partition(" ")
    if not typed or typed.startswith("-"):
        raise UsageError("the new skill has no name: %skills new [--user] NAME [what it is for]")
    name = name_of(typed)
    begun = not mine and agent.project.make()  # in an empty folder the skill is the user's own: it is trusted
    place: Path = (agent.project.user if mine else agent.project.root) / "skills"
    before = agent.part(Skills).look_anyway().skills.get(name)
    file = write_skill(place, name, description)
    agent.project.arrived([file])  # the user knows of it
    lines = [f"wrote {file}", "edit its description and its steps; your next request uses the edited file"]
    if name != typed:
        lines.insert(1, f"its name is {name}: lower-case letters, digits and single hyphens")
    if before is not None:
        lines.append(f"there is a skill {name} in {before.folder} too: %skills doctor says which of them is used")
    if begun:
        lines.append(agent.project.place_line())
    if not mine and not agent.part(Skills).trusted:
        lines.append("it is used once you run %agent trust: this project is not trusted yet")
    return lines


def _off(agent: RunningAgent, rest: str) -> list[str]:
    """Turn skills off in this kernel."""
    agent.settings.skills = False
    agent.part(Skills).asked.clear()
    return ["skills are off in this kernel; %skills on turns them on (for good: IPYAGENT_SKILLS=0)"]


def _on(agent: RunningAgent, rest: str) -> list[str]:
    """Turn skills on in this kernel."""
    agent.settings.skills = True
    return ["skills are on", *_untrusted(agent)]


def _help(agent: RunningAgent, rest: str) -> list[str]:
    """Show this list."""
    rows = [(f"%skills {name} {each.usage}".strip(), doc_of(each.run)) for name, each in COMMANDS.items()]
    head = "Skills are instructions for kinds of work, in a folder each with a SKILL.md; /NAME loads one."
    return [help_text([head], [("", rows)])]


class SkillsCommand(NamedTuple):
    """`looks`: it changes nothing."""

    run: Callable[[RunningAgent, str], list[str]]
    usage: str = ""
    looks: bool = False


COMMANDS: dict[str, SkillsCommand] = {
    "list": SkillsCommand(_list, looks=True),
    "show": SkillsCommand(_show, "NAME", looks=True),
    "load": SkillsCommand(_load, "NAME"),
    "new": SkillsCommand(_new, "[--user] NAME [TEXT]"),
    "doctor": SkillsCommand(_doctor, "[NAME]", looks=True),
    "off": SkillsCommand(_off),
    "on": SkillsCommand(_on),
    "help": SkillsCommand(_help, looks=True),
}
NAMED = ("show", "load", "doctor")
"""Commands that take a skill's name."""


def names(agent: RunningAgent) -> list[str]:
    """Names of skills, for completion."""
    return list(agent.part(Skills).look().skills)
