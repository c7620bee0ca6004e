"""Names: whatever a model sends, it stays inside the folder or is refused, in every command."""

from __future__ import annotations

import itertools
import os
import shutil
import threading
import unicodedata
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ipyagent.errors import MemoryRefused
from ipyagent.parts.memory.safe_paths import SandboxedDir, checked_name, same_name, split_path
from ipyagent.parts.memory.store import MemoryStore

GOOD = (
    "feedback_plots.md", "team/plots.v2.md", "a/b/c/d.md", "notes of May (2).md", "Über.md",
    unicodedata.normalize("NFD", "Über.md"), "日本語のメモ.md", "記憶/项目.md", "Москва.md", "한국어.md", "console.md",
    "nul_values.md", "MEMORY.md", "x" * 197 + ".md",
)  # fmt: skip
BAD = {
    name: why
    for why, names in {
        "empty": ("", "  "),
        "not a name inside": (
            "../x.md", "a/../../x.md", "./x.md", "a//x.md", "/etc/passwd", "/x.md", "//server/share/x.md", "~/x.md",
            "~root/x.md", "C:\\x.md", "C:x.md", "team/", "x.md/",
        ),
        "holds '\\\\'": ("\\\\server\\x.md", "..\\x.md", "a\\..\\x.md"),
        "holds ':'": ("x.md:stream.md",),
        "U+0000": ("x\0.md", "x.md\0"),
        "U+000A": ("x\n.md",),
        "U+202E": ("x\u202e.md",),
        "U+200B": ("x\u200b.md",),
        "U+FEFF": ("\ufeffx.md",),
        "U+00A0": ("x\u00a0.md",),
        "U+D800": ("x\ud800.md",),
        "passes for": ("．．／x.md", "．．/x.md", "\u2025/x.md", "x\uff3cy.md", "x\u2024md.md", "～/x.md"),
        "holds": ("..\u2215x.md", "..\u2044x.md"),
        "%-escapes": ("%2e%2e%2fx.md", "..%2fx.md", "x%00.md"),
        "with a dot": ("x.md.",),
        "space": ("x.md ", " x.md", "x .md", "a /x.md"),
        "dot before": ("x..md",),
        "dot": ("a./x.md",),
        "hidden": (".consolidate-lock", ".lock.md", ".history/lock", ".history/versions/x.md", "...md", ".md"),
        "device": ("CON.md", "con.backup.md", "nul.md", "Aux/x.md", "COM1.md", "com¹.md", "LPT9.md"),
        "holds '?'": ("x?.md",),
        "holds '*'": ("x*.md",),
        "holds '<'": ("<x>.md",),
        "holds '|'": ("x|y.md",),
        "no Markdown": ("x.txt", "x", "x.MD"),
        "kept for the index": ("memory.md", "team/MEMORY.md"),
        "mixes": ("МEMORY.md", "pаyments.md"),
        "too deep": ("a/b/c/d/e.md",),
        "too long": ("x" * 198 + ".md", "é" * 100 + ".md", "x" * 100_000),
    }.items()
    for name in names
}  # fmt: skip


def test_names_that_are_names_and_names_that_are_none() -> None:
    for raw in GOOD:
        assert checked_name(raw) == unicodedata.normalize("NFC", raw)
    for raw in BAD:
        with pytest.raises(MemoryRefused, match="cannot be called") as caught:
            checked_name(raw)
        assert caught.value.reason == "name", raw
        assert BAD[raw] in str(caught.value)
        assert len(str(caught.value)) < 300, raw
        assert str(caught.value).isprintable(), raw


@given(st.text(max_size=30) | st.from_regex(r"[./\\~:a ．／%2ef\u0000]{1,12}(\.md)?", fullmatch=True))
def test_what_passes_stays_inside_any_folder(raw: str) -> None:
    try:
        name = checked_name(raw)
    except MemoryRefused:
        return
    assert checked_name(name) == name
    assert os.path.normpath(f"/base/{name}") == f"/base/{name}"
    assert not unicodedata.normalize("NFKC", name).startswith(("/", ".", "~"))
    assert name.endswith(".md")


