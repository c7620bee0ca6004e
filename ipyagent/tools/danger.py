"""Why a shell command or Python code needs a yes even in mode "auto": it destroys what cannot be had again, or runs
what cannot be seen. Code is judged in its syntax tree, after IPython's own translation of magics and `!`, never by its
text. Of a command only a short list of words is known: what keeps it from doing harm is the sandbox. The list gives the
reason where a command runs outside of it, and says which commands a rule with a wildcard does not cover."""
# ruff: noqa: SIM905 -- tables of words read better as text

from __future__ import annotations

import ast
import glob
import os
import re
import shlex
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from pathlib import Path, PurePath
from typing import Any

from ipyagent.tools.paths import in_force

# ------------------------------------------------------------------ the shell

_WORDS = {
    "deletes files": "rm unlink shred srm wipe trash trash-put rimraf",
    "deletes folders": "rmdir",
    "cuts or overwrites files": "truncate dd",
    "destroys a file system or changes a disk":
        "wipefs mkfs mkfs.ext4 blkdiscard fdisk sfdisk sgdisk parted lvremove cryptsetup",
    "becomes another user": "sudo su doas pkexec runuser",
    "ends processes": "kill killall pkill skill xkill",
    "stops the machine": "halt poweroff reboot shutdown telinit",
    "changes users or scheduled jobs": "userdel groupdel passwd crontab",
    "deletes a database": "dropdb",
    "runs text that is put together at run time": "eval",
}  # fmt: skip
_NAMES = {name: why for why, names in _WORDS.items() for name in names.split()}
_VERBS = frozenset(
    "rm rmi rb remove delete destroy purge prune drop uninstall autoremove unpublish flushall flushdb FLUSHALL FLUSHDB "
    "-delete --delete --del --remove-files down terminate-instances delete-object delete-bucket "
    "delete-db-instance".split()
)
"""Words behind a program's name with which it deletes what is kept there or elsewhere."""
_TALKS = frozenset("echo printf grep egrep fgrep rg git sed awk cat ls test [ python python3".split())
"""Programs to which such a word is a text."""
_STARTERS = frozenset(
    "env nohup time nice exec command builtin setsid stdbuf timeout xargs watch parallel flock find fd strace busybox "
    "script ssh docker podman conda mamba uv poetry npx sh bash zsh dash ksh ash trap alias coproc tmux screen if "
    "while then do else until !".split()
)
"""Those that run another command: each of their words may be its name."""
_TO_LAST = frozenset("cp mv install rsync scp ln".split())
_WRITERS = frozenset("tee sponge sed touch patch curl wget truncate".split())
"""Programs that write the last file that they are given, and any of them."""
_RECURSIVE = frozenset("chmod chown chgrp setfacl chattr".split())
_ASSIGNMENT = re.compile(r"[A-Za-z_][A-Za-z0-9_]*=")
_WORD = re.compile(r"[^\s'\"`;|&(){}$<>,\\]{1,4096}")
_PART = re.compile(r"[;|&\n(){}`]+")
_REDIRECTED = re.compile(r"(?:^|[^<>=-])(>{1,2})[|&]?[ \t]{0,99}([^\s;|&<>()'\"]{1,4096}|'[^'\n]{1,4096}')")
_FED = re.compile(
    r"\|&?[ \t]{0,9}(?:env[ \t]{1,9})?(sh|bash|zsh|dash|ksh|python[0-9.]{0,9}|perl|ruby|node)"
    r"(?=[ \t]{0,9}(?:-?$|-s|[;|&)\n]))"
)
_FILES = {
    "clean": "", "rm": "", "checkout-index": "", "read-tree": "", "reset": "--hard --merge",
    "checkout": "-- . -f --force --ours --theirs", "restore": "", "switch": "-f --force --discard-changes",
    "mv": "-f --force", "config": "--add --global --system --replace-all --edit -e", "submodule": "-f --force foreach",
}  # fmt: skip
"""Of git: by the command, the words with which it throws work away ("": always)."""
_HISTORY = {
    "push": "-f -d --force --force-with-lease --mirror --delete --prune",
    "branch": "-D -f -M -C --delete --force", "tag": "-d -f --delete --force", "stash": "drop clear",
    "checkout": "-B", "switch": "-C --force-create", "worktree": "remove", "remote": "remove rm", "notes": "remove",
    "merge": "--abort", "rebase": "--abort --skip -x --exec", "am": "--abort --skip", "cherry-pick": "--abort --skip",
    **dict.fromkeys("gc reflog prune repack replace update-ref filter-branch filter-repo bisect".split(), ""),
}  # fmt: skip
"""The same of what it keeps itself: copies of files do not bring it back."""


