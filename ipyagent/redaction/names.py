"""Secrets that are known by the name that they are assigned to or stand below in a table, or by their value
in the environment."""

from __future__ import annotations

import functools
import math
import os
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from keyword import iskeyword

import msgspec

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
_SUFFIXES = (
    "value", "text", "plain", "clear", "raw", "string", "old", "new", "current", "backup", "confirm",
    "confirmation", "prod", "production", "dev", "test", "staging", "stage", "live", "local",
)  # fmt: skip
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
    places = [(at, len(needle)) for needle in _NEEDLES for at in places_of(low, needle)]
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
        if not is_marked(value) and _gives_away(found, value):
            yield ("a password" if found["password"] else "a key or token"), first, first + len(value)


def places_of(text: str | bytes, part: str | bytes) -> Iterator[int]:
    at = text.find(part)  # type: ignore[arg-type] # both are str, or both bytes
    while at >= 0:
        yield at
        at = text.find(part, at + len(part))  # type: ignore[arg-type] # as above


_NAME_AFTER = re.compile(r"[\w.\-]{0,34}")
_OPENS = re.compile(r"[\\'\"`]{0,9}[ \t]{0,40}(?:=>|[:=])\s{0,40}(?P<open>[\[{(])")
_PAIR = re.compile(r"['\"][ \t]{0,40},\s{0,40}(?P<quote>['\"])(?P<value>[^'\"\n]{3,400})(?P=quote)\s{0,40}[)\]]")
_TAG = re.compile(r"[^<>\n]{0,200}>\s{0,40}(?P<value>[^<>\n]{3,400})<")
_AFTER_BLANK = re.compile(r"[ \t]{1,40}['\"]?(?P<value>[^\s'\"\-][^\s'\"]{5,400})")
_TAG_BEFORE = re.compile(r"<(?:\w{1,40}:)?\Z")
_PAIR_BEFORE = re.compile(r"[\[(]\s{0,40}['\"]\Z")
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
        if before is None or after is None or name_strength(text[before.start() : after.end()]) < 2:
            continue
        start, end, around = before.start(), after.end(), text[max(0, before.start() - 120) : before.start()]
        values: list[tuple[int, int]] = []
        goes_on = ""
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
        elif _PAIR_BEFORE.search(around) and (pair := _PAIR.match(text, end)):
            values = [pair.span("value")]
        elif _TAG_BEFORE.search(around) and (tag := _TAG.match(text, end)):
            values = [tag.span("value")]
        elif (block := _BLOCK.match(text, end)) and not around.rpartition("\n")[2].strip(" \t-'\"0123456789"):
            values, done = _block(text, start, block.end())
            goes_on = text[text.rfind("\n", 0, start) + 1 : block.end() - 1] if done == len(text) else ""
        elif text.startswith("--", start) or _LOGIN_BEFORE.search(around):
            values = [option.span("value")] if (option := _AFTER_BLANK.match(text, end)) else []
        found += [("a password or key", *span) for span in values if is_value(text[slice(*span)], 2, sure=False)]
    return found, goes_on


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


# ---------------------------------------------------------------------- columns

_HEAD_CHARS = 4_000
"""A longer line is no head of a table."""
_STRAY = 8
"""Lines in a row that do not fit a table and do not end it yet."""
_BEFORE_ROW = re.compile(r" {1,12}\d{0,9}\t|(?:[^\s:,;|]{1,300}[:-])?\d{1,9}[:-]|[+\- ](?=\S)")
"""What read_file, `cat -n`, `grep -n` and `diff` put before a line."""
_NAME_CELL = re.compile(r"[^\W\d][\w .\-]{0,40}")
_HEAD_CELL = re.compile(r"[\w .\-/#%°€$£&]{0,60}(?:\([\w /%]{0,20}\))?")
_NO_HEAD = re.compile(r"[=:{}<>\[\]!?\\@]")
_ALONE = re.compile(
    rf"(?i)(?:[\w.]+[_.-])?(?:{_LETTERS}|{'|'.join(_SECRETS)}|(?:{'|'.join(_QUALIFIED)})[ _.-]?key)[_.-]?\d*"
)
"""The head of a table with only one column."""
_BESIDE = frozenset(("user", "users", "username", "login", "name", "email", "mail", "host", "account", "id", "role"))
"""What stands beside a password in a table whose columns are parted by one blank."""
_NUMBER = re.compile(r"[+\-]?\d[\d.,]*%?|(?i:nan|none|null|<na>|true|false)")
_DIGIT = re.compile(r"\d")
_FIRST = re.compile(r"(?:^|[^\d])1[\t:-]\Z")
"""The number of a file's first line."""
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


