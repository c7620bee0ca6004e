"""The memory browser: a list, one memory open, its history, a recall tester, the dream.

The page asks for what it shows, a window of rows at a time, so that ten thousand memories cost no more than
ten; every message stays below a megabyte. All is set as text but the rendered Markdown, which was made and
escaped here. As soon as another cell runs the static form takes the browser's place."""

from __future__ import annotations

import sqlite3
import uuid
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from typing import Any

from ipyagent.errors import AgentError
from ipyagent.escape import escape, line, plain
from ipyagent.frontmatter import read_headed
from ipyagent.journal.events import MemorySaved
from ipyagent.parts.memory.browsing import Browsing, age, browsing_of, diff, provenance
from ipyagent.parts.memory.dream_scheduler import DreamScheduler
from ipyagent.parts.memory.metadata_index import digest_of
from ipyagent.parts.memory.safe_paths import address
from ipyagent.parts.memory.store import Memory
from ipyagent.ui import markdown, theme
from ipyagent.ui.board import HTML_BYTES, PLAIN_CHARS, QUERY_CHARS, STATIC_ROWS, BoardHost, BoardTab, Reply, when
from ipyagent.ui.board import Rows as TabRows
from ipyagent.ui.memory_chips import ago, name_of, short_name
from ipyagent.ui.theme import script

# ---- The memories as they stand in a saved notebook and in a terminal: no kernel, no script, bounded in size.

ROWS = 200
"""Memories that the static form lists, the newest."""
TEXTS = 60
"""Of these, those whose text it has."""
TEXT_CHARS = 4_000
TERMINAL_ROWS = 60
NAME_WIDTH = 56
_CELL = "padding:2px 8px;text-align:left;vertical-align:top"
NAME_CHARS = 40
"""Characters of a name that stands on one line."""


def list_lines(browsing: Browsing, most: int = TERMINAL_ROWS) -> list[str]:
    """One line a memory, newest first, and what is not listed."""
    found = browsing.everything()
    width = min(NAME_WIDTH, max((len(short_name(memory.path)) for memory in found[:most]), default=0))
    lines = [memory_line(memory, width) for memory in found[:most]]
    if len(found) > most:
        lines.append(f"… {len(found) - most:,} older ones (%memory search WORDS)")
    missing = [line(why, 300) for why in browsing.missing()]
    if not found and not missing:
        lines.append("no memories yet: say “remember …” to the agent, or %memory add TEXT")
    return [*lines, *missing]


def memory_line(memory: Memory, width: int) -> str:
    """"feedback_plots.md  feedback  project  12 days ago  Axes have units"; the name as wide as `width`."""
    problem = f"  ! {line(memory.problems[0], 120)}" if memory.problems else ""
    columns = f"{short_name(memory.path):<{width}}  {line(memory.kind, 9) or '-':<9}  {line(memory.scope, 8):<8}"
    return f"{columns} {ago(age(memory)):<13} {line(memory.description, 90)}{problem}"


def static_browser(browsing: Browsing) -> dict[str, str]:
    """`text/html`, `text/markdown` and `text/plain` of the memories, newest first."""
    found, missing = browsing.everything(), [line(why, 300) for why in browsing.missing()]
    return {
        "text/html": _html(browsing, found, missing),
        "text/markdown": _markdown(found, missing),
        "text/plain": "\n".join(list_lines(browsing, ROWS)),
    }


def _markdown(found: list[Memory], missing: list[str]) -> str:
    from ipyagent.ui.static import _words

    rows = ["| memory | type | scope | age | about |", "|---|---|---|---|---|"]
    for memory in found[:ROWS]:
        about = line(memory.description, 160) + (f" (! {line(memory.problems[0], 120)})" if memory.problems else "")
        cells = (short_name(memory.path), memory.kind, memory.scope, ago(age(memory)), about)
        rows.append("| " + " | ".join(_words(cell) for cell in cells) + " |")
    count = f"{len(found):,} memor{'y' if len(found) == 1 else 'ies'}"
    heading = [f"**{count}**"] if found or not missing else []  # else nobody may look at them
    parts = [*heading, "\n".join(rows)] if found else heading
    if len(found) > ROWS:
        parts.append(f"*{len(found) - ROWS:,} older ones are not listed*")
    return "\n\n".join([*parts, *(_words(why) for why in missing)]) + "\n"


