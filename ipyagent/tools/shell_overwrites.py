"""Which file with something in it a shell command would overwrite, as far as its arguments tell."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from itertools import islice
from pathlib import Path

from ipyagent.tools.git_reads import harmless_setting

_OUT = ("-o", "--output")
_OUTPUTS = {
    "sort": _OUT, "curl": _OUT, "wget": ("-O", "--output-document"),
    "find": ("-fprint", "-fprint0", "-fprintf", "-fls"), "git": ("--output",), "tree": ("-o",),
    "pandoc": _OUT, "iconv": _OUT, "gpg": _OUT, "openssl": ("-out",), "cc": ("-o",), "gcc": ("-o",), "g++": ("-o",),
    "clang": ("-o",), "dot": ("-o",), "shuf": _OUT, "zstd": ("-o",), "diff": ("--output",), "pg_dump": ("-f", "--file"),
    "mysqldump": ("-r", "--result-file"), "ssh-keygen": ("-f",), "xmllint": _OUT, "protoc": ("-o",), "patch": _OUT,
    "time": _OUT, "strace": _OUT, "script": ("-O", "--log-out"), "rsync": ("--log-file",),
}  # fmt: skip
"""Options whose value is a file that is written anew."""
_COPIERS = frozenset(("cp", "mv", "install", "rsync", "scp"))
_SECOND = {"uniq": "fsw", "xxd": "clsgo", "dos2unix": "", "convert": "", "magick": "", "pdftotext": "fl", "csplit": ""}
"""Commands whose second operand is a file that is written anew, with their short options that have a value."""
_REMOTE_NAME = re.compile(r"-[A-Za-z]*O[A-Za-z]*|--remote-n.*")
_PACKERS = frozenset(("gzip", "gunzip", "bzip2", "bunzip2", "xz", "unxz", "zstd", "unzstd", "lz4", "compress"))
MOST_FILES = 2_000
"""Files of a folder that are compared with those of the folder it is copied to."""


def overwritten(name: str, arguments: Sequence[str], letters: str, folder: Path) -> str:
    """The file's name, "" when there is none. `letters`: of all short options together."""
    operands = [word for word in arguments if not word.startswith("-")]
    files: Sequence[str] = ()
    match name:
        case _ if name in _COPIERS:
            return _copied(arguments, letters, folder)
        case "ln":
            return _copied(arguments, letters, folder) if "f" in letters or "--force" in arguments else ""
        case "tee":
            files = () if "a" in letters or "--append" in arguments else arguments
        case "sponge":
            files = () if "a" in letters else operands
        case "sed":
            return _edited(arguments, folder)
        case "split":
            prefix = operands[1] if len(operands) > 1 else "x"
            files = (f"{prefix}*",)
        case "tar":
            writes = re.match(r"-?[A-Za-z]*c", arguments[0]) if arguments else None
            files = operands[:2] if writes or "--create" in arguments else ()
            files = [word for word in files if word != arguments[0]][:1] if writes else files[:1]
        case "unzip" | "7z" if "o" in letters or "y" in letters or "-aoa" in arguments:
            return "files of the same names"
        case "yq" if "i" in letters or "--inplace" in arguments:
            files = operands
        case _ if name in _PACKERS and ("f" in letters or "--force" in arguments):
            return "files of the same names"
        case _ if name in _SECOND:
            files = _operands(arguments, _SECOND[name])[1:]
        case _:
            pass
    files = [*files, *outputs(_OUTPUTS.get(name, ()), arguments)]
    return next((file for file in files if has_content(file, folder)), "")


def written_to(name: str, arguments: Sequence[str], folder: Path) -> list[str]:
    """The files that a command in `folder` writes, as it names them, whether they are there or not."""
    operands = _operands(arguments, "tS")
    found = outputs(_OUTPUTS.get(name, ()), arguments)
    match name:
        case _ if name in _COPIERS or name == "ln":
            into = outputs(("-t", "--target-directory"), arguments) or operands[-1:]
            sources = [word for word in operands if word not in into]
            found += into
            for target in into:
                place = folder / os.path.expanduser(target)
                if len(sources) > 1 or target.endswith("/") or target not in operands or place.is_dir():
                    found += [f"{target}/{Path(word).name}" for word in sources]
        case "tee" | "touch" | "truncate" | "sponge" | "patch" | "ed" | "ex" | "vim" | "vi" | "nano" | "unlink":
            found += operands
        case "sed" if any(re.fullmatch(r"-[nErsuz]*i.*|--in-p[lace]*.*", word) for word in arguments):
            found += operands
        case "yq" | "perl" | "ruby" | "gawk" if any(re.match(r"-[a-z]*i|--inplace", word) for word in arguments):
            found += operands
        case "dd":
            found += [word.removeprefix("of=") for word in arguments if word.startswith("of=")]
        case "wget" | "curl" if name == "wget" or any(map(_REMOTE_NAME.fullmatch, arguments)):
            found += [word.partition("?")[0].rpartition("/")[2] for word in operands]
        case _ if name in _SECOND:
            found += _operands(arguments, _SECOND[name])[1:]
        case _:
            pass
    return found


