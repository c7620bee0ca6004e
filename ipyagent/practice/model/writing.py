"""Summaries and notes as the session's directives ask for them, taken out of the conversation line by line.

Nothing is composed: lines keep the words of the conversation, one that is too long is cut, and what a former summary
said is taken over. A summary has the nine sections of a compaction, at most about 2,000 tokens, and is shorter than
what it stands for. Notes are brought up to date by edits of their file, one a section, under the headings that are
there: what is in them already is not written again; when a section is full, the lines go that tell least.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from typing import Any, Final

from ipyagent.practice.model.conversation import (
    MARK,
    WRAPPED,
    Conversation,
    Step,
    Turn,
    blocks_of,
    cut,
    directive,
    earlier,
    is_ours,
    notes_asked,
    read,
    request_in,
    texts_of,
    words,
)  # fmt: skip
from ipyagent.practice.model.recipe import assigned, error
from ipyagent.practice.replies import Reply, calls, text
from ipyagent.practice.server.tokens import count_json, count_text

TITLES: Final = (
    "Request and intent", "Key concepts", "Files, variables and code", "Errors and fixes", "Problems solved",
    "Every message of the user", "Pending tasks", "Current work", "Next step",
)  # fmt: skip
_SECTION: Final = re.compile(r"^([1-9])\. [^\n:]{3,60}:[ \t]*\n?(.*?)(?=^[1-9]\. [^\n:]{3,60}:|\Z)", re.M | re.S)
_PATH: Final = re.compile(r"[\"']([^\"'\n]*?[\w-]\.\w{2,7})[\"']")
_CODES: Final = re.compile(r"(?=[\w./-]*[A-Za-z])(?=[\w./-]*\d)[\w./-]{4,}|\w+_\w+|[\w-]+\.\w{2,5}\b")
"""What cannot be guessed: codes, identifiers, file names."""
_FIGURES: Final = re.compile(r"\d[\d.,]*|[“\"'`][^“”\"'`]{1,40}[”\"'`]|\b[A-Z]{2,}")
_CAPS: Final = (400, 280, 200, 140, 100, 75, 55)


def squeezed(text: str, most: int) -> str:
    """The piece of at most `most` characters that tells most: around codes, else around figures, else the beginning."""
    line = " ".join(text.split())
    found = [*_CODES.finditer(line)] or [*_FIGURES.finditer(line)]
    if len(line) <= most or not found:
        return cut(line, most)
    room = most - 2

    def tells(at: int) -> int:
        return sum(len(match[0]) for match in found if at <= match.start() and match.end() <= at + room)

    begin = max((max(0, min(match.start() - room // 2, len(line) - room)) for match in found), key=tells)
    return "…" * bool(begin) + line[begin : begin + room].strip() + "…" * (begin + room < len(line))


def fit(lines: Sequence[str], tokens: int, short: Callable[[str, int], str] = cut) -> str:
    """The lines as a list, each as long as the room allows, shortened by `short`; when there are too many, those that
    tell most, newest first."""
    for most in _CAPS:
        shown = [f"- {short(line, most)}" for line in lines]
        if count_text("\n".join(shown)) <= tokens:
            return "\n".join(shown)
    kept = _kept([count_text(line) + 1 for line in shown], telling(lines), tokens - 12)
    more = f"- … {len(lines) - len(kept)} more"
    return "\n".join([*(shown[at] for at in sorted(kept)), more]) if kept else ""


def _kept(costs: Sequence[int], order: Iterable[int], room: float) -> set[int]:
    """The places, taken in this order, of what fits."""
    kept = set[int]()
    for at in order:
        if costs[at] <= room:
            room -= costs[at]
            kept.add(at)
    return kept


def telling(lines: Sequence[str]) -> list[int]:
    """The places of the lines, those first that tell most: codes, then figures, codes that stand in no other line
    before those that do, the newer of equals first."""
    codes = [frozenset(_CODES.findall(line)) for line in lines]
    said = Counter(code for found in codes for code in found)
    rank = [(not found, not _FIGURES.search(line), min((said[code] for code in found), default=0) > 1)
            for line, found in zip(lines, codes, strict=True)]  # fmt: skip
    return sorted(range(len(lines)), key=lambda at: (rank[at], -at))


def gist(said: str, most: int = 300) -> str:
    """What an answer says: its first line, and lines with figures."""
    lines = [line.strip() for line in said.splitlines() if line.strip() and not MARK.search(line)]
    return cut("; ".join([*lines[:1], *(line for line in lines[1:] if re.search(r"\d", line))]), most)


def result_line(step: Step, most: int = 200) -> str:
    """What a call did and gave, in one line."""
    did = step.code or " ".join(str(value) for value in step.input.values())
    return f"{step.tool}: {cut(did, most // 2)} → {cut(step.text, most)}"


@dataclass(frozen=True, slots=True)
class Material:
    """`requests`: the user's messages in order. `old`: lines of a former summary, by section number."""

    conversation: Conversation
    requests: tuple[str, ...]
    old: Mapping[int, tuple[str, ...]]

    @property
    def turns(self) -> tuple[Turn, ...]:
        """The turns with words of the user, oldest first."""
        return tuple(turn for turn in self.conversation.turns if turn.asked)

    @property
    def steps(self) -> tuple[Step, ...]:
        """All calls, oldest first."""
        return tuple(step for turn in self.conversation.turns for step in turn.steps)

    @property
    def newest(self) -> Turn:
        """The turn that is being worked on, or the last that was."""
        return self.turns[-1] if self.turns else Turn(self.requests[-1] if self.requests else "")

    @property
    def codes(self) -> tuple[str, ...]:
        """Code that ran without an error, each once."""
        return tuple(dict.fromkeys(step.code for step in self.steps if step.code and not step.failed))

    def files(self) -> list[str]:
        """Paths in code and in the calls of file tools."""
        found = [path for code in self.codes for path in _PATH.findall(code)]
        return list(dict.fromkeys([*found, *(str(s.input["path"]) for s in self.steps if s.input.get("path"))]))

    def variables(self) -> list[str]:
        """Names that code assigned, each with the last line that did."""
        made: dict[str, str] = {}
        for code in self.codes:
            for name in sorted(assigned(code)):
                line = next((line for line in code.splitlines() if re.match(rf"{name}\b.*=", line)), "")
                made.pop(name, None)
                made[name] = f"`{name}`" + f": `{cut(line, 120)}`" * bool(line)
        return list(made.values())

    def errors(self) -> list[str]:
        """What failed, and what was run next without an error."""
        found = []
        for at, step in enumerate(self.steps):
            if step.failed:
                mended = next((s for s in self.steps[at + 1 :] if s.tool == step.tool and not s.failed), None)
                how = f"; then it went with `{cut(mended.code or str(dict(mended.input)), 90)}`" if mended else ""
                found.append(cut(": ".join(filter(None, error(step.text))), 240) + how)
        return found

    def solved(self) -> list[str]:
        """Answers to requests, and the last results of turns without one."""
        found = []
        for turn in self.turns:
            told = [step for step in turn.steps if not step.failed and re.search(r"\d", step.text)]
            found += [gist(turn.said)] if turn.said else [result_line(step, 160) for step in told[-2:]]
        return found


