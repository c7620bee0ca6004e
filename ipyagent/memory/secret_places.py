"""Where secrets stand in a text of any size: a screen that costs a few milliseconds a megabyte finds the places
that are worth a closer look; what is a secret is then said by the rules of `secrets`, the sure ones only."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping

from ipyagent.memory.secrets import (
    ASSIGNED,
    BASIC,
    BEARER,
    KNOWN,
    LOGIN,
    gives_away,
    is_random,
    known_kind,
    secret_variables,
    stands_for,
)  # fmt: skip

_LONG = b"a" * 20
"""No key of a known kind is shorter."""
_TOKEN_BYTES = bytes(
    ord("a") if code < 128 and (chr(code).isalnum() or chr(code) in "_-") else ord(" ") for code in range(256)
)
_STARTS: tuple[tuple[bytes, int], ...] = (
    *(
        (start, 0)
        for start in (
            b"sk-", b"AKIA", b"ASIA", b"ABIA", b"ACCA", b"ghp_", b"gho_", b"ghu_", b"ghs_", b"ghr_", b"github_pat_",
            b"glpat-", b"glptt-", b"glrt-", b"gldt-", b"glcbt-", b"glsoat-", b"xox", b"xapp-", b"AIza", b"ya29.",
            b"GOCSPX-", b"sk_live_", b"rk_live_", b"sk_test_", b"rk_test_", b"whsec_", b"SK", b"SG.", b"key-", b"hf_",
            b"api_org_", b"npm_", b"pypi-", b"dckr_", b"dop_v1_", b"doo_v1_", b"dor_v1_", b"dot_v1_", b"dapi",
            b"shpat_", b"shpca_", b"shppa_", b"shpss_", b"sq0", b"gsk_", b"xai-", b"pplx-", b"r8_", b"nvapi-", b"fw_",
            b"tvly-", b"lin_api_", b"ntn_", b"NRAK-", b"figd_", b"sbp_", b"hvs.", b"hvb.", b"hvr.", b"glsa_", b"glc_",
            b"eyJ", b"AGE-SECRET-KEY-1", b"AccountKey=", b"SharedAccessKey=", b"https://hooks.slack.com/",
        )
    ),
    (b":AA", 10),
    (b"/api/webhooks/", 40),
)  # fmt: skip
"""How keys of known kinds begin, or what they hold and how many characters before it they begin."""
_MANY = 2_000
"""Long runs from which on the whole text is searched at once."""
_AROUND = 70
_NAMES = (b"pass", b"pwd", b"secret", b"token", b"credential", b"key", b"kennwort", b"senha", b"contrase")
_LONG_VALUE = 200
_FOREIGN = ("密码", "密碼", "口令", "パスワード", "비밀번호", "пароль", "Пароль")
_NAME_BEFORE = re.compile(r"[\w.\-]{0,40}\Z")
_VALUE_AFTER = re.compile(
    r"[\w.\-]{0,34}['\"`*\\]{0,3}[ \t]*(?::=|=>|==?|[:：]|\bis\b|\bist\b|是|は|→)\*{0,2}[ \t]*"
    r"(?:\\?['\"`]+[^'\"`\n]{6}|[^\s'\"`,;]{6})"
)
_URL_PASSWORD = re.compile(r"://[^\s/:@\"'<>]{0,200}:(?P<value>[^\s/@\"'<>]{1,500})@(?=[\w\[])")
_NO_SECRET = re.compile(r"(?i)session[ _-]?id|cookie|(?:next|page|continuation|pad|eos|bos|unk|mask)_?token|[_.-]id$")
"""Names that stand in tables and logs by the thousand and open nothing, or not for long."""
_PRIVATE = re.compile(
    r"-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----"
    r"(?P<value>(?:(?!-----END)[\w+/=\\:,.;()\s\"'|>-]){16,20000})"
)
_BODY = re.compile(r"[A-Za-z0-9+/=]{40,}")
PEM = "a PEM block"
_IN_PLACE = "…["


def secrets_in(text: str, *, environ: Mapping[str, str] = os.environ) -> list[tuple[str, int, int]]:
    """(kind, start, end) of each secret in the text, in order, none within another."""
    found = sorted(_all(text, environ), key=lambda each: each[1])
    made: list[tuple[str, int, int]] = []
    for kind, start, end in found:
        if made and start < made[-1][2]:
            made[-1] = (made[-1][0], made[-1][1], max(end, made[-1][2]))
        else:
            made.append((kind, start, end))
    return made


def _all(text: str, environ: Mapping[str, str]) -> Iterator[tuple[str, int, int]]:
    data = text.encode("latin-1", "replace")  # a byte a character: places are the same
    if "PRIVATE KEY" in text:
        for found in _PRIVATE.finditer(text):
            if runs := list(_BODY.finditer(found["value"])):
                yield "a private key", found.start("value"), found.start("value") + runs[-1].end()
    yield from _known(text, data)
    for name, value in secret_variables(environ):
        for at in _places(text, value):
            yield f"the value of {name}", at, at + len(value)
    if "://" in text and "@" in text:
        for at in _places(text, "://"):
            found_url = _URL_PASSWORD.match(text, at)
            if found_url is not None and _IN_PLACE not in found_url["value"] and not _is_word(found_url["value"]):
                yield "a password in a web address", *found_url.span("value")
    low = data.lower()
    for needle, form in ((b"bearer", BEARER), (b"authorization", BASIC), (b" -u", LOGIN), (b" --user", LOGIN)):
        yield from _sent(text, low, needle, form)
    yield from _named(text, low)


def _is_word(value: str) -> bool:
    """Whether it only shows where a password stands, as in `https://user:password@host`."""
    return value.casefold() in ("pass", "password", "passwd", "pwd", "secret", "token") or stands_for(value)


def _known(text: str, data: bytes) -> Iterator[tuple[str, int, int]]:
    """Keys of known kinds: looked for only around long runs of their characters."""
    runs: list[tuple[int, int]] = []
    flat = data.translate(_TOKEN_BYTES)
    at = flat.find(_LONG)
    while at >= 0:
        end = flat.find(b" ", at)
        end = len(flat) if end < 0 else end
        low, high = max(0, at - _AROUND), min(len(text), end + _AROUND)
        if runs and low <= runs[-1][1]:
            runs[-1] = (runs[-1][0], high)
        else:
            runs.append((low, high))
        at = flat.find(_LONG, end)
    if not runs:
        return
    joined = data if len(runs) > _MANY else b" ".join(data[low:high] for low, high in runs)
    for start, back in _STARTS:
        if start not in joined:
            continue
        for low, high in [(0, len(text))] if joined is data else runs:
            for at in _places(data[low:high], start):
                if back == 0 and low + at and chr(data[low + at - 1]).isalnum():
                    continue
                found = KNOWN.match(text, low + at) if back == 0 else KNOWN.search(text, max(0, low + at - back), high)
                kind = known_kind(found) if found is not None else ""
                if found is None or kind in ("", PEM) or found.start() > low + at:
                    continue
                if _IN_PLACE not in text[found.start() : found.end() + 2]:
                    yield kind, *found.span()


def _sent(text: str, low: bytes, needle: bytes, form: re.Pattern[str]) -> Iterator[tuple[str, int, int]]:
    """Logins and bearer tokens as requests carry them."""
    for at in _places(low, needle):
        found = form.search(text, max(0, at - 1), min(len(text), at + 600))
        if found is None or found.start() > at + 2 or _IN_PLACE in text[found.start() : found.end() + 2]:
            continue
        value = found["value"]
        if stands_for(value) or (form is BEARER and not is_random(value, 2.8)):
            continue
        if form is not LOGIN or not (value.isdigit() and len(value) < 5):
            yield "a bearer token" if form is BEARER else "a login with its password", *found.span("value")


def _named(text: str, low: bytes) -> Iterator[tuple[str, int, int]]:
    """What is assigned to a secret's name."""
    places = [(at, len(needle)) for needle in _NAMES for at in _places(low, needle)]
    if not text.isascii():
        places += [(at, len(word)) for word in _FOREIGN for at in _places(text, word)]
    done = 0
    for at, length in sorted(places):
        if at < done or _VALUE_AFTER.match(text, at + length) is None:
            continue
        before = _NAME_BEFORE.search(text, max(0, at - 40), at)
        start = before.start() if before is not None else at
        found = ASSIGNED.match(text, start, min(len(text), at + 4_400))
        if found is not None and found.end() - at > _LONG_VALUE:
            done = found.end()  # what is looked through is not looked through again
        if found is None or _NO_SECRET.search(found["name"]):
            continue
        group = "inside" if found["inside"] is not None else "bare"
        value = found[group].strip().rstrip(".)*\\")
        first = found.start(group) + len(found[group]) - len(found[group].lstrip())
        if _IN_PLACE not in value and "[secret:" not in value and gives_away(found, value):
            yield ("a password" if found["password"] else "a key or token"), first, first + len(value)


def _places(text: str | bytes, part: str | bytes) -> Iterator[int]:
    at = text.find(part)  # type: ignore[arg-type] # both are str, or both bytes
    while at >= 0:
        yield at
        at = text.find(part, at + len(part))  # type: ignore[arg-type] # as above
