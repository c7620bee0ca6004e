"""What `%load_ext ipyagent` adds to a kernel and to `ipython -c`, and how soon a `%%agent` cell's request goes out.

    python -m tests.bench load
    BEFORE=/path/to/another/tree python -m tests.bench load

With `BEFORE`, kernels of that tree take turns with ours, for a comparison in one run on a busy machine. Both have
their compiled code, as after an installation: a first round that makes it is not counted. How many times slower than
its processor the machine is now is measured in each kernel; the pause is as many times longer, and the table has it.
"""

from __future__ import annotations

import multiprocessing as mp
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple

from tests.bench.measuring import ROOT, Row, compared, trees

KERNELS = 7
PAUSE = 4.0
"""Seconds between loading and the first request."""
LATER = 5
STARTS = 15
LOADING = """
import sys, time
_began = time.perf_counter()
get_ipython().run_line_magic("load_ext", "ipyagent")
print("MS", (time.perf_counter() - _began) * 1e3, "anthropic" in sys.modules)
"""
OWN = """
import time
_began, _worked = time.perf_counter(), time.process_time()
sum(i * i for i in range(3_000_000))
print("OWN", (time.perf_counter() - _began) * 1e3, (time.process_time() - _worked) * 1e3)
"""
"""A cell of the user's own: how much longer it takes beside what is done in the background."""
EVENTS = (
    ("message_start", '{"type":"message_start","message":{"id":"msg_1","type":"message","role":"assistant",'
     '"model":"claude-sonnet-5-5","content":[],"stop_reason":null,"usage":{"input_tokens":9,"output_tokens":1}}}'),
    ("content_block_start", '{"type":"content_block_start","index":0,"content_block":{"type":"text","text":""}}'),
    ("content_block_delta", '{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"Yes."}}'),
    ("content_block_stop", '{"type":"content_block_stop","index":0}'),
    ("message_delta", '{"type":"message_delta","delta":{"stop_reason":"end_turn"},"usage":{"output_tokens":2}}'),
    ("message_stop", '{"type":"message_stop"}'),
)  # fmt: skip
MODEL = b'{"id":"claude-sonnet-5-5","type":"model","max_input_tokens":200000,"max_tokens":64000,"capabilities":{}}'


class _Stamped(BaseHTTPRequestHandler):
    """Notes when the first byte of each request came; the clock is the same in every process of a machine."""

    protocol_version = "HTTP/1.1"
    stamps: Any

    def handle_one_request(self) -> None:
        self.connection.recv(1, 2)  # MSG_PEEK
        self.first_byte = time.monotonic()
        super().handle_one_request()

    def do_GET(self) -> None:
        self._answer("application/json", MODEL if "/v1/models/" in self.path else b"{}")

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers.get("content-length", 0)))
        if self.path.startswith("/v1/messages"):
            self.stamps.put(self.first_byte)
        self._answer("text/event-stream", "".join(f"event: {name}\ndata: {data}\n\n" for name, data in EVENTS).encode())

    def _answer(self, kind: str, body: bytes) -> None:
        self.send_response(200)
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *given: object) -> None:
        """Nothing."""


def _serve(port: Any, stamps: Any) -> None:
    _Stamped.stamps = stamps
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Stamped)
    server.daemon_threads = True
    port.put(server.server_address[1])
    server.serve_forever()


class _Found(NamedTuple):
    """What one kernel gave: milliseconds, and how many times longer something took."""

    loading: float
    own: float
    first: float
    later: float
    slow: float


def _kernel(tree: str, stamps: Any) -> _Found:
    sys.path.insert(0, str(ROOT / "tests" / "kernel"))
    from kernels import Kernel

    with tempfile.TemporaryDirectory() as folder:
        os.environ["IPYAGENT_HOME"] = os.path.join(folder, "home")
        kernel = Kernel(tree)
        try:
            kernel.run(f"import IPython, os; os.chdir({folder!r})")
            before = [_own(kernel) for _ in range(5)]
            slow = statistics.median(wall / worked for wall, worked in before)
            found = re.search(r"MS ([\d.]+) (\w+)", kernel.run(LOADING, timeout=60).streams)
            assert found[2] == "False", "anthropic was imported by loading"
            beside = _own(kernel)[0]
            time.sleep(PAUSE * slow)
            waits = []
            for number in range(1 + LATER):
                began = time.monotonic()
                kernel.run(f"%%agent\nhello {number}", timeout=60)
                waits.append((stamps.get(timeout=10) - began) * 1e3)
                time.sleep(0.2)
            own = beside / statistics.median(wall for wall, _ in before)
            return _Found(float(found[1]), own, waits[0], statistics.median(waits[1:]), slow)
        finally:
            kernel.close()


