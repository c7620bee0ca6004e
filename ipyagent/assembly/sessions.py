"""Which session a notebook is in: begun, taken up again, forked, let go.

A notebook's last session is taken up by itself; stored state of a folder that this user does not
trust is not read; a session that another kernel holds is forked, never shared.
"""

from __future__ import annotations

import re
import sys
import uuid
from collections.abc import Callable, Container, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ipyagent.assembly.settings import at_exit, named_model
from ipyagent.config import IPyAgent
from ipyagent.errors import JournalError, TrustError, UsageError
from ipyagent.journal.events import KernelStarted, SessionStarted, UserMessage
from ipyagent.journal.journal import TRANSCRIPT, new_session_id, read_events
from ipyagent.locks import why_no_locks
from ipyagent.loop.hooks import AT_EXIT, hooks
from ipyagent.loop.session import Session
from ipyagent.loop.session_state import Folded, TurnRecord
from ipyagent.project import Project
from ipyagent.trust import SESSION, signature
from ipyagent.version import __version__

if TYPE_CHECKING:
    from ipyagent.parts import Part

LABEL = re.compile(r"[\w.-]{1,40}")
"""What a branch of a conversation may be called."""
MOST_SEARCHED = 30
"""Stored sessions that are looked through for a request."""
SHOWN_NAMES = 8
SHOWN_PROBLEMS = 5
ASIDE = "-aside"
"""Ends the id of a throw-away session, which is never taken up unless named."""


