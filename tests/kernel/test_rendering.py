"""What code displays reaches the model as text it can read, whatever display options the user has."""

from __future__ import annotations

import io
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest
from kernels import Kernel

from ipyagent.kernel.execute import run_sync
from ipyagent.kernel.html_text import MOST_HTML, markdown_of
from ipyagent.kernel.output import OutputLog
from ipyagent.kernel.rendering import text_of, unboxed
from ipyagent.kernel.scope import make_shell
from ipyagent.tools.python import folded, in_cells, output_of


@pytest.fixture(scope="module")
def shell() -> Any:
    made = make_shell()
    made.user_ns |= {"pd": pd, "np": np, "pl": pl}
    return made


@pytest.fixture(scope="module")
def kernel() -> Iterator[Kernel]:
    made = Kernel()
    made.run("from ipyagent.kernel.execute import run_sync\nfrom ipyagent.kernel.output import OutputLog")
    made.run("from ipyagent.tools.python import output_of\nip = get_ipython()")
    yield made
    made.close()


def told(shell: Any, code: str) -> str:
    return str(output_of(run_sync(shell, code, OutputLog()), 25_000).blocks[0]["text"])


def told_in(kernel: Kernel, code: str) -> str:
    return str(kernel.eval(f"output_of(run_sync(ip, {code!r}, OutputLog()), 25_000).blocks[0]['text']"))


# ---------------------------------------------------------------------- options


def test_display_options_of_the_user_hide_no_figures_and_stay_as_they_were(shell: Any) -> None:
    words = "a long text that goes on and on, well past sixty characters, to its very END"
    shell.user_ns["df"] = pd.DataFrame({**{f"c{n}": [n + 0.123456, 7.0] for n in range(9)}, "text": [words] * 2})
    shell.user_ns["pf"] = pl.from_pandas(shell.user_ns["df"])
    narrow = {"max_columns": 2, "max_rows": 1, "max_colwidth": 8, "precision": 1, "width": 20}
    try:
        for name, value in narrow.items():
            pd.set_option(f"display.{name}", value)
        pd.set_option("display.float_format", "{:.0f}".format)
        np.set_printoptions(precision=2, threshold=3, formatter={"int": lambda n: "?"})
        pl.Config.set_tbl_cols(2)
        pl.Config.set_tbl_rows(1)
        pl.Config.set_float_precision(0)

        def options() -> Any:
            return [pd.get_option(f"display.{name}") for name in narrow], np.get_printoptions(), pl.Config.state()

        before = options()
        for code in ("df", "print(df)", "pf", "print(pf)", "'said'; print(df.to_string())"):
            text = told(shell, code)
            assert "8.123456" in text, code
            assert "c4" in text, code
        assert "END" in told(shell, "df")
        assert told(shell, "np.array([1.2345678, 2]), np.arange(5)") == (
            "(array([1.2345678, 2.       ]), array([0, 1, 2, 3, 4]))"
        )
        assert before == options()
        assert pd.get_option("display.float_format")(2.5) == "2"
        assert repr(np.array([1])) == "array([?])"
    finally:
        pd.reset_option("display")
        np.set_printoptions(precision=8, threshold=1000, formatter=None)
        pl.Config.restore_defaults()


def test_options_nobody_set_widen_a_table_and_those_that_the_code_sets_or_that_are_wider_stay(shell: Any) -> None:
    shell.user_ns["many"] = pl.DataFrame({f"c{n}": [n + 0.5] for n in range(12)})
    before, look = set(os.environ), "import os\nprint('names', sorted(os.environ))\nmany"
    text = told(shell, look)
    assert "4.5" in text
    assert "POLARS_" not in text
    assert (set(os.environ), "4.5" in str(shell.user_ns["many"])) == (before, False)
    told(shell, "pl.Config.set_tbl_cols(39)")
    try:
        assert "4.5" in str(shell.user_ns["many"]), "the code's own setting stays"
    finally:
        pl.Config.restore_defaults()
    assert "4.5" not in str(shell.user_ns["many"])
    shell.user_ns["wide"] = pd.DataFrame(np.zeros((2, 70)), columns=[f"c{n}" for n in range(70)])
    try:
        pd.set_option("display.max_columns", 5)
        told(shell, "pd.set_option('display.max_columns', 100)\npd.set_option('display.precision', 3)")
        assert (pd.get_option("display.max_columns"), pd.get_option("display.precision")) == (100, 3)
        assert "c69" in told(shell, "wide")
        told(shell, "pd.set_option('display.max_columns', 3)\n1/0")
        assert pd.get_option("display.max_columns") == 3
    finally:
        pd.reset_option("display")


