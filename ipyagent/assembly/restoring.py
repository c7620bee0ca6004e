"""What should stand after a summary: loaded skills, files that were read, the plan, the variables there are now."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from ipyagent.config import IPyAgent
from ipyagent.context.reminders import guarded
from ipyagent.errors import ToolFailure
from ipyagent.journal.events import PlanWritten
from ipyagent.journal.protocols import Workspace
from ipyagent.journal.tokens import estimate_text
from ipyagent.kernel.notebook import Notebook
from ipyagent.kernel.variables import summarize
from ipyagent.tools.changes import MOST_NOTEBOOK
from ipyagent.tools.notebook_view import full_text


async def restored(
    workspace: Workspace,
    settings: IPyAgent,
    plan: PlanWritten | None = None,
    skills: Sequence[tuple[str, str]] = (),
    pinned: Callable[[], str] = str,
    redact: Callable[[str], str] = str,
) -> list[tuple[str, str]]:
    """Name for the user and text for the model, in the order in which they go: `skills`, the most recently
    read files, newest first, within their budgets; then the plan, unless all
    of it is done; the cells that are `pinned`; then the variables. `redact` takes secrets out."""
    found: list[tuple[str, str]] = list(skills)
    room = settings.restore_tokens
    for path in list(workspace.read_stamps)[::-1][: settings.restore_files]:
        text = redact(_file(path, settings.restore_file_tokens))
        tokens = estimate_text(text)
        if not text or tokens > room:
            continue
        room -= tokens
        name = _shown(path, workspace)
        found.append((f"file {name}", f'<file path="{guarded(name)}">\n{guarded(text)}\n</file>'))
    if plan is not None and any(step.state != "done" for step in plan.steps):
        rows = "\n".join(f"- [{step.state}] {guarded(step.text)}" for step in plan.steps)
        found.append(("plan", f"<context>\nYour plan, as you last wrote it:\n{rows}\n</context>"))
    pins = await workspace.on_main(pinned)
    if pins:
        found.append(("pinned cells", redact(pins)))
    variables = await workspace.on_main(lambda: summarize(workspace.namespace, hidden=workspace.hidden))
    if variables:
        found.append(("variables", f"<context>\nVariables now:\n{guarded(variables)}\n</context>"))
    return found


def _file(path: Path, tokens: int) -> str:
    """The head of a text file in at most `tokens` tokens; "" for what is no text or is gone."""
    cells = path.suffix.lower() == ".ipynb"
    try:
        with path.open("rb") as file:
            data = file.read(MOST_NOTEBOOK if cells else tokens * 6)
        if cells:  # as it was read: hidden cells stay hidden
            data = full_text(Notebook.read(data), path.name).encode("utf-8", "replace")
    except (OSError, ToolFailure):
        return ""
    text = data.decode("utf-8", "ignore")
    if "\0" in text:
        return ""
    while estimate_text(text) > tokens:
        text = text[: len(text) * 9 // 10]
    return text if len(text.encode()) >= len(data) else text + "\n[… cut]"


def _shown(path: Path, workspace: Workspace) -> str:
    try:
        return path.relative_to(workspace.folder).as_posix()
    except ValueError:
        return str(path)
