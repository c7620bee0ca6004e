from __future__ import annotations

import json
import os
import time
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ipyagent.journal.events import Recalled
from ipyagent.parts.memory.browser import ROWS, MemoryBrowser, list_lines, show, static_browser
from ipyagent.parts.memory.browsing import Explained, diff
from ipyagent.parts.memory.dream import DreamProgress

from .memories import PLOTS, ROLE, Place, memory
from .pages import HOSTILE, Page, unseen

MESSAGE = 1_000_000
"""Bytes of one message, at most."""


@pytest.fixture
def place(tmp_path: Path) -> Place:
    made = Place(tmp_path)
    made.write(ROLE, memory("Role", "works on penguins", "user", "A biologist."))
    made.write(PLOTS, memory())
    return made


def test_the_setting_panels_decides_whether_it_is_live(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    browsing, opened = place.browsing(), list[Any]()
    monkeypatch.setattr(MemoryBrowser, "open", lambda self, shell: opened.append(shell))
    published: list[Any] = []
    kernel = SimpleNamespace(_allow_stdin=True, config={}, get_parent=dict)
    shell = SimpleNamespace(kernel=kernel, user_ns={}, display_pub=SimpleNamespace(publish=published.append))
    for panels in ("auto", "static"):
        show(shell, browsing, panels=panels)
    assert (len(opened), published) == (1, [static_browser(browsing)])


class Opened(MemoryBrowser):
    """A browser whose widget notes what it would send; there is no kernel here."""

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self.sent: list[dict[str, Any]] = []
        self._widget = self

    def send(self, message: dict[str, Any]) -> None:
        self.sent.append(message)

    def ask(self, kind: str, **more: Any) -> dict[str, Any]:
        before = len(self.sent)
        self.answer({"kind": kind, "seq": 7, **more})
        assert len(self.sent) == before + 1
        assert len(json.dumps(self.sent[-1], ensure_ascii=False).encode()) < MESSAGE
        assert self.sent[-1]["seq"] == 7
        return self.sent[-1]


def many(place: Place, count: int) -> None:
    folder = place.project.folder / "memory"
    for number in range(count):
        kind = ("feedback", "project", "reference", "")[number % 4]
        file = folder / f"note_{number:05}.md"
        file.write_text(memory(f"Note {number}", f"what was found in run {number}", kind), "utf-8")
        os.utime(file, (1_000_000_000 + number,) * 2)


def test_the_list_is_filtered_searched_and_ordered(place: Place) -> None:
    browser = Opened(place.browsing())

    def names(**wanted: Any) -> list[str]:
        return [row[0].rpartition("/")[2] for row in browser.ask("rows", count=9, **wanted)["rows"]]

    assert names() == ["feedback_plots.md", "role.md"]
    assert names(order="oldest") == ["role.md", "feedback_plots.md"]
    assert names(order="type") == ["feedback_plots.md", "role.md"]
    assert names(scope="user") == names(type="user") == names(words="PENGUINS works") == ["role.md"]
    assert names(words="penguins plots") == names(type="none") == names(problems=True) == []
    (place.project.folder / "memory" / "bad.md").write_text("---\nname: [\n---\nx\n", "utf-8")
    assert names(problems=True) == ["bad.md"]


def test_the_best_match_comes_from_the_text(place: Place) -> None:
    asked: list[str] = []

    def search(words: str) -> list[Any]:
        asked.append(words)
        return [memory for memory in place.browsing().everything() if memory.name == "role.md"]

    found = Opened(place.browsing(search)).ask("rows", words="biologist", order="best", count=9)["rows"]
    assert [row[0] for row in found] == [ROLE]
    assert asked == ["biologist"]


def test_a_memory_opens_rendered_with_its_source_history_and_problems(place: Place) -> None:
    place.write(PLOTS, memory(body="Label **axes**. <script>alert(1)</script>"))
    opened = Opened(place.browsing()).ask("open", path=PLOTS)["opened"]
    assert opened["html"] == "<p>Label <strong>axes</strong>. &lt;script&gt;alert(1)&lt;/script&gt;</p>\n"
    assert opened["text"].startswith("---\nname: Plots\n")
    assert "you said so" in opened["facts"]
    assert [version[3] for version in opened["versions"]] == ["changed"]


def test_a_revision_is_compared_and_restored_and_that_is_undone(place: Place) -> None:
    place.write(PLOTS, memory(body="Never label axes."))
    browser = Opened(place.browsing())
    revision = browser.ask("open", path=PLOTS)["opened"]["versions"][0][0]
    lines = browser.ask("diff", path=PLOTS, revision=revision)["diff"]
    assert ["-", "Label axes."] in lines
    assert ["+", "Never label axes."] in lines
    done = browser.ask("restore", path=PLOTS, revision=revision)
    assert done["changed"] == "restored: feedback_plots.md"
    assert (place.text(PLOTS) or "").endswith("\nLabel axes.\n")
    browser.ask("undo", number=done["number"])
    assert (place.text(PLOTS) or "").endswith("\nNever label axes.\n")


def test_forgetting_is_undone(place: Place) -> None:
    browser = Opened(place.browsing())
    before = place.text(PLOTS)
    done = browser.ask("forget", path=PLOTS)
    assert done["gone"]
    assert place.text(PLOTS) is None
    assert not browser.ask("undo", number=done["number"])["gone"]
    assert place.text(PLOTS) == before


def test_an_edit_is_saved_unless_somebody_else_changed_the_memory(place: Place) -> None:
    browser = Opened(place.browsing())
    opened = browser.ask("open", path=PLOTS)["opened"]
    mine = opened["text"].replace("Label axes.", "Label both axes.")
    assert browser.ask("save", path=PLOTS, text=mine, digest=opened["digest"])["changed"] == "saved: feedback_plots.md"
    assert "Label both axes." in (place.text(PLOTS) or "")
    refused = browser.ask("save", path=PLOTS, text=opened["text"], digest=opened["digest"])
    assert "changed while you were editing it" in refused["failed"]
    assert "Label both axes." in (place.text(PLOTS) or "")


def test_a_secret_is_not_saved_and_the_reason_is_said(place: Place) -> None:
    browser = Opened(place.browsing())
    opened = browser.ask("open", path=PLOTS)["opened"]
    key = "sk-ant-api03-" + "Zq7XkV2m9TfLw4Rb8NcYh3Jd6Gs1Pu5E" * 2
    refused = browser.ask("save", path=PLOTS, text=opened["text"] + key, digest=opened["digest"])
    assert refused["failed"]
    assert key not in refused["failed"]
    assert key not in (place.text(PLOTS) or "")


@pytest.mark.parametrize(
    "message",
    [
        {}, {"kind": "other"}, {"kind": "undo"}, {"kind": "undo", "number": 5}, {"kind": "undo", "number": "0"},
        {"kind": "undo", "number": -1}, {"kind": "stop-dream"}, {"kind": ["rows"]},
    ],
)  # fmt: skip
def test_messages_that_name_nothing_are_ignored(place: Place, message: dict[str, Any]) -> None:
    browser = Opened(place.browsing())
    browser.answer(message)
    assert browser.sent == []


@pytest.mark.parametrize(
    "path",
    ["", "/", "/memories/project/none.md", "/memories/project/../../secret.md", "/etc/passwd", "/memories/other/a.md"],
)
def test_a_place_outside_is_refused_in_every_message(place: Place, path: str) -> None:
    browser = Opened(place.browsing())
    for kind in ("open", "diff", "restore", "save", "forget"):
        assert browser.ask(kind, path=path, revision="1", text="x", digest="x")["failed"]


def test_the_recall_tester_tells_what_is_picked_and_why(place: Place) -> None:
    found = [
        Explained(recalled=Recalled(path=PLOTS, why="about axes", score=1.5), picked=True),
        Explained(recalled=Recalled(path=ROLE, why="mentions units; not picked", score=0.2), picked=False),
    ]
    browser = Opened(place.browsing(recall=lambda request: ("", found)))
    assert browser.ask("recall", query="plot it")["tried"] == [
        [PLOTS, "feedback_plots.md", 1.5, "about axes", True],
        [ROLE, "role.md", 0.2, "mentions units; not picked", False],
    ]
    browser = Opened(place.browsing(recall=lambda request: ("recall is off", ())))
    assert browser.ask("recall", query="x")["why"] == "recall is off"


def test_a_dream_is_shown_as_it_goes_and_can_be_stopped(place: Place) -> None:
    class Dreams:
        status: Any = "running"

        def now(self) -> DreamProgress:
            turns = tuple(f"turn {number}" for number in range(40))
            return DreamProgress(status=self.status, phase="gather", turns=turns, files=("a.md",), seconds=12.4)

        def stop(self) -> None:
            self.status = "killed"

        def watch(self, told: Any) -> Any:
            return lambda: None

    browser = Opened(place.browsing(), Dreams())
    dream = browser.state()["dream"]
    assert (dream["status"], dream["phase"], dream["seconds"]) == ("running", "gather", 12)
    assert dream["turns"] == [f"turn {number}" for number in range(10, 40)]
    assert browser.ask("stop-dream")["dream"]["status"] == "killed"


def test_ten_thousand_memories_come_a_window_at_a_time(place: Place) -> None:
    many(place, 10_000)
    browser = Opened(place.browsing())
    took = [time.process_time()]
    first = browser.ask("rows", **{"from": 0, "count": 100})  # reads every header once
    assert (first["total"], len(first["rows"])) == (10_002, 100)
    took.append(time.process_time())
    last = browser.ask("rows", **{"from": 10_000, "count": 100_000})
    found = browser.ask("rows", words="run 4711", **{"from": 0, "count": 100})
    took.append(time.process_time())
    reading, looking = (after - before for before, after in pairwise(took))
    assert looking < reading / 2
    assert len(last["rows"]) == 2
    assert found["rows"][0][1] == "Note 4711"
    assert len(browser.ask("rows", **{"from": 0, "count": 100_000})["rows"]) <= 200
    bundle = static_browser(place.browsing())
    assert sum(len(form.encode()) for form in bundle.values()) < MESSAGE
    assert f"{10_002 - ROWS:,} older ones are not listed" in bundle["text/html"]


def test_a_huge_memory_is_cut_and_cannot_be_edited_here(place: Place) -> None:
    file = place.project.folder / "memory" / "huge.md"
    file.write_text(memory(body="<b>漢字</b> **words** \n\n" * 60_000), "utf-8")
    opened = Opened(place.browsing()).ask("open", path="/memories/project/huge.md")["opened"]
    assert opened["cut"]
    assert "<b>" not in opened["html"]


def test_a_diff_is_bounded() -> None:
    lines = diff("a\n" * 9_000, "b" * 90_000 + "\n" + "b\n" * 9_000)
    assert sum(len(text) for _, text in lines) < 110_000
    assert lines[-1][1].endswith("more lines")


# ---------------------------------------------------------------------- what stays


def test_the_static_form_has_everything_a_reader_needs(place: Place) -> None:
    bundle = static_browser(place.browsing())
    assert list(bundle) == ["text/html", "text/markdown", "text/plain"]
    for form in bundle.values():
        plain = form.replace("\\", "")
        for words in ("feedback_plots.md", "Axes have units", "role.md", "user", "today"):
            assert words in plain
    page = Page(bundle["text/html"])
    assert page.dangers == []
    assert "Label axes." in page.text
    assert "you said so" in page.text


def test_an_empty_memory_says_how_to_begin(tmp_path: Path) -> None:
    empty = Place(tmp_path)
    assert "remember" in list_lines(empty.browsing())[0]
    assert "0 memories" in static_browser(empty.browsing())["text/html"]
    assert not empty.project.folder.exists()


def test_why_memories_are_missing_is_said(place: Place) -> None:
    place.memories.settings.memory = False
    for form in static_browser(place.browsing()).values():
        assert "memory is off" in form
    assert any("memory is off" in why for why in Opened(place.browsing()).state()["missing"])


def test_nothing_hostile_survives_in_a_memory(tmp_path: Path) -> None:
    for at, bad in enumerate(HOSTILE):
        here = tmp_path / str(at)
        here.mkdir()
        place = Place(here)
        folder = place.project.folder / "memory"
        place.write(PLOTS, memory())
        content = memory(json.dumps(bad), json.dumps(bad), json.dumps(bad), bad)
        (folder / "hostile.md").write_bytes(content.encode("utf-8", "surrogatepass"))
        browsing = place.browsing()
        browser = Opened(browsing)
        bundle = static_browser(browsing)
        opened = browser.ask("open", path="/memories/project/hostile.md")["opened"]
        assert Page(bundle["text/html"]).dangers == [], bad
        assert Page(opened["html"]).dangers == [], bad
        for form in bundle.values():
            assert unseen(form) == [], bad
        for told in (opened["title"], opened["description"], *opened["facts"], *opened["problems"]):
            assert unseen(told) == [], bad
