"""Some 230 typical cells with 43 libraries, for what the model is told of what code shows: of each library a cell of
the user's that prepares, then cells that end in what an analyst looks at."""
# ruff: noqa: E501 - cells and their scripts

from __future__ import annotations

from typing import NamedTuple


class Library(NamedTuple):
    """`module` must be there; `setup` is run once; each of `cells` shows something."""

    module: str
    setup: str
    cells: tuple[str, ...]


FRAME = """import pandas as pd, numpy as np
rng = np.random.default_rng(3)
df = pd.DataFrame({'city': ['Oslo', 'Bergen', 'Oslo', 'Tromsø'] * 10, 'month': pd.date_range('2024-01-01', periods=40),
    'sales': rng.normal(100, 20, 40).round(2), 'cost': rng.normal(60, 9, 40).round(2)})
"""

LIBRARIES: dict[str, Library] = {
    "pandas": Library("pandas", FRAME, (
        "df", "df.head()", "df.describe()", "df.info()", "df.dtypes", "df.sales", "df.city.value_counts()",
        "df.groupby('city').sales.mean()", "df.groupby('city')", "df.pivot_table(index='city', values='sales')",
        "df.set_index(['city', 'month']).head(6)", "df.columns", "df.index", "df.corr(numeric_only=True)",
        "display(df.head(2), df.tail(2))", "df.isna().sum()", "pd.Period('2024-03')", "pd.Interval(0, 5)",
        "df.sales.rolling(3)", "pd.cut(df.sales, 3)", "df.plot(x='month', y='sales')", "df.to_html(max_rows=3)",
    )),
    "pandas Styler": Library("pandas", FRAME, (
        "df.head().style", "df.head().style.format(precision=1).set_caption('Sales per city')",
        "df.describe().style.background_gradient(axis=None) if False else df.describe().style.highlight_max()",
        "df.head(3).style.hide(axis='index')", "df.head(4).style.bar(subset=['sales'])",
    )),
    "numpy": Library("numpy", FRAME, (
        "np.arange(20)", "rng.normal(size=(4, 3)).round(3)", "np.zeros((1000, 1000))", "np.float64(3.25)",
        "np.ma.masked_greater(np.arange(6), 3)", "np.array([(1, 2.5)], dtype=[('n', 'i4'), ('w', 'f8')])",
        "np.linspace(0, 1, 5), np.eye(2)",
    )),
    "polars": Library("polars", "import polars as pl, datetime\npf = pl.DataFrame({'day': [datetime.date(2024, 1, 1), "
        "datetime.date(2024, 1, 2)] * 6, 'sales': [float(n) for n in range(12)], 'city': ['Oslo', 'Bergen'] * 6})", (
        "pf", "pf.head(3)", "pf.describe()", "pf.lazy().filter(pl.col('sales') > 3)", "pf['day']", "pf.schema",
        "pf.group_by('city').agg(pl.col('sales').sum()).sort('city')", "pf.glimpse()", "pl.col('sales').mean()",
    )),
    "pyarrow": Library("pyarrow", "import pyarrow as pa\ntable = pa.table({'a': [1, 2, 3], 'b': ['x', 'y', None]})", (
        "table", "table.schema", "table['a']", "pa.array([1, None, 3])",
    )),
    "duckdb": Library("duckdb", "import duckdb\nduckdb.sql('create or replace table t as select range as n, "
        "range * 2 as twice from range(5)')", (
        "duckdb.sql('select * from t')", "duckdb.sql('select sum(n) as total from t')", "duckdb.sql('from t').df()",
        "duckdb.sql('describe t')", "duckdb.connect()",
    )),
    "dask": Library("dask", FRAME + "import dask.array as da, dask", (
        "da.ones((1000, 1000), chunks=250)", "da.ones(10, chunks=5).sum()", "dask.delayed(sum)([1, 2])",
        "da.arange(12, chunks=4).reshape(3, 4)",
    )),
    "xarray": Library("xarray", "import xarray as xr, numpy as np\nds = xr.Dataset({'temp': (('x', 'time'), np.arange("
        "12.).reshape(3, 4), {'units': 'K'})}, coords={'x': [10, 20, 30]}, attrs={'title': 'Weather'})", (
        "ds", "ds.temp", "ds.temp.mean('time')", "ds.sizes", "ds.temp.attrs", "ds.isel(x=0)",
    )),
    "geopandas": Library("geopandas", "import geopandas as gpd\nfrom shapely.geometry import Point, Polygon\n"
        "places = gpd.GeoDataFrame({'name': ['a', 'b']}, geometry=[Point(1, 2), Point(3, 4)], crs='EPSG:4326')", (
        "places", "places.geometry", "places.crs", "places.total_bounds", "places.plot()",
    )),
    "matplotlib": Library("matplotlib", FRAME + "import matplotlib.pyplot as plt", (
        "plt.plot([1, 3, 2]); plt.title('Growth')", "plt.hist(df.sales)", "plt.bar(['a', 'b'], [3, 4])",
        "fig, ax = plt.subplots(); ax.scatter(df.sales, df.cost); ax.set(xlabel='sales', ylabel='cost')",
        "fig, axs = plt.subplots(2, 2); axs[0, 0].plot([1, 2]); plt.show()", "plt.imshow(np.eye(3)); plt.colorbar()",
        "plt.plot([1, 2]); plt.show(); plt.plot([2, 1]); plt.show()", "plt.boxplot([df.sales, df.cost])",
        "ax = plt.gca(); ax.pie([1, 2, 3]); ax", "plt.figure(figsize=(3, 2)); plt.plot([1, 2])",
    )),
    "matplotlib svg": Library("matplotlib", "import matplotlib.pyplot as plt\n"
        "%config InlineBackend.figure_formats = ['svg']", (
        "plt.plot([1, 3, 2]); plt.title('Growth')", "plt.bar(['a', 'b'], [3, 4]); plt.show()",
        "%config InlineBackend.figure_formats = ['png']",
    )),
    "seaborn": Library("seaborn", FRAME + "import seaborn as sns", (
        "sns.scatterplot(df, x='sales', y='cost', hue='city')", "sns.histplot(df.sales)",
        "sns.boxplot(df, x='city', y='sales')", "sns.heatmap(df[['sales', 'cost']].corr(), annot=True)",
        "sns.relplot(df, x='sales', y='cost', col='city')", "sns.color_palette()",
    )),
    "altair": Library("altair", FRAME + "import altair as alt", (
        "alt.Chart(df).mark_point().encode(x='sales', y='cost', color='city')",
        "alt.Chart(df, title='Sales by month').mark_line().encode(x='month:T', y='sales:Q')",
        "alt.Chart(df).mark_bar().encode(x='city', y='mean(sales)')",
        "a = alt.Chart(df).mark_line().encode(x='month', y='sales'); a + a.mark_point()",
        "a = alt.Chart(df).mark_point().encode(x='month', y='sales'); a | a.encode(y='cost')",
        "alt.Chart(df).mark_bar().encode(x=alt.X('sales', bin=True).title('Sales, EUR'), y='count()')",
        "alt.Chart(df).mark_point().encode(x='sales', y='cost').facet('city')",
    )),
    "plotly": Library("plotly", FRAME + "import plotly.graph_objects as go, plotly.express as px", (
        "px.scatter(df, x='sales', y='cost', color='city', title='Sales')", "px.line(df, x='month', y='sales')",
        "px.bar(df, x='city', y='sales')", "px.histogram(df, x='sales')", "px.box(df, x='city', y='cost')",
        "go.Figure(go.Scatter(x=[1, 2], y=[3, 4], name='one'))", "go.Figure(go.Pie(labels=['a', 'b'], values=[1, 2]))",
        "fig = px.scatter(df, x='sales', y='cost'); fig.show()", "go.Figure(go.Heatmap(z=np.eye(4).tolist()))",
        "px.imshow(np.eye(30), title='Identity')", "px.scatter_3d(df, x='sales', y='cost', z='sales')",
    )),
    "bokeh": Library("bokeh", "from bokeh.io import output_notebook\nfrom bokeh.plotting import figure, show\n"
        "output_notebook()\nimport bokeh.layouts as bl", (
        "p = figure(title='Lines', x_axis_label='day'); p.line([1, 2], [3, 4]); show(p)",
        "p = figure(); p.scatter([1, 2, 3], [3, 4, 5], legend_label='points'); show(p)",
        "p = figure(); p.vbar(x=[1, 2], top=[3, 4], width=.5); show(p)", "p = figure(title='Kept'); p",
        "q = figure(title='A'); q.line([1], [2]); r = figure(title='B'); r.line([1], [2]); show(bl.row(q, r))",
    )),
    "folium": Library("folium", "import folium\nm = folium.Map([59.9, 10.7], zoom_start=11)", (
        "m", "folium.Marker([59.9, 10.7], popup='Oslo').add_to(m); m", "folium.Circle([59.9, 10.7], radius=90)",
    )),
    "great_tables": Library("great_tables", FRAME + "import great_tables as gt", (
        "gt.GT(df.head(4))", "gt.GT(df.head(4)).tab_header(title='Sales', subtitle='four days')",
        "gt.GT(df.head(4)).fmt_number('sales', decimals=1)",
        "gt.GT(df.head(4)).tab_source_note('Source: us').cols_label(sales='Sales, EUR')",
        "gt.GT(df.head(4), rowname_col='city', groupname_col='month')",
    )),
    "itables": Library("itables", FRAME + "import itables", (
        "itables.show(df.head())", "itables.show(df.head(3), caption='Sales')",
        "itables.init_notebook_mode(all_interactive=False)",
    )),
    "sympy": Library("sympy", "import sympy as sp\nx, y = sp.symbols('x y')", (
        "x ** 2 + sp.sin(x)", "sp.integrate(sp.exp(-x**2), (x, -sp.oo, sp.oo))", "sp.solve(x**2 - 2, x)",
        "sp.Matrix([[1, x], [y, 2]])", "sp.Eq(x, y + 1)", "sp.diff(sp.sin(x) * x, x)", "sp.series(sp.cos(x), x, 0, 6)",
        "sp.Integral(x**2, x)", "sp.Rational(1, 3)",
    )),
    "pint": Library("pint", "import pint\nureg = pint.UnitRegistry()", (
        "3.5 * ureg.meter / ureg.second", "(3 * ureg.km).to('mile')", "ureg.meter", "[1, 2, 3] * ureg.kg",
        "ureg.Quantity(20, 'degC')",
    )),
    "shapely": Library("shapely", "from shapely import Point, Polygon, LineString, MultiPoint, GeometryCollection", (
        "Point(1, 2)", "Point(0, 0).buffer(1)", "Polygon([(0, 0), (2, 0), (1, 1)])",
        "LineString([(0, 0), (1, 1), (2, 0)])", "MultiPoint([(0, 0), (1, 1)])", "Polygon()",
    )),
    "networkx": Library("networkx", "import networkx as nx\ng = nx.karate_club_graph()", (
        "g", "nx.draw(g)", "nx.path_graph(5)", "nx.DiGraph([(1, 2), (2, 3)])", "g.degree", "g.nodes",
        "nx.shortest_path(g, 0, 33)",
    )),
    "scikit-learn": Library("sklearn", FRAME + "from sklearn.linear_model import LinearRegression, Ridge\n"
        "from sklearn.pipeline import make_pipeline, make_union\nfrom sklearn.preprocessing import StandardScaler\n"
        "from sklearn.compose import make_column_transformer\nfrom sklearn.tree import DecisionTreeRegressor\n"
        "from sklearn.model_selection import GridSearchCV, cross_val_score\nfrom sklearn.ensemble import "
        "RandomForestClassifier\nX = df[['sales']]", (
        "LinearRegression()", "LinearRegression().fit(X, df.cost)", "make_pipeline(StandardScaler(), Ridge(alpha=2))",
        "make_pipeline(StandardScaler(), Ridge()).fit(X, df.cost)", "RandomForestClassifier(n_estimators=7)",
        "make_column_transformer((StandardScaler(), ['sales']))", "GridSearchCV(Ridge(), {'alpha': [1, 2]})",
        "DecisionTreeRegressor(max_depth=2).fit(X, df.cost)", "cross_val_score(Ridge(), X, df.cost)",
        "make_union(StandardScaler()).fit(X)",
    )),
    "xgboost": Library("xgboost", FRAME + "import xgboost as xgb\nX = df[['sales']]", (
        "xgb.XGBRegressor(n_estimators=3)", "xgb.XGBRegressor(n_estimators=3).fit(X, df.cost)",
        "xgb.DMatrix(X, df.cost)",
    )),
    "lightgbm": Library("lightgbm", FRAME + "import lightgbm as lgb\nX = df[['sales']]", (
        "lgb.LGBMRegressor(n_estimators=3)", "lgb.LGBMRegressor(n_estimators=3, verbose=-1).fit(X, df.cost)",
    )),
    "statsmodels": Library("statsmodels", FRAME + "import statsmodels.formula.api as smf\n"
        "fit = smf.ols('cost ~ sales + C(city)', df).fit()", (
        "fit.summary()", "fit", "fit.params", "fit.summary().tables[1]", "print(fit.summary())", "fit.conf_int()",
        "fit.rsquared", "smf.ols('cost ~ sales', df)",
    )),
    "scipy": Library("scipy", "import scipy.sparse as ss, scipy.stats as st, scipy.optimize as so, numpy as np", (
        "ss.eye(5).tocsr()", "st.norm(2, 3)", "st.ttest_ind([1, 2, 3], [2, 3, 5])", "so.minimize(lambda v: v @ v, [1.0])",
        "st.linregress([1, 2, 3], [2, 4, 7])", "st.describe([1, 2, 3, 9])",
    )),
    "pillow": Library("PIL", "from PIL import Image, ImageDraw\nimage = Image.new('RGB', (60, 40), 'navy')", (
        "image", "image.convert('L')", "image.size, image.mode", "Image.new('RGBA', (8, 8))",
        "image.resize((300, 200))",
    )),
    "ipywidgets": Library("ipywidgets", "import ipywidgets as w\nfrom IPython.display import display", (
        "w.IntSlider(value=7, description='n')", "w.Text('abc')", "w.HBox([w.Button(description='Go'), w.Label('x')])",
        "w.Dropdown(options=['a', 'b'])", "w.interact(lambda n: n * 2, n=4)", "w.HTML('<b>bold</b> words')",
        "w.IntProgress(value=3, max=10)", "out = w.Output(); display(out)\nwith out: print('inside')",
        "w.Accordion([w.IntText(3)], titles=('first',))",
    )),
    "tqdm": Library("tqdm", "from tqdm import tqdm, trange\nfrom tqdm.notebook import tqdm as bar", (
        "for i in tqdm(range(60)): pass", "for i in bar(range(60)): pass", "for i in trange(9, desc='epochs'): pass",
        "for i in bar(range(2), desc='outer'):\n    for j in bar(range(3), desc='inner'): pass",
    )),
    "IPython": Library("IPython", "from IPython.display import *", (
        "HTML('<h2>Result</h2><p>All <b>12</b> rows fit.</p>')", "Markdown('# Result\\n\\n- one\\n- two')",
        "Latex('$x^2$')", "Math('x^2')", "JSON({'a': [1, 2], 'b': None})", "SVG('<svg xmlns=\"http://www.w3.org/2000/"
        "svg\" width=\"40\" height=\"20\"><text>axis</text></svg>')", "Javascript('1 + 1')",
        "IFrame('https://example.org', 100, 100)", "display(HTML('<ul><li>a</li><li>b</li></ul>'), 'text', 3)",
        "HTML('<table><tr><th>a</th><th>b</th></tr><tr><td>1</td><td>2</td></tr></table>')",
        "h = display(HTML('a'), display_id=True); h.update(HTML('<b>changed</b>'))", "Pretty('pretty')",
        "Video('https://example.org/a.mp4')", "Code('x = 1', language='python')", "GeoJSON({'type': 'Point'})",
        "display({'text/html': '<i>raw</i>', 'text/plain': 'raw'}, raw=True)", "FileLink('a.csv')",
        "ProgressBar(10)", "clear_output(); print('left')",
    )),
    "plotnine": Library("plotnine", FRAME + "from plotnine import ggplot, aes, geom_point, labs, facet_wrap", (
        "ggplot(df, aes('sales', 'cost')) + geom_point()",
        "ggplot(df, aes('sales', 'cost')) + geom_point() + labs(title='Sales') + facet_wrap('city')", "aes('a', 'b')",
    )),
    "holoviews": Library("holoviews", FRAME + "import holoviews as hv\nhv.extension('bokeh')", (
        "hv.Points(df, ['sales', 'cost'])", "hv.Curve([1, 2, 3], label='three')", "hv.Curve([1, 2]) + hv.Bars(['a'])",
    )),
    "panel": Library("panel", FRAME + "import panel as pn", (
        "pn.pane.Markdown('# Title')", "pn.Row(pn.widgets.IntSlider(name='n', value=3))", "pn.pane.DataFrame(df.head(2))",
    )),
    "pydeck": Library("pydeck", FRAME + "import pydeck", (
        "pydeck.Layer('ScatterplotLayer', data=[{'p': [1, 2]}], get_position='p')",
        "pydeck.Deck(layers=[pydeck.Layer('ScatterplotLayer', data=[{'p': [1, 2]}], get_position='p')])",
    )),
    "graphviz": Library("graphviz", "import graphviz", (
        "d = graphviz.Digraph(); d.edge('a', 'b'); print(d.source)",
    )),
    "ipyleaflet": Library("ipyleaflet", "import ipyleaflet as il", (
        "il.Map(center=(59.9, 10.7), zoom=9)", "il.Marker(location=(59.9, 10.7))",
    )),
    "sqlalchemy": Library("sqlalchemy", "import sqlalchemy as sa\nengine = sa.create_engine('sqlite://')\n"
        "tab = sa.Table('users', sa.MetaData(), sa.Column('id', sa.Integer, primary_key=True), sa.Column('name', "
        "sa.String))", (
        "engine", "tab", "sa.select(tab.c.name).where(tab.c.id > 3)", "engine.connect().execute(sa.text('select 1 as a'"
        ")).fetchall()", "tab.c.name", "engine.connect()",
    )),
    "astropy": Library("astropy", "import astropy.units as u\nfrom astropy.table import Table\nfrom astropy.time import "
        "Time", (
        "3 * u.km", "Table({'a': [1, 2], 'b': ['x', 'y']})", "Time('2024-01-01')", "[1, 2] * u.Unit('m / s')",
    )),
    "uncertainties": Library("uncertainties", "from uncertainties import ufloat", (
        "ufloat(3.1, 0.2)", "ufloat(3.1, 0.2) ** 2", "[ufloat(1, .1), ufloat(2, .2)]",
    )),
    "lifelines": Library("lifelines", FRAME + "import lifelines\nkmf = lifelines.KaplanMeierFitter()", (
        "kmf", "kmf.fit([1, 2, 3, 4], [1, 0, 1, 1])", "kmf.survival_function_",
    )),
    "pygal": Library("pygal", "import pygal", (
        "c = pygal.Bar(title='Bars'); c.add('one', [1, 2]); c",
    )),
    "wordcloud": Library("wordcloud", "from wordcloud import WordCloud", (
        "WordCloud(width=80, height=40).generate('one two three two').to_image()", "WordCloud(width=80, height=40)",
    )),
    "pydantic": Library("pydantic", "import pydantic, dataclasses, attrs, collections, decimal, fractions, enum, pathlib\n"
        "import datetime, zoneinfo, re\nclass User(pydantic.BaseModel):\n    name: str\n    age: int = 3\n"
        "@dataclasses.dataclass\nclass Point:\n    x: int\n    y: float = 2.5\n@attrs.define\nclass Pair:\n"
        "    left: int\n    right: int\nclass Colour(enum.Enum):\n    RED = 1", (
        "User(name='Ann')", "Point(3)", "Pair(1, 2)", "Colour.RED", "decimal.Decimal('1.20'), fractions.Fraction(1, 3)",
        "pathlib.Path('data/a.csv')", "datetime.datetime(2024, 1, 2, tzinfo=zoneinfo.ZoneInfo('Europe/Oslo'))",
        "re.match('(a+)b', 'aab')", "collections.Counter('banana')", "(n for n in range(3))", "len", "Point",
        "{'a': [1, 2], 'b': {'c': 'text'}}", "lambda x, y=2: x", "Exception('bad')", "object()",
    )),
}  # fmt: skip
