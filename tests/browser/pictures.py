"""The pictures of README and docs, from the product itself: `python -m tests.browser.pictures [light|dark]`.

The practice model answers in JupyterLab; every picture is of cells that ran. They are kept in `docs/pictures`, light
and dark, with few colours.
"""

from __future__ import annotations

import io
import os
import sys
import tempfile
from pathlib import Path

from PIL import Image
from playwright.sync_api import Locator

from .lab import REPOSITORY, Page, Server, until, write_notebook

FOLDER = REPOSITORY / "docs" / "pictures"
SCALE = 1.5
COLOURS = 160
GAP = 14
GROUND = {"light": (255, 255, 255), "dark": (17, 17, 17)}

CELLS = {
    "load": "%load_ext ipyagent\n%agent model practice\n%config IPyAgent.extraction = False",
    "data": "from palmerpenguins import load_penguins\npenguins = load_penguins()\n"
            "import matplotlib.pyplot as plt\nplt.rcParams['figure.figsize'] = (5.6, 3.4)",
    "first": "%%agent --mode auto\nhelp",  # says once where sessions are kept
    "ask": "%%agent\nPlot body mass by flipper length of @penguins",
    "auto": "%agent mode auto",
    "print": "%%agent --lesson clearing\nLoad the penguins.",
    **{f"more-{number}": f"%%agent --lesson clearing\nShow the {sex} {where} and their mean body mass."
       for number, (sex, where) in enumerate([
           ("female", "Adelie penguins of Torgersen"), ("male", "Adelie penguins of Torgersen"),
           ("female", "Adelie penguins of Biscoe"), ("male", "Adelie penguins of Biscoe")])},
    "compact": "%compact",
    "undo": "%compact --undo",
    "remember": "%%agent\nRemember: plots of the penguins always have units on their axes.",
    "fact": "%memory add --type project flippers of the penguins were measured on the left side",
    "me": "%memory add --type user a marine biologist who teaches statistics",
    "context": "%context",
    "files": "import os\nos.makedirs('data', exist_ok=True)\nfor island, part in penguins.groupby('island'):\n"
             "    part.to_csv(f'data/{island}.csv', index=False)\ndel penguins, part",
    "several": "%%agent\nProfile data/Biscoe.csv, data/Dream.csv and data/Torgersen.csv at once.",
    "panel-context": "%agent panel context",
    "panel-memory": "%agent panel memory",
    "panel-skills": "%agent panel skills",
    "panel-subagents": "%agent panel subagents",
    "panel-sessions": "%agent panel sessions",
    "memory": "%memory",
}  # fmt: skip
AT = {name: at for at, name in enumerate(CELLS)}
PANELS = ("panel-context", "panel-memory", "panel-skills", "panel-subagents", "panel-sessions", "memory")
MOST_HEIGHT = 900


def taken(where: Locator, *, most: int = MOST_HEIGHT) -> Image.Image:
    """A cell as it stands, its top `most` pixels."""
    where.scroll_into_view_if_needed()
    picture = Image.open(io.BytesIO(where.screenshot(animations="disabled"))).convert("RGB")
    return picture.crop((0, 0, picture.width, min(picture.height, round(most * SCALE))))


def kept(picture: Image.Image, name: str, look: str) -> None:
    path = FOLDER / f"{name}-{look}.png"
    picture.quantize(COLOURS, method=Image.Quantize.MEDIANCUT, dither=Image.Dither.NONE).save(path, optimize=True)
    print(f"{path.name}: {picture.width} x {picture.height}, {path.stat().st_size / 1000:,.0f} kB")


def stacked(pictures: list[Image.Image], look: str) -> Image.Image:
    """One below the other."""
    gap = round(GAP * SCALE)
    width = max(each.width for each in pictures)
    whole = Image.new("RGB", (width, sum(each.height + gap for each in pictures) - gap), GROUND[look])
    top = 0
    for each in pictures:
        whole.paste(each, (0, top))
        top += each.height + gap
    return whole


def take(look: str, folder: Path) -> None:
    """All pictures in one look."""
    os.environ.pop("ANTHROPIC_API_KEY", None)
    work = folder / "work"
    work.mkdir()
    name = write_notebook(work, "analysis.ipynb", list(CELLS.values()))
    server = Server(work, environment={"IPYAGENT_HOME": str(folder / "home"), "IPYAGENT_LAYER_NOTES": "false"})
    try:
        with Page(server, width=900, height=1400, device_scale_factor=SCALE, color_scheme=look) as page:
            page.open(name)
            if look == "dark":
                page.theme("JupyterLab Dark")
            hidden = ".jp-OutputArea-prompt,.jp-cell-toolbar,.jp-CellFooter,.jp-Collapser{visibility:hidden}"
            page.page.add_style_tag(content=hidden)
            story(page, look)
    finally:
        server.stop()


def story(page: Page, look: str) -> None:
    for each in ("load", "data", "first"):
        page.run(AT[each])
    asking = page.cell(AT["ask"])
    page.run(AT["ask"], wait=False)
    seen: list[Image.Image] = []
    button = asking.locator("[data-act=once]")
    until(lambda: button.count() or page.prompt(AT["ask"]).isdigit(), "a question", 60)
    while not page.prompt(AT["ask"]).isdigit():
        if button.count():
            page.page.wait_for_timeout(400)
            if "plot" in asking.inner_text() and ".plot." in asking.inner_text():
                seen = [taken(asking)]
            button.first.click()
        page.page.wait_for_timeout(300)
    page.page.wait_for_timeout(1_000)
    answer = taken(asking, most=1_200)
    kept(seen[0], "question", look)
    kept(answer, "answer", look)
    for each in ("auto", "print", *(name for name in CELLS if name.startswith("more-")), "compact", "undo"):
        page.run(AT[each])
    page.page.wait_for_timeout(500)
    undone = [taken(page.cell(AT[each])) for each in ("compact", "undo")]
    kept(stacked([*seen, answer, *undone], look), "story", look)
    for each in ("remember", "fact", "me", "context", "files", "several"):
        page.run(AT[each], timeout=120)
    page.page.wait_for_timeout(500)
    kept(taken(page.cell(AT["context"])), "context", look)
    kept(taken(page.cell(AT["several"])), "subagents", look)
    for each in PANELS:
        page.run(AT[each])
        page.page.wait_for_timeout(1_500)
        if "memory" in each:
            page.cell(AT[each]).get_by_text("flippers of the").first.click()
            page.page.wait_for_timeout(800)
        kept(taken(page.cell(AT[each])), each, look)


if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    for look in sys.argv[1:] or ("light", "dark"):
        with tempfile.TemporaryDirectory() as place:
            take(look, Path(place))
