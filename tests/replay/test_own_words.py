"""A session of ours replayed with the summaries and notes of its own model: what each compaction keeps and costs."""

from __future__ import annotations

from pathlib import Path

import pytest

from ipyagent.journal.blocks import text_block
from ipyagent.journal.events import (
    AssistantMessage,
    Compacted,
    Event,
    NotesWritten,
    SystemPromptFrozen,
    SystemReminder,
    UserMessage,
)
from ipyagent.replay.importers import read_own, read_recording
from ipyagent.replay.metrics import Metrics, TrackedFact, read_facts
from ipyagent.replay.recording import Collector, RecordedText, Recording
from ipyagent.replay.replaying import OwnWords, replay, settings_for

LONG = Path(__file__).resolve().parents[2].parent / "shared" / "data" / "real-model" / "sessions" / "long-19fd.jsonl"
LONG_FACTS = Path(__file__).with_name("facts_long_19fd.jsonl")
NOTES, SUMMARY = "<notes>\n# Log\n3 kg\n</notes>", "<summary>\n4 kg\n</summary>"
RULE = TrackedFact("never touch the raw files", "user", standing=True)


def session(turns: int = 14, lines: int = 50) -> tuple[Recording, tuple[TrackedFact, ...]]:
    """A turn weighs a box, prints a table, and says a figure; the notes at the end have them all."""
    collected, facts = Collector("a test"), [RULE]
    noted = ["# Task Specification", f'"{RULE.token}"', "# Key Results"]
    for turn in range(1, turns + 1):
        rule = f" For the whole session: {RULE.token}." if turn == 1 else ""
        story = " ".join(f"It came by way of town {turn * 31 + at} and was opened there." for at in range(60))
        collected.user([text_block(f"Weigh the box of lot {7_000 + turn}.{rule} {story}")])
        call = {"type": "tool_use", "id": f"t{turn}", "name": "python", "input": {"code": f"weigh({turn})"}}
        collected.reply([{"type": "thinking", "thinking": "let me see"}, call])
        rows = "\n".join(f"{turn} {row} {row * 37 % 101} {row * turn * 13 % 977}" for row in range(lines))
        collected.result(f"t{turn}", [text_block(rows)])
        figure = f"{3_000 + 17 * turn} grams"
        collected.reply([text_block(f"The box of lot {7_000 + turn} is {figure}. Next?")])
        facts.append(TrackedFact(figure, "answer"))
        noted.append(f"Lot {7_000 + turn} is {figure}.")
    written = (RecordedText("notes", turns, "\n".join(noted)),)
    return Recording("a test", collected.finished().turns, written=written), tuple(facts)


def test_every_compaction_at_a_turns_start_is_free_and_keeps_the_facts_and_every_clearing_pays() -> None:
    recording, facts = session(24)
    made = replay(recording, settings_for(layers=None, window=16_000), facts, own_words=True)
    assert (made.refused, made.finished) == (0, 24)
    assert len(made.compactions) >= 2
    held_to(made, facts)
    table = made.table()
    for words in ("free: ", "facts kept", "money by kind", "read share by kind", "cache break"):
        assert words in table
    assert sum(made.spent.values()) == pytest.approx(made.dollars)


def held_to(made: Metrics, facts: tuple[TrackedFact, ...]) -> None:
    """What holds for every replay with good notes."""
    standing = {fact.token for fact in facts if fact.standing}
    for each in made.compactions:
        assert not standing & set(each.lost), each
        assert each.facts_after >= 0.95 * each.facts_before, each
        assert not (each.at_start and each.dollars), each
    assert all(each.balance >= 0 for each in made.clearings), [str(each) for each in made.clearings]


def test_a_sentence_of_the_notes_is_not_written_before_its_figures_were_said() -> None:
    recording, _ = session(6)
    assert OwnWords(recording).by("notes", 3).splitlines() == [
        "# Task Specification", f'"{RULE.token}"', "# Key Results",
        "Lot 7001 is 3017 grams.", "Lot 7002 is 3034 grams.", "Lot 7003 is 3051 grams.",
    ]  # fmt: skip
    assert OwnWords(recording).by("notes", 6) == recording.written[0].text
    assert OwnWords(recording).by("summary", 6) == ""


def test_of_our_transcripts_the_head_the_reminders_and_what_the_model_wrote_are_read() -> None:
    head = SystemPromptFrozen(system=(text_block("You weigh."),), tools=())
    events: list[Event] = [
        head,
        SystemPromptFrozen(system=(text_block("You weigh on."),), tools=()),
        UserMessage(text="weigh", blocks=(text_block("weigh"),)),
        SystemReminder(text="<context>\na box\n</context>", why="", tokens=5),
        AssistantMessage(blocks=(text_block("3 kg"),)),
        NotesWritten(upto=5, tokens=9, calls=1),
        UserMessage(text="go on", blocks=(text_block("go on"),)),
        AssistantMessage(blocks=(text_block("4 kg"),)),
        NotesWritten(upto=8, tokens=9, calls=0),
        Compacted(trigger="auto", method="notes", first=1, last=8, blocks=(text_block(NOTES),)),
        Compacted(trigger="auto", method="summary", first=1, last=9, blocks=(text_block(SUMMARY),)),
    ]
    recording = read_own(events)
    assert recording.head == head
    assert [block["text"] for block in recording.turns[0].asked] == ["weigh", "<context>\na box\n</context>"]
    assert [turn.text for turn in recording.turns] == ["weigh", "go on"], "the user's own words alone"
    assert recording.written == (RecordedText("notes", 1, "# Log\n3 kg"), RecordedText("summary", 2, "4 kg"))


@pytest.mark.skipif(not LONG.exists(), reason="the recorded session is not part of the project")
def test_the_long_session_with_a_strong_model_keeps_its_facts_for_nothing() -> None:
    facts = read_facts(LONG_FACTS)
    made = replay(read_recording(LONG), settings_for(layers=None, window=40_000), facts, own_words=True)
    print(made.table())
    assert (made.refused, made.finished) == (0, 25)
    assert 1 <= sum(each.at_start for each in made.compactions) <= len(made.compactions) <= 2, "4 of them before"
    held_to(made, facts)
    assert made.read_share > 0.92
    assert made.spent["conversation"] < 0.50, "0.80 at the commit at which it was recorded"
    assert made.dollars < 0.68
