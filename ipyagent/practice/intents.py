"""What a request asks for: one kind, found by patterns in English and Chinese, first match wins.

A short request that only makes sense after another ("and by island?", "再按性别") is an amendment; the newest full
request before it, with all amendments since, is what is asked.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from .conversation import Turn
from .phrases import english, normal, stat

FILE = re.compile(
    r"[\"'`“]([^\"'`”\n]+?\.(?:csv|tsv|txt|parquet|jsonl?|xlsx?|feather|gz))[\"'`”]"
    r"|(?:^|(?<=[\s@,，:：(]))([\w./\\~-]+?\.(?:csv|tsv|txt|parquet|jsonl?|xlsx?|feather|gz))(?![\w])"
    r"|([A-Za-z0-9_./\\~-]+\.(?:csv|tsv|txt|parquet|jsonl?|xlsx?|feather|gz))(?![A-Za-z0-9])",
    re.I,
)

SETS = {
    "penguins": r"penguins?|palmer|企鹅", "cars": r"\bcars\b(?!\.)|汽车", "iris": r"\biris\b|鸢尾", "stocks": r"\bstocks\b|股票",
    "seattle_weather": r"seattle.weather|西雅图", "barley": r"\bbarley\b|大麦",
}  # fmt: skip

_LOAD = r"\b(?:load|read in|read|import|open|get|fetch)\b|读取|读入|读一下|读|加载|载入|导入|打开"

# (kind, pattern), in the order in which they are tried.
KINDS: tuple[tuple[str, str], ...] = (
    ("run", r"```|^(?:run|execute|运行|执行)(?:\s*(?:this|the following))?(?:\s*code|\s*代码)?\s*[:：]|^(?:run|execute|运行|执行)\s+`"),
    ("rebuild", r"\b(?:rebuild|recreate|re-create|re-?load (?:it|them|that))\b|重建|重新(?:加载|创建|构建|读取|生成)(?!.*\.\w)"),
    ("first_question", r"(?:my|the) (?:very )?(first|last|previous) (?:question|request|message)|what did i (?:first )?ask(?: you)? (?:first|last)?"
     r"|我(?:的)?(?:第一个|最初|最早|上一个|最先|一开始|刚才)(?:的)?(?:问题|请求|问了|问的)"),
    ("discuss", r"\bwhat (?:have|did|were|are) (?:we|you and i)\b.*\b(?:discuss|talk|do|done|cover|say|look)|\b(?:summari[sz]e|recap)\b.*\b(?:conversation|chat|session|discussion|so far)"
     r"|(?:刚才|之前|我们|前面).*(?:讨论|聊|谈|说|做)(?:过|了)|(?:总结|回顾).*(?:对话|会话|谈话|讨论|聊天)"),
    ("remember", r"^(?:remember|memori[sz]e|note|keep in mind|don't forget)\b(?! (?:what|when|how))|^(?:记住|请记住|记一下|记下|别忘了)|\bremember that\b"),
    ("forget", r"^forget\b|^(?:忘记|忘掉|忘了)|\bforget (?:that|about|what)\b|删除.*记忆"),
    ("recall", r"\bwhat do you (?:remember|know|recall) (?:about|of)\b|\bdo you (?:still )?(?:remember|recall)\b|^recall\b|你?还?记得.*[吗什么哪]|^回忆|记忆里|\b(?:show|list) .*memor(?:y|ies)\b"),
    ("compact", r"^compact\b|\bcompact (?:the|this|our) (?:context|conversation|session|history)|压缩.*(?:上下文|对话|会话|历史)"),
    ("load_skill", r"\b(?:load|use|apply|find)\b.*\bskills?\b|\bwhich skill\b|(?:加载|使用|用|载入).*技能"),
    ("plan", r"\b(?:make|write|draw up|give me|propose|create) (?:a|the) plan\b|^plan\b|(?:制定|做|写|列|给).{0,4}计划|^规划|先计划"),
    ("delegate", r"\bdelegate\b|\bsub-?agents?\b|\b(?:another|an|separate) agent\b|子代理|子智能体|子任务代理|委派|委托"),
    ("around", r"\blook around\b|\bwhat(?:'s| is| do (?:we|i) have)(?: available)? (?:here|in (?:here|this (?:project|notebook|session|folder)))|\bwhat do (?:we|i) have\b|\bwhere (?:are we|do we stand)\b"
     r"|看看(?:这里|周围|环境|有什么|都有)|四处看看|环境里|有些什么东西"),
    ("files", r"\b(?:list|show|which|what|see|find)\b.*\bfiles?\b(?!.*\.\w)|^(?:ls|dir)$|(?:哪些|什么|列出|显示|查看|所有).{0,6}文件(?!名)"),
    ("variables", r"\b(?:list|show|what|which|see)\b.*\b(?:variables?|data ?frames|objects|in memory)\b|^(?:vars|variables|who|whos)$|(?:哪些|什么|列出|显示|查看|所有).{0,6}(?:变量|数据框)"),
    ("plot", r"\b(?:plot|draw|chart|graph|visuali[sz]e|histograms?|scatter|box ?plots?|bar ?(?:plot|chart)s?|line ?(?:plot|chart)s?)\b|画|绘|作图|图表|直方图|散点图|箱线图|柱状图|条形图|折线图|可视化|分布图"),
    ("fit", r"\b(?:fit|regress(?:ion)?|predict|ols|linear model|least squares|train)\b|拟合|回归|预测|线性模型"),
    ("correlate", r"\bcorrelat\w*\b|相关"),
    ("missing", r"\bmissing\b|\bnulls?\b|\bnan?s?\b(?=.*\b(?:values?|count|are|any)\b)|\bnans\b|\bincomplete\b|缺失|空值|缺少|丢失"),
    ("compare", r"\bcompare\b|\bdifference between\b|\bdiffer\b|\bdo .*differ|\bversus\b|\bvs\b|比较|对比|差异|差别|相比"),
    ("columns", r"\b(?:what|which|list|show)\b.*\bcolumns?\b|\bcolumn names?\b|\bdtypes?\b|有哪些列|哪些字段|列名|字段名|什么列"),
    ("values", r"\bvalue.?counts?\b|\bhow many (?:of each|per|in each|for each|by)\b|\bcounts? (?:by|per|of each|for each)\b|\bhow many .*\b(?:per|in each|for each|by|of each|on each|each)\b|\bfrequenc(?:y|ies)\b|\bdistribution of\b"
     r"|每(?:个|种|类|一).*(?:多少|几)|各.*(?:多少|几|数量|个数)|频数|计数分布|取值"),
    ("top", r"\b(?:top|first|largest|biggest|highest|heaviest|oldest|longest|tallest|smallest|lowest|lightest|youngest|shortest|cheapest|most expensive|bottom|deadliest)\s+(?:\d+|one|two|three|five|ten)\b|\b\d+ (?:largest|biggest|highest|heaviest|oldest|longest|smallest|lowest|lightest|youngest|shortest|cheapest|most|least|top|deadliest)\b"
     r"|\b(?:which|who|what)\b.*\b(?:heaviest|oldest|longest|lightest|youngest|shortest|cheapest|most expensive|largest|highest|biggest|smallest|lowest|deadliest)\b|\b(?:heaviest|lightest|oldest|youngest|deadliest)\b"
     r"|最(?:大|高|重|长|贵|多|老|小|低|轻|短|少|便宜|年轻)的?.{0,6}?(?:\d+|[一二三四五十])\s*(?:个|只|条|行|名|家|位|辆|种)?|前\s*(?:\d+|[一二三四五十])\s*(?:个|只|条|行|名|家|位|辆)|(?:哪|谁).*最"),
    ("how_many", r"\bhow many\b|\bnumber of\b|\bcount (?:the )?(?:rows|of|records|all|\w+)|\bhow (?:big|large)\b|多少|几行|几个|行数|多大|有几"),
    ("profile", r"\bprofile\b|\bsummar(?:y|i[sz]e)\b(?!.*\bby\b)|\boverview\b|\bdescribe\b|\bexplore\b|\beda\b|\btell me about\b|\bdescriptive\b|概览|概况|概括|描述|探索|总览|画像|剖析|了解.*数据|总结"),
    ("find", r"\bwhat(?:'s| is| was)(?: in| inside)? `?[A-Za-z_]\w*`?\??$|\b(?:find|where is|what type is|type of|inspect|show)\b.*\bvariable\b|\b(?:inspect|show me|show|print|display)\s+`?[A-Za-z_]\w*`?$|变量.*(?:是什么|在哪|什么样)|[A-Za-z_]\w*\s*(?:是什么|里有什么|长什么样)"),
)  # fmt: skip
_COMPILED = tuple((kind, re.compile(pattern, re.I)) for kind, pattern in KINDS)

_SUM = re.compile(r"^(?:what(?:'s| is)|compute|calculate|evaluate|how much is|计算|算|求)?\s*(?=[^a-z]*\d)([\d\s.()+*/%^×÷,-]*[+*/%^×÷-][\d\s.()+*/%^×÷,-]*\d\)*)\s*(?:=|等于多少|是多少|等于几)?\s*\??$", re.I)
GROUPING = re.compile(r"\b(?:by|per|for each|for every|in each|of each|across|within each|each)\b|按照?|各|每|分组|不同", re.I)
_AMEND = re.compile(
    r"^(?:and|now|then|also|what about|how about|only|just|what if|same|instead|but|the same|again)\b|^(?:那么?|再|只|仅|换成?|改成?|还有|同样|现在|然后|也|接着)", re.I
)  # fmt: skip
_THAT = re.compile(r"\b(?:that|it|this|these|those|them|the result|the same)\b|它|这个|这些|那个|结果|出来|上面", re.I)
_CHART = re.compile(
    r"\b(?:plot|draw|chart|graph|visuali[sz]e|show|make|me|an?|the|as|in|of|bars?|line|scatter|box|histogram|it|that|this|them|these"
    r"|results?|now|figure)\b|[画绘出来个张成图表把将它这那柱状条形折线散点箱直方用做作结果显示的一可视化,，.。!！?？]",
    re.I,
)
_ONLY = re.compile(r"\b(?:only|just)\b|\bfor (?:the )?\w+(?: only)?$|只|仅|限于", re.I)
_ALSO = re.compile(r"\balso\b|\bas well\b|\btoo\b|\badditionally\b|^(?:and|then) (?:also )?by .* too|再按|还按|也按|同时按|再加|加上|再分", re.I)
_GREET = re.compile(r"^(?:hi|hello|hey|good (?:morning|evening|afternoon)|你好|您好|嗨)(?![A-Za-z])[\s!,.]*(?:there)?$", re.I)
_THANKS = re.compile(r"^(?:thanks?(?: you)?(?: so much| very much)?|great|cool|perfect|nice|谢谢|多谢|很好|不错|感谢)\W*$", re.I)
_HELP = re.compile(r"\bhelp\b|what can you do|who are you|what are you|are you (?:a|an|the|really)|你能做什么|你会什么|你是谁|帮助|你是什么", re.I)
_YES = re.compile(r"^(?:yes|yeah|yep|sure|do it|do so|go ahead|ok|okay|y|好|好的|是|是的|可以|行|要|嗯|对)(?![A-Za-z])\W*(?:$|rebuild|please|do|重建|,|，)", re.I)


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
    if name in ("find", "profile", "values", "top", "how_many", "columns", "files") and re.search(_LOAD, text, re.I) and FILE.search(text):
        return "load"
    words = english(text)
    computed = stat(words)
    if name in ("values", "how_many", "find", "profile") and computed not in ("", "count") and GROUPING.search(words):
        return "group"
    if name == "find" and computed:
        return "aggregate"
    if name == "top" and GROUPING.search(words) and not re.search(r"\d|[一二三四五十]", text) and computed:
        return "group"
    return name


def _weak_kind(text: str) -> str:
    """Kinds that stand on the load verb, a statistic or a grouping word alone."""
    if re.search(_LOAD, text, re.I) or re.fullmatch(rf"(?:{FILE.pattern})", text, re.I):
        if FILE.search(text) or any(re.search(pattern, text, re.I) for pattern in SETS.values()):
            return "load"
        if re.search(r"\b[\w./-]+\.[a-z]\w{0,5}\b", text, re.I):
            return "read"
        if re.search(r"\b(?:data|data ?set|table|file|csv)\b|数据|表格|文件", text, re.I):
            return "load"
    words = english(text)
    if re.search(r"\bgroup\b|分组", words, re.I) or (stat(words) and GROUPING.search(words)):
        return "group"
    if stat(words):
        return "aggregate"
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
    text = normal(turn.asked)
    bare = re.sub(r"^(?:(?:and|now|then|also|ok|那么?|现在|然后|接着|再)\s*[,，]?\s*)+", "", text, flags=re.I)
    found = kind(bare)
    if _YES.search(text) and found in ("out", "rebuild"):
        return Ask("yes" if found == "out" else "rebuild", text)
    if previous is None:
        return Ask(found, bare)
    if found == "plot" and (not _CHART.sub("", bare).strip() or (_THAT.search(bare) and _is_short(bare))):
        also = ((("also" if _ALSO.search(bare) else "by"), bare),) if GROUPING.search(bare) else ()
        return replace(previous, kind="plot", amendments=(*previous.amendments, ("chart", bare), *also))
    amending = _AMEND.search(text) or _short_amendment(found, text)
    if found in ("out", "aggregate", "group", "find") and amending and _is_short(text):
        return replace(previous, amendments=(*previous.amendments, (_how(text), bare)))
    return Ask(found, bare)


_FOLLOWED = frozenset("group aggregate plot fit correlate compare values top how_many missing profile".split())


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
