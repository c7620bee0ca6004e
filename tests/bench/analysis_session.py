"""A data-analysis session of 300 turns on real tables: the outputs are what pandas printed just now.

Deterministic: the same tables and the same pandas give the same session. Each turn asks for one
thing, runs one or two pieces of code and says what came out; replies think, as current models do.
"""

from __future__ import annotations

import contextlib
import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ipyagent.replay.recording import Collector, Recording

TABLES = Path(__file__).resolve().parents[2].parent / "shared" / "data" / "tables"
TURNS = 300
MOST_CHARS = 60_000
STEPS: tuple[tuple[str, str], ...] = (
    ("Load {file} and show me how it looks.", "df = pd.read_csv(path)\nprint(df.shape)\nprint(df.head(8).to_string())"),
    ("Which columns have missing values, and how are they typed?", "print(df.isna().sum().to_string())\ndf.info()"),
    ("Describe the numeric columns of {file}.", "print(df.describe().to_string())"),
    ("How is {c} distributed?", "print(df['{c}'].value_counts().head(15).to_string())"),
    ("Show the rows with the largest {n}.", "print(df.nlargest(8, '{n}').to_string())"),
    ("Average {n} by {c}, please.",
     "print(df.groupby('{c}')['{n}'].agg(['mean', 'median', 'count']).head(15).to_string())"),
    ("Are there outliers in {n}?", "q = df['{n}'].quantile([.25, .75])\ni = q.iloc[1] - q.iloc[0]\n"
     "out = df[(df['{n}'] < q.iloc[0] - 1.5 * i) | (df['{n}'] > q.iloc[1] + 1.5 * i)]\nprint(len(out))\n"
     "print(out.head(8).to_string())"),
    ("Correlate the numeric columns.", "print(df.select_dtypes('number').corr().round(3).to_string())"),
    ("Give me a sample of 8 rows to check by eye.", "print(df.sample(8, random_state=7).to_string())"),
    ("Print {n} so that I can look for patterns.", "print(df['{n}'].head(60).to_string())"),
)
LONG = "print(df.head(150).to_string())"
"""What one turn in fifty prints: a result that no window should hold for long."""
SAID = (
    "The {word} {c} stands out: the figures above show how {n} varies, and nothing looks broken. "
    "I would look at the missing values next, before any model is fitted."
)


def recording(folder: Path = TABLES, turns: int = TURNS) -> Recording:
    """The session; `folder` holds the tables as CSV files."""
    import pandas as pd

    collected = Collector("an analysis")
    frames = [(path, pd.read_csv(path)) for path in sorted(folder.glob("*.csv"))]
    for number in range(turns):
        path, frame = frames[number // 10 % len(frames)]
        step, code = STEPS[number % 10]
        code = LONG if number % 50 == 9 else code
        names = _names(path, frame, number)
        collected.user([{"type": "text", "text": step.format(**names)}])
        thought = f"Step {number}: {names['file']}, column {names['n']}. One call is enough, then a short answer."
        made = [_call(number, 0, code.format(**names), thought)]
        if number % 4 == 1:  # a second look in the same turn
            made.append(_call(number, 1, f"print(df['{names['n']}'].describe().to_string())", ""))
        for blocks in made:
            collected.reply(blocks)
            call = blocks[-1]
            collected.result(call["id"], [{"type": "text", "text": _run(call["input"]["code"], frame, path)}])
        words = ("column", "group", "distribution of", "table's", "spread of")
        collected.reply([{"type": "text", "text": SAID.format(word=words[number % 5], **names)}])
    return collected.finished()


def _names(path: Path, frame: Any, number: int) -> dict[str, str]:
    numeric = [name for name in frame.select_dtypes("number").columns if "'" not in name]
    other = [name for name in frame.columns if name not in numeric and "'" not in name] or numeric
    return {"file": path.name, "n": numeric[number % len(numeric)], "c": other[number % len(other)]}


def _call(number: int, part: int, code: str, thought: str) -> list[dict[str, Any]]:
    thinking = [{"type": "thinking", "thinking": thought}] if thought else []
    return [*thinking, {"type": "tool_use", "id": f"c{number}-{part}", "name": "python", "input": {"code": code}}]


def _run(code: str, frame: Any, path: Path) -> str:
    """What the code prints, at most MOST_CHARS of it."""
    import pandas as pd

    printed = io.StringIO()
    with contextlib.redirect_stdout(printed), pd.option_context("display.width", 200):
        exec(code, {"pd": pd, "df": frame.copy(), "path": path})  # the code of STEPS
    return printed.getvalue()[:MOST_CHARS]


def sizes(made: Recording) -> Iterator[int]:
    """Characters of every result, in order."""
    for turn in made.turns:
        for one in turn.rounds:
            for result in one.results.values():
                yield sum(len(str(block["text"])) for block in result.blocks)
