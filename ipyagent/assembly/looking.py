"""A look at what a layer would decide: no file is written, no hook called and no model asked."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from ipyagent.journal.events import Event
from ipyagent.journal.protocols import Forked, ForkOrder, Layer, LayerContext


class _Asks(Exception):
    """The layer has come to where it asks the model."""

    def __init__(self, order: ForkOrder) -> None:
        super().__init__(order.purpose)
        self.order = order


async def look(layer: Layer, now: LayerContext) -> Sequence[Event] | ForkOrder:
    """The layer's decisions, not recorded; or what it would ask the model for, without which there are none. Raises
    what the layer raises."""

    async def ask(order: ForkOrder) -> Forked:
        raise _Asks(order)

    async def no_hook(name: str, facts: dict[str, Any]) -> list[str]:
        return []

    try:
        return await layer.consider(msgspec.structs.replace(now, dry=True, fork=ask, hook=no_hook))
    except _Asks as asked:
        return asked.order
