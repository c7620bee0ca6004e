"""What every preview must keep to, checked for all views of a value at once."""

import time
from collections.abc import Callable
from typing import Any

from ipyagent.kernel.variables import describe, preview, short_types, summarize

LIMIT = 4000
SECONDS = 0.2


def timed(call: Callable[[], Any]) -> tuple[Any, float]:
    """What a call gives, and its processor seconds: another process on the machine costs it nothing, and where it waits
    for something this fails."""
    start, worked = time.perf_counter(), time.process_time()
    made = call()
    took = time.process_time() - worked
    assert time.perf_counter() - start < 20 * SECONDS
    return made, took


def shown(value: Any, name: str = "value") -> str:
    """All views of a value, each checked: bytes, time (twice the promise), one printable line each."""
    texts = []
    look: list[tuple[int, Callable[[], str]]] = [
        (LIMIT, lambda: describe(name, value)),
        (2000, lambda: preview(value)),
        (1500, lambda: summarize({name: value})),
        (300, lambda: describe(name, [value], limit=300)),
        (300, lambda: summarize({name: {"inside": value}}, limit=300)),
        (120, lambda: short_types({name: value}).get(name, "")),
    ]
    for limit, call in look:
        text, took = timed(call)
        assert took < 2 * SECONDS, f"{took:.3f} s"
        assert len(text.encode()) <= limit
        assert all(line.isprintable() for line in text.split("\n")), ascii(text)
        texts.append(text)
    return "\n".join(texts)
