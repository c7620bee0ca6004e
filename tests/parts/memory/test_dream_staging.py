"""The copy a dream works on: what comes of it into the memory, what gives way, what is undone."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from recall_room import index_names

from ipyagent.errors import UsageError
from ipyagent.parts.memory.dream import held_because
from ipyagent.parts.memory.dream_workspace import DREAMS, DreamWorkspace, digests, record_in, undo, waiting_in
from ipyagent.parts.memory.safe_paths import INDEX
from ipyagent.parts.memory.store import MemoryStore


def memory_text(body: str, name: str = "fact") -> str:
    return f"---\nname: {name}\ndescription: about {name}\ntype: project\n---\n{body}\n"


@pytest.fixture
def store(tmp_path: Path) -> MemoryStore:
    made = MemoryStore(tmp_path / "memory", "project")
    for name in "abcdefg":
        made.write(f"{name}.md", memory_text(f"Says {name}.", name), expected=None, by="user")
    made.write("deep/h.md", memory_text("Says h.", "h"), expected=None, by="user")
    return made


def content(store: MemoryStore) -> dict[str, tuple[bytes, int]]:
    """Bytes and time of every file that is not hidden."""
    return {
        path.relative_to(store.folder).as_posix(): (path.read_bytes(), path.stat().st_mtime_ns)
        for path in sorted(store.folder.rglob("*"))
        if path.is_file() and not any(part.startswith(".") for part in path.relative_to(store.folder).parts)
    }


def add(staging: DreamWorkspace, name: str, words: str = "Dreamed.") -> None:
    staging.copy.change(name, lambda text: f"{text}\n{words}\n", by="dream")


def dreamed(store: MemoryStore) -> DreamWorkspace:
    """A dream that changes a, deletes b, renames c to z, makes n."""
    staging = DreamWorkspace.make(store)
    add(staging, "a.md")
    staging.copy.delete("b.md", by="dream")
    staging.copy.rename("c.md", "deep/z.md", by="dream")
    staging.copy.write("n.md", memory_text("New.", "n"), expected=None, by="dream")
    return staging


def test_until_the_commit_nothing_changes(store: MemoryStore) -> None:
    before = content(store)
    staging = dreamed(store)
    staging.changes()
    assert content(store) == before
    staging.drop()
    assert content(store) == before
    assert not any(path.is_dir() for path in (store.folder / DREAMS).iterdir())


def test_what_became_of_the_copy_is_told_by_file_and_a_commit_brings_all_of_it(store: MemoryStore) -> None:
    staging = dreamed(store)
    changes = staging.changes()
    assert [(change.kind, change.name, change.old) for change in changes] == [
        ("renamed", "deep/z.md", "c.md"),
        ("changed", "a.md", ""),
        ("created", "n.md", ""),
        ("deleted", "b.md", ""),
    ]
    made = staging.commit("s", changes)
    assert made.kept == ()
    assert digests(store) == digests(staging.copy)
    assert sorted(index_names(store)) == sorted(memory.name for memory in store.list())
    assert store.index.doctor() == []
    [version, *_] = store.versions("b.md")
    assert (version.by, version.change) == ("dream", "deleted")


def test_what_was_saved_meanwhile_wins(store: MemoryStore) -> None:
    staging = dreamed(store)
    add(staging, "d.md")
    store.change("a.md", lambda text: text + "\nBy a person.\n", by="user")
    store.write("m.md", memory_text("Meanwhile."), expected=None, by="agent")
    store.write("n.md", memory_text("Another's."), expected=None, by="agent")
    made = staging.commit("s", staging.changes())
    assert "By a person." in store.read("a.md").text
    assert "Dreamed." not in store.read("a.md").text
    assert "Another's." in store.read("n.md").text
    assert "Meanwhile." in store.read("m.md").text
    assert "Dreamed." in store.read("d.md").text
    assert "a.md" in made.kept
    assert "n.md" in made.kept
    assert sorted(index_names(store)) == sorted(memory.name for memory in store.list())


def test_when_a_write_gave_way_nothing_is_deleted_nor_what_changed_meanwhile(store: MemoryStore) -> None:
    """The text of a deleted memory may stand only in the one that gave way."""
    staging = DreamWorkspace.make(store)
    add(staging, "a.md", "Says b.")
    staging.copy.delete("b.md", by="dream")
    store.change("a.md", lambda text: text + "\nBy a person.\n", by="user")
    made = staging.commit("s", staging.changes())
    assert (made.done, made.kept) == ((), ("a.md", "b.md"))
    assert "Says b." in store.read("b.md").text
    staging = DreamWorkspace.make(store)
    staging.copy.delete("b.md", by="dream")
    store.change("b.md", lambda text: text + "\nBy a person.\n", by="user")
    assert staging.commit("s", staging.changes()).kept == ("b.md",)
    assert "By a person." in store.read("b.md").text
    staging = DreamWorkspace.make(store)
    add(staging, "a.md")
    store.delete("a.md", by="user")
    assert staging.commit("s", staging.changes()).kept == ("a.md",)
    assert not store.exists("a.md")


def test_bad_headers_and_the_index_are_mended(store: MemoryStore) -> None:
    (store.folder / "bad.md").write_bytes(b"---\r\nname: bad: colon\r\ntype: project\r\n---\r\nSays bad.\r\n")
    (store.folder / INDEX).write_text("- [gone](gone.md) — dead\n- [a](a.md) — one\n- [a](a.md) — two\n")
    staging = DreamWorkspace.make(store)
    changes = staging.changes()
    assert [change.name for change in changes] == ["bad.md"]
    staging.commit("s", changes)
    assert store.index.doctor() == []
    assert "Says bad." in store.read("bad.md").text


def test_undo_restores_byte_for_byte_and_undoing_again_brings_it_back(store: MemoryStore) -> None:
    (store.folder / "odd.md").write_bytes(b"\xef\xbb\xbf---\r\nname: odd\r\ntype: project\r\n---\r\nOdd.\r\n")
    (store.folder / INDEX).write_bytes(b"people's words\r\n- [a](a.md) \xe2\x80\x94 one\r\n")
    (store.folder / "picture.png").write_bytes(b"\x89PNG\0")
    os.utime(store.folder / "a.md", (1_700_000_000, 1_700_000_000))
    before = content(store)
    staging = dreamed(store)
    staging.commit("s", staging.changes())
    after = content(store)
    assert after != before
    record, since = undo(store)
    assert content(store) == before
    assert since == ()
    assert [change.kind for change in record.changes][-1] == "deleted"
    assert record_in(store).undone
    undo(store)
    assert content(store) == after


def test_undo_keeps_what_was_saved_while_it_dreamed_and_saved_and_deleted_since(store: MemoryStore) -> None:
    staging = dreamed(store)
    store.write("meanwhile.md", memory_text("Meanwhile."), expected=None, by="agent")
    staging.commit("s", staging.changes())
    store.write("later.md", memory_text("Later."), expected=None, by="agent")
    store.change("a.md", lambda text: text + "\nBy a person.\n", by="user")
    store.delete("e.md", by="user")
    _, since = undo(store)
    assert sorted(since) == ["a.md", "e.md", "later.md"]
    assert "Meanwhile." in store.read("meanwhile.md").text
    assert "Later." in store.read("later.md").text
    assert "By a person." in store.read("a.md").text
    assert not store.exists("e.md")
    assert "Says b." in store.read("b.md").text
    assert "Says c." in store.read("c.md").text
    assert not store.exists("n.md")
    assert sorted(index_names(store)) == sorted(memory.name for memory in store.list())


def test_without_a_dream_there_is_nothing_to_undo_and_a_snapshot_that_is_gone_is_said(store: MemoryStore) -> None:
    with pytest.raises(UsageError, match="no dream"):
        undo(store)
    staging = dreamed(store)
    staging.commit("s", staging.changes())
    for _ in range(5):
        store.snapshot()
    with pytest.raises(UsageError, match="snapshot"):
        undo(store)


def test_more_than_a_third_deleted_is_held_and_a_rename_is_no_deletion(store: MemoryStore) -> None:
    staging = DreamWorkspace.make(store)
    for name in "abcd":
        staging.copy.rename(f"{name}.md", f"all_{name}.md", by="dream")
    assert held_because(len(staging.base), staging.changes()) == ""
    store.delete("g.md", by="user")
    store.delete("deep/h.md", by="user")  # six are left
    staging = DreamWorkspace.make(store)
    for name, why in (("a", ""), ("b", ""), ("c", "it would delete 3 of 6 memories, more than a third")):
        staging.copy.delete(f"{name}.md", by="dream")
        assert held_because(len(staging.base), staging.changes()) == why


def test_a_dream_that_waits_outlives_the_next_copy_and_can_be_committed(store: MemoryStore) -> None:
    staging = dreamed(store)
    staging.wait("s", "why", staging.changes())
    DreamWorkspace.make(store).drop()
    waiting = waiting_in(store)
    later = DreamWorkspace.of(store, waiting)
    made = later.commit("s", waiting.changes)
    assert made.kept == ()
    assert len(made.done) == 4
    assert waiting_in(store) is None
    later.drop()


def test_a_dream_that_waits_gives_way_as_well(store: MemoryStore) -> None:
    staging = dreamed(store)
    waiting = staging.wait("s", "why", staging.changes())
    store.change("a.md", lambda text: text + "\nBy a person.\n", by="user")
    made = DreamWorkspace.of(store, waiting).commit("s", waiting.changes)
    assert "a.md" in made.kept
    assert store.exists("b.md")
