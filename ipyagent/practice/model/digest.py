"""What a conversation says, taken out of it line by line: the matter of summaries and notes. Nothing is composed.

Lines keep the words of the conversation; a line that is too long is cut, and what a former summary said is taken over.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from ipyagent.practice.server.tokens import count_text

from . import boundaries, reading
from .conversation import MARK, WRAPPED, Conversation, Step, Turn, flat, read
from .knowledge import assigned

TITLES: Final = (
    "Request and intent", "Key concepts", "Files, variables and code", "Errors and fixes", "Problems solved",
    "Every message of the user", "Pending tasks", "Current work", "Next step",
)  # fmt: skip
_SECTION: Final = re.compile(r"^([1-9])\. [^\n:]{3,60}:[ \t]*\n?(.*?)(?=^[1-9]\. [^\n:]{3,60}:|\Z)", re.M | re.S)
_PATH: Final = re.compile(r"[\"']([^\"'\n]*?[\w-]\.\w{2,7})[\"']")
_CODES: Final = re.compile(r"(?=[\w./-]*[A-Za-z])(?=[\w./-]*\d)[\w./-]{4,}|\w+_\w+|[\w-]+\.\w{2,5}\b")
"""What cannot be guessed: codes, identifiers, file names."""
_FIGURES: Final = re.compile(r"\d[\d.,]*|[“\"'`][^“”\"'`]{1,40}[”\"'`]|\b[A-Z]{2,}")
_CAPS: Final = (400, 280, 200, 140, 100, 75, 55)


def cut(text: str, most: int) -> str:
    """The text in one line of at most `most` characters."""
    line = " ".join(text.split())
    return line if len(line) <= most else line[: most - 1].rstrip() + "…"


def squeezed(text: str, most: int) -> str:
    """The piece of at most `most` characters that tells most: around codes, else around figures, else the beginning."""
    line = " ".join(text.split())
    found = next((found for rule in (_CODES, _FIGURES) if (found := [*rule.finditer(line)])), None)
    if len(line) <= most or found is None:
        return cut(line, most)
    room = most - 2

    def begin_at(match: re.Match[str]) -> int:
        return max(0, min(match.start() - room // 2, len(line) - room))

    def tells(at: int) -> int:
        return sum(len(match[0]) for match in found if at <= match.start() and match.end() <= at + room)

    begin = max(map(begin_at, found), key=tells)
    piece = line[begin : begin + room]
    return ("…" if begin else "") + piece.strip() + ("…" if begin + room < len(line) else "")


def fit(lines: Sequence[str], tokens: int, short: Callable[[str, int], str] = cut) -> str:
    """The lines as a list, each as long as the room allows, shortened by `short`; when there are too many, those that
    tell most, newest first."""
    lead = "- "
    for most in _CAPS:
        shown = [lead + short(line, most) for line in lines]
        if count_text("\n".join(shown)) <= tokens:
            return "\n".join(shown)
    room, kept = tokens - 12, set[int]()
    for at in telling(lines):
        cost = count_text(lead + short(lines[at], _CAPS[-1])) + 1
        if cost <= room:
            room -= cost
            kept.add(at)
    shown = [lead + short(lines[at], _CAPS[-1]) for at in sorted(kept)]
    return "\n".join([*shown, f"{lead}… {len(lines) - len(kept)} more"]) if kept else ""


def telling(lines: Sequence[str]) -> list[int]:
    """The places of the lines, those first that tell most: codes, then figures, codes that stand in no other line
    before those that do, the newer of equals first."""
    codes = [frozenset(_CODES.findall(line)) for line in lines]
    said = Counter(code for found in codes for code in found)
    rank = [
        (not found, not _FIGURES.search(line), min((said[code] for code in found), default=0) > 1)
        for line, found in zip(lines, codes, strict=True)
    ]
    return sorted(range(len(lines)), key=lambda at: (rank[at], -at))


def gist(said: str, most: int = 300) -> str:
    """What an answer says: its first line, and lines with figures."""
    lines = [line.strip() for line in said.splitlines() if line.strip() and not MARK.search(line)]
    figures = [line for line in lines[1:] if re.search(r"\d", line)]
    return cut("; ".join([*lines[:1], *figures]), most)


def result_line(step: Step, most: int = 200) -> str:
    """What a call did and gave, in one line."""
    did = step.code or " ".join(str(value) for value in step.input.values())
    return f"{step.tool}: {cut(did, most // 2)} → {cut(step.text, most)}"


@dataclass(frozen=True, slots=True)
class Material:
    """`requests`: the user's messages in order. `old`: lines of a former summary, by section number."""

    conversation: Conversation
    requests: tuple[str, ...]
    old: Mapping[int, tuple[str, ...]]

    @property
    def turns(self) -> tuple[Turn, ...]:
        """The turns with words of the user, oldest first."""
        return tuple(turn for turn in self.conversation.turns if turn.asked)

    @property
    def steps(self) -> tuple[Step, ...]:
        """All calls, oldest first."""
        return tuple(step for turn in self.conversation.turns for step in turn.steps)

    @property
    def newest(self) -> Turn:
        """The turn that is being worked on, or the last that was."""
        return self.turns[-1] if self.turns else Turn(self.requests[-1] if self.requests else "")

    @property
    def codes(self) -> tuple[str, ...]:
        """Code that ran without an error, each once."""
        return tuple(dict.fromkeys(step.code for step in self.steps if step.code and not step.failed))

    def files(self) -> list[str]:
        """Paths in code and in the calls of file tools."""
        found = [path for code in self.codes for path in _PATH.findall(code)]
        return list(dict.fromkeys([*found, *(str(s.input["path"]) for s in self.steps if s.input.get("path"))]))

    def variables(self) -> list[str]:
        """Names that code assigned, each with the last line that did."""
        made: dict[str, str] = {}
        for code in self.codes:
            for name in sorted(assigned(code)):
                line = next((line for line in code.splitlines() if re.match(rf"{name}\b.*=", line)), "")
                made.pop(name, None)
                made[name] = f"`{name}`: `{cut(line, 120)}`" if line else f"`{name}`"
        return list(made.values())

    def errors(self) -> list[str]:
        """What failed, and what was run next without an error."""
        found = []
        for at, step in enumerate(self.steps):
            if step.failed:
                mended = next((s for s in self.steps[at + 1 :] if s.tool == step.tool and not s.failed), None)
                what = ": ".join(filter(None, reading.error(step.text)))
                how = f"; then it went with `{cut(mended.code or str(dict(mended.input)), 90)}`" if mended else ""
                found.append(cut(what, 240) + how)
        return found

    def solved(self) -> list[str]:
        """Answers to requests, and the last results of turns without one."""
        found = []
        for turn in self.turns:
            told = [step for step in turn.steps if not step.failed and re.search(r"\d", step.text)]
            found += [gist(turn.said)] if turn.said else [result_line(step, 160) for step in told[-2:]]
        return found


