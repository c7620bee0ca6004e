"""What a scan costs, in files opened and in memory; `python -m tests.bench recall` prints the times."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
HEADER = "---\nname: Memory {0}\ndescription: What was said about topic {0}\ntype: project\n---\n\nThe fact.\n"
COUNT = """
import sys
from pathlib import Path
from ipyagent.memory.files import Store
folder, count, text = Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
store, opened = Store(folder, "project"), []
sys.addaudithook(lambda event, args: opened.append(str(args[0])) if event == "open" else None)
def memories():
    found = [name for name in opened if name.endswith(".md") and "MEMORY" not in name]
    opened.clear()
    return len(found)
assert len(store.list()) == count
cold = memories()
assert len(store.list()) == count
warm = memories()
(folder / "memory_3.md").write_text(text)
opened.clear()
assert len(store.list()) == count
changed = memories()
store.index.mend()
opened.clear()
store.write("new.md", text, expected=None, by="agent")
written = memories()
status = Path("/proc/self/status")  # ru_maxrss would also count the process that began this one
peak = next((line.split()[1] for line in status.read_text().splitlines() if line.startswith("VmHWM")), 0) if (
    status.exists()
) else 0
print(cold, warm, changed, written, int(peak) // 1024)
"""


@pytest.mark.parametrize("count", [200, 10_000])
def test_a_scan_opens_what_has_changed_and_nothing_else(tmp_path: Path, count: int) -> None:
    folder = tmp_path / "memory"
    folder.mkdir()
    for number in range(count):
        (folder / f"memory_{number}.md").write_text(HEADER.format(number))
    command = [sys.executable, "-c", COUNT, str(folder), str(count), HEADER.format("another")]
    environ = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, env=environ, capture_output=True, text=True, check=True, timeout=120)
    cold, warm, changed, written, megabytes = map(int, done.stdout.split())
    assert (cold, warm, changed) == (count, 0, 1)
    assert written < 10, "a write among many reads what it changes"
    assert megabytes < 80
