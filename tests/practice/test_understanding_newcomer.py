"""What a newcomer tries first: Chinese column names, files of other habits, filling, and asking why a cell failed."""

from __future__ import annotations

from pathlib import Path

import matplotlib
import pandas as pd
import pytest
from practice_room import Room


@pytest.fixture
def room(tmp_path: Path) -> Room:
    """A room with a small table of Chinese names and one of orders."""
    matplotlib.use("Agg")
    made = Room(tmp_path)
    made.namespace["df"] = pd.DataFrame(
        {
            "城市": ["北京", "上海", "北京", "广州", "上海"],
            "销售额": [100, 200, 300, 150, 250],
            "日期": ["2024-01-01", "2024-01-02", "2024-01-03", "2024-01-04", "2024-01-05"],
        }
    )
    return made


@pytest.fixture
def shop(tmp_path: Path) -> Room:
    """A room with orders, some of whose totals are missing."""
    made = Room(tmp_path)
    made.namespace["orders"] = pd.DataFrame(
        {"city": ["Oslo", None, "Rome", "Rome"], "total": [1.0, None, 4.0, None], "items": [1.0, None, 2.0, 3.0]}
    )
    return made


CHINESE = [
    ("每个城市的平均销售额是多少?", 'groupby("城市")["销售额"]', "225"),
    ("average 销售额 by 城市", 'groupby("城市")["销售额"]', "225"),
    ("按城市统计销售额总和", '"sum"', "450"),
    ("画销售额按城市", 'groupby("城市")["销售额"]', "上海"),
    ("画销售额随日期的变化", '"日期"', "n = 5"),
    ("销售额最高的前3行", 'nlargest(3, "销售额")', "300"),
    ("销售额前三", 'nlargest(3, "销售额")', "300"),
    ("top 3 rows by 销售额", 'nlargest(3, "销售额")', "300"),
    ("城市有哪些取值?", '"城市"', "广州"),
    ("城市列有哪些唯一值", '"城市"', "广州"),
    ("what are the unique values of 城市", '"城市"', "广州"),
    ("where 销售额 > 150", 'df["销售额"] > 150', "**3**"),
    ("show rows where 销售额 > 150", 'df["销售额"] > 150', "**3**"),
    ("筛选销售额大于150的行", 'df["销售额"] > 150', "**3**"),
    ("把城市是北京的行筛选出来", 'df["城市"] == "北京"', "**2**"),
    ("北京的平均销售额", 'df["城市"] == "北京"', "200"),
    ("有多少行城市是上海", 'df["城市"] == "上海"', "**2**"),
]


@pytest.mark.parametrize(("asked", "code", "answer"), CHINESE)
def test_a_column_of_a_chinese_name_is_found_by_it(room: Room, asked: str, code: str, answer: str) -> None:
    said = room.ask(asked)
    assert code in room.code
    assert answer in said
    assert not [text for text, failed in room.results if failed]


def test_the_longest_chinese_name_wins(room: Room) -> None:
    room.namespace["df"] = pd.DataFrame({"销售": [1, 2], "销售额": [10, 30], "城市": ["a", "b"]})
    assert "**20" in room.ask("销售额的平均值")
    assert "**1.5" in room.ask("销售的平均值")


def test_a_unit_in_a_chinese_name_need_not_be_said(room: Room) -> None:
    room.namespace["df"] = pd.DataFrame({"城市": ["北京", "上海"], "销售额（万元）": [10, 30]})
    assert "**20" in room.ask("平均销售额是多少")
    assert "30" in room.ask("每个城市的平均销售额")


def test_chinese_words_still_name_english_columns(room: Room) -> None:
    room.namespace["df"] = pd.DataFrame({"city": ["x", "y", "x"], "sales": [1, 2, 3]})
    assert '"city"' in (room.ask("每个城市的平均销售额"), room.code)[1]


@pytest.mark.parametrize(("mark", "named"), [(";", "“;”"), ("\t", "a tab"), ("|", "“|”")])
def test_the_separator_of_a_file_is_found(room: Room, mark: str, named: str) -> None:
    (room.folder / "x.csv").write_text(f"a{mark}b\n1{mark}2\n3{mark}4\n")
    said = room.ask("load x.csv")
    assert list(room.namespace["x"].columns) == ["a", "b"]
    assert "**2** columns" in said
    assert named in said


def test_a_file_of_one_column_is_read_once(room: Room) -> None:
    (room.folder / "x.csv").write_text("a\n1\n3\n")
    assert "**1** columns" in room.ask("load x.csv")
    assert room.python_calls == 1


def test_a_decimal_comma_is_read_as_one(room: Room) -> None:
    (room.folder / "x.csv").write_text("a;b\n1,5;2,25\n3,5;4,0\n")
    said = room.ask("load x.csv")
    assert room.namespace["x"]["b"].sum() == 6.25
    assert "comma" in said


@pytest.mark.parametrize("encoding", ["gbk", "gb18030"])
@pytest.mark.parametrize("mark", [",", ";"])
def test_a_chinese_file_that_is_not_utf8_is_read_as_gb18030(room: Room, encoding: str, mark: str) -> None:
    text = f"城市{mark}销售额\n北京{mark}1\n上海{mark}2\n广州市{mark}3\n"
    (room.folder / "x.csv").write_bytes(text.encode(encoding))
    said = room.ask("load x.csv")
    assert list(room.namespace["x"].columns) == ["城市", "销售额"]
    assert room.namespace["x"]["城市"].tolist() == ["北京", "上海", "广州市"]
    assert "gb18030" in said


