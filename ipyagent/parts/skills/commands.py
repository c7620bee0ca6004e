"""`%skills`: what the user sees of the skills, and does with them. The text behind a command is literal."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from ipyagent.errors import UsageError, nearest
from ipyagent.escape import line as one_line
from ipyagent.escape import plain
from ipyagent.parts.skills import Skills, find, unknown
from ipyagent.parts.skills.discover import files_of
from ipyagent.parts.skills.loaded import Loaded
from ipyagent.parts.skills.parse import Skill, body_of, catalogue_of, name_of, violations, write_skill
from ipyagent.reports.timeline import measure_of
from ipyagent.tools.schema import doc_of, help_text

if TYPE_CHECKING:
    from ipyagent.parts import RunningAgent

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
        lines += [_row(skill, skill.name in loaded) for skill in skills]
    if not found.skills:
        lines.append("none yet: %skills new NAME writes one")
    lines += _untrusted(agent)
    if found.problems:
        count = len(found.problems)
        lines.append(f"{count:,} remark{'s' * (count != 1)} on skill files: %skills doctor")
    if (cut := catalogue_of(found.skills, _window(agent)).cut) and agent.part(Skills).on:
        lines.append(cut)
    return lines


def _row(skill: Skill, loaded: bool) -> str:
    return f"{'*' if loaded else ' '} {one_line(skill.name, 64):<28} {one_line(skill.description, WIDTH)}"


def _window(agent: RunningAgent) -> int:
    return agent.info.window


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
    return [f"{one_line(skill.name)} goes with your next request: {_size(agent, skill):,} tokens"]


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
