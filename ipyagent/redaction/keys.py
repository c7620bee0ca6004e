"""Secrets that are known by their form: keys of known services, private keys, logins as addresses and requests carry
them."""

from __future__ import annotations

import base64
import binascii
import functools
import re
from collections.abc import Iterator

from ipyagent.redaction.names import (
    cookie_values,
    is_marked,
    is_random,
    is_value,
    places_of,
    stands_for,
    unprefixed,
)

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


# ---------------------------------------------------------------------- logins of programs, and hashes of passwords

_LOGINS: tuple[tuple[bytes, re.Pattern[str]], ...] = tuple(
    (needle, re.compile(form))
    for needle, form in (
        (
            b"auth",
            r"(?i)auth\s{0,3}=\s{0,3}\(\s{0,9}['\"][^'\"\n]{1,200}['\"]\s{0,9},\s{0,9}['\"](?P<value>[^'\"\n]{3,400})['\"]",
        ),
        (b"auth(", r"(?i)auth\(\s{0,9}['\"][^'\"\n]{1,200}['\"]\s{0,9},\s{0,9}['\"](?P<value>[^'\"\n]{3,400})['\"]"),
        (
            b"identified ",
            r"(?i)identified\s{1,9}(?:with\s{1,9}\S{1,60}\s{1,9}(?:by|as)|by)\s{1,9}(?:password\s{1,9})?"
            r"['\"](?P<value>[^'\"\n]{3,400})['\"]",
        ),
        (b"password '", r"(?i)password '(?P<value>[^'\n]{3,400})'"),
        (b"thin:", r"(?i)thin:[\w$#]{1,60}/(?P<value>[^\s/@'\"]{3,200})@"),
        (b"oci:", r"(?i)oci:[\w$#]{1,60}/(?P<value>[^\s/@'\"]{3,200})@"),
        (b"oci8:", r"(?i)oci8:[\w$#]{1,60}/(?P<value>[^\s/@'\"]{3,200})@"),
        (b"sshpass", r"sshpass\s{1,9}-p\s{0,3}['\"]?(?P<value>[^\s'\"]{3,200})"),
        (b"mysql", r"mysql\w{0,9}(?=\s)[^\n|;]{0,200}?\s-p['\"]?(?P<value>[^\s'\"\-:][^\s'\":]{2,200})"),
        (b"mariadb", r"mariadb[\w-]{0,9}(?=\s)[^\n|;]{0,200}?\s-p['\"]?(?P<value>[^\s'\"\-:][^\s'\":]{2,200})"),
        (b"requirepass", r"(?<![^\s])requirepass[ \t]{1,9}['\"]?(?P<value>[^\s'\"]{3,200})"),
        (b"masterauth", r"(?<![^\s])masterauth[ \t]{1,9}['\"]?(?P<value>[^\s'\"]{3,200})"),
        (b"psk", r"(?<!\w)psk['\"]?\s{0,9}[:=]\s{0,9}['\"]?(?P<value>[^\s'\"]{8,64})"),
        (b"secretstr(", r"(?i)secretstr\(\s{0,9}['\"](?P<value>[^'\"\n*]{3,400})['\"]"),
        (b"password::", r"(?i)password::[ \t]{0,9}(?P<value>[A-Za-z0-9+/]{8,400}={0,2})"),
    )
)
"""What a program or a library takes a password by, at a word that is in it."""
_SIGNED = re.compile(r"(?i)(?<=[?&])(?:sig|(?:x-\w{3,5}-)?signature)=(?P<value>[\w%+/=.-]{20,1000})")
_BRACED = re.compile(r"(?i)(?<=;)\s{0,3}(?:pwd|password)\s{0,3}=\s{0,3}\{(?P<value>[^{}\n\"'()\[\]]{4,200})\}")
_ENCODED = re.compile(
    r"(?i)auth(?:orization)?\\?['\"]?\s{0,9}[:=]\s{0,9}\\?['\"]?(?P<value>[A-Za-z0-9+/]{8,1000}={0,2})(?![\w+/=])"
)
_ORACLE_USER = re.compile(r"(?<![\w/.@:-])[A-Za-z_][\w$#]{0,30}\Z")
_ORACLE_PASSWORD = re.compile(r"[^\s/@'\"]{3,100}")
_ORACLE_AFTER = re.compile(r"@(?://[\w.-]|[\w.-]{1,100}:\d{2,5}[/:]\w)")
_ORACLE_WORDS = re.compile(r"(?i)sqlplus|sqlldr|expdp|impdp|rman|oracle|jdbc")
_PORT = re.compile(rb":(?:\*|\d{4,5}):(?=[^\s:])")
_HOST = re.compile(r"(?:\*|(?=[^\s:]*[A-Za-z])[\w.-]{2,200}|\d{1,3}(?:\.\d{1,3}){3})\Z")
_OF_HOST = re.compile(
    r"(?:\*|(?=[\w.$-]*[A-Za-z])[\w.$-]{1,63}):(?:\*|(?=[\w.$@-]*[A-Za-z])[\w.$@-]{1,63}):(?P<value>[^\s:]{3,400})(?=\s|\Z)"
)
_CRYPT = re.compile(
    r"\$(?:1|2[abxy]?|5|6|7|y|gy|apr1|sha1|md5|argon2\w{0,2}|scrypt|pbkdf2[\w-]{0,20}|bcrypt[\w-]{0,12}|P|H|S)\$"
    r"[\w./=,+$-]{16,400}"
)
_HASHES: tuple[tuple[bytes, re.Pattern[str]], ...] = tuple(
    (needle, re.compile(form))
    for needle, form in (
        (b"pbkdf2", r"pbkdf2[_:\w-]{0,20}[$:]\d{3,8}\$(?P<value>[\w./+=-]{4,100}\$[\w./+=-]{20,200})"),
        (b"scrypt:", r"scrypt:\d{1,9}:\d{1,4}:\d{1,4}\$(?P<value>[\w./+=-]{4,100}\$[\w./+=-]{20,300})"),
        (b"scram-sha-", r"SCRAM-SHA-\d{1,3}\$\d{1,9}:(?P<value>[\w+/=$:]{40,400})"),
        *(
            (word.encode() + b"}", rf"(?i){word}\}}(?P<value>[A-Za-z0-9+/=.$-]{{13,400}})")
            for word in ("sha", "sha256", "sha384", "sha512", "md5", "crypt", "pbkdf2", "argon2", "bcrypt")
        ),
        (b"*", r"\*(?P<value>[0-9A-F]{40})(?![0-9A-Za-z])"),
    )
)
_DUMPED = re.compile(r":[0-9a-fA-F]{32}:(?P<value>[0-9a-fA-F]{32})\Z")
_SECRET_KIND = re.compile(r"""kind\\?["']?:\s{0,9}\\?["']?Secret\b""")
_SECRET_DATA = re.compile(r"(?m)^(?P<indent>[ ]{0,40})(?:data|stringData):[ \t]*\n")
_SECRET_ENTRY = re.compile(
    r"(?P<indent>[ ]{1,60})[\w.-]{1,200}:[ ]{1,9}['\"]?(?P<value>[^\s'\"|>]{3,4000})['\"]?[ \t\r]*"
)
_SENSITIVE = re.compile(r""""sensitive"\s{0,9}:\s{0,9}true""")
_SENSITIVE_VALUE = re.compile(r""""value"\s{0,9}:\s{0,9}"(?P<value>[^"\n\\]{3,4000})\"""")


