"""A compaction that is stepped in a live notebook: the steps so far, and buttons for the next and back.

The static form reads without a kernel and names the commands; where the kernel lives the buttons stand in their
place (`ui.buttons`). A press is done on the kernel's main thread, when no cell holds it.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable
from typing import Any

from ipyagent.assembly.stepping import (
    NOTHING,
    LayerStep,
    LayerStepResult,
    headline,
    name_of,
    passed,
    price_words,
    rows,
    step_text,
)
from ipyagent.errors import AgentError
from ipyagent.escape import escape
from ipyagent.ui.buttons import ButtonBridge

_CELL = "padding:1px 10px;text-align:right"
_LEFT = "padding:1px 10px;text-align:left"
_FRAME = '<div class="ipyagent ia-static tex2jax_ignore mathjax_ignore">'


class StepPanel:
    """The steps of one `%compact --step` cell. `take` takes a step, `undo` takes one back and says so, both on
    the main thread; `post` has a function called there, from any thread."""

    def __init__(
        self,
        take: Callable[[], LayerStepResult],
        undo: Callable[[], str],
        buttons: ButtonBridge,
        post: Callable[[Callable[[], None]], Any],
    ) -> None:
        self._take = take
        self._undo = undo
        self._post = post
        self._bridge = buttons
        self._display = "ipyagent-steps-" + uuid.uuid4().hex
        self._shown: list[LayerStepResult] = []
        self._said = ""
        self._marks: tuple[str, str] | None = None

    def __repr__(self) -> str:
        return f"<StepPanel {len(self._shown)} steps>"

    def open(self, first: LayerStepResult) -> None:
        """Appear below the running cell with the first answer."""
        from IPython.display import display

        self._shown.append(first)
        button = self._bridge.button
        self._marks = button(lambda: self._ask(self.next)), button(lambda: self._ask(self.back))
        display(self.bundle(), display_id=self._display, raw=True)  # type: ignore[no-untyped-call] # no types

    def next(self) -> None:
        """The next layer acts."""
        made = self._take()
        if self._shown and not _is_done(self._shown[-1]):
            self._shown.pop()  # what was only looked at
        self._shown.append(made)

    def back(self) -> None:
        """The newest step is taken back."""
        said = self._undo()
        if self._shown and _is_done(self._shown[-1]):
            self._shown.pop()
        self._said = said

    def _ask(self, act: Callable[[], None]) -> None:
        self._post(lambda: self._do(act))

    def _do(self, act: Callable[[], None]) -> None:
        self._said = "working …"
        self._update()
        self._said = ""
        try:
            act()
        except AgentError as problem:
            self._said = str(problem)
        except KeyboardInterrupt:
            self._said = "stopped: the conversation is unchanged"
        self._update()

    def _update(self) -> None:
        from IPython.display import update_display

        update_display(self.bundle(), display_id=self._display, raw=True)  # type: ignore[no-untyped-call] # no types

    def bundle(self) -> dict[str, str]:
        """`text/html` and `text/plain` of the steps so far."""
        texts = [step_text(shown) for shown in self._shown] + ([self._said] if self._said else [])
        return {"text/html": self._html(), "text/plain": "\n\n".join(texts)}

    def _html(self) -> str:
        parts = [_step_html(shown.step) for shown in self._shown if shown.step is not None]
        newest = self._shown[-1] if self._shown else None
        if self._said:
            parts.append(f"<div><em>{escape(self._said)}</em></div>")
        elif newest is not None:
            parts += _next_html(newest)
        return _FRAME + "".join(parts) + self._buttons() + "</div>"

    def _buttons(self) -> str:
        if self._marks is None:
            return ""
        last = not self._said and bool(self._shown) and _is_last(self._shown[-1])
        return (
            '<div style="margin-top:4px">'
            + ("" if last else _button(self._marks[0], "Next step", "%compact --step", "The next layer acts"))
            + _button(self._marks[1], "Undo", "%compact --undo", "Undo the newest step")
            + "</div>"
        )


def _is_done(shown: LayerStepResult) -> bool:
    return shown.step is not None and shown.step.done


def _is_last(shown: LayerStepResult) -> bool:
    """Whether no layer has anything left to do."""
    return shown.following is None and (shown.step is None or shown.step.done)


def _button(mark: str, sign: str, command: str, label: str) -> str:
    return (
        f'<button type="button" hidden data-again data-ipyagent-door="{escape(mark)}" data-sign="{sign}" '
        f'aria-label="{label}" title="{label}"></button>'
        f'<small style="opacity:.75;margin-right:12px"><code>{command}</code></small>'
    )


def _step_html(step: LayerStep) -> str:
    head = "<td></td>" + "".join(f'<th style="{_CELL}">{name}</th>' for name in ("before", "after", "change"))
    found = rows(step)
    body = "".join(_row_html(row, strong=number == len(found)) for number, row in enumerate(found, 1))
    table = f'<table style="border-collapse:collapse;margin:4px 0"><tr>{head}</tr>{body}</table>'
    return (
        f'<div style="margin-bottom:10px"><strong>{escape(headline(step))}</strong>{table}'
        f"<div>{escape(price_words(step))}</div></div>"
    )


def _row_html(row: tuple[str, str, str, str], *, strong: bool) -> str:
    weight = ";font-weight:bold" if strong or row[3] else ""
    cells = [f'<td style="{_LEFT}{weight}">{row[0]}</td>']
    cells += [f'<td style="{_CELL}{weight}">{escape(cell)}</td>' for cell in row[1:]]
    return f"<tr>{''.join(cells)}</tr>"


def _next_html(shown: LayerStepResult) -> list[str]:
    """Which layers are passed over and why, and which would be next."""
    over = [f"passed over: {name}: {why}" for name, why in passed(shown.rungs)]
    parts = [f"<div><small>{escape(words)}</small></div>" for words in over]
    if shown.step is not None and not shown.step.done:
        return parts  # it is the next one itself
    following = shown.following
    if following is None:
        return [*parts, f"<div>{NOTHING}</div>"]
    call = "one model call" if following.calls else "no model call"
    return [*parts, f"<div>Next: <strong>{escape(name_of(following.layer))}</strong> ({call})</div>"]
