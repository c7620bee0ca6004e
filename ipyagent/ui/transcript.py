"""What a turn looks like, as a fold over its events: frozen items in the order of their appearance.

Every surface shows the same items. A streamed piece belongs to a live item until the whole that
supersedes it arrives (`AssistantMessage`, `ToolReturned`); a granted question becomes its tool call."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any, assert_never

import msgspec

from ipyagent.context.thresholds import paid_back_words
from ipyagent.escape import line
from ipyagent.journal.blocks import has_any
from ipyagent.journal.events import (
    STOPPED,
    AssistantMessage,
    BlockDropped,
    CacheBroken,
    ChildEnded,
    ChildProgress,
    ChildStarted,
    Compacted,
    DecisionUndone,
    Event,
    FileChanged,
    FilesRestored,
    ForkEnded,
    KernelStarted,
    LayerDecision,
    LayerFailed,
    MemoryDismissed,
    MemoryExtracted,
    MemorySaved,
    MemorySurfaced,
    MessageReceived,
    MessageSent,
    ModelChosen,
    NotesWritten,
    PartEvent,
    PermissionAnswered,
    PermissionAsked,
    PlanWritten,
    ResultsCleared,
    ResultStored,
    Retrying,
    ServerEdited,
    SessionStarted,
    SkillLoaded,
    SkillsListed,
    Streamed,
    SystemPromptFrozen,
    SystemReminder,
    ThinkingDropped,
    ToolCalled,
    ToolReturned,
    TurnCollapsed,
    TurnEnded,
    TurnsRemoved,
    UsageReported,
    UserMessage,
)
from ipyagent.ui.item_views import child_item, child_key, message_item, pages_of, parts_of, search_item
from ipyagent.ui.items import (
    Item,
    Level,
    MemoriesItem,
    MessageItem,
    NoticeItem,
    PlanItem,
    QuestionItem,
    SavedItem,
    TextItem,
    ThinkingItem,
    ToolItem,
    ToolState,
    call_key,
    content,
    ending,
    file_of,
    runs,
)
from ipyagent.ui.memory_chips import dismissed, taken_back

LOUD = ("differs", "left")
"""Kinds of `PartEvent` that warn."""

# ---- What a line of its own tells the user of an event, and how loudly.


def notice_of(event: Event) -> tuple[str, Level] | None:
    """The line; None for what is shown otherwise (the request by the cell itself) or not at all."""
    match event:
        case FilesRestored():
            return ("Restored: " + ", ".join(event.paths), "info") if event.paths else None
        case PartEvent():
            return (event.why, "warning" if event.kind in LOUD else "info") if event.why else None
        case SystemReminder():
            return (event.why, "info") if event.why else None
        case ThinkingDropped():
            return (f"Earlier thinking left the context: {event.why}", "info") if event.why else None
        case BlockDropped():
            return (f"An image or document left the context: {event.why or 'refused'}; attach a smaller one", "warning")
        case KernelStarted():
            return ("Resumed; variables of the earlier kernel are gone", "info") if event.resumed else None
        case ResultsCleared():
            count = len(event.calls)
            return (f"Cleared {count:,} old tool result{'s' * (count != 1)}, about {event.saved:,} tokens", "info")
        case Compacted():
            change = f"{event.tokens_before:,} to {event.tokens_after:,} tokens"
            return (f"Compacted ({event.trigger}, {event.method}): {change}{paid_back_words(event.paid_back)}", "info")
        case TurnsRemoved():
            return (f"A part left the context, about {event.saved:,} tokens", "info")
        case TurnCollapsed():
            return (f"An earlier turn was shortened, about {event.saved:,} tokens saved", "info")
        case DecisionUndone():
            return ("Undone: what was removed last is back in the context", "info")
        case LayerFailed():
            return (event.why, "warning")
        case CacheBroken():
            if event.expected:
                return None
            told = f"About {event.missed:,} tokens at full price, as the cache did not have them: {event.cause}"
            return (told, "info" if event.cause.startswith("idle for") else "warning")  # a pause has that price
        case NotesWritten():
            return ("Session notes updated", "info")
        case ServerEdited():
            if not event.cleared:
                return None
            return (f"The server left out {event.cleared:,} parts, about {event.tokens:,} tokens", "info")
        case MemoryDismissed():
            return (f"Will not be recalled again: {event.path}", "info")
        case SkillLoaded():
            whose = "by you" if event.by == "user" else "by the agent"
            size = f"{event.counted or event.tokens:,} tokens{', its beginning only' if event.cut else ''}"
            return (f"Skill {event.name} loaded {whose}: {size}, from {event.folder}", "info")
        case SkillsListed():
            return (event.why, "info") if event.why else None
        case (
            Streamed() | AssistantMessage() | ToolCalled() | ToolReturned() | PermissionAsked() | PermissionAnswered()
            | Retrying() | FileChanged() | ModelChosen() | UsageReported() | ForkEnded() | TurnEnded()
            | SessionStarted()
            | SystemPromptFrozen()
            | UserMessage()
            | ResultStored()
            | LayerDecision()
            | MemoryExtracted()
            | MemorySurfaced() | MemorySaved() | PlanWritten() | ChildStarted() | ChildProgress() | ChildEnded()
            | MessageReceived() | MessageSent()
        ):
            return None
        case _:
            assert_never(event)


PIECE_CHARS = 4_000
"""Pieces of a stream are joined up to this length: long enough to be few, short enough that joining stays cheap."""


class TurnTranscript:
    """Folds events; `add` names the items that appeared, changed or went. A call that left outputs in the cell
    itself ends a section: what comes next stands below them."""

    def __init__(self) -> None:
        self.model = ""
        self.cost: float | None = None
        self.ended: TurnEnded | None = None
        self._items: dict[str, Item] = {}
        self._pieces: dict[str, list[str]] = {}  # live items grow here; joined only when looked at
        self._reply: list[str] = []  # live items of the reply on its way
        self._inputs: dict[str, dict[str, Any]] = {}
        self._retry = ""
        self._count = 0
        self._section = 0
        self._sections: dict[str, int] = {}

    @property
    def keys(self) -> tuple[str, ...]:
        return tuple(self._items)

    @property
    def items(self) -> tuple[Item, ...]:
        return tuple(item for key in self._items if (item := self.item(key)) is not None)

    @property
    def asking(self) -> bool:
        """Whether a question waits for the user."""
        return any(isinstance(item, QuestionItem) and item.answer is None for item in self._items.values())

    def section(self, key: str) -> int:
        """The number of the item's section, from 0; also of one that went."""
        return self._sections.get(key, self._section)

    def item(self, key: str) -> Item | None:
        """The item as it stands, None when it went."""
        item = self._items.get(key)
        pieces = self._pieces.get(key)
        if not pieces:
            return item
        if len(pieces) > 1:
            pieces[:] = ["".join(pieces)]
        if isinstance(item, ToolItem):
            return replace(item, output=pieces[0])
        if isinstance(item, TextItem | ThinkingItem):
            return replace(item, text=pieces[0])
        return item

    def add(self, event: Event) -> tuple[str, ...]:
        match event:
            case Streamed():
                return self._stream(event)
            case AssistantMessage():
                return self._said(event)
            case ToolCalled():
                return (self._called(event),)
            case ToolReturned():
                return (self._returned(event),)
            case PermissionAsked():
                return (self._put(QuestionItem(call_key(event.call), event)),)
            case PermissionAnswered():
                return self._answered(event)
            case Retrying():
                return self._retrying(event)
            case FileChanged():
                item = self._items.get(call_key(event.call))
                return self._changed(item, event) if isinstance(item, ToolItem) else ()
            case ResultStored() if kept := file_of(event.blocks):
                item = self._items.get(call_key(event.call))
                return (self._put(replace(item, kept=kept)),) if isinstance(item, ToolItem) else ()
            case ModelChosen():
                self.model = event.model
            case UsageReported() | ForkEnded():
                if event.cost is not None:
                    self.cost = (self.cost or 0.0) + event.cost
            case MemorySurfaced() if event.memories:
                return (self._put(MemoriesItem(self._new("m"), event.memories)),)
            case MemoryDismissed() if changed := dismissed(self.items, event):
                return tuple(self._put(item) for item in changed)
            case MemorySaved():
                return (self._put(taken_back(self.items, event) or SavedItem(self._new("m"), event)),)
            case PlanWritten():
                return self._planned(event)
            case ChildStarted() | ChildProgress() | ChildEnded():
                if isinstance(event, ChildEnded) and event.cost is not None:
                    self.cost = (self.cost or 0.0) + event.cost
                return (self._put(child_item(event, self._items.get(child_key(event.child)))),)
            case MessageReceived():
                return (self._put(message_item(event, self._new("i"))),)
            case MessageSent():  # in the place of its call
                return (self._put(message_item(event, call_key(event.call) if event.call else self._new("i"))),)
            case TurnEnded():
                return self._ended(event)
            case _ if (said := notice_of(event)) is not None:
                return self._notice(*said)
            case _:
                pass  # the cell itself shows the request
        return ()

    # ------------------------------------------------------------------ replies

    def _stream(self, event: Streamed) -> tuple[str, ...]:
        if event.channel == "tool":
            key = call_key(event.ref)
            item = self._items.get(key)
            if not isinstance(item, ToolItem) or item.state != "running":
                return ()
            self._pieces.setdefault(key, []).append(event.text)
            return (key,)
        kind = TextItem if event.channel == "text" else ThinkingItem
        changed: tuple[str, ...] = ()
        if not self._reply or not isinstance(self._items.get(self._reply[-1]), kind):
            changed = self._settle()
            key = self._new("s")
            self._put(kind(key, "", live=True))
            self._reply.append(key)
        key = self._reply[-1]
        self._pieces.setdefault(key, []).append(event.text)
        return (*changed, key)

    def _said(self, event: AssistantMessage) -> tuple[str, ...]:
        self.model = event.model or self.model
        for block in event.blocks:
            if block.get("type") == "tool_use" and isinstance(block.get("input"), dict):
                self._inputs[str(block.get("id", ""))] = block["input"]
        live, self._reply = self._reply, []
        changed = [*self._settle(), *live]
        for key in live:
            self._pieces.pop(key, None)
        if has_any(event.blocks):
            changed += self._searched(event, live)
            live = []
        for kind, text in runs(event.blocks) if not has_any(event.blocks) else ():
            # The whole takes the place of the live item of its kind, so nothing jumps on the screen.
            key = next((k for k in live if isinstance(self._items[k], kind)), "")
            if key:
                live = live[live.index(key) + 1 :] if live[0] == key else self._drop_until(live, key)
            else:
                key = self._new("s")
                changed.append(key)
            self._put(kind(key, text))
        for key in live:
            del self._items[key]
        if event.partial and event.stop_reason != STOPPED:  # that the user did it stands at the end
            changed += self._notice("The reply broke off here; what arrived is kept", "warning")
        elif event.stop_reason == "max_tokens":
            changed += self._notice("The reply reached the output limit and was cut (IPyAgent.max_output)", "warning")
        return tuple(changed)

    def _searched(self, event: AssistantMessage, live: list[str]) -> list[str]:
        """A reply with searches: its texts, each search where it was made, and the pages at the end."""
        for key in live:
            del self._items[key]
        changed: list[str] = []
        for searched, blocks in parts_of(event.blocks):
            if not searched:
                changed += [self._put(kind(self._new("s"), text)) for kind, text in runs(tuple(blocks))]
                continue
            for block in blocks:
                key = call_key(str(block.get("id") or block.get("tool_use_id")))
                before = self._items.get(key)
                item = before if isinstance(before, ToolItem) else None
                made = search_item(key, block, item, ended=event.partial)
                if made is not None:
                    changed.append(self._put(made))
        if pages := pages_of(event.blocks, self._new("p")):
            changed.append(self._put(pages))
        return changed

    def _drop_until(self, live: list[str], key: str) -> list[str]:
        at = live.index(key)
        for gone in live[:at]:
            del self._items[gone]
        return live[at + 1 :]

    def _retrying(self, event: Retrying) -> tuple[str, ...]:
        gone = self._reply
        for key in gone:  # the next attempt writes the reply anew
            del self._items[key]
            self._pieces.pop(key, None)
        self._reply = []
        self._retry = self._retry or self._new("n")
        again = f" (attempt {event.attempt})" if event.attempt > 1 else ""
        text = f"{event.reason.rstrip('.')}; trying again in {event.seconds:.0f} s{again}. Stop to give up."
        return (*gone, self._put(NoticeItem(self._retry, text, "warning")))

    def _settle(self) -> tuple[str, ...]:
        """The server answered: what was tried again is said in the past."""
        key, self._retry = self._retry, ""
        item = self._items.get(key)
        if not isinstance(item, NoticeItem):
            return ()
        return (self._put(NoticeItem(key, item.text.split("; trying again")[0] + "; tried again")),)

    # ------------------------------------------------------------------ tools and questions

    def _called(self, event: ToolCalled) -> str:
        before = self._items.get(call_key(event.call))
        granted = ""
        if isinstance(before, QuestionItem) and before.answer != "deny":
            granted = {"once": "allowed once", "always": "always allowed"}.get(before.answer or "", "")
        return self._put(
            ToolItem(call_key(event.call), event.name, event.input, began=event.at, permission=granted)
        )

    def _changed(self, item: ToolItem, event: FileChanged) -> tuple[str, ...]:
        path, gone = event.path, not event.digest and not event.begun
        if path in (item.removed if gone else item.files):
            return ()
        files, removed = ((*(one for one in each if one != path), *[path] * here)
                          for each, here in ((item.files, not gone), (item.removed, gone)))  # fmt: skip
        return (self._put(replace(item, files=files, removed=removed)),)

    def _returned(self, event: ToolReturned) -> str:
        key = self._result(event)
        if event.shown:
            self._section += 1
        return key

    def _result(self, event: ToolReturned) -> str:
        key = call_key(event.call)
        before = self._items.get(key)
        if isinstance(before, QuestionItem):
            if before.answer is None and event.is_error:
                return self._put(replace(before, answer="deny", by="stop"))
            if before.answer != "deny" and event.is_error:
                return self._put(replace(before, unrun=True, reason=line(content(event.blocks)[0], 200)))
            return key  # the refusal is shown; the result only tells the model the same
        if isinstance(before, PlanItem | MessageItem):
            return key  # the plan, or the message, itself is shown
        if not isinstance(before, ToolItem):
            before = ToolItem(key, event.name, self._inputs.get(event.call, {}))
        self._pieces.pop(key, None)
        text, pictures = content(event.blocks, event.printed)
        seconds = event.seconds
        if event.at and before.began:  # without the time the question stood
            seconds = min(seconds, max(event.at - before.began, 0.0))
        return self._put(
            replace(
                before, state=_state(event), output=text, pictures=pictures,
                note=event.note, seconds=seconds, shown=event.shown, kept=file_of(event.blocks), left=event.left,
            )
        )  # fmt: skip

    def _planned(self, event: PlanWritten) -> tuple[str, ...]:
        """The newest plan, once, in the place of its call: earlier ones go."""
        key = call_key(event.call) if event.call else self._new("p")
        gone = [other for other, item in self._items.items() if isinstance(item, PlanItem) and other != key]
        for other in gone:
            del self._items[other]
        if not event.steps:
            return tuple(gone)  # the call says so itself
        self._pieces.pop(key, None)
        return (*gone, self._put(PlanItem(key, event.steps)))

    def _answered(self, event: PermissionAnswered) -> tuple[str, ...]:
        item = self._items.get(call_key(event.call))
        if not isinstance(item, QuestionItem):
            return ()
        return (self._put(replace(item, answer=event.answer, by=event.by, reason=event.reason)),)

    def _ended(self, event: TurnEnded) -> tuple[str, ...]:
        self.ended = event
        changed = list(self._settle())
        self._reply = []
        for key in self.keys:
            item = self.item(key)
            if isinstance(item, TextItem | ThinkingItem) and item.live:
                changed.append(self._put(replace(item, live=False)))
            elif isinstance(item, ToolItem) and item.state == "running":
                changed.append(self._put(replace(item, state="stopped", seconds=max(event.at - item.began, 0.0))))
            elif isinstance(item, QuestionItem) and item.answer is None:
                changed.append(self._put(replace(item, answer="deny", by="stop")))
            self._pieces.pop(key, None)
        if event.status != "finished":
            levels: dict[str, Level] = {"failed": "error", "stopped": "info"}
            changed += self._notice(ending(event), levels.get(event.status, "warning"))
        return tuple(changed)

    # ------------------------------------------------------------------ the list

    def _notice(self, text: str, level: Level = "info") -> tuple[str, ...]:
        return (self._put(NoticeItem(self._new("n"), text, level)),)

    def _put(self, item: Item) -> str:
        self._items[item.key] = item
        self._sections.setdefault(item.key, self._section)
        return item.key

    def _new(self, kind: str) -> str:
        self._count += 1
        return f"{kind}{self._count}"


