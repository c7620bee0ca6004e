"""Where a memory comes from: the user said it, the agent concluded it, or it is quoted from what tools gave.

The user's word is shown by quotation: the words that a memory carries out, found among what the user typed. They
must be what this memory is about, and what it says beyond them must not come from a tool's result: what reached the
model only through tools (a cell of a table, a web page, a file's name, an error) never becomes the user's word.
"""

from __future__ import annotations

import re
import sys
import unicodedata
from bisect import bisect_right
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from difflib import SequenceMatcher
from functools import cached_property
from pathlib import Path
from threading import Lock
from typing import Any, Literal, NamedTuple, TypeAlias

import msgspec

from ipyagent.errors import MemoryRefused
from ipyagent.headers import read_headed
from ipyagent.journal.events import (
    Event,
    MessageReceived,
    PermissionAnswered,
    SessionStarted,
    ToolReturned,
    UserSaid,
)
from ipyagent.memory.concepts import bare, closest, dates, is_idea, shared, tongue, weighty
from ipyagent.memory.texts import described
from ipyagent.memory.words import RUN, count, folded
from ipyagent.trust import is_signed, signature

Source: TypeAlias = Literal["said", "claimed", "inferred", "quoted"]
PERSONAL = ("user", "feedback")
"""Types whose words come from the user alone."""
FEWEST_WORDS = 3
"""Words of a quotation, unless it is a whole message."""
ABOUT = 1 / 6
"""Share of a memory's words that its quotations must have for it to be about them."""
FEW = 1 / 3
"""Below this share of a sentence two words in common with an order of a tool's are enough to come from there."""
NEAR = 0.3
"""Share of what a sentence adds that stands together in an order of a tool's; then it comes from there."""
QUOTED = 0.5
WHOLE = 0.75
"""The same share of a whole sentence, with what the user's words have of it."""
MARGIN = 0.2
"""The like for any other text of a tool's, with at least ENOUGH words, and so much more of it than of the user's."""
ENOUGH = 3
RESTATED = 0.6
"""Share of a sentence's words that another has which says the same."""
ORDER_CHARS = 300
"""Characters before and after a word such as "always" that belong to what it orders."""
MOST_CHARS = 4_000_000
"""Characters of tool results compared, newest first."""
MOST_TYPED = 100_000
"""Characters of one message that are searched for a quotation."""
MOST_QUOTED = 400
"""Words of a quotation that are looked for with slips."""
MOST_KEPT = 400
"""Characters of one quotation that are kept with a memory."""
REPEATED = 5
"""Telling words in a row that a message has in common with an earlier result: they were pasted."""

