"""Large results live in files, their previews in the context. Decided once, when the result comes,
and frozen: the same result gives the same bytes in every later request.

A result over its own limit is stored before the transcript knows it (`store`, called where results
come in), so that its whole text is never in the conversation. The limit for all results of one
message acts when they are together: the largest are stored first. Sizes of texts are by tokens, told as
characters of English prose (`journal.tokens.prose_chars`)."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from ipyagent.context.removed_content import ENDINGS, decoded
from ipyagent.context.thresholds import message_chars, preview_chars
from ipyagent.journal.events import Block, Event, LayerFailed, ResultStored
from ipyagent.journal.journal import FOLDER, file_stem, lines_of
from ipyagent.journal.protocols import LayerContext, Moment
from ipyagent.journal.tokens import estimate_blocks, is_over, prose_chars
from ipyagent.nofollow import write_atomically

# ---- What a stored text or file looks like, in few characters, by its kind; nothing is invented: an excerpt is
# made of the text's own lines, and says what lies between them.

JSON_CHARS = 4_000_000
"""Longer texts are not parsed to see whether they are JSON."""
ITEMS = 40
"""Keys of a JSON object that are listed."""
_HEADS = (
    (b"\x89PNG\r\n\x1a\n", "png"),
    (b"\xff\xd8\xff", "jpg"),
    (b"GIF8", "gif"),
    (b"%PDF-", "pdf"),
    (b"PK\x03\x04", "zip"),
    (b"\x1f\x8b", "gz"),
    (b"PAR1", "parquet"),
)
_TRACEBACK = "Traceback (most recent call last)"


def kind_of_text(text: str) -> str:
    """A file name's ending for the text: "json", "csv" or "txt"."""
    head = text.lstrip()[:1]
    if head in ("{", "[") and _parsed(text) is not None:
        return "json"
    rows = text[:20_000].split("\n")[:-1][:20]
    for mark in (",", "\t"):
        counts = {row.count(mark) for row in rows if '"' not in row}
        if len(rows) >= 3 and len(counts) == 1 and counts != {0}:
            return "csv" if mark == "," else "tsv"
    return "txt"


def kind_of_bytes(data: bytes) -> str:
    """A file name's ending for bytes; "bin" when they have no known beginning."""
    return next((kind for head, kind in _HEADS if data.startswith(head)), "bin")


