"""Where a project's root is, what is never a project, and whose stored state is loaded."""

from __future__ import annotations

import json
import os
import shutil
import stat
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from ipyagent.errors import AgentError
from ipyagent.nofollow import write_atomically
from ipyagent.project import FOLDER, Project, find_root, is_shared, update_object, user_folder

ROOT = Path(__file__).parents[2]


def git(folder: Path, *words: str) -> None:
    environ = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    author = ["-c", "user.name=a", "-c", "user.email=a@b", "-c", "commit.gpgsign=false"]
    subprocess.run(["git", *author, *words], cwd=folder, check=True, capture_output=True, env=environ)


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    root = tmp_path / "repo"
    root.mkdir()
    git(root, "init", "-q")
    git(root, "commit", "-q", "--allow-empty", "-m", "one")
    return root


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "home"
    folder.mkdir()
    monkeypatch.setenv("HOME", str(folder))
    return folder


def project(root: Path, user: Path) -> Project:
    return Project(root, user)


# ------------------------------------------------------------------ roots


def test_the_nearest_folder_with_state_is_the_root(tmp_path: Path) -> None:
    (tmp_path / "outer" / FOLDER).mkdir(parents=True)
    inner = tmp_path / "outer" / "inner"
    (inner / FOLDER).mkdir(parents=True)
    (inner / "deep" / "er").mkdir(parents=True)
    (tmp_path / "outer" / "side").mkdir()
    assert find_root(inner / "deep" / "er") == inner
    assert find_root(tmp_path / "outer" / "side") == tmp_path / "outer"


def test_the_git_root_is_the_root_and_worktrees_share_the_main_ones(
    repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (repository / "notebooks").mkdir()
    assert find_root(repository / "notebooks") == repository
    (repository / "a" / "b").mkdir(parents=True)
    (repository / "a" / FOLDER).mkdir()
    (repository / "a" / "b" / FOLDER).write_text("not a folder")
    assert find_root(repository / "a" / "b") == repository / "a", "state comes before git, a file of that name is none"

    library, linked = tmp_path / "library", tmp_path / "linked"
    library.mkdir()
    git(library, "init", "-q")
    git(library, "commit", "-q", "--allow-empty", "-m", "one")
    git(repository, "-c", "protocol.file.allow=always", "submodule", "--quiet", "add", str(library), "sub")
    assert find_root(repository / "sub") == repository / "sub", "a submodule is a project of its own"

    git(repository, "worktree", "add", "-q", str(linked))
    (linked / "notebooks").mkdir()
    monkeypatch.setenv("GIT_DIR", str(library / ".git"))  # as in a kernel that was started from a git hook
    assert find_root(linked / "notebooks") == repository
    shutil.rmtree(repository)
    assert find_root(linked) == linked, "its main one is gone"


def test_the_home_directory_is_never_a_project(tmp_path: Path, home: Path) -> None:
    (tmp_path / "work").mkdir()
    assert find_root(tmp_path / "work") == tmp_path / "work", "outside of everything it is the notebook's folder"
    (home / FOLDER).mkdir()  # the user's own state, not a project's
    (home / ".git").mkdir()  # dotfiles under git
    (home / "work").mkdir()
    assert find_root(home / "work") == home / "work"
    assert find_root(home, home / "trees.ipynb") == home / "trees"
    assert find_root(home) == home / "notebook"


def test_roots_and_shared_folders_are_never_a_project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for folder in map(Path, ("/", "/tmp", "/var/tmp", "/home", tempfile.gettempdir())):
        if folder.is_dir():
            assert find_root(folder, folder / "trees.ipynb") == folder.resolve() / "trees"
    (tmp_path / "private").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "private")
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "link"))
    assert find_root(tmp_path / "link") == tmp_path / "private" / "notebook"
    assert find_root(tmp_path / "private") == tmp_path / "private" / "notebook"
    (tmp_path / "private" / FOLDER).mkdir()  # state that somebody planted there
    (tmp_path / "private" / "mine").mkdir()
    assert find_root(tmp_path / "private" / "mine") == tmp_path / "private" / "mine"


