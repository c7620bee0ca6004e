"""The whole product in a browser: a practice server in this process, a Jupyter server whose kernels ask it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import psutil

from ipyagent.practice.model import answer
from ipyagent.practice.replies import Fault, Reply
from ipyagent.practice.server import PracticeServer

from .lab import PANEL, Page, Server, until

MODEL = "claude-sonnet-5-5"
HELD = "import pathlib, time\nwhile not pathlib.Path('go').exists():\n    time.sleep(0.05)"
"""Code that blocks the kernel until `let_go`."""

# Measured in the page: from the click to the moment the cell has its number, in milliseconds.
_TIMED = (
    f"([i, kind]) => {{ {PANEL}"
    """
  const widget = p.content.widgets[i];
  const end = (began) => new Promise(async (told) => {
    while (!/^\\d+$/.test(widget.prompt ?? "")) {
      if (performance.now() - began > 15000) return told(-1);
      await new Promise((go) => setTimeout(go, 2));
    }
    told(performance.now() - began);
  });
  if (kind === "stop") {
    const stop = widget.node.querySelector(".ia-stop");
    window.timed = new Promise((told) =>
      stop.addEventListener("click", () => told(end(performance.now())), { capture: true, once: true }));
  } else {
    window.timed = end(performance.now());
    return p.context.sessionContext.session.kernel.interrupt(); // a request of its own, which a click could overtake
  }
}"""
)


class Product:
    """`app` is "lab" or "notebook", `ipykernel` a folder with another ipykernel, "" for the installed one."""

    def __init__(
        self,
        root: Path,
        app: str = "lab",
        *,
        ipykernel: str = "",
        environment: Mapping[str, str] | None = None,
        companion: bool = False,
    ) -> None:
        self.root = root
        self.model = PracticeServer(answer)
        self.model.start()
        try:
            self.jupyter = Server(
                root,
                app,
                before=ipykernel,
                companion=companion,
                environment={
                    "ANTHROPIC_BASE_URL": self.model.url,
                    "ANTHROPIC_API_KEY": "practice",
                    "IPYAGENT_MODEL": MODEL,
                    "IPYAGENT_MODE": "auto",
                    "IPYAGENT_EXTRACTION": "false",
                    **(environment or {}),
                },
            )
        except BaseException:
            self.model.stop()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.jupyter.stop()
        self.model.stop()

    def begin_anew(self) -> None:
        """As it was when it had started; the model has been asked nothing."""
        self.jupyter.begin_anew()
        until(lambda: self.model.open_streams == 0, "end of what the kernels asked")
        self.forget()
        self.model.brain = answer
        self.model.log.clear()

    def script(self, *replies: Reply | Fault) -> None:
        """What the model answers next."""
        assert self.model.scripted == 0, f"replies of the step before are left: {self.model!r}"
        self.model.script(*replies)

    @property
    def bodies(self) -> list[dict[str, Any]]:
        """What the model was asked, as far as it has come."""
        return [each.body for each in self.model.messages if each.body]

    def let_go(self) -> None:
        """Code that is HELD ends, also what comes of it later."""
        (self.root / "go").touch()

    def forget(self) -> int:
        """Drop scripted replies that were not asked for; how many there were."""
        left = self.model.scripted
        for _ in range(left):
            self.model.next_reply({})
        return left


def timed_end(page: Page, cell: int, kind: str, *, late_approval: bool = False) -> float:
    """Milliseconds from a click on Stop (`kind` "stop") or an interrupt to the finished cell. With
    `late_approval` "Allow once" is clicked as soon as that was sent."""
    places = []
    for part in [".ia-stop"] * (kind == "stop") + ["[data-act=once]"] * late_approval:
        page.cell(cell).locator(part).scroll_into_view_if_needed()
    for part in [".ia-stop"] * (kind == "stop") + ["[data-act=once]"] * late_approval:
        box = page.cell(cell).locator(part).bounding_box()
        places.append((box["x"] + box["width"] / 2, box["y"] + box["height"] / 2))
    page.page.evaluate(_TIMED, [cell, kind])
    for place in places:  # of the mouse itself: what a script clicks does not count
        page.page.mouse.click(*place)
    took: float = page.page.evaluate("() => window.timed")
    assert took >= 0, f"cell {cell} did not end after {kind}"
    return took


def running(words: str) -> list[psutil.Process]:
    """Processes of this machine with `words` in their command line."""
    found = []
    for process in psutil.process_iter():
        try:
            if words in " ".join(process.cmdline()):
                found.append(process)
        except (psutil.NoSuchProcess, psutil.ZombieProcess, psutil.AccessDenied):
            continue
    return found