class Sessions:
    """The sessions of one kernel in one project; `current` is the one that requests go to.

    `notice` takes lines for the user, `namespace` tells which variables exist now; `keepers` may go on with a session
    that is let go of, `folded` are the states that are kept of each.
    """

    def __init__(
        self,
        project: Project,
        settings: IPyAgent,
        *,
        namespace: Container[str],
        notice: Callable[[str], None],
        keepers: Iterable[Part] = (),
        folded: Iterable[type[Folded]] = (),
    ) -> None:
        self.project = project
        self.notebook: Path | None = None
        self.current: Session | None = None
        self.into: Path | None = None
        """Where new sessions are kept; None: with the project's others."""
        self.told_trust = False
        """Whether the user was told that this folder is not trusted."""
        self._settings = settings
        self._keepers, self._folded = tuple(keepers), tuple(folded)
        self._namespace = namespace
        self._notice = notice
        self._stamp = uuid.uuid4().hex[:12]
        self._looked = self._told_places = False
        self._resumed_at = 0
        """The newest event of earlier kernels in the current session; 0: there is none."""
        self._replayed: dict[int, None] = {}
        """First events of the turns that were shown or run again in this kernel, the newest last."""
        at_exit(self, Sessions.end_at_exit)

    def stored(self) -> list[Path]:
        """Folders of the project's sessions, newest first."""
        return list(self.project.session_folders())

    @property
    def fresh(self) -> bool:
        """Whether the next request begins a new session, for certain."""
        return self.current is None and self._looked

    def take_up(self, cell: str = "") -> Session | None:
        """The current session; else the notebook's last one, tried once; else None. `cell`, the id
        of the cell that asks, tells a renamed notebook."""
        if self.current is None and not self._looked:
            self._looked = True
            if (folder := self._last_of_notebook(cell)) is not None:
                self._open_first([folder])
        return self.current

    def ensure(self, cell: str = "") -> Session:
        """The current session; else the notebook's last one, taken up; else a new one."""
        if self.take_up(cell) is None:
            if self.project.make():
                self._notice(self.project.place_line())
            self.current = Session.create(
                self.into or self.project.sessions, self.started(), folded=self._folded
            )
            self.current.record(KernelStarted(stamp=self._stamp, python=sys.version.split()[0]))
        self._tell_places()
        assert self.current is not None
        return self.current

    def _tell_places(self) -> None:
        """Once: that what this kernel is told will not be kept, or is kept where the user may not look for it."""
        if not self._told_places:
            self._told_places = True
            if line := self.project.home_line():
                self._notice(line)
            for folder in (self.project.state, self.project.user):
                if line := why_no_locks(folder):
                    self._notice(line)
                    break
            if self.project.elsewhere and self.project.writable:
                self._notice(self.project.place_line())

    def resume(self, name: str = "") -> Session:
        """Take up a stored session: the one whose label is `name`, else whose id begins with it; without
        a name the current one if there is one, else the newest.

        Raises UsageError when there is none, TrustError in a folder that is not trusted yet.
        """
        if self.current is not None and not name:
            self._notice(f"already in session {self.current.journal.session}; %agent sessions lists the others")
            return self.current
        mine = self.current.journal.session if self.current is not None else ""
        if name and self.current is not None and _first(self.current.journal.folder).label == name:
            self._notice(f"already in session {mine} ({name})")
            return self.current
        stored = [folder for folder in self.stored() if folder.name != mine]
        folders = [folder for folder in stored if name and _first(folder).label == name]
        folders = folders or [folder for folder in stored if folder.name.startswith(name)]
        if not name:
            folders = [folder for folder in folders if not folder.name.endswith(ASIDE)]
        if not folders:
            for empty in self.project.empty_sessions():
                if name and empty.name.startswith(name):
                    raise UsageError(f"{empty_line(empty)}: start a new session with %agent new")
            which, then = (f" {name!r}", "%agent sessions lists them") if name else ("", "%agent new begins one")
            raise UsageError(f"no other session{which} here; {then}")
        return self._open(folders[0])

    def replay(self, text: str, cell: str, *, again: bool = False) -> TurnRecord | None:
        """The finished turn that this cell asked for last, in an earlier kernel, each once a kernel; None when the cell
        is to be asked. `again`: also one of this kernel, or that was replayed already, and where the front-end
        tells no cells (`cell` is "") the next one in order that asked for this `text`."""
        if self.current is None or not (cell or again):
            return None
        standing = [turn for turn in self.current.history.turns if not turn.out]
        found: list[TurnRecord] = []
        for each in [cell] if cell else dict.fromkeys(turn.cell for turn in standing):
            found += _newest(standing, text, each)
        left = [turn for turn in sorted(found, key=lambda turn: turn.first) if turn.first not in self._replayed]
        after = [turn for turn in left if turn.first > next(reversed(self._replayed), 0)]
        repeated = found[-1:] if again else []
        for turn in after + left + repeated:
            if again or turn.last <= self._resumed_at:
                self._replayed[turn.first] = None
                return turn
        return None

    def knows(self, cell: str) -> bool:
        """Whether this session has an answer for the cell, whatever became of it."""
        return self.current is not None and any(turn.cell == cell for turn in self.current.history.turns)

    def take_up_asked(self, text: str) -> Session | None:
        """The current session; else the newest stored one in which `text` was asked: where no front-end tells which
        notebook this is. Raises UsageError when it was asked in several that are there."""
        if self.current is None and not self._looked:
            asked: dict[Path, str] = {}
            for folder in list(self.project.session_folders())[:MOST_SEARCHED]:
                name = "" if folder.name.endswith(ASIDE) else _first(folder).notebook
                name = name if name and (self.project.root / name).exists() else ""
                known = asked and (not name or name in asked.values())
                if not known and not folder.name.endswith(ASIDE) and self._asked_in(folder, text=text):
                    asked[folder] = name
            names = sorted(filter(None, asked.values()))
            if len(names) > 1:
                raise UsageError(which_notebook(names))
            self._looked = True
            self._open_first(asked)
        return self.current

    def _open_first(self, folders: Iterable[Path]) -> None:
        """Take up the first of these sessions that can be; why one cannot is said."""
        for folder in folders:
            try:
                self._open(folder)
            except (TrustError, JournalError) as problem:
                self.told_trust = isinstance(problem, TrustError)
                self._notice(str(problem))
            else:
                return

    def fork(self, name: str = "", *, label: str = "") -> Session:
        """Go on in a copy of the current session, or of the stored one of that id; the original is unchanged.
        `label` names the copy, see `resume`. Raises UsageError, TrustError, JournalError."""
        self._check_label(label)
        mine = self.current.journal.session if self.current is not None else ""
        if not name and self.current is None:
            raise UsageError("no session to fork yet: start one with a %%agent cell")
        source = self.project.session_folder(name or mine)
        if name and name != mine:
            if source not in self.stored():
                raise UsageError(f"no session {name!r} here; %agent sessions lists them")
            if not self._may_read(source):
                raise TrustError(self.project.untrusted_line())
        elif self.current is not None:
            source = self.current.journal.folder
        session, _ = Session.fork(
            source, self.project.sessions, self.started(source.name, label), folded=self._folded
        )
        if source.name != mine:
            session.record(KernelStarted(stamp=self._stamp, python=sys.version.split()[0], resumed=True))
        self.leave()
        self.current = session
        return session

    def _check_label(self, label: str) -> None:
        if label and not LABEL.fullmatch(label):
            raise UsageError(f"a label must be one word of letters, digits, '.', '-' and '_', not {label[:60]!r}")
        other = next((folder for folder in self.stored() if label and _first(folder).label == label), None)
        if other is not None:
            raise UsageError(f"session {other.name} is called {label!r} already; choose another label")

    def aside(self, *, with_history: bool) -> Session:
        """A throw-away session beside the current one, a copy of it or empty."""
        session = self.ensure()
        started = SessionStarted(
            session=new_session_id() + ASIDE, version=__version__, forked_from=session.journal.session
        )
        if with_history:
            return Session.fork(session.journal.folder, self.project.sessions, started, folded=self._folded)[0]
        return Session.create(self.project.sessions, started, folded=self._folded)

    def leave(self) -> None:
        """Let go of the current session; it stays on disk and the next request begins a new one."""
        self._looked, self._resumed_at, self._replayed = True, 0, {}
        if self.current is not None:
            hooks.call_now("session_end", {"session": self.current.journal.session}, self._notice)
            held = [keeper.session_closed(self.current) for keeper in self._keepers]  # each is told
            if not any(held):
                self.current.close()
            self.current = None

    def end_at_exit(self) -> None:
        """The process ends: the user's `session_end` hooks are called, for a short time; the rest closes itself."""
        if self.current is not None:
            hooks.call_now("session_end", {"session": self.current.journal.session}, _say_at_exit, most=AT_EXIT)

    def started(self, forked_from: str = "", label: str = "") -> SessionStarted:
        """The first event of a new session of this notebook."""
        notebook = self.project.relative(self.notebook) if self.notebook is not None else ""
        name = new_session_id()
        try:
            signed = signature(self.project.user, SESSION, name.encode())
        except OSError:  # then its words are no evidence in another session
            signed = ""
        return SessionStarted(
            session=name,
            version=__version__,
            notebook=notebook,
            forked_from=forked_from,
            label=label,
            signed=signed,
        )

    def _last_of_notebook(self, cell: str) -> Path | None:
        if self.notebook is None:
            return None
        wanted = self.project.relative(self.notebook)
        left: list[Path] = []  # sessions of notebooks that are no longer there
        for folder in self.project.session_folders():
            name = _first(folder).notebook
            if name and name == wanted:
                return folder
            if name and not (self.project.root / name).exists():
                left.append(folder)
        return next((folder for folder in left if cell and self._asked_in(folder, cell)), None)

    def _asked_in(self, folder: Path, cell: str = "", text: str = "") -> bool:
        """Whether this very cell was answered in a session (its notebook was renamed, not copied), or this asked."""
        try:
            return any(
                isinstance(event, UserMessage) and (event.text == text if text else event.cell == cell)
                for event in read_events(folder / TRANSCRIPT)
            )
        except JournalError:
            return False  # %agent doctor tells

    def _open(self, folder: Path) -> Session:
        if not self._may_read(folder):
            raise TrustError(self.project.untrusted_line(f", then %agent resume {folder.name}"))
        for keeper in self._keepers:
            keeper.release(folder)
        # a session goes on where it is, but in a project that may not be written
        writable = folder.parent == self.project.sessions or self.project.writable
        why = "" if writable else f"is in {folder.parent}, which cannot be written"
        if not why:
            try:
                session, problems = Session.open(folder, folded=self._folded)
            except JournalError as problem:
                if "another kernel" not in str(problem):
                    raise
                why = "is open in another kernel"
        if why:
            self.project.make()
            session, problems = Session.fork(
                folder, self.project.sessions, self.started(folder.name), folded=self._folded
            )
            self._notice(f"session {folder.name} {why}: continuing in a copy of it")
        self.leave()
        for found in problems[:SHOWN_PROBLEMS]:
            self._notice(str(found))
        if len(problems) > SHOWN_PROBLEMS:
            self._notice(f"and {len(problems) - SHOWN_PROBLEMS} more lines like these; %agent doctor counts them")
        if session.history.stamp != self._stamp:
            session.record(KernelStarted(stamp=self._stamp, python=sys.version.split()[0], resumed=True))
            self._resumed_at = session.journal.last
        named = "" if named_model(self._settings) else session.history.named
        if named:
            self._settings.model = named
        self._notice(self._resumed(session) + (f"; using model: {named}, as you chose there" if named else ""))
        self.current = session
        return session

    def _may_read(self, folder: Path) -> bool:
        return bool(self.project.trusted or self._settings.trust_all or self.project.owns(folder))

    def _resumed(self, session: Session) -> str:
        """One line: which session, how long, what is gone."""
        turns = len(session.history.turns)
        line = f"resumed session {session.journal.session}, {turns} turn{'' if turns == 1 else 's'}"
        gone = [name for name in session.history.variables if name not in self._namespace]
        if gone:
            more = f" and {len(gone) - SHOWN_NAMES} more" if len(gone) > SHOWN_NAMES else ""
            line += f"; variables of the earlier kernel are gone: {', '.join(gone[:SHOWN_NAMES])}{more}"
        return line


