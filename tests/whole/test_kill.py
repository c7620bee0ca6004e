"""A kernel killed at any moment: what was shown is in the journal, and the session goes on."""

from __future__ import annotations

import json
import queue
import random
import re
import signal
import time
from pathlib import Path
from typing import Any

import pytest
from kernels import Kernel
from rooms import Room, as_json, room

from ipyagent.journal.events import Streamed, ToolReturned, TurnEnded
from ipyagent.journal.journal import read_events
from ipyagent.practice.replies import Reply, calls, text, tool
from ipyagent.practice.server import PracticeServer

KILLS, CHAINS = 24, 2
"""Kills in all, evenly over the turn, and how many rows of them: in each the kernel that goes on is the next one to be
killed."""
LONGEST = 3.2
"""Seconds that the scripted turn takes, about."""
VIEW = "application/vnd.jupyter.widget-view+json"
TOKEN = re.compile(r"\b[wt]\d{5}\b")

CODE = """
import time
with open('ran.txt', 'a') as file:
    file.write('once\\n')
for number in range(90000, 90030):
    print('t%05d' % number, flush=True)
    time.sleep(0.02)
"""


def words(start: int, count: int) -> str:
    return " ".join(f"w{number:05}" for number in range(start, start + count))


def scripted(body: dict[str, Any]) -> Reply:
    """The next step of the turn by how many replies it has had."""
    last = max(i for i, m in enumerate(body["messages"]) if m["role"] == "user" and _words(m))
    if "go on" in as_json(body["messages"][last]):
        return text("and on we go")
    match sum(message["role"] == "assistant" for message in body["messages"][last:]):
        case 0:
            thinking, given = words(10_000, 20), {"path": "a.txt", "content": "one\n"}
            return tool("write_file", given, say=words(0, 40), thinking=thinking, delay=0.01)
        case 1:
            return tool("python", {"code": CODE}, say=words(20_000, 20), delay=0.01)
        case 2:
            return calls([("read_file", {"path": "a.txt"}), ("variables", {})], say=words(30_000, 10), delay=0.005)
        case 3:
            return tool("edit_file", {"path": "a.txt", "old": "one", "new": "two"}, delay=0.005)
        case _:
            return text(words(40_000, 120), delay=0.005)


def _words(message: dict[str, Any]) -> bool:
    content = message["content"]
    return isinstance(content, str) or any(block["type"] == "text" for block in content)


def shown_until_killed(kernel: Kernel, seconds: float) -> set[str]:
    """Run the cell as a person does who allows everything, kill the kernel; the words that arrived."""
    client = kernel.client
    message = client.execute("%%agent\nwork", allow_stdin=True)
    seen: list[str] = []
    comm, answered = "", set()
    until: float | None = None
    while until is None or time.monotonic() < until:
        try:
            got = client.get_iopub_msg(timeout=0.01)
        except queue.Empty:
            continue
        content = got["content"]
        assert got["msg_type"] != "error", content
        if got["msg_type"] == "display_data" and VIEW in content["data"]:  # as a page does, which hears it then
            comm = kernel.comm = content["data"][VIEW]["model_id"]
            until = time.monotonic() + seconds
            _say(kernel, {"kind": "ready", "page": "one"})
        elif got["msg_type"] == "comm_msg" and content["comm_id"] == comm:
            shown = json.dumps(content["data"])
            seen.append(shown)
            for call, digest in re.findall(r'data-call=\\"([^"\\]+)\\" data-digest=\\"([0-9a-f]+)\\"', shown):
                if digest not in answered:
                    answered.add(digest)
                    _say(kernel, {"kind": "answer", "call": call, "digest": digest, "answer": "once"})
        elif got["msg_type"] == "status" and got["parent_header"].get("msg_id") == message:
            if content["execution_state"] == "idle":
                break
        elif got["msg_type"] in ("display_data", "update_display_data", "stream"):
            seen.append(json.dumps(content))
    kernel.manager.signal_kernel(signal.SIGKILL)
    return set(TOKEN.findall(" ".join(seen)))


def _say(kernel: Kernel, content: dict[str, Any]) -> None:
    kernel.click({"method": "custom", "content": content})


def journalled(transcript: Path) -> set[str]:
    """Every word in a journal; pieces of a stream are joined first."""
    streams: dict[tuple[str, str], str] = {}
    for event in read_events(transcript):
        if isinstance(event, Streamed):
            key = (event.channel, event.ref)
            streams[key] = streams.get(key, "") + event.text
    return set(TOKEN.findall(" ".join(streams.values()) + transcript.read_text("utf-8")))


def killed(place: Room, seconds: float) -> None:
    """Kill the kernel in a session of its own; another one resumes it."""
    server, ran = place.server, place.folder / "ran.txt"
    before = set(place.transcripts())
    for path in (ran, place.folder / "a.txt"):
        path.unlink(missing_ok=True)
    shown = shown_until_killed(place.kernel, seconds)
    stored = set(place.transcripts()) - before
    did_run = ran.exists()
    place.restart()
    if not stored:
        assert not shown
        place.ok("%load_ext ipyagent")
    else:
        (transcript,) = stored
        assert shown <= journalled(transcript), sorted(shown - journalled(transcript))
        assert "resumed session" in place.ok("%load_ext ipyagent\n%agent resume").streams
        assert shown <= journalled(transcript)
    place.ok("%%agent\ngo on")
    assert [exchange.error for exchange in server.refused] == []
    ended = [event for event in place.events() if isinstance(event, TurnEnded)]
    assert ended[-1].status == "finished"
    if did_run:  # code that ran is not run again
        assert ran.read_text() == "once\n"
    closed = {event.call for event in place.events() if isinstance(event, ToolReturned)}
    blocks = [block for message in place.sent()["messages"] for block in message["content"]]
    assert {block["id"] for block in blocks if block["type"] == "tool_use"} <= closed


@pytest.mark.timeout(900)
@pytest.mark.parametrize("chain", range(CHAINS))
def test_a_killed_kernel_loses_nothing_that_was_shown(tmp_path: Path, chain: int) -> None:
    chance = random.Random(20261128)
    points = [LONGEST * (number + chance.random()) / KILLS for number in range(KILLS)]
    chance.shuffle(points)
    with PracticeServer(scripted) as server, room(tmp_path, server=server) as place:
        place.run("%load_ext ipyagent")
        place.run("import ipyagent.agent, ipyagent.ui.panel, anthropic")
        for seconds in points[chain::CHAINS]:
            killed(place, seconds)
            place.ok("%agent new")


def test_the_scripted_turn_shows_everything_when_nobody_kills(tmp_path: Path) -> None:
    """What makes the test above able to fail: the words do arrive, of replies, thinking and tools."""
    with PracticeServer(scripted) as server, room(tmp_path, server=server) as place:
        place.run("%load_ext ipyagent")
        shown = shown_until_killed(place.kernel, 200)  # seconds; it ends with the cell
        assert {"w00039", "w10019", "w20019", "w30009", "w40119", "t90029"} <= shown
        assert isinstance(place.events()[-1], TurnEnded)
        assert (place.folder / "a.txt").read_text() == "two\n"
        assert server.refused == []
