"""Whatever reads text is linear in it: every pattern of the package, and every reader and renderer, timed on hostile
texts of 12,500 and of 25,000 characters, and where these differ by too much on longer ones."""

from __future__ import annotations

import ast
import builtins
import gc
import importlib
import importlib.util
import pkgutil
import re
import signal
import time
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path
from re import _constants as kinds  # type: ignore[attr-defined]
from re import _parser as parser  # type: ignore[attr-defined]
from typing import Any

import pytest

import ipyagent
from ipyagent import escape
from ipyagent import frontmatter as headers
from ipyagent.assembly import requests
from ipyagent.context import summarize
from ipyagent.kernel.output import output
from ipyagent.parts.memory import recall
from ipyagent.parts.memory import tokenizer as words
from ipyagent.parts.pins import Pins
from ipyagent.practice.model import answer
from ipyagent.practice.model import conversation as boundaries
from ipyagent.tools import danger
from ipyagent.ui import markdown

pytestmark = pytest.mark.skipif(not hasattr(signal, "SIGVTALRM"), reason="guarded by a Unix signal")

GROWTH = 2.6
"""Times that twice the length may take as long."""
FLOOR = 0.006
"""Seconds at 100,000 characters below which nothing is felt and nothing can be compared."""
SHORT = 0.1
"""Seconds up to which the caches of a busy processor decide: four times the length is compared then."""
PATIENCE = 4.0
"""Seconds of processor time after which a text counts as not linear."""
MOST = 120
"""Texts made from one pattern; of more, as many are taken evenly."""
METHODS = ("search", "match", "fullmatch", "finditer", "findall", "sub", "subn", "split")

BOUNDED = {
    "ui.theme._EXPORT": "our own scripts",
    "ui.theme._COLOUR": "our own style sheet",
    "redaction.names._WORDS": "a name, cut to 200 characters",
    "tools.changes._COMMENT": "lines of at most 120 characters",
    "tools.changes._REST": "lines of at most 120 characters",
    "tools.changes._REST_ALONE": "lines of at most 120 characters",
    "redaction.names._STANDS_FOR": "one value, cut to 4,000 characters",
    "tools.danger._COMMENT": "text that ends with a comment's end, so each beginning finds one; see READERS",
}
"""Patterns whose callers hand them no longer text, and why."""


class Slow(Exception):
    pass


def cost(work: Callable[[str], object], text: str, patience: float = PATIENCE) -> float:
    """Processor seconds of `work`; `patience` or more when it did not end in time."""

    def late(*_: object) -> None:
        raise Slow

    before = signal.signal(signal.SIGVTALRM, late)
    gc.collect(0)
    gc.disable()  # its time depends on all that the process holds
    began = time.thread_time()
    try:
        try:
            signal.setitimer(signal.ITIMER_VIRTUAL, patience)
            work(text)
        finally:
            signal.setitimer(signal.ITIMER_VIRTUAL, 0)
    except Slow:
        return max(patience, time.thread_time() - began)
    finally:
        gc.enable()
        signal.signal(signal.SIGVTALRM, before)
    return time.thread_time() - began


