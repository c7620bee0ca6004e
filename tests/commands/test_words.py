"""What a person reads: help that is wrapped and never breaks a word, and plain terms in every text."""

from __future__ import annotations

import re

import pytest

from ipyagent.__main__ import make_parser
from ipyagent.extension import USAGE
from ipyagent.extension.commands import ARGUMENTS, GROUPS
from ipyagent.extension.dashboard import TABS
from ipyagent.extension.reference import every_command, reference
from ipyagent.parts import skills
from ipyagent.parts.memory import commands as memory
from ipyagent.tools.schema import doc_of, help_text
from tests.errors.error_walk import LIST

PLAIN = {
    r"takes? (?:it|this|that|them|one) back|taking back|taken back": "undo",
    r"\bgo(?:es|ing)? on (?:from|in) (?:there|a copy)": "continues",
    r"\bsay %agent": "run %agent",
    r"\banew\b": "again",
    r"\bdear(?:er|est)?\b": "expensive",
    r"\bmend(?:s|ed|ing)?\b": "fix",
    r"\bis no more\b|\bany more\b": "no longer",
    r"\bby itself\b": "automatically",
    r"\btaken up\b|\btakes up\b": "resumed",
    r"\bchildren\b|\bchild\b|\bnursery\b": "sub-agents",
    r"\bthe header (?:is|has|should)|\bheaders (?:are|and)": "frontmatter",
    r"\b(?:warning|error|auto-compact|block) mark\b": "threshold",
    r"\bhanded in\b|\bhand(?:s|ing)? in\b": "submitted",
    r"\b(?:desk|workbench|toolbox|lookout|roster|crew|brood)\b": "what it is",
    r"\b(?:put|puts) (?:it|them) back\b": "restore",
    r"\brights are\b|\bmoney\b": "permissions, spending",
    r"\bnames nothing here\b|\ball that is needed\b|\bgive way to\b|\bis not looked at\b": "plain words",
}
"""Words of earlier versions that a reader trips over, as patterns, and what to say instead."""
FOR_THE_MODEL = re.compile(
    r"^(?:tools/|context/|loop/(?:calls|layers|mailbox)|parts/(?:files|memory|messages|plan|subagents|notebooks|shell)/(?!commands|report|dream_command|brows))"
)
"""Files whose texts the model reads, or which quote the API's own."""


def texts() -> list[str]:
    """Errors and notices of the person's, help texts, the reference with all settings, the shell's help."""
    errors = [line.partition(": ")[2] for line in LIST.read_text("utf-8").splitlines() if not FOR_THE_MODEL.match(line)]
    commands = [doc_of(each.run) for table in (memory.COMMANDS, skills.COMMANDS) for each in table.values()]
    abouts = [each.about for each in every_command().values()]
    return [*errors, *commands, *abouts, *reference(make_parser()).splitlines()]


def test_what_a_person_reads_says_it_in_plain_terms() -> None:
    found = [
        f"{match[0]!r} (say: {instead}) in {text[:160]}"
        for text in texts()
        for pattern, instead in PLAIN.items()
        if (match := re.search(pattern, text))
    ]
    assert not found, "\n".join(found)


@pytest.mark.parametrize("width", [60, 80, 120])
def test_help_is_grouped_and_wrapped_without_breaking_a_word(width: int) -> None:
    rows = {
        name: (f"%agent {name} {ARGUMENTS.get(name, each.usage)}".strip(), each.about)
        for name, each in every_command().items()
    }
    groups = [(title, [rows[name] for name in names]) for title, names in GROUPS.items()]
    assert sorted(name for names in GROUPS.values() for name in names) == sorted(every_command())
    told = help_text([USAGE], groups, width)
    assert max(map(len, told.splitlines())) <= width
    words = [
        *USAGE.split(),
        *(word for title, each in groups for word in [*title.split(), *" ".join(map(" ".join, each)).split()]),
    ]
    assert sorted(told.split()) == sorted(words), "every word is there, whole"
    assert [line for line in told.splitlines() if line and not line.startswith((" ", "%"))] == list(GROUPS)
    assert ARGUMENTS["panel"] == f"[{' | '.join(TABS)}]"
