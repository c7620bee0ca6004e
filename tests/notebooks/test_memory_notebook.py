"""Notebook 02 runs as shipped, and what it prints is what the memory files and the journals say."""

from __future__ import annotations

import json
import re

import pytest
from shipped import Run, execute, of

from ipyagent.frontmatter import read_headed
from ipyagent.journal.events import MemoryExtracted, MemorySaved, MemorySurfaced, SystemPromptFrozen, ToolCalled, UserMessage
from ipyagent.parts.memory.store import MemoryStore

NOTEBOOK = "02_memory.ipynb"


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return execute(NOTEBOOK, tmp_path_factory.mktemp("memory"))


def test_it_runs_without_key_or_network(run: Run) -> None:
    run.check(sessions=2)


def test_what_is_asked_for_is_saved_at_once_with_its_source(run: Run) -> None:
    asked = of(run.sessions[0], MemorySaved)[0]
    assert (asked.change, asked.by) == ("created", "agent")
    name = asked.path.rpartition("/")[2]
    assert f"saved: {name} (undo: %memory forget {name})" in run.text("remember")
    shown = run.text("files")
    assert f"--- {name}" in shown
    head = read_headed(shown.partition(f"--- {name}\n")[2].encode())
    assert head.fields["source"] == "said"
    assert head.fields["type"] == "feedback"
    assert head.fields["turn"] == 3
    assert (run.folder / ".ipyagent" / "sessions" / head.fields["session"]).is_dir()
    assert f"]({name}) — " in shown


def test_what_was_only_mentioned_is_saved_behind_the_turn(run: Run) -> None:
    behind = of(run.sessions[0], MemorySaved)[1]
    assert behind.by == "extraction"
    assert behind.path.startswith("/memories/user/")
    assert (run.home / "memory" / behind.path.rpartition("/")[2]).is_file()
    assert behind.path.rpartition("/")[2] in run.text("behind")
    written = [event for event in of(run.sessions[0], MemoryExtracted) if event.files]
    assert len(written) == 1
    assert "saved: 1 by agent, 1 by extraction" in run.text("stats")


def test_a_session_that_heard_nothing_follows_the_rule_and_the_cell_says_what_it_recalled(run: Run) -> None:
    monday, tuesday = run.sessions[:2]
    asked = "Plot penguins body mass by flipper length."
    assert asked in [event.text for event in of(monday, UserMessage)]
    assert [event.text for event in of(tuesday, UserMessage)] == [asked]
    drawn = [[event.input["code"] for event in of(events, ToolCalled) if ".plot." in str(event.input.get("code"))]
             for events in (monday, tuesday)]  # fmt: skip
    assert "(mm)" not in str(drawn[0])
    assert 'ylabel="body mass (g)"' in drawn[1][0].replace("'", '"')  # the same request, with units
    figures = [[output.data["image/png"] for output in cell.outputs if "image/png" in output.get("data", {})]
               for cell in run.notebook.cells if cell.id in ("monday-plot", "tuesday-plot")]  # fmt: skip
    assert [len(each) for each in figures] == [1, 1]
    assert figures[0] != figures[1]
    (surfaced,) = of(tuesday, MemorySurfaced)
    (memory,) = surfaced.memories
    rule, about_me, added = of(monday, MemorySaved)[:3]
    assert memory.path == added.path
    head = json.dumps([block["text"] for block in of(tuesday, SystemPromptFrozen)[0].system])
    assert all(own.path.rpartition("/")[2] in head for own in (rule, about_me))
    assert "units on their axes" in head
    assert memory.path.rpartition("/")[2].replace("_", "\\_") in "".join(run.markdown("tuesday-plot"))
    tried = run.text("try-recall")
    assert "shown in this session already" in tried
    assert "nothing would be shown to the model" in tried  # with vectors, what comes close stands below


def test_two_kernels_at_once_lose_nothing_and_the_index_is_true(run: Run) -> None:
    files = sorted(file.name for file in run.memory.glob("*.md") if file.name != "MEMORY.md")
    index = (run.memory / "MEMORY.md").read_text("utf-8")
    lines = [line for line in index.splitlines() if line.startswith("- [")]
    assert len(files) == len(lines) == 22
    assert run.text("both-figures").splitlines() == [
        "22 files, 22 lines in the index",
        "every file has its line: True",
        "4 files of the four facts that both know",
    ]
    assert all(f"]({name})" in index for name in files)
    assert run.text("doctor").count("duplicate") == 0
    texts = [(run.memory / name).read_text("utf-8") for name in files]
    for side in ("northern", "southern"):
        assert sum(f"\n{side} team counts colony" in text for text in texts) == 8


def test_of_two_edits_of_one_version_the_second_is_refused(run: Run) -> None:
    said = run.text("same")
    assert said.startswith("Say g and mm.  ok: saved")
    assert re.search(r"^Say kg and m\.  error: .* was changed since this cell was made", said, re.M)
    assert said.rstrip().endswith("Say g and mm.")


def test_the_saved_browser_lists_every_memory(run: Run) -> None:
    (output,) = run.outputs("browser")
    for name in (*run.memory.glob("[!M]*.md"), *(run.home / "memory").glob("[!M]*.md")):
        assert name.name in output["data"]["text/plain"]
        assert name.name in output["data"]["text/html"]
    assert "widget-view" not in str(output)


def test_what_was_forgotten_is_there_again(run: Run) -> None:
    name = of(run.sessions[0], MemorySaved)[0].path.rpartition("/")[2]
    said = run.text("forget")
    assert f"forgotten: project/{name}" in said
    assert "\nFalse\n" in said
    versions = [version.revision for version in MemoryStore(run.memory, "project").versions(name)]
    assert all(f"  {revision}  until " in said for revision in versions)
    assert len(versions) == 2
    assert run.text("restore").rstrip().endswith("Say g and mm.")
    assert (run.memory / name).read_text("utf-8").endswith("Say g and mm.\n")
