"""`%memory`: what the user sees of the memories, and does with them.

The text behind a command is literal. What changes something can be undone, and its answer says how; code
that a turn runs may look, but not change: it is not the user.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from ipyagent.commands.memory_changes import Line, MemoryCommandRun, add, edit, forget, parted, rename, restore, undo
from ipyagent.commands.memory_report import (
    doctor_lines,
    history_lines,
    list_lines,
    path_lines,
    recall_lines,
    search_lines,
    session_lines,
    show_lines,
    stats_lines,
)
from ipyagent.errors import AgentError, UsageError
from ipyagent.memory.access import KINDS, Address
from ipyagent.memory.names import INDEX, SCOPES
from ipyagent.options import nearest
from ipyagent.tools.schema import doc_of

if TYPE_CHECKING:
    from ipyagent.agent import Agent

def run_memory(agent: Agent, line: str, body: str | None = None, *, shell: Any = None) -> str:
    """Do what the line says; the answer. `body`: the cell below a `%%memory` line; `shell`: where `edit`
    prepares a cell. Raises UsageError, MemoryRefused and what background work raises."""
    word, rest = parted(line)
    command = COMMANDS.get(word.removeprefix("--") or "list")
    if command is None:
        raise UsageError(
            f"%memory has no command {word!r}{nearest(word, list(COMMANDS))}  commands: {', '.join(COMMANDS)}"
        )
    if agent.busy and not command.looks:  # said by code that the agent runs
        raise UsageError(f"a turn is running: %memory {word} is for the user, after it has ended")
    if body is not None:
        if word not in ("add", "edit"):
            raise UsageError(f"%%memory takes add or edit; %memory {word or 'COMMAND'} takes one line")
        if body.strip():
            rest = f"{rest}\n{body}" if rest else body
    doing = MemoryCommandRun(agent, shell, body)
    answer = command.run(doing, _options(word, command, rest))
    return "\n".join([answer, *doing.notices])


def _options(word: str, command: MemoryCommand, text: str) -> Line:
    """The options at the beginning; the first other word begins the text."""
    found: dict[str, str] = {}
    rest = text
    while (match := re.match(r"\s*(--[a-z][\w-]*)(?:=(\S+))?(?=\s|$)", rest)) is not None:
        name, value = match[1], match[2]
        if name not in command.options:
            known = list(command.options)
            raise UsageError(
                f"%memory {word} has no option {name}{nearest(name, known)}  options: {', '.join(known) or 'none'}"
            )
        rest = rest[match.end() :]
        if command.options[name]:
            if value is None:
                value, rest = parted(rest.lstrip(" \t"))
            if not value or (command.options[name] != "TEXT" and value not in command.options[name].split("|")):
                raise UsageError(f"{name} takes {command.options[name]}, not {value!r}")
        found[name] = value or "yes"
    return Line(found, rest.lstrip(" \t") if "\n" in rest else rest.strip())


# ---------------------------------------------------------------------- looking


def _list(doing: MemoryCommandRun, line: Line) -> str:
    """All memories: type, name, day, description."""
    return "\n".join(list_lines(doing.memories, doing.access))


def _show(doing: MemoryCommandRun, line: Line) -> str:
    """One memory, or MEMORY.md, the index."""
    if line.rest == INDEX:
        texts = [doing.access.read(Address(scope, INDEX)) for scope in SCOPES if not doing.memories.refusal(scope)]
        return "\n".join(text for text in texts if text) or "no index yet"
    place = doing.find(line.rest)
    text = doing.access.read(place)
    if text is None:
        raise UsageError(f"there is no {place.path}; %memory lists what there is")
    found = next((memory for memory in doing.all() if memory.path == place.path), None)
    return "\n".join(show_lines(found, text))


def _search(doing: MemoryCommandRun, line: Line) -> str:
    """Search the memories by words, or with --sessions what was said in past sessions."""
    if not line.rest:
        raise UsageError("%memory search [--sessions] QUERY: say what to look for")
    if "--sessions" in line.options:
        return "\n".join(session_lines(doing.agent, line.rest))
    return "\n".join(search_lines(doing.agent, line.rest))


def _recall(doing: MemoryCommandRun, line: Line) -> str:
    """What would be recalled for a request, with scores and reasons."""
    if not line.rest:
        raise UsageError("%memory recall QUERY: write the request to try")
    return "\n".join(recall_lines(doing.agent, line.rest))


def _history(doing: MemoryCommandRun, line: Line) -> str:
    """The earlier versions of a memory, newest first; with a revision that version itself."""
    name, revision = parted(line.rest)
    place = doing.once(name)
    store = doing.access.store(place.scope)
    if revision:
        return store.version(place.name, revision).text
    return "\n".join(history_lines(place, store.versions(place.name)))


def _doctor(doing: MemoryCommandRun, line: Line) -> str:
    """Find and fix what is wrong with the index and the headers; --dry-run only finds."""
    return "\n".join(doctor_lines(doing.memories, mend="--dry-run" not in line.options and not doing.agent.busy))


def _stats(doing: MemoryCommandRun, line: Line) -> str:
    """How many memories there are, of which types; what recall and extraction did."""
    return "\n".join(stats_lines(doing.agent, doing.access))


def _path(doing: MemoryCommandRun, line: Line) -> str:
    """Where the memories are."""
    return "\n".join(path_lines(doing.memories))


# ---------------------------------------------------------------------- work and switches


def _extract(doing: MemoryCommandRun, line: Line) -> str:
    """Look through what was said since the last time, now."""
    from ipyagent.commands.memory_work import extract_now

    return extract_now(doing.agent)


def _dream(doing: MemoryCommandRun, line: Line) -> str:
    """Tidy the memories now; --dry-run only tells what it would do, --accept does that, --undo takes it back."""
    from ipyagent.commands.dream_work import dream_now

    undo_it, accept = "--undo" in line.options, "--accept" in line.options
    scope = line.options.get("--scope", "project")
    return dream_now(doing.agent, undo=undo_it, dry_run="--dry-run" in line.options, accept=accept, scope=scope)


def _off(doing: MemoryCommandRun, line: Line) -> str:
    """Turn memory off in this kernel."""
    doing.agent.settings.memory = False
    return (
        "memory is off in this kernel: nothing is recalled, saved or tidied; %memory on turns it on\n"
        "for good: IPYAGENT_MEMORY=0 or c.IPyAgent.memory = False; the files stay where they are (%memory path)"
    )


def _on(doing: MemoryCommandRun, line: Line) -> str:
    """Turn memory on in this kernel."""
    doing.agent.settings.memory = True
    refused = [why for scope in SCOPES if (why := doing.memories.refusal(scope))]
    return "\n".join(["memory is on", *refused])


def _help(doing: MemoryCommandRun, line: Line) -> str:
    """This list."""
    rows = [f"  %memory {f'{name} {each.usage}'.strip():<34} {doc_of(each.run)}" for name, each in COMMANDS.items()]
    return "\n".join(["what outlives a session: Markdown files that the agent and you can change", *rows])


class MemoryCommand(NamedTuple):
    """`options`: by name the values an option takes ("": none); `looks`: it changes nothing."""

    run: Callable[[MemoryCommandRun, Line], str]
    usage: str = ""
    options: dict[str, str] = {}  # noqa: RUF012 - never changed
    looks: bool = False


_DRY = {"--dry-run": ""}
_DREAM = {"--undo": "", "--accept": "", **_DRY, "--scope": "|".join(SCOPES)}
_ADD = {"--type": "|".join(KINDS), "--scope": "|".join(SCOPES), "--name": "TEXT"}
COMMANDS: dict[str, MemoryCommand] = {
    "list": MemoryCommand(_list, looks=True),
    "show": MemoryCommand(_show, "NAME", looks=True),
    "add": MemoryCommand(add, "[--type T] TEXT", _ADD),
    "edit": MemoryCommand(edit, "NAME", {"--from": "TEXT"}),
    "forget": MemoryCommand(forget, "NAME"),
    "rename": MemoryCommand(rename, "NAME NEW"),
    "search": MemoryCommand(_search, "[--sessions] QUERY", {"--sessions": ""}, looks=True),
    "recall": MemoryCommand(_recall, "QUERY"),
    "extract": MemoryCommand(_extract),
    "dream": MemoryCommand(_dream, "[--undo|--dry-run|--accept]", _DREAM),
    "history": MemoryCommand(_history, "NAME [REV]", looks=True),
    "restore": MemoryCommand(restore, "NAME [REV]"),
    "undo": MemoryCommand(undo),
    "doctor": MemoryCommand(_doctor, "[--dry-run]", _DRY, looks=True),
    "stats": MemoryCommand(_stats, looks=True),
    "path": MemoryCommand(_path, looks=True),
    "off": MemoryCommand(_off),
    "on": MemoryCommand(_on),
    "help": MemoryCommand(_help, looks=True),
}
NAMED = ("show", "edit", "forget", "rename", "history", "restore")
"""Commands that take a memory's name."""


def names(agent: Agent) -> list[str]:
    """What a memory may be called on a line, for completion."""
    try:
        every = MemoryCommandRun(agent, None, None).all()
    except AgentError:
        return []
    return list(dict.fromkeys([*(each.name for each in every), *(f"{each.scope}/{each.name}" for each in every)]))
