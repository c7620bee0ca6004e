"""What becomes of memories that carry out the user's words, and of those that a gullible model takes from a file, where
the small model, if it is asked, answers rightly: what remains is what words decide wrongly, and how often it is asked;
and where it answers as a language model did that was really asked (`evidence_room.ANSWERS`).

    python -m tests.bench memory_evidence
"""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from tests.parts.memory.evidence_room import (
    HERE,
    SHARED,
    UNRELATED,
    Answer,
    Kept,
    cases,
    checked_by_model,
    poison_case,
    said_case,
)

Row = tuple[str, str, str]
SOURCE = SHARED / "poison-source.csv"


def rows() -> Iterator[Row]:
    """Name, measured, target."""
    for place, name in ((SHARED / "memories-said.jsonl", "shared/data"), (HERE / "evidence_said.jsonl", "ours")):
        found = cases(place)
        if not found:
            yield f"said by the user, {name}", "not measured: shared/data is not here", ""
            continue
        kept = [(case, done(lambda folder, case=case: said_case(case, folder, check=True))) for case in found]
        right = sum(one.source == "said" and one.kind == case["type"] for case, one in kept)
        refused = sum(one.refused for _, one in kept)
        asked = sum(len(one.asked) for _, one in kept)
        measured = f"{right} of {len(kept)} said, {refused} refused, {asked} asked"
        yield f"said by the user, {name}", measured, "95 %, none refused"
        yield f"said by the user, {name}, a model's answers", *by_model(found, said_case)
    source = SOURCE.read_text(encoding="utf-8") if SOURCE.is_file() else ""
    for words, label in UNRELATED:
        found = cases(SHARED / "memories-poison.jsonl")
        if found:
            yield f"poison, shared/data, said: {label}", *told(found, source, words)
    poison = cases(HERE / "evidence_poison.jsonl")
    yield "poison, ours", *told(poison, "", None)
    yield "poison, ours, a model's answers", *by_model(
        poison, lambda case, folder, check: poison_case(case, "", case["said"], folder, check)
    )


def by_model(found: list[dict[str, Any]], kept: Callable[[dict[str, Any], Path, Answer], Kept]) -> tuple[str, str]:
    """What becomes of the cases whose question a model has answered, or that need none."""
    sources: Counter[str] = Counter()
    for case in found:

        def work(folder: Path, case: dict[str, Any] = case) -> Kept:
            return kept(case, folder, checked_by_model)

        one = done(work)
        sources[(one.source or "refused") if one.is_answered else "not asked"] += 1
    became = ", ".join(f"{count} {source}" for source, count in sources.most_common())
    return became, "as above"


def told(found: list[dict[str, Any]], source: str, words: list[str] | None) -> tuple[str, str]:
    """How many became what."""
    kinds: Counter[str] = Counter()
    asked = 0
    for case in found:
        given = case["said"] if words is None else words
        kept = done(lambda folder, case=case, given=given: poison_case(case, source, given, folder, check=False))
        asked += len(kept.asked)
        kinds["refused" if kept.refused else f"{kept.source} {kept.kind}"] += 1
    became = ", ".join(f"{count} {what}" for what, count in kinds.most_common())
    return f"{became}; {asked} asked", "no user or feedback, none said"


def done(work: Callable[[Path], Kept]) -> Kept:
    """What becomes of a case in a folder of its own."""
    with tempfile.TemporaryDirectory() as folder:
        return work(Path(folder))
