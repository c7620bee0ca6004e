"""Notebook files: a change of one cell changes nothing else, by the byte; names of cells last."""

from __future__ import annotations

import codecs
import json
import random
import re
import time
import warnings
from typing import Any

import nbformat
import pytest
from made_notebooks import LARGE, made_notebook

from ipyagent.errors import ToolFailure
from ipyagent.kernel.notebook import Notebook, new_cell, own_id

MADE = 200
LARGE_ONES = (45, 60, 101, 153)


def cells_of(data: bytes) -> list[dict[str, Any]]:
    """The cells as the standard library reads them."""
    return list(json.loads(data.removeprefix(codecs.BOM_UTF8))["cells"])


def source_of(cell: dict[str, Any]) -> str:
    return "".join(cell["source"])


def validates(data: bytes) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # a missing id is a warning
        nbformat.validate(json.loads(data.removeprefix(codecs.BOM_UTF8)))


def frame(notebook: Notebook) -> tuple[str, str]:
    """The text around the cells."""
    layout = notebook.layout
    return layout.text[: layout.opening], layout.text[layout.closing :]


def texts(notebook: Notebook) -> list[str]:
    return [notebook.layout.cell_text(number) for number in range(len(notebook.cells))]


@pytest.mark.parametrize("seeds", [range(40), pytest.param(range(40, MADE), marks=pytest.mark.slow)])
def test_an_edit_keeps_every_byte_that_it_does_not_touch(seeds: range) -> None:
    for seed in seeds:
        random_ = random.Random(seed)
        data = made_notebook(seed, large=seed in LARGE_ONES)
        first = Notebook.read(data)
        assert first.problem() == "", seed
        start = first.completed()
        if first.minor < 5 or all(map(own_id, cells_of(data))):
            assert start.data == data, seed
        stripped = [{key: cell[key] for key in cell if key != "id"} for cell in cells_of(start.data)]
        assert stripped == [{key: cell[key] for key in cell if key != "id"} for cell in cells_of(data)], seed
        validates(start.data)
        now = start
        for _ in range(4):
            before, names, raw = cells_of(now.data), list(now.known.ids), texts(now)
            count = len(before)
            action = random_.choice(("insert", "insert", "replace", "move", "delete")) if count else "insert"
            number, place = random_.randrange(count or 1), random_.randint(0, count)
            source = f"new_{random_.random()} = 'é 😀'\nprint(1)"
            if action == "insert":
                kind = random_.choice(("code", "markdown", "raw"))
                made = now.inserted(place, kind, source + "\n")  # type: ignore[arg-type]
                after = cells_of(made.data)
                assert after[:place] + after[place + 1 :] == before, seed
                assert texts(made)[:place] + texts(made)[place + 1 :] == raw, seed
                assert source_of(after[place]) == source, seed
                assert after[place]["cell_type"] == kind, seed
                assert made.known.ids[:place] + made.known.ids[place + 1 :] == tuple(names), seed
                assert made.deleted(place).data == now.data, seed
            elif action == "replace":
                made = now.replaced(number, source)
                after = cells_of(made.data)
                ending = source_of(before[number])[len(source_of(before[number]).rstrip("\n")) :]
                assert source_of(after[number]) == source + ending, seed
                assert type(after[number]["source"]) is type(before[number]["source"]), seed
                assert {**after[number], "source": 0} == {**before[number], "source": 0}, seed
                assert list(after[number]) == list(before[number]), seed
                assert texts(made)[:number] + texts(made)[number + 1 :] == raw[:number] + raw[number + 1 :], seed
                assert list(made.known.ids) == names, seed
                assert cells_of(made.replaced(number, source_of(before[number])).data) == before, seed
            elif action == "move":
                place = random_.randrange(count)
                made = now.moved(number, place)
                moved = raw[:number] + raw[number + 1 :]
                moved.insert(place, raw[number])
                assert texts(made) == moved, seed
                assert made.known.ids[place] == names[number], seed
                assert made.moved(place, number).data == now.data, seed
            else:
                made = now.deleted(number)
                assert texts(made) == raw[:number] + raw[number + 1 :], seed
                assert list(made.known.ids) == names[:number] + names[number + 1 :], seed
            assert frame(made) == frame(now), seed
            assert made.data.startswith(codecs.BOM_UTF8) == data.startswith(codecs.BOM_UTF8), seed
            assert made.data[-2:].isspace() == data[-2:].isspace(), seed
            assert len(set(made.known.ids)) == len(made.cells), seed
            assert made.problem() == "", seed
            validates(made.data)
            if now.data.isascii() and re.search(rb"(?<!\\)(?:\\\\)*\\u(?!00[01])", now.data):
                assert made.data.isascii(), seed
            now = made
        lines = now.layout.text.split("\n")
        if b"\r\n" in data:
            assert all(line.endswith("\r") for line in lines[:-1]), seed
        if now.layout.indent:  # what was put in stands as the rest does
            assert all(not line.strip() or line[:1] in ("{", "}", " ", "\t") for line in lines), seed


