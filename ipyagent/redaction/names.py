"""Secrets that are known by the name that they are assigned to or stand below in a table, or by their value
in the environment."""

from __future__ import annotations

import functools
import math
import os
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping

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
    r"(?P<quote>[\\'\"`*]{0,9})"
    r"[ \t\xa0]{0,200}(?P<sign>:=|=>|==?|[:：]|\bis\b|\bist\b|是|は|→)\*{0,2}[ \t\xa0]{0,200}(?P<open>[\\'\"`*]{0,9})"
    r"(?:(?<=['\"`])(?P<inside>[^'\"`\n]+)|(?P<bare>[^\s'\"`,;]+))",
    re.IGNORECASE,
)
NEEDLES = (b"pass", b"pwd", b"secret", b"token", b"credential", b"key", b"kennwort", b"senha", b"contrase")
MORE_NEEDLES = (b"cookie", b"auth", b"dsn", b"signature", b"salt")
"""These speak of a secret only as the name of a column."""
_FOREIGN = ("密码", "密碼", "口令", "パスワード", "비밀번호", "пароль", "Пароль")
_NO_VALUE = re.compile(
    r"(?:tokens|passes|cookies|[_ -](?:name|path|file|url|id|hash|len|length|count|type|field|column|set|at|date|age))$"
)
"""Names that speak of a secret and do not hold it."""
_NO_SECRET = re.compile(r"(?i)session[ _-]?id|cookie|(?:next|page|continuation|pad|eos|bos|unk|mask)_?token|[_.-]id$")
"""Names that stand in tables and logs by the thousand and open nothing, or not for long."""
_SUFFIXES = (
    "value", "text", "plain", "clear", "raw", "string", "old", "new", "current", "backup", "confirm",
    "confirmation", "prod", "production", "dev", "test", "staging", "stage", "live", "local",
)  # fmt: skip
ALONE = re.compile(
    rf"(?i)(?:[\w.]+[_.-])?(?:{_LETTERS}|{'|'.join(_SECRETS)}|(?:{'|'.join(_QUALIFIED)})[ _.-]?key)[_.-]?\d*"
)
"""The head of a table with only one column."""
_BEFORE_NAMES = frozenset(
    (*_QUALIFIED, *_PASSWORDS, *_SECRETS, *_KEYS, "user", "users", "db", "database", "admin", "root", "login", "my",
     "your", "email", "mail", "wifi", "aws", "azure", "openai", "anthropic", "github", "stripe", "smtp", "old", "new",
     "current", "default", "initial", "temporary", "plain", "shared", "web", "id")
)  # fmt: skip
"""Words that may stand before the last one of a secret's name: `API key`, `user password`."""
_SUFFIX = re.compile(
    rf"(?:[_.\-]?(?:\d{{1,3}}(?!\d)|(?i:{'|'.join(_SUFFIXES)}))){{0,3}}|[_.]?[a-z0-9][a-z0-9_.]*|[_.][A-Z0-9][A-Z0-9_.]*|[A-Z]\w*"
)
"""What may follow it: an index, a kind, or more of an identifier, but no words of somebody's name (`Secret-Garden`)."""
_IDEOGRAPH = re.compile(r"[\u3400-\u9fff]")
_CAPITAL = re.compile(r"-[A-Z][a-z]")
_WORDS = re.compile(r"[A-Za-z]*[^\W\d_A-Za-z][^\W\d_]*|[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[^\W\d_]+")
_FOLDERS = ("PWD", "OLDPWD")
"""Variables of the shell that sound like a secret and are the folder that it is in."""


@functools.lru_cache(8_192)
def name_strength(name: str) -> int:
    """2: what bears this name is a secret; 1: it is one if it looks random; 0: the name says nothing. All of it has
    to be the name: a hotel `Signature Suites` and a `Password Manager` are none."""
    name = name[:200].strip()
    low = name.lower()
    strong, end, before = 0, 0, ""
    if (french := low.find("mot de passe")) >= 0:
        strong, end = 2, french + len("mot de passe")
    for found in _WORDS.finditer(name):
        word = found[0].lower()
        if (
            word in _PASSWORDS
            or word in _SECRETS
            or word.endswith(("password", "passwd", "passphrase", "secret", "apikey"))
        ):
            strong, end = 2, found.end()
        elif word in _KEYS:
            strong, end = max(strong, 2 if before in _QUALIFIED else 1), found.end()
        before = word
    if not strong or (_NO_VALUE.search(low) and not low.endswith("tokens")):
        return 0
    words = low[:end].split()[:-1] if french < 0 else ()
    if any(word not in _BEFORE_NAMES for word in words) or not _SUFFIX.fullmatch(name[end:].lstrip("\"'` ")):
        return 0
    return 0 if re.match(r"\s+[^\d\s]", name[end:]) else strong


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
    return any(map(str.isdigit, value)) and any(map(str.isalpha, value)) and entropy(value) >= least


