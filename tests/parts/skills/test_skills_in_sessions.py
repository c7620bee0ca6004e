"""Skills in real turns against the practice server: the prefix stays, the disk is followed, nothing grants a right."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from compact_room import CompactRoom, compact_room, plain, words
from skill_room import make

from ipyagent import Agent
from ipyagent.errors import UsageError
from ipyagent.extension.completion import Completions
from ipyagent.journal.events import Compacted, SkillLoaded, SkillsListed, SystemPromptFrozen, ToolReturned
from ipyagent.parts.skills import COMMANDS, names, run_skills
from ipyagent.parts.skills.parse import FILE, violations
from ipyagent.practice.replies import text, tool

BODY = "# Draw\n\n1. Look at the axes.\n2. Name the units."


@pytest.fixture
def place(tmp_path: Path) -> Iterator[CompactRoom]:
    make(tmp_path / "home" / "skills" / "heron-plots", "draws plots of herons", BODY)
    with compact_room(tmp_path) as made:
        yield made


def head(body: dict[str, Any]) -> str:
    """System and tools without the cache marks, which may move."""
    blocks = (*body["system"], *body["tools"])
    return json.dumps([{key: block[key] for key in block if key != "cache_control"} for block in blocks])


def system(body: dict[str, Any]) -> str:
    return "\n".join(block["text"] for block in body["system"])


def last(body: dict[str, Any]) -> str:
    return plain(body["messages"][-1]["content"])


def load_tool(body: dict[str, Any]) -> Any:
    return next((each for each in body["tools"] if each["name"] == "load_skill"), None)


def result(place: CompactRoom, agent: Agent) -> ToolReturned:
    return place.of(agent, ToolReturned)[-1]


def test_the_catalogue_and_the_tool_stand_in_the_head_and_the_model_loads_a_skill_once(place: CompactRoom) -> None:
    agent = place.agent(skills=True, mode="ask")
    place.turn(agent, "draw", *(tool("load_skill", {"name": "heron-plots"}),) * 2, text("ok"))
    body = place.bodies[0]
    assert "- heron-plots: draws plots of herons" in system(body)
    assert BODY not in system(body)
    assert "heron-plots" in load_tool(body)["input_schema"]["properties"]["name"]["enum"]
    (listed,) = place.of(agent, SkillsListed)
    assert "heron-plots" in listed.skills
    first, second = place.of(agent, ToolReturned)
    assert not first.is_error
    assert BODY in plain(first.blocks)
    assert "in the context already" in plain(second.blocks)
    (loaded,) = place.of(agent, SkillLoaded)
    assert (loaded.name, loaded.by) == ("heron-plots", "model")
    place.nothing_refused()
    place.replays(agent)


def test_without_skills_there_is_no_section_and_no_tool_and_turning_them_on_is_a_recorded_decision(
    place: CompactRoom,
) -> None:
    agent = place.agent()
    place.turn(agent, "/heron-plots hello")
    body = place.bodies[-1]
    assert "<skills>" not in system(body)
    assert load_tool(body) is None
    assert last(body).endswith("/heron-plots hello")
    assert place.of(agent, SkillsListed) == []
    place.turn(agent, "go", tool("load_skill", {"name": "heron-plots"}), text("no"))
    assert result(place, agent).is_error
    run_skills(agent, "on")
    place.turn(agent, "again")
    assert load_tool(place.bodies[-1]) is not None
    assert [event.why for event in place.of(agent, SystemPromptFrozen)] == ["", "there are skills now"]
    place.replays(agent)


def test_the_prefix_stays_while_the_disk_changes_and_the_next_request_tells(place: CompactRoom, tmp_path: Path) -> None:
    agent = place.agent(skills=True)
    place.turn(agent, "hello", tool("load_skill", {"name": "heron-plots"}), text("ok"))
    before = head(place.bodies[-1])
    make(tmp_path / "home" / "skills" / "heron-plots", "draws plots of herons", "Use metres.")
    make(tmp_path / "home" / "skills" / "egret-tables", "cleans tables of egrets")
    place.turn(agent, "go on", tool("load_skill", {"name": "egret-tables"}), text("ok"))
    body = place.bodies[-2]
    assert head(body) == before
    assert "- egret-tables: cleans tables of egrets" in last(body)
    assert "Changed since you loaded it: heron-plots." in last(body)
    assert last(body).endswith("go on")
    assert not result(place, agent).is_error, "one that came later is taken, though the schema does not name it"
    (tmp_path / "home" / "skills" / "egret-tables" / FILE).unlink()
    place.turn(agent, "and on", tool("load_skill", {"name": "heron-plots"}), text("ok"))
    assert "There no longer: egret-tables" in last(place.bodies[-2])
    assert "Use metres." in plain(result(place, agent).blocks), "what was edited is used at the next request"
    place.turn(agent, "quiet")
    assert "Skills on the disk" not in last(place.bodies[-1])
    assert head(place.bodies[-1]) == before
    place.nothing_refused()
    place.replays(agent)


def test_a_slash_loads_before_the_request(place: CompactRoom) -> None:
    agent = place.agent(skills=True)
    place.turn(agent, "/heron-plots draw df")
    texts = [block["text"] for block in place.bodies[-1]["messages"][-1]["content"]]
    assert texts[-1] == "draw df"
    (skill,) = [each for each in texts if each.startswith("<skill ")]
    assert BODY in skill
    assert "Loaded by the user" in skill
    (loaded,) = place.of(agent, SkillLoaded)
    assert loaded.by == "user"
    place.turn(agent, "/heron-plots again")
    assert "<skill " not in last(place.bodies[-1])
    assert "go by the skill heron-plots, which is in the context already" in last(place.bodies[-1])
    assert any("in the context already" in notice for notice in agent.notices)
    place.turn(agent, "/heron-plot x")
    assert last(place.bodies[-1]).endswith("/heron-plot x")
    assert any("did you mean /heron-plots?" in notice for notice in agent.notices)
    place.nothing_refused()
    place.replays(agent)


@pytest.mark.parametrize("how", ["model", "user"])
def test_a_loaded_skill_outlives_a_compaction(place: CompactRoom, how: str) -> None:
    agent = place.agent(skills=True)
    place.turn(agent, words(1, 3_000))
    if how == "user":
        place.turn(agent, "/heron-plots draw", text("ok"))
    else:
        place.turn(agent, "draw", tool("load_skill", {"name": "heron-plots"}), text("ok"))
    place.turn(agent, words(2, 3_000))
    agent.compact("")
    (made,) = place.of(agent, Compacted)
    assert "skill heron-plots" in made.restored
    place.turn(agent, "go on", tool("load_skill", {"name": "heron-plots"}), text("ok"))
    sent = "\n".join(plain(message["content"]) for message in place.bodies[-2]["messages"])
    assert sent.count(BODY) == 1
    assert "in the context already" in plain(result(place, agent).blocks)
    place.turn(agent, words(3, 3_000))
    agent.compact("")
    assert "skill heron-plots" in place.of(agent, Compacted)[-1].restored
    place.nothing_refused()
    place.replays(agent)


def test_clearing_leaves_a_loaded_skill(place: CompactRoom) -> None:
    agent = place.agent(skills=True, clear_policy="every_turn", clear_keep=0)
    place.turn(agent, "draw", tool("load_skill", {"name": "heron-plots"}), text("ok"))
    for number in range(4):
        code = f"print('x{number} ' * 3000)"
        place.turn(agent, "run", tool("python", {"code": code}), text("ok"))
    sent = "\n".join(plain(message["content"]) for message in place.bodies[-1]["messages"])
    assert "x0 x0" not in sent
    assert BODY in sent


def test_files_of_a_skill_are_read_without_a_question_and_run_only_with_one(place: CompactRoom, tmp_path: Path) -> None:
    folder = tmp_path / "home" / "skills" / "heron-plots"
    (folder / "scripts").mkdir()
    (folder / "scripts" / "draw.py").write_text("print('drawn')")
    agent = place.agent(skills=True, mode="ask")
    place.turn(agent, "read", tool("read_file", {"path": str(folder / "scripts" / "draw.py")}), text("ok"))
    assert "print('drawn')" in plain(result(place, agent).blocks)
    command = f"python {folder / 'scripts' / 'draw.py'}"
    place.turn(agent, "run", tool("shell", {"command": command}), text("ok"))
    assert result(place, agent).is_error
    secret = tmp_path / "home" / "secret.txt"
    secret.write_text("SECRET")
    (folder / "link.txt").symlink_to(secret)
    place.turn(agent, "read", tool("read_file", {"path": str(folder / "link.txt")}), text("ok"))
    assert result(place, agent).is_error
    assert "SECRET" not in plain(result(place, agent).blocks)


def test_an_untrusted_project_brings_no_skills_and_one_line(place: CompactRoom) -> None:
    make(place.folder / ".claude" / "skills" / "stork", "does what storks do", "STORK")
    (place.folder / ".ipyagent").mkdir()
    agent = place.agent(skills=True, trust_all=False)
    place.turn(agent, "/stork hello", tool("load_skill", {"name": "stork"}), text("ok"))
    assert "stork" not in system(place.bodies[-2])
    assert result(place, agent).is_error
    assert sum("not trusted yet" in notice for notice in agent.notices) == 1
    assert "not used: it is not trusted" in run_skills(agent, "")
    agent.trust()
    place.turn(agent, "/stork hello", tool("load_skill", {"name": "stork"}), text("ok"))
    assert "- stork: does what storks do" in system(place.bodies[-2])
    assert "STORK" in last(place.bodies[-2])


def test_a_resumed_session_knows_what_is_loaded(place: CompactRoom, tmp_path: Path) -> None:
    agent = place.agent(skills=True)
    place.turn(agent, "draw", tool("load_skill", {"name": "heron-plots"}), text("ok"))
    name = place.session(agent).journal.session
    agent.close()
    make(tmp_path / "home" / "skills" / "egret-tables", "cleans tables of egrets")
    other = place.agent(skills=True)
    other.resume(name)
    place.turn(other, "go on", tool("load_skill", {"name": "heron-plots"}), text("ok"))
    assert "- egret-tables:" in last(place.bodies[-2])
    assert "in the context already" in plain(result(place, other).blocks)


# ---------------------------------------------------------------------- %skills


def test_a_new_skill_is_valid_and_used_at_once(place: CompactRoom) -> None:
    agent = place.agent(skills=True)
    told = run_skills(agent, "new Egret_Tables Cleans tables: dates, units; use it before any join")
    folder = place.folder / "skills" / "egret-tables"
    assert str(folder / FILE) in told
    assert "its name is egret-tables" in told
    assert violations(folder) == []
    place.turn(agent, "hello")
    assert "- egret-tables: Cleans tables: dates, units; use it before any join" in system(place.bodies[-1])
    with pytest.raises(UsageError, match="already exists"):
        run_skills(agent, "new egret-tables")
    assert "there is a skill egret-tables in" in run_skills(agent, "new --user egret-tables")
    run_skills(agent, "new --user mine")
    assert violations(agent.project.user / "skills" / "mine") == []
    assert run_skills(agent, "doctor mine") == "mine is valid in every point"


def test_load_goes_with_the_next_request_alone_and_the_list_says_what_is_loaded(place: CompactRoom) -> None:
    agent = place.agent(skills=True)
    make(place.folder / "skills" / "stork", "does what storks do")
    told = run_skills(agent, "")
    assert "this project:\n  stork " in told
    assert "yours:\n  heron-plots " in told
    assert "goes with your next request: about " in run_skills(agent, "load heron-plots")
    place.turn(agent, "draw")
    assert BODY in last(place.bodies[-1])
    assert last(place.bodies[-1]).endswith("draw")
    assert "* heron-plots" in run_skills(agent, "list")
    place.turn(agent, "more")
    assert "<skill " not in last(place.bodies[-1])


def test_show_doctor_and_completion_tell_what_is_there(place: CompactRoom, tmp_path: Path) -> None:
    agent = place.agent(skills=True)
    told = run_skills(agent, "show heron-plots")
    assert told.endswith(BODY)
    assert str(tmp_path / "home" / "skills" / "heron-plots" / FILE) in told
    bad = tmp_path / "home" / "skills" / "bad"
    bad.mkdir()
    (bad / FILE).write_text("---\nname: bad\n---\nno description\n")
    told = run_skills(agent, "doctor")
    assert f"{bad / FILE}: line 1: no description: add one to the frontmatter (skipped)" in told
    assert "heron-plots" in run_skills(agent, "")
    with pytest.raises(UsageError, match="near: heron-plots"):
        run_skills(agent, "show heron")
    with pytest.raises(UsageError, match="no command 'shw'"):
        run_skills(agent, "shw x")
    assert all(f"%skills {name}" in run_skills(agent, "help") for name in COMMANDS)
    completions = Completions(agent.shell, ("ipyagent", "agent"), None, lambda: names(agent))

    def after(line: str) -> list[str]:
        return [found for found, _ in completions.complete(line)[1]]

    assert after("%skills lo") == ["load"]
    assert after("%skills load her") == ["heron-plots"]
    assert after("%agent skills show her") == ["heron-plots"]
    assert after("%%agent\n/her") == ["/heron-plots"]
    assert after("%%agent\n/heron-plots /her") == ["/heron-plots"]
    assert after("%%agent\nsee /her") == []
    assert after("%skills new x") == []


def test_a_catalogue_that_is_cut_is_told_once(place: CompactRoom) -> None:
    for number in range(300):
        make(place.folder / "skills" / f"s{number:03}", "word " * 40)
    agent = place.agent(skills=True, window=60_000)
    place.turn(agent, "hello")
    place.turn(agent, "again")
    assert sum("to fit the window" in notice or "fit the window" in notice for notice in agent.notices) == 1
    place.turn(agent, "x", tool("load_skill", {"name": "s299"}), text("ok"))
    assert not result(place, agent).is_error
