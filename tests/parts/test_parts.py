"""The seam: each part of the agent can be left out, and one of another package comes without a line of ours."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from compact_room import CompactRoom, compact_room, words
from rooms import MODEL

from ipyagent import IPyAgent
from ipyagent.errors import UsageError
from ipyagent.extension import Extension
from ipyagent.extension.commands import commands_of, run_command
from ipyagent.extension.completion import Completions
from ipyagent.extension.doctor import doctor
from ipyagent.journal.events import Compacted, PartEvent, ToolReturned, TurnEnded
from ipyagent.journal.view import ContextView
from ipyagent.kernel.scope import make_shell
from ipyagent.parts import BUILT_IN
from ipyagent.practice.replies import text, tool
from ipyagent.tools.catalogue import told_of

TOOLS = {
    "files": {"read_file", "edit_file", "write_file", "glob", "grep"},
    "shell": {"shell"},
    "notebooks": {"notebook"},
    "plan": {"plan"},
    "memory": {"memory", "past_sessions"},
    "skills": {"load_skill"},
    "subagents": {"agent"},
    "messages": {"send_message"},
}
COMMANDS = {"memory": "memory", "skills": "skills", "subagents": "subagents", "messages": "messages"}
COMMANDS |= {"mcp": "mcp", "pins": "pin"}
TABS = {"memory": "Memory", "skills": "Skills", "subagents": "Sub-agents"}


@pytest.fixture
def place(tmp_path: Path) -> Iterator[CompactRoom]:
    with compact_room(tmp_path) as made:
        yield made


@pytest.fixture
def extension(place: CompactRoom, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Extension]:
    """ipyagent in a shell of its own, in the place's folder, with these parts left out."""
    monkeypatch.chdir(place.folder)
    given = {"BASE_URL": place.server.url, "MODEL": MODEL, "MODE": "auto", "MAX_RETRIES": "0", "TRUST_ALL": "1"}
    for name, value in given.items():
        monkeypatch.setenv(f"IPYAGENT_{name}", value)

    def make(*without: str) -> Extension:
        monkeypatch.setenv("IPYAGENT_WITHOUT", json.dumps(without))
        made = Extension(make_shell())
        place.agents.append(made.agent_now)
        return made

    return make


def said(extension: Extension, line: str, capsys: pytest.CaptureFixture[str]) -> str:
    """What `%agent LINE` prints."""
    capsys.readouterr()
    assert run_command(extension, line) is None
    return capsys.readouterr().out


@pytest.mark.parametrize("name", BUILT_IN)
def test_without_a_part_all_else_works(
    name: str, place: CompactRoom, extension: Callable[..., Extension], capsys: pytest.CaptureFixture[str]
) -> None:
    made = extension(name)
    agent = made.agent_now
    assert [part.name for part in agent.parts] == [part for part in BUILT_IN if part != name]
    place.turn(agent, f"weigh {words(1, 3_000)}", tool("python", {"code": "box = 3; box"}), text("weighed"))
    place.turn(agent, "and now?", text("three kilos"))
    tools = told_of(place.bodies[0]["tools"])
    every = set[str]().union(*TOOLS.values())
    assert tools & every == every - TOOLS.get(name, set())
    assert {"python", "variables"} <= tools
    assert place.of(agent, ToolReturned)[-1].is_error is False
    agent.compact()
    assert place.of(agent, Compacted)
    place.replays(agent)

    listed = said(made, "help", capsys)
    assert (f"%agent {COMMANDS.get(name)} " in listed) is False
    assert all(f"%agent {each} " in listed for part, each in COMMANDS.items() if part != name)
    if name in COMMANDS:
        with pytest.raises(UsageError, match="has no command"):
            run_command(made, COMMANDS[name])
    shown = said(made, "panel", capsys)
    assert (f"{TABS[name]}: " in shown) is False if name in TABS else "Memory: " in shown
    assert "Context: 2 turns" in shown
    assert f" {name} " not in "".join(line[:16] for line in doctor(agent, None)[0].splitlines())
    session = place.session(agent).journal.session
    agent.close()

    again = extension(name).agent_now
    again.resume(session)
    place.turn(again, "still there?", text("still"))
    assert place.of(again, TurnEnded)[-1].status == "finished"
    place.replays(again)
    place.nothing_refused()


