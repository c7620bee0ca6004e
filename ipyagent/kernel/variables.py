"""What the user's variables are, in bounded bytes and time, without running any of the user's code.

Call these on the main thread, between cells: the namespace is read, never changed."""

from __future__ import annotations

import contextlib
import re
import time
import types
import warnings
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import AbstractContextManager
from typing import Any, NamedTuple

from ipyagent.kernel.fingerprints import Late, fingerprint
from ipyagent.kernel.previews import Group, PreviewContext, TypeInfo, clip, families, find, one_line, open_look
from ipyagent.kernel.previews._context import class_module, instance_dict, loaded
from ipyagent.kernel.previews.objects import signature
from ipyagent.redaction import mask

_OWN = re.compile(r"_{1,3}|_i{1,3}|_i?\d+|_[iod]h|__\w*__|_exit_code|_agent|In|Out|exit|quit|get_ipython")
_SHARE = {Group.SCALARS: 1, Group.FRAMES: 4, Group.ARRAYS: 2, Group.CONTAINERS: 2, Group.OBJECTS: 2}
_ORDER = (Group.SCALARS, Group.FRAMES, Group.ARRAYS, Group.CONTAINERS, Group.OBJECTS)
_MODELS = frozenset(("estimators", "boosters", "regressions", "networks"))
"""Families of objects that work goes into."""
_TABLE = re.compile(r"(?<!\d)(\d{1,12}) x (\d{1,12})$")
_MOST = {Group.SCALARS: 160, Group.CONTAINERS: 160}
"""Bytes of a line where others stand beside it: more numbers of a list say no more."""
_LOOPS = frozenset("ijk_")
_TAIL = 160
"""Bytes kept for the names of what did not fit."""
_FUNCTIONS = 300
"""Bytes for the line of the helper functions."""
_NEVER_CHANGE = ("lazy frames and queries", "regressions", "networks")
"""Families whose lines may have more in them when there was more time: what an object holds is told by which it is."""
_FROM = re.compile(r"^[ \t]*from[ \t]+([\w.]+)[ \t]+import[ \t]*(\([^)]{0,2000}\)|[^\n#;(]+)", re.M)


class _Print(NamedTuple):
    """What a variable holds: its type and size, its contents (None where time was too short to read them)."""

    short: str
    content: object


class ReportedVariables(NamedTuple):
    """What the model was told of the variables: `prints` has what each held, by name; `names` are those that got a
    line of their own, as they stand in it; `unread` those that could not be compared, and whether one took too long
    alone; `unsure` those of which that was said and no change since: of none is it said again."""

    prints: Mapping[str, _Print]
    names: frozenset[str]
    unread: Mapping[str, bool] = types.MappingProxyType({})
    unsure: frozenset[str] = frozenset()

    def gone(self, namespace: Collection[str]) -> set[str]:
        """Of `names` and others those of variables that a namespace has no more."""
        return {_label(name) for name in self.prints if name not in namespace}


def summarize(
    namespace: Mapping[str, Any],
    *,
    limit: int = 1500,
    seconds: float = 0.2,
    hidden: Collection[str] = frozenset(),
    inputs: Iterable[str] = (),
) -> str:
    """One line for each variable of the user: constants, tables (the largest first), models, other single values, the
    rest, newest first among equals; functions and classes of the user's own in one line; nothing that was imported.

    At most `limit` bytes of UTF-8 and about `seconds` seconds; what did not fit is counted and named. `hidden`
    are names that are not the user's; given as a mapping (`shell.user_ns_hidden`), only those that
    still have the hidden value. `inputs` are sources that were run, for what they imported. "" when there is nothing
    to tell.
    """
    look = open_look(seconds)
    rows = _users(namespace, hidden, imported_in(inputs))
    with _quiet():
        return _listing(look, rows, limit, lambda name: "")[0]


