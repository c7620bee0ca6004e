"""Two real kernels write to each other through the tool; one is killed midway and goes on; none is lost or doubled."""

from __future__ import annotations

import re
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from family_rig import Brain
from kernels import Kernel
from rooms import Room, room

from ipyagent.journal.events import MessageReceived, MessageSent
from ipyagent.journal.journal import TRANSCRIPT, read_events
from ipyagent.practice.replies import Reply, calls, text, tool
from ipyagent.practice.server import PracticeServer


def kinds(folder: Path, kind: type[Any]) -> list[Any]:
    return [event for event in read_events(folder / TRANSCRIPT) if isinstance(event, kind)]


class Pair:
    """Two sessions, left and right, that send `count` numbered messages each, a few a reply."""

    def __init__(self, place: Room, brain: Brain, count: int, at_once: int) -> None:
        self.place, self.count, self.at_once = place, count, at_once
        self.kernels: dict[str, Kernel] = {}
        self.folders: dict[str, Path] = {}
        for side in ("left", "right"):
            brain.rules[f"{side} sends"] = lambda body, made, side=side: self.next(side)
        brain.rules["read all"] = lambda body, made: text("ok") if made > count // 50 + 1 else tool("variables", {})

    def start(self, side: str) -> None:
        kernel = self.kernels[side] = self.place.new_kernel()
        known = self.folders.get(side)
        self.run(side, "%load_ext ipyagent\n" + (f"%agent resume {known.name}" if known else ""))
        if known is None:
            before = set((self.place.folder / ".ipyagent" / "sessions").glob("2*"))
            self.run(side, "%%agent\nhello")
            (self.folders[side],) = set((self.place.folder / ".ipyagent" / "sessions").glob("2*")) - before
        assert not kernel.dead

    def run(self, side: str, code: str) -> str:
        cell = self.kernels[side].run(code, allow_stdin=False, timeout=120)
        assert cell.errors == [], cell.reply.get("traceback")
        return cell.streams

    def next(self, side: str) -> Reply:
        """The next calls of a side: the numbers that its own journal does not say were sent."""
        other = self.folders["right" if side == "left" else "left"]
        sent = {event.said for event in kinds(self.folders[side], MessageSent)}
        left = [said for n in range(self.count) if (said := f"{side} says {n}") not in sent]
        if not left:
            return text("all sent")
        return calls([("send_message", {"to": other.name, "message": said}) for said in left[: self.at_once]])

    def kill(self, side: str, after: int) -> None:
        end = time.monotonic() + 60
        while len(kinds(self.folders[side], MessageSent)) < after:
            assert time.monotonic() < end
            time.sleep(0.005)
        self.kernels[side].manager.signal_kernel(9)

    def check(self) -> None:
        for side, other in (("left", "right"), ("right", "left")):
            got = Counter(event.said for event in kinds(self.folders[side], MessageReceived))
            assert got == Counter({f"{other} says {n}": 1 for n in range(self.count)})

    def close(self) -> None:
        for kernel in self.kernels.values():
            kernel.close()


def exchange(tmp_path: Path, count: int, at_once: int, kill_after: int) -> None:
    brain = Brain()
    with PracticeServer(brain) as server, room(tmp_path, server=server, IPYAGENT_MAX_TURNS="1000") as place:
        pair = Pair(place, brain, count, at_once)
        try:
            pair.start("left")
            pair.start("right")
            sender = threading.Thread(target=pair.run, args=("left", "%%agent\nleft sends all"))
            sender.start()
            client = pair.kernels["right"].client
            client.execute("%%agent\nright sends all", allow_stdin=False)
            pair.kill("right", kill_after)
            pair.kernels["right"].close()
            assert len(kinds(pair.folders["right"], MessageSent)) < count, "it was killed midway"
            pair.start("right")
            pair.run("right", "%%agent\nright sends the rest")
            sender.join(120)
            assert not sender.is_alive()
            for side in ("left", "right"):
                pair.run(side, "%%agent\nread all")
            pair.check()
            listed = pair.run("left", "%agent messages")
            assert re.search(r"#\d+ .* from session \d+-.*: right says", listed)
            assert server.refused == []
        finally:
            pair.close()


@pytest.mark.slow
def test_hundreds_of_messages_between_two_kernels_and_one_is_killed(tmp_path: Path) -> None:
    exchange(tmp_path, 120, 20, kill_after=30)  # more wait at the end than come before one request


def test_an_idle_kernel_says_that_messages_wait_and_runs_nothing(tmp_path: Path) -> None:
    from ipyagent.loop.mailbox import MailMessage, post

    with PracticeServer(Brain()) as server, room(tmp_path, server=server) as place:
        place.ok("%load_ext ipyagent")
        place.ok("%%agent\nhello")
        (folder,) = (place.folder / ".ipyagent" / "sessions").glob("2*")
        asked = len(server.messages)
        for n in range(2):
            post(
                folder, MailMessage(id=f"x/{n}", sender="x\x1b[31m", session="x", text=f"<b>{n}</b>", summary="the key")
            )
        said = place.ok("%agent").streams
        assert "2 messages wait, read with the next request (%agent messages)" in said
        listed = place.ok("%agent messages").streams
        assert "waits  from x: the key" in listed
        assert "\x1b[31m" not in listed
        assert len(server.messages) == asked
        cell = place.ok("%%agent\nnext")
        shown = "".join(str(data) for data in [*cell.data, *cell.updates])
        assert "Message from x: the key" in shown
        assert "<b>0</b>" not in shown.replace("&lt;", "<!")
        assert "wait" not in place.ok("%agent").streams
