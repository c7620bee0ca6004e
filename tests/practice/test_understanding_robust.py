"""Whatever a request or a result looks like, the practice model answers: it never fails on what it reads."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from practice_room import TOOLS

from ipyagent.practice.model import schema
from ipyagent.practice.model.knowledge import Knowledge
from ipyagent.practice.model.understanding import answer

REQUESTS = (
    "load a.csv", "average x by g", "plot x by g", "compare x of a and b", "fit y on x", "which columns correlate?",
    "top 3 x", "how many a", "profile df", "missing values", "what is df", "list files", "look around", "yes",
    "rebuild "
    "it", "按 g 计算平均 x", "那按 h 呢", "画出来", "run: 1/0", "2+2", "remember this", "what did we talk about",
    "and by h?", "only for a", "load the cars data set", "load the data", "read notes.md",
)  # fmt: skip
INSPECTED = (
    "{'rows': 3, 'dtypes': {'g': 'str', 'x': 'int64', 'y': 'float64', 'h': 'bool'}, 'unique': {'g': 2, 'x': 3, 'y': 3, "
    "'h': 2}, 'values': {'g': ['a', 'b'], 'x': ['1', '2', '3'], 'h': ['True', 'False']}}"
)
RESULTS = (
    INSPECTED, "", "(no output)", "[Previous: used python]", "[Old tool result content cleared]", "df  DataFrame 3 x 4",
    "gone: df (DataFrame 3 x 4), x (int)", "Traceback (most recent call last):\nNameError: name 'df' is not defined",
    "FileNotFoundError: [Errno 2] No such file or directory: 'a.csv'", "ModuleNotFoundError: No module named 'zzz'",
    "ModuleNotFoundError: "
    "zzz", "The user denied this call.", "   g  mean_x  n\n0  a    1.50  2", "Series([], dtype: int64)",
    "(3, 4)\n['g', 'x']\nOut:    g  x\n0  a  "
    "1", "<persisted-output>\n{'rows': 3, 'dtyp…\n</persisted-output>", "{'rows': 3",
    "r = nan\nn = 0", "a.csv\nb.csv", "{'rows': 0, 'dtypes': {}, 'unique': {}, 'values': {}}",
)  # fmt: skip

_result = st.tuples(st.sampled_from(RESULTS) | st.text(max_size=60), st.booleans())


def _run(requests: list[str], results: list[tuple[str, bool]]) -> None:
    """Plays the requests, giving the results in turn (and again from the first) to whatever is called."""
    messages: list[dict[str, Any]] = []
    body = {"messages": messages, "tools": [{"name": name} for name in TOOLS], "thinking": {"type": "adaptive"}}
    at = 0
    for request in requests:
        messages.append({"role": "user", "content": [{"type": "text", "text": request}]})
        for _ in range(12):
            reply = answer(body)
            assert reply.content
            messages.append({"role": "assistant", "content": list(reply.content)})
            calls = [block for block in reply.content if block["type"] == "tool_use"]
            if not calls:
                break
            blocks = []
            for call in calls:
                text, failed = results[at % len(results)]
                at += 1
                blocks.append({"type": "tool_result", "tool_use_id": call["id"], "content": text, "is_error": failed})
            messages.append({"role": "user", "content": blocks})
        else:
            raise AssertionError("the turn does not end")


@settings(max_examples=250, deadline=None)
@given(st.lists(st.sampled_from(REQUESTS), min_size=1, max_size=5), st.lists(_result, min_size=1, max_size=8))
def test_any_results_end_in_an_answer(requests: list[str], results: list[tuple[str, bool]]) -> None:
    _run(requests, results)


@settings(max_examples=150, deadline=None)
@given(st.lists(st.text(min_size=1, max_size=80), min_size=1, max_size=3))
def test_any_words_end_in_an_answer(requests: list[str]) -> None:
    _run(requests, [(INSPECTED, False), ("df  DataFrame 3 x 4", False)])


def test_a_body_without_messages_gets_an_answer() -> None:
    assert answer({"messages": []}).content


def test_news_of_the_variables_is_added_to_what_was_listed() -> None:
    found = Knowledge()
    found.context(
        "<context>\nVariables now:\nx  1\ndf  DataFrame 2 x 1: a i64\nfunctions: f(a, b=(1, 2)), g()\n</context>"
    )
    found.context(
        "<context>\nnew: y  2\nchanged: df  DataFrame 3 x 1: a i64\nnew functions: h(x)\ngone: x\n"
        "Run by the user since the last request:\n```\nz = 1\n```\n</context>"
    )
    assert found.names == {"df", "f", "g", "h", "y", "z"}
    assert (found.sizes, found.complete) == ({"df": (3, 1)}, True)


def test_a_listing_that_says_which_texts_are_numbers_is_read() -> None:
    told = schema.line("df  DataFrame 67 x 2: price str (2 missing; text: 64 of 65 are numbers, others: '-'), c f64")
    assert told is not None
    assert dict(told.dtypes) == {"price": "str", "c": "float64"}