def material(body: Mapping[str, Any], first: str = "", last: str = "") -> Material:
    """The matter of a body, without a directive at its end; `first` and `last` begin the part that is meant."""
    messages = [{**message, "content": blocks_of(message)} for message in body.get("messages") or []]
    at, told = directive(messages)
    if at >= 0:
        rest = [block for block in messages[at]["content"] if block.get("text") != told]
        messages = [*messages[:at], *([{**messages[at], "content": rest}] if rest else [])]
    messages = _part(messages, first, last)
    requests: list[str] = []
    old: dict[int, tuple[str, ...]] = {}
    for message in messages:
        for block in message["content"]:
            text = str(block.get("text") or "") if block.get("type") == "text" else ""
            former = str(block.get("content") or "") if block.get("type") == "compaction" else earlier(text)
            aside = (WRAPPED.fullmatch(text) and words(text) == text) or is_ours(text)
            if former:
                requests.clear()
                old = _sections(former)
            elif message.get("role") == "user" and text.strip() and not aside:
                requests += [said] if (said := words(text)) not in requests[-1:] else []
    return Material(read({**body, "messages": messages}), tuple(requests), old)


def _part(messages: list[dict[str, Any]], first: str, last: str) -> list[dict[str, Any]]:
    def begins(words: str) -> list[int]:
        return [at for at, message in enumerate(messages)
                if words and any(cut(text, 10_000).startswith(words) for text in texts_of(message))]  # fmt: skip

    start, end = begins(first)[:1] or [0], begins(last)[-1:] or [len(messages) - 1]
    return messages[start[0] : end[0] + 1] or messages


