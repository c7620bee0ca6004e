"""Memories as the session's directives ask for them: facts of the user are saved, memories tidied, chosen, checked.

Only the user's own words are saved, never results, attachments or names; a fact whose memory exists is brought up to
date there. Tidying makes one of duplicates, dates absolute, and takes out what a look at the files refutes; nothing is
made up. Memories are chosen by telling words that their line shares with the request.
"""

from __future__ import annotations

import datetime
import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any, Final

from ipyagent.practice.model.conversation import ATTACHED, WRAPPED, bag, directive, flat, is_ours, texts_of
from ipyagent.practice.replies import Reply, calls, text

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
    at, told = directive(messages)
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


_DATED: Final = re.compile(r"^- \[([^\]\n]*)\] (\S+) \((\d{4}-\d{2}-\d{2})\): (.*)$", re.M)
_LINE: Final = re.compile(r"^ *(\d+)\t(.*)$", re.M)
_SENTENCE_END: Final = re.compile(r"(?<=[.!?])\s+|(?<=[。！？])|\n+")
_FILE: Final = re.compile(r"`([\w./-]+\.[A-Za-z]\w{1,7})`")
_STANDS: Final = re.compile(
    r"\b(?:is|are|lies?|lives?|stands?|sits?|(?:is|are) kept|holds?|contains?|has|have)\b|在|位于|保存", re.I
)
_MOST: Final = 60
"""Memories that are read; the list is newest first."""
_ALIKE: Final = 0.75
_SAID_OF_ALL: Final = bag("any said user why apply how")
_LABEL: Final = re.compile(r"^\*\*[^*\n]{1,30}:\*\*")


@dataclass(frozen=True, slots=True)
class Kept:
    """A memory as it was read: path, type, day of the last write, description, and the numbered lines of its file,
    the first one being 1; `body` is the number of lines before the text begins."""

    path: str
    kind: str
    day: str
    about: str
    lines: tuple[str, ...]
    body: int

    @property
    def sentences(self) -> tuple[str, ...]:
        """What it says, without labelled lines such as **Why:**."""
        told = "\n".join(line for line in self.lines[self.body :] if not _LABEL.match(line))
        return tuple(found.strip() for found in _SENTENCE_END.split(told) if found.strip())

    @property
    def words(self) -> set[str]:
        """The words that tell what it is about."""
        return _about("\n".join([self.about, *self.sentences]))


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
    kept = [memory for row in listed if (memory := _read(row, rounds)) is not None]
    asked = {str(given.get("pattern")): result for name, given, result, _ in rounds if name == "glob"}
    files = {file: f"**/{file.rpartition('/')[2]}" for memory in kept for file in _named(memory)}
    if files and not asked:
        wanted = [("glob", {"pattern": pattern}) for pattern in dict.fromkeys(files.values())]
        return calls(wanted, say="Gather: whether the files that memories name are still there.")
    gone = {file for file, pattern in files.items() if not _found(asked.get(pattern, pattern), file)}
    edits, away = _changes(kept, gone)
    done = [given for name, given, _, _ in rounds if name == "memory" and given.get("command") != "view"]
    if edits and not done:
        return calls([("memory", edit) for edit in edits], say="Consolidate: what is the same becomes one.")
    refused = {str(given.get("path")) for name, given, _, failed in rounds if name == "memory" and failed}
    left = [path for path, into in away.items() if into not in refused and path not in refused]
    if left and not any(given.get("command") == "delete" for given in done):
        wanted = [("memory", {"command": "delete", "path": path}) for path in left]
        return calls(wanted, say="Prune: what is in another memory, or no longer holds.")
    return text(_ended(rounds) if done else "All is in order; nothing was changed.")


# ---------------------------------------------------------------------- what is to be done


