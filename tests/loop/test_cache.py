"""The prompt cache over a long session, counted by the server: nearly all is read, nothing breaks unexpectedly."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

from loop_rig import Rig

from ipyagent.journal.events import CacheBroken
from ipyagent.practice.replies import Reply, calls, text, tool
from ipyagent.practice.server import PracticeServer

TURNS = 18
MINIMUM = 1_024
"""The smallest prefix that claude-sonnet-5-5 caches, in tokens."""
FIRST_PICTURE = 2

SET_UP = "import pandas as pd\ndf = pd.DataFrame({'x': range(400), 'y': [n * n % 97 for n in range(400)]})\ndf.head()"
PICTURE = (
    "from IPython.display import Image\nimport io\nfrom PIL import Image as P\n"
    "b = io.BytesIO(); P.new('RGB', (320, 200), ({n} % 255, 80, 80)).save(b, 'PNG')\nImage(b.getvalue())"
)


def script_of(number: int, dice: random.Random) -> list[Reply]:
    """What the model does in one turn of the analysis."""
    thinking = f"Let me think about step {number}." if dice.random() < 0.6 else None
    replies: list[Reply] = []
    if number == 0:
        replies.append(tool("python", {"code": SET_UP}, thinking=thinking))
    if number >= FIRST_PICTURE and number % 7 == FIRST_PICTURE:
        replies.append(tool("python", {"code": PICTURE.format(n=number)}, say="A picture.", thinking=thinking))
    if number % 6 == 5:
        many: list[tuple[str, dict[str, Any]]] = [("variables", {"name": "df"}) for _ in range(30)]
        replies.append(calls(many, thinking=thinking))
    for step in range(dice.randrange(0, 4)):
        code = dice.choice(
            [
                f"df['y'].rolling({step + 2}).mean().describe()",
                f"df.sample(5, random_state={number})",
                "1 / 0",
                "for n in range(40): print('row', n)",
            ]
        )
        replies.append(tool("python", {"code": code}, say="Next." if step % 2 else None, thinking=thinking))
    return [*replies, text(f"Step {number} shows what was expected. " * dice.randrange(1, 5), thinking=thinking)]


def test_a_long_session_is_read_from_the_cache(make_rig: Callable[..., Rig], server: PracticeServer) -> None:
    alone = {"layer_clear_results": False, "layer_notes": False}  # nothing but appending
    rig, dice = make_rig(**alone), random.Random(7)
    for number in range(TURNS):
        if number == TURNS // 2:  # another kernel takes the session up
            rig.agent.close()
            rig = make_rig(**alone)
            rig.agent.resume()
        server.script(*script_of(number, dice))
        result = rig.turn(f"step {number}: " + "tell me more about the data. " * dice.randrange(1, 12))
        assert result.status == "finished", (number, result.message)
    assert server.scripted == 0
    assert [exchange.error for exchange in server.refused] == []
    usages = [exchange.usage for exchange in server.messages]
    read = [usage["cache_read_input_tokens"] for usage in usages]
    prompts = [exchange.prompt_tokens for exchange in server.messages]
    broken = [i for i in range(1, len(prompts)) if read[i] < prompts[i - 1] - MINIMUM]
    pictures = [_has_picture(exchange.body) for exchange in server.messages]
    known = pictures.index(True)  # with the first picture the provider begins the messages' entries anew
    assert broken in ([], [known]), broken
    assert [event.cause for event in rig.of(CacheBroken) if not event.expected] == []
    assert max(len(message["content"]) for message in server.messages[-1].body["messages"]) >= 30
    share = sum(read) / sum(prompts)
    assert share >= 0.95, f"{share:.3f} of {sum(prompts):,} tokens in {len(prompts)} requests"


def test_without_prompt_cache_no_mark_goes_out(make_rig: Callable[..., Rig], server: PracticeServer) -> None:
    rig = make_rig(prompt_cache=False)
    server.script(tool("python", {"code": "1"}), text("one"))
    rig.turn()
    assert all("cache_control" not in str(exchange.body) for exchange in server.messages)
    assert sum(exchange.usage["cache_read_input_tokens"] for exchange in server.messages) == 0


def test_the_long_life_is_asked_for_when_set(make_rig: Callable[..., Rig], server: PracticeServer) -> None:
    rig = make_rig(cache_ttl="1h")
    server.script(tool("python", {"code": "1"}), text("one"))
    result = rig.turn()
    usages = [exchange.usage for exchange in server.messages]
    assert usages[0]["cache_creation"]["ephemeral_1h_input_tokens"] > MINIMUM
    assert usages[1]["cache_read_input_tokens"] >= server.messages[0].prompt_tokens
    written = sum(usage["cache_creation_input_tokens"] for usage in usages)
    assert result.cost > 2.0 * 2.0 * written / 1e6  # an hour costs twice the input price of $2


def _has_picture(body: dict[str, Any] | None) -> bool:
    return body is not None and "'type': 'image'" in str(body["messages"])
