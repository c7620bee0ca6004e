"""What a shell command would do, as far as its words tell: what it deletes or overwrites, which code and which other
commands it runs. Not all options are known here, so what may be a file or a command is taken for one: a question
too many is better than a file too few."""
# ruff: noqa: SIM905 -- tables of words read better as text

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path

from ipyagent.tools.git_reads import harmless_setting

# ---- Commands that delete, stop or destroy what cannot be had again: by their names, by a word behind them, by
# SQL.

PLAIN = {
    "rm": "deletes files", "rmdir": "deletes folders", "unlink": "deletes files", "srm": "deletes files",
    "shred": "destroys files", "wipe": "destroys files", "rimraf": "deletes files", "del-cli": "deletes files",
    "trash": "deletes files", "trash-put": "deletes files", "truncate": "cuts files", "fallocate": "cuts files",
    "rename": "moves files, over others of the same name", "prename": "moves files, over others of the same name",
    "mmv": "moves files, over others of the same name", "dd": "writes raw data", "wipefs": "destroys a file system",
    "blkdiscard": "destroys a file system", "fdisk": "changes a disk", "sfdisk": "changes a disk",
    "sgdisk": "changes a disk", "parted": "changes a disk", "lvremove": "changes a disk", "vgremove": "changes a disk",
    "cryptsetup": "changes a disk", "mdadm": "changes a disk", "umount": "takes a file system away",
    "dropdb": "deletes a database", "dropuser": "deletes a database's user",
    "sudo": "becomes another user", "su": "becomes another user", "doas": "becomes another user",
    "pkexec": "becomes another user", "runuser": "becomes another user",
    "userdel": "deletes a user", "groupdel": "deletes a group", "passwd": "changes a password",
    "kill": "ends processes", "killall": "ends processes", "pkill": "ends processes", "skill": "ends processes",
    "xkill": "ends processes", "halt": "stops the machine", "poweroff": "stops the machine",
    "reboot": "stops the machine", "shutdown": "stops the machine", "telinit": "stops the machine",
    "eval": "runs text that is put together at run time", "source": "runs a file's commands",
    ".": "runs a file's commands", "crontab": "changes scheduled jobs", "at": "schedules what is not examined",
    "batch": "schedules what is not examined",
}  # fmt: skip
_ELSEWHERE = "it deletes what is kept elsewhere"
_UNINSTALLS = (
    "it uninstalls packages",
    "uninstall remove purge autoremove rm un unlink unpublish erase -R -Rs -Rns del prune delete",
)
_CONTAINERS = ("it removes containers, images or volumes", "rm rmi prune down kill delete")
_STOPS = ("it stops or removes what runs", "stop disable mask kill destroy delete undefine halt rm down")
_REMOTE = (
    _ELSEWHERE,
    "rm rb delete purge drain --delete delete-object delete-objects delete-bucket delete-table terminate-instances "
    "deletefile destroy uninstall del -auto-approve --auto-approve",
)
_VERBS: dict[str, tuple[str, str]] = {
    **dict.fromkeys("pip pip3 uv conda mamba micromamba poetry pdm pipx apt apt-get aptitude dnf yum zypper pacman apk "
                    "brew port snap flatpak npm pnpm yarn gem cargo".split(), _UNINSTALLS),
    **dict.fromkeys("docker docker-compose podman nerdctl buildah kind minikube lxc".split(), _CONTAINERS),
    **dict.fromkeys("systemctl service launchctl supervisorctl pm2 vagrant virsh multipass".split(), _STOPS),
    **dict.fromkeys("kubectl oc helm aws gsutil gcloud az rclone terraform tofu pulumi heroku flyctl fly gh s3cmd mc "
                    "etcdctl consul vault bq hdfs".split(), _REMOTE),
    "zfs": (_ELSEWHERE, "destroy rollback"),
    "zpool": (_ELSEWHERE, "destroy labelclear"),
    "btrfs": (_ELSEWHERE, "delete"),
    "redis-cli": (_ELSEWHERE, "flushall flushdb del unlink shutdown eval"),
    "fuser": ("it ends processes", "-k -ki -km"),
    "tmux": ("it ends processes", "kill-server kill-session kill-pane kill-window"),
    "init": ("it stops the machine", "0 1 6"),
    "zip": ("it deletes files", "-m -d -mr -rm --move --delete"),
    "ar": ("it deletes files", "d -d"),
    "tar": ("it deletes files", "--delete --remove-files --overwrite --recursive-unlink --unlink-first -U"),
}  # fmt: skip
"""Words behind a command's name with which it deletes, and why that is told."""
_RECURSIVE = frozenset("chmod chown chgrp setfacl chattr".split())
_COMMENT = re.compile(r"/\*.*?\*/", re.DOTALL)
_GAP = r"(?:\s|--[^\n]{0,4000}\n)++"
_NAME = r"[\w.\"`]{1,80}"
SQL = re.compile(
    rf"\b(?:drop{_GAP}(?:table|database|schema|view|materialized|index|user|role|column|keyspace|collection)"
    rf"|delete{_GAP}from|truncate{_GAP}table)\b"
    rf"|\bupdate{_GAP}{_NAME}{_GAP}set{_GAP}{_NAME}\s*=(?![^;]{{0,4000}}\bwhere\b)",
    re.IGNORECASE | re.DOTALL,
)
_TRUNCATE = rf"truncate{_GAP}{_NAME}(?:\s+(?:cascade|restrict))?"
_TRUNCATES = re.compile(rf"\b{_TRUNCATE}", re.IGNORECASE | re.DOTALL)
_ONLY_TRUNCATES = re.compile(rf"\s*{_TRUNCATE}\s*+(?:;\s*+)?", re.IGNORECASE | re.DOTALL)
_CLIENTS = re.compile(r"\b(?:psql|mysql|mariadb|duckdb|cqlsh|sqlcmd|clickhouse|clickhouse-client|bq|usql|snowsql)\b")


