"""What one run of code displays: kept as text and pictures for the model, and passed on into the cell, where it
stands and is cleared as in a plain cell."""

from __future__ import annotations

import base64
import binascii
import io
import struct
import sys
import threading
import uuid
from collections import deque
from collections.abc import Callable, Mapping
from functools import partial
from importlib import import_module
from typing import Any, NamedTuple

from ipyagent.journal.protocols import CellOutput, Image
from ipyagent.kernel.audit import unwatched
from ipyagent.kernel.output import OutputLog, cap, clean
from ipyagent.kernel.rendering import is_bare, says_shown, text_of, widget_text

# ---- Pictures fit for the model: long edge at most 1568 pixels, under 4.5 MB, a kind it can read. The API refuses
# images over 5 MB or 8000 pixels, and one that was let in poisons every later turn.

LONG_EDGE = 1568
MAX_BYTES = 4_500_000
_HARD_BYTES = 5_000_000
_HARD_EDGE = 8_000
_SILENT_BACKENDS = frozenset({"agg", "cairo", "pdf", "pgf", "ps", "svg", "template"})
_READ_BY_ALL = ("image/png", "image/jpeg")
"""What every model that takes pictures can read; of others the first picture becomes a PNG."""
_MAX_PIXELS = 100_000_000
"""A picture that unpacks to more is not opened: 400 MB of memory for one figure."""


def fit_picture(media_type: str, data: bytes | str) -> Image | None:
    """`data` (bytes, or base64 text as front-ends get it) as an image the model may get, scaled
    down where needed; None when that cannot be done."""
    if isinstance(data, str):
        try:
            data = base64.b64decode(data)
        except (binascii.Error, ValueError):
            return None
    if not data:
        return None
    size = None
    if media_type == "image/png" and len(data) >= 24 and data[:8] == b"\x89PNG\r\n\x1a\n":
        size = struct.unpack(">II", data[16:24])
    if size is not None and max(size) <= LONG_EDGE and len(data) <= MAX_BYTES:
        return Image(media_type, data)
    try:
        import PIL.Image
    except ImportError:
        small = len(data) < _HARD_BYTES and (size is None or max(size) <= _HARD_EDGE)
        return Image(media_type, data) if small and media_type in _READ_BY_ALL else None
    try:
        with PIL.Image.open(io.BytesIO(data)) as picture:
            if picture.width * picture.height > _MAX_PIXELS:
                return None
            if max(picture.size) <= LONG_EDGE and len(data) <= MAX_BYTES and media_type in _READ_BY_ALL:
                return Image(media_type, data)
            edge = LONG_EDGE
            while edge >= 64:
                smaller = picture.convert("RGBA" if "A" in picture.getbands() or picture.mode == "P" else "RGB")
                smaller.thumbnail((edge, edge))
                out = io.BytesIO()
                smaller.save(out, "PNG", optimize=True)
                if len(out.getvalue()) <= MAX_BYTES:
                    return Image("image/png", out.getvalue())
                edge //= 2
    except (OSError, ValueError, SyntaxError, PIL.Image.DecompressionBombError):
        return None  # not a picture, or a broken one
    return None


def rasterized(value: Any, svg: str) -> Image | None:
    """A vector picture as PNG: of the matplotlib figure `value` that it shows, or by cairosvg where that is
    installed; None otherwise."""
    figure = getattr(sys.modules.get("matplotlib.figure"), "Figure", None)
    try:
        if figure is not None and isinstance(value, figure):
            out = io.BytesIO()
            value.savefig(out, format="png", bbox_inches="tight")
            return fit_picture("image/png", out.getvalue())
        with unwatched():  # it looks for its library with gcc and ld, and that is no action of the agent's code
            drawn = import_module("cairosvg").svg2png(bytestring=svg.encode())
        return fit_picture("image/png", drawn)
    except Exception:  # noqa: BLE001 - foreign code that draws: the picture's texts are told
        return None


def open_figures() -> frozenset[int]:
    """Numbers of the matplotlib figures that are open, without importing matplotlib."""
    get_fignums = getattr(sys.modules.get("matplotlib.pyplot"), "get_fignums", None)
    return frozenset(get_fignums()) if get_fignums is not None else frozenset()


def watch_figures() -> dict[int, tuple[Any, bool]]:
    """The open figures by number, each with whether it was to be drawn; from now on it says whether it changes.
    None where the backend shows figures by itself (a window, the inline backend)."""
    watched: dict[int, tuple[Any, bool]] = {}
    for number, figure in _figures().items() if _silent() else ():
        watched[number] = figure, bool(figure.stale)
        figure.stale = False
    return watched


