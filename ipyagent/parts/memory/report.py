"""One `%memory` command at work: which memory a name on its line means, and what is told, as lines of text. Names
and texts come from files: they reach the screen harmless."""

from __future__ import annotations

import re
import sqlite3
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from datetime import datetime
from typing import TYPE_CHECKING, Any

from ipyagent.errors import AgentError, MemoryRefused, TrustError, UsageError, nearest
from ipyagent.escape import line as one_line
from ipyagent.escape import plain
from ipyagent.journal.events import ForkEnded, MemoryExtracted, MemorySaved, MemorySurfaced, Usage
from ipyagent.parts.memory import MemoryPart
from ipyagent.parts.memory.browsing import Explained, MemoryUndo, explain, skipped
from ipyagent.parts.memory.extract import PURPOSE
from ipyagent.parts.memory.index import IndexFinding
from ipyagent.parts.memory.metadata_index import Memory
from ipyagent.parts.memory.recall import age_words
from ipyagent.parts.memory.safe_paths import INDEX, ROOT, SCOPES, Address, address
from ipyagent.parts.memory.stores import MemoryStores
from ipyagent.parts.memory.tokenizer import folded
from ipyagent.parts.memory.transcripts import CACHE, search_sessions

if TYPE_CHECKING:
    from ipyagent.parts import RunningAgent

WIDTH = 100
NAME_WIDTH = 56
SHOWN = 10


def parted(text: str) -> tuple[str, str]:
    """The first word and what follows it, as it was typed."""
    word = re.match(r"\s*(\S*)[ \t]?", text)
    assert word is not None
    return word[1], text[word.end() :].strip("\n") if "\n" in text else text[word.end() :].strip()


class MemoryCommandRun:
    """One command at work, with the options of its line and the rest of that, literal."""

    def __init__(
        self, agent: RunningAgent, options: dict[str, str], rest: str, body: str | None = None, shell: Any = None
    ) -> None:
        self.agent = agent
        self.options, self.rest = options, rest
        self.body = body
        self.shell = shell
        self.memories = agent.part(MemoryPart).memories
        self.notices: list[str] = []
        """Lines that follow the answer."""
        self.access = MemoryUndo(self.memories, lambda: agent.session).access(self.notices.append)

    def find(self, text: str) -> Address:
        """The memory that a text names: its path, its name with or without `.md`, its title. Raises UsageError."""
        if not text:
            raise UsageError("name a memory; %memory lists them")
        if text.startswith(ROOT):
            return address(text)
        every = self.access.every()
        wanted = _plain(text)
        whole = {f"{memory.scope}/{memory.name}": memory for memory in every}
        forms: list[Callable[[Memory], tuple[str, ...]]] = [
            lambda memory: (f"{memory.scope}/{memory.name}", memory.name),
            lambda memory: (memory.title, memory.name.rpartition("/")[2]),
        ]
        for form in forms:
            found = [name for name, memory in whole.items() if wanted in map(_plain, form(memory))]
            if len(found) == 1:
                return Address(whole[found[0]].scope, whole[found[0]].name)
            if found:
                raise UsageError(f"{text!r} may be {', '.join(found)}; name one of them")
        known = [memory.name for memory in every]
        for scope in SCOPES:
            with suppress(MemoryRefused):
                inside = text.removesuffix(".md").removeprefix(f"{scope}/") + ".md"
                if moved := self.access.missing(Address(scope, inside)):
                    raise UsageError(moved)
        raise UsageError(f"no memory {text!r}; %memory lists them{nearest(text, known, cutoff=0.4)}")

    def once(self, text: str) -> Address:
        """The same; also one that is only in the history."""
        try:
            return self.find(text)
        except UsageError:
            name = text.removesuffix(".md") + ".md"
            for scope in SCOPES:
                inside = name.removeprefix(f"{scope}/")
                try:
                    if self.access.store(scope).versions(inside):
                        return Address(scope, inside)
                except MemoryRefused:
                    continue
            raise


