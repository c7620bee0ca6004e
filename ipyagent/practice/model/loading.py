"""Recipes about what exists: loading files and data sets, rebuilding, variables, files, running given code."""

from __future__ import annotations

import difflib
import keyword
import re
from collections.abc import Generator
from pathlib import PurePosixPath

from . import reading
from .conversation import Step
from .intents import FILE, SETS, Ask
from .lost import gone, gone_text, how_built
from .names import quoted
from .recipe import Act, Ending, Recipe, Task

Listing = Generator[Act, tuple[Step, ...], list[str]]

_AS = re.compile(
    r"\b(?:as|into|called|named|(?:call|name) it|=)\s+`?([A-Za-z_]\w*)`?\s*$|(?:叫做?|命名为|存为|存成|赋给"
    r"|变量名?[为是])\s*`?([A-Za-z_]\w*)",
    re.I,
)
_READERS = {
    "csv": "pd.read_csv({path})", "gz": "pd.read_csv({path})", "tsv": 'pd.read_csv({path}, sep="\\t")',
    "txt": 'pd.read_csv({path}, sep=None, engine="python")', "parquet": "pd.read_parquet({path})",
    "json": "pd.read_json({path})", "jsonl": "pd.read_json({path}, lines=True)", "xlsx": "pd.read_excel({path})",
    "xls": "pd.read_excel({path})", "feather": "pd.read_feather({path})",
}  # fmt: skip


def variable(stem: str) -> str:
    """A valid variable name made from a file's name; `df` when that would be long or no name."""
    name = re.sub(r"\W+", "_", stem.split(".")[0], flags=re.ASCII).strip("_").lower()
    name = f"df_{name}" if name[:1].isdigit() else name
    return name if name and len(name) <= 24 and not keyword.iskeyword(name) else "df"


def load(task: Task, ask: Ask) -> Recipe:
    """Reads a file or the data set of an installed package into a named variable and says its shape."""
    wanted = _AS.search(ask.text)
    name = (wanted[1] or wanted[2]) if wanted else ""
    name = "" if name.lower() in ("a", "the", "dataframe", "csv", "pandas") else name
    attached = task.conversation.turn.attached("file")
    found = FILE.search(ask.text)
    path = next((each for each in found.groups() if each), "") if found else (attached or ("",))[0]
    if not path:
        dataset = next((key for key, pattern in SETS.items() if re.search(pattern, ask.text, re.I)), "")
        if dataset:
            return (yield from _dataset(task, dataset, name or task.fresh(dataset)))
        path = yield from _search(task, ask.text)
    name = name or task.fresh(variable(PurePosixPath(path).name))
    path = re.sub(r"^(?:@|读取|读入|读一下|读|加载|载入|导入|打开)", "", path)
    step = yield from task.python(_code(path, name), f"Load {path} and look at its shape and columns.")
    kind = reading.error(step.text)[0] if step.failed else ""
    notes: list[str] = []
    options = ""
    if kind == "FileNotFoundError":
        near = yield from _similar(task, path)
        same = [each for each in near if PurePosixPath(each).name.lower() == PurePosixPath(path).name.lower()]
        if len(same) != 1:
            raise Ending(_not_found(task, path, near))
        path = same[0]
        step = yield from task.python(_code(path, name), f"There is one file of that name: {path}.")
    elif kind == "UnicodeDecodeError":
        encoding = yield from _encoding(task, path)
        options = f'encoding="{encoding}"'
        step = yield from task.python(_code(path, name, options), f"The file is not UTF-8; {encoding} fits its bytes.")
        if step.failed and encoding != "latin-1":
            encoding, options = "latin-1", 'encoding="latin-1"'
            step = yield from task.python(_code(path, name, options), "Latin-1 reads any byte.")
        notes.append(
            task.say(f"The file is not UTF-8; I read it as {encoding}.", f"文件不是 UTF-8，按 {encoding} 读取。")
        )
    elif kind == "ParserError":
        step = yield from task.python(
            _code(path, name, 'sep=None, engine="python"'), "The separator is not a comma; pandas can find it."
        )
    if step.failed:
        raise Ending(task.failure(step.text))
    separator = _separator(step.text)
    if separator and path.rsplit(".", 1)[-1].lower() in ("csv", "tsv", "txt", "gz"):
        options = ", ".join(filter(None, [f"sep={quoted(separator)}", options]))
        again = yield from task.python(_code(path, name, options), "One column with separators in its name.")
        if not again.failed:
            step = again
            shown = {";": "“;”", "\t": task.say("a tab", "制表符"), "|": "“|”"}[separator]
            notes.append(task.say(f"The separator is {shown}.", f"分隔符是{shown}。"))
            if separator == ";" and _DECIMAL_COMMA.search(step.text.partition("]\n")[2]):
                again = yield from task.python(
                    _code(path, name, f'{options}, decimal=","'), "Numbers are written with a decimal comma."
                )
                step = step if again.failed else again
                notes += [] if again.failed else [task.say("Decimals are written with a comma.", "小数点写作逗号。")]
    return "\n\n".join(filter(None, [_loaded(task, step.text, f"`{path}`", name), " ".join(notes)]))


