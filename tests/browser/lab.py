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
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import nbformat
from nbformat.v4 import new_code_cell, new_notebook
from playwright.sync_api import Browser, BrowserContext, Locator, Playwright, expect, sync_playwright
from playwright.sync_api import Page as Tab

from tests.kernel.forked import in_server

TRUSTED = "%load_ext ipyagent\n%config IPyAgent.trust_all = True\n"
"""A first cell where memories are there before the agent is."""
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

THEMES = (("JupyterLab Dark", "dark"), ("JupyterLab Light", "light"))
SHOTS = os.environ.get("IPYAGENT_SCREENSHOTS")
"""A folder for pictures that people will look at; without it none is taken."""
_PAINTED = """dark => {
  const probe = document.body.appendChild(document.createElement("i"));
  probe.style.backgroundColor = "var(--jp-layout-color1)";
  const light = Number(/\\d+/.exec(getComputedStyle(probe).backgroundColor)[0]);
  probe.remove();
  return dark === light < 128;
}"""
_TIDIED = """async base => {
  const app = window.jupyterapp;
  if (!app || location.origin !== base || document.querySelector(".jp-Dialog, .lm-Menu")) return false;
  for (const widget of [...app.shell.widgets("main")]) widget.dispose();
  app.shell.collapseRight();
  document.body.style.height = "";
  return true;
}"""


def write_notebook(folder: Path, name: str, cells: list[str]) -> str:
    notebook = new_notebook(cells=[new_code_cell(cell) for cell in cells])
    notebook.metadata["kernelspec"] = {"name": "python3", "display_name": "Python 3", "language": "python"}
    nbformat.write(notebook, folder / name)
    return name


def stored(folder: Path, name: str) -> list[dict[str, Any]]:
    """The cells of the file; none while it is being written, which jupyter-collaboration does in place."""
    try:
        cells: list[dict[str, Any]] = json.loads((folder / name).read_bytes())["cells"]
    except json.JSONDecodeError:
        return []
    return [{**cell, "source": "".join(cell["source"])} for cell in cells]