def password_hashes(text: str, low: bytes) -> Iterator[tuple[str, int, int]]:
    """What files of users keep in the place of passwords: it can be guessed from."""
    done = 0
    for at in places_of(low, b"$"):
        found = _CRYPT.match(text, at) if at >= done else None
        if found is not None and is_random(found[0], 2.8):
            done = found.end()
            yield "a password hash", *found.span()
    for needle, form in _HASHES:
        for at in places_of(low, needle):
            found = form.match(text, at)
            if found is not None and not is_marked(found["value"]) and any(map(str.isdigit, found["value"])):
                yield "a password hash", *found.span("value")
    for at in places_of(low, b":::"):
        found = _DUMPED.search(text, max(0, at - 66), at)
        if found is not None:
            yield "a password hash", *found.span("value")


def program_logins(text: str, low: bytes) -> Iterator[tuple[str, int, int]]:
    """Passwords as programs, databases and clusters are given them."""
    kind = "a login with its password"
    for needle, form in _LOGINS:
        for at in places_of(low, needle):
            found = form.match(text, at)
            if found is not None and is_value(found["value"], 2, sure=True) and not found["value"].startswith("%"):
                yield kind, *found.span("value")
    if b"sig" in low:
        for found in _SIGNED.finditer(text):
            if is_random(found["value"], 2.8):
                yield "a signature", *found.span("value")
    for at in places_of(low, b"={"):
        begin = max(text.rfind(";", max(0, at - 16), at), 0)
        found = _BRACED.match(text, begin + 1) if begin else None
        code = found is not None and all(part.isidentifier() for part in found["value"].split("."))  # to be filled in
        if found is not None and is_value(found["value"], 2, sure=True) and not code:
            yield kind, *found.span("value")
    for at in places_of(low, b"auth"):
        found = _ENCODED.match(text, at)
        if found is not None and _is_login(found["value"]):
            yield kind, *found.span("value")
    yield from _oracle(text)
    yield from _of_hosts(text, low)
    yield from _of_clusters(text)


