"""`ipyagent.teach` and the pictures of `%context`: what they show is what the journal says, on any page."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import xml.etree.ElementTree as xml
from collections.abc import Iterator
from pathlib import Path

import pytest
from kernels import ROOT
from rooms import room
from test_quickstart import environ

from ipyagent import Agent, IPyAgent, teach
from ipyagent.errors import UsageError
from ipyagent.journal.events import ResultsCleared, ResultStored, UsageReported
from ipyagent.journal.tokens import estimate_text
from ipyagent.model.prices import rates_of
from ipyagent.practice.model.lessons import requests
from ipyagent.reports.timeline import timeline, view_at
from ipyagent.ui.charts import Chart, prompt_price


@pytest.fixture
def agent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Agent]:
    for name, value in environ(tmp_path).items():
        monkeypatch.setenv(name, value)
    (tmp_path / "project").mkdir()
    settings = IPyAgent(environ={}, model="practice", mode="auto", layer_notes=False, extraction=False)
    settings.set_trait("window", 18_000)
    settings.set_trait("clear_keep", 1)
    made = Agent(settings=settings, folder=tmp_path / "project")
    yield made
    made.close()


def reads_anywhere(chart: Chart) -> set[str]:
    """The words of a picture. It is a document of its own, with a ground of its own and colours for a dark page."""
    root = xml.fromstring(chart.svg)
    assert "prefers-color-scheme:dark" in chart.svg
    boxes = [each for each in root if each.tag.endswith("rect")]
    assert (boxes[0].get("class"), boxes[0].get("fill")) == ("bg", "#ffffff")
    assert not re.search(r"<(script|foreignObject|image|a)\b|\bhref|url\(", chart.svg)
    width = float(root.get("width") or 0)
    for text in (each for each in root if each.tag.endswith("text")):
        assert 0 <= float(text.get("x") or 0) <= width
    return {each.text or "" for each in root.iter() if each.tag.endswith("text")}


def test_every_chart_shows_the_journals_figures(agent: Agent) -> None:
    for request in requests("clearing"):
        agent.run_sync(request, lesson="clearing")
    events = list(agent.session.journal.read())
    bars = timeline(events).bars
    words = reads_anywhere(window := teach.chart("window", agent=agent))
    assert {"11", "C cleared · ! cache break"} <= words
    assert [line.split()[:2] for line in window.text.splitlines()[1:12]] == [[str(b.number), f"{b.tokens:,}"] for b in bars]

    usages, price = [event.usage for event in events if isinstance(event, UsageReported)], rates_of("practice")
    words = reads_anywhere(cache := teach.chart("cache", agent=agent))
    assert any(f"${sum(prompt_price(one, price) for one in usages):.4f}; without a cache" in word for word in words)
    lines = cache.text.splitlines()[2:]
    assert [line for line in lines if line.startswith("!")] == lines[len(usages) :], "why the cache broke stands last"
    rows = [[int(cell.replace(",", "")) for cell in line.split()[1:4]] for line in lines[: len(usages)]]
    assert rows == [[one.cache_read, one.cache_write, one.input] for one in usages]

    words = reads_anywhere(teach.chart("context", agent=agent))
    assert any(f"{agent.session.view.count().tokens:,} of 18,000 tokens" in word for word in words)

    (cleared,) = [event for event in events if isinstance(event, ResultsCleared)]
    before, after = (view_at(events, at).count().tokens for at in (cleared.id - 1, cleared.id))
    words = reads_anywhere(made := teach.compare(agent=agent))
    was, now = (int(each.replace(",", "")) for each in re.findall(r"([\d,]+) → ([\d,]+) tokens", made.text)[0])
    assert (was, now) == (pytest.approx(before, abs=9), pytest.approx(after, abs=9))
    following = next(event.usage for event in events if isinstance(event, UsageReported) and event.id > cleared.id)
    assert f"The next request wrote {following.cache_write:,} tokens to the cache again: " in made.text
    assert f"Each request from here on is ${(was - now) * price.read:.4f} cheaper" in made.text


def test_a_stored_result_is_compared_with_what_it_would_have_been(agent: Agent) -> None:
    agent.run_sync(requests("storing")[0], lesson="storing")
    (stored,) = [event for event in agent.session.journal.read() if isinstance(event, ResultStored)]
    whole = estimate_text((agent.session.journal.folder / stored.path).read_text("utf-8"))
    text = teach.compare("store_results", agent=agent).text
    was, now = (int(each.replace(",", "")) for each in re.findall(r"([\d,]+) → ([\d,]+) tokens", text)[0])
    assert was - now == whole - stored.tokens
    assert f"the first request is ${(was - now) * rates_of('practice').write:.4f} cheaper" in text


def test_nothing_to_draw_is_said_in_one_line(agent: Agent) -> None:
    with pytest.raises(UsageError, match="run a %%agent cell first"):
        teach.chart(agent=agent)
    agent.run_sync("help")
    with pytest.raises(UsageError, match="a chart is one of context, window, cache, not 'pie'"):
        teach.chart("pie", agent=agent)
    with pytest.raises(UsageError, match="notes has not acted"):
        teach.compare("notes", agent=agent)


def test_hostile_words_are_text_in_a_picture(agent: Agent) -> None:
    agent.run_sync("help </text><script>alert(1)</script> \x1b[31m & \u202e")
    for what in teach.CHARTS:
        assert not any("script" in word and "<" not in word for word in reads_anywhere(teach.chart(what, agent=agent)))


def test_a_lessons_folder_goes_with_its_kernel_and_touches_no_home(tmp_path: Path) -> None:
    code = (
        "import os; from ipyagent import teach; from IPython.core.interactiveshell import InteractiveShell\n"
        "teach.begin(); folder = os.getcwd(); shell = InteractiveShell.instance()\n"
        "shell.run_line_magic('load_ext', 'ipyagent'); shell.run_line_magic('agent', 'model practice')\n"
        "shell.run_line_magic('agent', 'mode auto'); teach.play('clearing', 1, 1)\n"
        "assert os.path.isdir(os.path.join(folder, '.ipyagent')), folder\nprint('in', folder)"
    )
    home, spare = tmp_path / "home", tmp_path / "spare"
    home.mkdir()
    spare.mkdir()
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("IPYAGENT", "ANTHROPIC"))}
    run = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, cwd=tmp_path, timeout=120,
        env={**kept, "HOME": str(home), "TMPDIR": str(spare), "PYTHONPATH": str(ROOT), "IPYTHONDIR": str(tmp_path / "i")},
    )  # fmt: skip
    assert run.returncode == 0, run.stderr
    assert f"in {spare}/ipyagent-lesson-" in run.stdout
    assert "> Load the penguins." in run.stdout
    assert list(spare.iterdir()) == []
    assert not (home / ".ipyagent").exists()


def test_a_named_lessons_folder_outlives_a_restart_and_goes_at_its_end(tmp_path: Path) -> None:
    (tmp_path / "spare").mkdir()
    with room(tmp_path, TMPDIR=str(tmp_path / "spare")) as place:
        begin = "from ipyagent import teach; teach.begin('quickstart'); import os; print(os.getcwd())"
        place.environ.pop("IPYAGENT_PROJECT", None)
        folder = Path(place.ok(begin).streams.strip())
        place.ok("open('kept.txt', 'w').close()")
        place.restart()
        assert Path(place.ok(begin).streams.strip()) == folder
        assert (folder / "kept.txt").exists()
        place.ok("teach.end()")
        assert list((tmp_path / "spare").iterdir()) == []
