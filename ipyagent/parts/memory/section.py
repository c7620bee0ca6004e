"""The memory section of the system prompt: what memory is for, a team's guidelines, the user's own rules in full,
and the index of both scopes.

Rendered once a session and reused byte for byte, so it holds nothing that changes by itself. What does not fit
its share of the window is left out at a line, and both the model and the user are told.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib.resources import files
from pathlib import Path

import msgspec

from ipyagent.config import names_file
from ipyagent.errors import MemoryRefused
from ipyagent.frontmatter import guarded, read_headed, read_text
from ipyagent.journal.tokens import estimate_text
from ipyagent.parts.memory.index import named_in
from ipyagent.parts.memory.provenance import PERSONAL
from ipyagent.parts.memory.store import MemoryStore
from ipyagent.project import Project

ORDER = ("user", "project")
"""The project's index last: it is the more specific."""
EMPTY = "(nothing saved yet)"
SHORT = "You have a memory in `/memories/project` and `/memories/user`; look there with the `memory` tool."
EARLIER = "\n- What was said in earlier sessions: `past_sessions`."
RULE_TOKENS = 2_000
"""What the user's own rules take of the prompt at most."""
GUIDELINE_TOKENS = 2_000
MOST_RULE_BYTES = 16_000
"""A larger file would take all of it."""
RULES = (
    "<memory-rules>\nWhat the user said about themselves and how to work, each file in full: follow it without a "
    "view.\n"
)
IGNORED = (
    "<context>\nFor this request the user wants memory left aside: answer as if there were no memory rules and the "
    "memory index were empty, open no memory, and use nothing that came from one.\n</context>"
)
"""Goes with a request that asks to ignore memory; the system prompt stays as it is."""


class StandingRule(msgspec.Struct, frozen=True):
    """One memory of the user's own words that stands in the prompt in full: its place and what it says."""

    scope: str
    name: str
    path: str
    text: str


def standing_rules(stores: Mapping[str, MemoryStore], tokens: int) -> list[StandingRule]:
    """The `feedback` and `user` memories that are verified to be the user's own word, as many as stand in `tokens`,
    those first that are newest and most used; in an order that does not change with use."""
    found = [(memory, store) for store in stores.values() for memory in store.list()
             if memory.is_own_word and memory.kind in PERSONAL and memory.size <= MOST_RULE_BYTES]  # fmt: skip
    uses = {scope: store.uses() for scope, store in stores.items()} if found else {}
    newest = sorted(found, key=lambda each: -each[0].modified)
    used = sorted(newest, key=lambda each: -uses[each[0].scope].get(each[0].name, 0))
    places = {memory.path: at for at, (memory, _) in enumerate(newest)}
    for at, (memory, _) in enumerate(used):
        places[memory.path] += at
    rules: list[StandingRule] = []
    room = tokens - estimate_text(RULES) - 10
    for memory, store in sorted(found, key=lambda each: (places[each[0].path], each[0].path)):
        if room < 20:
            break
        try:
            text = read_headed(store.read(memory.name).text.encode("utf-8", "replace")).body.strip()
        except MemoryRefused:
            continue  # it went meanwhile
        rule = StandingRule(memory.scope, memory.name, memory.path, text or memory.description)
        size = estimate_text(_element(rule))
        if rule.text and size <= room:
            room -= size
            rules.append(rule)
    return sorted(rules, key=lambda rule: (ORDER.index(rule.scope) if rule.scope in ORDER else 0, rule.path))


def _element(rule: StandingRule) -> str:
    path = guarded(rule.path).replace('"', "'")
    return f'<memory path="{path}">\n{guarded(rule.text)}\n</memory>\n'


def read_guidelines(setting: str, project: Project, *, trusted: bool) -> tuple[str, str]:
    """The guidelines that a setting gives, as a text or by naming a file, and what is wrong ("" for nothing). A
    relative path begins at the project's root, does not lead out of it, and counts once the project is trusted."""
    text = setting.strip()
    if not names_file(text):
        return text, ""
    path = Path(text).expanduser()
    if not path.is_absolute():
        path = project.root / path
        if not trusted:
            return "", f"memory_guidelines: {text} is in a project that is not trusted and was not read"
        if not path.resolve().is_relative_to(project.root.resolve()):
            return "", f"memory_guidelines: {text} leads out of the project and was not read"
    found, problem = read_text(path.resolve())
    if trusted and path.resolve().is_relative_to(project.root.resolve()) and (news := project.arrived([path])):
        problem = "; ".join(filter(None, (f"{news[path]}, and counts as it is now", problem)))
    return found, f"memory_guidelines: {text} {problem}" if problem else ""


