"""What counts as right, and what a file of questions may say."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from bundled_solutions import CODE

from ipyagent.errors import UsageError
from ipyagent.eval.questions import bundled, given_in, grade, read_questions, same
from ipyagent.eval.report import wilson

SHARED = Path(__file__).parents[3] / "shared/data/tables"


def test_the_same_number_list_or_word_is_right_and_another_is_wrong() -> None:
    for given, right in (
        ("34.650", "34.65"), ("1e2", "100"), ("-0.41", "-0.41"), ("0.4100000001", "0.41"), ("Yes", "Yes"), ("", ""),
        ("314,577", "314, 577"), ("[1, 2.50]", "1, 2.5"), ("['a', 'b']", "a, b"), ("'North'", "North"), ("[]", ""),
        ("{'a': 1.0, 'b': 2}", "{'b': 2, 'a': 1}"), ("(0.00, 1.00)", "0.0, 1.0"),
    ):  # fmt: skip
        assert same(given, right), (given, right)
    for wrong, right in (
        ("34.66", "34.65"), ("yes", "Yes"), ("Yes.", "Yes"), ("1, 2", "2, 1"), ("1", "1, 2"), ("1, 2, 3", "1, 2"),
        (None, "1"), ("", "1"), ("nan", "1"), ("True", "1"), ("{'a': 1}", "{'a': 2}"), ("41%", "0.41"),
        ("not normal", "not_normal"), ("0.41001", "0.41"), ("inf", "-inf"),
    ):  # fmt: skip
        assert not same(wrong, right), (wrong, right)


def test_of_a_name_the_last_value_counts_and_other_names_do_not() -> None:
    said = "First @mean[1].\n**@mean[2.50]** and @list[[1, 2], [3]] and @other_name[x] @not closed[ @cut[1\n2]"
    assert given_in(said) == {"mean": "2.50", "list": "[1, 2], [3]", "other_name": "x"}
    (question, *_) = read_questions(*bundled())
    name, value = next(iter(question.answers.items()))
    assert grade(question, f"@{name}[0] then @{name}[{value}] @else[1]").correct
    half = grade(question, f"the answer is {value}")
    assert (half.correct, half.right, half.wanted) == (False, [], 1)


def test_the_interval_is_wilsons() -> None:
    for right, count, low, high in (
        (0, 10, 0.0, 0.2775327999), (1, 1, 0.2065493144, 1.0), (15, 25, 0.4073945736, 0.7659669762),
        (25, 25, 0.8668077491, 1.0), (171, 257, 0.6056194756, 0.7202489672),
    ):  # fmt: skip  # as scipy.stats.binomtest(right, count).proportion_ci(method="wilson") has them
        assert wilson(right / count, count) == pytest.approx((low, high), abs=1e-9)
    assert wilson(0.0, 0) == (0.0, 1.0)


def test_the_answers_of_the_bundled_questions_are_what_their_tables_say() -> None:
    questions = read_questions(*bundled())
    assert [question.id for question in questions] == list(CODE)
    assert len(questions) == 10
    assert len({question.table.parent for question in questions}) == 1
    solving = "import sys\nfor code in sys.argv[1:]:\n    exec(code, {})\n    print('\\f')"
    done = subprocess.run(
        [sys.executable, "-c", solving, *(CODE[question.id] for question in questions)],
        cwd=questions[0].table.parent, capture_output=True, text=True,
    )  # fmt: skip
    assert done.stderr == ""
    for question, said in zip(questions, done.stdout.split("\f")[:-1], strict=True):
        assert grade(question, said).correct, (question.id, said)


def lines(path: Path, *rows: object) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
    return path


def test_questions_and_labels_are_read_as_dabench_ships_them(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("a\n1\n")
    row = {"id": 0, "question": "Mean?", "concepts": ["Summary Statistics"], "constraints": "Two places.",
           "format": "@mean[x]", "file_name": "t.csv", "level": "easy"}  # fmt: skip
    path = lines(tmp_path / "da-dev-questions.jsonl", row)
    lines(tmp_path / "da-dev-labels.jsonl", {"id": 0, "common_answers": [["mean", "34.65"], ["mean", "1.00"]]})
    (question,) = read_questions(path, tmp_path)
    assert (question.id, question.answers, question.level) == ("0", {"mean": "1.00"}, "easy")
    assert [part in question.prompt for part in ("Mean?", "Two places.", "@mean[x]", "t.csv")] == [True] * 4
    labels = lines(tmp_path / "other.jsonl", {"id": 0, "common_answers": [["mean", "2"]]})
    assert read_questions(path, tmp_path, labels)[0].answers == {"mean": "2"}


@pytest.mark.skipif(not SHARED.is_dir(), reason="shared/data/tables is not beside this repository")
def test_a_right_answer_to_each_shared_question_is_right() -> None:
    questions = read_questions(SHARED / "questions.jsonl", SHARED)
    assert len(questions) > 70
    for question in questions:
        said = " ".join(f"@{name}[{value}]" for name, value in question.answers.items())
        assert grade(question, said).correct, question.id
        assert not grade(question, said.replace("[", "[~")).right, question.id


def test_a_table_is_a_data_file_of_its_folder_and_nothing_else(tmp_path: Path) -> None:
    tables = tmp_path / "tables"
    tables.mkdir()
    (tmp_path / "secret.csv").write_text("a\n1\n")
    (tables / "link.csv").symlink_to(tmp_path / "secret.csv")
    for name in ("ipykernel_launcher.py", "AGENTS.md", "model.pkl", "table.csv"):
        (tables / name).write_text("")
    (tables / "folder.csv").mkdir()
    refused = {
        "../secret.csv": "must be the name of a file", str(tmp_path / "secret.csv"): "must be the name of a file",
        "link.csv": "leads out of", "missing.csv": "there is no table", "folder.csv": "there is no table",
        ".hidden.csv": "must be the name", "ipykernel_launcher.py": "is not a table", "AGENTS.md": "is not a table",
        "model.pkl": "is not a table", "..": "must be the name", "table.csv\0": "must be the name",
    }  # fmt: skip
    for name, why in refused.items():
        path = lines(tmp_path / "q.jsonl", {"id": 1, "question": "?", "file_name": name, "answers": [["a", "1"]]})
        with pytest.raises(UsageError, match=why):
            read_questions(path, tables)


def test_a_file_that_cannot_be_asked_is_refused_with_its_line(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("a\n1\n")
    good = {"id": 1, "question": "?", "file_name": "t.csv", "answers": [["a", "1"]]}
    for bad, why in (
        ({**good, "answers": []}, "no answers"), ({**good, "answers": [["a"]]}, "pairs"), (good, "occurs twice"),
        ({**good, "id": 2, "question": 3}, "must be text"), ({**good, "id": 2, "question": ""}, "needs"),
        ([], "not a JSON object"), ({**good, "id": 2, "tolerance": -1}, "tolerance"),
    ):  # fmt: skip
        with pytest.raises(UsageError, match=rf"q.jsonl, line 2: .*{why}"):
            read_questions(lines(tmp_path / "q.jsonl", good, bad), tmp_path)
    for content, why in ((b"", "has no questions"), (b"\xff\xfe", "UTF-8")):
        (tmp_path / "q.jsonl").write_bytes(content)
        with pytest.raises(UsageError, match=why):
            read_questions(tmp_path / "q.jsonl", tmp_path)
    with pytest.raises(UsageError, match="cannot read"):
        read_questions(tmp_path / "none.jsonl", tmp_path)