_PROGRAMS = ("alias.", "core.", "include", "filter.", "diff.", "merge.", "credential.", "gpg.", "url.", "pager.")
_VALUED = (["-C"], ["-c"], ["--git-dir"], ["--work-tree"])
"""Options of git itself whose value is a word of its own."""


def shell_danger(command: str, folder: Path, depth: int = 0) -> str:
    """The reason, "" when there is none. `folder`: where it runs."""
    if reason := sql_danger(command) or history_danger(command, folder) or _of_git(command, _FILES, "work"):
        return reason
    for found in _REDIRECTED.finditer(command):
        target = found[2].strip("'")
        if reason := in_force(target, folder):
            return reason
        if found[1] == ">" and not target.isdecimal() and has_content(target, folder):
            return f"it overwrites {target}"
    if fed := _FED.search(command):
        return f"it feeds {fed[1]} from a pipe"
    try:
        parts = _parts(command)
    except ValueError as problem:
        return f"it cannot be parsed ({problem})"
    return next((reason for words in parts if (reason := _of_part(words, folder))), "")


def _parts(command: str) -> list[list[str]]:
    """The words of each command of a line, without quotes and assignments. Raises ValueError."""
    lexer = shlex.shlex(command.replace("\\\n", " "), posix=True, punctuation_chars="();<>|&\n")
    lexer.whitespace, lexer.whitespace_split, lexer.commenters = " \t\r", True, ""
    parts: list[list[str]] = [[]]
    for token in lexer:
        if not token.strip("();<>|&\n{}$") and token:
            if not set(token) <= set("<>"):
                parts.append([])
        elif parts[-1] or not _ASSIGNMENT.match(token):
            parts[-1].append(token)
    return [part for part in parts if part]


def _of_part(words: list[str], folder: Path) -> str:
    if words[0][:1] in ("$", "`"):
        return "it runs a command held in a variable"
    module = words.index("-m") if "-m" in words[1:-1] else 0
    if any(word.rpartition("/")[2].startswith(("python", "pypy")) for word in words[:module]):
        words = words[module + 1 :]
    name = words[0].rpartition("/")[2]
    inner = [found[0] for word in words for found in _WORD.finditer(word)] if name in _STARTERS else [name]
    inner += [found[0] for word in words if "$(" in word or "`" in word for found in _WORD.finditer(word)]
    if name.startswith("python") and "-c" in words:
        return code_danger("".join(words[words.index("-c") + 1 :][:1]), folder, 1)
    for each in inner:
        each = each.rpartition("/")[2]
        if why := _NAMES.get(each) or _CALLS.get(each):
            return f"`{each}` {why}"
    verb = next((word for word in words[1:] if word in _VERBS), "")
    if verb and name not in _TALKS:
        return f"`{name} {verb}` deletes what is kept there"
    if name in _RECURSIVE and any(re.fullmatch(r"-[A-Za-z]*R[A-Za-z]*|--recursive", word) for word in words):
        return "it changes the permissions of whole folders"
    anew = name in _TO_LAST and "-n" not in words
    anew |= (name == "sed" and any(re.fullmatch(r"-[nErsuz]*i|--in-p[lace]*", word) for word in words))
    anew |= name in ("tee", "sponge") and "-a" not in words
    targets = words[-1:] if name in _TO_LAST else words[1:] if name in _WRITERS else []
    for target in targets:
        if reason := in_force(target, folder):
            return reason
        if anew and has_content(target, folder):
            return f"it overwrites {target}"
    return ""


def history_danger(command: str, folder: Path) -> str:
    """The reason that no copy of a file undoes: what git keeps."""
    return _of_git(command, _HISTORY, "history")


