"""A session's mailbox: one file beside its transcript, written by anybody in the project, read by its one owner.

A letter is one line of JSON, appended whole under a lock and synced before the writer is told that it arrived; one
that was cut off by a crash hides no other. The owner journals a letter first; what is journalled is never taken in
again, by its id. Nothing is removed: a long file that was read to its end is put aside whole."""

from __future__ import annotations

import asyncio
import os
import re
import secrets
import time
from collections.abc import Awaitable, Callable, Container, Iterable, Iterator, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Literal, Protocol, runtime_checkable

import msgspec

from ipyagent.errors import AgentError, ToolFailure
from ipyagent.escape import cut
from ipyagent.journal.events import MessageKind, MessageReceived, MessageSent
from ipyagent.journal.journal import clean
from ipyagent.journal.protocols import ToolOutput
from ipyagent.journal.tokens import estimate_text
from ipyagent.locks import Lock
from ipyagent.loop.session import Session
from ipyagent.loop.session_state import MailState
from ipyagent.nofollow import checked, opened, spot
from ipyagent.tools.answers import plain, text_output

MAILBOX = "inbox.jsonl"
ASIDE = "inbox.read.jsonl"
"""The letters of a long mailbox that were all read; the newest such file is kept."""
LONG = 1_000_000
"""Bytes from which a mailbox that was read to its end is put aside."""
LINE = 200_000
"""Bytes of the longest line that is looked at."""
PATIENCE = 5.0
"""Seconds that a writer waits for the lock."""


