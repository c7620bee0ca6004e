"""`%memory`: what the user sees of the memories, and does with them.

The text behind a command is literal. What changes something can be undone, and its answer says how; code
that a turn runs may look, but not change: it is not the user."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from contextlib import suppress
from hashlib import sha256
from typing import TYPE_CHECKING, Any, NamedTuple

from ipyagent.errors import AgentError, JournalError, MemoryRefused, UsageError, nearest
from ipyagent.frontmatter import MARK, read_headed, write_headed
from ipyagent.journal.events import ForkEnded, MemorySaved
from ipyagent.parts.memory import MemoryPart
from ipyagent.parts.memory.access import SavedMemory
from ipyagent.parts.memory.browsing import browsing_of
from ipyagent.parts.memory.dream import command, counted, done_line, saved_events
from ipyagent.parts.memory.dream_workspace import DreamWorkspace, waiting_in
from ipyagent.parts.memory.dream_workspace import undo as undo_last
from ipyagent.parts.memory.extract import PURPOSE
from ipyagent.parts.memory.metadata_index import KINDS
from ipyagent.parts.memory.report import (
    MemoryCommandRun,
    doctor_lines,
    history,
    list_all,
    parted,
    path,
    recall,
    search,
    show,
    stats,
)
from ipyagent.parts.memory.safe_paths import ROOT, SCOPES, Address
from ipyagent.parts.memory.store import MemoryStore
from ipyagent.parts.memory.tokenizer import folded, stop
from ipyagent.parts.memory.transaction import DreamLock
from ipyagent.redaction import find_secrets, refusal
from ipyagent.tools.schema import doc_of, help_text

if TYPE_CHECKING:
    from ipyagent.kernel.dispatcher import MainThreadExecutor
    from ipyagent.parts import RunningAgent


def dream_now(
    agent: RunningAgent,
    *,
    undo: bool = False,
    dry_run: bool = False,
    accept: bool = False,
    model: str = "",
    scope: str = "project",
) -> str:
    """`%memory dream`: dream now of the memories of `scope`; `dry_run`: only tell what it would do; `accept`: do
    what a dream that waits would do; `undo`: take the last one back, or drop one that waits. Raises UsageError,
    AgentError, KeyboardInterrupt."""
    if undo + dry_run + accept > 1:
        raise UsageError("use only one of --undo, --dry-run and --accept")
    agent.check_free()
    store = agent.part(MemoryPart).memories.store(scope)
    if undo:
        return _undone(agent, store)
    if accept:
        return _accepted(agent, store)
    if not store.list():
        return "there are no memories to tidy"
    name = model or agent.model
    client = agent.connections.get(name, agent.endpoint())
    dreaming = agent.part(MemoryPart).dreaming
    with agent.occupied() as main:
        made = main.run_blocking(lambda: dreaming.run(main, client, name, dry_run=dry_run, scope=scope))
    if made.status == "failed":
        raise AgentError(f"the dream failed and changed nothing: {made.message}; %memory dream tries again")
    price = f"; it cost ${made.cost:.4f}" if made.cost else ""
    return f"{made.message}{price}"


def _undone(agent: RunningAgent, store: MemoryStore) -> str:
    if (waiting := waiting_in(store)) is not None:
        DreamWorkspace(store, waiting.copy, waiting.base).drop()  # the note too, where the copy is gone
        return "discarded the dream that was waiting for approval; no memory was changed"
    record, since = undo_last(store)
    redo = f"{command(store.scope)} --undo once more reverses this"
    kept = f"; saved since and left as they are: {', '.join(since[:8])}" if since else ""
    what = f": {counted(record.changes)}" if record.changes else ""
    words = "brought back" if record.undone else "undone"
    return f"{words}{what}{kept}; {redo}"


def _accepted(agent: RunningAgent, store: MemoryStore) -> str:
    waiting = waiting_in(store)
    if waiting is None:
        raise UsageError(f"no dream is waiting for approval; {command(store.scope)} starts one")
    staging = DreamWorkspace.of(store, waiting)
    with DreamLock(store.folder, store.lock).acquire() as taken:
        made = staging.commit(waiting.session, waiting.changes)
        taken.succeed()
    staging.drop()
    with suppress(JournalError):  # the session was let go: what was done stands all the same
        if agent.session is not None:
            for event in saved_events(made):
                agent.session.record(event)
    return done_line(made, store.scope)


# ---- What `%memory` changes: each answer says how it is undone.

NAME_WORDS = 5
HOOK = 150
"""Characters of a description that is made from a text."""
_WORD = re.compile(r"[^\W_]+")


def undo_words(saved: SavedMemory) -> str:
    """How what was just done is undone."""
    event = saved.event
    name = event.path.removeprefix(f"{ROOT}/")
    if event.change == "renamed":
        return f"%memory rename {name} {event.old.removeprefix(f'{ROOT}/')}"
    return f"%memory restore {name} {event.revision}" if event.revision else f"%memory forget {name}"


def add(doing: MemoryCommandRun) -> str:
    """Save a memory: --type user|feedback|project|reference, --scope project|user, --name NAME."""
    text = doing.rest.strip()
    if not text:
        raise UsageError("%memory add [--type T] TEXT: write what to remember")
    if found := find_secrets(text):  # before a name is made of it
        raise MemoryRefused(refusal(found), reason="content")
    kind = doing.options.get("--type", "project")
    scope = doing.options.get("--scope", "user" if kind == "user" else "project")
    given = read_headed(text.encode())
    first = next(row for row in given.body.strip().splitlines() or [text] if row.strip()).strip("#*- ")
    hook = first if len(first) <= HOOK else f"{first[: HOOK - 1].rsplit(' ', 1)[0]}…"
    title = " ".join(first.split()[:8]).rstrip(".,;:")
    fields = {"name": title or first, "description": hook, "type": kind, **given.fields}
    written = write_headed(fields, given.body.strip() + "\n")
    wish = doing.options.get("--name", "")
    words = _WORD.findall(folded(first))  # the name is made of the first that say something
    telling = [word for word in words if word not in stop()] or words
    slug = "_".join(telling[:NAME_WORDS])[:60] or "note"
    for number in range(1, 100):
        tail = f"_{number}" if number > 1 else ""
        name = wish.removesuffix(".md") or f"{kind}_{slug}"
        try:
            saved = doing.access.create(Address(scope, f"{name}{tail}.md"), written)
        except MemoryRefused as problem:
            if problem.reason == "known":
                return str(problem)
            if problem.reason != "exists" or wish:
                raise
            continue
        return f"saved {saved.memory.scope}/{saved.memory.name} ({kind}); undo: {undo_words(saved)}"
    raise UsageError(f"there are many memories called {kind}_{slug} already; give it a --name")


def edit(doing: MemoryCommandRun) -> str:
    """Open a memory in a cell below, to change and run; with `%%memory edit NAME` the cell is its new text."""
    name, rest = parted(doing.rest)
    place = doing.find(name)
    if doing.body is not None and doing.body.strip():
        saved = doing.access.change(place, lambda before: _edited(place, doing.options, before, doing.body or ""))
        return _told("changed", saved)
    if rest:
        raise UsageError("%memory edit NAME puts its text into a cell; change it there and run the cell")
    text = doing.access.read(place)
    if text is None:
        raise UsageError(f"there is no {place.path}; %memory lists what there is")
    cell = f"%%memory edit --from={_mark(text)} {place.scope}/{place.name}\n{text}"
    if doing.shell is None:
        return cell
    doing.shell.set_next_input(cell)
    return f"change {place.name} in the cell below and run it"


def _edited(place: Address, options: dict[str, str], before: str, after: str) -> str:
    """The new text; nobody's work is lost when the memory is not what the cell was made from."""
    if options.get("--from", _mark(before)) != _mark(before):
        raise UsageError(
            f"{place.name} was changed since this cell was made: %memory edit {place.scope}/{place.name} gives its "
            "current text (without --from, this cell replaces it)"
        )
    if after.lstrip().startswith(MARK) or not (fields := read_headed(before.encode()).fields):
        return after
    return write_headed(dict(fields), after)  # plain text is the memory's new body


