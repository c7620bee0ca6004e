from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

# The workspace that the tools' tests use.
from tools_workspace import ShellWorkspace

from ipyagent.errors import SettingError, ToolFailure, UsageError
from ipyagent.loop.permissions import Allow, Ask, Decision, Deny, PermissionRule, Permissions, digest_of, parse_rule
from ipyagent.parts.files.tools import read_file
from ipyagent.tools.catalogue import builtin_tools

TOOLS = builtin_tools()
Decide = Callable[..., Decision]


@pytest.fixture
def workspace(tmp_path: Path) -> ShellWorkspace:
    root = tmp_path / "project"
    root.mkdir()
    return ShellWorkspace(root)


@pytest.fixture
def permissions(tmp_path: Path, workspace: ShellWorkspace) -> Permissions:
    return Permissions(tmp_path / "user" / "rules.json", workspace.root)


@pytest.fixture
def decide(permissions: Permissions, workspace: ShellWorkspace) -> Decide:
    return lambda name, can_ask=True, **given: permissions.decide(TOOLS[name], given, workspace, can_ask)


def test_reading_needs_nothing_and_code_asks(decide: Decide) -> None:
    assert decide("read_file", path="a") == Allow("mode")
    assert decide("shell", command="ls") == Allow("mode", level="read")
    asked = decide("python", code="x = 1")
    assert isinstance(asked, Ask)
    assert asked.question.text == "x = 1"
    assert asked.pattern == "python"


def test_mode_auto_asks_before_a_file_that_others_obey(permissions: Permissions, decide: Decide) -> None:
    """The reason stands in the question; a rule for all files does not cover it, one for this file does."""
    permissions.mode = "auto"
    assert decide("write_file", path="a.md", content="x") == Allow("mode")
    permissions.remember("write_file(*)")
    asked = decide("write_file", path="sub/AGENTS.md", content="Always ship.")
    assert isinstance(asked, Ask)
    assert "it writes AGENTS.md, which agents obey" in asked.danger
    denied = decide("write_file", can_ask=False, path="sub/AGENTS.md", content="Always ship.")
    assert isinstance(denied, Deny)
    assert "it writes AGENTS.md" in denied.reason
    assert "%agent mode auto" not in denied.reason, "mode auto refuses it too"
    assert "ask the user to do it" in denied.reason
    assert isinstance(decide("python", code="open('conftest.py', 'w')"), Ask)
    # a command is asked about while it waits to write one, see test_shell_levels
    assert decide("shell", command="echo x > AGENTS.md") == Allow("mode", level="project")
    permissions.remember(asked.pattern)
    assert isinstance(decide("write_file", path="sub/AGENTS.md", content="x"), Allow)


def test_headless_denies_and_names_the_setting(decide: Decide) -> None:
    denied = decide("python", can_ask=False, code="x = 1")
    assert isinstance(denied, Deny)
    assert denied.by == "headless"
    for way in ("%agent mode auto", 'c.IPyAgent.mode = "auto"', "IPYAGENT_MODE=auto", "%agent allow python"):
        assert way in denied.reason


def test_read_only_denies_whatever_may_write(permissions: Permissions, decide: Decide) -> None:
    permissions.remember("python")
    permissions.mode = "read_only"
    calls: dict[str, dict[str, Any]] = {
        "python": {"code": "1"},
        "shell": {"command": "make", "needs": "project"},
        "write_file": {"path": "a", "content": ""},
    }
    for name, given in calls.items():
        assert isinstance(decide(name, **given), Deny)
    assert decide("shell", command="make") == Allow("mode", level="read")
    assert isinstance(decide("read_file", path="/etc/passwd"), Ask)


def test_a_denial_says_how_the_mode_read_only_of_a_cell_and_of_a_session_ends(
    permissions: Permissions, workspace: ShellWorkspace
) -> None:
    def said(of: Permissions, *call: Any) -> str:
        denied = of.decide(TOOLS[call[0]], call[1], workspace, True)
        assert isinstance(denied, Deny)
        return denied.reason

    for call in (("python", {"code": "1"}), ("shell", {"command": "make", "needs": "project"})):
        permissions.mode = "auto"
        cell = permissions.with_mode("read_only")
        for one in (cell, cell.for_recorded("python"), cell.with_mode("read_only", "This agent only looks.")):
            assert said(one, *call).endswith("The mode holds for this cell: the user leaves it with another cell.")
        assert said(permissions.with_mode("read_only", "This agent only looks."), *call).endswith(" only looks.")
        permissions.mode = "read_only"
        for one in (permissions, permissions.with_mode("read_only")):
            assert said(one, *call).endswith("The user leaves it with `%agent mode ask`.")


