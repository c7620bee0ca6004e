"""What people and the model see of 106 cells with 55 libraries: each is run by the agent and plainly, in real
kernels, and what stands in JupyterLab (live, saved and reopened, with no network) and in the notebook's HTML is
compared: MIME types, what is drawn, its size and its ink. A library that is not installed is left out and named.

`python -m tests.bench outputs` prints the table. `python -m tests.bench.bench_outputs FILE [NAME …]` goes on where an
earlier run that wrote FILE was ended, or compares these cells again."""

from __future__ import annotations

import io
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import PIL.Image

from ipyagent.journal.events import ToolReturned
from ipyagent.journal.journal import TRANSCRIPT, read_events
from ipyagent.journal.tokens import estimate_text
from ipyagent.practice.server import PracticeServer
from tests.bench.bench_told import Shower, previewed, ran, surroundings
from tests.bench.measuring import Row
from tests.browser.lab import PANEL, Page, Server, write_notebook

SHOW = "from IPython.display import *\n"
PLOT = "import matplotlib.pyplot as plt\n"
CELLS: dict[str, tuple[str, str]] = {
    "pandas": ("pandas", "import pandas as pd\ndf = pd.DataFrame({'a': [1, 2]})\ndf"),
    "pandas, displayed": ("pandas", "import pandas as pd\ndisplay(pd.DataFrame({'a': [1, 2]}), pd.Series([3]))"),
    "Styler": ("pandas", "import pandas as pd\npd.DataFrame({'a': [1, 2]}).style"),
    "pandas plot": ("matplotlib", "import pandas as pd\npd.Series([1, 3, 2]).plot()"),
    "matplotlib": ("matplotlib", f"{PLOT}plt.plot([1, 2])"),
    "matplotlib;": ("matplotlib", f"{PLOT}plt.plot([1, 2]);"),
    "matplotlib svg": (
        "matplotlib",
        "%config InlineBackend.figure_formats = ['svg']\n" + PLOT
        + "plt.plot([1, 2]); plt.show()\n%config InlineBackend.figure_formats = ['png']",
    ),
    "12 figures": ("matplotlib", f"{PLOT}for i in range(12):\n    plt.figure(); plt.plot([i, 1])\nplt.show()"),
    "animation": (
        "matplotlib",
        f"{SHOW}{PLOT}from matplotlib.animation import FuncAnimation\nfig, ax = plt.subplots()\n"
        "line, = ax.plot([0, 1], [0, 1])\nmade = FuncAnimation(fig, lambda i: (line,), frames=2).to_jshtml()\n"
        "plt.close(fig)\nHTML(made)",
    ),
    "seaborn": ("seaborn", "import seaborn as sns\nsns.scatterplot(x=[1, 2], y=[3, 4])"),
    "altair": (
        "altair",
        "import altair as alt, pandas as pd\n"
        "alt.Chart(pd.DataFrame({'a': [1, 2], 'b': [3, 4]})).mark_point().encode(x='a', y='b')",
    ),
    "plotly": ("plotly", "import plotly.graph_objects as go\ngo.Figure(go.Scatter(x=[1, 2], y=[3, 4]))"),
    "plotly show": ("plotly", "import plotly.graph_objects as go\ngo.Figure(go.Bar(x=[1], y=[3])).show()"),
    "plotly init": ("plotly", "from plotly.offline import init_notebook_mode\ninit_notebook_mode(connected=True)"),
    **{
        f"plotly, {renderer}": (
            "plotly",
            f"import plotly.graph_objects as go\ngo.Figure(go.Scatter(x=[1, 2, 3], y=[3, 5, 4])).show('{renderer}')",
        )
        for renderer in ("plotly_mimetype", "notebook", "notebook_connected", "iframe")
    },
    "FigureWidget": ("plotly", "import plotly.graph_objects as go\ngo.FigureWidget(go.Bar(x=[1, 2], y=[3, 4]))"),
    **{
        f"altair, {renderer}": (
            "altair",
            "import altair as alt, pandas as pd\n"
            f"with alt.renderers.enable('{renderer}'{', offline=True' * (renderer == 'jupyter')}):\n"
            "    display(alt.Chart(pd.DataFrame({'a': [1, 2], 'b': [3, 4]})).mark_bar().encode(x='a:N', y='b'))",
        )
        for renderer in ("mimetype", "html", "jupyter", "png", "svg")
    },
    "Vega-Lite 5": (
        "IPython",
        "display({'application/vnd.vegalite.v5+json': {'$schema': 'https://vega.github.io/schema/vega-lite/v5.json',\n"
        "    'data': {'values': [{'a': 'x', 'b': 3}, {'a': 'y', 'b': 5}]}, 'mark': 'bar', 'width': 200,\n"
        "    'encoding': {'x': {'field': 'a'}, 'y': {'field': 'b', 'type': 'quantitative'}}}}, raw=True)",
    ),
    "bokeh, inline": (
        "bokeh",
        "from bokeh.io import output_notebook\nfrom bokeh.resources import INLINE\n"
        "from bokeh.plotting import figure, show\noutput_notebook(INLINE)\n"
        "p = figure(width=200, height=200, title='Bars'); p.vbar(x=[1, 2], top=[3, 4], width=0.5)\nshow(p)",
    ),
    "bokeh": (
        "bokeh",
        "from bokeh.io import output_notebook\nfrom bokeh.plotting import figure, show\noutput_notebook()\n"
        "p = figure(width=200, height=200, title='Lines'); p.line([1, 2], [3, 4])\nshow(p)",
    ),
    "folium": ("folium", "import folium\nfolium.Map([59.9, 10.7])"),
    "great_tables": ("great_tables", "import pandas as pd, great_tables as gt\ngt.GT(pd.DataFrame({'a': [1, 2]}))"),
    "itables": ("itables", "import itables, pandas as pd\nitables.show(pd.DataFrame({'a': [1, 2]}))"),
    "itables init": ("itables", "import itables\nitables.init_notebook_mode(all_interactive=False)"),
    "sympy": ("sympy", "import sympy\nsympy.symbols('x') ** 2"),
    "shapely": ("shapely", "from shapely.geometry import Point\nPoint(0, 0).buffer(1)"),
    "xarray": ("xarray", "import xarray as xr\nxr.Dataset({'a': ('x', [1, 2])})"),
    "scikit-learn": ("sklearn", "from sklearn.linear_model import LinearRegression\nLinearRegression()"),
    "statsmodels": (
        "statsmodels",
        "import statsmodels.api as sm\nsm.OLS([1, 2, 4, 3.], sm.add_constant([1, 2, 3, 5.])).fit().summary()",
    ),
    "networkx": ("networkx", "import networkx as nx\nnx.draw(nx.path_graph(3))"),
    "duckdb": ("duckdb", "import duckdb\nduckdb.sql('select 1 as a')"),
    "polars": ("polars", "import polars as pl\npl.DataFrame({'a': [1, 2]})"),
    "pyarrow": ("pyarrow", "import pyarrow as pa\npa.table({'a': [1, 2]})"),
    "dask": ("dask", "import dask.array as da\nda.ones((10, 10), chunks=5)"),
    "pillow": ("PIL", "from PIL import Image\nImage.new('RGB', (30, 20))"),
    "tqdm": ("tqdm", "from tqdm import tqdm\nfor i in tqdm(range(60)): pass"),
    "tqdm.notebook": ("ipywidgets", "from tqdm.notebook import tqdm as bar\nfor i in bar(range(60)): pass"),
    "slider": ("ipywidgets", "import ipywidgets as w\nw.IntSlider(value=7)"),
    "Output": (
        "ipywidgets",
        "import ipywidgets as w\nout = w.Output()\ndisplay(out)\nwith out:\n    print('inside'); display(1)",
    ),
    "HTML to JSON": ("IPython", f"{SHOW}display(HTML('<b>x</b>'), Markdown('**y**'), Latex('$z$'), JSON({{'a': 1}}))"),
    "SVG": ("IPython", f"{SHOW}SVG('<svg xmlns=\"http://www.w3.org/2000/svg\"><text>axis</text></svg>')"),
    "Javascript": ("IPython", f"{SHOW}Javascript('1 + 1')"),
    "Audio": ("numpy", f"{SHOW}import numpy as np\nAudio(np.sin(np.arange(800)), rate=8000)"),
    "IFrame": ("IPython", f"{SHOW}IFrame('https://example.org', 100, 100)"),
    "update": ("IPython", f"{SHOW}h = display(HTML('a'), display_id=True)\nh.update(HTML('<b>changed</b>'))"),
    "clear_output": (
        "IPython", f"{SHOW}for i in range(5):\n    clear_output(wait=True); display(HTML(f'<i>{{i}}</i>'))",
    ),
    "clear_output, text": ("IPython", f"{SHOW}for i in range(5):\n    clear_output(wait=True); print('at', i)"),
    "x?": ("IPython", "len?"),
    "%recall": ("IPython", "%recall 1"),
    "30 warnings": (
        "IPython",
        "import warnings\nfor i in range(30): warnings.warn_explicit('careful', UserWarning, 'f.py', 3, registry={})",
    ),
    "tqdm, nested": (
        "tqdm",
        "from tqdm import tqdm\nimport time\nfor i in tqdm(range(2), desc='outer'):\n"
        "    for j in tqdm(range(3), desc='inner', leave=False): time.sleep(0.05)",
    ),
    "tqdm.notebook, nested": (
        "ipywidgets",
        "from tqdm.notebook import tqdm as bar\nfor i in bar(range(2), desc='outer'):\n"
        "    for j in bar(range(3), desc='inner'): pass",
    ),
    "rich progress": (
        "rich",
        "from rich.progress import Progress\nimport time\nwith Progress() as shown:\n"
        "    one, two = shown.add_task('one', total=4), shown.add_task('two', total=4)\n"
        "    for i in range(4):\n        shown.advance(one); shown.advance(two); time.sleep(0.1)",
    ),
    "rich table": (
        "rich",
        "from rich.table import Table\nfrom rich import print as show\n"
        "table = Table('city', 'sales'); table.add_row('Oslo', '3'); show(table)",
    ),
    "alive-progress": (
        "alive_progress",
        "from alive_progress import alive_bar\nwith alive_bar(20, force_tty=True) as step:\n"
        "    for i in range(20): step()",
    ),
    "backspaces": (
        "IPython",
        "import sys\nfor i in range(11):\n    said = f'{i * 10:3d}%'\n    sys.stdout.write(said + '\\b' * len(said))\n"
        "print()",
    ),
    "keras": (
        "IPython",
        "import sys\nwidth = 0\nfor i in range(1, 6):\n    said = f'{i}/5 [{\"=\" * i:.<5}] - loss: {1 / i:.3f}'\n"
        "    sys.stdout.write('\\b' * width + '\\r' + said); width = len(said)\nprint()",
    ),
    "interact": ("ipywidgets", "import ipywidgets as w\nw.interact(lambda x: print('x is', x), x=3);"),
    "figure in an Output": (
        "ipywidgets",
        f"import ipywidgets as w\n{PLOT}out = w.Output()\nwith out:\n    plt.plot([1, 2]); plt.show()\nw.VBox([out])",
    ),
    "user's options": (
        "pandas",
        "import pandas as pd\nwith pd.option_context('display.float_format', '{:.1f}'.format, 'display.max_columns', 3):\n"  # noqa: E501 - code as it is typed
        "    display(pd.DataFrame([[0.123456] * 9]))",
    ),
    "numpy": ("numpy", "import numpy as np\nnp.eye(2)"),
    "scipy": ("scipy", "from scipy import stats\nstats.ttest_ind([1, 2, 3], [2, 3, 5])"),
    "plotnine": (
        "plotnine",
        "import pandas as pd\nfrom plotnine import ggplot, aes, geom_point\n"
        "ggplot(pd.DataFrame({'a': [1, 2], 'b': [3, 4]}), aes('a', 'b')) + geom_point()",
    ),
    "lets-plot": (
        "lets_plot",
        "from lets_plot import *\nLetsPlot.setup_html()\nggplot({'a': [1, 2], 'b': [3, 4]}, aes('a', 'b')) + geom_point()",  # noqa: E501 - code as it is typed
    ),
    "holoviews": (
        "holoviews", "import holoviews as hv\nhv.extension('bokeh')\nhv.Curve([1, 3, 2], 'month', 'sales')",
    ),
    "hvplot": (
        "hvplot", "import pandas as pd\nimport hvplot.pandas\npd.DataFrame({'a': [1, 3, 2]}).hvplot.line()",
    ),
    "pydeck": ("pydeck", "import pydeck\npydeck.Deck(initial_view_state=pydeck.ViewState(latitude=59.9, longitude=10.7))"),  # noqa: E501 - code as it is typed
    "pygal": (
        "pygal",
        "import pygal\nfrom IPython.display import SVG, display\nbars = pygal.Bar(title='Sales'); bars.add('Oslo', [3, 4])\n"  # noqa: E501 - code as it is typed
        "display(SVG(bars.render()))",
    ),
    "pyvis": (
        "pyvis",
        "from pyvis.network import Network\nnet = Network(notebook=True, cdn_resources='in_line'); net.add_nodes([1, 2])\n"  # noqa: E501 - code as it is typed
        "net.add_edge(1, 2); net.show('net.html')",
    ),
    "ipyleaflet": ("ipyleaflet", "import ipyleaflet\nipyleaflet.Map(center=(59.9, 10.7), zoom=9)"),
    "ipydatagrid": (
        "ipydatagrid", "import pandas as pd\nfrom ipydatagrid import DataGrid\nDataGrid(pd.DataFrame({'a': [1, 2]}))",
    ),
    "bqplot": ("bqplot", "from bqplot import pyplot as bq\nbq.figure(title='Lines'); bq.plot([1, 2], [3, 4]); bq.show()"),  # noqa: E501 - code as it is typed
    "mpld3": (
        "mpld3", f"{PLOT}import mpld3\nfig, ax = plt.subplots(); ax.plot([1, 2])\nshown = mpld3.display(fig)\nplt.close(fig)\nshown",  # noqa: E501 - code as it is typed
    ),
    "pyecharts": (
        "pyecharts",
        "from pyecharts.charts import Bar\nBar().add_xaxis(['a', 'b']).add_yaxis('sales', [3, 4]).render_notebook()",
    ),
    "drawsvg": ("drawsvg", "import drawsvg\nmade = drawsvg.Drawing(80, 40); made.append(drawsvg.Circle(20, 20, 9)); made"),  # noqa: E501 - code as it is typed
    "schemdraw": ("schemdraw", "import schemdraw, schemdraw.elements as elm\nmade = schemdraw.Drawing(show=False); made += elm.Resistor(); made"),  # noqa: E501 - code as it is typed
    "qrcode": ("qrcode", "import qrcode\nqrcode.make('hello').get_image()"),
    "wordcloud": ("wordcloud", "from wordcloud import WordCloud\nWordCloud(width=80, height=60).generate('one two two').to_image()"),  # noqa: E501 - code as it is typed
    "missingno": (
        "missingno", "import missingno, pandas as pd\nmissingno.matrix(pd.DataFrame({'a': [1, None], 'b': [1, 2]}))",
    ),
    "geopandas": (
        "geopandas",
        "import geopandas\nfrom shapely.geometry import Point\n"
        "geopandas.GeoDataFrame({'a': [1]}, geometry=[Point(0, 0)])",
    ),
    "lifelines": ("lifelines", "from lifelines import KaplanMeierFitter\nKaplanMeierFitter().fit([1, 2, 3], [1, 0, 1]).plot();"),  # noqa: E501 - code as it is typed
    "astropy": ("astropy", "from astropy.table import Table\nTable({'a': [1, 2]})"),
    "uncertainties": ("uncertainties", "from uncertainties import ufloat\nufloat(1, 0.1) * 2"),
    "pint": ("pint", "import pint\npint.UnitRegistry().Quantity(3, 'meter')"),
    "lightgbm": (
        "lightgbm",
        "import lightgbm, numpy as np\nlightgbm.LGBMRegressor(n_estimators=2, verbose=-1).fit(np.eye(60), np.arange(60))",  # noqa: E501 - code as it is typed
    ),
    "xgboost": (
        "xgboost", "import xgboost, numpy as np\nxgboost.XGBRegressor(n_estimators=2).fit(np.eye(9), np.arange(9))",
    ),
    "graphviz": ("graphviz", "import graphviz\ngraphviz.Digraph()"),
    "prettytable": ("prettytable", "from prettytable import PrettyTable\ntable = PrettyTable(['a']); table.add_row([1]); table"),  # noqa: E501 - code as it is typed
    "shap init": ("shap", "import shap\nshap.initjs()"),
    "shap plot": (
        "shap", "import numpy as np, shap\nshap.plots.force(0.5, np.array([0.2, -0.1]), feature_names=['a', 'b'])",
    ),
    "html5 video": (
        "matplotlib",
        f"{SHOW}import shutil\n{PLOT}from matplotlib.animation import FuncAnimation\nfig, ax = plt.subplots()\n"
        "line, = ax.plot([0, 1], [0, 1])\nmoving = FuncAnimation(fig, lambda i: (line,), frames=2)\n"
        "none = '<video><source src=\"data:video/mp4;base64,AA\">Your browser does not support it.</video>'\n"
        "made = moving.to_html5_video() if shutil.which('ffmpeg') else none\nplt.close(fig)\nHTML(made)",
    ),
    "tabulate": ("tabulate", "from tabulate import tabulate\ntabulate([[1, 2]], headers=['a', 'b'], tablefmt='html')"),
    "Markdown": ("IPython", f"{SHOW}Markdown('| a | b |\\n|---|---|\\n| 1 | 2 |')"),
    "Math": ("IPython", f"{SHOW}Math('a^2')"),
    "Image": ("PIL", f"{SHOW}import io\nfrom PIL import Image as Picture\nout = io.BytesIO(); Picture.new('RGB', (9, 9)).save(out, 'gif')\nImage(out.getvalue())"),  # noqa: E501 - code as it is typed
    "%prun": ("IPython", "%prun -l 1 sum(range(9))"),
    "%%html": ("IPython", "%%html\n<b>from a magic</b>"),
    "error": ("IPython", "print('before')\n1 / 0"),
    "nothing shown": ("IPython", "x = 1"),
}  # fmt: skip


