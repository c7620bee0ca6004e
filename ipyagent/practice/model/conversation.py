"""What a request body says happened, as frozen values: turns, calls and results, and the session's own directives.

A turn begins at a user message with words of the user's own. Blocks wrapped whole in one tag (`<context>…`,
`<variable …>…`) are reminders or attachments: they belong to the turn but are not what was asked. What stands for
earlier turns is a summary, notes, or a server's `compaction` block; beside it may stand the newest request word for
word and words of the session about it.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

MARK_EN: Final = "_(practice model: fixed forms of requests, no language model)_"
MARK_ZH: Final = "_（练习模型：只认识固定的请求形式，不是语言模型）_"
_EARLIER: Final = re.compile(
    r"\s*(?:The conversation before this point|Turns? \d{1,9}(?: to \d{1,9})? of the conversation)\b"
)
_OURS: Final = re.compile(
    r"\s*(?:The user's newest request[^\n]*:\s*$|Results of it that are kept whole;"
    r"|\((?:earlier parts were removed|the server has summarised what was here)\)"
    r"|What (?:stood here is kept|the user said in it,) word for word|\(A request of the user was too large and"
    r"|(?:The context window was|The prompt was too long|The compaction that you asked for is done)\b"
    r".*\bGo on with this request\b"
    r"|This is not the user speaking)",
    re.S,
)
_AGAIN: Final = re.compile(r"\s*<request>\n(.*)\n</request>\nThis is the user's newest request[^\n]*+\s*+", re.S)
_QUOTED: Final = "The last request was: “"
_TWO: Final = re.compile(r"\s*+Two orders follow[^\n]*+\n")
_UPDATE: Final = re.compile(r"\s*+<update-notes file=\"([^\"\n]+)\">\n")
_UPDATED: Final = "\n</update-notes>"


def cut(text: str, most: int) -> str:
    """The text in one line of at most `most` characters."""
    line = " ".join(text.split())
    return line if len(line) <= most else line[: most - 1].rstrip() + "…"


def earlier(text: str) -> str:
    """The summary or the notes in a block that stands for earlier turns; "" for other blocks."""
    return (_earlier(text) or "").strip()


def _earlier(text: str) -> str | None:
    """What stands in the last `<summary>` or `<notes>` of such a block; None for other blocks."""
    if (found := _EARLIER.match(text)) is None:
        return None
    ends = {tag: text.rfind(f"</{tag}>") for tag in ("summary", "notes")}
    starts = {tag: text.rfind(f"<{tag}>", found.end(), max(end, 0)) for tag, end in ends.items()}
    tag = max(starts, key=lambda each: starts[each])
    return text[starts[tag] + len(tag) + 2 : ends[tag]] if starts[tag] >= 0 else None


def is_ours(text: str) -> bool:
    """Whether the session speaks here, not the user."""
    return _OURS.match(text) is not None or _earlier(text) is not None


def words(text: str) -> str:
    """The user's words in a block that repeats them after a compaction; other blocks as they are."""
    found = _AGAIN.fullmatch(text)
    return found[1] if found else text


def _inside(text: str, tag: str) -> str | None:
    """What stands in a block that is wrapped whole in `tag`, each mark on a line of its own."""
    text = text.strip()
    first, last = f"<{tag}>\n", f"\n</{tag}>"
    whole = len(text) >= len(first) + len(last) and text.startswith(first) and text.endswith(last)
    return text[len(first) : -len(last)] if whole else None


def fork_work(text: str) -> str:
    """The work in the directive that makes a conversation a fork's; "" for other blocks."""
    return "".join((_inside(text, "fork-task") or "").rpartition("\nThe work:\n")[1:]).removeprefix("\nThe work:\n")


def request_in(summary: str) -> str:
    """The newest request that a summary of this model names; "" when it names none."""
    rows = [line.partition(_QUOTED)[2].rstrip() for line in summary.split("\n") if _QUOTED in line]
    return next((row[:-1] for row in reversed(rows) if row.endswith("”")), "")


def notes_asked(text: str) -> tuple[str, str] | None:
    """The file and the words of a directive to bring the notes up to date; None for other texts."""
    text = _TWO.sub("", text, count=1) if _TWO.match(text) else text
    named = _UPDATE.match(text)
    words, closed, rest = text[named.end() - 1 :].rpartition(_UPDATED) if named else ("", "", "")
    if named is None or not closed or (rest.strip() and _inside(rest, "extract-memories") is None):
        return None
    return named[1], words[1:]


