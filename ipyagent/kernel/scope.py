"""A namespace of its own for code that is not the user's to keep: the shell is turned to it for one run.

It begins as a shallow copy of the user's, so objects are shared and names are not. `In`, `Out`, `_` and
their like are not taken over, the working directory is its own, and afterwards the shell is as it was.
Enter and leave it on the main thread, around one run."""

from __future__ import annotations

import atexit
import contextlib
import functools
import os
import re
import sys
import tempfile
import threading
import types
from collections.abc import Callable, Mapping
from typing import Any, TypeVar
from weakref import WeakValueDictionary

T = TypeVar("T")

_SCOPES: WeakValueDictionary[int, IsolatedNamespace] = WeakValueDictionary()
"""By the identity of their namespaces."""
_HISTORY = re.compile(r"_{1,3}|_i{1,3}|_i?\d+|_[iod]h|In|Out")


def users_namespace(shell: Any) -> dict[str, Any]:
    """The user's own namespace, from any thread, also while a scope is in use on the main one."""
    found: dict[str, Any] = shell.user_ns  # read once: the main thread may turn the shell meanwhile
    scope = _SCOPES.get(id(found))
    return found if scope is None else scope.users


class IsolatedNamespace:
    """Made on the main thread. `extra` are names that are there beside the user's and are no variables."""

    def __init__(self, shell: Any, extra: Mapping[str, Any] | None = None) -> None:
        self._shell = shell
        self._module = types.ModuleType("__main__")
        self.users = users_namespace(shell)
        seed = {name: value for name, value in list(self.users.items()) if not _HISTORY.fullmatch(str(name))}
        inputs: list[str] = [""]
        outputs: dict[int, Any] = {}
        self.extra = dict(extra or {})
        self.namespace: dict[str, Any] = vars(self._module)
        self.namespace.update(seed)
        self.namespace.update(
            {"In": inputs, "_ih": inputs, "Out": outputs, "_oh": outputs, "_dh": [working_folder()], **self.extra}
        )
        self.seed = seed
        """The user's names as they were when this was made."""
        self._folder = working_folder()
        _SCOPES[id(self.namespace)] = self
        self._before: tuple[Any, Any, Any, str] | None = None

    def __repr__(self) -> str:
        return f"<IsolatedNamespace of {len(self.namespace)} names{', in use' if self._before is not None else ''}>"

    @property
    def hidden(self) -> dict[str, Any]:
        """Names in it that are no variables, with the values that make them so."""
        return {**self._shell.user_ns_hidden, **self.extra}

    def __enter__(self) -> IsolatedNamespace:
        shell = self._shell
        main = sys.modules.get("__main__")
        self._before = (shell.user_module, shell.user_ns, main, working_folder())
        if main is shell.user_module:  # pickle looks for the run's own classes there
            sys.modules["__main__"] = self._module
        shell.user_module, shell.user_ns = self._module, self.namespace
        _go(self._folder)
        return self

    def __exit__(self, *error: object) -> None:
        if self._before is None:
            return
        module, namespace, main, folder = self._before
        self._before = None
        self._folder = working_folder()
        self._shell.user_module, self._shell.user_ns = module, namespace
        if main is not None:
            sys.modules["__main__"] = main
        _go(folder)

    def calling(self, function: Callable[[], T]) -> Callable[[], T]:
        """The function, called inside."""

        def call() -> T:
            with self:
                return function()

        return call


def working_folder() -> str:
    """This process's; "" when it was deleted."""
    try:
        return os.getcwd()
    except OSError:
        return ""


def _go(folder: str) -> None:
    if folder and folder != working_folder():
        with contextlib.suppress(OSError):  # it was deleted meanwhile: code stays where it is, and says so by itself
            os.chdir(folder)


# ---- A shell for scripts: the same execution without a notebook, a history file or a terminal.

_MAKING = threading.Lock()
"""A shell takes `__main__` for a moment: one thread after the other makes one."""


@functools.cache
def _profile() -> tempfile.TemporaryDirectory[str]:
    """The profile folder of all private shells of this process; removed at its end."""
    return tempfile.TemporaryDirectory(prefix="ipyagent-shell-")


def make_shell(namespace: dict[str, Any] | None = None) -> Any:
    """A private InteractiveShell over `namespace` (a new one when None). Its profile is a temporary
    folder, it keeps no history, and the process's own `__main__` and shell stay what they are."""
    from IPython.core.interactiveshell import InteractiveShell
    from IPython.core.profiledir import ProfileDir
    from traitlets.config import Config

    config = Config()
    config.HistoryManager.enabled = False
    config.HistoryManager.hist_file = ":memory:"
    config.InteractiveShell.warn_venv = False
    with _MAKING:
        home = _profile().name
        main = sys.modules["__main__"]
        try:
            shell = InteractiveShell(  # type: ignore[no-untyped-call]
                config=config,
                user_ns={} if namespace is None else namespace,
                ipython_dir=home,
                profile_dir=ProfileDir(location=home, config=config),
            )
        finally:
            sys.modules["__main__"] = main
    atexit.unregister(shell.atexit_operations)  # it would keep the shell and all its variables to the end
    return shell
