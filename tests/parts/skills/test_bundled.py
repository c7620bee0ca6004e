"""The skills of the repository come with the package, and each is valid in every point."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

from ipyagent.parts.skills.discover import SkillFolder, SkillIndex, bundled_folder
from ipyagent.parts.skills.parse import violations

ROOT = Path(__file__).resolve().parents[3]


def test_the_wheel_takes_them_where_they_are_looked_for(tmp_path: Path) -> None:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    taken = settings["tool"]["hatch"]["build"]["targets"]["wheel"]["force-include"]
    goal = tmp_path / taken["skills"]
    shutil.copytree(ROOT / "ipyagent", tmp_path / "ipyagent", ignore=shutil.ignore_patterns("__pycache__"))
    goal.mkdir(parents=True)
    code = "from ipyagent.parts.skills.discover import bundled_folder; print(bundled_folder())"
    environ = {**os.environ, "PYTHONPATH": str(tmp_path)}
    told = subprocess.run([sys.executable, "-c", code], env=environ, cwd=tmp_path, capture_output=True, text=True)
    assert told.stdout.strip() == str(goal.resolve()), told.stderr


def test_each_is_valid_and_short_and_none_hides_another() -> None:
    assert bundled_folder() == ROOT / "skills", "in a checkout they are beside the package"
    found = SkillIndex([SkillFolder(bundled_folder(), "bundled")]).look()
    assert found.problems == ()
    assert len(found.skills) >= 8
    for skill in found.skills.values():
        assert violations(skill.folder) == []
        assert skill.file.read_text().count("\n") < 150