def looks_random(value: str) -> bool:
    """Whether a text has the length and the mixture of a generated key."""
    head = value[:400]
    if len(value) < 16 or any(character.isspace() for character in head):
        return False
    kinds = sum((any(c.isdigit() for c in head), any(c.islower() for c in head), any(c.isupper() for c in head)))
    return kinds >= 2 and entropy(head) >= 3.0


def entropy(value: str) -> float:
    """Bits a character, by the value's own characters."""
    total = len(value)
    return -sum(count / total * math.log2(count / total) for count in Counter(value).values())


def stands_for(value: str) -> bool:
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
    if not value or stands_for(value) or bare in _ORDINARY or bare == name:
        return False
    if _NO_VALUE.search(name) or (name.endswith("pwd") and _PATH.match(value)):
        return False
    if not quoted and re.search(r"[()]|^\W*$", value):  # code, or a sign
        return False
    tail = match["name"][match.end("token" if match["token"] else "password") - match.start("name") :]
    if _IDEOGRAPH.match(tail) or (_CAPITAL.search(tail) and not _SUFFIX.fullmatch(tail)):  # `Password-Safe-3`
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
    for name in filter(_secretive, environ):
        value = environ.get(name, "")  # another thread may have taken it out
        if len(value) >= 12 and _is_secret(value):
            if os.path.isabs(value) and os.path.lexists(value):
                continue
            yield name, value


@functools.lru_cache(256)
def _is_secret(value: str) -> bool:
    return is_random(value, 2.5)


@functools.lru_cache(8_192)
def _secretive(name: str) -> bool:
    low = name.lower().encode("utf-8", "replace")
    return name not in _FOLDERS and any(needle in low for needle in NEEDLES if needle != b"pass" or b"passw" in low)


def is_marked(value: str) -> bool:
    """Whether it was taken out before."""
    return _IN_PLACE in value or "[secret:" in value or "[key]" in value


_NAME_BEFORE = re.compile(r"[\w.\-]{0,40}\Z")
_VALUE_AFTER = re.compile(
    r"[\w.\-]{0,34}['\"`*\\]{0,9}[ \t\xa0]{0,200}(?::=|=>|==?|[:：]|\bis\b|\bist\b|是|は|→)\*{0,2}[ \t\xa0]{0,200}"
    r"(?:\\{0,7}['\"`]+[^'\"`\n]{6}|[^\s'\"`,;]{6})"
)
_LONG_VALUE = 200


def name_places(text: str, low: bytes) -> list[tuple[int, int]]:
    """Where words of secrets' names stand, with their length, in order."""
    places = [(at, len(needle)) for needle in NEEDLES for at in places_of(low, needle)]
    if not text.isascii():
        places += [(at, len(word)) for word in _FOREIGN for at in places_of(text, word)]
    return sorted(places)


def assigned(text: str, places: Iterable[tuple[int, int]], *, strict: bool) -> Iterator[tuple[str, int, int]]:
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
        if not is_marked(value) and (_gives_away(found, value) or _in_settings(text, found, value)):
            yield ("a password" if found["password"] else "a key or token"), first, first + len(value)


OF_A_USER = re.compile(
    r"\s{0,80}(?:- )?['\"]?(?:user(?:[ _-]?name)?|login|uid|account|email)['\"]?\s{0,20}[:=]\s{0,20}"
    r"[\w@.'\"-]{1,200}\s*+"
    r"|\[[\w.:/ -]{1,60}\]\s*+"
)
"""The line above a password in a file of settings: its user, or the name of the section."""
_LIST_ITEM = re.compile(r"\s{0,80}(?:- )?['\"]?")


