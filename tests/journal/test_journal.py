"""Append, replay, fork; torn, holed, foreign and full: what was written whole is never lost."""

from __future__ import annotations

import json
import os
import signal
import stat
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import msgspec
import pytest
from event_lists import event_lists
from hypothesis import given, settings
from hypothesis import strategies as st

from ipyagent.errors import JournalError
from ipyagent.journal.events import (
    AssistantSaid,
    BlockDropped,
    Event,
    KernelStarted,
    Reminded,
    SessionStarted,
    ToolCalled,
    UserSaid,
)
from ipyagent.journal.journal import TRANSCRIPT, Journal, Problem, new_session_id, read_events

ROOT = Path(__file__).parents[2]


def started(session: str = "s1") -> SessionStarted:
    return SessionStarted(session=session, version="0")


def said(text: str) -> UserSaid:
    return UserSaid(text=text, blocks=({"type": "text", "text": text},))


def written(folder: Path, *texts: str) -> Path:
    """A session with these requests; its transcript."""
    journal = Journal.create(folder, started())
    for text in texts:
        journal.append(said(text))
    journal.close()
    return journal.path


def texts_of(events: list[Event]) -> list[str]:
    return [event.text for event in events if isinstance(event, UserSaid)]


def reopened(path: Path) -> tuple[Journal, list[Event], list[Problem]]:
    events: list[Event] = []
    journal, problems = Journal.open(path.parent, events.append)
    return journal, events, problems


def refused(folder: Path) -> str:
    with pytest.raises(JournalError) as caught:
        Journal.open(folder, lambda event: None)
    return str(caught.value)


def run(code: str, *arguments: Any, **more: Any) -> subprocess.CompletedProcess[str]:
    """A Python process that ends by itself."""
    return subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code), *map(str, arguments)],
        env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True, timeout=60, check=False, **more,
    )


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


def test_every_event_is_on_disk_when_append_returns(tmp_path: Path) -> None:
    journal = Journal.create(tmp_path, started())
    for number in range(5):
        journal.append(said(str(number)))
        assert len(journal.path.read_bytes().splitlines()) == number + 2
    journal.sync()
    journal.close()


def test_files_are_the_users_alone(tmp_path: Path) -> None:
    path = written(tmp_path, "one")
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
    made = journal.append(AssistantSaid(blocks=({"type": "text", "text": text, text: [text]},)))
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
    assert isinstance(events[-1], Reminded)
    assert events[-1].text == reads
    events[-1].text.encode()
    assert [str(p) for p in problems] == [f"{TRANSCRIPT} line 4: characters that are not Unicode, mended"]


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


def test_a_hole_inside_a_record_loses_that_record_alone(tmp_path: Path) -> None:
    path = written(tmp_path, "one", "two", "three")
    lines = path.read_bytes().splitlines(keepends=True)
    torn = lines[2][:30] + b"\0" * 64 + lines[2][60:]
    path.write_bytes(b"".join([*lines[:2], torn, lines[3]]))
    journal, events, problems = reopened(path)
    journal.close()
    assert texts_of(events) == ["one", "three"]
    assert {problem.line for problem in problems} == {3}


def test_a_missing_event_is_named_once(tmp_path: Path) -> None:
    path = written(tmp_path, "one", "two", "three")
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


@settings(max_examples=150, deadline=None)
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


def test_an_empty_transcript_opens_empty(tmp_path: Path) -> None:
    path = written(tmp_path)
    path.write_bytes(b"")
    journal, events, problems = reopened(path)
    assert (events, problems, journal.last) == ([], [], 0)
    journal.append(said("one"))
    journal.close()


def test_a_torn_first_line_opens_empty(tmp_path: Path) -> None:
    path = written(tmp_path)
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


# ------------------------------------------------------------------ full disk


