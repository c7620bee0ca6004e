"""From items to prompts and keys: the same question about the same thing has the same key, in any run."""

from __future__ import annotations

import hashlib
import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from ipyagent.errors import UsageError

FORMAT = 1
"""Goes up when the same key would no longer mean the same."""

_OBJECT = re.compile(r"^<.* at 0x[0-9a-fA-F]+>$|^<_io\.")
"""What Python calls an object that has no words of its own; its address is another one in the next run."""

Prompt = str | Callable[[Any], str]


class Question(msgspec.Struct, frozen=True):
    """`input` is what the row shows: the item where it is plain, else its text."""

    input: Any
    prompt: str
    key: str


def questions(items: Iterable[Any], prompt: Prompt | None, folder: Path, about: Mapping[str, Any]) -> list[Question]:
    """One for each item, in order. `about` is what else the answer depends on. A file that has changed (size
    or time) is another question, and so is the same one asked twice. Raises UsageError."""
    if isinstance(items, str | bytes | Path):
        raise UsageError("agent_map takes a list: of prompts, or of items with prompt='… {item} …'")
    seen: Counter[str] = Counter()
    found: list[Question] = []
    for item in items:
        text = _prompt(item, prompt, folder)
        facts = [FORMAT, text, _plain(item), _stamp(item, folder), dict(about)]
        once = hashlib.sha256(json.dumps(facts, sort_keys=True, default=str).encode()).hexdigest()[:24]
        seen[once] += 1
        found.append(Question(_plain(item), text, once if seen[once] == 1 else f"{once}-{seen[once]}"))
    return found


def _prompt(item: Any, prompt: Prompt | None, folder: Path) -> str:
    if callable(prompt):
        made = prompt(item)
        if not isinstance(made, str):
            raise UsageError(f"the prompt function gave {type(made).__name__} for {item!r}: let it return text")
        return made
    if prompt is None:
        if not isinstance(item, str):
            raise UsageError(f"{item!r} is no prompt; say what to do with it: prompt='Profile {{item}}'")
        return item
    fields = {str(name): value for name, value in item.items()} if isinstance(item, Mapping) else {}
    filled = {"item": item, **fields}
    if not any("{" + name + "}" in prompt for name in filled):
        raise UsageError(
            f"the prompt must name one of {', '.join('{' + name + '}' for name in filled)}: {prompt[:80]!r}"
        )
    # not str.format: other braces in a prompt are text, and so are those in a value
    names = re.compile("|".join(re.escape("{" + name + "}") for name in filled))
    return names.sub(lambda found: _named(filled[found[0][1:-1]], folder), prompt)


def _named(value: Any, folder: Path) -> str:
    if isinstance(value, Path):
        path = folder / value
        at_home = folder == Path.cwd() and path.is_relative_to(folder)  # else only the whole path leads there
        return path.relative_to(folder).as_posix() if at_home else path.as_posix()
    text = str(value)
    if _OBJECT.search(text):
        raise UsageError(f"{text[:80]} says nothing to a model: give a text, a number, a path, or a dict of them")
    return text


def _plain(item: Any) -> Any:
    if isinstance(item, Mapping):
        return {str(name): _plain(value) for name, value in item.items()}
    if isinstance(item, Sequence) and not isinstance(item, str | bytes):
        return [_plain(value) for value in item]
    if item is None or isinstance(item, str | bool | int | float):
        return item
    return item.as_posix() if isinstance(item, Path) else str(item)


def _stamp(item: Any, folder: Path) -> Any:
    if not isinstance(item, Path):
        return None
    try:
        stat = (folder / item).stat()
    except OSError:
        return None
    return [stat.st_size, stat.st_mtime_ns]