WEATHER = '''
from contextlib import asynccontextmanager

from ipyagent import tool
from ipyagent.journal.events import PartEvent
from ipyagent.parts import Check, Command, Part, Section, Tab


class Asked:
    def __init__(self):
        self.towns = []

    def apply(self, event):
        if isinstance(event, PartEvent) and event.part == "weather":
            self.towns.append(event.data["town"])


@tool(permission="none", writes=False)
def forecast(town: str) -> str:
    """What the weather will be.

    Args:
        town: Its name.
    """
    return f"rain in {town}"


class Weather(Part):
    name, order, states = "weather", 45, (Asked,)

    def __init__(self, host):
        self.host = host

    def tools(self, session):
        return {"forecast": forecast}

    def prompt_section(self, space):
        return Section("<weather>The user lives in Oslo.</weather>") if "forecast" in space.tools else None

    @asynccontextmanager
    async def turn(self, turn):
        turn.session.record(PartEvent(part="weather", kind="seen", data={"town": "Oslo"}, text="It is 4 degrees now."))
        yield

    def commands(self):
        return {"weather": Command(lambda rest: f"towns: {self._towns()}", "Where it was looked for.", looks=True)}

    def panel(self):
        return Tab("Weather", lambda: ("1 town", ("town", "sky"), [["Oslo", "rain"]], 1))

    def doctor(self):
        return [Check("note", "no station", "build one")]

    def _towns(self):
        session = self.host.session
        return ", ".join(session.folded(Asked).towns) if session else "none"
'''


def test_a_part_of_another_package_adds_a_tool_a_section_a_command_and_a_tab(
    place: CompactRoom,
    extension: Callable[..., Extension],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    site = tmp_path / "site"
    (site / "sky-1.0.dist-info").mkdir(parents=True)
    (site / "sky-1.0.dist-info" / "METADATA").write_text("Metadata-Version: 2.1\nName: sky\nVersion: 1.0\n")
    (site / "sky-1.0.dist-info" / "entry_points.txt").write_text(
        "[ipyagent.parts]\nweather = sky:Weather\nbroken = sky:Nothing\nplan = sky:Weather\n"
    )
    (site / "sky.py").write_text(WEATHER)
    monkeypatch.syspath_prepend(site)
    monkeypatch.delitem(sys.modules, "sky", raising=False)

    made = extension()
    agent = made.agent_now
    told = "\n".join(agent.take_notices())
    assert "entry point broken = sky:Nothing: AttributeError" in told
    assert "there is a part 'plan' already" in told
    place.turn(agent, "an umbrella?", tool("forecast", {"town": "Bergen"}), text("yes"))
    first, second = place.bodies
    assert "<weather>The user lives in Oslo.</weather>" in [block["text"] for block in first["system"]]
    assert "forecast" in [block["name"] for block in first["tools"]]
    assert "It is 4 degrees now." in json.dumps(first["messages"])
    assert "rain in Bergen" in json.dumps(second["messages"])
    place.replays(agent)

    assert "%agent weather Where it was looked for." in " ".join(said(made, "help", capsys).split())
    assert said(made, "weather", capsys) == "towns: Oslo\n"
    assert said(made, "panel weather", capsys).split() == ["Weather:", "1", "town", "town", "sky", "Oslo", "rain"]
    assert "Weather: 1 town" in said(made, "panel", capsys)
    assert "! weather      no station: build one" in said(made, "doctor", capsys)
    completions = Completions(agent.shell, ("agent",), commands=lambda: list(commands_of(agent)))
    assert completions.complete("%agent wea")[1] == [("weather", "command")]
    session = place.session(agent).journal.session
    agent.close()

    again = extension()  # what the part knows comes from the journal
    again.agent_now.resume(session)
    assert said(again, "weather", capsys) == "towns: Oslo\n"
    again.agent_now.close()
    without = extension("weather").agent_now
    without.resume(session)
    events = place.events(without)
    assert [event.text for event in events if isinstance(event, PartEvent)] == ["It is 4 degrees now."]
    assert "It is 4 degrees now." in json.dumps(ContextView.of(events).messages)
    place.turn(without, "and now?", text("dry"))
    assert "forecast" not in without.tool_names()
    place.nothing_refused()


def test_a_name_that_is_no_part_is_told(place: CompactRoom) -> None:
    agent = place.agent(without=["memroy"])
    assert [line for line in agent.take_notices() if "memroy" in line]
    assert "memory" in agent.parts
    assert IPyAgent().without == []
