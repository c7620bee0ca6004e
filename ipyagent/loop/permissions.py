"""Who may run what: decided for each call, from the mode, the user's rules and what the call would do.

An approval is for one exact question: its digest covers the tool, the arguments and the code,
command or diff that was shown, and for anything else it is void. The mode is of this session and
never stored. Rules are the user's, kept per project in the user's own directory; nothing that a
project brings can add one.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from difflib import get_close_matches
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, Literal, TypeAlias

import msgspec

from ipyagent.config import MODES
from ipyagent.errors import SettingError, UsageError
from ipyagent.journal.events import Mode
from ipyagent.journal.protocols import Needed, PermissionQuestion, Tool, Workspace
from ipyagent.locks import Lock
from ipyagent.nofollow import private_folder, write_atomically
from ipyagent.project import home_variable
from ipyagent.sandbox import LEVELS, Level

HEADLESS = (
    "{tool} needs a permission and nobody can be asked here. To let it run: `%agent mode auto`, "
    '`c.IPyAgent.mode = "auto"` or IPYAGENT_MODE=auto (all but destructive calls), or `%agent allow {pattern}`.'
)
DESTRUCTIVE = (
    "{tool} was not run: {danger}. Such a call needs a permission, also in mode auto, and nobody can be asked here: "
    "ask the user to do it, or to run the cell where they can answer."
)
CONFINED = (
    "{tool} needs a permission because {danger}, and nobody can be asked here. To let it run: "
    "{auto}`%agent allow {pattern}`."
)
TITLES = {"project": "Let this command write in the project?", "open": "Run this command outside the sandbox?"}
READ_ONLY = "{tool} was not run: mode is read_only, nothing may be changed. {leave}"
LEAVE = "The user leaves it with `%agent mode ask`."
OF_CELL = "The mode holds for this cell: the user leaves it with another cell."

_RULE = re.compile(r"([a-zA-Z0-9_-]{1,64})(?:\((.*)\))?", re.DOTALL)
_ESCAPED = re.compile(r"\[([*?[])\]")


@dataclass(frozen=True)
class Allow:
    """The call runs. `by`: "mode", "rule", or "recorded" where it was allowed when it was recorded; `level`: at which
    sandbox level, for a tool that knows levels."""

    by: Literal["mode", "rule", "recorded"]
    rule: str = ""
    level: Level = "open"


@dataclass(frozen=True)
class Deny:
    """The call does not run; `reason` is for the model. `by`: "mode" or "headless"."""

    reason: str
    by: Literal["mode", "headless"]


@dataclass(frozen=True)
class Ask:
    """The user is asked `question`; a yes holds only while `digest_of` gives `digest`, and "always"
    stores `pattern`. `danger`: why it is asked in mode "auto", too ("": only in mode "ask"). `level`: that a yes is
    for."""

    question: PermissionQuestion
    pattern: str
    digest: str
    danger: str = ""
    level: Level = "open"


Decision: TypeAlias = Allow | Deny | Ask


@dataclass(frozen=True)
class PermissionRule:
    """`tool` or `tool(argument)`, where `argument` is a glob; None: every call of the tool."""

    tool: str
    argument: str | None = None

    def __str__(self) -> str:
        return self.tool if self.argument is None else f"{self.tool}({self.argument})"

    @property
    def exact(self) -> bool:
        """Whether it names one call only: it has an argument, and no wildcard in it."""
        return self.argument is not None and not re.search(r"[*?[]", _ESCAPED.sub("", self.argument))

    def covers(self, tool: Tool, input: dict[str, Any], workspace: Workspace) -> bool:
        if self.tool != tool.name:
            return False
        if self.argument is None:
            return True
        pattern = tool.pattern(input, workspace)
        if pattern == str(self):
            return True
        own = getattr(tool, "covers", None)
        if callable(own):
            return bool(own(self.argument, input, workspace))
        subject = parse_rule(pattern).argument
        return subject is not None and fnmatchcase(_ESCAPED.sub(r"\1", subject), self.argument)


def parse_rule(text: str, known: Iterable[str] = ()) -> PermissionRule:
    """`python`, `shell(git status)`, `write_file(src/*)`. `known`: names of tools there are; none
    given, any name is taken. Raises UsageError."""
    text = text.strip()
    if not text:
        raise UsageError("a rule is a tool's name, or a name and a pattern: `shell(git status)`, `write_file(src/*)`")
    found = _RULE.fullmatch(text)
    if found is None:
        if "(" in text and not text.endswith(")"):
            raise UsageError(f"the rule {text!r} has no closing parenthesis; write it as `shell(git status)`")
        raise UsageError(f"{text!r} is not a rule; write `shell(git status)`, or a tool's name for all its calls")
    name, argument = found[1], found[2]
    names = sorted(known)
    if names and name not in names:
        close = get_close_matches(name, names, n=1)
        raise UsageError(f"no tool {name!r}; {f'nearest: {close[0]}' if close else 'known: ' + ', '.join(names)}")
    if argument is not None and not argument.strip():
        raise UsageError(f"nothing in the parentheses of {text!r}; write `{name}` alone for every call of it")
    return PermissionRule(name, argument.strip() if argument is not None else None)


_PROJECT = "project: "
"""Begins the argument of a rule that lets a command write in the project only."""


def _level_of(rule: PermissionRule) -> tuple[Level, PermissionRule]:
    """The sandbox level that a rule gives, and the rule without that."""
    if rule.argument is None or not rule.argument.startswith(_PROJECT):
        return "open", rule
    return "project", PermissionRule(rule.tool, rule.argument.removeprefix(_PROJECT))


def digest_of(tool: Tool, input: dict[str, Any], question: PermissionQuestion) -> str:
    """What binds an answer to exactly this question: SHA-256 in hexadecimal. `question` as the
    tool asks it; an approval whose digest is another one by the time of the run is void."""
    parts = [tool.name, input, question.title, question.text, question.language]
    # Escaped to ASCII: text with a lone surrogate has no UTF-8.
    return hashlib.sha256(json.dumps(parts, sort_keys=True, default=repr).encode("ascii")).hexdigest()


def because(reason: str) -> str:
    """What the model is told behind a no: the user's reason, if any, and what follows."""
    if not reason:
        return " Do not try it again in another way; ask or go on."
    return f" Reason: “{reason}”. Follow it: do what it asks for, and do not try in another way what it refuses."


