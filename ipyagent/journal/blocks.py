"""Which blocks may be sent, in what form, and what stands where some were taken out: the API refuses a whole request
for one block out of place. Nothing here changes a block that it was given."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Any, NamedTuple, TypeAlias

from ipyagent.journal.events import Block

# ---- Web search and web fetch, which run at the provider within a reply: what their blocks say, and which are sent
# back. A call (`server_tool_use`) and its result stand in one reply, or in two: the reply paused, or it also called
# tools of ours, and the provider goes on with the next request. A call goes out with its result, or while the reply
# is to be gone on with; everything in the blocks goes back as it came (`encrypted_content` is the provider's own).

CALL = "server_tool_use"
RESULTS = {"web_search": "web_search_tool_result", "web_fetch": "web_fetch_tool_result"}
"""The tools that a session may be given, and the kinds of their results."""
GOES_ON = ("pause_turn", "tool_use")
"""Stop reasons of a reply whose open calls the provider runs with the next request."""

_ENDS = "_tool_result"
_ERRORS = {
    "invalid_tool_input": "the input was not valid",
    "unavailable": "the provider's tool is not available now",
    "max_uses_exceeded": "the limit of this request was reached (max_uses)",
    "too_many_requests": "the provider allows no more now",
    "query_too_long": "the query was too long",
    "request_too_large": "the request was too large",
    "url_too_long": "the address was too long",
    "url_not_allowed": "the address is not allowed (allowed_domains, blocked_domains, or the provider's own rules)",
    "url_not_in_prior_context": "only addresses that stand in the conversation may be fetched",
    "url_not_accessible": "the page could not be reached",
    "unsupported_content_type": "only text and PDF can be fetched",
    "content_too_large": "the page was too large",
}
"""Error codes of the Messages API (anthropic 2.14, `types.*_tool_result_error_code`), for the user."""


def unused(wanted: str, taken: Collection[str]) -> str:
    """An id, with a number behind it where it is taken."""
    found, number = wanted, 1
    while found in taken:
        number += 1
        found = f"{wanted}_{number}"
    return found


def json_object(value: Any) -> dict[str, Any]:
    """A JSON object that came over a wire; what is null or none is empty."""
    return value if isinstance(value, dict) else {}


class CitedPage(NamedTuple):
    """A page that a result names."""

    url: str
    title: str


def is_result(block: Block) -> bool:
    """Whether a block is the result of a call that the provider ran."""
    kind = block.get("type")
    return isinstance(kind, str) and kind.endswith(_ENDS) and kind not in ("tool_result", "mcp_tool_result")


def has_any(blocks: Iterable[Block]) -> bool:
    """Whether blocks are of these tools."""
    return any(block.get("type") == CALL or is_result(block) for block in blocks)


def calls_of(blocks: Iterable[Block]) -> dict[str, Block]:
    """The calls among blocks, by id."""
    return {str(block.get("id")): block for block in blocks if block.get("type") == CALL}


def answered_in(blocks: Iterable[Block]) -> set[str]:
    """The ids of the calls that have their result among blocks."""
    return {str(block.get("tool_use_id")) for block in blocks if is_result(block)}


def sendable(blocks: list[Block], waiting: Collection[str], *, goes_on: bool) -> list[Block]:
    """The blocks of a reply without results of no call, twofold ids and, unless the provider goes on with them, calls
    without a result; `waiting`: ids of the calls of the reply before that may have their result here."""
    if not has_any(blocks):
        return blocks
    answered, seen = answered_in(blocks), set(waiting)
    kept: list[Block] = []
    done: set[str] = set()
    for block in blocks:
        if block.get("type") == CALL:
            call = block.get("id")
            waits = goes_on and block.get("name") in RESULTS
            if not isinstance(call, str) or not call or call in seen or not (waits or call in answered):
                continue
            seen.add(call)
        elif is_result(block):
            call = block.get("tool_use_id")
            if call not in seen or call in done:
                continue
            done.add(str(call))
        kept.append(block)
    return kept


def stopped(call: Block) -> Block:
    """The result of a call that the provider will not run any more."""
    kind = RESULTS[str(call["name"])]
    content = {"type": f"{kind}_error", "error_code": "unavailable"}
    return {"type": kind, "tool_use_id": call["id"], "content": content}


def error_of(block: Block) -> str:
    """What went wrong, of a result that is an error, for the user; "" of any other."""
    content = json_object(block.get("content"))
    if not str(content.get("type", "")).endswith("_error"):
        return ""
    code = str(content.get("error_code") or "unknown")
    return _ERRORS.get(code, code.replace("_", " "))


def sources_of(block: Block) -> list[CitedPage]:
    """The pages that a result names, in its order."""
    content = block.get("content")
    found = content if isinstance(content, list) else [content]
    pages = []
    for page in found:
        if isinstance(page, dict) and isinstance(page.get("url"), str):
            title = page.get("title") or json_object(page.get("content")).get("title")
            pages.append(CitedPage(page["url"], title if isinstance(title, str) else ""))
    return pages


def cited_in(block: Block) -> list[CitedPage]:
    """The pages that a text cites by their address."""
    given = block.get("citations")
    cited = [each for each in (given if isinstance(given, list) else ()) if isinstance(each, dict)]
    return [CitedPage(each["url"], str(each.get("title") or "")) for each in cited if isinstance(each.get("url"), str)]


def texts_of(block: Block) -> Iterator[str]:
    """What can be read in a result, or is cited in a text: the words of a stranger."""
    if block.get("type") == "text":
        given = block.get("citations")
        for cited in given if isinstance(given, list) else ():
            if isinstance(cited, dict):
                yield from (str(cited[key]) for key in ("title", "document_title", "cited_text") if cited.get(key))
    elif is_result(block):
        yield from (f"{source.title}\n{source.url}".strip() for source in sources_of(block))
        if page := page_text(block):
            yield page


def page_text(block: Block) -> str:
    """The text of a page that was fetched; "" where there is none."""
    document = json_object(json_object(block.get("content")).get("content"))
    source = json_object(document.get("source"))
    data = source.get("data") if source.get("type") == "text" else ""
    return data if isinstance(data, str) else ""


def in_words(block: Block) -> str:
    """A call or a result as words."""
    if block.get("type") == CALL:
        given = json_object(block.get("input"))
        asked = next((value for key in ("query", "url") if isinstance(value := given.get(key), str)), "")
        return f"[{block.get('name')}: {asked}]"
    if problem := error_of(block):
        return f"[failed: {problem}]"
    found = "\n".join(f"- {source.title} {source.url}".replace("  ", " ") for source in sources_of(block))
    return "\n".join(part for part in (found or "[no results]", page_text(block)) if part)


def searches_in(blocks: Iterable[Block]) -> Iterator[str]:
    """What was searched for or fetched, and what of it came, each as words."""
    found = list(blocks)
    results = {str(block.get("tool_use_id")): block for block in found if is_result(block)}
    for call, block in calls_of(found).items():
        yield " ".join(f"{in_words(block)} {in_words(results[call]) if call in results else '[no result]'}".split())


def as_text(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Messages for a server that knows nothing of these tools: what they said, in words."""
    made = []
    for message in messages:
        said = message["content"] if message["role"] == "assistant" and isinstance(message["content"], list) else []
        told = has_any(said) or any("citations" in block for block in said)
        made.append({**message, "content": [_worded(block) for block in said]} if told else message)
    return made


