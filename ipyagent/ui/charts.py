"""Figures of a session as pictures: SVG that stays in a saved notebook and reads on a light page and on a dark one.

A picture brings its own ground, so that it reads where a page's colours are not known, and its figures as text for
where there are no pictures. Colours are the panel's (look.css).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from html import escape as _escaped

import msgspec

from ipyagent.escape import line, plain
from ipyagent.journal.events import Usage
from ipyagent.journal.protocols import Rates, WindowState
from ipyagent.reports.timeline import SOURCES, Bar, Mark
from ipyagent.ui import theme
from ipyagent.ui.meter import dollars, thousands
from ipyagent.ui.timeline import LETTERS, turn_lines

WIDTH = 720
LEFT, RIGHT = 24, WIDTH - 24
MOST_BARS = 60
"""Turns or requests in one picture, the newest; the text has all."""
SAME = 0.03
"""Shares are scaled to what the server counted, anew after each request: a smaller difference is none."""
READ, WRITTEN, UNCACHED, PAID = ("#2a8f5c", "#cf6026", "#d0393b", "#2673c9")
_STYLE = (
    "<style>@media (prefers-color-scheme:dark){.ipyagent-chart .bg{fill:#0d1117;stroke:#30363d}.ipyagent-chart "
    ".fg{fill:#e6edf3}.ipyagent-chart .dim{fill:#9198a1}.ipyagent-chart .rule{stroke:#484f58}"
    ".ipyagent-chart .free{fill:#21262d}}</style>"
)
_FILLS = {"fg": "#1f2328", "dim": "#59636e", "free": "#eaeef2"}


class Chart(msgspec.Struct, frozen=True):
    """A picture (`svg`) and the same figures as `text`."""

    svg: str
    text: str

    def bundle(self) -> dict[str, str]:
        """What a front-end shows: the picture, or the text where there are none."""
        return {"image/svg+xml": self.svg, "text/plain": self.text}

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> dict[str, str]:
        return self.bundle()


class _Drawing:
    """Collects shapes from the top down."""

    def __init__(self, title: str, told: str = "") -> None:
        self.title, self.y, self._shapes = title, 34.0, list[str]()
        self.text(LEFT, self.y, title, size=15, weight=600)
        if told:
            self.y += 20
            self.text(LEFT, self.y, told, kind="dim")
        self.y += 18

    def text(self, x: float, y: float, words: str, *, kind: str = "fg", anchor: str = "start", size: int = 12,
             weight: int = 400, color: str = "") -> None:  # fmt: skip
        shown = _escaped(line(plain(words), 110))
        look_of = f'fill="{color}"' if color else f'class="{kind}" fill="{_FILLS[kind]}"'
        self._shapes.append(
            f'<text x="{x:.1f}" y="{y:.1f}" {look_of} font-size="{size}" font-weight="{weight}" '
            f'text-anchor="{anchor}">{shown}</text>'
        )

    def box(self, x: float, y: float, width: float, height: float, color: str, *, kind: str = "", title: str = "",
            faint: bool = False) -> None:  # fmt: skip
        if width <= 0 or height <= 0:
            return
        told = f"<title>{_escaped(title)}</title>" if title else ""
        named = f'class="{kind}" ' if kind else ""
        pale = ' opacity="0.4"' if faint else ""
        self._shapes.append(
            f'<rect {named}x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}" rx="1.5" '
            f'fill="{color}"{pale}>{told}</rect>'
        )

    def rule(self, x1: float, y1: float, x2: float, y2: float, *, dashed: bool = True) -> None:
        dash = ' stroke-dasharray="4 3"' if dashed else ""
        self._shapes.append(
            f'<line class="rule" x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke="#8c959f"{dash}/>'
        )

    def legend(self, entries: Iterable[tuple[str, str]]) -> None:
        """Coloured squares with their names, on as many rows as they need."""
        x = LEFT
        for name, color in entries:
            width = 24 + 6.6 * len(name)
            if x + width > RIGHT:
                x, self.y = LEFT, self.y + 18
            self.box(x, self.y - 9, 10, 10, color)
            self.text(x + 15, self.y, name, kind="dim", size=11)
            x += int(width)
        self.y += 12

    def done(self) -> str:
        height = round(self.y + 10)
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" class="ipyagent-chart" width="{WIDTH}" height="{height}" '
            'style="max-width:100%;height:auto" '
            f'viewBox="0 0 {WIDTH} {height}" role="img" aria-label="{_escaped(self.title)}" '
            'font-family="system-ui,-apple-system,Segoe UI,DejaVu Sans,sans-serif">'
            f'{_STYLE}<rect class="bg" x="0.5" y="0.5" width="{WIDTH - 1}" height="{height - 1}" rx="8" '
            f'fill="#ffffff" stroke="#d1d9e0"/>{"".join(self._shapes)}</svg>'
        )


# ------------------------------------------------------------------ what is in the window


def context_chart(sources: Mapping[str, int], window: WindowState, title: str = "In the context now") -> Chart:
    """Tokens by source, and how far they fill the window."""
    total = sum(sources.values())
    told = f"{window.tokens:,} of {window.window:,} tokens ({100 * window.tokens / window.window:.1f} %)"
    drawing = _Drawing(title, told)
    _strip(drawing, sources, window)
    shown = _present(sources)
    largest = max((tokens for _, tokens in shown), default=1)
    for name, tokens in shown:
        drawing.text(190, drawing.y, name, anchor="end")
        width = 390 * tokens / largest
        drawing.box(200, drawing.y - 11, max(width, 1), 13, theme.source_colour(name), title=f"{name}: {tokens:,}")
        drawing.text(208 + max(width, 1), drawing.y, f"{tokens:,} · {100 * tokens / (total or 1):.0f} %", kind="dim")
        drawing.y += 20
    drawing.y -= 6
    rows = [f"  {name:<22}{tokens:>10,}  {100 * tokens / (total or 1):5.1f} %" for name, tokens in shown]
    return Chart(drawing.done(), "\n".join([f"{title}: {told}", *rows]))


def _strip(drawing: _Drawing, sources: Mapping[str, int], window: WindowState) -> None:
    """The whole window as one bar, with its thresholds."""
    top, wide = drawing.y + 16, RIGHT - LEFT
    drawing.box(LEFT, top, wide, 16, _FILLS["free"], kind="free")
    x = float(LEFT)
    for name, tokens in _present(sources):
        width = wide * tokens / window.window
        drawing.box(x, top, min(width, RIGHT - x), 16, theme.source_colour(name), title=f"{name}: {tokens:,} tokens")
        x = min(x + width, RIGHT)
    marks = {"warning": window.warning_mark, "auto-compact": window.auto_mark, "hard limit": window.block_mark}
    for name, mark in marks.items():
        below = 30 if name == "auto-compact" else -7
        at = LEFT + wide * min(mark / window.window, 1)
        drawing.rule(at, top - 4, at, top + 20, dashed=False)
        drawing.text(at, top + below, name, kind="dim", size=10, anchor="end")
    drawing.y = top + 56


def _present(sources: Mapping[str, int]) -> list[tuple[str, int]]:
    return [(name, sources[name]) for name in SOURCES if sources.get(name)]


# ------------------------------------------------------------------ before and after


def compare_chart(title: str, before: Mapping[str, int], after: Mapping[str, int], price: Sequence[str] = ()) -> Chart:
    """Tokens by source before and after, and what it cost and saves, in `price`, a line each."""
    was, now = sum(before.values()), sum(after.values())
    told = f"{was:,} → {now:,} tokens ({100 * (now - was) / (was or 1):+.0f} %)"
    drawing = _Drawing(title, told)
    names = [name for name in SOURCES if before.get(name) or after.get(name)]
    largest = max([*before.values(), *after.values(), 1])
    rows = []
    for name in names:
        one, other, color = before.get(name, 0), after.get(name, 0), theme.source_colour(name)
        changed = abs(one - other) > SAME * max(one, other)
        other = other if changed else one
        drawing.text(190, drawing.y + 4, name, anchor="end", weight=600 if changed else 400)
        drawing.box(200, drawing.y - 10, 390 * one / largest, 8, color, faint=True, title=f"before: {one:,}")
        drawing.box(200, drawing.y, 390 * other / largest, 8, color, title=f"after: {other:,}")
        figures = f"{one:,} → {other:,}" if changed else f"{one:,}"
        drawing.text(208 + 390 * max(one, other) / largest, drawing.y + 4, figures, kind="fg" if changed else "dim")
        drawing.y += 25
        rows.append(f"  {name:<22}{one:>10,}" + (f" → {other:>8,}" if changed else ""))
    drawing.text(200, drawing.y, "pale: before, full: after", kind="dim", size=10)
    drawing.y += 6
    for words in price:
        drawing.y += 19
        drawing.text(LEFT, drawing.y, words)
    drawing.y += 6
    return Chart(drawing.done(), "\n".join([f"{title}: {told}", *rows, *price]))


# ------------------------------------------------------------------ turn by turn


def window_chart(bars: Sequence[Bar], marks: Sequence[Mark], window: WindowState | None) -> Chart:
    """The window as it filled, a bar a turn, with what was decided in each as a letter above it."""
    shown = bars[-MOST_BARS:]
    limit = window.window if window is not None else 0
    most = max([bar.tokens for bar in shown], default=0) or 1
    auto = window.auto_mark if window is not None else 0
    top_value = max(most, auto if auto < 3 * most else 0) * 1.08
    drawing = _Drawing("The window, turn by turn", f"tokens after each turn; the window has {limit:,}" if limit else "")
    height = 190.0
    base = drawing.y + height + 14
    drawing.rule(LEFT + 40, base, RIGHT, base, dashed=False)
    if auto and auto <= top_value:
        at = base - height * auto / top_value
        drawing.rule(LEFT + 40, at, RIGHT, at)
        drawing.text(RIGHT, at - 4, f"compacts from {auto:,} on", kind="dim", size=10, anchor="end")
    for share in (0.5, 1.0):
        drawing.text(LEFT + 34, base - height * share / 1.08 + 4, thousands(int(most * share)), kind="dim", size=10,
                     anchor="end")  # fmt: skip
    step = (RIGHT - LEFT - 44) / max(len(shown), 1)
    wide = min(step * 0.7, 44)
    used: dict[str, str] = {}
    for at, bar in enumerate(shown):
        x, y = LEFT + 44 + at * step + (step - wide) / 2, base
        total = sum(bar.sources.values()) or 1
        for name, tokens in _present(bar.sources):
            part = height * bar.tokens / top_value * tokens / total
            y -= part
            drawing.box(x, y, wide, part, theme.source_colour(name), title=f"turn {bar.number}, {name}: {tokens:,}")
        if len(shown) <= 30 or bar.number % 5 == 0:
            drawing.text(x + wide / 2, base + 15, str(bar.number), kind="dim", size=10, anchor="middle")
        kinds = list(dict.fromkeys(each.kind for each in marks if each.turn == bar.number and each.kind in LETTERS))
        for nth, kind in enumerate(kinds[:4]):
            used[kind] = LETTERS[kind]
            drawing.text(x + wide / 2, y - 6 - 13 * nth, LETTERS[kind], anchor="middle", weight=700,
                         color=theme.layer_colour(kind) or "#6b7786")  # fmt: skip
    drawing.y = base + 40
    present = [name for name in SOURCES if any(bar.sources.get(name) for bar in shown)]
    drawing.legend((name, theme.source_colour(name)) for name in present)
    if used:
        drawing.y += 8
        letters = " · ".join(f"{letter} {kind}" for kind, letter in used.items())
        drawing.text(LEFT, drawing.y, letters, kind="dim", size=11)
        drawing.y += 6
    told = [f"turn {mark.turn}: {mark.kind}, {mark.tokens_before:,} → {mark.tokens_after:,} tokens" for mark in marks
            if mark.tokens_before != mark.tokens_after]  # fmt: skip
    return Chart(drawing.done(), "\n".join([*turn_lines(bars), *told]))


# ------------------------------------------------------------------ the cache and the price


def cache_chart(
    usages: Sequence[Usage], rates: Rates, model: str, breaks: Sequence[tuple[int, int, str]] = ()
) -> Chart:
    """The prompt of each request: read from the cache, written to it or neither, and its price below it. `breaks` of
    the cache: the request's number from 1, the tokens that were not read, and why."""
    shown = usages[-MOST_BARS:]
    read, prompt = sum(one.cache_read for one in usages), sum(one.prompt for one in usages)
    paid = [prompt_price(one, rates) for one in usages]
    share = f"{100 * read / (prompt or 1):.0f} % of {prompt:,} prompt tokens read from the cache"
    price = f"${sum(paid):.4f}; without a cache it would be ${prompt * rates.input:.4f} (prices of {model})"
    drawing = _Drawing("The cache, request by request", share)
    drawing.text(LEFT, drawing.y, price, kind="dim")
    drawing.y += 20
    height, below = 170.0, 60.0
    base = drawing.y + height + 6
    most = max([one.prompt for one in shown], default=0) or 1
    dearest = max(paid[-MOST_BARS:], default=0.0) or 1.0
    step = (RIGHT - LEFT - 44) / max(len(shown), 1)
    wide = min(step * 0.72, 44)
    for share_ in (0.5, 1.0):
        drawing.text(LEFT + 34, base - height * share_ + 4, thousands(int(most * share_)), kind="dim", size=10,
                     anchor="end")  # fmt: skip
    drawing.rule(LEFT + 40, base, RIGHT, base, dashed=False)
    floor, first = base + 34 + below, len(usages) - len(shown) + 1
    drawing.text(LEFT + 34, floor - below + 4, dollars(dearest), kind="dim", size=10, anchor="end")
    drawing.rule(LEFT + 40, floor, RIGHT, floor, dashed=False)
    for at, (one, cost) in enumerate(zip(shown, paid[-MOST_BARS:], strict=True)):
        x, y = LEFT + 44 + at * step + (step - wide) / 2, base
        for words, tokens, color in (
            ("read", one.cache_read, READ), ("written", one.cache_write, WRITTEN), ("neither", one.input, UNCACHED),
        ):  # fmt: skip
            part = height * tokens / most
            y -= part
            drawing.box(x, y, wide, part, color, title=f"request {first + at}, {words}: {tokens:,} tokens")
        if len(shown) <= 30 or (first + at) % 5 == 0:
            drawing.text(x + wide / 2, base + 14, str(first + at), kind="dim", size=10, anchor="middle")
        if first + at in {number for number, _, _ in breaks}:
            drawing.text(x + wide / 2, y - 5, "!", anchor="middle", weight=700, color=UNCACHED)
        drawing.box(x, floor - below * cost / dearest, wide, below * cost / dearest, PAID, title=f"${cost:.4f}")
    drawing.y = floor + 24
    neither = [("neither", UNCACHED)] if any(one.input for one in shown) else []
    drawing.legend([("read from the cache", READ), ("written to it", WRITTEN), *neither, ("price of the prompt", PAID)])
    causes = [f"! request {at}: {missed:,} tokens were not read from the cache: {why}" for at, missed, why in breaks]
    for words in causes[-3:]:
        drawing.y += 8
        drawing.text(LEFT, drawing.y, words, kind="dim", size=11)
        drawing.y += 8
    rows = [f"{'request':>7} {'read':>9} {'written':>9} {'neither':>9} {'dollars':>9}"]
    rows += [
        f"{at:>7} {one.cache_read:>9,} {one.cache_write:>9,} {one.input:>9,} {cost:>9.4f}"
        for at, (one, cost) in enumerate(zip(usages, paid, strict=True), 1)
    ]
    return Chart(drawing.done(), "\n".join([f"{share}; {price}", *rows, *causes]))


def prompt_price(usage: Usage, rates: Rates) -> float:
    """Dollars for the prompt alone."""
    return usage.cache_read * rates.read + usage.cache_write * rates.write + usage.input * rates.input
