"""What a page with our companion (`labextension/`) shows of the agent around its notebook, and what it asks for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ipyagent.extension import Extension
    from ipyagent.kernel.page import PageLink


class Companion:
    """One kernel's: status bar, board at the side, Stop, and whether a cell ran as it stands."""

    def __init__(self, extension: Extension, link: PageLink) -> None:
        self._extension, self._link = extension, link
        link.on_change(self.tell)
        link.listen(self._hear)

    def __repr__(self) -> str:
        return f"<Companion over {self._link!r}>"

    def tell(self, result: Any = None) -> None:
        """What is so now, to every page; also a `post_run_cell` callback."""
        if self._link.met:
            self._link.send({"kind": "status", **self.status()})

    def status(self) -> dict[str, Any]:
        """Model, context and cost in words for the page, and whether a turn runs."""
        from ipyagent.ui.meter import dollars

        agent, settings = self._extension.agent_made, self._extension.settings
        session = agent.session if agent is not None else None
        if agent is None or session is None:
            return {"model": settings.model_words, "context": "", "cost": "", "busy": False}
        status, window = session.status(), agent.state_of(session)
        percent = 100 * window.tokens / max(1, window.window)
        share = f"{percent:.0f}% context" if percent >= 1 else "<1% context"
        cost = "" if status.cost is None else dollars(status.cost)
        return {"model": session.info.model if session.connected else settings.model_words, "context": share,
                "cost": cost, "busy": agent.busy}  # fmt: skip

    def _hear(self, data: dict[str, Any]) -> None:
        """A page came, or its user asks for something; on any thread."""
        agent = self._extension.agent_made
        match data.get("kind"):
            case "hello":
                self.tell()
            case "stop" if agent is not None:
                agent.stop()
            case "panel":
                loop = getattr(self._extension.shell.kernel, "io_loop", None)
                if loop is not None:  # the board is made on the main thread
                    loop.add_callback(self._link.within, self._board)
            case "ran":
                ran = self._ran(data.get("count"), str(data.get("source")))
                self._link.send({"kind": "told", "page": data.get("page"), "id": data.get("id"), "ran": ran})
            case _:
                pass  # for others

    def _board(self) -> None:
        from ipyagent.extension.surfaces import live_board

        board = live_board(self._extension)
        board.serve()
        self._link.send({"kind": "board", "mark": board.mark})

    def _ran(self, count: object, source: str) -> bool:
        """Whether this kernel ran this source as input `count`."""
        manager = getattr(self._extension.shell, "history_manager", None)
        inputs = list(manager.input_hist_raw) if manager is not None else []
        return isinstance(count, int) and 0 < count < len(inputs) and inputs[count].rstrip() == source.rstrip()
