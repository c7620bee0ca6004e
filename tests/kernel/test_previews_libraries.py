"""Objects of libraries are told by their facts, each in 60 tokens at most, and never by code of the user's."""
# ruff: noqa: E501 - rows of a table

import functools
import threading
import time
import warnings
from importlib.util import find_spec
from typing import Any

import pytest

from ipyagent.journal.tokens import estimate_text
from ipyagent.kernel import variables
from ipyagent.kernel.previews import families
from ipyagent.kernel.previews._context import FACT_TOKENS
from ipyagent.kernel.variables import summarize, survey

describe = functools.partial(variables.describe, seconds=60)
"""As it is with time: a look ends early on a busy machine."""

REQUIRED = {"pandas", "numpy", "polars", "pyarrow", "sklearn", "scipy", "matplotlib", "PIL", "ipywidgets", "dask", "IPython",
            "pydantic"}  # fmt: skip
"""What the extra `test` installs: their rows run always."""
SETUPS = {
    "pandas": "import pandas as pd\ndf = pd.DataFrame({'a': [1, 2, 3], 'b': [2.0, 3, 5], 'c': ['x', 'y', 'x']})",
    "numpy": "import numpy as np",
    "polars": "import polars as pl, datetime\npf = pl.DataFrame({'day': [datetime.date(2024, 1, 2)], 'n': [1]})",
    "pyarrow": "import pyarrow as pa",
    "sklearn": "import numpy as np\nfrom sklearn.linear_model import Ridge\nfrom sklearn.pipeline import *\nfrom "
    "sklearn.preprocessing import *\nfrom sklearn.compose import *\nfrom sklearn.model_selection import GridSearchCV\nfrom "
    "sklearn.feature_selection import SelectFromModel\nX, y = [[1.0], [2.0], [4.0]], [1.0, 2.0, 3.5]",
    "scipy": "import scipy.stats as st, scipy.sparse as ss",
    "matplotlib": "from matplotlib.figure import Figure\nf = Figure(figsize=(6, 4)); ax = f.subplots(1, 2)\n"
    "ax[0].plot([1, 2], label='one'); ax[0].set(title='Growth', xlabel='day'); f.suptitle('All')",
    "PIL": "from PIL import Image",
    "ipywidgets": "import ipywidgets as w",
    "dask": "import dask, dask.array as da, dask.dataframe as dd, pandas as pd",
    "pydantic": "import pydantic\nclass User(pydantic.BaseModel):\n    name: str\n    age: int = 3",
    "IPython": "from IPython.display import *",
    "attrs": "import attrs\n@attrs.define\nclass Pair:\n    left: int\n    right: int",
    "xarray": "import xarray as xr, numpy as np\nds = xr.Dataset({'temp': (('x', 'time'), np.arange(12.).reshape(3, 4), "
    "{'units': 'K'})}, coords={'x': [10, 20, 30]}, attrs={'title': 'Weather'})",
    "geopandas": "import geopandas as gpd, shapely\n"
    "g = gpd.GeoDataFrame({'name': ['a']}, geometry=[shapely.Point(1, 2)], crs='EPSG:4326')",
    "plotly": "import plotly.graph_objects as go",
    "altair": "import altair as alt, pandas as pd\ndf = pd.DataFrame({'a': [1, 2], 'b': [3, 4]})\n"
    "c = alt.Chart(df, title='T').mark_point().encode(x='a:Q', y=alt.Y('mean(b)').title('mean of b'))",
    "bokeh": "from bokeh.plotting import figure\np = figure(title='Lines', x_axis_label='day'); p.line([1, 2], [3, 4])",
    "seaborn": "import seaborn as sns, matplotlib; matplotlib.use('agg')",
    "folium": "import folium",
    "great_tables": "import great_tables as gt, pandas as pd",
    "plotnine": "from plotnine import ggplot, aes, geom_point, labs\nimport pandas as pd",
    "pydeck": "import pydeck",
    "sympy": "import sympy as sp\nx, y = sp.symbols('x y')",
    "pint": "import pint\nureg = pint.UnitRegistry()",
    "uncertainties": "from uncertainties import ufloat",
    "shapely": "import shapely",
    "networkx": "import networkx as nx",
    "statsmodels": "import statsmodels.formula.api as smf, pandas as pd\ndf = pd.DataFrame({'a': [1, 2, 3, 4.], 'b': "
    "[2, 3, 5, 7.]})",
    "xgboost": "import xgboost as xgb, numpy as np\nX, y = np.array([[1.0], [2.0], [4.0]]), [1.0, 2.0, 3.5]",
    "lightgbm": "import lightgbm as lgb, numpy as np\nX, y = np.array([[1.0], [2.0], [4.0]] * 9), [1.0, 2.0, 3.5] * 9",
    "duckdb": "import duckdb",
    "sqlalchemy": "import sqlalchemy as sa\nt = sa.Table('users', sa.MetaData(), sa.Column('id', sa.Integer, "
    "primary_key=True), sa.Column('name', sa.String))",
    "astropy": "import astropy.units as u\nfrom astropy.table import Table",
    "holoviews": "import holoviews as hv",
    "torch": "import torch",
}
ROWS: list[tuple[str, str, list[str]]] = [
    ("pandas", "pd.Period('2024-03')", ["Period 2024-03"]),
    ("pandas", "pd.Interval(0, 5)", ["Interval (0, 5]"]),
    ("pandas", "df.groupby('c')", ["DataFrameGroupBy", "over DataFrame 3 x 3, by 'c'"]),
    ("pandas", "df.columns", ["Index 3 str: 'a', 'b', 'c'"]),
    ("pandas", "df.a.astype(pd.SparseDtype('int'))", ["sparse i64"]),
    ("pandas", "pd.cut(df.b, 2)", ["cat(2, ordered)", "categories", " < "]),
    ("pandas", "pd.Series(list('ab'), dtype='category')", ["cat(2)", "categories 'a', 'b'"]),
    ("pandas", "df.dtypes", ["i64", "f64", "str"]),
    ("numpy", "np.ma.masked_greater(np.arange(6), 3)", ["MaskedArray i64 6, 2 masked: 0, 1, 2, 3, --, --"]),
    ("numpy", "np.array([(1, 2.5)], dtype=[('n', 'i4'), ('w', 'f8')])", ["struct(n i32, w f64) 1: (1, 2.5)"]),
    ("polars", "pf.lazy().filter(pl.col('n') > 3)", ["LazyFrame", "not computed", "2 columns: day Date, n i64"]),
    ("polars", "pf['day']", ["2024-01-02"]),
    ("polars", "pf.schema", ["day Date, n i64"]),
    ("polars", "pf.with_columns(pl.col('day').cast(pl.Datetime('us', 'UTC')))", ["day dt[us, UTC]"]),
    ("pyarrow", "pa.schema([('a', pa.int64())])", ["pyarrow Schema 1: a int64"]),
    ("pyarrow", "pa.array([1, None])", ["Int64Array int64 2 (1 null): 1, None"]),
    ("sklearn", "Ridge(alpha=2)", ["Ridge(alpha=2) not fitted"]),
    ("sklearn", "Ridge().fit(X, y)", ["Ridge() fitted", "coef_", "n_features_in_ 1"]),
    ("sklearn", "make_pipeline(StandardScaler(), Ridge())", ["Pipeline not fitted: standardscaler StandardScaler()"]),
    ("sklearn", "make_pipeline(StandardScaler(), Ridge()).fit(X, y)", ["Pipeline fitted", "ridge Ridge()"]),
    ("sklearn", "make_union(StandardScaler()).fit(X)", ["FeatureUnion fitted"]),
    ("sklearn", "make_union(StandardScaler())", ["FeatureUnion not fitted"]),
    ("sklearn", "make_column_transformer((StandardScaler(), [0])).fit(X)", ["ColumnTransformer fitted"]),
    ("sklearn", "GridSearchCV(Ridge(), {'alpha': [1, 2]}, cv=3).fit(X, y)", ["GridSearchCV", " fitted", "best_params_"]),
    ("sklearn", "FunctionTransformer()", ["FunctionTransformer()", "!fitted"]),
    ("sklearn", "make_pipeline(FunctionTransformer())", ["Pipeline", "!fitted"]),
    ("sklearn", "SelectFromModel(Ridge().fit(X, y), prefit=True)", ["SelectFromModel", "!not fitted"]),
    ("scipy", "st.norm(2, 3)", ["scipy.stats norm(2, 3), frozen distribution"]),
    ("scipy", "st.linregress([1, 2, 3], [2, 4, 7])", ["slope=2.5"]),
    ("scipy", "ss.eye(5).tocsr()", ["csr_matrix f64 5x5 sparse, 5 stored"]),
    ("matplotlib", "f", ["Figure 6 x 4 in, title 'All', 2 subplots: title 'Growth', x 'day', 1 line, labels 'one'; empty"]),
    ("matplotlib", "ax[0].title", ["Text 'Growth'"]),
    ("matplotlib", "ax[0]", ["matplotlib Axes, title 'Growth', x 'day', 1 line"]),
    ("matplotlib", "ax[0].lines[0]", ["matplotlib Line2D"]),
    ("PIL", "Image.new('RGB', (30, 20))", ["PIL Image 30 x 20, mode RGB"]),
    ("ipywidgets", "w.IntSlider(value=7, description='n')", ["IntSlider 'n' = 7 (min 0, max 100)"]),
    ("ipywidgets", "w.Dropdown(options=['a', 'b'])", ["Dropdown = 'a' (options ('a', 'b'))"]),
    ("ipywidgets", "w.HBox([w.Button(description='Go')])", ["HBox ([ipywidgets Button 'Go'])"]),
    ("ipywidgets", "w.Password(value='opensesame')", ["Password", "!opensesame"]),
    ("dask", "da.ones((100, 10), chunks=(50, 10))", ["not computed, f64 100x10 in 2x1 chunks of 50x10"]),
    ("dask", "da.ones(10, chunks=5).sum()", ["f64 scalar"]),
    ("dask", "dask.delayed(sum)([1, 2])", ["Delayed", "'sum-"]),
    ("dask", "dd.from_pandas(pd.DataFrame({'a': [1, 2], 'b': ['x', 'y']}), npartitions=2)", ["2 columns: a i64, b str"]),
    ("IPython", "Markdown('# Result')", ["IPython Markdown, 8 characters: '# Result'"]),
    ("IPython", "HTML('<style>b {}</style><p>All <b>12</b> rows fit.')", ["characters: 'All 12 rows fit.'"]),
    ("IPython", "HTML('<script>x()</script>')", ["IPython HTML, 20 characters"]),
    ("pydantic", "User(name='Ann')", ["User object", "name='Ann', age=3"]),
    ("attrs", "Pair(1, 2)", ["left=1, right=2"]),
    ("xarray", "ds", ["Dataset (x 3, time 4); temp f64 (x, time); coords x i64; attrs title 'Weather'"]),
    ("xarray", "ds.temp", ["DataArray temp f64 (x 3, time 4)", "attrs units 'K'", "values 0, 1"]),
    ("geopandas", "g", ["GeoDataFrame 1 x 2: name str, geometry geometry; geometry in EPSG:4326"]),
    ("geopandas", "g.geometry", ["POINT (1 2)", "EPSG:4326"]),
    ("plotly", "go.Figure(go.Scatter(x=[1, 2], y=[3, 4], name='one'), layout=dict(title='Sales', xaxis_title='month'))",
     ["plotly Figure: scatter 'one' 2 points, title 'Sales', x 'month'"]),
    ("plotly", "go.Figure([go.Bar(x=[1], y=[2], name='a'), go.Scatter(y=[1, 2])])", ["2 traces (bar 'a' 1 point; scatter 2"]),
    ("altair", "c", ["altair Chart: point, x a:Q, y mean(b) 'mean of b', title 'T', data DataFrame 2 x 2"]),
    ("altair", "c + c.mark_line()", ["LayerChart: 2 layers (point", "; line"]),
    ("bokeh", "p", ["bokeh figure: Line, title 'Lines', x 'day'"]),
    ("seaborn", "sns.relplot(x=[1, 2], y=[3, 4])", ["seaborn FacetGrid", "1 collection (2 points)"]),
    ("folium", "folium.Map([59.9, 10.7], zoom_start=11)", ["folium Map: at [59.9, 10.7], zoom 11"]),
    ("great_tables", "gt.GT(pd.DataFrame({'a': [1]})).tab_header(title='S')", ["GT: over DataFrame 1 x 1, title 'S'"]),
    ("plotnine", "ggplot(pd.DataFrame({'a': [1]}), aes('a')) + geom_point() + labs(title='T')", ["x a, geom_point, title 'T'"]),
    ("pydeck", "pydeck.Layer('ScatterplotLayer')", ["ScatterplotLayer"]),
    ("holoviews", "hv.Curve([1, 2, 3])", ["holoviews Curve: x, y"]),
    ("sympy", "x**2 + sp.sin(x)", ["x**2 + sin(x)"]),
    ("sympy", "sp.Matrix([[1, x], [y, 2]])", ["2x2: Matrix([[1, x], [y, 2]])"]),
    ("sympy", "sp.Function('f')(x)", ["f(x)"]),
    ("sympy", "sp.Add(*[x**n for n in range(400)])", ["sympy Add (too large to print)"]),
    ("sympy", "sp.Integer(10) ** 100_000", ["too large to print"]),
    ("pint", "3.5 * ureg.meter / ureg.second ** 2", ["pint Quantity 3.5 meter / second ** 2"]),
    ("pint", "ureg.meter", ["pint Unit meter"]),
    ("uncertainties", "ufloat(3.1, 0.2)", ["3.1 ± 0.2"]),
    ("shapely", "shapely.Point(1, 2)", ["shapely POINT (1 2)"]),
    ("shapely", "shapely.Point(0, 0).buffer(1)", ["Polygon, 65 points, bounds -1 -1 1 1, area 3.136", "POLYGON (("]),
    ("shapely", "shapely.Polygon()", ["Polygon EMPTY"]),
    ("networkx", "nx.karate_club_graph()", ["Graph \"Zachary's Karate Club\", 34 nodes, 78 edges", "a node has club"]),
    ("networkx", "nx.MultiDiGraph([(1, 2), (1, 2), (2, 2)])", ["MultiDiGraph, 2 nodes, 3 edges"]),
    ("networkx", "nx.Graph([(1, 1), (1, 2)])", ["2 nodes, 2 edges"]),
    ("networkx", "nx.path_graph(1)", ["1 node, 0 edges"]),
    ("statsmodels", "smf.ols('b ~ a', df).fit()", ["OLS fitted 'b ~ a', 4 rows, R² 0.9", "Intercept", "a 1.7"]),
    ("statsmodels", "smf.ols('b ~ a', df)", ["OLS, not fitted 'b ~ a', 4 rows"]),
    ("statsmodels", "smf.ols('b ~ 1', df[:1])", ["OLS, not fitted 'b ~ 1', 1 row"]),
    ("xgboost", "xgb.XGBRegressor(n_estimators=2)", ["XGBRegressor(n_estimators=2) not fitted"]),
    ("xgboost", "xgb.XGBRegressor(n_estimators=2).fit(X, y)", ["XGBRegressor(n_estimators=2) fitted"]),
    ("xgboost", "xgb.DMatrix(X)", ["3 rows, 1 column"]),
    ("lightgbm", "lgb.LGBMRegressor(n_estimators=2)", ["not fitted"]),
    ("lightgbm", "lgb.LGBMRegressor(n_estimators=2, verbose=-1).fit(X, y)", ["LGBMRegressor", " fitted", "!not fitted"]),
    ("duckdb", "duckdb.sql('select 1 as n, 2.5 as w')", ["DuckDBPyRelation", "not computed, 2 columns: n INTEGER, w DECIMAL"]),
    ("sqlalchemy", "sa.create_engine('sqlite:///sales.db')", ["Engine sqlite:///sales.db"]),
    ("sqlalchemy", "t", ["Table users: id Integer primary key, name String"]),
    ("sqlalchemy", "sa.select(t.c.name)", ["Select", "not computed", "users.name"]),
    ("astropy", "3 * u.km", ["Quantity f64 scalar km: 3"]),
    ("astropy", "Table({'a': [1, 2]})", ["astropy Table 2 x 1: a i64"]),
    ("torch", "torch.nn.Sequential(torch.nn.Linear(3, 2))", ["torch Sequential, 8 parameters", "training"]),
]  # fmt: skip


