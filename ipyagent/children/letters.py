"""What an agent reads of another's message: a labelled element that its words cannot leave, of bounded size."""

from __future__ import annotations

import re
from collections.abc import Callable

from ipyagent.children.mailbox import MailMessage
from ipyagent.errors import ToolFailure
from ipyagent.journal.events import MessageReceived
from ipyagent.journal.tokens import estimate_text
from ipyagent.tools.answers import plain

MOST_CHARS = 20_000
"""Characters of one message."""
SUMMARY_CHARS = 120
_TAGS = re.compile(
    r"<(?=\s*+(?:/\s*+)?(?:message|context|variable|file|cell|fork-task|summary|notes|request|skill)\b)", re.I
)
_CONTROL = re.compile("[\x01-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]")


def words(text: str) -> str:
    """The text without escape sequences, control characters, NUL and lone surrogates."""
    return _CONTROL.sub("", plain(text)).strip()


def checked(text: str) -> str:
    """The words of a message that is to be sent. Raises ToolFailure when there are none or too many."""
    said = words(text)
    if not said:
        raise ToolFailure("`message` is empty: say what the other is to know")
    if len(said) > MOST_CHARS:
        raise ToolFailure(
            f"the message has {len(said):,} characters, and {MOST_CHARS:,} are the most: write the rest into a file "
            "of the project and name it"
        )
    return said


def summed(summary: str, text: str) -> str:
    """A line that says what a message is about: its summary, else its beginning."""
    line = " ".join(words(summary or text[:1_000]).split())
    return line if len(line) <= SUMMARY_CHARS else line[: SUMMARY_CHARS - 1] + "…"


def received(letter: MailMessage, redact: Callable[[str], str] = str) -> MessageReceived:
    """The event of a letter that is taken in; what a hostile writer put there is plain text. `redact` takes
    out what looks like a secret."""
    said = redact(words(letter.text))
    if len(said) > MOST_CHARS:
        said = said[:MOST_CHARS] + f"\n[… {len(said) - MOST_CHARS:,} characters cut here …]"
    sender, session = summed(letter.sender, "somebody"), summed(letter.session, "")
    kind = "" if letter.kind == "text" else f' kind="{letter.kind}"'
    head = f'<message from="{_quoted(sender)}"{kind}>'
    text = f"{head}\n{_TAGS.sub('&lt;', said)}\n</message>"
    return MessageReceived(
        message=letter.id,
        sender=sender,
        text=text,
        said=said,
        kind=letter.kind,
        summary=summed(redact(letter.summary), said),
        session=session,
        tokens=estimate_text(text),
    )


def _quoted(text: str) -> str:
    return _TAGS.sub("", text).replace('"', "'").replace("<", "").replace(">", "")
