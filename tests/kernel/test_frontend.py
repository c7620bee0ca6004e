"""What the front-end can do, and where its notebook is: asked on loopback, never long, never failing."""

from __future__ import annotations

import http.client
import http.server
import json
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import nbformat
import pytest
from kernels import ROOT
from pace import within

from ipyagent.kernel.frontend import describe_frontend
from ipyagent.kernel.scope import make_shell
from tests.kernel.forked import executor, in_server

SESSIONS = [
    {"path": "other.ipynb", "kernel": {"id": "other"}},
    {"path": "sub/mine.ipynb", "kernel": {"id": "abc-1"}},
    {"path": "console"},
]


class Server(http.server.BaseHTTPRequestHandler):
    seen: ClassVar[list[str]] = []

    def do_GET(self) -> None:
        self.seen.append(f"{self.path} {self.headers.get('Authorization')}")
        body = json.dumps(SESSIONS).encode()
        self.send_response(200)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args: object) -> None:
        pass


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, Any]]:
    monkeypatch.setenv("JUPYTER_RUNTIME_DIR", str(tmp_path))
    monkeypatch.delenv("JPY_SESSION_NAME", raising=False)
    Server.seen = []
    httpd = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Server)
    threading.Thread(target=httpd.serve_forever, daemon=True).start()
    info = {"url": f"http://127.0.0.1:{httpd.server_port}/base/", "token": "t0", "root_dir": str(tmp_path / "root")}
    try:
        yield info
    finally:
        httpd.shutdown()
        httpd.server_close()


def kernel_shell(kernel_id: str = "abc-1", allow_stdin: bool = True, **names: Any) -> Any:
    kernel = SimpleNamespace(
        _allow_stdin=allow_stdin,
        config={"IPKernelApp": {"connection_file": f"/somewhere/kernel-{kernel_id}.json"}},
        get_parent=lambda: {"metadata": {"cellId": "c-9"}},
    )
    return SimpleNamespace(kernel=kernel, user_ns=names)


def test_the_server_knows_the_notebook_after_vs_code_and_before_the_session_name(
    server: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "jpserver-1.json").write_text(json.dumps(server))
    (tmp_path / "jpserver-2.json").write_text("{broken")
    got = describe_frontend(kernel_shell())
    assert got.notebook == tmp_path / "root" / "sub" / "mine.ipynb"
    assert Server.seen == ["/base/api/sessions token t0"]
    assert (got.kind, got.live_widgets, got.can_input, got.cell) == ("kernel", True, True, "c-9")
    monkeypatch.setenv("JPY_SESSION_NAME", str(tmp_path / "stale.ipynb"))
    assert describe_frontend(kernel_shell(__vsc_ipynb_file__="/x/y.ipynb")).notebook == Path("/x/y.ipynb")
    assert describe_frontend(kernel_shell("unknown")).notebook == tmp_path / "stale.ipynb"


def test_servers_elsewhere_are_not_asked(server: dict[str, Any], tmp_path: Path) -> None:
    server["url"] = "http://192.0.2.1:8888/"
    (tmp_path / "jpserver-1.json").write_text(json.dumps(server))
    began = time.monotonic()
    assert describe_frontend(kernel_shell()).notebook is None
    assert time.monotonic() - began < 0.5


