"""Facts in a conversation, and what became of each at the end.

A fact is a token that stands nowhere else. It is *kept* when the next request holds it, *reachable*
when a file of the session holds it (a stored result, what has left) that the request names, or that such a
file names; and *lost* otherwise.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Literal, TypeAlias

import msgspec

from ipyagent.errors import UsageError
from ipyagent.journal.events import Block
from ipyagent.journal.journal import TRANSCRIPT
from ipyagent.replay.recording import RecordedTurn, Recording, Result, Round

Place: TypeAlias = Literal["user", "answer", "result"]
PLACES: tuple[Place, ...] = ("user", "answer", "result")

_RARE = re.compile(r"(?=[\w.-]{0,200}\d)(?=[\w.-]{0,200}[A-Za-z])[A-Za-z0-9][\w.-]{7,40}(?<![.-])|\d[\d.]{6,20}\d")


class TrackedFact(msgspec.Struct, frozen=True):
    """A token and the kind of text that it stands in; `forms` are other ways to say the same. `standing`: a rule of
    the user's that holds for the whole session."""

    token: str
    place: Place
    forms: tuple[str, ...] = ()
    standing: bool = False

    def is_in(self, text: str) -> bool:
        """Whether a text, case-folded, says it in one of its forms."""
        return any(form.casefold() in text for form in (self.token, *self.forms))


def read_facts(path: Path) -> tuple[TrackedFact, ...]:
    """Facts from a file, one JSON object a line. Raises UsageError."""
    try:
        return tuple(
            msgspec.json.decode(line, type=TrackedFact) for line in path.read_bytes().splitlines() if line.strip()
        )
    except (OSError, msgspec.DecodeError) as problem:
        raise UsageError(f"cannot read facts from {path} ({problem}): write one JSON object a line") from None


class FactReport(msgspec.Struct, frozen=True, kw_only=True):
    """The facts by what became of them."""

    kept: tuple[TrackedFact, ...] = ()
    reachable: tuple[TrackedFact, ...] = ()
    lost: tuple[TrackedFact, ...] = ()

    @property
    def count(self) -> int:
        return len(self.kept) + len(self.reachable) + len(self.lost)

    def __str__(self) -> str:
        if not self.count:
            return "none looked for"
        return f"{len(self.kept)} kept, {len(self.reachable)} reachable, {len(self.lost)} lost of {self.count}"


def plant(recording: Recording, count: int = 100) -> tuple[Recording, tuple[TrackedFact, ...]]:
    """The recording with `count` facts in it, evenly over its turns, in turn in what the user says,
    in an answer and in a tool result (in the middle of its text)."""
    turns = list(recording.turns)
    facts: list[TrackedFact] = []
    for number in range(count):
        token = "ref-" + hashlib.sha256(f"fact {number}".encode()).hexdigest()[:10]
        at = number * len(turns) // count
        for place in (PLACES[number % 3], *PLACES):
            changed = _planted(turns[at], token, place, number)
            if changed is not None:
                turns[at] = changed
                facts.append(TrackedFact(token, place))
                break
    return msgspec.structs.replace(recording, turns=tuple(turns)), tuple(facts)


def _planted(turn: RecordedTurn, token: str, place: Place, number: int) -> RecordedTurn | None:
    """The turn with the fact in it; None when it has no such place."""
    if place == "user":
        said = f"Our name for this step is {token}."
        return msgspec.structs.replace(turn, asked=_with_text(turn.asked, said, end=True))
    rounds = list(turn.rounds)
    for at in range(len(rounds) - 1, -1, -1):
        made = rounds[at]
        if place == "answer" and any(block["type"] == "text" for block in made.blocks):
            blocks = _with_text(made.blocks, f"Checked against {token}.", end=False)
            rounds[at] = msgspec.structs.replace(made, blocks=blocks)
            return msgspec.structs.replace(turn, rounds=tuple(rounds))
        if place == "result":
            for call, result in made.results.items():
                if any(block["type"] == "text" for block in result.blocks):
                    rounds[at] = _with_result(made, call, result, f"run {number:03} {token}")
                    return msgspec.structs.replace(turn, rounds=tuple(rounds))
    return None