def test_paths_as_the_model_writes_them_and_paths_that_lead_elsewhere() -> None:
    for raw, expected in (
        ("/memories", ("", "")),
        ("/memories/", ("", "")),
        ("/memories/project", ("project", "")),
        ("/memories/user/", ("user", "")),
        ("/memories/project/x.md", ("project", "x.md")),
        ("/memories/user/team/x.md", ("user", "team/x.md")),
        ("/memories/user/team/", ("user", "team/")),
    ):
        assert split_path(raw) == expected
    for raw in [
        "", "/", "memories/project/x.md", "/memories/x.md", "/memories/../etc/passwd",
        "/memories/project/../user/x.md", "/memories/project/../", "/memories/project/.history/",
        "/memories/project//x.md", "/memories/agent/x.md", "/memoriesproject/x.md", "/memories/Project/x.md",
        "/memories/project/x.md\0", "\\memories\\project\\x.md",
    ]:  # fmt: skip
        with pytest.raises(MemoryRefused):
            split_path(raw)


# -------------------------------------------- the six commands on a real disk

Command = Callable[[MemoryStore, str], object]
COMMANDS: dict[str, Command] = {
    "view": lambda store, name: store.read(name),
    "create": lambda store, name: store.write(name, "poison\n", expected=None, by="agent"),
    "str_replace": lambda store, name: store.change(name, lambda text: text + "poison\n", by="agent"),
    "insert": lambda store, name: store.write(name, "poison\n", expected="0" * 64, by="agent"),
    "delete": lambda store, name: store.delete(name, by="agent"),
    "rename to": lambda store, name: store.rename("there.md", name, by="agent"),
    "rename from": lambda store, name: store.rename(name, "gone.md", by="agent"),
    "history": lambda store, name: store.versions(name),
    "restore": lambda store, name: store.restore(name, "000001", by="agent"),
}


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    folder = tmp_path / "outside"
    folder.mkdir()
    (folder / "secret.md").write_text("secret\n")
    return folder


@pytest.fixture
def store(tmp_path: Path, outside: Path) -> MemoryStore:
    made = MemoryStore(tmp_path / "memory", "project")
    made.write("there.md", "there\n", expected=None, by="user")
    return made


def everything(folder: Path) -> dict[str, bytes | str]:
    return {
        str(path.relative_to(folder)): os.readlink(path) if path.is_symlink() else path.read_bytes()
        for path in folder.rglob("*")
        if path.is_symlink() or path.is_file()
    }


def test_no_command_takes_a_bad_name(store: MemoryStore, tmp_path: Path) -> None:
    before = everything(tmp_path)
    for command, raw in itertools.product(COMMANDS, BAD):
        with pytest.raises(MemoryRefused) as caught:
            COMMANDS[command](store, raw)
        assert caught.value.reason == "name", (command, raw)
    assert {name: text for name, text in everything(tmp_path).items() if name in before} == before


@pytest.mark.parametrize("command", [name for name in COMMANDS if name not in ("history", "restore")])
@pytest.mark.parametrize("kind", ["file link", "dead link", "folder link", "folder"])
def test_links_are_not_followed_and_folders_no_files(
    store: MemoryStore, tmp_path: Path, outside: Path, command: str, kind: str
) -> None:
    name = "x.md"
    place = store.folder / name
    if kind == "file link":
        place.symlink_to(outside / "secret.md")
    elif kind == "dead link":
        place.symlink_to(outside / "new.md")
    elif kind == "folder link":
        (store.folder / "far").symlink_to(outside)
        name = "far/secret.md"
    else:
        place.mkdir()
    with pytest.raises(MemoryRefused) as caught:
        COMMANDS[command](store, name)
    expected = {"folder": {"folder", "exists"}}.get(kind, {"link", "exists"})
    assert caught.value.reason in expected
    assert everything(outside) == {"secret.md": b"secret\n"}
    assert (store.folder / "there.md").read_text() == "there\n"


