"""What a request names is attached, what it may name is offered, and the user's own tools are the model's."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from rooms import Room, plain, results, room

from ipyagent.assembly.requests import find
from ipyagent.practice.replies import text, tool
from ipyagent.practice.server import PracticeServer


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Room]:
    """A kernel in mode auto; its tests share a conversation."""
    with PracticeServer() as server, room(tmp_path_factory.mktemp("mentions"), server=server) as made:
        made.ok("%load_ext ipyagent\n%agent mode auto")
        yield made
        assert server.refused == []


def test_mentions_attach_what_they_name(place: Room) -> None:
    place.ok("rows = list(range(1000)); secret_count = 3")
    (place.folder / "two words.csv").write_text("a,b\n1,heron\n")
    (place.folder / "sub").mkdir(exist_ok=True)
    (place.folder / "sub/plain.txt").write_text("egret\n")
    number = place.ok("'kingfisher ' * 2").reply["execution_count"]
    body = 'see @rows, @rows. @"two words.csv" (@sub/plain.txt) me@rows.org @nothing @cell:9999 '
    body += f"@cell:{number} @out:{number}"
    place.asks(body)
    words = place.words()
    assert words[-1] == body
    attached = [word for word in words if word.startswith(("<variable", "<file", "<cell"))]
    assert [word.split(">")[0] for word in attached] == [
        '<variable name="rows"', '<file path="two words.csv"', '<file path="sub/plain.txt"',
        f'<cell number="{number}"', f'<cell number="Out[{number}]"',
    ]  # fmt: skip
    assert "1000" in attached[0].replace(",", "")
    assert len(attached[0]) < 2_000
    assert "1,heron" in attached[1]
    assert "egret" in attached[2]
    assert "'kingfisher ' * 2" in attached[3]
    assert "kingfisher kingfisher" in attached[4]


def test_a_mentioned_table_is_attached_by_its_columns_and_other_text_by_its_first_lines(place: Room) -> None:
    rows = [f"{number},{number * 37 % 101}" for number in range(2_000)]
    (place.folder / "weights.csv").write_text("box,kg\n" + "\n".join(rows))
    (place.folder / "weights.txt").write_text("\n".join(rows))
    (place.folder / "weights-few.csv").write_text("box,kg\n" + "\n".join(rows[:20]))
    place.asks("compare @weights.csv with @weights.txt and @weights-few.csv")
    table, lines, few = (word for word in place.words() if word.startswith('<file path="weights'))
    assert "2,000 rows x 2 columns" in table
    assert "box: integer" in table
    assert "17,23" not in table
    assert "[lines 1-60 of 2,000; continue with offset=61]" in lines
    assert "17,23" in few  # a small one whole


def test_what_is_not_found_or_hidden_is_told_in_the_number_that_it_has(place: Room) -> None:
    assert "@none.csv was not found; sent as plain text" in place.asks("see @none.csv").streams
    told = place.asks("see @none.csv and @nothing").streams
    assert "@none.csv, @nothing were not found; sent as plain text" in told
    numbers = [place.ok(f"# agent-hide\nheld = {number}").reply["execution_count"] for number in (1, 2)]
    first, second = (f"@cell:{number}" for number in numbers)
    assert f"{first} is hidden from the agent" in place.asks(f"see {first}").streams
    assert f"{first}, {second} are hidden from the agent" in place.asks(f"see {first} {second}").streams


@pytest.mark.parametrize(
    ("body", "missing"),
    [
        ("see @data-2024.csv, @./sub/x.csv, @../y.csv.", ["@data-2024.csv", "@./sub/x.csv", "@../y.csv"]),
        ("@/nowhere/x.csv @2024.csv @sub/ @a/b-c", ["@/nowhere/x.csv", "@2024.csv", "@sub/"]),
        ("@cell:1 and @out:1 and @cell:7", ["@cell:7", "@out:1"]),
        ("at @3.5 GHz, an icon@2x, me@rows.org, @2x, @-", []),
    ],
)
def test_a_mention_of_what_is_not_there_is_named_in_any_form(tmp_path: Path, body: str, missing: list[str]) -> None:
    _, told = find(body, {}, tmp_path, ["", "x = 1"])
    assert [each for each in missing if each not in told] == []
    assert missing or not told


def test_a_mentioned_cell_is_as_it_was_typed(place: Room) -> None:
    number = place.ok("%%capture held\nprint('kingfisher')").reply["execution_count"]
    asked = place.asks("hello {x}").reply["execution_count"]
    place.asks(f"see @cell:{number} and @cell:{asked}")
    attached = [word for word in place.words() if word.startswith("<cell")]
    assert attached == [
        f"<cell number=\"{number}\">\n%%capture held\nprint('kingfisher')\n</cell>",
        f'<cell number="{asked}">\n%%agent \nhello {{x}}\n</cell>',
    ]


def test_the_model_is_told_what_the_user_ran_but_not_of_talk_to_us(place: Room) -> None:
    place.asks("hello")
    place.ok("a_bird = 'heron'")
    place.ok("%agent mode auto\na_count = 3")
    place.ok("%agent tools\n%context")
    place.asks("aside", line="--fresh")
    place.ok("%%time\n%%ipyagent --fork\nthis too")
    place.asks("and now?")
    context = place.words()[0]
    assert "a_bird = 'heron'" in context
    assert "%agent mode auto\na_count = 3" in context
    for ours in ("%context", "aside", "this too"):
        assert ours not in context


def completions(place: Room, code: str, at: int | None = None) -> tuple[list[str], str]:
    """The completions offered, and the text they replace."""
    client = place.kernel.client
    message = client.complete(code, len(code) if at is None else at)
    while (reply := client.get_shell_msg(timeout=10))["parent_header"].get("msg_id") != message:
        pass
    content = reply["content"]
    return content["matches"], code[content["cursor_start"] : content["cursor_end"]]


def test_completion_knows_variables_files_options_and_commands(place: Room) -> None:
    place.ok("penguin_rows = [1]; penguin_count = 2; _penguin = 3")
    (place.folder / "penguins.csv").write_text("a\n")
    (place.folder / "penguin notes.txt").write_text("a\n")
    assert completions(place, "%%agent\nplot @pengu") == (
        ["@penguin_count", "@penguin_rows", '@"penguin notes.txt"', "@penguins.csv"], "@pengu",
    )  # fmt: skip
    before = "%%agent --effort low\nplot {x: @pen"
    matches, replaced = completions(place, before + "} now", len(before))
    assert (matches[0], replaced) == ("@penguin_count", "@pen")
    assert completions(place, "%%agent\n@ou") == (["@out:"], "@ou")
    assert completions(place, "%%agent --m") == (["--model", "--max-turns", "--mode"], "--m")
    assert completions(place, "%agent ex") == (["export"], "ex")
    assert completions(place, "%agent mode a") == (["ask", "auto"], "a")
    assert completions(place, "%%agent --effort hi") == (["high"], "hi")
    assert completions(place, "%%agent --mode=r") == (["read_only"], "r")
    place.ok("%config IPCompleter.use_jedi = False")  # it takes seconds to begin
    assert "@penguin_rows" not in completions(place, "x = 1\n@pengu")[0]
    assert "penguin_rows" in completions(place, "pengu")[0]


# ---------------------------------------------------------------------- own tools

OWN = '''import ipyagent

@ipyagent.tool(permission="none", writes=False)
def exchange_rate(currency: str, day: int = 1) -> float:
    """Today's rate against the euro.

    Args:
        currency: three letters, as in "USD".
    """
    return {"USD": 1.25}[currency] + day
'''


def test_a_tool_of_a_cell_is_there_in_the_next_request(place: Room) -> None:
    place.asks("hello")
    place.ok(OWN)
    place.asks("rate?", tool("exchange_rate", {"currency": "USD"}), text("2.25"))
    described = {each["name"]: each for each in place.sent()["tools"]}["exchange_rate"]
    assert described["description"].startswith("Today's rate against the euro.")
    assert described["input_schema"]["properties"]["currency"]["description"] == 'three letters, as in "USD".'
    assert described["input_schema"]["required"] == ["currency"]
    assert results(place.sent())[-1]["text"] == "2.25"
    place.asks("and?", tool("exchange_rate", {"currency": "XXX"}), text("no"))
    failed = results(place.sent())[-1]
    assert failed["is_error"]
    assert "KeyError" in failed["text"]
    place.ok("del exchange_rate")
    place.asks("and without it?")


@pytest.mark.parametrize(
    ("code", "word"),
    [("def f(x): 'doc'", "type"), ("def f(x: int): return x", "docstring"), ("def f(*a: int): 'doc'", "have a name")],
)
def test_a_wrong_tool_is_one_line(place: Room, code: str, word: str) -> None:
    assert word in place.refuses(f"import ipyagent\n@ipyagent.tool\n{code}")


def test_a_mentioned_cell_that_failed_brings_its_error(tmp_path: Path) -> None:
    error_of = {1: "Traceback …\nZeroDivisionError: division by zero"}
    (failed, done), _ = find("@cell:1 @cell:2", {}, tmp_path, ["", "1 / 0", "x = 1"], (), lambda n: error_of.get(n, ""))
    assert failed.text == f"1 / 0\n\n[it ended in an error]\n{error_of[1]}"
    assert done.text == "x = 1"


def test_what_the_user_ran_since_comes_with_the_last_line_of_its_error(place: Room) -> None:
    place.ok("%agent new")
    place.run("prices = {'a': 1}\nprices['b']")
    place.run("def broken(:")
    place.run("# agent-hide\nraise ValueError('private words')")
    place.ok("fine = 1")
    assert "seen" in plain(place.asks("what went wrong?", text("seen")))
    (told,) = (word for word in place.words() if word.startswith("<context>"))
    assert "```\nprices = {'a': 1}\nprices['b']\n```\nIt ended with KeyError: 'b'\n" in told
    assert "```\ndef broken(:\n```\nIt ended with SyntaxError: " in told
    assert told.rstrip().endswith("```\nfine = 1\n```\n</context>")
    assert "private words" not in told
