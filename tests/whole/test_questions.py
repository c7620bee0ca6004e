"""Real questions on real tables: the code a model would send runs in the real tool, and the result that the
model reads holds the checked answers, whole and unrounded."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from kernels import ROOT
from questions.solved import CODE
from rooms import MODEL, results

from ipyagent import Agent, IPyAgent
from ipyagent.practice.replies import text, tool
from ipyagent.practice.server import PracticeServer

TABLES = ROOT.parent / "shared" / "data" / "tables"
QUESTIONS: dict[int, dict[str, Any]] = {}
if (TABLES / "questions.jsonl").is_file():
    for line in (TABLES / "questions.jsonl").read_text("utf-8").splitlines():
        asked = json.loads(line)
        QUESTIONS[asked["id"]] = asked

pytestmark = pytest.mark.skipif(not QUESTIONS, reason="the shared tables are not here")


class Desk:
    """One agent with all tables in its folder; a question is one turn of the same conversation."""

    def __init__(self, folder: Path, server: PracticeServer) -> None:
        self.server = server
        for table in TABLES.glob("*.csv"):
            shutil.copyfile(table, folder / table.name)
        quiet = {"layer_notes": False, "extraction": False}
        settings = IPyAgent(environ={}, base_url=server.url, model=MODEL, mode="auto", **quiet)
        self.agent = Agent(settings=settings, folder=folder)


@pytest.fixture(scope="module")
def desk(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Desk]:
    place = tmp_path_factory.mktemp("questions")
    (place / "project").mkdir()
    with pytest.MonkeyPatch.context() as patch, PracticeServer() as server:
        patch.setenv("IPYAGENT_HOME", str(place / "home"))
        patch.chdir(place / "project")
        made = Desk(place / "project", server)
        yield made
        made.agent.close()
        assert [exchange.error for exchange in server.refused] == []


@pytest.mark.parametrize("number", CODE)
def test_the_result_that_the_model_reads_holds_the_answer(desk: Desk, number: int) -> None:
    question = QUESTIONS[number]
    said = "\n".join(question[part] for part in ("question", "constraints", "format"))
    said += f"\nThe table is @{question['file_name']}"
    desk.server.script(tool("python", {"code": CODE[number]}), text("Done."))
    result = desk.agent.run_sync(said)
    assert (result.status, result.text) == ("finished", "Done."), result.message
    body = desk.server.messages[-1].body
    read = results(body)[-1]
    assert not read.get("is_error"), read["text"]
    for name, value in question["answers"]:
        assert f"@{name}[{value}]" in read["text"], read["text"]
    words = [block["text"] for block in body["messages"][-3]["content"] if block["type"] == "text"]
    assert words[-1] == said
    assert any(word.startswith(f'<file path="{question["file_name"]}"') for word in words)
