"""Settings in files: whose count, what a project may say, and what happens to a file that is wrong."""

from __future__ import annotations

from pathlib import Path

import pytest

from ipyagent.assembly.settings import FOR_PROJECTS, NOT_FOR_PROJECTS, ONLY_OFF, SettingsFiles
from ipyagent.config import IPyAgent, setting_names
from ipyagent.project import Project


class Files:
    """A trusted project and its user."""

    def __init__(self, top: Path) -> None:
        self.project = Project(top / "project", top / "user")
        self.project.root.mkdir()
        self.project.user.mkdir()
        self.project.make()
        assert self.project.trusted
        self.settings = IPyAgent(environ={})

    def mine(self, text: str | bytes) -> None:
        (self.project.user / "config.toml").write_bytes(text.encode() if isinstance(text, str) else text)

    def theirs(self, text: str | bytes) -> None:
        path = self.project.folder / "config.toml"
        path.write_bytes(text.encode() if isinstance(text, str) else text)
        if path.is_file():
            self.project.arrived([path])  # the user was told of it

    def apply(self, **said: object) -> list[str]:
        environ = {name: str(said.pop(name)) for name in list(said) if name.startswith("IPYAGENT_")}
        self.settings = IPyAgent(environ=environ, **said)
        return SettingsFiles(self.settings, self.project).apply()


@pytest.fixture
def files(tmp_path: Path) -> Files:
    return Files(tmp_path)


def test_every_setting_is_in_exactly_one_list() -> None:
    lists = [set(NOT_FOR_PROJECTS), set(ONLY_OFF), set(FOR_PROJECTS)]
    assert set().union(*lists) == set(setting_names())
    assert sum(map(len, lists)) == len(set().union(*lists))


def test_said_here_comes_before_the_environment_the_project_the_user_and_the_default(files: Files) -> None:
    files.mine("max_retries = 1\nnotes_calls = 1\nclear_keep = 1\nrestore_files = 1\n")
    files.theirs("max_retries = 2\nnotes_calls = 2\nclear_keep = 2\n")
    assert files.apply(IPYAGENT_NOTES_CALLS=3, IPYAGENT_MAX_RETRIES=3, max_retries=4) == []
    now = files.settings
    assert (now.max_retries, now.notes_calls, now.clear_keep, now.restore_files, now.keep_messages) == (4, 3, 2, 1, 5)


def test_what_is_said_later_stays_when_the_files_are_read_again(files: Files) -> None:
    files.theirs("clear_keep = 2\nnotes_calls = 2\n")
    files.apply()
    files.settings.clear_keep = 9
    files.theirs("clear_keep = 5\nrestore_files = 7\n")
    assert SettingsFiles(files.settings, files.project).apply() == []
    assert (files.settings.clear_keep, files.settings.restore_files) == (9, 7)
    assert files.settings.notes_calls == 3, "no file says so any more: the default"


def test_a_project_that_is_not_trusted_says_nothing(files: Files) -> None:
    files.theirs("clear_keep = 2\nmode = 'auto'\n")
    files.mine("clear_idle_keep = 7\n")
    files.project.distrust()
    assert files.apply() == []
    assert (files.settings.clear_keep, files.settings.clear_idle_keep) == (3, 7)


@pytest.mark.parametrize(
    ("line", "name"),
    [
        ('base_url = "http://evil"', "base_url"), ('provider = "bedrock"', "provider"), ('mode = "auto"', "mode"),
        ('allowed_folders = ["/"]', "allowed_folders"), ("trust_all = true", "trust_all"),
        ('memory_dir = "/home/x"', "memory_dir"), ("memory_per_worktree = true", "memory_per_worktree"),
        ("max_cost = 0.0", "max_cost"), ("max_cost_per_day = 900.0", "max_cost_per_day"),
        ("max_turns = 9", "max_turns"),
        ('rerun = "always"', "rerun"), ('model = " LOCAL:x.gguf"', "model"), ('small_model = "local:x"', "small_model"),
        ('memory_guidelines = "/etc/passwd"', "memory_guidelines"),
        ('memory_guidelines = "~/notes.md"', "memory_guidelines"),
        ('memory_guidelines = "../policy.md"', "memory_guidelines"),
        ("memory = true", "memory"), ("extraction = true", "extraction"), ("instructions = 1", "instructions"),
    ],
)  # fmt: skip
def test_a_project_cannot_raise_rights_move_memory_or_spend(files: Files, line: str, name: str) -> None:
    files.theirs(f"{line}\nclear_keep = 2\n")
    before = IPyAgent(environ={}, max_cost=1.0, memory=False, extraction=False, instructions=False)
    lines = files.apply()
    assert getattr(files.settings, name) == getattr(IPyAgent(environ={}), name)
    assert files.settings.clear_keep == 2, "the other lines count"
    assert len(lines) == 1
    assert lines[0].startswith(f".ipyagent/config.toml: {name} is ignored")
    assert f"%config IPyAgent.{name}" in lines[0]
    SettingsFiles(before, files.project).apply()
    assert (before.max_cost, before.memory, before.extraction, before.instructions) == (1.0, False, False, False)