@dataclass(frozen=True)
class Seen:
    """Of one cell: the MIME types of what stands beside text, plainly and by the agent, and the model's text."""

    plain: list[list[str]]
    agent: list[list[str]]
    told: str
    pictures: int


def compared(names: list[str], folder: Path) -> dict[str, Seen]:
    """Run these cells twice."""
    codes = {name: CELLS[name][1] for name in names}
    with PracticeServer(Shower(codes)) as server:
        given = surroundings(server.url, folder)
        plainly = ran(_plainly(codes), folder, given)
        by_agent = ran(_by_agent(codes), folder, given)
    (transcript,) = (folder / ".ipyagent" / "sessions").rglob(TRANSCRIPT)
    results = [event for event in read_events(transcript) if isinstance(event, ToolReturned)]
    seen = {}
    for at, (name, result) in enumerate(zip(names, results, strict=True), 1):
        told = "\n".join(str(block["text"]) for block in result.blocks if block["type"] == "text")
        pictures = sum(block["type"] == "image" for block in result.blocks)
        seen[name] = Seen(_rich(plainly[at]), _rich(by_agent[at]), told, pictures)
    return seen


def _plainly(codes: dict[str, str]) -> list[str]:
    return ["%matplotlib inline", *codes.values()]


def _by_agent(codes: dict[str, str]) -> list[str]:
    return ["%load_ext ipyagent\n%matplotlib inline", *(f"%%agent\nshow «{name}»" for name in codes)]


