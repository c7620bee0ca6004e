"""Rough token counts from features of the text, and their calibration by what servers report.

The weights were fitted on a third-party reconstruction of the vocabulary of the 4.7+/5 models, on
other texts than `tests/bench/text_samples.py`; those of kana, wide signs, Latin letters with accents
and other scripts were set by hand from counts of single words. Everything
here is a pure function; calibration is a value carried by the view."""

from __future__ import annotations

import base64
import binascii
import json
import re
import struct
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from typing import Any, NamedTuple

import msgspec

from ipyagent.journal.blocks import CALL, PICTURES, THINKING, is_result, json_object
from ipyagent.journal.events import Block, Usage, UsageReported

_WORDS = re.compile(r"[A-Za-z]+")
_CAPITALS = re.compile(r"[A-Z]{2,}")
_CAMEL = re.compile(r"[a-z][A-Z]|[A-Z]{2}[a-z]")
"""Two capitals are enough: with more, a run of them would be read to its end from each of its letters."""
_NUMBERS = re.compile(r"[0-9]{1,3}")
_SIGNS = re.compile(r"[!-/:-@\[-`{-~]+")
_RULES = re.compile(r"([!-/:-@\[-`{-~])\1{2,}")
"""The same sign three times or more: a line in a table, a row of dots."""
_GAPS = re.compile(r"[ \t]{2,}")
_BREAKS = re.compile(r"\n+")
_KANA = re.compile(r"[\u3040-\u30ff]")
_WIDE_SIGNS = re.compile(r"[\u3000-\u303f\uff00-\uffef]")
_WIDE = re.compile(r"[⺀-\uffdc]")
_LATIN = re.compile(r"[\x80-ɏ]")
_BEYOND = re.compile(r"[^\x00-\x7f]")
CODED = 32
_CODED = re.compile(rf"(?<![A-Za-z0-9+/_-])[A-Za-z0-9+/_-]{{{CODED},}}+")
"""What may be base64 or hexadecimal digits: long, and one character in seventeen a digit."""
_HEX = re.compile(r"[0-9a-f-]+|[0-9A-F-]+")
_DIGITS = re.compile(r"[0-9]")

PROSE = 2.9
"""Characters of English prose for a token as `estimate_text` counts them: 2.86 to 2.94 in our specifications and in
recorded conversations."""
DENSEST = 6
"""No character counts as more than so many of prose: an accented Latin letter alone is two tokens."""
BLOCK_OVERHEAD = 4
"""Tokens that a content block costs beside its text (role and type marks); our measurement
against the practice server's counts, small against any text."""
IMAGE_PIXELS_PER_TOKEN = 750
"""From the provider's documentation of image input."""
SEALED = 4
"""Characters of `encrypted_content` for a token of the text in it: base64 of three bytes each, and three bytes of
English a token; ten results of a search come to some 8,000 tokens in the provider's documentation."""
PAGE_BYTES = 4
"""Bytes of a fetched PDF for a token, as the provider's documentation of web fetch puts it."""
LONG = 20_000
"""Characters of a text whose estimate is not kept, so that what is kept has a bound: 256 of these."""
UNKNOWN_IMAGE = 1_600
"""Tokens of an image whose size cannot be read: the largest that is not scaled down."""


def estimate_text(text: str) -> int:
    """Tokens of a text, uncalibrated; 0 for the empty text. The texts of a request are asked about again and again
    (when a result comes, when it is weighed against others, when the prompt is counted), so the last ones are kept."""
    return _last_estimates(text) if len(text) <= LONG else _estimate(text)