def until(ready: Callable[[], Any], what: str | Callable[[], str], seconds: float = PATIENCE) -> None:
    """Wait for a condition; `what` says in the end what did not come."""
    end = time.monotonic() + seconds
    while not ready():
        assert time.monotonic() < end, f"no {what() if callable(what) else what} after {seconds} s"
        time.sleep(0.05)


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
        self._environment = {
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
        self._command = [
            sys.executable, "-m", "jupyter", app, "--no-browser", "--allow-root", "--ServerApp.ip=127.0.0.1",
            "--ServerApp.port=0", "--IdentityProvider.token=", "--ServerApp.password=",
            f"--ServerApp.root_dir={root}", "--ServerApp.disable_check_xsrf=True",
            f"--{trait}.expose_app_in_browser=True",
        ]  # fmt: skip
        self.log = root / f"server-{app}.log"
        self._start()

    def _start(self) -> None:
        with self.log.open("w") as log:
            self._process = subprocess.Popen(
                self._command, stdout=log, stderr=subprocess.STDOUT, cwd=self.root, env=self._environment,
                start_new_session=True,
            )  # fmt: skip
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
        """As it was when it had started: no kernels, and no files in its folder. One that has ended, or does not
        answer, is started again."""
        try:
            self._shut_kernels()
        except OSError:
            self.stop()
        for left in self.root.iterdir():
            if left != self.log and left.name != ".jupyter":
                shutil.rmtree(left) if left.is_dir() and not left.is_symlink() else left.unlink()
        for kind in ("settings", "workspaces"):
            shutil.rmtree(self.root / ".jupyter" / kind, ignore_errors=True)
        self._quiet()
        if self._process.poll() is not None:
            self._start()

    def stop(self) -> None:
        """Ends the server and its kernels (they share its process group or are its children)."""
        CHROME.forget(self)
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
    """One browser for all pages, with what it has cached of the servers; a JupyterLab whose test has ended well waits
    in its page for the next one: loading it takes five seconds of processor time."""

    def __init__(self) -> None:
        self._started: tuple[Playwright, Browser, BrowserContext] | None = None
        self._waiting: dict[Server, Tab] = {}

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

    def waiting(self, server: Server) -> Tab | None:
        """The server's JupyterLab without documents, if there is one."""
        return self._waiting.pop(server, None)

    def put_back(self, server: Server, tab: Tab, *, well: bool) -> None:
        """After a test: what still shows JupyterLab waits for the next one, all else is closed."""
        if well and server.app == "lab" and server not in self._waiting and tab.evaluate(_TIDIED, server.base):
            self._waiting[server] = tab
        else:
            tab.close()

    def close_others(self) -> None:
        """Between tests: what one that has failed has left open."""
        if self._started is not None:
            for page in self._started[2].pages:
                if page not in self._waiting.values():
                    page.close()

    def forget(self, server: Server) -> None:
        if (tab := self.waiting(server)) is not None:
            tab.close()

    def close(self) -> None:
        self._waiting.clear()
        if self._started is not None:
            playwright, browser, _ = self._started
            self._started = None
            browser.close()
            playwright.stop()


CHROME = Chromium()


class Page:
    """A page on a server; `anew`: it is loaded, as by a person who comes back, where otherwise the JupyterLab of the
    test before may show the notebook. `context` are wishes of Playwright."""

    def __init__(
        self, server: Server, *, width: int = 1100, height: int = 850, anew: bool = False, **context: Any
    ) -> None:
        self.server = server
        opened = CHROME.context(context)
        opened.set_default_timeout(1000 * PATIENCE)
        self._own = opened if context else None
        there = None if context or anew else CHROME.waiting(server)
        self._loaded = there is not None
        self.page = there or opened.new_page()
        self.page.set_viewport_size({"width": width, "height": height})
        self.errors: list[str] = []
        self.page.on("pageerror", self._went_wrong)

    def _went_wrong(self, error: object) -> None:
        if self.server.app == "lab" or "schema" not in str(error):  # which Notebook 7 misses itself now and then
            self.errors.append(str(error))

    def __enter__(self) -> Page:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        CHROME.put_back(self.server, self.page, well=kind is None and self._own is None)
        if self._own is not None:
            self._own.close()

    def open(self, notebook: str, *, kernel: bool = True, fresh: bool = True) -> None:
        if self._loaded:
            self._loaded = False
            self.page.mouse.move(0, 0)
            if self.page.evaluate("() => document.body.dataset.jpThemeLight === 'false'"):
                self.theme("JupyterLab Light")
            self.command("docmanager:open", {"path": notebook})
        else:
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
        except AssertionError:
            self.page.reload()
            self.page.wait_for_selector(".jp-Notebook .jp-Cell")
            self.wait_idle()

    def wait_idle(self, timeout: float = PATIENCE) -> None:
        script = f"() => {{ {PANEL} return p?.context?.sessionContext?.session?.kernel?.status }}"
        until(lambda: self.page.evaluate(script) == "idle", "idle kernel", timeout)

    def sources(self) -> list[str]:
        """What stands in the cells, saved or not."""
        found: list[str] = self.page.evaluate(
            f"() => {{ {PANEL} return p.content.widgets.map((w) => w.model.sharedModel.getSource()) }}"
        )
        return found

    def shows(self, sources: list[str]) -> None:
        until(lambda: self.sources() == sources, lambda: f"cells {sources}, but {self.sources()}")

    def write(self, cell: int, source: str) -> None:
        """As by a user who types it and does not save."""
        script = f"([i, source]) => {{ {PANEL} p.content.widgets[i].model.sharedModel.setSource(source) }}"
        self.page.evaluate(script, [cell, source])

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
        until(lambda: self.prompt(cell).isdigit(), f"end of cell {cell}", timeout)

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
        script = "async ([name, args]) => { await window.jupyterapp.commands.execute(name, args); }"
        self.page.evaluate(script, [name, arguments or {}])

    def theme(self, name: str) -> None:
        """ "JupyterLab Dark" or "JupyterLab Light"."""
        self.command("apputils:change-theme", {"theme": name})
        dark = str("Dark" not in name).lower()
        self.page.wait_for_selector(f'body[data-jp-theme-light="{dark}"]', state="attached")
        self.page.wait_for_function(_PAINTED, arg="Dark" in name)  # the style sheet is swapped after the attribute
        self.page.wait_for_timeout(300)  # colours that change slowly

    def shot(self, name: str) -> None:
        if SHOTS:
            self.page.screenshot(path=f"{SHOTS}/{name}.png")

    def both(self, name: str) -> None:
        """A picture in dark and one in light, for people: themes are judged in test_accessible.py."""
        if SHOTS:
            for theme, suffix in THEMES:
                self.theme(theme)
                self.shot(f"{name}_{suffix}")
