"""Which git commands only read. A repository's own configuration can name programs that git runs
while it reads (fsmonitor, textconv, filters, …), so it is checked as well: only settings known to
be harmless may be in it."""

# ruff: noqa: SIM905 -- tables of words read better as text

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path

_LOG = (
    "oneline stat shortstat numstat graph all decorate decorate= author= committer= since= until= after= before= grep= "
    "name-only name-status format= pretty= pretty abbrev-commit reverse follow no-merges merges first-parent date= "
    "no-color color= max-count= skip= branches tags remotes topo-order date-order no-patch patch summary relative-date "
    "cached staged word-diff word-diff= minimal no-renames find-renames ignore-all-space ignore-space-change "
    "ignore-blank-lines function-context unified= diff-filter= compact-summary merge-base no-ext-diff no-textconv "
    "exit-code quiet check raw full-index no-decorate left-right cherry-pick"
)
# subcommand: (short options, short options with a value, long options, operands allowed)
_COMMANDS: dict[str, tuple[str, str, str, bool]] = {
    "status": ("sbuzv", "", "short branch porcelain porcelain= long untracked-files untracked-files= ignored", True),
    "log": ("pwiEzcm", "nSGLU", _LOG, True),
    "diff": ("pwbzRWa", "SGU", _LOG, True),
    "show": ("pwbszc", "SGU", _LOG, True),
    "shortlog": ("sne", "", "summary numbered email no-merges all since= until=", True),
    "blame": ("wensfltMC", "L", "porcelain date= show-email", True),
    "branch": ("avrl", "", "all list remotes verbose show-current merged no-merged contains format= sort=", False),
    "tag": ("ln", "", "list format= sort=", False),
    "remote": ("v", "", "verbose", False),
    "ls-files": ("cdmoskz", "x", "cached deleted modified others stage exclude-standard", True),
    "ls-tree": ("rdtlz", "", "name-only long full-tree", True),
    "rev-parse": ("", "", "short abbrev-ref show-toplevel verify is-inside-work-tree git-dir", True),
    "rev-list": ("", "n", "count all max-count= since= until=", True),
    # Not `--dirty`: it writes the index, whatever the settings.
    "describe": ("", "", "tags always long all abbrev=", True),
}

_OWN_ENVIRONMENT = tuple(
    f"GIT_{name}"
    for name in (
        "AUTHOR_ COMMITTER_ EDITOR SEQUENCE_EDITOR PAGER ASKPASS TERMINAL_PROMPT OPTIONAL_LOCKS SSH PS1_ LFS_ PYTHON_ "
        "MERGE_AUTOEDIT BRANCH COMMIT URL PREVIOUS_ LOCAL_BRANCH SSL_ HTTP_ CURL_ PROXY_ ALLOW_PROTOCOL "
        "CONFIG_NOSYSTEM FLUSH CLONE_ DEPTH STRATEGY SUBMODULE_"
    ).split()
)
"""Beginnings of variables in the environment that change nothing of what a reading command reads or runs."""
_GITLINK = b"\x00\x00\xe0\x00"
"""The mode of an entry in the index that is a repository of its own, which has its own configuration."""

_HEAD = re.compile(rb"(?:ref: refs/[!-~]{1,200}|[0-9a-f]{40}|[0-9a-f]{64})\n?")
_CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f]|\r(?!\n)")
"""Not plain text: a carriage return alone ends a line for some readers and does not for git."""
_SECTION = re.compile(r'\[\s*+([a-zA-Z0-9.-]+)\s*+(?:"[^"\\]*"\s*+)?\]\s*+')
_ENTRY = re.compile(r"([a-zA-Z][a-zA-Z0-9-]*)\s*(?:=\s*(.*))?")
_HARMLESS = frozenset(("branch", "user", "pull", "push", "init", "color", "gc", "advice"))
_HARMLESS_KEYS = {
    "core": frozenset(
        "repositoryformatversion filemode bare logallrefupdates ignorecase precomposeunicode symlinks autocrlf eol "
        "safecrlf quotepath abbrev".split()
    ),
    # Not `promisor` and `uploadpack`: a partial clone fetches, by that program, while it reads.
    "remote": frozenset(("url", "pushurl", "fetch", "tagopt")),
}


