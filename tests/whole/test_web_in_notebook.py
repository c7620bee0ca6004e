"""Two searches and a fetch in a real kernel: valid afterwards, priced, with its sources in the saved notebook."""

from __future__ import annotations

import re
from pathlib import Path

import nbformat
from nbclient import NotebookClient
from rooms import plain, room

from ipyagent.journal.events import Compacted, UsageReported
from ipyagent.practice.replies import server_call, text, web
from ipyagent.practice.server import PracticeServer

PENGUINS = "https://stats.example.org/penguins"
ODD = "https://news.example.com/<b>tables</b>"
TOOLS = '["web_search", {"name": "web_fetch", "max_uses": 2}]'
REPLY = web(
    {"type": "text", "text": "I look it up."},
    server_call("web_search", query="penguins body mass"),
    server_call("web_search", query="escaped title tables"),
    server_call("web_fetch", url=PENGUINS),
    server_call("web_fetch", url="https://stats.example.org/unavailable"),
    {"type": "text", "text": "Gentoo penguins are "},
    {"type": "text", "text": "the heaviest", "cites": PENGUINS},
    {"type": "text", "text": ", as a table with an odd title has it", "cites": ODD},
    {"type": "text", "text": "."},
    thinking="Facts are needed.",
)


def test_a_turn_with_two_searches_and_a_fetch_is_shown_priced_and_compacted(tmp_path: Path) -> None:
    with PracticeServer() as server, room(tmp_path, server=server, IPYAGENT_SERVER_TOOLS=TOOLS) as here:
        here.ok("%load_ext ipyagent")
        cell = here.asks(f"Which penguins are the heaviest? See {PENGUINS}", REPLY)
        shown = plain(cell)
        assert f"1. Palmer penguins: what was measured  {PENGUINS}" in shown
        assert "the provider's tool is not available now" in shown
        html = "".join(str(data.get("text/html", "")) for data in cell.data)
        assert f'href="{PENGUINS}"' in html
        assert "<script>" not in html
        assert "<b>tables" not in html
        report = next(event for event in here.events() if isinstance(event, UsageReported))
        assert (report.paid.searches, report.paid.fetches) == (2, 1)
        assert 0.02 < report.cost < 0.2
        cost = plain(here.ok("%context"))
        assert "2 web searches ($0.02 of it); 1 page fetched" in cost
        here.asks("And the lightest?")
        here.server.script(text("<analysis>short</analysis><summary>We looked up penguins.</summary>"))
        here.ok("%compact")
        assert any(isinstance(event, Compacted) for event in here.events())
        here.asks("Go on.")
        here.restart()
        here.ok("%load_ext ipyagent\n%agent resume")
        here.asks("And now?")
        assert server.refused == []
        exported = tmp_path / "session.md"
        here.ok(f"%agent export {exported}")
        assert re.search("Palmer penguins", exported.read_text())
        assert "encrypted_content" not in exported.read_text()


def test_the_practice_model_searches_in_a_saved_notebook(tmp_path: Path, monkeypatch) -> None:  # type: ignore[no-untyped-def] # pytest's
    for name, value in {"IPYAGENT_HOME": tmp_path / "home", "IPYAGENT_MODEL": "practice", "HOME": tmp_path}.items():
        monkeypatch.setenv(name, str(value))
    request = f"search the web for penguins body mass and for missing values, then fetch {PENGUINS}"
    notebook = nbformat.v4.new_notebook()
    notebook.cells = [
        nbformat.v4.new_code_cell("%load_ext ipyagent\n%config IPyAgent.server_tools = ['web_search', 'web_fetch']"),
        nbformat.v4.new_code_cell(f"%%agent\n{request}"),
        nbformat.v4.new_code_cell("%context"),
    ]
    resources = {"metadata": {"path": str(tmp_path)}}
    NotebookClient(notebook, timeout=60, kernel_name="python3", resources=resources).execute()
    nbformat.write(notebook, tmp_path / "searched.ipynb")
    outputs = [output["data"] for output in notebook.cells[1].outputs if "data" in output]
    saved = "".join(str(data.get("text/markdown", "")) for data in outputs)
    assert f"](<{PENGUINS}>) stats.example.org" in saved
    assert "web\\_search" in saved
