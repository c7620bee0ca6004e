"""Torn, holed and foreign files: what was written whole is never lost, what is lost is reported."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from journal_room import refused, reopened, said, started, texts_of, written

from ipyagent.errors import JournalError
from ipyagent.journal.events import (
    SystemReminder,
)
from ipyagent.journal.journal import TRANSCRIPT, Journal, Problem, read_events

# ------------------------------------------------------------------ torn and damaged files


def test_a_torn_end_loses_the_torn_line_alone_at_every_byte(tmp_path: Path) -> None:
    """Cut the file anywhere in its last two lines, reopen, append, reopen."""
    whole = written(tmp_path / "whole", "first", 'größer "中文" 🐼', "last").read_bytes()
    lines = whole.splitlines(keepends=True)
    begins = [sum(map(len, lines[:i])) for i in range(len(lines) + 1)]
    for cut in range(begins[-3], len(whole) + 1):
        folder = tmp_path / str(cut) / "s1"
        folder.mkdir(parents=True)
        path = folder / TRANSCRIPT
        path.write_bytes(whole[:cut])
        complete = [line for line, end in zip(lines, begins[1:], strict=True) if end - 1 <= cut]
        torn = cut not in begins and cut + 1 not in begins
        journal, events, problems = reopened(path)
        assert [msgspec.json.encode(event) + b"\n" for event in events] == complete
        expected = [f"{TRANSCRIPT} line {len(complete) + 1}: cut off in mid-write, dropped"] if torn else []
        assert [str(problem) for problem in problems] == expected
        journal.append(said("after"))
        journal.close()
        journal, events, problems = reopened(path)
        journal.close()
        assert texts_of(events)[-1] == "after"
        assert len(events) == len(complete) + 1
        assert [problem.line for problem in problems] == ([len(complete) + 1] if torn else [])
        assert path.read_bytes().startswith(whole[:cut]), "nothing is rewritten"


DAMAGE: dict[str, tuple[bytes, str]] = {
    "no JSON": (b"what is this\n", "unreadable, skipped"),
    "half an object": (b'{"type":"UserSaid","text":\n', "unreadable, skipped"),
    "unknown event": (b'{"type":"FromTheFuture","id":9,"deep":[1]}\n', "unreadable, skipped (Invalid value"),
    "no type": (b'{"id":3}\n', "unreadable, skipped (Object missing required field `type`"),
    "wrong field": (b'{"type":"UserSaid","text":5,"blocks":[]}\n', "unreadable, skipped"),
    "an array": (b"[1,2]\n", "unreadable, skipped"),
    "not UTF-8": (b"\xff\xfe\n", "unreadable, skipped"),
    "endless nesting": (b'{"type":"UserSaid","text":"","blocks":[{"a":' + b"[" * 200_000 + b"\n", "unreadable"),
    "zeros": (b"\0" * 4096 + b"\n", "4,096 NUL bytes, skipped"),
}


@pytest.mark.parametrize(("line", "what"), DAMAGE.values(), ids=DAMAGE.keys())
def test_a_bad_line_in_the_middle_is_skipped_reported_and_kept(tmp_path: Path, line: bytes, what: str) -> None:
    path = written(tmp_path, "one", "two")
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join([*lines[:2], line, *lines[2:]]))
    journal, events, problems = reopened(path)
    journal.close()
    assert texts_of(events) == ["one", "two"]
    assert [(problem.line, problem.torn) for problem in problems] == [(3, False)]
    assert what in problems[0].what
    assert line in path.read_bytes()


@pytest.mark.parametrize(
    ("raw", "reads"),
    [
        (rb'{"type":"Reminded","text":"a\ud800b","id":4,"parent":3}', "a?b"),
        (rb'{"type":"Reminded","text":"\udc00","id":4,"parent":3}', "?"),
        (b'{"type":"Reminded","text":"a\xffb","id":4,"parent":3}', "a\ufffdb"),
        (b'{"type":"Reminded","text":"a\xed\xa0\x80b","id":4,"parent":3}', "a\ufffd\ufffd\ufffdb"),
    ],
    ids=["escape", "low escape", "byte", "surrogate in UTF-8"],
)
def test_characters_that_are_not_unicode_are_mended_and_reported(tmp_path: Path, raw: bytes, reads: str) -> None:
    path = written(tmp_path, "one", "two")
    path.write_bytes(path.read_bytes() + raw + b"\n")
    journal, events, problems = reopened(path)
    journal.close()
    assert isinstance(events[-1], SystemReminder)
    assert events[-1].text == reads
    events[-1].text.encode()
    assert [str(p) for p in problems] == [f"{TRANSCRIPT} line 4: characters that are not Unicode, repaired"]


@pytest.mark.parametrize("place", ["before", "between", "after"])
def test_a_hole_of_zeros_costs_no_whole_record(tmp_path: Path, place: str) -> None:
    path = written(tmp_path, "one", "two", "three")
    lines = path.read_bytes().splitlines(keepends=True)
    hole = b"\0" * 512
    damaged = {
        "before": [*lines[:2], hole + lines[2], lines[3]],
        "between": [*lines[:2], lines[2].rstrip(b"\n") + hole + lines[3]],
        "after": [*lines, hole],
    }[place]
    path.write_bytes(b"".join(damaged))
    journal, events, problems = reopened(path)
    assert texts_of(events) == ["one", "two", "three"]
    assert problems
    assert all("NUL" in problem.what for problem in problems)
    journal.append(said("four"))
    journal.close()
    assert texts_of(list(read_events(path))) == ["one", "two", "three", "four"]


def test_what_is_lost_within_a_transcript_is_named_once(tmp_path: Path) -> None:
    # a hole inside a record loses that record alone
    path = written(tmp_path, "one", "two", "three")
    lines = path.read_bytes().splitlines(keepends=True)
    torn = lines[2][:30] + b"\0" * 64 + lines[2][60:]
    path.write_bytes(b"".join([*lines[:2], torn, lines[3]]))
    journal, events, problems = reopened(path)
    journal.close()
    assert texts_of(events) == ["one", "three"]
    assert {problem.line for problem in problems} == {3}
    # a missing event is named once
    path = written(tmp_path / "missing", "one", "two", "three")
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join([*lines[:2], lines[3]]))
    journal, events, problems = reopened(path)
    assert texts_of(events) == ["one", "three"]
    assert [str(p) for p in problems] == [
        f"{TRANSCRIPT} line 3: event 4 follows event 3, which is missing; read after 2"
    ]
    assert journal.append(said("four")).id == 5
    journal.close()


def test_a_line_written_twice_is_read_once_and_two_of_one_id_are_both_read(tmp_path: Path) -> None:
    path = written(tmp_path, "one", "two")
    lines = path.read_bytes().splitlines(keepends=True)
    other = lines[2].replace(b'"two"', b'"2nd"')
    path.write_bytes(b"".join([*lines, lines[2], other]))
    journal, events, problems = reopened(path)
    journal.close()
    assert texts_of(events) == ["one", "two", "2nd"]
    assert [p.what for p in problems] == [
        "event 3 is written twice, read once", "event id 3 comes twice; both are read"
    ]


@settings(max_examples=60, deadline=None)
@given(st.binary(max_size=300), st.integers(0, 10_000), st.booleans())
def test_no_damage_stops_reading_or_hides_a_line_elsewhere(
    tmp_path_factory: Any, noise: bytes, where: int, overwrite: bool
) -> None:
    path = written(tmp_path_factory.mktemp("noise"), "one", "two", "three")
    whole = path.read_bytes()
    at = where % len(whole)
    damaged = whole[:at] + noise + whole[at + (len(noise) if overwrite else 0) :]
    path.write_bytes(damaged)
    lines = whole.split(b"\n")
    untouched = [line for line in damaged.split(b"\n") if line and line in lines]
    problems: list[Problem] = []
    events = list(read_events(path, problems))
    texts = [json.loads(line).get("text") for line in untouched]
    assert [text for text in texts_of(events) if text in texts] == [text for text in texts if text is not None]


# ------------------------------------------------------------------ not a journal


def test_an_empty_transcript_or_a_torn_first_line_opens_empty(tmp_path: Path) -> None:
    # an empty transcript opens empty
    path = written(tmp_path)
    path.write_bytes(b"")
    journal, events, problems = reopened(path)
    assert (events, problems, journal.last) == ([], [], 0)
    journal.append(said("one"))
    journal.close()
    # a torn first line opens empty
    path = written(tmp_path / "torn")
    path.write_bytes(path.read_bytes()[:20])
    journal, events, problems = reopened(path)
    journal.append(said("one"))
    journal.close()
    assert (events, [p.torn for p in problems]) == ([], [True])
    assert texts_of(list(read_events(path))) == ["one"]


@pytest.mark.parametrize("content", [b"hello\nworld\n", b"\x7fELF" + bytes(range(256)) * 40 + b"\n", b"{}\n" * 9])
def test_a_file_that_is_no_transcript_is_refused_untouched_in_one_line(tmp_path: Path, content: bytes) -> None:
    path = written(tmp_path)
    path.write_bytes(content)
    message = refused(path.parent)
    assert "is not a transcript" in message
    assert "\n" not in message
    assert path.read_bytes() == content
    path.write_bytes(b"")
    reopened(path)[0].close()  # the lock was let go


def test_a_folder_in_place_of_the_transcript_is_refused_in_one_line(tmp_path: Path) -> None:
    path = written(tmp_path)
    path.unlink()
    path.mkdir()
    assert "Is a directory" in refused(path.parent)
    with pytest.raises(JournalError, match="cannot read"):
        list(read_events(path))


def test_a_session_that_does_not_exist_is_refused_and_not_made(tmp_path: Path) -> None:
    assert "there is no session" in refused(tmp_path / "nothing")
    assert not (tmp_path / "nothing").exists()
    with pytest.raises(JournalError, match="cannot write"):
        Journal.create(written(tmp_path), started())


def test_a_journal_that_was_closed_or_deleted_says_so(tmp_path: Path) -> None:
    journal = Journal.create(tmp_path, started())
    journal.path.unlink()
    journal.append(said("into nowhere"))
    with pytest.raises(JournalError, match="was deleted while it was in use"):
        journal.sync()
    journal.close()
    journal.close()
    with pytest.raises(JournalError, match="was closed"):
        journal.append(said("late"))
