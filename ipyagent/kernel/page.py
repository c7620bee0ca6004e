"""The pages that show this kernel's notebook, where JupyterLab or Notebook 7 has our companion (`labextension/`).

One comm, whose name both sides know: nothing is opened, so a page without the companion and a kernel without us hear
nothing of it. What a page says comes at any moment, on any thread, perhaps twice, also while a cell blocks. A page that
does not answer within a short time counts as closed, and what it was asked for is then not done by it any more."""

from __future__ import annotations

import asyncio
import contextvars
import secrets
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any

from ipyagent.errors import ToolFailure
from ipyagent.kernel.frontend import route_clicks, server_root
from ipyagent.kernel.notebook import Notebook

TARGET = "ipyagent.page"
PATIENCE = 4.0
"""Seconds in which a page answers, or counts as closed."""
DOING = 10.0
"""Seconds in which a page that has taken an edit says that it is made."""
_SEEN = 2_000
_ATTRIBUTE = "_ipyagent_page"

Heard = Callable[[dict[str, Any]], None]


@dataclass(frozen=True)
class Page:
    """One notebook panel in a browser. `path` is the notebook's, relative to where its server began; `at` when it was
    last in front (`time.monotonic`)."""

    ident: str
    path: str
    at: float

    def shows(self, notebook: Path, root: Path | None = None) -> bool:
        """Whether it is the page of this file, as far as its path tells where nobody knows what it is relative to."""
        parts = self.parts
        if root is not None:
            return root.joinpath(*parts).resolve() == notebook.resolve()
        return bool(parts) and notebook.parts[-len(parts) :] == parts

    @property
    def parts(self) -> tuple[str, ...]:
        """The names in its path."""
        return tuple(part for part in self.path.split("/") if part)


class Unanswered(Exception):
    """No page answered. `taken`: one had taken the edit before, so that nobody knows whether it was made."""

    def __init__(self, taken: bool = False) -> None:
        super().__init__("the page did not answer")
        self.taken = taken


