"""The net under the answers: what of a request no part of the answer has used is found here and named to the user.

Two looks. Before the work: numbers, comparisons, negations and dates that were read as no condition. After it:
columns, conditions, statistics and other words of computing that neither the code that ran nor the answer shows.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from .comparing import NUMBER, OPERATOR, UNIT
from .names import quoted

if TYPE_CHECKING:
    from .query import Query

_NUMBER = re.compile(r"(?<![A-Za-z0-9_.])[$€£¥]?-?\d[\d,]*(?:\.\d+)?\s*%?(?![A-Za-z0-9_])")
_COMPARED = re.compile(
    rf"(?:{OPERATOR})\s*{NUMBER}|(?:between|介于)\s*{NUMBER}|{NUMBER}{UNIT}\s*(?:or (?:more|less|fewer|over"
    rf"|under)\b|以上|以下|之间)"
    r"|\b(?:more|less|fewer|greater|larger|smaller|higher|lower|older|younger|earlier|later) than\b"
    r"|\bat (?:least|most)\b"
    r"|\b(?:above|below|over|under)[- ](?:the )?(?:average|mean|median)\b"
    r"|\bexceed(?:s|ing)?\b|\bno (?:more|less|fewer) than\b|[<>]=?|大于|小于|超过|低于|高于|多于|少于|不到|至少"
    r"|至多|(?<![占同对环相])比(?![例较值率如])",
    re.I,
)
_NEGATION = re.compile(
    r"\bnot\b|\b\w+n't\b|\bexcept(?:ing)?\b|\bexclud(?:e|es|ed|ing)\b|\bwithout\b|\bother than\b|\bapart from\b"
    r"|\bneither\b"
    r"|\bnor\b|\bno\b(?!\.)|\bnever\b|\bunless\b|\bnon\b|\bnone\b|\bbut (?!also|only|now)\w+|除了?|以外|之外"
    r"|(?<![是])不是"
    r"|不在|不含|不包括|不等于|不属于|并非|排除|没有(?!什么)|(?<!有)没(?!有)|(?<![如])非(?![常洲])|未(?![来])"
    r"|(?<!在)(?<!与)不(?=\s*\w{1,12}\s*的)",
    re.I,
)
_HARMLESS = re.compile(
    r"有没有|是不是|能不能|可不可以|whether or not|\bor not\b|\bwhy not\b|no longer than"
    r"|不同|不一样|不错",
    re.I,
)
_DATES = re.compile(
    r"\b(?:last|this|next|previous|past|current|recent) (?:\d+ |few )?(?:years?|months?|weeks?|days?"
    r"|quarters?)\b|\byesterday\b"
    r"|\btoday\b|\brecent(?:ly)?\b|上个?月|去年|今年|昨天|今天|本月|上周|本周|最近|前年"
    r"|\b(?:by|per|each|every) (?:year|quarter|month|week|weekday|day|hour)\b|\b(?:monthly|weekly|daily|yearly"
    r"|quarterly|hourly)\b"
    r"|\b(?:which|what|busiest|best|worst) (?:year|quarter|month|week|weekday|day|hour)\b|哪(?:一|个"
    r"|一个)?(?:年|月|周|天|日|季度)"
    r"|\b(?:first|second|third|fourth) (?:quarter|half)\b|[上下]半年|每(?:年|月|周|天|日|季度)|按(?:年|月|周|天"
    r"|日|季度)",
    re.I,
)
_NOT_ASKED = {
    "missing": ("negation",), "drop": ("negation",), "fill": ("negation", "number", "compared"),
    "columns": ("negation",), "plot": ("number",),
}  # fmt: skip


def loose(words: str, kind: str, spans: Sequence[tuple[int, int]], many: tuple[int, int] | None) -> tuple[str, ...]:
    """Words of conditions that stand outside all spans that were read; `many`: the number of rows to show."""
    taken = [*spans, *(each.span() for each in _HARMLESS.finditer(words)), *([many] if many else [])]
    skipped = _NOT_ASKED.get(kind, ())
    found: list[tuple[int, int]] = []
    nets = (("compared", _COMPARED), ("dates", _DATES), ("number", _NUMBER), ("negation", _NEGATION))
    for name, pattern in nets:
        if name in skipped:
            continue
        for match in pattern.finditer(words):
            start, end = match.span()
            if kind == "compare" and match[0].lower() in ("non", "比"):
                continue  # of "smokers and non-smokers" both are compared
            if any(a < end and start < b for a, b in (*taken, *found)):
                continue
            found.append((start, end))
    return tuple(words[a:b].strip() for a, b in sorted(found))


_MEANT = (
    ("percent", r"\bper ?cent(?:age)?s?\b|\bshares?\b|\bproportions?\b|\bfractions?\b|百分比|占比|比例|份额|百分之",
     r"\* 100|normalize|\bmean\b|%"),
    ("growth", r"\bgrowth\b|\bgrew\b|\bgrown\b|增长|增幅|环比|同比", r"pct_change|diff\("),
    ("cumulative", r"\bcumulative\b|\brunning (?:total|sum)\b|累计|累积", r"cum(?:sum|count)"),
    ("rolling", r"\brolling\b|\bmoving average\b|滚动|移动平均", r"rolling"),
    ("variance", r"\bvariance\b|方差", r"\bvar\b"),
    ("quantile", r"\bquantiles?\b|\bpercentiles?\b|\bquartiles?\b|分位", r"quantile|25%|describe"),
    ("duplicates", r"\bduplicat\w*|\brepeated\b|重复", r"duplicated"),
    ("ratio", r"\bratios?\b|比值|之比", r" / "),
    ("range", r"\brange of\b|极差", r"\bmin\b|describe"),
    ("median", r"\bmedians?\b|中位数?", r"median|50%"),
    ("total", r"\bsum\b|\btotal\b(?! (?:number|count|rows))|总和|合计|总(?!结|览|体|共)", r"\bsum\b"),
    ("average", r"\bmeans?\b|\baverages?\b|\bavg\b|平均|均值", r"\bmean\b|拟合|lstsq"),
    ("standard deviation", r"\bstd\b|standard deviation|标准差", r"\bstd\b"),
    ("mode", r"\bmode\b|众数", r"mode|value_counts"),
    ("skewness", r"\bskew\w*|\bkurtosis\b|偏度|峰度", r"skew|kurt"),
    ("weighted", r"\bweighted\b|加权", r"weights|average\("),
    ("per person", r"\bper (?:person|capita|unit|customer|head)\b|人均", r" / |groupby"),
    ("consecutive", r"\bconsecutive\b|\bstreak\b|连续", r"shift"),
    ("spearman", r"\bspearman\b|\bkendall\b", r"spearman|kendall"),
    ("test", r"\bp.?values?\b|\bsignifican\w+|\bconfidence interval\b|显著|置信区间", r"Welch|\bt =|p ="),
)  # fmt: skip
_EXTREMES = (
    (
        r"\b(?:max(?:imum)?|highest|largest|biggest|most expensive)\b|最大|最高",
        r"\bmax\b|nlargest|highest|最高"
        r"|value_counts",
    ),
    (
        r"\b(?:min(?:imum)?|lowest|smallest|cheapest|fewest|(?<!at )least)\b|最小|最低|最少",
        r"\bmin\b|nsmallest"
        r"|lowest|最低|ascending|at least|<=",
    ),
)


def unused(query: Query, shown: str) -> list[str]:
    """What the query knows of and the code and the answer (`shown`) do not show."""
    left = list(query.loose)
    named = [each for each in query.mentions if quoted(each) not in shown and f"`{each}`" not in shown]
    if query.kind not in ("missing", "columns"):
        left += named
    for each in query.filters:
        if each.code(query.frame.name) not in shown and str(each) not in shown and not _pair(each.value, shown):
            left.append(str(each))
    if query.having and f"{query.having.operator} {query.having.value}" not in shown:
        left.append(query.words[query.having.span[0] : query.having.span[1]])
    for unit in query.units:
        if unit.column not in shown or (f".dt.{unit.unit}" not in shown and ".dt." not in shown):
            left.append(query.words[unit.start : unit.end])
    words = _columns_out(query)
    for _, pattern, evidence in _MEANT:
        found = re.search(pattern, words, re.I)
        if found and not re.search(evidence, shown):
            left.append(found[0])
    for pattern, evidence in _EXTREMES:
        found = re.search(pattern, words, re.I)
        if found and not re.search(evidence, shown, re.I):
            left.append(found[0])
    return list(dict.fromkeys(filter(None, left)))


def _pair(value: str, shown: str) -> bool:
    """Whether each of several values stands in the code by itself: two groups were compared."""
    parts = re.findall(r'"[^"]*"', value)
    return len(parts) > 1 and all(f"== {each}" in shown for each in parts)


def _columns_out(query: Query) -> str:
    """The words of the request without names of columns and without what conditions have used."""
    words = query.rest or query.words
    for column in sorted(query.frame.columns, key=len, reverse=True):
        words = re.sub(rf"(?<!\w){re.escape(column)}(?!\w)", " ", words)
    return words