def sql_danger(text: str) -> str:
    """Why SQL in a command or a string of code destroys; "" when it does not."""
    end = text.rfind("*/") + 2 if "*/" in text else 0  # beyond it no comment ends
    without = _COMMENT.sub(" ", text[:end]) + text[end:]
    return _sql_danger(text) or (_sql_danger(without) if without != text else "")


def _sql_danger(text: str) -> str:
    found = SQL.search(text) or _ONLY_TRUNCATES.fullmatch(text)
    if found is None and _CLIENTS.search(text):
        found = _TRUNCATES.search(text)
    return f"it contains {' '.join(found[0][:60].upper().split())}" if found else ""


def deletes(name: str, arguments: Sequence[str], letters: str) -> str:
    """The reason, "" when there is none. `letters`: of all short options together."""
    if name == "rsync":
        gone = any(word.startswith(("--del", "--remove-source", "--existing")) for word in arguments)
        return "it deletes files" if gone else ""
    if name in _RECURSIVE:
        whole = "R" in letters or "--recursive" in arguments
        return "it changes the rights of whole folders" if whole else ""
    why, words = _VERBS.get(name, ("", ""))
    return why if set(words.split()) & {word.lower() if name == "redis-cli" else word for word in arguments} else ""


# ---- Programs that run code, and whether a command gives them some: as an argument, or from a pipe.

SHELLS = frozenset("sh bash zsh dash ksh mksh ash rbash fish csh tcsh".split())
_CODE = {
    "perl": "eE", "ruby": "e", "node": "ep", "nodejs": "ep", "bun": "ep", "deno": "", "php": "rBRE", "lua": "e",
    "osascript": "e", "Rscript": "e", "R": "e", "julia": "eEL", "groovy": "e", "elixir": "e", "guile": "c",
    "octave": "", "matlab": "r", "gnuplot": "e", "sbcl": "", "emacs": "fl", "expect": "c", "mongo": "", "mongosh": "",
    "tclsh": "", "scala": "e", "swipl": "g", "clojure": "e", "racket": "e", "ghc": "e", "erl": "", "luajit": "e",
}  # fmt: skip
"""The letters of their options whose value is code."""
_LONG = ("--eval", "--print", "--command", "--execute", "-eval", "-command", "-encodedcommand", "-batch", "eval")
_POWER = ("powershell", "pwsh")
_PYTHON = re.compile(r"(?:python|pypy|ipython)[0-9.]*")
_PYTHON_CODE = re.compile(r"-[bBdEhiIOPqRsSuvVx]*c(.*)", re.DOTALL)


