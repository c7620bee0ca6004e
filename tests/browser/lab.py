"""JupyterLab or Notebook 7 in headless Chromium: start, run a cell, look, save, stop.

Everything lives in one folder that the caller gives; the server takes a free port; only processes
that were started here are ended.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import nbformat
from nbformat.v4 import new_code_cell, new_notebook
from playwright.sync_api import Locator, sync_playwright

REPOSITORY = Path(__file__).resolve().parents[2]
CHROMIUM = os.environ.get("IPYAGENT_CHROMIUM", "/usr/bin/chromium")
CHROME_FLAGS = (
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync",
)  # fmt: skip
PANEL = (
    "const app = window.jupyterapp; let p = app.shell.currentWidget;"
    "if (!p || !p.context || !p.content?.widgets) for (const w of app.shell.widgets('main'))"
    " if (w.context && w.content && w.content.widgets) { p = w; break; }"
)


def write_notebook(folder: Path, name: str, cells: list[str]) -> str:
    notebook = new_notebook(cells=[new_code_cell(cell) for cell in cells])
    notebook.metadata["kernelspec"] = {"name": "python3", "display_name": "Python 3", "language": "python"}
    nbformat.write(notebook, folder / name)
    return name


class Server:
    """`app` is "lab" or "notebook"; `environment` goes to the kernels too, `before` in front of their PYTHONPATH;
    `companion`: with `ipyagent/labextension`, as `pip install` leaves it."""

    def __init__(
        self,
        root: Path,
        app: str = "lab",
        *,
        environment: Mapping[str, str] | None = None,
        before: str = "",
        companion: bool = False,
    ) -> None:
        self.root = root
        self.app = app
        self.forgetful = bool(before)  # only an older ipykernel is ever put before the newest
        own = root / ".jupyter"
        trait = {"lab": "LabApp", "notebook": "JupyterNotebookApp"}[app]
        environment = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join(
                [*filter(None, [before]), str(REPOSITORY), str(REPOSITORY / "tests" / "browser")]
            ),
            "JUPYTER_CONFIG_DIR": str(own / "config"),
            "JUPYTER_DATA_DIR": str(own / "data"),
            "JUPYTER_RUNTIME_DIR": str(own / "runtime"),
            "JUPYTERLAB_SETTINGS_DIR": str(own / "settings"),
            "JUPYTERLAB_WORKSPACES_DIR": str(own / "workspaces"),
            "IPYTHONDIR": str(own / "ipython"),
            **(environment or {}),
        }
        quiet = own / "settings" / "@jupyterlab" / "apputils-extension"
        quiet.mkdir(parents=True, exist_ok=True)
        (quiet / "notification.jupyterlab-settings").write_text('{"fetchNews": "false", "checkForUpdates": false}')
        # a package that the tests use for clusters brings a page extension that asks for a cluster manager
        pages = own / "config" / "labconfig"
        pages.mkdir(parents=True, exist_ok=True)
        off = {"ipyparallel-labextension": True, **({} if companion else {"ipyagent": True})}
        (pages / "page_config.json").write_text(json.dumps({"disabledExtensions": off}))
        extensions = own / "data" / "labextensions"
        extensions.mkdir(parents=True, exist_ok=True)
        if companion and not (extensions / "ipyagent").exists():
            (extensions / "ipyagent").symlink_to(REPOSITORY / "ipyagent" / "labextension", target_is_directory=True)
        command = [
            sys.executable, "-m", "jupyter", app, "--no-browser", "--allow-root", "--ServerApp.ip=127.0.0.1",
            "--ServerApp.port=0", "--IdentityProvider.token=", "--ServerApp.password=",
            f"--ServerApp.root_dir={root}", "--ServerApp.disable_check_xsrf=True",
            f"--{trait}.expose_app_in_browser=True",
        ]  # fmt: skip
        self.log = root / f"server-{app}.log"
        with self.log.open("w") as log:
            self._process = subprocess.Popen(
                command, stdout=log, stderr=subprocess.STDOUT, cwd=root, env=environment, start_new_session=True
            )
        try:
            self.base = self._wait()
        except BaseException:
            self.stop()
            raise

    def _wait(self, timeout: float = 90) -> str:
        until = time.monotonic() + timeout
        while time.monotonic() < until:
            if self._process.poll() is not None:
                raise RuntimeError("the server ended: " + self.log.read_text()[-2000:])
            found = re.search(r"http://127\.0\.0\.1:(\d+)", self.log.read_text())
            if found:
                try:
                    urllib.request.urlopen(found[0] + "/api/status", timeout=2).read()
                except OSError:
                    pass
                else:
                    return found[0]
            time.sleep(0.2)
        raise TimeoutError(self.log.read_text()[-2000:])

    def stop(self) -> None:
        """Ends the server and its kernels (they share its process group or are its children)."""
        if self._process.poll() is None:
            self._shut_kernels()
            os.killpg(self._process.pid, signal.SIGTERM)
            try:
                self._process.wait(15)
            except subprocess.TimeoutExpired:
                os.killpg(self._process.pid, signal.SIGKILL)
                self._process.wait(5)

    def _shut_kernels(self) -> None:
        try:
            with urllib.request.urlopen(self.base + "/api/kernels", timeout=5) as answer:
                kernels: list[dict[str, Any]] = json.load(answer)
            for kernel in kernels:
                request = urllib.request.Request(f"{self.base}/api/kernels/{kernel['id']}", method="DELETE")
                urllib.request.urlopen(request, timeout=15).read()
        except (OSError, AttributeError):
            pass  # it ends with its server


class Page:
    """One browser with one page on a server."""

    def __init__(self, server: Server, shots: Path, *, width: int = 1100, height: int = 850, **context: Any) -> None:
        self.server = server
        self.shots = shots
        self._playwright = sync_playwright().start()
        try:
            self._browser = self._playwright.chromium.launch(
                executable_path=CHROMIUM, args=list(CHROME_FLAGS), headless=True
            )
            self.page = self._browser.new_context(viewport={"width": width, "height": height}, **context).new_page()
        except BaseException:
            self._playwright.stop()
            raise
        self.errors: list[str] = []
        self.page.on("pageerror", lambda error: self.errors.append(str(error)))

    def __enter__(self) -> Page:
        return self

    def __exit__(self, *_: object) -> None:
        self._browser.close()
        self._playwright.stop()

    def open(self, notebook: str, *, kernel: bool = True, fresh: bool = True) -> None:
        path = "/lab/tree/" if self.server.app == "lab" else "/notebooks/"
        query = "?reset" if fresh and self.server.app == "lab" else ""
        self.page.goto(self.server.base + path + notebook + query, timeout=90_000)
        self.page.wait_for_selector(".jp-Notebook .jp-Cell", timeout=90_000)
        self.page.wait_for_function("window.jupyterapp && window.jupyterapp.shell", timeout=30_000)
        if kernel and self.server.forgetful:
            self.wait_answer()
        elif kernel:
            self.wait_idle()
        if self.server.app == "lab" and self.page.evaluate("() => !window.jupyterapp.shell.leftCollapsed"):
            self.command("application:toggle-left-area")

    def wait_answer(self) -> None:
        """Until a new kernel is idle. ipykernel 7.0 to 7.3 leave about one first request in thirty unread until
        somebody connects anew (ipython/ipykernel#1554, mended in 7.4), as a person does who reloads the page."""
        try:
            self.wait_idle(15)
        except TimeoutError:
            self.page.reload(timeout=90_000)
            self.page.wait_for_selector(".jp-Notebook .jp-Cell", timeout=90_000)
            self.wait_idle()

    def wait_idle(self, timeout: float = 60) -> None:
        script = f"() => {{ {PANEL} return p?.context?.sessionContext?.session?.kernel?.status }}"
        self._until(lambda: self.page.evaluate(script) == "idle", timeout, "an idle kernel")

    def run(self, cell: int, *, wait: bool = True, timeout: float = 60) -> None:
        self.page.evaluate(
            f"(i) => {{ {PANEL} p.content.activeCellIndex = i; p.content.deselectAll();"
            " app.commands.execute('notebook:run-cell'); }",
            cell,
        )
        if wait:
            self.wait_done(cell, timeout)

    def wait_done(self, cell: int, timeout: float = 60) -> None:
        self._until(lambda: self.prompt(cell).isdigit(), timeout, f"the end of cell {cell}")

    def prompt(self, cell: int) -> str:
        return str(self.page.evaluate(f"(i) => {{ {PANEL} return p.content.widgets[i].prompt ?? '' }}", cell))

    def cell(self, cell: int) -> Locator:
        return self.page.locator(".jp-Notebook .jp-Cell").nth(cell)

    def outputs(self, cell: int) -> list[dict[str, Any]]:
        script = f"(i) => {{ {PANEL} return p.content.widgets[i].model.outputs.toJSON() }}"
        found: list[dict[str, Any]] = self.page.evaluate(script, cell)
        return found

    def save(self) -> None:
        self.page.evaluate(f"async () => {{ {PANEL} await p.context.save() }}")

    def shut_down(self) -> None:
        """Ends the notebook's kernel: a page that opens it afterwards has the file only."""
        self.page.evaluate(f"async () => {{ {PANEL} await p.context.sessionContext.shutdown() }}")

    def command(self, name: str, arguments: dict[str, Any] | None = None) -> None:
        self.page.evaluate(
            "([name, args]) => window.jupyterapp.commands.execute(name, args)", [name, arguments or {}]
        )

    def theme(self, name: str) -> None:
        """"JupyterLab Dark" or "JupyterLab Light"."""
        self.command("apputils:change-theme", {"theme": name})
        dark = str("Dark" not in name).lower()
        self.page.wait_for_selector(f'body[data-jp-theme-light="{dark}"]', timeout=15_000, state="attached")
        time.sleep(0.5)  # the style sheet is swapped after the attribute

    def shot(self, name: str) -> Path:
        path = self.shots / f"{name}.png"
        self.page.screenshot(path=str(path))
        return path

    def _until(self, ready: Any, timeout: float, what: str) -> None:
        until = time.monotonic() + timeout
        while not ready():
            if time.monotonic() > until:
                raise TimeoutError(f"no {what} after {timeout} s")
            time.sleep(0.05)
