"""A session as a document: every request with what came of it. Text is escaped as in the notebook."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from ipyagent.errors import UsageError
from ipyagent.escape import escape, plain
from ipyagent.journal.events import Event, UserMessage
from ipyagent.ui.markdown import harmless
from ipyagent.ui.static import static_bundle

KINDS = {".md": "text/markdown", ".html": "text/html", ".txt": "text/plain"}


def document(events: Iterable[Event], suffix: str) -> str:
    """The session in the form that the file's ending says. Raises UsageError for another ending."""
    kind = KINDS.get(suffix)
    if kind is None:
        raise UsageError(
            f"a file's ending says its form: give it one of {', '.join(KINDS)}, .jsonl; not {suffix or 'none'}"
        )
    turns: list[list[Event]] = [[]]
    for event in events:
        if isinstance(event, UserMessage):
            turns.append([])
        turns[-1].append(event)
    parts: list[str] = []
    for turn in turns:
        said = turn[0] if turn else None
        if isinstance(said, UserMessage):
            parts.append(_request(said.text, suffix))
            parts.append(static_bundle(turn, None)[kind])
    return "\n\n".join(parts) + "\n"


def _request(text: str, suffix: str) -> str:
    if suffix == ".html":
        return f"<hr><p><strong>Request</strong></p><blockquote><pre>{escape(plain(text))}</pre></blockquote>"
    if suffix == ".md":
        quoted = "\n".join(f"> {line}" for line in harmless(text).splitlines())
        return f"---\n\n**Request**\n\n{quoted}"
    return "\n".join(f"> {line}" for line in plain(text).splitlines())


def write(events: Iterable[Event], path: Path, transcript: Path) -> None:
    """Write the document, or the transcript itself as .jsonl. Raises UsageError, OSError."""
    if path.suffix == ".jsonl":
        path.write_bytes(transcript.read_bytes())
    else:
        path.write_text(document(events, path.suffix), encoding="utf-8")
