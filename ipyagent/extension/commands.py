"""`%agent COMMAND`: each command is one function that returns the text to print."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from ipyagent.errors import AgentError, UsageError, nearest
from ipyagent.extension import MODES, USAGE
from ipyagent.kernel.cell_marks import HIDE
from ipyagent.kernel.frontend import describe_frontend
from ipyagent.kernel.rendering import cells_of, render_failure
from ipyagent.parts import Command
from ipyagent.parts.subagents import SubagentManager
from ipyagent.redaction import mask
from ipyagent.tools.schema import doc_of, help_text

if TYPE_CHECKING:
    from ipyagent.agent import Agent
    from ipyagent.extension import Extension


class AgentRequest(NamedTuple):
    """A request that came out of a line; `own` is what of it the user typed (None: all)."""

    text: str
    own: str | None = None


def run_command(extension: Extension, line: str) -> AgentRequest | None:
    """Run a command and print its answer. A line of several words that begins with no command is
    a request: it is returned, as is one that a command makes."""
    word, _, rest = line.strip().partition(" ")
    word = OLD_NAMES.get(word, word)
    name = word.removeprefix("--") or "status"
    command = COMMANDS.get(name)
    if command is None:
        known = commands_of(extension.agent_now)
        if name in known:
            _of_part(extension, known[name], word, rest.strip())
            return None
        if rest and not nearest(word, list(known), cutoff=0.7):
            return AgentRequest(line.strip())
        near = nearest(word, list(known))
        words = f"write requests in a %%agent cell; commands: {', '.join(known)}"
        raise UsageError(f"%agent has no command {word!r}{near}  {words}")
    if rest.strip() and word in BARE:
        raise UsageError(f"%agent {word} takes no argument; write requests in a %%agent cell")
    if word not in WHILE_BUSY and extension.agent_now.busy:  # said by code that the agent runs
        raise UsageError(f"a turn is running: %agent {word} has to wait until it ends")
    answer = command(extension, rest.strip())
    if word == "fix":
        return AgentRequest(answer, rest.strip())
    if answer:
        extension.tell(answer)
    return None


def commands_of(agent: Agent) -> dict[str, Command]:
    """The commands that there are: the agent's own, then those of its parts."""
    found = {name: Command(str, doc_of(run)) for name, run in COMMANDS.items()}
    theirs = {name: each for part in agent.parts for name, each in part.commands().items()}
    return found | {name: each for name, each in theirs.items() if name not in COMMANDS}


def _of_part(extension: Extension, command: Command, word: str, rest: str) -> None:
    """Run a command of a part and print its answer, or open its tab."""
    from ipyagent.extension.surfaces import is_live, run_panel

    if extension.agent_now.busy and not command.looks:
        raise UsageError(f"a turn is running: %agent {word} has to wait until it ends")
    opens = not rest and command.tab and getattr(extension.shell, "kernel", None) is not None and is_live(extension)
    if answer := run_panel(extension, command.tab) if opens else command.run(rest):
        extension.tell(answer)


def _status(extension: Extension, rest: str) -> str:
    """Show the session, model, mode, context and cost."""
    from ipyagent.extension.context_report import summary

    return summary(extension.agent_now)


def _new(extension: Extension, rest: str) -> str:
    """Start a new session with the next request."""
    agent = extension.agent_now
    agent.new()
    more = "; the old one stays on disk (%agent sessions)" if agent.sessions.stored() else ""
    return f"the next request begins a new session{more}"


def _resume(extension: Extension, rest: str) -> str:
    """Resume a session: the newest, or the one with this label or whose ID starts this way."""
    agent = extension.agent_now
    agent.resume(rest)
    return "\n".join(agent.take_notices())


def _sessions(extension: Extension, rest: str) -> str:
    """List the project's sessions, newest first."""
    from ipyagent.extension.context_report import session_lines

    lines = session_lines(extension.agent_now)
    return "\n".join(lines) if lines else "no stored sessions here yet"