def interprets(word: str) -> bool:
    """Whether a word names a program that runs code."""
    name = Path(word).name
    return name in SHELLS or name in _CODE or name in _POWER or bool(_PYTHON.fullmatch(name))


def code_given(name: str, arguments: Sequence[str]) -> list[str] | None:
    """What may be the code that an argument holds (of a shell every word that may be it); None: no argument does."""
    for place, word in enumerate(arguments):
        rest = [each for each in arguments[place + 1 :] if each != "--"]
        if name in SHELLS:
            if re.fullmatch(r"-[A-Za-z]*c[A-Za-z]*", word):
                return [each for each in rest if not each.startswith(("-", "+"))]
        elif _PYTHON.fullmatch(name):
            if found := _PYTHON_CODE.fullmatch(word):
                return [found[1]] if found[1] else rest[:1]
        elif _is_code(name, word):
            return rest
    return None


def _is_code(name: str, word: str) -> bool:
    """Whether an option is one whose value is code."""
    if word.lower().partition("=")[0] in _LONG:
        return True
    if name in _POWER:
        return word.lower().startswith(("-c", "-e", "/c"))
    return word[:1] == "-" and word[:2] != "--" and bool(set(_CODE.get(name, "")) & set(word))


def fed(name: str, arguments: Sequence[str]) -> bool:
    """Whether the program takes its code from what it is given on its input."""
    operands = []
    for place, word in enumerate(arguments):
        if name in SHELLS and place and arguments[place - 1] in ("-o", "+o", "-O", "+O"):
            continue
        if name in SHELLS and re.fullmatch(r"-[A-Za-z]*s[A-Za-z]*", word):
            return True
        if not word.startswith(("-", "+")) and word not in ("/dev/stdin", "/dev/fd/0", "/proc/self/fd/0"):
            operands.append(word)
    return not operands and "-m" not in arguments


# ---- Which file with something in it a shell command would overwrite, as far as its arguments tell.

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
            return "sets what git runs automatically"
        case "direnv" if {"allow", "permit", "grant", "edit"} & set(words[:1]):
            return "allows what a shell runs automatically"
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


# ---- Why a git command needs a yes even in mode "auto": it throws work or history away, or names a program to run.

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


# ---- Commands that run another command: what they would run, as far as their arguments tell. Their options are not
# all known here, so every word that may be the inner command is taken for one: a question too many is better than a
# file too few.

