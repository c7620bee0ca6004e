"""Pictures fit for the model: long edge at most 1568 pixels, under 4.5 MB, a kind it can read.

The API refuses images over 5 MB or 8000 pixels, and one that was let in poisons every later turn.
"""

from __future__ import annotations

import base64
import binascii
import io
import struct
import sys
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


def take_figures(numbers: frozenset[int]) -> list[tuple[str, Image | None]]:
    """Draw these figures as PNG and close them, where the backend shows nothing by itself (no
    window, no inline backend): a text and a picture each, or a text that says why not."""
    pyplot, matplotlib = sys.modules.get("matplotlib.pyplot"), sys.modules.get("matplotlib")
    if not numbers or pyplot is None or matplotlib is None:
        return []
    if str(matplotlib.get_backend()).lower() not in _SILENT_BACKENDS:
        return []
    taken: list[tuple[str, Image | None]] = []
    for number in sorted(numbers):
        out = io.BytesIO()
        try:
            pyplot.figure(number).savefig(out, format="png", bbox_inches="tight")
        except Exception as problem:  # noqa: BLE001 - drawing runs the user's own artists; the reason is told
            taken.append((f"<Figure {number}: cannot be drawn: {problem!r}>", None))
        else:
            taken.append((f"<Figure {number}>", fit_picture("image/png", out.getvalue())))
        try:
            pyplot.close(number)
        except Exception as problem:  # noqa: BLE001 - closing runs the user's own handlers; the reason is told
            taken.append((f"<Figure {number}: cannot be closed: {problem!r}>", None))
    return taken


def _png_size(data: bytes) -> tuple[int, int] | None:
    if len(data) < 24 or data[:8] != b"\x89PNG\r\n\x1a\n":
        return None
    width, height = struct.unpack(">II", data[16:24])
    return width, height
