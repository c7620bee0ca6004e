"""Append, replay, fork: what is on disk is what was given back, and a fork leaves its source alone."""

from __future__ import annotations

import signal
import stat
from pathlib import Path
from typing import Any

import pytest
from event_lists import event_lists
from hypothesis import given, settings
from journal_room import reopened, run, said, started, texts_of, written

from ipyagent.errors import JournalError
from ipyagent.journal.events import (
    AssistantMessage,
    BlockDropped,
    Event,
    KernelStarted,
    SessionStarted,
    ToolCalled,
)
from ipyagent.journal.journal import TRANSCRIPT, Journal, Problem, new_session_id, read_events
from ipyagent.project import FOLDER, Project

# ------------------------------------------------------------------ append and replay


@settings(max_examples=60, deadline=None)
@given(event_lists())
def test_what_append_gives_back_is_what_is_read_again(tmp_path_factory: Any, events: list[Event]) -> None:
    folder = tmp_path_factory.mktemp("sessions")
    journal = Journal.create(folder, started())
    given_back = [journal.append(event) for event in events]
    journal.close()
    problems: list[Problem] = []
    again = list(read_events(journal.path, problems))
    assert problems == []
    assert again[1:] == given_back
    assert [event.id for event in again] == list(range(1, len(events) + 2))
    assert [event.parent for event in again] == list(range(len(events) + 1))


def test_append_goes_on_where_the_journal_ended(tmp_path: Path) -> None:
    path = written(tmp_path, "one", "two")
    journal, events, problems = reopened(path)
    assert (texts_of(events), problems, journal.last) == (["one", "two"], [], 3)
    assert journal.append(said("three")).id == 4
    assert texts_of(list(journal.read())) == ["one", "two", "three"]
    journal.close()


def test_every_event_is_on_disk_when_append_returns_for_the_user_alone(tmp_path: Path) -> None:
    # every event is on disk when append returns
    journal = Journal.create(tmp_path, started())
    for number in range(5):
        journal.append(said(str(number)))
        assert len(journal.path.read_bytes().splitlines()) == number + 2
    journal.sync()
    journal.close()
    # files are the users alone
    path = written(tmp_path / "more", "one")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700


def test_session_ids_sort_by_time_and_differ() -> None:
    ids = {new_session_id() for _ in range(50)}
    assert len(ids) > 45
    assert all(len(name) == 20 and name[8] == name[15] == "-" for name in ids)


def test_a_ten_megabyte_line_is_an_event_like_any_other(tmp_path: Path) -> None:
    path = written(tmp_path, "x" * 10_000_000, "after")
    journal, events, problems = reopened(path)
    journal.close()
    assert ([len(text) for text in texts_of(events)], problems) == ([10_000_000, 5], [])


@pytest.mark.parametrize("text", ["\ud800", "a\udfffb", "x" * 5_000 + "\udc00中"])
def test_lone_surrogates_given_to_append_are_replaced_in_file_and_memory(tmp_path: Path, text: str) -> None:
    journal = Journal.create(tmp_path, started())
    made = journal.append(AssistantMessage(blocks=({"type": "text", "text": text, text: [text]},)))
    made.blocks[0]["text"].encode()
    journal.close()
    assert list(read_events(journal.path))[1] == made
    assert len(made.blocks[0]["text"]) == len(text)


def test_what_json_cannot_hold_is_the_same_in_memory_as_after_a_restart(tmp_path: Path) -> None:
    journal = Journal.create(tmp_path, started())
    wide = journal.append(ToolCalled(call="a", name="b", input={"x": float("nan"), "y": 10**40, "z": float("inf")}))
    assert wide.input == {"x": None, "y": 10**40, "z": None}
    nested: list[Any] = []
    for _ in range(5_000):
        nested = [nested]
    for bad in ({"x": nested}, {"x": object()}):
        with pytest.raises(JournalError, match="cannot store a ToolCalled event"):
            journal.append(ToolCalled(call="a", name="b", input=bad))
    journal.append(said("after"))
    journal.close()
    events = list(read_events(journal.path))
    assert events[1] == wide
    assert texts_of(events) == ["after"]


# ------------------------------------------------------------------ forks