_ORDERS = re.compile(
    r"(?i)\b(?:remember|memori[sz]e|always|never|from now on|in future|in the future|ignore (?:all|any|previous)|"
    r"do not forget|don'?t forget|make sure|you must|prefers?|preference|(?:note|memo|message|instructions?) (?:for|to)"
    r" (?:the |any |all )?(?:assistant|agent|model|ai|llm|bot)s?|the user (?:wants|likes|asked|asks|said|expects|hates|"
    r"insists|wishes|agreed)|users? (?:likes?|wants?|wish(?:es)?)|(?:tip|hint|reminder) (?:for|to) (?:the )?(?:ai|llm|"
    r"assistant|agent)|henceforth|from today|save this|"
    r"from here on|going forward|whenever|every time|(?:is|are) to be|must (?:be|not|receive|have)|"
    r"(?:assistants?|agents?|ai|ki|llm|copilots?|models?)(?:-\w{1,20})? ?[-:,]|"
    r"(?:as|per) (?:an? |the )?(?:assistant|user)|the team (?:always|expects)|"
    r"bevorzugt?|immer|niemals?|nie|merke?n? (?:dir|sie)|ab jetzt|ab sofort|"
    r"künftig|toujours|jamais|désormais|siempre|nunca|recuerda|sempre|всегда|никогда|запомни)\b|"
    r"记住|記住|總是|总是|永远|永遠|从现在|以后|助手[:：]|必须|一律|用户(?:希望|喜欢|要求)|覚えて|常に|必ず|今後|절대|항상|기억"
)
_ASIDE = re.compile(
    r"(?i)[ \t>*-]*\**(?:why|how(?: to apply)?|warum|wieso|grund|begründung|anwendung|wie anwenden|pourquoi|comment|"
    r"por ?qué|cómo|为什么|原因|理由|如何应用|怎么用|应用|なぜ|適用)\**[ \t]*[:：]"
)
"""Why and How: the agent's own words, which are not weighed."""
_MARKS = re.compile(r"(?m)^\s*(?:[#>*+-]+\s+|\d+[.)]\s+)?(?:\*\*[^*\n:：]{1,30}[:：]?\*\*[:：]?\s*)?")
_ENDS = re.compile(r"(?<=[.!?])[\s\"')\]]+|[。！？；]|;\s+|\n+|(?<=\w):\s+")
_CLAUSE = re.compile(
    r"(?i)[,;:，、；：]\s*(?!\d)|\s(?:and|but|then|und|aber|et|mais|y|pero|with|mit|avec|con)\s|并且?|然后|而且|且"
)
"""Where what is weighed by itself ends inside a sentence."""
_ADDRESS = re.compile(
    r"\b[\w.+-]{1,64}@[\w-]{1,63}(?:\.[\w-]{1,63}){1,5}|\bhttps?://\S{3,200}|"
    r"\b(?:[a-z0-9-]{1,63}\.){1,4}(?:com|org|net|io|dev|app|example|test|info|co|ai|de|fr|es|uk|cn|jp|ru|eu|us)\b"
)
_TOKEN = re.compile(rf"{RUN}|(?:(?!{RUN})[^\W_])+(?:['’´`](?:(?!{RUN})[^\W_])+)*")
_ISO_DATE = re.compile(r"\b(?:19|20)\d\d-\d\d-\d\d\b")
_FIGURE = re.compile(r"(?<![A-Za-z0-9_.,])(?:\d{1,15}(?:[.,'’]\d{1,15}){1,5}|\d{2,15})(?![A-Za-z0-9_])")
_SENTENCE = re.compile(rf"(?:[^\W\d_]{{2,40}}[ ,'’-]{{1,3}}){{3}}|(?:{RUN}){{5}}")
"""A line of a result that says something, unlike a row of a table of numbers."""
_CAPITAL = re.compile(r"(?<![\w@./-])[^\W\d_a-z]\w{1,40}(?:['’]s)?")
_NAME = re.compile(r"(?:(?<=[a-zß-ÿ0-9,)] )|(?<=[\u3041-\u9fff] )|(?<=[\u3041-\u9fff])|(?<=\. (?=Dr)))[A-ZÀ-Þ]\w{1,40}")
_ELLIPSIS = re.compile(r"\s*(?:\[?(?:\.\.\.|…)\]?)\s*")
_PASTED = (
    re.compile(r"(?s)```.*?(?:```|\Z)"),
    re.compile(r"(?m)^[ \t]*>.*$"),
    re.compile(r"(?m)(?:^[^\n]*(?:[,;\t|][^,;\t|\n]*){3}$\n?){3,}"),
    re.compile(
        r"(?is)(?:^|[.!?\n。！？，,]\s*)"
        r"(?:(?:and|please|pls|can you|could you|now|bitte|kannst du|peux-tu|puedes|请|帮我)[ ,]*){0,2}"
        r"(?:summari[sz]e|translate|explain|proofread|rephrase|rewrite|classify|interpret|what does|what is|"
        r"what do you (?:make|think) of|fass\w*|übersetz\w*|erklär\w*|was (?:bedeutet|heißt|ist)|résume\w*|tradui\w*|"
        r"expliqu\w*|resum\w*|traduc\w*|explica\w*|总结|翻译|解释|要約|翻訳|説明)[^\n:：]{0,80}[:：]\s*(.*)"
    ),
    re.compile(r"[“\"«「『„]((?:[^”\"»」』“\n]){20,2000})[”\"»」』“]"),
)
"""What stands in a message and is not the user's own words; of the last kind, quotation marks, the words may be."""
_REPORTED = re.compile(
    r"(?i)\b(?:file|table|row|line|csv|readme|page|document|docs?|column|cell|note|e-?mail|comment|script|website|"
    r"pdf|text|dataset|sheet)(?:[ -]?\d+)? (?:says|said|states|tells|claims|asks|wants|reads|contains|mentions)\b|"
    r"\b(?:comments|notes|rows|files|docs) (?:say|state|tell|claim|ask|want|mention)\b|"
    r"\b(?:according to|as in|like in|follow(?:ing)?|obey|do) (?:what )?(?:the |this |that )?(?:instructions?|file|"
    r"table|row|csv|readme|page|document|comments?|notes?)\b|"
    r"\blaut (?:der |dem |den )?\w*(?:datei|tabelle|zeile|kommentar|notiz|spalte)\w*|"
    r"in (?:der|dem) (?:datei|tabelle|zeile|spalte|mail)\b[^.!?\n]{0,40}\bsteht|"
    r"\b(?:fichier|tableau|ligne|page|commentaire)(?: \d+)? (?:dit|indique|demande)|"
    r"\b(?:archivo|tabla|fila|página|comentario)(?: \d+)? (?:dice|indica|pide)|"
    r"(?:文件|表格|表|行|备注|评论|注释|里)(?:里|中|上)?(?:面)?(?:说|写|要求|提到)|(?:ファイル|表|行|コメント)に(?:は)?(?:書|ある)"
)
_ASKS = re.compile(
    r"(?i)\s*(?:and |but |so |und |et |y )?(?:what|why|which|who|whose|where|when|how|does|do|did|is|are|was|were|"
    r"should|shall|has|have|was|warum|wieso|welche\w*|wer|wo|wann|wie|ist|sind|soll\w*|hat|pourquoi|quel\w*|qui|où|quand|"
    r"est-ce|faut-il|qué|por qué|cuál\w*|quién|dónde|cuándo|cómo|debe\w*|¿)\b|"
    r".*(?:什么|怎么|哪|是不是|吗|か[。？?\s]*$)"
)
_WONDERS = re.compile(
    r"(?i)\s*(?:and |but |so |und )?(?:(?:why|what|how)(?: come)? (?:does|do|did|is it|are they)|which|who|whose|where|"
    r"how (?:many|much|often)|welche\w*|wie ?viele?|wer|wo|combien|quels?|quelles?|cuánt\w+|cuál\w*)\b"
)
_DIRECTS = re.compile(
    r"(?i)\b(?:always|never|prefer\w*|only|no|not|dont|don't|instead|rather|use|keep|should|must|want|wants|"
    r"every|each|everywhere|all|from now|here on|future|next time|without|avoid|stop|remember|like|hate|love|better|"
    r"immer|nie|niemals|nur|kein\w*|nicht|statt|lieber|soll\w*|künftig|jedes?|alle|ohne|toujours|jamais|pas|"
    r"que des|sans|siempre|nunca|no|sin|solo|prefiero)\b|"
    r"以后|不要|别|用|总是|一律|都|每|保留|先|必须|ないで|いつも|必ず"
)
_POLITE = re.compile(
    r"(?i)\b(?:please|pls|plz|can you|could you|would you|will you|can we|could we|bitte|kannst|könn\w+|würde\w*|peux|"
    r"pourr\w+|puedes|podr\w+|por favor|svp|stp)\b|请|能不能|能否|可以|麻烦|くれ|ください|もらえ"
)
_ASSENT = frozenset(
    """
ok okay okey k yes yeah yep yup ya sure fine good great perfect right exactly correct agreed thanks thank you thx
please pls do it that this so go ahead on proceed continue sounds nice cool alright all lgtm approved confirmed i
agree as said like ja jawohl jo gut genau klar gerne passt stimmt mach machen das es so bitte danke weiter
okidoki in ordnung oui d accord daccord fais ca ça vas y bien sur parfait merci si sí vale claro de acuerdo hazlo
hecho adelante perfecto gracias da хорошо
""".split()  # noqa: SIM905 - a list of words reads better as text
)
_ASSENT_RUNS = re.compile(
    r"好的|好|可以|行|是的|是|对|没问题|就这样|这样|吧|了|嗯|同意|谢谢|请|继续|做|照|办|はい|ええ|うん|いいです|いいよ|いい|そうして|そうです|"
    r"お願いします|お願い|します|ください|了解|です|ね|よ|네|좋아요|그래"
)
_POLARITY = frozenset(
    """
not no never dont doesnt didnt isnt arent wont cant without nicht nie kein keine keinen niemals ohne ne pas
jamais sans nunca jamás sin 不 别 没 勿 ない
""".split()  # noqa: SIM905 - a list of words reads better as text
)
OLD_LABEL = "*Inferred by the agent, not said by the user; it seems to hold, check it before relying on it.*"
"""A sentence of ours that earlier versions wrote into bodies."""

