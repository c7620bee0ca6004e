"""`ipyagent eval [QUESTIONS.jsonl] --tables DIR`: ask, grade, report.

Exit status: 0 every question was asked to the end, 1 some were not (the same command asks them again), 130 it was
interrupted."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from ipyagent.errors import AgentError, UsageError
from ipyagent.escape import plain

FOLDER = "ipyagent-eval"
PAGE = "report.html"
INTERRUPTED = 130


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What the command takes."""
    parser.add_argument(
        "questions", type=Path, nargs="?", help="a file in DABench's format; left out: the ten bundled ones"
    )
    parser.add_argument("--tables", type=Path, metavar="DIR", help="folder of the tables (that of the questions)")
    parser.add_argument("--labels", type=Path, metavar="FILE", help="answers in a file of their own (DABench)")
    parser.add_argument("--model", default="", help="model to ask; `practice`, `local:PATH.gguf` (as configured)")
    parser.add_argument("--repeat", type=int, default=1, metavar="N", help="ask each question N times (%(default)s)")
    parser.add_argument("--jobs", type=int, default=2, metavar="N", help="kernels at once (%(default)s)")
    parser.add_argument("--first", type=int, default=0, metavar="N", help="ask only the first N questions")
    parser.add_argument("--seconds", type=float, default=600.0, metavar="S", help="time for one answer (%(default)g)")
    parser.add_argument("--max-cost", type=float, default=0.0, metavar="USD", help="stop at this cost (0: no limit)")
    parser.add_argument(
        "--set", action="append", default=[], metavar="NAME=VALUE", help="any setting, as in --set layer_notes=off"
    )
    parser.add_argument("--folder", type=Path, default=Path(FOLDER), help="where runs are kept (%(default)s)")
    parser.add_argument("--again", action="store_true", help="ask also what has been answered")
    parser.add_argument("--yes", action="store_true", help="do not ask before the model may run code")


def run(chosen: argparse.Namespace) -> int:
    """Ask, print the report, write the page. Raises AgentError."""
    from ipyagent.eval import report
    from ipyagent.eval.questions import bundled, read_questions
    from ipyagent.eval.run import EvalRun, earlier, parsed

    for name, least in (("repeat", 1), ("jobs", 1), ("first", 0), ("seconds", 0), ("max_cost", 0)):
        if getattr(chosen, name) < least:
            raise UsageError(f"--{name.replace('_', '-')} must be {least} or more")
    ours = chosen.questions is None
    path, tables = bundled() if ours else (chosen.questions, chosen.tables or chosen.questions.parent)
    questions = read_questions(path, tables, chosen.labels)
    questions = questions[: chosen.first] if chosen.first else questions
    given = parsed(chosen.set) | ({"model": chosen.model} if chosen.model else {})
    folder = chosen.folder.resolve()
    asked = EvalRun(questions, "bundled" if ours else str(path.resolve()), folder, given)
    print(plain(f"{len(questions)} questions for {asked.model}; the run is kept in {asked.folder}"))
    if not ours and not chosen.yes:
        _consent(str(path))
    try:
        results = asked.ask(
            repeat=chosen.repeat, jobs=chosen.jobs, seconds=chosen.seconds, max_cost=chosen.max_cost, again=chosen.again
        )
    except KeyboardInterrupt:
        print("Interrupted. Answers so far are kept; the same command continues.", file=sys.stderr)
        return INTERRUPTED
    others, unread = earlier(folder, asked.name)
    shown = asked.folder / PAGE
    try:
        shown.unlink(missing_ok=True)
        shown.write_text(report.page(results, questions, others), "utf-8")
    except OSError as problem:
        raise AgentError(f"cannot write {shown} ({problem.strerror or problem}): make it writable") from None
    print("\n" + report.told(results, others))
    print(plain("".join(f"\nnot read: {name}" for name in unread) + f"\nEvery question and answer: {shown}"))
    failed = sum(answer.verdict == "failed" for answer in results.answers)
    if failed:
        first = next(answer.error for answer in results.answers if answer.verdict == "failed")
        told = f"{failed} did not finish; the same command asks them again. First reason: {first}"
        print(plain(told), file=sys.stderr)
    return 1 if failed else 0


def _consent(source: str) -> None:
    """Ask before code runs that other people's questions lead to. Raises AgentError for a no."""
    said = (
        f"The model answers {source} by running Python in kernels on this machine, in mode auto: it is not asked "
        "before each step, and what would need your permission is refused. Continue only with questions and tables "
        "that you trust."
    )
    if not sys.stdin.isatty():
        raise AgentError(f"{said} To run without a question: --yes")
    if input(plain(f"{said}\nContinue? [y/N] ")).strip().lower() not in ("y", "yes"):
        raise AgentError("nothing was run because you did not confirm")
