"""Every text a user can meet as an error, read from the source: what the list beside this file holds.

A text is collected where it enters the way to the user: the argument of a class of the tree in
`ipyagent.errors`, a notice, the end of a turn that did not finish, a layer's failure, a problem of a skill,
a line after "ipyagent: ". What is filled in at run time is `{…}`. Names are followed through the
function's own assignments, the module's constants (imported ones too), dicts of texts, and the returns of
functions; what stays unknown as a whole is another error's text passed on, and is listed as `{…}`.

`python -m tests.errors.error_walk` writes the list anew.
"""

from __future__ import annotations

import ast
import builtins
import gc
import inspect
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from ipyagent import errors

PACKAGE = Path(errors.__file__).parent
LIST = Path(__file__).with_name("error_texts.txt")
HOLE = "{…}"
MOST_WAYS = 16
DEPTH = 6
NOTICES = {"notice", "_notice", "_say_once"}
FIELDS = {"TurnEnded": "message", "LayerFailed": "why", "Diagnostic": "why"}
ENDS = {"failed", "limit", "refused"}
LEVELS = {"warning", "error"}
NO_SURFACE = ("practice/",)
"""The practice server plays the other side: its texts are a server's, and only its errors of our tree are ours."""
LEAVES = (ast.Name, ast.Constant, ast.arg, ast.expr_context, ast.operator, ast.alias)
TREE = {name for name, kind in vars(errors).items() if inspect.isclass(kind) and issubclass(kind, Exception)}


@dataclass(slots=True)
class Found:
    """One text: where it is (file relative to the package), the class or way it is shown by, the text."""

    file: str
    kind: str
    text: str
    line: int = 0


@dataclass
class Module:
    """One source file with its constants, functions and imports."""

    name: str
    file: str
    tree: ast.Module
    constants: dict[str, ast.expr] = field(default_factory=dict)
    functions: dict[str, ast.FunctionDef | ast.AsyncFunctionDef] = field(default_factory=dict)
    imports: dict[str, tuple[str, str]] = field(default_factory=dict)
    classes: dict[str, set[str]] = field(default_factory=dict)
    places: list[tuple[tuple[ast.AST, ...], ast.Call | ast.Tuple]] = field(default_factory=list)

    def __post_init__(self) -> None:
        for holder, node in _with_function(self.tree):
            if isinstance(node, ast.Call | ast.Tuple):
                self.places.append((holder, node))
            elif isinstance(node, ast.ClassDef):
                self.classes[node.name] = {base.id for base in node.bases if isinstance(base, ast.Name)}
            elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("ipyagent"):
                for alias in node.names:
                    self.imports[alias.asname or alias.name] = (node.module or "", alias.name)
            elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                self.functions.setdefault(node.name, node)
        for node in self.tree.body:
            if isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Name):
                self.constants[node.targets[0].id] = node.value
            elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.value is not None:
                self.constants[node.target.id] = node.value