BETWEEN = " … "
RECORDED = "recorded"
"""The header's key for the record that a memory is the user's word."""


class Records:
    """What this user's own folder says of memories: which are the user's word. What a file in a project says of itself
    is a claim; the record is a signature of what it says (type, name, description, the user's words, body), so that
    a memory keeps it wherever the project is moved to, and loses it with any change from outside."""

    def __init__(self, user: Path) -> None:
        self._user = user

    def __repr__(self) -> str:
        return f"<Records in {self._user}>"

    def made(self, fields: Mapping[str, Any], body: str) -> str:
        """The record of a memory, for its header. Raises MemoryRefused ("disk") when there is no place for a key."""
        try:
            return signature(self._user, "memory", _signed(fields, body))
        except OSError as problem:
            told = (
                f"that a memory is the user's word cannot be recorded in {self._user} ({problem.strerror or problem}): "
                "free some space there or make it writable"
            )
            raise MemoryRefused(told, reason="disk") from None

    def holds(self, content: bytes) -> bool:
        """Whether a memory, its whole content, was recorded as the user's word."""
        headed = read_headed(content)
        given = headed.fields.get(RECORDED)
        return isinstance(given, str) and is_signed(self._user, "memory", _signed(headed.fields, headed.body), given)


def _signed(fields: Mapping[str, Any], body: str) -> bytes:
    whole = described("", fields, body)  # %memory doctor adds what is missing
    told = [str(whole.get(key) or "") for key in ("type", "name", "description")]
    return msgspec.json.encode([*told, said_words(fields), body.strip()])


