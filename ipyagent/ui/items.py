"""The things a turn consists of on the screen, frozen; and how blocks of the API become them."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from ipyagent.context.store_results import for_person, kept_in
from ipyagent.escape import exact, line
from ipyagent.journal.blocks import CitedPage
from ipyagent.journal.events import Block, MemorySaved, MessageKind, PermissionAsked, Recalled, Step, TurnEnded
from ipyagent.journal.protocols import PermissionAnswer

PICTURES = ("image/png", "image/jpeg", "image/gif", "image/webp")
"""Media types that are shown as pictures; SVG may carry scripts and is not among them."""

RULE_CHARS = 60
"""Characters of a rule that a question shows beside "always"."""

_BASE64 = re.compile(r"[A-Za-z0-9+/=\s]+")

Level: TypeAlias = Literal["info", "warning", "error"]
ToolState: TypeAlias = Literal["running", "done", "error", "stopped"]


@dataclass(frozen=True, slots=True)
class ImageItem:
    """`data` is base64 text without line breaks."""

    media_type: str
    data: str


@dataclass(frozen=True, slots=True)
class TextItem:
    key: str
    text: str
    live: bool = False


@dataclass(frozen=True, slots=True)
class ThinkingItem:
    key: str
    text: str
    live: bool = False


@dataclass(frozen=True, slots=True)
class ToolItem:
    """One call. `output` is the text of the result, or what has come so far while `running`;
    `files` it wrote, `removed` are those that are gone behind it; `began` the call's time, `seconds` how long it took;
    `shown` outputs of it stand in the cell itself. `kept` is the file that holds the output whole, "" when none does;
    `left` characters of it are left out of `output`."""

    key: str
    name: str
    input: dict[str, Any]
    state: ToolState = "running"
    output: str = ""
    pictures: tuple[ImageItem, ...] = ()
    note: str = ""
    permission: str = ""
    files: tuple[str, ...] = ()
    began: float = 0.0
    seconds: float = 0.0
    shown: int = 0
    kept: str = ""
    left: int = 0
    removed: tuple[str, ...] = ()

    @property
    def changes(self) -> tuple[str, ...]:
        """What it did to each file, in words; of a file that a running call has begun to change, that is not known."""
        verb = "changing" if self.state == "running" else "wrote"
        return (*(f"{verb} {path}" for path in self.files), *(f"removed {path}" for path in self.removed))


@dataclass(frozen=True, slots=True)
class SourcesItem:
    """The pages that a reply names: those it cites, or those that were found where it cites none; `more` are left
    out."""

    key: str
    sources: tuple[CitedPage, ...]
    cited: bool = False
    more: int = 0


@dataclass(frozen=True, slots=True)
class NoticeItem:
    key: str
    text: str
    level: Level = "info"


@dataclass(frozen=True, slots=True)
class QuestionItem:
    """A question that is open (`answer` None), was refused, or ended unanswered (`by` "stop"). `unrun`: its call was
    allowed and yet did not run, for `reason`."""

    key: str
    asked: PermissionAsked
    answer: Literal["once", "always", "deny"] | None = None
    by: str = ""
    reason: str = ""
    unrun: bool = False


def heading(asked: PermissionAsked) -> tuple[str, str, str]:
    """Of a question each on one line: the danger, our title, and what the model says of its call ("": nothing).
    What cannot be seen, in the name of a file for instance, is spelled out."""
    parts = (asked.title or f"Run {asked.tool}?", asked.danger)
    title, danger = (line(exact(each).replace("\n", " ⏎ ")) for each in parts)
    said = line(exact(asked.said), 240)
    return danger[:1].upper() + danger[1:], title, f"The model says: “{said}”" if said else ""


def rule_shown(asked: PermissionAsked) -> str:
    """The beginning of the rule that "always" would store, on one line."""
    return line(exact(asked.pattern).replace("\n", " ⏎ "), RULE_CHARS)


@dataclass(frozen=True, slots=True)
class MemoriesItem:
    """Memories that were recalled; `dismissed` are the paths of those that the user clicked away."""

    key: str
    memories: tuple[Recalled, ...]
    dismissed: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class SavedItem:
    """A memory that was written; `undone` once the user took it back."""

    key: str
    saved: MemorySaved
    undone: bool = False


@dataclass(frozen=True, slots=True)
class PlanItem:
    """The plan as it stands; only the newest of a turn is shown, in the place of the call that wrote it."""

    key: str
    steps: tuple[Step, ...]


@dataclass(frozen=True, slots=True)
class SubagentItem:
    """A sub-agent: `doing` while it works; `message`, `handed`, `requests`, `cost` (dollars) and `seconds` once it
    has ended. `began` is Unix time, 0.0 for one of an earlier turn."""

    key: str
    name: str
    kind: str
    task: str
    state: ToolState = "running"
    doing: str = ""
    message: str = ""
    handed: tuple[str, ...] = ()
    background: bool = False
    requests: int = 0
    cost: float = 0.0
    began: float = 0.0
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class MessageItem:
    """What another agent wrote (`way` "from"), or was written ("to"). `text` is the whole, `summary` one line."""

    key: str
    way: Literal["from", "to"]
    who: str
    kind: MessageKind
    summary: str
    text: str


Item: TypeAlias = (
    TextItem | ThinkingItem | ToolItem | SourcesItem | NoticeItem | QuestionItem | MemoriesItem | SavedItem | PlanItem
    | SubagentItem | MessageItem
)  # fmt: skip


def call_key(call: str) -> str:
    """The key of a tool call's item, and of the question about it."""
    return "c:" + call