def grows(work: Callable[[str], object], make: Callable[[int], str], patience: float = PATIENCE) -> str:
    """How much longer twice the text takes, "" when that is within GROWTH. Small texts are tried first, and only
    what looks suspicious on them is tried on long ones; of noisy measurements the best counts."""
    large = small = patience
    for _ in range(3):
        large = min(large, cost(work, make(6_000), patience))
        if large < FLOOR / 24:
            return ""
        small = min(small, cost(work, make(1_500), patience))
        if large < patience and large < 6 * small:
            return ""
    told = ""
    for size in (25_000, 100_000, 400_000):
        half = whole = 9 * patience
        for _ in range(5):
            half = min(half, cost(work, make(size // 2), patience))
            whole = min(whole, cost(work, make(size), GROWTH * patience))
            if whole < FLOOR * min(1, size / 100_000) or (half < patience and whole <= GROWTH * half):
                return ""
        told += f" {half:.3f} s, {whole:.3f} s at {size:,} characters"
        if whole > SHORT:
            break
    return told


# ---------------------------------------------------------------------- every pattern, and how it is used


def modules() -> Iterator[Any]:
    for info in pkgutil.walk_packages(ipyagent.__path__, "ipyagent."):
        if not info.name.endswith("__main__"):
            yield importlib.import_module(info.name)


def held(name: str, value: object, depth: int = 0) -> Iterator[tuple[str, re.Pattern[Any]]]:
    """The patterns in a value, in what it contains, and in the attributes of our own objects and classes."""
    if isinstance(value, re.Pattern):
        yield name, value
    elif depth < 4 and isinstance(value, tuple | list | frozenset | set):
        for number, each in enumerate(value):
            yield from held(f"{name}[{number}]", each, depth + 1)
    elif depth < 4 and isinstance(value, dict):
        for key, each in list(value.items()):
            yield from held(f"{name}[{key!r:.20}]", key, depth + 1)
            yield from held(f"{name}[{key!r:.20}]", each, depth + 1)
    elif depth < 3 and hasattr(value, "__struct_fields__") and not isinstance(value, type):
        for field in value.__struct_fields__:
            yield from held(f"{name}.{field}", getattr(value, field), depth + 1)
    elif depth < 2 and str(getattr(value, "__module__", "")).startswith("ipyagent") and hasattr(value, "__dict__"):
        for field, each in list(vars(value).items()):
            yield from held(f"{name}.{field}", each, depth + 1)


def patterns() -> dict[re.Pattern[Any], tuple[str, set[str]]]:
    """Each pattern with the first place that has it and the methods called on it anywhere. Of one that is reached
    only through a table the methods count that its module calls on what is no name of a pattern."""
    found: dict[re.Pattern[Any], tuple[str, set[str]]] = {}
    homes: dict[re.Pattern[Any], set[str]] = {}
    loose: dict[str, set[str]] = {}
    for module in modules():
        short = module.__name__.removeprefix("ipyagent.")
        for name, value in list(vars(module).items()):
            for where, pattern in held(name, value):
                found.setdefault(pattern, (f"{short}.{where}", set()))
                homes.setdefault(pattern, set()).add(short)
        tree = ast.parse(Path(module.__file__).read_text("utf-8"))

        names = dict(vars(module))

        def known(node: ast.expr, names: dict[str, Any] = names) -> Any:
            """The value of an expression of the module's names and constants; None when it needs more."""
            for part in ast.walk(node):
                if isinstance(part, ast.Call) and ast.unparse(part.func) not in ("re.escape", "re.compile", "'|'.join"):
                    return None
                if isinstance(part, ast.Name) and part.id not in names and not hasattr(builtins, part.id):
                    return None
            try:
                return eval(compile(ast.Expression(node), "?", "eval"), names)
            except (AttributeError, TypeError, KeyError, IndexError, ValueError, SyntaxError):
                return None

        for node in ast.walk(tree):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.args:
                if getattr(node.func.value, "id", "") != "re" or node.func.attr not in (*METHODS, "compile"):
                    continue
                flags = [each.value for each in node.keywords if each.arg == "flags"]
                position = {"sub": 4, "subn": 4, "split": 3, "compile": 1}.get(node.func.attr, 2)
                flags += node.args[position : position + 1]
                source = known(node.args[0])
                if isinstance(source, str | bytes):
                    source = re.compile(source, (known(flags[0]) or 0) if flags else 0)
                if isinstance(source, re.Pattern):
                    found.setdefault(source, (f"{short}:{node.lineno}", set()))
                    homes.setdefault(source, set()).add(short)
                    found[source][1].update({node.func.attr} & set(METHODS))
            elif isinstance(node, ast.Attribute) and node.attr in METHODS:
                value = known(node.value)
                if isinstance(value, re.Pattern):
                    found.setdefault(value, (f"{short}:{node.lineno}", set()))
                    found[value][1].add(node.attr)
                elif value is None and node.attr != "split":
                    loose.setdefault(short, set()).add(node.attr)
    for pattern, (_where, methods) in found.items():
        if not methods:
            methods.update(*(loose.get(home, set()) for home in homes.get(pattern, ())))
            methods.update(() if methods else ("search",))
    return found


# ---------------------------------------------------------------------- texts made from a pattern

_CATEGORY = {
    kinds.CATEGORY_DIGIT: "7", kinds.CATEGORY_NOT_DIGIT: "a", kinds.CATEGORY_SPACE: " ",
    kinds.CATEGORY_NOT_SPACE: "a", kinds.CATEGORY_WORD: "a", kinds.CATEGORY_NOT_WORD: " ",
}  # fmt: skip
_REPEATS = (kinds.MAX_REPEAT, kinds.MIN_REPEAT, kinds.POSSESSIVE_REPEAT)


def _one_of(items: list[Any], pick: int) -> str:
    if items[0][0] is kinds.NEGATE:
        fits = [char for char in "a7 \n\tZ-_.<>\"'(" if not any(_fits(item, char) for item in items[1:])]
        return fits[pick % len(fits)] if fits else "\u4e00"
    chars = [
        chr(arg) if op is kinds.LITERAL else chr(arg[0]) if op is kinds.RANGE else _CATEGORY[arg] for op, arg in items
    ]
    return chars[pick % len(chars)]


def _fits(item: Any, char: str) -> bool:
    op, arg = item
    if op is kinds.LITERAL:
        return chr(arg) == char
    if op is kinds.RANGE:
        return arg[0] <= ord(char) <= arg[1]
    word = char.isalnum() or char == "_"
    return {
        kinds.CATEGORY_DIGIT: char.isdigit(), kinds.CATEGORY_NOT_DIGIT: not char.isdigit(),
        kinds.CATEGORY_SPACE: char.isspace(), kinds.CATEGORY_NOT_SPACE: not char.isspace(),
        kinds.CATEGORY_WORD: word, kinds.CATEGORY_NOT_WORD: not word,
    }[arg]  # fmt: skip


def sample(parts: Any, pick: int = 0, least: int = 1) -> str:
    """A text that the parsed `parts` match: the `pick`th choice everywhere, `least` of what may repeat."""
    text = ""
    for op, arg in parts:
        if op is kinds.LITERAL:
            text += chr(arg)
        elif op is kinds.NOT_LITERAL:
            text += "a" if arg != 97 else "b"
        elif op is kinds.ANY:
            text += "a"
        elif op is kinds.IN:
            text += _one_of(arg, pick)
        elif op is kinds.BRANCH:
            text += sample(arg[1][pick % len(arg[1])], pick, least)
        elif op is kinds.SUBPATTERN:
            text += sample(arg[-1], pick, least)
        elif op is kinds.ATOMIC_GROUP:
            text += sample(arg, pick, least)
        elif op in _REPEATS:
            low, high, inner = arg
            text += sample(inner, pick, least) * min(max(low, min(least, high)), 40)
    return text


def _pieces(parts: Any, before: str = "") -> Iterator[tuple[str, str]]:
    """What may stand before and what may be repeated: everything inside a repeat, and all that nearly matches."""
    for at, (op, arg) in enumerate(parts):
        ahead = before + sample(parts[:at])
        if op in _REPEATS:
            yield from ((ahead, sample(arg[2], pick)) for pick in range(4))
            yield from _pieces(arg[2], ahead)
        elif op is kinds.BRANCH:
            for branch in arg[1]:
                yield from _pieces(branch, ahead)
        elif op is kinds.SUBPATTERN:
            yield from _pieces(arg[-1], ahead)
        elif op in (kinds.ASSERT, kinds.ASSERT_NOT):
            yield from _pieces(arg[1], ahead)
        elif op is kinds.ATOMIC_GROUP:
            yield from _pieces(arg, ahead)
        yield "", ahead + sample(parts[at : at + 1])


def texts(pattern: re.Pattern[Any]) -> Iterator[tuple[str, str]]:
    source = pattern.pattern if isinstance(pattern.pattern, str) else pattern.pattern.decode("latin-1")
    parsed = list(parser.parse(source, pattern.flags & ~re.DEBUG))
    found = {}
    for before, unit in _pieces(parsed):
        if unit and len(unit) < 200:
            found[before[:200], unit] = None
            found["", before[:200] + unit + "\n"] = None
    for pick in range(4):
        for least in (0, 1, 3):
            whole = sample(parsed, pick, least)
            if whole and len(whole) < 400:
                near = (whole, whole[:-1] or whole, whole + " ", whole[: len(whole) // 2] or whole)
                found |= dict.fromkeys(("", unit) for unit in near)
    step = len(found) / MOST if len(found) > MOST else 1
    yield from [each for number, each in enumerate(found) if int(number / step) != int((number - 1) / step)]


def _runs(pattern: re.Pattern[Any], method: str) -> Callable[[Any], object]:
    if method in ("finditer", "findall", "sub", "subn", "split"):
        return lambda text: deque(pattern.finditer(text), maxlen=0)
    return getattr(pattern, method)


def slow_text(pattern: re.Pattern[Any], methods: set[str]) -> str:
    """The text and the method on which a pattern takes more than linear time, "" when there is none."""
    kinds_of = {"finditer"} if methods & {"finditer", "findall", "sub", "subn", "split"} else methods
    for before, unit in texts(pattern):

        def make(size: int, before: str = before, unit: str = unit) -> Any:
            text = before + unit * (size // len(unit) + 1) + "\x00!"
            return text if isinstance(pattern.pattern, str) else text.encode("latin-1", "replace")

        for method in sorted(kinds_of):
            if seen := grows(_runs(pattern, method), make):
                return f"{method} on {before!r} + {unit!r} * n: {seen}"
    return ""


@pytest.mark.slow
@pytest.mark.timeout(1_800)
def test_every_pattern_is_linear_in_the_text_it_is_used_on() -> None:
    """All but those of the practice model, whose rules look at a request's first 2,000 characters."""
    found = patterns()
    assert len(found) > 300
    slow = [
        f"{where}: {why}"
        for pattern, (where, methods) in found.items()
        if not where.startswith("practice.") and where not in BOUNDED and (why := slow_text(pattern, methods))
    ]
    assert slow == []


# ---------------------------------------------------------------------- renderers and readers

UNITS = (
    "drop/*a*/\n", "drop/*", "drop--", "truncate/*a*/", "update a set b=",
    "[a](", "[a](<b", "![a](", "[a]:", "](", "](:", "[a](\\", "[a](b ", "[", "]", "![", "<", "<a ", "<!--", "&", "&#58",
    "`a", "``a`", "*a", "**a*", "_a_", "~~a", "\\", "| a | b |\n", "> ", "- ", "- a\n", "# a\n", "\n", "[a]: b\n",
    "[\n",
    "a\u0301", "```\n", "<div>\n", "@a/", "a.csv/", "a@", "xyz", "7", "7,", " ", "\t", "%%time a ",
    "<pinned-cell id=\"a\">\n",
)  # fmt: skip


def _pins(text: str) -> None:
    Pins()._take(text, 1)


def _headers(text: str) -> None:
    headers.read_headed(f"---\na: {text}\n---\n".encode())


READERS: dict[str, Callable[[str], object]] = {
    "danger.sql_danger": danger.sql_danger,
    "markdown.render": markdown.render, "markdown.harmless": markdown.harmless, "markdown.split": markdown.split,
    "escape.exact": escape.exact, "output": output, "freshness.named_in": recall.named_in,
    "gaps.stated_gap": summarize.stated_gap, "words.stem": words.stem, "headers": _headers,
    "requests.is_ours": requests.is_ours, "boundaries.words": boundaries.words,
    "boundaries.is_ours": boundaries.is_ours,
    "boundaries.notes_asked": boundaries.notes_asked, "boundaries.fork_work": boundaries.fork_work, "pins": _pins,
}  # fmt: skip


@pytest.mark.parametrize("name", READERS)
def test_what_reads_or_renders_a_hostile_text_is_linear_in_it(name: str) -> None:
    work = READERS[name]
    slow = [(unit, why) for unit in UNITS if (why := grows(work, lambda size, unit=unit: unit * (size // len(unit))))]
    assert slow == []


# ---------------------------------------------------------------------- the practice model


def _asked(text: str) -> dict[str, Any]:
    return {"model": "practice", "tools": TOOLS, "messages": [{"role": "user", "content": text}]}


def _told(text: str) -> dict[str, Any]:
    blocks = [{"type": "text", "text": f"<context>\n{text}\n</context>"}, {"type": "text", "text": "mean of a in df"}]
    return {"model": "practice", "tools": TOOLS, "messages": [{"role": "user", "content": blocks}]}


def _returned(text: str) -> dict[str, Any]:
    call = {"type": "tool_use", "id": "call", "name": "python", "input": {"code": "df.head()"}}
    result = {"type": "tool_result", "tool_use_id": "call", "content": text}
    talk = [("user", "show the mean of a in df by b"), ("assistant", [call]), ("user", [result])]
    return {"model": "practice", "tools": TOOLS, "messages": [{"role": role, "content": said} for role, said in talk]}


TOOLS = [{"name": name, "description": "", "input_schema": {"type": "object"}} for name in ("python", "memory")]
SAID = (
    "thank ", " ", "谁 ", "a", "_", "7 ", "(777)", "[", "{", "- [a]", "_ = data.a( ", "a is gone", "gone: a\n",
    "aa[column].",
    "<select-memories>", "<check-memory>\n\n<words-of-the-user>\n",
    "<select-memories><tools-in-use></tools-in-use><memory-list>\n",
    "<file path=\"a", "```python\n",
    "The last request was: “", "<fork-task>\n.\nThe work:\n", "- [a] a",
    "Turn 7 of the conversation<summary></summary>",
)  # fmt: skip


@pytest.mark.parametrize("body", [_asked, _told, _returned])
def test_the_practice_model_answers_a_hostile_text_in_linear_time(body: Callable[[str], dict[str, Any]]) -> None:
    slow = [
        (unit, why)
        for unit in SAID
        if (why := grows(lambda text: answer(body(text)), lambda size, unit=unit: unit * (size // len(unit))))
    ]
    assert slow == []