def _worded(block: Block) -> Block:
    mark = {"cache_control": block["cache_control"]} if "cache_control" in block else {}
    if block.get("type") == "text":
        return {key: value for key, value in block.items() if key != "citations"}
    if block.get("type") == CALL or is_result(block):
        return {"type": "text", "text": in_words(block), **mark}
    return block


# ---- Which blocks may be sent, and in what form: the API refuses a whole request for one block out of place. Every
# function gives copies that carry no cache mark (the view's own marks are the only ones). Of a reply only what the
# Messages API knows is kept: other servers add keys and kinds of blocks of their own, which a strict one refuses.
# Thinking goes through unedited or not at all.

THINKING = ("thinking", "redacted_thinking")
PICTURES = ("image", "document")
_NOT_IN_REQUEST = ("tool_use", "tool_result", *THINKING)


_RESULT = ("tool_use_id", "content", "caller")
REPLY_KEYS: dict[str, tuple[str, ...]] = {
    "text": ("text", "citations"),
    "thinking": ("thinking", "signature"),
    "redacted_thinking": ("data",),
    "tool_use": ("id", "name", "input", "caller", "toolset_name"),
    "server_tool_use": ("id", "name", "input", "caller"),
    "web_search_tool_result": _RESULT,
    "web_fetch_tool_result": _RESULT,
    "advisor_tool_result": _RESULT,
    "code_execution_tool_result": _RESULT,
    "bash_code_execution_tool_result": _RESULT,
    "text_editor_code_execution_tool_result": _RESULT,
    "tool_search_tool_result": _RESULT,
    "mcp_tool_use": ("id", "name", "server_name", "input"),
    "mcp_tool_result": ("tool_use_id", "is_error", "content"),
    "mcp_tool_listing": ("mcp_server_name", "tools"),
    "container_upload": ("file_id",),
    "compaction": ("content", "encrypted_content", "signature", "tool_changes"),
    "fallback": ("from", "to", "trigger"),
}
"""The blocks of a reply and their keys (anthropic 2.14, `types.beta.BetaContentBlock`), in the API's order."""


