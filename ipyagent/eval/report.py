"""What a run says: accuracy with its interval, cost, tokens, time, and the same beside earlier runs; as text and as a
page that needs no network and runs no script. Everything that a model or a file said is escaped."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from statistics import median
from urllib.parse import quote

from ipyagent.escape import escape, line
from ipyagent.eval.questions import Question
from ipyagent.eval.run import VERDICTS, Answer, Results
from ipyagent.journal.journal import TRANSCRIPT
from ipyagent.ui.meter import dollars, duration

Z = 1.959963984540054
"""Standard deviations of a 95% interval."""
PAGE_CHARS = 4_000
"""Characters of an answer on the page; the transcript has all."""


def wilson(share: float, count: int) -> tuple[float, float]:
    """The 95% score interval of a share of `count` independent trials (Wilson, 1927); 0 to 1 for none."""
    if not count:
        return 0.0, 1.0
    square = Z * Z / count
    middle = (share + square / 2) / (1 + square)
    half = Z / (1 + square) * math.sqrt(max(0.0, share * (1 - share)) / count + square / (4 * count))
    return max(0.0, middle - half), min(1.0, middle + half)


def _shares(answers: Iterable[Answer]) -> dict[str, float]:
    """By question the share of its answers that are right."""
    asked: Counter[str] = Counter()
    right: Counter[str] = Counter()
    for answer in answers:
        asked[answer.digest] += 1
        right[answer.digest] += answer.verdict == "right"
    return {digest: right[digest] / asked[digest] for digest in asked}


# ------------------------------------------------------------------ text


def told(results: Results, others: Sequence[Results]) -> str:
    """The report as lines for a terminal."""
    lines = [f"{line(results.name, 100)}: {_asked(results)}", ""]
    lines += [f"{name:<10} {value}" for name, value in _figures(results.answers)]
    if compared := _compared(results, others):
        rows = [("", *_COLUMNS), *compared]
        widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
        lines += ["", "This run and earlier ones, on the questions that both have:"]
        lines += ["  ".join(map(str.ljust, row, widths)).rstrip() for row in rows]
    return "\n".join(lines)


_COLUMNS = ("questions", "there", "here", "better", "worse", "p", "cost there")


def _asked(results: Results) -> str:
    number = len(_shares(results.answers))
    times = f", {results.repeat} times each" if results.repeat > 1 else ""
    settings = "".join(f" · {name}={value}" for name, value in sorted(results.settings.items()))
    return line(f"{number} question{'s' * (number != 1)}{times} · {results.model}{settings}", 300)


def _figures(answers: Sequence[Answer]) -> list[tuple[str, str]]:
    """Name and value of what a run came to. A question that was asked several times counts once, by the share that was
    right: the interval is Wilson's over questions, for repeats of one question are not independent."""
    shares, verdicts = _shares(answers), Counter[str](answer.verdict for answer in answers)
    accuracy = sum(shares.values()) / max(1, len(shares))
    low, high = wilson(accuracy, len(shares))
    paid, each = _cost(answers), max(1, len(answers))
    prompts = sum(answer.input for answer in answers)
    tokens = prompts + sum(answer.output for answer in answers)
    cached = sum(answer.cache_read for answer in answers) / prompts if prompts else 0.0
    times = [answer.seconds for answer in answers] or [0.0]
    return [
        ("accuracy", f"{accuracy:.1%} (95% interval {low:.1%} to {high:.1%}: Wilson, over questions)"),
        ("answers", " · ".join(f"{verdicts[name]} {said}" for name, said in VERDICTS.items() if verdicts[name])),
        ("cost", "not known" if paid is None else f"{dollars(paid)} ({dollars(paid / each)} an answer)"),
        ("tokens", f"{tokens:,} ({tokens // each:,} an answer) · {cached:.0%} of the prompts from the cache"),
        ("time", f"{duration(sum(times))} in all, {duration(median(times))} an answer (median)"),
    ]


def _cost(answers: Sequence[Answer]) -> float | None:
    """US dollars of all answers; None where some price is not known."""
    return None if any(answer.cost is None for answer in answers) else sum(answer.cost or 0.0 for answer in answers)