def _with_text(blocks: tuple[Block, ...], said: str, *, end: bool) -> tuple[Block, ...]:
    """The blocks with a sentence after the first line of their last text, or at its end."""
    at = max(place for place, block in enumerate(blocks) if block["type"] == "text")
    first, _, rest = str(blocks[at]["text"]).partition("\n")
    text = f"{blocks[at]['text']} {said}" if end else f"{first} {said}" + (f"\n{rest}" if rest else "")
    return (*blocks[:at], {**blocks[at], "text": text}, *blocks[at + 1 :])


def _with_result(made: Round, call: str, result: Result, line: str) -> Round:
    at = next(place for place, block in enumerate(result.blocks) if block["type"] == "text")
    lines = str(result.blocks[at]["text"]).split("\n")
    lines.insert(len(lines) // 2, line)
    blocks = (*result.blocks[:at], {**result.blocks[at], "text": "\n".join(lines)}, *result.blocks[at + 1 :])
    return msgspec.structs.replace(made, results={**made.results, call: msgspec.structs.replace(result, blocks=blocks)})


def distinctive(recording: Recording, count: int = 100) -> tuple[TrackedFact, ...]:
    """Up to `count` facts that a recording has by itself: names and numbers that it says once, a third
    each from what the user said, what was answered, and what tools gave; evenly over its length."""
    found: dict[Place, list[str]] = {place: [] for place in PLACES}
    seen: Counter[str] = Counter()
    for turn in recording.turns:
        for place, text in texts_of(turn):
            tokens = _RARE.findall(text)
            seen.update(tokens)
            if place is not None:
                found[place].extend(tokens)
    whole = "\n".join(text for turn in recording.turns for _, text in texts_of(turn))
    facts: list[TrackedFact] = []
    for place in PLACES:
        once = [token for token in found[place] if seen[token] == 1 and whole.count(token) == 1]
        wanted = min(len(once), count // 3)
        facts += [TrackedFact(once[number * len(once) // wanted], place) for number in range(wanted)]
    return tuple(facts)


def texts_of(turn: RecordedTurn) -> Iterable[tuple[Place | None, str]]:
    """All texts of a turn by their place; arguments of calls are of none."""
    yield "user", _text(turn.asked)
    for made in turn.rounds:
        yield "answer", _text(made.blocks)
        for call in made.calls:
            yield None, json.dumps(call["input"], ensure_ascii=False)
        for result in made.results.values():
            yield "result", _text(result.blocks)


def _text(blocks: Sequence[Block]) -> str:
    return "\n".join(str(block["text"]) for block in blocks if block["type"] == "text")


def fate(facts: Sequence[TrackedFact], messages: list[dict[str, Any]], folder: Path) -> FactReport:
    """What became of the facts: `messages` as they would be sent now, `folder` the session's."""
    view = json.dumps(messages, ensure_ascii=False)
    named = [text.casefold() for text in _named(view, folder)]
    view = view.casefold()
    kept: list[TrackedFact] = []
    reachable: list[TrackedFact] = []
    lost: list[TrackedFact] = []
    for fact in facts:
        if fact.is_in(view):
            kept.append(fact)
        else:
            (reachable if any(fact.is_in(text) for text in named) else lost).append(fact)
    return FactReport(kept=tuple(kept), reachable=tuple(reachable), lost=tuple(lost))


def _named(view: str, folder: Path) -> list[str]:
    """Texts of the session's files that the view names, or a file that is named; the transcript itself
    does not count."""
    files = {path.name: path for path in folder.rglob("*") if path.is_file() and path.name not in (TRANSCRIPT, "lock")}
    texts, unread = [], [view]
    while unread:
        said = unread.pop()
        found = [name for name in files if re.search(rf"(?<![\w-]){re.escape(name)}(?!\w)", said)]
        unread += (new := [files.pop(name).read_text(encoding="utf-8", errors="replace") for name in found])
        texts += new
    return texts
