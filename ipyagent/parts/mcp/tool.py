"""An outside tool as one of the model's: `mcp__<server>__<tool>`. In mode ask each call asks, unless a rule of the
user's with that name lets it run; in mode auto a call runs unless its server says that the tool is destructive, which
asks; in mode read_only only what its server says to be read-only may be asked for."""

from __future__ import annotations

import asyncio
import base64
import binascii
import json
import mimetypes
import os
import re
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any
from zlib import crc32

from ipyagent.errors import ToolFailure
from ipyagent.journal.blocks import json_object
from ipyagent.journal.events import Block
from ipyagent.journal.journal import FOLDER as RESULTS
from ipyagent.journal.journal import clean, clean_json
from ipyagent.journal.protocols import ObjectRef, Permission, PermissionQuestion, ToolOutput, Workspace
from ipyagent.nofollow import write_atomically
from ipyagent.parts.mcp.listing import OfferedTool
from ipyagent.parts.mcp.server import Server
from ipyagent.tools.answers import capped, picture, plain, text_block

if TYPE_CHECKING:
    from mcp_types import BlobResourceContents, CallToolResult, TextResourceContents


# ---- What an outside tool answers, as content blocks of a tool result: text within the caps, pictures scaled, and
# what the model cannot be given as such (sound, binary resources) in a file that the text names.

MOST_PARTS = 200
MOST_PICTURES = 8
MOST_FILES = 20
MOST_FILE_BYTES = 20_000_000

ENDINGS = {"audio/wav": ".wav", "audio/mpeg": ".mp3", "application/zip": ".zip", "application/gzip": ".gz"}
PNG = b"\x89PNG\r\n\x1a\n"

_PICTURES = ("image/png", "image/jpeg", "image/gif", "image/webp")
_MEDIA = re.compile(r"[\w.+-]{1,60}/[\w.+-]{1,60}")


class ResultFiles:
    """Files of one result, beside the session's stored results. `folder`: None keeps nothing; `named` gives a
    path as tools name it."""

    def __init__(self, folder: Path | None, named: Callable[[Path], str]) -> None:
        self._folder, self._named = folder, named
        self._count = 0

    def put(self, data: bytes, media: str) -> str:
        """Where it was kept, or why not, in words."""
        if self._folder is None or self._count >= MOST_FILES:
            return "not kept"
        if len(data) > MOST_FILE_BYTES:
            return f"not kept: over {MOST_FILE_BYTES // 1_000_000} MB"
        self._count += 1
        ending = ENDINGS.get(media) or mimetypes.MimeTypes().guess_extension(media) or ".bin"
        path = self._folder / f"mcp-{sha256(data).hexdigest()[:16]}{ending}"
        try:
            write_atomically(path, data)
        except OSError as problem:
            return f"not kept: {problem.strerror}"
        return f"kept in {self._named(path)}"


def output_of(result: CallToolResult, limit: int, kept: ResultFiles) -> ToolOutput:
    """The result as the model gets it; its texts together have `limit` characters and a note at most."""
    texts: list[str] = []
    pictures: list[Block] = []

    def image(data: str, media: str) -> None:
        if len(pictures) >= MOST_PICTURES:
            texts.append(f"[a further picture, {media}, is not shown]")
            return
        try:
            pictures.append(picture(mended_png(_decoded(data)), media))
            texts.append(f"[picture {len(pictures)}, {media}]")
        except ToolFailure as problem:
            texts.append(f"[a picture, {media}, is not shown: {problem}]")

    def binary(what: str, data: str, media: str) -> None:
        try:
            raw = _decoded(data)
        except ToolFailure as problem:
            texts.append(f"[{what}: {problem}]")
            return
        texts.append(f"[{what}, {media}, {len(raw):,} bytes, {kept.put(raw, media)}]")

    def resource(held: TextResourceContents | BlobResourceContents) -> None:
        media, uri = _media(held.mime_type), clean(str(held.uri))[:500]
        if hasattr(held, "text"):
            texts.append(f"[resource {uri}, {media}]\n{held.text}")
        elif media in _PICTURES:
            texts.append(f"[resource {uri}]")
            image(held.blob, media)
        else:
            binary(f"resource {uri}", held.blob, media)

    for part in result.content[:MOST_PARTS]:
        match part.type:
            case "text":
                texts.append(part.text)
            case "image":
                media = _media(part.mime_type)
                if media in _PICTURES:
                    image(part.data, media)
                else:
                    binary("picture", part.data, media)
            case "audio":
                binary("sound", part.data, _media(part.mime_type))
            case "resource":
                resource(part.resource)
            case "resource_link":
                about = f": {part.description}" if part.description else ""
                texts.append(f"[resource {part.name} at {part.uri}{about}]"[:2_000])
    if len(result.content) > MOST_PARTS:
        texts.append(f"[{len(result.content) - MOST_PARTS:,} more parts of the result were left out]")
    live = None
    if result.structured_content is not None:
        if not _said(result.structured_content, texts):
            texts.append(_json(result.structured_content))
        alone = not pictures and not result.is_error and len(texts) == 1
        live = ObjectRef(clean_json(result.structured_content), alone=alone)
    text = capped(plain("\n".join(texts)), limit) or "(no result)"
    note = f"{len(pictures)} picture{'s' * (len(pictures) > 1)}" if pictures else ""
    return ToolOutput(blocks=(text_block(text), *pictures), is_error=bool(result.is_error), note=note, live=live)


