"""`%context` about an earlier moment: which moment is meant, and what the model would have been sent then."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import msgspec

from ipyagent.errors import UsageError
from ipyagent.journal.events import Event, TurnEnded, UserSaid
from ipyagent.reports.comparing import message_text
from ipyagent.reports.shares import Shares
from ipyagent.reports.timeline import view_at

if TYPE_CHECKING:
    from ipyagent.loop.session import Session

USAGE = "%context [--raw] [--at N] [--turns] [--panel]: N is a turn's number, or eN an event's"


class ContextWords(msgspec.Struct, frozen=True, kw_only=True):
    """What stands on a `%context` line. `at`: "" for now."""

    raw: bool = False
    at: str = ""
    turns: bool = False
    panel: bool = False


def read_words(words: Sequence[str]) -> ContextWords:
    """The options of a line. Raises UsageError."""
    found: dict[str, bool | str] = {}
    rest = iter(words)
    for word in rest:
        name, equals, value = word.partition("=")
        if word in ("--raw", "--turns", "--panel"):
            found[word[2:]] = True
        elif name == "--at":
            found["at"] = value if equals else next(rest, "")
            if not str(found["at"]).removeprefix("e").isdecimal():
                raise UsageError(f"--at needs a turn's number or eN for an event, not {found['at']!r}  usage: {USAGE}")
        else:
            raise UsageError(f"%context does not take {word!r}  usage: {USAGE}")
    return msgspec.convert(found, ContextWords)


def moment(events: Sequence[Event], at: str) -> tuple[int, str]:
    """The event that `at` means, and the moment in words: the end of a turn by its number, an event by
    `eN`, or by N when there are not so many turns. Raises UsageError."""
    last = events[-1].id if events else 0
    starts = [event.id for event in events if isinstance(event, UserSaid)]
    number = int(at.removeprefix("e"))
    if not at.startswith("e") and 1 <= number <= len(starts):
        stop = starts[number] - 1 if number < len(starts) else last
        ends = [event.id for event in events if isinstance(event, TurnEnded) and starts[number - 1] < event.id <= stop]
        return (ends[-1] if ends else stop), f"after turn {number}"
    if 1 <= number <= last:
        return number, f"after event {number}"
    raise UsageError(f"there is no turn or event {at}: {len(starts)} turns, {last:,} events; see %context --turns")


def earlier(session: Session, at: str, *, raw: bool = False) -> str:
    """What the model would have been sent at an earlier moment: the request itself, or its figures and
    its messages in short. Raises UsageError."""
    from ipyagent.commands.context import raw_request

    events = list(session.journal.read())
    event, words = moment(events, at)
    view = view_at(events, event)
    if raw:
        return raw_request(session, view)
    total = view.count().tokens
    sources = Shares().of(view)
    lines = [f"{words} (event {event}): about {total:,} tokens, model {view.model or 'not chosen yet'}", ""]
    lines += [
        f"  {name:<22}{tokens:>10,}  {100 * tokens / (total or 1):5.1f} %" for name, tokens in sources.items() if tokens
    ]
    for message in view.messages:
        lines += ["", message_text(message, 300)]
    return "\n".join(lines)
