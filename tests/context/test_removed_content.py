"""What leaves the view is in a file that its place names, whole, before the decision is recorded."""

from __future__ import annotations

import base64
import re
from pathlib import Path
from typing import Any

import pytest
from compact_room import CompactRoom, plain, words
from notes_room import notes_room
from situations import Talk
from test_collapse import Turns

from ipyagent import Agent
from ipyagent.context.removed_content import left_ranges, left_results
from ipyagent.extension.context_report import saving_lines
from ipyagent.journal.events import Compacted, ResultsCleared, ResultStored, ToolReturned, TurnsRemoved
from ipyagent.journal.journal import FOLDER
from ipyagent.practice.replies import text, tool

EAGER = {"clear_policy": "every_turn"}
PIXEL = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)


def weighed(room: CompactRoom, **settings: Any) -> Agent:
    agent = room.agent(**settings)
    for number in range(4):
        room.turn(agent, f"weigh box {number}: {words(number, 1_000)}", text(f"done {number}"))
    return agent


def kept(room: CompactRoom, agent: Agent, number: int = 1) -> str:
    return (room.session(agent).journal.folder / FOLDER / f"left-{number}.txt").read_text("utf-8")


# ---------------------------------------------------------------------- cleared results


def test_cleared_results_are_in_one_file_that_each_of_them_names(tmp_path: Path) -> None:
    talk = Talk().user()
    for number in range(6):
        talk.call(words=300 + number)
    cleared = talk.answer().user().consider(**EAGER, folder=tmp_path)[0]
    assert isinstance(cleared, ResultsCleared)
    assert talk.results()[:3] == ["[Previous: used python; kept in tool-results/left-1.txt]"] * 3
    assert [path.name for path in (tmp_path / FOLDER).iterdir()] == ["left-1.txt"]
    parts = re.split(r"^===== (.*) =====\n", (tmp_path / FOLDER / "left-1.txt").read_text("utf-8"), flags=re.MULTILINE)
    assert parts[1::2] == ["python: df.head()"] * 3
    assert [len(part.split()) for part in parts[2::2]] == [300, 301, 302]


def test_every_batch_has_a_file_of_its_own(tmp_path: Path) -> None:
    talk = Talk().user()
    for _ in range(6):
        talk.call()
    talk.answer().user().consider(**EAGER, folder=tmp_path)
    before = (tmp_path / FOLDER / "left-1.txt").read_bytes()
    talk.call().call().answer().user().consider(**EAGER, folder=tmp_path)
    assert [re.findall(r"left-\d", text) for text in talk.results()[:5]] == [["left-1"]] * 3 + [["left-2"]] * 2
    assert (tmp_path / FOLDER / "left-1.txt").read_bytes() == before


def test_a_stored_result_keeps_its_own_path(tmp_path: Path) -> None:
    talk = Talk().user()
    for _ in range(5):
        talk.call()
    talk.add(ResultStored(call="toolu_0", path="tool-results/toolu_0.txt", chars=90_000))
    talk.answer().user().consider(**EAGER, folder=tmp_path, place="s")
    first, second = talk.results()[:2]
    assert first == "[Previous: used python] The whole result is kept: s/tool-results/toolu_0.txt"
    assert second == "[Previous: used python; kept in tool-results/left-1.txt]"
    assert (tmp_path / FOLDER / "left-1.txt").read_text("utf-8").count("=====") == 2


def test_a_failing_disk_clears_without_a_file_and_says_why() -> None:
    talk = Talk().user()
    for _ in range(6):
        talk.call()
    cleared, decided = talk.answer().user().consider(**EAGER)
    assert cleared.kept == ""
    assert talk.results()[:3] == ["[Previous: used python]"] * 3
    assert "could not be kept in a file (Not a directory)" in decided.words


def test_pictures_are_kept_beside_the_text(tmp_path: Path) -> None:
    talk = Talk().user().call(returned=False)
    image = {"type": "base64", "media_type": "image/png", "data": base64.b64encode(PIXEL).decode()}
    blocks = ({"type": "text", "text": "a plot"}, {"type": "image", "source": image})
    talk.add(ToolReturned(call="toolu_0", name="python", blocks=blocks))
    left = left_results(talk.answer().view, tmp_path, talk.view.results)
    assert left.write() == ""
    assert "a plot\n[image: tool-results/left-1-1.png]" in (tmp_path / left.path).read_text("utf-8")
    assert (tmp_path / FOLDER / "left-1-1.png").read_bytes() == PIXEL


def test_a_range_is_written_with_who_said_it_and_without_thinking(tmp_path: Path) -> None:
    talk = Talk().user("How long is it?").call(thinking=True, words=3).answer().user("And now?").answer()
    left = left_ranges(talk.view, tmp_path, [(1, 6)])
    headings = re.findall(r"===== (.*) =====", left.text)
    assert headings == ["user", "assistant calls python", "python: df.head()", "assistant"]
    assert "code: df.head()" in left.text
    assert "Let me see" not in left.text
    assert "And now?" not in left.text
    assert left_ranges(talk.view, tmp_path, [(90, 99)]) is None


