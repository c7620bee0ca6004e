"""Where a memory comes from: the user said it, the agent concluded it, or it is quoted from what tools gave.

The user's word is shown by quotation: the words that a memory carries out, found among what the user typed. They
must be what this memory is about, and what it says beyond them must not come from a tool's result: what reached the
model only through tools (a cell of a table, a web page, a file's name, an error) never becomes the user's word.
"""

from __future__ import annotations

import re
import sys
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from itertools import islice
from threading import Lock
from typing import Any, Literal, NamedTuple, TypeAlias

import msgspec

from ipyagent.errors import MemoryRefused
from ipyagent.frontmatter import Headed, read_headed
from ipyagent.journal.blocks import texts_of
from ipyagent.journal.events import (
    AssistantMessage,
    Event,
    MessageReceived,
    PermissionAnswered,
    SessionStarted,
    ToolReturned,
    UserMessage,
)
from ipyagent.parts.memory.metadata_index import word_of
from ipyagent.parts.memory.quotation import NEGATIONS, SHORT, Evidence, Quote, Typed, Words, is_negated, tokens
from ipyagent.parts.memory.store import MemoryStore
from ipyagent.parts.memory.tokenizer import RUN, Passages, bare, dates, folded, is_idea, shared, weighty

Source: TypeAlias = Literal["said", "claimed", "inferred", "quoted"]
PERSONAL = ("user", "feedback")
"""Types whose words come from the user alone."""
NEAR = 0.3
"""Share of what a sentence adds that stands together in an order of a tool's; then it comes from there."""
QUOTED = 0.5
WHOLE = 0.75
"""The same share of a whole sentence, with what the user's words have of it."""
MARGIN = 0.2
"""The like for any other text of a tool's, with at least ENOUGH words, and so much more of it than of the user's."""
ENOUGH = 3
CHANCE = 2
"""Words of the user's that an order of a tool's has, and all that a clause adds to them; then it comes from there."""
RESTATED = 0.6
"""Share of a sentence's words that another has which says the same."""
ORDER_CHARS = 300
"""Characters before and after a word such as "always" that belong to what it orders."""
MOST_SENTENCES = 100_000
"""Sentences of tool results compared, newest first."""
MOST_CHARS = 4_000_000
"""Characters of tool results compared, newest first."""
MOST_WORDS = MOST_CHARS // 20
"""Different numbers and names of them: a new one in every twenty characters is more than any text has."""
MOST_ORDERS = MOST_CHARS // ORDER_CHARS
"""What is ordered in so many characters, each with its surroundings."""
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
_ENDS = re.compile(
    "(?<=[.!?])" + "".join(rf"(?<!\b(?i:{re.escape(each)}))" for each in SHORT) + r"[\s\"')\]]+"
    r"|[。！？；]|;\s+|\n+|(?<=\w):\s+"
)
_CLAUSE = re.compile(
    r"(?i)[,;:，、；：]\s*(?!\d)|\s(?:and|but|then|und|aber|et|mais|y|pero|with|mit|avec|con)\s|并且?|然后|而且|且"
)
"""Where what is weighed by itself ends inside a sentence."""
_ADDRESS = re.compile(
    r"\b[\w.+-]{1,64}@[\w-]{1,63}(?:\.[\w-]{1,63}){1,5}|\bhttps?://\S{3,200}|"
    r"\b(?:[a-z0-9-]{1,63}\.){1,4}(?:com|org|net|io|dev|app|example|test|info|co|ai|de|fr|es|uk|cn|jp|ru|eu|us)\b"
)
_ISO_DATE = re.compile(r"\b(?:19|20)\d\d-\d\d-\d\d\b")
_FIGURE = re.compile(r"(?<![A-Za-z0-9_.,])(?:\d{1,15}(?:[.,'’]\d{1,15}){1,5}|\d{2,15})(?![A-Za-z0-9_])")
_SENTENCE = re.compile(rf"(?:[^\W\d_]{{2,40}}[ ,'’-]{{1,3}}){{3}}|(?:{RUN}){{5}}")
"""A line of a result that says something, unlike a row of a table of numbers."""
_CAPITAL = re.compile(r"(?<![\w@./-])[^\W\d_a-z]\w{1,40}(?:['’]s)?")
_NAME = re.compile(r"(?:(?<=[a-zß-ÿ0-9,)] )|(?<=[\u3041-\u9fff] )|(?<=[\u3041-\u9fff])|(?<=\. (?=Dr)))[A-ZÀ-Þ]\w{1,40}")
_DIRECTS = re.compile(
    r"(?i)\b(?:always|never|prefer\w*|only|no|not|dont|don't|instead|rather|use|keep|should|must|want|wants|"
    r"every|each|everywhere|all|from now|here on|future|next time|without|avoid|stop|remember|like|hate|love|better|"
    r"immer|nie|niemals|nur|kein\w*|nicht|statt|lieber|soll\w*|künftig|jedes?|alle|ohne|toujours|jamais|pas|"
    r"que des|sans|siempre|nunca|no|sin|solo|prefiero)\b|"
    r"以后|不要|别|用|总是|一律|都|每|保留|先|必须|ないで|いつも|必ず"
)
OLD_LABEL = "*Inferred by the agent, not said by the user; it seems to hold, check it before relying on it.*"
"""A sentence of ours that earlier versions wrote into bodies."""


