from __future__ import annotations

import asyncio
import json
import time
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Annotated, Literal

import pytest
from matplotlib.figure import Figure
from PIL import Image
from pydantic import BaseModel, Field
from tools_workspace import ShellWorkspace

from ipyagent.errors import ToolFailure, UsageError
from ipyagent.journal.protocols import Tool, ToolOutput, Workspace
from ipyagent.parts.mcp.listing import fitted
from ipyagent.tools.schema import FunctionTool, tidied, tool, unwrapped


@tool
def repeat(text: str, times: int = 2, mode: Literal["a", "b"] = "a", *, workspace: Workspace) -> str:
    """Repeat a text.

    More about it.

    Args:
        text: What to
            repeat.
        times: How often.
    """
    return text * times


def run(made: FunctionTool, input: dict[str, object], workspace: ShellWorkspace) -> ToolOutput:
    return asyncio.run(made.run(input, workspace))


def text_of(output: ToolOutput) -> str:
    return "".join(block.get("text", "") for block in output.blocks)


def test_schema_is_the_signature_without_workspace_and_titles() -> None:
    schema = repeat.input_schema
    assert list(schema["properties"]) == ["text", "times", "mode"]
    assert schema["required"] == ["text"]
    assert schema["properties"]["text"] == {"description": "What to repeat.", "type": "string"}
    assert schema["properties"]["times"] == {"description": "How often (default 2).", "type": "integer"}
    for word in ("title", "additionalProperties", '"default"'):
        assert word not in json.dumps(schema)
    assert repeat.description == "Repeat a text.\n\nMore about it."
    assert isinstance(repeat, Tool)
    assert json.dumps(tool(repeat.function).input_schema) == json.dumps(schema), "the same bytes each time"


@dataclass
class Span:
    first: int
    last: int | None = None


def test_the_schema_leaves_out_what_the_check_takes_all_the_same() -> None:
    @tool
    def show(
        span: Span, must: int | None, size: int | None = None, by: int | str | None = None,
        more: dict[str, int] | None = None, names: str | list[str] = "",
    ) -> str:  # fmt: skip
        """Show."""
        return ""

    schema = show.input_schema
    assert schema["properties"] == {
        "span": {"$ref": "#/$defs/Span"},
        "must": {"anyOf": [{"type": "integer"}, {"type": "null"}]},
        "size": {"type": "integer"},
        "by": {"anyOf": [{"type": "integer"}, {"type": "string"}]},
        "more": {"additionalProperties": {"type": "integer"}, "type": "object"},
        "names": {"items": {"type": "string"}, "type": "array"},
    }
    assert schema["$defs"]["Span"]["properties"]["last"] == {"type": "integer"}
    assert tidied(schema) == schema
    whole = {"span": {"first": 1, "last": None}, "must": None, "size": None, "by": None, "more": {"a": 1}}
    assert show.validate(whole) == whole
    assert show.validate({"span": {"first": 1}, "must": 2, "names": "one"})
    assert show.validate({"span": {"first": 1}, "must": 2, "names": ["one", "two"]})
    with pytest.raises(ToolFailure, match="no such argument"):
        show.validate({**whole, "other": 1})


DOCSTRINGS = {
    "Read a file\nby its name. Prefer it.": "Read a file by its name. Prefer it.",
    "Read a file\n\nby its name.": "Read a file by its name.",
    "Read.\n\nMore\nabout it.": "Read.\n\nMore about it.",
    "Kinds:\n- one\n- two\n\nThen\nmore.": "Kinds:\n- one\n- two\n\nThen more.",
    "Run it.\n\nSo:\n\n    x = 1\n    y = 2\n\nDone.": "Run it.\n\nSo:\n\n    x = 1\n    y = 2\n\nDone.",
    "Run it:\n```\nx = 1\n\ny = 2\n```\nDone.": "Run it:\n```\nx = 1\n\ny = 2\n```\nDone.",
}


@pytest.mark.parametrize("written", DOCSTRINGS)
def test_a_sentence_of_a_docstring_stands_in_one_line(written: str) -> None:
    """A tool of the user's and one of a server's, as our own: no line ends, and no empty line, inside a sentence."""

    def work() -> None: ...

    work.__doc__ = written
    assert tool(work).description == DOCSTRINGS[written]
    assert fitted({}, written)[1] == DOCSTRINGS[written]
    assert unwrapped(DOCSTRINGS[written]) == DOCSTRINGS[written]


@dataclass
class Disc:
    radius: float


class Square(BaseModel):
    kind: Literal["square"]


class Circle(BaseModel, extra="forbid"):
    kind: Literal["circle"]
    span: Span