def _in_settings(text: str, found: re.Match[str], value: str) -> bool:
    """Whether a plain word is a password because it stands alone in its line, below its user or a section."""
    if found["token"] or len(value) < 4 or found["sign"] not in (":", "="):
        return False
    if not re.fullmatch(r"[^\s()\[\]{}<>.,;\"'$]+", value) or value.casefold() in _ORDINARY or stands_for(value):
        return False
    start = text.rfind("\n", max(0, found.start() - 100), found.start())
    stop = text.find("\n", found.end(), found.end() + 40)
    if (start < 0 and found.start() > 40) or not _LIST_ITEM.fullmatch(text, start + 1, found.start()):
        return False
    if text[found.end() : len(text) if stop < 0 else stop].strip("'\" \t\r"):
        return False
    above = text.rfind("\n", max(0, start - 300), max(0, start)) + 1
    below = text.find("\n", stop + 1, stop + 300) if stop >= 0 else -1
    return _TYPES.fullmatch(value) is None and (
        (start > 0 and OF_A_USER.fullmatch(text, above, start) is not None)
        or (stop >= 0 and OF_A_USER.fullmatch(text, stop + 1, len(text) if below < 0 else below) is not None)
    )


def places_of(text: str | bytes, part: str | bytes) -> Iterator[int]:
    at = text.find(part)  # type: ignore[arg-type] # both are str, or both bytes
    while at >= 0:
        yield at
        at = text.find(part, at + len(part))  # type: ignore[arg-type] # as above


_NAME_AFTER = re.compile(r"[\w.\-]{0,34}")
_OPENS = re.compile(r"[\\'\"`]{0,9}[ \t]{0,40}(?:=>|[:=])\s{0,40}(?P<open>[\[{(])")
_PAIR = re.compile(r"['\"][ \t]{0,40},\s{0,40}(?P<quote>['\"])(?P<value>[^'\"\n]{3,400})(?P=quote)\s{0,40}[)\]]")
_TAG = re.compile(r"[^<>\n]{0,200}>\s{0,40}(?P<value>[^<>\n]{3,400})<")
_LABEL_BEFORE = re.compile(r"(?i)<(?:dt|key|label|name|b|strong)(?:\s[^<>\n]{0,80})?>\s{0,40}\Z")
_LABELLED = re.compile(
    r"\s{0,9}:?\s{0,9}(?:</\w{1,9}>\s{0,40}){1,2}(?:<[^<>/][^<>\n]{0,200}>\s{0,40}){1,3}(?P<value>[^<>\n]{3,400})<"
)
_VALUE_IN_TAG = re.compile(r"""(?i)\bvalue\s{0,9}=\s{0,9}(?P<quote>["'])(?P<value>[^"'<>\n]{3,400})(?P=quote)""")
_NEXT_VALUE = re.compile(
    r"""\\{0,3}["']?\s{0,9},?\s{0,80}\\{0,3}["']?(?i:value)\\{0,3}["']?\s{0,9}[:=]\s{0,9}\\{0,3}"""
    r"""["']?(?P<value>[^\s"'\\,}\]]{3,400})"""
)
_NAMED_BEFORE = re.compile(r"""(?i)(?:name|key|variable|field|option)\\{0,3}["']?\s{0,9}[:=]\s{0,9}\\{0,3}["']?\Z""")
_PART = re.compile(r"""["'](?:[^\n]{0,200}\n){1,3}?\r?\n(?P<value>[^\r\n]{3,400})""")
_PART_OPEN = re.compile(r"""["'](?:[^\n]{0,200}\n){1,4}[^\n]{0,400}""")
_PART_BEFORE = re.compile(r"""(?i)form-data[^\n]{0,100}\bname=["']\Z""")
_SUBSCRIPT = re.compile(r"""["']\]\s{0,9}=\s{0,9}(?P<quote>["'])(?P<value>[^"'\n]{3,400})(?P=quote)""")
_IN_ADDRESS = re.compile(r"(?i)%3D(?P<value>(?:[\w.~!*()+-]|%(?!3B|26|0A|0D|20)[0-9a-f]{2}){3,400})")
_SET_BEFORE = re.compile(r"(?m)^[ \t]{0,40}(?:ENV|ARG|setx|setenv|set)[ \t]{1,9}\Z")
_DEFAULT = re.compile(r"""["']\s{0,9}\{[^{}]{0,400}?\bdefault\s{0,9}=\s{0,9}["'](?P<value>[^"'\n]{3,400})["']""")
_AFTER_BLANK = re.compile(r"[ \t]{1,40}['\"]?(?P<value>[^\s'\"\-][^\s'\"]{5,400})")
_TAG_BEFORE = re.compile(r"<(?:\w{1,40}:)?\Z")
_QUOTES, _TAG_SIGNS = ("'", '"'), ("<", ":")
_PAIR_BEFORE = re.compile(r"[\[(]\s{0,40}['\"]\Z")
_MACHINE_BEFORE = re.compile(r"\b(?:machine[ \t]{1,9}\S{1,100}|default)\s{1,40}login[ \t]{1,9}\S{1,60}\s{1,40}\Z")
_LOGIN_BEFORE = re.compile(r"\blogin[ \t]{1,9}\S{1,60}\s{1,40}\Z")
_BLOCK = re.compile(r"['\"]?[ \t]{0,20}:[ \t]{0,20}(?:[|>][+\-\d]{0,2})?[ \t\r]{0,20}\n")
_ITEM = re.compile(r"(?P<indent>[ \t]{0,80})(?P<dash>- )?['\"]?(?P<value>[^\s'\":]{3,400})['\"]?[ \t\r]*")
_QUOTED = re.compile(r"(?P<quote>['\"])(?P<value>[^'\"\n]{3,400})(?P=quote)(?!\s{0,9}:)")
_OTHER_FIELD = re.compile(
    r"(?i)['\"](?:type|enum|format|title|description|url|uri|host|user|email|region|\w{0,30}?(?:name|path|file|id))"
    r"[\\'\"]{1,9}\s{0,20}:\s{0,20}\[?\s{0,20}\Z"
)
"""What stands in a secret's object and is none: its name, kind or place."""
_CLOSED_BY = {"[": "]", "{": "}", "(": ")"}
_OPEN_LIST = 200_000
"""Characters of a list that are looked through at most."""


