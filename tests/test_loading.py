"""Loading registers and does nothing else; unloading takes everything back."""

from __future__ import annotations

import inspect
import json
import operator
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import ModuleType

import pytest
from kernels import ROOT
from rooms import Room, room
from traitlets.config import Config

import ipyagent
from ipyagent.assembly.settings import SettingsFiles
from ipyagent.config import IPyAgent
from ipyagent.errors import SettingError
from ipyagent.extension import WarmUp
from ipyagent.practice.server import PracticeServer
from ipyagent.project import Project

HEAVY = (
    "anthropic", "pydantic", "pandas", "numpy", "nbformat", "ipywidgets", "anywidget", "rich", "markdown_it", "httpx",
    "ipyagent.agent", "ipyagent.model.client", "ipyagent.practice.server", "psutil", "filelock",
)  # fmt: skip

WATCH = """
import sys, threading
_seen = []
_main = threading.get_ident()
def _hook(event, given):
    if threading.get_ident() != _main or not _watching:
        return
    if event.startswith(('socket.', 'subprocess.', 'os.mkdir', 'os.rename', 'os.remove')):
        _seen.append(event)
    elif event == 'open' and isinstance(given[1], str) and set(given[1]) & set('wax+'):
        if '__pycache__' not in str(given[0]):  # the interpreter's own
            _seen.append(f'open {given[0]} {given[1]}')
_watching = False
sys.addaudithook(_hook)
"""
STATE = """
def _state():
    ip = get_ipython()
    return json.dumps({
        'cleanup': [repr(t) for t in ip.input_transformers_cleanup],
        'post': [repr(t) for t in ip.input_transformers_post],
        'line': sorted(ip.magics_manager.magics['line']), 'cell': sorted(ip.magics_manager.magics['cell']),
        'settings': [type(c).__name__ for c in ip.configurables],
        'matchers': [repr(m) for m in ip.Completer.custom_matchers],
        'events': {k: [repr(c) for c in v] for k, v in ip.events.callbacks.items()},
        'attributes': sorted(k for each in (ip, ip.kernel) for k in vars(each) if 'ipyagent' in k),
        'reads': getattr(ip.kernel.shell_stream._recv_callback, '__module__', 'partial'),
    })
"""


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Room]:
    """A kernel that has not heard of us."""
    with PracticeServer() as server, room(tmp_path, server=server, fresh=True) as made:
        yield made


@pytest.fixture(scope="module")
def kernel(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Room]:
    with PracticeServer() as server, room(tmp_path_factory.mktemp("loading"), server=server) as made:
        yield made


@pytest.fixture
def used(kernel: Room) -> Iterator[Room]:
    """A kernel in which the extension is not loaded, whatever was before."""
    yield kernel
    kernel.run("%unload_ext ipyagent")
    kernel.ok(
        "for kind in get_ipython().magics_manager.magics.values():\n    kind.pop('agent', 0); kind.pop('context', 0)\n"
        "get_ipython().config.pop('IPyAgent', 0)"  # IPython keeps there what `%config` was told, wrong values too
    )


def warmed_up(place: Room) -> str:
    """Wait between cells, for a cell goes before it; what was printed meanwhile."""
    printed = ""
    for _ in range(300):
        alive = place.ok("import threading; any(t.name == 'ipyagent-warm-up' for t in threading.enumerate())")
        printed += alive.streams
        if alive.data == [{"text/plain": "False"}]:
            return printed
        time.sleep(0.2)
    raise AssertionError("the warm-up does not end")


def test_loading_is_silent_light_and_leaves_no_trace_and_warms_up_after_the_cell(place: Room) -> None:
    place.ok("import sys, os, json, threading")
    place.ok(WATCH)
    place.ok("_before = set(sys.modules); _watching = True")
    loaded = place.ok(
        "%load_ext ipyagent\n_watching = False\n"
        f"_heavy = [m for m in {HEAVY!r} if m in sys.modules and m not in _before]\n"
        "_warm = [t.name for t in threading.enumerate() if t.name == 'ipyagent-warm-up']"
    )
    assert loaded.data == []
    assert re.fullmatch(r"ipyagent: .+, mode ask; %agent help lists the commands\n", loaded.streams)
    assert place.kernel.eval("_seen") == []
    assert place.kernel.eval("_heavy") == []
    assert place.kernel.eval("_warm") == []
    assert warmed_up(place) == ""
    assert place.kernel.eval("'anthropic' in sys.modules and 'ipyagent.agent' in sys.modules") is True
    assert list(place.folder.iterdir()) == []
    assert not place.home.exists()
    assert not (Path(place.environ["HOME"]) / ".ipyagent").exists()
    assert place.server.log == []

    place.ok("_before = set(sys.modules)")
    place.asks("hello", headless=False)
    assert place.kernel.eval("sorted(set(sys.modules) - _before)") == [], "the first request imports nothing any more"


