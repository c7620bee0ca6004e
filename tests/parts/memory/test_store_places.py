"""Where memory lies: the order of overrides, what is refused, and what nothing may move."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from ipyagent.config import IPyAgent
from ipyagent.errors import MemoryRefused
from ipyagent.parts.memory.stores import MemoryStores, memory_folder, store_in
from ipyagent.project import Project, find_root


@pytest.fixture
def project(tmp_path: Path) -> Project:
    root = tmp_path / "work" / "project"
    root.mkdir(parents=True)
    return Project(root=root.resolve(), user=tmp_path.resolve() / "home" / ".ipyagent")


def settings(**given: object) -> IPyAgent:
    return IPyAgent(environ={}, **given)


def test_by_default_it_is_beside_the_project_and_the_environment_comes_before_the_setting(
    project: Project, tmp_path: Path
) -> None:
    assert memory_folder("project", project, settings(), environ={}) == project.root / ".ipyagent" / "memory"
    assert memory_folder("user", project, settings(), environ={}) == project.user / "memory"
    assert not project.folder.exists()
    assert not project.user.exists()
    chosen = settings(memory_dir=str(tmp_path / "from-setting"))
    assert memory_folder("project", project, chosen, environ={}) == tmp_path.resolve() / "from-setting"
    given = {"IPYAGENT_MEMORY_DIR": str(tmp_path / "from-environment")}
    assert memory_folder("project", project, chosen, environ=given) == tmp_path.resolve() / "from-environment"


def test_places_that_are_refused(project: Project) -> None:
    for given, why in (
        ("memory", "is relative"),
        ("./memory", "is relative"),
        ("../memory", "is relative"),
        ("/", "is a root"),
        ("/etc", "is a root"),
        ("/tmp", "is a root"),
        ("/var/tmp", "shared folder"),
        ("~", "is a root, a home or a shared folder"),
        ("/x/y\0z", "holds a NUL"),
        ("//server/share/memory", "is a network path"),
        ("\\\\server\\share", "is a network path"),
        ("C:", "is a bare drive"),
        ("C:\\", "is a bare drive"),
        ("/x/../../etc/cron.d", 'holds ".."'),
        ("~nobody-of-this-name/x", "home directory"),
    ):
        with pytest.raises(MemoryRefused, match="memory cannot be kept in") as caught:
            memory_folder("project", project, settings(memory_dir=given), environ={})
        assert caught.value.reason == "place"
        assert why in str(caught.value)


def test_a_link_out_of_the_project_is_refused(project: Project, tmp_path: Path) -> None:
    """As a cloned repository may carry one."""
    outside = tmp_path / "outside"
    outside.mkdir()
    project.folder.mkdir()
    (project.folder / "memory").symlink_to(outside)
    with pytest.raises(MemoryRefused, match="is a link"):
        memory_folder("project", project, settings(), environ={})
    (project.root / "notes").symlink_to(outside)
    with pytest.raises(MemoryRefused, match="leads out"):
        memory_folder("project", project, settings(memory_dir=str(project.root / "notes" / "memory")), environ={})
    (project.folder / "memory").unlink()
    (project.folder / "memory").symlink_to("memory")
    with pytest.raises(MemoryRefused):
        memory_folder("project", project, settings(), environ={})
    (project.folder / "memory").unlink()
    (project.folder / "memory").write_text("x")
    with pytest.raises(MemoryRefused, match="is a file"):
        memory_folder("project", project, settings(), environ={})
    (tmp_path / "link").symlink_to(outside)  # of the user's own choice: followed once
    place = memory_folder("project", project, settings(memory_dir=str(tmp_path / "link" / "memory")), environ={})
    assert place == outside.resolve() / "memory"


@pytest.mark.parametrize("what", ["link", "circle", "file", "setting"])
def test_a_place_of_the_project_that_is_refused_leaves_the_users_memory_as_it_is(
    project: Project, tmp_path: Path, what: str
) -> None:
    """A cloned repository must not switch off what the user told the agent for all projects."""
    project.folder.mkdir()
    (tmp_path / "outside").mkdir()
    place = project.folder / "memory"
    if what == "file":
        place.write_text("x")
    elif what != "setting":
        place.symlink_to(tmp_path / "outside" if what == "link" else "memory")
    project.trust()
    memories = MemoryStores(project, settings(memory_dir="relative" if what == "setting" else ""))
    assert "memory cannot be kept in" in memories.refusal("project")
    assert memories.refusal("user") == ""
    assert list(memories.stores()) == ["user"]
    assert memories.any_store("user").folder == project.user / "memory"


def test_the_first_write_makes_the_project_folder_with_its_gitignore(project: Project) -> None:
    store = store_in(memory_folder("project", project, settings(), environ={}), "project", project)
    assert store.list() == []
    assert not project.folder.exists()
    store.write("a.md", "A\n", expected=None, by="agent")
    assert "sessions/" in (project.folder / ".gitignore").read_text()
    assert "memory" not in (project.folder / ".gitignore").read_text().replace("agent-memory-local", "").split()
    assert project.trusted


def test_worktrees_share_memory_unless_told_otherwise(tmp_path: Path) -> None:
    main, linked = tmp_path / "main", tmp_path / "linked"
    main.mkdir()
    identity = ["-c", "user.name=x", "-c", "user.email=x@y"]
    for command in (
        ["init", "-q", str(main)],
        ["-C", str(main), *identity, "commit", "-q", "--allow-empty", "-m", "first"],
        ["-C", str(main), "worktree", "add", "-q", str(linked)],
    ):
        subprocess.run(["git", *command], check=True, capture_output=True)
    (linked / "deep").mkdir()
    project = Project(root=find_root(linked), user=tmp_path / "user")
    assert project.root == main.resolve()
    shared = main.resolve() / ".ipyagent" / "memory"
    assert memory_folder("project", project, settings(), environ={}, folder=linked) == shared
    own = settings(memory_per_worktree=True)
    expected = main.resolve() / ".ipyagent" / "worktrees" / "linked" / "memory"
    assert memory_folder("project", project, own, environ={}, folder=linked / "deep") == expected
    assert memory_folder("project", project, own, environ={}, folder=main) == shared


def test_a_worktrees_name_cannot_lead_elsewhere(tmp_path: Path) -> None:
    main, linked = tmp_path / "main", tmp_path / "main" / "linked"
    linked.mkdir(parents=True)
    project = Project(root=main.resolve(), user=tmp_path / "user")
    for name in ("..", ".", "", "x\0y", "a" * 300):
        (linked / ".git").write_text(f"gitdir: {main}/.git/worktrees/{name}\n")
        place = memory_folder("project", project, settings(memory_per_worktree=True), environ={}, folder=linked)
        assert place.parent.parent == main.resolve() / ".ipyagent" / "worktrees"
        assert len(place.parent.name) == 16
