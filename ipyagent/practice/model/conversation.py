"""What a request body says happened: turns, calls and results, as frozen values.

A turn begins at a user message with words of the user's own. Blocks wrapped whole in one tag (`<context>…`,
`<variable …>…`) are reminders or attachments: they belong to the turn but are not what was asked.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from . import boundaries

WRAPPED = re.compile(r"\s*<([\w-]+)(?:\s[^>]*)?>.*</\1>\s*", re.S)
ATTACHED = re.compile(r"<(variable|file|cell|out|output|skill|context)\b[^>]*>.*?</\1>", re.S)
_NAMED = re.compile(r"<(variable|file)\s[^>]*?(?:name|path)=\"([^\"]+)\"")
_CJK = re.compile(r"[\u3400-\u9fff]")
_NOTE = re.compile(r"^\[(?:rebound: |took |figure \d|\d+ more figures|interrupted by).*\]$\n?", re.M)
MARK = re.compile(r"practice model|练习模型", re.I)
_FURTHER = re.compile(r"^- ([\w-]+): ", re.M)
"""How a search of tools tells of one, and what it is for."""


WORDS = 2_000
"""Characters of a request that the rules look at: a longer one is a text, not a sentence."""


@dataclass(frozen=True, slots=True)
class Step:
    """One tool call and what came back, without the session's own notes; `failed` is the result's `is_error`."""

    tool: str
    input: Mapping[str, Any]
    text: str = ""
    failed: bool = False

    @property
    def code(self) -> str:
        """The code of a `python` call, else an empty text."""
        return str(self.input.get("code", "")) if self.tool == "python" else ""


@dataclass(frozen=True, slots=True)
class Turn:
    """`asked`: the user's words. `extras`: reminder and attachment blocks. `rounds`: calls made, by message."""

    asked: str
    extras: tuple[str, ...] = ()
    rounds: tuple[tuple[Step, ...], ...] = ()
    said: str = ""

    @property
    def words(self) -> str:
        """What of it is read as language: its first WORDS characters."""
        return self.asked[:WORDS]

    @property
    def chinese(self) -> bool:
        """Whether the user's words, code apart, hold Chinese characters."""
        return bool(_CJK.search(re.sub(r"```.*?```", "", self.asked, flags=re.S)))

    @property
    def steps(self) -> tuple[Step, ...]:
        """All calls of the turn in order."""
        return tuple(step for round_ in self.rounds for step in round_)

    def attached(self, kind: str) -> tuple[str, ...]:
        """Names in `<variable name=…>` or paths in `<file path=…>` blocks."""
        return tuple(name for extra in self.extras for found, name in _NAMED.findall(extra) if found == kind)


@dataclass(frozen=True, slots=True)
class Conversation:
    """All that a request body tells; the last turn is the one to answer."""

    turns: tuple[Turn, ...]
    tools: Mapping[str, Mapping[str, Any]]
    system: str
    schema: Mapping[str, Any] | None
    thinks: bool
    introduced: bool
    digest: str

    @property
    def further(self) -> frozenset[str]:
        """Names of the tools that a search of tools tells of: they are called through `call_tool`."""
        told = str((self.tools.get("tool_search") or {}).get("description") or "")
        return frozenset(_FURTHER.findall(told)) if "call_tool" in self.tools else frozenset()

    @property
    def turn(self) -> Turn:
        """The turn to answer."""
        return self.turns[-1]

    @property
    def history(self) -> tuple[Step, ...]:
        """Calls of the earlier turns, oldest first."""
        return tuple(step for turn in self.turns[:-1] for step in turn.steps)


def flat(content: Any) -> str:
    """The text of a `content` field, whether a string or a list of blocks."""
    if isinstance(content, str):
        return content
    return "\n".join(str(block.get("text", "")) for block in content or [] if block.get("type", "text") == "text")