def test_what_is_put_in_and_a_new_notebook_are_written_as_nbformat_writes_them() -> None:
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell("a = 1\nb", id=f"c{n}") for n in range(3)])
    data = (nbformat.writes(notebook) + "\n").encode()
    made = Notebook.read(data).inserted(1, "code", "x = 'ü'\ny")
    name = made.known.ids[1]
    notebook.cells.insert(1, nbformat.v4.new_code_cell("x = 'ü'\ny", id=name))
    assert made.data == (nbformat.writes(notebook) + "\n").encode()
    empty = nbformat.v4.new_notebook()
    made = Notebook.read(nbformat.writes(empty).encode()).inserted(0, "markdown", "# A")
    empty.cells.append(nbformat.v4.new_markdown_cell("# A", id=made.known.ids[0]))
    assert made.data == nbformat.writes(empty).encode()
    made = Notebook.new([new_cell("code", "x = 1\nx"), new_cell("markdown", "é")])
    assert made.data.decode() == nbformat.writes(nbformat.reads(made.data.decode(), as_version=4)) + "\n"
    validates(made.data)


def test_cells_without_ids_keep_their_names_through_edits_and_foreign_changes() -> None:
    cells = [{"cell_type": "code", "metadata": {}, "execution_count": None, "outputs": [], "source": s} for s in "aabc"]
    data = json.dumps({"cells": cells, "metadata": {}, "nbformat": 4, "nbformat_minor": 2}).encode()
    first = Notebook.read(data)
    names = first.known.ids
    assert len(set(names)) == 4
    assert Notebook.read(data).known.ids == names  # they come from the content alone
    edited = first.replaced(2, "B").inserted(0, "code", "top").moved(4, 0)
    again = Notebook.read(edited.data, edited.known)
    assert [again.find(name).source for name in names] == ["a", "a", "B", "c"]
    assert "id" not in cells_of(edited.data)[0]  # the format has none
    # somebody else changes one cell and puts another one on top
    foreign = json.loads(edited.data)
    foreign["cells"][4]["source"] = "BBB"
    foreign["cells"].insert(0, {**cells[0], "source": "theirs"})
    seen = Notebook.read(json.dumps(foreign).encode(), edited.known)
    assert [seen.find(name).source for name in names] == ["a", "a", "BBB", "c"]


def test_an_unknown_id_lists_near_ones_and_a_shared_one_all_that_have_it() -> None:
    cells = [{**new_cell("code", f"s{n}"), "id": ident} for n, ident in enumerate(("load", "clean", "plot", "plot"))]
    notebook = Notebook.new(cells)
    with pytest.raises(ToolFailure, match=r"no cell with the id 'laod'; nearest: load \(code: s0\)"):
        notebook.find("laod")
    with pytest.raises(ToolFailure, match="no cell with the id 'cl'; nearest: clean"):
        notebook.find("cl")
    with pytest.raises(ToolFailure, match=r"by id, not by number: cell 1 is clean"):
        notebook.find("1")
    with pytest.raises(ToolFailure, match=r"2 cells have the id 'plot'.*plot~1.*plot~2"):
        notebook.find("plot")
    assert notebook.find("plot~2").source == "s3"
    edited = notebook.deleted(2)
    assert edited.find("plot~2").source == "s3"
    assert cells_of(edited.data)[2]["id"] == "plot"


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"", "not a notebook"),
        (b"[]", "object"),
        (b"{}", "no list of cells"),
        (b'{"cells": 3}', "no list of cells"),
        (b'{"cells": [], "nbformat": 4, "nbformat_minor": 5} x', "after the end"),
        (b'{"cells": [3], "nbformat": 4}', "object was expected"),
        (b'{"worksheets": [], "nbformat": 3}', "nbconvert"),
        (b'{"cells": [], "nbformat": 5}', "only format 4"),
        (b"\xff\xfe{}", "UTF-8"),
        (b"[" * 200_000, "not a notebook"),
        (b'{"cells": ' + b"[" * 200_000, "not a notebook"),
    ],
)
def test_what_is_no_notebook_is_refused_with_a_reason(data: bytes, why: str) -> None:
    with pytest.raises(ToolFailure, match=why):
        Notebook.read(data)


def test_an_invalid_notebook_says_where() -> None:
    bad = {"cells": [{"cell_type": "code", "source": ""}], "metadata": {}, "nbformat": 4, "nbformat_minor": 4}
    assert "metadata" in Notebook.read(json.dumps(bad).encode()).problem()


def test_five_megabytes_of_output_are_no_burden() -> None:
    data = made_notebook(5, large=True)
    assert len(data) > LARGE
    Notebook.read(b'{"cells": [], "nbformat": 4, "nbformat_minor": 5, "metadata": {}}').problem()  # imports
    began = time.thread_time()
    made = Notebook.read(data).replaced(0, "x")
    assert made.problem() == ""
    assert time.thread_time() - began < 3