def _rich(cell: Any) -> list[list[str]]:
    """Of a cell's outputs those that are more than text, and not the agent's own."""
    bundles = [out.data for out in cell.outputs if out.output_type in ("display_data", "execute_result")]
    others = [data for data in bundles if "ia-static" not in data.get("text/html", "")]
    return [sorted(data) for data in others if data.keys() - {"text/plain"}]


# ---------------------------------------------------------------------- on a page

LOOK = """(i) => {
  const cell = document.querySelectorAll(".jp-CodeCell")[i];
  const drawn = "svg, canvas, img, iframe, video, audio, table, .jupyter-widgets";
  return [...cell.querySelectorAll(".jp-OutputArea-output")].map((node) => {
    const { width, height } = node.getBoundingClientRect();
    return [
      node.dataset.mimeType ?? "", node.querySelector(".ipyagent") !== null, node.textContent,
      [...node.querySelectorAll(drawn)].filter((part) => part.getBoundingClientRect().width > 1)
        .map((part) => part.localName).sort().join(" "),
      Math.round(width), Math.round(height)];
  });
}"""
COUNT = "() => document.querySelectorAll('.jp-CodeCell').length"
ALL_THERE = f"(count) => ({COUNT})() === count"
DROP = f"""(i) => {{ {PANEL} p.content.activeCellIndex = i; p.content.deselectAll();
  return app.commands.execute("notebook:delete-cell"); }}"""