def take_figures(before: Mapping[int, tuple[Any, bool]]) -> list[tuple[str, Image | None]]:
    """Draw as PNG the figures that were opened since `watch_figures`, which are closed as a notebook closes them, and
    those that were changed, which stay open, where the backend shows nothing by itself: a text and a picture each, or
    a text that says why not."""
    pyplot = sys.modules.get("matplotlib.pyplot")
    if pyplot is None or not _silent():
        return []
    taken: list[tuple[str, Image | None]] = []
    for number, figure in sorted(_figures().items()):
        old, stale = before.get(number, (None, False))
        if old is figure and not figure.stale:
            figure.stale = stale
            continue
        out = io.BytesIO()
        try:
            figure.savefig(out, format="png", bbox_inches="tight")
        except Exception as problem:  # noqa: BLE001 - drawing runs the user's own artists; the reason is told
            taken.append((f"<Figure {number}: cannot be drawn: {problem!r}>", None))
        else:
            picture = fit_picture("image/png", out.getvalue())
            taken.append((f"<Figure {number}{', changed' if old is figure else ''}>", picture))
        if old is figure:
            figure.stale = True
            continue
        try:
            pyplot.close(number)
        except Exception as problem:  # noqa: BLE001 - closing runs the user's own handlers; the reason is told
            taken.append((f"<Figure {number}: cannot be closed: {problem!r}>", None))
    return taken


def _silent() -> bool:
    """Whether matplotlib is there and its backend shows nothing by itself."""
    matplotlib = sys.modules.get("matplotlib")
    if matplotlib is None or "matplotlib.pyplot" not in sys.modules:
        return False
    return str(matplotlib.get_backend()).lower() in _SILENT_BACKENDS


def _figures() -> dict[int, Any]:
    """The open figures; looking makes none of them the current one."""
    managers = getattr(getattr(sys.modules.get("matplotlib._pylab_helpers"), "Gcf", None), "figs", {})
    return {number: manager.canvas.figure for number, manager in managers.items()}


_TEXT = frozenset(("text/plain",))
_SHOWN_BY_PANEL = _TEXT | {"text/html", "text/latex", "text/markdown", "application/json", "application/javascript"}
"""Where no cell takes what is displayed, only what is more than this (a widget, an interactive chart) is passed on."""
_PICTURES = ("image/png", "image/jpeg", "image/gif", "image/webp")
_WIDGET = "application/vnd.jupyter.widget-view+json"
_EMPTY = {"text/plain": ""}
_MAX_IMAGES = 20
_MAX_DISPLAYS = 200
_LEAST = 2_000
"""Characters of a displayed text that are kept however much there is."""


class _Kept(NamedTuple):
    """One displayed object for the model: `display` is its display id, `widget` the id of its widget's model."""

    display: str
    text: str | None
    picture: Image | None
    widget: str = ""


class _Inside:
    """What code put into one `Output` widget: its texts in order, and its pictures."""

    def __init__(self, max_chars: int) -> None:
        self.log = OutputLog(max_chars, live_chars=0)
        self.pictures: list[Image] = []
        self.clearing = False

    def clear(self) -> None:
        self.clearing = False
        self.log.clear()
        self.pictures.clear()


