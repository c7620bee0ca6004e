"""Work by a skill: find the one whose description fits, load it, and run the code that its body has, in order.

A body's fenced `python` blocks are run as they stand, `bash` and `sh` blocks by the `shell` tool. In them
`<folder>` is the skill's folder, `<file>` the file and `<table>` the DataFrame that the request names, and so is `df`
where there is no `df`; a block with a gap that nothing fills is left out and named. The first error ends the work.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple

from .choosing import look_at_named
from .columns import find
from .intents import FILE, Ask
from .phrases import bag, english
from .recipe import Ending, Recipe, Task
from .session import listed_skills, word_set

_SKILL = re.compile(r'<skill name="([^"\n]+)"[^>\n]*>\n(.*?)\n</skill>', re.S)
_AGAIN = re.compile(r"wants you to go by the skill (.+), which is in the context already\.")
_BLOCK = re.compile(r"^```(python|py|bash|sh|shell)\s*\n(.*?)^```", re.S | re.M)
_GAP = re.compile(r"<([A-Za-z][A-Za-z' _-]{1,30})>")
_GAPS = {"skill folder": "folder", "this folder": "folder", "path": "file", "dataframe": "table"}
"""Other names of gaps."""
_DF = re.compile(r"(?<![\w.\"'])df(?![\w\"'])(?!\s*=[^=])")
_FOLDER = re.compile(r"^Folder: (.+?)(?: \(paths below are relative to it\))?$", re.M)
_POINT = re.compile(r"\s*(?:#+|\d+\.|-)\s")
_WORK = re.compile(r"\b(?:use|using|apply|follow|go by|with)\b.*\bskill\b|用.*技能", re.I)
_NOTEBOOK = re.compile(r"(?:^|(?<=[\s@,，:：(\"'`“]))([\w./\\~-]+\.ipynb)(?!\w)", re.I)
"""A notebook is no table to load, but a skill may be about one."""
_SPECIAL = re.compile(
    r"\bsignifican(?:t|tly|ce)\b|\bp.?values?\b|\bt.?tests?\b|\bstatistical tests?\b|\bhypothes[ei]s\b|\ba/?b.?tests?\b"
    r"|\banova\b|\bchi.?squared?\b|\b(?:train|evaluate)\b.*\b(?:model|classifier|regressor)\b|\bclassif(?:y|ier)\b"
    r"|\bcross.?validat\w+|\bheld.?out\b|\bleakage\b|显著|假设检验|统计检验|p\s*值|训练.*模型|评估.*模型|交叉验证",
    re.I,
)
_TERMS = {
    "显著": "significant", "检验": "test", "训练": "train", "模型": "model", "评估": "evaluate", "差异": "difference",
}  # fmt: skip
_TARGET = re.compile(r"\b(?:predict\w*|classif\w+|target|estimate)\b|预测|目标", re.I)
LEAST = 2
"""Words that a request and a description must share."""
_COMMON = bag(
    "data table file column columns rows use when user asks this what from into one does make please show need want "
    "good them they not any all how can which"
)


class Work(NamedTuple):
    """A skill that stands in the conversation: its name and the text of its element."""

    name: str
    text: str

    @property
    def has_code(self) -> bool:
        """Whether its body has blocks that can be run."""
        return _BLOCK.search(self.text) is not None


def by_user(task: Task) -> Work | None:
    """The skill that the user has loaded for this very request."""
    extras = task.conversation.turn.extras
    found = [Work(*match) for extra in extras for match in _SKILL.findall(extra)]
    for name in (name for extra in extras for name in _AGAIN.findall(extra)):
        if (standing := _standing(task, name)) is not None:
            found.append(Work(standing[1], standing[2]))
    return found[-1] if found else None


def special(task: Task, ask: Ask) -> str:
    """The listed skill for work that wants more care than our own recipe has (a test, a trained model); "" for none."""
    if _SPECIAL.search(ask.text) is None:
        return ""
    terms = " ".join(word for term, word in _TERMS.items() if term in ask.text)
    return fitting(task, Ask(ask.kind, f"{ask.text} {terms}"))


def fitting(task: Task, ask: Ask) -> str:
    """The listed skill that shares most words with the request; "" when none shares enough."""
    if not task.has("load_skill"):
        return ""
    wanted = _words(ask.text)
    best, most = "", LEAST - 1
    for name, description in listed_skills(task):
        about = _words(f"{name.replace('-', ' ')} {description}")
        shared = len(wanted & about)
        if shared > most:
            best, most = name, shared
    return best


def named(task: Task, ask: Ask) -> str:
    """The listed skill that a request names; "" for none."""
    asked = ask.text.lower()
    known = sorted(dict(listed_skills(task)), key=len, reverse=True)
    return next((name for name in known if name in asked or name.replace("-", " ") in asked), "")


def is_work(ask: Ask) -> bool:
    """Whether a request that names a skill wants work done by it, and not only to see it."""
    return _WORK.search(ask.text) is not None and re.search(r"\b(?:on|for|to)\b\s+\S|[@.]", ask.text) is not None


def load(task: Task, name: str, why: str) -> Recipe:
    """Loads a skill and works by it; what came of it."""
    step = yield from task.call("load_skill", {"name": name}, why)
    if step.failed:
        raise Ending(task.say("The skill was not loaded: ", "技能没有加载：") + step.text.strip()[:300])
    found = _SKILL.search(step.text) or _standing(task, name)
    if found is None:
        raise Ending(task.say("The skill was not loaded: ", "技能没有加载：") + step.text.strip()[:300])
    return (yield from follow(task, Work(found[1], found[2])))


def follow(task: Task, work: Work) -> Recipe:
    """Runs the code of a skill's body; its points when it has none."""
    folder = _FOLDER.search(work.text)
    yield from look_at_named(task, task.conversation.turn.words)
    table = _table(task)
    known = {"folder": folder[1].strip() if folder else "", "file": _file(task), "table": table}
    known |= {"target": _target(task, table)}
    head = task.say(f"By the skill `{work.name}`:", f"按技能 `{work.name}`：")
    blocks = _BLOCK.findall(work.text)
    if not blocks:
        return "\n".join([head, "", *(f"> {point}" for point in _points(work.text))])
    own_df = "df" in {*task.known.tables, *task.known.sizes} or re.search(r"^\s*df\s*=[^=]", work.text, re.M)
    said, left = [], []
    for number, (language, code) in enumerate(blocks, 1):
        filled = _GAP.sub(lambda gap: _fill(gap, known), code).strip("\n")
        if known["table"] and not own_df:
            filled = _DF.sub(known["table"], filled)
        if gap := _GAP.search(filled):
            left.append(f"{number} ({gap[0]})")
            continue
        why = f"Step {number} of {len(blocks)} of the skill {work.name}."
        if language in ("python", "py"):
            step = yield from task.python(filled, why)
        else:
            step = yield from task.call("shell", {"command": filled}, why)
        if step.failed:
            where = task.say(f"Step {number} of `{work.name}`: ", f"`{work.name}` 第 {number} 步：")
            raise Ending(where + task.failure(step.text))
        out = step.text.strip()[:3000]
        title = task.say(f"Step {number}", f"第 {number} 步")
        said.append(f"{title}:\n\n```text\n{out}\n```\n" if out else f"{title}: {task.say('done', '完成')}\n")
    if left:
        names = ", ".join(left)
        said.append(task.say(f"Left out, the request does not say what goes there: step {names}",
                             f"没有做（请求中没有说明）：第 {names} 步"))  # fmt: skip
    return "\n".join([head, "", *said])