def _changes(kept: Sequence[Kept], gone: set[str]) -> tuple[list[dict[str, Any]], dict[str, str]]:
    """The edits, and the memories that go with the one that has what they say ("" when it no longer holds)."""
    away = {memory.path: "" for memory in kept if _is_refuted(memory, gone)}
    edits = [edit for memory in kept if memory.path not in away for edit in _dates(memory)]
    for newer, older in combinations(kept, 2):
        if newer.path in away or older.path in away or not _alike(newer, older):
            continue
        away[older.path] = newer.path
        here = [_about(sentence) for sentence in newer.sentences]
        added = [absolute(each, older.day) for each in older.sentences if _about(each) and _about(each) not in here]
        if added:  # what says the same, with an older number, is refuted
            place = {"command": "insert", "path": newer.path, "insert_line": len(newer.lines)}
            edits.append({**place, "insert_text": "\n" + "\n".join(added) + "\n"})
    edits = [edit for edit in edits if edit["path"] not in away]
    return edits, away


def _dates(memory: Kept) -> list[dict[str, Any]]:
    """The edits that make a memory's dates absolute, counted from the day it was written."""
    found: list[dict[str, Any]] = []
    for line in dict.fromkeys(memory.lines):
        after = absolute(line, memory.day)
        if after != line and memory.lines.count(line) == 1:
            found.append({"command": "str_replace", "path": memory.path, "old_str": line, "new_str": after})
    return found


def _is_refuted(memory: Kept, gone: set[str]) -> bool:
    """Whether all that a memory says is where files are, or what is in them, that are not there."""
    if not gone:
        return False
    told = [sentence for sentence in memory.sentences if _about(sentence)]
    return bool(told) and all(
        (files := _FILE.findall(sentence)) and _STANDS.search(sentence) and set(files) <= gone for sentence in told
    )


def _alike(one: Kept, other: Kept) -> bool:
    """Whether two memories are about the same."""
    if one.kind != other.kind or one.path.split("/")[2] != other.path.split("/")[2]:
        return False
    mine, its = one.words, other.words
    common = len(mine & its)
    return common >= 3 and common / max(1, min(len(mine), len(its))) >= _ALIKE


def _named(memory: Kept) -> list[str]:
    """Files of the project that a project's or reference memory names in backticks."""
    if memory.kind not in ("project", "reference") or not memory.path.startswith("/memories/project/"):
        return []
    found = [file for sentence in memory.sentences for file in _FILE.findall(sentence)]
    return [file for file in found if not file.startswith(("/", ".."))]


def _found(result: str, file: str) -> bool:
    """Whether a listing of files has one of this name, or could not be had."""
    name = file.rpartition("/")[2]
    return any(line.strip().rstrip("/").endswith(name) for line in result.splitlines()) or result.startswith("**/")


# ---------------------------------------------------------------------- what has happened


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
    kind, path, day, about = row
    for name, given, result, failed in rounds:
        if name == "memory" and given.get("command") == "view" and given.get("path") == path and not failed:
            lines = tuple(line for _, line in _LINE.findall(result))
            ends = [number for number, line in enumerate(lines) if line.rstrip() in ("---", "...")]
            return Kept(path, kind, day, about, lines, ends[1] + 1 if len(ends) > 1 and ends[0] == 0 else 0)
    return None


def _ended(rounds: Sequence[tuple[str, Mapping[str, Any], str, bool]]) -> str:
    """What was done, in a sentence."""
    done = [given for name, given, _, failed in rounds if name == "memory" and not failed]
    deleted = sum(given.get("command") == "delete" for given in done)
    changed = len({given.get("path") for given in done if given.get("command") in ("insert", "str_replace")})
    failed = sum(failed for name, _, _, failed in rounds if name == "memory")
    return f"Changed {changed}, deleted {deleted}." + (f" {failed} calls were refused." if failed else "")


def _about(said: str) -> set[str]:
    """What a memory is about: its words without those that many memories have."""
    return _words(said) - _SAID_OF_ALL


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