def material(body: Mapping[str, Any], first: str = "", last: str = "") -> Material:
    """The matter of a body, without a directive at its end; `first` and `last` begin the part that is meant."""
    messages = list(body.get("messages") or [])
    at, told = boundaries.directive(messages)
    if at >= 0:
        rest = [block for block in _blocks(messages[at]) if block.get("text") != told]
        messages = [*messages[:at], *([{**messages[at], "content": rest}] if rest else [])]
    messages = _part(messages, first, last)
    requests: list[str] = []
    old: dict[int, tuple[str, ...]] = {}
    for message in messages:
        for block in _blocks(message):
            kind = block.get("type")
            text = str(block.get("text") or "") if kind == "text" else ""
            former = str(block.get("content") or "") if kind == "compaction" else boundaries.earlier(text)
            if former:
                requests.clear()
                old = _sections(former)
            elif message.get("role") == "user" and text.strip() and not _is_aside(text):
                requests += [said] if (said := boundaries.words(text)) not in requests[-1:] else []
    return Material(read({**body, "messages": messages}), tuple(requests), old)


def _is_aside(text: str) -> bool:
    return (bool(WRAPPED.fullmatch(text)) and boundaries.words(text) == text) or boundaries.is_ours(text)


def _blocks(message: Mapping[str, Any]) -> list[dict[str, Any]]:
    content = message.get("content") or []
    return [{"type": "text", "text": content}] if isinstance(content, str) else list(content)


def _part(messages: list[Mapping[str, Any]], first: str, last: str) -> list[Mapping[str, Any]]:
    def begins(message: Mapping[str, Any], words: str) -> bool:
        return any(cut(flat([b]), 10_000).startswith(words) for b in _blocks(message) if b.get("type") == "text")

    start = next((i for i, message in enumerate(messages) if first and begins(message, first)), 0)
    end = next((i for i in range(len(messages) - 1, -1, -1) if last and begins(messages[i], last)), len(messages) - 1)
    return messages[start : end + 1] or messages


def _sections(summary: str) -> dict[int, tuple[str, ...]]:
    """The lines of a former summary by section; all under 5 when it has no sections."""
    found = {int(number): _lines(text) for number, text in _SECTION.findall(summary)}
    return found if len(found) >= 5 else {5: _lines(summary)}


def _lines(text: str) -> tuple[str, ...]:
    text = re.sub(r"```.*?```", "", text, flags=re.S)
    lines: Iterable[str] = (line.strip().removeprefix("- ").strip() for line in text.splitlines())
    return tuple(line for line in lines if line and line != "none" and not re.fullmatch(r"… \d+ more", line))
