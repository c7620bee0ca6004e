"""Which files an instruction file includes: every `@path` in its prose. In code, links and HTML an @ means nothing."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

_MENTION = re.compile(r"(?<![\w@./+\\-])@((?:\\ |[^\s\\@`，。；：、！？）》】”’])+)")
_CJK_MENTION = re.compile(r"(?<=[\u3040-\u30ff\u3400-\u9fff])@((?:\\ |[^\s\\@`，。；：、！？）》】”’])+)")
_TRAILING = ".,;:!?)]}>'\"*_"
_FILE_LIKE = re.compile(r"\.(?:md|markdown|txt|rst|toml|ya?ml|json|py|csv|ipynb)$", re.IGNORECASE)


def mentions(text: str) -> list[str]:
    """The paths that the prose of a Markdown text mentions as `@path`, as they are written, each once."""
    found: dict[str, None] = {}
    if "@" in text:
        for words in _prose(text):
            for pattern in (_MENTION, _CJK_MENTION):
                found.update(dict.fromkeys(match[1].replace("\\ ", " ") for match in pattern.finditer(words)))
    return list(found)


def _prose(text: str) -> Iterator[str]:
    from markdown_it import MarkdownIt

    for token in MarkdownIt("commonmark").parse(text):
        if token.type == "inline":
            depth = 0
            for child in token.children or ():
                depth += child.nesting if child.type in ("link_open", "link_close") else 0
                if child.type == "text" and not depth:
                    yield child.content


def find_file(raw: str, folder: Path) -> Path | None:
    """The file that a mention means, seen from `folder`, without the punctuation after it; None when there is
    none."""
    for end in range(len(raw), 0, -1):
        if end < len(raw) and raw[end] not in _TRAILING:
            return None
        path = place_of(raw[:end], folder)
        if path is not None and _is_file(path):
            return path
    return None


def place_of(raw: str, folder: Path) -> Path | None:
    """Where a mention points: relative to `folder`, `~/` or absolute; None for what is no path."""
    if "\0" in raw or (raw.startswith("~") and not raw.startswith("~/")):
        return None
    try:
        return folder / Path(raw).expanduser()
    except RuntimeError:  # nobody's home
        return None


def looks_like_file(raw: str) -> bool:
    """Whether a mention that leads to no file was meant as one, not as somebody's name."""
    return _FILE_LIKE.search(raw.rstrip(_TRAILING)) is not None


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except (OSError, ValueError):  # a name too long, a folder that may not be entered
        return False
