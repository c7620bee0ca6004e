"""`%agent panel [TAB]`: the board in a live front-end, its static form in another kernel, text in a terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ipyagent.errors import UsageError
from ipyagent.options import nearest

if TYPE_CHECKING:
    from ipyagent.extension import Extension
    from ipyagent.ui.board import Dashboard


def run_panel(extension: Extension, line: str) -> str:
    """Open the board on a tab; the text to print, "" when it was shown. Raises UsageError."""
    from ipyagent.ui.board import tabs_of

    tab, known = line.strip() or "context", list(tabs_of(extension.agent_now))
    if tab not in known:
        raise UsageError(f"there is no tab {tab!r}{nearest(tab, known)}; %agent panel [{'|'.join(known)}]")
    if is_live(extension):
        _live(extension).open(tab)
        return ""
    return _told(extension, tab if line.strip() else "")


def is_live(extension: Extension) -> bool:
    """Whether a board can be opened now: somebody sees widgets, and no turn's code asks for it."""
    return extension.front.live_widgets and not extension.agent_now.busy


def _told(extension: Extension, only: str) -> str:
    """The part that is named by `only`, or all of them: static in a kernel, else the text."""
    from ipyagent.ui.board import board_lines, static_board

    shell = extension.shell
    board = _board(extension, None)
    board.read_now()
    try:
        if getattr(shell, "kernel", None) is None:
            return "\n".join(board_lines(board, only))
        shell.display_pub.publish(static_board(board, only=only))
        return ""
    finally:
        board.close()


def _live(extension: Extension) -> Dashboard:
    """The one board of this kernel."""
    from ipyagent.kernel.frontend import route_clicks

    if extension.board is None:
        kernel = extension.shell.kernel
        extension.board = _board(extension, lambda comm, click: route_clicks(kernel, comm, click))
    return extension.board  # type: ignore[no-any-return] # kept as anything, since it is imported on use


def _board(extension: Extension, route: Any) -> Dashboard:
    from ipyagent.ui.board import Dashboard

    return Dashboard(extension.agent_now, extension.shell, route)
