"""A room whose server answers calls for a summary apart from the conversation."""

from __future__ import annotations

from typing import Any, ClassVar

from agent_room import AgentRoom, Answer, named, words

from ipyagent import Agent
from ipyagent.journal.view import ContextView
from ipyagent.practice.replies import text

__all__ = ["DIRECTIVE", "GOOD", "Answer", "CompactRoom", "compact_room", "directive_in", "plain", "words"]
DIRECTIVE = "is about to be taken out of your context"
GOOD = text("<analysis>Three boxes were weighed.</analysis>\n<summary>1. Request and intent: weigh boxes.</summary>")


def directive_in(body: dict[str, Any]) -> str:
    """The order to summarise; "" when the request is none."""
    content = body["messages"][-1]["content"]
    last = content[-1] if isinstance(content, list) else {"type": "text", "text": content}
    return str(last["text"]) if last["type"] == "text" and DIRECTIVE in last["text"] else ""


def plain(content: Any) -> str:
    """All text of a message's content."""
    if isinstance(content, str):
        return content
    found = []
    for block in content:
        found.append(str(block.get("text", "")))
        if block["type"] == "tool_result":
            found.append(plain(block["content"]))
    return "\n".join(found)


class CompactRoom(AgentRoom):
    SETTINGS: ClassVar = {
        "max_retries": 0, "layer_notes": False, "extraction": False, "trust_all": True,
        "skills": False,  # those that come with ipyagent would move the figures, and so would
        "subagents": False,  # one more tool
        "messages": False,
    }  # fmt: skip
    order = staticmethod(directive_in)
    summaries, summary = named("behind"), named("always")

    def __init__(self, *given: Any, **server: Any) -> None:
        super().__init__(*given, always=GOOD, **server)

    def of(self, agent: Agent, kind: type[Any]) -> list[Any]:
        return self.events(agent, kind)

    @property
    def calls(self) -> list[dict[str, Any]]:
        """The requests for a summary."""
        return [body for body in self.bodies if directive_in(body)]

    def replays(self, agent: Agent) -> None:
        """The journal on the disk gives the bytes that the session would send."""
        assert ContextView.of(self.events(agent)).wire() == self.session(agent).view.wire()


compact_room = CompactRoom.opened