def made(library: str, code: str) -> Any:
    namespace: dict[str, Any] = {"__name__": "__main__"}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        exec(SETUPS[library], namespace)
        return eval(code, namespace)


@pytest.mark.parametrize(("library", "code", "facts"), ROWS, ids=[f"{row[0]}: {row[1][:40]}" for row in ROWS])
def test_an_object_of_a_library_is_told_by_its_facts_in_sixty_tokens(library: str, code: str, facts: list[str]) -> None:
    if library not in REQUIRED and find_spec(library) is None:
        pytest.skip(f"{library} is not installed")
    value = made(library, code)
    line = summarize({"value": value}, seconds=5).removeprefix("value  ")
    for fact in facts:
        assert (fact[1:] not in line) if fact[0] == "!" else (fact in line), line
    assert estimate_text(line) <= FACT_TOKENS
    assert line.isprintable()
    assert "no preview" not in describe("", value, seconds=5)
    for part in (fact[1:] for fact in facts if fact[0] == "!"):
        assert part not in describe("", value, seconds=5)


def test_an_estimator_of_the_users_is_said_to_be_fitted_only_where_it_is_known() -> None:
    from sklearn.base import BaseEstimator
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    asked = []

    class Own(BaseEstimator):
        def fit(self, X: Any, y: Any = None) -> Any:  # noqa: N803 - as in scikit-learn
            self.model = 1
            return self

        def __sklearn_is_fitted__(self) -> bool:
            asked.append(1)
            return True

    fitted = Own().fit([[1]])
    for value in (Own(), fitted, make_pipeline(Own())):
        assert "fitted" not in summarize({"value": value})
    assert "  mean_: ndarray f64 1: 2" in describe("model", StandardScaler().fit([[1.0], [3.0]]))
    # what is fitted before it tells of the pipeline
    assert "Pipeline fitted" in summarize({"value": make_pipeline(StandardScaler().fit([[1.0]]), fitted)})
    assert asked == []


