"""Questions about tables with known answers: the format of InfiAgent-DABench, read strictly and graded by its rule.

A line of a file is one question: `id`, `question`, `file_name`, and if need be `constraints`, `format`, `level`. The
answers are in the same line (`answers`, or `common_answers`: pairs of a name and a value), or, as DABench ships them,
in a file of labels with the same ids. An answer is given as `@name[value]`.
"""

from __future__ import annotations

import ast
import hashlib
import json
import re
from collections.abc import Mapping
from importlib.resources import files
from pathlib import Path
from typing import Any

import msgspec

from ipyagent.errors import UsageError
from ipyagent.escape import line

SUFFIXES = frozenset((
    ".csv", ".tsv", ".txt", ".dat", ".json", ".jsonl", ".xlsx", ".xls", ".ods", ".parquet", ".feather", ".db",
    ".sqlite", ".html", ".xml", ".gz", ".zip",
))  # fmt: skip
"""Of files that may be a table: none that Python imports or runs, none that an agent reads as instructions."""
TOLERANCE = 1e-6
"""Between two equal numbers, as in DABench's eval_closed_form.py."""
MOST_CHARS = 200_000
"""Of an answer's text that are looked at: the last ones."""
_GIVEN = re.compile(r"@(\w{1,200})\[((?:[^\[\]\n]|\[[^\[\]\n]{0,4000}\]){0,4000})\]")
_ANSWER = """{question}

{constraints}The table is the file {file_name} in the working directory. Work the answer out by running code.

End with the answer in exactly this format, each value in brackets behind its name:
{format}"""


class Question(msgspec.Struct, frozen=True):
    """`answers`: the right value by its name; `tolerance`: how far from it a number may be; `table`: the file."""

    id: str
    question: str
    file_name: str
    answers: dict[str, str]
    table: Path
    constraints: str = ""
    format: str = ""
    level: str = ""
    tolerance: float = TOLERANCE

    @property
    def prompt(self) -> str:
        """What the model is asked."""
        constraints = f"{self.constraints.strip()}\n\n" if self.constraints.strip() else ""
        wanted = self.format.strip() or " ".join(f"@{name}[{name}]" for name in self.answers)
        # not str.format: braces are frequent in formats
        filled = {"question": self.question.strip(), "constraints": constraints, "format": wanted}
        filled["file_name"] = self.file_name
        return re.sub(r"\{(question|constraints|format|file_name)\}", lambda found: filled[found[1]], _ANSWER)

    @property
    def digest(self) -> str:
        """The same for the same question with the same answers about the same bytes."""
        told = [self.prompt, sorted(self.answers.items()), self.tolerance]
        made = hashlib.sha256(json.dumps(told).encode())
        with self.table.open("rb") as file:
            while block := file.read(1_000_000):
                made.update(block)
        return made.hexdigest()[:24]


class Grade(msgspec.Struct, frozen=True):
    """`given`: the values found in an answer by name; `right`: the names whose values are right, of `wanted` names."""

    given: dict[str, str]
    right: list[str]
    wanted: int

    @property
    def correct(self) -> bool:
        """All that was asked for is right."""
        return len(self.right) == self.wanted


def grade(question: Question, text: str) -> Grade:
    """Compare an answer with the right one as DABench does: every `@name[value]` whose name is wanted, the last of a
    name, must be the same text or a number within the tolerance. Beyond DABench, blanks and quotes around a value do
    not count, and lists and dicts are compared part by part, in order."""
    given = given_in(text)
    right = [name for name, value in question.answers.items() if same(given.get(name), value, question.tolerance)]
    return Grade(given, right, len(question.answers))


def given_in(text: str) -> dict[str, str]:
    """Values by name in a text; of one name the last."""
    return {name: value.strip() for name, value in _GIVEN.findall(text[-MOST_CHARS:].replace("\\_", "_"))}


def same(given: str | None, right: str, tolerance: float = TOLERANCE) -> bool:
    """Whether a value is the right one."""
    if given is None:
        return False
    return given == right or _alike(_value(given), _value(right), tolerance)


def _value(text: str) -> Any:
    """A number, a list, a dict, or the text without what stands around it."""
    text = text.strip()
    if text[:1] in "[{(" and text[-1:] in "]})" and text:
        try:
            found = ast.literal_eval(text)
        except (ValueError, SyntaxError, MemoryError, RecursionError, TypeError):
            text = text[1:-1].strip()
            return [_value(part) for part in text.split(",")] if text else []
        return list(found) if isinstance(found, tuple | list) else found
    if "," in text:
        return [_value(part) for part in text.split(",")]
    if len(text) > 1 and text[0] == text[-1] and text[0] in "'\"`":
        text = text[1:-1].strip()
    return _number(text, text) if text else []


def _number(text: Any, otherwise: Any) -> Any:
    try:
        return float(text)
    except (TypeError, ValueError, OverflowError):
        return otherwise


