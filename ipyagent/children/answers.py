"""What a parent reads of its sub-agents."""

from __future__ import annotations

import re
from collections.abc import Sequence

from ipyagent.children.child import Subagent
from ipyagent.context.reminders import guarded
from ipyagent.journal.admission import text_block
from ipyagent.journal.events import ChildEnded
from ipyagent.journal.protocols import ToolOutput

_ADVICE = re.compile(r"; (?:if it happens again|for a bug report)\b.*", re.S)
"""What the user could do about a failure; a parent cannot."""
SAID_CHARS = 2_000
"""Of what one had said that did not come to its end."""


def without_advice(message: str) -> str:
    """Why a turn failed, without what the user could do about it."""
    return _ADVICE.sub("", message)


def output(child: Subagent) -> ToolOutput:
    """The answer of one that came to its end."""
    return ToolOutput(blocks=(text_block(answer_words(child)),), note=_note(child))


def answer_words(child: Subagent) -> str:
    """Its answer, what it handed back, and how to go on with it."""
    parts = [child.answer.strip() or "(it answered with nothing)"]
    if child.handed:
        parts.append(f"[handed back to the user's namespace: {child.handed_words}]")
    if child.status == "limit":
        parts.append(f"[it did not come to its end: {child.message}]")
    parts += [late] if (late := _unread(child)) else []
    parts.append(f"[sub-agent {child.id}, {_calls(child)}, {child.seconds:.1f} s]")
    return "\n".join(parts)


def failure(child: Subagent) -> str:
    """The error of one that did not."""
    how = {"stopped": "was stopped", "refused": "was refused", "failed": "failed"}.get(child.status or "", "failed")
    words = f"The sub-agent {child.name!r} {how}" + (f": {child.message}" if child.message else "") + "."
    if child.answer.strip():
        words += f" Until then it had said:\n{child.answer.strip()[-SAID_CHARS:]}\n"
    return f"{words} Nothing was handed back. [sub-agent {child.id}, {_calls(child)}, {child.seconds:.1f} s]"


def started_words(child: Subagent) -> ToolOutput:
    """The result of a call that does not wait."""
    text = (
        f"The sub-agent {child.name!r} works in the background [{child.id}]. Its answer comes with a later message. "
        "Code that it runs waits while no turn of yours runs. Continue with something else, or end your turn."
    )
    return ToolOutput(blocks=(text_block(text),), note="in the background")


def asking_words(child: Subagent) -> ToolOutput:
    """The result of a call whose sub-agent has sent a plan: it waits in the background."""
    text = (
        f"The sub-agent {child.name!r} [{child.id}] has sent you a plan and waits for your answer: send_message with "
        "its name and kind `plan_response`. It then continues in the background; its result comes with a later message."
    )
    return ToolOutput(blocks=(text_block(text),), note="waits for an answer to its plan")


def background_words(child: Subagent) -> str:
    """What the model is told later of one in the background."""
    body = answer_words(child) if child.status in ("finished", "limit") else failure(child)
    return f"The sub-agent {child.name!r} ({child.task}) has ended.\n{body}"


def untold_words(ended: Sequence[ChildEnded]) -> str:
    """One note for all that ended in the background."""
    return "<context>\n" + guarded("\n\n".join(each.text for each in ended)) + "\n</context>"


def _unread(child: Subagent) -> str:
    """What its parent is told of letters that came too late for it."""
    late = [letter for letter in child.inbox if letter.kind != "shutdown_request"]
    if not late:
        return ""
    many = "1 message" if len(late) == 1 else f"{len(late)} messages"
    return f"[{many} came too late for it and {'was' if len(late) == 1 else 'were'} not read]"


def _calls(child: Subagent) -> str:
    return f"{child.requests} model call{'' if child.requests == 1 else 's'}"


def _note(child: Subagent) -> str:
    handed = f", handed back {', '.join(child.handed)}" if child.handed else ""
    return f"{child.name}{handed}"
