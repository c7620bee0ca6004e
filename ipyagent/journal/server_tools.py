"""Web search and web fetch, which run at the provider within a reply: what their blocks say, and which are sent back.

A call (`server_tool_use`) and its result stand in one reply, or in two: the reply paused, or it also called tools of
ours, and the provider goes on with the next request. A call goes out with its result, or while the reply is to be
gone on with; everything in the blocks goes back as it came (`encrypted_content` is the provider's own).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from typing import Any, NamedTuple

from ipyagent.journal.events import Block

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
    content = block.get("content")
    if not isinstance(content, dict) or not str(content.get("type", "")).endswith("_error"):
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
            document = page.get("content")
            title = page.get("title") or (document.get("title") if isinstance(document, dict) else "")
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
    content = block.get("content")
    document = content.get("content") if isinstance(content, dict) else None
    source = document.get("source") if isinstance(document, dict) else None
    data = source.get("data") if isinstance(source, dict) and source.get("type") == "text" else ""
    return data if isinstance(data, str) else ""


def query_of(block: Block) -> str:
    """What a call asks for."""
    given = block.get("input")
    given = given if isinstance(given, dict) else {}
    return next((value for key in ("query", "url") if isinstance(value := given.get(key), str)), "")


def in_words(block: Block, chars: int = 0) -> str:
    """A call or a result as words; `chars`: of a page, at most (0: all)."""
    if block.get("type") == CALL:
        return f"[{block.get('name')}: {query_of(block)}]"
    if problem := error_of(block):
        return f"[failed: {problem}]"
    found = "\n".join(f"- {source.title} {source.url}".replace("  ", " ") for source in sources_of(block))
    page = page_text(block)
    page = page if not chars or len(page) <= chars else f"{page[:chars]}\n… {len(page) - chars:,} characters more"
    return "\n".join(part for part in (found or "[no results]", page) if part)


def searches_in(blocks: Iterable[Block]) -> Iterator[str]:
    """What was searched for or fetched, and what of it came, each as words."""
    found = list(blocks)
    results = {str(block.get("tool_use_id")): block for block in found if is_result(block)}
    for call, block in calls_of(found).items():
        yield " ".join(f"{in_words(block)} {in_words(results[call]) if call in results else '[no result]'}".split())


def as_text(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Messages for a server that knows nothing of these tools: what they said, in words."""
    return [
        {**message, "content": [_worded(block) for block in message["content"]]}
        if message["role"] == "assistant" and _told_otherwise(message["content"])
        else message
        for message in messages
    ]


def _told_otherwise(content: Any) -> bool:
    return isinstance(content, list) and (has_any(content) or any("citations" in block for block in content))


def _worded(block: Block) -> Block:
    mark = {"cache_control": block["cache_control"]} if "cache_control" in block else {}
    if block.get("type") == "text":
        return {key: value for key, value in block.items() if key != "citations"}
    if block.get("type") == CALL or is_result(block):
        return {"type": "text", "text": in_words(block), **mark}
    return block