class Permissions:
    """The mode and rules of one session. `store`: the JSON file with the user's rules, outside
    of any project; `root`: the project they are for."""

    def __init__(self, store: Path, root: Path, mode: Mode = "ask") -> None:
        self._store = store
        self._root = str(root.resolve())
        self._session: list[PermissionRule] = []
        self._recorded = ""
        self._leave = LEAVE
        self._mode: Mode = "ask"
        self.mode = mode

    @property
    def mode(self) -> Mode:
        """Of this session only."""
        return self._mode

    @mode.setter
    def mode(self, mode: str) -> None:
        match mode:
            case "ask" | "auto" | "read_only":
                self._mode = mode
            case _:
                close = get_close_matches(mode, MODES, n=1)
                nearest = f"nearest: {close[0]}; " if close else ""
                raise UsageError(f"no mode {mode!r}; {nearest}modes: {', '.join(MODES)}")

    @property
    def rules(self) -> tuple[PermissionRule, ...]:
        """The session's rules, then the project's. Raises SettingError for a broken file."""
        return (*self._session, *map(parse_rule, self._read().get(self._root, [])))

    def with_mode(self, mode: Mode, leave: str = OF_CELL) -> Permissions:
        """The same rules under another mode: for one request. `leave` tells the model how a mode read_only ends that
        is not this one's already."""
        other = Permissions(self._store, Path(self._root), mode)
        other._session = self._session
        other._leave = self._leave if mode == self._mode else leave
        return other

    def for_recorded(self, tool: str) -> Permissions:
        """The same, but that calls of `tool` which were allowed when they were recorded run again without a question,
        as long as they destroy nothing; what they do is watched as in mode auto."""
        other = self.with_mode(self._mode)
        other._recorded = tool
        return other

    def decide(
        self, tool: Tool, input: dict[str, Any], workspace: Workspace, can_ask: bool, needs: Needed | None = None
    ) -> Decision:
        """What becomes of this call (`input` as `tool.validate` returned it); `needs`: what it was found to need beyond
        the level at which it ran. Raises ToolFailure when it could not run anyway, so that nobody is asked for
        nothing."""
        sandboxed = getattr(tool, "sandboxed", None)
        needs = needs or (sandboxed(input, workspace) if callable(sandboxed) else None)
        if needs is not None:
            return self._at_level(tool, input, workspace, can_ask, needs)
        if self._mode == "read_only" and tool.writes(input, workspace):
            return self._read_only(tool)
        if tool.permission(input, workspace) == "none":
            return Allow("mode")
        danger = tool.destructive(input, workspace)
        for rule in self.rules:
            # A wide rule was given for the usual call, not for one that destroys something.
            if (not danger or rule.exact) and rule.covers(tool, input, workspace):
                return Allow("rule", str(rule))
        if tool.name == self._recorded and not danger:
            return Allow("recorded")
        if self._mode == "auto" and not danger:
            return Allow("mode")
        pattern = tool.pattern(input, workspace)
        if not can_ask:
            if danger:
                return Deny(DESTRUCTIVE.format(tool=tool.name, danger=danger), "headless")
            return Deny(HEADLESS.format(tool=tool.name, pattern=pattern), "headless")
        question = tool.question(input, workspace)
        return Ask(question, pattern, digest_of(tool, input, question), danger)

    def _read_only(self, tool: Tool) -> Deny:
        return Deny(READ_ONLY.format(tool=tool.name, leave=self._leave), "mode")

    def _at_level(
        self, tool: Tool, input: dict[str, Any], workspace: Workspace, can_ask: bool, needs: Needed
    ) -> Decision:
        level = needs.level or "open"
        if self._mode == "read_only":
            return Allow("mode", level="read") if level == "read" else self._read_only(tool)
        destroys = tool.destructive(input, workspace)
        for rule in self.rules:
            given, covering = _level_of(rule)
            enough = LEVELS.index(given) >= LEVELS.index(level)
            if enough and (not destroys or rule.exact) and covering.covers(tool, input, workspace):
                return Allow("rule", str(rule), given)
        if self._mode == "ask" and level == "read":
            return Allow("mode", level="read")
        if self._mode == "auto" and level != "open" and not needs.danger:
            return Allow("mode", level="project")
        why = needs.danger if level != "open" and self._mode == "auto" else needs.why
        if level == "open":
            why = "; ".join(each for each in (destroys, why) if each)
        else:
            level = "project"
        pattern = tool.pattern(input, workspace)
        if level == "project":
            pattern = pattern.replace("(", f"({_PROJECT}", 1)
        if not can_ask:
            auto = "`%agent mode auto` or " if self._mode == "ask" and level != "open" and not needs.danger else ""
            return Deny(CONFINED.format(tool=tool.name, danger=why, auto=auto, pattern=pattern), "headless")
        question = tool.question(input, workspace)
        digest = digest_of(tool, input, question)
        if needs.level:
            question = msgspec.structs.replace(question, title=TITLES[level])
        return Ask(question, pattern, digest, why, level)

    def remember(self, pattern: str, *, session: bool = False) -> PermissionRule:
        """Allow from now on what `pattern` covers: in this project, or in this session only.
        Raises UsageError for what is no rule, SettingError when the file cannot be written."""
        rule = parse_rule(pattern)
        if session:
            if rule not in self._session:
                self._session.append(rule)
        else:
            self._change(lambda rules: rules if str(rule) in rules else [*rules, str(rule)])
        return rule

    def forget(self, pattern: str) -> bool:
        """Take a rule back; whether there was one. Raises SettingError when the file cannot be written."""
        rule = parse_rule(pattern)
        if rule not in self.rules:
            return False
        self._change(lambda rules: [kept for kept in rules if kept != str(rule)])
        self._session[:] = [kept for kept in self._session if kept != rule]
        return True

    def _read(self) -> dict[str, list[str]]:
        """Every project's rules. Read anew each time: another kernel may have added one."""
        try:
            found = json.loads(self._store.read_text("utf-8"))
            projects = found["projects"]
            for rules in projects.values():
                for text in rules:
                    parse_rule(text)
            return dict(projects)
        except FileNotFoundError:
            return {}
        except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError, UsageError) as problem:
            raise SettingError(
                f"the file with the permission rules {self._store} cannot be read ({problem}); fix or delete it"
            ) from None

    def _change(self, change: Callable[[list[str]], list[str]]) -> None:
        try:
            private_folder(self._store.parent)
            with Lock(self._store.with_name(f"{self._store.name}.lock"), seconds=5):
                projects = self._read()
                projects[self._root] = change(projects.get(self._root, []))
                text = json.dumps({"version": 1, "projects": dict(sorted(projects.items()))}, indent=1)
                write_atomically(self._store, f"{text}\n".encode())
        except OSError as problem:
            raise SettingError(
                f"the permission rules were not changed, because {self._store} cannot be written "
                f"({problem.strerror or problem}; {home_variable()}): free some space, or set IPYAGENT_HOME"
            ) from None
