"""Every error a user can meet is in the list beside this file, and says what happened and what to do."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from ipyagent.config import IPyAgent
from ipyagent.extension.reference import every_command
from ipyagent.parts.memory.commands import COMMANDS as MEMORY
from ipyagent.parts.skills import COMMANDS as SKILLS
from tests.errors.error_walk import LIST, Found, Walk, lines

ANEW = "python -m tests.errors.error_walk"
MOST = 320
FOR_THE_MODEL = {"ToolFailure"}
"""Read by the model, which looks for its own way on; shown to the user below the call."""
HINT = "No model is connected yet"
"""The one error of three lines: the three ways to a model."""
_VERBS = (
    "add|answer|ask|attach|begin|cd|change|check|choose|create|delete|dream|end|fix|free|give|go|insert|install|keep|"
    "leave|let|list|load|make|mend|move|must|name|needs?|open|put|raise|read|remove|rename|repair|restart|run|save|say|"
    "see|send|set|split|start|stop|takes?|trust|try|turn|use|view|wait|write"
)
TO_DO = re.compile(
    rf"%|IPyAgent\.|IPYAGENT_|ANTHROPIC_|pip install|did you mean|near(?:est)?: |known: |"
    rf"there are: |modes: |modes are |commands: |options: |usage: |is one of|allowed: |"
    rf"types: |running: |newest: |at work: |exclude|\b(?:{_VERBS})\b",
    re.IGNORECASE,
)
"""A command, a setting, an option, the nearest right names, or a verb that says what to do."""

_WHAT_FAILED = re.compile(
    r"\b(?:cannot|could not|not|was|is|were|are|it|to|nothing)(?: be)? (?!one of)[a-z]+\b", re.IGNORECASE
)
"""Verbs that say what went wrong, not what to do: "cannot write", "was not read"."""
ONE_WORD = {"stopped", "lost", "refused"}
"""Endings, shown behind words of their own: `Stopped`, `The model declined: …`."""
SAID_OF_IT = {"has", "is", "lists", "shows", "takes", "still", "turns", "if", "begins", "dreams", "gives"}
"""Words that follow a command in a sentence about it."""

NOTHING_TO_DO = {
    "a part of a line that says more: 'nothing was compacted: …; %context shows …'": (
        "no summary", "there is nothing to compact", "tool calls are open",
        "the summary is longer than what it replaces", "the server made no summary",
    ),
    "a part of a line that names the hook: 'hook stop (name): …'": ("it raised", "it took longer than", "exit status"),
    "a part of a line that names the file of the skill": ("line 1: ",),
    "what follows is another error's text, which says what to do": ("sub-agent {…} has no memory: {…}",),
    "said to know, nothing is wrong": (
        "{…} was not changed: the edit leaves it as it is",
        "already in session", "resumed session", "no file changes ",
        "the skill {…} is in the context", "stopped", "refused", "lost",
    ),
    "what was left undone, and what stands instead; the next turn goes its way": (
        "cut off: the kernel stopped", "The reply broke off here; what arrived is kept",
        "{…}: the results of this message are kept in full", "a result could not be kept in a file ({…}): it is cut",
        "{…}; recall uses full text alone, or is skipped", "new memories were not saved: {…}",
        "session {…} is open in another kernel: continuing in a copy of it", "session {…} : continuing in a copy of it",
        "session {…} is in {…}, which cannot be written: continuing in a copy of it",
        "MCP servers did not stop in time",
        "ipyagent: saving new memories (Ctrl-C", "{…}, {…} failures in a row;", "{…};",
    ),
    "a bug of ours: the report's place follows, or the reason there is none": ("internal error {…}: {…}; ",),
    "a name that cannot be: the second hole is what to use instead": ("a memory cannot be called {…}: it {…}; {…}",),
    "the action's own error follows, and says what to do": (
        "not undone: {…}", "Allowed this once, not always: {…}", "dream, {…}: {…}", "dream of your memories",
    ),
    "a part of a line that goes on with what may be saved instead": ("not changed: ",),
    "says what a right one is": ("{…} names a folder; a memory is a file in", "{…} is not an http or https address",
        "executor is one of concurrent.futures"),
    "the last hole is what to do": ("no other session{…} here; {…}", "cannot write {…} ({…}): {…}"),
}  # fmt: skip
"""Beginnings of texts that name nothing to do, by the reason why."""


@pytest.fixture(scope="module")
def found() -> list[Found]:
    return Walk().found()


def test_the_list_holds_what_the_source_says(found: list[Found]) -> None:
    now, kept = set(lines(found)), set(LIST.read_text(encoding="utf-8").splitlines())
    wrong = [f"+ {line}" for line in sorted(now - kept)] + [f"- {line}" for line in sorted(kept - now)]
    told = "\n".join(wrong[:30])
    assert not wrong, f"{LIST.name} is not what the source says; read the new texts, then `{ANEW}`:\n{told}"
    assert len(now) > 550


def passed_on(one: Found) -> bool:
    """Whether there is nothing in it but what another error says."""
    return not re.search(r"[A-Za-z]{2,}", one.text.replace("ipyagent: ", ""))


def broken(found: list[Found], rule: str) -> list[str]:
    """The texts that break a rule, with their places."""
    rules = {
        "one line": lambda one: "\n" not in one.text or one.kind in FOR_THE_MODEL or one.text.startswith(HINT),
        "short": lambda one: len(one.text) <= MOST,
        "starts with what happened": lambda one: re.match(r"[\w{`\"'/%@.&+-]|\(the recording", one.text),
        "words": lambda one: passed_on(one) or one.text in ONE_WORD or len(re.findall(r"[\w%`'…-]+", one.text)) >= 2,
        "no class names": lambda one: not re.search(r"\b[A-Z]\w+(?:Error|Exception)\b|<class|object at 0x", one.text),
    }
    return [f"{one.file}:{one.line} {one.text}" for one in found if not rules[rule](one)]


@pytest.mark.parametrize("rule", ["one line", "short", "starts with what happened", "words", "no class names"])
def test_each_text_keeps_the_rule(found: list[Found], rule: str) -> None:
    wrong = broken(found, rule)
    assert not wrong, "\n".join(wrong)


def test_each_text_for_the_user_names_what_to_do(found: list[Found]) -> None:
    excused = tuple(begin for begins in NOTHING_TO_DO.values() for begin in begins)
    silent = [
        f"{one.file}:{one.line} {one.text}"
        for one in found
        if one.kind not in FOR_THE_MODEL
        and not passed_on(one)
        and not TO_DO.search(_WHAT_FAILED.sub("", one.text))
        and not one.text.startswith(excused)
    ]
    told = "say what to do (a command, a setting, an option, a file), or give a reason in NOTHING_TO_DO:"
    assert not silent, "\n".join([told, *silent])


def test_no_excuse_is_left_over(found: list[Found]) -> None:
    unused = [
        begin
        for begins in NOTHING_TO_DO.values()
        for begin in begins
        if not any(one.text.startswith(begin) for one in found)
    ]
    assert not unused, "\n".join(unused)


def test_what_a_text_tells_to_use_exists(found: list[Found]) -> None:
    magics = {"agent": set(every_command()), "memory": set(MEMORY), "skills": set(SKILLS)}
    missing = []
    for one in found:
        for magic, word in re.findall(r"(?<!%)%(agent|memory|skills) ([a-z]+)\b", one.text):
            if word not in magics[magic] and word not in SAID_OF_IT:
                missing.append(f"{one.file}:{one.line} %{magic} {word}")
        for name in re.findall(r"IPyAgent\.([a-z_]+)\b", one.text):
            if not IPyAgent.class_traits().get(name) and not name.endswith("_"):
                missing.append(f"{one.file}:{one.line} IPyAgent.{name}")
    assert not missing, "\n".join(missing)


def test_the_walk_follows_names_constants_and_functions(tmp_path: Path) -> None:
    (tmp_path / "texts.py").write_text('WHY = {"a": "it is {x} late", "b": "it is early"}\n')
    (tmp_path / "raising.py").write_text(
        "from ipyagent.texts import WHY\n"
        "class Own(AgentError): ...\n"
        "def told(n):\n"
        "    return f'{n} of them' if n else 'none of them'\n"
        "def go(n, what):\n"
        "    end = f'; as {what}' if what else ''\n"
        "    raise Own('too many, ' + told(n) + end)\n"
        "    raise UsageError(WHY['a'].format(x=1))\n"
        "    return 'failed', f'it broke: {n}'\n"
    )
    assert lines(Walk(tmp_path).found()) == [
        "raising.py: it broke: {…}",
        "raising.py: it is early",
        "raising.py: it is {…} late",
        "raising.py: too many, none of them",
        "raising.py: too many, none of them; as {…}",
        "raising.py: too many, {…} of them",
        "raising.py: too many, {…} of them; as {…}",
    ]
