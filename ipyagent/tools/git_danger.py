"""Why a git command needs a yes even in mode "auto": it throws work or history away, or names a program to run."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path

from ipyagent.tools.shell_overwrites import has_content, outputs

_HARMLESS = (
    "user.", "color.", "advice.", "init.", "push.default", "push.autosetupremote", "pull.rebase", "pull.ff",
    "core.autocrlf", "core.filemode", "core.quotepath", "fetch.prune",
)  # fmt: skip
"""Settings that can name no program."""
_VALUED = ("-c", "-C", "--git-dir", "--work-tree", "--namespace", "--exec-path", "--config-env", "--super-prefix")
_ALWAYS = {
    "clean": "`git clean` deletes untracked files",
    "checkout-index": "`git checkout-index` may overwrite uncommitted work",
    "read-tree": "`git read-tree` may throw uncommitted work away",
    "prune": "`git prune` may throw history away",
    "replace": "`git replace` may change history",
    **{name: f"`git {name}` may throw history away" for name in
       ("filter-branch", "filter-repo", "gc", "reflog", "update-ref", "repack")},
}  # fmt: skip


def git_danger(arguments: Sequence[str], folder: Path) -> tuple[str, list[str], Path]:
    """The reason, "" when there is none; the command that git is given to run, if it is; the folder it runs in."""
    rest = list(arguments)
    while rest and rest[0].startswith("-"):
        option, _, value = rest.pop(0).partition("=")
        if option in _VALUED and not value and rest:
            value = rest.pop(0)
        if option in ("-C", "--work-tree") and "$" not in value:
            folder = folder / os.path.expanduser(value)
        if option in ("--exec-path", "--config-env") and value:
            return "an option of git's may name a program", [], folder
        if option == "-c" and not value.lower().startswith(_HARMLESS):
            return "an option of git's may name a program", [], folder
    if not rest:
        return "", [], folder
    name, rest = rest[0], rest[1:]
    letters = "".join(word[1:] for word in rest if re.fullmatch(r"-[A-Za-z]+", word))
    plain = [word for word in rest if not word.startswith("-")]
    return _of(name, _Given(rest, letters, plain), folder), _inner(name, rest, plain), folder


class _Given:
    """What stands behind git's command: `letters` of its short options, `plain` words that are no options."""

    def __init__(self, words: list[str], letters: str, plain: list[str]) -> None:
        self.words, self.letters, self.plain = words, letters, plain

    def has(self, *options: str) -> bool:
        """Whether one of them is there: "-f" also among other letters, "--force" also cut short, as git reads it."""
        return any(self._has(option) for option in options)

    def _has(self, option: str) -> bool:
        if len(option) == 2:
            return option[1] in self.letters
        names = [word.partition("=")[0] for word in self.words if word.startswith("--") and len(word) > 3]
        return any(option.startswith(name) for name in names)


def _of(name: str, given: _Given, folder: Path) -> str:
    plain = given.plain
    match name:
        case _ if name in _ALWAYS:
            return _ALWAYS[name]
        case "rm":
            return "" if given.has("--cached") else "it deletes files"
        case "push":
            forced = given.has("-f", "-d", "--force", "--force-with-lease", "--mirror", "--delete", "--prune")
            forced = forced or any(word.startswith(("+", ":")) for word in plain)
            return "it overwrites or deletes what others may have pushed" if forced else ""
        case "reset":
            throws = next((option for option in ("--hard", "--merge") if given.has(option)), "")
            return f"`git reset {throws}` throws uncommitted work away" if throws else ""
        case "checkout" | "restore" | "switch":
            paths = name == "restore" or (name == "checkout" and _names_files(given, folder))
            if paths or given.has("-f", "--force", "--discard-changes"):
                return f"`git {name}` may throw uncommitted work away"
            return "it moves a branch away from its commits" if given.has("-B", "-C", "--force-create") else ""
        case "branch" | "tag":
            if given.has("-D", "--delete") or (given.has("-d") and (name == "tag" or given.has("-f", "--force"))):
                return f"it deletes {'branches' if name == 'branch' else 'tags'}"
            moves = given.has("-f", "-M", "-C", "--force")
            return f"it moves a {name} away from its commits" if moves else ""
        case "fetch" | "pull" if any(word.startswith("+") for word in plain):
            return "it moves a branch away from its commits"
        case "mv" if given.has("-f", "--force"):
            return "it moves files, over others of the same name"
        case "stash":
            return "it throws stashed work away" if plain[:1] in (["drop"], ["clear"]) else ""
        case "worktree" | "submodule" | "remote" | "notes" if {"remove", "rm", "deinit"} & set(plain[:1]):
            return f"`git {name} {plain[0]}` deletes what is not kept elsewhere"
        case "submodule" if given.has("-f", "--force"):
            return "`git submodule` may throw uncommitted work away"
        case "merge" | "rebase" | "am" | "cherry-pick" | "revert":
            return f"`git {name}` throws away what was resolved" if given.has("--abort", "--skip") else ""
        case "config":
            return _of_config(given)
        case "archive" | "bundle":
            files = outputs(("-o", "--output"), given.words) + (plain[1:2] if name == "bundle" else [])
            file = next((word for word in files if has_content(word, folder)), "")
            return f"it overwrites {file}" if file else ""
        case "difftool" | "mergetool":
            return f"`git {name}` runs a program that is not examined"
    return ""


def _names_files(given: _Given, folder: Path) -> bool:
    """Whether files are given to `checkout`, or something that may be one."""
    if "--" in given.words or given.has("--ours", "--theirs", "--pathspec-from-file", "--merge"):
        return True
    if given.has("-b", "-B", "-c", "-C", "-t", "--orphan", "--track", "--create", "--force-create", "--detach"):
        return False
    return len(given.plain) > 1 or any(
        word.startswith(":") or set("*?[$`") & set(word) or os.path.lexists(folder / word) for word in given.plain
    )


def _of_config(given: _Given) -> str:
    """A setting may be a command that git runs later."""
    if given.has("--get", "--get-all", "--get-regexp", "--list", "-l", "--unset", "--unset-all", "--remove-section"):
        return ""
    words = [word for word in given.plain if word not in ("set", "add")]
    if words[:1] in (["get"], ["list"], ["unset"]) or len(words) < 2:
        return ""
    return "" if words[0].lower().startswith(_HARMLESS) else "a setting of git's may name a program"


def _inner(name: str, rest: list[str], plain: list[str]) -> list[str]:
    """The command that git runs for each module, commit or step."""
    if name == "submodule" and plain[:1] == ["foreach"]:
        return rest[rest.index("foreach") + 1 :]
    if name == "bisect" and plain[:1] == ["run"]:
        return rest[rest.index("run") + 1 :]
    for place, word in enumerate(rest if name == "rebase" else []):
        if word in ("-x", "--exec"):
            return rest[place + 1 : place + 2]
        if word.startswith(("--exec=", "-x")):
            return [word.removeprefix("--exec=").removeprefix("-x")]
    return []