def test_a_project_may_give_guidelines_for_memory_as_a_text_or_a_file_of_its_own(files: Files) -> None:
    for given in ("No names of patients.", "docs/policy.md", "./policy.md"):
        files.theirs(f'memory_guidelines = "{given}"\n')
        assert files.apply() == []
        assert files.settings.memory_guidelines == given


def test_a_project_may_turn_off_and_choose_a_model(files: Files) -> None:
    files.theirs('memory = false\nthinking = false\nmodel = "claude-haiku-5-5"\neffort = "low"\n')
    assert files.apply() == []
    now = files.settings
    assert (now.memory, now.thinking, now.model, now.effort) == (False, False, "claude-haiku-5-5", "low")


def test_a_project_does_not_turn_on_what_the_user_has_turned_off(files: Files) -> None:
    files.mine("memory = false\ndreaming = false\n")
    files.theirs("memory = true\n")
    assert len(files.apply()) == 1
    assert (files.settings.memory, files.settings.dreaming) == (False, False)


def test_the_user_may_say_everything(files: Files, tmp_path: Path) -> None:
    files.mine(f'mode = "read_only"\nbase_url = "http://localhost:1"\nmemory_dir = "{tmp_path}/m"\nmax_cost = 2\n'
               'allowed_folders = ["/data"]\n')  # fmt: skip
    assert files.apply() == []
    now = files.settings
    assert (now.mode, now.base_url) == ("read_only", "http://localhost:1")
    assert (now.max_cost, now.allowed_folders) == (2.0, ["/data"])


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("effrot = 'low'", "no setting effrot; did you mean effort?"),
        ("[ipyagent]\nmodel = 'x'", "no setting ipyagent"),
        ("max_retries = 'many'", "max_retries"),
        ("max_retries = -1", "max_retries"),
        ("max_retries = true", "max_retries cannot be true"),
        ("clear_policy = 'Economic'", "clear_policy"),
        ("max_retries = ", "is not valid TOML"),
        ("a = " + "[" * 5_000, "is not valid TOML"),
        ("a = " + "9" * 6_000, "is not valid TOML"),
        ("x = 'a'\n" * 20_000, "larger than"),
        (b"model = '\xff'", "is not valid TOML"),
        ("\x1b[31m = 1", "is not valid TOML"),
        ('"a\\u001b\\nb" = 1', "no setting 'a"),
    ],
)
def test_a_wrong_file_is_one_clear_line_and_stops_nothing(files: Files, text: str | bytes, part: str) -> None:
    files.mine(text)
    files.theirs(text)
    lines = files.apply()
    assert len(lines) == 2
    for line, start in zip(lines, (str(files.project.user), ".ipyagent/config.toml: "), strict=True):
        assert line.startswith(start)
        assert part in line
        assert line.isprintable()
        assert len(line) < 500


def test_many_wrong_lines_are_a_few_lines(files: Files) -> None:
    files.theirs("".join(f"wrong_{number} = 1\n" for number in range(40)))
    lines = files.apply()
    assert len(lines) == 5
    assert "36 more" in lines[-1]


def test_bom_and_crlf_are_fine(files: Files) -> None:
    files.theirs(b"\xef\xbb\xbfclear_keep = 2\r\nnotes_calls = 1\r\n")
    assert files.apply() == []
    assert (files.settings.clear_keep, files.settings.notes_calls) == (2, 1)


def test_a_projects_file_is_no_link_and_the_users_may_be_one(files: Files, tmp_path: Path) -> None:
    (tmp_path / "dotfiles.toml").write_text("clear_keep = 2\n")
    (files.project.folder / "config.toml").symlink_to(tmp_path / "dotfiles.toml")
    assert "config.toml: it is a link" in files.apply()[0]
    assert files.settings.clear_keep == 3
    (files.project.folder / "config.toml").unlink()
    (files.project.user / "config.toml").symlink_to(tmp_path / "dotfiles.toml")
    assert files.apply() == []
    assert files.settings.clear_keep == 2
