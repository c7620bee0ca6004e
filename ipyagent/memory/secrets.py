"""Secrets never become memories: keys, tokens, private keys and passwords are found and named by their kind.

What is found is never repeated, neither in the finding nor in the refusal: a finding is a kind and a
line. What merely stands for a secret (`<token>`, `$PASSWORD`, `***`, `os.environ["KEY"]`) is none.
"""

from __future__ import annotations

import math
import os
import re
import unicodedata
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterator, Mapping

import msgspec


class Secret(msgspec.Struct, frozen=True):
    """A secret in a text: what `kind` of secret, on which `line` (from 1)."""

    kind: str
    line: int


_KINDS: tuple[tuple[str, str], ...] = (
    ("a PEM block", r"-----BEGIN [A-Z0-9 ]{3,40}-----"),
    ("a private key", r"PuTTY-User-Key-File-\d|AGE-SECRET-KEY-1[A-Z0-9]{20,}"),
    ("an Anthropic API key", r"sk-ant-[\w-]{16,}"),
    ("an OpenAI API key", r"sk-(?:proj|svcacct|admin|or-v1|None)-[\w-]{20,}|sk-(?=[A-Za-z]*\d)[A-Za-z0-9]{20,}"),
    ("an AWS access key", r"(?:AKIA|ASIA|ABIA|ACCA)[A-Z0-9]{16}(?![A-Z0-9])"),
    ("a GitHub token", r"gh[pousr]_[A-Za-z0-9]{30,}|github_pat_\w{22,}"),
    ("a GitLab token", r"gl(?:pat|ptt|rt|dt|cbt|soat)-[\w-]{18,}"),
    ("a Slack token", r"xox[abeoprs]-[\w-]{10,}|xapp-\d-[\w-]{10,}"),
    ("a webhook address", r"https://hooks\.slack\.com/(?:services|workflows)/[\w/]{20,}"),
    ("a webhook address", r"https://(?:\w+\.)?discord(?:app)?\.com/api/webhooks/\d+/[\w-]{20,}"),
    ("a Google API key", r"AIza[\w-]{35}|ya29\.[\w-]{20,}|GOCSPX-[\w-]{20,}"),
    ("a Stripe key", r"(?:sk|rk)_(?:live|test)_[A-Za-z0-9]{10,}|whsec_[A-Za-z0-9+/=]{24,}"),
    ("a Twilio key", r"SK[0-9a-f]{32}(?![0-9a-f])"),
    ("a SendGrid key", r"SG\.[\w-]{16,}\.[\w-]{16,}"),
    ("a Mailgun key", r"key-[0-9a-f]{32}(?![0-9a-f])"),
    ("a Hugging Face token", r"(?:hf|api_org)_[A-Za-z0-9]{30,}"),
    ("an npm token", r"npm_[A-Za-z0-9]{36}"),
    ("a PyPI token", r"pypi-[\w-]{40,}"),
    ("a Docker token", r"dckr_(?:pat|oat)_[\w-]{20,}"),
    ("a DigitalOcean token", r"do[oprt]_v1_[0-9a-f]{40,}"),
    ("a Databricks token", r"dapi[0-9a-f]{32}"),
    ("a Shopify token", r"shp(?:at|ca|pa|ss)_[0-9a-fA-F]{32}"),
    ("a Square token", r"sq0[a-z]{3}-[\w-]{22,}"),
    ("a Telegram bot token", r"\d{8,10}:AA[\w-]{32,}"),
    ("a Discord token", r"[MNO][\w-]{23,25}\.[\w-]{6}\.[\w-]{27,}"),
    ("an API key", r"(?:gsk_|xai-|pplx-|r8_|nvapi-|fw_|tvly-|lin_api_|ntn_|NRAK-|figd_|sbp_|dop_)[\w-]{24,}"),
    ("a Vault token", r"hv[sbr]\.[\w-]{24,}"),
    ("a Grafana token", r"gl(?:sa|c)_[\w+/=-]{30,}"),
    ("an Azure key", r"(?:AccountKey|SharedAccessKey)=[A-Za-z0-9+/]{40,}={0,2}"),
    ("a signed web token", r"eyJ[\w-]{10,}\.eyJ[\w-]{10,}\.[\w-]{10,}"),
)
# Group names are numbered: the same kind may have several forms. What stands before a key may be anything
# but a letter or digit that would make the key the middle of a longer word.
KNOWN = re.compile("|".join(f"(?P<k{number}>(?<![A-Za-z0-9]){form})" for number, (_, form) in enumerate(_KINDS)))

_URL = re.compile(r"(?i)\b[a-z][a-z0-9+.-]{1,20}://(?P<user>[^\s/:@\"'<>]*):(?P<value>[^\s/@\"'<>]+(?:/[^\s/@]+)?)@")
LOGIN = re.compile(r"(?:^|\s)(?:-u|--user|--userpwd)[ =]['\"]?(?P<user>[^\s:'\"]+):(?P<value>[^\s'\"]+)")
BEARER = re.compile(r"(?i)\bbearer[ :=]+['\"]?(?P<value>[\w.~+/=-]{12,})")
BASIC = re.compile(r"(?i)\bauthorization['\"]?\s*[:=]\s*['\"]?basic\s+(?P<value>[A-Za-z0-9+/]{8,}={0,2})")

