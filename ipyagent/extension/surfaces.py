"""Where a cell's turn is shown: a live panel, output written anew, a terminal, text at the end, or nowhere."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from ipyagent.assembly.requests import NullSurface
from ipyagent.errors import UsageError, nearest
from ipyagent.kernel.frontend import route_clicks

if TYPE_CHECKING:
    from ipyagent.extension import Extension
    from ipyagent.extension.dashboard import Dashboard
    from ipyagent.journal.events import PermissionAsked
    from ipyagent.journal.protocols import PermissionAnswer, Surface
    from ipyagent.journal.recorded import Recording
    from ipyagent.ui.items import ReadLine


class PromptOnlySurface(NullSurface):
    """Shows nothing but its questions, on a line of input that `read_line` reads."""

    can_ask = True

    def __init__(self, read_line: ReadLine) -> None:
        self._read_line = read_line

    async def ask(self, asked: PermissionAsked) -> PermissionAnswer:
        from ipyagent.ui.items import ask_on_a_line

        return await ask_on_a_line(self._read_line, asked, words=asked.text)


def surface_of(
    extension: Extension, cell: str, *, quiet: bool, recording: Recording | None = None
) -> Surface:
    """The surface for a turn of the cell with this id ("": not known); `quiet`: only its answer is shown, later;
    `recording`: what is replayed on it, and stays with it."""
    shell, agent = extension.shell, extension.agent_now
    front = extension.front
    if quiet:
        return PromptOnlySurface(agent.ask_line) if front.can_input else NullSurface()
    if front.kind == "terminal":
        from ipyagent.ui.terminal import TerminalSurface

        return TerminalSurface(agent.ask_line)
    captured = type(shell.display_pub).__name__ == "CapturingDisplayPublisher"  # %%capture
    if front.live_widgets and not captured:
        return _panel(extension, cell, recording)
    if front.person and not captured:
        from ipyagent.ui.terminal import MirrorSurface

        return MirrorSurface(agent.ask_line, recording=recording)
    from ipyagent.ui.terminal import TextSurface

    return TextSurface(recording=recording)


def _panel(extension: Extension, cell: str, recording: Recording | None) -> Surface:
    from ipyagent.extension.work_cells import as_cells, buttons_of
    from ipyagent.parts.memory import MemoryPart
    from ipyagent.parts.memory.browsing import MemoryUndo
    from ipyagent.ui.panel import PanelSurface

    agent = extension.agent_now
    part = agent.parts.get(MemoryPart)
    return PanelSurface(
        agent.stop,
        partial(route_clicks, extension.shell.kernel),
        undo_actions=MemoryUndo(part.memories, lambda: agent.session) if part is not None else None,
        buttons=buttons_of(extension),
        as_cells=as_cells(extension, cell),
        read_line=agent.ask_line,
        recording=recording,
    )


# ---- `%agent panel [TAB]`: the board in a live front-end, its static form in another kernel, text in a terminal.

def run_panel(extension: Extension, line: str) -> str:
    """Open the board on a tab; the text to print, "" when it was shown. Raises UsageError."""
    from ipyagent.extension.dashboard import tab_names

    tab, known = line.strip() or "context", tab_names(extension.agent_now)
    if tab not in known:
        raise UsageError(f"there is no tab {tab!r}; %agent panel [{'|'.join(known)}]{nearest(tab, known)}")
    if is_live(extension):
        live_board(extension).open(tab)
        return ""
    return _told(extension, tab if line.strip() else "")


def is_live(extension: Extension) -> bool:
    """Whether a board can be opened now: somebody sees widgets, and no turn's code asks for it."""
    return extension.front.live_widgets and not extension.agent_now.busy


def _told(extension: Extension, only: str) -> str:
    """The part that is named by `only`, or all of them: static in a kernel, else the text."""
    from ipyagent.extension.dashboard import Dashboard, board_lines, static_board

    shell = extension.shell
    board = Dashboard(extension.agent_now, shell)
    board.read_now()
    try:
        if getattr(shell, "kernel", None) is None:
            return "\n".join(board_lines(board, only))
        shell.display_pub.publish(static_board(board, only=only))
        return ""
    finally:
        board.close()


def live_board(extension: Extension) -> Dashboard:
    """The one board of this kernel."""
    from ipyagent.extension.dashboard import Dashboard

    if extension.board is None:
        shell = extension.shell
        extension.board = Dashboard(extension.agent_now, shell, partial(route_clicks, shell.kernel))
    return extension.board  # type: ignore[no-any-return] # kept as anything, since it is imported on use

