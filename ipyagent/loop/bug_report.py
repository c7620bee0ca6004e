"""What a maintainer needs of a request that the server refused, without what nobody else may see."""

from __future__ import annotations

import json
import os
import platform
import re
from collections.abc import Mapping
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import msgspec

from ipyagent.journal.protocols import Request
from ipyagent.nofollow import names, remove, write_atomically
from ipyagent.redaction import mask, mask_named
from ipyagent.redaction.names import name_strength
from ipyagent.version import __version__

PACKAGES = ("anthropic", "httpx2", "ipykernel", "ipython", "ipywidgets", "jupyterlab", "msgspec")
LONGEST_DATA = 200
"""Characters of base64 that are kept of a picture or document."""
MOST_REPORTS = 5
"""Of a session: what fails again and again fails in the same way, and a report has a whole request."""
_NAME = re.compile(r"bug-report-(\d{1,12})\.json")


def write_report(
    folder: Path, number: int, what: str, request: Request | None = None, environ: Mapping[str, str] = os.environ
) -> str:
    """Write `bug-report-<number>.json` beside the transcript; the half sentence that names it."""
    held = [value for name, value in environ.items() if name_strength(name) and len(value) >= 8]
    report = {
        "what": what,
        "versions": {"ipyagent": __version__, "python": platform.python_version(), **_versions()},
        "system": f"{platform.system()} {platform.machine()}",
        "request": None if request is None else msgspec.to_builtins(request),
    }
    path = folder / f"bug-report-{number}.json"
    text = json.dumps(_bare(report, sorted(held, key=len, reverse=True)), ensure_ascii=False, indent=1)
    try:
        write_atomically(path, f"{text}\n".encode("utf-8", "replace"), make=False)
    except OSError as problem:
        return f"no bug report could be written to {path}: {problem.strerror}"
    for old in _reports(folder)[:-MOST_REPORTS]:
        with suppress(OSError):
            remove(folder / old)
    return f"for a bug report, without secrets: {path}"


def _reports(folder: Path) -> list[str]:
    """Their names in a folder, oldest first."""
    found = {name: int(match[1]) for name in names(folder) if (match := _NAME.fullmatch(name))}
    return sorted(found, key=lambda name: found[name])


def _versions() -> dict[str, str]:
    found = {}
    for name in PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue  # an extra that is not installed here
    return found


def _bare(value: Any, held: list[str], name: str = "") -> Any:
    """The value with secrets masked and long data shortened."""
    match value:
        case str():
            for secret in held:
                value = value.replace(secret, "[masked]")
            return mask_named(name, value) if name not in ("text", "thinking", "code") else mask(value)
        case {"type": "base64", "data": str(data)} if len(data) > LONGEST_DATA:
            return {**value, "data": f"{data[:LONGEST_DATA]}… [{len(data):,} characters]"}
        case {"type": "thinking", "signature": str(signature)}:
            thought = _bare(value.get("thinking"), held, "thinking")
            return {**value, "thinking": thought, "signature": f"[{len(signature)} characters]"}
        case dict():
            return {key: _bare(inner, held, str(key)) for key, inner in value.items()}
        case list() | tuple():
            return [_bare(inner, held, name) for inner in value]
        case _:
            return value
