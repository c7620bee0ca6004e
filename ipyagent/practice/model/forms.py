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
from ipyagent.practice.model.tables import Reading

Run = Callable[[Task, Mapping[str, str]], Recipe | str]
_STATS: Final = rf"(?P<stats>(?:{STAT_EN})(?:(?:,? and |, ?)(?:{STAT_EN}))*)"
_STATS_ZH: Final = rf"(?P<stats>(?:{STAT_ZH})(?:[、和及](?:{STAT_ZH}))*)"
_ASK: Final = (
    r"(?:(?:what(?: is| are|'s)|show(?: me)?|give(?: me)?|tell me|compute|calculate|find|list|print|display) )?"
    r"(?:the )?"
)
_BY: Final = r"(?:by|per|for each|in each|grouped by)"
_ROWS: Final = r"(?:rows|records|entries|observations|lines)"
_NAME: Final = r"`?(?P<name>[A-Za-z_]\w*)`?"
_FILES: Final = rf"(?P<files>@?{TABLE_FILE}(?:(?:, ?| and |, and |和|、)@?{TABLE_FILE})*)"
_AS: Final = rf"(?:,? (?:as|into|called) {_NAME})?"
_AS_ZH: Final = rf"(?:\s*[，,]?\s*(?:为|作为|存为|叫做?|命名为)\s*{_NAME})?"


@dataclass(frozen=True, slots=True)
class Form:
    """A kind of request: its name, an example in English and in Chinese, patterns that match a whole request, and what
    answers it (None: `tables` does). `<c>`, `<g>`, `<t>` stand for columns, groups and a table. `free`: its gap takes
    any text, sentences too."""

    name: str
    example: tuple[str, str]
    patterns: tuple[str, ...]
    run: Run | None = None
    free: bool = False