@pytest.mark.paced
def test_a_server_that_does_not_answer_costs_a_second_at_most(server: dict[str, Any], tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        for i in range(5):
            server["url"] = f"http://127.0.0.1:{silent.getsockname()[1]}/"
            (tmp_path / f"jpserver-{i}.json").write_text(json.dumps(server))
        began = time.monotonic()
        assert describe_frontend(kernel_shell()).notebook is None
        assert time.monotonic() - began < within(1.5, 4.5)  # one after the other they would take five


def test_what_is_no_page_has_no_live_widgets(server: dict[str, Any]) -> None:
    got = describe_frontend(kernel_shell(allow_stdin=False))
    assert (got.live_widgets, got.can_input) == (False, False)
    got = describe_frontend(SimpleNamespace(kernel=SimpleNamespace(), user_ns={}))
    assert (got.kind, got.live_widgets, got.cell) == ("kernel", False, "")
    assert describe_frontend(None).kind == "script"
    assert describe_frontend(make_shell()).kind == "script"


HEADLESS = """from ipyagent.kernel.frontend import describe_frontend
import scripted_turn as scripted
front = describe_frontend(get_ipython())
print(front.kind, front.live_widgets, front.can_input)
s = scripted.Scripted(get_ipython(), ("code", "1/0"), ("code", "5")).button()
await s.awaited()"""


def test_nbclient_is_headless(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(ROOT), str(Path(__file__).parent)]))
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(HEADLESS)])
    executor(notebook, tmp_path).execute()
    said = "".join(output.get("text", output.output_type) for output in notebook.cells[0].outputs)
    assert said.startswith("kernel False False\n")
    assert '"status": "finished"' in said
    assert "error" not in said.split("VALUE")[0]


def test_a_real_server_tells_the_notebook_also_after_a_rename(tmp_path: Path) -> None:
    port = free_port()
    forking = in_server(tmp_path / "forked")
    env = {
        **os.environ,
        **forking,
        "PYTHONPATH": os.pathsep.join([str(ROOT), *filter(None, [forking.get("PYTHONPATH")])]),
        "JUPYTER_RUNTIME_DIR": str(tmp_path / "run"),
        "JUPYTER_CONFIG_DIR": str(tmp_path / "config"),
        "JUPYTER_DATA_DIR": str(tmp_path / "data"),
        "IPYTHONDIR": str(tmp_path / "ipython"),
    }
    env.pop("PYTEST_CURRENT_TEST", None)
    root = tmp_path / "root"
    root.mkdir()
    arguments = ["--no-browser", f"--port={port}", "--IdentityProvider.token=tok", f"--ServerApp.root_dir={root}"]
    if hasattr(os, "geteuid") and os.geteuid() == 0:
        arguments.append("--allow-root")
    log = (tmp_path / "log").open("w")
    server = subprocess.Popen([sys.executable, "-m", "jupyter_server", *arguments], env=env, stdout=log, stderr=log)
    try:
        session = ask(port, "POST", "sessions", {"path": "a.ipynb", "type": "notebook", "name": "a", "kernel": {}})
        from jupyter_client import BlockingKernelClient

        file = next((tmp_path / "run").glob(f"kernel-{session['kernel']['id']}.json"))
        client = BlockingKernelClient(connection_file=str(file))
        client.load_connection_file()
        client.start_channels()
        try:
            for last in (False, False, True):
                try:
                    client.wait_for_ready(timeout=120)
                    break
                except RuntimeError:  # a heartbeat may be late on a busy machine
                    if last:
                        raise
            assert where(client) == str(root / "a.ipynb")
            ask(port, "PATCH", f"sessions/{session['id']}", {"path": "b.ipynb"})
            assert where(client) == str(root / "b.ipynb")
        finally:
            client.stop_channels()
    finally:
        server.terminate()
        try:
            server.wait(15)
        except subprocess.TimeoutExpired:
            server.kill()
            server.wait()
        log.close()


def where(client: Any) -> str:
    texts: list[str] = []
    code = (
        "import time; t = time.monotonic()\nfrom ipyagent.kernel.frontend import describe_frontend\n"
        "f = describe_frontend(get_ipython())\nassert time.monotonic() - t < 30\nprint(f.notebook)"
    )
    client.execute_interactive(code, timeout=60, output_hook=lambda m: texts.append(m["content"].get("text", "")))
    return "".join(texts).strip()


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as held:
        port: int = held.getsockname()[1]
        return port


def ask(port: int, method: str, path: str, body: dict[str, Any]) -> dict[str, Any]:
    deadline = time.monotonic() + 30
    while True:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
        try:
            headers = {"Authorization": "token tok", "Content-Type": "application/json"}
            connection.request(method, f"/api/{path}", json.dumps(body), headers)
            reply: dict[str, Any] = json.loads(connection.getresponse().read())
            return reply
        except ConnectionError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.1)
        finally:
            connection.close()
