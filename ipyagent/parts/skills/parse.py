"""One skill: a folder with a `SKILL.md`, as the public Agent Skills specification has it (agentskills.io).

Lenient in: what can be understood is loaded, with a line about what is wrong. Strict out: `violations`
tells all that the specification forbids. Nothing in a skill grants a right."""

from __future__ import annotations

import os
import re
import unicodedata
from collections.abc import Callable, Mapping
from itertools import islice
from pathlib import Path
from typing import Any

import msgspec

from ipyagent.errors import UsageError
from ipyagent.frontmatter import read_headed, write_headed
from ipyagent.journal.tokens import estimate_text
from ipyagent.nofollow import opened, spot

MOST_WORDS = 20
"""Words of a description that stand in the catalogue; loading the skill gives the rest."""
MOST_CHARS = 240
"""Characters of it, for what has no words."""
_WIDE = r"\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af"
_WORD = re.compile(rf"[{_WIDE}]{{1,2}}|[^\W{_WIDE}]+(?:[-/.'’][^\W{_WIDE}]+)*")
"""A word, or two signs of a script that has no spaces."""
SHARE = 50
"""The catalogue may take a fiftieth (2 %) of the window."""
LEAST_TOKENS = 120
"""What it may take in the smallest window."""
LEAST = 24
"""Characters of a description below which only names are listed."""
OPENING = "<skills>"
"""How the catalogue begins in the system prompt."""
HEAD = "Before a task that one of these skills is for, load it with load_skill and follow it."


class SkillCatalogue(msgspec.Struct, frozen=True):
    """`text` for the system prompt ("" without skills); `cut` says what did not fit, for the user."""

    text: str = ""
    cut: str = ""


