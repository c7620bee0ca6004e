"""Batches on their way, each in a file: written before it is sent and taken away once its answers are on disk.

Whatever ends this kernel in between, the next call finds the batch again and pays for nothing twice.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Collection, Iterable
from pathlib import Path

import msgspec

from ipyagent.errors import AgentError
from ipyagent.model.batches import Status
from ipyagent.nofollow import names, reading, remove, write_atomically
from ipyagent.trust import is_signed, signature

FOLDER = "batches"
SKEW = 120.0
"""Seconds by which the server's clock may be off."""


class HandedIn(msgspec.Struct, frozen=True):
    """`server` is its address without secrets; `prompts` by key; `at`: seconds since 1970 when it was sent; `id` of the
    server, "" until it has answered; `tries`: how often each of these has been sent, this time included."""

    name: str
    server: str
    model: str
    prompts: dict[str, str]
    tries: int
    at: float
    id: str = ""


class _Signed(msgspec.Struct, frozen=True):
    signature: str
    batch: msgspec.Raw


class Shelf:
    """The files of one folder."""

    def __init__(self, into: Path, user: Path) -> None:
        """`user`: the user's own folder, which knows what this user has handed in."""
        self._into, self._user = into, user
        self._folder = into / FOLDER

    def __repr__(self) -> str:
        return f"<Shelf {len(self.all())} batches on their way>"

    def all(self) -> list[HandedIn]:
        """Those whose answers were not fetched yet, oldest first; what cannot be read, or was
        not written by this user, is left where it is."""
        found = []
        for name in names(self._folder, base=self._into):
            if not name.endswith(".json"):
                continue
            try:
                with reading(self._folder / name, base=self._into) as file:
                    signed = msgspec.json.decode(file.read(), type=_Signed)
                if is_signed(self._user, FOLDER, bytes(signed.batch), signed.signature):
                    found.append(msgspec.json.decode(signed.batch, type=HandedIn))
            except (OSError, msgspec.DecodeError):
                continue
        return sorted(found, key=lambda one: one.at)

    def put(self, batch: HandedIn) -> HandedIn:
        """Write it down, also in place of what was known before. Raises AgentError."""
        raw = msgspec.json.encode(batch)
        try:
            signed = _Signed(signature(self._user, FOLDER, raw), msgspec.Raw(raw))
            write_atomically(self._folder / f"{batch.name}.json", msgspec.json.encode(signed), base=self._into)
        except OSError as problem:
            told = (
                f"cannot note a batch that is handed in ({problem.strerror or problem}), so none is: make "
                f"{self._folder} writable"
            )
            raise AgentError(told) from None
        return batch

    def take_away(self, batch: HandedIn) -> None:
        """Its answers are on disk."""
        remove(self._folder / f"{batch.name}.json", base=self._into)


def new(server: str, model: str, prompts: dict[str, str], tries: int) -> HandedIn:
    """A batch that is about to be sent."""
    return HandedIn(uuid.uuid4().hex[:12], server, model, prompts, tries, time.time())


def candidates(batch: HandedIn, listed: Iterable[Status], known: Collection[str]) -> list[Status]:
    """The server's batches that this one may have become when nobody saw the answer, oldest first: of its size, made no
    earlier, not `known` as another one. Only the keys in a batch's results tell whose it is."""
    fits = [
        one
        for one in listed
        if one.id not in known and one.size == len(batch.prompts) and one.created >= batch.at - SKEW
    ]
    return sorted(fits, key=lambda one: one.created)
