"""Seals: short keyed digests by which the server knows its own blocks again, in any process. Not secret."""

from __future__ import annotations

import hashlib
import hmac
from typing import Final

_KEY: Final = b"ipyagent practice server: tamper-evident, not secret"


def seal(*parts: bytes | str) -> str:
    """Twenty hexadecimal digits over these parts and where each of them ends."""
    sealed = hmac.new(_KEY, digestmod=hashlib.sha256)
    for part in parts:
        raw = part.encode("utf-8", "surrogatepass") if isinstance(part, str) else part
        sealed.update(len(raw).to_bytes(8, "big") + raw)
    return sealed.hexdigest()[:20]
