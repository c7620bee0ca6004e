"""Pictures and documents in tool results: many large ones are accepted, a compaction keeps their names."""

from __future__ import annotations

import base64
import io
from typing import Any

from compact_room import CompactRoom, directive_in, words
from PIL import Image

from ipyagent import tool as make_tool
from ipyagent.journal.events import Compacted
from ipyagent.journal.protocols import ToolOutput
from ipyagent.practice.replies import calls, text, tool

PDF = base64.b64encode(b"%PDF-1.4\n1 0 obj<</Type/Catalog>>endobj\ntrailer<</Root 1 0 R>>\n%%EOF\n").decode()


@make_tool(permission="none", writes=False, parallel=True)
def scan(number: int, height: int = 250) -> Any:
    """A page as a picture, 2,500 pixels wide."""
    return Image.new("RGB", (2_500, height), (number * 9 % 256, 40, 90))


@make_tool(permission="none", writes=False)
def brochure() -> ToolOutput:
    """A PDF document."""
    source = {"type": "base64", "media_type": "application/pdf", "data": PDF}
    return ToolOutput(blocks=({"type": "document", "source": source},))


def pictures(body: dict[str, Any]) -> list[dict[str, Any]]:
    results = [block for message in body["messages"] for block in message["content"] if block["type"] == "tool_result"]
    return [part for result in results for part in result["content"] if part["type"] in ("image", "document")]


def test_twenty_one_pictures_of_2500_pixels_are_all_accepted(room: CompactRoom) -> None:
    agent = room.agent(layer_clear_results=False)
    agent.shell.user_ns["scan"] = scan
    rounds = [calls([("scan", {"number": 7 * part + n}) for n in range(7)]) for part in range(3)]
    assert room.turn(agent, "scan them all", *rounds, text("21 pages")).status == "finished"
    shown = pictures(room.bodies[-1])
    assert len(shown) == 21
    sizes = [Image.open(io.BytesIO(base64.b64decode(one["source"]["data"]))).size for one in shown]
    assert max(max(size) for size in sizes) <= 1_568
    assert room.server.refused == []


def test_a_compaction_leaves_words_for_pictures_and_documents(room: CompactRoom) -> None:
    agent = room.agent(window=40_000, layer_clear_results=False)
    agent.shell.user_ns.update(scan=scan, brochure=brochure)
    first = [tool("scan", {"number": 1, "height": 2_500}), tool("brochure", {}), text("a red page and a brochure")]
    assert room.turn(agent, "look at both", *first).status == "finished"
    assert {one["type"] for one in pictures(room.bodies[-1])} == {"image", "document"}
    for number in range(3):
        room.turn(agent, f"weigh {number}: {words(number, 9_000)}", text(words(number, 1_000)))
    room.turn(agent, "and now?", text("done"))
    session = room.session(agent)
    assert any(isinstance(event, Compacted) for event in session.journal.read())
    assert pictures(room.bodies[-1]) == []
    asked = [seen.body for seen in room.server.messages if seen.body is not None and directive_in(seen.body)]
    assert asked
    assert room.turn(agent, "go on", text("fine")).status == "finished"
    assert room.server.refused == []


def test_a_request_beside_the_conversation_takes_the_pictures_along(room: CompactRoom) -> None:
    agent = room.agent()
    agent.shell.user_ns["scan"] = scan
    room.turn(agent, "look", tool("scan", {"number": 3}), text("a page"))
    room.replies = [text("aside")]
    assert agent.run_sync("what colour was it?", fork=True).status == "finished"
    assert len(pictures(room.bodies[-1])) == 1
    assert room.server.refused == []