def said_words(fields: Mapping[str, Any]) -> list[str]:
    """The user's words that a header keeps as evidence, in one line with an ellipsis between the pieces."""
    given = fields.get("said")
    pieces = given if isinstance(given, list) else str(given or "").split(BETWEEN)
    return [str(each) for each in pieces if each]


class Origin(msgspec.Struct, frozen=True):
    """Where a text comes from; `sentence` is the one that decided against "said" ("" otherwise)."""

    source: Source
    sentence: str = ""


class Quote(NamedTuple):
    """Words of the user as they were typed, and where."""

    words: str
    session: str
    turn: int


class Evidence(NamedTuple):
    """The user's words that were found, and for each piece that is none why, in words for the model."""

    quotes: tuple[Quote, ...] = ()
    problems: tuple[str, ...] = ()


class Typed:
    """One message of the user, as quotations are looked up in it. `at`: which came first of it and of results."""

    def __init__(self, text: str, at: int = 0, *, session: str = "", turn: int = 0) -> None:
        self.text = unicodedata.normalize("NFC", text[:MOST_TYPED])
        self.at, self.session, self.turn = at, session, turn

    @cached_property
    def spans(self) -> list[tuple[str, int, int]]:
        """Its words, folded, with where they stand."""
        return tokens(self.text)

    @cached_property
    def _line(self) -> tuple[str, list[int]]:
        places, line = list[int](), " "
        parts: list[str] = []
        at = len(line)
        for word, _, _ in self.spans:
            places.append(at)
            parts.append(word)
            at += len(word) + 1
        return f" {' '.join(parts)} ", places

    @cached_property
    def foreign(self) -> list[tuple[int, int, bool]]:
        """Where something stands that the user did not write, and whether it surely is none of the user's."""
        found: list[tuple[int, int, bool]] = []
        for kind, pattern in enumerate(_PASTED):
            for match in pattern.finditer(self.text):
                start, end = match.span(match.lastindex or 0)
                if count(self.text[start:end]) > FEWEST_WORDS:
                    found.append((start, end, kind < len(_PASTED) - 1))
        return found

    def own(self) -> tuple[str, str]:
        """What the user wrote, and what was pasted."""
        sure = [(start, end) for start, end, certain in self.foreign if certain]
        pasted = "\n".join(self.text[start:end] for start, end in sure)
        own = self.text
        for start, end in sorted(sure, reverse=True):
            own = own[:start] + "\n" + own[end:]
        return own, pasted

    def find(self, wanted: list[str]) -> tuple[int, int] | None:
        """Where these words stand one after the other: first and last of them; with small slips, if need be."""
        line, places = self._line
        at = line.find(f" {' '.join(wanted)} ")
        if at >= 0:
            first = bisect_right(places, at + 1) - 1
            return first, first + len(wanted) - 1
        return self._near(wanted)

    def _near(self, wanted: list[str]) -> tuple[int, int] | None:
        """Where they stand with slips, with words left out, or with words put in that tell nothing (of eight words one
        may be another): what was typed is kept as evidence, so that this only finds the place. Numbers and negations
        must be the same."""
        most = len(wanted) // 4
        words = [word for word, _, _ in self.spans]
        if not most or len(wanted) > MOST_QUOTED:
            return None
        goal, size = set(wanted), len(wanted) + most
        hits = [word in goal for word in words]
        there = best = sum(hits[:size])
        at = 0
        for end in range(size, len(words)):
            there += hits[end] - hits[end - size]
            if there > best:
                best, at = there, end - size + 1
        if best < len(wanted) - most:
            return None
        at, window = max(0, at - most), words[max(0, at - most) : at + size]
        codes = SequenceMatcher(None, window, wanted, autojunk=False).get_opcodes()
        same = [(first, last) for kind, first, last, _, _ in codes if kind == "equal"]
        if not same:
            return None
        slips = others = 0
        for kind, first, last, begin, end in codes:
            typed, given = window[first:last], wanted[begin:end]
            if kind == "equal" or (not given and (last <= same[0][0] or first >= same[-1][1])):
                continue
            if len(typed) != len(given) or not all(map(_is_slip, typed, given)):
                if any(word in _POLARITY or re.search(r"\d", word) for word in (*typed, *given)):
                    return None
                others += len(weighty(" ".join(given)))
            slips += max(len(typed), len(given))
        first, last = same[0][0], same[-1][1]
        return (at + first, at + last - 1) if slips <= most and others <= len(wanted) // 8 else None

    def sentence(self, start: int, end: int) -> tuple[str, str]:
        """The sentence around a place and the clause that it begins in."""
        before = max((self.text.rfind(mark, 0, start) for mark in ".!?。！？\n;；"), default=-1) + 1
        ends = [at for mark in ".!?。！？\n;；" if (at := self.text.find(mark, max(start, end - 1))) >= 0]
        last = min(ends, default=len(self.text)) + 1
        comma = max(self.text.rfind(mark, before, start) for mark in ",，、–—-:：")
        return self.text[before:last], self.text[max(before, comma + 1) : last]


