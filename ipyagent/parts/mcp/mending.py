"""What a server sends, made fit for the SDK, which gives up a whole list for one tool, a whole result for one part of
it, and prints a traceback for a notification: what is null or absent is empty, what is of no known form is named in
words, and what nobody can use is left out."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ipyagent.journal.journal import clean_json

if TYPE_CHECKING:
    from mcp.client._transport import TransportStreams

GIVEN = "ipyagent/given"
"""Key in a tool's `_meta`: its schema as the server gave it, where the SDK would not take that."""
LIST, CALL = "tools/list", "tools/call"
UNUSED = ("notifications/message", "notifications/resources/", "notifications/prompts/")
_HINTS = ("readOnlyHint", "destructiveHint", "idempotentHint", "openWorldHint")


class Mended:
    """Stands between a transport's streams and the SDK. `nameless` counts the rows of the newest list of tools that
    name no tool."""

    def __init__(self) -> None:
        self.nameless = 0
        self._asked: dict[str, str] = {}
        """What was asked for, by a request's id."""

    def streams(self, streams: TransportStreams) -> TransportStreams:
        """The same streams, with what comes in mended."""
        read, write = streams
        return _Read(read, self), _Write(write, self)

    def going(self, message: Any) -> None:
        """A message goes out."""
        method = getattr(message, "method", None)
        if method in (LIST, CALL):
            self._asked[str(getattr(message, "id", None))] = method

    def coming(self, item: Any) -> Any:
        """What has come in; None for what is to be left out."""
        message = getattr(item, "message", None)
        method = getattr(message, "method", None)
        if method is not None and getattr(message, "id", None) is None:
            return item if self._heeded(method, message) else None
        if message is None or method is not None or not isinstance(getattr(message, "result", None), dict):
            return item
        asked, result = self._asked.pop(str(message.id), ""), message.result
        if result.get("resultType") not in (None, "complete"):
            return item  # it asks for something first
        if asked == LIST:
            result = self._listed(result)
        elif asked == CALL:
            result = _answered(result)
        return replace(item, message=message.model_copy(update={"result": result}))

    def _heeded(self, method: str, message: Any) -> bool:
        """Whether a notification is of use, and in its form."""
        if method.startswith(UNUSED):
            return False
        given = message.params
        if method == "notifications/tools/list_changed":
            message.params = None
        elif method == "notifications/progress":
            given = given if isinstance(given, dict) else {}
            token, done = given.get("progressToken"), given.get("progress")
            if not isinstance(token, str | int) or not _is_number(done):
                return False
            message.params = {"progressToken": token, "progress": done}
            if _is_number(given.get("total")):
                message.params["total"] = given["total"]
            if isinstance(given.get("message"), str):
                message.params["message"] = given["message"]
        elif method == "notifications/cancelled":
            return isinstance(given, dict) and isinstance(given.get("requestId"), str | int)
        return True

    def _listed(self, result: dict[str, Any]) -> dict[str, Any]:
        rows = result.get("tools")
        made = [_tool(row) for row in rows] if isinstance(rows, list) else []
        kept: dict[str, Any] = {**result, "tools": [tool for tool in made if tool is not None]}
        self.nameless = len(made) - len(kept["tools"])
        if not isinstance(kept.get("nextCursor"), str):
            kept.pop("nextCursor", None)
        return _with_meta(kept)


class _Read:
    def __init__(self, stream: Any, mended: Mended) -> None:
        self._stream, self._mended = stream, mended

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    async def receive(self) -> Any:
        while (item := self._mended.coming(await self._stream.receive())) is None:
            pass
        return item

    def __aiter__(self) -> _Read:
        return self

    async def __anext__(self) -> Any:
        while (item := self._mended.coming(await self._stream.__anext__())) is None:
            pass
        return item

    async def aclose(self) -> None:
        await self._stream.aclose()

    async def __aenter__(self) -> _Read:
        await self._stream.__aenter__()
        return self

    async def __aexit__(self, *why: Any) -> bool | None:
        ended: bool | None = await self._stream.__aexit__(*why)
        return ended