_PASSWORD = (
    r"pass(?:word|wd|phrase|code|wort)?|pwd|passwort|kennwort|contrase(?:ñ|n)a|senha|mot de passe|密码|密碼|口令|"
    r"パスワード|비밀번호|пароль"
)
_TOKEN = (
    r"secret|token|credentials?|(?:api|access|auth|private|account|encryption|signing|master|license|service|client|"
    r"subscription|consumer|app)[ _.-]?key|apikey|session[ _-]?(?:id|cookie)|cookie"
)
ASSIGNED = re.compile(
    rf"(?<![\w.\-])(?P<name>[\w.\-]{{0,40}}?(?:(?P<password>{_PASSWORD})|(?P<token>{_TOKEN}))[\w.\-]{{0,30}}?)"
    r"(?P<quote>['\"`*]{0,3})"
    r"[ \t]*(?P<sign>:=|=>|==?|[:：]|\bis\b|\bist\b|是|は|→)\*{0,2}[ \t]*(?P<open>['\"`*]{0,3})"
    r"(?:(?<=['\"`])(?P<inside>[^'\"`\n]+)|(?P<bare>[^\s'\"`,;]+))",
    re.IGNORECASE,
)
_ANY = re.compile(
    r"(?P<name>[A-Za-z_][\w.-]{0,60})['\"]?[ \t]*(?::=|=>|[:=])[ \t]*['\"]?(?P<value>[A-Za-z0-9+/_=-]{32,})"
)

_STANDS_FOR = re.compile(
    r"[<\[({].*|\$.*|%\w+%?|.*[<{\[(].*[>}\])].*|[*•.…_x-]{2,}|x{3,}.*|(?:your|my|the|some|change)[-_ ].*|"
    r"(?:os|env|settings|config|self|args|secrets?|process|options|cfg|st)\..*|.*(?:getenv|environ|getpass|keyring|vault:).*",
    re.IGNORECASE | re.DOTALL,
)
_ORDINARY = frozenset(
    """
a always an any asked at bool changed correct empty encrypted expired false forgotten given hashed here hidden
in int invalid kept key left missing name needed never nil no none not null on only optional pass passwd
password pwd redacted rejected removed required reset rotated saved secret set stored str string the there token
true undefined unset valid value written wrong yes
""".split()  # noqa: SIM905 - a list of words reads better as text
)
_NO_VALUE = re.compile(r"(?:tokens|passes|cookies|_(?:name|path|file|url|id|hash|len|length|count|type|field|column))$")
"""Names that speak of a secret and do not hold it."""
_ZERO_WIDTH = re.compile(r"[\u00ad\u200b-\u200f\u2028\u2029\u2060-\u2064\ufeff]")
SECRETIVE = re.compile(r"(?i)key|token|secret|passw|pwd|credential")
FOLDERS = ("PWD", "OLDPWD")
"""Variables of the shell that sound like a secret and are the folder that it is in."""


WINDOW, OVERLAP = 8_192, 1_024
"""Characters that are looked at in one go, and beyond them for what begins there: a pattern holds up all threads of
the process while it runs."""


def find_secrets(text: str, *, known: str = "", environ: Mapping[str, str] = os.environ) -> list[Secret]:
    """The secrets in a text, in order, none twice. What `known` (the text before a change) holds already is
    not found again; secret-named values of `environ` count however they look."""
    text, known = _plain(text), _plain(known)
    found: dict[Secret, None] = {}
    line, counted = 1, 0
    for kind, value, start in sorted(_all(text, environ), key=lambda one: one[2]):
        line, counted = line + text.count("\n", counted, start), start
        if not (known and value in known):
            found[Secret(kind, line)] = None
    return list(found)


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