FORMS: Final[tuple[Form, ...]] = (
    Form("load", ("load orders.csv as orders", "读取 orders.csv"), (
        rf"(?:load|read|open|import) (?:the )?(?:files? )?{_FILES}{_AS}(?: at once)?",
        rf"(?:load|import) (?:the )?(?:palmer )?penguins(?: data ?set| data)?{_AS}",
        rf"(?:加载|读取|读入|载入|导入|打开)(?:文件)?\s*{_FILES}{_AS_ZH}",
        rf"(?:加载|读取|载入|导入)(?:帕尔默)?企鹅(?:数据集?)?{_AS_ZH}",
    ), requests.load),
    Form("profile", ("profile orders", "概览 orders"), (
        r"(?:profile|describe|summari[sz]e|(?:give me )?an? (?:overview|summary) of) <t>",
        r"(?:which|what|how many) columns (?:are there|does <t> have|are in <t>|has <t>)",
        r"(?:概览|描述|介绍)<t>", r"<t>有(?:哪些|什么|多少)列",
    )),
    Form("missing", ("which values are missing?", "orders 有哪些缺失值？"), (
        rf"(?:which|what) values are missing(?: in <c>)?|{_ASK}(?:missing|null|nan) values(?: (?:in|of) <c>)?",
        r"(?:how many|count(?: the)?|are there(?: any)?) (?:missing|null|nan) values(?: are there)?(?: "
        r"(?:are )?(?:in|of) <c>)?",
        r"<c>有(?:哪些|多少|没有|几个)缺失值", r"(?:查看|检查|统计)?<c>的?缺失值",
        r"(?:查看|检查|统计|有?哪些|有?多少)?缺失值",
    )),
    Form("rows", ("top 3 rows by amount", "显示 orders 的前 3 行"), (
        rf"(?:{_ASK})(?P<end>first|last) (?:(?P<number>\d+) )?{_ROWS}(?: of <t>)?", r"(?:show|print|display) <t>",
        r"(?P<end>head|tail) of <t>", rf"{_ASK}(?P<end>top|bottom)(?: (?P<number>\d+))?(?: {_ROWS})? by <c1>",
        rf"{_ASK}(?:(?P<number>\d+) )?(?:{_ROWS}|row) with the (?P<end>highest|largest|lowest|smallest) <c1>",
        r"(?:显示|打印|看看?)?(?:<t>的?)?(?P<end>前|最后|后)(?P<number>\d+)[行条](?:数据|记录)?",
        r"<c1>(?P<end>最大|最高|最小|最低)的(?P<number>\d+)[行条](?:记录)?",
    )),
    Form("count", ("how many rows per city where amount > 10?", "orders 有多少行？"), (
        r"how many (?P<noun>[\w ]+?)(?: (?:are|do)(?: there| we have| I have)?)?",
        r"how many (?P<noun>rows) (?:has|does) <t>(?: have)?", rf"(?:count|{_ASK}number of) (?:the )?(?P<noun>{_ROWS})",
        rf"(?:how many|count(?: the)?|{_ASK}number of) (?P<noun>[\w ]+?)(?: are there)? {_BY} <g>",
        r"(?:<t>[中里]?)?(?:一共|总共|共)?有多少(?P<noun>行|条|条记录|行数据)",
        r"(?:每个|每种|各个?)<g>(?:各)?有?多少(?:行|条|条记录)",
    )),
    Form("statistic", ("average amount by city", "按 city 计算平均 amount"), (
        rf"{_ASK}{_STATS}(?: of)?(?: the)? <c>(?: {_BY} <g>)?", rf"{_ASK}{_STATS} values?(?: of)? <c>(?: {_BY} <g>)?",
        rf"{_BY} <g>,? {_ASK}{_STATS}(?: of)? <c>",
        rf"(?:按|根据)<g>(?:分组)?，?(?:计算|统计|求|看)?(?:{_STATS_ZH}的?<c>|<c>的{_STATS_ZH})",
        rf"(?:各个?|每个|每种|不同)<g>的(?:{_STATS_ZH}的?<c>|<c>的?{_STATS_ZH})(?:是多少)?",
        rf"(?:计算|统计|求|查看)?(?:<c>的{_STATS_ZH}|{_STATS_ZH}的?<c>)(?:是多少)?",
    )),
    Form("plot", ("plot amount by weight", "画 amount 和 weight 的散点图"), (
        r"(?:plot|draw|scatter|chart)(?: an?| the)?(?: scatter ?plot of| chart of)? <c1> (?:by|against|versus|vs\.?"
        r"|over) <o>", r"(?:(?:plot|draw|show|make)(?: me)? )?(?:an? |the )?(?:histogram|distribution) of <c1>",
        r"画<c1>的(?:直方图|分布图?)", r"画<c1>(?:随|按|对)<o>的?(?:变化|散点图|图|箱线图|折线图)?",
        r"画<c1>[和与]<o>的(?:散点)?图",
    )),
    Form("again", ("now only for the males", "只看 north"), (
        r"(?:and |now |then )*(?:only|just)(?: (?:for|with|in|those|the))* (?P<only>.+)",
        r"(?:and |now )*(?:only )?where (?P<only>.+)", r"(?:现在|再)?只(?:看|算|要|用)(?P<only>.+?)(?:的|呢)?",
    )),
    Form("rebuild", ("yes, rebuild it", "重建 orders"), (
        rf"yes|(?:yes,? )?(?:please )?rebuild (?:it|that|them|{_NAME})(?: again)?",
        rf"(?:是的?|好的?)?[，,]?重建(?:它|{_NAME})?",
    ), requests.rebuild),
    Form("list", ("which variables are there?", "有哪些变量？"), (
        r"(?:which|what|list|show)(?: me)?(?: all)?(?: the| my)? variables(?: (?:are there|do I have|have I))?",
        r"(?:which|what|list|show)(?: me)?(?: all)?(?: the| my)? (?:(?P<ending>\.?\w{2,7}) )?(?P<files>files)"
        r"(?: (?:are there|are here|do I have|(?:are )?(?:in|of) (?:this|the|my) (?:folder|directory|project)))?",
        r"(?:我?有|列出)(?:哪些|所有)?变量",
        r"(?:这里)?(?:有|列出)(?:哪些|所有)?(?P<ending>[a-z]{2,7})?(?P<files>文件)",
    ), requests.listing),
    Form("read", ("show notes.md", "查看 notes.md"), (
        r"(?:only look: )?(?:show|read|open|print|cat)(?: me)? (?P<path>@?[\w./~-]+\.[A-Za-z]\w{0,6}(?:"
        r"(?:, ?| and )@?[\w./~-]+\.[A-Za-z]\w{0,6})*)", rf"only look: profile (?P<path>@?{TABLE_FILE})",
        r"(?:查看|打开|读取|显示)(?P<path>[\w./~-]+\.[A-Za-z]\w{0,6})",
    ), requests.read),
    Form("run", ("run `1 + 1`", "运行 `1 + 1`"), (
        r"(?:run|execute)(?: this| the| my)?(?: code)?[:：]?\s*```(?:python|py)?\s*\n(?P<code>.*?)```",
        r"(?:run|execute)(?: this| the| my)?(?: code)?[:：]?\s*`(?P<code>[^`]+)`",
        r"(?:run|execute)(?: this)?(?: code)?[:：]\s*(?P<code>.+)",
        r"(?:运行|执行)(?:代码|这段代码)?[:：]?\s*(?:```(?:python|py)?\s*\n)?`?(?P<code>[^`]+?)`*",
    ), requests.run, free=True),
    Form("remember", ("remember: amounts are in euros", "记住：金额是欧元"), (
        r"(?:remember|keep in mind|don't forget|note)(?:[:：]| that)\s*(?P<said>.+)",
        r"(?:remember|keep in mind) (?P<said>.+)", r"(?:记住|记一下|记下|别忘了)[:：,，]?\s*(?P<said>.+)",
    ), requests.remember, free=True),
    Form("use", ("use the skill profile-a-dataset on orders", "用技能 profile-a-dataset 处理 orders"), (
        r"(?:use|follow|load|show) the (?:skill )?`?(?P<skill>[\w-]+)`?(?: skill)?(?: (?P<on>(?:on|for|to|with) .+))?",
        r"(?:用|使用|按)技能\s*`?(?P<skill>[\w-]+)`?\s*(?P<on>处理|分析|检查|看)\s*.+",
        r"(?:加载|查看|使用)技能\s*`?(?P<skill>[\w-]+)`?",
    ), skills.use),
    Form("plan", ("make a plan to load, clean and plot orders", "制定计划：读取、清洗、画图"), (
        r"(?:make |write )?(?:a |the )?plan (?:to|for|of) (?P<work>.+)", r"plan[:：]? (?P<work>.+)",
        r"(?:制定|做|写)?(?:一个)?(?:计划|规划)[:：]?\s*(?P<work>.+)",
    ), requests.plan, free=True),
    Form("so far", ("what have we done so far?", "到目前为止做了什么？"), (
        r"what (?:have we|did we) (?:done|do|asked?)(?: so far)?",
        r"(?:到目前为止|我们|之前)+(?:都)?做了(?:什么|哪些事?)",
    ), requests.so_far),
)  # fmt: skip
"""Every form there is."""

