"""Agent code in a real shell: what it says comes back, what it breaks is put right."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from pace import within

from ipyagent.journal.protocols import Execution
from ipyagent.kernel.execute import run_async, run_sync
from ipyagent.kernel.output import OutputLog, drain, readable
from ipyagent.kernel.rendering import last_line, render_failure
from ipyagent.kernel.scope import make_shell


@pytest.fixture(scope="module")
def shared() -> Any:
    return make_shell()


@pytest.fixture
def shell(shared: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.chdir(tmp_path)
    for name in [name for name in shared.user_ns if name not in shared.user_ns_hidden]:
        del shared.user_ns[name]
    return shared


def run(shell: Any, code: str, **limits: int) -> Execution:
    return run_sync(shell, code, OutputLog(**limits))


def state(shell: Any) -> tuple[object, ...]:
    streams = (sys.stdout, sys.stderr, vars(sys.stdout).get("write"), vars(sys.stderr).get("write"))
    names = ("_", "__", "___", "Out", "In", "get_ipython", "_i", "_ih")
    return (
        *streams,
        sys.displayhook,
        sys.excepthook,
        shell.display_trap.hook,
        vars(shell).get("showtraceback"),
        vars(shell).get("ask_exit"),
        vars(shell.display_pub).get("publish"),
        shell.execution_count,
        len(shell.user_ns["In"]),
        *(repr(shell.user_ns.get(name)) for name in names),
    )


def test_output_result_and_names_come_back(shell: Any) -> None:
    shell.user_ns["old"] = [1]
    got = run(shell, "print('hi')\nimport sys; print('err', file=sys.stderr)\nold = [2]\nnew = 3\nnew + 1")
    assert got.output == "hi\nerr\n"
    assert got.result == "4"
    assert got.added == ("new", "sys")
    assert got.rebound == ("old",)
    assert got.error is None
    assert not got.interrupted


def test_the_shell_numbers_and_results_stay_clean(shell: Any) -> None:
    before = state(shell)
    run(shell, "11 + 11")
    run(shell, "1/0")
    run(shell, "display(5)")
    assert state(shell) == before


@pytest.mark.parametrize(
    "code",
    [
        "import sys; sys.stdout = None; sys.stderr = open('x', 'w')",
        "import sys; sys.stdout.close(); sys.stderr.close(); print('after')",
        "import sys; sys.displayhook = None; sys.excepthook = None",
        "get_ipython = 5; import builtins; builtins.get_ipython = 6",
        "get_ipython().display_pub.publish = None",
        "import sys; sys.exit(3)",
        "raise SystemExit",
        "raise GeneratorExit",
        "raise KeyboardInterrupt",
        "exit()",
        "quit",
        "import asyncio; raise asyncio.CancelledError",
        "import asyncio\nawait asyncio.sleep(0)\nraise SystemExit(1)",
        "def f(): f()\nf()",
    ],
)
@pytest.mark.filterwarnings("ignore:To exit")
def test_the_next_run_is_clean_whatever_the_code_did(shell: Any, code: str) -> None:
    before = state(shell)
    run(shell, code)
    assert state(shell) == before
    after = run(shell, "print('fine'); get_ipython().execution_count")
    assert after.output == "fine\n"
    assert after.error is None


def test_exit_is_said_to_be_ignored(shell: Any) -> None:
    assert "exit was ignored" in run(shell, "exit()").output


def test_errors_are_short_and_show_only_the_users_code(shell: Any) -> None:
    got = run(shell, "def f(text):\n    import json\n    return json.loads(text)\nx = 1\nf('{')")
    assert got.error.startswith("Traceback")
    assert 'File "<cell>", line 5' in got.error
    assert 'File "<cell>", line 3, in f' in got.error
    assert got.error.endswith("line 1 column 2 (char 1)")
    assert "IPython" not in got.error
    assert "ipyagent" not in got.error
    assert got.output == ""
    got = run(shell, "import pandas as pd\npd.DataFrame({'a': [1]})['b']")
    assert got.error.count("KeyError: 'b'") == 1
    assert ".pyx" not in got.error
    assert 'File "<cell>", line 2' in got.error


@pytest.mark.parametrize(
    ("code", "parts"),
    [
        ("for x in", ["<cell>", "SyntaxError"]),
        ("  x = 1\n y = 2", ["<cell>", "IndentationError"]),
        ("try:\n  1/0\nexcept Exception as e:\n  raise ValueError('b') from e", ["ZeroDivision", "direct cause", "b"]),
        ("raise ExceptionGroup('many', [ValueError(1), KeyError(2)])", ["many", "ValueError: 1", "KeyError: 2"]),
        ("raise ValueError('x' * 100_000)", ["ValueError", "shortened"]),
        ("def f(): f()\nf()", ["RecursionError"]),
        ("%nosuchmagic", ["UsageError", "nosuchmagic"]),
        ("return 5", ["SyntaxError", "outside function"]),
        ("class E(Exception):\n  def __str__(self): raise OSError\nraise E", ["E: <exception str() failed>"]),
    ],
)
def test_every_kind_of_error_is_text(shell: Any, code: str, parts: list[str]) -> None:
    got = run(shell, code)
    assert len(got.error) <= 4_000
    assert "\x1b" not in got.error
    for part in parts:
        assert part in got.error
    assert got.output == ""


def test_shell_commands_magics_and_await_work(shell: Any) -> None:
    assert run(shell, "!echo one; echo two >&2").output.split() == ["one", "two"]
    assert run(shell, "x = !echo hello\nx").result == "['hello']"
    assert "loop" in run(shell, "%timeit -n1 -r1 pass").output
    assert run(shell, "%%capture c\nprint('in')").output == ""
    assert run(shell, "c.stdout").result == "'in\\n'"
    assert run(shell, "import asyncio\nawait asyncio.sleep(0)\nprint('a')\n7").result == "7"


def test_await_works_while_a_loop_runs_below(shell: Any) -> None:
    async def outer() -> tuple[Execution, Execution]:
        here = asyncio.get_running_loop()
        awaited = await run_async(shell, "import asyncio\nid(asyncio.get_running_loop())", OutputLog())
        loop = await run_async(shell, "import asyncio\nawait asyncio.sleep(0)\nasyncio.get_running_loop()", OutputLog())
        assert loop.result == repr(here)
        blocked = run_sync(shell, "import asyncio\nawait asyncio.sleep(0.01)\n'other loop'", OutputLog())
        assert asyncio.get_running_loop() is here
        await asyncio.sleep(0.01)
        return awaited, blocked

    awaited, blocked = asyncio.run(outer())
    assert awaited.error is None
    assert blocked.result == "'other loop'"


def test_output_is_head_and_tail_within_the_cap(shell: Any) -> None:
    got = run(shell, "for i in range(20_000): print(i)", max_chars=2_000)
    assert got.output.startswith("0\n1\n")
    assert got.output.endswith("19998\n19999\n")
    assert "characters of output left out here" in got.output
    assert len(got.output) < 2_100


def test_output_has_no_escapes_surrogates_or_old_progress(shell: Any) -> None:
    got = run(shell, "print('\\x1b[31mred\\x1b[0m \\ud800 \\x00 \\x1b]0;title\\x07.')\nprint('1%\\r50%\\r100%')")
    assert got.output == "red \ufffd  .\n100%\n"
    assert run(shell, "'\\x1b[1m\\ud800'").result is not None
    run(shell, "'\\ud800'").result.encode()  # type: ignore[union-attr]  # the line before shows that there is one


def test_a_thread_that_prints_later_stays_out_of_the_next_run(shell: Any, capsys: pytest.CaptureFixture[str]) -> None:
    code = (
        "import threading, time, sys\ndef late():\n  time.sleep(0.15)\n  print('late'); print('e', file=sys.stderr)\n"
        "t = threading.Thread(target=late); t.start()\nprint('now')"
    )
    first = run(shell, code)
    second = run(shell, "t.join(); print('second')")
    assert first.output == "now\n"
    assert second.output == "second\n"
    assert capsys.readouterr().out == "late\n"


def test_threads_of_the_run_are_captured(shell: Any) -> None:
    code = "import threading\nt = threading.Thread(target=lambda: print('inner')); t.start(); t.join()"
    assert run(shell, code).output == "inner\n"


def test_logging_handlers_that_code_made_are_captured_later(shell: Any) -> None:
    root = logging.getLogger()
    handlers = root.handlers[:]
    root.handlers.clear()
    try:
        got = run(shell, "import logging\nlogging.basicConfig(force=True)\nlogging.warning('logged')")
        again = run(shell, "logging.warning('again')")
    finally:
        root.handlers[:] = handlers
    assert "WARNING:root:logged" in got.output
    assert "WARNING:root:again" in again.output


def test_a_change_of_folder_stays_and_is_said(shell: Any, tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    got = run(shell, "import os; os.chdir('sub')")
    assert "working directory is now" in got.output
    assert Path.cwd() == tmp_path / "sub"
    gone = run(shell, "import os; os.rmdir(os.getcwd())")
    assert gone.error is None
    os.chdir(tmp_path)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="fork is POSIX")
@pytest.mark.parametrize("end", ["os._exit(0)", "raise SystemExit", "pass"])
def test_a_forked_child_does_not_go_on_as_the_session(shell: Any, tmp_path: Path, end: str) -> None:
    got = run(shell, f"import os\npid = os.fork()\nif pid == 0:\n  {end}\nelse:\n  print(os.waitpid(pid, 0)[0] == pid)")
    (tmp_path / f"went-on-{os.getpid()}").touch()
    assert got.output == "True\n"
    assert len(list(tmp_path.glob("went-on-*"))) == 1


def test_figures_are_pictures_and_are_closed(shell: Any) -> None:
    use = "import matplotlib; matplotlib.use('agg')\nimport matplotlib.pyplot as plt\n"
    run(shell, use + "plt.close('all')")  # those of other tests in this process
    got = run(shell, use + "fig = plt.figure(figsize=(30, 3))")
    (picture,) = got.images
    assert picture.media_type == "image/png"
    import io

    import PIL.Image

    assert max(PIL.Image.open(io.BytesIO(picture.data)).size) <= 1568
    assert run(shell, "plt.get_fignums()").result == "[]"


FIGURE_THAT_CANNOT_BE_CLOSED = """
import matplotlib
matplotlib.use('agg')
import matplotlib.pyplot as plt
figure = plt.figure()
def refuse():
    raise RuntimeError('stays open')
