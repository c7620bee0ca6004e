"""Secrets in texts: the one place that knows how they look, what they are called and how they are taken out.

A secret is known by its form (keys of known services, private keys, logins), by its value (secret-named variables of
the environment), or by the name that it is assigned to or stands below in a table. What merely stands for one
(`<token>`, `$PASSWORD`, `***`) is none. The same text always gives the same, what was taken out stays as it is, and
everything here takes time in proportion to the text. A finding is a kind and a place, never the secret itself.
"""

from __future__ import annotations

import os
import re
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Mapping

import msgspec

from ipyagent.redaction.keys import (
    address_passwords,
    password_hashes,
    private_keys,
    program_logins,
    sent_secrets,
    service_keys,
)
from ipyagent.redaction.names import (
    assigned,
    entropy,
    inside,
    is_marked,
    is_value,
    looks_random,
    name_places,
    name_strength,
    places_of,
    secret_variables,
)
from ipyagent.redaction.nested_tables import grid_secrets
from ipyagent.redaction.tables import table_secrets


def secrets_in(text: str, *, environ: Mapping[str, str] = os.environ) -> list[tuple[str, int, int]]:
    """(kind, start, end) of each secret in the text, in order, none within another; the sure ones only."""
    if len(text) < 20 and text.isascii() and text.isalpha():  # a word is none: what names and forms of secrets need
        return []  # is a sign or a digit; most texts of a tool's schema are such words
    return apart(_all(text, environ))


def apart(found: Iterable[tuple[str, int, int]]) -> list[tuple[str, int, int]]:
    made: list[tuple[str, int, int]] = []
    for kind, start, end in sorted(found, key=lambda each: each[1]):
        if made and start < made[-1][2]:
            made[-1] = (made[-1][0], made[-1][1], max(end, made[-1][2]))
        elif end > start:
            made.append((kind, start, end))
    return made


def _all(text: str, environ: Mapping[str, str], *, strict: bool = False) -> Iterator[tuple[str, int, int]]:
    data = text.encode("latin-1", "replace")  # a byte a character: places are the same
    yield from private_keys(text, strict=strict)
    yield from service_keys(text, data)
    for name, value in secret_variables(environ):
        for at in places_of(text, value):
            yield f"the value of {name}", at, at + len(value)
    yield from address_passwords(text)
    low = data.lower()
    yield from sent_secrets(text, low)
    yield from program_logins(text, low)
    yield from password_hashes(text, low)
    places = name_places(text, low)
    yield from assigned(text, places, strict=strict)
    yield from inside(text, places)[0]
    yield from table_secrets(text, low, places).found
    yield from grid_secrets(text, places).found
    if strict:
        yield from _random(text)


# ---------------------------------------------------------------------- taken out of a text

ARTICLE = re.compile(r"^(?:an?|the) ")
_STANDS_IN = re.compile(r"\[secret: [^\]\n]{1,80}, \d[\d,]* characters\]|[^\s…]{0,4}…\[\d+ masked\]")


def secret_mark(kind: str, length: int) -> str:
    """What stands in the place of a secret that was taken out of a text: `[secret: API key, 51 characters]`."""
    return f"[secret: {ARTICLE.sub('', kind)}, {length:,} characters]"


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
    return (replaced(text, found), [ARTICLE.sub("", kind) for kind, _, _ in found]) if found else (text, [])


def replaced(
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
    return _SENT.sub("[key]", replaced(text, secrets_in(text), mark=lambda kind, value: "[key]"))


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
        self._place = ""
        self._told: list[bool] = []

    def of(self, place: str) -> Redactor:
        """The same for what stands in `place` ("the result of `python`"): the user is told of it once for both."""
        made = Redactor(self._on, self._notice, self._known)
        made._place, made._told = place, self._told
        return made

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
        if self._on() and name_strength(name) == 2 and is_value(value, 2, sure=True):
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
        self.found([ARTICLE.sub("", kind) for kind, _, _ in found])
        return replaced(text, found, mark=lambda kind, value: "*" * len(value)).encode("latin-1")

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
            self._told.append(True)
            self._notice(
                f"something that looks like a secret ({kinds[0]}) was hidden from the model"
                f"{self._place and f' in {self._place}'}; if it is not one: IPyAgent.redact_secrets = False"
            )


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
    if strength == 2 or (strength == 1 and looks_random(value)):
        return masked(value)
    return mask(value)


def mask(text: str) -> str:
    """`text` as a preview shows it, where more is a secret than in a text that somebody reads: whatever is assigned to
    a password's name, a private key also without its end, and what looks random behind key or token."""
    found = secrets_in(text)
    if "=" in text or ":" in text:
        found = apart([*found, *_by_name(text)])
    return replaced(text, found, mark=lambda kind, value: masked(value)) if found else text


def _by_name(text: str) -> Iterator[tuple[str, int, int]]:
    for found in _BY_NAME.finditer(text):
        before = _BEFORE.search(text, max(0, found.start() - 40), found.start())
        name = (before[0] if before else "") + found[1]
        group = 4 if found[4] is not None else 5
        value = found[group]
        if (
            (group == 5 and _CODE.match(value))
            or is_marked(value)
            or (name.lower().endswith("pwd") and value[0] in "/~")
        ):
            continue
        strength = name_strength(name)
        if strength == 2 or (strength == 1 and looks_random(value)):
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
    for kind, start, end in apart(_all(text, environ, strict=True)):
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
        if mixed and len(longest) >= 20 and entropy(value) >= 4.3:
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