class Walk:
    """The package, and what was found in it."""

    def __init__(self, package: Path = PACKAGE) -> None:
        self.modules: dict[str, Module] = {}
        self._given: dict[ast.AST, dict[str, list[ast.expr]]] = {}
        gc.disable()  # all that is made stays: to look for garbage in it takes longer than to make it
        try:
            for path in sorted(package.rglob("*.py")):
                self._read(path.relative_to(package), path.read_text(encoding="utf-8"))
        finally:
            gc.enable()

    def _read(self, path: Path, source: str) -> None:
        file = path.as_posix()
        if not file.startswith(NO_SURFACE) or "ipyagent.errors" in source or "ipyagent: " in source:
            name = ".".join(("ipyagent", *path.with_suffix("").parts)).removesuffix(".__init__")
            self.modules[name] = Module(name, file, ast.parse(source))

    @cached_property
    def classes(self) -> frozenset[str]:
        """The names of the tree's classes and of every class made from one."""
        known = set(TREE)
        bases = {name: above for module in self.modules.values() for name, above in module.classes.items()}
        while more := {name for name, above in bases.items() if above & known} - known:
            known |= more
        return frozenset(known)

    def found(self) -> list[Found]:
        """All texts, one of each file and text, sorted."""
        every = {
            (one.file, one.text): one for module in self.modules.values() for one in self._of(module) if one.text
        }
        return [every[key] for key in sorted(every)]

    def _of(self, module: Module) -> Iterator[Found]:
        for holder, node in module.places:
            for kind, said in self._said(module, node):
                for text in self.texts(module, holder, said, DEPTH):
                    line = getattr(said, "lineno", 0)
                    yield Found(module.file, kind, re.sub(r"(\{…\}\s*)+\{…\}", HOLE, text.strip()), line)

    def _said(self, module: Module, node: ast.AST) -> Iterator[tuple[str, ast.expr]]:
        if isinstance(node, ast.Call):
            name = _called(node)
            if name in self.classes and node.args:
                yield name, node.args[0]
            elif len(node.args) == 2 and isinstance(node.args[0], ast.Name) and node.args[0].id in self.classes:
                yield node.args[0].id, node.args[1]  # a function that makes the error
            elif name in NOTICES and node.args and not module.file.startswith(("practice/", "ui/fragments")):
                yield "notice", node.args[0]
            elif name in FIELDS:
                yield from ((name, word.value) for word in node.keywords if word.arg == FIELDS[name])
            elif name in ("print", "write") and node.args and "ipyagent: " in ast.unparse(node.args[0]):
                yield "line", node.args[0]
        elif isinstance(node, ast.Tuple) and len(node.elts) == 2:
            first, second = node.elts
            if isinstance(first, ast.Constant) and first.value in ENDS and _wordy(second):
                yield "ended", second
            elif isinstance(second, ast.Constant) and second.value in LEVELS and _wordy(first):
                yield "notice", first
        elif isinstance(node, ast.Tuple) and len(node.elts) == 3 and getattr(node.elts[1], "id", "") in self.classes:
            yield ast.unparse(node.elts[1]), node.elts[2]  # a row of a table: when, which error, what it says

    def texts(self, module: Module, holder: tuple[ast.AST, ...], node: ast.expr, depth: int) -> list[str]:
        """What the expression can be, holes where it is not known."""
        if depth < 0:
            return [HOLE]

        def of(inner: ast.expr) -> list[str]:
            return self.texts(module, holder, inner, depth)

        match node:
            case ast.Constant(value=str() as text):
                return [text]
            case ast.Constant(value=int() | float() as number):
                return [str(number)]
            case ast.JoinedStr():
                return _joined([of(part) for part in node.values])
            case ast.FormattedValue():
                return of(node.value) if node.format_spec is None and node.conversion == -1 else [HOLE]
            case ast.BinOp(op=ast.Add()):
                return _joined([of(node.left), of(node.right)])
            case ast.IfExp():
                return _few([*of(node.body), *of(node.orelse)])
            case ast.BoolOp():
                return _few([text for value in node.values for text in of(value)])
            case ast.Dict():
                return _few([text for value in node.values for text in of(value)])
            case ast.Name(id=name):
                return self._named(module, holder, name, depth - 1)
            case ast.Subscript(value=ast.Name(id=name)) if name.isupper() or name.startswith("_"):
                return self._named(module, (), name, depth - 1)
            case ast.Call(func=ast.Attribute(value=inner, attr="format")):
                return [_blank(text) for text in of(inner)]
            case ast.Call(func=ast.Attribute(value=ast.Name(id=name), attr="get")) if name.isupper():
                return _few([text for arg in (ast.Name(name), *node.args[1:]) for text in of(arg)])
            case ast.Call():
                return self._returned(module, _called(node), depth - 1)
            case _:
                return [HOLE]

    def _named(self, module: Module, holder: tuple[ast.AST, ...], name: str, depth: int) -> list[str]:
        values = [given for function in holder for given in self._assignments(function).get(name, ())]
        if values:
            values = _filled(values)
            ways = [text for value in values for text in self.texts(module, holder, value, depth)]
            return _few(ways) if any(_wordy_text(way) for way in ways) else [HOLE]
        if name in module.constants:
            return self.texts(module, (), module.constants[name], depth)
        if name in module.imports:
            source, original = module.imports[name]
            if (other := self.modules.get(source)) is not None and original in other.constants:
                return self.texts(other, (), other.constants[original], depth)
        return [HOLE]

    def _assignments(self, function: ast.AST) -> dict[str, list[ast.expr]]:
        """What the function gives to each of its names."""
        known = self._given.get(function)
        if known is None:
            known = self._given[function] = {}
            for inner in ast.walk(function):
                for name, value in _assigned(inner):
                    known.setdefault(name, []).append(value)
        return known

    def _returned(self, module: Module, name: str, depth: int) -> list[str]:
        if hasattr(builtins, name):
            return [HOLE]
        if name in module.imports:
            source, name = module.imports[name]
            if source not in self.modules:
                return [HOLE]
            module = self.modules[source]
        function = module.functions.get(name)
        if function is None:
            return [HOLE]
        returns = [node.value for node in ast.walk(function) if isinstance(node, ast.Return) and node.value is not None]
        ways = [text for value in returns for text in self.texts(module, (function,), value, depth)]
        return _few(ways) if any(_wordy_text(way) for way in ways) else [HOLE]