JUPYTER = "application/vnd.jupyter."
TEXTS = ("text/plain", f"{JUPYTER}stdout", f"{JUPYTER}stderr", f"{JUPYTER}error")
"""MIME types of what stands with its call, in the agent's own output."""
_SILENT = re.compile(r"%\||^Out\[#\]:$|^\[?<(?:Axes|matplotlib)\b|^<[\w.]+ (?:object )?at #>$")
"""States of progress bars, a prompt, artists beside their figure, which are silent on purpose, and text forms that
name a type alone, in whose place a description stands."""
_FRAMES = "Traceback (most recent call last)"
"""Its frames are told without the libraries' own; the error's line is the same."""


class Output(NamedTuple):
    """One output on a page: its MIME type, whether it is the agent's own, its text, the elements that are drawn, its
    size, and how many of its pixels differ from the colour that most of them have."""

    kind: str
    own: bool
    words: str
    drawn: str
    width: int
    height: int
    ink: int = 0


Outputs = list[Output]
_UNFIT = re.compile(r"[^-.\w]+")
"""For a file's name."""


class OnPage(NamedTuple):
    """Of one cell by place: what a person sees less of where the agent ran it, "" for nothing, and whether what the
    plain cell displays is blank there (it needs a network, or a kernel)."""

    less: dict[str, str]
    blank: dict[str, bool]


