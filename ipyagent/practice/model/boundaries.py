"""Tells the blocks that a compaction left in a user's message, and the session's own directives, from the user's words.

What stands for earlier turns is a summary, notes, or a server's `compaction` block; beside it may stand the newest
request word for word and words of the session about it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

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
_TWO: Final = re.compile(r"Two orders follow[^\n]*+\n")
_UPDATE: Final = re.compile(r"<update-notes file=\"([^\"\n]+)\">\n")
_BETWEEN: Final = re.compile(r"\n</update-notes>\s*+<extract-memories>\n")


def earlier(text: str) -> str:
    """The summary or the notes in a block that stands for earlier turns; "" for other blocks."""
    return (_earlier(text) or "").strip()


def _earlier(text: str) -> str | None:
    found = _EARLIER.match(text)
    if found is None:
        return None
    last, inside = -1, None
    for tag in ("summary", "notes"):
        end = text.rfind(f"</{tag}>")
        start = text.rfind(f"<{tag}>", found.end(), max(end, 0))
        if start > last:
            last, inside = start, text[start + len(tag) + 2 : end]
    return inside


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


def asks_for_summary(text: str) -> bool:
    """Whether this asks to summarise the conversation in the tags of a compaction."""
    return "<analysis>" in text and "<summary>" in text


def notes_asked(text: str) -> tuple[str, str] | None:
    """The file and the words of a directive to bring the notes up to date; None for other texts."""
    text = text.strip()
    start = found.end() if (found := _TWO.match(text)) else 0
    named = _UPDATE.match(text, start)
    if named is None:
        return None
    if text.endswith("\n</update-notes>"):
        return named[1], text[named.end() : -len("\n</update-notes>")]
    between = _BETWEEN.search(text, named.end() - 1)
    if between is None or not text.endswith("\n</extract-memories>"):
        return None
    return named[1], text[named.end() : between.start()]


def asks_to_extract(text: str) -> bool:
    """Whether this asks to save what is worth remembering of the conversation."""
    if _inside(text, "extract-memories") is not None:
        return True
    text = text.strip()
    start = found.end() if (found := _TWO.match(text)) else 0
    both = start and text.startswith("<update-notes", start) and text.endswith("\n</extract-memories>")
    return bool(both) and _BETWEEN.search(text, start) is not None


def asks_to_dream(text: str) -> bool:
    """Whether this asks to tidy the memories."""
    return _inside(text, "dream") is not None


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