def test_no_code_of_a_users_subclass_of_a_library_runs() -> None:
    import ipywidgets
    from PIL import Image
    from sklearn.linear_model import Ridge

    ran: list[str] = []

    def trap(name: str) -> Any:
        return property(lambda self: ran.append(name))

    class Picture(Image.Image):
        size, mode, format, __repr__ = (trap(name) for name in ("size", "mode", "format", "repr"))  # type: ignore[assignment]

    class Slider(ipywidgets.IntSlider):
        def __getattribute__(self, name: str) -> Any:
            if armed:
                ran.append(name)
            return super().__getattribute__(name)

    class Model(Ridge):
        def get_params(self, deep: bool = True) -> Any:
            ran.append("get_params")
            return super().get_params(deep)

        def __repr__(self, N_CHAR_MAX: int = 700) -> str:  # noqa: N803 - as in scikit-learn
            ran.append("repr")
            return "x" * 10_000_000

    armed = False
    values = {"picture": Picture(), "slider": Slider(value=3), "model": Model(alpha=2)}
    armed = True
    told = summarize(values) + "".join(describe(name, value) for name, value in values.items())
    armed = False
    assert ran == []
    assert "Slider = 3" in told
    assert "Model(alpha=2)" in told
    assert "of unknown size" in told or "0 x 0" in told