def _mark(text: str) -> str:
    return sha256(text.encode()).hexdigest()[:8]


def forget(doing: MemoryCommandRun) -> str:
    """Delete a memory; its history stays."""
    return _told("forgotten", doing.access.delete(doing.find(doing.rest)))


def rename(doing: MemoryCommandRun) -> str:
    """Give a memory another name."""
    name, new = parted(doing.rest)
    if not new:
        raise UsageError("a memory and its new name are needed: %memory rename NAME NEW")
    place = doing.find(name)
    scope, slash, inside = new.partition("/")
    to = Address(scope, inside) if slash and scope in SCOPES else Address(place.scope, new)
    to = Address(to.scope, to.name.removesuffix(".md") + ".md")
    return _told("renamed", doing.access.rename(place, to))


def restore(doing: MemoryCommandRun) -> str:
    """Restore an earlier version: NAME and a revision of %memory history; without one, the newest."""
    name, revision = parted(doing.rest)
    place = doing.once(name)
    versions = doing.access.store(place.scope).versions(place.name)
    if not versions:
        raise UsageError(f"{place.name} has no earlier version; %memory history shows what was kept")
    if revision and revision not in [version.revision for version in versions]:
        raise UsageError(f"{place.name} has no version {revision!r}; %memory history {place.scope}/{place.name}")
    return _told("restored", doing.access.restore(place, revision or versions[0].revision))


