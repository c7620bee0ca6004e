"""A process that works in a memory directory and writes down what it began and what it finished.

`python store_hands.py FOLDER LOG NAME COUNT SEED`: adds, edits, renames and deletes; NAME "dream" reads, and
commits what it made of it with the digests it read. Each line of the log is JSON: [began or done, operation, …].
"""

from __future__ import annotations

import hashlib
import json
import os
import random
import sys
from pathlib import Path
from typing import TextIO

from ipyagent.errors import MemoryRefused
from ipyagent.parts.memory.store import MemoryStore

SHARED = [f"shared_{number}.md" for number in range(4)]
END = "<!-- end -->\n"
"""The last line of every text: what has it is whole."""


def text_of(name: str, *tokens: str) -> str:
    """Words of its own, so that no two are about the same; and a day that a dream makes a date of."""
    lines = "".join(f"- {token}\n" for token in tokens)
    letters = hashlib.sha256(name.encode()).hexdigest().translate(str.maketrans("0123456789", "ghijklmnop"))
    own = " ".join(letters[at : at + 5] for at in range(0, 60, 5))
    head = f"name: {name}\ndescription: {own}\ntype: project"
    return f"---\n{head}\n---\n\n# Facts\n{lines}\nDue on Thursday.\n\n{END}"


def with_token(text: str, token: str) -> str:
    return text.replace("# Facts\n", f"# Facts\n- {token}\n", 1)


class Log:
    def __init__(self, file: TextIO) -> None:
        self._file = file

    def write(self, *words: str) -> None:
        self._file.write(json.dumps(words) + "\n")
        self._file.flush()


def work(store: MemoryStore, log: Log, me: str, count: int, chance: random.Random) -> None:
    own: list[str] = []
    stale = {name: store.read(name) for name in SHARED}
    for number in range(count):
        token = f"{me}-{number}"
        choice = chance.random()
        if choice < 0.3 or not own:
            name = f"{me}_{number}.md" if chance.random() < 0.7 else f"team_{me}/{number}.md"
            log.write("began", "add", name, token)
            store.write(name, text_of(name, token), expected=None, by="agent")
            log.write("done", "add", name, token)
            own.append(name)
        elif choice < 0.6:
            name = chance.choice(SHARED)
            log.write("began", "edit", name, token)
            if chance.random() < 0.5:
                store.change(name, lambda text, token=token: with_token(text, token), by="agent")  # type: ignore[misc]
            else:  # from a text that was read a while ago
                store.write(name, with_token(stale[name].text, token), expected=stale[name].digest, by="agent")
            log.write("done", "edit", name, token)
            if chance.random() < 0.5:
                stale[name] = store.read(name)
        elif choice < 0.75:
            name = chance.choice(own)
            log.write("began", "edit", name, token)
            store.change(name, lambda text, token=token: with_token(text, token), by="agent")  # type: ignore[misc]
            log.write("done", "edit", name, token)
        elif choice < 0.88:
            old = own.pop(chance.randrange(len(own)))
            new = f"{me}_renamed_{number}.md"
            log.write("began", "rename", old, new)
            store.rename(old, new, by="agent")
            log.write("done", "rename", old, new)
            own.append(new)
        else:
            name = own.pop(chance.randrange(len(own)))
            log.write("began", "delete", name)
            store.delete(name, by="agent")
            log.write("done", "delete", name)
    log.write("done", "all")


def dream(store: MemoryStore, log: Log, count: int, chance: random.Random) -> None:
    """Stages what it read and commits file by file; whoever wrote meanwhile is not overwritten."""
    for number in range(count):
        staged = {}
        for memory in chance.sample(found := store.list(), min(3, len(found))):
            try:
                staged[memory.name] = store.read(memory.name)
            except MemoryRefused as problem:
                if problem.reason != "missing":
                    raise
        store.index.loaded()
        for name, read in staged.items():
            assert read.text.endswith(END), f"{name} is not whole: {read.text!r}"
            token = f"dream-{number}"
            log.write("began", "dream", name, token)
            try:
                if name in SHARED:
                    store.write(name, with_token(read.text, token), expected=read.digest, by="dream")
                else:  # rewritten only if nobody touched it: it may be gone by now
                    store.change(name, lambda text, token=token: with_token(text, token), by="dream")  # type: ignore[misc]
                log.write("done", "dream", name, token)
            except MemoryRefused as problem:
                if problem.reason != "missing":
                    raise
    log.write("done", "all")


def main(folder: str, log: str, me: str, count: str, seed: str) -> None:
    os.fsync = lambda _: None  # type: ignore[assignment] # a killed process takes nothing from the system
    store = MemoryStore(Path(folder), "project")
    chance = random.Random(int(seed))
    with Path(log).open("a", encoding="utf-8") as file:
        if me == "dream":
            dream(store, Log(file), int(count), chance)
        else:
            work(store, Log(file), me, int(count), chance)


if __name__ == "__main__":
    main(*sys.argv[1:])
