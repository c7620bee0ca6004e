"""Completion in `%%agent` cells: `@` names variables and files, `/` skills, `--` options, `%agent` its commands."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from ipyagent.extension import EFFORTS, FLAGS, MODES, VALUES

_AT = re.compile(r"(?<![\w@.])@[^\s@,;!?()\[\]{}'\"`]*$")
_COMMAND = re.compile(r"^\s*%\w+\s+(?P<word>\w*)$")
_MEMORY = re.compile(r"^\s*%%?(?:memory|\w+\s+memory)\s+(?:(?P<command>\S+)\s+(?P<options>(?:\S+\s+)*))?(?P<word>\S*)$")
_CHOICE = re.compile(r"(?:%\w+\s+|\s--)(?P<name>mode|effort)[ \t=]+(?P<word>\w*)$")
_SKILLS = re.compile(r"^\s*%(?:skills|\w+\s+skills)\s+(?:(?P<command>\S+)\s+)?(?P<word>\S*)$")
_SLASH = re.compile(r"^(?:\s*/\S+)*\s*(/\S*)$")
_OPTION = re.compile(r"^\s*%\w+\s+(?P<command>\w+)\s+(?P<word>-\S*|)$")
_OPTIONS = {"trust": ("--off",)}
_MCP = re.compile(r"^\s*%\w+\s+mcp\s+(?P<word>\w*)$")
MOST = 60


class Completions:
    """A matcher of IPython's completer, for the magics `names`; `memories` gives the names of memories when
    `%memory` is ours (None: it is not), `skills` those of skills, `commands` those of `%agent`."""

    def __init__(
        self,
        shell: Any,
        names: Sequence[str],
        memories: Callable[[], list[str]] | None = None,
        skills: Callable[[], list[str]] | None = None,
        commands: Callable[[], list[str]] | None = None,
    ) -> None:
        self._shell = shell
        self._names = tuple(names)
        self._memories = memories
        self._skills, self._known = skills, commands

    def register(self) -> None:
        """Add the matcher to the shell's completer."""
        if getattr(self._shell, "Completer", None) is not None:
            from IPython.core.completer import context_matcher

            def ipyagent_matcher(context: Any) -> Any:
                return self._match(context)

            self._matcher = context_matcher()(ipyagent_matcher)
            self._shell.Completer.custom_matchers.append(self._matcher)

    def unregister(self) -> None:
        """Take it back."""
        if getattr(self._shell, "Completer", None) is not None:
            self._shell.Completer.custom_matchers.remove(self._matcher)

    def _match(self, context: Any) -> Any:
        from IPython.core.completer import SimpleCompletion

        lines = str(context.full_text).split("\n")[: int(context.cursor_line) + 1]
        before = "\n".join([*lines[:-1], lines[-1][: int(context.cursor_position)]])
        fragment, found = self.complete(before)
        return {
            "completions": [SimpleCompletion(text=text, type=kind) for text, kind in found],
            "suppress": bool(found),
            "matched_fragment": fragment,
            "ordered": True,
        }

    def complete(self, before: str) -> tuple[str, list[tuple[str, str]]]:
        """The fragment before the cursor and its completions with their kinds."""
        first, _, body = before.lstrip().partition("\n")
        name = re.match(r"%%?(\w+)", first)
        if name is not None and "\n" not in before.lstrip() and (asked := _MEMORY.match(first)) is not None:
            ours = name.group(1) in self._names or (name.group(1) == "memory" and self._memories is not None)
            return self._memory(asked) if ours else ("", [])
        if "\n" not in before.lstrip() and self._skills is not None and (asked := _SKILLS.match(first)) is not None:
            return self._on_skills(asked, self._skills)
        if name is None or name.group(1) not in self._names:
            return "", []
        if "\n" not in before.lstrip() and (choice := _CHOICE.search(first)):
            values, word = (MODES if choice["name"] == "mode" else EFFORTS), choice["word"]
            return word, [(value, "value") for value in values if value.startswith(word)]
        if not first.startswith("%%"):
            return self._commands(first)
        if "\n" in before.lstrip():
            if self._skills is not None and (slash := _SLASH.match(body)) is not None:
                named = [f"/{name}" for name in self._skills()]
                return slash[1], [(name, "skill") for name in named if name.startswith(slash[1])][:MOST]
            at = _AT.search(body)
            return (at.group(), self._mentions(at.group())) if at else ("", [])
        option = re.search(r"(?<=\s)-\S*$", first)
        if option is None:
            return "", []
        return option.group(), [(name, "option") for name in (*FLAGS, *VALUES) if name.startswith(option.group())]

    def _commands(self, line: str) -> tuple[str, list[tuple[str, str]]]:
        if (option := _OPTION.match(line)) is not None:
            word, known = option["word"], _OPTIONS.get(option["command"], ())
            return word, [(name, "option") for name in known if name.startswith(word)]
        if (asked := _MCP.match(line)) is not None:
            from ipyagent.parts.mcp import COMMANDS as KNOWN

            return asked["word"], [(name, "command") for name in KNOWN if name.startswith(asked["word"])]
        match = _COMMAND.match(line)
        if match is None:
            return "", []
        from ipyagent.extension.commands import COMMANDS

        word, commands = match.group("word"), list(COMMANDS) if self._known is None else self._known()
        return word, [(name, "command") for name in commands if name.startswith(word)]

    def _memory(self, asked: re.Match[str]) -> tuple[str, list[tuple[str, str]]]:
        """Commands of `%memory`, their options, names of memories."""
        from ipyagent.parts.memory.commands import COMMANDS, NAMED

        word, command = asked["word"], asked["command"]
        if command is None:
            return word, [(name, "command") for name in COMMANDS if name.startswith(word)]
        known = COMMANDS.get(command)
        if known is None:
            return "", []
        last = (asked["options"] or "").split()[-1:]
        if last and last[0] in known.options and known.options[last[0]] not in ("", "TEXT"):
            values = known.options[last[0]].split("|")
            return word, [(value, "value") for value in values if value.startswith(word)]
        if word.startswith("-"):
            return word, [(name, "option") for name in known.options if name.startswith(word)]
        if command not in NAMED or asked["options"] or self._memories is None:
            return "", []
        return word, [(name, "path") for name in self._memories() if name.startswith(word)][:MOST]

    def _on_skills(self, asked: re.Match[str], skills: Callable[[], list[str]]) -> tuple[str, list[tuple[str, str]]]:
        """Commands of `%skills`, names of skills."""
        from ipyagent.parts.skills import COMMANDS, NAMED

        word, command = asked["word"], asked["command"]
        if command is None:
            return word, [(name, "command") for name in COMMANDS if name.startswith(word)]
        known = skills() if command in NAMED else []
        return word, [(name, "skill") for name in known if name.startswith(word)][:MOST]

    def _mentions(self, fragment: str) -> list[tuple[str, str]]:
        start = fragment[1:]
        hidden = self._shell.user_ns_hidden
        names = [n for n in self._shell.user_ns if n.startswith(start) and n not in hidden and not n.startswith("_")]
        found = [(f"@{name}", "variable") for name in sorted(names)]
        found += [(f"@{kind}:", "cell") for kind in ("cell", "out") if f"{kind}:".startswith(start) and start]
        folder, _, stem = start.rpartition("/")
        try:
            entries = sorted((Path.cwd() / folder).iterdir())[:2_000]
        except (OSError, ValueError):
            entries = []
        for entry in entries:
            if entry.name.startswith(stem) and (stem.startswith(".") or not entry.name.startswith(".")):
                path = f"{folder}/{entry.name}" if folder else entry.name
                found.append((f"@{path}/" if entry.is_dir() else f"@{path}", "path"))
        return [(text if " " not in text else f'@"{text[1:]}"', kind) for text, kind in found][:MOST]