def table_secrets(text: str, low: bytes, places: list[tuple[int, int]]) -> tuple[list[tuple[str, int, int]], str]:
    """The secrets that stand below a secret's name in a table, or beside it in a line; and the head of a table that
    may go on behind the text ("": there is none)."""
    heads = sorted([at for at, _ in places] + [at for needle in _MORE_NEEDLES for at in places_of(low, needle)])
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
        if table is None or not closed or _is_row_of_more(text, start, line, table):
            continue
        at, stray, rows = end + 1, 0, 0
        open_head = line
        while at < len(text):
            stop = text.find("\n", at)
            stop = len(text) if stop < 0 else stop
            cells = _below(text[at:stop], table) if stop - at <= 20_000 else None
            if cells is None:
                stray += 1
                if stray > (_STRAY if table.count > 1 else 0) or stop == at or (not rows and not table.sure):
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
    line, shift = unprefixed(line)
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
        if len(names) < 2 and not (separator == " " and names and _ALONE.fullmatch(names[0])):
            continue
        if any(_NUMBER.fullmatch(name) for name in names):
            return None  # a row
        if not all(_HEAD_CELL.fullmatch(name) for name in names):
            continue
        wide = separator != " " or "  " in line.strip()
        if not wide and (len(names) > 8 or not all(map(str.isidentifier, names)) or any(map(iskeyword, names))):
            continue  # a sentence, or code
        if not wide and not name_strength(names[-1]) and not any(name.lower() in _BESIDE for name in names):
            continue  # "Secret Garden"
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


def _is_row_of_more(text: str, start: int, line: str, table: _Table) -> bool:
    """Whether the line at `start` that looks like a head stands below another line of the same table."""
    if _FIRST.search(line[: unprefixed(line)[1]]):
        return False
    for _ in range(2):  # a border may stand above a head
        stop = start - 1
        start = text.rfind("\n", max(0, stop - _HEAD_CHARS), stop) + 1 if stop > 0 else 0
        above = unprefixed(text[start:stop])[0] if 0 < stop - start <= _HEAD_CHARS else ""
        if not above.strip() or above.rstrip().endswith((":", "：")):
            return False
        if not _RULE.fullmatch(above):
            break
        if table.separator == "|" and _BARS.search(above):
            return True
    if table.count == 1:
        return not _RULE.fullmatch(above)
    cells = _cells(above, table.separator)
    if table.separator != " ":
        spaced = table.separator == "," and any(above[first - 1] == " " for first, _ in cells if first)
        return len(cells) == table.count and not spaced
    wide = "  " in above.strip()
    if table.sure and len(above.rstrip()) == len(unprefixed(line)[0].rstrip()):
        return True  # aligned with it
    if wide != ("  " in unprefixed(line)[0].strip()) or above.endswith("."):
        return False
    return abs(len(cells) - table.count) <= 1 if wide else len(cells) == table.count and bool(_DIGIT.search(above))


def unprefixed(line: str) -> tuple[str, int]:
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
    line, shift = unprefixed(line)
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
    if table.count == 1 and table.separator == " " and len(spans) > 2:
        return None
    found: list[tuple[str, int, int]] = []
    for strength, (first, last) in chosen:
        value = line[first:last]
        if "=" in value and (";" in value or strength == 1) and (pieces := list(cookie_values(line, first, last))):
            found += [("a cookie", start + shift, end + shift) for start, end in pieces]
            continue
        if is_value(value, strength, sure=table.sure and table.count > 1):
            found.append(("a password or key", first + shift, last + shift))
    return found


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


def _beside(line: str) -> tuple[int, int] | None:
    """The secret in a line of two cells whose first one names it, as in a printed Series."""
    bare, shift = unprefixed(line)
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
        if strength and not names_another and is_value(value, strength, sure=False):
            return spans[1][0] + shift, spans[1][1] + shift
    return None