def _of_git(command: str, table: Mapping[str, str], what: str) -> str:
    for part in _PART.split(command) if "git" in command else ():
        words = [found[0] for found in _WORD.finditer(part)]
        names = [word.rpartition("/")[2] for word in words]
        if "git" not in names:
            continue
        rest = words[names.index("git") + 1 :]
        name = next((word for at, word in enumerate(rest) if word[0] != "-" and rest[at - 1 : at] not in _VALUED), "")
        if name not in table:
            continue
        letters = {f"-{letter}" for word in rest if re.fullmatch(r"-[A-Za-z]{1,20}", word) for letter in word[1:]}
        marks = set(table.get(name, "").split())
        forced = name == "push" and any(word.startswith(("+", ":")) for word in rest)
        forced |= name == "config" and len(rest) > 2 and any(word.startswith(_PROGRAMS) for word in rest)
        if (not marks or forced or marks & (letters | set(rest))) and "--cached" not in rest:
            told = "may name a program that git runs" if name == "config" else f"may throw {what} away"
            return f"`git {name}` {told}"
    return ""


def has_content(target: str, folder: Path) -> bool:
    """Whether `target` is, or cannot be told not to be, a file with something in it."""
    if not target or "$" in target or "`" in target:
        return True
    path = folder / os.path.expanduser(target)
    try:
        return path.is_file() and path.stat().st_size > 0
    except (OSError, ValueError, NotImplementedError):
        return False


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


# ------------------------------------------------------------------ Python

_CALLS = {
    **dict.fromkeys(("os.remove", "os.unlink"), "deletes files"),
    **dict.fromkeys(("os.rmdir", "os.removedirs", "shutil.rmtree"), "deletes folders"),
    **dict.fromkeys(("os.rename", "os.replace", "shutil.move"), "moves files, over others of the same name"),
    **dict.fromkeys(("os.kill", "os.killpg"), "ends processes"),
    **dict.fromkeys(("os._exit", "os.abort"), "ends the kernel"),
    "os.truncate": "cuts files", "shutil.chown": "changes permissions", "os.fork": "copies the kernel's process",
}  # fmt: skip
_METHODS = {
    "unlink": "deletes files",
    **dict.fromkeys(("rmdir", "rmtree", "removedirs"), "deletes folders"),
    **dict.fromkeys(("drop_all", "drop_table"), "drops tables"),
    "drop_database": "drops databases", "delete_many": "deletes records",
    **dict.fromkeys(("delete_bucket", "delete_object"), "deletes stored objects"),
    **dict.fromkeys(("send_signal", "terminate", "kill"), "ends processes"),
}  # fmt: skip
_RUNNERS = re.compile(
    r"(?:os\.(?:system|popen|exec[a-z]+|spawn[a-z]+|posix_spawnp?)|subprocess\.(?:run|call|check_call|check_output"
    r"|Popen|getoutput|getstatusoutput)|asyncio\.create_subprocess_(?:exec|shell)|pty\.spawn)"
)
_FROM_SHELL = frozenset(("system", "getoutput", "getoutput_all"))
_LINE_MAGICS = {
    "reset": "`%reset` clears the namespace",
    "reset_selective": "`%reset_selective` clears names",
    "rm": "`%rm` deletes files",
    "rmdir": "`%rmdir` deletes folders",
    "mv": "`%mv` moves files, over others of the same name",
}
_SHELL_MAGICS = frozenset(("sx", "system", "bash", "sh", "script", "cmd"))
_PYTHON_MAGICS = frozenset(("time", "timeit", "prun", "capture", "python", "python3"))
_PACKAGE_MAGICS = frozenset(("pip", "conda", "mamba", "uv", "micromamba"))
_BARE = re.compile(r"\s*(\w+)(?:[ \t]+(?![=.,:\[(])(?!(?:is|in|and|or|not|if|for)\b)|\s*$)")
"""A word that IPython takes for a magic or an alias where it stands alone in a cell: its automagic."""
_FORMATTED = re.compile(r"\{[A-Za-z_][\w.\[\]'\"]*\}")
"""A Python value that IPython puts into a command."""
_GUARDED = frozenset(("os", "shutil", "subprocess"))