def _fork(extension: Extension, rest: str) -> str:
    """Continue in a copy of the session; LABEL names it for `resume`."""
    session = extension.agent_now.sessions.fork(label=rest)
    called = f" ({rest})" if rest else ""
    return f"continuing in a copy, {session.journal.session}{called}; the original is unchanged"


def _stop(extension: Extension, rest: str) -> str:
    """Stop the running turn."""
    agent = extension.agent_now
    left = subagents.at_work() if (subagents := agent.parts.get(SubagentManager)) is not None else ()
    if agent.busy:
        agent.stop()
    elif subagents is not None and left:  # in the background: their turn has ended
        for child in left:
            subagents.stop_one(child.id)
    else:
        return "nothing is running"
    return "stopped"


def _undo(extension: Extension, rest: str) -> str:
    """Restore the files that the last turn changed; run it again for the turn before."""
    return "\n".join(extension.agent_now.undo().lines())


def _rollback(extension: Extension, rest: str) -> str:
    """Undo turn N: restore the files it changed and remove it from the conversation."""
    from ipyagent.extension.work_cells import roll_back

    return roll_back(extension.agent_now, rest)


def _hide(extension: Extension, rest: str) -> str:
    """List the cells that are hidden from the agent, and say how to hide one."""

    agent = extension.agent_now
    agent.marks.notebook = agent.sessions.notebook
    return agent.marks.told(HIDE)


def _fix(extension: Extension, rest: str) -> str:
    """Ask the agent to fix the newest error; WORDS are added to the request."""
    # What IPython and Python keep of the newest error that was shown; our own say what to do themselves.
    error = getattr(sys, "last_value", None)
    if not isinstance(error, BaseException) or isinstance(error, AgentError | KeyboardInterrupt | SystemExit):
        raise UsageError("no cell has failed in this kernel, so %agent fix has nothing to fix")
    if any(extension.agent_now.marks.hides(source) for source in cells_of(error)):
        raise UsageError(
            f"the newest error is in a cell that is hidden from the agent: remove {HIDE} from it to have it fixed"
        )
    told = mask(render_failure(error)).replace("```", "'''")
    wish = f"\n{rest}" if rest else ""
    return f"Find out why this failed and fix it.{wish}\n\n```\n{told}\n```"


def _export(extension: Extension, rest: str) -> str:
    """Write the session to FILE: .md, .html, .txt or .jsonl, by its extension."""
    from ipyagent.extension.context_report import export

    if not rest:
        raise UsageError("%agent export FILE: name a file that ends in .md, .html, .txt or .jsonl")
    return export(extension.agent_now, Path(rest).expanduser())


def _cells(extension: Extension, rest: str) -> str:
    """Write the agent's code of this session as ordinary cells: below this one, or to a new FILE.ipynb."""
    from ipyagent.extension.work_cells import run_cells

    return run_cells(extension, rest)


def _model(extension: Extension, rest: str) -> str:
    """Show or choose the model."""
    from difflib import get_close_matches  # loading needs it not

    agent = extension.agent_now
    if rest:
        if any(character.isspace() for character in rest) and not rest.startswith("local:"):
            raise UsageError(f"a model's name has no spaces: {rest!r}")
        extension.settings.model = rest
    told = f"using model: {agent.settings.model_words}"
    if rest and (names := agent.connections.unlisted(rest, agent.endpoint())):
        close = [name for name in names if rest.casefold() in name.casefold() or name.casefold() in rest.casefold()]
        near = list(dict.fromkeys([*get_close_matches(rest, names, n=3, cutoff=0.5), *close]))[:3]
        known = f"it has {', '.join(names[:3])}{' …' * (len(names) > 3)}"
        some = f"similar names: {', '.join(near)}" if near else known
        told += f"; the server does not list a model with this name: {some}"
    return told