def git_only_reads(arguments: Sequence[str], folder: Path) -> bool:
    """Whether `git ARGUMENTS` in `folder` changes nothing and runs nothing else."""
    rest = list(arguments)
    if rest[:1] == ["--no-pager"]:
        rest.pop(0)
    if not rest or rest[0] not in _COMMANDS:
        return False
    name = rest.pop(0)
    if any("%G" in word or "signature" in word for word in rest):
        return False  # it runs gpg
    if any(name.startswith("GIT_") and not name.startswith(_OWN_ENVIRONMENT) for name in os.environ):
        return False  # another repository, another configuration, a program, a trace file
    short, valued, long, operands = _COMMANDS[name]
    if not _known(rest, short, valued, long.split(), operands):
        return False
    return _harmless_configuration(folder)


def _known(arguments: list[str], short: str, valued: str, long: list[str], operands: bool) -> bool:
    queue = list(arguments)
    while queue:
        argument = queue.pop(0)
        if argument == "--":
            return operands or not queue
        if not argument.startswith("-"):
            if not operands:
                return False
        elif argument.startswith("--"):
            name, equals, _ = argument[2:].partition("=")
            if (f"{name}=" if equals else name) not in long:
                return False
        elif argument[1:].isdecimal() and argument.isascii():
            continue
        elif argument == "-":
            return False
        else:
            for place, letter in enumerate(argument[1:], 1):
                if letter in valued:
                    if place == len(argument) - 1 and (not queue or queue.pop(0).startswith("-")):
                        return False
                    break
                if letter not in short:
                    return False
    return True


def _harmless_configuration(folder: Path) -> bool:
    """Whether the repository that git finds around `folder` has only settings that are known not to
    run anything. No repository: git says so itself, nothing runs."""
    for place in (folder, *folder.parents):
        if os.path.lexists(place / "HEAD"):
            return False  # perhaps a bare repository, whose files anyone may have put there
        git = place / ".git"
        if not os.path.lexists(git):
            continue
        if git.is_symlink() or not git.is_dir():
            return False
        # each submodule and each worktree has a configuration of its own; the hook runs when a look at
        # the files finds that the index is out of date
        others = ("config.worktree", "commondir", "modules", "hooks/post-index-change")
        if any(os.path.lexists(git / name) for name in others):
            return False
        try:
            index, config = git / "index", git / "config"
            if not _taken(git) or any(git.glob("sharedindex.*")) or (index.exists() and _GITLINK in index.read_bytes()):
                return False
            return not os.path.lexists(config) or _harmless(config.read_bytes().decode())
        except (OSError, ValueError):
            return False
    return True


def _taken(git: Path) -> bool:
    """Whether git certainly takes this folder for a repository. Where it does not, it goes on to one further up."""
    head = git / "HEAD"
    return (
        not head.is_symlink()
        and bool(_HEAD.fullmatch(head.read_bytes()))
        and all((git / name).is_dir() and os.access(git / name, os.X_OK) for name in ("objects", "refs"))
    )


def harmless_setting(key: str) -> bool:
    """Whether a setting ("user.name") names nothing that git runs."""
    section, _, name = key.lower().partition(".")
    return section in _HARMLESS or name.rpartition(".")[2] in _HARMLESS_KEYS.get(section, ())


def _harmless(text: str) -> bool:
    if _CONTROL.search(text):
        return False
    section = ""
    for line in text.split("\n"):
        line = line.strip()
        if not line or line[0] in "#;":
            continue
        if line.endswith("\\"):
            return False  # goes on in the next line
        if line.startswith("["):
            header = _SECTION.fullmatch(line)
            if header is None:
                return False
            section = header[1].lower()
            continue
        entry = _ENTRY.fullmatch(line)
        if entry is None:
            return False
        if section not in _HARMLESS and entry[1].lower() not in _HARMLESS_KEYS.get(section, ()):
            return False
    return True
