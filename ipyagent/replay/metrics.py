"""What a replay measured, as values and as the table that is printed."""

from __future__ import annotations

import json
import re
import statistics
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Literal, TypeAlias

import msgspec

from ipyagent.errors import UsageError
from ipyagent.journal.events import Block, Usage
from ipyagent.journal.journal import TRANSCRIPT
from ipyagent.model.prices import LESSON_MODEL, cost_of, rates_of
from ipyagent.model.wire import usage_told
from ipyagent.replay.recording import RecordedTurn, Recording

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


class TurnCost(msgspec.Struct, frozen=True, kw_only=True):
    """One turn: its requests (background work included), their prompt tokens, what they cost, how it
    ended. `window` is the tokens of the next prompt after it."""

    number: int
    requests: int
    usage: Usage
    dollars: float
    window: int
    status: str
    message: str = ""


class CompactionMade(msgspec.Struct, frozen=True, kw_only=True):
    """One compaction: in which turn, whether before anything was answered in it, what the model call for it cost
    (0.0: none), tokens of the prompt, how many facts the prompt held before and after, and which it lost."""

    turn: int
    trigger: str
    method: str
    at_start: bool
    dollars: float
    before: int
    after: int
    facts_before: int = 0
    facts_after: int = 0
    lost: tuple[str, ...] = ()

    def __str__(self) -> str:
        when = "at its start" if self.at_start else "within it"
        price = f"${self.dollars:.4f}" if self.dollars else "free"
        kept = f", {self.facts_after} of {self.facts_before} facts kept" if self.facts_before else ""
        lost = f" (lost: {', '.join(self.lost)})" if self.lost else ""
        return (
            f"turn {self.turn} {when}, {self.trigger}, by {self.method}, {price}: {self.before:,} to {self.after:,} "
            f"tokens{kept}{lost}"
        )


class ClearingMade(msgspec.Struct, frozen=True, kw_only=True):
    """One clearing of old results and what came of it: `saved` tokens read no more in `requests` requests until a
    compaction or the end, `missed` tokens that were not read from the cache where the prompt before had been."""

    turn: int
    results: int
    saved: int
    missed: int
    requests: int

    @property
    def written(self) -> int:
        """Tokens that stayed and were written to the cache again."""
        return max(0, self.missed - self.saved)

    @property
    def balance(self) -> float:
        """Dollars gained."""
        rates = rates_of(LESSON_MODEL)
        return self.saved * self.requests * rates.read - self.written * (rates.write - rates.read)

    def __str__(self) -> str:
        return (
            f"turn {self.turn}: {self.results} results, {self.saved:,} tokens less in {self.requests} requests, "
            f"{self.written:,} written again: {'-' if self.balance < 0 else '+'}${abs(self.balance):.4f}"
        )