def test_each_wrong_argument_is_one_line() -> None:
    with pytest.raises(ToolFailure) as problem:
        repeat.validate({"times": "ten", "mode": "c", "extra": 1})
    lines = str(problem.value).splitlines()
    assert "`text`: missing" in lines
    assert "`times`: Input should be a valid integer, got 'ten'" in lines
    assert "`extra`: no such argument; allowed: text, times, mode" in lines
    assert any(line.startswith("`mode`: Input should be 'a' or 'b'") for line in lines)
    for given in ("x", 3, None, []):
        with pytest.raises(ToolFailure):
            repeat.validate(given)  # type: ignore[arg-type]

    @tool
    def place(
        points: list[Span] | str = "", pair: tuple[int, int] = (0, 0),
        row: tuple[Span, list[tuple[int, str]]] | None = None, either: list[int] | list[str] | None = None,
        shape: Span | Disc | None = None, deep: list[dict[str, tuple[int, int] | Span]] | None = None,
        named: Annotated[Square | Circle, Field(discriminator="kind")] | None = None,
    ) -> str:  # fmt: skip
        """Place."""
        return ""

    for name, (value, first) in {
        "points": ([{"last": 1}], "`points.0.first`: missing"),
        "pair": ([3], "`pair.1`: missing"),
        "row": ([{"first": 1}, [[1], "x"]], "`row.1.0.1`: missing"),
        "either": ([1, "a"], "`either.1`: Input should be a valid integer, got 'a'"),
        "shape": ({"size": 1}, "`shape.Span.first`: missing"),
        "deep": ([{"a": [1]}], "`deep.0.a.1`: missing"),
        "named": ({"kind": "circle", "span": {}}, "`named.circle.span.first`: missing"),
    }.items():
        with pytest.raises(ToolFailure) as problem:
            place.validate({name: value})
        assert str(problem.value).splitlines()[1] == first


def test_null_for_what_may_be_left_out_is_as_if_it_were_left_out(tmp_path: Path) -> None:
    @tool(deferred="Marks")
    def mark(spans: list[Span], said: str | list[str] = "", size: int = 3, counts: dict[str, int] | None = None) -> str:
        """Mark."""
        return f"{spans} {said!r} {size} {counts}"

    workspace = ShellWorkspace(tmp_path)
    nulls = {"spans": [{"first": 1, "last": None}], "said": None, "size": None, "counts": None}
    assert text_of(run(mark, nulls, workspace)) == "[Span(first=1, last=None)] '' 3 None"
    assert repeat.validate({"text": "a", "times": None, "mode": None}) == {"text": "a"}

    def refused(**given: object) -> list[str]:
        with pytest.raises(ToolFailure) as problem:
            mark.validate(given)
        return str(problem.value).splitlines()[1:]

    assert refused(spans=None)[0] == "`spans`: Input should be a valid list, got NoneType", "it may not be left out"
    assert refused(spans=[], counts={"a": None})[0].startswith("`counts.a`: "), "data, and no argument"
    line, schema = refused(spans=[], said=5)
    assert line == "`said`: Input should be a valid string or a valid list, got 5", "one line without pydantic's words"
    told = [name in schema for name in ("said", "size")]
    assert told == [True, False], "what the call shows to be known is not told again"
    whole = json.dumps(mark.input_schema)
    assert [whole in refused(**given)[-1] for given in ({"size": 1}, {"spans": [], "sized": 1})] == [True, True]


def test_what_only_tells_of_a_call_is_left_out_and_the_result_says_so(tmp_path: Path) -> None:
    workspace = ShellWorkspace(tmp_path)
    given = repeat.validate({"text": "ab", "description": "twice", "timeout": 30})
    told = "[ignored, repeat has no such argument: description, timeout]"
    assert [block["text"] for block in run(repeat, given, workspace).blocks] == ["abab", told]
    with pytest.raises(ToolFailure, match="`dry_run`: no such argument; allowed: text, times, mode"):
        repeat.validate({"text": "ab", "dry_run": True, "timeout": 30})


def test_parameters_may_have_names_of_pydantics_own() -> None:
    @tool
    def odd(schema: str, copy: int, model_config: str = "x", title: str = "t", json: bool = False) -> str:
        """Odd names."""
        return f"{schema}{copy}{model_config}{title}{json}"

    assert list(odd.input_schema["properties"]) == ["schema", "copy", "model_config", "title", "json"]
    assert odd.arguments({"schema": "s", "copy": 1}) == {
        "schema": "s", "copy": 1, "model_config": "x", "title": "t", "json": False,
    }  # fmt: skip


