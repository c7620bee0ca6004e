"""What a memory may be called: one rule for every door, strict enough for every file system.

A name is a relative POSIX path of at most four parts that ends in `.md`, in Unicode normal form C. What
could leave the folder, hide in it, or pass for another name is refused, with what to do instead.
"""

from __future__ import annotations

import re
import unicodedata
from typing import Literal, NamedTuple, get_args

from ipyagent.errors import MemoryRefused
from ipyagent.escape import cut

Scope = Literal["project", "user"]
SCOPES: tuple[str, ...] = get_args(Scope)
ROOT = "/memories"
"""The top of the tree that the model sees; under it a folder for each scope."""
INDEX = "MEMORY.md"
SUFFIX = ".md"
MOST_PARTS = 4
MOST_PART_BYTES = 200
"""File systems allow 255; the history adds to a name."""
_FORBIDDEN = set('<>:"|?*\\')
_SLASHES = set("\u2044\u2215\u2216\u20eb\u2571\u2572\u27cb\u27cd\u29f5\u29f8\u29f9\u3033\u31d3")
"""What looks like a slash and does not become one under compatibility normalisation."""
_DEVICES = re.compile(r"(con|prn|aux|nul|com[0-9¹²³]|lpt[0-9¹²³]|conin\$|conout\$|clock\$)", re.IGNORECASE)
_ENCODED = re.compile(r"%(2e|2f|5c|00|7e)", re.IGNORECASE)
_WORD = re.compile(r"[^\W\d_]+")
_ENDING = re.compile(r"\.[A-Za-z]\w{0,4}$")
_PLAIN = re.compile(r"(?:[a-z0-9_-]+/){0,3}[a-z0-9_-]+\.md")
"""Names that need no closer look but at devices and lengths."""


def checked_name(raw: str) -> str:
    """The name as it is stored. Raises MemoryRefused ("name") for everything that cannot be one."""
    if not isinstance(raw, str) or not raw.strip():
        raise _refused(raw, "is empty", 'give it a short name such as "feedback_plots.md"')
    name = unicodedata.normalize("NFC", raw)
    if not _PLAIN.fullmatch(name):
        _check_characters(raw, name)
    parts = name.split("/")
    if len(parts) > MOST_PARTS:
        raise _refused(raw, "lies too deep", f"use at most {MOST_PARTS - 1} folders")
    for part in parts:
        _check_part(raw, part)
    if not name.endswith(SUFFIX):
        raise _refused(raw, "is no Markdown file", f'end it in "{SUFFIX}"')
    if name != INDEX and any(part.casefold() == INDEX.casefold() for part in parts):
        raise _refused(raw, "is kept for the index", "use another name")
    return name


def split_path(raw: str) -> tuple[str, str]:
    """Scope and name of a path as the model writes it: "/memories/project/feedback_plots.md" gives
    ("project", "feedback_plots.md"). Of a folder the name is "" or ends in "/"; of "/memories" both are "".
    Raises MemoryRefused ("name") for every other path."""
    if not isinstance(raw, str) or "\0" in raw:
        raise _refused(raw, "is no path", f'paths begin with "{ROOT}/"')
    if raw.rstrip("/") == ROOT:
        return "", ""
    if not raw.startswith(f"{ROOT}/"):
        raise _refused(raw, "lies outside", f'paths begin with "{ROOT}/project/" or "{ROOT}/user/"')
    scope, _, rest = raw.removeprefix(f"{ROOT}/").partition("/")
    if scope not in SCOPES:
        raise _refused(raw, "is in no folder of memories", f'they are "{ROOT}/project/" and "{ROOT}/user/"')
    if not rest:
        return scope, ""
    if rest.endswith("/") or not rest.endswith(SUFFIX):
        folder = rest.rstrip("/")
        if folder:
            checked_name(f"{folder}/x{SUFFIX}")
        if rest.endswith("/"):
            return scope, unicodedata.normalize("NFC", folder) + "/" if folder else ""
    return scope, checked_name(rest)