def _mode(extension: Extension, rest: str) -> str:
    """Show or choose the permission mode: ask, auto or read_only; for this kernel only."""
    if rest and rest not in MODES:
        raise UsageError(f"modes are {', '.join(MODES)}, not {rest!r}{nearest(rest, MODES)}")
    if rest:
        extension.settings.mode = rest
    told = {
        "ask": "you are asked before code runs or files change",
        "auto": "in this kernel most code runs unasked, and commands change and delete files of the project; you are "
        "asked before Python code deletes something, reaches a new host or starts a program, before a command leaves "
        "the project or needs the network, and before what %agent undo could not restore",
        "read_only": "reading only: no Python, no writes, only commands known to change nothing",
    }
    return f"mode {extension.settings.mode}: {told[extension.settings.mode]}"


def _allow(extension: Extension, rest: str) -> str:
    """List the project's rules, or allow RULE in this project from now on."""
    from ipyagent.loop.permissions import parse_rule

    agent = extension.agent_now
    if rest:
        parse_rule(rest, agent.tool_names())
        agent.permissions.remember(rest)
    rules = [str(rule) for rule in agent.permissions.rules]
    return "allowed in this project: " + (", ".join(rules) if rules else "no rule yet")


def _context(extension: Extension, rest: str) -> str:
    """Show what is sent to the model and what it costs (same as %context): --raw, --at N, --turns, --panel."""
    from ipyagent.extension.context_report import read_words, report

    asked, agent = read_words(rest.split()), extension.agent_now
    if asked.panel:
        return _timeline(extension)
    told = report(agent, rest.split())
    if agent.session is None or asked.raw or asked.at or extension.front.kind != "kernel":
        return told
    from ipyagent.extension.context_report import pictured

    for bundle in pictured(agent, told, turns=asked.turns):
        extension.shell.display_pub.publish(bundle)
    return ""


def _panel(extension: Extension, rest: str) -> str:
    """Open the live panel of context, memory, skills, sub-agents and sessions; a word opens that tab."""
    from ipyagent.extension.surfaces import run_panel

    return run_panel(extension, OLD_NAMES.get(rest, rest))


def _timeline(extension: Extension) -> str:
    """The context timeline: a bar a turn, what was decided, before and after; live on the board."""
    from ipyagent.extension.surfaces import is_live, run_panel
    from ipyagent.reports.timeline import timeline
    from ipyagent.ui.timeline import STATIC_BARS, STATIC_MARKS, newest, static_timeline

    agent = extension.agent_now
    session = agent.session
    if session is None:
        return "nothing yet: no session in this kernel (%agent resume continues an old one)"
    if is_live(extension):
        return run_panel(extension, "context")
    shown, window = timeline(session.journal.read()), agent.state_of(session)
    if getattr(extension.shell, "kernel", None) is None:
        return static_timeline(shown, window)["text/plain"]
    extension.shell.display_pub.publish(static_timeline(newest(shown, STATIC_BARS, STATIC_MARKS), window))
    return ""


def _compact(extension: Extension, rest: str) -> str:
    """Compact the context (same as %compact)."""

    answer = run_steps(extension, rest)
    return extension.agent_now.compact(rest) if answer is None else answer


def _trust(extension: Extension, rest: str) -> str:
    """Trust this folder: load its memory, instructions, settings and sessions; --off: stop trusting it."""
    if rest not in ("", "--off"):
        raise UsageError("%agent trust takes no argument except --off")
    agent = extension.agent_now
    agent.trust(off=rest == "--off")
    lines = agent.take_notices()
    if rest:
        return "\n".join([f"{agent.project.root} is no longer trusted; nothing from it is loaded from now on", *lines])
    loaded = ", ".join(agent.project.carried())
    told = f"{agent.project.root} is trusted; " + (
        f"loaded from the next request on: {loaded}" if loaded else "it has nothing to load yet"
    )
    return "\n".join([f"{told}; %agent resume continues its newest session", *lines])


def _tools(extension: Extension, rest: str) -> str:
    """List the tools the model has."""
    from ipyagent.extension.context_report import tool_lines

    return "\n".join(tool_lines(extension.agent_now))


def _doctor(extension: Extension, rest: str) -> str:
    """Check the setup and say what is missing."""
    from ipyagent.extension.doctor import doctor

    return doctor(extension.agent_now, extension.shell)[0]