class ProvenanceLabel(msgspec.Struct, frozen=True):
    """Where a text comes from; `sentence` is the one that decided against "said" ("" otherwise); `is_sure` where words
    are decisive: it stands in a result, or has the user's words alone, in their order."""

    source: Source | Literal[""]
    sentence: str = ""
    is_sure: bool = False


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


class ProvenanceIndex:
    """What was said and what was told in a session: fold its events, then ask for `evidence` and `origin`.

    Taking texts in costs nothing; they are looked at once, with the first question, which may be asked on another
    thread (`settle`).
    """

    def __init__(self) -> None:
        self.session = ""
        self.words = Words()
        """What the user typed."""
        self._told = Passages()
        self._texts: deque[list[str]] = deque()
        self._told_at: list[int] = []
        self._chars = 0
        self._upto = 0
        self._turns = 0
        self._count = 0
        self._orders = Passages()
        self._ordered = Passages()
        self._enough: list[int] = []
        """Words of sentences that order something, and how many of the user's in one are too many to be chance."""
        self._memories = False
        self._names: dict[str, None] = {}
        """Numbers and names of results."""
        self._new: deque[tuple[int, str]] = deque()
        """Results that were not looked at yet."""
        self._new_chars = 0
        self._lock = Lock()
        self._settled = 0

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "_lock"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._lock = Lock()

    @property
    def version(self) -> tuple[bool, int, int]:
        """Another one after any change beside events (`settle`, `distrust`); its first part: one is under way."""
        return self._lock.locked(), self._count, self._settled

    def __repr__(self) -> str:
        return f"<ProvenanceIndex {len(self.words)} said, {len(self._told) + len(self._new)} told>"

    def apply(self, event: Event) -> None:
        """Take in the next event; one that was taken in already is passed over. Memories that were recalled or viewed
        are nobody else's text: what they are was settled when they were saved."""
        if event.id and event.id <= self._upto:
            return
        self._upto = max(self._upto, event.id)
        match event:
            case SessionStarted():
                self.session = event.session
            case UserMessage():
                self._turns += 1
                self.say(event.said)
                self.take(event.blocks, but=event.text)
                if event.own is not None:  # what a command wrote around the user's words
                    self.tell(*(event.text.split(event.own, 1) if event.own else [event.text]))
            case PermissionAnswered() if event.by == "user":
                self.say(event.reason)
            case ToolReturned() if event.name != "memory":
                self.take(event.blocks)
            case AssistantMessage():  # what a search or a page says is a stranger's
                self.tell(*(text for block in event.blocks for text in texts_of(block)))
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
                self.words.add(made)
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

    def distrust(self, sentences: Iterable[str], *, enough: int = 1) -> None:
        """These are memories that are not the user's word: whatever they say counts as an order of theirs, and what
        a clause adds to `enough` of the user's words in one comes from there."""
        self._memories = True
        for sentence in sentences:
            self.tell(sentence)
            words = weighty(sentence)
            self._surroundings(words)
            self._order(words, enough)

    def _order(self, words: Sequence[str], enough: int) -> None:
        self._ordered.add(words)
        self._enough.append(enough)
        if len(self._ordered) > MOST_SENTENCES:
            self._ordered.drop()
            del self._enough[: len(self._enough) - self._ordered.numbers]

    def _surroundings(self, words: Sequence[str]) -> None:
        self._orders.add(words)
        if len(self._orders) > MOST_ORDERS:
            self._orders.drop()

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
            self._settled += 1
            self._forget()
            new, self._new, self._new_chars = self._new, deque(), 0
            for at, text in new:
                around, sentences = _orders_in(text)
                for words in around:
                    self._surroundings(words)
                for words in sentences:
                    self._order(words, CHANCE)
                prose = "\n".join(filter(_SENTENCE.search, text.split("\n")))
                _add(self._names, particulars(prose, prose=True))
                self._texts.append([sys.intern(word) for word in weighty(text)])
                self._told.add(self._texts[-1])
                self._told_at.append(at)
                self._chars += len(text)
            while self._chars > MOST_CHARS and len(self._texts) > 1:
                self._chars -= 6 * len(self._texts.popleft())
                self._told.drop()
                self._told_at.pop(0)

    def evidence(self, pieces: Iterable[str], *, more: Sequence[Typed] = ()) -> Evidence:
        """Which of these pieces the user typed; `more` are messages of other sessions."""
        self.settle()
        return self.words.evidence(pieces, self._repeated, more=more)

    def likely(self, told: Sequence[str]) -> tuple[Quote, ...]:
        """Words of the user that say most of each of these sentences, where none were given; none if there are none."""
        self.settle()
        quotes = self.words.likely("\n".join(told), self._repeated)
        said = {word for quote in quotes for word in weighty(quote.words)}
        no = any(is_negated(quote.words) for quote in quotes)
        for sentence in told:
            words = set(weighty(sentence))
            if len(shared(words, said)) < RESTATED * len(words) or is_negated(sentence) > no:
                return ()
        return quotes

    def _repeated(self, message: Typed) -> set[str]:
        """Words of a message that it has in a row with a result that came before."""
        words = weighty(message.text)
        runs = {tuple(words[at : at + REPEATED]) for at in range(len(words) - REPEATED + 1)}
        if not runs:
            return set()
        there = set(words)
        found: set[str] = set()
        for at, told in zip(self._told_at, self._texts, strict=True):
            if at < message.at and len(there.intersection(told)) >= min(REPEATED, len(there)):
                for run in zip(*(told[skip:] for skip in range(REPEATED)), strict=False):
                    if run in runs:
                        found.update(run)
        return found

    # ------------------------------------------------------------------ where a text comes from

    def origin(
        self,
        told: Sequence[str],
        quotes: Sequence[str],
        *,
        beside: Sequence[str] = (),
        asides: Iterable[str] = (),
        typed: Words | None = None,
    ) -> ProvenanceLabel:
        """Where sentences come from that carry out these words of the user: "quoted" when one of them, or what it
        adds, stands together in a result, or has a number or name of a result that the user never typed (in no message
        of `typed`; None: of this session); "said" when they have nothing but the words; else "inferred", which a check
        may raise where it is not sure. `beside` is what the
        user typed with the words, `asides` are the agent's Why and How."""
        self.settle()
        user = _User.of(quotes, beside, typed or self.words)
        foreign = self._names.keys() - user.named
        asides, unheard = list(asides), ""
        for sentence in dict.fromkeys(told):
            words = list(dict.fromkeys([*weighty(sentence), *(dates(sentence) & user.said)]))
            if not words:
                continue
            named = particulars(sentence)
            typed_too = {part for name in named & user.named if name[0].isdigit() for part in weighty(name)}
            same = shared(words, user.said) | typed_too.intersection(words)
            if not foreign.isdisjoint(named) or self._is_told(sentence, words, same, user):
                return ProvenanceLabel("quoted", sentence.strip(), is_sure=True)
            if _addresses(sentence) - user.named:
                unheard = unheard or sentence.strip()
        for aside in asides:
            if self._orders_aside(aside, user.said):
                return ProvenanceLabel("quoted", aside.strip(), is_sure=True)
        if unheard or not quotes:
            return ProvenanceLabel("inferred", unheard, is_sure=True)
        more = next((each.strip() for each in (*told, *asides) if not user.has_all_of(each)), "")
        return ProvenanceLabel("inferred", more) if more else ProvenanceLabel("said", is_sure=True)

    def _is_told(self, sentence: str, words: list[str], same: set[str], user: _User) -> bool:
        """Whether a sentence, one of its clauses, or what it adds to the user's words (`same`) stands in a result."""
        if any(self._is_added(clause, same, user) for clause in _CLAUSE.split(sentence)):
            return True
        size = len(words)
        ordered = self._orders.closest(words)
        if not user.directs and not self._memories and ordered >= ENOUGH and ordered / size >= WHOLE:
            return True  # the user spoke of it and ordered nothing
        left = [word for word in words if word not in same]
        if not left:
            return False
        ordered = self._orders.closest(left)
        if ordered > 1 and ordered / len(left) >= NEAR:
            return True
        there = self._told.closest(left)
        return there >= ENOUGH and there / len(left) >= QUOTED and (there - len(same)) / size > MARGIN

    def _is_added(self, clause: str, same: set[str], user: _User) -> bool:
        """Whether a clause has nothing of the user's words and stands in a result, or adds to them what stands there
        with them."""
        words = list(dict.fromkeys(weighty(clause)))
        left = [word for word in words if word not in same]
        if not left:
            return False
        if len(left) < len(words):
            carried, more = same.intersection(words), set(left)
            for number in self._ordered.having(more):
                if len(more) > 1 or self._ordered.count(number, carried) >= self._enough[number]:
                    return True
            return user.says_no_not and is_negated(clause) and self._told.closest(left) == len(left)
        return len(left) > 1 and len(left) == (self._told if len(left) >= ENOUGH else self._orders).closest(left)

    def _orders_aside(self, aside: str, said: set[str]) -> bool:
        """Whether a Why or How says what a result orders, or names a host or an address that one has and the user's
        words have not."""
        words = list(dict.fromkeys(weighty(aside)))
        same = shared(words, said)
        left = [word for word in words if word not in same]
        ordered = self._orders.closest(left) if len(left) > ENOUGH else 0
        if ordered > ENOUGH and ordered / len(words) >= RESTATED:
            return True
        places = (set(weighty(match.group())) for match in _ADDRESS.finditer(aside))
        if any(each and not each <= said and self._told.closest(list(each)) == len(each) for each in places):
            return True
        clauses = (set(weighty(part)) for each in sentences(aside) for part in _CLAUSE.split(each))
        return any(len(part) >= ENOUGH and said.isdisjoint(part) and self._orders.closest(list(part)) == len(part)
                   for part in clauses)  # fmt: skip


