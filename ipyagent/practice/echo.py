"""The brain of a server that was given none: says back what the user said, or the smallest instance of a schema."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from ipyagent.practice.replies import Reply, text


def echo(body: dict[str, Any]) -> Reply:
    """Answer with the last text of the last user message, or with JSON that fits `output_config.format`."""
    wanted = (body.get("output_config") or {}).get("format")
    if wanted:
        return text(json.dumps(smallest(wanted["schema"], wanted["schema"].get("$defs", {}))))
    last = next(message for message in reversed(body["messages"]) if message["role"] == "user")["content"]
    if isinstance(last, str):
        return text("echo: " + last)
    block = last[-1]
    return text(f"echo: {block.get('text') or block.get('content') or block['type']}")


def smallest(schema: Mapping[str, Any], defs: Mapping[str, Any]) -> Any:
    """The smallest value that fits a JSON schema of the subset structured output takes."""
    if "$ref" in schema:
        return smallest(defs[schema["$ref"].rsplit("/", 1)[-1]], defs)
    if "const" in schema:
        return schema["const"]
    if schema.get("enum"):
        return schema["enum"][0]
    for several in ("anyOf", "allOf"):
        if schema.get(several):
            return smallest(schema[several][0], defs)
    kind = schema.get("type")
    if isinstance(kind, list):
        kind = kind[0]
    if kind == "object":
        return {name: smallest(inner, defs) for name, inner in schema.get("properties", {}).items()}
    if kind == "array":
        return [smallest(schema["items"], defs)] * int(schema.get("minItems", 0)) if "items" in schema else []
    plain: dict[Any, Any] = {"string": "x", "integer": 0, "number": 0, "boolean": False}
    return plain.get(kind)