def _help(extension: Extension, rest: str) -> str:
    """Show this list."""
    found = commands_of(extension.agent_now)
    grouped = {name for names in GROUPS.values() for name in names}
    groups = {**GROUPS, "More": (*GROUPS["More"], *(name for name in found if name not in grouped))}
    head = (
        "Write a request below a line that begins with %%agent; @name, @path, @cell:3 and @out:3 attach things to it.",
        USAGE,
    )
    rows = {
        name: (f"%agent {name} {each.usage or ARGUMENTS.get(name, '')}".strip(), each.about)
        for name, each in found.items()
    }
    return help_text(head, [(title, [rows[name] for name in names if name in rows]) for title, names in groups.items()])


COMMANDS: dict[str, Callable[[Extension, str], str]] = {
    "status": _status,
    "new": _new,
    "resume": _resume,
    "sessions": _sessions,
    "fork": _fork,
    "stop": _stop,
    "undo": _undo,
    "rollback": _rollback,
    "hide": _hide,
    "fix": _fix,
    "export": _export,
    "cells": _cells,
    "model": _model,
    "mode": _mode,
    "allow": _allow,
    "trust": _trust,
    "tools": _tools,
    "context": _context,
    "panel": _panel,
    "compact": _compact,
    "doctor": _doctor,
    "help": _help,
}
ARGUMENTS = {
    "resume": "[ID | LABEL]",
    "fork": "[LABEL]",
    "rollback": "N",
    "fix": "[WORDS]",
    "export": "FILE",
    "cells": "[FILE.ipynb]",
    "model": "[NAME]",
    "mode": "[ask | auto | read_only]",
    "allow": "[RULE]",
    "trust": "[--off]",
    "context": "[OPTIONS]",
    "panel": "[context | memory | skills | subagents | sessions]",
    "compact": "[OPTIONS]",
}
"""What may follow the commands of `%agent` that take something."""
BARE = tuple(name for name in COMMANDS if name not in ARGUMENTS)
"""The others: words after one are a request that went astray."""
GROUPS = {
    "Sessions": ("status", "new", "resume", "sessions", "fork", "export"),
    "The agent's work": ("stop", "undo", "rollback", "fix", "cells"),
    "What the agent sees": ("context", "compact", "panel", "pin", "hide"),
    "Model and permissions": ("model", "mode", "allow", "trust", "tools"),
    "More": ("memory", "skills", "subagents", "messages", "mcp", "doctor", "help"),
}
"""The commands by what they are for, as the help lists them; those of other parts stand last."""
OLD_NAMES = {"children": "subagents"}
"""Commands by the names they had in the release before."""
WHILE_BUSY = (
    "", "status", "stop", "sessions", "tools", "context", "panel", "hide", "doctor", "help",
)
"""Commands that change nothing but the running turn; the others are not for code that runs in it."""


# ------------------------------------------------------------------ steps
# `%compact --step` in a live notebook: the step with buttons for the next one and back.


def run_steps(extension: Extension, line: str) -> str | None:
    """Show the step with its buttons; "" then. None when the line asks for something else, or nobody could press
    them. Raises as `Agent.compact`."""
    from ipyagent.assembly.compaction import parse_compact
    from ipyagent.extension.context_report import StepPanel
    from ipyagent.extension.work_cells import buttons_of

    wanted, shell = parse_compact(line), extension.shell
    captured = type(shell.display_pub).__name__ == "CapturingDisplayPublisher"  # %%capture
    loop = getattr(getattr(shell, "kernel", None), "io_loop", None)
    live = describe_frontend(shell, extension.settings.panels).live_widgets
    if not wanted.step or captured or loop is None or not live:
        return None
    agent = extension.agent_now
    panel = StepPanel(
        agent.compaction.step, lambda: agent.compact("--undo"), buttons_of(extension), loop.add_callback
    )
    panel.open(agent.compaction.step(dry=wanted.dry_run))
    return ""