def _sections(summary: str) -> dict[int, tuple[str, ...]]:
    """The lines of a former summary by section; all under 5 when it has no sections."""
    found = {int(number): _plain_lines(text) for number, text in _SECTION.findall(summary)}
    return found if len(found) >= 5 else {5: _plain_lines(summary)}


def _plain_lines(text: str) -> tuple[str, ...]:
    text = re.sub(r"```.*?```", "", text, flags=re.S)
    lines: Iterable[str] = (line.strip().removeprefix("- ").strip() for line in text.splitlines())
    return tuple(line for line in lines if line and line != "none" and not re.fullmatch(r"… \d+ more", line))


MOST: Final = 2_000
_SHARE: Final = 0.8
"""The part of the conversation's own tokens that a summary may have; below some 200 the headings alone are more."""
_FRAME: Final = 80
"""Tokens of the headings, and of what fills an empty section."""
_ROOM_TOLD: Final = re.compile(r"room for about ([\d,]+) tokens")
_BEGINS: Final = re.compile(r"The part begins with: “(.*?)…?”", re.S)
_ENDS: Final = re.compile(r"It ends with: “(.*?)…?”", re.S)


def summary(body: Mapping[str, Any]) -> str:
    """The answer to a compaction directive: `<analysis>`, then `<summary>`."""
    _, told = directive(body.get("messages") or [])
    begins, ends = _BEGINS.search(told), _ENDS.search(told)
    found = material(body, begins[1] if begins else "", ends[1] if ends else "")
    failed = sum(step.failed for step in found.steps)
    scratch = f"{len(found.requests)} requests, {len(found.steps)} tool calls, {failed} errors; lines are taken over."
    room = _ROOM_TOLD.search(told)
    most = min(MOST, int(room[1].replace(",", "")) - 60) if room else MOST
    return f"<analysis>\n{scratch}\n</analysis>\n<summary>\n{sections(found, most)}\n</summary>"


def extract(body: Mapping[str, Any]) -> str:
    """The summary of a conversation that ends without a directive, as the server's compactions hold it."""
    return sections(material(body))


def sections(found: Material, most: int = MOST) -> str:
    """The nine sections, numbered, in about `most` tokens; one without matter says "none"."""
    newest, old = found.newest, found.old
    asked = newest.asked or request_in("- " + "\n- ".join(old.get(9, ())))
    waits = bool(newest.said) or not asked
    made: dict[int, str] = {
        7: "" if waits else "- the newest request (9)",
        9: f"- {'Wait for the user' if waits else 'Go on with it'}. The last request was: “{cut(asked, 240)}”",
    }
    left = min(most, int(_SHARE * _size(found))) - _FRAME - sum(count_text(text) for text in made.values())

    def part(number: int, lines: list[str], share: float) -> None:
        nonlocal left
        made[number] = fit(list(dict.fromkeys(lines)), int(left * share), squeezed if number in (5, 6) else cut)
        left -= count_text(made[number])

    known = found.variables()
    names = {line.split(":")[0] for line in known}
    files = [f"Files: {', '.join(found.files())}"] if found.files() else []
    part(6, [*old.get(6, ()), *(f"“{each}”" for each in found.requests)], 0.55)
    part(5, [*old.get(5, ()), *found.solved()], 0.4)
    part(3, [*(line for line in old.get(3, ()) if line.split(":")[0] not in names), *files, *known], 0.4)
    if code := _code(found, int(left * 0.5)):
        made[3] = "\n".join(filter(None, [made[3], code]))
        left -= count_text(code)
    part(4, [*old.get(4, ()), *found.errors()], 0.5)
    said = [f"{cut(newest.asked, 120)} → {gist(newest.said)}" if newest.said else cut(asked, 200)]
    work = [result_line(step, 160) for step in newest.steps][-3:]
    part(8, [*said, *work] if newest.asked else list(old.get(8, ())), 0.6)
    first = [*old.get(1, ())[:1], *found.requests[:1]][:1]
    part(1, first + [each for each in found.requests[-1:] if each not in first], 0.7)
    part(2, [*old.get(2, ()), *_concepts(found)], 1.0)
    return "\n\n".join(f"{number}. {title}:\n{made[number] or '- none'}" for number, title in enumerate(TITLES, 1))


def _size(found: Material) -> int:
    """Tokens of the conversation, and of what a former summary says."""
    turns = found.conversation.turns
    texts = [each for turn in turns for each in (turn.asked, turn.said, *turn.extras)]
    texts += [line for lines in found.old.values() for line in lines] + [step.text for step in found.steps]
    return sum(map(count_text, texts)) + sum(count_json(dict(step.input)) for step in found.steps)


