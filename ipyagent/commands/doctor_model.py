"""What `doctor` tells of the model: key, server, window and price.

A server is only knocked at: a connection is opened and closed, nothing is sent. No key is shown.
"""

from __future__ import annotations

import os
import socket
import threading
import urllib.request
from collections.abc import Iterator
from importlib.util import find_spec
from typing import Any
from urllib.parse import urlsplit

from ipyagent.agent import Agent
from ipyagent.assembly.wiring import address_of
from ipyagent.commands.finding import Finding
from ipyagent.errors import ModelError, SettingError

PATIENCE = 1.0
"""Seconds that finding a server and its taking a connection may last together."""
USUAL = "https://api.anthropic.com"
"""Where the SDK sends requests when no address is set."""


def connection(agent: Agent, shell: Any) -> Iterator[Finding]:
    """Whether there are credentials, and whether somebody listens where requests go."""
    from ipyagent.model.client import AnthropicModel, has_credentials
    from ipyagent.model.connect import LOCAL, PRACTICE

    if agent.model == PRACTICE:
        yield Finding("ok", "connection", "the practice server of this process: rule-based, no language model")
        return
    if agent.model.startswith(LOCAL):
        yield _model_file(agent.model.removeprefix(LOCAL))
        return
    endpoint = agent.endpoint()
    try:
        if not has_credentials(endpoint):
            mend = "set ANTHROPIC_API_KEY or ANTHROPIC_BASE_URL, or try it offline: %agent model practice"
            yield Finding("bad", "connection", "no key and no server", mend)
            return
        _ = AnthropicModel(endpoint).client  # as a turn makes it
    except (ModelError, SettingError) as problem:
        yield Finding("bad", "connection", str(problem))
        return
    if endpoint.provider != "anthropic":
        yield Finding("ok", "connection", f"provider {endpoint.provider}, with the credentials of its cloud; not tried")
        return
    given = os.environ.get("ANTHROPIC_BASE_URL", "")
    yield _key(bool(endpoint.base_url or given))
    if not endpoint.base_url and given.rstrip("/").endswith("/v1"):  # of the setting it is taken away
        mend = "set ANTHROPIC_BASE_URL without /v1"
        yield Finding("bad", "connection", f"{_shown(given)} ends in /v1, which is added to it", mend)
    elif address := endpoint.base_url or given:
        yield _knocked(address, usual=False)
    elif os.environ.get("ANTHROPIC_PROFILE"):
        yield Finding("ok", "connection", "as ANTHROPIC_PROFILE says; not tried")
    else:
        yield _knocked(USUAL, usual=True)


def _model_file(path: str) -> Finding:
    from pathlib import Path

    if find_spec("xllamacpp") is None:
        return Finding("bad", "connection", f"local:{path} needs the extra local", "pip install 'ipyagent[local]'")
    if not Path(path).expanduser().is_file():
        return Finding("bad", "connection", f"no model file {path}", "%agent model local:PATH.gguf names another")
    return Finding("ok", "connection", "a model file in this process")


def _key(server: bool) -> Finding:
    """Where the key is from, never what it is. `server`: an address is set, which may need none."""
    from ipyagent.model.endpoint import BAD_KEY, keyring_key

    for name in ("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN"):
        if key := os.environ.get(name):
            if not (key.isascii() and key.isprintable() and " " not in key):
                return Finding("bad", "key", f"set in {name}", BAD_KEY)
            return Finding("ok", "key", f"set in {name} (not shown, not tried)")
    if keyring_key():
        return Finding("ok", "key", "stored in the keyring (not shown, not tried)")
    return Finding("ok", "key", "none set; a local server needs none" if server else "as the SDK's own login says")


def _knocked(address: str, *, usual: bool) -> Finding:
    """`usual`: the address was not chosen; that it does not answer now is a remark then (no network)."""
    shown, parts = _shown(address), urlsplit(address)
    if _through_proxy(address):
        return Finding("ok", "connection", f"{shown}, through the proxy of the environment; not tried")
    why = _unreachable(address) if parts.scheme in ("http", "https") else "it does not begin with http:// or https://"
    if not why:
        return Finding("ok", "connection", f"{shown} takes connections; no request was sent")
    if usual:
        mend = "is there a network? offline: %agent model practice, or a local server by ANTHROPIC_BASE_URL"
        return Finding("note", "connection", f"{shown} does not answer ({why})", mend)
    mend = "start the server, or set ANTHROPIC_BASE_URL to where it listens"
    return Finding("bad", "connection", f"{shown} does not answer ({why})", mend)


def _shown(address: str) -> str:
    from ipyagent.redaction import without_keys

    return without_keys(address, os.environ.get("ANTHROPIC_API_KEY"), os.environ.get("ANTHROPIC_AUTH_TOKEN"))


def _through_proxy(address: str) -> bool:
    from ipyagent.model.endpoint import is_loopback

    try:
        parts = urlsplit(address)
        proxied = urllib.request.getproxies().keys() & {parts.scheme, "all"}
        return bool(proxied) and not is_loopback(address) and not urllib.request.proxy_bypass(parts.hostname or "")
    except ValueError:
        return False


def _unreachable(address: str) -> str:
    """Why nobody listens there; "" when somebody does."""
    said: list[str] = []

    def knock() -> None:
        try:
            parts = urlsplit(address)
            port = parts.port or (443 if parts.scheme == "https" else 80)
            with socket.create_connection((parts.hostname or "", port), timeout=PATIENCE):
                said.append("")
        except (OSError, ValueError) as problem:
            said.append(getattr(problem, "strerror", None) or str(problem) or type(problem).__name__)

    # looking up a name has no time limit of its own
    knocking = threading.Thread(target=knock, name="ipyagent-doctor", daemon=True)
    knocking.start()
    knocking.join(PATIENCE)
    return said[0] if said else f"no answer within {PATIENCE:g} s"


def model(agent: Agent, shell: Any) -> Iterator[Finding]:
    """Window and price, as far as they are known without asking the server."""
    from ipyagent.model.capabilities import GUESSED
    from ipyagent.model.prices import price_of, told_prices

    told_prices.set(agent.settings.price)
    settings, known = agent.settings, agent.info
    chosen = settings.model or os.environ.get("ANTHROPIC_MODEL") or settings.served
    if address_of(settings) and not chosen and known.source in GUESSED:
        words = f"none chosen: the server's only one answers, else {agent.model}; window and price are known then"
        yield Finding("ok", "model", f"{words} (%agent model NAME chooses)")
        return
    words = f"{agent.model}, window {known.window:,} tokens"
    if known.source == "default" and agent.model != "practice":
        words += " is assumed until the server says (IPyAgent.window sets it)"
    elif known.source not in (*GUESSED, "setting"):
        words += f" (told by {known.source})"
    price = price_of(agent.model, known.server)
    if agent.model == "practice" or agent.model.startswith("local:"):
        words += "; costs nothing"
    elif price is None:
        words += "; no price known: costs are not shown, limits count the most expensive known (IPyAgent.price sets it)"
    else:
        words += f", ${price.input:g} and ${price.output:g} a million tokens in and out"
        words += f" ({price.source})" if price.source else ""
    yield Finding("ok", "model", words)