def catalogue_of(skills: Mapping[str, Skill], window: int) -> SkillCatalogue:
    """The catalogue for a window of `window` tokens. Descriptions are cut evenly, then left out; names that
    do not fit either are counted."""
    if not skills:
        return SkillCatalogue()
    most = max(LEAST_TOKENS, window // SHARE)
    ordered = [skills[name] for name in sorted(skills)]
    whole = _written(ordered, MOST_CHARS)
    if estimate_text(whole) <= most:
        return SkillCatalogue(whole)
    if cut := _largest(LEAST, MOST_CHARS, lambda length: estimate_text(_written(ordered, length)) <= most):
        told = f"{len(ordered)} skills: descriptions are cut at {cut} characters to fit the window"
        return SkillCatalogue(_written(ordered, cut), told)
    count = len(ordered)
    named = _largest(1, count, lambda number: estimate_text(_names(ordered[:number], count)) <= most)
    told = f"{len(ordered)} skills: only {named} names fit the window" if named < len(ordered) else (
        f"{len(ordered)} skills: only their names fit the window"
    )
    return SkillCatalogue(_names(ordered[:named], len(ordered)), told)


def _largest(least: int, most: int, fits: Callable[[int], bool]) -> int:
    """The largest number from `least` to `most` that fits, as those below it do; 0 when not even `least` does."""
    if not fits(least):
        return 0
    if fits(most):
        return most
    while most - least > 1:
        middle = (least + most) // 2
        least, most = (middle, most) if fits(middle) else (least, middle)
    return least


def _written(skills: list[Skill], most: int) -> str:
    lines = [f"- {_plain(skill.name)}: {_cut(brief(skill.description), most)}" for skill in skills]
    return "\n".join([OPENING, HEAD, *lines, "</skills>"])


def _names(skills: list[Skill], of: int) -> str:
    more = f" and {of - len(skills)} more, which load_skill lists" if len(skills) < of else ""
    return "\n".join([OPENING, HEAD, ", ".join(_plain(skill.name) for skill in skills) + more, "</skills>"])


def brief(description: str) -> str:
    """A description as the model is told of it before it loads the skill: cut behind a word when it is long."""
    last = next(islice(_WORD.finditer(description), MOST_WORDS - 1, None), None)
    if last is not None and _WORD.search(description, last.end()):
        description = description[: last.end()] + "…"
    return _cut(description, MOST_CHARS)


def _plain(text: str) -> str:
    return text.replace("<", "‹").replace(">", "›")


def _cut(text: str, most: int) -> str:
    text = _plain(text)
    return text if len(text) <= most else text[: max(0, most - 1)].rstrip(" …") + "…"


FILE = "SKILL.md"
MOST_NAME = 64
MOST_DESCRIPTION = 1_024
MOST_COMPATIBILITY = 500
"""Characters of the fields, from the specification."""
LONGEST_NAME = 2 * MOST_NAME
"""Characters of a name that is taken nevertheless, with a word about it; a longer one would fill the catalogue."""
MOST_BYTES = 2_000_000
"""Bytes of a SKILL.md; a larger one is not read."""
FIELDS = ("name", "description", "license", "compatibility", "metadata", "allowed-tools")
MANUAL = "disable-model-invocation"
"""A key of public skills: the skill is in no catalogue, and only `/name` loads it."""
_ODD_BYTES = re.compile(r"line \d+: Windows line ends")


class Skill(msgspec.Struct, frozen=True, kw_only=True):
    """`name` as it is called by; `folder` where its files are; `source` "bundled", "user" or "project";
    `allowed_tools` what its author names, for the user to read: it grants nothing; `extra` keys that the
    specification does not know; `problems` one line each."""

    name: str
    description: str
    folder: Path
    source: str = "project"
    license: str = ""
    compatibility: str = ""
    metadata: dict[str, str] = {}
    allowed_tools: tuple[str, ...] = ()
    extra: dict[str, Any] = {}
    problems: tuple[str, ...] = ()

    @property
    def manual(self) -> bool:
        """Whether its author wants it loaded by the user alone (`disable-model-invocation`)."""
        return _scalar(self.extra.get(MANUAL)).strip().lower() == "true"

    @property
    def file(self) -> Path:
        return self.folder / FILE


class Diagnostic(msgspec.Struct, frozen=True, kw_only=True):
    """What is wrong with a file; `skipped`: so wrong that the skill is not there."""

    file: Path
    why: str
    skipped: bool = False

    def __str__(self) -> str:
        return f"{self.file}: {self.why}" + (" (skipped)" if self.skipped else "")


def read_skill(folder: Path, source: str = "project") -> Skill | Diagnostic:
    """The skill in a folder, or why there is none. Raises nothing for what the file holds."""
    file = folder / FILE
    try:
        if not file.is_file():  # a pipe would be waited for
            return Diagnostic(file=file, why="is not a file: remove it", skipped=True)
        with file.open("rb") as opened:
            data = opened.read(MOST_BYTES + 1)
    except OSError as problem:
        return Diagnostic(file=file, why=f"cannot be read ({problem.strerror}): fix its permissions", skipped=True)
    if len(data) > MOST_BYTES:
        return Diagnostic(file=file, why=f"longer than {MOST_BYTES:,} bytes: move parts into other files", skipped=True)
    headed = read_headed(data)
    fields, problems = dict(headed.fields), list(headed.problems)
    description = _text(fields.pop("description", None), "description", problems)
    if not description:
        why = "; ".join(problems) if not headed.fields and problems else "no description: add one to the frontmatter"
        return Diagnostic(file=file, why=why if why.startswith("line ") else f"line 1: {why}", skipped=True)
    if len(description) > MOST_DESCRIPTION:
        problems.append(f"the description has {len(description):,} characters, {MOST_DESCRIPTION:,} are allowed")
    compatibility = _text(fields.pop("compatibility", None), "compatibility", problems)
    if len(compatibility) > MOST_COMPATIBILITY:
        problems.append(f"`compatibility` has {len(compatibility):,} characters, {MOST_COMPATIBILITY} are allowed")
    name = _name(fields.pop("name", None), folder, problems)
    metadata = fields.pop("metadata", None)
    if not isinstance(metadata, dict):
        problems += ["`metadata` is no mapping; left out"] * (metadata is not None)
        metadata = {}
    return Skill(
        name=name,
        description=description,
        folder=folder,
        source=source,
        license=_text(fields.pop("license", None), "license", problems),
        compatibility=compatibility,
        metadata={str(key): "" if each is None else _scalar(each) or str(each) for key, each in metadata.items()},
        allowed_tools=_tools(fields.pop("allowed-tools", None), problems),
        extra=fields,
        problems=tuple(problems),
    )


def body_of(skill: Skill) -> str:
    """The body as it is on the disk now. Raises OSError."""
    with skill.file.open("rb") as opened:
        return read_headed(opened.read(MOST_BYTES)).body.strip()


def violations(folder: Path) -> list[str]:
    """All that the specification and its reference validator forbid in a skill's folder; none: it is valid."""
    file = folder / FILE
    if not folder.is_dir():
        return [f"{folder} is no folder"]
    try:
        data = file.read_bytes()
    except OSError:
        return [f"there is no {FILE}"]
    headed = read_headed(data)
    found = [problem for problem in headed.problems if not _ODD_BYTES.match(problem)]
    if not headed.fields:
        return found or ["the frontmatter is empty"]
    fields = headed.fields
    if unknown := [name for name in fields if name not in FIELDS]:
        found.append(f"the specification has no field {', '.join(sorted(unknown))}")
    for name in ("name", "description"):
        if name not in fields:
            found.append(f"`{name}` is missing")
        elif not _scalar(fields[name]).strip():
            found.append(f"`{name}` must be text that is not empty")
    if name := _scalar(fields.get("name")).strip():
        found += name_faults(name, folder.name)
    if len(_scalar(fields.get("description"))) > MOST_DESCRIPTION:
        found.append(f"`description` is longer than {MOST_DESCRIPTION:,} characters")
    if "compatibility" in fields:
        text = fields["compatibility"]
        if not isinstance(text, str):
            found.append("`compatibility` must be text")
        elif not text.strip():
            found.append("`compatibility` must not be empty")
        elif len(text) > MOST_COMPATIBILITY:
            found.append(f"`compatibility` is longer than {MOST_COMPATIBILITY} characters")
    metadata = fields.get("metadata", {})
    if not isinstance(metadata, dict):
        found.append("`metadata` must be a mapping")
    elif nested := [str(key) for key, value in metadata.items() if isinstance(value, dict | list)]:
        found.append(f"`metadata` maps to texts, not {', '.join(nested)}")
    tools = fields.get("allowed-tools", "")
    if not isinstance(tools, str) and not (isinstance(tools, list) and all(isinstance(tool, str) for tool in tools)):
        found.append("`allowed-tools` must be text or a list of texts")
    elif isinstance(tools, str) and "," in re.sub(r"\([^()]*\)", "", tools):
        found.append("`allowed-tools` are separated by spaces, not commas")
    if headed.dotted:
        found.append('the frontmatter is closed by "...", not "---"')
    return found


def name_faults(name: str, folder: str) -> list[str]:
    """What the specification forbids in a name; letters of any script count as letters."""
    name = unicodedata.normalize("NFKC", name)
    found = []
    if len(name) > MOST_NAME:
        found.append(f"the name has {len(name):,} characters, {MOST_NAME} are allowed")
    if len(name) > LONGEST_NAME:
        return found
    if name != name.lower():
        found.append(f"the name {name!r} has upper-case letters")
    if name.startswith("-") or name.endswith("-") or "--" in name:
        found.append(f"the name {name!r} may have single hyphens only, and none at its ends")
    if not all(character.isalnum() or character == "-" for character in name):
        found.append(f"the name {name!r} may have letters, digits and hyphens only")
    if name != unicodedata.normalize("NFKC", folder):
        found.append(f"the name {name!r} differs from its folder's, {folder!r}")
    return found


def folder_name(folder: Path) -> str:
    """The name that a skill's folder gives it."""
    return _encodable(unicodedata.normalize("NFKC", folder.name))


def _name(value: Any, folder: Path, problems: list[str]) -> str:
    """The skill's name: what the header says, else the folder's."""
    own = folder_name(folder)
    if not isinstance(value, str) or not value.strip():
        what = "no name" if value is None or value == "" else f"the name {str(value)[:MOST_NAME]!r} is no text"
        problems.append(f"{what}; the folder's is taken, {own!r}")
        return own
    name = _encodable(" ".join(unicodedata.normalize("NFKC", value).split()))
    problems += name_faults(name, folder.name)
    if len(name) > LONGEST_NAME:
        problems.append(f"the folder's name is taken, {own!r}")
        return own
    return name


def _encodable(text: str) -> str:
    """The text with a question mark for what is no UTF-8: the name of a file may hold such bytes."""
    return text.encode("utf-8", "replace").decode()


def _text(value: Any, field: str, problems: list[str]) -> str:
    if value is None:
        return ""
    if isinstance(value, str):
        return " ".join(value.split())
    if isinstance(value, list):
        problems.append(f"`{field}` is a list; it was joined")
        return " ".join(", ".join(_scalar(each) for each in value if not isinstance(each, dict | list)).split())
    if isinstance(value, dict):
        problems.append(f"`{field}` is a mapping, not text; left out")
        return ""
    return _scalar(value)


def _scalar(value: Any) -> str:
    if value is None or isinstance(value, dict | list):
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)


