"""What changes on the disk while a session goes on: the head stays, so a reminder with the next request tells."""

from __future__ import annotations

from collections.abc import Mapping

from ipyagent.journal.events import SkillsListed
from ipyagent.journal.tokens import estimate_text
from ipyagent.parts.skills.catalogue import brief
from ipyagent.parts.skills.loaded import Loaded, digest_of, listing_of
from ipyagent.parts.skills.parse import Skill, body_of
from ipyagent.parts.skills.text import guarded

MOST_TOLD = 20
"""Skills that one reminder describes."""


def changed(found: Mapping[str, Skill], loaded: Loaded) -> SkillsListed | None:
    """What the model has to be told of the skills that are there now; None when it knows all."""
    before = loaded.listed
    if before is None:
        return None
    now = listing_of(found)
    new = [name for name in now if name not in before]
    other = [name for name in now if name in before and before[name] != now[name]]
    gone = [name for name in before if name not in now]
    bodies = _newer(found, loaded)
    parts: list[str] = []
    if new or other:
        told = [f"- {name}: {brief(found[name].description)}" for name in [*new, *other][:MOST_TOLD]]
        left = len(new) + len(other) - len(told)
        more = [f"… and {left:,} more, which load_skill takes too"] if left else []
        parts.append("\n".join(["New, or described otherwise than in your list of skills:", *told, *more]))
    if gone:
        rest = f" and {len(gone) - MOST_TOLD:,} more" if len(gone) > MOST_TOLD else ""
        parts.append(f"There no longer: {', '.join(gone[:MOST_TOLD])}{rest}")
    if bodies:
        parts.append(f"Changed since you loaded it: {', '.join(bodies)}. Load it again before you go on by it.")
    if not parts:
        return None
    counts = ((len(new), "new"), (len({*other, *bodies}), "changed"), (len(gone), "gone"))
    why = "skills: " + ", ".join(f"{count:,} {what}" for count, what in counts if count)
    text = f"<context>\nSkills on the disk have changed.\n{_guarded(chr(10).join(parts))}\n</context>"
    return SkillsListed(skills=now, loaded=bodies, text=text, why=why, tokens=estimate_text(text))


def _newer(found: Mapping[str, Skill], loaded: Loaded) -> dict[str, str]:
    """Loaded skills whose body is another now, unless the model was told so."""
    newer: dict[str, str] = {}
    stale = loaded.stale
    for name, load in loaded.standing.items():
        if name not in found:
            continue
        try:
            digest = digest_of(body_of(found[name]))
        except OSError:
            continue
        if digest not in (load.digest, stale.get(name)):
            newer[name] = digest
    return newer


def _guarded(text: str) -> str:
    return guarded(text).replace("</context", "<\\/context")
