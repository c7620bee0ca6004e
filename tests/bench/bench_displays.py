"""What a tool call with five displays costs above a plain cell with the same, in one real kernel, run alternately: in
time, and in processor time of the whole kernel, which a busy machine does not change."""

from __future__ import annotations

import ast
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
from tests.bench.measuring import Row

RUNS = 25
FIRST = "import pandas as pd\nfrom IPython.display import HTML, Markdown\nimport matplotlib.pyplot as plt"
FIVE = """display(pd.DataFrame({'a': range(20), 'b': range(20)}))
display(HTML('<b>x</b>'))
display(Markdown('**y**'))
display(pd.DataFrame({'c': range(5)}).describe())
pd.Series(range(9), name='n').to_frame()"""
TIMED = """import time, ipyagent.loop.tool_calls as calls
spent, one = [], calls._call
async def call(*arguments):
    began = time.process_time()
    await one(*arguments)
    spent.append(time.process_time() - began)
calls._call = call"""
"""From a call's arguments to its journalled result, as `ToolReturned.seconds`."""


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
                for code in (FIRST, "%load_ext ipyagent", "%%agent\nshow it", TIMED, "%%agent\nshow it"):
                    _run(client, code, widgets)
                plain, processor = [], []
                for _ in range(RUNS):
                    began = _run(client, "None", widgets)[1]
                    seconds, ended, _ = _run(client, FIVE, widgets)
                    plain.append(seconds)
                    processor.append(ended - began)
                    _run(client, "%%agent\nshow it", widgets)
                spent = _run(client, "calls._call = one; None", widgets, f"spent[-{RUNS}:]")[2]
                (transcript,) = (folder / ".ipyagent" / "sessions").rglob(TRANSCRIPT)
                returned = [event for event in read_events(transcript) if isinstance(event, ToolReturned)][-RUNS:]
                where = "with a panel" if widgets else "no panel"
                yield _row(f"five displays, {where}: tool call", [event.seconds for event in returned], plain)
                yield _row(f"five displays, {where}: processor", spent, processor)
        finally:
            client.stop_channels()
            manager.shutdown_kernel(now=True)


def _row(what: str, calls: list[float], cells: list[float]) -> Row:
    call, cell = statistics.median(calls) * 1000, statistics.median(cells) * 1000
    return what, f"{call:.1f} ms, plain cell {cell:.1f} ms: {call - cell:+.1f} ms", "at most +30 ms"


def _run(client: Any, code: str, stdin: bool, expression: str = "None") -> tuple[float, float, Any]:
    """How many seconds the kernel was busy with a cell, its processor time so far, and an expression's value."""
    asked = client.execute(
        code, allow_stdin=stdin, user_expressions={"now": "__import__('time').process_time()", "value": expression}
    )
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
    while (answer := client.get_shell_msg(timeout=60))["parent_header"].get("msg_id") != asked:
        pass
    now, value = (
        ast.literal_eval(answer["content"]["user_expressions"][name]["data"]["text/plain"]) for name in ("now", "value")
    )
    return float((ended - began).total_seconds()), now, value