def _all(text: str, environ: Mapping[str, str]) -> Iterator[tuple[str, str, int]]:
    """(kind, value, place) of each; the same place may come with several kinds, the plainest first."""
    starts: list[int] = []
    ends: list[int] = []  # of what is taken, in order, without overlaps

    def free(start: int, end: int) -> bool:
        at = bisect_right(starts, start)
        if (at and ends[at - 1] > start) or (at < len(starts) and starts[at] < end):
            return False
        starts.insert(at, start)
        ends.insert(at, end)
        return True

    for match in _matches(KNOWN, text):
        if (kind := known_kind(match)) and free(*match.span()):
            yield kind, match.group(), match.start()
    for name, value in secret_variables(environ):
        place = text.find(value)
        if place >= 0 and free(place, place + len(value)):
            yield f"the value of the environment variable {name}", value, place
    for kind, form in (
        ("a password in a web address", _URL),
        ("a login with its password", LOGIN),
        ("a bearer token", BEARER),
        ("a login with its password", BASIC),
    ):
        for match in _matches(form, text):
            value = match["value"]
            if form is BEARER and not is_random(value, 2.8):
                continue
            if form is LOGIN and (value.isdigit() and len(value) < 5):
                continue
            if not _STANDS_FOR.fullmatch(value) and free(*match.span("value")):
                yield kind, value, match.start()
    for match in _matches(ASSIGNED, text):
        group = "inside" if match["inside"] is not None else "bare"
        value = match[group].strip().rstrip(".)*")
        if gives_away(match, value) and free(*match.span(group)):
            yield ("a password" if match["password"] else "a key or token"), value, match.start()
    for match in _matches(_ANY, text):
        longest = max(re.split(r"[/_=+-]", match["value"]), key=len)
        if len(longest) >= 20 and _mixed(match["value"]) and _entropy(match["value"]) >= 4.3 and free(*match.span()):
            yield "a random key", match["value"], match.start()


def _matches(form: re.Pattern[str], text: str) -> Iterator[re.Match[str]]:
    """The matches in their order, window by window."""
    at, border = 0, WINDOW
    while True:
        last = border >= len(text)
        for match in form.finditer(text, at, len(text) if last else border + OVERLAP):
            if not last and match.start() >= border:
                break  # the next window finds the whole of it
            at = match.end()
            yield match
        if last:
            return
        at, border = max(at, border), border + WINDOW


def secret_variables(environ: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Names and values of the environment's secrets: named so, long and random enough, and no folder or file that
    is there (`PWD` is no password, `GOOGLE_APPLICATION_CREDENTIALS` says where they are)."""
    for name, value in environ.items():
        if len(value) >= 12 and name not in FOLDERS and SECRETIVE.search(name) and is_random(value, 2.5):
            if os.path.isabs(value) and os.path.lexists(value):
                continue
            yield name, value


def known_kind(match: re.Match[str]) -> str:
    """The kind of what `KNOWN` found; "" for `sk-ant-xxxxxxxx`, a picture of a key."""
    kind = _KINDS[int((match.lastgroup or "k0")[1:])][0]
    return kind if kind == "a PEM block" or len(set(match.group()[-16:])) > 4 else ""


def stands_for(value: str) -> bool:
    """Whether a value only stands for a secret: `<token>`, `$PASSWORD`, `***`."""
    return _STANDS_FOR.fullmatch(value) is not None


_PATH = re.compile(r"(?:~|[A-Za-z]:)?[\\/][\w.\- ]+[\\/]")
"""How a folder begins: of `pwd` it is where one stands, no password."""


def gives_away(match: re.Match[str], value: str) -> bool:
    """Whether what is assigned to a secret's name is a secret itself."""
    quoted = match["inside"] is not None
    bare = value.casefold()
    if not value or _STANDS_FOR.fullmatch(value) or bare in _ORDINARY or bare == match["name"].casefold():
        return False
    name = match["name"].casefold()
    if _NO_VALUE.search(name) or (name.endswith("pwd") and _PATH.match(value)):
        return False
    if not quoted and re.search(r"[()]|^\W*$", value):  # code, or a sign
        return False
    if match["token"]:
        return len(value) >= 12 and " " not in value and is_random(value, 2.8)
    if re.search(r"^pass(?:ed|ing|enger|ive|age|port|ion)|bypass|compass|surpass", name):
        return False
    if re.fullmatch(r"[\w.-]*pass", name) and match["sign"] in (":", "：", "is", "==") and not quoted:
        return len(value) >= 8 and is_random(value, 2.5)  # "first pass: 2023" is no password
    has_digit, has_letter = any(map(str.isdigit, value)), any(map(str.isalpha, value))
    odd = any(character in "!@#$%^&*?~+" for character in value)
    if len(value) < 6 or (" " in value and not (quoted and has_digit)):
        return False
    if has_letter and (has_digit or odd):
        return not re.fullmatch(r"[a-z_]+\d?(?:\.[a-z_]+\d?)+", value)  # an attribute
    if value.isdigit():
        return (match["sign"] != "==" and len(value) >= 6 and not quoted) or quoted
    tight = match.start("open") == match.end("sign") and match.start("sign") == match.end("quote")
    return match["sign"] == "=" and (quoted or tight) and not re.search(r"[._]", value) and len(value) >= 6


def is_random(value: str, least: float) -> bool:
    """Letters and digits without a pattern, `least` bits of entropy a character or more."""
    return any(map(str.isdigit, value)) and any(map(str.isalpha, value)) and _entropy(value) >= least


def _mixed(value: str) -> bool:
    return bool(re.search("[a-z]", value) and re.search("[A-Z]", value) and re.search("[0-9]", value))


def _entropy(value: str) -> float:
    """Bits a character, by the value's own characters."""
    total = len(value)
    return -sum(count / total * math.log2(count / total) for count in Counter(value).values())