def _plain(text: str) -> str:
    return folded(text).removesuffix(".md")


def list_all(doing: MemoryCommandRun) -> list[str]:
    """List all memories: type, name, day, description."""
    memories, access = doing.memories, doing.access
    lines: list[str] = [] if memories.settings.memory else ["memory is off in this kernel; %memory on turns it on"]
    every = memories.settings.memory
    for scope in SCOPES:
        try:
            listed = access.listed(scope)
        except AgentError as problem:
            lines.append(f"{scope}: {problem}")
            every = False
            continue
        folder = access.store(scope).folder
        lines.append(f"{scope}, {_count(len(listed), 'memory', 'memories')} in {folder}")
        lines += [f"  {row}" for row in _rows(listed)]
    if every and not any(row.startswith("  ") for row in lines):
        lines.append("none yet: %memory add TEXT saves one, and the agent saves some automatically")
    return lines


def _rows(memories: Sequence[Memory]) -> Iterator[str]:
    """A line each, in columns: longer names and marks make them wider, and are cut where they are too long."""
    names = [one_line(memory.name, NAME_WIDTH) for memory in memories]
    sources = ((memory.kind or "no type", memory.source_words) for memory in memories)
    marks = [one_line(" ".join(filter(None, each)), NAME_WIDTH) for each in sources]
    wide, wider = (max((low, *map(len, each))) for low, each in ((34, names), (18, marks)))
    for memory, name, mark in zip(memories, names, marks, strict=True):
        told = memory.description or memory.title
        problem = f"  ! {one_line(memory.problems[0], WIDTH)}" if memory.problems else ""
        yield f"{name:<{wide}} {mark:<{wider}} {_day(memory.modified)}  {one_line(told, WIDTH)}{problem}"


def show(doing: MemoryCommandRun) -> list[str]:
    """Show a memory, or MEMORY.md, the index."""
    if doing.rest == INDEX:
        texts = [doing.access.read(Address(scope, INDEX)) for scope in SCOPES if not doing.memories.refusal(scope)]
        return [text for text in texts if text] or ["no index yet"]
    place = doing.find(doing.rest)
    text = doing.access.read(place)
    if text is None:
        raise UsageError(f"there is no {place.path}; %memory lists what there is")
    lines: list[str] = []
    memory = next((memory for memory in doing.access.every() if memory.path == place.path), None)
    if memory is not None:
        facts = [memory.kind or "no type", memory.source_words, age_words(memory.modified, time.time())]
        if memory.session:
            facts.append(f"session {memory.session}, turn {memory.turn}")
        lines.append(one_line(f"{memory.path} ({'; '.join(fact for fact in facts if fact)})"))
        lines += [f"! {one_line(problem)}" for problem in memory.problems]
    return [*lines, plain(text).rstrip("\n")]


def search(doing: MemoryCommandRun) -> list[str]:
    """Search the memories by words, or with --sessions what was said in past sessions."""
    agent, query = doing.agent, doing.rest
    if not query:
        raise UsageError("%memory search [--sessions] QUERY: say what to look for")
    if "--sessions" in doing.options:
        return _in_sessions(agent, query)
    if not agent.settings.memory:
        return ["memory is off in this kernel; %memory on turns it on"]
    try:
        ranked, every = agent.part(MemoryPart).recalling.ranked(query, patient=True)
    except (OSError, sqlite3.Error) as problem:
        raise MemoryRefused(f"the memories cannot be searched ({problem}); %memory lists them", reason="disk") from None
    found = [item for item in ranked if item.words or item.likeness > 0.4][:SHOWN]
    if not found:
        return [f"none of {_count(len(every), 'memory', 'memories')} fits {one_line(query, 60)!r}"]
    return [
        f"{item.score:5.2f}  {item.memory.scope}/{one_line(item.memory.name)}  ({one_line(item.why, 60)})  "
        f"{one_line(item.memory.description or item.memory.title, WIDTH)}"
        for item in found
    ]


