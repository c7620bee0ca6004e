"""120 everyday questions, written without the forms in view: none gets a wrong answer; right, or told that it can't."""

from __future__ import annotations

import re
import tempfile
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
import pandas as pd
from practice_room import Room

from ipyagent.practice.model.tables import LOOK

matplotlib.use("agg")


def _orders() -> pd.DataFrame:
    rng, n = np.random.default_rng(7), 400
    orders = pd.DataFrame(
        {
            "order_id": np.arange(1000, 1000 + n), "customer": rng.choice(["Ada", "Bo", "Cy", "Di", "Ed", "Flo"], n),
            "region": rng.choice(["North", "South", "East", "West"], n), "channel": rng.choice(["web", "shop"], n),
            "date": pd.to_datetime("2026-01-01") + pd.to_timedelta(rng.integers(0, 270, n), unit="D"),
            "units": rng.integers(1, 20, n), "price": rng.gamma(2, 15, n).round(2), "returned": rng.random(n) < 0.12,
        }
    )  # fmt: skip
    orders["revenue"] = (orders["units"] * orders["price"]).round(2)
    orders.loc[rng.choice(n, 23, replace=False), "price"] = np.nan
    orders.loc[rng.choice(n, 9, replace=False), "region"] = None
    return orders


D = _orders()
S = pd.DataFrame(
    {
        "name": ["Li", "Mo", "Ng", "Oz", "Pa", "Qi", "Ro", "Su"], "age": [23, 45, 31, 52, 38, 29, 61, 45],
        "salary": [31000, 52000, 41000, 77000, 48500, 39000, 81000, None], "team": list("ABACBACB"),
        "remote": [True, False, True, True, False, False, True, True],
    }
)  # fmt: skip
X = pd.DataFrame(
    {
        "城市": ["北京", "上海", "广州", "北京", "上海", "深圳", "广州", "北京"],
        "产品": ["茶", "茶", "咖啡", "咖啡", "茶", "茶", "咖啡", "茶"],
        "数量": [10, 20, 15, 5, 8, 12, 30, 7], "金额": [100.5, 210.0, 330.0, 120.0, 88.0, 130.0, 660.0, 70.0],
    }
)  # fmt: skip
H = pd.DataFrame(
    {
        "ward": list("ABCDAB") * 20, "Doctor Name": ["Kim", "Lee", "Mai"] * 40, "length_of_stay": np.arange(120) % 13,
        "cost_eur": (np.arange(120) * 7.3 % 211).round(2), "insured": ["yes", "no", "no", "yes"] * 30,
        "visit": [f"2024-0{i % 9 + 1}-1{i % 10}" for i in range(120)],
    }
)  # fmt: skip
TABLES = {"orders": D, "staff": S, "销售": X, "visits": H}


def by(table: pd.DataFrame, group: Any, column: str, stat: str = "mean") -> list[float]:
    return list(getattr(table.groupby(group)[column], stat)())


