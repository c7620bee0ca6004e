"""The tool calls of the newest reply, from their being made to their results' going out together.

A call gets exactly one result: the first that comes, or an error result that says how far it got.
What comes for a call that is not open changes nothing.
"""

from __future__ import annotations

import re

from ipyagent.journal.blocks import PICTURES, known_block, result_blocks, text_block, unused
from ipyagent.journal.events import Block, ToolReturned
from ipyagent.journal.tokens import estimate_blocks

NOT_RUN = "This call was not run"
CUT_OFF = "This call was cut off before it returned."
_CUT_FIRST = f"{NOT_RUN}: the turn was cut off first."
"""Where nothing tells why."""
NO_OUTPUT = "(no output)"

_BAD_NAME = re.compile(r"[^a-zA-Z0-9_-]")


class OpenCalls:
    """True while a call of the newest reply waits to be sent back with its result."""

    def __init__(self) -> None:
        self._names: dict[str, str] = {}
        self._wire_ids: dict[str, str] = {}
        self.begun: set[str] = set()
        """Open calls that had begun to run."""
        self._results: dict[str, tuple[ToolReturned, list[Block]]] = {}
        self._output: dict[str, list[str]] = {}
        self.seen: set[str] = set()
        """All calls of the session."""

    def __bool__(self) -> bool:
        return bool(self._names)

    @property
    def waiting(self) -> dict[str, str]:
        """Id and tool name of the calls that have no result yet."""
        return {call: name for call, name in self._names.items() if call not in self._results}

    def sent_as(self, call: str) -> str:
        """The id of a call on the wire."""
        return self._wire_ids.get(call, call)

    def output(self, call: str) -> str:
        """What a call that has no result yet has shown."""
        return "".join(self._output.get(call, ()))

    def make(self, block: Block) -> Block | None:
        """A `tool_use` block as it may be sent, its call being open from now on; None when it has no
        shape or its id was used before. Ids that the API refuses are replaced on the wire."""
        call, name, given = block.get("id"), block.get("name"), block.get("input")
        if not isinstance(call, str) or not call or call in self.seen or not isinstance(name, str) or not name:
            return None
        sent = unused(_BAD_NAME.sub("_", call), self.seen)
        self.seen |= {call, sent}
        self._names[call] = name
        self._wire_ids[call] = sent
        return (known_block(block) or {}) | {
            "id": sent,
            "name": _BAD_NAME.sub("_", name)[:128],
            "input": given if isinstance(given, dict) else {},
        }

    def begin(self, call: str) -> None:
        """The call runs."""
        if call in self._names:
            self.begun.add(call)

    def show(self, call: str, text: str) -> None:
        """A piece of a running call's output."""
        if call in self._names and call not in self._results:
            self._output.setdefault(call, []).append(text)

    def take(self, event: ToolReturned) -> int | None:
        """A result comes; its estimated tokens, None when no such call is open (a late result
        changes nothing that was sent)."""
        if event.call not in self._names or event.call in self._results:
            return None
        content = result_blocks(event.blocks, is_error=event.is_error) or [text_block(NO_OUTPUT)]
        self._results[event.call] = (event, content)
        self._output.pop(event.call, None)
        return event.tokens or estimate_blocks(content)

    def cut_off(self) -> int:
        """Close what waits with an error result; its estimated tokens."""
        tokens = 0
        for call, name in self.waiting.items():
            output = self.output(call)
            text = f"{CUT_OFF}\n{output}" if output.strip() else CUT_OFF if call in self.begun else _CUT_FIRST
            content = [text_block(text)]
            self._results[call] = (ToolReturned(call=call, name=name, blocks=(), is_error=True), content)
            tokens += estimate_blocks(content)
        return tokens

    def put(self, call: str, blocks: list[Block]) -> int | None:
        """Other content for a result that waits to be sent; the change in tokens."""
        found = self._results.get(call)
        if found is None:
            return None
        event, content = found
        blocks = result_blocks(blocks, is_error=event.is_error)
        self._results[call] = (event, blocks)
        return estimate_blocks(blocks) - estimate_blocks(content)

    def collect(self) -> tuple[list[Block], list[int], list[str]]:
        """The results in the order of the calls, the events that they came from and the tools'
        names; nothing is open afterwards."""
        blocks: list[Block] = []
        events: list[int] = []
        names = list(self._names.values())
        for call in self._names:
            event, content = self._results[call]
            block: Block = {"type": "tool_result", "tool_use_id": self._wire_ids[call], "content": content}
            if event.is_error:
                block["is_error"] = True
            blocks.append(block)
            events.append(event.id)
        for pending in (self._names, self._wire_ids, self.begun, self._results, self._output):
            pending.clear()
        return blocks, events, names

    def drop_pictures(self, event: int) -> int:
        """Pictures of an event that wait to be sent become words; the change in estimated tokens."""
        change = 0
        for returned, content in self._results.values():
            if returned.id == event:
                change -= estimate_blocks(content)
                content[:] = [named(block) if block["type"] in PICTURES else block for block in content]
                change += estimate_blocks(content)
        return change


def named(block: Block) -> Block:
    """The word that stands for a picture."""
    return text_block(f"[{block['type']}]")