class Displays:
    """`publish` is the publisher's own method; `cell` takes what has a rich form (None: only live objects are
    passed on, at once). About `max_chars` characters of text are kept in all. For the thread of the run, and threads
    that it started."""

    def __init__(self, publish: Callable[..., Any], cell: CellOutput | None, max_chars: int) -> None:
        self._publish, self._cell, self._max_chars = publish, cell, max_chars
        self._kept: list[_Kept] = []
        self._slots: list[str] = []  # display ids of what stands in the cell
        self._free: deque[str] = deque()  # those that were cleared: what comes next takes their places
        self._blank: set[str] = set()  # those of them in which nothing stands
        self._inside: dict[str, _Inside] = {}  # by the id of the widget's model
        self._lock = threading.RLock()
        self.result: str | None = None
        self.shown = 0
        self._told = 0

    @property
    def texts(self) -> tuple[str, ...]:
        """What the displayed objects say, in order."""
        return tuple(each.text for each in self._kept if each.text is not None)

    @property
    def images(self) -> tuple[Image, ...]:
        """Their pictures, in order."""
        return tuple(each.picture for each in self._kept if each.picture is not None)

    @property
    def told(self) -> int:
        """Of what was shown that of which the model need not be told so: its line says it, or it was cleared."""
        return self._told + len(self._blank)

    def add(
        self, data: Mapping[str, Any], metadata: Any, more: dict[str, Any], value: Any, told: Mapping[str, Any],
        *, result: bool = False,
    ) -> None:  # fmt: skip
        """Something was displayed, with the publisher's other arguments in `more`; `value` where it is known, `told`
        its form for the model. `result`: it is the value of the last expression, or of one before it."""
        with self._lock:
            if result and self.result is not None:
                self._keep("", self.result, None)
                self.result = None
            named = str((more.get("transient") or {}).get("display_id") or "")
            said = self._record(told, named, value, as_result=result)
            # a chart's line says that it is shown; one that comes as a picture too is counted with the pictures
            if self._pass_on(self._readable(data, said), metadata, more, named):
                self._told += says_shown(said) and not told.keys() & set(_PICTURES)

    def add_figure(self, text: str, picture: Image | None) -> None:
        """A figure that the code left open."""
        with self._lock:
            self._keep("", text, picture)
            if picture is not None:
                words = f"{text}: a terminal shows no pictures; ask for it as a file" if self._in_terminal else text
                data = {picture.media_type: base64.b64encode(picture.data).decode("ascii"), "text/plain": words}
                self._pass_on(data, {}, {}, "")

    def clear(self, *, follows: bool) -> None:
        """What was displayed is gone, as in a cell; `follows`: the next thing is displayed at once."""
        with self._lock:
            self._kept.clear()
            self.result = None
            self._told = 0
            self._free = deque(self._slots)
            if not follows:
                self._empty()

    def printed(self, text: str) -> bool:
        """Whether text that code prints goes into an `Output` widget, as it does on the page."""
        with self._lock:
            inside = self._within()
            if inside is not None:
                inside.log.write(text)
            return inside is not None

    def cleared_within(self, *, wait: bool) -> bool:
        """Whether `clear_output` clears an `Output` widget: before the next thing is shown there, or at once."""
        with self._lock:
            inside = self._within()
            if inside is not None:
                inside.clearing = True
                if not wait:
                    inside.clear()
            return inside is not None

    def settle(self) -> None:
        """The run has ended: widgets say how they stand now (a progress bar, 60/60), and what is in them; one that
        was closed shows nothing."""
        widgets = _widgets()
        with self._lock:
            shown = {each.widget for each in self._kept}
            others = [_Kept("", None, None, model) for model in self._inside if model not in shown]
            before, self._kept = [*self._kept, *others], []
            for each in before:
                inside, widget = self._inside.get(each.widget), widgets.get(each.widget)
                if inside is not None:
                    self._keep(each.display, inside.log.text().rstrip("\n") or None, None)
                    for picture in inside.pictures:
                        self._keep("", None, picture)
                elif widget is not None:
                    now = cap(clean(widget_text(widget, shown=self._shows)), _LEAST)
                    self._kept.append(each._replace(text=now or each.text))
                elif not each.widget:
                    self._kept.append(each)

    def _within(self) -> _Inside | None:
        """What is in the widget into which the page puts what is shown now."""
        model = diverted()
        if not model:
            return None
        inside = self._inside.setdefault(model, _Inside(self._max_chars))
        if inside.clearing:
            inside.clear()
        return inside

    # ------------------------------------------------------------------ for the cell

    @property
    def _in_terminal(self) -> bool:
        return self._cell is not None and self._cell.text_alone

    @property
    def _shows(self) -> bool:
        """Whether the user sees what has a rich form."""
        return self._cell is not None and not self._in_terminal

    def _readable(self, data: Mapping[str, Any], said: str | None) -> Mapping[str, Any]:
        """In a terminal what can be read of an object whose text form says nothing."""
        bare = self._in_terminal and is_bare(str(data.get("text/plain", "")))
        return {**data, "text/plain": said} if bare and said else data

    def _pass_on(self, data: Mapping[str, Any], metadata: Any, more: dict[str, Any], named: str) -> bool:
        """Whether it stands in the cell, in a place of its own, now."""
        cell = self._cell
        if diverted():  # at once: later the page would put it elsewhere
            self._publish(data, metadata, **more)
            return False
        if cell is None:
            if any(kind not in _SHOWN_BY_PANEL and not kind.startswith("image/") for kind in data):
                self._publish(data, metadata, **more)
            return False
        if cell.text_alone:  # in turn, as a terminal shows it
            self.shown += 1
            cell.display(partial(self._publish, data, metadata, **more))
            return True
        if not (data.keys() - _TEXT) and not (named in self._slots and more.get("update")):
            return False  # text: the call's own output has it
        if named and more.get("update"):
            cell.display(partial(self._publish, data, metadata, **more))
            return False
        if self._free and not named:
            slot = self._free.popleft()
            self._blank.discard(slot)
            more = {**more, "update": True}
        else:
            slot = named or uuid.uuid4().hex
            self._slots.append(slot)
            self.shown += 1
        more = {**more, "transient": {**(more.get("transient") or {}), "display_id": slot}}
        cell.display(partial(self._publish, data, metadata, **more))
        self._empty()
        return True

    def _empty(self) -> None:
        """Places that were cleared and that nothing new has taken."""
        for slot in self._free:
            if self._cell is not None and slot not in self._blank:
                self._blank.add(slot)
                more = {"transient": {"display_id": slot}, "update": True}
                self._cell.display(partial(self._publish, _EMPTY, {}, **more))

    # ------------------------------------------------------------------ for the model

    def _record(self, data: Mapping[str, Any], named: str, value: Any, *, as_result: bool = False) -> str | None:
        """The text of it for the model, once it is kept."""
        picture = None
        for media_type in _PICTURES:
            raw = data.get(media_type)
            if isinstance(raw, (str, bytes)):
                picture = fit_picture(media_type, raw)
                break
        else:
            if "image/svg+xml" in data:
                picture = rasterized(value, str(data["image/svg+xml"]))
        room = max(_LEAST, self._max_chars - sum(len(each.text or "") for each in self._kept))
        texts = {kind: part for kind, part in data.items() if not kind.startswith("image/") or "svg" in kind}
        seen = texts if picture is None else {**texts, picture.media_type: ""}
        said = text_of(seen, room, value, shown=self._shows)
        if picture is None and (said is None or is_bare(said)):
            said = next((f"(a picture, {kind})" for kind in data if kind.startswith("image/")), said)
        text = cap(clean(said).rstrip("\n"), room) if said is not None else None
        if as_result:
            self.result = text
            if picture is not None:
                self._keep("", None, picture)
            return text
        inside = self._within()
        if inside is not None:
            if text is not None:
                inside.log.line(text)
            if picture is not None:
                inside.pictures.append(picture)
            return text
        view = data.get(_WIDGET)
        model = str(view.get("model_id", "")) if isinstance(view, dict) else ""
        if named:
            for at, each in enumerate(self._kept):
                if each.display == named:
                    self._kept[at] = _Kept(named, text, picture, model)
                    return text
        self._keep(named, text, picture, model)
        return text

    def _keep(self, named: str, text: str | None, picture: Image | None, model: str = "") -> None:
        if picture is not None and len(self.images) >= _MAX_IMAGES:
            picture, text = None, f"{text or ''} (not kept: more than {_MAX_IMAGES} pictures in one run)"
        if len(self._kept) < _MAX_DISPLAYS:
            self._kept.append(_Kept(named, text, picture, model))
        elif len(self._kept) == _MAX_DISPLAYS:
            self._kept.append(_Kept("", f"(more than {_MAX_DISPLAYS} displayed objects: the rest is not kept)", None))