_DECIMAL_COMMA = re.compile(r"(?<![\d,.])-?\d+,(?:\d{1,2}|\d{4,})(?![\d,])")


def _separator(text: str) -> str:
    """The separator in the name of the only column there is; empty when there are more or it has none."""
    size, listed = reading.shape(text), re.search(r"^\[.*\]$", text, re.M)
    names = reading.literal(listed.group()) if listed else None
    if size is None or size[1] != "1" or not isinstance(names, list) or len(names) != 1:
        return ""
    return max((each for each in ";\t|" if each in str(names[0])), key=str(names[0]).count, default="")


def _encoding(task: Task, path: str) -> Generator[Act, tuple[Step, ...], str]:
    """GB18030 when nearly all high bytes stand in pairs as Chinese text has them, else Latin-1."""
    code = (
        "import re\nfrom pathlib import Path\n\n"
        "print(*(lambda raw: ("
        'sum(map(len, re.findall(rb"[\\x81-\\xfe][\\x40-\\x7e\\x80-\\xfe]", raw))), "bytes in GB pairs,", '
        'sum(map(len, re.findall(rb"[\\x80-\\xff]{2,}", raw))), "in runs, of", '
        'len(re.findall(rb"[\\x80-\\xff]", raw))))'
        f"(Path({quoted(path)}).read_bytes()[:200_000]))"
    )
    step = yield from task.python(code, "The file is not UTF-8; do its bytes look like Chinese text?")
    found = re.search(r"(\d+) bytes in GB pairs, (\d+) in runs, of (\d+)", step.text)
    if step.failed or found is None:
        return "latin-1"
    pairs, runs, high = map(int, found.groups())
    return "gb18030" if high and pairs >= 0.9 * high and runs >= 0.7 * high else "latin-1"


def _code(path: str, name: str, options: str = "") -> str:
    ending = path.rsplit(".", 1)[-1].lower()
    read = _READERS.get(ending, _READERS["csv"]).format(path=quoted(path))
    read = f"pd.read_csv({quoted(path)}, {options})" if options else read
    return f"import pandas as pd\n\n{name} = {read}\nprint({name}.shape)\nprint(list({name}.columns))\n{name}.head()"


def _dataset(task: Task, dataset: str, name: str) -> Recipe:
    if dataset == "penguins":
        code = f"from palmerpenguins import load_penguins\n\n{name} = load_penguins()"
    else:
        code = f"from vega_datasets import data\n\n{name} = data.{dataset}()"
    code += f"\nprint({name}.shape)\nprint(list({name}.columns))\n{name}.head()"
    step = yield from task.sure(code, f"The data set {dataset} comes with an installed package.")
    return _loaded(task, step.text, task.say(f"the `{dataset}` data set", f"`{dataset}` 数据集"), name)


def _loaded(task: Task, text: str, what: str, name: str) -> str:
    size = reading.shape(text)
    task.known.forget(name)
    task.known.names.add(name)
    task.known.used.append(name)
    if size is None:
        return f"```text\n{text.strip()[:1500]}\n```"
    listed = re.search(r"^\[.*\]$", text, re.M)
    columns = reading.literal(listed.group()) if listed else None
    names = ", ".join(f"`{each}`" for each in (columns or [])[:30])
    return task.say(
        f"Loaded {what} as `{name}`: **{size[0]}** rows, **{size[1]}** columns.\n\nColumns: {names}.",
        f"已把{what}读入 `{name}`：**{size[0]}** 行，**{size[1]}** 列。\n\n列：{names}。",
    )