def test_a_cell_of_the_users_goes_before_what_is_made_ready_and_a_request_before_it() -> None:
    made: list[str] = []
    first, second = ModuleType("ipyagent_ready_first"), ModuleType("ipyagent_ready_second")
    first.make, second.make = lambda: made.append("first"), lambda: made.append("second")  # type: ignore[attr-defined]
    sys.modules |= {each.__name__: each for each in (first, second)}
    warm_up = WarmUp(("no_such_module_at_all", "ipyagent_ready_first:make", "ipyagent_ready_second:make"), turn=60.0)
    try:
        warm_up.cell_begins()
        thread = warm_up.start()
        thread.join(0.3)
        assert made == []
        warm_up.wait()  # the cell that runs wants it
    finally:
        del sys.modules[first.__name__], sys.modules[second.__name__]
    thread.join(5)
    assert (made, thread.is_alive()) == (["first", "second"], False)


def test_an_interrupt_of_the_wait_for_the_imports_lets_none_of_them_begin_on_the_main_thread(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "ipyagent_slow_import.py").write_text("import time\ntime.sleep(1.5)\nDONE = True\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    warm_up = WarmUp(("ipyagent_slow_import",))
    for _ in range(5):  # Thread.join that is interrupted takes a running thread for an ended one
        threading.Timer(0.1, os.kill, (os.getpid(), signal.SIGINT)).start()
        with pytest.raises(KeyboardInterrupt):
            warm_up.wait()
    warm_up.wait()
    assert sys.modules.pop("ipyagent_slow_import").DONE


def test_the_jupyter_server_is_asked_once_a_cell(tmp_path: Path) -> None:
    asked: list[str] = []

    class Server(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.path)
            self.send_response(200)
            self.end_headers()
            self.wfile.write(b"[]")

        def log_message(self, *given: object) -> None:
            """Nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Server) as server, PracticeServer() as model:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        facts = {"url": f"http://127.0.0.1:{server.server_port}/", "token": "t", "root_dir": str(tmp_path)}
        run = tmp_path / "run"
        run.mkdir()
        (run / "jpserver-1.json").write_text(json.dumps(facts))
        with room(tmp_path, server=model, JUPYTER_RUNTIME_DIR=str(run)) as place:
            place.ok("get_ipython().kernel.config.IPKernelApp.connection_file = '/nowhere/kernel-abc-1.json'")
            place.ok("%load_ext ipyagent")
            place.asks("hello", headless=False)
            assert len(asked) == 1
            place.asks("hello again", headless=False)
            assert len(asked) == 2
        server.shutdown()


def test_a_broken_package_is_silent_at_load_and_told_at_the_first_request(place: Room) -> None:
    (place.folder / "anthropic.py").write_text("raise RuntimeError('boom')")
    place.ok("import sys; sys.path.insert(0, '')")
    loaded = place.ok("%load_ext ipyagent")
    assert (loaded.streams.count("\n"), warmed_up(place)) == (1, "")
    assert place.run("%%agent\nhello").errors == ["RuntimeError"]
    (place.folder / "anthropic.py").write_text("def (")
    assert place.run("%%agent\nhello").errors == ["SyntaxError"]
    assert place.ok("1 + 1").data == [{"text/plain": "2"}]


def test_unloading_restores_everything(used: Room) -> None:
    used.ok("import json\n%load_ext json")  # not an extension: IPython makes its own machinery for them
    used.ok(STATE)
    before = used.kernel.eval("_state()")
    used.ok("%load_ext ipyagent")
    assert used.kernel.eval("_state()") != before
    used.asks("hello", headless=False)
    assert used.kernel.eval("'_ipyagent_peek' in vars(get_ipython().kernel)")
    used.ok("%unload_ext ipyagent")
    assert json.loads(used.kernel.eval("_state()")) == json.loads(before)
    used.ok("%load_ext ipyagent\n%unload_ext ipyagent")
    assert json.loads(used.kernel.eval("_state()")) == json.loads(before)
    assert used.kernel.eval("[t.name for t in __import__('threading').enumerate() if t.name == 'ipyagent']") == []


def test_loading_twice_and_reloading_keep_one_of_everything(used: Room) -> None:
    used.ok("%load_ext ipyagent")
    used.ok("%load_ext ipyagent")
    used.ok("import ipyagent; ipyagent.load_ipython_extension(get_ipython())")
    used.ok("%reload_ext ipyagent")
    ours = "[t for t in get_ipython().input_transformers_cleanup if type(t).__name__ == 'CellTransformer']"
    assert used.kernel.eval(f"len({ours})") == 1
    assert used.kernel.eval("sum(type(c).__name__ == 'IPyAgent' for c in get_ipython().configurables)") == 1
    used.asks("hello")
    assert used.words()[-1] == "hello"


OTHERS = {
    "line": "from IPython.core.magic import *\n@register_line_magic\ndef agent(line): return 'theirs'",
    "cell": "from IPython.core.magic import *\n@register_cell_magic\ndef agent(line, cell): return 'theirs'",
}


@pytest.mark.parametrize("kind", OTHERS)
def test_another_owner_of_the_short_name_keeps_it(used: Room, kind: str) -> None:
    used.ok(OTHERS[kind])
    loaded = used.ok("%load_ext ipyagent")
    assert loaded.streams.count("\n") == 2
    assert "%%ipyagent" in loaded.streams
    assert "%ipyagent help" in loaded.streams
    theirs = used.ok("%agent x" if kind == "line" else "%%agent\n{'a': 1} $x")
    assert theirs.data == [{"text/plain": "'theirs'"}]
    used.ok("%%ipyagent\n{'a': 1} $x")
    assert used.words()[-1] == "{'a': 1} $x"
    assert "session" in used.ok("%ipyagent").streams
    used.ok("%unload_ext ipyagent")
    assert used.ok("%agent x" if kind == "line" else "%%agent\nx").data == [{"text/plain": "'theirs'"}]


def test_another_owner_of_context_keeps_it(used: Room) -> None:
    used.ok("from IPython.core.magic import *\n@register_line_magic\ndef context(line): return 'theirs'")
    loaded = used.ok("%load_ext ipyagent")
    assert loaded.streams.count("\n") == 2
    assert "%context" in loaded.streams
    assert used.ok("%context").data == [{"text/plain": "'theirs'"}]
    used.asks("hello")
    assert "tokens" in used.ok("%agent context").data[-1]["text/plain"]
    used.ok("%unload_ext ipyagent")
    assert used.ok("%context").data == [{"text/plain": "'theirs'"}]


def test_help_of_the_magics_says_what_they_do(used: Room) -> None:
    used.ok("%load_ext ipyagent")
    for line, word in (("%agent?", "%agent help"), ("%%agent?", "%agent help"), ("%context?", "what the model would")):
        payload = used.ok(line).reply["payload"]
        assert word in payload[0]["data"]["text/plain"], line


# ---------------------------------------------------------------------- the package


def test_importing_the_package_has_no_effect(tmp_path: Path) -> None:
    code = WATCH + (
        "_before = set(sys.modules); _watching = True\nimport ipyagent\n_watching = False\n"
        "new = {m for m in set(sys.modules) - _before if not m.startswith('ipyagent')}\n"
        "print(_seen, sorted(m for m in sys.modules if m.startswith('ipyagent')), 'IPython' in sys.modules, "
        f"[m for m in {HEAVY!r} if m in sys.modules])"
    )
    environ = {**os.environ, "PYTHONPATH": str(ROOT), "IPYAGENT_HOME": str(tmp_path / "home")}
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, env=environ, capture_output=True, text=True, check=False
    )
    assert done.stdout == "[] ['ipyagent', 'ipyagent.version'] False []\n"
    assert done.stderr == ""
    assert list(tmp_path.iterdir()) == []


def test_public_names_are_these() -> None:
    assert ipyagent.__all__ == [
        "Agent", "AgentError", "IPyAgent", "Options", "TurnResult", "__version__", "agent_map", "hooks",
        "load_ipython_extension", "tool",
    ]  # fmt: skip
    for name in ipyagent.__all__:
        assert getattr(ipyagent, name).__doc__, name
        assert name in dir(ipyagent)
    with pytest.raises(AttributeError, match="Agnet"):
        ipyagent.Agnet


SAID = {
    "Agent": ("shell", "folder", "notebook", "tools", "thread"),
    "Agent.prepare": ("UsageError", "NoCredentials", "SettingError", "JournalError"),
    "Agent.run": ("events", "TurnEnded", "Raises UsageError", "NoCredentials"),
    "Agent.run_sync": ("options", "result", "Raises UsageError", "NoCredentials"),
    "Agent.resume": ("UsageError", "TrustError"),
    "Agent.fork": ("UsageError", "TrustError", "JournalError"),
    "Agent.stop": ("thread",),
    "Agent.undo": ("UsageError",),
    "Agent.compact": ("UsageError", "CompactionFailed"),
    "AgentError": ("what to do", "one line"),
    "Options": ("model calls", "history", "UsageError"),
    "TurnResult": ("status", "finished", "US dollars", "seconds", "nothing is raised"),
    "agent_map": ("order of the inputs", "US dollars", "tokens", "seconds", "Raises UsageError", "interrupt"),
    "hooks": ("hooks.pre_tool(function)", "seconds", "Raises AttributeError"),
    "tool": ("permission", "writes", "characters", "Raises UsageError"),
    "load_ipython_extension": ("%load_ext",),
}
"""What the docstrings of public names must speak of: units, shapes, errors."""


@pytest.mark.parametrize("name", SAID)
def test_docstrings_of_public_names_tell_units_shapes_and_errors(name: str) -> None:
    told = " ".join((inspect.getdoc(operator.attrgetter(name)(ipyagent)) or "").split())
    assert [word for word in SAID[name] if word not in told] == []


def test_public_names_are_documented_and_typed() -> None:
    for name in ipyagent.__all__:
        public = getattr(ipyagent, name)
        holder = public if inspect.isclass(public) else type(public)
        methods = {} if not holder.__module__.startswith("ipyagent") or name == "IPyAgent" else vars(holder)
        functions = {f"{name}.{key}": each for key, each in methods.items() if not key.startswith("_")}
        if inspect.isfunction(public):
            functions[name] = public
        for where, each in functions.items():
            function = each.fget if isinstance(each, property) else each
            if not inspect.isfunction(function):
                continue
            assert inspect.getdoc(each), where
            given = inspect.signature(function)
            assert given.return_annotation is not given.empty, where
            untyped = [key for key, taken in given.parameters.items() if taken.annotation is taken.empty]
            assert untyped in ([], ["self"]), where


# ---------------------------------------------------------------------- settings


def test_a_setting_that_was_renamed_is_set_by_its_old_name_with_a_line(tmp_path: Path) -> None:
    with pytest.warns(FutureWarning, match="children is now called subagents"):
        assert IPyAgent(environ={}, children=False).subagents is False
    with pytest.warns(FutureWarning, match="child_turns is now called subagent_turns"):
        settings = IPyAgent(environ={"IPYAGENT_CHILD_TURNS": "7"})
    assert (settings.subagent_turns, settings.said) == (7, {"subagent_turns"})
    with pytest.warns(FutureWarning, match="child_silence"):
        settings.update_config(Config(IPyAgent={"child_silence": 5.0}))  # as %config does
    assert settings.subagent_silence == 5.0
    with pytest.raises(SettingError, match="IPYAGENT_CHILD_TURNS='no'"), pytest.warns(FutureWarning):
        IPyAgent(environ={"IPYAGENT_CHILD_TURNS": "no"})
    user = Project(tmp_path, user=tmp_path / "home")
    user.user.mkdir()
    (user.user / "config.toml").write_text("child_turns = 3\n")
    settings = IPyAgent(environ={})
    (line,) = SettingsFiles(settings, user).apply()
    assert "child_turns is now called subagent_turns" in line
    assert settings.subagent_turns == 3


def test_every_setting_has_help_and_is_configurable() -> None:
    settings = IPyAgent(environ={})
    own = [name for name in IPyAgent.class_trait_names() if name not in ("parent", "config", "log")]
    assert len(own) > 25
    for name in own:
        trait = settings.traits()[name]
        assert trait.metadata.get("config") is True, name
        assert len(trait.help) > 15, name
        assert trait.help.endswith("."), name


def test_environment_variables_set_settings_and_given_values_win() -> None:
    environ = {
        "IPYAGENT_MODE": "auto", "IPYAGENT_MAX_TURNS": "7", "IPYAGENT_MAX_COST": "0.5", "IPYAGENT_THINKING": "off",
        "IPYAGENT_ALLOWED_FOLDERS": '["/data"]', "IPYAGENT_MODEL": "123", "IPYAGENT_TRUST_ALL": "True",
    }  # fmt: skip
    settings = IPyAgent(environ=environ, max_turns=3)
    assert (settings.mode, settings.max_turns, settings.max_cost, settings.thinking) == ("auto", 3, 0.5, False)
    assert (settings.allowed_folders, settings.model, settings.trust_all) == (["/data"], "123", True)


@pytest.mark.parametrize(
    ("name", "value"),
    [("MODE", "Auto"), ("MAX_TURNS", "many"), ("MAX_TURNS", "0"), ("MAX_TURNS", "1.5"), ("THINKING", "maybe"),
     ("ALLOWED_FOLDERS", "/data"), ("ALLOWED_FOLDERS", "[1]"), ("MAX_COST", "-1"), ("MAX_COST", "NaN"),
     ("MAX_TURNS", ""), ("MAX_TURNS", "true"), ("MAX_TURNS", "[" * 100_000), ("COLLAPSE_PERCENT", "101")],
)  # fmt: skip
def test_a_wrong_environment_value_is_one_line_with_its_name_and_what_to_write(name: str, value: str) -> None:
    with pytest.raises(SettingError) as caught:
        IPyAgent(environ={f"IPYAGENT_{name}": value})
    needed = {
        "MODE": "one of ask, auto, read_only", "MAX_TURNS": "a whole number of at least 1", "THINKING": "true or false",
        "ALLOWED_FOLDERS": 'a list like ["one", "two"]', "MAX_COST": "a number of at least 0",
        "COLLAPSE_PERCENT": "a whole number from 1 to 100",
    }  # fmt: skip
    assert str(caught.value).startswith(f"IPYAGENT_{name}={value[:80]!r} should be {needed[name]} (")
    assert "\n" not in str(caught.value)
    assert "char 0" not in str(caught.value)


def test_a_wrong_environment_value_stops_loading_with_one_line(tmp_path: Path) -> None:
    with room(tmp_path, IPYAGENT_MODE="yolo") as place:
        line = place.refuses("%load_ext ipyagent")
        assert "IPYAGENT_MODE='yolo'" in line
        assert "read_only" in line


def test_config_shows_sets_and_refuses(used: Room) -> None:
    used.ok("%load_ext ipyagent")
    shown = used.ok("%config IPyAgent").streams
    assert "IPyAgent.max_turns=<Int>" in shown
    assert "Permissions: ask (before all code" in shown
    used.ok("%config IPyAgent.mode = 'read_only'")
    assert used.ok("%agent mode").streams.startswith("mode read_only")
    assert used.ok("%config IPyAgent.max_turns").data == [{"text/plain": "50"}]
    wrong = used.run("%config IPyAgent.mode = 'yolo'").streams  # IPython's own one line
    assert "'auto', 'read_only'" in wrong
    assert wrong.count("\n") == 1
    assert used.ok("%agent mode").streams.startswith("mode read_only")


def test_a_config_file_sets_settings_and_a_wrong_value_is_one_line(tmp_path: Path) -> None:
    with room(tmp_path) as place:
        profile = Path(place.environ["IPYTHONDIR"]) / "profile_default"
        profile.mkdir(parents=True)
        config = profile / "ipython_config.py"
        config.write_text("c = get_config()\nc.IPyAgent.mode = 'auto'\nc.IPKernelApp.extensions = ['ipyagent']\n")
        assert place.ok("%agent mode").streams.startswith("mode auto")
        config.write_text("c = get_config()\nc.IPyAgent.mode = 'yolo'\n")
        place.restart()
        assert "yolo" in place.refuses("%load_ext ipyagent")
