"""Servers of other products × situations: `ok`, the number of the line that the user reads, or `FAILS`."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

from tests.servers.products import PRODUCTS
from tests.servers.situations import NOT_HERE, REFUSALS, SITUATIONS, refusals


def table() -> Iterator[str]:
    """The lines of the table, each as soon as it is known, and then what the user reads."""
    said: dict[str, int] = {}
    yield f"{'':<24} " + " ".join(f"{product.name:<16}" for product in PRODUCTS)
    refused = {name: lambda product, place, name=name: refusals(product, place, name) for name in REFUSALS}
    for name, situation in {**SITUATIONS, **refused}.items():
        cells = []
        for product in PRODUCTS:
            with tempfile.TemporaryDirectory(prefix="ipyagent-servers-") as place:
                try:
                    line = situation(product, Path(place))
                except AssertionError as wrong:
                    line = "FAILS: " + " ".join(str(wrong).split())[:300]
            if line not in ("", NOT_HERE):
                line = ("FAILS " if line.startswith("FAILS") else "line ") + str(said.setdefault(line, len(said) + 1))
            cells.append(line or "ok")
        yield f"{name:<24} " + " ".join(f"{cell:<16}" for cell in cells)
    yield ""
    yield from (f"{number:>3}  {line}" for line, number in said.items())