def _html(browsing: Browsing, found: list[Memory], missing: list[str]) -> str:
    rows = "".join(_entry(browsing, memory, number < TEXTS) for number, memory in enumerate(found[:ROWS]))
    head = "".join(f'<th style="{_CELL}">{name}</th>' for name in ("memory", "type", "scope", "age"))
    table = f'<table style="{theme.TABLE}"><tr>{head}</tr>{rows}</table>' if found else ""
    more = f"<p><em>{len(found) - ROWS:,} older ones are not listed</em></p>" if len(found) > ROWS else ""
    why = "".join(f"<p><em>{escape(each)}</em></p>" for each in missing)
    count = f"{len(found):,} memor{'y' if len(found) == 1 else 'ies'}"
    heading = f"<p><strong>{count}</strong></p>" if found or not missing else ""
    return f'<div class="ipyagent ia-static tex2jax_ignore mathjax_ignore">{heading}{table}{more}{why}</div>'


def _entry(browsing: Browsing, memory: Memory, whole: bool) -> str:
    short = short_name(memory.path)
    whole_name = theme.NAME if len(short) <= NAME_CHARS else "overflow-wrap:anywhere"
    name = f'<strong style="{whole_name}">{escape(short)}</strong> {escape(line(memory.description, 200))}'
    problems = "".join(f"<div><small>! {escape(line(each, 200))}</small></div>" for each in memory.problems[:5])
    told = provenance(memory)
    source = f"<p><small>{escape(line(told, 200))}</small></p>" if told else ""
    first, body = name + problems, ""
    with suppress(AgentError, OSError):  # it went, or cannot be read: the list tells its problem
        body = _body(browsing.access().store(memory.scope).read(memory.name).text) if whole else ""
    if body:
        cut = f"\n\n… {len(body) - TEXT_CHARS:,} more characters" if len(body) > TEXT_CHARS else ""
        text = markdown.render(body[:TEXT_CHARS] + cut, inline=True)
        first = f'<details><summary style="cursor:pointer">{name}</summary>{source}{text}</details>{problems}'
    cells = (first, escape(memory.kind or "-"), escape(memory.scope), ago(age(memory)))
    styles = ("overflow-wrap:anywhere", *[theme.NAME] * 3)
    shown = (f'<td style="{_CELL};{own}">{cell}</td>' for cell, own in zip(cells, styles, strict=True))
    return f"<tr>{''.join(shown)}</tr>"


def _body(text: str) -> str:
    return read_headed(text.encode("utf-8", "surrogatepass")).body


WINDOW = 200
"""Rows of one answer, at most."""
OPEN_CHARS = 100_000
"""Characters of a memory that are shown; a longer one cannot be edited here."""


def show(
    shell: Any, browsing: Browsing, *, busy: bool = False, dreams: DreamScheduler | None = None, panels: str = "auto"
) -> str:
    """Open the browser in a live front-end, leave its static form in another kernel; elsewhere the list as text.
    `panels` as in the setting."""
    from ipyagent.kernel.frontend import describe_frontend

    front = describe_frontend(shell, panels)
    if front.kind != "kernel":
        return "\n".join(list_lines(browsing))
    if front.live_widgets and not busy:
        MemoryBrowser(browsing, dreams).open(shell)
    else:
        shell.display_pub.publish(static_browser(browsing))
    return ""


@cache
def _browser_class() -> Any:
    import anywidget
    import traitlets

    class IpyagentMemories(anywidget.AnyWidget):
        _esm = script("memory_browser", dom="dom")
        _css = theme.sheet("memory_browser")
        state = traitlets.Dict().tag(sync=True)

        def __repr__(self) -> str:  # all that a front-end without widgets shows
            return "the memory browser; run another cell to see its static form"

    return IpyagentMemories