def code_danger(code: str, folder: Path, depth: int = 0) -> str:
    """The reason, "" when there is none. Code that does not parse does not run: no reason."""
    if depth > 4:
        return "it is nested too deeply to be examined"
    # IPython's translation takes time with the square of their number: 50 lines take 0.2 s.
    if sum(line.lstrip()[:1] in ("!", "%", "?") for line in code.split("\n")) > 100:
        return "it has too many magics to be examined"
    tree = _tree(code)
    if tree is None:
        return ""
    nodes = list(ast.walk(tree))
    names = _imports(nodes)
    docs = {id(node.value) for node in nodes if isinstance(node, ast.Expr)}
    called = {id(node.func) for node in nodes if isinstance(node, ast.Call)}
    for node in nodes:
        if isinstance(node, ast.Call):
            reason = _of_call(node, names, folder, depth)
            if reason:
                return reason
        elif isinstance(node, (ast.Name, ast.Attribute)) and id(node) not in called:
            if reason := _as_value(node, names):
                return reason
        elif (
            isinstance(node, ast.Constant)
            and isinstance(node.value, str)
            and id(node) not in docs
            and (reason := sql_danger(node.value))
        ):
            return reason
    return _standing(nodes, names, docs, folder)


def _tree(code: str) -> ast.Module | None:
    """The code as Python, after IPython's own translation; None when it does not parse."""
    if bare := _bare(code):
        code = f"%{bare}"
    from IPython.core.inputtransformer2 import TransformerManager

    try:
        manager: Any = TransformerManager  # IPython has no types here
        source: str = manager().transform_cell(code)
        return ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


_WRITING = re.compile(
    r"write\w*|to_(?!numpy|list|dict|frame|string|datetime|numeric|records|period|timestamp|pydatetime|series)\w+|dump|save\w*"
    r"|touch|copy\w*|move|rename\w*|replace|symlink\w*|link|hardlink_to|link_to|urlretrieve|extract\w*|truncate|imwrite"
    r"|imsave|pwrite|sendfile|print|writelines"
)
"""Methods and functions that write a file, or may."""
_WRITING_MODE = re.compile(r"[rbt]*[wax+][rwaxbt+]*")


def _standing(nodes: list[ast.AST], names: dict[str, str], docs: set[int], folder: Path) -> str:
    """Of code that names a file which stays in force, where it writes files at all; what a call only reads does not
    count."""
    calls = [node for node in nodes if isinstance(node, ast.Call)]
    writing = [call for call in calls if _writes(call, names)]
    if not writing:
        return ""
    read = {id(part) for call in calls if _reads(call, names) for part in ast.walk(call)}
    for node in nodes:
        text = _text(node)
        if text and id(node) not in docs and id(node) not in read and (reason := in_force(text, folder)):
            return reason
    return ""


def _writes(call: ast.Call, names: dict[str, str]) -> bool:
    name = _dotted(call.func, names)
    last = name.rpartition(".")[2]
    if last in ("open", "fdopen", "NamedTemporaryFile", "ZipFile", "File"):
        modes = [*call.args, *(key.value for key in call.keywords)]
        texts = [arg.value for arg in modes if isinstance(arg, ast.Constant) and isinstance(arg.value, str)]
        plain = all(isinstance(arg, ast.Constant) for arg in call.args[1:]) and name != "os.open"
        return not plain or any(_WRITING_MODE.fullmatch(text) for text in texts)
    if last == "print":
        return any(key.arg == "file" for key in call.keywords)
    if last == "replace" and len(call.args) != 1:
        return name in ("os.replace",)  # that of a text has two
    return bool(_WRITING.fullmatch(last)) or last in ("run_cell_magic", "run_line_magic")


def _reads(call: ast.Call, names: dict[str, str]) -> bool:
    """Whether a call only looks at what it names."""
    name = _dotted(call.func, names)
    last = name.rpartition(".")[2]
    if last == "open":
        return not _writes(call, names)
    return last.startswith(("read", "load", "is_", "exists", "stat", "glob", "find", "startswith", "endswith"))


def _text(node: ast.AST, depth: int = 0, unknown: str = "x") -> str:
    """A text that is written out, also one that is put together of such, with `unknown` for what a format string puts
    in; "" for anything else."""
    if depth > 30:
        return ""
    match node:
        case ast.Constant(value=str(text)):
            return text
        case ast.BinOp(op=ast.Add(), left=left, right=right):
            first, second = _text(left, depth + 1, unknown), _text(right, depth + 1, unknown)
            return first + second if first and second else ""
        case ast.BinOp(op=ast.Div(), left=left, right=right):
            first, second = _text(left, depth + 1, unknown) or ".", _text(right, depth + 1, unknown)
            return f"{first}/{second}" if second else ""
        case ast.JoinedStr(values=values):
            return "".join(_text(value, depth + 1, unknown) or unknown for value in values)
        case ast.FormattedValue(value=value):
            return _text(value, depth + 1, unknown)
        case ast.Call(func=ast.Name(id="Path") | ast.Attribute(attr="join" | "Path"), args=[_, *_] as args):
            parts = [_text(arg, depth + 1, unknown) for arg in args]
            return "/".join(parts) if all(parts) else ""
        case _:
            return ""