def _widgets() -> Mapping[str, Any]:
    """The live ipywidgets by the id of their model."""
    module = sys.modules.get("ipywidgets.widgets.widget")
    found = getattr(module, "_instances", None)  # not `Widget.widgets`: reading that warns
    return found if isinstance(found, dict) else {}


def diverted() -> str:
    """The id of the widget's model where the code is inside `with Output():`, so that the page puts what is shown
    into that widget; "" elsewhere."""
    kind = getattr(sys.modules.get("ipywidgets.widgets.widget_output"), "Output", None)
    if kind is None:
        return ""
    widgets = list(_widgets().items())
    return next((model for model, widget in reversed(widgets) if isinstance(widget, kind) and widget.msg_id), "")


_BESIDE = (("matplotlib.artist", "Artist"), ("matplotlib.colorbar", "Colorbar"), ("seaborn.axisgrid", "Grid"))
"""What plotting functions return beside the figure that they draw."""


def is_artist(value: Any) -> bool:
    """Whether it is a part of a matplotlib figure, or nothing but some in lists, tuples, dictionaries or arrays: what
    plotting functions return."""
    found = [getattr(sys.modules.get(module), name, None) for module, name in _BESIDE]
    kinds = tuple(kind for kind in found if isinstance(kind, type))
    waiting, some = [value], False
    for _ in range(2_000):
        if not waiting:
            return some
        part = waiting.pop()
        if isinstance(part, kinds):
            some = True
            continue
        if type(part).__module__ == "numpy" and getattr(getattr(part, "dtype", None), "hasobject", False):
            part = list(part.flat)
        elif isinstance(part, dict):
            part = list(part.values())
        if not isinstance(part, tuple | list):
            return False  # the counts of a histogram, say
        waiting += part
    return False
