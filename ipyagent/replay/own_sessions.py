"""Our own transcripts as recordings: what was said and what came back, without any decision on it; and beside that the
summaries and notes that the model wrote, for a replay in which it is to write them again."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

import msgspec

from ipyagent.journal.admission import text_block
from ipyagent.journal.events import (
    AssistantMessage,
    Compacted,
    Event,
    MemorySurfaced,
    MessageReceived,
    NotesWritten,
    SystemPromptFrozen,
    SystemReminder,
    ToolReturned,
    UserMessage,
)
from ipyagent.replay.recording import Collector, RecordedText, Recording


def read_own(events: Iterable[Event]) -> Recording:
    """The recording of a journal's events."""
    collected = Collector("ipyagent")
    head: SystemPromptFrozen | None = None
    written: list[RecordedText] = []
    noted = 0
    for event in events:
        collected.at(event.at)
        match event:
            case UserMessage():
                collected.user(event.blocks, event.text)
            case SystemReminder() | MemorySurfaced() | MessageReceived():
                collected.beside([text_block(event.text)])
            case AssistantMessage():
                collected.reply(event.blocks)
            case ToolReturned():
                collected.result(event.call, event.blocks, is_error=event.is_error)
            case SystemPromptFrozen():
                head = head or event
            case NotesWritten():
                noted = collected.begun if event.calls else noted
            case Compacted():
                if made := _written(event, collected.begun, noted):
                    written.append(made)
            case _:
                pass  # the other events are decisions, and those a replay makes itself
    return msgspec.structs.replace(collected.finished(), head=head, written=tuple(written))


def _written(event: Compacted, turn: int, noted: int) -> RecordedText | None:
    """What the model wrote that a compaction put in the conversation's place."""
    for block in event.blocks:
        text = str(block.get("text", ""))
        kinds: list[Literal["summary", "notes"]] = ["summary", "notes"]
        for kind in sorted(kinds, key=lambda kind: text.find(f"<{kind}>")):
            _, opened, rest = text.partition(f"<{kind}>")
            words, closed, _ = rest.partition(f"</{kind}>")
            if opened and closed:
                words = words.removeprefix("\n").removesuffix("\n")
                return RecordedText(kind, turn if kind == "summary" else noted or turn, words)
    return None
