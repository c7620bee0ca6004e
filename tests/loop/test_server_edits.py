"""The server clears old tool results where it can and is asked to; we do everywhere else, never both."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from loop_rig import Rig

from ipyagent.extension.context_report import report
from ipyagent.journal.events import (
    CacheBroken,
    LayerDecision,
    ResultsCleared,
    ServerEdited,
    SystemReminder,
    ToolReturned,
    UsageReported,
    UserMessage,
)
from ipyagent.practice.replies import fault, text, tool
from ipyagent.practice.server import PracticeServer
from ipyagent.reports.timeline import Shares

RESULTS = "clear_tool_uses_20250919"
SMALL = {
    "server_clear_trigger": 9_000, "server_clear_at_least": 3_000, "layer_notes": False, "clear_keep": 2,
    "subagents": False, "messages": False,
}  # fmt: skip


def work(rig: Rig, server: PracticeServer, turns: int = 9, thinking: str | None = "Let me think about it.") -> None:
    for number in range(turns):
        server.script(
            tool("python", {"code": f"print({number}, 'words ' * 900)"}, thinking=thinking),
            text("It is done.", thinking=thinking),
        )
        result = rig.turn("next")
        assert result.status == "finished", result.message
    assert [exchange.error for exchange in server.refused] == []


def managed(server: PracticeServer) -> Iterator[bool]:
    return ("context_management" in exchange.body for exchange in server.messages)


def test_the_server_clears_and_we_do_not(make_rig: Callable[..., Rig], server: PracticeServer) -> None:
    """In batches, thinking too; what went is in files that the next turn is told of, and our count follows."""
    rig = make_rig(engine="server", clear_policy="every_turn", **SMALL)
    work(rig, server, turns=16)
    assert all(managed(server))
    assert rig.of(ResultsCleared) == []
    both = rig.of(ServerEdited)
    assert {event.edit for event in both} == {RESULTS, "clear_thinking_20251015"}
    assert 2 <= len(both) <= 6, "in batches, not with every turn"
    edits = [event for event in both if event.edit == RESULTS]
    assert all(event.tokens >= 3_000 and event.cleared >= 2 for event in edits)
    assert len({(event.cleared, event.tokens) for event in edits}) == len(edits), "journalled when it changes only"
    assert len([event for event in rig.of(LayerDecision) if event.layer == "server_edits"]) == 1
    assert all(event.expected for event in rig.of(CacheBroken)), rig.of(CacheBroken)
    assert "left out by the server" in report(rig.agent, [])
    # the cache
    usages = [exchange.usage for exchange in server.messages]
    prompts = [exchange.prompt_tokens for exchange in server.messages]
    broken = [at for at in range(1, len(usages)) if usages[at]["cache_read_input_tokens"] < prompts[at - 1] - 1_024]
    assert len(broken) <= 3, broken
    # our count
    reports = rig.of(UsageReported)
    assert max(report.usage.prompt for report in reports) < 16_000
    errors = [abs(report.predicted - report.usage.prompt) / report.usage.prompt for report in reports[-8:]]
    assert sorted(errors)[4] < 0.1, errors
    session = rig.agent.session
    assert 0.7 < session.view.calibration.factor < 1.4
    # the files
    notes = [event for event in rig.of(SystemReminder) if event.layer == "server_edits"]
    assert 2 <= len(notes) <= len(edits)
    said = [event.id for event in rig.of(UserMessage)]
    assert {note.id - 1 for note in notes} <= set(said), "each right behind a request: nothing earlier changes"
    kept = ""
    for at, note in enumerate(notes, 1):
        assert f"tool-results/left-{at}.txt" in note.text
        kept += (session.journal.folder / f"tool-results/left-{at}.txt").read_text()
    for number in range(edits[-1].cleared - 2):
        assert kept.count(f"\n{number} words") == 1, number
    # and when it leaves out nothing any more
    assert session.view.left_out.upto > 0
    rig.settings.server_clear_trigger = 90_000
    server.script(text("fine"))
    rig.turn("and now?")
    assert session.view.left_out.upto == 0
    assert [event.cleared for event in rig.of(ServerEdited)][-1:] == [0]
    assert all(event.expected for event in rig.of(CacheBroken)), rig.of(CacheBroken)
    assert [exchange.error for exchange in server.refused] == []


def test_auto_leaves_clearing_to_us_until_the_servers_trigger_is_near(
    make_rig: Callable[..., Rig], server: PracticeServer
) -> None:
    rig = make_rig(engine="auto", clear_policy="every_turn", **{**SMALL, "server_clear_trigger": 100_000})
    work(rig, server)
    assert all(managed(server)), "the server is asked all the same: in the middle of a long turn only it can clear"
    assert rig.of(ResultsCleared)
    assert rig.of(ServerEdited) == []


def table(rig: Rig, server: PracticeServer, number: int, rows: int = 500) -> None:
    """A turn whose result is a table of about `rows` * 5 tokens."""
    code = f"print('\\n'.join(str({number} * n) + ' row of data' for n in range({rows})))"
    server.script(tool("python", {"code": code}, thinking="hm"), text(f"done {number}", thinking="hmm"))
    assert rig.turn(f"weigh box {number}").status == "finished"


def test_auto_pays_for_nothing_that_the_server_has_left_out(
    make_rig: Callable[..., Rig], server: PracticeServer
) -> None:
    small = {**SMALL, "clear_keep": 3, "window": 60_000, "server_clear_trigger": 17_000}
    written, left_out = {}, 0
    for engine in ("server", "auto"):
        rig, begun = make_rig(engine=engine, **small), len(server.messages)
        for number in range(1, 14):
            table(rig, server, number)
        usages = [exchange.usage for exchange in server.messages[begun:]]
        written[engine] = sum(usage["cache_creation_input_tokens"] for usage in usages)
        edits = [event for event in rig.of(ServerEdited) if event.edit == RESULTS]
        assert len(edits) >= 2
        left_out = edits[-1].tokens
    assert written["auto"] <= written["server"]
    savings = rig.agent.session.history.savings
    assert savings["server_edits"].tokens - left_out < 500, "thinking is all that else went"
    assert "clear_results" not in savings, "no result goes twice"


def test_auto_clears_by_itself_again_what_came_behind_what_the_server_left_out(
    make_rig: Callable[..., Rig], server: PracticeServer
) -> None:
    rig = make_rig(engine="auto", **{**SMALL, "window": 60_000, "server_clear_trigger": 18_500, "clear_keep": 1})
    for number in range(1, 9):
        table(rig, server, number)
    (edit,) = [event for event in rig.of(ServerEdited) if event.edit == RESULTS]
    calls = {event.call: event.id for event in rig.of(ToolReturned)}
    before = server.messages[-1].prompt_tokens
    rig.settings.clear_policy = "every_turn"
    server.script(text("fine"))
    rig.turn("and now?")
    (cleared,) = rig.of(ResultsCleared)
    assert list(cleared.calls) == [call for call, at in calls.items() if at > edit.id][:-1]
    now = server.messages[-1].prompt_tokens
    assert before - now == pytest.approx(cleared.saved, rel=0.15)
    assert rig.of(UsageReported)[-1].predicted == pytest.approx(now, rel=0.05)
    assert [exchange.error for exchange in server.refused] == []


def test_a_compaction_and_its_undo_know_what_the_server_had_left_out(
    make_rig: Callable[..., Rig], server: PracticeServer
) -> None:
    rig = make_rig(engine="auto", **{**SMALL, "window": 60_000, "server_clear_trigger": 18_500})
    for number in range(1, 11):
        table(rig, server, number)
    session = rig.agent.session
    for line in ("", "--undo"):
        rig.agent.compact(line)
        told = session.view.count().tokens
        server.script(text("fine"))
        rig.turn("and now?")
        assert told == pytest.approx(server.messages[-1].prompt_tokens, rel=0.06), line
    assert rig.of(ResultsCleared) == [], "the server leaves them out again"
    edits = [event for event in rig.of(ServerEdited) if event.edit == RESULTS]
    assert [event.cleared for event in edits] == [4, 8, 0], "and that is no news"
    assert session.history.savings["server_edits"].tokens == pytest.approx(edits[1].tokens, rel=0.01)
    assert [exchange.error for exchange in server.refused] == []


def test_auto_lets_the_server_clear_in_the_middle_of_a_turn(
    make_rig: Callable[..., Rig], server: PracticeServer
) -> None:
    rig = make_rig(engine="auto", **SMALL)
    many = [tool("python", {"code": f"print({at}, 'words ' * 900)"}, thinking="Next.") for at in range(9)]
    server.script(*many, text("It is done."))
    assert rig.turn("look nine times").status == "finished"
    assert [event for event in rig.of(ServerEdited) if event.edit == RESULTS]
    assert [exchange.error for exchange in server.refused] == []


def test_what_the_server_left_out_is_off_the_results_and_off_nothing_else(
    make_rig: Callable[..., Rig], server: PracticeServer
) -> None:
    rig = make_rig(engine="server", **{**SMALL, "window": 60_000, "server_clear_trigger": 18_500})
    for number in range(1, 11):
        table(rig, server, number)
    assert len([event for event in rig.of(ServerEdited) if event.edit == RESULTS]) >= 2
    session = rig.agent.session
    shares = Shares().of(session.view)
    assert sum(shares.values()) == pytest.approx(session.view.count().tokens, abs=10)
    # where the server began to leave out, its cache could serve system prompt and tools, and nothing else
    head = min(read for exchange in server.messages if (read := exchange.usage["cache_read_input_tokens"]))
    ours = sum(shares[name] for name in ("system prompt", "instructions", "memory", "skills", "tools"))
    assert ours == pytest.approx(head, rel=0.05)


def test_the_client_engine_asks_the_server_for_nothing(make_rig: Callable[..., Rig], server: PracticeServer) -> None:
    rig = make_rig(clear_policy="every_turn", **SMALL)
    work(rig, server)
    assert not any(managed(server))
    assert rig.of(ResultsCleared)
    assert rig.of(ServerEdited) == []


def test_where_the_server_cannot_we_do(make_rig: Callable[..., Rig]) -> None:
    with PracticeServer(without=["context_management"]) as server:
        rig = make_rig(server=server, engine="server", clear_policy="every_turn", **SMALL)
        work(rig, server)
        assert not any(managed(server))
        assert rig.of(ResultsCleared)


def test_a_server_that_refuses_after_all_leaves_it_to_us(make_rig: Callable[..., Rig], server: PracticeServer) -> None:
    rig = make_rig(engine="server", clear_policy="every_turn", **SMALL)
    server.script(fault(400, message="context_management: Extra inputs are not permitted"))
    work(rig, server)
    assert list(managed(server))[:2] == [True, False]
    assert not any(list(managed(server))[1:])
    assert rig.of(ResultsCleared)


def test_other_tools_are_excluded_and_small_windows_clear_before_they_compact(
    make_rig: Callable[..., Rig], server: PracticeServer
) -> None:
    rig = make_rig(engine="server", window=100_000)
    work(rig, server, turns=1, thinking=None)
    asked = server.messages[0].body["context_management"]["edits"]
    assert [edit["type"] for edit in asked][:2] == ["clear_thinking_20251015", RESULTS]
    assert asked[0]["keep"] == "all", "thinking is not cleared turn by turn"
    session = rig.agent.session
    mark = session.state(0).warning_mark
    assert asked[1]["trigger"] == {"type": "input_tokens", "value": mark}
    assert asked[1]["clear_at_least"]["value"] == 140_000 * mark // 180_000
    listed = {block["name"] for block in session.view.tools}
    others = {name for name in listed if not session.tools[name].recreatable}
    assert set(asked[1]["exclude_tools"]) == others
    server.script(tool("plan", {"steps": [{"step": "load"}]}), text("It is planned."))
    rig.turn("plan it")
    asked = server.messages[-1].body["context_management"]["edits"]
    assert set(asked[1]["exclude_tools"]) == {*others, "plan"}, "called although it is not listed"
