"""What people and the model see of 45 cells with 30 libraries: each is run by the agent and plainly, in real kernels,
and the outputs that stay in the notebook are compared. A library that is not installed is left out and named."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import nbformat

from ipyagent.journal.events import ToolReturned
from ipyagent.journal.journal import TRANSCRIPT, read_events
from ipyagent.practice.replies import Reply, text, tool
from ipyagent.practice.server import PracticeServer

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

    def reply(body: dict[str, Any]) -> Reply:
        last = body["messages"][-1]["content"]
        blocks = last if isinstance(last, list) else [{"type": "text", "text": last}]
        if any(block["type"] == "tool_result" for block in blocks):
            return text("That was it.")
        asked = " ".join(str(block.get("text", "")) for block in blocks)
        name = next((name for name in codes if f"show «{name}»" in asked), None)
        return text("nothing") if name is None else tool("python", {"code": codes[name]})

    with PracticeServer(reply) as server:
        given = surroundings(server.url, folder)
        before = {name: os.environ.get(name) for name in given}
        os.environ.update(given)
        try:
            plainly = ran(["%matplotlib inline", *codes.values()], folder)
            asked = [f"%%agent\nshow «{name}»" for name in names]
            by_agent = ran(["%load_ext ipyagent\n%matplotlib inline", *asked], folder)
        finally:
            for name, value in before.items():
                os.environ.pop(name) if value is None else os.environ.__setitem__(name, value)
    (transcript,) = (folder / ".ipyagent" / "sessions").rglob(TRANSCRIPT)
    results = [event for event in read_events(transcript) if isinstance(event, ToolReturned)]
    seen = {}
    for at, (name, result) in enumerate(zip(names, results, strict=True), 1):
        told = "\n".join(str(block["text"]) for block in result.blocks if block["type"] == "text")
        pictures = sum(block["type"] == "image" for block in result.blocks)
        seen[name] = Seen(_rich(plainly[at]), _rich(by_agent[at]), told, pictures)
    return seen


def surroundings(url: str, folder: Path) -> dict[str, str]:
    """The environment of a kernel whose agent asks the server at `url`."""
    return {
        "ANTHROPIC_BASE_URL": url, "ANTHROPIC_API_KEY": "practice", "IPYAGENT_HOME": str(folder / "home"),
        "IPYAGENT_MODE": "auto", "IPYAGENT_EXTRACTION": "false", "IPYAGENT_MODEL": "claude-sonnet-5-5",
    }  # fmt: skip


def ran(cells: list[str], folder: Path) -> list[Any]:
    """The cells with their outputs, run in order in a kernel of their own."""
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(code) for code in cells])
    file = folder / f"cells-{uuid.uuid4().hex}.ipynb"
    nbformat.write(notebook, file)
    subprocess.run([sys.executable, "-c", EXECUTE, file], check=True, timeout=600)  # a process without other loops
    made: list[Any] = nbformat.read(file, 4).cells
    return made


EXECUTE = """
import sys, nbformat
from nbclient import NotebookClient
file = sys.argv[1]
book = nbformat.read(file, 4)
where = {"metadata": {"path": file.rpartition("/")[0]}}
NotebookClient(book, timeout=120, kernel_name="python3", allow_errors=True, resources=where).execute()
nbformat.write(book, file)
"""


def _rich(cell: Any) -> list[list[str]]:
    """Of a cell's outputs those that are more than text, and not the agent's own."""
    bundles = [out.data for out in cell.outputs if out.output_type in ("display_data", "execute_result")]
    others = [data for data in bundles if "ia-static" not in data.get("text/html", "")]
    return [sorted(data) for data in others if data.keys() != {"text/plain"}]


def rows() -> Iterator[tuple[str, str, str]]:
    installed = [name for name, (library, _) in CELLS.items() if find_spec(library) is not None]
    with tempfile.TemporaryDirectory() as folder:
        for name, seen in compared(installed, Path(folder)).items():
            kinds = ", ".join("+".join(kind.rpartition("/")[2] for kind in kinds) for kinds in seen.agent) or "text"
            tokens = f"{len(seen.told) // 4} tokens" + (f", {seen.pictures} pictures" if seen.pictures else "")
            same = "as plainly" if seen.plain == seen.agent else f"plainly {seen.plain}"
            yield f"outputs: {name}", f"{kinds[:60]}; model {tokens}", same
    for name in CELLS.keys() - set(installed):
        yield f"outputs: {name}", "not installed", ""
