"""What a scan costs: a `stat` a file when nothing changed."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from ipyagent.memory.files import Store

ROOT = Path(__file__).parents[2]
HEADER = "---\nname: Memory {0}\ndescription: What was said about topic {0}\ntype: project\n---\n\nThe fact.\n"
MEASURE = """
import sys, time
from pathlib import Path
from ipyagent.memory.files import Store
store = Store(Path(sys.argv[1]), "project")
started = time.process_time()
assert len(store.list()) == int(sys.argv[2])
cold = time.process_time() - started
warm = []
for _ in range(9):
    started = time.process_time()
    store.list()
    warm.append(time.process_time() - started)
status = Path("/proc/self/status")  # ru_maxrss would also count the process that began this one
peak = next((line.split()[1] for line in status.read_text().splitlines() if line.startswith("VmHWM")), 0) if (
    status.exists()
) else 0
print(cold, min(warm), int(peak) / 1024)
"""


@pytest.mark.parametrize(("count", "most_cold", "most_warm"), [(200, 0.2, 0.005), (10_000, 1.5, 0.045)])
def test_a_scan_is_quick(tmp_path: Path, count: int, most_cold: float, most_warm: float) -> None:
    """In processor time of a process of its own, so that the load of the machine does not count."""
    folder = tmp_path / "memory"
    folder.mkdir()
    for number in range(count):
        (folder / f"memory_{number}.md").write_text(HEADER.format(number))
    command = [sys.executable, "-c", MEASURE, str(folder), str(count)]
    environ = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, env=environ, capture_output=True, text=True, check=True, timeout=60)
    cold, warm, megabytes = map(float, done.stdout.split())
    assert cold < most_cold
    assert warm < most_warm
    assert megabytes < 60


def test_a_write_among_thousands_stays_quick(tmp_path: Path) -> None:
    folder = tmp_path / "memory"
    folder.mkdir()
    for number in range(3_000):
        (folder / f"memory_{number}.md").write_text(HEADER.format(number))
    store = Store(folder, "project")
    store.index.mend()
    started = time.process_time()
    for number in range(5):
        store.write(f"new_{number}.md", HEADER.format(number), expected=None, by="agent")
    assert (time.process_time() - started) / 5 < 0.06
