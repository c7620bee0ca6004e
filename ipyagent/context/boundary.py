"""What stands in the place of a compacted range: summary, what the user said in it and the newest request word for
word, what was restored.

What the user said is taken from the journal each time, so that it stands after any number of compactions as far as
its budget goes; what is in the conversation behind the range is not said twice.

The count after it is taken on a copy of the view and must be smaller than before; otherwise nothing happens. What
must stay in any case is measured first, so that no call is spent where none can help."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from posixpath import normpath

import msgspec

from ipyagent.context.reminders import guarded, without_told
from ipyagent.context.removed_content import left_ranges
from ipyagent.context.store_results import text_of
from ipyagent.context.thresholds import notes_limit
from ipyagent.errors import CompactionFailed
from ipyagent.journal.blocks import places, text_block
from ipyagent.journal.events import Block, Compacted
from ipyagent.journal.protocols import LayerContext
from ipyagent.journal.tokens import estimate_block, estimate_blocks, estimate_text
from ipyagent.journal.view import ContextView

# ---- Which part of the conversation goes: whole turns, never half a turn. A range is given in events and snapped
# to turns: its start back to the first event of its turn, its end on to the last. What an earlier decision put in
# the place of turns goes with all of them, never with one: what it says of the others would be lost.


class Range(msgspec.Struct, frozen=True, kw_only=True):
    """Events `first` to `last` with their blocks in the view. `tokens` is estimated, uncalibrated, without what the
    server leaves out; `words` names the range for the user; `tail`: it reaches to the newest event; `snapped`: it
    was made larger so that it holds whole turns."""

    first: int
    last: int
    blocks: tuple[Block, ...]
    tokens: int
    words: str
    whole: bool
    tail: bool
    snapped: bool = False


def whole_turns(view: ContextView, starts: Sequence[int], first: int = 0, last: int = 0) -> Range:
    """The turns that events `first` to `last` (0: open) come to. Raises CompactionFailed when nothing
    of them is in the view."""
    placed = view.placed()
    stand = places([source for _, _, source in placed])
    newest = max((source for _, _, source in placed), default=0)
    begins = sum(start <= first for start in starts) if first else 0
    ends = sum(start <= last for start in starts) if last else len(starts)
    begin = starts[begins - 1] if begins > 1 else 1
    end = max(newest, starts[-1] if starts else 0) if ends >= len(starts) else starts[ends] - 1
    replaced = view.replacements
    asked = begin
    for (_, _, source), place in reversed([*zip(placed, stand, strict=True)]):
        if begin <= place <= end and source in replaced:
            begin = min(begin, replaced[source][0])
    if begin < asked:
        begins = sum(start <= begin for start in starts)
        begin = starts[begins - 1] if begins > 1 else 1
    blocks = tuple(block for (_, block, _), place in zip(placed, stand, strict=True) if begin <= place <= end)
    if not blocks:
        raise CompactionFailed("these turns were already compacted; choose later ones")
    one = f"turn {max(begins, 1)}"
    return Range(
        first=begin,
        last=end,
        blocks=blocks,
        tokens=estimate_blocks(blocks) - view.left_out.of(blocks),
        words=one if ends <= max(begins, 1) else f"{one.replace('turn', 'turns')} to {ends}",
        whole=len(blocks) == len(placed),
        tail=end >= newest,
        snapped=bool(begin < asked or (begins > 1 and first != begin) or (last and ends < len(starts) and last != end)),
    )


SUMMARY = (
    "{what} taken out of the context window. This summary stands in {whose} place:\n<summary>\n{summary}\n</summary>"
)
SAID_BEGINS = "What the user said in it, word for word, by turn"
SAID = SAID_BEGINS + "{but}:\n<user-messages>\n{lines}\n</user-messages>"
SAID_CUT = "; where characters or turns are left out, this says so"
SAID_LEAST = 40
"""Tokens that a message keeps at least; where that is too much for all of them, the oldest are left out."""
KEPT = "Results of it that are kept whole; read them again instead of making them again{but}:\n{lines}"
KEPT_HANDLES = " (a handle is gone with its kernel, the file stays)"
KEPT_CALL = 100
"""Characters of the call that is named with such a result."""
KEPT_TOKENS = 2_000
REQUEST_OPEN = "The user's newest request, word for word:"
REQUEST_DONE = "The user's newest request until now, word for word; what came of it is in the summary:"
NOT_ATTACHED = "(What was attached to it is too much for this place.)"
GO_ON = {
    "auto": "The context window was nearly full. Go on with this request from where the summary says the work stands, "
    "without asking and without repeating what is done.",
    "reactive": "The prompt was too long. Go on with this request from where the summary says the work stands, "
    "without asking and without repeating what is done.",
    "model": "The compaction that you asked for is done. Go on with this request from where the summary says the work "
    "stands, without compacting again.",
}
RETURNED = "What {tool} returned to one of your newest calls, {given}"
CALL_CHARS = 300
RESULTS_PART = 6
"""The part of the auto-compact threshold that the results of the newest calls may have to stay whole: one in so many,
as much as the largest single result."""
SHOWN = 200
"""Characters of such a result that the summary's call reads; a shorter one it reads whole, and carries over."""
COMPACT = "compact"
"""The model's tool for a compaction: its result tells nothing."""
PART = ", as was asked for]\n</file>"
"""How a file ends of which no more is put back than was read last."""
RECENT_TURNS = 3
"""Turns, the running one included, whose pictures and files the work may still go by."""
PICTURE = "The newest picture of what went:"
PICTURE_SHARE = 64
"""The part of the window that a picture may take to stay: one in so many."""
NOT_NOW = (
    "the newest turn was stopped between a tool call and its answer, and the model's thinking there must be kept: "
    "compact everything, or send the agent a message first"
)
_ATTACHED = re.compile(r'<file path="([^"\n]{1,4000})">')
_STORED = re.compile(
    r"<persisted-output ([^>\n]{0,2000})>|^- (path=[^\n]*)$|The whole result is kept: ([^\n]*)", re.MULTILINE
)