def test_what_objects_store_is_told_within_bounds_whatever_it_is() -> None:
    import ipywidgets
    from matplotlib.figure import Figure

    class Loud:
        """Its text form raises, hangs, or is large."""

        def __repr__(self) -> str:
            time.sleep(60)
            raise RuntimeError("no")

        def __getattr__(self, name: str) -> Any:
            raise RuntimeError(name)

    figure = Figure()
    axes = figure.subplots(3, 3)
    axes[0, 0].set_title("\x1b[31m<script>alert(1)</script>\x1b[0m" * 5_000)
    texts = [ipywidgets.HTML("<b>" + "x" * 1_000_000), ipywidgets.Text(description="\x1b]0;t\x07" * 1_000), figure]
    begun = time.thread_time()
    for value in (Loud(), [Loud()], {"a": Loud()}, *texts):
        line = summarize({"value": value})
        assert line.isprintable()
        assert len(line.encode()) <= 400
        assert all(part.isprintable() for part in describe("value", value).split("\n"))
    assert time.thread_time() - begun < 10


def test_the_columns_of_a_lazy_frame_are_not_waited_for_and_its_functions_do_not_run() -> None:
    import polars as pl

    ran: list[int] = []

    def noted(frame: Any) -> Any:
        ran.append(1)
        return frame

    frame = pl.DataFrame({"a": [1], "b": ["x"]}).lazy()
    assert "2 columns: a i64, b str" in summarize({"value": frame.map_batches(noted).filter(pl.col("a") > 0)}, seconds=5)
    if hasattr(frame, "pipe_with_schema"):
        lazily = frame.pipe_with_schema(lambda given, schema: noted(given))
        assert "columns not read" in summarize({"value": lazily})
    assert "columns not read" in summarize({"value": pl.scan_parquet("/nowhere/at-all.parquet")})
    assert ran == []


