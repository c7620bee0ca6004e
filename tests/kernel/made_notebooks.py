"""Notebooks as they occur, made from a number: formats 4.0 to 4.5, ids there, missing or shared, attachments, raw
cells, every way to write JSON. The same number gives the same bytes."""

from __future__ import annotations

import json
import random
from typing import Any

WORDS = ("x = 1", "df.groupby('a').sum()", "# Überschrift", "print('日本語 😀')", "%timeit f()", 'c = "a\\\\u0041"', "")
LARGE = 5_000_000
"""Characters of a large output."""


def made_notebook(seed: int, *, large: bool = False) -> bytes:
    """The bytes of one notebook; `large`: with an output of 5 MB."""
    random_ = random.Random(seed)
    minor = seed % 6
    lists = random_.random() < 0.7
    cells = [_cell(random_, number, minor, lists) for number in range(random_.randint(0 if seed % 20 == 7 else 2, 9))]
    if large:
        cells.append(_code(random_, {}, "big()", lists))
        rows = [f"row {n} " + "y" * 90 + "\n" for n in range(LARGE // 100)]
        cells[-1]["outputs"] = [
            {"output_type": "stream", "name": "stdout", "text": rows if lists else "".join(rows)},
        ]
    if minor >= 5:
        for number, cell in enumerate(cells):
            if seed % 4 != 1 or random_.random() < 0.5:  # else some have none, though they must
                cell["id"] = f"c{number}-{random_.randint(0, 9999):04}"
    order = random_.choice((sorted, list, lambda keys: sorted(keys, reverse=True)))
    cells = [{key: cell[key] for key in order(list(cell))} for cell in cells]
    metadata: dict[str, Any] = {"kernelspec": {"display_name": "Python 3", "name": "python3"}, "widgets": {"n": 1.50}}
    whole: dict[str, Any] = {"cells": cells, "metadata": metadata, "nbformat": 4, "nbformat_minor": minor}
    if random_.random() < 0.3:
        whole = {key: whole[key] for key in ("nbformat", "nbformat_minor", "cells", "metadata")}
    indent = random_.choice((1, 1, 1, 2, 4, "\t", None))
    colon, comma = random_.choice(((": ", ","), (": ", ", "), (":", ","))) if indent is None else (": ", ",")
    text = json.dumps(whole, indent=indent, ensure_ascii=random_.random() < 0.4, separators=(comma, colon))
    text = text.replace("1.5", "1.50e0", 1)  # a number that a program would write in another way
    if random_.random() < 0.7:
        text += "\n"
    if random_.random() < 0.2:
        text = text.replace("\n", "\r\n")
    data = text.encode()
    return b"\xef\xbb\xbf" + data if random_.random() < 0.1 else data


def _cell(random_: random.Random, number: int, minor: int, lists: bool) -> dict[str, Any]:
    source = "\n".join(random_.choice(WORDS) for _ in range(random_.randint(0, 5))) + random_.choice(("", "", "\n"))
    kind = random_.choice(("code", "code", "markdown", "raw"))
    metadata: dict[str, Any] = random_.choice(({}, {"collapsed": True, "foo": {"a": [1, 2]}}, {"tags": ["x"]}))
    if kind == "code":
        return _code(random_, metadata, source, lists)
    cell: dict[str, Any] = {"cell_type": kind, "metadata": metadata, "source": _form(source, lists)}
    if minor >= 1 and random_.random() < 0.5:
        cell["attachments"] = {f"image{number}.png": {"image/png": "iVBORw0KGgo="}}
    return cell


def _code(random_: random.Random, metadata: dict[str, Any], source: str, lists: bool) -> dict[str, Any]:
    outputs: list[dict[str, Any]] = [
        {"output_type": "stream", "name": "stdout", "text": _form("a\nb\n", lists)},
        {"output_type": "display_data", "metadata": {}, "data": {"image/png": "iVBORw0KGgo=\n", "text/plain": "<F>"}},
        {"output_type": "error", "ename": "E", "evalue": "\x1b[31mé", "traceback": ["\x1b[0;31m", "no"]},
    ]
    return {
        "cell_type": "code",
        "execution_count": random_.choice((None, 3)),
        "metadata": metadata,
        "outputs": outputs[: random_.randint(0, 3)],
        "source": _form(source, lists),
    }


def _form(text: str, lists: bool) -> list[str] | str:
    return text.splitlines(keepends=True) if lists else text