def _fill(gap: re.Match[str], known: Mapping[str, str]) -> str:
    """What stands for a gap; the gap itself when nothing does."""
    name = gap[1].lower()
    return known.get(_GAPS.get(name, name)) or gap[0]


def _points(text: str) -> list[str]:
    return [line.strip() for line in text.splitlines() if _POINT.match(line)][:8]


def _words(text: str) -> set[str]:
    """Words that tell one kind of work from another, in one form."""
    return {_stem(word) for word in word_set(text) if word not in _COMMON}


def _stem(word: str) -> str:
    for ending in ("ing", "ies", "ed", "es", "s"):
        if word.endswith(ending) and len(word) - len(ending) >= 3:
            return word[: -len(ending)].rstrip("ey")
    return word.rstrip("ey") if len(word) > 4 else word


def _standing(task: Task, name: str) -> re.Match[str] | None:
    """A skill that came into the context earlier, its newest version."""
    texts = [text for turn in task.conversation.turns for text in (*turn.extras, *(step.text for step in turn.steps))]
    found = [match for text in texts for match in _SKILL.finditer(text) if match[1] == name]
    return found[-1] if found else None


def _file(task: Task) -> str:
    asked = task.conversation.turn.words
    found = _NOTEBOOK.search(asked) or FILE.search(asked)
    named = next((group for group in found.groups() if group), "") if found else ""
    return named or next(iter(task.conversation.turn.attached("file")), "")


def _table(task: Task) -> str:
    """The DataFrame that the request names or attaches; else the one whose columns it names; else the one that was
    used last. One that the agent computed comes after those that it was computed from."""
    known, asked = task.known, task.conversation.turn.words
    frames = list(dict.fromkeys([*known.tables, *known.sizes]))
    words: list[str] = re.findall(r"[A-Za-z_]\w*", asked)
    named = [name for name in words if name in frames]
    if chosen := named or list(task.conversation.turn.attached("variable")):
        return chosen[0]
    used = [name for name in known.used if name in frames or not known.listed]
    latest = {name: at for at, name in enumerate(used)}
    said = english(asked)

    def fit(name: str) -> tuple[int, bool, int, int]:
        told = known.tables.get(name)
        columns = {each.column for each in find(said, list(told.dtypes))} if told else set()
        first = name in known.loaded or name not in known.own
        return len(columns), first, latest.get(name, -1), known.sizes.get(name, (0, 0))[0]

    found: str = max(dict.fromkeys([*frames, *used]), key=fit, default="")
    return found


def _target(task: Task, table: str) -> str:
    """The column that the request wants predicted; "" when it names none."""
    told = task.known.tables.get(table)
    words = english(task.conversation.turn.words)
    verb = _TARGET.search(words)
    named = find(words[verb.end() :], list(told.dtypes)) if told and verb else []
    return named[0].column if named else ""
