"""The command line: `ipyagent demo | practice | replay | eval | dream | sessions | doctor`, or `python -m ipyagent`."""

from __future__ import annotations

import argparse
import io
import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

from ipyagent.errors import AgentError
from ipyagent.escape import plain
from ipyagent.version import __version__


def make_parser() -> argparse.ArgumentParser:
    """What reads the command line."""
    parser = argparse.ArgumentParser(prog="ipyagent", description="An agent with memory inside the Jupyter kernel.")
    parser.add_argument("--version", action="version", version=f"ipyagent {__version__}")
    commands = parser.add_subparsers(dest="command", required=True)
    demo = commands.add_parser("demo", help="run the quickstart with the practice model: no key, no network")
    demo.add_argument("--folder", type=Path, default=Path("ipyagent-demo"), help="folder to run it in (%(default)s)")
    demo.add_argument(
        "--lab", action=argparse.BooleanOptionalAction, default=None, help="open it in JupyterLab afterwards"
    )
    practice = commands.add_parser("practice", help="serve the practice model, to connect to")
    practice.add_argument("--port", type=int, default=8765, help="port to listen on; 0: any free one (%(default)s)")
    for name, text in (
        ("sessions", "list the sessions of this folder's project"),
        ("doctor", "check that everything is set up"),
    ):
        commands.add_parser(name, help=text)
    from ipyagent.eval import command as evaluation
    from ipyagent.replay.command import add_arguments

    evaluation.add_arguments(commands.add_parser("eval", help="ask a model questions about tables, grade its answers"))
    add_arguments(commands.add_parser("replay", help="replay a recorded session through layers and measure it"))
    dream = commands.add_parser("dream", help="tidy the memories of a project (for cron)")
    dream.add_argument("--project", type=Path, default=Path(), help="the project's folder (this one)")
    dream.add_argument("--model", default="", help="model for this dream; `practice` needs no key and no network")
    dream.add_argument(
        "--if-due", action="store_true", help="only if one is due (a day and some sessions after the last)"
    )
    dream.add_argument("--scope", choices=("project", "user"), default="project", help="whose memories")
    doing = dream.add_mutually_exclusive_group()
    doing.add_argument("--dry-run", action="store_true", help="show what it would do, change nothing")
    doing.add_argument("--accept", action="store_true", help="apply the dream that is waiting for approval")
    doing.add_argument("--undo", action="store_true", help="undo the last one")
    commands.add_parser("reference", help="print every magic, command and setting as Markdown")
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; returns the exit status. Failures are one line on standard error."""
    parser = make_parser()
    chosen = parser.parse_args(arguments)
    if isinstance(sys.stdout, io.TextIOWrapper):  # what a terminal has no sign for becomes a question mark
        sys.stdout.reconfigure(errors="replace")
    try:
        if chosen.command == "dream":
            status, line = _dream(chosen)
            print(line if not status else f"ipyagent: {line}", file=sys.stderr if status else sys.stdout)
            return status
        if chosen.command == "replay":
            from ipyagent.replay.command import run

            return run(chosen)
        if chosen.command == "eval":
            from ipyagent.eval.command import run as run_eval

            return run_eval(chosen)
        if chosen.command == "reference":
            from ipyagent.extension.reference import reference

            print(reference(parser))
            return 0
        if chosen.command == "demo":
            from ipyagent.demo import run_demo

            return run_demo(chosen.folder.resolve(), lab=chosen.lab)
        if chosen.command == "practice":
            from ipyagent.practice.model import answer, extract
            from ipyagent.practice.server import serve

            return serve(chosen.port, answer, extract)
        return _tell(chosen.command)
    except AgentError as problem:
        print(f"ipyagent: {problem}", file=sys.stderr)
        return 1


def _tell(command: str) -> int:
    from ipyagent.agent import Agent
    from ipyagent.config import IPyAgent, wrong_in
    from ipyagent.extension.context_report import session_lines
    from ipyagent.extension.doctor import doctor

    try:
        Path.cwd()
    except OSError:
        raise AgentError("the current folder no longer exists: change to another one (cd)") from None
    wrong = wrong_in(os.environ) if command == "doctor" else {}  # it tells of them and looks at the rest
    agent = Agent(settings=IPyAgent({name: text for name, text in os.environ.items() if name not in wrong}))
    try:
        if command == "sessions":
            print(plain("\n".join(session_lines(agent))) or "no stored sessions here")
            return 0
        told, well = doctor(agent, None)
        print(plain(told))
        return 0 if well else 1
    finally:
        agent.close()


DONE, FAILED, USAGE, WAITS = 0, 1, 2, 3


def _dream(chosen: argparse.Namespace) -> tuple[int, str]:
    """`ipyagent dream --project DIR`, for cron: tidy a project's memories; the exit status and the line that says what
    was done. 0 done, or nothing to do; 1 it failed, or was stopped, and the memories are as they were; 2 the command
    line is wrong; 3 it waits for the user's yes."""
    from ipyagent.agent import Agent
    from ipyagent.parts.memory import MemoryPart
    from ipyagent.parts.memory.commands import dream_now

    folder: Path = chosen.project
    if not folder.is_dir():
        return USAGE, f"there is no folder {folder}; --project names the project's folder"
    agent = Agent(folder=folder)
    before = signal.signal(signal.SIGTERM, lambda *_: agent.part(MemoryPart).dreaming.stop())
    try:
        dreaming = agent.part(MemoryPart).dreaming
        if chosen.if_due and (why := dreaming.closed(chosen.scope)):
            return DONE, f"nothing to do: {why}"
        line = dream_now(
            agent, undo=chosen.undo, dry_run=chosen.dry_run, accept=chosen.accept, model=chosen.model,
            scope=chosen.scope,
        )  # fmt: skip
        return {"held": WAITS, "killed": FAILED}.get(dreaming.now().status, DONE), line
    except AgentError as problem:
        return FAILED, " ".join(str(problem).split())
    except KeyboardInterrupt:
        return FAILED, "stopped; no memory was changed"
    finally:
        signal.signal(signal.SIGTERM, before)
        agent.close()


if __name__ == "__main__":
    sys.exit(main())
