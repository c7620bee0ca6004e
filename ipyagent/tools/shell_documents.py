"""A shell command without the lines of its here-documents, which are data.

What is no here-document for certain stays in: lines too many are examined rather than one too few.
"""

from __future__ import annotations

import re

_OPERATOR = re.compile(r"<<(-?)[ \t]*(?:'([^'\n]+)'|\"([^\"\n$`\\]+)\"|\\?([A-Za-z0-9_.,:%@+-]+))(?=[\s;&|<>()]|$)")


def without_documents(command: str) -> str:
    """The command without those lines and the ones that end them; the operators stay."""
    if "<<" not in command or "$'" in command or "((" in command:
        return command  # in $'…' a quote may be escaped, in ((…)) << is a number's
    kept: list[str] = []
    pending: list[tuple[str, bool]] = []
    place, quote = 0, ""
    while place < len(command):
        char = command[place]
        if quote:
            if char == "\\" and quote == '"':
                kept.append(command[place : place + 2])
                place += 2
                continue
            quote = "" if char == quote else quote
        elif char == "\\":
            kept.append(command[place : place + 2])
            place += 2
            continue
        elif char in "'\"":
            quote = char
        elif char == "#" and (not place or command[place - 1] in " \t\n;&|()"):
            end = command.find("\n", place)
            end = len(command) if end < 0 else end
            kept.append(command[place:end])
            place = end
            continue
        elif command.startswith("<<<", place):
            kept.append("<<<")
            place += 3
            continue
        elif (found := _OPERATOR.match(command, place)):
            pending.append((found[2] or found[3] or found[4], found[1] == "-"))
            kept.append(found[0])
            place = found.end()
            continue
        elif char == "\n" and pending:
            rest = _after(command[place + 1 :], pending)
            if rest is None:
                return "".join(kept) + command[place:]
            pending = []
            kept.append("\n")
            command, place = rest, 0
            continue
        kept.append(char)
        place += 1
    return "".join(kept)


def _after(text: str, pending: list[tuple[str, bool]]) -> str | None:
    """What follows the documents at the beginning of `text`, None when one of them has no end."""
    lines = text.split("\n")
    for end, indented in pending:
        while lines and (lines[0].lstrip("\t") if indented else lines[0]) != end:
            lines.pop(0)
        if not lines:
            return None
        lines.pop(0)
    return "\n".join(lines)