class Shown:
    """The events of a turn from which it can be shown again: what was streamed gives way to the whole when that
    comes, so that they grow with what stands there and not with the number of pieces it came in."""

    def __init__(self) -> None:
        self._events: list[Event] = []
        self._live: dict[tuple[str, str], list[int]] = {}

    def __len__(self) -> int:
        return len(self._events)

    def __iter__(self) -> Iterator[Event]:
        return iter(tuple(self._events))

    def add(self, event: Event) -> None:
        """Take in the next event."""
        match event:
            case Streamed():
                self._stream(event)
                return
            case AssistantMessage() | Retrying():
                self._whole("text", "")
                self._whole("thinking", "")
            case ToolReturned():
                self._whole("tool", event.call)
            case _:
                pass
        self._events.append(event)

    def _stream(self, event: Streamed) -> None:
        last = self._events[-1] if self._events else None
        same = isinstance(last, Streamed) and (last.channel, last.ref) == (event.channel, event.ref)
        if isinstance(last, Streamed) and same and len(last.text) < PIECE_CHARS:
            self._events[-1] = msgspec.structs.replace(last, text=last.text + event.text)
            return
        places = self._live.setdefault((event.channel, event.ref if event.channel == "tool" else ""), [])
        places.append(len(self._events))
        self._events.append(event)

    def _whole(self, channel: str, ref: str) -> None:
        """Nothing but the places of its pieces is left, for what came after them stays after them."""
        for place in self._live.pop((channel, ref), ()):
            event = self._events[place]
            if isinstance(event, Streamed):
                self._events[place] = msgspec.structs.replace(event, text="")


def fold(events: Iterable[Event]) -> tuple[Item, ...]:
    """The items of `events`."""
    transcript = TurnTranscript()
    for event in events:
        transcript.add(event)
    return transcript.items


def _state(event: ToolReturned) -> ToolState:
    """How the call ended; one that the user interrupted did not fail."""
    if not event.is_error:
        return "done"
    return "stopped" if event.note == "interrupted" else "error"
