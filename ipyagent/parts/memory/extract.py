"""Extraction: behind the turns, what is worth keeping of the conversation becomes memories.

It waits until there is enough to look through, or a cue, and never skips what the user said: the cursor moves
only over what was looked at. How far it has come is read off the journal alone, so that a resumed session goes
on where it was. Background work leaves no turns, so it never sees itself. Its fork may read without a question, and
write memories; nothing else.
"""

from __future__ import annotations

import json
import re
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any

import msgspec

from ipyagent.errors import MemoryRefused, ToolFailure
from ipyagent.journal.blocks import searches_in
from ipyagent.journal.events import (
    AssistantMessage,
    Block,
    Event,
    KernelStarted,
    LayerDecision,
    LayerFailed,
    MemoryExtracted,
    MemorySaved,
    PermissionAnswered,
    ToolCalled,
    ToolReturned,
    TurnEnded,
    UserMessage,
)
from ipyagent.journal.journal import TRANSCRIPT
from ipyagent.journal.protocols import Permission, Surface, Tool, ToolOutput, Workspace
from ipyagent.journal.tokens import estimate_text
from ipyagent.kernel.workspace import KernelWorkspace
from ipyagent.loop.hooks import hooks
from ipyagent.loop.session import Session
from ipyagent.parts.memory.access import MemoryAccess
from ipyagent.parts.memory.ranking import filled
from ipyagent.parts.memory.store import Memory
from ipyagent.parts.memory.transcripts import SEARCH
from ipyagent.ui.memory_chips import saved_line

PURPOSE = "extraction"
TAG = "extract-memories"
"""The element that holds the directive."""
MOST_FAILURES = 3
"""Extractions that fail in a row before no more are tried in the session."""
MOST_LISTED = 200
"""Memories that the directive lists, newest first."""
MOST_CALLS = 12
"""Calls of one turn that a transcript has a line for."""
CUE_CHARS = 4_000
"""Characters at each end of a message in which a cue is looked for: what is longer is pasted."""
WATCHED = "what you say is looked through for memories once there is enough of it, at the latest when the session ends"
"""What the journal says of a session in which extraction is on."""
UNWATCHED = "extraction is off: what you say is not looked through"
SAVES = ("create", "str_replace", "insert")
"""Commands of the memory tool that would save something."""
_THERE = re.compile(
    r"Error: (?:nothing was saved: |(?:File )?/memories/[^`\n]*?(?: already exists[.;]| differs from /memories/"
    r"| was not changed: the edit leaves it as it is(?!\. )))"
)
"""How its refusals begin where what would be saved, or a memory by that name, is there already."""
_WORD = re.compile(r"[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]|[^\W\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]+")
_CUES = re.compile(
    r"\b(?:remember|keep in mind|note that|for the record|don'?t forget|from now on|going forward|in (?:the )?future"
    r"|always|never|every time|prefer(?:s|red|ably)?|rather|instead|only|please don'?t|no \w+ (?:please|plz)"
    r"|stop \w+ing|actually|i meant|i was wrong|i never said|not what i|that'?s wrong|no wait"
    r"|i am an?|i'?m an?|i work|is due|deadline"
    r"|my (?:name|role|team|boss|job)|we (?:use|agreed|decided|have to|must)|our (?:rule|policy|convention|team)"
    r"|merk(?:e|t)? dir|denk daran|immer|nie(?:mals)?|ab jetzt|künftig|in zukunft|lieber|bitte nicht|nur noch"
    r"|ich bin|wir (?:verwenden|nutzen|benutzen)"
    r"|retiens|souviens-toi|toujours|jamais|désormais|à l'avenir|je préfère|je suis"
    r"|recuerda|siempre|nunca|a partir de ahora|prefiero|ricorda|sempre|mai più|d'ora in poi|preferisco"
    r"|lembre|a partir de agora|prefiro|onthoud|altijd|nooit|voortaan)\b"
    r"|记住|记一下|别忘|以后|今后|从现在起|总是|永远|一律|不要再|我更?喜欢|我是|我们(?:用|决定)|記住|以後"
    r"|覚えて|今後|いつも|必ず|二度と|기억해|앞으로|항상|절대|запомни|всегда|никогда|впредь|отныне|предпочитаю",
    re.I,
)