def known_block(block: Block) -> Block | None:
    """A reply's block with the keys that the API knows, without those that say nothing; None for another kind."""
    kind = block.get("type")
    keys = REPLY_KEYS.get(kind) if isinstance(kind, str) else None
    if keys is None:
        return None
    return {"type": kind, **{key: block[key] for key in keys if block.get(key) is not None}}


def text_block(text: str) -> Block:
    """A text block."""
    return {"type": "text", "text": text}


def reply_block(block: Block) -> Block | None:
    """A block of a reply that is no tool call; None when it may not be sent back."""
    kind, known = block.get("type"), known_block(block)
    if known is None:
        return None
    if kind == "thinking":
        whole = isinstance(block.get("thinking"), str) and isinstance(block.get("signature"), str)
        return known if whole and block["signature"] else None
    if kind == "redacted_thinking":
        return known if isinstance(block.get("data"), str) and block["data"] else None
    return None if kind == "tool_use" else _plain(known)


def request_blocks(blocks: Iterable[Block]) -> list[Block]:
    """Blocks of the user's side that may be sent."""
    return [kept for block in blocks if block.get("type") not in _NOT_IN_REQUEST and (kept := _plain(block))]


def result_blocks(blocks: Iterable[Block], *, is_error: bool) -> list[Block]:
    """The content of a tool result; of an error the API takes text only, the rest becomes words."""
    kept = request_blocks(blocks)
    if is_error:
        return [block if block["type"] == "text" else text_block(f"[{block['type']}]") for block in kept]
    return kept


def _plain(block: Block) -> Block | None:
    """The block without cache marks; None for what is empty or has no shape."""
    kind = block.get("type")
    if not isinstance(kind, str) or not kind:
        return None
    if kind == "text" and not (isinstance(block.get("text"), str) and block["text"].strip()):
        return None
    if kind in PICTURES and not isinstance(block.get("source"), dict):
        return None
    if is_result(block) and not isinstance(block.get("content"), list | dict):
        return None
    return {key: value for key, value in block.items() if key != "cache_control"}


# ---- Cache marks: where the provider is asked to keep the prompt's prefix. At most four: end of tools, end of
# system, an anchor at the end of the last prompt that the server answered, and the very end. The anchor stands
# exactly where an entry was written, so a turn with any number of parallel calls reads it: the 20 blocks that a
# server looks back never matter.

Position: TypeAlias = tuple[int, int]
"""Message index and block index."""

CACHE_SECONDS = {"5m": 300.0, "1h": 3_600.0}
"""For how long the provider keeps a prefix, by `cache_ttl` (Messages API documentation, "Prompt caching")."""


def mark_for(ttl: str) -> Block:
    """A mark that asks for a prefix to be kept for `ttl`, "5m" or "1h"."""
    return {"type": "ephemeral"} if ttl == "5m" else {"type": "ephemeral", "ttl": ttl}