def _estimate(text: str) -> int:
    if not text:
        return 0
    total = 0.0
    if max(map(len, text.split()), default=0) >= CODED and _CODED.search(text):
        text, total = _without_coded(text)
    signs = _SIGNS.findall(text)
    rules = [len(rule.group()) for run in signs if len(run) > 2 for rule in _RULES.finditer(run)]
    gaps = _GAPS.findall(text)
    words = _WORDS.findall(text)
    mixed = " ".join([word for word in words if not word.islower()])
    total += 1.405 * len(words) + 1.677 * len(_CAMEL.findall(mixed))
    total += 0.252 * sum([length - 6 for length in map(len, words) if length > 6])
    total += 0.594 * sum([len(word) - 1 for word in _CAPITALS.findall(mixed)])
    total += 1.041 * len(_NUMBERS.findall(text))
    total += 0.890 * len(signs) + 0.307 * (sum(map(len, signs)) - sum(rules))
    total += 1.671 * (len(rules) + sum(rule // 16 for rule in rules))
    total += 1.007 * (len(gaps) + sum(len(gap) // 17 for gap in gaps)) + 0.889 * len(_BREAKS.findall(text))
    if not text.isascii():
        wide, latin = len(_WIDE.findall(text)), len(_LATIN.findall(text))
        kana, wide_signs = len(_KANA.findall(text)), len(_WIDE_SIGNS.findall(text))
        total += 1.131 * (wide - kana - wide_signs) + 0.75 * kana + 0.9 * wide_signs
        total += 2.02 * latin + 1.0 * (len(_BEYOND.findall(text)) - wide - latin)
    return int(total) + 1


_last_estimates = lru_cache(maxsize=256)(_estimate)


def prose_chars(text: str) -> int:
    """The size of a text by its tokens, as characters of English prose with as many: tables of numbers count half as
    much again as they have characters."""
    return int(estimate_text(text) * PROSE)


def is_over(text: str, limit: int) -> bool:
    """Whether a text is larger than `limit` characters of English prose. One of four times as many characters always
    is, whatever its tokens, so that no more than that is ever counted."""
    if len(text) > 4 * limit:
        return True
    return len(text) * DENSEST > limit and prose_chars(text) > limit


def _without_coded(text: str) -> tuple[str, float]:
    """The text without base64 and hexadecimal runs, and the tokens of those."""
    tokens = 0.0

    def take(found: re.Match[str]) -> str:
        nonlocal tokens
        run = found.group()
        if 17 * len(_DIGITS.findall(run)) < len(run):
            return run  # a long name
        tokens += (0.636 if _HEX.fullmatch(run) else 0.949) * len(run)
        return ""

    return _CODED.sub(take, text), tokens


def image_size(head: bytes) -> tuple[int, int] | None:
    """Width and height in pixels of a PNG, GIF, JPEG or WebP from its first bytes; None if unreadable."""
    if head[:8] == b"\x89PNG\r\n\x1a\n" and len(head) >= 24:
        width, height = struct.unpack(">II", head[16:24])
        return width, height
    if head[:6] in (b"GIF87a", b"GIF89a") and len(head) >= 10:
        width, height = struct.unpack("<HH", head[6:10])
        return width, height
    if head[:2] == b"\xff\xd8":
        at = 2
        while at + 9 <= len(head) and head[at] == 0xFF:
            if head[at + 1] == 0xFF or head[at + 1] == 0x01 or 0xD0 <= head[at + 1] <= 0xD7:
                at += 1 if head[at + 1] == 0xFF else 2  # fill bytes and markers without a length
                continue
            marker, length = head[at + 1], int.from_bytes(head[at + 2 : at + 4], "big")
            if 0xC0 <= marker <= 0xCF and marker not in (0xC4, 0xC8, 0xCC):
                height, width = struct.unpack(">HH", head[at + 5 : at + 9])
                return width, height
            at += 2 + length
    if head[:4] == b"RIFF" and head[8:12] == b"WEBP" and len(head) >= 30:
        return _webp_size(head)
    return None


def _webp_size(head: bytes) -> tuple[int, int] | None:
    """Width and height from the first chunk of a WebP file, in its three forms."""
    match head[12:16]:
        case b"VP8 ":
            width, height = struct.unpack("<HH", head[26:30])
            return width & 0x3FFF, height & 0x3FFF
        case b"VP8L":
            bits = int.from_bytes(head[21:25], "little")
            return (bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1
        case b"VP8X":
            return int.from_bytes(head[24:27], "little") + 1, int.from_bytes(head[27:30], "little") + 1
    return None


def _estimate_image(source: Any) -> int:
    data = json_object(source).get("data")
    if not isinstance(data, str):
        return UNKNOWN_IMAGE
    try:
        head = base64.b64decode(data[: 64 * 1024 // 3 * 4], validate=False)
    except (binascii.Error, ValueError):
        return UNKNOWN_IMAGE
    size = image_size(head)
    return UNKNOWN_IMAGE if size is None else max(1, size[0] * size[1] // IMAGE_PIXELS_PER_TOKEN)


def estimate_block(block: Block) -> int:
    """Tokens of one content block, uncalibrated."""
    kind = block.get("type")
    if kind == "text":
        return BLOCK_OVERHEAD + estimate_text(str(block.get("text", "")))
    if kind == "image":
        return BLOCK_OVERHEAD + _estimate_image(block.get("source"))
    if kind == "compaction":
        return BLOCK_OVERHEAD + estimate_text(str(block.get("content") or ""))
    if kind == "thinking":
        return BLOCK_OVERHEAD + estimate_text(str(block.get("thinking", "")))
    if kind == "tool_result":
        content = block.get("content", "")
        if isinstance(content, list | tuple):
            return 3 * BLOCK_OVERHEAD + estimate_blocks(content)
        return 3 * BLOCK_OVERHEAD + estimate_text(str(content))
    if kind in ("tool_use", CALL):
        return 3 * BLOCK_OVERHEAD + estimate_text(json.dumps(block.get("input"), ensure_ascii=False))
    if is_result(block):
        return 3 * BLOCK_OVERHEAD + _estimate_web(block.get("content"))
    return BLOCK_OVERHEAD + estimate_text(json.dumps(block, ensure_ascii=False))


def _estimate_web(content: Any) -> int:
    """Tokens of what a web search or fetch gave."""
    tokens = 0
    for page in content if isinstance(content, list) else [content]:
        if isinstance(page, Mapping):
            source = json_object(json_object(page.get("content")).get("source"))
            data = str(source.get("data") or "")
            tokens += estimate_text(data) if source.get("type") == "text" else len(data) * 3 // 4 // PAGE_BYTES
            tokens += len(str(page.get("encrypted_content") or "")) // SEALED
            told = (page.get(key) for key in ("title", "url", "page_age", "error_code"))
            tokens += 2 * BLOCK_OVERHEAD + estimate_text(" ".join(str(each) for each in told if each))
    return tokens


def estimate_blocks(blocks: Iterable[Block]) -> int:
    """Tokens of content blocks, uncalibrated."""
    return sum(estimate_block(block) for block in blocks)


def unread_by_some(blocks: Iterable[Block]) -> int:
    """Tokens at most of those blocks that a server may leave out although it reads all of a prompt: thinking of
    earlier turns, images that the model cannot see."""
    tokens = 0
    for block in blocks:
        kind = block.get("type")
        if kind in THINKING:
            tokens += BLOCK_OVERHEAD + len(str(block.get("thinking") or block.get("data") or ""))
        elif kind in PICTURES:
            tokens += BLOCK_OVERHEAD + UNKNOWN_IMAGE
    return tokens


class Calibration(msgspec.Struct, frozen=True):
    """The session's correction factor: reported over estimated tokens, older evidence fading.

    `actual` and `raw` are faded sums; the factor is their ratio, kept within 0.5-2.5 so that one
    wrong report of a server cannot blind the marks.
    """

    actual: float = 0.0
    raw: float = 0.0
    fade: float = 0.6

    @property
    def factor(self) -> float:
        return min(2.5, max(0.5, self.actual / self.raw)) if self.raw else 1.0

    def learn(self, *, raw: int, actual: int) -> Calibration:
        """The calibration after a prompt whose estimated part `raw` turned out to be `actual`."""
        if raw <= 0 or actual <= 0:
            return self
        return Calibration(self.actual * self.fade + actual, self.raw * self.fade + raw, self.fade)


class Count(msgspec.Struct, frozen=True):
    """Tokens of the next prompt: `base` is reported by the latest response, `raw` is the
    uncalibrated estimate of what was added since."""

    base: int
    raw: int
    factor: float

    @property
    def tokens(self) -> int:
        return self.base + round(self.raw * self.factor)


def learn_from(calibration: Calibration, *, predicted: int, raw: int, usage: Usage) -> Calibration:
    """Calibrate by a report. `predicted` = base + factor x raw at the time it was sent."""
    if not plausible(predicted, usage):
        return calibration
    base = predicted - round(raw * calibration.factor)
    return calibration.learn(raw=raw, actual=usage.prompt - base)


def plausible(predicted: int, usage: Usage) -> bool:
    """Whether a server's count can be true: within a factor of four of ours (and 2,000 tokens)."""
    return predicted <= 4 * usage.prompt + 2_000 and usage.prompt <= 4 * predicted + 2_000


# ---- Estimated tokens of every block, each estimated once. A block that was given out is never changed, a change
# puts another object in its place: so what is known of an object stays true, and asking again costs a walk over the
# list, not over the text.

SPARE = 1_000
"""Blocks that may be remembered beside twice those that are asked about."""


class SuffixTokens(NamedTuple):
    """Uncalibrated tokens from each message to the end, of everything and of thinking alone; both
    have one place more than there are messages, with 0."""

    tokens: list[int]
    thinking: list[int]


class BlockTokenCache:
    """What the messages of one conversation weigh."""

    def __init__(self) -> None:
        self._known: dict[int, tuple[Block, int]] = {}
        self._sums: dict[int, tuple[dict[str, Any], int, int]] = {}
        """Messages, their tokens and those of thinking in them."""
        self._asked: list[dict[str, Any]] = []
        """The messages that were asked about last."""

    def __getstate__(self) -> list[tuple[Block, int]]:
        """What is known, without identities, which another process gives anew."""
        return [(block, self.of(block)) for message in list(self._asked) for block in message["content"]]

    def __setstate__(self, state: list[tuple[Block, int]]) -> None:
        self._known, self._sums, self._asked = {id(known[0]): known for known in state}, {}, []

    def behind(self, messages: list[dict[str, Any]]) -> SuffixTokens:
        """Sums from each message to the end."""
        self._asked, tokens, thinking = messages, [0], [0]
        for message in reversed(list(messages)):  # a panel asks on the main thread
            known = self._sums.get(id(message))
            if known is None or known[0] is not message:
                sizes = [(self.of(block), block["type"] in THINKING) for block in message["content"]]
                whole, thought = sum(size for size, _ in sizes), sum(size for size, thinks in sizes if thinks)
                known = self._sums[id(message)] = message, whole, thought
            tokens.append(tokens[-1] + known[1])
            thinking.append(thinking[-1] + known[2])
        return SuffixTokens(tokens[::-1], thinking[::-1])

    def read(self, messages: list[dict[str, Any]]) -> int:
        """Tokens of what the server reads of messages: nothing before the newest summary that it put into a reply
        itself."""
        self._asked = messages
        if len(self._known) > SPARE + 2 * sum(len(message["content"]) for message in messages):
            stand = {id(block) for message in messages for block in message["content"]}
            self._known = {key: known for key, known in list(self._known.items()) if key in stand}
            self._sums = {}
        return sum(map(self.of, blocks_read(messages)))

    def of(self, block: Block) -> int:
        """Tokens of a block."""
        known = self._known.get(id(block))
        if known is None or known[0] is not block:
            known = self._known[id(block)] = block, estimate_block(block)
        return known[1]


def blocks_read(messages: list[dict[str, Any]]) -> Iterator[Block]:
    """The blocks that the server reads of messages, see `BlockTokenCache.read`; the newest message first."""
    for message in reversed(messages):
        content = message["content"]
        at = summary_in(content) if message["role"] == "assistant" else None
        yield from content if at is None else content[at:]
        if at is not None:
            return


def summary_in(content: list[Block]) -> int | None:
    """Where the server's newest summary is among a reply's blocks; None when there is none."""
    places = [at for at, block in enumerate(content) if block["type"] == "compaction" and block.get("content")]
    return places[-1] if places else None


# ---- Tokens of the next prompt: what the server reported last, and our estimate of everything since. From a
# decision that changes what was sent, the last report goes on by our estimates of what left and came: by one
# measure a prompt from which something leaves is never the larger one. That measure is what a token of our
# estimates came to in the messages so far, as far as two reports tell it apart from system prompt and tools. Only
# where nothing was counted, or what leaves cannot be told from its text (thinking), everything is estimated. A
# server may read only the newest part of a prompt and say nothing of it: then its counts stand still while the
# conversation grows. From where that is seen on they are believed only for what fits below where they stood.

LEAST = 500
"""Estimated tokens by which two prompts must differ for their reports to tell what a token of a message comes to."""


ROUND = 1_024
"""Windows of servers that cut are multiples of this."""
LEAST_CEILING = 1_024
"""A count that stands still below this is none at all: no window is that small."""
SLOW = 0.1
"""No tokenizer makes less than this of a token as we estimate text: it takes a sixth at most."""
STEEP = 3
"""Nor more than so many."""


class ReportedCount(NamedTuple):
    """A server's count of a prompt, and the estimated tokens of text that had come to the messages until then."""

    prompt: int
    text: int


class Weighed(NamedTuple):
    """Tokens of a prompt that the server had counted, and our uncalibrated estimate of all of it."""

    tokens: int
    estimated: int


class TokenCounter:
    """Grows with the messages. All figures but those of `count` are estimates before calibration."""

    def __init__(self) -> None:
        self.calibration = Calibration()
        self.head = 0
        """Tokens of system prompt and tools."""
        self._base = 0
        self._raw = 0
        self._reply = 0
        """Tokens of the newest reply."""
        self._replied = 0
        """The part of `_raw` that the next report of usage covers."""
        self._output = False
        """Whether the newest reply is in the view, so that its reported output counts."""
        self._edited = False
        """Whether the server has left out more of the prompt than before, so that the next report says
        nothing of our estimates."""
        self._left_out = False
        """Whether the server has ever left something out."""
        self._scaled = False
        """Whether `_base` is a report that was scaled since."""
        self._sent = 0
        """All of the prompt that the newest reply is an answer to."""
        self._weight = 0
        """Tokens of all messages, whatever was reported."""
        self.ceiling = 0
        """The tokens above which the server was seen to cut prompts silently; 0 while it was not."""
        self._text = 0
        """Tokens of text that came to the messages, without thinking and images: of these servers leave out what they
        like."""
        self._sent_text = 0
        """The same when the newest reply was asked for, and at the report before."""
        self._told_text = 0
        self._stood: ReportedCount | None = None
        """The report since which counts have not grown."""
        self._news: tuple[ReportedCount, ReportedCount] | None = None
        """The reports after the least and the most new text; `text` is that alone."""
        self._lightest: Weighed | None = None
        """The reported prompt with the fewest messages: tokens of it all, estimate of the messages alone."""

    def count(self) -> Count:
        """Tokens of the next prompt, see `Count`."""
        return Count(self._base, self._raw, self.calibration.factor)

    def add(self, tokens: int, unread: int = 0) -> None:
        """So many tokens came to the messages; `unread` of them at most may be left out by a server that reads it
        all."""
        self._raw += tokens
        self._weight += tokens
        self._text += max(0, tokens - unread) if tokens > 0 else tokens

    def render(self, tokens: int) -> None:
        """System prompt and tools now take so many tokens."""
        self._raw += tokens - self.head
        self.head, self._lightest, self._stood, self._news = tokens, None, None, None

    def reply(self, tokens: int | None, unread: int = 0) -> None:
        """A reply came, of so many tokens that stay in the messages (None: nothing of it does); `unread` as
        in `add`."""
        self._output, self._sent = tokens is not None, self.head + self._weight
        self._sent_text = self._text
        self._reply = tokens or 0
        self.add(self._reply, unread)
        self._replied = self._raw

    def begin_anew(self) -> None:
        """Another model or head reads on: earlier reports tell nothing of what comes."""
        self._lightest, self._stood, self._news, self.ceiling = None, None, None, 0

    def edited(self, tokens: int) -> None:
        """The server leaves out more than before, or less, or has put a summary into its reply and reads nothing
        before it any more; what it reads of the messages now takes so many tokens."""
        self._weight, self._stood = tokens, None
        self._edited = self._left_out = True

    def report(self, event: UsageReported) -> None:
        """The server has counted the prompt of the newest reply."""
        # what came back is in no count yet
        searched = event.searched or event.usage.searches + event.usage.fetches > 0
        known = self._edited or (event.billed is not None and not searched)
        sent = self.head + self._weight if event.stopped else self._sent
        if not known and not event.stopped and self._is_cut(event.usage.prompt):
            return  # nothing is to be learned from it
        if not known and not self._scaled:
            self.calibration = learn_from(
                self.calibration, predicted=event.predicted, raw=event.raw, usage=event.usage
            )
        elif not known and not self._left_out and event.predicted and plausible(event.predicted, event.usage):
            self.calibration = self.calibration.learn(raw=sent, actual=event.usage.prompt)
        if event.usage.prompt > 0 and (known or plausible(event.predicted, event.usage)):
            if event.stopped:  # what came of the reply is not in the messages yet
                self._base, self._raw = event.usage.prompt, 0
            else:
                self._base = event.usage.total if self._output and not searched else event.usage.prompt
                self._raw -= self._replied - (self._reply if searched else 0)
            self._replied, self._scaled = 0, False
            messages = sent - self.head
            if not known and (self._lightest is None or messages < self._lightest.estimated):
                self._lightest = Weighed(event.usage.prompt, messages)
        self._edited = False

    def _is_cut(self, prompt: int) -> bool:
        """Whether a server's count is of a prompt that it has cut."""
        if self.ceiling and prompt > 1.1 * self.ceiling:
            self.ceiling, self._stood = 0, None  # it reads more than it did
        if self.ceiling:
            return prompt > 0.9 * self.ceiling or self._sent > self.ceiling
        step, self._told_text = self._sent_text - self._told_text, self._sent_text
        here = ReportedCount(prompt, step)
        low, high = self._news or (here, here)
        self._news = min(low, here, key=lambda each: each.text), max(high, here, key=lambda each: each.text)
        slope = (high.prompt - low.prompt) / max(LEAST, high.text - low.text)
        if SLOW <= slope <= STEEP and abs(prompt - low.prompt - slope * (step - low.text)) < prompt / 20:
            return False  # it counts what is new, and something that stays: it does not tell what its cache holds
        found = self._stood
        if found is None or self._sent_text < found.text or prompt < found.prompt // 2:
            found = self._stood = None
        grown = self._sent_text - found.text if found is not None else 0
        if found is None or prompt - found.prompt >= max(1, SLOW * grown):
            self._stood = ReportedCount(prompt, self._sent_text)
            cut = prompt % ROUND == 0 and self._sent >= 2 * prompt
        elif prompt == found.prompt and grown >= LEAST // 25:
            cut = prompt % ROUND == 0 or self._sent >= 1.25 * prompt or grown >= LEAST
        else:  # a count of no more than what is new is of a server that does not tell what it read from its cache
            cut = grown >= LEAST and prompt > 2 * step + LEAST
        if not cut or prompt < LEAST_CEILING:
            return False
        self.ceiling = max(prompt, found.prompt if found is not None else 0)
        self.calibration, self._lightest = Calibration(), None
        self.weigh_anew(self._weight)
        return True

    # -------------------------------------------------------------- decisions

    def weighed_at(self, messages: int) -> Weighed | None:
        """The prompt as it stands, its messages weighed anew as for `change`; None when the server has counted nothing
        of it."""
        return Weighed(self.count().tokens, self.head + messages) if self._base else None

    @property
    def measure(self) -> float:
        """What a token of our estimates of the messages comes to, as far as the server reads them."""
        if not self._base:
            return self.calibration.factor
        tokens, low = self.count().tokens, self._lightest
        if low is not None and self._weight - low.estimated >= LEAST:
            return min(2.5, max(0.5, (tokens - low.tokens) / (self._weight - low.estimated)))
        return tokens / max(1, self.head + self._weight)

    def after(self, change: int) -> int:
        """Tokens of the next prompt if the messages took so many more, or less."""
        if not self._base:
            return Count(0, self._raw + change, self.calibration.factor).tokens
        after = self.count().tokens + round(change * self.measure)
        return max(after, (self.head + self._weight + change) // 2)  # whatever was reported

    @property
    def head_counted(self) -> int:
        """About what the server counts for system prompt and tools."""
        low = self._lightest
        return low.tokens - low.estimated if low is not None and not low.estimated > low.tokens else self.head

    def change(self, before: int, after: int, was: Weighed | None = None) -> None:
        """A decision has made messages of `before` tokens, weighed anew, into such of `after` tokens. `was`: what stood
        before the decision that is taken back."""
        if was is not None:
            added = self.head + after - was.estimated
            base = was.tokens + round(added * self.calibration.factor)
        elif self._base:
            base = self.after(after - before)
        else:
            self.weigh_anew(after)
            return
        self._weight, self._base, self._scaled, self._stood = after, max(1, base), True, None
        self._raw = self._replied = 0

    def weigh_anew(self, tokens: int) -> None:
        """The messages have changed in a way that their text does not tell; they take so many tokens now: everything
        is estimated."""
        self._weight, self._stood = tokens, None
        self._base, self._scaled = 0, False
        self._raw = self._replied = self.head + self._weight
