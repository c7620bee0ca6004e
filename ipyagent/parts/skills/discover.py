"""Where skills are found: bundled ones, the user's, the project's; a later place wins over an earlier one.

A project's are looked for only when the folder is trusted. A link that leads out of its tree is not
followed. One bad skill never hides another, nor takes a name that a right one has. What has not changed on the
disk is not read again."""

from __future__ import annotations

import hashlib
import os
import re
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TypeAlias

import msgspec

from ipyagent.parts.skills.parse import FILE, Diagnostic, Skill, brief, folder_name, read_skill
from ipyagent.project import Project

DEEPEST = 6
MOST_FOLDERS = 2_000
"""Levels below a place, and folders that are looked into there; from the specification of ipyagent."""
SKIPPED = frozenset((".git", ".hg", ".svn", "node_modules", "__pycache__", "site-packages", ".venv", "venv", ".tox"))
HOMES = (".agents", ".claude")
Known: TypeAlias = dict[str, tuple[tuple[int, int, int], Skill | Diagnostic]]
OUTSIDE = "a link that leads out of its tree: put the folder itself here"
ITSELF = "SKILL.md is in the folder of all skills: give this skill a folder of its own"


class SkillFolder(msgspec.Struct, frozen=True):
    """A folder under which skills may be; `source` "bundled", "user" or "project"; `outside`: a project's that
    is a link out of the project, which is not followed."""

    folder: Path
    source: str
    outside: bool = False


class SkillListing(msgspec.Struct, frozen=True):
    """Skills by name, in the order of their names; `problems` of files and places, `collisions` included."""

    skills: dict[str, Skill] = {}
    problems: tuple[Diagnostic, ...] = ()

    @property
    def for_model(self) -> dict[str, Skill]:
        """The skills that the model is told of and may load by itself."""
        return {name: skill for name, skill in self.skills.items() if not skill.manual}


def bundled_folder() -> Path:
    """The skills that come with ipyagent: in the package, or beside it in a checkout."""
    package = Path(__file__).resolve().parents[2]
    inside = package / "bundled_skills"
    return inside if inside.is_dir() else package.parent / "skills"


def places_of(project: Project, *, trusted: bool) -> list[SkillFolder]:
    """All places, lowest priority first. The user's are beside their `.ipyagent`: `~/.agents/skills`,
    `~/.claude/skills`, `~/.ipyagent/skills`."""
    home = project.user.parent
    places = [SkillFolder(bundled_folder(), "bundled")]
    places += [SkillFolder(home / name / "skills", "user") for name in HOMES]
    places.append(SkillFolder(project.user / "skills", "user"))
    if trusted:
        places += [SkillFolder(project.root / name / "skills", "project") for name in HOMES]
        places += [SkillFolder(project.folder / "skills", "project"), SkillFolder(project.root / "skills", "project")]
    seen: set[Path] = set()
    kept = []
    root = _resolved(project.root) or project.root
    for place in places:
        folder = _resolved(place.folder)
        if folder is not None and folder not in seen:
            seen.add(folder)
            outside = place.source == "project" and not folder.is_relative_to(root)
            kept.append(msgspec.structs.replace(place, outside=outside))
    return kept


class SkillIndex:
    """The skills of some places, kept as long as their files stay as they were. Thread-safe."""

    def __init__(self, places: Sequence[SkillFolder]) -> None:
        self.places = tuple(places)
        self._lock = threading.Lock()
        self._known: Known = {}
        self._found = SkillListing()

    def __repr__(self) -> str:
        return f"<SkillIndex of {len(self._found.skills)} skills>"

    def look(self) -> SkillListing:
        """What is on the disk now."""
        with self._lock:
            seen: Known = {}
            read: list[list[Skill]] = []
            problems: list[Diagnostic] = []
            for place in self.places:
                if place.outside:
                    problems.append(Diagnostic(file=place.folder, why=OUTSIDE, skipped=True))
                    continue
                read.append([])
                walk = _Walk(place.folder, partial(self._read, place.source, seen, read[-1], problems))
                walk.go()
                problems += walk.problems
            skills = _named(read, problems)
            self._known = seen
            if skills != self._found.skills or tuple(problems) != self._found.problems:
                self._found = SkillListing(dict(sorted(skills.items())), tuple(problems))
            return self._found

    def _read(self, source: str, seen: Known, read: list[Skill], problems: list[Diagnostic], folder: Path) -> bool:
        """Whether the folder holds a skill that can be used; read anew when its file is another than before."""
        stamp = _stamp(folder / FILE)
        key = str(folder)
        known = self._known.get(key)
        got = known[1] if known is not None and known[0] == stamp else read_skill(folder, source)
        seen[key] = (stamp, got)
        if isinstance(got, Diagnostic):
            problems.append(got)
            return False
        problems += [Diagnostic(file=got.file, why=why) for why in got.problems]
        read.append(got)
        return True


