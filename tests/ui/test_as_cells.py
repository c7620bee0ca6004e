"""Cells go into one page, once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ipyagent.ui.buttons import ButtonBridge, Inserting

MARK = {"ipyagent": {"turn": 1}}
CELL = {"cell_type": "code", "id": "x", "metadata": MARK, "outputs": [], "source": ["a = 1\n", "a"]}


class Pages(ButtonBridge):
    """A door whose messages are kept."""

    def __init__(self) -> None:
        super().__init__()
        self.sent: list[dict[str, Any]] = []

    def send(self, content: dict[str, Any]) -> None:
        self.sent.append(content)

    def _open(self) -> None:
        """No widget: nobody looks."""


def offered() -> tuple[Pages, list[int], str]:
    pages, told = Pages(), list[int]()
    heard: Callable[[int], None] = told.append
    Inserting(pages).offer([CELL], "below-me", heard)
    return pages, told, str(pages.sent[0]["offer"])


def test_the_first_page_that_can_gets_the_cells_and_no_other() -> None:
    pages, told, token = offered()
    for page in ("a", "a", "b"):  # messages may come twice
        pages.press({"method": "custom", "content": {"claim": token, "page": page}})
    inserted = [message for message in pages.sent if "insert" in message]
    cell = {"cell_type": "code", "metadata": MARK, "source": "a = 1\na"}
    assert inserted == [{"insert": [cell], "below": "below-me", "page": "a"}]
    assert told == [1]


def test_a_page_that_cannot_takes_them_from_no_other() -> None:
    pages, told, token = offered()
    pages.press({"unable": token, "page": "a"})
    pages.press({"claim": token, "page": "b"})
    pages.press({"unable": token, "page": "c"})
    assert told == [0, 1]
    assert pages.sent[-1]["page"] == "b"


def test_a_page_that_loads_late_is_offered_them_again() -> None:
    pages, told, token = offered()
    pages.press({"ready": "late"})
    assert pages.sent[-1] == {"offer": token, "below": "below-me"}
    pages.press({"claim": token, "page": "late"})
    pages.press({"ready": "later"})
    assert "insert" in pages.sent[-1]
    assert told == [1]


def test_one_press_acts_once_however_often_it_is_told() -> None:
    pages, presses = Pages(), list[int]()
    name = pages.button(lambda: presses.append(1))
    for press in ("p.1", "p.1", "p.2"):
        pages.press({"button": name, "press": press})
    assert presses == [1, 1]
    pages.press({"button": "somebody.0"})
    pages.press({"claim": "unknown"})
