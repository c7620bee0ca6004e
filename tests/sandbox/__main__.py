"""`python -m tests.sandbox [KIND …]`: the hostile commands as a table by kind: how many did harm without a sandbox, and
how many were held at each level by each way of this system; then what was not held, and what did no harm anyway."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from tests.sandbox.arena import KILLED, LEVELS, Arena, backends, hostile


def main() -> None:
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