class _User(NamedTuple):
    """The user's words that sentences are held against: what they are about (`said`), the numbers and names in all that
    the user typed, whether they direct anything, whether none of them says no, and those that do not, word by word."""

    said: set[str]
    named: set[str]
    directs: bool
    says_no_not: bool
    quoted: list[list[str]]

    @classmethod
    def of(cls, quotes: Sequence[str], beside: Sequence[str], typed: Words) -> _User:
        every = "\n".join((*quotes, typed.own()))
        return cls(
            said={word for words in (*quotes, *beside) for word in weighty(words)},
            named=particulars(every) | {word for word, _, _ in tokens(every)},
            directs=any(map(_DIRECTS.search, quotes)),
            says_no_not=bool(quotes) and not any(map(is_negated, quotes)),
            quoted=[weighty(quote) for quote in quotes if not is_negated(quote)],
        )

    def has_all_of(self, sentence: str) -> bool:
        """Whether a sentence has words of one quotation alone, in its order, and no "not" or date is in the way."""
        words = weighty(sentence)
        if is_negated(sentence) or _ISO_DATE.search(sentence):
            return not words
        return any(all(word in left for word in words) for left in map(iter, self.quoted))


def _addresses(sentence: str) -> set[str]:
    """The words of the hosts and addresses that a sentence names; whoever did not type one did not mean it."""
    return {word for match in _ADDRESS.finditer(sentence) for word, _, _ in tokens(match.group())}


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


