"""Lessons, each module here one, named `lesson`: requests and tool calls are fixed, results are real.

    lessons                 which there are
    lesson: clearing        what it shows, and its requests
    lesson: clearing 3      its third request; words behind the number are for the reader

A request with `<lesson name="clearing">` beside it (`%%agent --lesson clearing`) needs the lesson's own words alone. So
a lesson goes on whatever the context has lost meanwhile. Numbers in an answer are read from the results.
"""

from __future__ import annotations

import pkgutil
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from typing import Any, Final

from ipyagent.practice.model.conversation import Turn
from ipyagent.practice.model.recipe import Act, Ending, Recipe, Task, error

_ASKED: Final = re.compile(
    r"\s*(?:lessons\s*|lesson\s*[:：]\s*(?P<name>[a-z_]*)(?:\s+(?P<number>\d+)\b.*)?)\s*", re.I | re.S
)
_HANDLE: Final = re.compile(r"_agent\[['\"]r\d+['\"]\]")
_PATH: Final = re.compile(r"<persisted-output path=\"([^\"\n]+)\"")
_RESULT: Final = re.compile(r"\{(\d+)\}")

Call = tuple[str, Mapping[str, Any]]


@dataclass(frozen=True, slots=True)
class Scene:
    """One request of the user, the tool calls that it leads to, one after another, and the answer.

    In the answer `{1}` stands for the last line of the first call's result, `{2}` for the second's. In the texts
    of a call `{handle}` and `{path}` stand for the newest live object and the newest stored file.
    """

    asks: str
    calls: tuple[Call, ...]
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


def python(code: str) -> Call:
    """A call that runs code."""
    return "python", {"code": code}


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
    texts: list[str] = []
    for name, arguments in scene.calls:
        task.need(name)
        filled = {key: _filled(task, value, texts) for key, value in arguments.items()}
        (step, *_) = yield Act(((name, filled),), f"Lesson {lesson.name}: {scene.asks}")
        task.allowed(step)
        if step.failed:
            first = f" Send `{lesson.requests[0]}` first." if error(step.text)[0] == "NameError" else ""
            raise Ending(task.failure(step.text) + first)
        texts.append(step.text)
    return _RESULT.sub(lambda found: _last_line(texts, int(found[1])), scene.says)


def _last_line(texts: Sequence[str], number: int) -> str:
    lines = texts[number - 1].strip().splitlines() or [""]
    return lines[-1].removeprefix("Out: ").strip()


def _filled(task: Task, value: Any, texts: Sequence[str]) -> Any:
    """A call's argument with the handle and the path that the conversation names last."""
    if not isinstance(value, str) or not ("{handle}" in value or "{path}" in value):
        return value
    told = [part for turn in task.conversation.turns for part in (*turn.extras, *(step.text for step in turn.steps))]
    everything = "\n".join([*told, *texts])
    for name, pattern in (("{handle}", _HANDLE), ("{path}", _PATH)):
        if name in value:
            found = pattern.findall(everything)
            if not found:
                raise Ending("Nothing is stored: the result before this one was too small, or storing is off.")
            value = value.replace(name, found[-1])
    return value


@cache
def known() -> tuple[Lesson, ...]:
    """Every lesson, by name."""
    names = [module.name for module in pkgutil.iter_modules(__path__)]
    return tuple(import_module(f"{__name__}.{name}").lesson for name in sorted(names))


def requests(name: str) -> tuple[str, ...]:
    """The requests of a lesson in order, to be sent one by one. Raises ValueError."""
    for lesson in known():
        if lesson.name == name:
            return lesson.requests
    raise ValueError(f"no lesson {name!r}; there are {', '.join(lesson.name for lesson in known())}")
