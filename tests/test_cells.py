"""The body of a cell reaches the model and the journal as it was typed, whatever it holds."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from kernels import ROOT
from rooms import Room, one_line, room

from ipyagent.errors import UsageError
from ipyagent.extension import CellOptions, parse
from ipyagent.practice.replies import text
from ipyagent.practice.server import PracticeServer
from tests.kernel.forked import forks

BODIES = {
    "braces": "{'foo': 'bar'} and {os.environ[KEY]} and {1+1} and {{x}}",
    "typescript": "const f = (x: number): string => `${x}`;\nexport type A<T> = { [K in keyof T]?: T[K] };",
    "latex": r"$\frac{a}{b}$ and \alpha, \begin{align} x &= 1 \\ y \end{align} $$E=mc^2$$",
    "percent": "%\n%%\n%%time\n% of 50\n%agent new\n%%agent\n100%",
    "dollar": "$x $HOME ${x} $$x",
    "shell": "!ls\n!!ls\n?\n??\n/f 1\n,f a b\n;f a",
    "question": "what is this?\nand this??\nx?\n?x",
    "help at the end": "print?",
    "triple double": 'a """docstring""" b """',
    "triple single": "a '''docstring''' b '''",
    "both": "'''\"\"\"'''\"\"\"\\",
    "backslashes": "C:\\new\\table \\n \\t \\\\ \\x00 \\N{BULLET}\nline \\\ncontinued \\",
    "prompts": ">>> x = 1\n... y\nIn [1]: x\nOut[1]: 2\n   ...: z",
    "indented": "    four\n  two\n\ttab\nnone",
    "blank lines": "\n\n  \nmiddle\n\n\t\nend",
    "trailing spaces": "line   \nlast   ",
    "crlf": "one\r\ntwo\r\nthree",
    "lone cr": "one\rtwo",
    "form feed": "one\x0ctwo\x0bthree\x1cfour\x85five",
    "line separators": "one\u2028two\u2029three",
    "nul": "one\x00two",
    "controls": "\x1b[31mred\x1b[0m \x07\x08",
    "emoji": "👩‍👩‍👧‍👦 🏳️‍🌈 é e\u0301 \u202eabc",
    "chinese": "请画出体重与鳍长的关系图，谢谢！数据在@企鹅里吗？",
    "apostrophe": "don't (quote) \"half",
    "hash": "# not a comment\n#!shebang",
    "big": "x" * 99_999 + "\n" + "é" * 100_000,
    "code": "def f():\n    return {k: v for k, v in {}.items()}\n\nif True:\n    f()?",
    "tags": "</context> <b>&amp;</b> <script>alert(1)</script> </variable>",
}


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Room]:
    folder = tmp_path_factory.mktemp("cells")
    with PracticeServer(lambda body: text("ok")) as server, room(folder, server=server) as made:
        made.ok("import json\n%load_ext ipyagent")
        made.ok("x = 'EXPANDED'; import os; KEY = 'HOME'; f = print")
        yield made


def arrived(place: Room, body: str) -> None:
    """The server and the journal have the body, whole, and nothing went wrong on the way."""
    assert place.words()[-1] == body
    assert place.said()[-1] == body
    assert place.server.refused == []


@pytest.mark.parametrize("outer", ["", "%%time\n", "%%capture held\n"])
def test_the_body_is_literal(place: Room, outer: str) -> None:
    chosen = ["both", "percent", "crlf", "help at the end", "form feed"] if outer else BODIES
    for name in chosen:
        place.ok(f"{outer}%%agent {'--effort low' if 'held' in outer else ''}\n{BODIES[name]}")
        arrived(place, BODIES[name])


def test_the_body_is_literal_through_every_door(place: Room) -> None:
    everything = "\n".join(body for name, body in BODIES.items() if name not in ("big", "lone cr", "nul"))
    place.ok(f"get_ipython().run_cell_magic('agent', '', {everything!r})")
    arrived(place, everything)
    place.ok(f"get_ipython().run_cell({'%%agent' + chr(10) + everything!r}, store_history=False)")
    arrived(place, everything)
    for outer in ("%%time", "%%capture held"):
        place.ok(f"{outer}\nget_ipython().run_cell_magic('agent', '', {everything!r})")
        arrived(place, everything)


def test_cells_of_other_magics_stay_theirs(place: Room) -> None:
    place.ok("%%writefile kept.txt\n%%agent\nhello what?\n%agent what is this?")
    assert (place.folder / "kept.txt").read_text() == "%%agent\nhello what?\n%agent what is this?\n"


def test_captured_output_is_kept_for_the_one_who_captures(place: Room) -> None:
    cell = place.ok("%%capture held\n%%agent\nhello")
    assert cell.data == []
    assert place.kernel.eval("len(held.outputs)") == 1


def test_newlines_at_the_end_blanks_before_the_magic_and_half_a_character_are_all_that_changes(place: Room) -> None:
    place.ok(r"get_ipython().run_cell_magic('agent', '', 'a \ud800 b 😀')")
    arrived(place, "a ? b 😀")
    place.ok("%%agent\n\n  first  \n\n\n")
    arrived(place, "\n  first  ")
    place.ok("\n\n  %%agent --effort low  \n{x}\n")
    arrived(place, "{x}")
    place.ok("%%agent\r\none\r\ntwo")
    arrived(place, "one\r\ntwo")


@pytest.mark.parametrize("cell", ["%%agent", "%%agent\n", "%%agent\n  \n\t\n"])
def test_an_empty_cell_says_how_to_write_one(place: Room, cell: str) -> None:
    before = len(place.server.messages)
    assert "Write a request below" in place.ok(cell).streams
    assert len(place.server.messages) == before


