"""The requests that the practice model knows: at most 25 forms, each with an example in English and in Chinese.

A request is answered only where a form matches the whole of it; two requests in one are two forms, and what no form
matches is named as not done. Nothing is guessed: everything else gets `unknown`.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from ipyagent.practice.model import requests, skills, tables
from ipyagent.practice.model.answers import BUILDERS, STAT_EN, STAT_ZH
from ipyagent.practice.model.memories import fact_of
from ipyagent.practice.model.recipe import Recipe, Task
from ipyagent.practice.model.requests import TABLE_FILE

Run = Callable[[Task, Mapping[str, str]], Recipe | str]
_ASK: Final = r"(?:(?:what(?: is| are|'s)|show|tell me|compute) )?(?:the )?"
_BY: Final = r"(?:by|per|for each)"
_NAME: Final = r"`?(?P<name>[A-Za-z_]\w*)`?"
_FILES: Final = rf"(?P<files>@?{TABLE_FILE}(?:(?:, ?| and |, and |和|、)@?{TABLE_FILE})*)"
_FILE: Final = r"@?[\w./~-]+\.[A-Za-z]\w{0,6}"


@dataclass(frozen=True, slots=True)
class Form:
    """A kind of request: its name, an example in English and in Chinese, patterns that match a whole request, and what
    answers it (None: `tables` does). `<c>`, `<g>`, `<t>` and their like stand for columns, groups and a table. `free`:
    its gap takes any text, sentences too."""

    name: str
    example: tuple[str, str]
    patterns: tuple[str, ...]
    run: Run | None = None
    free: bool = False


FORMS: Final[tuple[Form, ...]] = (
    Form("load", ("load orders.csv as orders", "读取 orders.csv"), (
        rf"(?:load|read) {_FILES}(?:,? as {_NAME})?(?: at once)?",
        rf"load (?:the )?(?:palmer )?penguins(?: data ?set| data)?(?:,? as {_NAME})?",
        rf"(?:加载|读取)\s*{_FILES}(?:\s*(?:为|存为)\s*{_NAME})?",
    ), requests.load),
    Form("profile", ("profile orders", "概览 orders"), (
        r"(?:profile|describe|summari[sz]e) <t>", r"(?:which|what) columns (?:are there|does <t> have)", r"概览<t>",
    )),
    Form("missing", ("which values are missing?", "orders 有哪些缺失值？"), (
        r"(?:which|what) values are missing(?: in <cs>)?", r"有?(?:哪些|多少)缺失值", r"<cs>有(?:哪些|多少)缺失值",
        rf"(?:how many |{_ASK})missing values(?: are(?: there)?)?(?: in <cs>)?",
    )),
    Form("count", ("how many rows per city?", "orders 有多少行？"), (
        rf"(?:how many|{_ASK}number of) rows(?: are(?: there)?)?(?: {_BY} <g>)?", r"how many rows are in <t>",
        r"(?:<t>)?有多少行", r"(?:每个|各)<g>有?多少行",
    )),
    Form("statistic", ("average amount by city", "按 city 计算平均 amount"), (
        rf"{_ASK}(?P<stat>{STAT_EN})(?: of)?(?: the)? <c>(?: {_BY} <g>)?",
        rf"按<g>(?:计算|统计)?(?P<stat>{STAT_ZH})的?<c>", rf"每个<g>的(?P<stat>{STAT_ZH})的?<c>",
        rf"(?:计算)?<c>的(?P<stat>{STAT_ZH})", rf"(?:计算)?(?P<stat>{STAT_ZH})的?<c>(?:是多少)?",
    )),
    Form("plot", ("plot amount by weight", "画 amount 和 weight 的散点图"), (
        r"(?:plot|draw) (?:the )?<c> (?:by|against) <o>", r"画<c>[和与按]<o>的?(?:散点|箱线)?图",
    )),
    Form("again", ("now only for the males", "只看 north"), (
        r"(?:and |now |then )*(?:only|just)(?: (?:for|with|in|those|the))* (?P<only>.+)", r"(?:现在)?只看(?P<only>.+)",
    )),
    Form("rebuild", ("yes, rebuild it", "重建 orders"), (
        rf"yes|(?:yes,? )?(?:please )?rebuild (?:it|that|{_NAME})(?: again)?", rf"重建(?:它|{_NAME})?",
    ), requests.rebuild),
    Form("list", ("which variables are there?", "有哪些变量？"), (
        r"(?:(?:which|what) variables are there|list (?:the |my )?variables)", r"有哪些变量",
        r"(?:which|what) (?P<files>files) (?:are )?(?:there|here|in this folder)",
        r"有哪些(?P<files>文件)",
    ), requests.listing),
    Form("read", ("show notes.md", "查看 notes.md"), (
        rf"(?:only look: )?(?:show|read) (?P<path>{_FILE})", rf"查看(?P<path>{_FILE})",
    ), requests.read),
    Form("run", ("run `1 + 1`", "运行 `1 + 1`"), (
        r"run(?: this)?[:：]?\s*```(?:python|py)?\s*\n(?P<code>.*?)```", r"run(?: this)?[:：]?\s*`(?P<code>[^`]+)`",
        r"run(?: this)?[:：]\s*(?P<code>.+)", r"运行[:：]?\s*(?:```(?:python|py)?\s*\n)?`?(?P<code>[^`]+?)`*",
    ), requests.run, free=True),
    Form("remember", ("remember: amounts are in euros", "记住：金额是欧元"), (
        r"(?:remember|keep in mind)(?:[:：]| that)?\s+(?P<said>.+)", r"记住[:：,，]?\s*(?P<said>.+)",
    ), requests.remember, free=True),
    Form("use", ("use the skill profile-a-dataset on orders", "用技能 profile-a-dataset 处理 orders"), (
        r"(?:use|load) the (?:skill )?`?(?P<skill>[\w-]+)`?(?: skill)?(?: (?P<on>(?:on|for|to|with) .+))?",
        r"(?:用|加载)技能\s*`?(?P<skill>[\w-]+)`?\s*(?P<on>(?:处理|检查)\s*.+)?",
    ), skills.use),
    Form("plan", ("make a plan to load, clean and plot orders", "制定计划：读取、清洗、画图"), (
        r"make a plan (?:to|for) (?P<work>.+)", r"制定计划[:：]?\s*(?P<work>.+)",
    ), requests.plan, free=True),
    Form("so far", ("what have we done so far?", "到目前为止做了什么？"), (
        r"what (?:have we|did we) (?:done|do|ask)(?: so far)?", r"到目前为止(?:我们)?做了什么",
    ), requests.so_far),
)  # fmt: skip
"""Every form there is."""

_GAPS: Final = {
    "<c>": "(?P<column>.+?)", "<cs>": "(?P<columns>.+?)", "<g>": "(?P<groups>.+?)", "<t>": "(?P<table>.+?)",
    "<o>": "(?P<other>.+?)",
}  # fmt: skip
_COMPILED: Final = [
    (form, re.compile(re.sub(r"(?<!P)<\w+>", lambda gap: _GAPS[gap[0]], pattern), re.I | re.S))
    for form in FORMS for pattern in form.patterns
]  # fmt: skip
_POLITE: Final = re.compile(r"^(?:(?:please|now|also|then|(?:can|could) you)\b[, ]*)+|^(?:请问?|帮我)+", re.I)
_TAIL: Final = re.compile(r"(?:[\s,，]*(?:please|thanks|谢谢))?[\s.!?。！？]*$", re.I)
_SENTENCE: Final = re.compile(
    r"(?<=[.!?])\s+|(?<=[。！？])\s*|\s*[;；]\s*(?:(?:and )?then,? )?|,? (?:and )?then,? "
    r"|，?(?:然后|再)(?=[\u3400-\u9fff])|,? and (?=(?:profile|describe|show|tell me|plot|how many|which|what)\b)",
    re.I,
)
_GREETING: Final = re.compile(r"\W*(?:hi|hello|help|what can you do|你好|帮助|你会什么)\W*", re.I)
_BLANK: Final = re.compile(r"(?<=[\u3400-\u9fff，。：])\s+|\s+(?=[\u3400-\u9fff，。：])")


def normal(text: str) -> str:
    """A request without polite words, quotes of names, full-width letters and closing punctuation; case is kept."""
    text = unicodedata.normalize("NFKC", text).replace("’", "'").strip()
    return re.sub(r"@(?=[A-Za-z_]\w*(?!\S*\.\w))", "", _POLITE.sub("", _TAIL.sub("", text) or text).strip())


def found(text: str) -> Iterator[tuple[Form, dict[str, str]]]:
    """The forms that match a text whole, with what stands in their gaps."""
    for form, pattern in _COMPILED:
        for said in dict.fromkeys((text, _BLANK.sub("", text))):  # Chinese words may have spaces around them, or none
            if match := pattern.fullmatch(said):
                yield form, {name: value.strip() for name, value in match.groupdict().items() if value is not None}


def readings(text: str) -> list[tables.Reading]:
    """Every way to read a text as a request about a table."""
    return [(BUILDERS[form.name], slots) for form, slots in found(text.replace("`", "")) if form.name in BUILDERS]


def _about_table(text: str) -> bool:
    """Whether a text is a question about a table, and no other form takes it."""
    names = [form.name for form, _ in found(text.replace("`", ""))]
    return bool(names) and all(name in BUILDERS for name in names)


def split(text: str) -> list[str]:
    """The requests in a text, each to be matched whole by a form; what matches none stands as it is."""
    free = next((form.name for form, _ in found(normal(text)) if form.free), "")
    parts = [part for part in _SENTENCE.split(text) if part and part.strip(" .!?。！？")]
    more = any(_about_table(said := normal(part)) or any(True for _ in found(said)) for part in parts[free != "" :])
    return parts if more and free not in ("run", "plan") else [text]


def answer(task: Task, text: str, alone: bool = True) -> Recipe | str | None:
    """What answers one request; None when no form matches it. `alone`: it has no other before it in the same text."""
    plain = normal(text)
    for form, slots in found(_POLITE.sub("", text.strip())):
        if form.free and form.run is not None:  # what it quotes stays as it was typed
            return form.run(task, slots)
    for form, slots in found(plain):
        if form.run is not None and (form.name != "load" or task.has("python")):
            return form.run(task, slots)
        if form.name == "profile" and re.fullmatch(f"@?{TABLE_FILE}", slots.get("table", ""), re.I):
            return _profiled(task, slots["table"].lstrip("@"))
        if form.name == "again" and not any(each.run is not None for each, _ in found(plain)):
            asked, only = _before(task) if alone else "", slots["only"]
            return tables.answer(task, asked, readings, only) if asked else task.say(
                f"There is no answered question about a table in an earlier request, so “{only}” applies to nothing.",
                f"前面没有已回答的关于表的问题，“{only}” 没有可用之处。",
            )  # fmt: skip
    return tables.answer(task, plain, readings) if _about_table(plain) else None


def _profiled(task: Task, path: str) -> Recipe:
    """Loads a file and gives an overview of it."""
    name = requests.name_for(task, path)
    said = yield from requests.load(task, {"files": path, "name": name})
    return said + "\n\n" + (yield from tables.answer(task, f"profile {name}", readings))


def _before(task: Task) -> str:
    """The last question about a table that was answered, the newest turn left out; "" without one, or where it is
    not known which of several was."""
    for turn in reversed(task.conversation.turns[:-1]):
        asked = [text for part in split(turn.words) if _about_table(text := normal(part))]
        done = [step for step in turn.steps if step.code and not step.failed and not tables.looks(step.code)]
        if asked and done:
            return asked[-1] if len(done) >= len(asked) else ""
    return ""


def both(task: Task, text: str) -> Recipe | None:
    """What answers all requests in a text, one after another, and names those that no form matches; None when no form
    matches any."""
    parts = split(text)
    return _all(task, parts) if any(answer(task, part) is not None for part in parts) else None


def _all(task: Task, parts: list[str]) -> Recipe:
    said, left = [], []
    for at, part in enumerate(parts):
        recipe = answer(task, part, alone=at == 0)
        if recipe is not None:
            said.append(recipe if isinstance(recipe, str) else (yield from recipe))
        elif (fact := fact_of(part)) is None or fact.kind != "user":
            left.append(f"“{part.strip()}”")
    if left:
        words = ", ".join(left)
        said.append(task.say(f"Not done, and not taken into account: {words}.", f"没有做，也没有考虑：{words}。"))
    return "\n\n".join(said)


def unknown(task: Task) -> str:
    """What this is, what it can do, how to connect a language model."""
    none = _GREETING.fullmatch(task.conversation.turn.words) is None
    examples = "\n".join(f"- {form.example[task.chinese]}" for form in FORMS)
    return task.say(
        f"I am the practice model: fixed forms of requests, not a language model.{' This is none of them.' * none}\n\n"
        f"What I can do, by example:\n\n{examples}\n\n"
        "For a real model: `%agent model NAME`, with ANTHROPIC_API_KEY set (or ANTHROPIC_BASE_URL for a local server).",
        f"我是练习模型：只认识固定的请求形式，不是语言模型。{'这个请求不在其中。' * none}\n\n"
        f"我会的，举例：\n\n{examples}\n\n"
        "要用真正的模型：`%agent model NAME`，并已设置 ANTHROPIC_API_KEY（或本地服务器的 ANTHROPIC_BASE_URL）。",
    )
