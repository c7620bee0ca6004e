"""Which file with something in it a shell command would overwrite, as far as its arguments tell."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

_OUTPUTS = {
    "sort": ("-o", "--output"), "curl": ("-o", "--output"), "wget": ("-O", "--output-document"),
    "find": ("-fprint", "-fprint0", "-fprintf", "-fls"), "git": ("--output",), "tree": ("-o",),
    "pandoc": ("-o", "--output"),
}  # fmt: skip
"""Options whose value is a file that is written anew."""
_COPIERS = frozenset(("cp", "mv", "install"))


def overwritten(name: str, arguments: Sequence[str], letters: str, folder: Path) -> str:
    """The file's name, "" when there is none. `letters`: of all short options together."""
    if name in _COPIERS:
        return _copied(arguments, letters, folder)
    if name == "ln":
        return _copied(arguments, letters, folder) if "f" in letters or "--force" in arguments else ""
    if name == "tee":
        kept = "a" in letters or "--append" in arguments
        return "" if kept else next((word for word in arguments if has_content(word, folder)), "")
    return next((file for file in _outputs(name, arguments) if has_content(file, folder)), "")


def _copied(arguments: Sequence[str], letters: str, folder: Path) -> str:
    operands = [word for word in arguments if not word.startswith("-")]
    if len(operands) < 2 or "n" in letters or "--no-clobber" in arguments:
        return ""
    target = folder / operands[-1]
    targets = [target / Path(word).name for word in operands[:-1]] if target.is_dir() else [target]
    return next((file.name for file in targets if has_content(str(file), folder)), "")


def _outputs(name: str, arguments: Sequence[str]) -> list[str]:
    found: list[str] = []
    for option in _OUTPUTS.get(name, ()):
        short = len(option) == 2
        for place, word in enumerate(arguments):
            if word == option or (short and word.startswith("-") and word[1:2] != "-" and word.endswith(option[1])):
                found += arguments[place + 1 : place + 2]
            elif word.startswith(option) and (short or word.startswith(f"{option}=")):
                found.append(word.removeprefix(option).removeprefix("="))
    return found


def has_content(target: str, folder: Path) -> bool:
    """Whether `target` is, or cannot be told not to be, a file with something in it."""
    if not target or "$" in target or "`" in target:
        return True
    path = folder / os.path.expanduser(target)
    try:
        return path.is_file() and path.stat().st_size > 0
    except OSError:
        return False
