"""What reaches the model of a result: all of it, or a preview of what is kept in a file.

The file comes first, then the event that names it, then the result itself. When the disk fails, or
the layer is off, the result is cut as it was before there were files.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from ipyagent.context.store_results import FullResult, StoredResult, is_large, store, store_results, text_of
from ipyagent.context.thresholds import message_chars
from ipyagent.journal.events import Block, LayerFailed
from ipyagent.journal.journal import clean
from ipyagent.journal.protocols import ObjectRef, ToolOutput, Workspace
from ipyagent.kernel.variables import preview
from ipyagent.loop.redacting import without_secrets
from ipyagent.loop.session import Session
from ipyagent.model.endpoint import own_keys
from ipyagent.redaction import Redactor
from ipyagent.tools.answers import capped, plain


def place_of(folder: Path, workspace: Workspace) -> str:
    """A session's folder as tools, code and shell name it: relative to the notebook's folder."""
    try:
        return Path(os.path.relpath(folder, workspace.folder)).as_posix()
    except ValueError:  # another drive
        return folder.as_posix()


def hidden(text: str) -> str:
    """The text without the model's own key, which code can print as it likes."""
    for key in own_keys():
        text = text.replace(key, "[key]")
    return text


async def kept(
    session: Session, call: Block, output: ToolOutput, workspace: Workspace, redact: Redactor
) -> StoredResult:
    """The blocks that the model gets of a call's output, and what the person gets; what is stored is journalled.

    A stop meanwhile does not lose the result: the cancellation comes at the caller's next await.
    """
    blocks = without_secrets((_without_keys(block) for block in output.blocks), redact)
    if not session.setting(f"layer_{store_results.name}"):
        return StoredResult(blocks)
    own = getattr(session.tools.get(str(call["name"])), "store_chars", None)
    limit = int(own) if own is not None else workspace.limit("store_chars")
    live = output.live
    raw = _raw(live)
    raw = None if raw is None else redact.raw(raw)
    if not is_large(blocks, limit) and (raw is None or len(raw) <= limit):
        return StoredResult(blocks)
    if live is not None and live.alone and type(live.value) is str:  # its text, not its repr
        given = capped(plain(clean(live.value)), workspace.limit("tool_output_chars"))
        text = redact(hidden(given))
        blocks = ({"type": "text", "text": text}, *(block for block in blocks if block["type"] != "text"))
    bound = workspace.limit("tool_output_chars")
    if sum(len(block["text"]) for block in blocks if block["type"] == "text") > bound:
        text = capped(text_of(blocks), bound)
        blocks = ({"type": "text", "text": text}, *(block for block in blocks if block["type"] != "text"))
    whole = FullResult(call=str(call["id"]), blocks=blocks, raw=raw)
    most = workspace.limit("preview_chars")
    if live is not None:
        handle, look = await _held(session, whole.call, live, most, workspace)
        look = redact(hidden(clean(look)))
        whole = msgspec.structs.replace(whole, handle=handle, look=look, alone=live.alone)
    try:
        folder = session.journal.folder
        stored = store(whole, folder=folder, place=place_of(folder, workspace), limit=limit, preview=most)
    except (OSError, ValueError) as problem:
        reason = (problem.strerror if isinstance(problem, OSError) else None) or problem
        why = f"a result could not be kept in a file ({reason}): it is cut"
        session.record(LayerFailed(layer=store_results.name, why=why))
        most = message_chars(int(session.setting("tool_output_chars")), session.info.window)
        return StoredResult(tuple(_cut(block, most) for block in blocks))
    for event in stored.events:
        session.record(event)
    return stored


async def _held(session: Session, call: str, live: ObjectRef, most: int, workspace: Workspace) -> tuple[str, str]:
    """The object's handle and what it looks like, read on the thread that owns it."""
    hold: Callable[[str, Any], str] | None = session.hold

    def on_main() -> tuple[str, str]:
        handle = hold(call, live.value) if hold is not None else ""
        text = type(live.value) is str
        return handle, "" if text else preview(live.value, limit=most)

    try:
        found: tuple[str, str] = await workspace.on_main(on_main)
    except asyncio.CancelledError:
        task = asyncio.current_task()
        if task is not None and task.cancelling():  # delivered again once the result is journalled
            task.uncancel()
            task.cancel()
        return "", ""
    return found


def _raw(live: ObjectRef | None) -> bytes | None:
    """The bytes that a result is, without the model's own key."""
    if live is None or not live.alone or type(live.value) not in (bytes, bytearray):
        return None
    data = bytes(live.value)
    for key in own_keys():
        data = data.replace(key.encode(), b"[key]")
    return data


def _without_keys(block: Block) -> Block:
    return {**block, "text": hidden(block["text"])} if block["type"] == "text" else block


def _cut(block: Block, limit: int) -> Block:
    return {**block, "text": capped(block["text"], limit)} if block["type"] == "text" else block