def survey(
    namespace: Mapping[str, Any],
    told: ReportedVariables | None,
    *,
    limit: int = 1500,
    seconds: float = 0.3,
    hidden: Collection[str] = frozenset(),
    inputs: Iterable[str] = (),
    attached: Collection[str] = (),
) -> tuple[str, ReportedVariables]:
    """What the model should be told of the variables, given what it was told: all of them as `summarize` does, or
    with `told` only the lines `new: …`, `changed: …` and `gone: …`; "" for no news. And what it has been told then.
    Those that are `attached` are told by type and size alone: they are shown below."""
    families()  # loading them is not counted
    start = time.perf_counter()

    def left() -> float:
        return seconds - (time.perf_counter() - start)

    rows = _users(namespace, hidden, imported_in(inputs))
    before: Mapping[str, _Print] = {} if told is None else told.prints
    late: Mapping[str, bool] = {} if told is None else told.unread

    def turn(row: tuple[str, Any]) -> int:  # first what there was no time for before, last what took too long alone
        return 2 if late.get(row[0]) else 0 if row[0] in late or before[row[0]].content is None else 1

    with _quiet():
        prints, unread = _prints(sorted((row for row in rows if row[0] in before), key=turn), seconds / 2)
        words = {name: "" if told is None else "new: " for name, _ in rows if name not in before}
        for name, now in list(prints.items()):
            then = before[name]
            if now.short != then.short or (now != then and None not in (now.content, then.content)):
                words[name] = "changed: "
                unread.pop(name, None)
            elif None in (now.content, then.content):
                unread.setdefault(name, False)
                prints[name] = then if now.content is None else now
        gone = [one_line(name) for name in before if name not in prints]
        said = frozenset() if told is None else told.unsure.intersection(prints).difference(words)
        last = [f"gone: {_names(gone, 300)}"] if gone else []
        if unsure := [one_line(name) for name in unread if name not in said]:
            last.append(f"may have changed (too little time to compare): {_names(unsure, 300)}")
        room = limit - sum(len(line.encode()) + 1 for line in last)
        news = [row for row in rows if row[0] in words]
        text, names = _listing(open_look(left() * 0.7), news, room, words.__getitem__, attached)
        prints |= _prints([row for row in rows if row[0] not in before], left())[0]
    names |= frozenset() if told is None else told.names - told.gone(prints)
    return "\n".join(filter(None, (text, *last))), ReportedVariables(
        {name: prints[name] for name, _ in rows}, names, unread, said.union(unread)
    )


def imported_in(inputs: Iterable[str]) -> dict[str, tuple[str, str]]:
    """The names that sources bind by `from module import name`, each with module and the name there."""
    found: dict[str, tuple[str, str]] = {}
    for source in inputs:
        if "import" not in source:
            continue
        for module, names in _FROM.findall(source):
            for part in names.strip("() \t\n").split(","):
                words = part.split("#")[0].split()
                if words:
                    found[words[-1]] = (module, words[0])
    return found


def _prints(rows: list[tuple[str, Any]], seconds: float) -> tuple[dict[str, _Print], dict[str, bool]]:
    """What the variables hold, and those that `seconds`, or half of them for one alone, were too short for: whether
    it was for it alone."""
    prints: dict[str, _Print] = {}
    unread: dict[str, bool] = {}
    look = open_look(seconds)
    for name, value in rows:
        content = None
        one = look.again(seconds / 2)
        if not look.spent():
            with contextlib.suppress(Late):
                content = _content(look, one, name, value)
        if content is None:
            unread[name] = one.spent()
        prints[name] = _Print(look.short(value), content)
    return prints, unread


def _content(look: PreviewContext, one: PreviewContext, name: str, value: Any) -> object:
    """What is compared to notice a change: the contents, or where they cannot be read what a line shows of them and
    which object it is. Raises Late."""
    made = fingerprint(value, lambda: look.spent() or one.spent())
    if made is not None or look.family(value).name in _NEVER_CHANGE:
        return made if made is not None else (id(value),)
    shown = one.line(value, 200, name)
    if one.spent(0.4):  # a line says less when time is short
        raise Late
    return (shown, id(value))