def listing(task: Task, pattern: str, why: str) -> Act:
    """The call that lists files: the `glob` tool, or Python where there is none."""
    if task.has("glob"):
        return Act((("glob", {"pattern": pattern}),), why)
    task.need("python")
    return Act(
        (
            (
                "python",
                {"code": f'from pathlib import Path\n\nprint(*sorted(map(str, Path().glob("{pattern}"))), sep="\\n")'},
            ),
        ),
        why,
    )


def _similar(task: Task, path: str) -> Listing:
    ending = path.rsplit(".", 1)[-1]
    (step, *_) = yield listing(task, f"**/*.{ending}", f"{path} is not there; are there files with a similar name?")
    task.allowed(step)
    there = [] if step.failed else reading.names(step.text)
    wanted = PurePosixPath(path).stem.lower()
    score = {each: difflib.SequenceMatcher(None, wanted, PurePosixPath(each).stem.lower()).ratio() for each in there}
    return sorted((each for each in there if score[each] > 0.4), key=lambda each: (-score[each], each))[:5]


def _not_found(task: Task, path: str, near: list[str]) -> str:
    listed = ", ".join(f"`{each}`" for each in near)
    if near:
        return task.say(
            f"There is no file `{path}`. Similar files: {listed}. Which one?",
            f"没有文件 `{path}`。名字相近的有：{listed}。要读哪一个？",
        )
    return task.say(
        f"There is no file `{path}`, and none with a similar name.", f"没有文件 `{path}`，也没有名字相近的文件。"
    )


def _search(task: Task, text: str) -> Recipe:
    """The one file whose name shares a word with the request."""
    (step, *_) = yield listing(task, "**/*", "No path was given; I look for a file with such a name.")
    task.allowed(step)
    files = [each for each in reading.names(step.text) if each.rsplit(".", 1)[-1].lower() in _READERS]
    words = [word.lower() for word in re.findall(r"[A-Za-z]{3,}", text)]
    hits = [
        each
        for each in files
        if any(
            word in PurePosixPath(each).name.lower()
            for word in words
            if word not in ("data", "file", "load", "the", "set", "csv")
        )
    ]
    if len(hits) == 1:
        return hits[0]
    listed = ", ".join(f"`{each}`" for each in (hits or files)[:10])
    if not listed:
        raise Ending(task.say("I see no data files here. Give me a path.", "这里没有看到数据文件，请给出路径。"))
    raise Ending(task.say(f"Which file? There are: {listed}.", f"读哪个文件？有：{listed}。"))


def rebuild(task: Task, ask: Ask) -> Recipe:
    """Runs again the code that made a variable which is gone."""
    lost = gone(task.conversation)
    said = next((turn.said for turn in reversed(task.conversation.turns[:-1]) if turn.said), "")
    similar = re.search(r"(?:Similar files|名字相近的有)[:：] `([^`]+)`", said)
    if similar:
        return (yield from load(task, Ask("load", f'load "{similar[1]}"')))
    words = re.findall(r"[A-Za-z_]\w*", ask.text)
    offered = re.findall(r"`([A-Za-z_]\w*)`", said)
    name = next((each for each in (*words, *offered, *lost) if each in lost or how_built(task.conversation, each)), "")
    if not name:
        return task.say(
            "I know of nothing that is gone and that I could rebuild.", "我不知道有什么丢失的变量需要重建。"
        )
    code = how_built(task.conversation, name)
    if not code:
        return gone_text(task, name, lost.get(name, ""))
    step = yield from task.python(code, f"`{name}` was made by this code earlier; run it again.")
    if step.failed:
        raise Ending(task.failure(step.text))
    size = reading.shape(step.text)
    shape = task.say(f": {size[0]} rows, {size[1]} columns", f"：{size[0]} 行，{size[1]} 列") if size else ""
    return task.say(
        f"Rebuilt `{name}`{shape}, with the code that made it before.", f"已用原来的代码重建 `{name}`{shape}。"
    )
