"""Which skills stand in the context: folded from events. What a compaction takes away is not loaded any more;
taken back, it is again."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from contextlib import suppress
from pathlib import PurePath
from typing import NamedTuple

from ipyagent.journal.events import (
    Compacted,
    DecisionUndone,
    Event,
    SkillLoaded,
    SkillsListed,
    SystemPromptFrozen,
    ToolCalled,
    TurnCollapsed,
    TurnsRemoved,
    UserMessage,
)
from ipyagent.journal.tokens import estimate_text
from ipyagent.parts.skills.discover import digest_of, guarded
from ipyagent.parts.skills.parse import Skill, body_of, brief

RESTORED, BEGINNING = "skill ", " (its beginning)"
"""How `Compacted.restored` names a skill, and one that was cut."""
USED_TURNS = 3
"""A skill is in use when it was loaded, or a call named its folder, in so many newest turns."""
_VERSION = re.compile(r'<skill name="([^"\n]*)" version="([0-9a-f]+)">')


class Load(NamedTuple):
    """A version of a skill that came into the context with event `event`; `cut`: only its beginning."""

    event: int
    name: str
    digest: str
    cut: bool


class Loaded:
    """Folds events, one at a time."""

    def __init__(self) -> None:
        self._loads: list[Load] = []
        self._listings: list[SkillsListed] = []
        self._head = 0
        """The compaction that brought the newest head, which goes with it."""
        self._with: dict[int, int] = {}
        """That compaction, by the listing that stands in its head."""
        self._gone: dict[int, tuple[int, int]] = {}
        """Ranges of events that left the context, by the event that says so."""
        self._turns = 0
        self._used: dict[str, int] = {}
        """The turn in which each skill was loaded or used last."""
        self._folders: dict[str, str] = {}
        """The end of each loaded skill's folder, as code and calls name it."""

    def __repr__(self) -> str:
        return f"<Loaded {', '.join(self.standing) or 'nothing'}>"

    def apply(self, event: Event) -> None:
        """Take in the next event."""
        match event:
            case SkillLoaded():
                self._loads.append(Load(event.id, event.name, event.digest, event.cut))
                self._used[event.name] = self._turns
                self._folders[event.name] = "/".join(PurePath(event.folder).parts[-2:])
            case UserMessage():
                self._turns += 1
            case ToolCalled() if self._folders:
                given = json.dumps(event.input, ensure_ascii=False).replace("\\\\", "/")
                asked = event.input.get("name") if event.name == "load_skill" else None
                for name, folder in self._folders.items():
                    if folder in given or name == asked:
                        self._used[name] = self._turns
            case SkillsListed():
                self._listings.append(event)
                self._with[event.id] = self._head if not event.text else 0
            case SystemPromptFrozen():
                self._head = event.compaction
            case Compacted() | TurnsRemoved() | TurnCollapsed():
                self._gone[event.id] = (event.first, event.last)
                if isinstance(event, Compacted):
                    self._loads += restored_in(event)
            case DecisionUndone():
                self._gone.pop(event.event, None)
                self._loads = [load for load in self._loads if load.event != event.event]
                self._listings = [listing for listing in self._listings if self._with[listing.id] != event.event]
            case _:
                pass

    def _stands(self, event: int) -> bool:
        return not any(first <= event <= last for first, last in self._gone.values())

    @property
    def standing(self) -> dict[str, Load]:
        """The newest load of each skill that is in the context, the newest last."""
        found: dict[str, Load] = {}
        for load in self._loads:
            if self._stands(load.event):
                found.pop(load.name, None)
                found[load.name] = load
        return found

    def in_use(self, name: str) -> bool:
        """Whether a skill was loaded or used in the newest turns, see USED_TURNS."""
        return name in self._used and self._turns - self._used[name] < USED_TURNS

    def has(self, name: str, digest: str) -> bool:
        """Whether this very version stands in the context, whole."""
        load = self.standing.get(name)
        return load is not None and load.digest == digest and not load.cut

    @property
    def listed(self) -> Mapping[str, str] | None:
        """The skills that the model knows of, by name with the digests of descriptions; None: none were told."""
        for listing in reversed(self._listings):
            if not listing.text or self._stands(listing.id):
                return listing.skills
        return None

    @property
    def stale(self) -> Mapping[str, str]:
        """Newer versions of bodies that the model was told of."""
        return {
            name: digest
            for listing in self._listings
            if self._stands(listing.id)
            for name, digest in listing.loaded.items()
        }


def listing_of(skills: Mapping[str, Skill]) -> dict[str, str]:
    """Names and digests of descriptions, as `SkillsListed` keeps them."""
    return {name: digest_of(skill.description) for name, skill in skills.items()}


def restored_in(event: Compacted) -> list[Load]:
    """The skills that a compaction put back: those that it says it did, with the versions in its blocks."""
    texts = [str(block.get("text", "")) for block in event.blocks if block.get("type") == "text"]
    versions = {name: version for text in texts for name, version in _VERSION.findall(text)}
    found: list[Load] = []
    for told in event.restored:
        name = told.removeprefix(RESTORED)
        cut = name.endswith(BEGINNING)
        name = name.removesuffix(BEGINNING)
        if told.startswith(RESTORED) and name in versions:
            found.append(Load(event.id, name, versions[name], cut))
    return found[::-1]  # they go newest first


# ---- What changes on the disk while a session goes on: the head stays, so a reminder with the next request tells.

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
    bodies: dict[str, str] = {}  # loaded skills whose body is another now, unless the model was told so
    stale = loaded.stale
    for name, load in loaded.standing.items():
        with suppress(KeyError, OSError):
            digest = digest_of(body_of(found[name]))
            if digest not in (load.digest, stale.get(name)):
                bodies[name] = digest
    parts: list[str] = []
    if new or other:
        rows = [f"- {name}: {brief(found[name].description)}" for name in [*new, *other][:MOST_TOLD]]
        left = len(new) + len(other) - len(rows)
        more = [f"… and {left:,} more, which load_skill takes too"] if left else []
        parts.append("\n".join(["New, or described otherwise than in your list of skills:", *rows, *more]))
    if gone:
        rest = f" and {len(gone) - MOST_TOLD:,} more" if len(gone) > MOST_TOLD else ""
        parts.append(f"There no longer: {', '.join(gone[:MOST_TOLD])}{rest}")
    if bodies:
        parts.append(f"Changed since you loaded it: {', '.join(bodies)}. Load it again before you go on by it.")
    if not parts:
        return None
    counts = ((len(new), "new"), (len({*other, *bodies}), "changed"), (len(gone), "gone"))
    why = "skills: " + ", ".join(f"{count:,} {what}" for count, what in counts if count)
    told = guarded("\n".join(parts)).replace("</context", "<\\/context")
    text = f"<context>\nSkills on the disk have changed.\n{told}\n</context>"
    return SkillsListed(skills=now, loaded=bodies, text=text, why=why, tokens=estimate_text(text))
