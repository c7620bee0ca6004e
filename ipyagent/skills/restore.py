"""Loaded skills that are in use stand again after a compaction: the newest first, each and all within a budget, the
head of one that is too long."""

from __future__ import annotations

from ipyagent.journal.tokens import estimate_text
from ipyagent.skills.desk import Skills
from ipyagent.skills.loaded import BEGINNING, RESTORED, Loaded
from ipyagent.skills.parse import Skill, body_of
from ipyagent.skills.text import MOST_CHARS, skill_text

EACH, ALL = 5_000, 25_000
"""Tokens of one skill, and of all of them."""
LEAST = 300
"""Tokens below which a beginning is of no use."""


def restorable(skills: Skills, loaded: Loaded, room: int = ALL) -> list[tuple[str, str]]:
    """Name for the user and text for the model of each skill that stands in the context now and is in use; in `room`
    tokens, uncalibrated."""
    found = skills.look().skills
    room = min(room, ALL)
    back: list[tuple[str, str]] = []
    for name in reversed(loaded.standing):
        skill = found.get(name)
        if skill is None or room < LEAST or not loaded.in_use(name):
            continue
        try:
            text, cut = _fitted(skill, body_of(skill), skills.shown(skill.folder), min(EACH, room))
        except OSError:
            continue
        room -= estimate_text(text)
        back.append((f"{RESTORED}{name}{BEGINNING if cut else ''}", text))
    return back


def _fitted(skill: Skill, body: str, folder: str, tokens: int) -> tuple[str, bool]:
    """A skill's text in at most `tokens` tokens, as far as its body can be cut."""
    most = min(len(body), MOST_CHARS)
    text, cut = skill_text(skill, body, folder, most=most)
    while estimate_text(text) > tokens and most > 200:
        most = most * min(95, 97 * tokens // max(1, estimate_text(text))) // 100
        text, cut = skill_text(skill, body, folder, most=max(200, most))
    return text, cut