def ending(event: TurnEnded) -> str:
    """How the turn ended, in one line."""
    words = {
        "finished": "Finished", "stopped": "Stopped", "limit": "Limit reached",
        "refused": "The model declined", "failed": "Failed",
    }[event.status]  # fmt: skip
    message = event.message.strip()
    if message.lower().startswith(words.lower()):
        return message[0].upper() + message[1:]
    return f"{words}: {message}" if message else words


def runs(blocks: tuple[Block, ...]) -> list[tuple[type[TextItem] | type[ThinkingItem], str]]:
    """Neighbouring blocks of one kind as one text, as they were streamed."""
    joined: list[tuple[type[TextItem] | type[ThinkingItem], str]] = []
    apart = False
    for block in blocks:
        kind: type[TextItem] | type[ThinkingItem]
        if block.get("type") == "text":
            kind, text = TextItem, str(block.get("text", ""))
        elif block.get("type") == "thinking":
            kind, text = ThinkingItem, str(block.get("thinking", ""))
        else:
            apart = True
            continue
        if not text.strip():
            continue
        if joined and joined[-1][0] is kind:
            joined[-1] = (kind, joined[-1][1] + ("\n\n" if apart else "") + text)
        else:
            joined.append((kind, text))
        apart = False
    return joined


def file_of(blocks: tuple[Block, ...]) -> str:
    """The file that holds the text of a tool result whole; "" when none does."""
    return next(filter(None, (kept_in(str(block.get("text", ""))) for block in blocks)), "")


def content(blocks: tuple[Block, ...], printed: str = "") -> tuple[str, tuple[ImageItem, ...]]:
    """Text and pictures of a tool result; what cannot be shown is named in the text. `printed` is shown in place of
    the model's preview of it."""
    texts: list[str] = []
    pictures: list[ImageItem] = []
    for block in blocks:
        kind = str(block.get("type", ""))
        source = block.get("source")
        if kind == "text":
            text = str(block.get("text", ""))
            texts.append(printed if printed and kept_in(text) else for_person(text))
        elif kind == "image" and isinstance(source, dict) and source.get("media_type") in PICTURES:
            encoded = str(source.get("data", ""))
            if _BASE64.fullmatch(encoded):
                pictures.append(ImageItem(str(source["media_type"]), "".join(encoded.split())))
            else:
                texts.append("[image that cannot be shown]")
        else:
            texts.append(f"[{kind or 'block'}]")
    return "\n".join(text for text in texts if text), tuple(pictures)


ReadLine: TypeAlias = Callable[[str], Awaitable[str]]
"""Reads one line from the user after a prompt; raises EOFError at the end of input."""

ROWS, COLUMNS = 24, 80
"""Of a page where nobody knows how large the screen is."""


async def ask_on_a_line(
    read_line: ReadLine,
    asked: PermissionAsked,
    *,
    words: str = "",
    pages: tuple[str, ...] = (),
    show: Callable[[str], None] | None = None,
) -> PermissionAnswer:
    """Wait for y, n, a or a reason; an empty line decides nothing. `words`: what is asked about, where it is shown
    nowhere else; `pages`: the same as `pages_of` made it, where `show` brings each to the screen."""
    pages = pages_of(exact(words), ROWS, COLUMNS) if words else pages
    danger, title, said = heading(asked)
    about = [*([f"! {danger}"] if danger else ()), f"? {title}", *([said] if said else ()), ""]
    head = "\n".join(about) if words else ""
    total = sum(page.count("\n") + 1 for page in pages)
    always = f"  [a] always for {rule_shown(asked)}" if asked.pattern else ""
    seen = rows = 0
    while True:
        if seen < len(pages):
            rows += pages[seen].count("\n") + 1
            if show is None:
                head += pages[seen] + "\n"
            else:
                show(pages[seen])
            seen += 1
        more = seen < len(pages)
        prompt = f"[y] once  [n] no, or type a reason{always}: "
        if more:
            prompt = f"{rows:,} of {total:,} lines shown. [Enter] the next, to allow it  [n] no, or type a reason: "
        try:
            said = (await read_line(head + prompt)).strip()
        except EOFError:
            return PermissionAnswer("deny", "the input ended", "headless")
        head = ""
        match said.lower():
            case "":
                continue
            case "y" | "yes" | "once" if not more:
                return PermissionAnswer("once")
            case "a" | "always" if asked.pattern and not more:
                return PermissionAnswer("always")
            case "y" | "yes" | "once" | "a" | "always" if more:
                continue  # not everything was shown yet
            case "n" | "no" | "deny":
                return PermissionAnswer("deny")
            case _:
                return PermissionAnswer("deny", said)


def pages_of(text: str, rows: int, columns: int) -> tuple[str, ...]:
    """A text in pieces that fit a screen of so many rows and columns; one line that is longer is cut into several."""
    pages: list[str] = []
    page: list[str] = []
    room = rows
    for piece in _pieces(text, rows * columns):
        wide = len(piece) if piece.isascii() else 2 * len(piece)  # a character may take two columns
        needs = max(1, -(-wide // columns))
        if page and needs > room:
            pages.append("\n".join(page))
            page, room = [], rows
        page.append(piece)
        room -= needs
    return (*pages, "\n".join(page))


def _pieces(text: str, most: int) -> Iterator[str]:
    for row in text.rstrip("\n").split("\n"):
        if len(row) <= most:
            yield row
        else:
            yield from (row[at : at + most] for at in range(0, len(row), most))
