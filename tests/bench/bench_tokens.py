"""How near token estimates come to the reference vocabulary (`ctok`), before and after calibration.

`ctok` needs Python 3.12: it is imported where it is installed, else the interpreter named by
CTOK_PYTHON counts, else nothing is measured and the reason is said.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
from collections.abc import Sequence

from ipyagent.journal.events import Usage
from ipyagent.journal.tokens import Calibration, Count, estimate_text, learn_from
from tests.bench.measuring import Row
from tests.bench.text_samples import samples

VOCABULARY = "4.7"
FRAME = "x"
"""A text of one token: what the reference counts for it beyond that is the message's frame, which is
no part of a text."""
_COUNT = (
    "import ctok, json, sys\n"
    f"print(json.dumps([ctok.token_count(text, {VOCABULARY!r}) for text in json.load(sys.stdin)]))"
)


def reference(texts: Sequence[str]) -> list[int] | str:
    """Tokens of each text by the reference, without the frame of a message; the reason in words when
    there is none."""
    counts = _counted([FRAME, *texts])
    return counts if isinstance(counts, str) else [count - counts[0] + 1 for count in counts[1:]]


def _counted(texts: Sequence[str]) -> list[int] | str:
    try:
        import ctok
    except ImportError:
        python = os.environ.get("CTOK_PYTHON", "")
        if not python:
            return "ctok is not installed (it needs Python 3.12); set CTOK_PYTHON to an interpreter that has it"
        done = subprocess.run(
            [python, "-c", _COUNT], input=json.dumps(list(texts)), capture_output=True, text=True, check=False
        )
        if done.returncode:
            return f"CTOK_PYTHON={python}: {done.stderr.strip().splitlines()[-1]}"
        counts: list[int] = json.loads(done.stdout)
        return counts
    return [ctok.token_count(text, VOCABULARY) for text in texts]


def errors_before(counted: dict[str, list[tuple[str, int]]]) -> dict[str, list[float]]:
    """Signed relative errors of single estimates by kind."""
    return {kind: [estimate_text(text) / real - 1 for text, real in pairs] for kind, pairs in counted.items()}


def errors_after(pieces: Sequence[tuple[str, int]], *, learned: int = 5) -> tuple[list[float], list[float]]:
    """A session that adds one piece a turn: after `learned` turns, the absolute errors of the
    predicted next prompt, and those of the new part alone (which is harder)."""
    calibration, base = Calibration(), 0
    whole: list[float] = []
    added: list[float] = []
    for turn, (text, real) in enumerate(pieces):
        raw = estimate_text(text)
        predicted = Count(base, raw, calibration.factor).tokens
        if turn >= learned:
            whole.append(abs(predicted / (base + real) - 1))
            added.append(abs((predicted - base) / real - 1))
        calibration = learn_from(calibration, predicted=predicted, raw=raw, usage=Usage(input=base + real))
        base += real
    return whole, added


def measure() -> dict[str, list[tuple[str, int]]] | str:
    """Every sample with its reference count, by kind; the reason when there is no reference."""
    if isinstance(missing := reference([]), str):
        return missing
    texts = samples()
    flat = [text for kind in texts.values() for text in kind]
    counts = reference(flat)
    if isinstance(counts, str):
        return counts
    left = iter(counts)
    return {kind: [(text, next(left)) for text in group] for kind, group in texts.items()}


def rows() -> list[Row]:
    counted = measure()
    if isinstance(counted, str):
        return [("token estimates against ctok", f"not measured: {counted}", "")]
    before = errors_before(counted)
    every = [abs(error) for errors in before.values() for error in errors]
    made = [
        (
            f"tokens of {kind}: mean error, mean sign",
            f"{100 * statistics.mean(map(abs, errors)):.1f} %, {100 * statistics.mean(errors):+.1f} %, "
            f"worst {100 * max(errors, key=abs):+.0f} %",
            "at most 8 %",
        )
        for kind, errors in before.items()
    ]
    mean = f"{100 * statistics.mean(every):.1f} %"
    made.append(("tokens of all kinds: mean error before calibration", mean, "at most 8 %"))
    sessions = {kind: [*pairs, *pairs] for kind, pairs in counted.items()}
    sessions["all in turn"] = [pair for group in zip(*counted.values(), strict=False) for pair in group]
    whole: list[float] = []
    added: list[float] = []
    for pieces in sessions.values():
        one, other = errors_after(pieces)
        whole += one
        added += other
    for what, errors in (("the next prompt", whole), ("its new part", added)):
        p95 = statistics.quantiles(errors, n=20)[-1]
        made.append(
            (
                f"after 5 turns, error of {what}: median, p95",
                f"{100 * statistics.median(errors):.1f} %, {100 * p95:.1f} %",
                "at most 5 %, 15 %" if what == "the next prompt" else "",
            )
        )
    return made
