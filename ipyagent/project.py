"""Where things are: the project's root, the folders beside the notebook, the user's own folder.

Nothing is made before the first write. State found in a folder that this user has not trusted is
not loaded. Paths inside a project are relative, so moving it keeps everything. Of a project that this user may not
write, sessions and memories are kept in the user's own folder, from then on for good: `Project.state`.
"""

from __future__ import annotations

import errno
import json
import os
import shutil
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from ipyagent.errors import AgentError
from ipyagent.locks import Lock
from ipyagent.nofollow import FOLDER, is_file, make_private, names, opened, private_folder, status, write_atomically
from ipyagent.trust import carried, digest_of_mark, folders_down, mark_folder, read_small

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

TRUST = "trust.json"
DREAM = "-dream"
"""Ends the id of a session in which memories were tidied: it is in no list, nothing is learned of it."""
SHOWN_NAMES = 8
NEW, CHANGED = "is new since you trusted this project", "has changed since this project last used it"
MOST_NAMES = 40
"""Names of files that one line tells."""
MOST_BYTES = 2_000_000
"""Bytes of a file that are compared with what they were; no more of any is loaded."""
PROJECTS = "projects"
"""In the user's own folder: a folder for each project that could not be written."""
GITIGNORE = "sessions/\ncache/\nworktrees/\nagent-memory-local/\n*.local.*\n.consolidate-lock\n"


def user_folder(environ: Mapping[str, str] = os.environ) -> Path:
    """The user's own folder: `~/.ipyagent`, or IPYAGENT_HOME."""
    if given := environ.get("IPYAGENT_HOME"):
        return Path(given).expanduser().absolute()
    home = _home()
    if home is None:
        raise AgentError("this user has no home directory; set IPYAGENT_HOME to a folder that you own")
    return (home / FOLDER).absolute()


def home_variable(environ: Mapping[str, str] = os.environ) -> str:
    """What says where the user's own folder is, as a line names it: "HOME is /nonexistent"."""
    for name in ("IPYAGENT_HOME", "HOME"):
        if name in environ and (environ[name] or name == "HOME"):
            return f"{name} is {environ[name] or 'empty'}"
    return "HOME is not set"


def _may_write(folder: Path) -> bool:
    """Whether this user may make something in a folder, or make the folder."""
    if os.access(folder, os.W_OK | os.X_OK):
        return True
    there = next((place for place in (folder, *folder.parents) if os.path.lexists(place)), folder)
    return not there.is_dir() or os.access(there, os.W_OK | os.X_OK)  # a file in its place is another fault


def _home() -> Path | None:
    """The home directory; None for a user id without one (containers)."""
    try:
        return Path.home()
    except RuntimeError:
        return None


@lru_cache(maxsize=1)
def _account_home() -> Path | None:
    """The home directory that the system knows of this user, whatever HOME says; None where it knows none."""
    if sys.platform != "win32":
        import pwd

        with suppress(KeyError):
            return Path(pwd.getpwuid(os.getuid()).pw_dir)
    return None


def _is_users(folder: Path) -> bool:
    """Whether it is the user's own folder, which may lie above a project."""
    try:
        return folder.resolve() == user_folder().resolve()
    except AgentError:  # there is none
        return False


def find_root(folder: Path, notebook: Path | None = None) -> Path:
    """The project's root for a notebook in `folder`: the nearest ancestor with `.ipyagent/`, else
    the main worktree of its git repository, else the folder itself.

    The home directory, a file system's root and shared temporary folders are never a project, and
    the user's own folder is never a project's state: then it is the folder itself or, when that is
    such a place, a folder in it that is named after the notebook ("notebook" when unknown).
    """
    folder = folder.resolve()
    for candidate in (folder, *folder.parents):
        if (candidate / FOLDER).is_dir() and not is_shared(candidate) and not _is_users(candidate / FOLDER):
            return candidate
    root = _git_root(folder)
    if root is not None and not is_shared(root):
        return root
    if not is_shared(folder):
        return folder
    return folder / (notebook.stem if notebook is not None else "notebook")


