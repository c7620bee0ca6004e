"""An agent with memory inside the kernel: `%load_ext ipyagent`, then write a request in a `%%agent` cell.

Public names: `Agent` (the same loop for scripts), `Options` and `TurnResult` (what goes in and
comes out of it), `agent_map` (the same job over many inputs), `IPyAgent` (the settings), `tool` (make
a function a tool), `hooks` (functions of yours at fixed points of a turn), `AgentError` (what a user
may catch). They are loaded on use; importing the package imports nothing heavy.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from ipyagent.version import __version__

_PUBLIC = {
    "Agent": "ipyagent.agent",
    "AgentError": "ipyagent.errors",
    "IPyAgent": "ipyagent.config",
    "Options": "ipyagent.assembly.requests",
    "TurnResult": "ipyagent.assembly.requests",
    "agent_map": "ipyagent.fleet.mapping",
    "hooks": "ipyagent.loop.hooks",
    "tool": "ipyagent.tools.schema",
}
__all__ = [
    "Agent",
    "AgentError",
    "IPyAgent",
    "Options",
    "TurnResult",
    "__version__",
    "agent_map",
    "hooks",
    "load_ipython_extension",
    "tool",
]

if TYPE_CHECKING:
    from ipyagent.agent import Agent
    from ipyagent.assembly.requests import Options, TurnResult
    from ipyagent.config import IPyAgent
    from ipyagent.errors import AgentError
    from ipyagent.fleet.mapping import agent_map
    from ipyagent.loop.hooks import hooks
    from ipyagent.tools.schema import tool


def __getattr__(name: str) -> Any:
    if name in _PUBLIC:
        return getattr(import_module(_PUBLIC[name]), name)
    raise AttributeError(f"module 'ipyagent' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *_PUBLIC})


def load_ipython_extension(shell: Any) -> None:
    """`%load_ext ipyagent`: register the magics. Makes no folder, opens no connection."""
    from ipyagent.extension.magics import load

    load(shell)


def unload_ipython_extension(shell: Any) -> None:
    """`%unload_ext ipyagent`: take everything back that loading did."""
    from ipyagent.extension.magics import unload

    unload(shell)