class PageLink:
    """The kernel's end of the comm. `root` tells what the paths of pages are relative to; asked once."""

    def __init__(self, kernel: Any, root: Callable[[], Path | None] = lambda: None) -> None:
        from comm import create_comm, get_comm_manager

        self._comm = create_comm(target_name=TARGET, comm_id=TARGET, primary=False)
        get_comm_manager().register_comm(self._comm)
        self._comm.on_msg(lambda message: self.hear(message["content"].get("data") or {}))
        self._unroute = route_clicks(kernel, self._comm, self.hear)
        self._context = contextvars.copy_context()  # a message belongs to a cell; other threads are in none
        self._root = cache(root)
        self._pages: dict[str, Page] = {}
        self._waiting: dict[str, tuple[asyncio.AbstractEventLoop, asyncio.Future[dict[str, Any]]]] = {}
        self._seen: deque[tuple[str, int]] = deque(maxlen=_SEEN)
        self._lock = threading.Lock()
        self._listeners: list[Heard] = []
        self._changed: list[Callable[[], None]] = []

    def __repr__(self) -> str:
        return f"<PageLink to {len(self._pages)} pages>"

    @property
    def met(self) -> bool:
        """Whether a page with the companion is there."""
        return bool(self._pages)

    def listen(self, heard: Heard) -> Callable[[], None]:
        """Have what pages say given to `heard`, on any thread, each once; returns what ends that."""
        self._listeners.append(heard)
        return lambda: self._listeners.remove(heard) if heard in self._listeners else None

    def on_change(self, call: Callable[[], None]) -> None:
        """Have `call` called when `changed` is."""
        self._changed.append(call)

    def changed(self) -> None:
        """What pages show of the agent is another now; on any thread."""
        for call in tuple(self._changed):
            call()

    def send(self, data: dict[str, Any]) -> None:
        """A message to every page, or to the one that `data["page"]` names; from any thread."""
        self.within(lambda: self._comm.send(data))

    def within(self, call: Callable[[], None]) -> None:
        """Call it where output has a cell to belong to: the one that ipyagent was loaded in."""
        self._context.copy().run(call)

    def page_of(self, notebook: Path | None) -> Page | None:
        """The page that shows this notebook, of several the one that was last in front. Where nobody knows the root, a
        path says more the longer it is: the page of `analysis.ipynb` is none of `old/analysis.ipynb` where that
        stands open too."""
        with self._lock:
            pages = tuple(self._pages.values())
        root = self._root() if pages and notebook is not None else None
        found = [page for page in pages if notebook is not None and page.shows(notebook, root)]
        return max(found, key=lambda page: (len(page.parts), page.at), default=None)

    async def ask(self, page: Page, kind: str, seconds: float = PATIENCE, **more: Any) -> dict[str, Any]:
        """One question to a page, and its answer. Raises Unanswered; the page is then taken for closed."""
        ident = secrets.token_hex(8)
        return await self._asked(page, ident, seconds, {"kind": kind, "id": ident, **more})

    async def have_done(self, page: Page, changes: list[dict[str, Any]]) -> dict[str, Any]:
        """Have a page make changes: it takes them first, and makes them only when it is then told to, so that one
        that wakes up late does nothing. Raises Unanswered."""
        ident = secrets.token_hex(8)
        if not (await self._asked(page, ident, PATIENCE, {"kind": "offer", "id": ident})).get("claimed"):
            return {"failed": "the open notebook is read-only"}
        try:
            return await self._asked(page, f"{ident}.done", DOING, {"kind": "do", "id": ident, "changes": changes})
        except Unanswered:
            raise Unanswered(taken=True) from None

    async def _asked(self, page: Page, ident: str, seconds: float, message: dict[str, Any]) -> dict[str, Any]:
        """Send a message to the page, and what it replies with this `ident`."""
        loop = asyncio.get_running_loop()
        reply: asyncio.Future[dict[str, Any]] = loop.create_future()
        with self._lock:
            self._waiting[ident] = (loop, reply)
        self.send({"page": page.ident, **message})
        try:
            return await asyncio.wait_for(reply, seconds)
        except TimeoutError:
            with self._lock:
                self._pages.pop(page.ident, None)  # until it says something again
            raise Unanswered from None
        finally:
            with self._lock:
                self._waiting.pop(ident, None)

    def hear(self, data: dict[str, Any]) -> None:
        """One message of a page; what it does not name exactly is ignored."""
        kind, ident, seq = data.get("kind"), data.get("page"), data.get("seq")
        if kind == "looking":  # a page that has come, perhaps while a cell runs
            self.greet()
            return
        if not isinstance(kind, str) or not isinstance(ident, str) or not isinstance(seq, int):
            return
        with self._lock:
            if (ident, seq) in self._seen:
                return
            self._seen.append((ident, seq))
            if kind == "hello":
                self._pages[ident] = Page(ident, str(data.get("path") or "").rpartition(":")[2], time.monotonic())
            elif kind == "bye":
                self._pages.pop(ident, None)
            waiting = self._waiting.get(str(data.get("id"))) if kind == "reply" else None
        if waiting is not None:
            loop, future = waiting
            if not loop.is_closed():
                loop.call_soon_threadsafe(_settle, future, data)
        elif kind != "reply":
            for heard in tuple(self._listeners):
                heard(data)

    def greet(self) -> None:
        """Say to every page that we are here; each answers."""
        self.send({"kind": "hello"})

    def close(self) -> None:
        """Nothing is heard or said any more; pages forget us."""
        from comm import get_comm_manager

        self.send({"kind": "gone"})
        self._unroute()
        self._comm.on_msg(None)
        self._comm._closed = True  # no `comm_close`: the page has it under its own name for the next load
        get_comm_manager().comms.pop(TARGET, None)