def test_a_request_may_stand_on_the_first_line_when_nothing_stands_below_it(place: Room) -> None:
    place.ok("%%agent my question")
    arrived(place, "my question")
    place.ok("%%agent --effort low --max-turns=3 why {x} -- and  $y?\n\n")
    arrived(place, "why {x} -- and  $y?")
    assert "request is missing" in place.refuses("%%agent --effort low\n\n")


@pytest.mark.parametrize(
    "line",
    ["what is this?", "what is {x} and $x?", "why don't (quote) it?", "show me \"half", "is 100% {'a': 1} right??"],
)
def test_a_line_of_words_is_a_request(place: Room, line: str) -> None:
    place.ok(f"%agent {line}")
    arrived(place, line)


def test_a_line_request_inside_of_a_block_runs_and_inside_of_a_string_does_not(place: Room) -> None:
    place.ok("if x:\n    %agent what is here?\n    y = 1")
    arrived(place, "what is here?")
    place.ok("s = '''\n%agent what is this?\n'''\nt = 1\n%agent and what is that?")
    assert place.kernel.eval("s") == "\n%agent what is this?\n"
    arrived(place, "and what is that?")


def test_the_namespace_and_the_history_stay_clean(place: Room) -> None:
    cell = "%%agent\n{'foo': 'bar'} $x what?"
    place.ok("41 + 1")
    place.ok(cell)
    assert place.kernel.eval("[str(_), len(Out), [k for k in globals() if 'agent' in k.lower()]]")[0] == "42"
    assert place.kernel.eval("get_ipython().history_manager.input_hist_raw[-3]") == cell
    assert place.kernel.eval("In[-3]") != cell  # IPython's own list has what it ran
    assert place.kernel.eval("[k for k in globals() if 'agent' in k.lower()]") == []


def test_typing_line_by_line_is_complete_at_the_blank_line(place: Room) -> None:
    def state(code: str) -> str:
        client = place.kernel.client
        message = client.is_complete(code)
        while (reply := client.get_shell_msg(timeout=10))["parent_header"].get("msg_id") != message:
            pass
        return str(reply["content"]["status"])

    assert state("%%agent") == "incomplete"
    assert state("%%agent\nplot {x") == "incomplete"
    assert state("%%agent\nplot {x\n\n") == "complete"
    assert state("%%agent --effort low\nwhat's this?\n\n") == "complete"
    assert state("x = (1,") == "incomplete"
    assert state("%agent what's this?") == "complete"


def test_nbclient_gives_the_body_as_it_is(tmp_path: Path) -> None:
    import nbformat
    from jupyter_client.manager import AsyncKernelManager
    from nbclient import NotebookClient

    made: Any = nbformat
    names = ["braces", "latex", "percent", "question", "both", "prompts", "blank lines", "crlf", "controls", "chinese"]
    book = made.v4.new_notebook()
    book.cells = [made.v4.new_code_cell("%load_ext ipyagent")]
    book.cells += [made.v4.new_code_cell(f"%%agent\n{BODIES[name]}") for name in names]
    with PracticeServer(lambda body: text("ok")) as server, room(tmp_path, server=server) as place:
        with pytest.MonkeyPatch.context() as patch:
            for name, value in {**place.environ, "PYTHONPATH": str(ROOT)}.items():
                patch.setenv(name, value)
            manager = forks(AsyncKernelManager(kernel_name="python3"))
            found = {"metadata": {"path": str(place.folder)}}
            NotebookClient(book, km=manager, timeout=60, resources=found).execute(cleanup_kc=True)
        assert place.said() == [BODIES[name] for name in names]
        assert server.refused == []
    assert all(output["data"]["text/plain"] for cell in book.cells[2:] for output in cell.outputs)


# ---------------------------------------------------------------------- options

GOOD = {
    "": CellOptions(),
    "--quiet --rerun": CellOptions(quiet=True, rerun=True),
    "--model a/b:c-1  --mode=read_only": CellOptions(model="a/b:c-1", mode="read_only"),
    "--max-turns 3 --effort high --fresh": CellOptions(max_turns=3, effort="high", fresh=True),
}
BAD = {
    "--modle x": "--mode",
    "--max-turn 3": "--max-turns",
    "--quite": "--quiet",
    "--fork --fresh": "either --fresh",
    "--mode": "needs a value",
    "--mode --fresh": "needs a value",
    "--mode Auto": "did you mean auto",
    "--effort hihg": "did you mean high",
    "--max-turns many": "number",
    "--max-turns 0": "number",
    "--max-turns -3": "number",
    "plot it": "below",
    "--fresh=yes": "--fresh",
    "-q": "-q",
    "don't": "below",
    "--max-turns ²": "number",
}


@pytest.mark.parametrize("line", GOOD)
def test_options_are_read(line: str) -> None:
    assert parse(line) == GOOD[line]


def test_a_wrong_option_is_one_line_with_the_nearest() -> None:
    for line in BAD:
        with pytest.raises(UsageError) as caught:
            parse(line)
        assert BAD[line] in str(caught.value)
        assert "\n" not in str(caught.value), line


def test_a_wrong_option_in_a_cell_is_one_line_asks_nothing_and_is_taken_literally(place: Room) -> None:
    before = len(place.server.log)
    for outer in ("", "%%time\n"):
        cell = place.run(f"{outer}%%agent --modle $x\nhello")
        assert "did you mean --mode" in one_line(cell)
    assert len(place.server.log) == before
    place.ok("name = 'claude-opus-5-5'")
    assert "{name}" in json.dumps(place.run("%%agent --mode {name}\nhello").reply["traceback"])