class MailMessage(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What one agent writes to another. `id` is the writer's, the same when it tries again; `sender` says who it is,
    `session` which session it works in; `at` is Unix time in seconds."""

    id: str
    sender: str
    text: str
    session: str = ""
    kind: MessageKind = "text"
    summary: str = ""
    at: float = 0.0


class MessageOrder(msgspec.Struct, frozen=True, kw_only=True):
    """What an agent writes to whom; `approve` belongs to a `plan_response`."""

    to: str
    text: str
    summary: str = ""
    kind: MessageKind = "text"
    approve: Literal["", "yes", "no"] = ""


@runtime_checkable
class Messages(Protocol):
    """Delivers what an agent writes to others."""

    def send(self, order: MessageOrder, call: str) -> Awaitable[ToolOutput]:
        """Deliver it; what became of it, for the writer. Raises ToolFailure."""


_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(MailMessage)


def post(folder: Path, letter: MailMessage) -> None:
    """Put a letter into the mailbox of the session in `folder`; on the disk when this returns. Raises AgentError
    with one line: the mailbox is as it was."""
    plain = msgspec.structs.replace(
        letter, sender=clean(letter.sender), text=clean(letter.text), summary=clean(letter.summary)
    )
    line = _encoder.encode(plain) + b"\n"
    try:
        with _locked(folder):
            handle = _opened(folder / MAILBOX, os.O_RDWR | os.O_APPEND | os.O_CREAT)
            try:
                _append(handle, line)
            finally:
                os.close(handle)
    except OSError as problem:
        why = problem.strerror or str(problem) or type(problem).__name__
        raise AgentError(
            f"the mailbox of session {folder.name} cannot be written ({why}): free some space or fix the permissions"
        ) from None


class Mailbox:
    """The owner's side; remembers how far it has read."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / MAILBOX
        self.problems: list[str] = []
        """A line for each thing that could not be read; the caller takes them."""
        self._read_to = 0
        self._lines = 0
        self._waiting: list[MailMessage] = []

    def __repr__(self) -> str:
        return f"<Mailbox of {self.path.parent.name}, {len(self._waiting)} read and not taken>"

    def waiting(self, known: Container[str]) -> tuple[MailMessage, ...]:
        """The letters that are not among the `known` ids, oldest first, none twice."""
        self._read()
        kept: dict[str, MailMessage] = {}
        for letter in self._waiting:
            if letter.id not in known:
                kept.setdefault(letter.id, letter)
        self._waiting = list(kept.values())
        return tuple(self._waiting)

    def put_aside(self) -> None:
        """Begin a new file when this one is long and every letter of it was taken. Only after their events are
        on the disk itself."""
        if self._waiting or self._read_to < LONG:
            return
        try:
            with _locked(self.path.parent):
                if os.stat(self.path).st_size == self._read_to:
                    with spot(self.path) as (leaf, at):
                        os.replace(leaf, os.path.join(os.path.dirname(leaf), ASIDE), src_dir_fd=at, dst_dir_fd=at)
                    self._read_to = self._lines = 0
        except OSError as problem:
            self.problems.append(f"{self.path.name} could not be put aside: {problem.strerror or problem}")

    def _read(self) -> None:
        """Take in the lines that came since, up to the last one that is whole."""
        try:
            handle = _opened(self.path, os.O_RDONLY)
        except FileNotFoundError:
            return
        except OSError as problem:
            self._tell(f"{self.path.name} cannot be read: {problem.strerror or problem}")
            return
        with os.fdopen(handle, "rb") as file:
            if os.fstat(file.fileno()).st_size < self._read_to:  # somebody made it anew
                self._read_to = self._lines = 0
            file.seek(self._read_to)
            for line in file:
                if not line.endswith(b"\n"):
                    return  # its writer is at work, or died there: the next one ends the line
                self._lines += 1
                self._read_to += len(line)
                self._waiting += self._letters(line)

    def _letters(self, line: bytes) -> Iterator[MailMessage]:
        if not line.strip(b"\0\r\n\t "):
            return
        where = f"{self.path.name} line {self._lines}"
        if len(line) > LINE:
            self._tell(f"{where}: {len(line):,} bytes are too many for a message, skipped")
            return
        try:
            letter = _decoder.decode(line.replace(b"\0", b""))
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as problem:
            self._tell(f"{where}: unreadable, skipped ({problem})")
            return
        if letter.id:
            yield letter
        else:
            self._tell(f"{where}: a message without an id, skipped")

    def _tell(self, line: str) -> None:
        if line not in self.problems:
            self.problems.append(line)


def _append(handle: int, line: bytes) -> None:
    """Write the line whole and have it on the disk, or leave the file as it was. Raises OSError."""
    size = os.fstat(handle).st_size
    if size:
        os.lseek(handle, size - 1, os.SEEK_SET)
        if os.read(handle, 1) != b"\n":  # a writer died in its line
            line = b"\n" + line
    try:
        written = os.write(handle, line)
        while written < len(line):
            written += os.write(handle, line[written:])
        os.fsync(handle)
    except OSError:
        os.ftruncate(handle, size)
        raise


def _opened(path: Path, flags: int) -> int:
    """A plain file opened, never through a link: a cloned folder must not choose what is written. Raises OSError."""
    return opened(path, flags, base=path.parent)


def _locked(folder: Path) -> Lock:
    """The lock of a mailbox, to be held. Raises OSError, also (Held) when others hold it too long."""
    return Lock(checked(folder / "inbox.lock", base=folder), seconds=PATIENCE)


# ---- What an agent reads of another's message: a labelled element that its words cannot leave, of bounded size.

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


def checked_letter(text: str) -> str:
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
    return cut(line, SUMMARY_CHARS)


def received(letter: MailMessage, redact: Callable[[str], str] = str) -> MessageReceived:
    """The event of a letter that is taken in; what a hostile writer put there is plain text. `redact` takes
    out what looks like a secret."""
    said = redact(words(letter.text))
    if len(said) > MOST_CHARS:
        said = said[:MOST_CHARS] + f"\n[… {len(said) - MOST_CHARS:,} characters cut here …]"
    sender, session = summed(letter.sender, "somebody"), summed(letter.session, "")
    kind = "" if letter.kind == "text" else f' kind="{letter.kind}"'
    name = _TAGS.sub("", sender).replace('"', "'").replace("<", "").replace(">", "")
    head = f'<message from="{name}"{kind}>'
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


# ---- Who writes what to whom: what a session and a sub-agent do alike.

ALL = ("*", "all")
PARENT = "parent"
_SHOWN = 8
LAST_WORDS = (
    "\nYou are asked to end now: answer in one reply with what you have, and call no further tools. "
    "One more round of tools and you are stopped."
)
SHUT_DOWN = "it was asked to shut down"


class Addressee(Protocol):
    """A sub-agent, as those who write to it know it (`ipyagent.parts.subagents.subagent`)."""

    id: str
    name: str
    session: Session | None
    plan: asyncio.Future[tuple[bool, str]] | None

    def tell(self, letter: MailMessage) -> bool:
        """Have a letter delivered before its next request; whether it still runs."""

    def stop(self, why: str) -> None:
        """End it; `why` is for its parent."""


def letter_of(session: Session, order: MessageOrder, said: str, call: str, sender: str) -> MailMessage:
    given = {"to": order.to, "kind": order.kind, "message": order.text}
    own = session.journal.session
    place = session.folded(MailState).call_for(given, call) or secrets.token_hex(8)
    return MailMessage(
        id=f"{own}/{place}",
        sender=sender,
        session=own,
        text=session.redact(said),
        kind=order.kind,
        summary=session.redact(summed(order.summary, said)),
        at=time.time(),
    )


def note_sent(session: Session, letter: MailMessage, to: Iterable[str], call: str) -> None:
    session.record(
        MessageSent(
            message=letter.id, to=tuple(to), said=letter.text, kind=letter.kind, summary=letter.summary, call=call
        )
    )


def tell_all(
    session: Session, children: Sequence[Addressee], letter: MailMessage, call: str, nobody: str
) -> ToolOutput:
    """To running sub-agents. One that has not begun yet and is asked to shut down is stopped at once."""
    if not children:
        raise ToolFailure(nobody)
    ending = letter.kind == "shutdown_request"
    if ending:
        letter = msgspec.structs.replace(letter, text=letter.text + LAST_WORDS)
    for child in children:
        if ending and child.session is None:
            child.stop(SHUT_DOWN)
        else:
            child.tell(msgspec.structs.replace(letter, id=f"{letter.id}/{child.id}"))
    names = [child.name for child in children]
    note_sent(session, letter, names, call)
    then = "each ends with its next reply and says so" if ending else "each reads it at its next step"
    then = then if len(names) > 1 else then.replace("each", "it")
    return text_output(f"Delivered to {', '.join(names)}; {then}.", note=f"to {', '.join(names)}")


def nobody_called(to: str, names: list[str]) -> str:
    near = get_close_matches(to, names, n=3, cutoff=0.5)
    nearest = f"; nearest: {', '.join(near)}" if near else ""
    return f"no agent or session is called {to!r}{nearest}; there are: {listed(names)}"


def listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return (", ".join(names[:_SHOWN]) or "none") + more
