"""`python`: code in the user's namespace, and what it did as text and pictures for the model."""

from __future__ import annotations

import re
from typing import Any

from ipyagent.errors import ToolFailure
from ipyagent.journal.events import Block
from ipyagent.journal.protocols import Execution, ObjectRef, PermissionQuestion, ToolOutput, Workspace
from ipyagent.tools.answers import capped, picture, plain, size_of, text_block
from ipyagent.tools.danger import code_danger
from ipyagent.tools.schema import tool

MOST_PICTURES = 8
"""Pictures of one run that reach the model."""


def _question(arguments: dict[str, Any], workspace: Workspace) -> PermissionQuestion:
    return PermissionQuestion(title="Run this code?", text=arguments["code"], language="python")


def _destructive(arguments: dict[str, Any], workspace: Workspace) -> str:
    return code_danger(arguments["code"], workspace.folder)


@tool(
    permission="ask", writes=True, pattern="python", question=_question, destructive=_destructive, recreatable=True
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
        parts.append("[shown to the user]" if done.shown else "(no output)")
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
    blocks = (text_block(text), *pictures)
    return ToolOutput(blocks=blocks, is_error=failed, note=_note(done), live=live, shown=done.shown)


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


def _note(done: Execution) -> str:
    if done.interrupted:
        return "interrupted"
    if done.error:
        return plain(done.error).strip().rpartition("\n")[2][:120]
    return f"{len(done.images)} figure{'s' * (len(done.images) > 1)}" if done.images else ""