def words_in(text: str) -> int:
    """How many words a text has; a Chinese, Japanese or Korean character is one."""
    return sum(1 for _ in _WORD.finditer(text))


def has_cue(text: str, more: Sequence[str] = ()) -> bool:
    """Whether a message seems to say something for later: a word for it in one of a dozen languages, or one of
    `more`. What it misses is looked through later, not never."""
    ends = text if len(text) <= 2 * CUE_CHARS else f"{text[:CUE_CHARS]}\n{text[-CUE_CHARS:]}"
    folded = ends.casefold().replace("’", "'")
    return bool(_CUES.search(folded)) or any(word.casefold() in folded for word in more if word)


class ExtractionProgress:
    """Folds events: up to where the session was looked through, and what came since."""

    def __init__(self) -> None:
        self.upto = 0
        """The event up to which all was looked through; 0: nothing was."""
        self.failures = 0
        """Extractions that failed in a row."""
        self.watched = False
        """Whether what the user says now is looked through."""
        self.unwatched: set[int] = set()
        """What the user said while extraction was off, since: it is not looked at."""
        self.left_over = False
        """Whether an earlier kernel ended before it had looked through its turns."""
        self._ended: list[int] = []  # turns that ended since, with an answer or at a limit
        self._saved: list[tuple[int, str]] = []  # memories that the agent itself saved since
        self._gone: set[str] = set()  # those of them that were deleted since
        self._saving: set[str] = set()  # calls of the turn that would save one
        self._failed: list[int] = []  # those that were refused since, though nothing there says the same
        self._said: list[tuple[int, str]] = []  # what the user said since

    def __repr__(self) -> str:
        return f"<ExtractionProgress up to event {self.upto}, {len(self._ended)} turns since>"

    def apply(self, event: Event) -> None:
        """Take in the next event."""
        match event:
            case UserMessage() if self.watched:
                self._said.append((event.id, event.said))
            case UserMessage():
                self.unwatched.add(event.id)
            case TurnEnded() if event.status in ("finished", "limit") and self.watched:
                self._ended.append(event.id)
            case MemorySaved():
                self._memory(event)
            case ToolCalled() if event.name == MEMORY and event.input.get("command") in SAVES:
                self._saving.add(event.call)
            case ToolReturned() if event.name == MEMORY and event.call in self._saving:
                self._saving.discard(event.call)
                if event.is_error and not any(_THERE.match(str(block.get("text", ""))) for block in event.blocks):
                    self._failed.append(event.id)
            case MemoryExtracted():
                self.upto, self.failures, self.left_over, self.watched = event.upto, 0, False, True
                self.unwatched = {said for said in self.unwatched if said > event.upto}
                self._ended = [turn for turn in self._ended if turn > event.upto]  # some ended meanwhile
                self._saved = [saved for saved in self._saved if saved[0] > event.upto]
                self._failed = [failed for failed in self._failed if failed > event.upto]
                self._said = [said for said in self._said if said[0] > event.upto]
            case LayerFailed() if event.layer == PURPOSE:
                self.failures += 1
            case LayerDecision() if event.layer == PURPOSE:
                self.watched = event.words != UNWATCHED
            case KernelStarted():
                self.failures, self.left_over = 0, bool(self._ended)
            case _:
                pass

    @property
    def pending(self) -> bool:
        """Whether a turn has ended that nobody looked through."""
        return bool(self._ended) and self.failures < MOST_FAILURES

    def asked(self, upto: int) -> set[int]:
        """The events in which the user said what nobody looked through, up to an event."""
        return {at for at, _ in self._said if at <= upto}

    def saved(self, upto: int) -> list[str]:
        """Paths, as they are now, of the memories that the agent itself saved since, up to an event, and that
        nobody has deleted since."""
        return list(dict.fromkeys(path for at, path in self._saved if at <= upto and path not in self._gone))

    def _memory(self, event: MemorySaved) -> None:
        if event.change == "renamed":
            self._saved = [(at, event.path if path == event.old else path) for at, path in self._saved]
            self._gone -= {event.path}
        if event.change == "deleted":
            self._gone |= {path for _, path in self._saved if path == event.path}
        else:
            self._gone -= {event.path}
        if event.by == "agent":
            self._saved.append((event.id, event.path))
            if event.change == "deleted":
                self._gone.add(event.path)

    def due(
        self, every: int, upto: int, *, owed: bool = False, words: int = 0, cues: Sequence[str] = ()
    ) -> bool:
        """Whether to look at the end of the turn that event `upto` ended, or else to wait for more: `every` turns, and
        `words` new words of the user (0: none), a cue that the agent did not act upon itself, or a memory that it
        could not save. `owed`: it does not wait."""
        turns = sum(turn <= upto for turn in self._ended)
        if not turns or self.failures >= MOST_FAILURES:
            return False
        if owed or self.left_over:
            return True
        if turns < every:
            return False
        said = [(at, text) for at, text in self._said if at <= upto]
        if not words or sum(words_in(text) for _, text in said) >= words:
            return True
        for (at, text), end in zip(said, [*(at for at, _ in said), upto + 1][1:], strict=True):
            saved = max((each for each, _ in self._saved if at < each < end), default=0)
            if any(max(at, saved) < failed < end for failed in self._failed) or (not saved and has_cue(text, cues)):
                return True
        return False