class _Write:
    def __init__(self, stream: Any, mended: Mended) -> None:
        self._stream, self._mended = stream, mended

    async def send(self, item: Any, /) -> None:
        self._mended.going(item.message)
        await self._stream.send(item)

    async def aclose(self) -> None:
        await self._stream.aclose()

    async def __aenter__(self) -> _Write:
        await self._stream.__aenter__()
        return self

    async def __aexit__(self, *why: Any) -> bool | None:
        ended: bool | None = await self._stream.__aexit__(*why)
        return ended


def _tool(row: Any) -> dict[str, Any] | None:
    """A tool of a list; None for what has no name."""
    if not isinstance(row, dict) or not isinstance(row.get("name"), str) or not row["name"]:
        return None
    schema, hints = row.get("inputSchema"), row.get("annotations")
    made: dict[str, Any] = {"name": row["name"], "inputSchema": schema}
    if not _is_plain(schema):
        made["inputSchema"] = {"type": "object"}
        made["_meta"] = {GIVEN: schema}
    made |= {key: row[key] for key in ("title", "description") if isinstance(row.get(key), str)}
    if isinstance(hints, dict):
        made["annotations"] = {name: hints[name] for name in _HINTS if isinstance(hints.get(name), bool)}
    return made


def _is_plain(schema: Any) -> bool:
    """Whether a schema is of the form that the protocol wants."""
    if not isinstance(schema, dict) or schema.get("type") != "object":
        return False
    properties, required = schema.get("properties", {}), schema.get("required", [])
    if not isinstance(properties, dict) or not all(isinstance(each, dict) for each in properties.values()):
        return False
    return isinstance(required, list) and all(isinstance(each, str) for each in required)


def _answered(result: dict[str, Any]) -> dict[str, Any]:
    """A call's result."""
    content, error, value = result.get("content"), result.get("isError"), result.get("structuredContent")
    if isinstance(content, str | dict):
        content = [{"type": "text", "text": content} if isinstance(content, str) else content]
    parts = [made for part in content for made in _part(part)] if isinstance(content, list) else []
    kept = {key: each for key, each in result.items() if key not in ("content", "isError", "structuredContent")}
    if isinstance(value, dict):
        kept["structuredContent"] = value
    elif value is not None:
        parts.append(_text(json.dumps(clean_json(value), ensure_ascii=False)))
    failed = error.strip().lower() not in ("", "false", "0", "no") if isinstance(error, str) else bool(error)
    return _with_meta({**kept, "content": parts, "isError": failed})


def _part(part: Any) -> Iterator[dict[str, Any]]:
    """A part of a result in the protocol's form; in words where it has none, nothing where nothing is in it."""
    if not isinstance(part, dict):
        if part is not None:
            yield _text(part if isinstance(part, str) else json.dumps(clean_json(part), ensure_ascii=False))
        return
    kind, media = part.get("type"), part.get("mimeType")
    media = {"mimeType": media} if isinstance(media, str) else {}
    match kind:
        case "text" if isinstance(part.get("text"), str):
            yield _text(part["text"])
        case "image" | "audio" if isinstance(part.get("data"), str):
            yield {"type": kind, "data": part["data"], "mimeType": "application/octet-stream", **media}
        case "resource" if isinstance(held := part.get("resource"), dict) and isinstance(held.get("uri"), str):
            media = {"mimeType": held["mimeType"]} if isinstance(held.get("mimeType"), str) else {}
            for key in ("text", "blob"):
                if isinstance(held.get(key), str):
                    yield {"type": kind, "resource": {"uri": held["uri"], key: held[key], **media}}
                    return
            yield _text(f"[resource {held['uri']}, empty]")
        case "resource_link" if isinstance(part.get("uri"), str):
            name = part["name"] if isinstance(part.get("name"), str) else part["uri"]
            about = {"description": part["description"]} if isinstance(part.get("description"), str) else {}
            yield {"type": kind, "uri": part["uri"], "name": name, **about}
        case "text" | "image" | "audio" | "resource" | "resource_link":
            if kind != "text":
                yield _text(f"[a part of type {kind} that holds nothing]")
        case str():
            yield _text(f"[a part of the unknown type {kind[:60]} was left out]")
        case _:
            pass


def _text(words: str) -> dict[str, Any]:
    return {"type": "text", "text": words}


def _with_meta(result: dict[str, Any]) -> dict[str, Any]:
    return result if isinstance(result.get("_meta"), dict) else {k: v for k, v in result.items() if k != "_meta"}


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
