"""Every error a user or the model can meet, as one tree.

    AgentError                    something the user should read; one line, no traceback
    ├── UsageError                a wrong option or argument of a magic or a function
    ├── SettingError              a setting has a value that cannot work
    ├── TrustError                a folder's stored state was not loaded: it is not trusted yet
    ├── JournalError              the session's transcript cannot be written or read
    ├── MemoryRefused             memory was not read or written; `reason` says why in one word
    ├── WindowTooSmall            system prompt + tools + reserve do not fit the model's window
    ├── CompactionFailed          no summary could be had; the conversation is unchanged
    │   └── CompactionTooLong     the compaction call itself did not fit the window, at any length tried
    └── ModelError                the model did not answer
        ├── NoCredentials         no key and no base URL
        ├── AuthenticationFailed  401, 403
        ├── QuotaSpent            402, or a 429 that will not pass by waiting
        ├── BadRequest            400 and other refusals of the request itself
        │   ├── PromptTooLong     the prompt does not fit the window
        │   └── ImageRefused      one image or document in the prompt was refused
        ├── UnknownModel          404 for the model's name
        │   └── NoSuchPath        404 for the path: no Messages API, or none of its batches
        ├── TooLarge              413
        ├── Busy                  429, 529, 5xx after all tries
        └── Unreachable           refused, DNS failure, time-out, after all tries
    ToolFailure                   text for the model: becomes an `is_error` tool result

Expected endings (stopped, limit, refused) are values, see `ipyagent.journal.events.TurnEnded`.
"""

from __future__ import annotations

from collections.abc import Sequence

from ipyagent.escape import plain


class AgentError(Exception):
    """Base of every error that ipyagent raises for a user. Its text is one line: what happened, and what to do."""

    def __str__(self) -> str:
        return plain(super().__str__())  # names and texts of others are in it

    def _render_traceback_(self) -> list[str]:
        """IPython prints these lines instead of a traceback."""
        return [f"{type(self).__name__}: {self}"]


class UsageError(AgentError):
    """A wrong option or argument; the message names the nearest right one."""


class SettingError(AgentError):
    """A setting has a value that cannot work."""


class TrustError(AgentError):
    """Stored state of an untrusted folder was not loaded."""


class JournalError(AgentError):
    """The transcript cannot be written or read (disk full, no rights, not a journal)."""


class MemoryRefused(AgentError):
    """Memory was not read or written. `reason`: "name" (it cannot be a memory's name), "place" (the folder
    cannot hold memory), "link" (a link on the way), "folder" (a folder stands there), "missing", "exists",
    "index" (the index cannot be deleted or renamed), "size", "encoding", "busy" (another process holds the
    lock), "changed" (no longer the expected content), "disk", "content" (what must not be saved, such as a
    secret), "header" and "unchanged" (an edit that would not stay), "stopped", "off", "trust" (not trusted yet)."""

    def __init__(self, message: str, *, reason: str) -> None:
        super().__init__(message)
        self.reason = reason


class WindowTooSmall(AgentError):
    """System prompt, tools and reserve alone do not fit the model's window."""


class CompactionFailed(AgentError):
    """A compaction did not come about; the conversation is unchanged."""


class CompactionTooLong(CompactionFailed):
    """The compaction call itself did not fit the window, also without the oldest rounds."""


class ModelError(AgentError):
    """The model did not answer.

    `request_id` is the server's id of the failed request ("" when there was none), `kind` the
    server's error type or a short word of ours.
    """

    def __init__(self, message: str, *, kind: str = "", request_id: str = "") -> None:
        super().__init__(message)
        self.kind = kind
        self.request_id = request_id


class NoCredentials(ModelError):
    """No key and no base URL are set; the message is the whole hint."""

    def _render_traceback_(self) -> list[str]:
        return str(self).splitlines()


class AuthenticationFailed(ModelError):
    """The key was refused (401) or lacks a right (403)."""


class QuotaSpent(ModelError):
    """A spending limit or an unpaid bill; waiting does not help."""


class BadRequest(ModelError):
    """The server refused the request itself."""


class PromptTooLong(BadRequest):
    """The prompt does not fit the model's window."""


class ImageRefused(BadRequest):
    """An image or document of the prompt was refused."""


class UnknownModel(ModelError):
    """The server does not know the model's name."""


class NoSuchPath(UnknownModel):
    """The server has no such path, whatever the model."""


class TooLarge(ModelError):
    """The request body is over the server's limit (413)."""


class Busy(ModelError):
    """The server stayed busy or failing through all tries."""


class Unreachable(ModelError):
    """No connection to the server through all tries."""


class ToolFailure(Exception):
    """Raised by a tool: the text is what the model reads as an error result."""


def nearest(word: str, known: Sequence[str], cutoff: float = 0.5) -> str:
    """" did you mean …" for a word that is not known, "" when nothing is near."""
    from difflib import get_close_matches  # loading needs it not

    close = get_close_matches(word, known, n=1, cutoff=cutoff)
    return f"; did you mean {close[0]}?" if close else ""
