"""`/name` at the start of a request loads a skill; the rest is the request. What names no skill is plain text."""

from __future__ import annotations

import re
from typing import NamedTuple

from ipyagent.skills.desk import Skills, find, nearest

_SLASH = re.compile(r"\s*/([^\s/\\]+)(?=\s|$)")
_NAME = re.compile(r"\w[\w-]{0,63}")


class Slash(NamedTuple):
    """`skills` by name; `request` the text without them ("" when nothing was at its start); `notices` for the user."""

    skills: tuple[str, ...] = ()
    request: str = ""
    notices: tuple[str, ...] = ()


def read_slash(text: str, skills: Skills) -> Slash:
    """What stands at the start of a request, with the skills of the newest look; and what `%skills load` left
    for it."""
    found = skills.latest.skills
    names = [name for name in skills.asked if name in found]
    skills.asked.clear()
    rest, here = text, False
    notices: list[str] = []
    while skills.on and (match := _SLASH.match(rest)) is not None:
        skill = find(match[1], found)
        if skill is None:
            if not here and _NAME.fullmatch(match[1]):
                near = nearest(match[1], found)
                hint = f"; did you mean /{near[0]}?" if near else ""
                notices.append(f"there is no skill {match[1]!r}{hint}; it is sent as text (%skills lists all)")
            break
        names.append(skill.name)
        rest, here = rest[match.end() :], True
    request = rest.strip() or f"Go by the skill {names[-1]} now." if here else ""
    return Slash(tuple(dict.fromkeys(names)), request, tuple(notices))
