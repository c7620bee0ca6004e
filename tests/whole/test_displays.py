"""Whatever a plain cell shows, the agent's cell shows as well, and the model knows it: in real kernels, by nbclient."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import pytest
from rooms import plain, room

from ipyagent.practice.server import PracticeServer
from tests.bench.bench_outputs import CELLS, compared


def test_the_agents_cell_shows_what_a_plain_cell_shows_and_the_model_is_told(tmp_path: Path) -> None:
    installed = [name for name, (library, _) in CELLS.items() if find_spec(library) is not None]
    assert len(installed) > 25
    seen = compared(installed, tmp_path)
    assert {name: (one.plain, one.agent) for name, one in seen.items() if one.plain != one.agent} == {}
    told = {name: one.told for name, one in seen.items()}
    assert [name for name, words in told.items() if "(no output)" in words] == ["nothing shown"]
    assert seen["12 figures"].pictures == 8
    assert "4 more figures are shown to the user alone" in told["12 figures"]
    figure = "matplotlib Figure 6.4 x 4.8 in, 1 subplot: 1 line\n[figure 1: 547x413 png]"
    assert told["matplotlib"] == told["matplotlib;"] == figure
    assert seen["matplotlib svg"].pictures == 1
    assert told["tqdm.notebook"].startswith("100%")
    assert "60/60" in told["tqdm.notebook"]
    bars = {
        "tqdm, nested": ["outer: 100%"],
        "tqdm.notebook, nested": ["outer: 100%", "inner: 100%", "inner: 100%", "[shown]"],
        "backspaces": ["100%"],
        "keras": ["5/5 [=====] - loss: 0.200"],
        "rich progress": ["one ", "two ", "[shown]"],
    }
    for name, begins in bars.items():
        lines = [line for line in told[name].split("\n") if not line.startswith(("[rebound", "[took"))]
        assert [line[: len(begin)] for line, begin in zip(lines, begins, strict=True)] == begins, told[name]
    assert seen["figure in an Output"].pictures == 1
    assert "0.123456" in told["user's options"]
    assert told["Output"].startswith("inside")
    assert told["clear_output, text"].startswith("at 4")
    assert told["clear_output"].startswith("4")
    assert told["update"].startswith("changed")
    assert told["x?"].startswith("Signature:")
    assert told["%recall"] == "%load_ext ipyagent\n%matplotlib inline"
    assert told["30 warnings"].startswith("f.py:3: UserWarning: careful\n… 29 more times")


ON = "logging.basicConfig(level=logging.DEBUG, stream=sys.stdout)"
BY_NAME = """for name in ("anthropic", "anthropic._base_client", "httpx", "httpcore", "httpx2", "httpcore2"):
    logging.getLogger(name).setLevel(logging.DEBUG)
    handler = logging.StreamHandler(sys.stdout)
    handler.setFormatter(logging.Formatter("DEBUG:%(name)s:%(message)s"))
    logging.getLogger(name).addHandler(handler)
logging.getLogger("mine").setLevel(logging.DEBUG)
""" + ON


@pytest.mark.parametrize("on", [ON, BY_NAME])
def test_a_user_who_turns_logging_on_sees_no_line_of_ours(tmp_path: Path, on: str) -> None:
    with PracticeServer() as server, room(tmp_path, server=server, fresh=True) as place:
        cells = [
            place.ok(f"%load_ext ipyagent\nimport logging, sys\n{on}"), place.asks("hello"),
            place.ok("logging.getLogger('mine').debug('heard')"), place.asks("and again"),
        ]  # fmt: skip
    said = [plain(cell).splitlines() for cell in cells]
    lines = [[line for line in each if line.startswith(("DEBUG:", "INFO:"))] for each in said]
    assert lines == [[], [], ["DEBUG:mine:heard"], []]