def _with_function(tree: ast.AST) -> Iterator[tuple[tuple[ast.AST, ...], ast.AST]]:
    """Every node that holds others, with the function it is in."""
    left: list[tuple[tuple[ast.AST, ...], ast.AST]] = [((), tree)]
    while left:
        holder, node = left.pop()
        yield holder, node
        inner = (node,) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) else holder
        for value in vars(node).values():
            for child in value if isinstance(value, list) else (value,):
                if isinstance(child, ast.AST) and not isinstance(child, LEAVES):
                    left.append((inner, child))


def _assigned(node: ast.AST) -> Iterator[tuple[str, ast.expr]]:
    """The names that the statement gives a value, with it; a pair on both sides goes part by part."""
    targets: list[ast.expr] = []
    if isinstance(node, ast.Assign):
        targets = node.targets
    elif isinstance(node, ast.AnnAssign | ast.NamedExpr):
        targets = [node.target]
    value = getattr(node, "value", None)
    for target in targets:
        if isinstance(target, ast.Name) and value is not None:
            yield target.id, value
        elif isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple):
            for part, given in zip(target.elts, value.elts, strict=False):
                if isinstance(part, ast.Name):
                    yield part.id, given


def _filled(values: list[ast.expr]) -> list[ast.expr]:
    """Without the empty text that a name begins with, where something else is assigned."""
    some = [value for value in values if not (isinstance(value, ast.Constant) and value.value == "")]
    return some or values


def _called(node: ast.Call) -> str:
    function = node.func
    return function.id if isinstance(function, ast.Name) else getattr(function, "attr", "")


def _joined(parts: list[list[str]]) -> list[str]:
    whole = [""]
    if parts and any(parts[0]) and len(parts) > 1:  # a text is asked for its beginning before it is raised
        parts = [[way for way in parts[0] if way], *parts[1:]]
    for ways in parts:
        if len(whole) * len(ways) > MOST_WAYS:
            ways = [HOLE]
        whole = [before + way for before in whole for way in ways]
    return whole


def _few(ways: list[str]) -> list[str]:
    kept = list(dict.fromkeys(ways))
    return kept if len(kept) <= MOST_WAYS else [HOLE]


def _blank(text: str) -> str:
    return re.sub(r"\{\w*(?:[:!][^{}]*)?\}", HOLE, text)


def _wordy(node: ast.expr) -> bool:
    """Whether it can be a sentence: a string with a blank in it, or something worked out."""
    return not isinstance(node, ast.Constant) or (isinstance(node.value, str) and _wordy_text(node.value))


def _wordy_text(text: str) -> bool:
    return bool(re.search(r"[A-Za-z]{2}", text))


def lines(found: list[Found]) -> list[str]:
    """The list as it is kept: `file: text`, line breaks as ⏎."""
    return [f"{one.file}: {one.text.replace(chr(10), '⏎')}" for one in found]


if __name__ == "__main__":
    LIST.write_text("\n".join(lines(Walk().found())) + "\n", encoding="utf-8")