NO = ["no such number: 918273645"]
"""Expected of what cannot be computed by any form: only to be told so is right."""
QUESTIONS: list[tuple[str, str, list[Any]]] = [
    ("orders", "How many orders do we have?", [400]),
    ("orders", "how many rows are in this table", [400]),
    ("orders", "what's the total revenue?", [D.revenue.sum()]),
    ("orders", "Total revenue by region please", by(D, "region", "revenue", "sum")),
    ("orders", "average price per channel", by(D, "channel", "price")),
    ("orders", "whats the avg price", [D.price.mean()]),
    ("orders", "waht is the avergae price?", [D.price.mean()]),
    ("orders", "median units by customer", by(D, "customer", "units", "median")),
    ("orders", "which customer spent the most?", [D.groupby("customer").revenue.sum().idxmax()]),
    ("orders", "top 5 customers by revenue", list(D.groupby("customer").revenue.sum().nlargest(5))),
    ("orders", "show me the 5 largest orders", list(D.revenue.nlargest(5))),
    ("orders", "top 5 rows by revenue", list(D.revenue.nlargest(5))),
    ("orders", "revenue by month", by(D, D.date.dt.month, "revenue", "sum")),
    ("orders", "How many orders were returned?", [int(D.returned.sum())]),
    ("orders", "what share of orders was returned", [D.returned.mean()]),
    ("orders", "return rate by channel", by(D, "channel", "returned")),
    ("orders", "average returned by channel", by(D, "channel", "returned")),
    ("orders", "how many orders per region?", list(D.region.value_counts())),
    ("orders", "number of orders by region and channel", list(D[["region", "channel"]].value_counts())),
    ("orders", "Are there any missing values?", [int(D.isna().sum().sum())]),
    ("orders", "how many prices are missing", [23]),
    ("orders", "how many missing values are in price?", [int(D.price.isna().sum())]),
    ("orders", "describe the data", [400, 9]),
    ("orders", "give me a summary of orders", [400, 9]),
    ("orders", "what columns are there?", ["channel", "revenue"]),
    ("orders", "correlation between units and revenue", [D.units.corr(D.revenue)]),
    ("orders", "does price correlate with units?", [D.price.corr(D.units)]),
    ("orders", "mean price in the North", [D[D.region == "North"].price.mean()]),
    ("orders", "mean price where region is North", [D[D.region == "North"].price.mean()]),
    ("orders", "average revenue for web orders", [D[D.channel == "web"].revenue.mean()]),
    ("orders", "average revenue for web", [D[D.channel == "web"].revenue.mean()]),
    ("orders", "average revenue for orders over 100 euros", [D[D.revenue > 100].revenue.mean()]),
    ("orders", "how many orders are there where revenue > 500", [int((D.revenue > 500).sum())]),
    ("orders", "how many orders with revenue above 500", [int((D.revenue > 500).sum())]),
    ("orders", "how many orders with more than 10 units", [int((D.units > 10).sum())]),
    ("orders", "total revenue in march", [D[D.date.dt.month == 3].revenue.sum()]),
    ("orders", "plot revenue by units", [400]),
    ("orders", "plot revenue over time", NO),
    ("orders", "histogram of price", [D.price.count()]),
    ("orders", "show the distribution of revenue", [400]),
    ("orders", "what is the most expensive order", [D.price.max()]),
    ("orders", "max price", [D.price.max()]),
    ("orders", "what's the highest and lowest price", [D.price.max(), D.price.min()]),
    ("orders", "min and max price by region", by(D, "region", "price", "min") + by(D, "region", "price", "max")),
    ("orders", "how many distinct customers?", [6]),
    ("orders", "list the customers", ["Ada", "Flo"]),
    ("orders", "list the unique channels", ["web", "shop"]),
    ("orders", "is the difference in price between web and shop significant?", NO),
    ("orders", "average price by region excluding returns", by(D[~D.returned], "region", "price")),
    ("orders", "average price by region where returned is false", by(D[~D.returned], "region", "price")),
    ("orders", "average price and total revenue by region", NO),
    ("orders", "average price by region and plot revenue by units", [*by(D, "region", "price"), 400]),
    ("orders", "average price by region. Then plot revenue by units.", [*by(D, "region", "price"), 400]),
    ("orders", "mean units, then mean price", [D.units.mean(), D.price.mean()]),
    ("orders", "total units and revenue by channel",
     by(D, "channel", "units", "sum") + by(D, "channel", "revenue", "sum")),
    ("orders", "average revenue per unit", [D.revenue.sum() / D.units.sum()]),
    ("orders", "revenue per customer", by(D, "customer", "revenue", "sum")),
    ("orders", "standard deviation of price by channel", by(D, "channel", "price", "std")),
    ("orders", "what is the 90th percentile of revenue", [D.revenue.quantile(0.9)]),
    ("orders", "cumulative revenue by date", NO),
    ("orders", "first 3 orders", NO),
    ("orders", "show the last 4 rows", [D.order_id.iloc[-1]]),
    ("orders", "sort by revenue", NO),
    ("orders", "delete the returned orders", NO),
    ("orders", "when was the first order?", ["2026-01-01"]),
    ("orders", "min date", [str(D.date.min().date())]),
    ("orders", "average price by weekday", by(D, D.date.dt.weekday, "price")),
    ("orders", "which region has the highest average price?", [D.groupby("region").price.mean().idxmax()]),
    ("orders", "total revenue for Ada and Bo", [D[D.customer.isin(["Ada", "Bo"])].revenue.sum()]),
    ("orders", "total revenue for customer Ada", [D[D.customer == "Ada"].revenue.sum()]),
    ("orders", "total revenue for Ada", [D[D.customer == "Ada"].revenue.sum()]),
    ("orders", "total revenue where customer is Ada and channel is web",
     [D[(D.customer == "Ada") & (D.channel == "web")].revenue.sum()]),
    ("orders", "total revenue where units >= 10 and region is East",
     [D[(D.units >= 10) & (D.region == "East")].revenue.sum()]),
    ("orders", "average price where customer is not Ada", [D[D.customer != "Ada"].price.mean()]),
    ("orders", "按地区计算平均价格", by(D, "region", "price")),
    ("orders", "按 region 计算平均 price", by(D, "region", "price")),
    ("orders", "总 revenue 是多少？", [D.revenue.sum()]),
    ("orders", "每个 customer 的总 revenue", by(D, "customer", "revenue", "sum")),
    ("orders", "有多少行？", [400]),
    ("orders", "有多少订单被退货", [int(D.returned.sum())]),
    ("orders", "price 的中位数", [D.price.median()]),
    ("orders", "price 有多少缺失值？", [int(D.price.isna().sum())]),
    ("orders", "画 revenue 和 units 的散点图", [400]),
    ("orders", "revenue 最大的 3 行", list(D.revenue.nlargest(3))),
    ("orders", "哪个地区的收入最高？", [D.groupby("region").revenue.sum().idxmax()]),
    ("orders", "只看 web 的平均 price", [D[D.channel == "web"].price.mean()]),
    ("staff", "who earns the most?", ["Ro"]),
    ("staff", "average salary by team", by(S, "team", "salary")),
    ("staff", "average salry by team", by(S, "team", "salary")),
    ("staff", "how old is the oldest employee", [61]),
    ("staff", "how many people work remotely", [int(S.remote.sum())]),
    ("staff", "how many rows are there where remote is true", [int(S.remote.sum())]),
    ("staff", "how many people in team A?", [3]),
    ("staff", "how many rows are there where team is a", [3]),
    ("staff", "mean age of remote workers", [S[S.remote].age.mean()]),
    ("staff", "row with the highest salary", ["Ro", 81000]),
    ("staff", "Can you tell me the median age?", [45 - 3.5]),
    ("staff", "compare salaries of team A and team B", by(S, "team", "salary")[:2]),
    ("staff", "what's Li's salary", [31000]),
    ("staff", "salary where name is Li", [31000]),
    ("staff", "plot salary against age and save it to a file", NO),
    ("staff", "plot salary against age", [7]),
    ("staff", "give everyone a 5% raise", NO),
    ("staff", "average age by team for people over 30", by(S[S.age > 30], "team", "age")),
    ("staff", "average age by team where age over 30", by(S[S.age > 30], "team", "age")),
    ("销售", "总金额是多少", [X.金额.sum()]),
    ("销售", "按城市统计总金额", by(X, "城市", "金额", "sum")),
    ("销售", "每个城市的平均数量", by(X, "城市", "数量")),
    ("销售", "哪个城市卖得最好", [X.groupby("城市").金额.sum().idxmax()]),
    ("销售", "有多少种产品？", [2]),
    ("销售", "北京的总金额", [X[X.城市 == "北京"].金额.sum()]),
    ("销售", "总金额，其中城市是北京", [X[X.城市 == "北京"].金额.sum()]),
    ("销售", "total 金额 by 产品", by(X, "产品", "金额", "sum")),
    ("销售", "金额和数量的相关系数", [X.金额.corr(X.数量)]),
    ("visits", "average length of stay by ward", by(H, "ward", "length_of_stay")),
    ("visits", "what does a visit cost on average", [H.cost_eur.mean()]),
    ("visits", "mean cost by doctor", by(H, "Doctor Name", "cost_eur")),
    ("visits", "mean cost by doctor name", by(H, "Doctor Name", "cost_eur")),
    ("visits", "how many insured visits", [int((H.insured == "yes").sum())]),
    ("visits", "average cost for visits since may 2024", NO),
    ("visits", "total cost by ward and insured", by(H, ["ward", "insured"], "cost_eur", "sum")),
    ("visits", "visits per month", NO),
]  # fmt: skip


