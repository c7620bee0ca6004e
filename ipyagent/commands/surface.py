"""Where a cell's turn is shown: a live panel, output written anew, a terminal, text at the end, or nowhere."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ipyagent.assembly.listening import NullSurface
from ipyagent.kernel.frontend import route_clicks

if TYPE_CHECKING:
    from ipyagent.extension import Extension
    from ipyagent.journal.events import PermissionAsked
    from ipyagent.journal.protocols import PermissionAnswer, Surface
    from ipyagent.ui.asking import ReadLine


class PromptOnlySurface(NullSurface):
    """Shows nothing but its questions, on a line of input that `read_line` reads."""

    can_ask = True

    def __init__(self, read_line: ReadLine) -> None:
        self._read_line = read_line

    async def ask(self, asked: PermissionAsked) -> PermissionAnswer:
        from ipyagent.ui.asking import ask_on_a_line

        return await ask_on_a_line(self._read_line, asked, words=asked.text)


def surface_of(extension: Extension, cell: str, *, quiet: bool) -> Surface:
    """The surface for a turn of the cell with this id ("": not known); `quiet`: only its answer is shown, later."""
    shell, agent = extension.shell, extension.agent_now
    front = extension.front
    if quiet:
        return PromptOnlySurface(agent.ask_line) if front.can_input else NullSurface()
    if front.kind == "terminal":
        from ipyagent.ui.terminal import TerminalSurface

        return TerminalSurface(agent.ask_line)
    captured = type(shell.display_pub).__name__ == "CapturingDisplayPublisher"  # %%capture
    if front.live_widgets and not captured:
        return _panel(extension, cell)
    if front.person and not captured:
        from ipyagent.ui.mirror import MirrorSurface

        return MirrorSurface(agent.ask_line)
    from ipyagent.ui.text import TextSurface

    return TextSurface()


def _panel(extension: Extension, cell: str) -> Surface:
    from ipyagent.commands.cells import as_cells, door_of
    from ipyagent.remembering.taking_back import MemoryUndo
    from ipyagent.ui.panel import PanelSurface

    kernel, agent = extension.shell.kernel, extension.agent_now
    return PanelSurface(
        agent.stop,
        lambda comm, click: route_clicks(kernel, comm, click),
        deeds=MemoryUndo(agent.bench.memories, lambda: agent.session),
        door=door_of(extension),
        as_cells=as_cells(extension, cell),
        read_line=agent.ask_line,
    )
