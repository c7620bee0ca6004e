"""Searches at the provider and the pages they name. A link leads to http or https alone and shows its host, for the
title is the page's own."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import groupby
from urllib.parse import quote, urlsplit

from ipyagent.escape import escape, line
from ipyagent.journal.events import Block
from ipyagent.journal.server_tools import (
    CALL,
    CitedPage,
    cited_in,
    error_of,
    is_result,
    page_text,
    sources_of,
)
from ipyagent.ui.items import SourcesItem, ToolItem, ToolState
from ipyagent.ui.look import Theme

MOST = 10
"""Pages that are named below a reply."""
TITLE, HOST = 120, 60
"""Characters of a title and of a host that are shown."""
LONGEST_URL = 2_000


def parts_of(blocks: Sequence[Block]) -> Iterator[tuple[bool, list[Block]]]:
    """The blocks in runs: searches with their results (True), and what stands between them."""
    for searched, run in groupby(blocks, lambda block: block.get("type") == CALL or is_result(block)):
        yield searched, list(run)


def search_item(key: str, block: Block, before: ToolItem | None, *, ended: bool) -> ToolItem | None:
    """A call, or the call `before` once its result is there; None for a result of no call. `ended`: no result will
    come for what has none."""
    if block.get("type") == CALL:
        given = block.get("input")
        state: ToolState = "stopped" if ended else "running"
        return ToolItem(key, str(block.get("name", "")), given if isinstance(given, dict) else {}, state)
    if before is None:
        return None
    if problem := error_of(block):
        return replace(before, state="error", note=problem)
    pages = sources_of(block)
    rows = [" ".join(part for part in (line(page.title, TITLE), line(page.url, LONGEST_URL)) if part) for page in pages]
    text = page_text(block)
    note = "" if text or before.name != "web_search" else f"{len(pages)} result{'' if len(pages) == 1 else 's'}"
    return replace(before, state="done", note=note, output="\n".join([*rows, *([text] if text else [])]))


def pages_of(blocks: Sequence[Block], key: str) -> SourcesItem | None:
    """The pages that a reply cites, else those that it found; None when there are none."""
    cited = [source for block in blocks if block.get("type") == "text" for source in cited_in(block)]
    found = cited or [source for block in blocks if is_result(block) for source in sources_of(block)]
    if cited:  # what was read as a whole is a source all the same
        found += [page for block in blocks if is_result(block) and page_text(block) for page in sources_of(block)]
    pages: dict[str, CitedPage] = {}
    for source in found:
        pages.setdefault(source.url, source)
    kept = tuple(pages.values())
    return SourcesItem(key, kept[:MOST], bool(cited), max(0, len(kept) - MOST)) if kept else None


def _target(source: CitedPage) -> tuple[str, str]:
    """Where a link may lead ("": nowhere), and the host."""
    try:
        parts = urlsplit(source.url)
        host = parts.hostname or ""
    except ValueError:
        return "", ""
    if parts.scheme.lower() not in ("http", "https") or not host or len(source.url) > LONGEST_URL:
        return "", ""
    # nothing that ends an attribute or a Markdown link
    return quote(source.url, safe="!#$%&*+,/:;=?@-._~"), line(host, HOST)


def _shown(source: CitedPage) -> str:
    return line(source.title, TITLE) or line(source.url, TITLE)


def _head(item: SourcesItem) -> str:
    return "Sources" if item.cited else "Pages found"


def pages_lines(item: SourcesItem) -> list[str]:
    """A heading and a line a page, its address in full."""
    more = [f"  and {item.more} more"] * bool(item.more)
    rows = (f"  {at}. {_shown(each)}  {line(each.url, LONGEST_URL)}" for at, each in enumerate(item.sources, 1))
    return [f"{_head(item)}:", *rows, *more]


def pages_markdown(item: SourcesItem, words: Callable[[str], str]) -> str:
    """A list of links; `words` makes text in which nothing is Markdown."""
    rows = []
    for at, source in enumerate(item.sources, 1):
        target, host = _target(source)
        shown = words(_shown(source))
        rows.append(f"{at}. [{shown}](<{target}>) {words(host)}" if target else f"{at}. {shown}")
    more = [f"{len(rows) + 1}. and {item.more} more"] * bool(item.more)
    return "\n".join([f"*{_head(item)}*", "", *rows, *more])


def pages_html(item: SourcesItem, look: Theme) -> str:
    """A list of links, each with its host."""
    rows = []
    for source in item.sources:
        target, host = _target(source)
        shown = escape(_shown(source))
        link = f'<a href="{escape(target)}" rel="noopener noreferrer nofollow" target="_blank">{shown}</a>'
        rows.append(f"<li>{link} <small>{escape(host)}</small></li>" if target else f"<li>{shown}</li>")
    rows += [f"<li><small>and {item.more} more</small></li>"] * bool(item.more)
    return (
        f'<div {look.kind("ia-plan")}><small {look.kind("ia-notice")}>{_head(item)}</small>'
        f'<ol style="margin:2px 0 2px 0;padding-left:2em;font-size:.92em" aria-label="{_head(item)}">'
        f"{''.join(rows)}</ol></div>"
    )