def _alike(given: Any, right: Any, tolerance: float) -> bool:
    if isinstance(given, list) and isinstance(right, list):
        pairs = zip(given, right, strict=False)
        return len(given) == len(right) and all(_alike(one, other, tolerance) for one, other in pairs)
    if isinstance(given, dict) and isinstance(right, dict):
        return given.keys() == right.keys() and all(_alike(given[name], right[name], tolerance) for name in right)
    one, other = _number(given, None), _number(right, None)
    if one is not None and other is not None and not isinstance(given, bool) and not isinstance(right, bool):
        return bool(abs(one - other) <= tolerance)
    return type(given) is type(right) and bool(given == right)


# ------------------------------------------------------------------ reading


def read_questions(path: Path, tables: Path, labels: Path | None = None) -> list[Question]:
    """The questions of a file, in order; every table must be a data file within `tables`. Raises UsageError, which
    names the line, before anything is asked."""
    beside = path.with_name(path.name.replace("questions", "labels"))  # as DABench ships them
    if labels is None and beside != path and beside.is_file():
        labels = beside
    labelled = _rows(labels) if labels is not None else []
    apart = {str(row.get("id", number)): row.get("common_answers", row.get("answers")) for number, row in labelled}
    found: dict[str, Question] = {}
    root = tables.resolve()
    for number, row in _rows(path):
        where = f"{path.name}, line {number}"
        name = str(row.get("id", number))
        given = row.get("answers", row.get("common_answers", apart.get(name)))
        answers = _pairs(given, where)
        texts = {field: row.get(field) or "" for field in ("question", "file_name", "constraints", "format", "level")}
        if wrong := [field for field, value in texts.items() if not isinstance(value, str)]:
            raise UsageError(f"{where}: {wrong[0]} must be text")
        if not texts["question"] or not texts["file_name"]:
            raise UsageError(f"{where}: a question needs `question` and `file_name`")
        if name in found:
            raise UsageError(f"{where}: the id {line(name, 40)} occurs twice; change one")
        tolerance = row.get("tolerance", TOLERANCE)
        if not isinstance(tolerance, int | float) or not 0 <= tolerance < float("inf"):
            raise UsageError(f"{where}: tolerance must be a number of 0 or more")
        table = _table(root, texts["file_name"], where)
        found[name] = Question(id=name, answers=answers, table=table, tolerance=tolerance, **texts)
    if not found:
        raise UsageError(f"{path} has no questions: write one on each line")
    return list(found.values())


def bundled() -> tuple[Path, Path]:
    """The ten questions that come with ipyagent, and the folder of their tables."""
    folder = Path(str(files("ipyagent").joinpath("eval", "bundled")))
    return folder / "questions.jsonl", folder


def _rows(path: Path) -> list[tuple[int, dict[str, Any]]]:
    try:
        text = path.read_text("utf-8-sig")
    except (OSError, UnicodeDecodeError) as problem:
        why = getattr(problem, "strerror", None) or "not UTF-8"
        raise UsageError(f"cannot read {path} ({why}): give a JSON Lines file") from None
    rows = []
    for number, told in enumerate(text.split("\n"), 1):
        if not told.strip():
            continue
        try:
            row = json.loads(told)
        except (ValueError, RecursionError):
            row = None
        if not isinstance(row, dict):
            raise UsageError(f"{path.name}, line {number}: not a JSON object: write one in each line")
        rows.append((number, row))
    return rows


def _pairs(given: Any, where: str) -> dict[str, str]:
    """Right values by name; of one name the last, as DABench has it."""
    pairs = list(given.items()) if isinstance(given, Mapping) else given
    if not isinstance(pairs, list) or not pairs:
        raise UsageError(f"{where}: no answers: give them in the line (`answers`), or name their file with --labels")
    for pair in pairs:
        if not isinstance(pair, list | tuple) or len(pair) != 2 or not isinstance(pair[0], str):
            raise UsageError(f"{where}: answers are pairs of a name and a value")
    return {name: value if isinstance(value, str) else json.dumps(value) for name, value in pairs}


def _table(root: Path, name: str, where: str) -> Path:
    path = root / name
    if Path(name).name != name or name.startswith(".") or "\0" in name:
        raise UsageError(f"{where}: file_name {line(name, 60)!r} must be the name of a file in {root}")
    if path.suffix.lower() not in SUFFIXES:
        raise UsageError(f"{where}: {line(name, 60)} is not a table (tables end in {', '.join(sorted(SUFFIXES))})")
    if not path.is_file():
        raise UsageError(f"{where}: there is no table {line(name, 60)} in {root}; name its folder with --tables")
    if not path.resolve().is_relative_to(root):
        raise UsageError(f"{where}: {line(name, 60)} is a link that leads out of {root}; put the file itself there")
    return path
