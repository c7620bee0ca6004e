"""What a server offers: its tools in the order of their names, fit for a request, bounded in number."""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import replace
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Self

import msgspec

from ipyagent.journal.journal import clean, clean_json
from ipyagent.tools.schema import unwrapped

if TYPE_CHECKING:
    from mcp import Client
    from mcp.client._transport import TransportStreams


# ---- Schemas and texts of outside tools, made fit for a request: one bad schema would have every request refused.
# A schema that the server of the model would not take is replaced by an open object, and the description then
# carries it as text, so that the tool can still be used.

MOST_SCHEMA = 20_000
MOST_DESCRIPTION = 2_000
MOST_SHOWN = 4_000
"""Characters of a schema as JSON; of a description; of a schema that is shown as text."""
MOST_DEPTH = 40

_KEY = re.compile(r"[a-zA-Z0-9_.-]{1,64}")
_COMBINED = ("oneOf", "anyOf", "allOf", "not", "if", "then", "else", "$ref", "$dynamicRef")
_OPEN: dict[str, Any] = {"type": "object", "properties": {}, "additionalProperties": True}


def fitted(schema: Any, description: str) -> tuple[dict[str, Any], str]:
    """Schema and description as they go into a request."""
    text = unwrapped(inspect.cleandoc(clean(description)))
    if len(text) > MOST_DESCRIPTION:
        text = text[:MOST_DESCRIPTION].rstrip() + " …"
    try:
        whole = json.dumps(clean_json(schema), ensure_ascii=False)
        tidy = json.loads(whole)
    except (TypeError, ValueError, RecursionError):
        return dict(_OPEN), text
    if not isinstance(tidy, dict):
        return dict(_OPEN), text
    tidy.pop("$schema", None)
    tidy.pop("$id", None)
    tidy = _resolved(tidy)
    for key, empty in (("type", "object"), ("properties", {})):
        tidy[key] = empty if tidy.get(key) is None else tidy[key]
    if isinstance(tidy["type"], list) and "object" in tidy["type"]:
        tidy["type"] = "object"
    if len(whole) <= MOST_SCHEMA and not _wrong(tidy):
        return tidy, text
    shown = whole if len(whole) <= MOST_SHOWN else whole[:MOST_SHOWN] + " …"
    return dict(_OPEN), f"{text}\n\nArguments, as JSON schema: {shown}".strip()


def _resolved(schema: dict[str, Any]) -> dict[str, Any]:
    """The schema with what it only refers to, when that stands in it."""
    path = schema.get("$ref")
    if not isinstance(path, str) or not path.startswith("#/"):
        return schema
    found: Any = schema
    for step in path[2:].split("/"):
        found = found.get(step.replace("~1", "/").replace("~0", "~")) if isinstance(found, dict) else None
    if not isinstance(found, dict):
        return schema
    return {**{key: value for key, value in schema.items() if key != "$ref"}, **found}


def _wrong(schema: dict[str, Any]) -> bool:
    """Whether the schema cannot go into a request."""
    from jsonschema import Draft202012Validator
    from jsonschema.exceptions import SchemaError

    if schema["type"] != "object" or not isinstance(schema["properties"], dict):
        return True
    if any(key in schema for key in _COMBINED) or not all(_KEY.fullmatch(name) for name in schema["properties"]):
        return True
    if not _local(schema, 0):
        return True
    try:
        Draft202012Validator.check_schema(schema)
    except (SchemaError, RecursionError):
        return True
    return False


def _local(node: Any, depth: int) -> bool:
    """Whether it is not too deep and refers to nothing outside."""
    if depth > MOST_DEPTH:
        return False
    if isinstance(node, list):
        return all(_local(item, depth + 1) for item in node)
    if not isinstance(node, dict):
        return True
    refers = [node[key] for key in ("$ref", "$dynamicRef") if isinstance(node.get(key), str)]
    return all(path.startswith("#") for path in refers) and all(_local(value, depth + 1) for value in node.values())