def _is_login(value: str) -> bool:
    """Whether it is a user and a password in base64."""
    try:
        said = base64.b64decode(value + "=" * (-len(value) % 4), validate=True).decode("ascii")
    except (binascii.Error, ValueError):
        return False
    user, colon, password = said.partition(":")
    return bool(colon) and said.isprintable() and len(user) > 0 and len(password) > 2


def _oracle(text: str) -> Iterator[tuple[str, int, int]]:
    """`user/password@host:port/service`, or any such word of a line that speaks of the database."""
    if "/" not in text:
        return
    for at in places_of(text, "@"):
        slash = text.rfind("/", max(0, at - 101), at)
        value = text[slash + 1 : at]
        if (
            slash < 1
            or not _ORACLE_PASSWORD.fullmatch(value)
            or not _ORACLE_USER.search(text, max(0, slash - 33), slash)
        ):
            continue
        sure = _ORACLE_AFTER.match(text, at) is not None or _ORACLE_WORDS.search(text, max(0, at - 160), slash)
        if sure and is_value(value, 2, sure=True) and not value.startswith("$"):
            yield "a login with its password", slash + 1, at


def _of_hosts(text: str, low: bytes) -> Iterator[tuple[str, int, int]]:
    """The lines of a `.pgpass`: host, port, database, user, password."""
    for port in _PORT.finditer(low):
        start = text.rfind("\n", max(0, port.start() - 260), port.start()) + 1
        host = text[start + unprefixed(text[start : port.start()])[1] : port.start()]
        found = _OF_HOST.match(text, port.end()) if _HOST.fullmatch(host) or _HOST.fullmatch(host.lstrip("#")) else None
        if found is not None and is_value(found["value"], 2, sure=True):
            yield "a login with its password", *found.span("value")


def _of_clusters(text: str) -> Iterator[tuple[str, int, int]]:
    """What a Secret of Kubernetes holds, and outputs of Terraform that are marked as sensitive."""
    if "Secret" in text and _SECRET_KIND.search(text):
        for data in _SECRET_DATA.finditer(text):
            at = data.end()
            while entry := _SECRET_ENTRY.match(text, at):
                if len(entry["indent"]) <= len(data["indent"]) or text[entry.end() : entry.end() + 1] not in ("\n", ""):
                    break
                if is_value(entry["value"], 2, sure=True):
                    yield "a password or key", *entry.span("value")
                at = entry.end() + 1
    for at in places_of(text, '"sensitive"'):
        if _SENSITIVE.match(text, at):
            low, high = text.rfind("{", max(0, at - 4_000), at), text.find("}", at, at + 4_000)
            found = _SENSITIVE_VALUE.search(text, max(0, low), len(text) if high < 0 else high)
            if found is not None and is_value(found["value"], 2, sure=True):
                yield "a password or key", *found.span("value")