def _newest(standing: Sequence[TurnRecord], text: str, cell: str) -> list[TurnRecord]:
    """The finished turn with this text among those that the cell asked for when it ran last (several, where it asks in
    a loop); of cells that no front-end told, all turns with it."""
    own = [number for number, turn in enumerate(standing) if turn.cell == cell]
    newest: dict[str, TurnRecord] = {}
    for at, number in reversed(list(enumerate(own))):
        newest.setdefault(standing[number].text, standing[number])
        if at and own[at - 1] != number - 1:
            break
    found = [newest[text]] if text in newest else []
    if not cell:
        found = [turn for turn in standing if not turn.cell and turn.text == text]
    return [turn for turn in found if turn.status == "finished"]


def which_notebook(names: Sequence[str]) -> str:
    """What to say when several notebooks have a cell and no front-end tells which of them asks."""
    return (
        f"{len(names)} notebooks here contain this cell ({', '.join(names[:SHOWN_NAMES])}), and it is not known "
        "which one is running; set JPY_SESSION_NAME to its path before the kernel starts, or reword the cell"
    )


def empty_line(folder: Path) -> str:
    """What there is to say of a session without a byte."""
    return f"session {folder.name} is empty: its transcript has 0 bytes, as after a full disk or a crash"


def _first(folder: Path) -> SessionStarted:
    """How a stored session begins; an empty beginning for what cannot be read."""
    try:
        first = next(read_events(folder / TRANSCRIPT), None)
    except JournalError:
        first = None  # %agent doctor tells
    return first if isinstance(first, SessionStarted) else SessionStarted(session="", version="")


def _say_at_exit(line: str) -> None:
    sys.stderr.write(f"ipyagent: {line}\n")  # nobody takes a notice any more