def new_messages(placed: Sequence[tuple[str, Block, int]], upto: int, most: int) -> int:
    """How many of the newest messages have something of after event `upto`; `most` at most. `placed` are
    their blocks as `View.placed` gives them."""
    found, before = 0, ""
    for role, _, source in reversed(placed):
        if source <= upto and source:  # 0: words of ours between messages
            break
        found += role != before
        before = role
        if found > most:
            return most
    return found


READING = "memory view, read_file, grep, glob"


def directive(
    memories: Sequence[Memory], *, messages: int = 0, turns: int, now: float, saved: Sequence[str] = ()
) -> str:
    """The order that a fork gets. `memories` are what exists, newest first; `messages` how many it may draw
    on (0: a transcript that stands above), `turns` its model calls, `now` Unix time, `saved` paths of what the
    agent saved in these turns itself."""
    newest = f"newest {messages} message{'s' if messages != 1 else ''} above"
    already = (
        f"The agent saved in these turns itself: {', '.join(map(harmless, saved))}. Do not save that again; where the "
        "user said otherwise later, bring it up to date or delete it."
    )
    values = {
        "messages": newest if messages else "transcript above",
        "turns": str(turns),
        "reading": READING if messages else "memory view",  # who reads a transcript has no other tool
        "today": datetime.fromtimestamp(now).strftime("%A %Y-%m-%d"),
        "memories": manifest(memories),
        "saved": already if saved else "",
    }
    return filled(TAG, "extract_prompt.md", values)


def manifest(memories: Sequence[Memory]) -> str:
    """One line a memory: type, path, day, description."""
    lines = [
        f"- [{each.kind or 'no type'}] {each.path} ({datetime.fromtimestamp(each.modified):%Y-%m-%d}): "
        f"{harmless(each.description) or '(no description)'}"
        for each in memories[:MOST_LISTED]
    ]
    if len(memories) > MOST_LISTED:
        lines.append(f"- and {len(memories) - MOST_LISTED} older ones: view the folder to see them")
    return "\n".join(lines) or "(none yet)"


def harmless(text: str) -> str:
    """One line that cannot end the element it stands in."""
    return " ".join(text.split()).replace("</", "<\\/")[:200]


class ExtractionTranscript(msgspec.Struct, frozen=True, kw_only=True):
    """Turns as a small model reads them, up to event `upto`; `whole` unless more follows. "" for none."""

    text: str
    upto: int
    whole: bool


