"""The small protocols by which tools, models, layers and the loop know one another. This package is
their one door: `tools`, `models`, `layers` and `surfaces` are its rooms."""

from __future__ import annotations

from ipyagent.journal.protocols.layers import Forked, ForkOrder, Layer, Moment, Rates, Situation
from ipyagent.journal.protocols.models import (
    Began,
    Model,
    ModelEvent,
    ModelInfo,
    Reply,
    Request,
    TextDelta,
    ThinkingDelta,
    ToolDelta,
    Waiting,
)
from ipyagent.journal.protocols.surfaces import Answer, CellOutput, Status, Surface, WindowState
from ipyagent.journal.protocols.tools import (
    REPLY,
    ChildOrder,
    Children,
    Execution,
    Image,
    Live,
    MessageOrder,
    Messages,
    Permission,
    Question,
    Tool,
    ToolOutput,
    Workspace,
)

__all__ = [
    "REPLY",
    "Answer",
    "Began",
    "CellOutput",
    "ChildOrder",
    "Children",
    "Execution",
    "ForkOrder",
    "Forked",
    "Image",
    "Layer",
    "Live",
    "MessageOrder",
    "Messages",
    "Model",
    "ModelEvent",
    "ModelInfo",
    "Moment",
    "Permission",
    "Question",
    "Rates",
    "Reply",
    "Request",
    "Situation",
    "Status",
    "Surface",
    "TextDelta",
    "ThinkingDelta",
    "Tool",
    "ToolDelta",
    "ToolOutput",
    "Waiting",
    "WindowState",
    "Workspace",
]
