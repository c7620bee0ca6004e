"""Where requests go, and what the user reads when there is nowhere to go yet."""

from __future__ import annotations

import os
from ipaddress import ip_address
from urllib.parse import urlsplit

import msgspec

from ipyagent.redaction import without_keys

HINT = (
    "No model is connected yet. Set one of these, then run the cell again:\n"
    "  a key (ANTHROPIC_API_KEY), or a local server of the Messages API (ANTHROPIC_BASE_URL=http://localhost:11434);\n"
    "  or try everything offline with the rule-based practice model:  %agent model practice"
)

BAD_KEY = "the key holds characters that no key has: set ANTHROPIC_API_KEY again, without quotes or line breaks"

READ_ONCE = ("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "ANTHROPIC_BASE_URL", "ANTHROPIC_CUSTOM_HEADERS")
"""Environment variables that the SDK reads when a client is made."""


def own_keys() -> tuple[str, ...]:
    """The credentials of the model in the environment: they may stand in no transcript."""
    found = (os.environ.get(name, "") for name in ("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN"))
    return tuple(key for key in found if len(key) >= 8)


class Endpoint(msgspec.Struct, frozen=True, kw_only=True):
    """Where requests go. Empty `base_url` and `api_key` leave it to the SDK's own environment."""

    base_url: str = ""
    api_key: str = ""
    provider: str = "anthropic"
    timeout: float = 600.0
    retries: int = 4
    longest_wait: float = 60.0
    thinking: bool = True
    window: int = 0

    def __repr__(self) -> str:
        return f"<Endpoint {self.provider} {without_keys(self.base_url) or 'default'}>"


def keyring_key() -> str:
    """The key that the user stored as service "ipyagent", name "anthropic"; "" when there is none."""
    try:
        import keyring
    except ImportError:
        return ""
    try:
        return str(keyring.get_password("ipyagent", "anthropic") or "")
    except (keyring.errors.KeyringError, RuntimeError):
        return ""


def is_loopback(address: str) -> bool:
    """Whether a base URL is of this machine."""
    try:
        host = urlsplit(address).hostname or ""
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False
