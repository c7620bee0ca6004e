"""What one piece of work may do with the memories: every write is checked, marked with where it comes from,
kept in the history, and journalled.

The model sees one tree: `/memories/project` and `/memories/user`. Secrets are refused; what tools gave
never becomes a `user` or `feedback` memory; a conclusion says that it is one.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterable, Mapping
from contextvars import ContextVar
from typing import Any, NamedTuple, TypeVar

from msgspec.structs import replace

from ipyagent.errors import MemoryRefused
from ipyagent.headers import Headed, read_headed, write_headed
from ipyagent.journal.events import Event, MemorySaved
from ipyagent.memory.files import Store, Written, check_size
from ipyagent.memory.guard import STOP, STOPPED
from ipyagent.memory.memories import Memories as Memories
from ipyagent.memory.names import INDEX, ROOT, SUFFIX, checked_name, loose_path, split_path
from ipyagent.memory.names import SCOPES as SCOPES
from ipyagent.memory.provenance import (
    INFERRED,
    PERSONAL,
    RECORDED,
    Ground,
    Origin,
    Records,
    is_hedged,
    objection,
    worst,
)
from ipyagent.memory.scan import Memory
from ipyagent.memory.secrets import find_secrets, refusal

KINDS = ("user", "feedback", "project", "reference")
T = TypeVar("T")
_LATER: ContextVar[list[Callable[[], object]] | None] = ContextVar("ipyagent_memory_later", default=None)
"""What work beside the loop leaves for the loop to do when it has ended."""


class Address(NamedTuple):
    """A place in the tree: `scope` "" for `/memories` itself, `name` "" for a scope's folder; the name of a folder
    in it ends in "/"."""

    scope: str
    name: str

    @property
    def path(self) -> str:
        return "/".join(part for part in (ROOT, self.scope, self.name.rstrip("/")) if part)

    @property
    def is_folder(self) -> bool:
        return not self.name or self.name.endswith("/")


def address(raw: str) -> Address:
    """The place that a path names; what does not end in ".md" is a folder. Raises MemoryRefused for anything
    that is not inside the tree, or would not be on another file system."""
    return Address(*split_path(raw if raw.endswith((SUFFIX, "/")) else f"{raw}/"))


class Saved(NamedTuple):
    """A write that was made; `event` as it was journalled (not when nothing changed). `remark` is what the model
    should know of it besides ("" for nothing)."""

    event: MemorySaved
    memory: Memory
    remark: str


class MemoryAccess:
    """The memories as one piece of work may touch them.

    `by` is who works: "agent", "extraction", "dream" or "user"; `record` journals what was saved; `events`
    gives the session's events, to tell what the user said from what tools gave (None: no session, and all
    is the user's own), or `ground` has taken them in already; `notice` takes a line for the user.
    """

    def __init__(
        self,
        memories: Memories,
        *,
        by: str,
        record: Callable[[MemorySaved], object],
        events: Callable[[], Iterable[Event]] | None = None,
        session: str = "",
        turn: Callable[[], int] = lambda: 0,
        notice: Callable[[str], object] = lambda line: None,
        stores: Mapping[str, Store] | None = None,
        ground: Ground | None = None,
    ) -> None:
        self.memories = memories
        self.by = by
        self.session = session
        self._record = record
        self._events = events
        self._turn = turn
        self._notice = notice
        self._given = stores
        self._ground = ground or Ground()
        self._labels: Ground | None = None
        self._own = events is None and ground is None

    def __repr__(self) -> str:
        return f"<MemoryAccess by {self.by} to {self.memories!r}>"

    def on_behalf(
        self,
        by: str,
        *,
        record: Callable[[MemorySaved], object] | None = None,
        stores: Mapping[str, Store] | None = None,
    ) -> MemoryAccess:
        """The same for another worker: `record` if it journals in another way, `stores` if it works on copies."""
        return MemoryAccess(
            self.memories,
            by=by,
            record=record or self._record,
            events=self._events,
            session=self.session,
            turn=self._turn,
            notice=self._notice,
            stores=stores if stores is not None else self._given,
            ground=self._ground,
        )

    async def ready(self) -> None:
        """Before a write: what was said and told since the last one is looked at, beside the loop."""
        await asyncio.to_thread(self._ground.settle)

    def tell(self, *texts: str) -> None:
        """This reached the model otherwise than by the session's events, and not from the user."""
        self._ground.tell(*texts)

    def take(self, blocks: Iterable[dict[str, Any]]) -> None:
        """The same of a tool's result."""
        self._ground.take(blocks)

    def say(self, *texts: str) -> None:
        """These are the user's own words, though no event of the session says so: they were checked when they
        were saved."""
        self._ground.say(*texts)

    def keep_labels(self, *texts: str) -> None:
        """This work rewords memories: one that is neither the user's own words nor quoted keeps what it says of
        where it comes from, as long as what it gains is of these texts, of memories that are not quoted."""
        self._labels = Ground()
        self._labels.say(*texts)

    async def beside(self, work: Callable[[], T]) -> T:
        """Work on memories that holds nothing else up: in a thread, what it saved is journalled here when it ends.

        A cancellation keeps it from the next write; a write that has begun comes to its end, and is journalled and
        answered before the cancellation goes on.
        """
        stop, later = threading.Event(), list[Callable[[], object]]()

        def aside() -> T:
            STOP.set(stop)
            _LATER.set(later)
            return work()

        waiting = asyncio.ensure_future(asyncio.to_thread(aside))
        while not waiting.done():
            try:
                await asyncio.wait((waiting,))
            except asyncio.CancelledError:
                stop.set()
        for left in later:
            left()
        if stop.is_set():
            problem = waiting.exception()
            unwritten = isinstance(problem, MemoryRefused) and problem.reason == STOPPED and not later
            if unwritten:
                raise asyncio.CancelledError
            task = asyncio.current_task()
            if task is not None:  # delivered again once the result is journalled
                task.uncancel()
                task.cancel()
        return waiting.result()

    # ------------------------------------------------------------------ reading

    def find(self, raw: str, *, new: bool = False, kind: str = "") -> Address:
        """The place that a path means, also without scope or ".md": what is there, else, for a file that is to be
        made (`new`), the user's folder for a memory of type "user" and the project's for all others. Raises
        MemoryRefused."""
        scope, name = loose_path(raw)
        if not name:
            return Address(scope, name)
        scopes = [scope] if scope else [each for each in SCOPES if self._usable(each)] or ["project"]
        there = [Address(each, form) for each in scopes for form in self._forms(each, name, new=new)]
        if len(there) > 1:
            told = f"{raw!r} may be {' or '.join(place.path for place in there)}: give the whole path"
            raise MemoryRefused(told, reason="name")
        if there:
            return there[0]
        scope = scope or ("user" if new and kind == "user" else "project")
        return address(f"{ROOT}/{scope}/{name}" if name.endswith((SUFFIX, "/")) else f"{ROOT}/{scope}/{name}{SUFFIX}")

    def renamed(self, place: Address, raw: str) -> Address:
        """The place that a path means as the new one of `place`: in the same scope and of the same kind, unless it
        says otherwise. Raises MemoryRefused."""
        scope, name = loose_path(raw)
        scope = scope or (place.scope if name else "")
        if name and not name.endswith((SUFFIX, "/")):
            name += "/" if place.is_folder or self.listed(scope, f"{name}/") else SUFFIX
        return Address(scope, name)

    def _usable(self, scope: str) -> bool:
        try:
            self.store(scope)
        except MemoryRefused:
            return False
        return True

    def _forms(self, scope: str, name: str, *, new: bool) -> list[str]:
        """The name in a scope that a name without ending stands for, if it is there: a folder, else a file; the other
        way round for a file that is to be written."""
        file = name if name.endswith(SUFFIX) else "" if name.endswith("/") else name + SUFFIX
        folder = "" if name.endswith(SUFFIX) else f"{name.rstrip('/')}/"
        there = [folder] if folder and self.listed(scope, folder) else []
        if file and (new or not there) and self.store(scope).exists(file):
            return [file]
        return there

    def store(self, scope: str) -> Store:
        """The store of a scope. Raises MemoryRefused."""
        if self._given is not None and self.memories.settings.memory:
            if scope not in self._given:
                raise MemoryRefused(f"{ROOT}/{scope} is not part of this work: use the other folder", reason="place")
            return self._given[scope]
        return self.memories.any_store(scope) if self.by == "user" else self.memories.store(scope)

    def listed(self, scope: str, folder: str = "") -> list[Memory]:
        """The memories of a scope, newest first; only those in `folder` ("name/") if one is given."""
        return [memory for memory in self.store(scope).list() if memory.name.startswith(folder)]

    def read(self, place: Address) -> str | None:
        """The text of a memory or of an index; None when there is none. Raises MemoryRefused."""
        store = self.store(place.scope)
        if place.is_folder:
            return None
        try:
            text = store.read(place.name).text
        except MemoryRefused as problem:
            if problem.reason == "missing":
                return None
            raise
        self.tell(text)  # where it was the user's own words, `_personal` knows
        return text

    # ------------------------------------------------------------------ writing

    def create(self, place: Address, text: str) -> Saved:
        """Save a new memory. Raises MemoryRefused ("exists", "name", "content", …)."""
        name = self._writable(place)
        made, remark = self._checked(place, "", text)
        self._announce(place.scope)
        return self._journal(self.store(place.scope).write(name, made, expected=None, by=self.by), remark=remark)

    def change(self, place: Address, edit: Callable[[str], str]) -> Saved:
        """Change a memory; `edit` gets its text as it is by then. Raises MemoryRefused and what
        `edit` raises."""
        name, remarks = self._writable(place), [""]
        self._grounded()  # before the lock is taken

        def checked(before: str) -> str:
            made, remarks[0] = self._checked(place, before, edit(before))
            return made

        return self._journal(self.store(place.scope).change(name, checked, by=self.by), remark=remarks[0])

    def delete(self, place: Address) -> Saved:
        """Delete a memory; its history stays. Raises MemoryRefused."""
        return self._journal(self.store(place.scope).delete(self._writable(place), by=self.by))

    def rename(self, place: Address, to: Address) -> Saved:
        """Give a memory another name, in the same scope or in the other. Raises MemoryRefused."""
        old, new = self._writable(place), self._writable(to)
        if place.scope == to.scope:
            return self._journal(self.store(place.scope).rename(old, new, by=self.by), old=place.path)
        text = self.store(place.scope).read(old).text
        if found := find_secrets(text):
            raise MemoryRefused(refusal(found), reason="content")
        fields = read_headed(text.encode()).fields
        checked = _word(fields.get("type")) in PERSONAL or _word(fields.get("source")) == "said"
        if to.scope == "user" and self.by != "user" and not checked:
            told = f"not moved: {place.path} is not the user's own words; the user may with %memory rename"
            raise MemoryRefused(told, reason="content")
        self._announce(to.scope)
        made = self.store(to.scope).write(new, text, expected=None, by=self.by)
        gone = self.store(place.scope).delete(old, by=self.by)
        return self._journal(replace(made, change="renamed", revision=gone.revision), old=place.path)

    def restore(self, place: Address, revision: str) -> Saved:
        """Put an earlier version back. Raises MemoryRefused."""
        return self._journal(self.store(place.scope).restore(self._writable(place), revision, by=self.by))

    def undo(self, saved: MemorySaved) -> Saved:
        """Take back what an event says was saved. Raises MemoryRefused."""
        place = address(saved.path)
        if saved.change == "renamed":
            return self.rename(place, address(saved.old))
        return self.restore(place, saved.revision) if saved.revision else self.delete(place)

    # ------------------------------------------------------------------ the checks

    def _writable(self, place: Address) -> str:
        """The name of a memory that may be written; the place of a refusal is never looked at."""
        if place.is_folder:
            raise MemoryRefused(
                f"{place.path} names a folder; a memory is a file in {ROOT}/project or {ROOT}/user that ends in .md",
                reason="name",
            )
        name = checked_name(place.name)
        if name == INDEX:
            why = f"{INDEX} is kept by ipyagent: it follows the name and description of each memory"
            raise MemoryRefused(why, reason="index")
        if found := find_secrets(name):
            raise MemoryRefused(refusal(found).replace("it holds", "its name holds", 1), reason="content")
        return name

    def _announce(self, scope: str) -> None:
        if self._given is None and (line := self.memories.first_line(scope)):
            later = _LATER.get()
            if later is not None:
                later.append(lambda: self._notice(line))
            else:
                self._notice(line)

    def _checked(self, place: Address, before: str, after: str) -> tuple[str, str]:
        """The text to be kept, marked with where it comes from, and a remark. Raises MemoryRefused."""
        check_size(place.path, after)
        if found := find_secrets(after, known=before):
            raise MemoryRefused(refusal(found), reason="content")
        head, old = read_headed(after.encode()), read_headed(before.encode())
        kind = _word(head.fields.get("type")).casefold()  # however it is written, it is read as one by a model
        if self.by == "user" or self._own:
            return self._marked(head.fields, head.body, "said", keep=False), ""
        personal, was = kind in PERSONAL, _word(old.fields.get("type"))
        kept = [_told(old)] if was in PERSONAL or not personal else []
        ground = self._grounded()
        origin = _origin(ground, head, kept)
        if personal and origin.source == "quoted":
            origin = _origin(ground, head, [*kept, *self._personal()])
        # what lies in the user's own folder goes along into every project
        if why := objection(kind if personal or place.scope != "user" else "user", origin, ground):
            raise MemoryRefused(why, reason="content")
        was_source = _word(old.fields.get("source"))
        label = [_word(old.fields.get("name"))]
        if was_source in ("inferred", "quoted") and _origin(ground, _without(head), label).source == "said":
            return self._marked(head.fields, _without(head).body, "said", keep=False), ""  # the user says it now
        rewords = self._labels is not None and before and not personal and was_source != "quoted"
        if rewords and self._labels is not None and _origin(self._labels, head, kept).source != "quoted":
            return self._marked(head.fields, head.body, was_source, keep=False), ""
        source = origin.source if not before or kept == [] else worst(origin.source, _word(old.fields.get("source")))
        return self._marked(head.fields, head.body, source, keep=True), _remark(origin, source)

    def _grounded(self) -> Ground:
        for event in self._events() if self._events is not None else ():
            self._ground.apply(event)
            if self._labels is not None:
                self._labels.apply(event)
        return self._ground

    def _personal(self) -> list[str]:
        """The texts of all memories of the user's own words: they were checked when they were saved."""
        texts: list[str] = []
        for scope in SCOPES:
            try:
                store = self.store(scope)
                own = [memory.name for memory in store.list() if memory.kind in PERSONAL]
                texts += [_told(read_headed(store.read(name).text.encode())) for name in own]
            except MemoryRefused:
                continue  # not to be read now: then its sentences do not count as the user's
        return texts

    def _marked(self, fields: Mapping[str, Any], body: str, source: str, *, keep: bool) -> str:
        """The text with its source, session and turn in the frontmatter; a conclusion says that it is one."""
        if keep and source == "inferred" and not is_hedged(body):
            body = f"{body.rstrip()}\n\n{INFERRED}\n"
        marks: dict[str, Any] = {"source": source} if source else {}
        if self.session:
            marks |= {"session": self.session, "turn": self._turn()}
        marked = {key: value for key, value in {**fields, **marks}.items() if key != RECORDED}
        if source == "said":
            marked[RECORDED] = Records(self.memories.project.user).made(marked, body)
        return write_headed(marked, body)

    def _journal(self, written: Written, *, old: str = "", remark: str = "") -> Saved:
        change = "changed" if written.change == "merged" else written.change
        event = MemorySaved(path=written.memory.path, change=change, by=self.by, old=old, revision=written.revision)
        if change == "unchanged":
            return Saved(event, written.memory, remark)
        later = _LATER.get()
        if later is not None:
            later.append(lambda: self._record(event))
            return Saved(event, written.memory, remark)
        made = self._record(event)
        return Saved(made if isinstance(made, MemorySaved) else event, written.memory, remark)


def _word(value: object) -> str:
    return value.strip() if isinstance(value, str) else ""


def _told(headed: Headed) -> str:
    """What a memory says: name, description and body."""
    return "\n".join((_word(headed.fields.get("name")), _word(headed.fields.get("description")), headed.body))


def _without(headed: Headed) -> Headed:
    """The same without our word that it is a conclusion."""
    return replace(headed, body=headed.body.replace(INFERRED, "").rstrip() + "\n")


def _origin(ground: Ground, headed: Headed, kept: list[str]) -> Origin:
    """Where a memory comes from. A name is a label of the agent's own; it counts when it is quoted."""
    name = _word(headed.fields.get("name"))
    if " " in name and (origin := ground.origin(name, kept=kept)).source == "quoted":
        return origin
    return ground.origin(f"{_word(headed.fields.get('description'))}\n{headed.body}", kept=kept)


def _remark(origin: Origin, source: str) -> str:
    if source == "quoted":
        return "It is marked as quoted: it came from what tools returned, not from the user."
    if source == "inferred":
        return "It is marked as inferred: the user did not say so in these words."
    return ""