def tokens(text: str) -> list[tuple[str, int, int]]:
    """The words of a text in one spelling, without punctuation, and where they stand; characters of unspaced scripts
    each by itself."""
    found = []
    for match in _TOKEN.finditer(text):
        word = re.sub(r"[^\w]", "", folded(match.group()))
        if word:
            found.append((word, match.start(), match.end()))
    return found


def _is_slip(one: str, other: str) -> bool:
    """Whether two words differ as a typing error does."""
    if any(map(str.isdigit, one + other)) or {one, other} & _POLARITY:
        return False
    if sorted(one) == sorted(other) and len(one) > 2:
        return True
    if min(len(one), len(other)) < 4:
        return False
    return abs(len(one) - len(other)) <= 2 and SequenceMatcher(None, one, other, autojunk=False).ratio() >= 0.75


def particulars(text: str, *, prose: bool = False) -> set[str]:
    """The numbers and names of a text, folded: what is nobody's own wording. In `prose` a name is a word with a capital
    inside a sentence; else any word with a capital may be one."""
    text = _ISO_DATE.sub(" ", text)
    found = {_figure(match.group()) for match in _FIGURE.finditer(text)}
    for match in (_NAME if prose else _CAPITAL).finditer(text):
        word = re.sub(r"['’]s?$", "", match.group())
        if len(word) > 1 and (stems := weighty(word)) and not all(map(is_idea, stems)):
            found.add(folded(word))
    return found


def _figure(number: str) -> str:
    """A number without thousands' separators and trailing zeros, the decimal separator a point."""
    plain = re.sub(r"(?<=\d)[,.'’](?=\d{3}(?!\d))", "", number).replace(",", ".")
    return plain.rstrip("0").rstrip(".") if "." in plain else plain


def is_assent(text: str) -> bool:
    """Whether a text only agrees ("Ok.", "ja", "好的", "do that")."""
    return not any(word not in _ASSENT for word, _, _ in tokens(_ASSENT_RUNS.sub(" ", text)))