def test_a_western_file_is_read_as_latin_1_and_said_to_be(room: Room) -> None:
    (room.folder / "x.csv").write_bytes("name,x\nMüller,1\nKöln,2\nFrançois,3\n".encode("latin-1"))
    said = room.ask("load x.csv")
    assert room.namespace["x"]["name"].tolist() == ["Müller", "Köln", "François"]
    assert "latin-1" in said


def test_missing_values_are_filled_on_a_new_name(shop: Room) -> None:
    said = shop.ask("fill missing totals in orders with 0")
    assert shop.namespace["orders_filled"]["total"].tolist() == [1.0, 0.0, 4.0, 0.0]
    assert shop.namespace["orders"]["total"].isna().sum() == 2
    assert shop.namespace["orders_filled"]["items"].isna().sum() == 1
    assert "**2**" in said
    assert "`orders_filled`" in said


def test_missing_values_are_filled_in_place_when_asked(shop: Room) -> None:
    said = shop.ask("fill the missing total in orders itself with the mean")
    assert shop.namespace["orders"]["total"].tolist() == [1.0, 2.5, 4.0, 2.5]
    assert "itself is changed" in said


def test_filling_speaks_chinese(shop: Room) -> None:
    said = shop.ask("用 0 填充 orders 中 total 的缺失值")
    assert shop.namespace["orders_filled"]["total"].isna().sum() == 0
    assert "orders_filled" in said


def test_texts_are_filled_with_a_text(shop: Room) -> None:
    shop.ask("fill missing city in orders with 'unknown'")
    assert shop.namespace["orders_filled"]["city"].tolist() == ["Oslo", "unknown", "Rome", "Rome"]


@pytest.mark.parametrize(
    "asked",
    [
        "fill missing values in orders",
        "fill missing prices in orders with 0",
        "fill missing total of Rome with 0",
        "fill missing total of Paris with 0",
    ],
)
def test_nothing_is_filled_when_the_request_is_unclear(shop: Room, asked: str) -> None:
    shop.ask(asked)
    assert "orders_filled" not in shop.namespace


@pytest.mark.parametrize("asked", ["Load orders.csv and profile it", "读取 orders.csv，然后概览一下"])
def test_a_file_is_loaded_and_profiled(tmp_path: Path, asked: str) -> None:
    room = Room(tmp_path)
    (tmp_path / "orders.csv").write_text("city,total\nOslo,1\nRome,4\n")
    said = room.ask(asked)
    assert "orders" in room.namespace
    assert "2.50" in said
    assert "`orders`" in said


def test_a_file_is_loaded_and_drawn(tmp_path: Path) -> None:
    matplotlib.use("Agg")
    room = Room(tmp_path)
    room.namespace["bigger"] = pd.DataFrame({"total": range(50)})
    (tmp_path / "orders.csv").write_text("city,total\nOslo,1\nRome,4\n")
    room.ask("load orders.csv, then plot total by city")
    assert "orders" in room.code
    assert "bigger" not in room.code
    assert "plt" in room.code


def test_what_is_not_done_after_loading_is_named(tmp_path: Path) -> None:
    room = Room(tmp_path)
    (tmp_path / "orders.csv").write_text("city,total\nOslo,1\nRome,4\n")
    said = room.ask("Load orders.csv and email it to Bob")
    assert "Not done: “email it to Bob”" in said


def test_a_second_order_in_a_request_is_named(shop: Room) -> None:
    assert "Not done: “export it to a parquet file”" in shop.ask("profile orders and export it to a parquet file")


def test_columns_of_an_order_that_is_not_done_are_left_alone(shop: Room) -> None:
    said = shop.ask("fill missing items in orders with 0 and plot it by city")
    assert shop.namespace["orders_filled"]["city"].isna().sum() == 1
    assert shop.namespace["orders_filled"]["items"].tolist() == [1.0, 0.0, 2.0, 3.0]
    assert "Not done: “plot it by city”" in said


def test_missing_values_are_counted_and_filled_in_one_request(shop: Room) -> None:
    assert "**3**" in shop.ask("count missing values in orders and fill them with 0")


def test_a_name_given_after_the_file_is_taken(tmp_path: Path) -> None:
    room = Room(tmp_path)
    (tmp_path / "orders.csv").write_text("city,total\nOslo,1\n")
    assert "Not done" not in room.ask("load orders.csv, call it shop")
    assert "shop" in room.namespace


CELLS = "<context>\nRun by the user since the last request:\n```python\na = 1\n```\n```python\na / 0\n```\n</context>"


@pytest.mark.parametrize("asked", ["why did the last cell fail?", "为什么上一个单元格出错了？"])
def test_a_failed_cell_of_the_user_is_shown_and_its_error_asked_for(shop: Room, asked: str) -> None:
    said = shop.ask(asked, CELLS)
    assert "a / 0" in said
    assert "a = 1" not in said
    assert "Nothing I ran" not in said
    assert "KeyError" in said


def test_a_pasted_error_is_explained(shop: Room) -> None:
    assert "divided by zero" in shop.ask("why did the cell fail?\nZeroDivisionError: division by zero", CELLS)
