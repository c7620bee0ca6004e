"""Names and schemas of outside tools: fit for a request, stable, and never one name for two tools."""

from __future__ import annotations

import re
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from ipyagent.parts.mcp.listing import OfferedTool, fitted, server_part, tool_names
from ipyagent.parts.mcp.tool import OutsideTool

FIT = re.compile(r"mcp__[a-zA-Z0-9_-]+__[a-zA-Z0-9_-]+")


@given(st.text(min_size=1, max_size=80), st.lists(st.text(min_size=1, max_size=120), max_size=12, unique=True))
def test_every_name_is_fit_and_different(server: str, tools: list[str]) -> None:
    part = server_part(server)
    assert "__" not in part
    names = tool_names(part, tools)
    assert set(names) == set(tools)
    assert len(set(names.values())) == len(tools)
    assert all(len(name) <= 64 and FIT.fullmatch(name) for name in names.values())


@given(st.lists(st.text(min_size=1, max_size=30), min_size=2, max_size=8, unique=True))
def test_a_name_does_not_depend_on_what_else_there_is(tools: list[str]) -> None:
    assert tool_names("s", tools)[tools[0]] == tool_names("s", tools[:1])[tools[0]]


def test_plain_names_stay_as_they_are() -> None:
    assert server_part("file-system") == "file-system"
    assert tool_names("fs", ["read_file"]) == {"read_file": "mcp__fs__read_file"}
    assert server_part("a__b") != server_part("a_b") == "a_b"


def test_a_schema_that_fits_is_kept_and_one_that_does_not_goes_as_text() -> None:
    good = {"$schema": "http://x", "type": "object", "properties": {"a": {"$ref": "#/$defs/A"}}, "$defs": {"A": {}}}
    assert fitted(good, "d") == ({key: value for key, value in good.items() if key != "$schema"}, "d")
    deep: dict[str, Any] = {}
    for _ in range(3_000):
        deep = {"properties": {"a": deep}}
    for bad in (
        {"type": "array"}, {"properties": []}, {"properties": {"a b": {}}}, {"anyOf": []}, {"properties": {"a": 5}},
        {"properties": {"a": {"$ref": "https://example.org/x"}}}, {"properties": {"a": {"description": "x" * 30_000}}},
        deep, None, [], {"type": "object", "properties": {"a": {"minimum": "low"}}},
    ):  # fmt: skip
        schema, text = fitted(bad, "does it")
        assert schema == {"type": "object", "properties": {}, "additionalProperties": True}
        assert text.startswith("does it")
        assert len(text) < 5_000
    assert fitted({}, "x\ud800" + "y" * 9_000)[1].isprintable()


def test_a_null_that_the_schema_has_no_place_for_is_left_out_where_the_argument_may_be() -> None:
    kinds: dict[str, Any] = {"a": "string", "b": "integer", "c": ["string", "null"]}
    schema = {"type": "object", "properties": {key: {"type": kind} for key, kind in kinds.items()}, "required": ["a"]}
    server: Any = None
    made = OutsideTool("mcp__s__t", server, OfferedTool(name="t", title="", description="Does it.", schema=schema))
    assert made.validate({"a": None, "b": None, "c": None, "d": None}) == {"a": None, "c": None, "d": None}
