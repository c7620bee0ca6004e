"""What the conversation still knows: tables described in it, names that are the user's, names the agent made.

Later beats earlier, and a restart ends everything. What was known of a table is dropped as soon as code may have
changed it; the session's own lines come back with the next reminder.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from . import reading, schema
from .conversation import Conversation, Step
from .intents import kind
from .phrases import bag, normal
from .schema import Schema

CELL = re.compile(r"```(?:python)?\n(.*?)\n```", re.S)
_NEW_KERNEL = re.compile(r"resumed in a new kernel|kernel was restarted|kernel restarted", re.M)
_ATTACHED = re.compile(r"^\s*<variable name=\"([^\W\d]\w*)\">\n(.*)\n</variable>", re.S)
_NAMED_LINE = re.compile(r"^([^\W\d]\w*)  \S")
_FUNCTIONS = re.compile(r"^(?:(?:new|changed) )?(?:functions|classes): (.*)$", re.M)
_NEWS = re.compile(r"^(?:new: |changed: )(?=[^\W\d]\w*  )", re.M)
_LOADED = re.compile(r"^([^\W\d]\w*) = (?:pd\.read_\w+|load_\w+|data\.\w+)\(", re.M)
_LIBRARY = bag("pd np plt print len list dict sorted str repr type range enumerate zip set tuple sum max min")
_CHANGES = bag("insert pop update setdefault __setitem__ set_flags eval")


@dataclass(slots=True)
class Knowledge:
    """`tables`: by name; `counts`: of values, by table and column; `names`: all known; `own`: made by the agent,
    `loaded`: those of them that were read from somewhere.

    `untold`: names that the listing had no room or time to describe; `cut`: it had no room for all names either.
    `complete`: whether all names were told since the kernel started, as far as a listing can tell them.
    """

    tables: dict[str, Schema] = field(default_factory=dict)
    sizes: dict[str, tuple[int, int]] = field(default_factory=dict)
    counts: dict[str, dict[str, dict[str, int]]] = field(default_factory=dict)
    names: set[str] = field(default_factory=set)
    own: set[str] = field(default_factory=set)
    loaded: set[str] = field(default_factory=set)
    untold: set[str] = field(default_factory=set)
    cut: bool = False
    listed: bool = False
    complete: bool = False
    used: list[str] = field(default_factory=list)

    @property
    def taken(self) -> set[str]:
        """Names that a new result must not get."""
        return self.names - self.own

    def news(self, text: str) -> None:
        """Takes over what is new, changed or gone of the variables since they were listed."""
        for gone in re.findall(r"^gone: (.*)$", text, re.M):
            for name in re.findall(r"[^\W\d]\w*", gone):
                self.names.discard(name)
                self.sizes.pop(name, None)
                self.forget(name)
        complete, untold, cut, sizes = self.complete, self.untold, self.cut, dict(self.sizes)
        self.listing(_NEWS.sub("", text), more=True)
        self.complete, self.cut, self.untold = complete, self.cut or cut, self.untold | untold
        self.sizes = sizes | self.sizes

    def listing(self, text: str, *, longest: bool = False, more: bool = False) -> None:
        """Takes over a listing of the variables; `longest`: there is no longer one than this, `more`: what is not in
        it is there as well."""
        lines = text.splitlines()
        names = {found[1] for each in lines if (found := _NAMED_LINE.match(each))}
        rest = re.search(r"^… and \d+ more: (.*)$", text, re.M)
        self.cut = cut = bool(rest and rest[1].endswith("…"))
        self.untold = set(re.findall(r"[^\W\d]\w*", rest[1])) if rest else set()
        names |= self.untold
        for told in _FUNCTIONS.findall(text):
            self.cut = cut = cut or "…" in told
            for _ in range(4):  # arguments and what is nested in their defaults
                told = re.sub(r"\([^()]*\)", "", told)
            names |= set(re.findall(r"(?:^|, )([^\W\d]\w*)", told))
        # Names that a cut listing does not tell may still be there.
        self.names = self.names | names if cut or more else names
        self.complete = self.complete or longest or not cut
        # So may tables that it has no room for: the user's own are the oldest and are left out first.
        kept = {each: size for each, size in self.sizes.items() if cut or more or each in names}
        self.sizes = kept | reading.frames(text)
        self.listed = True
        for name in set(self.tables) - self.names:
            self.forget(name)
        for each in lines:
            told = schema.line(each)
            if told is None:
                continue
            old = self.tables.get(told.name)
            if old is None or (old.rows, dict(old.dtypes)) != (told.rows, dict(told.dtypes)):
                self.forget(told.name)
                self.tables[told.name] = told

    def forget(self, name: str) -> None:
        """What was known of this table may not hold any more."""
        self.tables.pop(name, None)
        self.counts.pop(name, None)

    def ran(self, code: str, *, own: bool) -> None:
        """Takes into account that code ran, whole or in part."""
        for name in list(self.tables):
            if name in code and touches(code, name):
                self.forget(name)
        bound = assigned(code)
        self.names |= bound
        self.own = self.own | bound if own else self.own - bound

    def result(self, step: Step, *, own: bool) -> None:
        """Takes into account a call and its result."""
        if step.code:
            self.ran(step.code, own=own)
            about = re.search(r"([^\W\d]\w*)\[column\]\.value_counts\(\)", step.code)
            counts = schema.categories(step.text) if about and not step.failed else None
            if about and counts is not None:
                self.counts[about[1]] = counts
            if not step.failed:
                self.used += _LOADED.findall(step.code)
                self.loaded |= set(_LOADED.findall(step.code))
                read, made = names_in(step.code), assigned(step.code)
                self.used += [each for each in self.sizes if each in read and each not in made]
        elif step.tool == "variables" and step.failed and "no variable" in step.text:
            self.sizes.pop(str(step.input.get("name") or ""), None)
        elif step.tool == "variables" and not step.failed:
            name = str(step.input.get("name") or "")
            if name:
                self.described(name, step.text)
            else:
                self.listing(step.text, longest=True)

    def described(self, name: str, text: str) -> None:
        """Takes over the description of one variable."""
        self.untold.discard(name)
        told = schema.block(text)
        if told and told.name == name:
            self.tables[name] = told
            self.sizes[name] = (told.rows, len(told.dtypes))
        else:
            self.sizes |= reading.frames(text)

    def context(self, text: str) -> None:
        """Takes into account a reminder of the session."""
        if _NEW_KERNEL.search(text):
            self.tables, self.sizes, self.counts, self.names, self.own = {}, {}, {}, set(), set()
            self.untold = set()
            self.listed = self.complete = self.cut = False
        for code in CELL.findall(text):
            self.ran(code.removesuffix(" …"), own=False)
        _, found, now = text.partition("Variables now:")
        if found:
            now = now.split("\nRun by the user")[0].removesuffix("</context>")
            self.listing("" if now.strip() == "none." else now)
        elif _NEWS.search(text) or re.search(r"^(?:new|changed) (?:functions|classes): |^gone: ", text, re.M):
            self.news(text.split("\nRun by the user")[0].removesuffix("</context>"))


def known(conversation: Conversation) -> Knowledge:
    """What is known when the newest request is made, before its own calls."""
    found = Knowledge()
    for turn in conversation.turns:
        for extra in turn.extras:
            if extra.lstrip().startswith("<context"):
                found.context(extra)
            elif attached := _ATTACHED.search(extra):
                found.described(attached[1], attached[2])
        if turn is not conversation.turn:
            own = not turn.steps or kind(normal(turn.words)) != "run"
            for step in turn.steps:
                found.result(step, own=own)
    return found


def assigned(code: str) -> set[str]:
    """Names that the code binds at its top level; none when it is not plain Python."""
    try:
        tree = ast.parse(code)
    except SyntaxError:
        return set()
    bound: set[str] = set()
    for node in tree.body:
        if isinstance(node, ast.Assign):
            targets: list[ast.expr] = node.targets
        elif isinstance(node, ast.AnnAssign | ast.AugAssign | ast.For):
            targets = [node.target]
        else:
            targets = []
        bound |= {
            each.id
            for target in targets
            for each in ast.walk(target)
            if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Store)
        }
    return bound


def names_in(code: str) -> set[str]:
    """All names that the code mentions; none when it is not plain Python."""
    try:
        return {node.id for node in ast.walk(ast.parse(code)) if isinstance(node, ast.Name)}
    except SyntaxError:
        return set()


def touches(code: str, name: str) -> bool:
    """Whether the code may change or rebind a variable: all uses but plain reading count as a change."""
    try:
        tree = ast.parse(code)
    except SyntaxError:
        return bool(re.search(rf"\b{re.escape(name)}\b", code))
    above = {child: parent for parent in ast.walk(tree) for child in ast.iter_child_nodes(parent)}
    return any(
        _changes(node, above) for node in ast.walk(tree) if isinstance(node, ast.Name) and node.id == name
    ) or any(isinstance(node, ast.Global) and name in node.names for node in ast.walk(tree))


def _changes(node: ast.expr, above: Mapping[ast.AST, ast.AST]) -> bool:
    """Whether this use of a name is more than reading it."""
    if not isinstance(getattr(node, "ctx", None), ast.Load):
        return True
    at: ast.AST = node
    for parent in _parents(node, above):
        if isinstance(parent, ast.Attribute | ast.Subscript):
            if not isinstance(parent.ctx, ast.Load):
                return parent.value is at
            if isinstance(parent, ast.Subscript) and parent.slice is at:
                return False
        elif isinstance(parent, ast.Call):
            if parent.func is at:
                changing = isinstance(at, ast.Attribute) and at.attr in _CHANGES
                return changing or any(each.arg == "inplace" for each in parent.keywords)
            root = parent.func
            while isinstance(root, ast.Attribute | ast.Subscript | ast.Call):
                root = root.func if isinstance(root, ast.Call) else root.value
            return at is node and not (isinstance(root, ast.Name) and root.id in _LIBRARY)
        else:
            # The bare table given to another name, a list or a function of the user's may be changed through it.
            bare = isinstance(parent, ast.Assign | ast.NamedExpr | ast.List | ast.Tuple | ast.Dict | ast.Starred)
            return at is node and bare
        at = parent
    return False


def _parents(node: ast.AST, above: Mapping[ast.AST, ast.AST]) -> Iterator[ast.AST]:
    while node in above:
        node = above[node]
        yield node
