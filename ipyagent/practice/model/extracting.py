"""Writes what the user said and what will still matter into memories, as a directive for it asks.

Only the user's own words are looked at, never results, attachments or names. A fact whose memory exists is
brought up to date there; what is in it already is not written again.
"""

from __future__ import annotations

import datetime
import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from ipyagent.practice.replies import Reply, calls, text

from . import boundaries
from .conversation import ATTACHED, WRAPPED, flat
from .phrases import bag

_NEWEST: Final = re.compile(r"the newest (\d+) messages? above")
_TODAY: Final = re.compile(r"Today is \w+ (\d{4}-\d{2}-\d{2})")
_PLACE: Final = re.compile(r"^- (user|feedback|project|reference): .*? In `([^`\n]+)`", re.M)
_LISTED: Final = re.compile(r"^- \[[^\]\n]*\] (\S+) \([\d-]+\): (.*)$", re.M)
_SENTENCE: Final = re.compile(r"(?<=[.!?。！？])\s+|(?<=[。！？])|\n+|\s*[;；]\s*")
_NUMBERED: Final = re.compile(r"^\s*\d+[\t:|]\s?", re.M)
_TOLD: Final = re.compile(r'^<user turn="\d+">\n(.*?)\n</user>$', re.S | re.M)
_BODY: Final = re.compile(r"^---\n(.*?)\n---\n\n?(.*)", re.S | re.M)
_DAYS: Final = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
_DAYS_ZH: Final = "一二三四五六日"

_LEAD: Final = re.compile(
    r"^\s*(?:(?:hi|hello|hey|ok(?:ay)?|thanks?(?: you)?|sorry|great|well|so|also|and|but|btw|by the way|note that"
    r"|remember(?: that|:)?|keep in mind(?: that|:)?|don't forget(?: that|:)?|for the record)\b\s*[,:!.]?\s*"
    r"|(?:你好|另外|顺便说一下|请?记住|请?记一下|别忘了)[，,:：]?\s*)+",
    re.I,
)
_REMEMBER: Final = re.compile(
    r"^\s*(?:please )?(?:remember|keep in mind|don't forget)\b|^请?(?:记住|记一下|别忘了)", re.I
)
_PLACES: Final = (
    r"\b(?:dashboards?|wiki|docs?|documentation|tracke[dr]|tickets?|board|runbook|repo|spec|handbook)\b|看板|文档"
)
_RULES: Final[tuple[tuple[str, str, str], ...]] = (
    (
        "user",
        "role",
        r"\bi(?: am|'m) (?:an?|the|new to|responsible for|in charge of|working (?:as|at)|from)\b"
        r"|\bi work (?:as|at|for|in)\b|\bmy (?:role|job|title|team) is\b|我是(?:一名|一个|一位|做|个)"
        r"|我的(?:职业|工作|角色)是",
    ),
    ("user", "name", r"\bmy name is\b|\bcall me\b|我叫|我的名字"),
    ("feedback", "naming", r"^(?:let's |please |we )?(?:call|name) (?:it|this|that|them|the \w+)\b|把.{1,20}叫做?"),
    ("reference", "", rf"^(?!(?:load|read|open|fetch|get|download)\b)(?=.*https?://\S).*(?:{_PLACES})"),
    ("project", "deadline", r"\bdeadline\b|\b(?:is|are) due\b|截止日期|截止时间"),
    (
        "feedback",
        "",
        r"\b(?:always|never)\b|\bfrom now on\b|\bin (?:the )?future\b|\bi (?:prefer|like|dislike|hate)\b"
        r"|总是|永远|以后|我(?:更?喜欢|偏好)",
    ),
    (
        "project",
        "",
        r"\bwe (?:decided|agreed)\b|\bis responsible for\b|\bis (?:owned|maintained) by\b"
        r"|\bthe (?:release|launch|freeze|review|presentation|meeting) is\b|我们决定|由.{1,12}负责",
    ),
)
_SINGLE: Final = ("role", "name")
"""Topics of which there is one memory only."""
_COMPILED: Final = tuple((kind, topic, re.compile(rule, re.I)) for kind, topic, rule in _RULES)
_STOP: Final = bag(
    "the and for that with about what you use our are always never please from now future prefer like was has have "
    "not this its they them then than will should must can all any call name work is it we on in at of by to "
    "https am my so"
)