def standing(stores: Iterable[MemoryStore]) -> tuple[set[str], list[str]]:
    """The sentences of all memories that are the user's own word, bare, and those of all that are quoted, which no
    later session makes the user's."""
    own, quoted = set[str](), list[str]()
    for store in stores:
        with suppress(MemoryRefused):  # not to be read now: then its sentences do not count as the user's
            for each in store.list():
                if each.is_own_word or each.source == "quoted":
                    body = read_headed(store.read(each.name).text.encode("utf-8", "replace")).body
                    told, asides = parts(each.description, body)
                    if each.is_own_word:
                        own.update(map(bare, told))
                    else:
                        quoted += [*told, *asides]
    return own, quoted


def restates(sentence: str, other: str) -> bool:
    """Whether a sentence says the same as another, maybe with a date made absolute; "not" and "never" count."""
    mine, its = set(weighty(sentence)), set(weighty(other))
    negated = [{word for word, _, _ in tokens(each)} & NEGATIONS for each in (sentence, other)]
    if not mine or negated[0] != negated[1]:
        return bare(sentence) == bare(other)
    return len(mine & its) / len(mine) >= RESTATED


def added(new: Iterable[str], before: Sequence[str]) -> list[str]:
    """The sentences that say what none of the texts before does, or say no where none of them does; a date made
    absolute adds nothing."""
    known = {word for each in before for word in weighty(each)}
    no = any(map(is_negated, before))
    return [each for each in new if set(weighty(each)) - shared(weighty(each), known) or (is_negated(each) and not no)]