def undo(doing: MemoryCommandRun) -> str:
    """Undo the newest memory change of this session that is not undone yet, whoever made it."""
    session = doing.agent.session
    events = [event for event in session.journal.read() if isinstance(event, MemorySaved)] if session else []
    undone = {event.undoes for event in events}
    for saved in reversed(events):
        if saved.undoes or saved.id in undone:
            continue
        try:
            made = doing.access.undo(saved)
        except MemoryRefused as problem:
            if problem.reason != "missing":
                raise
            continue  # it is not there any more: nothing of this change is left
        return _told(f"undone ({saved.change} by {saved.by})", made, "redo")
    left = "no memory change of this session is left to undo" if events else "no memory was saved in this session"
    raise UsageError(f"{left}; %memory history NAME lists earlier versions")


def _told(words: str, saved: SavedMemory, back: str = "undo") -> str:
    event = saved.event
    name = event.path.removeprefix(f"{ROOT}/")
    if event.change == "unchanged":
        return f"{name} has this text already"
    return f"{words}: {name}; {back}: {undo_words(saved)}"


def show_memory(agent: RunningAgent, line: str, cell: str | None = None) -> str:
    """The answer of `%memory LINE`; "" when it was shown as a widget."""
    if cell is None and not line.strip() and getattr(agent.shell, "kernel", None) is not None:
        from ipyagent.parts.memory.browser import show as browse

        dreams = agent.part(MemoryPart).dreaming
        return browse(agent.shell, browsing_of(agent), busy=agent.busy, dreams=dreams, panels=agent.settings.panels)
    return run_memory(agent, line, cell, shell=agent.shell)


def run_memory(agent: RunningAgent, line: str, body: str | None = None, *, shell: Any = None) -> str:
    """Do what the line says; the answer. `body`: the cell below a `%%memory` line; `shell`: where `edit`
    prepares a cell. Raises UsageError, MemoryRefused and what background work raises."""
    word, rest = parted(line)
    command = COMMANDS.get(word.removeprefix("--") or "list")
    if command is None:
        raise UsageError(
            f"%memory has no command {word!r}{nearest(word, list(COMMANDS))}  commands: {', '.join(COMMANDS)}"
        )
    if agent.busy and not command.looks:  # said by code that the agent runs
        raise UsageError(f"a turn is running: %memory {word} has to wait until it ends")
    if body is not None:
        if word not in ("add", "edit"):
            raise UsageError(f"%%memory takes add or edit; %memory {word or 'COMMAND'} takes one line")
        if body.strip():
            rest = f"{rest}\n{body}" if rest else body
    doing = MemoryCommandRun(agent, *_options(word, command, rest), body, shell)
    answer = command.run(doing)
    return "\n".join([*([answer] if isinstance(answer, str) else answer), *doing.notices])


def _options(word: str, command: MemoryCommand, text: str) -> tuple[dict[str, str], str]:
    """The options at the beginning, and the text, which the first other word begins."""
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
    return found, rest.lstrip(" \t") if "\n" in rest else rest.strip()


def doctor(doing: MemoryCommandRun) -> list[str]:
    """Find and fix what is wrong with the index and the frontmatter; --dry-run only finds."""
    return doctor_lines(doing.memories, mend="--dry-run" not in doing.options and not doing.agent.busy)


# ---------------------------------------------------------------------- work and switches


def _extract(doing: MemoryCommandRun) -> str:
    """Look for new memories in the conversation now."""
    agent = doing.agent
    agent.check_free()
    session = agent.sessions.take_up()
    if session is None or not session.history.turns:
        raise UsageError("there is no conversation to examine yet: start one with a %%agent cell")
    model = agent.connections.get(agent.model, agent.endpoint())
    before = session.journal.last

    async def run(main: MainThreadExecutor) -> tuple[str, ...] | None:
        try:
            await agent.connect_now(session, model)
            return await agent.part(MemoryPart).extracting.now(session, agent.workspace(session, main))
        except asyncio.CancelledError:
            return None
        finally:
            await session.synced()

    with agent.occupied() as main:
        saved = main.run_blocking(lambda: run(main))
    spent = [event for event in session.journal.read() if event.id > before and isinstance(event, ForkEnded)]
    costs = [event.cost for event in spent if event.purpose == PURPOSE]
    price = "" if not costs or None in costs else f"; it cost ${sum(cost or 0.0 for cost in costs):.4f}"
    if saved is None:
        return f"stopped{price}"
    if not saved:
        return f"nothing to save{price}"
    names = list(dict.fromkeys(path.removeprefix("/memories/") for path in saved))
    return f"saved: {', '.join(names)}{price}; undo: %memory undo, or %memory history NAME"