# ---------------------------------------------------------------------- Out, exit status


def test_a_table_behind_printed_text_keeps_its_header_straight(shell: Any) -> None:
    shell.user_ns["small"] = pd.DataFrame({"g": ["a"], "x": [1]})
    assert told(shell, "print('said')\nsmall") == "said\nOut:\n   g  x\n0  a  1"
    assert told(shell, "small") == "   g  x\n0  a  1"
    assert told(shell, "print('said')\n1 + 1") == "said\nOut: 2"


FAILING = """
def local(n):
    !echo {n} $n; exit 5
local(41)
found = !grep nothing-here /nonexistent-file
!exit 0
!!printf half; exit 4
"""


@pytest.mark.parametrize("where", ["terminal", "kernel"])
def test_a_failed_command_says_its_exit_status(shell: Any, kernel: Kernel, where: str) -> None:
    text = told(shell, FAILING) if where == "terminal" else told_in(kernel, FAILING)
    assert [line for line in text.splitlines() if not line.startswith("[took ")] == [
        "41 41",
        "[exit status 5: echo {n} $n; exit 5]",
        "[exit status 2: grep nothing-here /nonexistent-file]",
        "[exit status 4: printf half; exit 4]",
        "Out: ['half']",
    ]
    for code in ("%%bash\necho out\nexit 7", "%%sx\nexit 7", "%sx exit 7"):
        text = told(shell, code) if where == "terminal" else told_in(kernel, code)
        assert "exit status 7" in text, code
    text = told(shell, "!kill -9 $$") if where == "terminal" else told_in(kernel, "!kill -9 $$")
    assert text == "[ended by signal 9: kill -9 $$]"
    if where == "terminal":
        assert not {"system", "getoutput", "var_expand"} & set(vars(shell))


# ---------------------------------------------------------------------- rich objects


RICH = """
import pandas as pd
from IPython.display import HTML, JSON, Latex, Markdown, SVG, display
display(HTML('<h2>Sales</h2><style>p {x: y}</style><p>Up &amp; <b>away</b><script>alert(1)</script></p>'))
display(Markdown('**bold** words')); display(JSON({'a': [1, 2]})); display(Latex('$x^2$'))
display(SVG('<svg xmlns="http://www.w3.org/2000/svg"><text>axis label</text></svg>'))
pd.DataFrame({'k': ['a', 'b'], 'v': [1.5, 2]}).set_index('k').style.format(precision=2)
"""


def test_rich_objects_reach_the_model_as_markdown_or_text_in_a_kernel(kernel: Kernel) -> None:
    assert [line for line in told_in(kernel, RICH).splitlines() if not line.startswith("[took ")] == [
        "## Sales",
        "Up & away",
        "**bold** words",
        '{"a": [1, 2]}',
        "$x^2$",
        "(an SVG picture, its texts: axis label)",
        "Out:",
        "| k | v |",
        "| --- | --- |",
        "| a | 1.50 |",
        "| b | 2.00 |",
    ]


def test_a_styled_table_is_read_in_a_terminal_too_and_its_formatters_are_left_as_they_were(shell: Any) -> None:
    formatter = shell.display_formatter.formatters["text/html"]
    formatter.enabled = False
    try:
        assert "| 0 | 1.500000 |" in told(shell, "pd.DataFrame({'v': [1.5]}).style")
        assert not formatter.enabled
    finally:
        formatter.enabled = True