class Ground:
    """What was said and what was told in a session: fold its events, then ask for `evidence` and `origin`.

    Taking texts in costs nothing; they are looked at once, with the first question, which may be asked on another
    thread (`settle`).
    """

    def __init__(self) -> None:
        self.session = ""
        self._typed: list[Typed] = []
        self._told: list[list[str]] = []
        self._told_at: list[int] = []
        self._chars = 0
        self._upto = 0
        self._turns = 0
        self._count = 0
        self._orders: list[list[str]] = []
        self._names: set[str] = set()
        """Numbers and names of results."""
        self._new: deque[tuple[int, str]] = deque()
        """Results that were not looked at yet."""
        self._new_chars = 0
        self._lock = Lock()

    def __repr__(self) -> str:
        return f"<Ground {len(self._typed)} said, {len(self._told) + len(self._new)} told>"

    @classmethod
    def of(cls, events: Iterable[Event]) -> Ground:
        """The ground of these events."""
        made = cls()
        for event in events:
            made.apply(event)
        return made

    def apply(self, event: Event) -> None:
        """Take in the next event; one that was taken in already is passed over. Memories that were recalled or viewed
        are nobody else's text: what they are was settled when they were saved."""
        if event.id and event.id <= self._upto:
            return
        self._upto = max(self._upto, event.id)
        match event:
            case SessionStarted():
                self.session = event.session
            case UserSaid():
                self._turns += 1
                self.say(event.text)
                self.take(event.blocks, but=event.text)
            case PermissionAnswered() if event.by == "user":
                self.say(event.reason)
            case ToolReturned() if event.name != "memory":
                self.take(event.blocks)
            case MessageReceived():
                self.tell(event.text)
            case _:
                pass

    def say(self, *texts: str) -> None:
        """The user typed this."""
        for text in texts:
            if text.strip():
                self._count += 1
                made = Typed(text, self._count, session=self.session, turn=self._turns)
                with self._lock:
                    self._typed.append(made)
                if pasted := made.own()[1]:
                    self.tell(pasted)

    def tell(self, *texts: str) -> None:
        """This reached the model otherwise."""
        with self._lock:
            for text in texts:
                if text:
                    self._count += 1
                    self._new.append((self._count, text[:MOST_CHARS]))
                    self._new_chars += len(self._new[-1][1])
            if self._new_chars > 2 * MOST_CHARS:
                self._forget()

    def take(self, blocks: Iterable[dict[str, Any]], *, but: str = "") -> None:
        """These blocks reached the model otherwise; `but` is a text in them that the user typed."""
        self.tell(*(text for text in _texts(blocks) if text != but))

    def _forget(self) -> None:
        """Let go of the oldest of what was told and not looked at."""
        kept: deque[tuple[int, str]] = deque()
        room = MOST_CHARS
        for at, text in reversed(self._new):
            if room > 0:
                kept.appendleft((at, text))
                room -= len(text)
        self._new, self._new_chars = kept, MOST_CHARS - room

    def settle(self) -> None:
        """Look at what has come since the last time: about a second for each million characters, on any thread."""
        with self._lock:
            self._forget()
            new, self._new, self._new_chars = self._new, deque(), 0
            for at, text in new:
                self._orders += _orders_in(text)
                self._names |= particulars("\n".join(filter(_SENTENCE.search, text.split("\n"))), prose=True)
                self._told.append([sys.intern(word) for word in weighty(text)])
                self._told_at.append(at)
                self._chars += len(text)
            while self._chars > MOST_CHARS and len(self._told) > 1:
                self._chars -= 6 * len(self._told.pop(0))
                self._told_at.pop(0)

    # ------------------------------------------------------------------ the user's words

    def evidence(self, pieces: Iterable[str], *, more: Sequence[Typed] = ()) -> Evidence:
        """Which of these pieces the user typed, also with other case, punctuation or an ellipsis; `more` are messages
        of other sessions."""
        self.settle()
        messages = [*more, *self._typed]
        quotes: list[Quote] = []
        short: list[Quote] = []
        problems: list[str] = []
        for piece in (part for given in pieces for part in _ELLIPSIS.split(given) if part.strip()):
            wanted = [word for word, _, _ in tokens(unicodedata.normalize("NFC", piece[:MOST_TYPED]))]
            if not wanted:
                continue
            best = ""
            for message in reversed(messages):
                place = message.find(wanted)
                if place is None:
                    continue
                best = self._objection(message, *place)
                if not best:
                    start, end = message.spans[place[0]][1], message.spans[place[1]][2]
                    quote = Quote(" ".join(message.text[start:end].split())[:MOST_KEPT], message.session, message.turn)
                    whole = place == (0, len(message.spans) - 1)
                    (quotes if whole or count(piece) >= FEWEST_WORDS else short).append(quote)
                    break
            else:
                problems.append(f"{_brief(piece)}: {best or self._nearest(wanted, messages)}")
        if short and not quotes:
            told = f"quote at least {FEWEST_WORDS} words, or the whole message"
            problems += [f"{_brief(each.words)}: {told}" for each in short]
            short = []
        quotes += [each for each in short if count(each.words) > 1]
        return Evidence(tuple(dict.fromkeys(quotes)), tuple(problems))

    def _objection(self, message: Typed, first: int, last: int) -> str:
        """Why words that stand in a message are not the user's own for this purpose; "" when they are."""
        start, end = message.spans[first][1], message.spans[last][2]
        words = message.text[start:end]
        if is_assent(words):
            return "that only agrees; quote what the user wants"
        inside = sum(any(at <= place < upto for at, upto, _ in message.foreign)
                     for _, place, _ in message.spans[first : last + 1])  # fmt: skip
        if 2 * inside > last - first + 1:
            return "the user gave that as a text to work on, not as words of their own"
        if (wanted := weighty(words)) and len(wanted) > 1 and set(wanted) <= self._repeated(message):
            return "that was in a result before the user's message had it"
        sentence, clause = message.sentence(start, end)
        if _REPORTED.search(sentence):
            return "the user says there what a text says"
        if _WONDERS.match(sentence):
            return "that is a question of the user's"
        asked = sentence.rstrip().endswith(("?", "？")) or bool(re.search(r"吗\W*$", sentence))
        if asked and _ASKS.match(clause) and not _POLITE.search(sentence):
            return "that is a question of the user's"
        return ""

    def _repeated(self, message: Typed) -> set[str]:
        """Words of a message that it has in a row with a result that came before."""
        words = weighty(message.text)
        runs = {tuple(words[at : at + REPEATED]) for at in range(len(words) - REPEATED + 1)}
        if not runs:
            return set()
        there = set(words)
        found: set[str] = set()
        for at, told in zip(self._told_at, self._told, strict=True):
            if at < message.at and len(there.intersection(told)) >= min(REPEATED, len(there)):
                for run in zip(*(told[skip:] for skip in range(REPEATED)), strict=False):
                    if run in runs:
                        found.update(run)
        return found

    def nearest(self, text: str) -> str:
        """What the user typed that is nearest to a text, shortened; "" when nothing is near."""
        wanted = weighty(text)
        best, most = "", 0
        for message in reversed(self._typed):
            for sentence in (each for each in re.split(r"(?<=[.!?。！？])\s*|\n+", message.text) if each.strip()):
                common = len(shared(wanted, weighty(sentence)))
                if common > most and not is_assent(sentence):
                    best, most = sentence, common
        return _brief(best) if best else ""

    def _nearest(self, wanted: list[str], messages: Sequence[Typed]) -> str:
        best, most = "", 0
        for message in reversed(messages):
            words = [word for word, _, _ in message.spans]
            common = len(set(wanted).intersection(words))
            if common > most:
                goal = set(wanted)
                place = max(range(len(words)), key=lambda at: len(goal.intersection(words[at : at + len(wanted) + 2])))
                stretch = message.spans[place : place + len(wanted) + 2]
                best, most = message.text[stretch[0][1] : stretch[-1][2]], common
        return f"the user typed {_brief(best)}" if best else "the user typed nothing like it"

    # ------------------------------------------------------------------ where a text comes from

    def spoken(self) -> str:
        """All that the user wrote of themselves."""
        return "\n".join(message.own()[0] for message in self._typed)

    def origin(
        self, told: Iterable[str], quotes: Iterable[str], *, asides: Iterable[str] = (), spoken: str | None = None
    ) -> Origin:
        """Where sentences come from that carry out these words of the user: "quoted" when one of them, or what it
        adds, stands together in a result, or has a number or name of a result that the user never typed (`spoken`: in
        all that is theirs); "said" when they are about the words; else "inferred". `asides` are the agent's Why and
        How."""
        self.settle()
        told, quotes = list(told), list(quotes)
        ours = {word for quote in quotes for word in weighty(quote)}
        directs = any(_DIRECTS.search(quote) for quote in quotes)
        turned = bool(quotes) and not any(map(_is_negated, quotes))
        theirs = "\n".join((*quotes, self.spoken() if spoken is None else spoken))
        foreign = self._names - particulars(theirs) - {word for word, _, _ in tokens(theirs)}
        related: set[str] = set()
        every: set[str] = set()
        apart, suspect, weak, near = 0, False, "", ""
        for sentence in told:
            words = list(dict.fromkeys([*weighty(sentence), *(dates(sentence) & ours)]))
            if not words:
                continue
            if foreign and not foreign.isdisjoint(particulars(sentence)):
                return Origin("quoted", sentence.strip())
            same = shared(words, ours)
            if turned and not directs and _is_negated(sentence) and 2 * closest(words, self._orders) >= len(words):
                same = set()  # a task says nothing of what is not to be
            if any(self._is_added(clause, same, turned) for clause in _CLAUSE.split(sentence)):
                return Origin("quoted", sentence.strip())
            left = [word for word in words if word not in same]
            share = len(same) / len(words)
            ordered = closest(words, self._orders) if not directs and len(words) >= ENOUGH else 0
            if ordered >= ENOUGH and ordered / len(words) >= WHOLE:  # the user spoke of it and ordered nothing
                return Origin("quoted", sentence.strip())
            if left and (
                self._is_told(left, words, share, task=bool(quotes) and not directs)
                or self._has_address(sentence, ours)
            ):
                return Origin("quoted", sentence.strip())
            every.update(words)
            related |= same
            if not same:
                apart += len(words)
                weak = weak or sentence.strip()
                ordered = closest(left, self._orders)
                suspect = suspect or ordered > 1 or ordered / len(words) >= FEW
                near = near or (sentence.strip() if ordered / len(words) >= FEW else "")
        for aside in asides:
            words = list(dict.fromkeys(weighty(aside)))
            left = [word for word in words if word not in shared(words, ours)]
            ordered = closest(left, self._orders) if len(left) > ENOUGH else 0
            if (ordered > ENOUGH and ordered / len(words) >= RESTATED) or self._has_address(aside, ours):
                return Origin("quoted", aside.strip())
            for clause in (part for each in sentences(aside) for part in _CLAUSE.split(each)):
                part = list(dict.fromkeys(weighty(clause)))
                if len(part) > 1 and ours.isdisjoint(part) and closest(part, self._orders) == len(part):
                    return Origin("quoted", aside.strip())
        if not every:
            return Origin("said" if ours else "inferred")
        tongues = tongue(" ".join(quotes)), tongue(" ".join(told))
        abroad = all(tongues) and tongues[0] != tongues[1]  # then words that have no counterpart tell less
        about = bool(related) and (len(related) > 1 or len(related) / len(every) >= ABOUT)
        if about and not (apart and (suspect or (not abroad and 2 * apart > len(every)))):
            return Origin("said")
        return Origin("quoted", near) if near and not about else Origin("inferred", weak)

    def _has_address(self, sentence: str, ours: set[str]) -> bool:
        """Whether a sentence names a host or an address that a result has and the user's words have not."""
        found = [set(weighty(match.group())) for match in _ADDRESS.finditer(sentence)]
        return any(each and not each <= ours and closest(list(each), self._told) == len(each) for each in found)

    def _is_added(self, clause: str, same: set[str], turned: bool) -> bool:
        """Whether a part of a sentence has nothing of the user's words and stands in a result; `turned`: also one that
        says no where the user's words say none."""
        part = list(dict.fromkeys(weighty(clause)))
        left = [word for word in part if word not in same]
        if len(left) == len(part):
            told = closest(part, self._told) if len(part) > 1 else 0
            return bool(part) and len(part) in (told, closest(part, self._orders))
        return bool(left) and turned and _is_negated(clause) and closest(left, self._told) == len(left)

    def _is_told(self, left: list[str], words: list[str], share: float, *, task: bool) -> bool:
        """Whether what a sentence adds to the user's words stands in a result; what is added to a `task`, to words that
        are no standing wish, does so more easily."""
        ordered = closest(left, self._orders)
        few = share < FEW or task
        if ordered >= (2 if few else ENOUGH) and ordered / len(left) >= NEAR:
            return True
        if not share and ordered == len(left):
            return True
        whole = closest(words, self._told)
        if whole >= ENOUGH and whole / len(words) >= WHOLE and whole / len(words) - share > MARGIN:
            return True
        there = closest(left, self._told)
        return there >= ENOUGH and there / len(left) >= QUOTED and there / len(words) - share > MARGIN