def worst(*sources: str) -> Source:
    """The least trusted of some sources."""
    order: tuple[Source, ...] = ("quoted", "claimed", "inferred", "said")
    known = [order.index(source) if source in order else order.index("inferred") for source in sources]
    return order[min(known, default=order.index("said"))]


def _texts(blocks: Iterable[dict[str, Any]]) -> Iterator[str]:
    for block in blocks:
        if isinstance(block.get("text"), str):
            yield block["text"]
        source = block.get("source")
        if isinstance(source, dict) and source.get("type") == "text":
            yield str(source.get("data", ""))
        if isinstance(block.get("content"), list):
            yield from _texts(inner for inner in block["content"] if isinstance(inner, dict))


def _add(known: dict[str, None], words: Iterable[str]) -> None:
    """Take words in as the newest; the oldest of too many go."""
    for word in words:
        known.pop(word, None)
        known[word] = None
    for word in list(islice(known, max(0, len(known) - MOST_WORDS))):
        del known[word]


def _orders_in(text: str) -> tuple[list[list[str]], list[list[str]]]:
    """The words around what says what is to be done always or remembered, and those of the sentences themselves."""
    around, sentence = list[list[str]](), list[list[str]]()
    for line in text.replace("_", " ").split("\n"):
        end = -1
        for match in _ORDERS.finditer(line):
            if match.start() >= end:
                end = match.end() + ORDER_CHARS
                around.append(weighty(line[max(0, match.start() - ORDER_CHARS) : end]))
        if end >= 0:
            sentence += [weighty(each) for each in _ENDS.split(line) if each and _ORDERS.search(each)]
    return around, sentence


def still_carried_out(known: Sequence[str], head: Headed, old: Headed) -> list[str]:
    """The quotations of a memory that something in it still carries out, after a change."""
    told, before = (parts(word_of(each.fields.get("description")), each.body)[0] for each in (head, old))
    kept = {word for sentence in set(told) & set(before) for word in weighty(sentence)}
    return [each for each in known if set(told) == set(before) or shared(weighty(each), kept)]
