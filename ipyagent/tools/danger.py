"""Why a shell command or Python code needs a yes even in mode "auto": it destroys what cannot be had again, or runs
what cannot be seen. Commands are looked at wherever the shell would run them; code in its syntax tree, after IPython's
own translation of magics and `!`, never by its text."""
# ruff: noqa: SIM905 -- tables of words read better as text

from __future__ import annotations

import ast
import glob
import os
import re
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path, PurePath
from typing import Any

from ipyagent.tools.paths import in_force
from ipyagent.tools.shell_effects import (
    PLAIN,
    SHELLS,
    code_given,
    deletes,
    fed,
    git_danger,
    has_content,
    inner_commands,
    inner_lines,
    interprets,
    overwritten,
    settles,
    sql_danger,
    unexamined,
    written_to,
)

# ---- A shell command without the lines of its here-documents, which are data. What is no here-document for certain
# stays in: lines too many are examined rather than one too few.

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


# ------------------------------------------------------------------ the shell

_ASSIGNMENT = re.compile(r"[A-Za-z_][A-Za-z0-9_]*=")
_KEYWORDS = frozenset("then do else elif if while until ! time".split())
_BEFORE = frozenset("sudo doas env command builtin exec nohup time nice".split())
_SEPARATORS = frozenset((";", "&", "&&", "||", "|", "|&", ";;", "(", ")", "{", "}", "\n", "$"))


def shell_danger(command: str, folder: Path, depth: int = 0) -> str:
    """The reason, "" when there is none. `folder`: where it runs."""
    if depth > 4:
        return "it is nested too deeply to be examined"
    if reason := sql_danger(command):
        return reason
    for inner in _substitutions(command):
        reason = shell_danger(inner, folder, depth + 1)
        if reason:
            return reason
    try:
        tokens = _tokens(without_documents(command))
    except ValueError as problem:
        return f"it cannot be parsed ({problem})"
    words: list[str] = []
    piped = False
    place = 0
    entered = ""
    while place < len(tokens):
        token = tokens[place]
        if token and set(token) <= set("<>&|") and ("<" in token or ">" in token):
            target = tokens[place + 1] if place + 1 < len(tokens) else ""
            number = words.pop() if words and words[-1].isdecimal() else ""
            if token == "<>" and number not in ("", "0") and has_content(target, folder):
                return f"it overwrites {target}"
            if token in (">", ">|", "&>", ">&") and not target.isdecimal() and has_content(target, folder):
                return f"it overwrites {target}"
            if ">" in token and (reason := in_force(os.path.join(entered, target), folder)):
                return reason
            place += 2
            if "<<" in token and any(map(interprets, words)):
                return "it runs a program given in the command"
            continue
        if token == "$" and tokens[place + 1 : place + 2] == ["("] and not any(map(_is_name, words)):
            return "it runs a command that is put together at run time"
        if token in _SEPARATORS or (token and set(token) <= set(";&|()")):
            pattern = token == ")" and len(words) == 1 and "case" in tokens[:place]
            found = _of_program(words, piped, folder, depth) or _script_writes(words, entered, folder)
            reason = "" if pattern else found
            if reason:
                return reason
            if words[:1] == ["cd"] and len(words) == 2:
                entered = os.path.join(entered, words[1])
            if words[:1] == ["cd"] and len(words) == 2 and "$" not in words[1]:
                folder = folder / os.path.expanduser(words[1])
            words, piped = [], token in ("|", "|&")
        else:
            words.append(token)
        place += 1
    return _of_program(words, piped, folder, depth) or _script_writes(words, entered, folder)


def _script_writes(words: Sequence[str], entered: str, folder: Path) -> str:
    """Of a command that writes what stays in force."""
    rest = [word for at, word in enumerate(words) if at or not _ASSIGNMENT.match(word)]
    while rest and (_ASSIGNMENT.match(rest[0]) or rest[0] in _KEYWORDS or rest[0] in _BEFORE):
        rest.pop(0)
    if not rest:
        return ""
    name, arguments = Path(rest[0]).name, rest[1:]
    if reason := settles(name, arguments):
        return f"`{name}` {reason}"
    targets = (os.path.join(entered, target) for target in written_to(name, arguments, folder))
    return next((reason for target in targets if (reason := in_force(target, folder))), "")


def _is_name(word: str) -> bool:
    """Whether a word before a command's arguments is its name."""
    return word not in _KEYWORDS and not _ASSIGNMENT.match(word)


def _tokens(command: str) -> list[str]:
    if re.search(r"\$'[^']*\\'", command):
        raise ValueError("an escaped quote in $'…'")
    lexer = shlex.shlex(command.replace("\\\n", " "), posix=True, punctuation_chars="();<>|&\n")
    lexer.whitespace = " \t\r"
    lexer.whitespace_split = True
    # The shell takes # as a comment only at a word's start; shlex anywhere. Unread text could
    # hide a command, so a comment is examined like code.
    lexer.commenters = ""
    tokens: list[str] = []
    for token in lexer:
        if "\n" in token and not token.strip("();<>|&\n"):
            tokens.extend(part for part in re.split(r"(\n)", token) if part)
        else:
            tokens.append(token)
    return tokens


