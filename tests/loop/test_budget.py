"""What was spent today is counted whoever spends it, at once or one after the other."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from ipyagent.loop.budget import add_spent, spent_today, today
from ipyagent.project import update_object

SPENDS = """
import sys, pathlib
from ipyagent.loop.budget import add_spent
for _ in range(40):
    assert add_spent(pathlib.Path(sys.argv[1]), 0.01)
"""


def test_kernels_that_end_their_turns_together_lose_no_money(tmp_path: Path) -> None:
    path = tmp_path / "spend.json"
    at_work = [subprocess.Popen([sys.executable, "-c", SPENDS, str(path)]) for _ in range(3)]
    assert [process.wait(30) for process in at_work] == [0, 0, 0]
    assert spent_today(path) == 1.2


def test_other_days_stay_and_a_file_that_is_none_counts_as_nothing(tmp_path: Path) -> None:
    path = tmp_path / "spend.json"
    path.write_text('{"2020-01-01": 3.5}')
    assert add_spent(path, 0.25)
    assert json.loads(path.read_text()) == {"2020-01-01": 3.5, today(): 0.25}
    for broken in ("[1]", "{", "[" * 100_000, f'{{"{today()}": "much"}}'):
        path.write_text(broken)
        assert spent_today(path) == 0.0
    other = tmp_path / "other.json"
    update_object(other, {"a": 1})
    assert update_object(other, lambda stands: {"b": len(stands)}) == {"a": 1, "b": 1}