def test_a_text_form_that_says_something_is_kept_and_a_chart_is_described() -> None:
    html = "<table><tr><td>1</td></tr></table>"
    assert text_of({"text/plain": "   g\n0  1", "text/html": html}, 1_000) == "   g\n0  1"
    assert text_of({"text/plain": "<Figure size 1x1>", "image/png": "…"}, 1_000) is None, "the picture has a label"
    assert text_of({"text/plain": "<a.B object at 0x7f>"}, 1_000) == "<a.B object at 0x7f>"
    assert text_of({"image/png": "…"}, 1_000) is None
    bar = {"type": "bar", "name": "2024", "x": ["a", "b"], "y": [1, 2]}
    figure = {"data": [bar], "layout": {"title": {"text": "Sales"}, "xaxis": {"title": {"text": "kind"}}}}
    assert text_of({"application/vnd.plotly.v1+json": figure, "text/html": "<div></div>"}, 1_000) == (
        "[plotly chart: bar '2024' 2 points, title 'Sales', x 'kind']"
    )
    spec = {"mark": "point", "encoding": {"x": {"field": "a"}}, "datasets": {"d": [{"a": 1}] * 5_000}}
    text = text_of({"application/vnd.vegalite.v5+json": spec, "text/plain": "<VegaLite 5 object>\n\nIf you see"}, 1_000)
    assert text == "[Vega-Lite chart: point, x a, 5,000 rows]"
    one = text_of({"application/vnd.vegalite.v5+json": {**spec, "datasets": {"d": [{"a": 1}]}}}, 1_000)
    assert one == "[Vega-Lite chart: point, x a, 1 row]"
    assert text_of({"application/vnd.plotly.v1+json": figure}, 1_000, shown=True) == (
        "[plotly chart shown to the user: bar '2024' 2 points, title 'Sales', x 'kind']"
    )


NEW_PLOT = """<div><script>/* the library: Plotly.newPlot(a,b) */</script><div id="d1"></div><script>
    if (document.getElementById("d1")) { Plotly.newPlot(
        "d1", [{"name":"2024","x":["a","b"],"y":[1,2],"type":"bar"}],
        {"title":{"text":"Sales \\u003c2024"}},  {"responsive": true}  ) };</script></div>"""
"""As `Figure.show("notebook")` and `Figure.to_html` of plotly 6 end."""
SPEC = (
    '{"mark": "bar", "encoding": {"x": {"field": "a"}}, "$schema": "https://vega.github.io/schema/vega-lite/v6.json"}'
)
PAGES = {
    NEW_PLOT: "[plotly chart shown to the user: bar '2024' 2 points, title 'Sales <2024']",
    f"<script>(function(spec, embedOpt){{ draw(); }})({SPEC}, {{}});</script>": (
        "[Vega-Lite chart shown to the user: bar, x a]"
    ),
    f"<script> const spec = {SPEC};\n vegaEmbed('#v', spec)</script>": "[Vega-Lite chart shown to the user: bar, x a]",
    f"<p>words</p>{NEW_PLOT}{NEW_PLOT}": (
        "[plotly chart shown to the user: bar '2024' 2 points, title 'Sales <2024']\n[and 1 more]\nwords"
    ),
    "<p>words</p><script>Plotly.newPlot(element, data)</script>": "words",
    f"<p>words</p><script>const spec = {SPEC[:-1]}</script>": "words",
}


@pytest.mark.parametrize(("page", "line"), PAGES.items())
def test_a_chart_that_its_library_made_html_of_is_told_by_its_specification(page: str, line: str) -> None:
    assert text_of({"text/html": page}, 1_000, shown=True) == line
    table = {"text/plain": "   a\n0  1", "text/html": f"<table><tr><td>1</td></tr></table>{page}"}
    assert text_of(table, 1_000, shown=True) == "   a\n0  1", "a text form that says something stays"


def test_no_code_of_an_object_runs_to_see_whether_it_is_a_chart() -> None:
    class Query:
        @property
        def chart(self) -> Any:
            raise RuntimeError("the query ran")

    assert text_of({"text/html": NEW_PLOT}, 1_000, Query()) == PAGES[NEW_PLOT].replace(" shown to the user", "")


def test_a_bare_text_form_gives_way_to_a_description_and_one_with_facts_stays(shell: Any) -> None:
    made = "class Thing:\n    def __init__(self): self.level = 7\nthing = Thing()\n"
    assert told(shell, f"{made}thing") == "Thing object: level=7"
    assert "at 0x" in told(shell, f"{made}[thing, 5]"), "what else stands there is kept"
    assert told(shell, "(n for n in range(3))") == "generator <genexpr> (not consumed)"
    assert told(shell, "import re\nre.match('a+', 'aab')") == "<re.Match object; span=(0, 2), match='aa'>"
    assert "mode RGB" in told(shell, "from PIL import Image\nImage.new('RGB', (30, 20))")
    script = "from IPython.display import HTML\nHTML('<script>1</script>')"
    assert told(shell, script) == "(HTML without text, 18 characters)"


