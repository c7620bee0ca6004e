"""Recalled and saved memories in a cell: small chips that say which, why and how old, and take it back.

Live, a chip has a button. In the saved form the button is empty and hidden, without words, so that readers
without our script show nothing of it; beside it stands the command that does the same.
"""

from __future__ import annotations

from ipyagent.escape import escape, line
from ipyagent.journal.events import MemoryDismissed, MemorySaved, Recalled
from ipyagent.ui.items import Item, MemoriesItem, SavedItem
from ipyagent.ui.theme import MemoryAction, Theme


def saved_line(saved: MemorySaved) -> str:
    """What the user is told of a memory that was saved, and how to take it back."""
    name = name_of(saved.path)
    if saved.change == "renamed":
        return f"saved: {name_of(saved.old)} is now {name} (undo: %memory restore {name} {saved.revision})"
    back = f"restore {name} {saved.revision}" if saved.revision else f"forget {name}"
    word = "saved" if saved.change in ("created", "changed", "restored") else saved.change
    return f"{word}: {name} (undo: %memory {back})"


def name_of(path: str) -> str:
    """A memory's name for the user, without the folder of its scope."""
    parts = path.strip("/").split("/")
    return "/".join(parts[2:]) if parts[:1] == ["memories"] and len(parts) > 2 else path


def short_name(path: str) -> str:
    """A memory's name for the user: "feedback_plots.md"."""
    return line(name_of(path), 100)


def ago(days: int) -> str:
    """"today", "yesterday", "12 days ago"."""
    return {0: "today", 1: "yesterday"}.get(max(days, 0), f"{days:,} days ago")


# ---------------------------------------------------------------------- words


def saved_words(item: SavedItem) -> str:
    """"saved: feedback_plots.md", without the command."""
    return line(saved_line(item.saved).partition(" (undo: ")[0]) + (", undone" if item.undone else "")


def saved_text(item: SavedItem) -> str:
    """The same with the command that takes it back, while it stands."""
    return saved_words(item) if item.undone else line(saved_line(item.saved))


def recalled_words(memory: Recalled, item: MemoriesItem) -> str:
    """"feedback_plots.md, 12 days ago: Axes have units (about axes)"."""
    words = f"{short_name(memory.path)}, {ago(memory.age)}"
    if memory.description:
        words += f": {line(memory.description, 160)}"
    if memory.why:
        words += f" ({line(memory.why, 160)})"
    return words + (", dismissed" if memory.path in item.dismissed else "")


def recalled_lines(item: MemoriesItem) -> list[str]:
    """A heading and one line a memory."""
    count = len(item.memories)
    head = f"recalled {count} memor{'y' if count == 1 else 'ies'}"
    return [f"{head}:", *(f"  {recalled_words(memory, item)}" for memory in item.memories)]


# ---------------------------------------------------------------------- HTML


def recalled_html(item: MemoriesItem, look: Theme) -> str:
    """A chip a memory; why each was picked is folded below."""
    chips = "".join(_recalled_chip(memory, item, look) for memory in item.memories)
    rows = "".join(f"<li>{escape(recalled_words(memory, item))}</li>" for memory in item.memories)
    count = len(item.memories)
    words = "why this memory" if count == 1 else "why these memories"
    return (
        f'<div {look.kind("ia-chips")} role="group" aria-label="Recalled memories"><span {look.kind("ia-chip-word")}>'
        f"Recalled</span> {chips}</div>"
        f'<details class="ia-fold"><summary {look.kind("ia-line")}>{words}</summary>'
        f"<div {look.kind('ia-body')}><ul style=\"margin:0 0 10px;padding-left:28px\">{rows}</ul></div></details>"
    )


def saved_html(item: SavedItem, look: Theme) -> str:
    """One chip, with its button or the command."""
    words = escape(saved_words(item))
    if item.undone:
        return f'<div {look.kind("ia-chips")}><span {look.kind("ia-chip", "ia-gone")}><s>{words}</s></span></div>'
    saved = item.saved
    button = _button(("undo", item.key), "undo", f"Undo the change of {escape(short_name(saved.path))}", look)
    who = "" if saved.by == "agent" else f" <small>by {escape(line(saved.by, 30))}</small>"
    command = saved_line(saved).partition(" (undo: ")[2].removesuffix(")") if look.static else ""
    if command:
        button += f' <small {look.kind("ia-chip-word")}>undo: <code>{escape(line(command))}</code></small>'
    return f'<div {look.kind("ia-chips")}><span {look.kind("ia-chip")}>{words}{who}</span>{button}</div>'


def _recalled_chip(memory: Recalled, item: MemoriesItem, look: Theme) -> str:
    name, age = escape(short_name(memory.path)), ago(memory.age)
    if memory.path in item.dismissed:
        return f'<span {look.kind("ia-chip", "ia-gone")}><s>{name}</s> <small>clicked away</small></span> '
    label = f"Do not recall {name} again in this session"
    button = _button(("dismiss", memory.path), "×", label, look)
    why = escape(line(memory.why or memory.description, 200))
    return f'<span {look.kind("ia-chip")} title="{why}">{name} <small>{age}</small>{button}</span> '


def _button(action: MemoryAction, sign: str, label: str, look: Theme) -> str:
    if not look.static:
        return (
            f'<button type="button" class="ia-small" data-act="{action[0]}" data-of="{escape(action[1])}" '
            f'aria-label="{label}" title="{label}">{sign}</button>'
        )
    mark = look.marks.get(action)
    if mark is None:
        return ""
    return f'<button type="button" hidden data-ipyagent-door="{mark}" data-sign="{sign}" aria-label="{label}"></button>'


def actions_of(items: tuple[Item, ...]) -> list[MemoryAction]:
    """What can still be taken back, in the order of its appearance."""
    found: list[MemoryAction] = []
    for item in items:
        if isinstance(item, SavedItem) and not item.undone:
            found.append(("undo", item.key))
        elif isinstance(item, MemoriesItem):
            found += [("dismiss", memory.path) for memory in item.memories if memory.path not in item.dismissed]
    return list(dict.fromkeys(found))


# ---------------------------------------------------------------------- folding events into items


def dismissed(items: tuple[Item, ...], event: MemoryDismissed) -> list[MemoriesItem]:
    """The items that a click changes."""
    return [
        MemoriesItem(item.key, item.memories, (*item.dismissed, event.path))
        for item in items
        if isinstance(item, MemoriesItem)
        and event.path not in item.dismissed
        and any(memory.path == event.path for memory in item.memories)
    ]


def taken_back(items: tuple[Item, ...], event: MemorySaved) -> SavedItem | None:
    """The item that the user's own `event` takes back; None when it stands for itself."""
    if event.by != "user":
        return None
    for item in reversed(items):
        if not isinstance(item, SavedItem) or item.undone or item.saved.by == "user":
            continue
        saved = item.saved
        back = {"created": "deleted", "renamed": "renamed"}.get(saved.change, "restored")
        if event.change == back and saved.path == (event.old if back == "renamed" else event.path):
            return SavedItem(item.key, saved, undone=True)
    return None
