"""Text that comes in pieces, given on without its secrets."""

from __future__ import annotations

import re
import time

from ipyagent.redaction import ARTICLE, Redactor, apart, replaced, secrets_in
from ipyagent.redaction.keys import ANYWHERE, FORMATS, begins_here
from ipyagent.redaction.names import OF_A_USER, inside, name_places, places_of
from ipyagent.redaction.nested_tables import grid_secrets
from ipyagent.redaction.tables import Grids, open_group, opens_beside, table_secrets

HELD = 20_000
"""Characters that are held back at most."""
_ABOVE = 4_001
"""Characters of the line above it that are looked at again: a head of a table has no row above it."""
_CONTEXT = 1_024
"""Characters of an unfinished line that are looked at again with what follows."""
_TOGETHER, MOMENT = 512, 0.03
"""Characters, and seconds, that pieces wait for each other at most; nobody sees a shorter moment."""
_STARTS = tuple(sorted({begin for _, begin, _ in FORMATS} | {"://", "/api/webhooks/", "-----BEGIN"}, key=len))
_BEGUN = re.compile("|".join(re.escape(begin) for begin in reversed(_STARTS)) + r"|\d{8,10}:AA")
_ROWS_BEGIN, _KEY = ("[", ",", " ", ";", "</tr>"), 80
"""How the head of a table ends whose rows have begun; characters that may hold the beginning of what they stand in."""
_PREFIXES = frozenset(begin[:size] for begin in _STARTS for size in range(1, len(begin)))
_LONGEST = max(map(len, _STARTS))
_BOT = re.compile(r"(?<!\d)\d{1,10}(?::A?)?\Z")
_OPEN_VALUE = re.compile(
    r"(?:[^\W是は]|[.\-]){0,34}+['\"`*\\]{0,9}+[ \t\xa0]{0,200}+"
    r"(?:(?:[:：]=?|==?>?|is|ist|i|是|は|→)\*{0,2}[ \t\xa0]{0,200}"
    r"(?:\\{0,7}['\"`]+[^'\"`\n]*|[^\s'\"`,;]*|[\[{(][^\]})]*)|,[ \t]{0,40}(?:['\"][^'\"\n]{0,400}(?:['\"]\s{0,40})?)?|"
    r"[^<>\n]{0,200}>[^<>\n]{0,400}|(?:</?[^<>\n]{0,200}(?:>\s{0,9}|\Z)){1,4}[^<>\n]{0,400}|"
    r"(?<=[ \t])['\"]?[^\s'\"]{0,400}|%3D[^\s&]{0,400}|\]\s{0,9}=?[^\n]{0,400})?(?:<[^<>\n]{0,400})?\Z"
)
_OPEN_NAMED = re.compile(r"[^\n]{0,80}\bvalue\b[^\n}]{0,400}\Z")
_OPEN_STRING = re.compile(r"[^\\\n]{0,400}\\+[\"n](?:(?:[^\"\\\n]|\\.)*+|(?:[^'\\\n]|\\.)*+)\\?\Z")
_OPEN_TAG = re.compile(r"<(?:[A-Za-z/][^<>\n]{0,400})?\Z")
_OPEN_HASH = re.compile(
    r"(?:\$[\w-]{1,20}\$|\{\w{2,10}\}|pbkdf2|scrypt:|SCRAM-|\*[0-9A-F]{4}|:[0-9a-f]{32}:|:\*:|:\d{4,5}:)\S{0,600}\Z"
)
_OPEN_LOGIN = re.compile(r"(?<!\S)[\w$:.]{1,80}/[^\s/]{0,100}\Z")
_LOGIN_ABOVE = re.compile(r"\blogin[ \t]{1,9}\S{1,60}\s*\Z")
_OPEN_SENT = re.compile(
    r"(?i)(?:bearer[ :=]{0,20}|basic\s{1,20}|\s(?:-u|--user|--userpwd)[ =])['\"]?\S{0,4000}\Z"
    r"|cookie['\"]?(?::[^\n]{0,4000})?\Z"
    r"|(?:\s--[\w\-]{0,40}?(?:pass|pwd|secret|key|credential)[\w\-]{0,20}|\blogin \S{1,60} password) ['\"]?\S{0,400}\Z"
)
_OPEN_LOGINS = re.compile(
    r"(?i)auth['\"\\]{0,3}\s{0,9}(?:[:=(]{1,2}[^\n)]{0,400})?\Z|identified\s[^\n;]{0,200}\Z|(?:thin|oci8?):\S{0,300}\Z"
    r"|sshpass\s{1,9}-p\s{0,3}\S{0,200}\Z|(?:mysql|mariadb)[^\n|;]{0,200}\s-p\S{0,200}\Z"
    r"|(?:psk|secretstr)[^\n]{0,200}\Z|(?:requirepass|masterauth)\s{1,9}\S{0,200}\Z"
    r"|[?&](?:x-\w{3,5}-)?sig(?:nature)?=\S{0,1000}\Z|password(?:::| ')[^\n']{0,400}\Z"
)
_LOGIN_WORDS = (
    b"auth", b"identified", b"thin:", b"oci", b"sshpass", b"mysql", b"mariadb", b"psk", b"secretstr", b"requirepass",
    b"sig", b"password:", b"password '",
)  # fmt: skip
_LETTER, _DIGIT = re.compile(r"[^\W\d_]"), re.compile(r"\d")
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
        self._due, self._again = 0, 0.0
        self._seen: tuple[str, tuple[list[tuple[int, int]], Grids, Grids]] | None = None

    def __repr__(self) -> str:
        return f"<Stream {self._size} characters held back>"

    def feed(self, piece: str) -> str:
        """What may be given on now. Small pieces that come at once wait for each other: what a look at them costs is
        in proportion to the text, not to their number."""
        if not self._redact.on:
            return self.end() + piece
        before = self.end() if piece.startswith("\r") else ""  # what follows takes the place of the line
        self._pending.append(piece)
        self._size += len(piece)
        if self._size < self._due and time.monotonic() < self._again:
            return before
        pending = "".join(self._pending)
        lines = pending.rfind("\n") + 1  # the whole lines first: they tell what the rest stands below
        lines = 0 if pending.startswith("Name: ", lines) else lines  # unless it names what stands above it
        made, left = self._taken(pending[:lines])
        rest = left + pending[lines:]
        if not left:
            more, rest = self._taken(rest)
            made += more
        self._pending = [rest]
        self._size = len(rest)
        self._due = self._size + max(_TOGETHER, self._size // 4)
        self._again = time.monotonic() + MOMENT
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
        self._pending, self._size, self._again = [], 0, 0.0
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
            found += [("a key", at, at + len(value)) for at in places_of(text, value)]
        found = [each for each in apart(found) if each[2] > begin]
        self._redact.found([ARTICLE.sub("", kind) for kind, _, _ in found])
        line = text.rfind("\n") + 1
        places, table, grid = self._tables(text)
        head = table.head or inside(text, places)[1]
        self._table = bool(head)
        if grid.head:  # its rows are held back until they are whole
            after = grid.opened if grid.opened >= 0 else cut if grid.head.endswith(_ROWS_BEGIN) else cut - _KEY
            self._context = f"{grid.head}\n{text[max(after, cut - HELD, 0) :]}"
        else:
            above = ""
            if line:  # of the line above only its form: its head is known
                last = text[max(text.rfind("\n", 0, line - 1) + 1, line - 1 - _ABOVE) : line - 1]
                kept = OF_A_USER.fullmatch(last) or _LOGIN_ABOVE.search(last)
                above = head or (last if kept else _LETTER.sub("x", _DIGIT.sub("0", last)))
            self._context = (f"{above}\n" if line else "") + text[max(line, cut - _CONTEXT) :]
            begun = grid.begun if grid.begun >= 0 else open_group(text)
            if not head and begun < max(line, cut - _CONTEXT):
                self._context = text[begun:]
        private = text.rfind("-----BEGIN")
        if private >= 0 and "PRIVATE KEY" in text[private : private + 90] and text.find("-----END", private) < 0:
            self._context = f"-----BEGIN PRIVATE KEY-----\n{self._context}"
        return replaced(text, found, begin)

    def _tables(self, text: str) -> tuple[list[tuple[int, int]], Grids, Grids]:
        """Where words of secrets' names stand in the text, and its tables as lines and as anything else."""
        if self._seen is None or self._seen[0] != text:
            low = text.encode("latin-1", "replace").lower()
            places = name_places(text, low)
            self._seen = text, (places, table_secrets(text, low, places), grid_secrets(text, places))
        return self._seen[1]

    def _settled(self, text: str) -> int:
        """Up to where the text says the same whatever follows."""
        line = max(text.rfind("\n") + 1, 0)
        held = line if self._table else self._open(text, line)
        _, *tables = self._tables(text)
        for each in tables:
            held = min(held, each.opened) if each.opened >= 0 else held
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
            if found[0] in ("://", "/api/webhooks/", *ANYWHERE) or begins_here(tail, found.start()):
                held = found.start() if found[0] != "/api/webhooks/" else run
                break
        for size in range(min(_LONGEST - 1, len(tail)), 0, -1):
            part = tail[-size:]
            inner = part[0] in ":/" or (size > 3 and any(begin.startswith(part) for begin in ANYWHERE))
            if part in _PREFIXES and (inner or begins_here(tail, len(tail) - size)):
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
        late_value = tail.rfind("value", max(0, len(tail) - 500))
        for at, length in name_places(tail[-4_400:], low):
            if shift + at >= held:
                break
            end = shift + at + length
            if (
                _OPEN_VALUE.match(tail, end)
                or ("\\" in tail and _OPEN_STRING.match(tail, end))
                or (late_value >= end and _OPEN_NAMED.match(tail, end))
            ):
                held = shift + at
                break
        late = max(0, len(tail) - 700)
        word = max(run, late)
        for form, begin, signs in (
            (_OPEN_TAG, tail.rfind("<", late), "<"), (_OPEN_HASH, word, "$}:*-2"), (_OPEN_LOGIN, word, "/"),
        ):  # fmt: skip
            if begin >= 0 and any(sign in tail[begin:] for sign in signs):
                opened = form.search(tail, begin)
                held = min(held, opened.start()) if opened is not None else held
        if len(tail) <= _ABOVE and opens_beside(tail):
            held = 0
        if any(needle in low for needle in _LOGIN_WORDS) and (login := _OPEN_LOGINS.search(tail, late)) is not None:
            held = min(held, login.start())
        if (sent := _OPEN_SENT.search(tail, max(0, len(tail) - 4_400))) is not None:
            held = min(held, sent.start())
        return line + held