def test_dates_in_tables_are_read_as_dates() -> None:
    import datetime

    import polars as pl

    days = [datetime.datetime(2024, 1, 2), datetime.datetime(2024, 1, 3, 4, 5)]
    told = describe("frame", pl.DataFrame({"day": days, "date": [day.date() for day in days]}))
    assert "day: dt[us], e.g. 2024-01-02 00:00:00, 2024-01-03 04:05:00" in told
    assert "date: Date, e.g. 2024-01-02, 2024-01-03" in told


def test_what_was_read_late_is_not_called_a_change(monkeypatch: pytest.MonkeyPatch) -> None:
    import polars as pl

    from ipyagent.kernel.previews import lazy

    namespace = {"frame": pl.DataFrame({"a": [1]}).lazy()}
    monkeypatch.setattr(lazy, "SCHEMA_SECONDS", 0.0)
    _, told = survey(namespace, None, seconds=5)
    for thread in [each for each in threading.enumerate() if each.name == "ipyagent-schema"]:
        thread.join()
    monkeypatch.setattr(lazy, "SCHEMA_SECONDS", 5.0)
    assert "1 column: a i64" in summarize(namespace, seconds=5)
    assert survey(namespace, told, seconds=5)[0] == ""
    namespace["frame"] = namespace["frame"].head(1)
    assert survey(namespace, told, seconds=5)[0].startswith("changed: frame")


def test_every_required_library_has_rows_and_every_row_a_setup() -> None:
    assert {row[0] for row in ROWS} >= REQUIRED
    assert {row[0] for row in ROWS} <= SETUPS.keys()
    assert len({family.name for family in families()}) == len(families())
