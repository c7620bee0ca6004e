"""Pictures fit for the model: long edge at most 1568 pixels, under 4.5 MB, a kind it can read.

The API refuses images over 5 MB or 8000 pixels, and one that was let in poisons every later turn.
"""

from __future__ import annotations

import base64
import binascii
import io
import struct
import sys
from collections.abc import Mapping
from importlib import import_module
from typing import Any

from ipyagent.journal.protocols import Image

LONG_EDGE = 1568
MAX_BYTES = 4_500_000
_HARD_BYTES = 5_000_000
_HARD_EDGE = 8_000
_SILENT_BACKENDS = frozenset({"agg", "cairo", "pdf", "pgf", "ps", "svg", "template"})
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
    size = _png_size(data) if media_type == "image/png" else None
    if size is not None and max(size) <= LONG_EDGE and len(data) <= MAX_BYTES:
        return Image(media_type, data)
    try:
        import PIL.Image
    except ImportError:
        small = len(data) < _HARD_BYTES and (size is None or max(size) <= _HARD_EDGE)
        return Image(media_type, data) if small else None
    try:
        with PIL.Image.open(io.BytesIO(data)) as picture:
            if picture.width * picture.height > _MAX_PIXELS:
                return None
            if max(picture.size) <= LONG_EDGE and len(data) <= MAX_BYTES:
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
        return fit_picture("image/png", import_module("cairosvg").svg2png(bytestring=svg.encode()))
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


def _png_size(data: bytes) -> tuple[int, int] | None:
    if len(data) < 24 or data[:8] != b"\x89PNG\r\n\x1a\n":
        return None
    width, height = struct.unpack(">II", data[16:24])
    return width, height