def _in_sessions(agent: RunningAgent, query: str) -> list[str]:
    """What was said in past sessions, best first. Raises TrustError."""
    project = agent.project
    folders = agent.sessions.stored()
    if not (project.trusted or agent.settings.trust_all):
        own = [folder for folder in folders if project.owns(folder)]
        if not own and project.folder.exists():
            told = f"{project.folder} was not read; if you trust it, run %agent trust"
            raise TrustError(project.untrusted_line() or told)
        folders = own
    if not folders:
        return ["no stored sessions here yet"]
    hits, problems = search_sessions(folders, query, cache=project.state / "cache" / CACHE)
    lines = [f"! {one_line(problem)}" for problem in problems[:3]]
    if not hits:
        return [*lines, f"nothing in past sessions fits {one_line(query, 60)!r}"]
    for hit in hits:
        who = {"user": "you", "agent": "the agent"}.get(hit.who, hit.who)
        lines.append(f"{_day(hit.at)}  session {hit.session}, turn {hit.turn}, {one_line(who, 30)}:")
        lines.append(f"    {one_line(hit.excerpt)}")
    return [*lines, "resume a session with %agent resume ID; see a turn of it with %context --at TURN"]


def recall(doing: MemoryCommandRun) -> list[str]:
    """Show what would be recalled for a request, with scores and reasons."""
    if not doing.rest:
        raise UsageError("%memory recall QUERY: write the request to try")
    if why := skipped(doing.agent, doing.rest):
        return [f"nothing would be recalled: {why}"]
    found = explain(doing.agent, doing.rest, SHOWN)
    picked = [each for each in found if each.picked]
    near = [each for each in found if not each.picked]
    lines = ["nothing would be shown to the model"]
    if picked:
        by = "the model" if picked[0].by == "selector" else "ranking"
        lines = [f"would be shown to the model (chosen by {by}):", *map(_explained, picked)]
    return [*lines, "comes close:", *map(_explained, near)] if near else lines


def _explained(each: Explained) -> str:
    one = each.recalled
    told = one_line(one.description, WIDTH)
    return f"  {one.score:5.2f}  {one_line(one.path)}  ({one_line(one.why, 80)})  {told}"


def history(doing: MemoryCommandRun) -> list[str]:
    """List the earlier versions of a memory, newest first; with a revision, show that version."""
    given, revision = parted(doing.rest)
    place = doing.once(given)
    store = doing.access.store(place.scope)
    if revision:
        return [store.version(place.name, revision).text]
    name, versions = f"{place.scope}/{place.name}", store.versions(place.name)
    if not versions:
        return [f"{one_line(name)} has no earlier version"]
    lines, moment = [f"earlier versions of {one_line(name)}, newest first:"], datetime.fromtimestamp
    lines += [
        f"  {version.revision}  until {moment(version.time):%Y-%m-%d %H:%M:%S}  {version.size:>7,} bytes"
        f"  then {version.change} by {one_line(version.by, 20)}"
        for version in versions
    ]
    return [*lines, f"%memory history {name} REV shows one, %memory restore {name} REV restores it"]


def doctor_lines(memories: MemoryStores, *, mend: bool) -> list[str]:
    """What is wrong with index and headers, and what was mended."""
    lines: list[str] = []
    for scope in SCOPES:
        try:
            store = memories.store(scope)
        except AgentError as problem:
            lines.append(f"{scope}: {problem}")
            continue
        if not store.folder.is_dir():
            continue
        mended = set(map(_found, store.index.mend())) if mend else set()
        left = [row for row in map(_found, store.index.doctor()) if row not in mended]
        lines += [f"{scope}: fixed: {row}" for row in sorted(mended)] + [f"{scope}: {row}" for row in left]
        hint = [row for row in left if "header" in row]
        if hint:
            lines.append(f"{scope}: fix the frontmatter with %memory edit NAME")
    return lines or ["all is well: every memory has its line in the index and frontmatter that can be read"]