_SLOTS: Final = {
    "<c>": r"(?P<columns>.+)", "<g>": r"(?P<groups>.+)", "<t>": r"(?P<table>.+)", "<c1>": r"(?P<column>.+)",
    "<o>": r"(?P<other>.+)",
}  # fmt: skip


def _compiled(pattern: str) -> Iterator[re.Pattern[str]]:
    """A pattern as regular expressions; gaps for names are filled with as little as they take, and with as much."""
    for slot, told in _SLOTS.items():
        pattern = pattern.replace(slot, told)
    seen: dict[str, int] = {}

    def own(name: re.Match[str]) -> str:
        seen[name[1]] = seen.get(name[1], 0) + 1
        return f"(?P<{name[1]}{'_' * seen[name[1]]}>"  # a name may stand once only in an expression

    pattern = re.sub(r"\(\?P<([a-z]+)>", own, pattern)
    lazy = re.sub(r"(\(\?P<(?:columns?|groups|table|other)_+>\.\+)\)", r"\1?)", pattern)
    return (re.compile(each, re.I | re.S) for each in dict.fromkeys((lazy, pattern)))


_COMPILED: Final = [(form, [found for pattern in form.patterns for found in _compiled(pattern)]) for form in FORMS]
_POLITE: Final = re.compile(
    r"^(?:(?:hi|hello|ok|okay|thanks|so|well|please|now|also|next|then)\b[,.! ]*|(?:could|can|would) you(?: please)?"
    r" |i(?:'d like| would like| want)(?: you)? to (?:see |know )?|let's |help me )+"
    r"|^(?:请问|请你|请|麻烦你?|帮我|帮忙|给我|我想要?|我要)+",
    re.I,
)
_TAIL: Final = re.compile(r"(?:[\s,，]*(?:please|thanks?(?: you)?|for me|谢谢|好吗|可以吗))?[\s.!?。！？]*$", re.I)
_SENTENCE: Final = re.compile(
    r"(?<=[.!?])\s+|(?<=[。！？])\s*|\s*[;；]\s*(?:(?:and )?then,? )?"
    r"|,? (?:and )?then,? |，?(?:然后|接着|再)(?=[\u3400-\u9fff])"
    r"|,? and (?=(?:profile|describe|show|count|tell me|plot|compute|calculate|how many|which|what)\b)",
    re.I,
)
_GREETING: Final = re.compile(r"\W*(?:hi|hello|hey|help|what can you do|你好|帮助|你会什么)\W*", re.I)
_BLANK: Final = re.compile(r"(?<=[\u3400-\u9fff，。：])\s+|\s+(?=[\u3400-\u9fff，。：])")


