"""Objects of stored results: bounded in number and bytes, one session's at a time."""

from __future__ import annotations

import gc
import weakref

import pytest
from IPython.core.interactiveshell import InteractiveShell

from ipyagent.journal.events import ResultStored
from ipyagent.kernel.variables import summarize
from ipyagent.kernel.workspace import LiveObjects
from ipyagent.tools.python import resolve


class Thing:
    pass


def stored(number: int, call: str) -> dict[str, ResultStored]:
    handle = f'_agent["r{number}"]'
    return {handle: ResultStored(call=call, path=f"tool-results/{call}.txt", chars=1, handle=handle)}


def test_the_oldest_object_is_let_go_when_there_are_too_many() -> None:
    handles = LiveObjects(most=2)
    things = [Thing() for _ in range(3)]
    gone = weakref.ref(things[0])
    assert [handles.hold(f"call {n}", thing) for n, thing in enumerate(things)] == [
        '_agent["r1"]',
        '_agent["r2"]',
        '_agent["r3"]',
    ]
    assert list(handles) == ["r2", "r3"]
    things.clear()
    gc.collect()
    assert gone() is None


def test_bytes_of_all_objects_are_bounded_one_too_large_is_not_kept_and_a_hostile_size_is_small() -> None:
    np = pytest.importorskip("numpy")
    pd = pytest.importorskip("pandas")
    handles = LiveObjects(most_bytes=10_000)
    assert handles.hold("a", np.zeros(1_000)) == '_agent["r1"]'
    assert handles.hold("b", pd.DataFrame({"x": np.zeros(500)})) == '_agent["r2"]'
    assert list(handles) == ["r2"]
    assert handles.hold("c", np.zeros(2_000)) == ""
    assert list(handles) == ["r2"]
    class Hostile:
        def __sizeof__(self) -> int:
            raise SystemError("no")

    assert LiveObjects().hold("a", Hostile()) == '_agent["r1"]'


def test_a_gone_handle_names_its_file_and_an_unknown_one_those_there_are() -> None:
    handles = LiveObjects()
    handles.enter(stored(12, "toolu_a"), "sessions/s")
    with pytest.raises(KeyError, match=r"is gone: the kernel was restarted.*sessions/s/tool-results/toolu_a.txt"):
        handles["r12"]
    assert handles.hold("toolu_b", 5) == '_agent["r13"]'
    with pytest.raises(KeyError, match="no stored result 'r99'; there are r13"):
        handles["r99"]
    with pytest.raises(KeyError, match="no stored result 3"):
        handles[3]  # type: ignore[index]
    assert handles.get("r12") is None
    assert "r12" not in handles


def test_each_session_sees_its_own_objects_and_a_fork_those_of_its_origin() -> None:
    handles = LiveObjects()
    first: dict[str, ResultStored] = {}
    handles.enter(first, "a")
    handles.hold("call 1", "mine")
    first |= stored(1, "call 1")
    handles.enter({}, "b")
    assert dict(handles) == {}
    assert handles.hold("call 2", "other") == '_agent["r2"]'
    handles.enter(dict(first), "fork")
    assert dict(handles) == {"r1": "mine"}
    handles.enter(stored(1, "call 9"), "another")  # the same name in a session of an earlier kernel
    assert dict(handles) == {}


def test_the_name_is_not_among_the_users_and_is_read_by_the_variables_tool() -> None:
    shell = InteractiveShell.instance()
    shell.user_ns.pop("_agent", None)
    handles = LiveObjects()
    assert handles.install(shell)
    handles.hold("call", {"a": [1, 2]})
    assert summarize({"_agent": handles, "x": 1}, hidden=shell.user_ns_hidden).splitlines() == ["x  1"]
    assert resolve('_agent["r1"]["a"]', shell.user_ns) == [1, 2]
    assert "_agent" in shell.user_ns_hidden
    shell.user_ns["_agent"] = "the user's"
    assert not handles.install(shell)
    del shell.user_ns["_agent"]


def test_its_repr_names_what_is_kept() -> None:
    handles = LiveObjects()
    assert repr(handles) == "<objects of stored results: none>"
    handles.hold("call", [1])
    assert repr(handles) == "<objects of stored results: r1: list>"
