"""`python`: code in the user's namespace, and what it did as text and pictures for the model."""

from __future__ import annotations

import ast
import difflib
import re
from typing import Any

from ipyagent.errors import ToolFailure
from ipyagent.journal.events import Block
from ipyagent.journal.protocols import Execution, ObjectRef, PermissionQuestion, ToolOutput, Workspace
from ipyagent.kernel.cell_marks import CellMarks
from ipyagent.kernel.previews import MISSING, TypeInfo, one_line, stored
from ipyagent.kernel.variables import describe, short_types, summarize
from ipyagent.tools.answers import capped, picture, plain, size_of, text_block, text_output
from ipyagent.tools.danger import code_danger
from ipyagent.tools.schema import tool

SAID = "The conversation is compacted before your next reply; where it is not, you are told why right after this."


@tool(permission="none", writes=False, parallel=True)
async def compact(instructions: str = "") -> ToolOutput:
    """Replace the conversation so far by a summary, to make room: between two pieces of work, never in the middle of
    one, or when the user asks. It happens before your next reply; the newest request stays word for word.

    Args:
        instructions: What it must not lose.
    """
    return text_output(SAID, note="compaction requested")


MOST_PICTURES = 8
"""Pictures of one run that reach the model."""


@tool(
    pattern="python",
    question=lambda given, _: PermissionQuestion(title="Run this code?", text=given["code"], language="python"),
    destructive=lambda given, workspace: code_danger(given["code"], workspace.folder),
    recreatable=True,
)
async def python(code: str, *, workspace: Workspace) -> ToolOutput:
    """Run Python code in the user's namespace, as a notebook cell does: magics, `!commands` and top-level await work,
    and variables stay. Returns output, the last expression's value, displays, figures and errors."""
    if not code.strip():
        raise ToolFailure("`code` is empty")
    return output_of(await workspace.run_code(code), workspace.limit("tool_output_chars"))


def output_of(done: Execution, limit: int) -> ToolOutput:
    """What the model reads of one run."""
    parts: list[str] = []
    output = folded(in_cells(plain(done.output).rstrip("\n")))
    if output:
        parts.append(capped(output, limit))
    parts.extend(capped(plain(text), limit) for text in done.displays if text)
    if done.result is not None:
        result = plain(done.result)
        # behind other output it has a head, on a line of its own where it has several: a table stays straight
        head = ("Out:\n" if "\n" in result else "Out: ") if parts else ""
        parts.append(capped(head + result, limit))
    pictures: list[Block] = []
    known: dict[bytes, int] = {}
    for number, image in enumerate(done.images[:MOST_PICTURES], 1):
        if (first := known.setdefault(image.data, number)) != number:
            parts.append(f"[figure {number}: the same as figure {first}]")
            continue
        size = size_of(image.data)
        label = f"figure {number}{f': {size}' if size else ''} {image.media_type.removeprefix('image/')}"
        try:
            pictures.append(picture(image.data, image.media_type))
            parts.append(f"[{label}]")
        except ToolFailure as problem:
            parts.append(f"[{label}, not shown: {problem}]")
    if len(done.images) > MOST_PICTURES:
        here = "are shown to the user alone" if done.shown else "are not shown"
        parts.append(f"[{len(done.images) - MOST_PICTURES} more figures {here}]")
    if done.error:
        parts.append(capped(plain(done.error), limit))
    if done.interrupted:
        parts.append("[interrupted by the user: what had run until then stays done]")
    if not parts:
        parts.append("[shown to the user]" if done.shown > done.told else "(no output)")
    elif done.shown > len(done.images) + done.told:
        parts.append("[shown]")
    if done.rebound:
        parts.append(f"[rebound: {', '.join(done.rebound)}]")
    if done.seconds > 1:
        parts.append(f"[took {done.seconds:.1f} s]")
    text = capped("\n".join(parts), limit)
    failed = bool(done.error) or done.interrupted
    alone = not (done.output or done.displays or done.images or failed)
    live = ObjectRef(done.live.value, alone=alone) if done.live is not None else None
    note = f"{len(done.images)} figure{'s' * (len(done.images) > 1)}" if done.images else ""
    if failed:
        note = "interrupted" if done.interrupted else plain(done.error or "").strip().rpartition("\n")[2][:120]
    blocks = (text_block(text), *pictures)
    return ToolOutput(blocks=blocks, is_error=failed, note=note, live=live, shown=done.shown)


MOST_BLOCK = 4
"""Lines of a block that is told once where it comes again and again: a warning has two."""


def folded(text: str) -> str:
    """`text` with lines, or blocks of up to four, that stand three times or more in a row told once and counted."""
    lines = text.split("\n")
    made: list[str] = []
    at = 0
    while at < len(lines):
        for size in range(1, MOST_BLOCK + 1):
            block, times = lines[at : at + size], 1
            while lines[at + times * size : at + (times + 1) * size] == block:
                times += 1
            if times >= 3 and any(block):
                made += [*block, f"… {times - 1} more times"]
                at += times * size
                break
        else:
            made.append(lines[at])
            at += 1
    return "\n".join(made)


_CELL_FILE = re.compile(r"[/\\]ipykernel_\d{1,10}[/\\]\d{1,20}\.py")


def in_cells(text: str) -> str:
    """`text` with the kernel's temporary files, in which cells are compiled, called cells."""
    parts, at = [], 0
    for found in _CELL_FILE.finditer(text) if "ipykernel_" in text else ():
        begin = found.start()
        while begin > at and text[begin - 1] not in " \t\n\"'(<" and found.start() - begin < 300:
            begin -= 1
        parts += [text[at:begin], "<cell>"]
        at = found.end()
    return "".join(parts) + text[at:]