def on_page(names: list[str], folder: Path) -> dict[str, OnPage]:
    """These cells in JupyterLab while the notebook is live, when it is saved and opened again, and in the HTML of
    nbconvert; no page reaches a network. IPYAGENT_SCREENSHOTS names a folder for pictures of the cells."""
    codes = {name: CELLS[name][1] for name in names}
    places: dict[str, list[list[Outputs]]] = {}
    with PracticeServer(Shower(codes)) as model:
        environment = {**surroundings(model.url, folder), "PYTHONPATH": os.environ.get("PYTHONPATH", "")}
        settings = folder / ".jupyter" / "settings" / "@jupyterlab" / "notebook-extension"
        settings.mkdir(parents=True)
        (settings / "tracker.jupyterlab-settings").write_text('{"windowingMode": "none"}')  # every cell is there
        server = Server(folder, environment=environment)
        try:
            with Page(server) as page:
                page.page.route(re.compile(r"^https?://(?!127\.0\.0\.1[:/])"), lambda route: route.abort())

                def look(place: str, notebook: str) -> None:
                    shots = [f"{each} - {place} - {notebook.partition('.')[0]}" for each in ("set-up", *names)]
                    places.setdefault(place, []).append(_drawn(page.page, shots))

                notebooks = {"plainly.ipynb": _plainly(codes), "agent.ipynb": _by_agent(codes)}
                for name, cells in notebooks.items():
                    write_notebook(folder, name, cells)
                    page.open(name)
                    for at in range(len(cells)):
                        page.run(at, timeout=120)
                        page.wait_idle()
                        if page.page.evaluate(COUNT) > len(cells):  # `%recall` puts a cell below its own
                            page.page.evaluate(DROP, at + 1)
                    look("live", name)
                    page.save()
                    page.shut_down()
                    page.open(name, kernel=False)
                    page.page.wait_for_function(ALL_THERE, arg=len(cells), timeout=60_000)
                    look("reopened", name)
                html = [sys.executable, "-m", "nbconvert", "--to", "html", *notebooks]
                subprocess.run(html, check=True, timeout=300, cwd=folder)
                for name in notebooks:
                    page.page.goto((folder / name).with_suffix(".html").as_uri(), wait_until="domcontentloaded")
                    look("nbconvert", name)
        finally:
            server.stop()
    return {
        name: OnPage(
            {place: _less(plainly[at], by_agent[at]) for place, (plainly, by_agent) in places.items()},
            {place: _blank(plainly[at]) for place, (plainly, _) in places.items()},
        )
        for at, name in enumerate(names, 1)
    }