def _listing(
    look: PreviewContext,
    rows: list[tuple[str, Any]],
    limit: int,
    word: Callable[[str], str],
    attached: Collection[str] = (),
) -> tuple[str, frozenset[str]]:
    """Lines for the variables, and the names that got one. `word` stands before a name."""
    groups = {name: look.family(value).group for name, value in rows}
    plain = [row for row in rows[::-1] if groups[row[0]] in _SHARE]
    ranks = {name: _rank(look, name, value) for name, value in plain}
    # the user's single values have room first: they are short, and nothing else tells them
    plain.sort(key=lambda row: (groups[row[0]] != Group.SCALARS, ranks[row[0]]))
    others = [row for row in rows if groups[row[0]] not in _SHARE]
    last = _functions(look, others, min(_FUNCTIONS, limit // 4), word)
    room = limit - sum(len(line.encode()) + 1 for line in last)
    lines = _lines(look, plain, room, word, attached)
    lines = {name: lines[name] for name in sorted(lines, key=ranks.__getitem__)}
    room -= sum(len(line.encode()) + 1 for line in lines.values())
    rest: dict[str, list[str]] = {}
    for name, _ in plain:
        if name not in lines:
            rest.setdefault(word(name), []).append(one_line(name))
    for at, (what, names) in enumerate(rest.items()):
        head = f"… and {len(names)} more{' ' * bool(what)}{what or ': '}"
        shown = clip(head, room) + _names(names, room // (len(rest) - at) - len(head.encode()))
        last.append(shown)
        room -= len(shown.encode()) + 1
    return clip("\n".join([*lines.values(), *last]), limit), frozenset(map(_label, lines))


def _rank(look: PreviewContext, name: str, value: Any) -> tuple[int, int]:
    """Where a variable's line stands: constants, tables with the largest first, models, other single values, the rest.
    What was made on the way to a result is small."""
    family = look.family(value)
    if family.group == Group.FRAMES and not family.name.endswith("series"):
        size = _TABLE.search(look.short(value))
        return (1, -int(size[1]) * int(size[2]) if size else 0)
    if family.name in _MODELS:
        return (2, 0)
    return (0 if family.group == Group.SCALARS and name.isupper() else 3 + _ORDER.index(family.group), 0)


def _lines(
    look: PreviewContext,
    ranked: list[tuple[str, Any]],
    limit: int,
    word: Callable[[str], str],
    attached: Collection[str],
) -> dict[str, str]:
    """By name a line for each variable while room and time last. While single values are told, room is kept for the
    names and sizes of tables."""
    groups = [look.family(value).group for _, value in ranked]
    weights = [_SHARE[group] for group in groups]
    tables = sum(group in (Group.FRAMES, Group.ARRAYS) for group in groups)
    room = limit
    lines: dict[str, str] = {}
    for at, (name, value) in enumerate(ranked):
        single = groups[at] == Group.SCALARS
        kept = min(60 * tables, limit // 3) if single else 0
        spare = room if at == len(ranked) - 1 else room - min(_TAIL, limit // 4) - kept
        if look.spent(0.9) or (spare < 40 and not (single and tables)):
            break
        if spare < 40:
            continue
        width = max(min(60 * weights[at], spare), spare * weights[at] // sum(weights[at:]))
        most = _MOST.get(groups[at], width) if len(ranked) > 1 else width
        if name in attached:
            shown = clip(f"{word(name)}{_label(name)}  {look.short(value)} (shown below)", max(width, 12))
        else:
            shown = _row(look, word(name), name, value, min(width, most))
        lines[name] = shown
        room -= len(shown.encode()) + 1
    return lines


def _functions(look: PreviewContext, rows: list[tuple[str, Any]], limit: int, word: Callable[[str], str]) -> list[str]:
    """The user's functions in one line, with their arguments, and the classes in another."""
    found: dict[str, list[str]] = {}
    for name, value in rows:
        sort = "classes" if look.kind(value).is_a(type) else "functions"
        label = _label(name)
        plain = type(value) is types.FunctionType
        found.setdefault(f"{word(name).removesuffix(': ')} {sort}".strip(), []).append(
            label + signature(value, look, 60) if plain else label
        )
    lines = []
    for head, parts in found.items():
        line = clip(f"{head}: {look.items(iter(parts), limit - len(head) - 2, len(parts))}", limit)
        if limit >= 40:
            lines.append(one_line(mask(line)))
    return lines


def _quiet() -> AbstractContextManager[object]:
    """No library's warning about the user's values is shown, or raised as an error."""
    return warnings.catch_warnings(action="ignore")


def _names(names: list[str], width: int) -> str:
    """As many names as fit into `width` bytes."""
    text = ", ".join(names[:200])
    return clip(text, max(0, width)) if len(names) <= 200 else clip(text + ", …", max(0, width))


def describe(name: str, value: Any, *, limit: int = 4000, seconds: float = 0.2) -> str:
    """One value in depth, some lines in at most `limit` bytes of UTF-8 and about `seconds` seconds."""
    look = open_look(seconds)
    lines: list[str] = []
    room = limit
    with _quiet(), contextlib.closing(look.block(value, limit, name)) as block:
        for line in block:
            text = f"{one_line(name)}  {line}" if name and not lines else line
            cut = clip(text, room)
            lines.append(cut)
            room -= len(cut.encode()) + 1
            if room < 20:
                break
    return clip(mask("\n".join(lines)), limit)


def described(value: Any, width: int) -> str:
    """One line of at most `width` bytes about a value."""
    with _quiet():
        return open_look(0.1).line(value, width)


def preview(value: Any, *, limit: int = 2000, seconds: float = 0.2) -> str:
    """Like `describe`, for a value without a name."""
    return describe("", value, limit=limit, seconds=seconds)


def short_types(namespace: Mapping[str, Any], *, hidden: Collection[str] = frozenset()) -> dict[str, str]:
    """Name to a few words ("DataFrame 344 x 8", "int"), for each variable of the user."""
    look = PreviewContext(find, 1.0)
    return {name: look.short(value) for name, value in _users(namespace, hidden)}


def _users(
    namespace: Mapping[str, Any],
    hidden: Collection[str],
    imports: Mapping[str, tuple[str, str]] = types.MappingProxyType({}),
) -> list[tuple[str, Any]]:
    """The variables, in the order in which they were made, without what was imported."""
    home = namespace.get("__name__")
    home = home if type(home) is str else ""
    return [
        (name, value)
        for name, value in list(namespace.items())
        if type(name) is str
        and not _OWN.fullmatch(name)
        and not (name in _LOOPS and type(value) in (int, str, float))  # what a loop left says nothing
        and not (name in hidden and (not isinstance(hidden, Mapping) or hidden[name] is value))
        and not _is_imported(name, value, namespace, home, imports)
    ]


def _is_imported(
    name: str, value: Any, namespace: Mapping[str, Any], home: str, imports: Mapping[str, tuple[str, str]]
) -> bool:
    """Whether the name stands for a module, or for a function, class or value of one. A table or an array is the
    user's data wherever it was loaded. `home`: the namespace's own module, "" when it has none."""
    kind = TypeInfo(type(value))
    if kind.is_a(types.ModuleType):
        return True
    if name in imports and loaded(*imports[name]) is value:
        return True
    if not home:
        return False
    if kind.is_a(type):
        return class_module(value) not in (home, "__main__")
    if kind.exactly(types.FunctionType):
        return value.__globals__ is not namespace and value.__module__ not in (home, "__main__")
    if kind.is_a(types.BuiltinFunctionType) or (kind.top, kind.name) in (("numpy", "ufunc"), ("builtins", "type")):
        return True
    if (kind.module, kind.name) == ("functools", "_lru_cache_wrapper"):
        return instance_dict(value).get("__module__") not in (home, "__main__")
    if kind.exactly(float):  # math.pi: the very object, which no literal of the user's is
        return any(loaded(module, name) is value for module in ("math", "cmath", "numpy", "scipy.constants"))
    return False


def _label(name: str) -> str:
    return clip(one_line(name), 60)


def _row(look: PreviewContext, word: str, name: str, value: Any, width: int) -> str:
    label = word + _label(name)
    shown = look.line(value, max(8, width - len(label.encode()) - 2), name)
    return clip(f"{label}  {shown}", max(width, 12))