def parts(description: str, body: str) -> tuple[list[str], list[str]]:
    """The sentences of a memory that are weighed, and its Why and How, each to the end of its paragraph."""
    told, asides = [description], list[str]()
    aside = False
    for line in body.replace(OLD_LABEL, "").split("\n"):
        aside = bool(_ASIDE.match(line)) or (aside and bool(line.strip()) and not line.lstrip().startswith("**"))
        (asides if aside else told).append(line)
    return sentences("\n".join(told)), asides


def sentences(text: str) -> list[str]:
    """The sentences and lines of a text, without list marks and labels such as **Why:**."""
    lines = text.split("\n")  # one by one: a search holds up all threads of the process
    return [found for line in lines for found in _ENDS.split(_MARKS.sub("", line)) if found and found.strip()]


def _is_negated(sentence: str) -> bool:
    return any(word in _POLARITY for word, _, _ in tokens(sentence))


def restates(sentence: str, other: str) -> bool:
    """Whether a sentence says the same as another, maybe with a date made absolute; "not" and "never" count."""
    mine, its = set(weighty(sentence)), set(weighty(other))
    negated = [{word for word, _, _ in tokens(each)} & _POLARITY for each in (sentence, other)]
    if not mine or negated[0] != negated[1]:
        return bare(sentence) == bare(other)
    return len(mine & its) / len(mine) >= RESTATED


