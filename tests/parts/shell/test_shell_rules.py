"""Which commands a permission rule covers."""

from __future__ import annotations

import subprocess

from hypothesis import given, settings
from hypothesis import strategies as st

from ipyagent.parts.shell.rules import Unclear, covers, simple_commands


def test_what_follows_a_covered_command_behind_a_pipe_only_shortens_it() -> None:
    for command in (
        "pytest", "pytest -q tests", "pytest -q | tail -5", "pytest | grep -v ok | head -n 3", "pytest && pytest x",
        "pytest | sort -n | uniq -c | wc -l", "pytest | cut -d: -f1",
    ):  # fmt: skip
        assert covers("pytest *", command), command
    for command in (
        "pytest | tee x", "pytest | sort -o x", "pytest | uniq - x", "pytest | grep -r x", "pytest | grep -f x a",
        "pytest | grep . -r", "pytest | grep x -fsecret", "pytest | tr a -d", "pytest; cat x", "cat x | pytest",
        "pytest | cat x", "pytest | head x", "pytest | sh", "pytest | grep x y", "pytest | tail -f x", "pytest > x",
        "pytest $(x)", "pytest & x", "pytest\nx", "'pytest x' y", "pytest | grep *",
    ):  # fmt: skip
        assert not covers("pytest *", command), command


@settings(max_examples=300, deadline=None)
@given(st.text(alphabet="abc '\"|;&$`<>(){}*?[]~#\\!=-/.\n\t", max_size=20))
def test_words_are_those_of_the_shell_itself(text: str) -> None:
    """Whatever the parser takes, bash reads as the same words."""
    try:
        commands, _ = simple_commands(text)
    except Unclear:
        return
    if len(commands) != 1 or any(word.glob for word in commands[0]):
        return
    typed = text.lstrip(" \t\n")  # a line that is empty before it is no command
    done = subprocess.run(
        ["bash", "--norc", "-c", f"printf '%s\\0' {typed}"], capture_output=True, text=True, timeout=10, check=False
    )
    assert done.stdout.split("\0")[:-1] == [word.text for word in commands[0]]