def test_a_fork_says_where_it_came_from_and_leaves_its_source_alone(tmp_path: Path) -> None:
    path = written(tmp_path, "one", "two", "three")
    before = path.read_bytes()
    fork = SessionStarted(session="s2", version="0", forked_from="s1", forked_at=3)
    journal, problems = Journal.fork(path.parent, tmp_path, fork, upto=3)
    journal.append(said("another way"))
    journal.close()
    events = list(read_events(journal.path, problems))
    assert problems == []
    assert isinstance(events[0], SessionStarted)
    assert (events[0].session, events[0].forked_from) == ("s2", "s1")
    assert texts_of(events) == ["one", "two", "another way"]
    assert path.read_bytes() == before
    times = [event.at for event in read_events(path)]
    assert [event.at for event in events[1:3]] == times[1:3]


def test_events_of_a_fork_keep_their_ids_although_lines_are_missing(tmp_path: Path) -> None:
    journal = Journal.create(tmp_path, started())
    image = journal.append(said("see"))
    journal.append(KernelStarted(stamp="k"))
    later = journal.append(said("more"))
    journal.append(BlockDropped(event=later.id))
    journal.close()
    lines = journal.path.read_bytes().splitlines(keepends=True)
    journal.path.write_bytes(b"".join([b"torn\n", *lines[1:2], b"damaged\n", *lines[3:]]))
    copy, problems = Journal.fork(journal.folder, tmp_path, started("s2"))
    copy.close()
    assert [problem.line for problem in problems] == [1, 3]
    again: list[Problem] = []
    events = list(read_events(copy.path, again))
    assert again == []
    assert [event.id for event in events] == [1, image.id, later.id, later.id + 1]
    assert isinstance(events[-1], BlockDropped)
    assert events[-1].event == later.id


def test_a_fork_of_a_journal_that_is_being_written_leaves_a_torn_line_out(tmp_path: Path) -> None:
    path = written(tmp_path, "one", "two")
    path.write_bytes(path.read_bytes()[:-10])
    journal, problems = Journal.fork(path.parent, tmp_path, started("s2"))
    journal.close()
    assert [problem.torn for problem in problems] == [True]
    assert texts_of(list(read_events(journal.path))) == ["one"]


def test_a_fork_has_the_files_beside_the_transcript(tmp_path: Path) -> None:
    """`%agent undo` in a copy needs the backups, a stored result its file."""
    path = written(tmp_path, "one")
    for name in ("backups/abc", "tool-results/t1.txt"):
        (path.parent / name).parent.mkdir()
        (path.parent / name).write_text(name)
    journal, _ = Journal.fork(path.parent, tmp_path, started("s2"))
    journal.close()
    assert (journal.folder / "backups" / "abc").read_text() == "backups/abc"
    assert (journal.folder / "tool-results" / "t1.txt").read_text() == "tool-results/t1.txt"
    assert sorted(p.name for p in journal.folder.iterdir() if p.is_file()) == sorted({"lock", TRANSCRIPT})


def test_half_a_fork_is_never_a_session(tmp_path: Path) -> None:
    """Killed in the middle of copying: what is there cannot be taken for the notebook's last session."""
    path = written(tmp_path / "sessions", *(f"{number} " + "x" * 400_000 for number in range(60)))
    code = """
        import os, signal, sys
        from pathlib import Path
        from ipyagent.journal.journal import Journal
        from ipyagent.journal.events import SessionStarted
        write, written = os.write, []
        def killing(fd, line):
            written.append(write(fd, line))
            if sum(written) > 4_000_000:
                os.kill(os.getpid(), signal.SIGKILL)
            return written[-1]
        os.write = killing
        Journal.fork(Path(sys.argv[1]), Path(sys.argv[1]).parent, SessionStarted(session="s2", version="0"))
    """
    done = run(code, path.parent)
    assert done.returncode == -signal.SIGKILL
    project = Project(tmp_path, tmp_path / "user")
    (tmp_path / FOLDER).mkdir()
    (tmp_path / "sessions").rename(project.sessions)
    assert [folder.name for folder in project.session_folders()] == ["s1"]
    journal, _ = Journal.fork(project.sessions / "s1", project.sessions, started("s3"))
    journal.append(said("after"))
    journal.close()
    assert len(texts_of(list(read_events(journal.path)))) == 61
    with pytest.raises(JournalError, match="cannot write in"):
        Journal.fork(project.sessions / "s1", project.sessions, started("s3"))
