"""A new skill on the disk: a folder with a SKILL.md that the specification allows in every point."""

from __future__ import annotations

import os
import re
import unicodedata
from pathlib import Path

from ipyagent.errors import UsageError
from ipyagent.headers import write_headed
from ipyagent.nofollow import opened, spot
from ipyagent.parts.skills.parse import FILE, MOST_DESCRIPTION, MOST_NAME, violations

BODY = """
# {title}

Write here what to do, in the order in which it is done, and why where that is not plain.

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
        raise UsageError(f"{text!r} is no name for a skill: letters, digits and single hyphens, such as clean-tables")
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
        raise UsageError(f"{file} is there already; %skills show {name}") from None
    except OSError as problem:
        raise UsageError(f"{file} cannot be written ({problem.strerror}): fix the permissions, or use --user") from None
    if wrong := violations(goal):
        raise UsageError(f"{file} was written, but fix this: {'; '.join(wrong)}")
    return file
