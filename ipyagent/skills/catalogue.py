"""Tier 1: the name and description of every skill, in the system prompt, within a share of the window."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from ipyagent.journal.tokens import estimate_text
from ipyagent.skills.parse import MOST_DESCRIPTION, Skill

SHARE = 50
"""The catalogue may take a fiftieth (2 %) of the window."""
LEAST_TOKENS = 400
"""What it may take in the smallest window."""
LEAST = 24
"""Characters of a description below which only names are listed."""
HEAD = (
    "Skills are instructions for kinds of work, written beforehand. Before a task that one of these is for, "
    "load it with the tool load_skill and follow it; a skill's further files are read when it points to them."
)


class Catalogue(msgspec.Struct, frozen=True):
    """`text` for the system prompt ("" without skills); `cut` says what did not fit, for the user."""

    text: str = ""
    cut: str = ""


def catalogue_of(skills: Mapping[str, Skill], window: int) -> Catalogue:
    """The catalogue for a window of `window` tokens. Descriptions are cut evenly, then left out; names that
    do not fit either are counted."""
    if not skills:
        return Catalogue()
    most = max(LEAST_TOKENS, window // SHARE)
    ordered = [skills[name] for name in sorted(skills)]
    whole = _written(ordered, MOST_DESCRIPTION)
    if estimate_text(whole) <= most:
        return Catalogue(whole)
    low, high = 0, MOST_DESCRIPTION
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if estimate_text(_written(ordered, middle)) <= most else (low, middle)
    if low >= LEAST:
        return Catalogue(
            _written(ordered, low), f"{len(ordered)} skills: descriptions are cut at {low} characters to fit the window"
        )
    named = len(ordered)
    while named and estimate_text(_names(ordered[:named], len(ordered))) > most:
        named -= max(1, named // 20)
    told = f"{len(ordered)} skills: only {named} names fit the window" if named < len(ordered) else (
        f"{len(ordered)} skills: only their names fit the window"
    )
    return Catalogue(_names(ordered[:named], len(ordered)), told)


def _written(skills: list[Skill], most: int) -> str:
    lines = [f"- {skill.name}: {_cut(skill.description, most)}" for skill in skills]
    return "\n".join(["<skills>", HEAD, *lines, "</skills>"])


def _names(skills: list[Skill], of: int) -> str:
    more = f" and {of - len(skills)} more, which load_skill lists" if len(skills) < of else ""
    return "\n".join(["<skills>", HEAD, ", ".join(skill.name for skill in skills) + more, "</skills>"])


def _cut(text: str, most: int) -> str:
    text = text.replace("<", "‹").replace(">", "›")
    return text if len(text) <= most else text[: max(0, most - 1)].rstrip() + "…"
