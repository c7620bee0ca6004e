"""Tier 1: the name and description of every skill, in the system prompt, within a share of the window."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from itertools import islice

import msgspec

from ipyagent.journal.tokens import estimate_text
from ipyagent.parts.skills.parse import Skill

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
