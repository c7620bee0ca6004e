"""Chooses among memories as a small model would, those whose line shares telling words with the request, and tells by
words whether a memory goes beyond what the user said."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any, Final

from . import boundaries

_REQUEST: Final = re.compile(r"\n</memory-list>\s*+<user-request>\n")
_CHECK: Final = re.compile(
    r"(?s)\A\s*<check-memory>\n.*\n<words-of-the-user>\n(.*)\n</words-of-the-user>\n"
    r"<memory-to-keep>\n(.*)\n</memory-to-keep>\n</check-memory>\s*\Z"
)
_MOST: Final = re.compile(r"(?<!\d)(\d{1,9}) is the most")
_LINE: Final = re.compile(r"- \[([\w-]+)\] (\S.*?) \(([\d:T+-]+)\): (.*)")
_WORD: Final = re.compile(r"[a-z0-9]+|[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]+")
_UNSPACED: Final = re.compile(r"[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]")
_EMPTY_WORDS: Final = """
a about all also am an and any are as at be been by can could did do does for from had has have he her his how i if
in into is it its just let like make many may me more most my no not of on one only or other our out please same
she should show so some tell than that the their them then there these they this to up us use used user uses using
want was we were what when where which who why will with would you your always never new now project
"""
_EMPTY: Final = frozenset(_EMPTY_WORDS.split())
_WARNS: Final = re.compile(
    r"\b(?:never|not|bug|broken|fails?|wrong|beware|warning|careful|avoid|problem|instead)\b|不要|注意", re.I
)
_HOW: Final = re.compile(r"\b(?:how to|usage|guide|manual|tutorial)\b|用法", re.I)


def asked(body: Mapping[str, Any]) -> str:
    """The directive to choose among memories in a request body; "" when it is another request."""
    messages = body.get("messages") or []
    texts = boundaries.texts_of(messages[-1]) if messages else []
    return next((text for text in texts if _parts(text)), "")


def _parts(text: str) -> tuple[str, str, str] | None:
    """The tools in use, the list of memories and the request in a directive; None for other texts."""
    text = text.strip()
    if not text.startswith("<select-memories>") or not text.endswith("</select-memories>"):
        return None
    tools, closed, rest = text.partition("<tools-in-use>")[2].partition("</tools-in-use>")
    rest = rest.removesuffix("</select-memories>").rstrip().partition("<memory-list>\n")[2]
    between = _REQUEST.search(rest)
    request = rest[between.end() :] if between else ""
    if not closed or between is None or not request.endswith("\n</user-request>"):
        return None
    return tools, rest[: between.start()], request.removesuffix("\n</user-request>")


def selected(directive: str) -> str:
    """The answer to the directive: JSON in the format that it asks for."""
    parts = _parts(directive)
    if parts is None:
        return json.dumps({"memories": []})
    tools, listed, request = parts
    wanted = _words(request)
    most = int(said[1]) if (said := _MOST.search(directive)) else 5
    in_use = {tool.strip() for tool in tools.split(",")}
    found: list[tuple[int, int, str, list[str]]] = []
    for place, line in enumerate(listed.splitlines()):
        match = _LINE.fullmatch(line)
        if match is None:
            continue
        _, name, _, told = match.groups()
        shared = sorted(wanted & _words(f"{name.rpartition('/')[2].removesuffix('.md')} {told}"))
        usage = _HOW.search(told) and not _WARNS.search(told) and any(tool and tool in told for tool in in_use)
        if shared and not usage:
            found.append((-len(shared), place, name, shared))
    best = sorted(found)[:most]
    return json.dumps(
        {"memories": [{"file": name, "why": f"about {', '.join(shared[:4])}"} for _, _, name, shared in best]},
        ensure_ascii=False,
    )


def check_asked(body: Mapping[str, Any]) -> str:
    """The directive to check a memory in a request body; "" when it is another request."""
    messages = body.get("messages") or []
    texts = boundaries.texts_of(messages[-1]) if messages else []
    return next((text for text in texts if _CHECK.search(text)), "")


def checked(directive: str) -> str:
    """The answer to that: a sentence of which half is not the user's own words, or a new number, goes beyond."""
    found = _CHECK.search(directive)
    said, memory = found.groups() if found else ("", "")
    known, adds = _words(said), ""
    for line in memory.splitlines():
        there = _words(line)
        more = there - known
        if (more and 2 * len(more) >= len(there)) or any(map(str.isdigit, more)):
            adds = adds or " ".join(sorted(more)[:10])
    return json.dumps({"adds": adds or "nothing", "beyond": bool(adds)}, ensure_ascii=False)


def _words(text: str) -> set[str]:
    """Words that tell something, without English plural ends; pairs of unspaced characters."""
    found: set[str] = set()
    for word in _WORD.findall(text.lower().replace("_", " ")):
        if _UNSPACED.match(word):
            found |= {word[at : at + 2] for at in range(len(word) - 1)}
        elif word not in _EMPTY and len(word) > 1:
            found.add(_stem(word))
    return found


def _stem(word: str) -> str:
    for end in ("ing", "ed", "es", "s"):
        if word.endswith(end) and len(word) - len(end) >= 3:
            word = word[: -len(end)]
            break
    return word[:-1] if len(word) > 3 and word[-1] == word[-2] and word[-1] not in "lsz" else word.removesuffix("e")