def _settle(future: asyncio.Future[dict[str, Any]], data: dict[str, Any]) -> None:
    if not future.done():
        future.set_result(data)


def link_of(shell: Any) -> PageLink | None:
    """The link of this shell's kernel; None where there is none."""
    found = vars(kernel).get(_ATTRIBUTE) if (kernel := getattr(shell, "kernel", None)) is not None else None
    return found if isinstance(found, PageLink) else None


def open_link(shell: Any) -> PageLink | None:
    """The same, made if need be; None where there is no kernel."""
    kernel = getattr(shell, "kernel", None)
    if kernel is None or not hasattr(kernel, "session"):
        return None
    if (found := link_of(shell)) is None:
        found = PageLink(kernel, partial(server_root, kernel))
        vars(kernel)[_ATTRIBUTE] = found
        found.greet()
    return found


def close_link(shell: Any) -> None:
    """End it, if there is one."""
    if (found := link_of(shell)) is not None:
        vars(shell.kernel).pop(_ATTRIBUTE, None)
        found.close()


class OpenNotebook:
    """The user's notebook as it stands in its page, for one session: read with what is not saved, changed there.

    An edit is made by the page or not at all: when the page closes meanwhile, the edit fails, and only what is read
    anew, then from the file, can be edited in the file."""

    def __init__(self, link: Callable[[], PageLink | None]) -> None:
        self._link = link
        self._seen: dict[Path, tuple[str, Notebook]] = {}
        self.planned: tuple[str, list[dict[str, Any]]] | None = None
        """The page and the changes of the call that the user is being asked about."""
        self.rejected: dict[str, frozenset[int]] = {}
        """By call: the numbers of the changes that the user rejected in the page."""

    def __repr__(self) -> str:
        return f"<OpenNotebook {', '.join(path.name for path in self._seen) or 'not read'}>"

    def page(self, path: Path) -> Page | None:
        """The page that this notebook stands in now."""
        link = self._link()
        return None if link is None else link.page_of(path)

    def seen(self, path: Path) -> Notebook | None:
        """The notebook as it was last read or changed in the page that it stands in now."""
        ident, notebook = self._seen.get(path, ("", None))
        page = self.page(path)
        return notebook if page is not None and page.ident == ident else None

    async def read(self, path: Path, cell: str = "") -> Notebook | None:
        """As it is now, outputs shortened but for those of `cell`; None where no page answers."""
        link, page = self._link(), self.page(path)
        if link is None or page is None:
            return None
        try:
            return self._taken(path, page, await link.ask(page, "read", 2 * PATIENCE, cell=cell))
        except Unanswered:
            self._seen.pop(path, None)
            return None

    async def change(self, path: Path, changes: list[dict[str, Any]]) -> Notebook:
        """Have the page make the changes, and how the notebook is then. Raises ToolFailure."""
        link, page = self._link(), self.page(path)
        known = self._seen.get(path, ("",))[0]
        try:
            if link is None or page is None or page.ident != known:
                raise Unanswered
            return self._taken(path, page, await link.have_done(page, changes))
        except Unanswered as problem:
            self._seen.pop(path, None)
            if problem.taken:
                raise ToolFailure(
                    f"the page that {path.name} is open in took the edit and did not say that it is made; the file was "
                    "not written. Read the notebook again before you go on"
                ) from None
            raise ToolFailure(
                f"the page that {path.name} was open in no longer answers; nothing was changed. Read the "
                "notebook again, then edit"
            ) from None

    def _taken(self, path: Path, page: Page, reply: dict[str, Any]) -> Notebook:
        if isinstance(reply.get("failed"), str):
            self._seen.pop(path, None)
            raise ToolFailure(f"{reply['failed'][:300]}; nothing was changed, read the notebook again")
        before = self._seen.get(path)
        data = str(reply.get("notebook")).encode("utf-8", "replace")
        notebook = Notebook.read(data, before[1].known if before else None)
        self._seen[path] = (page.ident, notebook)
        return notebook