def _concepts(found: Material) -> list[str]:
    """Columns and tables that code names, and packages it imports."""
    codes = "\n".join(found.codes)
    packages = sorted(set(re.findall(r"^(?:import|from) ([A-Za-z_]\w*)", codes, re.M)))
    columns = list(dict.fromkeys(re.findall(r"\[[\"']([^\"'\n]{1,40})[\"']\]", codes)))[:30]
    told = {"Packages": packages, "Columns": columns}
    return [f"{what}: {', '.join(names)}" for what, names in told.items() if names]


def _code(found: Material, room: int) -> str:
    """The newest code that fits, whole pieces only."""
    kept: list[str] = []
    for code in reversed(found.codes):
        room -= count_text(code) + 6
        if room < 0:
            break
        kept.insert(0, code)
    return "```python\n" + "\n\n".join(kept) + "\n```" if kept else ""


_NOTES: Final = re.compile(r"<notes>\n(.*)\n</notes>", re.S)
_STANDS: Final = re.compile(r"^\[as above: (.+), lines (\d+)-(\d+)\]$", re.M)
_LIMIT: Final = re.compile(r"At most ([\d,]+) tokens a section and ([\d,]+) in all")
_HEADING: Final = re.compile(r"^(# [^\n]+)\n(?:([_*]\S[^\n]*[_*])(?:\n|\Z))?(.*?)(?=^# |\Z)", re.M | re.S)
_ROOM: Final = ("800", "8000")
"""Tokens of a section and of all, when the directive names no limit."""
_SHARES: Final = (("task", 0.25), ("result", 0.3), ("data", 0.15))
"""What sections have of the room for all notes: what was asked for and what came of it can be had from nowhere else."""
_REST_SHARE: Final = 0.05
_MARGIN: Final = 0.7
"""The part of a limit that is used: whoever set it counts otherwise, and cuts what is over."""
_SHORT: Final = 200
"""Characters of a result that is a handful of figures."""
_LAST: Final = 3
"""Lines of the worklog by which the conversation is found again."""
_KEPT: Final = 0.9
"""The part of a full section that stays, so that not every update has to take something out."""


def noted(body: Mapping[str, Any]) -> Reply:
    """The edits that a directive for notes asks for; after their results, or without anything new, a word."""
    messages = body["messages"]
    at, told = directive(messages)
    asked = notes_asked(told)
    if asked is None or at < len(messages) - 1:
        return text("The notes are up to date.")
    path, words = asked
    notes = _whole(shown[1], messages) if (shown := _NOTES.search(words)) else ""
    found = _news(material(body), notes)
    told_limits = _LIMIT.search(words)
    section, whole = (int(each.replace(",", "")) for each in (told_limits.groups() if told_limits else _ROOM))
    edits: list[tuple[str, dict[str, Any]]] = []
    shows = notes
    for heading, about, old in _HEADING.findall(notes):
        there = old.strip().splitlines()
        share = next((share for name, share in _SHARES if name in heading.lower()), _REST_SHARE)
        limit = int(_MARGIN * min(section, whole * share))
        gone, new = _changes(heading, there, _for_heading(heading, found), limit)
        for before, after in _quoted(shows, about or heading, there, gone, new):
            edits.append(("edit_file", {"path": path, "old": before, "new": after}))
            shows += "\n" + after
    if not edits:
        return text("There is nothing new to note.")
    return calls(edits, say=None)


def _whole(notes: str, messages: Sequence[Mapping[str, Any]]) -> str:
    """The notes with the lines in them that stand further up and are only named."""
    if not _STANDS.search(notes):
        return notes
    told = [str(block.get("text", "")) for message in messages for block in message["content"]]
    above = next((found for each in reversed(told) if (found := earlier(each)) and "# " in found), "")
    under = {heading[2:]: text.strip("\n").split("\n") for heading, _, text in _HEADING.findall(above)}
    return _STANDS.sub(lambda at: "\n".join(under.get(at[1], [])[int(at[2]) - 1 : int(at[3])]), notes)


