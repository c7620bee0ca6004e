"""Finding 2,000 skills, looking again when nothing changed, and the catalogue of them."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path

from ipyagent.journal.tokens import estimate_text
from ipyagent.parts.skills.discover import SkillFolder, SkillIndex
from ipyagent.parts.skills.parse import FILE, catalogue_of
from tests.bench.measuring import Row

SKILLS = 2_000
WINDOWS = (32_000, 200_000)


def rows() -> list[Row]:
    with tempfile.TemporaryDirectory() as made:
        for number in range(SKILLS):
            folder = Path(made, f"skill-{number:04}")
            (folder / "scripts").mkdir(parents=True)
            about = f"Does thing {number} with tables. " + "Use when it is asked for. " * 8
            (folder / FILE).write_text(f"---\nname: {folder.name}\ndescription: {about}\n---\n{'Step. ' * 300}\n")
        shelf = SkillIndex([SkillFolder(Path(made), "user")])
        began = time.perf_counter()
        skills = shelf.look().skills
        first = time.perf_counter() - began
        assert len(skills) == SKILLS
        began = time.perf_counter()
        shelf.look()
        again = time.perf_counter() - began
    found = [
        (f"skills: {SKILLS:,} are found", f"{first:.2f} s", "at most 1 s"),
        ("skills: looked for again, nothing changed", f"{again * 1e3:.0f} ms", "below 100 ms"),
    ]
    for window in WINDOWS:
        tokens = estimate_text(catalogue_of(skills, window).text)
        found.append((f"skills: the catalogue in a window of {window:,}", f"{tokens:,} tokens", f"{window // 50:,}"))
    return found
