"""Summaries written on the server: when, of what, at what price. The words come from the server's summariser.

The summarising call reads the prompt as it is (from the cache where it can) and the words that ask for the summary. A
threshold compaction then answers from system prompt, tools and the summary alone; a `compaction` request, and one that
pauses, answer with the summary and nothing else.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from ipyagent.practice.cache import Account
from ipyagent.practice.management import Compact, Management, ask_of
from ipyagent.practice.prompt import Prompt
from ipyagent.practice.replies import Reply
from ipyagent.practice.summary_block import Anchor, signed_block, threshold_block
from ipyagent.practice.tokens import BLOCK, MESSAGE, count_text

Summariser = Callable[[Mapping[str, Any]], "str | Reply | None"]
"""From a request's body to the text of a summary. None: no text came. A reply: the call ended otherwise, with its stop
reason. May raise `Refused`, as for status 529 and code `compaction_unavailable`."""

NO_USAGE: Final[Mapping[str, int]] = {
    "input_tokens": 0, "cache_creation_input_tokens": 0, "cache_read_input_tokens": 0, "output_tokens": 0,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Summarised:
    """What came of a summarising call: its block (None: no block is sent), how it stopped, what it cost.

    `alone`: the block is the whole answer.
    """

    block: Mapping[str, Any] | None
    stop: str
    alone: bool
    cost: Mapping[str, Any]

    @property
    def replaces(self) -> bool:
        """Whether the answer is written from the summary instead of the messages."""
        return self.block is not None and self.block["content"] is not None

    @property
    def reply(self) -> Reply | None:
        """The answer, when the summary is all of it."""
        if not self.alone:
            return None
        return Reply((dict(self.block),), "compaction") if self.block is not None else Reply((), self.stop)


def due(wanted: Management, prompt: Prompt) -> Compact | None:
    """The compaction that this prompt calls for."""
    if wanted.summarize is not None:
        return wanted.summarize
    compact = wanted.compact
    return compact if compact is not None and prompt.tokens >= compact.trigger else None


def summarised(
    compact: Compact,
    sent: Prompt,
    read: Prompt,
    account: Account | None,
    words: str | Reply | None,
    room: int,
    bound: bool,
) -> Summarised:
    """The outcome of the call; `sent` is the prompt as the client has it, `read` as it was summarised, `room` the most
    tokens the summary may have, `bound` whether the model binds thinking."""
    asking = MESSAGE + BLOCK + count_text(ask_of(compact))
    paid = account.usage() if account is not None else {"input_tokens": read.tokens}
    cost: dict[str, Any] = {**NO_USAGE, **paid}
    cost["input_tokens"] += asking
    stop, content = "compaction", words if isinstance(words, str) and words.strip() else None
    if content is None:
        stop = words.stop_reason if isinstance(words, Reply) else "end_turn"
    elif (size := BLOCK + count_text(content)) > room:
        stop, content, cost["output_tokens"] = "max_tokens", None, room
    else:
        cost["output_tokens"] = size
    demand = compact.trigger == 0
    if not demand:
        block: Mapping[str, Any] | None = threshold_block(content)
    elif content is None:
        block = None
    else:
        last = sent.blocks[-1].role
        block = signed_block(content, Anchor(sent.base, sent.end if bound else b"", last))
    alone = demand or (compact.pause and content is not None)
    return Summarised(block, stop, alone, {"type": "compaction", **cost})
