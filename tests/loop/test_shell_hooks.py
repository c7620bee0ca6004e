"""Shell commands of the user's own `hooks.json`, run for real through an Agent and HTTP."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest
from loop_rig import Rig, result_text
from pace import within

from ipyagent import sandbox
from ipyagent.journal.events import LayerFailed, ToolCalled
from ipyagent.loop.hooks import NAMES, HooksFile
from ipyagent.practice.replies import text, tool
from ipyagent.project import user_folder

pytestmark = pytest.mark.skipif(os.name != "posix", reason="the commands are written for a POSIX shell")
PRINT = tool("python", {"code": "x = 1"})


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("IPYAGENT_HOME", str(tmp_path / "home"))
    user_folder().mkdir()
    return user_folder()


def given(home: Path, **points: Any) -> None:
    path = home / "hooks.json"
    path.write_text(json.dumps(points))
    path.chmod(0o600)


def failures(rig: Rig) -> list[str]:
    return [event.why for event in rig.of(LayerFailed)]


def test_a_command_gets_the_facts_and_its_words_reach_the_model(home: Path, make_rig: Callable[..., Rig]) -> None:
    log = home / "log"
    given(
        home,
        user_prompt=["cat > /dev/null; echo house rule: metric units"],
        post_tool=[f"tee -a {log} > /dev/null; echo; echo seen by $IPYAGENT_HOOK"],
        session_end=[f"cat >> {log}"],
    )
    rig = make_rig()
    rig.server.script(tool("python", {"code": "print(6 * 7)"}), text("done"))
    assert rig.turn("how long is it?").status == "finished"
    rig.agent.new()
    said = str(rig.server.messages[-1].body)
    assert "house rule: metric units" in said
    assert "seen by post_tool" in said
    facts, ended = (json.loads(line) for line in log.read_text().replace("}{", "}\n{").splitlines())
    assert (facts["tool"], facts["output"].strip(), facts["is_error"]) == ("python", "42", False)
    assert list(ended) == ["session"]


def test_a_command_may_deny_and_may_change_the_arguments(home: Path, make_rig: Callable[..., Rig]) -> None:
    change = json.dumps({"input": {"code": "x = 'right'"}})
    changed = home / "change.json"
    changed.write_text(change)
    given(home, pre_tool=[
        {"command": """grep -q secret && echo '{"deny": "secrets stay here"}'; true""", "tool": "pyth*"},
        {"command": f"grep -q wrong && cat {changed}; true"},
        {"command": "exit 1", "tool": "shell"},
    ])  # fmt: skip
    rig = make_rig()
    rig.server.script(tool("python", {"code": "x = 'secret'"}), tool("python", {"code": "x = 'wrong'"}), text("done"))
    rig.turn("go")
    assert rig.agent.shell.user_ns["x"] == "right"
    assert [event.input for event in rig.of(ToolCalled)] == [{"code": "x = 'right'"}]
    assert "secrets stay here" in str(rig.server.messages[1].body)


def denies(rig: Rig, why: str) -> None:
    """The call is not run, and the model told why."""
    rig.server.script(PRINT, text("I see"))
    assert rig.turn("go").status == "finished"
    assert "x" not in rig.agent.shell.user_ns
    assert why in result_text(rig.results()[-1])


def test_a_failing_command_denies_the_call(home: Path, make_rig: Callable[..., Rig]) -> None:
    rig = make_rig()
    for command, why in (
        ("echo not today >&2; exit 3", "exit status 3: not today"),
        ("no-such-command-here", "exit status 127"),
        ("echo '{broken'", "not a JSON object"),
        ({"command": "sleep 60", "timeout": 0.3}, "longer than 0.3 s"),
    ):
        given(home, pre_tool=[command])
        denies(rig, why)


def test_other_failing_commands_are_reported_and_ignored(home: Path, make_rig: Callable[..., Rig]) -> None:
    given(home, user_prompt=["exit 4"], post_tool=["echo no >&2; exit 5"])
    rig = make_rig()
    rig.server.script(PRINT, text("done"))
    assert rig.turn("go").status == "finished"
    assert rig.agent.shell.user_ns["x"] == 1
    assert failures(rig) == [
        "hook user_prompt (exit 4): CommandFailed: exit status 4",
        "hook post_tool (echo no >&2; exit 5): CommandFailed: exit status 5: no",
    ]


def test_a_file_that_cannot_be_trusted_or_read_denies_every_call(home: Path, make_rig: Callable[..., Rig]) -> None:
    rig = make_rig()
    for content, mode, why in (
        ("{", 0o600, "cannot be read"),
        ('{"pre_tols": ["true"]}', 0o600, "has no point 'pre_tols'; points: session_start"),
        ('{"pre_tool": [{"comand": "true"}]}', 0o600, "cannot be read"),
        ('{"pre_tool": ["true"]}', 0o666, "can be written by others"),
        ('{"pre_tool": [{"command": "true", "sandbox": "readonly"}]}', 0o600, "Invalid enum value 'readonly'"),
    ):
        (home / "hooks.json").write_text(content)
        (home / "hooks.json").chmod(mode)
        denies(rig, why)


@pytest.mark.paced
def test_nothing_that_a_command_began_outlives_it_and_none_waits_for_it(
    home: Path, make_rig: Callable[..., Rig]
) -> None:
    pid = home / "pid"
    given(home, user_prompt=[f"sleep 300 & echo $! > {pid}; echo hello"])
    rig = make_rig()
    rig.server.script(text("ok"))
    began = time.monotonic()
    rig.turn("go")
    assert time.monotonic() - began < within(5, 100)
    assert "hello" in str(rig.server.messages[-1].body)
    left = int(pid.read_text())
    assert not psutil.pid_exists(left) or psutil.Process(left).status() == psutil.STATUS_ZOMBIE


def test_a_project_has_no_hooks_and_a_changed_file_is_read_again(home: Path, make_rig: Callable[..., Rig]) -> None:
    rig = make_rig()
    root = rig.agent.project.root
    (root / ".ipyagent").mkdir(exist_ok=True)
    for folder in (root, root / ".ipyagent"):
        (folder / "hooks.json").write_text(json.dumps({"user_prompt": ["echo from the project"]}))
    rig.server.script(text("ok"), text("ok"))
    rig.turn("go")
    given(home, user_prompt=["echo hooked by the person"])
    rig.turn("go")
    said = [str(exchange.body) for exchange in rig.server.messages]
    assert not any("from the project" in each for each in said)
    assert ["hooked by the person" in each for each in said] == [False, True]


def test_what_was_wrong_with_a_file_ends_with_the_file(home: Path) -> None:
    found = HooksFile(NAMES)
    for content in ("{", json.dumps({"stop": ["true"]}), '{"no_point": []}'):
        (home / "hooks.json").write_text(content)
        (home / "hooks.json").chmod(0o600)
        assert bool(found.problem) == ("stop" not in content)
        assert len(found.of("stop")) == 1, "a command, or what fails in its place"
        (home / "hooks.json").unlink()
        assert (found.problem, found.of("stop")) == ("", [])


@pytest.mark.skipif(not sandbox.find().working, reason="no sandbox works here")
@pytest.mark.parametrize(("level", "written"), [("read", False), ("project", True), ("open", True)])
def test_a_command_runs_at_the_level_of_its_entry_and_without_the_models_key(
    home: Path, make_rig: Callable[..., Rig], monkeypatch: pytest.MonkeyPatch, level: str, written: bool
) -> None:
    made = Path.cwd() / f"made-by-a-hook-{level}"
    command = f"cat > /dev/null; echo x > {made}; echo \"level {level}, ${{ANTHROPIC_API_KEY:-without a key}}\""
    given(home, user_prompt=[{"command": command, "sandbox": level}])
    rig = make_rig()
    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-ant-api03-Zq7XkV2m9TfLw4Rb8NcYh3Jd6Gs1Pu5E")
    try:
        rig.server.script(text("done"))
        assert rig.turn("go").status == "finished"
        assert made.exists() is written
        assert f"level {level}, without a key" in str(rig.server.messages[-1].body)
    finally:
        made.unlink(missing_ok=True)