def _drawn(page: Any, shots: list[str]) -> list[Outputs]:
    """What stands in the cells, one for each name in `shots`, once nothing changes any more, after 15 s at most."""
    seen: list[Outputs] = []
    until = time.monotonic() + 15
    while time.monotonic() < until:
        page.wait_for_timeout(1_000)
        before, seen = seen, [[Output(*each) for each in page.evaluate(LOOK, at)] for at in range(len(shots))]
        if seen == before:
            break
    for at, (outputs, shot) in enumerate(zip(seen, shots, strict=True)):
        cell = page.locator(".jp-CodeCell").nth(at)
        if kept := os.environ.get("IPYAGENT_SCREENSHOTS"):
            cell.screenshot(path=Path(kept, f"{_UNFIT.sub('_', shot)}.png"))
        for number, each in enumerate(outputs):
            if each.kind not in TEXTS and not each.own and each.width > 1 and each.height > 1:
                picture = cell.locator(".jp-OutputArea-output").nth(number).screenshot()
                outputs[number] = each._replace(ink=_ink(picture))
    return seen


def _ink(picture: bytes) -> int:
    with PIL.Image.open(io.BytesIO(picture)) as opened:
        colours = opened.convert("RGB").getcolors(opened.width * opened.height)
    return sum(count for count, _ in colours) - max(colours)[0]