def is_shared(folder: Path) -> bool:
    """Whether unrelated work meets there: a root, a home directory, a temporary folder."""
    return folder == Path(folder.anchor) or folder in _shared(tempfile.gettempdir(), _home())


@lru_cache(maxsize=8)
def _shared(temporary: str, home: Path | None) -> frozenset[Path]:
    shared = [Path(place) for place in (temporary, "/tmp", "/var/tmp", "/dev/shm", "/home", "/Users")]
    shared += [place for place in (home, _account_home()) if place is not None]
    return frozenset(place.resolve() for place in shared)


def _git_root(folder: Path) -> Path | None:
    """The main worktree's root, so that worktrees share memory; None outside a repository."""
    for candidate in (folder, *folder.parents):
        marker = candidate / ".git"
        if marker.is_dir():
            return candidate
        if marker.is_file():  # a linked worktree or a submodule: only git knows its main worktree
            try:
                environ = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
                done = subprocess.run(
                    ["git", "-C", str(candidate), "rev-parse", "--path-format=absolute", "--git-common-dir"],
                    capture_output=True,
                    text=True,
                    timeout=2,
                    check=False,
                    env=environ,
                )
            except (OSError, subprocess.TimeoutExpired):
                return candidate
            common = Path(done.stdout.strip())
            return common.parent if done.returncode == 0 and common.name == ".git" else candidate
    return None


def entry_points(group: str) -> tuple[EntryPoint, ...]:
    """What installed packages offer in a group, by name; read again when a package was installed or removed in a
    folder of `sys.path`."""
    return _entry_points(group, tuple((folder, _changed(folder or ".")) for folder in sys.path))


@lru_cache(maxsize=8)
def _entry_points(group: str, folders: tuple[tuple[str, int], ...]) -> tuple[EntryPoint, ...]:
    from importlib.metadata import entry_points  # 25 ms, and as much for each search among 200 packages

    return tuple(sorted(entry_points(group=group), key=lambda point: (point.name, point.value)))


def _changed(folder: str) -> int:
    try:
        return os.stat(folder).st_mtime_ns
    except (OSError, ValueError, TypeError):  # what stands there may be no path
        return 0


