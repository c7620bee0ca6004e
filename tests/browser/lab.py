"""JupyterLab or Notebook 7 in headless Chromium: start, run a cell, look, save, stop.

Everything lives in one folder that the caller gives; the server takes a free port; only processes
that were started here are ended.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import nbformat
from nbformat.v4 import new_code_cell, new_notebook
from playwright.sync_api import Browser, BrowserContext, Locator, Playwright, expect, sync_playwright

from tests.kernel.forked import in_server

REPOSITORY = Path(__file__).resolve().parents[2]
CHROMIUM = os.environ.get("IPYAGENT_CHROMIUM", "/usr/bin/chromium")
CHROME_FLAGS = (
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync",
)  # fmt: skip
PATIENCE = 90
"""Seconds in which whatever is waited for comes, on a busy machine too; what a test says of time it measures."""
expect.set_options(timeout=1000 * PATIENCE)
PANEL = (
    "const app = window.jupyterapp; let p = app.shell.currentWidget;"
    "if (!p || !p.context || !p.content?.widgets) for (const w of app.shell.widgets('main'))"
    " if (w.context && w.content && w.content.widgets) { p = w; break; }"
)


_PAINTED = """dark => {
  const probe = document.body.appendChild(document.createElement("i"));
  probe.style.backgroundColor = "var(--jp-layout-color1)";
  const light = Number(/\\d+/.exec(getComputedStyle(probe).backgroundColor)[0]);
  probe.remove();
  return dark === light < 128;
}"""


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
        path = [*filter(None, [before]), str(REPOSITORY), str(REPOSITORY / "tests" / "browser")]
        forking = {} if before or "PYTHONPATH" in (environment or {}) else dict(in_server(own / "forked"))
        environment = {
            **os.environ,
            **forking,
            "PYTHONPATH": os.pathsep.join([*path, *filter(None, [forking.get("PYTHONPATH")])]),
            "JUPYTER_PREFER_ENV_PATH": "0",  # what stands in `own` comes before what is installed
            "JUPYTER_CONFIG_DIR": str(own / "config"),
            "JUPYTER_DATA_DIR": str(own / "data"),
            "JUPYTER_RUNTIME_DIR": str(own / "runtime"),
            "JUPYTERLAB_SETTINGS_DIR": str(own / "settings"),
            "JUPYTERLAB_WORKSPACES_DIR": str(own / "workspaces"),
            "IPYTHONDIR": str(own / "ipython"),
            "IPYAGENT_HOME": str(root / ".home"),
            **(environment or {}),
        }
        self._quiet()
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
        self._given = own / "given"
        shutil.rmtree(self._given, ignore_errors=True)
        shutil.copytree(root, self._given, ignore=lambda *_: {".jupyter", self.log.name})
        with self.log.open("w") as log:
            self._process = subprocess.Popen(
                command, stdout=log, stderr=subprocess.STDOUT, cwd=root, env=environment, start_new_session=True
            )
        try:
            self.base = self._wait()
        except BaseException:
            self.stop()
            raise

    def _wait(self, timeout: float = PATIENCE) -> str:
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

    def _quiet(self) -> None:
        """Lab asks for no news and no newer version."""
        folder = self.root / ".jupyter" / "settings" / "@jupyterlab" / "apputils-extension"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "notification.jupyterlab-settings").write_text('{"fetchNews": "false", "checkForUpdates": false}')

    def begin_anew(self) -> None:
        """As it was when it had started: no kernels, and in its folder the files that it was given, none else."""
        self._shut_kernels()
        for left in self.root.iterdir():
            if left != self.log and left.name != ".jupyter":
                shutil.rmtree(left) if left.is_dir() and not left.is_symlink() else left.unlink()
        shutil.copytree(self._given, self.root, dirs_exist_ok=True)
        for kind in ("settings", "workspaces"):
            shutil.rmtree(self.root / ".jupyter" / kind, ignore_errors=True)
        self._quiet()

    def stop(self) -> None:
        """Ends the server and its kernels (they share its process group or are its children)."""
        if self._process.poll() is None:
            with suppress(OSError, AttributeError):  # else they end with their server
                self._shut_kernels()
            os.killpg(self._process.pid, signal.SIGTERM)
            try:
                self._process.wait(15)
            except subprocess.TimeoutExpired:
                os.killpg(self._process.pid, signal.SIGKILL)
                self._process.wait(5)

    def _shut_kernels(self) -> None:
        for kind in ("sessions", "kernels"):  # a session ends with its kernel
            with urllib.request.urlopen(f"{self.base}/api/{kind}", timeout=30) as answer:
                found: list[dict[str, Any]] = json.load(answer)
            for each in found:
                request = urllib.request.Request(f"{self.base}/api/{kind}/{each['id']}", method="DELETE")
                try:
                    urllib.request.urlopen(request, timeout=60).read()
                except urllib.error.HTTPError as problem:
                    if problem.code not in (404, 410):  # it went meanwhile
                        raise


class Chromium:
    """One browser for all pages of a module, with what it has cached of the servers."""

    def __init__(self) -> None:
        self._started: tuple[Playwright, Browser, BrowserContext] | None = None

    def context(self, given: Mapping[str, Any]) -> BrowserContext:
        """The common one, or one of its own for a page that has wishes."""
        if self._started is None:
            playwright = sync_playwright().start()
            try:
                browser = playwright.chromium.launch(executable_path=CHROMIUM, args=list(CHROME_FLAGS), headless=True)
                self._started = (playwright, browser, browser.new_context())
            except BaseException:
                playwright.stop()
                raise
        _, browser, common = self._started
        return browser.new_context(**given) if given else common

    def close(self) -> None:
        if self._started is not None:
            playwright, browser, _ = self._started
            self._started = None
            browser.close()
            playwright.stop()


CHROME = Chromium()


class Page:
    """A page on a server."""

    def __init__(self, server: Server, shots: Path, *, width: int = 1100, height: int = 850, **context: Any) -> None:
        self.server = server
        self.shots = shots
        opened = CHROME.context(context)
        opened.set_default_timeout(1000 * PATIENCE)
        self._closes = opened if context else None
        self.page = opened.new_page()
        self.page.set_viewport_size({"width": width, "height": height})
        self.errors: list[str] = []
        self.page.on("pageerror", lambda error: self.errors.append(str(error)))

    def __enter__(self) -> Page:
        return self

    def __exit__(self, *_: object) -> None:
        for page in self.page.context.pages:
            page.close()
        if self._closes is not None:
            self._closes.close()

    def open(self, notebook: str, *, kernel: bool = True, fresh: bool = True) -> None:
        path = "/lab/tree/" if self.server.app == "lab" else "/notebooks/"
        query = "?reset" if fresh and self.server.app == "lab" else ""
        self.page.goto(self.server.base + path + notebook + query)
        self.page.wait_for_selector(".jp-Notebook .jp-Cell")
        self.page.wait_for_function("window.jupyterapp && window.jupyterapp.shell")
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
            self.page.reload()
            self.page.wait_for_selector(".jp-Notebook .jp-Cell")
            self.wait_idle()

    def wait_idle(self, timeout: float = PATIENCE) -> None:
        script = f"() => {{ {PANEL} return p?.context?.sessionContext?.session?.kernel?.status }}"
        self._until(lambda: self.page.evaluate(script) == "idle", timeout, "an idle kernel")

    def run(self, cell: int, *, wait: bool = True, timeout: float = PATIENCE) -> None:
        """Its number goes first: the one that comes is of this run."""
        self.page.evaluate(
            f"(i) => {{ {PANEL} p.content.activeCellIndex = i; p.content.deselectAll();"
            " p.content.widgets[i].model.executionCount = null; app.commands.execute('notebook:run-cell'); }",
            cell,
        )
        if wait:
            self.wait_done(cell, timeout)

    def wait_done(self, cell: int, timeout: float = PATIENCE) -> None:
        self._until(lambda: self.prompt(cell).isdigit(), timeout, f"the end of cell {cell}")

    def prompt(self, cell: int) -> str:
        return str(self.page.evaluate(f"(i) => {{ {PANEL} return p.content.widgets[i].prompt ?? '' }}", cell))

    def cell(self, cell: int) -> Locator:
        return self.page.locator(".jp-Notebook .jp-Cell").nth(cell)

    def says(self, cell: int, words: str) -> None:
        """Wait until the words are to be seen in the cell: what is drawn comes after the cell's end."""
        expect(self.cell(cell)).to_contain_text(words, use_inner_text=True)

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
        self.page.evaluate("([name, args]) => window.jupyterapp.commands.execute(name, args)", [name, arguments or {}])

    def theme(self, name: str) -> None:
        """ "JupyterLab Dark" or "JupyterLab Light"."""
        self.command("apputils:change-theme", {"theme": name})
        dark = str("Dark" not in name).lower()
        self.page.wait_for_selector(f'body[data-jp-theme-light="{dark}"]', state="attached")
        self.page.wait_for_function(_PAINTED, arg="Dark" in name)  # the style sheet is swapped after the attribute
        self.page.wait_for_timeout(300)  # colours that change slowly

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