def _dream(doing: MemoryCommandRun) -> str:
    """Tidy the memories now; --dry-run shows what it would do, --accept does that, --undo undoes it."""
    undo_it, accept = "--undo" in doing.options, "--accept" in doing.options
    scope = doing.options.get("--scope", "project")
    return dream_now(doing.agent, undo=undo_it, dry_run="--dry-run" in doing.options, accept=accept, scope=scope)


def _watching(doing: MemoryCommandRun) -> None:
    """Whether what is said from now on is looked through, for whoever asks before the next turn."""
    if doing.agent.session is not None:
        doing.agent.part(MemoryPart).extracting.begins(doing.agent.session)


def _off(doing: MemoryCommandRun) -> str:
    """Turn memory off in this kernel."""
    doing.agent.settings.memory = False
    _watching(doing)
    return (
        "memory is off in this kernel: nothing is recalled, saved or tidied; %memory on turns it on\n"
        "for good: IPYAGENT_MEMORY=0 or c.IPyAgent.memory = False; the files stay where they are (%memory path)"
    )


def _on(doing: MemoryCommandRun) -> str:
    """Turn memory on in this kernel."""
    doing.agent.settings.memory = True
    _watching(doing)
    refused = [why for scope in SCOPES if (why := doing.memories.refusal(scope))]
    return "\n".join(["memory is on", *refused])


def _help(doing: MemoryCommandRun) -> str:
    """Show this list."""
    rows = {name: (f"%memory {name} {each.usage}".strip(), doc_of(each.run)) for name, each in COMMANDS.items()}
    look = [rows.pop(name) for name in ("list", "show", "search", "recall")]
    change = [rows.pop(name) for name in ("add", "edit", "forget", "rename", "extract", "dream")]
    head = ["Memory outlives a session: Markdown files that you and the agent can change."]
    return help_text(head, [("Look", look), ("Change", change), ("Versions and upkeep", list(rows.values()))])


class MemoryCommand(NamedTuple):
    """`options`: by name the values an option takes ("": none); `looks`: it changes nothing."""

    run: Callable[[MemoryCommandRun], str | list[str]]
    usage: str = ""
    options: dict[str, str] = {}  # noqa: RUF012 - never changed
    looks: bool = False


_DRY = {"--dry-run": ""}
_DREAM = {"--undo": "", "--accept": "", **_DRY, "--scope": "|".join(SCOPES)}
_ADD = {"--type": "|".join(KINDS), "--scope": "|".join(SCOPES), "--name": "TEXT"}
COMMANDS: dict[str, MemoryCommand] = {
    "list": MemoryCommand(list_all, looks=True),
    "show": MemoryCommand(show, "NAME", looks=True),
    "add": MemoryCommand(add, "[--type T] [--scope user] TEXT", _ADD),
    "edit": MemoryCommand(edit, "NAME", {"--from": "TEXT"}),
    "forget": MemoryCommand(forget, "NAME"),
    "rename": MemoryCommand(rename, "NAME NEW"),
    "search": MemoryCommand(search, "[--sessions] QUERY", {"--sessions": ""}, looks=True),
    "recall": MemoryCommand(recall, "QUERY"),
    "extract": MemoryCommand(_extract),
    "dream": MemoryCommand(_dream, "[--scope user] [--undo|--dry-run|--accept]", _DREAM),
    "history": MemoryCommand(history, "NAME [REV]", looks=True),
    "restore": MemoryCommand(restore, "NAME [REV]"),
    "undo": MemoryCommand(undo),
    "doctor": MemoryCommand(doctor, "[--dry-run]", _DRY, looks=True),
    "stats": MemoryCommand(stats, looks=True),
    "path": MemoryCommand(path, looks=True),
    "off": MemoryCommand(_off),
    "on": MemoryCommand(_on),
    "help": MemoryCommand(_help, looks=True),
}
NAMED = ("show", "edit", "forget", "rename", "history", "restore")
"""Commands that take a memory's name."""


def names(agent: RunningAgent) -> list[str]:
    """What a memory may be called on a line, for completion."""
    try:
        every = MemoryCommandRun(agent, {}, "").access.every()
    except AgentError:
        return []
    return list(dict.fromkeys([*(each.name for each in every), *(f"{each.scope}/{each.name}" for each in every)]))
