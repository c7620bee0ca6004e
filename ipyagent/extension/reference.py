"""`ipyagent reference`: every magic, command and setting as Markdown, made from the code that reads them."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from ipyagent.agent import Agent
from ipyagent.assembly import compaction, settings
from ipyagent.config import IPyAgent, setting_names
from ipyagent.extension import USAGE
from ipyagent.extension import commands as agent
from ipyagent.extension import context_report as context
from ipyagent.parts import Command, built_in, mcp, skills
from ipyagent.parts.memory import commands as memory
from ipyagent.tools.schema import doc_of

OPTIONS = {
    "--model NAME": "the model for this request",
    "--mode ask|auto|read_only": "permissions for this request",
    "--max-turns N": "at most N model calls",
    "--effort LEVEL": "low, medium, high, xhigh or max, if the model supports it",
    "--fresh": "without history, not kept in the conversation",
    "--fork": "with history, not kept in the conversation",
    "--quiet": "only the answer is shown",
    "--rerun": "asks the model even if the cell is unchanged",
    "--replay": "runs the recorded code of the unchanged cell again, without the model",
    "--lesson NAME": "the request belongs to this lesson of the practice model",
}


def every_command() -> dict[str, Command]:
    """The commands of `%agent`, with those of every part of ours."""
    with TemporaryDirectory() as folder:
        made = Agent(settings=IPyAgent(environ={}), folder=Path(folder), parts=built_in().values())
        try:
            return agent.commands_of(made)
        finally:
            made.close()


def reference(parser: argparse.ArgumentParser) -> str:
    """The whole text; `parser` reads the shell's command line."""
    return "\n".join(
        [
            "# Reference",
            "",
            "Made by `ipyagent reference` from the code; a test holds it to that.",
            "",
            *_cells(),
            *_commands(
                "`%agent`",
                (
                    (f"{name} {agent.ARGUMENTS.get(name, each.usage)}".strip(), _first(each.about))
                    for name, each in every_command().items()
                ),
            ),
            "Words that are none of these are a request: `%agent why is the last plot empty?`",
            "",
            *_lines(),
            *_commands("`%memory`", _used(memory.COMMANDS)),
            "`%%memory add` and `%%memory edit NAME` take the text below them.",
            "",
            *_commands("`%skills`", _used(skills.COMMANDS)),
            *_commands("`%agent mcp`", ((name, _first(doc_of(run))) for name, run in mcp.COMMANDS.items())),
            f"Usage: `{mcp.USAGE}`",
            "",
            *_shell(parser),
            *_settings(),
        ]
    )


def _cells() -> list[str]:
    return [
        "## `%%agent`",
        "",
        f"`{USAGE}`, the request below it, taken literally.",
        "",
        *_table(("option", "what"), OPTIONS.items()),
        "`@name` attaches a compact view of a variable, `@path` of a file, `@cell:N` and `@out:N` a cell or an output "
        "by its number; `/name` at the start loads a skill.",
        "",
    ]


def _lines() -> list[str]:
    return [
        "## `%context` and `%compact`",
        "",
        f"- `{context.USAGE}`",
        f"- `{compaction.USAGE}`: N, A and B are turns, counted from 1",
        "",
    ]


def _commands(title: str, rows: Iterable[tuple[str, str]]) -> list[str]:
    return [f"## {title}", "", *_table(("command", "what"), rows)]


def _used(commands: Mapping[str, memory.MemoryCommand] | Mapping[str, skills.SkillsCommand]) -> list[tuple[str, str]]:
    return [(f"{name} {each.usage}".strip(), _first(doc_of(each.run))) for name, each in commands.items()]


def _shell(parser: argparse.ArgumentParser) -> list[str]:
    rows = []
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            about = {choice.dest: choice.help or "" for choice in action._choices_actions}
            for name, each in action.choices.items():
                taken = [action.option_strings for action in each._actions if action.option_strings]
                options = [" | ".join(names) for names in taken if "--help" not in names]
                shown = " ".join(f"[{option}]" for option in options)
                rows.append((f"ipyagent {name} {shown}".strip(), about.get(name, "")))
    return ["## In a shell", "", *_table(("command", "what"), rows)]


def _settings() -> list[str]:
    rows = []
    traits = IPyAgent.class_traits()
    for name in sorted(setting_names()):
        trait = traits[name]
        choices = "one of " + ", ".join(f"`{value or repr('')}`" for value in getattr(trait, "values", ()))
        kind = choices if getattr(trait, "values", None) else type(trait).__name__.lower().replace("unicode", "text")
        value = trait.default()  # a list's `default_value` is none
        default = "empty" if value in ("", None) else value
        rows.append((name, kind, f"`{default}`", _first(trait.help), _project(name)))
    return [
        "## Settings",
        "",
        "Each is a trait of `IPyAgent`: `%config IPyAgent.NAME = …`, `c.IPyAgent.NAME = …` in IPython's configuration, "
        "`IPYAGENT_NAME` (in capitals) in the environment (a list as JSON: `[\"one\", \"two\"]`), `NAME = …` in a "
        "settings file. The last column says what a project's file may do.",
        "",
        *_table(("setting", "kind", "default", "what", "project"), rows),
    ]


def _project(name: str) -> str:
    if name in settings.FOR_PROJECTS:
        return "sets it"
    return "turns it off" if name in settings.ONLY_OFF else "no"


def _first(text: str) -> str:
    """The first paragraph of a docstring or a help, in one line."""
    return " ".join(text.strip().split("\n\n")[0].split())


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """A Markdown table; the first column is code."""
    made = [f"| {' | '.join(head)} |", f"|{'---|' * len(head)}"]
    for first, *others in rows:
        cells = [f"`{first}`", *others]
        made.append(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |")
    return [*made, ""]