MOST_NAMED = 200
"""Files of one run of code that are copied before it because it names them."""
MOST_WORDS = 5_000
"""Words of the code that are looked at for that: each may be a look at the disk."""
_NAMED = re.compile(r"[^\s'\"`(),;=<>|&]{1,400}")


def named_files(code: str, namespace: Mapping[str, Any], folder: Path) -> Iterator[str]:
    """Files that the code names where it may write them, absolute: compiled code opens files itself, so that nothing
    tells which. By texts of the code and of variables, by patterns, and those of a folder; what a call only reads does
    not count."""
    tree = _tree(code)
    if tree is None:
        return
    nodes = list(ast.walk(tree))
    names = _imports(nodes)
    calls = [node for node in nodes if isinstance(node, ast.Call)]
    reading = [call for call in calls if _reads(call, names)]
    read = {id(part) for call in reading for arg in (*call.args, *call.keywords) for part in ast.walk(arg)}
    given = {id(part) for call in calls if call not in reading for arg in (*call.args, *call.keywords)
             for part in ast.walk(arg)}  # fmt: skip
    writes = any(_writes(call, names) for call in calls)
    found: dict[str, None] = {}
    seen: set[str] = set()
    for node in nodes:
        if id(node) in read or not (writes or id(node) in given):
            continue
        text: Any = _text(node, unknown="*")
        if isinstance(node, ast.Name):
            text = namespace.get(node.id)
            text = os.fspath(text) if isinstance(text, PurePath) else text
        if type(text) is str and text and len(text) <= 100_000 and text not in seen:
            words = dict.fromkeys([text, *(each[0] for each in islice(_NAMED.finditer(text), 1_000))])
            for word in words.keys() - seen:
                found.update(dict.fromkeys(_files_of(word, folder)))
            seen |= words.keys()
        if len(found) >= MOST_NAMED or len(seen) >= MOST_WORDS:
            break
    yield from islice(found, MOST_NAMED)


def _files_of(name: str, folder: Path) -> Iterable[str]:
    if len(name) > 400 or "\0" in name or "\n" in name or name.strip("./*") == "":
        return
    path = os.path.abspath(os.path.join(os.getcwd(), os.path.expanduser(name)))
    if "*" in name or "?" in name:
        yield from (each for each in islice(glob.iglob(path, recursive=True), MOST_NAMED) if os.path.isfile(each))
    elif os.path.isfile(path):
        yield path
    elif os.path.isdir(path) and Path(path) not in (folder, *folder.parents):
        within = (os.path.join(top, each) for top, _, files in os.walk(path) for each in files)
        yield from islice(within, MOST_NAMED)


def _bare(code: str) -> str:
    """The one line of a cell that automagic takes for a magic or an alias which counts here, else ""."""
    line = code.strip()
    found = _BARE.match(line) if "\n" not in line else None
    if found is None or found[1] not in (*_LINE_MAGICS, *_SHELL_MAGICS, *_PACKAGE_MAGICS, *_PYTHON_MAGICS):
        return ""
    return line if line != found[1] or found[1] == "reset" else ""


def _as_value(node: ast.Name | ast.Attribute, names: dict[str, str]) -> str:
    """Of a function that is handed on instead of called: `map(os.remove, files)`."""
    if not isinstance(node.ctx, ast.Load):
        return ""
    name = _dotted(node, names)
    if name in _CALLS:
        return f"`{name}` {_CALLS[name]}"
    if _RUNNERS.fullmatch(name):
        return f"`{name}` runs commands that are put together at run time"
    method = name.rpartition(".")[2]
    if isinstance(node, ast.Attribute) and _METHODS.get(method, "").startswith("deletes f"):
        return f"`.{method}` {_METHODS[method]}"
    return ""


