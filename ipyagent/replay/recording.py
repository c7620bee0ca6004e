"""A recorded conversation in one shape, whatever wrote it: turns of the user, rounds of the model.

Call ids are unique and fit for the wire; thinking has no signature (the server that answers now
signs it); adjacent replies are one round, user words that got no reply belong to the next turn.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Literal

import msgspec

from ipyagent.journal.events import Block, PromptRendered

NO_RESULT = "(the recording has no result of this call)"


class Result(msgspec.Struct, frozen=True):
    """What a call gave, as content blocks."""

    blocks: tuple[Block, ...]
    is_error: bool = False


class Round(msgspec.Struct, frozen=True):
    """One reply of the model and the results of its calls, by the call's id."""

    blocks: tuple[Block, ...]
    results: dict[str, Result] = {}

    @property
    def calls(self) -> list[Block]:
        return [block for block in self.blocks if block["type"] == "tool_use"]


class RecordedTurn(msgspec.Struct, frozen=True):
    """What the user said and what the model did about it; `text`: the user's own words alone, where they are told
    apart from what stood beside them ("": all of it)."""

    asked: tuple[Block, ...]
    rounds: tuple[Round, ...]
    text: str = ""


class Written(msgspec.Struct, frozen=True):
    """A summary or the session's notes as the recording's own model wrote them, having seen turns 1 to `turn`."""

    kind: Literal["summary", "notes"]
    turn: int
    text: str


class Recording(msgspec.Struct, frozen=True):
    """A session; `problems` are lines that could not be read, as "line N: why". `head` is its system prompt and
    tools (None: not recorded), `written` what its model wrote for the context engine, in order."""

    source: str
    turns: tuple[RecordedTurn, ...]
    problems: tuple[str, ...] = ()
    head: PromptRendered | None = None
    written: tuple[Written, ...] = ()

    def __repr__(self) -> str:
        replies = sum(len(turn.rounds) for turn in self.turns)
        return f"<Recording from {self.source}: {len(self.turns)} turns, {replies} replies>"

    @property
    def tool_inputs(self) -> dict[str, list[str]]:
        """Names of the tools that were called, with the names of their arguments, in order."""
        found: dict[str, dict[str, None]] = {}
        for turn in self.turns:
            for made in turn.rounds:
                for call in made.calls:
                    found.setdefault(call["name"], {}).update(dict.fromkeys(call["input"]))
        return {name: list(inputs) for name, inputs in found.items()}


class Collector:
    """Puts what an importer reads, in order, into turns and rounds."""

    def __init__(self, source: str) -> None:
        self.source = source
        self.problems: list[str] = []
        self._turns: list[tuple[list[Block], list[tuple[list[Block], dict[str, Result]]]]] = []
        self._texts: dict[int, str] = {}
        """The user's own words by turn."""
        self._calls: dict[str, tuple[str, dict[str, Result]]] = {}
        self._made = 0
        self._message = ""
        self._joined = False
        """Whether the next reply belongs to the round before: nothing of the user's side came between."""

    def user(self, blocks: Iterable[Block], text: str = "") -> None:
        """Words of the user; `text`: these alone, without what stood beside them."""
        kept = [block for block in blocks if block["type"] != "text" or str(block.get("text", "")).strip()]
        if not kept:
            return
        if self._turns and not self._turns[-1][1]:
            self._turns[-1][0].extend(kept)
        else:
            self._turns.append((kept, []))
        self._texts[len(self._turns)] = f"{self._texts.get(len(self._turns), '')}\n{text}".strip()
        self._joined = False

    def beside(self, blocks: Iterable[Block]) -> None:
        """What stood beside words of the user that nobody has answered yet; later it has no place."""
        if self._turns and not self._turns[-1][1]:
            self.user(blocks)

    @property
    def begun(self) -> int:
        """Turns so far."""
        return len(self._turns)

    def reply(self, blocks: Iterable[Block], message: str = "") -> None:
        """Blocks of the model: text, thinking, tool_use (with whatever id). Pieces with one id of a
        `message` are one reply, even when results stand between them."""
        kept = [made for block in blocks if (made := self._admit(block)) is not None]
        if not kept:
            return
        if not self._turns:
            self._turns.append(([{"type": "text", "text": "(the recording begins here)"}], []))
        rounds = self._turns[-1][1]
        if not rounds or not (self._joined or (message and message == self._message)):
            rounds.append(([], {}))
        self._joined, self._message = True, message
        said, results = rounds[-1]
        for block in kept:
            if block["type"] == "tool_use":
                self._made += 1
                given, block = block["id"], {**block, "id": f"toolu_{self._made:06}"}
                self._calls[given] = (block["id"], results)
            said.append(block)

    def result(self, call: str, blocks: Iterable[Block], *, is_error: bool = False) -> None:
        """The result of a call; one whose call is not known is reported."""
        if call not in self._calls:
            self.problems.append(f"a result for the unknown call {call!r} was left out")
            return
        made, results = self._calls[call]
        results[made] = Result(tuple(blocks), is_error)
        self._joined = False

    @staticmethod
    def _admit(block: Block) -> Block | None:
        match block.get("type"):
            case "text" if str(block.get("text", "")).strip():
                return {"type": "text", "text": str(block["text"])}
            case "thinking" if str(block.get("thinking", "")).strip():
                return {"type": "thinking", "thinking": str(block["thinking"]), "signature": ""}
            case "tool_use":
                given = block.get("input")
                return {
                    "type": "tool_use",
                    "id": str(block.get("id", "")),
                    "name": wire_name(str(block.get("name", "") or "tool")),
                    "input": given if isinstance(given, dict) else {},
                }
        return None

    def finished(self) -> Recording:
        """The recording; a turn that nobody answered is left out."""
        turns = [
            RecordedTurn(
                tuple(asked), tuple(_round(said, results) for said, results in rounds), self._texts.get(number, "")
            )
            for number, (asked, rounds) in enumerate(self._turns, 1)
            if rounds
        ]
        return Recording(self.source, tuple(turns), tuple(self.problems))


def _round(said: list[Block], results: dict[str, Result]) -> Round:
    """Thinking goes first in a reply that was put together of several."""
    return Round(tuple(sorted(said, key=lambda block: block["type"] != "thinking")), results)


def wire_name(name: str) -> str:
    """A tool's name as the API takes it."""
    return "".join(c if c.isascii() and (c.isalnum() or c in "_-") else "_" for c in name)[:64]


def text_blocks(content: Any) -> list[Block]:
    """Content of a message, a text or a list of blocks, as text and image blocks."""
    if isinstance(content, str):
        return [{"type": "text", "text": content}]
    made: list[Block] = []
    for block in content if isinstance(content, list) else ():
        if isinstance(block, dict) and block.get("type") == "text":
            made.append({"type": "text", "text": str(block.get("text", ""))})
        elif isinstance(block, dict) and block.get("type") in ("image", "document"):
            made.append(block)
    return made