def named_from(folder: Path) -> Callable[[Path], str]:
    """Names paths as tools do: relative to the notebook's folder."""

    def named(path: Path) -> str:
        try:
            return Path(os.path.relpath(path, folder)).as_posix()
        except ValueError:  # another drive
            return path.as_posix()

    return named


def _decoded(data: str) -> bytes:
    try:
        return base64.b64decode(data, validate=False)
    except (binascii.Error, ValueError) as problem:
        raise ToolFailure(f"what the server sent is not base64: {problem}") from None


def mended_png(data: bytes) -> bytes:
    """A PNG without side information that is damaged, for which readers would refuse the picture; anything else
    as it is."""
    if data[:8] != PNG:
        return data
    kept, at = [PNG], 8
    while at + 12 <= len(data):
        end = at + 12 + int.from_bytes(data[at : at + 4], "big")
        kind = data[at + 4 : at + 8]
        sound = crc32(data[at + 4 : end - 4]) == int.from_bytes(data[end - 4 : end], "big")
        if sound or kind[:1].isupper():  # a capital: the picture itself
            kept.append(data[at:end])
        at = end
    return b"".join(kept)


def _media(given: str | None) -> str:
    media = (given or "application/octet-stream").partition(";")[0].strip().lower()
    return media if _MEDIA.fullmatch(media) else "application/octet-stream"


def _said(value: Any, texts: list[str]) -> bool:
    """Whether one of the texts is the same value already, as servers are asked to give it."""
    for text in texts:
        try:
            if json.loads(text) == value:
                return True
        except (ValueError, RecursionError):
            continue
    # servers that give one text give it as the only value too
    return isinstance(value, dict) and len(value) == 1 and "\n".join(texts) == str(next(iter(value.values())))


def _json(value: Any) -> str:
    try:
        return json.dumps(value, ensure_ascii=False)
    except (TypeError, ValueError, RecursionError) as problem:
        return f"[a structured result that is not JSON: {problem}]"


MOST_TIMES = 4
"""Times `tool_output_chars` that a result may have on its way to the layer that keeps it in a file."""


def _never_null(kind: object) -> bool:
    """Whether the type that a schema names has no null."""
    return isinstance(kind, str) and kind != "null"


class OutsideTool:
    """`deferred`: its schema is not in the requests; the model finds it through `tool_search`."""

    parallel = False
    recreatable = False

    def __init__(self, name: str, server: Server, offered: OfferedTool, *, deferred: bool = False) -> None:
        self.name = name
        self.server = server
        self.offered = offered
        self.deferred = deferred
        self.description = offered.description or offered.title or f"{offered.name} of {server.entry.name}"
        self.input_schema = offered.schema

    def __repr__(self) -> str:
        return f"<tool {self.name}{' (deferred)' if self.deferred else ''}>"

    def validate(self, input: dict[str, Any]) -> dict[str, Any]:
        """The arguments, without each null that stands for one that may be left out; the server looks closer. Raises
        ToolFailure for what lacks a required one."""
        if not isinstance(input, dict):
            raise ToolFailure(f"{self.name}: the arguments are an object")
        required = self.input_schema.get("required")
        missing = [str(key) for key in required if key not in input] if isinstance(required, list) else []
        if missing:
            schema = json.dumps(self.input_schema, ensure_ascii=False)[:4_000]
            raise ToolFailure(f"{self.name}: missing {', '.join(missing)}. The arguments, as JSON schema: {schema}")
        if None not in input.values():
            return input
        named, needed = json_object(self.input_schema.get("properties")), required if isinstance(required, list) else ()
        kinds = {key: json_object(named.get(key)).get("type") for key in input if key not in needed}
        return {key: value for key, value in input.items() if value is not None or not _never_null(kinds.get(key))}

    def permission(self, input: dict[str, Any], workspace: Workspace) -> Permission:
        return "ask"

    def writes(self, input: dict[str, Any], workspace: Workspace) -> bool:
        return not self.offered.reads

    def destructive(self, input: dict[str, Any], workspace: Workspace) -> str:
        return f"its server says that {self.offered.name} may destroy something" if self.offered.destroys else ""

    def pattern(self, input: dict[str, Any], workspace: Workspace) -> str:
        return self.name

    def question(self, input: dict[str, Any], workspace: Workspace) -> PermissionQuestion:
        text = json.dumps(clean_json(input), indent=2, ensure_ascii=False, default=str)
        title = f"Call {self.offered.name} of the MCP server {self.server.entry.name}?"
        return PermissionQuestion(title=title, text=text, language="json")

    async def run(self, input: dict[str, Any], workspace: Workspace) -> ToolOutput:
        """Raises ToolFailure when the server does not answer; its own errors are results."""
        result = await self.server.call(self.offered.name, clean_json(input), workspace.stream)
        log = self.server.log
        folder: Path | None = log.folder / RESULTS if log.folder is not None else None
        limit = workspace.limit("tool_output_chars")
        most = max(limit, min(MOST_TIMES * limit, workspace.limit("whole_chars")))
        kept = ResultFiles(folder, named_from(workspace.folder))
        return await asyncio.to_thread(output_of, result, most, kept)  # scaling a picture takes its time