def _for_heading(heading: str, found: Material) -> list[str]:
    """What the conversation has for a section, oldest first."""
    title = heading.lower()
    newest, requests, errors = found.newest, found.requests, found.errors()
    if "title" in title:
        return [cut(each, 60) for each in requests[:1]]
    if "current" in title:
        doing = gist(newest.said) if newest.said else "not finished: " + "; ".join(map(result_line, newest.steps[-1:]))
        return [f"Newest request: “{cut(newest.asked, 200)}”: {doing}"] if newest.asked else []
    mended = [told.split("; then it") for told in errors if "; then it went with" in told]
    sections: dict[str, Callable[[], list[str]]] = {
        "task": lambda: [f"“{squeezed(each, 100)}”" for each in requests],
        "files": lambda: [*(f"`{each}`" for each in found.files()), *found.variables()],
        "workflow": lambda: [f"`{cut(code, 100)}`" for code in found.codes],
        "error": lambda: errors,
        "data": lambda: [line for step in found.steps if not step.failed for line in _figures(step)],
        "learn": lambda: [f"After {told[0].split(';')[0]}, it{told[-1]}" for told in mended],
        "result": lambda: [squeezed(each, 80) for each in found.solved()],
    }
    return next((lines for name, lines in sections.items() if name in title), lambda: list(map(_logged, found.turns)))()


def _figures(step: Step) -> list[str]:
    """The size of a table that a call showed, and a result that is short enough to be kept nearly whole."""
    shape = re.search(r"\w+  DataFrame \d+ x \d+[^\n]*|\(\d+, \d+\)", step.text)
    small = 0 < len(step.text) <= _SHORT and re.search(r"\d", step.text)
    return [*([cut(shape[0], 200)] if shape else []), *([squeezed(step.text, 80)] if small else [])]


def _logged(turn: Turn) -> str:
    return f"{cut(turn.asked, 80)} ({len(turn.steps)} calls)"


def _news(found: Material, notes: str) -> Material:
    """What came after the turns that the worklog ends with; everything when they are not there."""
    log = "".join(old for heading, _, old in _HEADING.findall(notes) if _is_log(heading)).strip().splitlines()
    shown = [f"- {_logged(turn)}" for turn in found.turns]
    for count in range(min(_LAST, len(log)), 0, -1):
        for at in range(len(shown), count - 1, -1):
            if shown[at - count : at] == log[-count:]:
                later = found.turns[at:]
                requests = found.requests[len(found.requests) - len(later) :]
                return replace(found, conversation=replace(found.conversation, turns=later), requests=requests)
    return found


def _is_log(heading: str) -> bool:
    return "log" in heading.lower()


def _changes(heading: str, old: Sequence[str], new: Sequence[str], limit: int) -> tuple[set[int], list[str]]:
    """The places of the lines that go, and the lines that come, each once; when a section is full, those go that tell
    least. The title stays, the state says only what holds now."""
    if "title" in heading.lower():
        return set(), [] if old else list(new)
    if "current" in heading.lower():
        return (set(), []) if list(old) == list(new) or not new else (set(range(len(old))), list(new))
    lines = [f"- {each}" for each in new]
    come = lines if _is_log(heading) else [line for line in dict.fromkeys(lines) if line not in old]
    every = [*old, *come]
    costs = [count_text(line) + 1 + limit * line.startswith("[… cut") for line in every]
    if not come or sum(costs) <= limit:
        return set(), come
    plain = [line.removeprefix("- ").strip("“”") for line in every]
    kept = _kept(costs, reversed(range(len(every))) if _is_log(heading) else telling(plain), _KEPT * limit)
    gone = set(range(len(old))) - kept
    return gone, [line for at, line in enumerate(come, len(old)) if at in kept]


def _quoted(notes: str, top: str, old: Sequence[str], gone: Set[int], new: Sequence[str]) -> Iterator[tuple[str, str]]:
    """The edits, old and new text: runs of lines that go, with the line before them (`top` for the first); what comes,
    with the last line that stays, or with as many as are needed to stand nowhere else."""
    stay = [line for at, line in enumerate(old) if at not in gone]
    if not stay and (old or new):
        yield "\n".join([top, *old]), "\n".join([top, *new])
        return
    above, run = top, list[str]()
    for at, line in enumerate([*old, None]):
        if line is not None and at in gone:
            run.append(line)
            continue
        if run and notes.count("\n".join([above, *run])) == 1:
            yield "\n".join([above, *run]), above
        above, run = line or "", []
    ends = ["\n".join([top, *stay][-count:]) for count in range(1, len(stay) + 2)]
    if new:
        end = next((end for end in ends if notes.count(end) == 1), ends[-1])
        yield end, "\n".join([end, *new])