@dataclass(frozen=True)
class Project:
    """A project and the user's folder; every path of the product comes from here. `here` is the folder of
    the notebook, None when it is not known."""

    root: Path
    user: Path
    here: Path | None = None
    _unkept: dict[str, Any] = field(default_factory=dict, repr=False, compare=False)
    """What this process was told and could not note: the entry of trust, and why."""

    @cached_property
    def folder(self) -> Path:
        """What the project itself brings."""
        return self.root / FOLDER

    @property
    def state(self) -> Path:
        """Where sessions, memories and caches are kept: `folder`; for a project that may not be written, or might not
        be when its first session began, a folder of the user's own."""
        return self._own if self._own.is_dir() or not self.writable else self.folder

    @cached_property
    def _own(self) -> Path:
        return self.user / PROJECTS / f"{self.root.name}-{sha256(os.fsencode(self.root)).hexdigest()[:12]}"

    @property
    def elsewhere(self) -> bool:
        """Whether sessions and memories are kept in the user's own folder."""
        return self.state != self.folder

    @property
    def writable(self) -> bool:
        """Whether this user may keep sessions in the project itself."""
        return all(_may_write(place) for place in (self.folder, self.folder / "sessions", self.folder / "memory"))

    def owns(self, session: Path) -> bool:
        """Whether a session's folder lies in the user's own: nobody else has put it there."""
        return self.elsewhere and session.is_relative_to(self.state)

    @property
    def folders(self) -> tuple[Path, ...]:
        """From the root (of the worktree that the notebook is in) down to the notebook's folder."""
        return folders_down(self.root, self.here)

    @property
    def sessions(self) -> Path:
        return self.state / "sessions"

    @property
    def rules(self) -> Path:
        """Permission rules, all projects of this user in one file, never taken from a project."""
        return self.user / "rules.json"

    @property
    def spend(self) -> Path:
        """Dollars by day, all sessions of this user."""
        return self.user / "spend.json"

    def make(self) -> bool:
        """Make `.ipyagent/` with its `.gitignore`, or `state`; whether it was new. Raises AgentError, also where it is
        a link and not trusted: a cloned repository must not choose where transcripts go."""
        new = not os.path.lexists(self.state)
        foreign = new and self.carried()
        self.check_place()
        self._make_folders()
        if new and not foreign:
            self.trust(said=False)
        elif new and self.trusted:
            self.take_along()
        return new

    def place_line(self) -> str:
        """One line for the user: where sessions and memories of this project are kept."""
        if not self.elsewhere:
            return f"sessions of this project are kept in {self.folder} (not in git)"
        if self.writable:
            return (
                f"sessions and memories of this project are kept in {self.state}: {self.root} could not be written "
                f"when they began; to keep them there, move them into {self.folder} and remove that folder"
            )
        return f"{self.root} cannot be written, so sessions and memories of this project are kept in {self.state}"

    def home_line(self) -> str:
        """One line for the user: why nothing can be noted in the user's own folder; "" when it can."""
        if self.user.exists() and not self.user.is_dir():
            why = "is a file"
        elif not _may_write(self.user):
            why = "cannot be written"
        else:
            why = str(self._unkept.get("why", ""))
        if not why:
            return ""
        return (
            f"{self.user} {why} ({home_variable()}), so trust, permission rules, spending and your own memories are "
            "not kept; set IPYAGENT_HOME to a folder that you own"
        )

    @property
    def leaves_memories(self) -> bool:
        """Whether the project brings memories that are not yet in the place where new ones are kept."""
        memory = self.folder / "memory"
        return self.elsewhere and bool(names(memory)) and not (self.state / "memory").exists()

    def take_along(self) -> None:
        """Copy the memories that a trusted project brings to the place where new ones are kept. Raises AgentError."""
        memory = self.folder / "memory"
        if not self.leaves_memories:
            return
        self._make_folders()

        def left(folder: str, found: list[str]) -> list[str]:
            paths = [(name, os.path.join(folder, name)) for name in found]
            return [name for name, path in paths if name.startswith(".") or os.path.islink(path)]

        with suppress(OSError, shutil.Error):  # what cannot be read stays behind
            shutil.copytree(memory, self.state / "memory", ignore=left, copy_function=shutil.copyfile)

    def check_place(self) -> None:
        """Raise AgentError where `.ipyagent` is a link that this user has not trusted, or leads nowhere. Links below
        it are never followed."""
        if not self.folder.is_symlink() or self.elsewhere:
            return
        goal = self.folder.resolve()
        if not goal.is_dir():
            raise AgentError(f"{self.folder} is a link to {goal}, which is not a folder; create it, or remove the link")
        if not self.trusted:
            raise AgentError(
                f"{self.folder} is a link that leads to {goal}; remove it, or run %agent trust if it is yours"
            )

    def _make_folders(self) -> None:
        state = self.state
        sessions = state / "sessions"
        try:
            if state == self.folder:
                make_private(state)
            private_folder(sessions)
            for ignore, lines in ((state / ".gitignore", GITIGNORE), (sessions / ".gitignore", "*\n")):
                with suppress(FileExistsError):  # sessions have one of their own: the first may come from a repository
                    mode = 0o644 if ignore.parent == self.folder else 0o600
                    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL
                    with os.fdopen(opened(ignore, flags, mode), "w", encoding="utf-8") as file:
                        file.write(lines)
        except OSError as problem:
            if problem.errno == errno.ELOOP:
                raise AgentError(f"{problem.filename} {problem.strerror}") from None
            if state != self.folder:
                raise AgentError(
                    f"{self.root} cannot be written, nor can {self.user} ({problem.strerror}; {home_variable()}); "
                    "set IPYAGENT_HOME to a folder that you own"
                ) from None
            there = "start the kernel in a folder that you can write to"
            room = "free some space, or " if problem.errno in (errno.ENOSPC, errno.EDQUOT) else ""
            raise AgentError(f"cannot write in {self.root} ({problem.strerror}); {room}{there}") from None

    # ------------------------------------------------------------------ trust

    @property
    def trusted(self) -> bool:
        """Whether state found here may be loaded: this user made it here or said `%agent trust`, and it is
        the same folder, of the same owners, still."""
        entry = self._trust_entry
        if not entry or entry.get("owner") != self._owner:
            return False
        mark = digest_of_mark(self.folder / "sessions")
        return (bool(mark) and entry.get("mark") == mark) or (self.elsewhere and entry.get("mark") == self._number)

    @property
    def trusted_by_word(self) -> bool:
        """Whether it is `trusted` because the user said so: a session that began in a folder that brought nothing
        says nothing of its notebooks."""
        return self.trusted and self._trust_entry.get("said") is True

    @property
    def _number(self) -> str:
        """What tells a folder that may not be marked from another that came to its path: its inode."""
        try:
            return f"inode {self.root.stat().st_ino}"
        except OSError:
            return "none"

    def carried(self) -> list[str]:
        """What stands here that only a trusted folder has loaded: "AGENTS.md", "memory", "sessions", …"""
        return carried(self.folders)

    def untrusted_line(self, then: str = "") -> str:
        """One line for the user: what was not loaded and what to do, and `then`; "" when there is nothing."""
        if self.trusted or not (names := self.carried()):
            return ""
        shown = ", ".join(names[:SHOWN_NAMES]) + (" …" if len(names) > SHOWN_NAMES else "")
        if unknown := self.home_line():
            return (
                f"whether you trust {self.root} is unknown, so nothing from it was loaded ({shown}): {unknown} "
                f"before the kernel starts, or say %agent trust for this kernel{then}"
            )
        return (
            f"{self.root} is not trusted yet, so nothing from it was loaded ({shown}); "
            f"if you trust it, run %agent trust{then}"
        )

    def trust(self, *, said: bool = True) -> None:
        """Remember that this user trusts this very folder (see `ipyagent.trust`) and who owns it, in the user's
        own directory; for this process alone where that cannot be written, see `home_line`. `said`: the user said so,
        see `trusted_by_word`. Raises AgentError."""
        self._make_folders()
        if self.elsewhere:
            self._keep_trust(self._number, said)
            self.take_along()
            return
        entries = _read_object(self.user / TRUST).values()
        known = [str(entry.get("mark")) for entry in entries if isinstance(entry, dict)]
        try:
            mark = mark_folder(self.sessions, known)
        except OSError as problem:
            told = f"cannot write in {self.sessions} ({problem.strerror}), so it cannot be trusted: fix its permissions"
            raise AgentError(told) from None
        self._keep_trust(mark, said)

    def _keep_trust(self, mark: str, said: bool) -> None:
        known = self._trust_entry.get("known", [])
        now = {"since": time.strftime("%Y-%m-%d"), "at": time.time(), "known": known}
        self._note_trust({**now, "owner": self._owner, "mark": mark, "said": said})

    @property
    def _trust_entry(self) -> dict[str, Any]:
        entry = self._unkept["entry"] if "entry" in self._unkept else _read_kept(self.user / TRUST).get(str(self.root))
        return entry if isinstance(entry, dict) else {}

    def arrived(self, paths: Iterable[Path], held: Collection[Path] = ()) -> dict[Path, str]:
        """Which of these files are new in the project since the user trusted it (NEW), or say something else (CHANGED),
        each told once, but for new ones that are `held`, which stay new until the next trust. When a file came is told
        by the time at which it came to its place, which no archive sets. None, where no trust is recorded."""
        entry = self._trust_entry
        if not entry:
            return {}
        known, at, now = _known(entry), entry.get("at"), time.time()
        if not isinstance(at, int | float):  # of a version that did not note it: what is there now
            at = now
        found: dict[Path, str] = {}
        noted: dict[str, list[object]] = {}
        names: dict[str, Path] = {}
        for path in dict.fromkeys(paths):
            if not os.path.lexists(path):
                continue
            came, name = _came(path), self.relative(path)
            if name in names:  # a link to one of them
                found |= {path: NEW} if found.get(names[name]) == NEW else {}
                continue
            names[name], was = path, known.get(name)
            if was is not None and was[0] == came:
                continue
            digest = sha256(read_small(path.resolve(), MOST_BYTES) or b"").hexdigest()[:32]
            if came > at and was is None:
                found[path] = NEW
                if path in held:
                    continue
            elif came > at and was is not None and was[1] not in ("", digest):
                found[path] = CHANGED
            noted[name] = [came if now - came > 1 else 0, digest]  # else it may change with the same time
        if noted != {name: known.get(name) for name in noted} or at != entry.get("at"):
            self._note_known(noted, at)
        return found

    def knows(self, path: Path) -> None:
        """Take a file that was written on the user's behalf as one that they know of."""
        self.arrived([path])

    def arrivals(self, paths: Iterable[Path]) -> list[str]:
        """`arrived`, as lines for the user."""
        lines: list[str] = []
        found = self.arrived(paths)
        for what, told in ((NEW, "new since you trusted this project, and used from now on"),
                           (CHANGED, "changed since this project last used it, and used as it is now")):  # fmt: skip
            names = [_printable(self.relative(path)) for path, how in found.items() if how == what]
            more = f" and {len(names) - MOST_NAMES} more" if len(names) > MOST_NAMES else ""
            if names:
                lines.append(f"{told}: {', '.join(names[:MOST_NAMES])}{more} (%agent trust --off uses none of it)")
        return lines

    def _note_known(self, noted: Mapping[str, list[object]], at: float) -> None:
        """Note files that the user was told of, unless the trust was taken back or given anew meanwhile."""
        mine = self._trust_entry

        def merged(entry: object) -> dict[str, object] | None:
            if not isinstance(entry, dict) or entry.get("mark") != mine.get("mark"):
                return None
            return {**entry, "known": {**_known(entry), **noted}, "at": entry.get("at", at)}

        def changes(stands: Changes) -> Changes:
            entry = merged(stands.get(str(self.root)))
            return {} if entry is None else {str(self.root): entry}

        try:
            if "entry" not in self._unkept:
                update_object(self.user / TRUST, changes)
                return
            why = self._unkept["why"]
        except OSError as problem:
            why = f"cannot be written: {problem.strerror or 'another process holds its lock'}"
        self._unkept.update(entry=merged(mine) or {}, why=why)

    def distrust(self) -> None:
        """Forget that this user trusts the folder. Raises AgentError when that cannot be written."""
        self._note_trust(None)
        if "entry" in self._unkept:
            told = "trust is off in this kernel only and will be back in the next"
            raise AgentError(f"{told}: {self.home_line()}")

    def _note_trust(self, entry: dict[str, object] | None) -> None:
        self._unkept.clear()
        try:
            update_object(self.user / TRUST, {str(self.root): entry})
        except OSError as problem:
            reason = problem.strerror or "another process holds its lock"
            self._unkept.update(entry=entry or {}, why=f"cannot be written: {reason}")

    @property
    def _owner(self) -> list[int]:
        """User ids that own the folder and the state in it; of what is there."""
        found: list[int] = []
        for path in (self.root, self.folder):
            with suppress(OSError):
                found.append(path.stat().st_uid)
        return found

    # --------------------------------------------------------------- sessions

    def session_folders(self) -> Iterator[Path]:
        """Folders of stored sessions, newest first by last write; dreams are none of the user's."""
        for _, size, path in sorted(self._transcripts(), reverse=True):
            if size:
                yield path

    def empty_sessions(self) -> list[Path]:
        """Folders of sessions whose transcript has no byte: the disk was full or the machine stopped as they began."""
        return sorted(path for _, size, path in self._transcripts() if not size)

    def session_folder(self, name: str) -> Path:
        """Where the session of this id is, or would be."""
        there = [folder for folder in self._session_places() if is_file(folder / name / "transcript.jsonl")]
        return (there[0] if there else self.sessions) / name

    def _session_places(self) -> list[Path]:
        return list(dict.fromkeys((self.sessions, self.folder / "sessions")))

    def _transcripts(self) -> Iterator[tuple[float, int, Path]]:
        for entry in (folder / name for folder in self._session_places() for name in names(folder)):
            if entry.name.startswith(".") or entry.name.endswith(DREAM):  # "." begins a copy that is being made
                continue
            transcript = status(entry / "transcript.jsonl")
            if transcript is not None and stat.S_ISREG(transcript.st_mode):
                yield transcript.st_mtime, transcript.st_size, entry

    def relative(self, path: Path) -> str:
        """The path as it is stored: relative to the root where it lies inside."""
        for form in (path.resolve(), path.absolute()):  # the second: a link that leads out of the project
            if form.is_relative_to(self.root):
                return form.relative_to(self.root).as_posix()
        return str(path)


