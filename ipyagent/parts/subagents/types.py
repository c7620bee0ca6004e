"""Types of sub-agents that people write: `agents/*.md` in the user's folder and in a trusted project's.

The header has `name`, `description`, `tools`, `model`, `memory`; the body is the prompt. Read leniently, except
that what is malformed never widens rights: tools that cannot be read are no tools."""

from __future__ import annotations

import re
from importlib.resources import files
from pathlib import Path
from typing import Any, Literal, TypeAlias

import msgspec

from ipyagent.frontmatter import read_headed

# ---- The types of sub-agents: what each sees, may use and costs. Three are ours, people add others
# (`definitions`).

Remembers: TypeAlias = Literal["", "user", "project", "local"]

READERS = ("glob", "grep", "read_file", "send_message", "shell", "variables")
"""What a type that only looks may use; mode read_only holds for all of them."""


class SubagentType(msgspec.Struct, frozen=True, kw_only=True):
    """`about` is a sentence for the model that chooses; `prompt` stands in its system prompt. `tools`: names (None:
    all but `agent`). `model`: a name, "small" or "" (the parent's). `memory`: the scope of a memory of its own.
    `source` is the file it comes from ("": ours)."""

    name: str
    about: str
    prompt: str = ""
    tools: tuple[str, ...] | None = None
    model: str = ""
    looks: bool = False
    """Only looks: no rights to write or run, whatever the parent has."""
    fork: bool = False
    memory: Remembers = ""
    source: str = ""


def words(name: str) -> str:
    """One of our prompts."""
    return files("ipyagent.parts.subagents").joinpath(f"{name}.md").read_text(encoding="utf-8").strip()


def built_in() -> dict[str, SubagentType]:
    """Ours, the usual one first."""
    return {
        "general": SubagentType(name="general", about="fresh context, all tools", prompt=words("general")),
        "explore": SubagentType(
            name="explore",
            about="fresh context, small model, only reads",
            prompt=words("explore"),
            tools=READERS,
            model="small",
            looks=True,
        ),
        "fork": SubagentType(
            name="fork", about="knows this conversation, cheap by the cache; cannot fork", fork=True
        ),
    }


FOLDER = "agents"
MOST_BYTES = 64_000
MOST_FILES = 100
_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,63}")
_TOOL = re.compile(r"[a-zA-Z0-9_-]{1,128}")
_SAME_MODEL = ("", "inherit", "same", "default")


class SubagentDefinitions(msgspec.Struct, frozen=True):
    """`kinds` by name in the order of their names, `problems` a line each."""

    kinds: dict[str, SubagentType] = {}
    problems: tuple[str, ...] = ()


def defined(folders: list[Path], taken: tuple[str, ...], root: Path | None = None) -> SubagentDefinitions:
    """The types in these folders, a later folder's before an earlier one's; `taken` are names of ours. One of the
    project at `root` that is a link out of it is not read."""
    kinds: dict[str, SubagentType] = {}
    problems: list[str] = []
    for folder in folders:
        inside = folder.resolve()
        if root is not None and folder.is_relative_to(root) and not inside.is_relative_to(root.resolve()):
            problems.append(f"{folder}: not read: a link that leads out of the project")
            continue
        for file in sorted(folder.glob("*.md"))[:MOST_FILES] if folder.is_dir() else ():
            try:
                if not file.resolve().is_relative_to(inside):
                    raise OSError("a link that leads out of its folder")
                if not file.is_file():  # a pipe would be waited for
                    raise OSError("it is no file")
                with file.open("rb") as stream:
                    data = stream.read(MOST_BYTES + 1)
            except OSError as problem:
                problems.append(f"{file}: not read: {problem.strerror or problem}")
                continue
            made, found = _kind(file, data)
            problems += [f"{file}: {each}" for each in found]
            if made is None:
                continue
            if made.name in taken:
                problems.append(f"{file}: there is a type {made.name!r} of ipyagent; give it another name")
                continue
            kinds[made.name] = made
    return SubagentDefinitions(dict(sorted(kinds.items())), tuple(problems))


def _kind(file: Path, data: bytes) -> tuple[SubagentType | None, list[str]]:
    if len(data) > MOST_BYTES:
        return None, [f"longer than {MOST_BYTES:,} bytes; left out"]
    headed = read_headed(data)
    fields, problems = headed.fields, list(headed.problems)
    about = " ".join(str(fields.get("description") or "").split())
    if not about:
        return None, [*problems, "no `description` says when to use it; left out"]
    if not headed.body.strip():
        return None, [*problems, "no text below the frontmatter: it has no prompt; left out"]
    name = _name(fields.get("name"), file.stem, problems)
    if not name:
        return None, [*problems, "no name of a-z, 0-9, - and _; left out"]
    given = fields.get("model")
    model = given.strip() if isinstance(given, str) else ""
    if given is not None and (not isinstance(given, str) or len(model.split()) > 1):
        problems.append(f"`model` {given!r} is no name of a model; the parent's is used")
        model = ""
    memory: Any = fields.get("memory")
    if memory not in (None, "", "user", "project", "local"):
        problems.append(f"`memory` {memory!r} is not one of user, project, local; left out")
        memory = ""
    made = SubagentType(
        name=name,
        about=about[:300],
        prompt=headed.body.strip(),
        tools=_tools(fields, problems),
        model="" if model in _SAME_MODEL else model,
        memory=memory or "",
        source=str(file),
    )
    return made, problems


def _name(given: Any, stem: str, problems: list[str]) -> str:
    name = str(given).strip().lower().replace(":", "-") if isinstance(given, str) else ""
    if not _NAME.fullmatch(name):
        if given is not None:
            problems.append(f"`name` {given!r} is not one of a-z, 0-9, - and _; the file's name is used")
        name = stem.strip().lower().replace(":", "-").replace(" ", "-")
    return name if _NAME.fullmatch(name) else ""


def _tools(fields: dict[str, Any], problems: list[str]) -> tuple[str, ...] | None:
    if "tools" not in fields:
        return None
    given = fields["tools"]
    if isinstance(given, str):
        given = re.split(r"[,\s]+", given.strip())
    if not isinstance(given, list) or not all(isinstance(one, str) for one in given):
        problems.append("`tools` is neither a list nor a line of names: it gets no tools")
        return ()
    names = [one.strip() for one in given if one.strip()]
    for odd in (one for one in names if not _TOOL.fullmatch(one)):
        problems.append(f"`tools`: {odd!r} is no name of a tool")
    return tuple(dict.fromkeys(one for one in names if _TOOL.fullmatch(one)))
