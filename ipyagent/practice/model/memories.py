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

from ipyagent.practice.model import conversation as said_by
from ipyagent.practice.replies import Reply, calls, text

_NEWEST: Final = re.compile(r"the newest (\d+) messages? above")
_PLACE: Final = re.compile(r"^- (user|feedback|project|reference): .*? In `([^`\n]+)`", re.M)
_LISTED: Final = re.compile(r"^- \[[^\]\n]*\] (\S+) \([\d-]+\): (.*)$", re.M)
_SENTENCE: Final = re.compile(r"(?<=[.!?。！？])\s+|(?<=[。！？])|\n+|\s*[;；]\s*")
_TOLD: Final = re.compile(r'^<user turn="\d+">\n(.*?)\n</user>$', re.S | re.M)
_DAYS: Final = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
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
    at, told = said_by.directive(messages)
    if any("command" in step.input for step in _since(messages, at)):
        return text("Saved.")
    known, places = dict(_LISTED.findall(told)), dict(_PLACE.findall(told))
    most = int(found[1]) if (found := _NEWEST.search(told)) else 1
    wanted: list[tuple[str, dict[str, Any]]] = []
    for fact in facts_in(_said(messages, at, most, told)):
        path = f"{places.get(fact.kind, '/memories').rstrip('/')}/{fact.name}"
        path += f"_{fact.digest}.md" if f"{path}.md" in known else ".md"
        if path not in known and said_by.cut(fact.text, 140) not in known.values():
            wanted.append(("memory", created(path, fact)))
    return calls(wanted, say=None) if wanted else text("Nothing to save.")


def created(path: str, fact: Fact) -> dict[str, Any]:
    """The call that writes a memory of its own for a fact."""
    head = {"name": fact.name, "description": said_by.cut(fact.text, 140), "type": fact.kind}
    lines = ["---", *(f"{key}: {_quoted(value)}" for key, value in head.items()), "---", fact.text]
    if fact.kind != "user":
        lines += ["", "**Why:** the user said so.", "**How to apply:** as the user said."]
    return {"command": "create", "path": path, "file_text": "\n".join(lines) + "\n", "said": fact.said}


def _quoted(value: str) -> str:
    """A YAML scalar; plain where that is safe."""
    return value if re.fullmatch(r"[\w-]+", value) else json.dumps(value, ensure_ascii=False)


def facts_in(said: Sequence[str]) -> list[Fact]:
    """What is to be kept of the user's messages, oldest first; each once."""
    plain = (re.sub(r"```.*?```", " ", message, flags=re.S) for message in said)
    facts = [fact for message in plain for each in _SENTENCE.split(message) if (fact := fact_of(each))]
    return list({fact.text.casefold(): fact for fact in reversed(facts)}.values())[::-1]


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
    """Today, tomorrow, yesterday and English weekdays as dates, seen from `today` (YYYY-MM-DD; "": the words as they
    are). A day of the last or the next week, or of every week, stays."""
    if not today:
        return words
    now = datetime.date.fromisoformat(today)
    named = {r"\btomorrow\b|明天": 1, r"\btoday\b|今天": 0, r"\byesterday\b|昨天": -1}
    named |= {rf"\b(?:(?:on|this) )?\b{day}\b": (at - now.weekday()) % 7 or 7 for at, day in enumerate(_DAYS)}
    for at, (day, days) in enumerate(named.items()):  # "after tomorrow" is another day, "after Monday" is not
        before = ("after", "before") if at < 3 else ("next", "last", "every", "each")
        other = "".join(f"(?<!{word} )" for word in before)
        words = re.sub(f"{other}(?:{day})", (now + datetime.timedelta(days)).isoformat(), words, flags=re.I)
    return words


def _said(messages: Sequence[Mapping[str, Any]], at: int, most: int, told: str) -> list[str]:
    """The user's own words in the newest `most` messages before the directive."""
    if given := [words for words in said_by.texts_of(messages[at]) if words.startswith("<transcript>\n")]:
        return [words for each in given for words in _TOLD.findall(each)]
    last = at if _own(messages[at], told) else at - 1
    asked = [message for message in messages[max(0, last - most + 1) : at + 1] if message.get("role") == "user"]
    return [said_by.ATTACHED.sub(" ", words) for message in asked for words in _own(message, told)]


def _own(message: Mapping[str, Any], told: str) -> list[str]:
    """Texts of a user's message that the user wrote: no reminder, no attachment, no words of the session."""
    return [
        words
        for words in said_by.texts_of(message)
        if words != told and words.strip() and not said_by.WRAPPED.fullmatch(words) and not said_by.is_ours(words)
    ]


