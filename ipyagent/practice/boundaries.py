"""Tells the blocks that a compaction left in a user's message, and the session's own directives, from the user's words.

What stands for earlier turns is a summary, notes, or a server's `compaction` block; beside it may stand the newest
request word for word and words of the session about it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

_EARLIER: Final = re.compile(
    r"\s*(?:The conversation before this point|Turns? \d+(?: to \d+)? of the conversation)\b"
    r".*<(summary|notes)>\n?(.*)\n?</\1>",
    re.S,
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
_AGAIN: Final = re.compile(r"\s*<request>\n(.*)\n</request>\nThis is the user's newest request[^\n]*\s*", re.S)
_QUOTED: Final = re.compile(r"The last request was: “(.*?)”\s*$", re.M)
_NOTES: Final = re.compile(
    r"\s*(?:Two orders follow[^\n]*\n)?<update-notes file=\"([^\"\n]+)\">\n(.*?)\n</update-notes>\s*"
    r"(?:<extract-memories>\n.*\n</extract-memories>\s*)?",
    re.S,
)

_FORK: Final = re.compile(r"\s*<fork-task>\n.*\nThe work:\n(.*)\n</fork-task>\s*", re.S)
_DREAM: Final = re.compile(r"\s*<dream>\n(.*)\n</dream>\s*", re.S)
_EXTRACT: Final = re.compile(
    r"\s*(?:Two orders follow[^\n]*\n<update-notes.*</update-notes>\s*)?"
    r"<extract-memories>\n(.*)\n</extract-memories>\s*",
    re.S,
)


def earlier(text: str) -> str:
    """The summary or the notes in a block that stands for earlier turns; "" for other blocks."""
    found = _EARLIER.match(text)
    return found[2].strip() if found else ""


def is_ours(text: str) -> bool:
    """Whether the session speaks here, not the user."""
    return bool(_OURS.match(text) or _EARLIER.match(text))


def words(text: str) -> str:
    """The user's words in a block that repeats them after a compaction; other blocks as they are."""
    found = _AGAIN.fullmatch(text)
    return found[1] if found else text


def fork_work(text: str) -> str:
    """The work in the directive that makes a conversation a fork's; "" for other blocks."""
    found = _FORK.fullmatch(text)
    return found[1] if found else ""


def request_in(summary: str) -> str:
    """The newest request that a summary of this model names; "" when it names none."""
    found = _QUOTED.findall(summary)
    return str(found[-1]) if found else ""


def asks_for_summary(text: str) -> bool:
    """Whether this asks to summarise the conversation in the tags of a compaction."""
    return "<analysis>" in text and "<summary>" in text


def notes_asked(text: str) -> tuple[str, str] | None:
    """The file and the words of a directive to bring the notes up to date; None for other texts."""
    found = _NOTES.fullmatch(text)
    return (found[1], found[2]) if found else None


def asks_to_extract(text: str) -> bool:
    """Whether this asks to save what is worth remembering of the conversation."""
    return bool(_EXTRACT.fullmatch(text))


def asks_to_dream(text: str) -> bool:
    """Whether this asks to tidy the memories."""
    return bool(_DREAM.fullmatch(text))


def texts_of(message: Mapping[str, Any]) -> list[str]:
    """The text blocks of a message."""
    content = message.get("content") or []
    if isinstance(content, str):
        return [content]
    return [str(block.get("text", "")) for block in content if block.get("type") == "text"]


def directive(messages: Sequence[Mapping[str, Any]]) -> tuple[int, str]:
    """The place and the text of the directive that is being followed; (-1, "") when there is none.

    A directive for a summary is in the last message; one for notes, memories or a dream may have calls and results of
    its own behind it.
    """
    for i in range(len(messages) - 1, -1, -1):
        if messages[i].get("role") != "user":
            continue
        for text in reversed(texts_of(messages[i])):
            ours = notes_asked(text) is not None or asks_to_extract(text) or asks_to_dream(text)
            if ours or (i == len(messages) - 1 and asks_for_summary(text)):
                return i, text
        content = messages[i].get("content") or []
        if isinstance(content, str) or any(block.get("type") != "tool_result" for block in content):
            break
    return -1, ""
