"""What stands in the place of a compacted range: summary, newest request word for word, what was restored.

The count after it is taken on a copy of the view and must be smaller than before; otherwise nothing
happens. What must stay in any case is measured first, so that no call is spent where none can help.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

import msgspec

from ipyagent.context.archive import left_ranges
from ipyagent.context.ranges import Range
from ipyagent.errors import CompactionFailed
from ipyagent.journal.admission import text_block
from ipyagent.journal.events import Block, Compacted
from ipyagent.journal.protocols import Situation
from ipyagent.journal.tokens import estimate_block, estimate_blocks, estimate_text

SUMMARY = (
    "The conversation before this point was taken out of the context window. This summary stands in its place:\n"
    "<summary>\n{summary}\n</summary>"
)
KEPT = "Results of it that are kept whole; read them again instead of making them again:\n{lines}"
KEPT_TOKENS = 2_000
REQUEST_OPEN = "The user's newest request, word for word:"
REQUEST_DONE = "The user's newest request until now, word for word; what came of it is in the summary:"
GO_ON = {
    "auto": "The context window was nearly full. Go on with this request from where the summary says the work stands, "
    "without asking and without repeating what is done.",
    "reactive": "The context window was full. Go on with this request from where the summary says the work stands, "
    "without asking and without repeating what is done.",
    "model": "The compaction that you asked for is done. Go on with this request from where the summary says the work "
    "stands, without compacting again.",
}
PICTURE = "The newest picture of what went:"
PICTURE_SHARE = 64
"""The part of the window that a picture may take to stay: one in so many."""
NOT_NOW = (
    "the newest turn was stopped between a tool call and its answer, and the model's thinking there must stay: "
    "compact everything, or say something to the agent first"
)
_STORED = re.compile(r"<persisted-output ([^>\n]*)>|^- (path=[^\n]*)$|The whole result is kept: ([^\n]*)", re.MULTILINE)


def request_blocks_of(now: Situation) -> list[Block]:
    """The newest request as it stands in the view; only its words where that would be too much, or
    where an earlier compaction has taken its place."""
    said = now.request
    if said is None:
        return []
    blocks = [block for role, block, source in now.view.placed() if source == said.id and role == "user"]
    room = min(now.setting("keep_most_tokens"), (now.state.auto_mark - _scaled(now, now.view.head_tokens)) // 2)
    if not blocks or _scaled(now, estimate_blocks(blocks)) > room:
        blocks = [text_block(said.text)] if said.text.strip() else []
    return blocks


def too_large(now: Situation, kept: Sequence[Block]) -> str:
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
    blocks = [text_block(SUMMARY.format(summary=summary))]
    lines = _stored(gone.blocks)
    if lines:
        blocks.append(text_block(KEPT.format(lines="\n".join(lines))))
    return blocks


async def boundary(now: Situation, gone: Range, method: str, head: Sequence[Block], kept: Sequence[Block]) -> Compacted:
    """The event that puts `head` in the range's place, with the request `kept` and what is restored
    where the range reaches to the end; what leaves is kept in a file that it names. Raises CompactionFailed
    when the context would not be smaller."""
    before = now.view.count().tokens
    left = left_ranges(now.view, now.folder, [(gone.first, gone.last)])
    named = [text_block(left.line)] if left is not None else []
    blocks = [*head, *named]
    asked = len(blocks)
    if gone.tail and kept:
        blocks += [text_block(REQUEST_OPEN if now.open_turn else REQUEST_DONE), *kept]
    if gone.tail and now.open_turn:
        blocks.append(text_block(GO_ON.get(now.trigger, GO_ON["auto"])))
    made = Compacted(
        trigger=now.trigger,
        method=method,
        first=gone.first,
        last=gone.last,
        blocks=tuple(blocks),
        tokens_before=before,
        asked=(asked, len(blocks)),
    )
    after = _smaller(now, made, before)
    names: list[str] = []
    if gone.tail:
        room = (now.state.auto_mark - after) // 2  # the other half is for the work that goes on
        for name, text in await now.restore():
            tokens = _scaled(now, estimate_block(text_block(text)))
            if text.strip() and tokens <= room:
                room -= tokens
                names.append(name)
                blocks.append(text_block(text))
        blocks += newest_picture(now, gone.blocks, kept)
    facts = {"trigger": now.trigger, "method": method, "tokens_before": before, "tokens_after": after}
    blocks += [text_block(text) for text in await now.hook("post_compact", facts) if text.strip()]
    made = msgspec.structs.replace(made, blocks=tuple(blocks), restored=tuple(names))
    after = _smaller(now, made, before)
    if left is not None and left.write():  # the disk failed: nothing names what is not there
        span = (made.asked[0] - len(named), made.asked[1] - len(named))
        made = msgspec.structs.replace(made, blocks=(*head, *blocks[len(head) + len(named) :]), asked=span)
        after = _smaller(now, made, before)
    return msgspec.structs.replace(made, tokens_after=after)


def newest_picture(now: Situation, gone: Sequence[Block], stays: Sequence[Block]) -> list[Block]:
    """The newest picture of what goes, with a word before it, where it is small and none stays: between prompts with
    pictures and prompts without, the provider's cache of the messages begins anew, and the model may still be asked
    about it."""
    if pictures_in(stays) or not (pictures := pictures_in(gone)):
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


def _smaller(now: Situation, made: Compacted, before: int) -> int:
    after = now.view.tokens_after(made)
    if after is None:
        raise CompactionFailed(NOT_NOW)
    if after >= before:
        told = f"the context would not be smaller: {before:,} tokens before, {after:,} after; choose more turns"
        raise CompactionFailed(told)
    return after


def _stored(blocks: Iterable[Block]) -> list[str]:
    """Where stored results named in these blocks are, newest kept when they are many."""
    found: dict[str, None] = {}
    for block in blocks:
        parts = block.get("content") if block.get("type") == "tool_result" else [block]
        for part in parts if isinstance(parts, list) else []:
            for match in _STORED.finditer(str(part.get("text", "")) if part.get("type") == "text" else ""):
                line = "- " + next(group for group in match.groups() if group)
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


def _scaled(now: Situation, tokens: int) -> int:
    return round(tokens * now.view.calibration.factor)
