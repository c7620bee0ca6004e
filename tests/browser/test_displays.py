"""What the agent's code displays stands in the cell in its place: live, saved, and in the notebook's HTML."""

from __future__ import annotations

from pathlib import Path

import pytest

from ipyagent.practice.replies import text, tool
from tests.bench.bench_outputs import on_page

from .lab import Page, stored, until, write_notebook
from .product import Product

TABLE = "import pandas as pd\ndf = pd.DataFrame({'city': ['Oslo', 'Rome'], 'sales': [3, 4]})\ndf"
STYLED = "df.style.format(precision=1).set_caption('Styled here')"
FIGURE = "import matplotlib.pyplot as plt\nplt.plot([1, 3, 2]); plt.title('A figure')"
CIRCLE = '<svg xmlns="http://www.w3.org/2000/svg" width="40" height="40"><circle cx="20" cy="20" r="18"/></svg>'
SVG = f"from IPython.display import SVG, display\ndisplay(SVG('{CIRCLE}'))"
ORDER = """([i]) => {
  const area = document.querySelectorAll(".jp-CodeCell")[i].querySelector(".jp-OutputArea");
  return [...area.querySelectorAll(".jp-OutputArea-output")].map((node) =>
    node.querySelector("table.dataframe") ? "table" : node.querySelector("caption") ? "styled"
      : node.querySelector(".ipyagent") ? "agent"
      : node.querySelector("img") ? "figure" : node.innerText.trim().slice(0, 40));
}"""
RIGHT = ["agent", "table", "agent", "styled", "agent", "figure", "figure", "agent"]


def test_tables_and_charts_stand_between_what_is_said_of_them(product: Product) -> None:
    write_notebook(product.root, "shown.ipynb", ["%load_ext ipyagent\n%matplotlib inline", "%%agent\nshow me"])
    with Page(product.jupyter) as page:
        page.open("shown.ipynb")
        page.run(0)
        product.script(
            tool("python", {"code": TABLE}, say="First the table."),
            tool("python", {"code": STYLED}, say="Then a styled one."),
            tool("python", {"code": f"{FIGURE}\nplt.show()\n{SVG}"}, say="Now a figure and a drawing."),
            text("That was **all** of it."),
        )
        page.run(1)
        page.wait_idle()
        until(lambda: page.page.evaluate(ORDER, [1])[-len(RIGHT) :] == RIGHT, f"outputs {RIGHT}")
        page.shot("displays_in_place")
        page.save()
        first = page.page.evaluate(ORDER, [1])
        page.open("shown.ipynb")
        until(lambda: page.page.evaluate(ORDER, [1]) == first, f"outputs {first}")
        page.shot("displays_reopened")
    saved = stored(product.root, "shown.ipynb")[1]["outputs"]
    bundles = [out["data"] for out in saved if "data" in out]
    assert sum("<caption>Styled here" in "".join(data.get("text/html", "")) for data in bundles) == 1
    png = [data["image/png"] for data in bundles if "image/png" in data]
    assert len(png) == 1
    text_of = (product.root / "shown.ipynb").read_text("utf-8")
    assert text_of.count(png[0].strip()[:200]) == 1, "the picture is kept once"


AS_PLAINLY = ["Styler", "matplotlib svg", "animation", "scikit-learn", "tqdm.notebook", "figure in an Output",
              "Vega-Lite 5", "HTML to JSON"]  # fmt: skip


@pytest.mark.slow
def test_an_agents_cell_is_drawn_as_a_plain_cell_is_live_reopened_and_exported(tmp_path: Path) -> None:
    for name, found in on_page(AS_PLAINLY, tmp_path).items():
        assert found.less == {"live": "", "reopened": "", "nbconvert": ""}, name
        assert not found.blank["live"], name