def marked(
    system: list[Block], tools: list[Block], messages: list[dict[str, Any]], *, anchor: Position | None, ttl: str
) -> tuple[list[Block], list[Block], list[dict[str, Any]]]:
    """The three parts with marks; what carries no mark is shared with the arguments."""
    mark = mark_for(ttl)
    system, tools, messages = list(system), list(tools), list(messages)
    for blocks in (tools, system):
        if blocks:
            blocks[-1] = {**blocks[-1], "cache_control": mark}
    places = {_last_markable(messages, len(messages) - 1, None)}
    if anchor is not None and anchor[0] < len(messages):
        places.add(_last_markable(messages, *anchor))
    for place in places:
        if place is not None:
            index, block = place
            content = list(messages[index]["content"])
            content[block] = {**content[block], "cache_control": mark}
            messages[index] = {**messages[index], "content": content}
    return system, tools, messages


def _last_markable(messages: list[dict[str, Any]], message: int, block: int | None) -> Position | None:
    """The last block at or before the place that may carry a mark, within its message."""
    if message < 0:
        return None
    content = messages[message]["content"]
    start = len(content) - 1 if block is None else min(block, len(content) - 1)
    for index in range(start, -1, -1):
        if content[index]["type"] not in THINKING:
            return message, index
    return None


# ---- Taking a range of events out of the messages and putting blocks in its place, rules kept. Pure functions over
# messages and the events their blocks came from. A call leaves with its result and a result with its call, whatever
# the range says; roles alternate; the first message is the user's.

class Rewritten(NamedTuple):
    """The messages after, the events of their blocks, and where the change begins: everything
    before message `start` is what it was."""

    messages: list[dict[str, Any]]
    sources: list[list[int]]
    start: int


class _Placed(NamedTuple):
    role: str
    block: Block
    source: int
    message: int = -1


REMOVED: Block = {"type": "text", "text": "(earlier parts were removed)"}
"""Stands where two replies would meet, or a reply would come first."""


def flatten(
    messages: list[dict[str, Any]], sources: list[list[int]], last: int = 0, start: int = 0
) -> list[_Placed]:
    """Every block with its role and event; a block of ours (event 0) belongs to the one before. `last` and `start`:
    the event before the first of these messages, and the place of that message."""
    placed: list[_Placed] = []
    for at, (message, events) in enumerate(zip(messages, sources, strict=True), start):
        for block, source in zip(message["content"], events, strict=True):
            last = source or last
            placed.append(_Placed(message["role"], block, last, at))
    return placed


def gather(placed: list[_Placed]) -> tuple[list[dict[str, Any]], list[list[int]]]:
    """Blocks as messages again: neighbours of one role share a message, results stand first."""
    messages: list[dict[str, Any]] = []
    sources: list[list[int]] = []
    firsts = 0  # results that stand first in the newest message
    for role, block, source, _ in placed:
        if not messages or messages[-1]["role"] != role:
            messages.append({"role": role, "content": []})
            sources.append([])
            firsts = 0
        at = len(sources[-1])
        if block["type"] == "tool_result":
            at, firsts = firsts, firsts + 1
        messages[-1]["content"].insert(at, block)
        sources[-1].insert(at, source)
    return messages, sources


def joined(before: list[_Placed], after: list[_Placed], event: int) -> list[_Placed]:
    """Both parts in a row; where a reply would follow a reply, or come first, words of ours part
    them: a reply that grew by another's blocks is one that the server did not give."""
    if after and after[0].role == "assistant" and (not before or before[-1].role == "assistant"):
        return [*before, _Placed("user", REMOVED, event), *after]
    return [*before, *after]


