"""A shell for scripts: the same execution without a notebook, a history file or a terminal."""

from __future__ import annotations

import sys
import tempfile
import threading
from typing import Any

_MAKING = threading.Lock()
"""A shell takes `__main__` for a moment: one thread after the other makes one."""


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
    home = tempfile.TemporaryDirectory(prefix="ipyagent-shell-")
    with _MAKING:
        main = sys.modules["__main__"]
        try:
            shell = InteractiveShell(  # type: ignore[no-untyped-call]
                config=config,
                user_ns={} if namespace is None else namespace,
                ipython_dir=home.name,
                profile_dir=ProfileDir(location=home.name, config=config),
            )
        finally:
            sys.modules["__main__"] = main
    vars(shell)["_ipyagent_home"] = home  # removed with the shell
    return shell
