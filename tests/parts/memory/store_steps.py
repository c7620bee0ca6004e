"""Kills a writer at its steps on the disk in turn, and prints what stood there after the next one came.

`python store_steps.py FOLDER`: one JSON line a step of each operation: {"operation": its name, "files": {name: text},
"index": [names], "left": [what lies about]}; the last line of an operation is of the writer that was let finish.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import sys
from pathlib import Path
from typing import Any

from ipyagent.parts.memory.index import named_in
from ipyagent.parts.memory.store import MemoryStore

STEPS = frozenset(("open", "os.rename", "os.remove", "os.link", "os.mkdir", "os.rmdir", "os.listdir", "os.utime"))
OPERATIONS: dict[str, Any] = {
    "create": lambda store: store.write("new.md", "# New\n", expected=None, by="agent"),
    "create in a folder": lambda store: store.write("team/new.md", "# New\n", expected=None, by="agent"),
    "change": lambda store: store.change("a.md", lambda text: text.replace("about a", "news of a"), by="agent"),
    "delete": lambda store: store.delete("a.md", by="agent"),
    "rename": lambda store: store.rename("a.md", "z.md", by="agent"),
    "restore": lambda store: store.restore("b.md", "000001", by="agent"),
    "put back": lambda store: store.put_back(next((store.folder / ".history" / "snapshots").iterdir())),
}


def prepared(folder: Path) -> MemoryStore:
    store = MemoryStore(folder, "project")
    for name in "abc":
        store.write(f"{name}.md", f"---\nname: {name}\ndescription: about {name}\n---\n", expected=None, by="agent")
    store.snapshot()
    store.change("b.md", lambda text: text.replace("about b", "news of b"), by="agent")
    store.delete("c.md", by="agent")
    return store


def state(folder: Path) -> dict[str, Any]:
    store = MemoryStore(folder, "project")
    index = [name for line in store.index.text().splitlines() if (name := named_in(line)) is not None]
    files = {memory.name: store.read(memory.name).text for memory in store.list()}
    with store.lock():  # the next writer sweeps
        pass
    new = folder / ".history" / "new"
    left = [path.name for path in new.iterdir()] if new.is_dir() else []
    note = folder / ".history" / "unfinished.json"
    return {"files": files, "index": index, "left": left + [note.name] * note.exists()}


def main(base: str) -> None:
    os.fsync = lambda _: None  # type: ignore[assignment] # a killed process takes nothing from the system
    template = Path(base) / "template"
    prepared(template)
    for number, operation in enumerate(OPERATIONS):
        kill_at_steps(template, operation, number % 2)


def kill_at_steps(template: Path, operation: str, step: int) -> None:
    """At every second step from `step` on: the same steps come in most operations."""
    while True:
        folder = template.with_name(f"step{step}")
        shutil.copytree(template, folder)
        child = os.fork()
        if not child:
            left = step

            def die_at_the_step(event: str, _: object) -> None:
                nonlocal left
                if event in STEPS:
                    if left == 0:
                        os.kill(os.getpid(), signal.SIGKILL)
                    left -= 1

            store = MemoryStore(folder, "project")
            store.exists("a.md")
            sys.addaudithook(die_at_the_step)
            OPERATIONS[operation](store)
            os._exit(0)
        _, status = os.waitpid(child, 0)
        print(json.dumps({"operation": operation, **state(folder)}), flush=True)
        shutil.rmtree(folder)
        if status == 0:
            return
        assert os.WIFSIGNALED(status), status
        step += 7 if operation == "put back" else 2  # it has many steps of a kind


if __name__ == "__main__":
    main(*sys.argv[1:])
