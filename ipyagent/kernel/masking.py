"""A value that looks like a secret never reaches the model whole: its first characters (3 or 4, none
when it is short) and its length stay, `sk-a…[51 masked]`. Masking twice changes nothing."""

from __future__ import annotations

import math
import re
from collections import Counter

_MASKED = r"(?:[^\s…]{0,4}…\[\d+ masked|\[secret: )"
_STANDS_IN = re.compile(r"\[secret: [^\]\n]{1,80}, \d[\d,]* characters\]|[^\s…]{0,4}…\[\d+ masked\]")

_TOKENS = re.compile(
    r"sk-ant-[\w-]{8,}|github_pat_\w{20,}"
    r"|(?<![A-Za-z0-9])(?:"
    r"sk-[\w-]{16,}|[sr]k_(?:live|test)_\w{10,}"
    r"|gh[pousr]_\w{16,}|glpat-[\w-]{16,}"
    r"|(?:AKIA|ASIA)[A-Z0-9]{12,}|AIza[\w-]{30,}|ya29\.[\w-]{20,}"
    r"|xox[abeprs]-[\w-]{10,}|hf_[A-Za-z0-9]{20,}|npm_[A-Za-z0-9]{30,}|pypi-[\w-]{20,}|SG\.[\w-]{16,}\.[\w-]{16,}"
    r"|eyJ[\w-]{8,}\.[\w-]{4,}(?:\.[\w-]*)?"
    r")"
)
_PEM = re.compile(
    r"(-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----)(?!…\[)(.*?)(?:-----END [A-Z0-9 ]{0,40}-----|\Z)",
    re.DOTALL,
)
_URL = re.compile(r"(://[^\s/:@'\"]{0,200}:)(?!" + _MASKED + r")([^\s/@'\"]{1,500})(?=@)")
_BEARER = re.compile(r"\b((?:Bearer|Basic)\s+)(?!" + _MASKED + r")([A-Za-z0-9._~+/=-]{12,})")
_NAMED = re.compile(
    r"((?:pass(?:word|wd|phrase|code)|pwd|secret|credential|token|key|auth)[\w-]{0,20})"
    r"(\\?[\"']?(?:\s?:\s?[\w.\[\]| ]{1,40})?\s{0,3}(?:=|:(?!/))\s{0,3})"
    r"(?!\\?[\"']?" + _MASKED + r")(?:\\?([\"'])(.{1,4000}?)(?:\\?\3|$)|([^\s\"',;&)}\]]{1,4000}))",
    re.IGNORECASE | re.MULTILINE,
)
_BEFORE = re.compile(r"[\w-]{0,40}\Z")
_WORDS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[^\W\d_]+")
_NO_VALUE = re.compile(
    r"(?:str|int|bytes|None|True|False|null|true|false|bool|float|Any|Optional|object|obj|[iuf]\d+)\b|[\w.]+\(|[{(\[<]"
)

_STRONG = frozenset(
    {
        "password", "passwords", "passwd", "passphrase", "passcode", "pwd", "secret", "secrets", "credential",
        "credentials", "apikey", "apikeys",
    }
)
_WEAK = frozenset(
    {
        "key", "keys", "token", "tokens", "auth", "authorization", "cookie", "dsn", "signature", "salt",
    }
)
_QUALIFIES = frozenset(
    {
        "api", "access", "private", "secret", "auth", "signing", "encryption", "account", "bearer", "refresh",
        "session", "client",
    }
)
_ENDINGS = ("password", "passwd", "passphrase", "secret", "apikey")


def masked(value: str) -> str:
    """The form in which a secret is shown."""
    kept = 4 if len(value) >= 12 else 3 if len(value) >= 8 else 0
    return f"{value[:kept]}…[{len(value)} masked]"


def secret_mark(kind: str, length: int) -> str:
    """What stands in the place of a secret that was taken out of a text: `[secret: API key, 51 characters]`."""
    return f"[secret: {kind}, {length:,} characters]"


def stand_ins(text: str) -> list[str]:
    """What stands for secrets in a text, as it is shown."""
    return _STANDS_IN.findall(text) if "[" in text else []


def name_strength(name: str) -> int:
    """2: what bears this name is a secret; 1: it is one if it looks random; 0: the name says nothing."""
    words = [word.lower() for word in _WORDS.findall(name[:200])]
    if any(word in _STRONG or word.endswith(_ENDINGS) for word in words):
        return 2
    for before, word in zip(["", *words], words, strict=False):
        if word in _WEAK and before in _QUALIFIES:
            return 2
    return 1 if any(word in _WEAK for word in words) else 0


def looks_random(value: str) -> bool:
    """Whether a text has the length and the mixture of a generated key."""
    if len(value) < 16 or any(character.isspace() for character in value[:400]):
        return False
    head = value[:400]
    kinds = sum((any(c.isdigit() for c in head), any(c.islower() for c in head), any(c.isupper() for c in head)))
    total = len(head)
    entropy = -sum(count / total * math.log2(count / total) for count in Counter(head).values())
    return kinds >= 2 and entropy >= 3.0


def mask_named(name: str, value: str) -> str:
    """`value` as it may be shown for something called `name` (a variable, key, column, attribute)."""
    strength = name_strength(name)
    if not value or re.match(_MASKED, value):
        return value
    if name.lower().endswith("pwd") and value[0] in "/~":
        return mask(value)
    if strength == 2 or (strength == 1 and looks_random(value)):
        return masked(value)
    return mask(value)


def mask(text: str) -> str:
    """`text` with each secret-looking value masked: API keys of common kinds, JSON web tokens,
    private keys, `password=…`, passwords in URLs, random-looking values after key, token or secret."""
    if "-----BEGIN" in text:
        text = _PEM.sub(lambda found: f"{found[1]}…[{len(found[2])} masked]", text)
    if "://" in text:
        text = _URL.sub(lambda found: found[1] + masked(found[2]), text)
    text = _BEARER.sub(lambda found: found[1] + masked(found[2]), text)
    if "=" in text or ":" in text:
        text = _NAMED.sub(_named, text)
    return _TOKENS.sub(lambda found: masked(found[0]), text)


def _named(found: re.Match[str]) -> str:
    before = _BEFORE.search(found.string, max(0, found.start() - 40), found.start())
    name = (before[0] if before else "") + found[1]
    value = found[4] if found[4] is not None else found[5]
    if _NO_VALUE.match(value) and not found[4]:
        return found[0]
    shown = mask_named(name, value)
    if shown == value:
        return found[0]
    start = found.start(4) if found[4] is not None else found.start(5)
    end = start + len(value)
    return found.string[found.start() : start] + shown + found.string[end : found.end()]