def _known(entry: Mapping[str, Any]) -> dict[str, list[object]]:
    """The files that a trust covers by name, each with the time at which it came and a digest of what it says."""
    known = entry.get("known")
    if isinstance(known, list):  # of a version that noted names alone
        return {str(name): [0, ""] for name in known}
    pairs = known.items() if isinstance(known, dict) else ()
    return {name: pair for name, pair in pairs if isinstance(pair, list) and len(pair) == 2}


def _printable(name: str) -> str:
    """The name of a file on one line, without what nobody sees."""
    shown = "".join(character if character.isprintable() else "?" for character in name)
    return shown if len(shown) <= 120 else f"…{shown[-119:]}"


def _came(path: Path) -> float:
    """When a file came to its place, or was last changed there; of a link, also what it leads to. Windows cannot
    tell: for ever later."""
    if os.name == "nt":
        return float("inf")
    try:
        return max(path.lstat().st_ctime, path.stat().st_ctime)
    except OSError:
        return float("inf")


def _read_object(path: Path) -> dict[str, object]:
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):  # the last: nested without end
        return {}
    return value if isinstance(value, dict) else {}


def _read_kept(path: Path) -> Mapping[str, object]:
    """The same for a file that is asked for many times a turn and hardly ever written: read again once it changed."""
    with suppress(OSError):
        now = path.stat()
        return _read_at(path, (now.st_ino, now.st_mtime_ns, now.st_size))
    return {}


@lru_cache(maxsize=4)
def _read_at(path: Path, _changed: tuple[int, int, int]) -> Mapping[str, object]:
    return _read_object(path)


Changes: TypeAlias = Mapping[str, object]


def update_object(path: Path, changes: Changes | Callable[[Changes], Changes]) -> dict[str, object]:
    """Merge `changes` into a JSON object file under a lock that works across processes; None takes a key out. What
    depends on what stands in the file is a function of it, called under the lock."""
    private_folder(path.parent)
    with Lock(path.with_name(f"{path.name}.lock"), seconds=5):
        stands = _read_object(path)
        merged = {**stands, **(changes(stands) if callable(changes) else changes)}
        value = {key: kept for key, kept in merged.items() if kept is not None}
        text = json.dumps(value, indent=1, sort_keys=True, ensure_ascii=False)
        write_atomically(path, text.encode("utf-8", "backslashreplace"))  # of a path that is no text: JSON's own escape
    return value
