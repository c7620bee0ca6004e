"""A replay says what was said, through the real loop, and measures what the server counted."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ipyagent.__main__ import main
from ipyagent.errors import UsageError
from ipyagent.journal.events import Usage
from ipyagent.replay.importers import read_recording
from ipyagent.replay.metrics import TrackedFact, distinctive, dollars_of, fate
from ipyagent.replay.recording import Collector, Recording
from ipyagent.replay.replaying import replay, settings_for

SESSION = Path(__file__).resolve().parents[2].parent / "shared" / "data" / "sessions" / "pi-large-session.jsonl"
SETS: dict[str, list[str] | None] = {
    "none": [],
    "store": ["store_results"],
    "clear": ["store_results", "clear_results"],
    "summarize": ["store_results", "clear_results", "summarize", "reactive"],
    "notes": ["store_results", "clear_results", "notes", "summarize", "reactive"],
    "default": None,
}


def recording(turns: int = 6, lines: int = 40) -> Recording:
    collected = Collector("a test")
    for turn in range(turns):
        collected.user([{"type": "text", "text": f"look at part {turn}, order-{turn:04}"}])
        collected.reply([
            {"type": "thinking", "thinking": f"part {turn} is to be read"},
            {"type": "tool_use", "id": f"t{turn}", "name": "read", "input": {"path": f"part{turn}"}},
        ])  # fmt: skip
        rows = [f"{turn} line {at}: the value is {at * turn}" for at in range(lines)]
        rows.insert(lines // 2, f"lot-of-{turn:04}")
        collected.result(f"t{turn}", [{"type": "text", "text": "\n".join(rows)}])
        collected.reply([{"type": "text", "text": f"part {turn} is fine, box-no-{turn:04}"}])
    return collected.finished()


def test_every_reply_is_one_request_and_the_server_counts_it() -> None:
    made = replay(recording(), settings_for(layers=[], window=200_000))
    assert (made.refused, made.finished, made.requests) == (0, 6, 12)
    assert made.compaction_calls == 0
    assert made.read_share > 0.5
    assert made.dollars == pytest.approx(sum(turn.dollars for turn in made.turns))
    assert made.usage.prompt > 12 * made.turns[0].usage.prompt / 2
    assert not made.timed
    assert "the recording does not tell it" in made.table()


def test_a_turn_that_the_user_stopped_goes_on_with_the_next() -> None:
    collected = Collector("a test")
    collected.user([{"type": "text", "text": "look"}])
    collected.reply([{"type": "tool_use", "id": "t", "name": "read", "input": {}}])
    collected.result("t", [{"type": "text", "text": "what it says"}])
    collected.user([{"type": "text", "text": "no, the other"}])
    collected.reply([{"type": "text", "text": "fine"}])
    made = replay(collected.finished(), settings_for(layers=[], window=200_000))
    assert [turn.status for turn in made.turns] == ["stopped", "finished"]
    assert (made.refused, made.requests) == (0, 2)


def test_clearing_every_turn_shrinks_the_prompt_and_breaks_the_cache() -> None:
    bare = replay(recording(20), settings_for(layers=[], window=200_000))
    cleared = replay(recording(20), settings_for(layers=["clear_results"], window=200_000, clear_policy="every_turn"))
    assert cleared.decisions["ResultsCleared"] >= 16
    assert cleared.turns[-1].window < bare.turns[-1].window / 2
    assert cleared.read_share < bare.read_share
    assert cleared.refused == bare.refused == 0


def test_without_layers_a_small_window_ends_the_session() -> None:
    made = replay(recording(30, 120), settings_for(layers=[], window=8_000))
    assert made.refused == 0
    assert 0 < made.finished < 30
    assert "the context window is full" in made.stopped_at
    assert "first failure" in made.table()


def test_facts_are_all_kept_when_nothing_leaves() -> None:
    made = recording(20)
    facts = distinctive(made, 30)
    assert len({fact.token for fact in facts}) == 30
    assert {fact.place for fact in facts} == {"user", "answer", "result"}
    kept = replay(made, settings_for(layers=[], window=200_000), facts).fate
    assert (len(kept.kept), kept.reachable, kept.lost) == (30, (), ())


def test_a_fact_is_reachable_by_a_file_that_the_view_or_a_named_file_names_and_lost_otherwise(tmp_path: Path) -> None:
    # a fact is reachable by a file that the view names and lost otherwise
    (tmp_path / "tool-results").mkdir()
    (tmp_path / "tool-results" / "t1.txt").write_text("it says abc-111")
    (tmp_path / "tool-results" / "t2.txt").write_text("it says abc-222")
    facts = [TrackedFact("abc-111", "result"), TrackedFact("abc-222", "result"), TrackedFact("abc-333", "user")]
    messages = [{"role": "user", "content": [{"type": "text", "text": "abc-333, see tool-results/t1.txt"}]}]
    found = fate(facts, messages, tmp_path)
    assert [[fact.token for fact in group] for group in (found.kept, found.reachable, found.lost)] == [
        ["abc-333"], ["abc-111"], ["abc-222"],
    ]  # fmt: skip
    # a fact in a file that a named file names is reachable
    for name, said in {
        "left-2": "said abc-222; kept in tool-results/left-1.txt", "left-1": "abc-111", "left-12": "abc-333"
    }.items():  # fmt: skip
        (tmp_path / "tool-results" / f"{name}.txt").write_text(said)
    facts = [TrackedFact("abc-111", "result"), TrackedFact("abc-222", "user"), TrackedFact("abc-333", "user")]
    said = "word for word in tool-results/left-2.txt (grep it"
    messages = [{"role": "user", "content": [{"type": "text", "text": said}]}]
    found = fate(facts, messages, tmp_path)
    assert [fact.token for fact in found.reachable] == ["abc-111", "abc-222"]
    assert [fact.token for fact in found.lost] == ["abc-333"]


def test_what_leaves_in_a_replay_is_reachable() -> None:
    made = recording(30)
    facts = distinctive(made, 60)
    ends = replay(made, settings_for(layers=None, window=14_000, clear_policy="every_turn"), facts)
    assert ends.refused == 0
    assert ends.decisions["ResultsCleared"] > 0
    assert ends.fate.reachable
    assert ends.fate.lost == ()


def timed(*minutes: float, cold: int = -1) -> Recording:
    """A request each at these minutes; of the one of the number `cold` the provider held nothing."""
    collected = Collector("a test")
    for number, minute in enumerate(minutes):
        collected.at(1_700_000_000 + 60 * minute)
        collected.user([{"type": "text", "text": f"part {number}: " + "a word and another " * 800}])
        collected.reply([{"type": "text", "text": "fine"}])
        collected.billed(Usage(cache_write=9_000) if number in (0, cold) else Usage(cache_read=9_000))
    return collected.finished()


def test_the_cache_lives_by_the_times_and_losses_of_the_recording() -> None:
    quick = replay(timed(0, 1, 5, 9, 13), settings_for(layers=[], window=200_000))
    assert (quick.timed, quick.breaks, quick.cold) == (True, (), 0)
    slow = replay(timed(0, 1, 7, 8, 20), settings_for(layers=[], window=200_000))
    assert [line.split(":")[0] for line in slow.breaks] == ["turn 3", "turn 5"]
    assert all("minutes, longer than the 5" in line for line in slow.breaks)
    assert slow.read_share < 0.7 * quick.read_share
    lost = replay(timed(0, 1, 2, 3, 4, cold=3), settings_for(layers=[], window=200_000))
    assert (len(lost.breaks), lost.cold) == (1, 1)
    table = lost.table()
    assert "as recorded" in table
    assert "held hardly anything of 1 prompt," in table
    assert table.count("(median)") == 2


@pytest.mark.slow
@pytest.mark.skipif(not SESSION.exists(), reason="the recorded session is not part of the project")
def test_a_replay_with_a_recordings_own_layers_costs_what_was_recorded() -> None:
    """Without layers of ours nothing leaves either: no request is refused and every turn comes to its end."""
    made = replay(read_recording(SESSION), settings_for(layers=[], window=200_000))
    recorded = made.recorded
    assert (made.refusals, made.finished) == ((), len(made.turns)), made.stopped_at
    assert made.read_share == pytest.approx(recorded.cache_read / recorded.prompt, abs=0.01)
    assert made.dollars == pytest.approx(dollars_of(recorded), rel=0.05)
    assert made.left_out == {"calls without a result": 18}


def test_an_unknown_layer_is_refused_with_the_names_there_are() -> None:
    with pytest.raises(UsageError, match=r"no layer 'snap'; known: .*clear_results"):
        settings_for(layers=["snap"], window=8_000)


def test_the_command_prints_the_table_and_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines = [{"type": "session", "cwd": "/"}]
    for turn in range(3):
        for role, text in (("user", f"say {turn}"), ("assistant", f"it is {turn}")):
            content = [{"type": "text", "text": text}]
            lines.append({"type": "message", "message": {"role": role, "content": content}})  # type: ignore[dict-item]
    path = tmp_path / "s.jsonl"
    path.write_text("\n".join(map(json.dumps, lines)))
    assert main(["replay", str(path), "--layers", "clear_results", "--window", "32000", "--turns"]) == 0
    told = capsys.readouterr().out
    for words in ("requests refused         0", "cache-read share", "cost (", "compaction calls", "facts", "finished"):
        assert words in told
    assert main(["replay", str(path), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["requests"] == 3
    assert main(["replay", str(path), "--set", "clear_kip=3"]) == 1
    assert "--set 'clear_kip=3'" in capsys.readouterr().err
    assert main(["replay", str(path), "--json", "--set", "window=16000", "--set", "engine=server"]) == 0
    capsys.readouterr()
    for fixed in ("model=claude-haiku-5-5", "max_retries=2", "trust_all=false"):
        assert main(["replay", str(path), "--set", fixed]) == 1
        assert f"--set {fixed.partition('=')[0]}: not available in a replay" in capsys.readouterr().err


@pytest.mark.skipif(not SESSION.exists(), reason="the recorded session is not part of the project")
@pytest.mark.slow
@pytest.mark.parametrize(
    ("window", "layers"),
    [(8_000, "none"), (8_000, "store"), (8_000, "clear"), (8_000, "summarize"), (8_000, "notes"), (8_000, "default"),
     (32_000, "summarize"), (32_000, "notes"), (32_000, "default"), (200_000, "default")],
)
def test_a_real_session_is_replayed_without_a_refused_request(window: int, layers: str) -> None:
    recorded = read_recording(SESSION)
    made = replay(recorded, settings_for(layers=SETS[layers], window=window), distinctive(recorded))
    print(made.table())
    assert made.refusals == ()
    if window > 8_000:
        assert made.finished == len(made.turns), made.stopped_at