def adds(sentence: str, before: Iterable[str], quotes: Iterable[str]) -> bool:
    """Whether a sentence says what neither a text nor these words of the user say, or says no where none of both does;
    a date made absolute adds nothing."""
    there = [*before, *quotes]
    known = {word for each in there for word in weighty(each)}
    words = weighty(sentence)
    return len(shared(words, known)) < len(set(words)) or (_is_negated(sentence) and not any(map(_is_negated, there)))


def worst(*sources: str) -> Source:
    """The least trusted of some sources."""
    order: tuple[Source, ...] = ("quoted", "claimed", "inferred", "said")
    known = [order.index(source) if source in order else order.index("inferred") for source in sources]
    return order[min(known, default=order.index("said"))]


def _brief(text: str) -> str:
    flat = " ".join(text.split())
    return repr(flat if len(flat) <= 160 else f"{flat[:159]}…")


def _texts(blocks: Iterable[dict[str, Any]]) -> Iterator[str]:
    for block in blocks:
        if isinstance(block.get("text"), str):
            yield block["text"]
        source = block.get("source")
        if isinstance(source, dict) and source.get("type") == "text":
            yield str(source.get("data", ""))
        if isinstance(block.get("content"), list):
            yield from _texts(inner for inner in block["content"] if isinstance(inner, dict))


def _orders_in(text: str) -> list[list[str]]:
    """The words of the lines that say what is to be done always or remembered."""
    found: list[list[str]] = []
    for line in text.replace("_", " ").split("\n"):
        end = -1
        for match in _ORDERS.finditer(line):
            if match.start() >= end:
                end = match.end() + ORDER_CHARS
                found.append(weighty(line[max(0, match.start() - ORDER_CHARS) : end]))
    return found