def test_a_table_drawn_with_lines_is_told_as_rows_where_the_user_sees_it_as_a_table() -> None:
    frame = pl.DataFrame({"city": ["Oslo", None], "sales": [1.5, -2.0]})
    drawn = str(frame)
    assert text_of({"text/plain": drawn, "text/html": "<table>"}, 1_000, shown=True) == (
        "shape: (2, 2)\n| city | sales |\n| str | f64 |\n| Oslo | 1.5 |\n| null | -2.0 |"
    )
    assert text_of({"text/plain": drawn, "text/html": "<table>"}, 1_000) == drawn
    assert text_of({"text/plain": drawn}, 1_000, shown=True) == drawn
    tree = "root\n├── a │\n└── b\n┌ no table"
    assert unboxed(tree) == tree


def test_what_plotting_returns_beside_its_figure_is_told_only_where_it_holds_more_than_artists() -> None:
    from matplotlib.figure import Figure

    from ipyagent.kernel.displays import is_artist

    figure = Figure()
    axes = figure.subplots()
    for silent in (axes, axes.plot([1, 2]), axes.bar([1], [2]), axes.boxplot([[1, 2, 9]]), figure.subplots(2, 2),
                   figure.colorbar(axes.imshow(np.eye(2)))):  # fmt: skip
        assert is_artist(silent), silent
    for told_of in (axes.hist([1, 2, 2]), {"artist": axes, "count": 3}, [], {}, (), 3, "text", np.eye(2)):
        assert not is_artist(told_of), told_of


def test_a_picture_of_a_figure_comes_with_its_titles_at_either_side_and_the_points_of_a_scatter() -> None:
    from matplotlib.figure import Figure

    figure = Figure()
    figure.subplots().set_title("Growth")
    for bundle in ({"text/plain": "<Figure size 1x1>", "image/png": "…"}, {"text/plain": "<Figure size 1x1>"}):
        assert text_of(bundle, 1_000, figure) == "matplotlib Figure 6.4 x 4.8 in, 1 subplot: title 'Growth'"
    from matplotlib.figure import Figure

    figure = Figure()
    axes = figure.subplots()
    axes.set_title("Left one", loc="left")
    axes.set_title("Right one", loc="right")
    axes.scatter(range(30), range(30))
    axes.bar([1], [2])
    figure.suptitle("Over all")
    said = "matplotlib Figure 6.4 x 4.8 in, title 'Over all', 1 subplot: title 'Left one', title 'Right one', "
    assert text_of({"text/plain": "<Figure>"}, 1_000, figure) == said + "1 collection (30 points), 1 patch"


class InTurn:
    """A cell that takes what is displayed."""

    text_alone = False

    def display(self, publish: Any) -> None:
        publish()

    def displayed(self) -> None:
        pass


@pytest.mark.parametrize("more", ["", "print('[map shown to the user: x]')\n"])
def test_what_stands_in_the_cell_beside_a_chart_is_marked_shown(shell: Any, more: str) -> None:
    data = {"application/vnd.plotly.v1+json": {"data": [{"y": [1, 2]}]}}
    chart = f"get_ipython().display_pub.publish({data})\n"
    table = "HTML('<table><tr><td>7</td></tr></table>')"
    begin = "from IPython.display import HTML\n" + more

    def lines(code: str) -> list[str]:
        done = run_sync(shell, begin + code, OutputLog(), cell=InTurn())
        return str(output_of(done, 25_000).blocks[0]["text"]).split("\n")

    line = "[plotly chart shown to the user: scatter 2 points]"
    assert [row for row in lines(chart) if row in (line, "[shown]")] == [line]
    assert [row for row in lines(chart + table) if row in (line, "[shown]")] == [line, "[shown]"]


