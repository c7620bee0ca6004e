"""What a line of its own tells the user of an event, and how loudly."""

from __future__ import annotations

from typing import assert_never

from ipyagent.context.policy import paid_back_words
from ipyagent.journal.events import (
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
from ipyagent.ui.items import Level


def notice_of(event: Event) -> tuple[str, Level] | None:
    """The line; None for what is shown otherwise (the request by the cell itself) or not at all."""
    match event:
        case FilesRestored():
            return ("Restored: " + ", ".join(event.paths), "info") if event.paths else None
        case SystemReminder() | PartEvent():
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
            return ("Session notes brought up to date", "info")
        case ServerEdited():
            if not event.cleared:
                return None
            return (f"The server left out {event.cleared:,} parts, about {event.tokens:,} tokens", "info")
        case MemoryDismissed():
            return (f"Will not come again: {event.path}", "info")
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
