"""The prompt cache, accounted exactly.

A mark writes the prefix that ends with its block. A later mark reads the longest written prefix that ends at the
marked block or at one of the 19 before it (20 places are looked at). A prefix below the model's minimum is
neither written nor an error. An entry can be read once the first response that writes it has begun, lives 5 minutes
or 1 hour, and each read renews it. The model and its speed are part of every prefix; the output format of
system and messages; thinking, tool choice and whether there are images of messages.

"""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, Final

from ipyagent.practice.server.models import need
from ipyagent.practice.server.prompt import THINKING, Prompt

LOOK_BACK: Final = 20
MAX_MARKS: Final = 4
TTL: Final[Mapping[str, int]] = {"5m": 300, "1h": 3600}

Key = tuple[bytes, bytes]


@dataclass(frozen=True, slots=True)
class Account:
    """Tokens of one prompt by how they are paid, and what the response will write when it begins."""

    fresh: int
    read: int
    made_5m: int
    made_1h: int
    writes: tuple[tuple[Key, str], ...]

    @property
    def made(self) -> int:
        """Tokens written to the cache."""
        return self.made_5m + self.made_1h

    def usage(self) -> dict[str, Any]:
        """The input fields of `usage`."""
        return {
            "input_tokens": self.fresh,
            "cache_creation_input_tokens": self.made,
            "cache_read_input_tokens": self.read,
            "cache_creation": {"ephemeral_5m_input_tokens": self.made_5m, "ephemeral_1h_input_tokens": self.made_1h},
        }


def check_marks(body: Mapping[str, Any], prompt: Prompt) -> Prompt:
    """The prompt with the automatic mark set; raises `Refused` for too many marks or a bad order of lives."""
    blocks = list(prompt.blocks)
    if automatic := body.get("cache_control"):
        ttl = automatic.get("ttl") or "5m"
        last = next((i for i in range(len(blocks) - 1, -1, -1) if blocks[i].block.get("type") not in THINKING), None)
        if last is not None:
            need(blocks[last].ttl in (None, ttl), "cache_control: the last block is already marked with another `ttl`")
            blocks[last] = replace(blocks[last], ttl=ttl)
    marks = [placed for placed in blocks if placed.ttl]
    need(len(marks) <= MAX_MARKS,
         f"A maximum of {MAX_MARKS} blocks with cache_control may be provided. Found {len(marks)}.")  # fmt: skip
    for earlier, later in pairwise(marks):
        need((earlier.ttl, later.ttl) != ("5m", "1h"),
             f"{later.path}.cache_control.ttl: a ttl='1h' cache_control block must not come after a ttl='5m' "
             "cache_control block. Note that blocks are processed in the following order: `tools`, `system`, "
             "`messages`.")  # fmt: skip
    return Prompt(tuple(blocks)) if automatic else prompt


class PromptCache:
    """Written prefixes and when they end; `clock` gives seconds."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._ends: dict[Key, tuple[float, str]] = {}
        self._lock = threading.Lock()

    def __len__(self) -> int:
        now = self._clock()
        with self._lock:
            return sum(end > now for end, _ in self._ends.values())

    def clear(self) -> None:
        """Forget every prefix, as when the provider drops its cache early."""
        with self._lock:
            self._ends.clear()

    def account(self, body: Mapping[str, Any], prompt: Prompt, least: int, images: bool) -> Account:
        """Read the cache for this prompt (renewing what is read); `least` is the smallest cacheable prefix."""
        scopes = _scopes(body, images)
        keys = [(scopes[placed.part], link) for placed, link in zip(prompt.blocks, prompt.chain, strict=True)]
        marks = [(i, placed.ttl) for i, placed in enumerate(prompt.blocks) if placed.ttl]
        with self._lock:
            read = self._read(keys, [i for i, _ in marks], prompt.upto)
        made, paid, writes = {"5m": 0, "1h": 0}, read, []
        for i, ttl in marks:
            if ttl is None or prompt.upto[i] < least:
                continue
            writes.append((keys[i], ttl))
            made[ttl] += max(0, prompt.upto[i] - paid)
            paid = max(paid, prompt.upto[i])
        return Account(prompt.tokens - paid, read, made["5m"], made["1h"], tuple(writes))

    def begin(self, account: Account) -> None:
        """The response begins: what it writes can be read from now on."""
        now = self._clock()
        with self._lock:
            for key, ttl in account.writes:
                if self._ends.get(key, (0.0, ""))[0] <= now:
                    self._ends[key] = (now + TTL[ttl], ttl)

    def _read(self, keys: Sequence[Key], marks: Sequence[int], upto: Sequence[int]) -> int:
        now, read = self._clock(), 0
        if len(self._ends) > 10_000:
            self._ends = {key: life for key, life in self._ends.items() if life[0] > now}
        for mark in marks:
            for i in range(mark, max(-1, mark - LOOK_BACK), -1):
                end, ttl = self._ends.get(keys[i], (0.0, "5m"))
                if end > now:
                    self._ends[keys[i]] = (now + TTL[ttl], ttl)
                    read = max(read, upto[i])
                    break
        return read


def _scopes(body: Mapping[str, Any], images: bool) -> dict[str, bytes]:
    scopes, at = {}, b""
    output = body.get("output_config") or {}
    for part, settings in (
        ("tools", [body.get("model"), body.get("speed") or "standard"]),
        ("system", [output.get("format")]),
        ("messages", [body.get("thinking"), body.get("tool_choice"), images]),
    ):
        at = hashlib.sha256(at + json.dumps(settings, sort_keys=True).encode()).digest()
        scopes[part] = at
    return scopes
