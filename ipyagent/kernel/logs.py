"""Log lines: what libraries write about work of ours stays out of the user's own log."""

from __future__ import annotations

import logging
import sys
import types

LIBRARIES = frozenset(
    (
        "anthropic", "httpx", "httpx2", "httpcore", "httpcore2", "h11", "h2", "hpack", "mcp", "asyncio", "ipyagent",
        "huggingface_hub", "urllib3", "filelock", "fsspec", "concurrent", "markdown_it", "pygments", "PIL", "psutil",
    )
)  # fmt: skip
"""What writes log lines about work of ours."""


_BETWEEN = LIBRARIES | {"logging", "contextlib"}
"""Whose frames stand between a log line and the code that called for it."""


class _Others(logging.Filter):
    """Lets no log line of a library through that works for us, on a thread of ours or called by our code: a user who
    turned logging on asked for their own."""

    def filter(self, record: logging.LogRecord) -> bool:
        if record.name.partition(".")[0] not in LIBRARIES:
            return True
        return not ((record.threadName or "").startswith("ipyagent") or _called_by_us())


def _called_by_us() -> bool:
    frame: types.FrameType | None = sys._getframe(2)
    while frame is not None:
        package = str(frame.f_globals.get("__name__", "")).partition(".")[0]
        if package == "ipyagent" or package not in _BETWEEN:
            return package == "ipyagent"
        frame = frame.f_back
    return False


_OTHERS = _Others()


def keep_logs_apart(cell: object = None) -> None:
    """See to it that the handlers of the root logger, which are the user's, show no log lines of ours. Called as
    `pre_run_cell`, too: a cell may have turned logging on."""
    for handler in logging.getLogger().handlers:
        handler.addFilter(_OTHERS)  # once, however often
