"""What became of a task, and where finished ones are kept: a file each, named by the task's key.

A file is written whole or not at all, so any number of workers write at once, and a killed run leaves nothing half.
It counts only with the seal of the user who asked: what came with a folder is nobody's answer. A worker, which may be
another machine, is given what seals its one task, never the user's own key.
"""

from __future__ import annotations

import hmac
from pathlib import Path
from typing import Any

import msgspec

from ipyagent.journal.events import Ending, Usage
from ipyagent.model.prices import at_most
from ipyagent.nofollow import reading, write_atomically
from ipyagent.trust import signature

DONE = "done"
"""The folder of finished tasks."""


class Outcome(msgspec.Struct, frozen=True):
    """`cost` in US dollars (None: no price known), `tokens` in and out together, `session` the transcript's
    folder, relative to the project where it lies in it; `tries` how often it was begun."""

    key: str
    status: Ending
    text: str = ""
    data: Any = None
    cost: float | None = 0.0
    tokens: int = 0
    seconds: float = 0.0
    session: str = ""
    tries: int = 0
    error: str = ""


def most_of(outcome: Outcome) -> float:
    """Dollars of an outcome for a limit: its cost, or where no price is known all its tokens at the dearest one."""
    return at_most(outcome.cost, Usage(output=outcome.tokens))


class _Sealed(msgspec.Struct, frozen=True):
    seal: str
    outcome: msgspec.Raw


def sealing(user: Path, key: str) -> str:
    """What seals the outcome of one task; "" where the user's folder cannot be written: then none is taken up."""
    try:
        return signature(user, "outcome", key.encode())
    except OSError:
        return ""


def keep(into: Path, outcome: Outcome, sealing: str) -> None:
    """Write a finished task down. Raises OSError."""
    raw = msgspec.json.encode(outcome)
    sealed = _Sealed(_seal(sealing, raw), msgspec.Raw(raw))
    write_atomically(into / DONE / f"{outcome.key}.json", msgspec.json.encode(sealed), base=into)


def kept(into: Path, key: str, sealing: str) -> Outcome | None:
    """What an earlier run of this user has written down; None when there is nothing that can be read."""
    try:
        with reading(into / DONE / f"{key}.json", base=into) as file:
            sealed = msgspec.json.decode(file.read(), type=_Sealed)
        found = msgspec.json.decode(sealed.outcome, type=Outcome)
    except (OSError, msgspec.DecodeError):
        return None
    made = _seal(sealing, bytes(sealed.outcome)).encode()
    genuine = bool(sealing) and hmac.compare_digest(made, sealed.seal.encode("utf-8", "replace"))
    return found if genuine and found.key == key else None


def _seal(sealing: str, raw: bytes) -> str:
    return hmac.new(sealing.encode(), raw, "sha256").hexdigest()