def test_the_users_own_folder_is_no_projects_state(tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    own = tmp_path / "elsewhere" / FOLDER
    work = tmp_path / "elsewhere" / "work"
    own.mkdir(parents=True)
    work.mkdir()
    assert find_root(work) == tmp_path / "elsewhere"
    monkeypatch.setenv("IPYAGENT_HOME", str(own))
    assert find_root(work) == work


def test_another_home_does_not_make_the_accounts_home_a_project(home: Path) -> None:
    pwd = pytest.importorskip("pwd")
    real = Path(pwd.getpwuid(os.getuid()).pw_dir)
    assert Path.home() == home != real
    assert is_shared(real)


def test_the_users_folder_can_be_moved(home: Path, tmp_path: Path) -> None:
    assert user_folder({}) == home / FOLDER
    assert user_folder({"IPYAGENT_HOME": str(tmp_path / "x")}) == tmp_path / "x"
    assert user_folder({"IPYAGENT_HOME": "~/y"}) == home / "y"


def test_a_user_without_a_home_is_told_what_to_set(tmp_path: Path) -> None:
    code = (
        "import os, sys; os.setuid(54321)\n"
        "from pathlib import Path\nfrom ipyagent.project import find_root, user_folder\n"
        "print(find_root(Path(sys.argv[1])))\n"
        "try: user_folder({})\nexcept Exception as problem: print(type(problem).__name__, problem)"
    )
    if os.getuid() or sys.platform != "linux":
        pytest.skip("needs root to become nobody")
    environ = {k: v for k, v in os.environ.items() if k != "HOME"} | {"PYTHONPATH": str(ROOT)}
    script = [sys.executable, "-c", "import ipyagent.project, ipyagent.errors, subprocess\n" + code, "/usr"]
    done = subprocess.run(script, env=environ, capture_output=True, text=True, timeout=30, check=False, cwd="/usr")
    assert done.stdout.splitlines() == [
        "/usr", "AgentError this user has no home directory; set IPYAGENT_HOME to a folder that you own",
    ], done.stderr


# ------------------------------------------------------------------ making and moving


def test_nothing_is_made_before_the_first_write(tmp_path: Path) -> None:
    own = project(tmp_path / "work", tmp_path / "user")
    (tmp_path / "work").mkdir()
    assert not own.trusted
    assert list(own.session_folders()) == []
    assert list((tmp_path / "work").iterdir()) == []
    assert not (tmp_path / "user").exists()


def test_git_keeps_memory_and_skills_and_ignores_the_rest(repository: Path, tmp_path: Path) -> None:
    own = project(repository, tmp_path / "user")
    assert own.make() is True
    assert own.make() is False
    for name in ("memory/MEMORY.md", "skills/a/SKILL.md", "agents/x.md", "sessions/1/transcript.jsonl", "cache/x",
                 "agent-memory-local/x", "AGENT.local.md"):
        path = own.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("x")
    git(repository, "add", "-A")
    listed = subprocess.run(["git", "ls-files"], cwd=repository, capture_output=True, text=True, check=True).stdout
    assert sorted(listed.split()) == [
        f"{FOLDER}/{name}" for name in (".gitignore", "agents/x.md", "memory/MEMORY.md", "skills/a/SKILL.md")
    ]


def test_the_users_own_gitignore_is_kept_and_transcripts_are_ignored_all_the_same(
    repository: Path, tmp_path: Path
) -> None:
    own = project(repository, tmp_path / "user")
    own.folder.mkdir()
    (own.folder / ".gitignore").write_text("mine\n")
    own.make()
    (own.sessions / "1").mkdir()
    (own.sessions / "1" / "transcript.jsonl").write_text("private\n")
    assert list(own.session_folders()) == [own.sessions / "1"]
    assert (own.folder / ".gitignore").read_text() == "mine\n"
    git(repository, "add", "-A")
    listed = subprocess.run(["git", "ls-files"], cwd=repository, capture_output=True, text=True, check=True).stdout
    assert listed.split() == [f"{FOLDER}/.gitignore"]


@pytest.mark.parametrize("link", [FOLDER, f"{FOLDER}/sessions"])
def test_a_repository_cannot_choose_where_transcripts_go(tmp_path: Path, link: str) -> None:
    """`.ipyagent` itself may be a link once the user has said that it is theirs; nothing in it may."""
    own = project(tmp_path / "work", tmp_path / "user")
    (tmp_path / "elsewhere").mkdir()
    place = own.root / link
    place.parent.mkdir(parents=True)
    place.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(AgentError, match=rf"{link} is a link ") as caught:
        own.make()
    assert "\n" not in str(caught.value)
    assert list((tmp_path / "elsewhere").iterdir()) == []
    if link != FOLDER:
        with pytest.raises(AgentError, match="none is followed: remove it"):
            own.trust()
        assert list((tmp_path / "elsewhere").iterdir()) == []
        return
    own.trust()
    own.make()
    assert (own.trusted, own.sessions.resolve()) == (True, tmp_path / "elsewhere/sessions")
    place.unlink()
    (tmp_path / "other").mkdir()
    place.symlink_to(tmp_path / "other")
    with pytest.raises(AgentError, match=f"leads to {tmp_path / 'other'}"):
        own.make()
    place.unlink()
    place.symlink_to(tmp_path / "nowhere")
    with pytest.raises(AgentError, match="which is not a folder"):
        own.make()
    assert not (tmp_path / "nowhere").exists()


def test_what_cannot_be_written_is_said_in_one_line_and_a_home_does_not_stop_the_work(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(AgentError, match="start the kernel in a folder that you can write to") as caught:
        project(tmp_path / "file", tmp_path / "user").make()
    assert "\n" not in str(caught.value)
    (tmp_path / "user").write_text("a file where the folder should be")
    own = project(tmp_path / "work", tmp_path / "user")
    (tmp_path / "work").mkdir()
    assert own.make() is True
    assert own.sessions.is_dir()
    assert own.trusted, "in this process"
    again = project(tmp_path / "work", tmp_path / "user")
    assert not again.trusted
    assert "set IPYAGENT_HOME to a folder that you own" in again.home_line()


def test_stored_paths_are_relative_so_a_project_can_move(tmp_path: Path) -> None:
    own = project(tmp_path / "a", tmp_path / "user")
    own.make()
    (tmp_path / "outside.ipynb").write_text("")
    (own.root / "link.ipynb").symlink_to(tmp_path / "outside.ipynb")
    assert own.relative(own.root / "sub" / "n.ipynb") == "sub/n.ipynb"
    assert own.relative(own.root / "link.ipynb") == "link.ipynb"
    assert own.relative(tmp_path / "b.ipynb") == str(tmp_path / "b.ipynb")
    for path in own.folder.rglob("*"):
        if path.is_file():
            assert str(tmp_path) not in path.read_text()


# ------------------------------------------------------------------ trust


def test_nothing_inside_the_project_can_grant_trust(tmp_path: Path) -> None:
    own = project(tmp_path / "work", tmp_path / "user")
    own.folder.mkdir(parents=True)
    for name in ("trust.json", "config.toml", "rules.json"):
        (own.folder / name).write_text(json.dumps({str(own.root): {"since": "2026-01-01", "owner": os.getuid()}}))
    assert not own.trusted


def test_a_damaged_trust_file_trusts_nothing_and_can_be_written_again(tmp_path: Path) -> None:
    own = project(tmp_path / "work", tmp_path / "user")
    own.make()
    for content in ("", "[]", "{", '{"x": 1}', "\udc80"):
        (own.user / "trust.json").write_bytes(content.encode("utf-8", "surrogateescape"))
        assert not own.trusted
        own.trust()
        assert own.trusted


def test_two_processes_that_trust_at_once_lose_nothing(tmp_path: Path) -> None:
    code = (
        "import sys; from pathlib import Path; from ipyagent.project import update_object\n"
        "for i in range(20): update_object(Path(sys.argv[1]), {sys.argv[2] + str(i): i})"
    )
    path = tmp_path / "trust.json"
    environ = {**os.environ, "PYTHONPATH": str(ROOT)}
    running = [subprocess.Popen([sys.executable, "-c", code, str(path), name], env=environ) for name in "ab"]
    assert [process.wait(60) for process in running] == [0, 0]
    assert len(json.loads(path.read_text())) == 40
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert update_object(path, {"c": 1})["a3"] == 3
    assert [p.name for p in tmp_path.iterdir() if p.name.startswith(".trust")] == []


@pytest.mark.skipif(os.name == "nt", reason="modes of Unix")
def test_what_is_kept_here_is_for_this_user_alone_and_a_folder_of_theirs_stays_as_it_is(tmp_path: Path) -> None:
    before = os.umask(0o022)
    try:
        for name, mode in (("new", 0o700), ("made by the user", 0o755)):
            root = tmp_path / name
            root.mkdir()
            folder = root / ".ipyagent"
            if mode == 0o755:
                folder.mkdir()
            made = Project(root, tmp_path / "home")
            made.make()
            assert stat.S_IMODE(folder.stat().st_mode) == mode
            assert stat.S_IMODE((folder / "sessions").stat().st_mode) == 0o700
        write_atomically(tmp_path / "third" / ".ipyagent" / "notes" / "a.md", b"a")
        assert stat.S_IMODE((tmp_path / "third" / ".ipyagent").stat().st_mode) == 0o700
    finally:
        os.umask(before)
