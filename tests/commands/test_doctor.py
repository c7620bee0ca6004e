"""`ipyagent doctor`, `%agent doctor` and `ipyagent practice`: each line says how it is and what to do."""

from __future__ import annotations

import contextlib
import io
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest
from kernels import ROOT
from rooms import KEY, Room, plain

from ipyagent import Agent, IPyAgent, sandbox
from ipyagent.__main__ import main
from ipyagent.errors import AgentError
from ipyagent.extension.doctor import examine
from ipyagent.practice.server import PracticeServer

LINE = re.compile(r"[✓!✗] [a-z ]{1,12} +\S")
OURS = re.compile(r"ANTHROPIC_|IPYAGENT_|SSL_CERT_|\w+_proxy$", re.IGNORECASE)


def run(folder: Path, *words: str, **environ: str) -> subprocess.CompletedProcess[str]:
    """A Python of its own in `folder`, of whose environment only `environ` concerns models and the network."""
    without = {name: value for name, value in os.environ.items() if not OURS.match(name)}
    homes = {"IPYAGENT_HOME": str(folder / ".home"), "IPYTHONDIR": str(folder / ".ipython"), "PYTHONPATH": str(ROOT)}
    return subprocess.run(
        [sys.executable, "-m", *words], cwd=folder, env={**without, **homes, **environ},
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip


def told(folder: Path, **environ: str) -> tuple[int, list[str]]:
    """Exit status and lines of the command, run in this process with the same environment."""
    said, wrong = io.StringIO(), io.StringIO()
    with pytest.MonkeyPatch.context() as patch:
        for name in filter(OURS.match, list(os.environ)):
            patch.delenv(name)
        for name, value in {"IPYAGENT_HOME": str(folder / ".home"), **environ}.items():
            patch.setenv(name, value)
        patch.chdir(folder)
        with contextlib.redirect_stdout(said), contextlib.redirect_stderr(wrong):
            status = main(["doctor"])
    assert wrong.getvalue() == ""
    return status, said.getvalue().splitlines()


def named(lines: list[str], name: str) -> str:
    (found,) = (line for line in lines if line[2:].startswith(f"{name} "))
    return found


def test_without_a_key_it_says_what_to_set_and_fails(tmp_path: Path) -> None:
    done = run(tmp_path, "ipyagent", "doctor")
    status, lines = told(tmp_path)
    assert (done.returncode, done.stdout.splitlines(), done.stderr) == (status, lines, "")
    assert status == 1
    assert all(LINE.match(line) for line in lines[:-1]), lines
    assert named(lines, "connection").startswith("✗")
    assert "ANTHROPIC_API_KEY" in named(lines, "connection")
    assert not (tmp_path / ".ipyagent").exists()


def test_it_says_what_keeps_commands_and_what_code_is(tmp_path: Path) -> None:
    _, lines = told(tmp_path)
    found = sandbox.find()
    if found.working:
        assert all(gap in named(lines, "sandbox") for gap in found.working[0].gaps)
        assert f"✓ sandbox      uses {found.working[0].name}" in named(lines, "sandbox")
    else:
        assert found.why in named(lines, "sandbox")
    assert "watched, not confined" in named(lines, "code")


def test_a_wrong_setting_of_the_environment_is_told_beside_all_else(tmp_path: Path) -> None:
    said = {"WINDOW": "abc", "MAX_COST": "five", "MODE": "auto", "MEMRY": "0"}
    status, lines = told(tmp_path, **{f"IPYAGENT_{name}": value for name, value in said.items()})
    assert status == 1
    *wrong, misspelt = [line for line in lines if line[2:].startswith("settings ")]
    assert misspelt.startswith("!")
    assert misspelt.endswith("IPYAGENT_MEMRY is not a setting and is ignored: did you mean IPYAGENT_MEMORY?")
    assert [line[15:].partition(" should be ")[0] for line in wrong] == [
        "IPYAGENT_MAX_COST='five'", "IPYAGENT_WINDOW='abc'",
    ]  # fmt: skip
    assert all(line.startswith("✗") for line in wrong)
    assert "mode auto" in named(lines, "permissions")
    assert named(lines, "skills").startswith("✓")


def test_with_a_server_that_listens_all_is_there_and_no_key_is_shown(tmp_path: Path) -> None:
    with PracticeServer() as server:
        status, lines = told(tmp_path, ANTHROPIC_BASE_URL=server.url, ANTHROPIC_API_KEY=KEY)
        assert server.log == []
    assert status == 0, lines
    assert "accepts connections" in named(lines, "connection")
    assert KEY[-8:] not in "\n".join(lines)
    assert lines[-1].startswith("Everything is set up")


def checks(folder: Path, **settings: object) -> dict[str, tuple[str, str]]:
    agent = Agent(settings=IPyAgent(environ={}, **{"model": "practice", **settings}), folder=folder)
    try:
        return {one.name: (one.mark, f"{one.words}: {one.mend}") for one in examine(agent, None)}
    finally:
        agent.close()


@pytest.fixture(autouse=True)
def _home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("IPYAGENT_HOME", str(tmp_path_factory.mktemp("home")))
        yield


def test_a_kernel_that_forgets_requests_or_is_too_old_is_named(tmp_path: Path) -> None:
    for version, mend in (
        ("7.0.1", "'ipykernel>=7.4'"), ("7.3.0", "'ipykernel>=7.4'"), ("7.4.0", ""), ("8.0", ""), ("6.31.0", ""),
        ("6.29.5", "'ipykernel>=7'"),
    ):  # fmt: skip
        about = tmp_path / version / f"ipykernel-{version}.dist-info"
        about.mkdir(parents=True)
        (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: ipykernel\nVersion: {version}\n")
        with pytest.MonkeyPatch.context() as patch:
            patch.syspath_prepend(str(about.parent))
            mark, words = checks(tmp_path)["packages"]
        assert f"ipykernel {version}" in words
        assert (mark == "note") is bool(mend), version
        assert mend in words


def test_a_server_that_is_not_there_and_an_address_with_v1_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with PracticeServer() as server:
        # the setting may end in /v1, it is taken away; the SDK leaves it on its own variable
        mark, words = checks(tmp_path, model="claude-sonnet-5-5", base_url=f"{server.url}/v1")["connection"]
        assert (mark, "accepts connections" in words) == ("ok", True)
        gone = server.url
    mark, words = checks(tmp_path, model="claude-sonnet-5-5", base_url=gone)["connection"]
    assert (mark, "start the server" in words) == ("bad", True)
    monkeypatch.setenv("ANTHROPIC_BASE_URL", f"{gone}/v1")
    mark, words = checks(tmp_path, model="claude-sonnet-5-5")["connection"]
    assert (mark, "without /v1" in words) == ("bad", True)


UNUSABLE = [
    ("ALL_PROXY", "socks5://user:hidden-word@localhost:1", "pip install socksio"),
    ("https_proxy", "http://user:hidden-word@host:port", "to http://HOST:PORT"),
    ("HTTP_PROXY", "gopher://user:hidden-word@host", "to http://HOST:PORT"),
    ("NO_PROXY", "localhost,[::1]", "'[::1]': write IPv6 addresses without brackets"),
    ("no_proxy", "10.0.0.0/8,::1,fe80::/10", "'fe80::/10': write IPv6"),
    ("SSL_CERT_FILE", "/not/there.pem", "No such file"),
    ("SSL_CERT_FILE", __file__, "it holds no certificates"),
    ("SSL_CERT_DIR", "/not/there", "is not a folder"),
]


@pytest.mark.parametrize(("name", "value", "mend"), UNUSABLE)
def test_a_proxy_or_certificate_variable_that_cannot_be_used_is_named_alike_by_doctor_and_a_turn(
    name: str, value: str, mend: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if "socks" in value and find_spec("socksio"):
        pytest.skip("SOCKS works here")
    environ = {name: value, "ANTHROPIC_API_KEY": KEY}
    status, lines = told(tmp_path, **environ)
    line = named(lines, "connection")
    assert (status, line[0]) == (1, "✗")
    words = line.split(maxsplit=2)[2]
    assert words.startswith(name)
    assert mend in words
    for each in filter(OURS.match, list(os.environ)):
        monkeypatch.delenv(each)
    for each, said in {"IPYAGENT_HOME": str(tmp_path / ".home"), **environ}.items():
        monkeypatch.setenv(each, said)
    agent = Agent(folder=tmp_path)
    try:
        with pytest.raises(AgentError) as refused:
            agent.run_sync("hello")
    finally:
        agent.close()
    assert words in str(refused.value)
    assert "hidden-word" not in f"{refused.value}{lines}"


@pytest.mark.slow
def test_a_proxy_that_cannot_be_used_is_told_in_ipython_without_a_traceback(tmp_path: Path) -> None:
    name, value, mend = UNUSABLE[1]
    asked = "get_ipython().run_line_magic('load_ext', 'ipyagent'); get_ipython().run_cell_magic('agent', '', 'hello')"
    environ = {name: value, "ANTHROPIC_API_KEY": KEY}
    done = run(tmp_path, "IPython", "--no-banner", "--colors=NoColor", "-c", asked, **environ)
    shown = done.stdout + done.stderr
    assert mend in shown
    assert "Traceback" not in shown
    assert "Exception ignored" not in shown
    assert "hidden-word" not in shown


def test_variables_with_which_a_client_can_be_made_are_not_complained_of(tmp_path: Path) -> None:
    for said in (
        {"NO_PROXY": "localhost,127.0.0.1,::1,10.0.0.0/8,*.example.org,.example.com,http://example.net"},
        {"NO_PROXY": "*", "ALL_PROXY": "socks5://localhost:1"},
        {"HTTPS_PROXY": "localhost:3128", "ALL_PROXY": ""},
        {"SSL_CERT_DIR": f"/not/there{os.pathsep}{os.path.dirname(__file__)}"},
    ):
        with pytest.MonkeyPatch.context() as patch:
            for name in [name for name in os.environ if re.match(r"SSL_CERT_|\w+_proxy$", name, re.IGNORECASE)]:
                patch.delenv(name)
            for name, value in {"ANTHROPIC_API_KEY": KEY, **said}.items():
                patch.setenv(name, value)
            mark, words = checks(tmp_path, model="claude-sonnet-5-5")["connection"]
        assert mark != "bad", words


@pytest.mark.parametrize("address", ["localhost:11434", "http://127.0.0.1:99999", "http://[::1", "file:///etc"])
def test_what_is_no_address_is_named(address: str, tmp_path: Path) -> None:
    found = checks(tmp_path, model="claude-sonnet-5-5", base_url=address)
    assert found["connection"][0] == "bad", found["connection"]


def test_a_key_with_a_line_break_is_named_and_not_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", f"{KEY}\n")
    with PracticeServer() as server:
        found = checks(tmp_path, model="claude-sonnet-5-5", base_url=server.url)
    assert found["key"][0] == "bad"
    assert KEY[-8:] not in str(found)


def test_window_and_price_are_told_and_what_is_assumed_says_so(tmp_path: Path) -> None:
    with PracticeServer() as server:
        words = checks(tmp_path, model="claude-sonnet-5-5", base_url=server.url)["model"][1]
        assert "1,000,000 tokens, $2 and $10" in words
        words = checks(tmp_path, model="qwen3", base_url=server.url)["model"][1]
    assert "200,000 tokens is assumed" in words
    assert "no price known" in words


def test_tools_of_the_provider_are_told_with_the_reason_where_one_is_not_offered(tmp_path: Path) -> None:
    def said(model: str, *tools: str) -> str:
        settings = IPyAgent(environ={}, model=model, server_tools=list(tools))
        agent = Agent(settings=settings, folder=tmp_path)
        try:
            (line,) = (str(found) for found in examine(agent, None) if found.name == "server tools")
            return line
        finally:
            agent.close()

    assert "web_search off, web_fetch off (IPyAgent.server_tools turns them on)" in said("claude-sonnet-5-5")
    assert said("claude-sonnet-5-5", "web_search").startswith("✓")
    wrong = said("some-model", "web_search", "web_fetch")
    assert wrong.startswith("!")
    assert "web_search: some-model is not known to have it" in wrong


def test_a_broken_folder_is_told_in_lines_and_left_as_it_is(tmp_path: Path) -> None:
    home = Path(os.environ["IPYAGENT_HOME"])
    (home / "rules.json").write_bytes(b"\xff{")
    (home / "trust.json").write_text("[" * 100_000)
    (tmp_path / ".ipyagent").write_text("no folder")
    found = checks(tmp_path)
    assert found["sessions in"][0] == "bad"
    assert found["permissions"][0] == "bad"
    assert "rules.json" in found["permissions"][1]
    assert (tmp_path / ".ipyagent").read_text() == "no folder"


def test_looking_changes_no_setting(tmp_path: Path) -> None:
    agent = Agent(settings=IPyAgent(environ={}, model="practice"), folder=tmp_path)
    try:
        (Path(os.environ["IPYAGENT_HOME"]) / "config.toml").write_text("effort = 'low'\nmodle = 3\n")
        before = agent.settings.effort
        names = [one.name for one in examine(agent, None) if one.mark == "note"]
        assert "settings" in names
        assert agent.settings.effort == before
    finally:
        agent.close()


def test_a_folder_that_is_gone_is_one_line(tmp_path: Path) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    line = 'rmdir ../gone; exec "$0" -m ipyagent doctor'
    done = subprocess.run(
        ["/bin/sh", "-c", line, sys.executable], cwd=gone, env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (1, "")
    assert "change to another one" in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_what_is_wrong_with_files_is_a_remark_with_its_mend(tmp_path: Path) -> None:
    home = Path(os.environ["IPYAGENT_HOME"])
    (home / "config.toml").write_text("modle = 3\n")
    (home / "hooks.json").write_text("{broken")
    (home / "skills" / "bad").mkdir(parents=True)
    (home / "skills" / "bad" / "SKILL.md").write_text("no frontmatter")
    found = checks(tmp_path)
    assert found["connection"][0] == "ok"
    assert "practice server" in found["connection"][1]
    assert found["settings"][0] == "note"
    assert "modle" in found["settings"][1]
    assert found["skills"][0] == "note"
    assert "%skills doctor" in found["skills"][1]
    assert found["hooks"][0] == "bad"
    assert "fix or remove it" in found["hooks"][1]


def test_what_a_cloned_folder_brings_is_not_loaded_and_told(tmp_path: Path) -> None:
    (tmp_path / ".ipyagent" / "memory").mkdir(parents=True)
    (tmp_path / ".ipyagent" / "memory" / "MEMORY.md").write_text("- [evil](evil.md): x\n")
    mark, words = checks(tmp_path)["project"]
    assert (mark, "%agent trust" in words) == ("note", True)


def practice_command(folder: Path) -> tuple[subprocess.Popen[str], str]:
    """The command as a process of its own, and the variable that it says to set."""
    made = subprocess.Popen(
        [sys.executable, "-m", "ipyagent", "practice", "--port", "0"], stdout=subprocess.PIPE, text=True, cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    for said in made.stdout:
        if "export " in said:
            return made, said.split("export ")[1].strip()
    made.kill()
    raise AssertionError(f"it ended with {made.wait()} and said no variable")


@pytest.fixture(scope="module")
def practising(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Room]:
    """A kernel that knows nothing but the variable of a practice server in another process."""
    folder = tmp_path_factory.mktemp("practising")
    process, said = practice_command(folder)
    variable, address = said.split("=")
    place = Room(folder, None, {variable: address, "IPYAGENT_MODEL": "", "IPYAGENT_MODE": "auto"})
    try:
        place.ok("%load_ext ipyagent")
        yield place
    finally:
        place.close()
        process.kill()
        process.communicate()


def test_the_practice_server_is_a_local_server_by_one_variable(practising: Room) -> None:
    practising.ok("values = [1, 2, 3]")
    assert "values" in plain(practising.ok("%%agent\nwhat variables are there?"))


def test_in_a_kernel_it_tells_of_the_front_end_the_server_and_the_transcript(practising: Room) -> None:
    lines = practising.ok("%agent doctor").streams.splitlines()
    assert "nobody can be asked" in named(lines, "front-end")
    assert "accepts connections" in named(lines, "connection")
    assert "events" in named(lines, "transcript")
    assert "ipykernel" in named(lines, "packages")
    assert "trusted" in named(lines, "project")
    shown = plain(practising.ok("%agent doctor", headless=False))
    assert "live panels" in shown
    assert "✗" not in shown


def test_ctrl_c_ends_the_practice_server_in_good_order(tmp_path: Path) -> None:
    process, _ = practice_command(tmp_path)
    try:
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=10) == 0
    finally:
        process.kill()
        process.communicate()


def test_a_port_that_is_taken_is_one_line(tmp_path: Path) -> None:
    with PracticeServer() as server:
        port = server.url.rsplit(":", 1)[1]
        done = subprocess.run(
            [sys.executable, "-m", "ipyagent", "practice", "--port", port], capture_output=True, text=True, timeout=30,
            check=False,
        )  # fmt: skip
    assert done.returncode == 1
    assert "choose another with --port" in done.stderr
    assert len(done.stderr.splitlines()) == 1
