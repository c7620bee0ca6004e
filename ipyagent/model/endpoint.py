"""Where requests go, and what the user reads when there is nowhere to go yet."""

from __future__ import annotations

import os
from importlib.util import find_spec
from ipaddress import ip_address
from urllib.parse import urlsplit

import msgspec

from ipyagent.redaction import without_keys

HINT = (
    "No model is connected yet. Set one of these, then run the cell again:\n"
    "  a key (ANTHROPIC_API_KEY), or a local server of the Messages API (ANTHROPIC_BASE_URL=http://localhost:11434);\n"
    "  or try everything offline with the rule-based practice model:  %agent model practice"
)

BAD_KEY = (
    "the key contains characters that cannot be in a key: set ANTHROPIC_API_KEY again, without quotes or "
    "line breaks"
)

BASE_URL = "ANTHROPIC_BASE_URL"
READ_ONCE = ("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", BASE_URL, "ANTHROPIC_CUSTOM_HEADERS")
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


def base_of(address: str) -> str:
    """An address as requests are sent to it: without `/v1`, which the SDK adds."""
    return address.rstrip("/").removesuffix("/v1")


def is_loopback(address: str) -> bool:
    """Whether a base URL is of this machine."""
    try:
        host = urlsplit(address).hostname or ""
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False


def unusable_variable(address: str) -> str:
    """One line that names the proxy or certificate variable with which no client for `address` can be made, and what
    to do; "" when there is none. No value that may hold a password is shown."""
    return _unusable_proxy() or _unusable_certificates(address)


def _unusable_proxy() -> str:
    from urllib.request import getproxies

    import httpx2

    proxies = getproxies()
    passed_by = [entry.strip() for entry in proxies.get("no", "").split(",") if entry.strip()]
    if "*" in passed_by:
        return ""
    for scheme in ("http", "https", "all"):
        value, name = proxies.get(scheme, ""), _variable(f"{scheme}_proxy")
        if not value:
            continue
        try:
            socks = httpx2.Proxy(value if "://" in value else f"http://{value}").url.scheme.startswith("socks")
        except (httpx2.InvalidURL, ValueError):
            return f"{name} is not a proxy address: set it to http://HOST:PORT, or unset it"
        if socks and find_spec("socksio") is None:
            return f"{name} names a SOCKS proxy, which needs one more package: pip install socksio, or unset {name}"
    for entry in passed_by:
        try:
            httpx2.URL(entry if "://" in entry else f"all://[{entry}]" if _is_ipv6(entry) else f"all://*{entry}")
        except httpx2.InvalidURL:
            name = _variable("no_proxy")
            mend = "write IPv6 addresses without brackets and leave out IPv6 ranges, as in localhost,::1"
            return f"{name} has an entry that cannot be used, {without_keys(entry)!r}: {mend}"
    return ""


def _unusable_certificates(address: str) -> str:
    import ssl

    if file := os.environ.get("SSL_CERT_FILE"):
        try:
            ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(cafile=file)
        except OSError as problem:
            reason = "it holds no certificates" if isinstance(problem, ssl.SSLError) else problem.strerror
            return f"SSL_CERT_FILE={file} cannot be used ({reason}): set it to a PEM file of certificates, or unset it"
        return ""
    folders = os.environ.get("SSL_CERT_DIR")
    if not folders or address.startswith("http://") or any(map(os.path.isdir, folders.split(os.pathsep))):
        return ""
    # nothing complains of it when a client is made: each request would fail
    return f"SSL_CERT_DIR={folders} is not a folder: set it to a folder of certificates, or unset it"


def _variable(name: str) -> str:
    """How a proxy variable is spelt here; the lower case counts first."""
    return next((each for each in (name, name.upper()) if os.environ.get(each)), f"the system's setting {name}")


def _is_ipv6(entry: str) -> bool:
    try:
        return ip_address(entry.split("/")[0]).version == 6
    except ValueError:
        return False