def read(body: Mapping[str, Any]) -> Conversation:
    """The conversation in a Messages API request body; a body without messages has one empty turn."""
    turns: list[Turn] = []
    calls: dict[str, tuple[str, Mapping[str, Any]]] = {}
    introduced = False
    for message in body.get("messages", []):
        content = message.get("content") or []
        blocks = [{"type": "text", "text": content}] if isinstance(content, str) else list(content)
        if message.get("role") == "assistant":
            said = "\n".join(str(block["text"]) for block in blocks if block.get("type") == "text")
            introduced = introduced or bool(MARK.search(said))
            uses: list[dict[str, Any]] = [block for block in blocks if block.get("type") == "tool_use"]
            for summary in _summaries(blocks):
                _summarised(turns, summary)
            calls = {str(use["id"]): _called(str(use["name"]), use.get("input") or {}) for use in uses}
            if turns and said and not calls:
                turns[-1] = replace(turns[-1], said=said)
        elif message.get("role") == "user":
            _user(turns, blocks, calls)
            calls = {}
    output = body.get("output_config") or {}
    form = output.get("format") or body.get("output_format") or {}
    return Conversation(
        turns=tuple(turns) or (Turn(""),),
        tools={str(tool.get("name", "")): tool for tool in body.get("tools") or []},
        system=flat(body.get("system")),
        schema=form.get("schema"),
        thinks=(body.get("thinking") or {}).get("type") in ("enabled", "adaptive"),
        introduced=introduced,
        digest=hashlib.sha256(json.dumps(_marks_off(body.get("messages", [])), sort_keys=True).encode()).hexdigest(),
    )


def _called(name: str, given: Mapping[str, Any]) -> tuple[str, Mapping[str, Any]]:
    """The tool that a call is for, and its arguments, also when it was called through `call_tool`."""
    if name == "call_tool" and isinstance(inner := given.get("arguments"), Mapping):
        return str(given.get("name", "")), inner
    return name, given


def _summarised(turns: list[Turn], summary: str) -> None:
    """A server's summary: when the turns before it were left out, it tells what was asked last."""
    last = turns.pop() if turns else Turn("")
    asked = last.asked or boundaries.request_in(summary)
    turns.append(replace(last, asked=asked, extras=(*last.extras, summary)))


def _summaries(blocks: list[dict[str, Any]]) -> list[str]:
    return [str(block["content"]) for block in blocks if block.get("type") == "compaction" and block.get("content")]


def _marks_off(value: Any) -> Any:
    """The messages without cache marks, which move without changing what was said."""
    if isinstance(value, dict):
        return {key: _marks_off(part) for key, part in value.items() if key != "cache_control"}
    return [_marks_off(part) for part in value] if isinstance(value, list) else value


def _user(turns: list[Turn], blocks: list[dict[str, Any]], calls: Mapping[str, tuple[str, Mapping[str, Any]]]) -> None:
    """Adds one user message: results to the open turn, words as a new one."""
    steps = []
    for block in blocks:
        if block.get("type") == "tool_result":
            name, given = calls.get(str(block.get("tool_use_id")), ("", {}))
            result = _NOTE.sub("", flat(block.get("content")))
            steps.append(Step(name, given, result, bool(block.get("is_error"))))
    texts = [str(block.get("text", "")) for block in blocks if block.get("type") == "text"]
    forks = [work for text in texts if (work := boundaries.fork_work(text))]
    ours = [text for text in texts if WRAPPED.fullmatch(text) or boundaries.is_ours(text)]
    own = forks or [boundaries.words(text) for text in texts if text not in ours and text.strip()]
    summaries = _summaries(blocks)
    extras = [*summaries, *ours]
    if summaries and not own:
        own = [boundaries.request_in(summaries[-1])]
    inline = [found.group() for text in own for found in ATTACHED.finditer(text)]
    if steps and turns:
        turns[-1] = replace(turns[-1], rounds=(*turns[-1].rounds, tuple(steps)))
    if own or not (steps and turns):
        asked = ATTACHED.sub("", own[-1]).strip() if own else ""
        turns.append(Turn(asked, (*extras, *inline)))
    elif extras:
        turns[-1] = replace(turns[-1], extras=(*turns[-1].extras, *extras))