RUNNERS = frozenset(
    "env nohup time nice exec command builtin setsid stdbuf ionice chrt timeout xargs watch parallel flock "
    "strace ltrace unshare chroot busybox script coproc systemd-run taskset caffeinate ssh conda mamba "
    "uv poetry pipenv npx bunx toybox fakeroot proot firejail bwrap setpriv setarch numactl prlimit nsenter perf "
    "valgrind hyperfine xvfb-run dbus-run-session unbuffer rlwrap catchsegv hatch pdm pnpm yarn npm pipx direnv sem "
    "rush docker podman fd fdfind entr chpst start-stop-daemon tmux screen".split()
)
_OPERAND_FIRST = frozenset(
    "timeout flock ssh chroot taskset ionice conda mamba uv poetry pipenv hatch pdm pnpm yarn npm pipx perf numactl "
    "setarch".split()
)
"""Those with an operand of their own before the command: a time, a file, a host, the word `run`."""
_ONLY_RUN = frozenset("conda mamba uv poetry pipenv hatch pdm pnpm yarn npm pipx".split())
_RUNS = frozenset("run exec dlx x tool".split())
_ANYWHERE = frozenset("docker podman fd fdfind direnv tmux screen bwrap proot firejail start-stop-daemon".split())
"""Those whose command may stand behind any number of words of their own."""
_FROM_INPUT = frozenset("xargs parallel sem rush".split())
_SETTING = re.compile(r"[A-Za-z_][A-Za-z0-9_]*=")
_SED_RUNS = re.compile(r"(?:^|[;{}\d$/])\s*e(?:\s|$)|^s(.)(?:(?!\1).)*+\1.*\1[gpimIM\d]{0,20}e")
_STRINGS = {
    "env": ("-S", "--split-string"), "script": ("-c", "--command"), "flock": ("-c", "--command"), "trap": ("",),
    "alias": ("",), "watch": ("",), "ssh": ("",), "parallel": ("",), "coproc": ("",), "hyperfine": ("",),
    "tmux": ("",), "make": ("--eval", "-E"), "nix-shell": ("--run", "--command"), "npx": ("-c", "--call"),
    "entr": ("",), "sem": ("",), "rush": ("",), "sqlite3": ("",),
}  # fmt: skip
"""Options whose value is a command line; "": every argument may be one."""
_PROGRAMS = {
    "awk": ("system(", ">", "|"), "gawk": ("system(", ">", "|"), "mawk": ("system(", ">", "|"),
    "tar": ("--checkpoint-action", "--to-command", "--use-compress-program", "--remove-files"),
    "rg": ("--pre", "--hostname-bin"), "sort": ("--compress-program",), "man": ("-P", "--pager"),
    "vim": ("-", "+"), "vi": ("-", "+"), "ex": ("-", "+"), "nvim": ("-", "+"), "ed": ("",), "gdb": ("-ex", "-x"),
    "hash": ("-p",), "enable": ("-f",), "mapfile": ("-C",), "readarray": ("-C",), "compgen": ("-C",),
    "sqlite3": (".shell", ".system", ".output", ".once", ".restore", ".save", ".backup", ".read", ".import"),
    "psql": ("\\!", "\\o", "\\copy"), "mysql": ("\\!", "system "), "mariadb": ("\\!", "system "),
}  # fmt: skip
"""Marks of arguments with which these programs run or write what is not examined here."""


def inner_commands(name: str, arguments: Sequence[str]) -> Iterator[Sequence[str]]:
    """The commands, as words, that a runner may run."""
    if name not in RUNNERS or (name in _ONLY_RUN and not _RUNS & set(arguments[:2])):
        return
    if name in _ANYWHERE:
        yield from (arguments[place:] for place, word in enumerate(arguments) if not word.startswith(("-", ".")))
        return
    operands = 1 if name in _OPERAND_FIRST else 0
    for place, word in enumerate(arguments):
        if word.startswith("-") or _SETTING.match(word):
            continue
        yield arguments[place:]
        before = arguments[place - 1] if place else ""
        if before.startswith("-") and "=" not in before:
            continue  # it may be the value of that option
        if not operands:
            return
        operands -= 1


def inner_lines(name: str, arguments: Sequence[str]) -> Iterator[str]:
    """The command lines that a command is given as text."""
    for option in _STRINGS.get(name, ()):
        for place, word in enumerate(arguments):
            if not option:
                yield word.partition("=")[2] if name == "alias" else word
            elif word == option and place + 1 < len(arguments):
                yield arguments[place + 1]
            elif word.startswith(option):
                yield word.removeprefix(option).removeprefix("=")


def unexamined(name: str, arguments: Sequence[str]) -> bool:
    """Whether the command is given a program of its own language that may run or write anything."""
    marks = _PROGRAMS.get(name, ())
    if name in ("awk", "gawk", "mawk"):
        return any(mark in word for word in arguments for mark in marks) or bool({"-f", "-i"} & set(arguments))
    if name in _FROM_INPUT:
        words = [word for word in arguments if not word.startswith("-")]
        last = words[-1].rpartition("/")[2] if words else ""
        return last in RUNNERS or interprets(last) or (not words and name != "xargs")
    if name == "sed":
        return any(_SED_RUNS.search(word) for word in arguments)
    return any(word.startswith(mark) for word in arguments for mark in marks)