def _own(kernel: Any) -> tuple[float, float]:
    """Milliseconds of the user's own cell, on the clock and on the processor."""
    found = re.search(r"OWN ([\d.]+) ([\d.]+)", kernel.run(OWN, timeout=60).streams)
    return float(found[1]), float(found[2])


def _kernel_rows() -> Iterable[Row]:
    context = mp.get_context("spawn")
    port, stamps = context.Queue(), context.Queue()
    server = context.Process(target=_serve, args=(port, stamps), daemon=True)
    server.start()
    given = {
        "ANTHROPIC_BASE_URL": f"http://127.0.0.1:{port.get()}", "ANTHROPIC_API_KEY": "none",
        "ANTHROPIC_MODEL": "claude-sonnet-5-5",
    }  # fmt: skip
    measured: dict[str, list[_Found]] = {}
    with tempfile.TemporaryDirectory() as cache, _environment(cache, **given):
        for number in range(1 + KERNELS):
            for name, tree in trees().items():
                found = _kernel(tree, stamps)
                if number:
                    measured.setdefault(name, []).append(found)
    server.terminate()
    for name, what, goal in (
        ("slow", "clock over processor time of a busy cell", "1 on a quiet machine"),
        ("loading", "%load_ext ipyagent in a kernel, ms", "at most 50 ms"),
        ("own", "the user's own cell right behind it, times longer", "as little as can be"),
        ("first", f"first %%agent {PAUSE:g} s later: to its first byte, ms", "at most 200 ms"),
        ("later", "later %%agent cells: to the first byte, ms", "26 ms before"),
    ):
        yield what, compared({tree: [getattr(each, name) for each in found] for tree, found in measured.items()}), goal


@contextmanager
def _environment(cache: str, **given: str) -> Iterator[None]:
    """The environment of what is measured, with compiled code kept in a folder."""
    names = ("IPYAGENT_HOME", "IPYAGENT_MODEL", "PYTHONDONTWRITEBYTECODE", "PYTHONPYCACHEPREFIX", *given)
    held = {name: os.environ.pop(name, None) for name in names}
    os.environ.update(given, PYTHONPYCACHEPREFIX=cache)
    try:
        yield
    finally:
        for name in names:
            os.environ.pop(name, None)
        os.environ.update({name: value for name, value in held.items() if value is not None})


def _start_rows() -> Iterable[Row]:
    """What loading adds to `ipython -c`, as a share of IPython's own start."""
    seconds: dict[str, list[float]] = {}
    with tempfile.TemporaryDirectory() as folder, _environment(os.path.join(folder, "compiled")):
        runs = [("own", str(ROOT), "1"), *((name, tree, "%load_ext ipyagent") for name, tree in trees().items())]
        for number in range(1 + STARTS):
            for name, tree, code in runs:
                environment = {**os.environ, "PYTHONPATH": tree, "IPYTHONDIR": folder, "IPYAGENT_HOME": folder}
                began = time.perf_counter()
                subprocess.run(
                    [sys.executable, "-m", "IPython", "-c", code], env=environment, cwd=folder, check=True,
                    stdout=subprocess.DEVNULL,
                )  # fmt: skip
                if number:
                    seconds.setdefault(name, []).append(time.perf_counter() - began)
    own = statistics.median(seconds.pop("own"))
    shares = ", ".join(f"{name} {100 * (statistics.median(v) / own - 1):.1f} %" for name, v in seconds.items())
    yield f"%load_ext in `ipython -c`, of its own {1e3 * own:.0f} ms", shares, "at most 12 %"


def rows() -> list[Row]:
    return [*_kernel_rows(), *_start_rows()]