def replace_range(
    messages: list[dict[str, Any]], sources: list[list[int]], first: int, last: int, blocks: list[Block], event: int
) -> Rewritten | None:
    """Take events `first` to `last` out and put `blocks`, as the user's, in their place; the new
    blocks belong to `event`. Thinking from the first changed message on goes. None when there is
    nothing of the range in the messages. Messages in which nothing changes are the same objects."""
    stood, last_source = [], 0
    for source in (source for events in sources for source in events):
        last_source = source or last_source
        stood.append(last_source)
    found_places = iter(places(stood))
    stand = [[next(found_places) for _ in events] for events in sources]
    hit = [at for at, found in enumerate(stand) if any(first <= place <= last for place in found)]
    if not hit:
        return None
    # a call stands in the message before its result, and may be all that is in it; so one more on either side stays
    low, high = max(0, hit[0] - 2), hit[-1] + 3
    carried = next((source for events in reversed(sources[:low]) for source in reversed(events) if source), 0)
    placed = flatten(messages[low:high], sources[low:high], carried, low)
    gone = [first <= place <= last for found in stand[low:high] for place in found]
    uses = {item.block["id"]: at for at, item in enumerate(placed) if item.block["type"] in ("tool_use", CALL)}
    for at, item in enumerate(placed):
        if item.block["type"] == "tool_result" or is_result(item.block):
            use = uses.get(item.block["tool_use_id"])
            if use is not None and gone[use] != gone[at]:
                gone[use] = gone[at] = True
    where = gone.index(True)
    changed = placed[where].message
    for at in range(where):  # calls of one reply are not parted: all their results come together
        if placed[at].message == changed and placed[at].block["type"] == "tool_use":
            where = at
            break
    bound = [item.message >= changed and item.block["type"] in THINKING for item in placed]
    gone = [out or thought for out, thought in zip(gone, bound, strict=True)]
    before = [item for item, out in zip(placed[:where], gone, strict=False) if not out]
    after = [item for item, out in zip(placed[where:], gone[where:], strict=True) if not out]
    made, made_sources = gather(joined([*before, *(_Placed("user", block, event) for block in blocks)], after, event))
    start = low + shared(made, made_sources, messages[low:high], sources[low:high])
    rest = [without_thinking(*pair) for pair in zip(messages[high:], sources[high:], strict=True)]
    return Rewritten(
        [*messages[:low], *made, *(message for message, _ in rest)],
        [*sources[:low], *made_sources, *(events for _, events in rest)],
        start,
    )


def without_thinking(
    message: dict[str, Any], events: list[int], upto: int | None = None
) -> tuple[dict[str, Any], list[int]]:
    """A message and the events of its blocks without thinking of events up to `upto` (None: without any); the same
    objects where there is none. There is text or a call beside thinking always."""
    stays = [
        block["type"] not in THINKING or (upto is not None and event > upto)
        for block, event in zip(message["content"], events, strict=True)
    ]
    if all(stays):
        return message, events
    kept = [block for block, stay in zip(message["content"], stays, strict=True) if stay]
    return {**message, "content": kept}, [event for event, stay in zip(events, stays, strict=True) if stay]


def call_ids(blocks: Iterable[Block]) -> set[str]:
    """The ids of our tools' calls among blocks."""
    return {block["id"] for block in blocks if block["type"] == "tool_use"}


def shared(
    made: list[dict[str, Any]], made_sources: list[list[int]],
    messages: list[dict[str, Any]], sources: list[list[int]],
) -> int:  # fmt: skip
    """Have `made` hold the very messages of `messages` at both ends as far as they are equal, so that what stands
    before and after a change is kept once; how many are at the beginning."""
    start = same_until(made, messages)
    made[:start], made_sources[:start] = messages[:start], sources[:start]
    end = 1
    while end <= min(len(made), len(messages)) - start and made[-end] == messages[-end]:
        made[-end] = messages[-end]
        if made_sources[-end] == sources[-end]:
            made_sources[-end] = sources[-end]
        end += 1
    return start


def places(sources: list[int]) -> list[int]:
    """Where blocks of these events stand, as events. What replaced an old range is younger than what
    follows it and stands before it all the same: it counts as just before what follows."""
    found: list[int] = []
    following: int | None = None
    for source in reversed(sources):
        following = source if following is None or source <= following else following - 1
        found.append(following)
    return found[::-1]


def same_until(some: Sequence[dict[str, Any]], others: Sequence[dict[str, Any]]) -> int:
    """How many messages are the same from the beginning on."""
    at = 0
    while at < min(len(some), len(others)) and some[at] == others[at]:
        at += 1
    return at