def transcript(
    events: Iterable[Event],
    after: int,
    upto: int,
    *,
    out: frozenset[int] = frozenset(),
    answer_chars: int,
    line_chars: int,
    tokens: int,
) -> ExtractionTranscript:
    """What was said after event `after` up to event `upto`: the user's words whole, answers in `answer_chars`
    characters, calls and results in a line of `line_chars`. `tokens` end it at the end of a turn, one turn at least;
    turns that begin with the events in `out` are left out."""
    turns: list[str] = []
    size, reached, number, cut = 0, after, 0, False
    lines: list[str] = []
    calls = 0
    names: dict[str, str] = {}
    leaving = False
    for event in events:
        number += isinstance(event, UserMessage)
        if event.id <= after or event.id > upto:
            continue
        match event:
            case UserMessage():
                leaving, calls = event.id in out, 0
                lines += [f'<user turn="{number}">', _closed(event.said, "user"), "</user>"]
                if event.own is not None:
                    lines.append(f"- a command of the user's wrote this request: {_line(event.text, line_chars)}")
            case PermissionAnswered(by="user", answer="deny") if event.reason:
                said = _closed(event.reason, "user")
                lines += ["- the user said no to the next call:", f'<user turn="{number}">', said, "</user>"]
            case AssistantMessage():
                lines += [f"- {_line(words, line_chars)}" for words in searches_in(event.blocks)]
                said = "\n".join(str(each.get("text", "")) for each in event.blocks if each.get("type") == "text")
                if said.strip():
                    lines += ["<agent>", _closed(_short(said.strip(), answer_chars), "agent"), "</agent>"]
            case ToolCalled():
                calls += 1
                names[event.call] = _line(f"{event.name} {json.dumps(event.input, ensure_ascii=False)}", line_chars)
            case ToolReturned() if calls <= MOST_CALLS:
                told = next((str(each["text"]) for each in event.blocks if each.get("type") == "text"), "")
                result = _line(told, line_chars)
                word = "failed" if event.is_error else "gave"
                lines.append(f"- {names.pop(event.call, event.name)} {word}: {result}")
            case MemorySaved() if event.by == "user" or (event.by == "agent" and calls > MOST_CALLS):
                lines.append(f"- {event.path} {event.change} by the {event.by}")
            case TurnEnded():
                if lines and not leaving:
                    turns.append("\n".join(lines))
                    size += estimate_text(turns[-1])
                reached, lines = event.id, []
                if size >= tokens:
                    cut = True
                    break
            case _:
                pass
    text = "<transcript>\n" + "\n".join(turns) + "\n</transcript>" if turns else ""
    whole = not cut or reached >= upto
    return ExtractionTranscript(text=text, upto=upto if whole else reached, whole=whole)


def _closed(text: str, element: str) -> str:
    """The text as it is, but for what would end its element or the transcript."""
    return re.sub(rf"</(?={element}>|transcript>)", "<\\/", text, flags=re.I)


def _short(text: str, chars: int) -> str:
    if len(text) <= chars:
        return text
    head = 2 * chars // 3
    return f"{text[:head].rstrip()} […] {text[-(chars - head) :].lstrip()}"


def _line(text: str, chars: int) -> str:
    """The first words of a text in one line that ends no element."""
    return " ".join(text[: 4 * chars].split())[:chars].rstrip().replace("</", "<\\/")


MEMORY = "memory"
READERS = ("read_file", "grep", "glob")
"""Tools that may be used to read; a call of theirs that would write or need a yes is refused."""
MAY = f"only `{MEMORY}`, and {', '.join(READERS)} as far as they only read where no question is needed"