def memory_section(
    indexes: Mapping[str, str],
    tokens: int,
    *,
    earlier: bool = False,
    guidelines: str = "",
    rules: Sequence[StandingRule] = (),
) -> tuple[str, str]:
    """The section with the index of each scope that may be used, in at most about `tokens` tokens, and one line for
    the user when not all of it went in. "" when there is no scope. `earlier`: whether a tool
    searches earlier sessions. `guidelines`: a text that joins it, GUIDELINE_TOKENS at most; `rules`:
    memories that stand in it in full, whose lines of the index are left out."""
    if not indexes:
        return "", ""
    head = files("ipyagent.parts.memory").joinpath("section.md").read_text(encoding="utf-8").strip()
    if earlier:
        head += EARLIER
    told, cut = _guided(guidelines, min(GUIDELINE_TOKENS, tokens // 4))
    head += told
    if rules:
        head += f"\n\n{RULES}{''.join(map(_element, rules))}</memory-rules>"
        indexes = {scope: _without(text, {rule.name for rule in rules if rule.scope == scope})
                   for scope, text in indexes.items()}  # fmt: skip
    known = [scope for scope in ORDER if scope in indexes]
    scopes = [scope for scope in known if indexes[scope].strip()] or ([] if rules else known[-1:])
    room = tokens - estimate_text(head) - 30 * len(scopes)
    if room < 0:
        if tokens < estimate_text(SHORT):
            return "", _line(0, sum(_count(indexes[scope]) for scope in scopes), tokens)
        return SHORT, _line(0, sum(_count(indexes[scope]) for scope in scopes), tokens)
    parts: list[str] = []
    shown = all_lines = 0
    for left, scope in zip(range(len(scopes), 0, -1), scopes, strict=True):
        text = indexes[scope].strip("\n")
        fitted, lines = _fitted(text, scope, room // left)
        room -= estimate_text(fitted)
        shown, all_lines = shown + lines, all_lines + _count(text)
        parts.append(f'<memory-index scope="{scope}">\n{guarded(fitted) or EMPTY}\n</memory-index>')
    line = _line(shown, all_lines, tokens) if shown < all_lines else ""
    return "\n\n".join([head, *parts]), "; ".join(filter(None, (line, cut)))


def _guided(text: str, tokens: int) -> tuple[str, str]:
    """The guidelines as they stand in the section, in at most about `tokens` tokens, and a line when they were cut."""
    if not text.strip():
        return "", ""
    lines = guarded(text.strip()).split("\n")
    whole, room = len(lines), tokens - 30
    kept: list[str] = []
    for line in lines:
        room -= estimate_text(line + "\n")
        if room < 0:
            break
        kept.append(line)
    cut = ""
    if len(kept) < whole:
        kept.append(f"[cut: {whole - len(kept)} more lines]")
        cut = f"memory_guidelines: {whole - len(kept) + 1} of {whole} lines left out; at most about {tokens:,} tokens"
    return "\n\n<memory-guidelines>\n" + "\n".join(kept) + "\n</memory-guidelines>", cut


def _without(index: str, names: set[str]) -> str:
    return "\n".join(line for line in index.split("\n") if named_in(line) not in names)


def _fitted(text: str, scope: str, room: int) -> tuple[str, int]:
    """As many lines from the top as fit in `room` tokens, with a word for the rest; and how many entries those
    hold."""
    if estimate_text(text) <= room:
        return text, _count(text)
    warning = f"[This index is longer than the window allows: {{}} more in it; view /memories/{scope}]"
    room -= estimate_text(warning)
    kept: list[str] = []
    for line in text.splitlines():
        room -= estimate_text(line + "\n")
        if room < 0:
            break
        kept.append(line)
    entries = _count("\n".join(kept))
    return "\n".join([*kept, warning.format(_count(text) - entries)]), entries


def _count(text: str) -> int:
    return sum(line.lstrip().startswith(("- ", "* ")) for line in text.splitlines())


def _line(shown: int, lines: int, tokens: int) -> str:
    if not lines:
        return ""
    return (
        f"the memory index is longer than this window allows (about {max(0, tokens):,} tokens): {shown:,} of {lines:,} "
        "memories are listed; recall and %memory search find the others"
    )