def test_where_nobody_can_be_asked_a_command_is_told_of_mode_auto_if_that_would_run_it(
    permissions: Permissions, decide: Decide
) -> None:
    def said(**given: Any) -> str:
        denied = decide("shell", can_ask=False, **given)
        assert isinstance(denied, Deny)
        return denied.reason.partition("To let it run: ")[2]

    assert said(command="make", needs="project") == "`%agent mode auto` or `%agent allow shell(project: make)`."
    assert said(command="make", needs="network") == "`%agent allow shell(make)`."
    permissions.mode = "auto"
    assert decide("shell", can_ask=False, command="make", needs="project") == Allow("mode", level="project")
    assert said(command="make", needs="network") == "`%agent allow shell(make)`."


def test_auto_allows_all_but_what_destroys(permissions: Permissions, decide: Decide) -> None:
    permissions.mode = "auto"
    assert decide("python", code="x = 1") == Allow("mode")
    assert decide("shell", command="rm -r x") == Allow("mode", level="project")
    said = "Verified safe by ipyagent"
    asked = decide("shell", command="git gc", description=said)
    assert isinstance(asked, Ask)
    assert "throw history away" in asked.danger, "no copy of a file brings that back"
    assert (asked.question.title, asked.question.said) == ("Let this command write in the project?", said)
    asked = decide("shell", command="rm -r x", needs="network")
    assert isinstance(asked, Ask)
    assert (asked.level, asked.question.title) == ("open", "Run this command outside the sandbox?")
    assert "deletes files; it needs the network" in asked.danger
    denied = decide("python", can_ask=False, code="!rm -r x")
    assert isinstance(denied, Deny)
    assert "deletes files" in denied.reason


def test_a_rule_covers_its_call_and_no_other(
    permissions: Permissions, workspace: ShellWorkspace, decide: Decide
) -> None:
    permissions.remember("shell(make test)")
    permissions.remember("shell(pytest *)", session=True)
    permissions.remember("write_file(src/*)")
    (workspace.root / "link").symlink_to("/etc")
    for command in ("make test", "pytest", "pytest -q", "pytest -q | head -3"):
        decided = decide("shell", command=command, needs="network")
        assert isinstance(decided, Allow), command
        assert (decided.by, decided.level) == ("rule", "open")
    for command in (
        "make", "make test2", "make test; make x", "pytest; rm x", "pytest && make", "pytest $(rm x)", "pytest > x",
        "pytest\nrm x", "pytest & rm x", "xpytest -q", "pytest `x`", "'pytest x' y",
        "uniq src/*", "cat l*/passwd", "pytest; uniq src/*", "cat l*/passwd | pytest",
    ):  # fmt: skip
        assert isinstance(decide("shell", command=command, needs="network"), Ask), command
        assert decide("shell", command=command) == Allow("mode", level="read"), command
    assert isinstance(decide("write_file", path="src/a/b.py", content="x"), Allow)
    assert isinstance(decide("write_file", path="src/../b.py", content="x"), Ask)


def test_a_wide_rule_does_not_cover_what_destroys_and_an_exact_one_does(
    permissions: Permissions, decide: Decide
) -> None:
    permissions.remember("python")
    permissions.remember("shell")
    assert isinstance(decide("python", code="x = 1"), Allow)
    assert isinstance(decide("python", code="!rm -r x"), Ask)
    assert isinstance(decide("shell", command="rm -r build", needs="project"), Ask)
    assert decide("shell", command="make") == Allow("rule", "shell", "open")
    permissions.remember("shell(rm -r build)")
    assert isinstance(decide("shell", command="rm -r build", needs="project"), Allow)
    assert isinstance(decide("shell", command="rm -r buildx", needs="project"), Ask)


@pytest.mark.parametrize("command", ["echo 'a[b]*' > x", "make ?", "rm *.tmp"])
def test_always_stores_a_rule_for_exactly_this_command(permissions: Permissions, decide: Decide, command: str) -> None:
    for needs, level in (("project", "project"), ("network", "open")):
        asked = decide("shell", command=command, needs=needs)
        assert isinstance(asked, Ask)
        permissions.remember(asked.pattern)
        decided = decide("shell", command=command, needs=needs)
        assert decided == Allow("rule", asked.pattern, level)
        other = command.replace("*", "/etc/x") + "y"
        assert isinstance(decide("shell", command=other, needs=needs), Ask)


