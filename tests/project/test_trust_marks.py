"""The same folder is trusted still, another one at its path asks again; a folder that brings something asks first."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest
from test_project import git

from ipyagent.errors import AgentError
from ipyagent.project import FOLDER, Project
from ipyagent.trust import MARK, folders_down


@pytest.fixture
def own(tmp_path: Path) -> Project:
    (tmp_path / "work").mkdir()
    return Project(tmp_path / "work", tmp_path / "user")


# ---------------------------------------------------------------------- this very folder


def test_a_new_clone_at_the_same_path_asks_again(tmp_path: Path) -> None:
    origin = tmp_path / "origin"
    origin.mkdir()
    git(origin, "init", "-q")
    (origin / FOLDER / "memory").mkdir(parents=True)
    (origin / FOLDER / "memory" / "MEMORY.md").write_text("- [x](x.md)\n")
    git(origin, "add", "-A")
    git(origin, "commit", "-q", "-m", "one")
    own = Project(tmp_path / "work", tmp_path / "user")
    for _ in range(3):  # a file system may give the new folder the number of the old one
        git(tmp_path, "clone", "-q", "origin", "work")
        assert not own.trusted
        own.make()
        assert not own.trusted
        own.trust()
        assert own.trusted
        git(own.root, "add", "-A")
        git(own.root, "commit", "-q", "--allow-empty", "-m", "all that git takes")
        git(own.root, "push", "-q", "-f", "origin", "HEAD:refs/heads/mine")
        shutil.rmtree(own.root)
    git(tmp_path, "clone", "-q", "-b", "mine", "origin", "work")
    assert not (own.sessions / MARK).exists(), "git carries no mark"
    assert not own.trusted


def test_a_mark_that_came_with_the_folder_does_not_last(own: Project) -> None:
    own.sessions.mkdir(parents=True)
    (own.sessions / MARK).write_text("known to the attacker")
    own.trust()
    mark = (own.sessions / MARK).read_text()
    assert mark != "known to the attacker"
    shutil.rmtree(own.root)
    own.sessions.mkdir(parents=True)
    (own.sessions / MARK).write_text("known to the attacker")
    assert not own.trusted


def test_what_survives_a_backup_and_what_a_move(own: Project, tmp_path: Path) -> None:
    own.make()
    shutil.copytree(own.root, tmp_path / "backup")
    shutil.rmtree(own.root)
    assert not own.trusted
    shutil.copytree(tmp_path / "backup", own.root)
    assert own.trusted, "put back whole, in its place: other inodes, the same mark"
    shutil.rmtree(own.sessions)
    assert not own.trusted, "put back without sessions, as git would"
    shutil.copytree(tmp_path / "backup", tmp_path / "moved")
    assert not Project(tmp_path / "moved", own.user).trusted, "another path asks once"


def test_a_copy_is_not_trusted_and_trusting_it_does_not_end_the_trust_of_the_original(
    own: Project, tmp_path: Path
) -> None:
    own.make()
    assert own.trusted
    assert not Project(own.root, tmp_path / "another user").trusted
    shutil.copytree(own.root, tmp_path / "copy")
    copy = Project(tmp_path / "copy", own.user)
    assert not copy.trusted
    assert copy.make() is False
    assert not copy.trusted, "writing into a foreign folder is no trust"
    copy.trust()
    assert (copy.trusted, own.trusted) == (True, True)
    own.trust()
    assert own.trusted


def test_a_mark_that_is_no_ordinary_file_trusts_nothing(own: Project, tmp_path: Path) -> None:
    own.make()
    mark = own.sessions / MARK
    (tmp_path / "kept").write_bytes(mark.read_bytes())
    mark.unlink()
    assert not own.trusted, "gone"
    for put, take in (
        (lambda: mark.symlink_to(tmp_path / "kept"), mark.unlink),
        (mark.mkdir, mark.rmdir),
        (lambda: os.mkfifo(mark), mark.unlink),
        (lambda: mark.write_text("\n"), mark.unlink),
    ):
        put()
        assert not own.trusted
        take()


def test_only_the_user_can_read_the_mark_and_the_users_folder_keeps_no_copy(own: Project) -> None:
    own.make()
    assert (own.sessions / MARK).stat().st_mode & 0o077 == 0
    kept = (own.user / "trust.json").read_text()
    assert (own.sessions / MARK).read_text() not in kept
    assert set(json.loads(kept)[str(own.root)]) == {"since", "at", "known", "owner", "mark", "said"}


@pytest.mark.skipif(os.getuid() != 0, reason="only root can give files away")
def test_another_owner_asks_again(own: Project) -> None:
    own.make()
    for owned in (own.root, own.folder):
        os.chown(owned, 54_321, -1)
        assert not own.trusted
        own.trust()
        assert own.trusted


def test_trust_can_be_taken_back(own: Project) -> None:
    own.make()
    own.distrust()
    assert not own.trusted
    assert json.loads((own.user / "trust.json").read_text()) == {}
    own.make()
    assert not own.trusted, "working on does not give it back"
    own.trust()
    assert own.trusted


def test_a_folder_that_cannot_be_written_cannot_be_trusted_and_says_so(own: Project) -> None:
    (own.root / FOLDER).write_text("a file in the way")
    with pytest.raises(AgentError, match="cannot write"):
        own.trust()
    assert not own.trusted


# ---------------------------------------------------------------------- made here, or brought along


@pytest.mark.parametrize(
    ("path", "name"),
    [("AGENTS.md", "AGENTS.md"), ("CLAUDE.md", "CLAUDE.md"), ("AGENT.local.md", "AGENT.local.md"),
     ("skills/evil/SKILL.md", "skills"), (".claude/skills/evil/SKILL.md", ".claude/skills"),
     (".agents/skills/evil/SKILL.md", ".agents/skills"), ("sub/AGENTS.md", "AGENTS.md")],
)  # fmt: skip
def test_a_folder_that_brings_something_is_not_made_here(tmp_path: Path, path: str, name: str) -> None:
    own = Project(tmp_path / "work", tmp_path / "user", tmp_path / "work" / "sub")
    (own.root / "sub").mkdir(parents=True)
    (own.root / path).parent.mkdir(parents=True, exist_ok=True)
    (own.root / path).write_text("obey")
    assert own.make() is True
    assert not own.trusted
    line = own.untrusted_line()
    assert f"({name})" in line
    assert line.endswith("run %agent trust")
    own.trust()
    assert own.trusted
    assert own.untrusted_line() == ""


def test_ordinary_files_do_not_ask(tmp_path: Path) -> None:
    own = Project(tmp_path / "work", tmp_path / "user", tmp_path / "work" / "sub")
    for path in ("data.csv", "skills/README.md", "sub/other/AGENTS.md", "README.md"):
        (own.root / path).parent.mkdir(parents=True, exist_ok=True)
        (own.root / path).write_text("x")
    own.make()
    assert own.trusted


@pytest.mark.parametrize(
    "path",
    ["AGENT.md", "rules/a.md", "config.toml", "memory/MEMORY.md", "skills/a/SKILL.md", "agents/a.md", "mcp.json",
     "agent-memory/a/MEMORY.md", "notes/prompt.md", "worktrees/a/memory/x.md", "sessions/1/transcript.jsonl"],
)  # fmt: skip
def test_all_that_a_state_folder_brings_is_named(own: Project, path: str) -> None:
    (own.folder / path).parent.mkdir(parents=True)
    (own.folder / path).write_text("x")
    own.make()
    assert not own.trusted
    assert f"({path.split('/')[0]})" in own.untrusted_line()


def test_an_empty_untrusted_folder_has_nothing_to_say(own: Project) -> None:
    own.folder.mkdir()
    own.make()
    assert not own.trusted
    assert own.untrusted_line() == ""


def test_folders_go_from_the_root_down(tmp_path: Path) -> None:
    root = tmp_path / "work"
    assert folders_down(root, None) == (root,)
    assert folders_down(root, root) == (root,)
    assert folders_down(root, root / "a" / "b") == (root, root / "a", root / "a" / "b")
    assert folders_down(root, tmp_path / "elsewhere") == (root,)