def settles(name: str, arguments: Sequence[str]) -> str:
    """Of a command that has something run, or be obeyed, from now on: what it does; "" of every other."""
    words = [word for word in arguments if not word.startswith("-")]
    match name:
        case "systemctl" if {"enable", "link", "edit", "set-property"} & set(words[:1]):
            return "sets what runs when the system starts"
        case "launchctl" if {"load", "bootstrap", "submit", "enable"} & set(words[:1]):
            return "sets what runs when you log in"
        case "git" if "config" in words[:1] and not _only_asks(arguments, words):
            return "config changes what git runs from now on"
        case "pre-commit" | "husky" | "lefthook" if {"install", "add", "init-templatedir"} & set(words[:1]):
            return "sets what git runs by itself"
        case "direnv" if {"allow", "permit", "grant", "edit"} & set(words[:1]):
            return "allows what a shell runs by itself"
        case "pip" | "pip3" | "npm" | "pnpm" | "yarn" | "conda" | "mamba" | "poetry" if "config" in words[:1]:
            asks = {"list", "get", "debug", "ls", "--list", "--get", "--show", "--show-sources"} & set(arguments)
            return "" if asks else "config changes what installers obey from now on"
        case _:
            return ""


def _only_asks(arguments: Sequence[str], words: Sequence[str]) -> bool:
    """Whether `git config …` only tells a value, or sets one by which git runs nothing."""
    tells = {"--get", "--get-all", "--get-regexp", "--get-urlmatch", "-l", "--list", "get", "list"}
    changed = any(re.match(r"--(unset|add|replace|edit|remove|rename)|-e$", word) for word in arguments)
    key = next((word for word in words if "." in word), "")
    return not changed and (bool(tells & set(arguments)) or len(words) < 3 or harmless_setting(key))


def _operands(arguments: Sequence[str], valued: str) -> list[str]:
    """The words that are neither options nor values of short ones."""
    found = []
    before = ""
    for word in arguments:
        if word.startswith("-") and word != "-":
            before = word
            continue
        if not (len(before) == 2 and before[1] in valued):
            found.append(word)
        before = ""
    return found


def _copied(arguments: Sequence[str], letters: str, folder: Path) -> str:
    if "n" in letters or "--no-clobber" in arguments:
        return ""
    operands = _operands(arguments, "tS")
    given = outputs(("-t", "--target-directory"), arguments)
    if given:
        operands = [*operands, given[0]]
    if len(operands) < 2:
        return ""
    if set(operands[-1]) & set("$`"):
        return operands[-1]
    target = folder / os.path.expanduser(operands[-1])
    for word in operands[:-1]:
        source = folder / os.path.expanduser(word)
        whole = word.endswith(("/.", "/"))  # rsync copies what is in such a folder, cp in the first
        places = [target / source.name, *([target] if whole else [])] if target.is_dir() else [target]
        for place in places:
            if has_content(str(place), folder):
                return place.name
            if source.is_dir() and place.is_dir() and (file := _both(source, place)):
                return file
    return ""


def _both(source: Path, target: Path) -> str:
    """A file with something in it that is in both folders; also when there are too many to look at."""
    seen = 0
    for path in islice(source.rglob("*"), MOST_FILES):
        seen += 1
        other = target / path.relative_to(source)
        if has_content(str(other), target):
            return other.name
    return target.name if seen == MOST_FILES else ""


def _edited(arguments: Sequence[str], folder: Path) -> str:
    """`sed`: files changed in place without a copy, and those that `w` writes."""
    in_place = any(re.fullmatch(r"-[nErsuz]*i|--in-p[lace]*", word) for word in arguments)
    words = arguments if in_place else ()
    written = [tail.strip() for word in arguments for tail in re.findall(r"(?=[wW][ \t]+([^\n;}]{1,4096}))", word)]
    return next((word for word in (*words, *written) if not word.startswith("-") and has_content(word, folder)), "")


def outputs(options: Sequence[str], arguments: Sequence[str]) -> list[str]:
    """The values of these options."""
    found: list[str] = []
    for option in options:
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
        if set("*?[") & set(target) and not path.exists():
            pattern = os.path.expanduser(target)
            found = Path("/").glob(pattern.lstrip("/")) if os.path.isabs(pattern) else folder.glob(pattern)
            return any(each.is_file() and each.stat().st_size > 0 for each in islice(found, MOST_FILES))
        return path.is_file() and path.stat().st_size > 0
    except (OSError, ValueError, NotImplementedError):
        return False