@dataclass(frozen=True, slots=True)
class Fact:
    """One thing that the user said: the sentence with absolute dates, the kind of memory, its topic when there is
    only one memory of that ("" else), and the sentence as it was typed."""

    text: str
    kind: str
    topic: str = ""
    said: str = ""

    @property
    def name(self) -> str:
        """The memory's name, without an ending."""
        found = re.findall(r"[a-z0-9]+", self.text.lower())
        words = [word for word in found if len(word) > 1 and not word.isdigit() and word not in (*_STOP, self.topic)]
        slug = "_".join(["deadline"] * (self.topic == "deadline") + words[:4])[:44]
        letters = re.sub(r"[\d_]", "", slug)
        return f"{self.kind}_{slug if len(letters) > 3 else hashlib.sha256(self.text.encode()).hexdigest()[:8]}"


def extracted(body: Mapping[str, Any]) -> Reply:
    """The next reply to a directive: first what must be read, then all that is to be written, then a word."""
    messages: Sequence[Mapping[str, Any]] = body["messages"]
    at, told = boundaries.directive(messages)
    known = dict(_LISTED.findall(told))
    places = dict(_PLACE.findall(told))
    most = int(found[1]) if (found := _NEWEST.search(told)) else 1
    today = found[1] if (found := _TODAY.search(told)) else ""
    facts = [fact for fact in facts_in(_said(messages, at, most, told), today) if fact.text not in known.values()]
    same = {fact: path for fact in facts if (path := _same(fact, known))}
    done = _calls_after(messages, at)
    if not done and same:
        return calls([("memory", {"command": "view", "path": path}) for path in dict.fromkeys(same.values())], say=None)
    if any(given.get("command") != "view" for given, _ in done):
        return text("Saved.")
    seen = {str(given.get("path")): _NUMBERED.sub("", result) for given, result in done}
    wanted: list[tuple[str, dict[str, Any]]] = []
    for fact in facts:
        if fact not in same:
            folder = places.get(fact.kind, "/memories").rstrip("/")
            wanted.append(("memory", created(f"{folder}/{fact.name}.md", fact)))
        else:
            wanted += [("memory", edit) for edit in edits(same[fact], seen.get(same[fact], ""), fact)]
    return calls(wanted, say=None) if wanted else text("Nothing to save.")


def created(path: str, fact: Fact) -> dict[str, Any]:
    """The call that writes a memory of its own for a fact."""
    return {"command": "create", "path": path, "file_text": memory_text(fact), "said": fact.said or fact.text}


def memory_text(fact: Fact) -> str:
    """The file: frontmatter, the fact, and why and how for feedback and project."""
    head = {"name": fact.name, "description": _described(fact), "type": fact.kind}
    lines = ["---", *(f"{key}: {_quoted(value)}" for key, value in head.items()), "---", fact.text]
    if fact.kind in ("feedback", "project"):
        lines += ["", "**Why:** the user said so.", "**How to apply:** as the user said."]
    return "\n".join(lines) + "\n"


def facts_in(said: Sequence[str], today: str = "") -> list[Fact]:
    """What is worth keeping of the user's messages, oldest first; of two about one thing the newer."""
    found: dict[str, Fact] = {}
    for message in said:
        for sentence in _SENTENCE.split(re.sub(r"```.*?```", " ", message, flags=re.S)):
            fact = fact_of(sentence, today)
            if fact is not None:
                key = fact.topic if fact.topic in _SINGLE else fact.name
                found.pop(key, None)
                found[key] = fact
    return list(found.values())