def test_html_tables_become_rows_with_index_names_spans_nesting_and_a_count_of_what_is_left_out() -> None:
    head = "<thead><tr><th>&nbsp;<th>hotels<th>beds</tr><tr><th>city_name<th>&nbsp;<th>&nbsp;</tr></thead>"
    made = markdown_of(f"<table>{head}<tr><th>Oslo<td>3<td>40</tr></table>")
    assert made == "| city_name | hotels | beds |\n| --- | --- | --- |\n| Oslo | 3 | 40 |"
    rows = "".join(f"<tr><td>{n}<td>b|c</tr>" for n in range(500))
    made = markdown_of(f"<table><thead><tr><th rowspan=2>k<th colspan='2'>wide</tr><tr><th>a<th>b</tr></thead>{rows}")
    assert made.splitlines()[:4] == ["| k | wide |  |", "|  | a | b |", "| --- | --- | --- |", "| 0 | b\\|c |  |"]
    assert made.endswith("… 442 more rows")
    nested = "<table><tr><td>x<table><tr><td>inner</td></tr></table></td><td>y</td></tr></table>after"
    assert markdown_of(nested) == "| x| inner | | --- | | y |\n| --- | --- |\nafter".replace("x|", "x\\|").replace(
        " inner | | --- | |", " inner \\| \\| --- \\| |"
    )


def test_stored_values_are_told_where_formatted_cells_show_fewer_digits() -> None:
    frame = pd.DataFrame({"sales": [1234567.891, 2.5], "share": [0.12345, 0.5], "count": [1200000, 3], "id": [7, 8]})
    style = frame.style.format({"sales": "{:,.2f}", "share": "{:.0%}", "count": "{:,}"}).hide(["id"], axis="columns")

    def said(table: Any) -> str:
        return text_of({"text/html": table._repr_html_(), "text/plain": repr(table)}, 10_000, table) or ""

    assert said(style).splitlines()[-1] == "[stored values behind formatted cells: share 0.12345, 0.5]"
    assert "stored values" not in said(frame[["sales", "count"]].style.format({"sales": "{:.3f}"}))
    odd = pd.DataFrame({"a": [float("nan"), 1.25e-9, float("inf")], "b": ["x", None, 3]})
    assert said(odd.style.format({"a": "{:.1f}"})).splitlines()[-1].endswith("cells: a 1.25e-09]")
    assert said(pd.concat([frame, frame], axis=1).style) != ""


HOSTILE = ["<", "<a", "<!--", '<a b="', "<script>", "<td>", "<table>", "&", "</", "<a href='"]
HOSTILE += ['<p title="a > b">x', "<td colspan=200 rowspan=200>"]


