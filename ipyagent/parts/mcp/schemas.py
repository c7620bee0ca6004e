"""Schemas and texts of outside tools, made fit for a request: one bad schema would have every request refused.

A schema that the server of the model would not take is replaced by an open object, and the description then
carries it as text, so that the tool can still be used.
"""

from __future__ import annotations

import inspect
import json
import re
from typing import Any

from ipyagent.journal.journal import clean, clean_json
from ipyagent.tools.schema import unwrapped

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


def _wrong(schema: dict[str, Any]) -> str:
    """Why the schema cannot go into a request; "" when it can."""
    if schema["type"] != "object" or not isinstance(schema["properties"], dict):
        return "not an object"
    if any(key in schema for key in _COMBINED):
        return "a combination at the top"
    if not all(_KEY.fullmatch(name) for name in schema["properties"]):
        return "a property's name"
    if not _local(schema, 0):
        return "too deep, or it refers to something outside"
    return _invalid(schema)


def _local(node: Any, depth: int) -> bool:
    if depth > MOST_DEPTH:
        return False
    if isinstance(node, list):
        return all(_local(item, depth + 1) for item in node)
    if not isinstance(node, dict):
        return True
    for key, value in node.items():
        if key in ("$ref", "$dynamicRef") and isinstance(value, str) and not value.startswith("#"):
            return False
    return all(_local(value, depth + 1) for value in node.values())


def _invalid(schema: dict[str, Any]) -> str:
    from jsonschema import Draft202012Validator
    from jsonschema.exceptions import SchemaError

    try:
        Draft202012Validator.check_schema(schema)
    except (SchemaError, RecursionError) as problem:
        return str(problem)
    return ""
