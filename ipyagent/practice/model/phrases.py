"""Words: what is polite filler, what Chinese words mean, and which words name the same thing.

The glossary only widens the search for a column; whether a column exists is read from the data.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence

MARK_EN = "_(practice model: rule-based, no language model)_"
MARK_ZH = "_（练习模型：按规则工作，不是语言模型）_"


def bag(text: str) -> frozenset[str]:
    """The words of a text as a set."""
    return frozenset(text.split())


_POLITE = re.compile(
    r"^(?:(?:hi|hello|hey|ok|okay|great|thanks|thank you|so|well)\b[,.! ]*)*"
    r"(?:(?:please|kindly|(?:could|can|would|will) you(?: please)?|i(?:'d| would) like(?: you)? to|i want(?: you)? to"
    r"|i need(?: you)? to|let's|let us|help me(?: to)?|go ahead and|just)\s+)+",
    re.I,
)
_POLITE_ZH = re.compile(r"^(?:请问|请你|请|麻烦你?|帮我|帮忙|能不能|能否|可以|可不可以|你能|给我|我想要?|我要|替我)+")
_TAIL = re.compile(
    r"(?:\s*+(?:(?:,\s*+)?(?:please|thanks?(?: you)?)|for me|谢谢|好吗|可以吗|行吗))++[\s.!?。！？]*$", re.I
)


def normal(text: str) -> str:
    """The request without polite words, full-width forms and closing punctuation; case is kept."""
    text = unicodedata.normalize("NFKC", text).replace("’", "'").strip()
    text = _TAIL.sub("", text) or text
    text = _POLITE_ZH.sub("", _POLITE.sub("", text)).strip()
    return text.rstrip(" .!?。").replace("一下", "")


# Chinese to English, longest first when applied. A right side with several words is matched as a phrase.
ZH = {
    "体重": "body mass", "体质量": "body mass", "物种": "species", "种类": "species", "性别": "sex", "岛屿": "island",
    "海岛": "island", "岛": "island", "喙长": "bill length", "嘴长": "bill length",
    "嘴峰长": "bill length", "喙深": "bill depth",
    "喙厚": "bill depth", "鳍长": "flipper length", "脚蹼长": "flipper length", "鳍肢长": "flipper length",
    "翼长": "flipper length", "长度": "length", "年份": "year", "年龄": "age", "费用": "charges", "收费": "charges",
    "医疗费": "charges", "保费": "charges", "地区": "region", "区域": "region", "吸烟者": "smoker", "吸烟": "smoker",
    "抽烟": "smoker", "孩子数": "children", "子女数": "children", "体质指数": "bmi", "国家": "country",
    "大洲": "continent", "大陆": "continent", "人口": "population", "预期寿命": "life exp", "寿命": "life exp",
    "人均gdp": "gdp per cap", "人均GDP": "gdp per cap", "马力": "horsepower", "油耗": "mpg", "重量": "weight",
    "气缸数": "cylinders", "气缸": "cylinders", "排量": "displacement", "加速度": "acceleration", "产地": "origin",
    "车型年": "model year", "舱位": "pclass", "船舱等级": "pclass", "票价": "fare", "幸存": "survived",
    "生还": "survived", "存活": "survived", "登船港口": "embarked", "星级": "star rating", "评论数": "review count",
    "酒店类型": "hotel type", "酒店": "hotel", "城市": "city", "品牌": "brand", "风速": "wind speed",
    "气压": "baro", "湿度": "rel hum", "气温": "temperature", "温度": "temperature", "死亡人数": "deaths",
    "损失": "damage", "开盘价": "open", "收盘价": "close", "最高价": "high", "最低价": "low", "成交量": "volume",
    "日期": "date", "时间": "time", "名称": "name", "姓名": "name", "价格": "price", "销售额": "sales",
    "类别": "category", "类型": "type", "行业": "industry", "分数": "score", "高度": "height",
    "身高": "height", "雄性": "male",
    "公的": "male", "男性": "male", "男人": "male", "雌性": "female", "母的": "female", "女性": "female",
    "女人": "female", "阿德利": "adelie", "巴布亚": "gentoo", "帽带": "chinstrap", "企鹅": "penguins",
    "最重": "heaviest", "最轻": "lightest", "最贵": "most expensive", "最便宜": "cheapest", "最老": "oldest",
    "最年长": "oldest", "最年轻": "youngest", "最长": "longest", "最短": "shortest", "最高的人": "tallest",
    "东北": "northeast", "西北": "northwest", "东南": "southeast", "西南": "southwest", "欧洲": "europe",
    "客户": "customer", "顾客": "customer", "渠道": "channel", "产品": "product", "商品": "product",
    "部门": "department",
    "团队": "team", "工资": "salary", "薪水": "salary", "薪资": "salary", "收入": "income", "营收": "revenue",
    "单价": "price", "金额": "amount", "利润": "profit", "成本": "cost", "月薪": "salary", "退货": "returned",
    "职业": "occupation", "孩子": "children", "员工": "employee", "班级": "class", "成绩": "score",
    "亚洲": "asia", "非洲": "africa", "美洲": "americas", "美国": "usa", "日本": "japan", "中国": "china",
}  # fmt: skip
_ZH_WORD = re.compile("|".join(sorted(map(re.escape, ZH), key=len, reverse=True)))

# English words that may stand for one another in a column's name.
ALIKE = (
    ("weight", "mass", "heavy", "heaviest", "lightest"), ("sex", "gender"), ("bill", "beak", "culmen"),
    ("flipper", "fin", "wing"), ("price", "cost", "fare", "charges", "expensive", "cheapest"),
    ("age", "oldest", "youngest"), ("country", "nation", "location"),
    ("population", "pop", "populous"), ("lifeexp", "life expectancy", "lifespan"),
    ("gdppercap", "gdp per capita", "gdp"), ("temperature", "temp", "at"), ("pressure", "baro"),
    ("humidity", "relhum"), ("class", "pclass"), ("fuel economy", "mpg"), ("rating", "star rating"),
    ("reviews", "review count"), ("direction", "dir"), ("visibility", "vis"), ("smoker", "smoking", "smokers"),
    ("year", "modelyear", "time"), ("date", "datetime", "day"), ("wind", "windspeed"), ("power", "horsepower"),
    ("height", "tall", "tallest"), ("length", "longest", "shortest"), ("survived", "survival", "survivors"),
    ("damage", "damages"), ("deaths", "deadliest", "fatalities"), ("value", "spending"), ("island", "islands"),
    ("quantity", "qty"), ("salary", "wage", "pay"), ("department", "dept"), ("employee", "staff"),
)  # fmt: skip

STATS = (
    ("median", r"\bmedians?\b|中位数?"),
    ("std", r"\bstd\b|standard deviation|标准差"),
    ("min", r"\bmin(?:imum)?\b|\blowest\b|\bsmallest\b|最小值?|最低"),
    ("max", r"\bmax(?:imum)?\b|\bhighest\b|\blargest\b|\bbiggest\b|最大值?|最高(?!价)"),
    ("sum", r"\bsum\b|\btotals?\b(?! (?:number|count|rows))|总和|总计|合计|求和|总共|总的|总(?!结)"),
    ("mean", r"\bmeans?\b|\baverages?\b|\bavg\b|\brates?\b|平均值?|均值|率"),
    ("count", r"\bcounts?\b|\bhow many\b|\bnumber of\b|多少|数量|计数|个数"),
)

STAT_NAMES = {
    "mean": ("mean", "平均值"), "median": ("median", "中位数"), "std": ("standard deviation", "标准差"),
    "min": ("minimum", "最小值"), "max": ("maximum", "最大值"), "sum": ("sum", "总和"), "count": ("count", "计数"),
}  # fmt: skip


def english(text: str, own: Sequence[str] = ()) -> str:
    """The text with the Chinese words of the glossary put into English, spaces around them.

    `own`: names in the data, longest first; they stay as they are and get spaces around them, for Chinese has none.
    """
    names = "|".join(map(re.escape, own))
    parts = re.split(f"({names})", text) if names else [text]
    made = [
        f" {part} " if at % 2 else _ZH_WORD.sub(lambda found: f" {ZH[found.group()]} ", part)
        for at, part in enumerate(parts)
    ]
    return re.sub(r"\s+", " ", "".join(made)).strip()


def stats(text: str) -> list[str]:
    """All statistics that a text asks for, counts apart."""
    return [name for name, pattern in STATS if name != "count" and re.search(pattern, text.lower())]


def stat(text: str, otherwise: str = "") -> str:
    """The statistic that a text asks for, as pandas names it; a column named like one is no request for it."""
    lowered = text.lower()
    return next((name for name, pattern in STATS if re.search(pattern, lowered)), otherwise)


# Words of asking: a word that is not among them and names no column may be a value in the data.
SPOKEN = bag(
    "above absolute across affect after again against all along also amount among analyse analyze annotate any ask"
    " association axis axes average bar before below best better big biggest bigger bin both bottom box boxplot but"
    " calculate can case category change chart cheap cheapest cheaper check chosen clean clear coefficient colour"
    " color coloured colored combine common compare comparison compute correlated correlate correlation cost could"
    " count counts create data dataset date deadliest decrease delete depend depends describe descending ascending"
    " detail deviation did differ difference different display distinct distribution done draw drop dropped each"
    " earlier entry equal equals estimate every everything exact exceed exceeding exceeds exist expensive explain"
    " explore extreme feature few fewer fewest field figure filter filtered find fit first fitted five four"
    " frequency frequent general get give given graph great greater group grouped grouping growth has have having"
    " heavier heaviest heavy help here high higher highest hist histogram how important include incomplete increase"
    " increasing individual individuals influence information instead interesting into item its itself just keep"
    " kind know large larger largest last late later latest lead least legend length less let light lighter lightest"
    " like line linear list long longer longest look lot low lower lowest main make many matter maximum mean measure"
    " measured measurement median minimum missing model most much must name need next nan not now null number"
    " observation observations older oldest old one only order ordered other our out outlier outliers over overall"
    " overview own pair pearson people percent percentage person piece please plot plotted point population possible"
    " predict predicted predictor prediction present print profile proportion quantile quartile quick range rank"
    " rate ratio read record records regress regression related relation relationship relative remaining remove"
    " report respect result row rows same sample say scatter scatterplot second see select sensible separate"
    " separately shape share short shorter shortest should show shown side simple single size slope small smaller"
    " smallest some sort sorted spearman split spread square squares squared standard stat statistic statistics std"
    " still strength strong strongest subset such sum summarise summarize summary table take tall taller tallest"
    " tell ten test than that the their them then there these they thing think this those three through time title"
    " together too top total trend trust two type typical under understand unique unit until use used using value"
    " values variable variance variation vary various versus very view visualise visualize want was way well were"
    " what when where whether which while who whole whose why will with within without work worst would year young"
    " younger youngest your yes zero animal animals bird birds car cars passenger passengers country countries"
    " penguin penguins customer customers patient patients student students city cities hotel hotels user users"
    " product products non nonzero for from been being does doing are and per had"
    " more by of on in at to or is it as an be do if no so up we you month day week hour monthly yearly daily"
    " resample fill rename save outside iqr column columns frame csv file png me my nice nicely pretty quickly once"
    " thanks thank hello hey okay sure except excepting excluding exclude excludes excluded apart aside besides"
    " neither nor never unless none during fraction proportions shares percentages order orders sale sales employee"
    " employees staff member members item items may years months weeks days hours aged exactly bought buy sold sell"
    " made came come comes live lives living belong belongs work works took place placed given went got gets paid spent"
    " spend cumulative contain contains containing holds hold called titled happened occurred everyone everybody"
    " anyone someone busiest cells nulls nans anywhere"
)
CHINESE_FILLER = re.compile(
    r"检查|找出|找到|看看|唯一|百分之|等舱|除了|除外|以外|之外|不包括|不含|以内|星期[一二三四五六日天]|周[一二三四五六日末]|季度"
    r"|每月|月份|年份"
    r"|占比|占|百分比|比例|份额|以来"
    r"|客户|顾客|订单|员工|乘客|用户|学生|病人|城市|产品|记录|来自|属于|没有|不是|不在|非空|为空|大约|一共|一起"
    r"|包括|都是|需要|知道"
    r"|计算|统计|填充|填补|填上|补全|替换|众数|原地|直接|本身|平均|均值|中位|标准差|最大|最小|最高|最低|比较"
    r"|对比|差异|差别|相关|系数|关系|影响|拟合|回归|预测|线性"
    r"|直方|散点|箱线|折线|柱状|条形|分布|趋势|走势|着色|上色|颜色|区分|缺失|空值|删除|去掉|筛选|过滤|显示|列出|查看"
    r"|概览|描述|总结|情况|数据集|数据|有没有|多少|哪些|哪个|什么|怎么|如何|是否|存在|之间|分别|各自|每个|每种|不同"
    r"|种类|取值|大于|小于|等于|超过|高于|低于|不少于|不超过|至少|至多|以上|以下|按照|根据|使用|关于|对于|以及|还有"
    r"|同时|现在|然后|接着|那么|只看|仅看|这个|那个|它们|我们|请问|请帮|帮我|麻烦|一下|可以|能否|出来|画图|图表"
    r"|作图|绘制|绘图|可视|变化|随着|排序|降序|升序|前几|之前|刚才|结果|总数|总和|总计|合计|数量|个数|频数|计数"
    r"|分组|行数|列数"
    r"|[的是有几只个按和与在对中各每种类请看吗呢了吧啊画出图用为随从到再仅只年月日前后行列名位辆家条所这那它且并或等大小多高低重轻长短老新总共其他最所将把让给做下上第里内外除以了过被已未不没无些谁比想要能会来去人次笔台件本种级层元]"
)