def _named(places: Sequence[Sequence[Skill]], problems: list[Diagnostic]) -> dict[str, Skill]:
    """Who bears which name; `places`: the skills of each, lowest priority first. A later place wins, but one that is
    not named as its folder takes no name that a rightly named one bears, and within a place what has a problem
    takes none from what was there before: it goes under its folder's name."""
    skills: dict[str, Skill] = {}
    own: set[str] = set()  # names that are in their skill's folder's too
    for right in (True, False):
        for place in places:
            here: set[str] = set()
            for skill in sorted(place, key=lambda skill: bool(skill.problems)):  # those that are sound come first
                folder = folder_name(skill.folder)
                if (skill.name == folder) is not right:
                    continue
                name, before = skill.name, skills.get(skill.name)
                if before is not None and skill.problems and (name in here or (name in own and not right)):
                    if _resolved(before.file) == _resolved(skill.file):  # a link to it
                        continue
                    if folder in skills:
                        why = f"its name is that of {before.file}: choose another"
                        problems.append(Diagnostic(file=skill.file, why=why, skipped=True))
                        continue
                    why = f"the name {name!r} is that of {before.file}; the folder's is taken, {folder!r}"
                    problems.append(Diagnostic(file=skill.file, why=why))
                    name = folder
                elif before is not None:
                    why = f"takes the place of {before.file}, which has the same name"
                    problems.append(Diagnostic(file=skill.file, why=why))
                skills[name] = msgspec.structs.replace(skill, name=name) if name != skill.name else skill
                here.add(name)
                if name == folder:
                    own.add(name)
    return skills


class _Walk:
    """Shows `read` the folders with a SKILL.md under one place, in the order of their names; what is below one that
    is no skill is looked into too."""

    def __init__(self, place: Path, read: Callable[[Path], bool]) -> None:
        self.place = place
        self._read = read
        self.problems: list[Diagnostic] = []
        self._root = ""
        self._left = MOST_FOLDERS
        self._seen: set[str] = set()

    def go(self) -> None:
        root = _resolved(self.place)
        if root is None or not root.is_dir():
            return
        self._root = str(root)
        self._folder(str(self.place), 0)
        if self._left < 0:
            why = (
                f"more than {MOST_FOLDERS:,} folders, the rest was not searched: move whatever is not a "
                "skill elsewhere"
            )
            self.problems.append(Diagnostic(file=self.place, why=why))

    def _folder(self, folder: str, depth: int) -> None:
        if depth:
            self._left -= 1
            if self._left < 0:
                return
        below: list[str] = []
        lower = skill = False
        try:
            with os.scandir(folder) as entries:
                for entry in entries:
                    if entry.name == FILE:
                        skill = self._inside(entry)
                        continue
                    if entry.name == "pyvenv.cfg":
                        return
                    lower = lower or entry.name.lower() == FILE.lower()
                    with suppress(OSError):  # of a link in a circle
                        if entry.name not in SKIPPED and entry.is_dir() and self._inside(entry):
                            below.append(entry.path)
        except OSError as problem:
            why = f"cannot be read ({problem.strerror}): fix its permissions"
            self.problems.append(Diagnostic(file=Path(folder), why=why))
            return
        if skill and depth and self._read(Path(folder)):
            return  # what is below are the skill's own files
        if skill and not depth:
            self.problems.append(Diagnostic(file=Path(folder, FILE), why=ITSELF, skipped=True))
        if lower:
            why = f"the file must be named exactly {FILE}"
            self.problems.append(Diagnostic(file=Path(folder), why=why, skipped=True))
        if depth >= DEEPEST:
            return
        for path in sorted(below):
            self._folder(path, depth + 1)

    def _inside(self, entry: os.DirEntry[str]) -> bool:
        """Whether an entry lies in the place, also where its link leads; each linked folder once."""
        if not entry.is_symlink():
            return True
        goal = os.path.realpath(entry.path)
        if goal != self._root and not goal.startswith(self._root + os.sep):
            self.problems.append(Diagnostic(file=Path(entry.path), why=OUTSIDE, skipped=True))
            return False
        here = os.path.realpath(os.path.dirname(entry.path))
        if goal in self._seen or here == goal or here.startswith(goal + os.sep):
            return False
        self._seen.add(goal)
        return True