def normal(text: str) -> str:
    """A request without polite words, quotes of names, full-width letters and closing punctuation; case is kept."""
    text = unicodedata.normalize("NFKC", text).replace("’", "'").strip()
    return re.sub(r"@(?=[A-Za-z_]\w*(?!\S*\.\w))", "", _POLITE.sub("", _TAIL.sub("", text) or text).strip())


def found(text: str) -> Iterator[tuple[Form, dict[str, str]]]:
    """The forms that match a text whole, with what stands in their gaps."""
    for form, patterns in _COMPILED:
        for said in dict.fromkeys((text, _BLANK.sub("", text))):  # Chinese words may have spaces around them, or none
            for match in filter(None, (pattern.fullmatch(said) for pattern in patterns)):
                slots = match.groupdict().items()
                yield form, {name.rstrip("_"): value.strip() for name, value in slots if value is not None}


def readings(text: str) -> list[Reading]:
    """Every way to read a text as a request about a table."""
    plain = text.replace("`", "")
    ways = [(plain, "", "")]
    if match := re.fullmatch(r"(.+?),? (?:where|with) (.+)|(.+?)[，,]?其中(.+)", plain, re.I | re.S):
        ways.append((match[1] or match[3], match[2] or match[4], ""))
    rows = r"(.+?),? (?:for|among)(?: (?:the|only))* (?!each\b|every\b|all\b)(.+)"
    if match := re.fullmatch(rows, plain, re.I | re.S):
        ways.append((match[1], "", match[2]))
    return [Reading(BUILDERS[form.name], slots, where, only)
            for main, where, only in ways for form, slots in found(main) if form.name in BUILDERS]  # fmt: skip


def _readable(text: str) -> bool:
    return any(True for _ in found(text)) or bool(readings(text))


def split(text: str) -> list[str]:
    """The requests in a text, each to be matched whole by a form; what matches none stands as it is."""
    if any(form.name in ("run", "plan") for form, _ in found(normal(text))):
        return [text]
    parts = [part for part in _SENTENCE.split(text) if part and part.strip(" .!?。！？")]
    if not any(_readable(normal(part)) for part in parts):
        return [text]
    free = next((at for at, part in enumerate(parts) if any(form.free for form, _ in found(normal(part)))), None)
    if free is not None and not any(_readable(normal(part)) for part in parts[free + 1 :]):
        parts = [*parts[:free], text[text.index(parts[free]) :]]
    return parts


def answer(task: Task, text: str, before: str | None = None) -> Recipe | str | None:
    """What answers one request; None when no form matches it. `before`: the answered question about a table that
    stands before it in the same text ("": that one was not answered; None: there is none)."""
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
            asked, only = _before(task) if before is None else before, slots["only"]
            return tables.answer(task, asked, readings, only) if asked else tables.Declined(
                task.say(f"There is no answered question about a table before this, so “{only}” applies to nothing.",
                         f"前面没有已回答的关于表的问题，“{only}” 没有可用之处。")
            )  # fmt: skip
    return tables.answer(task, plain, readings) if readings(plain) else None


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


def _about_table(text: str) -> bool:
    """Whether a text is a question about a table, and no other form takes it."""
    return bool(readings(text)) and all(form.name in BUILDERS for form, _ in found(text))


def both(task: Task, text: str) -> Recipe | None:
    """What answers all requests in a text, one after another, and names those that no form matches; None when no form
    matches any."""
    parts = split(text)
    return _all(task, parts) if any(answer(task, part) is not None for part in parts) else None


def _all(task: Task, parts: list[str]) -> Recipe:
    said, left = [], []
    before: str | None = None
    for part in parts:
        recipe = answer(task, part, before)
        if recipe is not None:
            told = recipe if isinstance(recipe, str) else (yield from recipe)
            said.append(told)
            if _about_table(asked := normal(part)):
                before = "" if isinstance(told, tables.Declined) else asked
        elif (fact := fact_of(part)) is None or fact.kind != "user":
            left.append(f"“{part.strip()}”")
            before = ""
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
        "For a real model set ANTHROPIC_API_KEY (or ANTHROPIC_BASE_URL for a local server), then `%agent model NAME`.",
        f"我是练习模型：只认识固定的请求形式，不是语言模型。{'这个请求不在其中。' * none}\n\n"
        f"我会的，举例：\n\n{examples}\n\n"
        "要用真正的模型：设置 ANTHROPIC_API_KEY（或本地服务器的 ANTHROPIC_BASE_URL），然后 `%agent model NAME`。",
    )
