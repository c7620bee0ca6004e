"""What a scan costs, in files opened and in memory; `python -m tests.bench recall` prints the times."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

from ipyagent.parts.memory.metadata_index import PART, Memory, Scan
from ipyagent.parts.memory.store import MemoryStore

ROOT = Path(__file__).parents[3]
HEADER = "---\nname: Memory {0}\ndescription: What was said about topic {0}\ntype: project\n---\n\nThe fact.\n"
COUNT = """
import sys
from pathlib import Path
from ipyagent.parts.memory.store import MemoryStore
folder, count, text = Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
def peak():  # in kilobytes; ru_maxrss would also count the process that began this one
    status = Path("/proc/self/status")
    lines = status.read_text().splitlines() if status.exists() else []
    return next((int(line.split()[1]) for line in lines if line.startswith("VmHWM")), 0)
first = MemoryStore(folder.with_name("first"), "project")
first.write("a.md", text, expected=None, by="agent")  # with all that it imports
first.index.mend()
store, opened, before = MemoryStore(folder, "project"), [], peak()
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
print(cold, warm, changed, written, 1024 * (peak() - before) // count)
"""


def test_a_scan_opens_what_has_changed_and_nothing_else_and_keeps_some_kilobytes_of_each(tmp_path: Path) -> None:
    folder, count = tmp_path / "memory", 2_000
    folder.mkdir()
    for number in range(count):
        (folder / f"memory_{number}.md").write_text(HEADER.format(number))
    command = [sys.executable, "-c", COUNT, str(folder), str(count), HEADER.format("another")]
    environ = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, env=environ, capture_output=True, text=True, check=True, timeout=120)
    cold, warm, changed, written, size = map(int, done.stdout.split())
    assert (cold, warm, changed) == (count, 0, 1)
    assert written < 10, "a write among many reads what it changes"
    assert size < 4_000, "bytes for each, at the peak"


def settle(folder: Path) -> None:
    """As if nothing had happened to the folder for an hour."""
    moment = time.time() - 3_600
    for each in (folder, *(child for child in folder.rglob("*") if child.is_dir())):
        os.utime(each, (moment, moment))


def titles(memories: list[Memory]) -> list[str]:
    return sorted(memory.title for memory in memories)


def test_a_glance_sees_whatever_happened_to_the_files_at_once(tmp_path: Path) -> None:
    """Edited in place too, though that leaves the folder as it was."""
    folder = tmp_path / "memory"
    (folder / "deep").mkdir(parents=True)
    for name in ("a", "b", "deep/c"):
        (folder / f"{name}.md").write_text(HEADER.format(name))
    scan = Scan(folder, "project")

    def glanced() -> list[str]:
        settle(folder)
        scan.memories()
        scan.glance()
        return titles(scan.glance())

    assert glanced() == ["Memory a", "Memory b", "Memory deep/c"]
    with (folder / "deep" / "c.md").open("r+") as file:
        file.write(HEADER.format("deep/C"))
    assert titles(scan.glance()) == ["Memory a", "Memory b", "Memory deep/C"]
    assert glanced() == titles(scan.glance())
    (folder / "deep" / "d.md").write_text(HEADER.format("d"))
    assert "Memory d" in titles(scan.glance())
    assert glanced() == titles(scan.glance())
    (folder / "new.md").write_text(HEADER.format("B"))
    (folder / "new.md").replace(folder / "b.md")
    assert "Memory B" in titles(scan.glance())
    assert glanced() == titles(scan.glance())
    (folder / "a.md").unlink()
    (folder / "a.md").write_text(HEADER.format("A"))  # perhaps with the number that the old one had
    assert "Memory A" in titles(scan.glance())
    assert glanced() == titles(scan.glance())
    (folder / "deep" / "d.md").unlink()
    assert titles(scan.glance()) == ["Memory A", "Memory B", "Memory deep/C"]


def test_of_a_huge_folder_what_is_to_be_shown_is_looked_at_and_the_rest_in_turn(tmp_path: Path) -> None:
    folder, many = tmp_path / "memory", PART + 50
    folder.mkdir()
    for number in range(many):
        (folder / f"m{number}.md").write_text(HEADER.format(number))
    settle(folder)
    scan = Scan(folder, "project")
    assert len(scan.memories()) == many
    for name in (f"m{number}.md" for number in (7, many - 1)):
        with (folder / name).open("r+") as file:
            file.write(HEADER.format("X"))
        assert scan.changed([name])
        assert not scan.changed(["m8.md", "m9.md"])
        assert any("Memory X" in titles(scan.glance()) for _ in range(2)), "two glances look at all of them"
        with (folder / name).open("r+") as file:
            file.write(HEADER.format("Y"))
        assert "Memory Y" in titles(scan.memories())
    store = MemoryStore(folder, "project")
    store.list()
    for name in ("m7.md", f"m{many - 1}.md"):
        settle(folder)
        store.list()
        store.change(name, lambda text: text.replace("The fact.", "A fact."), by="user")  # ours are seen at once
        (found,) = (memory.fact for memory in store.glance() if memory.name == name)
        assert found.startswith("A fact.")
    (folder / "m3.md").unlink()
    assert scan.changed(["m3.md"])
    assert scan.changed(["never.md"])
