"""The store: what is written is there whole, what was there before can be had back, and the index follows."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from recall_room import index_names

from ipyagent.errors import MemoryRefused
from ipyagent.parts.memory.index import MOST_BYTES, MOST_LINES, line_of, named_in
from ipyagent.parts.memory.metadata_index import Scan
from ipyagent.parts.memory.store import MemoryStore


def fact(name: str, description: str, body: str = "The fact.\n", **more: str) -> str:
    lines = [f"name: {name}", f"description: {description}", *(f"{key}: {value}" for key, value in more.items())]
    return "---\n" + "\n".join(lines) + "\n---\n\n" + body


@pytest.fixture
def store(tmp_path: Path) -> MemoryStore:
    return MemoryStore(tmp_path / "memory", "project")


def files_in(folder: Path) -> dict[str, bytes]:
    """Every file but the history."""
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file() and ".history" not in path.parts
    }


@contextmanager
def refused(reason: str) -> Iterator[None]:
    with pytest.raises(MemoryRefused) as caught:
        yield
    assert caught.value.reason == reason


def test_reading_makes_nothing_and_the_project_folder_is_made_before_the_first_write_only(tmp_path: Path) -> None:
    made: list[str] = []
    store = MemoryStore(tmp_path / "memory", "project", prepare=lambda: made.append("made"))
    assert store.list() == []
    assert store.index.text() == store.index.loaded() == ""
    assert store.index.doctor() == store.index.mend() == []
    assert not store.exists("a.md")
    with refused("missing"):
        store.read("a.md")
    assert not store.folder.exists()
    assert made == []
    store.write("a.md", "A\n", expected=None, by="user")
    store.write("b.md", "B\n", expected=None, by="user")
    assert made == ["made"]
    with refused("exists"):
        store.write("a.md", "other\n", expected=None, by="user")
    assert store.read("a.md").text == "A\n"
    assert (store.folder / ".history" / ".gitignore").read_text() == "*\n", "the history is not given to git"
    with refused("size"):
        store.write("c.md", "x" * 1_000_001, expected=None, by="agent")
    assert len(store.list()) == 2


def test_a_new_memory_is_listed_and_indexed(store: MemoryStore) -> None:
    text = fact("Plots", "Wants plots without a grid", type="feedback", source="said", session="s1", turn="7")
    written = store.write("feedback_plots.md", text, expected=None, by="agent")
    assert (written.change, written.revision) == ("created", "")
    (memory,) = store.list()
    assert memory == written.memory
    assert memory.path == "/memories/project/feedback_plots.md"
    assert (memory.title, memory.description, memory.kind) == ("Plots", "Wants plots without a grid", "feedback")
    assert (memory.source, memory.session, memory.turn, memory.problems) == ("said", "s1", 7, ())
    assert store.index.text() == "- [Plots](feedback_plots.md) — Wants plots without a grid\n"
    read = store.read("feedback_plots.md")
    assert (read.text, read.digest) == (text, written.digest)


def test_a_text_that_changed_since_is_merged_not_overwritten(store: MemoryStore) -> None:
    first = store.write("a.md", fact("A", "d", "- one\n- two\n- three\n"), expected=None, by="agent")
    theirs = fact("A", "d", "- one\n- two, changed\n- three\n- four\n")
    store.write("a.md", theirs, expected=first.digest, by="agent")
    mine = fact("A", "described", "- zero\n- one\n- two\n")
    written = store.write("a.md", mine, expected=first.digest, by="agent")
    assert written.change == "merged"
    assert store.read("a.md").text == fact("A", "described", "- zero\n- one\n- two, changed\n- four\n")
    assert store.version("a.md", written.revision).text == theirs
    store.delete("a.md", by="user")
    assert store.write("a.md", "- one\n- two\n", expected=first.digest, by="agent").change == "created"
    assert index_names(store) == ["a.md"], "a memory deleted meanwhile is written again"
    store.write("a.md", "- three\n", expected="0" * 64, by="agent")
    assert sorted(store.read("a.md").text.splitlines()) == ["- one", "- three", "- two"], "nobody knows the digest"


def test_a_change_sees_the_text_as_it_is_and_what_an_edit_raises_passes_through(store: MemoryStore) -> None:
    store.write("a.md", "count 1\n", expected=None, by="agent")

    def edit(text: str) -> str:
        raise LookupError("no match")

    with pytest.raises(LookupError, match="no match"):
        store.change("a.md", edit, by="agent")
    assert (store.read("a.md").text, store.versions("a.md")) == ("count 1\n", [])
    done = store.change("a.md", lambda text: text.replace("1", "2"), by="agent")  # the lock is free again
    assert (done.change, store.read("a.md").text) == ("changed", "count 2\n")
    assert store.change("a.md", lambda text: text, by="agent").change == "unchanged"
    assert len(store.versions("a.md")) == 1


def test_the_last_versions_are_kept_and_restored(store: MemoryStore) -> None:
    store.write("a.md", "0\n", expected=None, by="agent")
    for number in range(1, 26):
        store.change("a.md", lambda text, number=number: f"{number}\n", by="agent")
    versions = store.versions("a.md")
    assert len(versions) == 20
    assert [store.version("a.md", each.revision).text for each in versions] == [f"{n}\n" for n in range(24, 4, -1)]
    assert {each.by for each in versions} == {"agent"}
    assert {each.change for each in versions} == {"changed"}
    done = store.restore("a.md", versions[-1].revision, by="user")
    assert (done.change, store.read("a.md").text) == ("restored", "5\n")
    store.restore("a.md", done.revision, by="user")
    assert store.read("a.md").text == "25\n"
    with refused("missing"):
        store.restore("a.md", "999999", by="user")


def test_a_deletion_states_what_it_deletes_and_a_deleted_memory_is_restored_with_its_line(store: MemoryStore) -> None:
    first = store.write("a.md", "A\n", expected=None, by="agent")
    text = fact("A", "about a")
    store.change("a.md", lambda _: text, by="user")
    with refused("changed"):
        store.delete("a.md", by="dream", expected=first.digest)
    assert store.read("a.md").text == text
    gone = store.delete("a.md", by="agent")
    assert gone.change == "deleted"
    assert (store.list(), index_names(store)) == ([], [])
    store.restore("a.md", gone.revision, by="user")
    assert store.read("a.md").text == text
    assert index_names(store) == ["a.md"]


def test_a_renamed_memory_keeps_its_place_in_the_index_and_its_history_and_replaces_none(store: MemoryStore) -> None:
    for name in ("a.md", "b.md", "c.md"):
        store.write(name, fact(name[0], "d"), expected=None, by="agent")
    before = files_in(store.folder)
    with refused("exists"):
        store.rename("a.md", "b.md", by="agent")
    with refused("missing"):
        store.rename("z.md", "d.md", by="agent")
    assert files_in(store.folder) == before
    store.change("b.md", lambda text: text + "more\n", by="agent")
    done = store.rename("b.md", "team/plots.md", by="user")
    assert (done.change, done.memory.name) == ("renamed", "team/plots.md")
    assert index_names(store) == ["a.md", "team/plots.md", "c.md"]
    assert [each.change for each in store.versions("team/plots.md")] == ["renamed", "changed"]
    assert store.version("team/plots.md", store.versions("team/plots.md")[1].revision).text == fact("b", "d")
    store.rename("team/plots.md", "b.md", by="user")
    assert not (store.folder / "team").exists()
    assert index_names(store) == ["a.md", "b.md", "c.md"]


def test_a_rename_may_change_case_alone(store: MemoryStore) -> None:
    store.write("plots.md", "A\n", expected=None, by="agent")
    store.rename("plots.md", "Plots.md", by="agent")
    assert os.listdir(store.folder / ".history" / "versions") == ["Plots.md"]
    assert [memory.name for memory in store.list()] == ["Plots.md"]


def test_a_file_edited_by_hand_keeps_both_states(store: MemoryStore) -> None:
    store.write("a.md", "A\n", expected=None, by="agent")
    with (store.folder / "a.md").open("a") as file:  # in place, as some editors do
        file.write("by hand\n")
    (store.folder / "a.md").chmod(0o600)
    done = store.change("a.md", lambda text: text + "by the agent\n", by="agent")
    with (store.folder / "a.md").open("a") as file:
        file.write("again\n")
    assert store.version("a.md", done.revision).text == "A\nby hand\n"
    assert store.read("a.md").text == "A\nby hand\nby the agent\nagain\n"
    assert (store.folder / "a.md").stat().st_mode & 0o777 == 0o600


def test_a_scan_reads_what_changed_only(store: MemoryStore) -> None:
    for number in range(5):
        store.write(f"m{number}.md", fact(f"M{number}", "d"), expected=None, by="agent")
    before = {memory.name: memory for memory in store.list()}
    path = store.folder / "m3.md"
    status = path.stat()
    path.write_text(fact("X3", "d"))
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))  # same size, same time: told by its other time
    after = {memory.name: memory for memory in store.list()}
    assert after["m3.md"].title == "X3"
    assert all(after[name] is before[name] for name in before if name != "m3.md")
    path.unlink()
    assert "m3.md" not in {memory.name for memory in store.list()}


def test_memories_come_newest_first_and_hidden_files_the_index_and_links_are_none(
    store: MemoryStore, tmp_path: Path
) -> None:
    for name, when in (("a.md", 3), ("b.md", 1), ("c/d.md", 2)):
        store.write(name, "x\n", expected=None, by="agent")
        os.utime(store.folder / name, (when, when))
    (store.folder / ".hidden.md").write_text("x")
    (store.folder / "notes.txt").write_text("x")
    (store.folder / "sub").mkdir()
    (store.folder / "sub" / "MEMORY.md").write_text("x")
    (tmp_path / "secret.md").write_text("secret")
    (store.folder / "link.md").symlink_to(tmp_path / "secret.md")
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "x.md").write_text("x")
    (store.folder / "far").symlink_to(tmp_path / "other")
    os.mkfifo(store.folder / "pipe.md")
    assert [memory.name for memory in store.list()] == ["a.md", "c/d.md", "b.md"]
    assert {each.name for each in store.index.doctor() if each.kind == "name"} == {"link.md", "pipe.md"}


def test_a_folder_that_cannot_be_read_is_told(tmp_path: Path) -> None:
    (tmp_path / "memory").write_text("a file")
    store = MemoryStore(tmp_path / "memory", "project")
    assert store.list() == store.list() == []
    assert [each.name for each in Scan(store.folder, "project").misfits()] == ["."]
    with pytest.raises(MemoryRefused):
        store.write("a.md", "A\n", expected=None, by="agent")


# ------------------------------------------------------------------- index


def test_lines_of_people_stay(store: MemoryStore) -> None:
    store.write("a.md", fact("A", "about a"), expected=None, by="agent")
    (store.folder / "MEMORY.md").write_text("# Mine\n\n- [my words](a.md) — as I like it\n- see https://x.y/z.md\n")
    store.write("b.md", fact("B", "about b"), expected=None, by="agent")
    store.change("a.md", lambda text: text + "more\n", by="agent")  # neither title nor description
    kept = "# Mine\n\n- [my words](a.md) — as I like it\n- see https://x.y/z.md\n"
    assert store.index.text() == kept + "- [memory](b.md) — about b\n"
    store.change("a.md", lambda text: text.replace("about a", "news"), by="agent")
    assert "- [memory](a.md) — news\n" in store.index.text()


def test_index_lines_are_short_name_any_file_and_stay_true_when_the_index_is_edited(store: MemoryStore) -> None:
    names = ["a (1).md", "100%.md", "日本語/メモ.md", "x" * 90 + ".md"]
    for name in names:
        store.write(name, fact('"[T] ' + "long title " * 12 + '"', "word " * 60), expected=None, by="agent")
    assert index_names(store) == names
    assert all(len(line) <= 200 for line in store.index.text().splitlines())
    assert store.index.doctor() == [] or {each.kind for each in store.index.doctor()} == {"duplicate"}
    for name in names:
        store.delete(name, by="agent")
    for name in ("a.md", "b.md"):
        store.write(name, fact(name[0], "d"), expected=None, by="agent")
    store.change("MEMORY.md", lambda text: "# Heading\n- [gone](gone.md)\n- [A!](a.md) — mine\n", by="agent")
    assert store.index.text() == "# Heading\n- [A!](a.md) — mine\n- [memory](b.md) — d\n"
    assert len(store.versions("MEMORY.md")) == 1
    for call in (lambda: store.delete("MEMORY.md", by="agent"), lambda: store.rename("MEMORY.md", "x.md", by="agent")):
        with refused("index"):
            call()
    with refused("index"):
        store.rename("a.md", "MEMORY.md", by="agent")


@pytest.mark.parametrize("length", [20, 140])
def test_a_long_index_is_cut_at_a_line_and_says_so(store: MemoryStore, length: int) -> None:
    store.folder.mkdir()
    lines = [f"- {number} ".ljust(length, "é") for number in range(400)]
    (store.folder / "MEMORY.md").write_text("\n".join(lines) + "\n", encoding="utf-8")
    *shown, warning = store.index.loaded().split("\n")
    assert shown == lines[: len(shown)]
    size = len("\n".join(shown).encode())
    assert size <= MOST_BYTES
    assert len(shown) == MOST_LINES or size + len(lines[len(shown)].encode()) + 1 > MOST_BYTES
    assert f"{400 - len(shown)} of 400 lines of this index are left out" in warning
    assert "/memories/project/MEMORY.md" in warning


def test_doctor_finds_and_mend_puts_right(store: MemoryStore) -> None:
    for name in ("a.md", "b.md", "c.md"):
        store.write(name, fact(name[0], f"about {name}"), expected=None, by="agent")
    index = store.folder / "MEMORY.md"
    index.write_text(f"# Own\n- [gone](gone.md)\n- [a](a.md)\n- [a again](a.md)\n- [c](c.md) — {'x' * 200}\n")
    (store.folder / "bad.md").write_text("---\ndescription: one: two\ntype: project\ntype: user\nextra: kept\n---\n")
    (store.folder / "bare.md").write_text("# About ports\nThe service listens on 8080.\n")
    found = {(each.kind, each.name) for each in store.index.doctor()}
    assert found == {
        ("no file", "gone.md"),
        ("duplicate", "a.md"),
        ("long line", "c.md"),
        ("no line", "b.md"),
        ("no line", "bad.md"),
        ("header", "bad.md"),
        ("no line", "bare.md"),
        ("header", "bare.md"),
    }
    assert {(each.kind, each.name) for each in store.index.mend()} == found
    assert store.index.doctor() == []
    assert sorted(index_names(store)) == ["a.md", "b.md", "bad.md", "bare.md", "c.md"]
    assert store.index.text().startswith("# Own\n- [a](a.md)\n")
    memories = {memory.name: memory for memory in store.list()}
    assert (memories["bad.md"].description, memories["bad.md"].kind) == ("one: two", "user")
    assert "extra: kept" in store.read("bad.md").text
    assert memories["bare.md"].description == "About ports"
    assert store.index.mend() == []
    assert len(store.versions("bad.md")) == 1


# --------------------------------------------------------------- snapshots


def test_a_snapshot_brings_the_directory_back_byte_for_byte(store: MemoryStore) -> None:
    store.write("a.md", fact("A", "a"), expected=None, by="agent")
    store.write("sub/b.md", fact("B", "b"), expected=None, by="agent")
    (store.folder / "raw.md").write_bytes(b"\xff\xfe\r\n not text")
    (store.folder / "data.bin").write_bytes(bytes(range(256)))
    os.utime(store.folder / "a.md", (1_000, 1_000))
    before = files_in(store.folder)
    snapshot = store.snapshot()
    store.change("a.md", lambda text: "changed\n", by="dream")
    store.delete("sub/b.md", by="dream")
    store.write("new.md", "new\n", expected=None, by="dream")
    (store.folder / "data.bin").unlink()
    dreamed = files_in(store.folder)
    undo = store.put_back(snapshot)
    assert files_in(store.folder) == before
    assert (store.folder / "a.md").stat().st_mtime == 1_000
    assert {each.change for each in store.versions("new.md")} == {"undone"}
    store.put_back(undo)
    assert files_in(store.folder) == dreamed


def test_only_the_last_snapshots_are_kept_and_only_own_ones_put_back(store: MemoryStore, tmp_path: Path) -> None:
    store.write("a.md", "A\n", expected=None, by="agent")
    half = store.folder / ".history" / "snapshots" / "half-made"
    half.mkdir(parents=True)
    (half / "z.md").write_text("left over")
    made = [store.snapshot() for _ in range(7)]
    assert not half.exists()
    assert sorted(path.name for path in made[-1].iterdir()) == ["MEMORY.md", "a.md"]
    assert [path.exists() for path in made] == [False, False, True, True, True, True, True]
    with refused("missing"):
        store.put_back(made[0])
    with refused("place"):
        store.put_back(tmp_path)
    with refused("place"):
        store.put_back(store.folder / ".history" / "snapshots" / ".." / made[3].name)
    assert store.read("a.md").text == "A\n"


# -------------------------------------------------------------------- lock


def test_a_lock_that_is_held_too_long_is_told(store: MemoryStore) -> None:
    held, done = threading.Event(), threading.Event()

    def hold() -> None:
        with store.lock():
            held.set()
            done.wait(10)

    thread = threading.Thread(target=hold)
    thread.start()
    assert held.wait(10)
    try:
        with refused("busy"), store.lock(0.05):
            pass
        assert store.list() == []  # reading needs no lock
    finally:
        done.set()
        thread.join()
    with store.lock(), store.lock():  # reentrant
        store.write("a.md", "A\n", expected=None, by="agent")


def test_what_a_killed_writer_left_is_finished_by_the_next_reader(store: MemoryStore) -> None:
    store.write("a.md", fact("A", "a"), expected=None, by="agent")
    store.write("b.md", fact("B", "b"), expected=None, by="agent")
    (store.folder / ".history" / "unfinished.json").write_text('["b.md", "c.md"]')
    (store.folder / ".history" / "new" / "file").write_text("half")
    (store.folder / "b.md").unlink()
    (store.folder / "c.md").write_text(fact("C", "c"))
    assert store.index.text() == "- [memory](a.md) — a\n- [memory](c.md) — c\n"
    assert list((store.folder / ".history" / "new").iterdir()) == []
    assert not (store.folder / ".history" / "unfinished.json").exists()
    (store.folder / "d.md").write_text(fact("D", "d"))
    (store.folder / ".history" / "unfinished.json").write_text('["b.m')
    store.list()
    assert sorted(index_names(store)) == ["a.md", "c.md", "d.md"], "a note that was cut short mends the whole index"


def test_the_index_line_is_the_fact_with_the_name_of_its_file_once(store: MemoryStore) -> None:
    written = store.write("a.md", fact('"A ] b"', '"tab\\there, line\\nend"'), expected=None, by="agent")
    line = line_of(written.memory)
    assert line == "- [A \\] b](a.md) — tab here, line end"
    assert named_in(line) == "a.md"
    store.delete("a.md", by="agent")
    said = "ddof=1 for everything that goes to the regulator (Anna), ddof=0 only for the internal reports of the " + (
        "claims department, and never both in one table"
    )
    store.write("population-sd.md", fact("Population SD", said, type="feedback"), expected=None, by="agent")
    bare = "# Fiscal year\n\n- It starts in **April**\n- Q3 is October to December\n\n**Why:** company calendar.\n"
    store.write("fiscal_year.md", bare, expected=None, by="agent")
    store.write("rows.md", fact("Region", "drop rows", source="quoted"), expected=None, by="agent")
    assert store.index.text().splitlines() == [
        f"- [feedback](population-sd.md) — {said}",
        "- [memory](fiscal_year.md) — It starts in April Q3 is October to December",
        "- [Region](rows.md) — (quoted) drop rows",
    ]


def test_doctor_finds_lines_of_the_older_kind_and_mend_renews_them(store: MemoryStore) -> None:
    said = "Tables show charges in thousands of USD with one decimal, as Jonas finds long numbers hard to read, and "
    said += "in whole USD in the appendix"
    store.write("tables-in-thousands.md", fact("tables-in-thousands", said), expected=None, by="agent")
    store.write("plots.md", fact("Plots", "no grid"), expected=None, by="agent")
    new = store.index.text()
    old = f"- [tables-in-thousands](tables-in-thousands.md) — {said}"[:149].rpartition(" ")[0] + "…\n"
    own = "- [how we plot](plots.md) — no grid, please\n"
    (store.folder / "MEMORY.md").write_text(old + own)
    assert [(each.kind, each.name) for each in store.index.doctor()] == [("old line", "tables-in-thousands.md")]
    store.index.mend()
    assert store.index.text() == new.split("\n")[0] + "\n" + own
    assert store.index.doctor() == []


def test_conflicts_of_git_are_named_and_neither_side_is_believed(store: MemoryStore) -> None:
    """The index is made from the files, with what people wrote into either side; a memory has to be settled."""
    for name in ("a.md", "b.md"):
        store.write(name, fact(name[0], f"about {name}"), expected=None, by="agent")
    index, lines = store.folder / "MEMORY.md", store.index.text().splitlines()
    ours = f"<<<<<<< HEAD\n{lines[0]}\n# Ours\n||||||| base\n# Old\n"
    index.write_text(ours + "=======\n- [gone](gone.md)\n# Theirs\n>>>>>>> theirs\n")
    torn = "---\nname: plots\n<<<<<<< HEAD\ndescription: with grid\n=======\ndescription: without\n>>>>>>> theirs\n"
    torn += "---\nX\n"
    (store.folder / "plots.md").write_text(torn)
    shown = store.index.loaded()
    assert "MEMORY.md has conflict markers" in shown
    assert not any(words in shown for words in ("<<<<<<<", "gone.md", "with grid", "without"))
    found = {(each.kind, each.name, each.mendable) for each in store.index.doctor()}
    assert {("conflict", "", True), ("header", "plots.md", False)} <= found
    (memory,) = [each for each in store.list() if each.name == "plots.md"]
    assert (memory.description, memory.fact) == ("", "")
    store.index.mend()
    assert store.index.text().splitlines()[:3] == [lines[0], "# Ours", "# Theirs"]
    assert sorted(index_names(store)) == ["a.md", "b.md", "plots.md"]
    assert (store.folder / "plots.md").read_text() == torn, "only a person can settle it"
