"""`python -m tests.sandbox [KIND …]`: the hostile commands as a table by kind: how many did harm without a sandbox, and
how many were held at each level by each way of this system; then what was not held, and what did no harm anyway.
`python -m tests.sandbox judged`: every command that was judged by words before there was a sandbox, where it is judged
in another way now."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from ipyagent.parts.shell.tool import _unrestorable
from tests.sandbox.arena import KILLED, LEVELS, Arena, backends, hostile


def judged() -> None:
    """A table of how many commands are judged in another way, by what was said of them; then each of them."""
    from tests.tools.shell_cases import ASKED, DESTRUCTIVE, EVERYDAY, READING

    kinds = (
        ("ask", "ran unasked", READING), ("ask", "asked", ASKED), ("auto", "asked", DESTRUCTIVE),
        ("auto", "ran unasked", EVERYDAY),
    )  # fmt: skip
    notes = []
    print(f"{'mode':<6}{'before':<14}{'commands':>9}{'as before':>11}{'otherwise':>11}")
    for mode, before, commands in kinds:
        now = [(command, why) for command, why in _now(mode, commands) if bool(why) != (before == "asked")]
        print(f"{mode:<6}{before:<14}{len(commands):>9}{len(commands) - len(now):>11}{len(now):>11}", flush=True)
        for command, why in now:
            notes.append(f"{mode}, {before} before: {command!r}\n    now {f'asked: {why}' if why else 'runs'}")
    print("\n".join(notes))


def _now(mode: str, commands: list[str]) -> Iterator[tuple[str, str]]:
    """Each with what the user is asked, "" where it runs without a question."""
    from tests.parts.shell.test_shell_cases import Place

    for command in commands:
        with tempfile.TemporaryDirectory(prefix="ipyagent-judged-") as folder:
            place = Place(Path(folder))
            place.workspace.level = "read" if mode == "ask" else "project"
            danger = _unrestorable({"command": command}, place.workspace) if mode == "auto" else ""
            done = None if danger else place.tried(command)
            yield command, danger or ("" if done is None or done.needs is None else done.needs.why)


def main() -> None:
    if sys.argv[1:] == ["judged"]:
        judged()
        return
    ways = backends()
    columns = [f"{name} {level}" for name in ways for level in LEVELS]
    print(f"{'kind':<34}{'commands':>9}{'harmful':>9}" + "".join(f"{each:>20}" for each in columns))
    total, notes = [0] * (2 + len(columns)), []
    with tempfile.TemporaryDirectory(prefix="ipyagent-arena-") as folder, Arena(Path(folder)) as arena:
        for kind, all_of_it in hostile().items():
            if sys.argv[1:] and kind not in sys.argv[1:]:
                continue
            here = [each for each in all_of_it if not each.missing]
            notes += [f"not here ({', '.join(each.missing)}): {each}" for each in all_of_it if each.missing]
            harmed = [each for each in here if arena.attack(each.text, "read", None).harm]
            notes += [f"no harm outside{'' if each.sure else ' (~)'}: {each}" for each in here if each not in harmed]
            row = [len(here), len(harmed)]
            for name, backend in ways.items():
                for level in LEVELS:
                    ran = [(each, arena.attack(each.text, level, backend)) for each in here]
                    failed = [(each, one) for each, one in ran if one.harm or one.status == KILLED]
                    notes += [
                        f"NOT HELD {name} {level}: {each}\n    {one.harm[:3] or 'killed'}" for each, one in failed
                    ]
                    row.append(len(here) - len(failed))
            total = [one + more for one, more in zip(total, row, strict=True)]
            print(f"{kind:<34}{row[0]:>9}{row[1]:>9}" + "".join(f"{each:>20}" for each in row[2:]), flush=True)
    print(f"{'all':<34}{total[0]:>9}{total[1]:>9}" + "".join(f"{each:>20}" for each in total[2:]))
    print("\n".join(notes))


if __name__ == "__main__":
    main()
