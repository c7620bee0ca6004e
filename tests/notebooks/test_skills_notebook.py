"""Notebook 04 runs as shipped, and what it prints is what the skill's files and the journal say."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import nbformat as formats
import pytest
from shipped import Run, execute, of

from ipyagent.journal.events import Compacted, SkillLoaded, SkillsListed, SystemPromptFrozen, ToolCalled
from ipyagent.journal.tokens import estimate_text
from ipyagent.parts.skills.parse import violations

nbformat: Any = formats  # its functions are untyped
NOTEBOOK = "04_skills.ipynb"
COLUMNS = ("bill_length_mm", "bill_depth_mm", "flipper_length_mm", "body_mass_g")


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return execute(NOTEBOOK, tmp_path_factory.mktemp("skills"))


def skill(run: Run) -> Path:
    return run.folder / "skills" / "check-measures"


def test_it_runs_without_key_or_network(run: Run) -> None:
    run.check(sessions=1)


def test_the_new_skill_is_valid(run: Run) -> None:
    assert f"wrote {skill(run) / 'SKILL.md'}" in run.text("new")
    assert "trust" not in run.text("new"), "a folder that was empty before is the user's own"
    assert violations(skill(run)) == []
    assert "check-measures is valid in every point" in run.text("valid")


def test_it_is_used_by_its_name_and_its_script_counts_the_real_gaps(run: Run) -> None:
    from palmerpenguins import load_penguins

    first = of(run.sessions[0], SkillLoaded)[0]
    assert (first.name, first.by) == ("check-measures", "model")
    gaps = load_penguins().isna().sum()
    for name in COLUMNS:
        assert f"{name}: {gaps[name]} missing, 0 implausible" in run.text("found")
    assert "* check-measures" in run.text("list")


def test_the_cost_of_each_tier_is_what_the_journal_says(run: Run) -> None:
    system = "\n".join(block["text"] for block in of(run.sessions[0], SystemPromptFrozen)[0].system)
    (line,) = [line for line in system.splitlines() if line.startswith("- check-measures:")]
    loaded = of(run.sessions[0], SkillLoaded)[0]
    script = (skill(run) / "scripts" / "check.py").read_text("utf-8")
    told = run.text("cost")
    assert f"of it this skill {estimate_text(line)}\n" in told
    assert f"tier 2: the instructions {loaded.tokens} tokens, once" in told
    size = int(re.findall(r"the script would be (\d+) tokens", told)[0])
    assert size == pytest.approx(estimate_text(script), abs=2)
    assert {event.name for event in of(run.sessions[0], ToolCalled)} == {"python", "load_skill"}, "run, and never read"


def test_an_edit_is_used_at_the_next_request_and_the_head_stays(run: Run) -> None:
    assert [event.why for event in of(run.sessions[0], SkillsListed)[:2]] == ["", "skills: 1 changed"]
    first, second = of(run.sessions[0], SkillLoaded)
    assert first.digest != second.digest
    assert "animals: 344" in run.text("again")
    assert "animals" not in run.text("found").replace("animals for gaps", "")
    told = run.text("prefix")
    assert f"versions: {first.digest} {second.digest}" in told
    assert "heads rendered: 1\n" in told
    assert int(re.findall(r"read from cache: (\d+)%", told)[0]) >= 90


def test_named_again_it_is_not_sent_twice_and_followed_all_the_same(run: Run) -> None:
    assert len(of(run.sessions[0], SkillLoaded)) == 2
    assert "the skill check-measures is in the context already" in run.text("slash")
    assert "animals: 344" in run.text("slash")


def test_it_stands_again_after_the_compaction(run: Run) -> None:
    (made,) = of(run.sessions[0], Compacted)
    assert "skill check-measures" in made.restored
    assert "skill check-measures" in run.text("compact")


def test_a_bad_file_is_named_with_its_line_and_hides_nothing(run: Run) -> None:
    told = run.text("broken")
    assert "no-description/SKILL.md: line 1: no description: add one to the frontmatter (skipped)" in told
    assert "odd-name/SKILL.md: line 3: an unquoted value with a colon; taken as text" in told
    assert "check-measures" not in told
