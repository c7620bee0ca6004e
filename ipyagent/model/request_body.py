"""A request as the Messages API takes it, without what the server or the model lacks."""

from __future__ import annotations

from collections.abc import Container
from typing import Any

from ipyagent.journal.admission import THINKING
from ipyagent.journal.protocols import ModelInfo, Request
from ipyagent.journal.server_tools import as_text
from ipyagent.model.capabilities import (
    DIAGNOSIS_BETA,
    EDITS_BETA,
    LONG_BETA,
    WHOLE_THINKING,
    split_suffix,
    without_marks,
)
from ipyagent.model.compaction import compaction_betas, summaries_as_text
from ipyagent.model.server_tools import offered


def body_of(
    request: Request, info: ModelInfo, *, lacking: Container[str], thinking: bool, limit: int, betas: str
) -> dict[str, Any]:
    """Arguments of the SDK's `messages.create`. `lacking` are the optional parts that are left out,
    `limit` the most tokens of a reply, `betas` the header's value as it stands for all requests."""
    if "cache_control" in lacking:
        request = without_marks(request)
    body: dict[str, Any] = {
        "model": info.model,
        "max_tokens": min(request.max_tokens, limit),
        "messages": request.messages,
        "stream": True,
    }
    if request.system:
        body["system"] = request.system
    if tools := offered(request.tools, info, lacking):
        body["tools"] = tools
    if WHOLE_THINKING in lacking and "thinking" not in lacking and _has_gaps(request.messages):
        body["thinking"] = {"type": "disabled"}  # some think without being asked to (DeepSeek, Kimi)
    elif info.thinking and thinking and request.thinking and "thinking" not in lacking:
        body["thinking"] = {"type": "adaptive", "display": "summarized"}
    if request.effort and info.effort and "output_config" not in lacking:
        body["output_config"] = {"effort": request.effort}
    if request.schema is not None and "output_config" not in lacking:
        form = {"type": "json_schema", "schema": request.schema}
        body["output_config"] = {**body.get("output_config", {}), "format": form}
    asked = []
    if request.diagnose is not None and "diagnostics" not in lacking:
        body["diagnostics"] = {"previous_message_id": request.diagnose or None}
        asked.append(DIAGNOSIS_BETA)
    if request.edits is not None and "context_management" not in lacking:
        # the plain client is used for all servers; it knows the field in its beta half only
        edits = _possible(request.edits, thinking="display" in body.get("thinking", ()))
        body["extra_body"] = {"context_management": edits}
        asked.append(EDITS_BETA)
    if request.compaction is not None:
        body["extra_body"] = {"compaction": request.compaction}
    if info.compaction:
        asked += compaction_betas(body)
    else:  # another model, another server: what was summarised is told as text
        body["messages"] = summaries_as_text(request.messages)
    if not info.server_tools:
        body["messages"] = as_text(body["messages"])
    if split_suffix(request.model)[1] and info.source == "[1m] suffix":
        asked.append(LONG_BETA)
    if asked:
        known = [name.strip() for name in betas.split(",") if name.strip()]
        body["extra_headers"] = {"anthropic-beta": ",".join(dict.fromkeys([*known, *asked]))}
    return body


def _has_gaps(messages: list[dict[str, Any]]) -> bool:
    """Whether a tool call has lost the thinking before it, or had none."""
    kinds = ({block["type"] for block in message["content"]} for message in messages)
    return any("tool_use" in each and each.isdisjoint(THINKING) for each in kinds)


def _possible(edits: dict[str, Any], *, thinking: bool) -> dict[str, Any]:
    """The edits without that of thinking where the request does not ask for any: it would be refused."""
    if thinking:
        return edits
    kept = [edit for edit in edits["edits"] if not str(edit["type"]).startswith("clear_thinking")]
    return {**edits, "edits": kept}


def has_marks(body: dict[str, Any]) -> bool:
    """Whether cache marks are in a request."""
    places = [*body.get("system", ()), *body.get("tools", ())]
    places += [block for message in body["messages"] for block in message["content"]]
    return any("cache_control" in block for block in places)
