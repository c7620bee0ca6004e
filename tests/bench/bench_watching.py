"""What watching costs code that reads: 100,000 small reads with the hook at work and without one, in turns, each in a
process of its own, because a hook cannot be taken out."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator

READS, TIMES = 100_000, 7
_CODE = """
import os, sys, tempfile, time
from contextlib import nullcontext
from ipyagent.kernel import audit
way = sys.argv[1]
class Quiet:
    def __init__(self):
        self.opened = set()
with tempfile.NamedTemporaryFile() as file:
    file.write(b"x" * 200); file.flush()
    path = file.name
    if way == "user":
        with audit.watching(Quiet()):
            open(path, "rb").close()
    with audit.watching(Quiet()) if way == "agent" else nullcontext():
        began = time.process_time()
        for _ in range(int(sys.argv[2])):
            with open(path) as each:
                each.read()
        print(time.process_time() - began)
"""


def measured(reads: int = READS, times: int = TIMES) -> dict[str, float]:
    """Seconds of processor time, the least of `times`: "none" without a hook, "agent" for agent code, "user" for the
    user's own cells once agent code has run."""
    found: dict[str, list[float]] = {"none": [], "agent": [], "user": []}
    for _ in range(times):
        for way, seconds in found.items():
            done = subprocess.run(
                [sys.executable, "-c", _CODE, way, str(reads)], capture_output=True, text=True, check=True
            )
            seconds.append(float(done.stdout))
    return {way: min(seconds) for way, seconds in found.items()}


def rows() -> Iterator[tuple[str, str, str]]:
    """Rows of the table."""
    found = measured()
    each = found["none"] / READS * 1e6
    for way, of, target in (("agent", "agent code", "2 %"), ("user", "the user's own cells", "not watched")):
        yield f"100,000 small reads by {of}", f"{found[way] / found['none'] - 1:+.1%} of {each:.1f} µs a read", target