class ExtractionToolPolicy:
    """What the fork of one extraction may do, and what it saved; the events up to `upto` are looked through. What it
    reads itself is no word of the user's."""

    def __init__(
        self,
        session: Session,
        workspace: KernelWorkspace,
        surface: Surface | None,
        notice: Callable[[str], None],
        upto: int,
    ) -> None:
        self._session, self._notice, self._surface = session, notice, surface
        access = workspace.memory
        if not isinstance(access, MemoryAccess):
            raise MemoryRefused("there is no memory here: %memory on turns it on", reason="off")
        # later turns may have begun by the time it saves something
        turn = sum(each.first <= upto for each in session.history.turns)
        self._access = access.on_behalf(PURPOSE, self._record, lambda: turn)
        # files that the fork reads, the model has not read
        self._workspace = replace(workspace, read_stamps={}, memory=self._access)
        self.saved: list[str] = []
        """Paths of the memories that were written."""
        self._failed = self._read = False
        self._written = 0

    def permit(self, name: str, given: dict[str, Any]) -> str:
        """Why a call may not run; "" when it may."""
        tool = self._session.tools.get(name)
        if name == MEMORY or tool is None:
            return ""
        if name not in READERS:
            return MAY
        try:
            checked = tool.validate(given)
            harmless = not tool.writes(checked, self._workspace)
            return "" if harmless and tool.permission(checked, self._workspace) == "none" else MAY
        except ToolFailure:
            return ""  # its result says what is wrong with it

    async def answer(self, name: str, given: dict[str, Any]) -> ToolOutput:
        """Do a permitted call. Raises ToolFailure."""
        tool = self._session.tools[name]
        changed, why = await hooks.before_tool({"tool": name, "input": given, "call": ""})
        if why:
            raise ToolFailure(f"A hook of the user's denied this call: {why}")
        if changed is not None:
            given = tool.validate(changed)
            if refused := self.permit(name, given):
                raise ToolFailure(refused)
        self._read = self._read or name != MEMORY or given.get("command") == "view"
        try:
            output = await tool.run(given, self._workspace)
        except ToolFailure as failure:
            self._failed = True
            if name != MEMORY:
                self._access.tell(str(failure))
            raise
        if name != MEMORY:  # what stands in memories was checked when it was saved
            self._access.take(output.blocks)
        return output

    def listed(self) -> list[Memory]:
        """What memories there are, newest first."""
        return self._access.every()

    def enough(self) -> bool:
        """Whether the last round of calls wrote something and left nothing to mend."""
        written = len(self.saved) > self._written
        return self._round_ended(left=self._failed) and written

    def idle(self) -> bool:
        """Whether the last round of calls, of a fork that has other work too, left nothing to read or to mend."""
        return self._round_ended(left=self._failed or self._read)

    def _round_ended(self, *, left: bool) -> bool:
        self._written, self._failed, self._read = len(self.saved), False, False
        return not left

    def _record(self, event: MemorySaved) -> MemorySaved:
        """Journal a memory that was saved, and tell the user where the user looks."""
        shown = self._session.surface is not None  # the next turn's cell tells of it
        made = self._session.record(event)
        self.saved.append(made.path)
        if not shown:  # some surfaces can still show what came of their turn once they are closed
            later: Callable[[Event], None] | None = getattr(self._surface, "later", None)
            try:
                self._notice(saved_line(made)) if later is None else later(made)
            except Exception:  # noqa: BLE001 - it is saved: a surface that fails is no failure of the tool's
                self._notice(saved_line(made))
        return made


# ---- What a dream may do: read without a question, ask past sessions for passages, write memories in its copy.
# Nothing else is among its tools: no notebook, no sub-agents, no MCP. A call that would write, or that needs a yes,
# is refused, whatever the user allows in conversations.

ONLY_READ = "This call may not run in a dream: it would write or needs a permission. Only `memory` writes here."
NOT_WHOLE = "Transcripts of sessions are not read whole; ask past_sessions for what you want to know."


def dream_tools(installed: Mapping[str, Tool], *, here: bool) -> dict[str, Tool]:
    """The tools of a dream by name, in a fixed order. Of memories for all projects nothing of the one at hand (`here`)
    is looked at: it shows nothing of the others."""
    names = (MEMORY, SEARCH, *READERS) if here else (MEMORY,)
    found: dict[str, Any] = {name: installed[name] for name in sorted(names) if name in installed}
    return {name: DreamReader(each) if name in READERS else each for name, each in found.items()}


class DreamReader:
    """A tool as a dream may use it: no permission is asked for, what needs one does not run."""

    def __init__(self, inner: Tool) -> None:
        self._inner = inner

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def permission(self, input: dict[str, Any], workspace: Workspace) -> Permission:
        return "none"

    def writes(self, input: dict[str, Any], workspace: Workspace) -> bool:
        return False

    def destructive(self, input: dict[str, Any], workspace: Workspace) -> str:
        return ""

    def run(self, input: dict[str, Any], workspace: Workspace) -> Awaitable[ToolOutput]:
        """Raises ToolFailure for everything but reading."""
        inner = self._inner
        if inner.writes(input, workspace) or inner.permission(input, workspace) != "none":
            raise ToolFailure(ONLY_READ)
        if inner.name == "read_file" and any(TRANSCRIPT in str(value) for value in input.values()):
            raise ToolFailure(NOT_WHOLE)
        return inner.run(input, workspace)
