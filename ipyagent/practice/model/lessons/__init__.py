"""Lessons, each a page here: requests and tool calls are fixed, results are real. A heading is a request of the user,
the block below it the tool call that it leads to, the words behind it the answer. In the answer `{1}` stands for the
last line of the result; in the call `{handle}` and `{path}` for the newest live object and the newest stored file.

    lessons                 which there are
    lesson: clearing        what it shows, and its requests
    lesson: clearing 3      its third request; words behind the number are for the reader

A request with `<lesson name="clearing">` beside it (`%%agent --lesson clearing`) needs the lesson's own words alone. So
a lesson goes on whatever the context has lost meanwhile. Numbers in an answer are read from the results.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Final

from ipyagent.practice.model.conversation import Turn
from ipyagent.practice.model.recipe import Ending, Recipe, Task, error

_ASKED: Final = re.compile(
    r"\s*(?:lessons\s*|lesson\s*[:：]\s*(?P<name>[a-z_]*)(?:\s+(?P<number>\d+)\b.*)?)\s*", re.I | re.S
)
_HANDLE: Final = re.compile(r"_agent\[['\"]r\d+['\"]\]")
_PATH: Final = re.compile(r"<persisted-output path=\"([^\"\n]+)\"")
_SCENE: Final = re.compile(r"^## ([^\n]+)\n\n```(\w+)\n(.*?)\n```\n\n(.*?)\n(?:\n(?=## )|\Z)", re.M | re.S)


@dataclass(frozen=True, slots=True)
class Scene:
    """One request of the user, the tool call that it leads to, and the answer."""

    asks: str
    tool: str
    arguments: Mapping[str, str]
    says: str


@dataclass(frozen=True, slots=True)
class Lesson:
    """What is to be seen, and the scenes in order."""

    name: str
    shows: str
    scenes: tuple[Scene, ...]

    @property
    def requests(self) -> tuple[str, ...]:
        """The requests as a user sends them."""
        return tuple(scene.asks for scene in self.scenes)

    def number_of(self, words: str) -> int:
        """Which request these words are, from 1; 0: none."""
        return next((at for at, scene in enumerate(self.scenes, 1) if _plain(scene.asks) == _plain(words)), 0)


def _plain(words: str) -> str:
    return " ".join(words.casefold().split()).rstrip(".")


def is_lesson(turn: Turn) -> bool:
    """Whether a request starts or goes on with a lesson, or asks which there are."""
    return bool(turn.attached("lesson")) or _ASKED.fullmatch(turn.asked) is not None


def teach(task: Task) -> Recipe | str:
    """What the newest request asks of the lessons."""
    turn = task.conversation.turn
    found, attached = _ASKED.fullmatch(turn.words), turn.attached("lesson")
    lessons = {lesson.name: lesson for lesson in known()}
    lesson = lessons.get(attached[0] if attached else (found["name"] or "").lower() if found else "")
    if lesson is None:
        lines = [f"- `lesson: {each.name}`: {each.shows}" for each in lessons.values()]
        return "Lessons of the practice model:\n\n" + "\n".join(lines)
    number = int(found["number"]) if found and found["number"] else lesson.number_of(turn.words)
    if not 1 <= number <= len(lesson.scenes):
        asks = "\n".join(f"- {request}" for request in lesson.requests)
        return f"{lesson.shows}\n\nIts requests, to be sent in this order:\n\n{asks}"
    return _play(task, lesson, lesson.scenes[number - 1])


def _play(task: Task, lesson: Lesson, scene: Scene) -> Recipe:
    given = {name: _filled(task, value) for name, value in scene.arguments.items()}
    step = yield from task.call(scene.tool, given, f"Lesson {lesson.name}: {scene.asks}")
    if step.failed:
        first = f" Send `{lesson.requests[0]}` first." if error(step.text)[0] == "NameError" else ""
        raise Ending(task.failure(step.text) + first)
    return scene.says.replace("{1}", (step.text.strip().splitlines() or [""])[-1].removeprefix("Out: ").strip())


def _filled(task: Task, value: str) -> str:
    """A call's argument with the handle and the path that the conversation names last."""
    turns = task.conversation.turns
    told = "\n".join(part for turn in turns for part in (*turn.extras, *(step.text for step in turn.steps)))
    for name, pattern in (("{handle}", _HANDLE), ("{path}", _PATH)):
        if name in value:
            if not (found := pattern.findall(told)):
                raise Ending("Nothing is stored: the result before this one was too small, or storing is off.")
            value = value.replace(name, found[-1])
    return value


@cache
def known() -> tuple[Lesson, ...]:
    """Every lesson, by name."""
    pages = {page.name.removesuffix(".md"): page for page in files(__name__).iterdir() if page.name.endswith(".md")}
    return tuple(_read(name, pages[name].read_text(encoding="utf-8")) for name in sorted(pages))


def _read(name: str, page: str) -> Lesson:
    scenes = [Scene(asks, tool, {"code": call} if tool == "python" else json.loads(call), says)
              for asks, tool, call, says in _SCENE.findall(page)]  # fmt: skip
    return Lesson(name, page.partition("\n\n")[0], tuple(scenes))


def requests(name: str) -> tuple[str, ...]:
    """The requests of a lesson in order, to be sent one by one. Raises ValueError."""
    lessons = {lesson.name: lesson.requests for lesson in known()}
    if name not in lessons:
        raise ValueError(f"no lesson {name!r}; there are {', '.join(lessons)}")
    return lessons[name]
