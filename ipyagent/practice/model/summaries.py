"""Extractive summaries in the nine sections of a compaction: at most about 2,000 tokens, and shorter than what they
stand for. Used for the client's own compactions and, without the tags, for the server's."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from ipyagent.practice.server.tokens import count_json, count_text

from . import boundaries
from .digest import TITLES, Material, cut, fit, gist, material, result_line, squeezed

MOST: Final = 2_000
_SHARE: Final = 0.8
"""The part of the conversation's own tokens that a summary may have; below some 200 the headings alone are more."""
_FRAME: Final = 80
"""Tokens of the headings, and of what fills an empty section."""
_ROOM: Final = re.compile(r"room for about ([\d,]+) tokens")
_BEGINS: Final = re.compile(r"The part begins with: “(.*?)…?”", re.S)
_ENDS: Final = re.compile(r"It ends with: “(.*?)…?”", re.S)


def summary(body: Mapping[str, Any]) -> str:
    """The answer to a compaction directive: `<analysis>`, then `<summary>`."""
    _, told = boundaries.directive(body.get("messages") or [])
    begins, ends = _BEGINS.search(told), _ENDS.search(told)
    found = material(body, begins[1] if begins else "", ends[1] if ends else "")
    failed = sum(step.failed for step in found.steps)
    scratch = f"{len(found.requests)} requests, {len(found.steps)} tool calls, {failed} errors; lines are taken over."
    room = _ROOM.search(told)
    most = min(MOST, int(room[1].replace(",", "")) - 60) if room else MOST
    return f"<analysis>\n{scratch}\n</analysis>\n<summary>\n{sections(found, most)}\n</summary>"


def extract(body: Mapping[str, Any]) -> str:
    """The summary of a conversation that ends without a directive, as the server's compactions hold it."""
    return sections(material(body))


def sections(found: Material, most: int = MOST) -> str:
    """The nine sections, numbered, in about `most` tokens; one without matter says "none"."""
    newest, old = found.newest, found.old
    asked = newest.asked or boundaries.request_in("- " + "\n- ".join(old.get(9, ())))
    waits = bool(newest.said) or not asked
    made: dict[int, str] = {
        7: "" if waits else "- the newest request (9)",
        9: f"- {'Wait for the user' if waits else 'Go on with it'}. The last request was: “{cut(asked, 240)}”",
    }
    left = min(most, int(_SHARE * _size(found))) - _FRAME - sum(count_text(text) for text in made.values())

    def part(number: int, lines: list[str], share: float) -> None:
        nonlocal left
        made[number] = fit(list(dict.fromkeys(lines)), int(left * share), squeezed if number in (5, 6) else cut)
        left -= count_text(made[number])

    known = found.variables()
    names = {line.split(":")[0] for line in known}
    files = [f"Files: {', '.join(found.files())}"] if found.files() else []
    part(6, [*old.get(6, ()), *(f"“{each}”" for each in found.requests)], 0.55)
    part(5, [*old.get(5, ()), *found.solved()], 0.4)
    part(3, [*(line for line in old.get(3, ()) if line.split(":")[0] not in names), *files, *known], 0.4)
    if code := _code(found, int(left * 0.5)):
        made[3] = "\n".join(filter(None, [made[3], code]))
        left -= count_text(code)
    part(4, [*old.get(4, ()), *found.errors()], 0.5)
    said = [f"{cut(newest.asked, 120)} → {gist(newest.said)}" if newest.said else cut(asked, 200)]
    work = [result_line(step, 160) for step in newest.steps][-3:]
    part(8, [*said, *work] if newest.asked else list(old.get(8, ())), 0.6)
    first = [*old.get(1, ())[:1], *found.requests[:1]][:1]
    part(1, first + [each for each in found.requests[-1:] if each not in first], 0.7)
    part(2, [*old.get(2, ()), *_concepts(found)], 1.0)
    return "\n\n".join(f"{number}. {title}:\n{made[number] or '- none'}" for number, title in enumerate(TITLES, 1))


def _size(found: Material) -> int:
    turns = found.conversation.turns
    words = sum(count_text(turn.asked) + count_text(turn.said) + sum(map(count_text, turn.extras)) for turn in turns)
    former = sum(count_text(line) for lines in found.old.values() for line in lines)
    return words + former + sum(count_json(dict(step.input)) + count_text(step.text) for step in found.steps)


def _concepts(found: Material) -> list[str]:
    """Columns and tables that code names, and packages it imports."""
    codes = "\n".join(found.codes)
    packages = sorted(set(re.findall(r"^(?:import|from) ([A-Za-z_]\w*)", codes, re.M)))
    columns = list(dict.fromkeys(re.findall(r"\[[\"']([^\"'\n]{1,40})[\"']\]", codes)))
    return [
        *([f"Packages: {', '.join(packages)}"] if packages else []),
        *([f"Columns: {', '.join(columns[:30])}"] if columns else []),
    ]


def _code(found: Material, room: int) -> str:
    """The newest code that fits, whole pieces only."""
    kept: list[str] = []
    for code in reversed(found.codes):
        cost = count_text(code) + 6
        if cost > room:
            break
        room -= cost
        kept.append(code)
    return "```python\n" + "\n\n".join(reversed(kept)) + "\n```" if kept else ""