def _found(finding: IndexFinding) -> str:
    place = f" (line {finding.line})" if finding.line else ""
    told = finding.text if finding.name in finding.text else f"{finding.name}: {finding.text}"
    return one_line(f"{finding.kind}: {told}{place}")


def stats(doing: MemoryCommandRun) -> list[str]:
    """Count the memories by type; show what recall and extraction did."""
    lines: list[str] = []
    for scope in SCOPES:
        try:
            listed = doing.access.listed(scope)
        except AgentError as problem:
            lines.append(f"{scope}: {problem}")
            continue
        kinds = Counter(memory.kind or "no type" for memory in listed)
        sources = Counter(memory.source_words or "not known" for memory in listed)
        told = "; ".join(
            ", ".join(f"{count} {what}" for what, count in counts.most_common()) for counts in (kinds, sources)
        )
        lines.append(
            f"{scope}: {_count(len(listed), 'memory', 'memories')}, {sum(memory.size for memory in listed):,} bytes"
            + (f": {told}" if listed else "")
        )
    session = doing.agent.session
    if session is None:
        return [*lines, "no session in this kernel yet"]
    events = list(session.journal.read())
    shown = [event for event in events if isinstance(event, MemorySurfaced)]
    saved = Counter(event.by for event in events if isinstance(event, MemorySaved))
    forks = [event for event in events if isinstance(event, ForkEnded)]
    runs = [fork for fork in forks if fork.purpose == PURPOSE]
    shared = sum(fork.also == PURPOSE for fork in forks)  # they went out with the notes, and are paid for there
    skipped = sum(bool(event.why) for event in events if isinstance(event, MemoryExtracted))
    recalled = sum(len(event.memories) for event in shown)
    lines.append(f"this session: recalled {recalled} in {_count(len(shown), 'turn', 'turns')}")
    if saved:
        lines.append("  saved: " + ", ".join(f"{count} by {one_line(by, 20)}" for by, count in saved.most_common()))
    if runs or skipped or shared:
        usage, costs = sum((run.usage for run in runs), Usage()), [run.cost for run in runs]
        cost = "price not known" if None in costs else f"${sum(cost or 0.0 for cost in costs):.4f}"
        failed = sum(run.status in ("failed", "refused", "stopped") for run in runs)
        lines.append(
            f"  extraction: {_count(len(runs), 'run', 'runs')} ({failed} failed, {skipped} not needed"
            f"{f', {shared} more with the notes' if shared else ''}), "
            f"{_count(sum(run.requests for run in runs), 'model call', 'model calls')}, "
            f"{_count(saved[PURPOSE], 'memory', 'memories')} saved; "
            f"tokens: {usage.input:,} input, {usage.cache_read:,} read from cache, {usage.cache_write:,} written to it"
            f", {usage.output:,} output; {sum(run.seconds for run in runs):.1f} s, {cost}"
        )
    return lines


def path(doing: MemoryCommandRun) -> list[str]:
    """Show where the memories are."""
    lines: list[str] = []
    for scope in SCOPES:
        try:
            folder = doing.memories.any_store(scope).folder
        except MemoryRefused as problem:
            lines.append(f"{scope}: {problem}")
            continue
        new = "" if folder.is_dir() else " (made with the first memory)"
        lines.append(f"{scope}: {folder}{new}")
    if doing.memories.settings.memory_dir:
        lines.append("the project's is set by IPYAGENT_MEMORY_DIR or c.IPyAgent.memory_dir")
    return lines


def _count(number: int, one: str, many: str) -> str:
    return f"{number:,} {one if number == 1 else many}"


def _day(moment: float) -> str:
    return datetime.fromtimestamp(moment).strftime("%Y-%m-%d")