def inside(text: str, places: Iterable[tuple[int, int]]) -> tuple[list[tuple[str, int, int]], str]:
    """The secrets in what a secret's name opens: a list or object, a pair, an element, a block of indented lines, the
    word after an option; and how it began where it goes on behind the text ("": it does not)."""
    found: list[tuple[str, int, int]] = []
    done, goes_on = 0, ""
    ends = dict.fromkeys("]})", 0)
    for at, length in places:
        if at < done:
            continue
        before, after = _NAME_BEFORE.search(text, max(0, at - 40), at), _NAME_AFTER.match(text, at + length)
        if before is None or after is None:
            continue
        start, end = before.start(), after.end()
        if start and text[start - 1] == "%":  # `%3BPWD`
            start = min(start + 2, at)
        if name_strength(text[start:end]) < 2:
            continue
        around = text[max(0, start - 120) : start]
        last = around[-1:]
        values: list[tuple[int, int]] = []
        goes_on, sure = "", False
        if opened := _OPENS.match(text, end):
            close = _CLOSED_BY[opened["open"]]
            if 0 <= ends[close] < opened.end():  # the next one is looked for once
                ends[close] = text.find(close, opened.end())
            stop = ends[close]
            goes_on = text[start : opened.end()] if stop < 0 else ""
            done = min(len(text) if stop < 0 else stop, opened.end() + _OPEN_LIST)
            values = [
                each.span("value")
                for each in _QUOTED.finditer(text, opened.end(), done)
                if not _OTHER_FIELD.search(text, max(opened.end(), each.start() - 100), each.start())
            ]
        elif last in _QUOTES and _PAIR_BEFORE.search(around) and (pair := _PAIR.match(text, end)):
            values = [pair.span("value")]
        elif last in _TAG_SIGNS and _TAG_BEFORE.search(around) and (tag := _TAG.match(text, end)):
            values = [tag.span("value")]
        elif (block := _BLOCK.match(text, end)) and not around.rpartition("\n")[2].strip(" \t-'\"0123456789"):
            values, done = _block(text, start, block.end())
            goes_on = text[text.rfind("\n", 0, start) + 1 : block.end() - 1] if done == len(text) else ""
        elif text.startswith("--", start) or (
            last.isspace() and (_LOGIN_BEFORE.search(around) or _SET_BEFORE.search(around))
        ):
            values = [option.span("value")] if (option := _AFTER_BLANK.match(text, end)) else []
            sure = _MACHINE_BEFORE.search(around) is not None
        elif (other := _otherwise(text, start, end, around)) is not None:
            values, sure = [other.span("value")], True
        elif (
            last in _QUOTES
            and (_PART_BEFORE.search(around) or around.endswith('variable "'))
            and _PART_OPEN.fullmatch(text, end)
        ):
            goes_on = text[text.rfind("\n", 0, start) + 1 : text.rfind("\n")] if "\n" in text[end:] else ""
        found += [("a password or key", *span) for span in values if is_value(text[slice(*span)], 2, sure=sure)]
    return found, goes_on


