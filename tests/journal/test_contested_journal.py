"""A full disk and a second kernel: one line for the user, and the transcript goes on."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest
from journal_room import ROOT, refused, reopened, run, said, started, texts_of, written

from ipyagent.errors import JournalError
from ipyagent.journal.journal import TRANSCRIPT, Journal, read_events

# ------------------------------------------------------------------ full disk


FULL = """
    import resource, signal, sys
    from pathlib import Path
    from ipyagent.errors import JournalError
    from ipyagent.journal.journal import Journal, read_events
    from ipyagent.journal.events import SessionStarted, UserMessage
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    journal = Journal.create(Path(sys.argv[1]), SessionStarted(session="s1", version="0"))
    resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, resource.RLIM_INFINITY))
    refused = 0
    for i in range(60):
        before = journal.path.read_bytes()
        try:
            journal.append(UserMessage(text=str(i), blocks=({"type": "text", "text": "x" * 700},)))
        except JournalError as problem:
            refused += 1
            assert "free some space" in str(problem) and "\\n" not in str(problem), problem
            assert journal.path.read_bytes() == before, "a refused append leaves nothing behind"
    resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    journal.append(UserMessage(text="space again", blocks=()))
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


CUT = """
    import resource, signal, sys
    from pathlib import Path
    from ipyagent.errors import JournalError
    from ipyagent.journal import journal as module
    from ipyagent.journal.journal import Journal, read_events
    from ipyagent.journal.events import SessionStarted, UserMessage
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    ALL = resource.RLIM_INFINITY

    def interrupted_at(number):
        seen = 0
        def trace(frame, what, arg):
            nonlocal seen
            if frame.f_code.co_filename != module.__file__:
                return None
            seen += what == "line"
            if seen == number:
                sys.settrace(None)
                raise KeyboardInterrupt
            return trace
        return trace

    number = cut = 0
    while True:
        number += 1
        journal = Journal.create(Path(sys.argv[1]), SessionStarted(session=f"s{number}", version="0"))
        sys.settrace(interrupted_at(number))
        try:
            journal.append(UserMessage(text="cut", blocks=()))
        except KeyboardInterrupt:
            cut += 1
        else:
            break
        finally:
            sys.settrace(None)
        there = journal.path.read_bytes()
        resource.setrlimit(resource.RLIMIT_FSIZE, (len(there) + 20, ALL))
        try:
            journal.append(UserMessage(text="too long" * 100, blocks=()))
        except JournalError:
            pass
        else:
            raise AssertionError("the disk is full")
        resource.setrlimit(resource.RLIMIT_FSIZE, (ALL, ALL))
        assert journal.path.read_bytes() == there, (number, "what was whole stays")
        journal.append(UserMessage(text="after", blocks=()))
        problems = []
        events = list(read_events(journal.path, problems))
        assert not problems, (number, problems)
        assert [e.id for e in events] == list(range(1, len(events) + 1)), number
        assert [e.text for e in events[1:]] == ["cut"] * (b'"cut"' in there) + ["after"], number
        journal.close()
    print(cut)
"""


def test_an_interrupt_within_an_append_costs_no_whole_event_when_the_disk_is_full_next(tmp_path: Path) -> None:
    done = run(CUT, tmp_path)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) > 5


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
    assert [place.name for place in small_disk.iterdir()] == ["s1"], "what could not be begun or copied is removed"
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
        assert holder.stdout.readline() == "held\n"
        assert refused(path.parent) == "session s1 is open in another kernel; %agent fork continues in a copy"
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