def _imports(nodes: Iterable[ast.AST]) -> dict[str, str]:
    """What each imported name stands for: {"rmtree": "shutil.rmtree", "sp": "subprocess"}."""
    names: dict[str, str] = {}
    for node in nodes:
        if isinstance(node, ast.Import):
            for alias in node.names:
                names[alias.asname or alias.name.partition(".")[0]] = alias.name if alias.asname else ""
        elif isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                names[alias.asname or alias.name] = f"{node.module}.{alias.name}"
    return names


def _dotted(node: ast.expr, names: dict[str, str]) -> str:
    match node:
        case ast.Name(id=name):
            return names.get(name) or name
        case ast.Attribute(value=value, attr=attribute):
            return f"{_dotted(value, names)}.{attribute}"
        case ast.Call(func=ast.Name(id="__import__"), args=[ast.Constant(value=str(module)), *_]):
            return module
        case ast.Call(func=ast.Attribute(attr="import_module"), args=[ast.Constant(value=str(module)), *_]):
            return module
        case ast.Call(func=ast.Name(id="get_ipython")):
            return "get_ipython()"
        case _:
            return "?"


def _of_call(call: ast.Call, names: dict[str, str], folder: Path, depth: int) -> str:
    name = _dotted(call.func, names)
    first = call.args[0] if call.args else None
    if name in _CALLS:
        return f"`{name}` {_CALLS[name]}"
    if name.startswith("get_ipython()."):
        return _of_magic(name.removeprefix("get_ipython()."), call, folder, depth)
    if _RUNNERS.fullmatch(name):
        return _of_command(call, folder, depth)
    if name in ("exec", "eval", "builtins.exec", "builtins.eval"):
        if isinstance(first, ast.Constant) and isinstance(first.value, str):
            return code_danger(first.value, folder, depth + 1)
        return f"`{name}` runs code that is put together at run time"
    if name == "getattr" and first is not None and _dotted(first, names) in _GUARDED:
        return "`getattr` on a module that can delete and run things"
    method = name.rpartition(".")[2]
    if "." in name and method in _METHODS:
        return f"`.{method}()` {_METHODS[method]}"
    return ""


def _of_command(call: ast.Call, folder: Path, depth: int) -> str:
    """A command started from Python: as the shell would read it, when it is written out."""
    first = call.args[0] if call.args else next((key.value for key in call.keywords if key.arg == "args"), None)
    if isinstance(first, ast.Constant) and isinstance(first.value, str):
        words = [arg.value for arg in call.args if isinstance(arg, ast.Constant) and isinstance(arg.value, str)]
        return shell_danger(" ".join(words), folder, depth + 1)
    if isinstance(first, (ast.List, ast.Tuple)):
        # sys.executable and variables among the arguments stand for themselves.
        parts = [item.value if isinstance(item, ast.Constant) else "…" for item in first.elts]
        if parts and parts[0] == "…":
            parts[0] = "python" if ast.unparse(first.elts[0]) == "sys.executable" else "$command"
        return shell_danger(shlex.join(map(str, parts)).replace("'$command'", "$command"), folder, depth + 1)
    return "it runs a command that is put together at run time"


def _of_magic(name: str, call: ast.Call, folder: Path, depth: int) -> str:
    texts = [arg.value if isinstance(arg, ast.Constant) and isinstance(arg.value, str) else None for arg in call.args]
    if name in _FROM_SHELL:
        command = _FORMATTED.sub("$value", texts[0] or "") if texts else ""
        return shell_danger(command, folder, depth + 1) if command else ""
    if name in ("run_line_magic", "run_cell_magic") and texts and texts[0] is not None:
        magic, body = texts[0], texts[-1] or ""
        if magic in _LINE_MAGICS:
            return _LINE_MAGICS[magic]
        if magic in _SHELL_MAGICS:
            return shell_danger(body, folder, depth + 1)
        if magic in _PACKAGE_MAGICS:
            return shell_danger(f"{magic} {body}", folder, depth + 1)
        if magic in _PYTHON_MAGICS:
            line = texts[1] or "" if len(texts) > 2 else ""
            return code_danger(body, folder, depth + 1) or code_danger(line, folder, depth + 1)
        if magic in ("writefile", "file"):
            words = (texts[1] or "").split() if len(texts) > 1 else []
            return next((reason for word in words if (reason := in_force(word.strip("'\""), folder))), "")
        if magic in ("sql", "sqlite", "duckdb"):
            return next((reason for text in texts[1:] if (reason := sql_danger(text or ""))), "")
    return ""
