"""The small protocols by which tools, models, layers and the loop know one another. This package is
their one door: `tools`, `models`, `layers` and `surfaces` are its rooms."""

from __future__ import annotations

from ipyagent.journal.protocols.layers import Forked, ForkOrder, Layer, LayerContext, Moment, Rates
from ipyagent.journal.protocols.models import (
    Model,
    ModelEvent,
    ModelInfo,
    ModelReply,
    Request,
    ResponseStarted,
    RetryWait,
    TextDelta,
    ThinkingDelta,
    ToolDelta,
)
from ipyagent.journal.protocols.surfaces import CellOutput, PermissionAnswer, Surface, TurnStatus, WindowState
from ipyagent.journal.protocols.tools import (
    REPLY,
    Children,
    Execution,
    Image,
    MessageOrder,
    Messages,
    ObjectRef,
    Permission,
    PermissionQuestion,
    SubagentOrder,
    Tool,
    ToolOutput,
    Workspace,
)

__all__ = [
    "REPLY",
    "CellOutput",
    "Children",
    "Execution",
    "ForkOrder",
    "Forked",
    "Image",
    "Layer",
    "LayerContext",
    "MessageOrder",
    "Messages",
    "Model",
    "ModelEvent",
    "ModelInfo",
    "ModelReply",
    "Moment",
    "ObjectRef",
    "Permission",
    "PermissionAnswer",
    "PermissionQuestion",
    "Rates",
    "Request",
    "ResponseStarted",
    "RetryWait",
    "SubagentOrder",
    "Surface",
    "TextDelta",
    "ThinkingDelta",
    "Tool",
    "ToolDelta",
    "ToolOutput",
    "TurnStatus",
    "WindowState",
    "Workspace",
]