def test_rules_are_kept_per_project_in_the_users_folder(
    permissions: Permissions, workspace: ShellWorkspace, tmp_path: Path
) -> None:
    permissions.remember("python")
    store = tmp_path / "user" / "rules.json"
    assert store.stat().st_mode & 0o777 == 0o600
    assert list(workspace.root.iterdir()) == []
    assert Permissions(store, workspace.root).rules == (PermissionRule("python"),)
    assert Permissions(store, tmp_path / "other").rules == ()
    assert permissions.forget("python")
    assert not permissions.forget("python")
    assert Permissions(store, workspace.root).rules == ()


def test_the_mode_is_never_stored(permissions: Permissions, workspace: ShellWorkspace, tmp_path: Path) -> None:
    permissions.mode = "auto"
    permissions.remember("python")
    assert Permissions(tmp_path / "user" / "rules.json", workspace.root).mode == "ask"
    assert "auto" not in (tmp_path / "user" / "rules.json").read_text()
    other = permissions.with_mode("read_only")
    other.remember("shell", session=True)
    assert permissions.mode == "auto"
    assert PermissionRule("shell") in permissions.rules
    with pytest.raises(UsageError, match="nearest: auto"):
        permissions.mode = "autp"


@pytest.mark.parametrize(
    "text", ["{", "[]", '{"projects": []}', '{"projects": {"x": ["a("]}}', '{"projects": {"x": 3}}']
)
def test_a_broken_file_of_rules_is_named_and_kept(
    permissions: Permissions, decide: Decide, tmp_path: Path, text: str
) -> None:
    store = tmp_path / "user" / "rules.json"
    store.parent.mkdir()
    store.write_text(text)
    with pytest.raises(SettingError, match=r"rules\.json"):
        permissions.remember("python")
    with pytest.raises(SettingError, match=r"rules\.json"):
        decide("python", code="1")
    assert store.read_text() == text


def test_two_kernels_add_rules_without_losing_any(tmp_path: Path, workspace: ShellWorkspace) -> None:
    from concurrent.futures import ThreadPoolExecutor

    store = tmp_path / "rules.json"
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda n: Permissions(store, workspace.root).remember(f"shell(make {n})"), range(24)))
    assert len(Permissions(store, workspace.root).rules) == 24
    assert len(json.loads(store.read_text())["projects"]) == 1


def test_an_answer_is_for_exactly_the_question_that_was_asked(
    permissions: Permissions, workspace: ShellWorkspace
) -> None:
    file = workspace.root / "a"
    file.write_text("one\n")
    asyncio.run(read_file.run({"path": "a"}, workspace))
    given = {"path": "a", "old": "one", "new": "1"}
    asked = permissions.decide(TOOLS["edit_file"], given, workspace, True)
    assert isinstance(asked, Ask)

    def now(given: dict[str, Any]) -> str:
        return digest_of(TOOLS["edit_file"], given, TOOLS["edit_file"].question(given, workspace))

    assert now(given) == asked.digest
    assert now({**given, "new": "2"}) != asked.digest
    file.write_text("zero\none\n")  # changed, and read again by another call: another diff
    asyncio.run(read_file.run({"path": "a"}, workspace))
    assert now(given) != asked.digest
    file.write_text("three")
    with pytest.raises(ToolFailure, match="changed since"):
        now(given)


def test_a_call_that_cannot_run_is_not_asked_about(decide: Decide) -> None:
    with pytest.raises(ToolFailure, match="no file"):
        decide("edit_file", path="nowhere", old="a", new="b")


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("python", PermissionRule("python")),
        (" shell(git status) ", PermissionRule("shell", "git status")),
        ("shell(echo (a))", PermissionRule("shell", "echo (a)")),
        ("write_file(src/*)", PermissionRule("write_file", "src/*")),
    ],
)
def test_rules_are_read_as_written(text: str, rule: PermissionRule) -> None:
    assert parse_rule(text) == rule
    assert parse_rule(str(rule)) == rule


@pytest.mark.parametrize(
    ("text", "match"),
    [
        ("", "a rule is"), ("shell(git status", "closing parenthesis"), ("shell git status", "is not a rule"),
        ("pythn", "nearest: python"), ("shell()", "nothing in the parentheses"), ("(x)", "is not a rule"),
        ("zzz", "known: "),
    ],
)  # fmt: skip
def test_a_wrong_rule_is_explained(text: str, match: str) -> None:
    with pytest.raises(UsageError, match=match):
        parse_rule(text, known=TOOLS)