def test_a_link_for_the_index_or_the_history_is_refused(tmp_path: Path, outside: Path) -> None:
    for planted in ("MEMORY.md", ".history", ".history/lock", ".history/unfinished.json", ".history/new"):
        store = MemoryStore(tmp_path / planted.replace("/", "_"), "project")
        place = store.folder / planted
        place.parent.mkdir(parents=True)
        place.symlink_to(outside / "secret.md" if "." in place.name[1:] or place.name == "lock" else outside)
        with pytest.raises(MemoryRefused):
            store.write("a.md", "A\n", expected=None, by="agent")
        assert everything(outside) == {"secret.md": b"secret\n"}, planted


def test_a_link_that_appears_between_check_and_use_leads_nowhere(store: MemoryStore, outside: Path) -> None:
    """A folder is swapped for a link to the outside and back, as fast as it goes, while files are written in it."""
    folder = store.folder / "team"
    stop = threading.Event()

    def swap() -> None:
        while not stop.is_set():
            shutil.rmtree(folder, ignore_errors=True)
            with suppress(OSError):
                folder.symlink_to(outside)
            with suppress(OSError):
                folder.unlink()

    files = SandboxedDir(store.folder)
    thread = threading.Thread(target=swap)
    thread.start()
    done = refused = 0
    try:
        for number in range(600):
            try:
                files.replace(f"team/m{number}.md", b"x", ".history/new/file", durable=False)
                done += 1
                assert files.read("team/secret.md") is None
            except (MemoryRefused, FileNotFoundError):
                refused += 1
    finally:
        stop.set()
        thread.join()
    assert everything(outside) == {"secret.md": b"secret\n"}
    assert done
    assert refused, "the race was never run"


def test_names_that_some_file_systems_take_for_the_same_are_told(store: MemoryStore) -> None:
    store.write("team/Straße.md", "A\n", expected=None, by="agent")
    for other in ("team/straße.md", "team/STRASSE.md", "Team/other.md", "There.md"):
        with pytest.raises(MemoryRefused, match="in case or form only") as caught:
            store.write(other, "B\n", expected=None, by="agent")
        assert caught.value.reason == "exists"
    with pytest.raises(MemoryRefused, match="in case or form only"):
        store.rename("team/Straße.md", "THERE.md", by="agent")
    assert same_name("ＡＢＣ.md") == same_name("abc.md")


def test_a_file_in_another_normal_form_is_found(store: MemoryStore) -> None:
    decomposed = unicodedata.normalize("NFD", "Über.md")
    (store.folder / decomposed).write_text("hand-made\n")
    assert "Über.md" in {memory.name for memory in store.list()}
    assert store.read("Über.md").text == "hand-made\n"
    store.change(decomposed, lambda text: text + "more\n", by="agent")
    assert [name for name in os.listdir(store.folder) if name.endswith("ber.md")] == [decomposed]
    store.delete("Über.md", by="agent")
    assert not (store.folder / decomposed).exists()


def test_a_platform_without_open_folders_keeps_the_rule(tmp_path: Path, outside: Path) -> None:
    files = SandboxedDir(tmp_path / "memory", relative=False)
    assert (files.read("a.md"), files.status("team/a.md"), files.names()) == (None, None, [])
    files.replace("team/a.md", b"A", "new/file")
    files.move("team/a.md", "b.md")
    files.prune("team/a.md")
    assert files.keep("b.md", "kept/b.md")
    assert (files.read("b.md"), files.read("kept/b.md", 0)) == (b"A", b"")
    assert sorted(files.names()) == ["b.md", "kept", "new"]
    assert [name for name, _ in files.walk()] == ["b.md", "kept/b.md"]
    (files.root / "far").symlink_to(outside)
    (files.root / "link.md").symlink_to(outside / "secret.md")
    for name in ("far/secret.md", "link.md"):
        with pytest.raises(MemoryRefused) as caught:
            files.read(name)
        assert caught.value.reason == "link"
        with pytest.raises(MemoryRefused):
            files.replace(name, b"poison", "new/file")
    files.remove("b.md")
    files.remove("link.md")
    assert everything(outside) == {"secret.md": b"secret\n"}