def loose_path(raw: str) -> tuple[str, str]:
    """Scope and name of a path that may lack either: "plots", "feedback_plots.md", "project/plots", "/memories/plots".
    The scope is "" where the path does not tell it, which a path with folders must. Raises MemoryRefused ("name")
    for every other path."""
    if not isinstance(raw, str) or "\0" in raw:
        raise _refused(raw, "is no path", f'paths begin with "{ROOT}/"')
    inside = raw.removeprefix(ROOT) if raw == ROOT or raw.startswith(f"{ROOT}/") else f"/{raw}"
    scope, _, rest = inside.removeprefix("/").partition("/")
    if scope in SCOPES:
        name = rest
    elif not rest and scope:
        scope, name = "", scope
    else:
        return split_path(raw)
    bare = name.rstrip("/")
    if bare:  # the rules for names, whatever the ending
        checked_name(f"{bare}/x{SUFFIX}" if bare != name else bare if _ENDING.search(bare) else f"{bare}{SUFFIX}")
    return scope, unicodedata.normalize("NFC", f"{bare}/" if bare and bare != name else bare)


class Address(NamedTuple):
    """A place in the tree: `scope` "" for `/memories` itself, `name` "" for a scope's folder; the name of a folder
    in it ends in "/"."""

    scope: str
    name: str

    @property
    def path(self) -> str:
        return "/".join(part for part in (ROOT, self.scope, self.name.rstrip("/")) if part)

    @property
    def is_folder(self) -> bool:
        return not self.name or self.name.endswith("/")


def address(raw: str) -> Address:
    """The place that a path names; what does not end in ".md" is a folder. Raises MemoryRefused for anything
    that is not inside the tree, or would not be on another file system."""
    return Address(*split_path(raw if raw.endswith((SUFFIX, "/")) else f"{raw}/"))


def same_name(name: str) -> str:
    """What two names have in common that a file system may not tell apart: case, width, accents' form."""
    return unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", name).casefold())


def _check_characters(raw: str, name: str) -> None:
    if _ENCODED.search(name):
        raise _refused(raw, "hides characters of a path", "write it without %-escapes")
    for character in name:
        kind = unicodedata.category(character)
        if kind[0] == "C" or (kind[0] == "Z" and character != " "):
            raise _refused(raw, f"holds the invisible character U+{ord(character):04X}", "leave it out")
    if name.startswith(("/", "~")) or re.match(r"[A-Za-z]:", name):
        raise _refused(raw, "is not a name inside the folder of memories", 'give it as "folder/name.md"')
    if found := (_FORBIDDEN | _SLASHES) & set(name):
        raise _refused(raw, f"holds {min(found)!r}", 'use letters, digits, "-" and "_"')
    compatible = unicodedata.normalize("NFKC", name)
    for sign in "/.~%" + "".join(_FORBIDDEN):
        if compatible.count(sign) != name.count(sign):
            raise _refused(raw, f"holds a character that passes for {sign!r}", 'use letters, digits, "-" and "_"')
    for word in _WORD.findall(name):
        if len(scripts := _scripts(word)) > 1:
            raise _refused(raw, f"mixes {' and '.join(sorted(scripts))} letters in {word!r}", "use one alphabet")


def _scripts(word: str) -> set[str]:
    """Alphabets of a word that can pass for each other."""
    names = (unicodedata.name(letter, "").partition(" ")[0] for letter in word)
    return {name.capitalize() for name in names if name in ("LATIN", "CYRILLIC", "GREEK", "ARMENIAN", "CHEROKEE")}


def _check_part(raw: str, part: str) -> None:
    if part in ("", ".", ".."):
        raise _refused(raw, "is not a name inside the folder of memories", 'give it as "folder/name.md"')
    if part.startswith("."):
        raise _refused(raw, "is hidden", 'begin it with a letter')
    if part != part.strip() or part.endswith("."):
        raise _refused(raw, "begins or ends with a space or ends with a dot", "leave them out")
    if part.rpartition(".")[0].endswith((" ", ".")):
        raise _refused(raw, "has a space or dot before its ending", "leave it out")
    if _DEVICES.fullmatch(part.partition(".")[0].rstrip()):
        raise _refused(raw, f"holds {part!r}, which Windows keeps for a device", "use another name")
    if len(part.encode()) > MOST_PART_BYTES:
        raise _refused(raw, "is too long", f"{MOST_PART_BYTES} bytes a part at most")


def _refused(raw: object, what: str, instead: str) -> MemoryRefused:
    shown = ascii(raw) if not isinstance(raw, str) or not raw.isprintable() else f'"{raw}"'
    return MemoryRefused(f"a memory cannot be called {cut(shown, 80)}: it {what}; {instead}", reason="name")