def _resolved(folder: Path) -> Path | None:
    try:
        return folder.resolve()
    except (OSError, RuntimeError):  # a loop of links
        return None


def _stamp(file: Path) -> tuple[int, int, int]:
    try:
        got = os.stat(file)
    except OSError:
        return (0, 0, 0)
    return (got.st_mtime_ns, got.st_size, got.st_ino)


# ---- A loaded skill as the model reads it: its body, its folder, and which files stand there. Nothing in a skill
# can close the element that holds it, and none takes more of the context than its share.

MOST_FILES = 30
MOST_LOOKED_AT = 2_000
"""Files that are named, and files that are looked at for that."""
MOST_CHARS = 60_000
"""Characters of a body that are loaded at once; the rest is in the file."""
_CLOSING = re.compile(r"</(?=\s*skill\b)", re.I)


def digest_of(text: str) -> str:
    """The name of a version of a text."""
    return hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()[:12]


def skill_text(skill: Skill, body: str, folder: str, *, most: int = MOST_CHARS, told: str = "") -> tuple[str, bool]:
    """The element, and whether the body was cut. `folder`: where its files are, as the model's tools
    name it; `told`: a line of ours at its beginning."""
    kept, cut = body[:most], len(body) > most
    if cut:
        kept = kept.rpartition("\n")[0] or kept
        lines = kept.count("\n") + 1
        kept += f"\n[… cut after {lines:,} lines; the rest is in {folder}/{FILE}]"
    files, more = files_of(skill.folder)
    named = ", ".join(files) + (f" and {more}" if more else "")
    about = skill.description if brief(skill.description) != skill.description else ""
    head = [told, about, f"Folder: {folder} (paths below are relative to it)", f"Files: {named}" if named else ""]
    lines_of_head = guarded("\n".join(filter(None, head)))
    opening = f'<skill name="{attribute(skill.name)}" version="{digest_of(body)}">'
    return f"{opening}\n{lines_of_head}\n\n{guarded(kept)}\n</skill>", cut


def attribute(name: str) -> str:
    """A name as it can stand in an attribute."""
    return " ".join(guarded(name).replace('"', "'").split())


def guarded(text: str) -> str:
    """The text, unable to close the element."""
    return _CLOSING.sub(r"<\\/", text)


def files_of(folder: Path) -> tuple[list[str], str]:
    """A skill's own files but for SKILL.md, relative and sorted, and words for those not named."""
    found: list[str] = []
    looked = 0
    for path in _walk(folder):
        looked += 1
        if looked > MOST_LOOKED_AT:
            break
        name = path.relative_to(folder).as_posix()
        if name != FILE:
            found.append(name)
    found.sort(key=lambda name: (name.count("/"), name))
    more = len(found) - MOST_FILES
    if looked > MOST_LOOKED_AT:
        return found[:MOST_FILES], "many more"
    return found[:MOST_FILES], f"{more:,} more" if more > 0 else ""


def _walk(folder: Path) -> Iterator[Path]:
    for place, folders, files in os.walk(folder):
        folders[:] = sorted(name for name in folders if name not in SKIPPED and not name.startswith("."))
        yield from (Path(place, name) for name in sorted(files) if not name.startswith("."))