FULL = """
    import resource, signal, sys
    from pathlib import Path
    from ipyagent.errors import JournalError
    from ipyagent.journal.journal import Journal, read_events
    from ipyagent.journal.events import SessionStarted, UserSaid
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    journal = Journal.create(Path(sys.argv[1]), SessionStarted(session="s1", version="0"))
    resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, resource.RLIM_INFINITY))
    refused = 0
    for i in range(60):
        before = journal.path.read_bytes()
        try:
            journal.append(UserSaid(text=str(i), blocks=({"type": "text", "text": "x" * 700},)))
        except JournalError as problem:
            refused += 1
            assert "free some space" in str(problem) and "\\n" not in str(problem), problem
            assert journal.path.read_bytes() == before, "a refused append leaves nothing behind"
    resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    journal.append(UserSaid(text="space again", blocks=()))
    problems = []
    events = list(read_events(journal.path, problems))
    assert not problems, problems
    assert [e.id for e in events] == list(range(1, len(events) + 1))
    print(refused, len(events), events[-1].text)
"""


def test_a_full_disk_is_one_line_and_the_transcript_goes_on_afterwards(tmp_path: Path) -> None:
    done = run(FULL, tmp_path)
    assert done.returncode == 0, done.stderr
    refused_count, events, last = done.stdout.split(maxsplit=2)
    assert int(refused_count) > 20
    assert int(events) == 60 - int(refused_count) + 2
    assert last.strip() == "space again"


@pytest.fixture
def small_disk(tmp_path: Path) -> Any:
    """A real file system of 64 KB."""
    disk = tmp_path / "disk"
    disk.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(disk)]
    try:
        mounted = subprocess.run(command, capture_output=True, check=False).returncode == 0
    except OSError:
        mounted = False
    if not mounted:
        pytest.skip("cannot mount a file system here")
    yield disk
    subprocess.run(["umount", "-l", str(disk)], check=True)


def test_a_real_full_file_system_is_one_line_and_the_transcript_goes_on(small_disk: Path) -> None:
    journal = Journal.create(small_disk, started())
    kept: list[str] = []

    def fill() -> None:
        for number in range(100):
            journal.append(said(f"{number} " + "x" * 1_500))
            kept.append(str(number))

    with pytest.raises(JournalError, match="No space left on device"):
        fill()
    assert 5 < len(kept) < 99
    assert [text.split()[0] for text in texts_of(list(journal.read()))] == kept
    with pytest.raises(JournalError):
        Journal.create(small_disk, started("s2"))
    journal.close()
    with pytest.raises(JournalError):
        Journal.fork(small_disk / "s1", small_disk, started("s3"))
    for name in ("s2", "s3"):
        (small_disk / name / TRANSCRIPT).unlink(missing_ok=True)
    again, events, problems = reopened(small_disk / "s1" / TRANSCRIPT)
    assert problems == []
    assert len(texts_of(events)) == len(kept)
    again.close()


# ------------------------------------------------------------------ two kernels


HOLD = """
    import os, sys, time
    from pathlib import Path
    from ipyagent.journal.journal import Journal
    journal, _ = Journal.open(Path(sys.argv[1]), lambda event: None)
    if sys.argv[2] == "fork":
        child = os.fork()
        if not child:
            sys.exit(0)  # not os._exit: the interpreter tears down, as in careless user code
        os.waitpid(child, 0)
    print("held", flush=True)
    time.sleep(60)
"""


@pytest.mark.parametrize("kind", ["plain", "fork"])
def test_the_second_kernel_is_told_and_forks_and_the_lock_dies_with_its_holder(tmp_path: Path, kind: str) -> None:
    path = written(tmp_path, "one")
    holder = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(HOLD), str(path.parent), kind],
        env={**os.environ, "PYTHONPATH": str(ROOT)}, stdout=subprocess.PIPE, text=True,
    )
    try:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        assert refused(path.parent) == "session s1 is open in another kernel"
        copy, _ = Journal.fork(path.parent, tmp_path, started("s2"))
        copy.append(said("two"))
        copy.close()
        assert texts_of(list(read_events(tmp_path / "s2" / TRANSCRIPT))) == ["one", "two"]
        holder.send_signal(signal.SIGKILL)
        holder.wait(10)
        journal, events, problems = reopened(path)
        assert (texts_of(events), problems) == (["one"], [])
        journal.close()
    finally:
        holder.kill()
        holder.wait(10)
        if holder.stdout is not None:
            holder.stdout.close()


def test_one_process_cannot_open_a_session_twice(tmp_path: Path) -> None:
    path = written(tmp_path, "one")
    journal, _, _ = reopened(path)
    assert "open in another kernel" in refused(path.parent)
    journal.close()
    reopened(path)[0].close()


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
