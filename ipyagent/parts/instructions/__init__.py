"""What people wrote for the agent: AGENTS.md and its like, in the system prompt of each session.

Instruction files are read from the most general to the most specific, never written. Those of a project only once it is
trusted, and then nothing that leads out of it, or came later (with an unpacked data set, a `git pull`) and was not said
yes to. `@path` includes another text file; it stands before the file that names it. Each file is loaded once, so cycles
end. What cannot be loaded is told in one line and left out."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from importlib.resources import files
from pathlib import Path
from typing import Literal

import msgspec

from ipyagent.frontmatter import cut_at_line, guarded, read_text, without_hidden
from ipyagent.journal.tokens import estimate_text
from ipyagent.nofollow import FOLDER
from ipyagent.parts import Host, Part, PromptSpace, Section
from ipyagent.project import CHANGED, NEW, Project

# ---- Which files an instruction file includes: every `@path` in its prose. In code, links and HTML an @ means
# nothing.

_MENTION = re.compile(r"(?<![\w@./+\\-])@((?:\\ |[^\s\\@`，。；：、！？）》】”’])+)")
_CJK_MENTION = re.compile(r"(?<=[\u3040-\u30ff\u3400-\u9fff])@((?:\\ |[^\s\\@`，。；：、！？）》】”’])+)")
_TRAILING = ".,;:!?)]}>'\"*_"
_FILE_LIKE = re.compile(r"\.(?:md|markdown|txt|rst|toml|ya?ml|json|py|csv|ipynb)$", re.IGNORECASE)


def mentions(text: str) -> list[str]:
    """The paths that the prose of a Markdown text mentions as `@path`, as they are written, each once."""
    found: dict[str, None] = {}
    if "@" in text:
        for words in _prose(text):
            for pattern in (_MENTION, _CJK_MENTION):
                found.update(dict.fromkeys(match[1].replace("\\ ", " ") for match in pattern.finditer(words)))
    return list(found)


def _prose(text: str) -> Iterator[str]:
    from markdown_it import MarkdownIt

    for token in MarkdownIt("commonmark").parse(text):
        if token.type == "inline":
            depth = 0
            for child in token.children or ():
                depth += child.nesting if child.type in ("link_open", "link_close") else 0
                if child.type == "text" and not depth:
                    yield child.content


def find_file(raw: str, folder: Path) -> Path | None:
    """The file that a mention means: relative to `folder`, `~/` or absolute, without the punctuation after it; None
    when there is none."""
    for end in range(len(raw), 0, -1):
        if end < len(raw) and raw[end] not in _TRAILING:
            return None
        name = raw[:end]
        if "\0" in name or (name.startswith("~") and not name.startswith("~/")):
            continue
        with suppress(RuntimeError, OSError, ValueError):  # nobody's home, a name too long, a folder that is closed
            if (path := folder / Path(name).expanduser()).is_file():
                return path
    return None


MANAGED = Path("/etc/ipyagent/AGENT.md")
MOST_DEPTH = 5
MOST_FILES = 100
LOCAL = ("AGENT.local.md", f"{FOLDER}/AGENT.local.md")
LOADED = {NEW: f"{NEW}, and is loaded from now on", CHANGED: f"{CHANGED}, and is loaded as it is now"}
LATE = "came after you trusted this project and is not loaded: look at it, then run %agent trust"
Level = Literal["managed", "user", "project", "local"]


class Instruction(msgspec.Struct, frozen=True, kw_only=True):
    """One file as it is loaded. `source` as it is shown ("AGENTS.md", "~/.ipyagent/AGENT.md"), `by` the source
    that includes it ("": none)."""

    source: str
    level: Level
    text: str
    by: str = ""


class LoadedInstructions(msgspec.Struct, frozen=True, kw_only=True):
    """The files from general to specific, and what could not be loaded, one line each."""

    files: tuple[Instruction, ...] = ()
    problems: tuple[str, ...] = ()


def load_instructions(
    project: Project, *, trusted: bool, late: bool = False, managed: Path = MANAGED
) -> LoadedInstructions:
    """All instruction files for a notebook in `project.here`. `trusted`: those of the project too; what came after it
    was trusted, or changed, is named once, and left out where it came into a folder below (`late`: neither). Never
    raises for what stands in a file."""
    loading = _Loading(project)
    loading.take(managed, "managed")
    loading.take(project.user / "AGENT.md", "user")
    if trusted:
        shared = [path for folder in project.folders for path in _of_project(folder)]
        local = [folder / name for folder in project.folders for name in LOCAL]
        top = project.folders[0]
        above = [path for path in (*shared, *local) if path.is_relative_to(top / FOLDER) or path.parent == top]
        below = [path for path in (*shared, *local) if path not in above]
        news = {} if late else project.arrived([*shared, *local], held=below)
        for path in (*shared, *local):
            left = path in below and news.get(path) == NEW
            if path in news and path.is_file():
                loading.say(path, LATE if left else LOADED[news[path]])
            if not left:
                loading.take(path, "project" if path in shared else "local")
        for path, how in ({} if late else project.arrived(loading.included)).items():
            loading.say(path, LOADED[how])
    return LoadedInstructions(files=tuple(loading.files), problems=tuple(loading.problems))


def _of_project(folder: Path) -> Iterator[Path]:
    yield folder / "AGENTS.md"
    yield folder / "CLAUDE.md"
    yield folder / FOLDER / "AGENT.md"
    try:
        yield from sorted(path for path in (folder / FOLDER / "rules").iterdir() if path.name.endswith(".md"))
    except OSError:
        return


class _Loading:
    """One run over the files."""

    def __init__(self, project: Project) -> None:
        self.files: list[Instruction] = []
        self.problems: list[str] = []
        self._project = project
        self._top = project.folders[0]
        self._seen: set[Path] = set()
        self._full = False
        self.included: list[Path] = []
        """Files of the project that others of it name."""

    def say(self, path: Path, what: str) -> None:
        """Say of a file that came after the trust, or changed, what becomes of it."""
        self._say(f"{self._shown(path)} {what}")

    def take(self, path: Path, level: Level, by: str = "", depth: int = 0) -> None:
        """Load a file and, before it, what it includes."""
        source = self._shown(path)
        try:
            real = path.resolve(strict=True)
        except (OSError, RuntimeError):
            return  # not there
        if real in self._seen or not real.is_file():
            return
        if level in ("project", "local") and not real.is_relative_to(self._top.resolve()):
            self._say(
                f"{by or source}: {f'@{source}' if by else 'it'} leads out of the project and was not loaded; "
                f"if it is yours, include it from {self._shown(self._project.user / 'AGENT.md')}"
            )
            return
        if len(self._seen) >= MOST_FILES:
            if not self._full:
                self._say(f"{by or source}: more than {MOST_FILES} instruction files; the rest was not loaded")
            self._full = True
            return
        self._seen.add(real)
        if by and level in ("project", "local"):
            self.included.append(path)
        text, problem = read_text(real)
        if problem:
            self._say(f"{source}: {problem}")
        if not text.strip() or any(text == other.text for other in self.files):
            return  # the same words twice add nothing
        for raw in mentions(text):
            self._include(raw, real.parent, level, source, depth)
        self.files.append(Instruction(source=source, level=level, text=text, by=by))

    def _include(self, raw: str, folder: Path, level: Level, source: str, depth: int) -> None:
        path = find_file(raw, folder)
        if path is None:
            if _FILE_LIKE.search(raw.rstrip(_TRAILING)):  # it was meant as a file, not as somebody's name
                self._say(f"{source}: @{raw} is not there")
        elif depth < MOST_DEPTH:
            self.take(path, level, source, depth + 1)
        elif path.resolve() not in self._seen:
            self._say(f"{source}: @{raw} is the {MOST_DEPTH + 1}th include in a row and was not loaded")

    def _say(self, line: str) -> None:
        self.problems.append(" ".join(without_hidden(line).split())[:400])

    def _shown(self, path: Path) -> str:
        path = Path(os.path.normpath(path))
        if path.is_relative_to(self._top):
            return path.relative_to(self._top).as_posix()
        if path.is_relative_to(self._project.user):
            return "~/.ipyagent/" + path.relative_to(self._project.user).as_posix()
        return path.as_posix()


# ---------------------------------------------------------------------- as text


def instructions_text(loaded: Sequence[Instruction], tokens: int) -> tuple[str, str]:
    """The block of the system prompt in at most about `tokens` tokens, and one line for the user when not all of
    it went in. The most specific go in first."""
    if not loaded:
        return "", ""
    head = files("ipyagent.parts.instructions").joinpath("instructions.md").read_text(encoding="utf-8").strip()
    room = tokens - estimate_text(head) - 30
    kept: list[str] = []
    left: list[str] = []
    for each in reversed(loaded):
        made = _element(each, each.text)
        size = estimate_text(made)
        if left or size > room:
            short = _shortened(each, room) if not left else ""
            left.append(each.source)
            if short:
                kept.append(short)
            continue
        room -= size
        kept.append(made)
    if not left:
        return "\n\n".join([head, *reversed(kept)]), ""
    names = ", ".join(reversed(left[:8])) + (" …" if len(left) > 8 else "")
    line = f"instructions are longer than this window allows (about {max(0, tokens):,} tokens): not whole: {names}"
    if not kept:
        return "", line
    return "\n\n".join([head, f"[Not whole for want of room: {guarded(names)}]", *reversed(kept)]), line


def _shortened(each: Instruction, room: int) -> str:
    """The head of a file that fits in `room` tokens; "" when too little does."""
    text = each.text
    while text and estimate_text(_element(each, text + "\n[cut here]")) > room:
        text = cut_at_line(text, len(text) * 4 // 5) if len(text) > 200 else ""
    return _element(each, text + "\n[cut here]") if text.strip() else ""


def _element(each: Instruction, text: str) -> str:
    source = guarded(each.source).replace('"', "'")
    by = f' included-by="{guarded(each.by)}"'.replace('\\"', "'") if each.by else ""
    return f'<instructions file="{source}"{by}>\n{guarded(text)}\n</instructions>'


SHARE = 1 / 8
"""What instruction files may take of the window at most."""


class Instructions(Part):
    """See the module."""

    name, order = "instructions", 10

    def __init__(self, host: Host) -> None:
        self._host = host

    def prompt_section(self, place: PromptSpace) -> Section | None:
        settings, project = self._host.settings, self._host.project
        if not settings.instructions:
            return None
        trusted = settings.trust_all or project.trusted
        loaded = load_instructions(project, trusted=trusted, late=settings.trust_all)
        text, line = instructions_text(loaded.files, int(min(place.room, place.window * SHARE)))
        return Section(text, (*loaded.problems, line))
