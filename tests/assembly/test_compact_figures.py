"""The figures of `%compact` against the practice server's own counts: before, after, what a look ahead promises."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from compact_room import CompactRoom, compact_room, words
from notes_room import NotesRoom, notes_room
from rooms import MODEL

from ipyagent import Agent, IPyAgent
from ipyagent.errors import CompactionFailed
from ipyagent.journal.events import (
    Compacted,
    DecisionUndone,
    ForkEnded,
    SystemPromptFrozen,
    SystemReminder,
    TurnCollapsed,
    TurnsRemoved,
)
from ipyagent.journal.journal import TRANSCRIPT, read_events
from ipyagent.journal.view import ContextView
from ipyagent.model.prices import rates_of
from ipyagent.practice.replies import Fault, text, tool
from ipyagent.practice.server import Exchange
from ipyagent.ui.transcript import notice_of

HEAVY = 1_600


def weighed(place: CompactRoom, turns: int = 3) -> Agent:
    agent = place.agent(memory=False)
    for number in range(1, turns + 1):
        place.turn(agent, f"weigh box {number}: {words(number, HEAVY)}", text(f"done {number}"))
    return agent


def counted(place: CompactRoom, agent: Agent) -> int:
    """What the server counts for a prompt that is the present one and one small request."""
    place.turn(agent, "hi", text("hello"))
    return sum(prompt(place.server.messages[-1])) - 10


def prompt(exchange: Exchange) -> tuple[int, int, int]:
    """Tokens of a request that were not cached, read from the cache and written to it."""
    parts = exchange.usage.get("iterations") or [exchange.usage]
    names = ("input_tokens", "cache_read_input_tokens", "cache_creation_input_tokens")
    uncached, read, written = (sum(part[name] for part in parts) for name in names)
    return uncached, read, written


def figures(said: str) -> tuple[int, ...]:
    """The numbers with a comma or an arrow beside them."""
    return tuple(int(found.replace(",", "")) for found in re.findall(r"\d+,\d+", said))


def test_taking_a_turn_out_and_back_is_told_by_one_measure_and_that_is_the_servers(place: CompactRoom) -> None:
    agent = weighed(place)
    view = place.session(agent).view
    before = view.count().tokens
    dry, done = agent.compact("--snip 2 --dry-run"), agent.compact("--snip 2")
    after = view.count().tokens
    assert figures(dry)[:2] == figures(done)[:2] == (before, after)
    assert place.of(agent, TurnsRemoved)[-1].saved == before - after
    assert "would undo the removal of turn 2;" in agent.compact("--undo --dry-run")
    undone = agent.compact("--undo")
    assert figures(undone)[:2] == (after, before)
    assert "(the removal of turn 2)" in undone
    assert view.count().tokens == before
    agent.compact("--snip 2")
    assert after == pytest.approx(counted(place, agent), rel=0.005)
    agent.compact("--undo")
    told = view.count().tokens
    assert told == pytest.approx(counted(place, agent), rel=0.005)
    assert told == pytest.approx(before, abs=40)  # only the small turn in between is new
    _, read, written = prompt(place.server.messages[-1])
    assert read > 0.95 * before, "what comes back is read from the cache again"
    assert written < 0.05 * before


def test_what_is_out_already_is_not_taken_out_again_and_a_small_turn_changes_little(place: CompactRoom) -> None:
    agent = weighed(place)
    agent.compact("--snip 1")
    for line in ("--snip 1", "--snip 1 --dry-run"):
        with pytest.raises(CompactionFailed, match="turn 1 was removed before"):
            agent.compact(line)
    assert len(place.of(agent, TurnsRemoved)) == 1
    assert "took out turns 1 to 2" in agent.compact("--snip 1:2")
    with pytest.raises(CompactionFailed, match="turns 1 to 2 were removed before"):
        agent.compact("--snip 1:2")
    agent.compact("--undo")
    agent.compact("--undo")
    assert "took out turn 1" in agent.compact("--snip 1")
    place.turn(agent, "hi", text("hello"))
    place.turn(agent, "hi again", text("hello"))
    before = place.session(agent).view.count().tokens
    said = agent.compact("--snip 4")
    assert abs(place.session(agent).view.count().tokens - before) < 40, said
    assert "the line in its place is longer than what went" in said


def announced(said: str) -> tuple[float, int, int]:
    """Dollars, tokens read from the cache and written to it."""
    found = re.search(r"about \$([\d.]+) \(([\d,]+) tokens read from the cache, ([\d,]+) written", said)
    assert found is not None, said
    return float(found[1]), int(found[2].replace(",", "")), int(found[3].replace(",", ""))


def test_a_look_ahead_prices_the_call_as_the_server_bills_it(place: CompactRoom) -> None:
    agent = weighed(place, 4)
    for number, line in enumerate(("", "--snip 2", "--undo")):
        if line:
            agent.compact(line)
        wish = f"--from 3 look {number} times"  # else the provider has the last order in its cache
        _, read, written = announced(agent.compact(f"{wish} --dry-run"))
        said = agent.compact(wish)
        _, truly_read, truly_written = prompt(place.server.messages[-1])
        assert read == pytest.approx(truly_read, abs=60), line
        assert written == pytest.approx(truly_written, rel=0.05, abs=200), said
        agent.compact("--undo")


def test_a_look_ahead_names_the_turns_that_then_go_and_no_part_is_more_than_the_whole(place: CompactRoom) -> None:
    agent = weighed(place, 5)
    view = place.session(agent).view
    said = agent.compact("--dry-run")
    goes, whole = figures(said)[:2]
    assert goes < whole == view.count().tokens
    stays = int(re.findall(r"\n([\d,]+) tokens stay", said)[0].replace(",", ""))
    assert stays + goes == whole
    assert stays == pytest.approx(view.head_tokens, rel=0.25)  # system prompt and tools
    agent.compact("--up-to 3")  # one summary of three turns: none of them goes alone
    dry, done = agent.compact("--from 2 --up-to 4 --dry-run"), agent.compact("--from 2 --up-to 4")
    assert "would summarise turns 1 to 4," in dry
    assert "compacted turns 1 to 4 (summary)" in done
    assert "the summary of turns 1 to 4" in agent.compact("--undo")


def test_a_step_and_a_look_ahead_tell_one_price_also_on_the_practice_model(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("a,b\n" + "\n".join(f"{n},{n * 37 % 101}" for n in range(300)))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("IPYAGENT_HOME", str(tmp_path / "home"))
        settings = IPyAgent(model="practice", mode="auto", trust_all=True, layer_clear_results=False)
        agent = Agent(settings=settings, folder=tmp_path)
        try:
            for said in ("load a.csv", "describe df", "missing values in df", "average b by a", "describe df"):
                agent.run_sync(said)
            dry, step = agent.compact("--dry-run"), agent.compact("--step --dry-run")
            price = re.compile(r"it would be about \$[^)]+\)")
            assert price.findall(dry) == price.findall(step) != []
            stepped = agent.compact("--step")
            agent.compact("--undo")
            done = agent.compact()
        finally:
            agent.close()
    after = re.compile(r"after (?:about )?([\d,]+) more")
    requests = [int(after.findall(said)[0].replace(",", "")) for said in (stepped, done)]
    assert requests[0] == pytest.approx(requests[1], rel=0.25), (stepped, done)


def test_under_another_head_nothing_is_read_from_the_cache(place: CompactRoom) -> None:
    agent = weighed(place)
    session = place.session(agent)
    head = ({"type": "text", "text": "You weigh boxes."},)
    session.record(SystemPromptFrozen(system=head, tools=tuple(session.view.tools), tokens=session.view.head_tokens))
    _, read, written = announced(agent.compact("--dry-run"))
    assert read == written == 0
    beside = int(re.findall(r"([\d,]+) beside it", agent.compact("--dry-run"))[0].replace(",", ""))
    assert beside >= session.view.count().tokens


def test_a_look_ahead_at_a_small_conversation_or_one_with_all_layers_off_says_so(place: CompactRoom) -> None:
    agent = place.agent(memory=False)
    place.turn(agent, "hi", text("hello"))
    why = r"compacted: of turn 1 about \d+ tokens could go, and a summary pays from 400 on; %"
    for line in ("--dry-run", ""):
        with pytest.raises(CompactionFailed, match=why):
            agent.compact(line)
    place.turn(agent, f"weigh box 1: {words(1, HEAVY)}", text("done"))
    agent.settings.layer_summarize = False
    for line in ("--dry-run", ""):
        with pytest.raises(CompactionFailed, match="no layer is on"):
            agent.compact(line)
    assert place.calls == []


def test_a_look_ahead_names_the_provider_where_that_would_summarise(place: CompactRoom) -> None:
    agent = weighed(place)
    agent.settings.engine = "auto"
    events = len(place.events(agent))
    _, read, written = announced(said := agent.compact("--dry-run"))
    assert "would have the provider summarise turns 1 to 3" in said
    assert len(place.events(agent)) == events
    agent.compact()
    assert place.of(agent, Compacted)[-1].method == "server"
    _, truly_read, truly_written = prompt(place.server.messages[-1])
    assert read == pytest.approx(truly_read, abs=60)
    assert written == pytest.approx(truly_written, abs=120)


def test_a_look_ahead_says_that_the_notes_would_do_and_they_do(tmp_path: Path) -> None:
    with notes_room(tmp_path) as room:
        agent = room.agent()
        for number in range(12):
            replies = tool("python", {"code": f"print({number})"}, thinking="hm"), text(f"done {number}")
            room.turn(agent, f"weigh box {number}: {words(number, HEAVY)}", *replies)
        requests = len(room.server.messages)
        dry, done = agent.compact("--dry-run"), agent.compact()
        (told,) = re.findall(r"would compact (turns 1 to \d+) \(notes\)", dry)
        assert f"compacted {told} (notes)" in done
        assert int(told.split()[-1]) < 12, "the newest turns follow the notes"
        assert "no model call" in dry
        assert figures(dry)[:2] == figures(done)[:2]
        assert len(room.server.messages) == requests
        assert "would summarise" in agent.compact("keep the weights --dry-run")  # a wish goes to the model
        told = agent.session.view.count().tokens
        room.turn(agent, "hi", text("hello"))
        last = room.asked(updates=False)[-1]
        assert sum(prompt(last)) - 10 == pytest.approx(told, rel=0.02)


def test_what_the_provider_summarised_by_itself_counts_no_more(place: CompactRoom) -> None:
    agent = place.agent(memory=False, engine="server", window=100_000, layer_server_edits=False)
    for number in range(7):  # the sixth goes over the mark
        said = f"weigh box {number}: {words(number, 13_400 if number < 6 else 100)}"
        told = agent.session.view.count().tokens if number else 0
        place.turn(agent, said, text(f"done {number}", thinking="Hm."))
    swept = place.of(agent, Compacted)[-1]
    sent = sum(prompt(place.server.messages[-1]))
    carried = sum(event.tokens for event in place.of(agent, SystemReminder) if event.id > swept.id)
    assert carried > 5_000, "the user's words stand behind the provider's summary"
    assert told + carried == pytest.approx(sent, rel=0.05)
    assert swept.tokens_after == pytest.approx(sent, rel=0.05)
    assert swept.tokens_before > 70_000


# ---------------------------------------------------------------------- money


def test_over_the_days_limit_a_compaction_is_made_only_where_it_costs_nothing(tmp_path: Path) -> None:
    with notes_room(tmp_path) as room:
        agent = room.agent()
        for number in range(12):
            room.turn(agent, f"weigh box {number}: {words(number, HEAVY)}", text(f"done {number}"))
        spent = agent.session.history.totals.cost
        agent.settings.max_cost_per_day = 0.0001
        requests = len(room.server.messages)
        for line in ("keep the weights", "--from 3"):
            with pytest.raises(CompactionFailed, match=r"the limit is \$0.00: raise IPyAgent.max_cost_per_day"):
                agent.compact(line)
        agent.settings.layer_notes = agent.settings.layer_clear_results = False
        with pytest.raises(CompactionFailed, match="today's cost is"):
            agent.compact("--step")
        agent.settings.layer_notes = True
        assert "(notes)" in agent.compact()
        assert len(room.server.messages) == requests
        assert agent.session.history.totals.cost == spent
        assert agent.session.history.compact_failures == 0


def test_a_compaction_that_came_to_nothing_says_what_it_cost(place: CompactRoom) -> None:
    agent = weighed(place)
    place.summaries = [text("<analysis>only thoughts</analysis>")]
    with pytest.raises(CompactionFailed, match="only an analysis") as caught:
        agent.compact()
    (fork,) = place.of(agent, ForkEnded)
    assert f"it cost ${fork.cost:.4f}; %context" in str(caught.value)


def test_it_is_paid_back_after_as_many_requests_as_is_said(place: CompactRoom) -> None:
    agent = weighed(place, 5)
    said = agent.compact()
    (made,) = place.of(agent, Compacted)
    (fork,) = [event for event in place.of(agent, ForkEnded) if event.purpose == "compaction"]
    counted(place, agent)
    _, _, written = prompt(place.server.messages[-1])
    rates = rates_of(MODEL)
    once = (written - 10) * (rates.write - rates.read) + fork.cost
    each = (made.tokens_before - made.tokens_after) * rates.read
    assert made.paid_back == pytest.approx(once / each, abs=1.5)
    assert f"pays for itself after about {made.paid_back} more requests" in said
    assert notice_of(made)[0].endswith(f"tokens, pays for itself after about {made.paid_back} more requests")


KINDS = ("summary", "a part", "automatic", "reactive", "notes", "snip", "collapse", "undo", "the model's")
TOO_LONG = Fault(400, "invalid_request_error", "prompt is too long: 41000 tokens > 40000 maximum")
DECIDED = {"snip": TurnsRemoved, "collapse": TurnCollapsed, "undo": DecisionUndone}
AUTO, REACTIVE, MODELS = (("summary", trigger) for trigger in ("auto", "reactive", "model"))
HOW = {"automatic": AUTO, "reactive": REACTIVE, "the model's": MODELS, "notes": ("notes", "manual")}


@pytest.mark.parametrize("kind", KINDS)
def test_after_each_kind_of_compaction_the_count_is_the_servers(tmp_path: Path, kind: str) -> None:
    with (notes_room if kind == "notes" else compact_room)(tmp_path) as room:
        asked = {"layer_collapse": kind == "collapse", "collapse_percent": 25, "window": 40_000}
        agent = room.agent(memory=True, recall=False, **asked)
        for number in range(1, 6):
            table = tool("python", {"code": f"print({words(number, 900)!r})"}, thinking=f"box {number}")
            room.turn(agent, f"weigh box {number}: {words(number, 300)}", table, text(f"box {number} is 3 kg"))
        view = agent.session.view
        head = view.head_tokens
        rules = [f"{words(number, 30)}: round to {number} digits" for number in range(10)]
        (room.folder / "AGENTS.md").write_text("\n".join(rules))  # the head that comes with a compaction tells of it
        before = view.count().tokens
        match kind:
            case "a part":
                agent.compact("--up-to 3")
            case "snip":
                agent.compact("--snip 2:3")
            case "the model's":
                room.turn(agent, "and now", tool("compact", {}), text("done"))
            case "undo":
                agent.compact()
                agent.compact("--undo")
                assert view.count().tokens == before, "the same bytes have the same figure"
                assert view.head_tokens == head
            case "collapse":
                room.turn(agent, "one more", text("fine"))
            case "automatic":
                agent.settings.auto_compact_percent = 30
                room.turn(agent, "and now", text("done"))
            case "reactive":
                room.turn(agent, "and now", TOO_LONG, text("done"))
            case _:
                agent.compact()
        events = list(read_events(agent.session.journal.folder / TRANSCRIPT))
        made = next(event for event in reversed(events) if isinstance(event, DECIDED.get(kind, Compacted)))
        if isinstance(made, Compacted):
            assert (made.method, made.trigger) == HOW.get(kind, ("summary", "manual"))
            assert view.head_tokens > head + 200
            then = [event for event in events if event.id <= made.id or isinstance(event, SystemPromptFrozen)]
            assert made.tokens_after == pytest.approx(ContextView.of(then).count().tokens, abs=2)
        assert ContextView.of(events).count() == view.count(), "a journal taken up again has the same figure"
        now = view.count().tokens
        room.turn(agent, "hi", text("hello"))
        last = room.asked(updates=False)[-1] if isinstance(room, NotesRoom) else room.server.messages[-1]
        assert now == pytest.approx(sum(prompt(last)) - 10, rel=0.05)