def computed(room: Room) -> bool:
    """Whether the answer rests on more than a look at names and values."""
    codes = [given["code"] for name, given in room.calls if name == "python"]
    return any(code != LOOK and not code.startswith("print({column:") for code in codes)


def says(said: str, value: Any) -> bool:
    """Whether an answer has a value: a text as it is, a number to four digits."""
    if isinstance(value, str):
        return value in said
    found = (float(each) for each in re.findall(r"-?\d+(?:\.\d+)?(?:e[+-]?\d+)?", said))
    return any(abs(each - float(value)) <= 6e-4 * abs(float(value)) for each in found)


def graded(number: int) -> str:
    """`right`, `told` that it can't, or `wrong`, for a question by its number."""
    table, question, wanted = QUESTIONS[number]
    with tempfile.TemporaryDirectory() as folder:
        room = Room(Path(folder))
        room.namespace[table] = TABLES[table].copy()
        said = room.ask(question)
    if not computed(room) or "Not done" in said or "没有做" in said:
        return "told"
    return "right" if all(says(said, value) for value in wanted) else f"wrong: {said}"


def test_no_everyday_question_gets_a_wrong_answer_and_every_fourth_is_answered() -> None:
    marks = {question: graded(number) for number, (_, question, _) in enumerate(QUESTIONS)}
    assert {question: mark for question, mark in marks.items() if mark not in ("right", "told")} == {}
    assert len(marks) >= 120
    assert list(marks.values()).count("right") >= 32
