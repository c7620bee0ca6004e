"""Memories as the session's directives ask for them: facts of the user are saved, memories tidied, chosen, checked.

Saved is what the plainest cues say ("remember …", "always …", "never …", "I prefer …", "I am a …"), word for word.
Tidying makes one of exact duplicates and dates absolute. Memories are chosen by telling words that their line shares
with the request.
"""

from __future__ import annotations

import datetime
import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from ipyagent.practice.model.conversation import ATTACHED, WRAPPED, directive, flat, is_ours, texts_of
from ipyagent.practice.replies import Reply, calls, text

_NEWEST: Final = re.compile(r"the newest (\d+) messages? above")
_PLACE: Final = re.compile(r"^- (user|feedback|project|reference): .*? In `([^`\n]+)`", re.M)
_LISTED: Final = re.compile(r"^- \[[^\]\n]*\] (\S+) \([\d-]+\): (.*)$", re.M)
_SENTENCE: Final = re.compile(r"(?<=[.!?。！？])\s+|(?<=[。！？])|\n+|\s*[;；]\s*")
_TOLD: Final = re.compile(r'^<user turn="\d+">\n(.*?)\n</user>$', re.S | re.M)
_DAYS: Final = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
_DAYS_ZH: Final = "一二三四五六日"
_REMEMBER: Final = re.compile(
    r"(?:please )?(?:remember|keep in mind|don't forget)(?: that\b|:)?\s*(.+)"
    r"|请?(?:记住|记一下|别忘了)[：:，,]?\s*(.+)",
    re.I,
)
_CUES: Final = (
    ("user", re.compile(r"i(?: am|'m) an? (?!(?:bit|little|lot|few)\b)|我是一[名个位]", re.I)),
    (
        "feedback",
        re.compile(r"i prefer\b|(?:please |i |we )?(?:always|never)\b|我更?喜欢|我偏好|(?:我们?)?(?:总是|从不)", re.I),
    ),
)
_RULE: Final = re.compile(r"\b(?:always|never)\b|总是|从不", re.I)
"""Makes a rule of what is to be remembered."""
_STOP: Final = frozenset(
    ["the", "and", "for", "that", "with", "are", "is", "am", "an", "always", "never", "please", "we", "my", "prefer",
     "have", "has", "on", "in", "of", "to", "at", "by", "their", "its", "it", "this"]
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Fact:
    """One thing that the user said: the words, the kind of memory, and the sentence as it was typed."""

    text: str
    kind: str
    said: str

    @property
    def digest(self) -> str:
        """What tells it from a fact of the same name."""
        return hashlib.sha256(self.text.encode()).hexdigest()[:8]

    @property
    def name(self) -> str:
        """The memory's name, without an ending."""
        words = [word for word in re.findall(r"[a-z]{2,}", self.text.lower()) if word not in _STOP]
        slug = "_".join(words[:4])[:44]
        return f"{self.kind}_{slug if len(slug) > 3 else self.digest}"


def extracted(body: Mapping[str, Any]) -> Reply:
    """The reply to a directive: all that is to be written, then a word."""
    messages: Sequence[Mapping[str, Any]] = body["messages"]
    at, told = directive(messages)
    if any("command" in given for _, given, _, _ in _rounds(messages, at)):
        return text("Saved.")
    known, places = dict(_LISTED.findall(told)), dict(_PLACE.findall(told))
    most = int(found[1]) if (found := _NEWEST.search(told)) else 1
    wanted: list[tuple[str, dict[str, Any]]] = []
    for fact in facts_in(_said(messages, at, most, told)):
        path = f"{places.get(fact.kind, '/memories').rstrip('/')}/{fact.name}"
        path += f"_{fact.digest}.md" if f"{path}.md" in known else ".md"
        if path not in known and _described(fact) not in known.values():
            wanted.append(("memory", created(path, fact)))
    return calls(wanted, say=None) if wanted else text("Nothing to save.")


def created(path: str, fact: Fact) -> dict[str, Any]:
    """The call that writes a memory of its own for a fact."""
    head = {"name": fact.name, "description": _described(fact), "type": fact.kind}
    lines = ["---", *(f"{key}: {_quoted(value)}" for key, value in head.items()), "---", fact.text]
    if fact.kind != "user":
        lines += ["", "**Why:** the user said so.", "**How to apply:** as the user said."]
    return {"command": "create", "path": path, "file_text": "\n".join(lines) + "\n", "said": fact.said}


def _described(fact: Fact) -> str:
    return fact.text if len(fact.text) <= 140 else fact.text[:139].rstrip() + "…"


def _quoted(value: str) -> str:
    """A YAML scalar; plain where that is safe."""
    return value if re.fullmatch(r"[\w-]+", value) else json.dumps(value, ensure_ascii=False)


def facts_in(said: Sequence[str]) -> list[Fact]:
    """What is to be kept of the user's messages, oldest first; each once."""
    found: dict[str, Fact] = {}
    for message in said:
        for sentence in _SENTENCE.split(re.sub(r"```.*?```", " ", message, flags=re.S)):
            fact = fact_of(sentence)
            if fact is not None:
                found.setdefault(fact.text.casefold(), fact)
    return list(found.values())


def fact_of(sentence: str, *, asked: bool = False) -> Fact | None:
    """A sentence with one of the cues as a fact, else None. `asked`: the user wants it kept, cue or not."""
    words = " ".join(sentence.split()).strip(" .。!！")
    told = _REMEMBER.fullmatch(words)
    if words.endswith(("?", "？")):
        return None
    words = (told[1] or told[2]) if told else words
    kept = "feedback" if _RULE.search(words) else "project"
    kind = next((kind for kind, cue in _CUES if cue.match(words)), kept if told or asked else "")
    return Fact(words, kind, sentence.strip()) if kind else None


def absolute(words: str, today: str) -> str:
    """Days that are named from today on, as dates; without a `today` (YYYY-MM-DD) the words as they are."""
    if not today:
        return words
    now = datetime.date.fromisoformat(today)

    def later(days: int) -> str:
        return (now + datetime.timedelta(days=days)).isoformat()

    words = re.sub(r"\bday after tomorrow\b|后天", later(2), words, flags=re.I)
    words = re.sub(r"\btomorrow\b|明天", later(1), words, flags=re.I)
    words = re.sub(r"\btoday\b|今天", later(0), words, flags=re.I)
    words = re.sub(r"\byesterday\b|昨天", later(-1), words, flags=re.I)
    words = re.sub(r"\bnext week\b", f"the week of {later(7 - now.weekday())}", words, flags=re.I)

    def weekday(found: re.Match[str]) -> str:
        which, ahead = found[1].strip().lower() if found[1] else "", (_DAYS.index(found[2].lower()) - now.weekday()) % 7
        if which in ("every", "each"):  # it has no date
            return found[0]
        if which == "last":
            return later(ahead - 7)
        ahead = ahead or 7
        return later(ahead + 7 * (which == "next" and now.weekday() + ahead < 7))

    days = "|".join(_DAYS)
    words = re.sub(rf"\b(?:on |this )?((?:next|last|every|each) )?({days})\b(?!s)", weekday, words, flags=re.I)

    def weekday_zh(found: re.Match[str]) -> str:
        day = _DAYS_ZH.index(found[2].replace("天", "日"))
        if found[1].startswith("每"):
            return found[0]
        if found[1].startswith(("上", "下")):
            return later((7 if found[1][0] == "下" else -7) - now.weekday() + day)
        return later((day - now.weekday()) % 7 or 7)

    return re.sub(r"(下个?|上个?|每个?|本|这个?|)(?:周|星期)([一二三四五六日天])", weekday_zh, words)


def _said(messages: Sequence[Mapping[str, Any]], at: int, most: int, told: str) -> list[str]:
    """The user's own words in the newest `most` messages before the directive."""
    if read := [words for words in texts_of(messages[at]) if words.startswith("<transcript>\n")]:
        return [words for each in read for words in _TOLD.findall(each)]
    found: list[str] = []
    last = at if any(block is not None for block in _own(messages[at], told)) else at - 1
    for message in messages[max(0, last - most + 1) : at + 1]:
        if message.get("role") == "user":
            found += [ATTACHED.sub(" ", words) for words in _own(message, told)]
    return found


def _own(message: Mapping[str, Any], told: str) -> list[str]:
    """Texts of a user's message that the user wrote: no reminder, no attachment, no words of the session."""
    return [
        words
        for words in texts_of(message)
        if words != told and words.strip() and not WRAPPED.fullmatch(words) and not is_ours(words)
    ]



# ---------------------------------------------------------------------- tidying

_DATED: Final = re.compile(r"^- \[([^\]\n]*)\] (\S+) \((\d{4}-\d{2}-\d{2})\): (.*)$", re.M)
_LINE: Final = re.compile(r"^ *(\d+)\t(.*)$", re.M)
_MOST: Final = 60
"""Memories that are read; the list is newest first."""


@dataclass(frozen=True, slots=True)
class Kept:
    """A memory as it was read: type and folder, path, day of the last write, the lines of its file, and its text."""

    place: tuple[str, str]
    path: str
    day: str
    lines: tuple[str, ...]
    text: str


def dreamed(body: Mapping[str, Any]) -> Reply:
    """The next reply to an order to tidy memories."""
    messages: Sequence[Mapping[str, Any]] = body["messages"]
    at, told = directive(messages)
    listed = _DATED.findall(told)[:_MOST]
    rounds = _rounds(messages, at)
    if not listed:
        return text("There are no memories to tidy.")
    if not rounds:
        wanted = [("memory", {"command": "view", "path": path}) for _, path, _, _ in listed]
        return calls(wanted, say="Orient: what the memories say.")
    if any(name == "memory" and given.get("command") != "view" for name, given, _, _ in rounds):
        return text(_ended(rounds))
    there: dict[tuple[tuple[str, str], str], Kept] = {}
    wanted = []
    for row in listed:
        memory = _read(row, rounds)
        if memory is not None and memory.text and there.setdefault((memory.place, memory.text), memory) is not memory:
            wanted.append(("memory", {"command": "delete", "path": memory.path}))
        elif memory is not None:
            wanted += [("memory", edit) for edit in _dates(memory)]
    if not wanted:
        return text("All is in order; nothing was changed.")
    return calls(wanted, say="Consolidate: of exact duplicates one stays, and dates become absolute.")


def _dates(memory: Kept) -> list[dict[str, Any]]:
    """The edits that make a memory's dates absolute, counted from the day it was written."""
    found: list[dict[str, Any]] = []
    for line in dict.fromkeys(memory.lines):
        after = absolute(line, memory.day)
        if after != line and memory.lines.count(line) == 1:
            found.append({"command": "str_replace", "path": memory.path, "old_str": line, "new_str": after})
    return found


def _rounds(messages: Sequence[Mapping[str, Any]], at: int) -> list[tuple[str, Mapping[str, Any], str, bool]]:
    """The calls since the order: tool, input, result, whether it failed."""
    made: dict[str, tuple[str, Mapping[str, Any]]] = {}
    found: list[tuple[str, Mapping[str, Any], str, bool]] = []
    for message in messages[at + 1 :]:
        for block in message.get("content") or []:
            if not isinstance(block, Mapping):
                continue
            if block.get("type") == "tool_use":
                made[str(block.get("id"))] = (str(block.get("name")), block.get("input") or {})
            elif block.get("type") == "tool_result":
                name, given = made.get(str(block.get("tool_use_id")), ("", {}))
                found.append((name, given, flat(block.get("content")), bool(block.get("is_error"))))
    return found


def _read(row: tuple[str, str, str, str], rounds: Sequence[tuple[str, Mapping[str, Any], str, bool]]) -> Kept | None:
    """A memory of the list with what was read of it; None when it was not readable."""
    kind, path, day, _ = row
    for name, given, result, failed in rounds:
        if name == "memory" and given.get("command") == "view" and given.get("path") == path and not failed:
            lines = tuple(line for _, line in _LINE.findall(result))
            ends = [number for number, line in enumerate(lines) if line.rstrip() == "---"]
            text = "\n".join(lines[ends[1] + 1 :]).strip() if len(ends) > 1 and ends[0] == 0 else ""
            return Kept((kind, path.rpartition("/")[0]), path, day, lines, text)
    return None


def _ended(rounds: Sequence[tuple[str, Mapping[str, Any], str, bool]]) -> str:
    """What was done, in a sentence."""
    done = [given for name, given, _, failed in rounds if name == "memory" and not failed]
    deleted = sum(given.get("command") == "delete" for given in done)
    changed = len({given.get("path") for given in done if given.get("command") in ("insert", "str_replace")})
    failed = sum(failed for name, _, _, failed in rounds if name == "memory")
    return f"Changed {changed}, deleted {deleted}." + (f" {failed} calls were refused." if failed else "")


# ---------------------------------------------------------------------- choosing and checking

_REQUEST: Final = re.compile(r"\n</memory-list>\s*+<user-request>\n")
_CHECK: Final = re.compile(
    r"(?s)\A\s*<check-memory>\n.*\n<words-of-the-user>\n(.*)\n</words-of-the-user>\n"
    r"<memory-to-keep>\n(.*)\n</memory-to-keep>\n</check-memory>\s*\Z"
)
_MOST_CHOSEN: Final = re.compile(r"(?<!\d)(\d{1,9}) is the most")
_CHOICE: Final = re.compile(r"- \[([\w-]+)\] (\S.*?) \(([\d:T+-]+)\): (.*)")
_WORD_OF: Final = re.compile(r"[a-z0-9]+|[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]+")
_UNSPACED: Final = re.compile(r"[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]")
_EMPTY_WORDS: Final = """
a about all also am an and any are as at be been by can could did do does for from had has have he her his how i if
in into is it its just let like make many may me more most my no not of on one only or other our out please same
she should show so some tell than that the their them then there these they this to up us use used user uses using
want was we were what when where which who why will with would you your always never new now project
"""
_NO_WORDS: Final = frozenset(_EMPTY_WORDS.split())
_WARNS: Final = re.compile(
    r"\b(?:never|not|bug|broken|fails?|wrong|beware|warning|careful|avoid|problem|instead)\b|不要|注意", re.I
)
_HOW: Final = re.compile(r"\b(?:how to|usage|guide|manual|tutorial)\b|用法", re.I)


def asked(body: Mapping[str, Any]) -> str:
    """The directive to choose among memories in a request body; "" when it is another request."""
    messages = body.get("messages") or []
    texts = texts_of(messages[-1]) if messages else []
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
    wanted = _stems(request)
    most = int(said[1]) if (said := _MOST_CHOSEN.search(directive)) else 5
    in_use = {tool.strip() for tool in tools.split(",")}
    found: list[tuple[int, int, str, list[str]]] = []
    for place, line in enumerate(listed.splitlines()):
        match = _CHOICE.fullmatch(line)
        if match is None:
            continue
        _, name, _, told = match.groups()
        shared = sorted(wanted & _stems(f"{name.rpartition('/')[2].removesuffix('.md')} {told}"))
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
    texts = texts_of(messages[-1]) if messages else []
    return next((text for text in texts if _CHECK.search(text)), "")


def checked(directive: str) -> str:
    """The answer to that: a sentence of which half is not the user's own words, or a new number, goes beyond."""
    found = _CHECK.search(directive)
    said, memory = found.groups() if found else ("", "")
    known, adds = _stems(said), ""
    for line in memory.splitlines():
        there = _stems(line)
        more = there - known
        if (more and 2 * len(more) >= len(there)) or any(map(str.isdigit, more)):
            adds = adds or " ".join(sorted(more)[:10])
    return json.dumps({"adds": adds or "nothing", "beyond": bool(adds)}, ensure_ascii=False)


def _stems(text: str) -> set[str]:
    """Words that tell something, without English plural ends; pairs of unspaced characters."""
    found: set[str] = set()
    for word in _WORD_OF.findall(text.lower().replace("_", " ")):
        if _UNSPACED.match(word):
            found |= {word[at : at + 2] for at in range(len(word) - 1)}
        elif word not in _NO_WORDS and len(word) > 1:
            found.add(_stemmed(word))
    return found


def _stemmed(word: str) -> str:
    for end in ("ing", "ed", "es", "s"):
        if word.endswith(end) and len(word) - len(end) >= 3:
            word = word[: -len(end)]
            break
    return word[:-1] if len(word) > 3 and word[-1] == word[-2] and word[-1] not in "lsz" else word.removesuffix("e")