_DATED: Final = re.compile(r"^- \[([^\]\n]*)\] (\S+) \((\d{4}-\d{2}-\d{2})\): ", re.M)
_LINE: Final = re.compile(r"^ *(\d+)\t(.*)$", re.M)
_MOST: Final = 60
"""Memories that are read; the list is newest first."""


def dreamed(body: Mapping[str, Any]) -> Reply:
    """The next reply to an order to tidy memories: read them, then delete exact duplicates and make dates absolute."""
    messages: Sequence[Mapping[str, Any]] = body["messages"]
    at, told = said_by.directive(messages)
    listed = _DATED.findall(told)[:_MOST]
    done = [step for step in _since(messages, at) if step.tool == "memory"]
    if not listed:
        return text("There are no memories to tidy.")
    if not done:
        wanted = [("memory", {"command": "view", "path": path}) for _, path, _ in listed]
        return calls(wanted, say="Orient: what the memories say.")
    if any(step.input.get("command") != "view" for step in done):
        deleted = sum(step.input.get("command") == "delete" and not step.failed for step in done)
        edits = [step for step in done if step.input.get("command") == "str_replace" and not step.failed]
        changed = {step.input["path"] for step in edits}
        failed = sum(step.failed for step in done)
        return text(f"Changed {len(changed)}, deleted {deleted}." + f" {failed} calls were refused." * bool(failed))
    seen = {str(step.input.get("path")): _LINE.findall(step.text) for step in done if not step.failed}
    there: set[tuple[str, str, str]] = set()
    wanted = []
    for kind, path, day in listed:
        lines = [line for _, line in seen.get(path, [])]
        ends = [number for number, line in enumerate(lines) if line.rstrip() == "---"]
        said = "\n".join(lines[ends[1] + 1 :]).strip() if len(ends) > 1 and ends[0] == 0 else ""
        same = (kind, path.rpartition("/")[0], said)
        if said and same in there:
            wanted.append(("memory", {"command": "delete", "path": path}))
            continue
        there.add(same)
        for line in dict.fromkeys(lines):
            if (dated := absolute(line, day)) != line and lines.count(line) == 1:
                edit = {"command": "str_replace", "path": path, "old_str": line, "new_str": dated}
                wanted.append(("memory", edit))
    if not wanted:
        return text("All is in order; nothing was changed.")
    return calls(wanted, say="Consolidate: of exact duplicates one stays, and dates become absolute.")


def _since(messages: Sequence[Mapping[str, Any]], at: int) -> tuple[said_by.Step, ...]:
    """The calls since the order, with their results."""
    return said_by.read({"messages": messages[at:]}).turn.steps


_SELECT: Final = re.compile(
    r"(?s)\s*<select-memories>(?>.*?<tools-in-use>)(?>(.*?)</tools-in-use>)(?>.*?<memory-list>\n)"
    r"(?>(.*?)\n</memory-list>\s*)<user-request>\n(.*)\n</user-request>\s*</select-memories>\s*"
)
"""The tools in use, the list of memories and the request in a directive; the first mark of each kind counts."""
_CHECK: Final = re.compile(
    r"(?s)\A\s*<check-memory>\n(?>.*?\n<words-of-the-user>\n)"
    r"(?>(.*?)\n</words-of-the-user>\n<memory-to-keep>\n)(.*)\n</memory-to-keep>\n</check-memory>\s*\Z"
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
    return next((text for text in said_by.last_texts(body) if _SELECT.fullmatch(text)), "")


def selected(directive: str) -> str:
    """The answer to the directive: JSON in the format that it asks for."""
    told = _SELECT.fullmatch(directive)
    tools, listed, request = told.groups() if told else ("", "", "")
    wanted = _stems(request)
    most = int(said[1]) if (said := _MOST_CHOSEN.search(directive)) else 5
    in_use = [tool.strip() for tool in tools.split(",") if tool.strip()]
    found: list[tuple[int, str, list[str]]] = []
    for match in filter(None, map(_CHOICE.fullmatch, listed.splitlines())):
        name, about = match[2], match[4]
        shared = sorted(wanted & _stems(f"{name.rpartition('/')[2].removesuffix('.md')} {about}"))
        usage = _HOW.search(about) and not _WARNS.search(about) and any(tool in about for tool in in_use)
        found += [(-len(shared), name, shared)] if shared and not usage else []
    best = sorted(found, key=lambda each: each[0])[:most]
    memories = [{"file": name, "why": f"about {', '.join(shared[:4])}"} for _, name, shared in best]
    return json.dumps({"memories": memories}, ensure_ascii=False)


def check_asked(body: Mapping[str, Any]) -> str:
    """The directive to check a memory in a request body; "" when it is another request."""
    return next((text for text in said_by.last_texts(body) if _CHECK.search(text)), "")


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
