"""From a file to a recording: its first line says which agent wrote it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from ipyagent.errors import UsageError
from ipyagent.journal.journal import TRANSCRIPT, Problem, read_events
from ipyagent.journal.lines import clean_json
from ipyagent.replay.claude_code import is_claude_code, read_claude_code
from ipyagent.replay.own_sessions import read_own
from ipyagent.replay.pi_sessions import is_pi, read_pi
from ipyagent.replay.recording import Recording


def read_recording(path: Path) -> Recording:
    """The session in `path`: our transcript (or its folder), a pi session, a Claude Code session.

    Lines that cannot be read are skipped and reported in `problems`. Raises UsageError when the file
    is none of these or holds no conversation.
    """
    path = path / TRANSCRIPT if path.is_dir() else path
    try:
        problems: list[str] = []
        first = next((line for _, line in _lines(path, problems)), None)
        problems.clear()
        if first is None:
            raise UsageError(f"{path} is no session, none of its lines is a JSON object: name a transcript.jsonl")
        if first.get("type") == "SessionStarted":
            damaged: list[Problem] = []
            made = read_own(read_events(path, damaged))
            problems = [str(problem) for problem in damaged]
        elif is_pi(first):
            made = read_pi(_lines(path, problems))
        elif is_claude_code(first):
            made = read_claude_code(_lines(path, problems))
        else:
            known = "an ipyagent transcript, a pi session or a Claude Code session"
            raise UsageError(f"{path} is not {known}: its first line is of type {first.get('type')!r}; name another")
    except OSError as problem:
        raise UsageError(f"cannot read {path} ({problem.strerror or problem}): name a transcript.jsonl") from None
    if not made.turns:
        raise UsageError(f"{path} holds no turn that was answered")
    return msgspec.structs.replace(made, problems=(*problems, *made.problems))


def _lines(path: Path, problems: list[str]) -> Iterator[tuple[int, dict[str, Any]]]:
    """Numbered JSON objects of a file; what is none is reported."""
    with path.open("rb") as file:
        for number, raw in enumerate(file, 1):
            if not raw.strip():
                continue
            try:
                line = clean_json(json.loads(raw))
            except (ValueError, RecursionError) as problem:
                what = "nested too deeply" if isinstance(problem, RecursionError) else "not JSON"
                problems.append(f"line {number}: {what}")
                continue
            if isinstance(line, dict):
                yield number, line
            else:
                problems.append(f"line {number}: not an object")