def _substitutions(command: str) -> list[str]:
    """The commands inside $( ), <( ), >( ) and backticks, outermost only."""
    found = re.findall(r"`([^`]*)`", command)
    for start in re.finditer(r"[$<>]\((?!\()", command):
        depth = 1
        for place in range(start.end(), len(command)):
            depth += {"(": 1, ")": -1}.get(command[place], 0)
            if depth == 0:
                found.append(command[start.end() : place])
                break
    return found


def _of_program(words: Sequence[str], piped: bool, folder: Path, depth: int) -> str:
    rest = list(words)
    for word in rest if len(rest) > 1 else ():  # PAGER='rm x' git log; export PAGER='rm x'
        value = word.partition("=")[2] if _ASSIGNMENT.match(word) else ""
        if " " in value and "$" not in value.split()[0] and (reason := shell_danger(value, folder, depth + 1)):
            return f"{reason} (by a variable)"
    while rest and (_ASSIGNMENT.match(rest[0]) or rest[0] in _KEYWORDS or (rest[0] == "-p" and rest != words)):
        rest.pop(0)
    if not rest:
        return ""
    if "$" in rest[0] or "`" in rest[0]:
        return "it runs a command held in a variable"
    if set("*?[{") & set(rest[0]) and rest[0] not in ("[", "[[", "{"):
        return "it runs a command that is put together at run time"
    name, arguments = "." if rest[0] == "." else Path(rest[0]).name, rest[1:]
    for line in inner_lines(name, arguments):
        if reason := shell_danger(line, folder, depth + 1):
            return reason
    for inner in inner_commands(name, arguments):
        if reason := _of_program(inner, piped, folder, depth + 1) or _script_writes(inner, "", folder):
            return reason
    if unexamined(name, arguments):
        return f"it gives {name} a program that is not examined"
    if name in PLAIN:
        return f"`{name}` {PLAIN[name]}"
    if name.startswith("mkfs"):
        return f"`{name}` destroys a file system"
    if interprets(name):
        return _of_interpreter(name, arguments, piped, folder, depth)
    letters = "".join(word[1:] for word in arguments if re.fullmatch(r"-[A-Za-z]+", word))
    if file := overwritten(name, arguments, letters, folder):
        return f"it overwrites {file}"
    if name == "git":
        reason, inner, place = git_danger(arguments, folder)
        return reason or (shell_danger(" ".join(inner), place, depth + 1) if inner else "")
    if name == "find":
        return _find(arguments, folder, depth)
    return deletes(name, arguments, letters)


def _of_interpreter(name: str, arguments: Sequence[str], piped: bool, folder: Path, depth: int) -> str:
    given = code_given(name, arguments)
    if given is not None:
        if name in SHELLS:
            return next((reason for code in given if (reason := shell_danger(code, folder, depth + 1))), "")
        if name.startswith("python") and given:
            return code_danger(given[0], folder)
        return f"it runs {name} code that is not examined"
    if "<(" in "".join(arguments):
        return "it runs a program given in the command"
    if piped and fed(name, arguments):
        return f"it feeds {name} from a pipe"
    if "-m" in arguments and (module := arguments[list(arguments).index("-m") + 1 :]):
        return deletes(module[0], module[1:], "")
    return ""


def _find(arguments: Sequence[str], folder: Path, depth: int) -> str:
    if "-delete" in arguments:
        return "`find -delete` deletes files"
    for place, word in enumerate(arguments):
        if word in ("-exec", "-execdir", "-ok", "-okdir"):
            reason = _of_program(arguments[place + 1 :], False, folder, depth + 1)
            if reason:
                return reason
    return ""


# ------------------------------------------------------------------ Python

_CALLS = {
    "os.remove": "deletes files",
    "os.unlink": "deletes files",
    "os.rmdir": "deletes folders",
    "os.removedirs": "deletes folders",
    "os.truncate": "cuts files",
    "os.kill": "ends processes",
    "os.killpg": "ends processes",
    "os._exit": "ends the kernel",
    "os.abort": "ends the kernel",
    "shutil.rmtree": "deletes folders",
    "shutil.move": "moves files, over others of the same name",
    "shutil.chown": "changes rights",
    "os.rename": "moves files, over others of the same name",
    "os.replace": "moves files, over others of the same name",
    "os.fork": "copies the kernel's process",
}
_METHODS = {
    "unlink": "deletes files",
    "rmdir": "deletes folders",
    "rmtree": "deletes folders",
    "removedirs": "deletes folders",
    "drop_all": "drops tables",
    "drop_table": "drops tables",
    "drop_database": "drops databases",
    "delete_many": "deletes records",
    "delete_bucket": "deletes stored objects",
    "delete_object": "deletes stored objects",
    "send_signal": "ends processes",
    "terminate": "ends processes",
    "kill": "ends processes",
}
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


_WRITERS = re.compile(
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
    return bool(_WRITERS.fullmatch(last)) or last in ("run_cell_magic", "run_line_magic")


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
_WORD = re.compile(r"[^\s'\"`(),;=<>|&]{1,400}")


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
            words = dict.fromkeys([text, *(each[0] for each in islice(_WORD.finditer(text), 1_000))])
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