# ---- The `variables` tool: what the user has in the kernel. It reads without calling: an expression is names,
# stored attributes, columns and constant subscripts of the built-in containers and tables.

_ALLOWED = "names, obj.attribute, d['key'], items[0], df['column'], items[:3]; for anything else use the python tool"


@tool(name="variables", permission="none", writes=False, parallel=True, recreatable=True)
async def variables(workspace: Workspace, name: str = "") -> str:
    """Show the user's variables without running code: one line each, or the one called `name` in depth. Prefer it to
    printing a variable with `python`.

    Args:
        name: A variable or a part of one: `d['a']`, `df['price']`, `model.coef_`, `items[0]`.
    """

    def read() -> str:
        namespace, marks = workspace.namespace, workspace.marks
        if isinstance(marks, CellMarks):
            namespace = marks.shown(namespace)
        hidden = dict(workspace.hidden)
        if not name.strip():
            return summarize(namespace, hidden=hidden, limit=4_000) or "The user has no variables yet."
        return describe(name.strip(), resolve(name, namespace, hidden))

    text: str = await workspace.on_main(read)
    return text


def resolve(expression: str, namespace: dict[str, Any], hidden: dict[str, Any] | None = None) -> Any:
    """The value an expression stands for. Nothing is called. Raises ToolFailure, which names the
    nearest names, for one that is unknown or that could run code."""
    try:
        tree = ast.parse(expression.strip(), mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        raise ToolFailure(f"{_quoted(expression)} is not an expression that can be read; allowed: {_ALLOWED}") from None
    steps: list[ast.expr] = []
    while isinstance(tree, (ast.Attribute, ast.Subscript)):
        steps.append(tree)
        tree = tree.value
    if not isinstance(tree, ast.Name):
        raise ToolFailure(f"{_quoted(expression)} would have to be computed; allowed: {_ALLOWED}")
    if tree.id not in namespace:
        known = list(short_types(namespace, hidden=hidden or {}))
        raise ToolFailure(f"no variable {_quoted(tree.id)}{_nearest(tree.id, known)}")
    value = namespace[tree.id]
    for step in reversed(steps):
        where = ast.unparse(step)
        if isinstance(step, ast.Subscript):
            value = _item(value, _constant(step.slice, where), where)
        elif isinstance(step, ast.Attribute):
            kind, found = TypeInfo(type(value)), stored(value, step.attr)
            if found is MISSING and _is_table(kind):
                found = _column(value, step.attr)
            if found is MISSING:
                raise ToolFailure(
                    f"{_quoted(where)}: a {one_line(kind.name)} stores no {_quoted(step.attr)} "
                    "(properties and methods would run code: use the python tool)"
                )
            value = found
    return value


def _constant(node: ast.expr, where: str) -> Any:
    if isinstance(node, ast.Slice):
        parts = (node.lower, node.upper, node.step)
        return slice(*(None if part is None else _constant(part, where) for part in parts))
    try:
        return ast.literal_eval(node)
    except (ValueError, TypeError, SyntaxError, RecursionError, MemoryError):
        raise ToolFailure(f"{_quoted(where)}: the subscript must be a constant; allowed: {_ALLOWED}") from None


def _item(value: Any, key: Any, where: str) -> Any:
    kind = TypeInfo(type(value))
    simple = type(key) in (str, int, float, bool, bytes, tuple, type(None))
    found: Any = MISSING
    try:
        if kind.is_a(dict) and simple:
            # dict.get, unlike [], does not ask a subclass for what is missing
            found = dict.get(value, key, MISSING)
            if found is MISSING:
                known = [item for item in list(dict.keys(value))[:10_000] if type(item) is str]
                raise ToolFailure(f"{_quoted(where)}: no such key{_nearest(str(key), known)}")
        elif kind.is_a(list, tuple, str, bytes) and type(key) in (int, slice):
            base: Any = next(base for base in kind.mro if any(base is known for known in (list, tuple, str, bytes)))
            found = base.__getitem__(value, key)
        elif _is_table(kind):
            found = _column(value, key)
            if found is MISSING:
                names = [item for item in list(value.columns)[:10_000] if type(item) is str]
                raise ToolFailure(f"{_quoted(where)}: no such column{_nearest(str(key), names)}")
        elif kind.genuine("numpy") and kind.is_library("numpy", "ndarray"):
            found = value[key]
    except (IndexError, TypeError, ValueError) as problem:
        raise ToolFailure(f"{_quoted(where)}: {problem}") from None
    if found is MISSING:
        name = one_line(kind.name)
        raise ToolFailure(f"{_quoted(where)}: a {name} cannot be read by subscript here; allowed: {_ALLOWED}")
    return found


def _is_table(kind: TypeInfo) -> bool:
    return kind.genuine("pandas", "polars") and kind.name == "DataFrame"


def _column(table: Any, key: Any) -> Any:
    # compared only with labels of the key's own plain type: == of anything else may be the user's
    if type(key) not in (str, int):
        return MISSING
    places = [at for at, label in enumerate(table.columns) if type(label) is type(key) and label == key]
    if not places:
        return MISSING
    if hasattr(table, "iloc"):
        return table.iloc[:, places[0] if len(places) == 1 else places]
    return table.to_series(places[0])


def _quoted(text: str) -> str:
    return f"`{one_line(text.strip())[:80]}`"


def _nearest(name: str, known: list[str]) -> str:
    near = difflib.get_close_matches(name, known[:2_000], 3, 0.5)
    if near:
        return f"; nearest: {', '.join(map(one_line, near))}"
    if not known:
        return "; there are none"
    return f"; there are: {', '.join(one_line(item)[:40] for item in known[:20])}" + (", …" if len(known) > 20 else "")
