"""Session notes: when they are written, what may be written, and what a compaction makes of them."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import hypothesis
import pytest
from hypothesis import strategies as st
from notes_room import LOG, STATE, NotesRoom, directive_in, notes_room, noting, path_in, words

from ipyagent.context.notes import _ours, substituted
from ipyagent.context.notes_file import Notes, NotesToolPolicy
from ipyagent.errors import AgentError, ToolFailure
from ipyagent.extension.context_report import report, summary
from ipyagent.journal.events import (
    AssistantMessage,
    Compacted,
    ForkEnded,
    LayerDecision,
    LayerFailed,
    NotesWritten,
    UserMessage,
)
from ipyagent.journal.tokens import estimate_text
from ipyagent.journal.view import ContextView
from ipyagent.loop.context_engine import Engine
from ipyagent.practice.replies import Reply, calls, fault, text, tool

SECTIONS = [
    "Session Title", "Current State", "Task Specification", "Files, Variables and Functions", "Workflow",
    "Errors & Corrections", "Data and System Documentation", "Learnings", "Key Results", "Worklog",
]  # fmt: skip
PYTHON = tool("python", {"code": "1 + 1"})


@pytest.fixture
def room(tmp_path: Path) -> Iterator[NotesRoom]:
    with notes_room(tmp_path) as made:
        yield made


@pytest.fixture
def template() -> Notes:
    return Notes.template(_ours("notes_template.md"))


# ---------------------------------------------------------------------- the document


def test_the_template_has_the_ten_sections_each_with_its_line(template: Notes) -> None:
    assert [section.heading.removeprefix("# ") for section in template.sections] == SECTIONS
    assert all(section.about.startswith("_") and section.about.endswith("_") for section in template.sections)
    assert template.empty
    assert template.found_in(str(template)) == template
    assert estimate_text(str(template)) < 450
    assert estimate_text(_ours("notes_prompt.md")) < 520


def test_only_the_text_under_a_heading_can_be_changed(template: Notes) -> None:
    whole = str(template)
    for broken, word in (
        (whole.replace("# Workflow\n", ""), "missing"),
        (whole.replace("# Workflow", "# Work flow"), "missing"),
        (whole + "\n# Workflow\n", "doubled"),
        (whole + "\n# Ideas\nmany\n", "new one"),
        ("", "missing"),
    ):
        with pytest.raises(ToolFailure, match=word):
            template.revised(broken)
    kept = template.revised(whole.replace(STATE, "_Something else entirely._\nThe fit runs.\n\n```\n# a comment\n```"))
    assert kept.sections[1].about == STATE
    assert kept.sections[1].text == "The fit runs.\n\n```\n# a comment\n```"
    assert template.revised(whole.replace(STATE, "gone")).sections[1] == ("# Current State", STATE, "gone")


def test_a_file_that_somebody_edited_is_read_as_far_as_it_goes(template: Notes) -> None:
    odd = "my own words\n# Worklog\nfirst\n# Current State\n" + STATE + "\nhere\n# Current State\nagain"
    found = template.found_in(odd)
    assert [section.heading for section in found.sections] == [section.heading for section in template.sections]
    assert found.sections[-1].text == "first"
    assert found.sections[1].text == "here\n# Current State\nagain"


def test_limits_hold_and_the_log_keeps_its_end(template: Notes) -> None:
    lines = "\n".join(f"step {n}: loaded table {n} with {n * 7} rows" for n in range(400))
    full = Notes(tuple(section._replace(text=lines) for section in template.sections))
    cut = full.limited(2_000, 12_000)
    assert estimate_text(str(cut)) <= 12_000
    assert all(estimate_text(section.text) <= 2_000 for section in cut.sections)
    assert cut.sections[1].text.startswith("step 0:")
    assert cut.sections[-1].text.endswith("step 399: loaded table 399 with 2793 rows")
    assert cut.limited(2_000, 12_000) == cut
    assert template.limited(2_000, 12_000) == template
    one = Notes((template.sections[0]._replace(text="x1y2 " * 9_000),)).limited(500, 12_000)
    assert 0 < estimate_text(one.sections[0].text) <= 500


def test_the_desk_takes_edits_of_the_one_file_only(template: Notes) -> None:
    desk = NotesToolPolicy(template, ("a/notes.md", "/p/a/notes.md"), section_tokens=2_000)
    assert desk.permit("edit_file", {"path": "a/notes.md"}) == ""
    assert desk.permit("write_file", {"path": "/p/a/notes.md"}) == ""
    for name, given in (
        ("python", {"code": "1"}), ("read_file", {"path": "a/notes.md"}), ("shell", {"command": "ls"}),
        ("edit_file", {"path": "a/notes.md/../../x"}), ("write_file", {"path": "notes.md"}), ("edit_file", {}),
    ):  # fmt: skip
        assert desk.permit(name, given)
    with pytest.raises(ToolFailure, match="is not in the notes"):
        desk.answer("edit_file", {"path": "a/notes.md", "old": "nowhere", "new": "x"})
    assert not desk.enough()
    desk.answer("edit_file", {"path": "a/notes.md", "old": STATE, "new": STATE + "\nok"})
    assert desk.enough()
    with pytest.raises(ToolFailure):
        desk.answer("edit_file", {"path": "a/notes.md", "old": "# Current State", "new": "# Now"})
    assert not desk.enough()
    long = desk.answer("edit_file", {"path": "a/notes.md", "old": LOG, "new": LOG + "\n" + words(1, 3_000)})
    assert "Worklog" in long.blocks[0]["text"]
    assert not desk.enough()
    assert desk.edits == 2


@hypothesis.settings(max_examples=60, deadline=None)
@hypothesis.given(st.lists(st.integers(0, 11), max_size=14), st.lists(st.integers(0, 11), max_size=14))
def test_notes_shown_beside_older_ones_come_back_whole_however_they_differ(now: list[int], before: list[int]) -> None:
    empty = Notes.template(_ours("notes_template.md"))
    older, newer = (
        empty.revised("\n".join([*empty.sections[0][:2], *(f"{one} {words(one, 70)}" for one in lines), *rest]))
        for lines, rest in ((each, [str(empty).split("\n\n", 1)[1]]) for each in (before, now))
    )
    desk = NotesToolPolicy(newer, ("notes.md",), section_tokens=2_000, above=older)
    assert older.unfolded(desk.shown).count("\n") <= str(newer).count("\n")
    desk.answer("write_file", {"path": "notes.md", "content": desk.shown})
    assert desk.notes == newer
    if now and now == before:
        assert words(now[0], 70) not in desk.shown


def test_lines_that_are_named_must_stand_above(template: Notes) -> None:
    older = template.found_in(f"# Worklog\n{words(1, 60)}\n{words(2, 60)}\n{words(3, 60)}")
    desk = NotesToolPolicy(older, ("notes.md",), section_tokens=2_000, above=older)
    assert "[as above: Worklog, lines 1-3]" in desk.shown
    for wrong in ("Worklog, lines 1-4", "Worklog, lines 0-3", "Work, lines 1-3"):
        content = desk.shown.replace("Worklog, lines 1-3", wrong)
        with pytest.raises(ToolFailure, match="There are no such lines above"):
            desk.answer("write_file", {"path": "notes.md", "content": content})
    end = older.sections[-1].text.split("\n")[-1]
    desk.answer("edit_file", {"path": "notes.md", "old": end, "new": f"{end}\nmore"})
    old = "# Worklog\n[as above: Worklog, lines 1-3]"
    desk.answer("edit_file", {"path": "notes.md", "old": old, "new": "# Worklog\n1"})
    assert desk.notes.sections[-1].text == "1\nmore"


def test_values_are_put_in_once() -> None:
    assert substituted("{{a}} {{b}} {{c}}", {"a": "{{b}}", "b": "{{a}}"}) == "{{b}} {{a}} {{c}}"


def test_a_template_without_a_heading_is_refused() -> None:
    for bad in ("", "words", "## small", "# A\n# A"):
        with pytest.raises(AgentError):
            Notes.template(bad)


# ---------------------------------------------------------------------- when


def test_a_small_session_never_writes_notes_nor_does_one_with_the_layer_off(room: NotesRoom) -> None:
    agent = room.agent(notes_start=10_000)
    for number in range(4):
        room.turn(agent, words(number, 800), PYTHON, text("fine"))
    agent.settings.layer_notes, agent.settings.notes_start = False, 1_500
    room.turn(agent, "and now?")
    assert room.asked(updates=True) == []
    assert room.notes(agent) == ""


def test_notes_are_written_when_enough_was_said_and_cover_it(room: NotesRoom) -> None:
    agent = room.agent()
    room.turn(agent, words(1, 700))
    assert room.notes(agent) == ""
    room.update = noting((STATE, "Weighing items."), (LOG, "Weighed 60 items."))
    room.turn(agent, words(2, 1_200))
    assert "Weighing items." in room.notes(agent)
    assert len(room.asked(updates=True)) == 1, "the edits were fine: no last word is paid for"
    [written] = room.events(agent, NotesWritten)
    [fork] = room.events(agent, ForkEnded)
    assert (fork.purpose, fork.status, fork.requests) == ("notes", "finished", 1)
    assert fork.cost > 0
    said = room.events(agent, UserMessage)
    assert said[-1].id < written.upto < fork.id
    assert written.tokens == estimate_text(room.notes(agent))
    assert written.calls == 2
    assert agent.session.history.totals.requests == 3
    said_now = f"notes: {written.tokens:,} tokens, up to turn 2, in {agent.session.journal.folder}"
    assert said_now in summary(agent)


def test_an_update_needs_tokens_and_calls_or_a_calm_turn(room: NotesRoom) -> None:
    agent = room.agent(notes_calls=3)
    room.turn(agent, words(1, 1_800))
    assert len(room.events(agent, NotesWritten)) == 1
    room.turn(agent, "short")
    assert len(room.events(agent, NotesWritten)) == 1, "too few tokens"
    room.turn(agent, words(2, 1_200), PYTHON, text("two"))
    assert len(room.events(agent, NotesWritten)) == 1, "tokens, but one call in a turn that is not calm"
    room.turn(agent, "more", PYTHON, PYTHON, text("done"))
    assert len(room.events(agent, NotesWritten)) == 2, "three calls since"
    room.turn(agent, words(3, 1_200))
    assert len(room.events(agent, NotesWritten)) == 3, "a turn without calls"


# ---------------------------------------------------------------------- what the fork may do


def test_the_fork_can_touch_nothing_but_the_notes(room: NotesRoom) -> None:
    agent = room.agent()
    (room.folder / "data.txt").write_text("mine")

    def try_all(body: dict[str, Any]) -> Reply:
        path = path_in(body)
        return calls(
            [
                ("python", {"code": "leaked = 1"}),
                ("shell", {"command": "touch made"}),
                ("write_file", {"path": "data.txt", "content": "yours"}),
                ("edit_file", {"path": "data.txt", "old": "mine", "new": "yours"}),
                ("edit_file", {"path": path, "old": "# Current State", "new": "# State"}),
                ("edit_file", {"path": path, "old": 3}),
                ("edit_file", {"path": path, "old": STATE, "new": f"{STATE}\nkept"}),
            ]
        )

    room.updates = [try_all, text("Done.")]
    room.turn(agent, words(1, 1_800))
    results = list(room.asked(updates=True)[1].body["messages"][-1]["content"])
    assert [bool(block.get("is_error")) for block in results] == [True] * 6 + [False]
    assert (room.folder / "data.txt").read_text() == "mine"
    assert not (room.folder / "made").exists()
    assert "leaked" not in agent.shell.user_ns
    assert "kept" in room.notes(agent)
    assert "# Current State\n" + STATE + "\nkept" in room.notes(agent)


def test_whole_notes_may_be_written_at_once(room: NotesRoom, template: Notes) -> None:
    agent = room.agent()
    bare = "\n".join(f"{section.heading}\nabout {at}" for at, section in enumerate(template.sections))
    room.updates = [lambda body: tool("write_file", {"path": path_in(body), "content": bare})]
    room.turn(agent, words(1, 1_800))
    assert room.notes(agent).count("\n_") == 10
    assert "about 9" in room.notes(agent)


def test_a_full_section_is_pointed_out_and_never_grows_beyond_its_limit(room: NotesRoom) -> None:
    agent = room.agent(notes_section_tokens=400, notes_calls=0)
    room.updates = [noting((LOG, words(9, 800))), text("I leave it at that.")]
    room.turn(agent, words(1, 1_800))
    assert "shorten it" in str(room.asked(updates=True)[1].body)
    stored = room.notes(agent)
    assert estimate_text(stored.split(LOG)[1].strip()) <= 400
    room.turn(agent, words(2, 1_200))
    order = directive_in(room.asked(updates=True)[2].body)
    assert 'shorten these first: "Worklog"' in order
    assert "400 tokens a section" in order


def test_a_failed_update_leaves_nothing_and_is_not_tried_at_once_again(room: NotesRoom) -> None:
    agent = room.agent(max_retries=0)
    room.updates = [noting((STATE, "half done"), ("not there", "x")), fault(500)]
    room.turn(agent, words(1, 1_800))
    assert room.notes(agent) == ""
    assert room.events(agent, NotesWritten) == []
    [failed] = room.events(agent, LayerFailed)
    assert failed.layer == "notes"
    [fork] = room.events(agent, ForkEnded)
    assert (fork.status, fork.requests) == ("failed", 1)
    room.turn(agent, "a short one")
    assert len(room.events(agent, ForkEnded)) == 1
    room.turn(agent, words(2, 1_200))
    assert "All is well." in room.notes(agent)


def test_an_update_that_edits_nothing_writes_nothing(room: NotesRoom) -> None:
    agent = room.agent()
    for room.update in (text("I have nothing to note."), PYTHON, Reply((), "refusal")):
        before = len(room.asked(updates=True))
        room.turn(agent, words(1, 1_800))
        assert room.notes(agent) == ""
        assert room.events(agent, NotesWritten) == []
        assert len(room.events(agent, LayerFailed)) == 1
        assert len(room.asked(updates=True)) - before <= 4
        agent.new()


def same_again(body: dict[str, Any]) -> Reply:
    return calls([("edit_file", {"path": path_in(body), "old": STATE, "new": STATE})])


def test_an_update_that_changes_no_text_leaves_the_cursor_and_what_followed_is_kept_word_for_word(
    room: NotesRoom,
) -> None:
    agent = room.agent(keep_tokens=200, keep_messages=1)
    room.turn(agent, "the heron is 81 kg. " + words(1, 1_800))
    [written] = room.events(agent, NotesWritten)
    room.updates = [text("Nothing to add."), same_again]
    for number in (2, 3):
        room.turn(agent, f"the curlew is {number} kg. " + words(number, 1_200))
    assert room.updates == [], "both updates ran"
    assert room.events(agent, NotesWritten) == [written]
    assert room.events(agent, LayerFailed) == []
    agent.settings.keep_most_tokens = 8_000
    agent.settings.auto_compact_percent = 3
    room.turn(agent, "and now?")
    assert "the curlew is 2 kg" in str(room.asked(updates=False)[-1].body["messages"])


def test_notes_written_while_turns_were_out_do_not_cover_them_once_they_are_back(room: NotesRoom) -> None:
    agent = room.agent()
    room.turn(agent, "the heron is 81 kg")
    room.turn(agent, "the curlew is 7 kg")
    agent.compact("--snip 1")
    room.turn(agent, words(1, 1_800))
    [written] = room.events(agent, NotesWritten)
    assert agent.session.history.notes == written
    agent.compact("--undo")
    assert agent.session.history.notes is None


def test_notes_that_the_user_changed_meanwhile_stay_as_they_are(room: NotesRoom) -> None:
    agent = room.agent()
    room.turn(agent, words(1, 1_800))
    path = agent.session.journal.folder / "notes.md"

    def while_i_write(body: dict[str, Any]) -> Reply:
        path.write_text(path.read_text() + "\nmine\n")
        return noting((STATE, "late"))(body)

    room.updates = [while_i_write]
    room.turn(agent, words(2, 1_200))
    assert room.notes(agent).endswith("\nmine\n")
    assert "late" not in room.notes(agent)
    assert len(room.events(agent, NotesWritten)) == 1


def test_template_and_prompt_of_a_trusted_project_take_the_place_of_ours(room: NotesRoom) -> None:
    own = room.folder / ".ipyagent" / "notes"
    own.mkdir(parents=True)
    (own / "template.md").write_text("# Findings\n_What was found._\n\n# Log\n")
    (own / "prompt.md").write_text("Write in {{path}}, {{nobody}} else. Now:\n{{notes}}")
    agent = room.agent()
    room.turn(agent, words(1, 1_800))
    assert "Bring the notes" in directive_in(room.asked(updates=True)[-1].body)
    assert room.notes(agent).count("\n# ") == 9, "not trusted: ours"
    agent.project.trust()
    agent.new()
    room.update = noting(("_What was found._", "{{path}} is a curlew"))
    room.turn(agent, words(1, 1_800))
    order = directive_in(room.asked(updates=True)[-1].body)
    assert "{{nobody}} else. Now:\n# Findings" in order
    assert room.notes(agent) == "# Findings\n_What was found._\n{{path}} is a curlew\n\n# Log\n"
    room.turn(agent, words(2, 1_800))
    assert "{{path}} is a curlew" in directive_in(room.asked(updates=True)[-1].body)


# ---------------------------------------------------------------------- compacting


def grown(room: NotesRoom, turns: int = 6, **settings: Any) -> Any:
    """A session with notes of everything, in a window that one more turn fills."""
    given = {"window": 32_000, "keep_tokens": 1_500, "keep_messages": 3, "notes_calls": 0, **settings}
    agent = room.agent(**given)
    for number in range(turns):
        room.updates = [noting((LOG, f"Turn {number} was done, heron {number}."))]
        room.turn(agent, f"turn {number}: " + words(number, 900), PYTHON, text(f"answer {number}", thinking="hm"))
    return agent


def test_at_the_mark_the_notes_are_the_summary_and_no_model_is_called(room: NotesRoom) -> None:
    agent = grown(room)
    asked = len(room.server.messages)
    agent.settings.auto_compact_percent = 25
    room.turn(agent, "and now the newest words", text("after"))
    [made] = room.events(agent, Compacted)
    assert (made.trigger, made.method) == ("auto", "notes")
    assert made.tokens_after < made.tokens_before
    conversation = room.asked(updates=False)
    assert len(room.server.messages) - asked <= 2, "one request, at most one update behind it"
    body = conversation[-1].body
    first = body["messages"][0]["content"][0]["text"]
    assert "# Worklog" in first
    assert "heron 5" in first
    assert LOG not in first
    assert "notes.md" in first
    sent = str(body["messages"])
    assert "answer 5" in sent
    assert "answer 0" not in sent
    assert "and now the newest words" in sent
    assert "'type': 'thinking'" not in str(body["messages"][:-1])
    assert 0.7 < made.tokens_after / agent.session.view.count().tokens < 1.4
    room.turn(agent, "go on", text("on we go"))


def last_decision(agent: Any) -> str:
    """What `%context` says that notes decided last, without the reason."""
    told = [line.strip() for line in report(agent, []).partition("last decisions:")[2].splitlines()]
    return next((line.partition(" ")[2].partition(":")[0].strip() for line in told if line.startswith("notes ")), "")


def test_the_last_compaction_that_stands_is_the_last_decision_shown(room: NotesRoom) -> None:
    agent = grown(room)
    agent.settings.auto_compact_percent = 25
    agent.settings.compact_thrash_turns = 0

    def shown() -> str:
        made = room.events(agent, Compacted)[-1]
        assert (made.trigger, made.method) == ("auto", "notes")
        gone = made.tokens_before - made.tokens_after
        return f"took the place of {gone:,} of {made.tokens_before:,} tokens of the prompt"

    room.turn(agent, "and now the newest words", text("after"))
    first = shown()
    assert last_decision(agent) == first
    agent.compact("--undo")
    assert last_decision(agent) == ""
    room.turn(agent, "and once more", text("after"))
    second = shown()
    assert last_decision(agent) == second != first
    decided = [each.words for each in room.events(agent, LayerDecision) if each.layer == "notes"]
    assert [each.partition(":")[0] for each in decided] == [first, second]
    while len(room.events(agent, Compacted)) == 2:
        room.turn(agent, words(8, 900), text("after"))
    assert last_decision(agent) == shown() != second
    agent.compact("--undo")
    assert last_decision(agent) == second


def test_what_is_not_noted_yet_is_kept_and_enough_before_it(room: NotesRoom) -> None:
    agent = grown(room, 5)
    room.updates = []
    agent.settings.notes_step = 1_000_000  # notes stand still from here
    for number in range(5, 8):
        room.turn(agent, f"turn {number}: " + words(number, 900), PYTHON, text(f"answer {number}"))
    noted = agent.session.history.notes
    agent.settings.auto_compact_percent = 32
    room.turn(agent, "newest", text("after"))
    [made] = room.events(agent, Compacted)
    assert made.last < noted.upto
    sent = str(room.asked(updates=False)[-1].body["messages"])
    for number in (5, 6, 7):
        assert f"answer {number}" in sent
        assert f"turn {number}: " in sent
    kept = list(room.asked(updates=False)[-1].body["messages"][1:])
    assert sum(any(block["type"] == "text" for block in message["content"]) for message in kept) >= 3


def test_more_that_is_not_noted_than_may_be_kept_is_left_to_the_summary(room: NotesRoom) -> None:
    agent = grown(room, 3)
    agent.settings.notes_step = 1_000_000
    agent.settings.keep_most_tokens = 2_000
    for number in range(4):
        room.turn(agent, f"later {number}: " + words(number, 900), text("fine"))
    agent.settings.auto_compact_percent = 20
    room.turn(agent, "newest", text("after"), text("after"))
    assert not [event for event in room.events(agent, Compacted) if event.method == "notes"]


def test_notes_that_would_not_help_are_left_to_the_summary(room: NotesRoom) -> None:
    agent = grown(room, 4, keep_tokens=30_000, keep_most_tokens=40_000)
    agent.settings.auto_compact_percent = 18
    room.turn(agent, "newest", text("after"), text("after"))
    assert not [event for event in room.events(agent, Compacted) if event.method == "notes"]


def test_a_turn_that_is_open_with_thinking_is_never_cut_into(room: NotesRoom) -> None:
    agent = grown(room)
    agent.settings.layer_summarize = False
    agent.settings.layer_clear_results = False
    agent.settings.auto_compact_percent = 60  # reached within the turn
    big = tool("python", {"code": f"print({words(77, 6_000)!r})"}, thinking="let me look")
    again = tool("python", {"code": f"print({words(78, 6_000)!r})"}, thinking="once more")
    result = room.turn(agent, "look", big, again, text("seen"))
    assert result.status == "finished", result.message
    assert any("nothing to compact" in event.words for event in room.events(agent, LayerDecision))
    assert room.events(agent, Compacted) == []
    assert room.refused() == []


def test_a_turn_that_begins_near_the_mark_is_compacted_by_notes_before_it_thinks(room: NotesRoom) -> None:
    agent = grown(room)
    asked = len(room.server.messages)
    rules = agent.project.root / "AGENTS.md"
    rules.write_text("Count herons twice.")
    tokens = agent.session.view.count().tokens
    agent.settings.auto_compact_percent = (tokens + 3_000) * 100 // 32_000
    big = tool("python", {"code": f"print({words(77, 6_000)!r})"}, thinking="let me look")
    assert room.turn(agent, "look", big, text("seen")).status == "finished"
    [made] = room.events(agent, Compacted)
    assert (made.trigger, made.method) == ("auto", "notes")
    assert made.tokens_before < agent.session.state(0).auto_mark
    newest = room.events(agent, UserMessage)[-1]
    assert newest.id < made.id < [event.id for event in room.events(agent, AssistantMessage)][-2]
    assert rules.read_text() in str(room.server.messages[-1].body["system"]), "as after any compaction"
    assert len(room.server.messages) - asked == 3, "two requests and the notes of the turn: the compaction is free"
    assert room.refused() == []


def test_near_the_threshold_notes_are_brought_up_to_date_and_a_compaction_waits_for_them(room: NotesRoom) -> None:
    agent = grown(room, 3, keep_most_tokens=1_500)
    session = agent.session
    agent.settings.notes_calls = 9  # a turn with one call waits for more, as a rule
    room.updates = [noting((LOG, f"Later, heron {number}.")) for number in range(9)]

    def near(number: int, size: int = 1_500) -> list[Compacted]:
        agent.settings.auto_compact_percent = (session.view.count().tokens + size + 4_000) * 100 // 32_000
        room.turn(agent, f"later {number}: " + words(number, size), PYTHON, text("fine", thinking="hm"))
        made: list[Compacted] = room.events(agent, Compacted)
        return made

    agent.settings.notes_step = 1_000_000  # as if an update had failed
    noted = session.history.notes.upto
    assert near(1) == []
    assert near(2) == [], "notes of the turn before may still come, and it would be written to the cache again"
    assert session.history.notes.upto == noted
    agent.settings.notes_step = 1_000
    assert near(3) == []
    assert session.history.notes.upto > noted, "the next turn may begin with a compaction"
    [made] = near(4, 100)
    assert (made.method, made.last > noted) == ("notes", True)


def test_in_a_long_open_turn_the_request_itself_is_kept_word_for_word(room: NotesRoom) -> None:
    agent = grown(room, 6, keep_tokens=200, keep_messages=0)
    agent.settings.auto_compact_percent = 35
    agent.settings.layer_clear_results = False
    steps = [tool("python", {"code": f"print({words(70 + n, 1_500)!r})"}) for n in range(4)]
    result = room.turn(agent, "find the CURLEW exactly", *steps, text("seen"))
    assert result.status == "finished", result.message
    assert [event.method for event in room.events(agent, Compacted)][:1] == ["notes"]
    for exchange in room.asked(updates=False)[-3:]:
        assert "find the CURLEW exactly" in str(exchange.body["messages"])


def test_a_second_compaction_takes_the_first_ones_place(room: NotesRoom) -> None:
    agent = grown(room)
    for number in range(6, 12):
        room.updates = [noting((LOG, f"Turn {number} was done, heron {number}."))]
        room.turn(agent, f"turn {number}: " + words(number, 900), PYTHON, text(f"answer {number}", thinking="hm"))
        if number in (7, 11):
            engine_compact(agent)
    made = room.events(agent, Compacted)
    assert [event.method for event in made] == ["notes", "notes"]
    room.turn(agent, "go on", text("fine"))
    sent = str(room.asked(updates=False)[-1].body["messages"])
    assert sent.count("These are the notes that were kept") == 1
    assert "heron 11" in sent
    stored = room.events(agent)
    assert ContextView.of(stored).messages == agent.session.view.messages


def test_the_users_own_instructions_ask_for_a_summary_instead(room: NotesRoom) -> None:
    agent = grown(room)
    engine_compact(agent, instructions="keep the units")
    assert not [event for event in room.events(agent, Compacted) if event.method == "notes"]


@pytest.mark.parametrize("lines", [1, 400])
def test_the_notes_stand_beside_a_paid_summary_in_half_of_what_it_wins(room: NotesRoom, lines: int) -> None:
    agent = grown(room, notes_tokens=40_000, notes_section_tokens=20_000)
    room.updates = [noting((LOG, "\n".join(f"Heron {number} was ringed." for number in range(lines))))]
    room.turn(agent, "turn 6: " + words(6, 900), PYTHON, text("answer 6"))
    room.replies = [text("<analysis>so</analysis><summary>Birds were ringed.</summary>")]
    engine_compact(agent, instructions="keep the units")
    [made] = room.events(agent, Compacted)
    told = "\n".join(str(block.get("text")) for block in made.blocks)
    assert made.method == "summary"
    assert "<summary>\nBirds were ringed.\n</summary>" in told
    assert "where they differ, follow the summary: it is newer" in told
    assert f"Heron {lines - 1} was ringed." in told, "of a log that is too long, the end"
    notes = estimate_text(told.split("<notes>", 1)[1].split("</notes>", 1)[0])
    assert notes <= (made.tokens_before - made.tokens_after + notes) // 2
    asked = len(room.server.messages)
    engine_compact(agent, instructions="keep the units")
    assert len(room.server.messages) == asked, "what stands already is nothing to compact"


def test_a_compaction_during_an_update_uses_the_finished_notes(room: NotesRoom) -> None:
    agent = grown(room)
    assert "heron 5" in room.notes(agent)
    gate = threading.Event()
    room.updates = [lambda body: noting((LOG, "late heron"))(body) if gate.wait(10) else fault(500)]
    room.turn(agent, "turn 6: " + words(6, 900), text("answer 6"), settle=False)
    assert agent.session.background.busy
    made = engine_compact(agent)
    assert agent.session.background.busy, "the compaction did not wait for the update"
    assert "heron 5" in made.blocks[0]["text"]
    assert "late heron" not in made.blocks[0]["text"]
    gate.set()
    room.settle(agent)
    written = room.events(agent, NotesWritten)[-1]
    assert written.id > made.id > written.upto
    assert "late heron" in room.notes(agent)
    room.updates = []
    for number in range(7, 9):
        room.turn(agent, f"turn {number}: " + words(number, 900), text(f"answer {number}"))
    again = engine_compact(agent)
    assert "late heron" in again.blocks[0]["text"]
    room.turn(agent, "go on", text("fine"))
    assert ContextView.of(room.events(agent)).messages == agent.session.view.messages


def engine_compact(agent: Any, **how: Any) -> Any:
    """`%compact` without its words: the same function, on the agent thread; the event, None when nothing was done."""
    with agent.occupied() as main:
        engine = Engine(agent.session, agent.workspace(agent.session, main))
        return main.run_blocking(lambda: engine.compact("manual", **how))