def excerpt(text: str, kind: str, limit: int) -> str:
    """The text in about `limit` characters: of JSON its keys and lengths, of a traceback the
    innermost frames and the message, of anything else the first and the last lines."""
    if len(text) <= limit:
        return text
    if kind == "json" and (shape := _shape(_parsed(text), limit // 2)):
        return f"{shape}\n{_ends(text, limit - len(shape), 1 / 2)}"
    at = text.rfind(_TRACEBACK)
    if at >= 0:
        if len(text) - at <= limit * 3 // 4:
            before = _ends(text[:at], limit - (len(text) - at), 1 / 2)
            return f"{before.rstrip()}\n{text[at:]}".lstrip("\n")
        return _ends(text, limit, 1 / 5)
    return _ends(text, limit, 2 / 3 if kind in ("csv", "tsv") else 1 / 2)


def _ends(text: str, limit: int, share: float) -> str:
    """First and last lines, `share` of the room for the first."""
    if len(text) <= limit:
        return text
    lines = lines_of(text)

    def fitting(lines: Iterable[str], room: int) -> list[str]:
        taken: list[str] = []
        for line in lines:
            if len(line) >= room:
                break
            room -= len(line) + 1
            taken.append(line)
        return taken

    room = max(0, int(limit * share))
    first = fitting(lines, room) or [lines[0][: max(20, room)] + " …"]
    room = max(0, limit - sum(len(line) + 1 for line in first))
    last = fitting(reversed(lines[len(first) :]), room)
    if not last and len(lines) > len(first):
        last.append("… " + lines[-1][-max(20, room) :])
    elif not last:
        return f"{first[0]}\n… {text[-max(20, room):]}"
    left = len(lines) - len(first) - len(last)
    between = [f"[… {left:,} lines between …]"] if left else []
    return "\n".join([*first, *between, *reversed(last)])


def _parsed(text: str) -> Any:
    """The JSON value that the text is; None when it is none."""
    if len(text) > JSON_CHARS:
        return None
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, (dict, list)) else None


def _shape(value: Any, limit: int) -> str:
    """Keys with what they hold, or a list's length and what its items are."""
    if isinstance(value, list):
        line = f"JSON array of {len(value):,}"
        if value and isinstance(value[0], dict):
            line += f"; the first item has: {_keys(value[0])}"
        return line[:limit]
    return f"JSON object of {len(value):,}: {_keys(value)}"[:limit] if isinstance(value, dict) else ""


def _keys(value: dict[str, Any]) -> str:
    named = [f"{key[:60]} ({_size(item)})" for key, item in list(value.items())[:ITEMS]]
    return ", ".join(named) + (", …" if len(value) > ITEMS else "")


def _size(value: Any) -> str:
    if isinstance(value, (dict, list)):
        return f"{'object' if isinstance(value, dict) else 'array'} of {len(value):,}"
    return f"text of {len(value):,}" if isinstance(value, str) and len(value) > 40 else json.dumps(value)


_CLOSING = re.compile(r"<(/?)(?=persisted-output\b)")
_GUARDED = re.compile(r"<(/?)\\(?=persisted-output\b)")
_HEAD = re.compile(r"<persisted-output ([^>\n]{0,4000})>\n")
_END = "\n</persisted-output>"
_FACT = re.compile(r'(\w{1,20})="([^"\n]{0,4000})"')
SAMPLE = 20_000
"""Characters by which a text's tokens are judged for its preview."""
PRINTED = 20_000
"""Characters that a person is shown of a stored text."""
LEAST_CUT = 500
"""Characters below which nothing is cut from what a person reads."""
_FRAME = 400
"""Characters around a preview; what is not longer than preview and frame is not worth a file."""


class FullResult(msgspec.Struct, frozen=True, kw_only=True):
    """A result as its tool gave it. `raw` in place of its text when it is bytes; `look` shows the
    object that it is, `handle` its name in the kernel, as far as there is one; `alone` says that
    the object is all there is."""

    call: str
    blocks: Sequence[Block]
    raw: bytes | None = None
    look: str = ""
    handle: str = ""
    alone: bool = False


class StoredResult(NamedTuple):
    """What stands in the result's place, and an event for every file that was written, the text's last; `printed` and
    `left` as in `ToolReturned`."""

    blocks: tuple[Block, ...]
    events: tuple[ResultStored, ...] = ()
    printed: str = ""
    left: int = 0


def text_of(blocks: Sequence[Block]) -> str:
    """The text of a result."""
    return "\n".join(str(block["text"]) for block in blocks if block["type"] == "text")


def is_large(blocks: Sequence[Block], limit: int) -> bool:
    """Whether the text is larger than `limit` characters of prose, or one picture or document as it is sent has more
    characters."""
    return is_over(text_of(blocks), limit) or any(len(_encoded(block)) > limit for block in blocks)


def largest_first(sizes: Mapping[str, int], limit: int, least: int) -> list[str]:
    """Which results to store so that all together have at most `limit` characters, none of them
    under `least`: the largest first, the earlier one of equals."""
    total, chosen = sum(sizes.values()), []
    for call in sorted(sizes, key=lambda call: -sizes[call]):
        if total <= limit or sizes[call] <= least:
            break
        chosen.append(call)
        total -= sizes[call] - least
    return chosen


def store(whole: FullResult, *, folder: Path, place: str, limit: int, preview: int) -> StoredResult:
    """Write the files of a result and make its preview of about `preview` characters.

    `folder` is the session's, `place` the same as the model's tools name it. Text is stored when it
    is larger than `limit` characters of prose, a picture or document when its encoding has. Raises OSError;
    a file is there whole or not at all.
    """
    blocks: list[Block] = []
    events: list[ResultStored] = []
    main: list[ResultStored] = []
    printed, left = "", 0
    text, data = text_of(whole.blocks), whole.raw
    if data is not None or is_over(text, limit):
        if data is not None:
            kind, chars, lines = kind_of_bytes(data), len(data), 0
            facts = {"size": f"{chars:,} bytes"}
        else:
            data = text.encode("utf-8", "replace")
            kind, chars, lines = kind_of_text(text), len(text), len(lines_of(text))
            facts = {"size": f"{chars:,} characters", "lines": f"{lines:,}"}
            head, tail, left = ends(text.rstrip(), PRINTED)
            printed = head + tail
        path = _write(folder, whole.call, kind, data)
        told = f"{_shown(whole, text, kind, preview)}\n{_how(whole, kind)}"
        blocks.append(_element({"path": f"{place}/{path}", **facts}, whole.handle, told))
        tokens = estimate_blocks(blocks)
        main.append(
            ResultStored(call=whole.call, path=path, chars=chars, lines=lines, handle=whole.handle, tokens=tokens)
        )
    else:
        blocks.extend(block for block in whole.blocks if block["type"] == "text")
    for block in whole.blocks:
        if block["type"] == "text":
            continue
        blocks.append(block)
        encoded = _encoded(block)
        if len(encoded) > limit and (data := decoded(encoded)):
            media = str(block["source"].get("media_type", ""))
            path = _write(folder, whole.call, ENDINGS.get(media) or kind_of_bytes(data), data)
            facts = {"path": f"{place}/{path}", "size": f"{len(data):,} bytes"}
            blocks.append(_element(facts, "", f"The {block['type']} above; read_file shows it again."))
            events.append(ResultStored(call=whole.call, path=path, chars=len(encoded)))
    return StoredResult(tuple(blocks), (*events, *main), printed, left)


def _write(folder: Path, call: str, kind: str, data: bytes) -> str:
    """The file's path in the session's folder; one that is there is never written again."""
    stem, number = file_stem(call), 1
    path = f"{FOLDER}/{stem}.{kind}"
    while os.path.lexists(folder / path):
        number += 1
        path = f"{FOLDER}/{stem}-{number}.{kind}"
    write_atomically(folder / path, data)
    return path


def _shown(whole: FullResult, text: str, kind: str, preview: int) -> str:
    if whole.look and (whole.alone or whole.raw is not None):
        return whole.look
    if whole.raw is not None:
        return repr(whole.raw[: preview // 8])
    sample = text[:SAMPLE]
    if text:  # as many characters as make a preview of that many tokens
        preview = max(min(preview, 100), min(preview, preview * len(sample) // prose_chars(sample)))
    if whole.look:
        return f"{excerpt(text, kind, preview // 2)}\nThe last expression:\n{whole.look[: preview // 2]}"
    return excerpt(text, kind, preview)


def _how(whole: FullResult, kind: str) -> str:
    """How to get at the rest."""
    ways = "Only a preview. "
    if whole.handle:
        ways += f"The object itself is {whole.handle} in python: slice it. "
    if whole.raw is not None:
        readable = kind in ("png", "jpg", "gif", "pdf", "parquet")
        return ways + ("read_file shows the file." if readable else "The file holds its bytes.")
    return ways + "The whole text: read_file(path, offset, limit), or grep in that path; a shell may not see it."


def _element(facts: Mapping[str, str], handle: str, body: str) -> Block:
    named = dict(facts) | ({"handle": handle.replace('"', "'")} if handle else {})
    head = " ".join(f'{name}="{value}"' for name, value in named.items())
    guarded = _CLOSING.sub(r"<\1\\", body)
    return {"type": "text", "text": f"<persisted-output {head}>\n{guarded}\n</persisted-output>"}


def ends(text: str, limit: int, left: int = 0) -> tuple[str, str, int]:
    """Of a text its beginning and end, three quarters and one of `limit` characters, and the number of those between;
    of one that is hardly longer all of it, "" and 0. `left`: as many are missing in it, at such a place."""
    limit = min(limit, len(text))
    gone = len(text) + left - limit
    if gone < LEAST_CUT:
        return text, "", 0
    tail = limit // 4
    return text[: limit - tail], text[len(text) - tail :], gone


def kept_in(text: str) -> str:
    """The file that holds the text of which `store` made this block; "" for any other block."""
    head = _HEAD.match(text)
    if head is None or not text.endswith(_END) or not text[head.end() : -len(_END)].rpartition("\n")[0]:
        return ""
    return str(dict(_FACT.findall(head[1])).get("path", ""))


def for_person(text: str) -> str:
    """What a person reads of a block that `store` made where the text itself is not at hand: the preview, and where
    the whole is. Other text as it is."""
    head = _HEAD.match(text)
    if head is None or not text.endswith(_END):
        return text
    facts = dict(_FACT.findall(head[1]))
    shown, _, _ways = text[head.end() : -len(_END)].rpartition("\n")
    size = facts.get("size", "") + (f", {facts['lines']} lines" if "lines" in facts else "")
    place = f"\n… a preview: the whole ({size}) is in {facts.get('path', '')}"
    return _GUARDED.sub(r"<\1", shown) + place if shown else ""


def _encoded(block: Block) -> str:
    """A picture's or document's base64; "" for anything else."""
    source = block.get("source")
    return str(source.get("data", "")) if isinstance(source, dict) and source.get("type") == "base64" else ""


class _StoreResults:
    """The limit for all results of one message; see the module."""

    name = "store_results"
    order = 10
    moments: frozenset[Moment] = frozenset(("results",))

    async def consider(self, now: LayerContext) -> Sequence[Event]:
        """The largest results of the newest message, stored until the rest fits."""
        view = now.view
        newest = len(view.messages) - 1
        spots = [spot for spot in view.results if spot.message == newest]
        preview = preview_chars(int(now.setting("preview_chars")), now.state.window)
        contents = {spot.call: view.messages[newest]["content"][spot.block]["content"] for spot in spots}
        weights = {call: prose_chars(text_of(content)) for call, content in contents.items()}
        sizes = {spot.call: weights[spot.call] for spot in spots if not spot.stored}
        rest = sum(weights[spot.call] for spot in spots if spot.stored)
        limit = message_chars(int(now.setting("store_message_chars")), now.state.window) - rest
        made: list[Event] = []
        for call in largest_first(sizes, limit, preview + _FRAME):
            whole = FullResult(call=call, blocks=contents[call])
            try:
                stored = store(whole, folder=now.folder, place=now.place, limit=0, preview=preview)
            except OSError as problem:
                why = f"{problem.strerror or problem}: the results of this message are kept in full"
                return [*made, LayerFailed(layer=self.name, why=why)]
            *more, text = stored.events
            made.extend(more)
            made.append(msgspec.structs.replace(text, blocks=stored.blocks, tokens=estimate_blocks(stored.blocks)))
        return made


store_results = _StoreResults()