class Metrics(msgspec.Struct, frozen=True, kw_only=True):
    """A replay's figures. Dollars are those of LESSON_MODEL. `forks` are the model calls of background
    work by purpose, `decisions` how often each kind of decision was recorded, `failures` what layers
    said when they stepped aside, `refusals` the server's words."""

    source: str
    window: int
    engine: str
    layers: tuple[str, ...]
    turns: tuple[TurnCost, ...]
    refusals: tuple[str, ...] = ()
    forks: dict[str, int] = {}
    decisions: dict[str, int] = {}
    failures: tuple[str, ...] = ()
    fate: FactReport = FactReport()
    seconds: float = 0.0
    compactions: tuple[CompactionMade, ...] = ()
    clearings: tuple[ClearingMade, ...] = ()
    breaks: tuple[str, ...] = ()
    """Where a prompt was not read from the cache although the one before had been, with the cause."""
    kinds: dict[str, Usage] = {}
    """Tokens by what was asked for: the conversation, and each kind of background work."""
    left_out: dict[str, int] = {}
    """What of the recording has no place in a replay."""
    recorded: Usage = Usage()
    """What the recording says of its own requests."""
    cold: int = 0
    """Requests of which the recording's provider held hardly anything: nor does the one here."""
    timed: bool = False
    """Whether the cache lived by the recording's own times; else requests follow each other at once."""

    @property
    def requests(self) -> int:
        return sum(turn.requests for turn in self.turns)

    @property
    def finished(self) -> int:
        """Turns that came to their end as recorded."""
        return sum(turn.status in ("finished", "stopped") for turn in self.turns)

    @property
    def refused(self) -> int:
        return len(self.refusals)

    @property
    def usage(self) -> Usage:
        return sum((turn.usage for turn in self.turns), start=Usage())

    @property
    def read_share(self) -> float:
        """Share of all prompt tokens that was read from cache, 0-1."""
        usage = self.usage
        return usage.cache_read / usage.prompt if usage.prompt else 0.0

    @property
    def dollars(self) -> float:
        return sum(turn.dollars for turn in self.turns)

    @property
    def spent(self) -> dict[str, float]:
        """Dollars by what was asked for."""
        return {kind: dollars_of(usage) for kind, usage in self.kinds.items()}

    @property
    def compaction_calls(self) -> int:
        """Model calls spent on compaction."""
        return self.forks.get("compaction", 0) + self.forks.get("server compaction", 0)

    @property
    def stopped_at(self) -> str:
        """The first turn that failed and why; "" when none did."""
        for turn in self.turns:
            if turn.status not in ("finished", "stopped"):
                return f"turn {turn.number}: {turn.status}: {turn.message}"
        return ""

    def table(self, *, turns: bool = False) -> str:
        """The figures as lines of text; with `turns` one more line a turn."""
        lines = [f"{name:<25}{value}" for name, value in self.rows()]
        if turns:
            lines += ["", f"{'turn':>5}{'requests':>10}{'prompt':>12}{'read':>8}{'window':>10}{'dollars':>10}  ended"]
            lines += [
                f"{turn.number:>5}{turn.requests:>10}{turn.usage.prompt:>12,}{_percent(turn.usage):>8}"
                f"{turn.window:>10,}{turn.dollars:>10.4f}  {turn.status}"
                for turn in self.turns
            ]
        return "\n".join(lines)

    def rows(self) -> list[tuple[str, str]]:
        """Name and value of every figure."""
        usage, made = self.usage, [turn for turn in self.turns if turn.requests]
        prompts = [turn.usage.prompt for turn in made] or [0]
        costs = [turn.dollars for turn in made] or [0.0]
        rows = [
            ("recording", f"{self.source}, {len(self.turns)} turns"),
            *([("left out", _listed(self.left_out))] if self.left_out else []),
            *([("as recorded", self._recorded())] if self.recorded.prompt else []),
            ("time between requests", "as recorded" if self.timed else "none: the recording does not tell it"),
            ("window, engine", f"{self.window:,} tokens, {self.engine}"),
            ("layers", ", ".join(self.layers) or "none"),
            ("turns finished", f"{self.finished} of {len(self.turns)}"),
            ("requests", f"{self.requests:,}"),
            ("requests refused", f"{self.refused}"),
            ("cache-read share", f"{100 * self.read_share:.1f} %"),
            (
                "prompt tokens",
                f"{usage.prompt:,} in all, {statistics.median(prompts):,.0f} a turn (median), {max(prompts):,} at most",
            ),
            (
                f"cost ({LESSON_MODEL})",
                f"${self.dollars:.3f} in all, ${statistics.median(costs):.4f} a turn (median), "
                f"${max(costs):.4f} at most",
            ),
            ("compaction calls", f"{self.compaction_calls}"),
            ("other background calls", _counted(self.forks, ("compaction", "server compaction")) or "none"),
            ("money by kind", ", ".join(f"{kind} ${cost:.3f}" for kind, cost in self.spent.items())),
            ("read share by kind", ", ".join(f"{kind} {_percent(usage)}" for kind, usage in self.kinds.items())),
            ("decisions", _counted(self.decisions) or "none"),
            *(("compaction", str(made)) for made in self.compactions),
            *(("clearing", str(made)) for made in self.clearings),
            *(("cache break", made) for made in self.breaks),
            ("facts", str(self.fate)),
            ("seconds", f"{self.seconds:.1f}"),
        ]
        rows += [("first failure", self.stopped_at)] if self.stopped_at else []
        rows += [("a layer stepped aside", why) for why in dict.fromkeys(self.failures)]
        return rows + [("refused", why) for why in self.refusals[:5]]

    def _recorded(self) -> str:
        used = self.recorded
        told = f"{used.prompt:,} prompt tokens, {_percent(used)} read from cache, ${dollars_of(used):.3f} at this price"
        prompts = f"{self.cold} prompt{'s' * (self.cold > 1)}"
        lost = f"; its provider held hardly anything of {prompts}, nor does the one here" if self.cold else ""
        return told + lost

    def json(self) -> dict[str, Any]:
        """Everything, as JSON values, sums included."""
        told: dict[str, Any] = msgspec.to_builtins(self)
        return {
            **told,
            "requests": self.requests,
            "refused": self.refused,
            "finished": self.finished,
            "cache_read_share": round(self.read_share, 4),
            "prompt_tokens": self.usage.prompt,
            "dollars": round(self.dollars, 4),
            "spent": {kind: round(cost, 4) for kind, cost in self.spent.items()},
            "compaction_calls": self.compaction_calls,
            "facts": {"kept": len(self.fate.kept), "reachable": len(self.fate.reachable), "lost": len(self.fate.lost)},
        }


def _percent(usage: Usage) -> str:
    return f"{100 * usage.cache_read / usage.prompt:.1f} %" if usage.prompt else "-"


def _listed(counts: dict[str, int]) -> str:
    return ", ".join(f"{count:,} {what}" for what, count in counts.items())


def _counted(counts: dict[str, int], without: tuple[str, ...] = ()) -> str:
    return ", ".join(f"{name} {count}" for name, count in sorted(counts.items()) if count and name not in without)


def usage_of(reported: dict[str, Any]) -> Usage:
    """A server's `usage` without its searches; the sum over its `iterations` where it lists them (a reply that
    compacted). What is no count is 0."""
    parts = reported.get("iterations")
    whole = sum(map(usage_told, parts if isinstance(parts, list) and parts else [reported]), start=Usage())
    return msgspec.structs.replace(whole, searches=0, fetches=0)


def dollars_of(usage: Usage) -> float:
    """What a request would have cost on LESSON_MODEL."""
    return cost_of(LESSON_MODEL, usage) or 0.0
