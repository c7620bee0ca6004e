"""What a tool call with five displays costs above a plain cell with the same, in one real kernel, run alternately."""

from __future__ import annotations

import os
import statistics
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from jupyter_client.manager import start_new_kernel

from ipyagent.journal.events import ToolReturned
from ipyagent.journal.journal import TRANSCRIPT, read_events
from ipyagent.practice.replies import Reply, text, tool
from ipyagent.practice.server import PracticeServer
from tests.bench.bench_outputs import surroundings

RUNS = 25
FIRST = "import pandas as pd\nfrom IPython.display import HTML, Markdown\nimport matplotlib.pyplot as plt"
FIVE = """display(pd.DataFrame({'a': range(20), 'b': range(20)}))
display(HTML('<b>x</b>'))
display(Markdown('**y**'))
display(pd.DataFrame({'c': range(5)}).describe())
pd.Series(range(9), name='n').to_frame()"""


def rows() -> Iterator[tuple[str, str, str]]:
    def reply(body: dict[str, Any]) -> Reply:
        last = body["messages"][-1]["content"]
        ran = isinstance(last, list) and any(block["type"] == "tool_result" for block in last)
        return text("That was it.") if ran else tool("python", {"code": FIVE})

    with tempfile.TemporaryDirectory() as place, PracticeServer(reply) as server:
        folder = Path(place)
        environment = {**os.environ, **surroundings(server.url, folder)}
        manager, client = start_new_kernel(kernel_name="python3", env=environment, cwd=place)
        try:
            for widgets in (False, True):  # nobody watches; a page with a live panel
                for code in (FIRST, "%load_ext ipyagent", "%%agent\nshow it"):
                    _seconds(client, code, widgets)
                plain = []
                for _ in range(RUNS):
                    plain.append(_seconds(client, FIVE, widgets))
                    _seconds(client, "%%agent\nshow it", widgets)
                (transcript,) = (folder / ".ipyagent" / "sessions").rglob(TRANSCRIPT)
                returned = [event for event in read_events(transcript) if isinstance(event, ToolReturned)][-RUNS:]
                call, cell = statistics.median(event.seconds for event in returned), statistics.median(plain)
                where = "with a panel" if widgets else "no panel"
                measured = f"{call * 1000:.1f} ms, plain cell {cell * 1000:.1f} ms: {(call - cell) * 1000:+.1f} ms"
                yield f"five displays, {where}: tool call", measured, "at most +30 ms"
        finally:
            client.stop_channels()
            manager.shutdown_kernel(now=True)


def _seconds(client: Any, code: str, stdin: bool) -> float:
    """How long the kernel was busy with a cell."""
    asked = client.execute(code, allow_stdin=stdin)
    began = ended = None
    while ended is None:
        message = client.get_iopub_msg(timeout=60)
        if message["parent_header"].get("msg_id") != asked or message["msg_type"] != "status":
            continue
        if message["content"]["execution_state"] == "busy":
            began = message["header"]["date"]
        elif began is not None:
            ended = message["header"]["date"]
    assert began is not None
    return float((ended - began).total_seconds())