class MemoryBrowser:
    """Shows the memories in a live front-end until the next cell runs."""

    def __init__(self, browsing: Browsing, dreams: DreamScheduler | None = None) -> None:
        self._browsing = browsing
        self._dreams = dreams
        self._display = uuid.uuid4().hex
        self._widget: Any = None
        self._shell: Any = None
        self._unwatch: Callable[[], None] | None = None
        self._done: list[MemorySaved] = []

    def __repr__(self) -> str:
        return f"<MemoryBrowser, {len(self._done)} changes>"

    def open(self, shell: Any) -> None:
        """Appear below the running cell."""
        from IPython.display import display

        self._shell = shell
        self._widget = _browser_class()(state=self.state())
        self._widget.on_msg(lambda _widget, content, _buffers: self.answer(content))
        display(self._widget, display_id=self._display)  # type: ignore[no-untyped-call]  # IPython has no types
        shell.events.register("pre_run_cell", self.settle)
        if self._dreams is not None:
            self._unwatch = self._dreams.watch(self._tell_dream)

    def settle(self, _info: Any = None) -> None:
        """Leave the static form in the widget's place."""
        from IPython.display import update_display

        if self._widget is None:
            return
        self._shell.events.unregister("pre_run_cell", self.settle)
        if self._unwatch is not None:
            self._unwatch()
        bundle = static_browser(self._browsing)
        update_display(bundle, display_id=self._display, raw=True)  # type: ignore[no-untyped-call]  # no types
        self._widget.close()
        self._widget = None

    def state(self) -> dict[str, Any]:
        """What a page begins with; all else it asks for."""
        return {"missing": [line(why, 300) for why in self._browsing.missing()], "dream": self._dream()}

    # ------------------------------------------------------------------ messages of the page

    def answer(self, content: dict[str, Any]) -> None:
        """One message of the page. What it does not name exactly is ignored; what fails is said there."""
        if self._widget is not None and (reply := self.reply(content)) is not None:
            self._widget.send({**reply, "seq": content.get("seq")})

    def reply(self, content: dict[str, Any]) -> dict[str, Any] | None:
        """What the page is answered; None for what it does not name exactly."""
        try:
            return self._reply(content)
        except (AgentError, OSError, sqlite3.Error) as problem:
            return {"failed": line(str(problem), 500), "of": _word(content, "kind")}

    def _reply(self, content: dict[str, Any]) -> dict[str, Any] | None:
        path, revision, access = _word(content, "path"), _word(content, "revision"), self._browsing.access()
        match content.get("kind"):
            case "rows":
                return self._rows(content)
            case "open":
                return {"opened": self._opened(path)}
            case "diff":
                place = address(path)
                store = access.store(place.scope)
                before = store.version(place.name, revision).text
                now = store.read(place.name).text if store.exists(place.name) else ""
                return {"diff": [[sign, plain(text)] for sign, text in diff(before, now)]}
            case "restore":
                return self._changed(access.restore(address(path), revision).event)
            case "save":

                def edit(before: str) -> str:
                    if _digest(before) != content.get("digest"):
                        raise AgentError(
                            "the memory changed while you were editing it, so nothing was saved; open it again"
                        )
                    return _word(content, "text")

                return self._changed(access.change(address(path), edit).event)
            case "forget":
                return self._changed(access.delete(address(path)).event)
            case "undo":
                number = content.get("number")
                if not isinstance(number, int) or not 0 <= number < len(self._done):
                    return None
                return self._changed(access.undo(self._done[number]).event)
            case "recall":
                why, found = self._browsing.recall(_word(content, "query")[:QUERY_CHARS])
                tried = [(each.recalled, each.picked) for each in found]
                rows = [[one.path, short_name(one.path), one.score, line(one.why), picked] for one, picked in tried]
                return {"tried": rows, "why": line(why, 300)}
            case "stop-dream" if self._dreams is not None:
                self._dreams.stop()
                return {"dream": self._dream()}
            case _:
                return None

    def _rows(self, content: dict[str, Any]) -> dict[str, Any]:
        """The memories of a scope and a type ("none": without one), or with a bad header, whose name, title or
        description has all of the words; in the order "best" the ranking of recall finds them in the whole text."""
        words, scope, kind = (_word(content, name) for name in ("words", "scope", "type"))
        words = words[:QUERY_CHARS]
        order, parts = content.get("order"), words.casefold().split()
        best = bool(parts) and order == "best"

        def fits(memory: Memory) -> bool:
            text = f"{memory.name}\n{memory.title}\n{memory.description}".casefold()
            return (
                (not scope or memory.scope == scope)
                and (not kind or memory.kind == ("" if kind == "none" else kind))
                and bool(not content.get("problems") or memory.problems)
                and (best or all(part in text for part in parts))
            )

        found = list(filter(fits, self._browsing.search(words) if best else self._browsing.everything()))
        match order:
            case "oldest":
                found.reverse()
            case "name":
                found.sort(key=lambda memory: memory.name.casefold())
            case "type":
                found.sort(key=lambda memory: (memory.kind or "~", memory.name.casefold()))
        begin, count = (
            max(0, value) if isinstance(value := content.get(name), int) else 0 for name in ("from", "count")
        )
        rows = [row(memory) for memory in found[begin : begin + min(count, WINDOW)]]
        return {"rows": rows, "from": begin, "total": len(found)}

    def _opened(self, path: str) -> dict[str, Any]:
        place, access = address(path), self._browsing.access()
        memory = next((each for each in access.listed(place.scope) if each.name == place.name), None)
        if memory is None:
            raise AgentError(f"there is no memory {path}, it was deleted or renamed meanwhile: open the list again")
        store = access.store(place.scope)
        text = store.read(memory.name).text
        body = _body(text)[:OPEN_CHARS]
        rendered = markdown.render(body)
        if len(rendered.encode("utf-8", "replace")) > HTML_BYTES:
            rendered = f"<pre>{escape(body[:PLAIN_CHARS])}</pre>"
        facts = [memory.scope, memory.kind or "no type", f"written {when(memory.modified)}", provenance(memory)]
        return {
            "path": memory.path, "title": line(memory.title, 200), "name": line(memory.name, 200),
            "facts": [line(fact, 200) for fact in facts if fact], "description": line(memory.description, 500),
            "problems": [line(problem, 300) for problem in memory.problems[:20]], "html": rendered,
            "text": text[:OPEN_CHARS], "digest": _digest(text), "cut": len(text) > OPEN_CHARS,
            "versions": [
                [version.revision, when(version.time), line(version.by, 40), line(version.change, 40), version.size]
                for version in store.versions(memory.name)
            ],
        }  # fmt: skip

    def _changed(self, done: MemorySaved) -> dict[str, Any]:
        self._done.append(done)
        word = {"deleted": "forgotten", "restored": "restored", "renamed": "renamed"}.get(done.change, "saved")
        words = line(f"{word}: {name_of(done.path)}", 300)
        gone = done.change == "deleted"
        return {"changed": words, "number": len(self._done) - 1, "path": done.path, "gone": gone}

    # ------------------------------------------------------------------ the dream

    def _dream(self) -> dict[str, Any] | None:
        if self._dreams is None:
            return None
        now = self._dreams.now()
        return {
            "status": now.status, "phase": now.phase, "turns": [line(turn, 200) for turn in now.turns[-30:]],
            "files": [line(name, 120) for name in now.files[:200]], "seconds": round(now.seconds),
            "message": line(now.message, 300),
        }  # fmt: skip

    def _tell_dream(self) -> None:
        widget = self._widget
        if widget is not None:
            widget.send({"dream": self._dream()})


