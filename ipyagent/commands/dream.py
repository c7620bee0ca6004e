"""`ipyagent dream --project DIR`, for cron: tidy a project's memories and say in one line what was done.

Exit status: 0 done, or nothing to do; 1 it failed, or was stopped, and the memories are as they were; 2 the
command line is wrong; 3 it waits for the user's yes.
"""

from __future__ import annotations

import argparse
import signal
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ipyagent.errors import AgentError
from ipyagent.memory.names import SCOPES
from ipyagent.parts.memory import MemoryPart

if TYPE_CHECKING:
    from ipyagent.agent import Agent

DONE, FAILED, USAGE, WAITS = 0, 1, 2, 3


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of `ipyagent dream`."""
    parser.add_argument("--project", type=Path, default=Path(), help="the project's folder (this one)")
    parser.add_argument("--model", default="", help="model for this dream; `practice` needs no key and no network")
    parser.add_argument("--if-due", action="store_true", help="only if one is due: a day, and some sessions, later")
    parser.add_argument("--scope", choices=SCOPES, default=SCOPES[0], help="the project's memories, or the user's own")
    doing = parser.add_mutually_exclusive_group()
    doing.add_argument("--dry-run", action="store_true", help="show what it would do, change nothing")
    doing.add_argument("--accept", action="store_true", help="apply the dream that is waiting for approval")
    doing.add_argument("--undo", action="store_true", help="take the last one back")


def run(chosen: argparse.Namespace) -> tuple[int, str]:
    """Exit status and the line."""
    from ipyagent.agent import Agent

    folder: Path = chosen.project
    if not folder.is_dir():
        return USAGE, f"there is no folder {folder}; --project names the project's folder"
    agent = Agent(folder=folder)
    before = signal.signal(signal.SIGTERM, lambda *_: agent.part(MemoryPart).dreaming.stop())
    try:
        return _done(agent, chosen)
    except AgentError as problem:
        return FAILED, " ".join(str(problem).split())
    except KeyboardInterrupt:
        return FAILED, "stopped; no memory was changed"
    finally:
        signal.signal(signal.SIGTERM, before)
        agent.close()


def _done(agent: Agent, chosen: Any) -> tuple[int, str]:
    from ipyagent.commands.dream_work import dream_now

    if chosen.if_due and (why := agent.part(MemoryPart).dreaming.closed(chosen.scope)):
        return DONE, f"nothing to do: {why}"
    line = dream_now(
        agent,
        undo=chosen.undo,
        dry_run=chosen.dry_run,
        accept=chosen.accept,
        model=chosen.model,
        scope=chosen.scope,
    )
    made = agent.part(MemoryPart).dreaming.progress
    status = made.status if made is not None else "completed"
    return {"held": WAITS, "killed": FAILED}.get(status, DONE), line
