"""A loaded skill as the model reads it: its body, its folder, and which files stand there.

Nothing in a skill can close the element that holds it, and none takes more of the context than its share.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

from ipyagent.parts.skills.catalogue import brief
from ipyagent.parts.skills.discover import SKIPPED
from ipyagent.parts.skills.loaded import digest_of
from ipyagent.parts.skills.parse import FILE, Skill

MOST_FILES = 30
MOST_LOOKED_AT = 2_000
"""Files that are named, and files that are looked at for that."""
MOST_CHARS = 60_000
"""Characters of a body that are loaded at once; the rest is in the file."""
_CLOSING = re.compile(r"</(?=\s*skill\b)", re.I)


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