def fact_of(sentence: str, today: str = "", *, asked: bool = False) -> Fact | None:
    """A sentence as a fact; None for a question, a task, or small talk. `asked`: the user wants it kept."""
    asked = asked or bool(_REMEMBER.match(sentence))
    words = _LEAD.sub("", " ".join(sentence.split())).strip(" .。!！")
    if len(words) < 6 - 3 * bool(re.search(r"[\u3400-\u9fff]", words)) or sentence.rstrip().endswith(("?", "？")):
        return None
    if not _words(words):
        return None
    words = absolute(words, today)
    for kind, topic, rule in _COMPILED:
        if rule.search(words):
            return Fact(words, kind, topic, sentence.strip())
    return Fact(words, "project", said=sentence.strip()) if asked else None


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


# ---------------------------------------------------------------------- reading the request


def _said(messages: Sequence[Mapping[str, Any]], at: int, most: int, told: str) -> list[str]:
    """The user's own words in the newest `most` messages before the directive."""
    if read := [words for words in boundaries.texts_of(messages[at]) if words.startswith("<transcript>\n")]:
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
        for words in boundaries.texts_of(message)
        if words != told and words.strip() and not WRAPPED.fullmatch(words) and not boundaries.is_ours(words)
    ]


def _calls_after(messages: Sequence[Mapping[str, Any]], at: int) -> list[tuple[Mapping[str, Any], str]]:
    """The calls that were made since the directive, with their results."""
    made: dict[str, Mapping[str, Any]] = {}
    found: list[tuple[Mapping[str, Any], str]] = []
    for message in messages[at + 1 :]:
        for block in message.get("content") or []:
            if not isinstance(block, Mapping):
                continue
            if block.get("type") == "tool_use":
                made[str(block.get("id"))] = block.get("input") or {}
            elif block.get("type") == "tool_result":
                result = "" if block.get("is_error") else flat(block.get("content"))
                found.append((made.get(str(block.get("tool_use_id")), {}), result))
    return [(given, result) for given, result in found if "command" in given]  # the others are edits of notes


# ---------------------------------------------------------------------- what exists already


def _same(fact: Fact, known: Mapping[str, str]) -> str:
    """The memory that is about the same: by its name, its topic, or most of its words; "" for none."""
    wanted = _words(fact.text) - {fact.topic}
    best = ("", 0.0)
    for path, description in known.items():
        if path.rsplit("/", 1)[-1] == f"{fact.name}.md":
            return path
        other = fact_of(description)
        there = _words(description) - {fact.topic}
        common = len(wanted & there)
        share = common / max(1, min(len(wanted), len(there)))
        if other is not None and fact.topic and (other.kind, other.topic) == (fact.kind, fact.topic):
            share = 1.0 if fact.topic in _SINGLE or common or not wanted or not there else 0.0
        elif common < 2:
            share = 0.0
        if share > best[1]:
            best = (path, share)
    return best[0] if best[1] >= 0.75 else ""


def _words(said: str) -> set[str]:
    """Words that carry meaning, and pairs of Chinese characters; dates and figures left out."""
    found = {word for word in re.findall(r"[a-z]{3,}", said.lower()) if word not in _STOP}
    for run in re.findall(r"[\u3400-\u9fff]{2,}", said):
        found |= {run[i : i + 2] for i in range(len(run) - 1)}
    return found


def edits(path: str, there: str, fact: Fact) -> list[dict[str, Any]]:
    """The edit that brings a memory up to date, one for all that changes; none when it says so already or was
    not readable."""
    found = _BODY.search(there)
    if found is None or fact.text in found[2]:
        return []
    old = next((line for line in found[2].splitlines() if line.strip()), "")
    described = next((line for line in found[1].splitlines() if line.startswith("description:")), "")
    if not old or not described:
        return []
    first = there.index(described)
    before = there[first : there.index(old, found.start(2)) + len(old)]
    after = f"description: {_quoted(_described(fact))}{before[len(described) : -len(old)]}{fact.text}"
    said = fact.said or fact.text
    return [{"command": "str_replace", "path": path, "old_str": before, "new_str": after, "said": said}]


def _described(fact: Fact) -> str:
    return fact.text if len(fact.text) <= 140 else fact.text[:139].rstrip() + "…"


def _quoted(value: str) -> str:
    """A YAML scalar; plain where that is safe."""
    return value if re.fullmatch(r"[\w-]+", value) else json.dumps(value, ensure_ascii=False)