def request_blocks_of(now: LayerContext) -> list[Block]:
    """The newest request as it stands in the view; only its words where that would be too much, or
    where an earlier compaction has taken its place."""
    said = now.request
    if said is None:
        return []
    blocks = [block for role, block, source in now.view.placed() if source == said.id and role == "user"]
    room = min(now.setting("keep_most_tokens"), (now.state.auto_mark - _scaled(now, now.view.head_tokens)) // 2)
    if not blocks or _scaled(now, estimate_blocks(blocks)) > room:
        whole, blocks = blocks, [text_block(said.text)] if said.text.strip() else []
        if whole and blocks and whole != blocks:
            blocks.append(text_block(NOT_ATTACHED))
    return blocks


def said_in(
    now: LayerContext, first: int, last: int, room: int, *, but: int = 0, among: Collection[int] | None = None
) -> list[Block]:
    """What the user said in a range of events, word for word, in at most `room` estimated tokens and within its
    setting; without the request of event `but`, and only those `among` some events if given. Where it is too much,
    the longest messages are cut in their middle, the newest last, and then the oldest left out; both are said."""
    said = [
        (number, note, text)
        for number, event, note, text in now.said(first, last)
        if event != but and (among is None or event in among or event not in now.turn_starts)
    ]
    if not said:
        return []
    factor = now.view.calibration.factor
    room = min(room, round(notes_limit("keep_user_tokens", now.setting("keep_user_tokens"), now.state.window) / factor))
    sizes = [estimate_text(text) + 4 + estimate_text(note) for _, note, text in said]
    newest = sizes[-1] if sizes[-1] <= room // 2 else 0  # stays whole
    most = _level(sizes[:-1] if newest else sizes, room - newest)
    start = 0
    if most < SAID_LEAST and sum(sizes) > room:
        most = SAID_LEAST
        taken = room - newest
        for start in range(len(sizes) - 1 - bool(newest), -1, -1):
            taken -= min(sizes[start], most)
            if taken < 0:
                start += 1
                break
    lines = []
    if start:
        turns = f"turns {said[0][0]} to {said[start - 1][0]} are" if start > 1 else f"turn {said[0][0]} is"
        lines.append(f"({turns} left out here)")
    cut = bool(start)
    for at in range(start, len(said)):
        number, note, text = said[at]
        if sizes[at] > most and not (newest and at == len(said) - 1):
            text, cut = _cut(text, most, sizes[at]), True
        lines.append(f"[{number}{f', {note}' if note else ''}] {text}")
    if len(said) == start:
        return []
    return [text_block(SAID.format(but=SAID_CUT if cut else "", lines="\n".join(lines)))]


def room_to_say(now: LayerContext, gone: Iterable[Block], stands: Iterable[Block], after: int) -> int:
    """Estimated tokens for what the user said in the blocks `gone`, where `stands` comes in their place and makes the
    prompt `after` tokens: half of what is won, so that something is, and of the room below the auto-compact threshold
    (below what the server takes, where it said so), but never less than what stood of it before."""
    gone = list(gone)
    stood = said_before(gone) if now.moment != "overflow" else 0
    won = estimate_blocks(gone) - estimate_blocks(stands)
    most = min(now.state.auto_mark, now.view.count().tokens - now.gap)
    below = round(max(0, most - after) / now.view.calibration.factor)
    return max(stood, min(stood + (won - stood) // 2, below // 2))


def said_before(blocks: Iterable[Block]) -> int:
    """Estimated tokens of what earlier compactions have kept of the user's words."""
    return sum(estimate_block(block) for block in blocks if str(block.get("text", "")).startswith(SAID_BEGINS))


def _level(sizes: Sequence[int], room: int) -> int:
    """The size to which all are cut, at most, so that together they take no more than `room`."""
    left = len(sizes)
    for size in sorted(sizes):
        if size * left > room:
            return max(0, room // left)
        room, left = room - size, left - 1
    return max(sizes, default=0)


def _cut(text: str, tokens: int, size: int) -> str:
    """The beginning and the end of a text of `size` tokens, in about `tokens`."""
    chars = len(text) * max(1, tokens - 14) // size
    head = chars * 2 // 3
    end = text[len(text) - (chars - head) :]
    return f"{text[:head]} [… {len(text) - chars:,} characters left out …] {end}"


def too_large(now: LayerContext, kept: Sequence[Block]) -> str:
    """One line with the numbers when what always stays is over the mark already; "" when it is not."""
    mark = now.state.auto_mark if now.trigger == "auto" else now.state.block_mark
    view = now.view
    tools = estimate_blocks(view.tools)
    parts = [
        ("system prompt", max(0, view.head_tokens - tools)),
        ("tools", tools),
        ("newest request", estimate_blocks(kept)),
    ]
    total = sum(_scaled(now, tokens) for _, tokens in parts)
    if total < mark:
        return ""
    shown = " + ".join(f"{name} {_scaled(now, tokens):,}" for name, tokens in parts)
    named = "threshold" if now.trigger == "auto" else "hard limit"
    return (
        f"no compaction can help: {shown} = {total:,} tokens always stay, {named} {mark:,}; "
        "remove tools or MCP servers, ask for less at once, or raise the window (IPyAgent.window)"
    )


def head_of(summary: str, gone: Range) -> list[Block]:
    """The summary as a block, and where stored results of the range are."""
    words = gone.words[:1].upper() + gone.words[1:]
    one = words.startswith("Turn ")
    whose = "its" if gone.whole or one else "their"
    what = f"{words} of the conversation {'was' if one else 'were'}"
    what = "The conversation before this point was" if gone.whole else what
    blocks = [text_block(SUMMARY.format(what=what, whose=whose, summary=summary))]
    lines = _stored(gone.blocks)
    if lines:
        but = KEPT_HANDLES if any(" handle=" in line for line in lines) else ""
        blocks.append(text_block(KEPT.format(but=but, lines="\n".join(lines))))
    return blocks


def newest_results(now: LayerContext, gone: Range) -> dict[str, Block]:
    """By call what the newest calls of a turn returned that is compacted in its middle: nobody has worked on it yet.
    Only what the summary's call is shown shortened; together at most RESULTS_PART of the auto-compact threshold, and a
    third of what goes."""
    view, newest = now.view, len(now.view.messages) - 1
    if now.moment == "overflow" or not (now.open_turn and gone.tail):
        return {}
    room = min(now.state.auto_mark // RESULTS_PART / view.calibration.factor, gone.tokens / 3)
    calls = {block["id"]: block["input"] for block in gone.blocks if block["type"] == "tool_use"}
    found: dict[str, Block] = {}
    for spot in view.results:
        if spot.message != newest or spot.call not in calls or spot.tool == COMPACT or spot.chars <= SHOWN:
            continue
        content = view.messages[newest]["content"][spot.block].get("content") or ""
        text = content if isinstance(content, str) else text_of(content)
        given = " ".join(msgspec.json.encode(calls[spot.call]).decode().split())[:CALL_CHARS]
        lead = RETURNED.format(tool=spot.tool, given=guarded(given))
        block = text_block(f"<context>\n{lead}\n{guarded(text)}\n</context>")
        if text.strip() and not spot.cleared and (size := estimate_block(block)) <= room:
            room -= size
            found[spot.call] = block
    return found


async def boundary(
    now: LayerContext,
    gone: Range,
    method: str,
    head: Sequence[Block],
    kept: Sequence[Block],
    fresh: Mapping[str, Block] | None = None,
) -> Compacted:
    """The event that puts `head` in the range's place, with the request `kept`, `fresh` results and what is restored
    where the range reaches to the end; what leaves is kept in a file that it names. Raises CompactionFailed
    when the context would not be smaller."""
    before = now.view.count().tokens
    left = left_ranges(now.view, now.folder, [(gone.first, gone.last)])
    named = [text_block(left.line)] if left is not None else []
    request: list[Block] = []
    if gone.tail and kept:
        request += [text_block(REQUEST_OPEN if now.open_turn else REQUEST_DONE), *kept]
    if gone.tail and now.open_turn:
        request.append(text_block(GO_ON.get(now.trigger, GO_ON["auto"])))

    def made(blocks: Iterable[Block], names: Sequence[str] = (), asked: tuple[int, int] = (0, 0)) -> Compacted:
        event = Compacted(
            trigger=now.trigger, method=method, first=gone.first, last=gone.last, blocks=tuple(blocks), asked=asked,
            restored=tuple(names), tokens_before=before,
        )  # fmt: skip
        return msgspec.structs.replace(event, tokens_after=_smaller(now, event, before))

    bare = made([*head, *named, *request])
    room = room_to_say(now, gone.blocks, bare.blocks, bare.tokens_after)
    but = now.request.id if gone.tail and kept and now.request is not None else 0
    said = said_in(now, gone.first, gone.last, room, but=but)
    blocks = [*head, *named, *said, *request]
    span = (len(blocks) - len(request), len(blocks))
    fresh = fresh or {}
    blocks += fresh.values()
    after = made(blocks).tokens_after
    names = ["the newest results"] if fresh else []
    if gone.tail:
        room = (now.state.auto_mark - after) // 2  # the other half is for the work that goes on
        calls = [block for block in gone.blocks if block["type"] == "tool_use" and block["id"] in fresh]
        back: list[str] = []
        for name, text in await now.restore():
            tokens = _scaled(now, estimate_block(text_block(text)))
            shown = (call for call in calls if _reads_all(call, text))
            if text.strip() and tokens <= room and not file_stands([*kept, *shown], text):
                room -= tokens
                names.append(name)
                back.append(text)
        request = without_told(request, back)
        blocks[span[0] : span[1]] = request
        span = (span[0], span[0] + len(request))
        blocks += map(text_block, back)
        blocks += newest_picture(now, gone.blocks, kept)
    facts = {"trigger": now.trigger, "method": method, "tokens_before": before, "tokens_after": after}
    blocks += [text_block(text) for text in await now.hook("post_compact", facts) if text.strip()]
    whole = made(blocks, names, span)
    if left is not None and left.write():  # the disk failed: nothing names what is not there
        del blocks[len(head)]
        return made(blocks, names, (span[0] - 1, span[1] - 1))
    return whole


def file_stands(kept: Iterable[Block], words: str) -> bool:
    """Whether `words` put a file back that stands in what is kept: a call had it, or it is attached there."""
    opening = words.partition("\n")[0]
    if not opening.startswith("<file "):
        return False
    path = opening.split('"')[1]
    return any(
        block["input"].get("path") == path if block["type"] == "tool_use"
        else block["type"] == "text" and (found := _ATTACHED.match(block["text"])) and normpath(found[1]) == path
        for block in kept
    )  # fmt: skip


def _reads_all(call: Block, words: str) -> bool:
    """Whether a call read all that `words` put back of its file: the whole of it, or the same part."""
    return call["name"] == "read_file" and (call["input"].keys() <= {"path"} or words.endswith(PART))


def newest_picture(now: LayerContext, gone: Sequence[Block], stays: Sequence[Block]) -> list[Block]:
    """The newest picture of what goes of the newest turns, with a word before it, where it is small and none stays:
    between prompts with pictures and prompts without, the provider's cache of the messages begins anew, and the model
    may still be asked about it."""
    since = now.turn_starts[-RECENT_TURNS:][0] if now.turn_starts else 0
    recent = {id(block) for _, block, source in now.view.placed() if source >= since}
    if pictures_in(stays) or not (pictures := pictures_in(block for block in gone if id(block) in recent)):
        return []
    if _scaled(now, estimate_block(pictures[-1])) > now.state.window // PICTURE_SHARE:
        return []
    return [text_block(PICTURE), pictures[-1]]


def pictures_in(blocks: Iterable[Block]) -> list[Block]:
    """The images in blocks, also those in results."""
    found: list[Block] = []
    for block in blocks:
        inner = block.get("content") if block["type"] == "tool_result" else [block]
        found += [part for part in inner if part["type"] == "image"] if isinstance(inner, list) else []
    return found


def _smaller(now: LayerContext, made: Compacted, before: int) -> int:
    after = now.view.tokens_after(made)
    if after is None:
        raise CompactionFailed(NOT_NOW)
    if after >= before:
        told = f"the context would not be smaller: {before:,} tokens before, {after:,} after; choose more turns"
        raise CompactionFailed(told)
    return after


def _stored(blocks: Iterable[Block]) -> list[str]:
    """Where stored results named in these blocks are, and of which calls, newest kept when they are many."""
    found: dict[str, None] = {}
    calls: dict[str, str] = {}
    for block in blocks:
        if block.get("type") == "tool_use":
            given = " ".join(msgspec.json.encode(block["input"]).decode().split())
            short = given if len(given) <= KEPT_CALL else given[:KEPT_CALL] + "…"
            calls[block["id"]] = f" of {block['name']} {guarded(short)}"
        parts = block.get("content") if block.get("type") == "tool_result" else [block]
        for part in parts if isinstance(parts, list) else []:
            for match in _STORED.finditer(str(part.get("text", "")) if part.get("type") == "text" else ""):
                line = "- " + next(group for group in match.groups() if group)
                line += calls.get(block.get("tool_use_id", ""), "")
                found.pop(line, None)
                found[line] = None
    lines: list[str] = []
    room = KEPT_TOKENS
    for line in reversed(found):
        room -= estimate_text(line)
        if room < 0:
            break
        lines.append(line)
    return lines[::-1]


def _scaled(now: LayerContext, tokens: int) -> int:
    return round(tokens * now.view.calibration.factor)
