"""The head of the requests: the same bytes for a whole session, anew where that costs nothing, never too large."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from agents_room import agents

from ipyagent import Agent
from ipyagent.journal.events import CacheBroken, Event, MemorySurfaced, SystemPromptFrozen
from ipyagent.journal.tokens import estimate_block
from ipyagent.parts.memory import MemoryPart
from ipyagent.parts.memory.store import MemoryStore
from ipyagent.parts.memory.transcripts import search_sessions
from ipyagent.practice.replies import text, tool
from ipyagent.practice.server import PracticeServer
from ipyagent.reports.timeline import Shares

Make = Callable[..., Agent]


@pytest.fixture
def server() -> Iterator[PracticeServer]:
    with PracticeServer() as running:
        yield running
    assert [exchange.error for exchange in running.refused] == []


@pytest.fixture
def make(tmp_path: Path, server: PracticeServer) -> Iterator[Make]:
    with agents(tmp_path, server.url, max_retry_wait=0.01, recall=False, skills=False) as made:
        yield made


def remember(agent: Agent, name: str, *, scope: str = "project", words: str = "") -> None:
    store: MemoryStore = agent.part(MemoryPart).memories.store(scope)
    body = f"---\nname: {name}\ndescription: {words or f'what {name} is about'}\ntype: project\n---\n\nA fact.\n"
    store.write(f"{name}.md", body, expected=None, by="user")


def system(server: PracticeServer, number: int = -1) -> list[dict[str, Any]]:
    sent = server.messages[number].body["system"]
    return [{key: block[key] for key in block if key != "cache_control"} for block in sent]


def words(server: PracticeServer, number: int = -1) -> str:
    return "\n\n".join(block["text"] for block in system(server, number))


def events(agent: Agent, kind: type[Event]) -> list[Any]:
    return [event for event in agent.session.journal.read() if isinstance(event, kind)]


# ---------------------------------------------------------------------- one session, one head


def test_instructions_a_teams_guidelines_and_both_indexes_stand_in_the_head(
    make: Make, server: PracticeServer, tmp_path: Path
) -> None:
    agent = make(memory_guidelines="policy.md", trust_all=True)
    agent.run_sync("hello")
    assert "memory-guidelines" not in words(server)
    assert any("memory_guidelines: policy.md cannot be read" in line for line in agent.notices)
    (tmp_path / "project" / "policy.md").write_text("Never save names of patients.\n")
    remember(agent, "plots")
    remember(agent, "style", scope="user")
    (tmp_path / "project" / "AGENTS.md").write_text("Be short.")
    agent.new()
    agent.run_sync("hello")
    told = words(server)
    assert "<memory-guidelines>\nNever save names of patients.\n</memory-guidelines>" in told
    places = [told.index(part) for part in ("You are ipyagent", "Be short.", "(style.md)", "(plots.md)")]
    assert places == sorted(places)
    assert len(system(server)) == 3


def test_a_memory_that_is_saved_changes_no_byte_of_the_running_session(
    make: Make, server: PracticeServer, tmp_path: Path
) -> None:
    agent = make()
    server.script(tool("memory", {"command": "create", "path": "/memories/project/egrets.md", "file_text":
                  "---\nname: Egrets\ndescription: where egrets nest\ntype: project\n---\n\nIn the reeds.\n"}),
                  text("saved"), text("yes"))  # fmt: skip
    assert agent.run_sync("remember where they nest: in the reeds").status == "finished"
    (tmp_path / "project" / "AGENTS.md").write_text("Be short.")
    agent.run_sync("and now?")
    assert system(server, -1) == system(server, -3)
    assert "egrets.md" not in words(server)
    assert len(events(agent, SystemPromptFrozen)) == 1
    newest = server.messages[-1].usage
    assert newest["cache_read_input_tokens"] >= server.messages[-2].prompt_tokens - 64
    agent.new()
    agent.run_sync("hello")
    assert "egrets.md" in words(server)
    assert "Be short." in words(server)


def test_a_second_session_with_the_same_memory_reads_its_head_from_the_cache(
    make: Make, server: PracticeServer, tmp_path: Path
) -> None:
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "AGENT.md").write_text("Answer in whole sentences. " * 40)
    agent = make()
    for number in range(30):
        remember(agent, f"fact_{number}", scope="user")
    agent.run_sync("hello")
    first = server.messages[-1]
    assert first.usage["cache_read_input_tokens"] == 0
    agent.new()
    agent.run_sync("good morning")
    other = make()
    other.run_sync("good evening")
    assert "fact_29" in words(server)
    for exchange in server.messages[-2:]:
        read = exchange.usage["cache_read_input_tokens"]
        assert read >= exchange.prompt_tokens - exchange.usage["cache_creation_input_tokens"] - 8
        assert exchange.usage["cache_creation_input_tokens"] < 400, "only the message is new"


def test_a_resumed_session_keeps_its_head_whatever_the_files_say_now(
    make: Make, server: PracticeServer, tmp_path: Path
) -> None:
    agent = make()
    agent.run_sync("hello")
    name = agent.session.journal.session
    remember(agent, "plots")
    (tmp_path / "project" / "AGENTS.md").write_text("Be short.")
    agent.close()
    again = make()
    again.resume(name)
    again.run_sync("go on")
    assert system(server, -1) == system(server, -2)


def rule(agent: Agent, name: str, body: str) -> None:
    text = f"---\nname: {name}\ndescription: {body}\ntype: feedback\nsource: said\n---\n{body}\n"
    agent.part(MemoryPart).memories.store("user").write(f"{name}.md", text, expected=None, by="user")


def test_the_users_own_rules_stand_in_the_head_and_are_not_recalled_into_it_again(
    make: Make, server: PracticeServer
) -> None:
    agent = make(recall=True, recall_selector=False, recall_when="before")
    rule(agent, "plots", "Plot herons with matplotlib only.")
    remember(agent, "herons", words="how herons are counted in plots")
    agent.run_sync("plot the herons with matplotlib")
    assert "Plot herons with matplotlib only." in words(server, 0)
    assert "(plots.md)" not in words(server, 0)
    assert events(agent, SystemPromptFrozen)[0].memories == ("/memories/user/plots.md",)
    assert {one.path for event in events(agent, MemorySurfaced) for one in event.memories} == {
        "/memories/project/herons.md"
    }
    rule(agent, "late", "Plot egrets with seaborn.")
    agent.run_sync("plot the egrets with seaborn")
    assert system(server, -1) == system(server, 0), "the same bytes for the whole session"
    assert "late.md" in str(server.messages[-1].body)
    agent.part(MemoryPart).memories.store("project").delete("herons.md", by="user")
    agent.new()
    agent.run_sync("hello there")
    assert "Plot egrets with seaborn." in words(server)
    assert "<memory-index" not in words(server)
    view = agent.session.view  # type: ignore[union-attr] # it has one
    shares = Shares().estimated(view)
    assert (shares["system prompt"], shares["memory"]) == tuple(estimate_block(block) for block in view.system)


def test_what_the_model_saved_is_not_recalled_into_the_session_that_saved_it(
    make: Make, server: PracticeServer
) -> None:
    agent = make(recall=True, recall_selector=False, recall_when="before")
    server.script(tool("memory", {"command": "create", "path": "egrets", "file_text": "Egrets nest in the reeds."}),
                  text("saved"))  # fmt: skip
    agent.run_sync("remember that egrets nest in the reeds")
    agent.run_sync("where do egrets nest, in the reeds?")
    assert events(agent, MemorySurfaced) == []
    agent.new()
    agent.run_sync("where do egrets nest, in the reeds?")
    assert [one.path for event in events(agent, MemorySurfaced) for one in event.memories] == [
        "/memories/project/egrets.md"
    ]


# ---------------------------------------------------------------------- a compaction


def talk(agent: Agent, server: PracticeServer, turns: int = 4) -> None:
    for number in range(turns):
        server.script(text(f"Answer {number}: " + f"heron {number} flew over the lake. " * 60, thinking="Let me see."))
        agent.run_sync(f"question {number} " + "about birds " * 60)


def test_after_a_compaction_index_and_instructions_are_read_again(
    make: Make, server: PracticeServer, tmp_path: Path
) -> None:
    agent = make()
    talk(agent, server)
    remember(agent, "plots")
    (tmp_path / "project" / "AGENTS.md").write_text("Be short.")
    agent.run_sync("one more")
    assert "plots.md" not in words(server)
    server.script(text("<analysis>a</analysis>\n<summary>They spoke of birds.</summary>"))
    agent.compact()
    agent.run_sync("go on")
    assert "(plots.md)" in words(server)
    assert "Be short." in words(server)
    assert [event.why for event in events(agent, SystemPromptFrozen)] == ["", "after a compaction"]
    agent.run_sync("and on")
    assert system(server, -1) == system(server, -2)
    assert [event for event in events(agent, CacheBroken) if not event.expected] == []


def test_a_compaction_of_later_turns_or_with_nothing_new_on_the_disk_keeps_the_head(
    make: Make, server: PracticeServer
) -> None:
    agent = make()
    talk(agent, server, 6)
    remember(agent, "plots")
    store = agent.part(MemoryPart).memories.store("project")
    for what in ("--from 3", ""):
        server.script(text("<summary>They spoke of birds.</summary>"))
        agent.compact(what)
        agent.run_sync("go on")
        assert len(events(agent, SystemPromptFrozen)) == 1
        assert "plots.md" not in words(server)
        if store.exists("plots.md"):
            store.delete("plots.md", by="user")  # the disk is as it was


def test_after_a_compaction_by_the_server_too(make: Make, server: PracticeServer) -> None:
    agent = make(engine="server")
    talk(agent, server)
    remember(agent, "plots")
    told = agent.compact()
    assert "(server)" in told
    agent.run_sync("go on")
    assert "(plots.md)" in words(server)


# ---------------------------------------------------------------------- on the disk


@pytest.mark.skipif(os.name == "nt", reason="no such modes there")
@pytest.mark.parametrize("umask", [0o000, 0o077])
def test_what_a_session_leaves_is_for_its_user_alone_whatever_the_umask(
    make: Make, server: PracticeServer, tmp_path: Path, umask: int
) -> None:
    before = os.umask(umask)
    try:
        agent = make(recall=True, recall_selector=False, recall_when="before")
        remember(agent, "style", scope="user")
        path = "/memories/project/egrets.md"
        server.script(tool("memory", {"command": "create", "path": path, "file_text": "Egrets nest in the reeds."}),
                      tool("memory", {"command": "insert", "path": path, "insert_line": 99, "insert_text": "x"}),
                      tool("memory", {"command": "str_replace", "path": path, "old_str": "reeds", "new_str": "rushes"}),
                      text("saved"))  # fmt: skip
        assert agent.run_sync("remember where egrets nest").status == "finished"
        agent.new()
        agent.run_sync("where do egrets nest in style?")
        for scope in ("project", "user"):
            store = agent.part(MemoryPart).memories.store(scope)
            store.snapshot()
        search_sessions(list(agent.project.session_folders()), "egrets", cache=tmp_path / "home" / "cache" / "x.sqlite")
    finally:
        os.umask(before)
    state = tmp_path / "project" / ".ipyagent"
    own = [tmp_path / "home", *(state / name for name in ("memory", "sessions", "cache"))]
    found = [path for folder in own for path in (folder, *folder.rglob("*")) if folder.exists()]
    open_to_others = [(str(path), oct(path.lstat().st_mode)) for path in found if path.lstat().st_mode & 0o077]
    assert open_to_others == []
    names = {path.name for path in found}
    assert names >= {"egrets.md", "style.md", "snapshots", "versions", "transcript.jsonl", "lock"}


# ---------------------------------------------------------------------- small windows


def long_indexes(agent: Agent) -> None:
    for scope in ("project", "user"):
        store = agent.part(MemoryPart).memories.store(scope)
        store.folder.mkdir(parents=True, exist_ok=True)
        lines = [f"- [Fact {n}](fact_{n}.md) — {'what was found out about herons ' * 3}" for n in range(190)]
        (store.folder / "MEMORY.md").write_text("\n".join(lines) + "\n")


def test_long_indexes_and_instructions_never_cost_the_session(
    make: Make, server: PracticeServer, tmp_path: Path
) -> None:
    for window in (4_000, 8_000, 16_000, 200_000):
        agent = make(window=window)
        agent.project.make()
        long_indexes(agent)
        (tmp_path / "project" / "AGENTS.md").write_text("A rule of the house.\n" * 1_500)
        server.script(text("here"), text("and here"))
        result = agent.run_sync("hello")
        told = "\n".join(agent.notices)
        assert result.status == "finished", result.message
        assert agent.run_sync("again").status == "finished"
        (rendered,) = events(agent, SystemPromptFrozen)
        assert rendered.tokens < 0.9 * window
        if window == 4_000:  # no room for memory at all
            left = "notebook, plan, past_sessions, agent, compact, memory"
            assert left in told.partition("has no room for the tools ")[2]
        elif window < 200_000:
            assert "memory index is longer than this window allows" in told
            assert len([line for line in agent.notices if "longer than" in line]) == 2
        else:
            assert "fact_189" in words(server)
        assert ("instructions are longer than this window allows" in told) == (window < 200_000)


# ---------------------------------------------------------------------- switches


def test_memory_and_instructions_that_are_off_leave_nothing(make: Make, server: PracticeServer, tmp_path: Path) -> None:
    agent = make(memory=False, instructions=False)
    (tmp_path / "home").mkdir(exist_ok=True)
    (tmp_path / "home" / "AGENT.md").write_text("Be short.")
    agent.run_sync("hello")
    assert len(system(server)) == 1
    assert "/memories" not in words(server)


def test_ignore_memory_is_said_with_the_request_and_changes_no_prefix(make: Make, server: PracticeServer) -> None:
    agent = make(recall=True, recall_selector=False, recall_when="before")
    agent.project.make()
    remember(agent, "herons", words="how many herons 有多少苍鹭")
    agent.run_sync("hello")
    for said in ("Ignore memory: how many herons?", "How many? Don't use your memory.", "忽略记忆，有多少苍鹭？"):
        agent.run_sync(said)
        assert system(server, -1) == system(server, -2)
        told = [block["text"] for block in server.messages[-1].body["messages"][-1]["content"]]
        assert any("memory left aside" in each for each in told)
        assert events(agent, MemorySurfaced) == []
    for said in ("How many herons are there, 有多少苍鹭？", "ignore memory errors, run it without memory limits"):
        agent.run_sync(said)
        assert "memory left aside" not in str(server.messages[-1].body["messages"][-1])  # type: ignore[index]