# ---- What a server sends, made fit for the SDK, which gives up a whole list for one tool, a whole result for one
# part of it, and prints a traceback for a notification: what is null or absent is empty, what is of no known form
# is named in words, and what nobody can use is left out.

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


class _Stream:
    """One of the SDK's, with what passes mended."""

    def __init__(self, stream: Any, mended: Mended) -> None:
        self._stream, self._mended = stream, mended

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    async def __aenter__(self) -> Self:
        await self._stream.__aenter__()
        return self

    async def __aexit__(self, *why: Any) -> bool | None:
        ended: bool | None = await self._stream.__aexit__(*why)
        return ended


class _Read(_Stream):
    async def receive(self) -> Any:
        while (item := self._mended.coming(await self._stream.receive())) is None:
            pass
        return item

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Any:
        while (item := self._mended.coming(await self._stream.__anext__())) is None:
            pass
        return item


class _Write(_Stream):
    async def send(self, item: Any, /) -> None:
        self._mended.going(item.message)
        await self._stream.send(item)


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


MOST_TOOLS = 1_000
MOST_PAGES = 50


class OfferedTool(msgspec.Struct, frozen=True, kw_only=True):
    """A tool as its server offers it; `schema` and `description` are fit for a request."""

    name: str
    title: str
    description: str
    schema: dict[str, Any]
    reads: bool = False
    """The server says that it changes nothing."""
    destroys: bool = False
    """The server says that it may destroy something."""


async def listed(client: Client) -> tuple[OfferedTool, ...]:
    """All tools, in the order of their names."""
    found: dict[str, OfferedTool] = {}
    cursor: str | None = None
    for _ in range(MOST_PAGES):
        page = await client.list_tools(cursor=cursor)
        for tool in page.tools:
            if len(found) >= MOST_TOOLS or not tool.name:
                continue
            hints = tool.annotations
            given = tool.meta[GIVEN] if tool.meta and GIVEN in tool.meta else tool.input_schema
            schema, description = fitted(given, tool.description or tool.title or "")
            found[tool.name] = OfferedTool(
                name=tool.name,
                title=clean(tool.title or "")[:200],
                description=description,
                schema=schema,
                reads=hints is not None and hints.read_only_hint is True,
                destroys=hints is not None and hints.read_only_hint is not True and hints.destructive_hint is True,
            )
        cursor = page.next_cursor
        if not cursor:
            break
    return tuple(found[name] for name in sorted(found))


# ---- Names of outside tools as the model knows them, `mcp__<server>__<tool>`: at most 64 letters, digits, `_` and
# `-`, the same for the same server and tool whatever else is there, so that a rule of the user's never comes to
# cover another tool. A name that cannot be used as it is gets a hash of what it is.

PREFIX = "mcp__"
MOST = 64
MOST_SERVER = 24
_HASH = 8

_ODD = re.compile(r"[^a-zA-Z0-9_-]+")


def server_part(name: str) -> str:
    """A server's part of its tools' names: without two underscores in a row, so that the parts can be told apart."""
    return _fitted(re.sub("_{2,}", "_", _ODD.sub("_", name)).strip("_"), name, MOST_SERVER)


def tool_names(part: str, tools: Iterable[str]) -> dict[str, str]:
    """The full name of each tool of the server whose part is `part`, by the server's own name for it. Two that
    would be the same (a tool called like another's hash): the later in order is left out."""
    room = MOST - len(PREFIX) - len(part) - 2
    made: dict[str, str] = {}
    for tool in sorted(tools):
        made.setdefault(f"{PREFIX}{part}__{_fitted(_ODD.sub('_', tool), tool, room)}", tool)
    return {tool: name for name, tool in made.items()}


def _fitted(safe: str, raw: str, room: int) -> str:
    """`safe` if it is the raw name and fits, else with the raw name's hash."""
    if safe == raw and len(safe) <= room and re.search("[a-zA-Z0-9]", safe):
        return safe
    mark = sha256(raw.encode("utf-8", "surrogatepass")).hexdigest()[:_HASH]
    stem = safe[: room - _HASH - 1].strip("_")
    return f"{stem}_{mark}" if stem else f"x{mark}"