def row(memory: Memory) -> list[Any]:
    """A memory in the page's list: path, title, description, type, scope, age, provenance, problems."""
    return [
        memory.path, line(memory.title, 120), line(memory.description or memory.name, 200), memory.kind, memory.scope,
        ago(age(memory)), line(provenance(memory), 120), line("; ".join(memory.problems[:3]), 200),
    ]  # fmt: skip


def _word(content: dict[str, Any], name: str) -> str:
    value = content.get(name)
    return value if isinstance(value, str) else ""


def _digest(text: str) -> str:
    return digest_of(text.encode("utf-8", "surrogatepass"))


class MemoryTab(BoardTab):
    """The memory browser."""

    title = "Memory"

    def __init__(self, host: BoardHost, dreaming: DreamScheduler) -> None:
        super().__init__(host)
        self._browsing = browsing_of(host.agent)
        self._browser = MemoryBrowser(self._browsing, dreaming)
        self._dreamt = False
        self._leave = dreaming.watch(self._dream)

    def _dream(self) -> None:
        self._dreamt = True
        self._host.wake()

    def close(self) -> None:
        self._leave()

    def state(self) -> dict[str, Any]:
        return self._browser.state()

    def rows(self) -> TabRows:
        found = self._browsing.everything()
        cells = [
            [line(each.name, 60), each.kind or "-", each.scope, line(each.description, 100)]
            for each in found[:STATIC_ROWS]
        ]
        head = f"{len(found):,} memor{'y' if len(found) == 1 else 'ies'}"
        return head, ("memory", "type", "scope", "about"), cells, len(found)

    def lines(self, table: TabRows) -> list[str]:
        return [f"  {row}" for row in list_lines(self._browsing, STATIC_ROWS)] if table[2] else []

    def fresh(self) -> Reply:
        if not self._dreamt:
            return None
        self._dreamt = False
        return {"dream": self._browser.state()["dream"]}

    def answer(self, content: dict[str, Any]) -> Reply:
        return self._browser.reply(content)
