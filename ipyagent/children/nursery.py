"""What sub-agents need of the place where they live: models, tools, rights, namespaces, money."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Protocol

from ipyagent.children.child import Child
from ipyagent.children.kinds import Kind
from ipyagent.journal.protocols import Model, Workspace
from ipyagent.kernel.scope import Scope
from ipyagent.loop.session import Session


class Nursery(Protocol):
    """What sub-agents are given; the kernel's (`ipyagent.assembly.children_desk`)."""

    def kinds(self) -> dict[str, Kind]:
        """The types there are now, the usual one first."""

    def number(self, name: str) -> float:
        """A setting by its name."""

    def connect(self, child: Child, session: Session, parent: Session, *, fresh: bool) -> Awaitable[None]:
        """Give a child's session its model, tools, rights and (when `fresh`) its head. Raises AgentError."""

    def scope(self, child: Child) -> Awaitable[tuple[Scope | None, str]]:
        """A namespace for its code, and what stands in it, in words."""

    def workspace(self, child: Child, session: Session, parent: Session, workspace: Workspace, call: str) -> Workspace:
        """What its tools may touch."""

    def give(self, child: Child) -> Awaitable[tuple[dict[str, str], str]]:
        """Put what it hands back into the user's namespace: the names, and those with their types in words."""

    def small(self, parent: Session) -> Awaitable[tuple[Model | None, str]]:
        """The model for progress lines and its name; None: there is none."""

    def no_small(self, name: str) -> bool:
        """The server does not have the small model `name`; whether another stands in for it from now on."""

    def paid(self, parent: Session, cost: float | None, most: float) -> None:
        """Count dollars (None: no price known; `most` for limits) into the parent's turn, or the day."""
