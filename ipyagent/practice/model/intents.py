"""What a request asks for: one kind, found by patterns in English and Chinese, first match wins.

A short request that only makes sense after another ("and by island?", "再按性别") is an amendment; the newest full
request before it, with all amendments since, is what is asked.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from .comparing import NUMBER, OPERATOR
from .conversation import Turn
from .kinds import KINDS
from .phrases import bag, english, normal, stat

FILE = re.compile(
    r"[\"'`“]([^\"'`”\n]+?\.(?:csv|tsv|txt|parquet|jsonl?|xlsx?|feather|gz))[\"'`”]"
    r"|(?:^|(?<=[\s@,，:：(]))([\w./\\~-]+?\.(?:csv|tsv|txt|parquet|jsonl?|xlsx?|feather|gz))(?![\w])"
    r"|([A-Za-z0-9_./\\~-]+\.(?:csv|tsv|txt|parquet|jsonl?|xlsx?|feather|gz))(?![A-Za-z0-9])",
    re.I,
)

SETS = {
    "penguins": r"penguins?|palmer"
        r"|企鹅", "cars": r"\bcars\b(?!\.)|汽车", "iris": r"\biris\b|鸢尾", "stocks": r"\bstocks\b|股票",
    "seattle_weather": r"seattle.weather|西雅图", "barley": r"\bbarley\b|大麦",
}  # fmt: skip

_LOAD = r"\b(?:load|read in|read|import|open|get|fetch)\b|读取|读入|读一下|读|加载|载入|导入|打开"

_COMPILED = tuple((kind, re.compile(pattern, re.I)) for kind, pattern in KINDS)

_SUM = re.compile(
    r"^(?:what(?:'s| is)|compute|calculate|evaluate|how much is|计算|算"
    r"|求)?\s*(?=[^a-z]*\d)([\d\s.()+*/%^×÷,-]*[+*/%^×÷-][\d\s.()+*/%^×÷,-]*\d\)*)\s*(?:=|等于多少|是多少"
    r"|等于几)?\s*\??$",
    re.I,
)
GROUPING = re.compile(
    r"\b(?:by|per|for each|for every|in each|of each|across|within each|each)\b|按照?|各|每|分组|不同", re.I
)
_AMEND = re.compile(
    r"^(?:and|now|then|also|what about|how about|only|just|what if|same|instead|but|the same|again)\b|^(?:那么?"
    r"|再|只|仅|换成?|改成?|还有|同样|现在|然后|也|接着)", re.I
)  # fmt: skip
_THAT = re.compile(r"\b(?:that|it|this|these|those|them|the result|the same)\b|它|这个|这些|那个|结果|出来|上面", re.I)
_CHART = re.compile(
    r"\b(?:plot|draw|chart|graph|visuali[sz]e|show|make|me|an?|the|as|in|of|bars?|line|scatter|box|histogram|it"
    r"|that|this|them|these"
    r"|results?|now|figure)\b|[画绘出来个张成图表把将它这那柱状条形折线散点箱直方用做作结果显示的一可视化,，.。!！?？]",
    re.I,
)
_ONLY = re.compile(r"\b(?:only|just)\b|\bfor (?:the )?\w+(?: only)?$|只|仅|限于", re.I)
_COLOUR = re.compile(r"\bcolou?r(?:ed|ing)?\b.*\bby\b|着色|上色|分色", re.I)
_COLOUR_FIRST = re.compile(r"^(?:colou?r|按.{1,8}(?:着色|上色|分色))", re.I)
_ALSO = re.compile(
    r"\balso\b|\bas well\b|\btoo\b|\badditionally\b|^(?:and|then) (?:also )?by .* too|再按|还按|也按|同时按"
    r"|再加|加上|再分",
    re.I,
)
_GREET = re.compile(
    r"^(?:hi|hello|hey|good (?:morning|evening|afternoon)|你好|您好|嗨)(?![A-Za-z])[\s!,.]*(?:there)?$", re.I
)
_THANKS = re.compile(
    r"^(?:thanks?(?: you)?(?: so much| very much)?|great|cool|perfect|nice|谢谢|多谢|很好|不错|感谢)\W*$", re.I
)
_HELP = re.compile(
    r"\bhelp\b|what can you do|who are you|what are you|are you (?:a|an|the|really)|你能做什么|你会什么|你是谁"
    r"|帮助|你是什么",
    re.I,
)
_YES = re.compile(
    r"^(?:yes|yeah|yep|sure|do it|do so|go ahead|ok|okay|y|好|好的|是|是的|可以|行|要|嗯|对)(?![A-Za-z])\W*(?:$"
    r"|rebuild|please|do|重建|,|，)",
    re.I,
)


@dataclass(frozen=True, slots=True)
class Ask:
    """A request: its kind, its words (`text`: normal form), and amendments as (how, words) pairs.

    How: `by` (other groups), `also` (further groups), `only` (a filter), `about` (decided by what the words name).
    """

    kind: str
    text: str = ""
    amendments: tuple[tuple[str, str], ...] = ()

    @property
    def words(self) -> str:
        """The text and its amendments with Chinese terms in English."""
        return english(self.text)


def kind(text: str) -> str:
    """The kind of a request by itself (normal form), `out` when it is none."""
    text = re.sub(r"(\d+(?:\.\d+)?)\s*% of (\d+)", r"\1 / 100 * \2", text, flags=re.I)
    simple = (("sum", _SUM), ("greet", _GREET), ("thanks", _THANKS))
    for name, pattern in simple:
        if pattern.search(text):
            return name
    for name, compiled in _COMPILED:
        if compiled.search(text):
            return _corrected(name, text)
    return _weak_kind(text)


def _corrected(name: str, text: str) -> str:
    """The kind after looking at what a pattern alone cannot tell."""
    if (
        name in ("find", "profile", "values", "top", "how_many", "columns", "files")
        and re.search(_LOAD, text, re.I)
        and FILE.search(text)
    ):
        return "load"
    if name in _ON_DATA and re.match(_LOAD, text, re.I) and (FILE.search(text) or _data_set(text)):
        return "load"
    if name == "rows" and re.search(r"最[大高多重长贵小低少轻短]", text):
        return "top"
    words = english(text)
    computed = stat(words)
    if name == "share" and re.search(r"\b(?:mean|average|median)\b|平均|中位", words):
        return "group" if GROUPING.search(words) else "aggregate"
    if name in ("values", "how_many", "find", "profile") and computed not in ("", "count") and GROUPING.search(words):
        return "group"
    if name == "how_many" and (
        computed in ("mean", "median", "std", "min", "max") or (computed == "sum" and "是多少" in text)
    ):
        return "aggregate"
    if name == "find" and computed:
        return "aggregate"
    if name == "top" and GROUPING.search(words) and not re.search(r"\d|[一二三四五十]", text) and computed:
        return "group"
    return name


_ON_DATA = bag(
    "share outliers plot fit correlate drop fill missing compare columns values rows top how_many profile find files"
)
_THEN = re.compile(
    r"\s*,?\s*\b(?:and then|and|then)\b\s*|\s*[;,]\s*(?:(?:and )?then\s+|and\s+)?"
    r"|\s*(?:并且?|然后再?|接着|再|之后|、|。)\s*",
    re.I,
)
_NAMING = re.compile(r"^(?:call|name|save|store|assign|keep)\b|^(?:命名|存[为成]|叫|赋给)", re.I)
_WORK = re.compile(
    r"^(?:plot|draw|load|save|drop|delete|remove|fill|profile|export|email|mail|send|rename|upload|write|train)\b"
    r"|^(?:画|保存|删除|填充|导出|发送|重命名|上传)",
    re.I,
)


_WHERE = re.compile(
    r"\bwhere\b.*(?:[<>=]|\b(?:is|are|over|under|above|below|at least|at most)\b|[大小高低多少等]于|超过|是)", re.I
)


_WHICH = re.compile(
    rf"(?:\b(?:which|who|what|list|show|find|give)\b|哪些|谁|哪个|哪几|列出).*(?:{OPERATOR}|\bbetween\b)\s*{NUMBER}"
    r"|(?:哪些|谁|哪个|哪几|列出).*\d+\s*(?:个|次|元|岁)?(?:以上|以下|之间)"
    rf"|(?:{OPERATOR})\s*{NUMBER}.*(?:有?哪些|是谁|哪几|名单)"
    rf"|^(?!(?:check|fix|write|clean|make|create|build|explain|why|how|is|are|do|does)\b)[\w\s]+\b(?:with|whose"
    rf"|having)\b.*"
    rf"(?:{OPERATOR})\s*{NUMBER}", re.I
)  # fmt: skip


def _data_set(text: str) -> re.Match[str] | None:
    return next((found for each in SETS.values() if (found := re.search(each, text, re.I))), None)


def after_load(text: str) -> tuple[str, str]:
    """A request to load, and what is asked of the data after it (empty when nothing is)."""
    named = FILE.search(text) or _data_set(text) or re.match(_LOAD, text, re.I)
    cut = _THEN.search(text, named.end()) if named else None
    if cut is None or _NAMING.search(text[cut.end() :]):
        return text, ""
    return text[: cut.start()], text[cut.end() :].strip()


def other_work(text: str, done: str) -> list[str]:
    """Clauses of a request that order work of another kind than the one that was done."""
    clauses = [each.strip() for each in _THEN.split(text) if each.strip()]
    return [each for each in clauses if len(clauses) > 1 and _WORK.search(each) and kind(each) != done]


_BY_DATE = re.compile(
    r"\b(?:hourly|daily|weekly|monthly|quarterly|yearly|annual)\b(?! (?:series|data|time))"
    r"|\b(?:per|by) (?:year|quarter|month|week|weekday|day|hour)\b|每(?:个?月|年|周|天|日|个?季度)的?\S",
    re.I,
)


def _weak_kind(text: str) -> str:
    """Kinds that stand on the load verb, a statistic or a grouping word alone."""
    if re.search(_LOAD, text, re.I) or re.fullmatch(rf"(?:{FILE.pattern})", text, re.I):
        if FILE.search(text) or any(re.search(pattern, text, re.I) for pattern in SETS.values()):
            return "load"
        if re.search(r"\b[\w./-]+\.[a-z]\w{0,5}\b", text, re.I):
            return "read"
        if re.search(r"\b(?:data|data ?set|table|file|csv)\b|数据|表格|文件", text, re.I):
            return "load"
    if _WHERE.search(text):
        return "rows"
    words = english(text)
    grouped = re.search(r"\bgroup\b|分组|按.*(?:统计|汇总)|(?:统计|汇总).*按", words, re.I)
    if grouped or (stat(words) and GROUPING.search(words)):
        return "group"
    if stat(words):
        return "aggregate"
    if _BY_DATE.search(text):
        return "group"
    if _WHICH.search(text):
        return "rows"
    return "help" if _HELP.search(text) else "out"


def ask(turns: Sequence[Turn]) -> Ask:
    """What the last of the turns asks, earlier ones giving what it leaves out."""
    current, full = Ask("out"), None
    for turn in turns:
        current = _next(full, turn)
        # Small talk and questions about the session do not make the request before them unknown.
        full = current if current.kind in _FOLLOWED else full
    return current


def _next(previous: Ask | None, turn: Turn) -> Ask:
    text = normal(turn.words)
    bare = re.sub(r"^(?:(?:and|now|then|also|ok|那么?|现在|然后|接着|再)\s*[,，]?\s*)+", "", text, flags=re.I)
    found = kind(bare)
    if _YES.search(text) and found in ("out", "rebuild"):
        return Ask("yes" if found == "out" else "rebuild", text)
    if previous is None:
        return Ask(found, bare)
    coloured = previous.kind == "plot" and _COLOUR_FIRST.search(bare) and _is_short(bare)
    bare_chart = not _CHART.sub("", bare).strip() or (_THAT.search(bare) and _is_short(bare))
    if found == "plot" and (coloured or bare_chart):
        further = "also" if _ALSO.search(bare) or _COLOUR.search(bare) else "by"
        also = ((further, bare),) if GROUPING.search(bare) else ()
        return replace(previous, kind="plot", amendments=(*previous.amendments, ("chart", bare), *also))
    amending = _AMEND.search(text) or _short_amendment(found, text)
    if found in ("out", "aggregate", "group", "find") and amending and _is_short(text):
        return replace(previous, amendments=(*previous.amendments, (_how(text), bare)))
    return Ask(found, bare)


_FOLLOWED = bag(
    "share outliers group aggregate fill plot fit correlate compare values top how_many missing profile rows drop"
)


def _is_short(text: str) -> bool:
    return len(re.findall(r"[A-Za-z_]+|[\u3400-\u9fff]{2}", text)) <= 9


def _short_amendment(found: str, text: str) -> bool:
    grouping = re.match(r"(?:by|per)\b|按", text, re.I)
    return found == "out" and bool(grouping or _ONLY.search(text) or re.search(r"呢\W*$|\binstead\b", text, re.I))


def _how(text: str) -> str:
    if _ALSO.search(text) and GROUPING.search(text):
        return "also"
    if _ONLY.search(text) and not re.search(r"\b(?:by|per)\b|按", text, re.I):
        return "only"
    return "by" if GROUPING.search(text) else "about"