def _compared(here: Results, others: Iterable[Results]) -> list[tuple[str, ...]]:
    """A row of _COLUMNS, after its name, for each other run that was asked the same about the same tables: accuracy of
    both on the questions that both have, how many questions came out better and worse here, and how likely a difference
    as large is by chance (`p`, two-sided sign test over questions)."""
    rows: list[tuple[str, ...]] = []
    one = _shares(here.answers)
    for other in others:
        two = _shares(other.answers)
        if not (both := one.keys() & two.keys()):
            continue
        better, worse = sum(one[each] > two[each] for each in both), sum(one[each] < two[each] for each in both)
        changed = better + worse
        tail = sum(math.comb(changed, count) for count in range(min(better, worse) + 1)) / 2**changed
        there, now = (sum(shares[each] for each in both) / len(both) for shares in (two, one))
        cost = _cost(other.answers)
        rows.append((
            line(other.name, 60), str(len(both)), f"{there:.1%}", f"{now:.1%}", str(better), str(worse),
            f"{min(1.0, 2 * tail):.2f}", "not known" if cost is None else dollars(cost),
        ))  # fmt: skip
    return rows


# ------------------------------------------------------------------ page


_STYLE = """
:root { color-scheme: light dark; --line: #8886; --good: #1a7f37; --bad: #b3261e }
@media (prefers-color-scheme: dark) { :root { --good: #4ac26b; --bad: #ff8a80 } }
body { font: 15px/1.5 system-ui, sans-serif; max-width: 72rem; margin: 2rem auto; padding: 0 1rem }
table { border-collapse: collapse; width: 100% } th, td { text-align: left; vertical-align: top; padding: .35rem .6rem;
border-bottom: 1px solid var(--line) } td.number { text-align: right; white-space: nowrap }
pre { white-space: pre-wrap; overflow-wrap: anywhere; max-height: 24rem; overflow: auto }
td { overflow-wrap: anywhere } .right { color: var(--good) } .bad { color: var(--bad) }
"""
_HEAD = (
    '<!DOCTYPE html><html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">'
    "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">"
)


def page(results: Results, questions: Sequence[Question], others: Sequence[Results]) -> str:
    """The report as one HTML file: the figures, earlier runs, and every question with what was asked, expected and
    answered."""
    known = {question.id: question for question in questions}
    rows = "".join(_row(answer, known.get(answer.question), results.repeat) for answer in results.answers)
    head, compared = _table(("figure", "value"), _figures(results.answers)), _compared(results, others)
    beside = _table(("earlier run", *_COLUMNS), compared)
    return "".join((
        _HEAD,
        f"<title>{escape(results.name)}</title><style>{_STYLE}</style></head><body>",
        f"<h1>{escape(results.name)}</h1><p>{escape(_asked(results))}</p>{head}",
        f"<h2>Beside earlier runs</h2><p>On the questions that both have.</p>{beside}" if compared else "",
        "<h2>Questions</h2><table><thead><tr><th>question</th><th>result</th><th>expected</th><th>answered</th>"
        f"<th>cost</th><th>time</th></tr></thead><tbody>{rows}</tbody></table></body></html>\n",
    ))  # fmt: skip


def _row(answer: Answer, question: Question | None, repeat: int) -> str:
    name = escape(answer.question) + (f" ({answer.repeat})" if repeat > 1 else "")
    asked = escape(question.question) if question is not None else ""
    said = escape(answer.text[-PAGE_CHARS:] or answer.error)
    link = f'<a href="{quote(answer.session)}/{quote(TRANSCRIPT)}">transcript</a>' if answer.session else ""
    more = f"<details><summary>{asked or 'answer'}</summary><pre>{said}</pre>{link}</details>"
    verdict = f'<span class="{"right" if answer.verdict == "right" else "bad"}">{VERDICTS[answer.verdict]}</span>'
    wanted = question.answers if question is not None else {}
    given = {each: answer.given[each] for each in wanted if each in answer.given}
    cells = [f"<strong>{name}</strong> {more}", verdict, _values(wanted), _values(given) or escape(answer.error)]
    numbers = ["not known" if answer.cost is None else dollars(answer.cost), duration(answer.seconds)]
    return (
        "<tr>"
        + "".join(f"<td>{cell}</td>" for cell in cells)
        + "".join(f'<td class="number">{escape(cell)}</td>' for cell in numbers)
        + "</tr>"
    )


def _values(values: dict[str, str]) -> str:
    return "<br>".join(f"{escape(name)}: {escape(value)}" for name, value in values.items())


def _table(head: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> str:
    above = "".join(f"<th>{escape(cell)}</th>" for cell in head)
    below = "".join("<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in rows)
    return f"<table><thead><tr>{above}</tr></thead><tbody>{below}</tbody></table>"
