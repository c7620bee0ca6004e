"""A namespace of its own for a run, in a real shell."""

from __future__ import annotations

import os
import pickle
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ipyagent.kernel.execute import run_sync
from ipyagent.kernel.output import OutputLog
from ipyagent.kernel.scope import IsolatedNamespace, make_shell, users_namespace
from ipyagent.kernel.workspace import NAME, LiveObjects


@pytest.fixture
def shell() -> Iterator[Any]:
    made = make_shell()
    before = sys.modules["__main__"]
    sys.modules["__main__"] = made.user_module  # as in a kernel
    yield made
    sys.modules["__main__"] = before


def run(shell: Any, code: str, scope: IsolatedNamespace) -> Any:
    with scope:
        return run_sync(shell, code, OutputLog(10_000, 10_000))


def test_names_are_its_own_in_every_run_and_objects_are_shared(shell: Any) -> None:
    shell.run_cell("rows = [1]\nkept = 1")
    scope = IsolatedNamespace(shell)
    run(shell, "rows.append(2)\nkept = 2\nnew = 3\ndel rows", scope)
    assert (shell.user_ns["rows"], shell.user_ns["kept"]) == ([1, 2], 1)
    assert "new" not in shell.user_ns
    assert (scope.namespace["kept"], scope.namespace["new"], "rows" in scope.namespace) == (2, 3, False)
    scope = IsolatedNamespace(shell)
    run(shell, "def double(x): return x * factor\nfactor = 3", scope)
    assert run(shell, "double(2)", scope).result == "6"
    assert run(shell, "%timeit -n1 -r1 double(2)", scope).error is None
    assert run(shell, "await __import__('asyncio').sleep(0)\ndouble(3)", scope).result == "9"
    assert "double" not in shell.user_ns


def test_pickle_finds_what_the_run_defined_and_the_users(shell: Any) -> None:
    shell.run_cell("class Theirs: pass")
    scope = IsolatedNamespace(shell)
    done = run(shell, "import pickle\nclass Own: pass\ntype(pickle.loads(pickle.dumps([Own(), Theirs()])))", scope)
    assert (done.error, done.result) == (None, "list")
    assert sys.modules["__main__"] is shell.user_module
    assert pickle.loads(pickle.dumps(shell.user_ns["Theirs"])) is shell.user_ns["Theirs"]


def test_the_working_directory_is_its_own(shell: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "inside").mkdir()
    scope = IsolatedNamespace(shell)
    run(shell, "import os; os.chdir('inside')", scope)
    assert os.getcwd() == str(tmp_path)
    assert "inside" in run(shell, "os.getcwd()", scope).result
    (tmp_path / "inside").rmdir()
    assert run(shell, "1 + 1", scope).result == "2"
    assert os.getcwd() == str(tmp_path)


def test_an_error_or_an_exit_leaves_the_shell_as_it_was(shell: Any) -> None:
    namespace, module = shell.user_ns, shell.user_module
    scope = IsolatedNamespace(shell)
    for code in ("1 / 0", "raise SystemExit", "raise KeyboardInterrupt", "def (", "exit()"):
        run(shell, code, scope)
        assert (shell.user_ns is namespace, shell.user_module is module) == (True, True)
        assert sys.modules["__main__"] is module
    known = {"In", "Out", "exit", "quit", "get_ipython", "open"}
    assert {name for name in namespace if not name.startswith("_")} <= known


def test_another_thread_finds_the_users_names_while_a_scope_is_in_use(shell: Any) -> None:
    users = shell.user_ns
    scope, inside, found, go = IsolatedNamespace(shell), threading.Event(), [], threading.Event()

    def look() -> None:
        inside.wait(60)
        found.append(users_namespace(shell))
        LiveObjects().install(shell)
        go.set()

    thread = threading.Thread(target=look)
    thread.start()
    with scope:
        inside.set()
        assert go.wait(60)
        assert shell.user_ns is scope.namespace
        assert IsolatedNamespace(shell).users is users
    thread.join(60)
    assert found[0] is users
    assert NAME in users
    assert NAME not in scope.namespace


def test_a_scope_that_is_gone_leaves_nothing(shell: Any) -> None:
    import gc

    from ipyagent.kernel import scope

    gc.collect()
    before = len(scope._SCOPES)
    run(shell, "x = 1", IsolatedNamespace(shell))
    gc.collect()
    assert len(scope._SCOPES) == before