def _blank(outputs: Outputs) -> bool:
    rich = [each for each in outputs if each.kind not in TEXTS]
    return bool(rich) and not any(each.ink for each in rich)


def _less(plainly: Outputs, by_agent: Outputs) -> str:
    """What of the plain cell the agent's cell lacks: outputs by their types and what they draw, size and ink, and
    lines of text."""
    wanted = [each for each in plainly if each.kind not in TEXTS]
    there = [each for each in by_agent if each.kind not in TEXTS and not each.own]
    texts = _masked("\n".join(each.words for each in by_agent))
    said = [_masked(each.words).rstrip().split("\n") for each in plainly if each.kind in TEXTS[:3]]
    said = [lines[-1:] if any(_FRAMES in line for line in lines) else lines for lines in said]
    lines = [line.strip() for lines in said for line in lines]
    missing = [line for line in lines if line and not _SILENT.search(line) and line not in texts]
    kinds = [[(each.kind, each.drawn) for each in outputs] for outputs in (wanted, there)]
    found = [f"{kinds[0]} plainly, {kinds[1]} by the agent"] * (kinds[0] != kinds[1])
    for one, other in zip(wanted, there, strict=False):
        for what, before, now in zip(Output._fields[4:], one[4:], other[4:], strict=True):
            room = 2 * one.width if what == "ink" else 32  # an edge between pixels inks a row more
            if abs(before - now) > ALIKE * before + room or (what == "ink" and before and not now):
                found.append(f"{what} {before} plainly, {now} by the agent")
    return " and ".join([*found, *(f"no line {line!r}" for line in missing[:1])])


