"""Whatever a request holds, the server takes it or refuses it in words; it never fails over it."""

from __future__ import annotations

import base64
import copy
import json
import time
from typing import Any

from hypothesis import example, given, settings
from hypothesis import strategies as st
from practice_api import TOOL, Body, assistant, image, png, request, result, said, use, user

from ipyagent.practice.server.judge import Judge
from ipyagent.practice.server.models import Refused, catalogue

PDF = {"type": "base64", "media_type": "application/pdf", "data": base64.b64encode(b"%PDF").decode()}
NOTE = {"type": "text", "media_type": "text/plain", "data": "note"}
WHOLE: Body = request(
    user(said("x", cache_control={"type": "ephemeral"}), image(png(3, 3)), {"type": "document", "source": PDF}),
    assistant(said("y"), use("a", n=1)),
    user(result("a", [said("ok"), image(png(2, 2)), {"type": "document", "source": NOTE}]), said("z")),
    {"role": "system", "content": [said("remember")]},
    assistant({"type": "redacted_thinking", "data": "d"}, said("w")),
    user({"type": "search_result", "source": "s", "title": "t", "content": [said("c")]}),
    system=[said("s", cache_control={"type": "ephemeral", "ttl": "1h"})],
    tools=[{**TOOL, "input_schema": {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]}}],
    tool_choice={"type": "auto"},
    thinking={"type": "adaptive", "display": "summarized"},
    output_config={"effort": "low", "format": {"type": "json_schema", "schema": {"type": "object",
                   "properties": {"a": {"anyOf": [{"type": "string"}]}}, "additionalProperties": False}}},
    stop_sequences=["END"],
    cache_control={"type": "ephemeral"},
    diagnostics={"previous_message_id": None},
    stream=True,
)  # fmt: skip
JUNK = st.sampled_from([None, True, 0, -1, 1.5, "", " ", "x", "\ud800", [], {}, [None], ["x"], {"type": "x"}, [[]]])


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path, *(found for key, part in inner for found in places(part, (*path, key)))]


PLACES = [path for path in places(WHOLE) if path]
JUDGE = Judge(catalogue(200_000, 64_000, None), time.monotonic)


def test_the_whole_request_is_taken() -> None:
    assert JUDGE.accept(WHOLE, frozenset()).prompt.tokens > 300


@settings(max_examples=120, deadline=None)
@given(st.lists(st.tuples(st.sampled_from(PLACES), JUNK), min_size=1, max_size=3), st.booleans())
@example([(("messages", 0, "content", 2, "source", "data"), "x")], False)
@example([(("messages", 0, "content", 0, "text"), "\ud800")], False)
def test_junk_anywhere_is_taken_or_refused(junk: list[tuple[tuple[Any, ...], Any]], cut: bool) -> None:
    body = copy.deepcopy(WHOLE)
    for path, value in junk:
        holder = body
        try:
            for key in path[:-1]:
                holder = holder[key]
            if isinstance(path[-1], int) != isinstance(holder, list):
                continue  # no JSON object has a number as a key
            if cut:
                del holder[path[-1]]
            else:
                holder[path[-1]] = copy.deepcopy(value)
        except (KeyError, IndexError, TypeError):
            continue  # an earlier piece of junk took the place away
    try:
        JUDGE.accept(body, frozenset())
    except Refused as refused:
        json.dumps(refused.body("req_x"))  # the words are JSON too
