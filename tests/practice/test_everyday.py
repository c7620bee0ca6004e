"""Everyday questions, written without the forms in view: none gets a wrong answer; right, or told that it can't."""

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
X = pd.DataFrame(
    {
        "城市": ["北京", "上海", "广州", "北京", "上海", "深圳", "广州", "北京"],
        "产品": ["茶", "茶", "咖啡", "咖啡", "茶", "茶", "咖啡", "茶"],
        "数量": [10, 20, 15, 5, 8, 12, 30, 7], "金额": [100.5, 210.0, 330.0, 120.0, 88.0, 130.0, 660.0, 70.0],
    }
)  # fmt: skip


def by(table: pd.DataFrame, group: Any, column: str, stat: str = "mean") -> list[float]:
    return list(getattr(table.groupby(group)[column], stat)())


NO = ["no such number: 918273645"]
"""Expected of what cannot be computed by any form: only to be told so is right."""
QUESTIONS: list[tuple[str, list[Any]]] = [
    ("how many rows are in this table", [400]),
    ("How many orders were returned?", [int(D.returned.sum())]),
    ("how many rows per region?", list(D.region.value_counts())),
    ("how many rows where units > 10", [int((D.units > 10).sum())]),
    ("number of rows by region and channel", list(D[["region", "channel"]].value_counts())),
    ("what's the total revenue?", [D.revenue.sum()]),
    ("Total revenue by region please", by(D, "region", "revenue", "sum")),
    ("average price per channel", by(D, "channel", "price")),
    ("waht is the avergae price?", [D.price.mean()]),
    ("median units by customer", by(D, "customer", "units", "median")),
    ("top 5 customers by revenue", list(D.groupby("customer").revenue.sum().nlargest(5))),
    ("revenue by month", by(D, D.date.dt.month, "revenue", "sum")),
    ("total revenue by month", by(D, D.date.dt.month, "revenue", "sum")),
    ("average returned by channel", by(D, "channel", "returned")),
    ("Are there any missing values?", [int(D.isna().sum().sum())]),
    ("which values are missing in price and region?", [int(D[["price", "region"]].isna().sum().sum())]),
    ("describe the data", [400, 9]),
    ("what columns are there?", ["channel", "revenue"]),
    ("does price correlate with units?", [D.price.corr(D.units)]),
    ("mean price in the North", [D[D.region == "North"].price.mean()]),
    ("mean price where region is North", [D[D.region == "North"].price.mean()]),
    ("average revenue for web orders", [D[D.channel == "web"].revenue.mean()]),
    ("average revenue of web", [D[D.channel == "web"].revenue.mean()]),
    ("average price by region excluding returns", by(D[~D.returned], "region", "price")),
    ("average price by region where returned is false", by(D[~D.returned], "region", "price")),
    ("plot revenue by units", [400]),
    ("plot revenue by date", NO),
    ("plot revenue by units and save it to a file", NO),
    ("max price", [D.price.max()]),
    ("highest and lowest price", [D.price.max(), D.price.min()]),
    ("min and max price by region", by(D, "region", "price", "min") + by(D, "region", "price", "max")),
    ("average price and total revenue by region", NO),
    ("total units and revenue by channel", by(D, "channel", "units", "sum") + by(D, "channel", "revenue", "sum")),
    ("average price by region and plot revenue by units", [*by(D, "region", "price"), 400]),
    ("average price by region. Then plot revenue by units.", [*by(D, "region", "price"), 400]),
    ("mean units, then mean price", [D.units.mean(), D.price.mean()]),
    ("average revenue per unit", [D.revenue.sum() / D.units.sum()]),
    ("standard deviation of price by channel", by(D, "channel", "price", "std")),
    ("total revenue for Ada and Bo", [D[D.customer.isin(["Ada", "Bo"])].revenue.sum()]),
    ("only for Ada", NO),
    ("delete the returned orders", NO),
    ("按地区计算平均价格", by(D, "region", "price")),
    ("按 region 计算平均 price", by(D, "region", "price")),
    ("每个 customer 的总 revenue", by(D, "customer", "revenue", "sum")),
    ("有多少行？", [400]),
    ("price 的中位数", [D.price.median()]),
    ("price 有多少缺失值？", [int(D.price.isna().sum())]),
    ("画 revenue 和 units 的散点图", [400]),
    ("只看 web 的平均 price", [D[D.channel == "web"].price.mean()]),
    ("总金额是多少", [X.金额.sum()]),
    ("按城市统计总金额", by(X, "城市", "金额", "sum")),
    ("每个城市的平均数量", by(X, "城市", "数量")),
    ("北京的总金额", [X[X.城市 == "北京"].金额.sum()]),
    ("total 金额 by 产品", by(X, "产品", "金额", "sum")),
    ("金额和数量的相关系数", [X.金额.corr(X.数量)]),
]


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


def graded(question: str, wanted: list[Any]) -> str:
    """`right`, `told` that it can't, or `wrong`, for a question."""
    with tempfile.TemporaryDirectory() as folder:
        room = Room(Path(folder))
        name, table = ("销售", X) if re.search("金额|数量", question) else ("orders", D)
        room.namespace[name] = table.copy()
        said = room.ask(question)
    if not computed(room) or "Not done" in said or "没有做" in said:
        return "told"
    return "right" if all(says(said, value) for value in wanted) else f"wrong: {said}"


def test_no_everyday_question_gets_a_wrong_answer_and_about_half_are_answered() -> None:
    marks = {question: graded(question, wanted) for question, wanted in QUESTIONS}
    assert {question: mark for question, mark in marks.items() if mark not in ("right", "told")} == {}
    assert list(marks.values()).count("right") >= 25
