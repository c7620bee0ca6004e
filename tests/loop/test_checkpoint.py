"""A checkpoint spares reading a session's past, and is never believed where it could be wrong."""

from __future__ import annotations

import asyncio
import io
import os
import pickle
import resource
import shutil
import stat
import sys
from hashlib import blake2b
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ipyagent.journal.events import (
    AssistantMessage,
    Event,
    SessionStarted,
    ToolCalled,
    ToolReturned,
    TurnEnded,
    UserMessage,
)
from ipyagent.journal.journal import Journal
from ipyagent.loop.checkpoint import CHECKPOINT, TAIL, Checkpoint, _Header, _Unpickler
from ipyagent.loop.session import Session
from ipyagent.trust import signature

sys.path.insert(0, str(Path(__file__).parents[1] / "journal"))
from event_lists import event_lists

WORD, LONG = "penguins", "day" * 18_000


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("IPYAGENT_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


def said(words: str) -> UserMessage:
    return UserMessage(text=words, blocks=({"type": "text", "text": words},))


def long_session(folder: Path, name: str = "s") -> Path:
    """The folder of a session that is long enough for a checkpoint, which it has."""
    session = Session.create(folder, SessionStarted(session=name, version="0"))
    for number in range(TAIL // 100_000 + 2):
        session.record(said(f"{WORD} {number} {LONG}"))  # twice in its line
        session.record(TurnEnded(status="finished"))
    session.close()
    assert (folder / name / CHECKPOINT).exists()
    return folder / name


def facts(session: Session) -> tuple[Any, ...]:
    """What the next request and the user are told of a session."""
    history = session.history
    return (
        session.view.wire(), session.view.count(), session.view.behind(), session.view.results, history.turns,
        history.totals, history.variables, history.savings, session.info, session.view.open_calls,
    )  # fmt: skip


@settings(max_examples=30, deadline=None, suppress_health_check=list(HealthCheck))
@given(event_lists(unknown=False), st.integers(0, 40), st.booleans())
def test_with_and_without_a_checkpoint_the_next_request_is_the_same(
    tmp_path_factory: Any, events: list[Event], at: int, damaged: bool
) -> None:
    folder: Path = tmp_path_factory.mktemp("sessions")
    journal = Journal.create(folder / "a", SessionStarted(session="s", version="0"))
    for event in events[:at]:
        journal.append(event)
    journal.close()
    if damaged:
        lines = journal.path.read_bytes().splitlines(keepends=True)
        journal.path.write_bytes(b"".join([*lines[:2], b"no event\n", *lines[3:]]))
    session, _ = Session.open(folder / "a" / "s")
    assert Checkpoint(session.journal.folder).save(session._replayed, session.journal.size, lambda: None)
    for event in events[at:]:
        session.record(event)
    session.close()
    shutil.copytree(folder / "a" / "s", folder / "b" / "s", ignore=shutil.ignore_patterns(CHECKPOINT))
    quick, told = Session.open(folder / "a" / "s")
    slow, every = Session.open(folder / "b" / "s")
    assert quick._checkpoint._prefix.offset, "the checkpoint was used"
    assert not slow._checkpoint._prefix.offset
    assert facts(quick)[:2] == facts(slow)[:2]
    assert facts(quick) == facts(slow)
    assert [(each.line, each.what) for each in told] == [(each.line, each.what) for each in every]
    for one in (quick, slow):
        one.record(said("go on"))
    assert facts(quick)[0] == facts(slow)[0]
    quick.close()
    slow.close()


def flipped(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[content.index(WORD.encode())] ^= 1
    path.write_bytes(content)


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1_000])


def emptied(path: Path) -> None:
    path.write_bytes(b"")


def foreign(path: Path) -> None:
    shutil.copy(long_session(path.parents[1], "other") / CHECKPOINT, path)


def moved_in_a_clone(path: Path) -> None:
    """Another user's own folder signed it."""
    shutil.rmtree(Path(os.environ["IPYAGENT_HOME"]))


def of_other_code(path: Path) -> None:
    content, _, line = path.read_bytes().rpartition(b"\n")
    header = msgspec.structs.replace(msgspec.json.decode(line, type=_Header), code="another")
    signed = signature(Path(os.environ["IPYAGENT_HOME"]), "checkpoint", header.content())
    path.write_bytes(content + b"\n" + msgspec.json.encode(msgspec.structs.replace(header, signed=signed)))


class Bomb:
    def __init__(self, at: Path) -> None:
        self.at = at

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (str(self.at),)


def forged(path: Path) -> None:
    content, line = pickle.dumps(Bomb(path.parent / "went off")), path.read_bytes().rpartition(b"\n")[2]
    header = msgspec.json.decode(line, type=_Header)
    header = msgspec.structs.replace(header, size=len(content), digest=blake2b(content).hexdigest())
    path.write_bytes(content + b"\n" + msgspec.json.encode(header))


def test_a_checkpoint_that_may_be_wrong_is_made_again_and_never_believed(tmp_path: Path) -> None:
    folder = long_session(tmp_path)
    good, _ = Session.open(folder)
    wanted = facts(good)
    good.close()
    for spoil in (flipped, cut, emptied, foreign, moved_in_a_clone, of_other_code, forged):
        spoil(folder / CHECKPOINT)
        assert Checkpoint(folder).load() is None, spoil
        session, problems = Session.open(folder)
        assert (facts(session), problems) == (wanted, []), spoil
        session.close()
        assert Checkpoint(folder).load() is not None, f"{spoil}: it was not made again"
    assert not (folder / "went off").exists()


def test_a_payload_reaches_nothing_but_the_packages_own_classes() -> None:
    checkpoint = "ipyagent.loop.checkpoint"
    for pair in (("os", "system"), (checkpoint, "os.system"), (checkpoint, "Path"), (checkpoint, "signature")):
        payload = b"\x80\x04" + b"".join(b"\x8c" + bytes([len(each)]) + each.encode() for each in pair) + b"\x93."
        with pytest.raises(pickle.UnpicklingError):
            _Unpickler(io.BytesIO(payload)).load()


def test_a_transcript_that_was_changed_below_its_checkpoint_is_read_again(tmp_path: Path) -> None:
    """Also one of the same size whose time of change was set back; one that only grew is read from there on."""
    folder = long_session(tmp_path)
    path = folder / "transcript.jsonl"
    whole, before = path.read_bytes(), path.stat()
    path.write_bytes(whole.replace(f"{WORD} 3 ".encode(), b"walruses 3 "))
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert Checkpoint(folder).load() is None
    session, _ = Session.open(folder)
    assert "walruses 3" in session.view.messages[0]["content"][3]["text"]
    session.close()
    path.write_bytes(whole)
    session, _ = Session.open(folder)
    session.close()
    session, _ = Session.open(folder)
    session.record(said("one more"))
    session.journal.close()  # the kernel was killed: no checkpoint of this
    kept = Checkpoint(folder).load()
    assert kept[1].newest == session.journal.last - 1
    again, _ = Session.open(folder)
    assert again.view.messages[-1]["content"][-1]["text"] == "one more"
    again.close()


def test_a_checkpoint_is_written_beside_the_turns_and_is_this_users_alone(tmp_path: Path) -> None:
    """What is recorded meanwhile does not wait for it: one of half a moment is never kept."""

    async def work() -> None:
        session = Session.create(tmp_path, SessionStarted(session="s", version="0"))
        path = tmp_path / "s" / CHECKPOINT
        for number in range(24):
            session.record(said(f"{number} {LONG}"))
        session.record(TurnEnded(status="finished"))
        task = session._save_task
        before = session.journal.last
        while not (session._saving.locked() or task.done()):
            await asyncio.sleep(0)
        session.record(said("at once"))
        await task
        kept = Checkpoint(tmp_path / "s").load()
        assert kept is None or (kept[1].newest == before and len(kept[0].history.turns) == 24)
        path.unlink(missing_ok=True)
        session._checkpoint = Checkpoint(tmp_path / "s")
        session.record(TurnEnded(status="finished"))
        await session._save_task
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        loaded = Checkpoint(tmp_path / "s").load()
        assert loaded[1].newest == session.journal.last
        session.close()
        assert {each.name for each in path.parent.iterdir()} == {"transcript.jsonl", "lock", CHECKPOINT}

    asyncio.run(work())


def test_a_checkpoint_that_cannot_be_written_costs_nothing(tmp_path: Path) -> None:
    folder = long_session(tmp_path)
    (folder / CHECKPOINT).unlink()
    session, _ = Session.open(folder)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1_000_000, hard))
    try:
        session.close()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert {each.name for each in folder.iterdir()} == {"transcript.jsonl", "lock"}
    again, problems = Session.open(folder)
    assert problems == []
    again.close()


def test_resuming_estimates_no_result_that_nobody_asks_for(tmp_path: Path) -> None:
    session = Session.create(tmp_path, SessionStarted(session="s", version="0"))
    session.record(said("go"))
    use = {"type": "tool_use", "id": "c", "name": "python", "input": {}}
    session.record(AssistantMessage(blocks=(use,), stop_reason="tool_use", tokens=5))
    session.record(ToolCalled(call="c", name="python", input={}))
    session.record(ToolReturned(call="c", name="python", blocks=({"type": "text", "text": "4 5 6"},), tokens=9))
    session.record(TurnEnded(status="finished"))
    session.close()
    again, _ = Session.open(tmp_path / "s")
    assert [spot.weighed for spot in again.view.results] == [-1]
    assert [spot.tokens for spot in again.view.results] == [spot.tokens for spot in session.view.results]
    again.close()