def test_a_parameters_type_that_is_not_known_is_named_and_a_return_type_is_no_problem() -> None:
    @tool
    def paint(colour: str) -> NotThere:  # type: ignore[name-defined] # noqa: F821
        """Paint."""

    @tool
    def draw(colour: NotThere) -> str:  # type: ignore[name-defined] # noqa: F821
        """Draw."""

    assert paint.input_schema["required"] == ["colour"]
    with pytest.raises(UsageError, match="'NotThere' is not defined"):
        _ = draw.input_schema


def test_validated_arguments_are_json() -> None:
    @tool
    def on(day: date) -> str:
        """A day."""
        return f"{day:%d.%m.%Y}"

    assert on.validate({"day": "2026-11-27"}) == {"day": "2026-11-27"}
    assert on.arguments({"day": "2026-11-27"}) == {"day": date(2026, 11, 27)}


def test_a_function_without_name_types_docstring_or_with_stars_is_refused() -> None:
    def untyped(x):  # type: ignore[no-untyped-def]
        """Doc."""

    def silent(x: int) -> None:
        pass

    def starred(*x: int) -> None:
        """Doc."""

    def taken(workspace: str) -> str:
        """Doc."""
        return workspace

    wrong = ((untyped, "type"), (silent, "docstring"), (starred, "args"), (taken, "'workspace': give it another name"))
    for function, match in wrong:
        with pytest.raises(UsageError, match=match):
            tool(function)
    for function, name in ((lambda x: x, ""), (repeat.function, "a b"), (repeat.function, "x" * 65)):
        with pytest.raises(UsageError, match="name"):
            tool(name=name)(function)


def test_the_decorated_function_can_still_be_called() -> None:
    @tool(permission="none", writes=False)
    def add(a: int, b: int = 1) -> int:
        """Add."""
        return a + b

    assert add(2) == 3
    assert add.__name__ == "add"


def test_users_tools_ask_unless_told_otherwise(workspace: ShellWorkspace) -> None:
    assert repeat.permission({"text": "x"}, workspace) == "ask"
    assert repeat.writes({"text": "x"}, workspace)
    assert repeat.pattern({"text": "x"}, workspace) == "repeat"
    assert "text='x'" in repeat.question({"text": "x"}, workspace).text


def given(value: object, workspace: ShellWorkspace) -> ToolOutput:
    """What becomes of a value that a tool returns."""

    @tool
    def give() -> object:
        """Give."""
        return value

    return run(give, {}, workspace)


def test_results_of_every_kind_become_blocks(workspace: ShellWorkspace) -> None:
    class Broken:
        def __repr__(self) -> str:
            raise RuntimeError("no")

    for value, expected in (
        (None, "(no result)"),
        ("text", "text"),
        ({"a": [1, "ü"]}, '{"a": [1, "ü"]}'),
        ([1, 2], "[1, 2]"),
        ((1, 2), "(1, 2)"),
        ("a\x00b\ud800", "a\ufffdb\ufffd"),
    ):
        assert text_of(given(value, workspace)) == expected
    told = text_of(given(Broken(), workspace))
    assert "its repr raised RuntimeError" in told or "Broken instance" in told
    figure = Figure()
    figure.subplots().plot([1, 2])
    for value in (figure, Image.new("RGB", (3_000, 10))):
        block = given(value, workspace).blocks[0]
        assert block["type"] == "image"
        assert block["source"]["media_type"] == "image/png"
        assert len(block["source"]["data"]) < 5_000_000


def test_long_results_are_cut_in_the_middle_say_so_and_cost_no_more_than_their_head(workspace: ShellWorkspace) -> None:
    huge = list(range(5_000_000))
    began = time.thread_time()
    text = text_of(given(huge, workspace))
    assert time.thread_time() - began < 0.5
    assert "5,000,000 items" in text
    workspace.limits["tool_output_chars"] = 600
    text = text_of(given("a" * 1_000 + "b" * 1_000, workspace))
    assert text.startswith("a" * 400)
    assert text.endswith("b" * 200)
    assert "1,400 characters" in text


def test_an_exception_becomes_a_failure_with_the_tools_own_frames(workspace: ShellWorkspace) -> None:
    @tool
    def fail() -> str:
        """Fail."""
        raise KeyError("gone")

    with pytest.raises(ToolFailure) as problem:
        run(fail, {}, workspace)
    assert "KeyError: 'gone'" in str(problem.value)
    assert "in run" not in str(problem.value)


def test_coroutine_functions_are_awaited_and_get_the_workspace(workspace: ShellWorkspace) -> None:
    @tool
    async def where(*, workspace: Workspace) -> str:
        """Where."""
        await asyncio.sleep(0)
        return workspace.root.name

    assert where.input_schema["properties"] == {}
    assert text_of(run(where, {}, workspace)) == "project"