# ---------------------------------------------------------------------- ranges


def test_a_summary_names_the_file_that_holds_every_word(room: CompactRoom) -> None:
    agent = weighed(room)
    agent.compact()
    (made,) = room.of(agent, Compacted)
    line = "What stood here is kept word for word in tool-results/left-1.txt (grep it, read_file with offset)."
    assert line in [block["text"] for block in made.blocks]
    assert all(f"weigh box {number}: {words(number, 1_000)}" in kept(room, agent) for number in range(4))
    assert "===== assistant =====\ndone 2" in kept(room, agent)
    room.replays(agent)


def test_a_second_summary_points_to_the_file_that_names_the_first(room: CompactRoom) -> None:
    agent = weighed(room)
    agent.compact()
    room.turn(agent, f"weigh box 9: {words(9, 2_000)}", text("done 9"))
    agent.compact()
    told = plain(room.session(agent).view.messages[0]["content"])
    assert "tool-results/left-2.txt" in told
    assert "it names the files of what had left earlier" in told
    assert "tool-results/left-1.txt" in kept(room, agent, 2)


def test_the_model_reads_and_searches_it_without_a_question(room: CompactRoom) -> None:
    agent = weighed(room, mode="read_only")
    agent.compact()
    path = f"{FOLDER}/left-1.txt"
    room.turn(
        agent,
        "look it up",
        tool("grep", {"pattern": "weigh box 2: item 2-0", "path": path}),
        tool("read_file", {"path": path, "offset": 1, "limit": 3}),
        text("found"),
    )
    found, read = (str(event.blocks) for event in room.of(agent, ToolReturned))
    assert "item 2-0 weighs" in found
    assert "===== user =====" in read
    room.nothing_refused()


def test_a_failing_disk_compacts_without_the_line(room: CompactRoom) -> None:
    agent = weighed(room)
    (room.session(agent).journal.folder / FOLDER).write_text("in the way", "utf-8")
    agent.compact()
    (made,) = room.of(agent, Compacted)
    told = plain(made.blocks)
    assert "weigh boxes." in told
    assert "left-" not in told
    assert made.tokens_after < made.tokens_before


def test_a_summary_that_fails_leaves_no_file(room: CompactRoom) -> None:
    agent = weighed(room)
    room.summaries = [text("no summary here")]
    with pytest.raises(Exception, match="nothing was compacted"):
        agent.compact()
    assert not (room.session(agent).journal.folder / FOLDER).exists()


def test_a_snip_names_the_file_and_a_trial_writes_none(room: CompactRoom) -> None:
    agent = weighed(room)
    agent.compact("--snip 2:3 --dry-run")
    assert not (room.session(agent).journal.folder / FOLDER).exists()
    agent.compact("--snip 2:3")
    (made,) = room.of(agent, TurnsRemoved)
    assert "tool-results/left-1.txt" in made.blocks[0]["text"]
    assert "weigh box 1" in kept(room, agent)
    assert "weigh box 2" in kept(room, agent)
    assert "weigh box 3" not in kept(room, agent)


def test_notes_name_the_file_that_holds_what_they_replace(tmp_path: Path) -> None:
    with notes_room(tmp_path) as room:
        agent = room.agent(keep_tokens=500)
        for number in range(8):
            room.turn(agent, f"heron {number}: {words(number, 900)}", text(f"answer {number}"))
        agent.settings.auto_compact_percent = 40
        agent.settings.window = 24_000
        room.turn(agent, "and now", text("after"))
        [made] = room.events(agent, Compacted)
        assert made.method == "notes"
        gone = made.tokens_before - made.tokens_after
        why = f"took the place of {gone:,} of {made.tokens_before:,} tokens of the prompt: it came near the threshold"
        assert f"notes          {why}" in "\n".join(saving_lines(agent.session.history))
        assert "word for word in tool-results/left-1.txt" in made.blocks[0]["text"]
        left = (agent.session.journal.folder / FOLDER / "left-1.txt").read_text("utf-8")
        assert "heron 0: item 0-0" in left
        assert "===== assistant =====\nanswer 0" in left


def test_collapsed_turns_of_a_batch_name_their_file(tmp_path: Path) -> None:
    talk = Turns(6, folder=tmp_path)
    made = talk.collapse(window=talk.view.count().tokens)
    assert len(made) >= 2
    assert all("it is kept whole in tool-results/left-1.txt" in event.blocks[0]["text"] for event in made)
    left = (tmp_path / FOLDER / "left-1.txt").read_text("utf-8")
    assert left.count("word " * 400) == len(made)
    assert all(f"python: show({number})" in left for number in range(len(made)))


def test_a_collapse_on_a_failing_disk_names_no_file() -> None:
    talk = Turns(6)
    made = talk.collapse(window=talk.view.count().tokens)
    assert made
    assert all("left-" not in event.blocks[0]["text"] for event in made)