def asks_to_extract(text: str) -> bool:
    """Whether this asks to save what is worth remembering of the conversation."""
    return _inside(text.rpartition(_UPDATED)[2] if notes_asked(text) else text, "extract-memories") is not None


def asks_to_dream(text: str) -> bool:
    """Whether this asks to tidy the memories."""
    return _inside(text, "dream") is not None


def blocks_of(message: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The blocks of a message, also of one whose content is a text."""
    content = message.get("content") or []
    return [{"type": "text", "text": content}] if isinstance(content, str) else list(content)


def texts_of(message: Mapping[str, Any]) -> list[str]:
    """The text blocks of a message."""
    return [str(block.get("text", "")) for block in blocks_of(message) if block.get("type") == "text"]


def last_texts(body: Mapping[str, Any]) -> list[str]:
    """The text blocks of a body's last message."""
    return texts_of((body.get("messages") or [{}])[-1])


def directive(messages: Sequence[Mapping[str, Any]]) -> tuple[int, str]:
    """The place and the text of the directive that is being followed; (-1, "") when there is none.

    A directive for a summary is in the last message; one for notes, memories or a dream may have calls and results of
    its own behind it.
    """
    for i in (at for at in range(len(messages) - 1, -1, -1) if messages[at].get("role") == "user"):
        for text in reversed(texts_of(messages[i])):
            ours = notes_asked(text) is not None or asks_to_extract(text) or asks_to_dream(text)
            if ours or (i == len(messages) - 1 and "<analysis>" in text and "<summary>" in text):
                return i, text
        if any(block.get("type") != "tool_result" for block in blocks_of(messages[i])):
            break
    return -1, ""


WRAPPED = re.compile(r"\s*<([\w-]+)(?:\s[^>]*)?>.*</\1>\s*", re.S)
ATTACHED = re.compile(r"<(variable|file|lesson|cell|out|output|skill|context)\b[^>]*>.*?</\1>", re.S)
_NAMED = re.compile(r"<(variable|file|lesson)\s[^>]*?(?:name|path)=\"([^\"]+)\"")
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
        """Names in `<variable name=…>` and `<lesson name=…>` or paths in `<file path=…>` blocks."""
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
    def told(self) -> str:
        """What reminders of the session told, such as which variables there are."""
        return "\n".join(extra for turn in self.turns for extra in turn.extras if "<context" in extra)

    @property
    def turn(self) -> Turn:
        """The turn to answer."""
        return self.turns[-1]


def flat(content: Any) -> str:
    """The text of a `content` field, whether a string or a list of blocks."""
    blocks = [{"text": content}] if isinstance(content, str) else content or []
    return "\n".join(str(block.get("text", "")) for block in blocks if block.get("type", "text") == "text")


def read(body: Mapping[str, Any]) -> Conversation:
    """The conversation in a Messages API request body; a body without messages has one empty turn."""
    turns: list[Turn] = []
    calls: dict[str, tuple[str, Mapping[str, Any]]] = {}
    introduced = False
    for message in body.get("messages", []):
        blocks = blocks_of(message)
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
    asked = last.asked or request_in(summary)
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
    texts = texts_of({"content": blocks})
    forks = [work for text in texts if (work := fork_work(text))]
    ours = [text for text in texts if WRAPPED.fullmatch(text) or is_ours(text)]
    own = forks or [words(text) for text in texts if text not in ours and text.strip()]
    summaries = _summaries(blocks)
    extras = [*summaries, *ours]
    if summaries and not own:
        own = [request_in(summaries[-1])]
    inline = [found.group() for text in own for found in ATTACHED.finditer(text)]
    if steps and turns:
        turns[-1] = replace(turns[-1], rounds=(*turns[-1].rounds, tuple(steps)))
    if own or not (steps and turns):
        asked = ATTACHED.sub("", own[-1]).strip() if own else ""
        turns.append(Turn(asked, (*extras, *inline)))
    elif extras:
        turns[-1] = replace(turns[-1], extras=(*turns[-1].extras, *extras))