@pytest.mark.parametrize("piece", HOSTILE)
def test_hostile_html_is_read_in_linear_time(piece: str) -> None:
    def seconds(text: str) -> float:
        began = time.process_time()
        made = markdown_of(text)
        assert len(made) < 3 * len(text)
        return time.process_time() - began

    most = MOST_HTML // len(piece)
    short, long = piece * (most // 32), piece * (most // 4)
    # 8 times the text; 64 times were quadratic. The best of three, so that other work on the machine does not count
    assert any(seconds(long) < 0.1 + 24 * seconds(short) for _ in range(3))


# ---------------------------------------------------------------------- what stands in the cell


def test_a_widgets_message_on_another_thread_draws_no_figure_while_code_runs(kernel: Kernel) -> None:
    code = """
import threading
told = []
note = lambda: told.append(threading.current_thread() is threading.main_thread())
ip.events.register("post_execute", note)
other = "import threading; t = threading.Thread(target=ip.events.trigger, args=('post_execute',)); t.start(); t.join()"
done = run_sync(ip, other, OutputLog())
ip.events.unregister("post_execute", note)
"""
    kernel.run(code)
    assert kernel.eval("[told, done.error]") == [[True], None]


def test_tables_stand_as_the_users_options_give_them_and_the_model_reads_all_figures(kernel: Kernel) -> None:
    kernel.run("import pandas as pd\npd.set_option('display.float_format', '{:.1f}'.format)")
    try:
        code = "pd.DataFrame({'share': [0.123456, 7.0]})"
        (table,) = stood(kernel, code)
        assert "<td>0.1</td>" in table
        assert "0.123456" in told_in(kernel, code)
        (both,) = stood(kernel, f"display({code})")
        assert "<td>0.1</td>" in both
        assert kernel.eval("pd.get_option('display.float_format') is not None") is True
    finally:
        kernel.run("pd.reset_option('display.float_format')")


STOOD = """
class Taken:
    text_alone = False
    def display(self, publish):
        publish()
    def displayed(self):
        pass
def stood(code):
    places = {}
    def publish(data, metadata=None, **more):
        name = more["transient"]["display_id"]
        assert (name in places) == bool(more.get("update")), "what is not there is updated, or something comes twice"
        places[name] = data.get("text/html", "")
    vars(ip.display_pub)["publish"] = publish
    try:
        code = "from IPython.display import HTML, clear_output, display\\n" + code
        done = run_sync(ip, code, OutputLog(), cell=Taken())
    finally:
        del vars(ip.display_pub)["publish"]
    assert done.error is None and done.shown == len(places), done
    return list(places.values())
"""


def stood(kernel: Kernel, code: str) -> list[str]:
    """The HTML forms that stand in the cell after the code, in order."""
    if kernel.eval("'stood' in globals()") is not True:
        kernel.run(STOOD)
    found: list[str] = kernel.eval(f"stood({code!r})")
    return found


@pytest.mark.parametrize(
    ("code", "left"),
    [
        ("for n in range(4): display(HTML(f'{n}'))", ["0", "1", "2", "3"]),
        ("for n in range(4):\n    clear_output(wait=True)\n    display(HTML(f'{n}'))", ["3"]),
        ("for n in range(4):\n    clear_output()\n    display(HTML(f'{n}'))", ["3"]),
        ("display(HTML('a'), HTML('b'))\nclear_output(wait=True)\ndisplay(HTML('c'))", ["c", ""]),
        ("display(HTML('a'))\nclear_output(wait=True)", ["a"]),
        ("display(HTML('a'))\nclear_output(wait=True)\nprint('b')", [""]),
        ("display(HTML('a'))\nclear_output()", [""]),
        ("h = display(HTML('a'), display_id=True)\nh.update(HTML('b'))", ["b"]),
        ("h = display(HTML('a'), display_id=True)\ndisplay(HTML('c'))\nh.update(HTML('b'))", ["b", "c"]),
    ],
)
def test_what_is_displayed_is_cleared_and_updated_as_in_a_plain_cell(
    kernel: Kernel, code: str, left: list[str]
) -> None:
    assert stood(kernel, code) == left


def test_what_was_cleared_is_not_told_as_shown(kernel: Kernel) -> None:
    kernel.run(STOOD)

    def said(code: str) -> str:
        code = "from IPython.display import HTML, clear_output\n" + code
        done = f"run_sync(ip, {code!r}, OutputLog(), cell=Taken())"
        return str(kernel.eval(f"output_of({done}, 25_000).blocks[0]['text']"))

    cleared = "display(HTML('<b>gone</b>'))\nclear_output()\n"
    assert said(cleared + "print('left')") == "left"
    assert said(cleared) == "(no output)"
    assert said(cleared + "display(HTML('<b>stays</b>'))") == "stays\n[shown]"
    chart = "get_ipython().display_pub.publish({'application/vnd.plotly.v1+json': {'data': [{'y': [1, 2]}]}})"
    line = "[plotly chart shown to the user: scatter 2 points]"
    assert said(cleared + chart) == said(f"{chart}\nclear_output(wait=True)\n{chart}") == line
    assert said(f"{chart}\nclear_output(wait=True)\ndisplay(HTML('7'))") == "7\n[shown]"


@pytest.mark.parametrize(
    ("code", "lines"),
    [
        ("import io; from PIL import Image as P; f = io.BytesIO(); P.new('RGB', (9, 7)).save(f, 'GIF')\n"
         "Image(f.getvalue(), format='gif')", "[figure 1: 9x7 png]"),
        ("display({'image/gif': 'R0lG', 'text/plain': '<Image object>'}, raw=True)", "(a picture, image/gif)"),
        ("HTML('<table><tr><td>a<audio controls><source src=\\'data:audio/wav;base64,A\\'>No sound.</audio>b</table>')",
         "| a[audio]b |\n| --- |"),
        ("HTML('<video><source src=\\'https://x.org/v.mp4\\'>Your browser does not support it.</video> end')",
         "[video] [source: https://x.org/v.mp4] end"),
        ("HTML('<video>never closed<div>after')", "[video]\nafter"),
        ("told = '┏━━━┳━━━┓\\n┃ a ┃ b ┃\\n┡━━━╇━━━┩\\n│ 1 │ 2 │\\n└───┴───┘\\n'\n"
         "display({'text/plain': told, 'text/html': '-'}, raw=True)", "| a | b |\n| 1 | 2 |"),
        ("Latex('$x^2$\\n')", "$x^2$"),
        ("class Page(str):\n    def _repr_html_(self): return str(self)\nPage('<table><tr><td>7</td></tr></table>')",
         "| 7 |\n| --- |"),
    ],
)  # fmt: skip
def test_pictures_players_and_drawn_tables_reach_the_model_in_few_words(kernel: Kernel, code: str, lines: str) -> None:
    kernel.run(STOOD)
    code = "from IPython.display import *\n" + code
    told = kernel.eval(f"output_of(run_sync(ip, {code!r}, OutputLog(), cell=Taken()), 25_000).blocks[0]['text']")
    assert "\n".join(row for row in told.split("\n") if row != "[shown]" and row[:9] != "[rebound:") == lines


def test_a_widget_with_a_long_text_form_is_told_by_what_it_holds(kernel: Kernel) -> None:
    long = "w.Dropdown(options=[f'option number {n}' for n in range(90)], value='option number 7')"
    said = told_in(kernel, f"import ipywidgets as w\ndisplay({long})")
    assert "option number 7" in said
    assert len(said) < 300
    assert told_in(kernel, f"import ipywidgets as w\n{long}") == said
    assert told_in(kernel, "class Dial(w.DOMWidget):\n    __repr__ = object.__repr__\nDial()") == "__main__ Dial"
    assert told_in(kernel, "w.IntSlider(value=7, description='n')") == "IntSlider(value=7, description='n')"


def test_a_user_who_wants_every_warning_gets_none_of_ours(kernel: Kernel) -> None:
    kernel.run("import warnings, ipywidgets")
    for wanted in ("always", "error", "default"):
        code = f"with warnings.catch_warnings():\n    warnings.simplefilter({wanted!r})\n    print('seen'); display(3)"
        assert told_in(kernel, code) == "seen\n3"


def test_text_alone_stays_in_the_calls_output_and_a_silent_value_is_shown_nowhere(kernel: Kernel, shell: Any) -> None:
    assert stood(kernel, "print(1); display(2)\n3") == []
    assert told(shell, "3;") == told(shell, "3; # silent") == "(no output)"
    assert told(shell, "'a;'") == "'a;'"


def test_lines_again_and_again_are_told_once_and_counted_in_linear_time() -> None:
    warning = "f.py:1: UserWarning: x\n  warnings.warn('x')"
    assert folded("\n".join(["a", *[warning] * 30, "b"])) == f"a\n{warning}\n… 29 more times\nb"
    assert folded("1\n1\n2\n\n\n\n3") == "1\n1\n2\n\n\n\n3"
    assert in_cells("File /tmp/ipykernel_7/123.py:1\nat C:\\t\\ipykernel_7\\5.py") == "File <cell>:1\nat <cell>"
    took = []
    for count in (20_000, 40_000):
        hard = "/ipykernel_1" * count + "\n".join("ab" * count)
        began = time.perf_counter()
        folded(in_cells(hard))
        took.append(time.perf_counter() - began)
    assert took[1] < 3.5 * took[0] + 0.05


def test_a_program_that_drawing_a_picture_needs_is_no_action_of_the_code(monkeypatch: pytest.MonkeyPatch) -> None:
    """cairosvg looks for its library with gcc and ld when it is imported."""
    from types import ModuleType

    import PIL.Image

    from ipyagent.kernel.audit import watching
    from ipyagent.kernel.displays import rasterized

    def svg2png(bytestring: bytes) -> bytes:
        subprocess.run([sys.executable, "-c", ""], check=True)
        made = io.BytesIO()
        PIL.Image.new("RGB", (4, 4)).save(made, "PNG")
        return made.getvalue()

    started: list[str] = []

    class Watch:
        def __init__(self) -> None:
            self.opened: set[Any] = set()
            self.behind = self

        def starts(self, command: str, program: str) -> None:
            started.append(command)

        def failed(self, problem: Exception) -> None:
            raise problem

    drawer: Any = ModuleType("cairosvg")
    drawer.svg2png = svg2png
    monkeypatch.setitem(sys.modules, "cairosvg", drawer)
    watch: Any = Watch()
    with watching(watch):
        drawn = rasterized(None, "<svg/>")
        assert started == []
        svg2png(b"")
    assert drawn is not None
    assert len(started) == 1, "the code's own"