def _tools(value: Any, problems: list[str]) -> tuple[str, ...]:
    """Tools separated by spaces; a pattern in parentheses stays whole ("Bash(git log:*)")."""
    if value is None:
        return ()
    if isinstance(value, list) and all(isinstance(each, str) for each in value):
        return tuple(value)
    if isinstance(value, str):
        found = tuple(re.findall(r"[^\s(,]+(?:\([^()]*\))?", value))
        if re.sub(r"[\s,]", "", value) == "".join(re.sub(r"\s", "", each) for each in found):
            return found
    problems.append("`allowed-tools` is malformed; left out")
    return ()


# ---- A new skill on the disk: a folder with a SKILL.md that the specification allows in every point.

BODY = """
# {title}

Write the steps here in order, with the reason wherever it is not obvious.

1. Look at the data first: shape, types, missing values.
2. …
3. Say what was found, with its unit, and what it rests on.

Keep this file short: what is needed now and then goes into a file beside it, named here (`scripts/` for code that
is run, `references/` for texts that are read).
"""
DESCRIPTION = "Says what the skill does and when to use it, with the words that such a request has. Change this line."


def name_of(text: str) -> str:
    """The valid name nearest to what was typed. Raises UsageError when nothing is left of it."""
    plain = unicodedata.normalize("NFKC", text).strip().lower()
    name = re.sub(r"-{2,}", "-", "".join(char if char.isalnum() else "-" for char in plain))[:MOST_NAME].strip("-")
    if not name:
        raise UsageError(f"{text!r} cannot be a skill's name: letters, digits and single hyphens, such as clean-tables")
    return name


def write_skill(folder: Path, name: str, description: str = "") -> Path:
    """Make `folder/name/SKILL.md`; its path. Raises UsageError when it is there or cannot be written."""
    goal = folder / name
    file = goal / FILE
    told = " ".join((description or DESCRIPTION).split())[:MOST_DESCRIPTION]
    title = name.replace("-", " ").capitalize()
    try:
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL
        with spot(file, make=True, mode=0o777):  # others of a shared project read them too
            pass
        with os.fdopen(opened(file, flags, 0o644), "w", encoding="utf-8", newline="\n") as made:
            made.write(write_headed({"name": name, "description": told}, BODY.format(title=title)))
    except FileExistsError:
        raise UsageError(f"{file} already exists; see it with %skills show {name}") from None
    except OSError as problem:
        raise UsageError(f"{file} cannot be written ({problem.strerror}): fix the permissions, or use --user") from None
    if wrong := violations(goal):
        raise UsageError(f"{file} was written, but fix this: {'; '.join(wrong)}")
    return file