def _otherwise(text: str, start: int, end: int, around: str) -> re.Match[str] | None:
    """The value of a name that is another's value (`name="password" value="…"`), a label, a field of a form, a
    subscript or part of an address."""
    if end < len(text) and text[end] in "\"'" and around.endswith(('"', "'")):
        if (set_to := _SUBSCRIPT.match(text, end)) is not None:
            return set_to
        tag, close = text.rfind("<", max(0, start - 400), start), text.find(">", end, end + 400)
        if tag >= 0 <= close and text.find(">", tag, start) < 0:
            inside_tag = _VALUE_IN_TAG.search(text, tag, close)
            return inside_tag if inside_tag is not None or text[close - 1] == "/" else _TAG.match(text, end)
        if _PART_BEFORE.search(around):
            return _PART.match(text, end)
        if around.rstrip("\"'").endswith("variable "):
            return _DEFAULT.match(text, end)
    if text.startswith("%3", end):
        return _IN_ADDRESS.match(text, end)
    bare = around.rstrip(" \t\n'\"\\")
    if bare.endswith(">") and _LABEL_BEFORE.search(around):
        return _LABELLED.match(text, end)
    if bare.endswith((":", "=")) and _NAMED_BEFORE.search(around):
        return _NEXT_VALUE.match(text, end)
    return None


def _block(text: str, start: int, at: int) -> tuple[list[tuple[int, int]], int]:
    """The words of the lines that a name at `start` opens, and where they end."""
    first = text.rfind("\n", 0, start) + 1
    shift = unprefixed(text[first:start])[1]
    deep = start - first - shift
    values: list[tuple[int, int]] = []
    while at < len(text):
        stop = text.find("\n", at)
        stop = len(text) if stop < 0 else stop
        skipped = unprefixed(text[at : min(stop, at + 400)])[1] if shift else 0
        item = _ITEM.fullmatch(text, at + skipped, stop)
        if item is None or not (len(item["indent"]) > deep or item["dash"] or not values):
            return values, at
        values.append(item.span("value"))
        at = stop + 1
        if not (item["dash"] or len(item["indent"]) > deep):
            return values, at
    return values, len(text)


_COOKIE_VALUE = re.compile(r"(?:^|[=;, \t])(?P<value>[^=;,\s]{12,})")


def cookie_values(text: str, start: int, end: int) -> Iterator[tuple[int, int]]:
    """The values of cookies that look random."""
    for found in _COOKIE_VALUE.finditer(text, start, end):
        if is_random(found["value"], 2.8) and not stands_for(found["value"]) and not is_marked(found["value"]):
            yield found.span("value")


def is_value(value: str, strength: int, *, sure: bool) -> bool:
    """Whether a cell below a secret's name is one. `sure`: it certainly is that cell."""
    low = value[:100].casefold()
    if len(value) < 3 or is_marked(value) or low in _ORDINARY or _TYPES.fullmatch(low) or stands_for(value):
        return False
    if strength == 1:
        return looks_random(value)
    if value.isdigit() and len(value) < 4:
        return False
    if sure:
        return " " not in value or _odd(value)
    has_digit, has_letter = any(map(str.isdigit, value)), any(map(str.isalpha, value))
    return len(value) >= 6 and " " not in value and has_digit and has_letter and not _ATTRIBUTE.fullmatch(value)


_BEFORE_ROW = re.compile(r" {1,12}\d{0,9}\t|(?:[^\s:,;|]{1,300}[:-])?\d{1,9}[:-]|[+\- ](?=\S)")
"""What read_file, `cat -n`, `grep -n` and `diff` put before a line."""


def unprefixed(line: str) -> tuple[str, int]:
    """The line without what was put before it, and how much that was."""
    before = _BEFORE_ROW.match(line)
    shift = before.end() if before is not None else 0
    return line[shift:].rstrip("\r"), shift
