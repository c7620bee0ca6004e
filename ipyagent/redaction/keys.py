"""Secrets that are known by their form: keys of known services, private keys, logins as addresses and requests carry
them."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator

from ipyagent.redaction.names import cookie_values, is_marked, is_random, places_of, stands_for, unprefixed

FORMATS: tuple[tuple[str, str, str], ...] = (
    ("a private key", "AGE-SECRET-KEY-1", r"[A-Z0-9]{20,}+"),
    ("an Anthropic API key", "sk-ant-", r"[\w-]{16,}+"),
    ("an OpenAI API key", "sk-", r"(?:proj|svcacct|admin|or-v1|None)-[\w-]{20,}+|(?=[A-Za-z]*+\d)[A-Za-z0-9]{20,}+"),
    *(("an AWS access key", start, r"[A-Z0-9]{16}(?![A-Z0-9])") for start in ("AKIA", "ASIA", "ABIA", "ACCA")),
    *(("a GitHub token", f"gh{kind}_", r"[A-Za-z0-9]{30,}+") for kind in "pousr"),
    ("a GitHub token", "github_pat_", r"\w{20,}+"),
    *(("a GitLab token", f"gl{kind}-", r"[\w-]{18,}+") for kind in ("pat", "ptt", "rt", "dt", "cbt", "soat")),
    ("a Slack token", "xox", r"[abeoprs]-[\w-]{10,}+"),
    ("a Slack token", "xapp-", r"\d-[\w-]{10,}+"),
    ("a webhook address", "https://hooks.slack.com/", r"(?:services|workflows)/[\w/]{20,}+"),
    ("a Google API key", "AIza", r"[\w-]{35}"),
    ("a Google API key", "ya29.", r"[\w-]{20,}+"),
    ("a Google API key", "GOCSPX-", r"[\w-]{20,}+"),
    *(("a Stripe key", f"{kind}k_{mode}_", r"[A-Za-z0-9]{10,}+") for kind in "sr" for mode in ("live", "test")),
    ("a Stripe key", "whsec_", r"[A-Za-z0-9+/=]{24,}+"),
    ("a Twilio key", "SK", r"[0-9a-f]{32}(?![0-9a-f])"),
    ("a SendGrid key", "SG.", r"[\w-]{16,}+\.[\w-]{16,}+"),
    ("a Mailgun key", "key-", r"[0-9a-f]{32}(?![0-9a-f])"),
    ("a Hugging Face token", "hf_", r"[A-Za-z0-9]{26,}+"),
    ("a Hugging Face token", "api_org_", r"[A-Za-z0-9]{30,}+"),
    ("an npm token", "npm_", r"[A-Za-z0-9]{36}"),
    ("a PyPI token", "pypi-", r"[\w-]{40,}+"),
    ("a RubyGems key", "rubygems_", r"[0-9a-f]{40,}+"),
    ("a Docker token", "dckr_", r"(?:pat|oat)_[\w-]{20,}+"),
    *(("a DigitalOcean token", f"do{kind}_v1_", r"[0-9a-f]{40,}+") for kind in "oprt"),
    ("a Databricks token", "dapi", r"[0-9a-f]{32}"),
    *(("a Shopify token", f"shp{kind}_", r"[0-9a-fA-F]{32}") for kind in ("at", "ca", "pa", "ss")),
    ("a Square token", "sq0", r"[a-z]{3}-[\w-]{22,}+"),
    ("an Airtable token", "pat", r"[A-Za-z0-9]{14}\.[0-9a-f]{64}"),
    ("an Atlassian token", "ATATT3", r"[\w=-]{60,}+"),
    ("a Doppler token", "dp.", r"(?:pt|st|ct|sa|scim|audit)\.[\w.-]{40,}+"),
    ("a PlanetScale token", "pscale_", r"(?:tkn|pw|oauth)_[\w.=-]{32,}+"),
    ("a Postman key", "PMAK-", r"[0-9a-f]{24}-[0-9a-f]{34}"),
    ("a Pulumi token", "pul-", r"[0-9a-f]{40}(?![0-9a-f])"),
    ("a Sentry token", "sntry", r"[su]_[\w=+/-]{40,}+"),
    ("a Tailscale key", "tskey-", r"[\w-]{20,}+"),
    ("a LangSmith key", "lsv2_", r"(?:pt|sk)_[0-9a-f]{32}\w*+"),
    ("a Pinecone key", "pcsk_", r"\w{40,}+"),
    *(
        ("an API key", start, r"[\w-]{24,}+")
        for start in (
            "gsk_", "xai-", "pplx-", "r8_", "nvapi-", "fw_", "tvly-", "lin_api_", "ntn_", "NRAK-", "figd_", "sbp_",
            "dop_",
        )
    ),
    *(("a Vault token", f"hv{kind}.", r"[\w-]{24,}+") for kind in "sbr"),
    ("a Grafana token", "glsa_", r"[\w+/=-]{30,}+"),
    ("a Grafana token", "glc_", r"[\w+/=-]{30,}+"),
    *(("an Azure key", f"{kind}=", r"[A-Za-z0-9+/]{40,}+={0,2}") for kind in ("AccountKey", "SharedAccessKey")),
    ("a signed web token", "eyJ", r"[\w-]{10,}+\.[\w-]*+\.[\w-]{10,}+"),
)  # fmt: skip
"""Kind, beginning and rest of the keys that services document or that public scanners (gitleaks, detect-secrets, GitHub
secret scanning) list. Before the beginning stands no letter or digit: it would be the middle of a longer word."""
ANYWHERE = ("sk-ant-", "github_pat_")
"""These are no part of any word."""
_INNER: tuple[tuple[str, bytes, re.Pattern[str], str], ...] = (
    ("a Telegram bot token", b":AA", re.compile(r"\d{8,10}\Z"), r":AA[\w-]{32,}+"),
    (
        "a webhook address", b"/api/webhooks/", re.compile(r"https://(?:\w{1,20}\.)?discord(?:app)?\.com\Z"),
        r"/api/webhooks/\d++/[\w-]{20,}+",
    ),
)  # fmt: skip
"""Those known by what they hold: what stands before it (50 characters at most), and from there on."""
_DISCORD = re.compile(r"(?<![\w-])[MNO][\w-]{23,25}\.[\w-]{6}\.[\w-]{27,}+")
_LONG = b"a" * 16
"""No key of a known kind has only shorter runs of letters and digits."""
_TOKEN_BYTES = bytes(
    ord("a") if code < 128 and (chr(code).isalnum() or chr(code) in "_-") else ord(" ") for code in range(256)
)
_MANY = 2_000
"""Long runs from which on the whole text is searched at once."""
_AROUND = 70
_PRIVATE = re.compile(
    r"-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----"
    r"(?P<value>(?:(?!-----END)[\w+/=\\:,.;()\s\"'|>┆│-]){16,20000})"
)
_BODY = re.compile(r"[A-Za-z0-9+/=]{40,}")
_PEM = re.compile(r"-----BEGIN [A-Z0-9 ]{3,40}-----|PuTTY-User-Key-File-\d")
PEM = "a PEM block"


def private_keys(text: str, *, strict: bool) -> Iterator[tuple[str, int, int]]:
    """Private keys; `strict`: every PEM block."""
    if strict:
        for found in _PEM.finditer(text):
            yield PEM if found[0].startswith("-") else "a private key", *found.span()
    elif "PRIVATE KEY" in text:
        for found in _PRIVATE.finditer(text):
            if runs := list(_BODY.finditer(found["value"])):
                yield "a private key", found.start("value"), found.start("value") + runs[-1].end()
        yield from _ends_of_keys(text)


def _ends_of_keys(text: str) -> Iterator[tuple[str, int, int]]:
    """The lines of a private key whose beginning is not there."""
    for at in places_of(text, "-----END"):
        stop = text.rfind("\n", 0, at)
        while stop > 0 and "PRIVATE KEY" in text[at : at + 60]:
            start = text.rfind("\n", max(0, stop - 400), stop) + 1
            line, shift = unprefixed(text[start:stop])
            if not _KEY_LINE.fullmatch(line) or is_marked(line):
                break
            yield "a private key", start + shift, start + shift + len(line)
            stop = start - 1


_KEY_LINE = re.compile(r"[A-Za-z0-9+/]{4,100}={0,2}")
_URL_PASSWORD = re.compile(r"://[^\s/:@\"'<>]{0,200}:(?P<value>[^\s/@\"'<>]{1,500})@(?=[\w\[])")


def address_passwords(text: str) -> Iterator[tuple[str, int, int]]:
    """Passwords in web addresses."""
    for at in places_of(text, "://") if "@" in text else ():
        found = _URL_PASSWORD.match(text, at)
        if found is not None and not is_marked(found["value"]) and not _is_word(found["value"]):
            yield "a password in a web address", *found.span("value")


def _is_word(value: str) -> bool:
    """Whether it only shows where a password stands, as in `https://user:password@host`."""
    return value.casefold() in ("pass", "password", "passwd", "pwd", "secret", "token") or stands_for(value)


_form = functools.lru_cache(1_000)(re.compile)


def service_keys(text: str, data: bytes) -> Iterator[tuple[str, int, int]]:
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
    where = [(0, len(text))] if joined is data else runs

    def each(start: bytes) -> Iterator[int]:
        for low, high in where if start in joined else ():
            at = data.find(start, low, high)
            while at >= 0:
                yield at
                at = data.find(start, at + len(start), high)

    for kind, begin, rest in FORMATS:
        done = 0
        for at in each(begin.encode()):
            if at < done or not (begin in ANYWHERE or begins_here(text, at)):
                continue
            found = _form(rest).match(text, at + len(begin))
            if found is None:
                if r"\." in rest:  # nothing that begins later in this run ends otherwise
                    end = flat.find(b" ", at + len(begin))
                    done = len(flat) if end < 0 else end
                continue
            done = found.end()
            # `sk-ant-api03-xxxxxxxx` is a picture of a key
            mixed = any(
                len(set(text[low : low + 16])) > 4 for low in (done - 16, *range(at + len(begin) + 8, done - 16, 16))
            )
            if mixed and not is_marked(text[at : done + 2]):
                yield kind, at, done
    for kind, inner, before, rest in _INNER:
        done = 0
        for at in each(inner):
            head = before.search(text, max(0, at - 50), at) if at >= done else None
            found = _form(rest).match(text, at) if head is not None else None
            if head is not None and found is not None and begins_here(text, head.start()):
                done = found.end()
                yield kind, head.start(), done
    if b"." in joined:
        for low, high in where:
            for found in _DISCORD.finditer(text, low, high):
                yield "a Discord token", *found.span()


_COLOUR = re.compile(r"\[[0-9;:]{0,16}[A-Za-z]\Z")


def begins_here(text: str, at: int) -> bool:
    """Whether a key may begin here: not in the middle of a word, unless that is an escape (`\\n`, `%3D`, a colour)."""
    before = text[max(0, at - 3) : at]
    if not before or not before[-1].isalnum() or not before[-1].isascii():
        return True
    if before[-2:] in ("\\n", "\\t", "\\r") or re.fullmatch(r"%[0-9A-Fa-f]{2}", before) is not None:
        return True
    return _COLOUR.search(text, max(0, at - 18), at) is not None


_BEARER = re.compile(r"(?i)bearer[ :=]{1,20}['\"]?(?P<value>[\w.~+/=-]{12,4000})")
_BASIC = re.compile(
    r"(?i)authorization['\"]?\s{0,20}[:=]\s{0,20}['\"]?basic\s{1,20}(?P<value>[A-Za-z0-9+/]{8,4000}={0,2})"
)
_LOGIN = re.compile(r"\s(?:-u|--user|--userpwd)[ =]['\"]?(?P<user>[^\s:'\"]{1,200}):(?P<value>[^\s'\"]{1,500})")
_COOKIE = re.compile(r"(?i)cookie['\"]?:[ \t]{0,20}['\"]?(?P<all>[^\n\"']{12,4000})")


def sent_secrets(text: str, low: bytes) -> Iterator[tuple[str, int, int]]:
    """Logins, bearer tokens and cookies as requests carry them."""
    for needle, form in ((b"bearer", _BEARER), (b"authorization", _BASIC), (b" -u", _LOGIN), (b" --user", _LOGIN)):
        for at in places_of(low, needle):
            found = form.match(text, at)
            if found is None or is_marked(text[found.start() : found.end() + 2]):
                continue
            value = found["value"]
            if stands_for(value) or (form is _BEARER and not is_random(value, 2.8)):
                continue
            if form is not _LOGIN or not (value.isdigit() and len(value) < 5):
                yield "a bearer token" if form is _BEARER else "a login with its password", *found.span("value")
    done = 0
    for at in places_of(low, b"cookie"):
        found = _COOKIE.match(text, at) if at >= done else None
        if found is not None:
            done = found.end()
            for start, end in cookie_values(text, *found.span("all")):
                yield "a cookie", start, end