figure.canvas.manager.destroy = refuse
print('drawn')
"""


def test_a_figure_that_cannot_be_closed_leaves_the_shell_as_it_was(shell: Any) -> None:
    before = state(shell)
    got = run(shell, FIGURE_THAT_CANNOT_BE_CLOSED)
    assert got.output == "drawn\n"
    assert any("cannot be closed: RuntimeError('stays open')" in text for text in got.displays)
    assert state(shell) == before


OPTION_THAT_CANNOT_BE_PUT_BACK = """
class Stuck(type(get_ipython().display_formatter.formatters['text/plain'])):
    def __setattr__(self, name, value):
        if name == 'enabled' and value is not stuck:
            raise RuntimeError('no way back')
        super().__setattr__(name, value)
stuck = object()
get_ipython().display_formatter.formatters['text/latex'].__class__ = Stuck
"""


def test_whatever_cannot_be_put_back_keeps_nothing_else_from_it(shell: Any) -> None:
    before = state(shell)
    latex = shell.display_formatter.formatters["text/latex"]
    kind = type(latex)
    try:
        with pytest.raises(RuntimeError, match="no way back"):
            run(shell, OPTION_THAT_CANNOT_BE_PUT_BACK)
    finally:
        latex.__class__ = kind
    assert state(shell) == before
    assert run(shell, "print('as ever')").output == "as ever\n"


@pytest.mark.skipif(sys.platform == "win32", reason="select knows sockets only there")
def test_descriptors_above_1023_can_be_waited_for() -> None:
    import resource

    most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(most[0], min(2_100, most[1])), most[1]))
    reader, writer = os.pipe()
    high = os.dup2(reader, 2_000)
    try:
        assert not readable(high)
        os.write(writer, b"x")
        assert readable(high, 1.0)
        drain([type("Stream", (), {"_fid": high})()])
    finally:
        for descriptor in (high, reader, writer):
            os.close(descriptor)
        resource.setrlimit(resource.RLIMIT_NOFILE, most)


def test_tracebacks_that_the_code_shows_itself_are_output(shell: Any) -> None:
    got = run(shell, "try:\n  1/0\nexcept Exception:\n  get_ipython().showtraceback()\nprint('on')")
    assert "ZeroDivisionError" in got.output
    assert got.error is None


def test_rebinding_is_found_by_identity(shell: Any) -> None:
    class Big:
        pass

    shell.user_ns.update(a=Big(), b=1, c=[1])
    got = run(shell, "c.append(2)\nb = 2\ndel a\nclass Small: pass\na = Small()")
    assert got.rebound == ("a", "b")
    assert got.added == ("Small",)


@pytest.mark.paced
@pytest.mark.skipif(sys.platform == "win32", reason="sends SIGINT to itself")
def test_without_a_dispatcher_ctrl_c_interrupts_as_always(shell: Any) -> None:
    timer = threading.Timer(0.2, lambda: signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT))
    timer.start()
    began = time.monotonic()
    got = run(shell, "done = 1\nimport time; time.sleep(30)")
    assert got.interrupted
    assert got.added == ("done", "time")
    assert time.monotonic() - began < within(5, 25)


def test_a_script_shell_writes_nothing_and_leaves_main_alone(tmp_path: Path) -> None:
    main = sys.modules["__main__"]
    namespace: dict[str, Any] = {"x": 20}
    private = make_shell(namespace)
    got = run_sync(private, "y = x + 1; y", OutputLog())
    assert got.result == "21"
    assert namespace["y"] == 21
    assert sys.modules["__main__"] is main
    assert list(tmp_path.iterdir()) == []


def test_a_carriage_return_in_an_errors_message_hides_nothing_before_it() -> None:
    for said in ("a\rb", "a\b\b\b\b\b\bb", "a\x1b[2K\x1b[1Ab"):
        error = type("Q", (Exception,), {})(said)
        assert "Q: a" in render_failure(error)
        assert last_line(error).startswith("Q: a")
    assert render_failure(type("Q", (Exception,), {})("a\rb")).endswith("Q: a␍b")
