"""Secrets in texts: the one place that knows how they look, what they are called and how they are taken out.

A secret is known by its form (keys of known services, private keys, logins), by its value (secret-named variables of
the environment), or by the name that it is assigned to or stands below in a table. What merely stands for one
(`<token>`, `$PASSWORD`, `***`) is none. The same text always gives the same, what was taken out stays as it is, and
everything here takes time in proportion to the text. A finding is a kind and a place, never the secret itself.
"""

from __future__ import annotations

import functools
import math
import os
import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from keyword import iskeyword

import msgspec

# ---------------------------------------------------------------------- keys of known services

_FORMATS: tuple[tuple[str, str, str], ...] = (
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
_ANYWHERE = ("sk-ant-", "github_pat_")
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
_IN_PLACE = "…["

# ---------------------------------------------------------------------- names

_PASSWORDS = (
    "password", "passwords", "passwd", "passphrase", "passcode", "passwort", "pwd", "kennwort", "contraseña",
    "contrasena", "senha", "mot de passe", "密码", "密碼", "口令", "パスワード", "비밀번호", "пароль",
)  # fmt: skip
_SECRETS = ("secret", "secrets", "credential", "credentials", "apikey", "apikeys")
_KEYS = ("key", "keys", "token", "tokens", "auth", "authorization", "cookie", "dsn", "signature", "salt")
"""What is called so is a secret if it is qualified, or looks like one."""
_QUALIFIED = (
    "api", "access", "private", "secret", "auth", "signing", "encryption", "account", "bearer", "refresh", "session",
    "client", "master", "license", "service", "subscription", "consumer", "app", "set",
)  # fmt: skip
_LETTERS = "|".join(sorted((*_PASSWORDS, "pass"), key=len, reverse=True))
_ASSIGNED = re.compile(
    rf"(?<![\w.\-])(?P<name>[\w.\-]{{0,40}}?(?:(?P<password>{_LETTERS})|(?P<token>{'|'.join(_SECRETS)}|token|"
    rf"(?:{'|'.join(_QUALIFIED)})[ _.-]?key|session[ _-]?(?:id|cookie)|cookie))[\w.\-]{{0,30}}?)"
    r"(?P<quote>['\"`*]{0,3})"
    r"[ \t]{0,200}(?P<sign>:=|=>|==?|[:：]|\bis\b|\bist\b|是|は|→)\*{0,2}[ \t]{0,200}(?P<open>['\"`*]{0,3})"
    r"(?:(?<=['\"`])(?P<inside>[^'\"`\n]+)|(?P<bare>[^\s'\"`,;]+))",
    re.IGNORECASE,
)
_NEEDLES = (b"pass", b"pwd", b"secret", b"token", b"credential", b"key", b"kennwort", b"senha", b"contrase")
_MORE_NEEDLES = (b"cookie", b"auth", b"dsn", b"signature", b"salt")
"""These speak of a secret only as the name of a column."""
_FOREIGN = ("密码", "密碼", "口令", "パスワード", "비밀번호", "пароль", "Пароль")
_NO_VALUE = re.compile(
    r"(?:tokens|passes|cookies|[_ -](?:name|path|file|url|id|hash|len|length|count|type|field|column|set|at|date|age))$"
)
"""Names that speak of a secret and do not hold it."""
_NO_SECRET = re.compile(r"(?i)session[ _-]?id|cookie|(?:next|page|continuation|pad|eos|bos|unk|mask)_?token|[_.-]id$")
"""Names that stand in tables and logs by the thousand and open nothing, or not for long."""
_WORDS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[^\W\d_]+")
_FOLDERS = ("PWD", "OLDPWD")
"""Variables of the shell that sound like a secret and are the folder that it is in."""


@functools.lru_cache(8_192)
def name_strength(name: str) -> int:
    """2: what bears this name is a secret; 1: it is one if it looks random; 0: the name says nothing."""
    words = [word.lower() for word in _WORDS.findall(name[:200])]
    strong = 0
    for before, word in zip(["", *words], words, strict=False):
        if (
            word in _PASSWORDS
            or word in _SECRETS
            or word.endswith(("password", "passwd", "passphrase", "secret", "apikey"))
        ):
            strong = 2
        elif word in _KEYS:
            strong = max(strong, 2 if before in _QUALIFIED else 1)
    return 0 if strong and _NO_VALUE.search(name[:200].lower()) and not name.lower().endswith("tokens") else strong


# ---------------------------------------------------------------------- values

_STANDS_FOR = re.compile(
    r"arn:.*|[<\[({].*|\$.*|%\w+%?|.*[<{\[(].*[>}\])].*|[*•.…_x-]{2,}|x{3,}.*|(?:your|my|the|some|change)[-_ ].*|"
    r"(?:os|env|settings|config|self|args|secrets?|process|options|cfg|st)\..*|.*(?:getenv|environ|getpass|keyring|vault:).*",
    re.IGNORECASE | re.DOTALL,
)
_ORDINARY = frozenset(
    """
a always an any asked at bool changed correct empty encrypted expired false forgotten given hashed here hidden
in int invalid kept key left missing name nan nat needed never nil no none not null on only optional pass passwd
password pwd redacted rejected removed required reset rotated saved secret set stored str string the there token
true undefined unset valid value written wrong yes
""".split()  # noqa: SIM905 - a list of words reads better as text
)
_TYPES = re.compile(
    r"(?i)(?:u?int|i|u|f|float|bool|str|string|utf|datetime|date|time|object|category|varchar|char|text)\d*"
)
_PATH = re.compile(r"(?:~|[A-Za-z]:)?[\\/][\w.\- ]+[\\/]")
"""How a folder begins: of `pwd` it is where one stands, no password."""
_ATTRIBUTE = re.compile(r"[a-z_]+\d?(?:\.[a-z_]+\d?)+")


def is_random(value: str, least: float) -> bool:
    """Letters and digits without a pattern, `least` bits of entropy a character or more."""
    value = value[:4_000]
    return any(map(str.isdigit, value)) and any(map(str.isalpha, value)) and _entropy(value) >= least


def _looks_random(value: str) -> bool:
    """Whether a text has the length and the mixture of a generated key."""
    head = value[:400]
    if len(value) < 16 or any(character.isspace() for character in head):
        return False
    kinds = sum((any(c.isdigit() for c in head), any(c.islower() for c in head), any(c.isupper() for c in head)))
    return kinds >= 2 and _entropy(head) >= 3.0


def _entropy(value: str) -> float:
    """Bits a character, by the value's own characters."""
    total = len(value)
    return -sum(count / total * math.log2(count / total) for count in Counter(value).values())


def _stands_for(value: str) -> bool:
    """Whether a value only stands for a secret: `<token>`, `$PASSWORD`, `***`."""
    return _STANDS_FOR.fullmatch(value[:4_000]) is not None


def _odd(value: str) -> bool:
    """Letters together with digits or with signs that passwords like."""
    has_digit, has_letter = any(map(str.isdigit, value)), any(map(str.isalpha, value))
    return has_letter and (has_digit or any(character in "!@#$%^&*?~+" for character in value))


def _gives_away(match: re.Match[str], value: str) -> bool:
    """Whether what is assigned to a secret's name is a secret itself."""
    quoted = match["inside"] is not None
    name, bare = match["name"].casefold(), value[:100].casefold()
    if not value or _stands_for(value) or bare in _ORDINARY or bare == name:
        return False
    if _NO_VALUE.search(name) or (name.endswith("pwd") and _PATH.match(value)):
        return False
    if not quoted and re.search(r"[()]|^\W*$", value):  # code, or a sign
        return False
    if match["token"]:
        if value.count("/") > 2 and value[0] in "/~":  # where it is kept
            return False
        return len(value) >= 12 and " " not in value and is_random(value, 2.8)
    if re.search(r"^pass(?:ed|ing|enger|ive|age|port|ion)|bypass|compass|surpass", name):
        return False
    if re.fullmatch(r"[\w.-]*pass", name) and match["sign"] in (":", "：", "is", "==") and not quoted:
        return len(value) >= 8 and is_random(value, 2.5)  # "first pass: 2023" is no password
    if len(value) < 6 or (" " in value and not (quoted and any(map(str.isdigit, value)))):
        return False
    if _odd(value):
        return not _ATTRIBUTE.fullmatch(value)
    if value.isdigit():
        return (match["sign"] != "==" and not quoted) or quoted
    if quoted and match["quote"] and match["sign"] == ":":  # a record's field, as in JSON
        return bool(re.fullmatch(r"[\w-]*(?:password|passwd|passphrase|passcode|pwd)", name))
    tight = match.start("open") == match.end("sign") and match.start("sign") == match.end("quote")
    return match["sign"] == "=" and (quoted or tight) and not re.search(r"[._]", value)


def secret_variables(environ: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Names and values of the environment's secrets: named so, long and random enough, and no folder or file that
    is there (`PWD` is no password, `GOOGLE_APPLICATION_CREDENTIALS` says where they are)."""
    for name in environ:
        value = environ.get(name, "")  # another thread may have taken it out
        if len(value) >= 12 and _secretive(name) and is_random(value, 2.5):
            if os.path.isabs(value) and os.path.lexists(value):
                continue
            yield name, value


@functools.lru_cache(8_192)
def _secretive(name: str) -> bool:
    low = name.lower().encode("utf-8", "replace")
    return name not in _FOLDERS and any(needle in low for needle in _NEEDLES if needle != b"pass" or b"passw" in low)


# ---------------------------------------------------------------------- where they stand


def secrets_in(text: str, *, environ: Mapping[str, str] = os.environ) -> list[tuple[str, int, int]]:
    """(kind, start, end) of each secret in the text, in order, none within another; the sure ones only."""
    return _apart(_all(text, environ))


def _apart(found: Iterable[tuple[str, int, int]]) -> list[tuple[str, int, int]]:
    made: list[tuple[str, int, int]] = []
    for kind, start, end in sorted(found, key=lambda each: each[1]):
        if made and start < made[-1][2]:
            made[-1] = (made[-1][0], made[-1][1], max(end, made[-1][2]))
        elif end > start:
            made.append((kind, start, end))
    return made


def _all(text: str, environ: Mapping[str, str], *, strict: bool = False) -> Iterator[tuple[str, int, int]]:
    data = text.encode("latin-1", "replace")  # a byte a character: places are the same
    if strict:
        for found in _PEM.finditer(text):
            yield PEM if found[0].startswith("-") else "a private key", *found.span()
    elif "PRIVATE KEY" in text:
        for found in _PRIVATE.finditer(text):
            if runs := list(_BODY.finditer(found["value"])):
                yield "a private key", found.start("value"), found.start("value") + runs[-1].end()
        yield from _ends_of_keys(text)
    yield from _known(text, data)
    for name, value in secret_variables(environ):
        for at in _places(text, value):
            yield f"the value of {name}", at, at + len(value)
    if "://" in text and "@" in text:
        for at in _places(text, "://"):
            found_url = _URL_PASSWORD.match(text, at)
            if found_url is not None and not _marked(found_url["value"]) and not _is_word(found_url["value"]):
                yield "a password in a web address", *found_url.span("value")
    low = data.lower()
    yield from _sent(text, low)
    places = _named_places(text, low)
    yield from _named(text, places, strict=strict)
    yield from _columns(text, low, places)[0]
    if strict:
        yield from _random(text)


def _ends_of_keys(text: str) -> Iterator[tuple[str, int, int]]:
    """The lines of a private key whose beginning is not there."""
    for at in _places(text, "-----END"):
        stop = text.rfind("\n", 0, at)
        while stop > 0 and "PRIVATE KEY" in text[at : at + 60]:
            start = text.rfind("\n", max(0, stop - 400), stop) + 1
            line, shift = _bare(text[start:stop])
            if not _KEY_LINE.fullmatch(line) or _marked(line):
                break
            yield "a private key", start + shift, start + shift + len(line)
            stop = start - 1


_KEY_LINE = re.compile(r"[A-Za-z0-9+/]{4,100}={0,2}")
_URL_PASSWORD = re.compile(r"://[^\s/:@\"'<>]{0,200}:(?P<value>[^\s/@\"'<>]{1,500})@(?=[\w\[])")


def _is_word(value: str) -> bool:
    """Whether it only shows where a password stands, as in `https://user:password@host`."""
    return value.casefold() in ("pass", "password", "passwd", "pwd", "secret", "token") or _stands_for(value)


def _marked(value: str) -> bool:
    """Whether it was taken out before."""
    return _IN_PLACE in value or "[secret:" in value or "[key]" in value


_form = functools.lru_cache(1_000)(re.compile)


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
    where = [(0, len(text))] if joined is data else runs

    def each(start: bytes) -> Iterator[int]:
        for low, high in where if start in joined else ():
            at = data.find(start, low, high)
            while at >= 0:
                yield at
                at = data.find(start, at + len(start), high)

    for kind, begin, rest in _FORMATS:
        done = 0
        for at in each(begin.encode()):
            if at < done or not (begin in _ANYWHERE or _begins(text, at)):
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
            if mixed and not _marked(text[at : done + 2]):
                yield kind, at, done
    for kind, inner, before, rest in _INNER:
        done = 0
        for at in each(inner):
            head = before.search(text, max(0, at - 50), at) if at >= done else None
            found = _form(rest).match(text, at) if head is not None else None
            if head is not None and found is not None and _begins(text, head.start()):
                done = found.end()
                yield kind, head.start(), done
    if b"." in joined:
        for low, high in where:
            for found in _DISCORD.finditer(text, low, high):
                yield "a Discord token", *found.span()


_COLOUR = re.compile(r"\[[0-9;:]{0,16}[A-Za-z]\Z")


def _begins(text: str, at: int) -> bool:
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
_COOKIE_VALUE = re.compile(r"(?:^|[=;, \t])(?P<value>[^=;,\s]{12,})")


def _sent(text: str, low: bytes) -> Iterator[tuple[str, int, int]]:
    """Logins, bearer tokens and cookies as requests carry them."""
    for needle, form in ((b"bearer", _BEARER), (b"authorization", _BASIC), (b" -u", _LOGIN), (b" --user", _LOGIN)):
        for at in _places(low, needle):
            found = form.match(text, at)
            if found is None or _marked(text[found.start() : found.end() + 2]):
                continue
            value = found["value"]
            if _stands_for(value) or (form is _BEARER and not is_random(value, 2.8)):
                continue
            if form is not _LOGIN or not (value.isdigit() and len(value) < 5):
                yield "a bearer token" if form is _BEARER else "a login with its password", *found.span("value")
    done = 0
    for at in _places(low, b"cookie"):
        found = _COOKIE.match(text, at) if at >= done else None
        if found is not None:
            done = found.end()
            for start, end in _cookies(text, *found.span("all")):
                yield "a cookie", start, end


def _cookies(text: str, start: int, end: int) -> Iterator[tuple[int, int]]:
    """The values of cookies that look random."""
    for found in _COOKIE_VALUE.finditer(text, start, end):
        if is_random(found["value"], 2.8) and not _stands_for(found["value"]) and not _marked(found["value"]):
            yield found.span("value")


_NAME_BEFORE = re.compile(r"[\w.\-]{0,40}\Z")
_VALUE_AFTER = re.compile(
    r"[\w.\-]{0,34}['\"`*\\]{0,3}[ \t]{0,200}(?::=|=>|==?|[:：]|\bis\b|\bist\b|是|は|→)\*{0,2}[ \t]{0,200}"
    r"(?:\\?['\"`]+[^'\"`\n]{6}|[^\s'\"`,;]{6})"
)
_LONG_VALUE = 200


def _named_places(text: str, low: bytes) -> list[tuple[int, int]]:
    """Where words of secrets' names stand, with their length, in order."""
    places = [(at, len(needle)) for needle in _NEEDLES for at in _places(low, needle)]
    if not text.isascii():
        places += [(at, len(word)) for word in _FOREIGN for at in _places(text, word)]
    return sorted(places)


def _named(text: str, places: Iterable[tuple[int, int]], *, strict: bool) -> Iterator[tuple[str, int, int]]:
    """What is assigned to a secret's name."""
    done = 0
    for at, length in places:
        if at < done or _VALUE_AFTER.match(text, at + length) is None:
            continue
        before = _NAME_BEFORE.search(text, max(0, at - 40), at)
        start = before.start() if before is not None else at
        found = _ASSIGNED.match(text, start, min(len(text), at + 4_400))
        if found is not None and found.end() - at > _LONG_VALUE:
            done = found.end()  # what is looked through is not looked through again
        if found is None or (not strict and _NO_SECRET.search(found["name"])):
            continue
        group = "inside" if found["inside"] is not None else "bare"
        value = found[group].strip().rstrip(".)*\\")
        first = found.start(group) + len(found[group]) - len(found[group].lstrip())
        if not _marked(value) and _gives_away(found, value):
            yield ("a password" if found["password"] else "a key or token"), first, first + len(value)


def _places(text: str | bytes, part: str | bytes) -> Iterator[int]:
    at = text.find(part)  # type: ignore[arg-type] # both are str, or both bytes
    while at >= 0:
        yield at
        at = text.find(part, at + len(part))  # type: ignore[arg-type] # as above


# ---------------------------------------------------------------------- columns

_HEAD_CHARS = 4_000
"""A longer line is no head of a table."""
_STRAY = 8
"""Lines in a row that do not fit a table and do not end it yet."""
_BEFORE_ROW = re.compile(r" {1,12}\d{0,9}\t|(?:[^\s:,|]{1,300}[:-])?\d{1,9}[:-]|[+\- ](?=\S)")
"""What read_file, `cat -n`, `grep -n` and `diff` put before a line."""
_NAME_CELL = re.compile(r"[^\W\d][\w .\-]{0,40}")
_HEAD_CELL = re.compile(r"[\w .\-/#%°€$£&]{0,60}(?:\([\w /%]{0,20}\))?")
_NO_HEAD = re.compile(r"[=:{}<>\[\]!?\\@]")
_RULE = re.compile(r"[\s|+:=\-─━═┄╌│┆┃║┌┐└┘├┤┬┴┼╞╡╪╭╮╰╯╒╕╘╛┏┓┗┛┡┩╇]*")
_BARS = re.compile(r"[|│┆┃║]")
_GAPS = re.compile(r"\S+(?: \S+)*")


class _Table(msgspec.Struct, frozen=True):
    """The head of a table: what separates its cells, how many there are, where they stand in the line, which of them
    name secrets and how strongly; `sure` of a head that is no sentence and no code."""

    separator: str
    count: int
    spans: tuple[tuple[int, int], ...]
    secret: dict[int, int]
    sure: bool


def _columns(text: str, low: bytes, places: list[tuple[int, int]]) -> tuple[list[tuple[str, int, int]], str]:
    """The secrets that stand below a secret's name in a table, or beside it in a line; and the head of a table that
    may go on behind the text ("": there is none)."""
    heads = sorted([at for at, _ in places] + [at for needle in _MORE_NEEDLES for at in _places(low, needle)])
    found: list[tuple[str, int, int]] = []
    done, open_head = 0, ""
    for place in heads:
        if place < done:
            continue
        start = text.rfind("\n", 0, place) + 1
        end = text.find("\n", place)
        closed, end = end >= 0, len(text) if end < 0 else end
        done = end
        if end - start > _HEAD_CHARS:
            continue
        line = text[start:end]
        if (beside := _beside(line)) is not None:
            found.append(("a password or key", start + beside[0], start + beside[1]))
            continue
        table = _head(line)
        if table is None or not closed:
            continue
        at, stray, rows = end + 1, 0, 0
        open_head = line
        while at < len(text):
            stop = text.find("\n", at)
            stop = len(text) if stop < 0 else stop
            cells = _below(text[at:stop], table) if stop - at <= 20_000 else None
            if cells is None:
                stray += 1
                if stray > _STRAY or stop == at or (not rows and not table.sure):
                    open_head = ""
                    break
            else:
                stray, rows = 0, rows + 1
                found += [(kind, at + first, at + last) for kind, first, last in cells]
                done = stop
            at = stop + 1
    return found, open_head


def _head(line: str) -> _Table | None:
    """The line as the head of a table with a secret's column; None when it is none."""
    line, shift = _bare(line)
    if _NO_HEAD.search(line):
        return None
    for separator in ("\t", "|", ",", ";", " "):
        if separator == "|" and not _BARS.search(line):
            continue
        if separator in "\t,;" and separator not in line:
            continue
        if separator == "," and (line.endswith((",", ", ")) or (", " in line and re.search("[\"'`]", line))):
            continue  # code
        spans = _cells(line, separator)
        names = [line[first:last] for first, last in spans]
        if len(names) < 2 and not (separator == " " and names and name_strength(names[0]) == 2):
            continue
        if not all(_HEAD_CELL.fullmatch(name) for name in names):
            continue
        wide = separator != " " or "  " in line.strip()
        if not wide and (len(names) > 8 or not all(map(str.isidentifier, names)) or any(map(iskeyword, names))):
            continue  # a sentence, or code
        secret = {
            at: strength
            for at, name in enumerate(names)
            if _NAME_CELL.fullmatch(name) and name.count(" ") < 3 and name.lower() not in ("key", "keys", "salt")
            and (strength := name_strength(name))
        }  # fmt: skip
        if not secret:
            continue
        sure = separator in "\t|;" or (separator == "," and ", " not in line) or (separator == " " and wide)
        return _Table(
            separator, len(names), tuple((first + shift, last + shift) for first, last in spans), secret, sure
        )
    return None


def _bare(line: str) -> tuple[str, int]:
    """The line without what was put before it, and how much that was."""
    before = _BEFORE_ROW.match(line)
    shift = before.end() if before is not None else 0
    return line[shift:].rstrip("\r"), shift


def _cells(line: str, separator: str) -> list[tuple[int, int]]:
    """Where the cells of a line stand, without blanks and quotes around them."""
    spans: list[tuple[int, int]] = []
    if separator == " ":
        wide = "  " in line.strip()
        spans = [found.span() for found in (_GAPS if wide else re.compile(r"\S+")).finditer(line)]
    elif separator == "|":
        at = 0
        for bar in _BARS.finditer(line):
            spans.append((at, bar.start()))
            at = bar.end()
        spans.append((at, len(line)))
        spans = spans[1:] if not line[slice(*spans[0])].strip() else spans
        spans = spans[:-1] if spans and not line[slice(*spans[-1])].strip() else spans
    else:
        at = 0
        while at <= len(line):
            stop = -1
            if line.startswith('"', at):
                close = line.find('"', at + 1)
                while 0 <= close < len(line) - 1 and line[close + 1] == '"':
                    close = line.find('"', close + 2)
                stop = line.find(separator, close) if close > 0 else -1
            else:
                stop = line.find(separator, at)
            stop = len(line) if stop < 0 else stop
            spans.append((at, stop))
            at = stop + 1
    around = {" ": "", "|": " \t`*", "\t": ' "'}.get(separator, " \"'")
    made = []
    for first, last in spans:
        cell = line[first:last]
        first += len(cell) - len(cell.lstrip(around)) if around else 0
        made.append((first, first + len(cell.strip(around) if around else cell)))
    return made


def _below(line: str, table: _Table) -> list[tuple[str, int, int]] | None:
    """The secrets of a row; None for a line that is no row of the table."""
    line, shift = _bare(line)
    if not line.strip():
        return None
    if _RULE.fullmatch(line):
        return []
    spans = _cells(line, table.separator)
    chosen: list[tuple[int, tuple[int, int]]] = []
    if table.separator != " ":
        if len(spans) != table.count:
            return None
        chosen = [(strength, spans[at]) for at, strength in table.secret.items()]
    else:
        more = len(spans) - table.count  # one more: the index of a printed table
        if more not in (0, 1):
            spans = [found.span() for found in re.finditer(r"\S+", line)]
            more = len(spans) - table.count
        for at, strength in table.secret.items():
            if more in (0, 1) and table.count > 1:
                chosen.append((strength, spans[at + more]))
            elif table.count == 1 and len(spans) == 1:
                chosen.append((strength, spans[0]))
            else:
                first, last = table.spans[at]
                chosen += [(strength, (a, b)) for a, b in spans if a + shift < last and b + shift > first]
        if not chosen:
            return None
    found: list[tuple[str, int, int]] = []
    for strength, (first, last) in chosen:
        value = line[first:last]
        if "=" in value and (";" in value or strength == 1) and (pieces := list(_cookies(line, first, last))):
            found += [("a cookie", start + shift, end + shift) for start, end in pieces]
            continue
        if _is_value(value, strength, sure=table.sure and table.count > 1):
            found.append(("a password or key", first + shift, last + shift))
    return found


def _is_value(value: str, strength: int, *, sure: bool) -> bool:
    """Whether a cell below a secret's name is one. `sure`: it certainly is that cell."""
    low = value[:100].casefold()
    if len(value) < 3 or _marked(value) or low in _ORDINARY or _TYPES.fullmatch(low) or _stands_for(value):
        return False
    if strength == 1:
        return _looks_random(value)
    if value.isdigit() and len(value) < 4:
        return False
    if sure:
        return " " not in value or _odd(value)
    has_digit, has_letter = any(map(str.isdigit, value)), any(map(str.isalpha, value))
    return len(value) >= 6 and " " not in value and has_digit and has_letter and not _ATTRIBUTE.fullmatch(value)


def _beside(line: str) -> tuple[int, int] | None:
    """The secret in a line of two cells whose first one names it, as in a printed Series."""
    bare, shift = _bare(line)
    if len(bare) > 600:
        return None
    for separator in ("\t", "|", " "):
        if separator not in bare or (separator == " " and "  " not in bare.strip()):
            continue
        spans = _cells(bare, separator)
        if len(spans) != 2:
            continue
        name, value = (bare[first:last] for first, last in spans)
        strength = name_strength(name) if _NAME_CELL.fullmatch(name) else 0
        names_another = _NAME_CELL.fullmatch(value) is not None and name_strength(value)
        if strength and not names_another and _is_value(value, strength, sure=False):
            return spans[1][0] + shift, spans[1][1] + shift
    return None


# ---------------------------------------------------------------------- taken out of a text

_ARTICLE = re.compile(r"^(?:an?|the) ")
_STANDS_IN = re.compile(r"\[secret: [^\]\n]{1,80}, \d[\d,]* characters\]|[^\s…]{0,4}…\[\d+ masked\]")


def secret_mark(kind: str, length: int) -> str:
    """What stands in the place of a secret that was taken out of a text: `[secret: API key, 51 characters]`."""
    return f"[secret: {_ARTICLE.sub('', kind)}, {length:,} characters]"


EDGE = 400
"""Characters at a cut that are left out as well when no blank is nearer: half a secret is one that nobody knows."""


def before_cut(text: str) -> str:
    """The head of a text that was cut, up to its last whole word."""
    at = max(map(text.rfind, " \n\t", (max(0, len(text) - EDGE),) * 3))
    return text[: at + 1] if at >= 0 else text


def after_cut(text: str) -> str:
    """The tail of a text that was cut, from its first whole word."""
    found = [at for at in (text.find(blank, 0, EDGE) for blank in " \n\t") if at >= 0]
    return text[min(found) :] if found else text


def stand_ins(text: str) -> list[str]:
    """What stands for secrets in a text, as it is shown."""
    return _STANDS_IN.findall(text) if "[" in text else []


def redacted(text: str, *, environ: Mapping[str, str] = os.environ) -> tuple[str, list[str]]:
    """The text with a mark for each secret, and their kinds in order."""
    found = secrets_in(text, environ=environ)
    return (_replaced(text, found), [_ARTICLE.sub("", kind) for kind, _, _ in found]) if found else (text, [])


def _replaced(
    text: str, found: Iterable[tuple[str, int, int]], begin: int = 0, mark: Callable[[str, str], str] | None = None
) -> str:
    """The text from `begin` on with a mark for what was found."""
    parts: list[str] = []
    at = begin
    for kind, start, end in found:
        start = max(start, begin)
        if end > start:
            parts += [text[at:start], secret_mark(kind, end - start) if mark is None else mark(kind, text[start:end])]
            at = end
    return "".join([*parts, text[at:]])


_SENT = re.compile(r"\bsk-[\w-]{8,}+|(?i:\bbearer)\s{1,9}[^\s'\"]{8,}+|(?<=://)[^\s/@]++(?=@)")
"""What may be a key where a server speaks of one: cut, of no known form, or the user of an address."""


def without_keys(text: str, *known: str | None) -> str:
    """What a server or its client says, without the keys that it was given (`known`) and whatever may be one."""
    for value in known:
        if value and len(value) >= 6:
            text = text.replace(value, "[key]")
    return _SENT.sub("[key]", _replaced(text, secrets_in(text), mark=lambda kind, value: "[key]"))


class Redactor:
    """Calling it gives the text without its secrets. `on` tells whether the user wants that, `notice` takes the
    one line that says that it was done, `known` names values that are secrets whatever they look like."""

    def __init__(
        self,
        on: Callable[[], bool] = lambda: True,
        notice: Callable[[str], None] = lambda line: None,
        known: Callable[[], Iterable[str]] = tuple,
    ) -> None:
        self._on, self._notice, self._known = on, notice, known
        self._told = False

    def __repr__(self) -> str:
        return f"<Redactor {'on' if self._on() else 'off'}>"

    def __call__(self, text: str) -> str:
        if not self._on():
            return text
        made, kinds = redacted(text)
        self.found(kinds)
        return made

    def named(self, name: str, value: str) -> str:
        """What is called `name`, without its secrets; all of it where the name says that it is one."""
        if self._on() and name_strength(name) == 2 and _is_value(value, 2, sure=True):
            self.found(["password or key"])
            return secret_mark("a password or key", len(value))
        return self(value)

    def raw(self, data: bytes) -> bytes:
        """Bytes without their secrets. What is no text keeps its length: every place in it stays where it is."""
        if not self._on():
            return data
        try:
            return self(data.decode()).encode()
        except UnicodeDecodeError:
            pass
        text = data.decode("latin-1")
        found = secrets_in(text)
        self.found([_ARTICLE.sub("", kind) for kind, _, _ in found])
        return _replaced(text, found, mark=lambda kind, value: "*" * len(value)).encode("latin-1")

    @property
    def on(self) -> bool:
        """Whether the user wants secrets taken out."""
        return self._on()

    def known(self) -> list[str]:
        """Values that are secrets whatever they look like."""
        return [*self._known(), *(value for _, value in secret_variables(os.environ))]

    def found(self, kinds: list[str]) -> None:
        """Tell the user once that something was taken out."""
        if kinds and not self._told:
            self._told = True
            self._notice(
                f"what looks like a secret ({kinds[0]}) was left out of what the model gets: "
                f"[secret: …] stands in its place; IPyAgent.redact_secrets = False sends it"
            )


# ---------------------------------------------------------------------- text that comes in pieces

HELD = 20_000
"""Characters that are held back at most."""
_CONTEXT = 1_024
"""Characters of an unfinished line that are looked at again with what follows."""
_STARTS = tuple(sorted({begin for _, begin, _ in _FORMATS} | {"://", "/api/webhooks/", "-----BEGIN"}, key=len))
_BEGUN = re.compile("|".join(re.escape(begin) for begin in reversed(_STARTS)) + r"|\d{8,10}:AA")
_PREFIXES = frozenset(begin[:size] for begin in _STARTS for size in range(1, len(begin)))
_LONGEST = max(map(len, _STARTS))
_BOT = re.compile(r"(?<!\d)\d{1,10}(?::A?)?\Z")
_OPEN_VALUE = re.compile(
    r"[\w.\-]{0,34}['\"`*\\]{0,3}[ \t]{0,200}(?:(?:[:：]=?|==?>?|is|ist|i|是|は|→)\*{0,2}[ \t]{0,200}"
    r"(?:\\?['\"`]+[^'\"`\n]*|[^\s'\"`,;]*))?\Z"
)
_OPEN_SENT = re.compile(
    r"(?i)(?:bearer[ :=]{0,20}|basic\s{1,20}|\s(?:-u|--user|--userpwd)[ =])['\"]?\S{0,4000}\Z"
    r"|cookie['\"]?(?::[^\n]{0,4000})?\Z"
)
_BEGINS_KEY = re.compile(r"-----BEGIN[A-Z0-9 ]{0,60}-{0,5}\Z")


class Stream:
    """Text that comes in pieces, given on without its secrets: what may yet become one is held back, at most `HELD`
    characters. Each character is given on exactly once, or a mark for it."""

    def __init__(self, redact: Redactor) -> None:
        self._redact = redact
        self._context = ""
        self._table = False
        self._pending: list[str] = []
        self._size = 0
        self._due = 0

    def __repr__(self) -> str:
        return f"<Stream {self._size} characters held back>"

    def feed(self, piece: str) -> str:
        """What may be given on now."""
        if not self._redact.on:
            return self.end() + piece
        before = self.end() if piece.startswith("\r") else ""  # what follows takes the place of the line
        self._pending.append(piece)
        self._size += len(piece)
        if self._size < self._due and not any(map(str.isspace, piece)):
            return before
        pending = "".join(self._pending)
        lines = pending.rfind("\n") + 1  # the whole lines first: they tell what the rest stands below
        made, left = self._taken(pending[:lines])
        rest = left + pending[lines:]
        if not left:
            more, rest = self._taken(rest)
            made += more
        self._pending = [rest]
        self._size = len(rest)
        self._due = self._size + max(1, self._size // 4) if rest else 0
        return before + made

    def _taken(self, pending: str) -> tuple[str, str]:
        """What may be given on of the text, and what may not."""
        text = self._context + pending
        begin = len(self._context)
        cut = max(begin, self._settled(text))
        if len(text) - cut > HELD:
            cut = len(text)
        return self._given(text, begin, cut), text[cut:]

    def end(self) -> str:
        """The rest."""
        text = self._context + "".join(self._pending)
        made = self._given(text, len(self._context), len(text))
        self._pending, self._size, self._due = [], 0, 0
        return made

    def _given(self, text: str, begin: int, cut: int) -> str:
        """What stands from `begin` to `cut`; what has to be known of it later is kept."""
        if cut <= begin:
            return ""
        text = text[:cut]
        if not self._redact.on:
            self._context, self._table = "", False
            return text[begin:]
        found = secrets_in(text)
        for value in self._redact.known():
            found += [("a key", at, at + len(value)) for at in _places(text, value)]
        found = [each for each in _apart(found) if each[2] > begin]
        self._redact.found([_ARTICLE.sub("", kind) for kind, _, _ in found])
        low = text.encode("latin-1", "replace").lower()
        line = text.rfind("\n") + 1
        head = _columns(text, low, _named_places(text, low))[1]
        self._table = bool(head)
        self._context = (f"{head}\n" if head and line else "") + text[max(line, cut - _CONTEXT) :]
        private = text.rfind("-----BEGIN")
        if private >= 0 and "PRIVATE KEY" in text[private : private + 90] and text.find("-----END", private) < 0:
            self._context = f"-----BEGIN PRIVATE KEY-----\n{self._context}"
        return _replaced(text, found, begin)

    def _settled(self, text: str) -> int:
        """Up to where the text says the same whatever follows."""
        line = max(text.rfind("\n") + 1, 0)
        held = line if self._table else self._open(text, line)
        private = text.rfind("-----BEGIN", max(0, len(text) - HELD - _CONTEXT))
        if private >= 0:
            head = text[private : private + 90]
            if _BEGINS_KEY.match(head) or ("PRIVATE KEY" in head and text.find("-----END", private) < 0):
                held = min(held, private)
        return held

    def _open(self, text: str, line: int) -> int:
        """Where in the last line something begins that may become a secret."""
        line = max(line, len(text) - HELD)
        tail = text[line:]
        run = len(tail)
        while run and not tail[run - 1].isspace():
            run -= 1
        held = len(tail)
        for found in _BEGUN.finditer(tail, run):
            if found[0] in ("://", "/api/webhooks/", *_ANYWHERE) or _begins(tail, found.start()):
                held = found.start() if found[0] != "/api/webhooks/" else run
                break
        for size in range(min(_LONGEST - 1, len(tail)), 0, -1):
            part = tail[-size:]
            inner = part[0] in ":/" or (size > 3 and any(begin.startswith(part) for begin in _ANYWHERE))
            if part in _PREFIXES and (inner or _begins(tail, len(tail) - size)):
                held = min(held, len(tail) - size)
                break
        if (bot := _BOT.search(tail, max(run, len(tail) - 14))) is not None:
            held = min(held, bot.start())
        for value in self._redact.known():
            for at in range(max(0, len(tail) - len(value) + 1), len(tail)):
                if value.startswith(tail[at:]):
                    held = min(held, at)
                    break
        low = tail[-4_400:].encode("latin-1", "replace").lower()
        shift = len(tail) - len(low)
        for at, length in _named_places(tail[-4_400:], low):
            if shift + at >= held:
                break
            if _OPEN_VALUE.match(tail, shift + at + length):
                held = shift + at
                break
        if (sent := _OPEN_SENT.search(tail, max(0, len(tail) - 4_400))) is not None:
            held = min(held, sent.start())
        return line + held


# ---------------------------------------------------------------------- previews of values

_MASKED = r"(?:[^\s…]{0,4}…\[\d+ masked|\[secret: )"
_BY_NAME = re.compile(
    r"((?:pass(?:word|wd|phrase|code)|pwd|secret|credential|token|key|auth)[\w-]{0,20})"
    r"(\\?[\"']?(?:\s?:\s?[\w.\[\]| ]{1,40})?\s{0,3}(?:=|:(?!/))\s{0,3})"
    r"(?!\\?[\"']?" + _MASKED + r")(?:\\?([\"'])(.{1,4000}?)(?:\\?\3|$)|([^\s\"',;&)}\]]{1,4000}))",
    re.IGNORECASE | re.MULTILINE,
)
_BEFORE = re.compile(r"[\w-]{0,40}\Z")
_CODE = re.compile(
    r"(?:str|int|bytes|None|True|False|null|true|false|bool|float|Any|Optional|object|obj|[iuf]\d+)\b|[\w.]+\(|[{(\[<]"
)


def masked(value: str) -> str:
    """The form in which a secret is shown in a preview: its first characters and its length."""
    kept = 4 if len(value) >= 12 else 3 if len(value) >= 8 else 0
    return f"{value[:kept]}…[{len(value)} masked]"


def mask_named(name: str, value: str) -> str:
    """`value` as it may be shown for something called `name` (a variable, key, column, attribute)."""
    strength = name_strength(name)
    if not value or re.match(_MASKED, value):
        return value
    if name.lower().endswith("pwd") and value[0] in "/~":
        return mask(value)
    if strength == 2 or (strength == 1 and _looks_random(value)):
        return masked(value)
    return mask(value)


def mask(text: str) -> str:
    """`text` as a preview shows it, where more is a secret than in a text that somebody reads: whatever is assigned to
    a password's name, a private key also without its end, and what looks random behind key or token."""
    found = secrets_in(text)
    if "=" in text or ":" in text:
        found = _apart([*found, *_by_name(text)])
    return _replaced(text, found, mark=lambda kind, value: masked(value)) if found else text


def _by_name(text: str) -> Iterator[tuple[str, int, int]]:
    for found in _BY_NAME.finditer(text):
        before = _BEFORE.search(text, max(0, found.start() - 40), found.start())
        name = (before[0] if before else "") + found[1]
        group = 4 if found[4] is not None else 5
        value = found[group]
        if (group == 5 and _CODE.match(value)) or _marked(value) or (name.lower().endswith("pwd") and value[0] in "/~"):
            continue
        strength = name_strength(name)
        if strength == 2 or (strength == 1 and _looks_random(value)):
            yield "a password or key", *found.span(group)


# ---------------------------------------------------------------------- what is never kept in memory


class Secret(msgspec.Struct, frozen=True):
    """A secret in a text: what `kind` of secret, on which `line` (from 1)."""

    kind: str
    line: int


_ZERO_WIDTH = re.compile(r"[\u00ad\u200b-\u200f\u2028\u2029\u2060-\u2064\ufeff]")
_ANY = re.compile(
    r"(?<![\w.-])(?P<name>[A-Za-z_][\w.-]{0,60})['\"]?[ \t]{0,20}(?::=|=>|[:=])[ \t]{0,20}['\"]?"
    r"(?P<value>[A-Za-z0-9+/_=-]{32,})"
)


def find_secrets(text: str, *, known: str = "", environ: Mapping[str, str] = os.environ) -> list[Secret]:
    """The secrets in a text that is to be remembered, in order, none twice: also certificates, random values of any
    name, and other spellings. What `known` (the text before a change) holds already is not found again."""
    text, known = _plain(text), _plain(known)
    made: dict[Secret, None] = {}
    line, counted = 1, 0
    for kind, start, end in _apart(_all(text, environ, strict=True)):
        line, counted = line + text.count("\n", counted, start), start
        if not (known and text[start:end] in known):
            kind = kind.replace("the value of ", "the value of the environment variable ")
            made[Secret(kind, line)] = None
    return list(made)


def _random(text: str) -> Iterator[tuple[str, int, int]]:
    """What looks like a generated key behind any name."""
    for found in _ANY.finditer(text):
        value = found["value"]
        mixed = re.search("[a-z]", value) and re.search("[A-Z]", value) and re.search("[0-9]", value)
        longest = max(re.split(r"[/_=+-]", value), key=len)
        if mixed and len(longest) >= 20 and _entropy(value) >= 4.3:
            yield "a random key", *found.span("value")


def refusal(found: list[Secret]) -> str:
    """Why a text is not kept, in one line, without the secrets; "" for none."""
    if not found:
        return ""
    told = [f"{secret.kind} (line {secret.line})" for secret in found[:3]]
    more = f" and {len(found) - 3} more" if len(found) > 3 else ""
    return (
        f"not saved: it holds what looks like {', '.join(told)}{more}. Secrets are never kept in memory; "
        "leave it out, and say where it is kept instead (an environment variable, a password manager)"
    )


def _plain(text: str) -> str:
    """One spelling for every look of a character; lines stay lines."""
    if text.isascii():
        return text
    return _ZERO_WIDTH.sub("", "".join(unicodedata.normalize("NFKC", line) for line in text.splitlines(keepends=True)))