ALIKE = 0.2
"""By how much the size and the ink of an output may differ: times and layouts do from run to run, and a result stands
some pixels lower than what is displayed."""


def _masked(words: str) -> str:
    """Without what differs from run to run."""
    return re.sub(r"0x[0-9a-f]+|[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}|\d+(?:\.\d+)?", "#", words)


# ---------------------------------------------------------------------- the table

TOGETHER = 12
"""Cells of one notebook: a page draws so many at once."""


def group(names: list[str]) -> Iterator[Row]:
    """The rows of these cells, each run in a plain and in an agent's notebook, by nbclient and on a page."""
    with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryDirectory() as page:
        seen = compared(names, Path(folder))
        pages = on_page(names, Path(page))
    previews = previewed([("", [CELLS[name][1] for name in names])])[0]
    for name, one_line in zip(names, previews, strict=True):
        one = seen[name]
        kinds = ", ".join("+".join(kind.rpartition("/")[2] for kind in kinds) for kinds in one.agent) or "text"
        tokens = f"{estimate_text(one.told)} tokens" + (f", {one.pictures} pictures" if one.pictures else "")
        places = {"nbclient": "" if one.plain == one.agent else f"plainly {one.plain}", **pages[name].less}
        missing = "; ".join(f"{place}: {what}" for place, what in places.items() if what)
        shown = f"preview {estimate_text(one_line)} tokens: {one_line[:90]}" if one_line else "no value"
        blank = ", ".join(place for place, nothing in pages[name].blank.items() if nothing)
        found = (missing or f"as plainly: {', '.join(places)}") + f" (blank in both: {blank})" * bool(blank)
        yield f"outputs: {name}", f"{kinds[:60]}; model {tokens}; {shown}", found


def rows(kept: Path | None = None, wanted: Collection[str] = ()) -> Iterator[Row]:
    """The table; what `kept` has is not run again unless it is `wanted`."""
    known: dict[str, Row] = json.loads(kept.read_text()) if kept is not None and kept.exists() else {}
    installed = [name for name, (library, _) in CELLS.items() if find_spec(library) is not None]
    waiting = [name for name in installed if (name in wanted if wanted else name not in known)]
    for name in (name for name in installed if name not in waiting):
        if name in known and not wanted:
            yield tuple(known[name])
    for at in range(0, len(waiting), TOGETHER):
        names = waiting[at : at + TOGETHER]
        try:
            made = list(group(names))
        except Exception as problem:  # noqa: BLE001 - a kernel or a page that does not answer: the others go on
            lines = str(problem).strip().splitlines() or [repr(problem)]
            made = [(f"outputs: {name}", "not compared", lines[-1][:200]) for name in names]
        else:
            known |= dict(zip(names, made, strict=True))
            if kept is not None:
                kept.write_text(json.dumps(known, ensure_ascii=False, indent=1))
        yield from made
    libraries = {CELLS[name][0] for name in installed}
    yield "outputs: libraries", f"{len(libraries)} libraries, {len(installed)} cells", "at least 35 libraries"
    for name in CELLS.keys() - set(installed):
        yield f"outputs: {name}", "not installed", ""


if __name__ == "__main__":
    for row in rows(Path(sys.argv[1]), sys.argv[2:]):
        print(*row, sep=" | ", flush=True)
